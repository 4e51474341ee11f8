//! Round-robin merge of streams.

use super::skid::Skid;
use crate::prelude::*;
use std::array::from_fn;

block! {
    /// Merges `N` streams of single items into one, round robin.
    ///
    /// - In: `in_data[i]`, `in_valid[i]`, `out_ready`. Out: `in_ready[i]`, `out_data`, `out_valid`.
    /// - After an item of stream i, stream i + 1 has the first turn; a stream with nothing to send loses its turn.
    /// - Latency: 1 cycle. Initiation interval: 1. The output is a [`Skid`]; `in_ready[i]` is combinational in the
    ///   `in_valid`s, so feed it from FIFOs.
    pub struct Arbiter[D: Synth, const N: usize][D, N] {
        in {
            clock: Clock,
            reset: Bit,
            out_ready: bool,
        }
        out {
            out_data: D,
            out_valid: bool,
        }
        port {
            in_data: [Signal<In, D>; N] = from_fn(|_| Signal::default()),
            in_valid: [Signal<In, bool>; N] = from_fn(|_| Signal::default()),
            in_ready: [Signal<Out, bool>; N] = from_fn(|_| Signal::default()),
        }
        local {
            taken: bool,
            passed: bool,
        }
        sub {
            grant: [Signal<Local, bool>; N] = from_fn(|_| Signal::default()),
            // Stream i has not had its turn in this round.
            waits: [Reg<bool>; N] = from_fn(|_| Reg::default()),
            merged: Skid<D>,
        }
    }
}

/// [`Arbiter`] of two streams.
pub type Arbiter2<D> = Arbiter<D, 2>;
/// [`Arbiter`] of three streams.
pub type Arbiter3<D> = Arbiter<D, 3>;
/// [`Arbiter`] of four streams.
pub type Arbiter4<D> = Arbiter<D, 4>;

impl<D: Synth, const N: usize> Logic for Arbiter<D, N> {
    #[hdl_gen]
    fn update(&mut self) {
        clock!(self, clock, merged);
        self.merged.reset.next = self.reset.val();
        for i in 0..N {
            self.waits[i].clock.next = self.clock.val();
            self.waits[i].reset.next = self.reset.val();
            self.waits[i].d.next = self.waits[i].q.val();
        }
        // The first stream that waits for its turn in this round, else the first of a new round.
        self.taken.next = false;
        for i in 0..N {
            self.grant[i].next = self.in_valid[i].val() & self.waits[i].q.val() & !self.taken.val();
            self.taken.next = self.taken.val() | self.grant[i].val();
        }
        for i in 0..N {
            self.grant[i].next = self.grant[i].val() | (self.in_valid[i].val() & !self.taken.val());
            self.taken.next = self.taken.val() | self.in_valid[i].val();
        }
        self.merged.in_valid.next = self.taken.val();
        self.merged.in_data.next = self.in_data[0].val();
        for i in 0..N {
            self.in_ready[i].next = self.grant[i].val() & self.merged.in_ready.val();
            if self.grant[i].val() {
                self.merged.in_data.next = self.in_data[i].val();
            }
        }
        self.passed.next = false;
        if self.taken.val() & self.merged.in_ready.val() {
            for i in 0..N {
                self.waits[i].d.next = self.passed.val();
                self.passed.next = self.passed.val() | self.grant[i].val();
            }
        }
        self.out_data.next = self.merged.out_data.val();
        self.out_valid.next = self.merged.out_valid.val();
        self.merged.out_ready.next = self.out_ready.val();
    }
}
