//! The host's end of one card: shared between the thread that steps the card and the threads that serve its driver.

use super::iommu::{AccessError, Iommu};
use crate::time::Ps;
use serde::Serialize;
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What a driver asks of the card.
pub enum MmioRequest {
    /// Read a 32-bit register; the answer goes to the sender.
    Read {
        /// Byte offset in BAR0.
        offset: u32,
        /// Where the value goes.
        reply: SyncSender<u32>,
    },
    /// Write a 32-bit register (posted).
    Write {
        /// Byte offset in BAR0.
        offset: u32,
        /// The value.
        value: u32,
    },
    /// Reset the card; the answer comes when reset is released.
    Reset {
        /// Told when done.
        reply: SyncSender<u32>,
    },
}

/// Receives the card's interrupts.
pub trait InterruptSink: Send {
    /// MSI-X vector `vector` fired.
    fn raise(&mut self, vector: u8);
}

/// Sees what the card writes into memory, in the order in which it becomes visible.
pub trait WriteSink: Send {
    /// `bytes` are at bus address `iova` now.
    fn written(&mut self, at: Ps, iova: u64, bytes: &[u8]);
}

/// An access that the IOMMU refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// When, ps.
    pub at: u64,
    /// What.
    pub message: String,
}

/// Kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// The card waits for data.
    Read,
    /// Posted: the card waits for nothing.
    Write,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Access::Read => "read",
            Access::Write => "write",
        })
    }
}

/// Faults kept for reports.
const FAULTS_KEPT: usize = 16;

/// The host's end of one card.
#[derive(Default)]
pub struct HostSide {
    iommu: Mutex<Iommu>,
    interrupts: Mutex<Option<Box<dyn InterruptSink>>>,
    writes: Mutex<Option<Box<dyn WriteSink>>>,
    requests: Mutex<VecDeque<MmioRequest>>,
    waiting: AtomicUsize,
    faults: Mutex<VecDeque<Fault>>,
    master_abort: AtomicBool,
    wake: Wake,
}

/// Rings when a request arrives, so that an idle simulation can sleep.
#[derive(Clone, Default)]
pub struct Wake(std::sync::Arc<(Mutex<u64>, Condvar)>);

impl Wake {
    /// Wakes whoever sleeps.
    pub fn ring(&self) {
        *lock(&self.0 .0) += 1;
        self.0 .1.notify_all();
    }

    /// Number of rings so far.
    pub fn count(&self) -> u64 {
        *lock(&self.0 .0)
    }

    /// Sleeps until there have been more than `seen` rings.
    pub fn wait(&self, seen: u64) {
        let mut count = lock(&self.0 .0);
        while *count == seen {
            count = self
                .0
                 .1
                .wait(count)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// As [`wait`](Wake::wait), but no longer than `timeout` of wall time.
    pub fn wait_at_most(&self, seen: u64, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        let mut count = lock(&self.0 .0);
        while *count == seen {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            count = self
                .0
                 .1
                .wait_timeout(count, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

impl HostSide {
    /// One that rings `wake` on every request.
    pub fn new(wake: Wake) -> HostSide {
        HostSide {
            wake,
            ..HostSide::default()
        }
    }

    /// The mappings.
    pub fn iommu(&self) -> MutexGuard<'_, Iommu> {
        lock(&self.iommu)
    }

    /// Says who gets the interrupts.
    pub fn set_interrupts(&self, sink: Option<Box<dyn InterruptSink>>) {
        *lock(&self.interrupts) = sink;
    }

    /// Says who sees the card's writes.
    pub fn set_writes(&self, sink: Option<Box<dyn WriteSink>>) {
        *lock(&self.writes) = sink;
    }

    /// Queues a request for the card.
    pub fn request(&self, request: MmioRequest) {
        lock(&self.requests).push_back(request);
        self.waiting.fetch_add(1, Ordering::Release);
        self.wake.ring();
    }

    /// Requests that the card has not taken.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// The card takes the next request. Costs one atomic load when there is none.
    pub fn take(&self) -> Option<MmioRequest> {
        if self.waiting() == 0 {
            return None;
        }
        let request = lock(&self.requests).pop_front()?;
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        Some(request)
    }

    /// Faults seen lately.
    pub fn faults(&self) -> Vec<Fault> {
        lock(&self.faults).iter().cloned().collect()
    }

    /// Whether the host has refused a read since the last call: its answer was a completion with the status unsupported
    /// request. Writes have no answer.
    pub fn take_master_abort(&self) -> bool {
        self.master_abort.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn raise(&self, vector: u8) {
        if let Some(sink) = lock(&self.interrupts).as_mut() {
            sink.raise(vector);
        }
    }

    pub(crate) fn written(&self, at: Ps, iova: u64, bytes: &[u8]) {
        if let Some(sink) = lock(&self.writes).as_mut() {
            sink.written(at, iova, bytes);
        }
    }

    /// The card's access is refused.
    pub(crate) fn fault(&self, at: u64, error: AccessError, access: Access) {
        if access == Access::Read {
            self.master_abort.store(true, Ordering::Release);
        }
        let message = format!("{access}: {error}");
        tracing::warn!(at_ps = at, "DMA fault: {message}");
        let mut faults = lock(&self.faults);
        if faults.len() == FAULTS_KEPT {
            faults.pop_front();
        }
        faults.push_back(Fault { at, message });
    }
}

/// Locks, also after a panic elsewhere: the data are plain and stay whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
