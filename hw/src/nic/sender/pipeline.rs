//! The pipeline of the sender engine: one context in, one event, one context out.

use super::records::{
    Distances, Findings, Intent, Room, SecondHole, SenderArgs, SenderCommand, SenderContext,
    SenderEnv, SenderEvent, SenderOutcome, Verdict,
};
use crate::leaf::{Encode128, Mul16, Ram, RamStyle, Unpack};
use crate::nic::types::CfgReq;
use crate::prelude::*;
use mprdma_spec::command::{Opcode, QpState, MASK_MULTIPATH, MASK_SENDER, MASK_STATE};
use mprdma_spec::params::RECYCLED_PATHS;
use mprdma_spec::status::{SendCause, WcStatus};

block! {
    /// `model::sender::step` in eight stages, with the context memory of 2^`QPW` queue pairs whose peers have
    /// bitmaps of `L` slots.
    ///
    /// - In: `incoming`, `incoming_valid`; with it `now`, `random`, `backlog`, `crowded`, `full` and
    ///   `waiting_slow`. No ready: the user keeps events of one
    ///   QP 8 cycles apart and any two events 2 cycles apart. `cfg` must be stable two cycles before a command enters, until
    ///   it leaves.
    /// - Out: `outcome` and `written` (the context), valid in the cycle of `outcome_valid`, in the order of the events.
    ///   `seen`, `seen_env`, `seen_random`, `seen_valid`: the event as it enters, for a lockstep test.
    /// - Latency: 8 cycles. Initiation interval: 2, given by the user.
    /// - `init_done` rises when the contexts are cleared after reset, 2^`QPW` cycles; no events before.
    ///
    /// ```text
    ///  T0 read   T1 subtract   T2 compare   T3 rules 1-4, commands   T4 add   T5 compare, timeout   T6 choose   T7 write
    /// ```
    ///
    /// Rule numbers are those of protocol section 4; "section 5" is loss recovery.
    pub struct SenderPipeline[const QPW: usize, const L: usize][QPW, L] {
        in {
            clock: Clock,
            reset: Bit,
            incoming: SenderEvent,
            incoming_valid: bool,
            now: Bits<32>,
            random: Bits<64>,
            backlog: bool,
            crowded: bool,
            full: bool,
            waiting_slow: Bits<8>,
            cfg: CfgReq,
        }
        out {
            outcome: SenderOutcome,
            written: SenderContext,
            outcome_valid: bool,
            seen: SenderEvent,
            seen_env: SenderEnv,
            seen_random: Bits<64>,
            seen_valid: bool,
            init_done: bool,
            busy: bool,
        }
        local {
            // T1
            c1: SenderContext,
            e1: SenderEvent,
            slow_srtt: Bits<19>,
            triple_srtt: Bits<21>,
            // T2
            c2: SenderContext,
            e2: SenderEvent,
            d2: Distances,
            answered: bool,
            asks_nak: bool,
            refused: bool,
            reserved: bool,
            chance_0: Bits<16>,
            chance_1: Bits<16>,
            rto_slow: Bits<16>,
            rnr_mantissa: Bits<17>,
            rnr_exponent: Bits<4>,
            // T3
            c3: SenderContext,
            e3: SenderEvent,
            f3: Findings,
            a3: SenderArgs,
            k3: SenderCommand,
            accepted: bool,
            positive: bool,
            advance: bool,
            no_flight: bool,
            no_hole: bool,
            deflated: Bits<12>,
            growth_kept: Bits<13>,
            enter: bool,
            recovering: bool,
            rnr_wait: bool,
            rnr_new: bool,
            rnr_over: bool,
            deviation: Bits<17>,
            rto_base: Bits<22>,
            rnr_long: Bits<18>,
            far: bool,
            hole_limit: Bits<24>,
            pass_from: Bits<24>,
            // T4
            looks: bool,
            below: Bits<128>,
            beyond: Bits<128>,
            c4: SenderContext,
            i4: Intent,
            limit: Bits<22>,
            to_even: Bits<13>,
            window: Bits<13>,
            may_go: bool,
            resend_from: Bits<24>,
            // T5
            c5: SenderContext,
            r5: Room,
            fired: bool,
            gave_up: bool,
            arm_rto: Bits<26>,
            sync_due: bool,
            first_hole: Bits<128>,
            ring_ready: bool,
            // T6
            open_new: bool,
            fixes: bool,
            two_fixes: bool,
            beside: bool,
            hole_0: Bits<24>,
            own: bool,
            sync_stop: bool,
            turn_one: bool,
            turn_two: bool,
            c6: SenderContext,
            v6: Verdict,
            e6: SenderEvent,
            k6: SenderCommand,
            wants_new: bool,
            fresh: bool,
            two_new: bool,
            more_new: bool,
            acked: bool,
            unclocked: bool,
            left_1: bool,
            left_2: bool,
            left_3: bool,
            two_unclocked: bool,
            more_unclocked: bool,
            resends: bool,
            full_6: bool,
            marker: bool,
            held_6: bool,
            own_random_0: bool,
            own_random_1: bool,
            rts: bool,
            stopped: bool,
            want_burst: bool,
            want_rto: bool,
            // T7
            hole_1: Bits<24>,
            last_outcome: SenderOutcome,
            last_context: SenderContext,
        }
        reg {
            valid_0: bool,
            valid_1: bool,
            valid_2: bool,
            valid_3: bool,
            valid_4: bool,
            valid_5: bool,
            valid_6: bool,
            valid_7: bool,
            clear_addr: Bits<QPW>,
            cleared: bool,
        }
        pipe {
            event_0: SenderEvent,
            event_1: SenderEvent,
            event_2: SenderEvent,
            event_3: SenderEvent,
            event_4: SenderEvent,
            event_5: SenderEvent,
            event_6: SenderEvent,
            event_7: SenderEvent,
            env_0: SenderEnv,
            env_1: SenderEnv,
            env_2: SenderEnv,
            env_3: SenderEnv,
            env_4: SenderEnv,
            env_5: SenderEnv,
            env_6: SenderEnv,
            random_0: Bits<64>,
            random_1: Bits<64>,
            random_2: Bits<64>,
            context_2: SenderContext,
            context_3: SenderContext,
            context_4: SenderContext,
            context_5: SenderContext,
            context_6: SenderContext,
            context_7: SenderContext,
            distances_2: Distances,
            findings_3: Findings,
            intent_4: Intent,
            room_5: Room,
            verdict_6: Verdict,
            outcome_7: SenderOutcome,
            second_7: SecondHole,
            args: SenderArgs,
            command: SenderCommand,
        }
        konst {
            state_rts: Bits<3> = bits(QpState::Rts as u64),
            state_error: Bits<3> = bits(QpState::Error as u64),
            state_reset: Bits<3> = bits(QpState::Reset as u64),
            op_create: Bits<4> = bits(Opcode::CreateQp as u64),
            op_modify: Bits<4> = bits(Opcode::ModifyQp as u64),
            op_destroy: Bits<4> = bits(Opcode::DestroyQp as u64),
            mask_state: Bits<8> = bits(MASK_STATE),
            mask_sender: Bits<8> = bits(MASK_SENDER),
            mask_multipath: Bits<8> = bits(MASK_MULTIPATH),
            invalid_request: Bits<8> = bits(WcStatus::RemoteInvalidRequest as u64),
            access_error: Bits<8> = bits(WcStatus::RemoteAccessError as u64),
            operation_error: Bits<8> = bits(WcStatus::RemoteOperationError as u64),
            retry_exceeded: Bits<8> = bits(WcStatus::RetryExceeded as u64),
            rnr_exceeded: Bits<8> = bits(WcStatus::RnrRetryExceeded as u64),
            flushed: Bits<8> = bits(WcStatus::WorkRequestFlushed as u64),
            // AETH syndromes (IBA 9.7.5.2.1); the upper three bits are the kind.
            nak_sequence: Bits<8> = bits(0x60),
            nak_invalid: Bits<8> = bits(0x61),
            nak_access: Bits<8> = bits(0x62),
            nak_operation: Bits<8> = bits(0x63),
            kind_ack: Bits<3> = bits(0),
            kind_rnr: Bits<3> = bits(1),
            endless: Bits<4> = bits(7),
            inflate_max: Bits<12> = bits(0xfff),
            cwnd_min: Bits<13> = bits(2),
            cwnd_min_1: Bits<13> = bits(3),
            cwnd_min_2: Bits<13> = bits(4),
            growth_max: Bits<13> = bits(3),
            backoff_max: Bits<3> = bits(6),
            rnr_forever: Bits<3> = bits(7),
            wheel_max: Bits<26> = bits(255),
            tick: Bits<8> = bits(1),
            zero_17: Bits<17> = bits(0),
            zero_128: Bits<128> = bits(0),
            one_128: Bits<128> = bits(1),
            two_128: Bits<128> = bits(2),
            ring_full: Bits<5> = bits(RECYCLED_PATHS as u64),
            // The bitmap: its last slot, and the slots that new packets may fill while a hole is open.
            last_slot: Bits<7> = bits(L as u64 - 1),
            slots: Bits<24> = bits(L as u64),
            open_slots: Bits<24> = bits(L as u64 - 1),
            cause_hole: Bits<2> = bits(SendCause::Hole as u64),
            cause_recovery: Bits<2> = bits(SendCause::Recovery as u64),
            cause_timeout: Bits<2> = bits(SendCause::Timeout as u64),
            no_context: SenderContext = SenderContext::default(),
        }
        sub {
            unpack: Unpack<SenderArgs, 1024>,
            contexts: Ram<SenderContext, QPW> = Ram::new(RamStyle::Block, false),
            path_0: Mul16,
            path_1: Mul16,
            sync_scale: Mul16,
            sync_need: Mul16,
            sync_waited: Mul16,
            encode_0: Encode128,
            encode_1: Encode128,
        }
    }
}

