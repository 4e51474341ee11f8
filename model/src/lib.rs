//! The transport engines in plain Rust: what the RTL must compute, bit for bit.
//!
//! Each engine is one pure function from a context and an event to a context and outputs. The arithmetic is that of the
//! hardware: PSNs are 24 bits and wrap, counters saturate where the hardware's do.
#![forbid(unsafe_code)]

pub mod psn;
pub mod receiver;
pub mod sender;
