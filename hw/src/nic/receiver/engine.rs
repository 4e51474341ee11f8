//! The pipeline of the receiver engine.

use super::records::{
    Conditions, Distances, ReceiverFields, ReceiverState, ReceiverStatus, Verdict,
};
use crate::leaf::{Pack, Ram, RamStyle, SyncFifo, Unpack};
use crate::nic::rx_classify::{KIND_DATA, KIND_DISCARD, KIND_DOORBELL, KIND_ERROR};
use crate::nic::types::{AckCmd, CfgReq, QpError, ReceiverNote, RxAction, RxEvent};
use crate::prelude::*;
use mprdma_spec::command::{Opcode, QpState};
use mprdma_spec::params::ATOMIC_BYTES;
use mprdma_spec::status::WcStatus;
use mprdma_spec::wire::aeth::{Nak, Syndrome};
use mprdma_spec::wire::bth::opcode;

block! {
    /// Protocol section 3 for 2^`QPW` QPs with windows of `L` slots (64 or 128).
    ///
    /// - In: `rx` (packets, doorbells, errors in order of arrival), the configuration bus.
    /// - Out: `action` for the placement block, one per packet and discard and per destroyed QP (marker); `error` (the
    ///   QP must flush its send side) and `access` (why) when a peer broke the rules; `cfg_result`, the receiver half
    ///   of `qp_status` in the cycle of `cfg_done`; pulses `cnt_…`; `note`, what a packet did, for telemetry;
    ///   `init_done`, `busy`.
    /// - `wb_…` shows every write-back, for traces and lockstep tests.
    /// - Pipeline: S0 pick an event whose QP is in no stage, read; S1 distances; S2 conditions; S3 decide, fill the slot;
    ///   S4 leading run; S5 encode it; S6 slide; S7 write back, act. One event per cycle over different QPs, one per 8
    ///   cycles for the same QP. An event whose QP is in the pipe holds back those behind it: actions keep the order of
    ///   arrival, as the payload FIFO does.
    pub struct ReceiverEngine[const QPW: usize, const L: usize][QPW, L] {
        in {
            clock: Clock,
            reset: Bit,
            rx: RxEvent,
            rx_valid: Bit,
            cfg: CfgReq,
            cfg_valid: Bit,
            action_ready: Bit,
            error_ready: Bit,
            access_ready: Bit,
        }
        out {
            rx_ready: Bit,
            action: RxAction,
            action_valid: Bit,
            error: QpError,
            error_valid: Bit,
            access: QpError,
            access_valid: Bit,
            cfg_done: Bit,
            cfg_result: Bits<512>,
            init_done: Bit,
            busy: Bit,
            cnt_no_qp: Bit,
            cnt_out_of_order: Bit,
            cnt_duplicate: Bit,
            cnt_out_of_window: Bit,
            cnt_sync_nak: Bit,
            cnt_ce: Bit,
            cnt_access: Bit,
            cnt_rnr: Bit,
            note: ReceiverNote,
            note_valid: Bit,
            wb_valid: Bit,
            wb_qpn: Bits<16>,
            wb_state: ReceiverState,
            wb_hi: Bits<128>,
            wb_lo: Bits<128>,
        }
        local {
            head: RxEvent,
            number: Bits<16>,
            entry: Bits<QPW>,
            in_pipe: Bit,
            room: Bit,
            take_cfg: Bit,
            take_rx: Bit,
            loaded: ReceiverState,
            found: Distances,
            operation: Bits<5>,
            is_atomic: Bit,
            is_atomic_ack: Bit,
            first: Bits<24>,
            offset_wide: Bits<24>,
            cond: Conditions,
            index: Bits<7>,
            map_2: Bits<128>,
            picked: Bits<128>,
            length_good: Bit,
            wsn_missing: Bit,
            read_length: Bits<32>,
            same_length: Bit,
            right_held: Bit,
            reachable: Bit,
            verdict: Verdict,
            judged: Bit,
            open: Bit,
            good: Bit,
            data_3: Bit,
            fill_hi: Bit,
            fill_lo: Bit,
            filled: Bits<128>,
            plus: Bits<128>,
            run: Bits<8>,
            run_hi: Bits<128>,
            run_both: Bits<128>,
            a1: Bits<128>,
            a2: Bits<128>,
            b1: Bits<128>,
            b2: Bits<128>,
            c3: Bits<128>,
            c4: Bits<128>,
            c5: Bits<128>,
            d3: Bits<128>,
            d4: Bits<128>,
            d5: Bits<128>,
            stored: ReceiverState,
            stored_hi: Bits<128>,
            stored_lo: Bits<128>,
            answer: AckCmd,
            act: RxAction,
            acts: Bit,
            failure: QpError,
            cause: QpError,
            shift: Bits<4>,
            creates: Bit,
            modifies: Bit,
            queries: Bit,
            destroys: Bit,
            on_packet: Bit,
            brings_value: Bit,
            distance: Bits<24>,
        }
        reg {
            clearing: Bits<QPW>,
            ready: Bit,
            served: Bit,
            answered: Bit,
            valid_1: Bit,
            valid_2: Bit,
            valid_3: Bit,
            valid_4: Bit,
            valid_5: Bit,
            valid_6: Bit,
            valid_7: Bit,
            pulses: Verdict,
            noted: Bit,
        }
        pipe {
            cfg_1: Bit,
            cfg_2: Bit,
            cfg_3: Bit,
            cfg_4: Bit,
            cfg_5: Bit,
            cfg_6: Bit,
            cfg_7: Bit,
            event_1: RxEvent,
            event_2: RxEvent,
            event_3: RxEvent,
            event_4: RxEvent,
            event_5: RxEvent,
            event_6: RxEvent,
            event_7: RxEvent,
            state_2: ReceiverState,
            state_3: ReceiverState,
            state_4: ReceiverState,
            state_5: ReceiverState,
            state_6: ReceiverState,
            state_7: ReceiverState,
            hi_2: Bits<128>,
            lo_2: Bits<128>,
            hi_3: Bits<128>,
            lo_3: Bits<128>,
            hi_4: Bits<128>,
            lo_4: Bits<128>,
            hi_5: Bits<128>,
            lo_5: Bits<128>,
            hi_6: Bits<128>,
            lo_6: Bits<128>,
            hi_7: Bits<128>,
            lo_7: Bits<128>,
            dist_2: Distances,
            cond_3: Conditions,
            slot_3: Bits<128>,
            verdict_4: Verdict,
            verdict_5: Verdict,
            verdict_6: Verdict,
            verdict_7: Verdict,
            run_5: Bits<128>,
            stop_5: Bits<128>,
            run_6: Bits<8>,
            tails_6: Bits<128>,
            dues_6: Bits<128>,
            run_7: Bits<8>,
            tails_7: Bits<8>,
            dues_7: Bits<8>,
            status: Bits<512>,
            last_note: ReceiverNote,
        }
        konst {
            create_qp: Bits<4> = bits(Opcode::CreateQp as u64),
            modify_qp: Bits<4> = bits(Opcode::ModifyQp as u64),
            query_qp: Bits<4> = bits(Opcode::QueryQp as u64),
            destroy_qp: Bits<4> = bits(Opcode::DestroyQp as u64),
            kind_data: Bits<2> = bits(KIND_DATA),
            kind_discard: Bits<2> = bits(KIND_DISCARD),
            kind_doorbell: Bits<2> = bits(KIND_DOORBELL),
            kind_error: Bits<2> = bits(KIND_ERROR),
            rtr: Bits<4> = bits(QpState::Rtr as u64),
            rts: Bits<4> = bits(QpState::Rts as u64),
            in_error: Bits<4> = bits(QpState::Error as u64),
            in_reset: Bits<4> = bits(QpState::Reset as u64),
            slots: Bits<24> = bits(L as u64),
            receive_window: Bits<24> = bits(1 << mprdma_spec::config::RECEIVE_WINDOW_LOG2),
            half_16: Bits<16> = bits(1 << 15),
            smallest_mtu: Bits<13> = bits(128),
            op_first: Bits<5> = bits(operation(opcode::MP_WRITE_FIRST)),
            op_middle: Bits<5> = bits(operation(opcode::MP_WRITE_MIDDLE)),
            op_last: Bits<5> = bits(operation(opcode::MP_WRITE_LAST)),
            op_last_imm: Bits<5> = bits(operation(opcode::MP_WRITE_LAST_IMM)),
            op_only_imm: Bits<5> = bits(operation(opcode::MP_WRITE_ONLY_IMM)),
            op_request: Bits<5> = bits(operation(opcode::MP_READ_REQUEST)),
            op_response_first: Bits<5> = bits(operation(opcode::MP_READ_RESPONSE_FIRST)),
            op_response_middle: Bits<5> = bits(operation(opcode::MP_READ_RESPONSE_MIDDLE)),
            op_response_last: Bits<5> = bits(operation(opcode::MP_READ_RESPONSE_LAST)),
            op_response_only: Bits<5> = bits(operation(opcode::MP_READ_RESPONSE_ONLY)),
            op_atomic_ack: Bits<5> = bits(operation(opcode::MP_ATOMIC_ACK)),
            op_swap: Bits<5> = bits(operation(opcode::MP_COMPARE_SWAP)),
            op_add: Bits<5> = bits(operation(opcode::MP_FETCH_ADD)),
            atomic_bytes: Bits<13> = bits(ATOMIC_BYTES as u64),
            one_slot: Bits<128> = bits(1),
            one_32: Bits<32> = bits(1),
            none: Bits<128> = bits(0),
            m1: Bits<128> = repeated(0x55),
            m2: Bits<128> = repeated(0x33),
            m4: Bits<128> = repeated(0x0f),
            m8: Bits<128> = repeated_16(0x00ff),
            m16: Bits<128> = crate::leaf::beat::bits_of_bytes(&0x0000_ffff_0000_ffff_0000_ffff_0000_ffff_u128.to_le_bytes()),
            m32: Bits<128> = crate::leaf::beat::bits_of_bytes(&0x0000_0000_ffff_ffff_0000_0000_ffff_ffff_u128.to_le_bytes()),
            m64: Bits<128> = crate::leaf::beat::bits_of_bytes(&u128::from(u64::MAX).to_le_bytes()),
            no_credit_limit: Bits<8> = bits(u64::from(Syndrome::ACK.byte())),
            syndrome_rnr: Bits<8> = bits(u64::from(Syndrome::Rnr(1).byte())),
            syndrome_invalid: Bits<8> = bits(u64::from(Syndrome::Nak(Nak::InvalidRequest).byte())),
            syndrome_access: Bits<8> = bits(u64::from(Syndrome::Nak(Nak::RemoteAccess).byte())),
            flushed: Bits<8> = bits(WcStatus::WorkRequestFlushed as u64),
            access_status: Bits<8> = bits(WcStatus::RemoteAccessError as u64),
            invalid_status: Bits<8> = bits(WcStatus::RemoteInvalidRequest as u64),
            most_actions: Bits<5> = bits(16),
            most_errors: Bits<4> = bits(6),
            blank: ReceiverState = ReceiverState::default(),
            blank_event: RxEvent = RxEvent::default(),
            blank_verdict: Verdict = Verdict::default(),
        }
        sub {
            fields: Unpack<ReceiverFields, 1024> = Unpack::default(),
            report: Pack<ReceiverStatus, 1024> = Pack::default(),
            states: Ram<ReceiverState, QPW> = Ram::new(RamStyle::Block, false),
            plane_hi: Ram<Bits<L>, QPW> = Ram::new(RamStyle::Block, false),
            plane_lo: Ram<Bits<L>, QPW> = Ram::new(RamStyle::Block, false),
            events: SyncFifo<RxEvent, 4> = SyncFifo::shallow(),
            actions: SyncFifo<RxAction, 5> = SyncFifo::shallow(),
            errors: SyncFifo<QpError, 4> = SyncFifo::shallow(),
            accesses: SyncFifo<QpError, 4> = SyncFifo::shallow(),
        }
    }
}

