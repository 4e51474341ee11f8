//! One event of the sender engine.

use super::send::Clock;
use super::{
    Ack, AckKind, Cause, Env, Grant, Progress, SenderContext, SenderEvent, SenderImage,
    SenderOutputs, ACK_ECN, ACK_MAP, ACK_RETX, ACK_SYNC_NAK, ACK_WINDOW_NAK,
};
use crate::psn;
use mprdma_spec::command::{QpState, MASK_MULTIPATH, MASK_SENDER, MASK_STATE};
use mprdma_spec::status::WcStatus;

/// Largest log2 of the timeout's multiplier.
pub const BACKOFF_MAX: u8 = 6;
/// Longest delay that the timer wheels take; longer ones are compared and armed again.
pub const WHEEL_MAX: u32 = 255;
/// Largest value of `inflate`.
const INFLATE_MAX: u16 = 0xfff;
/// The window never falls under one packet.
const CWND_MIN: u16 = 2;
/// `rnr_retry` that never gives up (IBA 9.7.5.2.8).
const RNR_ENDLESS: u8 = 7;

pub(super) struct Step<'a> {
    pub(super) c: SenderContext,
    pub(super) out: SenderOutputs,
    pub(super) env: &'a Env,
    // By what was known before the event:
    /// Retransmission timeout in slow units.
    rto: u32,
    /// The pass over the holes began 1.5 RTTs ago or earlier.
    pub(super) pass_old: bool,
    /// A synchronised message has waited long enough.
    pub(super) sync_due: bool,
}

/// The engine: applies `event` to `context`.
#[must_use]
pub fn step(
    context: &SenderContext,
    event: &SenderEvent,
    env: &Env,
) -> (SenderContext, SenderOutputs) {
    let mut step = Step {
        c: *context,
        out: SenderOutputs::default(),
        env,
        rto: rto(context),
        pass_old: pass_old(context, env.now),
        sync_due: sync_due(context, env.now),
    };
    let running = context.state == QpState::Rts as u8;
    match event {
        SenderEvent::Create(image) => step.create(image),
        SenderEvent::Modify(image) => step.modify(image),
        SenderEvent::Query => {}
        SenderEvent::Destroy => step.destroy(),
        SenderEvent::Error(status) => {
            if context.state != QpState::Reset as u8 && context.state != QpState::Error as u8 {
                step.fail(*status);
            }
        }
        SenderEvent::Ack(ack) if running => step.ack(ack),
        SenderEvent::Work { packets, sync } if running => step.work(*packets, *sync),
        SenderEvent::Ack(_) | SenderEvent::Work { .. } => {}
        SenderEvent::Burst => {
            // A wheel entry fires once; nothing else clears its flag.
            step.c.burst_armed = false;
            if running {
                step.burst();
            }
        }
        SenderEvent::Timeout => {
            step.c.rto_armed = false;
            if running {
                step.timeout();
            }
        }
    }
    step.watch();
    (step.c, step.out)
}

