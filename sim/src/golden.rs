//! One stream of the golden model over the simulated network: what the cards should do, without the cards.
//!
//! The two engines are those of the model crate, event for event; the rest of a card is a fixed latency and a transmit
//! queue at the line rate. It runs thousands of times faster than RTL, so it finds settings and states expectations.

use crate::fabric::{Fabric, FabricStats};
use crate::scenario::Scenario;
use crate::time::{Ps, Rate, FCS, NS, PREAMBLE, WIRE_OVERHEAD};
use mprdma_model::receiver::{
    self, MrAnswer, Packet, ReceiverContext, ReceiverEvent, ReceiverImage,
};
use mprdma_model::sender::{self, Env, SenderConfig, SenderContext, SenderEvent, SenderOutputs};
use mprdma_spec::command::{QpState, MASK_STATE, RIGHT_REMOTE_WRITE};
use mprdma_spec::config::{CLOCK_MHZ, CYCLES_PER_TICK, TICKS_PER_SLOW};
use mprdma_spec::params::mtu_code;
use rand::RngCore;
use rand_chacha::rand_core::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Protocol clock, ps.
const TICK: Ps = CYCLES_PER_TICK as Ps * 1_000_000 / CLOCK_MHZ as Ps;
/// Unit of the retransmission timer, ps.
const SLOW: Ps = TICK * TICKS_PER_SLOW as Ps;
/// Bytes of a data frame besides its payload: Ethernet 14, IPv4 20, UDP 8, BTH 12, MPETH 8, RETH 16, ICRC 4.
const DATA_HEADERS: usize = 82;
/// Bytes of an ACK frame: Ethernet 14, IPv4 20, UDP 8, BTH 12, AETH 4, MPAETH 8, ICRC 4.
const ACK_FRAME: usize = 70;

/// What is sent, and by what kind of card.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Attributes of the sender.
    pub sender: SenderConfig,
    /// Path MTU, bytes.
    pub mtu: u32,
    /// Packets of the stream, each a full MTU.
    pub packets: u32,
    /// Slots of the receiver's bitmap.
    pub slots: u32,
    /// From a grant to the first bit on the wire: payload DMA and pipelines.
    pub send_latency: Ps,
    /// From the last bit of a packet to the event in the engine.
    pub receive_latency: Ps,
    /// Give up after so much simulated time.
    pub limit: Ps,
}

impl Setting {
    /// A stream with default parameters on a card like ours.
    pub fn new(mtu: u32, packets: u32) -> Setting {
        Setting {
            sender: SenderConfig::from_params(),
            mtu,
            packets,
            slots: 128,
            send_latency: 800 * NS,
            receive_latency: 150 * NS,
            limit: Ps::MAX,
        }
    }
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Packets acknowledged.
    pub delivered: u32,
    /// Simulated time from the first packet to the last ACK.
    pub time: Ps,
    /// Payload rate over the last three quarters of the packets, Gb/s: the start is left out.
    pub steady_gbps: f64,
    /// Part of the sender's bytes by each spine.
    pub shares: Vec<f64>,
    /// Packets that came ahead of an earlier one.
    pub reordered: u64,
    /// Largest distance of such a packet.
    pub max_distance: u32,
    /// Retransmissions.
    pub retransmissions: u64,
    /// ACKs that echoed a mark.
    pub ecn_echoes: u64,
    /// ACKs of slow paths.
    pub prunes: u64,
    /// Timeouts.
    pub timeouts: u64,
    /// Window at the end, packets.
    pub cwnd: f64,
    /// The network's own counters.
    pub fabric: FabricStats,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival { card: usize, frame: Vec<u8> },
    Burst,
    Timeout,
}

struct Run<'a> {
    setting: &'a Setting,
    fabric: Fabric,
    rng: ChaCha8Rng,
    events: BinaryHeap<Reverse<(Ps, u64, Event)>>,
    age: u64,
    sender: SenderContext,
    receiver: ReceiverContext,
    /// Line rate, and when the transmit side is free, of each card.
    rate: [Rate; 2],
    free_at: [Ps; 2],
    outcome: Outcome,
    quarter_at: Ps,
}

/// Sends the stream from card 0 to card 1.
pub fn stream(scenario: &Scenario, setting: &Setting, seed: u64) -> Outcome {
    let fabric = Fabric::new(scenario, seed);
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(2 << 32);
    let image = ReceiverImage {
        mask: MASK_STATE as u8,
        state: QpState::Rts as u8,
        mtu: mtu_code(setting.mtu).expect("one of the five MTUs"),
        rights: RIGHT_REMOTE_WRITE as u8,
        ..ReceiverImage::default()
    };
    let created = receiver::step(
        &ReceiverContext::default(),
        &ReceiverEvent::Create(image),
        setting.slots,
    )
    .0;
    let mut run = Run {
        setting,
        rate: [fabric.card_rate(0), fabric.card_rate(1)],
        outcome: Outcome {
            delivered: 0,
            time: 0,
            steady_gbps: 0.0,
            shares: vec![],
            reordered: 0,
            max_distance: 0,
            retransmissions: 0,
            ecn_echoes: 0,
            prunes: 0,
            timeouts: 0,
            cwnd: 0.0,
            fabric: FabricStats::default(),
        },
        fabric,
        rng,
        events: BinaryHeap::new(),
        age: 0,
        sender: SenderContext::new(setting.sender, 0, 0),
        receiver: created,
        free_at: [0; 2],
        quarter_at: 0,
    };
    run.sender_event(
        0,
        &SenderEvent::Work {
            packets: setting.packets,
            sync: false,
        },
    );
    while run.outcome.delivered < setting.packets && run.outcome.time < setting.limit {
        run.next();
    }
    run.finish()
}

