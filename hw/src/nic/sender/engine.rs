//! The sender engine: sources of events, their arbitration, the pipeline, timers and the queue of grants.

use super::pipeline::SenderPipeline;
use super::records::{SenderContext, SenderEnv, SenderEvent, SenderOutcome, SenderStatus};
use crate::leaf::timer_wheel::{TimerArm, TimerWheel};
use crate::leaf::{Lfsr, Pack, SyncFifo};
use crate::nic::types::{AckEvent, CfgReq, Grant, Progress, QpError, QpMark, SenderNote, Work};
use crate::prelude::*;
use mprdma_spec::command::Opcode;
use mprdma_spec::params::{GRANTS_CROWDED, GRANTS_ENOUGH, GRANTS_FULL, GRANTS_PER_SLOW_LOG2};
use std::array::from_fn;

/// The kernel below takes the waiting grants from bit 2 on.
const _: () = assert!(GRANTS_PER_SLOW_LOG2 == 2);

/// Sources of events, in the order of the arbiter's first round.
const SOURCES: usize = 6;

/// The QP of an event that entered the pipeline a short while ago.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct InPipe {
    pub some: bool,
    pub qpn: Bits<16>,
}

block! {
    /// Protocol sections 4 to 6 for 2^`QPW` QPs whose peers have bitmaps of `L` slots.
    ///
    /// - In: `ack` (queue of 511), `work`, `error`; the configuration bus; `tick`, the protocol
    ///   clock, with `tick_pulse` in the cycle after it moved; `tx_held`: frames queue for the wire, so that no window is to
    ///   grow.
    /// - Out: `grant`, permission to send one packet (queue of 1023); `progress` for completions; `cfg_done` with
    ///   `cfg_result`, the sender half of `qp_status`; pulses `cnt_…`; `init_done`, `busy`.
    /// - `trace_…` shows each event as it enters the pipeline and as it leaves, in the same order, for lockstep tests.
    /// - Initiation interval: one event per 2 cycles over different QPs, one per 8 cycles for one QP. An event whose QP is
    ///   in the pipeline holds back its own source only; the six sources take turns.
    /// - Latency: at most 17 cycles from `ack` to `grant` when idle.
    /// - When 128 grants wait, new packets are left to the burst timer, whose wheel serves queue pairs in turn; when 256
    ///   wait, so does the wheel; when 960 wait, no event makes more.
    ///
    /// ```text
    ///  ack ----> [FIFO] --+
    ///  work ---> [FIFO] --+
    ///  error --> [FIFO] --+--> pick --> pipeline --> grant queue --> grant
    ///  burst wheel -------+      ^        |  |  |--> progress queue --> progress
    ///  RTO wheel ---------+      |        |  +-----> counters, cfg_result
    ///  cfg ---------------+  scoreboard   +--> arms --> burst wheel (64 ns), RTO wheel (4.096 us)
    /// ```
    pub struct Sender[const QPW: usize, const L: usize][QPW, L] {
        in {
            clock: Clock,
            reset: Bit,
            tick: Bits<32>,
            tick_pulse: bool,
            ack: AckEvent,
            ack_valid: bool,
            work: Work,
            work_valid: bool,
            error: QpError,
            error_valid: bool,
            cfg: CfgReq,
            cfg_valid: bool,
            grant_ready: bool,
            progress_ready: bool,
            tx_held: bool,
            sync_passed_ready: bool,
        }
        out {
            ack_ready: bool,
            work_ready: bool,
            error_ready: bool,
            cfg_done: bool,
            cfg_result: Bits<512>,
            grant: Grant,
            grant_valid: bool,
            progress: Progress,
            progress_valid: bool,
            sync_passed: QpMark,
            sync_passed_valid: bool,
            note: SenderNote,
            note_valid: bool,
            init_done: bool,
            busy: bool,
            cnt_ecn_echoes: bool,
            cnt_prunes: bool,
            cnt_window_naks: bool,
            cnt_sync_naks: bool,
            cnt_ghost_acks: bool,
            cnt_bad_acks: bool,
            cnt_timeouts: bool,
            cnt_recoveries: bool,
            cnt_probes: bool,
            trace_seen: SenderEvent,
            trace_env: SenderEnv,
            trace_random: Bits<64>,
            trace_seen_valid: bool,
            trace_outcome: SenderOutcome,
            trace_written: SenderContext,
            trace_valid: bool,
        }
        local {
            from_ack: SenderEvent,
            from_work: SenderEvent,
            from_error: SenderEvent,
            from_burst: SenderEvent,
            from_timeout: SenderEvent,
            from_cfg: SenderEvent,
            chosen: SenderEvent,
            taken: bool,
            passed: bool,
            pick: bool,
            out: SenderOutcome,
            after: SenderContext,
            status: SenderStatus,
            ours: bool,
            waiting_grants: Bits<10>,
            waiting_progress: Bits<6>,
            waiting_burst: Bits<5>,
            waiting_rto: Bits<5>,
            waiting_marks: Bits<6>,
            said: SenderNote,
        }
        reg {
            // Alternates: look at the heads, pick one.
            second: bool,
            in_pipe_1: InPipe,
            in_pipe_2: InPipe,
            in_pipe_3: InPipe,
            enter: bool,
            room: bool,
            backlog: bool,
            crowded: bool,
            enough: bool,
            full: bool,
            // The command on the bus: taken, waiting for its turn.
            asked: bool,
            pending: bool,
            done: bool,
            last_grant_valid: bool,
            rto_tick: bool,
            second_probe: bool,
            ecn_echoes: bool,
            prunes: bool,
            window_naks: bool,
            sync_naks: bool,
            ghost_acks: bool,
            bad_acks: bool,
            timeouts: bool,
            recoveries: bool,
            probes: bool,
            started: bool,
            active: bool,
            note_now: bool,
        }
        pipe {
            entering: SenderEvent,
            last_grant: Grant,
            result: Bits<512>,
            note_out: SenderNote,
        }
        konst {
            op_create: Bits<4> = bits(Opcode::CreateQp as u64),
            op_modify: Bits<4> = bits(Opcode::ModifyQp as u64),
            op_query: Bits<4> = bits(Opcode::QueryQp as u64),
            op_destroy: Bits<4> = bits(Opcode::DestroyQp as u64),
            grants_crowded: Bits<10> = bits(GRANTS_CROWDED as u64),
            grants_enough: Bits<10> = bits(GRANTS_ENOUGH as u64),
            grants_full: Bits<10> = bits(GRANTS_FULL as u64),
            no_event: SenderEvent = SenderEvent::default(),
        }
        sub {
            acks: SyncFifo<SenderEvent, 9> = SyncFifo::deep(),
            works: SyncFifo<Work, 4>,
            errors: SyncFifo<QpError, 4>,
            grants: SyncFifo<Grant, 10> = SyncFifo::deep(),
            news: SyncFifo<Progress, 6>,
            burst_arms: SyncFifo<TimerArm, 5>,
            rto_arms: SyncFifo<TimerArm, 5>,
            burst_wheel: TimerWheel<QPW, 8>,
            rto_wheel: TimerWheel<QPW, 8>,
            random: Lfsr = Lfsr::new(0x9e37_79b9_7f4a_7c15),
            marks: SyncFifo<QpMark, 6>,
            pipeline: SenderPipeline<QPW, L>,
            pack: Pack<SenderStatus, 512>,
            offered: [Signal<Local, bool>; SOURCES] = from_fn(|_| Signal::default()),
            head: [Signal<Local, Bits<16>>; SOURCES] = from_fn(|_| Signal::default()),
            // The head's QP is in no stage of the pipeline.
            eligible: [Reg<bool>; SOURCES] = from_fn(|_| Reg::default()),
            // The source has not had its turn in this round.
            waits: [Reg<bool>; SOURCES] = from_fn(|_| Reg::default()),
            turn: [Signal<Local, bool>; SOURCES] = from_fn(|_| Signal::default()),
        }
    }
}

