//! Runs the printed Verilog and compares it with the rust-hdl simulator.
//!
//! * [`VerilatedBlock`]: a block compiled with Verilator, driven cycle by cycle.
//! * [`Cosim`]: drives the rust-hdl simulator, records every port, and replays the record in Verilator or Icarus Verilog.

mod frame;
mod icarus;
mod library;
pub mod mutation;
mod record;
pub(crate) mod tools;
mod verilated;

pub use frame::{bytes_of, Frame, Layout};
pub use record::{Cosim, Mismatch, Replay};
pub use tools::CosimError;
pub use verilated::{BuildOptions, VerilatedBlock};
