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
    mtu: u64,
    vp_count: u16,
    /// Losses on path 0 in 1/1000.
    loss: u64,
    /// Slots of the bitmap.
    slots: u32,
    /// `hole_repair` and `vp_recycle`.
    extensions: bool,
}

#[derive(Debug)]
struct Outcome {
    gbps: f64,
    shares: [f64; 4],
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
            waiting_slow: (self.grants.len() / 4) as u8,
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
            self.resent[out.cause as usize] += 1;
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
    const MARK_ABOVE: u64 = 5;
    let wire = |gbps: u64| (setting.mtu + OVERHEAD) * 8 / gbps;
    let (host, path) = (wire(setting.host_gbps), wire(setting.path_gbps));
    let half_rtt = 5_000;
    let forward = half_rtt - 2 * host;

    let config = SenderConfig {
        vp_count: setting.vp_count,
        hole_repair: setting.extensions,
        vp_recycle: setting.extensions,
        ..SenderConfig::from_params()
    };
    let mut random = Random(seed);
    let path_of: Vec<usize> = (0..config.vp_count)
        .map(|_| random.below(4) as usize)
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

    let mut path_free = [0; 4];
    let mut sent = [0u64; 4];
    let mut down_free = 0;
    let mut next = 0xff_ff00;
    let mut held = HashSet::new();
    let (mut delivered, mut delivered_before) = (0u64, None);
    let mut duplicates = 0;
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
                    ce: waiting > MARK_ABOVE,
                    stamp,
                };
                net.at(path_free[p] + forward / 2, Happening::Leaf(packet));
            }
            Happening::Leaf(mut packet) => {
                packet.ce |= u64::saturating_sub(down_free, time) / host > MARK_ABOVE;
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
        shares: sent.map(|n| n as f64 / total as f64),
        naks: net.naks,
        timeouts: net.timeouts,
        prunes: net.prunes,
        resent: net.resent,
        duplicates,
    }
}

/// Mean goodput of three seeds.
fn goodput(setting: Setting) -> f64 {
    (1..=3)
        .map(|seed| {
            let outcome = run(
                setting,
                u64::wrapping_mul(seed, 0x9e37_79b9_7f4a_7c15),
                10_000,
            );
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
    mtu: 4096,
    vp_count: 64,
    loss: 0,
    slots: 64,
    extensions: false,
};
const NARROW: Setting = Setting {
    host_gbps: 40,
    path_gbps: 10,
    mtu: 1024,
    vp_count: 64,
    loss: 0,
    slots: 64,
    extensions: false,
};
const TESTBED: Setting = Setting {
    host_gbps: 40,
    path_gbps: 40,
    mtu: 1024,
    vp_count: 64,
    loss: 0,
    slots: 64,
    extensions: false,
};

#[test]
fn four_paths_of_25_fill_a_host_of_100() {
    near("100G host, 4 x 25G", WIDE, 93.6, 0.05);
    let outcome = run(WIDE, 77, 10_000);
    for share in outcome.shares {
        assert!((0.2..=0.3).contains(&share), "{outcome:?}");
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
                let outcomes: Vec<Outcome> = (1..=3)
                    .map(|seed| {
                        run(
                            setting,
                            u64::wrapping_mul(seed, 0x9e37_79b9_7f4a_7c15),
                            10_000,
                        )
                    })
                    .collect();
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
