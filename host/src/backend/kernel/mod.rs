//! PCI functions through the kernel's VFIO: group and container with a type 1 IOMMU.
//!
//! The crate pci-driver opens the group and the function, maps BARs, wires MSI-X and maps memory. Around it stand what it
//! lacks: [`check`] says beforehand what is in the way and how to clear it, [`bind`] moves functions between drivers.
//! iommufd is not used: no crate that we keep offers it, and Debian's kernels do not have it.

mod bind;
mod check;
mod error;
mod sysfs;

pub use bind::{bind, unbind, Rebound};
pub use error::KernelError;
pub use sysfs::System;

use std::collections::BTreeMap;
use std::hint;
use std::io;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use pci_driver::backends::vfio::VfioPciDevice;
use pci_driver::device::PciDevice;
use pci_driver::regions::{MappedOwningPciRegion, PciRegion, Permissions};
use tracing::debug;

use crate::address::PciAddress;
use crate::backend::vectors::Vectors;
use crate::device::{Device, DeviceError, Identity};
use crate::memory::{before_doorbell, Memory};
use crate::numa::Node;

/// Looks at memory that cost a pause of the processor each, then a yield, before the poller starts to sleep.
const SPINS: u32 = 256;
const YIELDS: u32 = 4096;
/// How long the poller sleeps then: a card that has been silent for so long may be silent a little longer.
const NAP: Duration = Duration::from_micros(50);

/// An open PCI function.
#[derive(Debug)]
pub struct Kernel {
    identity: Identity,
    node: Option<Node>,
    // Unmapped before the function is given up.
    bar0: MappedOwningPciRegion,
    function: VfioPciDevice,
    vectors: Vectors,
    /// What the function can reach, by bus address: it stays mapped here as long as there.
    mapped: Mutex<BTreeMap<u64, Arc<Memory>>>,
    looks: AtomicU32,
}

impl Kernel {
    /// Opens the function at `address` for this process alone.
    ///
    /// # Errors
    /// Any [`DeviceError`]; most name the command that helps.
    pub fn open(address: PciAddress) -> Result<Self, DeviceError> {
        Self::open_in(&System::default(), address)
    }

