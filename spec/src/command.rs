//! The command window: codes, argument and result layouts, result codes.
//!
//! Software writes the arguments, then the code, then polls [`crate::csr::CMD_STATUS`] until it is not busy. A command
//! that cannot be carried out answers with a [`Status`] other than `Ok` and changes nothing.

use crate::layout::{layout, Layout};

/// Command codes, as written to [`crate::csr::CMD_OPCODE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    /// Does nothing; answers `Ok`.
    Nop = 0,
    /// Creates a QP from a [`qp_image`]; every group is taken, whatever the mask says.
    CreateQp = 1,
    /// Changes the groups of a QP that [`qp_image::MASK`] names.
    ModifyQp = 2,
    /// Reads a QP's state into [`qp_status`]; takes [`qp_image::QPN`].
    QueryQp = 3,
    /// Destroys a QP; done when nothing of it is left in any pipeline.
    DestroyQp = 4,
    /// Enters a memory region from a [`mr_image`].
    RegisterMr = 5,
    /// Removes the memory region whose key is [`mr_image::KEY`]; a stale key answers `BadIndex`.
    DeregisterMr = 6,
    /// Creates a CQ from a [`cq_image`].
    CreateCq = 7,
    /// Destroys the CQ [`cq_image::CQN`].
    DestroyCq = 8,
    /// Creates an EQ from an [`eq_image`].
    CreateEq = 9,
    /// Destroys the EQ [`eq_image::EQN`].
    DestroyEq = 10,
    /// Reads what a QP has counted since CREATE_QP into [`qp_stats`]; takes [`qp_image::QPN`].
    QueryQpStats = 11,
    /// Counts per virtual path of the QP in a [`trace_request`] from now on, and no longer of the one before.
    TraceQp = 12,
    /// Reads four virtual paths' counts into [`trace_records`]; takes a [`trace_request`] of an existing QP.
    ReadTrace = 13,
}

/// Result codes of a command, in the low byte of [`crate::csr::CMD_STATUS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// No such command.
    BadOpcode = 1,
    /// An index is beyond the table, or a key does not match.
    BadIndex = 2,
    /// The object exists already.
    Exists = 3,
    /// The object does not exist.
    Missing = 4,
    /// An argument is outside its range.
    BadArgument = 5,
    /// The object is in the wrong state for the command.
    BadState = 6,
}

impl Status {
    /// The status that `code` stands for, if any.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::Ok,
            1 => Self::BadOpcode,
            2 => Self::BadIndex,
            3 => Self::Exists,
            4 => Self::Missing,
            5 => Self::BadArgument,
            6 => Self::BadState,
            _ => return None,
        })
    }
}

/// States of a QP, as in verbs (the card does not tell INIT from SQD or SQE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum QpState {
    /// No QP here.
    Reset = 0,
    /// Created; neither sends nor receives.
    Init = 1,
    /// Ready to receive.
    Rtr = 2,
    /// Ready to receive and to send.
    Rts = 3,
    /// In error: outstanding work is flushed.
    Error = 4,
}

/// [`qp_image::MASK`] bit: take STATE.
pub const MASK_STATE: u64 = 1 << 0;
/// [`qp_image::MASK`] bit: take the address vector (the fields from PORT_FLAGS to PKEY).
pub const MASK_ADDRESS: u64 = 1 << 1;
/// [`qp_image::MASK`] bit: take the receiver half (RQ_PSN, RIGHTS) and restart it.
pub const MASK_RECEIVER: u64 = 1 << 2;
/// [`qp_image::MASK`] bit: take the sender half (SQ_PSN, timers, retry counts) and restart it.
pub const MASK_SENDER: u64 = 1 << 3;
/// [`qp_image::MASK`] bit: take the multi-path parameters and the switches of the extensions.
pub const MASK_MULTIPATH: u64 = 1 << 4;

/// [`qp_image::RIGHTS`] and [`mr_image::RIGHTS`] bit: local write.
pub const RIGHT_LOCAL_WRITE: u64 = 1 << 0;
/// [`qp_image::RIGHTS`] and [`mr_image::RIGHTS`] bit: remote write.
pub const RIGHT_REMOTE_WRITE: u64 = 1 << 1;
/// [`qp_image::RIGHTS`] and [`mr_image::RIGHTS`] bit: remote read.
pub const RIGHT_REMOTE_READ: u64 = 1 << 2;
/// [`qp_image::RIGHTS`] and [`mr_image::RIGHTS`] bit: remote atomics.
pub const RIGHT_REMOTE_ATOMIC: u64 = 1 << 3;