/// The operation in a BTH opcode: its low five bits.
fn operation(opcode: u8) -> u64 {
    u64::from(opcode & 0x1f)
}

fn repeated(byte: u8) -> Bits<128> {
    crate::leaf::beat::bits_of_bytes(&[byte; 16])
}

fn repeated_16(word: u16) -> Bits<128> {
    let bytes: Vec<u8> = (0..8).flat_map(|_| word.to_le_bytes()).collect();
    crate::leaf::beat::bits_of_bytes(&bytes)
}

impl<const QPW: usize, const L: usize> Logic for ReceiverEngine<QPW, L> {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(
            self, clock, clearing, ready, served, answered, valid_1, valid_2, valid_3, valid_4,
            valid_5, valid_6, valid_7, pulses, cfg_1, cfg_2, cfg_3, cfg_4, cfg_5, cfg_6, cfg_7,
            event_1, event_2, event_3, event_4, event_5, event_6, event_7, state_2, state_3,
            state_4, state_5, state_6, state_7, hi_2, lo_2, hi_3, lo_3, hi_4, lo_4, hi_5, lo_5,
            hi_6, lo_6, hi_7, lo_7, dist_2, cond_3, slot_3, verdict_4, verdict_5, verdict_6,
            verdict_7, run_5, stop_5, run_6, tails_6, dues_6, run_7, tails_7, dues_7, status,
            noted, last_note
        );
        clock!(self, clock, states, plane_hi, plane_lo, events, actions, errors, accesses);
        self.events.reset.next = self.reset.val();
        self.actions.reset.next = self.reset.val();
        self.errors.reset.next = self.reset.val();
        self.accesses.reset.next = self.reset.val();
        self.events.in_data.next = self.rx.val();
        self.events.in_valid.next = self.rx_valid.val();
        self.rx_ready.next = self.events.in_ready.val();
        self.action.next = self.actions.out_data.val();
        self.action_valid.next = self.actions.out_valid.val();
        self.actions.out_ready.next = self.action_ready.val();
        self.error.next = self.errors.out_data.val();
        self.error_valid.next = self.errors.out_valid.val();
        self.errors.out_ready.next = self.error_ready.val();
        self.access.next = self.accesses.out_data.val();
        self.access_valid.next = self.accesses.out_valid.val();
        self.accesses.out_ready.next = self.access_ready.val();

