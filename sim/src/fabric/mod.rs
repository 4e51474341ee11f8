//! The network between the cards: a packet-level, event-driven model.
//!
//! A switch stores a frame, looks its destination up and forwards it to the egress queue of one link. Time never goes
//! backwards; events at the same picosecond are ordered by link and then by age, so the result does not depend on how
//! the caller cuts time into windows.

mod ecmp;
mod fault;
mod link;
mod packet;
mod stats;
mod tap;
mod topology;

pub use fault::Faults;
pub use link::{Arrival, Link, LinkCounters};
pub use stats::{FabricStats, LinkStats, PathStats};
pub use tap::{Crossing, Tap};
pub use topology::{Node, Topology};

use crate::scenario::{Ecmp, Event, LinkRule, Scenario};
use crate::time::{Ps, Rate};
use mprdma_spec::wire::udp::ROCE_PORT;
use packet::Mac;
use rand_chacha::rand_core::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::Ipv4Addr;

/// A frame that reaches a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The card.
    pub card: usize,
    /// The frame and its time.
    pub arrival: Arrival,
}

/// A frame whose last bit reaches a switch. Ordered by time, link, age.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Hop {
    at: Ps,
    link: usize,
    age: u64,
    target: Option<usize>,
    frame: Vec<u8>,
}

/// The network.
pub struct Fabric {
    topology: Topology,
    links: Vec<Link>,
    hops: BinaryHeap<Reverse<Hop>>,
    deliveries: Vec<Delivery>,
    age: u64,
    ecmp: Ecmp,
    leaf_seeds: Vec<u64>,
    known: HashMap<Mac, usize>,
    known_ip: HashMap<[u8; 16], usize>,
    flooded: u64,
    flood_copies: u64,
    delivered: u64,
    tap: Option<Box<dyn Tap>>,
}

impl Fabric {
    /// Builds the network of a scenario. The same seed gives the same faults and the same paths.
    pub fn new(scenario: &Scenario, seed: u64) -> Fabric {
        let network = &scenario.network;
        let topology = Topology::new(network);
        let mut links: Vec<Link> = topology
            .links()
            .iter()
            .enumerate()
            .map(|(i, ends)| {
                let inner = matches!(ends, (Node::Spine(_), _) | (_, Node::Spine(_)));
                let gbps = if inner {
                    network.spine_rate_gbps
                } else {
                    network.card_rate_gbps
                };
                let mut rng = ChaCha8Rng::seed_from_u64(seed);
                rng.set_stream(i as u64);
                Link::new(network, Rate::from_gbps(gbps), rng)
            })
            .collect();
        for rule in &scenario.links {
            for i in topology.matching(&rule.from, &rule.to, rule.both) {
                links[i].apply(rule);
            }
        }
        let mut fabric = Fabric {
            leaf_seeds: (0..topology.leaves)
                .map(|leaf| ecmp::leaf_seed(seed, leaf))
                .collect(),
            topology,
            links,
            hops: BinaryHeap::new(),
            deliveries: vec![],
            age: 0,
            ecmp: network.ecmp,
            known: HashMap::new(),
            known_ip: HashMap::new(),
            flooded: 0,
            flood_copies: 0,
            delivered: 0,
            tap: None,
        };
        fabric.schedule(&scenario.events, 0);
        fabric
    }

    /// Adds events whose times count from `start`; says how many links they change in all. An event does not overtake
    /// the last one that its link already has.
    pub fn schedule(&mut self, events: &[Event], start: Ps) -> usize {
        let mut events: Vec<_> = events.iter().collect();
        events.sort_by_key(|event| event.at());
        let mut changed = 0;
        for event in events {
            for i in self.topology.matching(&event.from, &event.to, event.both) {
                let at = (start + event.at()).max(self.links[i].last_change().unwrap_or(0));
                self.links[i].apply_at(at, event.rule(), event.down);
                changed += 1;
            }
        }
        changed
    }

    /// Lets `tap` see every frame, and drop what it likes.
    pub fn set_tap(&mut self, tap: Box<dyn Tap>) {
        self.tap = Some(tap);
    }

    /// The nodes and links.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Rate of the link from a card, at which its MAC sends.
    pub fn card_rate(&self, card: usize) -> Rate {
        self.links[self.card_link(card)].rate
    }

    /// Shortest delay of any link to or from a card, now or later: how far a card may run ahead of the network.
    pub fn lookahead(&self) -> Ps {
        let at_card = |ends: &(Node, Node)| matches!(ends, (Node::Card(_), _) | (_, Node::Card(_)));
        let delays = self
            .topology
            .links()
            .iter()
            .zip(&self.links)
            .filter(|(ends, _)| at_card(ends));
        delays
            .map(|(_, link)| link.shortest_delay())
            .min()
            .expect("every network has cards")
    }

    /// The spine that the leaf of `card` chooses for RoCEv2 packets between two addresses with this UDP source port. Tests
    /// aim a virtual path with it.
    pub fn spine_of(
        &self,
        card: usize,
        source: Ipv4Addr,
        destination: Ipv4Addr,
        port: u16,
    ) -> usize {
        let mut flow = packet::Flow {
            protocol: 17,
            ports: (port, ROCE_PORT),
            ..packet::Flow::default()
        };
        flow.source[..4].copy_from_slice(&source.octets());
        flow.destination[..4].copy_from_slice(&destination.octets());
        let seed = self.leaf_seeds[self.topology.leaf_of(card)];
        ecmp::spine(&flow, seed, self.ecmp, self.topology.spines)
    }

