//! Byte alignment of beat streams: take bytes off the front, put a header in front, move to another byte lane.
//!
//! [`Realign`] and [`Prepend`] are two front ends of one pipeline. A front end turns a packet into steps; each step brings
//! one input beat, rotates it to its place and completes an output beat with what the step before left over.

use super::beat::Beat;
use super::bytes::{ByteSelect, RotateStep};
use super::skid::Skid;
use super::sync_fifo::SyncFifo;
use crate::prelude::*;

/// A beat that may start at a lane other than 0: the packet's bytes are in lanes `from` to `beat.nbytes - 1`.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct LaneBeat {
    pub data: Bits<512>,
    /// One past the last lane in use, 1 to 64.
    pub nbytes: Bits<7>,
    pub last: bool,
    /// The first lane in use; 0 except in the first beat of a packet.
    pub from: Bits<6>,
}

/// What the pipeline does with one input beat.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
struct Step {
    data: Bits<512>,
    /// Byte 0 of `data` goes to this lane; lower lanes come from the step before.
    turn: Bits<6>,
    /// An output beat is complete.
    emit: bool,
    nbytes: Bits<7>,
    last: bool,
    from: Bits<6>,
}

mod pipeline {
    use super::*;

    block! {
        /// Rotates by 1 and 4 bytes, then by 16 bytes and merges, then queues.
        ///
        /// Steps may come only while `room` is high, and up to two after it fell. Latency 5 cycles.
        pub(super) struct AlignPipeline {
            in {
                clock: Clock,
                reset: Bit,
                step: Step,
                step_valid: bool,
                out_ready: bool,
            }
            out {
                room: bool,
                out_beat: LaneBeat,
                out_valid: bool,
                busy: bool,
            }
            local {
                turn_1: Bits<6>,
                turn_2: Bits<6>,
                queued: Bits<4>,
            }
            reg {
                valid_1: bool,
                valid_2: bool,
                valid_3: bool,
                crowded: bool,
            }
            pipe {
                step_1: Step,
                step_2: Step,
                // The rotated data of the step before.
                rest: Bits<512>,
                beat_3: LaneBeat,
            }
            konst {
                high_water: Bits<4> = bits(7),
            }
            sub {
                rotate_1: RotateStep = RotateStep::new(1),
                rotate_4: RotateStep = RotateStep::new(4),
                rotate_16: RotateStep = RotateStep::new(16),
                merge: ByteSelect,
                queue: SyncFifo<LaneBeat, 4>,
            }
        }
    }

    impl Logic for AlignPipeline {
        #[hdl_gen]
        fn update(&mut self) {
            dff_setup!(
                self, clock, valid_1, valid_2, valid_3, crowded, step_1, step_2, rest, beat_3
            );
            clock!(self, clock, queue);
            self.queue.reset.next = self.reset.val();
            comment!("1: register the step");
            self.step_1.d.next = self.step.val();
            self.valid_1.d.next = self.step_valid.val();
            comment!("2: rotate by 0 to 15 bytes");
            self.turn_1.next = self.step_1.q.val().turn;
            self.rotate_1.n.next = self.turn_1.val().get_bits::<2>(0);
            self.rotate_1.i.next = self.step_1.q.val().data;
            self.rotate_4.n.next = self.turn_1.val().get_bits::<2>(2);
            self.rotate_4.i.next = self.rotate_1.o.val();
            self.step_2.d.next = self.step_1.q.val();
            self.step_2.d.next.data = self.rotate_4.o.val();
            self.valid_2.d.next = self.valid_1.q.val();
            comment!("3: rotate by multiples of 16 bytes, complete the rest of the step before");
            self.turn_2.next = self.step_2.q.val().turn;
            self.rotate_16.n.next = self.turn_2.val().get_bits::<2>(4);
            self.rotate_16.i.next = self.step_2.q.val().data;
            self.merge.n.next = bit_cast::<7, 6>(self.turn_2.val());
            self.merge.low.next = self.rest.q.val();
            self.merge.high.next = self.rotate_16.o.val();
            if self.valid_2.q.val() {
                self.rest.d.next = self.rotate_16.o.val();
            }
            self.beat_3.d.next.data = self.merge.o.val();
            self.beat_3.d.next.nbytes = self.step_2.q.val().nbytes;
            self.beat_3.d.next.last = self.step_2.q.val().last;
            self.beat_3.d.next.from = self.step_2.q.val().from;
            self.valid_3.d.next = self.valid_2.q.val() & self.step_2.q.val().emit;
            comment!("4 and 5: queue. It never fills, since steps stop early");
            self.queue.in_data.next = self.beat_3.q.val();
            self.queue.in_valid.next = self.valid_3.q.val();
            self.queue.out_ready.next = self.out_ready.val();
            self.out_beat.next = self.queue.out_data.val();
            self.out_valid.next = self.queue.out_valid.val();
            self.queued.next = self.queue.count.val();
            self.crowded.d.next = self.queued.val() > self.high_water.val();
            self.room.next = !self.crowded.q.val();
            self.busy.next = self.valid_1.q.val()
                | self.valid_2.q.val()
                | self.valid_3.q.val()
                | self.queued.val().any();
        }
    }
}

