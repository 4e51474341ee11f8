//! UDP header (RFC 768).

use super::{header, plain_repr};

header! { "UDP", 8 bytes {
    SRC_PORT src_port set_src_port: u16 = 0, 0, 16, "Source port; in MP mode the virtual path.";
    DST_PORT dst_port set_dst_port: u16 = 2, 0, 16, "Destination port.";
    LENGTH length set_length: u16 = 4, 0, 16, "Header and payload in bytes.";
    CHECKSUM checksum set_checksum: u16 = 6, 0, 16, "Checksum; zero when there is none.";
} }

/// Destination port of RoCEv2 (IBA annex A17).
pub const ROCE_PORT: u16 = 4791;

plain_repr! {
    /// The header's fields.
    {
        src_port set_src_port: u16 = "Source port; in MP mode the virtual path.";
        dst_port set_dst_port: u16 = "Destination port.";
        length set_length: u16 = "Header and payload in bytes.";
        checksum set_checksum: u16 = "Checksum; zero when there is none.";
    }
}
