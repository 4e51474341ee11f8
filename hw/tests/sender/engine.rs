//! The whole engine: sources, arbitration, timers, queues. The model follows the trace.

use crate::compare::{cfg_record, Comparison, Reader};
use crate::ports;
use crate::support::{chance, rng, simulated, verilated, Dut};
use mprdma_hw::nic::sender::records::{SenderEnv, SenderEvent as EventRecord};
use mprdma_hw::nic::sender::Sender;
use mprdma_hw::nic::types::{AckEvent, CfgReq, Grant, Progress, QpError, Work};
use mprdma_hw::with_big_stack;
use mprdma_model::psn;
use mprdma_model::sender::{
    step, Ack, Counts, Env, SenderConfig, SenderContext, SenderEvent, SenderImage, ACK_WINDOW_NAK,
};
use mprdma_spec::command::{Opcode, QpState};
use mprdma_spec::params;
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rust_hdl_core::prelude::*;
use std::collections::VecDeque;

const QPW: usize = 4;
const QPS: usize = 1 << QPW;
type Engine = Sender<QPW, 128>;

ports!(Engine, clock: reset tick tick_pulse ack ack_valid work work_valid error error_valid cfg cfg_valid grant_ready progress_ready sync_passed_ready tx_held
    => ack_ready work_ready error_ready cfg_done cfg_result grant grant_valid progress progress_valid
    sync_passed sync_passed_valid init_done busy
    cnt_ecn_echoes cnt_prunes cnt_window_naks cnt_sync_naks cnt_ghost_acks cnt_bad_acks cnt_timeouts cnt_recoveries
    cnt_probes trace_seen trace_env trace_random trace_seen_valid trace_outcome trace_written trace_valid);

/// The engine with its model beside it.
struct Bench<'a, D: Dut> {
    dut: &'a mut D,
    rng: ChaCha8Rng,
    cycle: u64,
    tick: u32,
    cycles_per_tick: u64,
    model: Vec<SenderContext>,
    comparison: Comparison,
    events: Reader,
    envs: Reader,
    grants: Reader,
    progresses: Reader,
    /// In the pipeline.
    seen: VecDeque<(u16, SenderEvent, Env)>,
    acks: VecDeque<(u16, Ack)>,
    works: VecDeque<(u16, u32, bool)>,
    /// What the outputs still owe.
    due_grants: VecDeque<(u16, mprdma_model::sender::Grant)>,
    due_progress: VecDeque<(u16, u32, u8)>,
    due_marks: VecDeque<u16>,
    command: Option<SenderEvent>,
    last_status: Vec<u8>,
    counted: [u64; 9],
    expected: [u64; 9],
    finished: u64,
    /// Grants let through, in percent of cycles.
    grant_percent: u32,
    /// Frames queue for the wire.
    tx_held: bool,
    most_due: usize,
    /// Events that found the grant queue full.
    refused: u64,
    /// Cycles at which events entered.
    entered: Vec<(u64, u16)>,
}

impl<'a, D: Dut> Bench<'a, D> {
    fn new(dut: &'a mut D, seed: u64) -> Self {
        let mut bench = Self {
            dut,
            rng: rng(seed),
            cycle: 0,
            tick: 0xffff_ff00,
            cycles_per_tick: 16,
            model: vec![SenderContext::default(); QPS],
            comparison: Comparison::new(),
            events: Reader::of::<EventRecord>(),
            envs: Reader::of::<SenderEnv>(),
            grants: Reader::of::<Grant>(),
            progresses: Reader::of::<Progress>(),
            seen: VecDeque::new(),
            acks: VecDeque::new(),
            works: VecDeque::new(),
            due_grants: VecDeque::new(),
            due_progress: VecDeque::new(),
            due_marks: VecDeque::new(),
            command: None,
            last_status: vec![],
            counted: [0; 9],
            expected: [0; 9],
            finished: 0,
            grant_percent: 90,
            tx_held: false,
            most_due: 0,
            refused: 0,
            entered: vec![],
        };
        bench.dut.set("reset", true);
        bench.cycle();
        bench.dut.set("reset", false);
        while !bench.dut.bit("init_done") {
            assert!(bench.cycle < 1000, "cleared after reset");
            bench.cycle();
        }
        bench
    }

