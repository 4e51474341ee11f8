//! Telemetry: what each queue pair does, counted beside the engines. No rule of the protocol reads it.

use super::StandIn;
use mprdma_model::receiver::{Packet, ReceiverOutputs};
use mprdma_model::sender::{Cause, Grant, SenderOutputs};
use mprdma_spec::command::{qp_stats, trace_records, trace_request, TRACED_VPS, TRACE_GROUP};
use mprdma_spec::layout::Field;

/// Buckets of the out-of-order distance: 0, and one for each power of two.
const DISTANCES: [Field; 8] = [
    qp_stats::DISTANCE_0,
    qp_stats::DISTANCE_1,
    qp_stats::DISTANCE_2,
    qp_stats::DISTANCE_4,
    qp_stats::DISTANCE_8,
    qp_stats::DISTANCE_16,
    qp_stats::DISTANCE_32,
    qp_stats::DISTANCE_64,
];

/// What one queue pair has done since CREATE_QP, as QUERY_QP_STATS reports it. Counts wrap at 2^32.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tally([u8; qp_stats::BYTES]);

impl Default for Tally {
    fn default() -> Tally {
        Tally([0; qp_stats::BYTES])
    }
}

impl Tally {
    fn add(&mut self, field: Field, by: u64) {
        if by != 0 {
            let sum = field.get(&self.0) + by;
            field.set(&mut self.0, sum);
        }
    }

    fn sent(&mut self, vp: u16) {
        let started = qp_stats::STARTED.get(&self.0) != 0;
        let switched = started && qp_stats::LAST_VP.get(&self.0) != u64::from(vp);
        self.add(qp_stats::PATH_SWITCHES, switched.into());
        qp_stats::LAST_VP.set(&mut self.0, vp.into());
        qp_stats::STARTED.set(&mut self.0, 1);
    }

    fn sender(&mut self, out: &SenderOutputs) {
        for grant in packets(out) {
            self.sent(grant.vp);
            self.add(qp_stats::SENT, 1);
            match out.cause_of(grant) {
                Cause::New => {}
                Cause::Hole => self.add(qp_stats::RETX_HOLE, 1),
                Cause::Recovery => self.add(qp_stats::RETX_RECOVERY, 1),
                Cause::Timeout => self.add(qp_stats::RETX_TIMEOUT, 1),
            }
        }
        let counts = &out.counts;
        self.add(qp_stats::PROBES, counts.probes.into());
        for (field, happened) in [
            (qp_stats::PRUNES, counts.prune),
            (qp_stats::ECN_ECHOES, counts.ecn_echo),
            (qp_stats::WINDOW_NAKS, counts.window_nak),
            (qp_stats::SYNC_NAKS, counts.sync_nak),
            (qp_stats::GHOSTS, counts.ghost),
            (qp_stats::TIMEOUTS, counts.timeout),
            (qp_stats::RECOVERIES, counts.recovery),
        ] {
            self.add(field, happened.into());
        }
    }

    /// `distance`: how far an accepted packet was ahead of the next in order.
    fn receiver(&mut self, out: &ReceiverOutputs, accepted: bool, distance: u32) {
        let counts = &out.counts;
        for (field, happened) in [
            (qp_stats::ACCEPTED, accepted),
            (qp_stats::DUPLICATES, counts.duplicate),
            (qp_stats::OUT_OF_WINDOW, counts.out_of_window),
            (qp_stats::SYNC_NAKS_SENT, counts.sync_nak),
            (qp_stats::RNR_NAKS_SENT, counts.rnr),
            (qp_stats::CE_MARKS, counts.ce),
        ] {
            self.add(field, happened.into());
        }
        if accepted {
            let bucket = distance.checked_ilog2().map_or(0, |log2| log2 as usize + 1);
            self.add(DISTANCES[bucket.min(DISTANCES.len() - 1)], 1);
        }
    }
}

/// The packets that an event sends.
fn packets(out: &SenderOutputs) -> impl Iterator<Item = &Grant> + '_ {
    out.grants.iter().flatten().filter(|grant| !grant.marker)
}

