//! What a READ waits for, and what waits for a READ.

use super::{is_read, Bench, UNTOUCHED};
use anyhow::Result;
use mprdma_host::verbs::{MultiPath, RtsAttr};
use mprdma_spec::counter::Counter;
use mprdma_spec::status::WcStatus;
use mprdma_spec::wire::bth::opcode;
use mprdma_spec::wire::mpeth;
use mprdma_tests::eye::Eye;
use mprdma_tests::outcomes::{good, LIMIT};
use mprdma_tests::rig::{both, count, flagged, pattern, PairAttr, ROUGH, US};

fn attr() -> PairAttr {
    PairAttr {
        mtu: 1024,
        ..PairAttr::default()
    }
}

/// A READ of what the WRITE before it writes, again and again at the same place.
#[test]
fn section_7_a_read_behind_a_write_sees_its_data() -> Result<()> {
    const ROUNDS: usize = 20;
    const EACH: usize = 9000;
    let mut bench = Bench::new(ROUGH, 20, &attr(), 2 * ROUNDS * EACH)?;
    let data = pattern(21, ROUNDS * EACH);
    bench.here.mr.write(0, &data)?;
    let mut requests = vec![];
    for i in 0..ROUNDS {
        let (wr_id, target) = (2 * i as u64, (ROUNDS + i) * EACH);
        requests.push(bench.write(wr_id, i * EACH, 0, EACH));
        requests.push(bench.read(wr_id + 1, target, 0, EACH));
        // The next round must not write before this one has read: FENCE.
        requests[2 * i].flags.fence = true;
    }
    assert_eq!(bench.done(&requests)?, good(2 * ROUNDS as u64));
    bench.here.takes(0, &data);
    bench.here.takes(ROUNDS * EACH, &data);
    bench.here.check()?;
    assert!(both(&bench.rig, Counter::RxOutOfOrder)? > 0);
    assert!(both(&bench.rig, Counter::TxRetransmissions)? > 0);
    Ok(())
}

/// A WRITE behind a READ is at the peer long before the READ is done, and its completion waits.
#[test]
fn section_7_a_write_behind_a_read_completes_after_it() -> Result<()> {
    const LONG: usize = 1 << 20;
    let bench = Bench::new("direct", 22, &attr(), LONG + 200)?;
    bench.here.mr.write(LONG, &[0x11; 200])?;
    let requests = [
        bench.read(0, 0, 0, LONG),
        bench.write(1, LONG, LONG, 100),
        flagged(bench.write(2, LONG + 100, LONG + 100, 50), |flags| {
            flags.signaled = false;
        }),
        bench.write(3, LONG + 150, LONG + 150, 50),
    ];
    bench.pair.tx.post_send(&requests)?;
    // The READ takes 84 us.
    bench.rig.sim.run(30 * US);
    assert_eq!(bench.there.bytes(LONG, 200)?, [0x11; 200]);
    assert!(bench.rig.sides[0].cq.poll(1)?.is_empty());
    let found = bench.rig.completions(0, 3, LIMIT)?;
    let ids: Vec<_> = found.iter().map(|wc| (wc.wr_id, wc.status)).collect();
    let expected = [0, 1, 3].map(|wr_id| (wr_id, WcStatus::Success));
    assert_eq!(ids, expected);
    assert_eq!(
        found.iter().map(is_read).collect::<Vec<_>>(),
        [true, false, false]
    );
    assert_eq!(bench.here.bytes(0, LONG)?, bench.there.expected[..LONG]);
    assert_eq!(
        count(&bench.rig.sides[0].context, Counter::MessagesCompleted)?,
        4
    );
    Ok(())
}

/// More WRITEs than may be open wait behind a READ, and the queue goes on when it is done.
#[test]
fn section_7_a_queue_of_writes_behind_a_read() -> Result<()> {
    const LONG: usize = 1 << 20;
    let attr = PairAttr {
        depth: 256,
        ..attr()
    };
    let bench = Bench::new("direct", 23, &attr, LONG + 256)?;
    let mut requests = vec![bench.read(0, 0, 0, LONG)];
    requests.extend((1..200).map(|i| bench.write(i, LONG + i as usize, LONG + i as usize, 1)));
    assert_eq!(bench.done(&requests)?, good(200));
    assert_eq!(bench.here.bytes(0, LONG)?, bench.there.expected[..LONG]);
    assert_eq!(bench.there.bytes(LONG + 1, 199)?, [UNTOUCHED; 199]);
    Ok(())
}

