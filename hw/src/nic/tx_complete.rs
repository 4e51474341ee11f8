//! Completes send work in order: follows the cumulative acknowledgement through the launched messages.

use super::types::{CfgReq, Completion, Launch, Progress, QpError, QpMark, Retired};
use crate::leaf::{Ram, RamStyle, SyncFifo, Unpack};
use crate::prelude::*;
use crate::record;
use mprdma_spec::command::{qp_image, Opcode, QpState, MASK_SENDER};
use mprdma_spec::descriptor::{WcOpcode, WrOpcode, WQE_SIGNALED};
use mprdma_spec::status::WcStatus;

record! {
    /// What completion takes from `qp_image`.
    pub struct CompleteFields {
        pub mask: Bits<8> = qp_image::MASK,
        pub state: Bits<4> = qp_image::STATE,
        pub cqn: Bits<16> = qp_image::SQ_CQN,
        pub psn: Bits<24> = qp_image::SQ_PSN,
    }
}

/// State of one queue pair.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct CompleteState {
    pub valid: bool,
    /// The queue pair is in ERROR: whatever is open, and whatever comes, is flushed.
    pub failed: bool,
    /// Slot of the oldest open message.
    pub tail: Bits<6>,
    /// Open messages, 0 to 64.
    pub live: Bits<7>,
    /// The oldest held completion, and how many are held, 0 to 64.
    pub front: Bits<6>,
    pub held: Bits<7>,
    /// READs that are done and whose completion is not written, 0 to 16.
    pub reads: Bits<5>,
    /// Every PSN before it is acknowledged.
    pub una: Bits<24>,
    /// PSN after the last message launched.
    pub limit: Bits<24>,
    pub cqn: Bits<16>,
}

/// What is kept of a launched message.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct OpenMessage {
    pub first_psn: Bits<24>,
    pub packets: Bits<24>,
    pub length: Bits<32>,
    pub wqe_index: Bits<16>,
    pub status: Bits<8>,
    pub signaled: bool,
    /// `WcOpcode`, whose low bits say what is answered; 0: a WRITE.
    pub kind: Bits<3>,
    /// No work request: an answer to the peer, or a question whether it is there.
    pub response: bool,
}

/// A completion that waits for a READ or ATOMIC before it, or for its own data.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct HeldWork {
    pub length: Bits<32>,
    pub wqe_index: Bits<16>,
    pub signaled: bool,
    pub kind: Bits<3>,
}

#[derive(LogicState, Copy, Clone, Debug, PartialEq)]
enum Step {
    Clear,
    Pick,
    Load,
    Command,
    Store,
    Advance,
    Check,
    Emit,
    Hold,
    Drain,
    Keep,
    Release,
    Front,
    Look,
    Fail,
}

#[derive(LogicState, Copy, Clone, Debug, PartialEq)]
enum Job {
    Command,
    Store,
    Advance,
    ReadDone,
}