layout! {
    /// Arguments of CREATE_QP, MODIFY_QP, QUERY_QP and DESTROY_QP: the whole QP as software sees it.
    qp_image: 128 bytes {
        QPN @ 0 + 24 = "Queue pair number, below the number of QPs.",
        MASK @ 24 + 8 = "MODIFY_QP: groups to take.",
        STATE @ 32 + 4 = "QpState.",
        MODE @ 36 + 4 = "Transport: 1 MP (protocol section 1). 0 (RC) is refused with BadArgument by images without it.",
        MTU @ 40 + 3 = "Path MTU code as in IBA: 1 = 256 .. 5 = 4096 bytes.",
        HOLE_REPAIR @ 44 + 1 = "Extension hole_repair on.",
        VP_RECYCLE @ 45 + 1 = "Extension vp_recycle on.",
        PD @ 48 + 16 = "Protection domain.",
        DMAC @ 64 + 48 = "Destination MAC, first byte on the wire in the lowest bits.",
        PORT_FLAGS @ 112 + 8 = "Bit 0: IPv6 (else IPv4). Bit 1: send an 802.1Q tag.",
        TRAFFIC_CLASS @ 120 + 8 = "DSCP in bits 7..2; the card sets ECN itself (data ECT(0), ACKs Not-ECT).",
        VLAN_TCI @ 128 + 16 = "802.1Q tag control information.",
        HOP_LIMIT @ 144 + 8 = "IPv4 TTL or IPv6 hop limit.",
        FLOW_LABEL @ 160 + 20 = "IPv6 flow label.",
        SGID @ 192 + 128 = "Source IPv6 address, first byte on the wire in the lowest bits; IPv4 in bytes 12..15 (as in ::ffff:a.b.c.d).",
        DGID @ 320 + 128 = "Destination address, as SGID.",
        DEST_QPN @ 448 + 24 = "Peer's queue pair number.",
        PKEY @ 480 + 16 = "Partition key.",
        SQ_BASE @ 512 + 64 = "IOVA of the send ring, 64-byte aligned.",
        SQ_LOG2 @ 576 + 4 = "log2 of the send ring's entries, 1 to 15.",
        SQ_CQN @ 584 + 16 = "CQ of send completions.",
        RQ_LOG2 @ 600 + 4 = "log2 of the receive ring's entries, 1 to 15.",
        RQ_BASE @ 640 + 64 = "IOVA of the receive ring, 16-byte aligned.",
        RQ_CQN @ 704 + 16 = "CQ of receive completions.",
        RIGHTS @ 720 + 8 = "Accesses that the peer may ask for.",
        SQ_PSN @ 736 + 24 = "First PSN to send.",
        RETRY_CNT @ 760 + 4 = "Timeouts in a row without progress before ERROR.",
        RNR_RETRY @ 764 + 4 = "RNR NAKs in a row before ERROR; 7 means without end (IBA 9.7.5.2.8).",
        RQ_PSN @ 768 + 24 = "First PSN to expect.",
        RTO_FLOOR @ 800 + 16 = "Shortest retransmission timeout in units of 4.096 us.",
        BURST_INTERVAL @ 816 + 8 = "t_burst: pause between two packets pairs that the window still allows, in 64 ns ticks.",
        DELTA @ 824 + 8 = "Pruning distance in packets (paper: 32).",
        VP_BASE @ 832 + 16 = "First UDP source port of the QP's virtual paths.",
        VP_COUNT @ 848 + 16 = "Virtual paths; 1 makes the QP single-path. vp_base + vp_count must not pass 65536.",
        PROBE @ 864 + 16 = "Probability that a packet goes to a random path, in 1/65536 (655 is 1 %).",
        INITIAL_WINDOW @ 880 + 8 = "iw: window at start and after three RTTs idle, in packets.",
        ALPHA @ 888 + 8 = "Delay of synchronised messages in sixteenths of delta * RTT / cwnd.",
        CWND_MAX @ 896 + 12 = "Largest congestion window in packets, 1 to 2047.",
    }
}

