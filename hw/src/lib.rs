//! The mprdma hardware: blocks written with rust-hdl, and the tools that print, check and cosimulate them.

pub mod macros;
pub mod nic;
pub mod register;

/// What a file with a block imports.
pub mod prelude {
    pub use crate::register::{NameOf, Pipe, Reg};
    pub use crate::{block, comment, dff_setup};
    pub use rust_hdl_core::clock;
    pub use rust_hdl_core::prelude::*;
}
