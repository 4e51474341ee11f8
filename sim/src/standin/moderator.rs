//! Interrupt moderation: keeps the interrupts of a vector apart.

use super::events::Event;
use super::StandIn;
use crate::time::Ps;
use mprdma_spec::config::MSIX_VECTORS;
use mprdma_spec::counter::Counter;

/// One MSI-X vector.
#[derive(Clone, Copy, Debug, Default)]
struct Vector {
    /// Least time between two interrupts, in ticks.
    interval: u16,
    /// When it may interrupt again.
    free_at: Ps,
    /// Something waits for that.
    pending: bool,
}

/// The vectors of a card.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moderator([Vector; MSIX_VECTORS]);

impl Moderator {
    pub(super) fn interval(&self, vector: usize) -> u16 {
        self.0[vector].interval
    }
}

impl StandIn {
    /// Asks for an interrupt behind the writes posted before it. Inside the vector's interval it waits, and makes one
    /// with those that wait already.
    pub(super) fn interrupt(&mut self, vector: u8) {
        let at = self.dma.on_bus(self.now);
        let state = &mut self.tables.moderator.0[usize::from(vector)];
        if at >= state.free_at {
            self.raise(vector);
            return;
        }
        let (news, free_at) = (!std::mem::replace(&mut state.pending, true), state.free_at);
        self.count(Counter::InterruptsHeld, 1);
        if news {
            self.schedule(free_at, Event::IntervalEnds(vector));
        }
    }

    /// The interval of a vector has ended, unless it was set to 0 meanwhile and another one has begun.
    pub(super) fn interval_ends(&mut self, vector: u8) {
        let state = self.tables.moderator.0[usize::from(vector)];
        if state.pending && self.now >= state.free_at {
            self.raise(vector);
        }
    }

    /// Register write. A new interval counts from the next interrupt on, none at once.
    pub(super) fn set_interval(&mut self, vector: usize, ticks: u16) {
        let state = &mut self.tables.moderator.0[vector];
        state.interval = ticks;
        if ticks == 0 {
            state.free_at = 0;
            if state.pending {
                self.raise(vector as u8);
            }
        }
    }

    /// Posts the interrupt; the interval begins when it is on the bus.
    fn raise(&mut self, vector: u8) {
        let at = self.dma.interrupt(self.now, vector, &mut self.stats.pcie);
        self.schedule(at, Event::Posted);
        self.count(Counter::InterruptsRaised, 1);
        let begin = self.dma.on_bus(self.now);
        let tick = self.clock.tick();
        let state = &mut self.tables.moderator.0[usize::from(vector)];
        state.pending = false;
        state.free_at = match state.interval {
            0 => 0,
            ticks => begin + Ps::from(ticks) * tick,
        };
    }
}
