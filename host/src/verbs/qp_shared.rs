//! The part of a queue pair that is reached by its number: completions, events, operators.

use std::sync::Mutex;

use mprdma_spec::command::{qp_image, Opcode, QpState, MASK_MULTIPATH, MASK_SENDER};
use serde::{Deserialize, Serialize};

use super::attr::{state_name, Mode};
use super::context::lock;
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
    pub inner: Mutex<State>,
}

#[derive(Debug)]
pub(super) struct State {
    pub state: QpState,
    pub image: Image,
    pub sq: WorkQueue,
    pub rq: WorkQueue,
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
    pub fn set_state(&self, state: QpState) {
        lock(&self.inner).state = state;
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
