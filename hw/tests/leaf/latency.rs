//! The latencies that the documentation states, measured in the Verilated blocks.

use crate::support::{verilated, Dut};
use mprdma_hw::cosim::VerilatedBlock;
use mprdma_hw::dma::{DmaRead, DmaWrite};
use mprdma_hw::leaf::*;
use mprdma_hw::nic::types::{DmaReadReq, DmaWriteReq};
use rust_hdl_core::prelude::*;

/// Cycles from the one in which `valid` inputs are high to the first with `output` high.
fn cycles(dut: &mut VerilatedBlock, valid: &[&'static str], output: &'static str) -> usize {
    for _ in 0..40 {
        dut.low();
        assert!(!dut.bit(output));
    }
    for port in valid {
        dut.set(port, true);
    }
    for cycle in 0..60 {
        dut.low();
        for port in valid {
            dut.set(port, false);
        }
        if dut.bit(output) {
            return cycle;
        }
    }
    panic!("no {output} after 60 cycles")
}

#[test]
fn latencies_are_as_documented() {
    mprdma_hw::with_big_stack(|| {
        let beat = Beat::new(&[1; 64], true);

        let mut dut = verilated(Skid::<Bits<24>>::default(), "skid");
        assert_eq!(cycles(&mut dut, &["in_valid"], "out_valid"), 1);

        let mut dut = verilated(SyncFifo::<Bits<24>, 3>::shallow(), "shallow_fifo");
        assert_eq!(cycles(&mut dut, &["in_valid"], "out_valid"), 2);

        let mut dut = verilated(SyncFifo::<Bits<24>, 4>::deep(), "deep_fifo");
        assert_eq!(cycles(&mut dut, &["in_valid"], "out_valid"), 3);

        let mut dut = verilated(PacketFifo::<4>::default(), "packet_fifo");
        dut.set("in_beat", beat);
        assert_eq!(cycles(&mut dut, &["in_valid"], "out_valid"), 3);

        let mut dut = verilated(Realign::default(), "realign_moves_packets");
        dut.set("in_beat", beat);
        assert_eq!(cycles(&mut dut, &["in_valid"], "out_valid"), 6);

        let mut dut = verilated(Prepend::default(), "prepend_joins_header_and_payload");
        let header = Header {
            bytes: bits(1),
            length: bits(20),
            payload: false,
        };
        dut.set("header", header);
        assert_eq!(cycles(&mut dut, &["header_valid"], "out_valid"), 7);

        let mut dut = verilated(
            TimerWheel::<5, 4>::default(),
            "timers_fire_once_at_their_tick",
        );
        dut.set(
            "arm",
            TimerArm {
                qpn: bits(3),
                delay: bits(1),
            },
        );
        dut.set("arm_valid", true);
        dut.low();
        dut.set("arm_valid", false);
        assert_eq!(cycles(&mut dut, &["tick"], "fire_valid"), 5);

        let mut dut = verilated(DmaRead::default(), "random_reads");
        dut.set("m_rd_req_ready", true);
        dut.set(
            "req0",
            DmaReadReq {
                iova: bits(0x1000),
                length: bits(64),
            },
        );
        assert_eq!(cycles(&mut dut, &["req0_valid"], "m_rd_req_valid"), 5);
        assert_eq!(cycles(&mut dut, &["s_rd_cpl_valid"], "data0_valid"), 11);

        let mut dut = verilated(DmaWrite::default(), "random_writes");
        dut.set(
            "req0",
            DmaWriteReq {
                iova: bits(0x1000),
                length: bits(64),
                skip: bits(0),
            },
        );
        dut.set("data0", beat);
        assert_eq!(
            cycles(&mut dut, &["req0_valid", "data0_valid"], "m_wr_valid"),
            10
        );
    });
}
