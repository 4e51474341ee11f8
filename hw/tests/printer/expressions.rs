//! Expressions. One output per construct.

use crate::{bits_of, compare};
use mprdma_hw::prelude::*;

block! {
    /// Arithmetic, comparison and precedence on equal widths.
    pub struct Arithmetic {
        in { a: Bits<24>, b: Bits<24>, c: Bits<24>, f: Bit, g: Bit, h: Bit, x: Bits<8>, n: Bits<4>, m: Bits<16>, k: Bits<16> }
        out {
            and_then_eq: Bit, eq_and: Bit, and_eq_false: Bit, ne_or: Bit, mixed_bits: Bits<24>, mixed_bools: Bit,
            sub_lt_literal: Bit, sub_lt_cast: Bit, sub_lt_konst: Bit, add_eq_zero: Bit, increment_eq: Bit,
            shl_eq_zero: Bit, not_eq_zero: Bit, decrement_shr: Bits<24>, sub_shr: Bits<24>,
            widen_add: Bits<32>, widen_sub: Bits<32>, widen_shl: Bits<32>, widen_increment: Bits<32>, widen_not: Bits<32>,
            widen_product: Bits<32>, chain_cast: Bits<32>, narrow: Bits<8>, narrow_sum: Bits<8>,
            add: Bits<24>, sub: Bits<24>, literal_left: Bits<24>, add_bool: Bits<24>, nested_sub: Bits<24>,
            bit_and: Bits<24>, bit_or: Bits<24>, bit_xor: Bits<24>, bit_not: Bits<24>, not_sum: Bits<24>, not_bool: Bit, double_not: Bit,
            lt: Bit, le: Bit, gt: Bit, ge: Bit, eq: Bit, ne: Bit, literal_lt: Bit, eq_literal: Bit,
            logical_and: Bit, logical_or: Bit, logical_mixed: Bit, compare_bools: Bit, compare_compares: Bit,
            shl: Bits<24>, shr: Bits<24>, shl_signal: Bits<24>, shr_signal: Bits<24>, shift_far: Bits<24>, shift_all: Bits<24>,
            shift_sum: Bits<24>, shift_by_sum: Bits<24>, product: Bits<32>, product_sum: Bits<32>, product_eq: Bit,
            serial_compare: Bit, xor_sum_eq: Bit, bool_literal: Bit, paren: Bits<24>, hex_literal: Bits<24>,
            sum_of_three: Bits<24>, compare_sum: Bit, any_sum: Bit, konst_sum: Bits<24>, typed_bits: Bit
        }
        konst { half: Bits<24> = bits(0x80_0000), five: Bits<24> = bits(5), zero: Bits<24> = bits(0) }
    }
}

