//! Sorts arriving packets: ACKs to the sender engine, data past the memory region table or the READ book to the receiver
//! engine.

use super::types::{AckEvent, Doorbell, MrAnswer, MrQuery, QpError, ReadQuery, RxEvent, RxMeta};
use crate::leaf::sync_fifo::SyncFifo;
use crate::prelude::*;
use mprdma_spec::params::ATOMIC_BYTES;
use mprdma_spec::wire::{bth, mpeth};

/// `RxEvent::kind` of a data packet.
pub const KIND_DATA: u64 = 0;
/// `RxEvent::kind` of a frame that is only to be thrown away.
pub const KIND_DISCARD: u64 = 1;
/// `RxEvent::kind` of a receive queue doorbell.
pub const KIND_DOORBELL: u64 = 2;
/// `RxEvent::kind` of a QP that must go to ERROR.
pub const KIND_ERROR: u64 = 3;

block! {
    /// - In: `meta` (parsed frames), `rq_db`, `error` (QPs that went to ERROR on the send side), `answer` (of the memory
    ///   region table, in the order of the questions), `read_answer` (of the READ book, likewise), `enable`.
    /// - Out: `ack` for the sender engine, `query` for the memory region table, `read_query` for the READ book (of READ
    ///   RESPONSEs and ATOMIC ACKs), `rx` for the receiver engine in the order of arrival; pulses `cnt_ack`, `cnt_data`, `cnt_no_qp`.
    /// - Latency: 4 cycles to `ack`, 6 and the table's to `rx`. Initiation interval: 1.
    ///
    /// A waiting error or doorbell lets at most one packet go first, so that no flood of packets keeps receive WQEs or a
    /// failure from the engine. Requests wait for their answer in a FIFO beside the table, so nothing passes them there.
    pub struct RxClassify[const QPW: usize][QPW] {
        in {
            clock: Clock,
            reset: Bit,
            enable: Bit,
            meta: RxMeta,
            meta_valid: Bit,
            rq_db: Doorbell,
            rq_db_valid: Bit,
            error: QpError,
            error_valid: Bit,
            answer: MrAnswer,
            answer_valid: Bit,
            read_answer: MrAnswer,
            read_answer_valid: Bit,
            ack_ready: Bit,
            query_ready: Bit,
            read_query_ready: Bit,
            rx_ready: Bit,
        }
        out {
            meta_ready: Bit,
            rq_db_ready: Bit,
            error_ready: Bit,
            answer_ready: Bit,
            read_answer_ready: Bit,
            ack: AckEvent,
            ack_valid: Bit,
            query: MrQuery,
            query_valid: Bit,
            read_query: ReadQuery,
            read_query_valid: Bit,
            rx: RxEvent,
            rx_valid: Bit,
            cnt_ack: Bit,
            cnt_data: Bit,
            cnt_no_qp: Bit,
            busy: Bit,
        }
        local {
            head: RxMeta,
            incoming: RxEvent,
            query_next: MrQuery,
            read_query_next: ReadQuery,
            ack_next: AckEvent,
            known: Bit,
            is_ack: Bit,
            is_data: Bit,
            is_response: Bit,
            is_atomic: Bit,
            is_atomic_ack: Bit,
            room: Bit,
            turn: Bit,
            take_meta: Bit,
            take_error: Bit,
            take_db: Bit,
            front: RxEvent,
            asks: Bit,
            asks_book: Bit,
            answered: Bit,
            deliver: Bit,
        }
        reg {
            others_first: Bit,
            pulse_ack: Bit,
            pulse_data: Bit,
            pulse_no_qp: Bit,
        }
        konst {
            qps: Bits<24> = bits(1 << QPW),
            op_ack: Bits<8> = bits(u64::from(bth::opcode::MP_ACK)),
            op_first: Bits<8> = bits(u64::from(bth::opcode::MP_WRITE_FIRST)),
            op_request: Bits<8> = bits(u64::from(bth::opcode::MP_READ_REQUEST)),
            op_atomic_ack: Bits<8> = bits(u64::from(bth::opcode::MP_ATOMIC_ACK)),
            op_swap: Bits<8> = bits(u64::from(bth::opcode::MP_COMPARE_SWAP)),
            op_last: Bits<8> = bits(u64::from(bth::opcode::MP_FETCH_ADD)),
            atomic_bytes: Bits<13> = bits(ATOMIC_BYTES as u64),
            flag_tail: Bits<8> = bits(u64::from(mpeth::FLAG_TAIL)),
            kind_data: Bits<2> = bits(KIND_DATA),
            kind_discard: Bits<2> = bits(KIND_DISCARD),
            kind_doorbell: Bits<2> = bits(KIND_DOORBELL),
            kind_error: Bits<2> = bits(KIND_ERROR),
            most_pending: Bits<5> = bits(12),
            blank: RxEvent = RxEvent::default(),
        }
        sub {
            metas: SyncFifo<RxMeta, 4> = SyncFifo::shallow(),
            doorbells: SyncFifo<Doorbell, 4> = SyncFifo::shallow(),
            errors: SyncFifo<QpError, 4> = SyncFifo::shallow(),
            queries: SyncFifo<MrQuery, 5> = SyncFifo::shallow(),
            answers: SyncFifo<MrAnswer, 5> = SyncFifo::shallow(),
            read_queries: SyncFifo<ReadQuery, 5> = SyncFifo::shallow(),
            read_answers: SyncFifo<MrAnswer, 5> = SyncFifo::shallow(),
            pending: SyncFifo<RxEvent, 5> = SyncFifo::shallow(),
            acks: SyncFifo<AckEvent, 4> = SyncFifo::shallow(),
            out: SyncFifo<RxEvent, 4> = SyncFifo::shallow(),
        }
    }
}

