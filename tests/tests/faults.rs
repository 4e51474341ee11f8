//! Many small messages on several queue pairs in both directions, through a network that loses, damages, doubles and
//! overtakes: memory is exact, completions come once and in order, counters add up.

use anyhow::Result;
use mprdma_host::memory::{Memory, PageSize};
use mprdma_host::verbs::{Mr, SendWr};
use mprdma_spec::counter::Counter;
use mprdma_spec::status::WcStatus;
use mprdma_tests::rig::{both, count, pattern, write_request, Pair, PairAttr, Rig, US};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

/// Queue pairs in each direction.
const PAIRS: usize = 3;
const MAX_LENGTH: usize = 20_000;
/// What the memory around and between the messages holds.
const UNTOUCHED: u8 = 0xee;

/// One queue pair with its messages, each to a place of its own.
struct Flow {
    pair: Pair,
    memory: Arc<Memory>,
    expected: Vec<u8>,
    requests: Vec<SendWr>,
    posted: usize,
    done: usize,
    _regions: [Mr; 2],
}

fn flow(
    rig: &Rig,
    rng: &mut ChaCha8Rng,
    (from, to): (usize, usize),
    messages: usize,
) -> Result<Flow> {
    let attr = PairAttr {
        mtu: [256, 1024, 4096][rng.random_range(0..3)],
        psn: rng.random_range(0..1 << 24),
        ..PairAttr::default()
    };
    let pair = rig.pair(from, to, &attr)?;
    let source = rig.region(from, rng.random_range(0..64), MAX_LENGTH)?;
    let data = pattern(rng.random(), MAX_LENGTH);
    source.write(0, &data)?;
    let lengths: Vec<usize> = (0..messages)
        .map(|_| match rng.random_range(0..4) {
            0 => rng.random_range(0..64),
            1 => rng.random_range(4090..4102),
            _ => rng.random_range(0..=MAX_LENGTH),
        })
        .collect();
    let memory = Arc::new(Memory::allocate(
        lengths.iter().map(|length| length + 16).sum::<usize>() + 16,
        PageSize::Small,
    )?);
    let mut expected = vec![UNTOUCHED; memory.bytes()];
    memory.write(0, &expected)?;
    let target = rig.register(to, &memory, 0, memory.bytes())?;
    let mut place = 16;
    let mut requests = Vec::new();
    for (i, &length) in lengths.iter().enumerate() {
        let start = rng.random_range(0..=MAX_LENGTH - length);
        requests.push(SendWr {
            addr: source.addr() + start as u64,
            remote_addr: target.addr() + place as u64,
            ..write_request(i as u64, &source, &target, length)
        });
        expected[place..place + length].copy_from_slice(&data[start..start + length]);
        place += length + rng.random_range(1..=16);
    }
    Ok(Flow {
        pair,
        memory,
        expected,
        requests,
        posted: 0,
        done: 0,
        _regions: [source, target],
    })
}

/// Runs the flows through a demo network whose links between leaf and spine do `fault`.
fn run(fault: &str, seed: u64, messages: usize) -> Result<Rig> {
    println!("seed {seed}: {fault}");
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/../sim/scenarios/demo.toml");
    let text = format!(
        "{}\n[[link]]\nfrom = \"leaf*\"\nto = \"spine*\"\nboth = true\n{fault}\n",
        std::fs::read_to_string(demo)?
    );
    let rig = Rig::start(&text, seed)?;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut flows = (0..2 * PAIRS)
        .map(|i| flow(&rig, &mut rng, (i % 2, 1 - i % 2), messages))
        .collect::<Result<Vec<_>>>()?;
    let end = rig.sim.now() + 50_000 * US;
    while flows.iter().any(|flow| flow.done < messages) {
        assert!(rig.sim.now() < end, "seed {seed}: not done after 50 ms");
        for flow in &mut flows {
            let room = (messages - flow.posted).min(16 - (flow.posted - flow.done));
            flow.pair
                .tx
                .post_send(&flow.requests[flow.posted..flow.posted + room])?;
            flow.posted += room;
        }
        for (card, side) in rig.sides.iter().enumerate() {
            for wc in side.cq.poll(64)? {
                let flow = flows
                    .iter_mut()
                    .find(|flow| flow.pair.from == card && flow.pair.tx.qp_num() == wc.qp_num)
                    .expect("a completion of a queue pair that sends");
                assert_eq!(
                    (wc.wr_id, wc.status),
                    (flow.done as u64, WcStatus::Success),
                    "seed {seed}, QP {}",
                    wc.qp_num
                );
                flow.done += 1;
            }
        }
        rig.sim.run(US);
    }
    // Late duplicates must not write or complete anything either.
    rig.sim.run(100 * US);
    for (i, flow) in flows.iter().enumerate() {
        let mut got = vec![0; flow.memory.bytes()];
        flow.memory.read(0, &mut got)?;
        let wrong = got.iter().zip(&flow.expected).position(|(a, b)| a != b);
        assert_eq!(
            wrong, None,
            "seed {seed}: flow {i} differs from this byte on"
        );
    }
    for side in &rig.sides {
        assert!(side.cq.poll(64)?.is_empty(), "seed {seed}: one too many");
        assert!(side.context.poll_events()?.is_empty());
        let total = (PAIRS * messages) as u64;
        assert_eq!(count(&side.context, Counter::MessagesCompleted)?, total);
        assert_eq!(count(&side.context, Counter::CqesWritten)?, total);
        assert_eq!(count(&side.context, Counter::BadAcks)?, 0);
    }
    Ok(rig)
}

#[test]
fn corruption() -> Result<()> {
    let rig = run("corrupt = 0.01", 1, 30)?;
    assert!(both(&rig, Counter::RxDropIcrc)? > 0);
    assert!(both(&rig, Counter::TxRetransmissions)? > 0);
    Ok(())
}

#[test]
fn loss() -> Result<()> {
    for (fault, seed) in [("loss = 0.01", 2), ("loss = 0.05", 3)] {
        let rig = run(fault, seed, 30)?;
        let sent = both(&rig, Counter::TxFrames)?;
        let arrived = both(&rig, Counter::RxFrames)?;
        assert_eq!(sent, arrived + rig.sim.stats().fabric.drops);
        assert!(both(&rig, Counter::TxRetransmissions)? > 0);
    }
    Ok(())
}

#[test]
fn duplication_and_reordering() -> Result<()> {
    let rig = run("duplicate = 0.05\nreorder = 0.1\nreorder_ns = 8000", 4, 30)?;
    assert!(both(&rig, Counter::RxDuplicates)? > 0);
    assert!(both(&rig, Counter::RxOutOfOrder)? > 0);
    Ok(())
}

const MIXED: &str =
    "loss = 0.02\ncorrupt = 0.01\nduplicate = 0.03\nreorder = 0.1\nreorder_ns = 8000";

#[test]
fn everything_at_once() -> Result<()> {
    let rig = run(MIXED, 5, 30)?;
    assert!(both(&rig, Counter::TxRetransmissions)? > 0);
    Ok(())
}

/// Minutes.
#[test]
#[ignore]
fn everything_at_once_for_many_seeds() -> Result<()> {
    for seed in 100..120 {
        run(MIXED, seed, 100)?;
    }
    Ok(())
}

mprdma_tests::on_model!(
    corruption,
    loss,
    duplication_and_reordering,
    everything_at_once,
);
