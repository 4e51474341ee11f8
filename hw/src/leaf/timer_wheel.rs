//! One-shot timers, one per queue pair.

use super::ram::{Ram, RamStyle};
use super::sync_fifo::SyncFifo;
use crate::prelude::*;

/// Starts the timer of a queue pair.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct TimerArm {
    pub qpn: Bits<16>,
    /// In ticks; 0 counts as 1.
    pub delay: Bits<32>,
}

/// A list head or a list link: the queue pair that follows, if any.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
struct Link {
    some: bool,
    qpn: Bits<16>,
}

/// A [`TimerArm`] whose delay is cut to the size of the wheel.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
struct CutArm {
    qpn: Bits<16>,
    delay: Bits<16>,
}

/// The memory access under way. Each takes two cycles: read, then write.
#[derive(Copy, Clone, Debug, PartialEq, LogicState)]
enum Access {
    /// Clears one slot per cycle, after reset.
    Clear,
    /// Starts the next access.
    Start,
    /// Puts a queue pair at the head of its slot's list.
    Arm,
    /// Takes the list of the next slot.
    Slot,
    /// Fires the head of the list taken.
    Fire,
}

block! {
    /// A timer wheel of 2^`SLOTW` slots for 2^`QPW` queue pairs, with linked lists in RAM.
    ///
    /// - In: `arm`, `arm_valid`; out: `arm_ready`. A queue pair is armed again only after it fired: the user keeps track.
    /// - In: `tick`, one cycle per tick; ticks need not be evenly spaced.
    /// - Out: `fire`, `fire_valid`; in: `fire_ready`. A timer fires after `delay` ticks, but not later than 2^`SLOTW` - 1
    ///   slots after the slot being opened: for longer times the user compares and arms again.
    /// - `init_done` rises when the slots are cleared after reset, 2^`SLOTW` cycles; arms wait until then.
    /// - `busy`: a timer is armed or about to fire.
    /// - Initiation interval: 2 cycles per arm, 4 when slots are opened or timers fire meanwhile. Latency from the tick to
    ///   the first `fire_valid`: 5 cycles, then one timer every 2 cycles, or 4 when arms come in. Ticks that find the wheel 2^`SLOTW` - 1
    ///   slots behind are lost.
    pub struct TimerWheel[const QPW: usize, const SLOTW: usize][QPW, SLOTW] {
        in {
            clock: Clock,
            reset: Bit,
            arm: TimerArm,
            arm_valid: bool,
            tick: bool,
            fire_ready: bool,
        }
        out {
            arm_ready: bool,
            fire: Bits<16>,
            fire_valid: bool,
            init_done: bool,
            busy: bool,
        }
        local {
            asks: Bits<32>,
            arming: CutArm,
            distance: Bits<16>,
            arm_slot: Bits<SLOTW>,
            next_slot: Bits<SLOTW>,
            behind: Bits<SLOTW>,
            can_fire: bool,
            wheel_turn: bool,
            left: Bits<16>,
        }
        reg {
            access: Access = Access::Clear,
            // The slot opened last.
            slot: Bits<SLOTW>,
            // Ticks whose slots are not opened yet.
            backlog: Bits<SLOTW>,
            // Head of the list taken from the slot.
            head: Link,
            fired: bool,
            // The last access was an arm, so the wheel goes first.
            armed_last: bool,
            armed: Bits<16>,
            ready: bool,
        }
        pipe {
            write_slot: Bits<SLOTW>,
            write_qpn: Bits<16>,
            fire_qpn: Bits<16>,
        }
        konst {
            longest: Bits<32> = bits((1 << SLOTW) - 1),
            longest_cut: Bits<16> = bits((1 << SLOTW) - 1),
        }
        sub {
            arms: SyncFifo<CutArm, 4>,
            heads: Ram<Link, SLOTW> = Ram::new(RamStyle::Block, false),
            links: Ram<Link, QPW> = Ram::new(RamStyle::Block, false),
        }
    }
}

