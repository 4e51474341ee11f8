//! Everything random of one scenario.

use crate::rig::{PairAttr, US};
use mprdma_host::verbs::{MultiPath, RtsAttr, Vlan};
use mprdma_sim::scenario::{Event, Scenario};
use mprdma_sim::time::{Ps, NS};
use mprdma_spec::config::{CYCLES_PER_TICK, TICKS_PER_SLOW};
use mprdma_spec::params::ATOMIC_BYTES;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Packets of all messages together, about.
const PACKETS: usize = 1200;
/// Payload bytes of all messages together, about.
const BYTES: usize = 600_000;
/// Counters of each card, which all queue pairs share.
pub const COUNTERS: usize = 3;
/// Most packets of one message.
const LONGEST: usize = 70;
/// Unit of the retransmission timeout.
const SLOW: Ps = (CYCLES_PER_TICK * TICKS_PER_SLOW) as Ps * 4 * NS;
/// Timeouts in a row before a queue pair gives up, and its waits up to then in units of the first: the multiplier
/// doubles up to 64, and the eighth timeout in a row is the end.
const RETRIES: u8 = 7;
const HORIZON: Ps = 1 + 2 + 4 + 8 + 16 + 32 + 64 + 64;

/// A message.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// Bytes.
    pub length: usize,
    /// Where it comes from, bytes into the sender's memory.
    pub source: usize,
    /// Where it goes, bytes into the receiver's memory.
    pub target: usize,
    /// A READ or an ATOMIC: the sender of the flow asks, and its peer has the data.
    pub reads: bool,
    /// An ATOMIC, which adds.
    pub adds: Option<Add>,
    /// With immediate data, which take a receive WQE.
    pub imm: Option<u32>,
    /// Makes a completion. The last message of a flow always does.
    pub signaled: bool,
    /// Flagged SYNC.
    pub sync: bool,
    /// Flagged FENCE.
    pub fence: bool,
    /// Goes where the message before it goes, which must not be seen after it. Only with SYNC.
    pub overwrites: bool,
    /// The application writes over the data once it knows that they are there.
    pub reused: bool,
}

/// A fetch and add to a counter of the peer.
#[derive(Clone, Copy, Debug)]
pub struct Add {
    /// Which of the [`COUNTERS`].
    pub counter: usize,
    /// How much; odd, so that no few of them make nothing together.
    pub value: u64,
}

/// Messages in one direction of a pair.
#[derive(Clone, Debug)]
pub struct Flow {
    /// The pair.
    pub pair: usize,
    /// The card that sends; the other one receives.
    pub from: usize,
    /// Path MTU, bytes.
    pub mtu: usize,
    /// In order.
    pub messages: Vec<Message>,
    /// Most messages posted and not complete, at most 64.
    pub outstanding: usize,
    /// When receive requests are posted.
    pub receives_at: Ps,
}

impl Flow {
    /// Packets that a card sends for a message: the request of a READ is one.
    pub fn packets_from(&self, card: usize, message: &Message) -> u64 {
        if card == self.data(message).0 {
            message.length.div_ceil(self.mtu).max(1) as u64
        } else {
            u64::from(message.reads)
        }
    }

    /// The card that has the data of a message, and the one that gets them.
    pub fn data(&self, message: &Message) -> (usize, usize) {
        match message.reads {
            false => (self.from, 1 - self.from),
            true => (1 - self.from, self.from),
        }
    }
}

/// A whole scenario. Card 0 and card 1 hang off two leaves.
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// Its kind, for people.
    pub kind: &'static str,
    /// The network, without faults while the queue pairs are set up.
    pub scenario: Scenario,
    /// Faults from the beginning, and changes of them; times count from the first post.
    pub events: Vec<Event>,
    /// The pairs: `tx` is on card 0.
    pub pairs: Vec<PairAttr>,
    /// Messages.
    pub flows: Vec<Flow>,
    /// Bytes of each card's source and target memory.
    pub source_bytes: [usize; 2],
    /// The same of the target memory.
    pub target_bytes: [usize; 2],
    /// Time from the first post within which all must be complete.
    pub bound: Ps,
}

/// How hard the faults of a scenario are. What is lost on a round trip and how long paths are dead bound each other, so
/// that eight transmissions in a row do not all fail: a queue pair may then rightly give up.
#[derive(Clone, Copy)]
struct Hardness {
    kind: &'static str,
    /// Most loss of card 0's and of card 1's packets.
    loss: [f64; 2],
    corrupt: f64,
    /// Longest time for which paths are dead, in units of the least timeout.
    dead: f64,
    /// All paths may die at once.
    all: bool,
}

