//! Bit fields of fixed-size little-endian records, as plain data: one table serves the RTL (bit ranges), software
//! (`get`/`set` on bytes) and the documentation (names and texts).

/// One field of a record: `bits` bits from bit `lsb` of the record read as one little-endian integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name as it is printed in the documentation.
    pub name: &'static str,
    /// Position of the field's lowest bit, counted from bit 0 of byte 0.
    pub lsb: usize,
    /// Width in bits, 1 to 128.
    pub bits: usize,
    /// What the field means, with its unit.
    pub doc: &'static str,
}

impl Field {
    /// Reads the field from `record`.
    ///
    /// # Panics
    /// When the record is shorter than the field's end.
    #[must_use]
    pub fn get(&self, record: &[u8]) -> u64 {
        (0..self.bits.min(64)).fold(0, |value, i| {
            let bit = self.lsb + i;
            value | (u64::from(record[bit / 8] >> (bit % 8) & 1) << i)
        })
    }

    /// Writes the low `bits` bits of `value` into `record`; higher bits are ignored.
    ///
    /// # Panics
    /// When the record is shorter than the field's end.
    pub fn set(&self, record: &mut [u8], value: u64) {
        for i in 0..self.bits.min(64) {
            let bit = self.lsb + i;
            let mask = 1 << (bit % 8);
            if value >> i & 1 == 1 {
                record[bit / 8] |= mask;
            } else {
                record[bit / 8] &= !mask;
            }
        }
    }

    /// Largest value that the field can hold.
    #[must_use]
    pub const fn max(&self) -> u64 {
        if self.bits >= 64 {
            u64::MAX
        } else {
            (1 << self.bits) - 1
        }
    }
}

/// A named record: its size and its fields.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Name as it is printed in the documentation.
    pub name: &'static str,
    /// What the record is.
    pub doc: &'static str,
    /// Size in bytes.
    pub bytes: usize,
    /// Fields in ascending bit order.
    pub fields: &'static [Field],
}

impl Layout {
    /// The field called `name`, if the record has one.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|f| f.name == name)
    }
}

/// Declares a module holding one `Field` constant per field, `BYTES`, and the `LAYOUT` of all of them.
macro_rules! layout {
    ($(#[doc = $doc:literal])+ $module:ident: $bytes:literal bytes { $($name:ident @ $lsb:literal + $bits:literal = $text:literal),+ $(,)? }) => {
        $(#[doc = $doc])+
        pub mod $module {
            use $crate::layout::{Field, Layout};
            /// Size of the record in bytes.
            pub const BYTES: usize = $bytes;
            $(
                #[doc = $text]
                pub const $name: Field = Field { name: stringify!($name), lsb: $lsb, bits: $bits, doc: $text };
            )+
            /// The whole record, for documentation and for the RTL's generated slices.
            pub const LAYOUT: Layout = Layout {
                name: stringify!($module),
                doc: concat!($($doc),+),
                bytes: BYTES,
                fields: &[$($name),+],
            };
        }
    };
}
pub(crate) use layout;

#[cfg(test)]
mod tests {
    use crate::{command, descriptor};

    /// Fields must lie inside their record, in ascending order, and must not overlap.
    #[test]
    fn fields_are_disjoint_and_inside() {
        for layout in command::LAYOUTS.iter().chain(descriptor::LAYOUTS) {
            let mut next = 0;
            for field in layout.fields {
                assert!(field.lsb >= next, "{}.{} overlaps", layout.name, field.name);
                next = field.lsb + field.bits;
            }
            assert!(next <= layout.bytes * 8, "{} is too short", layout.name);
        }
    }

    #[test]
    fn set_then_get() {
        let mut record = [0xa5; descriptor::sq_wqe::BYTES];
        for field in descriptor::sq_wqe::LAYOUT.fields {
            let before = record;
            field.set(&mut record, 0x1234_5678_9abc_def1);
            assert_eq!(field.get(&record), 0x1234_5678_9abc_def1 & field.max());
            field.set(&mut record, field.get(&before));
            assert_eq!(record, before, "{} touched its neighbours", field.name);
        }
    }
}
