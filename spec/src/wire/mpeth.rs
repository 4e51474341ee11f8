//! Header of MP-RDMA data packets, right after BTH.
//!
//! | bits of the big-endian 64-bit word | field |
//! | --- | --- |
//! | 63..56 | flags |
//! | 55..32 | wsn |
//! | 31..16 | offset |
//! | 15..0 | stamp |

use super::{header, plain_repr};

header! { "MPETH", 8 bytes {
    FLAGS flags set_flags: u8 = 0, 0, 8, "Flags, see the `FLAG_` constants.";
    WSN wsn set_wsn: u32 = 1, 0, 24, "Receive WQE of a SEND or WRITE WITH IMM; slot of a READ or ATOMIC; else 0.";
    OFFSET offset set_offset: u16 = 4, 0, 16, "Packet index inside the message.";
    STAMP stamp set_stamp: u16 = 6, 0, 16, "Sender's clock in 64 ns ticks.";
} }

/// A retransmission.
pub const FLAG_RETX: u8 = 1 << 0;
/// Part of a synchronised message.
pub const FLAG_SYNC: u8 = 1 << 1;
/// Last packet of its message.
pub const FLAG_TAIL: u8 = 1 << 2;
/// The receiver owes a CQE when its window passes this packet.
pub const FLAG_COMPLETION: u8 = 1 << 3;

plain_repr! {
    /// The header's fields.
    {
        flags set_flags: u8 = "Flags, see the `FLAG_` constants; the other bits are sent as zero.";
        wsn set_wsn: u32 = "Receive WQE of a SEND or WRITE WITH IMM; slot of a READ or ATOMIC; else 0. 24 bits.";
        offset set_offset: u16 = "Packet index inside the message: byte offset over MTU.";
        stamp set_stamp: u16 = "Sender's clock in 64 ns ticks, echoed by the ACK.";
    }
}
