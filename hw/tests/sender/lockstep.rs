//! The pipeline and the model in lockstep: every context bit and every output after every event.

use crate::compare::{cfg_record, event_record, Comparison};
use crate::ports;
use crate::support::{simulated, verilated, Dut};
use crate::traffic::{Moment, Sabotage, Traffic};
use mprdma_hw::nic::sender::SenderPipeline;
use mprdma_hw::with_big_stack;
use rust_hdl_core::prelude::*;
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};

const QPW: usize = 4;
const SLOTS: usize = 128;
type Pipeline = SenderPipeline<QPW, SLOTS>;

ports!(Pipeline, clock: reset incoming incoming_valid now random backlog crowded full waiting_slow cfg
    => outcome written outcome_valid seen_valid init_done busy);

/// What a run found.
pub struct Report {
    pub events: u64,
    pub mismatches: u64,
    /// The first few, as text.
    pub texts: Vec<String>,
    /// How often the traffic reached each corner.
    pub reached: BTreeMap<&'static str, u64>,
}

/// Runs `events` random events over `qps` QPs.
fn run(dut: &mut impl Dut, seed: u64, qps: usize, events: u64, sabotage: Sabotage) -> Report {
    let mut traffic = Traffic::new(seed, qps, sabotage);
    let comparison = Comparison::new();
    let mut report = Report {
        events: 0,
        mismatches: 0,
        texts: vec![],
        reached: BTreeMap::new(),
    };
    let mut waiting: VecDeque<Moment> = VecDeque::new();
    let mut check = |dut: &dyn DutOutputs, waiting: &mut VecDeque<Moment>| {
        if !dut.valid() {
            return;
        }
        let moment = waiting
            .pop_front()
            .expect("an outcome for every event and no other");
        let found = comparison.differences(
            moment.qpn,
            &moment.context,
            &moment.outputs,
            &dut.context(),
            &dut.outcome(),
        );
        report.events += 1;
        if !found.is_empty() {
            report.mismatches += 1;
            if report.texts.len() < 3 {
                report
                    .texts
                    .push(format!("{moment:#?}\n{}", found.join("\n")));
            }
        }
    };
    let time = Cell::new(0);
    let mut cycle = |dut: &mut _, waiting: &mut VecDeque<Moment>| {
        time.set(time.get() + 1);
        Dut::low(dut);
        check(&View(dut), waiting);
        Dut::high(dut);
    };

    dut.set("reset", true);
    cycle(dut, &mut waiting);
    dut.set("reset", false);
    for _ in 0..(1 << QPW) + 2 {
        cycle(dut, &mut waiting);
    }
    assert!(dut.bit("init_done"));
    let mut free_at = vec![0; qps];
    for _ in 0..events {
        let moment = traffic.next();
        // A command has the pipeline for itself; others keep 8 cycles to the same QP.
        let cfg = cfg_record(moment.qpn, &moment.event);
        while time.get() < free_at[usize::from(moment.qpn)] {
            cycle(dut, &mut waiting);
        }
        if let Some(cfg) = cfg {
            for _ in 0..10 {
                cycle(dut, &mut waiting);
            }
            dut.set("cfg", cfg);
            for _ in 0..2 {
                cycle(dut, &mut waiting);
            }
        }
        dut.set("incoming", event_record(moment.qpn, &moment.event));
        dut.set("incoming_valid", true);
        dut.set("now", Bits::<32>::from(u64::from(moment.env.now)));
        dut.set("random", Bits::<64>::from(moment.env.rnd));
        dut.set("backlog", moment.env.backlog);
        dut.set("crowded", moment.env.crowded);
        dut.set("full", moment.env.full);
        dut.set(
            "waiting_slow",
            Bits::<8>::from(u64::from(moment.env.waiting_slow)),
        );
        let command = moment.event;
        free_at[usize::from(moment.qpn)] = time.get() + 8;
        waiting.push_back(moment);
        cycle(dut, &mut waiting);
        dut.set("incoming_valid", false);
        cycle(dut, &mut waiting);
        if cfg_record(0, &command).is_some() {
            for _ in 0..10 {
                cycle(dut, &mut waiting);
            }
        }
    }
    for _ in 0..10 {
        cycle(dut, &mut waiting);
    }
    assert!(waiting.is_empty(), "every event came out");
    assert!(!dut.bit("busy"));
    report.reached = traffic.reached;
    report
}

