//! The reorder bitmap: L slots of two bits, slot 0 belonging to `rcv_nxt` (protocol section 3).

use bitvec::prelude::*;

/// Greatest L that a window can have.
pub const MAX_SLOTS: usize = 128;

type Plane = BitArr!(for MAX_SLOTS, in u64, Lsb0);

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Slot {
    /// Not arrived.
    Empty = 0,
    /// Arrived.
    Received = 1,
    /// Arrived, last packet of its message.
    Tail = 2,
    /// Arrived, last packet of its message, and a completion is owed.
    Completion = 3,
}

/// What the window slid over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slide {
    /// Slots.
    pub slots: u32,
    /// Messages that ended in them.
    pub tails: u32,
    /// Completions owed by them.
    pub completions: u32,
}

/// The window, as two bit planes: a slot's value is `2 * hi + lo`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    hi: Plane,
    lo: Plane,
}

impl Window {
    /// Whether slot `index` is filled.
    #[must_use]
    pub fn filled(&self, index: usize) -> bool {
        self.hi[index] || self.lo[index]
    }

    /// Fills slot `index`.
    pub fn fill(&mut self, index: usize, slot: Slot) {
        self.hi.set(index, slot as u8 & 2 != 0);
        self.lo.set(index, slot as u8 & 1 != 0);
    }

    /// Slides over the leading run of filled slots.
    pub fn slide(&mut self) -> Slide {
        let run = (0..MAX_SLOTS).take_while(|&i| self.filled(i)).count();
        let tails = self.hi[..run].count_ones();
        let completions = (0..run).filter(|&i| self.hi[i] && self.lo[i]).count();
        self.hi.shift_start(run);
        self.lo.shift_start(run);
        Slide {
            slots: run as u32,
            tails: tails as u32,
            completions: completions as u32,
        }
    }

    /// One bit per filled slot: the SACK map.
    #[must_use]
    pub fn map(&self) -> u128 {
        word(&self.hi) | word(&self.lo)
    }

    /// Both planes as integers, `(hi, lo)`, slot 0 in bit 0.
    #[must_use]
    pub fn planes(&self) -> (u128, u128) {
        (word(&self.hi), word(&self.lo))
    }
}

fn word(plane: &Plane) -> u128 {
    let [low, high] = plane.into_inner();
    u128::from(low) | u128::from(high) << 64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slides_over_the_leading_run_only() {
        let mut window = Window::default();
        window.fill(1, Slot::Completion);
        window.fill(2, Slot::Received);
        window.fill(4, Slot::Tail);
        assert_eq!(window.slide(), Slide::default());
        window.fill(0, Slot::Tail);
        assert_eq!(
            window.slide(),
            Slide {
                slots: 3,
                tails: 2,
                completions: 1
            }
        );
        assert_eq!(window.map(), 0b10);
    }

    #[test]
    fn a_full_window_empties() {
        let mut window = Window::default();
        for i in (0..MAX_SLOTS).rev() {
            window.fill(i, Slot::Received);
        }
        assert_eq!(window.slide().slots, MAX_SLOTS as u32);
        assert_eq!(window, Window::default());
    }
}
