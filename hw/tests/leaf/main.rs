//! Tests of the leaves: rust-hdl simulator and Verilated form against plain Rust.

mod fifo;
mod support;
