//! Targets that are read between two assignments: each value that others read has a net of its own.

use crate::hierarchy::Adder;
use crate::{bits_of, compare};
use mprdma_hw::lint::lint_verilog;
use mprdma_hw::prelude::*;

#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
struct Halves {
    low: Bits<4>,
    high: Bits<4>,
}

block! {
    /// A chain through two combinational children, all of it in one local, and what else reads between assignments.
    struct Chain {
        in { a: Bits<8>, b: Bits<8>, f: Bit }
        out { y: Bits<8>, halves: Halves, tested: Bits<8>, test_read: Bits<8>, fixed: Bits<8>, fixed_read: Bits<8>, counts: Bits<8> }
        local { x: Bits<8>, low: Bits<4>, loop_read: Bits<8> }
        sub { first: Adder<8>, second: Adder<8> }
    }
}

impl Logic for Chain {
    #[hdl_gen]
    fn update(&mut self) {
        // x has three values: the first goes into child `first`, the second into `second`.
        self.x.next = self.a.val();
        if self.f.val() {
            self.x.next = self.b.val();
        }
        self.first.a.next = self.x.val();
        self.first.b.next = self.a.val();
        self.x.next = self.first.sum.val() ^ self.x.val();
        self.second.a.next = self.x.val();
        self.second.b.next = self.b.val();
        self.x.next = self.second.sum.val() + self.x.val();
        self.y.next = self.x.val();
        // The upper half comes after the lower half was read.
        self.halves.next.low = self.a.val().get_bits::<4>(0);
        self.low.next = self.halves.val().low;
        self.halves.next.high = self.low.val();
        // A branch that assigns what its condition reads, with a read in the middle.
        self.tested.next = self.a.val();
        self.test_read.next = 0.into();
        if self.tested.val() < 100 {
            self.tested.next = self.b.val();
            self.test_read.next = self.tested.val();
            self.tested.next = self.tested.val() + 1;
        } else {
            self.test_read.next = self.tested.val() + 2;
            self.tested.next = 3.into();
        }
        // No input at all.
        self.fixed.next = 5.into();
        self.fixed_read.next = self.fixed.val();
        self.fixed.next = self.fixed.val();
        if self.fixed.val() == 5 {
            self.fixed.next = self.fixed.val() + 1;
        }
        self.counts.next = 0.into();
        self.loop_read.next = 0.into();
        for i in 0..4 {
            if self.a.val().get_bit(i) {
                self.loop_read.next = self.loop_read.val() + self.counts.val();
            }
            self.counts.next = self.counts.val() + self.loop_read.val() + 1;
        }
    }
}

#[test]
fn a_net_per_value() {
    mprdma_hw::with_big_stack(|| {
        let verilog = compare(
            Chain::default(),
            "chain",
            400,
            |_, _| {},
            |u, random| {
                u.a.next = bits_of(random);
                u.b.next = bits_of(random);
                u.f.next = bits_of::<1>(random).any();
            },
        );
        let findings = lint_verilog(&verilog, "chain").unwrap();
        assert!(findings.is_empty(), "{findings:?}\n{verilog}");
        for line in [
            "assign x_v2 = first_sum ^ x_v1;",
            "assign x = second_sum + x_v2;",
            ".a(x_v1),",
            ".a(x_v2),",
        ] {
            assert!(verilog.contains(line), "{line}:\n{verilog}");
        }
        // One net per block.
        assert!(!verilog.contains("x_v3"), "{verilog}");
    });
}
