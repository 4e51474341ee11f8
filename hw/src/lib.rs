//! The mprdma hardware: blocks written with rust-hdl, and the tools that print, check and cosimulate them.

// This lint proposes match guards, which the kernel macro drops.
#![allow(clippy::collapsible_match)]

pub mod cosim;
pub mod dma;
pub mod leaf;
pub mod lint;
pub mod macros;
pub mod nic;
pub mod register;
pub mod registry;
pub mod state;
pub mod verilog;

pub use registry::blocks;

/// What a file with a block imports.
pub mod prelude {
    pub use crate::register::{NameOf, Pipe, Reg};
    pub use crate::{block, comment, dff_setup};
    pub use rust_hdl_core::clock;
    pub use rust_hdl_core::prelude::*;
}

/// Runs `f` in a thread with a 1 GiB stack and returns its result.
///
/// rust-hdl keeps a design by value: `Bits<512>` is an array of 512 `bool`s, three per signal, and building a block copies
/// it several times.
///
/// # Panics
///
/// Passes on a panic of `f`, and panics if the thread cannot start.
pub fn with_big_stack<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .stack_size(1 << 30)
            .spawn_scoped(scope, f)
            .expect("a thread with a 1 GiB stack");
        match thread.join() {
            Ok(value) => value,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