impl<const QPW: usize> Logic for RxClassify<QPW> {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(
            self,
            clock,
            others_first,
            pulse_ack,
            pulse_data,
            pulse_no_qp
        );
        clock!(
            self,
            clock,
            metas,
            doorbells,
            errors,
            queries,
            answers,
            read_queries,
            read_answers,
            pending,
            acks,
            out
        );
        self.metas.reset.next = self.reset.val();
        self.doorbells.reset.next = self.reset.val();
        self.errors.reset.next = self.reset.val();
        self.queries.reset.next = self.reset.val();
        self.answers.reset.next = self.reset.val();
        self.read_queries.reset.next = self.reset.val();
        self.read_answers.reset.next = self.reset.val();
        self.pending.reset.next = self.reset.val();
        self.acks.reset.next = self.reset.val();
        self.out.reset.next = self.reset.val();
        // Inputs and outputs are FIFOs.
        self.metas.in_data.next = self.meta.val();
        self.metas.in_valid.next = self.meta_valid.val();
        self.meta_ready.next = self.metas.in_ready.val();
        self.doorbells.in_data.next = self.rq_db.val();
        self.doorbells.in_valid.next = self.rq_db_valid.val();
        self.rq_db_ready.next = self.doorbells.in_ready.val();
        self.errors.in_data.next = self.error.val();
        self.errors.in_valid.next = self.error_valid.val();
        self.error_ready.next = self.errors.in_ready.val();
        self.answers.in_data.next = self.answer.val();
        self.answers.in_valid.next = self.answer_valid.val();
        self.answer_ready.next = self.answers.in_ready.val();
        self.read_answers.in_data.next = self.read_answer.val();
        self.read_answers.in_valid.next = self.read_answer_valid.val();
        self.read_answer_ready.next = self.read_answers.in_ready.val();
        self.ack.next = self.acks.out_data.val();
        self.ack_valid.next = self.acks.out_valid.val();
        self.acks.out_ready.next = self.ack_ready.val();
        self.query.next = self.queries.out_data.val();
        self.query_valid.next = self.queries.out_valid.val();
        self.queries.out_ready.next = self.query_ready.val();
        self.read_query.next = self.read_queries.out_data.val();
        self.read_query_valid.next = self.read_queries.out_valid.val();
        self.read_queries.out_ready.next = self.read_query_ready.val();
        self.rx.next = self.out.out_data.val();
        self.rx_valid.next = self.out.out_valid.val();
        self.out.out_ready.next = self.rx_ready.val();

