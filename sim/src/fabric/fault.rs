//! What can go wrong on a link.

use crate::time::{Ps, NS, US};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeSet;

/// The faults of one link; the first four are probabilities per packet.
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
    /// Intervals of simulated time in which the link is down, as `down_us` of its rule says.
    pub down: Vec<(Ps, Ps)>,
    /// The same, as events say.
    pub outages: Vec<(Ps, Ps)>,
    /// Down until told otherwise.
    pub cut: bool,
    /// Numbers of the packets to lose: 1 is the first that the wire takes.
    pub drop_nth: BTreeSet<u64>,
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

    /// An event cuts or repairs the link at that time. Called in order of time.
    pub fn set_down(&mut self, at: Ps, down: bool) {
        let open = self.outages.last_mut().filter(|(_, end)| *end == Ps::MAX);
        match (open, down) {
            (Some((_, end)), false) => *end = at,
            (None, true) => self.outages.push((at, Ps::MAX)),
            _ => {}
        }
    }

    /// Whether the link is down at any moment from `start` to `end`, both included.
    pub fn is_down(&self, start: Ps, end: Ps) -> bool {
        let touches = |&(from, to): &(Ps, Ps)| from <= end && start < to;
        self.cut || self.down.iter().chain(&self.outages).any(touches)
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
