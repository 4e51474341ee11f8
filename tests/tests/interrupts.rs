//! Interrupts as a driver gets them: a waiter sleeps and wakes, moderation keeps interrupts apart and loses none.

use anyhow::{ensure, Result};
use mprdma_host::device::{Device, DeviceError, Identity};
use mprdma_host::memory::{Memory, PageSize};
use mprdma_host::verbs::{Context, ContextAttr, Cq, RecvWr};
use mprdma_host::Error;
use mprdma_sim::engine::Engine;
use mprdma_sim::time::Ps;
use mprdma_sim::world::Options;
use mprdma_spec::counter::Counter;
use mprdma_spec::csr;
use mprdma_spec::descriptor::WrOpcode;
use mprdma_spec::status::WcStatus;
use mprdma_tests::rig::{
    count, engine, pattern, scenario, write_request, Pair, PairAttr, Rig, Side, US,
};
use mprdma_tests::served::Served;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Wall time after which a waiter has been forgotten.
const LIMIT: Duration = Duration::from_secs(120);

/// Sleeps until the queue's own interrupt comes, which must have a completion with it.
fn woken(context: &Context, cq: &Cq) -> Result<()> {
    ensure!(
        context.device().wait_interrupt(cq.vector(), LIMIT)?,
        "a waiter is not woken"
    );
    let found = cq.poll(1)?;
    ensure!(found.len() == 1, "an interrupt without its completion");
    ensure!(found[0].status == WcStatus::Success, "{found:?}");
    Ok(())
}

struct Stream {
    raised: u64,
    held: u64,
    time: Ps,
}

/// `messages` WRITEs with immediate, one each `pause`. The receiver arms its queue and sleeps for each.
fn stream(interval: Duration, messages: u64, pause: Ps) -> Result<Stream> {
    let rig = Rig::start("direct", 1)?;
    let pair = rig.pair(0, 1, &PairAttr::default())?;
    let Side { context, cq, .. } = &rig.sides[1];
    context.set_moderation(Some(cq.vector()), interval)?;
    let (source, target) = (rig.region(0, 0, 4096)?, rig.region(1, 0, 4096)?);
    let begin = rig.sim.now();
    for i in 0..messages {
        pair.rx.post_recv(&[RecvWr::default()])?;
        cq.arm()?;
        let mut request = write_request(i, &source, &target, 64);
        request.opcode = WrOpcode::RdmaWriteWithImm;
        let next = begin + i * pause;
        rig.sim.run(next.saturating_sub(rig.sim.now()));
        pair.tx.post_send(&[request])?;
        woken(context, cq)?;
        rig.sides[0].cq.poll(16)?;
    }
    ensure!(!context
        .device()
        .wait_interrupt(cq.vector(), Duration::ZERO)?);
    Ok(Stream {
        raised: count(context, Counter::InterruptsRaised)?,
        held: count(context, Counter::InterruptsHeld)?,
        time: rig.sim.now() - begin,
    })
}

#[test]
fn without_moderation_every_armed_completion_interrupts() -> Result<()> {
    let run = stream(Duration::ZERO, 20, 5 * US)?;
    assert_eq!((run.raised, run.held), (20, 0));
    Ok(())
}

#[test]
fn moderation_bounds_the_interrupts_and_every_waiter_wakes() -> Result<()> {
    // Each waiter sleeps until the interval ends, so the stream slows down to one message each.
    let run = stream(Duration::from_micros(40), 12, 5 * US)?;
    println!(
        "{} raised, {} held, {} us",
        run.raised,
        run.held,
        run.time / US
    );
    assert_eq!((run.raised, run.held), (12, 11));
    assert!(run.raised <= run.time / (40 * US) + 1);
    // Messages that are further apart than the interval are not held.
    let run = stream(Duration::from_micros(10), 12, 50 * US)?;
    assert_eq!((run.raised, run.held), (12, 0));
    Ok(())
}

