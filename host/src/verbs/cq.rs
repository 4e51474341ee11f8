//! Completion queues.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use mprdma_spec::command::{cq_image, Opcode};
use mprdma_spec::csr;
use mprdma_spec::descriptor::{cqe, WcOpcode, CQE_WITH_IMM};
use mprdma_spec::status::WcStatus;
use tracing::debug;

use super::attr::{range, Wc};
use super::context::{lock, Context, Kind};
use super::image::Image;
use super::mr::Mapping;
use super::numbers::Number;
use super::qp_shared::QpShared;
use crate::control::Control;
use crate::error::Error;

/// Vectors are shared by queues, so a raise may be another queue's: a waiter looks again after this long.
const WAIT_SLICE: Duration = Duration::from_millis(50);

/// A completion queue. Clones are the same queue; it leaves the card when the last clone and the last queue pair that
/// uses it are gone.
#[derive(Clone, Debug)]
pub struct Cq(pub(super) Arc<CqInner>);

#[derive(Debug)]
pub(super) struct CqInner {
    pub shared: Arc<CqShared>,
    pub context: Context,
    image: Image,
    number: Number,
    vector: usize,
}

/// The part of a queue that events reach.
#[derive(Debug)]
pub(super) struct CqShared {
    ring: Mapping,
    log2: u32,
    dead: AtomicBool,
    position: Mutex<Position>,
}

#[derive(Debug, Default)]
struct Position {
    /// Next entry to read, free-running.
    consumer: u16,
    /// What the card was last told.
    reported: u16,
    /// Queue pairs that complete here.
    qps: HashMap<u32, Attached>,
    /// What [`Context::failures`] was when nothing was left to flush.
    settled: u32,
}

/// A queue pair that completes here.
#[derive(Debug)]
struct Attached {
    qp: Weak<QpShared>,
    /// Its receive requests too.
    receives: bool,
}

impl Context {
    /// A completion queue of at least `entries` entries, 1 to 32768.
    ///
    /// # Errors
    /// [`Error::Parameter`], [`Error::Exhausted`], or the card's or device's refusal.
    pub fn create_cq(&self, entries: usize) -> Result<Cq, Error> {
        let log2 = ring_log2("cqe", entries, "entries of a completion queue")?;
        let number = self.number(Kind::Cq)?;
        let ring = self.ring(cqe::BYTES << log2)?;
        // Vector 0 is the event queue's if there are others.
        let others = self.device().identity().vectors.saturating_sub(1);
        let vector = if others == 0 {
            0
        } else {
            1 + number.get() as usize % others
        };
        let mut image = Image::new();
        image
            .set(cq_image::CQN, number.get())
            .set(cq_image::LOG2, log2)
            .set(cq_image::VECTOR, vector as u64)
            .set(cq_image::BASE, ring.iova());
        self.control().command(Opcode::CreateCq, &image.0)?;
        let shared = Arc::new(CqShared {
            ring,
            log2,
            dead: AtomicBool::new(false),
            position: Mutex::default(),
        });
        self.live()
            .cqs
            .insert(number.get(), Arc::downgrade(&shared));
        Ok(Cq(Arc::new(CqInner {
            shared,
            context: self.clone(),
            image,
            number,
            vector,
        })))
    }
}

/// log2 of a ring with room for `entries` entries.
pub(super) fn ring_log2(
    name: &'static str,
    entries: usize,
    doc: &'static str,
) -> Result<u32, Error> {
    range(name, entries as u64, 1, 1 << 15, doc)?;
    Ok(entries.max(2).next_power_of_two().trailing_zeros())
}

impl CqShared {
    pub fn mark_dead(&self) {
        self.dead.store(true, Ordering::Relaxed);
    }

    /// The last call for a queue pair counts.
    pub fn attach(&self, qpn: u32, qp: &Arc<QpShared>, receives: bool) {
        let qp = Arc::downgrade(qp);
        let attached = Attached { qp, receives };
        lock(&self.position).qps.insert(qpn, attached);
    }

    pub fn detach(&self, qpn: u32) {
        lock(&self.position).qps.remove(&qpn);
    }

    const fn capacity(&self) -> u16 {
        1 << self.log2
    }

