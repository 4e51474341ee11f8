//! Plays a plan.

use super::accounts;
use super::plan::{Flow, Message, Plan, COUNTERS};
use super::watch::Watch;
use crate::rig::{pattern, Pair, Rig, US};
use anyhow::{bail, ensure, Context as _, Result};
use mprdma_host::memory::{Memory, PageSize};
use mprdma_host::verbs::{Mr, Qp, RecvWr, SendFlags, SendWr, Wc};
use mprdma_sim::time::Ps;
use mprdma_sim::world::Options;
use mprdma_spec::descriptor::{WcOpcode, WrOpcode};
use mprdma_spec::params::ATOMIC_BYTES;
use mprdma_spec::status::WcStatus;
use std::collections::HashMap;
use std::sync::Arc;

/// What target memory holds before, around and between messages.
const UNTOUCHED: u8 = 0xee;
/// What the application writes over data that it has seen.
const REUSED: u8 = 0x77;
/// How long stragglers are waited for at the end.
const AFTER: Ps = 60 * US;

/// How a scenario went.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Simulated time from the first post to the last completion.
    pub time: Ps,
    /// The time within which that had to happen.
    pub bound: Ps,
    /// Data packets sent for the first time.
    pub packets: u64,
    /// Retransmissions.
    pub again: u64,
    /// Frames that the network dropped.
    pub drops: u64,
}

/// One card's memory.
struct Half {
    source: Mr,
    data: Vec<u8>,
    target: Mr,
    memory: Arc<Memory>,
    expected: Vec<u8>,
    counters: Mr,
    /// What each counter held at first, and what each ATOMIC found there and added.
    held: [u64; COUNTERS],
    added: [Vec<(u64, u64)>; COUNTERS],
}

/// How far a flow is.
#[derive(Clone, Copy, Default)]
struct Progress {
    posted: usize,
    sent: usize,
    receives: bool,
    received: usize,
}

struct Player<'a> {
    plan: &'a Plan,
    rig: Rig,
    halves: Vec<Half>,
    pairs: Vec<Pair>,
    progress: Vec<Progress>,
    start: Ps,
}

/// Plays the plan on the engine of `options` with the plan's seed.
///
/// # Errors
/// Says what is wrong with the outcome.
pub fn run(plan: &Plan, options: &Options) -> Result<Outcome> {
    let options = Options {
        seed: plan.seed,
        ..options.clone()
    };
    let rig = Rig::new(&plan.scenario, &options)?;
    let watch = Watch::default();
    rig.sim.set_tap(Box::new(watch.clone()));
    let halves = (0..2)
        .map(|card| half(plan, &rig, card))
        .collect::<Result<_>>()?;
    let pairs = plan
        .pairs
        .iter()
        .map(|attr| rig.pair(0, 1, attr))
        .collect::<Result<_>>()?;
    let mut player = Player {
        plan,
        start: rig.sim.now(),
        rig,
        halves,
        pairs,
        progress: vec![Progress::default(); plan.flows.len()],
    };
    player.rig.sim.schedule(&plan.events);
    player.play()?;
    let time = player.rig.sim.now() - player.start;
    player.settle()?;
    // Stragglers and late duplicates must change nothing.
    player.rig.sim.run(AFTER);
    player.check_memory()?;
    player.check_counters()?;
    for side in &player.rig.sides {
        ensure!(side.cq.poll(1)?.is_empty(), "a completion too many");
        ensure!(
            side.context.poll_events()?.is_empty(),
            "an asynchronous event"
        );
    }
    let seen = watch.seen();
    accounts::check(plan, &player.rig, &seen)?;
    let again = seen.iter().map(|card| card.sent_again).sum();
    Ok(Outcome {
        time,
        bound: plan.bound,
        packets: seen.iter().map(|card| card.sent_data).sum::<u64>() - again,
        again,
        drops: player.rig.sim.stats().fabric.drops,
    })
}

