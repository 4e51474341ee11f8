//! First-word-fall-through FIFO on one clock.

use super::ram::{Ram, RamStyle};
use crate::prelude::*;

block! {
    /// Holds up to 2^`AW` - 1 items between a producer and a consumer.
    ///
    /// - In: `in_data`, `in_valid`, `out_ready`. Out: `in_ready`, `out_data`, `out_valid`, `count`.
    /// - `count` is the number of items inside. `in_ready` is a register that takes back a freed place one cycle after
    ///   the item left.
    /// - Latency: 2 cycles ([`SyncFifo::shallow`], LUT RAM) or 3 ([`SyncFifo::deep`], block RAM with output register).
    /// - Initiation interval: 1.
    pub struct SyncFifo[D: Synth, const AW: usize][D, AW] {
        in {
            clock: Clock,
            reset: Bit,
            in_data: D,
            in_valid: bool,
            out_ready: bool,
        }
        out {
            in_ready: bool,
            out_data: D,
            out_valid: bool,
            count: Bits<AW>,
        }
        local {
            push: bool,
            pop: bool,
            move_on: bool,
            stored: bool,
            filled: Bits<AW>,
        }
        reg {
            write_ptr: Bits<AW>,
            read_ptr: Bits<AW>,
            inside: Bits<AW>,
            full: bool,
            latch_valid: bool,
            front_valid: bool,
        }
        konst {
            two_stages: bool = false,
        }
        sub {
            ram: Ram<D, AW> = Ram::new(RamStyle::Distributed, false),
        }
    }
}

impl<D: Synth, const AW: usize> SyncFifo<D, AW> {
    /// A FIFO in LUT RAM, latency 2. The same as `default()`.
    pub fn shallow() -> Self {
        Self::with_style(RamStyle::Distributed, false)
    }

    /// A FIFO in block RAM with its output register, latency 3.
    pub fn deep() -> Self {
        Self::with_style(RamStyle::Block, true)
    }

    /// A FIFO in the memory of choice; the output register adds a cycle of latency.
    pub fn with_style(style: RamStyle, output_register: bool) -> Self {
        assert!(AW >= 2, "a FIFO needs at least four words");
        Self {
            two_stages: Constant::new(output_register),
            ram: Ram::new(style, output_register),
            ..Self::default()
        }
    }
}

impl<D: Synth, const AW: usize> Logic for SyncFifo<D, AW> {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(
            self,
            clock,
            write_ptr,
            read_ptr,
            inside,
            full,
            latch_valid,
            front_valid
        );
        clock!(self, clock, ram);
        self.in_ready.next = !self.full.q.val();
        self.out_valid.next = self.front_valid.q.val();
        self.out_data.next = self.ram.read_data.val();
        self.count.next = self.inside.q.val();
        self.push.next = self.in_valid.val() & !self.full.q.val();
        self.pop.next = self.front_valid.q.val() & self.out_ready.val();
        // Write side.
        self.ram.write.next = self.push.val();
        self.ram.write_addr.next = self.write_ptr.q.val();
        self.ram.write_data.next = self.in_data.val();
        if self.push.val() {
            self.write_ptr.d.next = self.write_ptr.q.val() + 1;
        }
        // Read side: the read registers of the memory are the output stage.
        self.move_on.next = !self.front_valid.q.val() | self.out_ready.val();
        self.stored.next = self.write_ptr.q.val() != self.read_ptr.q.val();
        self.ram.read.next = self.move_on.val();
        self.ram.read_addr.next = self.read_ptr.q.val();
        if self.move_on.val() {
            self.latch_valid.d.next = self.stored.val();
            if self.two_stages.val() {
                self.front_valid.d.next = self.latch_valid.q.val();
            } else {
                self.front_valid.d.next = self.stored.val();
            }
            if self.stored.val() {
                self.read_ptr.d.next = self.read_ptr.q.val() + 1;
            }
        }
        // Fill level. `full` ignores this cycle's pop, so `out_ready` is not on its path.
        self.filled.next = self.inside.q.val();
        if self.push.val() {
            self.filled.next = self.inside.q.val() + 1;
        }
        self.full.d.next = self.filled.val().all();
        self.inside.d.next = self.filled.val();
        if self.pop.val() {
            self.inside.d.next = self.filled.val() - 1;
        }
    }
}
