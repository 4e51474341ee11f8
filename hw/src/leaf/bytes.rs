//! Byte-lane selection and rotation of a beat, as generated combinational leaves.

use super::beat::{bits_of_bytes, bytes_of_bits, BEAT_BYTES};
use super::expr::{assign, assign_slice, binary, literal, signal, slice};
use crate::prelude::*;
use rust_hdl_core::ast::{
    VerilogBlockOrConditional, VerilogCase, VerilogConditional, VerilogMatch, VerilogOp,
    VerilogStatement,
};

/// Takes the first `n` bytes (0 to 64) from `low` and the others from `high`. Combinational, one LUT level plus the
/// comparison with `n`.
#[derive(LogicBlock, Default)]
pub struct ByteSelect {
    pub n: Signal<In, Bits<7>>,
    pub low: Signal<In, Bits<512>>,
    pub high: Signal<In, Bits<512>>,
    pub o: Signal<Out, Bits<512>>,
    block_name: NameOf<ByteSelect>,
}

/// The function of [`ByteSelect`].
pub fn byte_select(n: usize, low: &[u8; BEAT_BYTES], high: &[u8; BEAT_BYTES]) -> [u8; BEAT_BYTES] {
    std::array::from_fn(|lane| if lane < n { low[lane] } else { high[lane] })
}

impl Logic for ByteSelect {
    fn update(&mut self) {
        let n = self.n.val().index();
        let (low, high) = (lanes(&self.low.val()), lanes(&self.high.val()));
        self.o.next = bits_of_bytes(&byte_select(n, &low, &high));
    }

    fn connect(&mut self) {
        self.o.connect();
    }

    fn hdl(&self) -> Verilog {
        let mut statements = vec![assign("o", signal("high"))];
        for lane in 0..BEAT_BYTES {
            statements.push(VerilogStatement::If(VerilogConditional {
                test: binary(
                    signal("n"),
                    VerilogOp::Gt,
                    literal(Bits::<7>::from(lane as u64)),
                ),
                then: vec![assign_slice("o", 8 * lane, 8, slice("low", 8 * lane, 8))],
                otherwise: VerilogBlockOrConditional::None,
            }));
        }
        Verilog::Combinatorial(statements)
    }
}

/// Rotates a beat towards higher lanes by `n` times a fixed number of bytes: byte 0 goes to lane `n * unit`.
/// Combinational, one 4:1 multiplexer (one LUT level).
#[derive(LogicBlock)]
pub struct RotateStep {
    pub n: Signal<In, Bits<2>>,
    pub i: Signal<In, Bits<512>>,
    pub o: Signal<Out, Bits<512>>,
    _unit: usize,
    block_name: NameOf<RotateStep>,
}

impl RotateStep {
    /// A step of `unit` bytes.
    pub fn new(unit: usize) -> Self {
        Self {
            n: Signal::default(),
            i: Signal::default(),
            o: Signal::default(),
            _unit: unit,
            block_name: NameOf::default(),
        }
    }
}

impl Logic for RotateStep {
    fn update(&mut self) {
        let mut bytes = lanes(&self.i.val());
        bytes.rotate_right(self.n.val().index() * self._unit);
        self.o.next = bits_of_bytes(&bytes);
    }

    fn connect(&mut self) {
        self.o.connect();
    }

    fn hdl(&self) -> Verilog {
        let case = |condition: &str, lanes: usize| {
            let moved = 8 * lanes;
            VerilogCase {
                condition: condition.into(),
                block: vec![
                    assign_slice("o", moved, 512 - moved, slice("i", 0, 512 - moved)),
                    assign_slice("o", 0, moved, slice("i", 512 - moved, moved)),
                ],
            }
        };
        Verilog::Combinatorial(vec![VerilogStatement::Match(VerilogMatch {
            test: signal("n"),
            cases: vec![
                case("1", self._unit),
                case("2", 2 * self._unit),
                case("3", 3 * self._unit),
                VerilogCase {
                    condition: "default".into(),
                    block: vec![assign("o", signal("i"))],
                },
            ],
        })])
    }
}

fn lanes(value: &Bits<512>) -> [u8; BEAT_BYTES] {
    let bytes = bytes_of_bits(value);
    std::array::from_fn(|lane| bytes[lane])
}
