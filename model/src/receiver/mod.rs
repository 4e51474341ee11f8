//! The receiver engine: the reorder bitmap of protocol section 3.
//!
//! [`step`] is the whole engine; comments name the rules by number. An access violation is answered only when every
//! packet before it has arrived: one that comes early is dropped unanswered and judged when it comes again, so that the
//! work requests before it complete and the guilty one gets the error (IBA 9.7.4.1 answers in order). For the same
//! reason a duplicate is acknowledged without a look at its key: its region may be gone by rights.

mod context;
mod step;
#[cfg(test)]
mod tests;
pub mod window;

pub use context::{ReceiverContext, ReceiverImage};
pub use step::step;

pub use mprdma_spec::wire::mpaeth::{
    FLAG_ECN_ECHO as ACK_ECN, FLAG_RETX_ECHO as ACK_RETX, FLAG_SACK_MAP as ACK_MAP,
    FLAG_SYNC_NAK as ACK_SYNC_NAK, FLAG_WINDOW_NAK as ACK_WINDOW_NAK,
};
pub use mprdma_spec::wire::mpeth::{FLAG_COMPLETION, FLAG_RETX, FLAG_SYNC, FLAG_TAIL};

use mprdma_spec::wire::aeth::{Nak, Syndrome};

/// AETH syndrome of an ACK that sets no credit limit (IBA 9.7.7.2).
pub const SYNDROME_ACK: u8 = Syndrome::ACK.byte();
/// AETH syndrome of an RNR NAK: timer code 1, 10 us (IBA table 45).
pub const SYNDROME_RNR: u8 = Syndrome::Rnr(1).byte();
/// AETH syndrome: NAK, invalid request.
pub const SYNDROME_INVALID_REQUEST: u8 = Syndrome::Nak(Nak::InvalidRequest).byte();
/// AETH syndrome: NAK, remote access error.
pub const SYNDROME_REMOTE_ACCESS: u8 = Syndrome::Nak(Nak::RemoteAccess).byte();

/// Receive WQEs whose completion may wait out of order.
pub const RECEIVE_WINDOW: u32 = 1 << mprdma_spec::config::RECEIVE_WINDOW_LOG2;

/// READs and ATOMICs that the peer may have open, and so the slots that its requests may name.
pub const READ_SLOTS: u32 = 1 << mprdma_spec::config::READ_SLOTS_LOG2;

/// Where the bytes of a packet are. Of the memory region table for a WRITE, a READ REQUEST or an ATOMIC; of the table of open
/// READs for a READ RESPONSE or an ATOMIC ACK, which has no key: then rights and domain mean nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MrAnswer {
    /// Key known, or READ or ATOMIC open, and bounds kept.
    pub hit: bool,
    /// The region's rights.
    pub rights: u8,
    /// The region's protection domain.
    pub pd: u16,
    /// Where the payload or an ATOMIC's answer goes, a READ begins, or an ATOMIC works.
    pub iova: u64,
}

/// An arriving data packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// BTH PSN.
    pub psn: u32,
    /// BTH opcode.
    pub opcode: u8,
    /// BTH P_Key.
    pub pkey: u16,
    /// The IP header carried CE.
    pub ce: bool,
    /// UDP source port.
    pub vp: u16,
    /// MPETH flags.
    pub flags: u8,
    /// MPETH wsn.
    pub wsn: u32,
    /// MPETH offset.
    pub offset: u16,
    /// MPETH stamp.
    pub stamp: u16,
    /// Immediate data.
    pub imm: u32,
    /// RETH DMA length: the payload's of a WRITE, the message's of a READ REQUEST; of an ATOMIC 8. An answer has none.
    pub dma_length: u32,
    /// The address is not a multiple of 8. Counts for an ATOMIC.
    pub misaligned: bool,
    /// Payload bytes.
    pub length: u16,
    /// The frame waits in the payload FIFO.
    pub stored: bool,
    /// What the memory region table says of its key and range.
    pub mr: MrAnswer,
}

/// What can happen to the receiver half of a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiverEvent {
    /// A data packet arrived.
    Packet(Packet),
    /// A frame must be thrown away.
    Discard,
    /// Receive queue doorbell: the new producer index.
    Doorbell(u16),
    /// The QP goes to ERROR.
    Error,
    /// CREATE_QP.
    Create(ReceiverImage),
    /// MODIFY_QP.
    Modify(ReceiverImage),
    /// QUERY_QP: answers with the context as it is.
    Query,
    /// DESTROY_QP.
    Destroy,
}

/// An ACK or NAK to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// PSN of the packet answered.
    pub sack: u32,
    /// PSN that the receiver waits for.
    pub aack: u32,
    /// Messages completed.
    pub msn: u32,
    /// AETH syndrome.
    pub syndrome: u8,
    /// MPAETH flags.
    pub flags: u8,
    /// VP echo.
    pub vp: u16,
    /// Stamp echo.
    pub stamp: u16,
    /// SACK map.
    pub map: u128,
}

/// What the event adds to the card's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// No such QP here, wrong state or P_Key.
    pub no_qp: bool,
    /// Accepted ahead of a hole.
    pub out_of_order: bool,
    /// Had arrived before.
    pub duplicate: bool,
    /// Beyond the bitmap.
    pub out_of_window: bool,
    /// Synchronised message too early.
    pub sync_nak: bool,
    /// Carried CE.
    pub ce: bool,
    /// Refused for key, bounds, rights or form.
    pub access: bool,
    /// No receive WQE, or a READ or ATOMIC before RTS.
    pub rnr: bool,
}

/// What an event brings about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverOutputs {
    /// Write the payload, or the value that an ATOMIC ACK brings, to memory.
    pub place: bool,
    /// Throw the stored frame away.
    pub discard: bool,
    /// The packet is a READ REQUEST or an ATOMIC, accepted: executed when everything before it is placed.
    pub request: bool,
    /// The packet ends the answer to a READ or ATOMIC, accepted: done when everything before it is placed.
    pub response_ends: bool,
    /// The packet is an ATOMIC or an ATOMIC ACK, accepted.
    pub atomic: bool,
    /// Answer.
    pub ack: Option<Ack>,
    /// Keep the immediate and this length for the packet's receive WQE.
    pub store: Option<u32>,
    /// Completions due now.
    pub due: u32,
    /// The first of them.
    pub due_wsn: u32,
    /// The QP went to ERROR: this `WcStatus` says why.
    pub access_error: Option<u8>,
    /// End of a destroyed QP.
    pub marker: bool,
    /// For the counters.
    pub counts: Counts,
}
