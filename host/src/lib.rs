//! The driver of mprdma cards: devices, DMA memory, and a verbs-style interface to queue pairs.
//!
//! The driver does not know whether silicon or a simulator answers: [`device::Device`] is all it sees.

pub mod address;
pub mod backend;
pub mod control;
pub mod device;
pub mod error;
pub mod exchange;
pub mod memory;
pub mod port;
pub mod verbs;

pub use error::Error;
