//! Statements, enums, structs, arrays and locals.

use crate::{bits_of, compare};
use mprdma_hw::prelude::*;

#[derive(LogicState, Copy, Clone, Debug, PartialEq)]
pub enum Colour {
    Red,
    Green,
    Blue,
}

#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct Inner {
    pub low: Bits<4>,
    pub level: Bits<8>,
}

#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct Outer {
    pub valid: Bit,
    pub colour: Colour,
    pub inner: Inner,
    pub data: Bits<40>,
}

block! {
    /// Conditions and matches.
    pub struct Branches {
        in { a: Bits<8>, b: Bits<8>, f: Bit, g: Bit, sel: Bits<2>, wide_sel: Bits<6> }
        out {
            if_else: Bits<8>, else_if: Bits<8>, nested_if: Bits<8>, if_after_default: Bits<8>, if_empty_then: Bits<8>,
            if_on_sum: Bits<8>, condition_precedence: Bit, last_wins: Bits<8>,
            match_index: Bits<8>, match_full: Bits<8>, match_sparse: Bits<8>, match_hex: Bits<8>, match_bool: Bits<8>,
            match_nested: Bits<8>, match_block_if: Bits<8>, match_default_first_value: Bits<8>,
            accumulate: Bits<8>, read_back: Bits<8>, read_back_source: Bits<8>, snapshot: Bits<8>, overwritten: Bits<8>,
            local_chain: Bits<8>, condition_local: Bits<8>, swapped_a: Bits<8>, swapped_b: Bits<8>,
            loop_sum: Bits<8>, loop_priority: Bits<3>, loop_bits: Bits<8>, loop_if_index: Bits<8>, loop_match_index: Bits<8>,
            loop_slices: Bits<4>, loop_arithmetic: Bits<8>, nested_loops: Bits<8>, loop_const_bound: Bits<8>
        }
        local { x: Bits<8>, y: Bits<8>, temp: Bits<8>, pick: Bit }
    }
}

const LANES: usize = 8;