/// A READ and a WRITE that sends on what it brings. Says whether the WRITE carried that.
fn forwarded(seed: u64, fence: bool) -> Result<bool> {
    const EACH: usize = 20_000;
    let bench = Bench::new("demo", seed, &attr(), 2 * EACH)?;
    let write = flagged(bench.write(1, 0, EACH, EACH), |flags| flags.fence = fence);
    assert_eq!(bench.done(&[bench.read(0, 0, 0, EACH), write])?, good(2));
    assert_eq!(bench.here.bytes(0, EACH)?, bench.there.expected[..EACH]);
    Ok(bench.there.bytes(EACH, EACH)? == bench.there.expected[..EACH])
}

#[test]
fn section_6_fence_a_write_carries_what_the_read_before_it_brought() -> Result<()> {
    for seed in 24..28 {
        assert!(forwarded(seed, true)?, "seed {seed}");
    }
    assert!(
        !forwarded(28, false)?,
        "the test cannot see a WRITE that is early"
    );
    Ok(())
}

/// A fenced READ waits for the one before it, whatever fits between.
#[test]
fn section_6_fence_a_read_waits_for_the_read_before_it() -> Result<()> {
    const EACH: usize = 30_000;
    let bench = Bench::new("direct", 29, &attr(), 4 * EACH)?;
    /// PSNs of requests sent and READs that had ended by then.
    #[derive(Default)]
    struct Seen {
        ended: usize,
        requests: Vec<usize>,
    }
    let eye = Eye::<Seen>::open_both(
        &bench.rig,
        |seen, card, frame| {
            if card == 0 && frame.bth.opcode == opcode::MP_READ_REQUEST {
                seen.requests.push(seen.ended);
            }
            false
        },
        |seen, card, frame| {
            let last = frame.bth.opcode == opcode::MP_READ_RESPONSE_LAST;
            seen.ended += usize::from(card == 0 && last);
        },
    );
    let reads: Vec<_> = (0..4)
        .map(|i| {
            let read = bench.read(i, EACH * i as usize, EACH * i as usize, EACH);
            flagged(read, |flags| flags.fence = i == 2)
        })
        .collect();
    assert_eq!(bench.done(&reads)?, good(4));
    assert_eq!(bench.here.bytes(0, 4 * EACH)?, bench.there.expected);
    assert_eq!(eye.state().requests, [0, 0, 2, 2]);
    Ok(())
}

/// SYNC is on the request, so it is refused while something before it is missing; the answer is no synchronised message.
#[test]
fn section_7_a_synchronised_read() -> Result<()> {
    const EACH: usize = 3000;
    const ROUNDS: usize = 40;
    let attr = PairAttr {
        rts: RtsAttr {
            multi_path: MultiPath {
                alpha: 0,
                ..MultiPath::default()
            },
            ..RtsAttr::new(0)
        },
        ..attr()
    };
    let bench = Bench::new(ROUGH, 30, &attr, 2 * ROUNDS * EACH)?;
    /// Packets with the flag, by kind: requests, others.
    type Flags = (usize, usize);
    let eye = Eye::<Flags>::open(&bench.rig, |seen, _, frame| {
        let (extensions, _) = frame.body.split();
        let sync = extensions
            .mpeth
            .is_some_and(|mpeth| mpeth.flags & mpeth::FLAG_SYNC != 0);
        match frame.bth.opcode {
            opcode::MP_READ_REQUEST => seen.0 += usize::from(sync),
            _ => seen.1 += usize::from(sync),
        }
        false
    });
    let data = pattern(31, ROUNDS * EACH);
    bench.here.mr.write(0, &data)?;
    let mut requests = vec![];
    for i in 0..ROUNDS {
        let (wr_id, at) = (2 * i as u64, i * EACH);
        requests.push(bench.write(wr_id, at, at, EACH));
        let read = bench.read(wr_id + 1, ROUNDS * EACH + at, at, EACH);
        requests.push(flagged(read, |flags| flags.sync = true));
    }
    for (i, part) in requests.chunks(2 * ROUNDS / 2).enumerate() {
        let found = bench.done(part)?;
        assert_eq!(found, good(2 * ROUNDS as u64)[i * ROUNDS..][..ROUNDS]);
    }
    assert_eq!(bench.here.bytes(ROUNDS * EACH, ROUNDS * EACH)?, data);
    let seen = *eye.state();
    assert!(seen.0 >= ROUNDS && seen.1 == 0, "{seen:?}");
    assert!(
        count(&bench.rig.sides[1].context, Counter::RxSyncNaks)? > 0,
        "no request was early"
    );
    Ok(())
}

mprdma_tests::on_model!(
    section_7_a_read_behind_a_write_sees_its_data,
    section_7_a_write_behind_a_read_completes_after_it,
    section_7_a_queue_of_writes_behind_a_read,
    section_6_fence_a_write_carries_what_the_read_before_it_brought,
    section_6_fence_a_read_waits_for_the_read_before_it,
    section_7_a_synchronised_read,
);