    fn open_in(system: &System, address: PciAddress) -> Result<Self, DeviceError> {
        check::can_be_opened(system, address)?;
        let text = address.to_string();
        let failed = |what: &'static str| {
            let address = text.clone();
            move |source: io::Error| match source.raw_os_error() {
                // Somebody was quicker.
                Some(libc::EBUSY) => DeviceError::Busy {
                    address,
                    holder: "another process".to_owned(),
                },
                _ => DeviceError::Refused {
                    address,
                    what,
                    source,
                },
            }
        };
        let function = VfioPciDevice::open(system.function(address))
            .map_err(failed("opening the function"))?;
        let config = function.config();
        let (vendor, device) = (config.vendor_id().read(), config.device_id().read());
        let (vendor, device) = (
            vendor.map_err(failed("reading its vendor id"))?,
            device.map_err(failed("reading its device id"))?,
        );
        let bar0 = function.bar(0).filter(|bar| bar.is_mappable());
        let bar0 = bar0.ok_or_else(|| KernelError::NoBar {
            address: text.clone(),
        })?;
        let bar0 = bar0
            .map(.., Permissions::ReadWrite)
            .map_err(failed("mapping BAR 0"))?;
        let vectors = Vectors::new(function.interrupts().msi_x().max())?;
        let descriptors = vectors.descriptors();
        let wired = function.interrupts().msi_x().enable(&descriptors);
        wired.map_err(failed("wiring MSI-X"))?;
        let this = Self {
            identity: Identity {
                address: text.clone(),
                backend: "vfio",
                vendor,
                device,
                bar0_bytes: bar0.len() as u64,
                vectors: vectors.len(),
                numa_node: system.numa_node(address),
            },
            node: system.near(address),
            bar0,
            function,
            vectors,
            mapped: Mutex::default(),
            looks: AtomicU32::new(0),
        };
        this.set_command().map_err(failed("enabling DMA"))?;
        debug!(address = text, node = ?this.node, iova_ranges = ?this.iova_ranges(), "opened");
        Ok(this)
    }

    /// Lets the function answer register accesses and do DMA.
    fn set_command(&self) -> io::Result<()> {
        let command = self.function.config().command();
        command.memory_space_enable().write(true)?;
        command.bus_master_enable().write(true)
    }

    fn mapped(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Memory>>> {
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refused(&self, what: &'static str) -> impl FnOnce(io::Error) -> DeviceError + '_ {
        move |source| DeviceError::Refused {
            address: self.identity.address.clone(),
            what,
            source,
        }
    }

    /// What kept memory from being mapped: the user's limit, if the sum is beyond it.
    fn not_mapped(&self, bytes: u64, source: io::Error) -> DeviceError {
        match lockable() {
            Some(limit) if bytes > limit => KernelError::LockedMemory {
                address: self.identity.address.clone(),
                bytes,
                limit,
            }
            .into(),
            _ => self.refused("mapping of DMA memory")(source),
        }
    }
}

/// Bytes that this process may lock; nothing when there is no limit.
fn lockable() -> Option<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the call fills `limit` and has no other memory effect.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) } == 0;
    (known && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

impl Device for Kernel {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn node(&self) -> Option<&Node> {
        self.node.as_ref()
    }

    fn read32(&self, offset: u32) -> Result<u32, DeviceError> {
        self.identity.check_offset(offset)?;
        self.looks.store(0, Ordering::Relaxed);
        self.bar0
            .read_le_u32(offset.into())
            .map_err(self.refused("register read"))
    }

    fn write32(&self, offset: u32, value: u32) -> Result<(), DeviceError> {
        self.identity.check_offset(offset)?;
        self.looks.store(0, Ordering::Relaxed);
        // The store to the register must not overtake stores to memory.
        before_doorbell();
        self.bar0
            .write_le_u32(offset.into(), value)
            .map_err(self.refused("register write"))
    }

    fn iova_ranges(&self) -> Vec<RangeInclusive<u64>> {
        // The kernel names the last address of a range, which pci-driver takes for the end.
        let iommu = self.function.iommu();
        let ranges = iommu.valid_iova_ranges().iter();
        ranges.map(|range| range.start..=range.end).collect()
    }

    fn map_dma(&self, memory: &Arc<Memory>, iova: u64) -> Result<(), DeviceError> {
        let mut mapped = self.mapped();
        let all: u64 = mapped.values().map(|memory| memory.bytes() as u64).sum();
        // SAFETY: the range is the whole of `memory`, which `mapped` keeps until the mapping has ended, and to which this
        // process makes no references either.
        let done = unsafe {
            self.function.iommu().map(
                iova,
                memory.bytes(),
                memory.address() as *const u8,
                Permissions::ReadWrite,
            )
        };
        done.map_err(|source| self.not_mapped(all + memory.bytes() as u64, source))?;
        mapped.insert(iova, Arc::clone(memory));
        Ok(())
    }

    fn unmap_dma(&self, iova: u64, bytes: u64) -> Result<(), DeviceError> {
        let mut mapped = self.mapped();
        let known = mapped
            .get(&iova)
            .is_some_and(|memory| memory.bytes() as u64 == bytes);
        if !known {
            let what = format!("nothing is mapped at {iova:#x} for {bytes} bytes");
            return Err(self.refused("unmapping of DMA memory")(io::Error::new(
                io::ErrorKind::InvalidInput,
                what,
            )));
        }
        let iommu = self.function.iommu();
        iommu
            .unmap(iova, bytes as usize)
            .map_err(self.refused("unmapping of DMA memory"))?;
        mapped.remove(&iova);
        Ok(())
    }

    fn wait_interrupt(&self, vector: usize, timeout: Duration) -> Result<bool, DeviceError> {
        self.vectors.wait(vector, timeout)
    }

    fn reset(&self) -> Result<(), DeviceError> {
        self.function
            .reset()
            .and_then(|()| self.set_command())
            .map_err(self.refused("reset"))
    }

    fn relax(&self) -> Result<(), DeviceError> {
        match self.looks.fetch_add(1, Ordering::Relaxed) {
            0..SPINS => hint::spin_loop(),
            SPINS..YIELDS => thread::yield_now(),
            _ => thread::sleep(NAP),
        }
        Ok(())
    }
}
