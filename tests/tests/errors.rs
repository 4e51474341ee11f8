//! What goes wrong is said clearly, hits the queue pair at fault alone, and leaves a usable card. All bounds are
//! simulated time.

use anyhow::Result;
use mprdma_host::error::Error;
use mprdma_host::memory::{Memory, PageSize};
use mprdma_host::port::Mac;
use mprdma_host::verbs::{Access, AsyncEvent, Context, ContextAttr, Mr, RecvWr, RtsAttr, SendWr};
use mprdma_sim::scenario::LinkRule;
use mprdma_sim::time::Ps;
use mprdma_spec::command::QpState;
use mprdma_spec::counter::Counter;
use mprdma_spec::descriptor::WrOpcode;
use mprdma_spec::status::WcStatus;
use mprdma_tests::outcomes::cut_short_by;
use mprdma_tests::rig::{count, pattern, write_request, Pair, PairAttr, Rig, Side, US};
use std::sync::Arc;

const SIZE: usize = 64 << 10;
/// Bytes of one message.
const PART: usize = 8 << 10;
/// Longest wait for a completion, an error's included.
const SOON: Ps = 500 * US;

/// Two queue pairs between two cards, a region on each.
struct Bench {
    rig: Rig,
    pair: Pair,
    other: Pair,
    source: Mr,
    target: Mr,
}

fn bench(seed: u64, attr: &PairAttr) -> Result<Bench> {
    println!("seed {seed}");
    let rig = Rig::start("direct", seed)?;
    let (pair, other) = (rig.pair(0, 1, attr)?, rig.pair(0, 1, attr)?);
    let (source, target) = (rig.region(0, 0, SIZE)?, rig.region(1, 0, SIZE)?);
    source.write(0, &pattern(seed, SIZE))?;
    Ok(Bench {
        rig,
        pair,
        other,
        source,
        target,
    })
}

impl Bench {
    /// WRITE number `i` of `PART` bytes, to a place of its own.
    fn good(&self, i: u64) -> SendWr {
        SendWr {
            addr: self.source.addr() + i * PART as u64,
            remote_addr: self.target.addr() + i * PART as u64,
            ..write_request(i, &self.source, &self.target, PART)
        }
    }

    fn statuses(&self, count: usize, limit: Ps) -> Result<Vec<(u64, WcStatus)>> {
        let completions = self.rig.completions(0, count, limit)?;
        assert!(completions
            .iter()
            .all(|wc| wc.qp_num == self.pair.tx.qp_num()));
        Ok(completions.iter().map(|wc| (wc.wr_id, wc.status)).collect())
    }

    /// Whether part `i` of the target holds the source's bytes, or nothing.
    fn arrived(&self, i: usize) -> Result<bool> {
        let (mut sent, mut got) = (vec![0; PART], vec![0; PART]);
        self.source.read(i * PART, &mut sent)?;
        self.target.read(i * PART, &mut got)?;
        assert!(
            got == sent || got.iter().all(|b| *b == 0),
            "part {i} is half there"
        );
        Ok(got == sent)
    }

    /// The other queue pair works, and a new one in place of the broken one.
    fn goes_on(self) -> Result<()> {
        let Self {
            rig,
            pair,
            other,
            source,
            target,
        } = self;
        rig.write(&other, &source, &target, SIZE)?;
        drop(pair);
        let new = rig.pair(0, 1, &PairAttr::default())?;
        target.write(0, &vec![0; SIZE])?;
        rig.write(&new, &source, &target, SIZE)?;
        let mut got = vec![0; SIZE];
        let mut sent = got.clone();
        target.read(0, &mut got)?;
        source.read(0, &mut sent)?;
        assert!(got == sent, "a new queue pair does not deliver");
        Ok(())
    }

