//! What an ATOMIC waits for, and what waits for an ATOMIC.

use super::{at, Bench};
use anyhow::Result;
use mprdma_spec::counter::Counter;
use mprdma_spec::descriptor::WcOpcode;
use mprdma_spec::wire::bth::opcode;
use mprdma_tests::eye::Eye;
use mprdma_tests::outcomes::{good, LIMIT};
use mprdma_tests::rig::{both, flagged, read_request, write_request, PairAttr, ROUGH, US};

fn attr() -> PairAttr {
    PairAttr {
        mtu: 256,
        depth: 256,
        ..PairAttr::default()
    }
}

/// Each round writes a value, adds to it and reads the sum.
#[test]
fn section_7_atomic_sees_what_is_before_it_and_is_seen_behind_it() -> Result<()> {
    const ROUNDS: usize = 40;
    let bench = Bench::new(ROUGH, 100, &attr())?;
    let values: Vec<u64> = (0..ROUNDS as u64).map(|i| i << 32 | 77).collect();
    // Behind the places for answers stand the values to be written.
    let value_at = |i: usize| 3 * ROUNDS + i;
    for (i, value) in values.iter().enumerate() {
        bench.here.set(value_at(i), *value)?;
    }
    let mut requests = vec![];
    for i in 0..ROUNDS {
        let wr_id = 3 * i as u64;
        let write = write_request(wr_id, &bench.here.0, &bench.there.0, 8);
        // The next round must not write before this one has read.
        requests.push(flagged(at(write, value_at(i), 5), |f| f.fence = true));
        requests.push(bench.add(wr_id + 1, 5, i as u64));
        let read = read_request(wr_id + 2, &bench.here.0, &bench.there.0, 8);
        requests.push(at(read, wr_id as usize + 2, 5));
    }
    assert_eq!(bench.done(&requests)?, good(3 * ROUNDS as u64));
    for (i, value) in values.iter().enumerate() {
        let found = [bench.here.get(3 * i + 1)?, bench.here.get(3 * i + 2)?];
        assert_eq!(found, [*value, value + i as u64], "round {i}");
    }
    assert!(both(&bench.rig, Counter::RxOutOfOrder)? > 0);
    assert!(both(&bench.rig, Counter::TxRetransmissions)? > 0);
    Ok(())
}

/// A WRITE behind an ATOMIC is at the peer while the answer is still held up, and its completion waits.
#[test]
fn section_7_atomic_completes_before_what_is_behind_it() -> Result<()> {
    let bench = Bench::new("direct", 101, &attr())?;
    let eye = Eye::<bool>::open(&bench.rig, |pass, _, frame| {
        !*pass && frame.bth.opcode == opcode::MP_ATOMIC_ACK
    });
    bench.here.set(200, 0x11)?;
    let write = |wr_id: u64, to: usize| {
        let write = write_request(wr_id, &bench.here.0, &bench.there.0, 8);
        at(write, 200, to)
    };
    bench.there.set(0, 9)?;
    let read = read_request(3, &bench.here.0, &bench.there.0, 8);
    let requests = [
        write(0, 1),
        bench.add(1, 0, 4),
        write(2, 2),
        at(read, 3, 0),
        write(4, 3),
    ];
    bench.pair.tx.post_send(&requests)?;
    bench.rig.sim.run(30 * US);
    assert_eq!(bench.there.first(4)?, [13, 0x11, 0x11, 0x11]);
    assert_eq!(bench.outcomes(1)?, good(1));
    assert!(bench.rig.sides[0].cq.poll(1)?.is_empty());
    *eye.state() = true;
    let found = bench.rig.completions(0, 4, LIMIT)?;
    let kinds: Vec<_> = found.iter().map(|wc| (wc.wr_id, wc.opcode)).collect();
    let expected = [
        (1, WcOpcode::FetchAdd),
        (2, WcOpcode::RdmaWrite),
        (3, WcOpcode::RdmaRead),
        (4, WcOpcode::RdmaWrite),
    ];
    assert_eq!(kinds, expected.map(|(id, kind)| (id, Some(kind))));
    assert_eq!((bench.here.get(1)?, bench.here.get(3)?), (9, 13));
    assert_eq!(bench.there.get(0)?, 13, "done once");
    Ok(())
}

/// An ATOMIC and a WRITE that sends on what it brings. Says whether the WRITE carried that.
fn forwarded(seed: u64, fence: bool) -> Result<bool> {
    let bench = Bench::new("demo", seed, &attr())?;
    bench.there.set(0, 1234)?;
    let write = write_request(1, &bench.here.0, &bench.there.0, 8);
    let write = flagged(at(write, 0, 1), |flags| flags.fence = fence);
    assert_eq!(bench.done(&[bench.add(0, 0, 1), write])?, good(2));
    assert_eq!(bench.here.get(0)?, 1234);
    Ok(bench.there.get(1)? == 1234)
}

#[test]
fn section_6_fence_a_write_carries_what_the_atomic_before_it_brought() -> Result<()> {
    for seed in 102..106 {
        assert!(forwarded(seed, true)?, "seed {seed}");
    }
    let early = !forwarded(106, false)?;
    assert!(early, "the test cannot see a WRITE that is early");
    Ok(())
}

/// A ticket lock's two halves, chained by FENCE: each compare and swap takes what the one before it left.
#[test]
fn section_7_atomic_chain_of_swaps() -> Result<()> {
    let bench = Bench::new(ROUGH, 107, &attr())?;
    bench.there.set(0, 0)?;
    let swaps: Vec<_> = (0..200)
        .map(|i| {
            let swap = bench.swap(i, 0, i, i + 1);
            flagged(swap, |flags| {
                flags.fence = i % 5 == 0;
                flags.sync = i % 7 == 0;
            })
        })
        .collect();
    assert_eq!(bench.done(&swaps)?, good(200));
    assert_eq!(bench.here.first(200)?, (0..200).collect::<Vec<_>>());
    assert_eq!(bench.there.get(0)?, 200);
    Ok(())
}

mprdma_tests::on_model!(
    section_7_atomic_sees_what_is_before_it_and_is_seen_behind_it,
    section_7_atomic_completes_before_what_is_behind_it,
    section_6_fence_a_write_carries_what_the_atomic_before_it_brought,
    section_7_atomic_chain_of_swaps,
);
