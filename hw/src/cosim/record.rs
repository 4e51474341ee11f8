//! Records a rust-hdl simulation at the ports of a block and replays it in the printed Verilog.

use super::frame::{hex, Frame, Layout};
use super::icarus;
use super::tools::{cached, digest, write, CosimError, YOSYS};
use super::verilated::{BuildOptions, VerilatedBlock};
use crate::verilog::{generate, ports, Dir, Port};
use rust_hdl_core::prelude::*;
use std::fmt;
use std::sync::Arc;

/// Drives the rust-hdl simulator of a block step by step and records every port.
///
/// The Verilog is printed before the first step. Inputs change while the clocks are low.
pub struct Cosim<B: Block> {
    /// The block; set inputs through `.next`, read outputs through `.val()`.
    pub block: B,
    name: String,
    verilog: String,
    ports: Vec<Port>,
    set_clock: SetClock<B>,
    input_layout: Arc<Layout>,
    output_layout: Arc<Layout>,
    inputs: Vec<Frame>,
    outputs: Vec<Frame>,
}

/// Sets all clock inputs of a block to a level.
type SetClock<B> = Box<dyn FnMut(&mut B, bool) + Send>;

/// A difference between the simulator and the Verilog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Settled step of the record; two per clock cycle.
    pub step: usize,
    pub port: String,
    /// Hexadecimal, from the rust-hdl simulator.
    pub expected: String,
    /// Hexadecimal, from the Verilog; Icarus Verilog may say `x`.
    pub got: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "step {}: {} is {} in Verilog, {} in Rust",
            self.step, self.port, self.got, self.expected
        )
    }
}

/// The result of a replay.
#[derive(Clone, Debug)]
pub struct Replay {
    pub steps: usize,
    /// Steps with at least one wrong port.
    pub bad_steps: usize,
    /// The first mismatches, up to ten.
    pub mismatches: Vec<Mismatch>,
}

impl Replay {
    /// An error that lists the mismatches, if there are any.
    pub fn check(&self, name: &str) -> Result<(), CosimError> {
        if self.bad_steps == 0 {
            return Ok(());
        }
        let list: Vec<String> = self.mismatches.iter().map(Mismatch::to_string).collect();
        Err(CosimError::Differs {
            name: name.to_string(),
            text: format!(
                "{} of {} steps\n{}",
                self.bad_steps,
                self.steps,
                list.join("\n")
            ),
        })
    }
}

impl<B: Block> Cosim<B> {
    /// Connects, checks and prints `block`, and settles it with the clock low and inputs zero.
    ///
    /// `set_clock` sets the clock input, or all of them: `|b, level| b.clock.next = level.into()`; for blocks without
    /// a clock `|_, _| {}`.
    pub fn new(
        mut block: B,
        name: &str,
        set_clock: impl FnMut(&mut B, bool) + Send + 'static,
    ) -> Result<Self, CosimError> {
        block.connect_all();
        check_all(&block).map_err(CosimError::Check)?;
        let verilog = generate(&block, name)?;
        let ports = ports(&block);
        let mut cosim = Self {
            name: name.to_string(),
            verilog,
            input_layout: Layout::new(&ports, Dir::In),
            output_layout: Layout::new(&ports, Dir::Out),
            ports,
            set_clock: Box::new(set_clock),
            block,
            inputs: vec![],
            outputs: vec![],
        };
        (cosim.set_clock)(&mut cosim.block, false);
        cosim.settle()?;
        Ok(cosim)
    }

    /// The printed Verilog.
    pub fn verilog(&self) -> &str {
        &self.verilog
    }

    /// Steps recorded so far.
    pub fn steps(&self) -> usize {
        self.inputs.len()
    }

    /// Lets the block settle after any change of its inputs, and records the ports.
    pub fn settle(&mut self) -> Result<(), CosimError> {
        const DELTAS: usize = 1000;
        if !simulate(&mut self.block, DELTAS) {
            return Err(CosimError::Unsettled {
                name: self.name.clone(),
                step: self.inputs.len(),
            });
        }
        let mut recorder = Recorder {
            depth: 0,
            namespace: vec![],
            inputs: Frame::new(&self.input_layout),
            outputs: Frame::new(&self.output_layout),
        };
        self.block.accept("top", &mut recorder);
        self.inputs.push(recorder.inputs);
        self.outputs.push(recorder.outputs);
        Ok(())
    }

    /// The falling edge: `set` changes inputs, the block settles, and outputs can be read before the rising edge.
    pub fn low(&mut self, set: impl FnOnce(&mut B)) -> Result<&B, CosimError> {
        (self.set_clock)(&mut self.block, false);
        set(&mut self.block);
        self.settle()?;
        Ok(&self.block)
    }

