//! A test's eye on the network, and its hand.

use super::topology::Node;
use crate::time::Ps;

/// A frame about to take a link.
#[derive(Clone, Copy, Debug)]
pub struct Crossing<'a> {
    /// When it joins the link's queue, or when a card begins to send it; ps.
    pub at: Ps,
    /// Start of the link.
    pub from: Node,
    /// End of the link.
    pub to: Node,
    /// The frame, without FCS.
    pub frame: &'a [u8],
}

/// Sees frames and picks those to lose. Frames of one link come in order of time, the same in every run; those of
/// different links come in an order that depends on how the caller cuts time into windows.
pub trait Tap: Send {
    /// Whether this frame is to be lost; it counts as `chosen_drops` of the link.
    fn crossing(&mut self, crossing: &Crossing<'_>) -> bool {
        let _ = crossing;
        false
    }

    /// A frame is on its last way to a card: nothing can happen to it any more.
    fn delivered(&mut self, card: usize, frame: &[u8]) {
        let _ = (card, frame);
    }
}