block! {
    /// Makes completions of launched messages, always in the order of their launch.
    ///
    /// - In: `launch`; `progress` of the sender engine; `read_done` (the data of a queue pair's next READ or ATOMIC are in memory);
    ///   the configuration bus (CREATE_QP, DESTROY_QP, and a MODIFY_QP with `MASK_SENDER` forget the open messages).
    /// - Out: `completion` for signaled and for failed work; `retired`, when a message leaves the ring and when a work
    ///   request is completed, in one where both come together; `qp_error`, once when a queue pair goes to ERROR; pulse
    ///   `cnt_completed` per work request completed with success; `cfg_done`, `init_done`, `busy`.
    /// - A launch takes 3 cycles; progress takes 5 cycles and 2 more for each message that it completes; a message that
    ///   is held takes 3 more, and 3 when it is released.
    ///
    /// A message leaves the ring when the cumulative acknowledgement has passed its last PSN and all before it have left.
    /// A WRITE is complete then, and a READ or ATOMIC when its data are there, but completions are in the order of the work
    /// requests: behind an unfinished READ they are held, 64 at most. Answers to the peer, and what else has no work
    /// request, leave the ring silently.
    ///
    /// One that was launched with a status completes with it in its turn and moves the queue pair to ERROR; progress
    /// with a status does the same with the oldest open work request, held or not acknowledged. From then on all that is
    /// open, a held completion too, and every later launch, completes with `WorkRequestFlushed` (IBA 10.3.1.7). Progress
    /// beyond what was launched, or behind what was acknowledged, moves nothing. `RINGW` is `QPW` + 6: 64 messages per
    /// queue pair.
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
            read_done: QpMark,
            read_done_valid: Bit,
            completion_ready: Bit,
            retired_ready: Bit,
            qp_error_ready: Bit,
        }
        out {
            launch_ready: Bit,
            progress_ready: Bit,
            read_done_ready: Bit,
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
            loaded: CompleteState,
            next: CompleteState,
            read_slot: Bits<6>,
            read_place: Bits<22>,
            write_place: Bits<22>,
            held_place: Bits<22>,
            keep_slot: Bits<6>,
            keep_place: Bits<22>,
            stored: OpenMessage,
            keeps: HeldWork,
            waits: Bit,
            stays: Bit,
            advance: Bits<24>,
            open: Bits<24>,
            reach: Bits<24>,
            restarts: Bit,
            quiet: Bit,
            room: Bit,
            complete: Completion,
            leaves: Retired,
            failure: QpError,
        }
        reg {
            step: Step = Step::Clear,
            job: Job = Job::Store,
            clearing: Bits<QPW>,
            served: Bit,
            // Progress that came before the command on the bus, and whether it has been counted.
            older: Bits<4>,
            counted: Bit,
            cfg_answered: Bit,
            pulse_completed: Bit,
        }
        pipe {
            at: Bits<16>,
            item: Launch,
            news: Progress,
            state: CompleteState,
            message: OpenMessage,
            kept: HeldWork,
            // What the oldest message completes with, and whether that moves the queue pair to ERROR.
            outcome: Bits<8>,
            // In ERROR: what the next work request completes with.
            cause: Bits<8>,
            fails: Bit,
        }
        konst {
            create_qp: Bits<4> = bits(Opcode::CreateQp as u64),
            modify_qp: Bits<4> = bits(Opcode::ModifyQp as u64),
            destroy_qp: Bits<4> = bits(Opcode::DestroyQp as u64),
            mask_sender: Bits<8> = bits(MASK_SENDER),
            state_error: Bits<4> = bits(QpState::Error as u64),
            wqe_signaled: Bits<8> = bits(WQE_SIGNALED),
            flushed: Bits<8> = bits(WcStatus::WorkRequestFlushed as u64),
            op_read: Bits<8> = bits(WrOpcode::RdmaRead as u64),
            op_swap: Bits<8> = bits(WrOpcode::AtomicCmpAndSwp as u64),
            op_add: Bits<8> = bits(WrOpcode::AtomicFetchAndAdd as u64),
            wc_write: Bits<3> = bits(WcOpcode::RdmaWrite as u64),
            wc_read: Bits<3> = bits(WcOpcode::RdmaRead as u64),
            wc_swap: Bits<3> = bits(WcOpcode::CompSwap as u64),
            wc_add: Bits<3> = bits(WcOpcode::FetchAdd as u64),
            one_5: Bits<5> = bits(1),
            one_4: Bits<4> = bits(1),
            one_6: Bits<6> = bits(1),
            one_7: Bits<7> = bits(1),
            empty: CompleteState = CompleteState::default(),
        }
        sub {
            fields: Unpack<CompleteFields, 1024> = Unpack::default(),
            states: Ram<CompleteState, QPW> = Ram::new(RamStyle::Distributed, false),
            ring: Ram<OpenMessage, RINGW> = Ram::new(RamStyle::Block, false),
            holds: Ram<HeldWork, RINGW> = Ram::new(RamStyle::Block, false),
            launches: SyncFifo<Launch, 3> = SyncFifo::shallow(),
            reads_in: SyncFifo<QpMark, 3> = SyncFifo::shallow(),
            news_in: SyncFifo<Progress, 4> = SyncFifo::shallow(),
            completions: SyncFifo<Completion, 4> = SyncFifo::shallow(),
            retirements: SyncFifo<Retired, 3> = SyncFifo::shallow(),
            // Room for nearly every queue pair: the engine that takes the errors may be waiting to report progress.
            errors: SyncFifo<QpError, QPW> = SyncFifo::deep(),
        }
    }
}

