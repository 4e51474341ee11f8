//! What queue pairs count, as the RTL's telemetry blocks do.

use super::StandIn;
use mprdma_model::receiver::{Packet, ReceiverOutputs};
use mprdma_model::sender::{Cause, SenderOutputs};
use mprdma_spec::command::{
    qp_image, qp_stats, trace_records, trace_request, TRACED_VPS, TRACE_GROUP,
};
use mprdma_spec::layout::Field;

/// A `qp_stats` in dwords: every count is one.
#[derive(Clone, Copy, Default)]
pub(super) struct Tally([u32; qp_stats::BYTES / 4]);

impl Tally {
    fn add(&mut self, field: Field, by: u32) {
        let word = &mut self.0[field.lsb / 32];
        *word = word.wrapping_add(by);
    }

    fn bytes(&self) -> [u8; qp_stats::BYTES] {
        let mut bytes = [0; qp_stats::BYTES];
        for (place, word) in bytes.chunks_exact_mut(4).zip(self.0) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn sent(&mut self, vp: u16) {
        let mut record = self.bytes();
        let started = qp_stats::STARTED.get(&record) != 0;
        let switched = started && qp_stats::LAST_VP.get(&record) != u64::from(vp);
        self.add(qp_stats::SENT, 1);
        self.add(qp_stats::PATH_SWITCHES, switched.into());
        qp_stats::STARTED.set(&mut record, 1);
        qp_stats::LAST_VP.set(&mut record, vp.into());
        let word = qp_stats::LAST_VP.lsb / 32;
        let [a, b, c, d] = [0, 1, 2, 3].map(|i| record[4 * word + i]);
        self.0[word] = u32::from_le_bytes([a, b, c, d]);
    }

    fn sender(&mut self, out: &SenderOutputs) {
        let retransmissions = match out.cause {
            Cause::New => None,
            Cause::Hole => Some(qp_stats::RETX_HOLE),
            Cause::Recovery => Some(qp_stats::RETX_RECOVERY),
            Cause::Timeout => Some(qp_stats::RETX_TIMEOUT),
        };
        for grant in packets(out) {
            self.sent(grant);
            if let Some(field) = retransmissions {
                self.add(field, 1);
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

    fn receiver(&mut self, ahead: u32, out: &ReceiverOutputs) {
        let counts = &out.counts;
        // Whatever else is answered is refused.
        let refused = counts.duplicate
            || counts.out_of_window
            || counts.sync_nak
            || counts.rnr
            || counts.access;
        if out.ack.is_some() && !refused {
            let buckets = [
                qp_stats::DISTANCE_0,
                qp_stats::DISTANCE_1,
                qp_stats::DISTANCE_2,
                qp_stats::DISTANCE_4,
                qp_stats::DISTANCE_8,
                qp_stats::DISTANCE_16,
                qp_stats::DISTANCE_32,
                qp_stats::DISTANCE_64,
            ];
            let bits = (u32::BITS - ahead.leading_zeros()) as usize;
            self.add(buckets[bits.min(buckets.len() - 1)], 1);
            self.add(qp_stats::ACCEPTED, 1);
        }
        for (field, happened) in [
            (qp_stats::DUPLICATES, counts.duplicate),
            (qp_stats::OUT_OF_WINDOW, counts.out_of_window),
            (qp_stats::SYNC_NAKS_SENT, counts.sync_nak),
            (qp_stats::RNR_NAKS_SENT, counts.rnr),
            (qp_stats::CE_MARKS, counts.ce),
        ] {
            self.add(field, happened.into());
        }
    }
}

/// The paths of the packets that an event sends.
fn packets(out: &SenderOutputs) -> impl Iterator<Item = u16> + '_ {
    out.grants
        .iter()
        .flatten()
        .filter(|grant| !grant.marker)
        .map(|grant| grant.vp)
}

/// The virtual paths of the traced queue pair: sent, retransmitted, acked, marked, pruned; the rest comes last.
pub(super) struct Trace {
    qpn: u16,
    vp_base: u16,
    records: [[u32; 5]; TRACED_VPS + 1],
}

impl Trace {
    fn record(&mut self, vp: u16) -> &mut [u32; 5] {
        let ahead = usize::from(vp.wrapping_sub(self.vp_base));
        &mut self.records[ahead.min(TRACED_VPS)]
    }

    fn note(&mut self, out: &SenderOutputs, ack_vp: u16) {
        if out.accepted {
            let record = self.record(ack_vp);
            record[2] += 1;
            record[3] += u32::from(out.counts.ecn_echo);
            record[4] += u32::from(out.counts.prune);
        }
        for vp in packets(out) {
            let record = self.record(vp);
            record[0] += 1;
            record[1] += u32::from(out.cause != Cause::New);
        }
    }
}

impl StandIn {
    /// What an event of the sender engine did; `ack_vp` is the path of the ACK, if it was one.
    pub(super) fn note_sender(&mut self, qpn: u16, out: &SenderOutputs, ack_vp: u16) {
        self.tables.qps[usize::from(qpn)].tally.sender(out);
        if let Some(trace) = self.tables.trace.as_mut().filter(|trace| trace.qpn == qpn) {
            trace.note(out, ack_vp);
        }
    }

    /// What a packet did that the receiver waited for `rcv_nxt` at.
    pub(super) fn note_receiver(
        &mut self,
        qpn: u16,
        packet: &Packet,
        rcv_nxt: u32,
        out: &ReceiverOutputs,
    ) {
        let ahead = packet.psn.wrapping_sub(rcv_nxt) & 0xff_ffff;
        self.tables.qps[usize::from(qpn)].tally.receiver(ahead, out);
    }

    pub(super) fn query_qp_stats(&mut self, qpn: u16) {
        self.registers.result = self.tables.qps[usize::from(qpn)].tally.bytes();
    }

    pub(super) fn trace_qp(&mut self, qpn: u16, image: &[u8; qp_image::BYTES]) {
        self.tables.trace = Some(Trace {
            qpn,
            vp_base: trace_request::VP_BASE.get(image) as u16,
            records: [[0; 5]; TRACED_VPS + 1],
        });
    }

    pub(super) fn read_trace(&mut self, image: &[u8; qp_image::BYTES]) {
        let group = trace_request::GROUP.get(image) as usize;
        let mut result = [0; trace_records::BYTES];
        if let Some(trace) = &self.tables.trace {
            let records = trace.records.iter().skip(TRACE_GROUP * group);
            let words = records.take(TRACE_GROUP).flatten();
            for (place, word) in result.chunks_exact_mut(4).zip(words) {
                place.copy_from_slice(&word.to_le_bytes());
            }
            trace_records::ACTIVE.set(&mut result, 1);
            trace_records::QPN.set(&mut result, trace.qpn.into());
            trace_records::VP_BASE.set(&mut result, trace.vp_base.into());
        }
        self.registers.result = result;
    }
}
