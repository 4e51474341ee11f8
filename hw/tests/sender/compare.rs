//! Records of the RTL beside values of the model.

use mprdma_hw::leaf::beat::bits_of_bytes;
use mprdma_hw::nic::sender::records::SenderOutcome;
use mprdma_hw::nic::sender::records::{SenderContext as ContextRecord, SenderEvent as EventRecord};
use mprdma_hw::nic::types::CfgReq;
use mprdma_hw::verilog::{fields, Field};
use mprdma_model::sender::{SenderContext, SenderEvent, SenderOutputs};
use rust_hdl_core::prelude::*;
use std::collections::HashMap;

use crate::traffic::command;

/// The event as the pipeline takes it.
pub fn event_record(qpn: u16, event: &SenderEvent) -> EventRecord {
    let mut r = EventRecord {
        qpn: bits(u64::from(qpn)),
        ..EventRecord::default()
    };
    match event {
        SenderEvent::Ack(ack) => {
            r.ack = true;
            r.sack = bits(u64::from(ack.sack));
            r.value = bits(u64::from(ack.aack));
            r.flags = bits(u64::from(ack.flags));
            r.code = bits(u64::from(ack.syndrome));
            r.vp = bits(u64::from(ack.vp));
            r.stamp = bits(u64::from(ack.stamp));
            r.map = bits_of_bytes(&ack.map.to_le_bytes());
        }
        SenderEvent::Work { packets, sync } => {
            r.work = true;
            r.value = bits(u64::from(*packets));
            r.sync = *sync;
        }
        SenderEvent::Error(status) => {
            r.error = true;
            r.code = bits(u64::from(*status));
        }
        SenderEvent::Burst => r.burst = true,
        SenderEvent::Timeout => r.timeout = true,
        SenderEvent::Create(_)
        | SenderEvent::Modify(_)
        | SenderEvent::Query
        | SenderEvent::Destroy => r.command = true,
    }
    r
}

/// The command on the configuration bus, if the event is one.
pub fn cfg_record(qpn: u16, event: &SenderEvent) -> Option<CfgReq> {
    command(event).map(|(opcode, image)| CfgReq {
        op: bits(opcode as u64),
        index: bits(u64::from(qpn)),
        image: bits_of_bytes(&image),
    })
}

/// Reads a record's fields from its bytes.
pub struct Reader {
    fields: HashMap<String, Field>,
}

impl Reader {
    pub fn of<T: Synth>() -> Self {
        Self {
            fields: fields(&T::descriptor())
                .into_iter()
                .map(|field| (field.name.clone(), field))
                .collect(),
        }
    }

    pub fn get(&self, record: &[u8], name: &str) -> u64 {
        self.part(record, name, 0, self.fields[name].bits)
    }

    /// `bits` bits of a field from bit `from`.
    pub fn part(&self, record: &[u8], name: &str, from: usize, bits: usize) -> u64 {
        let field = &self.fields[name];
        assert!(bits <= 64 && from + bits <= field.bits);
        (0..bits).fold(0, |value, i| {
            let bit = field.low + from + i;
            value | u64::from(record[bit / 8] >> (bit % 8) & 1) << i
        })
    }
}

/// What the pipeline says, ready for comparison.
pub struct Comparison {
    context: Reader,
    outcome: Reader,
}

impl Comparison {
    pub fn new() -> Self {
        let context = Reader::of::<ContextRecord>();
        let known = context_fields(&SenderContext::default());
        for name in context.fields.keys() {
            assert!(
                name == "ring" || known.iter().any(|(known, _)| known == name),
                "{name} is not compared"
            );
        }
        Self {
            context,
            outcome: Reader::of::<SenderOutcome>(),
        }
    }

