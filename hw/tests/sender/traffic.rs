//! Random events over several QPs, made to reach every corner: PSNs around the wrap, ghosts, ACKs for what was never sent,
//! NAKs of each kind, timers that fire early, late and though stale, commands in between.

use mprdma_model::psn;
use mprdma_model::sender::{
    step, Ack, Cause, Env, SenderConfig, SenderContext, SenderEvent, SenderImage, SenderOutputs,
    ACK_MAP,
};
use mprdma_spec::command::{Opcode, QpState, MASK_MULTIPATH, MASK_SENDER, MASK_STATE};
use mprdma_spec::status::WcStatus;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;

/// One event, what surrounds it and what the model makes of it.
#[derive(Clone, Debug)]
pub struct Moment {
    pub qpn: u16,
    pub event: SenderEvent,
    pub env: Env,
    pub context: SenderContext,
    pub outputs: SenderOutputs,
}

/// How the model is broken for a negative control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    None,
    /// The pruning distance is one packet too long.
    Delta,
    /// The timeout's floor is one unit too low.
    RtoFloor,
    /// Random paths are drawn from one path too few.
    VpCount,
}

pub struct Traffic {
    rng: ChaCha8Rng,
    qps: Vec<SenderContext>,
    now: u32,
    sabotage: Sabotage,
    /// How often each corner was reached.
    pub reached: BTreeMap<&'static str, u64>,
}

