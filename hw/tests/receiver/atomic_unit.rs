//! Random ATOMICs on a little memory, with stalls everywhere and reads that fail.

use crate::support::{chance, encode, rng, Dut};
use crate::{both, ports};
use mprdma_hw::leaf::Beat;
use mprdma_hw::nic::atomic_unit::AtomicUnit;
use mprdma_hw::nic::types::{AtomicOp, AtomicResult, DmaReadReq, DmaWriteReq, QpError};
use mprdma_spec::status::WcStatus;
use rand::Rng;
use rust_hdl_core::prelude::*;
use std::collections::VecDeque;

ports!(AtomicUnit, clock: reset op op_valid read read_valid read_err written read_req_ready request_ready data_ready
    result_ready error_ready => op_ready read_ready read_req read_req_valid request request_valid data data_valid result
    result_valid error error_valid cnt_executed cnt_failed busy);

const WORDS: usize = 4;
const BASE: u64 = 0x1234_5678_9abc_def3;

fn address(word: usize) -> u64 {
    BASE + 8 * word as u64
}

fn bench(dut: &mut impl Dut, steps: usize) {
    let mut rng = rng(71);
    let mut memory: [u64; WORDS] = std::array::from_fn(|_| rng.random());
    let mut given: VecDeque<(usize, AtomicOp)> = VecDeque::new();
    // Reads to answer, in so many steps; the write at hand; writes on their way to the bus.
    let mut reads: VecDeque<(usize, u32)> = VecDeque::new();
    let mut write: Option<(usize, u64)> = None;
    let mut values: VecDeque<u64> = VecDeque::new();
    let mut on_way: VecDeque<(usize, u64, u32)> = VecDeque::new();
    let (mut results, mut errors) = (VecDeque::new(), VecDeque::new());
    let mut fault = false;
    let mut next: Option<(usize, u64, u64, bool)> = None;
    let (mut executed, mut failed, mut unequal, mut counted) = (0, 0, 0, (0, 0));
    dut.set("reset", true);
    dut.low();
    dut.high();
    dut.set("reset", false);
    let mut step = 0;
    loop {
        let draining = step >= steps;
        let give = [100, 30][step * 4 / steps % 2];
        let item = *next.get_or_insert_with(|| {
            let word = rng.random_range(0..WORDS);
            // Often what is there, or what was put there.
            let compare = if chance(&mut rng, 60) {
                memory[word]
            } else {
                rng.random()
            };
            (word, rng.random(), compare, rng.random())
        });
        let op = AtomicOp {
            qpn: bits(rng.random_range(0..1 << 16)),
            iova: bits(address(item.0)),
            swap: item.3,
            swap_add: bits(item.1),
            compare: bits(item.2),
        };
        let op_valid = !draining && chance(&mut rng, give);
        dut.set("op", op);
        dut.set("op_valid", op_valid);
        if let Some(first) = reads.front_mut() {
            first.1 = first.1.saturating_sub(1);
        }
        let read_valid = reads.front().is_some_and(|first| first.1 == 0);
        if read_valid {
            let bytes = memory[reads[0].0].to_le_bytes();
            fault = chance(&mut rng, 8);
            let sent = if fault { [0xee; 8] } else { bytes };
            dut.set("read", Beat::new(&sent, true));
        }
        dut.set("read_valid", read_valid);
        dut.set("read_err", read_valid && fault);
        if let Some(first) = on_way.front_mut() {
            first.2 = first.2.saturating_sub(1);
        }
        let written = on_way.front().is_some_and(|first| first.2 == 0);
        dut.set("written", written);
        let ready: [bool; 5] = std::array::from_fn(|_| draining || chance(&mut rng, give));
        for (port, ready) in [
            "read_req_ready",
            "request_ready",
            "data_ready",
            "result_ready",
            "error_ready",
        ]
        .into_iter()
        .zip(ready)
        {
            dut.set(port, ready);
        }
        dut.low();
        if op_valid && dut.bit("op_ready") {
            given.push_back((item.0, op));
            next = None;
        }
        if ready[0] && dut.bit("read_req_valid") {
            let (word, op) = given[0];
            let asked = DmaReadReq {
                iova: op.iova,
                length: bits(8),
            };
            assert_eq!(dut.bytes("read_req"), encode(asked), "step {step}");
            assert!(
                reads.is_empty() && on_way.is_empty(),
                "step {step}: two at a time"
            );
            reads.push_back((word, rng.random_range(1..40)));
        }
        if read_valid {
            assert!(
                dut.bit("read_ready"),
                "step {step}: does not take what it asked for"
            );
            reads.pop_front();
            let (word, op) = given.pop_front().expect("an ATOMIC");
            let number = |b: Bits<64>| b.to_u64();
            let original = memory[word];
            results.push_back((
                AtomicResult {
                    qpn: op.qpn,
                    original: bits(if fault {
                        0xeeee_eeee_eeee_eeee
                    } else {
                        original
                    }),
                    failed: fault,
                },
                false,
            ));
            if fault {
                errors.push_back(QpError {
                    qpn: op.qpn,
                    status: bits(WcStatus::FatalError as u64),
                });
                failed += 1;
            } else {
                executed += 1;
                let value = if op.swap {
                    number(op.swap_add)
                } else {
                    original.wrapping_add(number(op.swap_add))
                };
                if !op.swap || number(op.compare) == original {
                    write = Some((word, value));
                    values.push_back(value);
                    results.back_mut().expect("just put there").1 = true;
                } else {
                    unequal += 1;
                }
            }
        }
        if ready[1] && dut.bit("request_valid") {
            let (word, value) = write.take().expect("a write that nobody wants");
            let asked = DmaWriteReq {
                iova: bits(address(word)),
                length: bits(8),
                skip: bits(0),
            };
            assert_eq!(dut.bytes("request"), encode(asked), "step {step}");
            on_way.push_back((word, value, rng.random_range(3..40)));
        }
        if ready[2] && dut.bit("data_valid") {
            let beat = dut.beat("data");
            let value = values.pop_front().expect("data that nobody wants");
            assert_eq!(beat.bytes(), value.to_le_bytes(), "step {step}");
            assert!(beat.last);
        }
        if written {
            let (word, value, _) = on_way.pop_front().expect("on its way");
            memory[word] = value;
            results.front_mut().expect("an ATOMIC").1 = false;
        }
        if ready[3] && dut.bit("result_valid") {
            let (result, waits): (AtomicResult, bool) = results.pop_front().expect("a result");
            assert!(!waits, "step {step}: told before the write is on the bus");
            assert_eq!(dut.bytes("result"), encode(result), "step {step}");
        }
        if ready[4] && dut.bit("error_valid") {
            let error = errors.pop_front().expect("an error");
            assert_eq!(dut.bytes("error"), encode(error), "step {step}");
        }
        counted.0 += usize::from(dut.bit("cnt_executed"));
        counted.1 += usize::from(dut.bit("cnt_failed"));
        let busy = dut.bit("busy");
        let open = !given.is_empty() || !results.is_empty();
        assert!(
            busy || !open || step < 5,
            "step {step}: idle with an ATOMIC inside"
        );
        dut.high();
        step += 1;
        if draining && !open && !busy {
            break;
        }
        assert!(step < steps + 1000, "does not drain");
    }
    assert!(errors.is_empty() && values.is_empty() && on_way.is_empty());
    assert_eq!(counted, (executed, failed));
    println!("{executed} ATOMICs, {unequal} without a write, {failed} failed");
    assert!(executed > steps / 100 && unequal > 0 && failed > 0);
}

both!(atomic_unit, bench, AtomicUnit::default(), 2000);
