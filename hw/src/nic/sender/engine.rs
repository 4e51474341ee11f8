//! The sender engine: event sources, scoreboard, timers and grants around the pipeline.

use super::pipeline::SenderPipeline;
use super::records::{SenderEvent, SenderStatus};
use crate::leaf::timer_wheel::TimerArm;
use crate::leaf::{Lfsr, Pack, SyncFifo, TimerWheel};
use crate::nic::types::{AckEvent, CfgReq, Grant, Progress, QpError, Work};
use crate::prelude::*;
use mprdma_spec::command::Opcode;

block! {
    /// Owns the sender half of 2^`QPW` queue pairs.
    ///
    /// - In: `ack`, `work`, `error`, the configuration bus, `tick` (64 ns) with `tick_pulse`.
    /// - Out: `grant`, `progress`; `cfg_done` with `cfg_result` (the sender half of `qp_status`); pulses `cnt_…`;
    ///   `init_done`, `busy` (also while a timer is armed).
    /// - One event enters the pipeline every 2 cycles; an event whose queue pair entered less than 8 cycles ago waits, and
    ///   another source goes first. In order of urgency: commands, errors, burst timer, retransmission timer, work, ACKs.
    /// - Up to 1023 grants wait for the segmenter. With 2 or more waiting the card's own transmit side holds packets back
    ///   (protocol section 4 rule 3); when they are almost all in use, events grant nothing and arm the burst timer.
    pub struct Sender[const QPW: usize][QPW] {
        in {
            clock: Clock,
            reset: Bit,
            tick: Bits<32>,
            tick_pulse: Bit,
            cfg: CfgReq,
            cfg_valid: Bit,
            ack: AckEvent,
            ack_valid: Bit,
            work: Work,
            work_valid: Bit,
            error: QpError,
            error_valid: Bit,
            grant_ready: Bit,
            progress_ready: Bit,
        }
        out {
            ack_ready: Bit,
            work_ready: Bit,
            error_ready: Bit,
            grant: Grant,
            grant_valid: Bit,
            progress: Progress,
            progress_valid: Bit,
            cfg_done: Bit,
            cfg_result: Bits<512>,
            init_done: Bit,
            busy: Bit,
            cnt_probes: Bit,
            cnt_ecn_echoes: Bit,
            cnt_prunes: Bit,
            cnt_window_naks: Bit,
            cnt_sync_naks: Bit,
            cnt_ghost_acks: Bit,
            cnt_bad_acks: Bit,
            cnt_timeouts: Bit,
            cnt_recoveries: Bit,
        }
        local {
            ours: Bit,
            may_issue: Bit,
            command_free: Bit,
            error_free: Bit,
            burst_free: Bit,
            timeout_free: Bit,
            work_free: Bit,
            ack_free: Bit,
            command_number: Bits<16>,
            chosen: SenderEvent,
            issues: Bit,
            take_command: Bit,
            take_error: Bit,
            take_burst: Bit,
            take_timeout: Bit,
            take_work: Bit,
            take_ack: Bit,
            burst_arm: TimerArm,
            rto_arm: TimerArm,
            settled: Bit,
        }
        reg {
            turn: Bit,
            recent_1_valid: Bit,
            recent_2_valid: Bit,
            recent_3_valid: Bit,
            served: Bit,
            answered: Bit,
            cfg_age: Bits<2>,
            second: Bit,
            second_probe: Bit,
            counted_probe: Bit,
        }
        pipe {
            recent_1: Bits<16>,
            recent_2: Bits<16>,
            recent_3: Bits<16>,
            second_grant: Grant,
            status: Bits<512>,
        }
        konst {
            create_qp: Bits<4> = bits(Opcode::CreateQp as u64),
            destroy_qp: Bits<4> = bits(Opcode::DestroyQp as u64),
            blank: SenderEvent = SenderEvent::default(),
            most_grants: Bits<10> = bits(992),
            backlog: Bits<10> = bits(2),
            most_news: Bits<5> = bits(20),
            most_arms: Bits<4> = bits(8),
            half: Bits<6> = bits(0),
        }
        sub {
            pipeline: SenderPipeline<QPW> = SenderPipeline::default(),
            acks: SyncFifo<AckEvent, 9> = SyncFifo::deep(),
            works: SyncFifo<Work, 4> = SyncFifo::shallow(),
            errors: SyncFifo<QpError, 4> = SyncFifo::shallow(),
            grants: SyncFifo<Grant, 10> = SyncFifo::deep(),
            news: SyncFifo<Progress, 5> = SyncFifo::shallow(),
            burst_arms: SyncFifo<TimerArm, 4> = SyncFifo::shallow(),
            rto_arms: SyncFifo<TimerArm, 4> = SyncFifo::shallow(),
            burst_wheel: TimerWheel<QPW, 8> = TimerWheel::default(),
            rto_wheel: TimerWheel<QPW, 8> = TimerWheel::default(),
            random: Lfsr = Lfsr::default(),
            report: Pack<SenderStatus, 1024> = Pack::default(),
        }
    }
}

