//! Leaves that take records apart and put them together by the bit positions of `spec`'s layouts.
//!
//! Kernels cannot name Rust constants. [`record!`](crate::record) declares a LogicStruct whose fields are fields of a
//! [`Layout`](mprdma_spec::layout::Layout); [`Unpack`] and [`Pack`] move it out of and into the layout's bits. Both their
//! simulation and their Verilog come from the same table of slices.

use super::expr::{assign, assign_slice, slice};
use crate::prelude::*;
use rust_hdl_core::ast::VerilogExpression;

/// One field of a record and where its bits lie in the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Lowest bit in the LogicStruct.
    pub record_lsb: usize,
    /// Lowest bit in the layout.
    pub image_lsb: usize,
    /// Width.
    pub bits: usize,
}

/// A LogicStruct that mirrors fields of a layout; declared by [`record!`](crate::record).
pub trait Record: Synth {
    /// Where every field of the struct comes from, in the order of the struct.
    fn slices() -> Vec<Slice>;
    /// The record whose bit `i` of the layout is `bit(i)`.
    fn from_image(bit: &dyn Fn(usize) -> bool) -> Self;
    /// Calls `set(i, value)` for each bit `i` of the layout that the record owns.
    fn to_image(&self, set: &mut dyn FnMut(usize, bool));
}

/// A type that a field of a record may have: `Bits<N>` or `bool`.
pub trait SliceField: Synth {
    /// The value whose bit `i` is `bit(i)`.
    fn gather(bit: &dyn Fn(usize) -> bool) -> Self;
    /// Its bit `i`.
    fn pick(&self, i: usize) -> bool;
}

impl SliceField for bool {
    fn gather(bit: &dyn Fn(usize) -> bool) -> Self {
        bit(0)
    }
    fn pick(&self, _i: usize) -> bool {
        *self
    }
}

impl<const N: usize> SliceField for Bits<N> {
    fn gather(bit: &dyn Fn(usize) -> bool) -> Self {
        super::beat::from_bools(std::array::from_fn(bit))
    }
    fn pick(&self, i: usize) -> bool {
        self.get_bit(i)
    }
}

