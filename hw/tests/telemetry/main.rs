//! Telemetry blocks against plain Rust that counts the same.

#[allow(dead_code)]
#[path = "../control/support.rs"]
mod support;

mod lint;
mod simulators;
mod tallies;
mod trace;
