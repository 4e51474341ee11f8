//! Tests of the leaves: rust-hdl simulator and Verilated form against plain Rust.

mod align;
mod arith;
mod crc;
mod dma_read;
mod dma_write;
mod fifo;
mod latency;
mod lints;
mod support;
mod timer;
