//! Queue pairs.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use mprdma_spec::command::{
    qp_image, Opcode, QpState, MASK_ADDRESS, MASK_MULTIPATH, MASK_RECEIVER, MASK_SENDER, MASK_STATE,
};
use mprdma_spec::csr;
use mprdma_spec::descriptor::{
    rq_wqe, sq_wqe, WrOpcode, WQE_FENCE, WQE_SIGNALED, WQE_SOLICITED, WQE_SYNC,
};
use mprdma_spec::params::{max_read, MAX_MESSAGE};

use super::attr::{InitAttr, QpInitAttr, QpStatus, RecvWr, RtrAttr, RtsAttr, SendWr};
use super::context::{lock, Context, Kind};
use super::cq::{ring_log2, Cq};
use super::image::Image;
use super::mr::{Mapping, Pd};
use super::numbers::Number;
use super::parameters::{MultiPath, Parameters, Timers};
use super::qp_shared::{QpShared, QpSummary, State};
use super::telemetry::QpStats;
use super::work::WorkQueue;
use crate::error::Error;
use crate::memory::before_doorbell;

/// Bytes of an ATOMIC.
const ATOMIC_BYTES: u64 = mprdma_spec::params::ATOMIC_BYTES as u64;

/// A queue pair. Destroyed when dropped.
#[derive(Debug)]
pub struct Qp {
    shared: Arc<QpShared>,
    pd: Pd,
    send_cq: Cq,
    recv_cq: Cq,
    rings: Mapping,
    rq_offset: usize,
    number: Number,
}

impl Pd {
    /// A queue pair in state RESET.
    ///
    /// # Errors
    /// [`Error::Parameter`], [`Error::Exhausted`], [`Error::OtherDevice`], or the card's or device's refusal.
    pub fn create_qp(&self, attr: &QpInitAttr<'_>) -> Result<Qp, Error> {
        let context = self.context();
        for cq in [attr.send_cq, attr.recv_cq] {
            if !Arc::ptr_eq(&cq.0.context.0, &context.0) {
                return Err(Error::OtherDevice {
                    what: "the completion queue",
                });
            }
        }
        let sq_log2 = ring_log2("max_send_wr", attr.max_send_wr, "entries of the send queue")?;
        let rq_log2 = ring_log2(
            "max_recv_wr",
            attr.max_recv_wr,
            "entries of the receive queue",
        )?;
        let number = context.number(Kind::Qp)?;
        let rq_offset = sq_wqe::BYTES << sq_log2;
        let rings = context.ring(rq_offset + (rq_wqe::BYTES << rq_log2))?;
        let mut image = Image::new();
        image
            .set(qp_image::QPN, number.get())
            .set(qp_image::STATE, QpState::Init as u64)
            .set(qp_image::MODE, attr.mode.code())
            .set(qp_image::MTU, attr.path_mtu.code())
            .set(qp_image::PD, self.number())
            .set(qp_image::HOP_LIMIT, 64u64)
            .set(qp_image::SQ_BASE, rings.iova())
            .set(qp_image::SQ_LOG2, sq_log2)
            .set(qp_image::SQ_CQN, attr.send_cq.number())
            .set(qp_image::RQ_BASE, rings.iova() + rq_offset as u64)
            .set(qp_image::RQ_LOG2, rq_log2)
            .set(qp_image::RQ_CQN, attr.recv_cq.number())
            .set_sender(&RtsAttr::new(0));
        context.control().command(Opcode::CreateQp, &image.0)?;
        let qpn = number.get();
        let shared = Arc::new(QpShared {
            qpn,
            mode: attr.mode,
            failures: Arc::clone(context.failures()),
            inner: Mutex::new(State {
                state: QpState::Reset,
                image,
                sq: WorkQueue::new(sq_log2),
                rq: WorkQueue::new(rq_log2),
                received_all: false,
            }),
        });
        context.live().qps.insert(qpn, Arc::downgrade(&shared));
        attr.send_cq.0.shared.attach(qpn, &shared, false);
        attr.recv_cq.0.shared.attach(qpn, &shared, true);
        let (send_cq, recv_cq) = (attr.send_cq.clone(), attr.recv_cq.clone());
        Ok(Qp {
            shared,
            pd: self.clone(),
            send_cq,
            recv_cq,
            rings,
            rq_offset,
            number,
        })
    }
}

