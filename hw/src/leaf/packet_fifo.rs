//! Store-and-forward packet buffer.

use super::beat::Beat;
use super::ram::{Ram, RamStyle};
use crate::prelude::*;

block! {
    /// Buffers whole packets: a packet becomes visible at the output only after its last beat was written and kept.
    ///
    /// - In: `in_beat`, `in_valid`: the writer cannot be stalled. `in_drop`, looked at with the last beat of a packet,
    ///   takes the packet back.
    /// - Out: `out_beat`, `out_valid`, `out_ready`: the kept packets in order. `discard`, while `out_valid` is high,
    ///   removes the beat shown and the rest of its packet, at one beat per cycle. (A beat accepted in the same cycle
    ///   is delivered.)
    /// - A packet that does not fit is dropped as a whole; `overflow` is high for one cycle after its last beat.
    /// - `in_use` is the number of beats held, including those of the packet being written.
    /// - `busy`: a beat is inside.
    /// - Holds 2^`AW` - 1 beats in block RAM, and up to two more in the output stage.
    /// - Latency: 3 cycles from the last beat in to the first beat out. Initiation interval: 1 on both sides.
    ///   `out_valid` is the AND of two registers.
    pub struct PacketFifo[const AW: usize][AW] {
        in {
            clock: Clock,
            reset: Bit,
            in_beat: Beat,
            in_valid: bool,
            in_drop: bool,
            out_ready: bool,
            discard: bool,
        }
        out {
            overflow: bool,
            in_use: Bits<AW>,
            out_beat: Beat,
            out_valid: bool,
            busy: bool,
        }
        local {
            lost: bool,
            next_write: Bits<AW>,
            after_next: Bits<AW>,
            stored: bool,
            move_on: bool,
            ends: bool,
        }
        reg {
            write_ptr: Bits<AW>,
            start_ptr: Bits<AW>,
            read_ptr: Bits<AW>,
            full: bool,
            spilled: bool,
            overflowed: bool,
            used: Bits<AW>,
            latch_valid: bool,
            front_valid: bool,
            dropping: bool,
        }
        sub {
            ram: Ram<Beat, AW> = Ram::new(RamStyle::Block, true),
        }
    }
}

impl<const AW: usize> PacketFifo<AW> {
    /// A buffer in the memory of choice; `default()` uses block RAM.
    pub fn with_style(style: RamStyle) -> Self {
        Self {
            ram: Ram::new(style, true),
            ..Self::default()
        }
    }
}

impl<const AW: usize> Logic for PacketFifo<AW> {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(
            self,
            clock,
            write_ptr,
            start_ptr,
            read_ptr,
            full,
            spilled,
            overflowed,
            used,
            latch_valid,
            front_valid,
            dropping
        );
        clock!(self, clock, ram);
        // Write side. `start_ptr` is where the packet being written begins; the reader sees what lies before it.
        self.lost.next = self.spilled.q.val() | self.full.q.val();
        self.ram.write.next = self.in_valid.val() & !self.lost.val();
        self.ram.write_addr.next = self.write_ptr.q.val();
        self.ram.write_data.next = self.in_beat.val();
        self.next_write.next = self.write_ptr.q.val();
        self.overflowed.d.next = false;
        if self.in_valid.val() {
            self.spilled.d.next = self.lost.val();
            if !self.lost.val() {
                self.next_write.next = self.write_ptr.q.val() + 1;
            }
            if self.in_beat.val().last {
                self.spilled.d.next = false;
                self.overflowed.d.next = self.lost.val();
                if self.lost.val() | self.in_drop.val() {
                    self.next_write.next = self.start_ptr.q.val();
                } else {
                    self.start_ptr.d.next = self.next_write.val();
                }
            }
        }
        self.write_ptr.d.next = self.next_write.val();
        self.after_next.next = self.next_write.val() + 1;
        self.full.d.next = self.after_next.val() == self.read_ptr.q.val();
        self.used.d.next = self.write_ptr.q.val() - self.read_ptr.q.val();
        self.in_use.next = self.used.q.val();
        self.overflow.next = self.overflowed.q.val();
        self.busy.next = (self.write_ptr.q.val() != self.read_ptr.q.val())
            | self.spilled.q.val()
            | self.latch_valid.q.val()
            | self.front_valid.q.val();
        // Read side: the two read registers of the memory are the output stage.
        self.out_beat.next = self.ram.read_data.val();
        self.out_valid.next = self.front_valid.q.val() & !self.dropping.q.val();
        self.ends.next = self.ram.read_data.val().last;
        self.move_on.next = !self.front_valid.q.val()
            | self.dropping.q.val()
            | self.discard.val()
            | self.out_ready.val();
        self.stored.next = self.read_ptr.q.val() != self.start_ptr.q.val();
        self.ram.read.next = self.move_on.val();
        self.ram.read_addr.next = self.read_ptr.q.val();
        if self.move_on.val() {
            self.latch_valid.d.next = self.stored.val();
            self.front_valid.d.next = self.latch_valid.q.val();
            if self.stored.val() {
                self.read_ptr.d.next = self.read_ptr.q.val() + 1;
            }
        }
        if self.front_valid.q.val() & (self.dropping.q.val() | self.discard.val()) {
            self.dropping.d.next = !self.ends.val();
        }
    }
}
