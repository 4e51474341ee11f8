//! Protocol parameters: default, least and greatest value, unit. `qp_image` carries them to the card.

/// One parameter of a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// Name on the command line and in the documentation.
    pub name: &'static str,
    /// Value when nothing is said.
    pub default: u64,
    /// Least value.
    pub min: u64,
    /// Greatest value.
    pub max: u64,
    /// Meaning and unit.
    pub doc: &'static str,
}

macro_rules! params {
    ($($name:ident = $text_name:literal, $default:literal in $min:literal ..= $max:literal, $doc:literal;)+) => {
        $(
            #[doc = $doc]
            pub const $name: Param = Param { name: $text_name, default: $default, min: $min, max: $max, doc: $doc };
        )+
        /// Every parameter.
        pub const ALL: &[Param] = &[$($name),+];
    };
}

params! {
    VP_BASE = "vp_base", 49152 in 1 ..= 65535, "First UDP source port of the QP's virtual paths.";
    VP_COUNT = "vp_count", 64 in 1 ..= 16384, "Virtual paths of the QP; 1 is single-path.";
    DELTA = "delta", 32 in 1 ..= 127, "Pruning distance in packets (paper section 3.3).";
    PROBE = "probe", 655 in 0 ..= 65535, "Probability of a random path per packet, in 1/65536 (655 is 1 %).";
    INITIAL_WINDOW = "initial_window", 32 in 1 ..= 255, "Window at start and after idling, in packets; 32 is one bandwidth-delay product at 100 Gb/s, 10 us and 4 KiB.";
    CWND_MAX = "cwnd_max", 512 in 1 ..= 2047, "Largest window in packets.";
    BURST_INTERVAL = "burst_interval", 16 in 1 ..= 255, "t_burst in 64 ns ticks.";
    ALPHA = "alpha", 16 in 0 ..= 255, "Synchronise delay in sixteenths of delta * RTT / cwnd.";
    RTO_FLOOR = "rto_floor", 8 in 1 ..= 32767, "Shortest retransmission timeout in 4.096 us units.";
    RETRY_CNT = "retry_cnt", 7 in 0 ..= 7, "Timeouts in a row without progress before ERROR.";
    RNR_RETRY = "rnr_retry", 7 in 0 ..= 7, "RNR NAKs in a row before ERROR; 7 is without end.";
}

/// Paths that extension `vp_recycle` keeps (protocol section 5).
pub const RECYCLED_PATHS: usize = 16;
/// Waiting grants of all queue pairs from which on new packets are left to the burst timer, which serves queue pairs in
/// turn.
pub const GRANTS_CROWDED: usize = 128;
/// Waiting grants from which on the burst timer waits too.
pub const GRANTS_ENOUGH: usize = 256;
/// Waiting grants from which on retransmissions wait too.
pub const GRANTS_FULL: usize = 960;
/// log2 of the waiting grants for which the retransmission timer allows one slow unit: 1 us for each, more than a packet
/// of 4 KiB takes at 40 Gb/s.
pub const GRANTS_PER_SLOW_LOG2: usize = 2;
/// Largest message in bytes (protocol section 9).
pub const MAX_MESSAGE: u64 = 1 << 31;
/// log2 of the packets that the answer to a READ may have: MPETH's offset, by which they are placed, does not count further
/// (protocol section 7). That is 2^28 bytes at MTU 4096, 2^24 at MTU 256.
pub const READ_PACKETS_LOG2: u32 = 16;
/// Bytes that an ATOMIC works on, at an address that is a multiple of them (IBA 9.4.5).
pub const ATOMIC_BYTES: usize = 8;
/// Path MTUs in bytes, indexed by IBA code minus one.
pub const MTUS: [u32; 5] = [256, 512, 1024, 2048, 4096];

/// Bytes of the path MTU with IBA code `code` (1 to 5).
#[must_use]
pub const fn mtu_bytes(code: u8) -> Option<u32> {
    if code >= 1 && code <= 5 {
        Some(128 << code)
    } else {
        None
    }
}

/// Most bytes of a READ over the path MTU with IBA code `code`.
#[must_use]
pub const fn max_read(code: u8) -> Option<u64> {
    match mtu_bytes(code) {
        Some(mtu) => Some((mtu as u64) << READ_PACKETS_LOG2),
        None => None,
    }
}

/// IBA code of the path MTU `bytes`.
#[must_use]
pub const fn mtu_code(bytes: u32) -> Option<u8> {
    let mut code = 1;
    while code <= 5 {
        if 128 << code == bytes {
            return Some(code);
        }
        code += 1;
    }
    None
}