impl<const QPW: usize, const RINGW: usize> TxComplete<QPW, RINGW> {
    /// The block for 2^`QPW` queue pairs.
    ///
    /// # Panics
    /// When `RINGW` is not `QPW` + 6.
    #[must_use]
    pub fn new() -> Self {
        assert_eq!(RINGW, QPW + 6, "64 messages per queue pair");
        Self::default()
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
            older,
            counted,
            cfg_answered,
            pulse_completed,
            at,
            item,
            news,
            state,
            message,
            kept,
            outcome,
            cause,
            fails
        );
        clock!(
            self,
            clock,
            states,
            ring,
            holds,
            launches,
            reads_in,
            news_in,
            completions,
            retirements,
            errors
        );
        self.launches.reset.next = self.reset.val();
        self.reads_in.reset.next = self.reset.val();
        self.news_in.reset.next = self.reset.val();
        self.completions.reset.next = self.reset.val();
        self.retirements.reset.next = self.reset.val();
        self.errors.reset.next = self.reset.val();
        self.launches.in_data.next = self.launch.val();
        self.launches.in_valid.next = self.launch_valid.val();
        self.launch_ready.next = self.launches.in_ready.val();
        self.news_in.in_data.next = self.progress.val();
        self.news_in.in_valid.next = self.progress_valid.val();
        self.progress_ready.next = self.news_in.in_ready.val();
        self.reads_in.in_data.next = self.read_done.val();
        self.reads_in.in_valid.next = self.read_done_valid.val();
        self.read_done_ready.next = self.reads_in.in_ready.val();
        self.completion.next = self.completions.out_data.val();
        self.completion_valid.next = self.completions.out_valid.val();
        self.completions.out_ready.next = self.completion_ready.val();
        self.retired.next = self.retirements.out_data.val();
        self.retired_valid.next = self.retirements.out_valid.val();
        self.retirements.out_ready.next = self.retired_ready.val();
        self.qp_error.next = self.errors.out_data.val();
        self.qp_error_valid.next = self.errors.out_valid.val();
        self.errors.out_ready.next = self.qp_error_ready.val();

        comment!("defaults");
        self.launches.out_ready.next = false;
        self.news_in.out_ready.next = false;
        self.reads_in.out_ready.next = false;
        self.completions.in_valid.next = false;
        self.retirements.in_valid.next = false;
        self.errors.in_valid.next = false;
        self.number.next = self.at.q.val();
        self.loaded.next = self.states.read_data.val();
        self.next.next = self.state.q.val();
        self.states.read.next = true;
        self.states.write.next = false;
        self.states.write_addr.next = self.at.q.val().get_bits::<QPW>(0);
        self.read_slot.next = self.state.q.val().tail + self.one_6.val();
        self.ring.read.next = true;
        self.ring.write.next = false;
        self.holds.read.next = true;
        self.holds.write.next = false;
        self.cfg_answered.d.next = false;
        self.pulse_completed.d.next = false;
        self.room.next = self.completions.in_ready.val()
            & self.retirements.in_ready.val()
            & self.errors.in_ready.val();

        comment!("configuration");
        self.fields.image.next = self.cfg.val().image;
        self.restarts.next = (self.cfg.val().op == self.modify_qp.val())
            & (self.fields.record.val().mask & self.mask_sender.val()).any();
        // What belongs to the life before the command goes first: launches, progress, and what they made.
        self.quiet.next = !self.launches.count.val().any()
            & !self.retirements.count.val().any()
            & !self.errors.count.val().any()
            & !self.older.q.val().any();
        if !self.cfg_valid.val() {
            self.served.d.next = false;
            self.counted.d.next = false;
        }

