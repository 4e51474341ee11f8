//! Asks whether the peer is still there while a queue pair waits for answers only (protocol section 7 rule 9).

use super::events::Event;
use super::transmit::{Kind, Message};
use super::StandIn;
use crate::time::Ps;
use mprdma_spec::config::KEEPALIVE_CYCLES_LOG2;

impl StandIn {
    /// A READ or ATOMIC of a queue pair is launched: its turns begin.
    pub(super) fn watch(&mut self, qpn: u16) {
        let queue = &mut self.tables.qps[usize::from(qpn)].send;
        if !std::mem::replace(&mut queue.watched, true) {
            self.schedule(self.next_turn(qpn), Event::Turn(qpn));
        }
    }

    /// All queue pairs have their turns one after the other, and then again.
    fn next_turn(&self, qpn: u16) -> Ps {
        let slice = self.cycles(1 << KEEPALIVE_CYCLES_LOG2);
        let round = slice << self.config.qp_log2;
        let first = self.born + Ps::from(qpn) * slice;
        first + (self.now + round).saturating_sub(first) / round * round
    }

    /// A queue pair that has waited since its last turn sends an empty WRITE.
    pub(super) fn turn(&mut self, qpn: u16) {
        let queue = &mut self.tables.qps[usize::from(qpn)].send;
        queue.watched = queue.has_open_reads();
        if !queue.watched {
            return;
        }
        let waits = queue.has_nothing_under_way();
        if waits && queue.waited {
            let ask = Message {
                kind: Kind::Keepalive,
                packets: 1,
                ..Message::default()
            };
            self.launch(qpn, ask);
        } else {
            queue.waited = waits;
        }
        self.schedule(self.next_turn(qpn), Event::Turn(qpn));
    }
}