/// Declares a LogicStruct over fields of a layout and implements [`Record`](crate::leaf::slices::Record) for it.
///
/// ```
/// use mprdma_hw::prelude::*;
/// use mprdma_hw::record;
/// use mprdma_spec::command::qp_image;
///
/// record! {
///     /// Whom a QP talks to.
///     pub struct Peer {
///         pub qpn: Bits<24> = qp_image::DEST_QPN,
///         pub pkey: Bits<16> = qp_image::PKEY,
///     }
/// }
/// ```
///
/// A field narrower than the layout's takes its low bits; a wider one does not compile.
#[macro_export]
macro_rules! record {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $($(#[$field_meta:meta])* $field_vis:vis $field:ident : $ty:ty = $spec:expr),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
        $vis struct $name {
            $($(#[$field_meta])* $field_vis $field: $ty),+
        }
        const _: () = {
            $(assert!(
                <$ty as Synth>::BITS <= $spec.bits,
                concat!("field ", stringify!($field), " is wider than in the layout")
            );)+
        };
        impl $crate::leaf::slices::Record for $name {
            fn slices() -> Vec<$crate::leaf::slices::Slice> {
                let mut slices = vec![];
                let mut record_lsb = 0;
                $({
                    let bits = <$ty as Synth>::BITS;
                    slices.push($crate::leaf::slices::Slice { record_lsb, image_lsb: $spec.lsb, bits });
                    record_lsb += bits;
                })+
                assert_eq!(record_lsb, <$name as Synth>::BITS);
                slices
            }
            fn from_image(bit: &dyn Fn(usize) -> bool) -> Self {
                use $crate::leaf::slices::SliceField;
                Self { $($field: <$ty>::gather(&|i| bit($spec.lsb + i))),+ }
            }
            fn to_image(&self, set: &mut dyn FnMut(usize, bool)) {
                use $crate::leaf::slices::SliceField;
                $(for i in 0..<$ty as Synth>::BITS {
                    set($spec.lsb + i, self.$field.pick(i));
                })+
            }
        }
    };
}

/// Takes the record `R` out of a layout image of `N` bits. Combinational, wires only.
#[derive(LogicBlock)]
pub struct Unpack<R: Record, const N: usize> {
    pub image: Signal<In, Bits<N>>,
    pub record: Signal<Out, R>,
    block_name: NameOf<Unpack<R, N>>,
}

impl<R: Record, const N: usize> Default for Unpack<R, N> {
    fn default() -> Self {
        check::<R>(N);
        Self {
            image: Signal::default(),
            record: Signal::default(),
            block_name: NameOf::default(),
        }
    }
}

impl<R: Record, const N: usize> Logic for Unpack<R, N> {
    fn update(&mut self) {
        let image = self.image.val();
        self.record.next = R::from_image(&|i| image.get_bit(i));
    }

    fn connect(&mut self) {
        self.record.connect();
    }

    fn hdl(&self) -> Verilog {
        Verilog::Combinatorial(
            R::slices()
                .iter()
                .map(|s| {
                    assign_slice(
                        "record",
                        s.record_lsb,
                        s.bits,
                        slice("image", s.image_lsb, s.bits),
                    )
                })
                .collect(),
        )
    }
}

/// Puts the record `R` into a layout image of `N` bits; bits that it does not own are zero. Combinational, wires only.
#[derive(LogicBlock)]
pub struct Pack<R: Record, const N: usize> {
    pub record: Signal<In, R>,
    pub image: Signal<Out, Bits<N>>,
    block_name: NameOf<Pack<R, N>>,
}

impl<R: Record, const N: usize> Default for Pack<R, N> {
    fn default() -> Self {
        check::<R>(N);
        Self {
            record: Signal::default(),
            image: Signal::default(),
            block_name: NameOf::default(),
        }
    }
}

impl<R: Record, const N: usize> Logic for Pack<R, N> {
    fn update(&mut self) {
        let mut image = [false; N];
        self.record.val().to_image(&mut |i, value| image[i] = value);
        self.image.next = super::beat::from_bools(image);
    }

    fn connect(&mut self) {
        self.image.connect();
    }

    fn hdl(&self) -> Verilog {
        let zero = VerilogExpression::Literal(Bits::<N>::default().into());
        let mut statements = vec![assign("image", zero)];
        statements.extend(R::slices().iter().map(|s| {
            assign_slice(
                "image",
                s.image_lsb,
                s.bits,
                slice("record", s.record_lsb, s.bits),
            )
        }));
        Verilog::Combinatorial(statements)
    }
}

/// Refuses a record that does not fit the image.
fn check<R: Record>(image_bits: usize) {
    for s in R::slices() {
        assert!(
            s.image_lsb + s.bits <= image_bits,
            "bits {} to {} of the layout are outside an image of {image_bits} bits",
            s.image_lsb,
            s.image_lsb + s.bits - 1
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mprdma_spec::command::qp_image;

    record! {
        struct Sample {
            pd: Bits<16> = qp_image::PD,
            repair: bool = qp_image::HOLE_REPAIR,
            dgid: Bits<128> = qp_image::DGID,
            qpn: Bits<16> = qp_image::QPN,
        }
    }

    #[test]
    fn fields_come_from_their_place_and_go_back() {
        let mut bytes = [0; qp_image::BYTES];
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = (i * 37 + 5) as u8;
        }
        qp_image::HOLE_REPAIR.set(&mut bytes, 1);
        let record = Sample::from_image(&|i| bytes[i / 8] >> (i % 8) & 1 == 1);
        assert_eq!(record.pd.to_u64(), qp_image::PD.get(&bytes));
        assert_eq!(record.qpn.to_u64(), qp_image::QPN.get(&bytes) & 0xffff);
        assert!(record.repair);

        let mut back = [0; qp_image::BYTES];
        record.to_image(&mut |i, value| back[i / 8] |= u8::from(value) << (i % 8));
        assert_eq!(qp_image::PD.get(&back), qp_image::PD.get(&bytes));
        let gid = qp_image::DGID.lsb / 8;
        assert_eq!(back[gid..gid + 16], bytes[gid..gid + 16]);
        assert_eq!(qp_image::MTU.get(&back), 0);
    }

    #[test]
    fn verilog_is_one_wire_per_field() {
        let text = crate::with_big_stack(|| {
            let mut unpack = Unpack::<Sample, 1024>::default();
            unpack.image.connect();
            unpack.connect_all();
            crate::verilog::generate(&unpack, "unpack").expect("a module")
        });
        assert!(text.contains("image[63:48]"), "{text}");
        assert!(text.contains("image[447:320]"), "{text}");
    }
}
