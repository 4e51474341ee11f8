//! What the card counts per queue pair, and per virtual path of one of them.

use mprdma_spec::command::{qp_stats, trace_records, TRACED_VPS, TRACE_GROUP};
use mprdma_spec::layout::Field;
use serde::{Deserialize, Serialize};

use crate::control::Window;

/// Lower bounds of the buckets of [`QpStats::distance`].
pub const DISTANCES: [u32; 8] = [0, 1, 2, 4, 8, 16, 32, 64];

/// What a queue pair has done since it was created (QUERY_QP_STATS). Each count is modulo 2^32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QpStats {
    /// Data packets sent, retransmissions included.
    pub sent: u32,
    /// Retransmissions of holes that a SACK map showed.
    pub retx_hole: u32,
    /// Retransmissions in recovery, on the clock of ACKs.
    pub retx_recovery: u32,
    /// Retransmissions after a timeout.
    pub retx_timeout: u32,
    /// Packets that left on another virtual path than the packet before.
    pub path_switches: u32,
    /// ACKs of slow paths, which clocked nothing out.
    pub prunes: u32,
    /// Packets that probed a random path.
    pub probes: u32,
    /// ACKs that echoed a CE mark.
    pub ecn_echoes: u32,
    /// Window NAKs received.
    pub window_naks: u32,
    /// Sync NAKs received.
    pub sync_naks: u32,
    /// ACKs for PSNs before `snd_una`.
    pub ghosts: u32,
    /// Retransmission timeouts.
    pub timeouts: u32,
    /// Times that loss recovery was entered.
    pub recoveries: u32,
    /// Virtual path of the last packet sent.
    pub last_sent_vp: Option<u16>,
    /// Data packets accepted.
    pub accepted: u32,
    /// Data packets that had arrived before.
    pub duplicates: u32,
    /// Data packets dropped beyond the bitmap.
    pub out_of_window: u32,
    /// Packets of synchronised messages that came too early.
    pub sync_naks_sent: u32,
    /// Requests refused for want of a receive request.
    pub rnr_naks_sent: u32,
    /// Data packets that carried a CE mark.
    pub ce_marks: u32,
    /// Accepted packets by how many packets ahead of the next in order they were; bucket i begins at [`DISTANCES`]\[i\].
    pub distance: [u32; 8],
}

impl QpStats {
    /// Retransmissions of every cause.
    #[must_use]
    pub const fn retransmissions(&self) -> u32 {
        self.retx_hole
            .wrapping_add(self.retx_recovery)
            .wrapping_add(self.retx_timeout)
    }

    /// Reads a `qp_stats`.
    pub(super) fn read(record: &Window) -> Self {
        let get = |field: Field| field.get(record) as u32;
        let started = get(qp_stats::STARTED) != 0;
        Self {
            sent: get(qp_stats::SENT),
            retx_hole: get(qp_stats::RETX_HOLE),
            retx_recovery: get(qp_stats::RETX_RECOVERY),
            retx_timeout: get(qp_stats::RETX_TIMEOUT),
            path_switches: get(qp_stats::PATH_SWITCHES),
            prunes: get(qp_stats::PRUNES),
            probes: get(qp_stats::PROBES),
            ecn_echoes: get(qp_stats::ECN_ECHOES),
            window_naks: get(qp_stats::WINDOW_NAKS),
            sync_naks: get(qp_stats::SYNC_NAKS),
            ghosts: get(qp_stats::GHOSTS),
            timeouts: get(qp_stats::TIMEOUTS),
            recoveries: get(qp_stats::RECOVERIES),
            last_sent_vp: started.then(|| get(qp_stats::LAST_VP) as u16),
            accepted: get(qp_stats::ACCEPTED),
            duplicates: get(qp_stats::DUPLICATES),
            out_of_window: get(qp_stats::OUT_OF_WINDOW),
            sync_naks_sent: get(qp_stats::SYNC_NAKS_SENT),
            rnr_naks_sent: get(qp_stats::RNR_NAKS_SENT),
            ce_marks: get(qp_stats::CE_MARKS),
            distance: [
                qp_stats::DISTANCE_0,
                qp_stats::DISTANCE_1,
                qp_stats::DISTANCE_2,
                qp_stats::DISTANCE_4,
                qp_stats::DISTANCE_8,
                qp_stats::DISTANCE_16,
                qp_stats::DISTANCE_32,
                qp_stats::DISTANCE_64,
            ]
            .map(get),
        }
    }
}

/// What happened on one virtual path, or on several together. Each count is modulo 2^32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VpStats {
    /// Data packets sent, retransmissions included.
    pub sent: u32,
    /// Retransmissions among them.
    pub retransmitted: u32,
    /// ACKs and NAKs that came back on it.
    pub acked: u32,
    /// Those that echoed a CE mark.
    pub ecn_marked: u32,
    /// Those that came too late: the path was pruned.
    pub pruned: u32,
}

/// A virtual path's row of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VpRow {
    /// UDP source port.
    pub vp: u16,
    /// Counts.
    #[serde(flatten)]
    pub counts: VpStats,
}

/// What happened on the virtual paths of the traced queue pair since the trace began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// The queue pair.
    pub qpn: u32,
    /// Its first virtual paths, at most 64.
    pub paths: Vec<VpRow>,
    /// All other paths together.
    pub other: VpStats,
}

/// Groups of paths that READ_TRACE reads, the last for all other paths.
pub(super) const OTHER_GROUP: usize = TRACED_VPS / TRACE_GROUP;

/// One answer of READ_TRACE.
pub(super) struct TraceAnswer {
    /// The queue pair that is traced, if one is.
    pub qpn: Option<u32>,
    pub vp_base: u16,
    pub records: [VpStats; TRACE_GROUP],
}

impl TraceAnswer {
    /// Reads a `trace_records`.
    pub fn read(record: &Window) -> Self {
        let get = |field: Field| field.get(record) as u32;
        let fields: [[Field; 5]; TRACE_GROUP] = [
            [
                trace_records::VP0_SENT,
                trace_records::VP0_RETRANSMITTED,
                trace_records::VP0_ACKED,
                trace_records::VP0_ECN_MARKED,
                trace_records::VP0_PRUNED,
            ],
            [
                trace_records::VP1_SENT,
                trace_records::VP1_RETRANSMITTED,
                trace_records::VP1_ACKED,
                trace_records::VP1_ECN_MARKED,
                trace_records::VP1_PRUNED,
            ],
            [
                trace_records::VP2_SENT,
                trace_records::VP2_RETRANSMITTED,
                trace_records::VP2_ACKED,
                trace_records::VP2_ECN_MARKED,
                trace_records::VP2_PRUNED,
            ],
            [
                trace_records::VP3_SENT,
                trace_records::VP3_RETRANSMITTED,
                trace_records::VP3_ACKED,
                trace_records::VP3_ECN_MARKED,
                trace_records::VP3_PRUNED,
            ],
        ];
        Self {
            qpn: (get(trace_records::ACTIVE) != 0).then(|| get(trace_records::QPN)),
            vp_base: get(trace_records::VP_BASE) as u16,
            records: fields.map(|[sent, retransmitted, acked, ecn_marked, pruned]| VpStats {
                sent: get(sent),
                retransmitted: get(retransmitted),
                acked: get(acked),
                ecn_marked: get(ecn_marked),
                pruned: get(pruned),
            }),
        }
    }
}
