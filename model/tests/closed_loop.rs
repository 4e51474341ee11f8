//! The sender model in a closed loop: one host, four paths with ECN queues, one of them lossy, and the receiver of protocol
//! section 3. Goodput must come close to the figures that the protocol gives for the paper's rules (section 10).
//!
//! ```text
//!           grants      host link      +-- path 0 (lossy) --+      host link
//!  model --> queue --> [serialiser] --> +-- path 1 ---------+ --> [serialiser] --> bitmap of L
//!    ^                                  +-- path 2 ---------+                         |
//!    +---- ACKs, half an RTT later -----+-- path 3 ---------+-------------------------+
//! ```

use mprdma_model::psn;
use mprdma_model::sender::{
    step, Ack, Env, SenderConfig, SenderContext, SenderEvent, ACK_ECN, ACK_MAP, ACK_RETX,
    ACK_WINDOW_NAK,
};
use mprdma_spec::params;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet, VecDeque};

/// Nanoseconds in a tick.
const TICK: u64 = 64;
/// Headers of a packet on the wire in bytes, with preamble and gap.
const OVERHEAD: u64 = 78 + 24;

#[derive(Clone, Copy)]
struct Setting {
    host_gbps: u64,
    path_gbps: u64,
    paths: usize,
    /// Packets that wait above which a queue marks.
    mark_above: u64,
    mtu: u64,
    vp_count: u16,
    /// Losses on path 0 in 1/1000.
    loss: u64,
    /// Slots of the bitmap.
    slots: u32,
    /// `hole_repair` and `vp_recycle`.
    extensions: bool,
    /// Shortest retransmission timeout in slow units of 4.096 us.
    rto_floor: u16,
}

#[derive(Debug)]
struct Outcome {
    gbps: f64,
    shares: Vec<f64>,
    /// Greatest distance of an accepted packet from the next in order.
    ahead: u32,
    /// Mean RTT of ACKs in us.
    rtt: f64,
    naks: u32,
    timeouts: u32,
    prunes: u32,
    /// Retransmissions of holes, in recovery, after timeouts; packets that the receiver had.
    resent: [u32; 4],
    duplicates: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    /// The host link is free for the next granted packet.
    Departure,
    /// At the far leaf.
    Leaf(Packet),
    /// At the receiver.
    Arrival(Packet),
    /// At the sender: PSN, AACK, path, flags, stamp, SACK map.
    Answer(u32, u32, u16, u8, u16, u128),
    Burst,
    Timeout,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Packet {
    psn: u32,
    vp: u16,
    retx: bool,
    ce: bool,
    stamp: u16,
}

/// Small deterministic generator (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 16) % n
    }
}

struct Loop {
    setting: Setting,
    random: Random,
    queue: BinaryHeap<Reverse<(u64, u64, Happening)>>,
    order: u64,
    now: u64,
    sender: SenderContext,
    grants: VecDeque<(u32, u16, bool)>,
    departing: bool,
    naks: u32,
    timeouts: u32,
    prunes: u32,
    resent: [u32; 4],
}

impl Loop {
    fn at(&mut self, time: u64, what: Happening) {
        self.order += 1;
        self.queue.push(Reverse((time, self.order, what)));
    }

    fn event(&mut self, event: SenderEvent) {
        let env = Env {
            now: (self.now / TICK) as u32,
            rnd: self.random.next(),
            backlog: self.grants.len() >= 2,
            crowded: false,
            full: self.grants.len() >= 990,
            waiting_slow: (self.grants.len() >> params::GRANTS_PER_SLOW_LOG2) as u8,
            slots: self.setting.slots,
        };
        let (sender, out) = step(&self.sender, &event, &env);
        self.sender = sender;
        self.naks += u32::from(out.counts.window_nak);
        self.timeouts += u32::from(out.counts.timeout);
        self.prunes += u32::from(out.counts.prune);
        assert!(
            !out.counts.bad_ack,
            "the model refuses an honest ACK: {event:?} in {sender:?}"
        );
        assert!(out.progress.is_none_or(|p| p.status == 0), "the QP died");
        for grant in out.grants.into_iter().flatten() {
            self.resent[out.cause_of(&grant) as usize] += 1;
            self.grants.push_back((grant.psn, grant.vp, grant.retx));
        }
        if let Some(ticks) = out.arm_burst {
            self.at(self.now + u64::from(ticks) * TICK, Happening::Burst);
        }
        if let Some(slow) = out.arm_rto {
            self.at(self.now + u64::from(slow) * 64 * TICK, Happening::Timeout);
        }
        if !self.departing && !self.grants.is_empty() {
            self.departing = true;
            self.at(self.now, Happening::Departure);
        }
    }
}