    /// The rising edge.
    pub fn high(&mut self) -> Result<&B, CosimError> {
        (self.set_clock)(&mut self.block, true);
        self.settle()?;
        Ok(&self.block)
    }

    /// One clock cycle: falling edge with new inputs, rising edge.
    pub fn cycle(&mut self, set: impl FnOnce(&mut B)) -> Result<&B, CosimError> {
        self.low(set)?;
        self.high()
    }

    /// Replays the record in Verilator.
    pub fn replay(&self) -> Result<Replay, CosimError> {
        self.replay_text(&self.verilog)
    }

    /// Replays the record in what Yosys makes of the Verilog, run in Verilator: shows that Yosys reads it alike.
    pub fn replay_yosys(&self) -> Result<Replay, CosimError> {
        let key = digest(&["yosys", &self.verilog, &self.name]);
        let directory = cached(&format!("yosys-{key}"), |dir| {
            write(&dir.join("dut.sv"), &self.verilog)?;
            let script = format!(
                "read_verilog -sv dut.sv; hierarchy -check -top {}; proc; opt_clean; write_verilog -noattr netlist.v",
                self.name
            );
            YOSYS.run(
                YOSYS
                    .command()?
                    .current_dir(dir)
                    .args(["-q", "-p", &script]),
            )?;
            Ok(())
        })?;
        let netlist = directory.join("netlist.v");
        let netlist = std::fs::read_to_string(&netlist)
            .map_err(CosimError::io(format!("reading {}", netlist.display())))?;
        self.replay_text(&netlist)
    }

    /// Replays the record in other Verilog with the same ports, in Verilator.
    pub fn replay_text(&self, verilog: &str) -> Result<Replay, CosimError> {
        let mut verilated = VerilatedBlock::from_verilog(
            verilog,
            &self.name,
            &self.ports,
            &BuildOptions {
                optimise: 1,
                native: false,
            },
        )?;
        let outputs = verilated.levels(&self.inputs)?;
        let mut replay = Replay {
            steps: self.inputs.len(),
            bad_steps: 0,
            mismatches: vec![],
        };
        for (step, (expected, got)) in self.outputs.iter().zip(&outputs).enumerate() {
            if expected == got {
                continue;
            }
            replay.bad_steps += 1;
            for slot in &self.output_layout.slots {
                let (e, g) = (expected.get_bytes(&slot.name), got.get_bytes(&slot.name));
                if e != g && replay.mismatches.len() < 10 {
                    replay.mismatches.push(Mismatch {
                        step,
                        port: slot.name.clone(),
                        expected: hex(e),
                        got: hex(g),
                    });
                }
            }
        }
        Ok(replay)
    }

    /// Replays the record in Icarus Verilog, which knows unknown values.
    pub fn replay_icarus(&self) -> Result<Replay, CosimError> {
        icarus::replay(&self.verilog, &self.name, &self.inputs, &self.outputs)
    }

    /// Replays in Verilator and fails on any difference.
    pub fn verify(&self) -> Result<(), CosimError> {
        self.replay()?.check(&self.name)
    }
}

struct Recorder {
    depth: usize,
    namespace: Vec<String>,
    inputs: Frame,
    outputs: Frame,
}

impl Probe for Recorder {
    fn visit_start_scope(&mut self, _name: &str, _node: &dyn Block) {
        self.depth += 1;
    }

    fn visit_end_scope(&mut self, _name: &str, _node: &dyn Block) {
        self.depth -= 1;
    }

    fn visit_start_namespace(&mut self, name: &str, _node: &dyn Block) {
        self.namespace.push(name.to_string());
    }

    fn visit_end_namespace(&mut self, _name: &str, _node: &dyn Block) {
        self.namespace.pop();
    }

    fn visit_atom(&mut self, name: &str, atom: &dyn Atom) {
        if self.depth != 1 || !atom.kind().is_parameter() {
            return;
        }
        let mut parts = self.namespace.clone();
        parts.push(name.to_string());
        let name = parts.join("_").replace('$', "_");
        let text = format!("{:x}", atom.verilog());
        let digits = text.split_once("'h").map_or("0", |(_, digits)| digits);
        let nibbles: Vec<u8> = digits
            .chars()
            .rev()
            .map(|c| c.to_digit(16).unwrap_or(0) as u8)
            .collect();
        let bytes: Vec<u8> = nibbles
            .chunks(2)
            .map(|pair| pair[0] | pair.get(1).copied().unwrap_or(0) << 4)
            .collect();
        match atom.kind() {
            AtomKind::InputParameter => self.inputs.set_bytes(&name, &bytes),
            _ => self.outputs.set_bytes(&name, &bytes),
        }
    }
}
