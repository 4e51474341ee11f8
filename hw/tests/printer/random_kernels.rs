//! Random kernels: order of statements, branches, locals, partial writes and children, as a program no one would write.
//!
//! Each unit interprets its program on rust-hdl signals and hands the same program to the printer.

use crate::hierarchy::Adder;
use crate::{bits_of, compare};
use mprdma_hw::lint::lint_verilog;
use mprdma_hw::prelude::*;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rust_hdl_core::ast::*;

const INPUTS: usize = 4;
const OUTPUTS: usize = 6;
const LOCALS: usize = 3;
const CHILDREN: usize = 2;
const UNITS: usize = 24;

#[derive(Clone, Copy, Debug)]
enum Target {
    Output(usize),
    Local(usize),
    /// Input `a` or `b` of a child.
    Child(usize, bool),
}

impl Target {
    /// A target may depend on children below its level only, so that no program has a loop.
    fn level(self) -> usize {
        match self {
            Target::Output(i) => [0, 1, 2, 2, 2, 2][i],
            Target::Local(i) => i,
            Target::Child(i, _) => i,
        }
    }
}

#[derive(Clone, Debug)]
enum Term {
    Input(usize),
    Target(Target),
    Sum(usize),
    Literal(u64),
    Unary(
        fn(Bits<8>) -> Bits<8>,
        fn(Box<VerilogExpression>) -> VerilogExpression,
        Box<Term>,
    ),
    Binary(
        fn(Bits<8>, Bits<8>) -> Bits<8>,
        VerilogOp,
        Box<Term>,
        Box<Term>,
    ),
}

#[derive(Clone, Debug)]
enum Test {
    Less(Term, Term),
    Equal(Term, Term),
    Bit(Term, usize),
}

#[derive(Clone, Debug)]
enum Step {
    Assign(Target, Term),
    /// Writes the low or the high nibble.
    Nibble(Target, bool, Term),
    If(Test, Vec<Step>, Vec<Step>),
    /// On the low two bits of the term: arms 0, 1 and the rest.
    Match(Term, [Vec<Step>; 3]),
}

/// Makes programs. `ready` are the outputs and locals that are assigned on every path so far.
struct Writer<'a> {
    random: &'a mut ChaCha8Rng,
    ready: Vec<Target>,
    /// Logic reads the outputs of children and drives their inputs in any place.
    children: bool,
}

impl Writer<'_> {
    fn leaf(&mut self, level: usize) -> Term {
        let ready: Vec<Target> = self
            .ready
            .iter()
            .copied()
            .filter(|target| target.level() <= level)
            .collect();
        match self.random.random_range(0..10) {
            0..=3 => Term::Input(self.random.random_range(0..INPUTS)),
            4..=7 if !ready.is_empty() => {
                Term::Target(ready[self.random.random_range(0..ready.len())])
            }
            8 if level > 0 && self.children => Term::Sum(self.random.random_range(0..level)),
            _ => Term::Literal(self.random.random_range(0..256)),
        }
    }

    fn term(&mut self, level: usize, depth: usize) -> Term {
        if depth == 0 || self.random.random_range(0..3) == 0 {
            let leaf = self.leaf(level);
            // A literal alone has no width on either side of an operator.
            return match leaf {
                Term::Literal(_) if depth < 2 => Term::Input(0),
                leaf => leaf,
            };
        }
        let left = Box::new(self.term(level, depth - 1));
        if self.random.random_range(0..4) == 0 {
            let not = |term| VerilogExpression::Unary(VerilogOpUnary::Not, term);
            let high = |term| {
                let four = Box::new(VerilogExpression::Literal(4_u64.into()));
                VerilogExpression::Cast(Box::new(VerilogExpression::Slice(term, 4, four)), 8)
            };
            return match self.random.random_range(0..2) {
                0 => Term::Unary(|x| !x, not, left),
                _ => Term::Unary(|x| bit_cast::<8, 4>(x.get_bits::<4>(4)), high, left),
            };
        }
        let right = Box::new(self.term(level, depth - 1));
        let (function, op): (fn(Bits<8>, Bits<8>) -> Bits<8>, _) =
            match self.random.random_range(0..7) {
                0 => (|a, b| a + b, VerilogOp::Add),
                1 => (|a, b| a - b, VerilogOp::Sub),
                2 => (|a, b| a & b, VerilogOp::BitAnd),
                3 => (|a, b| a | b, VerilogOp::BitOr),
                4 => (|a, b| a ^ b, VerilogOp::BitXor),
                5 => (|a, b| a << b, VerilogOp::Shl),
                _ => (|a, b| a >> b, VerilogOp::Shr),
            };
        Term::Binary(function, op, left, right)
    }

    fn test(&mut self, level: usize) -> Test {
        let left = self.term(level, 1);
        match self.random.random_range(0..3) {
            0 => Test::Less(left, self.term(level, 2)),
            1 => Test::Equal(left, self.term(level, 2)),
            _ => Test::Bit(left, self.random.random_range(0..8)),
        }
    }

    fn pick(&mut self, level: usize) -> Target {
        loop {
            let target = match self.random.random_range(0..10) {
                0..=4 => Target::Output(self.random.random_range(0..OUTPUTS)),
                5..=7 => Target::Local(self.random.random_range(0..LOCALS)),
                _ => Target::Child(self.random.random_range(0..CHILDREN), self.random.random()),
            };
            let allowed = self.children || !matches!(target, Target::Child(..));
            if target.level() >= level && allowed {
                return target;
            }
        }
    }

    fn steps(&mut self, count: usize, level: usize, depth: usize) -> Vec<Step> {
        let mut steps = vec![];
        for _ in 0..count {
            let kind = self.random.random_range(0..10);
            steps.push(match kind {
                0..=2 if depth > 0 => {
                    let level = self.random.random_range(level..3);
                    let test = self.test(level);
                    let (yes, no) = (
                        self.random.random_range(0..3),
                        self.random.random_range(0..3),
                    );
                    Step::If(
                        test,
                        self.steps(yes, level, depth - 1),
                        self.steps(no, level, depth - 1),
                    )
                }
                3 if depth > 0 => {
                    let level = self.random.random_range(level..3);
                    let term = self.term(level, 1);
                    let arms = [(); 3].map(|()| {
                        let count = self.random.random_range(0..3);
                        self.steps(count, level, depth - 1)
                    });
                    Step::Match(term, arms)
                }
                4 => {
                    let target = self.pick(level);
                    Step::Nibble(target, self.random.random(), self.term(target.level(), 2))
                }
                _ => {
                    let target = self.pick(level);
                    Step::Assign(target, self.term(target.level(), 2))
                }
            });
        }
        steps
    }

    /// Everything gets a value first, in any order; then anything may happen.
    fn program(&mut self) -> Vec<Step> {
        let mut targets: Vec<Target> = (0..OUTPUTS).map(Target::Output).collect();
        targets.extend((0..LOCALS).map(Target::Local));
        for child in 0..CHILDREN {
            targets.extend([Target::Child(child, false), Target::Child(child, true)]);
        }
        targets.shuffle(self.random);
        let mut steps = vec![];
        for target in targets {
            let level = target.level();
            let first = Step::Assign(target, self.term(level, 2));
            steps.push(if self.random.random_range(0..3) == 0 {
                let test = self.test(level);
                Step::If(
                    test,
                    vec![first],
                    vec![Step::Assign(target, self.term(level, 2))],
                )
            } else {
                first
            });
            if !matches!(target, Target::Child(..)) {
                self.ready.push(target);
            }
        }
        let count = self.random.random_range(4..14);
        steps.extend(self.steps(count, 0, 3));
        steps
    }
}

