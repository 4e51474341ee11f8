//! Blocks that take a record of `spec` apart or put it together: wiring only, generated from the record's field table,
//! so that no bit position is typed twice.

use crate::prelude::*;
use mprdma_spec::layout::Field;
use rust_hdl_core::ast::{VerilogExpression, VerilogLiteral, VerilogStatement};

/// `target = record[field]` for the Verilog of an [`unpack!`] block.
#[must_use]
pub fn take(target: &str, field: Field) -> VerilogStatement {
    VerilogStatement::Assignment(signal(target), slice("record", field.lsb, field.bits))
}

/// `record[field] = source` for the Verilog of a [`pack!`] block.
#[must_use]
pub fn put(source: &str, field: Field) -> VerilogStatement {
    VerilogStatement::SliceAssignment {
        base: signal("record"),
        width: field.bits,
        offset: literal(field.lsb),
        replacement: signal(source),
    }
}

/// `record = 0`, before the fields are put in.
#[must_use]
pub fn clear<const R: usize>() -> VerilogStatement {
    VerilogStatement::Assignment(
        signal("record"),
        VerilogExpression::Literal(Bits::<R>::default().into()),
    )
}

/// The simulator's side of [`take`].
#[must_use]
pub fn bits_at<const R: usize, const N: usize>(record: Bits<R>, field: Field) -> Bits<N> {
    assert_eq!(N, field.bits, "{} is {} bits wide", field.name, field.bits);
    record.get_bits::<N>(field.lsb)
}

/// The simulator's side of [`put`], into a record whose field is still zero.
#[must_use]
pub fn with_bits<const R: usize, const N: usize>(
    record: Bits<R>,
    field: Field,
    value: Bits<N>,
) -> Bits<R> {
    assert_eq!(N, field.bits, "{} is {} bits wide", field.name, field.bits);
    record | (bit_cast::<R, N>(value) << field.lsb as u64)
}

fn signal(name: &str) -> VerilogExpression {
    VerilogExpression::Signal(name.into())
}

fn literal(value: usize) -> VerilogExpression {
    VerilogExpression::Literal(VerilogLiteral::from(value as u32))
}

fn slice(name: &str, lsb: usize, bits: usize) -> VerilogExpression {
    VerilogExpression::Slice(Box::new(signal(name)), bits, Box::new(literal(lsb)))
}

/// The user imports `crate::prelude::*`. Declares a block with one input `record` and one output per field: `unpack! { pub struct Name from module: WIDTH {
/// output: FIELD bits, .. } }`, where `module` is a record of `spec` in scope. No clock, no latency.
#[macro_export]
macro_rules! unpack {
    ($(#[$meta:meta])* pub struct $name:ident from $module:ident : $width:literal { $($field:ident : $constant:ident $bits:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(LogicBlock)]
        pub struct $name {
            /// The record.
            pub record: Signal<In, Bits<$width>>,
            $(
                #[doc = stringify!($constant)]
                pub $field: Signal<Out, Bits<$bits>>,
            )+
            block_name: $crate::register::NameOf<$name>,
        }
        impl Default for $name {
            fn default() -> Self {
                Self { record: Default::default(), $($field: Default::default(),)+ block_name: Default::default() }
            }
        }
        impl Logic for $name {
            fn update(&mut self) {
                let record = self.record.val();
                $(self.$field.next = $crate::leaf::slices::bits_at(record, $module::$constant);)+
            }
            fn connect(&mut self) {
                $(self.$field.connect();)+
            }
            fn hdl(&self) -> Verilog {
                Verilog::Combinatorial(vec![
                    $($crate::leaf::slices::take(stringify!($field), $module::$constant)),+
                ])
            }
        }
    };
}

/// Declares a block with one input per field and one output `record`; bits of no field are zero. Written as
/// [`unpack!`], with `into` for `from`.
#[macro_export]
macro_rules! pack {
    ($(#[$meta:meta])* pub struct $name:ident into $module:ident : $width:literal { $($field:ident : $constant:ident $bits:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(LogicBlock)]
        pub struct $name {
            $(
                #[doc = stringify!($constant)]
                pub $field: Signal<In, Bits<$bits>>,
            )+
            /// The record.
            pub record: Signal<Out, Bits<$width>>,
            block_name: $crate::register::NameOf<$name>,
        }
        impl Default for $name {
            fn default() -> Self {
                Self { $($field: Default::default(),)+ record: Default::default(), block_name: Default::default() }
            }
        }
        impl Logic for $name {
            fn update(&mut self) {
                let mut record = Bits::<$width>::default();
                $(record = $crate::leaf::slices::with_bits(record, $module::$constant, self.$field.val());)+
                self.record.next = record;
            }
            fn connect(&mut self) {
                self.record.connect();
            }
            fn hdl(&self) -> Verilog {
                Verilog::Combinatorial(vec![
                    $crate::leaf::slices::clear::<$width>(),
                    $($crate::leaf::slices::put(stringify!($field), $module::$constant)),+
                ])
            }
        }
    };
}