fn half(plan: &Plan, rig: &Rig, card: usize) -> Result<Half> {
    let source = rig.region(card, 3, plan.source_bytes[card])?;
    let data = pattern(plan.seed ^ card as u64, plan.source_bytes[card]);
    source.write(0, &data)?;
    let memory = Arc::new(Memory::allocate(plan.target_bytes[card], PageSize::Small)?);
    let expected = vec![UNTOUCHED; memory.bytes()];
    memory.write(0, &expected)?;
    let target = rig.register(card, &memory, 0, memory.bytes())?;
    let counters = rig.region(card, 0, COUNTERS * ATOMIC_BYTES)?;
    let start = pattern(!plan.seed ^ card as u64, COUNTERS * ATOMIC_BYTES);
    counters.write(0, &start)?;
    Ok(Half {
        source,
        data,
        target,
        memory,
        expected,
        held: std::array::from_fn(|i| word(&start[i * ATOMIC_BYTES..])),
        added: Default::default(),
        counters,
    })
}

/// The first 8 bytes in the host's byte order.
fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[i]))
}

impl Player<'_> {
    fn play(&mut self) -> Result<()> {
        let end = self.start + self.plan.bound;
        while !self.done() {
            if self.rig.sim.now() >= end {
                bail!(
                    "not complete after {} us: {}",
                    self.plan.bound / US,
                    self.describe()
                );
            }
            for i in 0..self.plan.flows.len() {
                self.post(i)?;
            }
            for card in 0..2 {
                for wc in self.rig.sides[card].cq.poll(4096)? {
                    self.complete(card, &wc).with_context(|| {
                        format!(
                            "card {card}, {} us after the start, {wc:?}",
                            (self.rig.sim.now() - self.start) / US
                        )
                    })?;
                }
            }
            self.rig.sim.run(US / 2);
        }
        Ok(())
    }

    /// A READ or ATOMIC is done when its data are there; that its peer has heard so may take more retransmissions.
    fn settle(&mut self) -> Result<()> {
        let reads = |flow: &Flow| flow.messages.iter().any(|m| m.reads);
        let end = self.rig.sim.now() + self.plan.bound;
        for flow in self.plan.flows.iter().filter(|flow| reads(flow)) {
            loop {
                let (qp, peer) = self.ends(flow);
                let states = [qp.query()?, peer.query()?];
                if states.iter().all(|qp| qp.snd_una == qp.snd_lim) {
                    break;
                }
                ensure!(self.rig.sim.now() < end, "answers are not acknowledged");
                self.rig.sim.run(US);
            }
        }
        Ok(())
    }

    fn done(&self) -> bool {
        let all = self.plan.flows.iter().zip(&self.progress);
        all.into_iter()
            .all(|(flow, p)| p.sent == flow.messages.len() && p.received == flow.messages.len())
    }

    /// The queue pair that sends, and the one that receives.
    fn ends(&self, flow: &Flow) -> (&Qp, &Qp) {
        let pair = &self.pairs[flow.pair];
        match flow.from == pair.from {
            true => (&pair.tx, &pair.rx),
            false => (&pair.rx, &pair.tx),
        }
    }

    fn post(&mut self, i: usize) -> Result<()> {
        let flow = &self.plan.flows[i];
        let mut progress = self.progress[i];
        let (tx, rx) = self.ends(flow);
        if !progress.receives && self.rig.sim.now() >= self.start + flow.receives_at {
            let with_imm = flow
                .messages
                .iter()
                .enumerate()
                .filter(|(_, m)| m.imm.is_some());
            let receives: Vec<_> = with_imm
                .map(|(i, _)| RecvWr {
                    wr_id: i as u64,
                    ..RecvWr::default()
                })
                .collect();
            rx.post_recv(&receives)?;
            progress.receives = true;
        }
        let room = flow.outstanding.saturating_sub(tx.send_outstanding());
        let next = (flow.messages.len() - progress.posted).min(room);
        if next > 0 {
            let requests: Vec<_> = (progress.posted..progress.posted + next)
                .map(|n| self.request(flow, n))
                .collect();
            tx.post_send(&requests)?;
            progress.posted += next;
        }
        self.progress[i] = progress;
        self.skip_silent(i);
        Ok(())
    }

    fn request(&self, flow: &Flow, n: usize) -> SendWr {
        let message = &flow.messages[n];
        let (from, to) = flow.data(message);
        let source = (&self.halves[from].source, message.source as u64);
        let target = (&self.halves[to].target, message.target as u64);
        let (local, remote) = match message.reads {
            false => (source, target),
            true => (target, source),
        };
        let remote = match message.adds {
            Some(add) => (
                &self.halves[from].counters,
                (add.counter * ATOMIC_BYTES) as u64,
            ),
            None => remote,
        };
        SendWr {
            wr_id: n as u64,
            opcode: match message.imm {
                Some(_) => WrOpcode::RdmaWriteWithImm,
                None if message.adds.is_some() => WrOpcode::AtomicFetchAndAdd,
                None if message.reads => WrOpcode::RdmaRead,
                None => WrOpcode::RdmaWrite,
            },
            flags: SendFlags {
                signaled: message.signaled,
                fence: message.fence,
                sync: message.sync,
                solicited: false,
            },
            addr: local.0.addr() + local.1,
            length: message.length as u64,
            lkey: local.0.lkey(),
            remote_addr: remote.0.addr() + remote.1,
            rkey: remote.0.rkey(),
            imm: message.imm.unwrap_or(0),
            compare_add: message.adds.map_or(0, |add| add.value),
            swap: 0,
        }
    }

    /// Only messages with immediate make receive completions.
    fn skip_silent(&mut self, i: usize) {
        let messages = &self.plan.flows[i].messages;
        let received = &mut self.progress[i].received;
        while *received < messages.len() && messages[*received].imm.is_none() {
            *received += 1;
        }
    }

    fn complete(&mut self, card: usize, wc: &Wc) -> Result<()> {
        ensure!(
            wc.status == WcStatus::Success,
            "failed; {}",
            self.describe()
        );
        match wc.opcode {
            Some(WcOpcode::RecvRdmaWithImm) => self.received(card, wc),
            Some(_) => self.sent(card, wc),
            None => bail!("a completion of nothing"),
        }
    }

    fn find(&self, from: usize, number: impl Fn(&Flow) -> u32, wanted: u32) -> Result<usize> {
        let mut flows = self.plan.flows.iter();
        flows
            .position(|flow| flow.from == from && number(flow) == wanted)
            .context("a completion of a queue pair that has no such work")
    }

    /// A send completion: the next that is signaled, and everything up to it has arrived.
    fn sent(&mut self, card: usize, wc: &Wc) -> Result<()> {
        let i = self.find(card, |flow| self.ends(flow).0.qp_num(), wc.qp_num)?;
        let flow = &self.plan.flows[i];
        let done = self.progress[i].sent;
        let next = flow.messages[done..]
            .iter()
            .position(|m| m.signaled)
            .map(|n| done + n);
        ensure!(next == Some(wc.wr_id as usize), "expected request {next:?}");
        let opcode = next.map(|n| match flow.messages[n] {
            Message { adds: Some(_), .. } => WcOpcode::FetchAdd,
            Message { reads: true, .. } => WcOpcode::RdmaRead,
            _ => WcOpcode::RdmaWrite,
        });
        ensure!(opcode == wc.opcode, "{opcode:?} was posted");
        let upto = wc.wr_id as usize;
        for n in done..=upto {
            self.arrived(i, n).with_context(|| format!("message {n}"))?;
        }
        self.progress[i].sent = upto + 1;
        for n in done..=upto {
            if flow.messages[n].reused {
                self.reuse(flow, &flow.messages[n])?;
            }
        }
        Ok(())
    }

    fn received(&mut self, card: usize, wc: &Wc) -> Result<()> {
        let i = self.find(1 - card, |flow| self.ends(flow).1.qp_num(), wc.qp_num)?;
        let flow = &self.plan.flows[i];
        let next = self.progress[i].received;
        let message = flow
            .messages
            .get(next)
            .context("one receive completion too many")?;
        ensure!(
            (wc.wr_id, wc.imm, wc.byte_len as usize) == (next as u64, message.imm, message.length),
            "expected message {next}: {message:?}"
        );
        if self.progress[i].sent <= next {
            self.arrived(i, next)?;
        }
        self.progress[i].received += 1;
        self.skip_silent(i);
        Ok(())
    }

    /// The data of message `n` are there, unless a later one or the application has written over them.
    fn arrived(&mut self, i: usize, n: usize) -> Result<()> {
        let flow = &self.plan.flows[i];
        let message = &flow.messages[n];
        if flow.messages.get(n + 1).is_some_and(|next| next.overwrites) {
            return Ok(());
        }
        let (from, to) = flow.data(message);
        let mut got = vec![0; message.length];
        self.halves[to].memory.read(message.target, &mut got)?;
        let bytes = match message.adds {
            // Which of them it found is seen at the end.
            Some(add) => {
                self.halves[from].added[add.counter].push((word(&got), add.value));
                got.clone()
            }
            None => self.halves[from].data[message.source..][..message.length].to_vec(),
        };
        let half = &mut self.halves[to];
        let wrong = got.iter().zip(&bytes).position(|(a, b)| a != b);
        ensure!(
            wrong.is_none(),
            "complete, but the data differ from byte {wrong:?} on: {message:?}"
        );
        half.expected[message.target..][..message.length].copy_from_slice(&bytes);
        Ok(())
    }

    fn reuse(&mut self, flow: &Flow, message: &Message) -> Result<()> {
        let half = &mut self.halves[flow.data(message).1];
        let marker = vec![REUSED; message.length];
        half.memory.write(message.target, &marker)?;
        half.expected[message.target..][..message.length].copy_from_slice(&marker);
        Ok(())
    }

    /// Each ATOMIC found what another one, and only one, had left.
    fn check_counters(&self) -> Result<()> {
        for half in &self.halves {
            let mut now = [0; COUNTERS * ATOMIC_BYTES];
            half.counters.read(0, &mut now)?;
            for (i, added) in half.added.iter().enumerate() {
                let found: HashMap<u64, u64> = added.iter().copied().collect();
                ensure!(found.len() == added.len(), "two ATOMICs found the same");
                let mut value = half.held[i];
                for done in 0..added.len() {
                    let add = found.get(&value);
                    let add =
                        add.with_context(|| format!("no ATOMIC after {done} of {found:?}"))?;
                    value = value.wrapping_add(*add);
                }
                let held = word(&now[i * ATOMIC_BYTES..]);
                ensure!(held == value, "{held:#x} is not {value:#x}, the exact sum");
            }
        }
        Ok(())
    }

    fn check_memory(&self) -> Result<()> {
        for (card, half) in self.halves.iter().enumerate() {
            let mut got = vec![0; half.memory.bytes()];
            half.memory.read(0, &mut got)?;
            if let Some(at) = got.iter().zip(&half.expected).position(|(a, b)| a != b) {
                let hit = |m: &&Message| (m.target..m.target + m.length).contains(&at);
                let owner = self.plan.flows.iter().find_map(|flow| {
                    let mut there = flow.messages.iter().filter(|m| flow.data(m).1 == card);
                    there.find(hit).map(|m| (flow.pair, *m))
                });
                bail!(
                    "memory of card {card} differs at byte {at}: {:#x} is not {:#x}; message there: {owner:?}",
                    got[at],
                    half.expected[at]
                );
            }
        }
        Ok(())
    }

    /// Flows that are not complete, with what the card says of their queue pairs.
    fn describe(&self) -> String {
        let mut text = String::new();
        for (flow, p) in self.plan.flows.iter().zip(&self.progress) {
            if p.sent == flow.messages.len() && p.received == flow.messages.len() {
                continue;
            }
            let (tx, rx) = self.ends(flow);
            text += &format!(
                "\n  pair {} from card {}: {} messages, {} posted, {} sent, {} received\n    sender {:?}\n    receiver {:?}",
                flow.pair,
                flow.from,
                flow.messages.len(),
                p.posted,
                p.sent,
                p.received,
                tx.query(),
                rx.query(),
            );
        }
        text
    }
}
