//! Completes send work requests in order.

use super::types::{CfgReq, Completion, Launch, Progress, QpError, Retired};
use crate::leaf::{Ram, RamStyle, SyncFifo, Unpack};
use crate::prelude::*;
use crate::record;
use mprdma_spec::command::{qp_image, Opcode};
use mprdma_spec::descriptor::{WcOpcode, WQE_SIGNALED};
use mprdma_spec::status::WcStatus;

record! {
    /// The fields of `qp_image` that completion takes.
    pub struct CompleteFields {
        pub mask: Bits<8> = qp_image::MASK,
        pub cqn: Bits<16> = qp_image::SQ_CQN,
        pub sq_psn: Bits<24> = qp_image::SQ_PSN,
    }
}

/// The messages of one QP that have not completed.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct OpenMessages {
    pub exists: bool,
    /// The QP is in ERROR: what is open completes flushed.
    pub failed: bool,
    /// Status of the next completion when it is not 0: why the QP failed.
    pub cause: Bits<8>,
    /// Slot of the oldest message.
    pub tail: Bits<6>,
    /// Messages open, 0 to 64.
    pub live: Bits<7>,
    pub una: Bits<24>,
    pub cqn: Bits<16>,
}

/// What is kept of a launched message.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct OpenMessage {
    pub first_psn: Bits<24>,
    pub packets: Bits<24>,
    pub wqe_index: Bits<16>,
    pub length: Bits<32>,
    pub status: Bits<8>,
    pub signaled: bool,
}

#[derive(LogicState, Copy, Clone, Debug, PartialEq)]
enum Step {
    Clear,
    Pick,
    Load,
    Act,
    Open,
    Entry,
    Judge,
    Store,
}

#[derive(LogicState, Copy, Clone, Debug, PartialEq)]
enum Job {
    Launch,
    Progress,
    Command,
}

block! {
    /// Knows every launched message of 2^`QPW` QPs until it has completed. `RINGW` is `QPW` + 6.
    ///
    /// - In: `launch`; `progress` (how far a QP is acknowledged, or why it failed); the configuration bus.
    /// - Out: `completion`, for signalled requests and for every request that fails; `retired`, one per message;
    ///   `qp_error`, once when a QP goes to ERROR; `cnt_completed` (successes); `cfg_done`, `init_done`, `busy`.
    /// - 5 cycles per event and 3 per message that completes.
    ///
    /// Messages complete in posting order. One that was launched with a status fails when it is the oldest, and its QP
    /// with it. In ERROR the oldest open message gets the cause, the rest `WorkRequestFlushed` (IBA 10.3.1.4).
    pub struct TxComplete[const QPW: usize, const RINGW: usize][QPW, RINGW] {
        in {
            clock: Clock,
            reset: Bit,
            cfg: CfgReq,
            cfg_valid: Bit,
            launch: Launch,
            launch_valid: Bit,
            progress: Progress,
            progress_valid: Bit,
            completion_ready: Bit,
            retired_ready: Bit,
            qp_error_ready: Bit,
        }
        out {
            launch_ready: Bit,
            progress_ready: Bit,
            completion: Completion,
            completion_valid: Bit,
            retired: Retired,
            retired_valid: Bit,
            qp_error: QpError,
            qp_error_valid: Bit,
            cnt_completed: Bit,
            cfg_done: Bit,
            init_done: Bit,
            busy: Bit,
        }
        local {
            number: Bits<16>,
            now: OpenMessages,
            next: OpenMessages,
            entry: OpenMessage,
            fresh: OpenMessage,
            acknowledged: Bits<24>,
            done: Bit,
            ends: Bit,
            status: Bits<8>,
            room: Bit,
            stay: Bit,
            ours: Bit,
            creates: Bit,
            modifies: Bit,
            destroys: Bit,
            item: Completion,
            gone: Retired,
            failure: QpError,
            read_place: Bits<22>,
            write_place: Bits<22>,
        }
        reg {
            step: Step = Step::Clear,
            job: Job = Job::Launch,
            clearing: Bits<QPW>,
            served: Bit,
            cfg_answered: Bit,
            completed: Bit,
        }
        pipe {
            at: Bits<16>,
            state: OpenMessages,
            launched: Launch,
            moved: Progress,
        }
        konst {
            create_qp: Bits<4> = bits(Opcode::CreateQp as u64),
            modify_qp: Bits<4> = bits(Opcode::ModifyQp as u64),
            destroy_qp: Bits<4> = bits(Opcode::DestroyQp as u64),
            signaled: Bits<8> = bits(WQE_SIGNALED),
            success: Bits<8> = bits(WcStatus::Success as u64),
            flushed: Bits<8> = bits(WcStatus::WorkRequestFlushed as u64),
            write: Bits<8> = bits(WcOpcode::RdmaWrite as u64),
            blank: OpenMessages = OpenMessages::default(),
        }
        sub {
            fields: Unpack<CompleteFields, 1024> = Unpack::default(),
            queues: Ram<OpenMessages, QPW> = Ram::new(RamStyle::Block, false),
            ring: Ram<OpenMessage, RINGW> = Ram::new(RamStyle::Ultra, false),
            launches: SyncFifo<Launch, 3> = SyncFifo::shallow(),
            news: SyncFifo<Progress, 5> = SyncFifo::shallow(),
            completions: SyncFifo<Completion, 3> = SyncFifo::shallow(),
            retirements: SyncFifo<Retired, 3> = SyncFifo::shallow(),
            failures: SyncFifo<QpError, 3> = SyncFifo::shallow(),
        }
    }
}

