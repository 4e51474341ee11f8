//! The event queue: writes asynchronous events to host memory and raises its interrupt.

use super::layouts::{EqFields, EqeRecord};
use super::types::{AsyncEvent, CfgReq, DmaWriteReq, Doorbell, QpError};
use crate::leaf::{Beat, Pack, SyncFifo, Unpack};
use crate::prelude::*;
use mprdma_spec::command::Opcode;
use mprdma_spec::descriptor::{eqe, EventType};
use mprdma_spec::status::WcStatus;

#[derive(LogicState, Copy, Clone, Debug, PartialEq)]
enum Step {
    Pick,
    Write,
    Drain,
    Interrupt,
}

block! {
    /// Owns EQ 0, which gets every asynchronous event of the card.
    ///
    /// - In: `fatal` (QPs that went to ERROR), `access` (QPs whose peer broke the rules), `cq_event`; `eq_db` (consumer
    ///   index); the configuration bus.
    /// - Out: `request` and `data` for the DMA write engine (one beat of 16 bytes), `irq`; `cfg_done`, `busy`.
    /// - One event per 6 cycles and its way to the bus. Each raises the EQ's vector behind its EQE.
    ///
    /// A `fatal` of status `WorkRequestFlushed` makes no event: software asked for ERROR, or `access` tells of the cause.
    ///
    /// Without an EQ, and when the ring is full, events are dropped: the state that they tell of stays readable.
    pub struct EqWriter {
        in {
            clock: Clock,
            reset: Bit,
            cfg: CfgReq,
            cfg_valid: Bit,
            fatal: QpError,
            fatal_valid: Bit,
            access: QpError,
            access_valid: Bit,
            cq_event: AsyncEvent,
            cq_event_valid: Bit,
            eq_db: Doorbell,
            eq_db_valid: Bit,
            request_ready: Bit,
            data_ready: Bit,
            irq_ready: Bit,
        }
        out {
            fatal_ready: Bit,
            access_ready: Bit,
            cq_event_ready: Bit,
            eq_db_ready: Bit,
            request: DmaWriteReq,
            request_valid: Bit,
            data: Beat,
            data_valid: Bit,
            irq: Bits<8>,
            irq_valid: Bit,
            cfg_done: Bit,
            busy: Bit,
        }
        local {
            picked: AsyncEvent,
            any: Bit,
            creates: Bit,
            destroys: Bit,
            size: Bits<16>,
            mask: Bits<16>,
            used: Bits<16>,
            wrapped: Bits<16>,
            slot: Bits<16>,
            write_req: DmaWriteReq,
            beat: Beat,
            take_fatal: Bit,
            take_access: Bit,
            take_cq: Bit,
        }
        reg {
            step: Step = Step::Pick,
            exists: Bit,
            served: Bit,
            cfg_answered: Bit,
            producer: Bits<16>,
            consumer: Bits<16>,
        }
        pipe {
            log2: Bits<4>,
            vector: Bits<8>,
            base: Bits<64>,
            item: AsyncEvent,
        }
        konst {
            create_eq: Bits<4> = bits(Opcode::CreateEq as u64),
            destroy_eq: Bits<4> = bits(Opcode::DestroyEq as u64),
            qp_fatal: Bits<8> = bits(EventType::QpFatal as u64),
            flushed: Bits<8> = bits(WcStatus::WorkRequestFlushed as u64),
            qp_access: Bits<8> = bits(EventType::QpAccess as u64),
            one: Bits<16> = bits(1),
            eqe_bytes: Bits<13> = bits(eqe::BYTES as u64),
            beat_bytes: Bits<7> = bits(eqe::BYTES as u64),
        }
        sub {
            fields: Unpack<EqFields, 1024> = Unpack::default(),
            record: Pack<EqeRecord, 128> = Pack::default(),
            fatals: SyncFifo<QpError, 4> = SyncFifo::shallow(),
            accesses: SyncFifo<QpError, 4> = SyncFifo::shallow(),
            cq_events: SyncFifo<AsyncEvent, 3> = SyncFifo::shallow(),
            doorbells: SyncFifo<Doorbell, 3> = SyncFifo::shallow(),
            requests: SyncFifo<DmaWriteReq, 2> = SyncFifo::shallow(),
            beats: SyncFifo<Beat, 2> = SyncFifo::shallow(),
            interrupts: SyncFifo<Bits<8>, 2> = SyncFifo::shallow(),
        }
    }
}

impl Logic for EqWriter {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(
            self,
            clock,
            step,
            exists,
            served,
            cfg_answered,
            producer,
            consumer,
            log2,
            vector,
            base,
            item
        );
        clock!(self, clock, fatals, accesses, cq_events, doorbells, requests, beats, interrupts);
        self.fatals.reset.next = self.reset.val();
        self.accesses.reset.next = self.reset.val();
        self.cq_events.reset.next = self.reset.val();
        self.doorbells.reset.next = self.reset.val();
        self.requests.reset.next = self.reset.val();
        self.beats.reset.next = self.reset.val();
        self.interrupts.reset.next = self.reset.val();
        self.fatals.in_data.next = self.fatal.val();
        self.fatals.in_valid.next =
            self.fatal_valid.val() & (self.fatal.val().status != self.flushed.val());
        self.fatal_ready.next = self.fatals.in_ready.val();
        self.accesses.in_data.next = self.access.val();
        self.accesses.in_valid.next = self.access_valid.val();
        self.access_ready.next = self.accesses.in_ready.val();
        self.cq_events.in_data.next = self.cq_event.val();
        self.cq_events.in_valid.next = self.cq_event_valid.val();
        self.cq_event_ready.next = self.cq_events.in_ready.val();
        self.doorbells.in_data.next = self.eq_db.val();
        self.doorbells.in_valid.next = self.eq_db_valid.val();
        self.eq_db_ready.next = self.doorbells.in_ready.val();
        self.request.next = self.requests.out_data.val();
        self.request_valid.next = self.requests.out_valid.val();
        self.requests.out_ready.next = self.request_ready.val();
        self.data.next = self.beats.out_data.val();
        self.data_valid.next = self.beats.out_valid.val();
        self.beats.out_ready.next = self.data_ready.val();
        self.irq.next = self.interrupts.out_data.val();
        self.irq_valid.next = self.interrupts.out_valid.val();
        self.interrupts.out_ready.next = self.irq_ready.val();

