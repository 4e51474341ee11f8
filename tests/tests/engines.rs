//! The RTL and the model that stands in for it, flow by flow: the same scenario, seed and work requests, and the same
//! bytes, completions, memory and PSNs. Times agree within a band: the two draw other random paths.

use anyhow::{ensure, Result};
use mprdma_host::memory::{Memory, PageSize};
use mprdma_host::verbs::{Mr, MultiPath, RecvWr, RtsAttr, SendWr, Wc};
use mprdma_sim::engine::Engine;
use mprdma_sim::time::{Ps, NS};
use mprdma_spec::counter::Counter;
use mprdma_spec::descriptor::WrOpcode;
use mprdma_spec::status::WcStatus;
use mprdma_tests::rig::{pattern, write_request, Pair, PairAttr, Rig, US};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

/// Work requests that a flow has posted and not seen completed.
const DEPTH: usize = 16;

/// One flow of a plan.
#[derive(Clone)]
struct Flow {
    cards: (usize, usize),
    attr: PairAttr,
    requests: Vec<Request>,
}

#[derive(Clone, Copy)]
struct Request {
    length: usize,
    /// Immediate data; then the peer has a receive request for it.
    imm: Option<u32>,
    /// The remote key is one that nobody has.
    bad_key: bool,
}

/// What a completion says, but for its time.
type Completed = (u64, WcStatus, u32, Option<u32>);

/// What a flow came to.
#[derive(Debug, PartialEq)]
struct Outcome {
    sent: Vec<Completed>,
    received: Vec<Completed>,
    /// The target, as far as its messages completed: of those behind a failed one any part may have arrived.
    memory: Vec<u8>,
    /// Sender: oldest PSN not acknowledged; receiver: PSN that it waits for, messages completed.
    psns: [u64; 3],
    /// Sender: next PSN, and that after the last fetched; not of a flow that failed, where it depends on the time.
    sent_psns: Option<[u64; 2]>,
}

/// What a whole run came to.
struct Run {
    flows: Vec<Outcome>,
    /// Payload rate of all flows from the first doorbell to the last completion, Gb/s.
    gbps_together: f64,
    /// Part of the bytes from card 0's leaf by each spine.
    shares: Vec<f64>,
    /// Wall time per simulated time.
    slowness: f64,
    retransmissions: u64,
}

/// A flow that runs.
struct Running {
    pair: Pair,
    memory: Arc<Memory>,
    requests: Vec<SendWr>,
    bytes: usize,
    posted: usize,
    sent: Vec<Completed>,
    received: Vec<Completed>,
    done_at: Ps,
    _regions: [Mr; 2],
}

fn start(rig: &Rig, flow: &Flow, seed: u64) -> Result<Running> {
    let (from, to) = flow.cards;
    let pair = rig.pair(from, to, &flow.attr)?;
    let bytes = flow.requests.iter().map(|r| r.length).sum::<usize>();
    let source = rig.region(from, 5, bytes.max(1))?;
    source.write(0, &pattern(seed, bytes))?;
    let memory = Arc::new(Memory::allocate(bytes + 128, PageSize::Small)?);
    let target = rig.register(to, &memory, 64, bytes.max(1))?;
    let mut requests = vec![];
    let mut at = 0;
    let immediates = flow.requests.iter().filter(|r| r.imm.is_some()).count();
    for (i, request) in flow.requests.iter().enumerate() {
        let plain = write_request(i as u64, &source, &target, request.length);
        requests.push(SendWr {
            opcode: match request.imm {
                Some(_) => WrOpcode::RdmaWriteWithImm,
                None => WrOpcode::RdmaWrite,
            },
            imm: request.imm.unwrap_or(0),
            addr: source.addr() + at as u64,
            remote_addr: target.addr() + at as u64,
            rkey: if request.bad_key { 0x7f00 } else { plain.rkey },
            ..plain
        });
        at += request.length;
    }
    let receives: Vec<_> = (0..immediates as u64)
        .map(|wr_id| RecvWr {
            wr_id,
            addr: 0,
            length: 0,
            lkey: 0,
        })
        .collect();
    pair.rx.post_recv(&receives)?;
    Ok(Running {
        pair,
        memory,
        requests,
        bytes,
        posted: 0,
        sent: vec![],
        received: vec![],
        done_at: 0,
        _regions: [source, target],
    })
}