layout! {
    /// Result of QUERY_QP: the sender half in the first 64 bytes, the receiver half in the last 64.
    qp_status: 128 bytes {
        STATE @ 0 + 4 = "QpState of the sender half.",
        RECOVERING @ 4 + 1 = "Loss recovery is running.",
        CWND @ 8 + 13 = "Congestion window in half packets.",
        INFLATE @ 24 + 12 = "Packets SACKed but not yet covered by the cumulative ACK.",
        SND_UNA @ 64 + 24 = "Oldest PSN not acknowledged.",
        SND_NXT @ 96 + 24 = "Next new PSN to send.",
        SND_LIM @ 128 + 24 = "PSN after the last packet of fetched work.",
        SND_OOH @ 160 + 24 = "Highest PSN SACKed.",
        RECOVERY @ 192 + 24 = "PSN at which recovery ends.",
        SND_RETX @ 224 + 24 = "Next PSN to retransmit.",
        SRTT @ 256 + 19 = "Smoothed RTT in 1/8 ticks of 64 ns.",
        RTTVAR @ 288 + 18 = "RTT deviation in 1/4 ticks of 64 ns.",
        RETRIES @ 312 + 4 = "Timeouts in a row without progress.",
        BACKOFF @ 316 + 4 = "log2 of the timeout's multiplier.",
        LAST_VP @ 320 + 16 = "Virtual path of the last ACK.",
        RX_STATE @ 512 + 4 = "QpState of the receiver half.",
        RCV_NXT @ 544 + 24 = "Next PSN that the receiver waits for.",
        MSN @ 576 + 24 = "Messages completed, as AETH carries it.",
        RECEIVED @ 608 + 8 = "Packets held beyond RCV_NXT.",
        RCV_WSN @ 640 + 24 = "Next receive WQE to complete.",
        RQ_PRODUCER @ 672 + 16 = "Receive WQEs posted (free-running).",
    }
}

layout! {
    /// Result of QUERY_QP_STATS: counts since CREATE_QP, each modulo 2^32; the sender half in the first 64 bytes, the receiver half in the last 64. Diagnostic only: nothing of the transport reads them.
    qp_stats: 128 bytes {
        SENT @ 0 + 32 = "Data packets sent, retransmissions included.",
        RETX_HOLE @ 32 + 32 = "Retransmissions of holes that a SACK map showed.",
        RETX_RECOVERY @ 64 + 32 = "Retransmissions in recovery, on the clock of ACKs.",
        RETX_TIMEOUT @ 96 + 32 = "Retransmissions after a timeout, without a clock.",
        PATH_SWITCHES @ 128 + 32 = "Packets that left on another virtual path than the packet before.",
        PRUNES @ 160 + 32 = "ACKs of slow paths, which clocked nothing out.",
        PROBES @ 192 + 32 = "Packets that probed a random path.",
        ECN_ECHOES @ 224 + 32 = "ACKs that echoed a CE mark.",
        WINDOW_NAKS @ 256 + 32 = "Window NAKs received.",
        SYNC_NAKS @ 288 + 32 = "Sync NAKs received.",
        GHOSTS @ 320 + 32 = "ACKs for PSNs before snd_una.",
        TIMEOUTS @ 352 + 32 = "Retransmission timeouts.",
        RECOVERIES @ 384 + 32 = "Times that loss recovery was entered.",
        LAST_VP @ 416 + 16 = "Virtual path of the last packet sent.",
        STARTED @ 432 + 1 = "A packet has been sent: LAST_VP holds.",
        ACCEPTED @ 512 + 32 = "Data packets accepted.",
        DUPLICATES @ 544 + 32 = "Data packets that had arrived before.",
        OUT_OF_WINDOW @ 576 + 32 = "Data packets dropped beyond the bitmap, each answered by a window NAK.",
        SYNC_NAKS_SENT @ 608 + 32 = "Data packets of synchronised messages that came too early.",
        RNR_NAKS_SENT @ 640 + 32 = "Requests refused for want of a receive WQE.",
        CE_MARKS @ 672 + 32 = "Data packets that carried a CE mark.",
        DISTANCE_0 @ 704 + 32 = "Accepted packets that were next in order.",
        DISTANCE_1 @ 736 + 32 = "Accepted 1 packet ahead of the next in order.",
        DISTANCE_2 @ 768 + 32 = "Accepted 2 to 3 packets ahead.",
        DISTANCE_4 @ 800 + 32 = "Accepted 4 to 7 packets ahead.",
        DISTANCE_8 @ 832 + 32 = "Accepted 8 to 15 packets ahead.",
        DISTANCE_16 @ 864 + 32 = "Accepted 16 to 31 packets ahead.",
        DISTANCE_32 @ 896 + 32 = "Accepted 32 to 63 packets ahead.",
        DISTANCE_64 @ 928 + 32 = "Accepted 64 packets ahead or more.",
    }
}

layout! {
    /// Arguments of TRACE_QP and READ_TRACE.
    trace_request: 128 bytes {
        QPN @ 0 + 24 = "TRACE_QP: the QP to trace. READ_TRACE: any QP that exists; the result names the one that is traced.",
        GROUP @ 24 + 8 = "READ_TRACE: which four virtual paths, 0 to 15; 16 reads the rest, counted together as VP0.",
        VP_BASE @ 32 + 16 = "TRACE_QP: UDP source port of the first of the 64 virtual paths.",
    }
}

