//! An opened card.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use mprdma_spec::command::{qp_image, trace_request, Opcode, TRACED_VPS, TRACE_GROUP};
use mprdma_spec::counter::Counter;
use tracing::{debug, warn};

use super::attr::QpStatus;
use super::cq::CqShared;
use super::event::{self, AsyncEvent, EventQueue};
use super::image::{self, Image};
use super::mr::{Mapping, Pd};
use super::numbers::{IovaSpace, Number, Numbers};
use super::parameters::{MultiPath, Parameters, Timers};
use super::qp_shared::{QpShared, QpSummary};
use super::telemetry::{QpStats, Trace, TraceAnswer, VpRow, OTHER_GROUP};
use crate::control::{Capabilities, Control};
use crate::device::Device;
use crate::error::Error;
use crate::memory::{Memory, PageSize};
use crate::numa::Node;
use crate::port::Mac;

/// How a card is opened.
#[derive(Clone, Copy, Debug)]
pub struct ContextAttr {
    /// Reset the card first, so that nothing of an earlier user is left.
    pub reset: bool,
    /// MAC address to give the port; without one it keeps its own.
    pub mac: Option<Mac>,
    /// Hand out QPN 0 and 1 too. IBA reserves them for management (vol. 1, 3.5.10), which this card does not have; peers
    /// and analysers may take packets to them for management datagrams.
    pub reserved_qpns: bool,
    /// Pages behind rings of at least half a page; shorter rings lie in ordinary pages.
    pub ring_pages: PageSize,
}

impl Default for ContextAttr {
    fn default() -> Self {
        Self {
            reset: true,
            mac: None,
            reserved_qpns: false,
            ring_pages: PageSize::Small,
        }
    }
}

/// An opened card. Clones are the same card.
#[derive(Clone, Debug)]
pub struct Context(pub(super) Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    pub control: Control,
    numbers: [Arc<Mutex<Numbers>>; 4],
    generations: Mutex<HashMap<u32, u8>>,
    iovas: Arc<Mutex<IovaSpace>>,
    mappings: Mutex<HashMap<u64, Weak<Mapping>>>,
    events: Mutex<EventQueue>,
    live: Mutex<Live>,
    failures: Arc<AtomicU32>,
    ring_pages: PageSize,
}

/// Objects that events name by number.
#[derive(Debug, Default)]
pub(super) struct Live {
    pub qps: BTreeMap<u32, Weak<QpShared>>,
    pub cqs: BTreeMap<u32, Weak<CqShared>>,
}

