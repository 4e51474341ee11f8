//! ATOMICs that are refused, on either side, and queue pairs that end in the middle of one.

use super::forge::{Change, Forge};
use super::{Bench, Words, UNTOUCHED, WORDS};
use anyhow::Result;
use mprdma_host::verbs::{Access, ContextAttr, RtsAttr, SendWr};
use mprdma_sim::inproc::InProcess;
use mprdma_sim::world::Options;
use mprdma_spec::command::QpState;
use mprdma_spec::counter::Counter;
use mprdma_spec::descriptor::sq_wqe;
use mprdma_spec::params::ATOMIC_BYTES;
use mprdma_spec::status::WcStatus;
use mprdma_spec::wire::bth::opcode;
use mprdma_tests::eye::Eye;
use mprdma_tests::failure::{check_events, unmap_under_load};
use mprdma_tests::not_ready::waits_until_its_peer_may_send;
use mprdma_tests::outcomes::{cut_short_by, good, LIMIT};
use mprdma_tests::rig::{add_request, count, engine, scenario, PairAttr, Rig, Side, US};
use mprdma_tests::wrong_keys::WrongKeys;
use std::sync::Arc;

/// Bytes of the words of a side.
const BYTES: u64 = (WORDS * ATOMIC_BYTES) as u64;
const FLUSHED: WcStatus = WcStatus::WorkRequestFlushed;

impl Bench {
    /// A good ATOMIC, a bad one, and one behind it; another queue pair of the same cards goes on all the while.
    fn refuses(self, bad: SendWr, status: WcStatus) -> Result<()> {
        let other = self.rig.pair(0, 1, &PairAttr::default())?;
        self.there.set(0, 5)?;
        self.there.set(1, 0)?;
        assert_eq!(self.done(&[self.add(0, 0, 1)])?, good(1));
        let adds: Vec<_> = (100..132).map(|i| self.add(i, 1, 1)).collect();
        other.tx.post_send(&adds)?;
        let requests = [SendWr { wr_id: 1, ..bad }, self.add(2, 0, 1)];
        self.pair.tx.post_send(&requests)?;
        let qpn = self.pair.tx.qp_num();
        let (own, others): (Vec<_>, Vec<_>) = self
            .rig
            .completions(0, 34, LIMIT)?
            .into_iter()
            .partition(|wc| wc.qp_num == qpn);
        let own: Vec<_> = own.iter().map(|wc| (wc.wr_id, wc.status)).collect();
        assert_eq!(own, [(1, status), (2, FLUSHED)]);
        for (i, wc) in others.iter().enumerate() {
            assert_eq!((wc.wr_id, wc.status), (100 + i as u64, WcStatus::Success));
            assert_eq!(self.here.get(100 + i)?, i as u64);
        }
        assert_eq!(self.pair.tx.state(), QpState::Error);
        self.rig.sim.run(20 * US);
        assert_eq!(self.there.first(2)?, [6, 32]);
        self.there.check_untouched(2)?;
        assert_eq!(self.here.first(3)?, [5, UNTOUCHED, UNTOUCHED]);
        check_events(&self.rig, &self.pair, status)?;
        self.goes_on()
    }

    /// A new queue pair adds in place of the broken one.
    fn goes_on(self) -> Result<()> {
        drop(self.pair);
        let pair = self.rig.pair(0, 1, &PairAttr::default())?;
        let again = Bench { pair, ..self };
        again.there.set(0, 1)?;
        assert_eq!(again.done(&[again.add(0, 0, 1)])?, good(1));
        assert_eq!((again.here.get(0)?, again.there.get(0)?), (1, 2));
        Ok(())
    }
}

#[test]
fn section_7_atomic_local_keys() -> Result<()> {
    for case in 0..WrongKeys::CASES {
        let bench = Bench::new("direct", 120 + case as u64, &PairAttr::default())?;
        let start = bench.here.0.addr();
        let outside = [start + BYTES - 7, start - 1];
        let wrong = WrongKeys::local(&bench.rig.sides[0], bench.add(1, 0, 1), outside)?;
        bench.refuses(wrong.requests[case], WcStatus::LocalProtectionError)?;
    }
    Ok(())
}