impl<const QPW: usize, const L: usize> Logic for Sender<QPW, L> {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(
            self,
            clock,
            second,
            in_pipe_1,
            in_pipe_2,
            in_pipe_3,
            enter,
            room,
            backlog,
            crowded,
            enough,
            full,
            asked,
            pending,
            done,
            last_grant_valid,
            rto_tick,
            second_probe,
            ecn_echoes,
            prunes,
            window_naks,
            sync_naks,
            ghost_acks,
            bad_acks,
            timeouts,
            recoveries,
            probes,
            started,
            active,
            entering,
            last_grant,
            result,
            note_out,
            note_now
        );
        clock!(
            self,
            clock,
            acks,
            works,
            errors,
            grants,
            news,
            marks,
            burst_arms,
            rto_arms,
            burst_wheel,
            rto_wheel,
            random,
            pipeline
        );
        self.acks.reset.next = self.reset.val();
        self.works.reset.next = self.reset.val();
        self.errors.reset.next = self.reset.val();
        self.grants.reset.next = self.reset.val();
        self.news.reset.next = self.reset.val();
        self.marks.reset.next = self.reset.val();
        self.burst_arms.reset.next = self.reset.val();
        self.rto_arms.reset.next = self.reset.val();
        self.burst_wheel.reset.next = self.reset.val();
        self.rto_wheel.reset.next = self.reset.val();
        self.random.reset.next = self.reset.val();
        self.pipeline.reset.next = self.reset.val();
        for i in 0..SOURCES {
            self.eligible[i].clock.next = self.clock.val();
            self.eligible[i].reset.next = self.reset.val();
            self.eligible[i].d.next = self.eligible[i].q.val();
            self.waits[i].clock.next = self.clock.val();
            self.waits[i].reset.next = self.reset.val();
            self.waits[i].d.next = self.waits[i].q.val();
        }

