//! The records of `spec` that several blocks take apart or put together.

use crate::prelude::*;
use crate::record;
use mprdma_spec::command::{cq_image, eq_image, mr_image, qp_image};
use mprdma_spec::descriptor::{cqe, eqe};

record! {
    /// The fields of `qp_image` that commands check.
    pub struct QpFields {
        pub qpn: Bits<24> = qp_image::QPN,
        pub mask: Bits<8> = qp_image::MASK,
        pub state: Bits<4> = qp_image::STATE,
        pub mode: Bits<4> = qp_image::MODE,
        pub mtu: Bits<3> = qp_image::MTU,
        pub sq_base: Bits<64> = qp_image::SQ_BASE,
        pub sq_log2: Bits<4> = qp_image::SQ_LOG2,
        pub sq_cqn: Bits<16> = qp_image::SQ_CQN,
        pub rq_log2: Bits<4> = qp_image::RQ_LOG2,
        pub rq_base: Bits<64> = qp_image::RQ_BASE,
        pub rq_cqn: Bits<16> = qp_image::RQ_CQN,
        pub rto_floor: Bits<16> = qp_image::RTO_FLOOR,
        pub burst_interval: Bits<8> = qp_image::BURST_INTERVAL,
        pub delta: Bits<8> = qp_image::DELTA,
        pub vp_base: Bits<16> = qp_image::VP_BASE,
        pub vp_count: Bits<16> = qp_image::VP_COUNT,
        pub initial_window: Bits<8> = qp_image::INITIAL_WINDOW,
        pub cwnd_max: Bits<12> = qp_image::CWND_MAX,
    }
}

record! {
    /// The fields of `mr_image`.
    pub struct MrFields {
        pub key: Bits<32> = mr_image::KEY,
        pub pd: Bits<16> = mr_image::PD,
        pub rights: Bits<8> = mr_image::RIGHTS,
        pub va: Bits<64> = mr_image::VA,
        pub iova: Bits<64> = mr_image::IOVA,
        pub length: Bits<48> = mr_image::LENGTH,
    }
}

record! {
    /// The fields of `cq_image`.
    pub struct CqFields {
        pub cqn: Bits<16> = cq_image::CQN,
        pub log2: Bits<4> = cq_image::LOG2,
        pub vector: Bits<8> = cq_image::VECTOR,
        pub base: Bits<64> = cq_image::BASE,
    }
}

record! {
    /// The fields of `eq_image`.
    pub struct EqFields {
        pub eqn: Bits<16> = eq_image::EQN,
        pub log2: Bits<4> = eq_image::LOG2,
        pub vector: Bits<8> = eq_image::VECTOR,
        pub base: Bits<64> = eq_image::BASE,
    }
}

record! {
    /// A completion queue entry.
    pub struct CqeRecord {
        pub qpn: Bits<24> = cqe::QPN,
        pub wqe_index: Bits<16> = cqe::WQE_INDEX,
        pub byte_len: Bits<32> = cqe::BYTE_LEN,
        pub imm: Bits<32> = cqe::IMM,
        pub timestamp: Bits<32> = cqe::TIMESTAMP,
        pub status: Bits<8> = cqe::STATUS,
        pub opcode: Bits<8> = cqe::OPCODE,
        pub flags: Bits<8> = cqe::FLAGS,
        pub phase: Bits<1> = cqe::PHASE,
    }
}

record! {
    /// An event queue entry.
    pub struct EqeRecord {
        pub kind: Bits<8> = eqe::TYPE,
        pub code: Bits<8> = eqe::CODE,
        pub number: Bits<24> = eqe::NUMBER,
        pub phase: Bits<1> = eqe::PHASE,
    }
}
