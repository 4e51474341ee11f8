//! 802.1Q tag: the four bytes after an EtherType of 0x8100 (IEEE 802.1Q clause 9.6).

use super::{header, plain_repr};

header! { "802.1Q", 4 bytes {
    PCP pcp set_pcp: u8 = 0, 5, 3, "Priority code point.";
    DEI dei set_dei: bool = 0, 4, 1, "Drop eligible.";
    VID vid set_vid: u16 = 0, 0, 12, "VLAN identifier.";
    ETHERTYPE ethertype set_ethertype: u16 = 2, 0, 16, "EtherType of what follows the tag.";
} }

plain_repr! {
    /// The tag's fields.
    {
        pcp set_pcp: u8 = "Priority code point, 0 to 7.";
        dei set_dei: bool = "Drop eligible.";
        vid set_vid: u16 = "VLAN identifier, 0 to 4095.";
        ethertype set_ethertype: u16 = "EtherType of what follows the tag.";
    }
}