        comment!("queues of events");
        self.from_ack.next = self.no_event.val();
        self.from_ack.next.ack = true;
        self.from_ack.next.qpn = self.ack.val().qpn;
        self.from_ack.next.sack = self.ack.val().sack;
        self.from_ack.next.value = self.ack.val().aack;
        self.from_ack.next.flags = self.ack.val().flags;
        self.from_ack.next.code = self.ack.val().syndrome;
        self.from_ack.next.vp = self.ack.val().vp;
        self.from_ack.next.stamp = self.ack.val().stamp;
        self.from_ack.next.map = self.ack.val().map;
        self.acks.in_data.next = self.from_ack.val();
        self.acks.in_valid.next = self.ack_valid.val();
        self.ack_ready.next = self.acks.in_ready.val();
        self.works.in_data.next = self.work.val();
        self.works.in_valid.next = self.work_valid.val();
        self.work_ready.next = self.works.in_ready.val();
        self.from_work.next = self.no_event.val();
        self.from_work.next.work = true;
        self.from_work.next.qpn = self.works.out_data.val().qpn;
        self.from_work.next.value = self.works.out_data.val().packets;
        self.from_work.next.sync = self.works.out_data.val().sync;
        self.errors.in_data.next = self.error.val();
        self.errors.in_valid.next = self.error_valid.val();
        self.error_ready.next = self.errors.in_ready.val();
        self.from_error.next = self.no_event.val();
        self.from_error.next.error = true;
        self.from_error.next.qpn = self.errors.out_data.val().qpn;
        self.from_error.next.code = self.errors.out_data.val().status;
        self.from_burst.next = self.no_event.val();
        self.from_burst.next.burst = true;
        self.from_burst.next.qpn = self.burst_wheel.fire.val();
        self.from_timeout.next = self.no_event.val();
        self.from_timeout.next.timeout = true;
        self.from_timeout.next.qpn = self.rto_wheel.fire.val();
        self.from_cfg.next = self.no_event.val();
        self.from_cfg.next.command = true;
        self.from_cfg.next.qpn = bit_cast::<16, 24>(self.cfg.val().index);

        comment!("the command on the configuration bus");
        self.ours.next = (self.cfg.val().op == self.op_create.val())
            | (self.cfg.val().op == self.op_modify.val())
            | (self.cfg.val().op == self.op_query.val())
            | (self.cfg.val().op == self.op_destroy.val());
        self.done.d.next = false;
        if !self.cfg_valid.val() {
            self.asked.d.next = false;
        } else if !self.asked.q.val() & self.started.q.val() {
            self.asked.d.next = true;
            self.pending.d.next = self.ours.val();
            self.done.d.next = !self.ours.val();
        }

        comment!("first cycle: which heads have their QP out of the pipeline");
        self.offered[0].next = self.pending.q.val();
        self.head[0].next = self.from_cfg.val().qpn;
        self.offered[1].next = self.errors.out_valid.val();
        self.head[1].next = self.from_error.val().qpn;
        self.offered[2].next = self.rto_wheel.fire_valid.val();
        self.head[2].next = self.rto_wheel.fire.val();
        self.offered[3].next = self.burst_wheel.fire_valid.val() & !self.enough.q.val();
        self.head[3].next = self.burst_wheel.fire.val();
        self.offered[4].next = self.works.out_valid.val();
        self.head[4].next = self.from_work.val().qpn;
        self.offered[5].next = self.acks.out_valid.val();
        self.head[5].next = self.acks.out_data.val().qpn;
        self.second.d.next = !self.second.q.val();
        for i in 0..SOURCES {
            self.eligible[i].d.next = self.offered[i].val()
                & !self.second.q.val()
                & !(self.in_pipe_1.q.val().some
                    & (self.in_pipe_1.q.val().qpn == self.head[i].val()))
                & !(self.in_pipe_2.q.val().some
                    & (self.in_pipe_2.q.val().qpn == self.head[i].val()))
                & !(self.in_pipe_3.q.val().some
                    & (self.in_pipe_3.q.val().qpn == self.head[i].val()));
        }