impl<const QPW: usize, const L: usize> Logic for SenderPipeline<QPW, L> {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(
            self,
            clock,
            valid_0,
            valid_1,
            valid_2,
            valid_3,
            valid_4,
            valid_5,
            valid_6,
            valid_7,
            clear_addr,
            cleared,
            event_0,
            event_1,
            event_2,
            event_3,
            event_4,
            event_5,
            event_6,
            event_7,
            env_0,
            env_1,
            env_2,
            env_3,
            env_4,
            env_5,
            env_6,
            random_0,
            random_1,
            random_2,
            context_2,
            context_3,
            context_4,
            context_5,
            context_6,
            context_7,
            distances_2,
            findings_3,
            intent_4,
            room_5,
            verdict_6,
            outcome_7,
            second_7,
            args,
            command
        );
        clock!(
            self,
            clock,
            contexts,
            path_0,
            path_1,
            sync_scale,
            sync_need,
            sync_waited
        );

        comment!("the command on the configuration bus, decoded");
        self.unpack.image.next = self.cfg.val().image;
        self.args.d.next = self.unpack.record.val();
        self.command.d.next.create = self.cfg.val().op == self.op_create.val();
        self.command.d.next.destroy = self.cfg.val().op == self.op_destroy.val();
        self.command.d.next.takes_state = (self.cfg.val().op == self.op_create.val())
            | ((self.cfg.val().op == self.op_modify.val())
                & (self.unpack.record.val().mask & self.mask_state.val()).any());
        self.command.d.next.takes_sender = (self.cfg.val().op == self.op_create.val())
            | ((self.cfg.val().op == self.op_modify.val())
                & (self.unpack.record.val().mask & self.mask_sender.val()).any());
        self.command.d.next.takes_multipath = (self.cfg.val().op == self.op_create.val())
            | ((self.cfg.val().op == self.op_modify.val())
                & (self.unpack.record.val().mask & self.mask_multipath.val()).any());
        self.a3.next = self.args.q.val();
        self.k3.next = self.command.q.val();
        self.k6.next = self.command.q.val();

        comment!("T0: read the context");
        self.event_0.d.next = self.incoming.val();
        self.valid_0.d.next = self.incoming_valid.val();
        self.env_0.d.next.now = self.now.val();
        self.env_0.d.next.backlog = self.backlog.val();
        self.env_0.d.next.crowded = self.crowded.val();
        self.env_0.d.next.full = self.full.val();
        self.env_0.d.next.waiting_slow = self.waiting_slow.val();
        self.random_0.d.next = self.random.val();
        self.contexts.read.next = true;
        self.contexts.read_addr.next = bit_cast::<QPW, 16>(self.event_0.q.val().qpn);
        self.seen.next = self.event_0.q.val();
        self.seen_env.next = self.env_0.q.val();
        self.seen_random.next = self.random_0.q.val();
        self.seen_valid.next = self.valid_0.q.val();
        self.event_1.d.next = self.event_0.q.val();
        self.env_1.d.next = self.env_0.q.val();
        self.random_1.d.next = self.random_0.q.val();
        self.valid_1.d.next = self.valid_0.q.val();

        comment!("T1: distances from snd_una, and from what it becomes if AACK is accepted");
        self.c1.next = self.contexts.read_data.val();
        self.e1.next = self.event_1.q.val();
        self.distances_2.d.next.flight = self.c1.val().snd_nxt - self.c1.val().snd_una;
        self.distances_2.d.next.flight_after = self.c1.val().snd_nxt - self.e1.val().value;
        self.distances_2.d.next.sack = self.e1.val().sack - self.c1.val().snd_una;
        self.distances_2.d.next.aack = self.e1.val().value - self.c1.val().snd_una;
        self.distances_2.d.next.lead = self.c1.val().snd_ooh - self.e1.val().sack;
        self.distances_2.d.next.ooh_before_una =
            (self.c1.val().snd_ooh - self.c1.val().snd_una).get_bit(23);
        self.distances_2.d.next.ooh_before_aack =
            (self.c1.val().snd_ooh - self.e1.val().value).get_bit(23);
        self.distances_2.d.next.sack_before_aack =
            (self.e1.val().sack - self.e1.val().value).get_bit(23);
        self.distances_2.d.next.retx_before_aack =
            (self.c1.val().snd_retx - self.e1.val().value).get_bit(23);
        self.distances_2.d.next.unsent = self.c1.val().snd_lim - self.c1.val().snd_nxt;
        self.distances_2.d.next.to_resend = self.c1.val().recovery - self.c1.val().snd_retx;
        self.distances_2.d.next.elapsed = self.env_1.q.val().now - self.c1.val().progress_at;
        self.distances_2.d.next.sample =
            bit_cast::<16, 32>(self.env_1.q.val().now) - self.e1.val().stamp;
        self.slow_srtt.next = self.c1.val().srtt >> 3;
        self.distances_2.d.next.srtt_decayed = self.c1.val().srtt - self.slow_srtt.val();
        self.distances_2.d.next.rttvar_decayed = self.c1.val().rttvar - (self.c1.val().rttvar >> 2);
        self.distances_2.d.next.rto =
            self.slow_srtt.val() + bit_cast::<19, 18>(self.c1.val().rttvar);
        self.distances_2.d.next.earned = self.c1.val().growth + 4;
        self.triple_srtt.next = bit_cast::<21, 19>(self.c1.val().srtt);
        self.distances_2.d.next.idle_limit = self.triple_srtt.val() + (self.triple_srtt.val() << 1);
        self.distances_2.d.next.idle = self.c1.val().snd_una == self.c1.val().snd_lim;
        self.distances_2.d.next.running = self.c1.val().state == self.state_rts.val();
        self.distances_2.d.next.initial_window = self.c1.val().initial_window;
        self.distances_2.d.next.cwnd_limit = bit_cast::<13, 12>(self.c1.val().cwnd_max) << 1;
        if self.e1.val().command & self.k3.val().takes_multipath {
            self.distances_2.d.next.initial_window = self.a3.val().initial_window;
            self.distances_2.d.next.cwnd_limit = bit_cast::<13, 12>(self.a3.val().cwnd_max) << 1;
        }
        self.distances_2.d.next.span = self.c1.val().snd_ooh - self.c1.val().snd_una;
        self.distances_2.d.next.span_after = self.c1.val().snd_ooh - self.e1.val().value;
        self.distances_2.d.next.sack_after = self.e1.val().sack - self.e1.val().value;
        self.distances_2.d.next.pass = self.c1.val().snd_retx - self.c1.val().snd_una;
        self.distances_2.d.next.pass_after = self.c1.val().snd_retx - self.e1.val().value;
        self.distances_2.d.next.pass_age =
            bit_cast::<16, 32>(self.env_1.q.val().now) - self.c1.val().pass_at;
        self.distances_2.d.next.vp_offset =
            bit_cast::<14, 16>(self.e1.val().vp - self.c1.val().vp_base);
        self.distances_2.d.next.to_sync = self.c1.val().sync_psn - self.c1.val().snd_nxt;
        self.distances_2.d.next.since_new =
            bit_cast::<16, 32>(self.env_1.q.val().now) - self.c1.val().last_new_at;
        self.sync_scale.a.next = bit_cast::<16, 8>(self.c1.val().alpha);
        self.sync_scale.b.next = bit_cast::<16, 8>(self.c1.val().delta);
        self.path_0.a.next = self.random_1.q.val().get_bits::<16>(16);
        self.path_0.b.next = self.c1.val().vp_count;
        self.path_1.a.next = self.random_1.q.val().get_bits::<16>(48);
        self.path_1.b.next = self.c1.val().vp_count;
        self.context_2.d.next = self.c1.val();
        self.event_2.d.next = self.event_1.q.val();
        self.env_2.d.next = self.env_1.q.val();
        self.random_2.d.next = self.random_1.q.val();
        self.valid_2.d.next = self.valid_1.q.val();