impl<const QPW: usize> Logic for Sender<QPW> {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(
            self,
            clock,
            turn,
            recent_1_valid,
            recent_2_valid,
            recent_3_valid,
            served,
            answered,
            cfg_age,
            second,
            second_probe,
            counted_probe,
            recent_1,
            recent_2,
            recent_3,
            second_grant,
            status
        );
        clock!(
            self,
            clock,
            pipeline,
            acks,
            works,
            errors,
            grants,
            news,
            burst_arms,
            rto_arms,
            burst_wheel,
            rto_wheel,
            random
        );
        self.pipeline.reset.next = self.reset.val();
        self.acks.reset.next = self.reset.val();
        self.works.reset.next = self.reset.val();
        self.errors.reset.next = self.reset.val();
        self.grants.reset.next = self.reset.val();
        self.news.reset.next = self.reset.val();
        self.burst_arms.reset.next = self.reset.val();
        self.rto_arms.reset.next = self.reset.val();
        self.burst_wheel.reset.next = self.reset.val();
        self.rto_wheel.reset.next = self.reset.val();
        self.random.reset.next = self.reset.val();
        self.acks.in_data.next = self.ack.val();
        self.acks.in_valid.next = self.ack_valid.val();
        self.ack_ready.next = self.acks.in_ready.val();
        self.works.in_data.next = self.work.val();
        self.works.in_valid.next = self.work_valid.val();
        self.work_ready.next = self.works.in_ready.val();
        self.errors.in_data.next = self.error.val();
        self.errors.in_valid.next = self.error_valid.val();
        self.error_ready.next = self.errors.in_ready.val();
        self.grant.next = self.grants.out_data.val();
        self.grant_valid.next = self.grants.out_valid.val();
        self.grants.out_ready.next = self.grant_ready.val();
        self.progress.next = self.news.out_data.val();
        self.progress_valid.next = self.news.out_valid.val();
        self.news.out_ready.next = self.progress_ready.val();
        self.random.advance.next = true;
        self.random.load.next = false;
        self.random.seed.next = bits::<64>(0);

