//! One card as a vfio-user device.

use super::config_space::{self, ConfigSpace};
use super::interrupts::EventFds;
use crate::pcie::{FileCache, HostSide, Memory, MmioRequest};
use mprdma_spec::config::MSIX_VECTORS;
use std::fs::File;
use std::io;
use std::sync::mpsc::sync_channel;
use std::sync::Arc;
use vfio_bindings::bindings::vfio::{
    vfio_region_info, VFIO_IRQ_INFO_EVENTFD, VFIO_IRQ_INFO_NORESIZE, VFIO_IRQ_SET_ACTION_TRIGGER,
    VFIO_IRQ_SET_DATA_EVENTFD, VFIO_IRQ_SET_DATA_NONE, VFIO_PCI_BAR0_REGION_INDEX,
    VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_NUM_IRQS, VFIO_PCI_NUM_REGIONS,
    VFIO_REGION_INFO_FLAG_READ, VFIO_REGION_INFO_FLAG_WRITE,
};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, IrqInfo, ServerBackend, ServerRegion};

/// Register writes that may wait for the card before a client is held back.
const POSTED_LIMIT: usize = 1024;

/// The device of one client after the other.
pub struct Device {
    name: String,
    host: Arc<HostSide>,
    bar0: u64,
    config: ConfigSpace,
    /// MSI-X table and pending bits: clients that speak vfio keep their own, so this is plain memory.
    msix: Vec<u8>,
    interrupts: EventFds,
    files: FileCache,
    used: bool,
}

impl Device {
    /// The device of a card, named in messages.
    pub fn new(name: &str, host: Arc<HostSide>, bar0: u64) -> Device {
        let interrupts = EventFds::new(MSIX_VECTORS);
        host.set_interrupts(Some(Box::new(interrupts.clone())));
        Device {
            name: name.to_string(),
            host,
            bar0,
            config: ConfigSpace::new(bar0),
            msix: vec![0; config_space::MSIX_BAR_BYTES as usize],
            interrupts,
            files: FileCache::default(),
            used: false,
        }
    }

    /// Regions in vfio's numbering; all exist, most are empty.
    pub fn regions(&self) -> Vec<ServerRegion> {
        let region = |index| {
            let size = match index {
                VFIO_PCI_BAR0_REGION_INDEX => self.bar0,
                config_space::MSIX_BAR => config_space::MSIX_BAR_BYTES,
                VFIO_PCI_CONFIG_REGION_INDEX => config_space::BYTES as u64,
                _ => 0,
            };
            let flags = if size > 0 {
                VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE
            } else {
                0
            };
            let argsz = size_of::<vfio_region_info>() as u32;
            let region_info = vfio_region_info {
                argsz,
                flags,
                index,
                cap_offset: 0,
                size,
                offset: 0,
            };
            ServerRegion {
                region_info,
                sparse_areas: vec![],
                mmap_fd: None,
            }
        };
        (0..VFIO_PCI_NUM_REGIONS).map(region).collect()
    }

    /// Interrupts in vfio's numbering; only MSI-X has any.
    pub fn irqs() -> Vec<IrqInfo> {
        let irq = |index| match index {
            VFIO_PCI_MSIX_IRQ_INDEX => IrqInfo {
                index,
                flags: VFIO_IRQ_INFO_EVENTFD | VFIO_IRQ_INFO_NORESIZE,
                count: MSIX_VECTORS as u32,
            },
            _ => IrqInfo {
                index,
                flags: 0,
                count: 0,
            },
        };
        (0..VFIO_PCI_NUM_IRQS).map(irq).collect()
    }

    /// The client is gone: the card is reset and forgets its memory and eventfds, ready for the next client.
    pub fn release(&mut self) {
        if !std::mem::take(&mut self.used) {
            return;
        }
        self.reset_card();
        self.host.iommu().clear();
        self.interrupts.clear();
        self.config = ConfigSpace::new(self.bar0);
        self.msix.fill(0);
        tracing::info!(card = self.name, "client gone, card reset");
    }

    fn reset_card(&self) {
        let (reply, done) = sync_channel(1);
        self.host.request(MmioRequest::Reset { reply });
        if done.recv().is_err() {
            tracing::error!(card = self.name, "the simulation has ended");
        }
        // Of before the reset.
        self.host.take_master_abort();
    }

    fn register(&self, offset: u32) -> u32 {
        let (reply, value) = sync_channel(1);
        self.host.request(MmioRequest::Read { offset, reply });
        value.recv().unwrap_or(u32::MAX)
    }

    /// Any bytes of BAR0, as reads of whole registers.
    fn read_registers(&self, offset: u64, to: &mut [u8]) {
        let mut at = 0;
        while at < to.len() {
            let address = offset + at as u64;
            let (register, lane) = (address & !3, (address % 4) as usize);
            let n = (4 - lane).min(to.len() - at);
            to[at..at + n]
                .copy_from_slice(&self.register(register as u32).to_le_bytes()[lane..lane + n]);
            at += n;
        }
    }

