//! Fixed delay line.

use crate::prelude::*;

/// Delays `d` by a fixed number of cycles; a shift register without reset, which synthesis maps to SRLs.
///
/// Latency: the number of cycles given. Initiation interval: 1. `q` is zero for that many cycles after power-up; a
/// reset does not clear it, so delay valid bits in registers.
#[derive(LogicBlock)]
pub struct Delay<D: Synth> {
    pub clock: Signal<In, Clock>,
    pub d: Signal<In, D>,
    pub q: Signal<Out, D>,
    _stages: Vec<D>,
    block_name: NameOf<Delay<D>>,
}

impl<D: Synth> Delay<D> {
    /// A delay of `cycles`, at least 2.
    pub fn new(cycles: usize) -> Self {
        assert!(cycles >= 2, "a delay line has at least two stages");
        Self {
            clock: Signal::default(),
            d: Signal::default(),
            q: Signal::default(),
            _stages: vec![D::default(); cycles - 1],
            block_name: NameOf::default(),
        }
    }
}

impl<D: Synth> Logic for Delay<D> {
    fn update(&mut self) {
        if self.clock.pos_edge() {
            self.q.next = self._stages[0];
            self._stages.rotate_left(1);
            if let Some(newest) = self._stages.last_mut() {
                *newest = self.d.val();
            }
        }
    }

    fn connect(&mut self) {
        self.q.connect();
    }

    fn hdl(&self) -> Verilog {
        let bits = D::BITS;
        let all = self._stages.len() * bits;
        let shift = if all == bits {
            "d".to_string()
        } else {
            format!("{{stages[{}:0], d}}", all - bits - 1)
        };
        Verilog::Custom(format!(
            "    reg [{0}:0] stages;\n    initial stages = 0;\n    initial q = 0;\n    \
             always @(posedge clock) begin\n        q <= stages[{0}:{1}];\n        stages <= {shift};\n    end\n",
            all - 1,
            all - bits
        ))
    }
}
