//! The same cards and network in this process: a driver under test steps the simulation whenever it looks at the card.
//!
//! Nothing runs by itself, so a test with one thread gets the same trace every time.

use crate::engine::Cores;
use crate::fabric::Tap;
use crate::pcie::{FileCache, HostSide, InterruptSink, MmioRequest, Wake, WriteSink};
use crate::scenario::{Event, LinkRule, Scenario};
use crate::time::{Ps, NS};
use crate::verilated::CoreError;
use crate::world::{Options, World, WorldError, WorldStats};
use mprdma_host::device::{Device, DeviceError, Identity};
use mprdma_host::memory::Memory;
use mprdma_spec::config::{MSIX_VECTORS, PCI_DEVICE, PCI_VENDOR, SIM};
use mprdma_spec::csr;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{sync_channel, Receiver};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How far the simulation is stepped between two looks for the answer to a register access.
const GLANCE: Ps = 64 * NS;

/// The simulation cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum InProcessError {
    /// No core.
    #[error(transparent)]
    Core(#[from] CoreError),
    /// No world.
    #[error(transparent)]
    World(#[from] WorldError),
}

/// A simulation in this process. Clones are the same simulation.
#[derive(Clone)]
pub struct InProcess {
    world: Arc<Mutex<World>>,
    wake: Wake,
}

impl InProcess {
    /// The scenario with the engine that the options name.
    pub fn new(scenario: &Scenario, options: &Options) -> Result<InProcess, InProcessError> {
        let cores = options.engine.cores(scenario, None)?;
        InProcess::with_cores(scenario, options, cores)
    }

    /// The scenario with other cores.
    pub fn with_cores(
        scenario: &Scenario,
        options: &Options,
        cores: impl Into<Cores>,
    ) -> Result<InProcess, InProcessError> {
        let world = World::new(scenario, options, cores)?;
        Ok(InProcess {
            wake: world.wake(),
            world: Arc::new(Mutex::new(world)),
        })
    }

    /// A card as the driver sees it. Dropping it resets the card, so that it can be opened again.
    pub fn device(&self, card: usize) -> InProcessDevice {
        let host = Arc::clone(self.world().host(card));
        let raised = Arc::new(AtomicU64::new(0));
        host.set_interrupts(Some(Box::new(Raised(Arc::clone(&raised)))));
        let identity = Identity {
            address: format!("in-process:card{card}"),
            backend: "in-process",
            vendor: PCI_VENDOR,
            device: PCI_DEVICE,
            bar0_bytes: csr::bar0_bytes(SIM.qp_log2),
            vectors: MSIX_VECTORS,
            numa_node: None,
        };
        InProcessDevice {
            simulation: self.clone(),
            host,
            identity,
            raised,
            files: Mutex::default(),
        }
    }

    /// Shows what a card writes into memory to `sink`, in order, until another takes its place.
    pub fn watch(&self, card: usize, sink: Option<Box<dyn WriteSink>>) {
        self.world().host(card).set_writes(sink);
    }

    /// Simulated time, ps.
    pub fn now(&self) -> Ps {
        self.world().now()
    }

    /// Runs for so long.
    pub fn run(&self, length: Ps) {
        let mut world = self.world();
        let end = world.now() + length;
        while world.now() < end {
            let left = end - world.now();
            world.step(left);
        }
    }

    /// Whether nothing more will happen by itself.
    pub fn is_idle(&self) -> bool {
        self.world().is_idle()
    }

    /// Changes links; says how many matched.
    pub fn change_link(&self, rule: &LinkRule, down: Option<bool>) -> usize {
        self.world().change_link(rule, down)
    }

    /// Adds events whose times count from now; says how many links they change.
    pub fn schedule(&self, events: &[Event]) -> usize {
        self.world().schedule(events)
    }

    /// Lets `tap` see every frame of the network, and drop what it likes.
    pub fn set_tap(&self, tap: Box<dyn Tap>) {
        self.world().set_tap(tap);
    }

    /// Counters of everything.
    pub fn stats(&self) -> WorldStats {
        self.world().stats()
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Steps until the answer is there.
    fn answer(&self, answer: &Receiver<u32>) -> u32 {
        let mut world = self.world();
        loop {
            if let Ok(value) = answer.try_recv() {
                return value;
            }
            world.step(GLANCE);
        }
    }

    /// Steps one window; with nothing to do it lets other threads go first.
    fn advance(&self) {
        let mut world = self.world();
        if world.is_idle() {
            drop(world);
            std::thread::yield_now();
        } else {
            world.step(Ps::MAX);
        }
    }
}

/// Interrupts raised and not yet seen, one bit per vector.
struct Raised(Arc<AtomicU64>);

impl InterruptSink for Raised {
    fn raise(&mut self, vector: u8) {
        self.0.fetch_or(1 << (vector % 64), Ordering::AcqRel);
    }
}

/// A card of an [`InProcess`] simulation.
pub struct InProcessDevice {
    simulation: InProcess,
    host: Arc<HostSide>,
    identity: Identity,
    raised: Arc<AtomicU64>,
    files: Mutex<FileCache>,
}

impl InProcessDevice {
    fn check(&self, offset: u32) -> Result<(), DeviceError> {
        let bar0_bytes = self.identity.bar0_bytes;
        match offset % 4 == 0 && u64::from(offset) < bar0_bytes {
            true => Ok(()),
            false => Err(DeviceError::OutOfBar { offset, bar0_bytes }),
        }
    }

    fn refused(&self, what: &'static str, error: impl std::fmt::Display) -> DeviceError {
        let source = io::Error::new(io::ErrorKind::InvalidInput, error.to_string());
        DeviceError::Refused {
            address: self.identity.address.clone(),
            what,
            source,
        }
    }

    /// Takes the vector's bit, if it is set.
    fn take(&self, vector: usize) -> bool {
        self.raised.fetch_and(!(1 << vector), Ordering::AcqRel) >> vector & 1 == 1
    }
}

impl Device for InProcessDevice {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn read32(&self, offset: u32) -> Result<u32, DeviceError> {
        self.check(offset)?;
        let (reply, answer) = sync_channel(1);
        self.host.request(MmioRequest::Read { offset, reply });
        Ok(self.simulation.answer(&answer))
    }

    fn write32(&self, offset: u32, value: u32) -> Result<(), DeviceError> {
        self.check(offset)?;
        self.host.request(MmioRequest::Write { offset, value });
        Ok(())
    }

    fn map_dma(&self, memory: &Arc<Memory>, iova: u64) -> Result<(), DeviceError> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = memory.bytes() as u64;
        let mapped = files
            .map(memory.file(), 0, bytes, true)
            .map_err(|e| self.refused("a DMA mapping", e))?;
        let done = self.host.iommu().map(iova, bytes, Some(mapped), true);
        done.map_err(|e| self.refused("a DMA mapping", e))
    }

    fn unmap_dma(&self, iova: u64, bytes: u64) -> Result<(), DeviceError> {
        match self.host.iommu().unmap(iova, bytes) {
            0 => Err(self.refused(
                "the end of a DMA mapping",
                format!("nothing is mapped in {iova:#x}+{bytes:#x}"),
            )),
            _ => Ok(()),
        }
    }

    /// Steps the simulation. When nothing happens in it any more, only another thread can raise the interrupt.
    fn wait_interrupt(&self, vector: usize, timeout: Duration) -> Result<bool, DeviceError> {
        let vectors = self.identity.vectors;
        if vector >= vectors {
            return Err(DeviceError::NoVector { vector, vectors });
        }
        let deadline = Instant::now() + timeout;
        loop {
            if self.take(vector) {
                return Ok(true);
            }
            let seen = self.simulation.wake.count();
            let left = deadline.saturating_duration_since(Instant::now());
            if self.simulation.is_idle() {
                if left.is_zero() {
                    return Ok(false);
                }
                self.simulation.wake.wait_at_most(seen, left);
            } else {
                self.simulation.advance();
                if left.is_zero() {
                    return Ok(self.take(vector));
                }
            }
        }
    }

    fn reset(&self) -> Result<(), DeviceError> {
        let (reply, answer) = sync_channel(1);
        self.host.request(MmioRequest::Reset { reply });
        self.simulation.answer(&answer);
        Ok(())
    }

    fn relax(&self) -> Result<(), DeviceError> {
        self.simulation.advance();
        Ok(())
    }
}

impl Drop for InProcessDevice {
    fn drop(&mut self) {
        if self.reset().is_err() {
            tracing::error!(card = self.identity.address, "reset failed");
        }
        self.host.iommu().clear();
        self.host.set_interrupts(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::card::fake::{self, FakeNic};
    use mprdma_host::memory::PageSize;
    use std::path::Path;

    const IOVA: u64 = 0x7000_0000;

    fn simulation() -> InProcess {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/small.toml");
        InProcess::with_cores(
            &Scenario::load(&file).unwrap(),
            &Options::default(),
            FakeNic::pair(),
        )
        .unwrap()
    }

    fn memory(device: &InProcessDevice) -> Arc<Memory> {
        let memory = Arc::new(Memory::allocate(8192, PageSize::Small).unwrap());
        device.map_dma(&memory, IOVA).unwrap();
        memory
    }

    #[test]
    fn a_driver_sends_a_frame_and_waits_for_the_interrupt() {
        let run = || {
            let simulation = simulation();
            let (a, b) = (simulation.device(0), simulation.device(1));
            let (from, to) = (memory(&a), memory(&b));
            let frame: [u8; 700] = std::array::from_fn(|i| i as u8);
            from.write(1, &frame).unwrap();
            assert_eq!(a.read32(fake::MAGIC).unwrap(), fake::MAGIC_VALUE);
            b.write32(fake::TARGET, IOVA as u32 + 64).unwrap();
            for (offset, value) in [
                (fake::SOURCE, IOVA as u32 + 1),
                (fake::LENGTH, 700),
                (fake::GO, 1),
            ] {
                a.write32(offset, value).unwrap();
            }
            assert!(b.wait_interrupt(0, Duration::from_secs(60)).unwrap());
            let mut got = [0; 702];
            to.read(63, &mut got).unwrap();
            assert_eq!((&got[1..701], got[701]), (&frame[..], 0));
            assert!(!b.wait_interrupt(0, Duration::ZERO).unwrap());
            simulation.now()
        };
        assert_eq!(run(), run(), "two runs take the same simulated time");
    }

    #[test]
    fn errors_are_typed_and_a_dropped_device_can_be_opened_again() {
        let simulation = simulation();
        let device = simulation.device(0);
        let memory = memory(&device);
        assert!(matches!(
            device.read32(2),
            Err(DeviceError::OutOfBar { .. })
        ));
        assert!(matches!(
            device.write32(8 << 20, 0),
            Err(DeviceError::OutOfBar { .. })
        ));
        assert!(matches!(
            device.wait_interrupt(8, Duration::ZERO),
            Err(DeviceError::NoVector { .. })
        ));
        assert!(matches!(
            device.map_dma(&memory, IOVA + 4096),
            Err(DeviceError::Refused { .. })
        ));
        assert!(matches!(
            device.unmap_dma(0, 4096),
            Err(DeviceError::Refused { .. })
        ));
        device.write32(fake::LENGTH, 9).unwrap();
        drop(device);
        let device = simulation.device(0);
        assert_eq!(device.read32(fake::LENGTH).unwrap(), 0);
        device.map_dma(&memory, IOVA).unwrap();
        device.unmap_dma(IOVA, 8192).unwrap();
    }

    #[test]
    fn two_threads_may_drive_two_cards() {
        let simulation = simulation();
        let (a, b) = (simulation.device(0), simulation.device(1));
        let (from, _to) = (memory(&a), memory(&b));
        from.write(0, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12])
            .unwrap();
        b.write32(fake::TARGET, IOVA as u32 + 64).unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| b.wait_interrupt(0, Duration::from_secs(60)).unwrap());
            for (offset, value) in [
                (fake::SOURCE, IOVA as u32),
                (fake::LENGTH, 700),
                (fake::GO, 1),
            ] {
                a.write32(offset, value).unwrap();
            }
            while a.read32(fake::GO).unwrap() != 1 {
                a.relax().unwrap();
            }
            assert!(waits.join().unwrap());
        });
    }
}