impl Run<'_> {
    /// Handles the earliest event of engines and network.
    fn next(&mut self) {
        let own = self.events.peek().map_or(Ps::MAX, |Reverse((at, ..))| *at);
        let network = self.fabric.next_event().unwrap_or(Ps::MAX);
        if network <= own {
            let deliveries = self.fabric.run_until(network + 1);
            self.expect(deliveries);
            return;
        }
        let Some(Reverse((now, _, event))) = self.events.pop() else {
            unreachable!("while packets are in flight the retransmission timer runs");
        };
        self.outcome.time = now;
        match event {
            Event::Burst => self.sender_event(now, &SenderEvent::Burst),
            Event::Timeout => self.sender_event(now, &SenderEvent::Timeout),
            Event::Arrival { card: 0, frame } => self.ack(now, &frame),
            Event::Arrival { frame, .. } => self.data(now, &frame),
        }
    }

    fn push(&mut self, at: Ps, event: Event) {
        self.age += 1;
        self.events.push(Reverse((at, self.age, event)));
    }

    fn expect(&mut self, deliveries: Vec<crate::fabric::Delivery>) {
        for delivery in deliveries {
            let at = delivery.arrival.last_bit + self.setting.receive_latency;
            self.push(
                at,
                Event::Arrival {
                    card: delivery.card,
                    frame: delivery.arrival.frame,
                },
            );
        }
    }

    /// Puts a frame on the wire of a card, not before `ready`.
    fn send(&mut self, card: usize, ready: Ps, frame: Vec<u8>) {
        let (rate, bytes) = (self.rate[card], frame.len() as u64);
        let start = self.free_at[card].max(ready);
        self.free_at[card] = start + rate.time(bytes + WIRE_OVERHEAD);
        let end = start + rate.time(bytes + PREAMBLE + FCS);
        self.fabric.send(card, start, end, frame);
        let deliveries = self.fabric.take_deliveries();
        self.expect(deliveries);
    }

    fn sender_event(&mut self, now: Ps, event: &SenderEvent) {
        let frame_time =
            self.rate[0].time(self.setting.mtu as u64 + DATA_HEADERS as u64 + WIRE_OVERHEAD);
        let ready = now + self.setting.send_latency;
        let waiting = self.free_at[0].saturating_sub(ready) / frame_time;
        let env = Env {
            now: (now / TICK) as u32,
            rnd: self.rng.next_u64(),
            backlog: waiting >= 2,
            full: waiting >= 1000,
            slots: self.setting.slots,
        };
        let (context, out) = sender::step(&self.sender, event, &env);
        self.sender = context;
        self.apply(now, &out);
        for grant in out.grants.into_iter().flatten() {
            self.outcome.retransmissions += u64::from(grant.retx);
            let mut frame = header(0, grant.vp, self.setting.mtu as usize + DATA_HEADERS);
            let stamp = (ready.max(self.free_at[0]) / TICK) as u16;
            put(
                &mut frame,
                &[grant.psn, u32::from(stamp), u32::from(grant.retx)],
            );
            self.send(0, ready, frame);
        }
    }

    fn apply(&mut self, now: Ps, out: &SenderOutputs) {
        if let Some(ticks) = out.arm_burst {
            self.push(now + Ps::from(ticks) * TICK, Event::Burst);
        }
        if let Some(slow) = out.arm_rto {
            self.push(now + Ps::from(slow) * SLOW, Event::Timeout);
        }
        if let Some(progress) = out.progress {
            self.outcome.delivered = progress.una;
            if self.quarter_at == 0 && progress.una >= self.setting.packets / 4 {
                self.quarter_at = now;
            }
        }
        self.outcome.ecn_echoes += u64::from(out.counts.ecn_echo);
        self.outcome.prunes += u64::from(out.counts.prune);
        self.outcome.timeouts += u64::from(out.counts.timeout);
    }

    fn data(&mut self, now: Ps, frame: &[u8]) {
        let [psn, stamp, retx] = get(frame);
        let packet = Packet {
            psn,
            opcode: 0xc0 | 7,
            ce: frame[15] & 3 == 3,
            vp: u16::from_be_bytes([frame[34], frame[35]]),
            flags: retx as u8,
            stamp: stamp as u16,
            dma_length: self.setting.mtu,
            length: self.setting.mtu as u16,
            mr: MrAnswer {
                hit: true,
                rights: RIGHT_REMOTE_WRITE as u8,
                ..MrAnswer::default()
            },
            ..Packet::default()
        };
        let ahead = psn.wrapping_sub(self.receiver.rcv_nxt);
        let event = ReceiverEvent::Packet(packet);
        let (context, out) = receiver::step(&self.receiver, &event, self.setting.slots);
        self.receiver = context;
        if out.counts.out_of_order {
            self.outcome.reordered += 1;
            self.outcome.max_distance = self.outcome.max_distance.max(ahead);
        }
        if let Some(ack) = out.ack {
            let mut frame = header(1, ack.vp, ACK_FRAME);
            frame[15] = 0;
            let codes = u32::from(ack.flags) << 8 | u32::from(ack.syndrome);
            put(
                &mut frame,
                &[ack.sack, ack.aack, u32::from(ack.stamp) << 16 | codes],
            );
            self.send(1, now, frame);
        }
    }

    fn ack(&mut self, now: Ps, frame: &[u8]) {
        let [sack, aack, codes] = get(frame);
        let ack = sender::Ack {
            sack,
            aack,
            flags: (codes >> 8) as u8,
            syndrome: codes as u8,
            vp: u16::from_be_bytes([frame[34], frame[35]]),
            stamp: (codes >> 16) as u16,
            map: 0,
        };
        self.sender_event(now, &SenderEvent::Ack(ack));
    }

    fn finish(mut self) -> Outcome {
        let (out, fabric) = (&mut self.outcome, self.fabric.stats());
        let bits = f64::from(out.delivered.saturating_sub(self.setting.packets / 4))
            * f64::from(self.setting.mtu)
            * 8.0;
        out.steady_gbps = bits * 1000.0 / (out.time - self.quarter_at).max(1) as f64;
        out.shares = fabric
            .paths
            .iter()
            .filter(|p| p.from == "leaf0")
            .map(|p| p.share)
            .collect();
        out.cwnd = f64::from(self.sender.cwnd) / 2.0;
        out.fabric = fabric;
        self.outcome
    }
}