        comment!("S0: pick an event whose QP is in no stage; commands go first");
        self.head.next = self.events.out_data.val();
        self.take_cfg.next = self.cfg_valid.val() & !self.served.q.val() & self.ready.q.val();
        self.number.next = self.head.val().qpn;
        if self.take_cfg.val() {
            self.number.next = self.cfg.val().index.get_bits::<16>(0);
        }
        // The entry, not the QPN: a frame to throw away may carry a QPN beyond the table.
        self.entry.next = self.number.val().get_bits::<QPW>(0);
        self.in_pipe.next = (self.valid_1.q.val()
            & (self.event_1.q.val().qpn.get_bits::<QPW>(0) == self.entry.val()))
            | (self.valid_2.q.val()
                & (self.event_2.q.val().qpn.get_bits::<QPW>(0) == self.entry.val()))
            | (self.valid_3.q.val()
                & (self.event_3.q.val().qpn.get_bits::<QPW>(0) == self.entry.val()))
            | (self.valid_4.q.val()
                & (self.event_4.q.val().qpn.get_bits::<QPW>(0) == self.entry.val()))
            | (self.valid_5.q.val()
                & (self.event_5.q.val().qpn.get_bits::<QPW>(0) == self.entry.val()))
            | (self.valid_6.q.val()
                & (self.event_6.q.val().qpn.get_bits::<QPW>(0) == self.entry.val()))
            | (self.valid_7.q.val()
                & (self.event_7.q.val().qpn.get_bits::<QPW>(0) == self.entry.val()));
        self.room.next = (self.actions.count.val() < self.most_actions.val())
            & (self.errors.count.val() < self.most_errors.val())
            & (self.accesses.count.val() < self.most_errors.val())
            & !self.in_pipe.val();
        self.take_rx.next = self.events.out_valid.val()
            & self.ready.q.val()
            & !self.take_cfg.val()
            & self.room.val();
        self.events.out_ready.next = self.take_rx.val();
        if !self.cfg_valid.val() {
            self.served.d.next = false;
        } else if self.take_cfg.val() & self.room.val() {
            self.served.d.next = true;
        }
        self.event_1.d.next = self.head.val();
        if self.take_cfg.val() {
            self.event_1.d.next = self.blank_event.val();
            self.event_1.d.next.qpn = self.number.val();
        }
        self.cfg_1.d.next = self.take_cfg.val();
        self.valid_1.d.next = self.take_rx.val() | (self.take_cfg.val() & self.room.val());
        self.states.read.next = true;
        self.states.read_addr.next = self.entry.val();
        self.plane_hi.read.next = true;
        self.plane_hi.read_addr.next = self.entry.val();
        self.plane_lo.read.next = true;
        self.plane_lo.read_addr.next = self.entry.val();

