//! From a one-hot word to the index of its bit.

use crate::prelude::*;

block! {
    /// `index` is the number of the one set bit of `onehot`; 0 when none is set. Combinational: each bit of the index is
    /// the OR of the half of the word that has it.
    pub struct Encode128 {
        in {
            onehot: Bits<128>,
        }
        out {
            index: Bits<7>,
        }
        konst {
            with_0: Bits<128> = indices_with(0),
            with_1: Bits<128> = indices_with(1),
            with_2: Bits<128> = indices_with(2),
            with_3: Bits<128> = indices_with(3),
            with_4: Bits<128> = indices_with(4),
            with_5: Bits<128> = indices_with(5),
            with_6: Bits<128> = indices_with(6),
        }
        local {
            bits: Bits<7>,
        }
    }
}

/// The bits whose index has bit `bit`.
fn indices_with(bit: u32) -> Bits<128> {
    let mut mask = Bits::<128>::default();
    for i in 0..128usize {
        mask = mask.replace_bit(i, i >> bit & 1 == 1);
    }
    mask
}

impl Logic for Encode128 {
    #[hdl_gen]
    fn update(&mut self) {
        self.bits.next = (bit_cast::<7, 1>((self.onehot.val() & self.with_0.val()).any().into()))
            | (bit_cast::<7, 1>((self.onehot.val() & self.with_1.val()).any().into()) << 1)
            | (bit_cast::<7, 1>((self.onehot.val() & self.with_2.val()).any().into()) << 2)
            | (bit_cast::<7, 1>((self.onehot.val() & self.with_3.val()).any().into()) << 3)
            | (bit_cast::<7, 1>((self.onehot.val() & self.with_4.val()).any().into()) << 4)
            | (bit_cast::<7, 1>((self.onehot.val() & self.with_5.val()).any().into()) << 5)
            | (bit_cast::<7, 1>((self.onehot.val() & self.with_6.val()).any().into()) << 6);
        self.index.next = self.bits.val();
    }
}
