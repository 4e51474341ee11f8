//! Completion queues: writes CQEs to host memory and raises their interrupts.

use super::layouts::{CqFields, CqeRecord};
use super::types::{AsyncEvent, CfgReq, Completion, DmaWriteReq, Doorbell};
use crate::leaf::{Beat, Pack, Ram, RamStyle, SyncFifo, Unpack};
use crate::prelude::*;
use mprdma_spec::command::Opcode;
use mprdma_spec::descriptor::{cqe, EventType, CQE_WITH_IMM};

/// State of one completion queue.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct CqContext {
    pub valid: bool,
    /// A CQE found the ring full; nothing is written any more.
    pub dead: bool,
    pub armed: bool,
    pub log2: Bits<4>,
    pub vector: Bits<8>,
    pub base: Bits<64>,
    /// Free-running.
    pub producer: Bits<16>,
    /// Free-running.
    pub consumer: Bits<16>,
}

#[derive(LogicState, Copy, Clone, Debug, PartialEq)]
enum Step {
    Clear,
    Pick,
    Read,
    Act,
    Command,
    Write,
    Drain,
    Interrupt,
}

#[derive(LogicState, Copy, Clone, Debug, PartialEq)]
enum Job {
    Complete,
    Consumer,
}

block! {
    /// Takes completions of the receive and the send side in turn.
    ///
    /// - In: `receive`, `send` (completions), `cq_db` (consumer index, arm), the configuration bus, `tick` for the time
    ///   stamp.
    /// - Out: `request` and `data` for the DMA write engine (one beat of 32 bytes each), `irq` (MSI-X vector),
    ///   `notice` (CQ error), pulses `cnt_written`, `cnt_overflow`; `cfg_done`, `init_done`, `busy`.
    /// - One completion per 4 cycles. An interrupt is given to the DMA write engine after it took the CQE
    ///   that caused it.
    ///
    /// A completion for a CQ that does not exist is dropped. One that finds its ring full is dropped too, kills the CQ
    /// and makes one CQ error event (IBA 11.6.3.1): a lost completion must not pass unseen.
    pub struct CqWriter[const CQW: usize][CQW] {
        in {
            clock: Clock,
            reset: Bit,
            tick: Bits<32>,
            cfg: CfgReq,
            cfg_valid: Bit,
            receive: Completion,
            receive_valid: Bit,
            send: Completion,
            send_valid: Bit,
            cq_db: Doorbell,
            cq_db_valid: Bit,
            request_ready: Bit,
            data_ready: Bit,
            irq_ready: Bit,
            notice_ready: Bit,
        }
        out {
            receive_ready: Bit,
            send_ready: Bit,
            cq_db_ready: Bit,
            request: DmaWriteReq,
            request_valid: Bit,
            data: Beat,
            data_valid: Bit,
            irq: Bits<8>,
            irq_valid: Bit,
            notice: AsyncEvent,
            notice_valid: Bit,
            cnt_written: Bit,
            cnt_overflow: Bit,
            cfg_done: Bit,
            init_done: Bit,
            busy: Bit,
        }
        local {
            pick_receive: Bit,
            pick_send: Bit,
            pick_db: Bit,
            number: Bits<16>,
            now: CqContext,
            next: CqContext,
            fresh: CqContext,
            size: Bits<16>,
            mask: Bits<16>,
            used: Bits<16>,
            wrapped: Bits<16>,
            slot: Bits<16>,
            write_req: DmaWriteReq,
            beat: Beat,
            failure: AsyncEvent,
            room: Bit,
            creates: Bit,
            destroys: Bit,
            idle: Bit,
        }
        reg {
            step: Step = Step::Clear,
            job: Job = Job::Complete,
            turn: Bit,
            clearing: Bits<CQW>,
            served: Bit,
            cfg_answered: Bit,
            pulse_written: Bit,
            pulse_overflow: Bit,
        }
        pipe {
            item: Completion,
            bell: Doorbell,
            context: CqContext,
            at: Bits<CQW>,
        }
        konst {
            create_cq: Bits<4> = bits(Opcode::CreateCq as u64),
            destroy_cq: Bits<4> = bits(Opcode::DestroyCq as u64),
            cq_error: Bits<8> = bits(EventType::CqError as u64),
            with_imm: Bits<8> = bits(CQE_WITH_IMM),
            without: Bits<8> = bits(0),
            one: Bits<16> = bits(1),
            cqe_bytes: Bits<13> = bits(cqe::BYTES as u64),
            beat_bytes: Bits<7> = bits(cqe::BYTES as u64),
            empty: CqContext = CqContext::default(),
        }
        sub {
            fields: Unpack<CqFields, 1024> = Unpack::default(),
            record: Pack<CqeRecord, 256> = Pack::default(),
            queues: Ram<CqContext, CQW> = Ram::new(RamStyle::Distributed, false),
            receives: SyncFifo<Completion, 4> = SyncFifo::shallow(),
            sends: SyncFifo<Completion, 4> = SyncFifo::shallow(),
            doorbells: SyncFifo<Doorbell, 4> = SyncFifo::shallow(),
            requests: SyncFifo<DmaWriteReq, 3> = SyncFifo::shallow(),
            beats: SyncFifo<Beat, 3> = SyncFifo::shallow(),
            interrupts: SyncFifo<Bits<8>, 3> = SyncFifo::shallow(),
            events: SyncFifo<AsyncEvent, 3> = SyncFifo::shallow(),
        }
    }
}

