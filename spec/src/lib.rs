//! The contract that every part of mprdma shares: registers, commands, descriptors, context layouts, packet headers
//! and protocol parameters. No logic, no I/O, no dependency beyond `core`.
//!
//! A number that two sides need is written here once. The RTL takes its bit offsets from these tables, the driver and
//! the simulator read and write memory through the same [`layout::Field`]s, and `docs/registers.md` is printed from
//! them.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), no_std)]

pub mod command;
pub mod config;
pub mod counter;
pub mod csr;
pub mod descriptor;
pub mod layout;
pub mod params;
pub mod status;
pub mod wire;