/// What happened on one virtual path.
#[derive(Clone, Copy, Debug, Default)]
struct Path {
    sent: u32,
    retransmitted: u32,
    acked: u32,
    ecn_marked: u32,
    pruned: u32,
}

/// Counts per virtual path of one queue pair; the last record is that of all other paths.
#[derive(Clone, Debug)]
pub(super) struct Trace {
    active: bool,
    qpn: u16,
    vp_base: u16,
    paths: [Path; TRACED_VPS + 1],
}

impl Default for Trace {
    fn default() -> Trace {
        Trace {
            active: false,
            qpn: 0,
            vp_base: 0,
            paths: [Path::default(); TRACED_VPS + 1],
        }
    }
}

impl Trace {
    /// TRACE_QP.
    pub(super) fn start(image: &[u8]) -> Trace {
        Trace {
            active: true,
            qpn: trace_request::QPN.get(image) as u16,
            vp_base: trace_request::VP_BASE.get(image) as u16,
            ..Trace::default()
        }
    }

    fn path(&mut self, vp: u16) -> &mut Path {
        let ahead = usize::from(vp.wrapping_sub(self.vp_base));
        &mut self.paths[ahead.min(TRACED_VPS)]
    }

    fn sender(&mut self, out: &SenderOutputs, ack_vp: u16) {
        if out.accepted {
            let path = self.path(ack_vp);
            path.acked = path.acked.wrapping_add(1);
            path.ecn_marked = path.ecn_marked.wrapping_add(out.counts.ecn_echo.into());
            path.pruned = path.pruned.wrapping_add(out.counts.prune.into());
        }
        for grant in packets(out) {
            let path = self.path(grant.vp);
            path.sent = path.sent.wrapping_add(1);
            path.retransmitted = path.retransmitted.wrapping_add(grant.retx.into());
        }
    }

    /// READ_TRACE: four paths' records one behind the other.
    fn report(&self, group: usize) -> [u8; trace_records::BYTES] {
        let mut result = [0; trace_records::BYTES];
        let start = group * TRACE_GROUP;
        let records = self.paths.iter().skip(start).take(TRACE_GROUP);
        let words =
            records.flat_map(|p| [p.sent, p.retransmitted, p.acked, p.ecn_marked, p.pruned]);
        for (to, word) in result.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        trace_records::QPN.set(&mut result, self.qpn.into());
        trace_records::ACTIVE.set(&mut result, self.active.into());
        trace_records::VP_BASE.set(&mut result, self.vp_base.into());
        result
    }
}

impl StandIn {
    /// What an event of the sender engine did.
    pub(super) fn note_sender(&mut self, qpn: u16, out: &SenderOutputs) {
        let qp = &mut self.tables.qps[usize::from(qpn)];
        qp.tally.sender(out);
        let trace = &mut self.tables.trace;
        if trace.active && trace.qpn == qpn {
            trace.sender(out, qp.sender.last_vp);
        }
    }

    /// What a packet did; `expected` is the PSN that the receiver waited for before it.
    pub(super) fn note_receiver(
        &mut self,
        qpn: u16,
        packet: &Packet,
        expected: u32,
        out: &ReceiverOutputs,
    ) {
        let distance = mprdma_model::psn::distance(expected, packet.psn);
        let counts = &out.counts;
        let refused = counts.duplicate
            || counts.out_of_window
            || counts.sync_nak
            || counts.rnr
            || counts.access;
        let accepted = out.ack.is_some() && !refused;
        let qp = &mut self.tables.qps[usize::from(qpn)];
        qp.tally.receiver(out, accepted, distance);
    }

    /// QUERY_QP_STATS.
    pub(super) fn query_qp_stats(&mut self, qpn: u16) {
        self.registers.result = self.tables.qps[usize::from(qpn)].tally.0;
    }

    /// READ_TRACE.
    pub(super) fn read_trace(&mut self, image: &[u8]) {
        let group = trace_request::GROUP.get(image) as usize;
        self.registers.result = self.tables.trace.report(group);
    }
}