impl Qp {
    /// Queue pair number.
    #[must_use]
    pub fn qp_num(&self) -> u32 {
        self.number.get()
    }

    /// State, as far as the driver has heard: a queue pair that the card moved to ERROR shows so once its completion or
    /// event has been polled.
    #[must_use]
    pub fn state(&self) -> QpState {
        lock(&self.shared.inner).state
    }

    /// What the driver knows of it.
    #[must_use]
    pub fn summary(&self) -> QpSummary {
        self.shared.summary()
    }

    /// The domain it belongs to.
    #[must_use]
    pub const fn pd(&self) -> &Pd {
        &self.pd
    }

    fn context(&self) -> &Context {
        self.pd.context()
    }

    /// Asks the card for its state.
    ///
    /// # Errors
    /// A device error.
    pub fn query(&self) -> Result<QpStatus, Error> {
        self.context().query_qp(self.qp_num())
    }

    /// Asks the card what it has counted since it was created.
    ///
    /// # Errors
    /// A device error.
    pub fn query_stats(&self) -> Result<QpStats, Error> {
        self.context().query_qp_stats(self.qp_num())
    }

    /// What it is set to.
    #[must_use]
    pub fn parameters(&self) -> Parameters {
        self.shared.parameters()
    }

    /// Changes the multi-path parameters, while it sends too. [`modify_to_rts`](Self::modify_to_rts) sets them anew.
    ///
    /// # Errors
    /// [`Error::Parameter`], [`Error::WrongState`] in ERROR, or the card's refusal.
    pub fn modify_paths(&self, paths: &MultiPath) -> Result<(), Error> {
        self.shared.modify_paths(self.context().control(), paths)
    }

    /// Changes timers and retry counts of a queue pair that does not send yet: the card takes them with the restart of
    /// the sender half. [`modify_to_rts`](Self::modify_to_rts) sets them anew.
    ///
    /// # Errors
    /// [`Error::Parameter`], [`Error::WrongState`] from RTS on, or the card's refusal.
    pub fn modify_timers(&self, timers: &Timers) -> Result<(), Error> {
        self.shared.modify_timers(self.context().control(), timers)
    }

    /// RESET to INIT.
    ///
    /// # Errors
    /// [`Error::WrongState`].
    pub fn modify_to_init(&self, attr: &InitAttr) -> Result<(), Error> {
        let mut inner = lock(&self.shared.inner);
        self.shared
            .expect(&inner, "a change to INIT", &[QpState::Reset, QpState::Init])?;
        // The card takes these with the receiver half, when the queue pair starts to receive.
        inner
            .image
            .set(qp_image::RIGHTS, attr.qp_access_flags.bits())
            .set(qp_image::PKEY, attr.pkey);
        inner.state = QpState::Init;
        Ok(())
    }

    /// INIT to RTR.
    ///
    /// # Errors
    /// [`Error::WrongState`], [`Error::Parameter`], or the card's refusal.
    pub fn modify_to_rtr(&self, attr: &RtrAttr) -> Result<(), Error> {
        attr.check()?;
        let mut inner = lock(&self.shared.inner);
        self.shared
            .expect(&inner, "a change to RTR", &[QpState::Init])?;
        let mut image = inner.image.clone();
        image
            .set_address(&attr.ah_attr)
            .set(qp_image::DEST_QPN, attr.dest_qp_num)
            .set(qp_image::RQ_PSN, attr.rq_psn)
            .set(qp_image::MTU, attr.path_mtu.code())
            .set(qp_image::STATE, QpState::Rtr as u64)
            .set(qp_image::MASK, MASK_STATE | MASK_ADDRESS | MASK_RECEIVER);
        let control = self.context().control();
        if image.get(qp_image::MTU) == inner.image.get(qp_image::MTU) {
            control.command(Opcode::ModifyQp, &image.0)?;
        } else {
            // No group of MODIFY_QP holds the MTU: what has not received or sent yet can be built again.
            control.command(Opcode::DestroyQp, &inner.image.0)?;
            control.command(Opcode::CreateQp, &image.0)?;
        }
        inner.image = image;
        inner.state = QpState::Rtr;
        // What was posted in INIT.
        if inner.rq.producer() != 0 {
            self.doorbell(csr::DB_RQ, inner.rq.producer())?;
        }
        Ok(())
    }

