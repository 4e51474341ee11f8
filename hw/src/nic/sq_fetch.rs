//! Fetches send WQEs, checks them, gives them PSNs and launches them.

use super::types::{
    CfgReq, DmaReadReq, Doorbell, Launch, MrAnswer, MrQuery, QpError, Retired, Work,
};
use crate::leaf::{Beat, Ram, RamStyle, SyncFifo, Unpack};
use crate::prelude::*;
use crate::record;
use mprdma_spec::command::{qp_image, Opcode, QpState};
use mprdma_spec::descriptor::{sq_wqe, WrOpcode};
use mprdma_spec::params;
use mprdma_spec::status::WcStatus;

record! {
    /// The fields of `qp_image` that the send queue takes.
    pub struct SqFields {
        pub mask: Bits<8> = qp_image::MASK,
        pub state: Bits<4> = qp_image::STATE,
        pub mtu: Bits<3> = qp_image::MTU,
        pub pd: Bits<16> = qp_image::PD,
        pub base: Bits<64> = qp_image::SQ_BASE,
        pub log2: Bits<4> = qp_image::SQ_LOG2,
        pub sq_psn: Bits<24> = qp_image::SQ_PSN,
    }
}

record! {
    /// A send WQE.
    pub struct WqeFields {
        pub opcode: Bits<8> = sq_wqe::OPCODE,
        pub flags: Bits<8> = sq_wqe::FLAGS,
        pub imm: Bits<32> = sq_wqe::IMM,
        pub raddr: Bits<64> = sq_wqe::RADDR,
        pub rkey: Bits<32> = sq_wqe::RKEY,
        pub length: Bits<32> = sq_wqe::LENGTH,
        pub laddr: Bits<64> = sq_wqe::LADDR,
        pub lkey: Bits<32> = sq_wqe::LKEY,
    }
}

/// Send queue of one QP.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct SqState {
    /// `QpState`.
    pub state: Bits<4>,
    pub mtu: Bits<3>,
    pub pd: Bits<16>,
    pub base: Bits<64>,
    pub log2: Bits<4>,
    /// Producer index of the last doorbell, free-running.
    pub producer: Bits<16>,
    /// Next WQE to fetch, free-running.
    pub fetched: Bits<16>,
    /// Messages launched, modulo the ring.
    pub launched: Bits<6>,
    /// Messages launched and not retired, 0 to 64.
    pub live: Bits<7>,
    /// WQEs asked for and not launched.
    pub pending: Bits<7>,
    /// PSNs of the live messages.
    pub packets: Bits<25>,
    pub next_psn: Bits<24>,
    pub next_wsn: Bits<24>,
    /// The QP is in the work list.
    pub listed: bool,
    /// Reads asked for and not yet taken apart.
    pub batches: Bits<5>,
    /// Reads of an older epoch are thrown away.
    pub epoch: Bits<4>,
}

/// A read of WQEs on its way.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
struct Batch {
    qpn: Bits<16>,
    /// Index of its first WQE.
    index: Bits<16>,
    epoch: Bits<4>,
}

#[derive(LogicState, Copy, Clone, Debug, PartialEq)]
enum Step {
    Clear,
    Pick,
    Load,
    Act,
    Ask,
    Answer,
    Decide,
    Send,
    Tell,
    Store,
}

#[derive(LogicState, Copy, Clone, Debug, PartialEq)]
enum Job {
    Entry,
    Retire,
    Bell,
    Fail,
    Command,
    Issue,
}

