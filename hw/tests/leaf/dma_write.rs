use crate::ports;
use crate::support::{chance, rng, Dut};
use mprdma_hw::dma::DmaWrite;
use mprdma_hw::leaf::Beat;
use mprdma_hw::nic::types::DmaWriteReq;
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rust_hdl_core::prelude::*;
use std::collections::VecDeque;

ports!(DmaWrite, clock: reset req0 req0_valid data0 data0_valid req1 req1_valid data1 data1_valid
    req2 req2_valid data2 data2_valid req3 req3_valid data3 data3_valid irq1 irq1_valid irq2 irq2_valid m_wr_ready m_irq_ready
    => req0_ready data0_ready req1_ready data1_ready req2_ready data2_ready req3_ready data3_ready irq1_ready irq2_ready
    m_wr_addr m_wr_data m_wr_be m_wr_sop m_wr_eop m_wr_valid m_irq_vector m_irq_valid written0 written3 busy);

const CLIENTS: usize = 4;
const REQ: [&str; CLIENTS] = ["req0", "req1", "req2", "req3"];
const REQ_VALID: [&str; CLIENTS] = ["req0_valid", "req1_valid", "req2_valid", "req3_valid"];
const REQ_READY: [&str; CLIENTS] = ["req0_ready", "req1_ready", "req2_ready", "req3_ready"];
const DATA: [&str; CLIENTS] = ["data0", "data1", "data2", "data3"];
const DATA_VALID: [&str; CLIENTS] = ["data0_valid", "data1_valid", "data2_valid", "data3_valid"];
const DATA_READY: [&str; CLIENTS] = ["data0_ready", "data1_ready", "data2_ready", "data3_ready"];

#[derive(Clone)]
struct Message {
    iova: u64,
    skip: usize,
    bytes: Vec<u8>,
}

/// A write that is expected, byte by byte.
struct Open {
    client: usize,
    next: u64,
    bytes: VecDeque<u8>,
}

struct Bench {
    rng: ChaCha8Rng,
    messages: [VecDeque<Message>; CLIENTS],
    beats: [VecDeque<Beat>; CLIENTS],
    /// Accepted by the engine and not wholly written, per client.
    accepted: [VecDeque<Message>; CLIENTS],
    open: Option<Open>,
    in_write: bool,
    /// Messages accepted and written, per client.
    counts: [(u64, u64); CLIENTS],
    /// Vectors on their way with the messages that must come before, per client.
    irqs: [VecDeque<(u64, u64)>; CLIENTS],
    vector: u64,
    ask: u32,
    feed: u32,
    take: u32,
    finished: usize,
    interrupts: usize,
    first: Option<usize>,
}

impl Bench {
    fn new(seed: u64) -> Self {
        Self {
            rng: rng(seed),
            messages: Default::default(),
            beats: Default::default(),
            accepted: Default::default(),
            open: None,
            in_write: false,
            counts: [(0, 0); CLIENTS],
            irqs: Default::default(),
            vector: 0,
            ask: 100,
            feed: 100,
            take: 100,
            finished: 0,
            interrupts: 0,
            first: None,
        }
    }

    /// Queues a message whose packet has `skip` bytes before and `tail` bytes behind.
    fn send(&mut self, client: usize, iova: u64, skip: usize, length: usize, tail: usize) {
        let packet: Vec<u8> = (0..skip + length + tail)
            .map(|_| self.rng.random())
            .collect();
        self.beats[client].extend(Beat::of_packet(&packet));
        let bytes = packet[skip..skip + length].to_vec();
        self.messages[client].push_back(Message { iova, skip, bytes });
    }