/// What a [`Number`] numbers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Qp,
    Cq,
    Mr,
    Pd,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Context {
    /// Opens the card behind `device`: identifies it, waits until it is ready, sets up its event queue and lets packets
    /// in and out.
    ///
    /// # Errors
    /// As [`Control::open`]; [`Error::Memory`] or [`Error::Command`] when the event queue cannot be had.
    pub fn open(device: Arc<dyn Device>, attr: &ContextAttr) -> Result<Self, Error> {
        let control = Control::open(device, attr.reset)?;
        let capabilities = *control.capabilities();
        let iovas = Arc::new(Mutex::new(IovaSpace::new(&control.device().iova_ranges())));
        let ring = near(control.device(), EventQueue::BYTES, PageSize::Small)?;
        let ring = Mapping::new(control.device(), ring, &iovas)?;
        let events = EventQueue::new(Arc::new(ring));
        let inner = Inner {
            // QPN 0 and 1 and key index 0 stay unused, as IBA reserves the former and a zero key should never work.
            numbers: [
                Numbers::new(
                    "queue pair",
                    if attr.reserved_qpns { 0 } else { 2 },
                    capabilities.qps,
                ),
                Numbers::new("completion queue", 0, capabilities.cqs),
                Numbers::new("memory region", 1, capabilities.mrs),
                Numbers::new("protection domain", 1, 1 << 16),
            ],
            control,
            generations: Mutex::default(),
            iovas,
            mappings: Mutex::default(),
            events: Mutex::new(events),
            live: Mutex::default(),
            failures: Arc::default(),
            ring_pages: attr.ring_pages,
        };
        if let Some(mac) = attr.mac {
            inner.control.set_mac(mac)?;
        }
        let image = lock(&inner.events).image();
        inner.control.command(Opcode::CreateEq, &image.0)?;
        inner.control.enable()?;
        Ok(Self(Arc::new(inner)))
    }

    /// The card's registers.
    #[must_use]
    pub fn control(&self) -> &Control {
        &self.0.control
    }

    /// What the card says of itself.
    #[must_use]
    pub fn capabilities(&self) -> &Capabilities {
        self.0.control.capabilities()
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &dyn Device {
        &**self.0.control.device()
    }

    /// Zeroed memory to register, on the card's NUMA node if it has one and the node has free pages.
    ///
    /// # Errors
    /// As [`Memory::allocate`].
    pub fn allocate(&self, bytes: usize, page: PageSize) -> Result<Arc<Memory>, Error> {
        near(self.0.control.device(), bytes, page)
    }

    /// Keeps the calling thread on the processors of the card's NUMA node; a thread that polls should call it once.
    /// Nothing happens where that makes no difference: the node is unknown, or the machine has one only. A `taskset` that
    /// excludes those processors has the last word. Says whether the thread was bound.
    pub fn keep_thread_near(&self) -> bool {
        self.device().node().is_some_and(Node::keep_thread)
    }

    /// A new protection domain.
    ///
    /// # Errors
    /// [`Error::Exhausted`].
    pub fn alloc_pd(&self) -> Result<Pd, Error> {
        Ok(Pd::new(self.clone(), self.number(Kind::Pd)?))
    }

    /// Reads every counter of the card.
    ///
    /// # Errors
    /// A device error.
    pub fn counters(&self) -> Result<Vec<(Counter, u64)>, Error> {
        self.0.control.counters()
    }

    /// Asks the card for the state of any queue pair.
    ///
    /// # Errors
    /// [`Error::Command`] when there is none of that number, or a device error.
    pub fn query_qp(&self, qpn: u32) -> Result<QpStatus, Error> {
        let mut image = Image::new();
        image.set(qp_image::QPN, qpn);
        Ok(image::status(
            &self.0.control.query(Opcode::QueryQp, &image.0)?,
        ))
    }

    /// Asks the card what a queue pair has counted since it was created.
    ///
    /// # Errors
    /// [`Error::Command`] when there is none of that number, or a device error.
    pub fn query_qp_stats(&self, qpn: u32) -> Result<QpStats, Error> {
        let mut image = Image::new();
        image.set(qp_image::QPN, qpn);
        Ok(QpStats::read(
            &self.0.control.query(Opcode::QueryQpStats, &image.0)?,
        ))
    }

    /// What a queue pair of this process is set to.
    ///
    /// # Errors
    /// [`Error::NoQueuePair`].
    pub fn parameters(&self, qpn: u32) -> Result<Parameters, Error> {
        Ok(self.queue_pair(qpn)?.parameters())
    }

    /// As [`Qp::modify_paths`](super::Qp::modify_paths), for a queue pair of this process by its number.
    ///
    /// # Errors
    /// [`Error::NoQueuePair`], or as there.
    pub fn modify_paths(&self, qpn: u32, paths: &MultiPath) -> Result<(), Error> {
        self.queue_pair(qpn)?.modify_paths(self.control(), paths)
    }

    /// As [`Qp::modify_timers`](super::Qp::modify_timers), for a queue pair of this process by its number.
    ///
    /// # Errors
    /// [`Error::NoQueuePair`], or as there.
    pub fn modify_timers(&self, qpn: u32, timers: &Timers) -> Result<(), Error> {
        self.queue_pair(qpn)?.modify_timers(self.control(), timers)
    }

    /// Counts per virtual path of a queue pair of this process from now on, instead of those of the one before: the card
    /// traces one. When its `vp_base` changes later, the trace keeps to the paths it began with.
    ///
    /// # Errors
    /// [`Error::NoQueuePair`], or a device error.
    pub fn trace_qp(&self, qpn: u32) -> Result<(), Error> {
        let base = self.parameters(qpn)?.multi_path.vp_base;
        let mut image = Image::new();
        image
            .set(trace_request::QPN, qpn)
            .set(trace_request::VP_BASE, base);
        self.0.control.command(Opcode::TraceQp, &image.0)
    }

    /// What has been counted per virtual path of queue pair `qpn` since [`trace_qp`](Self::trace_qp). It goes on
    /// meanwhile: rows of one answer may be a few packets apart.
    ///
    /// # Errors
    /// [`Error::NoQueuePair`], [`Error::NotTraced`], or a device error.
    pub fn read_trace(&self, qpn: u32) -> Result<Trace, Error> {
        let count = self.parameters(qpn)?.multi_path.vp_count as usize;
        let count = count.min(TRACED_VPS);
        let read = |group: usize| {
            let mut image = Image::new();
            image
                .set(trace_request::QPN, qpn)
                .set(trace_request::GROUP, group as u64);
            let answer = TraceAnswer::read(&self.0.control.query(Opcode::ReadTrace, &image.0)?);
            match answer.qpn {
                Some(traced) if traced == qpn => Ok(answer),
                traced => Err(Error::NotTraced { qpn, traced }),
            }
        };
        let mut paths = Vec::with_capacity(count);
        for group in 0..count.div_ceil(TRACE_GROUP) {
            let answer = read(group)?;
            for (i, counts) in answer.records.into_iter().enumerate() {
                let at = TRACE_GROUP * group + i;
                paths.push(VpRow {
                    vp: answer.vp_base.wrapping_add(at as u16),
                    counts,
                });
            }
        }
        paths.truncate(count);
        let [other, ..] = read(OTHER_GROUP)?.records;
        Ok(Trace { qpn, paths, other })
    }

    fn queue_pair(&self, qpn: u32) -> Result<Arc<QpShared>, Error> {
        lock(&self.0.live)
            .qps
            .get(&qpn)
            .and_then(Weak::upgrade)
            .ok_or(Error::NoQueuePair { qpn })
    }

    /// The queue pairs of this process, in order of their numbers.
    #[must_use]
    pub fn queue_pairs(&self) -> Vec<QpSummary> {
        let live: Vec<_> = lock(&self.0.live)
            .qps
            .values()
            .filter_map(Weak::upgrade)
            .collect();
        live.iter().map(|qp| qp.summary()).collect()
    }

    /// The events that the card has reported since the last call.
    ///
    /// # Errors
    /// [`Error::BadEntry`] when the card writes an event that the driver does not know.
    pub fn poll_events(&self) -> Result<Vec<AsyncEvent>, Error> {
        self.read_events()?;
        Ok(lock(&self.0.events).pending.drain(..).collect())
    }

    /// Waits for an event by interrupt, no longer than `timeout`.
    ///
    /// # Errors
    /// [`Error::Timeout`], or as [`poll_events`](Self::poll_events).
    pub fn wait_event(&self, timeout: Duration) -> Result<Vec<AsyncEvent>, Error> {
        let start = Instant::now();
        loop {
            let events = self.poll_events()?;
            if !events.is_empty() {
                return Ok(events);
            }
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(Error::Timeout {
                    what: "event",
                    after: timeout,
                });
            }
            self.device().wait_interrupt(event::VECTOR as usize, left)?;
        }
    }

    /// Reads new events and marks the objects that they name.
    pub(super) fn read_events(&self) -> Result<(), Error> {
        let mut events = lock(&self.0.events);
        let before = events.pending.len();
        while let Some(event) = events.next()? {
            warn!(?event, "the card reports");
            events.pending.push_back(event);
            let live = lock(&self.0.live);
            match event {
                AsyncEvent::QpFatal { qpn, .. } | AsyncEvent::QpAccess { qpn } => {
                    if let Some(qp) = live.qps.get(&qpn).and_then(Weak::upgrade) {
                        qp.set_failed();
                    }
                }
                AsyncEvent::CqError { cqn } => {
                    if let Some(cq) = live.cqs.get(&cqn).and_then(Weak::upgrade) {
                        cq.mark_dead();
                    }
                }
            }
        }
        if events.pending.len() != before {
            events.report(self.device())?;
        }
        Ok(())
    }

    pub(super) fn live(&self) -> MutexGuard<'_, Live> {
        lock(&self.0.live)
    }

    /// Counts up whenever a queue pair in ERROR may have receive requests to flush.
    pub(super) fn failures(&self) -> &Arc<AtomicU32> {
        &self.0.failures
    }

    pub(super) fn number(&self, kind: Kind) -> Result<Number, Error> {
        Numbers::take(&self.0.numbers[kind as usize])
    }

    /// The next generation of the key index `index`.
    pub(super) fn generation(&self, index: u32) -> u8 {
        let mut generations = lock(&self.0.generations);
        let generation = generations.entry(index).or_insert(0);
        *generation = generation.wrapping_add(1);
        *generation
    }

    /// The mapping of `memory` for this card, made when there is none yet.
    pub(super) fn map(&self, memory: &Arc<Memory>) -> Result<Arc<Mapping>, Error> {
        let mut mappings = lock(&self.0.mappings);
        mappings.retain(|_, mapping| mapping.strong_count() > 0);
        if let Some(mapping) = mappings.get(&memory.address()).and_then(Weak::upgrade) {
            return Ok(mapping);
        }
        let mapping = Arc::new(Mapping::new(
            self.0.control.device(),
            Arc::clone(memory),
            &self.0.iovas,
        )?);
        mappings.insert(memory.address(), Arc::downgrade(&mapping));
        Ok(mapping)
    }

    /// A ring of its own for an object of the card.
    pub(super) fn ring(&self, bytes: usize) -> Result<Mapping, Error> {
        let page = match self.0.ring_pages {
            page if bytes >= page.bytes() / 2 => page,
            _ => PageSize::Small,
        };
        let memory = near(self.0.control.device(), bytes, page)?;
        Mapping::new(self.0.control.device(), memory, &self.0.iovas)
    }

    /// Takes an object off the card when its owner is dropped. There is nobody to tell of a failure, and a device that
    /// is gone has forgotten the object anyway.
    pub(super) fn remove(&self, command: Opcode, image: &Image) {
        remove(&self.0.control, command, image);
    }
}

/// Memory on the device's NUMA node.
fn near(device: &Arc<dyn Device>, bytes: usize, page: PageSize) -> Result<Arc<Memory>, Error> {
    let memory = Memory::allocate_near(bytes, page, device.node())?;
    Ok(Arc::new(memory))
}

fn remove(control: &Control, command: Opcode, image: &Image) {
    if let Err(error) = control.command(command, &image.0) {
        debug!(?command, %error, "clean-up failed");
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let image = lock(&self.events).image();
        remove(&self.control, Opcode::DestroyEq, &image);
    }
}
