//! A card in plain Rust that stands in for the RTL: the golden model behind the same device interface.
//!
//! Registers, commands, doorbells, rings in host memory, interrupts and frames are those of the RTL, so the same driver
//! and the same system tests run on it. The two transport engines are `mprdma_model`'s, which the RTL equals bit for
//! bit. What is between them, queues, DMA, frame building, is modelled by its order, its limits and its latencies
//! ([`timing`]), from event to event instead of from cycle to cycle. So a run takes other random paths than the RTL's
//! and differs in the last hundred nanoseconds, but not in what is delivered, completed or refused.
//!
//! ```text
//!  registers --> fetch --> complete --> queues --> moderator --> dma
//!      |           |          ^
//!   commands     sender ------+
//!                  |  ^
//!               transmit <--- receive <--- port
//!                                 |
//!                    reads <------+  (requests to answers and from there to fetch, ends to complete)
//! ```
//! Each of these is a file, and a part of [`Tables`]; what they do to each other they do at once, what takes time goes
//! through [`events`].

mod answers;
mod commands;
mod complete;
mod dma;
mod events;
mod fetch;
mod frames;
mod keepalive;
mod moderator;
mod parse;
mod port;
mod queues;
mod reads;
mod receive;
mod regions;
mod registers;
mod sender;
mod telemetry;
#[cfg(test)]
mod tests;
mod timing;
mod transmit;

use crate::card::{Card, CardStats, Seen};
use crate::mac::Sent;
use crate::pcie::HostSide;
use crate::scenario::Scenario;
use crate::time::{Ps, Rate};
use answers::{AnswerQueue, Answers};
use commands::Running;
use complete::SendCompletion;
use dma::Dma;
use events::{Event, Events};
use fetch::{Fetch, SendQueue};
use frames::Peer;
use moderator::Moderator;
use mprdma_model::receiver::ReceiverContext;
use mprdma_model::sender::SenderContext;
use mprdma_spec::config::Config;
use mprdma_spec::counter::Counter;
use port::Port;
use queues::{CompletionQueue, EventQueue};
use rand::RngCore;
use rand_chacha::rand_core::SeedableRng;
use rand_chacha::ChaCha8Rng;
use reads::ReadBook;
use receive::{Kept, ReceiveBuffer};
use regions::Region;
use registers::Registers;
use std::collections::VecDeque;
use std::sync::Arc;
use telemetry::{Tally, Trace};
use timing::{clear_cycles, Clock, RESET};
use transmit::{Message, Transmit};

/// A queue pair: what the blocks of the RTL keep of it, each in its own memory.
#[derive(Clone, Default)]
struct QueuePair {
    exists: bool,
    send: SendQueue,
    sender: SenderContext,
    receiver: ReceiverContext,
    peer: Peer,
    completion: SendCompletion,
    /// Launched messages, the oldest first.
    open: VecDeque<Message>,
    reads: ReadBook,
    answers: AnswerQueue,
    /// Immediate and length of receive WQEs that wait for their turn, by WSN.
    kept: [Kept; 1 << mprdma_spec::config::RECEIVE_WINDOW_LOG2],
    tally: Tally,
    /// When each engine can take the next event of this QP.
    sender_free: Ps,
    receiver_free: Ps,
}

/// What a reset of the core clears.
struct Tables {
    qps: Vec<QueuePair>,
    cqs: Vec<CompletionQueue>,
    eq: EventQueue,
    moderator: Moderator,
    regions: Vec<Region>,
    fetch: Fetch,
    answers: Answers,
    transmit: Transmit,
    /// Burst timers that fired and wait for their turn.
    bursts: VecDeque<u16>,
    buffer: ReceiveBuffer,
    counters: [u64; Counter::ALL.len()],
    trace: Trace,
    running: Option<Running>,
    /// When every table is clear.
    ready_at: Ps,
}

impl Tables {
    fn new(config: &Config, ready_at: Ps) -> Tables {
        Tables {
            qps: vec![QueuePair::default(); 1 << config.qp_log2],
            cqs: vec![CompletionQueue::default(); 1 << config.cq_log2],
            eq: EventQueue::default(),
            moderator: Moderator::default(),
            regions: vec![Region::default(); 1 << config.mr_log2],
            fetch: Fetch::default(),
            answers: Answers::default(),
            transmit: Transmit::default(),
            bursts: VecDeque::new(),
            buffer: ReceiveBuffer::default(),
            counters: [0; Counter::ALL.len()],
            trace: Trace::default(),
            running: None,
            ready_at,
        }
    }
}

/// A stand-in card.
pub struct StandIn {
    config: Config,
    host: Arc<HostSide>,
    clock: Clock,
    /// Time of the event at hand.
    now: Ps,
    /// When the last reset ended, or will end.
    born: Ps,
    events: Events,
    port: Port,
    dma: Dma,
    registers: Registers,
    tables: Tables,
    rng: ChaCha8Rng,
    stats: CardStats,
    /// End of the last run, and the last time at which something happened in it.
    run_to: Ps,
    active_at: Ps,
}

