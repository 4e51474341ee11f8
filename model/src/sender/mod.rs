//! The sender engine: multi-path ACK clocking (protocol section 4) and loss recovery (section 5).
//!
//! [`step`] is the whole engine. Comments name the rules of protocol section 4 by number, e.g. "rule 4" for pruning.
//! `step` takes events apart, `send` chooses packets and paths.

mod context;
#[cfg(test)]
mod extension_tests;
mod send;
mod step;
#[cfg(test)]
mod tests;

pub use context::{SenderConfig, SenderContext, SenderImage, RING};
pub use step::{step, BACKOFF_MAX, WHEEL_MAX};

use mprdma_spec::status::WcStatus;

pub use mprdma_spec::status::SendCause as Cause;

pub use mprdma_spec::wire::mpaeth::{
    FLAG_ECN_ECHO as ACK_ECN, FLAG_RETX_ECHO as ACK_RETX, FLAG_SACK_MAP as ACK_MAP,
    FLAG_SYNC_NAK as ACK_SYNC_NAK, FLAG_WINDOW_NAK as ACK_WINDOW_NAK,
};

/// An ACK or NAK that arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// SACK: the PSN of the packet that is answered.
    pub sack: u32,
    /// AACK: the PSN that the receiver waits for.
    pub aack: u32,
    /// `ACK_` bits.
    pub flags: u8,
    /// AETH syndrome (IBA 9.7.5.2.1).
    pub syndrome: u8,
    /// Path that the packet took and the ACK came back on.
    pub vp: u16,
    /// Low 16 bits of the tick at which the packet was built.
    pub stamp: u16,
    /// SACK map, there with [`ACK_MAP`]: bit i says that PSN `aack` + i has arrived.
    pub map: u128,
}

/// What can happen to the sender half of a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderEvent {
    /// An ACK or NAK arrived.
    Ack(Ack),
    /// Fetched work.
    Work {
        /// This many more packets may be sent.
        packets: u32,
        /// They are a synchronised message (section 6). None comes while an earlier one waits.
        sync: bool,
    },
    /// The QP must go to ERROR with this `WcStatus`.
    Error(u8),
    /// The burst timer fired.
    Burst,
    /// The retransmission timer fired.
    Timeout,
    /// CREATE_QP.
    Create(SenderImage),
    /// MODIFY_QP.
    Modify(SenderImage),
    /// QUERY_QP: answers with the context as it is.
    Query,
    /// DESTROY_QP.
    Destroy,
}

/// What surrounds an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Env {
    /// Protocol clock in 64 ns ticks.
    pub now: u32,
    /// Random bits: for each of two packets 16 for the decision to probe and 16 for the path, lowest first.
    pub rnd: u64,
    /// The card's own transmit side holds packets back: the window does not grow.
    pub backlog: bool,
    /// So many grants wait that new packets are left to the burst timer, which serves queue pairs in turn. Never set for
    /// the burst timer's own events.
    pub crowded: bool,
    /// No room for more grants: none may be made now.
    pub full: bool,
    /// Slow units that the waiting grants of all queue pairs may take (8): the retransmission timer allows for them.
    pub waiting_slow: u8,
    /// Slots of the bitmap of this image, and so of the peer's: 64 or 128.
    pub slots: u32,
}

/// Permission to send one packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Which packet.
    pub psn: u32,
    /// Path, as UDP source port.
    pub vp: u16,
    /// A retransmission.
    pub retx: bool,
    /// No packet: the end of a destroyed QP.
    pub marker: bool,
}

/// News for the completion side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Every PSN before it is acknowledged.
    pub una: u32,
    /// 0, or the `WcStatus` with which the QP went to ERROR.
    pub status: u8,
}

/// What the event adds to the card's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// An ACK echoed a CE mark.
    pub ecn_echo: bool,
    /// An ACK of a slow path clocked nothing out.
    pub prune: bool,
    /// A window NAK.
    pub window_nak: bool,
    /// A sync NAK.
    pub sync_nak: bool,
    /// An ACK for a PSN before `snd_una`.
    pub ghost: bool,
    /// An ACK for what was never sent, or one that makes no sense.
    pub bad_ack: bool,
    /// A retransmission timeout.
    pub timeout: bool,
    /// Loss recovery was entered.
    pub recovery: bool,
    /// Packets sent to a random path for probing, 0 to 2.
    pub probes: u8,
}

/// What an event brings about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderOutputs {
    /// Packets to send, in order.
    pub grants: [Option<Grant>; 2],
    /// Why they are sent.
    pub cause: Cause,
    /// The first packet of the synchronised message that waited has been granted.
    pub sync_passed: bool,
    /// A valid ACK or NAK: it counted.
    pub accepted: bool,
    /// For the completion side.
    pub progress: Option<Progress>,
    /// Start the burst timer with this delay in ticks.
    pub arm_burst: Option<u8>,
    /// Start the retransmission timer with this delay in slow units of 64 ticks.
    pub arm_rto: Option<u8>,
    /// For the counters.
    pub counts: Counts,
}

impl SenderOutputs {
    /// Why `grant`, one of this event's, is sent: beside a repair it may be a new packet.
    #[must_use]
    pub const fn cause_of(&self, grant: &Grant) -> Cause {
        if grant.retx {
            self.cause
        } else {
            Cause::New
        }
    }
}

/// The meaning of an AETH syndrome together with the MPAETH flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AckKind {
    /// The packet arrived.
    Positive,
    /// The packet was dropped and must be sent again.
    Nak,
    /// No receive WQE: wait as long as the timer code says.
    Rnr(u8),
    /// The peer refuses.
    Fatal(WcStatus),
    /// Reserved codes.
    Unknown,
}

impl Ack {
    /// IBA 9.7.5.2.1 and protocol section 2.
    pub(crate) const fn kind(&self) -> AckKind {
        match self.syndrome {
            0x61 => AckKind::Fatal(WcStatus::RemoteInvalidRequest),
            0x62 => AckKind::Fatal(WcStatus::RemoteAccessError),
            0x63 => AckKind::Fatal(WcStatus::RemoteOperationError),
            0x20..=0x3f => AckKind::Rnr(self.syndrome & 0x1f),
            0x60 => AckKind::Nak,
            0x00..=0x1f if self.flags & (ACK_WINDOW_NAK | ACK_SYNC_NAK) != 0 => AckKind::Nak,
            0x00..=0x1f => AckKind::Positive,
            _ => AckKind::Unknown,
        }
    }
}