const KINDS: [Hardness; 3] = [
    // A packet and its ACK: 1 - 0.9 x 0.96 x 0.985^2 = 16 % lost at most; eight in a row 5e-7.
    Hardness {
        kind: "lossy",
        loss: [0.10, 0.04],
        corrupt: 0.015,
        dead: 0.0,
        all: false,
    },
    // 7 timeouts' time takes three of eight transmissions; the other five: (1 - 0.98^2 x 0.99^2)^5 = 7e-7.
    Hardness {
        kind: "failing",
        loss: [0.02, 0.02],
        corrupt: 0.01,
        dead: 7.0,
        all: false,
    },
    // 60 timeouts' time takes six of eight; nothing else is lost.
    Hardness {
        kind: "blackout",
        loss: [0.0, 0.0],
        corrupt: 0.0,
        dead: 60.0,
        all: true,
    },
];

impl Plan {
    /// The scenario of a seed.
    pub fn new(seed: u64) -> Plan {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let rng = &mut rng;
        let hardness = *[KINDS[0], KINDS[0], KINDS[1], KINDS[1], KINDS[2]]
            .choose(rng)
            .expect("not empty");
        let (scenario, spines) = network(rng);
        let floor: u32 = rng.random_range(1..=4);
        let least = Ps::from(floor) * SLOW;
        let events = faults(rng, &hardness, spines, least);
        let pairs = pairs(rng, floor);
        let mut plan = Plan {
            seed,
            kind: hardness.kind,
            scenario,
            events,
            flows: vec![],
            source_bytes: [0; 2],
            target_bytes: [0; 2],
            bound: 0,
            pairs,
        };
        plan.flows(rng);
        plan.bound = plan.bound(least);
        plan
    }

    /// The scenario of a seed with READs in place of some of its WRITEs.
    pub fn reading(seed: u64) -> Plan {
        let mut plan = Plan::new(seed);
        plan.replace(1, |_, _| ());
        plan
    }

    /// The scenario of a seed with READs in place of some of its WRITEs, and ATOMICs in place of some of both.
    pub fn adding(seed: u64) -> Plan {
        let mut plan = Plan::reading(seed);
        plan.replace(2, |rng, message| {
            message.adds = Some(Add {
                counter: rng.random_range(0..COUNTERS),
                value: rng.random::<u64>() | 1,
            });
            message.length = ATOMIC_BYTES;
        });
        plan
    }

    /// Makes some of the messages that others do not depend on fetch what they move, each to a place of its own, and changes
    /// them further. `stream` is that of the random numbers.
    fn replace(&mut self, stream: u64, change: impl Fn(&mut ChaCha8Rng, &mut Message)) {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(stream);
        for flow in &mut self.flows {
            let share = *[0.2, 0.5, 1.0].choose(&mut rng).expect("not empty");
            let next = &mut self.target_bytes[flow.from];
            for i in 0..flow.messages.len() {
                let overwritten = flow.messages.get(i + 1).is_some_and(|m| m.overwrites);
                let message = &mut flow.messages[i];
                let fixed = overwritten || message.overwrites || message.imm.is_some();
                if fixed || !rng.random_bool(share) {
                    continue;
                }
                change(&mut rng, message);
                (message.reads, message.target) = (true, *next);
                *next += message.length + rng.random_range(1..=16);
            }
        }
    }

    /// A queue pair that makes no progress for its retry horizon gives up. All must be complete one horizon after the
    /// last change of a link, counted with a timeout of the floor and two round trips, each as long as reordering,
    /// delay steps and full queues can make it.
    fn bound(&self, least: Ps) -> Ps {
        let held = |e: &Event| e.reorder_ns.unwrap_or(0) + 4 * e.delay_ns.unwrap_or(0);
        let worst = self.events.iter().map(held).max().unwrap_or(0);
        let queues = 10 * US;
        let timeout = least + 2 * (2 * worst * NS + queues);
        let last = self.events.iter().map(Event::at).max().unwrap_or(0);
        last + HORIZON * timeout
    }

    fn flows(&mut self, rng: &mut ChaCha8Rng) {
        let mut directions = vec![];
        for pair in 0..self.pairs.len() {
            match rng.random_range(0..3) {
                0 => directions.push((pair, 0)),
                1 => directions.push((pair, 1)),
                _ => directions.extend([(pair, 0), (pair, 1)]),
            }
        }
        let share = directions.len();
        for (pair, from) in directions {
            let flow = self.flow(rng, pair, from, (PACKETS / share, BYTES / share));
            self.flows.push(flow);
        }
        for card in 0..2 {
            self.source_bytes[card] = LONGEST * 4096 + 64;
            self.target_bytes[card] += 64;
        }
    }

