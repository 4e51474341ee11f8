//! What travels through the sender engine.

use crate::nic::types::{Grant, Progress};
use crate::prelude::*;
use crate::record;
use mprdma_spec::command::{qp_image, qp_status};

/// One thing that happens to a QP. Exactly one of the first six flags is set.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct SenderEvent {
    /// An ACK or NAK arrived.
    pub ack: bool,
    /// Work was fetched.
    pub work: bool,
    /// The QP must go to ERROR.
    pub error: bool,
    /// The burst timer fired.
    pub burst: bool,
    /// The retransmission timer fired.
    pub timeout: bool,
    /// A command; its arguments are on the configuration bus.
    pub command: bool,
    pub qpn: Bits<16>,
    pub sack: Bits<24>,
    /// ACK: AACK. Work: packets.
    pub value: Bits<24>,
    /// MPAETH flags.
    pub flags: Bits<8>,
    /// ACK: AETH syndrome. Error: `WcStatus`.
    pub code: Bits<8>,
    pub vp: Bits<16>,
    pub stamp: Bits<16>,
    /// SACK map of an ACK whose MPAETH flag 4 is set.
    pub map: Bits<128>,
    /// Work: a synchronised message.
    pub sync: bool,
}

/// The sender half of one QP, as the context memory holds it: `model::sender::SenderContext`, field by field.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct SenderContext {
    pub state: Bits<3>,
    pub recovering: bool,
    pub rnr_wait: bool,
    pub burst_armed: bool,
    pub rto_armed: bool,
    pub cwnd: Bits<13>,
    pub growth: Bits<13>,
    pub inflate: Bits<12>,
    pub snd_una: Bits<24>,
    pub snd_nxt: Bits<24>,
    pub snd_lim: Bits<24>,
    pub snd_ooh: Bits<24>,
    pub recovery: Bits<24>,
    pub snd_retx: Bits<24>,
    pub srtt: Bits<19>,
    pub rttvar: Bits<18>,
    pub retries: Bits<4>,
    pub backoff: Bits<3>,
    pub rnr_retries: Bits<3>,
    pub rnr_timer: Bits<5>,
    pub last_vp: Bits<16>,
    pub start: Bits<8>,
    pub rto_left: Bits<12>,
    pub progress_at: Bits<32>,
    /// 16 paths of 14 bits, the newest in the low bits.
    pub ring: Bits<224>,
    pub ring_count: Bits<5>,
    pub pass_at: Bits<16>,
    pub sync_wait: bool,
    pub sync_psn: Bits<24>,
    pub last_new_at: Bits<16>,
    // Settings.
    pub vp_base: Bits<16>,
    pub vp_count: Bits<16>,
    pub probe: Bits<16>,
    pub delta: Bits<8>,
    pub initial_window: Bits<8>,
    pub cwnd_max: Bits<12>,
    pub burst_interval: Bits<8>,
    pub rto_floor: Bits<16>,
    pub retry_cnt: Bits<4>,
    pub rnr_retry: Bits<4>,
    pub alpha: Bits<8>,
    pub hole_repair: bool,
    pub vp_recycle: bool,
}

record! {
    /// What CREATE_QP and MODIFY_QP say about the sender half.
    pub struct SenderArgs {
        pub mask: Bits<8> = qp_image::MASK,
        pub state: Bits<3> = qp_image::STATE,
        pub sq_psn: Bits<24> = qp_image::SQ_PSN,
        pub retry_cnt: Bits<4> = qp_image::RETRY_CNT,
        pub rnr_retry: Bits<4> = qp_image::RNR_RETRY,
        pub rto_floor: Bits<16> = qp_image::RTO_FLOOR,
        pub burst_interval: Bits<8> = qp_image::BURST_INTERVAL,
        pub delta: Bits<8> = qp_image::DELTA,
        pub vp_base: Bits<16> = qp_image::VP_BASE,
        pub vp_count: Bits<16> = qp_image::VP_COUNT,
        pub probe: Bits<16> = qp_image::PROBE,
        pub initial_window: Bits<8> = qp_image::INITIAL_WINDOW,
        pub cwnd_max: Bits<12> = qp_image::CWND_MAX,
        pub alpha: Bits<8> = qp_image::ALPHA,
        pub hole_repair: bool = qp_image::HOLE_REPAIR,
        pub vp_recycle: bool = qp_image::VP_RECYCLE,
    }
}