impl<const CQW: usize> Logic for CqWriter<CQW> {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(
            self,
            clock,
            step,
            job,
            turn,
            clearing,
            served,
            cfg_answered,
            pulse_written,
            pulse_overflow,
            item,
            bell,
            context,
            at
        );
        clock!(
            self, clock, queues, receives, sends, doorbells, requests, beats, interrupts, events
        );
        self.receives.reset.next = self.reset.val();
        self.sends.reset.next = self.reset.val();
        self.doorbells.reset.next = self.reset.val();
        self.requests.reset.next = self.reset.val();
        self.beats.reset.next = self.reset.val();
        self.interrupts.reset.next = self.reset.val();
        self.events.reset.next = self.reset.val();
        self.receives.in_data.next = self.receive.val();
        self.receives.in_valid.next = self.receive_valid.val();
        self.receive_ready.next = self.receives.in_ready.val();
        self.sends.in_data.next = self.send.val();
        self.sends.in_valid.next = self.send_valid.val();
        self.send_ready.next = self.sends.in_ready.val();
        self.doorbells.in_data.next = self.cq_db.val();
        self.doorbells.in_valid.next = self.cq_db_valid.val();
        self.cq_db_ready.next = self.doorbells.in_ready.val();
        self.request.next = self.requests.out_data.val();
        self.request_valid.next = self.requests.out_valid.val();
        self.requests.out_ready.next = self.request_ready.val();
        self.data.next = self.beats.out_data.val();
        self.data_valid.next = self.beats.out_valid.val();
        self.beats.out_ready.next = self.data_ready.val();
        self.irq.next = self.interrupts.out_data.val();
        self.irq_valid.next = self.interrupts.out_valid.val();
        self.interrupts.out_ready.next = self.irq_ready.val();
        self.notice.next = self.events.out_data.val();
        self.notice_valid.next = self.events.out_valid.val();
        self.events.out_ready.next = self.notice_ready.val();

        comment!("pick: doorbells first, then receive and send completions in turn; commands when nothing waits");
        self.pick_db.next = false;
        self.pick_receive.next = false;
        self.pick_send.next = false;
        self.room.next = self.requests.in_ready.val()
            & self.beats.in_ready.val()
            & self.interrupts.in_ready.val()
            & self.events.in_ready.val();
        self.number.next = self.doorbells.out_data.val().number;
        self.creates.next = self.cfg.val().op == self.create_cq.val();
        self.destroys.next = self.cfg.val().op == self.destroy_cq.val();
        self.idle.next = !self.receives.out_valid.val()
            & !self.sends.out_valid.val()
            & !self.doorbells.out_valid.val();

        comment!("what the picked item makes of its CQ");
        self.now.next = self.context.q.val();
        self.next.next = self.context.q.val();
        self.size.next = self.one.val() << self.now.val().log2;
        self.mask.next = self.size.val() - self.one.val();
        self.used.next = self.now.val().producer - self.now.val().consumer;
        self.slot.next = self.now.val().producer & self.mask.val();
        self.wrapped.next = self.now.val().producer >> self.now.val().log2;
        self.record.record.next.qpn = bit_cast::<24, 16>(self.item.q.val().qpn);
        self.record.record.next.wqe_index = self.item.q.val().wqe_index;
        self.record.record.next.byte_len = self.item.q.val().byte_len;
        self.record.record.next.imm = self.item.q.val().imm;
        self.record.record.next.timestamp = self.tick.val();
        self.record.record.next.status = self.item.q.val().status;
        self.record.record.next.opcode = self.item.q.val().opcode;
        self.record.record.next.flags = self.without.val();
        if self.item.q.val().with_imm {
            self.record.record.next.flags = self.with_imm.val();
        }
        self.record.record.next.phase = !self.wrapped.val().get_bits::<1>(0);
        self.write_req.next.iova = self.now.val().base + (bit_cast::<64, 16>(self.slot.val()) << 5);
        self.write_req.next.length = self.cqe_bytes.val();
        self.write_req.next.skip = bits::<7>(0);
        self.requests.in_data.next = self.write_req.val();
        self.requests.in_valid.next = false;
        self.beat.next.data = bit_cast::<512, 256>(self.record.image.val());
        self.beat.next.nbytes = self.beat_bytes.val();
        self.beat.next.last = true;
        self.beats.in_data.next = self.beat.val();
        self.beats.in_valid.next = false;
        self.interrupts.in_data.next = self.now.val().vector;
        self.interrupts.in_valid.next = false;
        self.failure.next.kind = self.cq_error.val();
        self.failure.next.code = bits::<8>(0);
        self.failure.next.number = bit_cast::<24, 16>(self.item.q.val().cqn);
        self.events.in_data.next = self.failure.val();
        self.events.in_valid.next = false;

