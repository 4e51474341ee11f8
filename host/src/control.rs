//! The card's registers: identification, readiness, the command window, counters and the clock.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mprdma_spec::command::{Opcode, Status};
use mprdma_spec::counter::Counter;
use mprdma_spec::csr;
use serde::Serialize;
use tracing::debug;

use crate::device::Device;
use crate::error::Error;
use crate::port::Mac;

/// How long the card may take to become ready after a reset.
pub const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the card may take over one command. Destroying a queue pair waits for its packets to leave the pipeline.
pub const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// A record of the command window.
pub type Window = [u8; csr::CMD_WINDOW_BYTES as usize];

/// What the card says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// Interface version: major in bits 31..16, minor in 15..0.
    pub version: u32,
    /// Hash of the image's configuration and Verilog.
    pub build_id: u64,
    /// Number of queue pairs.
    pub qps: usize,
    /// Number of completion queues.
    pub cqs: usize,
    /// Number of event queues.
    pub eqs: usize,
    /// Number of memory regions.
    pub mrs: usize,
    /// Slots of the reorder bitmap.
    pub bitmap_slots: u32,
    /// Core clock in MHz.
    pub clock_mhz: u32,
}

impl Capabilities {
    /// Whether the card does ATOMICs.
    ///
    /// # Errors
    /// [`Error::NoAtomics`]: its interface is older than they are.
    pub const fn expect_atomics(&self) -> Result<(), Error> {
        let card = self.version;
        if card < csr::VERSION_ATOMIC {
            return Err(Error::NoAtomics { card });
        }
        Ok(())
    }
}

/// The registers of one card.
#[derive(Debug)]
pub struct Control {
    device: Arc<dyn Device>,
    capabilities: Capabilities,
    window: Mutex<()>,
}

impl Control {
    /// Identifies the card, resets it if `reset` is set, and waits until it accepts commands.
    ///
    /// # Errors
    /// [`Error::NotOurs`], [`Error::WrongVersion`], [`Error::NotReady`] or a device error.
    pub fn open(device: Arc<dyn Device>, reset: bool) -> Result<Self, Error> {
        let address = device.identity().address.clone();
        let magic = device.read32(csr::MAGIC)?;
        if magic != csr::MAGIC_VALUE {
            return Err(Error::NotOurs {
                address,
                magic,
                expected: csr::MAGIC_VALUE,
            });
        }
        let version = device.read32(csr::VERSION)?;
        if version >> 16 != csr::VERSION_VALUE >> 16 {
            return Err(Error::WrongVersion {
                address,
                card: version,
                driver: csr::VERSION_VALUE,
            });
        }
        if reset {
            device.reset()?;
        }
        let (config0, config1) = (device.read32(csr::CONFIG0)?, device.read32(csr::CONFIG1)?);
        let entries = |shift: u32| 1usize << (config0 >> shift & 0xff).min(24);
        let build_id = u64::from(device.read32(csr::BUILD_ID_LO)?)
            | u64::from(device.read32(csr::BUILD_ID_HI)?) << 32;
        let capabilities = Capabilities {
            version,
            build_id,
            qps: entries(0),
            cqs: entries(8),
            eqs: entries(16),
            mrs: entries(24),
            bitmap_slots: config1 & 0xffff,
            clock_mhz: (config1 >> 16).max(1),
        };
        let control = Self {
            device,
            capabilities,
            window: Mutex::new(()),
        };
        control.wait_ready()?;
        debug!(%address, ?capabilities, "card is ready");
        Ok(control)
    }

    /// What the card says of itself.
    #[must_use]
    pub const fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// The device.
    #[must_use]
    pub const fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    fn wait_ready(&self) -> Result<(), Error> {
        let start = Instant::now();
        while self.device.read32(csr::STATUS)? & csr::STATUS_READY == 0 {
            if start.elapsed() > READY_TIMEOUT {
                let address = self.device.identity().address.clone();
                return Err(Error::NotReady {
                    address,
                    after: READY_TIMEOUT,
                });
            }
            self.device.relax()?;
        }
        Ok(())
    }

    /// Lets packets in and out.
    ///
    /// # Errors
    /// A device error.
    pub fn enable(&self) -> Result<(), Error> {
        Ok(self.device.write32(csr::CONTROL, csr::CONTROL_ENABLE)?)
    }

    /// The port's MAC address.
    ///
    /// # Errors
    /// A device error.
    pub fn mac(&self) -> Result<Mac, Error> {
        let (low, high) = (
            self.device.read32(csr::MAC_LO)?.to_le_bytes(),
            self.device.read32(csr::MAC_HI)?.to_le_bytes(),
        );
        Ok(Mac([low[0], low[1], low[2], low[3], high[0], high[1]]))
    }