impl Step<'_> {
    fn ack(&mut self, ack: &Ack) {
        let kind = ack.kind();
        // What was never sent cannot be acknowledged: beyond snd_nxt, such an ACK changes nothing.
        let flight = self.c.flight();
        let sack = psn::distance(self.c.snd_una, ack.sack);
        let aack = psn::distance(self.c.snd_una, ack.aack);
        let sack_bad = sack < psn::HALF && sack >= flight;
        let aack_bad = aack < psn::HALF && aack > flight;
        if sack_bad || aack_bad || kind == AckKind::Unknown {
            self.out.counts.bad_ack = true;
            return;
        }
        let positive = kind == AckKind::Positive;
        // For a packet before snd_una: it has arrived since, whatever the answer says.
        let ghost = sack >= psn::HALF;
        self.out.accepted = true;
        self.out.counts.ghost = ghost;
        self.out.counts.window_nak = kind == AckKind::Nak && ack.flags & ACK_WINDOW_NAK != 0;
        self.out.counts.sync_nak = kind == AckKind::Nak && ack.flags & ACK_SYNC_NAK != 0;
        self.c.last_vp = ack.vp;
        self.sample_rtt(ack.stamp);

        // Rule 1: inflate and snd_una.
        if positive && !ghost {
            self.c.inflate = (self.c.inflate + 1).min(INFLATE_MAX);
        }
        if aack != 0 && aack < psn::HALF {
            self.c.inflate = (u32::from(self.c.inflate).saturating_sub(aack)) as u16;
            self.c.snd_una = ack.aack;
            if psn::before(self.c.snd_retx, ack.aack) {
                self.c.snd_retx = ack.aack;
            }
            self.c.retries = 0;
            self.c.backoff = 0;
            self.c.rnr_retries = 0;
            self.c.progress_at = self.env.now;
            self.out.progress = Some(Progress {
                una: ack.aack,
                status: 0,
            });
        }

        // Rule 4, first half: how far the packet is behind the highest one SACKed before it.
        let lead = psn::distance(ack.sack, self.c.snd_ooh);
        let slow = positive
            && ack.flags & ACK_RETX == 0
            && lead < psn::HALF
            && lead > u32::from(self.c.config.delta);
        // `vp_recycle`: a path that is neither slow nor marked.
        if positive && !slow && ack.flags & ACK_ECN == 0 {
            self.keep_path(ack.vp);
        }
        // Rule 2: snd_ooh; no hole left, nothing inflated.
        if positive && psn::before(self.c.snd_ooh, ack.sack) {
            self.c.snd_ooh = ack.sack;
        }
        if psn::before(self.c.snd_ooh, self.c.snd_una) {
            self.c.inflate = 0;
        }
        // Rule 3: ECN and growth.
        if positive {
            if ack.flags & ACK_ECN != 0 {
                self.out.counts.ecn_echo = true;
                self.shrink(1);
            } else if !self.env.backlog && !self.knows_a_loss() {
                self.grow();
            }
        }

        // Section 5: entering and leaving recovery.
        if kind == AckKind::Nak && !ghost && !self.c.recovering {
            self.enter_recovery();
        }
        if self.c.snd_una == self.c.snd_nxt {
            self.c.rnr_wait = false;
        }
        if self.c.recovering && !psn::before(self.c.snd_una, self.c.recovery) {
            self.c.recovering = false;
            self.c.rto_left = 0;
        }
        match kind {
            AckKind::Fatal(status) if !ghost => return self.fail(status as u8),
            AckKind::Rnr(timer) if !ghost && !self.c.rnr_wait => {
                if self.c.config.rnr_retry != RNR_ENDLESS
                    && self.c.rnr_retries >= self.c.config.rnr_retry
                {
                    return self.fail(WcStatus::RnrRetryExceeded as u8);
                }
                self.c.rnr_retries = (self.c.rnr_retries + 1).min(RNR_ENDLESS);
                self.c.rnr_timer = timer;
                self.c.progress_at = self.env.now;
                self.c.rnr_wait = true;
            }
            _ => {}
        }

        if self.c.rnr_wait {
            return;
        }
        let fresh_map =
            self.c.config.hole_repair && ack.flags & ACK_MAP != 0 && ack.aack == self.c.snd_una;
        let good_path = Some(ack.vp).filter(|_| !slow);
        if self.c.recovering {
            self.out.cause = Cause::Recovery;
            if fresh_map {
                if self.repair(ack.map, self.c.flight(), good_path) && self.env.full {
                    self.keep_clock();
                }
            } else if self.c.snd_retx != self.c.recovery {
                // Section 5: an ACK clocks out one retransmission, on its own path.
                if self.env.full {
                    self.keep_clock();
                } else {
                    self.resend(0, ack.vp);
                }
            }
            return;
        }
        let limit = self.hole_limit();
        let repairs = positive && fresh_map && limit != 0 && self.repair(ack.map, limit, good_path);
        if repairs {
            self.out.cause = Cause::Hole;
            if !slow {
                self.send_beside_repair(ack.vp);
            }
            self.leave_to_burst();
        }
        if slow {
            // Rule 4: the path is slow; nothing new is clocked out.
            self.out.counts.prune = true;
            self.shrink(2);
        } else if positive && !repairs {
            self.send_new(Clock::Ack(ack.vp));
        }
    }

    /// There is no room for a retransmission: the burst timer makes up for it.
    fn keep_clock(&mut self) {
        self.c.rto_left = self.c.rto_left.max(1);
        self.arm_burst(self.c.config.burst_interval);
    }

    fn work(&mut self, packets: u32, sync: bool) {
        // Restart after three RTTs idle.
        let idle = self.c.snd_una == self.c.snd_lim;
        let idle_for = self.env.now.wrapping_sub(self.c.progress_at);
        if idle && self.c.srtt != 0 && idle_for > (3 * self.c.srtt) >> 3 {
            self.c.first_window();
        }
        if sync {
            self.c.sync_wait = true;
            self.c.sync_psn = self.c.snd_lim;
        }
        self.c.snd_lim = psn::add(self.c.snd_lim, packets);
        if !self.c.burst_armed && !self.c.recovering && !self.c.rnr_wait {
            self.send_new(Clock::Own);
        }
    }

    fn burst(&mut self) {
        if self.c.rnr_wait {
            return;
        }
        if self.c.recovering {
            self.resend_unclocked();
        } else {
            self.send_new(Clock::Own);
        }
    }

    fn timeout(&mut self) {
        if self.c.flight() == 0 {
            return;
        }
        let limit = if self.c.rnr_wait {
            rnr_wait_time(self.c.rnr_timer)
        } else {
            self.rto + u32::from(self.env.waiting_slow)
        };
        let elapsed = self.env.now.wrapping_sub(self.c.progress_at) >> 6;
        if elapsed < limit {
            self.arm_rto(limit - elapsed);
            return;
        }
        if self.c.rnr_wait {
            // The wait is over: as after a timeout, but the network is not to blame.
            self.c.rnr_wait = false;
        } else if self.c.retries >= self.c.config.retry_cnt {
            return self.fail(WcStatus::RetryExceeded as u8);
        } else {
            self.out.counts.timeout = true;
            self.c.retries += 1;
            self.c.backoff = (self.c.backoff + 1).min(BACKOFF_MAX);
            self.c.cwnd = (self.c.cwnd >> 1).max(CWND_MIN);
        }
        self.enter_recovery();
        self.c.rto_left = self.c.cwnd >> 1;
        self.c.progress_at = self.env.now;
        self.resend_unclocked();
        // Early by the backoff just added: the next firing compares.
        self.arm_rto(limit);
    }

    fn enter_recovery(&mut self) {
        self.out.counts.recovery = !self.c.recovering;
        self.c.recovering = true;
        self.c.recovery = self.c.snd_nxt;
        self.c.snd_retx = self.c.snd_una;
        self.c.pass_at = self.env.now as u16;
    }

    /// Rule 3, growth: `cwnd += 1/cwnd`, as half packets every cwnd/4 half packets of ACKs.
    fn grow(&mut self) {
        let earned = self.c.growth + 4;
        if self.c.cwnd >= 2 * self.c.config.cwnd_max {
            return;
        }
        if earned >= self.c.cwnd {
            self.c.growth = (earned - self.c.cwnd).min(3);
            self.c.cwnd += 1;
        } else {
            self.c.growth = earned;
        }
    }

    /// Takes half packets from the window.
    pub(super) fn shrink(&mut self, halves: u16) {
        self.c.cwnd = self.c.cwnd.saturating_sub(halves).max(CWND_MIN);
    }

    /// RTT: moving averages as in RFC 6298 section 2, gains 1/8 and 1/4.
    fn sample_rtt(&mut self, stamp: u16) {
        let sample = u32::from((self.env.now as u16).wrapping_sub(stamp));
        if self.c.srtt == 0 {
            self.c.srtt = sample << 3;
            self.c.rttvar = sample << 1;
            return;
        }
        let error = sample.abs_diff(self.c.srtt >> 3);
        self.c.srtt = self.c.srtt - (self.c.srtt >> 3) + sample;
        self.c.rttvar = self.c.rttvar - (self.c.rttvar >> 2) + error;
    }

    pub(super) fn arm_burst(&mut self, ticks: u8) {
        if !self.c.burst_armed {
            self.c.burst_armed = true;
            self.out.arm_burst = Some(ticks);
        }
    }

    fn arm_rto(&mut self, slow: u32) {
        if !self.c.rto_armed {
            self.c.rto_armed = true;
            self.out.arm_rto = Some(slow.min(WHEEL_MAX) as u8);
        }
    }

    /// No QP may stop for want of a clock: while packets are in flight, the retransmission timer runs; when none is but
    /// there is work (the last ACK was pruned, say), the burst timer does.
    fn watch(&mut self) {
        if self.c.state != QpState::Rts as u8 {
            return;
        }
        if self.c.flight() != 0 {
            self.arm_rto(self.rto);
        } else if self.c.unsent() != 0 {
            self.arm_burst(self.c.config.burst_interval);
        }
    }

    fn fail(&mut self, status: u8) {
        self.c.state = QpState::Error as u8;
        self.out.progress = Some(Progress {
            una: self.c.snd_una,
            status,
        });
    }

    fn create(&mut self, image: &SenderImage) {
        self.c = SenderContext {
            burst_armed: self.c.burst_armed,
            rto_armed: self.c.rto_armed,
            ..SenderContext::new(image.config, image.sq_psn, self.env.now)
        };
        self.c.state = image.state;
    }

    fn modify(&mut self, image: &SenderImage) {
        let takes = |group: u64| u64::from(image.mask) & group != 0;
        let old = self.c.config;
        if takes(MASK_MULTIPATH) {
            self.c.config = image.config;
            self.c.config.rto_floor = old.rto_floor;
            self.c.config.retry_cnt = old.retry_cnt;
            self.c.config.rnr_retry = old.rnr_retry;
            self.c.last_vp = image.config.vp_base;
            self.c.ring_count = 0;
            self.c.cwnd = self.c.cwnd.min(2 * image.config.cwnd_max);
        }
        if takes(MASK_SENDER) {
            self.c.config.rto_floor = image.config.rto_floor;
            self.c.config.retry_cnt = image.config.retry_cnt;
            self.c.config.rnr_retry = image.config.rnr_retry;
            self.c.restart_at(image.sq_psn, self.env.now);
        }
        if takes(MASK_STATE) {
            if image.state == QpState::Error as u8 && self.c.state != QpState::Error as u8 {
                self.fail(WcStatus::WorkRequestFlushed as u8);
            }
            self.c.state = image.state;
        }
    }

    fn destroy(&mut self) {
        self.c = SenderContext {
            burst_armed: self.c.burst_armed,
            rto_armed: self.c.rto_armed,
            ..SenderContext::default()
        };
        self.out.grants[0] = Some(Grant {
            marker: true,
            ..Grant::default()
        });
    }
}