        self.fields.image.next = self.cfg.val().image;
        self.fresh.next = self.empty.val();
        if self.creates.val() {
            self.fresh.next.valid = true;
            self.fresh.next.log2 = self.fields.record.val().log2;
            self.fresh.next.vector = self.fields.record.val().vector;
            self.fresh.next.base = self.fields.record.val().base;
        }

        self.queues.read.next = true;
        self.queues.read_addr.next = self.at.q.val();
        self.queues.write.next = false;
        self.queues.write_addr.next = self.at.q.val();
        self.cfg_answered.d.next = false;
        self.pulse_written.d.next = false;
        self.pulse_overflow.d.next = false;
        if !self.cfg_valid.val() {
            self.served.d.next = false;
        }

        match self.step.q.val() {
            Step::Clear => {
                self.queues.write.next = true;
                self.queues.write_addr.next = self.clearing.q.val();
                self.next.next = self.empty.val();
                self.clearing.d.next = self.clearing.q.val() + 1;
                if self.clearing.q.val().all() {
                    self.step.d.next = Step::Pick;
                }
            }
            Step::Pick => {
                if self.room.val() {
                    self.step.d.next = Step::Read;
                    self.job.d.next = Job::Complete;
                    if self.doorbells.out_valid.val() {
                        self.pick_db.next = true;
                        self.job.d.next = Job::Consumer;
                    } else if self.receives.out_valid.val()
                        & (!self.turn.q.val() | !self.sends.out_valid.val())
                    {
                        self.pick_receive.next = true;
                        self.turn.d.next = true;
                        self.number.next = self.receives.out_data.val().cqn;
                    } else if self.sends.out_valid.val() {
                        self.pick_send.next = true;
                        self.turn.d.next = false;
                        self.number.next = self.sends.out_data.val().cqn;
                    } else {
                        self.step.d.next = Step::Pick;
                        if self.cfg_valid.val() & !self.served.q.val() {
                            self.number.next = self.cfg.val().index.get_bits::<16>(0);
                            self.step.d.next = Step::Command;
                        }
                    }
                }
                self.at.d.next = self.number.val().get_bits::<CQW>(0);
                self.bell.d.next = self.doorbells.out_data.val();
                self.item.d.next = self.sends.out_data.val();
                if self.pick_receive.val() {
                    self.item.d.next = self.receives.out_data.val();
                }
            }
            Step::Read => {
                self.step.d.next = Step::Act;
            }
            Step::Act => {
                self.context.d.next = self.queues.read_data.val();
                self.step.d.next = Step::Write;
            }
            Step::Command => {
                self.queues.write.next = self.creates.val() | self.destroys.val();
                self.next.next = self.fresh.val();
                self.served.d.next = true;
                self.cfg_answered.d.next = true;
                self.step.d.next = Step::Pick;
            }
            Step::Write => {
                self.step.d.next = Step::Pick;
                if self.now.val().valid {
                    match self.job.q.val() {
                        Job::Consumer => {
                            self.next.next.consumer = self.bell.q.val().index;
                            if self.bell.q.val().arm {
                                self.next.next.armed =
                                    self.now.val().producer == self.bell.q.val().index;
                                if self.now.val().producer != self.bell.q.val().index {
                                    self.step.d.next = Step::Drain;
                                }
                            }
                            self.queues.write.next = true;
                        }
                        Job::Complete => {
                            if self.now.val().dead {
                                self.pulse_overflow.d.next = true;
                            } else if self.used.val() >= self.size.val() {
                                self.next.next.dead = true;
                                self.queues.write.next = true;
                                self.events.in_valid.next = true;
                                self.pulse_overflow.d.next = true;
                            } else {
                                self.requests.in_valid.next = true;
                                self.beats.in_valid.next = true;
                                self.next.next.producer = self.now.val().producer + self.one.val();
                                self.next.next.armed = false;
                                self.queues.write.next = true;
                                self.pulse_written.d.next = true;
                                if self.now.val().armed {
                                    self.step.d.next = Step::Drain;
                                }
                            }
                        }
                        _ => {}
                    }
                }
            }
            Step::Drain => {
                if !self.requests.count.val().any() {
                    self.step.d.next = Step::Interrupt;
                }
            }
            Step::Interrupt => {
                self.interrupts.in_valid.next = true;
                self.step.d.next = Step::Pick;
            }
            _ => {}
        }
        self.queues.write_data.next = self.next.val();
        self.receives.out_ready.next = self.pick_receive.val();
        self.sends.out_ready.next = self.pick_send.val();
        self.doorbells.out_ready.next = self.pick_db.val();

        self.cnt_written.next = self.pulse_written.q.val();
        self.cnt_overflow.next = self.pulse_overflow.q.val();
        self.cfg_done.next = self.cfg_answered.q.val();
        self.init_done.next = self.step.q.val() != Step::Clear;
        self.busy.next = (self.step.q.val() != Step::Pick)
            | !self.idle.val()
            | self.requests.count.val().any()
            | self.interrupts.out_valid.val()
            | self.events.out_valid.val();
    }
}