/// Runs for `micros` simulated microseconds; goodput is measured over the last three quarters.
fn run(setting: Setting, seed: u64, micros: u64) -> Outcome {
    let wire = |gbps: u64| (setting.mtu + OVERHEAD) * 8 / gbps;
    let (host, path) = (wire(setting.host_gbps), wire(setting.path_gbps));
    let half_rtt = 5_000;
    let forward = half_rtt - 2 * host;

    let config = SenderConfig {
        vp_count: setting.vp_count,
        hole_repair: setting.extensions,
        vp_recycle: setting.extensions,
        rto_floor: setting.rto_floor,
        ..SenderConfig::from_params()
    };
    let mut random = Random(seed);
    let path_of: Vec<usize> = (0..config.vp_count)
        .map(|_| random.below(setting.paths as u64) as usize)
        .collect();
    let path_of = |vp: u16| {
        if config.vp_count == 1 {
            0
        } else {
            path_of[usize::from(vp - config.vp_base)]
        }
    };
    let mut net = Loop {
        setting,
        random,
        queue: BinaryHeap::new(),
        order: 0,
        now: 0,
        sender: SenderContext::new(config, 0xff_ff00, 0),
        grants: VecDeque::new(),
        departing: false,
        naks: 0,
        timeouts: 0,
        prunes: 0,
        resent: [0; 4],
    };
    net.event(SenderEvent::Work {
        packets: 1 << 20,
        sync: false,
    });

    let mut path_free = vec![0; setting.paths];
    let mut sent = vec![0u64; setting.paths];
    let mut down_free = 0;
    let mut next = 0xff_ff00;
    let mut held = HashSet::new();
    let (mut delivered, mut delivered_before) = (0u64, None);
    let mut duplicates = 0;
    let mut farthest = 0;
    let (mut rtt_sum, mut rtt_count) = (0, 0u64);
    let end = micros * 1000;
    while let Some(Reverse((time, _, what))) = net.queue.pop() {
        net.now = time;
        if time > end {
            break;
        }
        if time > end / 4 && delivered_before.is_none() {
            delivered_before = Some(delivered);
        }
        match what {
            Happening::Departure => {
                let Some((psn, vp, retx)) = net.grants.pop_front() else {
                    net.departing = false;
                    continue;
                };
                let stamp = (time / TICK) as u16;
                net.at(time + host, Happening::Departure);
                // Through the leaf to the path's queue.
                let p = path_of(vp);
                sent[p] += 1;
                let arrives = time + host + forward / 2;
                let waiting = u64::saturating_sub(path_free[p], arrives) / path;
                if p == 0 && net.random.below(1000) < net.setting.loss {
                    continue;
                }
                path_free[p] = u64::max(path_free[p], arrives) + path;
                let packet = Packet {
                    psn,
                    vp,
                    retx,
                    ce: waiting > setting.mark_above,
                    stamp,
                };
                net.at(path_free[p] + forward / 2, Happening::Leaf(packet));
            }
            Happening::Leaf(mut packet) => {
                packet.ce |= u64::saturating_sub(down_free, time) / host > setting.mark_above;
                down_free = down_free.max(time) + host;
                net.at(down_free, Happening::Arrival(packet));
            }
            Happening::Arrival(packet) => {
                let ahead = psn::distance(next, packet.psn);
                let mut flags = 0;
                if (setting.slots..psn::HALF).contains(&ahead) {
                    flags |= ACK_WINDOW_NAK;
                } else if ahead >= psn::HALF || !held.insert(packet.psn) {
                    duplicates += 1;
                } else {
                    farthest = farthest.max(ahead);
                    while held.remove(&next) {
                        next = psn::add(next, 1);
                        delivered += 1;
                    }
                }
                if packet.ce {
                    flags |= ACK_ECN;
                }
                if packet.retx {
                    flags |= ACK_RETX;
                }
                let mut map = 0;
                if setting.extensions && !held.is_empty() {
                    flags |= ACK_MAP;
                    for &psn in &held {
                        map |= 1 << psn::distance(next, psn);
                    }
                }
                let answer =
                    Happening::Answer(packet.psn, next, packet.vp, flags, packet.stamp, map);
                net.at(time + half_rtt, answer);
            }
            Happening::Answer(sack, aack, vp, flags, stamp, map) => {
                rtt_sum += TICK * u64::from(((time / TICK) as u16).wrapping_sub(stamp));
                rtt_count += 1;
                net.event(SenderEvent::Ack(Ack {
                    sack,
                    aack,
                    flags,
                    syndrome: 0,
                    vp,
                    stamp,
                    map,
                }));
                if net.sender.unsent() < 1 << 10 {
                    net.event(SenderEvent::Work {
                        packets: 1 << 20,
                        sync: false,
                    });
                }
            }
            Happening::Burst => net.event(SenderEvent::Burst),
            Happening::Timeout => net.event(SenderEvent::Timeout),
        }
    }
    let packets = delivered - delivered_before.unwrap_or(0);
    let total: u64 = sent.iter().sum();
    Outcome {
        gbps: (packets * setting.mtu * 8) as f64 / (end as f64 * 0.75),
        shares: sent.iter().map(|&n| n as f64 / total as f64).collect(),
        ahead: farthest,
        rtt: rtt_sum as f64 / rtt_count as f64 / 1000.0,
        naks: net.naks,
        timeouts: net.timeouts,
        prunes: net.prunes,
        resent: net.resent,
        duplicates,
    }
}