        comment!("T2: compare");
        self.c2.next = self.context_2.q.val();
        self.e2.next = self.event_2.q.val();
        self.d2.next = self.distances_2.q.val();
        self.findings_3.d.next.running = self.d2.val().running;
        // The kind of answer (IBA 9.7.5.2.1; MPAETH flags 2 and 3 make a NAK of an ACK).
        self.asks_nak.next = self.e2.val().flags.get_bit(2) | self.e2.val().flags.get_bit(3);
        self.answered.next = self.e2.val().code.get_bits::<3>(5) == self.kind_ack.val();
        self.refused.next = (self.e2.val().code == self.nak_invalid.val())
            | (self.e2.val().code == self.nak_access.val())
            | (self.e2.val().code == self.nak_operation.val());
        self.findings_3.d.next.positive = self.answered.val() & !self.asks_nak.val();
        self.findings_3.d.next.nak = (self.answered.val() & self.asks_nak.val())
            | (self.e2.val().code == self.nak_sequence.val());
        self.findings_3.d.next.rnr = self.e2.val().code.get_bits::<3>(5) == self.kind_rnr.val();
        self.findings_3.d.next.fatal = self.refused.val();
        self.findings_3.d.next.fatal_status = self.operation_error.val();
        if self.e2.val().code == self.nak_invalid.val() {
            self.findings_3.d.next.fatal_status = self.invalid_request.val();
        }
        if self.e2.val().code == self.nak_access.val() {
            self.findings_3.d.next.fatal_status = self.access_error.val();
        }
        self.reserved.next = !self.answered.val()
            & (self.e2.val().code.get_bits::<3>(5) != self.kind_rnr.val())
            & !self.refused.val()
            & (self.e2.val().code != self.nak_sequence.val());
        // What was never sent cannot be acknowledged.
        self.findings_3.d.next.bad = self.reserved.val()
            | (!self.d2.val().sack.get_bit(23) & (self.d2.val().sack >= self.d2.val().flight))
            | (!self.d2.val().aack.get_bit(23) & (self.d2.val().aack > self.d2.val().flight));
        self.findings_3.d.next.ghost = self.d2.val().sack.get_bit(23);
        self.findings_3.d.next.advance = !self.d2.val().aack.get_bit(23) & self.d2.val().aack.any();
        // Rule 4: more than delta behind snd_ooh, and not a retransmission.
        self.findings_3.d.next.slow = !self.e2.val().flags.get_bit(0)
            & !self.d2.val().lead.get_bit(23)
            & (self.d2.val().lead > bit_cast::<24, 8>(self.c2.val().delta));
        self.findings_3.d.next.sack_ahead = self.d2.val().lead.get_bit(23);
        self.findings_3.d.next.ooh_before_una = self.d2.val().ooh_before_una;
        self.findings_3.d.next.ooh_before_aack = self.d2.val().ooh_before_aack;
        self.findings_3.d.next.sack_before_una = self.d2.val().sack.get_bit(23);
        self.findings_3.d.next.sack_before_aack = self.d2.val().sack_before_aack;
        self.findings_3.d.next.retx_before_aack = self.d2.val().retx_before_aack;
        self.findings_3.d.next.aack = self.d2.val().aack.get_bits::<12>(0);
        self.findings_3.d.next.aack_far = self.d2.val().aack.get_bits::<12>(12).any();
        self.findings_3.d.next.flight = self.d2.val().flight;
        self.findings_3.d.next.flight_after = self.d2.val().flight_after;
        self.findings_3.d.next.flight_zero = !self.d2.val().flight.any();
        self.findings_3.d.next.flight_after_zero = !self.d2.val().flight_after.any();
        // Rule 1: a SACK that is no ghost inflates.
        self.findings_3.d.next.inflate = self.c2.val().inflate;
        if self.answered.val()
            & !self.asks_nak.val()
            & !self.d2.val().sack.get_bit(23)
            & (self.c2.val().inflate != self.inflate_max.val())
        {
            self.findings_3.d.next.inflate = self.c2.val().inflate + 1;
        }
        // Rule 3: a half packet is earned every cwnd/4 ACKs, cwnd in half packets.
        self.findings_3.d.next.marked = self.e2.val().flags.get_bit(1);
        self.findings_3.d.next.cwnd_capped = self.c2.val().cwnd >= self.d2.val().cwnd_limit;
        self.findings_3.d.next.grown = self.d2.val().earned >= self.c2.val().cwnd;
        self.findings_3.d.next.growth_left = self.d2.val().earned - self.c2.val().cwnd;
        // Start, and restart after three RTTs idle.
        self.findings_3.d.next.cwnd_over = self.c2.val().cwnd > self.d2.val().cwnd_limit;
        self.findings_3.d.next.cwnd_limit = self.d2.val().cwnd_limit;
        self.findings_3.d.next.initial_window = self.d2.val().initial_window;
        self.findings_3.d.next.first_cwnd = bit_cast::<13, 8>(self.d2.val().initial_window) << 1;
        if (bit_cast::<13, 8>(self.d2.val().initial_window) << 1) > self.d2.val().cwnd_limit {
            self.findings_3.d.next.first_cwnd = self.d2.val().cwnd_limit;
        }
        self.findings_3.d.next.restart = self.d2.val().idle
            & self.c2.val().srtt.any()
            & (self.d2.val().elapsed > bit_cast::<32, 21>(self.d2.val().idle_limit >> 3));
        self.findings_3.d.next.first_sample = !self.c2.val().srtt.any();
        self.findings_3.d.next.sample = self.d2.val().sample;
        self.findings_3.d.next.deviation =
            bit_cast::<17, 16>(self.d2.val().sample) - bit_cast::<17, 19>(self.c2.val().srtt >> 3);
        self.findings_3.d.next.srtt_decayed = self.d2.val().srtt_decayed;
        self.findings_3.d.next.rttvar_decayed = self.d2.val().rttvar_decayed;
        // Section 5: RTO in slow units, rounded up, not under the floor.
        self.rto_slow.next = bit_cast::<16, 19>(self.d2.val().rto >> 6);
        self.findings_3.d.next.rto = self.rto_slow.val() + 1;
        if self.c2.val().rto_floor > self.rto_slow.val() {
            self.findings_3.d.next.rto = self.c2.val().rto_floor;
        }
        self.findings_3.d.next.elapsed = bit_cast::<26, 32>(self.d2.val().elapsed >> 6);
        // RNR timer codes (IBA table 45) are a floating-point number of 10 us: one bit of mantissa after the leading one.
        self.rnr_mantissa.next = 2.into();
        if self.c2.val().rnr_timer.get_bit(0) {
            self.rnr_mantissa.next = 3.into();
        }
        self.rnr_exponent.next = self.c2.val().rnr_timer.get_bits::<4>(1) - 1;
        self.findings_3.d.next.rnr_steps = self.rnr_mantissa.val() << self.rnr_exponent.val();
        if self.c2.val().rnr_timer == 1 {
            self.findings_3.d.next.rnr_steps = 1.into();
        }
        self.findings_3.d.next.retries_spent = self.c2.val().retries >= self.c2.val().retry_cnt;
        self.findings_3.d.next.rnr_spent =
            bit_cast::<4, 3>(self.c2.val().rnr_retries) >= self.c2.val().rnr_retry;
        self.findings_3.d.next.rnr_none = !self.c2.val().rnr_retry.any();
        self.findings_3.d.next.rnr_endless = self.c2.val().rnr_retry == self.endless.val();
        self.findings_3.d.next.unsent = self.d2.val().unsent;
        // Rule 5: each packet may go to a random path instead.
        self.chance_0.next = self.random_2.q.val().get_bits::<16>(0);
        self.chance_1.next = self.random_2.q.val().get_bits::<16>(32);
        self.findings_3.d.next.probe_0 = (self.chance_0.val() < self.c2.val().probe)
            & self.c2.val().vp_count.get_bits::<15>(1).any();
        self.findings_3.d.next.probe_1 = (self.chance_1.val() < self.c2.val().probe)
            & self.c2.val().vp_count.get_bits::<15>(1).any();
        self.findings_3.d.next.resend_1 = self.d2.val().to_resend.any();
        self.findings_3.d.next.resend_2 = self.d2.val().to_resend.get_bits::<23>(1).any();
        self.findings_3.d.next.resend_3 = self.d2.val().to_resend.get_bits::<22>(2).any()
            | self.d2.val().to_resend.get_bits::<2>(0).all();
        self.findings_3.d.next.flight_2 = self.d2.val().flight.get_bits::<23>(1).any();
        self.findings_3.d.next.flight_3 = self.d2.val().flight.get_bits::<22>(2).any()
            | self.d2.val().flight.get_bits::<2>(0).all();
        // hole_repair: a map counts when it begins at snd_una. snd_ooh is then the SACK, if that is higher.
        self.findings_3.d.next.map_fresh = self.e2.val().flags.get_bit(4)
            & self.c2.val().hole_repair
            & !self.d2.val().aack.get_bit(23);
        self.findings_3.d.next.span = self.d2.val().span;
        self.findings_3.d.next.pass = self.d2.val().pass;
        if self.e2.val().ack {
            if !self.d2.val().aack.get_bit(23) & self.d2.val().aack.any() {
                self.findings_3.d.next.span = self.d2.val().span_after;
                self.findings_3.d.next.pass = self.d2.val().pass_after;
                if self.d2.val().retx_before_aack {
                    self.findings_3.d.next.pass = 0.into();
                }
                if self.answered.val() & !self.asks_nak.val() & self.d2.val().lead.get_bit(23) {
                    self.findings_3.d.next.span = self.d2.val().sack_after;
                }
            } else if self.answered.val() & !self.asks_nak.val() & self.d2.val().lead.get_bit(23) {
                self.findings_3.d.next.span = self.d2.val().sack;
            }
        }
        self.findings_3.d.next.pass_old = bit_cast::<17, 16>(self.d2.val().pass_age)
            >= bit_cast::<17, 21>(self.d2.val().idle_limit >> 4);
        self.findings_3.d.next.vp_offset = self.d2.val().vp_offset;
        // Section 6: where the boundary is.
        self.findings_3.d.next.sync_wait =
            self.c2.val().sync_wait | (self.e2.val().work & self.e2.val().sync);
        self.findings_3.d.next.sync_0 = !self.d2.val().to_sync.any();
        self.findings_3.d.next.sync_1 = self.d2.val().to_sync == 1;
        if self.e2.val().work & self.e2.val().sync {
            self.findings_3.d.next.sync_0 = !self.d2.val().unsent.any();
            self.findings_3.d.next.sync_1 = self.d2.val().unsent == 1;
        }
        self.findings_3.d.next.since_new = self.d2.val().since_new;
        self.context_3.d.next = self.context_2.q.val();
        self.event_3.d.next = self.event_2.q.val();
        self.env_3.d.next = self.env_2.q.val();
        self.valid_3.d.next = self.valid_2.q.val();

