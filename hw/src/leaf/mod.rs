//! Reusable leaves: memories, FIFOs, stream alignment, CRC, timers, arbiters.
//!
//! Every stream is `valid`/`ready`: an item moves on a rising edge at which both are high. Every leaf drives `valid`
//! from registers; `ready` is a register too, except where the leaf says otherwise.

pub mod align;
pub mod arbiter;
pub mod arith;
pub mod beat;
pub mod bytes;
pub mod crc;
pub mod delay;
pub mod encode;
pub(crate) mod expr;
pub mod packet_fifo;
pub mod ram;
pub mod skid;
pub mod slices;
pub mod sync;
pub mod sync_fifo;
pub mod timer_wheel;

pub use align::{Header, LaneBeat, Prepend, Realign};
pub use arbiter::{Arbiter, Arbiter2, Arbiter3, Arbiter4};
pub use arith::{xorshift64, Lfsr, Mul16};
pub use beat::Beat;
pub use crc::Crc32Stream;
pub use delay::Delay;
pub use encode::Encode128;
pub use packet_fifo::PacketFifo;
pub use ram::{Ram, RamStyle};
pub use skid::Skid;
pub use slices::{Pack, Record, Slice, SliceField, Unpack};
pub use sync::{AsyncFifo, Synchronizer};
pub use sync_fifo::SyncFifo;
pub use timer_wheel::{TimerArm, TimerWheel};