record! {
    /// The sender half of QUERY_QP's answer.
    pub struct SenderStatus {
        pub state: Bits<3> = qp_status::STATE,
        pub recovering: bool = qp_status::RECOVERING,
        pub cwnd: Bits<13> = qp_status::CWND,
        pub inflate: Bits<12> = qp_status::INFLATE,
        pub snd_una: Bits<24> = qp_status::SND_UNA,
        pub snd_nxt: Bits<24> = qp_status::SND_NXT,
        pub snd_lim: Bits<24> = qp_status::SND_LIM,
        pub snd_ooh: Bits<24> = qp_status::SND_OOH,
        pub recovery: Bits<24> = qp_status::RECOVERY,
        pub snd_retx: Bits<24> = qp_status::SND_RETX,
        pub srtt: Bits<19> = qp_status::SRTT,
        pub rttvar: Bits<18> = qp_status::RTTVAR,
        pub retries: Bits<4> = qp_status::RETRIES,
        pub backoff: Bits<3> = qp_status::BACKOFF,
        pub last_vp: Bits<16> = qp_status::LAST_VP,
    }
}

/// A command, decoded: which groups of [`SenderArgs`] it takes.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct SenderCommand {
    pub create: bool,
    pub destroy: bool,
    /// CREATE_QP, or MODIFY_QP with the group's mask bit.
    pub takes_state: bool,
    pub takes_sender: bool,
    pub takes_multipath: bool,
}

/// What surrounds an event when it enters the pipeline.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct SenderEnv {
    /// Protocol clock.
    pub now: Bits<32>,
    /// The card's own transmit side holds packets back.
    pub backlog: bool,
    /// New packets are left to the burst timer.
    pub crowded: bool,
    /// No room for more grants.
    pub full: bool,
    /// Slow units that the waiting grants may take.
    pub waiting_slow: Bits<8>,
}

/// What an event adds to the counters.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct SenderCounts {
    pub ecn_echo: bool,
    pub prune: bool,
    pub window_nak: bool,
    pub sync_nak: bool,
    pub ghost: bool,
    pub bad_ack: bool,
    pub timeout: bool,
    pub recovery: bool,
    pub probes: Bits<2>,
}

/// What an event brings about.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct SenderOutcome {
    pub qpn: Bits<16>,
    /// The event was a command.
    pub command: bool,
    pub grant_0: Grant,
    pub grant_0_valid: bool,
    pub grant_1: Grant,
    pub grant_1_valid: bool,
    pub progress: Progress,
    pub progress_valid: bool,
    pub arm_burst: Bits<8>,
    pub arm_burst_valid: bool,
    pub arm_rto: Bits<8>,
    pub arm_rto_valid: bool,
    /// Why packets are sent: `spec::status::SendCause`.
    pub cause: Bits<2>,
    /// The synchronised message that waited begins.
    pub sync_passed: bool,
    /// An ACK or NAK that counted.
    pub accepted: bool,
    pub counts: SenderCounts,
}

/// T1 to T2: distances.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub(super) struct Distances {
    /// `snd_nxt - snd_una`, and the same if AACK becomes `snd_una`.
    pub flight: Bits<24>,
    pub flight_after: Bits<24>,
    /// From `snd_una`; top bit: before it.
    pub sack: Bits<24>,
    pub aack: Bits<24>,
    /// `snd_ooh` - SACK.
    pub lead: Bits<24>,
    pub ooh_before_una: bool,
    pub ooh_before_aack: bool,
    pub sack_before_aack: bool,
    pub retx_before_aack: bool,
    pub unsent: Bits<24>,
    /// `recovery - snd_retx`.
    pub to_resend: Bits<24>,
    pub elapsed: Bits<32>,
    pub sample: Bits<16>,
    pub srtt_decayed: Bits<19>,
    pub rttvar_decayed: Bits<18>,
    /// Smoothed RTT + 4 x deviation, in ticks.
    pub rto: Bits<19>,
    pub earned: Bits<13>,
    /// 24 RTTs in 1/8 ticks.
    pub idle_limit: Bits<21>,
    pub idle: bool,
    pub running: bool,
    /// The window parameters that hold after the event.
    pub initial_window: Bits<8>,
    pub cwnd_limit: Bits<13>,
    // hole_repair: how far snd_ooh, or the SACK that becomes it, is before snd_una or what becomes it; how far the pass got.
    pub span: Bits<24>,
    pub span_after: Bits<24>,
    pub sack_after: Bits<24>,
    pub pass: Bits<24>,
    pub pass_after: Bits<24>,
    pub pass_age: Bits<16>,
    pub vp_offset: Bits<14>,
    // Synchronised messages.
    pub to_sync: Bits<24>,
    pub since_new: Bits<16>,
}