/// Runs of 10 ms, one for each seed.
fn runs(setting: Setting, seeds: u64) -> impl Iterator<Item = Outcome> {
    (1..=seeds).map(move |seed| {
        run(
            setting,
            u64::wrapping_mul(seed, 0x9e37_79b9_7f4a_7c15),
            10_000,
        )
    })
}

/// Mean goodput of three seeds.
fn goodput(setting: Setting) -> f64 {
    runs(setting, 3)
        .enumerate()
        .map(|(seed, outcome)| {
            println!("seed {seed}: {outcome:.2?}");
            if setting.loss == 0 {
                assert_eq!((outcome.naks, outcome.timeouts), (0, 0), "nothing was lost");
                assert!(outcome.prunes < 20, "paths are alike");
            } else {
                assert!(outcome.naks > 0 || setting.extensions);
                assert!(outcome.timeouts < 100);
            }
            outcome.gbps
        })
        .sum::<f64>()
        / 3.0
}

fn near(what: &str, setting: Setting, expected: f64, tolerance: f64) {
    let found = goodput(setting);
    println!("{what}: {found:.1} Gb/s, protocol section 10 says {expected}");
    assert!(
        (found - expected).abs() <= tolerance * expected,
        "{what}: {found:.1} Gb/s is not within {:.0} % of {expected}",
        tolerance * 100.0
    );
}

const WIDE: Setting = Setting {
    host_gbps: 100,
    path_gbps: 25,
    paths: 4,
    mark_above: 5,
    mtu: 4096,
    vp_count: 64,
    loss: 0,
    slots: 64,
    extensions: false,
    rto_floor: params::RTO_FLOOR.default as u16,
};
const NARROW: Setting = Setting {
    host_gbps: 40,
    path_gbps: 10,
    mtu: 1024,
    ..WIDE
};
const TESTBED: Setting = Setting {
    path_gbps: 40,
    ..NARROW
};

#[test]
fn four_paths_of_25_fill_a_host_of_100() {
    near("100G host, 4 x 25G", WIDE, 93.6, 0.05);
    let outcome = run(WIDE, 77, 10_000);
    for share in &outcome.shares {
        assert!((0.2..=0.3).contains(share), "{outcome:?}");
    }
}

#[test]
fn four_paths_of_10_fill_a_host_of_40() {
    near("40G host, 4 x 10G", NARROW, 33.7, 0.05);
}

#[test]
fn the_testbed_of_the_paper() {
    near("40G host, 4 x 40G", TESTBED, 36.4, 0.05);
    near(
        "1 % loss",
        Setting {
            loss: 10,
            ..TESTBED
        },
        32.6,
        0.1,
    );
    near(
        "10 % loss",
        Setting {
            loss: 100,
            ..TESTBED
        },
        28.6,
        0.15,
    );
}

#[test]
fn loss_with_the_rules_of_the_paper() {
    near(
        "100G host, 0.5 % loss",
        Setting { loss: 5, ..WIDE },
        54.7,
        0.15,
    );
    near(
        "100G host, 1 % loss",
        Setting { loss: 10, ..WIDE },
        45.4,
        0.15,
    );
    near(
        "40G host, 4 x 10G, 1 % loss",
        Setting { loss: 10, ..NARROW },
        15.7,
        0.2,
    );
}

#[test]
fn a_single_path_carries_a_quarter() {
    let found = goodput(Setting {
        vp_count: 1,
        ..WIDE
    });
    assert!((20.0..25.0).contains(&found), "{found}");
}

/// Section 10's table, for a look at a change of rules: `cargo test --release -- --ignored --nocapture table`.
#[test]
#[ignore]
fn table() {
    for (name, setting) in [("B", WIDE), ("C", NARROW), ("A", TESTBED)] {
        for loss in [0, 1, 5, 10, 20, 50, 100] {
            let mut row = format!("{name} {loss:>3}/1000:");
            for (extensions, slots) in [(false, 64), (true, 64), (true, 128)] {
                let setting = Setting {
                    loss,
                    slots,
                    extensions,
                    ..setting
                };
                let outcomes: Vec<Outcome> = runs(setting, 3).collect();
                let gbps = outcomes.iter().map(|o| o.gbps).sum::<f64>() / 3.0;
                let o = &outcomes[0];
                row += &format!(
                    "  {gbps:5.1} (naks {} rto {} prune {} resent {:?} dup {})",
                    o.naks,
                    o.timeouts,
                    o.prunes,
                    &o.resent[1..],
                    o.duplicates
                );
            }
            println!("{row}");
        }
    }
}

