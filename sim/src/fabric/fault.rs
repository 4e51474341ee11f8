//! What can go wrong on a link.

use crate::time::{Ps, NS, US};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

/// The faults of one link. All are probabilities per packet but `down`.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// A packet is lost.
    pub loss: f64,
    /// One bit of a packet is flipped.
    pub corrupt: f64,
    /// A packet arrives twice.
    pub duplicate: f64,
    /// A packet is held back.
    pub reorder: f64,
    /// Longest time for which a packet is held back.
    pub reorder_time: Ps,
    /// Intervals of simulated time in which the link is down.
    pub down: Vec<(Ps, Ps)>,
    /// Down until told otherwise.
    pub cut: bool,
}

/// What happens to one packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fate {
    /// It is lost.
    pub lost: bool,
    /// This bit of it is flipped.
    pub flipped: Option<usize>,
    /// It arrives a second time.
    pub doubled: bool,
    /// It is held back for so long.
    pub held: Ps,
}

impl Faults {
    /// Sets how long packets are held back, in ns.
    pub fn set_reorder_ns(&mut self, ns: u64) {
        self.reorder_time = ns * NS;
    }

    /// Sets the intervals in which the link is down, in µs.
    pub fn set_down_us(&mut self, intervals: &[[u64; 2]]) {
        self.down = intervals.iter().map(|[a, b]| (a * US, b * US)).collect();
    }

    /// Whether the link is down at that time.
    pub fn is_down(&self, now: Ps) -> bool {
        self.cut || self.down.iter().any(|&(a, b)| (a..b).contains(&now))
    }

    /// Draws what happens to a packet of `bytes` bytes. A link without faults draws nothing.
    pub fn draw(&self, rng: &mut ChaCha8Rng, bytes: usize) -> Fate {
        let mut hit = |p: f64| p > 0.0 && rng.random::<f64>() < p;
        let (lost, corrupt, doubled, held) = (
            hit(self.loss),
            hit(self.corrupt),
            hit(self.duplicate),
            hit(self.reorder),
        );
        Fate {
            lost,
            flipped: (corrupt && bytes > 0).then(|| rng.random_range(0..bytes * 8)),
            doubled,
            held: if held && self.reorder_time > 0 {
                rng.random_range(1..=self.reorder_time)
            } else {
                0
            },
        }
    }
}
