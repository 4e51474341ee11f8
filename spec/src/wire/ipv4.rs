//! IPv4 header without options (RFC 791, ECN as in RFC 3168).

use super::{expect, header, WireError};

header! { "IPv4", 20 bytes {
    VERSION version set_version: u8 = 0, 4, 4, "IP version, 4.";
    IHL ihl set_ihl: u8 = 0, 0, 4, "Header length in 4-byte words, 5.";
    DSCP dscp set_dscp: u8 = 1, 2, 6, "Differentiated services code point.";
    ECN ecn set_ecn: u8 = 1, 0, 2, "Explicit congestion notification.";
    TOTAL_LEN total_len set_total_len: u16 = 2, 0, 16, "Header and payload in bytes.";
    ID id set_id: u16 = 4, 0, 16, "Identification.";
    DONT_FRAGMENT dont_fragment set_dont_fragment: bool = 6, 6, 1, "Must not be fragmented.";
    MORE_FRAGMENTS more_fragments set_more_fragments: bool = 6, 5, 1, "Not the last fragment.";
    FRAGMENT fragment set_fragment: u16 = 6, 0, 13, "Fragment offset in 8-byte units.";
    TTL ttl set_ttl: u8 = 8, 0, 8, "Time to live in hops.";
    PROTOCOL protocol set_protocol: u8 = 9, 0, 8, "Protocol of the payload.";
    CHECKSUM checksum set_checksum: u16 = 10, 0, 16, "Header checksum.";
    SRC src set_src: [u8; 4] = 12, 0, 32, "Source address.";
    DST dst set_dst: [u8; 4] = 16, 0, 32, "Destination address.";
} }

/// ECN codepoint of a transport that does not take part (RFC 3168 section 5).
pub const NOT_ECT: u8 = 0;
/// ECN codepoint ECT(1).
pub const ECT1: u8 = 1;
/// ECN codepoint ECT(0), which data packets carry.
pub const ECT0: u8 = 2;
/// ECN codepoint of a packet that met congestion.
pub const CE: u8 = 3;
/// Protocol number of UDP.
pub const UDP: u8 = 17;

/// The fields that vary; version, header length and checksum follow from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Differentiated services code point, 0 to 63.
    pub dscp: u8,
    /// Explicit congestion notification, 0 to 3.
    pub ecn: u8,
    /// Header and payload in bytes.
    pub total_len: u16,
    /// Identification.
    pub id: u16,
    /// Must not be fragmented.
    pub dont_fragment: bool,
    /// Time to live in hops.
    pub ttl: u8,
    /// Protocol of the payload.
    pub protocol: u8,
    /// Source address.
    pub src: [u8; 4],
    /// Destination address.
    pub dst: [u8; 4],
}

impl Repr {
    /// Reads and checks the header at the start of `bytes`.
    ///
    /// # Errors
    /// When it is too short, not IPv4, has options, is a fragment, or its checksum is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let view = View::new(bytes)?;
        expect("IPv4", &VERSION, bytes, 4)?;
        expect("IPv4", &IHL, bytes, 5)?;
        expect("IPv4", &MORE_FRAGMENTS, bytes, 0)?;
        expect("IPv4", &FRAGMENT, bytes, 0)?;
        if checksum(&bytes[..LEN]) != 0 {
            return Err(WireError::Checksum);
        }
        Ok(Self {
            dscp: view.dscp(),
            ecn: view.ecn(),
            total_len: view.total_len(),
            id: view.id(),
            dont_fragment: view.dont_fragment(),
            ttl: view.ttl(),
            protocol: view.protocol(),
            src: view.src(),
            dst: view.dst(),
        })
    }

    /// Writes the header, checksum included, at the start of `bytes`.
    ///
    /// # Errors
    /// When `bytes` is shorter than the header.
    pub fn emit(&self, bytes: &mut [u8]) -> Result<(), WireError> {
        let mut view = View::new(bytes)?;
        view.0[..LEN].fill(0);
        view.set_version(4);
        view.set_ihl(5);
        view.set_dscp(self.dscp);
        view.set_ecn(self.ecn);
        view.set_total_len(self.total_len);
        view.set_id(self.id);
        view.set_dont_fragment(self.dont_fragment);
        view.set_ttl(self.ttl);
        view.set_protocol(self.protocol);
        view.set_src(self.src);
        view.set_dst(self.dst);
        let sum = checksum(&view.0[..LEN]);
        view.set_checksum(sum);
        Ok(())
    }
}

/// Internet checksum of `header` (RFC 1071): the value to store when its checksum field is zero, 0 when it is right.
#[must_use]
pub fn checksum(header: &[u8]) -> u16 {
    let mut sum: u32 = header
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0)))
        .sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