        comment!("scoreboard: who entered 2, 4 or 6 cycles ago");
        self.turn.d.next = !self.turn.q.val();
        self.command_number.next = self.cfg.val().index.get_bits::<16>(0);
        self.command_free.next = (!self.recent_1_valid.q.val()
            | (self.recent_1.q.val() != self.command_number.val()))
            & (!self.recent_2_valid.q.val() | (self.recent_2.q.val() != self.command_number.val()))
            & (!self.recent_3_valid.q.val() | (self.recent_3.q.val() != self.command_number.val()));
        self.error_free.next = (!self.recent_1_valid.q.val()
            | (self.recent_1.q.val() != self.errors.out_data.val().qpn))
            & (!self.recent_2_valid.q.val()
                | (self.recent_2.q.val() != self.errors.out_data.val().qpn))
            & (!self.recent_3_valid.q.val()
                | (self.recent_3.q.val() != self.errors.out_data.val().qpn));
        self.burst_free.next = (!self.recent_1_valid.q.val()
            | (self.recent_1.q.val() != self.burst_wheel.fire.val()))
            & (!self.recent_2_valid.q.val()
                | (self.recent_2.q.val() != self.burst_wheel.fire.val()))
            & (!self.recent_3_valid.q.val()
                | (self.recent_3.q.val() != self.burst_wheel.fire.val()));
        self.timeout_free.next = (!self.recent_1_valid.q.val()
            | (self.recent_1.q.val() != self.rto_wheel.fire.val()))
            & (!self.recent_2_valid.q.val() | (self.recent_2.q.val() != self.rto_wheel.fire.val()))
            & (!self.recent_3_valid.q.val() | (self.recent_3.q.val() != self.rto_wheel.fire.val()));
        self.work_free.next = (!self.recent_1_valid.q.val()
            | (self.recent_1.q.val() != self.works.out_data.val().qpn))
            & (!self.recent_2_valid.q.val()
                | (self.recent_2.q.val() != self.works.out_data.val().qpn))
            & (!self.recent_3_valid.q.val()
                | (self.recent_3.q.val() != self.works.out_data.val().qpn));
        self.ack_free.next = (!self.recent_1_valid.q.val()
            | (self.recent_1.q.val() != self.acks.out_data.val().qpn))
            & (!self.recent_2_valid.q.val()
                | (self.recent_2.q.val() != self.acks.out_data.val().qpn))
            & (!self.recent_3_valid.q.val()
                | (self.recent_3.q.val() != self.acks.out_data.val().qpn));

        comment!("commands are stable for some cycles before they enter");
        self.ours.next = (self.cfg.val().op >= self.create_qp.val())
            & (self.cfg.val().op <= self.destroy_qp.val());
        self.answered.d.next = false;
        if !self.cfg_valid.val() {
            self.served.d.next = false;
            self.cfg_age.d.next = bits::<2>(0);
        } else {
            if !self.cfg_age.q.val().all() {
                self.cfg_age.d.next = self.cfg_age.q.val() + 1;
            }
            if !self.served.q.val() & !self.ours.val() {
                self.served.d.next = true;
                self.answered.d.next = true;
            }
        }
        self.settled.next = self.cfg_valid.val()
            & self.ours.val()
            & self.cfg_age.q.val().all()
            & !self.served.q.val();

