//! Registers, children, interfaces, module names, leaves.

use crate::{bits_of, compare};
use mprdma_hw::prelude::*;
use mprdma_hw::verilog::{generate, ports, Dir};
use rand::Rng;

#[derive(LogicInterface, Clone, Debug, Default)]
#[join = "Source"]
pub struct Sink {
    pub data: Signal<In, Bits<12>>,
    pub valid: Signal<In, Bit>,
    pub ready: Signal<Out, Bit>,
}

#[derive(LogicInterface, Clone, Debug, Default)]
#[join = "Sink"]
pub struct Source {
    pub data: Signal<Out, Bits<12>>,
    pub valid: Signal<Out, Bit>,
    pub ready: Signal<In, Bit>,
}

block! {
    /// Combinational: adds.
    pub struct Adder[const N: usize][N] {
        in { a: Bits<N>, b: Bits<N> }
        out { sum: Bits<N> }
    }
}

impl<const N: usize> Logic for Adder<N> {
    #[hdl_gen]
    fn update(&mut self) {
        self.sum.next = self.a.val() + self.b.val();
    }
}

block! {
    /// One register stage of a stream, with a counter of accepted words.
    struct Stage {
        in { clock: Clock, reset: Bit }
        out { accepted: Bits<8> }
        port { rx: Sink, tx: Source }
        reg { full: Bit, count: Bits<8> = bits(200) }
        pipe { data: Bits<12> = bits(7) }
        local { load: Bit }
    }
}

impl Logic for Stage {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, full, count, data);
        self.load.next = self.rx.valid.val() & (!self.full.q.val() | self.tx.ready.val());
        if self.load.val() {
            self.data.d.next = self.rx.data.val();
            self.count.d.next = self.count.q.val() + 1;
            self.full.d.next = true;
        } else if self.tx.ready.val() {
            self.full.d.next = false;
        }
        self.rx.ready.next = !self.full.q.val() | self.tx.ready.val();
        self.tx.data.next = self.data.q.val();
        self.tx.valid.next = self.full.q.val();
        self.accepted.next = self.count.q.val();
    }
}

/// A leaf with Verilog text of its own.
#[derive(LogicBlock, Default)]
struct Swap {
    pub clock: Signal<In, Clock>,
    pub x: Signal<In, Bits<8>>,
    pub y: Signal<Out, Bits<8>>,
    pub z: Signal<Out, Bits<8>>,
    block_name: NameOf<Swap>,
}

impl Logic for Swap {
    fn update(&mut self) {
        if self.clock.pos_edge() {
            self.z.next = self.x.val();
        }
        self.y.next = (self.x.val() << 4) | (self.x.val() >> 4);
    }

    fn connect(&mut self) {
        self.y.connect();
        self.z.connect();
    }

    fn hdl(&self) -> Verilog {
        Verilog::Custom(
            "    assign y = {x[3:0], x[7:4]};\n    initial z = 8'h0;\n    always @(posedge clock) z <= x;\n"
                .into(),
        )
    }
}

block! {
    /// Everything a parent does with children.
    pub struct Parent {
        in { clock: Clock, reset: Bit, a: Bits<16>, b: Bits<16>, x: Bits<8>, clear: Bit }
        out {
            chain: Bits<16>, feedback_sum: Bits<16>, tree: Bits<24>, swapped: Bits<8>, delayed: Bits<8>, state: Bits<2>,
            total: Bits<16>, shifted: Bits<4>, cleared: Bits<8>, accepted: Bits<8>, history: Bits<8>, held: Bits<16>
        }
        port { rx: Sink, tx: Source }
        local { pick: Bits<16> }
        reg { sum: Bits<16>, phase: Phase, memory: Bits<8> = bits(0x3c) }
        sub {
            first: Adder<16>, second: Adder<16>, third: Adder<24>, swap: Swap, stages: [Stage; 3], taps: [Reg<Bit>; 4],
            manual: Reg<Bits<8>> = Reg::new(bits(5)), past: Vec<Pipe<Bits<8>>> = vec![Pipe::default(), Pipe::default()]
        }
    }
}