    /// The entry at the consumer index, if the card has written it.
    fn entry(&self, consumer: u16) -> Result<Option<[u8; cqe::BYTES]>, Error> {
        let offset = usize::from(consumer & (self.capacity() - 1)) * cqe::BYTES;
        let phase = u32::from(consumer >> self.log2 & 1 == 0);
        let last = self.ring.memory().load_acquire(offset + cqe::BYTES - 4)?;
        if last >> 31 != phase {
            return Ok(None);
        }
        let mut entry = [0; cqe::BYTES];
        self.ring.memory().read(offset, &mut entry)?;
        Ok(Some(entry))
    }
}

impl Cq {
    /// Its number on the card.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.0.number.get()
    }

    /// The MSI-X vector that its completions raise.
    #[must_use]
    pub fn vector(&self) -> usize {
        self.0.vector
    }

    /// Entries of the ring.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.shared.capacity().into()
    }

    /// Takes up to `limit` completions, in the order in which the card wrote them; none is no error. Receive requests of
    /// a queue pair in ERROR follow when the card's completions are all taken.
    ///
    /// # Errors
    /// [`Error::UnpostedReceive`], once per queue pair, when a peer breaks the protocol; [`Error::CqOverflow`] once the card has dropped a completion and all earlier ones were taken,
    /// [`Error::BadEntry`] when the card writes nonsense, or a device error.
    pub fn poll(&self, limit: usize) -> Result<Vec<Wc>, Error> {
        let shared = &self.0.shared;
        let mut completions = Vec::new();
        let mut position = lock(&shared.position);
        while completions.len() < limit {
            let Some(entry) = shared.entry(position.consumer)? else {
                break;
            };
            match position.complete(&entry) {
                Ok(completion) => completions.extend(completion),
                Err(error) if completions.is_empty() => {
                    position.consumer = position.consumer.wrapping_add(1);
                    position.blame(&error, self.0.context.control())?;
                    return Err(error);
                }
                // What was taken before is handed over first.
                Err(_) => break,
            }
            position.consumer = position.consumer.wrapping_add(1);
        }
        // Told in quarters of the ring: a doorbell per look would cost more than the look.
        if position.consumer.wrapping_sub(position.reported) >= (shared.capacity() / 4).max(1) {
            self.doorbell(csr::DB_CQ_CONSUMER, &mut position)?;
        }
        drop(position);
        if completions.is_empty() {
            self.0.context.read_events()?;
            if shared.dead.load(Ordering::Relaxed) {
                return Err(Error::CqOverflow { cqn: self.number() });
            }
            completions = self.flush(limit)?;
        }
        Ok(completions)
    }

    /// Completions of receive requests that no message will take any more.
    fn flush(&self, limit: usize) -> Result<Vec<Wc>, Error> {
        let context = &self.0.context;
        let failures = context.failures().load(Ordering::Relaxed);
        let mut position = lock(&self.0.shared.position);
        if position.settled == failures {
            return Ok(vec![]);
        }
        let mut completions = vec![];
        let mut settled = true;
        for (&qp_num, attached) in position
            .qps
            .iter()
            .filter(|(_, attached)| attached.receives)
        {
            let Some(qp) = attached.qp.upgrade() else {
                continue;
            };
            let room = limit - completions.len();
            let Some(requests) = qp.flush(context, room)? else {
                settled = false;
                continue;
            };
            settled &= requests.len() < room;
            completions.extend(requests.into_iter().map(|wr_id| Wc {
                wr_id,
                status: WcStatus::WorkRequestFlushed,
                opcode: Some(WcOpcode::RecvRdmaWithImm),
                byte_len: 0,
                imm: None,
                qp_num,
                timestamp: 0,
            }));
        }
        if settled {
            position.settled = failures;
        }
        Ok(completions)
    }

    /// Asks for one interrupt, when a completion comes that has not been polled yet (`ibv_req_notify_cq`). One that is
    /// there already raises it at once, so nothing is missed between the last poll and this.
    ///
    /// # Errors
    /// A device error.
    pub fn arm(&self) -> Result<(), Error> {
        self.doorbell(csr::DB_CQ_ARM, &mut lock(&self.0.shared.position))
    }

    /// Takes up to `limit` completions; while there is none the thread sleeps until the queue's interrupt, no longer than
    /// `timeout` (`ibv_get_cq_event`).
    ///
    /// # Errors
    /// [`Error::Timeout`], or as [`poll`](Self::poll).
    pub fn wait(&self, limit: usize, timeout: Duration) -> Result<Vec<Wc>, Error> {
        let start = Instant::now();
        loop {
            let completions = self.poll(limit)?;
            if !completions.is_empty() {
                return Ok(completions);
            }
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(Error::Timeout {
                    what: "completion",
                    after: timeout,
                });
            }
            self.arm()?;
            self.0
                .context
                .device()
                .wait_interrupt(self.0.vector, left.min(WAIT_SLICE))?;
        }
    }

    fn doorbell(&self, register: u32, position: &mut Position) -> Result<(), Error> {
        let page = csr::CQ_DOORBELLS + csr::DOORBELL_PAGE * self.number();
        self.0
            .context
            .device()
            .write32(page + register, position.consumer.into())?;
        position.reported = position.consumer;
        Ok(())
    }
}

