//! One measurement: flows over a network for a time, on the golden model or on cards.

use crate::rig::{write_request, Pair, PairAttr, Rig, US};
use anyhow::{ensure, Result};
use mprdma_host::memory::{Memory, PageSize};
use mprdma_host::verbs::{Mr, MultiPath, RtsAttr, DISTANCES};
use mprdma_sim::engine as cards;
use mprdma_sim::fabric::FabricStats;
use mprdma_sim::golden::{self, Change, Flow, FlowOutcome, Latency, Load, Sample, SenderConfig};
use mprdma_sim::scenario::Scenario;
use mprdma_sim::time::{Ps, NS};
use mprdma_sim::world::Options;
use mprdma_spec::status::WcStatus;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::VecDeque;
use std::sync::Arc;

/// Packets of a WRITE of an endless flow: few, since completions are what is counted.
const PACKETS: u32 = 4;
/// WRITEs that an endless flow keeps posted.
const DEPTH: usize = 60;
/// Longest message of an on-off flow, in mean lengths.
const LONGEST: u32 = 8;
/// What the model adds for a card: measured on the RTL, whose frames also wait until they are whole.
const CARD: Latency = Latency {
    send: 1000 * NS,
    receive: 200 * NS,
};
/// Time between two looks at the completion queues.
const POLL: Ps = US / 4;

/// What runs the flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Engine {
    /// The golden model, one engine per flow end.
    Model,
    /// The golden model as a card, with the driver.
    StandIn,
    /// Verilated cards and their driver.
    Rtl,
}

impl Engine {
    /// Name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Engine::Model => "model",
            Engine::StandIn => "stand-in",
            Engine::Rtl => "rtl",
        }
    }
}

/// What is run.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The network.
    pub scenario: &'a Scenario,
    /// The flows.
    pub flows: &'a [Flow],
    /// What happens to links meanwhile.
    pub changes: &'a [Change],
    /// How long.
    pub end: Ps,
    /// Time between two samples.
    pub every: Ps,
    /// Seed.
    pub seed: u64,
}

/// Counts of a flow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Packets sent.
    pub sent: u64,
    /// Retransmissions of holes, in recovery, after timeouts.
    pub resent: [u64; 3],
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// ACKs of slow paths.
    pub prunes: u64,
    /// ACKs that echoed a mark.
    pub ecn_echoes: u64,
    /// Packets beyond the bitmap.
    pub out_of_window: u64,
    /// Packets that had arrived before.
    pub duplicates: u64,
    /// Accepted packets by distance from the next in order, in buckets that begin at [`DISTANCES`].
    pub distance: [u64; 8],
}

impl Tally {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Tally) {
        self.sent += other.sent;
        self.timeouts += other.timeouts;
        self.prunes += other.prunes;
        self.ecn_echoes += other.ecn_echoes;
        self.out_of_window += other.out_of_window;
        self.duplicates += other.duplicates;
        for (sum, value) in self.resent.iter_mut().zip(other.resent) {
            *sum += value;
        }
        for (sum, value) in self.distance.iter_mut().zip(other.distance) {
            *sum += value;
        }
    }
}

/// What was seen.
#[derive(Clone, Debug)]
pub struct Observed {
    /// Looks at regular intervals, the first at the start.
    pub samples: Vec<Sample>,
    /// Counts of each flow.
    pub tallies: Vec<Tally>,
    /// Counters of the network.
    pub fabric: FabricStats,
}

impl Observed {
    /// Payload rate of what is completed of a flow between two samples, Gb/s.
    #[must_use]
    pub fn gbps(&self, flow: usize, mtu: u32, first: usize, last: usize) -> f64 {
        golden::gbps(&self.samples[first], &self.samples[last], flow, mtu)
    }

    /// Payload rate of a flow into the peer's memory between two samples, Gb/s.
    #[must_use]
    pub fn placed_gbps(&self, flow: usize, mtu: u32, first: usize, last: usize) -> f64 {
        golden::placed_gbps(&self.samples[first], &self.samples[last], flow, mtu)
    }

    /// Part of leaf 0's packets that went by a spine between two samples.
    #[must_use]
    pub fn share(&self, spine: usize, first: usize, last: usize) -> f64 {
        let sent = |s: usize| {
            self.samples[last].by_spine[s] as f64 - self.samples[first].by_spine[s] as f64
        };
        let all: f64 = (0..self.samples[last].by_spine.len()).map(sent).sum();
        sent(spine) / all.max(1.0)
    }
}

