//! Pairs of a data WRITE and a flag WRITE that says "the data are there" (protocol section 6), and an observer that
//! sees every write of the receiving card in the order in which it becomes visible, so that no early flag is missed.

use crate::rig::{pattern, Pair, PairAttr, Rig, US};
use anyhow::{ensure, Result};
use mprdma_host::memory::{Memory, PageSize};
use mprdma_host::verbs::{Mr, SendFlags, SendWr};
use mprdma_sim::pcie::WriteSink;
use mprdma_sim::time::{Ps, NS};
use mprdma_spec::counter::Counter;
use mprdma_spec::descriptor::WrOpcode;
use mprdma_spec::status::WcStatus;
use rand::{Rng as _, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::{Arc, Mutex, PoisonError};

/// Path MTU, bytes.
pub const MTU: usize = 1024;
/// Longest data.
const LONGEST: usize = 5 * MTU;
/// Bytes between the data of two pairs; not a multiple of anything, so that every alignment comes up.
const STRIDE: usize = LONGEST + 77;
/// The flag lies at the start of the target, the data behind it.
const DATA: usize = 4096;
/// Bytes of random data, out of which every pair sends its part.
const BLOB: usize = 1 << 16;
/// Pairs that may be under way: two WQEs each.
const DEPTH: usize = 30;
/// How often the host looks for completions.
const GLANCE: Ps = US / 10;

/// Four paths whose delays differ by more than a message takes, and that lose and hold back packets.
pub const NETWORK: &str = r#"
name = "sync"
[network]
kind = "leaf-spine"
cards = 2
leaves = 2
spines = 4
card_rate_gbps = 100.0
spine_rate_gbps = 25.0
delay_ns = 300
queue_packets = 256
queue_bytes = 2_097_152
ecn_packets = 6
[[link]]
from = "leaf0"
to = "spine*"
loss = 0.002
reorder = 0.05
reorder_ns = 3000
[[link]]
from = "spine1"
to = "leaf1"
delay_ns = 700
[[link]]
from = "spine2"
to = "leaf1"
delay_ns = 1100
[[link]]
from = "spine3"
to = "leaf1"
delay_ns = 1500
"#;

/// How the flag is kept behind its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The flag's WRITE is flagged SYNC.
    Sync,
    /// The host waits for the completion of the data before it posts the flag.
    Wait,
    /// Not at all.
    Nothing,
}

/// What a run did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Data and flag.
    pub pairs: usize,
    /// Flags that were visible before their data.
    pub violations: usize,
    /// Flags that were visible before an earlier flag or earlier data.
    pub overtakings: usize,
    /// Payload bits of the data per second of simulated time, Gb/s.
    pub gbps: f64,
    /// Sync NAKs that the sender got.
    pub sync_naks: u64,
    /// Retransmitted packets.
    pub retransmissions: u64,
}

/// Where one pair's data come from and how long they are.
#[derive(Clone, Copy)]
struct Plan {
    from: usize,
    length: usize,
}

fn plans(pairs: usize, rng: &mut ChaCha8Rng) -> Vec<Plan> {
    let mut plan = || {
        let length = match rng.random_range(0..10) {
            0 => 0,
            1 => rng.random_range(1..=64),
            2 => MTU,
            3 => rng.random_range(1..=MTU),
            _ => rng.random_range(MTU + 1..=LONGEST),
        };
        let from = rng.random_range(0..=BLOB - length);
        Plan { from, length }
    };
    (0..pairs).map(|_| plan()).collect()
}

/// What the receiving host can see, byte by byte.
struct Observer {
    base: u64,
    blob: Arc<Vec<u8>>,
    plans: Vec<Plan>,
    /// Bytes of each pair that are there.
    seen: Vec<Vec<bool>>,
    missing: Vec<usize>,
    /// Data of all pairs before this one are there.
    whole: usize,
    flags: Vec<bool>,
    last_flag: usize,
    violations: usize,
    overtakings: usize,
    /// What must never happen: wrong bytes, bytes outside, bytes or flags written twice.
    faults: Vec<String>,
}

impl Observer {
    fn new(base: u64, blob: Arc<Vec<u8>>, plans: &[Plan]) -> Self {
        Self {
            base,
            blob,
            plans: plans.to_vec(),
            seen: plans.iter().map(|plan| vec![false; plan.length]).collect(),
            missing: plans.iter().map(|plan| plan.length).collect(),
            whole: 0,
            flags: vec![false; plans.len()],
            last_flag: 0,
            violations: 0,
            overtakings: 0,
            faults: vec![],
        }
    }

