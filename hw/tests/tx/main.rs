//! Tests of the transmit blocks: rust-hdl simulator and Verilated form against plain Rust.

#[path = "../mutants/mod.rs"]
mod mutants;
mod segment;
mod sq_fetch;
mod support;
mod tx_complete;
mod wsn;
