//! Registers, commands, doorbells and counters: everything that software reaches through BAR0.

pub mod axil;
pub mod commands;
pub mod counters;
pub mod registers;
pub mod window;

pub use commands::Commands;
pub use registers::Registers;
