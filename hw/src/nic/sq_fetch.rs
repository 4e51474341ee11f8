//! Fetches send work: reads WQEs from host memory, checks them, gives them PSNs and launches them.

use super::types::{
    CfgReq, DmaReadReq, Doorbell, Launch, MrAnswer, MrQuery, QpError, QpMark, Respond, Responded,
    Retired, Work,
};
use crate::leaf::{Beat, Ram, RamStyle, SyncFifo, Unpack};
use crate::prelude::*;
use crate::record;
use mprdma_spec::command::{qp_image, Opcode, QpState, MASK_SENDER, MASK_STATE, RIGHT_LOCAL_WRITE};
use mprdma_spec::config::{
    KEEPALIVE_CYCLES_LOG2, MESSAGE_RING_LOG2, READ_SLOTS_LOG2, RESPONSE_ENTRIES,
};
use mprdma_spec::descriptor::{sq_wqe, WrOpcode, WQE_FENCE, WQE_SYNC};
use mprdma_spec::params::{ATOMIC_BYTES, MAX_MESSAGE, READ_PACKETS_LOG2};
use mprdma_spec::status::WcStatus;

record! {
    /// What the send queue takes from `qp_image`.
    pub struct SendQueueFields {
        pub mask: Bits<8> = qp_image::MASK,
        pub state: Bits<4> = qp_image::STATE,
        pub mtu: Bits<3> = qp_image::MTU,
        pub pd: Bits<16> = qp_image::PD,
        pub base: Bits<64> = qp_image::SQ_BASE,
        pub log2: Bits<4> = qp_image::SQ_LOG2,
        pub psn: Bits<24> = qp_image::SQ_PSN,
    }
}

record! {
    /// A send queue entry.
    pub struct SendWqe {
        pub opcode: Bits<8> = sq_wqe::OPCODE,
        pub flags: Bits<8> = sq_wqe::FLAGS,
        pub imm: Bits<32> = sq_wqe::IMM,
        pub raddr: Bits<64> = sq_wqe::RADDR,
        pub rkey: Bits<32> = sq_wqe::RKEY,
        pub length: Bits<32> = sq_wqe::LENGTH,
        pub laddr: Bits<64> = sq_wqe::LADDR,
        pub lkey: Bits<32> = sq_wqe::LKEY,
        pub swap_add: Bits<64> = sq_wqe::SWAP_ADD,
        pub compare: Bits<64> = sq_wqe::COMPARE,
    }
}

/// A WQE that has been read.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct FetchedWqe {
    pub wqe: SendWqe,
    /// Last of its read.
    pub last: bool,
}

/// A read of WQEs on its way.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct Batch {
    pub qpn: Bits<16>,
    /// Free-running index of the first WQE.
    pub index: Bits<16>,
}

/// State of one send queue.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct SendQueue {
    /// `spec::command::QpState`.
    pub state: Bits<4>,
    pub log2: Bits<4>,
    pub mtu: Bits<3>,
    /// The queue is in the work list.
    pub listed: bool,
    /// The next WQE does not fit the PSNs that may be outstanding; waits for a retirement.
    pub blocked: bool,
    /// A synchronised message is launched and its first packet has not left.
    pub sync_open: bool,
    /// The next WQE is flagged SYNC too; waits for `sync_passed`.
    pub sync_waits: bool,
    /// The next WQE waits for a READ or ATOMIC to end: there are 16 already, or, with `fenced`, for all of them.
    pub reads_wait: bool,
    pub fenced: bool,
    /// READs and ATOMICs launched and not done, 0 to 16, and the slot of the next one.
    pub reads: Bits<5>,
    pub next_read: Bits<4>,
    /// An answer to the peer found no room; the READ book is told when there may be.
    pub answer_waits: bool,
    /// Some are open, nothing is unacknowledged, and nothing was launched or ended since the queue pair was looked at.
    pub idle: bool,
    /// Life of the queue pair, as [`Respond`] counts it.
    pub life: Bits<4>,
    pub slot: Bits<6>,
    /// Work requests launched and not completed, 0 to 64.
    pub own: Bits<7>,
    /// Messages in the ring, 0 to 64: work requests, and answers to READs of the peer.
    pub messages: Bits<7>,
    /// Their PSNs.
    pub packets: Bits<24>,
    pub next_psn: Bits<24>,
    pub next_wsn: Bits<24>,
    pub pd: Bits<16>,
    /// Free-running indices: posted, asked for, launched.
    pub posted: Bits<16>,
    pub asked: Bits<16>,
    pub launched: Bits<16>,
    pub base: Bits<64>,
}

#[derive(LogicState, Copy, Clone, Debug, PartialEq)]
enum Step {
    Clear,
    Pick,
    Load,
    Size,
    Act,
}

#[derive(LogicState, Copy, Clone, Debug, PartialEq)]
enum Job {
    Passed,
    Retire,
    ReadDone,
    Error,
    Command,
    Doorbell,
    Fetch,
    Respond,
    Wqe,
    Watch,
}

