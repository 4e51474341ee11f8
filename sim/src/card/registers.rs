//! The host's register accesses, as an AXI4-Lite master.

use super::CardStats;
use crate::pcie::{HostSide, MmioRequest};
use crate::ports::{NicIn, NicOut};
use std::sync::mpsc::SyncSender;

/// Cycles after which an access that the core does not answer is given up; a host would see a completion timeout.
const TIMEOUT: u32 = 10_000;
/// What a read returns when nobody answers, as on PCIe.
const NOBODY: u32 = u32::MAX;

/// The access in progress.
#[derive(Default)]
enum State {
    #[default]
    Idle,
    /// Address or data not yet taken, or no response yet.
    Write,
    Read(SyncSender<u32>),
    /// The card is in reset.
    Reset(SyncSender<u32>),
}

/// The master.
#[derive(Default)]
pub(super) struct RegisterBus {
    state: State,
    age: u32,
}

impl RegisterBus {
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    /// Whether the host asked for a reset that has not begun.
    pub(super) fn wants_reset(&self) -> bool {
        matches!(self.state, State::Reset(_))
    }

    /// Reset is released.
    pub(super) fn reset_done(&mut self) {
        if let State::Reset(reply) = std::mem::take(&mut self.state) {
            // The asker may be gone; then nobody waits for the answer.
            let _ = reply.try_send(0);
        }
    }

    /// Sets this cycle's inputs from the outputs before its edge.
    pub(super) fn drive(
        &mut self,
        input: &mut NicIn,
        output: &NicOut,
        host: &HostSide,
        stats: &mut CardStats,
    ) {
        self.finish(input, output, stats);
        if self.is_idle() {
            self.start(input, host);
        }
    }

    /// Drops the valids that the core took at the edge before which it showed these readys: write address, write data,
    /// read address.
    pub(super) fn after_edge(
        input: &mut NicIn,
        [write_address, write_data, read_address]: [u8; 3],
    ) {
        input.s_axil_awvalid &= !write_address;
        input.s_axil_wvalid &= !write_data;
        input.s_axil_arvalid &= !read_address;
    }

    /// Ends an access that the core answers at this edge, or never.
    fn finish(&mut self, input: &mut NicIn, output: &NicOut, stats: &mut CardStats) {
        (input.s_axil_bready, input.s_axil_rready) = (1, 1);
        let answer = match &self.state {
            State::Idle | State::Reset(_) => return,
            State::Write => output.s_axil_bvalid != 0,
            State::Read(_) => output.s_axil_rvalid != 0,
        };
        self.age += 1;
        let late = !answer && self.age > TIMEOUT;
        if !answer && !late {
            return;
        }
        if late {
            stats.mmio_timeouts += 1;
            tracing::error!(
                input.s_axil_awaddr,
                input.s_axil_araddr,
                "the core does not answer a register access"
            );
            (
                input.s_axil_awvalid,
                input.s_axil_wvalid,
                input.s_axil_arvalid,
            ) = (0, 0, 0);
        }
        if let State::Read(reply) = std::mem::take(&mut self.state) {
            // The asker may be gone; then nobody waits for the answer.
            let _ = reply.try_send(if late { NOBODY } else { output.s_axil_rdata });
        }
    }

    fn start(&mut self, input: &mut NicIn, host: &HostSide) {
        self.age = 0;
        match host.take() {
            None => {}
            Some(MmioRequest::Write { offset, value }) => {
                (input.s_axil_awaddr, input.s_axil_wdata) = (offset, value);
                (input.s_axil_awvalid, input.s_axil_wvalid) = (1, 1);
                self.state = State::Write;
            }
            Some(MmioRequest::Read { offset, reply }) => {
                (input.s_axil_araddr, input.s_axil_arvalid) = (offset, 1);
                self.state = State::Read(reply);
            }
            Some(MmioRequest::Reset { reply }) => self.state = State::Reset(reply),
        }
    }
}
