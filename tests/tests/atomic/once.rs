//! Each ATOMIC is done exactly once, whatever the network does.

use super::{at, Words};
use anyhow::{ensure, Result};
use mprdma_host::verbs::SendWr;
use mprdma_spec::counter::Counter;
use mprdma_spec::status::WcStatus;
use mprdma_tests::in_turn::InTurn;
use mprdma_tests::outcomes::good;
use mprdma_tests::rig::{
    add_request, count, read_request, swap_request, write_request, PairAttr, Rig, US,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The request of an ATOMIC is lost, its answer, the ACKs of both, and the retransmissions.
#[test]
fn section_7_atomic_every_kind_of_packet_lost_in_turn() -> Result<()> {
    let attr = PairAttr {
        psn: 0xff_fffb,
        ..PairAttr::default()
    };
    let mut in_turn = InTurn::start(110, &attr)?;
    let here = Words::new(&in_turn.rig, 0, 3)?;
    let there = Words::new(&in_turn.rig, 1, 0)?;
    there.set(0, 0)?;
    let mut value = 0;
    for count in [1, 5] {
        for swaps in [false, true] {
            for place in [(0, 0), (1, 0), (0, count - 1), (1, count - 1)] {
                in_turn.each([count; 2], place, |rig, pair| {
                    let request = |i: u64| match swaps {
                        false => add_request(i, &here.0, &there.0, 1),
                        true => swap_request(i, &here.0, &there.0, value + i, value + i + 1),
                    };
                    let requests: Vec<_> = (0..count as u64)
                        .map(|i| at(request(i), i as usize, 0))
                        .collect();
                    let found = rig.done(pair, &requests)?;
                    ensure!(found == good(count as u64), "swaps {swaps}: {found:?}");
                    for i in 0..count {
                        ensure!(here.get(i)? == value + i as u64, "wrong answer {i}");
                    }
                    // What is repeated late is done already.
                    rig.sim.run(100 * US);
                    value += count as u64;
                    ensure!(there.get(0)? == value, "not done once");
                    Ok(())
                })?;
            }
        }
    }
    here.check_untouched(5)?;
    there.check_untouched(1)?;
    let side = &in_turn.rig.sides[0];
    ensure!(side.cq.poll(1)?.is_empty(), "one too many");
    Ok(())
}

/// Three cards. Cards 0 and 2 add to one counter of card 1, by many queue pairs, and card 1 by the same to one of each of
/// theirs, with WRITEs and READs between.
fn counters(fault: &str, seed: u64) -> Result<()> {
    const PAIRS: usize = 6;
    const ADDS: u64 = 40;
    println!("seed {seed}: {fault}");
    let text = format!(
        "name = \"counters\"\n[network]\nkind = \"leaf-spine\"\ncards = 3\nleaves = 3\nspines = 4\n\
         card_rate_gbps = 100.0\nspine_rate_gbps = 25.0\ndelay_ns = 300\nqueue_packets = 256\n\
         [[link]]\nfrom = \"leaf*\"\nto = \"spine*\"\nboth = true\n{fault}\n"
    );
    let rig = Rig::start(&text, seed)?;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    // Word 0 is the counter, and the first another side's queue pair writes to; what is found goes behind.
    let counters = (0..3)
        .map(|card| Words::new(&rig, card, 0))
        .collect::<Result<Vec<_>>>()?;
    let start: u64 = rng.random();
    for counter in &counters {
        counter.set(0, start)?;
    }
    let attr = |rng: &mut ChaCha8Rng| PairAttr {
        mtu: [256, 1024, 4096][rng.random_range(0..3)],
        psn: rng.random_range(0..1 << 24),
        depth: 256,
        ..PairAttr::default()
    };
    let mut pairs = vec![];
    for i in 0..PAIRS {
        pairs.push(rig.pair([0, 2][i % 2], 1, &attr(&mut rng))?);
    }
    // What each queue pair found, and where it puts it.
    let mut found: [Vec<Words>; 3] = Default::default();
    let mut expected = [0; 3];
    for pair in &pairs {
        for (card, peer, qp) in [
            (pair.from, pair.to, &pair.tx),
            (pair.to, pair.from, &pair.rx),
        ] {
            let words = Words::new(&rig, card, 5)?;
            let mut requests: Vec<SendWr> = vec![];
            for i in 0..ADDS {
                let add = add_request(i, &words.0, &counters[peer].0, 1);
                let mut add = at(add, i as usize, 0);
                add.flags.fence = rng.random_bool(0.1);
                add.flags.sync = rng.random_bool(0.1);
                requests.push(add);
                match rng.random_range(0..4) {
                    0 => {
                        let write = write_request(1000, &words.0, &counters[peer].0, 64);
                        requests.push(at(write, 200, 100));
                    }
                    1 => {
                        let read = read_request(1000, &words.0, &counters[peer].0, 800);
                        requests.push(at(read, 100, 0));
                    }
                    _ => {}
                }
            }
            qp.post_send(&requests)?;
            expected[card] += requests.len();
            found[peer].push(words);
        }
    }
    for (card, expected) in expected.into_iter().enumerate() {
        for wc in rig.completions(card, expected, 50_000 * US)? {
            ensure!(wc.status == WcStatus::Success, "{wc:?}");
        }
    }
    rig.sim.run(200 * US);
    for (card, words) in found.iter().enumerate() {
        let mut all = vec![];
        for words in words {
            let of_one = words.first(ADDS as usize)?;
            let steps = of_one.iter().map(|value| value.wrapping_sub(start));
            let steps: Vec<u64> = steps.collect();
            ensure!(steps.is_sorted(), "not in the order of posting: {steps:?}");
            all.extend(steps);
        }
        all.sort_unstable();
        let total = words.len() as u64 * ADDS;
        ensure!(
            all == (0..total).collect::<Vec<_>>(),
            "found twice: {all:?}"
        );
        let end = counters[card].get(0)?;
        ensure!(end == start.wrapping_add(total), "{end} is not the sum");
        let side = &rig.sides[card];
        ensure!(count(&side.context, Counter::AtomicsExecuted)? == total);
        ensure!(side.cq.poll(1)?.is_empty(), "one too many");
        ensure!(side.context.poll_events()?.is_empty());
        ensure!(count(&side.context, Counter::BadAcks)? == 0);
    }
    let sum = |counter| -> Result<u64> {
        let of = rig.sides.iter().map(|side| count(&side.context, counter));
        of.sum()
    };
    let again = sum(Counter::TxRetransmissions)?;
    let (twice, late) = (sum(Counter::RxDuplicates)?, sum(Counter::RxOutOfOrder)?);
    println!("{again} retransmissions, {twice} duplicates, {late} out of order");
    ensure!(!fault.contains("loss") || again > 0);
    ensure!(!fault.contains("duplicate") || twice > 0);
    ensure!(!fault.contains("reorder") || late > 0);
    Ok(())
}

#[test]
fn section_7_atomic_exactly_once_under_loss() -> Result<()> {
    counters("loss = 0.01", 111)?;
    counters("loss = 0.05", 112)
}

#[test]
fn section_7_atomic_exactly_once_under_duplication_and_reordering() -> Result<()> {
    counters("duplicate = 0.1\nreorder = 0.2\nreorder_ns = 8000", 113)
}

#[test]
fn section_7_atomic_exactly_once_under_everything() -> Result<()> {
    let mixed = "loss = 0.02\ncorrupt = 0.01\nduplicate = 0.03\nreorder = 0.1\nreorder_ns = 8000";
    for seed in 114..118 {
        counters(mixed, seed)?;
    }
    Ok(())
}

mprdma_tests::on_model!(
    section_7_atomic_every_kind_of_packet_lost_in_turn,
    section_7_atomic_exactly_once_under_loss,
    section_7_atomic_exactly_once_under_duplication_and_reordering,
    section_7_atomic_exactly_once_under_everything,
);