use pipeline::AlignPipeline;

/// A beat on its way into [`Realign`].
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
struct Arrival {
    data: Bits<512>,
    nbytes: Bits<7>,
    last: bool,
    skip: Bits<7>,
    lane: Bits<6>,
    /// `lane - skip`, two's complement.
    shift: Bits<8>,
}

block! {
    /// Takes `in_skip` bytes off the front of each packet and puts the next byte at lane `in_lane` of the first output
    /// beat.
    ///
    /// - In: `in_beat` (packed), `in_valid`; with the first beat of a packet `in_skip` (0 to 127) and `in_lane`.
    ///   Out: `in_ready`.
    /// - Out: `out_beat`, `out_valid`; in: `out_ready`. Only the first beat of a packet has `from` different from 0. All
    ///   beats but the last end at lane 64. Lanes outside `from..nbytes` are undefined.
    /// - A packet that has no byte after the skipped ones gives no output at all.
    /// - Latency: 6 cycles. Initiation interval: 1; a packet takes at most one cycle more than it has input beats.
    pub struct Realign {
        in {
            clock: Clock,
            reset: Bit,
            in_beat: Beat,
            in_valid: bool,
            in_skip: Bits<7>,
            in_lane: Bits<6>,
            out_ready: bool,
        }
        out {
            in_ready: bool,
            out_beat: LaneBeat,
            out_valid: bool,
            busy: bool,
        }
        local {
            in_shift: Bits<8>,
            shift: Bits<8>,
            skip: Bits<7>,
            turn_now: Bits<6>,
            before_now: Bits<2>,
            lane_now: Bits<6>,
            reach: Bits<8>,
            over: bool,
            past_skip: bool,
            something: bool,
            take: bool,
            last: bool,
            emit: bool,
        }
        reg {
            // Beats of this packet taken so far: none, one, or more.
            second: bool,
            later: bool,
            // The packet has put out a beat.
            begun: bool,
            // The rest of the packet's last beat goes out in this cycle.
            flushing: bool,
        }
        pipe {
            turn: Bits<6>,
            lane: Bits<6>,
            // Output beats that lie wholly before the first byte kept.
            before: Bits<2>,
            skip_low: Bits<7>,
            rest_end: Bits<7>,
            rest_from: Bits<6>,
        }
        konst {
            full: Bits<8> = bits(64),
        }
        sub {
            arrival: Skid<Arrival>,
            pipeline: AlignPipeline,
        }
    }
}

