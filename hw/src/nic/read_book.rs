//! Keeps the open READs and ATOMICs of both directions: those of this side until their data has come, those of the peer
//! until they are answered.

use super::segment::MaskField;
use super::types::{
    AtomicOp, AtomicResult, CfgReq, Launch, MrAnswer, QpMark, ReadEvent, ReadQuery, Respond,
    Responded,
};
use crate::leaf::{Ram, RamStyle, SyncFifo, Unpack};
use crate::prelude::*;
use mprdma_spec::command::{Opcode, MASK_RECEIVER, MASK_SENDER};
use mprdma_spec::config::READ_SLOTS_LOG2;
use mprdma_spec::descriptor::WrOpcode;
use mprdma_spec::params::ATOMIC_BYTES;

/// The READs and ATOMICs of one queue pair. A set has one bit per slot; slots are used in turn.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct ReadState {
    pub valid: bool,
    /// The queue pair is in the list of those whose peer waits for an answer, or is `given`.
    pub listed: bool,
    /// The next answer is with the send queue, or its ATOMIC is being executed; and a command has ended it meanwhile.
    pub given: bool,
    pub stale: bool,
    pub life: Bits<4>,
    /// Own ones: the oldest, and those that are open, and those whose last packet has come ahead of something else.
    pub oldest: Bits<4>,
    pub open: Bits<16>,
    pub ended: Bits<16>,
    /// The peer's: the next to answer, how many may be answered, and those that arrived and have to wait.
    pub answer: Bits<4>,
    pub due: Bits<5>,
    pub waiting: Bits<16>,
}

/// Where the data of an open READ or ATOMIC go.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct OpenRead {
    pub iova: Bits<64>,
    pub length: Bits<32>,
    pub mtu: Bits<3>,
    pub atomic: bool,
}

/// A READ or ATOMIC of the peer.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct AskedRead {
    pub psn: Bits<24>,
    /// Where it reads; of an ATOMIC that is `executed`, what the memory held.
    pub iova: Bits<64>,
    pub length: Bits<32>,
    pub atomic: bool,
    pub executed: bool,
    pub swap: bool,
    pub swap_add: Bits<64>,
    pub compare: Bits<64>,
}

#[derive(LogicState, Copy, Clone, Debug, PartialEq)]
enum Step {
    Clear,
    Pick,
    Load,
    Look,
    Judge,
    Fetch,
    Give,
}

#[derive(LogicState, Copy, Clone, Debug, PartialEq)]
enum Job {
    Open,
    Command,
    Event,
    Answer,
    Result,
    Returned,
}

