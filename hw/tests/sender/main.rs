//! The sender engine against its model.

#[allow(dead_code, unused_macros)]
#[path = "../leaf/support.rs"]
mod support;

mod compare;
mod engine;
mod lint;
mod lockstep;
#[path = "../mutants/mod.rs"]
mod mutants;
mod traffic;
