//! The part of a queue pair that is reached by its number: completions, events, operators.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use mprdma_spec::command::{qp_image, Opcode, QpState, MASK_MULTIPATH, MASK_SENDER, MASK_STATE};
use serde::{Deserialize, Serialize};

use super::attr::{state_name, Mode};
use super::context::{lock, Context};
use super::image::Image;
use super::parameters::{MultiPath, Parameters, Timers};
use super::work::WorkQueue;
use crate::control::Control;
use crate::error::Error;

/// The part of a queue pair that completions and events reach.
#[derive(Debug)]
pub(super) struct QpShared {
    pub qpn: u32,
    pub mode: Mode,
    /// [`Context::failures`].
    pub failures: Arc<AtomicU32>,
    pub inner: Mutex<State>,
}

#[derive(Debug)]
pub(super) struct State {
    pub state: QpState,
    pub image: Image,
    pub sq: WorkQueue,
    pub rq: WorkQueue,
    /// In ERROR: all completions that the card makes of receive requests were taken.
    pub received_all: bool,
}

/// What the driver knows of a queue pair without asking the card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QpSummary {
    /// Queue pair number.
    pub qpn: u32,
    /// State, as verbs prints it.
    pub state: String,
    /// Transport.
    pub mode: Mode,
    /// Path MTU in bytes.
    pub path_mtu: u32,
    /// Queue pair number of the peer.
    pub dest_qp_num: u32,
    /// Virtual paths.
    pub vp_count: u32,
    /// Send requests outstanding.
    pub sq_outstanding: usize,
    /// Receive requests outstanding.
    pub rq_outstanding: usize,
}

impl QpShared {
    /// The card has moved it to ERROR.
    pub fn set_failed(&self) {
        lock(&self.inner).state = QpState::Error;
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    pub fn is_failed(&self) -> bool {
        lock(&self.inner).state == QpState::Error
    }

    /// Tells the card to move it to ERROR.
    pub fn fail(&self, control: &Control) -> Result<(), Error> {
        let mut inner = lock(&self.inner);
        let states = [QpState::Init, QpState::Rtr, QpState::Rts, QpState::Error];
        self.expect(&inner, "a change to ERROR", &states)?;
        inner
            .image
            .set(qp_image::STATE, QpState::Error as u64)
            .set(qp_image::MASK, MASK_STATE);
        control.command(Opcode::ModifyQp, &inner.image.0)?;
        inner.state = QpState::Error;
        self.failures.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// In ERROR: up to `limit` receive requests that no message will take. Nothing while the card's own completions are
    /// on their way: its receiver half says which it makes.
    pub fn flush(&self, context: &Context, limit: usize) -> Result<Option<Vec<u64>>, Error> {
        let mut inner = lock(&self.inner);
        if inner.state != QpState::Error || inner.rq.outstanding() == 0 {
            return Ok(Some(vec![]));
        }
        if !inner.received_all {
            let status = context.query_qp(self.qpn)?;
            let next = status.rcv_wsn as u16;
            if status.rx_state != state_name(QpState::Error) || next != inner.rq.retired() {
                return Ok(None);
            }
            inner.received_all = true;
        }
        Ok(Some(inner.rq.flush(limit)))
    }

    pub fn retire(&self, received: bool, index: u16) -> Option<u64> {
        let mut inner = lock(&self.inner);
        if received {
            inner.rq.retire(index)
        } else {
            inner.sq.retire(index)
        }
    }

    pub fn summary(&self) -> QpSummary {
        let inner = lock(&self.inner);
        QpSummary {
            qpn: self.qpn,
            state: state_name(inner.state).to_owned(),
            mode: self.mode,
            path_mtu: 128 << inner.image.get(qp_image::MTU),
            dest_qp_num: inner.image.get(qp_image::DEST_QPN) as u32,
            vp_count: inner.image.get(qp_image::VP_COUNT) as u32,
            sq_outstanding: inner.sq.outstanding(),
            rq_outstanding: inner.rq.outstanding(),
        }
    }

    pub fn parameters(&self) -> Parameters {
        lock(&self.inner).image.parameters()
    }

    pub fn modify_paths(&self, control: &Control, paths: &MultiPath) -> Result<(), Error> {
        paths.check()?;
        let mut inner = lock(&self.inner);
        let states = [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts];
        self.expect(&inner, "a change of the multi-path parameters", &states)?;
        let mut image = inner.image.clone();
        image.set_paths(paths).set(qp_image::MASK, MASK_MULTIPATH);
        control.command(Opcode::ModifyQp, &image.0)?;
        inner.image = image;
        Ok(())
    }

    pub fn modify_timers(&self, control: &Control, timers: &Timers) -> Result<(), Error> {
        timers.check()?;
        let mut inner = lock(&self.inner);
        let states = [QpState::Reset, QpState::Init, QpState::Rtr];
        self.expect(&inner, "a change of timers and retry counts", &states)?;
        let mut image = inner.image.clone();
        image.set_timers(timers).set(qp_image::MASK, MASK_SENDER);
        control.command(Opcode::ModifyQp, &image.0)?;
        inner.image = image;
        Ok(())
    }

    pub fn expect(
        &self,
        inner: &State,
        what: &'static str,
        states: &[QpState],
    ) -> Result<(), Error> {
        if states.contains(&inner.state) {
            return Ok(());
        }
        Err(Error::WrongState {
            qpn: self.qpn,
            what,
            state: inner.state,
        })
    }
}
