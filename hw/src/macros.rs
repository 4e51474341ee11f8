//! Declarative macros for kernel blocks: `block!` and `dff_setup!`. `AUTHORING.md` shows them in use.

/// Declares a block: the struct with its ports, registers and children, `#[derive(LogicBlock)]`, and `Default`.
///
/// Sections are optional and come in this order; each field may carry attributes and end in `= initial value`:
///
/// | section | field becomes |
/// | --- | --- |
/// | `in` | `pub Signal<In, T>` |
/// | `out` | `pub Signal<Out, T>` |
/// | `port` | `pub` field of exactly the type given (interfaces, arrays of signals) |
/// | `local` | `Signal<Local, T>` |
/// | `reg` | [`Reg<T>`](crate::register::Reg), reset to the initial value |
/// | `pipe` | [`Pipe<T>`](crate::register::Pipe), no reset |
/// | `konst` | `Constant<T>`, the value is required |
/// | `sub` | private field of exactly the type given (children, arrays, hidden `_x` fields) |
///
/// Generics are written in brackets twice, with bounds and without: `pub struct Skid[T: Synth][T] { .. }`.
#[macro_export]
macro_rules! block {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident $([$($generics:tt)*][$($args:tt)*])? {
            $(in { $($(#[$in_meta:meta])* $in:ident : $in_ty:ty),* $(,)? })?
            $(out { $($(#[$out_meta:meta])* $out:ident : $out_ty:ty $(= $out_init:expr)?),* $(,)? })?
            $(port { $($(#[$port_meta:meta])* $port:ident : $port_ty:ty $(= $port_init:expr)?),* $(,)? })?
            $(local { $($(#[$local_meta:meta])* $local:ident : $local_ty:ty),* $(,)? })?
            $(reg { $($(#[$reg_meta:meta])* $reg:ident : $reg_ty:ty $(= $reg_init:expr)?),* $(,)? })?
            $(pipe { $($(#[$pipe_meta:meta])* $pipe:ident : $pipe_ty:ty $(= $pipe_init:expr)?),* $(,)? })?
            $(konst { $($(#[$konst_meta:meta])* $konst:ident : $konst_ty:ty = $konst_init:expr),* $(,)? })?
            $(sub { $($(#[$sub_meta:meta])* $sub:ident : $sub_ty:ty $(= $sub_init:expr)?),* $(,)? })?
        }
    ) => {
        $(#[$meta])*
        #[derive(LogicBlock)]
        $vis struct $name $(<$($generics)*>)? {
            $($($(#[$in_meta])* pub $in: Signal<In, $in_ty>,)*)?
            $($($(#[$out_meta])* pub $out: Signal<Out, $out_ty>,)*)?
            $($($(#[$port_meta])* pub $port: $port_ty,)*)?
            $($($(#[$local_meta])* $local: Signal<Local, $local_ty>,)*)?
            $($($(#[$reg_meta])* $reg: $crate::register::Reg<$reg_ty>,)*)?
            $($($(#[$pipe_meta])* $pipe: $crate::register::Pipe<$pipe_ty>,)*)?
            $($($(#[$konst_meta])* $konst: Constant<$konst_ty>,)*)?
            $($($(#[$sub_meta])* $sub: $sub_ty,)*)?
            block_name: $crate::register::NameOf<$name $(<$($args)*>)?>,
        }

        impl $(<$($generics)*>)? Default for $name $(<$($args)*>)? {
            fn default() -> Self {
                Self {
                    $($($in: Signal::default(),)*)?
                    $($($out: $crate::block!(@new Signal::new_with_default, $($out_init)?),)*)?
                    $($($port: $crate::block!(@value $($port_init)?),)*)?
                    $($($local: Signal::default(),)*)?
                    $($($reg: $crate::block!(@new $crate::register::Reg::new, $($reg_init)?),)*)?
                    $($($pipe: $crate::block!(@new $crate::register::Pipe::new, $($pipe_init)?),)*)?
                    $($($konst: Constant::new($konst_init),)*)?
                    $($($sub: $crate::block!(@value $($sub_init)?),)*)?
                    block_name: Default::default(),
                }
            }
        }
    };
    (@new $constructor:expr, $init:expr) => { $constructor($init) };
    (@new $constructor:expr,) => { Default::default() };
    (@value $init:expr) => { $init };
    (@value) => { Default::default() };
}

/// Wires registers in a kernel: `dff_setup!(self, clock, a, b, c[0])`.
///
/// Each register gets the block's `clock`, its `reset` port, and holds its value (`d = q`) until the kernel assigns
/// `d`. The block needs an input `reset: Signal<In, Bit>`. This replaces the macro of the same name in
/// `rust-hdl-widgets`, which knows no reset; the kernel macro only accepts this name.
#[macro_export]
macro_rules! dff_setup {
    ($self:ident, $clock:ident, $($dff:ident $([$index:expr])?),+ $(,)?) => {
        $(
            $self.$dff $([$index])?.clock.next = $self.$clock.val();
            $self.$dff $([$index])?.drive_reset($self.reset.val());
            $self.$dff $([$index])?.d.next = $self.$dff $([$index])?.q.val();
        )+
    };
}

/// A line of comment for the generated Verilog: `comment!("stage T1: compare")`. Nothing in the simulator.
#[macro_export]
macro_rules! comment {
    ($text:literal) => {};
}
