//! Packet headers of RoCEv2 and of the MP-RDMA transport, one file each.
//!
//! Every header has three forms, all from one table: [`Field`] constants (for the RTL's generated slices), a thin
//! typed `View` over bytes, and a `Repr` that parses and emits. [`frame`] puts them together into whole Ethernet
//! frames without FCS; [`icrc`] computes and checks the invariant CRC.
//!
//! Multi-byte fields are big-endian, as all of these headers are. The ICRC alone is little-endian.

use core::fmt;

pub mod aeth;
pub mod atomicacketh;
pub mod atomiceth;
pub mod bth;
pub mod ethernet;
pub mod frame;
pub mod icrc;
pub mod ieth;
pub mod immdt;
pub mod ipv4;
pub mod ipv6;
pub mod mpaeth;
pub mod mpeth;
pub mod psn;
pub mod reth;
pub mod sack_map;
pub mod udp;
pub mod vlan;

#[cfg(test)]
mod golden;
#[cfg(test)]
mod tests;

pub use frame::Frame;
pub use psn::Psn;
pub use sack_map::SackMap;

/// One field of a header: the bytes from `byte` on, as many as `shift + bits` bits need, read as one big-endian
/// integer, shifted right by `shift` and cut to `bits` bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name as it is printed in documentation.
    pub name: &'static str,
    /// First byte that holds a part of the field.
    pub byte: usize,
    /// Bits of the last byte that lie under the field.
    pub shift: usize,
    /// Width in bits, 1 to 64.
    pub bits: usize,
}

impl Field {
    /// Bytes that the field touches.
    #[must_use]
    pub const fn span(&self) -> usize {
        (self.shift + self.bits).div_ceil(8)
    }

    /// Largest value that the field can hold.
    #[must_use]
    pub const fn max(&self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }

    /// Where bit `i` of the value lies when the header is seen as one integer whose byte 0 is in bits 7:0, as it is in
    /// a datapath beat.
    #[must_use]
    pub const fn beat_bit(&self, i: usize) -> usize {
        let bit = self.shift + i;
        (self.byte + self.span() - 1 - bit / 8) * 8 + bit % 8
    }

    /// Reads the field from `header`.
    ///
    /// # Panics
    /// When `header` ends before the field does.
    #[must_use]
    pub fn get(&self, header: &[u8]) -> u64 {
        let bytes = &header[self.byte..self.byte + self.span()];
        let word = bytes
            .iter()
            .fold(0u64, |word, byte| word << 8 | u64::from(*byte));
        word >> self.shift & self.max()
    }

    /// Writes the low `bits` bits of `value` into `header` and leaves the neighbours alone.
    ///
    /// # Panics
    /// When `header` ends before the field does.
    pub fn set(&self, header: &mut [u8], value: u64) {
        let mut value = (value & self.max()) << self.shift;
        let mut mask = self.max() << self.shift;
        for byte in header[self.byte..self.byte + self.span()].iter_mut().rev() {
            *byte = *byte & !(mask as u8) | value as u8;
            value >>= 8;
            mask >>= 8;
        }
    }
}

/// A header's name, size and fields.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// Name as it appears in errors and documentation.
    pub name: &'static str,
    /// Size in bytes.
    pub len: usize,
    /// Fields in wire order.
    pub fields: &'static [Field],
}

/// Why bytes are not the header or frame that they should be, or why a frame cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// The bytes end inside `header`.
    Truncated {
        /// The header that does not fit.
        header: &'static str,
        /// Bytes needed.
        need: usize,
        /// Bytes there are.
        have: usize,
    },
    /// A field holds a value that this transport does not take.
    Value {
        /// The header.
        header: &'static str,
        /// The field.
        field: &'static str,
        /// What it holds.
        value: u64,
    },
    /// A length field disagrees with the bytes around it.
    Length {
        /// The header that states the length.
        header: &'static str,
        /// What it states, in bytes.
        stated: usize,
        /// What there is, in bytes.
        actual: usize,
    },
    /// The IPv4 header checksum is wrong.
    Checksum,
    /// The BTH pad count does not fit the packet: more than its payload, or a length that is no multiple of four.
    Pad {
        /// BTH's pad count in bytes.
        pad: u8,
        /// Payload and pad in bytes.
        payload: usize,
    },
    /// The opcode names no packet that is known here.
    Opcode(u8),
    /// The headers given to emit are not those that the opcode wants.
    Extensions(u8),
    /// The payload is larger than the largest path MTU.
    PayloadTooLong(usize),
    /// The ICRC is wrong.
    Icrc {
        /// What the packet carries.
        stated: u32,
        /// What its bytes give.
        computed: u32,
    },
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Truncated { header, need, have } => {
                write!(f, "{header} needs {need} bytes, there are {have}")
            }
            Self::Value {
                header,
                field,
                value,
            } => write!(f, "{header} {field} is {value:#x}, which is not supported"),
            Self::Length {
                header,
                stated,
                actual,
            } => write!(f, "{header} states {stated} bytes, there are {actual}"),
            Self::Checksum => f.write_str("wrong IPv4 header checksum"),
            Self::Pad { pad, payload } => {
                write!(f, "pad count {pad} does not fit {payload} payload bytes")
            }
            Self::Opcode(opcode) => write!(f, "unknown BTH opcode {opcode:#04x}"),
            Self::Extensions(opcode) => write!(
                f,
                "extension headers do not belong to BTH opcode {opcode:#04x}"
            ),
            Self::PayloadTooLong(bytes) => {
                write!(
                    f,
                    "payload of {bytes} bytes is over the largest path MTU of 4096"
                )
            }
            Self::Icrc { stated, computed } => {
                write!(
                    f,
                    "ICRC is {stated:#010x}, the packet gives {computed:#010x}"
                )
            }
        }
    }
}

