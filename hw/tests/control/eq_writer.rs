//! Asynchronous events as a driver finds them in its ring.

use super::support::{bytes_of, field, reset, run, run_until, verilated};
use mprdma_hw::nic::eq_writer::EqWriter;
use mprdma_hw::nic::types::{AsyncEvent, CfgReq, QpError};
use mprdma_hw::prelude::*;
use mprdma_spec::command::{eq_image, Opcode};
use mprdma_spec::descriptor::{eqe, EventType};

#[test]
fn events_of_every_source_with_their_interrupts() {
    let mut block = verilated("eq_writer", EqWriter::default);
    reset(&mut block);
    for ready in ["request_ready", "data_ready", "irq_ready"] {
        block.inputs().set(ready, 1);
    }
    let mut ring = vec![];
    let mut irqs = 0;
    let mut step = |block: &mut mprdma_hw::cosim::VerilatedBlock,
                    ring: &mut Vec<(u64, Vec<u8>)>| {
        block.cycle().expect("a cycle");
        if block.outputs().bit("request_valid") {
            let iova = field(block.outputs().get_bytes("request"), 0, 64);
            ring.push((
                iova,
                block.outputs().get_bytes("data")[..eqe::BYTES].to_vec(),
            ));
        }
        if block.outputs().bit("irq_valid") {
            assert_eq!(block.outputs().get("irq"), 3);
            irqs += 1;
        }
    };
    let error = |qpn: u64, status: u64| {
        bytes_of(QpError {
            qpn: bits(qpn),
            status: bits(status),
        })
    };
    // Without an EQ the event is dropped.
    block.inputs().set_bytes("fatal", &error(1, 12));
    block.inputs().set("fatal_valid", 1);
    step(&mut block, &mut ring);
    block.inputs().set("fatal_valid", 0);
    for _ in 0..20 {
        step(&mut block, &mut ring);
    }
    assert!(ring.is_empty());

    let mut image = [0; eq_image::BYTES];
    eq_image::LOG2.set(&mut image, 2);
    eq_image::VECTOR.set(&mut image, 3);
    eq_image::BASE.set(&mut image, 0x900);
    let request = CfgReq {
        op: bits(Opcode::CreateEq as u64),
        index: bits(0),
        image: mprdma_hw::leaf::beat::bits_of_bytes(&image),
    };
    block.inputs().set_bytes("cfg", &bytes_of(request));
    block.inputs().set("cfg_valid", 1);
    run_until(&mut block, 20, |b| b.outputs().bit("cfg_done"));
    block.inputs().set("cfg_valid", 0);
    run(&mut block, 2);

    block.inputs().set_bytes("fatal", &error(1, 12));
    block.inputs().set_bytes("access", &error(2, 10));
    let cq = AsyncEvent {
        kind: bits(EventType::CqError as u64),
        code: bits(0),
        number: bits(6),
    };
    block.inputs().set_bytes("cq_event", &bytes_of(cq));
    for _ in 0..2 {
        for source in ["fatal_valid", "access_valid", "cq_event_valid"] {
            block.inputs().set(source, 1);
        }
        step(&mut block, &mut ring);
        for source in ["fatal_valid", "access_valid", "cq_event_valid"] {
            block.inputs().set(source, 0);
        }
    }
    for _ in 0..100 {
        step(&mut block, &mut ring);
    }
    let seen: Vec<_> = ring
        .iter()
        .map(|(iova, e)| {
            (
                *iova,
                eqe::TYPE.get(e),
                eqe::CODE.get(e),
                eqe::NUMBER.get(e),
                eqe::PHASE.get(e),
            )
        })
        .collect();
    let (fatal, access) = (EventType::QpFatal as u64, EventType::QpAccess as u64);
    assert_eq!(
        seen,
        [
            (0x900, fatal, 12, 1, 1),
            (0x910, fatal, 12, 1, 1),
            (0x920, access, 10, 2, 1),
            (0x930, access, 10, 2, 1)
        ],
        "four fit; the rest is dropped"
    );
    assert_eq!(irqs, 4);
}