        comment!("T3: rules 1 to 4, recovery, RNR, work, commands");
        self.c3.next = self.context_3.q.val();
        self.e3.next = self.event_3.q.val();
        self.f3.next = self.findings_3.q.val();
        self.accepted.next = self.e3.val().ack & self.f3.val().running & !self.f3.val().bad;
        self.positive.next = self.accepted.val() & self.f3.val().positive;
        self.advance.next = self.accepted.val() & self.f3.val().advance;
        self.no_flight.next = self.f3.val().flight_zero;
        if self.advance.val() {
            self.no_flight.next = self.f3.val().flight_after_zero;
        }
        // Rule 2: is a hole left? The sign of the new snd_ooh - the new snd_una.
        self.no_hole.next = self.f3.val().ooh_before_una;
        if self.positive.val() & self.f3.val().sack_ahead {
            self.no_hole.next = self.f3.val().sack_before_una;
            if self.advance.val() {
                self.no_hole.next = self.f3.val().sack_before_aack;
            }
        } else if self.advance.val() {
            self.no_hole.next = self.f3.val().ooh_before_aack;
        }
        self.deflated.next = self.f3.val().inflate;
        if self.f3.val().advance {
            self.deflated.next = self.f3.val().inflate - self.f3.val().aack;
            if self.f3.val().aack_far | (self.f3.val().inflate < self.f3.val().aack) {
                self.deflated.next = 0.into();
            }
        }
        self.growth_kept.next = self.f3.val().growth_left;
        if self.f3.val().growth_left > self.growth_max.val() {
            self.growth_kept.next = self.growth_max.val();
        }
        // Section 5: in recovery no new packet leaves, so `recovery` is snd_nxt and snd_una reaches it when nothing is in
        // flight.
        self.enter.next = self.accepted.val()
            & self.f3.val().nak
            & !self.f3.val().ghost
            & !self.c3.val().recovering;
        self.recovering.next = (self.c3.val().recovering | self.enter.val())
            & !(self.accepted.val() & self.no_flight.val());
        self.rnr_wait.next = self.c3.val().rnr_wait & !(self.accepted.val() & self.no_flight.val());
        self.rnr_new.next =
            self.accepted.val() & self.f3.val().rnr & !self.f3.val().ghost & !self.rnr_wait.val();
        self.rnr_over.next = self.f3.val().rnr_spent;
        if self.advance.val() {
            self.rnr_over.next = self.f3.val().rnr_none;
        }
        self.rnr_over.next = self.rnr_new.val() & self.rnr_over.val() & !self.f3.val().rnr_endless;

        // hole_repair: what is more than delta behind snd_ooh is lost; in recovery everything in flight may be.
        self.hole_limit.next = self.f3.val().span - bit_cast::<24, 8>(self.c3.val().delta);
        self.far.next = !self.f3.val().span.get_bit(23)
            & (self.f3.val().span > bit_cast::<24, 8>(self.c3.val().delta));
        self.intent_4.d.next.capped = self.far.val() & self.c3.val().hole_repair;
        self.intent_4.d.next.map_fresh = self.f3.val().map_fresh;
        self.intent_4.d.next.looks = self.accepted.val()
            & self.f3.val().map_fresh
            & (self.recovering.val() | (self.f3.val().positive & self.far.val()));
        if self.recovering.val() {
            self.hole_limit.next = self.f3.val().flight;
            if self.f3.val().advance {
                self.hole_limit.next = self.f3.val().flight_after;
            }
        }
        self.intent_4.d.next.last = bit_cast::<7, 24>(self.hole_limit.val() - 1);
        if self.hole_limit.val() >= self.slots.val() {
            self.intent_4.d.next.last = self.last_slot.val();
        }
        self.pass_from.next = self.f3.val().pass;
        if self.f3.val().pass_old | self.enter.val() {
            self.pass_from.next = 0.into();
        }
        self.intent_4.d.next.from = bit_cast::<7, 24>(self.pass_from.val());
        self.intent_4.d.next.none =
            self.pass_from.val().get_bits::<17>(7).any() | !self.hole_limit.val().any();
        self.intent_4.d.next.pass_old = self.f3.val().pass_old;
        self.intent_4.d.next.sync_wait = self.f3.val().sync_wait;
        self.intent_4.d.next.sync_0 = self.f3.val().sync_0;
        self.intent_4.d.next.sync_1 = self.f3.val().sync_1;
        self.sync_need.a.next = self.sync_scale.product.val().get_bits::<16>(0);
        self.sync_need.b.next = bit_cast::<16, 19>(self.c3.val().srtt >> 3);
        self.sync_waited.a.next = self.f3.val().since_new;
        self.sync_waited.b.next = bit_cast::<16, 13>(self.c3.val().cwnd);

        self.rto_base.next = bit_cast::<22, 16>(self.f3.val().rto);
        // 5/2 slow units of 4.096 us for 10 us, rounded up.
        self.rnr_long.next = bit_cast::<18, 17>(self.f3.val().rnr_steps);
        self.deviation.next = self.f3.val().deviation;
        if self.f3.val().deviation.get_bit(16) {
            self.deviation.next = self.zero_17.val() - self.f3.val().deviation;
        }

        self.intent_4.d.next.counts.ecn_echo = self.positive.val() & self.f3.val().marked;
        self.intent_4.d.next.counts.prune = false;
        self.intent_4.d.next.counts.window_nak =
            self.accepted.val() & self.f3.val().nak & self.e3.val().flags.get_bit(2);
        self.intent_4.d.next.counts.sync_nak =
            self.accepted.val() & self.f3.val().nak & self.e3.val().flags.get_bit(3);
        self.intent_4.d.next.counts.ghost = self.accepted.val() & self.f3.val().ghost;
        self.intent_4.d.next.counts.bad_ack =
            self.e3.val().ack & self.f3.val().running & self.f3.val().bad;
        self.intent_4.d.next.counts.timeout = false;
        self.intent_4.d.next.counts.recovery = self.enter.val();
        self.intent_4.d.next.counts.probes = 0.into();
        self.intent_4.d.next.advance = self.advance.val();
        self.intent_4.d.next.fail = false;
        self.intent_4.d.next.status = self.e3.val().code;
        self.intent_4.d.next.flight = self.f3.val().flight;
        self.intent_4.d.next.flight_zero = self.no_flight.val();
        self.intent_4.d.next.unsent = self.f3.val().unsent;
        self.intent_4.d.next.accepted = self.accepted.val();
        self.intent_4.d.next.positive = self.positive.val();
        self.intent_4.d.next.slow = self.positive.val() & self.f3.val().slow;
        self.intent_4.d.next.own_clock = self.f3.val().running
            & !self.c3.val().recovering
            & !self.c3.val().rnr_wait
            & (self.e3.val().burst | (self.e3.val().work & !self.c3.val().burst_armed));
        self.intent_4.d.next.resend_clock = self.f3.val().running
            & self.e3.val().burst
            & self.c3.val().recovering
            & !self.c3.val().rnr_wait;
        self.intent_4.d.next.resend_open = self.enter.val()
            | (self.advance.val() & self.f3.val().retx_before_aack)
            | self.f3.val().resend_1;
        self.intent_4.d.next.resend_1 = self.f3.val().resend_1;
        self.intent_4.d.next.resend_2 = self.f3.val().resend_2;
        self.intent_4.d.next.resend_3 = self.f3.val().resend_3;
        self.intent_4.d.next.flight_2 = self.f3.val().flight_2;
        self.intent_4.d.next.flight_3 = self.f3.val().flight_3;
        self.intent_4.d.next.timer =
            self.e3.val().timeout & self.f3.val().running & !self.f3.val().flight_zero;
        self.intent_4.d.next.waited_rnr = self.c3.val().rnr_wait;
        self.intent_4.d.next.retries_spent = self.f3.val().retries_spent;
        self.intent_4.d.next.was_recovering = self.c3.val().recovering;
        self.intent_4.d.next.rto = self.rto_base.val() << self.c3.val().backoff;
        self.intent_4.d.next.rnr_time =
            (self.rnr_long.val() << 1) + bit_cast::<18, 17>((self.f3.val().rnr_steps + 1) >> 1);
        self.intent_4.d.next.elapsed = self.f3.val().elapsed;
        self.intent_4.d.next.first_sample = self.f3.val().first_sample;
        self.intent_4.d.next.sample = self.f3.val().sample;
        self.intent_4.d.next.deviation = bit_cast::<16, 17>(self.deviation.val());
        self.intent_4.d.next.rttvar_decayed = self.f3.val().rttvar_decayed;
        self.intent_4.d.next.random_0 =
            self.path_0.product.val().get_bits::<16>(16) + self.c3.val().vp_base;
        self.intent_4.d.next.random_1 =
            self.path_1.product.val().get_bits::<16>(16) + self.c3.val().vp_base;
        self.intent_4.d.next.probe_0 = self.f3.val().probe_0;
        self.intent_4.d.next.probe_1 = self.f3.val().probe_1;

