//! 24-bit packet sequence numbers (IBA 9.2). All arithmetic is modulo 2^24.

/// Bits that a PSN uses.
pub const MASK: u32 = 0xff_ffff;
/// Distances from here on mean "before".
pub const HALF: u32 = 0x80_0000;

/// `psn + n`.
#[must_use]
pub const fn add(psn: u32, n: u32) -> u32 {
    psn.wrapping_add(n) & MASK
}

/// How far `to` is after `from`; at least [`HALF`] when it is before.
#[must_use]
pub const fn distance(from: u32, to: u32) -> u32 {
    to.wrapping_sub(from) & MASK
}

/// `a` is before `b`.
#[must_use]
pub const fn before(a: u32, b: u32) -> bool {
    distance(b, a) >= HALF
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_survives_the_wrap() {
        assert!(before(MASK, 0));
        assert!(before(MASK - 5, 3));
        assert!(!before(3, MASK - 5));
        assert!(!before(7, 7));
        assert_eq!(distance(MASK, 1), 2);
        assert_eq!(add(MASK, 1), 0);
    }
}