        comment!("S1: distances");
        self.loaded.next = self.states.read_data.val();
        self.offset_wide.next = bit_cast::<24, 16>(self.event_1.q.val().offset);
        self.first.next = self.event_1.q.val().psn - self.offset_wide.val();
        self.operation.next = self.event_1.q.val().opcode.get_bits::<5>(0);
        self.is_atomic.next = (self.operation.val() == self.op_swap.val())
            | (self.operation.val() == self.op_add.val());
        self.is_atomic_ack.next = self.operation.val() == self.op_atomic_ack.val();
        self.found.next.is_request =
            (self.operation.val() == self.op_request.val()) | self.is_atomic.val();
        self.found.next.is_response = ((self.operation.val() >= self.op_response_first.val())
            & (self.operation.val() <= self.op_response_only.val()))
            | self.is_atomic_ack.val();
        self.found.next.is_atomic = self.is_atomic.val() | self.is_atomic_ack.val();
        self.found.next.receives = ((self.loaded.val().state == self.rtr.val())
            | (self.loaded.val().state == self.rts.val()))
            & (self.event_1.q.val().pkey == self.loaded.val().pkey);
        self.found.next.ahead = self.event_1.q.val().psn - self.loaded.val().rcv_nxt;
        self.found.next.first_ahead = self.first.val() - self.loaded.val().rcv_nxt;
        self.found.next.posted =
            self.loaded.val().rq_producer - self.event_1.q.val().wsn.get_bits::<16>(0);
        self.found.next.wsn_ahead = self.event_1.q.val().wsn - self.loaded.val().due_wsn;
        self.found.next.mtu_bytes = self.smallest_mtu.val() << self.loaded.val().mtu;
        self.found.next.is_middle = (self.operation.val() == self.op_first.val())
            | (self.operation.val() == self.op_middle.val())
            | (self.operation.val() == self.op_response_first.val())
            | (self.operation.val() == self.op_response_middle.val());
        self.found.next.is_last = (self.operation.val() == self.op_last.val())
            | (self.operation.val() == self.op_last_imm.val())
            | (self.operation.val() == self.op_response_last.val());
        self.found.next.is_tail = (self.operation.val() >= self.op_last.val())
            & (self.operation.val() != self.op_response_first.val())
            & (self.operation.val() != self.op_response_middle.val());
        // At most 2^16 packets: MTU << 16 is bit 23 + code and no bit above.
        self.read_length.next =
            ((self.event_1.q.val().dma_length - self.one_32.val()) >> 23) >> self.loaded.val().mtu;
        self.found.next.countable =
            !self.read_length.val().any() | !self.event_1.q.val().dma_length.any();
        self.found.next.has_imm = (self.operation.val() == self.op_last_imm.val())
            | (self.operation.val() == self.op_only_imm.val());
        self.dist_2.d.next = self.found.val();
        self.state_2.d.next = self.loaded.val();
        self.hi_2.d.next = bit_cast::<128, L>(self.plane_hi.read_data.val());
        self.lo_2.d.next = bit_cast::<128, L>(self.plane_lo.read_data.val());
        self.event_2.d.next = self.event_1.q.val();
        self.cfg_2.d.next = self.cfg_1.q.val();
        self.valid_2.d.next = self.valid_1.q.val();

        comment!("S2: conditions");
        self.index.next = self.dist_2.q.val().ahead.get_bits::<7>(0);
        self.map_2.next = self.hi_2.q.val() | self.lo_2.q.val();
        self.picked.next = self.map_2.val() >> self.index.val();
        self.cond.next.receives = self.dist_2.q.val().receives;
        self.cond.next.at_front = !self.dist_2.q.val().ahead.any();
        self.cond.next.before = self.dist_2.q.val().ahead.get_bit(23);
        self.cond.next.beyond = self.dist_2.q.val().ahead >= self.slots.val();
        self.cond.next.taken = self.picked.val().get_bit(0);
        self.length_good.next = self.event_2.q.val().length <= self.dist_2.q.val().mtu_bytes;
        if self.dist_2.q.val().is_middle {
            self.length_good.next = self.event_2.q.val().length == self.dist_2.q.val().mtu_bytes;
        } else if self.dist_2.q.val().is_last {
            self.length_good.next = self.event_2.q.val().length.any()
                & (self.event_2.q.val().length <= self.dist_2.q.val().mtu_bytes);
        } else if self.dist_2.q.val().is_request {
            self.length_good.next = !self.event_2.q.val().length.any()
                & self.dist_2.q.val().countable
                & !self.event_2.q.val().wsn.get_bits::<20>(4).any()
                & !(self.dist_2.q.val().is_atomic & self.event_2.q.val().misaligned);
        } else if self.dist_2.q.val().is_atomic {
            self.length_good.next = !self.event_2.q.val().length.any();
        }
        self.same_length.next =
            self.event_2.q.val().dma_length == bit_cast::<32, 13>(self.event_2.q.val().length);
        self.cond.next.is_request = self.dist_2.q.val().is_request;
        self.cond.next.is_response = self.dist_2.q.val().is_response;
        self.cond.next.is_atomic = self.dist_2.q.val().is_atomic;
        self.cond.next.form_good = self.length_good.val()
            & (self.same_length.val()
                | self.dist_2.q.val().is_request
                | self.dist_2.q.val().is_response)
            & (self.event_2.q.val().flags.get_bit(2) == self.dist_2.q.val().is_tail)
            & (self.event_2.q.val().flags.get_bit(3) == self.dist_2.q.val().has_imm);
        self.right_held.next =
            self.state_2.q.val().rights.get_bit(1) & self.event_2.q.val().mr.rights.get_bit(1);
        if self.dist_2.q.val().is_request {
            self.right_held.next =
                self.state_2.q.val().rights.get_bit(2) & self.event_2.q.val().mr.rights.get_bit(2);
            if self.dist_2.q.val().is_atomic {
                self.right_held.next = self.state_2.q.val().rights.get_bit(3)
                    & self.event_2.q.val().mr.rights.get_bit(3);
            }
        }
        self.reachable.next = (self.event_2.q.val().mr.hit & self.right_held.val())
            & (self.event_2.q.val().mr.pd == self.state_2.q.val().pd);
        self.cond.next.access_good = self.reachable.val() | !self.event_2.q.val().dma_length.any();
        if self.dist_2.q.val().is_response {
            self.cond.next.access_good = self.event_2.q.val().mr.hit;
        }
        self.cond.next.sync_early = self.event_2.q.val().flags.get_bit(1)
            & self.dist_2.q.val().first_ahead.any()
            & !self.dist_2.q.val().first_ahead.get_bit(23);
        self.wsn_missing.next = !self.dist_2.q.val().posted.any()
            | (self.dist_2.q.val().posted > self.half_16.val())
            | (self.dist_2.q.val().wsn_ahead >= self.receive_window.val());
        // Whoever is asked for data must be able to send.
        self.cond.next.no_wqe = (self.event_2.q.val().flags.get_bit(3) & self.wsn_missing.val())
            | (self.dist_2.q.val().is_request & (self.state_2.q.val().state != self.rts.val()));
        self.cond_3.d.next = self.cond.val();
        self.slot_3.d.next = self.one_slot.val() << self.index.val();
        self.state_3.d.next = self.state_2.q.val();
        self.hi_3.d.next = self.hi_2.q.val();
        self.lo_3.d.next = self.lo_2.q.val();
        self.event_3.d.next = self.event_2.q.val();
        self.cfg_3.d.next = self.cfg_2.q.val();
        self.valid_3.d.next = self.valid_2.q.val();

