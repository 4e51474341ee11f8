//! What each bit of per-QP state is for. [`super::budget`] refuses a table that does not fit the core.
//!
//! The measure is RC mode as protocol section 8 states it: go-back-N, NAK, RNR and timeout as in IBA, DCQCN. A QP is in
//! one mode, so a field that has a counterpart of at least its width in RC mode adds nothing.

use super::Class::{self, Extension, Mp, MpQueue, Queue, Rc, Telemetry};

/// What a memory of the core is.
pub(super) enum Role {
    /// Words of each queue pair; every field has a class.
    PerQp(&'static [(&'static str, Share)]),
    /// Words of each queue pair, every field of this class.
    Record(Class),
    /// One word per object of any kind, so one per queue pair.
    Object(&'static [(&'static str, Share)]),
    /// Deep enough for a word per queue pair, but not of one.
    Shared,
}

/// How the bits of a field are shared out.
pub(super) enum Share {
    All(Class),
    /// So many bits are of the first class, the rest of the second.
    First(usize, Class, Class),
}

use Share::{All, First};

/// Every memory of the core with a word or more per queue pair.
pub(super) const ROLES: &[(&str, Role)] = &[
    ("registers.commands.objects", Role::Object(OBJECT)),
    ("sq_fetch.states", Role::PerQp(SEND_QUEUE)),
    // Queue pairs that have something to fetch, twice as many words as queue pairs.
    ("sq_fetch.list.ram", Role::PerQp(&[("bits", All(Rc))])),
    ("send_regions.regions", Role::Shared),
    ("receive_regions.regions", Role::Shared),
    // ACKs and grants of whichever queue pair is active.
    ("sender.acks.ram", Role::Shared),
    ("sender.grants.ram", Role::Shared),
    // The heads belong to the slots of a wheel, the links to the queue pairs. RC has no burst timer.
    ("sender.burst_wheel.heads", Role::Shared),
    (
        "sender.burst_wheel.links",
        Role::PerQp(&[("some", All(Mp)), ("qpn", All(Mp))]),
    ),
    ("sender.rto_wheel.heads", Role::Shared),
    (
        "sender.rto_wheel.links",
        Role::PerQp(&[("some", All(Rc)), ("qpn", All(Rc))]),
    ),
    ("sender.pipeline.contexts", Role::PerQp(SENDER)),
    (
        "segment.states",
        Role::PerQp(&[("tail", All(Rc)), ("live", All(Rc)), ("cursor", All(Rc))]),
    ),
    ("segment.ring", Role::PerQp(MESSAGE)),
    ("dma_read.buffer", Role::Shared),
    ("tx_build.headers.addresses", Role::PerQp(ADDRESS)),
    ("tx_complete.states", Role::PerQp(COMPLETE)),
    ("tx_complete.ring", Role::PerQp(OPEN_MESSAGE)),
    ("tx_complete.holds", Role::Record(Queue)),
    // A queue pair goes to ERROR once: room for all of them at a time.
    (
        "tx_complete.errors.ram",
        Role::PerQp(&[("qpn", All(Rc)), ("status", All(Rc))]),
    ),
    ("rx_parse.buffer.ram", Role::Shared),
    ("receiver.states", Role::PerQp(RECEIVER)),
    // Two planes make the two bits that protocol section 3 keeps per slot.
    (
        "receiver.plane_hi",
        Role::PerQp(&[("bits", First(64, Mp, Extension))]),
    ),
    (
        "receiver.plane_lo",
        Role::PerQp(&[("bits", First(64, Mp, Extension))]),
    ),
    // RC completes a receive at once; with multi-path it waits for the messages before it.
    (
        "place.slots",
        Role::PerQp(&[("imm", All(MpQueue)), ("byte_len", All(MpQueue))]),
    ),
    // READs and ATOMICs in flight, 16 per direction: a reliable connection of one path keeps their addresses and PSNs too.
    ("read_book.states", Role::Record(Queue)),
    ("read_book.slots_open", Role::Record(Queue)),
    ("read_book.reads", Role::Record(Queue)),
    ("read_book.ends_at", Role::Record(Queue)),
    ("read_book.requests", Role::Record(Queue)),
    ("read_book.list.ram", Role::Record(Queue)),
    ("sq_fetch.fates.ram", Role::Record(Queue)),
    ("telemetry.sender_stats.tallies", Role::Record(Telemetry)),
    ("telemetry.receiver_stats.tallies", Role::Record(Telemetry)),
];

const OBJECT: &[(&str, Share)] = &[("exists", All(Rc)), ("generation", All(Rc))];

/// Ring base, size and indices, and the next PSN, are what any transport needs of a send queue.
const SEND_QUEUE: &[(&str, Share)] = &[
    ("state", All(Rc)),
    ("log2", All(Rc)),
    ("mtu", All(Rc)),
    ("listed", All(Rc)),
    ("blocked", All(Rc)),
    ("slot", All(Rc)),
    ("messages", All(Rc)),
    // READs and ATOMICs: how many are open, and who waits for them or their answers.
    ("own", All(Queue)),
    ("answer_waits", All(Queue)),
    ("idle", All(Queue)),
    ("reads", All(Queue)),
    ("next_read", All(Queue)),
    ("reads_wait", All(Queue)),
    ("fenced", All(Queue)),
    ("life", All(Queue)),
    ("packets", All(Rc)),
    ("next_psn", All(Rc)),
    ("pd", All(Rc)),
    ("posted", All(Rc)),
    ("asked", All(Rc)),
    ("launched", All(Rc)),
    ("base", All(Rc)),
    // One synchronised message at a time is past the queue: protocol section 6.
    ("sync_open", All(Mp)),
    ("sync_waits", All(Mp)),
    // Only multi-path numbers the messages that take a receive work request.
    ("next_wsn", All(Mp)),
];

