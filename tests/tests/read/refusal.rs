//! READs that are refused, on either side, and queue pairs that end in the middle of one.

use super::{good, is_read, Area, Bench, LIMIT, UNTOUCHED};
use anyhow::Result;
use mprdma_host::memory::{Memory, PageSize};
use mprdma_host::verbs::{Access, AsyncEvent, Mr, SendWr};
use mprdma_spec::command::QpState;
use mprdma_spec::counter::Counter;
use mprdma_spec::status::WcStatus;
use mprdma_tests::rig::{count, read_request, PairAttr, Rig, US};
use std::sync::Arc;

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
        let fatal = AsyncEvent::QpFatal {
            qpn: self.pair.tx.qp_num(),
            status: Some(status),
        };
        assert_eq!(self.rig.sides[0].context.poll_events()?, [fatal]);
        let blamed = AsyncEvent::QpAccess {
            qpn: self.pair.rx.qp_num(),
        };
        let events = self.rig.sides[1].context.poll_events()?;
        assert_eq!(events, if waits { vec![blamed] } else { vec![] });
        self.goes_on()
    }

    /// A new queue pair reads in place of the broken one.
    pub fn goes_on(self) -> Result<()> {
        let Bench {
            rig,
            pair,
            here,
            there,
        } = self;
        drop(pair);
        let pair = rig.pair(0, 1, &PairAttr::default())?;
        let again = Bench {
            rig,
            pair,
            here,
            there,
        };
        assert_eq!(again.done(&[again.read(0, 0, 0, SIZE)])?, good(1));
        assert_eq!(again.here.bytes(0, SIZE)?, again.there.bytes(0, SIZE)?);
        Ok(())
    }
}

#[test]
fn local_keys() -> Result<()> {
    for case in 0..5 {
        let bench = bench(40 + case)?;
        let good = bench.part(2);
        let memory = Arc::new(Memory::allocate(SIZE, PageSize::Small)?);
        let side = &bench.rig.sides[0];
        let other_domain = side.context.alloc_pd()?;
        let foreign = other_domain.register(&memory, 0, SIZE, Access::LOCAL_WRITE)?;
        // Enough for the source of a WRITE.
        let constant = side.pd.register(&memory, 0, SIZE, Access::NONE)?;
        let into = |region: &Mr| SendWr {
            lkey: region.lkey(),
            addr: region.addr(),
            ..good
        };
        let bad = match case {
            0 => SendWr {
                lkey: 0x7f00,
                ..good
            },
            1 => SendWr {
                addr: bench.here.mr.addr() + (SIZE - EACH) as u64 + 1,
                ..good
            },
            2 => SendWr {
                addr: bench.here.mr.addr() - 1,
                ..good
            },
            3 => into(&foreign),
            _ => into(&constant),
        };
        bench.refuses(bad, WcStatus::LocalProtectionError)?;
    }
    Ok(())
}

#[test]
fn remote_keys_bounds_rights_and_domains() -> Result<()> {
    for case in 0..5 {
        let bench = bench(50 + case)?;
        let good = bench.part(2);
        let memory = Arc::new(Memory::allocate(SIZE, PageSize::Small)?);
        let side = &bench.rig.sides[1];
        let writable = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let other_domain = side.context.alloc_pd()?;
        let all = writable | Access::REMOTE_READ;
        let foreign = other_domain.register(&memory, 0, SIZE, all)?;
        let write_only = side.pd.register(&memory, 0, SIZE, writable)?;
        let from = |region: &Mr| SendWr {
            rkey: region.rkey(),
            remote_addr: region.addr(),
            ..good
        };
        let bad = match case {
            0 => SendWr {
                rkey: 0x7f00,
                ..good
            },
            1 => SendWr {
                remote_addr: bench.there.mr.addr() + (SIZE - EACH) as u64 + 1,
                ..good
            },
            2 => SendWr {
                remote_addr: bench.there.mr.addr() - 1,
                ..good
            },
            3 => from(&foreign),
            _ => from(&write_only),
        };
        bench.refuses(bad, WcStatus::RemoteAccessError)?;
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
    let found = bench.done(&requests)?;
    println!("{found:?}");
    let done = found
        .iter()
        .take_while(|(_, status)| *status == WcStatus::Success)
        .count();
    assert!(done <= 3);
    for (i, outcome) in found.into_iter().enumerate() {
        let status = match i.cmp(&done) {
            std::cmp::Ordering::Less => WcStatus::Success,
            std::cmp::Ordering::Equal => WcStatus::RemoteAccessError,
            std::cmp::Ordering::Greater => WcStatus::WorkRequestFlushed,
        };
        assert_eq!(outcome, (i as u64, status));
    }
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
    drop(doomed);
    bench.rig.sim.run(50 * US);
    assert!(count(&bench.rig.sides[1].context, Counter::DmaReadErrors)? > 0);
    let fatal = AsyncEvent::QpFatal {
        qpn: bench.pair.rx.qp_num(),
        status: Some(WcStatus::FatalError),
    };
    assert_eq!(bench.rig.sides[1].context.poll_events()?, [fatal]);
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
    println!("seed 67");
    let rig = Rig::start("direct", 67)?;
    let attr = PairAttr::default();
    let pair = rig.pair(0, 1, &attr)?;
    // The peer once more, up to RTR.
    pair.rx.modify_to_reset()?;
    Rig::receive(&pair, &attr, true)?;
    let (here, there) = (
        Area::new(&rig, 0, 0, EACH, None)?,
        Area::new(&rig, 1, 0, EACH, Some(67))?,
    );
    pair.tx
        .post_send(&[read_request(0, &here.mr, &there.mr, EACH)])?;
    rig.sim.run(100 * US);
    assert!(rig.sides[0].cq.poll(1)?.is_empty());
    assert!(count(&rig.sides[1].context, Counter::RxRnrNaks)? > 0);
    Rig::send(&pair, &attr, true)?;
    let wc = rig.completions(0, 1, LIMIT)?.remove(0);
    assert_eq!(wc.status, WcStatus::Success);
    assert_eq!(here.bytes(0, EACH)?, there.expected);
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
