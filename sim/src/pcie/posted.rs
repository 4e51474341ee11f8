//! Posted writes and interrupts: in order, with latency and bandwidth.

use super::host::{Access, HostSide};
use super::{PcieCounters, PACKET_OVERHEAD};
use crate::ports::Wide;
use crate::scenario::Pcie;
use crate::time::{Ps, Rate, NS};
use std::collections::VecDeque;

/// A write lies inside one aligned block of so many bytes.
const BLOCK: u64 = 256;
/// How far writes may run ahead of the configured rate: the receiver's credits.
const CREDIT: Ps = 64 * NS;

/// One beat of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteBeat {
    /// Bus address, a multiple of 64.
    pub addr: u64,
    /// Bytes, each on the lane of its address modulo 64.
    pub data: Wide,
    /// Which of them are written.
    pub enables: u64,
    /// First beat of the write.
    pub first: bool,
    /// Last beat of the write.
    pub last: bool,
}

enum Item {
    Write(WriteBeat),
    Interrupt(u8),
}

/// The posted side.
pub struct Posted {
    queue: VecDeque<(Ps, Item)>,
    /// Address that the next beat of an open write must have.
    open: Option<u64>,
    free_at: Ps,
    rate: Rate,
    latency: Ps,
}

impl Posted {
    /// With the given latency and rate.
    pub fn new(config: &Pcie) -> Posted {
        Posted {
            queue: VecDeque::new(),
            open: None,
            free_at: 0,
            rate: Rate::from_gbps(config.rate_gbps),
            latency: config.write_latency_ns * NS,
        }
    }

    /// Whether another beat can be taken.
    pub fn ready(&self, now: Ps) -> bool {
        self.free_at <= now + CREDIT
    }

    /// Whether everything is visible.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// Forgets an open write (reset); what was posted still arrives.
    pub fn clear(&mut self) {
        self.open = None;
    }

    /// Takes a beat of a write.
    pub fn write(&mut self, now: Ps, beat: WriteBeat, counters: &mut PcieCounters) {
        let expected = if beat.first {
            beat.addr
        } else {
            self.open.unwrap_or(u64::MAX)
        };
        let new_block = !beat.first && beat.addr % BLOCK == 0;
        if beat.addr % 64 != 0
            || beat.addr != expected
            || new_block
            || beat.first == self.open.is_some()
        {
            counters.violations += 1;
            tracing::error!(?beat, open = ?self.open, "write breaks a rule: alignment, order or block");
        }
        self.open = (!beat.last).then(|| beat.addr.wrapping_add(64));
        counters.writes += u64::from(beat.first);
        counters.write_bytes += u64::from(beat.enables.count_ones());
        let overhead = if beat.first { PACKET_OVERHEAD } else { 0 };
        self.free_at = self.free_at.max(now)
            + self
                .rate
                .time(u64::from(beat.enables.count_ones()) + overhead);
        self.queue
            .push_back((now + self.latency, Item::Write(beat)));
    }

    /// Takes an interrupt.
    pub fn interrupt(&mut self, now: Ps, vector: u8, counters: &mut PcieCounters) {
        counters.interrupts += 1;
        self.queue
            .push_back((now + self.latency, Item::Interrupt(vector)));
    }

    /// Makes everything visible whose time has come.
    pub fn advance(&mut self, now: Ps, host: &HostSide, counters: &mut PcieCounters) {
        while self.queue.front().is_some_and(|(at, _)| *at <= now) {
            match self.queue.pop_front() {
                Some((at, Item::Write(beat))) => land(at, &beat, host, counters),
                Some((_, Item::Interrupt(vector))) => host.raise(vector),
                None => return,
            }
        }
    }
}