        comment!("sort one packet, error or doorbell a cycle; packets and the others take turns");
        self.head.next = self.metas.out_data.val();
        self.known.next = (self.head.val().qpn < self.qps.val()) & self.enable.val();
        self.is_ack.next = self.head.val().opcode == self.op_ack.val();
        self.is_data.next = (self.head.val().opcode >= self.op_first.val())
            & (self.head.val().opcode <= self.op_last.val())
            & !self.is_ack.val();
        self.is_atomic_ack.next = self.head.val().opcode == self.op_atomic_ack.val();
        self.is_atomic.next = (self.head.val().opcode == self.op_swap.val())
            | (self.head.val().opcode == self.op_last.val());
        // The codes above the READ REQUEST's, but for those of ATOMIC requests.
        self.is_response.next = self.is_data.val()
            & (self.head.val().opcode > self.op_request.val())
            & !self.is_atomic.val();
        self.room.next = (self.pending.count.val() < self.most_pending.val())
            & self.acks.in_ready.val()
            & self.queries.in_ready.val()
            & self.read_queries.in_ready.val();
        self.turn.next = !self.metas.out_valid.val() | self.others_first.q.val();
        self.take_error.next = self.errors.out_valid.val() & self.room.val() & self.turn.val();
        self.take_db.next = self.doorbells.out_valid.val()
            & self.room.val()
            & self.turn.val()
            & !self.errors.out_valid.val();
        self.take_meta.next = self.metas.out_valid.val()
            & self.room.val()
            & !self.take_error.val()
            & !self.take_db.val();
        if self.room.val() {
            self.others_first.d.next = self.take_meta.val();
        }
        self.metas.out_ready.next = self.take_meta.val();
        self.errors.out_ready.next = self.take_error.val();
        self.doorbells.out_ready.next = self.take_db.val();

        self.ack_next.next.qpn = self.head.val().qpn.get_bits::<16>(0);
        self.ack_next.next.sack = self.head.val().psn;
        self.ack_next.next.aack = self.head.val().aack;
        self.ack_next.next.flags = self.head.val().flags;
        self.ack_next.next.syndrome = self.head.val().syndrome;
        self.ack_next.next.vp = self.head.val().vp_echo;
        self.ack_next.next.stamp = self.head.val().stamp;
        self.ack_next.next.map = self.head.val().map;
        self.acks.in_data.next = self.ack_next.val();
        self.acks.in_valid.next = false;

        self.query_next.next.key = self.head.val().rkey;
        self.query_next.next.va = self.head.val().raddr;
        self.query_next.next.length = self.head.val().dma_length;
        self.queries.in_data.next = self.query_next.val();
        self.queries.in_valid.next = false;
        self.read_query_next.next.qpn = self.head.val().qpn.get_bits::<16>(0);
        self.read_query_next.next.wsn = self.head.val().wsn;
        self.read_query_next.next.offset = self.head.val().offset;
        self.read_query_next.next.length = self.head.val().length;
        if self.is_atomic_ack.val() {
            self.read_query_next.next.length = self.atomic_bytes.val();
        }
        self.read_query_next.next.atomic = self.is_atomic_ack.val();
        self.read_query_next.next.tail = (self.head.val().flags & self.flag_tail.val()).any();
        self.read_queries.in_data.next = self.read_query_next.val();
        self.read_queries.in_valid.next = false;