/// Where the model's own words lie in a frame: after Ethernet, IPv4 and UDP.
const WORDS: usize = 42;

/// The headers that the network looks at, from a card to the other, ECT(0).
fn header(from: u8, vp: u16, len: usize) -> Vec<u8> {
    let to = 1 - from;
    let mut frame = vec![
        2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 8, 0, 0x45, 2, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0,
    ];
    frame.extend([10, 0, 0, from, 10, 0, 0, to]);
    frame.extend(vp.to_be_bytes());
    frame.extend(4791u16.to_be_bytes());
    frame.resize(len, 0);
    frame
}

fn put(frame: &mut [u8], words: &[u32; 3]) {
    for (i, word) in words.iter().enumerate() {
        frame[WORDS + i * 4..WORDS + i * 4 + 4].copy_from_slice(&word.to_be_bytes());
    }
}

fn get(frame: &[u8]) -> [u32; 3] {
    std::array::from_fn(|i| u32::from_be_bytes(std::array::from_fn(|j| frame[WORDS + i * 4 + j])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn demo(extra: &str) -> Scenario {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/demo.toml");
        let text = std::fs::read_to_string(&file).unwrap() + extra;
        Scenario::parse(&text, &file).unwrap()
    }

    /// Packets of 64 MiB.
    const STREAM: u32 = 16_384;

    #[test]
    fn four_paths_carry_all_of_it_in_even_shares() {
        for seed in 1..4 {
            let out = stream(&demo(""), &Setting::new(4096, STREAM), seed);
            let good =
                out.delivered == STREAM && out.steady_gbps > 90.0 && out.retransmissions == 0;
            let even = out.shares.len() == 4 && out.shares.iter().all(|s| (0.2..0.3).contains(s));
            assert!(good && even && out.max_distance > 0, "seed {seed}: {out:?}");
        }
    }

    #[test]
    fn one_path_carries_a_quarter() {
        let mut setting = Setting::new(4096, STREAM / 4);
        setting.sender.vp_count = 1;
        let out = stream(&demo(""), &setting, 1);
        assert!(
            (20.0..25.0).contains(&out.steady_gbps) && out.reordered == 0,
            "{out:?}"
        );
    }

    #[test]
    fn a_slow_spine_gets_little_and_nothing_is_lost() {
        let slow = "\n[[link]]\nfrom = \"leaf*\"\nto = \"spine2\"\nboth = true\nrate_gbps = 6.25\n";
        let out = stream(&demo(slow), &Setting::new(4096, STREAM), 1);
        let good = out.delivered == STREAM && out.fabric.drops == 0;
        assert!(
            good && out.shares[2] < 0.12 && out.steady_gbps > 65.0,
            "{out:?}"
        );
    }

    #[test]
    fn a_lossy_spine_is_survived() {
        let lossy = "\n[[link]]\nfrom = \"leaf0\"\nto = \"spine1\"\nloss = 0.01\n";
        let out = stream(&demo(lossy), &Setting::new(4096, STREAM), 1);
        assert!(
            out.delivered == STREAM && out.retransmissions > 0,
            "{out:?}"
        );
        println!("{} Gb/s with 1 % loss on one path", out.steady_gbps);
    }
}
