//! Arithmetic leaves: multiplier and random numbers.

use crate::prelude::*;

/// 16 x 16 bit unsigned multiplier for one DSP slice: `product = a * b`.
///
/// Latency: 2 cycles (multiplier register, output register). Initiation interval: 1. No reset; zero at power-up.
#[derive(LogicBlock, Default)]
pub struct Mul16 {
    pub clock: Signal<In, Clock>,
    pub a: Signal<In, Bits<16>>,
    pub b: Signal<In, Bits<16>>,
    pub product: Signal<Out, Bits<32>>,
    _first: u32,
    block_name: NameOf<Mul16>,
}

impl Logic for Mul16 {
    fn update(&mut self) {
        if self.clock.pos_edge() {
            self.product.next = self._first.to_bits();
            self._first = self.a.val().to_u32() * self.b.val().to_u32();
        }
    }

    fn connect(&mut self) {
        self.product.connect();
    }

    fn hdl(&self) -> Verilog {
        Verilog::Custom(
            "    reg [31:0] first;\n    initial first = 0;\n    initial product = 0;\n    \
             always @(posedge clock) begin\n        first <= {16'd0, a} * {16'd0, b};\n        \
             product <= first;\n    end\n"
                .into(),
        )
    }
}

/// The successor of a state of [`Lfsr`]: Marsaglia's 64-bit xorshift with the triple (13, 7, 17), period 2^64 - 1.
pub const fn xorshift64(state: u64) -> u64 {
    let a = state ^ (state << 13);
    let b = a ^ (a >> 7);
    b ^ (b << 17)
}

block! {
    /// 64-bit pseudo-random generator: `value` becomes [`xorshift64`] of itself when `advance` is high.
    ///
    /// `load` (before `advance`) sets `value` to `seed`, or to 1 when `seed` is 0. Reset sets the seed of the
    /// constructor. Latency: 1 cycle.
    pub struct Lfsr {
        in {
            clock: Clock,
            reset: Bit,
            advance: bool,
            load: bool,
            seed: Bits<64>,
        }
        out {
            value: Bits<64>,
        }
        local {
            a: Bits<64>,
            b: Bits<64>,
        }
        reg {
            state: Bits<64> = bits(1),
        }
        konst {
            one: Bits<64> = bits(1),
        }
    }
}

impl Lfsr {
    /// A generator that starts at `seed`.
    ///
    /// # Panics
    /// When `seed` is 0, from which the generator never moves.
    pub fn new(seed: u64) -> Self {
        assert!(seed != 0, "the seed of an xorshift generator is not 0");
        Self {
            state: Reg::new(bits(seed)),
            ..Self::default()
        }
    }
}

impl Logic for Lfsr {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, state);
        self.value.next = self.state.q.val();
        self.a.next = self.state.q.val() ^ (self.state.q.val() << 13);
        self.b.next = self.a.val() ^ (self.a.val() >> 7);
        if self.advance.val() {
            self.state.d.next = self.b.val() ^ (self.b.val() << 17);
        }
        if self.load.val() {
            self.state.d.next = self.seed.val();
            if !self.seed.val().any() {
                self.state.d.next = self.one.val();
            }
        }
    }
}
