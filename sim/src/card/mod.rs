//! The cards of a world.
//!
//! Two kinds are behind one boundary: [`ClockedCard`] steps a core (the Verilated RTL) cycle by cycle, and
//! [`crate::standin::StandIn`] is the golden model, which goes from event to event. Network, host side, captures and
//! driver do not know which they deal with.

mod clocked;
#[cfg(test)]
pub(crate) mod fake;
mod nic;
mod registers;

pub use clocked::ClockedCard;
pub use nic::Nic;

use crate::mac::{MacCounters, Sent};
use crate::pcie::PcieCounters;
use crate::time::Ps;
use serde::Serialize;

/// A frame seen at the card's port, for captures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// End of the frame, ps.
    pub at: Ps,
    /// The card sent it.
    pub sent: bool,
    /// The frame without FCS.
    pub frame: Vec<u8>,
}

impl Seen {
    /// Takes those that were over before `end` out of `seen`, in order of time.
    pub(crate) fn take_before(seen: &mut Vec<Seen>, end: Ps) -> Vec<Seen> {
        seen.sort_by_key(|s| s.at);
        let over = seen.partition_point(|s| s.at < end);
        seen.drain(..over).collect()
    }
}

/// What a card did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CardStats {
    /// Clock cycles that the card has been through; evaluated one by one only where the core is RTL.
    pub cycles: u64,
    /// The port.
    #[serde(flatten)]
    pub mac: MacCounters,
    /// The PCIe side.
    #[serde(flatten)]
    pub pcie: PcieCounters,
    /// Register accesses that the core never answered.
    pub mmio_timeouts: u64,
    /// Resets.
    pub resets: u64,
}

/// One card: a port to the network on one side, a [`crate::pcie::HostSide`] on the other.
pub trait Card: Send {
    /// Starts to record frames for [`Card::take_seen`].
    fn record(&mut self);

    /// A frame will reach the port between the two times.
    fn expect(&mut self, first_bit: Ps, last_bit: Ps, frame: Vec<u8>);

    /// Frames sent since the last call.
    fn take_sent(&mut self) -> Vec<Sent>;

    /// Frames recorded since the last call that were over before `end`, in order of time.
    fn take_seen(&mut self, end: Ps) -> Vec<Seen>;

    /// Counters.
    fn stats(&self) -> CardStats;

    /// Last time at which the core or anything around it had work.
    fn active_at(&self) -> Ps;

    /// Does everything that happens before `end`.
    fn run_until(&mut self, end: Ps);
}
