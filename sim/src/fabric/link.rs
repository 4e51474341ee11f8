//! A directed link: an egress queue with ECN marking and tail drop, a wire with a rate and a delay, and faults.

use super::fault::Faults;
use super::packet;
use crate::scenario::{LinkRule, Network};
use crate::time::{Ps, Rate, NS, WIRE_OVERHEAD};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use std::collections::VecDeque;

/// What passed a link since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LinkCounters {
    /// Frame bytes sent, without preamble, FCS and gap.
    pub bytes: u64,
    /// Packets sent.
    pub packets: u64,
    /// Packets marked CE on joining the queue.
    pub marks: u64,
    /// Packets that found the queue full.
    pub tail_drops: u64,
    /// Packets lost on the wire.
    pub losses: u64,
    /// Packets on the wire while the link was down.
    pub down_drops: u64,
    /// Packets dropped by their number or by a test's tap.
    pub chosen_drops: u64,
    /// Packets with a flipped bit.
    pub corrupted: u64,
    /// Packets that arrived twice.
    pub duplicated: u64,
    /// Packets held back.
    pub held: u64,
    /// Most packets seen in the queue.
    pub max_queue: u64,
}

impl LinkCounters {
    /// Packets that did not arrive, whatever the reason.
    pub fn drops(&self) -> u64 {
        self.tail_drops + self.losses + self.down_drops + self.chosen_drops
    }

    /// Adds the counters of another link; of the queues the longest counts.
    pub fn add(&mut self, other: &LinkCounters) {
        self.bytes += other.bytes;
        self.packets += other.packets;
        self.marks += other.marks;
        self.tail_drops += other.tail_drops;
        self.losses += other.losses;
        self.down_drops += other.down_drops;
        self.chosen_drops += other.chosen_drops;
        self.corrupted += other.corrupted;
        self.duplicated += other.duplicated;
        self.held += other.held;
        self.max_queue = self.max_queue.max(other.max_queue);
    }
}

/// A frame at the far end of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When the first bit is there.
    pub first_bit: Ps,
    /// When the last bit is there.
    pub last_bit: Ps,
    /// The frame, without FCS.
    pub frame: Vec<u8>,
}

/// A directed link.
#[derive(Clone, Debug)]
pub struct Link {
    /// Line rate.
    pub rate: Rate,
    /// Propagation delay.
    pub delay: Ps,
    /// Queue capacity, packets.
    pub queue_packets: usize,
    /// Queue capacity, bytes.
    pub queue_bytes: u64,
    /// A packet that joins more than so many is marked; 0 marks nothing.
    pub ecn_packets: usize,
    /// Faults.
    pub faults: Faults,
    /// Counters.
    pub counters: LinkCounters,
    /// Changes to come, in order of time.
    changes: VecDeque<(Ps, LinkRule)>,
    /// End of transmission and size of every packet queued or being sent.
    queue: VecDeque<(Ps, u64)>,
    queued_bytes: u64,
    free_at: Ps,
    rng: ChaCha8Rng,
}

impl Link {
    /// A link as the network's defaults say.
    pub fn new(network: &Network, rate: Rate, rng: ChaCha8Rng) -> Link {
        Link {
            rate,
            delay: network.delay_ns * NS,
            queue_packets: network.queue_packets,
            queue_bytes: network.queue_bytes,
            ecn_packets: network.ecn_packets,
            faults: Faults::default(),
            counters: LinkCounters::default(),
            changes: VecDeque::new(),
            queue: VecDeque::new(),
            queued_bytes: 0,
            free_at: 0,
            rng,
        }
    }

