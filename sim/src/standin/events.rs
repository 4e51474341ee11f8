//! What will happen to a card, in order of time.

use super::answers::AtomicRead;
use super::parse::Meta;
use super::reads::ReadNews;
use super::receive::Action;
use crate::time::Ps;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Something that happens at a point of time.
pub(super) enum Event {
    /// The register bus is free.
    Bus,
    /// Posted writes become visible.
    Posted,
    /// The first bit of a frame reaches the port.
    FrameBegins { last_bit: Ps, frame: Vec<u8> },
    /// Its last byte does. `resets` counts the resets before it began, nothing if it began in one: the card does not
    /// see a frame whose reception overlaps a reset.
    FrameEnds { frame: Vec<u8>, resets: Option<u64> },
    /// A hard reset may end.
    ResetEnds,
    /// The running command has its result.
    CommandDone,
    /// A frame with good headers and ICRC reaches its engine.
    Received { meta: Meta, frame: Vec<u8> },
    /// The payload of an action has been handed to the bus.
    Placed(Box<Action>),
    /// The memory that an ATOMIC works on has been read.
    AtomicRead(AtomicRead),
    /// It is a queue pair's turn to ask whether its peer is still there.
    Turn(u16),
    /// A packet that the book of READs and ATOMICs has to hear of is on the bus, with all before it.
    ReadNews(ReadNews),
    /// A read of WQEs is complete.
    WqesRead { read: super::fetch::WqeRead },
    /// The next fetched WQE may be looked at.
    Wqe,
    /// The next grant may become a packet.
    Segment,
    /// A payload is there; `fails` if a read was answered with an error.
    Payload { packet: u64, fails: bool },
    /// The frame builder may go on.
    Build,
    /// Every frame of a destroyed queue pair has left.
    TransmitMarker,
    /// A vector may interrupt again.
    IntervalEnds(u8),
    /// The burst timer of a queue pair fires.
    Burst(u16),
    /// The retransmission timer of a queue pair fires.
    Timeout(u16),
}

impl Event {
    /// Whether a reset of the card leaves it alone: what is on the bus or on the wire already.
    fn survives_reset(&self) -> bool {
        matches!(
            self,
            Event::Posted | Event::FrameBegins { .. } | Event::FrameEnds { .. } | Event::ResetEnds
        )
    }
}

struct Entry {
    key: Reverse<(Ps, u64)>,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.key == other.key
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

/// The events to come; those at the same time in the order in which they were added.
#[derive(Default)]
pub(super) struct Events {
    heap: BinaryHeap<Entry>,
    age: u64,
}

impl Events {
    pub(super) fn push(&mut self, at: Ps, event: Event) {
        self.age += 1;
        self.heap.push(Entry {
            key: Reverse((at, self.age)),
            event,
        });
    }

    /// The next event that happens before `end`.
    pub(super) fn pop_before(&mut self, end: Ps) -> Option<(Ps, Event)> {
        let Reverse((at, _)) = self.heap.peek()?.key;
        if at >= end {
            return None;
        }
        self.heap.pop().map(|entry| (at, entry.event))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Forgets what a reset ends.
    pub(super) fn reset(&mut self) {
        self.heap.retain(|entry| entry.event.survives_reset());
    }
}
