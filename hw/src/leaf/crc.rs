//! CRC-32 of a beat stream (Ethernet polynomial, IEEE 802.3 clause 3.2.9; the ICRC of IBA 7.8.1 uses the same).
//!
//! A CRC is linear over GF(2), so "feed these 32 bits and then n zero bytes" is one 32 x 32 bit matrix. The last beat is
//! filled up with zeros and the zeros are taken back with inverse matrices.

use super::beat::Beat;
use super::bytes::ByteSelect;
use super::expr::{assign_slice, binary, literal, parity, slice};
use crate::prelude::*;
use rust_hdl_core::ast::VerilogOp;

/// The polynomial, reflected: bit 31 is the coefficient of x^0.
const POLYNOMIAL: u32 = 0xEDB8_8320;

/// The CRC of a message that ends in its own CRC (little endian), after the final complement.
pub const CRC32_RESIDUE: u32 = 0x2144_DF1C;

/// Feeds bytes into a CRC state; start with `!0` and complement the end.
pub fn crc32_update(state: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(state, |state, &byte| {
        (0..8).fold(state ^ u32::from(byte), |s, _| {
            if s & 1 == 1 {
                s >> 1 ^ POLYNOMIAL
            } else {
                s >> 1
            }
        })
    })
}

/// The CRC-32 of a message.
pub fn crc32(bytes: &[u8]) -> u32 {
    !crc32_update(!0, bytes)
}

/// The start state for an ICRC over a frame whose first `skipped` bytes are fed as zeros: after them, the state is what
/// eight 0xff bytes leave (RoCEv2 annex A17.3.3 puts them in front of the IP header).
pub fn icrc_seed(skipped: usize) -> u32 {
    Matrix::zero_bytes(skipped)
        .inverse()
        .apply(crc32_update(!0, &[0xff; 8]))
}

/// A linear function of 32 bits.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    /// Bit i of the result is the parity of the argument masked with `rows[i]`.
    rows: [u32; 32],
}

impl Matrix {
    fn of(function: impl Fn(u32) -> u32) -> Self {
        let mut rows = [0; 32];
        for input in 0..32 {
            let column = function(1 << input);
            for (output, row) in rows.iter_mut().enumerate() {
                *row |= (column >> output & 1) << input;
            }
        }
        Self { rows }
    }

    /// Feeds `n` zero bytes.
    pub fn zero_bytes(n: usize) -> Self {
        Self::of(|state| crc32_update(state, &vec![0; n]))
    }

    /// Feeds four bytes (the argument, byte 0 in its low bits) into state 0, then `n` zero bytes.
    pub fn word_then_zero_bytes(n: usize) -> Self {
        Self::of(|word| crc32_update(crc32_update(0, &word.to_le_bytes()), &vec![0; n]))
    }

    /// The inverse function.
    ///
    /// # Panics
    /// When there is none. Feeding zeros can always be undone.
    pub fn inverse(&self) -> Self {
        let mut left = self.rows;
        let mut right: [u32; 32] = std::array::from_fn(|i| 1 << i);
        for column in 0..32 {
            let pivot = (column..32)
                .find(|&row| left[row] >> column & 1 == 1)
                .expect("a regular matrix");
            left.swap(column, pivot);
            right.swap(column, pivot);
            for row in 0..32 {
                if row != column && left[row] >> column & 1 == 1 {
                    left[row] ^= left[column];
                    right[row] ^= right[column];
                }
            }
        }
        Self { rows: right }
    }

    /// The value of the function.
    pub fn apply(&self, argument: u32) -> u32 {
        self.rows.iter().enumerate().fold(0, |result, (bit, row)| {
            result | ((argument & row).count_ones() & 1) << bit
        })
    }
}

/// Applies a matrix to each 32-bit word of a vector. Combinational XOR trees.
#[derive(LogicBlock)]
pub struct XorWords<const N: usize> {
    pub i: Signal<In, Bits<N>>,
    pub o: Signal<Out, Bits<N>>,
    _matrices: Vec<Matrix>,
    block_name: NameOf<XorWords<N>>,
}

impl<const N: usize> XorWords<N> {
    /// One matrix per word, word 0 in the low bits.
    pub fn new(matrices: Vec<Matrix>) -> Self {
        assert!(
            32 * matrices.len() == N,
            "{} matrices for {N} bits",
            matrices.len()
        );
        Self {
            i: Signal::default(),
            o: Signal::default(),
            _matrices: matrices,
            block_name: NameOf::default(),
        }
    }
}