#[derive(LogicBlock, Default)]
struct Unit {
    pub inputs: [Signal<In, Bits<8>>; INPUTS],
    pub outputs: [Signal<Out, Bits<8>>; OUTPUTS],
    locals: [Signal<Local, Bits<8>>; LOCALS],
    children: [Adder<8>; CHILDREN],
    _program: Vec<Step>,
    block_name: NameOf<Unit>,
}

impl Unit {
    fn value(&self, term: &Term) -> Bits<8> {
        match term {
            Term::Input(i) => self.inputs[*i].val(),
            Term::Target(Target::Output(i)) => self.outputs[*i].val(),
            Term::Target(Target::Local(i)) => self.locals[*i].val(),
            Term::Target(Target::Child(i, false)) => self.children[*i].a.val(),
            Term::Target(Target::Child(i, true)) => self.children[*i].b.val(),
            Term::Sum(i) => self.children[*i].sum.val(),
            Term::Literal(value) => (*value).into(),
            Term::Unary(function, _, term) => function(self.value(term)),
            Term::Binary(function, _, a, b) => function(self.value(a), self.value(b)),
        }
    }

    fn next(&mut self, target: Target) -> &mut Bits<8> {
        match target {
            Target::Output(i) => &mut self.outputs[i].next,
            Target::Local(i) => &mut self.locals[i].next,
            Target::Child(i, false) => &mut self.children[i].a.next,
            Target::Child(i, true) => &mut self.children[i].b.next,
        }
    }

    fn execute(&mut self, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Assign(target, term) => *self.next(*target) = self.value(term),
                Step::Nibble(target, high, term) => {
                    let value = self.value(term).get_bits::<4>(0);
                    self.next(*target)
                        .set_bits::<4>(if *high { 4 } else { 0 }, value);
                }
                Step::If(test, yes, no) => {
                    let holds = match test {
                        Test::Less(a, b) => self.value(a) < self.value(b),
                        Test::Equal(a, b) => self.value(a) == self.value(b),
                        Test::Bit(a, i) => self.value(a).get_bit(*i),
                    };
                    self.execute(if holds { yes } else { no });
                }
                Step::Match(term, arms) => {
                    let index = self.value(term).get_bits::<2>(0).index();
                    self.execute(&arms[index.min(2)]);
                }
            }
        }
    }
}

fn name(target: Target) -> VerilogExpression {
    VerilogExpression::Signal(match target {
        Target::Output(i) => format!("outputs[{i}]"),
        Target::Local(i) => format!("locals[{i}]"),
        Target::Child(i, second) => format!("children[{i}]${}", if second { "b" } else { "a" }),
    })
}