/// `hole_repair`: 1.5 RTTs have passed since the pass began.
fn pass_old(c: &SenderContext, now: u32) -> bool {
    let age = (now as u16).wrapping_sub(c.pass_at);
    u32::from(age) >= (3 * c.srtt) >> 4
}

/// Section 6: alpha x delta x RTT / cwnd have passed since the last new packet. Multiplied out, with alpha in sixteenths
/// and `cwnd` in half packets.
fn sync_due(c: &SenderContext, now: u32) -> bool {
    let elapsed = u32::from((now as u16).wrapping_sub(c.last_new_at));
    let waited = elapsed * u32::from(c.cwnd) * 8;
    waited >= u32::from(c.config.alpha) * u32::from(c.config.delta) * (c.srtt >> 3)
}

/// Retransmission timeout in slow units: smoothed RTT + 4 x deviation, rounded up, not under the floor, times the
/// backoff.
fn rto(c: &SenderContext) -> u32 {
    let measured = ((c.srtt >> 3) + c.rttvar) >> 6;
    let floor = u32::from(c.config.rto_floor);
    let base = if floor > measured {
        floor
    } else {
        measured + 1
    };
    base << c.backoff
}

/// Time of an RNR timer code (IBA table 45) in slow units, rounded up: the code is a floating-point number of 10 us, and
/// 5/2 slow units are a little over 10 us.
fn rnr_wait_time(code: u8) -> u32 {
    let steps: u32 = match code {
        0 => 2 << 15,
        1 => 1,
        code => (2 | u32::from(code & 1)) << ((code >> 1) - 1),
    };
    2 * steps + steps.div_ceil(2)
}
