//! Simulated time.

/// A point or a length of simulated time, in picoseconds.
pub type Ps = u64;

/// Picoseconds in a nanosecond.
pub const NS: Ps = 1_000;
/// Picoseconds in a microsecond.
pub const US: Ps = 1_000_000;

/// Bytes that every Ethernet frame costs on the wire besides the frame handed over: preamble 8, FCS 4, gap 12.
pub const WIRE_OVERHEAD: u64 = PREAMBLE + FCS + GAP;
/// Preamble and start-of-frame delimiter, bytes (IEEE 802.3 clause 3.1.1).
pub const PREAMBLE: u64 = 8;
/// Frame check sequence, bytes. The simulated wire never carries it as data; it only takes its time.
pub const FCS: u64 = 4;
/// Inter-packet gap, bytes (IEEE 802.3 clause 4.4.2).
pub const GAP: u64 = 12;

/// A line rate, kept in kilobits per second so that time arithmetic stays in integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate {
    kbps: u64,
}

impl Rate {
    /// From gigabits per second. The scenario loader checks the range before it gets here.
    pub fn from_gbps(gbps: f64) -> Rate {
        Rate {
            kbps: ((gbps * 1e6).round() as u64).max(1),
        }
    }

    /// In gigabits per second.
    pub fn gbps(self) -> f64 {
        self.kbps as f64 / 1e6
    }

    /// How long `bytes` take at this rate.
    pub fn time(self, bytes: u64) -> Ps {
        (bytes as u128 * 8_000_000_000 / self.kbps as u128) as Ps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_at_100_gbps_takes_80_ps() {
        assert_eq!(Rate::from_gbps(100.0).time(1), 80);
        assert_eq!(Rate::from_gbps(25.0).time(4096), 4096 * 320);
        assert_eq!(Rate::from_gbps(6.25).time(100), 128_000);
    }
}