impl Logic for Realign {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(
            self, clock, second, later, begun, flushing, turn, lane, before, skip_low, rest_end,
            rest_from
        );
        clock!(self, clock, arrival, pipeline);
        self.arrival.reset.next = self.reset.val();
        self.pipeline.reset.next = self.reset.val();
        comment!("input register");
        self.in_shift.next =
            bit_cast::<8, 6>(self.in_lane.val()) - bit_cast::<8, 7>(self.in_skip.val());
        self.arrival.in_data.next.data = self.in_beat.val().data;
        self.arrival.in_data.next.nbytes = self.in_beat.val().nbytes;
        self.arrival.in_data.next.last = self.in_beat.val().last;
        self.arrival.in_data.next.skip = self.in_skip.val();
        self.arrival.in_data.next.lane = self.in_lane.val();
        self.arrival.in_data.next.shift = self.in_shift.val();
        self.arrival.in_valid.next = self.in_valid.val();
        self.in_ready.next = self.arrival.in_ready.val();
        self.arrival.out_ready.next = self.pipeline.room.val() & !self.flushing.q.val();
        self.take.next =
            self.arrival.out_valid.val() & self.pipeline.room.val() & !self.flushing.q.val();
        comment!("parameters: of the first beat, or kept");
        self.last.next = self.arrival.out_data.val().last;
        self.turn_now.next = self.turn.q.val();
        self.before_now.next = self.before.q.val();
        self.lane_now.next = self.lane.q.val();
        self.skip.next = self.skip_low.q.val();
        self.shift.next = self.arrival.out_data.val().shift;
        if !self.second.q.val() & !self.later.q.val() {
            self.turn_now.next = self.shift.val().get_bits::<6>(0);
            // floor(shift / 64) is 0, -1 or -2.
            self.before_now.next = 0.into();
            if self.shift.val().get_bit(7) {
                self.before_now.next = 1.into();
                if !self.shift.val().get_bit(6) {
                    self.before_now.next = 2.into();
                }
            }
            self.lane_now.next = self.arrival.out_data.val().lane;
            self.skip.next = self.arrival.out_data.val().skip;
        }
        comment!("where the beat ends, and whether a byte of the packet is kept");
        self.reach.next = bit_cast::<8, 7>(self.arrival.out_data.val().nbytes)
            + bit_cast::<8, 6>(self.turn_now.val());
        self.over.next = self.reach.val() > self.full.val();
        self.past_skip.next =
            self.arrival.out_data.val().nbytes > bit_cast::<7, 6>(self.skip.val().get_bits::<6>(0));
        if self.later.q.val() {
            self.something.next = true;
        } else {
            if self.second.q.val() {
                self.something.next = !self.skip.val().get_bit(6) | self.past_skip.val();
            } else {
                self.something.next = !self.skip.val().get_bit(6) & self.past_skip.val();
            }
        }
        self.emit.next = !self.before_now.val().any() & (!self.last.val() | self.something.val());
        comment!("the step");
        self.pipeline.step.next.data = self.arrival.out_data.val().data;
        self.pipeline.step.next.turn = self.turn_now.val();
        self.pipeline.step.next.emit = self.emit.val();
        self.pipeline.step.next.last = self.last.val() & !self.over.val();
        self.pipeline.step.next.nbytes = 64.into();
        if self.last.val() & !self.over.val() {
            self.pipeline.step.next.nbytes = bit_cast::<7, 8>(self.reach.val());
        }
        self.pipeline.step.next.from = 0.into();
        if !self.begun.q.val() {
            self.pipeline.step.next.from = self.lane_now.val();
        }
        self.pipeline.step_valid.next = self.take.val();
        if self.take.val() {
            self.turn.d.next = self.turn_now.val();
            self.lane.d.next = self.lane_now.val();
            self.skip_low.d.next = self.skip.val();
            self.before.d.next = self.before_now.val();
            if self.before_now.val().any() {
                self.before.d.next = self.before_now.val() - 1;
            }
            self.begun.d.next = self.begun.q.val() | self.emit.val();
            self.second.d.next = !self.second.q.val() & !self.later.q.val();
            self.later.d.next = self.second.q.val() | self.later.q.val();
            self.rest_end.d.next = bit_cast::<7, 8>(self.reach.val() - self.full.val());
            self.rest_from.d.next = 0.into();
            if !self.begun.q.val() & self.before_now.val().any() {
                self.rest_from.d.next = self.lane_now.val();
            }
            if self.last.val() {
                self.second.d.next = false;
                self.later.d.next = false;
                self.begun.d.next = false;
                self.flushing.d.next = self.over.val() & self.something.val();
            }
        }
        comment!("one step more for what the last beat left over");
        if self.flushing.q.val() {
            self.flushing.d.next = false;
            self.pipeline.step_valid.next = true;
            self.pipeline.step.next.turn = self.turn.q.val();
            self.pipeline.step.next.emit = true;
            self.pipeline.step.next.last = true;
            self.pipeline.step.next.nbytes = self.rest_end.q.val();
            self.pipeline.step.next.from = self.rest_from.q.val();
        }
        comment!("output");
        self.out_beat.next = self.pipeline.out_beat.val();
        self.out_valid.next = self.pipeline.out_valid.val();
        self.pipeline.out_ready.next = self.out_ready.val();
        self.busy.next = self.arrival.out_valid.val()
            | self.flushing.q.val()
            | self.second.q.val()
            | self.later.q.val()
            | self.pipeline.busy.val();
    }
}

