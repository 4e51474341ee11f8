//! The blocks pass every check.

use mprdma_hw::lint::lint;
use mprdma_hw::nic::sender::{Sender, SenderPipeline};
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
fn sender_pipeline() {
    clean(SenderPipeline::<8, 128>::default, "sender_pipeline");
}

#[test]
fn sender() {
    clean(Sender::<8, 64>::default, "sender");
}