        self.context_4.d.next = self.c3.val();
        // A wheel entry fires once.
        if self.e3.val().burst {
            self.context_4.d.next.burst_armed = false;
        }
        if self.e3.val().timeout {
            self.context_4.d.next.rto_armed = false;
        }
        if self.accepted.val() {
            self.context_4.d.next.last_vp = self.e3.val().vp;
            // RTT (RFC 6298 section 2); the deviation follows in T4.
            self.context_4.d.next.srtt =
                self.f3.val().srtt_decayed + bit_cast::<19, 16>(self.f3.val().sample);
            if self.f3.val().first_sample {
                self.context_4.d.next.srtt = bit_cast::<19, 16>(self.f3.val().sample) << 3;
            }
            // Rules 1 and 2.
            self.context_4.d.next.inflate = self.deflated.val();
            if self.no_hole.val() {
                self.context_4.d.next.inflate = 0.into();
            }
            if self.positive.val() & self.f3.val().sack_ahead {
                self.context_4.d.next.snd_ooh = self.e3.val().sack;
            }
            if self.f3.val().advance {
                self.context_4.d.next.snd_una = self.e3.val().value;
                self.intent_4.d.next.flight = self.f3.val().flight_after;
                if self.f3.val().retx_before_aack {
                    self.context_4.d.next.snd_retx = self.e3.val().value;
                }
                self.context_4.d.next.retries = 0.into();
                self.context_4.d.next.backoff = 0.into();
                self.context_4.d.next.rnr_retries = 0.into();
                self.context_4.d.next.progress_at = self.env_3.q.val().now;
            }
            // Rule 3.
            if self.f3.val().positive {
                if self.f3.val().marked {
                    self.context_4.d.next.cwnd = self.c3.val().cwnd - 1;
                    if self.c3.val().cwnd < self.cwnd_min_1.val() {
                        self.context_4.d.next.cwnd = self.cwnd_min.val();
                    }
                } else if !self.env_3.q.val().backlog
                    & !self.f3.val().cwnd_capped
                    & !(self.far.val() & self.c3.val().hole_repair)
                {
                    if self.f3.val().grown {
                        self.context_4.d.next.cwnd = self.c3.val().cwnd + 1;
                        self.context_4.d.next.growth = self.growth_kept.val();
                    } else {
                        self.context_4.d.next.growth = self.c3.val().growth + 4;
                    }
                }
            }
            // vp_recycle: a path that is neither slow nor marked.
            if self.f3.val().positive & !self.f3.val().slow & !self.f3.val().marked {
                self.context_4.d.next.ring =
                    (self.c3.val().ring << 14) | bit_cast::<224, 14>(self.f3.val().vp_offset);
                if self.c3.val().ring_count != self.ring_full.val() {
                    self.context_4.d.next.ring_count = self.c3.val().ring_count + 1;
                }
            }
            // Section 5.
            self.context_4.d.next.recovering = self.recovering.val();
            if self.enter.val() {
                self.context_4.d.next.pass_at = bit_cast::<16, 32>(self.env_3.q.val().now);
                self.context_4.d.next.recovery = self.c3.val().snd_nxt;
                self.context_4.d.next.snd_retx = self.c3.val().snd_una;
                if self.f3.val().advance {
                    self.context_4.d.next.snd_retx = self.e3.val().value;
                }
            }
            if (self.c3.val().recovering | self.enter.val()) & self.no_flight.val() {
                self.context_4.d.next.rto_left = 0.into();
            }
            // RNR NAK: wait.
            self.context_4.d.next.rnr_wait = self.rnr_wait.val();
            if self.rnr_new.val() & !self.rnr_over.val() {
                self.context_4.d.next.rnr_wait = true;
                self.context_4.d.next.rnr_timer = self.e3.val().code.get_bits::<5>(0);
                self.context_4.d.next.progress_at = self.env_3.q.val().now;
                if self.f3.val().advance {
                    self.context_4.d.next.rnr_retries = 1.into();
                } else if self.c3.val().rnr_retries != self.rnr_forever.val() {
                    self.context_4.d.next.rnr_retries = self.c3.val().rnr_retries + 1;
                }
            }
            if self.rnr_over.val() {
                self.intent_4.d.next.fail = true;
                self.intent_4.d.next.status = self.rnr_exceeded.val();
            }
            if self.f3.val().fatal & !self.f3.val().ghost {
                self.intent_4.d.next.fail = true;
                self.intent_4.d.next.status = self.f3.val().fatal_status;
            }
        }
        if self.e3.val().work & self.f3.val().running {
            self.context_4.d.next.snd_lim = self.c3.val().snd_lim + self.e3.val().value;
            self.intent_4.d.next.unsent = self.f3.val().unsent + self.e3.val().value;
            if self.e3.val().sync {
                self.context_4.d.next.sync_wait = true;
                self.context_4.d.next.sync_psn = self.c3.val().snd_lim;
            }
            if self.f3.val().restart {
                self.context_4.d.next.cwnd = self.f3.val().first_cwnd;
                self.context_4.d.next.growth = 0.into();
                self.context_4.d.next.inflate = 0.into();
                self.context_4.d.next.start = self.c3.val().initial_window;
                self.context_4.d.next.ring_count = 0.into();
            }
        }
        if self.e3.val().error
            & (self.c3.val().state != self.state_reset.val())
            & (self.c3.val().state != self.state_error.val())
        {
            self.intent_4.d.next.fail = true;
        }
        if self.e3.val().command {
            if self.k3.val().takes_multipath {
                self.context_4.d.next.burst_interval = self.a3.val().burst_interval;
                self.context_4.d.next.delta = self.a3.val().delta;
                self.context_4.d.next.vp_base = self.a3.val().vp_base;
                self.context_4.d.next.vp_count = self.a3.val().vp_count;
                self.context_4.d.next.probe = self.a3.val().probe;
                self.context_4.d.next.initial_window = self.a3.val().initial_window;
                self.context_4.d.next.cwnd_max = self.a3.val().cwnd_max;
                self.context_4.d.next.last_vp = self.a3.val().vp_base;
                self.context_4.d.next.alpha = self.a3.val().alpha;
                self.context_4.d.next.hole_repair = self.a3.val().hole_repair;
                self.context_4.d.next.vp_recycle = self.a3.val().vp_recycle;
                self.context_4.d.next.ring_count = 0.into();
                if self.f3.val().cwnd_over {
                    self.context_4.d.next.cwnd = self.f3.val().cwnd_limit;
                }
            }
            if self.k3.val().takes_sender {
                self.context_4.d.next.rto_floor = self.a3.val().rto_floor;
                self.context_4.d.next.retry_cnt = self.a3.val().retry_cnt;
                self.context_4.d.next.rnr_retry = self.a3.val().rnr_retry;
                self.context_4.d.next.recovering = false;
                self.context_4.d.next.rnr_wait = false;
                self.context_4.d.next.snd_una = self.a3.val().sq_psn;
                self.context_4.d.next.snd_nxt = self.a3.val().sq_psn;
                self.context_4.d.next.snd_lim = self.a3.val().sq_psn;
                self.context_4.d.next.recovery = self.a3.val().sq_psn;
                self.context_4.d.next.snd_retx = self.a3.val().sq_psn;
                self.context_4.d.next.snd_ooh = self.a3.val().sq_psn - 1;
                self.context_4.d.next.srtt = 0.into();
                self.context_4.d.next.rttvar = 0.into();
                self.context_4.d.next.retries = 0.into();
                self.context_4.d.next.backoff = 0.into();
                self.context_4.d.next.rnr_retries = 0.into();
                self.context_4.d.next.rnr_timer = 0.into();
                self.context_4.d.next.rto_left = 0.into();
                self.context_4.d.next.progress_at = self.env_3.q.val().now;
                self.context_4.d.next.ring_count = 0.into();
                self.context_4.d.next.pass_at = bit_cast::<16, 32>(self.env_3.q.val().now);
                self.context_4.d.next.sync_wait = false;
                self.context_4.d.next.last_new_at = bit_cast::<16, 32>(self.env_3.q.val().now);
                self.context_4.d.next.cwnd = self.f3.val().first_cwnd;
                self.context_4.d.next.growth = 0.into();
                self.context_4.d.next.inflate = 0.into();
                self.context_4.d.next.start = self.f3.val().initial_window;
                self.intent_4.d.next.flight = 0.into();
                self.intent_4.d.next.flight_zero = true;
                self.intent_4.d.next.unsent = 0.into();
            }
            if self.k3.val().takes_state {
                self.context_4.d.next.state = self.a3.val().state;
                if !self.k3.val().create
                    & (self.a3.val().state == self.state_error.val())
                    & (self.c3.val().state != self.state_error.val())
                {
                    self.intent_4.d.next.fail = true;
                    self.intent_4.d.next.status = self.flushed.val();
                }
            }
            if self.k3.val().destroy {
                self.context_4.d.next = self.no_context.val();
                self.context_4.d.next.burst_armed = self.c3.val().burst_armed;
                self.context_4.d.next.rto_armed = self.c3.val().rto_armed;
            }
        }
        self.event_4.d.next = self.event_3.q.val();
        self.env_4.d.next = self.env_3.q.val();
        self.valid_4.d.next = self.valid_3.q.val();

