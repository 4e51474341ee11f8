//! The blocks pass every check.

use mprdma_hw::lint::lint;
use mprdma_hw::nic::place::Place;
use mprdma_hw::nic::read_book::ReadBook;
use mprdma_hw::nic::receiver::ReceiverEngine;
use mprdma_hw::nic::rx_classify::RxClassify;
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
fn place() {
    clean(Place::<8, 13>::default, "place");
}

#[test]
fn read_book() {
    clean(ReadBook::<8, 9, 12>::new, "read_book");
}

#[test]
fn rx_classify() {
    clean(RxClassify::<8>::default, "rx_classify");
}

#[test]
fn receiver_engine_64() {
    clean(ReceiverEngine::<8, 64>::default, "receiver_engine");
}

#[test]
fn receiver_engine_128() {
    clean(ReceiverEngine::<8, 128>::default, "receiver_engine");
}