/// What a table of thresholds or timers shows: means of several seeds.
#[derive(Debug)]
struct Mean {
    gbps: f64,
    /// Standard error of `gbps`.
    error: f64,
    prunes: f64,
    timeouts: f64,
    ahead: u32,
    rtt: f64,
}

impl Mean {
    fn of(setting: Setting, seeds: u64) -> Mean {
        let all: Vec<Outcome> = runs(setting, seeds).collect();
        let count = all.len() as f64;
        let mean = |value: fn(&Outcome) -> f64| all.iter().map(value).sum::<f64>() / count;
        let gbps = mean(|o| o.gbps);
        let squares: f64 = all.iter().map(|o| (o.gbps - gbps).powi(2)).sum();
        Mean {
            gbps,
            error: (squares / count / (count - 1.0)).sqrt(),
            prunes: mean(|o| o.prunes.into()),
            timeouts: mean(|o| o.timeouts.into()),
            ahead: all.iter().map(|o| o.ahead).max().unwrap_or(0),
            rtt: mean(|o| o.rtt),
        }
    }
}

/// A 40 Gb/s host over `paths` equal paths that add up to its rate.
fn thresholds(paths: usize, mark_above: u64, extensions: bool, slots: u32) -> Setting {
    Setting {
        path_gbps: NARROW.host_gbps / paths as u64,
        paths,
        mark_above,
        extensions,
        slots,
        ..NARROW
    }
}

/// Marking above delta / n packets lets a queue delay its path by more than delta, and pruning takes it for a slow one.
/// Goodput bears that, since pruning shrinks the window in place of marks and the ACK of a repair keeps its clock; with a
/// bitmap of 64 the repairs of what only waits cost more than with 128.
#[test]
fn queues_beyond_delta_over_n_are_taken_for_slow_paths() {
    for paths in [4, 8] {
        let rule = params::DELTA.default / paths as u64;
        for (extensions, slots, kept) in [(false, 64, 0.9), (true, 64, 0.7), (true, 128, 0.9)] {
            let [short, long] = [rule / 2, 20].map(|mark_above| {
                let mean = Mean::of(thresholds(paths, mark_above, extensions, slots), 3);
                println!(
                    "{paths} paths, K {mark_above}, extensions {extensions}, L {slots}: {mean:.1?}"
                );
                mean
            });
            assert!(short.prunes < 10.0, "{short:?}");
            assert!(long.prunes > 100.0, "{long:?}");
            assert!(long.gbps > kept * short.gbps, "{short:?} {long:?}");
        }
    }
}

/// Goodput against the ECN threshold K: `cargo test --release -p mprdma-model --test closed_loop -- --ignored --nocapture
/// threshold`.
#[test]
#[ignore]
fn threshold_table() {
    const RULES: [(bool, u32); 3] = [(false, 64), (true, 64), (true, 128)];
    println!("| n | delta / n | K | published rules | prunes | farthest | RTT, us | extensions, L = 64 | prunes | extensions, L = 128 | prunes | farthest | RTT, us |");
    println!("|{}", " --- |".repeat(13));
    for paths in [4, 8] {
        for mark_above in [1, 2, 3, 4, 5, 6, 8, 12, 20, 32] {
            let rule = params::DELTA.default / paths as u64;
            let mut row = format!("| {paths} | {rule} | {mark_above} |");
            for (extensions, slots) in RULES {
                let mean = Mean::of(thresholds(paths, mark_above, extensions, slots), 8);
                row += &format!(" {:.1} | {:.0} |", mean.gbps, mean.prunes);
                if (extensions, slots) != (true, 64) {
                    row += &format!(" {} | {:.1} |", mean.ahead, mean.rtt);
                }
            }
            println!("{row}");
        }
    }
}

/// One path that loses 0.5 %, against the timer's floor: `cargo test --release -p mprdma-model --test closed_loop --
/// --ignored --nocapture timer`.
#[test]
#[ignore]
fn timer_table() {
    println!("| floor, us | goodput, Gb/s | timeouts |\n| --- | --- | --- |");
    for rto_floor in [7, 8, 9, 10, 12, 16] {
        let setting = Setting {
            vp_count: 1,
            loss: 5,
            rto_floor,
            ..TESTBED
        };
        let Mean {
            gbps,
            error,
            timeouts,
            ..
        } = Mean::of(setting, 48);
        let floor = f64::from(rto_floor) * 4.096;
        println!("| {floor:.1} | {gbps:.1} +- {error:.1} | {timeouts:.0} |");
    }
}
