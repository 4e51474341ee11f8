//! The command unit: checks a command, puts it on the configuration bus, waits for every owner, reports.

use crate::leaf::{Ram, RamStyle, Unpack};
use crate::nic::layouts::{CqFields, EqFields, MrFields, QpFields};
use crate::nic::telemetry::vp_trace::TraceFields;
use crate::nic::types::CfgReq;
use crate::prelude::*;
use mprdma_spec::command::{Opcode, QpState, Status, TRACED_VPS, TRACE_GROUP};
use mprdma_spec::config::{Config, MSIX_VECTORS};

#[derive(LogicState, Copy, Clone, Debug, PartialEq)]
enum Step {
    Clear,
    Idle,
    Decode,
    Lookup,
    Check,
    SendCq,
    SendCqCheck,
    ReceiveCq,
    ReceiveCqCheck,
    Issue,
    Markers,
    Record,
    Settle,
}

/// What the object table knows of an object.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct Object {
    pub exists: bool,
    /// MR: the generation byte of its key.
    pub generation: Bits<8>,
}

block! {
    /// Runs one command at a time.
    ///
    /// - In: `start` (pulse) with `opcode`; `image`, the argument window, stable while `running`; `done`, one pulse per
    ///   owner and request; the QP state halves and what telemetry answers; marker pulses.
    /// - Out: `cfg`, `cfg_valid`; `running`; `status`, `result` (valid when not running); `init_done`.
    ///
    /// Arguments are checked here, before an owner sees them: indices against the table sizes, existence in the object
    /// table, ranges as `spec` states them. A command that fails changes nothing. A start while a command runs is
    /// ignored. DESTROY_QP ends when the markers of both pipelines came out, and then no ACK
    /// waited for its address (`acks_busy`) for as long as one may be between two queues: nothing of the QP is left
    /// inside, and no ACK of it can go to the peer of the next QP with its number.
    pub struct Commands[const OBJW: usize][OBJW] {
        in {
            clock: Clock,
            reset: Bit,
            start: Bit,
            opcode: Bits<8>,
            image: Bits<1024>,
            done: Bits<12>,
            sender_status: Bits<512>,
            receiver_status: Bits<512>,
            telemetry: Bits<1024>,
            tx_marker: Bit,
            rx_marker: Bit,
            acks_busy: Bit,
        }
        out {
            cfg: CfgReq,
            cfg_valid: Bit,
            running: Bit,
            status: Bits<8>,
            result: Bits<1024>,
            init_done: Bit,
        }
        local {
            is_qp: Bit,
            is_telemetry: Bit,
            is_mr: Bit,
            is_cq: Bit,
            is_eq: Bit,
            creates: Bit,
            destroys: Bit,
            limit: Bits<24>,
            number: Bits<24>,
            slot: Bits<OBJW>,
            takes_state: Bit,
            takes_multipath: Bit,
            takes_sender: Bit,
            state_good: Bit,
            multipath_good: Bit,
            create_good: Bit,
            qp_good: Bit,
            ring_good: Bit,
            region_good: Bit,
            vp_end: Bits<17>,
            region_end: Bits<64>,
            region_io_end: Bits<64>,
            stale: Bit,
            seen_now: Bits<12>,
            written: Object,
            wide_sender: Bits<1024>,
            wide_receiver: Bits<1024>,
        }
        reg {
            step: Step = Step::Clear,
            clearing: Bits<OBJW>,
            code: Bits<8>,
            outcome: Bits<8>,
            seen: Bits<12>,
            tx_out: Bit,
            rx_out: Bit,
            quiet: Bits<4>,
            issued: Bit,
        }
        pipe {
            index: Bits<24>,
            base: Bits<OBJW>,
            argument_good: Bit,
            answer: Bits<1024>,
        }
        konst {
            qps: Bits<24> = bits(0),
            cqs: Bits<24> = bits(0),
            eqs: Bits<24> = bits(0),
            mrs: Bits<24> = bits(0),
            base_qp: Bits<OBJW> = bits(0),
            base_mr: Bits<OBJW> = bits(1 << (OBJW - 2)),
            base_cq: Bits<OBJW> = bits(2 << (OBJW - 2)),
            base_eq: Bits<OBJW> = bits(3 << (OBJW - 2)),
            nop: Bits<8> = bits(Opcode::Nop as u64),
            create_qp: Bits<8> = bits(Opcode::CreateQp as u64),
            modify_qp: Bits<8> = bits(Opcode::ModifyQp as u64),
            query_qp: Bits<8> = bits(Opcode::QueryQp as u64),
            destroy_qp: Bits<8> = bits(Opcode::DestroyQp as u64),
            register_mr: Bits<8> = bits(Opcode::RegisterMr as u64),
            deregister_mr: Bits<8> = bits(Opcode::DeregisterMr as u64),
            create_cq: Bits<8> = bits(Opcode::CreateCq as u64),
            destroy_cq: Bits<8> = bits(Opcode::DestroyCq as u64),
            create_eq: Bits<8> = bits(Opcode::CreateEq as u64),
            destroy_eq: Bits<8> = bits(Opcode::DestroyEq as u64),
            query_qp_stats: Bits<8> = bits(Opcode::QueryQpStats as u64),
            read_trace: Bits<8> = bits(Opcode::ReadTrace as u64),
            last_group: Bits<8> = bits((TRACED_VPS / TRACE_GROUP) as u64),
            ok: Bits<8> = bits(Status::Ok as u64),
            bad_opcode: Bits<8> = bits(Status::BadOpcode as u64),
            bad_index: Bits<8> = bits(Status::BadIndex as u64),
            exists: Bits<8> = bits(Status::Exists as u64),
            missing: Bits<8> = bits(Status::Missing as u64),
            bad_argument: Bits<8> = bits(Status::BadArgument as u64),
            state_error: Bits<4> = bits(QpState::Error as u64),
            mode_mp: Bits<4> = bits(1),
            mtu_most: Bits<3> = bits(5),
            vp_most: Bits<17> = bits(65536),
            vectors: Bits<8> = bits(MSIX_VECTORS as u64),
            all_owners: Bits<12> = bits(0xfff),
            nothing: Object = Object::default(),
        }
        sub {
            objects: Ram<Object, OBJW> = Ram::new(RamStyle::Distributed, false),
            qp: Unpack<QpFields, 1024> = Unpack::default(),
            mr: Unpack<MrFields, 1024> = Unpack::default(),
            cq: Unpack<CqFields, 1024> = Unpack::default(),
            eq: Unpack<EqFields, 1024> = Unpack::default(),
            trace: Unpack<TraceFields, 1024> = Unpack::default(),
        }
    }
}