    fn flag(&mut self, bytes: &[u8]) {
        let value = bytes.try_into().map_or(0, u64::from_le_bytes) as usize;
        if value == 0 || value > self.plans.len() || self.flags[value - 1] {
            self.faults.push(format!("flag {bytes:02x?}"));
            return;
        }
        self.flags[value - 1] = true;
        self.violations += usize::from(self.missing[value - 1] > 0);
        while self.whole < self.plans.len() && self.missing[self.whole] == 0 {
            self.whole += 1;
        }
        self.overtakings += usize::from(value != self.last_flag + 1 || self.whole < value);
        self.last_flag = value;
    }

    fn data(&mut self, offset: usize, bytes: &[u8]) {
        let (pair, at) = (offset / STRIDE, offset % STRIDE);
        let plan = self.plans.get(pair).copied();
        let Some(plan) = plan.filter(|plan| at + bytes.len() <= plan.length) else {
            self.faults.push(format!("pair {pair}: bytes at {at}"));
            return;
        };
        if bytes != &self.blob[plan.from + at..][..bytes.len()] {
            self.faults
                .push(format!("pair {pair}: wrong bytes at {at}"));
        }
        let seen = &mut self.seen[pair][at..at + bytes.len()];
        if seen.contains(&true) {
            self.faults.push(format!("pair {pair}: {at} placed twice"));
            return;
        }
        seen.fill(true);
        self.missing[pair] -= bytes.len();
    }
}

struct Sink(Arc<Mutex<Observer>>);

impl WriteSink for Sink {
    fn written(&mut self, _: Ps, iova: u64, bytes: &[u8]) {
        let mut observer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The card also writes into its queues, which lie elsewhere.
        let end = (DATA + observer.plans.len() * STRIDE) as u64;
        match iova.checked_sub(observer.base).filter(|o| *o < end) {
            Some(0) => observer.flag(bytes),
            Some(offset) if offset >= DATA as u64 => observer.data(offset as usize - DATA, bytes),
            Some(offset) => observer.faults.push(format!("bytes at {offset}")),
            None => {}
        }
    }
}

/// The sending side.
struct Sender<'a> {
    pair: &'a Pair,
    blob: &'a Mr,
    flags: &'a Mr,
    target: &'a Mr,
    plans: &'a [Plan],
}

impl Sender<'_> {
    fn data(&self, i: usize, signaled: bool) -> SendWr {
        let plan = self.plans[i];
        SendWr {
            wr_id: 2 * i as u64,
            opcode: WrOpcode::RdmaWrite,
            flags: SendFlags {
                signaled,
                ..SendFlags::default()
            },
            addr: self.blob.addr() + plan.from as u64,
            length: plan.length as u64,
            lkey: self.blob.lkey(),
            remote_addr: self.target.addr() + (DATA + i * STRIDE) as u64,
            rkey: self.target.rkey(),
            imm: 0,
            compare_add: 0,
            swap: 0,
        }
    }

    fn flag(&self, i: usize, sync: bool) -> SendWr {
        SendWr {
            wr_id: 2 * i as u64 + 1,
            opcode: WrOpcode::RdmaWrite,
            flags: SendFlags {
                signaled: true,
                sync,
                ..SendFlags::default()
            },
            addr: self.flags.addr() + 8 * i as u64,
            length: 8,
            lkey: self.flags.lkey(),
            remote_addr: self.target.addr(),
            rkey: self.target.rkey(),
            imm: 0,
            compare_add: 0,
            swap: 0,
        }
    }
}

