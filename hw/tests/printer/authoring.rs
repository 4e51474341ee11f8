//! The worked example of AUTHORING.md, and the blocks of these tests under lint.

use crate::{bits_of, compare};
use mprdma_hw::lint::{lint, lint_source, Source};
use mprdma_hw::prelude::*;
use rand::Rng;

/// What stage T0 hands to stage T1.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct Request {
    pub psn: Bits<24>,
    pub length: Bits<16>,
}

block! {
    /// Adds the length to a running total and flags a PSN below the limit.
    /// Latency 2 cycles, one request per cycle.
    pub struct Accumulate {
        in { clock: Clock, reset: Bit, request: Request, request_valid: Bit }
        out { total: Bits<32>, below: Bit, total_valid: Bit }
        local { psn: Bits<24>, length: Bits<16>, sum: Bits<32> }
        reg { valid_1: Bit, valid_2: Bit, sum_2: Bits<32>, limit: Bits<24> = bits(0x80_0000) }
        pipe { request_1: Request, below_2: Bit }
        konst { one: Bits<24> = bits(1) }
    }
}

impl Logic for Accumulate {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, valid_1, valid_2, sum_2, limit, request_1, below_2);
        // T0
        comment!("T0: register the request");
        self.request_1.d.next = self.request.val();
        self.valid_1.d.next = self.request_valid.val();
        // T1
        comment!("T1: add and compare");
        self.psn.next = self.request_1.q.val().psn + self.one.val();
        self.length.next = self.request_1.q.val().length;
        self.sum.next = self.sum_2.q.val() + bit_cast::<32, 16>(self.length.val());
        self.below_2.d.next = self.psn.val() < self.limit.q.val();
        self.valid_2.d.next = self.valid_1.q.val();
        if self.valid_1.q.val() {
            self.sum_2.d.next = self.sum.val();
        }
        // Outputs come from registers.
        self.total.next = self.sum_2.q.val();
        self.below.next = self.below_2.q.val();
        self.total_valid.next = self.valid_2.q.val();
    }
}

#[test]
fn worked_example() {
    compare(
        Accumulate::default(),
        "accumulate",
        200,
        |u, level| u.clock.next = level.into(),
        |u, random| {
            u.reset.next = random.random_range(0..30) == 0;
            u.request.next = Request {
                psn: bits_of(random),
                length: bits_of(random),
            };
            u.request_valid.next = random.random();
        },
    );
}

fn report<B: Block>(mut block: B, name: &str) -> String {
    block.connect_all();
    let report = lint(&block, name).unwrap();
    if report.is_clean() {
        String::new()
    } else {
        format!("{report}\n")
    }
}

#[test]
fn test_blocks_are_clean() {
    mprdma_hw::with_big_stack(|| {
        let reports = [
            report(Accumulate::default(), "accumulate"),
            report(crate::expressions::Arithmetic::default(), "arithmetic"),
            report(crate::expressions::Selections::default(), "selections"),
            report(crate::statements::Branches::default(), "branches"),
            report(crate::statements::Types::<48>::default(), "types"),
            report(crate::hierarchy::Parent::default(), "parent_top"),
        ]
        .concat();
        assert!(reports.is_empty(), "{reports}");
    });
}

#[test]
fn guards_are_found_in_the_source() {
    let source = r#"
        fn model() { match x { 1 if y => {} _ => {} } }
        #[hdl_gen]
        fn update(&mut self) {
            // 0 if this is a comment => nothing
            match self.a.val().index() {
                0 if self.f.val() => self.o.next = true,
                1 => { if self.f.val() { self.o.next = false; } }
                _ => self.o.next = false,
            }
        }
    "#;
    let findings = lint_source("block.rs", source);
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].source, Source::Kernel);
    assert!(
        findings[0].text.starts_with("block.rs:7:"),
        "{}",
        findings[0].text
    );
}