block! {
    /// Owns the send queues of 2^`QPW` QPs. `LISTW` is `QPW` + 1.
    ///
    /// - In: `sq_db`; `retired` (messages that left the ring); `qp_error` (QPs that went to ERROR); `read` (WQEs, packed,
    ///   `read_err` with the last beat of a request); `answer` of the memory region table; the configuration bus.
    /// - Out: `read_req` to the DMA read engine, up to 8 WQEs each; `query` to the memory region table; `launch`; `work` to
    ///   the sender engine, after its launch was taken; `cfg_done`, `init_done`, `busy`.
    /// - About 16 cycles per WQE, most of them the memory region table's; a QP may have several reads in flight.
    ///
    /// A QP fetches in RTS and in ERROR; in ERROR its WQEs are launched with `WorkRequestFlushed`, so that they complete
    /// in order. At most 64 messages and 2^23 PSNs of a QP are live (a single larger message may go alone): what would
    /// pass that is fetched again later. DESTROY_QP is answered when no read of the ring is in flight. A doorbell that
    /// claims more WQEs than the ring has is ignored.
    pub struct SqFetch[const QPW: usize, const LISTW: usize][QPW, LISTW] {
        in {
            clock: Clock,
            reset: Bit,
            cfg: CfgReq,
            cfg_valid: Bit,
            sq_db: Doorbell,
            sq_db_valid: Bit,
            retired: Retired,
            retired_valid: Bit,
            qp_error: QpError,
            qp_error_valid: Bit,
            read: Beat,
            read_valid: Bit,
            read_err: Bit,
            answer: MrAnswer,
            answer_valid: Bit,
            read_req_ready: Bit,
            query_ready: Bit,
            launch_ready: Bit,
            work_ready: Bit,
        }
        out {
            sq_db_ready: Bit,
            retired_ready: Bit,
            qp_error_ready: Bit,
            read_ready: Bit,
            answer_ready: Bit,
            read_req: DmaReadReq,
            read_req_valid: Bit,
            query: MrQuery,
            query_valid: Bit,
            launch: Launch,
            launch_valid: Bit,
            work: Work,
            work_valid: Bit,
            cfg_done: Bit,
            init_done: Bit,
            busy: Bit,
        }
        local {
            number: Bits<16>,
            now: SqState,
            next: SqState,
            creates: Bit,
            modifies: Bit,
            destroys: Bit,
            ours: Bit,
            size: Bits<16>,
            mask: Bits<16>,
            waiting: Bits<16>,
            place: Bits<16>,
            to_end: Bits<16>,
            space: Bits<7>,
            count: Bits<16>,
            left_over: Bits<16>,
            fetches: Bit,
            list: Bit,
            claimed: Bits<16>,
            wqe: WqeFields,
            stale: Bit,
            batch_ends: Bit,
            known: Bit,
            too_long: Bit,
            status: Bits<8>,
            mtu_mask: Bits<32>,
            rounded: Bits<33>,
            shift: Bits<4>,
            sum: Bits<25>,
            fits: Bit,
            takes_wqe: Bit,
            message: Launch,
            told: Work,
            ask: MrQuery,
            request: DmaReadReq,
            ticket: Batch,
            room: Bit,
            has_entry: Bit,
            pop_entry: Bit,
        }
        reg {
            step: Step = Step::Clear,
            job: Job = Job::Entry,
            clearing: Bits<QPW>,
            served: Bit,
            cfg_answered: Bit,
            /// WQE of the batch at hand, counted from its first.
            place_in_batch: Bits<4>,
            launching: Bit,
        }
        pipe {
            at: Bits<16>,
            state: SqState,
            bell: Doorbell,
            gone: Retired,
            granted: MrAnswer,
            packets: Bits<24>,
            outcome: Bits<8>,
            launch_out: Launch,
        }
        konst {
            create_qp: Bits<4> = bits(Opcode::CreateQp as u64),
            modify_qp: Bits<4> = bits(Opcode::ModifyQp as u64),
            destroy_qp: Bits<4> = bits(Opcode::DestroyQp as u64),
            in_reset: Bits<4> = bits(QpState::Reset as u64),
            rts: Bits<4> = bits(QpState::Rts as u64),
            in_error: Bits<4> = bits(QpState::Error as u64),
            write: Bits<8> = bits(WrOpcode::RdmaWrite as u64),
            write_imm: Bits<8> = bits(WrOpcode::RdmaWriteWithImm as u64),
            ok: Bits<8> = bits(WcStatus::Success as u64),
            flushed: Bits<8> = bits(WcStatus::WorkRequestFlushed as u64),
            fatal: Bits<8> = bits(WcStatus::FatalError as u64),
            bad_opcode: Bits<8> = bits(WcStatus::LocalQpOperationError as u64),
            bad_length: Bits<8> = bits(WcStatus::LocalLengthError as u64),
            bad_key: Bits<8> = bits(WcStatus::LocalProtectionError as u64),
            longest: Bits<32> = bits(params::MAX_MESSAGE),
            most_packets: Bits<25> = bits(1 << 23),
            ring: Bits<7> = bits(64),
            most_wqes: Bits<16> = bits(8),
            most_batches: Bits<5> = bits(15),
            none: Bits<16> = bits(0),
            one: Bits<16> = bits(1),
            one_wide: Bits<32> = bits(128),
            blank: SqState = SqState::default(),
        }
        sub {
            fields: Unpack<SqFields, 1024> = Unpack::default(),
            entry: Unpack<WqeFields, 512> = Unpack::default(),
            queues: Ram<SqState, QPW> = Ram::new(RamStyle::Block, false),
            bells: SyncFifo<Doorbell, 4> = SyncFifo::shallow(),
            retirements: SyncFifo<Retired, 4> = SyncFifo::shallow(),
            failures: SyncFifo<QpError, 4> = SyncFifo::shallow(),
            to_do: SyncFifo<Bits<16>, LISTW> = SyncFifo::deep(),
            batches: SyncFifo<Batch, 4> = SyncFifo::shallow(),
            beats: SyncFifo<Beat, 5> = SyncFifo::shallow(),
            /// One bit per batch that has arrived: it could not be read.
            verdicts: SyncFifo<Bits<1>, 4> = SyncFifo::shallow(),
            requests: SyncFifo<DmaReadReq, 3> = SyncFifo::shallow(),
            questions: SyncFifo<MrQuery, 2> = SyncFifo::shallow(),
            answers: SyncFifo<MrAnswer, 2> = SyncFifo::shallow(),
            works: SyncFifo<Work, 3> = SyncFifo::shallow(),
        }
    }
}