/// The packet front that [`Prepend`] puts before a payload.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct Header {
    /// The bytes, least significant first.
    pub bytes: Bits<1024>,
    /// How many, 1 to 128.
    pub length: Bits<8>,
    /// A packet of the payload stream follows.
    pub payload: bool,
}

/// Where [`Prepend`] is in a packet.
#[derive(Copy, Clone, Debug, PartialEq, LogicState)]
enum Part {
    Front,
    Back,
    Payload,
    Rest,
}

block! {
    /// Puts a header in front of each payload packet; packets without payload are the header alone.
    ///
    /// - In: `header`, `header_valid` and `payload` (packed), `payload_valid`; out: `header_ready`, `payload_ready`.
    /// - Out: `out_beat` (packed), `out_valid`; in: `out_ready`.
    /// - Latency: 7 cycles. Cycles per packet: one for each started 64 bytes of header, one for each payload beat, one
    ///   more when the packet needs one more beat than the payload. That is at most one cycle more than its output beats.
    pub struct Prepend {
        in {
            clock: Clock,
            reset: Bit,
            header: Header,
            header_valid: bool,
            payload: Beat,
            payload_valid: bool,
            out_ready: bool,
        }
        out {
            header_ready: bool,
            payload_ready: bool,
            out_beat: Beat,
            out_valid: bool,
            busy: bool,
        }
        local {
            front_length: Bits<8>,
            back_length: Bits<8>,
            tail_length: Bits<8>,
            is_tail: bool,
            reach: Bits<8>,
            over: bool,
            last: bool,
        }
        reg {
            part: Part = Part::Front,
        }
        pipe {
            turn: Bits<6>,
            rest_end: Bits<7>,
        }
        konst {
            full: Bits<8> = bits(64),
        }
        sub {
            headers: SyncFifo<Header, 2>,
            payloads: SyncFifo<Beat, 4>,
            pipeline: AlignPipeline,
        }
    }
}

