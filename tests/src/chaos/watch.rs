//! A tap that reads every frame with the codec of `spec`, so that the cards' counters have something to be equal to.

use mprdma_sim::fabric::{Crossing, Node, Tap};
use mprdma_spec::wire::bth::opcode;
use mprdma_spec::wire::frame::Frame;
use mprdma_spec::wire::{icrc, mpeth};
use std::sync::{Arc, Mutex, PoisonError};

/// Frames of one card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Frames sent.
    pub sent: u64,
    /// Data packets among them.
    pub sent_data: u64,
    /// Retransmissions among those.
    pub sent_again: u64,
    /// Empty WRITEs among them that nobody posted, sent for the first time: they ask whether the peer is still there.
    pub asks: u64,
    /// ACKs and NAKs sent.
    pub sent_acks: u64,
    /// Frames handed to the card.
    pub frames: u64,
    /// Good data packets among them.
    pub data: u64,
    /// Good ACKs and NAKs among them.
    pub acks: u64,
    /// Frames that the card must drop: damaged, or for somebody else.
    pub bad: u64,
}

/// What the tap has seen of both cards.
#[derive(Clone, Default)]
pub struct Watch(Arc<Mutex<[Seen; 2]>>);

impl Watch {
    /// Counts so far.
    pub fn seen(&self) -> [Seen; 2] {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, card: usize, change: impl FnOnce(&mut Seen)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner)[card]);
    }
}

impl Tap for Watch {
    fn crossing(&mut self, crossing: &Crossing<'_>) -> bool {
        let Node::Card(card) = crossing.from else {
            return false;
        };
        let frame = Frame::parse(crossing.frame);
        self.update(card, |seen| {
            seen.sent += 1;
            let Ok(frame) = frame else {
                return;
            };
            let (extensions, payload) = frame.body.split();
            let flags = extensions.mpeth.map_or(0, |mpeth| mpeth.flags);
            let again = flags & mpeth::FLAG_RETX != 0;
            let keyless = extensions.reth.is_some_and(|reth| reth.rkey == 0);
            let asks = frame.bth.opcode == opcode::MP_WRITE_ONLY && payload.is_empty() && keyless;
            match frame.bth.opcode {
                code if opcode::is_mp_data(code) => {
                    seen.sent_data += 1;
                    seen.sent_again += u64::from(again);
                    seen.asks += u64::from(asks && !again);
                }
                opcode::MP_ACK => seen.sent_acks += 1,
                _ => {}
            }
        });
        false
    }

    fn delivered(&mut self, card: usize, bytes: &[u8]) {
        let good = icrc::check_icrc(bytes)
            .ok()
            .and_then(|()| Frame::parse(bytes).ok());
        let ours = good.filter(|frame| frame.dst_mac == [2, 0, 0, 0, 0, card as u8 + 1]);
        self.update(card, |seen| {
            seen.frames += 1;
            match ours.map(|frame| frame.bth.opcode) {
                Some(code) if opcode::is_mp_data(code) => seen.data += 1,
                Some(opcode::MP_ACK) => seen.acks += 1,
                _ => seen.bad += 1,
            }
        });
    }
}
