//! READs that are refused, on either side, and queue pairs that end in the middle of one.

use super::{is_read, Area, Bench, UNTOUCHED};
use anyhow::Result;
use mprdma_host::verbs::{Access, SendWr};
use mprdma_spec::command::QpState;
use mprdma_spec::counter::Counter;
use mprdma_spec::status::WcStatus;
use mprdma_tests::failure::{check_events, unmap_under_load};
use mprdma_tests::not_ready::waits_until_its_peer_may_send;
use mprdma_tests::outcomes::{cut_short_by, good, LIMIT};
use mprdma_tests::rig::{count, read_request, PairAttr, US};
use mprdma_tests::wrong_keys::WrongKeys;

pub const SIZE: usize = 64 << 10;
const EACH: usize = 8 << 10;

fn bench(seed: u64) -> Result<Bench> {
    Bench::new("direct", seed, &PairAttr::default(), SIZE)
}

impl Bench {
    /// READ number `i` of `EACH` bytes, to a place of its own.
    fn part(&self, i: u64) -> SendWr {
        self.read(i, i as usize * EACH, i as usize * EACH, EACH)
    }

    /// Before the bad READ come a WRITE and a READ that are good, behind it others. The card finds a bad local key itself, and
    /// then what is before it is done. What the peer refuses ends the peer's queue pair, and with it the answer to a READ
    /// before, if that is still under way: so that one is waited for.
    fn refuses(self, bad: SendWr, status: WcStatus) -> Result<()> {
        let waits = status == WcStatus::RemoteAccessError;
        let requests = [
            self.part(0),
            self.write(1, 7 * EACH, 7 * EACH, EACH),
            SendWr { wr_id: 2, ..bad },
            self.part(3),
            self.write(4, 6 * EACH, 6 * EACH, EACH),
        ];
        let mut found = vec![];
        if waits {
            found.extend(self.done(&requests[..1])?);
            self.pair.tx.post_send(&requests[1..])?;
            found.extend(self.outcomes(4)?);
        } else {
            found.extend(self.done(&requests)?);
        }
        let flushed = WcStatus::WorkRequestFlushed;
        let mut expected = good(2);
        expected.extend([(2, status), (3, flushed), (4, flushed)]);
        assert_eq!(found, expected);
        assert_eq!(self.pair.tx.state(), QpState::Error);
        let there = &self.there.expected;
        assert_eq!(self.here.bytes(0, EACH)?, there[..EACH]);
        assert_eq!(
            self.here.bytes(EACH, SIZE - EACH)?,
            vec![UNTOUCHED; SIZE - EACH]
        );
        assert_eq!(self.there.bytes(7 * EACH, EACH)?, vec![UNTOUCHED; EACH]);
        assert_eq!(self.there.bytes(0, 7 * EACH)?, there[..7 * EACH]);
        self.rig.sim.run(20 * US);
        check_events(&self.rig, &self.pair, status)?;
        self.goes_on()
    }

    /// A new queue pair reads in place of the broken one.
    pub fn goes_on(self) -> Result<()> {
        drop(self.pair);
        let pair = self.rig.pair(0, 1, &PairAttr::default())?;
        let again = Bench { pair, ..self };
        assert_eq!(again.done(&[again.read(0, 0, 0, SIZE)])?, good(1));
        assert_eq!(again.here.bytes(0, SIZE)?, again.there.bytes(0, SIZE)?);
        Ok(())
    }
}

/// Where `EACH` bytes go one byte beyond the end of an area, and begin one before it.
fn around(area: &Area) -> [u64; 2] {
    let start = area.mr.addr();
    [start + (SIZE - EACH) as u64 + 1, start - 1]
}

#[test]
fn local_keys() -> Result<()> {
    for case in 0..WrongKeys::CASES {
        let bench = bench(40 + case as u64)?;
        let outside = around(&bench.here);
        let wrong = WrongKeys::local(&bench.rig.sides[0], bench.part(2), outside)?;
        bench.refuses(wrong.requests[case], WcStatus::LocalProtectionError)?;
    }
    Ok(())
}

#[test]
fn remote_keys_bounds_rights_and_domains() -> Result<()> {
    for case in 0..WrongKeys::CASES {
        let bench = bench(50 + case as u64)?;
        let outside = around(&bench.there);
        let writable = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let rights = [writable, Access::REMOTE_READ];
        let wrong = WrongKeys::remote(&bench.rig.sides[1], bench.part(2), outside, rights)?;
        bench.refuses(wrong.requests[case], WcStatus::RemoteAccessError)?;
    }
    Ok(())
}

/// The region may be read, but not by this queue pair; a READ of no bytes asks for nothing.
#[test]
fn a_queue_pair_that_does_not_let_read() -> Result<()> {
    let attr = PairAttr {
        access: Access::LOCAL_WRITE | Access::REMOTE_WRITE,
        ..PairAttr::default()
    };
    let bench = Bench::new("direct", 60, &attr, SIZE)?;
    let nothing = SendWr {
        rkey: 0,
        lkey: 0,
        length: 0,
        ..bench.part(0)
    };
    assert_eq!(bench.done(&[nothing])?, good(1));
    assert_eq!(
        bench.done(&[bench.part(1)])?,
        [(1, WcStatus::RemoteAccessError)]
    );
    bench.here.check()?;
    let refused = count(&bench.rig.sides[1].context, Counter::RxAccessErrors)?;
    assert_eq!(refused, 1);
    bench.goes_on()
}