    /// One clock cycle: checks every output against the model.
    fn cycle(&mut self) {
        self.cycle += 1;
        let ticks = self.cycle % self.cycles_per_tick == 0;
        self.tick = self.tick.wrapping_add(u32::from(ticks));
        self.dut.set("tick_pulse", ticks);
        let grant_ready = chance(&mut self.rng, self.grant_percent);
        let progress_ready = chance(&mut self.rng, 80);
        self.dut.set("tick", Bits::<32>::from(u64::from(self.tick)));
        self.dut.set("grant_ready", grant_ready);
        self.dut.set("progress_ready", progress_ready);
        self.dut.set("sync_passed_ready", progress_ready);
        self.dut.set("tx_held", self.tx_held);
        self.dut.low();
        if self.dut.bit("trace_valid") {
            self.finish();
        }
        if self.dut.bit("trace_seen_valid") {
            self.enter();
        }
        if grant_ready && self.dut.bit("grant_valid") {
            let bytes = self.dut.bytes("grant");
            let bytes = pad(bytes);
            let (qpn, grant) = self
                .due_grants
                .pop_front()
                .expect("a grant that the model made");
            let get = |name| self.grants.get(&bytes, name);
            assert_eq!(get("qpn"), u64::from(qpn));
            assert_eq!(get("marker") == 1, grant.marker);
            if !grant.marker {
                assert_eq!(get("psn"), u64::from(grant.psn));
                assert_eq!(get("vp"), u64::from(grant.vp));
                assert_eq!(get("retx") == 1, grant.retx);
            }
        }
        if progress_ready && self.dut.bit("sync_passed_valid") {
            let due = self.due_marks.pop_front().expect("a mark of the model");
            assert_eq!(self.dut.get("sync_passed"), u64::from(due));
        }
        if progress_ready && self.dut.bit("progress_valid") {
            let bytes = pad(self.dut.bytes("progress"));
            let (qpn, una, status) = self
                .due_progress
                .pop_front()
                .expect("progress of the model");
            let get = |name| self.progresses.get(&bytes, name);
            assert_eq!(
                (get("qpn"), get("una"), get("status")),
                (qpn.into(), una.into(), status.into())
            );
        }
        for (i, name) in [
            "cnt_ecn_echoes",
            "cnt_prunes",
            "cnt_window_naks",
            "cnt_sync_naks",
            "cnt_ghost_acks",
            "cnt_bad_acks",
            "cnt_timeouts",
            "cnt_recoveries",
            "cnt_probes",
        ]
        .into_iter()
        .enumerate()
        {
            self.counted[i] += self.dut.get(name);
        }
        self.dut.high();
    }

    fn enter(&mut self) {
        let event = pad(self.dut.bytes("trace_seen"));
        let env = pad(self.dut.bytes("trace_env"));
        let get = |name| self.events.get(&event, name);
        let qpn = get("qpn") as u16;
        let what = if get("ack") == 1 {
            let ack = Ack {
                sack: get("sack") as u32,
                aack: get("value") as u32,
                flags: get("flags") as u8,
                syndrome: get("code") as u8,
                vp: get("vp") as u16,
                stamp: get("stamp") as u16,
                map: u128::from(self.events.part(&event, "map", 0, 64))
                    | u128::from(self.events.part(&event, "map", 64, 64)) << 64,
            };
            assert_eq!(
                self.acks.pop_front(),
                Some((qpn, ack)),
                "ACKs keep their order"
            );
            SenderEvent::Ack(ack)
        } else if get("work") == 1 {
            let packets = get("value") as u32;
            let sync = get("sync") == 1;
            assert_eq!(self.works.pop_front(), Some((qpn, packets, sync)));
            SenderEvent::Work { packets, sync }
        } else if get("error") == 1 {
            SenderEvent::Error(get("code") as u8)
        } else if get("burst") == 1 {
            assert!(
                self.model[usize::from(qpn)].burst_armed,
                "a timer that was armed"
            );
            SenderEvent::Burst
        } else if get("timeout") == 1 {
            assert!(
                self.model[usize::from(qpn)].rto_armed,
                "a timer that was armed"
            );
            SenderEvent::Timeout
        } else {
            self.command.take().expect("one command at a time")
        };
        assert!(
            self.seen.iter().all(|(other, ..)| *other != qpn),
            "no two events of a QP in the pipeline"
        );
        let of_env = |name| self.envs.get(&env, name);
        let env = Env {
            now: of_env("now") as u32,
            rnd: self.dut.get("trace_random"),
            backlog: of_env("backlog") == 1,
            crowded: of_env("crowded") == 1,
            full: of_env("full") == 1,
            waiting_slow: of_env("waiting_slow") as u8,
            slots: 128,
        };
        self.entered.push((self.cycle, qpn));
        self.seen.push_back((qpn, what, env));
    }

