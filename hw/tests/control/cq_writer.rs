//! Completions as a driver finds them in its ring.

use super::support::{bytes_of, field, reset, run, run_until, verilated};
use mprdma_hw::cosim::VerilatedBlock;
use mprdma_hw::nic::cq_writer::CqWriter;
use mprdma_hw::nic::types::{CfgReq, Completion, Doorbell};
use mprdma_hw::prelude::*;
use mprdma_spec::command::{cq_image, Opcode};
use mprdma_spec::descriptor::{cqe, EventType};

const BASE: u64 = 0x8_0000;

/// The block, and the memory and interrupts that it made.
struct Bench {
    block: VerilatedBlock,
    ring: Vec<(u64, Vec<u8>)>,
    irqs: Vec<u64>,
    notices: Vec<(u64, u64)>,
}

impl Bench {
    fn new() -> Self {
        let mut block = verilated("cq_writer", CqWriter::<6>::default);
        reset(&mut block);
        run_until(&mut block, 100, |b| b.outputs().bit("init_done"));
        for ready in ["request_ready", "data_ready", "irq_ready", "notice_ready"] {
            block.inputs().set(ready, 1);
        }
        Self {
            block,
            ring: vec![],
            irqs: vec![],
            notices: vec![],
        }
    }

    /// One cycle.
    fn step(&mut self) {
        self.block.cycle().expect("a cycle");
        let out = self.block.outputs();
        if out.bit("request_valid") {
            let iova = field(out.get_bytes("request"), 0, 64);
            assert_eq!(field(out.get_bytes("request"), 64, 13), cqe::BYTES as u64);
            assert!(out.bit("data_valid"));
            self.ring
                .push((iova, out.get_bytes("data")[..cqe::BYTES].to_vec()));
        }
        if out.bit("irq_valid") {
            self.irqs.push(out.get("irq"));
        }
        if out.bit("notice_valid") {
            let notice = out.get_bytes("notice");
            self.notices
                .push((field(notice, 0, 8), field(notice, 16, 24)));
        }
    }

    fn settle(&mut self) {
        for _ in 0..40 {
            self.step();
        }
        assert!(!self.block.outputs().bit("busy"));
    }

    fn configure(&mut self, op: Opcode, cqn: u64, log2: u64) {
        let mut image = [0; cq_image::BYTES];
        cq_image::CQN.set(&mut image, cqn);
        cq_image::LOG2.set(&mut image, log2);
        cq_image::VECTOR.set(&mut image, 5);
        cq_image::BASE.set(&mut image, BASE);
        let request = CfgReq {
            op: bits(op as u64),
            index: bits(cqn),
            image: mprdma_hw::leaf::beat::bits_of_bytes(&image),
        };
        self.block.inputs().set_bytes("cfg", &bytes_of(request));
        self.block.inputs().set("cfg_valid", 1);
        run_until(&mut self.block, 20, |b| b.outputs().bit("cfg_done"));
        self.block.inputs().set("cfg_valid", 0);
        run(&mut self.block, 2);
    }

    fn complete(&mut self, side: &str, cqn: u64, wqe_index: u64) {
        let item = Completion {
            cqn: bits(cqn),
            qpn: bits(77),
            wqe_index: bits(wqe_index),
            byte_len: bits(4096),
            imm: bits(0xdead_beef),
            with_imm: side == "receive",
            status: bits(0),
            opcode: bits(0x81),
        };
        self.block.inputs().set_bytes(side, &bytes_of(item));
        self.block.inputs().set(&format!("{side}_valid"), 1);
        loop {
            self.step();
            if self.block.outputs().bit(&format!("{side}_ready")) {
                break;
            }
        }
        self.block.inputs().set(&format!("{side}_valid"), 0);
    }

    fn ring_bell(&mut self, cqn: u64, index: u64, arm: bool) {
        let bell = Doorbell {
            number: bits(cqn),
            index: bits(index),
            arm,
        };
        self.block.inputs().set_bytes("cq_db", &bytes_of(bell));
        self.block.inputs().set("cq_db_valid", 1);
        self.step();
        self.block.inputs().set("cq_db_valid", 0);
        self.settle();
    }
}

#[test]
fn entries_lie_in_order_with_toggling_phase() {
    let mut bench = Bench::new();
    bench.configure(Opcode::CreateCq, 9, 2);
    for i in 0..11 {
        bench.complete(if i % 2 == 0 { "receive" } else { "send" }, 9, i);
        bench.settle();
        bench.ring_bell(9, i + 1, false);
    }
    assert_eq!(bench.ring.len(), 11);
    for (i, (iova, entry)) in bench.ring.iter().enumerate() {
        assert_eq!(*iova, BASE + 32 * (i as u64 % 4));
        assert_eq!(cqe::PHASE.get(entry), u64::from(i / 4 % 2 == 0));
        assert_eq!(cqe::QPN.get(entry), 77);
        assert_eq!(cqe::WQE_INDEX.get(entry), i as u64);
        assert_eq!(cqe::BYTE_LEN.get(entry), 4096);
        assert_eq!(cqe::IMM.get(entry), 0xdead_beef);
        assert_eq!(cqe::FLAGS.get(entry), u64::from(i % 2 == 0));
        assert_eq!(cqe::OPCODE.get(entry), 0x81);
    }
    assert!(bench.irqs.is_empty() && bench.notices.is_empty());
}

#[test]
fn arming_raises_one_interrupt() {
    let mut bench = Bench::new();
    bench.configure(Opcode::CreateCq, 1, 4);
    bench.ring_bell(1, 0, true);
    assert!(bench.irqs.is_empty(), "nothing to report yet");
    bench.complete("send", 1, 0);
    bench.complete("send", 1, 1);
    bench.settle();
    assert_eq!(bench.irqs, [5], "the first CQE only");
    bench.ring_bell(1, 1, true);
    assert_eq!(
        bench.irqs,
        [5, 5],
        "armed behind a CQE that the driver has not seen"
    );
    bench.ring_bell(1, 2, true);
    bench.complete("receive", 1, 2);
    bench.settle();
    assert_eq!(bench.irqs, [5, 5, 5]);
}

#[test]
fn a_full_ring_kills_the_queue_aloud() {
    let mut bench = Bench::new();
    bench.configure(Opcode::CreateCq, 2, 1);
    bench.configure(Opcode::CreateCq, 3, 1);
    for i in 0..4 {
        bench.complete("send", 2, i);
    }
    bench.settle();
    assert_eq!(bench.ring.len(), 2);
    assert_eq!(bench.notices, [(EventType::CqError as u64, 2)], "told once");
    bench.complete("send", 3, 0);
    bench.settle();
    assert_eq!(bench.ring.len(), 3, "other queues go on");
    bench.configure(Opcode::DestroyCq, 2, 1);
    bench.complete("send", 2, 9);
    bench.settle();
    assert_eq!(bench.ring.len(), 3, "a queue that is gone takes nothing");
    bench.configure(Opcode::CreateCq, 2, 1);
    bench.complete("send", 2, 9);
    bench.settle();
    assert_eq!(
        cqe::PHASE.get(&bench.ring[3].1),
        1,
        "a new queue starts afresh"
    );
}