        comment!("T4: add; look at the clock");
        self.c4.next = self.context_4.q.val();
        self.i4.next = self.intent_4.q.val();
        // What waits on the card delays the answer.
        self.limit.next = self.i4.val().rto + bit_cast::<22, 8>(self.env_4.q.val().waiting_slow);
        if self.i4.val().waited_rnr {
            self.limit.next = bit_cast::<22, 18>(self.i4.val().rnr_time);
        }
        self.may_go.next = self.i4.val().accepted & !self.i4.val().fail & !self.c4.val().rnr_wait;
        self.looks.next = self.may_go.val() & self.i4.val().looks;
        self.below.next = (self.two_128.val() << self.i4.val().last) - self.one_128.val();
        self.beyond.next = !((self.one_128.val() << self.i4.val().from) - self.one_128.val());
        self.room_5.d.next.holes = self.zero_128.val();
        if self.looks.val() & !self.i4.val().none {
            self.room_5.d.next.holes =
                !self.event_4.q.val().map & self.below.val() & self.beyond.val();
        }
        self.room_5.d.next.slow = self.i4.val().slow;
        self.room_5.d.next.capped = self.i4.val().capped;
        self.room_5.d.next.sync_wait = self.i4.val().sync_wait;
        self.room_5.d.next.sync_0 = self.i4.val().sync_0;
        self.room_5.d.next.sync_1 = self.i4.val().sync_1;
        self.resend_from.next = self.c4.val().snd_retx;
        if self.event_4.q.val().timeout {
            self.resend_from.next = self.c4.val().snd_una;
        }
        self.room_5.d.next.counts = self.i4.val().counts;
        self.room_5.d.next.counts.prune =
            self.may_go.val() & !self.c4.val().recovering & self.i4.val().slow;
        self.room_5.d.next.advance = self.i4.val().advance;
        self.room_5.d.next.fail = self.i4.val().fail;
        self.room_5.d.next.status = self.i4.val().status;
        self.room_5.d.next.flight = self.i4.val().flight;
        self.room_5.d.next.flight_plus_1 = self.i4.val().flight + 1;
        self.room_5.d.next.flight_plus_2 = self.i4.val().flight + 2;
        self.room_5.d.next.flight_zero = self.i4.val().flight_zero;
        // Rule 5: what may be in flight; `vp_recycle` rounds a half packet to even.
        self.to_even.next = 0.into();
        if self.c4.val().vp_recycle & self.c4.val().cwnd.get_bit(1) {
            self.to_even.next = 1.into();
        }
        self.window.next = self.c4.val().cwnd + self.to_even.val();
        self.room_5.d.next.allowed =
            bit_cast::<24, 13>(self.window.val() >> 1) + bit_cast::<24, 12>(self.c4.val().inflate);
        self.room_5.d.next.unsent_1 = self.i4.val().unsent.any();
        self.room_5.d.next.unsent_2 = self.i4.val().unsent.get_bits::<23>(1).any();
        self.room_5.d.next.unsent_3 = self.i4.val().unsent.get_bits::<22>(2).any()
            | self.i4.val().unsent.get_bits::<2>(0).all();
        self.room_5.d.next.by_ack = self.i4.val().accepted;
        self.room_5.d.next.send_new = self.i4.val().own_clock
            | (self.may_go.val()
                & self.i4.val().positive
                & !self.c4.val().recovering
                & !self.i4.val().slow);
        self.room_5.d.next.prune =
            self.may_go.val() & !self.c4.val().recovering & self.i4.val().slow;
        self.room_5.d.next.resend_acked = self.may_go.val()
            & self.c4.val().recovering
            & self.i4.val().resend_open
            & !self.i4.val().map_fresh;
        self.room_5.d.next.resend_clock = self.i4.val().resend_clock;
        self.room_5.d.next.resend_1 = self.i4.val().resend_1;
        self.room_5.d.next.resend_2 = self.i4.val().resend_2;
        self.room_5.d.next.resend_3 = self.i4.val().resend_3;
        self.room_5.d.next.flight_2 = self.i4.val().flight_2;
        self.room_5.d.next.flight_3 = self.i4.val().flight_3;
        self.room_5.d.next.timer = self.i4.val().timer;
        self.room_5.d.next.expired = self.i4.val().elapsed >= bit_cast::<26, 22>(self.limit.val());
        self.room_5.d.next.remaining = bit_cast::<26, 22>(self.limit.val()) - self.i4.val().elapsed;
        self.room_5.d.next.limit = self.limit.val();
        self.room_5.d.next.rto = self.i4.val().rto;
        self.room_5.d.next.waited_rnr = self.i4.val().waited_rnr;
        self.room_5.d.next.retries_spent = self.i4.val().retries_spent;
        self.room_5.d.next.was_recovering = self.i4.val().was_recovering;
        self.room_5.d.next.resend_psn = self.resend_from.val();
        self.room_5.d.next.cwnd_half = self.c4.val().cwnd >> 1;
        if self.c4.val().cwnd < self.cwnd_min_2.val() {
            self.room_5.d.next.cwnd_half = self.cwnd_min.val();
        }
        self.room_5.d.next.start_1 = self.c4.val().start.any();
        self.room_5.d.next.start_2 = self.c4.val().start.get_bits::<7>(1).any();
        self.room_5.d.next.start_3 =
            self.c4.val().start.get_bits::<6>(2).any() | self.c4.val().start.get_bits::<2>(0).all();
        self.room_5.d.next.random_0 = self.i4.val().random_0;
        self.room_5.d.next.random_1 = self.i4.val().random_1;
        self.room_5.d.next.probe_0 = self.i4.val().probe_0;
        self.room_5.d.next.probe_1 = self.i4.val().probe_1;
        self.context_5.d.next = self.c4.val();
        if self.i4.val().accepted {
            self.context_5.d.next.rttvar =
                self.i4.val().rttvar_decayed + bit_cast::<18, 16>(self.i4.val().deviation);
            if self.i4.val().first_sample {
                self.context_5.d.next.rttvar = bit_cast::<18, 16>(self.i4.val().sample) << 1;
            }
        }
        // hole_repair: a new pass.
        if self.looks.val() & self.i4.val().pass_old {
            self.context_5.d.next.snd_retx = self.c4.val().snd_una;
            self.context_5.d.next.pass_at = bit_cast::<16, 32>(self.env_4.q.val().now);
        }
        self.event_5.d.next = self.event_4.q.val();
        self.env_5.d.next = self.env_4.q.val();
        self.valid_5.d.next = self.valid_4.q.val();

        comment!("T5: compare flight with the window; timeout");
        self.c5.next = self.context_5.q.val();
        self.r5.next = self.room_5.q.val();
        self.fired.next = self.r5.val().timer
            & self.r5.val().expired
            & (self.r5.val().waited_rnr | !self.r5.val().retries_spent);
        self.gave_up.next = self.r5.val().timer
            & self.r5.val().expired
            & !self.r5.val().waited_rnr
            & self.r5.val().retries_spent;
        self.arm_rto.next = bit_cast::<26, 22>(self.r5.val().rto);
        if self.r5.val().timer {
            self.arm_rto.next = self.r5.val().remaining;
            if self.r5.val().expired {
                self.arm_rto.next = bit_cast::<26, 22>(self.r5.val().limit);
            }
        }
        self.context_6.d.next = self.c5.val();
        self.verdict_6.d.next.counts = self.r5.val().counts;
        self.verdict_6.d.next.advance = self.r5.val().advance;
        self.verdict_6.d.next.fail = self.r5.val().fail;
        self.verdict_6.d.next.status = self.r5.val().status;
        self.verdict_6.d.next.flight_zero = self.r5.val().flight_zero;
        self.verdict_6.d.next.window_1 = self.r5.val().flight < self.r5.val().allowed;
        self.verdict_6.d.next.window_2 = self.r5.val().flight_plus_1 < self.r5.val().allowed;
        self.verdict_6.d.next.room_1 = (self.r5.val().flight < self.r5.val().allowed)
            & (!self.r5.val().capped | (self.r5.val().flight < self.open_slots.val()));
        self.verdict_6.d.next.room_2 = (self.r5.val().flight_plus_1 < self.r5.val().allowed)
            & (!self.r5.val().capped | (self.r5.val().flight_plus_1 < self.open_slots.val()));
        self.verdict_6.d.next.room_3 = (self.r5.val().flight_plus_2 < self.r5.val().allowed)
            & (!self.r5.val().capped | (self.r5.val().flight_plus_2 < self.open_slots.val()));
        // hole_repair: the first lost packet and the others.
        self.first_hole.next = self.r5.val().holes & (!self.r5.val().holes + self.one_128.val());
        self.verdict_6.d.next.first_hole = self.first_hole.val();
        self.verdict_6.d.next.other_holes = self.r5.val().holes ^ self.first_hole.val();
        self.verdict_6.d.next.hole_1 = self.r5.val().holes.any();
        self.verdict_6.d.next.hole_2 = (self.r5.val().holes ^ self.first_hole.val()).any();
        self.verdict_6.d.next.slow = self.r5.val().slow;
        // vp_recycle: the two oldest paths of the ring, when it is full.
        self.ring_ready.next =
            self.c5.val().vp_recycle & (self.c5.val().ring_count == self.ring_full.val());
        self.verdict_6.d.next.recycled_0 = self.r5.val().random_0;
        self.verdict_6.d.next.recycled_1 = self.r5.val().random_1;
        if self.ring_ready.val() {
            self.verdict_6.d.next.recycled_0 =
                self.c5.val().vp_base + bit_cast::<16, 14>(self.c5.val().ring.get_bits::<14>(210));
            self.verdict_6.d.next.recycled_1 =
                self.c5.val().vp_base + bit_cast::<16, 14>(self.c5.val().ring.get_bits::<14>(196));
        }
        // Section 6: alpha * delta * RTT / cwnd since the last new packet, multiplied out.
        self.sync_due.next = (self.sync_waited.product.val() << 3) >= self.sync_need.product.val();
        self.verdict_6.d.next.sync_held = self.r5.val().sync_wait
            & self.r5.val().sync_0
            & !self.r5.val().flight_zero
            & !self.sync_due.val();
        self.verdict_6.d.next.sync_first = self.r5.val().sync_wait & self.r5.val().sync_0;
        self.verdict_6.d.next.sync_second = self.r5.val().sync_wait & self.r5.val().sync_1;
        self.verdict_6.d.next.unsent_1 = self.r5.val().unsent_1;
        self.verdict_6.d.next.unsent_2 = self.r5.val().unsent_2;
        self.verdict_6.d.next.unsent_3 = self.r5.val().unsent_3;
        self.verdict_6.d.next.by_ack = self.r5.val().by_ack;
        self.verdict_6.d.next.send_new = self.r5.val().send_new;
        self.verdict_6.d.next.resend_acked = self.r5.val().resend_acked;
        self.verdict_6.d.next.resend_unclocked =
            (self.r5.val().resend_clock & self.r5.val().resend_1) | self.fired.val();
        self.verdict_6.d.next.resend_2 = self.r5.val().resend_2;
        self.verdict_6.d.next.resend_3 = self.r5.val().resend_3;
        self.verdict_6.d.next.timer = self.r5.val().timer;
        self.verdict_6.d.next.arm_rto = bit_cast::<8, 26>(self.arm_rto.val());
        if self.arm_rto.val() > self.wheel_max.val() {
            self.verdict_6.d.next.arm_rto = bit_cast::<8, 26>(self.wheel_max.val());
        }
        self.verdict_6.d.next.cwnd_less = self.c5.val().cwnd - 2;
        if self.c5.val().cwnd < self.cwnd_min_2.val() {
            self.verdict_6.d.next.cwnd_less = self.cwnd_min.val();
        }
        self.verdict_6.d.next.nxt_1 = self.c5.val().snd_nxt + 1;
        self.verdict_6.d.next.nxt_2 = self.c5.val().snd_nxt + 2;
        self.verdict_6.d.next.resend_psn = self.r5.val().resend_psn;
        self.verdict_6.d.next.resend_psn_1 = self.r5.val().resend_psn + 1;
        self.verdict_6.d.next.resend_psn_2 = self.r5.val().resend_psn + 2;
        self.verdict_6.d.next.start_1 = self.r5.val().start_1;
        self.verdict_6.d.next.start_2 = self.r5.val().start_2;
        self.verdict_6.d.next.start_3 = self.r5.val().start_3;
        self.verdict_6.d.next.start_less_1 = 0.into();
        if self.r5.val().start_1 {
            self.verdict_6.d.next.start_less_1 = self.c5.val().start - 1;
        }
        self.verdict_6.d.next.start_less_2 = 0.into();
        if self.r5.val().start_2 {
            self.verdict_6.d.next.start_less_2 = self.c5.val().start - 2;
        }
        self.verdict_6.d.next.random_0 = self.r5.val().random_0;
        self.verdict_6.d.next.random_1 = self.r5.val().random_1;
        self.verdict_6.d.next.probe_0 = self.r5.val().probe_0;
        self.verdict_6.d.next.probe_1 = self.r5.val().probe_1;
        // Rule 4.
        if self.r5.val().prune {
            self.context_6.d.next.cwnd = self.c5.val().cwnd - 2;
            if self.c5.val().cwnd < self.cwnd_min_2.val() {
                self.context_6.d.next.cwnd = self.cwnd_min.val();
            }
        }
        // Section 5: a timeout halves the window; the end of an RNR wait does not. Both resend from snd_una.
        if self.fired.val() {
            self.verdict_6.d.next.resend_2 = self.r5.val().flight_2;
            self.verdict_6.d.next.resend_3 = self.r5.val().flight_3;
            self.verdict_6.d.next.counts.recovery = !self.r5.val().was_recovering;
            self.context_6.d.next.recovering = true;
            self.context_6.d.next.recovery = self.c5.val().snd_nxt;
            self.context_6.d.next.snd_retx = self.r5.val().resend_psn;
            self.context_6.d.next.pass_at = bit_cast::<16, 32>(self.env_5.q.val().now);
            self.context_6.d.next.progress_at = self.env_5.q.val().now;
            self.context_6.d.next.rto_left = bit_cast::<12, 13>(self.c5.val().cwnd >> 1);
            self.context_6.d.next.rnr_wait = false;
            if !self.r5.val().waited_rnr {
                self.verdict_6.d.next.counts.timeout = true;
                self.context_6.d.next.cwnd = self.r5.val().cwnd_half;
                self.context_6.d.next.rto_left = bit_cast::<12, 13>(self.r5.val().cwnd_half >> 1);
                self.context_6.d.next.retries = self.c5.val().retries + 1;
                if self.c5.val().backoff < self.backoff_max.val() {
                    self.context_6.d.next.backoff = self.c5.val().backoff + 1;
                }
            }
        }
        if self.gave_up.val() {
            self.verdict_6.d.next.fail = true;
            self.verdict_6.d.next.status = self.retry_exceeded.val();
        }
        self.event_6.d.next = self.event_5.q.val();
        self.env_6.d.next = self.env_5.q.val();
        self.valid_6.d.next = self.valid_5.q.val();