    fn finish(&mut self) {
        let (qpn, event, env) = self.seen.pop_front().expect("an event for every outcome");
        let (context, outputs) = step(&self.model[usize::from(qpn)], &event, &env);
        let found = self.comparison.differences(
            qpn,
            &context,
            &outputs,
            &pad(self.dut.bytes("trace_written")),
            &pad(self.dut.bytes("trace_outcome")),
        );
        assert!(
            found.is_empty(),
            "{event:?} {env:?}\n{context:#?}\n{}",
            found.join("\n")
        );
        self.model[usize::from(qpn)] = context;
        self.due_grants
            .extend(outputs.grants.iter().flatten().map(|g| (qpn, *g)));
        self.most_due = self.most_due.max(self.due_grants.len());
        if outputs.sync_passed {
            self.due_marks.push_back(qpn);
        }
        if let Some(p) = outputs.progress {
            self.due_progress.push_back((qpn, p.una, p.status));
        }
        let Counts {
            ecn_echo,
            prune,
            window_nak,
            sync_nak,
            ghost,
            bad_ack,
            timeout,
            recovery,
            probes,
        } = outputs.counts;
        let flags = [
            ecn_echo, prune, window_nak, sync_nak, ghost, bad_ack, timeout, recovery,
        ];
        for (i, flag) in flags.into_iter().enumerate() {
            self.expected[i] += u64::from(flag);
        }
        self.expected[8] += u64::from(probes);
        if matches!(event, SenderEvent::Query) {
            self.last_status = context.status().to_vec();
        }
        self.finished += 1;
        self.refused += u64::from(env.full);
    }

    /// Sends a command and waits for its answer.
    fn command(&mut self, qpn: u16, event: SenderEvent) {
        self.dut
            .set("cfg", cfg_record(qpn, &event).expect("a command"));
        self.dut.set("cfg_valid", true);
        self.command = Some(event);
        let since = self.cycle;
        while !self.dut.bit("cfg_done") {
            assert!(self.cycle - since < 2000, "a command is answered");
            self.cycle();
        }
        if matches!(event, SenderEvent::Query) {
            assert_eq!(self.dut.bytes("cfg_result"), self.last_status);
        }
        self.dut.set("cfg_valid", false);
        for _ in 0..3 {
            self.cycle();
            assert!(!self.dut.bit("cfg_done"), "one answer to one command");
        }
    }

    fn ack(&mut self, qpn: u16, ack: Ack) {
        self.dut.set(
            "ack",
            AckEvent {
                qpn: bits(qpn.into()),
                sack: bits(ack.sack.into()),
                aack: bits(ack.aack.into()),
                flags: bits(ack.flags.into()),
                syndrome: bits(ack.syndrome.into()),
                vp: bits(ack.vp.into()),
                stamp: bits(ack.stamp.into()),
                map: mprdma_hw::leaf::beat::bits_of_bytes(&ack.map.to_le_bytes()),
            },
        );
        self.offer("ack_valid", "ack_ready");
        self.acks.push_back((qpn, ack));
        self.dut.set("ack_valid", false);
    }

    fn work(&mut self, qpn: u16, packets: u32) {
        self.work_of(qpn, packets, false);
    }