        comment!("the message that a launch stores");
        self.stored.next.first_psn = self.item.q.val().first_psn;
        self.stored.next.packets = self.item.q.val().packets;
        self.stored.next.length = self.item.q.val().length;
        self.stored.next.wqe_index = self.item.q.val().wqe_index;
        self.stored.next.status = self.item.q.val().status;
        self.stored.next.signaled = (self.item.q.val().flags & self.wqe_signaled.val()).any();
        self.stored.next.kind = self.wc_write.val();
        if self.item.q.val().opcode == self.op_read.val() {
            self.stored.next.kind = self.wc_read.val();
        }
        if self.item.q.val().opcode == self.op_swap.val() {
            self.stored.next.kind = self.wc_swap.val();
        }
        if self.item.q.val().opcode == self.op_add.val() {
            self.stored.next.kind = self.wc_add.val();
        }
        self.stored.next.response = self.item.q.val().response;

        comment!(
            "what is kept of a message that is acknowledged before its turn, and who has to wait"
        );
        self.keeps.next.length = self.message.q.val().length;
        self.keeps.next.wqe_index = self.message.q.val().wqe_index;
        self.keeps.next.signaled = self.message.q.val().signaled;
        self.keeps.next.kind = self.message.q.val().kind;
        self.waits.next = !self.message.q.val().response
            & (self.message.q.val().kind.any() | self.state.q.val().held.any());
        self.stays.next = self.kept.q.val().kind.any()
            & !self.state.q.val().reads.any()
            & !self.state.q.val().failed;

        comment!("PSN distances: of the news from the last acknowledgement, of the acknowledgement from the oldest message");
        self.advance.next = self.news.q.val().una - self.state.q.val().una;
        self.open.next = self.state.q.val().limit - self.state.q.val().una;
        self.reach.next = self.state.q.val().una - self.message.q.val().first_psn;

        comment!("outputs");
        self.complete.next.cqn = self.state.q.val().cqn;
        self.complete.next.qpn = self.at.q.val();
        self.complete.next.wqe_index = self.message.q.val().wqe_index;
        self.complete.next.byte_len = self.message.q.val().length;
        self.complete.next.imm = bits::<32>(0);
        self.complete.next.with_imm = false;
        self.complete.next.status = self.outcome.q.val();
        self.complete.next.opcode = bit_cast::<8, 3>(self.message.q.val().kind);
        self.leaves.next.qpn = self.at.q.val();
        self.leaves.next.ring = true;
        self.leaves.next.packets = self.message.q.val().packets;
        self.leaves.next.own = !self.message.q.val().response;
        if self.step.q.val() == Step::Hold {
            self.leaves.next.own = false;
        }
        if self.step.q.val() == Step::Release {
            self.complete.next.wqe_index = self.kept.q.val().wqe_index;
            self.complete.next.byte_len = self.kept.q.val().length;
            self.complete.next.status = bits::<8>(0);
            if self.state.q.val().failed {
                self.complete.next.status = self.cause.q.val();
            }
            self.complete.next.opcode = bit_cast::<8, 3>(self.kept.q.val().kind);
            self.leaves.next.ring = false;
            self.leaves.next.packets = bits::<24>(0);
            self.leaves.next.own = true;
        }
        self.completions.in_data.next = self.complete.val();
        self.retirements.in_data.next = self.leaves.val();
        self.failure.next.qpn = self.at.q.val();
        self.failure.next.status = self.news.q.val().status;
        if self.step.q.val() == Step::Emit {
            self.failure.next.status = self.outcome.q.val();
        }
        self.errors.in_data.next = self.failure.val();