impl Traffic {
    pub fn new(seed: u64, qps: usize, sabotage: Sabotage) -> Self {
        println!("seed {seed}");
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let now = rng.random();
        Self {
            rng,
            qps: vec![SenderContext::default(); qps],
            now,
            sabotage,
            reached: BTreeMap::new(),
        }
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    fn psn(&mut self) -> u32 {
        if self.chance(70) {
            psn::add(0xff_fff0, self.rng.random_range(0..32))
        } else {
            self.rng.random_range(0..1 << 24)
        }
    }

    fn config(&mut self) -> SenderConfig {
        let r = &mut self.rng;
        let mut sane = SenderConfig::from_params();
        if r.random_range(0..4) == 0 {
            sane = sane.as_published();
        }
        match r.random_range(0..5) {
            0 => sane,
            // More in flight than the peer's bitmap holds.
            1 => SenderConfig {
                delta: r.random_range(1..=40),
                initial_window: r.random_range(130..=200),
                hole_repair: true,
                ..sane
            },
            2 => SenderConfig {
                delta: r.random_range(1..8),
                probe: 30_000,
                ..sane
            },
            3 => SenderConfig {
                vp_count: 1,
                initial_window: r.random_range(1..6),
                cwnd_max: r.random_range(1..20),
                rnr_retry: r.random_range(0..4),
                retry_cnt: r.random_range(0..3),
                ..sane
            },
            _ => SenderConfig {
                vp_base: r.random(),
                vp_count: r.random_range(1..=16384),
                probe: r.random(),
                delta: r.random_range(1..=127),
                initial_window: r.random_range(1..=255),
                cwnd_max: r.random_range(1..=2047),
                burst_interval: r.random_range(1..=255),
                rto_floor: r.random_range(1..=32767),
                retry_cnt: r.random_range(0..=7),
                rnr_retry: r.random_range(0..=7),
                alpha: r.random(),
                hole_repair: r.random(),
                vp_recycle: r.random(),
            },
        }
    }

    fn image(&mut self, states: &[QpState]) -> SenderImage {
        let groups = [
            MASK_STATE,
            MASK_SENDER,
            MASK_MULTIPATH,
            MASK_STATE | MASK_SENDER,
            MASK_STATE | MASK_MULTIPATH | MASK_SENDER,
        ];
        SenderImage {
            mask: groups[self.rng.random_range(0..groups.len())] as u8,
            state: states[self.rng.random_range(0..states.len())] as u8,
            sq_psn: self.psn(),
            config: self.config(),
        }
    }

    fn ack(&mut self, c: &SenderContext) -> Ack {
        let flight = c.flight();
        let inside = |r: &mut ChaCha8Rng, n: u32| if n == 0 { 0 } else { r.random_range(0..n) };
        let r = &mut self.rng;
        // Near the front, anywhere in flight, a ghost, just beyond, anything.
        let sack = match r.random_range(0..100) {
            0..40 => psn::add(c.snd_una, inside(r, flight.min(4))),
            40..80 => psn::add(c.snd_una, inside(r, flight)),
            80..90 => psn::add(c.snd_una, psn::MASK - r.random_range(0..60)),
            90..92 => psn::add(c.snd_nxt, r.random_range(0..3)),
            92..99 => psn::add(c.snd_ooh, r.random_range(0..3)),
            _ => r.random_range(0..1 << 24),
        };
        let aack = match r.random_range(0..100) {
            0..40 => c.snd_una,
            40..65 => psn::add(c.snd_una, inside(r, flight.min(3) + 1)),
            65..80 => psn::add(c.snd_una, inside(r, flight + 1)),
            80..85 => c.snd_nxt,
            85..97 => psn::add(c.snd_una, psn::MASK - r.random_range(0..60)),
            97..99 => psn::add(c.snd_nxt, r.random_range(0..2)),
            _ => r.random_range(0..1 << 24),
        };
        let mut flags = 0;
        for (bit, percent) in [(0, 15), (1, 20), (2, 4), (3, 2), (4, 50), (7, 1)] {
            flags |= u8::from(r.random_range(0..100) < percent) << bit;
        }
        let syndrome = match r.random_range(0..1000) {
            0..930 => r.random_range(0..0x20),
            930..950 => 0x60,
            950..985 => 0x20 | r.random_range(0..0x20),
            985..990 => 0x61 + r.random_range(0..3),
            _ => r.random(),
        };
        let rtt = match r.random_range(0..20) {
            0..16 => r.random_range(100..300),
            16..19 => r.random_range(0..3000),
            _ => r.random(),
        };
        let ack = Ack {
            sack,
            aack,
            flags,
            syndrome,
            vp: c.config.vp_base.wrapping_add(r.random_range(0..64)),
            stamp: (self.now as u16).wrapping_sub(rtt),
            map: (r.random::<u128>() | r.random::<u128>()) & !1,
        };
        // One packet lost, the rest there.
        let often = if (120..130).contains(&flight) { 40 } else { 15 };
        if flight > u32::from(c.config.delta) + 1 && r.random_range(0..100) < often {
            return Ack {
                sack: psn::add(c.snd_una, flight.min(128) - 1),
                aack: c.snd_una,
                flags: ACK_MAP,
                syndrome: 0,
                map: !1,
                ..ack
            };
        }
        ack
    }

    fn event(&mut self, c: &SenderContext) -> SenderEvent {
        use QpState::{Error, Init, Reset, Rtr, Rts};
        if c.state == Reset as u8 {
            let stale = if self.chance(50) {
                SenderEvent::Burst
            } else {
                SenderEvent::Timeout
            };
            return match self.rng.random_range(0..10) {
                0 => stale,
                1 => SenderEvent::Error(19),
                2 => SenderEvent::Work {
                    packets: 3,
                    sync: false,
                },
                _ => SenderEvent::Create(self.image(&[Rts, Rts, Rts, Init])),
            };
        }
        if c.state != Rts as u8 && self.chance(60) {
            return match self.rng.random_range(0..4) {
                0 => SenderEvent::Destroy,
                _ => SenderEvent::Modify(self.image(&[Rts, Rts, Rtr, Error])),
            };
        }
        // Some QPs fill the peer's bitmap before much else happens.
        let fills = c.config.initial_window > 100 && !c.recovering && c.flight() < 140;
        // A peer that falls silent stays so for a while: timeouts in a row.
        if c.retries > 0 && c.rto_armed && self.chance(40) {
            self.now = self.now.wrapping_add(1 << 28);
            return SenderEvent::Timeout;
        }
        // Timers mostly when they are armed.
        let burst = if fills { 85 } else { 30 };
        if c.burst_armed && self.chance(burst) || self.chance(1) {
            return SenderEvent::Burst;
        }
        if c.rto_armed && self.chance(5) || self.chance(1) {
            return SenderEvent::Timeout;
        }
        match self.rng.random_range(0..1000) {
            0..840 => SenderEvent::Ack(self.ack(c)),
            840..990 => SenderEvent::Work {
                packets: match self.rng.random_range(0..10) {
                    0..6 => self.rng.random_range(1..8),
                    6..9 => self.rng.random_range(1..400),
                    _ => self.rng.random_range(1..1 << 20),
                },
                sync: !c.sync_wait && self.chance(30),
            },
            990 => SenderEvent::Error(self.rng.random_range(1..20)),
            991 => SenderEvent::Destroy,
            992..996 => SenderEvent::Modify(self.image(&[Rts, Rts, Rts, Error, Rtr])),
            _ => SenderEvent::Query,
        }
    }

    fn note(
        &mut self,
        before: &SenderContext,
        event: &SenderEvent,
        env: &Env,
        out: &SenderOutputs,
    ) {
        let c = &out.counts;
        let failed = |status: WcStatus| out.progress.is_some_and(|p| p.status == status as u8);
        let resent = out.grants.iter().flatten().filter(|g| g.retx).count();
        let sent = out.grants.iter().flatten().count() - resent;
        let from_ack = matches!(event, SenderEvent::Ack(_));
        for (name, reached) in [
            ("ECN echo", c.ecn_echo),
            ("prune", c.prune),
            ("window NAK", c.window_nak),
            ("sync NAK", c.sync_nak),
            ("ghost", c.ghost),
            ("bad ACK", c.bad_ack),
            ("timeout", c.timeout),
            ("recovery", c.recovery),
            ("two probes", c.probes == 2),
            ("ACK sends two", from_ack && sent == 2),
            ("ACK resends", from_ack && resent == 1),
            ("timer resends two", !from_ack && resent == 2),
            ("hole", out.cause == Cause::Hole),
            ("two holes", out.cause == Cause::Hole && resent == 2),
            (
                "two in recovery",
                out.cause == Cause::Recovery && resent == 2,
            ),
            (
                "a new packet beside a repair",
                out.cause == Cause::Hole && resent == 1 && sent == 1,
            ),
            (
                "a repair at the bitmap's end",
                out.cause == Cause::Hole && resent == 1 && before.flight() >= 127 && !env.crowded,
            ),
            (
                "a repair where SYNC waits",
                out.cause == Cause::Hole
                    && resent == 1
                    && before.sync_wait
                    && before.snd_nxt == before.sync_psn,
            ),
            ("hole on a slow path", out.cause == Cause::Hole && c.prune),
            (
                "pass begins anew",
                out.cause == Cause::Hole && before.pass_at != env.now as u16,
            ),
            (
                "full ring turns",
                !from_ack && sent > 0 && before.ring_count == 16 && before.config.vp_recycle,
            ),
            (
                "SYNC waits",
                before.sync_wait
                    && !out.sync_passed
                    && before.snd_nxt == before.sync_psn
                    && sent == 0
                    && out.arm_burst.is_some(),
            ),
            ("SYNC passes", out.sync_passed && before.flight() != 0),
            (
                "stops before SYNC",
                before.sync_wait && sent == 1 && psn::add(before.snd_nxt, 1) == before.sync_psn,
            ),
            ("burst sends two", *event == SenderEvent::Burst && sent == 2),
            (
                "start on random paths",
                !from_ack && sent > 0 && before.start > 0,
            ),
            ("pause of the first window", out.arm_burst == Some(1)),
            (
                "timer armed again",
                *event == SenderEvent::Timeout && out.arm_rto.is_some(),
            ),
            (
                "stale timer",
                *event == SenderEvent::Burst && !before.burst_armed,
            ),
            ("queue full", env.full && out.arm_burst.is_some()),
            ("RNR wait", before.rnr_wait && from_ack),
            ("retries exceeded", failed(WcStatus::RetryExceeded)),
            ("RNR retries exceeded", failed(WcStatus::RnrRetryExceeded)),
            ("access error", failed(WcStatus::RemoteAccessError)),
            ("flushed", failed(WcStatus::WorkRequestFlushed)),
            ("destroyed", *event == SenderEvent::Destroy),
            ("PSN wraps", before.snd_una > before.snd_nxt),
        ] {
            *self.reached.entry(name).or_default() += u64::from(reached);
        }
    }

    /// The next event.
    pub fn next(&mut self) -> Moment {
        let qp = self.rng.random_range(0..self.qps.len());
        let before = self.qps[qp];
        // Time mostly creeps; sometimes it passes an RTT or a timeout.
        self.now = self.now.wrapping_add(match self.rng.random_range(0..1000) {
            0..900 => self.rng.random_range(0..8),
            900..980 => self.rng.random_range(0..600),
            980..998 => self.rng.random_range(0..20_000),
            _ => self.rng.random_range(0..10_000_000),
        });
        let mut event = self.event(&before);
        if before.unsent() > 1 << 22 && matches!(event, SenderEvent::Work { .. }) {
            event = SenderEvent::Query;
        }
        let env = Env {
            now: self.now,
            rnd: self.rng.random(),
            backlog: self.chance(30),
            crowded: !matches!(event, SenderEvent::Burst) && self.chance(8),
            full: self.chance(8),
            waiting_slow: self.rng.random_range(0..=255) >> self.rng.random_range(0..8),
            slots: 128,
        };
        let mut told = before;
        match self.sabotage {
            Sabotage::None => {}
            Sabotage::Delta => told.config.delta = told.config.delta.wrapping_add(1),
            Sabotage::RtoFloor => told.config.rto_floor = told.config.rto_floor.wrapping_sub(1),
            Sabotage::VpCount => told.config.vp_count = told.config.vp_count.wrapping_sub(1),
        }
        let (mut context, outputs) = step(&told, &event, &env);
        if self.sabotage != Sabotage::None && context.config == told.config {
            context.config = before.config;
        }
        self.note(&before, &event, &env, &outputs);
        self.qps[qp] = context;
        Moment {
            qpn: qp as u16,
            event,
            env,
            context,
            outputs,
        }
    }
}

/// The command code and image of an event that is a command.
pub fn command(event: &SenderEvent) -> Option<(Opcode, [u8; 128])> {
    let mut bytes = [0; 128];
    let opcode = match event {
        SenderEvent::Create(image) => {
            image.write(&mut bytes);
            Opcode::CreateQp
        }
        SenderEvent::Modify(image) => {
            image.write(&mut bytes);
            Opcode::ModifyQp
        }
        SenderEvent::Query => Opcode::QueryQp,
        SenderEvent::Destroy => Opcode::DestroyQp,
        _ => return None,
    };
    Some((opcode, bytes))
}