    fn work_of(&mut self, qpn: u16, packets: u32, sync: bool) {
        self.dut.set(
            "work",
            Work {
                qpn: bits(qpn.into()),
                packets: bits(packets.into()),
                sync,
            },
        );
        // The event may enter before the handshake is looked at again.
        self.works.push_back((qpn, packets, sync));
        self.offer("work_valid", "work_ready");
        self.dut.set("work_valid", false);
    }

    /// Holds `valid` until a cycle in which `ready` was high.
    fn offer(&mut self, valid: &'static str, ready: &'static str) {
        self.dut.set(valid, true);
        loop {
            self.cycle();
            if self.dut.bit(ready) {
                return;
            }
        }
    }

    fn create(&mut self, qpn: u16, config: SenderConfig, sq_psn: u32) {
        self.command(
            qpn,
            SenderEvent::Create(SenderImage {
                mask: 0,
                state: QpState::Rts as u8,
                sq_psn,
                config,
            }),
        );
    }

    /// An ACK that a network might deliver.
    fn plausible(&mut self, qpn: u16) -> Option<Ack> {
        let c = self.model[usize::from(qpn)];
        let flight = c.flight();
        if flight == 0 {
            return None;
        }
        let r = &mut self.rng;
        let ahead = r.random_range(0..flight.min(70));
        let flags = match r.random_range(0..40) {
            0 => 1 << 2,
            1..6 => 1 << 1,
            6 => 1 << 0,
            _ => 0,
        };
        let aack = match r.random_range(0..4) {
            0 => c.snd_una,
            _ => psn::add(c.snd_una, (ahead + 1).min(r.random_range(0..6))),
        };
        Some(Ack {
            sack: psn::add(c.snd_una, ahead),
            aack,
            flags,
            syndrome: 0,
            vp: 50_000 + qpn,
            stamp: (self.tick as u16).wrapping_sub(r.random_range(50..300)),
            map: 0,
        })
    }

    /// Destroys every QP; nothing may be left.
    fn close(&mut self) {
        self.grant_percent = 100;
        for qpn in 0..QPS as u16 {
            self.command(qpn, SenderEvent::Destroy);
        }
        self.cycles_per_tick = 1;
        let since = self.cycle;
        while self.dut.bit("busy") {
            assert!(self.cycle - since < 60_000, "everything comes to rest");
            self.cycle();
        }
        for _ in 0..10 {
            self.cycle();
        }
        assert!(self.seen.is_empty() && self.acks.is_empty() && self.works.is_empty());
        assert!(self.due_grants.is_empty() && self.due_progress.is_empty());
        assert!(self.due_marks.is_empty());
        assert_eq!(self.counted, self.expected);
        for context in &self.model {
            assert_eq!(*context, SenderContext::default());
        }
    }
}

fn pad(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(bytes.len().max(80), 0);
    bytes
}

/// Work, ACKs, commands and errors in any order, with a grant queue that now and then runs full.
fn mixed(dut: &mut impl Dut, rounds: usize) {
    let mut bench = Bench::new(dut, 11);
    for round in 0..rounds {
        if round % 500 == 0 {
            bench.cycles_per_tick = [16, 2, 1, 4][round / 500 % 4];
            bench.grant_percent = [90, 40, 0, 100][round / 500 % 4];
            bench.tx_held = round / 700 % 2 == 1;
        }
        let qpn = bench.rng.random_range(0..QPS as u16);
        let context = bench.model[usize::from(qpn)];
        let config = SenderConfig {
            cwnd_max: 2047,
            initial_window: bench.rng.random_range(1..=255),
            probe: 20_000,
            rto_floor: bench.rng.random_range(1..20),
            retry_cnt: bench.rng.random_range(0..=7),
            ..SenderConfig::from_params()
        };
        match bench.rng.random_range(0..1000) {
            _ if context.state == QpState::Reset as u8 => {
                let psn = psn::add(0xff_ff00, bench.rng.random_range(0..512));
                bench.create(qpn, config, psn);
            }
            0..3 => bench.command(qpn, SenderEvent::Destroy),
            3..20 => bench.command(qpn, SenderEvent::Query),
            20..25 => {
                let image = SenderImage {
                    mask: bench.rng.random_range(0..32),
                    state: QpState::Rts as u8,
                    sq_psn: bench.rng.random_range(0..1 << 24),
                    config,
                };
                bench.command(qpn, SenderEvent::Modify(image));
            }
            25..28 => {
                bench.dut.set(
                    "error",
                    QpError {
                        qpn: bits(qpn.into()),
                        status: bits(10),
                    },
                );
                bench.offer("error_valid", "error_ready");
                bench.dut.set("error_valid", false);
            }
            28..150 => {
                let packets = bench.rng.random_range(1..400);
                let sync = bench.rng.random_range(0..5) == 0;
                bench.work_of(qpn, packets, sync);
            }
            _ => match bench.plausible(qpn) {
                Some(ack) => bench.ack(qpn, ack),
                None => bench.cycle(),
            },
        }
    }
    println!(
        "{} events in {} cycles, at most {} grants waited, counters {:?}",
        bench.finished, bench.cycle, bench.most_due, bench.counted
    );
    bench.close();
}