        comment!("the queue's own state");
        self.doorbells.out_ready.next = true;
        if self.doorbells.out_valid.val() {
            self.consumer.d.next = self.doorbells.out_data.val().index;
        }
        self.fields.image.next = self.cfg.val().image;
        self.creates.next = self.cfg.val().op == self.create_eq.val();
        self.destroys.next = self.cfg.val().op == self.destroy_eq.val();
        self.cfg_answered.d.next = false;
        if !self.cfg_valid.val() {
            self.served.d.next = false;
        } else if !self.served.q.val() & (self.step.q.val() == Step::Pick) {
            self.served.d.next = true;
            self.cfg_answered.d.next = true;
            if self.creates.val() {
                self.exists.d.next = true;
                self.producer.d.next = bits::<16>(0);
                self.consumer.d.next = bits::<16>(0);
                self.log2.d.next = self.fields.record.val().log2;
                self.vector.d.next = self.fields.record.val().vector;
                self.base.d.next = self.fields.record.val().base;
            } else if self.destroys.val() {
                self.exists.d.next = false;
            }
        }
        self.cfg_done.next = self.cfg_answered.q.val();

        comment!("one event at a time");
        self.take_fatal.next = self.fatals.out_valid.val();
        self.take_access.next = self.accesses.out_valid.val() & !self.fatals.out_valid.val();
        self.take_cq.next = self.cq_events.out_valid.val()
            & !self.fatals.out_valid.val()
            & !self.accesses.out_valid.val();
        self.any.next = self.fatals.out_valid.val()
            | self.accesses.out_valid.val()
            | self.cq_events.out_valid.val();
        self.picked.next = self.cq_events.out_data.val();
        if self.take_fatal.val() {
            self.picked.next.kind = self.qp_fatal.val();
            self.picked.next.code = self.fatals.out_data.val().status;
            self.picked.next.number = bit_cast::<24, 16>(self.fatals.out_data.val().qpn);
        } else if self.take_access.val() {
            self.picked.next.kind = self.qp_access.val();
            self.picked.next.code = self.accesses.out_data.val().status;
            self.picked.next.number = bit_cast::<24, 16>(self.accesses.out_data.val().qpn);
        }
        self.fatals.out_ready.next = self.take_fatal.val() & (self.step.q.val() == Step::Pick);
        self.accesses.out_ready.next = self.take_access.val() & (self.step.q.val() == Step::Pick);
        self.cq_events.out_ready.next = self.take_cq.val() & (self.step.q.val() == Step::Pick);

        self.size.next = self.one.val() << self.log2.q.val();
        self.mask.next = self.size.val() - self.one.val();
        self.used.next = self.producer.q.val() - self.consumer.q.val();
        self.slot.next = self.producer.q.val() & self.mask.val();
        self.wrapped.next = self.producer.q.val() >> self.log2.q.val();
        self.record.record.next.kind = self.item.q.val().kind;
        self.record.record.next.code = self.item.q.val().code;
        self.record.record.next.number = self.item.q.val().number;
        self.record.record.next.phase = !self.wrapped.val().get_bits::<1>(0);
        self.write_req.next.iova = self.base.q.val() + (bit_cast::<64, 16>(self.slot.val()) << 4);
        self.write_req.next.length = self.eqe_bytes.val();
        self.write_req.next.skip = bits::<7>(0);
        self.beat.next.data = bit_cast::<512, 128>(self.record.image.val());
        self.beat.next.nbytes = self.beat_bytes.val();
        self.beat.next.last = true;
        self.requests.in_data.next = self.write_req.val();
        self.requests.in_valid.next = false;
        self.beats.in_data.next = self.beat.val();
        self.beats.in_valid.next = false;
        self.interrupts.in_data.next = self.vector.q.val();
        self.interrupts.in_valid.next = false;
        match self.step.q.val() {
            Step::Pick => {
                self.item.d.next = self.picked.val();
                if self.any.val() {
                    self.step.d.next = Step::Write;
                }
            }
            Step::Write => {
                self.step.d.next = Step::Pick;
                if self.exists.q.val() & (self.used.val() < self.size.val()) {
                    self.requests.in_valid.next = true;
                    self.beats.in_valid.next = true;
                    self.producer.d.next = self.producer.q.val() + self.one.val();
                    self.step.d.next = Step::Drain;
                }
            }
            Step::Drain => {
                if !self.requests.count.val().any() {
                    self.step.d.next = Step::Interrupt;
                }
            }
            Step::Interrupt => {
                self.interrupts.in_valid.next = self.interrupts.in_ready.val();
                if self.interrupts.in_ready.val() {
                    self.step.d.next = Step::Pick;
                }
            }
            _ => {}
        }
        self.busy.next =
            self.any.val() | (self.step.q.val() != Step::Pick) | self.interrupts.out_valid.val();
    }
}
