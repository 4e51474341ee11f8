//! rust-hdl's own simulator and the Verilog agree cycle by cycle on random inputs.

use super::support::Noise;
use mprdma_hw::cosim::Cosim;
use mprdma_hw::leaf::beat::bits_of_bytes;
use mprdma_hw::nic::telemetry::Telemetry;
use mprdma_hw::nic::types::{CfgReq, ReceiverNote, SenderNote};
use mprdma_hw::prelude::*;
use mprdma_hw::with_big_stack;
use mprdma_spec::command::{qp_image, trace_request, Opcode};

#[test]
fn telemetry() {
    with_big_stack(|| {
        let clock = |b: &mut Telemetry<2>, level| b.clock.next = Clock { clk: level };
        let mut cosim =
            Cosim::new(Telemetry::<2>::default(), "telemetry_small", clock).expect("a design");
        let mut noise = Noise(5);
        let operations = [
            Opcode::TraceQp,
            Opcode::QueryQpStats,
            Opcode::ReadTrace,
            Opcode::CreateQp,
            Opcode::ReadTrace,
            Opcode::QueryQpStats,
            Opcode::ModifyQp,
        ];
        let mut request = CfgReq::default();
        let mut asked = 0;
        for cycle in 0..500 {
            // TRACE_QP takes 130 cycles; the others get 40.
            let phase = if cycle < 160 {
                cycle
            } else {
                (cycle - 160) % 40
            };
            if phase == 4 {
                let mut image = [0; qp_image::BYTES];
                qp_image::QPN.set(&mut image, asked % 4);
                trace_request::GROUP.set(&mut image, noise.next() % 17);
                trace_request::VP_BASE.set(&mut image, 100);
                request = CfgReq {
                    op: bits(operations[asked as usize % operations.len()] as u64),
                    index: bits(asked % 4),
                    image: bits_of_bytes(&image),
                };
                asked += 1;
            }
            let sender = SenderNote {
                qpn: bits(cycle / 8 % 4),
                sent_0: noise.one_in(2),
                sent_1: noise.one_in(3),
                vp_0: bits(95 + noise.next() % 80),
                vp_1: bits(95 + noise.next() % 80),
                cause: bits(noise.next() % 4),
                new_1: noise.next() % 4 == 0,
                probes: bits(noise.next() % 3),
                ack: noise.one_in(2),
                ack_vp: bits(95 + noise.next() % 80),
                ecn_echo: noise.one_in(2),
                prune: noise.one_in(2),
                window_nak: noise.one_in(4),
                sync_nak: noise.one_in(4),
                ghost: noise.one_in(4),
                timeout: noise.one_in(4),
                recovery: noise.one_in(4),
            };
            let receiver = ReceiverNote {
                qpn: bits(cycle / 4 % 4),
                accepted: noise.one_in(2),
                distance: bits((noise.next() % 128) >> (noise.next() % 8)),
                duplicate: noise.one_in(3),
                out_of_window: noise.one_in(3),
                sync_nak: noise.one_in(3),
                rnr_nak: noise.one_in(3),
                marked: noise.one_in(3),
            };
            cosim
                .cycle(|b| {
                    b.reset.next = cycle < 2;
                    b.cfg.next = request;
                    b.cfg_valid.next = phase >= 5;
                    b.sender.next = sender;
                    b.sender_valid.next = cycle % 8 == 3;
                    b.receiver.next = receiver;
                    b.receiver_valid.next = cycle % 4 == 1;
                })
                .expect("a cycle");
        }
        assert!(asked >= 8, "every command came");
        cosim.verify().expect("equal traces");
    });
}
