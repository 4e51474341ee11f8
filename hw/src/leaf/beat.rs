//! The unit of every packet stream.

use rust_hdl_core::prelude::*;

/// Bytes in a full beat.
pub const BEAT_BYTES: usize = 64;

/// Up to 64 bytes of a packet; byte 0 is in bits 7:0 and is first on the wire.
///
/// A *packed* stream fills every beat of a packet but the last. Bytes at and above `nbytes` are undefined unless the
/// producer says that they are zero.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct Beat {
    /// The bytes, least significant first.
    pub data: Bits<512>,
    /// How many of them belong to the packet, 1 to 64.
    pub nbytes: Bits<7>,
    /// This beat ends its packet.
    pub last: bool,
}

impl Beat {
    /// A beat that holds `bytes`.
    ///
    /// # Panics
    /// When `bytes` is empty or longer than 64 bytes.
    pub fn new(bytes: &[u8], last: bool) -> Self {
        assert!(
            (1..=BEAT_BYTES).contains(&bytes.len()),
            "a beat holds 1 to 64 bytes, not {}",
            bytes.len()
        );
        Self {
            data: bits_of_bytes(bytes),
            nbytes: bits(bytes.len() as u64),
            last,
        }
    }

    /// The bytes of the packet in this beat.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = bytes_of_bits(&self.data);
        bytes.truncate(self.nbytes.index());
        bytes
    }

    /// Cuts a packet into beats.
    pub fn of_packet(packet: &[u8]) -> Vec<Self> {
        let count = packet.len().div_ceil(BEAT_BYTES);
        packet
            .chunks(BEAT_BYTES)
            .enumerate()
            .map(|(i, chunk)| Self::new(chunk, i + 1 == count))
            .collect()
    }
}

/// Puts `bytes` into the low end of a vector, byte 0 in bits 7:0.
///
/// # Panics
/// When they do not fit.
pub fn bits_of_bytes<const N: usize>(bytes: &[u8]) -> Bits<N> {
    assert!(
        8 * bytes.len() <= N,
        "{} bytes do not fit {N} bits",
        bytes.len()
    );
    let mut value = [false; N];
    for (bit, slot) in value.iter_mut().enumerate().take(8 * bytes.len()) {
        *slot = bytes[bit / 8] >> (bit % 8) & 1 == 1;
    }
    from_bools(value)
}

/// The whole bytes of a vector, byte 0 from bits 7:0.
pub fn bytes_of_bits<const N: usize>(value: &Bits<N>) -> Vec<u8> {
    (0..N / 8)
        .map(|byte| {
            (0..8).fold(0, |a, bit| {
                a | u8::from(value.get_bit(8 * byte + bit)) << bit
            })
        })
        .collect()
}

/// A vector from its bits, least significant first, in whichever representation its width wants.
pub(crate) fn from_bools<const N: usize>(value: [bool; N]) -> Bits<N> {
    if N <= 64 {
        bits(
            value
                .iter()
                .rev()
                .fold(0, |a, &bit| a << 1 | u64::from(bit)),
        )
    } else {
        Bits::Long(value.into())
    }
}