    /// Work before the bad request completes, the bad one with `status`, work after it is flushed.
    fn refuses(self, bad: SendWr, status: WcStatus) -> Result<()> {
        let qpn = self.pair.tx.qp_num();
        let requests = [self.good(1), SendWr { wr_id: 2, ..bad }, self.good(3)];
        self.pair.tx.post_send(&requests)?;
        assert_eq!(
            self.statuses(3, SOON)?,
            [
                (1, WcStatus::Success),
                (2, status),
                (3, WcStatus::WorkRequestFlushed)
            ]
        );
        assert_eq!(
            [self.arrived(1)?, self.arrived(2)?, self.arrived(3)?],
            [true, false, false]
        );
        assert_eq!(self.pair.tx.state(), QpState::Error);
        self.rig.sim.run(20 * US);
        assert_eq!(
            self.rig.sides[0].context.poll_events()?,
            [AsyncEvent::QpFatal {
                qpn,
                status: Some(status)
            }]
        );
        let remote = self.rig.sides[1].context.poll_events()?;
        match status {
            WcStatus::RemoteAccessError => assert_eq!(
                remote,
                [AsyncEvent::QpAccess {
                    qpn: self.pair.rx.qp_num()
                }]
            ),
            _ => assert_eq!(remote, []),
        }
        // What is posted to a queue pair in ERROR comes back.
        self.pair.tx.post_send(&[self.good(4)])?;
        assert_eq!(self.statuses(1, SOON)?, [(4, WcStatus::WorkRequestFlushed)]);
        self.goes_on()
    }
}

#[test]
fn local_keys() -> Result<()> {
    let status = WcStatus::LocalProtectionError;
    // A key that nobody has, a generation that is over, the end of the region, the byte before it.
    for case in 0..4 {
        let bench = bench(10 + case, &PairAttr::default())?;
        let good = bench.good(2);
        let bad = match case {
            0 => SendWr {
                lkey: 0x7f00,
                ..good
            },
            1 => {
                let stale = bench.rig.region(0, 0, SIZE)?;
                SendWr {
                    lkey: stale.lkey(),
                    addr: stale.addr(),
                    ..good
                }
            }
            2 => SendWr {
                addr: bench.source.addr() + (SIZE - PART) as u64 + 1,
                ..good
            },
            _ => SendWr {
                addr: bench.source.addr() - 1,
                ..good
            },
        };
        bench.refuses(bad, status)?;
    }
    Ok(())
}

#[test]
fn a_local_key_of_another_domain() -> Result<()> {
    let bench = bench(20, &PairAttr::default())?;
    let memory = Arc::new(Memory::allocate(SIZE, PageSize::Small)?);
    let pd = bench.rig.sides[0].context.alloc_pd()?;
    let foreign = pd.register(&memory, 0, SIZE, Access::LOCAL_WRITE)?;
    let bad = SendWr {
        lkey: foreign.lkey(),
        addr: foreign.addr(),
        ..bench.good(2)
    };
    bench.refuses(bad, WcStatus::LocalProtectionError)
}

#[test]
fn remote_keys() -> Result<()> {
    // As for local keys.
    for case in 0..4 {
        let bench = bench(30 + case, &PairAttr::default())?;
        let good = bench.good(2);
        let bad = match case {
            0 => SendWr {
                rkey: 0x7f00,
                ..good
            },
            1 => {
                let stale = bench.rig.region(1, 0, SIZE)?;
                SendWr {
                    rkey: stale.rkey(),
                    remote_addr: stale.addr(),
                    ..good
                }
            }
            2 => SendWr {
                remote_addr: bench.target.addr() + SIZE as u64 - 1,
                length: 2,
                ..good
            },
            _ => SendWr {
                remote_addr: bench.target.addr() - 1,
                ..good
            },
        };
        bench.refuses(bad, WcStatus::RemoteAccessError)?;
    }
    Ok(())
}

#[test]
fn remote_rights_and_domains() -> Result<()> {
    for foreign in [false, true] {
        let bench = bench(40 + u64::from(foreign), &PairAttr::default())?;
        let memory = Arc::new(Memory::allocate(SIZE, PageSize::Small)?);
        let side = &bench.rig.sides[1];
        let (pd, access) = match foreign {
            true => (
                side.context.alloc_pd()?,
                Access::LOCAL_WRITE | Access::REMOTE_WRITE,
            ),
            false => (side.pd.clone(), Access::LOCAL_WRITE),
        };
        let region = pd.register(&memory, 0, SIZE, access)?;
        let bad = SendWr {
            rkey: region.rkey(),
            remote_addr: region.addr(),
            ..bench.good(2)
        };
        bench.refuses(bad, WcStatus::RemoteAccessError)?;
        let mut all = vec![1; SIZE];
        memory.read(0, &mut all)?;
        assert!(all.iter().all(|b| *b == 0), "memory was written");
    }
    Ok(())
}

