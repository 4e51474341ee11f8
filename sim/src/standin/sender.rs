//! The sender engine: the model's, with timers, counters and what its outputs reach.

use super::events::Event;
use super::timing::BACKLOG;
use super::StandIn;
use crate::time::Ps;
use mprdma_model::sender::{self, Counts, Env, SenderEvent, SenderOutputs};
use mprdma_spec::counter::Counter;
use mprdma_spec::params::{GRANTS_CROWDED, GRANTS_ENOUGH, GRANTS_FULL, GRANTS_PER_SLOW_LOG2};

impl StandIn {
    /// Fetched work: `packets` more packets may be sent; `sync` if they are a synchronised message.
    pub(super) fn grant_work(&mut self, qpn: u16, packets: u32, sync: bool) {
        self.sender_event(qpn, &SenderEvent::Work { packets, sync });
    }

    /// Lets `event` happen to the sender half of a queue pair.
    pub(super) fn sender_event(&mut self, qpn: u16, event: &SenderEvent) {
        let waiting = self.waiting_grants();
        let env = Env {
            now: self.tick(),
            rnd: self.random(),
            backlog: waiting >= BACKLOG || self.port.holds_back(self.now),
            crowded: waiting >= GRANTS_CROWDED && *event != SenderEvent::Burst,
            full: waiting >= GRANTS_FULL,
            waiting_slow: (waiting >> GRANTS_PER_SLOW_LOG2) as u8,
            slots: self.config.bitmap_slots as u32,
        };
        let context = &mut self.tables.qps[usize::from(qpn)].sender;
        let (next, out) = sender::step(context, event, &env);
        *context = next;
        self.apply(qpn, &out);
    }

    /// The burst timer of a queue pair fires; it waits its turn while enough grants wait.
    pub(super) fn burst(&mut self, qpn: u16) {
        self.tables.bursts.push_back(qpn);
        self.serve_bursts();
    }

    /// Lets burst timers that fired have their turn.
    pub(super) fn serve_bursts(&mut self) {
        while self.waiting_grants() < GRANTS_ENOUGH {
            let Some(qpn) = self.tables.bursts.pop_front() else {
                return;
            };
            self.sender_event(qpn, &SenderEvent::Burst);
        }
    }

    fn apply(&mut self, qpn: u16, out: &SenderOutputs) {
        if let Some(ticks) = out.arm_burst {
            let at = self.after(ticks, self.clock.tick());
            self.schedule(at, Event::Burst(qpn));
        }
        if let Some(units) = out.arm_rto {
            let at = self.after(units, self.clock.slow());
            self.schedule(at, Event::Timeout(qpn));
        }
        self.count_sender(&out.counts);
        self.note_sender(qpn, out);
        for grant in out.grants.into_iter().flatten() {
            self.grant(qpn, grant);
        }
        if out.sync_passed {
            self.sync_passed(qpn);
        }
        if let Some(progress) = out.progress {
            self.progress(qpn, progress);
        }
    }

    /// When a timer wheel that turns every `unit` fires: with the `count`th turn from now, at least the next.
    fn after(&self, count: u8, unit: Ps) -> Ps {
        let turns = (self.now.saturating_sub(self.born)) / unit + u64::from(count.max(1));
        self.born + turns * unit
    }

    fn count_sender(&mut self, counts: &Counts) {
        for (counter, happened) in [
            (Counter::EcnEchoes, counts.ecn_echo),
            (Counter::Prunes, counts.prune),
            (Counter::WindowNaks, counts.window_nak),
            (Counter::SyncNaks, counts.sync_nak),
            (Counter::GhostAcks, counts.ghost),
            (Counter::BadAcks, counts.bad_ack),
            (Counter::Timeouts, counts.timeout),
            (Counter::Recoveries, counts.recovery),
        ] {
            self.count_if(counter, happened);
        }
        self.count(Counter::TxProbes, counts.probes.into());
    }
}
