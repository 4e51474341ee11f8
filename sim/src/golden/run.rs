//! The event loop: engines, transmit queues and network.

use super::frame::{self, Content, DATA_HEADERS};
use super::{Change, Flow, FlowOutcome, Latency, Load, Outcome, Sample};
use crate::fabric::Fabric;
use crate::scenario::Scenario;
use crate::time::{Ps, Rate, FCS, PREAMBLE, WIRE_OVERHEAD};
use mprdma_model::psn;
use mprdma_model::receiver::{
    self, MrAnswer, Packet, ReceiverContext, ReceiverEvent, ReceiverImage,
};
use mprdma_model::sender::{self, Cause, Env, SenderContext, SenderEvent, SenderOutputs};
use mprdma_spec::command::{QpState, MASK_STATE, RIGHT_REMOTE_WRITE};
use mprdma_spec::config::{CLOCK_MHZ, CYCLES_PER_TICK, TICKS_PER_SLOW};
use mprdma_spec::params::{mtu_code, GRANTS_PER_SLOW_LOG2};
use rand::{Rng, RngCore};
use rand_chacha::rand_core::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Protocol clock, ps.
const TICK: Ps = CYCLES_PER_TICK as Ps * 1_000_000 / CLOCK_MHZ as Ps;
/// Unit of the retransmission timer, ps.
const SLOW: Ps = TICK * TICKS_PER_SLOW as Ps;
/// Packets that an endless flow always has left to send, and what it gets at a time.
const ENDLESS: u32 = 1 << 16;

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival { card: usize, frame: Vec<u8> },
    Burst(usize),
    Timeout(usize),
    Message(usize),
}

/// A flow under way.
pub(super) struct Running {
    flow: Flow,
    sender: SenderContext,
    receiver: ReceiverContext,
    pub(super) outcome: FlowOutcome,
}

/// A run under way.
pub(super) struct Run {
    fabric: Fabric,
    latency: Latency,
    rng: ChaCha8Rng,
    events: BinaryHeap<Reverse<(Ps, u64, Event)>>,
    age: u64,
    now: Ps,
    flows: Vec<Running>,
    /// Line rate, and when the transmit side is free, of each card.
    cards: Vec<(Rate, Ps)>,
}

/// Runs `flows` until `end`, with a look every `every`.
pub fn run(
    scenario: &Scenario,
    flows: &[Flow],
    changes: &[Change],
    latency: Latency,
    (end, every): (Ps, Ps),
    seed: u64,
) -> Outcome {
    let mut run = Run::new(scenario, flows, latency, seed);
    let mut samples = vec![run.sample(0)];
    let mut changes = changes.iter().peekable();
    for at in (1..=end / every).map(|i| i * every) {
        run.until(at, |_| false);
        samples.push(run.sample(at));
        while changes.peek().is_some_and(|change| change.at <= at) {
            if let Some(change) = changes.next() {
                run.fabric.change(&change.rule, change.down);
            }
        }
    }
    run.finish(samples)
}

impl Run {
    pub fn new(scenario: &Scenario, flows: &[Flow], latency: Latency, seed: u64) -> Run {
        let fabric = Fabric::new(scenario, seed);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(2 << 32);
        let mut run = Run {
            cards: (0..scenario.network.cards)
                .map(|card| (fabric.card_rate(card), 0))
                .collect(),
            fabric,
            latency,
            rng,
            events: BinaryHeap::new(),
            age: 0,
            now: 0,
            flows: flows.iter().map(Running::new).collect(),
        };
        for (i, flow) in flows.iter().enumerate() {
            match flow.load {
                Load::Packets(packets) => run.work(0, i, packets),
                Load::Endless => run.work(0, i, 2 * ENDLESS),
                Load::OnOff { pause, .. } => {
                    let at = run.exponential(pause as f64) as Ps;
                    run.push(at, Event::Message(i));
                }
            }
        }
        run
    }

    /// Time of the last event.
    pub fn now(&self) -> Ps {
        self.now
    }

    /// Handles events before `end`, until `done`.
    pub fn until(&mut self, end: Ps, done: impl Fn(&[Running]) -> bool) {
        while !done(&self.flows) {
            let own = self.events.peek().map_or(Ps::MAX, |Reverse((at, ..))| *at);
            let network = self.fabric.next_event().unwrap_or(Ps::MAX);
            if own.min(network) >= end {
                return;
            }
            if network <= own {
                let deliveries = self.fabric.run_until(network + 1);
                self.expect(deliveries);
            } else if let Some(Reverse((now, _, event))) = self.events.pop() {
                self.now = now;
                self.handle(now, event);
            }
        }
    }

