//! Register slice of a stream.

use crate::prelude::*;

block! {
    /// Cuts both directions of a stream with registers: `in_ready`, `out_valid` and `out_data` come from flip-flops.
    ///
    /// - In: `in_data`, `in_valid`, `out_ready`. Out: `in_ready`, `out_data`, `out_valid`.
    /// - Latency: 1 cycle. Initiation interval: 1. Holds up to two items.
    pub struct Skid[T: Synth][T] {
        in {
            clock: Clock,
            reset: Bit,
            in_data: T,
            in_valid: bool,
            out_ready: bool,
        }
        out {
            in_ready: bool,
            out_data: T,
            out_valid: bool,
        }
        local {
            stall: bool,
        }
        reg {
            front_valid: bool,
            spare_valid: bool,
        }
        pipe {
            front: T,
            spare: T,
        }
    }
}

impl<T: Synth> Logic for Skid<T> {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, front_valid, spare_valid, front, spare);
        self.in_ready.next = !self.spare_valid.q.val();
        self.out_valid.next = self.front_valid.q.val();
        self.out_data.next = self.front.q.val();
        self.stall.next = self.front_valid.q.val() & !self.out_ready.val();
        if self.spare_valid.q.val() {
            if !self.stall.val() {
                self.front.d.next = self.spare.q.val();
                self.spare_valid.d.next = false;
            }
        } else {
            // The producer sees a stall one cycle late: the item on the wire goes to the spare register.
            self.spare.d.next = self.in_data.val();
            if self.stall.val() {
                self.spare_valid.d.next = self.in_valid.val();
            } else {
                self.front.d.next = self.in_data.val();
                self.front_valid.d.next = self.in_valid.val();
            }
        }
    }
}
