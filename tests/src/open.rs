//! How many READs and ATOMICs of card 0 are open at a time.

use crate::eye::Eye;
use crate::rig::Rig;
use mprdma_spec::wire::bth::opcode;
use std::collections::HashSet;

/// What card 0 has requested for the first time and what had come back by then.
#[derive(Default)]
pub struct Open {
    requested: HashSet<u32>,
    ended: HashSet<u32>,
    /// Most that were open.
    pub most: usize,
}

impl Open {
    /// Begins to count.
    pub fn watch(rig: &Rig) -> Eye<Open> {
        Eye::open_both(
            rig,
            |open: &mut Open, card, frame| {
                let requests = [
                    opcode::MP_READ_REQUEST,
                    opcode::MP_FETCH_ADD,
                    opcode::MP_COMPARE_SWAP,
                ];
                if card == 0 && requests.contains(&frame.bth.opcode) {
                    open.requested.insert(frame.bth.psn.value());
                    open.most = open.most.max(open.requested.len() - open.ended.len());
                }
                false
            },
            |open, card, frame| {
                let last = [
                    opcode::MP_READ_RESPONSE_LAST,
                    opcode::MP_READ_RESPONSE_ONLY,
                    opcode::MP_ATOMIC_ACK,
                ];
                if card == 0 && last.contains(&frame.bth.opcode) {
                    open.ended.insert(frame.bth.psn.value());
                }
            },
        )
    }

    /// Requests, and those that have ended.
    pub fn total(&self) -> (usize, usize) {
        (self.requested.len(), self.ended.len())
    }
}