/// Runs it.
pub fn run(engine: Engine, request: &Request<'_>) -> Result<Observed> {
    match engine {
        Engine::Model => Ok(on_model(request)),
        Engine::StandIn => on_cards(cards::Engine::Model, request),
        Engine::Rtl => on_cards(cards::Engine::Rtl, request),
    }
}

fn on_model(request: &Request<'_>) -> Observed {
    let out = golden::run(
        request.scenario,
        request.flows,
        request.changes,
        CARD,
        (request.end, request.every),
        request.seed,
    );
    Observed {
        samples: out.samples,
        tallies: out.flows.iter().map(tally_of_model).collect(),
        fabric: out.fabric,
    }
}

fn tally_of_model(flow: &FlowOutcome) -> Tally {
    let mut distance = [0; 8];
    for (ahead, count) in flow.ahead.iter().enumerate() {
        let bucket = DISTANCES.partition_point(|&least| least as usize <= ahead) - 1;
        distance[bucket] += count;
    }
    Tally {
        sent: flow.sent,
        resent: flow.retransmissions,
        timeouts: flow.timeouts.len() as u64,
        prunes: flow.prunes,
        ecn_echoes: flow.ecn_echoes,
        out_of_window: flow.out_of_window,
        duplicates: flow.duplicates,
        distance,
    }
}

fn attr(flow: &Flow) -> PairAttr {
    let SenderConfig {
        vp_base,
        vp_count,
        probe,
        delta,
        initial_window,
        cwnd_max,
        burst_interval,
        rto_floor,
        retry_cnt,
        rnr_retry,
        alpha,
        hole_repair,
        vp_recycle,
    } = flow.sender;
    PairAttr {
        mtu: flow.mtu,
        rts: RtsAttr {
            timeout: rto_floor.into(),
            retry_cnt,
            rnr_retry,
            multi_path: MultiPath {
                vp_base: vp_base.into(),
                vp_count: vp_count.into(),
                probe: probe.into(),
                delta: delta.into(),
                initial_window: initial_window.into(),
                cwnd_max: cwnd_max.into(),
                burst_interval: burst_interval.into(),
                alpha: alpha.into(),
                hole_repair,
                vp_recycle,
            },
            ..RtsAttr::new(0)
        },
        ..PairAttr::default()
    }
}

/// A flow between two cards.
struct Stream {
    load: Load,
    mtu: u32,
    pair: Pair,
    source: Mr,
    target: Mr,
    /// Packets of the WRITEs posted and not completed.
    posted: VecDeque<u32>,
    delivered: u64,
    /// Packets not posted yet, of a flow that ends.
    left: u32,
    /// When the next message of an on-off flow is posted.
    next: Ps,
}

impl Stream {
    fn new(
        rig: &Rig,
        flow: &Flow,
        memory: &[Arc<Memory>],
        now: Ps,
        rng: &mut ChaCha8Rng,
    ) -> Result<Stream> {
        let bytes = memory[0].bytes();
        let next = match flow.load {
            Load::OnOff { pause, .. } => now + exponential(rng, pause as f64) as Ps,
            _ => 0,
        };
        Ok(Stream {
            load: flow.load,
            mtu: flow.mtu,
            pair: rig.pair(flow.from, flow.to, &attr(flow))?,
            source: rig.register(flow.from, &memory[flow.from], 0, bytes)?,
            target: rig.register(flow.to, &memory[flow.to], 0, bytes)?,
            posted: VecDeque::new(),
            delivered: 0,
            left: match flow.load {
                Load::Packets(packets) => packets,
                _ => u32::MAX,
            },
            next,
        })
    }

    fn post(&mut self, id: u64, packets: u32) -> Result<()> {
        let bytes = (packets * self.mtu) as usize;
        let request = write_request(id, &self.source, &self.target, bytes);
        self.pair.tx.post_send(&[request])?;
        self.posted.push_back(packets);
        Ok(())
    }

    /// Posts what is due.
    fn feed(&mut self, id: u64, now: Ps, rng: &mut ChaCha8Rng) -> Result<()> {
        if let Load::OnOff { packets, .. } = self.load {
            if self.posted.is_empty() && now >= self.next {
                let length = 1.0 + exponential(rng, f64::from(packets));
                self.post(id, (length as u32).min(LONGEST * packets))?;
            }
            return Ok(());
        }
        while self.posted.len() < DEPTH && self.left > 0 {
            // What ends is counted packet by packet.
            let packets = match self.load {
                Load::Packets(_) => 1,
                _ => PACKETS,
            };
            self.left -= packets;
            self.post(id, packets)?;
        }
        Ok(())
    }

