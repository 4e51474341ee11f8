//! Carries out what the receiver engine decided: payloads to memory, ACKs, completions of receive WQEs.

use super::types::{AckCmd, Completion, DmaWriteReq, ReadEvent, RxAction};
use crate::leaf::{Beat, Ram, RamStyle, Skid, SyncFifo};
use crate::prelude::*;
use mprdma_spec::config::RECEIVE_WINDOW_LOG2;
use mprdma_spec::descriptor::WcOpcode;
use mprdma_spec::params::ATOMIC_BYTES;
use mprdma_spec::status::WcStatus;

/// What is left of an action when its frame is gone.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
struct Rest {
    qpn: Bits<16>,
    store: bool,
    wsn: Bits<24>,
    imm: Bits<32>,
    byte_len: Bits<32>,
    due: Bits<8>,
    due_wsn: Bits<24>,
    cqn: Bits<16>,
    marker: bool,
    /// For the READ book: PSN, cumulative point, and of a request the address (`wsn`: slot, `byte_len`: length) and an
    /// ATOMIC's operands.
    psn: Bits<24>,
    aack: Bits<24>,
    iova: Bits<64>,
    request: bool,
    atomic: bool,
    swap: bool,
    swap_add: Bits<64>,
    compare: Bits<64>,
    read_tail: bool,
    advances: bool,
    /// Writes asked for up to this action, modulo 256.
    asked: Bits<8>,
}

/// What a receive WQE's completion says about its message.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
struct Kept {
    imm: Bits<32>,
    byte_len: Bits<32>,
}

block! {
    /// - In: `action` of the receiver engine; `frame`, the stored frames in the order of their actions; `written`, one
    ///   pulse per write of this block that the DMA write engine has handed to the bus.
    /// - Out: `request` and `data` for the DMA write engine: the frame as it is, with the header bytes to skip, or one
    ///   beat with the value that an ATOMIC ACK brings, which has no frame; `ack`, after the last beat is handed over;
    ///   `completion`, when every write before it is on the bus, so that software never sees a completion before its data;
    ///   `arrival`, for the READ book, under the same condition: arrivals that READs and ATOMICs wait for, and markers,
    ///   behind the completions before them.
    /// - Latency: 2 cycles from `action` to `ack`, 1 from `frame` to `data`. One beat per cycle, no idle cycle between
    ///   frames; one completion per cycle, one idle cycle before each batch; one event per cycle.
    ///
    /// Immediate and length of a receive WQE wait for its turn in a table of 32 per QP, indexed by WSN: `TW` is
    /// `QPW` + 5.
    pub struct Place[const QPW: usize, const TW: usize][QPW, TW] {
        in {
            clock: Clock,
            reset: Bit,
            action: RxAction,
            action_valid: Bit,
            frame: Beat,
            frame_valid: Bit,
            written: Bit,
            request_ready: Bit,
            data_ready: Bit,
            ack_ready: Bit,
            completion_ready: Bit,
            arrival_ready: Bit,
        }
        out {
            action_ready: Bit,
            frame_ready: Bit,
            request: DmaWriteReq,
            request_valid: Bit,
            data: Beat,
            data_valid: Bit,
            ack: AckCmd,
            ack_valid: Bit,
            completion: Completion,
            completion_valid: Bit,
            arrival: ReadEvent,
            arrival_valid: Bit,
            busy: Bit,
        }
        local {
            head: RxAction,
            present: Bit,
            room: Bit,
            ask: Bit,
            asked_now: Bits<8>,
            flows: Bit,
            value_only: Bit,
            there: Bit,
            ends: Bit,
            beat_goes: Bit,
            done: Bit,
            write_req: DmaWriteReq,
            left_over: Rest,
            rest: Rest,
            rest_present: Bit,
            missing: Bits<8>,
            on_bus: Bit,
            quiet: Bit,
            tells: Bit,
            told: Bit,
            news: ReadEvent,
            read_now: Bit,
            last_read: Bit,
            pops: Bit,
            kept: Kept,
            entry: Completion,
        }
        reg {
            begun: Bit,
            asked: Bits<8>,
            settled: Bits<8>,
            reading: Bit,
            fetched: Bit,
        }
        pipe {
            left: Bits<8>,
            at: Bits<24>,
            index_1: Bits<16>,
            qpn_1: Bits<16>,
            cqn_1: Bits<16>,
        }
        konst {
            success: Bits<8> = bits(WcStatus::Success as u64),
            recv_with_imm: Bits<8> = bits(WcOpcode::RecvRdmaWithImm as u64),
            slot_bits: Bits<3> = bits(RECEIVE_WINDOW_LOG2 as u64),
            last_one: Bits<8> = bits(1),
            most_completions: Bits<4> = bits(12),
            value_bytes: Bits<7> = bits(ATOMIC_BYTES as u64),
        }
        sub {
            actions: SyncFifo<RxAction, 4> = SyncFifo::shallow(),
            frames: Skid<Beat>,
            requests: SyncFifo<DmaWriteReq, 4> = SyncFifo::shallow(),
            acks: SyncFifo<AckCmd, 4> = SyncFifo::shallow(),
            // Up to 63 writes may be on their way to the bus.
            rests: SyncFifo<Rest, 6> = SyncFifo::shallow(),
            events: SyncFifo<ReadEvent, 3> = SyncFifo::shallow(),
            slots: Ram<Kept, TW> = Ram::new(RamStyle::Block, false),
            completions: SyncFifo<Completion, 4> = SyncFifo::shallow(),
        }
    }
}