impl<const N: usize> Logic for XorWords<N> {
    fn update(&mut self) {
        let i = self.i.val();
        let mut o = [false; N];
        for (word, matrix) in self._matrices.iter().enumerate() {
            let argument =
                (0..32).fold(0, |a, bit| a | u32::from(i.get_bit(32 * word + bit)) << bit);
            let result = matrix.apply(argument);
            for bit in 0..32 {
                o[32 * word + bit] = result >> bit & 1 == 1;
            }
        }
        self.o.next = super::beat::from_bools(o);
    }

    fn connect(&mut self) {
        self.o.connect();
    }

    fn hdl(&self) -> Verilog {
        let mut statements = vec![];
        for (word, matrix) in self._matrices.iter().enumerate() {
            for (bit, &row) in matrix.rows.iter().enumerate() {
                let masked = binary(
                    slice("i", 32 * word, 32),
                    VerilogOp::BitAnd,
                    literal(Bits::<32>::from(row as u64)),
                );
                statements.push(assign_slice("o", 32 * word + bit, 1, parity(masked)));
            }
        }
        Verilog::Combinatorial(statements)
    }
}

/// What travels with a beat through the CRC pipeline.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct CrcTag {
    seed: Bits<32>,
    /// Zero bytes that fill up the beat.
    padding: Bits<6>,
}

block! {
    /// CRC-32 of each packet of a packed beat stream.
    ///
    /// - In: `beat`, `valid`, and `seed`, the start state, with the first beat of a packet (all ones for a plain
    ///   CRC-32, [`icrc_seed`] for an ICRC). It cannot be stalled.
    /// - Out: `crc` (complemented, as it is sent, byte 0 in bits 7:0), `crc_valid` for one cycle per packet.
    /// - Latency: 8 cycles from the last beat of a packet to its `crc`. Initiation interval: 1, also across packets.
    pub struct Crc32Stream {
        in {
            clock: Clock,
            reset: Bit,
            beat: Beat,
            valid: bool,
            seed: Bits<32>,
        }
        out {
            crc: Bits<32>,
            crc_valid: bool,
        }
        local {
            pad_count: Bits<7>,
            state: Bits<32>,
            sum: Bits<32>,
            half_6: Bits<32>,
            half_7: Bits<32>,
            half_8: Bits<32>,
        }
        reg {
            valid_1: bool,
            valid_2: bool,
            valid_3: bool,
            valid_4: bool,
            last_1: bool,
            last_2: bool,
            last_3: bool,
            last_4: bool,
            last_5: bool,
            last_6: bool,
            last_7: bool,
            last_8: bool,
            // A packet is under way: the next beat continues it.
            open: bool,
        }
        pipe {
            data_1: Bits<512>,
            parts_2: Bits<512>,
            parts_3: Bits<128>,
            part_4: Bits<32>,
            tag_1: CrcTag,
            tag_2: CrcTag,
            tag_3: CrcTag,
            tag_4: CrcTag,
            padding_5: Bits<6>,
            padding_6: Bits<6>,
            padding_7: Bits<6>,
            sum_5: Bits<32>,
            sum_6: Bits<32>,
            sum_7: Bits<32>,
            sum_8: Bits<32>,
        }
        konst {
            full: Bits<7> = bits(64),
        }
        sub {
            mask: ByteSelect,
            words: XorWords<512> = XorWords::new((0..16).map(|w| Matrix::word_then_zero_bytes(60 - 4 * w)).collect()),
            beat_step: XorWords<32> = XorWords::new(vec![Matrix::zero_bytes(64)]),
            undo_1: XorWords<32> = undo(1),
            undo_2: XorWords<32> = undo(2),
            undo_4: XorWords<32> = undo(4),
            undo_8: XorWords<32> = undo(8),
            undo_16: XorWords<32> = undo(16),
            undo_32: XorWords<32> = undo(32),
        }
    }
}

/// Takes back `n` zero bytes.
fn undo(n: usize) -> XorWords<32> {
    XorWords::new(vec![Matrix::zero_bytes(n).inverse()])
}

