//! What the network damages or loses is repaired, and never reaches memory.

use anyhow::Result;
use mprdma_host::memory::{Memory, PageSize};
use mprdma_spec::counter::Counter;
use mprdma_tests::rig::{pattern, PairAttr, Rig, US};
use std::sync::Arc;

type Counters = Vec<(Counter, u64)>;

/// Sends `bytes` through a demo network whose up-links do `fault`; returns the receiver's and the sender's counters.
fn through(fault: &str, seed: u64, bytes: usize) -> Result<(Rig, Counters, Counters)> {
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/../sim/scenarios/demo.toml");
    let text = format!(
        "{}\n[[link]]\nfrom = \"leaf0\"\nto = \"spine*\"\n{fault}\n",
        std::fs::read_to_string(demo)?
    );
    let rig = Rig::start(&text, seed)?;
    let pair = rig.pair(
        0,
        1,
        &PairAttr {
            mtu: 1024,
            ..PairAttr::default()
        },
    )?;
    let source = rig.region(0, 3, bytes)?;
    let data = pattern(seed, bytes);
    source.write(0, &data)?;
    let memory = Arc::new(Memory::allocate(bytes + 4096, PageSize::Small)?);
    memory.write(0, &vec![0xee; memory.bytes()])?;
    let target = rig.register(1, &memory, 777, bytes)?;
    rig.write(&pair, &source, &target, bytes)?;
    // What was sent twice may still be on its way.
    rig.sim.run(100 * US);
    let mut all = vec![0; memory.bytes()];
    memory.read(0, &mut all)?;
    assert!(
        all[777..777 + bytes] == data[..],
        "seed {seed}: the data differ"
    );
    assert!(
        all[..777]
            .iter()
            .chain(&all[777 + bytes..])
            .all(|b| *b == 0xee),
        "seed {seed}: neighbours were touched"
    );
    let (receiver, sender) = (
        rig.sides[1].context.counters()?,
        rig.sides[0].context.counters()?,
    );
    Ok((rig, receiver, sender))
}

fn count(counters: &[(Counter, u64)], wanted: Counter) -> u64 {
    counters
        .iter()
        .find(|(counter, _)| *counter == wanted)
        .map_or(0, |(_, value)| *value)
}

#[test]
fn a_corrupted_frame_never_reaches_memory() -> Result<()> {
    let (_rig, receiver, sender) = through("corrupt = 0.02", 5, 300_000)?;
    let bad = count(&receiver, Counter::RxDropIcrc)
        + count(&receiver, Counter::RxDropMalformed)
        + count(&receiver, Counter::RxDropNotOurs)
        + count(&receiver, Counter::RxDropNoQp);
    println!(
        "{bad} damaged frames, {} retransmissions",
        count(&sender, Counter::TxRetransmissions)
    );
    assert!(count(&receiver, Counter::RxDropIcrc) > 0);
    assert!(count(&sender, Counter::TxRetransmissions) >= bad);
    Ok(())
}

#[test]
fn losses_are_repaired() -> Result<()> {
    for (loss, seed) in [(0.01, 6), (0.05, 7)] {
        let (rig, receiver, sender) = through(&format!("loss = {loss}"), seed, 300_000)?;
        let (sent, arrived) = (
            count(&sender, Counter::TxDataPackets),
            count(&receiver, Counter::RxDataPackets),
        );
        println!("loss {loss}: {sent} packets sent, {arrived} arrived");
        assert_eq!(
            sent,
            arrived + rig.sim.stats().fabric.drops,
            "sent = delivered + dropped"
        );
        assert!(count(&sender, Counter::TxRetransmissions) > 0);
    }
    Ok(())
}

#[test]
fn duplicates_and_stragglers_are_sorted_out() -> Result<()> {
    let (_rig, receiver, _) = through(
        "duplicate = 0.05\nreorder = 0.1\nreorder_ns = 8000",
        8,
        300_000,
    )?;
    println!(
        "{} duplicates, {} out of order",
        count(&receiver, Counter::RxDuplicates),
        count(&receiver, Counter::RxOutOfOrder)
    );
    assert!(
        count(&receiver, Counter::RxDuplicates) > 0 && count(&receiver, Counter::RxOutOfOrder) > 0
    );
    Ok(())
}

mprdma_tests::on_model!(
    a_corrupted_frame_never_reaches_memory,
    losses_are_repaired,
    duplicates_and_stragglers_are_sorted_out,
);
