//! The blocks pass every check.

use mprdma_hw::lint::lint;
use mprdma_hw::nic::telemetry::Telemetry;
use mprdma_hw::with_big_stack;
use rust_hdl_core::prelude::*;

/// The owner holds all others.
#[test]
fn telemetry() {
    with_big_stack(|| {
        let mut block = Telemetry::<8>::default();
        block.connect_all();
        let report = lint(&block, "telemetry").unwrap_or_else(|e| panic!("{e}"));
        assert!(report.is_clean(), "{report}");
    });
}