    pub fn finish(self, samples: Vec<Sample>) -> Outcome {
        let close = |flow: Running| FlowOutcome {
            cwnd: f64::from(flow.sender.cwnd) / 2.0,
            srtt: Ps::from(flow.sender.srtt) * TICK / 8,
            ..flow.outcome
        };
        Outcome {
            time: self.now,
            flows: self.flows.into_iter().map(close).collect(),
            samples,
            fabric: self.fabric.stats(),
        }
    }

    fn sample(&self, at: Ps) -> Sample {
        let stats = self.fabric.stats();
        let paths = stats.paths.iter().filter(|p| p.from == "leaf0");
        Sample {
            at,
            delivered: self.flows.iter().map(|f| f.outcome.delivered).collect(),
            placed: self
                .flows
                .iter()
                .map(|f| f.outcome.ahead.iter().sum())
                .collect(),
            by_spine: paths.map(|p| p.packets).collect(),
        }
    }

    fn handle(&mut self, now: Ps, event: Event) {
        match event {
            Event::Burst(flow) => self.sender_event(now, flow, &SenderEvent::Burst),
            Event::Timeout(flow) => self.sender_event(now, flow, &SenderEvent::Timeout),
            Event::Message(flow) => {
                if let Load::OnOff { packets, .. } = self.flows[flow].flow.load {
                    let length = 1.0 + self.exponential(f64::from(packets));
                    self.work(now, flow, length as u32);
                }
            }
            Event::Arrival { card, frame } => self.arrival(now, card, &frame),
        }
    }