impl<const QPW: usize, const RINGW: usize> Logic for TxComplete<QPW, RINGW> {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(
            self,
            clock,
            step,
            job,
            clearing,
            served,
            cfg_answered,
            completed,
            at,
            state,
            launched,
            moved
        );
        clock!(
            self,
            clock,
            queues,
            ring,
            launches,
            news,
            completions,
            retirements,
            failures
        );
        self.launches.reset.next = self.reset.val();
        self.news.reset.next = self.reset.val();
        self.completions.reset.next = self.reset.val();
        self.retirements.reset.next = self.reset.val();
        self.failures.reset.next = self.reset.val();
        self.launches.in_data.next = self.launch.val();
        self.launches.in_valid.next = self.launch_valid.val();
        self.launch_ready.next = self.launches.in_ready.val();
        self.news.in_data.next = self.progress.val();
        self.news.in_valid.next = self.progress_valid.val();
        self.progress_ready.next = self.news.in_ready.val();
        self.completion.next = self.completions.out_data.val();
        self.completion_valid.next = self.completions.out_valid.val();
        self.completions.out_ready.next = self.completion_ready.val();
        self.retired.next = self.retirements.out_data.val();
        self.retired_valid.next = self.retirements.out_valid.val();
        self.retirements.out_ready.next = self.retired_ready.val();
        self.qp_error.next = self.failures.out_data.val();
        self.qp_error_valid.next = self.failures.out_valid.val();
        self.failures.out_ready.next = self.qp_error_ready.val();

        comment!("the queue at hand");
        self.fields.image.next = self.cfg.val().image;
        self.creates.next = self.cfg.val().op == self.create_qp.val();
        self.modifies.next = self.cfg.val().op == self.modify_qp.val();
        self.destroys.next = self.cfg.val().op == self.destroy_qp.val();
        self.ours.next = self.creates.val() | self.modifies.val() | self.destroys.val();
        self.number.next = self.launches.out_data.val().qpn;
        self.now.next = self.state.q.val();
        self.next.next = self.state.q.val();
        self.launches.out_ready.next = false;
        self.news.out_ready.next = false;
        self.cfg_answered.d.next = false;
        if !self.cfg_valid.val() {
            self.served.d.next = false;
        }
        self.queues.read.next = true;
        self.queues.read_addr.next = self.at.q.val().get_bits::<QPW>(0);
        self.queues.write.next = false;
        self.queues.write_addr.next = self.at.q.val().get_bits::<QPW>(0);

        comment!("its oldest message");
        self.read_place.next =
            (bit_cast::<22, 16>(self.at.q.val()) << 6) | bit_cast::<22, 6>(self.now.val().tail);
        self.ring.read.next = true;
        self.ring.read_addr.next = self.read_place.val().get_bits::<RINGW>(0);
        self.entry.next = self.ring.read_data.val();
        self.acknowledged.next = self.now.val().una - self.entry.val().first_psn;
        self.done.next = self.acknowledged.val() >= self.entry.val().packets;
        self.status.next = self.success.val();
        if self.now.val().cause.any() {
            self.status.next = self.now.val().cause;
        } else if self.now.val().failed {
            self.status.next = self.flushed.val();
        } else if self.entry.val().status.any() {
            self.status.next = self.entry.val().status;
        }
        self.ends.next = self.done.val() | self.status.val().any();
        self.room.next = self.completions.in_ready.val()
            & self.retirements.in_ready.val()
            & self.failures.in_ready.val();
        self.item.next.cqn = self.now.val().cqn;
        self.item.next.qpn = self.at.q.val();
        self.item.next.wqe_index = self.entry.val().wqe_index;
        self.item.next.byte_len = self.entry.val().length;
        self.item.next.imm = bits::<32>(0);
        self.item.next.with_imm = false;
        self.item.next.status = self.status.val();
        self.item.next.opcode = self.write.val();
        self.completions.in_data.next = self.item.val();
        self.completions.in_valid.next = false;
        self.gone.next.qpn = self.at.q.val();
        self.gone.next.packets = self.entry.val().packets;
        self.retirements.in_data.next = self.gone.val();
        self.retirements.in_valid.next = false;
        self.failure.next.qpn = self.at.q.val();
        self.failure.next.status = self.status.val();
        self.failures.in_valid.next = false;
        self.completed.d.next = false;
        self.stay.next = false;