/// Writes each run of enabled bytes.
fn land(at: Ps, beat: &WriteBeat, host: &HostSide, counters: &mut PcieCounters) {
    let bytes = crate::lanes::bytes(&beat.data);
    let (mut lane, enabled) = (0, |lane: usize| lane < 64 && beat.enables >> lane & 1 == 1);
    while lane < 64 {
        let start = lane;
        while enabled(lane) {
            lane += 1;
        }
        if lane > start {
            let (iova, run) = (beat.addr + start as u64, &bytes[start..lane]);
            let done = host.iommu().write(iova, run);
            match done {
                Ok(()) => host.written(at, iova, run),
                Err(error) => {
                    counters.faults += 1;
                    host.fault(at, error, Access::Write);
                }
            }
        }
        lane += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::iommu::tests::leaked;
    use super::super::{InterruptSink, Memory};
    use super::*;
    use std::sync::{Arc, Mutex};

    struct Sink(Arc<Mutex<Vec<(u8, u8)>>>, Memory);

    impl InterruptSink for Sink {
        fn raise(&mut self, vector: u8) {
            let mut seen = [0];
            assert!(self.1.read(31, &mut seen));
            self.0.lock().unwrap().push((vector, seen[0]));
        }
    }

    fn beat(addr: u64, fill: u8, enables: u64) -> WriteBeat {
        WriteBeat {
            addr,
            data: [u64::from_ne_bytes([fill; 8]); 8],
            enables,
            first: true,
            last: true,
        }
    }

    #[test]
    fn an_interrupt_arrives_after_the_write_before_it() {
        let (host, memory, log) = (HostSide::default(), leaked(4096), Arc::default());
        host.iommu()
            .map(0x1000, 4096, Some(memory.clone()), true)
            .unwrap();
        host.set_interrupts(Some(Box::new(Sink(Arc::clone(&log), memory))));
        let (mut posted, mut counters) = (Posted::new(&Pcie::default()), PcieCounters::default());
        posted.write(0, beat(0x1000, 9, 0xffff_ffff), &mut counters);
        posted.interrupt(0, 3, &mut counters);
        posted.advance(249_999, &host, &mut counters);
        assert!(log.lock().unwrap().is_empty() && !posted.is_idle());
        posted.advance(250_000, &host, &mut counters);
        assert_eq!(*log.lock().unwrap(), [(3, 9)]);
    }

    #[test]
    fn only_enabled_bytes_are_written() {
        let (host, memory) = (HostSide::default(), leaked(4096));
        host.iommu()
            .map(0x1000, 4096, Some(memory.clone()), true)
            .unwrap();
        let (mut posted, mut counters) = (Posted::new(&Pcie::default()), PcieCounters::default());
        posted.write(0, beat(0x1040, 7, 1 << 63 | 0b110), &mut counters);
        posted.advance(Ps::MAX, &host, &mut counters);
        let mut got = [0; 192];
        assert!(memory.read(0, &mut got));
        let written: Vec<usize> = (0..192).filter(|&i| got[i] == 7).collect();
        assert_eq!((written, counters.write_bytes), (vec![65, 66, 127], 3));
    }

    #[test]
    fn a_sink_sees_the_runs_that_landed_in_order() {
        type Written = Vec<(Ps, u64, Vec<u8>)>;
        struct Log(Arc<Mutex<Written>>);
        impl super::super::WriteSink for Log {
            fn written(&mut self, at: Ps, iova: u64, bytes: &[u8]) {
                self.0.lock().unwrap().push((at, iova, bytes.to_vec()));
            }
        }
        let (host, log) = (HostSide::default(), Arc::default());
        host.iommu()
            .map(0x1000, 4096, Some(leaked(4096)), true)
            .unwrap();
        host.set_writes(Some(Box::new(Log(Arc::clone(&log)))));
        let (mut posted, mut counters) = (Posted::new(&Pcie::default()), PcieCounters::default());
        posted.write(0, beat(0x1040, 7, 1 << 63 | 0b110), &mut counters);
        posted.write(4000, beat(0x5000, 8, 1), &mut counters);
        posted.write(8000, beat(0x1000, 9, 1), &mut counters);
        posted.advance(254_000, &host, &mut counters);
        host.set_writes(None);
        posted.write(300_000, beat(0x1000, 9, 1), &mut counters);
        posted.advance(Ps::MAX, &host, &mut counters);
        let expected = [(250_000, 0x1041, vec![7, 7]), (250_000, 0x107f, vec![7])];
        assert_eq!(*log.lock().unwrap(), expected);
    }

    #[test]
    fn a_fault_or_a_broken_rule_is_counted_and_nothing_else_happens() {
        let (host, mut posted, mut counters) = (
            HostSide::default(),
            Posted::new(&Pcie::default()),
            PcieCounters::default(),
        );
        posted.write(0, beat(0x5000, 1, u64::MAX), &mut counters);
        posted.advance(Ps::MAX, &host, &mut counters);
        assert_eq!(
            (counters.faults, counters.violations, host.faults().len()),
            (1, 0, 1)
        );
        posted.write(
            0,
            WriteBeat {
                last: false,
                ..beat(0x50c0, 1, u64::MAX)
            },
            &mut counters,
        );
        posted.write(
            0,
            WriteBeat {
                first: false,
                ..beat(0x5100, 1, u64::MAX)
            },
            &mut counters,
        );
        assert_eq!(counters.violations, 1, "a write may not cross its block");
    }

    #[test]
    fn writes_are_held_back_at_the_configured_rate() {
        let (mut posted, mut counters) = (
            Posted::new(&Pcie {
                rate_gbps: 32.0,
                ..Pcie::default()
            }),
            PcieCounters::default(),
        );
        let mut taken = 0;
        for cycle in 0..1000 {
            if posted.ready(cycle * 4000) {
                posted.write(cycle * 4000, beat(0x1000, 1, u64::MAX), &mut counters);
                taken += 1;
            }
        }
        let gbps = f64::from(taken) * (64 + PACKET_OVERHEAD) as f64 * 8.0 / 4000.0;
        assert!((31.0..33.0).contains(&gbps), "{gbps}");
    }
}