    fn push(&mut self, at: Ps, event: Event) {
        self.age += 1;
        self.events.push(Reverse((at, self.age, event)));
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.rng.random::<f64>()).ln()
    }

    fn expect(&mut self, deliveries: Vec<crate::fabric::Delivery>) {
        for delivery in deliveries {
            let at = delivery.arrival.last_bit + self.latency.receive;
            let (card, frame) = (delivery.card, delivery.arrival.frame);
            self.push(at, Event::Arrival { card, frame });
        }
    }

    /// Puts a frame on the wire of a card, not before `ready`.
    fn send(&mut self, card: usize, ready: Ps, frame: Vec<u8>) {
        let (rate, free_at) = self.cards[card];
        let bytes = frame.len() as u64;
        let start = free_at.max(ready);
        self.cards[card].1 = start + rate.time(bytes + WIRE_OVERHEAD);
        let end = start + rate.time(bytes + PREAMBLE + FCS);
        self.fabric.send(card, start, end, frame);
        let deliveries = self.fabric.take_deliveries();
        self.expect(deliveries);
    }

    fn work(&mut self, now: Ps, flow: usize, packets: u32) {
        let sync = false;
        self.sender_event(now, flow, &SenderEvent::Work { packets, sync });
    }

    fn sender_event(&mut self, now: Ps, index: usize, event: &SenderEvent) {
        let Flow {
            from,
            to,
            mtu,
            slots,
            ..
        } = self.flows[index].flow;
        let (rate, free_at) = self.cards[from];
        let frame_time = rate.time(u64::from(mtu) + DATA_HEADERS as u64 + WIRE_OVERHEAD);
        let ready = now + self.latency.send;
        let waiting = free_at.saturating_sub(ready) / frame_time;
        let env = Env {
            now: (now / TICK) as u32,
            rnd: self.rng.next_u64(),
            backlog: waiting >= 2,
            crowded: false,
            full: waiting >= 1000,
            waiting_slow: (waiting >> GRANTS_PER_SLOW_LOG2).min(255) as u8,
            slots,
        };
        let (context, out) = sender::step(&self.flows[index].sender, event, &env);
        self.flows[index].sender = context;
        self.apply(now, index, &out);
        for grant in out.grants.into_iter().flatten() {
            let outcome = &mut self.flows[index].outcome;
            outcome.sent += 1;
            let cause = out.cause_of(&grant) as usize;
            if let Some(cause) = cause.checked_sub(Cause::Hole as usize) {
                outcome.retransmissions[cause] += 1;
            }
            let stamp = (ready.max(self.cards[from].1) / TICK) as u16;
            let frame = frame::data((from, to), index, mtu, &grant, stamp);
            self.send(from, ready, frame);
        }
        if matches!(self.flows[index].flow.load, Load::Endless)
            && self.flows[index].sender.unsent() < ENDLESS
        {
            self.work(now, index, ENDLESS);
        }
    }

    fn apply(&mut self, now: Ps, index: usize, out: &SenderOutputs) {
        if let Some(ticks) = out.arm_burst {
            self.push(now + Ps::from(ticks) * TICK, Event::Burst(index));
        }
        if let Some(slow) = out.arm_rto {
            self.push(now + Ps::from(slow) * SLOW, Event::Timeout(index));
        }
        let running = &mut self.flows[index];
        let done = &mut running.outcome;
        done.ecn_echoes += u64::from(out.counts.ecn_echo);
        done.prunes += u64::from(out.counts.prune);
        done.probes += u64::from(out.counts.probes);
        done.recoveries += u64::from(out.counts.recovery);
        if out.counts.timeout {
            done.timeouts.push(now);
        }
        if let Some(progress) = out.progress {
            assert_eq!(progress.status, 0, "the queue pair went to ERROR");
            done.delivered += u64::from(psn::distance(
                done.delivered as u32 & psn::MASK,
                progress.una,
            ));
            if let Load::OnOff { pause, .. } = running.flow.load {
                if running.sender.snd_una == running.sender.snd_lim {
                    let at = now + self.exponential(pause as f64) as Ps;
                    self.push(at, Event::Message(index));
                }
            }
        }
    }

    fn arrival(&mut self, now: Ps, card: usize, frame: &[u8]) {
        let (vp, ce, index, content) = frame::read(frame);
        let flow = self.flows[index].flow;
        match content {
            // A frame to an address that the network does not know yet goes to every card.
            Content::Data { .. } if flow.to != card => {}
            Content::Ack(_) if flow.from != card => {}
            Content::Ack(ack) => self.sender_event(now, index, &SenderEvent::Ack(ack)),
            Content::Data { psn, stamp, retx } => {
                let packet = Packet {
                    psn,
                    opcode: 0xc0 | 7,
                    ce,
                    vp,
                    flags: retx.into(),
                    stamp,
                    dma_length: flow.mtu,
                    length: flow.mtu as u16,
                    mr: MrAnswer {
                        hit: true,
                        rights: RIGHT_REMOTE_WRITE as u8,
                        ..MrAnswer::default()
                    },
                    ..Packet::default()
                };
                if let Some(ack) = self.flows[index].data(packet) {
                    self.send(card, now, frame::ack((flow.to, flow.from), index, &ack));
                }
            }
        }
    }
}

impl Running {
    fn new(flow: &Flow) -> Running {
        let image = ReceiverImage {
            mask: MASK_STATE as u8,
            state: QpState::Rts as u8,
            mtu: mtu_code(flow.mtu).expect("one of the five MTUs"),
            rights: RIGHT_REMOTE_WRITE as u8,
            hole_repair: flow.sender.hole_repair,
            ..ReceiverImage::default()
        };
        let created = ReceiverEvent::Create(image);
        Running {
            flow: *flow,
            sender: SenderContext::new(flow.sender, 0, 0),
            receiver: receiver::step(&ReceiverContext::default(), &created, flow.slots).0,
            outcome: FlowOutcome {
                delivered: 0,
                sent: 0,
                ahead: vec![0; flow.slots as usize],
                duplicates: 0,
                out_of_window: 0,
                retransmissions: [0; 3],
                ecn_echoes: 0,
                prunes: 0,
                probes: 0,
                recoveries: 0,
                timeouts: vec![],
                cwnd: 0.0,
                srtt: 0,
            },
        }
    }

    /// A packet reaches the receiver.
    fn data(&mut self, packet: Packet) -> Option<receiver::Ack> {
        let ahead = psn::distance(self.receiver.rcv_nxt, packet.psn);
        let event = ReceiverEvent::Packet(packet);
        let (context, out) = receiver::step(&self.receiver, &event, self.flow.slots);
        self.receiver = context;
        self.outcome.duplicates += u64::from(out.counts.duplicate);
        self.outcome.out_of_window += u64::from(out.counts.out_of_window);
        if out.place {
            self.outcome.ahead[ahead as usize] += 1;
        }
        out.ack
    }
}