#[derive(LogicState, Copy, Clone, Debug, PartialEq)]
pub enum Phase {
    Idle,
    Busy,
    Done,
}

impl Logic for Parent {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, sum, phase, memory, taps[0], taps[1]);
        clock!(self, clock, swap);
        // A chain of combinational children, with local logic between them.
        self.first.a.next = self.a.val();
        self.first.b.next = self.b.val();
        self.pick.next = self.first.sum.val();
        if self.clear.val() {
            self.pick.next = self.first.sum.val() ^ 0xff;
        }
        self.second.a.next = self.pick.val();
        self.second.b.next = self.a.val() & self.b.val();
        self.third.a.next = bit_cast::<24, 16>(self.second.sum.val());
        self.third.b.next = bit_cast::<24, 16>(self.first.sum.val());
        self.chain.next = self.second.sum.val();
        self.tree.next = self.third.sum.val();
        self.sum.d.next = self.sum.q.val() + self.second.sum.val();
        self.feedback_sum.next = self.sum.q.val();
        self.held.next = self.sum.d.val();
        // A leaf.
        self.swap.x.next = self.x.val();
        self.swapped.next = self.swap.y.val();
        self.delayed.next = self.swap.z.val();
        // Streams: link to the block's own ports, join between children.
        for i in 0..3 {
            self.stages[i].clock.next = self.clock.val();
            self.stages[i].reset.next = self.reset.val();
        }
        Sink::link(&mut self.rx, &mut self.stages[0].rx);
        Source::join(&mut self.stages[0].tx, &mut self.stages[1].rx);
        Source::join(&mut self.stages[1].tx, &mut self.stages[2].rx);
        Source::link(&mut self.tx, &mut self.stages[2].tx);
        self.accepted.next = self.stages[0].accepted.val();
        // Arrays of registers: from the macro, and by hand.
        for i in 2..4 {
            self.taps[i].clock.next = self.clock.val();
            self.taps[i].reset.next = self.clear.val();
            self.taps[i].d.next = self.taps[i - 1].q.val();
        }
        self.taps[0].d.next = self.x.val().get_bit(0);
        self.taps[1].d.next = self.taps[0].q.val();
        self.shifted.next = 0.into();
        for i in 0..4 {
            self.shifted.next = self.shifted.val().replace_bit(i, self.taps[i].q.val());
        }
        // A reset that is an expression.
        self.manual.clock.next = self.clock.val();
        self.manual.reset.next = self.reset.val() | self.clear.val();
        self.manual.d.next = self.manual.q.val() + self.x.val();
        self.cleared.next = self.manual.q.val();
        for i in 0..2 {
            self.past[i].clock.next = self.clock.val();
        }
        self.past[0].d.next = self.x.val();
        self.past[1].d.next = self.past[0].q.val();
        self.history.next = self.past[1].q.val();
        // A state machine.
        self.state.next = 0.into();
        match self.phase.q.val() {
            Phase::Idle => {
                if self.x.val().get_bit(1) {
                    self.phase.d.next = Phase::Busy;
                }
            }
            Phase::Busy => {
                self.state.next = 1.into();
                self.phase.d.next = Phase::Done;
            }
            Phase::Done => {
                self.state.next = 2.into();
                if self.clear.val() {
                    self.phase.d.next = Phase::Idle;
                    self.memory.d.next = self.x.val();
                }
            }
        }
        self.total.next = bit_cast::<16, 8>(self.memory.q.val()) + self.sum.q.val();
    }
}