    /// Changes links while the network runs; says how many matched. `down` cuts or repairs them.
    pub fn change(&mut self, rule: &LinkRule, down: Option<bool>) -> usize {
        let matching = self.topology.matching(&rule.from, &rule.to, rule.both);
        for &i in &matching {
            self.links[i].apply(rule);
            if let Some(down) = down {
                self.links[i].faults.cut = down;
            }
        }
        matching.len()
    }

    /// A card's MAC sent a frame between `start` and `end`.
    pub fn send(&mut self, card: usize, start: Ps, end: Ps, frame: Vec<u8>) {
        self.learn(card, &frame);
        let link = self.card_link(card);
        if self.dropped(link, start, &frame) {
            return;
        }
        let arrivals = self.links[link].carry(start, end, frame);
        self.arrive(link, None, arrivals);
    }

    /// Handles everything that happens before `end` and returns the frames that reach cards, in order of creation.
    pub fn run_until(&mut self, end: Ps) -> Vec<Delivery> {
        while self.hops.peek().is_some_and(|Reverse(e)| e.at < end) {
            if let Some(Reverse(hop)) = self.hops.pop() {
                self.route(hop);
            }
        }
        self.take_deliveries()
    }

    /// Frames that reach cards, since the last call.
    pub fn take_deliveries(&mut self) -> Vec<Delivery> {
        std::mem::take(&mut self.deliveries)
    }

    /// When the next frame reaches a switch.
    pub fn next_event(&self) -> Option<Ps> {
        self.hops.peek().map(|Reverse(e)| e.at)
    }

    /// What passed every link and every path.
    pub fn stats(&self) -> FabricStats {
        let flood = (self.flooded, self.flood_copies);
        FabricStats::new(&self.topology, &self.links, flood, self.delivered)
    }

    /// Whether the tap drops the frame that comes to the link.
    fn dropped(&mut self, link: usize, at: Ps, frame: &[u8]) -> bool {
        let Some(tap) = &mut self.tap else {
            return false;
        };
        let (from, to) = self.topology.links()[link];
        let drop = tap.crossing(&Crossing {
            at,
            from,
            to,
            frame,
        });
        self.links[link].counters.chosen_drops += u64::from(drop);
        drop
    }

    fn learn(&mut self, card: usize, frame: &[u8]) {
        if let Some((_, source)) = packet::macs(frame) {
            self.known.insert(source, card);
        }
        if let Some(flow) = packet::flow(frame) {
            self.known_ip.insert(flow.source, card);
        }
    }

    /// The card with the frame's destination address. An address is known from the first frame its card sends.
    fn target(&self, frame: &[u8]) -> Option<usize> {
        let (destination, _) = packet::macs(frame)?;
        let by_ip = || self.known_ip.get(&packet::flow(frame)?.destination);
        self.known.get(&destination).or_else(by_ip).copied()
    }

    /// A switch forwards a frame; the first switch sends one to an unknown address to every other card.
    fn route(&mut self, hop: Hop) {
        let (from, here) = self.topology.links()[hop.link];
        if let Some(card) = hop.target.or_else(|| self.target(&hop.frame)) {
            return self.forward(hop.at, here, card, hop.frame);
        }
        self.flooded += 1;
        let others = (0..self.topology.cards).filter(|&card| from != Node::Card(card));
        self.flood_copies += (others.count() as u64).saturating_sub(1);
        for card in (0..self.topology.cards).filter(|&card| from != Node::Card(card)) {
            self.forward(hop.at, here, card, hop.frame.clone());
        }
    }

    fn forward(&mut self, now: Ps, here: Node, card: usize, frame: Vec<u8>) {
        let home = self.topology.leaf_of(card);
        let next = match here {
            Node::Leaf(leaf) if leaf == home => Node::Card(card),
            Node::Leaf(leaf) => Node::Spine(self.spine(leaf, &frame)),
            _ => Node::Leaf(home),
        };
        let link = self
            .topology
            .link(here, next)
            .expect("leaves and spines are fully meshed");
        if self.dropped(link, now, &frame) {
            return;
        }
        let arrivals = self.links[link].forward(now, frame);
        self.arrive(link, Some(card), arrivals);
    }

    fn arrive(&mut self, link: usize, target: Option<usize>, arrivals: Vec<Arrival>) {
        let (_, to) = self.topology.links()[link];
        for arrival in arrivals {
            match to {
                Node::Card(card) => self.deliver(card, arrival),
                _ => {
                    self.age += 1;
                    let (at, age) = (arrival.last_bit, self.age);
                    self.hops.push(Reverse(Hop {
                        at,
                        link,
                        age,
                        target,
                        frame: arrival.frame,
                    }));
                }
            }
        }
    }

    /// On a direct wire a frame is known only once it is sent, so it is handed over whole, one frame time late.
    fn deliver(&mut self, card: usize, mut arrival: Arrival) {
        if self.topology.leaves == 0 {
            let shift = arrival.last_bit - arrival.first_bit;
            arrival.first_bit += shift;
            arrival.last_bit += shift;
        }
        self.delivered += 1;
        if let Some(tap) = &mut self.tap {
            tap.delivered(card, &arrival.frame);
        }
        self.deliveries.push(Delivery { card, arrival });
    }

    fn spine(&self, leaf: usize, frame: &[u8]) -> usize {
        let flow = packet::flow(frame).unwrap_or_default();
        ecmp::spine(
            &flow,
            self.leaf_seeds[leaf],
            self.ecmp,
            self.topology.spines,
        )
    }

    fn card_link(&self, card: usize) -> usize {
        let to = match self.topology.leaves {
            0 => Node::Card(1 - card),
            _ => Node::Leaf(self.topology.leaf_of(card)),
        };
        self.topology
            .link(Node::Card(card), to)
            .expect("every card has a link")
    }
}

#[cfg(test)]
mod tests;