        comment!("a new message goes behind the others");
        self.fresh.next.first_psn = self.launched.q.val().first_psn;
        self.fresh.next.packets = self.launched.q.val().packets;
        self.fresh.next.wqe_index = self.launched.q.val().wqe_index;
        self.fresh.next.length = self.launched.q.val().length;
        self.fresh.next.status = self.launched.q.val().status;
        self.fresh.next.signaled = (self.launched.q.val().flags & self.signaled.val()).any();
        self.write_place.next = (bit_cast::<22, 16>(self.at.q.val()) << 6)
            | bit_cast::<22, 6>(self.launched.q.val().slot);
        self.ring.write.next = false;
        self.ring.write_addr.next = self.write_place.val().get_bits::<RINGW>(0);
        self.ring.write_data.next = self.fresh.val();

        match self.step.q.val() {
            Step::Clear => {
                self.queues.write.next = true;
                self.queues.write_addr.next = self.clearing.q.val();
                self.next.next = self.blank.val();
                self.clearing.d.next = self.clearing.q.val() + 1;
                if self.clearing.q.val().all() {
                    self.step.d.next = Step::Pick;
                }
            }
            Step::Pick => {
                self.launched.d.next = self.launches.out_data.val();
                self.moved.d.next = self.news.out_data.val();
                self.step.d.next = Step::Load;
                if self.launches.out_valid.val() {
                    self.job.d.next = Job::Launch;
                    self.launches.out_ready.next = true;
                } else if self.news.out_valid.val() {
                    self.job.d.next = Job::Progress;
                    self.number.next = self.news.out_data.val().qpn;
                    self.news.out_ready.next = true;
                } else if self.cfg_valid.val() & !self.served.q.val() & self.ours.val() {
                    self.job.d.next = Job::Command;
                    self.number.next = self.cfg.val().index.get_bits::<16>(0);
                } else {
                    self.step.d.next = Step::Pick;
                    if self.cfg_valid.val() & !self.served.q.val() {
                        self.served.d.next = true;
                        self.cfg_answered.d.next = true;
                    }
                }
                self.at.d.next = self.number.val();
            }
            Step::Load => {
                self.step.d.next = Step::Act;
            }
            Step::Act => {
                self.state.d.next = self.queues.read_data.val();
                self.step.d.next = Step::Open;
            }
            Step::Open => {
                self.step.d.next = Step::Entry;
                match self.job.q.val() {
                    Job::Launch => {
                        if self.now.val().exists {
                            self.ring.write.next = true;
                            self.next.next.live = self.now.val().live + 1;
                        }
                    }
                    Job::Progress => {
                        if self.now.val().exists {
                            self.next.next.una = self.moved.q.val().una;
                            if self.moved.q.val().status.any() & !self.now.val().failed {
                                self.next.next.failed = true;
                                self.next.next.cause = self.moved.q.val().status;
                                self.failure.next.status = self.moved.q.val().status;
                                self.failures.in_valid.next = true;
                                self.stay.next = !self.failures.in_ready.val();
                            }
                        }
                    }
                    Job::Command => {
                        self.served.d.next = true;
                        self.cfg_answered.d.next = true;
                        self.step.d.next = Step::Store;
                        if self.creates.val()
                            | (self.modifies.val() & self.fields.record.val().mask.get_bit(3))
                        {
                            self.next.next = self.blank.val();
                            self.next.next.exists = true;
                            self.next.next.una = self.fields.record.val().sq_psn;
                            self.next.next.cqn = self.fields.record.val().cqn;
                        }
                        if self.destroys.val() {
                            self.next.next = self.blank.val();
                        }
                    }
                    _ => {}
                }
                if self.stay.val() {
                    self.step.d.next = Step::Open;
                } else {
                    self.state.d.next = self.next.val();
                }
            }
            Step::Entry => {
                self.step.d.next = Step::Judge;
            }
            Step::Judge => {
                self.step.d.next = Step::Store;
                if self.now.val().live.any() & self.ends.val() {
                    self.step.d.next = Step::Judge;
                    if self.room.val() {
                        self.step.d.next = Step::Entry;
                        self.completions.in_valid.next =
                            self.status.val().any() | self.entry.val().signaled;
                        self.retirements.in_valid.next = true;
                        self.completed.d.next = !self.status.val().any();
                        self.next.next.tail = self.now.val().tail + 1;
                        self.next.next.live = self.now.val().live - 1;
                        self.next.next.cause = bits::<8>(0);
                        if self.status.val().any() & !self.now.val().failed {
                            self.next.next.failed = true;
                            self.failures.in_valid.next = true;
                        }
                        self.state.d.next = self.next.val();
                    }
                }
            }
            Step::Store => {
                self.queues.write.next = true;
                self.step.d.next = Step::Pick;
            }
            _ => {}
        }
        self.failures.in_data.next = self.failure.val();
        self.queues.write_data.next = self.next.val();
        self.cnt_completed.next = self.completed.q.val();
        self.cfg_done.next = self.cfg_answered.q.val();
        self.init_done.next = self.step.q.val() != Step::Clear;
        self.busy.next = (self.step.q.val() != Step::Pick)
            | self.launches.out_valid.val()
            | self.news.out_valid.val()
            | self.completions.out_valid.val()
            | self.retirements.out_valid.val()
            | self.failures.out_valid.val();
    }
}