#[test]
fn a_full_send_queue_and_a_message_that_is_too_long() -> Result<()> {
    let attr = PairAttr {
        depth: 8,
        ..PairAttr::default()
    };
    let bench = bench(50, &attr)?;
    let requests: Vec<_> = (0..12).map(|i| bench.good(i % 8)).collect();
    match bench.pair.tx.post_send(&requests) {
        Err(Error::QueueFull {
            capacity: 8,
            posted: 8,
            ..
        }) => {}
        other => panic!("{other:?}"),
    }
    let done = bench.statuses(8, SOON)?;
    assert!(done
        .iter()
        .enumerate()
        .all(|(i, wc)| *wc == (i as u64, WcStatus::Success)));
    let long = SendWr {
        length: (1 << 31) + 1,
        ..bench.good(0)
    };
    assert!(matches!(
        bench.pair.tx.post_send(&[long]),
        Err(Error::MessageTooLong { .. })
    ));
    bench.goes_on()
}

#[test]
fn a_completion_queue_overflows() -> Result<()> {
    let mut bench = bench(60, &PairAttr::default())?;
    let small = bench.rig.sides[0].context.create_cq(4)?;
    let usual = std::mem::replace(&mut bench.rig.sides[0].cq, small.clone());
    let pair = bench.rig.pair(0, 1, &PairAttr::default())?;
    bench.rig.sides[0].cq = usual;
    let requests: Vec<_> = (0..8).map(|i| bench.good(i)).collect();
    pair.tx.post_send(&requests)?;
    bench.rig.sim.run(SOON);
    let found = small.poll(64)?;
    assert_eq!(found.len(), 4);
    assert!(found.iter().all(|wc| wc.status == WcStatus::Success));
    let cqn = small.number();
    assert!(matches!(
        small.poll(64),
        Err(Error::CqOverflow { cqn: n }) if n == cqn
    ));
    let events = bench.rig.sides[0].context.poll_events()?;
    assert!(events.contains(&AsyncEvent::CqError { cqn }), "{events:?}");
    assert!(count(&bench.rig.sides[0].context, Counter::CqOverflows)? > 0);
    drop((pair, small));
    bench.goes_on()
}

/// Few retries, so that the bound is short: three timeouts of 33 us that double come to 0.23 ms, and 3 ms bound it.
fn impatient() -> PairAttr {
    PairAttr {
        rts: RtsAttr {
            retry_cnt: 2,
            rnr_retry: 2,
            ..RtsAttr::new(0)
        },
        ..PairAttr::default()
    }
}

#[test]
fn the_link_goes_down() -> Result<()> {
    let bench = bench(70, &impatient())?;
    let rule = LinkRule {
        from: "*".into(),
        to: "*".into(),
        ..LinkRule::default()
    };
    assert!(bench.rig.sim.change_link(&rule, Some(true)) > 0);
    let start = bench.rig.sim.now();
    bench.pair.tx.post_send(&[bench.good(0), bench.good(1)])?;
    assert_eq!(
        bench.statuses(2, 3_000 * US)?,
        [
            (0, WcStatus::RetryExceeded),
            (1, WcStatus::WorkRequestFlushed)
        ]
    );
    println!("given up after {} us", (bench.rig.sim.now() - start) / US);
    assert!(bench.rig.sim.change_link(&rule, Some(false)) > 0);
    bench.goes_on()
}

#[test]
fn the_peer_destroys_its_queue_pair() -> Result<()> {
    let mut bench = bench(71, &impatient())?;
    let big = write_request(0, &bench.source, &bench.target, SIZE);
    let requests: Vec<_> = (0..32).map(|wr_id| SendWr { wr_id, ..big }).collect();
    bench.pair.tx.post_send(&requests)?;
    bench.rig.sim.run(30 * US);
    let spare = bench.rig.pair(0, 1, &PairAttr::default())?;
    let Pair { tx, rx, .. } = std::mem::replace(&mut bench.pair, spare);
    drop(rx);
    let found = bench.rig.completions(0, 32, 3_000 * US)?;
    let done = cut_short_by(WcStatus::RetryExceeded, &found);
    println!("{done} of 32 done before");
    assert!(done < 32);
    assert!(count(&bench.rig.sides[1].context, Counter::RxDropNoQp)? > 0);
    drop(tx);
    bench.goes_on()
}

