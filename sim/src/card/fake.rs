//! A core for tests, in plain Rust: registers, DMA, frames and interrupts, with the handshakes of the real one.
//!
//! Writing 1 to `GO` reads a frame from `SOURCE` (`LENGTH` bytes) and sends it; 2 does so `COUNT` times. A received
//! frame is written to `TARGET`, its length to the word before it, and then vector 0 is raised.

use super::Nic;
use crate::lanes::{self, BEAT};
use crate::mac::Beat;
use crate::pcie::WriteBeat;
use crate::ports::{NicIn, NicOut};
use std::collections::VecDeque;

pub(crate) const MAGIC: u32 = 0x0;
pub(crate) const MAGIC_VALUE: u32 = 0x4d50_5244;
pub(crate) const GO: u32 = 0x10;
pub(crate) const SOURCE: u32 = 0x20;
pub(crate) const LENGTH: u32 = 0x28;
pub(crate) const TARGET: u32 = 0x30;
pub(crate) const COUNT: u32 = 0x38;
pub(crate) const RECEIVED: u32 = 0x3c;
pub(crate) const READ_ERRORS: u32 = 0x40;
/// A read of this register is never answered.
pub(crate) const DEAF: u32 = 0xf00;

#[derive(Default)]
pub(crate) struct FakeNic {
    registers: [u32; 32],
    answer_read: Option<u32>,
    answer_write: bool,
    left: u32,
    reads: VecDeque<(u64, u32, u8)>,
    waiting: [usize; 32],
    buffer: Vec<u8>,
    tx: VecDeque<Beat>,
    rx: Vec<u8>,
    writes: VecDeque<WriteBeat>,
    irqs: VecDeque<u8>,
}

impl FakeNic {
    /// The cores of two cards.
    pub(crate) fn pair() -> Vec<Box<dyn Nic>> {
        vec![Box::new(FakeNic::default()), Box::new(FakeNic::default())]
    }

    fn wide(&self, register: u32) -> u64 {
        let at = register as usize / 4;
        u64::from(self.registers[at]) | u64::from(self.registers[at + 1]) << 32
    }

    fn fetch(&mut self) {
        let (source, length) = (self.wide(SOURCE), self.registers[LENGTH as usize / 4]);
        self.buffer = vec![0; length as usize];
        let (mut at, end, mut tag) = (source, source + u64::from(length), 0);
        while at < end {
            let next = ((at / 512 + 1) * 512).min(end);
            self.reads.push_back((at, (next - at) as u32, tag));
            self.waiting[usize::from(tag)] = ((next - 1) / 64 - at / 64 + 1) as usize;
            (at, tag) = (next, tag + 1);
        }
    }

    fn complete(&mut self, input: &NicIn) {
        let (source, tag) = (self.wide(SOURCE), input.s_rd_cpl_tag);
        if input.s_rd_cpl_err != 0 {
            self.registers[READ_ERRORS as usize / 4] += 1;
            self.waiting[usize::from(tag)] = 0;
            self.left = 0;
            return;
        }
        let chunk = (source / 512 + u64::from(tag)) * 512 + u64::from(input.s_rd_cpl_chunk) * 64;
        for (lane, byte) in lanes::bytes(&input.s_rd_cpl_data).into_iter().enumerate() {
            let at = (chunk + lane as u64).wrapping_sub(source) as usize;
            if at < self.buffer.len() {
                self.buffer[at] = byte;
            }
        }
        self.waiting[usize::from(tag)] -= 1;
        if self.waiting.iter().all(|&w| w == 0) {
            let count = self.buffer.len().div_ceil(BEAT);
            for (i, chunk) in self.buffer.chunks(BEAT).enumerate() {
                let mut bytes = [0; BEAT];
                bytes[..chunk.len()].copy_from_slice(chunk);
                let beat = Beat {
                    data: lanes::words(&bytes),
                    keep: lanes::keep(chunk.len()),
                    last: i + 1 == count,
                };
                self.tx.push_back(beat);
            }
            self.left = self.left.saturating_sub(1);
            if self.left > 0 {
                self.fetch();
            }
        }
    }

    fn receive(&mut self, input: &NicIn) {
        let count = input.s_axis_rx_tkeep.trailing_ones() as usize;
        self.rx
            .extend_from_slice(&lanes::bytes(&input.s_axis_rx_tdata)[..count]);
        if input.s_axis_rx_tlast == 0 {
            return;
        }
        let target = self.wide(TARGET);
        let frame = std::mem::take(&mut self.rx);
        self.write(target, &frame);
        self.write(target - 4, &(frame.len() as u32).to_le_bytes());
        self.irqs.push_back(0);
        self.registers[RECEIVED as usize / 4] += 1;
    }