    fn step(&mut self, dut: &mut impl Dut, step: usize) {
        let mut asks = [false; CLIENTS];
        let mut feeds = [false; CLIENTS];
        for client in 0..CLIENTS {
            asks[client] = !self.messages[client].is_empty() && chance(&mut self.rng, self.ask);
            if let Some(message) = self.messages[client].front() {
                dut.set(
                    REQ[client],
                    DmaWriteReq {
                        iova: bits(message.iova),
                        length: bits(message.bytes.len() as u64),
                        skip: bits(message.skip as u64),
                    },
                );
            }
            dut.set(REQ_VALID[client], asks[client]);
            feeds[client] = !self.beats[client].is_empty() && chance(&mut self.rng, self.feed);
            if let Some(&beat) = self.beats[client].front() {
                dut.set(DATA[client], beat);
            }
            dut.set(DATA_VALID[client], feeds[client]);
        }
        let rings = [
            false,
            chance(&mut self.rng, 2),
            chance(&mut self.rng, 2),
            false,
        ];
        let vectors = [0, self.vector % 128, 128 + self.vector % 128];
        for client in 1..3 {
            dut.set::<Bits<8>>(["", "irq1", "irq2"][client], bits(vectors[client]));
            dut.set(["", "irq1_valid", "irq2_valid"][client], rings[client]);
        }
        let take = chance(&mut self.rng, self.take);
        let irq_take = chance(&mut self.rng, self.take);
        dut.set("m_wr_ready", take);
        dut.set("m_irq_ready", irq_take);
        dut.low();
        if dut.bit("m_irq_valid") && irq_take {
            let vector = dut.get("m_irq_vector");
            let client = if vector < 128 { 1 } else { 2 };
            let (expected, after) = self.irqs[client]
                .pop_front()
                .expect("an interrupt nobody rang");
            assert_eq!(vector, expected);
            assert!(
                self.counts[client].1 >= after,
                "interrupt before its writes"
            );
            self.interrupts += 1;
        }
        for client in 0..CLIENTS {
            if asks[client] && dut.bit(REQ_READY[client]) {
                let message = self.messages[client].pop_front().unwrap();
                self.accepted[client].push_back(message);
                self.counts[client].0 += 1;
            }
            if feeds[client] && dut.bit(DATA_READY[client]) {
                self.beats[client].pop_front();
            }
            if rings[client] && dut.bit(["", "irq1_ready", "irq2_ready", ""][client]) {
                self.irqs[client].push_back((vectors[client], self.counts[client].0));
                self.vector += 1;
            }
        }
        let before = self.counts;
        if dut.bit("m_wr_valid") && take {
            self.first.get_or_insert(step);
            self.written(dut);
        }
        for (client, port) in [(0, "written0"), (3, "written3")] {
            let left = self.counts[client].1 > before[client].1;
            assert_eq!(dut.bit(port), left, "step {step}: {port}");
        }
        assert!(
            dut.bit("busy") || self.accepted.iter().map(VecDeque::len).sum::<usize>() <= CLIENTS
        );
        dut.high();
    }

    fn written(&mut self, dut: &impl Dut) {
        let addr = dut.get("m_wr_addr");
        let enables = dut.get("m_wr_be");
        let data = dut.bytes("m_wr_data");
        let (sop, eop) = (dut.bit("m_wr_sop"), dut.bit("m_wr_eop"));
        assert_eq!(addr % 64, 0);
        assert_ne!(enables, 0);
        let start = addr + u64::from(enables.trailing_zeros());
        // A new message: the front of one client's queue starts here. Clients write to different regions.
        let open = self.open.get_or_insert_with(|| {
            let client = (addr >> 60) as usize;
            let message = self.accepted[client]
                .pop_front()
                .expect("a write nobody asked for");
            assert_eq!(start, message.iova);
            assert!(sop);
            Open {
                client,
                next: message.iova,
                bytes: message.bytes.into(),
            }
        });
        assert_eq!(start, open.next);
        assert_eq!(sop, !self.in_write);
        assert!(sop || addr % 256 != 0, "a write crosses 256 bytes");
        let lanes = enables.count_ones();
        for lane in 0..lanes {
            let at = (open.next % 64) as usize;
            assert_eq!(enables >> at & 1, 1, "a hole in the byte enables");
            assert_eq!(
                Some(data[at]),
                open.bytes.pop_front(),
                "lane {lane} of {lanes} at {addr:#x}"
            );
            open.next += 1;
        }
        self.in_write = !eop;
        if open.bytes.is_empty() {
            assert!(eop);
            self.counts[open.client].1 += 1;
            self.finished += 1;
            self.open = None;
        } else {
            assert!(open.next % 64 == 0, "a chunk ends early");
        }
    }
}

