//! BAR0: the register bus, control, counters, doorbells, resets.

use super::events::Event;
use super::timing::{clear_cycles, REGISTER_READ, REGISTER_WRITE, RESET};
use super::{StandIn, Tables};
use crate::pcie::MmioRequest;
use crate::time::Ps;
use mprdma_spec::config::{self, Config, CLOCK_MHZ};
use mprdma_spec::counter::Counter;
use mprdma_spec::csr;
use std::sync::mpsc::SyncSender;

const WINDOW_WORDS: usize = csr::CMD_WINDOW_BYTES as usize / 4;
/// Bytes of the counters' registers.
const COUNTER_BYTES: u32 = 8 * Counter::ALL.len() as u32;
/// Behind the last interval register.
const IRQ_INTERVALS_END: u32 = csr::IRQ_INTERVALS + csr::IRQ_INTERVAL_BYTES;

/// What only a hard reset clears.
pub(super) struct Registers {
    /// The card does not take the next access before.
    bus_free: Ps,
    /// An event for that time is under way.
    waits: bool,
    build_id: u64,
    enabled: bool,
    pub(super) mac: [u8; 6],
    pub(super) arguments: [u8; csr::CMD_WINDOW_BYTES as usize],
    pub(super) result: [u8; csr::CMD_WINDOW_BYTES as usize],
    /// Result code of the last command.
    pub(super) outcome: u8,
    cycles_high: u32,
    counter_high: u32,
    /// Who waits for the end of a reset.
    resetting: Option<SyncSender<u32>>,
}

/// Build id of the model: as an image's a hash of configuration and version, but of no image.
fn build_id(config: &Config) -> u64 {
    config::build_id(&format!("model {config:?} {}", env!("CARGO_PKG_VERSION")))
}

impl Registers {
    pub(super) fn new(config: &Config) -> Registers {
        Registers {
            bus_free: 0,
            waits: false,
            build_id: build_id(config),
            enabled: false,
            mac: [0; 6],
            arguments: [0; csr::CMD_WINDOW_BYTES as usize],
            result: [0; csr::CMD_WINDOW_BYTES as usize],
            outcome: 0,
            cycles_high: 0,
            counter_high: 0,
            resetting: None,
        }
    }

    pub(super) fn enabled(&self) -> bool {
        self.enabled
    }
}

/// Word `index` of a window.
fn word(window: &[u8], index: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| window[4 * index + i]))
}

impl StandIn {
    /// Takes the host's next access when the bus is free.
    pub(super) fn look_for_requests(&mut self) {
        if self.registers.waits || self.host.waiting() == 0 || self.registers.resetting.is_some() {
            return;
        }
        if self.is_in_reset() || self.now < self.registers.bus_free {
            let at = self.registers.bus_free.max(self.born);
            self.registers.waits = true;
            self.schedule(at, Event::Bus);
            return;
        }
        let cost = match self.host.take() {
            None => return,
            Some(MmioRequest::Write { offset, value }) => {
                self.write_register(offset, value);
                REGISTER_WRITE
            }
            Some(MmioRequest::Read { offset, reply }) => {
                let value = self.read_register(offset);
                // The asker may be gone; then nobody waits for the answer.
                let _ = reply.try_send(value);
                REGISTER_READ
            }
            Some(MmioRequest::Reset { reply }) => {
                self.hard_reset(reply);
                0
            }
        };
        self.registers.bus_free = self.registers.bus_free.max(self.now) + self.cycles(cost);
        self.active_at = self.now;
        self.look_for_requests();
    }

    pub(super) fn bus_is_free(&mut self) {
        self.registers.waits = false;
    }

    fn hard_reset(&mut self, reply: SyncSender<u32>) {
        let (mut registers, born) = (Registers::new(&self.config), self.now + self.cycles(RESET));
        registers.resetting = Some(reply);
        self.registers = registers;
        self.clear(born);
        self.born = born;
        self.stats.resets += 1;
        self.schedule(born, Event::ResetEnds);
    }

    /// A reset ends when its time is over and every posted write is visible.
    pub(super) fn try_to_end_reset(&mut self) {
        if !self.dma.is_settled() {
            self.born = self.now + self.cycles(1);
            self.tables.ready_at = self.born + self.cycles(clear_cycles(&self.config));
            self.schedule(self.born, Event::ResetEnds);
        } else if let Some(reply) = self.registers.resetting.take() {
            // As for a read.
            let _ = reply.try_send(0);
        }
    }

    /// Empties everything but the registers.
    fn clear(&mut self, end: Ps) {
        self.events.reset();
        self.registers.waits = false;
        self.tables = Tables::new(&self.config, end + self.cycles(clear_cycles(&self.config)));
        self.registers.outcome = 0;
    }