#[test]
fn parent() {
    mprdma_hw::with_big_stack(|| {
        compare(
            Parent::default(),
            "parent",
            400,
            |u, level| u.clock.next = level.into(),
            |u, random| {
                u.reset.next = random.random_range(0..40) == 0;
                u.a.next = bits_of(random);
                u.b.next = bits_of(random);
                u.x.next = bits_of(random);
                u.clear.next = random.random_range(0..4) == 0;
                u.rx.data.next = bits_of(random);
                u.rx.valid.next = random.random();
                u.tx.ready.next = random.random();
            },
        )
    });
}

#[test]
fn names_and_sharing() {
    let mut block = Parent::default();
    block.connect_all();
    let verilog = generate(&block, "parent_top").unwrap();
    for module in ["parent_top", "adder_16", "adder_24", "stage", "swap"] {
        let header = format!("\nmodule {module} (");
        assert_eq!(verilog.matches(&header).count(), 1, "{module}:\n{verilog}");
    }
    assert_eq!(verilog.matches("\nmodule ").count(), 5);
    // Both adders of 16 bits are instances of one module.
    assert_eq!(verilog.matches("\n    adder_16 ").count(), 2);
    // The text depends on the design alone.
    let mut again = Parent::default();
    again.connect_all();
    assert_eq!(verilog, generate(&again, "parent_top").unwrap());
}

#[test]
fn port_list() {
    let list = ports(&Parent::default());
    let port = |name: &str| list.iter().find(|port| port.name == name).unwrap();
    assert_eq!((port("rx_data").bits, port("rx_data").dir), (12, Dir::In));
    assert_eq!(port("rx_ready").dir, Dir::Out);
    assert!(port("clock").clock && !port("reset").clock);
    assert_eq!(list.len(), 24);

    let list = ports(&crate::statements::Types::<48>::default());
    let fields = &list.iter().find(|port| port.name == "s").unwrap().fields;
    let summary: Vec<_> = fields
        .iter()
        .map(|field| (field.name.as_str(), field.low, field.bits))
        .collect();
    assert_eq!(
        summary,
        [
            ("valid", 0, 1),
            ("colour", 1, 2),
            ("inner.low", 3, 4),
            ("inner.level", 7, 8),
            ("data", 15, 40)
        ]
    );
    assert!(list.iter().any(|port| port.name == "lanes_3"));
}

block! {
    /// No reset port: only `Pipe`s.
    pub struct Delay {
        in { clock: Clock, x: Bits<8> }
        out { y: Bits<8> }
        pipe { one: Bits<8>, two: Bits<8> }
    }
}

impl Logic for Delay {
    #[hdl_gen]
    fn update(&mut self) {
        clock!(self, clock, one, two);
        self.one.d.next = self.x.val();
        self.two.d.next = self.one.q.val();
        self.y.next = self.two.q.val();
    }
}

#[test]
fn without_reset() {
    compare(
        Delay::default(),
        "delay",
        50,
        |u, level| u.clock.next = level.into(),
        |u, random| u.x.next = bits_of(random),
    );
}

block! {
    /// Two clocks, one twice as fast.
    struct TwoClocks {
        in { fast: Clock, slow: Clock, x: Bits<8> }
        out { y: Bits<8>, z: Bits<8> }
        pipe { quick: Bits<8>, lazy: Bits<8> }
    }
}

impl Logic for TwoClocks {
    #[hdl_gen]
    fn update(&mut self) {
        self.quick.clock.next = self.fast.val();
        self.lazy.clock.next = self.slow.val();
        self.quick.d.next = self.x.val() + self.quick.q.val();
        self.lazy.d.next = self.quick.q.val();
        self.y.next = self.quick.q.val();
        self.z.next = self.lazy.q.val();
    }
}

#[test]
fn two_clocks() {
    let mut count = 0;
    compare(
        TwoClocks::default(),
        "two_clocks",
        100,
        move |u, level| {
            u.fast.next = level.into();
            if level {
                u.slow.next = (count % 4 < 2).into();
                count += 1;
            }
        },
        |u, random| u.x.next = bits_of(random),
    );
}
