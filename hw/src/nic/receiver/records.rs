//! Context and stage records of the receiver engine.

use crate::prelude::*;
use crate::record;
use mprdma_spec::command::{qp_image, qp_status};

/// The receiver half of a QP, but for the two bit planes of its window, which lie in RAMs of their own.
/// `model::receiver::ReceiverContext` is the same in plain Rust.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct ReceiverState {
    /// `QpState`.
    pub state: Bits<4>,
    pub mtu: Bits<3>,
    pub hole_repair: bool,
    pub pd: Bits<16>,
    pub pkey: Bits<16>,
    pub rq_cqn: Bits<16>,
    pub rights: Bits<8>,
    pub rcv_nxt: Bits<24>,
    pub msn: Bits<24>,
    pub rq_producer: Bits<16>,
    pub due_wsn: Bits<24>,
    /// Slots filled.
    pub received: Bits<8>,
}

/// What stage A finds out about a packet: distances, still undecided.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct Distances {
    /// State and P_Key let the QP receive.
    pub receives: bool,
    pub ahead: Bits<24>,
    pub first_ahead: Bits<24>,
    pub posted: Bits<16>,
    pub wsn_ahead: Bits<24>,
    pub mtu_bytes: Bits<13>,
    pub is_middle: bool,
    pub is_last: bool,
    pub is_tail: bool,
    pub has_imm: bool,
    /// READ REQUEST or ATOMIC, READ RESPONSE or ATOMIC ACK; anything else is taken as a WRITE.
    pub is_request: bool,
    pub is_response: bool,
    /// Of these an ATOMIC or an ATOMIC ACK.
    pub is_atomic: bool,
    /// A request asks for as many packets as MPETH's offset counts, or fewer.
    pub countable: bool,
}

/// What stage B finds out: every condition of the rules as one bit.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct Conditions {
    pub receives: bool,
    pub at_front: bool,
    pub before: bool,
    pub beyond: bool,
    pub taken: bool,
    pub is_request: bool,
    pub is_response: bool,
    pub is_atomic: bool,
    pub form_good: bool,
    pub access_good: bool,
    pub sync_early: bool,
    /// No receive WQE for a completion, or no sender half for an answer.
    pub no_wqe: bool,
}

/// What stage C decides.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    pub no_qp: bool,
    pub ce: bool,
    pub duplicate: bool,
    pub out_of_window: bool,
    /// Answered with an error NAK; the QP goes to ERROR.
    pub fatal: bool,
    /// The form is wrong, not the access.
    pub malformed: bool,
    pub sync_nak: bool,
    pub rnr: bool,
    pub accept: bool,
    pub out_of_order: bool,
    /// Accepted, and a READ REQUEST or ATOMIC, or the last packet of a READ RESPONSE or an ATOMIC ACK.
    pub request: bool,
    pub read_tail: bool,
    /// Accepted, and of an ATOMIC.
    pub atomic: bool,
}

record! {
    /// The fields of `qp_image` that the receiver half takes.
    pub struct ReceiverFields {
        pub mask: Bits<8> = qp_image::MASK,
        pub state: Bits<4> = qp_image::STATE,
        pub mtu: Bits<3> = qp_image::MTU,
        pub hole_repair: bool = qp_image::HOLE_REPAIR,
        pub pd: Bits<16> = qp_image::PD,
        pub pkey: Bits<16> = qp_image::PKEY,
        pub rq_cqn: Bits<16> = qp_image::RQ_CQN,
        pub rights: Bits<8> = qp_image::RIGHTS,
        pub rq_psn: Bits<24> = qp_image::RQ_PSN,
    }
}

record! {
    /// The receiver half of `qp_status`.
    pub struct ReceiverStatus {
        pub state: Bits<4> = qp_status::RX_STATE,
        pub rcv_nxt: Bits<24> = qp_status::RCV_NXT,
        pub msn: Bits<24> = qp_status::MSN,
        pub received: Bits<8> = qp_status::RECEIVED,
        pub rcv_wsn: Bits<24> = qp_status::RCV_WSN,
        pub rq_producer: Bits<16> = qp_status::RQ_PRODUCER,
    }
}
