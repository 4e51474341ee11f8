//! The MAC: frames leave at the line rate one after the other, and arrive as the network says.

use super::events::Event;
use super::timing::{HELD_BEATS, HELD_FRAMES};
use super::StandIn;
use crate::card::Seen;
use crate::lanes::BEAT;
use crate::mac::{Sent, MIN_FRAME};
use crate::time::{Ps, Rate, FCS, GAP, PREAMBLE};
use std::collections::VecDeque;

/// The port's own state; a reset of the card does not touch it.
pub(super) struct Port {
    rate: Rate,
    /// When the next frame may start, and when the last one has arrived.
    free_at: Ps,
    arrived_at: Ps,
    pub(super) sent: Vec<Sent>,
    /// From when to when each of the last frames was whole and not yet gone.
    queue: VecDeque<(Ps, Ps)>,
    pub(super) seen: Option<Vec<Seen>>,
}

impl Port {
    pub(super) fn new(rate: Rate) -> Port {
        Port {
            rate,
            free_at: 0,
            arrived_at: 0,
            sent: vec![],
            queue: VecDeque::new(),
            seen: None,
        }
    }

    /// When everything has left.
    pub(super) fn free_at(&self) -> Ps {
        self.free_at
    }

    /// The wire, and not the window, limits: frames or beats queue for it.
    pub(super) fn holds_back(&mut self, now: Ps) -> bool {
        self.forget_sent(now);
        let whole = self.queue.iter().take_while(|(ready, _)| *ready <= now);
        whole.take(HELD_FRAMES).count() == HELD_FRAMES
            || self.time_for(HELD_BEATS * BEAT as u64) > now
    }

    fn forget_sent(&mut self, now: Ps) {
        while self.queue.front().is_some_and(|&(_, end)| end <= now) {
            self.queue.pop_front();
        }
    }

    /// When no more than so many bytes are left to send.
    pub(super) fn time_for(&self, bytes: u64) -> Ps {
        self.free_at.saturating_sub(self.rate.time(bytes))
    }
}

impl StandIn {
    /// Sends a frame, not before `ready`.
    pub(super) fn transmit(&mut self, ready: Ps, mut frame: Vec<u8>) {
        let port = &mut self.port;
        if frame.len() < MIN_FRAME {
            frame.resize(MIN_FRAME, 0);
        }
        let bytes = frame.len() as u64;
        let start = port.free_at.max(ready);
        let end = start + port.rate.time(PREAMBLE + bytes + FCS);
        port.free_at = end + port.rate.time(GAP);
        // A card that only answers never asks whether its wire holds it back.
        port.forget_sent(self.now);
        port.queue.push_back((ready, end));
        self.stats.mac.tx_frames += 1;
        self.stats.mac.tx_bytes += bytes;
        if let Some(seen) = &mut port.seen {
            let frame = frame.clone();
            seen.push(Seen {
                at: end,
                sent: true,
                frame,
            });
        }
        port.sent.push(Sent { start, end, frame });
    }

    /// A frame begins. One that faults put on top of another comes behind it.
    pub(super) fn frame_begins(&mut self, first_bit: Ps, last_bit: Ps, frame: Vec<u8>) {
        let length = last_bit - first_bit;
        let start = first_bit.max(self.port.arrived_at);
        self.port.arrived_at = start + length;
        let bytes = frame.len() as u64;
        let last_byte = start + length * (PREAMBLE + bytes) / (PREAMBLE + bytes + FCS);
        let resets = (!self.is_in_reset()).then_some(self.stats.resets);
        self.schedule(last_byte, Event::FrameEnds { frame, resets });
    }

    /// Its last byte is there.
    pub(super) fn frame_ends(&mut self, frame: Vec<u8>, resets: Option<u64>) {
        self.stats.mac.rx_frames += 1;
        self.stats.mac.rx_bytes += frame.len() as u64;
        if let Some(seen) = &mut self.port.seen {
            seen.push(Seen {
                at: self.now,
                sent: false,
                frame: frame.clone(),
            });
        }
        if !self.is_in_reset() && resets == Some(self.stats.resets) {
            self.arrive(frame);
        }
    }
}