block! {
    /// - In: `launch` (a READ or ATOMIC that can be sent opens its slot; others are ignored); `arrival` of the placement
    ///   block, in order; `query` of the classifier; `responded`, what became of a `respond`; `result`, of an `execute`;
    ///   `atomics_busy`, an ATOMIC is being executed; the configuration bus (CREATE_QP, DESTROY_QP, and MODIFY_QP with
    ///   `MASK_SENDER` or `MASK_RECEIVER`).
    /// - Out: `execute` and `respond`, the peer's ATOMICs and READs in the order of their PSNs, each when every PSN before
    ///   it has arrived and the one before it is answered: an ATOMIC is executed once, then answered; `done`, one per own
    ///   READ or ATOMIC, in the order of their launch, when all of its data and everything before has arrived;
    ///   `answer`, in the order of the questions: a hit needs an open slot of the same kind and bytes inside it, and the
    ///   packet flagged Tail, and no other, reaches its end; `rx_marker`, a pulse when all before a marker is done and no
    ///   ATOMIC is being executed; `cfg_done`, `init_done`, `busy`.
    /// - Latency: 7 cycles from `query` to `answer`, one per cycle, up to 8 inside at a time. A launch takes 2 cycles, an
    ///   event 2, or 4 when the queue pair has something to wait for and 2 more for each READ that moves; an answer 4, and
    ///   2 when it is returned.
    ///
    /// `arrival` never waits for `respond`: what may be answered stays in its slot, and the queue pair in a list, each once.
    /// So a full ring of messages at the send side cannot stop the receive side, whose ACKs empty that ring. Of a queue pair
    /// one answer is out at a time, and one that was not taken is given again: so none holds up another queue pair's.
    ///
    /// `LISTW` is `QPW` + 1: the list holds every queue pair. `SLOTW` is `QPW` + 4: 16 READs per queue pair and direction.
    pub struct ReadBook[const QPW: usize, const LISTW: usize, const SLOTW: usize][QPW, LISTW, SLOTW] {
        in {
            clock: Clock,
            reset: Bit,
            cfg: CfgReq,
            cfg_valid: Bit,
            launch: Launch,
            launch_valid: Bit,
            arrival: ReadEvent,
            arrival_valid: Bit,
            query: ReadQuery,
            query_valid: Bit,
            answer_ready: Bit,
            respond_ready: Bit,
            responded: Responded,
            responded_valid: Bit,
            execute_ready: Bit,
            result: AtomicResult,
            result_valid: Bit,
            atomics_busy: Bit,
            done_ready: Bit,
        }
        out {
            launch_ready: Bit,
            arrival_ready: Bit,
            query_ready: Bit,
            answer: MrAnswer,
            answer_valid: Bit,
            respond: Respond,
            respond_valid: Bit,
            responded_ready: Bit,
            execute: AtomicOp,
            execute_valid: Bit,
            result_ready: Bit,
            done: QpMark,
            done_valid: Bit,
            rx_marker: Bit,
            cfg_done: Bit,
            init_done: Bit,
            busy: Bit,
        }
        local {
            number: Bits<16>,
            loaded: ReadState,
            next: ReadState,
            opens: Bit,
            slot: Bits<4>,
            own_bit: Bits<16>,
            opened: OpenRead,
            asked: AskedRead,
            creates: Bit,
            destroys: Bit,
            modifies: Bit,
            sender: Bit,
            receiver: Bit,
            next_life: Bits<4>,
            mark: Bits<4>,
            waits: Bits<16>,
            ends: Bits<16>,
            behind_request: Bits<24>,
            behind_end: Bits<24>,
            may_answer: Bit,
            may_finish: Bit,
            lists: Bit,
            serve_list: Bit,
            may_give: Bit,
            may_mark: Bit,
            marked: Bit,
            gives: Respond,
            executes: AtomicOp,
            stores: Bit,
            relists: Bit,
            finishes: QpMark,
            place: Bits<20>,
            request_place: Bits<20>,
            end_place: Bits<20>,
            read_slot: Bits<4>,
            quiet: Bit,
            take: Bit,
            asked_place: Bits<20>,
            slots: Bits<16>,
            now_inside: Bits<5>,
            start: Bits<32>,
            reach: Bits<33>,
            fits: Bit,
            reply: MrAnswer,
        }
        reg {
            step: Step = Step::Clear,
            job: Job = Job::Event,
            clearing: Bits<QPW>,
            served: Bit,
            cfg_answered: Bit,
            turn: Bit,
            marker: Bit,
            inside: Bits<5>,
            valid_1: Bit,
            valid_2: Bit,
            valid_3: Bit,
        }
        pipe {
            at: Bits<16>,
            item: Launch,
            news: ReadEvent,
            outcome: AtomicResult,
            fate: Responded,
            state: ReadState,
            query_1: ReadQuery,
            query_2: ReadQuery,
            entry_2: OpenRead,
            open_2: Bit,
            start_3: Bits<32>,
            entry_3: OpenRead,
            length_3: Bits<13>,
            tail_3: Bit,
            open_3: Bit,
        }
        konst {
            create_qp: Bits<4> = bits(Opcode::CreateQp as u64),
            modify_qp: Bits<4> = bits(Opcode::ModifyQp as u64),
            destroy_qp: Bits<4> = bits(Opcode::DestroyQp as u64),
            mask_sender: Bits<8> = bits(MASK_SENDER),
            mask_receiver: Bits<8> = bits(MASK_RECEIVER),
            op_read: Bits<8> = bits(WrOpcode::RdmaRead as u64),
            op_last: Bits<8> = bits(WrOpcode::AtomicFetchAndAdd as u64),
            atomic_bytes: Bits<32> = bits(ATOMIC_BYTES as u64),
            slot_bits: Bits<3> = bits(READ_SLOTS_LOG2 as u64),
            most: Bits<5> = bits(8),
            one_16: Bits<16> = bits(1),
            one_5: Bits<5> = bits(1),
            one_4: Bits<4> = bits(1),
            empty: ReadState = ReadState::default(),
        }
        sub {
            fields: Unpack<MaskField, 1024> = Unpack::default(),
            states: Ram<ReadState, QPW> = Ram::new(RamStyle::Distributed, false),
            // The questions have a pipeline of their own, so what they need is there twice.
            slots_open: Ram<Bits<16>, QPW> = Ram::new(RamStyle::Distributed, false),
            reads: Ram<OpenRead, SLOTW> = Ram::new(RamStyle::Block, false),
            ends_at: Ram<Bits<24>, SLOTW> = Ram::new(RamStyle::Block, false),
            requests: Ram<AskedRead, SLOTW> = Ram::new(RamStyle::Ultra, false),
            // Every queue pair at most once.
            list: SyncFifo<Bits<16>, LISTW> = SyncFifo::deep(),
            launches: SyncFifo<Launch, 2> = SyncFifo::shallow(),
            events: SyncFifo<ReadEvent, 3> = SyncFifo::shallow(),
            responds: SyncFifo<Respond, 2> = SyncFifo::shallow(),
            returns: SyncFifo<Responded, 2> = SyncFifo::shallow(),
            executions: SyncFifo<AtomicOp, 2> = SyncFifo::shallow(),
            results: SyncFifo<AtomicResult, 2> = SyncFifo::shallow(),
            dones: SyncFifo<QpMark, 4> = SyncFifo::shallow(),
            questions: SyncFifo<ReadQuery, 3> = SyncFifo::shallow(),
            answers: SyncFifo<MrAnswer, 4> = SyncFifo::shallow(),
        }
    }
}