/// A region that goes away under its request: its memory is unmapped, and the payload read faults.
#[test]
fn payload_memory_is_unmapped_under_load() -> Result<()> {
    let bench = bench(80, &PairAttr::default())?;
    let big = 1 << 20;
    let (doomed, target) = (bench.rig.region(0, 0, big)?, bench.rig.region(1, 0, big)?);
    let requests: Vec<_> = (0..2)
        .map(|i| write_request(i, &doomed, &target, big))
        .collect();
    bench.pair.tx.post_send(&requests)?;
    bench.rig.sim.run(20 * US);
    drop(doomed);
    assert_eq!(
        bench.statuses(2, SOON)?,
        [(0, WcStatus::FatalError), (1, WcStatus::WorkRequestFlushed)]
    );
    assert!(count(&bench.rig.sides[0].context, Counter::DmaReadErrors)? > 0);
    let qpn = bench.pair.tx.qp_num();
    assert_eq!(
        bench.rig.sides[0].context.poll_events()?,
        [AsyncEvent::QpFatal {
            qpn,
            status: Some(WcStatus::FatalError)
        }]
    );
    bench.goes_on()
}

#[test]
fn a_card_is_reset_under_traffic_and_opened_again() -> Result<()> {
    let Bench {
        mut rig,
        pair,
        other,
        source,
        target,
    } = bench(90, &PairAttr::default())?;
    let requests: Vec<_> = (0..32)
        .map(|i| write_request(i, &source, &target, SIZE))
        .collect();
    pair.tx.post_send(&requests)?;
    other.tx.post_send(&requests)?;
    rig.sim.run(30 * US);
    rig.sides[0].context.device().reset()?;
    rig.sim.run(30 * US);
    drop((pair, other, source));
    drop(rig.sides.remove(0));
    let attr = ContextAttr {
        mac: Some(Mac([2, 0, 0, 0, 0, 1])),
        ..ContextAttr::default()
    };
    let context = Context::open(Arc::new(rig.sim.device(0)), &attr)?;
    let (pd, cq) = (context.alloc_pd()?, context.create_cq(4096)?);
    rig.sides.insert(0, Side { context, pd, cq });
    for (from, to) in [(0, 1), (1, 0)] {
        let pair = rig.pair(from, to, &PairAttr::default())?;
        let (source, target) = (rig.region(from, 0, SIZE)?, rig.region(to, 0, SIZE)?);
        let data = pattern(91, SIZE);
        source.write(0, &data)?;
        rig.write(&pair, &source, &target, SIZE)?;
        let mut got = vec![0; SIZE];
        target.read(0, &mut got)?;
        assert!(got == data, "{from} to {to}");
    }
    Ok(())
}

#[test]
fn fifty_connections_one_after_another() -> Result<()> {
    let rig = Rig::start("direct", 100)?;
    for round in 0..50u64 {
        let pair = rig.pair(0, 1, &PairAttr::default())?;
        let (source, target) = (rig.region(0, 1, 1000)?, rig.region(1, 2, 1000)?);
        let data = pattern(round, 1000);
        source.write(0, &data)?;
        rig.write(&pair, &source, &target, 1000)?;
        let mut got = vec![0; 1000];
        target.read(0, &mut got)?;
        assert!(got == data, "connection {round}");
    }
    assert_eq!(
        count(&rig.sides[0].context, Counter::MessagesCompleted)?,
        50
    );
    Ok(())
}

fn with_imm(request: SendWr, imm: u32) -> SendWr {
    SendWr {
        opcode: WrOpcode::RdmaWriteWithImm,
        imm,
        ..request
    }
}

fn receive(wr_id: u64) -> RecvWr {
    RecvWr {
        wr_id,
        addr: 0,
        length: 0,
        lkey: 0,
    }
}

