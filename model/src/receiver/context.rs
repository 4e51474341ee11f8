//! The receiver half of a QP.

use super::window::Window;
use mprdma_spec::command::{self, qp_image};

/// Fields of `qp_image` that the receiver half takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverImage {
    /// Groups to take (MODIFY_QP).
    pub mask: u8,
    /// `QpState`.
    pub state: u8,
    /// IBA code of the path MTU.
    pub mtu: u8,
    /// SACK maps are wanted.
    pub hole_repair: bool,
    /// Protection domain.
    pub pd: u16,
    /// Partition key.
    pub pkey: u16,
    /// CQ of receive completions.
    pub rq_cqn: u16,
    /// Accesses that the peer may ask for.
    pub rights: u8,
    /// First PSN to expect.
    pub rq_psn: u32,
}

impl ReceiverImage {
    /// Reads the fields from a `qp_image`.
    #[must_use]
    pub fn from_bytes(image: &[u8]) -> Self {
        Self {
            mask: qp_image::MASK.get(image) as u8,
            state: qp_image::STATE.get(image) as u8,
            mtu: qp_image::MTU.get(image) as u8,
            hole_repair: qp_image::HOLE_REPAIR.get(image) != 0,
            pd: qp_image::PD.get(image) as u16,
            pkey: qp_image::PKEY.get(image) as u16,
            rq_cqn: qp_image::RQ_CQN.get(image) as u16,
            rights: qp_image::RIGHTS.get(image) as u8,
            rq_psn: qp_image::RQ_PSN.get(image) as u32,
        }
    }
}

/// Context of the receiver engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverContext {
    /// `QpState`.
    pub state: u8,
    /// IBA code of the path MTU.
    pub mtu: u8,
    /// SACK maps are wanted.
    pub hole_repair: bool,
    /// Protection domain.
    pub pd: u16,
    /// Partition key.
    pub pkey: u16,
    /// CQ of receive completions.
    pub rq_cqn: u16,
    /// Accesses that the peer may ask for.
    pub rights: u8,
    /// PSN that belongs to slot 0, 24 bits.
    pub rcv_nxt: u32,
    /// Messages completed, 24 bits.
    pub msn: u32,
    /// Receive WQEs posted, free-running.
    pub rq_producer: u16,
    /// Next receive WQE to complete, 24 bits.
    pub due_wsn: u32,
    /// Slots filled.
    pub received: u8,
    /// The reorder bitmap.
    pub window: Window,
}

impl ReceiverContext {
    pub(super) fn create(image: &ReceiverImage) -> Self {
        Self {
            state: image.state,
            mtu: image.mtu,
            hole_repair: image.hole_repair,
            pd: image.pd,
            pkey: image.pkey,
            rq_cqn: image.rq_cqn,
            rights: image.rights,
            rcv_nxt: image.rq_psn,
            ..Self::default()
        }
    }

    /// MODIFY_QP: takes the groups of the mask. The receiver group restarts the window; receive WQEs posted before stay
    /// posted (verbs posts them in INIT).
    pub(super) fn modify(&mut self, image: &ReceiverImage) {
        let takes = |group: u64| u64::from(image.mask) & group != 0;
        if takes(command::MASK_STATE) {
            self.state = image.state;
        }
        if takes(command::MASK_ADDRESS) {
            self.pkey = image.pkey;
        }
        if takes(command::MASK_MULTIPATH) {
            self.hole_repair = image.hole_repair;
        }
        if takes(command::MASK_RECEIVER) {
            self.rights = image.rights;
            self.rcv_nxt = image.rq_psn;
            self.msn = 0;
            self.due_wsn = 0;
            self.received = 0;
            self.window = Window::default();
        }
    }
}
