//! A card whose core is stepped one clock cycle at a time: the core with its MAC, its PCIe side and its register bus.

use super::registers::RegisterBus;
use super::{Card, CardStats, Nic, Seen};
use crate::mac::{Beat, Receive, Sent, Transmit};
use crate::pcie::{HostSide, Posted, ReadRequest, Reads, WriteBeat};
use crate::ports::{NicIn, NicOut};
use crate::scenario::Scenario;
use crate::time::{Ps, Rate};
use rand_chacha::rand_core::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

/// Cycles for which reset is held.
const RESET_CYCLES: u32 = 16;

/// A card around a core that is stepped.
pub struct ClockedCard {
    nic: Box<dyn Nic>,
    host: Arc<HostSide>,
    input: NicIn,
    output: NicOut,
    now: Ps,
    period: Ps,
    transmit: Transmit,
    receive: Receive,
    reads: Reads,
    posted: Posted,
    registers: RegisterBus,
    reset_left: u32,
    /// Last time at which anything happened.
    active_at: Ps,
    sent: Vec<Sent>,
    seen: Option<Vec<Seen>>,
    stats: CardStats,
}

impl ClockedCard {
    /// Card number `index` of a scenario. It comes up in reset, as after power-on.
    pub fn new(
        scenario: &Scenario,
        index: usize,
        rate: Rate,
        seed: u64,
        nic: Box<dyn Nic>,
        host: Arc<HostSide>,
    ) -> ClockedCard {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(1 << 32 | index as u64);
        ClockedCard {
            nic,
            host,
            input: NicIn::default(),
            output: NicOut::default(),
            now: 0,
            period: scenario.card.period(),
            transmit: Transmit::new(rate, scenario.card.tx_fifo_beats),
            receive: Receive::default(),
            reads: Reads::new(&scenario.pcie, rng),
            posted: Posted::new(&scenario.pcie),
            registers: RegisterBus::default(),
            reset_left: RESET_CYCLES,
            active_at: 0,
            sent: vec![],
            seen: None,
            stats: CardStats::default(),
        }
    }

    /// One cycle: transfers that the core's last outputs and our inputs agree on happen at this clock edge.
    fn cycle(&mut self) {
        let now = self.now;
        self.input.reset = u8::from(self.reset_left > 0);
        self.pcie_side(now);
        self.port(now);
        if self.reset_left > 0 {
            self.receive.hide();
        } else {
            self.registers
                .drive(&mut self.input, &self.output, &self.host, &mut self.stats);
        }
        let readys = [
            self.output.s_axil_awready,
            self.output.s_axil_wready,
            self.output.s_axil_arready,
        ];
        self.nic.step(&self.input, &mut self.output);
        RegisterBus::after_edge(&mut self.input, readys);
        self.step_reset();
        if !self.is_idle() {
            self.active_at = now;
        }
        self.stats.cycles += 1;
        self.now += self.period;
    }

    fn is_idle(&self) -> bool {
        self.output.busy == 0
            && self.reset_left == 0
            && self.registers.is_idle()
            && self.reads.is_idle()
            && self.posted.is_idle()
            && self.receive.is_idle()
            && self.transmit.is_idle()
    }

    fn pcie_side(&mut self, now: Ps) {
        let (input, output, counters) = (&mut self.input, &self.output, &mut self.stats.pcie);
        let running = self.reset_left == 0;
        self.posted.advance(now, &self.host, counters);
        input.s_rd_cpl_valid = 0;
        if let Some(completion) = self.reads.completion(now, &self.host, counters) {
            input.s_rd_cpl_valid = 1;
            input.s_rd_cpl_tag = completion.tag;
            input.s_rd_cpl_chunk = completion.chunk;
            input.s_rd_cpl_data = completion.data;
            input.s_rd_cpl_err = u8::from(completion.error);
        }
        input.m_rd_req_ready = u8::from(running && self.reads.ready());
        if input.m_rd_req_ready & output.m_rd_req_valid != 0 {
            let (addr, len, tag) = (
                output.m_rd_req_addr,
                output.m_rd_req_length,
                output.m_rd_req_tag,
            );
            self.reads
                .request(now, ReadRequest { addr, len, tag }, counters);
        }
        input.m_wr_ready = u8::from(running && self.posted.ready(now));
        if input.m_wr_ready & output.m_wr_valid != 0 {
            let beat = WriteBeat {
                addr: output.m_wr_addr,
                data: output.m_wr_data,
                enables: output.m_wr_be,
                first: output.m_wr_sop != 0,
                last: output.m_wr_eop != 0,
            };
            self.posted.write(now, beat, counters);
        }
        input.m_irq_ready = u8::from(running);
        if input.m_irq_ready & output.m_irq_valid != 0 {
            self.posted.interrupt(now, output.m_irq_vector, counters);
        }
    }

    fn port(&mut self, now: Ps) {
        let (input, output, counters) = (&mut self.input, &self.output, &mut self.stats.mac);
        input.m_axis_tx_tready = u8::from(self.reset_left == 0 && self.transmit.ready(now));
        if input.m_axis_tx_tready & output.m_axis_tx_tvalid != 0 {
            let beat = Beat {
                data: output.m_axis_tx_tdata,
                keep: output.m_axis_tx_tkeep,
                last: output.m_axis_tx_tlast != 0,
            };
            if let Some(sent) = self.transmit.accept(now, &beat, counters) {
                if let Some(seen) = &mut self.seen {
                    seen.push(Seen {
                        at: sent.end,
                        sent: true,
                        frame: sent.frame.clone(),
                    });
                }
                self.sent.push(sent);
            }
        }
        input.s_axis_rx_tvalid = 0;
        let Some((beat, whole)) = self.receive.beat(now, counters) else {
            return;
        };
        if let (Some(seen), Some(frame)) = (&mut self.seen, whole) {
            seen.push(Seen {
                at: now,
                sent: false,
                frame,
            });
        }
        if let (Some(beat), 0) = (beat, self.reset_left) {
            input.s_axis_rx_tvalid = 1;
            input.s_axis_rx_tdata = beat.data;
            input.s_axis_rx_tkeep = beat.keep;
            input.s_axis_rx_tlast = u8::from(beat.last);
        }
    }

    /// Begins a reset that the host asked for, and ends one when its cycles are over and every posted write is visible.
    fn step_reset(&mut self) {
        if self.reset_left > 1 || (self.reset_left == 1 && self.posted.is_idle()) {
            self.reset_left -= 1;
            if self.reset_left == 0 {
                self.registers.reset_done();
            }
        } else if self.reset_left == 0 && self.registers.wants_reset() {
            self.reset_left = RESET_CYCLES;
            self.reads.clear();
            self.posted.clear();
            self.transmit.clear();
            self.receive.hide();
            self.stats.resets += 1;
        }
    }
}

impl Card for ClockedCard {
    fn record(&mut self) {
        self.seen = Some(vec![]);
    }

    fn expect(&mut self, first_bit: Ps, last_bit: Ps, frame: Vec<u8>) {
        self.receive.expect(first_bit, last_bit, frame);
    }

    fn take_sent(&mut self) -> Vec<Sent> {
        std::mem::take(&mut self.sent)
    }

    fn take_seen(&mut self, end: Ps) -> Vec<Seen> {
        let seen = self.seen.as_mut();
        seen.map_or(vec![], |seen| Seen::take_before(seen, end))
    }

    fn stats(&self) -> CardStats {
        self.stats
    }

    fn active_at(&self) -> Ps {
        self.active_at
    }

    fn run_until(&mut self, end: Ps) {
        while self.now < end {
            self.cycle();
        }
    }
}