#[test]
fn immediates_complete_in_order_and_wait_for_their_receive_request() -> Result<()> {
    let bench = bench(110, &PairAttr::default())?;
    bench
        .pair
        .rx
        .post_recv(&[receive(0), receive(1), receive(2)])?;
    let requests: Vec<_> = (0..8)
        .map(|i| with_imm(bench.good(i), 0xabc0_0000 + i as u32))
        .collect();
    bench.pair.tx.post_send(&requests)?;
    let mut found = bench.rig.completions(1, 3, SOON)?;
    bench.rig.sim.run(100 * US);
    assert!(
        bench.rig.sides[1].cq.poll(8)?.is_empty(),
        "more completions than receive requests"
    );
    assert!(count(&bench.rig.sides[1].context, Counter::RxRnrNaks)? > 0);
    let late: Vec<_> = (3..8).map(receive).collect();
    bench.pair.rx.post_recv(&late)?;
    found.extend(bench.rig.completions(1, 5, 3_000 * US)?);
    for (i, wc) in found.iter().enumerate() {
        assert_eq!(
            (wc.wr_id, wc.status, wc.imm, wc.byte_len),
            (
                i as u64,
                WcStatus::Success,
                Some(0xabc0_0000 + i as u32),
                PART as u32
            )
        );
        assert!(bench.arrived(i)?);
    }
    let sent = bench.statuses(8, SOON)?;
    assert!(sent
        .iter()
        .enumerate()
        .all(|(i, wc)| *wc == (i as u64, WcStatus::Success)));
    bench.goes_on()
}

#[test]
fn a_receive_request_never_comes() -> Result<()> {
    let bench = bench(111, &impatient())?;
    bench
        .pair
        .tx
        .post_send(&[bench.good(0), with_imm(bench.good(1), 7), bench.good(2)])?;
    assert_eq!(
        bench.statuses(3, 3_000 * US)?,
        [
            (0, WcStatus::Success),
            (1, WcStatus::RnrRetryExceeded),
            (2, WcStatus::WorkRequestFlushed)
        ]
    );
    bench.goes_on()
}

#[test]
fn receive_requests_of_a_broken_queue_pair_are_flushed() -> Result<()> {
    let bench = bench(112, &impatient())?;
    let requests: Vec<_> = (0..6).map(receive).collect();
    bench.pair.rx.post_recv(&requests)?;
    // A key that nobody has breaks it on both sides, with two completions still to be taken.
    let bad = SendWr {
        rkey: bench.target.rkey() ^ 0x100,
        ..bench.good(2)
    };
    bench
        .pair
        .tx
        .post_send(&[with_imm(bench.good(0), 1), with_imm(bench.good(1), 2), bad])?;
    assert_eq!(bench.statuses(3, SOON)?[2].1, WcStatus::RemoteAccessError);
    let flushed = |wr_id: u64| match wr_id {
        0 | 1 => (wr_id, WcStatus::Success),
        _ => (wr_id, WcStatus::WorkRequestFlushed),
    };
    let found = bench.rig.completions(1, 6, SOON)?;
    let found: Vec<_> = found.iter().map(|wc| (wc.wr_id, wc.status)).collect();
    assert_eq!(found, (0..6).map(flushed).collect::<Vec<_>>());
    bench.pair.rx.post_recv(&[receive(6)])?;
    assert_eq!(bench.rig.completions(1, 1, SOON)?[0].wr_id, 6);
    bench.goes_on()
}

mprdma_tests::on_model!(
    receive_requests_of_a_broken_queue_pair_are_flushed,
    local_keys,
    a_local_key_of_another_domain,
    remote_keys,
    remote_rights_and_domains,
    a_full_send_queue_and_a_message_that_is_too_long,
    a_completion_queue_overflows,
    the_link_goes_down,
    the_peer_destroys_its_queue_pair,
    payload_memory_is_unmapped_under_load,
    a_card_is_reset_under_traffic_and_opened_again,
    fifty_connections_one_after_another,
    immediates_complete_in_order_and_wait_for_their_receive_request,
    a_receive_request_never_comes,
);
