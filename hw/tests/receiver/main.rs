//! The receive side behind the parser: classification, receiver engine, placement.

#[allow(dead_code)]
#[path = "../leaf/support.rs"]
mod support;

mod atomic_unit;
mod lint;
mod lockstep;
#[path = "../mutants/mod.rs"]
mod mutants;
mod place;
mod read_book;
mod rx_classify;