/// T2 to T3: the distances still needed, and what comparing them told.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub(super) struct Findings {
    pub running: bool,
    // The ACK: its kind, then its relation to the window.
    pub positive: bool,
    pub nak: bool,
    pub rnr: bool,
    pub fatal: bool,
    pub fatal_status: Bits<8>,
    pub bad: bool,
    pub ghost: bool,
    pub advance: bool,
    pub slow: bool,
    pub sack_ahead: bool,
    pub ooh_before_una: bool,
    pub ooh_before_aack: bool,
    pub sack_before_una: bool,
    pub sack_before_aack: bool,
    pub retx_before_aack: bool,
    pub aack: Bits<12>,
    pub aack_far: bool,
    pub flight: Bits<24>,
    pub flight_after: Bits<24>,
    pub flight_zero: bool,
    pub flight_after_zero: bool,
    pub inflate: Bits<12>,
    // Rule 3.
    pub marked: bool,
    pub cwnd_capped: bool,
    pub grown: bool,
    pub growth_left: Bits<13>,
    // Start and restart.
    pub cwnd_over: bool,
    pub cwnd_limit: Bits<13>,
    pub first_cwnd: Bits<13>,
    pub initial_window: Bits<8>,
    pub restart: bool,
    // Round trip.
    pub first_sample: bool,
    pub sample: Bits<16>,
    pub deviation: Bits<17>,
    pub srtt_decayed: Bits<19>,
    pub rttvar_decayed: Bits<18>,
    // Timers.
    pub rto: Bits<16>,
    pub elapsed: Bits<26>,
    pub rnr_steps: Bits<17>,
    pub retries_spent: bool,
    pub rnr_spent: bool,
    pub rnr_none: bool,
    pub rnr_endless: bool,
    // Sending.
    pub unsent: Bits<24>,
    pub probe_0: bool,
    pub probe_1: bool,
    pub resend_1: bool,
    pub resend_2: bool,
    pub resend_3: bool,
    pub flight_2: bool,
    pub flight_3: bool,
    // Holes.
    pub map_fresh: bool,
    pub span: Bits<24>,
    pub pass: Bits<24>,
    pub pass_old: bool,
    pub vp_offset: Bits<14>,
    // Synchronised messages.
    pub sync_wait: bool,
    pub sync_0: bool,
    pub sync_1: bool,
    pub since_new: Bits<16>,
}

/// T3 to T4: decisions about the ACK are made, those about sending prepared.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub(super) struct Intent {
    pub counts: SenderCounts,
    pub advance: bool,
    pub fail: bool,
    pub status: Bits<8>,
    pub flight: Bits<24>,
    pub flight_zero: bool,
    pub unsent: Bits<24>,
    /// An ACK that counts.
    pub accepted: bool,
    pub positive: bool,
    pub slow: bool,
    /// New work or the burst timer may send.
    pub own_clock: bool,
    /// The burst timer may resend.
    pub resend_clock: bool,
    /// `snd_retx` is not at `recovery`.
    pub resend_open: bool,
    pub resend_1: bool,
    pub resend_2: bool,
    pub resend_3: bool,
    pub flight_2: bool,
    pub flight_3: bool,
    /// The retransmission timer fired with packets in flight.
    pub timer: bool,
    pub waited_rnr: bool,
    pub retries_spent: bool,
    pub was_recovering: bool,
    pub rto: Bits<22>,
    pub rnr_time: Bits<18>,
    pub elapsed: Bits<26>,
    pub first_sample: bool,
    pub sample: Bits<16>,
    pub deviation: Bits<16>,
    pub rttvar_decayed: Bits<18>,
    pub random_0: Bits<16>,
    pub random_1: Bits<16>,
    pub probe_0: bool,
    pub probe_1: bool,
    /// The ACK has a map to go by.
    pub map_fresh: bool,
    /// Lost packets are looked for, from this distance to that.
    pub looks: bool,
    pub from: Bits<7>,
    pub last: Bits<7>,
    pub none: bool,
    pub pass_old: bool,
    /// Nothing may fall outside the peer's bitmap.
    pub capped: bool,
    pub sync_wait: bool,
    pub sync_0: bool,
    pub sync_1: bool,
}