/// Sends `pairs` pairs over a rig of [`NETWORK`] from card 0 to card 1.
///
/// # Errors
/// A completion fails, the run stands still, or the memory is wrong at any time in another way than a flag too early.
pub fn run(seed: u64, pairs: usize, order: Order, attr: &PairAttr) -> Result<Outcome> {
    let rig = Rig::start(NETWORK, seed)?;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let plans = plans(pairs, &mut rng);
    let pair = rig.pair(
        0,
        1,
        &PairAttr {
            mtu: MTU as u32,
            ..*attr
        },
    )?;
    let bytes = Arc::new(pattern(seed, BLOB));
    let blob = rig.region(0, 0, BLOB)?;
    blob.write(0, &bytes)?;
    let flags = rig.region(0, 0, 8 * pairs)?;
    let values = (1..=pairs as u64).flat_map(u64::to_le_bytes);
    flags.write(0, &values.collect::<Vec<u8>>())?;
    let memory = Arc::new(Memory::allocate(DATA + pairs * STRIDE, PageSize::Small)?);
    let target = rig.register(1, &memory, 0, memory.bytes())?;
    let observer = Observer::new(target.iova(), Arc::clone(&bytes), &plans);
    let observer = Arc::new(Mutex::new(observer));
    rig.sim
        .watch(1, Some(Box::new(Sink(Arc::clone(&observer)))));

    let sender = Sender {
        pair: &pair,
        blob: &blob,
        flags: &flags,
        target: &target,
        plans: &plans,
    };
    let time = match order {
        Order::Wait => wait(&rig, &sender)?,
        _ => ahead(&rig, &sender, order == Order::Sync)?,
    };
    rig.sim.watch(1, None);

    let observer = observer.lock().unwrap_or_else(PoisonError::into_inner);
    ensure!(observer.faults.is_empty(), "{:?}", observer.faults);
    ensure!(
        observer.missing.iter().all(|bytes| *bytes == 0) && observer.flags.iter().all(|f| *f),
        "everything completed, and not everything is there"
    );
    for (i, plan) in plans.iter().enumerate() {
        let mut found = vec![0; plan.length];
        target.read(DATA + i * STRIDE, &mut found)?;
        ensure!(found == bytes[plan.from..][..plan.length], "pair {i}");
    }
    let payload: usize = plans.iter().map(|plan| plan.length).sum();
    let counters = rig.sides[0].context.counters()?;
    let count = |wanted| counters.iter().find(|c| c.0 == wanted).map_or(0, |c| c.1);
    Ok(Outcome {
        pairs,
        violations: observer.violations,
        overtakings: observer.overtakings,
        gbps: payload as f64 * 8.0 * NS as f64 / time as f64,
        sync_naks: count(Counter::SyncNaks),
        retransmissions: count(Counter::TxRetransmissions),
    })
}

/// Posts pairs as long as there is room.
fn ahead(rig: &Rig, sender: &Sender<'_>, sync: bool) -> Result<Ps> {
    let (start, pairs) = (rig.sim.now(), sender.plans.len());
    let (mut posted, mut done) = (0, 0);
    let mut progress = Progress::new(start);
    while done < pairs {
        let count = (DEPTH - (posted - done)).min(pairs - posted);
        let requests: Vec<SendWr> = (posted..posted + count)
            .flat_map(|i| [sender.data(i, false), sender.flag(i, sync)])
            .collect();
        sender.pair.tx.post_send(&requests)?;
        posted += count;
        rig.sim.run(GLANCE);
        done += progress.look(rig)?;
    }
    Ok(rig.sim.now() - start)
}

/// Posts a flag when its data have completed, and the next data with it.
fn wait(rig: &Rig, sender: &Sender<'_>) -> Result<Ps> {
    let (start, pairs) = (rig.sim.now(), sender.plans.len());
    let mut progress = Progress::new(start);
    let mut requests = vec![sender.data(0, true)];
    for i in 0..=pairs {
        let mut left = requests.len();
        sender.pair.tx.post_send(&requests)?;
        while left > 0 {
            rig.sim.run(GLANCE);
            left -= progress.look(rig)?;
        }
        requests.clear();
        if i < pairs {
            requests.push(sender.flag(i, false));
        }
        if i + 1 < pairs {
            requests.push(sender.data(i + 1, true));
        }
    }
    Ok(rig.sim.now() - start)
}

/// Takes completions, and gives up when none comes for long.
struct Progress {
    last: Ps,
}

impl Progress {
    fn new(now: Ps) -> Self {
        Self { last: now }
    }

    fn look(&mut self, rig: &Rig) -> Result<usize> {
        let found = rig.sides[0].cq.poll(64)?;
        let now = rig.sim.now();
        for wc in &found {
            ensure!(wc.status == WcStatus::Success, "{wc:?}");
            self.last = now;
        }
        ensure!(now < self.last + 20_000 * US, "nothing for 20 ms");
        Ok(found.len())
    }
}
