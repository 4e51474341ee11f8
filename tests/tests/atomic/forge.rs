//! A card whose driver hands over work requests that it would refuse: they are changed between the ring and the doorbell.

use mprdma_host::device::{Device, DeviceError, Identity};
use mprdma_host::memory::Memory;
use mprdma_sim::inproc::InProcessDevice;
use mprdma_spec::csr;
use mprdma_spec::descriptor::{sq_wqe, WrOpcode};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Change of a work request.
pub type Change = fn(&mut [u8]);

/// The device; [`Forge::next`] changes every ATOMIC that is posted from then on.
pub struct Forge {
    card: InProcessDevice,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    mapped: Vec<(u64, Arc<Memory>)>,
    change: Option<Change>,
}

impl Forge {
    pub fn new(card: InProcessDevice) -> Forge {
        Forge {
            card,
            state: Mutex::default(),
        }
    }

    pub fn next(&self, change: Option<Change>) {
        self.state().change = change;
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the ATOMICs in all rings: whatever looks like one.
    fn change_all(&self, change: Change) -> Result<(), DeviceError> {
        let state = self.state();
        for (_, memory) in &state.mapped {
            for at in (0..memory.bytes()).step_by(sq_wqe::BYTES) {
                let mut entry = [0; sq_wqe::BYTES];
                let broken = |error| panic!("memory that is mapped: {error}");
                memory.read(at, &mut entry).unwrap_or_else(broken);
                let opcode = sq_wqe::OPCODE.get(&entry);
                let atomic = opcode == WrOpcode::AtomicFetchAndAdd as u64
                    || opcode == WrOpcode::AtomicCmpAndSwp as u64;
                let whole = sq_wqe::LENGTH.get(&entry) == 8 && sq_wqe::RADDR.get(&entry) != 0;
                if atomic && whole {
                    change(&mut entry);
                    memory.write(at, &entry).unwrap_or_else(broken);
                }
            }
        }
        Ok(())
    }
}

impl Device for Forge {
    fn identity(&self) -> &Identity {
        self.card.identity()
    }

    fn read32(&self, offset: u32) -> Result<u32, DeviceError> {
        self.card.read32(offset)
    }

    fn write32(&self, offset: u32, value: u32) -> Result<(), DeviceError> {
        let change = self.state().change;
        let rings = offset >= csr::QP_DOORBELLS && offset % csr::DOORBELL_PAGE == csr::DB_SQ;
        if let Some(change) = change.filter(|_| rings) {
            self.change_all(change)?;
        }
        self.card.write32(offset, value)
    }

    fn map_dma(&self, memory: &Arc<Memory>, iova: u64) -> Result<(), DeviceError> {
        self.card.map_dma(memory, iova)?;
        self.state().mapped.push((iova, Arc::clone(memory)));
        Ok(())
    }

    fn unmap_dma(&self, iova: u64, bytes: u64) -> Result<(), DeviceError> {
        self.state().mapped.retain(|(at, _)| *at != iova);
        self.card.unmap_dma(iova, bytes)
    }

    fn wait_interrupt(&self, vector: usize, timeout: Duration) -> Result<bool, DeviceError> {
        self.card.wait_interrupt(vector, timeout)
    }

    fn reset(&self) -> Result<(), DeviceError> {
        self.card.reset()
    }

    fn relax(&self) -> Result<(), DeviceError> {
        self.card.relax()
    }
}