impl<const QPW: usize, const TW: usize> Logic for Place<QPW, TW> {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(
            self, clock, begun, asked, settled, reading, fetched, left, at, index_1, qpn_1, cqn_1
        );
        clock!(
            self,
            clock,
            actions,
            frames,
            requests,
            acks,
            rests,
            events,
            slots,
            completions
        );
        self.actions.reset.next = self.reset.val();
        self.frames.reset.next = self.reset.val();
        self.requests.reset.next = self.reset.val();
        self.acks.reset.next = self.reset.val();
        self.rests.reset.next = self.reset.val();
        self.completions.reset.next = self.reset.val();
        self.events.reset.next = self.reset.val();
        self.actions.in_data.next = self.action.val();
        self.actions.in_valid.next = self.action_valid.val();
        self.action_ready.next = self.actions.in_ready.val();
        self.frames.in_data.next = self.frame.val();
        self.frames.in_valid.next = self.frame_valid.val();
        self.frame_ready.next = self.frames.in_ready.val();
        self.request.next = self.requests.out_data.val();
        self.request_valid.next = self.requests.out_valid.val();
        self.requests.out_ready.next = self.request_ready.val();
        self.ack.next = self.acks.out_data.val();
        self.ack_valid.next = self.acks.out_valid.val();
        self.acks.out_ready.next = self.ack_ready.val();
        self.completion.next = self.completions.out_data.val();
        self.completion_valid.next = self.completions.out_valid.val();
        self.completions.out_ready.next = self.completion_ready.val();
        self.arrival.next = self.events.out_data.val();
        self.arrival_valid.next = self.events.out_valid.val();
        self.events.out_ready.next = self.arrival_ready.val();