        comment!("second cycle: pick, in turn");
        self.pick.next = self.second.q.val() & self.room.q.val();
        self.taken.next = !self.pick.val();
        for i in 0..SOURCES {
            self.turn[i].next =
                self.eligible[i].q.val() & self.waits[i].q.val() & !self.taken.val();
            self.taken.next = self.taken.val() | self.turn[i].val();
        }
        for i in 0..SOURCES {
            self.turn[i].next = self.turn[i].val() | (self.eligible[i].q.val() & !self.taken.val());
            self.taken.next = self.taken.val() | self.eligible[i].q.val();
        }
        self.taken.next = self.taken.val() & self.pick.val();
        self.passed.next = false;
        for i in 0..SOURCES {
            if self.taken.val() {
                self.waits[i].d.next = self.passed.val();
            }
            self.passed.next = self.passed.val() | self.turn[i].val();
        }
        self.chosen.next = self.from_cfg.val();
        if self.turn[1].val() {
            self.chosen.next = self.from_error.val();
        }
        if self.turn[2].val() {
            self.chosen.next = self.from_timeout.val();
        }
        if self.turn[3].val() {
            self.chosen.next = self.from_burst.val();
        }
        if self.turn[4].val() {
            self.chosen.next = self.from_work.val();
        }
        if self.turn[5].val() {
            self.chosen.next = self.acks.out_data.val();
        }
        if self.turn[0].val() {
            self.pending.d.next = false;
        }
        self.errors.out_ready.next = self.turn[1].val();
        self.rto_wheel.fire_ready.next = self.turn[2].val();
        self.burst_wheel.fire_ready.next = self.turn[3].val();
        self.works.out_ready.next = self.turn[4].val();
        self.acks.out_ready.next = self.turn[5].val();
        self.enter.d.next = self.taken.val();
        self.entering.d.next = self.chosen.val();
        if self.second.q.val() {
            self.in_pipe_1.d.next.some = self.taken.val();
            self.in_pipe_1.d.next.qpn = self.chosen.val().qpn;
            self.in_pipe_2.d.next = self.in_pipe_1.q.val();
            self.in_pipe_3.d.next = self.in_pipe_2.q.val();
        }

        comment!("the pipeline");
        self.waiting_grants.next = self.grants.count.val();
        self.random.advance.next = true;
        self.random.load.next = false;
        self.random.seed.next = self.random.value.val();
        self.pipeline.incoming.next = self.entering.q.val();
        self.pipeline.incoming_valid.next = self.enter.q.val();
        self.pipeline.now.next = self.tick.val();
        self.pipeline.random.next = self.random.value.val();
        self.pipeline.backlog.next = self.backlog.q.val();
        self.pipeline.crowded.next = self.crowded.q.val() & !self.entering.q.val().burst;
        self.pipeline.full.next = self.full.q.val();
        self.pipeline.waiting_slow.next = self.waiting_grants.val().get_bits::<8>(2);
        self.pipeline.cfg.next = self.cfg.val();
        self.out.next = self.pipeline.outcome.val();
        self.after.next = self.pipeline.written.val();

        comment!("grants: the second of an event one cycle after the first");
        self.last_grant.d.next = self.out.val().grant_1;
        self.last_grant_valid.d.next =
            self.pipeline.outcome_valid.val() & self.out.val().grant_1_valid;
        self.grants.in_data.next = self.out.val().grant_0;
        self.grants.in_valid.next =
            self.pipeline.outcome_valid.val() & self.out.val().grant_0_valid;
        if self.last_grant_valid.q.val() {
            self.grants.in_data.next = self.last_grant.q.val();
            self.grants.in_valid.next = true;
        }
        self.grant.next = self.grants.out_data.val();
        self.grant_valid.next = self.grants.out_valid.val();
        self.grants.out_ready.next = self.grant_ready.val();
        self.backlog.d.next = self.waiting_grants.val().get_bits::<9>(1).any() | self.tx_held.val();
        self.crowded.d.next = self.waiting_grants.val() >= self.grants_crowded.val();
        self.enough.d.next = self.waiting_grants.val() >= self.grants_enough.val();
        self.full.d.next = self.waiting_grants.val() >= self.grants_full.val();