#[test]
fn section_7_atomic_remote_keys_bounds_rights_and_domains() -> Result<()> {
    for case in 0..WrongKeys::CASES {
        let bench = Bench::new("direct", 130 + case as u64, &PairAttr::default())?;
        let start = bench.there.0.addr();
        let outside = [start + BYTES, start - 8];
        let others = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let rights = [others, Access::REMOTE_ATOMIC];
        let wrong = WrongKeys::remote(&bench.rig.sides[1], bench.add(1, 0, 1), outside, rights)?;
        bench.refuses(wrong.requests[case], WcStatus::RemoteAccessError)?;
    }
    Ok(())
}

/// The region lets anybody do ATOMICs, but not by this queue pair.
#[test]
fn section_7_atomic_right_of_the_queue_pair() -> Result<()> {
    let attr = PairAttr {
        access: Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ,
        ..PairAttr::default()
    };
    let bench = Bench::new("direct", 140, &attr)?;
    let refused = [(0, WcStatus::RemoteAccessError)];
    assert_eq!(bench.done(&[bench.swap(0, 0, UNTOUCHED, 1)])?, refused);
    bench.here.check_untouched(0)?;
    bench.there.check_untouched(0)?;
    let refused = count(&bench.rig.sides[1].context, Counter::RxAccessErrors)?;
    assert_eq!(refused, 1);
    bench.goes_on()
}

/// What the driver would not post: the cards refuse it too.
#[test]
fn section_7_atomic_form_that_no_driver_makes() -> Result<()> {
    let cases: [(Change, WcStatus); 6] = [
        (|wqe| sq_wqe::LENGTH.set(wqe, 0), WcStatus::LocalLengthError),
        (|wqe| sq_wqe::LENGTH.set(wqe, 4), WcStatus::LocalLengthError),
        (
            |wqe| sq_wqe::LENGTH.set(wqe, 16),
            WcStatus::LocalLengthError,
        ),
        (|wqe| move_by(wqe, 1), WcStatus::RemoteInvalidRequest),
        (|wqe| move_by(wqe, 4), WcStatus::RemoteInvalidRequest),
        (|wqe| move_by(wqe, 7), WcStatus::RemoteInvalidRequest),
    ];
    for (i, (change, status)) in cases.into_iter().enumerate() {
        let seed = 150 + i as u64;
        println!("seed {seed}");
        let options = Options {
            engine: engine()?,
            seed,
            threads: 1,
            pcap: None,
        };
        let sim = InProcess::new(&scenario("direct")?, &options)?;
        let forge = Arc::new(Forge::new(sim.device(0)));
        let attr = ContextAttr::default();
        let sides = vec![
            Side::open(0, Arc::clone(&forge) as _, &attr)?,
            Side::open(1, Arc::new(sim.device(1)), &attr)?,
        ];
        let bench = Bench::on(Rig { sim, sides }, &PairAttr::default())?;
        bench.there.set(0, 5)?;
        assert_eq!(bench.done(&[bench.add(0, 0, 1)])?, good(1));
        forge.next(Some(change));
        let found = bench.done(&[bench.add(1, 0, 1)])?;
        assert_eq!(found, [(1, status)], "case {i}");
        forge.next(None);
        bench.rig.sim.run(20 * US);
        assert_eq!(bench.there.get(0)?, 6);
        bench.there.check_untouched(1)?;
        bench.here.check_untouched(1)?;
        bench.goes_on()?;
    }
    Ok(())
}

fn move_by(wqe: &mut [u8], bytes: u64) {
    let addr = sq_wqe::RADDR.get(wqe);
    sq_wqe::RADDR.set(wqe, addr + bytes);
}

/// The queue pair is moved to ERROR by software with ATOMICs open: each is flushed, once, and none is done later.
#[test]
fn section_7_atomic_flushed_when_its_queue_pair_is_stopped() -> Result<()> {
    let bench = Bench::new("direct", 160, &PairAttr::default())?;
    bench.there.set(0, 0)?;
    let adds: Vec<_> = (0..60).map(|i| bench.add(i, 0, 1)).collect();
    bench.pair.tx.post_send(&adds)?;
    bench.rig.sim.run(8 * US);
    bench.pair.tx.modify_to_error()?;
    let found = bench.rig.completions(0, 60, LIMIT)?;
    let done = cut_short_by(FLUSHED, &found);
    println!("{done} of 60 done before");
    assert!(done < 60);
    bench.rig.sim.run(50 * US);
    let counted = bench.there.get(0)?;
    // Those that were open may be done, and no others.
    assert!(counted >= done as u64 && counted <= done as u64 + 16);
    assert_eq!(
        bench.here.first(done)?,
        (0..done as u64).collect::<Vec<_>>()
    );
    assert!(bench.rig.sides[0].cq.poll(1)?.is_empty(), "one too many");
    bench.goes_on()
}