    fn write_registers(&self, offset: u64, from: &[u8]) {
        if offset % 4 != 0 || from.len() % 4 != 0 {
            tracing::warn!(
                card = self.name,
                offset,
                len = from.len(),
                "register write is not whole 32-bit words; ignored"
            );
            return;
        }
        for (i, word) in from.chunks_exact(4).enumerate() {
            let value = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            self.host.request(MmioRequest::Write {
                offset: offset as u32 + i as u32 * 4,
                value,
            });
        }
        if self.host.waiting() > POSTED_LIMIT {
            self.register(0);
        }
    }
}

fn inside(size: u64, offset: u64, len: usize) -> bool {
    offset
        .checked_add(len as u64)
        .is_some_and(|end| end <= size)
}

fn refused(what: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what.to_string())
}

/// Accesses outside a region read as ones and write nothing, as on PCI; an error would leave some clients waiting.
impl ServerBackend for Device {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        self.used = true;
        data.fill(0xff);
        match region {
            VFIO_PCI_CONFIG_REGION_INDEX => {
                if self.host.take_master_abort() {
                    self.config.master_abort();
                }
                self.config.read(offset as usize, data);
            }
            VFIO_PCI_BAR0_REGION_INDEX if inside(self.bar0, offset, data.len()) => {
                self.read_registers(offset, data)
            }
            config_space::MSIX_BAR if inside(self.msix.len() as u64, offset, data.len()) => {
                data.copy_from_slice(&self.msix[offset as usize..offset as usize + data.len()]);
            }
            _ => tracing::warn!(
                card = self.name,
                region,
                offset,
                len = data.len(),
                "read outside the card"
            ),
        }
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        self.used = true;
        match region {
            VFIO_PCI_CONFIG_REGION_INDEX => {
                if self.config.write(offset as usize, data) {
                    self.config = ConfigSpace::new(self.bar0);
                    self.reset_card();
                }
            }
            VFIO_PCI_BAR0_REGION_INDEX if inside(self.bar0, offset, data.len()) => {
                self.write_registers(offset, data)
            }
            config_space::MSIX_BAR if inside(self.msix.len() as u64, offset, data.len()) => {
                self.msix[offset as usize..offset as usize + data.len()].copy_from_slice(data);
            }
            _ => tracing::warn!(
                card = self.name,
                region,
                offset,
                len = data.len(),
                "write outside the card"
            ),
        }
        Ok(())
    }

    /// A range without a file is remembered as not accessible: ROMs and BARs of a virtual machine come so.
    fn dma_map(
        &mut self,
        flags: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        file: Option<File>,
    ) -> io::Result<()> {
        self.used = true;
        let writable = flags.contains(DmaMapFlags::WRITE);
        let map =
            |file: File| -> io::Result<Memory> { self.files.map(&file, offset, size, writable) };
        let memory = file.map(map).transpose();
        let mapped = memory.and_then(|m| {
            self.host
                .iommu()
                .map(address, size, m, writable)
                .map_err(refused)
        });
        mapped.inspect_err(|error| {
            tracing::warn!(
                card = self.name,
                "DMA range {address:#x}+{size:#x} refused: {error}"
            )
        })
    }

    fn dma_unmap(&mut self, flags: DmaUnmapFlags, address: u64, size: u64) -> io::Result<()> {
        self.used = true;
        let mut iommu = self.host.iommu();
        if flags.contains(DmaUnmapFlags::UNMAP_ALL) {
            iommu.clear();
        } else {
            iommu.unmap(address, size);
        }
        Ok(())
    }

    fn reset(&mut self) -> io::Result<()> {
        self.used = true;
        self.config = ConfigSpace::new(self.bar0);
        self.reset_card();
        Ok(())
    }

    fn set_irqs(
        &mut self,
        index: u32,
        flags: u32,
        start: u32,
        count: u32,
        files: Vec<File>,
    ) -> io::Result<()> {
        self.used = true;
        if index != VFIO_PCI_MSIX_IRQ_INDEX || flags & VFIO_IRQ_SET_ACTION_TRIGGER == 0 {
            return Ok(());
        }
        let range = start as usize..start.saturating_add(count) as usize;
        if range.end > MSIX_VECTORS {
            return Err(refused(format!(
                "there are no vectors {range:?}; the card has {MSIX_VECTORS}"
            )));
        }
        if flags & VFIO_IRQ_SET_DATA_EVENTFD != 0 {
            let mut files = files.into_iter();
            range.for_each(|vector| self.interrupts.set(vector, files.next()));
        } else if flags & VFIO_IRQ_SET_DATA_NONE != 0 {
            match count {
                0 => self.interrupts.clear(),
                _ => range.for_each(|vector| self.interrupts.signal(vector)),
            }
        }
        Ok(())
    }
}
