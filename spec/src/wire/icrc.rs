//! Invariant CRC of RoCEv2 (IBA 7.8.1 and annex A17): the Ethernet CRC-32 over eight bytes of ones, then the packet
//! from the IP header to the pad, with every field that may change on the way taken as ones.

use super::{bth, frame, frame::Envelope, ipv4, ipv6, WireError};

/// Size of the ICRC in bytes; it is little-endian on the wire.
pub const LEN: usize = 4;
/// Bytes of ones that stand for the InfiniBand local route header.
pub const PREFIX: usize = 8;
/// CRC-32 polynomial, bit-reflected.
pub const POLYNOMIAL: u32 = 0xedb8_8320;

/// Bytes that are taken in one step.
const STRIDE: usize = 16;

/// `TABLES[n][b]` is what byte `b` does to the CRC when `n` more bytes follow it in the same step.
const TABLES: [[u32; 256]; STRIDE] = {
    let mut tables = [[0; 256]; STRIDE];
    let mut i = 0;
    while i < 256 {
        let mut crc = i as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ (POLYNOMIAL * (crc & 1));
            bit += 1;
        }
        tables[0][i] = crc;
        i += 1;
    }
    let mut n = 1;
    while n < STRIDE {
        let mut i = 0;
        while i < 256 {
            let before = tables[n - 1][i];
            tables[n][i] = before >> 8 ^ tables[0][before as u8 as usize];
            i += 1;
        }
        n += 1;
    }
    tables
};

/// A running CRC-32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crc(u32);

impl Crc {
    /// Before any byte.
    pub const START: Self = Self(u32::MAX);

    /// Takes the next byte.
    #[must_use]
    pub const fn byte(self, byte: u8) -> Self {
        Self(self.0 >> 8 ^ TABLES[0][(self.0 as u8 ^ byte) as usize])
    }

    /// Takes the next bytes.
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        let (mut crc, mut left) = (self, bytes);
        while let Some((step, rest)) = left.split_first_chunk() {
            (crc, left) = (crc.step(step), rest);
        }
        left.iter().fold(crc, |crc, byte| crc.byte(*byte))
    }

    /// Takes the next [`STRIDE`] bytes at once.
    #[inline]
    fn step(self, bytes: &[u8; STRIDE]) -> Self {
        let register = self.0.to_le_bytes();
        let crc = (0..STRIDE).fold(0, |crc, i| {
            let byte = bytes[i] ^ register.get(i).copied().unwrap_or(0);
            crc ^ TABLES[STRIDE - 1 - i][usize::from(byte)]
        });
        Self(crc)
    }

    /// The shift register, without the final inversion.
    #[must_use]
    pub const fn state(self) -> u32 {
        self.0
    }

    /// The CRC.
    #[must_use]
    pub const fn finish(self) -> u32 {
        !self.0
    }
}

/// State after the leading bytes of ones.
#[must_use]
pub const fn seed() -> Crc {
    let mut crc = Crc::START;
    let mut i = 0;
    while i < PREFIX {
        crc = crc.byte(0xff);
        i += 1;
    }
    crc
}

/// Bits that the ICRC takes as ones: byte offset into the IPv4 header, mask.
pub const MASK_IPV4: &[(usize, u8)] = &[
    (1, 0xff),  // DSCP and ECN
    (8, 0xff),  // TTL
    (10, 0xff), // checksum
    (11, 0xff),
];
/// Bits that the ICRC takes as ones: byte offset into the IPv6 header, mask.
pub const MASK_IPV6: &[(usize, u8)] = &[
    (0, 0x0f), // traffic class
    (1, 0xff), // traffic class, flow label
    (2, 0xff),
    (3, 0xff),
    (7, 0xff), // hop limit
];
/// Bits that the ICRC takes as ones: byte offset into the UDP header, mask.
pub const MASK_UDP: &[(usize, u8)] = &[(6, 0xff), (7, 0xff)];
/// Bits that the ICRC takes as ones: byte offset into BTH, mask.
pub const MASK_BTH: &[(usize, u8)] = &[(bth::ECN_BYTE, 0xff)];

fn masked(crc: Crc, header: &[u8], mask: &[(usize, u8)]) -> Crc {
    header.iter().enumerate().fold(crc, |crc, (i, byte)| {
        let ones = mask
            .iter()
            .find(|(at, _)| *at == i)
            .map_or(0, |(_, ones)| *ones);
        crc.byte(byte | ones)
    })
}

/// The ICRC that the Ethernet frame `frame` (without FCS) should carry. Its last four bytes, the ICRC field, are not
/// looked at.
///
/// # Errors
/// When `frame` is no RoCEv2 frame or its lengths disagree.
pub fn icrc(frame: &[u8]) -> Result<u32, WireError> {
    Ok(of(frame, &frame::locate(frame)?))
}

/// Checks the ICRC that the Ethernet frame `frame` (without FCS) carries.
///
/// # Errors
/// [`WireError::Icrc`] when it is wrong; as [`icrc`] when there is none.
pub fn check_icrc(frame: &[u8]) -> Result<(), WireError> {
    let at = frame::locate(frame)?;
    let computed = of(frame, &at);
    let mut stated = [0; LEN];
    stated.copy_from_slice(&frame[at.icrc..at.icrc + LEN]);
    let stated = u32::from_le_bytes(stated);
    if stated == computed {
        Ok(())
    } else {
        Err(WireError::Icrc { stated, computed })
    }
}

/// The ICRC of a frame whose parts are known.
pub(super) fn of(frame: &[u8], at: &Envelope) -> u32 {
    let ip = &frame[at.ip..at.udp];
    let mask = if ip.len() == ipv4::LEN {
        MASK_IPV4
    } else {
        debug_assert_eq!(ip.len(), ipv6::LEN);
        MASK_IPV6
    };
    let crc = masked(seed(), ip, mask);
    let crc = masked(crc, &frame[at.udp..at.bth], MASK_UDP);
    let crc = masked(crc, &frame[at.bth..at.bth + bth::LEN], MASK_BTH);
    crc.bytes(&frame[at.bth + bth::LEN..at.icrc]).finish()
}