impl StandIn {
    /// Card number `index` of a scenario. It comes up in reset, as after power-on.
    pub fn new(
        scenario: &Scenario,
        index: usize,
        rate: Rate,
        seed: u64,
        host: Arc<HostSide>,
    ) -> StandIn {
        let random = |stream: u64| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            rng.set_stream(stream << 32 | index as u64);
            rng
        };
        let clock = Clock::new(scenario.card.period());
        let born = clock.cycles(RESET);
        let config = scenario.card.config();
        StandIn {
            config,
            host,
            clock,
            now: 0,
            born,
            events: Events::default(),
            port: Port::new(rate),
            dma: Dma::new(&scenario.pcie, random(1)),
            registers: Registers::new(&config),
            tables: Tables::new(&config, born + clock.cycles(clear_cycles(&config))),
            rng: random(3),
            stats: CardStats::default(),
            run_to: 0,
            active_at: 0,
        }
    }

    fn schedule(&mut self, at: Ps, event: Event) {
        self.events.push(at.max(self.now), event);
    }

    fn cycles(&self, count: u64) -> Ps {
        self.clock.cycles(count)
    }

    /// The protocol clock.
    fn tick(&self) -> u32 {
        (self.now.saturating_sub(self.born) / self.clock.tick()) as u32
    }

    fn is_in_reset(&self) -> bool {
        self.now < self.born
    }

    fn count(&mut self, counter: Counter, by: u64) {
        self.tables.counters[counter as usize] += by;
    }

    /// Adds one where something happened.
    fn count_if(&mut self, counter: Counter, happened: bool) {
        self.count(counter, happened.into());
    }

    fn random(&mut self) -> u64 {
        self.rng.next_u64()
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Bus => self.bus_is_free(),
            Event::Posted => self.dma.land(self.now, &self.host, &mut self.stats.pcie),
            Event::FrameBegins { last_bit, frame } => self.frame_begins(self.now, last_bit, frame),
            Event::FrameEnds { frame, resets } => self.frame_ends(frame, resets),
            Event::ResetEnds => self.try_to_end_reset(),
            Event::CommandDone => self.command_done(),
            Event::Received { meta, frame } => self.received(meta, frame),
            Event::Placed(action) => self.placed(*action),
            Event::ReadNews(news) => self.read_news(&news),
            Event::AtomicRead(read) => self.atomic_read(&read),
            Event::Turn(qpn) => self.turn(qpn),
            Event::WqesRead { read } => self.wqes_read(read),
            Event::Wqe => self.next_wqe(),
            Event::Segment => self.segment_is_free(),
            Event::Payload { packet, fails } => self.payload(packet, fails),
            Event::Build => self.builder_is_free(),
            Event::TransmitMarker => self.transmit_marker(),
            Event::IntervalEnds(vector) => self.interval_ends(vector),
            Event::Burst(qpn) => self.burst(qpn),
            Event::Timeout(qpn) => {
                self.sender_event(qpn, &mprdma_model::sender::SenderEvent::Timeout);
            }
        }
    }

    /// Posts a write to host memory.
    fn write(&mut self, addr: u64, bytes: Vec<u8>) {
        let at = self.dma.write(self.now, addr, bytes, &mut self.stats.pcie);
        self.schedule(at, Event::Posted);
    }
}

impl Card for StandIn {
    fn record(&mut self) {
        self.port.seen = Some(vec![]);
    }

    fn expect(&mut self, first_bit: Ps, last_bit: Ps, frame: Vec<u8>) {
        self.events
            .push(first_bit, Event::FrameBegins { last_bit, frame });
    }

    fn take_sent(&mut self) -> Vec<Sent> {
        std::mem::take(&mut self.port.sent)
    }

    fn take_seen(&mut self, end: Ps) -> Vec<Seen> {
        let seen = self.port.seen.as_mut();
        seen.map_or(vec![], |seen| Seen::take_before(seen, end))
    }

    fn stats(&self) -> CardStats {
        CardStats {
            cycles: self.clock.count(self.run_to),
            ..self.stats
        }
    }

    fn active_at(&self) -> Ps {
        self.active_at
    }

    fn run_until(&mut self, end: Ps) {
        self.now = self.now.max(self.run_to);
        loop {
            self.look_for_requests();
            let Some((at, event)) = self.events.pop_before(end) else {
                break;
            };
            self.now = at;
            self.happen(event);
            self.active_at = at;
        }
        self.run_to = self.run_to.max(end);
        if !self.events.is_empty() || self.is_in_reset() {
            self.active_at = self.run_to;
        }
    }
}