        comment!("S3: the rules of protocol section 3, one after the other, and the slot");
        self.data_3.next =
            !self.cfg_3.q.val() & (self.event_3.q.val().kind == self.kind_data.val());
        self.judged.next = self.data_3.val() & self.cond_3.q.val().receives;
        self.verdict.next = self.blank_verdict.val();
        self.verdict.next.no_qp = self.data_3.val() & !self.cond_3.q.val().receives;
        self.verdict.next.ce = self.judged.val() & self.event_3.q.val().ce;
        self.verdict.next.duplicate = self.judged.val()
            & (self.cond_3.q.val().before
                | (!self.cond_3.q.val().beyond & self.cond_3.q.val().taken));
        self.verdict.next.out_of_window =
            self.judged.val() & self.cond_3.q.val().beyond & !self.cond_3.q.val().before;
        self.open.next = self.judged.val()
            & !self.cond_3.q.val().before
            & !self.cond_3.q.val().beyond
            & !self.cond_3.q.val().taken;
        self.good.next =
            self.open.val() & self.cond_3.q.val().form_good & self.cond_3.q.val().access_good;
        self.verdict.next.fatal = self.open.val() & !self.good.val() & self.cond_3.q.val().at_front;
        self.verdict.next.malformed = !self.cond_3.q.val().form_good;
        self.verdict.next.sync_nak = self.good.val() & self.cond_3.q.val().sync_early;
        self.verdict.next.rnr =
            self.good.val() & !self.cond_3.q.val().sync_early & self.cond_3.q.val().no_wqe;
        self.verdict.next.accept =
            self.good.val() & !self.cond_3.q.val().sync_early & !self.cond_3.q.val().no_wqe;
        self.verdict.next.out_of_order = self.good.val()
            & !self.cond_3.q.val().sync_early
            & !self.cond_3.q.val().no_wqe
            & !self.cond_3.q.val().at_front;
        self.verdict.next.request = self.verdict.val().accept & self.cond_3.q.val().is_request;
        self.verdict.next.read_tail = self.verdict.val().accept
            & self.cond_3.q.val().is_response
            & self.event_3.q.val().flags.get_bit(2);
        self.verdict.next.atomic = self.verdict.val().accept & self.cond_3.q.val().is_atomic;
        self.fill_hi.next = self.verdict.val().accept & self.event_3.q.val().flags.get_bit(2);
        self.fill_lo.next = self.verdict.val().accept
            & (!self.event_3.q.val().flags.get_bit(2) | self.event_3.q.val().flags.get_bit(3));
        self.hi_4.d.next = self.hi_3.q.val();
        self.lo_4.d.next = self.lo_3.q.val();
        if self.fill_hi.val() {
            self.hi_4.d.next = self.hi_3.q.val() | self.slot_3.q.val();
        }
        if self.fill_lo.val() {
            self.lo_4.d.next = self.lo_3.q.val() | self.slot_3.q.val();
        }
        self.verdict_4.d.next = self.verdict.val();
        self.state_4.d.next = self.state_3.q.val();
        self.event_4.d.next = self.event_3.q.val();
        self.cfg_4.d.next = self.cfg_3.q.val();
        self.valid_4.d.next = self.valid_3.q.val();

        comment!("S4: the leading run of filled slots is what a carry through it flips");
        self.filled.next = self.hi_4.q.val() | self.lo_4.q.val();
        self.plus.next = self.filled.val() + self.one_slot.val();
        self.run_5.d.next = self.filled.val() & !self.plus.val();
        self.stop_5.d.next = !self.filled.val() & self.plus.val();
        self.hi_5.d.next = self.hi_4.q.val();
        self.lo_5.d.next = self.lo_4.q.val();
        self.verdict_5.d.next = self.verdict_4.q.val();
        self.state_5.d.next = self.state_4.q.val();
        self.event_5.d.next = self.event_4.q.val();
        self.cfg_5.d.next = self.cfg_4.q.val();
        self.valid_5.d.next = self.valid_4.q.val();

