//! Rings in host memory: send WQE, receive WQE, CQE and EQE. All little-endian, all rings a power of two long.

use crate::layout::{layout, Layout};

/// Work request codes, as in [`sq_wqe::OPCODE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum WrOpcode {
    /// RDMA WRITE.
    RdmaWrite = 0,
    /// RDMA WRITE with immediate data: takes a receive WQE of the peer.
    RdmaWriteWithImm = 1,
    /// RDMA READ: [`sq_wqe::RADDR`] of the peer to [`sq_wqe::LADDR`] here.
    RdmaRead = 2,
    /// ATOMIC compare and swap of the 8 bytes at [`sq_wqe::RADDR`]; what they held goes to [`sq_wqe::LADDR`].
    AtomicCmpAndSwp = 3,
    /// ATOMIC fetch and add, likewise.
    AtomicFetchAndAdd = 4,
}

impl WrOpcode {
    /// An ATOMIC.
    #[must_use]
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::AtomicCmpAndSwp | Self::AtomicFetchAndAdd)
    }

    /// A READ or an ATOMIC: the peer answers with data, FENCE waits for it, and it takes one of the 16 slots
    /// (protocol section 7).
    #[must_use]
    pub const fn is_answered(self) -> bool {
        matches!(self, Self::RdmaRead) || self.is_atomic()
    }
}

/// [`sq_wqe::FLAGS`] bit: a CQE is wanted on success (errors always make one).
pub const WQE_SIGNALED: u64 = 1 << 0;
/// [`sq_wqe::FLAGS`] bit: wait for earlier READs and ATOMICs (IBA 10.8.3.3). Behind WRITEs there is nothing to wait for.
pub const WQE_FENCE: u64 = 1 << 1;
/// [`sq_wqe::FLAGS`] bit: solicited event at the peer.
pub const WQE_SOLICITED: u64 = 1 << 2;
/// [`sq_wqe::FLAGS`] bit: take effect after all earlier work (protocol section 6).
pub const WQE_SYNC: u64 = 1 << 3;

layout! {
    /// Send queue entry.
    sq_wqe: 64 bytes {
        OPCODE @ 0 + 8 = "WrOpcode.",
        FLAGS @ 8 + 8 = "WQE_ bits.",
        IMM @ 32 + 32 = "Immediate data, first byte on the wire in the lowest bits.",
        RADDR @ 64 + 64 = "Remote address.",
        RKEY @ 128 + 32 = "Remote key.",
        LENGTH @ 160 + 32 = "Bytes, 0 to 2^31; of an ATOMIC 8.",
        LADDR @ 192 + 64 = "Local address, inside the region of LKEY.",
        LKEY @ 256 + 32 = "Local key.",
        SWAP_ADD @ 320 + 64 = "ATOMIC: the value to swap in, or to add.",
        COMPARE @ 384 + 64 = "ATOMIC compare and swap: the value to compare with.",
    }
}

layout! {
    /// Receive queue entry.
    rq_wqe: 16 bytes {
        ADDR @ 0 + 64 = "Local address.",
        LENGTH @ 64 + 32 = "Bytes.",
        LKEY @ 96 + 32 = "Local key.",
    }
}

layout! {
    /// Completion queue entry. The card writes ascending addresses and the dword of PHASE last.
    cqe: 32 bytes {
        QPN @ 0 + 24 = "Queue pair.",
        WQE_INDEX @ 32 + 16 = "Free-running index of the work request in its send or receive queue.",
        BYTE_LEN @ 64 + 32 = "Bytes of the message.",
        IMM @ 96 + 32 = "Immediate data of the message.",
        TIMESTAMP @ 128 + 32 = "Protocol clock when the entry was made, 64 ns ticks.",
        STATUS @ 224 + 8 = "WcStatus.",
        OPCODE @ 232 + 8 = "WcOpcode.",
        FLAGS @ 240 + 8 = "Bit 0: IMM is valid.",
        PHASE @ 255 + 1 = "Toggles each time the ring wraps; 1 in the first pass.",
    }
}

/// [`cqe::FLAGS`] bit: the immediate is valid.
pub const CQE_WITH_IMM: u64 = 1 << 0;

/// What completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum WcOpcode {
    /// An RDMA WRITE of this side.
    RdmaWrite = 0,
    /// An RDMA READ of this side.
    RdmaRead = 2,
    /// An ATOMIC compare and swap of this side.
    CompSwap = 3,
    /// An ATOMIC fetch and add of this side.
    FetchAdd = 4,
    /// A receive WQE taken by the peer's RDMA WRITE with immediate.
    RecvRdmaWithImm = 0x81,
}

layout! {
    /// Asynchronous event. The card writes the dword of PHASE last.
    eqe: 16 bytes {
        TYPE @ 0 + 8 = "EventType.",
        CODE @ 8 + 8 = "WcStatus where the type has one.",
        NUMBER @ 32 + 24 = "QPN or CQN, as the type says.",
        PHASE @ 127 + 1 = "Toggles each time the ring wraps; 1 in the first pass.",
    }
}

/// Asynchronous events (IBA 11.6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EventType {
    /// A QP moved to ERROR; CODE says why.
    QpFatal = 1,
    /// The peer asked for what it may not have; the QP moved to ERROR.
    QpAccess = 2,
    /// A CQE found its ring full and was dropped; the CQ is dead.
    CqError = 3,
}

/// Every ring entry.
pub const LAYOUTS: &[Layout] = &[sq_wqe::LAYOUT, rq_wqe::LAYOUT, cqe::LAYOUT, eqe::LAYOUT];