    /// RTR to RTS.
    ///
    /// # Errors
    /// [`Error::WrongState`], [`Error::Parameter`], or the card's refusal.
    pub fn modify_to_rts(&self, attr: &RtsAttr) -> Result<(), Error> {
        attr.check()?;
        let mut inner = lock(&self.shared.inner);
        self.shared
            .expect(&inner, "a change to RTS", &[QpState::Rtr])?;
        let mut image = inner.image.clone();
        image
            .set_sender(attr)
            .set(qp_image::STATE, QpState::Rts as u64)
            .set(qp_image::MASK, MASK_STATE | MASK_SENDER | MASK_MULTIPATH);
        self.context()
            .control()
            .command(Opcode::ModifyQp, &image.0)?;
        inner.image = image;
        inner.state = QpState::Rts;
        Ok(())
    }

    /// Any state but RESET to ERROR: outstanding requests complete with
    /// [`WorkRequestFlushed`](mprdma_spec::status::WcStatus::WorkRequestFlushed), those of the send queue by the card,
    /// those of the receive queue by the driver when the completion queue is polled.
    ///
    /// # Errors
    /// [`Error::WrongState`] or the card's refusal.
    pub fn modify_to_error(&self) -> Result<(), Error> {
        self.shared.fail(self.context().control())
    }

    /// Any state to RESET: everything posted is forgotten, without completions.
    ///
    /// # Errors
    /// The card's refusal.
    pub fn modify_to_reset(&self) -> Result<(), Error> {
        let mut inner = lock(&self.shared.inner);
        let control = self.context().control();
        control.command(Opcode::DestroyQp, &inner.image.0)?;
        inner.state = QpState::Reset;
        inner.sq.clear();
        inner.rq.clear();
        inner.received_all = false;
        inner
            .image
            .set(qp_image::STATE, QpState::Init as u64)
            .set(qp_image::MASK, 0u64);
        control.command(Opcode::CreateQp, &inner.image.0)
    }

    /// Posts a list of send requests, in order, and tells the card once.
    ///
    /// # Errors
    /// [`Error::WrongState`], [`Error::MessageTooLong`], and of ATOMICs [`Error::AtomicLength`], [`Error::AtomicAddress`] and
    /// [`Error::NoAtomics`] post nothing; [`Error::QueueFull`] posts the first ones and says how many.
    pub fn post_send(&self, requests: &[SendWr]) -> Result<(), Error> {
        let mut inner = lock(&self.shared.inner);
        self.shared
            .expect(&inner, "post_send", &[QpState::Rts, QpState::Error])?;
        let mtu = inner.image.get(qp_image::MTU) as u8;
        for request in requests {
            self.check_send(request, mtu)?;
        }
        let mut posted = 0;
        for request in requests {
            let Some(slot) = inner.sq.push(request.wr_id) else {
                break;
            };
            self.rings
                .memory()
                .write(slot * sq_wqe::BYTES, &send_entry(request))?;
            posted += 1;
        }
        if posted > 0 {
            self.doorbell(csr::DB_SQ, inner.sq.producer())?;
        }
        self.all_posted("send", inner.sq.capacity(), posted, requests.len())
    }

    /// Whether the card could do this at all.
    fn check_send(&self, request: &SendWr, mtu: u8) -> Result<(), Error> {
        let (bytes, addr) = (request.length, request.remote_addr);
        if request.opcode.is_atomic() {
            self.context().capabilities().expect_atomics()?;
            if bytes != ATOMIC_BYTES {
                return Err(Error::AtomicLength { bytes });
            }
            if addr % ATOMIC_BYTES != 0 {
                return Err(Error::AtomicAddress { addr });
            }
            return Ok(());
        }
        let max = match request.opcode {
            WrOpcode::RdmaRead => max_read(mtu).unwrap_or(MAX_MESSAGE),
            _ => MAX_MESSAGE,
        };
        if bytes > max {
            return Err(Error::MessageTooLong { bytes, max });
        }
        Ok(())
    }