/// T4 to T5.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub(super) struct Room {
    pub counts: SenderCounts,
    pub advance: bool,
    pub fail: bool,
    pub status: Bits<8>,
    pub flight: Bits<24>,
    pub flight_plus_1: Bits<24>,
    pub flight_plus_2: Bits<24>,
    pub flight_zero: bool,
    pub allowed: Bits<24>,
    pub unsent_1: bool,
    pub unsent_2: bool,
    pub unsent_3: bool,
    pub by_ack: bool,
    pub send_new: bool,
    pub prune: bool,
    pub resend_acked: bool,
    pub resend_clock: bool,
    pub resend_1: bool,
    pub resend_2: bool,
    pub resend_3: bool,
    pub flight_2: bool,
    pub flight_3: bool,
    pub timer: bool,
    pub expired: bool,
    pub waited_rnr: bool,
    pub retries_spent: bool,
    pub was_recovering: bool,
    pub rto: Bits<22>,
    pub limit: Bits<22>,
    pub remaining: Bits<26>,
    pub resend_psn: Bits<24>,
    pub cwnd_half: Bits<13>,
    pub start_1: bool,
    pub start_2: bool,
    pub start_3: bool,
    pub random_0: Bits<16>,
    pub random_1: Bits<16>,
    pub probe_0: bool,
    pub probe_1: bool,
    /// Lost packets, by their distance from snd_una.
    pub holes: Bits<128>,
    pub slow: bool,
    pub capped: bool,
    pub sync_wait: bool,
    pub sync_0: bool,
    pub sync_1: bool,
}

/// T5 to T6: everything is known; T6 only chooses.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub(super) struct Verdict {
    pub counts: SenderCounts,
    pub advance: bool,
    pub fail: bool,
    pub status: Bits<8>,
    pub flight_zero: bool,
    pub room_1: bool,
    pub room_2: bool,
    pub room_3: bool,
    pub unsent_1: bool,
    pub unsent_2: bool,
    pub unsent_3: bool,
    pub by_ack: bool,
    pub send_new: bool,
    pub resend_acked: bool,
    pub resend_unclocked: bool,
    pub resend_2: bool,
    pub resend_3: bool,
    pub timer: bool,
    pub arm_rto: Bits<8>,
    pub cwnd_less: Bits<13>,
    pub nxt_1: Bits<24>,
    pub nxt_2: Bits<24>,
    pub resend_psn: Bits<24>,
    pub resend_psn_1: Bits<24>,
    pub resend_psn_2: Bits<24>,
    pub start_1: bool,
    pub start_2: bool,
    pub start_3: bool,
    pub start_less_1: Bits<8>,
    pub start_less_2: Bits<8>,
    pub random_0: Bits<16>,
    pub random_1: Bits<16>,
    pub probe_0: bool,
    pub probe_1: bool,
    /// The window alone, without the bitmap's limit.
    pub window_1: bool,
    pub window_2: bool,
    pub hole_1: bool,
    pub hole_2: bool,
    pub first_hole: Bits<128>,
    pub other_holes: Bits<128>,
    pub slow: bool,
    pub recycled_0: Bits<16>,
    pub recycled_1: Bits<16>,
    pub sync_held: bool,
    pub sync_first: bool,
    pub sync_second: bool,
}

/// T6 to T7: the second lost packet is still to be numbered.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub(super) struct SecondHole {
    pub some: bool,
    pub hole: Bits<128>,
}
