//! The blocks pass every check.

use mprdma_hw::lint::lint;
use mprdma_hw::nic::control::Registers;
use mprdma_hw::nic::cq_writer::CqWriter;
use mprdma_hw::nic::eq_writer::EqWriter;
use mprdma_hw::nic::moderator::Moderator;
use mprdma_hw::nic::mr_table::MrTable;
use mprdma_hw::with_big_stack;
use rust_hdl_core::prelude::*;

fn clean<B: Block>(make: impl FnOnce() -> B + Send, name: &str) {
    with_big_stack(|| {
        let mut block = make();
        block.connect_all();
        let report = lint(&block, name).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(report.is_clean(), "{report}");
    });
}

#[test]
fn registers() {
    clean(Registers::<12>::default, "registers");
}

#[test]
fn cq_writer() {
    clean(CqWriter::<6>::default, "cq_writer");
}

#[test]
fn eq_writer() {
    clean(EqWriter::default, "eq_writer");
}

#[test]
fn moderator() {
    clean(Moderator::default, "moderator");
}

#[test]
fn mr_table() {
    clean(MrTable::<10>::default, "mr_table");
}