/// Four clients with stalls everywhere, all alignments, interrupts.
fn random(dut: &mut impl Dut, steps: usize) {
    let mut bench = Bench::new(60);
    for step in 0..steps {
        let free = step < steps / 3;
        (bench.ask, bench.feed, bench.take) = if free { (100, 100, 100) } else { (50, 70, 70) };
        for client in 0..CLIENTS {
            if bench.messages[client].len() < 3 {
                let length = match bench.rng.random_range(0..4) {
                    0 => bench.rng.random_range(1..100),
                    1 => 32,
                    2 => 256 * bench.rng.random_range(1..=4),
                    _ => bench.rng.random_range(1..=1200),
                };
                let aligned = bench.rng.random_range(0..1u64 << 40) << 6;
                let lane = if chance(&mut bench.rng, 40) {
                    0
                } else {
                    bench.rng.random_range(0..64)
                };
                let skip = if client == 0 {
                    bench.rng.random_range(54..=110)
                } else {
                    0
                };
                let tail = bench.rng.random_range(0..if client == 2 { 1 } else { 200 });
                bench.send(
                    client,
                    (client as u64) << 60 | aligned | lane,
                    skip,
                    length,
                    tail,
                );
            }
        }
        bench.step(dut, step);
    }
    println!(
        "{} messages, {} interrupts",
        bench.finished, bench.interrupts
    );
    assert!(bench.finished > steps / 20 && bench.interrupts > steps / 100);
    // Everything inside comes out, and then the engine is idle.
    bench.messages.iter_mut().for_each(VecDeque::clear);
    for step in 0..3000 {
        bench.step(dut, step);
    }
    assert!(bench.accepted.iter().all(VecDeque::is_empty));
}

crate::both!(random_writes, random, DmaWrite::default(), 1500);

/// Bytes per cycle, in units of 64, for messages of one kind without stalls.
fn rate(lane: u64, skip: usize, length: usize, tail: usize) -> f64 {
    let mut dut = crate::support::verilated(DmaWrite::default(), "random_writes");
    let mut bench = Bench::new(61);
    const MESSAGES: u64 = 64;
    for n in 0..MESSAGES {
        bench.send(0, n << 20 | lane, skip, length, tail);
    }
    let mut step = 0;
    while bench.finished < MESSAGES as usize {
        bench.step(&mut dut, step);
        step += 1;
        assert!(step < 20_000, "stuck");
    }
    let cycles = step - bench.first.unwrap();
    let rate = (MESSAGES as usize * length) as f64 / cycles as f64 / 64.0;
    println!("lane {lane}, skip {skip}, {length} bytes: {rate:.3} of 64 bytes per cycle, first after {:?}", bench.first);
    rate
}

#[test]
fn writes_keep_the_bus_busy() {
    mprdma_hw::with_big_stack(|| {
        assert!(rate(0, 0, 4096, 0) > 0.99);
        assert!(rate(13, 0, 4096, 0) > 0.95);
        assert!(rate(13, 78, 4096, 4) > 0.93);
        // Frames of 1 KiB at 100 Gb/s leave 22 cycles of 4 ns each.
        assert!(rate(13, 78, 1024, 4) > 16.0 / 20.0 - 0.01);
        assert!(rate(0, 0, 32, 0) > 0.24);
    });
}