        comment!("T6: choose");
        self.c6.next = self.context_6.q.val();
        self.v6.next = self.verdict_6.q.val();
        self.e6.next = self.event_6.q.val();
        self.full_6.next = self.env_6.q.val().full;
        self.held_6.next = self.env_6.q.val().full | self.env_6.q.val().crowded;
        self.marker.next = self.e6.val().command & self.k6.val().destroy;
        // Rule 5: new packets.
        self.open_new.next = self.v6.val().send_new & !self.v6.val().hole_1;
        self.wants_new.next = self.open_new.val() & self.v6.val().room_1 & self.v6.val().unsent_1;
        self.fresh.next = self.wants_new.val() & !self.held_6.val() & !self.v6.val().sync_held;
        // Section 6: no further than the first packet of a synchronised message in one event.
        self.sync_stop.next = self.fresh.val()
            & self.v6.val().room_2
            & self.v6.val().unsent_2
            & self.v6.val().sync_second;
        self.two_new.next = self.fresh.val()
            & self.v6.val().room_2
            & self.v6.val().unsent_2
            & !self.v6.val().sync_second;
        self.more_new.next = self.sync_stop.val()
            | (self.fresh.val() & self.v6.val().room_3 & self.v6.val().unsent_3);
        // hole_repair: up to two lost packets; new ones wait, but for one beside a single repair.
        self.fixes.next = self.v6.val().hole_1 & !self.full_6.val();
        self.two_fixes.next = self.fixes.val() & self.v6.val().hole_2;
        // The grant that one repair leaves is a new packet's, unless a synchronised message would begin with it.
        self.beside.next = self.fixes.val()
            & !self.v6.val().hole_2
            & self.v6.val().send_new
            & self.v6.val().room_1
            & self.v6.val().unsent_1
            & !self.held_6.val()
            & !self.v6.val().sync_first;
        self.encode_0.onehot.next = self.v6.val().first_hole;
        self.hole_0.next = self.c6.val().snd_una + bit_cast::<24, 7>(self.encode_0.index.val());
        // Section 5: one retransmission per ACK, two per firing of the burst timer after a timeout.
        self.acked.next = self.v6.val().resend_acked & !self.full_6.val();
        self.left_1.next = self.c6.val().rto_left.any();
        self.left_2.next = self.c6.val().rto_left.get_bits::<11>(1).any();
        self.left_3.next = self.c6.val().rto_left.get_bits::<10>(2).any()
            | self.c6.val().rto_left.get_bits::<2>(0).all();
        self.unclocked.next =
            self.v6.val().resend_unclocked & self.left_1.val() & !self.full_6.val();
        self.two_unclocked.next = self.unclocked.val() & self.v6.val().resend_2 & self.left_2.val();
        self.more_unclocked.next =
            self.unclocked.val() & self.v6.val().resend_3 & self.left_3.val();
        self.resends.next = self.acked.val() | self.unclocked.val();
        self.own.next = !self.v6.val().by_ack;
        self.own_random_0.next = self.own.val() & self.v6.val().start_1;
        self.own_random_1.next = self.own.val() & self.v6.val().start_2;
        self.turn_two.next = (self.own.val() & self.two_new.val()) | self.two_fixes.val();
        self.turn_one.next = (self.own.val() & self.fresh.val()) | self.fixes.val();
        self.rts.next = (self.c6.val().state == self.state_rts.val()) & !self.v6.val().fail;
        // Nothing in flight, but work: the last ACK was pruned, or there was no room.
        self.stopped.next =
            self.rts.val() & self.v6.val().flight_zero & self.v6.val().unsent_1 & !self.fresh.val();
        // Rule 7: the rest is paced.
        self.want_burst.next = self.more_new.val()
            | self.more_unclocked.val()
            | self.stopped.val()
            | (self.wants_new.val() & self.v6.val().sync_held)
            | (self.v6.val().hole_1
                & !self.c6.val().recovering
                & !self.beside.val()
                & self.v6.val().window_1
                & self.v6.val().unsent_1)
            | (self.beside.val() & self.v6.val().window_2 & self.v6.val().unsent_2)
            | (self.held_6.val() & self.wants_new.val())
            | (self.full_6.val()
                & (self.v6.val().resend_acked
                    | (self.v6.val().hole_1 & self.c6.val().recovering)
                    | (self.v6.val().resend_unclocked & self.left_1.val())));
        self.want_rto.next =
            self.rts.val() & (self.v6.val().timer | !self.v6.val().flight_zero | self.fresh.val());