    /// Applies a rule. A new rate counts for packets that join the queue from now on.
    pub fn apply(&mut self, rule: &LinkRule) {
        let set = |to: &mut f64, from: Option<f64>| *to = from.unwrap_or(*to);
        if let Some(gbps) = rule.rate_gbps {
            self.rate = Rate::from_gbps(gbps);
        }
        if let Some(ns) = rule.delay_ns {
            self.delay = ns * NS;
        }
        self.queue_packets = rule.queue_packets.unwrap_or(self.queue_packets);
        self.queue_bytes = rule.queue_bytes.unwrap_or(self.queue_bytes);
        self.ecn_packets = rule.ecn_packets.unwrap_or(self.ecn_packets);
        set(&mut self.faults.loss, rule.loss);
        set(&mut self.faults.corrupt, rule.corrupt);
        set(&mut self.faults.duplicate, rule.duplicate);
        set(&mut self.faults.reorder, rule.reorder);
        if let Some(ns) = rule.reorder_ns {
            self.faults.set_reorder_ns(ns);
        }
        if let Some(intervals) = &rule.down_us {
            self.faults.set_down_us(intervals);
        }
        if let Some(numbers) = &rule.drop_nth {
            self.faults.drop_nth = numbers.iter().copied().collect();
        }
    }

    /// Applies a rule at that time, and cuts or repairs the link. Times must not go back.
    pub fn apply_at(&mut self, at: Ps, rule: LinkRule, down: Option<bool>) {
        if let Some(down) = down {
            self.faults.set_down(at, down);
        }
        self.changes.push_back((at, rule));
    }

    /// The time of the last change to come.
    pub fn last_change(&self) -> Option<Ps> {
        self.changes.back().map(|&(at, _)| at)
    }

    /// The shortest delay from now on.
    pub fn shortest_delay(&self) -> Ps {
        let coming = self.changes.iter().filter_map(|(_, rule)| rule.delay_ns);
        coming.map(|ns| ns * NS).fold(self.delay, Ps::min)
    }

    /// Brings the changes up to date. Packets reach a link in order of time, so that each meets what holds when it
    /// comes: when it joins the queue, or when a card begins to send it.
    fn catch_up(&mut self, now: Ps) {
        while self.changes.front().is_some_and(|&(at, _)| at <= now) {
            if let Some((_, rule)) = self.changes.pop_front() {
                self.apply(&rule);
            }
        }
    }

    /// A switch forwards `frame` to this link at `now`: it queues, may be marked or dropped, and arrives 0 to 2 times.
    pub fn forward(&mut self, now: Ps, mut frame: Vec<u8>) -> Vec<Arrival> {
        self.catch_up(now);
        while self.queue.front().is_some_and(|&(end, _)| end <= now) {
            self.queued_bytes -= self.queue.pop_front().map_or(0, |(_, bytes)| bytes);
        }
        let bytes = frame.len() as u64;
        if self.queue.len() >= self.queue_packets || self.queued_bytes + bytes > self.queue_bytes {
            self.counters.tail_drops += 1;
            return vec![];
        }
        if self.ecn_packets > 0
            && self.queue.len() > self.ecn_packets
            && packet::mark_ce(&mut frame)
        {
            self.counters.marks += 1;
        }
        let start = self.free_at.max(now);
        self.free_at = start + self.rate.time(bytes + WIRE_OVERHEAD);
        self.queue.push_back((self.free_at, bytes));
        self.queued_bytes += bytes;
        self.counters.max_queue = self.counters.max_queue.max(self.queue.len() as u64);
        let end = start + self.rate.time(bytes + WIRE_OVERHEAD - crate::time::GAP);
        self.wire(start, end, frame)
    }

    /// The wire takes a frame of a card's MAC, which has no queue of the fabric before it.
    pub fn carry(&mut self, start: Ps, end: Ps, frame: Vec<u8>) -> Vec<Arrival> {
        self.catch_up(start);
        self.wire(start, end, frame)
    }

    /// The bits of a frame leave between `start` and `end`.
    fn wire(&mut self, start: Ps, end: Ps, mut frame: Vec<u8>) -> Vec<Arrival> {
        self.counters.packets += 1;
        self.counters.bytes += frame.len() as u64;
        if self.faults.is_down(start, end) {
            self.counters.down_drops += 1;
            return vec![];
        }
        if self.faults.drop_nth.contains(&self.counters.packets) {
            self.counters.chosen_drops += 1;
            return vec![];
        }
        let fate = self.faults.draw(&mut self.rng, frame.len());
        if fate.lost {
            self.counters.losses += 1;
            return vec![];
        }
        if let Some(bit) = fate.flipped {
            frame[bit / 8] ^= 1 << (bit % 8);
            self.counters.corrupted += 1;
        }
        self.counters.held += u64::from(fate.held > 0);
        let late = self.delay + fate.held;
        let arrival = Arrival {
            first_bit: start + late,
            last_bit: end + late,
            frame,
        };
        if !fate.doubled {
            return vec![arrival];
        }
        self.counters.duplicated += 1;
        let again = end - start;
        let twin = Arrival {
            first_bit: arrival.first_bit + again,
            last_bit: arrival.last_bit + again,
            frame: arrival.frame.clone(),
        };
        vec![arrival, twin]
    }
}