impl Logic for Arithmetic {
    #[hdl_gen]
    fn update(&mut self) {
        self.and_then_eq.next = self.a.val() & self.b.val() == self.c.val();
        self.eq_and.next = self.a.val() == self.b.val() & self.c.val();
        self.and_eq_false.next = self.f.val() & self.g.val() == false;
        self.ne_or.next = self.f.val() != self.g.val() | self.h.val();
        self.mixed_bits.next =
            self.a.val() ^ self.b.val() & self.c.val() | self.a.val() & self.c.val();
        self.mixed_bools.next =
            self.f.val() ^ self.g.val() & !self.h.val() | self.f.val() & self.h.val();
        self.sub_lt_literal.next = (self.a.val() - self.b.val()) < 5;
        self.sub_lt_cast.next = (self.a.val() - self.b.val()) < bits::<24>(5);
        self.sub_lt_konst.next = (self.a.val() - self.b.val()) < self.five.val();
        self.add_eq_zero.next = (self.a.val() + self.b.val()) == 0;
        self.increment_eq.next = (self.a.val() + 1) == self.b.val();
        self.shl_eq_zero.next = (self.a.val() << 4) == 0;
        self.not_eq_zero.next = !self.a.val() == 0;
        self.decrement_shr.next = (self.a.val() - 1) >> 3;
        self.sub_shr.next = (self.a.val() - self.b.val()) >> 3;
        self.widen_add.next = bit_cast::<32, 24>(self.a.val() + self.b.val());
        self.widen_sub.next = bit_cast::<32, 24>(self.a.val() - self.b.val());
        self.widen_shl.next = bit_cast::<32, 24>(self.a.val() << 4);
        self.widen_increment.next = bit_cast::<32, 24>(self.a.val() + 1);
        self.widen_not.next = bit_cast::<32, 24>(!self.a.val());
        self.widen_product.next =
            bit_cast::<32, 24>(self.a.val()) + bit_cast::<32, 24>(self.b.val());
        self.chain_cast.next = bit_cast::<32, 8>(bit_cast::<8, 24>(self.a.val()) - self.x.val());
        self.narrow.next = bit_cast::<8, 24>(self.a.val());
        self.narrow_sum.next = bit_cast::<8, 24>(self.a.val() + self.b.val());
        self.add.next = self.a.val() + self.b.val();
        self.sub.next = self.a.val() - self.b.val();
        self.literal_left.next = 3 + self.a.val();
        self.add_bool.next = self.a.val() + self.f.val();
        self.nested_sub.next = self.a.val() - (self.b.val() - self.c.val());
        self.bit_and.next = self.a.val() & self.b.val();
        self.bit_or.next = self.a.val() | self.b.val();
        self.bit_xor.next = self.a.val() ^ self.b.val();
        self.bit_not.next = !self.a.val();
        self.not_sum.next = !(self.a.val() + self.b.val());
        self.not_bool.next = !self.f.val();
        self.double_not.next = !(!self.f.val() & self.g.val());
        self.lt.next = self.a.val() < self.b.val();
        self.le.next = self.a.val() <= self.b.val();
        self.gt.next = self.a.val() > self.b.val();
        self.ge.next = self.a.val() >= self.b.val();
        self.eq.next = self.a.val() == self.b.val();
        self.ne.next = self.a.val() != self.b.val();
        self.literal_lt.next = 5 < self.a.val();
        self.eq_literal.next = self.x.val() == 0xff;
        self.logical_and.next = self.f.val() && (self.a.val() < self.b.val());
        self.logical_or.next = self.f.val() || self.g.val() && self.h.val();
        self.logical_mixed.next = (self.f.val() || self.g.val()) && !self.h.val();
        self.compare_bools.next = self.f.val() == self.g.val();
        self.compare_compares.next = (self.a.val() < self.b.val()) == (self.b.val() < self.c.val());
        self.shl.next = self.a.val() << 3;
        self.shr.next = self.a.val() >> 3;
        self.shl_signal.next = self.a.val() << self.n.val();
        self.shr_signal.next = self.a.val() >> self.n.val();
        self.shift_far.next = self.a.val() << self.x.val();
        self.shift_all.next = self.a.val() >> 24;
        self.shift_sum.next = (self.a.val() + self.b.val()) >> self.n.val();
        self.shift_by_sum.next = self.a.val() >> (self.n.val() + self.n.val());
        self.product.next = self.m.val() * self.k.val();
        self.product_sum.next = self.m.val() * self.k.val() + self.m.val() * self.m.val();
        self.product_eq.next = self.m.val() * self.k.val() == bit_cast::<32, 16>(self.m.val());
        self.serial_compare.next = (self.a.val() - self.b.val()) < self.half.val();
        self.xor_sum_eq.next = (self.a.val() ^ self.b.val()) + 1 == self.c.val();
        self.bool_literal.next = self.f.val() ^ true;
        self.paren.next = (self.a.val()) + (self.b.val() - (self.c.val()));
        self.hex_literal.next = self.a.val() ^ 0xff_00ff_u64;
        self.sum_of_three.next = self.a.val() + self.b.val() + self.c.val();
        self.compare_sum.next = self.a.val() + self.b.val() < self.b.val() + self.c.val();
        self.any_sum.next = (self.a.val() + self.b.val()).any();
        self.konst_sum.next = self.five.val() + self.half.val() - self.zero.val();
        self.typed_bits.next = self.x.val() == 7_u8.to_bits();
    }
}

#[test]
fn arithmetic() {
    mprdma_hw::with_big_stack(|| {
        compare(
            Arithmetic::default(),
            "arithmetic",
            400,
            |_, _| {},
            |u, random| {
                u.a.next = bits_of(random);
                u.b.next = bits_of(random);
                u.c.next = match u.a.next.get_bits::<2>(1).index() {
                    0 => u.a.next & u.b.next,
                    1 => (u.a.next ^ u.b.next) + 1,
                    _ => bits_of(random),
                };
                if u.c.next.get_bit(3) {
                    u.b.next = u.a.next - bits_of::<3>(random).index() as u64;
                }
                u.f.next = bits_of::<1>(random).any();
                u.g.next = bits_of::<1>(random).any();
                u.h.next = bits_of::<1>(random).any();
                u.x.next = bits_of(random);
                u.n.next = bits_of(random);
                u.m.next = bits_of(random);
                u.k.next = bits_of(random);
            },
        )
    });
}