impl Logic for Branches {
    #[hdl_gen]
    fn update(&mut self) {
        if self.f.val() {
            self.if_else.next = self.a.val();
        } else {
            self.if_else.next = self.b.val();
        }
        if self.a.val() < 10 {
            self.else_if.next = 1.into();
        } else if self.a.val() < 100 {
            self.else_if.next = 2.into();
        } else if self.f.val() & (self.b.val() == 3) {
            self.else_if.next = 3.into();
        } else {
            self.else_if.next = self.b.val();
        }
        self.nested_if.next = 0.into();
        if self.f.val() {
            if self.g.val() {
                self.nested_if.next = self.a.val();
            } else {
                self.nested_if.next = self.b.val() + 1;
            }
        }
        self.if_after_default.next = self.a.val();
        if self.a.val() > self.b.val() {
            self.if_after_default.next = self.b.val();
        }
        self.if_empty_then.next = self.b.val();
        if self.f.val() {
        } else {
            self.if_empty_then.next = self.a.val();
        }
        self.if_on_sum.next = 0.into();
        if (self.a.val() + self.b.val()).any() {
            self.if_on_sum.next = self.a.val() + self.b.val();
        }
        self.condition_precedence.next = false;
        if self.a.val() & self.b.val() == 0 {
            self.condition_precedence.next = true;
        }
        self.last_wins.next = self.a.val();
        self.last_wins.next = self.b.val();
        match self.sel.val().index() {
            0 => self.match_index.next = 1.into(),
            1 => self.match_index.next = self.a.val(),
            2 => {
                self.match_index.next = self.b.val();
            }
            _ => self.match_index.next = 9.into(),
        }
        match self.sel.val().index() {
            0 => self.match_full.next = 10.into(),
            1 => self.match_full.next = 11.into(),
            2 => self.match_full.next = 12.into(),
            3 => self.match_full.next = 13.into(),
            _ => self.match_full.next = 14.into(),
        }
        self.match_sparse.next = 0.into();
        match self.wide_sel.val().index() {
            5 => self.match_sparse.next = 1.into(),
            17 => self.match_sparse.next = 2.into(),
            63 => self.match_sparse.next = 3.into(),
            _ => {}
        }
        match self.wide_sel.val().index() {
            0x0f => self.match_hex.next = self.a.val(),
            0b10_0000 => self.match_hex.next = self.b.val(),
            _ => self.match_hex.next = 0.into(),
        }
        match self.f.val() {
            true => self.match_bool.next = self.a.val(),
            false => self.match_bool.next = self.b.val(),
        }
        match self.sel.val().index() {
            0 => match self.f.val() {
                true => self.match_nested.next = 1.into(),
                false => self.match_nested.next = 2.into(),
            },
            _ => self.match_nested.next = 3.into(),
        }
        self.match_block_if.next = 0.into();
        match self.sel.val().index() {
            1 => {
                if self.f.val() {
                    self.match_block_if.next = self.a.val();
                }
            }
            2 => {
                self.match_block_if.next = 5.into();
                if self.g.val() {
                    self.match_block_if.next = self.b.val();
                }
            }
            _ => {}
        }
        match self.sel.val().index() {
            3 => self.match_default_first_value.next = 3.into(),
            _ => self.match_default_first_value.next = 0.into(),
        }
        // Order inside the kernel.
        self.accumulate.next = self.a.val();
        if self.f.val() {
            self.accumulate.next = self.accumulate.val() + self.b.val();
        }
        self.accumulate.next = self.accumulate.val() ^ 0x55;
        self.read_back_source.next = self.a.val();
        self.read_back.next = self.read_back_source.val() + 1;
        self.overwritten.next = self.a.val();
        self.snapshot.next = self.overwritten.val();
        self.overwritten.next = self.b.val();
        self.x.next = self.a.val() + 1;
        self.y.next = self.x.val() + self.b.val();
        self.local_chain.next = self.y.val() - self.x.val();
        self.pick.next = self.a.val() < self.b.val();
        if self.pick.val() {
            self.condition_local.next = self.a.val();
            self.pick.next = false;
        } else {
            self.condition_local.next = self.b.val();
        }
        if self.pick.val() {
            self.condition_local.next = 0.into();
        }
        self.swapped_a.next = self.a.val();
        self.swapped_b.next = self.b.val();
        if self.f.val() {
            self.temp.next = self.swapped_a.val();
            self.swapped_a.next = self.swapped_b.val();
            self.swapped_b.next = self.temp.val();
        } else {
            self.temp.next = 0.into();
        }
        // Loops.
        self.loop_sum.next = 0.into();
        for i in 0..8 {
            self.loop_sum.next = self.loop_sum.val() + self.a.val().get_bit(i);
        }
        self.loop_priority.next = 0.into();
        for i in 0..8 {
            if self.a.val().get_bit(i) {
                self.loop_priority.next = i.to_bits();
            }
        }
        self.loop_bits.next = self.a.val();
        for i in 0..4 {
            self.loop_bits.next = self
                .loop_bits
                .val()
                .replace_bit(2 * i, self.b.val().get_bit(7 - i));
        }
        self.loop_if_index.next = 0.into();
        for i in 0..4 {
            if i == 2 {
                self.loop_if_index.next = self.a.val() + 2;
            }
        }
        self.loop_match_index.next = 0.into();
        for i in 0..4 {
            match i {
                1 => self.loop_match_index.next = self.loop_match_index.val() + self.a.val(),
                3 => self.loop_match_index.next = self.loop_match_index.val() ^ self.b.val(),
                _ => {}
            }
        }
        self.loop_slices.next = 0.into();
        for i in 0..2 {
            self.loop_slices.next = self.loop_slices.val() ^ self.a.val().get_bits::<4>(4 * i);
        }
        self.loop_arithmetic.next = 0.into();
        for i in 1..4 {
            self.loop_arithmetic.next = self.loop_arithmetic.val() + (self.a.val() >> bits::<4>(2));
            self.loop_arithmetic.next =
                self.loop_arithmetic.val() ^ self.b.val().get_bits::<8>(i + 1);
        }
        self.nested_loops.next = 0.into();
        for i in 0..2 {
            for j in 0..3 {
                if self.a.val().get_bit(3 * i + j) {
                    self.nested_loops.next = self.nested_loops.val() + 1;
                }
            }
        }
        self.loop_const_bound.next = 0.into();
        for i in 0..LANES {
            if self.b.val().get_bit(i) {
                self.loop_const_bound.next = self.loop_const_bound.val() + 3;
            }
        }
    }
}

fn drive_branches(u: &mut Branches, random: &mut rand_chacha::ChaCha8Rng) {
    u.a.next = bits_of(random);
    u.b.next = bits_of(random);
    u.f.next = bits_of::<1>(random).any();
    u.g.next = bits_of::<1>(random).any();
    u.sel.next = bits_of(random);
    u.wide_sel.next = match bits_of::<3>(random).index() {
        0 => 5.into(),
        1 => 17.into(),
        2 => 15.into(),
        3 => 32.into(),
        _ => bits_of(random),
    };
}

#[test]
fn branches() {
    compare(
        Branches::default(),
        "branches",
        400,
        |_, _| {},
        drive_branches,
    );
}

block! {
    /// Enums, structs, arrays.
    pub struct Types[const N: usize][N] {
        in { s: Outer, a: Bits<8>, f: Bit, data: Bits<40>, colour_in: Bits<2>, level: Signed<8> }
        out {
            field: Bits<40>, field_bit: Bit, field_slice: Bits<8>, field_enum: Bits<2>, field_eq: Bit, field_signed: Bit, nested: Bits<4>,
            nested_signed: Bit, whole: Outer, whole_eq: Bit, rebuilt: Outer, patched: Outer, nested_write: Outer, field_sum: Bits<40>,
            enum_out: Colour, match_enum: Bits<8>, match_enum_all: Bits<8>, enum_compare: Bit, array_sum: Bits<8>, array_shift: Bits<8>,
            array_fixed: Bits<8>, array_nested: Bits<8>, generic: Bits<N>, konst_struct: Bits<40>, konst_enum: Bit, array_of_struct: Bits<4>
        }
        port { lanes: [Signal<In, Bits<8>>; 4], outs: [Signal<Out, Bits<8>>; 4] }
        local { c: Colour, part: Outer, wide: Bits<N> }
        konst {
            k: Outer = Outer { valid: true, colour: Colour::Blue, inner: Inner { low: bits(9), level: bits(0xfd) }, data: bits(0x12_3456_789a) },
            green: Colour = Colour::Green
        }
        sub { grid: [[Signal<Local, Bits<8>>; 2]; 2], parts: [Signal<Local, Inner>; 2] }
    }
}