impl<const QPW: usize, const LISTW: usize> Logic for SqFetch<QPW, LISTW> {
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
            place_in_batch,
            launching,
            at,
            state,
            bell,
            gone,
            granted,
            packets,
            outcome,
            launch_out
        );
        clock!(
            self,
            clock,
            queues,
            bells,
            retirements,
            failures,
            to_do,
            batches,
            beats,
            verdicts,
            requests,
            questions,
            answers,
            works
        );
        self.bells.reset.next = self.reset.val();
        self.retirements.reset.next = self.reset.val();
        self.failures.reset.next = self.reset.val();
        self.to_do.reset.next = self.reset.val();
        self.batches.reset.next = self.reset.val();
        self.beats.reset.next = self.reset.val();
        self.verdicts.reset.next = self.reset.val();
        self.requests.reset.next = self.reset.val();
        self.questions.reset.next = self.reset.val();
        self.answers.reset.next = self.reset.val();
        self.works.reset.next = self.reset.val();
        self.bells.in_data.next = self.sq_db.val();
        self.bells.in_valid.next = self.sq_db_valid.val();
        self.sq_db_ready.next = self.bells.in_ready.val();
        self.retirements.in_data.next = self.retired.val();
        self.retirements.in_valid.next = self.retired_valid.val();
        self.retired_ready.next = self.retirements.in_ready.val();
        self.failures.in_data.next = self.qp_error.val();
        self.failures.in_valid.next = self.qp_error_valid.val();
        self.qp_error_ready.next = self.failures.in_ready.val();
        self.answers.in_data.next = self.answer.val();
        self.answers.in_valid.next = self.answer_valid.val();
        self.answer_ready.next = self.answers.in_ready.val();
        self.query.next = self.questions.out_data.val();
        self.query_valid.next = self.questions.out_valid.val();
        self.questions.out_ready.next = self.query_ready.val();
        self.read_req.next = self.requests.out_data.val();
        self.read_req_valid.next = self.requests.out_valid.val();
        self.requests.out_ready.next = self.read_req_ready.val();
        self.work.next = self.works.out_data.val();
        self.work_valid.next = self.works.out_valid.val();
        self.works.out_ready.next = self.work_ready.val();

        comment!("WQEs wait until their whole read has arrived: only its last beat says whether they are any good");
        self.read_ready.next = self.beats.in_ready.val() & self.verdicts.in_ready.val();
        self.beats.in_data.next = self.read.val();
        self.beats.in_valid.next = self.read_valid.val() & self.verdicts.in_ready.val();
        self.verdicts.in_data.next = bit_cast::<1, 1>(self.read_err.val().into());
        self.verdicts.in_valid.next =
            self.read_valid.val() & self.read.val().last & self.beats.in_ready.val();

        comment!("pick: what is there, in order of urgency");
        self.fields.image.next = self.cfg.val().image;
        self.creates.next = self.cfg.val().op == self.create_qp.val();
        self.modifies.next = self.cfg.val().op == self.modify_qp.val();
        self.destroys.next = self.cfg.val().op == self.destroy_qp.val();
        self.ours.next = self.creates.val() | self.modifies.val() | self.destroys.val();
        self.has_entry.next =
            self.verdicts.out_valid.val() & self.beats.out_valid.val() & self.works.in_ready.val();
        self.room.next = self.requests.in_ready.val()
            & (self.batches.count.val() < self.most_batches.val().get_bits::<4>(0));
        self.number.next = self.to_do.out_data.val();
        self.bells.out_ready.next = false;
        self.retirements.out_ready.next = false;
        self.failures.out_ready.next = false;
        self.to_do.out_ready.next = false;
        self.cfg_answered.d.next = false;
        if !self.cfg_valid.val() {
            self.served.d.next = false;
        }

        comment!("the queue at hand");
        self.now.next = self.state.q.val();
        self.next.next = self.state.q.val();
        self.size.next = self.one.val() << self.now.val().log2;
        self.mask.next = self.size.val() - self.one.val();
        self.waiting.next = self.now.val().producer - self.now.val().fetched;
        self.place.next = self.now.val().fetched & self.mask.val();
        self.to_end.next = self.size.val() - self.place.val();
        self.space.next = self.ring.val() - self.now.val().live - self.now.val().pending;
        self.fetches.next = (self.now.val().state == self.rts.val())
            | (self.now.val().state == self.in_error.val());
        self.count.next = self.most_wqes.val();
        if self.waiting.val() < self.count.val() {
            self.count.next = self.waiting.val();
        }
        if self.to_end.val() < self.count.val() {
            self.count.next = self.to_end.val();
        }
        if bit_cast::<16, 7>(self.space.val()) < self.count.val() {
            self.count.next = bit_cast::<16, 7>(self.space.val());
        }
        if !self.fetches.val() {
            self.count.next = self.none.val();
        }
        self.left_over.next = self.waiting.val() - self.count.val();
        self.claimed.next = self.bell.q.val().index - self.now.val().fetched;
        self.list.next = false;

        comment!("the WQE at hand");
        self.entry.image.next = self.beats.out_data.val().data;
        self.wqe.next = self.entry.record.val();
        self.batch_ends.next = self.beats.out_data.val().last;
        self.stale.next = (self.batches.out_data.val().epoch != self.now.val().epoch)
            | (self.now.val().state == self.in_reset.val());
        self.known.next = (self.wqe.val().opcode == self.write.val())
            | (self.wqe.val().opcode == self.write_imm.val());
        self.takes_wqe.next = self.wqe.val().opcode == self.write_imm.val();
        self.too_long.next = self.wqe.val().length > self.longest.val();
        self.status.next = self.ok.val();
        if self.now.val().state == self.in_error.val() {
            self.status.next = self.flushed.val();
        } else if self.verdicts.out_data.val().any() {
            self.status.next = self.fatal.val();
        } else if !self.known.val() {
            self.status.next = self.bad_opcode.val();
        } else if self.too_long.val() {
            self.status.next = self.bad_length.val();
        }
        self.shift.next = bit_cast::<4, 3>(self.now.val().mtu) + 7;
        self.mtu_mask.next = (self.one_wide.val() << self.now.val().mtu) - 1;
        self.rounded.next =
            bit_cast::<33, 32>(self.wqe.val().length) + bit_cast::<33, 32>(self.mtu_mask.val());
        self.sum.next = self.now.val().packets + bit_cast::<25, 24>(self.packets.q.val());
        self.fits.next =
            (self.sum.val() <= self.most_packets.val()) | !self.now.val().packets.any();
        self.ask.next.key = self.wqe.val().lkey;
        self.ask.next.va = self.wqe.val().laddr;
        self.ask.next.length = self.wqe.val().length;
        self.questions.in_data.next = self.ask.val();
        self.questions.in_valid.next = false;
        self.answers.out_ready.next = false;
        self.message.next.qpn = self.at.q.val();
        self.message.next.slot = self.now.val().launched;
        self.message.next.wqe_index =
            self.batches.out_data.val().index + bit_cast::<16, 4>(self.place_in_batch.q.val());
        self.message.next.opcode = self.wqe.val().opcode;
        self.message.next.flags = self.wqe.val().flags;
        self.message.next.status = self.outcome.q.val();
        self.message.next.first_psn = self.now.val().next_psn;
        self.message.next.packets = self.packets.q.val();
        self.message.next.iova = self.granted.q.val().iova;
        self.message.next.raddr = self.wqe.val().raddr;
        self.message.next.rkey = self.wqe.val().rkey;
        self.message.next.length = self.wqe.val().length;
        self.message.next.imm = self.wqe.val().imm;
        self.message.next.wsn = bits::<24>(0);
        if self.takes_wqe.val() {
            self.message.next.wsn = self.now.val().next_wsn;
        }
        self.message.next.mtu = self.now.val().mtu;
        self.launch.next = self.launch_out.q.val();
        self.launch_valid.next = self.launching.q.val();
        self.told.next.qpn = self.at.q.val();
        self.told.next.packets = self.packets.q.val();
        self.works.in_data.next = self.told.val();
        self.works.in_valid.next = false;
        self.pop_entry.next = false;

        comment!("the read at hand");
        self.request.next.iova = self.now.val().base + (bit_cast::<64, 16>(self.place.val()) << 6);
        self.request.next.length = self.count.val().get_bits::<13>(0) << 6;
        self.requests.in_data.next = self.request.val();
        self.requests.in_valid.next = false;
        self.ticket.next.qpn = self.at.q.val();
        self.ticket.next.index = self.now.val().fetched;
        self.ticket.next.epoch = self.now.val().epoch;
        self.batches.in_data.next = self.ticket.val();
        self.batches.in_valid.next = false;

        self.queues.read.next = true;
        self.queues.read_addr.next = self.at.q.val().get_bits::<QPW>(0);
        self.queues.write.next = false;
        self.queues.write_addr.next = self.at.q.val().get_bits::<QPW>(0);

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
                self.bell.d.next = self.bells.out_data.val();
                self.gone.d.next = self.retirements.out_data.val();
                self.step.d.next = Step::Load;
                if self.retirements.out_valid.val() {
                    self.job.d.next = Job::Retire;
                    self.number.next = self.retirements.out_data.val().qpn;
                    self.retirements.out_ready.next = true;
                } else if self.has_entry.val() {
                    self.job.d.next = Job::Entry;
                    self.number.next = self.batches.out_data.val().qpn;
                } else if self.bells.out_valid.val() {
                    self.job.d.next = Job::Bell;
                    self.number.next = self.bells.out_data.val().number;
                    self.bells.out_ready.next = true;
                } else if self.failures.out_valid.val() {
                    self.job.d.next = Job::Fail;
                    self.number.next = self.failures.out_data.val().qpn;
                    self.failures.out_ready.next = true;
                } else if self.cfg_valid.val() & !self.served.q.val() & self.ours.val() {
                    self.job.d.next = Job::Command;
                    self.number.next = self.cfg.val().index.get_bits::<16>(0);
                } else if self.to_do.out_valid.val() & self.room.val() {
                    self.job.d.next = Job::Issue;
                    self.to_do.out_ready.next = true;
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
                self.step.d.next = Step::Store;
                if self.job.q.val() == Job::Entry {
                    self.step.d.next = Step::Ask;
                }
            }
            Step::Ask => {
                self.outcome.d.next = self.status.val();
                self.packets.d.next = bit_cast::<24, 33>(self.rounded.val() >> self.shift.val());
                if !self.wqe.val().length.any() {
                    self.packets.d.next = bits::<24>(1);
                }
                self.step.d.next = Step::Decide;
                if !self.stale.val()
                    & (self.status.val() == self.ok.val())
                    & self.wqe.val().length.any()
                {
                    self.questions.in_valid.next = true;
                    self.step.d.next = Step::Answer;
                }
            }
            Step::Answer => {
                self.granted.d.next = self.answers.out_data.val();
                if self.answers.out_valid.val() {
                    self.answers.out_ready.next = true;
                    self.step.d.next = Step::Decide;
                    if !self.answers.out_data.val().hit
                        | (self.answers.out_data.val().pd != self.now.val().pd)
                    {
                        self.outcome.d.next = self.bad_key.val();
                    }
                }
            }
            Step::Decide => {
                if self.outcome.q.val() != self.ok.val() {
                    self.packets.d.next = bits::<24>(0);
                }
                self.step.d.next = Step::Send;
            }
            Step::Send => {
                comment!("drop what is stale or does not fit, launch the rest");
                self.launch_out.d.next = self.message.val();
                self.step.d.next = Step::Store;
                if !self.stale.val() & self.fits.val() {
                    self.launching.d.next = true;
                    self.step.d.next = Step::Tell;
                }
            }
            Step::Tell => {
                if self.launch_ready.val() {
                    self.launching.d.next = false;
                    self.works.in_valid.next = self.packets.q.val().any();
                    self.step.d.next = Step::Store;
                }
            }
            Step::Store => {
                self.queues.write.next = true;
                self.step.d.next = Step::Pick;
                match self.job.q.val() {
                    Job::Entry => {
                        self.pop_entry.next = true;
                        if !self.stale.val() {
                            if self.fits.val() {
                                self.next.next.launched = self.now.val().launched + 1;
                                self.next.next.live = self.now.val().live + 1;
                                self.next.next.pending = self.now.val().pending - 1;
                                self.next.next.packets = self.sum.val();
                                self.next.next.next_psn =
                                    self.now.val().next_psn + self.packets.q.val();
                                if self.takes_wqe.val() & (self.outcome.q.val() == self.ok.val()) {
                                    self.next.next.next_wsn = self.now.val().next_wsn + 1;
                                }
                            } else {
                                self.next.next.fetched = self.message.val().wqe_index;
                                self.next.next.pending = bits::<7>(0);
                                self.next.next.epoch = self.now.val().epoch + 1;
                            }
                        }
                        if self.batch_ends.val() {
                            self.next.next.batches = self.now.val().batches - 1;
                        }
                    }
                    Job::Retire => {
                        if self.now.val().live.any() {
                            self.next.next.live = self.now.val().live - 1;
                            self.next.next.packets = self.now.val().packets
                                - bit_cast::<25, 24>(self.gone.q.val().packets);
                        }
                        self.list.next = self.waiting.val().any();
                    }
                    Job::Bell => {
                        if self.claimed.val() <= self.size.val() {
                            self.next.next.producer = self.bell.q.val().index;
                            self.list.next = self.claimed.val().any();
                        }
                    }
                    Job::Fail => {
                        if self.now.val().state != self.in_reset.val() {
                            self.next.next.state = self.in_error.val();
                            self.list.next = self.waiting.val().any();
                        }
                    }
                    Job::Command => {
                        self.served.d.next = true;
                        self.cfg_answered.d.next = true;
                        if self.creates.val() {
                            self.next.next = self.blank.val();
                            self.next.next.state = self.fields.record.val().state;
                            self.next.next.mtu = self.fields.record.val().mtu;
                            self.next.next.pd = self.fields.record.val().pd;
                            self.next.next.base = self.fields.record.val().base;
                            self.next.next.log2 = self.fields.record.val().log2;
                            self.next.next.next_psn = self.fields.record.val().sq_psn;
                            self.next.next.listed = self.now.val().listed;
                            self.next.next.epoch = self.now.val().epoch;
                        }
                        if self.modifies.val() {
                            if self.fields.record.val().mask.get_bit(0) {
                                self.next.next.state = self.fields.record.val().state;
                            }
                            if self.fields.record.val().mask.get_bit(3) {
                                self.next.next.next_psn = self.fields.record.val().sq_psn;
                                self.next.next.next_wsn = bits::<24>(0);
                                self.next.next.fetched = self.now.val().fetched
                                    - bit_cast::<16, 7>(self.now.val().pending);
                                self.next.next.pending = bits::<7>(0);
                                self.next.next.launched = bits::<6>(0);
                                self.next.next.live = bits::<7>(0);
                                self.next.next.packets = bits::<25>(0);
                                self.next.next.epoch = self.now.val().epoch + 1;
                            }
                            self.list.next =
                                self.waiting.val().any() | self.now.val().pending.any();
                        }
                        if self.destroys.val() {
                            self.next.next.state = self.in_reset.val();
                            if self.now.val().state != self.in_reset.val() {
                                self.next.next.epoch = self.now.val().epoch + 1;
                            }
                            if self.now.val().batches.any() {
                                self.served.d.next = false;
                                self.cfg_answered.d.next = false;
                            }
                        }
                    }
                    Job::Issue => {
                        self.next.next.listed = false;
                        if self.count.val().any() {
                            self.requests.in_valid.next = true;
                            self.batches.in_valid.next = true;
                            self.next.next.fetched = self.now.val().fetched + self.count.val();
                            self.next.next.pending =
                                self.now.val().pending + self.count.val().get_bits::<7>(0);
                            self.next.next.batches = self.now.val().batches + 1;
                            if self.left_over.val().any() {
                                self.next.next.listed = true;
                            }
                        }
                    }
                    _ => {}
                }
                if self.list.val() & !self.now.val().listed {
                    self.next.next.listed = true;
                }
            }
            _ => {}
        }
        self.queues.write_data.next = self.next.val();
        comment!(
            "a QP enters the work list when its flag rises, and goes to the end while it has more"
        );
        self.to_do.in_data.next = self.at.q.val();
        self.to_do.in_valid.next = (self.step.q.val() == Step::Store)
            & self.next.val().listed
            & (!self.now.val().listed | (self.job.q.val() == Job::Issue));
        self.beats.out_ready.next = self.pop_entry.val();
        self.batches.out_ready.next = self.pop_entry.val() & self.batch_ends.val();
        self.verdicts.out_ready.next = self.pop_entry.val() & self.batch_ends.val();
        if self.pop_entry.val() {
            self.place_in_batch.d.next = self.place_in_batch.q.val() + 1;
            if self.batch_ends.val() {
                self.place_in_batch.d.next = bits::<4>(0);
            }
        }
        self.cfg_done.next = self.cfg_answered.q.val();
        self.init_done.next = self.step.q.val() != Step::Clear;
        self.busy.next = (self.step.q.val() != Step::Pick)
            | self.bells.out_valid.val()
            | self.retirements.out_valid.val()
            | self.failures.out_valid.val()
            | self.to_do.out_valid.val()
            | self.batches.out_valid.val()
            | self.works.out_valid.val();
    }
}