        comment!("S5: the length of the run, and its tails and completions counted per byte");
        self.run.next = bit_cast::<8, 1>((self.stop_5.q.val() & !self.m1.val()).any().into())
            | (bit_cast::<8, 1>((self.stop_5.q.val() & !self.m2.val()).any().into()) << 1)
            | (bit_cast::<8, 1>((self.stop_5.q.val() & !self.m4.val()).any().into()) << 2)
            | (bit_cast::<8, 1>((self.stop_5.q.val() & !self.m8.val()).any().into()) << 3)
            | (bit_cast::<8, 1>((self.stop_5.q.val() & !self.m16.val()).any().into()) << 4)
            | (bit_cast::<8, 1>((self.stop_5.q.val() & !self.m32.val()).any().into()) << 5)
            | (bit_cast::<8, 1>((self.stop_5.q.val() & !self.m64.val()).any().into()) << 6)
            | (bit_cast::<8, 1>((!self.stop_5.q.val().any()).into()) << 7);
        self.run_6.d.next = self.run.val();
        self.run_hi.next = self.run_5.q.val() & self.hi_5.q.val();
        self.run_both.next = self.run_5.q.val() & self.hi_5.q.val() & self.lo_5.q.val();
        self.a1.next =
            (self.run_hi.val() & self.m1.val()) + ((self.run_hi.val() >> 1) & self.m1.val());
        self.a2.next = (self.a1.val() & self.m2.val()) + ((self.a1.val() >> 2) & self.m2.val());
        self.tails_6.d.next =
            (self.a2.val() & self.m4.val()) + ((self.a2.val() >> 4) & self.m4.val());
        self.b1.next =
            (self.run_both.val() & self.m1.val()) + ((self.run_both.val() >> 1) & self.m1.val());
        self.b2.next = (self.b1.val() & self.m2.val()) + ((self.b1.val() >> 2) & self.m2.val());
        self.dues_6.d.next =
            (self.b2.val() & self.m4.val()) + ((self.b2.val() >> 4) & self.m4.val());
        self.hi_6.d.next = self.hi_5.q.val();
        self.lo_6.d.next = self.lo_5.q.val();
        self.verdict_6.d.next = self.verdict_5.q.val();
        self.state_6.d.next = self.state_5.q.val();
        self.event_6.d.next = self.event_5.q.val();
        self.cfg_6.d.next = self.cfg_5.q.val();
        self.valid_6.d.next = self.valid_5.q.val();

        comment!("S6: slide; sum the counts");
        self.hi_7.d.next = self.hi_6.q.val() >> self.run_6.q.val();
        self.lo_7.d.next = self.lo_6.q.val() >> self.run_6.q.val();
        self.c3.next =
            (self.tails_6.q.val() & self.m8.val()) + ((self.tails_6.q.val() >> 8) & self.m8.val());
        self.c4.next = (self.c3.val() & self.m16.val()) + ((self.c3.val() >> 16) & self.m16.val());
        self.c5.next = (self.c4.val() & self.m32.val()) + ((self.c4.val() >> 32) & self.m32.val());
        self.tails_7.d.next = self.c5.val().get_bits::<8>(0) + self.c5.val().get_bits::<8>(64);
        self.d3.next =
            (self.dues_6.q.val() & self.m8.val()) + ((self.dues_6.q.val() >> 8) & self.m8.val());
        self.d4.next = (self.d3.val() & self.m16.val()) + ((self.d3.val() >> 16) & self.m16.val());
        self.d5.next = (self.d4.val() & self.m32.val()) + ((self.d4.val() >> 32) & self.m32.val());
        self.dues_7.d.next = self.d5.val().get_bits::<8>(0) + self.d5.val().get_bits::<8>(64);
        self.run_7.d.next = self.run_6.q.val();
        self.verdict_7.d.next = self.verdict_6.q.val();
        self.state_7.d.next = self.state_6.q.val();
        self.event_7.d.next = self.event_6.q.val();
        self.cfg_7.d.next = self.cfg_6.q.val();
        self.valid_7.d.next = self.valid_6.q.val();

        comment!("S7: the new context");
        self.fields.image.next = self.cfg.val().image;
        self.creates.next = self.cfg_7.q.val() & (self.cfg.val().op == self.create_qp.val());
        self.modifies.next = self.cfg_7.q.val() & (self.cfg.val().op == self.modify_qp.val());
        self.queries.next = self.cfg_7.q.val() & (self.cfg.val().op == self.query_qp.val());
        self.destroys.next = self.cfg_7.q.val() & (self.cfg.val().op == self.destroy_qp.val());
        self.stored.next = self.state_7.q.val();
        self.stored_hi.next = self.hi_7.q.val();
        self.stored_lo.next = self.lo_7.q.val();
        if self.verdict_7.q.val().accept {
            self.stored.next.rcv_nxt =
                self.state_7.q.val().rcv_nxt + bit_cast::<24, 8>(self.run_7.q.val());
            self.stored.next.msn =
                self.state_7.q.val().msn + bit_cast::<24, 8>(self.tails_7.q.val());
            self.stored.next.due_wsn =
                self.state_7.q.val().due_wsn + bit_cast::<24, 8>(self.dues_7.q.val());
            self.stored.next.received = self.state_7.q.val().received + 1 - self.run_7.q.val();
        }
        if self.verdict_7.q.val().fatal {
            self.stored.next.state = self.in_error.val();
        }
        if !self.cfg_7.q.val() & (self.event_7.q.val().kind == self.kind_doorbell.val()) {
            self.stored.next.rq_producer = self.event_7.q.val().wsn.get_bits::<16>(0);
        }
        if !self.cfg_7.q.val()
            & (self.event_7.q.val().kind == self.kind_error.val())
            & (self.state_7.q.val().state != self.in_reset.val())
        {
            self.stored.next.state = self.in_error.val();
        }
        if self.creates.val() | self.destroys.val() {
            self.stored.next = self.blank.val();
            self.stored_hi.next = self.none.val();
            self.stored_lo.next = self.none.val();
        }
        if self.creates.val() {
            self.stored.next.state = self.fields.record.val().state;
            self.stored.next.mtu = self.fields.record.val().mtu;
            self.stored.next.hole_repair = self.fields.record.val().hole_repair;
            self.stored.next.pd = self.fields.record.val().pd;
            self.stored.next.pkey = self.fields.record.val().pkey;
            self.stored.next.rq_cqn = self.fields.record.val().rq_cqn;
            self.stored.next.rights = self.fields.record.val().rights;
            self.stored.next.rcv_nxt = self.fields.record.val().rq_psn;
        }
        if self.modifies.val() {
            if self.fields.record.val().mask.get_bit(4) {
                self.stored.next.hole_repair = self.fields.record.val().hole_repair;
            }
            if self.fields.record.val().mask.get_bit(0) {
                self.stored.next.state = self.fields.record.val().state;
            }
            if self.fields.record.val().mask.get_bit(1) {
                self.stored.next.pkey = self.fields.record.val().pkey;
            }
            if self.fields.record.val().mask.get_bit(2) {
                self.stored.next.rights = self.fields.record.val().rights;
                self.stored.next.rcv_nxt = self.fields.record.val().rq_psn;
                self.stored.next.msn = bits::<24>(0);
                self.stored.next.due_wsn = bits::<24>(0);
                self.stored.next.received = bits::<8>(0);
                self.stored_hi.next = self.none.val();
                self.stored_lo.next = self.none.val();
            }
        }