    fn completed(&mut self, now: Ps, rng: &mut ChaCha8Rng) {
        self.delivered += u64::from(self.posted.pop_front().unwrap_or(0));
        if let (Load::OnOff { pause, .. }, true) = (self.load, self.posted.is_empty()) {
            self.next = now + exponential(rng, pause as f64) as Ps;
        }
    }

    /// Packets that the receiver has placed, each counted once.
    fn placed(&self) -> Result<u64> {
        let distance = self.pair.rx.query_stats()?.distance;
        Ok(distance.into_iter().map(u64::from).sum())
    }

    fn tally(&self) -> Result<Tally> {
        let (tx, rx) = (self.pair.tx.query_stats()?, self.pair.rx.query_stats()?);
        Ok(Tally {
            sent: tx.sent.into(),
            resent: [tx.retx_hole, tx.retx_recovery, tx.retx_timeout].map(u64::from),
            timeouts: tx.timeouts.into(),
            prunes: tx.prunes.into(),
            ecn_echoes: tx.ecn_echoes.into(),
            out_of_window: rx.out_of_window.into(),
            duplicates: rx.duplicates.into(),
            distance: rx.distance.map(u64::from),
        })
    }
}

fn exponential(rng: &mut ChaCha8Rng, mean: f64) -> f64 {
    -mean * (1.0 - rng.random::<f64>()).ln()
}

fn on_cards(engine: cards::Engine, request: &Request<'_>) -> Result<Observed> {
    let mut scenario = request.scenario.clone();
    scenario.card.bitmap_slots = request.flows[0].slots as usize;
    let options = Options {
        engine,
        seed: request.seed,
        // Seeds run in parallel instead.
        threads: 1,
        pcap: None,
    };
    let rig = Rig::new(&scenario, &options)?;
    let mut rng = ChaCha8Rng::seed_from_u64(request.seed);
    let longest = request.flows.iter().map(|flow| match flow.load {
        Load::OnOff { packets, .. } => LONGEST * packets * flow.mtu,
        _ => PACKETS * flow.mtu,
    });
    let bytes = longest.max().unwrap_or(0) as usize;
    let memory = (0..rig.sides.len())
        .map(|_| Ok(Arc::new(Memory::allocate(bytes, PageSize::Small)?)))
        .collect::<Result<Vec<_>>>()?;
    let setting_up = rig.sim.now();
    let mut streams = request
        .flows
        .iter()
        .map(|flow| Stream::new(&rig, flow, &memory, setting_up, &mut rng))
        .collect::<Result<Vec<_>>>()?;
    let mut changes = request.changes.iter().peekable();
    let start = rig.sim.now();
    let mut samples = vec![sample(&rig, &streams, 0)?];
    loop {
        let now = rig.sim.now() - start;
        while changes.peek().is_some_and(|change| change.at <= now) {
            if let Some(change) = changes.next() {
                rig.sim.change_link(&change.rule, change.down);
            }
        }
        collect(&rig, &mut streams, &mut rng)?;
        if now >= samples.len() as Ps * request.every {
            samples.push(sample(&rig, &streams, now)?);
        }
        if now >= request.end {
            break;
        }
        for (i, stream) in streams.iter_mut().enumerate() {
            stream.feed(i as u64, rig.sim.now(), &mut rng)?;
        }
        rig.sim.run(POLL);
    }
    Ok(Observed {
        samples,
        tallies: streams.iter().map(Stream::tally).collect::<Result<_>>()?,
        fabric: rig.sim.stats().fabric,
    })
}

fn collect(rig: &Rig, streams: &mut [Stream], rng: &mut ChaCha8Rng) -> Result<()> {
    let now = rig.sim.now();
    for side in &rig.sides {
        for wc in side.cq.poll(256)? {
            ensure!(
                wc.status == WcStatus::Success,
                "a WRITE of flow {} completed with {:?}",
                wc.wr_id,
                wc.status
            );
            streams[wc.wr_id as usize].completed(now, rng);
        }
    }
    Ok(())
}

fn sample(rig: &Rig, streams: &[Stream], at: Ps) -> Result<Sample> {
    let stats = rig.sim.stats();
    let paths = stats.fabric.paths.iter().filter(|p| p.from == "leaf0");
    Ok(Sample {
        at,
        delivered: streams.iter().map(|stream| stream.delivered).collect(),
        placed: streams.iter().map(Stream::placed).collect::<Result<_>>()?,
        by_spine: paths.map(|p| p.packets).collect(),
    })
}
