//! The records of `spec` that several blocks take apart or put together.

use crate::prelude::*;
use crate::{pack, unpack};
use mprdma_spec::command::{cq_image, eq_image, mr_image, qp_image};
use mprdma_spec::descriptor::{cqe, eqe};

unpack! {
    /// The fields of `qp_image` that commands check.
    pub struct QpFields from qp_image: 1024 {
        qpn: QPN 24, mask: MASK 8, state: STATE 4, mode: MODE 4, mtu: MTU 3, hole_repair: HOLE_REPAIR 1,
        vp_recycle: VP_RECYCLE 1, sq_base: SQ_BASE 64, sq_log2: SQ_LOG2 4, sq_cqn: SQ_CQN 16, rq_log2: RQ_LOG2 4,
        rq_base: RQ_BASE 64, rq_cqn: RQ_CQN 16, rto_floor: RTO_FLOOR 16, burst_interval: BURST_INTERVAL 8,
        delta: DELTA 8, vp_base: VP_BASE 16, vp_count: VP_COUNT 16, initial_window: INITIAL_WINDOW 8,
        cwnd_max: CWND_MAX 12,
    }
}
unpack! {
    /// The fields of `mr_image`.
    pub struct MrFields from mr_image: 1024 {
        key: KEY 32, pd: PD 16, rights: RIGHTS 8, va: VA 64, iova: IOVA 64, length: LENGTH 48,
    }
}
unpack! {
    /// The fields of `cq_image`.
    pub struct CqFields from cq_image: 1024 {
        cqn: CQN 16, log2: LOG2 4, vector: VECTOR 8, base: BASE 64,
    }
}
unpack! {
    /// The fields of `eq_image`.
    pub struct EqFields from eq_image: 1024 {
        eqn: EQN 16, log2: LOG2 4, vector: VECTOR 8, base: BASE 64,
    }
}
pack! {
    /// Builds a CQE.
    pub struct CqeRecord into cqe: 256 {
        qpn: QPN 24, wqe_index: WQE_INDEX 16, byte_len: BYTE_LEN 32, imm: IMM 32, timestamp: TIMESTAMP 32,
        status: STATUS 8, opcode: OPCODE 8, flags: FLAGS 8, phase: PHASE 1,
    }
}
pack! {
    /// Builds an EQE.
    pub struct EqeRecord into eqe: 128 {
        kind: TYPE 8, code: CODE 8, number: NUMBER 24, phase: PHASE 1,
    }
}