impl<const OBJW: usize> Commands<OBJW> {
    /// The command unit of an image with `config`.
    ///
    /// # Panics
    /// When a table of `config` does not fit the object table.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let count = |log2: usize| {
            assert!(log2 + 2 <= OBJW, "the object table is too small");
            Constant::new(bits(1 << log2))
        };
        Self {
            qps: count(config.qp_log2),
            cqs: count(config.cq_log2),
            eqs: count(config.eq_log2),
            mrs: count(config.mr_log2),
            ..Self::default()
        }
    }
}

impl<const OBJW: usize> Logic for Commands<OBJW> {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(
            self,
            clock,
            step,
            clearing,
            code,
            outcome,
            seen,
            tx_out,
            rx_out,
            quiet,
            issued,
            index,
            base,
            argument_good,
            answer
        );
        clock!(self, clock, objects);
        self.qp.image.next = self.image.val();
        self.mr.image.next = self.image.val();
        self.cq.image.next = self.image.val();
        self.eq.image.next = self.image.val();
        self.trace.image.next = self.image.val();

        comment!("what kind of object, which one");
        self.is_telemetry.next = self.code.q.val() >= self.query_qp_stats.val();
        self.is_qp.next = ((self.code.q.val() >= self.create_qp.val())
            & (self.code.q.val() <= self.destroy_qp.val()))
            | self.is_telemetry.val();
        self.is_mr.next = (self.code.q.val() == self.register_mr.val())
            | (self.code.q.val() == self.deregister_mr.val());
        self.is_cq.next = (self.code.q.val() == self.create_cq.val())
            | (self.code.q.val() == self.destroy_cq.val());
        self.is_eq.next = (self.code.q.val() == self.create_eq.val())
            | (self.code.q.val() == self.destroy_eq.val());
        self.creates.next = (self.code.q.val() == self.create_qp.val())
            | (self.code.q.val() == self.register_mr.val())
            | (self.code.q.val() == self.create_cq.val())
            | (self.code.q.val() == self.create_eq.val());
        self.destroys.next = (self.code.q.val() == self.destroy_qp.val())
            | (self.code.q.val() == self.deregister_mr.val())
            | (self.code.q.val() == self.destroy_cq.val())
            | (self.code.q.val() == self.destroy_eq.val());
        self.limit.next = self.qps.val();
        self.number.next = self.qp.record.val().qpn;
        self.slot.next = self.base_qp.val();
        if self.is_mr.val() {
            self.limit.next = self.mrs.val();
            self.number.next = self.mr.record.val().key.get_bits::<24>(8);
            self.slot.next = self.base_mr.val();
        } else if self.is_cq.val() {
            self.limit.next = self.cqs.val();
            self.number.next = bit_cast::<24, 16>(self.cq.record.val().cqn);
            self.slot.next = self.base_cq.val();
        } else if self.is_eq.val() {
            self.limit.next = self.eqs.val();
            self.number.next = bit_cast::<24, 16>(self.eq.record.val().eqn);
            self.slot.next = self.base_eq.val();
        }

