//! A card behind a vfio-user socket: every register access is a message, DMA memory is shared by descriptor, interrupts
//! are eventfds.
//!
//! The client is our own and small because a driver must not hang with its server: each answer is awaited for a bounded
//! time, and error answers are understood for what they are.

mod link;

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use self::link::{Command, Link, Message};
use crate::backend::vectors::Vectors;
use crate::device::{Device, DeviceError, Identity};
use crate::memory::Memory;
use vfio_bindings::bindings::vfio::{
    VFIO_DEVICE_FLAGS_PCI, VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_DATA_EVENTFD,
    VFIO_PCI_BAR0_REGION_INDEX, VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX,
};

/// Looks at memory that are answered by a yield before the poller starts to sleep.
const YIELDS: u32 = 16;
/// How long the poller sleeps then. The simulator needs the processor more than we do.
const NAP: Duration = Duration::from_micros(50);
/// Every so many looks the connection itself is checked.
const LIVENESS_INTERVAL: u32 = 64;

/// An open vfio-user device.
pub struct VfioUser {
    identity: Identity,
    link: Mutex<Link>,
    vectors: Vectors,
    looks: AtomicU32,
}

impl VfioUser {
    /// Connects to the server at `path`, which must answer each request within `answer_timeout`.
    ///
    /// # Errors
    /// Any [`DeviceError`]; `Busy` when the server accepts but does not answer, since a server serves one client.
    pub fn open(path: &Path, answer_timeout: Duration) -> Result<Self, DeviceError> {
        let address = format!("vfio-user:{}", path.display());
        let stream = UnixStream::connect(path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => DeviceError::NotFound {
                address: address.clone(),
            },
            io::ErrorKind::PermissionDenied => DeviceError::Permission {
                address: address.clone(),
            },
            io::ErrorKind::ConnectionRefused => DeviceError::Stale {
                address: address.clone(),
            },
            _ => DeviceError::Io {
                what: format!("cannot connect to {address}"),
                source,
            },
        })?;
        let mut link = Link::new(stream, address.clone(), answer_timeout)?;
        link.negotiate()?;
        let info = link.call(
            Command::GetInfo,
            Message::new().u32(16).u32(0).u32(0).u32(0),
        )?;
        if info.u32(4)? & VFIO_DEVICE_FLAGS_PCI == 0 {
            return Err(link.protocol_error("the device is no PCI device"));
        }
        let bar0_bytes = link.region_bytes(VFIO_PCI_BAR0_REGION_INDEX)?;
        let ids = link.region_read32(VFIO_PCI_CONFIG_REGION_INDEX, 0)?;
        let irq = Message::new()
            .u32(16)
            .u32(0)
            .u32(VFIO_PCI_MSIX_IRQ_INDEX)
            .u32(0);
        let vectors = link.call(Command::GetIrqInfo, irq)?.u32(12)?;
        let vectors = Vectors::new(vectors.min(2048) as usize)?;
        for (vector, event) in vectors.descriptors().into_iter().enumerate() {
            // One message each, as a server may take one descriptor per message.
            let flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;
            let body = Message::new()
                .u32(20)
                .u32(flags)
                .u32(VFIO_PCI_MSIX_IRQ_INDEX)
                .u32(vector as u32)
                .u32(1);
            link.call_with_fd(Command::SetIrqs, body, Some(event))?;
        }
        Ok(Self {
            identity: Identity {
                address,
                backend: "vfio-user",
                vendor: ids as u16,
                device: (ids >> 16) as u16,
                bar0_bytes,
                vectors: vectors.len(),
                numa_node: None,
            },
            link: Mutex::new(link),
            vectors,
            looks: AtomicU32::new(0),
        })
    }

    fn link(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Device for VfioUser {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn read32(&self, offset: u32) -> Result<u32, DeviceError> {
        self.identity.check_offset(offset)?;
        self.looks.store(0, Ordering::Relaxed);
        self.link()
            .region_read32(VFIO_PCI_BAR0_REGION_INDEX, u64::from(offset))
    }

    fn write32(&self, offset: u32, value: u32) -> Result<(), DeviceError> {
        self.identity.check_offset(offset)?;
        self.looks.store(0, Ordering::Relaxed);
        self.link()
            .region_write32(VFIO_PCI_BAR0_REGION_INDEX, u64::from(offset), value)
    }

    fn map_dma(&self, memory: &Arc<Memory>, iova: u64) -> Result<(), DeviceError> {
        // Bit 0: the device may read; bit 1: it may write.
        let body = Message::new()
            .u32(32)
            .u32(0b11)
            .u64(0)
            .u64(iova)
            .u64(memory.bytes() as u64);
        self.link()
            .call_with_fd(Command::DmaMap, body, Some(memory.file().as_raw_fd()))?;
        Ok(())
    }

    fn unmap_dma(&self, iova: u64, bytes: u64) -> Result<(), DeviceError> {
        self.link().call(
            Command::DmaUnmap,
            Message::new().u32(24).u32(0).u64(iova).u64(bytes),
        )?;
        Ok(())
    }

    fn wait_interrupt(&self, vector: usize, timeout: Duration) -> Result<bool, DeviceError> {
        if self.vectors.take(vector)? {
            return Ok(true);
        }
        self.link().check_alive()?;
        if timeout.is_zero() {
            return Ok(false);
        }
        self.vectors.wait(vector, timeout)
    }

    fn reset(&self) -> Result<(), DeviceError> {
        self.link().call(Command::Reset, Message::new())?;
        Ok(())
    }

    fn relax(&self) -> Result<(), DeviceError> {
        let looks = self.looks.fetch_add(1, Ordering::Relaxed);
        if looks % LIVENESS_INTERVAL == LIVENESS_INTERVAL - 1 {
            self.link().check_alive()?;
        }
        if looks < YIELDS {
            thread::yield_now();
        } else {
            thread::sleep(NAP);
        }
        Ok(())
    }
}