        comment!("one event every second cycle, if what it brings about has room");
        self.may_issue.next = self.turn.q.val()
            & self.pipeline.init_done.val()
            & (self.news.count.val() < self.most_news.val())
            & (self.burst_arms.count.val() < self.most_arms.val())
            & (self.rto_arms.count.val() < self.most_arms.val());
        self.chosen.next = self.blank.val();
        self.take_command.next = false;
        self.take_error.next = false;
        self.take_burst.next = false;
        self.take_timeout.next = false;
        self.take_work.next = false;
        self.take_ack.next = false;
        if self.may_issue.val() {
            if self.settled.val() & self.command_free.val() {
                self.take_command.next = true;
                self.chosen.next.command = true;
                self.chosen.next.qpn = self.command_number.val();
            } else if self.errors.out_valid.val() & self.error_free.val() {
                self.take_error.next = true;
                self.chosen.next.error = true;
                self.chosen.next.qpn = self.errors.out_data.val().qpn;
                self.chosen.next.code = self.errors.out_data.val().status;
            } else if self.burst_wheel.fire_valid.val() & self.burst_free.val() {
                self.take_burst.next = true;
                self.chosen.next.burst = true;
                self.chosen.next.qpn = self.burst_wheel.fire.val();
            } else if self.rto_wheel.fire_valid.val() & self.timeout_free.val() {
                self.take_timeout.next = true;
                self.chosen.next.timeout = true;
                self.chosen.next.qpn = self.rto_wheel.fire.val();
            } else if self.works.out_valid.val() & self.work_free.val() {
                self.take_work.next = true;
                self.chosen.next.work = true;
                self.chosen.next.qpn = self.works.out_data.val().qpn;
                self.chosen.next.value = self.works.out_data.val().packets;
            } else if self.acks.out_valid.val() & self.ack_free.val() {
                self.take_ack.next = true;
                self.chosen.next.ack = true;
                self.chosen.next.qpn = self.acks.out_data.val().qpn;
                self.chosen.next.sack = self.acks.out_data.val().sack;
                self.chosen.next.value = self.acks.out_data.val().aack;
                self.chosen.next.flags = self.acks.out_data.val().flags;
                self.chosen.next.code = self.acks.out_data.val().syndrome;
                self.chosen.next.vp = self.acks.out_data.val().vp;
                self.chosen.next.stamp = self.acks.out_data.val().stamp;
            }
        }
        self.issues.next = self.take_command.val()
            | self.take_error.val()
            | self.take_burst.val()
            | self.take_timeout.val()
            | self.take_work.val()
            | self.take_ack.val();
        if self.take_command.val() {
            self.served.d.next = true;
        }
        self.errors.out_ready.next = self.take_error.val();
        self.burst_wheel.fire_ready.next = self.take_burst.val();
        self.rto_wheel.fire_ready.next = self.take_timeout.val();
        self.works.out_ready.next = self.take_work.val();
        self.acks.out_ready.next = self.take_ack.val();
        if self.turn.q.val() {
            self.recent_1.d.next = self.chosen.val().qpn;
            self.recent_1_valid.d.next = self.issues.val();
            self.recent_2.d.next = self.recent_1.q.val();
            self.recent_2_valid.d.next = self.recent_1_valid.q.val();
            self.recent_3.d.next = self.recent_2.q.val();
            self.recent_3_valid.d.next = self.recent_2_valid.q.val();
        }
        self.pipeline.incoming.next = self.chosen.val();
        self.pipeline.incoming_valid.next = self.issues.val();
        self.pipeline.now.next = self.tick.val();
        self.pipeline.random.next = self.random.value.val();
        self.pipeline.backlog.next = self.grants.count.val() >= self.backlog.val();
        self.pipeline.full.next = self.grants.count.val() >= self.most_grants.val();
        self.pipeline.cfg.next = self.cfg.val();

        comment!("grants: the second of an event follows a cycle later, before another event can come out");
        self.grants.in_data.next = self.pipeline.outcome.val().grant_0;
        self.grants.in_valid.next =
            self.pipeline.outcome_valid.val() & self.pipeline.outcome.val().grant_0_valid;
        self.second.d.next =
            self.pipeline.outcome_valid.val() & self.pipeline.outcome.val().grant_1_valid;
        self.second_grant.d.next = self.pipeline.outcome.val().grant_1;
        if self.second.q.val() {
            self.grants.in_data.next = self.second_grant.q.val();
            self.grants.in_valid.next = true;
        }
        self.news.in_data.next = self.pipeline.outcome.val().progress;
        self.news.in_valid.next =
            self.pipeline.outcome_valid.val() & self.pipeline.outcome.val().progress_valid;

        comment!("timers");
        self.burst_arm.next.qpn = self.pipeline.outcome.val().qpn;
        self.burst_arm.next.delay = bit_cast::<32, 8>(self.pipeline.outcome.val().arm_burst);
        self.burst_arms.in_data.next = self.burst_arm.val();
        self.burst_arms.in_valid.next =
            self.pipeline.outcome_valid.val() & self.pipeline.outcome.val().arm_burst_valid;
        self.burst_wheel.arm.next = self.burst_arms.out_data.val();
        self.burst_wheel.arm_valid.next = self.burst_arms.out_valid.val();
        self.burst_arms.out_ready.next = self.burst_wheel.arm_ready.val();
        self.burst_wheel.tick.next = self.tick_pulse.val();
        self.rto_arm.next.qpn = self.pipeline.outcome.val().qpn;
        self.rto_arm.next.delay = bit_cast::<32, 8>(self.pipeline.outcome.val().arm_rto);
        self.rto_arms.in_data.next = self.rto_arm.val();
        self.rto_arms.in_valid.next =
            self.pipeline.outcome_valid.val() & self.pipeline.outcome.val().arm_rto_valid;
        self.rto_wheel.arm.next = self.rto_arms.out_data.val();
        self.rto_wheel.arm_valid.next = self.rto_arms.out_valid.val();
        self.rto_arms.out_ready.next = self.rto_wheel.arm_ready.val();
        self.rto_wheel.tick.next =
            self.tick_pulse.val() & (self.tick.val().get_bits::<6>(0) == self.half.val());