        comment!("write back, or clear after reset");
        self.states.write.next = self.valid_7.q.val() | !self.ready.q.val();
        self.states.write_addr.next = self.event_7.q.val().qpn.get_bits::<QPW>(0);
        self.states.write_data.next = self.stored.val();
        self.plane_hi.write_data.next = bit_cast::<L, 128>(self.stored_hi.val());
        self.plane_lo.write_data.next = bit_cast::<L, 128>(self.stored_lo.val());
        if !self.ready.q.val() {
            self.states.write_addr.next = self.clearing.q.val();
            self.states.write_data.next = self.blank.val();
            self.plane_hi.write_data.next = bits::<L>(0);
            self.plane_lo.write_data.next = bits::<L>(0);
            self.clearing.d.next = self.clearing.q.val() + 1;
            self.ready.d.next = self.clearing.q.val().all();
        }
        self.plane_hi.write.next = self.states.write.val();
        self.plane_hi.write_addr.next = self.states.write_addr.val();
        self.plane_lo.write.next = self.states.write.val();
        self.plane_lo.write_addr.next = self.states.write_addr.val();
        self.wb_valid.next = self.valid_7.q.val();
        self.wb_qpn.next = self.event_7.q.val().qpn;
        self.wb_state.next = self.stored.val();
        self.wb_hi.next = self.stored_hi.val();
        self.wb_lo.next = self.stored_lo.val();

        comment!("the answer");
        self.answer.next.qpn = self.event_7.q.val().qpn;
        self.answer.next.sack = self.event_7.q.val().psn;
        self.answer.next.aack = self.stored.val().rcv_nxt;
        self.answer.next.msn = self.stored.val().msn;
        self.answer.next.syndrome = self.no_credit_limit.val();
        if self.verdict_7.q.val().rnr {
            self.answer.next.syndrome = self.syndrome_rnr.val();
        } else if self.verdict_7.q.val().fatal & self.verdict_7.q.val().malformed {
            self.answer.next.syndrome = self.syndrome_invalid.val();
        } else if self.verdict_7.q.val().fatal {
            self.answer.next.syndrome = self.syndrome_access.val();
        }
        self.answer.next.map = self.stored_hi.val() | self.stored_lo.val();
        self.answer.next.flags = bit_cast::<8, 1>(self.event_7.q.val().flags.get_bits::<1>(0))
            | (bit_cast::<8, 1>(self.event_7.q.val().ce.into()) << 1)
            | (bit_cast::<8, 1>(self.verdict_7.q.val().out_of_window.into()) << 2)
            | (bit_cast::<8, 1>(self.verdict_7.q.val().sync_nak.into()) << 3)
            | (bit_cast::<8, 1>(
                (self.stored.val().hole_repair
                    & (self.stored_hi.val() | self.stored_lo.val()).any())
                .into(),
            ) << 4);
        self.answer.next.vp = self.event_7.q.val().vp;
        self.answer.next.stamp = self.event_7.q.val().stamp;