        match self.step.q.val() {
            Step::Clear => {
                self.states.write.next = true;
                self.states.write_addr.next = self.clearing.q.val();
                self.next.next = self.empty.val();
                self.clearing.d.next = self.clearing.q.val() + 1;
                if self.clearing.q.val().all() {
                    self.step.d.next = Step::Pick;
                }
            }
            Step::Pick => {
                self.item.d.next = self.launches.out_data.val();
                self.news.d.next = self.news_in.out_data.val();
                self.cause.d.next = self.flushed.val();
                if self.launches.out_valid.val() {
                    self.launches.out_ready.next = true;
                    self.number.next = self.launches.out_data.val().qpn;
                    self.news.d.next.status = bits::<8>(0);
                    self.job.d.next = Job::Store;
                    self.step.d.next = Step::Load;
                } else if self.reads_in.out_valid.val() {
                    // Before a command, so that none outlives it.
                    self.reads_in.out_ready.next = true;
                    self.number.next = self.reads_in.out_data.val().qpn;
                    self.news.d.next.status = bits::<8>(0);
                    self.job.d.next = Job::ReadDone;
                    self.step.d.next = Step::Load;
                } else if self.cfg_valid.val() & !self.served.q.val() & !self.counted.q.val() {
                    self.older.d.next = self.news_in.count.val();
                    self.counted.d.next = true;
                } else if self.cfg_valid.val() & !self.served.q.val() & self.quiet.val() {
                    self.number.next = self.cfg.val().index.get_bits::<16>(0);
                    self.job.d.next = Job::Command;
                    self.step.d.next = Step::Load;
                } else if self.news_in.out_valid.val() {
                    self.news_in.out_ready.next = true;
                    self.number.next = self.news_in.out_data.val().qpn;
                    self.job.d.next = Job::Advance;
                    self.step.d.next = Step::Load;
                    if self.older.q.val().any() {
                        self.older.d.next = self.older.q.val() - self.one_4.val();
                    }
                }
                self.at.d.next = self.number.val();
            }
            Step::Load => {
                self.state.d.next = self.loaded.val();
                self.read_slot.next = self.loaded.val().tail;
                match self.job.q.val() {
                    Job::Command => {
                        self.step.d.next = Step::Command;
                    }
                    Job::Store => {
                        self.step.d.next = Step::Store;
                    }
                    Job::ReadDone => {
                        self.step.d.next = Step::Pick;
                        if self.loaded.val().valid & !self.loaded.val().failed {
                            self.next.next = self.loaded.val();
                            self.next.next.reads = self.loaded.val().reads + self.one_5.val();
                            self.states.write.next = true;
                            self.state.d.next = self.next.val();
                            if self.loaded.val().held.any() {
                                self.step.d.next = Step::Drain;
                            }
                        }
                    }
                    _ => {
                        self.step.d.next = Step::Advance;
                    }
                }
            }
            Step::Command => {
                if self.cfg.val().op == self.create_qp.val() {
                    self.next.next = self.empty.val();
                    self.next.next.valid = true;
                    self.next.next.failed =
                        self.fields.record.val().state == self.state_error.val();
                    self.next.next.cqn = self.fields.record.val().cqn;
                    self.next.next.una = self.fields.record.val().psn;
                    self.next.next.limit = self.fields.record.val().psn;
                    self.states.write.next = true;
                }
                if self.restarts.val() {
                    self.next.next.failed = false;
                    self.next.next.live = bits::<7>(0);
                    self.next.next.held = bits::<7>(0);
                    self.next.next.reads = bits::<5>(0);
                    self.next.next.una = self.fields.record.val().psn;
                    self.next.next.limit = self.fields.record.val().psn;
                    self.states.write.next = true;
                }
                if self.cfg.val().op == self.destroy_qp.val() {
                    self.next.next = self.empty.val();
                    self.states.write.next = true;
                }
                self.served.d.next = true;
                self.cfg_answered.d.next = true;
                self.step.d.next = Step::Pick;
            }
            Step::Store => {
                self.step.d.next = Step::Pick;
                if self.state.q.val().valid {
                    self.ring.write.next = true;
                    self.next.next.live = self.state.q.val().live + self.one_7.val();
                    self.next.next.limit = self.item.q.val().first_psn + self.item.q.val().packets;
                    if !self.state.q.val().live.any() {
                        self.next.next.tail = self.item.q.val().slot;
                        // Nothing but an acknowledgement completes a message that can be sent.
                        if self.state.q.val().failed | self.item.q.val().status.any() {
                            self.step.d.next = Step::Check;
                        }
                    }
                    self.states.write.next = true;
                    self.state.d.next = self.next.val();
                    self.message.d.next = self.stored.val();
                }
            }
            Step::Advance => {
                self.message.d.next = self.ring.read_data.val();
                self.step.d.next = Step::Pick;
                if self.state.q.val().valid & !self.state.q.val().failed {
                    if self.advance.val() <= self.open.val() {
                        self.next.next.una = self.news.q.val().una;
                        self.states.write.next = true;
                        self.state.d.next = self.next.val();
                    }
                    if self.state.q.val().live.any() {
                        self.step.d.next = Step::Check;
                    } else if self.news.q.val().status.any() {
                        self.step.d.next = Step::Fail;
                    }
                }
            }
            Step::Check => {
                self.outcome.d.next = bits::<8>(0);
                self.fails.d.next = false;
                self.step.d.next = Step::Emit;
                if self.state.q.val().failed {
                    self.outcome.d.next = self.cause.q.val();
                } else if self.message.q.val().status.any() {
                    self.outcome.d.next = self.message.q.val().status;
                    self.fails.d.next = true;
                    // Its turn comes when the READs before it are done.
                    if self.state.q.val().held.any() {
                        self.step.d.next = Step::Drain;
                    }
                } else if self.reach.val() >= self.message.q.val().packets {
                    if self.waits.val() {
                        self.step.d.next = Step::Hold;
                    }
                } else if self.state.q.val().held.any() {
                    self.step.d.next = Step::Drain;
                } else if self.news.q.val().status.any() {
                    self.step.d.next = Step::Fail;
                } else {
                    self.step.d.next = Step::Pick;
                }
            }
            Step::Emit => {
                if self.room.val() {
                    self.completions.in_valid.next = !self.message.q.val().response
                        & (self.message.q.val().signaled | self.outcome.q.val().any());
                    self.retirements.in_valid.next = true;
                    self.errors.in_valid.next = self.fails.q.val();
                    self.pulse_completed.d.next =
                        !self.message.q.val().response & !self.outcome.q.val().any();
                    self.next.next.tail = self.state.q.val().tail + self.one_6.val();
                    self.next.next.live = self.state.q.val().live - self.one_7.val();
                    if self.fails.q.val() {
                        self.next.next.failed = true;
                    }
                    if self.state.q.val().failed & !self.message.q.val().response {
                        self.cause.d.next = self.flushed.val();
                    }
                    self.states.write.next = true;
                    self.state.d.next = self.next.val();
                    self.message.d.next = self.ring.read_data.val();
                    self.step.d.next = Step::Check;
                    if self.state.q.val().live == self.one_7.val() {
                        self.step.d.next = Step::Pick;
                        if self.state.q.val().held.any() {
                            self.step.d.next = Step::Drain;
                        } else if self.news.q.val().status.any() & !self.next.val().failed {
                            self.step.d.next = Step::Fail;
                        }
                    }
                }
            }
            Step::Hold => {
                // Out of the ring, into the line of completions.
                if self.room.val() {
                    self.retirements.in_valid.next = true;
                    self.holds.write.next = true;
                    self.next.next.tail = self.state.q.val().tail + self.one_6.val();
                    self.next.next.live = self.state.q.val().live - self.one_7.val();
                    self.next.next.held = self.state.q.val().held + self.one_7.val();
                    self.states.write.next = true;
                    self.state.d.next = self.next.val();
                    self.message.d.next = self.ring.read_data.val();
                    self.step.d.next = Step::Check;
                    if self.state.q.val().live == self.one_7.val() {
                        self.step.d.next = Step::Drain;
                    }
                }
            }
            Step::Drain => {
                self.step.d.next = Step::Keep;
            }
            Step::Keep => {
                self.kept.d.next = self.holds.read_data.val();
                self.step.d.next = Step::Release;
            }
            Step::Release => {
                if self.stays.val() {
                    self.step.d.next = Step::Pick;
                    if self.news.q.val().status.any() {
                        self.step.d.next = Step::Fail;
                    }
                } else if self.room.val() {
                    self.completions.in_valid.next =
                        self.kept.q.val().signaled | self.state.q.val().failed;
                    self.retirements.in_valid.next = true;
                    self.pulse_completed.d.next = !self.state.q.val().failed;
                    self.cause.d.next = self.flushed.val();
                    self.next.next.front = self.state.q.val().front + self.one_6.val();
                    self.next.next.held = self.state.q.val().held - self.one_7.val();
                    if self.kept.q.val().kind.any() & self.state.q.val().reads.any() {
                        self.next.next.reads = self.state.q.val().reads - self.one_5.val();
                    }
                    self.states.write.next = true;
                    self.state.d.next = self.next.val();
                    self.step.d.next = Step::Drain;
                    if self.state.q.val().held == self.one_7.val() {
                        self.step.d.next = Step::Pick;
                        if self.state.q.val().live.any() {
                            self.step.d.next = Step::Front;
                        } else if self.news.q.val().status.any() & !self.state.q.val().failed {
                            self.step.d.next = Step::Fail;
                        }
                    }
                }
            }
            Step::Front => {
                // The line is empty: the oldest message of the ring may have waited for that.
                self.read_slot.next = self.state.q.val().tail;
                self.step.d.next = Step::Look;
            }
            Step::Look => {
                self.message.d.next = self.ring.read_data.val();
                self.step.d.next = Step::Check;
            }
            Step::Fail => {
                // The oldest open work request gets the cause.
                if self.room.val() {
                    self.errors.in_valid.next = true;
                    self.cause.d.next = self.news.q.val().status;
                    self.next.next.failed = true;
                    self.states.write.next = true;
                    self.state.d.next = self.next.val();
                    self.step.d.next = Step::Pick;
                    if self.state.q.val().held.any() {
                        self.step.d.next = Step::Drain;
                    } else if self.state.q.val().live.any() {
                        self.step.d.next = Step::Check;
                    }
                }
            }
            _ => {}
        }
        self.states.read_addr.next = self.number.val().get_bits::<QPW>(0);
        self.states.write_data.next = self.next.val();
        self.read_place.next =
            (bit_cast::<22, 16>(self.at.q.val()) << 6) | bit_cast::<22, 6>(self.read_slot.val());
        self.ring.read_addr.next = self.read_place.val().get_bits::<RINGW>(0);
        self.write_place.next =
            (bit_cast::<22, 16>(self.at.q.val()) << 6) | bit_cast::<22, 6>(self.item.q.val().slot);
        self.ring.write_addr.next = self.write_place.val().get_bits::<RINGW>(0);
        self.ring.write_data.next = self.stored.val();
        self.held_place.next = (bit_cast::<22, 16>(self.at.q.val()) << 6)
            | bit_cast::<22, 6>(self.state.q.val().front);
        self.holds.read_addr.next = self.held_place.val().get_bits::<RINGW>(0);
        self.keep_slot.next = self.state.q.val().front + self.state.q.val().held.get_bits::<6>(0);
        self.keep_place.next =
            (bit_cast::<22, 16>(self.at.q.val()) << 6) | bit_cast::<22, 6>(self.keep_slot.val());
        self.holds.write_addr.next = self.keep_place.val().get_bits::<RINGW>(0);
        self.holds.write_data.next = self.keeps.val();

        self.cnt_completed.next = self.pulse_completed.q.val();
        self.cfg_done.next = self.cfg_answered.q.val();
        self.init_done.next = self.step.q.val() != Step::Clear;
        self.busy.next = (self.step.q.val() != Step::Pick)
            | self.launches.count.val().any()
            | self.news_in.count.val().any()
            | self.reads_in.count.val().any()
            | self.completions.count.val().any()
            | self.retirements.count.val().any()
            | self.errors.count.val().any();
    }
}
