//! Declarative macros for kernel blocks: `block!` and `dff_setup!`. `AUTHORING.md` shows them in use.

/// Declares a block: the struct with its ports, registers and children, `#[derive(LogicBlock)]`, and `Default`.
///
/// Sections may come in any order; each field may carry attributes and end in `= initial value`:
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
        $vis:vis struct $name:ident $([$($generics:tt)*][$($args:tt)*])? { $($sections:tt)* }
    ) => {
        $crate::block! {
            @walk [$(#[$meta])* $vis struct $name [$($($generics)*)?] [$(<$($args)*>)?]] [] [] $($sections)*
        }
    };
    (@walk $head:tt [$($field:tt)*] [$($init:tt)*]
        in { $($(#[$m:meta])* $f:ident : $t:ty),* $(,)? } $($rest:tt)*
    ) => {
        $crate::block! { @walk $head
            [$($field)* $($(#[$m])* pub $f: Signal<In, $t>,)*]
            [$($init)* $($f: Signal::default(),)*] $($rest)* }
    };
    (@walk $head:tt [$($field:tt)*] [$($init:tt)*]
        out { $($(#[$m:meta])* $f:ident : $t:ty $(= $value:expr)?),* $(,)? } $($rest:tt)*
    ) => {
        $crate::block! { @walk $head
            [$($field)* $($(#[$m])* pub $f: Signal<Out, $t>,)*]
            [$($init)* $($f: $crate::block!(@new Signal::new_with_default, $($value)?),)*] $($rest)* }
    };
    (@walk $head:tt [$($field:tt)*] [$($init:tt)*]
        port { $($(#[$m:meta])* $f:ident : $t:ty $(= $value:expr)?),* $(,)? } $($rest:tt)*
    ) => {
        $crate::block! { @walk $head
            [$($field)* $($(#[$m])* pub $f: $t,)*]
            [$($init)* $($f: $crate::block!(@value $($value)?),)*] $($rest)* }
    };
    (@walk $head:tt [$($field:tt)*] [$($init:tt)*]
        local { $($(#[$m:meta])* $f:ident : $t:ty),* $(,)? } $($rest:tt)*
    ) => {
        $crate::block! { @walk $head
            [$($field)* $($(#[$m])* $f: Signal<Local, $t>,)*]
            [$($init)* $($f: Signal::default(),)*] $($rest)* }
    };
    (@walk $head:tt [$($field:tt)*] [$($init:tt)*]
        reg { $($(#[$m:meta])* $f:ident : $t:ty $(= $value:expr)?),* $(,)? } $($rest:tt)*
    ) => {
        $crate::block! { @walk $head
            [$($field)* $($(#[$m])* $f: $crate::register::Reg<$t>,)*]
            [$($init)* $($f: $crate::block!(@new $crate::register::Reg::new, $($value)?),)*] $($rest)* }
    };
    (@walk $head:tt [$($field:tt)*] [$($init:tt)*]
        pipe { $($(#[$m:meta])* $f:ident : $t:ty $(= $value:expr)?),* $(,)? } $($rest:tt)*
    ) => {
        $crate::block! { @walk $head
            [$($field)* $($(#[$m])* $f: $crate::register::Pipe<$t>,)*]
            [$($init)* $($f: $crate::block!(@new $crate::register::Pipe::new, $($value)?),)*] $($rest)* }
    };
    (@walk $head:tt [$($field:tt)*] [$($init:tt)*]
        konst { $($(#[$m:meta])* $f:ident : $t:ty = $value:expr),* $(,)? } $($rest:tt)*
    ) => {
        $crate::block! { @walk $head
            [$($field)* $($(#[$m])* $f: Constant<$t>,)*]
            [$($init)* $($f: Constant::new($value),)*] $($rest)* }
    };
    (@walk $head:tt [$($field:tt)*] [$($init:tt)*]
        sub { $($(#[$m:meta])* $f:ident : $t:ty $(= $value:expr)?),* $(,)? } $($rest:tt)*
    ) => {
        $crate::block! { @walk $head
            [$($field)* $($(#[$m])* $f: $t,)*]
            [$($init)* $($f: $crate::block!(@value $($value)?),)*] $($rest)* }
    };
    (@walk [$(#[$meta:meta])* $vis:vis struct $name:ident [$($generics:tt)*] [$($args:tt)*]]
        [$($field:tt)*] [$($init:tt)*]
    ) => {
        $(#[$meta])*
        #[derive(LogicBlock)]
        $vis struct $name<$($generics)*> {
            $($field)*
            block_name: $crate::register::NameOf<$name $($args)*>,
        }

        impl<$($generics)*> Default for $name $($args)* {
            fn default() -> Self {
                Self {
                    $($init)*
                    block_name: Default::default(),
                }
            }
        }
    };
    (@walk $head:tt $fields:tt $inits:tt $section:ident $($rest:tt)*) => {
        compile_error!(concat!(
            "bad section `", stringify!($section),
            "`; sections are in, out, port, local, reg, pipe, konst, sub, with `name: Type` or `name: Type = value` fields"
        ));
    };
    (@new $constructor:expr, $value:expr) => { $constructor($value) };
    (@new $constructor:expr,) => { Default::default() };
    (@value $value:expr) => { $value };
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