impl Logic for Crc32Stream {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(
            self, clock, valid_1, valid_2, valid_3, valid_4, last_1, last_2, last_3, last_4,
            last_5, last_6, last_7, last_8, open, data_1, parts_2, parts_3, part_4, tag_1, tag_2,
            tag_3, tag_4, padding_5, padding_6, padding_7, sum_5, sum_6, sum_7, sum_8
        );
        comment!("1: zero the bytes behind the end");
        self.mask.n.next = self.beat.val().nbytes;
        self.mask.low.next = self.beat.val().data;
        self.mask.high.next = 0.into();
        self.data_1.d.next = self.mask.o.val();
        self.pad_count.next = self.full.val() - self.beat.val().nbytes;
        self.tag_1.d.next.seed = self.seed.val();
        self.tag_1.d.next.padding = bit_cast::<6, 7>(self.pad_count.val());
        self.valid_1.d.next = self.valid.val();
        self.last_1.d.next = self.valid.val() & self.beat.val().last;
        comment!("2: each word's contribution to the state after the beat");
        self.words.i.next = self.data_1.q.val();
        self.parts_2.d.next = self.words.o.val();
        self.tag_2.d.next = self.tag_1.q.val();
        self.valid_2.d.next = self.valid_1.q.val();
        self.last_2.d.next = self.last_1.q.val();
        comment!("3: 16 words to 4");
        self.parts_3.d.next = self.parts_2.q.val().get_bits::<128>(0)
            ^ self.parts_2.q.val().get_bits::<128>(128)
            ^ self.parts_2.q.val().get_bits::<128>(256)
            ^ self.parts_2.q.val().get_bits::<128>(384);
        self.tag_3.d.next = self.tag_2.q.val();
        self.valid_3.d.next = self.valid_2.q.val();
        self.last_3.d.next = self.last_2.q.val();
        comment!("4: 4 words to 1");
        self.part_4.d.next = self.parts_3.q.val().get_bits::<32>(0)
            ^ self.parts_3.q.val().get_bits::<32>(32)
            ^ self.parts_3.q.val().get_bits::<32>(64)
            ^ self.parts_3.q.val().get_bits::<32>(96);
        self.tag_4.d.next = self.tag_3.q.val();
        self.valid_4.d.next = self.valid_3.q.val();
        self.last_4.d.next = self.last_3.q.val();
        comment!("5: the state, stepped by 64 bytes");
        self.state.next = self.sum_5.q.val();
        if !self.open.q.val() {
            self.state.next = self.tag_4.q.val().seed;
        }
        self.beat_step.i.next = self.state.val();
        self.sum.next = self.beat_step.o.val() ^ self.part_4.q.val();
        if self.valid_4.q.val() {
            self.sum_5.d.next = self.sum.val();
            self.open.d.next = !self.last_4.q.val();
        }
        self.padding_5.d.next = self.tag_4.q.val().padding;
        self.last_5.d.next = self.last_4.q.val();
        comment!("6 to 8: take the padding back, two bits of its length per stage");
        self.undo_1.i.next = self.sum_5.q.val();
        self.half_6.next = self.sum_5.q.val();
        if self.padding_5.q.val().get_bit(0) {
            self.half_6.next = self.undo_1.o.val();
        }
        self.undo_2.i.next = self.half_6.val();
        self.sum_6.d.next = self.half_6.val();
        if self.padding_5.q.val().get_bit(1) {
            self.sum_6.d.next = self.undo_2.o.val();
        }
        self.padding_6.d.next = self.padding_5.q.val();
        self.last_6.d.next = self.last_5.q.val();
        self.undo_4.i.next = self.sum_6.q.val();
        self.half_7.next = self.sum_6.q.val();
        if self.padding_6.q.val().get_bit(2) {
            self.half_7.next = self.undo_4.o.val();
        }
        self.undo_8.i.next = self.half_7.val();
        self.sum_7.d.next = self.half_7.val();
        if self.padding_6.q.val().get_bit(3) {
            self.sum_7.d.next = self.undo_8.o.val();
        }
        self.padding_7.d.next = self.padding_6.q.val();
        self.last_7.d.next = self.last_6.q.val();
        self.undo_16.i.next = self.sum_7.q.val();
        self.half_8.next = self.sum_7.q.val();
        if self.padding_7.q.val().get_bit(4) {
            self.half_8.next = self.undo_16.o.val();
        }
        self.undo_32.i.next = self.half_8.val();
        self.sum_8.d.next = self.half_8.val();
        if self.padding_7.q.val().get_bit(5) {
            self.sum_8.d.next = self.undo_32.o.val();
        }
        self.last_8.d.next = self.last_7.q.val();
        self.crc.next = !self.sum_8.q.val();
        self.crc_valid.next = self.last_8.q.val();
    }
}
