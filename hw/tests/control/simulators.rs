//! rust-hdl's own simulator and the Verilog agree cycle by cycle on random inputs.

use super::support::Noise;
use mprdma_hw::cosim::Cosim;
use mprdma_hw::nic::cq_writer::CqWriter;
use mprdma_hw::nic::eq_writer::EqWriter;
use mprdma_hw::nic::mr_table::MrTable;
use mprdma_hw::nic::types::{CfgReq, Completion, Doorbell, MrQuery, QpError};
use mprdma_hw::prelude::*;
use mprdma_hw::with_big_stack;
use mprdma_spec::command::{cq_image, eq_image, mr_image, Opcode};
use mprdma_spec::layout::Field;

const CYCLES: u64 = 400;

fn request(op: Opcode, index: u64, fields: &[(Field, u64)]) -> CfgReq {
    let mut image = [0; mr_image::BYTES];
    for (field, value) in fields {
        field.set(&mut image, *value);
    }
    CfgReq {
        op: bits(op as u64),
        index: bits(index),
        image: mprdma_hw::leaf::beat::bits_of_bytes(&image),
    }
}

#[test]
fn mr_table() {
    with_big_stack(|| {
        let clock = |b: &mut MrTable<2>, level| b.clock.next = Clock { clk: level };
        let mut cosim =
            Cosim::new(MrTable::<2>::default(), "mr_table_small", clock).expect("a design");
        let mut noise = Noise(1);
        for cycle in 0..CYCLES {
            let slot = noise.next() % 4;
            let key = (slot << 8) | (noise.next() % 2);
            let fields = [
                (mr_image::KEY, key),
                (mr_image::VA, noise.next() % 64),
                (mr_image::LENGTH, noise.next() % 64),
            ];
            cosim
                .cycle(|b| {
                    b.reset.next = cycle < 2;
                    if cycle % 16 == 8 {
                        let op = if noise.one_in(3) {
                            Opcode::DeregisterMr
                        } else {
                            Opcode::RegisterMr
                        };
                        b.cfg.next = request(op, slot, &fields);
                    }
                    b.cfg_valid.next = cycle > 8 && cycle % 16 >= 8;
                    let (key, va, length) =
                        (noise.next() % 1024, noise.next() % 80, noise.next() % 16);
                    b.query.next = MrQuery {
                        key: bits(key),
                        va: bits(va),
                        length: bits(length),
                    };
                    b.query_valid.next = noise.one_in(2);
                    b.answer_ready.next = !noise.one_in(3);
                })
                .expect("a cycle");
        }
        cosim.verify().expect("equal traces");
    });
}

#[test]
fn cq_writer() {
    with_big_stack(|| {
        let clock = |b: &mut CqWriter<1>, level| b.clock.next = Clock { clk: level };
        let mut cosim =
            Cosim::new(CqWriter::<1>::default(), "cq_writer_small", clock).expect("a design");
        let mut noise = Noise(2);
        for cycle in 0..CYCLES {
            let completion = Completion {
                cqn: bits(noise.next() % 2),
                wqe_index: bits(cycle),
                imm: bits(noise.next() % 1000),
                with_imm: noise.one_in(2),
                ..Completion::default()
            };
            let fields = [
                (cq_image::LOG2, 2),
                (cq_image::VECTOR, 3),
                (cq_image::BASE, 0x1000),
            ];
            cosim
                .cycle(|b| {
                    b.reset.next = cycle < 2;
                    b.tick.next = bits(cycle);
                    b.cfg.next = request(Opcode::CreateCq, cycle / 64 % 2, &fields);
                    b.cfg_valid.next = cycle > 8 && cycle % 64 < 40;
                    b.receive.next = completion;
                    b.receive_valid.next = noise.one_in(4);
                    b.send.next = completion;
                    b.send_valid.next = noise.one_in(4);
                    b.cq_db.next = Doorbell {
                        number: bits(noise.next() % 2),
                        index: bits(noise.next() % 16),
                        arm: noise.one_in(2),
                    };
                    b.cq_db_valid.next = noise.one_in(6);
                    b.request_ready.next = !noise.one_in(3);
                    b.data_ready.next = !noise.one_in(3);
                    b.irq_ready.next = !noise.one_in(3);
                    b.notice_ready.next = !noise.one_in(3);
                })
                .expect("a cycle");
        }
        cosim.verify().expect("equal traces");
    });
}

#[test]
fn eq_writer() {
    with_big_stack(|| {
        let clock = |b: &mut EqWriter, level| b.clock.next = Clock { clk: level };
        let mut cosim = Cosim::new(EqWriter::default(), "eq_writer", clock).expect("a design");
        let mut noise = Noise(3);
        for cycle in 0..CYCLES {
            let error = QpError {
                qpn: bits(noise.next() % 256),
                status: bits(noise.next() % 20),
            };
            let fields = [
                (eq_image::LOG2, 2),
                (eq_image::VECTOR, 1),
                (eq_image::BASE, 0x2000),
            ];
            cosim
                .cycle(|b| {
                    b.reset.next = cycle < 2;
                    b.cfg.next = request(Opcode::CreateEq, 0, &fields);
                    b.cfg_valid.next = cycle % 128 >= 64;
                    b.fatal.next = error;
                    b.fatal_valid.next = noise.one_in(6);
                    b.access.next = error;
                    b.access_valid.next = noise.one_in(6);
                    b.cq_event_valid.next = noise.one_in(9);
                    b.eq_db.next = Doorbell {
                        number: bits(0),
                        index: bits(noise.next() % 16),
                        arm: false,
                    };
                    b.eq_db_valid.next = noise.one_in(5);
                    b.request_ready.next = !noise.one_in(3);
                    b.data_ready.next = !noise.one_in(3);
                    b.irq_ready.next = !noise.one_in(3);
                })
                .expect("a cycle");
        }
        cosim.verify().expect("equal traces");
    });
}