    /// Messages until packets or bytes are used up.
    fn flow(
        &mut self,
        rng: &mut ChaCha8Rng,
        pair: usize,
        from: usize,
        (packets, bytes): (usize, usize),
    ) -> Flow {
        let mtu = self.pairs[pair].mtu as usize;
        let (with_sync, with_imm) = (rng.random_bool(0.4), rng.random_bool(0.6));
        let (mut packets, mut bytes) = (packets as isize, bytes as isize);
        let mut messages: Vec<Message> = vec![];
        let next = &mut self.target_bytes[1 - from];
        while packets > 0 && bytes > 0 || messages.is_empty() {
            let before = messages.last().copied();
            let sync = with_sync && rng.random_bool(0.2);
            let free = |m: &Message| !m.overwrites && !m.reused;
            let overwrites = sync && rng.random_bool(0.5) && before.is_some_and(|m| free(&m));
            let length = match (overwrites, before) {
                (true, Some(before)) => before.length,
                _ => length(rng, mtu, packets as usize),
            };
            *next += rng.random_range(1..=16);
            let target = match (overwrites, before) {
                (true, Some(before)) => before.target,
                _ => *next,
            };
            if !overwrites {
                *next += length;
            }
            messages.push(Message {
                length,
                source: rng.random_range(0..=LONGEST * 4096 - length),
                target,
                reads: false,
                adds: None,
                imm: (with_imm && rng.random_bool(0.4)).then(|| rng.random()),
                signaled: rng.random_bool(0.85),
                sync,
                fence: rng.random_bool(0.1),
                overwrites,
                reused: !with_sync && rng.random_bool(0.5),
            });
            packets -= length.div_ceil(mtu).max(1) as isize;
            bytes -= length as isize;
        }
        let outstanding = *[1, 4, 16, 64].choose(rng).expect("not empty");
        heard_of(&mut messages, outstanding);
        Flow {
            pair,
            from,
            mtu,
            messages,
            outstanding,
            receives_at: if rng.random_bool(0.1) {
                rng.random_range(0..60 * US)
            } else {
                0
            },
        }
    }
}

/// A send queue full of silent requests would never be heard of again: one in each `outstanding`, and the last one, is
/// signaled.
fn heard_of(messages: &mut [Message], outstanding: usize) {
    let (count, mut silent) = (messages.len(), 0);
    for (i, message) in messages.iter_mut().enumerate() {
        message.signaled |= silent + 1 == outstanding || i + 1 == count;
        silent = if message.signaled { 0 } else { silent + 1 };
    }
}

/// Mixed: nothing, a few bytes, around a packet's end, some packets, tens of packets.
fn length(rng: &mut ChaCha8Rng, mtu: usize, packets: usize) -> usize {
    let most = LONGEST.min(packets.max(1)) * mtu;
    let length = match rng.random_range(0..8) {
        0 => 0,
        1 | 2 => rng.random_range(1..=64),
        3 => rng.random_range(1..=4) * mtu + rng.random_range(0..=2) - 1,
        4 | 5 => rng.random_range(1..=4 * mtu),
        _ => rng.random_range(1..=most),
    };
    length.min(most)
}

fn network(rng: &mut ChaCha8Rng) -> (Scenario, usize) {
    let spines = rng.random_range(2..=4);
    let read_latency = rng.random_range(100..=1000);
    let small = rng.random_bool(0.25) && cfg!(feature = "l64");
    let text = format!(
        "name = \"chaos\"\n[network]\nkind = \"leaf-spine\"\ncards = 2\nleaves = 2\nspines = {spines}\n\
         card_rate_gbps = 100.0\nspine_rate_gbps = {}\ndelay_ns = {}\nqueue_packets = {}\necn_packets = {}\n\
         [card]\nbitmap_slots = {}\n\
         [pcie]\nread_latency_ns = {read_latency}\nwrite_latency_ns = {}\nreorder = {:.2}\njitter_ns = {}\n",
        [25, 50, 100].choose(rng).expect("not empty"),
        rng.random_range(60..=300),
        [16, 32, 256].choose(rng).expect("not empty"),
        [0, 4, 8].choose(rng).expect("not empty"),
        if small { 64 } else { 128 },
        rng.random_range(0..=read_latency),
        rng.random_range(0.0..0.5),
        rng.random_range(0..=300),
    );
    let file = std::path::Path::new("chaos");
    (
        Scenario::parse(&text, file).expect("a good scenario"),
        spines,
    )
}