impl Running {
    fn post(&mut self) -> Result<()> {
        let room = DEPTH - (self.posted - self.sent.len());
        let end = (self.posted + room).min(self.requests.len());
        self.pair.tx.post_send(&self.requests[self.posted..end])?;
        self.posted = end;
        Ok(())
    }

    /// Takes a completion if it is one of this flow's.
    fn take(&mut self, card: usize, wc: &Wc, now: Ps) -> bool {
        let completed = (wc.wr_id, wc.status, wc.byte_len, wc.imm);
        if card == self.pair.from && wc.qp_num == self.pair.tx.qp_num() {
            self.sent.push(completed);
            self.done_at = now;
            true
        } else if card == self.pair.to && wc.qp_num == self.pair.rx.qp_num() {
            self.received.push(completed);
            true
        } else {
            false
        }
    }

    fn outcome(&self) -> Result<Outcome> {
        let (tx, rx) = (self.pair.tx.query()?, self.pair.rx.query()?);
        let good = self
            .sent
            .iter()
            .take_while(|(_, status, ..)| *status == WcStatus::Success);
        let (count, bytes) = good.fold((0, 0), |(count, bytes), wc| (count + 1, bytes + wc.2));
        let failed = count < self.sent.len();
        let mut memory = vec![
            0;
            if failed {
                64 + bytes as usize
            } else {
                self.memory.bytes()
            }
        ];
        self.memory.read(0, &mut memory)?;
        Ok(Outcome {
            sent: self.sent.clone(),
            received: self.received.clone(),
            memory,
            psns: [tx.snd_una, rx.rcv_nxt, rx.msn],
            sent_psns: (!failed).then_some([tx.snd_nxt, tx.snd_lim]),
        })
    }
}

fn run(scenario: &str, plan: &[Flow], seed: u64, engine: Engine) -> Result<Run> {
    let rig = Rig::with_engine(scenario, seed, engine)?;
    let mut flows = plan
        .iter()
        .enumerate()
        .map(|(i, flow)| start(&rig, flow, seed + i as u64))
        .collect::<Result<Vec<_>>>()?;
    let (begin, wall) = (rig.sim.now(), std::time::Instant::now());
    while flows
        .iter()
        .any(|flow| flow.sent.len() < flow.requests.len())
    {
        ensure!(
            rig.sim.now() < begin + 50_000 * US,
            "{engine:?}: not done after 50 ms"
        );
        flows.iter_mut().try_for_each(Running::post)?;
        rig.sim.run(US / 4);
        collect(&rig, &mut flows)?;
    }
    let slowness = wall.elapsed().as_secs_f64() * 1e12 / (rig.sim.now() - begin) as f64;
    // Whatever comes late must not change anything.
    rig.sim.run(100 * US);
    collect(&rig, &mut flows)?;
    let bits = flows
        .iter()
        .map(|flow| flow.bytes as f64 * 8.0)
        .sum::<f64>();
    let last = flows.iter().map(|flow| flow.done_at).max();
    let time = last.unwrap_or(begin) - begin;
    let paths = rig.sim.stats().fabric.paths;
    let again = rig.sides.iter().map(|side| {
        let control = side.context.control();
        Ok(control.counter(Counter::TxRetransmissions)?)
    });
    Ok(Run {
        gbps_together: bits / (time as f64 / NS as f64),
        flows: flows.iter().map(Running::outcome).collect::<Result<_>>()?,
        shares: paths
            .iter()
            .filter(|path| path.from == "leaf0")
            .map(|path| path.share)
            .collect(),
        slowness,
        retransmissions: again.sum::<Result<u64>>()?,
    })
}

