//! The bitmap that may follow MPAETH: one big-endian integer as wide as the receiver's window, whose bit i says that
//! PSN aack + i has arrived.

use super::WireError;

/// Largest map in bytes, for a window of 256 packets.
pub const MAX_LEN: usize = 32;

/// Which packets past the cumulative point have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SackMap {
    /// The map as on the wire, in the last `len` bytes.
    bytes: [u8; MAX_LEN],
    len: usize,
}

impl SackMap {
    /// An empty map of `slots` bits: 64, 128 or 256.
    ///
    /// # Errors
    /// [`WireError::Value`] for other sizes.
    pub fn new(slots: usize) -> Result<Self, WireError> {
        let len = slots.div_ceil(8);
        check(len)?;
        if slots % 8 != 0 {
            return Err(WireError::Value {
                header: "SACK map",
                field: "slots",
                value: slots as u64,
            });
        }
        Ok(Self {
            bytes: [0; MAX_LEN],
            len,
        })
    }

    /// The lowest `slots` bits of `bits`, bit i for PSN aack + i.
    ///
    /// # Errors
    /// [`WireError::Value`] when `slots` is not 64 or 128.
    pub fn from_bits(bits: u128, slots: usize) -> Result<Self, WireError> {
        let bytes = bits.to_be_bytes();
        let start = bytes.len().saturating_sub(slots / 8);
        Self::parse(&bytes[start..])
    }

    /// The bits for PSN aack to aack + 127, bit i for PSN aack + i.
    #[must_use]
    pub fn bits(&self) -> u128 {
        let (_, low) = self.bytes.split_at(MAX_LEN - 16);
        low.iter()
            .fold(0, |bits, &byte| bits << 8 | u128::from(byte))
    }

    /// Reads a map that fills `bytes`.
    ///
    /// # Errors
    /// [`WireError::Value`] when that is not 8, 16 or 32 bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        check(bytes.len())?;
        let mut map = Self {
            bytes: [0; MAX_LEN],
            len: bytes.len(),
        };
        map.bytes[MAX_LEN - bytes.len()..].copy_from_slice(bytes);
        Ok(map)
    }

    /// Writes the map at the start of `bytes`.
    ///
    /// # Errors
    /// When `bytes` is shorter than the map.
    pub fn emit(&self, bytes: &mut [u8]) -> Result<(), WireError> {
        let have = bytes.len();
        bytes
            .get_mut(..self.len)
            .ok_or(WireError::Truncated {
                header: "SACK map",
                need: self.len,
                have,
            })?
            .copy_from_slice(&self.bytes[MAX_LEN - self.len..]);
        Ok(())
    }

    /// Size on the wire in bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // a size that is never zero
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Bits in the map, L.
    #[must_use]
    pub const fn slots(&self) -> usize {
        self.len * 8
    }

    /// Whether PSN aack + `i` has arrived; false past the end.
    #[must_use]
    pub const fn get(&self, i: usize) -> bool {
        i < self.slots() && self.bytes[MAX_LEN - 1 - i / 8] >> (i % 8) & 1 == 1
    }

    /// Marks PSN aack + `i` as arrived.
    ///
    /// # Panics
    /// When `i` is not inside the map.
    pub fn insert(&mut self, i: usize) {
        assert!(i < self.slots(), "slot {i} of a map of {}", self.slots());
        self.bytes[MAX_LEN - 1 - i / 8] |= 1 << (i % 8);
    }
}

fn check(len: usize) -> Result<(), WireError> {
    match len {
        8 | 16 | 32 => Ok(()),
        _ => Err(WireError::Value {
            header: "SACK map",
            field: "bytes",
            value: len as u64,
        }),
    }
}