    /// Posts a list of receive requests, in order, and tells the card once.
    ///
    /// # Errors
    /// As [`post_send`](Self::post_send).
    pub fn post_recv(&self, requests: &[RecvWr]) -> Result<(), Error> {
        let mut inner = lock(&self.shared.inner);
        self.shared.expect(
            &inner,
            "post_recv",
            &[QpState::Init, QpState::Rtr, QpState::Rts, QpState::Error],
        )?;
        let mut posted = 0;
        for request in requests {
            let Some(slot) = inner.rq.push(request.wr_id) else {
                break;
            };
            let mut entry = [0; rq_wqe::BYTES];
            rq_wqe::ADDR.set(&mut entry, request.addr);
            rq_wqe::LENGTH.set(&mut entry, request.length.into());
            rq_wqe::LKEY.set(&mut entry, request.lkey.into());
            self.rings
                .memory()
                .write(self.rq_offset + slot * rq_wqe::BYTES, &entry)?;
            posted += 1;
        }
        if inner.state == QpState::Error {
            self.shared.failures.fetch_add(1, Ordering::Relaxed);
        }
        if posted > 0 && inner.state != QpState::Init {
            self.doorbell(csr::DB_RQ, inner.rq.producer())?;
        }
        self.all_posted("receive", inner.rq.capacity(), posted, requests.len())
    }

    /// Send requests that have not completed yet, unsignaled ones included.
    #[must_use]
    pub fn send_outstanding(&self) -> usize {
        lock(&self.shared.inner).sq.outstanding()
    }

    /// Entries of the send queue.
    #[must_use]
    pub fn send_capacity(&self) -> usize {
        lock(&self.shared.inner).sq.capacity()
    }

    fn all_posted(
        &self,
        queue: &'static str,
        capacity: usize,
        posted: usize,
        asked: usize,
    ) -> Result<(), Error> {
        if posted < asked {
            return Err(Error::QueueFull {
                qpn: self.qp_num(),
                queue,
                capacity,
                posted,
            });
        }
        Ok(())
    }

    fn doorbell(&self, register: u32, producer: u16) -> Result<(), Error> {
        before_doorbell();
        let page = csr::QP_DOORBELLS + csr::DOORBELL_PAGE * self.qp_num();
        Ok(self
            .context()
            .device()
            .write32(page + register, producer.into())?)
    }
}

fn send_entry(request: &SendWr) -> [u8; sq_wqe::BYTES] {
    let mut entry = [0; sq_wqe::BYTES];
    let flag = |on: bool, bit: u64| if on { bit } else { 0 };
    let flags = flag(request.flags.signaled, WQE_SIGNALED)
        | flag(request.flags.fence, WQE_FENCE)
        | flag(request.flags.solicited, WQE_SOLICITED)
        | flag(request.flags.sync, WQE_SYNC);
    sq_wqe::OPCODE.set(&mut entry, request.opcode as u64);
    sq_wqe::FLAGS.set(&mut entry, flags);
    if request.opcode == WrOpcode::RdmaWriteWithImm {
        sq_wqe::IMM.set(&mut entry, request.imm.swap_bytes().into());
    }
    sq_wqe::RADDR.set(&mut entry, request.remote_addr);
    sq_wqe::RKEY.set(&mut entry, request.rkey.into());
    sq_wqe::LENGTH.set(&mut entry, request.length);
    sq_wqe::LADDR.set(&mut entry, request.addr);
    sq_wqe::LKEY.set(&mut entry, request.lkey.into());
    // AtomicETH has one field for what is swapped in or added (IBA 9.3.4); verbs pairs what is compared or added.
    match request.opcode {
        WrOpcode::AtomicCmpAndSwp => {
            sq_wqe::SWAP_ADD.set(&mut entry, request.swap);
            sq_wqe::COMPARE.set(&mut entry, request.compare_add);
        }
        WrOpcode::AtomicFetchAndAdd => sq_wqe::SWAP_ADD.set(&mut entry, request.compare_add),
        _ => {}
    }
    entry
}

impl Drop for Qp {
    fn drop(&mut self) {
        let qpn = self.qp_num();
        let image = lock(&self.shared.inner).image.clone();
        self.context().remove(Opcode::DestroyQp, &image);
        self.context().live().qps.remove(&qpn);
        self.send_cq.0.shared.detach(qpn);
        self.recv_cq.0.shared.detach(qpn);
    }
}