    /// Every difference, as text.
    pub fn differences(
        &self,
        qpn: u16,
        context: &SenderContext,
        outputs: &SenderOutputs,
        context_bytes: &[u8],
        outcome_bytes: &[u8],
    ) -> Vec<String> {
        let mut found = vec![];
        let mut check = |what: &str, rtl: u64, model: u64| {
            if rtl != model {
                found.push(format!("{what}: RTL {rtl:#x}, model {model:#x}"));
            }
        };
        for (name, value) in context_fields(context) {
            check(name, self.context.get(context_bytes, name), value);
        }
        for (i, &offset) in context.ring.iter().enumerate() {
            let rtl = self.context.part(context_bytes, "ring", 14 * i, 14);
            check(&format!("ring {i}"), rtl, offset.into());
        }
        let out = |name: &str| self.outcome.get(outcome_bytes, name);
        check("qpn", out("qpn"), u64::from(qpn));
        for (i, grant) in outputs.grants.iter().enumerate() {
            let port = |name: &str| out(&format!("grant_{i}{name}"));
            check(
                &format!("grant {i} valid"),
                port("_valid"),
                grant.is_some().into(),
            );
            if let Some(grant) = grant {
                check("grant qpn", port(".qpn"), u64::from(qpn));
                if !grant.marker {
                    check("grant psn", port(".psn"), grant.psn.into());
                    check("grant vp", port(".vp"), grant.vp.into());
                }
                check("grant retx", port(".retx"), grant.retx.into());
                check("grant marker", port(".marker"), grant.marker.into());
            }
        }
        check(
            "progress valid",
            out("progress_valid"),
            outputs.progress.is_some().into(),
        );
        if let Some(progress) = outputs.progress {
            check("progress qpn", out("progress.qpn"), u64::from(qpn));
            check("progress una", out("progress.una"), progress.una.into());
            check(
                "progress status",
                out("progress.status"),
                progress.status.into(),
            );
        }
        for (name, arm) in [
            ("arm_burst", outputs.arm_burst),
            ("arm_rto", outputs.arm_rto),
        ] {
            check(
                &format!("{name} valid"),
                out(&format!("{name}_valid")),
                arm.is_some().into(),
            );
            if let Some(delay) = arm {
                check(name, out(name), delay.into());
            }
        }
        check(
            "sync passed",
            out("sync_passed"),
            outputs.sync_passed.into(),
        );
        check("accepted", out("accepted"), outputs.accepted.into());
        if outputs.grants[0].is_some_and(|g| !g.marker) {
            check("cause", out("cause"), outputs.cause as u64);
        }
        let c = &outputs.counts;
        for (name, value) in [
            ("counts.ecn_echo", u64::from(c.ecn_echo)),
            ("counts.prune", c.prune.into()),
            ("counts.window_nak", c.window_nak.into()),
            ("counts.sync_nak", c.sync_nak.into()),
            ("counts.ghost", c.ghost.into()),
            ("counts.bad_ack", c.bad_ack.into()),
            ("counts.timeout", c.timeout.into()),
            ("counts.recovery", c.recovery.into()),
            ("counts.probes", c.probes.into()),
        ] {
            check(name, out(name), value);
        }
        found
    }
}

fn context_fields(c: &SenderContext) -> [(&'static str, u64); 42] {
    let s = &c.config;
    [
        ("state", c.state.into()),
        ("recovering", c.recovering.into()),
        ("rnr_wait", c.rnr_wait.into()),
        ("burst_armed", c.burst_armed.into()),
        ("rto_armed", c.rto_armed.into()),
        ("cwnd", c.cwnd.into()),
        ("growth", c.growth.into()),
        ("inflate", c.inflate.into()),
        ("snd_una", c.snd_una.into()),
        ("snd_nxt", c.snd_nxt.into()),
        ("snd_lim", c.snd_lim.into()),
        ("snd_ooh", c.snd_ooh.into()),
        ("recovery", c.recovery.into()),
        ("snd_retx", c.snd_retx.into()),
        ("srtt", c.srtt.into()),
        ("rttvar", c.rttvar.into()),
        ("retries", c.retries.into()),
        ("backoff", c.backoff.into()),
        ("rnr_retries", c.rnr_retries.into()),
        ("rnr_timer", c.rnr_timer.into()),
        ("last_vp", c.last_vp.into()),
        ("start", c.start.into()),
        ("rto_left", c.rto_left.into()),
        ("progress_at", c.progress_at.into()),
        ("ring_count", c.ring_count.into()),
        ("pass_at", c.pass_at.into()),
        ("sync_wait", c.sync_wait.into()),
        ("sync_psn", c.sync_psn.into()),
        ("last_new_at", c.last_new_at.into()),
        ("alpha", s.alpha.into()),
        ("hole_repair", s.hole_repair.into()),
        ("vp_recycle", s.vp_recycle.into()),
        ("vp_base", s.vp_base.into()),
        ("vp_count", s.vp_count.into()),
        ("probe", s.probe.into()),
        ("delta", s.delta.into()),
        ("initial_window", s.initial_window.into()),
        ("cwnd_max", s.cwnd_max.into()),
        ("burst_interval", s.burst_interval.into()),
        ("rto_floor", s.rto_floor.into()),
        ("retry_cnt", s.retry_cnt.into()),
        ("rnr_retry", s.rnr_retry.into()),
    ]
}
