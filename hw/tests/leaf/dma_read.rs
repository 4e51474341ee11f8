use crate::ports;
use crate::support::{chance, rng, Dut};
use mprdma_hw::dma::DmaRead;
use mprdma_hw::leaf::beat::bits_of_bytes;
use mprdma_hw::nic::types::DmaReadReq;
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rust_hdl_core::prelude::*;
use std::collections::VecDeque;

ports!(DmaRead, clock: reset req0 req0_valid req1 req1_valid req2 req2_valid data0_ready data1_ready data2_ready m_rd_req_ready
    s_rd_cpl_valid s_rd_cpl_tag s_rd_cpl_chunk s_rd_cpl_data s_rd_cpl_err
    => req0_ready req1_ready req2_ready data0 data0_valid data0_err data1 data1_valid data1_err data2 data2_valid data2_err
    m_rd_req_addr m_rd_req_length m_rd_req_tag m_rd_req_valid busy);

const CLIENTS: usize = 3;

/// What host memory holds at an address.
fn byte_at(addr: u64) -> u8 {
    (addr.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// A completion beat on its way: `(ready at step, tag, chunk, data, err)`.
struct Completion {
    due: usize,
    tag: u64,
    chunk: u64,
    data: [u8; 64],
    err: bool,
}

/// The PCIe side: answers reads chunk by chunk after a random time, out of order.
struct Host {
    waiting: Vec<Completion>,
    open: [bool; 64],
    rng: ChaCha8Rng,
    /// Cycles from a read to its completions.
    delay: std::ops::Range<usize>,
    /// Percentage of reads that fail.
    errors: u32,
}

impl Host {
    fn read(&mut self, step: usize, addr: u64, length: u64, tag: u64) {
        assert!(
            (1..=512).contains(&length) && addr / 512 == (addr + length - 1) / 512,
            "{length} bytes at {addr:#x}"
        );
        assert!(
            !std::mem::replace(&mut self.open[tag as usize], true),
            "tag {tag} is in use"
        );
        let mut chunks: Vec<u64> = (addr / 64..=(addr + length - 1) / 64).collect();
        let fails = failing(addr, self.errors);
        if fails {
            // Some chunks come, then one beat with the error.
            let some = self.rng.random_range(0..chunks.len());
            chunks.truncate(some + 1);
        }
        let due = step + self.rng.random_range(self.delay.clone());
        let count = chunks.len();
        for (i, chunk) in chunks.into_iter().enumerate() {
            let err = fails && i + 1 == count;
            let data = std::array::from_fn(|lane| {
                let at = chunk * 64 + lane as u64;
                if (addr..addr + length).contains(&at) {
                    byte_at(at)
                } else {
                    0xee
                }
            });
            // An error comes after the chunks before it.
            let due = if err {
                due + 200
            } else {
                due + self.rng.random_range(0..20)
            };
            self.waiting.push(Completion {
                due,
                tag,
                chunk: chunk % 8,
                data,
                err,
            });
        }
    }

    /// At most one completion per step: a random one of those due.
    fn complete(&mut self, step: usize) -> Option<Completion> {
        let due: Vec<usize> = (0..self.waiting.len())
            .filter(|&i| self.waiting[i].due <= step)
            .collect();
        if due.is_empty() {
            return None;
        }
        let pick = due[self.rng.random_range(0..due.len().min(8))];
        let completion = self.waiting.remove(pick);
        if !self.waiting.iter().any(|c| c.tag == completion.tag) {
            self.open[completion.tag as usize] = false;
        }
        Some(completion)
    }
}

/// Whether the 512-byte block fails; the same answer for the host and the checker.
fn failing(addr: u64, percent: u32) -> bool {
    u64::from(byte_at((addr / 512) ^ 0x5555)) * 100 / 256 < u64::from(percent)
}

struct Request {
    iova: u64,
    length: u64,
    done: u64,
}

/// One run: the requests of each client, and how freely everything moves.
struct Bench {
    rng: ChaCha8Rng,
    requests: [VecDeque<(u64, u64)>; CLIENTS],
    pending: [VecDeque<Request>; CLIENTS],
    host: Host,
    /// Percentages: clients ask, clients take data, the edge takes reads.
    ask: u32,
    take: [u32; CLIENTS],
    accept: u32,
    first_data: Option<usize>,
    finished: usize,
}

impl Bench {
    fn new(seed: u64, errors: u32, delay: std::ops::Range<usize>) -> Self {
        Self {
            rng: rng(seed),
            requests: Default::default(),
            pending: Default::default(),
            host: Host {
                waiting: vec![],
                open: [false; 64],
                rng: rng(seed + 1),
                delay,
                errors,
            },
            ask: 100,
            take: [100; CLIENTS],
            accept: 100,
            first_data: None,
            finished: 0,
        }
    }

    fn step(&mut self, dut: &mut impl Dut, step: usize) {
        let mut asks = [false; CLIENTS];
        let mut takes = [false; CLIENTS];
        for client in 0..CLIENTS {
            let (iova, length) = self.requests[client].front().copied().unwrap_or((0, 1));
            asks[client] = !self.requests[client].is_empty() && chance(&mut self.rng, self.ask);
            takes[client] = chance(&mut self.rng, self.take[client]);
            let request = DmaReadReq {
                iova: bits(iova),
                length: bits(length),
            };
            dut.set(["req0", "req1", "req2"][client], request);
            dut.set(
                ["req0_valid", "req1_valid", "req2_valid"][client],
                asks[client],
            );
            dut.set(
                ["data0_ready", "data1_ready", "data2_ready"][client],
                takes[client],
            );
        }
        let accept = chance(&mut self.rng, self.accept);
        dut.set("m_rd_req_ready", accept);
        let completion = self.host.complete(step);
        dut.set("s_rd_cpl_valid", completion.is_some());
        if let Some(completion) = completion {
            dut.set::<Bits<8>>("s_rd_cpl_tag", bits(completion.tag));
            dut.set::<Bits<3>>("s_rd_cpl_chunk", bits(completion.chunk));
            dut.set::<Bits<512>>("s_rd_cpl_data", bits_of_bytes(&completion.data));
            dut.set("s_rd_cpl_err", completion.err);
        }
        dut.low();
        for client in 0..CLIENTS {
            if asks[client] && dut.bit(["req0_ready", "req1_ready", "req2_ready"][client]) {
                let (iova, length) = self.requests[client].pop_front().unwrap();
                self.pending[client].push_back(Request {
                    iova,
                    length,
                    done: 0,
                });
            }
            if takes[client] && dut.bit(["data0_valid", "data1_valid", "data2_valid"][client]) {
                self.first_data.get_or_insert(step);
                let beat = dut.beat(["data0", "data1", "data2"][client]);
                let err = dut.bit(["data0_err", "data1_err", "data2_err"][client]);
                self.check(client, beat, err);
            }
        }
        if accept && dut.bit("m_rd_req_valid") {
            let (addr, length, tag) = (
                dut.get("m_rd_req_addr"),
                dut.get("m_rd_req_length"),
                dut.get("m_rd_req_tag"),
            );
            self.host.read(step, addr, length, tag);
        }
        assert!(dut.bit("busy") || self.pending.iter().all(|p| p.len() <= 1));
        dut.high();
    }

    fn check(&mut self, client: usize, beat: mprdma_hw::leaf::Beat, err: bool) {
        let errors = self.host.errors;
        let request = self.pending[client]
            .front_mut()
            .expect("data nobody asked for");
        let bytes = beat.bytes();
        assert_eq!(bytes.len() as u64, (request.length - request.done).min(64));
        for (i, &byte) in bytes.iter().enumerate() {
            let addr = request.iova + request.done + i as u64;
            if !failing(addr, errors) {
                assert_eq!(byte, byte_at(addr), "client {client}, address {addr:#x}");
            }
        }
        request.done += bytes.len() as u64;
        assert_eq!(beat.last, request.done == request.length);
        if beat.last {
            let (first, last) = (request.iova, request.iova + request.length - 1);
            let fails = (first / 512..=last / 512).any(|block| failing(block * 512, errors));
            assert_eq!(err, fails, "{} bytes at {first:#x}", request.length);
            self.pending[client].pop_front();
            self.finished += 1;
        }
    }
}

/// Random requests of three clients with stalls everywhere and failing reads.
fn random(dut: &mut impl Dut, steps: usize) {
    let mut bench = Bench::new(50, 4, 5..120);
    bench.ask = 60;
    bench.take = [70, 60, 50];
    bench.accept = 80;
    for step in 0..steps {
        for client in 0..CLIENTS {
            if bench.requests[client].len() < 4 {
                let length = match bench.rng.random_range(0..5) {
                    0 => bench.rng.random_range(1..=64),
                    1 => 64 * bench.rng.random_range(1..=8),
                    2 => 4096,
                    _ => bench.rng.random_range(1..=4096),
                };
                let page = bench.rng.random_range(0..1u64 << 50) << 12;
                let offset = if chance(&mut bench.rng, 50) {
                    0
                } else {
                    bench.rng.random_range(0..4096)
                };
                bench.requests[client].push_back((page + offset, length));
            }
        }
        bench.step(dut, step);
    }
    println!("{} requests", bench.finished);
    assert!(bench.finished > steps / 100);
}

crate::both!(random_reads, random, DmaRead::default(), 1500);

/// 4 KiB reads without stalls: cycles per request when the tags cover the memory's latency.
fn rate(offset: u64) -> f64 {
    let mut dut = crate::support::verilated(DmaRead::default(), "random_reads");
    let mut bench = Bench::new(51, 0, 100..101);
    const REQUESTS: u64 = 64;
    for n in 0..REQUESTS {
        bench.requests[0].push_back((n << 20 | offset, 4096));
    }
    let mut step = 0;
    while bench.finished < REQUESTS as usize {
        bench.step(&mut dut, step);
        step += 1;
        assert!(step < 20_000, "stuck");
    }
    let cycles = (step - bench.first_data.unwrap()) as f64;
    let rate = (REQUESTS * 4096) as f64 / cycles / 64.0;
    println!(
        "offset {offset}: {rate:.3} of 64 bytes per cycle, first data after {:?} cycles",
        bench.first_data
    );
    rate
}

#[test]
fn reads_keep_the_bus_busy() {
    mprdma_hw::with_big_stack(|| {
        assert!(rate(0) > 0.98);
        assert!(rate(64) > 0.95);
        assert!(rate(13) > 0.95);
    });
}
