//! Header of MP-RDMA acknowledgements, after AETH.
//!
//! | bits of the big-endian 64-bit word | field |
//! | --- | --- |
//! | 63..56 | flags |
//! | 55..32 | aack |
//! | 31..16 | vp echo |
//! | 15..0 | stamp echo |

use super::{header, plain_repr, Psn};

header! { "MPAETH", 8 bytes {
    FLAGS flags set_flags: u8 = 0, 0, 8, "Flags, see the `FLAG_` constants.";
    AACK aack set_aack: Psn = 1, 0, 24, "Next PSN that the receiver waits for.";
    VP_ECHO vp_echo set_vp_echo: u16 = 4, 0, 16, "UDP source port of the packet answered.";
    STAMP_ECHO stamp_echo set_stamp_echo: u16 = 6, 0, 16, "MPETH stamp of the packet answered.";
} }

/// The packet answered was a retransmission.
pub const FLAG_RETX_ECHO: u8 = 1 << 0;
/// The packet answered arrived with CE.
pub const FLAG_ECN_ECHO: u8 = 1 << 1;
/// The packet answered was dropped: it lies beyond the receiver's bitmap.
pub const FLAG_WINDOW_NAK: u8 = 1 << 2;
/// The packet answered was dropped: its synchronised message came too early.
pub const FLAG_SYNC_NAK: u8 = 1 << 3;
/// A SACK map follows.
pub const FLAG_SACK_MAP: u8 = 1 << 4;

plain_repr! {
    /// The header's fields.
    {
        flags set_flags: u8 = "Flags, see the `FLAG_` constants; the other bits are sent as zero.";
        aack set_aack: Psn = "Next PSN that the receiver waits for.";
        vp_echo set_vp_echo: u16 = "UDP source port of the packet answered.";
        stamp_echo set_stamp_echo: u16 = "MPETH stamp of the packet answered, in 64 ns ticks.";
    }
}