        comment!("progress");
        self.news.in_data.next = self.out.val().progress;
        self.news.in_valid.next = self.pipeline.outcome_valid.val() & self.out.val().progress_valid;
        self.progress.next = self.news.out_data.val();
        self.progress_valid.next = self.news.out_valid.val();
        self.news.out_ready.next = self.progress_ready.val();

        comment!("synchronised messages that begin");
        self.marks.in_data.next.qpn = self.out.val().qpn;
        self.marks.in_valid.next = self.pipeline.outcome_valid.val() & self.out.val().sync_passed;
        self.sync_passed.next = self.marks.out_data.val();
        self.sync_passed_valid.next = self.marks.out_valid.val();
        self.marks.out_ready.next = self.sync_passed_ready.val();

        comment!("telemetry");
        self.said.next.qpn = self.out.val().qpn;
        self.said.next.sent_0 = self.out.val().grant_0_valid & !self.out.val().grant_0.marker;
        self.said.next.sent_1 = self.out.val().grant_1_valid;
        self.said.next.vp_0 = self.out.val().grant_0.vp;
        self.said.next.vp_1 = self.out.val().grant_1.vp;
        self.said.next.cause = self.out.val().cause;
        self.said.next.new_1 = !self.out.val().grant_1.retx;
        self.said.next.probes = self.out.val().counts.probes;
        self.said.next.ack = self.out.val().accepted;
        self.said.next.ack_vp = self.after.val().last_vp;
        self.said.next.ecn_echo = self.out.val().counts.ecn_echo;
        self.said.next.prune = self.out.val().counts.prune;
        self.said.next.window_nak = self.out.val().counts.window_nak;
        self.said.next.sync_nak = self.out.val().counts.sync_nak;
        self.said.next.ghost = self.out.val().counts.ghost;
        self.said.next.timeout = self.out.val().counts.timeout;
        self.said.next.recovery = self.out.val().counts.recovery;
        self.note_out.d.next = self.said.val();
        self.note_now.d.next = self.pipeline.outcome_valid.val();
        self.note.next = self.note_out.q.val();
        self.note_valid.next = self.note_now.q.val();

        comment!("timers");
        self.rto_tick.d.next = self.tick_pulse.val() & !self.tick.val().get_bits::<6>(0).any();
        self.burst_arms.in_data.next.qpn = self.out.val().qpn;
        self.burst_arms.in_data.next.delay = bit_cast::<32, 8>(self.out.val().arm_burst);
        self.burst_arms.in_valid.next =
            self.pipeline.outcome_valid.val() & self.out.val().arm_burst_valid;
        self.burst_wheel.arm.next = self.burst_arms.out_data.val();
        self.burst_wheel.arm_valid.next = self.burst_arms.out_valid.val();
        self.burst_arms.out_ready.next = self.burst_wheel.arm_ready.val();
        self.burst_wheel.tick.next = self.tick_pulse.val();
        self.rto_arms.in_data.next.qpn = self.out.val().qpn;
        self.rto_arms.in_data.next.delay = bit_cast::<32, 8>(self.out.val().arm_rto);
        self.rto_arms.in_valid.next =
            self.pipeline.outcome_valid.val() & self.out.val().arm_rto_valid;
        self.rto_wheel.arm.next = self.rto_arms.out_data.val();
        self.rto_wheel.arm_valid.next = self.rto_arms.out_valid.val();
        self.rto_arms.out_ready.next = self.rto_wheel.arm_ready.val();
        self.rto_wheel.tick.next = self.rto_tick.q.val();

        comment!("no event enters that may find no room for what it brings about");
        self.waiting_progress.next = self.news.count.val();
        self.waiting_burst.next = self.burst_arms.count.val();
        self.waiting_rto.next = self.rto_arms.count.val();
        self.waiting_marks.next = self.marks.count.val();
        self.started.d.next = self.pipeline.init_done.val()
            & self.burst_wheel.init_done.val()
            & self.rto_wheel.init_done.val();
        self.room.d.next = self.started.q.val()
            & !self.waiting_progress.val().get_bit(5)
            & !self.waiting_marks.val().get_bit(5)
            & !self.waiting_burst.val().get_bit(4)
            & !self.waiting_rto.val().get_bit(4);