        comment!("the action at hand: ask for its write once, then let its frame through");
        self.head.next = self.actions.out_data.val();
        self.present.next = self.actions.out_valid.val();
        // Both queues lose their room only to the end of an action, so `data_valid` does not fall within a frame.
        self.room.next = self.acks.in_ready.val() & self.rests.in_ready.val();
        self.write_req.next.iova = self.head.val().iova;
        self.write_req.next.length = self.head.val().length;
        self.write_req.next.skip = self.head.val().header;
        self.value_only.next = self.head.val().place & self.head.val().atomic;
        if self.value_only.val() {
            self.write_req.next.skip = bits::<7>(0);
        }
        self.requests.in_data.next = self.write_req.val();
        self.ask.next = self.present.val()
            & self.head.val().place
            & !self.begun.q.val()
            & self.requests.in_ready.val();
        self.requests.in_valid.next = self.ask.val();
        self.asked_now.next = self.asked.q.val();
        if self.ask.val() {
            self.asked_now.next = self.asked.q.val() + 1;
            self.begun.d.next = true;
        }
        self.asked.d.next = self.asked_now.val();
        self.flows.next = self.present.val()
            & self.room.val()
            & self.head.val().place
            & (self.begun.q.val() | self.requests.in_ready.val());
        self.data.next = self.frames.out_data.val();
        if self.value_only.val() {
            self.data.next.data = bit_cast::<512, 64>(self.head.val().swap_add);
            self.data.next.nbytes = self.value_bytes.val();
            self.data.next.last = true;
        }
        self.there.next = self.frames.out_valid.val() | self.value_only.val();
        self.ends.next = self.frames.out_data.val().last | self.value_only.val();
        self.data_valid.next = self.flows.val() & self.there.val();
        self.beat_goes.next = self.there.val()
            & ((self.flows.val() & self.data_ready.val())
                | (self.present.val()
                    & self.room.val()
                    & self.head.val().discard
                    & !self.head.val().place));
        self.frames.out_ready.next = self.beat_goes.val() & !self.value_only.val();

        comment!("its end: the ACK, and what is left to do");
        self.done.next = self.present.val() & self.room.val();
        if self.head.val().place | self.head.val().discard {
            self.done.next = self.beat_goes.val() & self.ends.val();
        }
        self.actions.out_ready.next = self.done.val();
        if self.done.val() {
            self.begun.d.next = false;
        }
        self.acks.in_data.next = self.head.val().ack;
        self.acks.in_valid.next = self.done.val() & self.head.val().ack_valid;
        self.left_over.next.qpn = self.head.val().qpn;
        self.left_over.next.store = self.head.val().store;
        self.left_over.next.wsn = self.head.val().wsn;
        self.left_over.next.imm = self.head.val().imm;
        self.left_over.next.byte_len = self.head.val().byte_len;
        self.left_over.next.due = self.head.val().due;
        self.left_over.next.due_wsn = self.head.val().due_wsn;
        self.left_over.next.cqn = self.head.val().cqn;
        self.left_over.next.marker = self.head.val().marker;
        self.left_over.next.psn = self.head.val().ack.sack;
        self.left_over.next.aack = self.head.val().ack.aack;
        self.left_over.next.iova = self.head.val().iova;
        self.left_over.next.request = self.head.val().request;
        self.left_over.next.atomic = self.head.val().request & self.head.val().atomic;
        self.left_over.next.swap = self.head.val().swap;
        self.left_over.next.swap_add = self.head.val().swap_add;
        self.left_over.next.compare = self.head.val().compare;
        self.left_over.next.read_tail = self.head.val().read_tail;
        self.left_over.next.advances = self.head.val().advances;
        self.left_over.next.asked = self.asked_now.val();
        self.rests.in_data.next = self.left_over.val();
        // A plain write enters too: it bounds the distance between the counts of writes.
        self.rests.in_valid.next = self.done.val()
            & (self.head.val().place
                | self.head.val().store
                | self.head.val().due.any()
                | self.head.val().request
                | self.head.val().read_tail
                | self.head.val().advances
                | self.head.val().marker);