fn expression(term: &Term) -> VerilogExpression {
    match term {
        Term::Input(i) => VerilogExpression::Signal(format!("inputs[{i}]")),
        Term::Target(target) => name(*target),
        Term::Sum(i) => VerilogExpression::Signal(format!("children[{i}]$sum")),
        Term::Literal(value) => {
            VerilogExpression::Cast(Box::new(VerilogExpression::Literal((*value).into())), 8)
        }
        Term::Unary(_, make, term) => make(Box::new(expression(term))),
        Term::Binary(_, op, a, b) => {
            VerilogExpression::Binary(Box::new(expression(a)), op.clone(), Box::new(expression(b)))
        }
    }
}

fn block(steps: &[Step]) -> VerilogBlock {
    steps
        .iter()
        .map(|step| match step {
            Step::Assign(target, term) => {
                VerilogStatement::Assignment(name(*target), expression(term))
            }
            Step::Nibble(target, high, term) => VerilogStatement::SliceAssignment {
                base: name(*target),
                width: 4,
                offset: VerilogExpression::Literal(if *high { 4_u64 } else { 0 }.into()),
                replacement: VerilogExpression::Cast(Box::new(expression(term)), 4),
            },
            Step::If(test, yes, no) => {
                let binary = |a: &Term, op, b: &Term| {
                    VerilogExpression::Binary(Box::new(expression(a)), op, Box::new(expression(b)))
                };
                VerilogStatement::If(VerilogConditional {
                    test: match test {
                        Test::Less(a, b) => binary(a, VerilogOp::Lt, b),
                        Test::Equal(a, b) => binary(a, VerilogOp::Eq, b),
                        Test::Bit(a, i) => VerilogExpression::Index(
                            Box::new(expression(a)),
                            Box::new(VerilogExpression::Literal((*i).into())),
                        ),
                    },
                    then: block(yes),
                    otherwise: VerilogBlockOrConditional::Block(block(no)),
                })
            }
            Step::Match(term, arms) => VerilogStatement::Match(VerilogMatch {
                test: VerilogExpression::Cast(Box::new(expression(term)), 2),
                cases: arms
                    .iter()
                    .zip(["0", "1", "default"])
                    .map(|(arm, condition)| VerilogCase {
                        condition: condition.to_string(),
                        block: block(arm),
                    })
                    .collect(),
            }),
        })
        .collect()
}

impl Logic for Unit {
    fn update(&mut self) {
        let program = std::mem::take(&mut self._program);
        self.execute(&program);
        self._program = program;
    }

    fn connect(&mut self) {
        for output in &mut self.outputs {
            output.connect();
        }
        for local in &mut self.locals {
            local.connect();
        }
        for child in &mut self.children {
            child.a.connect();
            child.b.connect();
        }
    }

    fn hdl(&self) -> Verilog {
        Verilog::Combinatorial(block(&self._program))
    }
}

block! {
    struct Units {
        port { inputs: [Signal<In, Bits<8>>; INPUTS], outputs: [Signal<Out, Bits<8>>; UNITS * OUTPUTS] = std::array::from_fn(|_| Signal::default()) }
        sub { units: [Unit; UNITS] }
    }
}

impl Logic for Units {
    #[hdl_gen]
    fn update(&mut self) {
        for i in 0..24 {
            for j in 0..4 {
                self.units[i].inputs[j].next = self.inputs[j].val();
            }
            for j in 0..6 {
                self.outputs[6 * i + j].next = self.units[i].outputs[j].val();
            }
        }
    }
}

/// Units whose programs come from `seed`.
fn units(seed: u64, children: bool) -> Units {
    println!("programs: seed {seed}");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut units = Units::default();
    for unit in &mut units.units {
        unit._program = Writer {
            random: &mut random,
            ready: vec![],
            children,
        }
        .program();
    }
    units
}

fn drive(units: &mut Units, random: &mut ChaCha8Rng) {
    for input in &mut units.inputs {
        input.next = bits_of(random);
    }
}

fn without_children(seed: u64) {
    mprdma_hw::with_big_stack(|| {
        compare(units(seed, false), "units", 150, |_, _| {}, drive);
    });
}

/// Each value has a net of its own, so a simulator that orders whole blocks finds no loop.
fn with_children(seed: u64) {
    mprdma_hw::with_big_stack(|| {
        let printed = compare(units(seed, true), "units", 150, |_, _| {}, drive);
        let findings = lint_verilog(&printed, "units").unwrap();
        let loops = findings.iter().find(|finding| finding.class == "UNOPTFLAT");
        assert!(loops.is_none(), "{loops:?}\n{printed}");
    });
}

#[test]
fn random_kernels() {
    without_children(1);
}

#[test]
fn random_kernels_with_children() {
    with_children(2);
    with_children(5);
}

#[test]
#[ignore = "minutes"]
fn many_random_kernels() {
    for seed in 3..20 {
        without_children(seed);
        with_children(seed);
    }
}