        comment!("answer of a command");
        self.status.next.state = self.after.val().state;
        self.status.next.recovering = self.after.val().recovering;
        self.status.next.cwnd = self.after.val().cwnd;
        self.status.next.inflate = self.after.val().inflate;
        self.status.next.snd_una = self.after.val().snd_una;
        self.status.next.snd_nxt = self.after.val().snd_nxt;
        self.status.next.snd_lim = self.after.val().snd_lim;
        self.status.next.snd_ooh = self.after.val().snd_ooh;
        self.status.next.recovery = self.after.val().recovery;
        self.status.next.snd_retx = self.after.val().snd_retx;
        self.status.next.srtt = self.after.val().srtt;
        self.status.next.rttvar = self.after.val().rttvar;
        self.status.next.retries = self.after.val().retries;
        self.status.next.backoff = self.after.val().backoff;
        self.status.next.last_vp = self.after.val().last_vp;
        self.pack.record.next = self.status.val();
        if self.pipeline.outcome_valid.val() & self.out.val().command {
            self.done.d.next = true;
            self.result.d.next = self.pack.image.val();
        }
        self.cfg_done.next = self.done.q.val();
        self.cfg_result.next = self.result.q.val();

        comment!("counters: two probes make two pulses, as events are two cycles apart");
        self.second_probe.d.next =
            self.pipeline.outcome_valid.val() & self.out.val().counts.probes.get_bit(1);
        self.probes.d.next = (self.pipeline.outcome_valid.val()
            & self.out.val().counts.probes.any())
            | self.second_probe.q.val();
        self.ecn_echoes.d.next = self.pipeline.outcome_valid.val() & self.out.val().counts.ecn_echo;
        self.prunes.d.next = self.pipeline.outcome_valid.val() & self.out.val().counts.prune;
        self.window_naks.d.next =
            self.pipeline.outcome_valid.val() & self.out.val().counts.window_nak;
        self.sync_naks.d.next = self.pipeline.outcome_valid.val() & self.out.val().counts.sync_nak;
        self.ghost_acks.d.next = self.pipeline.outcome_valid.val() & self.out.val().counts.ghost;
        self.bad_acks.d.next = self.pipeline.outcome_valid.val() & self.out.val().counts.bad_ack;
        self.timeouts.d.next = self.pipeline.outcome_valid.val() & self.out.val().counts.timeout;
        self.recoveries.d.next = self.pipeline.outcome_valid.val() & self.out.val().counts.recovery;
        self.cnt_probes.next = self.probes.q.val();
        self.cnt_ecn_echoes.next = self.ecn_echoes.q.val();
        self.cnt_prunes.next = self.prunes.q.val();
        self.cnt_window_naks.next = self.window_naks.q.val();
        self.cnt_sync_naks.next = self.sync_naks.q.val();
        self.cnt_ghost_acks.next = self.ghost_acks.q.val();
        self.cnt_bad_acks.next = self.bad_acks.q.val();
        self.cnt_timeouts.next = self.timeouts.q.val();
        self.cnt_recoveries.next = self.recoveries.q.val();

        self.init_done.next = self.started.q.val();
        self.active.d.next = self.acks.out_valid.val()
            | self.acks.count.val().any()
            | self.works.count.val().any()
            | self.errors.count.val().any()
            | self.grants.count.val().any()
            | self.news.count.val().any()
            | self.marks.count.val().any()
            | self.burst_arms.count.val().any()
            | self.rto_arms.count.val().any()
            | self.burst_wheel.busy.val()
            | self.rto_wheel.busy.val()
            | self.pending.q.val()
            | self.enter.q.val()
            | self.last_grant_valid.q.val()
            | self.pipeline.busy.val();
        self.busy.next = self.active.q.val();

        self.trace_seen.next = self.pipeline.seen.val();
        self.trace_env.next = self.pipeline.seen_env.val();
        self.trace_random.next = self.pipeline.seen_random.val();
        self.trace_seen_valid.next = self.pipeline.seen_valid.val();
        self.trace_outcome.next = self.pipeline.outcome.val();
        self.trace_written.next = self.pipeline.written.val();
        self.trace_valid.next = self.pipeline.outcome_valid.val();
    }
}