        comment!("the action");
        self.on_packet.next =
            !self.cfg_7.q.val() & (self.event_7.q.val().kind == self.kind_data.val());
        self.act.next.qpn = self.event_7.q.val().qpn;
        self.brings_value.next = self.verdict_7.q.val().atomic & !self.verdict_7.q.val().request;
        self.act.next.place = (self.verdict_7.q.val().accept & self.event_7.q.val().length.any())
            | self.brings_value.val();
        self.act.next.discard = !self.cfg_7.q.val()
            & self.event_7.q.val().stored
            & !(self.verdict_7.q.val().accept & self.event_7.q.val().length.any());
        self.act.next.iova = self.event_7.q.val().mr.iova;
        self.act.next.length = self.event_7.q.val().length;
        if self.brings_value.val() {
            self.act.next.length = self.atomic_bytes.val();
        }
        self.act.next.header = self.event_7.q.val().header;
        self.act.next.ack_valid = self.verdict_7.q.val().duplicate
            | self.verdict_7.q.val().out_of_window
            | self.verdict_7.q.val().fatal
            | self.verdict_7.q.val().sync_nak
            | self.verdict_7.q.val().rnr
            | self.verdict_7.q.val().accept;
        self.act.next.ack = self.answer.val();
        self.act.next.store = self.verdict_7.q.val().accept & self.event_7.q.val().flags.get_bit(3);
        self.act.next.wsn = self.event_7.q.val().wsn;
        self.act.next.imm = self.event_7.q.val().imm;
        self.shift.next = bit_cast::<4, 3>(self.state_7.q.val().mtu) + 7;
        self.act.next.byte_len = (bit_cast::<32, 16>(self.event_7.q.val().offset)
            << self.shift.val())
            + bit_cast::<32, 13>(self.event_7.q.val().length);
        if self.verdict_7.q.val().request {
            self.act.next.byte_len = self.event_7.q.val().dma_length;
        }
        self.act.next.request = self.verdict_7.q.val().request;
        self.act.next.read_tail = self.verdict_7.q.val().read_tail;
        self.act.next.atomic = self.verdict_7.q.val().atomic;
        self.act.next.swap = self.verdict_7.q.val().request
            & (self.event_7.q.val().opcode.get_bits::<5>(0) == self.op_swap.val());
        self.act.next.swap_add = self.event_7.q.val().swap_add;
        self.act.next.compare = self.event_7.q.val().compare;
        self.act.next.advances = self.verdict_7.q.val().accept & self.run_7.q.val().any();
        self.act.next.due = bits::<8>(0);
        if self.verdict_7.q.val().accept {
            self.act.next.due = self.dues_7.q.val();
        }
        self.act.next.due_wsn = self.state_7.q.val().due_wsn;
        self.act.next.cqn = self.state_7.q.val().rq_cqn;
        self.act.next.marker = self.destroys.val();
        self.acts.next = self.on_packet.val()
            | (!self.cfg_7.q.val() & (self.event_7.q.val().kind == self.kind_discard.val()))
            | self.destroys.val();
        self.actions.in_data.next = self.act.val();
        self.actions.in_valid.next = self.valid_7.q.val() & self.acts.val();

        comment!("a peer that broke the rules: flush the send side, tell software why");
        self.failure.next.qpn = self.event_7.q.val().qpn;
        self.failure.next.status = self.flushed.val();
        self.errors.in_data.next = self.failure.val();
        self.errors.in_valid.next = self.valid_7.q.val() & self.verdict_7.q.val().fatal;
        self.cause.next.qpn = self.event_7.q.val().qpn;
        self.cause.next.status = self.access_status.val();
        if self.verdict_7.q.val().malformed {
            self.cause.next.status = self.invalid_status.val();
        }
        self.accesses.in_data.next = self.cause.val();
        self.accesses.in_valid.next = self.valid_7.q.val() & self.verdict_7.q.val().fatal;

        comment!("commands: answer and report");
        self.answered.d.next = self.valid_7.q.val() & self.cfg_7.q.val();
        if self.cfg_valid.val()
            & !self.served.q.val()
            & (self.cfg.val().op != self.create_qp.val())
            & (self.cfg.val().op != self.modify_qp.val())
            & (self.cfg.val().op != self.query_qp.val())
            & (self.cfg.val().op != self.destroy_qp.val())
        {
            self.valid_1.d.next = self.take_rx.val();
            self.served.d.next = true;
            self.answered.d.next = true;
        }
        self.cfg_done.next = self.answered.q.val();
        self.report.record.next.state = self.state_7.q.val().state;
        self.report.record.next.rcv_nxt = self.state_7.q.val().rcv_nxt;
        self.report.record.next.msn = self.state_7.q.val().msn;
        self.report.record.next.received = self.state_7.q.val().received;
        self.report.record.next.rcv_wsn = self.state_7.q.val().due_wsn;
        self.report.record.next.rq_producer = self.state_7.q.val().rq_producer;
        if self.valid_7.q.val() & self.queries.val() {
            self.status.d.next = self.report.image.val().get_bits::<512>(512);
        }
        self.cfg_result.next = self.status.q.val();

        comment!("counters and state");
        self.pulses.d.next = self.blank_verdict.val();
        if self.valid_7.q.val() {
            self.pulses.d.next = self.verdict_7.q.val();
        }
        self.cnt_no_qp.next = self.pulses.q.val().no_qp;
        self.cnt_out_of_order.next = self.pulses.q.val().out_of_order;
        self.cnt_duplicate.next = self.pulses.q.val().duplicate;
        self.cnt_out_of_window.next = self.pulses.q.val().out_of_window;
        self.cnt_sync_nak.next = self.pulses.q.val().sync_nak;
        self.cnt_ce.next = self.pulses.q.val().ce;
        self.cnt_access.next = self.pulses.q.val().fatal;
        self.cnt_rnr.next = self.pulses.q.val().rnr;

        comment!("telemetry: the context of S7 is the one before the packet");
        self.distance.next = self.event_7.q.val().psn - self.state_7.q.val().rcv_nxt;
        self.noted.d.next = self.valid_7.q.val() & self.on_packet.val();
        self.last_note.d.next.qpn = self.event_7.q.val().qpn;
        self.last_note.d.next.accepted = self.verdict_7.q.val().accept;
        self.last_note.d.next.distance = self.distance.val().get_bits::<8>(0);
        self.last_note.d.next.duplicate = self.verdict_7.q.val().duplicate;
        self.last_note.d.next.out_of_window = self.verdict_7.q.val().out_of_window;
        self.last_note.d.next.sync_nak = self.verdict_7.q.val().sync_nak;
        self.last_note.d.next.rnr_nak = self.verdict_7.q.val().rnr;
        self.last_note.d.next.marked = self.verdict_7.q.val().ce;
        self.note.next = self.last_note.q.val();
        self.note_valid.next = self.noted.q.val();

        self.init_done.next = self.ready.q.val();
        self.busy.next = self.noted.q.val()
            | self.events.count.val().any()
            | self.actions.count.val().any()
            | self.errors.count.val().any()
            | self.accesses.count.val().any()
            | self.valid_1.q.val()
            | self.valid_2.q.val()
            | self.valid_3.q.val()
            | self.valid_4.q.val()
            | self.valid_5.q.val()
            | self.valid_6.q.val()
            | self.valid_7.q.val();
    }
}