#[test]
fn verilated_engine_follows_the_model() {
    with_big_stack(|| {
        let mut dut = verilated(Engine::default(), "sender");
        mixed(&mut dut, 30_000);
    });
}

#[test]
fn rust_hdl_engine_follows_the_model() {
    with_big_stack(|| {
        let mut dut = simulated(Engine::default(), "sender");
        mixed(&mut dut, 250);
        dut.verify().unwrap();
    });
}

/// Events over different QPs every 2 cycles, over one QP every 8 (architecture section 3).
#[test]
fn events_enter_at_the_promised_rate() {
    with_big_stack(|| {
        let mut dut = verilated(Engine::default(), "sender");
        for (qps, interval) in [(8, 2), (1, 8)] {
            let mut bench = Bench::new(&mut dut, 12);
            for qpn in 0..qps {
                bench.create(qpn, SenderConfig::from_params(), 0);
            }
            bench.entered.clear();
            for i in 0..200 {
                bench.ack(
                    i % qps,
                    Ack {
                        sack: 5,
                        syndrome: 0,
                        ..Ack::default()
                    },
                );
            }
            while bench.acks.front().is_some() {
                bench.cycle();
            }
            let (first, last) = (bench.entered[20].0, bench.entered[180].0);
            assert_eq!(last - first, 160 * interval, "{qps} QPs");
            bench.close();
        }
    });
}

/// 16 QPs with 255 packets to send and nothing else to wait for than the way out.
fn flood(bench: &mut Bench<'_, impl Dut>) {
    bench.cycles_per_tick = 4;
    let config = SenderConfig {
        initial_window: 255,
        rto_floor: 20_000,
        ..SenderConfig::from_params()
    };
    for qpn in 0..QPS as u16 {
        bench.create(qpn, config, 0xff_fff0);
        bench.work(qpn, 255);
    }
}

/// More new packets than the way out takes: few grants wait, and queue pairs take turns.
#[test]
fn a_crowd_of_grants_makes_queue_pairs_take_turns() {
    with_big_stack(|| {
        let mut dut = verilated(Engine::default(), "sender");
        let mut bench = Bench::new(&mut dut, 15);
        bench.grant_percent = 10;
        flood(&mut bench);
        while bench.model.iter().map(|c| c.flight()).sum::<u32>() < 3000 {
            bench.cycle();
        }
        let flights: Vec<u32> = bench.model.iter().map(|c| c.flight()).collect();
        println!("{} grants wait at most, {flights:?}", bench.most_due);
        let waiting = params::GRANTS_ENOUGH..params::GRANTS_ENOUGH + 16;
        assert!(waiting.contains(&bench.most_due));
        let (least, most) = (flights.iter().min(), flights.iter().max());
        assert!(most
            .zip(least)
            .is_some_and(|(most, least)| most - least <= 16));
        bench.grant_percent = 100;
        for _ in 0..40_000 {
            bench.cycle();
        }
        for context in &bench.model {
            assert_eq!((context.flight(), context.unsent()), (255, 0));
        }
        bench.close();
    });
}