impl<const QPW: usize, const LISTW: usize, const SLOTW: usize> ReadBook<QPW, LISTW, SLOTW> {
    /// The block for 2^`QPW` queue pairs.
    ///
    /// # Panics
    /// When `LISTW` is not `QPW` + 1, or `SLOTW` not `QPW` + 4.
    #[must_use]
    pub fn new() -> Self {
        assert_eq!(LISTW, QPW + 1, "the list holds every queue pair");
        assert_eq!(SLOTW, QPW + READ_SLOTS_LOG2, "slots of a queue pair");
        Self::default()
    }
}

impl<const QPW: usize, const LISTW: usize, const SLOTW: usize> Logic
    for ReadBook<QPW, LISTW, SLOTW>
{
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
            turn,
            marker,
            inside,
            valid_1,
            valid_2,
            valid_3,
            at,
            item,
            news,
            outcome,
            fate,
            state,
            query_1,
            query_2,
            entry_2,
            open_2,
            start_3,
            entry_3,
            length_3,
            tail_3,
            open_3
        );
        clock!(
            self, clock, states, slots_open, reads, ends_at, requests, list, launches, events,
            responds, returns, executions, results, dones, questions, answers
        );
        self.list.reset.next = self.reset.val();
        self.launches.reset.next = self.reset.val();
        self.events.reset.next = self.reset.val();
        self.responds.reset.next = self.reset.val();
        self.returns.reset.next = self.reset.val();
        self.executions.reset.next = self.reset.val();
        self.results.reset.next = self.reset.val();
        self.dones.reset.next = self.reset.val();
        self.questions.reset.next = self.reset.val();
        self.answers.reset.next = self.reset.val();
        self.opens.next = (self.launch.val().opcode >= self.op_read.val())
            & (self.launch.val().opcode <= self.op_last.val())
            & !self.launch.val().response
            & self.launch.val().packets.any();
        self.launches.in_data.next = self.launch.val();
        self.launches.in_valid.next = self.launch_valid.val() & self.opens.val();
        self.launch_ready.next = self.launches.in_ready.val();
        self.events.in_data.next = self.arrival.val();
        self.events.in_valid.next = self.arrival_valid.val();
        self.arrival_ready.next = self.events.in_ready.val();
        self.respond.next = self.responds.out_data.val();
        self.respond_valid.next = self.responds.out_valid.val();
        self.responds.out_ready.next = self.respond_ready.val();
        self.returns.in_data.next = self.responded.val();
        self.returns.in_valid.next = self.responded_valid.val();
        self.responded_ready.next = self.returns.in_ready.val();
        self.execute.next = self.executions.out_data.val();
        self.execute_valid.next = self.executions.out_valid.val();
        self.executions.out_ready.next = self.execute_ready.val();
        self.results.in_data.next = self.result.val();
        self.results.in_valid.next = self.result_valid.val();
        self.result_ready.next = self.results.in_ready.val();
        self.done.next = self.dones.out_data.val();
        self.done_valid.next = self.dones.out_valid.val();
        self.dones.out_ready.next = self.done_ready.val();

        comment!("defaults");
        self.launches.out_ready.next = false;
        self.events.out_ready.next = false;
        self.responds.in_valid.next = false;
        self.executions.in_valid.next = false;
        self.returns.out_ready.next = false;
        self.results.out_ready.next = false;
        self.dones.in_valid.next = false;
        self.number.next = self.at.q.val();
        self.loaded.next = self.states.read_data.val();
        self.next.next = self.state.q.val();
        self.states.read.next = true;
        self.states.write.next = false;
        self.states.write_addr.next = self.at.q.val().get_bits::<QPW>(0);
        self.reads.write.next = false;
        self.requests.write.next = false;
        self.ends_at.write.next = false;
        self.cfg_answered.d.next = false;
        self.marker.d.next = false;
        self.lists.next = false;
        self.relists.next = false;
        self.stores.next = false;
        self.serve_list.next = false;
        self.may_mark.next = !self.atomics_busy.val()
            & !self.executions.count.val().any()
            & !self.results.count.val().any();
        self.marked.next = self.events.out_valid.val() & self.events.out_data.val().marker;
        // No ATOMIC begins before a marker that waits for the last one.
        self.may_give.next = self.responds.in_ready.val()
            & self.executions.in_ready.val()
            & (!self.marked.val() | self.may_mark.val());

        comment!("configuration");
        self.fields.image.next = self.cfg.val().image;
        self.creates.next = self.cfg.val().op == self.create_qp.val();
        self.destroys.next = self.cfg.val().op == self.destroy_qp.val();
        self.modifies.next = self.cfg.val().op == self.modify_qp.val();
        self.sender.next =
            self.modifies.val() & (self.fields.record.val().mask & self.mask_sender.val()).any();
        self.receiver.next =
            self.modifies.val() & (self.fields.record.val().mask & self.mask_receiver.val()).any();
        self.next_life.next = self.loaded.val().life + self.one_4.val();
        // What was launched before the command belongs to the life before it.
        self.quiet.next = !self.launches.count.val().any();
        if !self.cfg_valid.val() {
            self.served.d.next = false;
        }

        comment!("what a job stores");
        self.slot.next = self.news.q.val().slot;
        if self.job.q.val() == Job::Open {
            self.slot.next = self.item.q.val().wsn.get_bits::<4>(0);
        }
        self.own_bit.next = self.one_16.val() << self.slot.val();
        self.opened.next.iova = self.item.q.val().iova;
        self.opened.next.length = self.item.q.val().length;
        self.opened.next.mtu = self.item.q.val().mtu;
        self.opened.next.atomic = self.item.q.val().opcode != self.op_read.val();
        self.asked.next.psn = self.news.q.val().psn;
        self.asked.next.iova = self.news.q.val().iova;
        self.asked.next.length = self.news.q.val().length;
        self.asked.next.atomic = self.news.q.val().atomic;
        self.asked.next.executed = false;
        self.asked.next.swap = self.news.q.val().swap;
        self.asked.next.swap_add = self.news.q.val().swap_add;
        self.asked.next.compare = self.news.q.val().compare;
        if self.job.q.val() == Job::Result {
            // The next to answer: it was executed because its turn had come.
            self.slot.next = self.loaded.val().answer;
            self.asked.next.iova = self.outcome.q.val().original;
            self.asked.next.length = self.atomic_bytes.val();
            self.asked.next.atomic = true;
            self.asked.next.executed = true;
        }

        comment!(
            "the peer's next READ that waits, and the oldest own one, against the cumulative point"
        );
        self.mark.next = self.state.q.val().answer + self.state.q.val().due.get_bits::<4>(0);
        self.waits.next = self.state.q.val().waiting >> self.mark.val();
        self.ends.next = self.state.q.val().ended >> self.state.q.val().oldest;
        self.behind_request.next = self.news.q.val().aack - self.requests.read_data.val().psn;
        self.behind_end.next = self.news.q.val().aack - self.ends_at.read_data.val();
        // What has arrived is before the PSN that is waited for, or after it.
        // A peer that asks for more than 16 at a time does not get ahead of itself.
        self.may_answer.next = self.waits.val().get_bit(0)
            & !self.state.q.val().due.get_bit(4)
            & !self.behind_request.val().get_bit(23);
        self.may_finish.next = self.ends.val().get_bit(0) & !self.behind_end.val().get_bit(23);

        comment!("outputs");
        self.gives.next.qpn = self.at.q.val();
        self.gives.next.life = self.state.q.val().life;
        self.gives.next.slot = self.state.q.val().answer;
        self.gives.next.iova = self.requests.read_data.val().iova;
        self.gives.next.length = self.requests.read_data.val().length;
        self.gives.next.atomic = self.requests.read_data.val().atomic;
        self.responds.in_data.next = self.gives.val();
        self.executes.next.qpn = self.at.q.val();
        self.executes.next.iova = self.requests.read_data.val().iova;
        self.executes.next.swap = self.requests.read_data.val().swap;
        self.executes.next.swap_add = self.requests.read_data.val().swap_add;
        self.executes.next.compare = self.requests.read_data.val().compare;
        self.executions.in_data.next = self.executes.val();
        self.finishes.next.qpn = self.at.q.val();
        self.dones.in_data.next = self.finishes.val();

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
                self.news.d.next = self.events.out_data.val();
                self.outcome.d.next = self.results.out_data.val();
                self.fate.d.next = self.returns.out_data.val();
                self.step.d.next = Step::Load;
                if self.launches.out_valid.val() {
                    self.launches.out_ready.next = true;
                    self.number.next = self.launches.out_data.val().qpn;
                    self.job.d.next = Job::Open;
                } else if self.cfg_valid.val() & !self.served.q.val() & self.quiet.val() {
                    self.number.next = self.cfg.val().index.get_bits::<16>(0);
                    self.job.d.next = Job::Command;
                } else if self.returns.out_valid.val() {
                    self.returns.out_ready.next = true;
                    self.number.next = self.returns.out_data.val().qpn;
                    self.job.d.next = Job::Returned;
                } else if self.results.out_valid.val() {
                    self.results.out_ready.next = true;
                    self.number.next = self.results.out_data.val().qpn;
                    self.job.d.next = Job::Result;
                } else if self.events.out_valid.val()
                    & (!self.marked.val() | self.may_mark.val())
                    & (!self.turn.q.val() | !self.list.out_valid.val() | !self.may_give.val())
                {
                    self.events.out_ready.next = true;
                    self.number.next = self.events.out_data.val().qpn;
                    self.turn.d.next = true;
                    self.job.d.next = Job::Event;
                } else if self.list.out_valid.val() & self.may_give.val() {
                    self.serve_list.next = true;
                    self.number.next = self.list.out_data.val();
                    self.turn.d.next = false;
                    self.job.d.next = Job::Answer;
                } else {
                    self.step.d.next = Step::Pick;
                }
                self.at.d.next = self.number.val();
            }
            Step::Load => {
                self.state.d.next = self.loaded.val();
                self.next.next = self.loaded.val();
                self.step.d.next = Step::Pick;
                match self.job.q.val() {
                    Job::Open => {
                        if self.loaded.val().valid {
                            self.reads.write.next = true;
                            self.next.next.open = self.loaded.val().open | self.own_bit.val();
                            self.states.write.next = true;
                        }
                    }
                    Job::Command => {
                        self.served.d.next = true;
                        self.cfg_answered.d.next = true;
                        if self.creates.val() | self.destroys.val() {
                            self.next.next = self.empty.val();
                            self.next.next.listed = self.loaded.val().listed;
                            self.next.next.given = self.loaded.val().given;
                            self.next.next.stale = self.loaded.val().given;
                            self.next.next.valid = self.creates.val();
                            self.next.next.life = self.loaded.val().life;
                            self.states.write.next = true;
                        }
                        if self.creates.val() {
                            self.next.next.life = self.next_life.val();
                        }
                        if self.sender.val() {
                            self.next.next.oldest = bits::<4>(0);
                            self.next.next.open = bits::<16>(0);
                            self.next.next.ended = bits::<16>(0);
                            self.states.write.next = true;
                        }
                        if self.receiver.val() {
                            // The PSNs of what has arrived count no more.
                            self.next.next.ended = bits::<16>(0);
                            self.next.next.answer = bits::<4>(0);
                            self.next.next.due = bits::<5>(0);
                            self.next.next.waiting = bits::<16>(0);
                            self.next.next.stale = self.loaded.val().given;
                            self.states.write.next = true;
                        }
                    }
                    Job::Returned => {
                        self.next.next.given = false;
                        self.next.next.stale = false;
                        if self.fate.q.val().taken & !self.loaded.val().stale {
                            self.next.next.answer = self.loaded.val().answer + self.one_4.val();
                            self.next.next.due = self.loaded.val().due - self.one_5.val();
                        }
                        self.relists.next = true;
                        self.states.write.next = true;
                    }
                    Job::Result => {
                        self.next.next.given = false;
                        self.next.next.stale = false;
                        if !self.loaded.val().stale {
                            self.stores.next = !self.outcome.q.val().failed;
                            // The queue pair is on its way to ERROR.
                            if self.outcome.q.val().failed {
                                self.next.next.due = bits::<5>(0);
                                self.next.next.waiting = bits::<16>(0);
                            }
                        }
                        self.relists.next = true;
                        self.states.write.next = true;
                    }
                    Job::Event => {
                        if self.news.q.val().marker {
                            // What `done` still holds is of this queue pair or of one before it.
                            if self.dones.count.val().any() {
                                self.step.d.next = Step::Load;
                            } else {
                                self.marker.d.next = true;
                            }
                        } else if self.loaded.val().valid {
                            if self.news.q.val().request {
                                self.requests.write.next = true;
                                self.next.next.waiting =
                                    self.loaded.val().waiting | self.own_bit.val();
                            }
                            if self.news.q.val().tail {
                                self.ends_at.write.next = true;
                                self.next.next.ended = self.loaded.val().ended | self.own_bit.val();
                            }
                            if self.next.val().waiting.any() | self.next.val().ended.any() {
                                self.state.d.next = self.next.val();
                                self.step.d.next = Step::Look;
                            }
                        }
                    }
                    _ => {
                        if self.loaded.val().valid & self.loaded.val().due.any() {
                            self.step.d.next = Step::Fetch;
                        } else {
                            self.next.next.listed = false;
                            self.states.write.next = true;
                        }
                    }
                }
            }
            Step::Look => {
                self.step.d.next = Step::Judge;
            }
            Step::Judge => {
                if !self.may_finish.val() | self.dones.in_ready.val() {
                    self.step.d.next = Step::Pick;
                    if self.may_answer.val() {
                        self.next.next.waiting =
                            self.state.q.val().waiting & !(self.one_16.val() << self.mark.val());
                        self.next.next.due = self.state.q.val().due + self.one_5.val();
                        self.step.d.next = Step::Look;
                    }
                    if self.may_finish.val() {
                        self.dones.in_valid.next = true;
                        self.next.next.ended = self.state.q.val().ended
                            & !(self.one_16.val() << self.state.q.val().oldest);
                        self.next.next.open = self.state.q.val().open
                            & !(self.one_16.val() << self.state.q.val().oldest);
                        self.next.next.oldest = self.state.q.val().oldest + self.one_4.val();
                        self.step.d.next = Step::Look;
                    }
                    self.state.d.next = self.next.val();
                    self.states.write.next = true;
                    self.lists.next = self.next.val().due.any() & !self.state.q.val().listed;
                }
            }
            Step::Fetch => {
                self.step.d.next = Step::Give;
            }
            Step::Give => {
                if self.requests.read_data.val().atomic & !self.requests.read_data.val().executed {
                    self.executions.in_valid.next = true;
                } else {
                    self.responds.in_valid.next = true;
                }
                self.next.next.given = true;
                self.states.write.next = true;
                self.step.d.next = Step::Pick;
            }
            _ => {}
        }
        if self.relists.val() {
            self.next.next.listed = false;
            self.lists.next = self.next.val().due.any();
        }
        if self.lists.val() {
            self.next.next.listed = true;
            self.state.d.next.listed = true;
        }
        self.list.in_data.next = self.at.q.val();
        self.list.in_valid.next = self.lists.val();
        self.list.out_ready.next = self.serve_list.val();
        self.states.read_addr.next = self.number.val().get_bits::<QPW>(0);
        self.states.write_data.next = self.next.val();
        self.slots_open.write.next = self.states.write.val();
        self.slots_open.write_addr.next = self.states.write_addr.val();
        self.slots_open.write_data.next = self.next.val().open;
        self.place.next = (bit_cast::<20, 16>(self.at.q.val()) << self.slot_bits.val())
            | bit_cast::<20, 4>(self.slot.val());
        self.reads.write_addr.next = self.place.val().get_bits::<SLOTW>(0);
        self.reads.write_data.next = self.opened.val();
        if self.stores.val() {
            self.requests.write.next = true;
        }
        self.requests.write_addr.next = self.place.val().get_bits::<SLOTW>(0);
        self.requests.write_data.next = self.asked.val();
        self.ends_at.write_addr.next = self.place.val().get_bits::<SLOTW>(0);
        self.ends_at.write_data.next = self.news.q.val().psn;
        self.read_slot.next = self.mark.val();
        if self.step.q.val() == Step::Fetch {
            self.read_slot.next = self.state.q.val().answer;
        }
        self.request_place.next = (bit_cast::<20, 16>(self.at.q.val()) << self.slot_bits.val())
            | bit_cast::<20, 4>(self.read_slot.val());
        self.requests.read.next = true;
        self.requests.read_addr.next = self.request_place.val().get_bits::<SLOTW>(0);
        self.end_place.next = (bit_cast::<20, 16>(self.at.q.val()) << self.slot_bits.val())
            | bit_cast::<20, 4>(self.state.q.val().oldest);
        self.ends_at.read.next = true;
        self.ends_at.read_addr.next = self.end_place.val().get_bits::<SLOTW>(0);

        comment!("Q0: the question's slot");
        self.questions.in_data.next = self.query.val();
        self.questions.in_valid.next = self.query_valid.val();
        self.query_ready.next = self.questions.in_ready.val();
        self.take.next = self.questions.out_valid.val() & (self.inside.q.val() < self.most.val());
        self.questions.out_ready.next = self.take.val();
        self.asked_place.next = (bit_cast::<20, 16>(self.questions.out_data.val().qpn)
            << self.slot_bits.val())
            | bit_cast::<20, 4>(self.questions.out_data.val().wsn.get_bits::<4>(0));
        self.reads.read.next = true;
        self.reads.read_addr.next = self.asked_place.val().get_bits::<SLOTW>(0);
        self.slots_open.read.next = true;
        self.slots_open.read_addr.next = self.questions.out_data.val().qpn.get_bits::<QPW>(0);
        self.query_1.d.next = self.questions.out_data.val();
        self.valid_1.d.next = self.take.val();
        comment!("Q1: is it open");
        self.slots.next =
            self.slots_open.read_data.val() >> self.query_1.q.val().wsn.get_bits::<4>(0);
        self.query_2.d.next = self.query_1.q.val();
        self.entry_2.d.next = self.reads.read_data.val();
        self.open_2.d.next =
            self.slots.val().get_bit(0) & !self.query_1.q.val().wsn.get_bits::<20>(4).any();
        self.valid_2.d.next = self.valid_1.q.val();
        comment!("Q2: where the packet begins");
        self.start.next =
            (bit_cast::<32, 16>(self.query_2.q.val().offset) << 7) << self.entry_2.q.val().mtu;
        self.start_3.d.next = self.start.val();
        self.entry_3.d.next = self.entry_2.q.val();
        self.length_3.d.next = self.query_2.q.val().length;
        self.tail_3.d.next = self.query_2.q.val().tail;
        self.open_3.d.next =
            self.open_2.q.val() & (self.query_2.q.val().atomic == self.entry_2.q.val().atomic);
        self.valid_3.d.next = self.valid_2.q.val();
        comment!("Q3: where it ends");
        self.reach.next =
            bit_cast::<33, 32>(self.start_3.q.val()) + bit_cast::<33, 13>(self.length_3.q.val());
        self.fits.next = self.reach.val() < bit_cast::<33, 32>(self.entry_3.q.val().length);
        if self.tail_3.q.val() {
            self.fits.next = self.reach.val() == bit_cast::<33, 32>(self.entry_3.q.val().length);
        }
        self.reply.next.hit = self.open_3.q.val() & self.fits.val();
        self.reply.next.rights = bits::<8>(0);
        self.reply.next.pd = bits::<16>(0);
        self.reply.next.iova = self.entry_3.q.val().iova + bit_cast::<64, 32>(self.start_3.q.val());
        self.answers.in_data.next = self.reply.val();
        self.answers.in_valid.next = self.valid_3.q.val();
        self.answer.next = self.answers.out_data.val();
        self.answer_valid.next = self.answers.out_valid.val();
        self.answers.out_ready.next = self.answer_ready.val();
        comment!("questions whose answer has not been taken");
        self.now_inside.next = self.inside.q.val();
        if self.take.val() {
            self.now_inside.next = self.inside.q.val() + self.one_5.val();
        }
        self.inside.d.next = self.now_inside.val();
        if self.answers.out_valid.val() & self.answer_ready.val() {
            self.inside.d.next = self.now_inside.val() - self.one_5.val();
        }

        self.rx_marker.next = self.marker.q.val();
        self.cfg_done.next = self.cfg_answered.q.val();
        self.init_done.next = self.step.q.val() != Step::Clear;
        self.busy.next = (self.step.q.val() != Step::Pick)
            | self.list.count.val().any()
            | self.launches.count.val().any()
            | self.events.count.val().any()
            | self.responds.count.val().any()
            | self.returns.count.val().any()
            | self.executions.count.val().any()
            | self.results.count.val().any()
            | self.dones.count.val().any()
            | self.questions.count.val().any()
            | self.inside.q.val().any()
            | self.marker.q.val();
    }
}