#[cfg(test)]
mod tests {
    use super::super::packet::tests::udp;
    use super::*;
    use crate::scenario::{Ecmp, Kind};
    use rand_chacha::rand_core::SeedableRng;

    fn link(gbps: f64, change: impl FnOnce(&mut LinkRule)) -> Link {
        let network = Network {
            kind: Kind::LeafSpine,
            cards: 2,
            leaves: 1,
            spines: 1,
            card_rate_gbps: 100.0,
            spine_rate_gbps: gbps,
            delay_ns: 100,
            queue_packets: 8,
            queue_bytes: 1 << 20,
            ecn_packets: 5,
            ecmp: Ecmp::FiveTuple,
        };
        let mut link = Link::new(
            &network,
            Rate::from_gbps(gbps),
            ChaCha8Rng::seed_from_u64(1),
        );
        let mut rule = LinkRule::default();
        change(&mut rule);
        link.apply(&rule);
        link
    }

    fn ce(a: &[Arrival]) -> bool {
        a[0].frame[15] & 3 == 3
    }

    #[test]
    fn packets_leave_at_the_line_rate() {
        let mut l = link(25.0, |_| ());
        let one = l.forward(0, udp(1, 2, 3, 1000));
        let two = l.forward(0, udp(1, 2, 3, 1000));
        assert_eq!(
            (one[0].first_bit, one[0].last_bit),
            (100_000, 100_000 + 1012 * 320)
        );
        assert_eq!(two[0].first_bit - one[0].first_bit, 1024 * 320);
        let mut slow = link(25.0, |r| r.rate_gbps = Some(6.25));
        slow.forward(0, udp(1, 2, 3, 1000));
        assert_eq!(
            slow.forward(0, udp(1, 2, 3, 1000))[0].first_bit,
            100_000 + 1024 * 1280
        );
    }

    #[test]
    fn a_packet_that_joins_more_than_the_threshold_is_marked_and_one_too_many_is_dropped() {
        let mut l = link(25.0, |_| ());
        for n in 0..8 {
            let a = l.forward(0, udp(1, 2, 3, 1000));
            assert_eq!(ce(&a), n > 5, "packet that found {n}");
        }
        assert!(l.forward(0, udp(1, 2, 3, 1000)).is_empty());
        assert_eq!(
            (
                l.counters.tail_drops,
                l.counters.marks,
                l.counters.max_queue
            ),
            (1, 2, 8)
        );
        assert!(
            !ce(&l.forward(l.free_at, udp(1, 2, 3, 1000))),
            "an empty queue marks nothing"
        );
    }

    #[test]
    fn the_byte_limit_drops_too() {
        let mut l = link(25.0, |r| r.queue_bytes = Some(2500));
        assert_eq!(
            l.forward(0, udp(1, 2, 3, 1000)).len() + l.forward(0, udp(1, 2, 3, 1000)).len(),
            2
        );
        assert!(l.forward(0, udp(1, 2, 3, 1000)).is_empty());
        assert_eq!(l.forward(0, udp(1, 2, 3, 400)).len(), 1);
    }

