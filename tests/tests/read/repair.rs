//! READs over a network that loses, doubles and overtakes: every kind of packet, and everything at once.

use super::{Area, Bench};
use anyhow::{ensure, Result};
use mprdma_spec::counter::Counter;
use mprdma_spec::status::WcStatus;
use mprdma_tests::in_turn::InTurn;
use mprdma_tests::outcomes::good;
use mprdma_tests::rig::{both, count, further, read_request, write_request, PairAttr, Rig, US};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const MTU: usize = 256;

/// The request of a READ is lost, and the first, a middle, the last and the only packet of its answer, and the ACKs of each
/// and the retransmissions.
#[test]
fn section_7_every_kind_of_packet_lost_in_turn() -> Result<()> {
    let attr = PairAttr {
        mtu: MTU as u32,
        psn: 0xff_fff0,
        ..PairAttr::default()
    };
    let mut in_turn = InTurn::start(70, &attr)?;
    let there = Area::new(&in_turn.rig, 1, 5, 70 * MTU, Some(70))?;
    let mut here = Area::new(&in_turn.rig, 0, 3, 80 * MTU, None)?;
    let mut wr_id = 0;
    for packets in [1, 2, 3, 17, 70] {
        let mut places = vec![(0, 0), (1, 0), (1, packets / 2), (1, packets - 1)];
        places.dedup();
        for place in places {
            in_turn.each([1, packets], place, |rig, pair| {
                let length = packets * MTU - wr_id as usize % 7;
                let (to, source) = (wr_id as usize % 9 * 64, wr_id as usize % 7);
                let read = read_request(wr_id, &here.mr, &there.mr, length);
                let found = rig.done(pair, &[further(read, to, source)])?;
                ensure!(found == [(wr_id, WcStatus::Success)], "{found:?}");
                here.takes(to, &there.expected[source..source + length]);
                here.check()?;
                wr_id += 1;
                Ok(())
            })?;
        }
    }
    in_turn.rig.sim.run(100 * US);
    here.check()?;
    let side = &in_turn.rig.sides[0];
    ensure!(side.cq.poll(1)?.is_empty(), "one too many");
    Ok(())
}

/// Random READs and WRITEs, some fenced, some synchronised, some silent, in both directions, over paths that do `fault`.
fn run(fault: &str, seed: u64) -> Result<Rig> {
    const COUNT: usize = 60;
    const MOST: usize = 20_000;
    println!("seed {seed}: {fault}");
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/../sim/scenarios/demo.toml");
    let text = format!(
        "{}\n[[link]]\nfrom = \"leaf*\"\nto = \"spine*\"\nboth = true\n{fault}\n",
        std::fs::read_to_string(demo)?
    );
    let rig = Rig::start(&text, seed)?;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let attr = PairAttr {
        mtu: [256, 1024, 4096][rng.random_range(0..3)],
        psn: rng.random_range(0..1 << 24),
        ..PairAttr::default()
    };
    let pair = rig.pair(0, 1, &attr)?;
    let sources = [0, 1].map(|card| Area::new(&rig, card, 1, MOST, Some(seed + card as u64)));
    let targets = [0, 1].map(|card| Area::new(&rig, card, 3, 2 * COUNT * MOST, None));
    let [a, b] = sources;
    let sources = [a?, b?];
    let [a, b] = targets;
    let mut targets = [a?, b?];
    let mut silent = [0; 2];
    for (card, qp) in [&pair.tx, &pair.rx].into_iter().enumerate() {
        let mut requests = vec![];
        for i in 0..COUNT {
            let length = match rng.random_range(0..4) {
                0 => rng.random_range(0..64),
                1 => rng.random_range(4090..4102),
                _ => rng.random_range(0..=MOST),
            };
            let from = rng.random_range(0..=MOST - length);
            let reads = rng.random_bool(0.6);
            // Each card's targets: first what it reads, then what the other writes.
            let (here, mut request) = match reads {
                true => {
                    let (to, source) = (&targets[card].mr, &sources[1 - card].mr);
                    let request = read_request(i as u64, to, source, length);
                    (card, further(request, i * MOST, from))
                }
                false => {
                    let (source, to) = (&sources[card].mr, &targets[1 - card].mr);
                    let request = write_request(i as u64, source, to, length);
                    (1 - card, further(request, from, (COUNT + i) * MOST))
                }
            };
            request.flags.signaled = i + 1 == COUNT || rng.random_bool(0.8);
            request.flags.fence = rng.random_bool(0.1);
            request.flags.sync = rng.random_bool(0.1);
            silent[card] += usize::from(!request.flags.signaled);
            requests.push(request);
            let place = if reads { i } else { COUNT + i } * MOST;
            let data = sources[1 - here].expected[from..from + length].to_vec();
            targets[here].takes(place, &data);
        }
        qp.post_send(&requests)?;
    }
    for (card, silent) in silent.into_iter().enumerate() {
        let found = rig.completions(card, COUNT - silent, 50_000 * US)?;
        let mut last = None;
        for wc in found {
            ensure!(wc.status == WcStatus::Success, "{wc:?}");
            ensure!(Some(wc.wr_id) > last, "{} behind {last:?}", wc.wr_id);
            last = Some(wc.wr_id);
        }
        assert_eq!(last, Some(COUNT as u64 - 1));
    }
    rig.sim.run(100 * US);
    for (target, side) in targets.iter().zip(&rig.sides) {
        target.check()?;
        ensure!(side.cq.poll(1)?.is_empty(), "one too many");
        ensure!(side.context.poll_events()?.is_empty());
        assert_eq!(
            count(&side.context, Counter::MessagesCompleted)?,
            COUNT as u64
        );
        assert_eq!(count(&side.context, Counter::BadAcks)?, 0);
    }
    Ok(rig)
}