        comment!("are the arguments in range");
        self.takes_state.next = self.creates.val() | self.qp.record.val().mask.get_bit(0);
        self.takes_sender.next = self.creates.val() | self.qp.record.val().mask.get_bit(3);
        self.takes_multipath.next = self.creates.val() | self.qp.record.val().mask.get_bit(4);
        self.state_good.next = self.qp.record.val().state.any()
            & (self.qp.record.val().state <= self.state_error.val());
        self.vp_end.next = bit_cast::<17, 16>(self.qp.record.val().vp_base)
            + bit_cast::<17, 16>(self.qp.record.val().vp_count);
        self.multipath_good.next = self.qp.record.val().vp_count.any()
            & (self.vp_end.val() <= self.vp_most.val())
            & self.qp.record.val().delta.any()
            & !self.qp.record.val().delta.get_bit(7)
            & self.qp.record.val().initial_window.any()
            & self.qp.record.val().cwnd_max.any()
            & !self.qp.record.val().cwnd_max.get_bit(11)
            & self.qp.record.val().burst_interval.any();
        self.create_good.next = (self.qp.record.val().mode == self.mode_mp.val())
            & self.qp.record.val().mtu.any()
            & (self.qp.record.val().mtu <= self.mtu_most.val())
            & self.qp.record.val().sq_log2.any()
            & self.qp.record.val().rq_log2.any()
            & !self.qp.record.val().sq_base.get_bits::<6>(0).any()
            & !self.qp.record.val().rq_base.get_bits::<4>(0).any();
        self.qp_good.next = (!self.takes_state.val() | self.state_good.val())
            & (!self.takes_multipath.val() | self.multipath_good.val())
            & (!self.takes_sender.val() | self.qp.record.val().rto_floor.any())
            & (!self.creates.val() | self.create_good.val());
        self.ring_good.next = true;
        if self.is_cq.val() {
            self.ring_good.next = self.cq.record.val().log2.any()
                & !self.cq.record.val().base.get_bits::<5>(0).any()
                & (self.cq.record.val().vector < self.vectors.val());
        } else if self.is_eq.val() {
            self.ring_good.next = self.eq.record.val().log2.any()
                & !self.eq.record.val().base.get_bits::<4>(0).any()
                & (self.eq.record.val().vector < self.vectors.val());
        }
        self.region_end.next =
            self.mr.record.val().va + bit_cast::<64, 48>(self.mr.record.val().length);
        self.region_io_end.next =
            self.mr.record.val().iova + bit_cast::<64, 48>(self.mr.record.val().length);
        self.region_good.next = (self.region_end.val() >= self.mr.record.val().va)
            & (self.region_io_end.val() >= self.mr.record.val().iova);
        self.argument_good.d.next = true;
        if self.is_telemetry.val() {
            self.argument_good.d.next = (self.code.q.val() != self.read_trace.val())
                | (self.trace.record.val().group <= self.last_group.val());
        } else if self.is_qp.val() {
            self.argument_good.d.next = self.qp_good.val()
                | (self.code.q.val() == self.query_qp.val())
                | (self.code.q.val() == self.destroy_qp.val());
        } else if self.is_mr.val() {
            self.argument_good.d.next = self.region_good.val() | self.destroys.val();
        } else {
            self.argument_good.d.next = self.ring_good.val() | self.destroys.val();
        }

        comment!("the object table");
        self.objects.read.next = true;
        self.objects.read_addr.next = self.base.q.val() + self.index.q.val().get_bits::<OBJW>(0);
        self.objects.write.next = false;
        self.objects.write_addr.next = self.base.q.val() + self.index.q.val().get_bits::<OBJW>(0);
        self.written.next.exists = self.creates.val();
        self.written.next.generation = self.mr.record.val().key.get_bits::<8>(0);
        self.objects.write_data.next = self.written.val();
        self.stale.next = (self.code.q.val() == self.deregister_mr.val())
            & (self.objects.read_data.val().generation
                != self.mr.record.val().key.get_bits::<8>(0));

        comment!("owners answer in any order; markers may come while others still work");
        self.seen_now.next = self.seen.q.val() | self.done.val();
        self.seen.d.next = self.seen_now.val();
        self.tx_out.d.next = self.tx_out.q.val() | self.tx_marker.val();
        self.rx_out.d.next = self.rx_out.q.val() | self.rx_marker.val();
        self.issued.d.next = false;
        self.wide_sender.next = bit_cast::<1024, 512>(self.sender_status.val());
        self.wide_receiver.next = bit_cast::<1024, 512>(self.receiver_status.val());