fn collect(rig: &Rig, flows: &mut [Running]) -> Result<()> {
    let now = rig.sim.now();
    for (card, side) in rig.sides.iter().enumerate() {
        for wc in side.cq.poll(256)? {
            let taken = flows.iter_mut().any(|flow| flow.take(card, &wc, now));
            ensure!(taken, "a completion of no flow: {wc:?}");
        }
    }
    Ok(())
}

/// Runs a plan on both and compares what must be equal.
fn compare(scenario: &str, plan: &[Flow], seed: u64) -> Result<(Run, Run)> {
    println!("seed {seed}");
    let rtl = run(scenario, plan, seed, Engine::Rtl)?;
    let model = run(scenario, plan, seed, Engine::Model)?;
    for (i, (a, b)) in rtl.flows.iter().zip(&model.flows).enumerate() {
        assert_eq!(a.sent, b.sent, "flow {i}: send completions");
        assert_eq!(a.received, b.received, "flow {i}: receive completions");
        assert_eq!(
            (a.psns, a.sent_psns),
            (b.psns, b.sent_psns),
            "flow {i}: PSNs"
        );
        assert!(a.memory == b.memory, "flow {i}: memory");
    }
    for (name, run) in [("RTL", &rtl), ("model", &model)] {
        println!(
            "    {name}: {:.1} Gb/s, shares {:.3?}, {} retransmissions, {:.0} s of wall time per simulated s",
            run.gbps_together, run.shares, run.retransmissions, run.slowness
        );
    }
    Ok((rtl, model))
}

/// Sums to the same for every flow of a plan that completed without an error.
fn is_whole(flow: &Flow, outcome: &Outcome, seed: u64) -> bool {
    let bytes = flow.requests.iter().map(|r| r.length).sum();
    outcome.memory[64..64 + bytes] == pattern(seed, bytes)
}

/// Flows of one card, each of half-MiB messages.
fn stream(flows: usize, messages: usize, attr: PairAttr) -> Vec<Flow> {
    let request = Request {
        length: 512 << 10,
        imm: None,
        bad_key: false,
    };
    let flow = Flow {
        cards: (0, 1),
        attr,
        requests: vec![request; messages],
    };
    vec![flow; flows]
}

/// Goodput within 10 % and path shares within 0.06, in the mean over seeds where paths are drawn at random.
#[test]
fn goodput_and_shares_agree() -> Result<()> {
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/../sim/scenarios/demo.toml");
    let slow = "\n[[link]]\nfrom = \"leaf*\"\nto = \"spine2\"\nboth = true\nrate_gbps = 6.25\n";
    let slow = std::fs::read_to_string(demo)? + slow;
    let mtu = |mtu| PairAttr {
        mtu,
        ..PairAttr::default()
    };
    let one_path = PairAttr {
        rts: RtsAttr {
            multi_path: MultiPath {
                vp_count: 1,
                ..MultiPath::default()
            },
            ..RtsAttr::new(0)
        },
        ..PairAttr::default()
    };
    let cases = [
        (
            "one QP, no switch, MTU 4096",
            "direct",
            stream(1, 4, mtu(4096)),
            1,
        ),
        (
            "one QP, no switch, MTU 1024",
            "direct",
            stream(1, 4, mtu(1024)),
            1,
        ),
        (
            "one QP, no switch, MTU 256",
            "direct",
            stream(1, 2, mtu(256)),
            1,
        ),
        ("one QP, four paths", "demo", stream(1, 10, mtu(4096)), 3),
        ("four QPs, four paths", "demo", stream(4, 3, mtu(4096)), 3),
        ("one QP, one path", "demo", stream(1, 2, one_path), 1),
        ("one QP, a slow spine", &slow, stream(1, 10, mtu(4096)), 4),
    ];
    for (name, scenario, plan, seeds) in cases {
        println!("{name}");
        let (mut gbps, mut shares) = ([0.0; 2], [vec![], vec![]]);
        for seed in 1..=seeds {
            let (rtl, model) = compare(scenario, &plan, seed)?;
            for (i, run) in [rtl, model].into_iter().enumerate() {
                let whole = |n: usize| is_whole(&plan[n], &run.flows[n], seed + n as u64);
                assert!((0..plan.len()).all(whole), "{name}");
                gbps[i] += run.gbps_together / seeds as f64;
                shares[i].resize(run.shares.len(), 0.0);
                let add = |(sum, share): (&mut f64, f64)| *sum += share / seeds as f64;
                shares[i].iter_mut().zip(run.shares).for_each(add);
            }
        }
        let ratio = gbps[1] / gbps[0];
        println!("{name}: {gbps:.1?} Gb/s, ratio {ratio:.3}");
        assert!((0.9..=1.1).contains(&ratio), "{name}: {gbps:?} Gb/s");
        // Beside a slow path the good ones drift apart, differently for each seed.
        let band = if name.contains("slow") { 0.12 } else { 0.06 };
        let apart = |(a, b): (&f64, &f64)| (a - b).abs() > band;
        assert!(
            !shares[0].iter().zip(&shares[1]).any(apart),
            "{name}: {shares:.3?}"
        );
    }
    Ok(())
}