    fn write(&mut self, addr: u64, bytes: &[u8]) {
        let (mut at, end) = (addr, addr + bytes.len() as u64);
        while at < end {
            let base = at / 64 * 64;
            let to = (base + 64).min(end);
            let mut lane = [0; BEAT];
            let from = (at - addr) as usize;
            lane[(at - base) as usize..(to - base) as usize]
                .copy_from_slice(&bytes[from..(to - addr) as usize]);
            let enables = lanes::keep((to - base) as usize) & !lanes::keep((at - base) as usize);
            self.writes.push_back(WriteBeat {
                addr: base,
                data: lanes::words(&lane),
                enables,
                first: true,
                last: true,
            });
            at = to;
        }
    }

    fn registers(&mut self, input: &NicIn, before: &NicOut) {
        if before.s_axil_rvalid & input.s_axil_rready != 0 {
            self.answer_read = None;
        }
        if before.s_axil_bvalid & input.s_axil_bready != 0 {
            self.answer_write = false;
        }
        if input.s_axil_arvalid & before.s_axil_arready != 0 {
            let value = match input.s_axil_araddr {
                MAGIC => Some(MAGIC_VALUE),
                DEAF => None,
                at => Some(*self.registers.get(at as usize / 4).unwrap_or(&0)),
            };
            self.answer_read = value;
        }
        if input.s_axil_awvalid & input.s_axil_wvalid & before.s_axil_awready != 0 {
            self.answer_write = true;
            if let Some(register) = self.registers.get_mut(input.s_axil_awaddr as usize / 4) {
                *register = input.s_axil_wdata;
            }
            if input.s_axil_awaddr == GO {
                self.left = if input.s_axil_wdata == 2 {
                    self.registers[COUNT as usize / 4]
                } else {
                    1
                };
                self.fetch();
            }
        }
    }
}

impl Nic for FakeNic {
    fn step(&mut self, input: &NicIn, output: &mut NicOut) {
        if input.reset != 0 {
            *self = FakeNic::default();
            *output = NicOut::default();
            return;
        }
        let before = *output;
        self.registers(input, &before);
        if before.m_rd_req_valid & input.m_rd_req_ready != 0 {
            self.reads.pop_front();
        }
        if before.m_axis_tx_tvalid & input.m_axis_tx_tready != 0 {
            self.tx.pop_front();
        }
        if before.m_wr_valid & input.m_wr_ready != 0 {
            self.writes.pop_front();
        }
        if before.m_irq_valid & input.m_irq_ready != 0 {
            self.irqs.pop_front();
        }
        if input.s_rd_cpl_valid != 0 {
            self.complete(input);
        }
        if input.s_axis_rx_tvalid != 0 {
            self.receive(input);
        }
        self.present(output);
    }
}

impl FakeNic {
    fn present(&self, output: &mut NicOut) {
        *output = NicOut::default();
        output.s_axil_awready = 1;
        output.s_axil_wready = 1;
        output.s_axil_arready = 1;
        output.s_axil_bvalid = u8::from(self.answer_write);
        output.s_axil_rvalid = u8::from(self.answer_read.is_some());
        output.s_axil_rdata = self.answer_read.unwrap_or(0);
        if let Some(&(addr, length, tag)) = self.reads.front() {
            (
                output.m_rd_req_addr,
                output.m_rd_req_length,
                output.m_rd_req_tag,
            ) = (addr, length, tag);
            output.m_rd_req_valid = 1;
        }
        if let Some(beat) = self.tx.front() {
            (output.m_axis_tx_tdata, output.m_axis_tx_tkeep) = (beat.data, beat.keep);
            (output.m_axis_tx_tlast, output.m_axis_tx_tvalid) = (u8::from(beat.last), 1);
        }
        if let Some(beat) = self.writes.front() {
            (output.m_wr_addr, output.m_wr_data, output.m_wr_be) =
                (beat.addr, beat.data, beat.enables);
            (output.m_wr_sop, output.m_wr_eop, output.m_wr_valid) = (1, 1, 1);
        } else if let Some(&vector) = self.irqs.front() {
            (output.m_irq_vector, output.m_irq_valid) = (vector, 1);
        }
        let idle =
            self.left == 0 && self.reads.is_empty() && self.tx.is_empty() && self.writes.is_empty();
        output.busy = u8::from(!idle);
    }
}
