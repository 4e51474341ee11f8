//! The frame builder and the frame parser against `spec::wire`.

mod loopback;
#[path = "../mutants/mod.rs"]
mod mutants;
mod rx;
mod support;
mod tx;