block! {
    /// Slices, bits, reductions, casts, wide and signed values.
    pub struct Selections {
        in { a: Bits<32>, b: Bits<32>, w: Bits<512>, v: Bits<100>, i: Bits<5>, j: Bits<9>, s: Signed<16>, t: Signed<16>, f: Bit, one: Bits<1>, e: Bits<2> }
        out {
            bit_fixed: Bit, bit_variable: Bit, bit_wide: Bit, bit_of_xor: Bit, bit_of_sum: Bit, bit_of_cast: Bit, bit_odd_width: Bit,
            slice_fixed: Bits<8>, slice_one: Bits<1>, slice_whole: Bits<32>, slice_variable: Bits<8>, slice_wide_variable: Bits<64>,
            slice_past_top: Bits<8>, slice_variable_past_top: Bits<16>, slice_of_xor: Bits<8>, slice_of_sum: Bits<8>,
            slice_of_slice: Bits<4>, slice_of_cast: Bits<4>, slice_of_shift: Bits<8>, slice_of_konst: Bits<8>, slice_eq: Bit, slice_sum: Bits<8>,
            replace_fixed: Bits<32>, replace_variable: Bits<32>, replace_of_sum: Bits<32>, replace_top: Bits<32>, replace_twice: Bits<32>,
            any: Bit, all: Bit, parity: Bit, any_slice: Bit, all_not: Bit, parity_and: Bit, any_and_bit: Bit,
            cast_up: Bits<100>, cast_down: Bits<8>, cast_sum_down: Bits<8>, cast_literal: Bits<12>, cast_slice: Bits<32>,
            wide_add: Bits<512>, wide_xor: Bits<512>, wide_shift: Bits<512>, wide_not: Bits<512>, wide_lt: Bit, odd_sub: Bits<100>,
            wide_konst: Bits<512>, big_literal: Bits<100>,
            signed_add: Signed<16>, signed_sub: Signed<16>, signed_neg: Signed<16>, signed_mul: Signed<32>, signed_lt: Bit, signed_ge: Bit,
            signed_eq: Bit, signed_of_bits: Bit, unsigned_of_signed: Bits<16>, signed_widen: Signed<32>, signed_narrow: Signed<8>,
            signed_sum_lt: Bit, signed_konst: Bit, signed_neg_lt: Bit, signed_mul_sum: Signed<32>, signed_bit: Bit, signed_slice: Bit,
            wrap_through_cast: Bit, bool_of_bit: Bit, concat: Bits<32>, mask_ones: Bits<32>, one_bit_sum: Bits<1>, one_bit_lt: Bit
        }
        konst { k: Bits<32> = bits(0xdead_beef), low_mask: Bits<32> = bits(0xffff), big: Bits<512> = bits::<512>(1) << 300, minus: Signed<16> = signed(-5) }
    }
}