        self.outcome_7.d.next.qpn = self.e6.val().qpn;
        self.outcome_7.d.next.command = self.e6.val().command;
        self.outcome_7.d.next.counts = self.v6.val().counts;
        self.outcome_7.d.next.counts.probes = 0.into();
        self.outcome_7.d.next.grant_0_valid =
            self.fresh.val() | self.resends.val() | self.fixes.val() | self.marker.val();
        self.outcome_7.d.next.grant_0.qpn = self.e6.val().qpn;
        self.outcome_7.d.next.grant_0.psn = self.v6.val().resend_psn;
        self.outcome_7.d.next.grant_0.vp = self.v6.val().random_0;
        self.outcome_7.d.next.grant_0.retx = self.resends.val() | self.fixes.val();
        self.outcome_7.d.next.grant_0.marker = self.marker.val();
        self.outcome_7.d.next.grant_1_valid = self.two_new.val()
            | self.two_unclocked.val()
            | self.two_fixes.val()
            | self.beside.val();
        self.outcome_7.d.next.grant_1.qpn = self.e6.val().qpn;
        self.outcome_7.d.next.grant_1.psn = self.v6.val().resend_psn_1;
        self.outcome_7.d.next.grant_1.vp = self.v6.val().random_1;
        self.outcome_7.d.next.grant_1.retx = self.resends.val() | self.two_fixes.val();
        self.outcome_7.d.next.grant_1.marker = false;
        self.outcome_7.d.next.sync_passed = self.fresh.val() & self.v6.val().sync_first;
        self.outcome_7.d.next.accepted = self.v6.val().by_ack;
        self.outcome_7.d.next.cause = 0.into();
        if self.unclocked.val() {
            self.outcome_7.d.next.cause = self.cause_timeout.val();
        } else if self.acked.val() | (self.fixes.val() & self.c6.val().recovering) {
            self.outcome_7.d.next.cause = self.cause_recovery.val();
        } else if self.fixes.val() {
            self.outcome_7.d.next.cause = self.cause_hole.val();
        }
        if self.fixes.val() {
            self.outcome_7.d.next.grant_0.psn = self.hole_0.val();
            self.outcome_7.d.next.grant_0.vp = self.e6.val().vp;
            if self.v6.val().slow {
                self.outcome_7.d.next.grant_0.vp = self.v6.val().recycled_0;
            }
            self.outcome_7.d.next.grant_1.vp = self.v6.val().recycled_1;
        }
        if self.beside.val() {
            self.outcome_7.d.next.grant_1.psn = self.c6.val().snd_nxt;
            self.outcome_7.d.next.grant_1.vp = self.c6.val().last_vp;
            if self.v6.val().probe_1 {
                self.outcome_7.d.next.grant_1.vp = self.v6.val().random_1;
            }
        }
        if self.acked.val() {
            self.outcome_7.d.next.grant_0.vp = self.e6.val().vp;
        }
        if self.fresh.val() {
            self.outcome_7.d.next.grant_0.psn = self.c6.val().snd_nxt;
            self.outcome_7.d.next.grant_1.psn = self.v6.val().nxt_1;
            // The path of the ACK, or of the last ACK (`last_vp` holds both); or a random one.
            // vp_recycle: what no ACK clocks out, and a restart, take the oldest paths of the ring.
            if self.own_random_0.val() {
                self.outcome_7.d.next.grant_0.vp = self.v6.val().recycled_0;
            } else if !self.v6.val().probe_0 {
                self.outcome_7.d.next.grant_0.vp = self.c6.val().last_vp;
                if self.own.val() & self.c6.val().vp_recycle {
                    self.outcome_7.d.next.grant_0.vp = self.v6.val().recycled_0;
                }
            }
            if self.own_random_1.val() {
                self.outcome_7.d.next.grant_1.vp = self.v6.val().recycled_1;
            } else if !self.v6.val().probe_1 {
                self.outcome_7.d.next.grant_1.vp = self.c6.val().last_vp;
                // The packet by which the window grows looks for room on any path.
                if self.c6.val().vp_recycle {
                    self.outcome_7.d.next.grant_1.vp = self.v6.val().random_1;
                }
                if self.own.val() & self.c6.val().vp_recycle {
                    self.outcome_7.d.next.grant_1.vp = self.v6.val().recycled_1;
                }
            }
        }
        if self.fresh.val() & self.v6.val().probe_0 & !self.own_random_0.val() {
            self.outcome_7.d.next.counts.probes = 1.into();
        }
        if self.two_new.val() & self.v6.val().probe_1 & !self.own_random_1.val() {
            self.outcome_7.d.next.counts.probes = 1.into();
            if self.v6.val().probe_0 & !self.own_random_0.val() {
                self.outcome_7.d.next.counts.probes = 2.into();
            }
        }
        if self.beside.val() & self.v6.val().probe_1 {
            self.outcome_7.d.next.counts.probes = 1.into();
        }
        self.outcome_7.d.next.progress_valid = self.v6.val().advance | self.v6.val().fail;
        self.outcome_7.d.next.progress.qpn = self.e6.val().qpn;
        self.outcome_7.d.next.progress.una = self.c6.val().snd_una;
        self.outcome_7.d.next.progress.status = 0.into();
        if self.v6.val().fail {
            self.outcome_7.d.next.progress.status = self.v6.val().status;
        }
        self.outcome_7.d.next.arm_burst_valid = self.want_burst.val() & !self.c6.val().burst_armed;
        self.outcome_7.d.next.arm_burst = self.c6.val().burst_interval;
        // The first window leaves at full speed.
        if self.more_new.val()
            & (self.v6.val().start_3 | (self.sync_stop.val() & self.v6.val().start_2))
        {
            self.outcome_7.d.next.arm_burst = self.tick.val();
        }
        // So does what retransmissions held up.
        if self.v6.val().hole_1 & !self.c6.val().recovering {
            self.outcome_7.d.next.arm_burst = self.tick.val();
        }
        self.outcome_7.d.next.arm_rto_valid = self.want_rto.val() & !self.c6.val().rto_armed;
        self.outcome_7.d.next.arm_rto = self.v6.val().arm_rto;

        self.context_7.d.next = self.c6.val();
        self.context_7.d.next.burst_armed = self.c6.val().burst_armed | self.want_burst.val();
        self.context_7.d.next.rto_armed = self.c6.val().rto_armed | self.want_rto.val();
        if self.fresh.val() {
            self.context_7.d.next.snd_nxt = self.v6.val().nxt_1;
            self.context_7.d.next.start = self.v6.val().start_less_1;
            if self.two_new.val() {
                self.context_7.d.next.snd_nxt = self.v6.val().nxt_2;
                self.context_7.d.next.start = self.v6.val().start_less_2;
            }
            if self.v6.val().flight_zero {
                self.context_7.d.next.progress_at = self.env_6.q.val().now;
            }
            self.context_7.d.next.last_new_at = bit_cast::<16, 32>(self.env_6.q.val().now);
            if self.v6.val().sync_first {
                self.context_7.d.next.sync_wait = false;
            }
        }
        if self.beside.val() {
            self.context_7.d.next.snd_nxt = self.v6.val().nxt_1;
            self.context_7.d.next.start = self.v6.val().start_less_1;
            self.context_7.d.next.last_new_at = bit_cast::<16, 32>(self.env_6.q.val().now);
        }
        if self.turn_two.val() {
            self.context_7.d.next.ring = (self.c6.val().ring << 28)
                | bit_cast::<224, 28>(self.c6.val().ring.get_bits::<28>(196));
        } else if self.turn_one.val() {
            self.context_7.d.next.ring = (self.c6.val().ring << 14)
                | bit_cast::<224, 14>(self.c6.val().ring.get_bits::<14>(210));
        }
        if self.fixes.val() {
            self.context_7.d.next.snd_retx = self.hole_0.val() + 1;
            // The repair needs a round trip: no timeout before.
            self.context_7.d.next.progress_at = self.env_6.q.val().now;
        }
        self.second_7.d.next.some = self.two_fixes.val();
        self.second_7.d.next.hole =
            self.v6.val().other_holes & (!self.v6.val().other_holes + self.one_128.val());
        // Rule 6: the window is larger than the work.
        if self.open_new.val()
            & self.v6.val().by_ack
            & self.v6.val().window_1
            & !self.v6.val().unsent_1
        {
            self.context_7.d.next.cwnd = self.v6.val().cwnd_less;
        }
        if self.resends.val() {
            self.context_7.d.next.snd_retx = self.v6.val().resend_psn_1;
        }
        if self.two_unclocked.val() {
            self.context_7.d.next.snd_retx = self.v6.val().resend_psn_2;
            self.context_7.d.next.rto_left = self.c6.val().rto_left - 2;
        } else if self.unclocked.val() {
            self.context_7.d.next.rto_left = self.c6.val().rto_left - 1;
        }
        // No room for the retransmission: the burst timer keeps the clock.
        if (self.v6.val().resend_acked | (self.v6.val().hole_1 & self.c6.val().recovering))
            & self.full_6.val()
            & !self.left_1.val()
        {
            self.context_7.d.next.rto_left = 1.into();
        }
        if self.v6.val().fail {
            self.context_7.d.next.state = self.state_error.val();
        }
        self.event_7.d.next = self.event_6.q.val();
        self.valid_7.d.next = self.valid_6.q.val();

        comment!("T7: write back; after reset, clear");
        self.contexts.write.next = self.valid_7.q.val();
        self.contexts.write_addr.next = bit_cast::<QPW, 16>(self.event_7.q.val().qpn);
        // The second lost packet gets its number.
        self.encode_1.onehot.next = self.second_7.q.val().hole;
        self.hole_1.next =
            self.context_7.q.val().snd_una + bit_cast::<24, 7>(self.encode_1.index.val());
        self.last_outcome.next = self.outcome_7.q.val();
        self.last_context.next = self.context_7.q.val();
        if self.second_7.q.val().some {
            self.last_outcome.next.grant_1.psn = self.hole_1.val();
            self.last_context.next.snd_retx = self.hole_1.val() + 1;
        }
        self.contexts.write_data.next = self.last_context.val();
        if !self.cleared.q.val() {
            self.contexts.write.next = true;
            self.contexts.write_addr.next = self.clear_addr.q.val();
            self.contexts.write_data.next = self.no_context.val();
            self.clear_addr.d.next = self.clear_addr.q.val() + 1;
            self.cleared.d.next = self.clear_addr.q.val().all();
        }
        self.outcome.next = self.last_outcome.val();
        self.written.next = self.last_context.val();
        self.outcome_valid.next = self.valid_7.q.val();
        self.init_done.next = self.cleared.q.val();
        self.busy.next = self.valid_0.q.val()
            | self.valid_1.q.val()
            | self.valid_2.q.val()
            | self.valid_3.q.val()
            | self.valid_4.q.val()
            | self.valid_5.q.val()
            | self.valid_6.q.val()
            | self.valid_7.q.val();
    }
}