impl Position {
    /// A peer that makes completions of what was not posted goes on with nobody.
    fn blame(&self, error: &Error, control: &Control) -> Result<(), Error> {
        let Error::UnpostedReceive { qpn, .. } = error else {
            return Ok(());
        };
        match self.qps.get(qpn).and_then(|attached| attached.qp.upgrade()) {
            Some(qp) => qp.fail(control),
            None => Ok(()),
        }
    }

    /// Turns an entry into a completion; nothing for a queue pair that is gone.
    fn complete(&self, entry: &[u8; cqe::BYTES]) -> Result<Option<Wc>, Error> {
        let qpn = cqe::QPN.get(entry) as u32;
        let index = cqe::WQE_INDEX.get(entry) as u16;
        let Some(qp) = self
            .qps
            .get(&qpn)
            .and_then(|attached| attached.qp.upgrade())
        else {
            debug!(qpn, index, "completion of a queue pair that is gone");
            return Ok(None);
        };
        let bad = |what: String| Error::BadEntry {
            queue: "completion",
            what,
        };
        let status_code = cqe::STATUS.get(entry) as u8;
        let status = WcStatus::from_code(status_code)
            .ok_or_else(|| bad(format!("unknown status {status_code}")))?;
        let code = cqe::OPCODE.get(entry);
        let opcode = [
            WcOpcode::RdmaWrite,
            WcOpcode::RdmaRead,
            WcOpcode::CompSwap,
            WcOpcode::FetchAdd,
            WcOpcode::RecvRdmaWithImm,
        ]
        .into_iter()
        .find(|op| *op as u64 == code);
        if opcode.is_none() && status == WcStatus::Success {
            return Err(bad(format!("unknown operation {code:#x}")));
        }
        // Bit 7 tells completions of the receive queue, as in verbs.
        let received = code & 0x80 != 0;
        let wr_id = match qp.retire(received, index) {
            Some(wr_id) => wr_id,
            None if received && qp.is_failed() => {
                debug!(
                    qpn,
                    index, "completion of a receive request that is not posted"
                );
                return Ok(None);
            }
            None if received => return Err(Error::UnpostedReceive { qpn, index }),
            None => {
                return Err(bad(format!(
                    "QP {qpn} has no send request {index} outstanding"
                )))
            }
        };
        if status != WcStatus::Success {
            qp.set_failed();
        }
        let with_imm = cqe::FLAGS.get(entry) & CQE_WITH_IMM != 0;
        Ok(Some(Wc {
            wr_id,
            status,
            opcode,
            byte_len: cqe::BYTE_LEN.get(entry) as u32,
            imm: with_imm.then(|| (cqe::IMM.get(entry) as u32).swap_bytes()),
            qp_num: qpn,
            timestamp: cqe::TIMESTAMP.get(entry) as u32,
        }))
    }
}

impl Drop for CqInner {
    fn drop(&mut self) {
        self.context.live().cqs.remove(&self.number.get());
        self.context.remove(Opcode::DestroyCq, &self.image);
    }
}