        comment!("commands: the answer");
        self.report.record.next.state = self.pipeline.written.val().state;
        self.report.record.next.recovering = self.pipeline.written.val().recovering;
        self.report.record.next.cwnd = self.pipeline.written.val().cwnd;
        self.report.record.next.inflate = self.pipeline.written.val().inflate;
        self.report.record.next.snd_una = self.pipeline.written.val().snd_una;
        self.report.record.next.snd_nxt = self.pipeline.written.val().snd_nxt;
        self.report.record.next.snd_lim = self.pipeline.written.val().snd_lim;
        self.report.record.next.snd_ooh = self.pipeline.written.val().snd_ooh;
        self.report.record.next.recovery = self.pipeline.written.val().recovery;
        self.report.record.next.snd_retx = self.pipeline.written.val().snd_retx;
        self.report.record.next.srtt = self.pipeline.written.val().srtt;
        self.report.record.next.rttvar = self.pipeline.written.val().rttvar;
        self.report.record.next.retries = self.pipeline.written.val().retries;
        self.report.record.next.backoff = self.pipeline.written.val().backoff;
        self.report.record.next.last_vp = self.pipeline.written.val().last_vp;
        if self.pipeline.outcome_valid.val() & self.pipeline.outcome.val().command {
            self.answered.d.next = true;
            self.status.d.next = self.report.image.val().get_bits::<512>(0);
        }
        self.cfg_done.next = self.answered.q.val();
        self.cfg_result.next = self.status.q.val();

        comment!("counters");
        self.second_probe.d.next = self.pipeline.outcome_valid.val()
            & self.pipeline.outcome.val().counts.probes.get_bit(1);
        self.counted_probe.d.next = self.second_probe.q.val()
            | (self.pipeline.outcome_valid.val() & self.pipeline.outcome.val().counts.probes.any());
        self.cnt_probes.next = self.counted_probe.q.val();
        self.cnt_ecn_echoes.next =
            self.pipeline.outcome_valid.val() & self.pipeline.outcome.val().counts.ecn_echo;
        self.cnt_prunes.next =
            self.pipeline.outcome_valid.val() & self.pipeline.outcome.val().counts.prune;
        self.cnt_window_naks.next =
            self.pipeline.outcome_valid.val() & self.pipeline.outcome.val().counts.window_nak;
        self.cnt_sync_naks.next =
            self.pipeline.outcome_valid.val() & self.pipeline.outcome.val().counts.sync_nak;
        self.cnt_ghost_acks.next =
            self.pipeline.outcome_valid.val() & self.pipeline.outcome.val().counts.ghost;
        self.cnt_bad_acks.next =
            self.pipeline.outcome_valid.val() & self.pipeline.outcome.val().counts.bad_ack;
        self.cnt_timeouts.next =
            self.pipeline.outcome_valid.val() & self.pipeline.outcome.val().counts.timeout;
        self.cnt_recoveries.next =
            self.pipeline.outcome_valid.val() & self.pipeline.outcome.val().counts.recovery;
        self.init_done.next = self.pipeline.init_done.val()
            & self.burst_wheel.init_done.val()
            & self.rto_wheel.init_done.val();
        self.busy.next = self.pipeline.busy.val()
            | self.acks.out_valid.val()
            | self.works.out_valid.val()
            | self.errors.out_valid.val()
            | self.grants.count.val().any()
            | self.news.out_valid.val()
            | self.burst_arms.out_valid.val()
            | self.rto_arms.out_valid.val()
            | self.burst_wheel.busy.val()
            | self.rto_wheel.busy.val()
            | self.second.q.val();
    }
}