impl Logic for Prepend {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, part, turn, rest_end);
        clock!(self, clock, headers, payloads, pipeline);
        self.headers.reset.next = self.reset.val();
        self.payloads.reset.next = self.reset.val();
        self.pipeline.reset.next = self.reset.val();
        comment!("inputs");
        self.headers.in_data.next = self.header.val();
        self.headers.in_valid.next = self.header_valid.val();
        self.header_ready.next = self.headers.in_ready.val();
        self.headers.out_ready.next = false;
        self.payloads.in_data.next = self.payload.val();
        self.payloads.in_valid.next = self.payload_valid.val();
        self.payload_ready.next = self.payloads.in_ready.val();
        self.payloads.out_ready.next = false;
        comment!("header bytes in this part; the tail part ends the header");
        self.front_length.next = self.headers.out_data.val().length;
        self.back_length.next = self.front_length.val() - self.full.val();
        self.is_tail.next = true;
        self.tail_length.next = self.front_length.val();
        self.pipeline.step.next.data = self.headers.out_data.val().bytes.get_bits::<512>(0);
        if self.part.q.val() == Part::Back {
            self.tail_length.next = self.back_length.val();
            self.pipeline.step.next.data = self.headers.out_data.val().bytes.get_bits::<512>(512);
        } else {
            self.is_tail.next = self.front_length.val() <= self.full.val();
        }
        comment!("payload bytes");
        self.last.next = self.payloads.out_data.val().last;
        self.reach.next = bit_cast::<8, 7>(self.payloads.out_data.val().nbytes)
            + bit_cast::<8, 6>(self.turn.q.val());
        self.over.next = self.reach.val() > self.full.val();
        self.pipeline.step.next.turn = 0.into();
        self.pipeline.step.next.emit = true;
        self.pipeline.step.next.last = false;
        self.pipeline.step.next.nbytes = 64.into();
        self.pipeline.step.next.from = 0.into();
        self.pipeline.step_valid.next = false;
        match self.part.q.val() {
            Part::Payload => {
                self.pipeline.step.next.data = self.payloads.out_data.val().data;
                self.pipeline.step.next.turn = self.turn.q.val();
                self.payloads.out_ready.next = self.pipeline.room.val();
                self.pipeline.step.next.last = self.last.val() & !self.over.val();
                if self.last.val() & !self.over.val() {
                    self.pipeline.step.next.nbytes = bit_cast::<7, 8>(self.reach.val());
                }
                if self.payloads.out_valid.val() & self.pipeline.room.val() {
                    self.pipeline.step_valid.next = true;
                    self.rest_end.d.next = bit_cast::<7, 8>(self.reach.val() - self.full.val());
                    if self.last.val() {
                        self.part.d.next = Part::Front;
                        if self.over.val() {
                            self.part.d.next = Part::Rest;
                        }
                    }
                }
            }
            Part::Rest => {
                self.pipeline.step.next.turn = self.turn.q.val();
                self.pipeline.step.next.last = true;
                self.pipeline.step.next.nbytes = self.rest_end.q.val();
                self.pipeline.step_valid.next = true;
                self.part.d.next = Part::Front;
            }
            _ => {
                self.turn.d.next = bit_cast::<6, 8>(self.tail_length.val());
                if self.is_tail.val() {
                    if self.headers.out_data.val().payload {
                        // A full tail is a beat of its own; a short one waits for the payload.
                        self.pipeline.step.next.emit = self.tail_length.val() == self.full.val();
                    } else {
                        self.pipeline.step.next.last = true;
                        self.pipeline.step.next.nbytes = bit_cast::<7, 8>(self.tail_length.val());
                    }
                }
                if self.headers.out_valid.val() & self.pipeline.room.val() {
                    self.pipeline.step_valid.next = true;
                    self.part.d.next = Part::Back;
                    if self.is_tail.val() {
                        self.headers.out_ready.next = true;
                        self.part.d.next = Part::Front;
                        if self.headers.out_data.val().payload {
                            self.part.d.next = Part::Payload;
                        }
                    }
                }
            }
        }
        comment!("output");
        self.out_beat.next.data = self.pipeline.out_beat.val().data;
        self.out_beat.next.nbytes = self.pipeline.out_beat.val().nbytes;
        self.out_beat.next.last = self.pipeline.out_beat.val().last;
        self.out_valid.next = self.pipeline.out_valid.val();
        self.pipeline.out_ready.next = self.out_ready.val();
        self.busy.next = self.headers.count.val().any()
            | self.payloads.count.val().any()
            | (self.part.q.val() != Part::Front)
            | self.pipeline.busy.val();
    }
}