/// An arm behind the card's index interrupts at once, which makes causes at will: some come in bursts.
#[test]
fn causes_inside_the_interval_make_one_interrupt_at_its_end() -> Result<()> {
    let rig = Rig::start("direct", 2)?;
    let Side { context, cq, .. } = &rig.sides[0];
    let device = context.device();
    let arm = csr::CQ_DOORBELLS + csr::DOORBELL_PAGE * cq.number() + csr::DB_CQ_ARM;
    let raised = || count(context, Counter::InterruptsRaised);
    let interval = 30 * US;
    context.set_moderation(None, Duration::from_micros(30))?;
    let intervals = context.moderation()?;
    assert_eq!(intervals.len(), 8);
    let least = Duration::from_micros(30);
    assert!(intervals
        .iter()
        .all(|set| *set >= least && *set < least + Duration::from_nanos(64)));
    let (begin, mut causes) = (rig.sim.now(), 0);
    for burst in 0..40 {
        for _ in 0..1 + burst % 3 {
            device.write32(arm, 7)?;
            causes += 1;
        }
        rig.sim.run(3 * US);
    }
    let time = rig.sim.now() - begin;
    let during = raised()?;
    println!("{during} interrupts of {causes} causes in {} us", time / US);
    assert!(
        during <= time / interval + 1,
        "{during} interrupts in {time} ps"
    );
    assert!(
        during + 1 >= time / interval,
        "they come as the intervals end"
    );
    rig.sim.run(2 * interval);
    let all = raised()?;
    assert!(all == during || all == during + 1, "what waits comes once");
    let held = count(context, Counter::InterruptsHeld)?;
    assert_eq!(
        held,
        causes - 1,
        "all but the first came inside an interval"
    );
    assert_eq!(rig.sim.stats().cards[0].stats.pcie.interrupts, all);
    // Off again: each one interrupts, at once.
    context.set_moderation(None, Duration::ZERO)?;
    for _ in 0..5 {
        device.write32(arm, 7)?;
    }
    rig.sim.run(US);
    assert_eq!(raised()?, all + 5);
    // A reset clears it.
    context.set_moderation(Some(3), Duration::from_millis(4))?;
    assert_eq!(context.moderation()?[3], Duration::from_nanos(4_000_000));
    device.reset()?;
    assert_eq!(context.moderation()?, [Duration::ZERO; 8]);
    Ok(())
}

mprdma_tests::on_model!(
    without_moderation_every_armed_completion_interrupts,
    moderation_bounds_the_interrupts_and_every_waiter_wakes,
    causes_inside_the_interval_make_one_interrupt_at_its_end,
    a_waiter_sleeps_and_misses_nothing,
);

#[test]
fn what_is_out_of_range_is_said() -> Result<()> {
    let rig = Rig::with_engine("direct", 3, Engine::Model)?;
    let context = &rig.sides[0].context;
    let refused = |vector, interval| {
        context
            .set_moderation(vector, interval)
            .unwrap_err()
            .to_string()
    };
    let text = refused(None, Duration::from_millis(5));
    assert!(text.contains("between 0 and 4194.24 us"), "{text}");
    let text = refused(Some(8), Duration::ZERO);
    assert!(
        text.contains("no interrupt vector 8: it must lie between 0 and 7"),
        "{text}"
    );
    assert_eq!(context.moderation()?, [Duration::ZERO; 8]);
    Ok(())
}

/// A device that counts how a driver waits.
struct Counting {
    device: Box<dyn Device>,
    looks: AtomicU64,
    sleeps: AtomicU64,
}

impl Device for Counting {
    fn identity(&self) -> &Identity {
        self.device.identity()
    }
    fn read32(&self, offset: u32) -> Result<u32, DeviceError> {
        self.device.read32(offset)
    }
    fn write32(&self, offset: u32, value: u32) -> Result<(), DeviceError> {
        self.device.write32(offset, value)
    }
    fn map_dma(&self, memory: &Arc<Memory>, iova: u64) -> Result<(), DeviceError> {
        self.device.map_dma(memory, iova)
    }
    fn unmap_dma(&self, iova: u64, bytes: u64) -> Result<(), DeviceError> {
        self.device.unmap_dma(iova, bytes)
    }
    fn wait_interrupt(&self, vector: usize, timeout: Duration) -> Result<bool, DeviceError> {
        self.sleeps.fetch_add(1, Ordering::Relaxed);
        self.device.wait_interrupt(vector, timeout)
    }
    fn reset(&self) -> Result<(), DeviceError> {
        self.device.reset()
    }
    fn relax(&self) -> Result<(), DeviceError> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.device.relax()
    }
}

