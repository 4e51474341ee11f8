//! The PCIe side of a card: the host's memory behind an IOMMU, read requests with latency and completions in pieces,
//! posted writes and interrupts in order.

mod guard;
mod host;
mod iommu;
mod memory;
mod posted;
mod read;

pub(crate) use host::Access;
pub use host::{Fault, HostSide, InterruptSink, MmioRequest, Wake, WriteSink};
pub use iommu::{AccessError, Iommu, MapError};
pub use memory::{FileCache, Memory};
pub use posted::{Posted, WriteBeat};
pub use read::{Completion, ReadRequest, Reads};

use serde::Serialize;

/// What the card did on its PCIe side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PcieCounters {
    /// Read requests.
    pub reads: u64,
    /// Bytes asked for.
    pub read_bytes: u64,
    /// Completion packets.
    pub completions: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Interrupts.
    pub interrupts: u64,
    /// Accesses to addresses that are not mapped, or not for writing.
    pub faults: u64,
    /// Requests that break a rule of the interface, such as one across a boundary.
    pub violations: u64,
}

/// Bytes that a PCIe packet costs besides its payload: framing 4, sequence number 2, header 16, LCRC 4.
pub(crate) const PACKET_OVERHEAD: u64 = 26;
