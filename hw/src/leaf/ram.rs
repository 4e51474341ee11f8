//! Simple dual-port memory.

use crate::prelude::*;

/// Which memory primitive a synthesis tool uses (`ram_style`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RamStyle {
    /// LUT RAM.
    Distributed,
    /// Block RAM.
    Block,
    /// UltraRAM.
    Ultra,
}

impl RamStyle {
    pub(crate) fn attribute(self) -> &'static str {
        match self {
            Self::Distributed => "distributed",
            Self::Block => "block",
            Self::Ultra => "ultra",
        }
    }
}

/// A memory of 2^`AW` words of type `D` with one write port and one read port on one clock.
///
/// - In: `write`, `write_addr`, `write_data`; `read`, `read_addr`.
/// - Out: `read_data`. It is zero until the first read, and keeps its value while `read` is low.
/// - Latency: 1 cycle from `read_addr` to `read_data`, or 2 with the output register. `read` enables both registers,
///   so with latency 2 it moves the read pipeline as a whole.
/// - Initiation interval: 1. A read of the address written in the same cycle returns the old word.
///
/// The contents have no reset and no initial value in hardware: the user writes a word before it reads it. Simulators
/// start with zeros.
#[derive(LogicBlock)]
pub struct Ram<D: Synth, const AW: usize> {
    pub clock: Signal<In, Clock>,
    pub write: Signal<In, bool>,
    pub write_addr: Signal<In, Bits<AW>>,
    pub write_data: Signal<In, D>,
    pub read: Signal<In, bool>,
    pub read_addr: Signal<In, Bits<AW>>,
    pub read_data: Signal<Out, D>,
    _style: RamStyle,
    _output_register: bool,
    _words: Vec<D>,
    _latch: D,
    block_name: NameOf<Ram<D, AW>>,
}

impl<D: Synth, const AW: usize> Ram<D, AW> {
    /// A memory with read latency 1, or 2 with `output_register`.
    pub fn new(style: RamStyle, output_register: bool) -> Self {
        Self {
            clock: Signal::default(),
            write: Signal::default(),
            write_addr: Signal::default(),
            write_data: Signal::default(),
            read: Signal::default(),
            read_addr: Signal::default(),
            read_data: Signal::default(),
            _style: style,
            _output_register: output_register,
            _words: vec![D::default(); 1 << AW],
            _latch: D::default(),
            block_name: NameOf::default(),
        }
    }
}

impl<D: Synth, const AW: usize> Default for Ram<D, AW> {
    fn default() -> Self {
        Self::new(RamStyle::Block, false)
    }
}

impl<D: Synth, const AW: usize> Logic for Ram<D, AW> {
    fn update(&mut self) {
        if !self.clock.pos_edge() {
            return;
        }
        if self.read.val() {
            let word = self._words[self.read_addr.val().index()];
            if self._output_register {
                self.read_data.next = self._latch;
                self._latch = word;
            } else {
                self.read_data.next = word;
            }
        }
        if self.write.val() {
            self._words[self.write_addr.val().index()] = self.write_data.val();
        }
    }

    fn connect(&mut self) {
        self.read_data.connect();
    }

    fn hdl(&self) -> Verilog {
        let range = range(D::BITS);
        let words = 1usize << AW;
        let style = self._style.attribute();
        let (latch, read) = if self._output_register {
            (
                format!("    reg {range}latch;\n    initial latch = 0;\n"),
                "            latch <= words[read_addr];\n            read_data <= latch;\n",
            )
        } else {
            (
                String::new(),
                "            read_data <= words[read_addr];\n",
            )
        };
        Verilog::Custom(format!(
            "    (* ram_style = \"{style}\" *) reg {range}words [0:{}];\n{latch}    initial read_data = 0;\n    \
             always @(posedge clock) begin\n        if (write) words[write_addr] <= write_data;\n        \
             if (read) begin\n{read}        end\n    end\n",
            words - 1
        ))
    }
}

/// `[N-1:0] `, or nothing for a single bit.
pub(crate) fn range(bits: usize) -> String {
    if bits == 1 {
        String::new()
    } else {
        format!("[{}:0] ", bits - 1)
    }
}
