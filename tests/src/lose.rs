//! A tap that loses chosen transmissions of chosen packets, or the answers to them.

use mprdma_sim::fabric::{Crossing, Node, Tap};
use mprdma_spec::wire::bth::opcode;
use mprdma_spec::wire::frame::Frame;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is lost of one packet.
#[derive(Clone, Debug, Default)]
pub struct Loss {
    /// The card that sends it; the other one answers.
    pub from: usize,
    /// PSN of the packet.
    pub psn: u32,
    /// Which of its transmissions, from 1.
    pub data: Vec<u32>,
    /// Which of the ACKs that answer it, from 1.
    pub acks: Vec<u32>,
}

/// What is lost of a packet, as one of several cases.
pub struct Case {
    /// For people.
    pub name: &'static str,
    /// Transmissions, from 1.
    pub data: &'static [u32],
    /// ACKs, from 1.
    pub acks: &'static [u32],
    /// How many of either come up to be lost, of the ACKs at least.
    pub lost: (u32, u32),
}

/// Every kind of loss.
pub const CASES: [Case; 5] = [
    Case {
        name: "the packet",
        data: &[1],
        acks: &[],
        lost: (1, 0),
    },
    Case {
        name: "the packet and its retransmission",
        data: &[1, 2],
        acks: &[],
        lost: (2, 0),
    },
    Case {
        name: "its ACK",
        data: &[],
        acks: &[1],
        lost: (0, 1),
    },
    Case {
        name: "the packet and the ACK of its retransmission",
        data: &[1],
        acks: &[1],
        lost: (1, 1),
    },
    // A retransmission, and with it a second ACK, is only needed where no later ACK covers the first.
    Case {
        name: "its first two ACKs",
        data: &[],
        acks: &[1, 2],
        lost: (0, 1),
    },
];

#[derive(Default)]
struct State {
    loss: Loss,
    /// Transmissions and ACKs seen of each PSN of that card.
    seen: HashMap<u32, (u32, u32)>,
    lost: (u32, u32),
}

/// The tap; clones are the same.
#[derive(Clone, Default)]
pub struct Lose(Arc<Mutex<State>>);

impl Lose {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on loses this, and counts anew.
    pub fn set(&self, loss: Loss) {
        *self.state() = State {
            loss,
            ..State::default()
        };
    }

    /// Packets and ACKs lost since then.
    pub fn lost(&self) -> (u32, u32) {
        self.state().lost
    }

    /// Transmissions of a packet since then, and ACKs that answered it.
    pub fn seen(&self, psn: u32) -> (u32, u32) {
        self.state().seen.get(&psn).copied().unwrap_or_default()
    }
}

impl Tap for Lose {
    fn crossing(&mut self, crossing: &Crossing<'_>) -> bool {
        let mut state = self.state();
        let Ok(frame) = Frame::parse(crossing.frame) else {
            return false;
        };
        let Node::Card(card) = crossing.from else {
            return false;
        };
        let data = opcode::is_mp_data(frame.bth.opcode);
        let acks = frame.bth.opcode == opcode::MP_ACK;
        if !(data && card == state.loss.from || acks && card != state.loss.from) {
            return false;
        }
        let psn = frame.bth.psn.value();
        let counts = state.seen.entry(psn).or_default();
        let count = if data { &mut counts.0 } else { &mut counts.1 };
        *count += 1;
        let count = *count;
        let which = if data {
            &state.loss.data
        } else {
            &state.loss.acks
        };
        let lose = psn == state.loss.psn && which.contains(&count);
        let lost = if data {
            &mut state.lost.0
        } else {
            &mut state.lost.1
        };
        *lost += u32::from(lose);
        lose
    }
}