/// The outputs that the comparison needs.
trait DutOutputs {
    fn valid(&self) -> bool;
    fn context(&self) -> Vec<u8>;
    fn outcome(&self) -> Vec<u8>;
}

struct View<'a, D: Dut>(&'a mut D);

impl<D: Dut> DutOutputs for View<'_, D> {
    fn valid(&self) -> bool {
        self.0.bit("outcome_valid")
    }
    fn context(&self) -> Vec<u8> {
        pad(self.0.bytes("written"), 64)
    }
    fn outcome(&self) -> Vec<u8> {
        pad(self.0.bytes("outcome"), 40)
    }
}

fn pad(mut bytes: Vec<u8>, least: usize) -> Vec<u8> {
    bytes.resize(bytes.len().max(least), 0);
    bytes
}

fn run_verilated(seed: u64, qps: usize, events: u64, sabotage: Sabotage) -> Report {
    with_big_stack(|| {
        let mut dut = verilated(Pipeline::default(), "sender_pipeline");
        run(&mut dut, seed, qps, events, sabotage)
    })
}

fn clean(report: &Report) {
    println!("{} events, {} mismatches", report.events, report.mismatches);
    assert!(report.mismatches == 0, "{}", report.texts.join("\n\n"));
}

#[test]
fn verilated_pipeline_equals_the_model() {
    clean(&run_verilated(1, 16, 4000, Sabotage::None));
    clean(&run_verilated(2, 2, 1000, Sabotage::None));
}

/// Reaches what is rare, for the mutation check.
#[test]
#[ignore = "the beginning of lockstep_long"]
fn verilated_pipeline_for_long() {
    clean(&run_verilated(100, 16, 30_000, Sabotage::None));
}

#[test]
fn rust_hdl_pipeline_equals_the_model() {
    with_big_stack(|| {
        let mut dut = simulated(Pipeline::default(), "sender_pipeline");
        clean(&run(&mut dut, 3, 8, 300, Sabotage::None));
        dut.verify().unwrap();
    });
}

#[test]
fn a_broken_model_is_noticed() {
    for sabotage in [Sabotage::Delta, Sabotage::RtoFloor, Sabotage::VpCount] {
        let report = run_verilated(4, 16, 4000, sabotage);
        println!("{sabotage:?}: {} mismatches", report.mismatches);
        assert!(report.mismatches > 0, "{sabotage:?} went unnoticed");
    }
}

/// The long run: writes `target/lockstep-sender.json`.
///
/// `cargo test -p mprdma-hw --test sender -- --ignored lockstep_long`
#[test]
#[ignore = "long; make lockstep runs it"]
fn lockstep_long() {
    let (mut events, mut mismatches, mut texts) = (0, 0, vec![]);
    for seed in 0..4 {
        let report = run_verilated(100 + seed, 16, 30_000, Sabotage::None);
        println!("{} events, {} mismatches", report.events, report.mismatches);
        println!("{:?}", report.reached);
        for (corner, count) in &report.reached {
            assert!(*count > 0, "the traffic never reached: {corner}");
        }
        events += report.events;
        mismatches += report.mismatches;
        texts.extend(report.texts);
    }
    let result = serde_json::json!({
        "engine": "sender",
        "events": events,
        "mismatches": mismatches,
    });
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../target/lockstep-sender.json"
    );
    std::fs::write(file, format!("{result}\n")).expect("a result file");
    assert!(mismatches == 0, "{}", texts.join("\n\n"));
}
