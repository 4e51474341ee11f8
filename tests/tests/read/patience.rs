//! How long a READ waits for its answer (protocol section 7 rules 4 and 9): without end while the peer lives, whatever other
//! queue pairs do, and not much longer than 2 ms when it does not.

use super::refusal::{long_reads, SIZE};
use super::Bench;
use anyhow::Result;
use mprdma_host::verbs::{MultiPath, RtsAttr};
use mprdma_spec::command::QpState;
use mprdma_spec::status::WcStatus;
use mprdma_spec::wire::bth::opcode;
use mprdma_spec::wire::frame::Frame;
use mprdma_tests::eye::Eye;
use mprdma_tests::outcomes::{cut_short_by, good};
use mprdma_tests::rig::{PairAttr, US};

/// Two looks at a queue pair that only waits are so far apart at most; it asks between one and two of them.
const LOOK: u64 = 1049 * US;

/// An empty WRITE for no key.
fn asks(frame: &Frame<'_>) -> bool {
    let (extensions, payload) = frame.body.split();
    frame.bth.opcode == opcode::MP_WRITE_ONLY
        && payload.is_empty()
        && extensions.reth.is_some_and(|reth| reth.rkey == 0)
}

/// READs whose requests are acknowledged wait for answers that never come, with nothing under way that could time out: the
/// card asks the peer, and gives it up.
#[test]
fn section_7_the_reader_outlives_its_peer() -> Result<()> {
    let attr = PairAttr {
        rts: RtsAttr {
            retry_cnt: 2,
            ..RtsAttr::new(0)
        },
        ..PairAttr::default()
    };
    let mut bench = Bench::new("direct", 63, &attr, SIZE)?;
    let eye = Eye::<usize>::open(&bench.rig, |asked, card, frame| {
        *asked += usize::from(card == 0 && asks(frame));
        false
    });
    bench.pair.tx.post_send(&long_reads(&bench)[..8])?;
    bench.rig.sim.run(15 * US);
    let spare = bench.rig.pair(0, 1, &attr)?;
    let old = std::mem::replace(&mut bench.pair, spare);
    drop(old.rx);
    bench.rig.sim.run(800 * US);
    assert_eq!(old.tx.state(), QpState::Rts, "nothing has timed out");
    assert_eq!(*eye.state(), 0, "too early to ask");
    // Three timeouts of the empty WRITE, each twice as long as the one before, are 0.3 ms.
    let found = bench
        .rig
        .completions(0, 8, 2 * LOOK - 800 * US + 500 * US)?;
    let done = cut_short_by(WcStatus::RetryExceeded, &found);
    println!("{done} of 8 done before");
    assert!(done < 8);
    assert_eq!(*eye.state(), 3, "the empty WRITE and its repetitions");
    drop(old.tx);
    bench.goes_on()
}

/// Nothing of the answer arrives for 4 ms, but the peer acknowledges that it is asked.
#[test]
fn section_7_a_peer_that_is_slow_is_not_given_up() -> Result<()> {
    #[derive(Default)]
    struct Seen {
        passes: bool,
        asked: usize,
        lost: usize,
    }
    // The peer's own timer is so slow that it does not give up meanwhile.
    let attr = PairAttr {
        rts: RtsAttr {
            timeout: 32,
            ..RtsAttr::new(0)
        },
        ..PairAttr::default()
    };
    let bench = Bench::new("direct", 68, &attr, SIZE)?;
    let eye = Eye::<Seen>::open(&bench.rig, |seen, card, frame| {
        seen.asked += usize::from(card == 0 && asks(frame));
        let lose = card == 1 && !seen.passes && opcode::is_mp_read_response(frame.bth.opcode);
        seen.lost += usize::from(lose);
        lose
    });
    bench.pair.tx.post_send(&[bench.read(0, 0, 0, SIZE)])?;
    bench.rig.sim.run(4_300 * US);
    assert!(bench.rig.sides[0].cq.poll(1)?.is_empty());
    assert_eq!(bench.pair.tx.state(), QpState::Rts);
    let seen = eye.state().asked;
    assert!((2..=4).contains(&seen), "asked {seen} times in 4.3 ms");
    assert!(eye.state().lost > 16);
    eye.state().passes = true;
    assert_eq!(bench.outcomes(1)?, good(1));
    assert_eq!(bench.here.bytes(0, SIZE)?, bench.there.expected);
    // What asks is no work request of anybody.
    bench.rig.sim.run(50 * US);
    for side in &bench.rig.sides {
        assert!(side.cq.poll(1)?.is_empty() && side.context.poll_events()?.is_empty());
    }
    bench.goes_on()
}

/// The ACKs of one queue pair's answers are lost, so that its ring fills; another one of the same cards reads meanwhile.
#[test]
fn section_7_answers_that_find_no_room_hold_up_nobody_else() -> Result<()> {
    const EACH: usize = 64;
    #[derive(Default)]
    struct Path {
        dead: Option<u32>,
        lost: usize,
    }
    let attr = PairAttr {
        depth: 128,
        rts: RtsAttr {
            multi_path: MultiPath {
                initial_window: 255,
                ..MultiPath::default()
            },
            ..RtsAttr::new(0)
        },
        ..PairAttr::default()
    };
    let bench = Bench::new("direct", 69, &attr, SIZE)?;
    let other = bench.rig.pair(0, 1, &attr)?;
    let eye = Eye::<Path>::open(&bench.rig, |path, card, frame| {
        let acks = card == 0 && frame.bth.opcode == opcode::MP_ACK;
        let lose = acks && path.dead == Some(frame.bth.dqpn);
        path.lost += usize::from(lose);
        lose
    });
    eye.state().dead = Some(bench.pair.rx.qp_num());
    let reads = |count: u64| -> Vec<_> {
        let at = |i: u64| i as usize * EACH;
        (0..count)
            .map(|i| bench.read(i, at(i), at(i), EACH))
            .collect()
    };
    bench.pair.tx.post_send(&reads(100))?;
    assert_eq!(bench.outcomes(64)?, good(64), "as many as the ring holds");
    bench.rig.sim.run(100 * US);
    assert!(bench.rig.sides[0].cq.poll(1)?.is_empty(), "it is full");
    let sent = bench.rig.sim.now();
    other.tx.post_send(&reads(100))?;
    assert_eq!(bench.outcomes(100)?, good(100));
    let time = bench.rig.sim.now() - sent;
    println!("100 READs of the other in {} us", time / US);
    assert!(time < 100 * US, "they took {} us", time / US);
    assert!(eye.state().lost >= 64);
    assert_eq!(bench.pair.rx.state(), QpState::Rts, "the first still tries");
    eye.state().dead = None;
    assert_eq!(bench.outcomes(36)?, good(100)[64..]);
    assert_eq!(
        bench.here.bytes(0, 100 * EACH)?,
        bench.there.expected[..100 * EACH]
    );
    Ok(())
}

mprdma_tests::on_model!(
    section_7_the_reader_outlives_its_peer,
    section_7_a_peer_that_is_slow_is_not_given_up,
    section_7_answers_that_find_no_room_hold_up_nobody_else,
);