    #[test]
    fn each_fault_hits_as_often_as_told_and_is_counted() {
        type Case = (&'static str, fn(&mut LinkRule), fn(&LinkCounters) -> u64);
        let cases: [Case; 4] = [
            ("loss", |r| r.loss = Some(0.1), |c| c.losses),
            ("corrupt", |r| r.corrupt = Some(0.1), |c| c.corrupted),
            ("duplicate", |r| r.duplicate = Some(0.1), |c| c.duplicated),
            (
                "reorder",
                |r| (r.reorder, r.reorder_ns) = (Some(0.1), Some(500)),
                |c| c.held,
            ),
        ];
        for (name, change, count) in cases {
            let mut l = link(25.0, change);
            let (clean, mut arrived, mut damaged, mut late) = (udp(1, 2, 3, 500), 0, 0, 0);
            for n in 0..2000u64 {
                let start = n * 1_000_000;
                let all = l.forward(start, clean.clone());
                arrived += all.len() as u64;
                damaged += all.iter().filter(|a| a.frame != clean).count() as u64;
                late += all
                    .first()
                    .map_or(0, |a| u64::from(a.first_bit > start + 100_000));
            }
            let hits = count(&l.counters);
            assert!((150..250).contains(&hits), "{name}: {hits} of 2000");
            let expected = match name {
                "loss" => (2000 - hits, 0, 0),
                "corrupt" => (2000, hits, 0),
                "duplicate" => (2000 + hits, 0, 0),
                _ => (2000, 0, hits),
            };
            assert_eq!((arrived, damaged, late), expected, "{name}");
        }
    }

    #[test]
    fn a_link_is_down_in_its_intervals_only() {
        let mut l = link(25.0, |r| r.down_us = Some(vec![[10, 20]]));
        let at = |l: &mut Link, us: u64| l.forward(us * 1_000_000, udp(1, 2, 3, 100)).len();
        assert_eq!([9, 10, 15, 20].map(|t| at(&mut l, t)), [1, 0, 0, 1]);
        l.faults.cut = true;
        assert_eq!((at(&mut l, 30), l.counters.down_drops), (0, 3));
    }

    #[test]
    fn a_packet_is_lost_if_the_link_is_down_for_any_moment_of_it() {
        // 1012 bytes at 25 Gb/s take 324 ns.
        for (cut_at, repaired_at, arrives) in
            [(0, 1, 0), (100, 101, 0), (323, 999, 0), (325, 999, 1)]
        {
            let mut l = link(25.0, |_| ());
            l.faults.set_down(cut_at * NS, true);
            l.faults.set_down(cut_at * NS + 1, true);
            l.faults.set_down(repaired_at * NS, false);
            l.faults.set_down(repaired_at * NS + 1, false);
            assert_eq!(
                l.forward(0, udp(1, 2, 3, 1000)).len(),
                arrives,
                "down at {cut_at} ns"
            );
            assert_eq!(l.forward(repaired_at * NS, udp(1, 2, 3, 1000)).len(), 1);
        }
    }

    #[test]
    fn a_change_holds_for_packets_that_come_at_its_time_or_later() {
        let mut l = link(25.0, |_| ());
        let rule = |change: fn(&mut LinkRule)| {
            let mut rule = LinkRule::default();
            change(&mut rule);
            rule
        };
        l.apply_at(1_000_000, rule(|r| r.delay_ns = Some(40)), None);
        l.apply_at(
            2_000_000,
            rule(|r| (r.delay_ns, r.rate_gbps) = (Some(300), Some(6.25))),
            None,
        );
        assert_eq!(l.shortest_delay(), 40 * NS);
        let delay = |l: &mut Link, now| {
            let a = l.forward(now, udp(1, 2, 3, 100));
            (a[0].first_bit - now, a[0].last_bit - a[0].first_bit)
        };
        assert_eq!(delay(&mut l, 999_999), (100_000, 112 * 320));
        assert_eq!(
            delay(&mut l, 1_000_000),
            (40_000 + 999_999 + 124 * 320 - 1_000_000, 112 * 320)
        );
        assert_eq!(delay(&mut l, 2_000_000), (300_000, 112 * 1280));
        assert_eq!(l.shortest_delay(), 300 * NS);
    }

    #[test]
    fn packets_are_lost_by_number() {
        let mut l = link(25.0, |r| r.drop_nth = Some(vec![2, 5, 9]));
        let arrived: Vec<usize> = (0..10u64)
            .map(|n| l.forward(n * 1_000_000, udp(1, 2, 3, 100)).len())
            .collect();
        assert_eq!(arrived, [1, 0, 1, 1, 0, 1, 1, 1, 0, 1]);
        assert_eq!((l.counters.chosen_drops, l.counters.drops()), (3, 3));
    }
}