fn pairs(rng: &mut ChaCha8Rng, floor: u32) -> Vec<PairAttr> {
    let count = match rng.random_range(0..20) {
        0..5 => 1,
        5..10 => rng.random_range(2..=3),
        10..15 => rng.random_range(4..=8),
        15..19 => rng.random_range(9..=24),
        _ => rng.random_range(25..=64),
    };
    let near_wrap = rng.random_bool(0.3);
    let pair = |_| {
        let psn = match near_wrap {
            true => (1 << 24) - rng.random_range(1..200),
            false => rng.random_range(0..1 << 24),
        };
        PairAttr {
            mtu: *[256, 256, 512, 1024, 2048, 4096]
                .choose(rng)
                .expect("not empty"),
            peer_mtu: None,
            ipv6: rng.random_bool(0.3),
            vlan: rng.random_bool(0.1).then(|| Vlan {
                id: rng.random_range(0..4095),
                priority: rng.random_range(0..8),
            }),
            psn,
            depth: 2048,
            rts: RtsAttr {
                timeout: floor,
                retry_cnt: RETRIES,
                multi_path: MultiPath {
                    vp_base: rng.random_range(1024..60_000),
                    vp_count: *[4, 16, 64].choose(rng).expect("not empty"),
                    delta: *[8, 16, 32].choose(rng).expect("not empty"),
                    probe: *[0, 655, 6553].choose(rng).expect("not empty"),
                    initial_window: rng.random_range(1..=64),
                    cwnd_max: *[16, 128, 512].choose(rng).expect("not empty"),
                    burst_interval: rng.random_range(1..=16),
                    alpha: *[0, 16, 64].choose(rng).expect("not empty"),
                    hole_repair: rng.random_bool(0.7),
                    vp_recycle: rng.random_bool(0.7),
                },
                ..RtsAttr::new(psn)
            },
            ..PairAttr::default()
        }
    };
    (0..count).map(pair).collect()
}

/// Faults of the links between leaves and spines. Each direction of a path has one faulty link, the one up to the
/// spine or the one down from it.
fn faults(rng: &mut ChaCha8Rng, hardness: &Hardness, spines: usize, least: Ps) -> Vec<Event> {
    let mut events = vec![];
    let lossy = rng.random_bool(0.8);
    let corrupt = rng.random_bool(0.5);
    let duplicate = rng.random_bool(0.5);
    let reorder = rng.random_bool(0.6);
    let one_path = rng.random_bool(0.3);
    for leaf in 0..2 {
        let spine = match one_path {
            true => format!("spine{}", rng.random_range(0..spines)),
            false => "spine*".to_string(),
        };
        let up = rng.random_bool(0.5);
        let (leaf_name, far) = (format!("leaf{leaf}"), format!("leaf{}", 1 - leaf));
        let (from, to) = if up { (leaf_name, spine) } else { (spine, far) };
        // Some of the most, by orders of magnitude; now and then the most itself.
        let mut part = |on: bool, most: f64| match on {
            true => {
                Some(most * f64::powi(10.0, -rng.random_range(0..2)) * rng.random_range(0.3..=1.0))
            }
            false => None,
        };
        let start = Event {
            from: from.clone(),
            to: to.clone(),
            loss: part(lossy, hardness.loss[leaf]),
            corrupt: part(corrupt, hardness.corrupt),
            duplicate: part(duplicate, 0.1),
            reorder: part(reorder, 0.3),
            ..Event::default()
        };
        let event = Event {
            reorder_ns: Some(rng.random_range(200..=15_000)),
            ..start.clone()
        };
        events.push(event);
        if lossy && rng.random_bool(0.3) {
            events.push(Event {
                at_us: rng.random_range(10.0..100.0),
                from,
                to,
                loss: Some(hardness.loss[leaf] * rng.random_range(0.0..=1.0)),
                ..Event::default()
            });
        }
    }
    if rng.random_bool(0.4) {
        let spine = format!("spine{}", rng.random_range(0..spines));
        let mut at_us = rng.random_range(0.0..40.0);
        for _ in 0..rng.random_range(1..=3) {
            events.push(Event {
                at_us,
                from: "leaf*".into(),
                to: spine.clone(),
                both: rng.random_bool(0.5),
                delay_ns: Some(rng.random_range(60..=4000)),
                rate_gbps: rng.random_bool(0.3).then(|| rng.random_range(5.0..100.0)),
                ecn_packets: rng.random_bool(0.3).then(|| rng.random_range(0..10)),
                ..Event::default()
            });
            at_us += rng.random_range(5.0..60.0);
        }
    }
    if hardness.dead > 0.0 {
        let spine = match hardness.all && rng.random_bool(0.5) {
            true => "spine*".to_string(),
            false => format!("spine{}", rng.random_range(0..spines)),
        };
        let longest = hardness.dead * least as f64 / US as f64;
        let at_us = rng.random_range(0.0..40.0);
        let both = rng.random_bool(0.7);
        let mut change = |at_us: f64, down: bool| {
            events.push(Event {
                at_us,
                from: "leaf*".into(),
                to: spine.clone(),
                both,
                down: Some(down),
                ..Event::default()
            });
        };
        change(at_us, true);
        change(at_us + longest * rng.random_range(0.2..=1.0), false);
    }
    events
}
