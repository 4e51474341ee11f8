//! Reusable leaves: memories, FIFOs, stream alignment, CRC, timers, arbiters.
//!
//! Every stream is `valid`/`ready`: an item moves on a rising edge at which both are high. Every leaf drives `valid`
//! from a register; `ready` is a register too, except where the leaf says otherwise.

pub mod beat;
pub mod packet_fifo;
pub mod ram;
pub mod skid;
pub mod slices;
pub mod sync;
pub mod sync_fifo;

pub use beat::Beat;
pub use packet_fifo::PacketFifo;
pub use ram::{Ram, RamStyle};
pub use skid::Skid;
pub use sync::{AsyncFifo, Synchronizer};
pub use sync_fifo::SyncFifo;