layout! {
    /// Result of READ_TRACE: counts since TRACE_QP, each modulo 2^32.
    trace_records: 128 bytes {
        VP0_SENT @ 0 + 32 = "Virtual path 4 * GROUP + 0: data packets sent, retransmissions included.",
        VP0_RETRANSMITTED @ 32 + 32 = "Retransmissions among them.",
        VP0_ACKED @ 64 + 32 = "ACKs and NAKs that came back on it.",
        VP0_ECN_MARKED @ 96 + 32 = "Those among them that echoed a CE mark.",
        VP0_PRUNED @ 128 + 32 = "Those among them that came too late: the path was pruned.",
        VP1_SENT @ 160 + 32 = "Virtual path 4 * GROUP + 1: data packets sent, retransmissions included.",
        VP1_RETRANSMITTED @ 192 + 32 = "Retransmissions among them.",
        VP1_ACKED @ 224 + 32 = "ACKs and NAKs that came back on it.",
        VP1_ECN_MARKED @ 256 + 32 = "Those among them that echoed a CE mark.",
        VP1_PRUNED @ 288 + 32 = "Those among them that came too late: the path was pruned.",
        VP2_SENT @ 320 + 32 = "Virtual path 4 * GROUP + 2: data packets sent, retransmissions included.",
        VP2_RETRANSMITTED @ 352 + 32 = "Retransmissions among them.",
        VP2_ACKED @ 384 + 32 = "ACKs and NAKs that came back on it.",
        VP2_ECN_MARKED @ 416 + 32 = "Those among them that echoed a CE mark.",
        VP2_PRUNED @ 448 + 32 = "Those among them that came too late: the path was pruned.",
        VP3_SENT @ 480 + 32 = "Virtual path 4 * GROUP + 3: data packets sent, retransmissions included.",
        VP3_RETRANSMITTED @ 512 + 32 = "Retransmissions among them.",
        VP3_ACKED @ 544 + 32 = "ACKs and NAKs that came back on it.",
        VP3_ECN_MARKED @ 576 + 32 = "Those among them that echoed a CE mark.",
        VP3_PRUNED @ 608 + 32 = "Those among them that came too late: the path was pruned.",
        QPN @ 640 + 16 = "The QP that is traced.",
        ACTIVE @ 656 + 1 = "A QP is traced; the counts mean nothing otherwise.",
        VP_BASE @ 672 + 16 = "UDP source port of the first virtual path.",
    }
}

/// Virtual paths that TRACE_QP counts one by one; the rest is counted together.
pub const TRACED_VPS: usize = 64;
/// Virtual paths in one [`trace_records`].
pub const TRACE_GROUP: usize = 4;

layout! {
    /// Arguments of REGISTER_MR and DEREGISTER_MR: one contiguous IOVA range.
    mr_image: 128 bytes {
        KEY @ 0 + 32 = "lkey and rkey: table index in bits 31..8, generation in bits 7..0.",
        PD @ 32 + 16 = "Protection domain.",
        RIGHTS @ 48 + 8 = "RIGHT_ bits.",
        VA @ 64 + 64 = "First address as work requests and peers name it.",
        IOVA @ 128 + 64 = "Where that address lies for DMA.",
        LENGTH @ 192 + 48 = "Bytes.",
    }
}

layout! {
    /// Arguments of CREATE_CQ and DESTROY_CQ.
    cq_image: 128 bytes {
        CQN @ 0 + 16 = "Completion queue number.",
        LOG2 @ 16 + 4 = "log2 of its entries, 1 to 15.",
        VECTOR @ 24 + 8 = "MSI-X vector raised when the CQ is armed.",
        BASE @ 64 + 64 = "IOVA of the ring, 32-byte aligned.",
    }
}

layout! {
    /// Arguments of CREATE_EQ and DESTROY_EQ.
    eq_image: 128 bytes {
        EQN @ 0 + 16 = "Event queue number; EQ 0 gets the card's asynchronous events.",
        LOG2 @ 16 + 4 = "log2 of its entries, 1 to 15.",
        VECTOR @ 24 + 8 = "MSI-X vector raised with each event.",
        BASE @ 64 + 64 = "IOVA of the ring, 16-byte aligned.",
    }
}

/// Every record of the command window.
pub const LAYOUTS: &[Layout] = &[
    qp_image::LAYOUT,
    qp_status::LAYOUT,
    qp_stats::LAYOUT,
    trace_request::LAYOUT,
    trace_records::LAYOUT,
    mr_image::LAYOUT,
    cq_image::LAYOUT,
    eq_image::LAYOUT,
];