    /// Sets the port's MAC address.
    ///
    /// # Errors
    /// A device error.
    pub fn set_mac(&self, mac: Mac) -> Result<(), Error> {
        let [a, b, c, d, e, f] = mac.0;
        self.device
            .write32(csr::MAC_LO, u32::from_le_bytes([a, b, c, d]))?;
        self.device
            .write32(csr::MAC_HI, u32::from_le_bytes([e, f, 0, 0]))?;
        Ok(())
    }

    /// Carries out one command and returns its result window.
    ///
    /// # Errors
    /// [`Error::Command`] with the card's answer, [`Error::CommandTimeout`], or a device error.
    pub fn command(&self, command: Opcode, arguments: &Window) -> Result<(), Error> {
        let _window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        self.run(command, arguments)
    }

    /// As [`command`](Self::command), and returns the result window.
    ///
    /// # Errors
    /// As [`command`](Self::command).
    pub fn query(&self, command: Opcode, arguments: &Window) -> Result<Window, Error> {
        let _window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        self.run(command, arguments)?;
        let mut result = [0; csr::CMD_WINDOW_BYTES as usize];
        for (i, dword) in result.chunks_exact_mut(4).enumerate() {
            dword.copy_from_slice(
                &self
                    .device
                    .read32(csr::CMD_RESULT + 4 * i as u32)?
                    .to_le_bytes(),
            );
        }
        Ok(result)
    }

    fn run(&self, command: Opcode, arguments: &Window) -> Result<(), Error> {
        let start = Instant::now();
        for (i, dword) in arguments.chunks_exact(4).enumerate() {
            let value = u32::from_le_bytes([dword[0], dword[1], dword[2], dword[3]]);
            self.device.write32(csr::CMD_ARGS + 4 * i as u32, value)?;
        }
        self.device.write32(csr::CMD_OPCODE, command as u32)?;
        let status = loop {
            let status = self.device.read32(csr::CMD_STATUS)?;
            if status & csr::CMD_BUSY == 0 {
                break status as u8;
            }
            if start.elapsed() > COMMAND_TIMEOUT {
                return Err(Error::CommandTimeout {
                    command,
                    after: COMMAND_TIMEOUT,
                });
            }
            self.device.relax()?;
        };
        debug!(?command, status, "command");
        match Status::from_code(status) {
            Some(Status::Ok) => Ok(()),
            Some(status) => Err(Error::Command { command, status }),
            None => Err(Error::UnknownStatus {
                command,
                code: status,
            }),
        }
    }

    /// Reads one counter.
    ///
    /// # Errors
    /// A device error.
    pub fn counter(&self, counter: Counter) -> Result<u64, Error> {
        let offset = csr::COUNTERS + 8 * counter as u32;
        let low = self.device.read32(offset)?;
        Ok(u64::from(low) | u64::from(self.device.read32(offset + 4)?) << 32)
    }

    /// Reads every counter, in register order.
    ///
    /// # Errors
    /// A device error.
    pub fn counters(&self) -> Result<Vec<(Counter, u64)>, Error> {
        let _window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        Counter::ALL
            .iter()
            .map(|counter| Ok((*counter, self.counter(*counter)?)))
            .collect()
    }

    /// Core clock cycles since the reset: time as the card counts it, simulated or not.
    ///
    /// # Errors
    /// A device error.
    pub fn cycles(&self) -> Result<u64, Error> {
        let _window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let low = self.device.read32(csr::CYCLES_LO)?;
        Ok(u64::from(low) | u64::from(self.device.read32(csr::CYCLES_HI)?) << 32)
    }

    /// Seconds of device time in `cycles` core clock cycles.
    #[must_use]
    pub fn seconds(&self, cycles: u64) -> f64 {
        cycles as f64 / (f64::from(self.capabilities.clock_mhz) * 1e6)
    }

    /// Waits until every earlier register write has reached the card: writes are posted, and a read does not overtake
    /// them. Needed before a peer is told of what a doorbell announces.
    ///
    /// # Errors
    /// A device error.
    pub fn flush(&self) -> Result<(), Error> {
        self.tick().map(drop)
    }

    /// The protocol clock, in 64 ns ticks; wraps.
    ///
    /// # Errors
    /// A device error.
    pub fn tick(&self) -> Result<u32, Error> {
        Ok(self.device.read32(csr::TICK)?)
    }
}