const SENDER: &[(&str, Share)] = &[
    ("state", All(Rc)),
    // The window of PSNs: oldest unacknowledged, next new, end of the work at hand.
    ("snd_una", All(Rc)),
    ("snd_nxt", All(Rc)),
    ("snd_lim", All(Rc)),
    // Go-back-N goes back with a pointer of its own: `snd_nxt` stays, to tell an ACK from a ghost.
    ("snd_retx", All(Rc)),
    // Retry counters, RNR and the retransmission timer, with their settings: IBA 9.7.6.
    ("rnr_wait", All(Rc)),
    ("rto_armed", All(Rc)),
    ("retries", All(Rc)),
    ("backoff", All(Rc)),
    ("rnr_retries", All(Rc)),
    ("rnr_timer", All(Rc)),
    ("rto_left", All(Rc)),
    ("progress_at", All(Rc)),
    ("rto_floor", All(Rc)),
    ("retry_cnt", All(Rc)),
    ("rnr_retry", All(Rc)),
    // Congestion control. DCQCN keeps a current and a target rate where this keeps a window and its fraction, and
    // alpha, byte counter, timer and stage counters (at least 37 bits) where this keeps the round trip.
    ("cwnd", All(Rc)),
    ("growth", All(Rc)),
    ("srtt", All(Rc)),
    ("rttvar", All(Rc)),
    // Section 4: what is out of order is in flight no more; first window, bursts, limits.
    ("inflate", All(Mp)),
    ("start", All(Mp)),
    ("burst_armed", All(Mp)),
    ("initial_window", All(Mp)),
    ("cwnd_max", All(Mp)),
    ("burst_interval", All(Mp)),
    // Section 5: recovery ends at a PSN; a path that lags behind the highest SACK by more than delta is dropped.
    ("recovering", All(Mp)),
    ("recovery", All(Mp)),
    ("snd_ooh", All(Mp)),
    ("delta", All(Mp)),
    // Section 6: a synchronised message waits for the time that the packets in flight may be late by.
    ("sync_wait", All(Mp)),
    ("sync_psn", All(Mp)),
    ("last_new_at", All(Mp)),
    ("alpha", All(Mp)),
    // hole_repair: when the pass over the holes began. vp_recycle: the last good paths.
    ("hole_repair", All(Extension)),
    ("pass_at", All(Extension)),
    ("vp_recycle", All(Extension)),
    ("ring", All(Extension)),
    ("ring_count", All(Extension)),
    // Virtual paths.
    ("last_vp", All(Mp)),
    ("vp_base", All(Mp)),
    ("vp_count", All(Mp)),
    ("probe", All(Mp)),
];

/// Work requests in flight.
const MESSAGE: &[(&str, Share)] = &[
    ("first_psn", All(Queue)),
    ("packets", All(Queue)),
    ("iova", All(Queue)),
    ("raddr", All(Queue)),
    ("rkey", All(Queue)),
    ("length", All(Queue)),
    ("imm", All(Queue)),
    ("mtu", All(Queue)),
    ("kind", All(Queue)),
    // Travel in MPETH.
    ("wsn", All(MpQueue)),
    ("sync", All(MpQueue)),
];

/// The address vector; multi-path varies the UDP source port only, which comes from the VP.
const ADDRESS: &[(&str, Share)] = &[
    ("dmac", All(Rc)),
    ("port_flags", All(Rc)),
    ("traffic_class", All(Rc)),
    ("vlan_tci", All(Rc)),
    ("hop_limit", All(Rc)),
    ("flow_label", All(Rc)),
    ("sgid", All(Rc)),
    ("dgid", All(Rc)),
    ("dest_qpn", All(Rc)),
    ("pkey", All(Rc)),
];

const COMPLETE: &[(&str, Share)] = &[
    ("valid", All(Rc)),
    ("failed", All(Rc)),
    ("tail", All(Rc)),
    ("live", All(Rc)),
    ("front", All(Queue)),
    ("held", All(Queue)),
    ("reads", All(Queue)),
    ("una", All(Rc)),
    ("limit", All(Rc)),
    ("cqn", All(Rc)),
];

const OPEN_MESSAGE: &[(&str, Share)] = &[
    ("first_psn", All(Queue)),
    ("packets", All(Queue)),
    ("length", All(Queue)),
    ("wqe_index", All(Queue)),
    ("status", All(Queue)),
    ("signaled", All(Queue)),
    ("kind", All(Queue)),
    ("response", All(Queue)),
];

const RECEIVER: &[(&str, Share)] = &[
    ("state", All(Rc)),
    ("mtu", All(Rc)),
    ("pd", All(Rc)),
    ("pkey", All(Rc)),
    ("rq_cqn", All(Rc)),
    ("rights", All(Rc)),
    ("rcv_nxt", All(Rc)),
    ("msn", All(Rc)),
    ("rq_producer", All(Rc)),
    // RC counts receive work requests used in 16 bits, as `rq_producer` does; a WSN has 24.
    ("due_wsn", First(16, Rc, Mp)),
    // Slots filled: 0 to 64, or 0 to 128.
    ("received", First(7, Mp, Extension)),
    ("hole_repair", All(Extension)),
];