/// While frames queue for the wire, no window grows.
#[test]
fn a_full_wire_stops_growth() {
    with_big_stack(|| {
        let mut dut = verilated(Engine::default(), "sender");
        let mut bench = Bench::new(&mut dut, 17);
        bench.grant_percent = 100;
        let psn = 0x10;
        bench.create(0, SenderConfig::from_params(), psn);
        let first = bench.model[0].cwnd;
        bench.work(0, 1000);
        for (held, last) in [(true, 100), (false, 200)] {
            bench.tx_held = held;
            while bench.model[0].snd_una < psn + last {
                let (una, nxt) = (bench.model[0].snd_una, bench.model[0].snd_nxt);
                if una < nxt && bench.acks.is_empty() && bench.seen.is_empty() {
                    bench.ack(
                        0,
                        Ack {
                            sack: una,
                            aack: una + 1,
                            ..Ack::default()
                        },
                    );
                }
                bench.cycle();
            }
            assert_eq!(bench.model[0].cwnd > first, !held);
        }
        bench.close();
    });
}

/// Retransmissions do not wait their turn, but they leave it to the burst timer before the queue of grants overflows.
#[test]
fn a_full_grant_queue_holds_retransmissions_back() {
    with_big_stack(|| {
        let mut dut = verilated(Engine::default(), "sender");
        let mut bench = Bench::new(&mut dut, 16);
        bench.grant_percent = 100;
        flood(&mut bench);
        for _ in 0..40_000 {
            bench.cycle();
        }
        bench.grant_percent = 0;
        for i in 0..100 * QPS as u16 {
            let naks = i < QPS as u16;
            bench.ack(
                i % QPS as u16,
                Ack {
                    sack: 0xff_fff5,
                    aack: 0xff_fff0,
                    flags: if naks { ACK_WINDOW_NAK } else { 0 },
                    ..Ack::default()
                },
            );
            while bench.acks.len() > 100 {
                bench.cycle();
            }
        }
        for _ in 0..20_000 {
            bench.cycle();
        }
        println!(
            "{} grants wait at most, {} events refused",
            bench.most_due, bench.refused
        );
        let waiting = params::GRANTS_FULL..params::GRANTS_FULL + 16;
        assert!(bench.refused > 0 && waiting.contains(&bench.most_due));
        bench.close();
    });
}

/// A command that concerns other blocks is answered at once and changes nothing.
#[test]
fn commands_for_others_are_answered() {
    with_big_stack(|| {
        let mut dut = verilated(Engine::default(), "sender");
        let mut bench = Bench::new(&mut dut, 13);
        for op in [
            Opcode::Nop,
            Opcode::RegisterMr,
            Opcode::CreateCq,
            Opcode::DestroyEq,
        ] {
            let cfg = CfgReq {
                op: bits(op as u64),
                index: bits(3),
                ..CfgReq::default()
            };
            bench.dut.set("cfg", cfg);
            bench.dut.set("cfg_valid", true);
            bench.cycle();
            bench.cycle();
            assert!(bench.dut.bit("cfg_done"), "{op:?}");
            bench.dut.set("cfg_valid", false);
            bench.cycle();
            assert!(!bench.dut.bit("cfg_done"));
        }
        assert_eq!(bench.finished, 0);
    });
}

/// From an ACK at the input to the grant at the output.
#[test]
fn latency_is_as_documented() {
    with_big_stack(|| {
        let mut dut = verilated(Engine::default(), "sender");
        let mut bench = Bench::new(&mut dut, 14);
        bench.grant_percent = 100;
        bench.create(0, SenderConfig::from_params(), 0);
        bench.work(0, 1000);
        for _ in 0..200 {
            bench.cycle();
        }
        let mut worst = 0;
        for psn in 0..20 {
            let ack = Ack {
                sack: psn,
                aack: psn + 1,
                vp: 50_000,
                ..Ack::default()
            };
            bench.ack(0, ack);
            let since = bench.cycle;
            while !bench.dut.bit("grant_valid") {
                bench.cycle();
            }
            worst = worst.max(bench.cycle - since);
            for _ in 0..20 + psn % 2 {
                bench.cycle();
            }
        }
        println!("ACK to grant: {worst} cycles");
        assert!(worst <= 17, "{worst} cycles");
    });
}