/// READs before the one that is refused have their requests acknowledged, but their answers may not come any more: the
/// oldest gets the cause, and nothing completes as done whose bytes are not there.
#[test]
fn section_7_a_refusal_ends_the_answers_before_it() -> Result<()> {
    let bench = bench(61)?;
    let bad = SendWr {
        rkey: 0x7f00,
        ..bench.part(3)
    };
    let requests = [
        bench.part(0),
        bench.part(1),
        bench.part(2),
        bad,
        bench.part(4),
    ];
    bench.pair.tx.post_send(&requests)?;
    let found = bench.rig.completions(0, 5, LIMIT)?;
    let done = cut_short_by(WcStatus::RemoteAccessError, &found);
    println!("{done} of 5 done before");
    assert!(done <= 3);
    let bytes = done * EACH;
    assert_eq!(bench.here.bytes(0, bytes)?, bench.there.expected[..bytes]);
    bench.goes_on()
}

/// Enough READs that they are under way for long.
pub fn long_reads(bench: &Bench) -> Vec<SendWr> {
    (0..32).map(|i| bench.read(i, 0, 0, SIZE)).collect()
}

#[test]
fn the_reader_is_destroyed() -> Result<()> {
    let mut bench = bench(62)?;
    let spare = bench.rig.pair(0, 1, &PairAttr::default())?;
    let other = bench.rig.pair(0, 1, &PairAttr::default())?;
    bench.pair.tx.post_send(&long_reads(&bench))?;
    let spare_reads = [bench.read(0, 0, 0, EACH)];
    bench.rig.sim.run(30 * US);
    let old = std::mem::replace(&mut bench.pair, spare);
    drop(old.tx);
    // What it posted to the bus before it went lands behind that. Then nothing is placed any more, whatever still comes.
    bench.rig.sim.run(US);
    bench.here.mr.write(0, &vec![UNTOUCHED; SIZE])?;
    bench.rig.sim.run(200 * US);
    bench.here.check()?;
    while !bench.rig.sides[0].cq.poll(64)?.is_empty() {}
    assert_eq!(bench.done(&spare_reads)?, good(1));
    assert_eq!(bench.here.bytes(0, EACH)?, bench.there.expected[..EACH]);
    drop(other);
    bench.goes_on()
}

/// The queue pair is moved to ERROR by software with READs open: each is flushed, once.
#[test]
fn a_queue_pair_is_stopped_with_reads_open() -> Result<()> {
    let bench = bench(64)?;
    bench.pair.tx.post_send(&long_reads(&bench))?;
    bench.rig.sim.run(30 * US);
    bench.pair.tx.modify_to_error()?;
    let found = bench.rig.completions(0, 32, LIMIT)?;
    for (i, wc) in found.iter().enumerate() {
        assert_eq!(wc.wr_id, i as u64);
        let done = wc.status == WcStatus::Success;
        assert!(done || wc.status == WcStatus::WorkRequestFlushed);
        assert!(!done || is_read(wc));
    }
    bench.rig.sim.run(50 * US);
    assert!(bench.rig.sides[0].cq.poll(1)?.is_empty(), "one too many");
    bench.goes_on()
}

/// The memory that is read goes away while it is: its owner's queue pair fails and says why.
#[test]
fn the_source_is_unmapped_under_load() -> Result<()> {
    let bench = bench(65)?;
    let doomed = Area::new(&bench.rig, 1, 0, 1 << 20, Some(66))?;
    let target = Area::new(&bench.rig, 0, 0, 1 << 20, None)?;
    let read = read_request(0, &target.mr, &doomed.mr, 1 << 20);
    bench.pair.tx.post_send(&[read])?;
    bench.rig.sim.run(30 * US);
    unmap_under_load(&bench.rig, &bench.pair, doomed)?;
    assert!(
        bench.rig.sides[0].cq.poll(1)?.is_empty(),
        "half a READ is done"
    );
    bench.pair.tx.modify_to_error()?;
    assert_eq!(bench.outcomes(1)?, [(0, WcStatus::WorkRequestFlushed)]);
    bench.goes_on()
}

/// A peer that receives but may not send yet cannot answer: the request waits.
#[test]
fn section_7_a_read_waits_until_its_peer_may_send() -> Result<()> {
    let attr = PairAttr::default();
    let bench = bench(67)?;
    let read = bench.part(0);
    waits_until_its_peer_may_send(&bench.rig, &bench.pair, &attr, read, || Ok(()))?;
    assert_eq!(bench.here.bytes(0, EACH)?, bench.there.expected[..EACH]);
    Ok(())
}

mprdma_tests::on_model!(
    local_keys,
    remote_keys_bounds_rights_and_domains,
    a_queue_pair_that_does_not_let_read,
    section_7_a_refusal_ends_the_answers_before_it,
    the_reader_is_destroyed,
    a_queue_pair_is_stopped_with_reads_open,
    the_source_is_unmapped_under_load,
    section_7_a_read_waits_until_its_peer_may_send,
);