block! {
    /// Turns posted WQEs into launched messages, in order within a queue pair, and READs and ATOMICs of the peer into their
    /// answers.
    ///
    /// - In: `sq_db` (producer index), `retired`, `qp_error` (a queue pair went to ERROR), `sync_passed` (the first
    ///   packet of the queue pair's synchronised message has left), `read_done` (a READ or ATOMIC ended), `respond` (an
    ///   answer to the peer), the configuration bus (CREATE_QP, MODIFY_QP, DESTROY_QP), `read` and `read_err` of the DMA read
    ///   client, `answer` of the memory region table.
    /// - Out: `read_req` (DMA reads of 1 to 8 WQEs), `query` (one per WQE read), `launch`, `work`, `responded` (one per
    ///   `respond`), `cfg_done`, `init_done`, `busy`.
    /// - Each job (WQE, read, doorbell, retirement, passed message, READ that ended, answer, error, command) takes 4
    ///   cycles.
    ///
    /// Up to 64 work requests of a queue pair are launched and not completed. None is launched when the queue pair's
    /// ring holds 48 messages: the other 16 are for answers to READs, so that two sides that read from each other do not
    /// wait for each other's rings. An answer that finds the ring full, or the PSNs that may be outstanding used up,
    /// goes back, and the READ book is told to give it again when a message of the queue pair retires, or an error or a
    /// command changed it; so it holds up nobody else's. It is dropped when the queue pair is not in RTS, or began another
    /// life since the peer asked.
    ///
    /// A read does not cross the end of the ring, `posted`, or the messages that a queue pair may have open. Up to 55
    /// WQEs in up to 15 reads are on their way at a time. A WQE that would take the queue pair's outstanding PSNs past
    /// 2^23 while something is outstanding is dropped with what was read behind it, and read again after a retirement.
    /// A WQE is launched only when its index is the next in turn, so what an older read still brings does no harm.
    ///
    /// At most one synchronised message of a queue pair is launched and not yet passed: the sender engine keeps one
    /// boundary. A second WQE flagged SYNC is dropped in the same way and read again after `sync_passed`; other WQEs
    /// are launched behind the first. A 17th READ, and a WQE flagged FENCE behind open READs, is dropped too and read
    /// again when a READ, or the last of them, is done. ATOMICs count as READs.
    ///
    /// While some have READs open, one queue pair is looked at every 2^`KEEPALIVE_CYCLES_LOG2` cycles, when nothing else is
    /// to do, and the block is `busy`. If it is in RTS, has READs open and nothing in the ring, and nothing was launched or
    /// ended since the last look, an empty WRITE without work request is launched: a peer that is gone does not acknowledge
    /// it (protocol section 7 rule 9).
    ///
    /// A WQE that cannot be sent is launched without PSNs and with a status, checked in this order:
    /// `WorkRequestFlushed` (the queue pair is in ERROR; then nothing is read), `FatalError` (the read failed),
    /// `LocalQpOperationError` (opcode), `LocalLengthError` (over 2^31 bytes, a READ of over 2^16 packets, which MPETH
    /// cannot count, or an ATOMIC of other than 8 bytes), `LocalProtectionError` (key, bounds, protection domain, and for
    /// a READ or ATOMIC the right to write; not asked of a length of 0). `work` follows `launch` for what can be sent.
    ///
    /// `LISTW` is `QPW` + 1: the work list holds every queue pair.
    ///
    /// In states other than RTS and ERROR doorbells are only remembered. A doorbell that would post more than the ring
    /// holds is ignored. DESTROY_QP and a MODIFY_QP with `MASK_SENDER` are answered when no read is on its way and every
    /// launch has been taken.
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
            sync_passed: QpMark,
            sync_passed_valid: Bit,
            read_done: QpMark,
            read_done_valid: Bit,
            respond: Respond,
            respond_valid: Bit,
            responded_ready: Bit,
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
            sync_passed_ready: Bit,
            read_done_ready: Bit,
            respond_ready: Bit,
            responded: Responded,
            responded_valid: Bit,
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
            room_in: Bit,
            arrives: Bit,
            fetched: FetchedWqe,
            asks: MrQuery,
            leaves: Bit,
            granted: Work,
            number: Bits<16>,
            loaded: SendQueue,
            next: SendQueue,
            is_rts: Bit,
            is_error: Bit,
            restarts: Bit,
            lists: Bit,
            unlists: Bit,
            serve_list: Bit,
            room_out: Bit,
            flying_next: Bits<6>,
            mask: Bits<16>,
            offset: Bits<16>,
            waiting: Bits<16>,
            to_end: Bits<16>,
            on_way: Bits<16>,
            used: Bits<16>,
            taken: Bits<16>,
            space: Bits<16>,
            space_own: Bits<16>,
            count: Bits<4>,
            request: DmaReadReq,
            batch: Batch,
            mtu_less_one: Bits<32>,
            rounded: Bits<32>,
            total: Bits<25>,
            starts: Launch,
            go: Bit,
            sends: Bit,
            back: Bit,
            is_sync: Bit,
            is_read: Bit,
            is_atomic: Bit,
            is_answered: Bit,
            is_fenced: Bit,
            answers_peer: Bit,
            no_request: Bit,
            watches: Bit,
            is_idle: Bit,
            was_watched: Bit,
            now_watched: Bit,
            ended_wait: Bit,
            fate: Responded,
            tells_fate: Bit,
            full: Bit,
            takes_wsn: Bit,
            posts: Bits<16>,
            work_left: Bit,
        }
        reg {
            step: Step = Step::Clear,
            job: Job = Job::Retire,
            clearing: Bits<QPW>,
            served: Bit,
            // Doorbells that came before the command on the bus, and whether they have been counted.
            older: Bits<4>,
            counted: Bit,
            draining: Bit,
            cfg_answered: Bit,
            turn: Bit,
            // The last job was an answer.
            answered: Bit,
            // Cycles until the next look at open READs, whether it is due, and at which queue pair.
            watch_timer: Bits<KEEPALIVE_CYCLES_LOG2>,
            watch_due: Bit,
            watched: Bits<QPW>,
            // Queue pairs in RTS with open READs: somebody to look at.
            watchers: Bits<LISTW>,
            // WQEs asked for and not taken from the FIFO.
            flying: Bits<6>,
            position: Bits<4>,
        }
        pipe {
            at: Bits<16>,
            state: SendQueue,
            bell: Doorbell,
            leaver: Retired,
            asker: Respond,
            wqe: SendWqe,
            found: MrAnswer,
            index: Bits<16>,
            read_failed: Bit,
            packets: Bits<24>,
            status: Bits<8>,
            in_turn: Bit,
            // What each limit allows, at most 8.
            most_waiting: Bits<4>,
            most_to_end: Bits<4>,
            most_space: Bits<4>,
            ring_offset: Bits<16>,
        }
        konst {
            create_qp: Bits<4> = bits(Opcode::CreateQp as u64),
            modify_qp: Bits<4> = bits(Opcode::ModifyQp as u64),
            destroy_qp: Bits<4> = bits(Opcode::DestroyQp as u64),
            mask_state: Bits<8> = bits(MASK_STATE),
            mask_sender: Bits<8> = bits(MASK_SENDER),
            state_reset: Bits<4> = bits(QpState::Reset as u64),
            state_rts: Bits<4> = bits(QpState::Rts as u64),
            state_error: Bits<4> = bits(QpState::Error as u64),
            flag_sync: Bits<8> = bits(WQE_SYNC),
            flag_fence: Bits<8> = bits(WQE_FENCE),
            op_imm: Bits<8> = bits(WrOpcode::RdmaWriteWithImm as u64),
            op_write: Bits<8> = bits(WrOpcode::RdmaWrite as u64),
            op_read: Bits<8> = bits(WrOpcode::RdmaRead as u64),
            op_swap: Bits<8> = bits(WrOpcode::AtomicCmpAndSwp as u64),
            op_add: Bits<8> = bits(WrOpcode::AtomicFetchAndAdd as u64),
            local_write: Bits<8> = bits(RIGHT_LOCAL_WRITE),
            flushed: Bits<8> = bits(WcStatus::WorkRequestFlushed as u64),
            fatal: Bits<8> = bits(WcStatus::FatalError as u64),
            bad_operation: Bits<8> = bits(WcStatus::LocalQpOperationError as u64),
            bad_length: Bits<8> = bits(WcStatus::LocalLengthError as u64),
            bad_key: Bits<8> = bits(WcStatus::LocalProtectionError as u64),
            longest: Bits<32> = bits(MAX_MESSAGE),
            atomic_bytes: Bits<32> = bits(ATOMIC_BYTES as u64),
            longest_read: Bits<32> = bits(1 << READ_PACKETS_LOG2),
            most_reads: Bits<5> = bits(1 << READ_SLOTS_LOG2),
            most_messages: Bits<7> = bits(1 << MESSAGE_RING_LOG2),
            most_own: Bits<7> = bits((1 << MESSAGE_RING_LOG2) - RESPONSE_ENTRIES as u64),
            own_slots: Bits<16> = bits((1 << MESSAGE_RING_LOG2) - RESPONSE_ENTRIES as u64),
            ring_slots: Bits<16> = bits(1 << MESSAGE_RING_LOG2),
            most_packets: Bits<25> = bits(1 << 23),
            most_flying: Bits<6> = bits(48),
            most_works: Bits<4> = bits(8),
            batch_16: Bits<16> = bits(8),
            batch_4: Bits<4> = bits(8),
            one_4: Bits<4> = bits(1),
            one_5: Bits<5> = bits(1),
            one_6: Bits<6> = bits(1),
            one_7: Bits<7> = bits(1),
            one_16: Bits<16> = bits(1),
            one_24: Bits<24> = bits(1),
            one_32: Bits<32> = bits(1),
            base_mtu: Bits<32> = bits(128),
            empty: SendQueue = SendQueue::default(),
            blank: Launch = Launch::default(),
        }
        sub {
            fields: Unpack<SendQueueFields, 1024> = Unpack::default(),
            entry: Unpack<SendWqe, 512> = Unpack::default(),
            states: Ram<SendQueue, QPW> = Ram::new(RamStyle::Block, false),
            // Every queue pair at most once.
            list: SyncFifo<Bits<16>, LISTW> = SyncFifo::deep(),
            doorbells: SyncFifo<Doorbell, 4> = SyncFifo::shallow(),
            retirements: SyncFifo<Retired, 3> = SyncFifo::shallow(),
            errors: SyncFifo<QpError, 4> = SyncFifo::shallow(),
            passes: SyncFifo<QpMark, 3> = SyncFifo::shallow(),
            ended: SyncFifo<QpMark, 3> = SyncFifo::shallow(),
            responds: SyncFifo<Respond, 2> = SyncFifo::shallow(),
            // Never full: of a queue pair one answer is out at a time. So nothing waits for the READ book.
            fates: SyncFifo<Responded, LISTW> = SyncFifo::deep(),
            wqes: SyncFifo<FetchedWqe, 6> = SyncFifo::shallow(),
            // One entry per read that has arrived whole: did it fail?
            verdicts: SyncFifo<bool, 4> = SyncFifo::shallow(),
            queries: SyncFifo<MrQuery, 6> = SyncFifo::shallow(),
            answers: SyncFifo<MrAnswer, 3> = SyncFifo::shallow(),
            batches: SyncFifo<Batch, 4> = SyncFifo::shallow(),
            reads: SyncFifo<DmaReadReq, 2> = SyncFifo::shallow(),
            launches: SyncFifo<Launch, 2> = SyncFifo::shallow(),
            works: SyncFifo<Work, 4> = SyncFifo::shallow(),
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
            older,
            counted,
            draining,
            cfg_answered,
            turn,
            answered,
            watch_timer,
            watch_due,
            watched,
            watchers,
            flying,
            position,
            at,
            state,
            bell,
            leaver,
            asker,
            wqe,
            found,
            index,
            read_failed,
            packets,
            status,
            in_turn,
            most_waiting,
            most_to_end,
            most_space,
            ring_offset
        );
        clock!(
            self,
            clock,
            states,
            list,
            doorbells,
            retirements,
            errors,
            passes,
            ended,
            responds,
            fates,
            wqes,
            verdicts,
            queries,
            answers,
            batches,
            reads,
            launches,
            works
        );
        self.list.reset.next = self.reset.val();
        self.doorbells.reset.next = self.reset.val();
        self.retirements.reset.next = self.reset.val();
        self.errors.reset.next = self.reset.val();
        self.passes.reset.next = self.reset.val();
        self.ended.reset.next = self.reset.val();
        self.responds.reset.next = self.reset.val();
        self.fates.reset.next = self.reset.val();
        self.wqes.reset.next = self.reset.val();
        self.verdicts.reset.next = self.reset.val();
        self.queries.reset.next = self.reset.val();
        self.answers.reset.next = self.reset.val();
        self.batches.reset.next = self.reset.val();
        self.reads.reset.next = self.reset.val();
        self.launches.reset.next = self.reset.val();
        self.works.reset.next = self.reset.val();
        self.doorbells.in_data.next = self.sq_db.val();
        self.doorbells.in_valid.next = self.sq_db_valid.val();
        self.sq_db_ready.next = self.doorbells.in_ready.val();
        self.retirements.in_data.next = self.retired.val();
        self.retirements.in_valid.next = self.retired_valid.val();
        self.retired_ready.next = self.retirements.in_ready.val();
        self.errors.in_data.next = self.qp_error.val();
        self.errors.in_valid.next = self.qp_error_valid.val();
        self.qp_error_ready.next = self.errors.in_ready.val();
        self.passes.in_data.next = self.sync_passed.val();
        self.passes.in_valid.next = self.sync_passed_valid.val();
        self.sync_passed_ready.next = self.passes.in_ready.val();
        self.ended.in_data.next = self.read_done.val();
        self.ended.in_valid.next = self.read_done_valid.val();
        self.read_done_ready.next = self.ended.in_ready.val();
        self.responds.in_data.next = self.respond.val();
        self.responds.in_valid.next = self.respond_valid.val();
        self.respond_ready.next = self.responds.in_ready.val();
        self.responded.next = self.fates.out_data.val();
        self.responded_valid.next = self.fates.out_valid.val();
        self.fates.out_ready.next = self.responded_ready.val();
        self.answers.in_data.next = self.answer.val();
        self.answers.in_valid.next = self.answer_valid.val();
        self.answer_ready.next = self.answers.in_ready.val();
        self.read_req.next = self.reads.out_data.val();
        self.read_req_valid.next = self.reads.out_valid.val();
        self.reads.out_ready.next = self.read_req_ready.val();
        self.query.next = self.queries.out_data.val();
        self.query_valid.next = self.queries.out_valid.val();
        self.queries.out_ready.next = self.query_ready.val();

        comment!("WQEs come in: each one beat, each with its question to the memory region table");
        self.room_in.next =
            self.wqes.in_ready.val() & self.queries.in_ready.val() & self.verdicts.in_ready.val();
        self.read_ready.next = self.room_in.val();
        self.arrives.next = self.read_valid.val() & self.room_in.val();
        self.entry.image.next = self.read.val().data;
        self.fetched.next.wqe = self.entry.record.val();
        self.fetched.next.last = self.read.val().last;
        self.wqes.in_data.next = self.fetched.val();
        self.wqes.in_valid.next = self.arrives.val();
        self.verdicts.in_data.next = self.read_err.val();
        self.verdicts.in_valid.next = self.arrives.val() & self.read.val().last;
        self.asks.next.key = self.entry.record.val().lkey;
        self.asks.next.va = self.entry.record.val().laddr;
        self.asks.next.length = self.entry.record.val().length;
        self.queries.in_data.next = self.asks.val();
        self.queries.in_valid.next = self.arrives.val();

        comment!("launches go out; work follows what can be sent");
        self.launch.next = self.launches.out_data.val();
        self.launch_valid.next = self.launches.out_valid.val();
        self.launches.out_ready.next = self.launch_ready.val();
        self.leaves.next = self.launches.out_valid.val() & self.launch_ready.val();
        self.granted.next.qpn = self.launches.out_data.val().qpn;
        self.granted.next.packets = self.launches.out_data.val().packets;
        self.granted.next.sync = (self.launches.out_data.val().flags & self.flag_sync.val()).any();
        self.works.in_data.next = self.granted.val();
        self.works.in_valid.next = self.leaves.val() & self.launches.out_data.val().packets.any();
        self.work.next = self.works.out_data.val();
        self.work_valid.next = self.works.out_valid.val();
        self.works.out_ready.next = self.work_ready.val();

        comment!("defaults");
        self.doorbells.out_ready.next = false;
        self.retirements.out_ready.next = false;
        self.errors.out_ready.next = false;
        self.passes.out_ready.next = false;
        self.ended.out_ready.next = false;
        self.wqes.out_ready.next = false;
        self.verdicts.out_ready.next = false;
        self.answers.out_ready.next = false;
        self.batches.out_ready.next = false;
        self.batches.in_valid.next = false;
        self.reads.in_valid.next = false;
        self.number.next = self.at.q.val();
        self.loaded.next = self.states.read_data.val();
        self.next.next = self.state.q.val();
        self.states.read.next = true;
        self.states.write.next = false;
        self.states.write_addr.next = self.at.q.val().get_bits::<QPW>(0);
        self.cfg_answered.d.next = false;
        self.lists.next = false;
        self.unlists.next = false;
        self.serve_list.next = false;
        self.go.next = false;
        self.sends.next = false;
        self.back.next = false;
        self.responds.out_ready.next = false;
        self.fate.next.qpn = self.at.q.val();
        self.fate.next.taken = false;
        self.tells_fate.next = false;
        self.flying_next.next = self.flying.q.val();
        self.is_rts.next = self.state.q.val().state == self.state_rts.val();
        self.is_error.next = self.state.q.val().state == self.state_error.val();
        self.room_out.next =
            self.launches.in_ready.val() & (self.works.count.val() < self.most_works.val());

        comment!("the next look at open READs");
        self.watch_timer.d.next = self.watch_timer.q.val() + 1;
        if self.watch_timer.q.val().all() {
            self.watch_due.d.next = true;
        }

        comment!("configuration");
        self.fields.image.next = self.cfg.val().image;
        self.restarts.next = (self.cfg.val().op == self.modify_qp.val())
            & (self.fields.record.val().mask & self.mask_sender.val()).any();
        if !self.cfg_valid.val() {
            self.served.d.next = false;
            self.counted.d.next = false;
        }

        comment!("how many WQEs may be read at once");
        self.mask.next = (self.one_16.val() << self.state.q.val().log2) - self.one_16.val();
        self.offset.next = self.state.q.val().asked & self.mask.val();
        self.waiting.next = self.state.q.val().posted - self.state.q.val().asked;
        self.to_end.next = (self.one_16.val() << self.state.q.val().log2) - self.offset.val();
        self.on_way.next = self.state.q.val().asked - self.state.q.val().launched;
        self.used.next = bit_cast::<16, 7>(self.state.q.val().messages) + self.on_way.val();
        self.space.next = self.own_slots.val() - self.used.val();
        // Answers may have taken more of the ring than is left to work requests.
        if self.used.val() > self.own_slots.val() {
            self.space.next = bits::<16>(0);
        }
        self.taken.next = bit_cast::<16, 7>(self.state.q.val().own) + self.on_way.val();
        self.space_own.next = self.ring_slots.val() - self.taken.val();
        if self.space_own.val() < self.space.val() {
            self.space.next = self.space_own.val();
        }
        self.most_waiting.d.next = self.waiting.val().get_bits::<4>(0);
        if self.waiting.val() > self.batch_16.val() {
            self.most_waiting.d.next = self.batch_4.val();
        }
        self.most_to_end.d.next = self.to_end.val().get_bits::<4>(0);
        if self.to_end.val() > self.batch_16.val() {
            self.most_to_end.d.next = self.batch_4.val();
        }
        self.most_space.d.next = self.space.val().get_bits::<4>(0);
        if self.space.val() > self.batch_16.val() {
            self.most_space.d.next = self.batch_4.val();
        }
        self.ring_offset.d.next = self.offset.val();
        self.count.next = self.most_waiting.q.val();
        if self.most_to_end.q.val() < self.count.val() {
            self.count.next = self.most_to_end.q.val();
        }
        if self.most_space.q.val() < self.count.val() {
            self.count.next = self.most_space.q.val();
        }
        self.request.next.iova =
            self.state.q.val().base + (bit_cast::<64, 16>(self.ring_offset.q.val()) << 6);
        self.request.next.length = bit_cast::<13, 4>(self.count.val()) << 6;
        self.reads.in_data.next = self.request.val();
        self.batch.next.qpn = self.at.q.val();
        self.batch.next.index = self.state.q.val().asked;
        self.batches.in_data.next = self.batch.val();

        comment!("what a WQE needs: packets, status, its turn");
        self.mtu_less_one.next =
            (self.base_mtu.val() << self.state.q.val().mtu) - self.one_32.val();
        self.rounded.next =
            ((self.wqe.q.val().length + self.mtu_less_one.val()) >> 7) >> self.state.q.val().mtu;
        self.packets.d.next = self.rounded.val().get_bits::<24>(0);
        self.answers_peer.next = self.job.q.val() == Job::Respond;
        self.watches.next = self.job.q.val() == Job::Watch;
        self.no_request.next = self.answers_peer.val() | self.watches.val();
        self.is_read.next =
            (self.wqe.q.val().opcode == self.op_read.val()) & !self.no_request.val();
        self.is_atomic.next = ((self.wqe.q.val().opcode == self.op_swap.val())
            | (self.wqe.q.val().opcode == self.op_add.val()))
            & !self.no_request.val();
        self.is_answered.next = self.is_read.val() | self.is_atomic.val();
        if !self.wqe.q.val().length.any() | self.is_answered.val() {
            self.packets.d.next = self.one_24.val();
        }
        self.status.d.next = bits::<8>(0);
        if self.wqe.q.val().length.any()
            & (!self.found.q.val().hit
                | (self.found.q.val().pd != self.state.q.val().pd)
                | (self.is_answered.val()
                    & !(self.found.q.val().rights & self.local_write.val()).any()))
        {
            self.status.d.next = self.bad_key.val();
        }
        if (self.wqe.q.val().length > self.longest.val())
            | (self.is_read.val() & (self.rounded.val() > self.longest_read.val()))
            | (self.is_atomic.val() & (self.wqe.q.val().length != self.atomic_bytes.val()))
        {
            self.status.d.next = self.bad_length.val();
        }
        if self.wqe.q.val().opcode > self.op_add.val() {
            self.status.d.next = self.bad_operation.val();
        }
        if self.read_failed.q.val() {
            self.status.d.next = self.fatal.val();
        }
        if self.is_error.val() {
            self.status.d.next = self.flushed.val();
        }
        self.in_turn.d.next = (self.index.q.val() == self.state.q.val().launched)
            & (self.is_rts.val() | self.is_error.val());
        self.total.next = bit_cast::<25, 24>(self.state.q.val().packets)
            + bit_cast::<25, 24>(self.packets.q.val());
        self.is_sync.next = (self.wqe.q.val().flags & self.flag_sync.val()).any();
        self.is_fenced.next = (self.wqe.q.val().flags & self.flag_fence.val()).any();
        self.full.next = (self.state.q.val().messages >= self.most_own.val())
            | (self.state.q.val().own >= self.most_messages.val());
        self.takes_wsn.next = self.wqe.q.val().opcode == self.op_imm.val();
        self.is_idle.next =
            self.is_rts.val() & self.state.q.val().reads.any() & !self.state.q.val().messages.any();
        // An answer that was sent back is given again after whatever may have made room for it.
        self.ended_wait.next = self.state.q.val().answer_waits
            & ((self.job.q.val() == Job::Retire)
                | (self.job.q.val() == Job::Error)
                | (self.job.q.val() == Job::Command));
        self.posts.next = self.bell.q.val().index - self.state.q.val().launched;

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
                self.bell.d.next = self.doorbells.out_data.val();
                self.leaver.d.next = self.retirements.out_data.val();
                self.asker.d.next = self.responds.out_data.val();
                self.answered.d.next = false;
                self.step.d.next = Step::Load;
                if self.passes.out_valid.val() {
                    // First, so that none outlives a command: it would count for the next life of the queue pair.
                    self.passes.out_ready.next = true;
                    self.number.next = self.passes.out_data.val().qpn;
                    self.job.d.next = Job::Passed;
                } else if self.retirements.out_valid.val() {
                    self.retirements.out_ready.next = true;
                    self.number.next = self.retirements.out_data.val().qpn;
                    self.job.d.next = Job::Retire;
                } else if self.ended.out_valid.val() {
                    self.ended.out_ready.next = true;
                    self.number.next = self.ended.out_data.val().qpn;
                    self.job.d.next = Job::ReadDone;
                } else if self.errors.out_valid.val() {
                    self.errors.out_ready.next = true;
                    self.number.next = self.errors.out_data.val().qpn;
                    self.job.d.next = Job::Error;
                } else if self.cfg_valid.val() & !self.served.q.val() & !self.counted.q.val() {
                    // Doorbells that came before the command go first: they belong to the life before it.
                    self.older.d.next = self.doorbells.count.val();
                    self.counted.d.next = true;
                    self.step.d.next = Step::Pick;
                } else if self.cfg_valid.val() & !self.served.q.val() & !self.older.q.val().any() {
                    self.number.next = self.cfg.val().index.get_bits::<16>(0);
                    self.job.d.next = Job::Command;
                } else if self.responds.out_valid.val()
                    & !self.answered.q.val()
                    & self.room_out.val()
                    & (!self.cfg_valid.val() | self.served.q.val())
                {
                    // Not before a command, which may be the one that lets the queue pair answer.
                    self.responds.out_ready.next = true;
                    self.number.next = self.responds.out_data.val().qpn;
                    self.wqe.d.next.length = self.responds.out_data.val().length;
                    self.answered.d.next = true;
                    self.job.d.next = Job::Respond;
                } else if self.verdicts.out_valid.val()
                    & self.wqes.out_valid.val()
                    & self.answers.out_valid.val()
                    & self.room_out.val()
                {
                    self.wqes.out_ready.next = true;
                    self.answers.out_ready.next = true;
                    self.wqe.d.next = self.wqes.out_data.val().wqe;
                    self.found.d.next = self.answers.out_data.val();
                    self.read_failed.d.next = self.verdicts.out_data.val();
                    self.index.d.next = self.batches.out_data.val().index
                        + bit_cast::<16, 4>(self.position.q.val());
                    self.number.next = self.batches.out_data.val().qpn;
                    self.position.d.next = self.position.q.val() + self.one_4.val();
                    if self.wqes.out_data.val().last {
                        self.verdicts.out_ready.next = true;
                        self.batches.out_ready.next = true;
                        self.position.d.next = bits::<4>(0);
                    }
                    self.flying_next.next = self.flying.q.val() - self.one_6.val();
                    self.job.d.next = Job::Wqe;
                } else if self.doorbells.out_valid.val()
                    & (!self.turn.q.val() | !self.list.out_valid.val())
                {
                    self.doorbells.out_ready.next = true;
                    self.number.next = self.doorbells.out_data.val().number;
                    if self.older.q.val().any() {
                        self.older.d.next = self.older.q.val() - self.one_4.val();
                    }
                    self.turn.d.next = true;
                    self.job.d.next = Job::Doorbell;
                } else if self.list.out_valid.val()
                    & !self.draining.q.val()
                    & (self.flying.q.val() < self.most_flying.val())
                    & self.reads.in_ready.val()
                    & self.batches.in_ready.val()
                    & self.room_out.val()
                {
                    self.serve_list.next = true;
                    self.number.next = self.list.out_data.val();
                    self.turn.d.next = false;
                    self.job.d.next = Job::Fetch;
                } else if self.watch_due.q.val()
                    & self.watchers.q.val().any()
                    & !self.draining.q.val()
                    & self.room_out.val()
                {
                    self.turn.d.next = false;
                    self.watch_due.d.next = false;
                    self.watched.d.next = self.watched.q.val() + 1;
                    self.number.next = bit_cast::<16, QPW>(self.watched.q.val());
                    self.wqe.d.next.length = bits::<32>(0);
                    self.job.d.next = Job::Watch;
                } else {
                    self.turn.d.next = false;
                    self.step.d.next = Step::Pick;
                }
                if self.draining.q.val()
                    & !self.flying.q.val().any()
                    & !self.launches.count.val().any()
                    & !self.works.count.val().any()
                {
                    self.draining.d.next = false;
                    self.cfg_answered.d.next = true;
                }
                self.at.d.next = self.number.val();
            }
            Step::Load => {
                self.state.d.next = self.loaded.val();
                self.step.d.next = Step::Size;
            }
            Step::Size => {
                self.step.d.next = Step::Act;
            }
            Step::Act => {
                self.step.d.next = Step::Pick;
                self.states.write.next = true;
                match self.job.q.val() {
                    Job::Passed => {
                        self.next.next.sync_open = false;
                        self.next.next.sync_waits = false;
                        self.lists.next = true;
                    }
                    Job::Retire => {
                        if self.leaver.q.val().ring & self.state.q.val().messages.any() {
                            self.next.next.messages =
                                self.state.q.val().messages - self.one_7.val();
                            self.next.next.packets =
                                self.state.q.val().packets - self.leaver.q.val().packets;
                        }
                        if self.leaver.q.val().own & self.state.q.val().own.any() {
                            self.next.next.own = self.state.q.val().own - self.one_7.val();
                        }
                        self.next.next.blocked = false;
                        self.lists.next = true;
                    }
                    Job::ReadDone => {
                        self.next.next.idle = false;
                        if self.state.q.val().reads.any() {
                            self.next.next.reads = self.state.q.val().reads - self.one_5.val();
                        }
                        if !self.state.q.val().fenced | !self.next.val().reads.any() {
                            self.next.next.reads_wait = false;
                            self.next.next.fenced = false;
                        }
                        self.lists.next = true;
                    }
                    Job::Error => {
                        if self.state.q.val().state != self.state_reset.val() {
                            self.next.next.state = self.state_error.val();
                        }
                        self.lists.next = true;
                    }
                    Job::Command => {
                        self.served.d.next = true;
                        self.cfg_answered.d.next = true;
                        if self.cfg.val().op == self.create_qp.val() {
                            self.next.next = self.empty.val();
                            self.next.next.listed = self.state.q.val().listed;
                            self.next.next.life = self.state.q.val().life + self.one_4.val();
                            self.next.next.state = self.fields.record.val().state;
                            self.next.next.log2 = self.fields.record.val().log2;
                            self.next.next.mtu = self.fields.record.val().mtu;
                            self.next.next.pd = self.fields.record.val().pd;
                            self.next.next.base = self.fields.record.val().base;
                            self.next.next.next_psn = self.fields.record.val().psn;
                        }
                        if self.cfg.val().op == self.modify_qp.val() {
                            if (self.fields.record.val().mask & self.mask_state.val()).any() {
                                self.next.next.state = self.fields.record.val().state;
                            }
                            self.lists.next = true;
                        }
                        if self.restarts.val() {
                            self.next.next.blocked = false;
                            self.next.next.sync_open = false;
                            self.next.next.sync_waits = false;
                            self.next.next.reads_wait = false;
                            self.next.next.fenced = false;
                            self.next.next.reads = bits::<5>(0);
                            self.next.next.next_read = bits::<4>(0);
                            self.next.next.own = bits::<7>(0);
                            self.next.next.messages = bits::<7>(0);
                            self.next.next.packets = bits::<24>(0);
                            self.next.next.next_psn = self.fields.record.val().psn;
                            self.next.next.next_wsn = bits::<24>(0);
                            self.next.next.asked = self.state.q.val().launched;
                            self.draining.d.next = true;
                            self.cfg_answered.d.next = false;
                        }
                        if self.cfg.val().op == self.destroy_qp.val() {
                            self.next.next = self.empty.val();
                            self.next.next.listed = self.state.q.val().listed;
                            self.next.next.life = self.state.q.val().life;
                            self.draining.d.next = true;
                            self.cfg_answered.d.next = false;
                        }
                    }
                    Job::Doorbell => {
                        if (self.state.q.val().state != self.state_reset.val())
                            & (self.posts.val() <= (self.one_16.val() << self.state.q.val().log2))
                        {
                            self.next.next.posted = self.bell.q.val().index;
                        }
                        self.lists.next = true;
                    }
                    Job::Fetch => {
                        self.unlists.next = true;
                        if self.is_rts.val()
                            & !self.state.q.val().blocked
                            & !self.state.q.val().sync_waits
                            & !self.state.q.val().reads_wait
                            & self.count.val().any()
                        {
                            self.reads.in_valid.next = true;
                            self.batches.in_valid.next = true;
                            self.next.next.asked =
                                self.state.q.val().asked + bit_cast::<16, 4>(self.count.val());
                            self.flying_next.next =
                                self.flying.q.val() + bit_cast::<6, 4>(self.count.val());
                            self.lists.next = true;
                        }
                        if self.is_error.val()
                            & (self.state.q.val().posted != self.state.q.val().launched)
                            & !self.full.val()
                        {
                            self.go.next = true;
                            self.lists.next = true;
                        }
                    }
                    Job::Watch => {
                        self.next.next.idle = self.is_idle.val() & !self.state.q.val().idle;
                        if self.is_idle.val() & self.state.q.val().idle {
                            self.go.next = true;
                            self.sends.next = true;
                        }
                    }
                    Job::Respond => {
                        self.tells_fate.next = true;
                        self.fate.next.taken = true;
                        if self.is_rts.val() & (self.asker.q.val().life == self.state.q.val().life)
                        {
                            if (self.state.q.val().messages == self.most_messages.val())
                                | (self.state.q.val().messages.any()
                                    & (self.total.val() > self.most_packets.val()))
                            {
                                self.tells_fate.next = false;
                                self.next.next.answer_waits = true;
                            } else {
                                self.go.next = true;
                                self.sends.next = true;
                            }
                        }
                    }
                    _ => {
                        if self.in_turn.q.val() {
                            if self.full.val() {
                                self.back.next = true;
                                self.next.next.blocked = true;
                            } else if self.status.q.val().any() {
                                self.go.next = true;
                                self.next.next.state = self.state_error.val();
                            } else if self.state.q.val().messages.any()
                                & (self.total.val() > self.most_packets.val())
                            {
                                self.back.next = true;
                                self.next.next.blocked = true;
                            } else if self.is_sync.val() & self.state.q.val().sync_open {
                                self.back.next = true;
                                self.next.next.sync_waits = true;
                            } else if self.is_fenced.val() & self.state.q.val().reads.any() {
                                self.back.next = true;
                                self.next.next.reads_wait = true;
                                self.next.next.fenced = true;
                            } else if self.is_answered.val()
                                & (self.state.q.val().reads >= self.most_reads.val())
                            {
                                self.back.next = true;
                                self.next.next.reads_wait = true;
                            } else {
                                self.go.next = true;
                                self.sends.next = true;
                            }
                        }
                    }
                }
            }
            _ => {}
        }

        comment!("launch, or go back to read the WQE again");
        self.starts.next = self.blank.val();
        self.starts.next.qpn = self.at.q.val();
        self.starts.next.slot = self.state.q.val().slot;
        self.starts.next.wqe_index = self.state.q.val().launched;
        self.starts.next.first_psn = self.state.q.val().next_psn;
        self.starts.next.mtu = self.state.q.val().mtu;
        self.starts.next.status = self.flushed.val();
        if self.job.q.val() == Job::Wqe {
            self.starts.next.status = self.status.q.val();
            self.starts.next.opcode = self.wqe.q.val().opcode;
            self.starts.next.flags = self.wqe.q.val().flags;
            self.starts.next.iova = self.found.q.val().iova;
            self.starts.next.raddr = self.wqe.q.val().raddr;
            self.starts.next.rkey = self.wqe.q.val().rkey;
            self.starts.next.length = self.wqe.q.val().length;
            self.starts.next.imm = self.wqe.q.val().imm;
            self.starts.next.swap_add = self.wqe.q.val().swap_add;
            self.starts.next.compare = self.wqe.q.val().compare;
            if self.sends.val() {
                self.starts.next.packets = self.packets.q.val();
                if self.takes_wsn.val() {
                    self.starts.next.wsn = self.state.q.val().next_wsn;
                }
                if self.is_answered.val() {
                    self.starts.next.wsn = bit_cast::<24, 4>(self.state.q.val().next_read);
                }
            }
        }
        if self.no_request.val() {
            self.starts.next.response = true;
            self.starts.next.wqe_index = bits::<16>(0);
            self.starts.next.status = bits::<8>(0);
            self.starts.next.packets = self.packets.q.val();
            self.starts.next.opcode = self.op_write.val();
        }
        if self.answers_peer.val() {
            self.starts.next.opcode = self.op_read.val();
            if self.asker.q.val().atomic {
                self.starts.next.opcode = self.op_add.val();
                self.starts.next.swap_add = self.asker.q.val().iova;
            }
            self.starts.next.iova = self.asker.q.val().iova;
            self.starts.next.length = self.asker.q.val().length;
            self.starts.next.wsn = bit_cast::<24, 4>(self.asker.q.val().slot);
        }
        self.launches.in_data.next = self.starts.val();
        self.launches.in_valid.next = self.go.val();
        if self.go.val() {
            self.next.next.slot = self.state.q.val().slot + self.one_6.val();
            self.next.next.messages = self.state.q.val().messages + self.one_7.val();
            self.next.next.idle = false;
        }
        if self.go.val() & !self.no_request.val() {
            self.next.next.own = self.state.q.val().own + self.one_7.val();
            self.next.next.launched = self.state.q.val().launched + self.one_16.val();
            if self.state.q.val().asked == self.state.q.val().launched {
                self.next.next.asked = self.state.q.val().launched + self.one_16.val();
            }
        }
        if self.sends.val() {
            self.next.next.packets = self.total.val().get_bits::<24>(0);
            self.next.next.next_psn = self.state.q.val().next_psn + self.packets.q.val();
        }
        if self.sends.val() & !self.no_request.val() {
            if self.is_sync.val() {
                self.next.next.sync_open = true;
            }
            if self.takes_wsn.val() {
                self.next.next.next_wsn = self.state.q.val().next_wsn + self.one_24.val();
            }
            if self.is_answered.val() {
                self.next.next.reads = self.state.q.val().reads + self.one_5.val();
                self.next.next.next_read = self.state.q.val().next_read + self.one_4.val();
            }
        }
        if self.back.val() {
            self.next.next.asked = self.state.q.val().launched;
        }

        comment!("what became of an answer");
        if (self.step.q.val() == Step::Act) & self.ended_wait.val() {
            self.next.next.answer_waits = false;
            self.tells_fate.next = true;
        }
        self.fates.in_data.next = self.fate.val();
        self.fates.in_valid.next = self.tells_fate.val();

        comment!("who has to be looked at");
        self.was_watched.next = self.is_rts.val() & self.state.q.val().reads.any();
        self.now_watched.next =
            (self.next.val().state == self.state_rts.val()) & self.next.val().reads.any();
        if self.step.q.val() == Step::Act {
            if self.now_watched.val() & !self.was_watched.val() {
                self.watchers.d.next = self.watchers.q.val() + 1;
            }
            if self.was_watched.val() & !self.now_watched.val() {
                self.watchers.d.next = self.watchers.q.val() - 1;
            }
        }

        comment!("into the work list when there is something to do, out of it when not");
        self.work_left.next = ((self.next.val().state == self.state_rts.val())
            & !self.next.val().blocked
            & !self.next.val().sync_waits
            & !self.next.val().reads_wait
            & (self.next.val().posted != self.next.val().asked))
            | ((self.next.val().state == self.state_error.val())
                & (self.next.val().posted != self.next.val().launched));
        self.list.in_valid.next = false;
        if self.unlists.val() {
            self.next.next.listed = false;
        }
        if self.lists.val() & self.work_left.val() & !self.next.val().listed {
            self.next.next.listed = true;
            self.list.in_valid.next = true;
        }
        self.list.in_data.next = self.at.q.val();
        self.list.out_ready.next = self.serve_list.val();
        self.flying.d.next = self.flying_next.val();
        self.states.read_addr.next = self.number.val().get_bits::<QPW>(0);
        self.states.write_data.next = self.next.val();

        self.cfg_done.next = self.cfg_answered.q.val();
        self.init_done.next = self.step.q.val() != Step::Clear;
        self.busy.next = (self.step.q.val() != Step::Pick)
            | self.list.count.val().any()
            | self.flying.q.val().any()
            | self.doorbells.count.val().any()
            | self.retirements.count.val().any()
            | self.errors.count.val().any()
            | self.passes.count.val().any()
            | self.ended.count.val().any()
            | self.responds.count.val().any()
            | self.fates.count.val().any()
            | self.watchers.q.val().any()
            | self.reads.count.val().any()
            | self.launches.count.val().any()
            | self.works.count.val().any();
    }
}