impl<const QPW: usize, const SLOTW: usize> Logic for TimerWheel<QPW, SLOTW> {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(
            self, clock, access, slot, backlog, head, fired, armed_last, armed, ready, write_slot,
            write_qpn, fire_qpn
        );
        clock!(self, clock, arms, heads, links);
        self.arms.reset.next = self.reset.val();
        comment!("input queue, with the delay cut to the size of the wheel");
        self.asks.next = self.arm.val().delay;
        self.arms.in_data.next.qpn = self.arm.val().qpn;
        self.arms.in_data.next.delay = bit_cast::<16, 32>(self.asks.val());
        if self.asks.val() > self.longest.val() {
            self.arms.in_data.next.delay = self.longest_cut.val();
        }
        if !self.asks.val().any() {
            self.arms.in_data.next.delay = 1.into();
        }
        self.arms.in_valid.next = self.arm_valid.val();
        self.arm_ready.next = self.arms.in_ready.val();
        self.arms.out_ready.next = false;
        comment!("the slot of the arm at hand");
        self.arming.next = self.arms.out_data.val();
        self.distance.next = self.arming.val().delay + bit_cast::<16, SLOTW>(self.backlog.q.val());
        if self.distance.val() > self.longest_cut.val() {
            self.distance.next = self.longest_cut.val();
        }
        self.arm_slot.next = self.slot.q.val() + bit_cast::<SLOTW, 16>(self.distance.val());
        self.next_slot.next = self.slot.q.val() + 1;
        comment!("time");
        self.behind.next = self.backlog.q.val();
        if self.tick.val() & !self.backlog.q.val().all() {
            self.behind.next = self.backlog.q.val() + 1;
        }
        self.backlog.d.next = self.behind.val();
        comment!("output register");
        self.fire.next = self.fire_qpn.q.val();
        self.fire_valid.next = self.fired.q.val();
        if self.fire_ready.val() {
            self.fired.d.next = false;
        }
        self.can_fire.next = self.head.q.val().some & (!self.fired.q.val() | self.fire_ready.val());
        self.wheel_turn.next =
            self.can_fire.val() | (!self.head.q.val().some & self.backlog.q.val().any());
        self.left.next = self.armed.q.val();
        comment!("memory accesses");
        self.heads.read.next = true;
        self.heads.read_addr.next = self.next_slot.val();
        self.heads.write.next = false;
        self.heads.write_addr.next = self.write_slot.q.val();
        self.heads.write_data.next.some = false;
        self.heads.write_data.next.qpn = self.write_qpn.q.val();
        self.links.read.next = true;
        self.links.read_addr.next = bit_cast::<QPW, 16>(self.head.q.val().qpn);
        self.links.write.next = false;
        self.links.write_addr.next = bit_cast::<QPW, 16>(self.write_qpn.q.val());
        self.links.write_data.next = self.heads.read_data.val();
        match self.access.q.val() {
            Access::Clear => {
                self.heads.write.next = true;
                self.heads.write_addr.next = self.slot.q.val();
                self.slot.d.next = self.next_slot.val();
                self.backlog.d.next = 0.into();
                if self.slot.q.val().all() {
                    self.access.d.next = Access::Start;
                    self.ready.d.next = true;
                }
            }
            Access::Start => {
                self.write_slot.d.next = self.next_slot.val();
                if self.arms.out_valid.val() & !(self.armed_last.q.val() & self.wheel_turn.val()) {
                    self.arms.out_ready.next = true;
                    self.heads.read_addr.next = self.arm_slot.val();
                    self.write_slot.d.next = self.arm_slot.val();
                    self.write_qpn.d.next = self.arming.val().qpn;
                    self.left.next = self.armed.q.val() + 1;
                    self.armed_last.d.next = true;
                    self.access.d.next = Access::Arm;
                } else {
                    self.armed_last.d.next = false;
                    if self.can_fire.val() {
                        self.access.d.next = Access::Fire;
                    } else {
                        if !self.head.q.val().some & self.backlog.q.val().any() {
                            self.access.d.next = Access::Slot;
                        }
                    }
                }
            }
            Access::Arm => {
                self.heads.write.next = true;
                self.heads.write_data.next.some = true;
                self.links.write.next = true;
                self.access.d.next = Access::Start;
            }
            Access::Slot => {
                self.heads.write.next = true;
                self.head.d.next = self.heads.read_data.val();
                self.slot.d.next = self.next_slot.val();
                self.backlog.d.next = self.behind.val() - 1;
                self.access.d.next = Access::Start;
            }
            _ => {
                self.fire_qpn.d.next = self.head.q.val().qpn;
                self.fired.d.next = true;
                self.head.d.next = self.links.read_data.val();
                self.left.next = self.armed.q.val() - 1;
                self.access.d.next = Access::Start;
            }
        }
        self.armed.d.next = self.left.val();
        self.init_done.next = self.ready.q.val();
        self.busy.next =
            self.armed.q.val().any() | self.fired.q.val() | self.arms.count.val().any();
    }
}