        self.incoming.next = self.blank.val();
        self.incoming.next.kind = self.kind_data.val();
        self.incoming.next.qpn = self.head.val().qpn.get_bits::<16>(0);
        self.incoming.next.psn = self.head.val().psn;
        self.incoming.next.opcode = self.head.val().opcode;
        self.incoming.next.pkey = self.head.val().pkey;
        self.incoming.next.ce = self.head.val().ce;
        self.incoming.next.vp = self.head.val().vp;
        self.incoming.next.flags = self.head.val().flags;
        self.incoming.next.wsn = self.head.val().wsn;
        self.incoming.next.offset = self.head.val().offset;
        self.incoming.next.stamp = self.head.val().stamp;
        self.incoming.next.imm = self.head.val().imm;
        self.incoming.next.dma_length = self.head.val().dma_length;
        self.incoming.next.length = self.head.val().length;
        self.incoming.next.header = self.head.val().header;
        self.incoming.next.stored = self.head.val().stored;
        self.incoming.next.swap_add = self.head.val().swap_add;
        self.incoming.next.compare = self.head.val().compare;
        self.incoming.next.misaligned =
            self.is_atomic.val() & self.head.val().raddr.get_bits::<3>(0).any();
        self.pending.in_valid.next = false;
        self.pulse_ack.d.next = false;
        self.pulse_data.d.next = false;
        self.pulse_no_qp.d.next = false;
        if self.take_meta.val() {
            if self.known.val() & self.is_ack.val() {
                self.acks.in_valid.next = true;
                self.pulse_ack.d.next = true;
            } else if self.known.val() & self.is_data.val() {
                self.queries.in_valid.next = !self.is_response.val();
                self.read_queries.in_valid.next = self.is_response.val();
                self.pending.in_valid.next = true;
                self.pulse_data.d.next = true;
            } else {
                self.incoming.next.kind = self.kind_discard.val();
                self.pending.in_valid.next = self.head.val().stored;
                self.pulse_no_qp.d.next = true;
            }
        }
        if self.take_error.val() {
            self.incoming.next.kind = self.kind_error.val();
            self.incoming.next.qpn = self.errors.out_data.val().qpn;
            self.incoming.next.stored = false;
            self.pending.in_valid.next = true;
        }
        if self.take_db.val() {
            self.incoming.next.kind = self.kind_doorbell.val();
            self.incoming.next.qpn = self.doorbells.out_data.val().number;
            self.incoming.next.wsn = bit_cast::<24, 16>(self.doorbells.out_data.val().index);
            self.incoming.next.stored = false;
            self.pending.in_valid.next = true;
        }
        self.pending.in_data.next = self.incoming.val();

        comment!("a data packet waits for its answer; the others pass in order");
        self.asks.next = self.pending.out_data.val().kind == self.kind_data.val();
        self.asks_book.next = (self.pending.out_data.val().opcode > self.op_request.val())
            & (self.pending.out_data.val().opcode <= self.op_atomic_ack.val());
        self.answered.next = self.answers.out_valid.val();
        if self.asks_book.val() {
            self.answered.next = self.read_answers.out_valid.val();
        }
        self.deliver.next = self.pending.out_valid.val()
            & self.out.in_ready.val()
            & (!self.asks.val() | self.answered.val());
        self.pending.out_ready.next = self.deliver.val();
        self.answers.out_ready.next = self.deliver.val() & self.asks.val() & !self.asks_book.val();
        self.read_answers.out_ready.next =
            self.deliver.val() & self.asks.val() & self.asks_book.val();
        self.front.next = self.pending.out_data.val();
        self.front.next.mr = self.answers.out_data.val();
        if self.asks_book.val() {
            self.front.next.mr = self.read_answers.out_data.val();
        }
        self.out.in_data.next = self.front.val();
        self.out.in_valid.next = self.deliver.val();

        self.cnt_ack.next = self.pulse_ack.q.val();
        self.cnt_data.next = self.pulse_data.q.val();
        self.cnt_no_qp.next = self.pulse_no_qp.q.val();
        self.busy.next = self.metas.count.val().any()
            | self.doorbells.count.val().any()
            | self.errors.count.val().any()
            | self.pending.count.val().any()
            | self.acks.count.val().any()
            | self.queries.count.val().any()
            | self.read_queries.count.val().any()
            | self.out.count.val().any();
    }
}