/// Over vfio-user the card runs by itself, and the driver's thread sleeps: it looks once per wake-up, not in between.
#[test]
fn a_waiter_sleeps_and_misses_nothing() -> Result<()> {
    const MESSAGES: u64 = 30;
    let options = Options {
        engine: engine()?,
        threads: 1,
        ..Options::default()
    };
    let served = Served::start(&scenario("direct")?, &options)?;
    let mut devices = vec![];
    let mut sides = vec![];
    for card in 0..2 {
        let device = Arc::new(Counting {
            device: Box::new(served.open(card)?),
            looks: AtomicU64::new(0),
            sleeps: AtomicU64::new(0),
        });
        sides.push(Side::open(card, device.clone(), &ContextAttr::default())?);
        devices.push(device);
    }
    let pair = Pair::between(&sides, 0, 1, &PairAttr::default())?;
    let region = |card: usize| {
        let memory = Arc::new(Memory::allocate(1 << 20, PageSize::Small)?);
        sides[card].register(&memory, 0, 1 << 20)
    };
    let (source, target) = (region(0)?, region(1)?);
    source.write(0, &pattern(5, 1 << 20))?;
    let Side { cq, context, .. } = &sides[0];
    let counts = || {
        (
            devices[0].looks.load(Ordering::Relaxed),
            devices[0].sleeps.load(Ordering::Relaxed),
        )
    };
    for moderation in [Duration::ZERO, Duration::from_micros(100)] {
        context.set_moderation(None, moderation)?;
        let (before, begin) = (counts(), Instant::now());
        // Long and short ones, so that some complete between a look and the arm behind it.
        let requests: Vec<_> = (0..MESSAGES)
            .map(|i| write_request(i, &source, &target, if i % 3 == 0 { 1 << 18 } else { 8 }))
            .collect();
        let mut done = vec![];
        for request in &requests {
            pair.tx.post_send(std::slice::from_ref(request))?;
            if request.wr_id % 4 == 3 {
                while done.len() as u64 <= request.wr_id {
                    done.extend(cq.wait(64, LIMIT)?);
                }
            }
        }
        while done.len() < requests.len() {
            done.extend(cq.wait(64, LIMIT)?);
        }
        let (after, wall) = (counts(), begin.elapsed());
        let (looks, sleeps) = (after.0 - before.0, after.1 - before.1);
        println!(
            "{} completions in {wall:.1?}: {looks} polls, {sleeps} sleeps",
            done.len()
        );
        assert!(done.iter().all(|wc| wc.status == WcStatus::Success));
        assert!(
            done.iter().map(|wc| wc.wr_id).eq(0..MESSAGES),
            "in order, each once"
        );
        assert_eq!(looks, 0, "it never polls");
        // One per completion at the most, one for a raise that was seen before, and the driver's own look every 50 ms.
        let limit = 2 * MESSAGES + wall.as_millis() as u64 / 50 + 1;
        assert!(
            sleeps > 0 && sleeps <= limit,
            "{sleeps} sleeps, at most {limit}"
        );
    }
    let begin = Instant::now();
    let nothing = cq.wait(1, Duration::from_millis(300));
    assert!(matches!(nothing, Err(Error::Timeout { .. })));
    assert!(begin.elapsed() >= Duration::from_millis(300));
    let mut got = vec![0; 1 << 18];
    target.read(0, &mut got)?;
    assert!(got == pattern(5, 1 << 20)[..1 << 18]);
    Ok(())
}
