//! How long the parts of a card take, in core clock cycles.
//!
//! The numbers are those of the RTL: each block states its latency and interval, and `hw/tests` measures them. What is
//! short against a packet's time on the wire is left out.

use crate::time::Ps;
use mprdma_spec::config::{Config, CYCLES_PER_TICK, TICKS_PER_SLOW};

/// A register read, from its address to its data.
pub(super) const REGISTER_READ: u64 = 10;
/// A register write.
pub(super) const REGISTER_WRITE: u64 = 5;
/// A command, from its code to its result.
pub(super) const COMMAND: u64 = 40;
/// For how long a reset is held.
pub(super) const RESET: u64 = 16;
/// From a doorbell to the read of its WQEs at the card's edge.
pub(super) const FETCH: u64 = 16;
/// One WQE: checked, given PSNs, launched.
pub(super) const WQE: u64 = 10;
/// One event of the sender or of the receiver engine, when the event before it was for the same queue pair.
pub(super) const ENGINE: u64 = 8;
/// From an event to its grants, and from a grant to its payload's read at the card's edge.
pub(super) const GRANT: u64 = 25;
/// One grant: its message found, its packet cut.
pub(super) const SEGMENT: u64 = 8;
/// From the last completion of a read to its data.
pub(super) const READ: u64 = 11;
/// From a frame's headers and first payload beat to its first beat on the way to the MAC, without its length.
pub(super) const BUILD: u64 = 29;
/// From the last beat of a frame to the event of its engine: parsed, its key looked up.
pub(super) const PARSE: u64 = 34;
/// From an event of the receiver engine to its action.
pub(super) const ACT: u64 = 9;

/// Grants that leave the engine's queue without being packets yet.
pub(super) const GRANTS_AHEAD: usize = 16;
/// Waiting grants from which on the transmit side, and not the window, limits.
pub(super) const BACKLOG: usize = 2;
/// Whole frames that wait for the wire from which on that is so too: the one that leaves and two more.
pub(super) const HELD_FRAMES: usize = 3;
/// Beats of frames that wait for the wire, in the MAC's FIFO too, from which on it is: two frames of 4 KiB and a part of a
/// third. The RTL, whose buffer is smaller, sees it by how long that is nearly full.
pub(super) const HELD_BEATS: u64 = 160;
/// Packets that are cut and wait for their payload or for the frame builder.
pub(super) const PACKETS: usize = 48;
/// Payload reads that wait for tags.
pub(super) const READS: usize = 8;
/// Tags of payload reads; each reads from one block of [`BLOCK`] bytes.
pub(super) const TAGS: u64 = 64;
/// Bytes of a block that no read crosses.
pub(super) const BLOCK: u64 = 512;
/// Beats of built frames that wait for the wire: in the frame buffer and in the MAC's FIFO.
pub(super) const BUILT: u64 = 116;
/// Beats that the receive buffer holds.
pub(super) const BUFFER: u64 = 1023;
/// WQEs that are being read at a time, of all queue pairs.
pub(super) const FLYING: u16 = 48;
/// WQEs of one read.
pub(super) const BATCH: u16 = 8;

/// The clocks of a card.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    period: Ps,
}

impl Clock {
    pub(super) fn new(period: Ps) -> Clock {
        Clock { period }
    }

    /// So many core clock cycles.
    pub(super) fn cycles(self, count: u64) -> Ps {
        count * self.period
    }

    /// Core clock cycles in `time`.
    pub(super) fn count(self, time: Ps) -> u64 {
        time / self.period
    }

    /// A tick of the protocol clock: the unit of stamps and of the burst timer.
    pub(super) fn tick(self) -> Ps {
        self.cycles(CYCLES_PER_TICK.into())
    }

    /// The unit of the retransmission timer.
    pub(super) fn slow(self) -> Ps {
        self.tick() * Ps::from(TICKS_PER_SLOW)
    }
}

/// Beats of the 64-byte datapath that `bytes` take.
pub(super) fn beats(bytes: usize) -> u64 {
    bytes.div_ceil(64) as u64
}

/// From the end of a reset until every table is clear. The object table is the largest: four kinds of objects, each with
/// as many entries as the most numerous has.
pub(super) fn clear_cycles(config: &Config) -> u64 {
    let most = config.qp_log2.max(config.cq_log2);
    4 << most.max(config.eq_log2).max(config.mr_log2)
}
