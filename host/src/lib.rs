//! The driver of mprdma cards: devices, DMA memory, and a verbs-style interface to queue pairs.
//!
//! The driver does not know whether silicon or a simulator answers: [`device::Device`] is all it sees.

pub mod address;
pub mod device;
pub mod memory;
