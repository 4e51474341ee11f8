//! Tests of the leaves: rust-hdl simulator and Verilated form against plain Rust.

mod align;
mod arith;
mod crc;
mod fifo;
mod print;
mod support;
mod timer;
