//! Interrupts that keep their distance: RTL, rust-hdl and plain Rust do the same in every cycle, and what they do is what
//! `docs/registers.md` promises.

use super::support::{reset, verilated, Noise};
use mprdma_hw::cosim::{Cosim, VerilatedBlock};
use mprdma_hw::nic::moderator::Moderator;
use mprdma_hw::prelude::*;
use mprdma_hw::with_big_stack;

const VECTORS: usize = 8;
/// Core cycles in the unit of an interval.
const TICK: u64 = 16;

#[derive(Clone, Copy, Default)]
struct Inputs {
    /// Vector of an interrupt that wants in.
    irq: Option<u8>,
    ready: bool,
    intervals: [u16; VECTORS],
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Outputs {
    irq_ready: bool,
    out: Option<u8>,
    raised: bool,
    held: bool,
    busy: bool,
}

/// The block in plain Rust.
#[derive(Default)]
struct Model {
    came: Option<u8>,
    turn: u8,
    leaving: Option<u8>,
    raised: bool,
    held: bool,
    pending: [bool; VECTORS],
    left: [u32; VECTORS],
}

impl Model {
    /// What it shows before the clock edge.
    fn outputs(&self) -> Outputs {
        Outputs {
            irq_ready: self.came.is_none(),
            out: self.leaving,
            raised: self.raised,
            held: self.held,
            busy: self.came.is_some() || self.leaving.is_some() || self.pending.contains(&true),
        }
    }

    fn edge(&mut self, inputs: &Inputs) {
        let moderated = |vector: u8| inputs.intervals[usize::from(vector)] != 0;
        let (before, left) = (self.pending, self.left);
        let leaves = self.leaving.filter(|_| inputs.ready);
        let looked_at = usize::from(self.turn);
        let picks = before[looked_at] && left[looked_at] == 0 && self.leaving.is_none();
        let comes = self
            .came
            .filter(|vector| !before[usize::from(*vector)] || moderated(*vector));
        for (vector, left) in self.left.iter_mut().enumerate() {
            *left = match inputs.intervals[vector] {
                0 => 0,
                ticks if leaves == Some(vector as u8) => u32::from(ticks) * TICK as u32,
                _ => left.saturating_sub(1),
            };
        }
        if leaves.is_some() {
            self.leaving = None;
        }
        if picks {
            self.leaving = Some(self.turn);
            self.pending[looked_at] = false;
        }
        self.raised = leaves.is_some();
        self.held = comes
            .is_some_and(|vector| before[usize::from(vector)] || left[usize::from(vector)] > 0);
        if let Some(vector) = comes {
            self.pending[usize::from(vector)] = true;
            self.came = None;
        } else if self.came.is_none() {
            self.came = inputs.irq;
        }
        self.turn = (self.turn + 1) % VECTORS as u8;
    }
}

/// Interrupts at random, more often and less; intervals that change now and then, with some vectors left alone.
struct Traffic {
    noise: Noise,
    inputs: Inputs,
}

impl Traffic {
    fn new(seed: u64) -> Self {
        println!("seed {seed}");
        let (noise, mut inputs) = (Noise(seed), Inputs::default());
        inputs.intervals = [0, 1, 2, 5, 0, 20, 3, 1];
        Self { noise, inputs }
    }

