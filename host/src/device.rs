//! What the driver needs of a card, whoever provides it: a vfio-user server, the kernel, or a simulator in this process.

use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::backend::kernel::KernelError;
use crate::memory::Memory;
use crate::numa::Node;

/// Who a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The address that opened it, as [`crate::address::Address`] prints it.
    pub address: String,
    /// Name of the backend: `vfio-user`, `vfio`, `in-process`.
    pub backend: &'static str,
    /// PCI vendor id.
    pub vendor: u16,
    /// PCI device id.
    pub device: u16,
    /// Size of BAR0 in bytes.
    pub bar0_bytes: u64,
    /// MSI-X vectors that [`Device::wait_interrupt`] accepts: 0 up to, not including, this.
    pub vectors: usize,
    /// The NUMA node that it is attached to, if the system says.
    pub numa_node: Option<u32>,
}

impl Identity {
    /// Whether a register can be at `offset`.
    ///
    /// # Errors
    /// [`DeviceError::OutOfBar`].
    pub const fn check_offset(&self, offset: u32) -> Result<(), DeviceError> {
        let bar0_bytes = self.bar0_bytes;
        if offset % 4 != 0 || offset as u64 + 4 > bar0_bytes {
            return Err(DeviceError::OutOfBar { offset, bar0_bytes });
        }
        Ok(())
    }
}

/// A card: registers, DMA mappings, interrupts, reset.
///
/// All methods take `&self` and may be called from several threads; a backend locks inside. Registers are strongly
/// ordered: a [`write32`](Device::write32) takes effect after every earlier access and after every earlier store of the
/// calling thread to mapped memory.
///
/// Dropping the device gives it up: whoever provides it must stop its DMA and reset it, as the kernel does when the
/// last descriptor of a VFIO device is closed.
pub trait Device: Send + Sync {
    /// Who it is.
    fn identity(&self) -> &Identity;

    /// The NUMA node on which its memory and the threads that poll it belong; none where it makes no difference.
    fn node(&self) -> Option<&Node> {
        None
    }

    /// Reads the 32-bit register at byte `offset` of BAR0.
    ///
    /// # Errors
    /// [`DeviceError::OutOfBar`] when the offset is not a multiple of 4 inside BAR0; otherwise only when the device is
    /// gone or does not answer in time.
    fn read32(&self, offset: u32) -> Result<u32, DeviceError>;

    /// Writes the 32-bit register at byte `offset` of BAR0. It may be posted: a following read sees its effect.
    ///
    /// # Errors
    /// As [`read32`](Device::read32).
    fn write32(&self, offset: u32, value: u32) -> Result<(), DeviceError>;

    /// The bus addresses that [`map_dma`](Device::map_dma) accepts, first to last, ascending: an IOMMU has only so many
    /// bits and keeps some addresses for itself.
    fn iova_ranges(&self) -> Vec<RangeInclusive<u64>> {
        vec![0..=u64::MAX]
    }

    /// Lets the device read and write all of `memory`, byte `i` of which it finds at `iova + i`.
    ///
    /// `iova` is a multiple of [`Memory::page_bytes`], and the range overlaps no other mapping. The caller keeps
    /// `memory` alive until [`unmap_dma`](Device::unmap_dma); a backend in the same process may keep the `Arc`, or map
    /// [`Memory::file`] again.
    ///
    /// # Errors
    /// When the provider refuses the mapping (overlap, no memory) or is gone.
    fn map_dma(&self, memory: &Arc<Memory>, iova: u64) -> Result<(), DeviceError>;

    /// Ends the mapping that [`map_dma`](Device::map_dma) made at `iova` for `bytes` bytes. When it returns the device
    /// touches that memory no more.
    ///
    /// # Errors
    /// When there is no such mapping or the provider is gone.
    fn unmap_dma(&self, iova: u64, bytes: u64) -> Result<(), DeviceError>;

    /// Waits until MSI-X vector `vector` has been raised since the last call that returned `true` for it, but no longer
    /// than `timeout`; zero polls. Several raises count as one.
    ///
    /// # Errors
    /// [`DeviceError::NoVector`], or the device is gone.
    fn wait_interrupt(&self, vector: usize, timeout: Duration) -> Result<bool, DeviceError>;

    /// Resets the function: all queues, regions and counters are as after power-up. DMA mappings and interrupt wiring
    /// stay. The caller waits for STATUS.ready afterwards.
    ///
    /// # Errors
    /// When the device cannot be reset or is gone.
    fn reset(&self) -> Result<(), DeviceError>;

    /// Called between two looks at memory by whoever polls a ring. A simulator in this process advances its time here;
    /// another backend lets other processes run.
    ///
    /// # Errors
    /// When the device is known to be gone: memory will not change any more.
    fn relax(&self) -> Result<(), DeviceError>;
}

/// Why a device could not be reached, or did not do what it was asked.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// Nothing is at the address.
    #[error("{address}: no such device; {}", whereabouts(.address))]
    NotFound {
        /// The address asked for.
        address: String,
    },
    /// The caller may not open it.
    #[error("{address}: permission denied; run as the user who owns it, or give yourself read and write access")]
    Permission {
        /// The address asked for.
        address: String,
    },
    /// The kernel's VFIO does not let us have it.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// Something is there but nobody serves it.
    #[error("{address}: nobody answers there (stale socket); start the simulator again")]
    Stale {
        /// The address asked for.
        address: String,
    },
    /// Another process has it.
    #[error("{address}: in use by {holder}")]
    Busy {
        /// The address asked for.
        address: String,
        /// Who uses it, as far as is known.
        holder: String,
    },
    /// The backend cannot do this.
    #[error("{address}: {what}")]
    Unsupported {
        /// The address asked for.
        address: String,
        /// What cannot be done and what to do instead.
        what: String,
    },
    /// No answer in time.
    #[error("{address}: no answer to {what} within {} s", .after.as_secs_f32())]
    Timeout {
        /// The address of the device.
        address: String,
        /// What was asked.
        what: &'static str,
        /// How long was waited.
        after: Duration,
    },
    /// It was there and is no more.
    #[error("{address}: the device has gone away (its server ended or closed the connection)")]
    Gone {
        /// The address of the device.
        address: String,
    },
    /// The other end broke the protocol.
    #[error("{address}: protocol error: {what}")]
    Protocol {
        /// The address of the device.
        address: String,
        /// What was wrong.
        what: String,
    },
    /// The other end refused a request.
    #[error("{address}: {what} was refused: {source}")]
    Refused {
        /// The address of the device.
        address: String,
        /// What was asked.
        what: &'static str,
        /// The reason given.
        source: io::Error,
    },
    /// An access outside BAR0, or not aligned to 4 bytes.
    #[error("register offset {offset:#x} is not a multiple of 4 below {bar0_bytes:#x}")]
    OutOfBar {
        /// Offset asked for.
        offset: u32,
        /// Size of BAR0.
        bar0_bytes: u64,
    },
    /// No such interrupt vector.
    #[error("no interrupt vector {vector}: the device has {vectors}")]
    NoVector {
        /// Vector asked for.
        vector: usize,
        /// Vectors that exist.
        vectors: usize,
    },
    /// An operating system call failed.
    #[error("{what}: {source}")]
    Io {
        /// What was done.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
}

/// Where to look for a device that is not there.
fn whereabouts(address: &str) -> &'static str {
    if address.starts_with("vfio-user:") {
        "is the simulator running, or the path mistyped?"
    } else {
        "`mprdma devices` lists the cards, `lspci -D` every PCI function"
    }
}

impl fmt::Debug for dyn Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.identity().fmt(f)
    }
}