/// Nobody answers any more: the requester finds out by itself, in a time that is bounded.
#[test]
fn section_7_atomic_ends_when_its_peer_is_gone() -> Result<()> {
    let attr = PairAttr {
        rts: RtsAttr {
            retry_cnt: 2,
            ..RtsAttr::new(0)
        },
        ..PairAttr::default()
    };
    let mut bench = Bench::new("direct", 161, &attr)?;
    let _eye = Eye::<()>::open(&bench.rig, |(), _, frame| {
        frame.bth.opcode == opcode::MP_ATOMIC_ACK
    });
    bench.there.set(0, 0)?;
    let adds: Vec<_> = (0..20).map(|i| bench.add(i, 0, 1)).collect();
    bench.pair.tx.post_send(&adds)?;
    bench.rig.sim.run(15 * US);
    let spare = bench.rig.pair(0, 1, &attr)?;
    let old = std::mem::replace(&mut bench.pair, spare);
    drop(old.rx);
    // Twice 1.05 ms, and three timeouts.
    let found = bench.rig.completions(0, 20, 2_600 * US)?;
    assert_eq!(cut_short_by(WcStatus::RetryExceeded, &found), 0);
    assert_eq!(bench.there.get(0)?, 16, "those that were open");
    bench.here.check_untouched(0)?;
    let _eye = Eye::<()>::open(&bench.rig, |(), _, _| false);
    drop(old.tx);
    bench.goes_on()
}

/// The counter goes away: its owner's queue pair fails and says why, nothing completes as done, and others go on.
#[test]
fn section_7_atomic_on_memory_that_is_unmapped() -> Result<()> {
    let bench = Bench::new("direct", 162, &PairAttr::default())?;
    let other = bench.rig.pair(0, 1, &PairAttr::default())?;
    let doomed = Words::new(&bench.rig, 1, 0)?;
    doomed.set(0, 0)?;
    bench.there.set(1, 0)?;
    // All are accepted at once, and done one after the other.
    let adds: Vec<_> = (0..16)
        .map(|i| super::at(add_request(i, &bench.here.0, &doomed.0, 1), i as usize, 0))
        .collect();
    bench.pair.tx.post_send(&adds)?;
    bench.rig.sim.run(4 * US);
    unmap_under_load(&bench.rig, &bench.pair, doomed)?;
    bench.pair.tx.modify_to_error()?;
    let found = bench.rig.completions(0, 16, LIMIT)?;
    let done = cut_short_by(FLUSHED, &found);
    println!("{done} of 16 done before");
    assert!(done < 16, "done on memory that is gone");
    let good: Vec<_> = (100..132).map(|i| bench.add(i, 1, 1)).collect();
    other.tx.post_send(&good)?;
    for wc in bench.rig.completions(0, 32, LIMIT)? {
        assert_eq!(wc.status, WcStatus::Success);
    }
    assert_eq!(bench.there.get(1)?, 32);
    bench.goes_on()
}

/// A peer that receives but may not send yet cannot answer: the request waits, and is done once.
#[test]
fn section_7_atomic_waits_until_its_peer_may_send() -> Result<()> {
    let attr = PairAttr::default();
    let bench = Bench::new("direct", 163, &attr)?;
    bench.there.set(0, 9)?;
    let add = bench.add(0, 0, 1);
    waits_until_its_peer_may_send(&bench.rig, &bench.pair, &attr, add, || {
        assert_eq!(bench.there.get(0)?, 9);
        Ok(())
    })?;
    assert_eq!((bench.here.get(0)?, bench.there.get(0)?), (9, 10));
    Ok(())
}

mprdma_tests::on_model!(
    section_7_atomic_local_keys,
    section_7_atomic_remote_keys_bounds_rights_and_domains,
    section_7_atomic_right_of_the_queue_pair,
    section_7_atomic_form_that_no_driver_makes,
    section_7_atomic_flushed_when_its_queue_pair_is_stopped,
    section_7_atomic_ends_when_its_peer_is_gone,
    section_7_atomic_on_memory_that_is_unmapped,
    section_7_atomic_waits_until_its_peer_may_send,
);
