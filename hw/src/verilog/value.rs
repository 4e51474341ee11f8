//! Constant bit vectors of any width.

use rust_hdl_core::prelude::VerilogLiteral;

/// A constant, lowest bit first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Value(pub(crate) Vec<bool>);

impl Value {
    /// `value` in exactly `bits` bits, or `None` if it does not fit.
    pub(crate) fn from_u128(value: u128, bits: usize) -> Option<Self> {
        let fits = bits >= 128 || value >> bits == 0;
        fits.then(|| Self((0..bits).map(|i| i < 128 && value >> i & 1 == 1).collect()))
    }

    /// A literal of the AST in `bits` bits; negative values become two's complement.
    pub(crate) fn from_literal(literal: &VerilogLiteral, bits: usize) -> Option<Self> {
        let text = format!("{literal:x}");
        let digits = text.split_once("'h")?.1;
        let (negative, digits) = match digits.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, digits),
        };
        let mut value: Vec<bool> = digits
            .chars()
            .rev()
            .flat_map(|c| {
                let digit = c.to_digit(16).unwrap_or(0);
                (0..4).map(move |i| digit >> i & 1 == 1)
            })
            .collect();
        if value.iter().skip(bits).any(|&bit| bit) {
            return None;
        }
        value.resize(bits, false);
        if negative {
            let mut carry = true;
            for bit in &mut value {
                let inverted = !*bit;
                *bit = inverted ^ carry;
                carry &= inverted;
            }
        }
        Some(Self(value))
    }

    pub(crate) fn bits(&self) -> usize {
        self.0.len()
    }

    /// `bits` bits from `low` up; zeros past the top.
    pub(crate) fn slice(&self, low: usize, bits: usize) -> Self {
        Self(
            (low..low + bits)
                .map(|i| self.0.get(i).copied().unwrap_or(false))
                .collect(),
        )
    }

    pub(crate) fn to_u128(&self) -> Option<u128> {
        if self.0.iter().skip(128).any(|&bit| bit) {
            return None;
        }
        Some(
            self.0
                .iter()
                .take(128)
                .enumerate()
                .fold(0, |sum, (i, &bit)| sum | u128::from(bit) << i),
        )
    }

    /// The value as a sized Verilog literal.
    pub(crate) fn verilog(&self) -> String {
        if self.bits() == 1 {
            return format!("1'b{}", u8::from(self.0[0]));
        }
        let digits: String = self
            .0
            .chunks(4)
            .map(|nibble| {
                let digit = nibble
                    .iter()
                    .enumerate()
                    .fold(0, |sum, (i, &bit)| sum | u32::from(bit) << i);
                char::from_digit(digit, 16).unwrap_or('0')
            })
            .rev()
            .collect();
        let digits = digits.trim_start_matches('0');
        format!(
            "{}'h{}",
            self.bits(),
            if digits.is_empty() { "0" } else { digits }
        )
    }
}