    fn write_register(&mut self, offset: u32, value: u32) {
        match offset {
            csr::CONTROL => {
                self.registers.enabled = value & csr::CONTROL_ENABLE != 0;
                if value & csr::CONTROL_RESET != 0 {
                    self.registers.enabled = false;
                    self.clear(self.now + self.cycles(RESET));
                }
            }
            csr::MAC_LO => self.registers.mac[..4].copy_from_slice(&value.to_le_bytes()),
            csr::MAC_HI => self.registers.mac[4..].copy_from_slice(&value.to_le_bytes()[..2]),
            csr::CMD_OPCODE => self.start_command(value as u8),
            csr::IRQ_INTERVALS..IRQ_INTERVALS_END => {
                let vector = (offset - csr::IRQ_INTERVALS) as usize / 4;
                self.set_interval(vector, value as u16);
            }
            csr::CMD_ARGS..csr::CMD_RESULT => {
                let at = (offset - csr::CMD_ARGS) as usize / 4 * 4;
                self.registers.arguments[at..at + 4].copy_from_slice(&value.to_le_bytes());
            }
            csr::EQ_DOORBELLS.. => self.doorbell(offset, value as u16),
            _ => {}
        }
    }

    fn doorbell(&mut self, offset: u32, index: u16) {
        let (first, at) = match offset {
            csr::QP_DOORBELLS.. => (csr::QP_DOORBELLS, offset % csr::DOORBELL_PAGE),
            csr::CQ_DOORBELLS.. => (csr::CQ_DOORBELLS, offset % csr::DOORBELL_PAGE),
            _ => (csr::EQ_DOORBELLS, offset % csr::DOORBELL_PAGE),
        };
        let number = ((offset - first) / csr::DOORBELL_PAGE) as u16;
        match (first, at) {
            (csr::QP_DOORBELLS, csr::DB_SQ) => self.send_doorbell(number, index),
            (csr::QP_DOORBELLS, csr::DB_RQ) => self.receive_doorbell(number, index),
            (csr::CQ_DOORBELLS, csr::DB_CQ_CONSUMER) => self.cq_doorbell(number, index, false),
            (csr::CQ_DOORBELLS, csr::DB_CQ_ARM) => self.cq_doorbell(number, index, true),
            (csr::EQ_DOORBELLS, csr::DB_EQ_CONSUMER) => self.tables.eq.consumed(index),
            _ => {}
        }
    }

    fn read_register(&mut self, offset: u32) -> u32 {
        let (config, registers) = (&self.config, &mut self.registers);
        match offset {
            csr::MAGIC => csr::MAGIC_VALUE,
            csr::VERSION => csr::VERSION_VALUE,
            csr::BUILD_ID_LO => registers.build_id as u32,
            csr::BUILD_ID_HI => (registers.build_id >> 32) as u32,
            csr::CONFIG0 => {
                (config.qp_log2 | config.cq_log2 << 8 | config.eq_log2 << 16 | config.mr_log2 << 24)
                    as u32
            }
            csr::CONFIG1 => config.bitmap_slots as u32 | CLOCK_MHZ << 16,
            csr::CONTROL => registers.enabled.into(),
            csr::STATUS => {
                let ready = self.now >= self.tables.ready_at;
                let busy = !self.events.is_empty();
                u32::from(ready) * csr::STATUS_READY + u32::from(busy) * csr::STATUS_BUSY
            }
            csr::MAC_LO => word(&registers.mac, 0),
            csr::MAC_HI => u16::from_le_bytes([registers.mac[4], registers.mac[5]]).into(),
            csr::CMD_STATUS => {
                let busy = match self.tables.running {
                    Some(_) => csr::CMD_BUSY,
                    None => 0,
                };
                busy | u32::from(registers.outcome)
            }
            csr::TICK => self.tick(),
            csr::CYCLES_LO => {
                let cycles = self.clock.count(self.now.saturating_sub(self.born));
                registers.cycles_high = (cycles >> 32) as u32;
                cycles as u32
            }
            csr::CYCLES_HI => registers.cycles_high,
            csr::IRQ_INTERVALS..IRQ_INTERVALS_END => {
                let vector = (offset - csr::IRQ_INTERVALS) as usize / 4;
                self.tables.moderator.interval(vector).into()
            }
            csr::CMD_ARGS..csr::CMD_RESULT => {
                word(&registers.arguments, (offset - csr::CMD_ARGS) as usize / 4)
            }
            csr::CMD_RESULT.. if offset < csr::CMD_RESULT + csr::CMD_WINDOW_BYTES => {
                word(&registers.result, (offset - csr::CMD_RESULT) as usize / 4)
            }
            csr::COUNTERS.. if offset < csr::COUNTERS + COUNTER_BYTES => {
                let at = (offset - csr::COUNTERS) as usize;
                if at % 8 != 0 {
                    return registers.counter_high;
                }
                let value = self.tables.counters[at / 8];
                registers.counter_high = (value >> 32) as u32;
                value as u32
            }
            _ => 0,
        }
    }
}

const _: () = assert!(WINDOW_WORDS == 32, "the window's index has five bits");