#[test]
fn loss() -> Result<()> {
    for (fault, seed) in [("loss = 0.01", 71), ("loss = 0.05", 73)] {
        let rig = run(fault, seed)?;
        assert!(both(&rig, Counter::TxRetransmissions)? > 0);
    }
    Ok(())
}

#[test]
fn duplication_and_reordering() -> Result<()> {
    let rig = run("duplicate = 0.1\nreorder = 0.2\nreorder_ns = 8000", 75)?;
    assert!(both(&rig, Counter::RxDuplicates)? > 0);
    assert!(both(&rig, Counter::RxOutOfOrder)? > 0);
    Ok(())
}

const MIXED: &str =
    "loss = 0.02\ncorrupt = 0.01\nduplicate = 0.03\nreorder = 0.1\nreorder_ns = 8000";

#[test]
fn everything_at_once() -> Result<()> {
    for seed in [77, 79, 81] {
        run(MIXED, seed)?;
    }
    Ok(())
}

/// Paths die for a while, all of them.
#[test]
fn a_blackout() -> Result<()> {
    let bench = Bench::new("demo", 83, &PairAttr::default(), 1 << 20)?;
    let reads: Vec<_> = (0..16)
        .map(|i| bench.read(i, (i as usize) << 16, (i as usize) << 16, 1 << 16))
        .collect();
    bench.pair.tx.post_send(&reads)?;
    bench.rig.sim.run(20 * US);
    let rule = mprdma_sim::scenario::LinkRule {
        from: "*".into(),
        to: "*".into(),
        ..Default::default()
    };
    assert!(bench.rig.sim.change_link(&rule, Some(true)) > 0);
    bench.rig.sim.run(300 * US);
    assert!(bench.rig.sim.change_link(&rule, Some(false)) > 0);
    assert_eq!(bench.outcomes(16)?, good(16));
    assert_eq!(bench.here.bytes(0, 1 << 20)?, bench.there.expected);
    assert!(both(&bench.rig, Counter::Timeouts)? > 0);
    Ok(())
}

mprdma_tests::on_model!(
    section_7_every_kind_of_packet_lost_in_turn,
    loss,
    duplication_and_reordering,
    everything_at_once,
    a_blackout,
);
