//! RTL of the mprdma NIC in Rust-HDL, and the tools that turn it into Verilog.
pub mod nic;
