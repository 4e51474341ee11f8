//! Protection domains and memory regions.

use std::ops::BitOr;
use std::sync::{Arc, Mutex};

use mprdma_spec::command::{
    mr_image, Opcode, RIGHT_LOCAL_WRITE, RIGHT_REMOTE_ATOMIC, RIGHT_REMOTE_READ, RIGHT_REMOTE_WRITE,
};
use tracing::debug;

use super::context::{lock, Context, Kind};
use super::image::Image;
use super::numbers::{IovaSpace, Number};
use crate::device::Device;
use crate::error::Error;
use crate::memory::Memory;

/// Rights of a region or a queue pair (`ibv_access_flags`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access(u64);

impl Access {
    /// Local reading only.
    pub const NONE: Self = Self(0);
    /// The card may write for local requests.
    pub const LOCAL_WRITE: Self = Self(RIGHT_LOCAL_WRITE);
    /// Peers may write.
    pub const REMOTE_WRITE: Self = Self(RIGHT_REMOTE_WRITE);
    /// Peers may read.
    pub const REMOTE_READ: Self = Self(RIGHT_REMOTE_READ);
    /// Peers may do ATOMICs.
    pub const REMOTE_ATOMIC: Self = Self(RIGHT_REMOTE_ATOMIC);

    /// The `RIGHT_` bits.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }
}

impl BitOr for Access {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Memory that the device can reach. Unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    device: Arc<dyn Device>,
    memory: Arc<Memory>,
    iova: u64,
    iovas: Arc<Mutex<IovaSpace>>,
}

impl Mapping {
    pub(super) fn new(
        device: &Arc<dyn Device>,
        memory: Arc<Memory>,
        iovas: &Arc<Mutex<IovaSpace>>,
    ) -> Result<Self, Error> {
        let (bytes, align) = (memory.bytes() as u64, memory.page_bytes() as u64);
        let iova = lock(iovas).take(bytes, align).ok_or(Error::Exhausted {
            what: "device address range",
            limit: 1,
        })?;
        if let Err(error) = device.map_dma(&memory, iova) {
            lock(iovas).give(iova, bytes);
            return Err(error.into());
        }
        Ok(Self {
            device: Arc::clone(device),
            memory,
            iova,
            iovas: Arc::clone(iovas),
        })
    }

    pub const fn iova(&self) -> u64 {
        self.iova
    }

    pub fn memory(&self) -> &Memory {
        &self.memory
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let bytes = self.memory.bytes() as u64;
        match self.device.unmap_dma(self.iova, bytes) {
            Ok(()) => lock(&self.iovas).give(self.iova, bytes),
            // The address stays taken: the device may still reach it.
            Err(error) => debug!(%error, iova = self.iova, "unmapping failed"),
        }
    }
}

/// A protection domain: a queue pair reaches the regions of its own domain only. Clones are the same domain.
#[derive(Clone, Debug)]
pub struct Pd(Arc<PdInner>);

#[derive(Debug)]
struct PdInner {
    number: Number,
    context: Context,
}

impl Pd {
    pub(super) fn new(context: Context, number: Number) -> Self {
        Self(Arc::new(PdInner { number, context }))
    }

    /// The card it belongs to.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// Its number on the card.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.0.number.get()
    }

    /// Registers `length` bytes of `memory` from `offset` on; neither needs any alignment. Work requests and peers name
    /// the bytes by their addresses in this process, see [`Mr::addr`].
    ///
    /// # Errors
    /// [`Error::RegionBounds`], [`Error::Exhausted`], or the card's or device's refusal.
    pub fn register(
        &self,
        memory: &Arc<Memory>,
        offset: usize,
        length: usize,
        access: Access,
    ) -> Result<Mr, Error> {
        if offset
            .checked_add(length)
            .is_none_or(|end| end > memory.bytes())
        {
            return Err(Error::RegionBounds {
                offset,
                bytes: length,
                size: memory.bytes(),
            });
        }
        let context = self.context();
        let mapping = context.map(memory)?;
        let number = context.number(Kind::Mr)?;
        let key = number.get() << 8 | u32::from(context.generation(number.get()));
        let addr = memory.address() + offset as u64;
        let mut image = Image::new();
        image
            .set(mr_image::KEY, key)
            .set(mr_image::PD, self.number())
            .set(mr_image::RIGHTS, access.bits())
            .set(mr_image::VA, addr)
            .set(mr_image::IOVA, mapping.iova() + offset as u64)
            .set(mr_image::LENGTH, length as u64);
        context.control().command(Opcode::RegisterMr, &image.0)?;
        Ok(Mr {
            image,
            key,
            addr,
            offset,
            length,
            _number: number,
            mapping,
            pd: self.clone(),
        })
    }
}

/// A registered memory region. Deregistered when dropped.
#[derive(Debug)]
pub struct Mr {
    image: Image,
    key: u32,
    addr: u64,
    offset: usize,
    length: usize,
    _number: Number,
    mapping: Arc<Mapping>,
    pd: Pd,
}

impl Mr {
    /// Key for local requests.
    #[must_use]
    pub const fn lkey(&self) -> u32 {
        self.key
    }

    /// Key for peers.
    #[must_use]
    pub const fn rkey(&self) -> u32 {
        self.key
    }

    /// Address of the first byte, as requests name it.
    #[must_use]
    pub const fn addr(&self) -> u64 {
        self.addr
    }

    /// Device address of the first byte: what the card puts on the bus.
    #[must_use]
    pub fn iova(&self) -> u64 {
        self.mapping.iova() + self.offset as u64
    }

    /// Bytes.
    #[must_use]
    pub const fn length(&self) -> usize {
        self.length
    }

    /// Copies bytes out of the region.
    ///
    /// # Errors
    /// [`Error::RegionBounds`].
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), Error> {
        self.check(offset, into.len())?;
        Ok(self.mapping.memory().read(self.offset + offset, into)?)
    }

    /// Copies bytes into the region.
    ///
    /// # Errors
    /// [`Error::RegionBounds`].
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), Error> {
        self.check(offset, from.len())?;
        Ok(self.mapping.memory().write(self.offset + offset, from)?)
    }

    fn check(&self, offset: usize, bytes: usize) -> Result<(), Error> {
        if offset
            .checked_add(bytes)
            .is_none_or(|end| end > self.length)
        {
            return Err(Error::RegionBounds {
                offset,
                bytes,
                size: self.length,
            });
        }
        Ok(())
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        self.pd.context().remove(Opcode::DeregisterMr, &self.image);
    }
}
