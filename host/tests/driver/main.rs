//! The driver against cards that are a few hundred lines of Rust: what a user of the library and of the command line
//! sees, with no simulator.

mod cli;
mod fake_card;
#[path = "../../../tests/src/huge.rs"]
mod huge;
mod rings;
mod served;
mod telemetry;
mod verbs;