    fn next(&mut self, cycle: u64, taken: bool) -> &Inputs {
        let noise = &mut self.noise;
        if taken || self.inputs.irq.is_none() {
            let rate = [2, 6, 40][(cycle / 3000 % 3) as usize];
            self.inputs.irq = noise.one_in(rate).then(|| (noise.next() % 8) as u8);
        }
        self.inputs.ready = !noise.one_in(4);
        if noise.one_in(2000) {
            self.inputs.intervals[(noise.next() % 8) as usize] = (noise.next() % 12) as u16;
        }
        &self.inputs
    }
}

fn apply(block: &mut VerilatedBlock, inputs: &Inputs) {
    let pins = block.inputs();
    pins.set("irq_valid", inputs.irq.is_some().into());
    pins.set("irq", inputs.irq.unwrap_or(0).into());
    pins.set("m_irq_ready", inputs.ready.into());
    for (vector, interval) in inputs.intervals.iter().enumerate() {
        pins.set(&format!("interval_{vector}"), (*interval).into());
    }
}

fn look(block: &VerilatedBlock) -> Outputs {
    let pins = block.outputs();
    Outputs {
        irq_ready: pins.bit("irq_ready"),
        out: pins
            .bit("m_irq_valid")
            .then(|| pins.get("m_irq_vector") as u8),
        raised: pins.bit("cnt_raised"),
        held: pins.bit("cnt_held"),
        busy: pins.bit("busy"),
    }
}

fn start() -> VerilatedBlock {
    let mut block = verilated("moderator", Moderator::default);
    apply(&mut block, &Inputs::default());
    block.inputs().set("reset", 1);
    block
}

#[test]
fn rust_hdl_verilog_and_plain_rust_agree() {
    const CYCLES: u64 = 700;
    with_big_stack(|| {
        let clock = |b: &mut Moderator, level| b.clock.next = Clock { clk: level };
        let mut cosim = Cosim::new(Moderator::default(), "moderator", clock).expect("a design");
        let mut traffic = Traffic::new(1);
        let mut model = Model::default();
        for cycle in 0..CYCLES {
            let reset = cycle < 2;
            let inputs = *traffic.next(cycle, model.came.is_none());
            cosim
                .cycle(|b| {
                    b.reset.next = reset;
                    b.irq.next = bits(inputs.irq.unwrap_or(0).into());
                    b.irq_valid.next = inputs.irq.is_some();
                    b.m_irq_ready.next = inputs.ready;
                    for (vector, interval) in inputs.intervals.iter().enumerate() {
                        b.interval[vector].next = bits((*interval).into());
                    }
                })
                .expect("a cycle");
            match reset {
                true => model = Model::default(),
                false => model.edge(&inputs),
            }
        }
        cosim.verify().expect("equal traces");
    });
    let mut block = start();
    reset(&mut block);
    // The turn goes on from where reset left it.
    let (mut model, mut traffic) = (Model::default(), Traffic::new(2));
    let (mut raised, mut held) = (0, 0);
    for cycle in 0..60_000 {
        let inputs = *traffic.next(cycle, model.came.is_none());
        apply(&mut block, &inputs);
        block.cycle().expect("a cycle");
        let shown = look(&block);
        assert_eq!(shown, model.outputs(), "cycle {cycle}");
        model.edge(&inputs);
        raised += u32::from(shown.raised);
        held += u32::from(shown.held);
    }
    assert!(raised > 1000 && held > 1000, "{raised} raised, {held} held");
}

/// What a vector has seen.
#[derive(Clone, Copy, Default)]
struct Seen {
    causes: u64,
    raised: u64,
    last_cause: Option<u64>,
    /// When an interrupt was first shown, and when it was taken.
    shown_at: Option<u64>,
    last_raised: Option<u64>,
}

/// Runs traffic with these intervals, then none until nothing waits. Says what each vector has seen; on the way no two
/// interrupts of a vector come closer than its interval.
fn keep(
    intervals: [u16; VECTORS],
    seed: u64,
    ready: impl Fn(&mut Noise) -> bool,
) -> [Seen; VECTORS] {
    let mut block = start();
    reset(&mut block);
    let mut noise = Noise(seed);
    let mut inputs = Inputs {
        intervals,
        ..Inputs::default()
    };
    let mut seen = [Seen::default(); VECTORS];
    let mut was_shown = None;
    for cycle in 0..40_000 {
        if inputs.irq.is_none() && cycle < 38_000 && noise.one_in(9) {
            inputs.irq = Some((noise.next() % 8) as u8);
        }
        inputs.ready = ready(&mut noise);
        apply(&mut block, &inputs);
        block.cycle().expect("a cycle");
        let outputs = look(&block);
        if let Some(vector) = outputs.out {
            let of = &mut seen[usize::from(vector)];
            if was_shown.is_none() {
                of.shown_at = Some(cycle);
            }
            if inputs.ready {
                let gap = of.last_raised.map_or(u64::MAX, |last| cycle - last);
                let least = u64::from(intervals[usize::from(vector)]) * TICK;
                assert!(
                    gap >= least,
                    "vector {vector}: {gap} cycles apart, not {least}"
                );
                of.last_raised = Some(cycle);
                of.raised += 1;
                assert!(
                    of.raised <= of.causes,
                    "vector {vector} interrupts for nothing"
                );
            }
        }
        was_shown = outputs.out.filter(|_| !inputs.ready);
        if let Some(vector) = inputs.irq.filter(|_| outputs.irq_ready) {
            let of = &mut seen[usize::from(vector)];
            of.causes += 1;
            of.last_cause = Some(cycle);
            inputs.irq = None;
        }
    }
    assert!(!look(&block).busy, "nothing waits any more");
    seen
}

#[test]
fn without_an_interval_every_cause_interrupts() {
    for seen in keep([0; VECTORS], 3, |noise| !noise.one_in(3)) {
        assert!(seen.causes > 300, "{} causes", seen.causes);
        assert_eq!(seen.raised, seen.causes);
    }
}

#[test]
fn with_an_interval_no_cause_is_lost() {
    let intervals = [1, 2, 4, 8, 16, 32, 64, 100];
    for ready in [|_: &mut Noise| true, |noise: &mut Noise| noise.one_in(5)] {
        for (vector, seen) in keep(intervals, 4, ready).into_iter().enumerate() {
            assert!(
                seen.shown_at > seen.last_cause,
                "vector {vector}: the last cause is served"
            );
            let limit = 40_000 / (u64::from(intervals[vector]) * TICK) + 1;
            assert!(
                seen.raised <= limit && seen.raised >= 20,
                "vector {vector}: {} interrupts, at most {limit}",
                seen.raised
            );
            assert!(
                seen.raised < seen.causes || vector == 0,
                "vector {vector} merges"
            );
        }
    }
}

/// Cycles from now until an interrupt is shown, with ready high.
fn wait(block: &mut VerilatedBlock, inputs: &mut Inputs) -> u64 {
    inputs.ready = true;
    for cycle in 0..100_000 {
        apply(block, inputs);
        block.cycle().expect("a cycle");
        if block.outputs().bit("irq_ready") {
            inputs.irq = None;
        }
        if block.outputs().bit("m_irq_valid") {
            return cycle;
        }
    }
    panic!("no interrupt");
}

#[test]
fn an_interrupt_after_the_interval_is_not_delayed_and_none_ends_it_at_once() {
    let mut block = start();
    reset(&mut block);
    let mut inputs = Inputs {
        intervals: [0, 0, 0, 1000, 0, 0, 0, 0],
        ..Inputs::default()
    };
    let mut raise = |block: &mut VerilatedBlock, intervals: u16, pause: u64| {
        inputs.intervals[3] = intervals;
        for _ in 0..pause {
            apply(block, &inputs);
            block.cycle().expect("a cycle");
        }
        inputs.irq = Some(3);
        wait(block, &mut inputs)
    };
    assert!(raise(&mut block, 1000, 0) <= 10, "the first at once");
    let second = raise(&mut block, 1000, 0);
    assert!((16_000 - 12..=16_012).contains(&second), "{second} cycles");
    assert!(raise(&mut block, 1000, 16_001) <= 10, "a late one at once");
    let shorter = raise(&mut block, 10, 0);
    assert!(
        (15_980..=16_012).contains(&shorter),
        "the old interval runs on: {shorter}"
    );
    assert!(
        (150..=175).contains(&raise(&mut block, 10, 0)),
        "then the new one"
    );
    assert!(raise(&mut block, 1000, 200) <= 10);
    assert!(raise(&mut block, 0, 3) <= 10, "none ends it");
    // Reset forgets what waits and what runs.
    assert!(raise(&mut block, 1000, 3) <= 10);
    let mut inputs = Inputs {
        irq: Some(3),
        ready: true,
        intervals: [1000; VECTORS],
    };
    for _ in 0..4 {
        apply(&mut block, &inputs);
        block.cycle().expect("a cycle");
        inputs.irq = None;
    }
    assert!(look(&block).busy);
    reset(&mut block);
    block.cycle().expect("a cycle");
    assert!(!look(&block).busy);
    inputs.irq = Some(3);
    assert!(wait(&mut block, &mut inputs) <= 10);
}
