//! Ethernet II header (IEEE 802.3 clause 3), without preamble and FCS.

use super::{header, plain_repr};

header! { "Ethernet", 14 bytes {
    DST dst set_dst: [u8; 6] = 0, 0, 48, "Destination MAC address.";
    SRC src set_src: [u8; 6] = 6, 0, 48, "Source MAC address.";
    ETHERTYPE ethertype set_ethertype: u16 = 12, 0, 16, "EtherType of what follows.";
} }

/// EtherType of IPv4.
pub const IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub const IPV6: u16 = 0x86dd;
/// EtherType of an 802.1Q tag.
pub const VLAN: u16 = 0x8100;
/// Shortest frame without FCS, in bytes; shorter ones are filled up by the MAC.
pub const MIN_FRAME: usize = 60;

plain_repr! {
    /// The header's fields.
    {
        dst set_dst: [u8; 6] = "Destination MAC address.";
        src set_src: [u8; 6] = "Source MAC address.";
        ethertype set_ethertype: u16 = "EtherType of what follows.";
    }
}
