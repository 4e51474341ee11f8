//! WSNs of the send queue go over 2^24. Real queue pairs start at 0, and that many messages are too many to simulate, so
//! the zeros in the Verilog are replaced.

use crate::support::Wires;
use mprdma_hw::cosim::{BuildOptions, VerilatedBlock};
use mprdma_hw::leaf::beat::bits_of_bytes;
use mprdma_hw::leaf::Beat;
use mprdma_hw::nic::sq_fetch::{SendQueue, SqFetch};
use mprdma_hw::nic::types::{CfgReq, DmaReadReq, Doorbell, Launch, MrAnswer};
use mprdma_hw::prelude::*;
use mprdma_hw::verilog::{generate, ports};
use mprdma_hw::with_big_stack;
use mprdma_spec::command::{qp_image, Opcode, QpState, MASK_SENDER, MASK_STATE};
use mprdma_spec::descriptor::{sq_wqe, WrOpcode};

/// WSN of a new queue pair.
const FIRST: u64 = 0xff_fffd;

fn width(kind: &TypeKind) -> usize {
    match kind {
        TypeKind::Bits(bits) | TypeKind::Signed(bits) => *bits,
        other => panic!("{other:?} is no field of the state"),
    }
}

/// First bit of `next_wsn` in the state of a queue, and the width of the state.
fn place() -> (usize, usize) {
    let mut at = 0;
    let fields = match SendQueue::descriptor().kind {
        TypeKind::Composite(fields) => fields,
        other => panic!("{other:?} is no record"),
    };
    for field in fields {
        if field.fieldname == "next_wsn" {
            return (at, SendQueue::BITS);
        }
        at += width(&field.kind.kind);
    }
    panic!("no next_wsn");
}

fn fetch() -> VerilatedBlock {
    let mut block = SqFetch::<2, 3>::default();
    block.connect_all();
    let (low, width) = place();
    // Hexadecimal digits of the WSN shifted to its place.
    let value = format!("{:x}{}", FIRST << (low % 4), "0".repeat(low / 4));
    let changes = [
        (
            format!("empty = {width}'h0;"),
            format!("empty = {width}'h{value};"),
        ),
        // The record of a new queue pair, whatever the name of its net.
        (
            format!("[{}:{low}] = 24'h0;", low + 23),
            format!("[{}:{low}] = 24'h{FIRST:x};", low + 23),
        ),
    ];
    let text = generate(&block, "sq_fetch").expect("Verilog");
    let text = changes.iter().fold(text, |text, (from, to)| {
        assert_eq!(text.matches(from.as_str()).count(), 1, "{from}");
        text.replace(from.as_str(), to)
    });
    let options = BuildOptions::default();
    VerilatedBlock::from_verilog(&text, "sq_fetch", &ports(&block), &options).expect("a block")
}

/// Sends every second WQE with immediate data; returns the WSNs of the launches.
fn launches(dut: &mut VerilatedBlock, count: u64) -> Vec<(u8, u64)> {
    let mut wqes = 0;
    let mut reading = 0;
    let mut answers = 0;
    let mut seen = vec![];
    let bell = Doorbell {
        index: count.to_bits(),
        ..Doorbell::default()
    };
    dut.inputs().set_bytes("sq_db", &Wires::of(&bell));
    dut.inputs().set("sq_db_valid", 1);
    for _ in 0..10_000 {
        let mut wqe = [0; sq_wqe::BYTES];
        let opcode = [WrOpcode::RdmaWrite, WrOpcode::RdmaWriteWithImm][wqes % 2];
        sq_wqe::OPCODE.set(&mut wqe, opcode as u64);
        let beat = Beat::new(&wqe, reading == 1);
        let frame = dut.inputs();
        frame.set_bytes("read", &Wires::of(&beat));
        frame.set("read_valid", (reading > 0).into());
        frame.set_bytes("answer", &Wires::of(&MrAnswer::default()));
        frame.set("answer_valid", (answers > 0).into());
        let out = dut.cycle().expect("a cycle");
        let bit = |name: &str| out.get(name) == 1;
        let (asks, launched) = (bit("query_valid"), bit("launch_valid"));
        let (took, answered) = (bit("read_ready"), bit("answer_ready"));
        let rung = bit("sq_db_ready");
        if bit("read_req_valid") {
            let request: DmaReadReq = Wires::to(out.get_bytes("read_req"));
            assert_eq!(reading, 0, "one read after the other");
            reading = request.length.to_u64() / sq_wqe::BYTES as u64;
        } else if reading > 0 && took {
            reading -= 1;
            wqes += 1;
        }
        if launched {
            let launch: Launch = Wires::to(out.get_bytes("launch"));
            seen.push((launch.opcode.to_u64() as u8, launch.wsn.to_u64()));
        }
        if answers > 0 && answered {
            answers -= 1;
        }
        answers += u32::from(asks);
        if rung {
            dut.inputs().set("sq_db_valid", 0);
        }
        if seen.len() as u64 == count {
            break;
        }
    }
    seen
}

fn command(dut: &mut VerilatedBlock, op: Opcode) {
    let mut image = vec![0; qp_image::BYTES];
    qp_image::MTU.set(&mut image, 1);
    qp_image::SQ_LOG2.set(&mut image, 4);
    qp_image::STATE.set(&mut image, QpState::Rts as u64);
    qp_image::MASK.set(&mut image, MASK_STATE | MASK_SENDER);
    let request = CfgReq {
        op: (op as u64).to_bits(),
        index: Bits::default(),
        image: bits_of_bytes(&image),
    };
    dut.inputs().set_bytes("cfg", &Wires::of(&request));
    dut.inputs().set("cfg_valid", 1);
    while dut.cycle().expect("a cycle").get("cfg_done") == 0 {}
    dut.inputs().set("cfg_valid", 0);
    dut.cycle().expect("a cycle");
}

#[test]
fn wsns_wrap() {
    with_big_stack(|| {
        let mut dut = fetch();
        dut.inputs().set("reset", 1);
        dut.cycle().expect("a cycle");
        dut.inputs().set("reset", 0);
        for ready in [
            "read_req_ready",
            "query_ready",
            "launch_ready",
            "work_ready",
        ] {
            dut.inputs().set(ready, 1);
        }
        let expected: Vec<_> = (0..8)
            .map(|i| match i % 2 {
                0 => (WrOpcode::RdmaWrite as u8, 0),
                _ => (
                    WrOpcode::RdmaWriteWithImm as u8,
                    (FIRST + i / 2) & 0xff_ffff,
                ),
            })
            .collect();
        // A new queue pair, and one whose send half is restarted.
        for restarted in [false, true] {
            command(&mut dut, Opcode::CreateQp);
            if restarted {
                command(&mut dut, Opcode::ModifyQp);
            }
            assert_eq!(launches(&mut dut, 8), expected);
            command(&mut dut, Opcode::DestroyQp);
        }
    });
}
