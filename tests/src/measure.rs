//! Streams of WRITEs, measured in simulated time.

use crate::rig::{write_request, PairAttr, Rig, US};
use anyhow::{ensure, Result};
use mprdma_sim::time::{Ps, NS};
use mprdma_spec::config::CLOCK_MHZ;
use mprdma_spec::counter::Counter;
use mprdma_spec::status::WcStatus;
use std::time::Instant;

/// What a stream did.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Payload bits per second of simulated time, in Gb/s, from the first to the last completion.
    pub steady_gbps: f64,
    /// The same from the first doorbell to the last completion.
    pub gbps: f64,
    /// Simulated time from the first doorbell to the last completion, ps.
    pub time: Ps,
    /// Core cycles in that time.
    pub cycles: u64,
    /// Cycles simulated per second of wall time and card.
    pub cycles_per_second: f64,
    /// Part of the sender's bytes by each spine; empty without spines.
    pub shares: Vec<f64>,
    /// Counters of the sender's card.
    pub sender: Vec<(Counter, u64)>,
    /// Counters of the receiver's card.
    pub receiver: Vec<(Counter, u64)>,
}

impl Stream {
    /// A counter of the sender's card.
    #[must_use]
    pub fn sent(&self, counter: Counter) -> u64 {
        self.sender
            .iter()
            .find(|(c, _)| *c == counter)
            .map_or(0, |(_, value)| *value)
    }

    /// A counter of the receiver's card.
    #[must_use]
    pub fn received(&self, counter: Counter) -> u64 {
        self.receiver
            .iter()
            .find(|(c, _)| *c == counter)
            .map_or(0, |(_, value)| *value)
    }
}

/// Sends `messages` WRITEs of `size` bytes from card 0 to card 1, at most `depth` at a time.
pub fn stream(
    rig: &Rig,
    attr: &PairAttr,
    messages: usize,
    size: usize,
    depth: usize,
) -> Result<Stream> {
    let pair = rig.pair(0, 1, attr)?;
    let (source, target) = (rig.region(0, 0, size)?, rig.region(1, 0, size)?);
    let (start, wall) = (rig.sim.now(), Instant::now());
    let limit = start + (messages * size) as Ps * 8 * NS + 100_000 * US;
    let (mut posted, mut done, mut first) = (0, 0, start);
    while done < messages {
        while posted < messages && posted - done < depth {
            pair.tx
                .post_send(&[write_request(posted as u64, &source, &target, size)])?;
            posted += 1;
        }
        for wc in rig.sides[0].cq.poll(64)? {
            ensure!(
                wc.status == WcStatus::Success,
                "WRITE {} completed with {:?}",
                wc.wr_id,
                wc.status
            );
            if done == 0 {
                first = rig.sim.now();
            }
            done += 1;
        }
        ensure!(
            rig.sim.now() < limit,
            "{done} of {messages} WRITEs after {} us",
            (rig.sim.now() - start) / US
        );
        rig.sim.run(US / 4);
    }
    let time = rig.sim.now() - start;
    let gbps = |bytes: usize, time: Ps| bytes as f64 * 8.0 / (time as f64 / NS as f64);
    let stats = rig.sim.stats();
    let cycles = time / NS * u64::from(CLOCK_MHZ) / 1000;
    Ok(Stream {
        steady_gbps: gbps((messages - 1) * size, time - (first - start)),
        gbps: gbps(messages * size, time),
        time,
        cycles,
        cycles_per_second: cycles as f64 / wall.elapsed().as_secs_f64(),
        shares: stats
            .fabric
            .paths
            .iter()
            .filter(|p| p.from == "leaf0")
            .map(|p| p.share)
            .collect(),
        sender: rig.sides[0].context.counters()?,
        receiver: rig.sides[1].context.counters()?,
    })
}