        comment!("the rest: keep immediate and length, then the completions that are due, then the READ book");
        if self.written.val() {
            self.settled.d.next = self.settled.q.val() + 1;
        }
        self.rest.next = self.rests.out_data.val();
        self.rest_present.next = self.rests.out_valid.val();
        self.missing.next = self.rest.val().asked - self.settled.q.val();
        self.on_bus.next = !self.missing.val().any() | self.missing.val().get_bit(7);
        self.quiet.next =
            self.on_bus.val() & !self.completions.count.val().any() & !self.fetched.q.val();
        self.kept.next.imm = self.rest.val().imm;
        self.kept.next.byte_len = self.rest.val().byte_len;
        self.slots.write.next =
            self.rest_present.val() & self.rest.val().store & !self.reading.q.val();
        self.slots.write_addr.next = (bit_cast::<TW, 16>(self.rest.val().qpn)
            << self.slot_bits.val())
            | bit_cast::<TW, 5>(self.rest.val().wsn.get_bits::<5>(0));
        self.slots.write_data.next = self.kept.val();
        self.slots.read.next = true;
        self.slots.read_addr.next = (bit_cast::<TW, 16>(self.rest.val().qpn)
            << self.slot_bits.val())
            | bit_cast::<TW, 5>(self.at.q.val().get_bits::<5>(0));
        self.read_now.next = self.reading.q.val()
            & self.on_bus.val()
            & self.events.in_ready.val()
            & (self.completions.count.val() < self.most_completions.val());
        self.last_read.next = self.read_now.val() & (self.left.q.val() == self.last_one.val());
        if self.reading.q.val() {
            if self.read_now.val() {
                self.at.d.next = self.at.q.val() + 1;
                self.left.d.next = self.left.q.val() - 1;
                self.reading.d.next = !self.last_read.val();
            }
        } else {
            self.at.d.next = self.rest.val().due_wsn;
            self.left.d.next = self.rest.val().due;
            self.reading.d.next = self.rest_present.val() & self.rest.val().due.any();
        }
        self.tells.next = self.rest.val().request
            | self.rest.val().read_tail
            | self.rest.val().advances
            | self.rest.val().marker;
        // Writes of later actions need not be on the bus, and a plain write does not wait for its own.
        self.told.next = !self.tells.val()
            | (self.on_bus.val()
                & self.events.in_ready.val()
                & (!self.rest.val().marker | self.quiet.val()));
        self.pops.next = self.last_read.val()
            | (!self.reading.q.val()
                & self.rest_present.val()
                & !self.rest.val().due.any()
                & self.told.val());
        self.rests.out_ready.next = self.pops.val();
        self.news.next.qpn = self.rest.val().qpn;
        self.news.next.aack = self.rest.val().aack;
        self.news.next.request = self.rest.val().request;
        self.news.next.tail = self.rest.val().read_tail;
        self.news.next.psn = self.rest.val().psn;
        self.news.next.slot = self.rest.val().wsn.get_bits::<4>(0);
        self.news.next.iova = self.rest.val().iova;
        self.news.next.length = self.rest.val().byte_len;
        self.news.next.atomic = self.rest.val().atomic;
        self.news.next.swap = self.rest.val().swap;
        self.news.next.swap_add = self.rest.val().swap_add;
        self.news.next.compare = self.rest.val().compare;
        self.news.next.marker = self.rest.val().marker;
        self.events.in_data.next = self.news.val();
        self.events.in_valid.next = self.pops.val() & self.tells.val();

        comment!("one completion");
        self.fetched.d.next = self.read_now.val();
        self.index_1.d.next = self.at.q.val().get_bits::<16>(0);
        self.qpn_1.d.next = self.rest.val().qpn;
        self.cqn_1.d.next = self.rest.val().cqn;
        self.entry.next.cqn = self.cqn_1.q.val();
        self.entry.next.qpn = self.qpn_1.q.val();
        self.entry.next.wqe_index = self.index_1.q.val();
        self.entry.next.byte_len = self.slots.read_data.val().byte_len;
        self.entry.next.imm = self.slots.read_data.val().imm;
        self.entry.next.with_imm = true;
        self.entry.next.status = self.success.val();
        self.entry.next.opcode = self.recv_with_imm.val();
        self.completions.in_data.next = self.entry.val();
        self.completions.in_valid.next = self.fetched.q.val();

        self.busy.next = self.actions.count.val().any()
            | self.frames.out_valid.val()
            | self.requests.count.val().any()
            | self.acks.count.val().any()
            | self.rests.count.val().any()
            | self.completions.count.val().any()
            | self.events.count.val().any()
            | self.fetched.q.val()
            | (self.asked.q.val() != self.settled.q.val());
    }
}