        match self.step.q.val() {
            Step::Clear => {
                self.objects.write.next = true;
                self.objects.write_addr.next = self.clearing.q.val();
                self.objects.write_data.next = self.nothing.val();
                self.clearing.d.next = self.clearing.q.val() + 1;
                if self.clearing.q.val().all() {
                    self.step.d.next = Step::Idle;
                }
            }
            Step::Idle => {
                if self.start.val() {
                    self.code.d.next = self.opcode.val();
                    self.step.d.next = Step::Decode;
                }
            }
            Step::Decode => {
                self.index.d.next = self.number.val();
                self.base.d.next = self.slot.val();
                self.step.d.next = Step::Lookup;
                if self.code.q.val() == self.nop.val() {
                    self.outcome.d.next = self.ok.val();
                    self.step.d.next = Step::Settle;
                } else if self.code.q.val() > self.read_trace.val() {
                    self.outcome.d.next = self.bad_opcode.val();
                    self.step.d.next = Step::Settle;
                } else if self.number.val() >= self.limit.val() {
                    self.outcome.d.next = self.bad_index.val();
                    self.step.d.next = Step::Settle;
                }
            }
            Step::Lookup => {
                self.step.d.next = Step::Check;
            }
            Step::Check => {
                self.step.d.next = Step::Settle;
                if self.creates.val() & self.objects.read_data.val().exists {
                    self.outcome.d.next = self.exists.val();
                } else if !self.creates.val() & !self.objects.read_data.val().exists {
                    self.outcome.d.next = self.missing.val();
                } else if self.stale.val() {
                    self.outcome.d.next = self.bad_index.val();
                } else if !self.argument_good.q.val() {
                    self.outcome.d.next = self.bad_argument.val();
                } else if self.code.q.val() == self.create_qp.val() {
                    self.base.d.next = self.base_cq.val();
                    self.index.d.next = bit_cast::<24, 16>(self.qp.record.val().sq_cqn);
                    self.step.d.next = Step::SendCq;
                } else {
                    self.step.d.next = Step::Issue;
                }
            }
            Step::SendCq => {
                self.step.d.next = Step::SendCqCheck;
            }
            Step::SendCqCheck => {
                self.index.d.next = bit_cast::<24, 16>(self.qp.record.val().rq_cqn);
                self.step.d.next = Step::ReceiveCq;
                if (self.index.q.val() >= self.cqs.val()) | !self.objects.read_data.val().exists {
                    self.outcome.d.next = self.missing.val();
                    self.step.d.next = Step::Settle;
                }
            }
            Step::ReceiveCq => {
                self.step.d.next = Step::ReceiveCqCheck;
            }
            Step::ReceiveCqCheck => {
                self.base.d.next = self.slot.val();
                self.index.d.next = self.number.val();
                self.step.d.next = Step::Issue;
                if (self.index.q.val() >= self.cqs.val()) | !self.objects.read_data.val().exists {
                    self.outcome.d.next = self.missing.val();
                    self.step.d.next = Step::Settle;
                }
            }
            Step::Issue => {
                if !self.issued.q.val() {
                    self.seen.d.next = bits::<12>(0);
                    self.tx_out.d.next = false;
                    self.rx_out.d.next = false;
                    self.issued.d.next = true;
                } else {
                    self.issued.d.next = true;
                    if self.seen_now.val() == self.all_owners.val() {
                        self.issued.d.next = false;
                        self.answer.d.next =
                            self.wide_sender.val() | (self.wide_receiver.val() << 512);
                        if self.is_telemetry.val() {
                            self.answer.d.next = self.telemetry.val();
                        }
                        self.step.d.next = Step::Record;
                        if self.code.q.val() == self.destroy_qp.val() {
                            self.step.d.next = Step::Markers;
                        }
                    }
                }
            }
            Step::Markers => {
                self.quiet.d.next = self.quiet.q.val() + 1;
                if !self.tx_out.q.val() | !self.rx_out.q.val() | self.acks_busy.val() {
                    self.quiet.d.next = 0.into();
                } else if self.quiet.q.val().all() {
                    self.step.d.next = Step::Record;
                }
            }
            Step::Record => {
                self.objects.write.next = self.creates.val() | self.destroys.val();
                self.outcome.d.next = self.ok.val();
                self.step.d.next = Step::Settle;
            }
            Step::Settle => {
                self.step.d.next = Step::Idle;
            }
            _ => {}
        }
        self.cfg.next.op = self.code.q.val().get_bits::<4>(0);
        self.cfg.next.index = self.index.q.val();
        self.cfg.next.image = self.image.val();
        self.cfg_valid.next = self.issued.q.val();
        self.running.next = (self.step.q.val() != Step::Idle) & (self.step.q.val() != Step::Clear);
        self.status.next = self.outcome.q.val();
        self.result.next = self.answer.q.val();
        self.init_done.next = self.step.q.val() != Step::Clear;
    }
}