impl core::error::Error for WireError {}

/// A Rust type that a [`Field`] is read as.
pub trait FieldValue: Sized {
    /// From the field's bits.
    fn from_bits(bits: u64) -> Self;
    /// To the field's bits.
    fn into_bits(self) -> u64;
}

macro_rules! field_value_int {
    ($($t:ty),+) => {$(
        impl FieldValue for $t {
            fn from_bits(bits: u64) -> Self { bits as $t }
            fn into_bits(self) -> u64 { u64::from(self) }
        }
    )+};
}
field_value_int!(u8, u16, u32, u64);

impl FieldValue for bool {
    fn from_bits(bits: u64) -> Self {
        bits != 0
    }
    fn into_bits(self) -> u64 {
        u64::from(self)
    }
}

impl<const N: usize> FieldValue for [u8; N] {
    fn from_bits(bits: u64) -> Self {
        let bytes = bits.to_be_bytes();
        core::array::from_fn(|i| bytes[8 - N + i])
    }
    fn into_bits(self) -> u64 {
        self.iter()
            .fold(0, |word, byte| word << 8 | u64::from(*byte))
    }
}

/// Declares a header: its `Field` constants, `LEN`, `HEADER`, and a `View` with a getter and a setter per field.
macro_rules! header {
    ($title:literal, $len:literal bytes {
        $($name:ident $get:ident $set:ident: $ty:ty = $byte:literal, $shift:literal, $bits:literal, $doc:literal;)+
    }) => {
        /// Size of the header in bytes.
        pub const LEN: usize = $len;
        $(
            #[doc = $doc]
            pub const $name: $crate::wire::Field =
                $crate::wire::Field { name: stringify!($get), byte: $byte, shift: $shift, bits: $bits };
        )+
        /// The header as a table.
        pub const HEADER: $crate::wire::Header =
            $crate::wire::Header { name: $title, len: LEN, fields: &[$($name),+] };

        #[doc = concat!($title, " header over bytes that are known to hold one.")]
        #[derive(Clone, Copy, Debug)]
        pub struct View<T>(T);

        impl<T: AsRef<[u8]>> View<T> {
            /// Takes bytes that begin with the header.
            ///
            /// # Errors
            /// [`WireError::Truncated`](crate::wire::WireError::Truncated) when they are too few.
            pub fn new(bytes: T) -> Result<Self, $crate::wire::WireError> {
                let have = bytes.as_ref().len();
                if have < LEN {
                    return Err($crate::wire::WireError::Truncated { header: $title, need: LEN, have });
                }
                Ok(Self(bytes))
            }
            $(
                #[doc = $doc]
                #[must_use]
                pub fn $get(&self) -> $ty {
                    $crate::wire::FieldValue::from_bits($name.get(self.0.as_ref()))
                }
            )+
        }

        impl<T: AsMut<[u8]>> View<T> {
            $(
                #[doc = concat!("Sets: ", $doc)]
                pub fn $set(&mut self, value: $ty) {
                    $name.set(self.0.as_mut(), $crate::wire::FieldValue::into_bits(value));
                }
            )+
        }
    };
}
pub(crate) use header;

/// Declares the `Repr` of a header all of whose fields are free: parse and emit copy them one by one.
macro_rules! plain_repr {
    ($(#[$meta:meta])* { $($get:ident $set:ident: $ty:ty = $doc:literal;)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Repr {
            $(#[doc = $doc] pub $get: $ty,)+
        }

        impl Repr {
            /// Reads the header at the start of `bytes`.
            ///
            /// # Errors
            /// When `bytes` is shorter than the header.
            pub fn parse(bytes: &[u8]) -> Result<Self, $crate::wire::WireError> {
                let view = View::new(bytes)?;
                Ok(Self { $($get: view.$get()),+ })
            }

            /// Writes the header at the start of `bytes`; reserved bits become zero.
            ///
            /// # Errors
            /// When `bytes` is shorter than the header.
            pub fn emit(&self, bytes: &mut [u8]) -> Result<(), $crate::wire::WireError> {
                let mut view = View::new(bytes)?;
                view.0[..LEN].fill(0);
                $(view.$set(self.$get);)+
                Ok(())
            }
        }
    };
}
pub(crate) use plain_repr;

/// Checks that a field has the one value that it may have.
pub(crate) fn expect(
    header: &'static str,
    field: &Field,
    bytes: &[u8],
    value: u64,
) -> Result<(), WireError> {
    match field.get(bytes) {
        got if got == value => Ok(()),
        got => Err(WireError::Value {
            header,
            field: field.name,
            value: got,
        }),
    }
}
