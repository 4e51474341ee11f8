//! Byte enables of a beat.

use crate::leaf::beat::{from_bools, BEAT_BYTES};
use crate::leaf::expr::{assign_slice, binary, literal, signal};
use crate::prelude::*;
use rust_hdl_core::ast::VerilogOp;

/// Bit k of `mask` is set for the lanes in use: `from <= k < nbytes`. Combinational.
#[derive(LogicBlock, Default)]
pub(super) struct LaneMask {
    pub from: Signal<In, Bits<6>>,
    pub nbytes: Signal<In, Bits<7>>,
    pub mask: Signal<Out, Bits<64>>,
    block_name: NameOf<LaneMask>,
}

impl Logic for LaneMask {
    fn update(&mut self) {
        let lanes = self.from.val().index()..self.nbytes.val().index();
        self.mask.next =
            from_bools::<BEAT_BYTES>(std::array::from_fn(|lane| lanes.contains(&lane)));
    }

    fn connect(&mut self) {
        self.mask.connect();
    }

    fn hdl(&self) -> Verilog {
        let lane = |k: usize| {
            let open = binary(
                signal("nbytes"),
                VerilogOp::Gt,
                literal(Bits::<7>::from(k as u64)),
            );
            // Lane 63 is never before `from`.
            let used = if k + 1 == BEAT_BYTES {
                open
            } else {
                let begun = binary(
                    signal("from"),
                    VerilogOp::Le,
                    literal(Bits::<6>::from(k as u64)),
                );
                binary(begun, VerilogOp::BitAnd, open)
            };
            assign_slice("mask", k, 1, used)
        };
        Verilog::Combinatorial((0..BEAT_BYTES).map(lane).collect())
    }
}
