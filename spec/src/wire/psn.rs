//! Packet sequence numbers: 24 bits that wrap (IBA 9.7.2).

use super::FieldValue;

/// A 24-bit sequence number, also used for MSN and AACK.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Psn(u32);

impl Psn {
    /// Numbers there are; arithmetic is modulo this.
    pub const MODULUS: u32 = 1 << 24;

    /// The low 24 bits of `value`.
    #[must_use]
    pub const fn new(value: u32) -> Self {
        Self(value & (Self::MODULUS - 1))
    }

    /// The number, below 2^24.
    #[must_use]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// The number `packets` later.
    #[must_use]
    #[allow(clippy::should_implement_trait)] // adds packets to a position: the operands differ in kind
    pub const fn add(self, packets: u32) -> Self {
        Self::new(self.0.wrapping_add(packets))
    }

    /// The number `packets` earlier.
    #[must_use]
    #[allow(clippy::should_implement_trait)] // as `add`
    pub const fn sub(self, packets: u32) -> Self {
        Self::new(self.0.wrapping_sub(packets))
    }

    /// Packets from `start` forward to this one, 0 to 2^24 - 1.
    #[must_use]
    pub const fn since(self, start: Self) -> u32 {
        self.sub(start.0).0
    }

    /// Packets from `other` to this one, the shorter way round: negative when this one is before `other`,
    /// -2^23 when they are exactly half the circle apart.
    #[must_use]
    pub const fn distance(self, other: Self) -> i32 {
        ((self.since(other) << 8) as i32) >> 8
    }

    /// Whether this number comes before `other`.
    #[must_use]
    pub const fn before(self, other: Self) -> bool {
        self.distance(other) < 0
    }

    /// Whether this number comes after `other`.
    #[must_use]
    pub const fn after(self, other: Self) -> bool {
        self.distance(other) > 0
    }
}

impl FieldValue for Psn {
    fn from_bits(bits: u64) -> Self {
        Self::new(bits as u32)
    }
    fn into_bits(self) -> u64 {
        u64::from(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Psn;

    #[test]
    fn order_survives_the_wrap() {
        let last = Psn::new(0xff_ffff);
        let cases = [
            (Psn::new(5), Psn::new(3), 2),
            (last.add(1), last, 1),
            (last, Psn::new(4), -5),
            (Psn::new(0x7f_ffff), Psn::new(0), 0x7f_ffff),
            (Psn::new(0x80_0000), Psn::new(0), -0x80_0000),
            (last, last, 0),
        ];
        for (a, b, distance) in cases {
            assert_eq!(a.distance(b), distance, "{a:?} from {b:?}");
            assert_eq!(a.before(b), distance < 0);
            assert_eq!(a.after(b), distance > 0);
            assert_eq!(b.add(a.since(b)), a);
            assert_eq!(a.sub(a.since(b)), b);
        }
        assert_eq!(last.add(1), Psn::new(0));
        assert_eq!(Psn::new(0).sub(1), last);
    }
}
