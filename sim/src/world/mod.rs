//! Cards and network together.
//!
//! A card may run ahead of the network by the shortest delay of its links, because nothing it sends can come back
//! sooner. So time goes in windows no longer than that: in each, every card runs alone, on any thread, and the network
//! handles the events before the window's end. Frames change hands between windows, in the order of the cards. The
//! result is the same for every number of threads and every length of windows.

mod pool;
mod run;
mod stats;

pub use run::{free_run, Command};
pub use stats::{CardReport, WorldStats};

use crate::capture::{Capture, CaptureError};
use crate::card::{Card, ClockedCard};
use crate::engine::{Cores, Engine};
use crate::fabric::{Delivery, Fabric, Tap};
use crate::pcie::{HostSide, Wake};
use crate::scenario::{Event, LinkRule, Scenario};
use crate::standin::StandIn;
use crate::time::{Ps, US};
use pool::Pool;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// After so much simulated time without any activity the world is idle.
const LINGER: Ps = 10 * US;

/// How to run a scenario.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What carries the protocol. Read by those who make the cores, such as [`crate::inproc::InProcess::new`].
    pub engine: Engine,
    /// Seed of everything random.
    pub seed: u64,
    /// Threads that step cards; 0 means one per card, but no more than the machine has processors, and one for the model:
    /// to hand a window to another thread takes longer than its few events.
    pub threads: usize,
    /// Directory for captures; none without it.
    pub pcap: Option<PathBuf>,
}

/// The world cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// A capture file cannot be written.
    #[error(transparent)]
    Capture(#[from] CaptureError),
}

type Cards = Arc<[Mutex<Box<dyn Card>>]>;

/// Cards and network.
pub struct World {
    name: String,
    seed: u64,
    fabric: Fabric,
    cards: Cards,
    hosts: Vec<Arc<HostSide>>,
    captures: Vec<Capture>,
    pool: Pool,
    wake: Wake,
    now: Ps,
    window: Ps,
    running: Duration,
}

impl World {
    /// Builds the world of a scenario from the cores of its cards.
    pub fn new(
        scenario: &Scenario,
        options: &Options,
        cores: impl Into<Cores>,
    ) -> Result<World, WorldError> {
        let fabric = Fabric::new(scenario, options.seed);
        let wake = Wake::default();
        let count = scenario.network.cards;
        let hosts: Vec<_> = (0..count)
            .map(|_| Arc::new(HostSide::new(wake.clone())))
            .collect();
        let mut captures = vec![];
        for card in 0..count {
            if let Some(dir) = &options.pcap {
                captures.push(Capture::create(dir, &format!("card{card}"))?);
            }
        }
        let new = |i: usize| (i, fabric.card_rate(i), Arc::clone(&hosts[i]));
        let mut all: Vec<Box<dyn Card>> = vec![];
        let cores = cores.into();
        let threads = match (options.threads, &cores) {
            (0, Cores::Clocked(_)) => std::thread::available_parallelism().map_or(1, usize::from),
            (0, Cores::Model) => 1,
            (wanted, _) => wanted,
        };
        match cores {
            Cores::Clocked(cores) => {
                assert_eq!(cores.len(), count, "one core per card of the scenario");
                for (i, core) in cores.into_iter().enumerate() {
                    let (i, rate, host) = new(i);
                    let card = ClockedCard::new(scenario, i, rate, options.seed, core, host);
                    all.push(Box::new(card));
                }
            }
            Cores::Model => {
                for (i, rate, host) in (0..count).map(new) {
                    let card = StandIn::new(scenario, i, rate, options.seed, host);
                    all.push(Box::new(card));
                }
            }
        }
        if options.pcap.is_some() {
            all.iter_mut().for_each(|card| card.record());
        }
        let cards: Cards = all.into_iter().map(Mutex::new).collect();
        Ok(World {
            name: scenario.name.clone(),
            seed: options.seed,
            window: fabric.lookahead(),
            pool: Pool::new(&cards, threads.clamp(1, count)),
            fabric,
            cards,
            hosts,
            captures,
            wake,
            now: 0,
            running: Duration::ZERO,
        })
    }

    /// The host's end of a card.
    pub fn host(&self, card: usize) -> &Arc<HostSide> {
        &self.hosts[card]
    }

    /// Number of cards.
    pub fn cards(&self) -> usize {
        self.cards.len()
    }

    /// Rings when a request for a card arrives; to be rung after sending a [`Command`].
    pub fn wake(&self) -> Wake {
        self.wake.clone()
    }

    /// Simulated time.
    pub fn now(&self) -> Ps {
        self.now
    }

    /// Runs for `length`, or for the longest window if that is shorter.
    pub fn step(&mut self, length: Ps) {
        let started = Instant::now();
        let end = self.now + length.min(self.window).max(1);
        let fabric = &mut self.fabric;
        let deliveries = self.pool.run(&self.cards, end, || fabric.run_until(end));
        for card in 0..self.cards.len() {
            for sent in lock(&self.cards[card]).take_sent() {
                self.fabric.send(card, sent.start, sent.end, sent.frame);
            }
        }
        // On a direct wire, with no switch in between, sending alone makes deliveries.
        for Delivery { card, arrival } in
            deliveries.into_iter().chain(self.fabric.take_deliveries())
        {
            lock(&self.cards[card]).expect(arrival.first_bit, arrival.last_bit, arrival.frame);
        }
        self.now = end;
        self.running += started.elapsed();
        self.capture(end);
    }

    /// Whether nothing has happened for a while and nothing is on its way.
    pub fn is_idle(&self) -> bool {
        let quiet = |card: &Mutex<Box<dyn Card>>| self.now > lock(card).active_at() + LINGER;
        self.fabric.next_event().is_none()
            && self.hosts.iter().all(|host| host.waiting() == 0)
            && self.cards.iter().all(quiet)
    }

    /// Changes links; says how many matched.
    pub fn change_link(&mut self, rule: &LinkRule, down: Option<bool>) -> usize {
        let matched = self.fabric.change(rule, down);
        self.window = self.fabric.lookahead();
        matched
    }

    /// Adds events whose times count from now; says how many links they change.
    pub fn schedule(&mut self, events: &[Event]) -> usize {
        let changed = self.fabric.schedule(events, self.now);
        self.window = self.fabric.lookahead();
        changed
    }

    /// Lets `tap` see every frame of the network, and drop what it likes.
    pub fn set_tap(&mut self, tap: Box<dyn Tap>) {
        self.fabric.set_tap(tap);
    }

    /// Counters of everything.
    pub fn stats(&self) -> WorldStats {
        let seconds = self.running.as_secs_f64();
        let report = |i: usize| {
            let card = lock(&self.cards[i]);
            CardReport::new(
                i,
                card.stats(),
                seconds,
                &self.hosts[i],
                self.captures.get(i).map(Capture::file),
            )
        };
        WorldStats::new(
            &self.name,
            self.seed,
            self.now,
            seconds,
            (0..self.cards.len()).map(report).collect(),
            self.fabric.stats(),
        )
    }

    fn capture(&mut self, end: Ps) {
        for (card, capture) in self.captures.iter_mut().enumerate() {
            let seen = lock(&self.cards[card]).take_seen(end);
            if let Err(error) = capture.write(&seen) {
                tracing::error!("{error}; capturing stops");
                self.captures.clear();
                return;
            }
        }
    }
}

/// Locks a card. After a panic of its thread the world stops anyway, so the poison says nothing new.
fn lock(card: &Mutex<Box<dyn Card>>) -> MutexGuard<'_, Box<dyn Card>> {
    card.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