impl Logic for Selections {
    #[hdl_gen]
    fn update(&mut self) {
        self.bit_fixed.next = self.a.val().get_bit(7);
        self.bit_variable.next = self.a.val().get_bit(self.i.val().index());
        self.bit_wide.next = self.w.val().get_bit(self.j.val().index());
        self.bit_of_xor.next = (self.a.val() ^ self.b.val()).get_bit(4);
        self.bit_of_sum.next = (self.a.val() + self.b.val()).get_bit(31);
        self.bit_of_cast.next = bit_cast::<64, 32>(self.a.val()).get_bit(40);
        self.bit_odd_width.next = self.v.val().get_bit(self.i.val().index());
        self.slice_fixed.next = self.a.val().get_bits::<8>(12);
        self.slice_one.next = self.a.val().get_bits::<1>(31);
        self.slice_whole.next = self.a.val().get_bits::<32>(0);
        self.slice_variable.next = self.a.val().get_bits::<8>(self.i.val().index());
        self.slice_wide_variable.next = self.w.val().get_bits::<64>(self.j.val().index());
        self.slice_past_top.next = self.a.val().get_bits::<8>(28);
        self.slice_variable_past_top.next = self.a.val().get_bits::<16>(self.i.val().index());
        self.slice_of_xor.next = (self.a.val() ^ self.b.val()).get_bits::<8>(4);
        self.slice_of_sum.next = (self.a.val() + self.b.val()).get_bits::<8>(24);
        self.slice_of_slice.next = self.a.val().get_bits::<16>(4).get_bits::<4>(2);
        self.slice_of_cast.next = bit_cast::<64, 32>(self.a.val()).get_bits::<4>(30);
        self.slice_of_shift.next = (self.a.val() << 4).get_bits::<8>(28);
        self.slice_of_konst.next = self.k.val().get_bits::<8>(8);
        self.slice_eq.next = self.a.val().get_bits::<4>(0) == self.b.val().get_bits::<4>(28);
        self.slice_sum.next = self.a.val().get_bits::<8>(0) + self.b.val().get_bits::<8>(24);
        self.replace_fixed.next = self.a.val().replace_bit(5, self.f.val());
        self.replace_variable.next = self.a.val().replace_bit(self.i.val().index(), self.f.val());
        self.replace_of_sum.next = (self.a.val() + self.b.val()).replace_bit(0, self.f.val());
        self.replace_top.next = self.a.val().replace_bit(31, true);
        self.replace_twice.next = self
            .a
            .val()
            .replace_bit(3, self.f.val())
            .replace_bit(self.i.val().index(), false);
        self.any.next = self.a.val().any();
        self.all.next = self.a.val().all();
        self.parity.next = self.a.val().xor();
        self.any_slice.next = self.a.val().get_bits::<8>(8).any();
        self.all_not.next = (!self.a.val()).all();
        self.parity_and.next = (self.a.val() & self.k.val()).xor();
        self.any_and_bit.next = self.a.val().any() & self.f.val();
        self.cast_up.next = bit_cast::<100, 32>(self.a.val());
        self.cast_down.next = bit_cast::<8, 100>(self.v.val());
        self.cast_sum_down.next = bit_cast::<8, 32>(self.a.val() + self.b.val());
        self.cast_literal.next = bits::<12>(0x123);
        self.cast_slice.next = bit_cast::<32, 8>(self.a.val().get_bits::<8>(9));
        self.wide_add.next = self.w.val() + self.big.val();
        self.wide_xor.next = self.w.val() ^ self.big.val();
        self.wide_shift.next = self.w.val() >> self.j.val();
        self.wide_not.next = !self.w.val();
        self.wide_lt.next = self.w.val() < self.big.val();
        self.odd_sub.next = self.v.val() - 1;
        self.wide_konst.next = self.big.val();
        self.big_literal.next = self.v.val() ^ 0xffff_ffff_ffff_u64;
        self.signed_add.next = self.s.val() + self.t.val();
        self.signed_sub.next = self.s.val() - self.t.val();
        self.signed_neg.next = -self.s.val();
        self.signed_mul.next = self.s.val() * self.t.val();
        self.signed_lt.next = self.s.val() < self.t.val();
        self.signed_ge.next = self.s.val() >= self.t.val();
        self.signed_eq.next = self.s.val() == self.t.val();
        self.signed_of_bits.next = signed_cast(self.a.val()) < signed_cast(self.b.val());
        self.unsigned_of_signed.next = unsigned_cast(self.s.val() - self.t.val());
        self.signed_widen.next = signed_bit_cast::<32, 16>(self.s.val());
        self.signed_narrow.next = signed_bit_cast::<8, 16>(self.s.val());
        self.signed_sum_lt.next = self.s.val() + self.t.val() < self.t.val();
        self.signed_konst.next = self.s.val() < self.minus.val();
        self.signed_neg_lt.next = -self.s.val() < self.t.val();
        self.signed_mul_sum.next = self.s.val() * self.t.val() + self.t.val() * self.t.val();
        self.signed_bit.next = self.s.val().get_bit(15);
        self.signed_slice.next = self.s.val().get_bits::<8>(4) < self.t.val().get_bits::<8>(4);
        self.wrap_through_cast.next = unsigned_cast(signed_cast(self.a.val() - self.b.val())) < 5;
        self.bool_of_bit.next = self.one.val().into();
        self.concat.next = (bit_cast::<32, 16>(self.a.val().get_bits::<16>(0)) << 16)
            | bit_cast::<32, 16>(self.b.val().get_bits::<16>(16));
        self.mask_ones.next = self.a.val() & !self.low_mask.val();
        self.one_bit_sum.next = self.one.val() + 1;
        self.one_bit_lt.next = self.e.val() > bit_cast::<2, 1>(self.one.val());
    }
}

#[test]
fn selections() {
    mprdma_hw::with_big_stack(|| {
        compare(
            Selections::default(),
            "selections",
            300,
            |_, _| {},
            |u, random| {
                u.a.next = bits_of(random);
                u.b.next = bits_of(random);
                if u.a.next.get_bit(2) {
                    u.b.next = u.a.next - bits_of::<3>(random).index() as u64;
                }
                u.w.next = bits_of(random);
                u.v.next = bits_of(random);
                u.i.next = bits_of(random);
                u.j.next = bits_of(random);
                // The simulator's negation and widening do not end for the least value.
                let value =
                    |bits: Bits<16>| signed_cast(if bits == 0x8000 { bits + 1 } else { bits });
                u.s.next = value(bits_of(random));
                u.t.next = value(bits_of(random));
                u.f.next = bits_of::<1>(random).any();
                u.one.next = bits_of(random);
                u.e.next = bits_of(random);
            },
        )
    });
}
