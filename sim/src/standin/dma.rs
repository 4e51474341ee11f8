//! The card's way to host memory, transfer by transfer: the latencies and rates of `pcie`, the same checked memory.

use super::timing::BLOCK;
use crate::pcie::{Access, HostSide, PcieCounters, PACKET_OVERHEAD};
use crate::scenario::Pcie;
use crate::time::{Ps, Rate, NS};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::collections::VecDeque;

/// A posted write lies inside one aligned block of so many bytes.
const WRITE_BLOCK: u64 = 256;

enum Posted {
    Write { addr: u64, bytes: Vec<u8> },
    Interrupt(u8),
}

/// Reads, posted writes and interrupts.
pub(super) struct Dma {
    config: Pcie,
    rate: Rate,
    rng: ChaCha8Rng,
    /// When the completions asked for so far have come.
    reads_done: Ps,
    /// When the writes posted so far are on the bus.
    writes_done: Ps,
    posted: VecDeque<(Ps, Posted)>,
}

/// Aligned blocks of `size` bytes that a range touches.
pub(super) fn blocks(addr: u64, bytes: u64, size: u64) -> u64 {
    match bytes {
        0 => 0,
        _ => (addr % size + bytes).div_ceil(size),
    }
}

impl Dma {
    pub(super) fn new(config: &Pcie, rng: ChaCha8Rng) -> Dma {
        Dma {
            config: config.clone(),
            rate: Rate::from_gbps(config.rate_gbps),
            rng,
            reads_done: 0,
            writes_done: 0,
            posted: VecDeque::new(),
        }
    }

    /// Asks for bytes at time `now`. Says when the last of them is there, and whether a request is answered with an
    /// error.
    pub(super) fn ask(
        &mut self,
        now: Ps,
        addr: u64,
        bytes: u64,
        counters: &mut PcieCounters,
    ) -> (Ps, bool) {
        let requests = blocks(addr, bytes, BLOCK);
        counters.reads += requests;
        counters.read_bytes += bytes;
        let (mut latest, mut fails) = (0, false);
        for _ in 0..requests {
            latest = latest.max(self.rng.random_range(0..=self.config.jitter_ns) * NS);
            fails |=
                self.config.read_error > 0.0 && self.rng.random::<f64>() < self.config.read_error;
        }
        let packets = requests.max(bytes.div_ceil(self.config.max_payload.into()));
        counters.completions += packets;
        let ready = now + self.config.read_latency_ns * NS + latest;
        let transfer = self.rate.time(bytes + packets * PACKET_OVERHEAD);
        self.reads_done = ready.max(self.reads_done + transfer);
        (self.reads_done, fails)
    }

    /// The bytes that were asked for, at the time at which they come; false when they cannot be read.
    pub(super) fn fetch(
        now: Ps,
        addr: u64,
        to: &mut [u8],
        host: &HostSide,
        counters: &mut PcieCounters,
    ) -> bool {
        let done = host.iommu().read(addr, to);
        if let Err(error) = done {
            counters.faults += 1;
            host.fault(now, error, Access::Read);
        }
        done.is_ok()
    }

    /// Posts a write. Says when it becomes visible.
    pub(super) fn write(
        &mut self,
        now: Ps,
        addr: u64,
        bytes: Vec<u8>,
        counters: &mut PcieCounters,
    ) -> Ps {
        let length = bytes.len() as u64;
        let packets = blocks(addr, length, WRITE_BLOCK);
        counters.writes += packets;
        counters.write_bytes += length;
        let takes = self.write_time(length, packets);
        self.writes_done = self.on_bus(now) + takes;
        self.post(Posted::Write { addr, bytes })
    }

    /// When everything posted so far is on the bus: what is posted now leaves then, and no read that is asked for later
    /// overtakes it.
    pub(super) fn on_bus(&self, now: Ps) -> Ps {
        self.writes_done.max(now)
    }

    /// Posts an interrupt behind the writes before it. Says when it is raised.
    pub(super) fn interrupt(&mut self, now: Ps, vector: u8, counters: &mut PcieCounters) -> Ps {
        counters.interrupts += 1;
        self.writes_done = self.on_bus(now);
        self.post(Posted::Interrupt(vector))
    }

    fn post(&mut self, posted: Posted) -> Ps {
        let at = self.writes_done + self.config.write_latency_ns * NS;
        self.posted.push_back((at, posted));
        at
    }

    fn write_time(&self, bytes: u64, packets: u64) -> Ps {
        self.rate.time(bytes + packets * PACKET_OVERHEAD)
    }

    /// How long a write of so many bytes takes on the bus.
    pub(super) fn bus_time(&self, addr: u64, bytes: u64) -> Ps {
        self.write_time(bytes, blocks(addr, bytes, WRITE_BLOCK))
    }

    /// Makes everything visible whose time has come.
    pub(super) fn land(&mut self, now: Ps, host: &HostSide, counters: &mut PcieCounters) {
        while self.posted.front().is_some_and(|(at, _)| *at <= now) {
            match self.posted.pop_front() {
                Some((_, Posted::Write { addr, bytes })) => {
                    let done = host.iommu().write(addr, &bytes);
                    match done {
                        Ok(()) => host.written(now, addr, &bytes),
                        Err(error) => {
                            counters.faults += 1;
                            host.fault(now, error, Access::Write);
                        }
                    }
                }
                Some((_, Posted::Interrupt(vector))) => host.raise(vector),
                None => return,
            }
        }
    }

    /// Whether every posted write is visible.
    pub(super) fn is_settled(&self) -> bool {
        self.posted.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_counted_by_what_a_range_touches() {
        let cases = [
            (0, 0, 0),
            (0, 512, 1),
            (511, 1, 1),
            (511, 2, 2),
            (1, 512, 2),
        ];
        for (addr, bytes, expected) in cases {
            assert_eq!(blocks(addr, bytes, 512), expected, "{addr}+{bytes}");
        }
    }
}