impl<const N: usize> Logic for Types<N> {
    #[hdl_gen]
    fn update(&mut self) {
        self.field.next = self.s.val().data;
        self.field_bit.next = self.s.val().data.get_bit(3);
        self.field_slice.next = self.s.val().data.get_bits::<8>(30);
        match self.colour_in.val().index() {
            0 => self.c.next = Colour::Red,
            1 => self.c.next = Colour::Green,
            _ => self.c.next = Colour::Blue,
        }
        self.enum_out.next = self.c.val();
        match self.s.val().colour {
            Colour::Red => self.field_enum.next = 1.into(),
            Colour::Green => self.field_enum.next = 2.into(),
            Colour::Blue => self.field_enum.next = 3.into(),
        }
        match self.c.val() {
            Colour::Green => self.match_enum.next = self.a.val(),
            _ => self.match_enum.next = 0.into(),
        }
        match self.c.val() {
            Colour::Red => self.match_enum_all.next = self.a.val(),
            Colour::Green => self.match_enum_all.next = self.a.val() + 1,
            Colour::Blue => self.match_enum_all.next = self.a.val() + 2,
        }
        self.enum_compare.next = self.c.val() == Colour::Blue;
        self.konst_enum.next = self.c.val() == self.green.val();
        self.field_eq.next = self.s.val().data == self.data.val();
        self.field_sum.next = self.s.val().data + self.data.val();
        self.nested.next = self.s.val().inner.low;
        self.nested_signed.next = signed_cast(self.s.val().inner.level) < self.level.val();
        self.part.next = self.s.val();
        self.whole.next = self.s.val();
        self.whole_eq.next = self.s.val() == self.k.val();
        self.rebuilt.next.valid = self.f.val();
        self.rebuilt.next.colour = self.c.val();
        self.rebuilt.next.inner = self.s.val().inner;
        self.rebuilt.next.data = self.data.val();
        self.patched.next = self.part.val();
        if self.f.val() {
            self.patched.next.data = self.patched.val().data + 1;
            self.patched.next.valid = !self.patched.val().valid;
        }
        self.nested_write.next = self.s.val();
        self.nested_write.next.inner.low = self.a.val().get_bits::<4>(2);
        self.konst_struct.next = self.k.val().data;
        self.array_sum.next = 0.into();
        for i in 0..4 {
            self.outs[i].next = self.lanes[3 - i].val() + 1;
            self.array_sum.next = self.array_sum.val() + self.lanes[i].val();
        }
        self.array_shift.next = 0.into();
        for i in 0..3 {
            if self.lanes[i].val() == self.lanes[i + 1].val() {
                self.array_shift.next = self.lanes[(i + 1) % 4].val();
            }
        }
        self.array_fixed.next = self.lanes[2].val();
        for i in 0..2 {
            for j in 0..2 {
                self.grid[i][j].next = self.lanes[2 * i + j].val() ^ 0xf0;
            }
        }
        self.array_nested.next = self.grid[0][1].val() + self.grid[1][0].val();
        self.parts[0].next.low = self.a.val().get_bits::<4>(0);
        self.parts[0].next.level = unsigned_cast(self.level.val());
        self.parts[1].next = self.parts[0].val();
        self.field_signed.next = signed_cast(self.parts[1].val().level) < self.level.val();
        self.array_of_struct.next = self.parts[1].val().low;
        self.wide.next = bit_cast::<N, 40>(self.data.val());
        self.generic.next = self.wide.val() + 1;
    }
}

#[test]
fn types() {
    mprdma_hw::with_big_stack(|| {
        compare(
            Types::<48>::default(),
            "types",
            300,
            |_, _| {},
            |u, random| {
                u.s.next = Outer {
                    valid: bits_of::<1>(random).any(),
                    colour: [Colour::Red, Colour::Green, Colour::Blue]
                        [bits_of::<8>(random).index() % 3],
                    inner: Inner {
                        low: bits_of(random),
                        level: bits_of(random),
                    },
                    data: bits_of(random),
                };
                if bits_of::<2>(random).index() == 0 {
                    u.s.next = u.k.val();
                }
                u.a.next = bits_of(random);
                u.f.next = bits_of::<1>(random).any();
                u.data.next = bits_of(random);
                if u.f.next {
                    u.data.next = u.s.next.data;
                }
                u.colour_in.next = bits_of(random);
                u.level.next = signed_cast(bits_of(random));
                for lane in &mut u.lanes {
                    lane.next = bits_of(random);
                }
            },
        )
    });
}