/// Small and large messages at every MTU, immediates, a refused request, over a network that loses and reorders.
#[test]
fn mixed_work_over_a_faulty_network() -> Result<()> {
    let seed = 21;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut plan = vec![];
    for i in 0..6 {
        let request = |n: usize, rng: &mut ChaCha8Rng| Request {
            length: match rng.random_range(0..4) {
                0 => rng.random_range(0..64),
                1 => rng.random_range(4090..4102),
                _ => rng.random_range(0..30_000),
            },
            imm: rng.random_bool(0.3).then(|| rng.random()),
            bad_key: i == 5 && n == 12,
        };
        let mut requests: Vec<_> = (0..20).map(|n| request(n, &mut rng)).collect();
        if i == 5 {
            requests[12].length = 5000;
        }
        plan.push(Flow {
            cards: (i % 2, 1 - i % 2),
            attr: PairAttr {
                mtu: [256, 1024, 4096][i % 3],
                psn: rng.random_range(0..1 << 24),
                ..PairAttr::default()
            },
            requests,
        });
    }
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/../sim/scenarios/demo.toml");
    let faulty = format!(
        "{}\n[[link]]\nfrom = \"leaf*\"\nto = \"spine*\"\nboth = true\n\
         loss = 0.01\nreorder = 0.05\nreorder_ns = 4000\nduplicate = 0.01\n",
        std::fs::read_to_string(demo)?
    );
    let (rtl, model) = compare(&faulty, &plan, seed)?;
    assert!(rtl.retransmissions > 0 && model.retransmissions > 0);
    for (i, flow) in plan.iter().enumerate().take(5) {
        assert!(is_whole(flow, &rtl.flows[i], seed + i as u64), "flow {i}");
    }
    let refused = &rtl.flows[5].sent;
    assert_eq!(refused[12].1, WcStatus::RemoteAccessError);
    assert_eq!(refused[19].1, WcStatus::WorkRequestFlushed);
    Ok(())
}

/// The same seed gives the same run to the picosecond, whatever the threads.
#[test]
fn the_model_is_deterministic() -> Result<()> {
    let once = || -> Result<(Ps, String)> {
        let rig = Rig::with_engine("demo", 3, Engine::Model)?;
        let pair = rig.pair(0, 1, &PairAttr::default())?;
        let (source, target) = (rig.region(0, 1, 1 << 20)?, rig.region(1, 2, 1 << 20)?);
        rig.write(&pair, &source, &target, 1 << 20)?;
        let stats = rig.sim.stats();
        Ok((
            rig.sim.now(),
            format!("{:?}", (stats.fabric, stats.cards[0].stats)),
        ))
    };
    assert_eq!(once()?, once()?);
    Ok(())
}
