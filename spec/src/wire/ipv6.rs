//! IPv6 header (RFC 8200); extension headers are not taken.

use super::{expect, header, WireError};

header! { "IPv6", 40 bytes {
    VERSION version set_version: u8 = 0, 4, 4, "IP version, 6.";
    DSCP dscp set_dscp: u8 = 0, 6, 6, "Differentiated services code point, upper part of the traffic class.";
    ECN ecn set_ecn: u8 = 1, 4, 2, "Explicit congestion notification, lower part of the traffic class.";
    FLOW_LABEL flow_label set_flow_label: u32 = 1, 0, 20, "Flow label.";
    PAYLOAD_LEN payload_len set_payload_len: u16 = 4, 0, 16, "Payload in bytes.";
    NEXT_HEADER next_header set_next_header: u8 = 6, 0, 8, "Protocol of the payload.";
    HOP_LIMIT hop_limit set_hop_limit: u8 = 7, 0, 8, "Hop limit.";
    SRC_HI src_hi set_src_hi: [u8; 8] = 8, 0, 64, "Source address, first half.";
    SRC_LO src_lo set_src_lo: [u8; 8] = 16, 0, 64, "Source address, second half.";
    DST_HI dst_hi set_dst_hi: [u8; 8] = 24, 0, 64, "Destination address, first half.";
    DST_LO dst_lo set_dst_lo: [u8; 8] = 32, 0, 64, "Destination address, second half.";
} }

/// The fields that vary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Differentiated services code point, 0 to 63.
    pub dscp: u8,
    /// Explicit congestion notification, 0 to 3; codepoints as in [`ipv4`](super::ipv4).
    pub ecn: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Payload in bytes.
    pub payload_len: u16,
    /// Protocol of the payload.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub src: [u8; 16],
    /// Destination address.
    pub dst: [u8; 16],
}

fn join(hi: [u8; 8], lo: [u8; 8]) -> [u8; 16] {
    core::array::from_fn(|i| if i < 8 { hi[i] } else { lo[i - 8] })
}

impl Repr {
    /// Reads the header at the start of `bytes`.
    ///
    /// # Errors
    /// When it is too short or not IPv6.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let view = View::new(bytes)?;
        expect("IPv6", &VERSION, bytes, 6)?;
        Ok(Self {
            dscp: view.dscp(),
            ecn: view.ecn(),
            flow_label: view.flow_label(),
            payload_len: view.payload_len(),
            next_header: view.next_header(),
            hop_limit: view.hop_limit(),
            src: join(view.src_hi(), view.src_lo()),
            dst: join(view.dst_hi(), view.dst_lo()),
        })
    }

    /// Writes the header at the start of `bytes`.
    ///
    /// # Errors
    /// When `bytes` is shorter than the header.
    pub fn emit(&self, bytes: &mut [u8]) -> Result<(), WireError> {
        let mut view = View::new(bytes)?;
        view.set_version(6);
        view.set_dscp(self.dscp);
        view.set_ecn(self.ecn);
        view.set_flow_label(self.flow_label);
        view.set_payload_len(self.payload_len);
        view.set_next_header(self.next_header);
        view.set_hop_limit(self.hop_limit);
        view.0[8..24].copy_from_slice(&self.src);
        view.0[24..40].copy_from_slice(&self.dst);
        Ok(())
    }
}
