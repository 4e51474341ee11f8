//! Bytes on a 512-bit bus.

use crate::ports::Wide;

/// Bytes of one beat.
pub const BEAT: usize = 64;

/// Bytes as the bus carries them.
pub fn words(bytes: &[u8; BEAT]) -> Wide {
    std::array::from_fn(|i| u64::from_le_bytes(std::array::from_fn(|j| bytes[i * 8 + j])))
}

/// The bytes of a bus.
pub fn bytes(words: &Wide) -> [u8; BEAT] {
    let mut bytes = [0; BEAT];
    for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// `tkeep` of a beat whose first `count` bytes count.
pub fn keep(count: usize) -> u64 {
    if count >= BEAT {
        u64::MAX
    } else {
        (1 << count) - 1
    }
}
