//! BAR0 as a driver sees it.

use super::support::{axil_read, axil_write, field, reset, run, verilated};
use mprdma_hw::cosim::{Cosim, VerilatedBlock};
use mprdma_hw::nic::control::Registers;
use mprdma_hw::prelude::*;
use mprdma_hw::with_big_stack;
use mprdma_spec::command::{
    cq_image, eq_image, mr_image, qp_image, trace_request, Opcode, Status, MASK_MULTIPATH,
};
use mprdma_spec::counter::Counter;
use mprdma_spec::{config, csr};

fn start() -> VerilatedBlock {
    let mut card = verilated("registers", || Registers::<12>::new(&config::SIM));
    reset(&mut card);
    card.inputs().set("ready", 1);
    for _ in 0..2000 {
        if axil_read(&mut card, csr::STATUS) & csr::STATUS_READY != 0 {
            return card;
        }
    }
    panic!("never ready");
}

/// Runs a command; the owners answer as soon as they are asked, except when `hold`.
fn command(card: &mut VerilatedBlock, opcode: u32, image: &[u8]) -> Status {
    write_args(card, image);
    axil_write(card, csr::CMD_OPCODE, opcode);
    finish(card)
}

fn write_args(card: &mut VerilatedBlock, image: &[u8]) {
    for (i, dword) in image.chunks(4).enumerate() {
        let value = u32::from_le_bytes(dword.try_into().expect("four bytes"));
        axil_write(card, csr::CMD_ARGS + 4 * i as u32, value);
    }
}

fn finish(card: &mut VerilatedBlock) -> Status {
    for _ in 0..200 {
        let asked = card.outputs().bit("cfg_valid");
        card.inputs().set("done", if asked { 0xfff } else { 0 });
        let status = axil_read(card, csr::CMD_STATUS);
        card.inputs().set("done", 0);
        if status & csr::CMD_BUSY == 0 {
            return Status::from_code(status as u8).expect("a known status");
        }
    }
    panic!("the command hangs");
}

fn cq(number: u64) -> [u8; cq_image::BYTES] {
    let mut image = [0; cq_image::BYTES];
    cq_image::CQN.set(&mut image, number);
    cq_image::LOG2.set(&mut image, 4);
    cq_image::BASE.set(&mut image, 0x1000);
    image
}

fn qp(number: u64) -> [u8; qp_image::BYTES] {
    let mut image = [0; qp_image::BYTES];
    for (f, value) in [
        (qp_image::QPN, number),
        (qp_image::STATE, 1),
        (qp_image::MODE, 1),
        (qp_image::MTU, 5),
        (qp_image::SQ_BASE, 0x4000),
        (qp_image::SQ_LOG2, 6),
        (qp_image::SQ_CQN, 3),
        (qp_image::RQ_LOG2, 6),
        (qp_image::RQ_BASE, 0x8000),
        (qp_image::RQ_CQN, 3),
        (qp_image::RTO_FLOOR, 8),
        (qp_image::BURST_INTERVAL, 16),
        (qp_image::DELTA, 32),
        (qp_image::VP_BASE, 49152),
        (qp_image::VP_COUNT, 64),
        (qp_image::INITIAL_WINDOW, 8),
        (qp_image::CWND_MAX, 512),
    ] {
        f.set(&mut image, value);
    }
    image
}

#[test]
fn identifies_itself() {
    let mut card = start();
    assert_eq!(axil_read(&mut card, csr::MAGIC), csr::MAGIC_VALUE);
    assert_eq!(axil_read(&mut card, csr::VERSION), csr::VERSION_VALUE);
    let config0 = axil_read(&mut card, csr::CONFIG0);
    assert_eq!(config0 & 0xff, config::SIM.qp_log2 as u32);
    assert_eq!(config0 >> 8 & 0xff, config::SIM.cq_log2 as u32);
    assert_eq!(axil_read(&mut card, csr::CONFIG1), 128 | 250 << 16);
    assert_ne!(axil_read(&mut card, csr::BUILD_ID_LO), 0);
    assert_eq!(
        axil_read(&mut card, 0xffc),
        0,
        "an unknown register reads zero"
    );
    axil_write(&mut card, csr::MAC_LO, 0x4433_2211);
    axil_write(&mut card, csr::MAC_HI, 0x6655);
    assert_eq!(axil_read(&mut card, csr::MAC_LO), 0x4433_2211);
    assert_eq!(card.outputs().get("mac"), 0x6655_4433_2211);
}

#[test]
fn every_vector_has_its_interval_until_a_reset() {
    let mut card = start();
    let at = |vector: u32| csr::IRQ_INTERVALS + 4 * vector;
    for vector in 0..8 {
        assert_eq!(axil_read(&mut card, at(vector)), 0);
        axil_write(&mut card, at(vector), 0x00a5_8001 + vector);
    }
    axil_write(&mut card, at(8), 0x1111);
    for vector in 0..8 {
        let expected = 0x8001 + vector;
        assert_eq!(axil_read(&mut card, at(vector)), expected, "16 bits");
        let port = format!("interval_{vector}");
        assert_eq!(card.outputs().get(&port), u64::from(expected));
    }
    assert_eq!(axil_read(&mut card, at(8)), 0, "there are eight");
    axil_write(&mut card, csr::CONTROL, csr::CONTROL_RESET);
    run(&mut card, 20);
    for vector in 0..8 {
        assert_eq!(axil_read(&mut card, at(vector)), 0);
    }
}

#[test]
fn clocks_run() {
    let mut card = start();
    let (tick, cycles) = (
        axil_read(&mut card, csr::TICK),
        axil_read(&mut card, csr::CYCLES_LO),
    );
    run(&mut card, 1600);
    let ticks = axil_read(&mut card, csr::TICK) - tick;
    assert!((100..=102).contains(&ticks), "{ticks} ticks in 1600 cycles");
    let cycles = axil_read(&mut card, csr::CYCLES_LO) - cycles;
    assert!((1600..1640).contains(&cycles));
    assert_eq!(axil_read(&mut card, csr::CYCLES_HI), 0);
}

#[test]
fn commands_are_checked_before_they_act() {
    let mut card = start();
    let args = qp(5);
    assert_eq!(command(&mut card, Opcode::Nop as u32, &args), Status::Ok);
    assert_eq!(
        axil_read(&mut card, csr::CMD_ARGS),
        5,
        "arguments read back"
    );
    assert_eq!(command(&mut card, 14, &args), Status::BadOpcode);
    assert_eq!(command(&mut card, 255, &args), Status::BadOpcode);
    assert_eq!(
        command(&mut card, Opcode::CreateQp as u32, &args),
        Status::Missing,
        "CQ 3 is not there"
    );
    assert_eq!(
        command(&mut card, Opcode::CreateCq as u32, &cq(64)),
        Status::BadIndex
    );
    assert_eq!(
        command(&mut card, Opcode::CreateCq as u32, &cq(3)),
        Status::Ok
    );
    assert_eq!(
        command(&mut card, Opcode::CreateCq as u32, &cq(3)),
        Status::Exists
    );
    assert_eq!(
        command(&mut card, Opcode::QueryQp as u32, &args),
        Status::Missing
    );
    assert_eq!(
        command(&mut card, Opcode::CreateQp as u32, &qp(1024)),
        Status::BadIndex
    );

    // Each of these makes a good image bad.
    for (f, value) in [
        (qp_image::MODE, 0),
        (qp_image::STATE, 0),
        (qp_image::STATE, 5),
        (qp_image::MTU, 0),
        (qp_image::MTU, 6),
        (qp_image::SQ_LOG2, 0),
        (qp_image::SQ_BASE, 0x4020),
        (qp_image::RQ_BASE, 0x8008),
        (qp_image::VP_COUNT, 0),
        (qp_image::VP_BASE, 65500),
        (qp_image::DELTA, 0),
        (qp_image::DELTA, 128),
        (qp_image::INITIAL_WINDOW, 0),
        (qp_image::CWND_MAX, 0),
        (qp_image::CWND_MAX, 2048),
        (qp_image::BURST_INTERVAL, 0),
        (qp_image::RTO_FLOOR, 0),
    ] {
        let mut image = args;
        f.set(&mut image, value);
        let status = command(&mut card, Opcode::CreateQp as u32, &image);
        assert_eq!(status, Status::BadArgument, "{} = {value}", f.name);
    }
    assert_eq!(
        command(&mut card, Opcode::CreateQp as u32, &args),
        Status::Ok
    );
    assert_eq!(
        command(&mut card, Opcode::CreateQp as u32, &args),
        Status::Exists
    );
    assert_eq!(
        command(&mut card, Opcode::QueryQp as u32, &args),
        Status::Ok
    );

    // MODIFY_QP looks only at the groups of its mask.
    let mut image = args;
    qp_image::VP_COUNT.set(&mut image, 0);
    assert_eq!(
        command(&mut card, Opcode::ModifyQp as u32, &image),
        Status::Ok
    );
    qp_image::MASK.set(&mut image, MASK_MULTIPATH);
    assert_eq!(
        command(&mut card, Opcode::ModifyQp as u32, &image),
        Status::BadArgument
    );

    assert_eq!(
        command(&mut card, Opcode::DestroyCq as u32, &cq(2)),
        Status::Missing
    );
    let mut eq = [0; eq_image::BYTES];
    eq_image::LOG2.set(&mut eq, 3);
    assert_eq!(command(&mut card, Opcode::CreateEq as u32, &eq), Status::Ok);
    eq_image::VECTOR.set(&mut eq, 8);
    assert_eq!(
        command(&mut card, Opcode::DestroyEq as u32, &eq),
        Status::Ok
    );
    assert_eq!(
        command(&mut card, Opcode::CreateEq as u32, &eq),
        Status::BadArgument,
        "vector 8 of 8"
    );
}

/// Both extensions may be switched on, and telemetry is read through the same window as the state.
#[test]
fn telemetry_answers_its_own_commands() {
    let mut card = start();
    assert_eq!(
        command(&mut card, Opcode::CreateCq as u32, &cq(3)),
        Status::Ok
    );
    let mut args = qp(6);
    for opcode in [Opcode::QueryQpStats, Opcode::TraceQp, Opcode::ReadTrace] {
        let status = command(&mut card, opcode as u32, &args);
        assert_eq!(status, Status::Missing, "{opcode:?} without a QP");
    }
    qp_image::HOLE_REPAIR.set(&mut args, 1);
    qp_image::VP_RECYCLE.set(&mut args, 1);
    assert_eq!(
        command(&mut card, Opcode::CreateQp as u32, &args),
        Status::Ok
    );
    let (sender, receiver, telemetry) = ([0x11; 64], [0x22; 64], [0x33; 128]);
    card.inputs().set_bytes("sender_status", &sender);
    card.inputs().set_bytes("receiver_status", &receiver);
    card.inputs().set_bytes("telemetry", &telemetry);
    for (opcode, group, status, first, last) in [
        (Opcode::QueryQp, 0, Status::Ok, 0x11, 0x22),
        (Opcode::QueryQpStats, 0, Status::Ok, 0x33, 0x33),
        (Opcode::QueryQp, 0, Status::Ok, 0x11, 0x22),
        (Opcode::TraceQp, 0, Status::Ok, 0x33, 0x33),
        (Opcode::ReadTrace, 16, Status::Ok, 0x33, 0x33),
        (Opcode::ReadTrace, 17, Status::BadArgument, 0x33, 0x33),
    ] {
        let mut image = [0; trace_request::BYTES];
        trace_request::QPN.set(&mut image, 6);
        trace_request::GROUP.set(&mut image, group);
        assert_eq!(
            command(&mut card, opcode as u32, &image),
            status,
            "{opcode:?}"
        );
        let dword = |byte: u32| byte * 0x0101_0101;
        assert_eq!(axil_read(&mut card, csr::CMD_RESULT), dword(first));
        assert_eq!(axil_read(&mut card, csr::CMD_RESULT + 124), dword(last));
    }
}

#[test]
fn a_stale_key_does_not_deregister() {
    let mut card = start();
    let mut image = [0; mr_image::BYTES];
    mr_image::KEY.set(&mut image, 9 << 8 | 1);
    mr_image::LENGTH.set(&mut image, 4096);
    mr_image::VA.set(&mut image, u64::MAX - 10);
    assert_eq!(
        command(&mut card, Opcode::RegisterMr as u32, &image),
        Status::BadArgument,
        "wraps"
    );
    mr_image::VA.set(&mut image, 0x7000);
    assert_eq!(
        command(&mut card, Opcode::RegisterMr as u32, &image),
        Status::Ok
    );
    mr_image::KEY.set(&mut image, 9 << 8 | 2);
    assert_eq!(
        command(&mut card, Opcode::RegisterMr as u32, &image),
        Status::Exists
    );
    assert_eq!(
        command(&mut card, Opcode::DeregisterMr as u32, &image),
        Status::BadIndex
    );
    mr_image::KEY.set(&mut image, 9 << 8 | 1);
    assert_eq!(
        command(&mut card, Opcode::DeregisterMr as u32, &image),
        Status::Ok
    );
    assert_eq!(
        command(&mut card, Opcode::DeregisterMr as u32, &image),
        Status::Missing
    );
}

#[test]
fn destroy_qp_waits_for_both_markers_and_the_acks_before_them() {
    let mut card = start();
    assert_eq!(
        command(&mut card, Opcode::CreateCq as u32, &cq(3)),
        Status::Ok
    );
    assert_eq!(
        command(&mut card, Opcode::CreateQp as u32, &qp(7)),
        Status::Ok
    );
    write_args(&mut card, &qp(7));
    axil_write(&mut card, csr::CMD_OPCODE, Opcode::DestroyQp as u32);
    run(&mut card, 20);
    card.inputs().set("done", 0xfff);
    run(&mut card, 1);
    card.inputs().set("done", 0);
    card.inputs().set("acks_busy", 1);
    for marker in ["rx_marker", "tx_marker"] {
        run(&mut card, 50);
        assert_ne!(
            axil_read(&mut card, csr::CMD_STATUS) & csr::CMD_BUSY,
            0,
            "waits for {marker}"
        );
        card.inputs().set(marker, 1);
        run(&mut card, 1);
        card.inputs().set(marker, 0);
    }
    // Between two queues an ACK is in neither for a moment.
    for quiet in [0, 10] {
        card.inputs().set("acks_busy", 0);
        run(&mut card, quiet);
        card.inputs().set("acks_busy", 1);
        run(&mut card, 50);
        assert_ne!(
            axil_read(&mut card, csr::CMD_STATUS) & csr::CMD_BUSY,
            0,
            "waits for the ACKs"
        );
    }
    card.inputs().set("acks_busy", 0);
    run(&mut card, 20);
    assert_eq!(axil_read(&mut card, csr::CMD_STATUS), Status::Ok as u32);
    assert_eq!(
        command(&mut card, Opcode::QueryQp as u32, &qp(7)),
        Status::Missing
    );
}

#[test]
fn doorbells_reach_their_stream() {
    let mut card = start();
    for (addr, stream, number, arm) in [
        (
            csr::QP_DOORBELLS + 255 * csr::DOORBELL_PAGE + csr::DB_SQ,
            "sq_db",
            255,
            0,
        ),
        (
            csr::QP_DOORBELLS + 3 * csr::DOORBELL_PAGE + csr::DB_RQ,
            "rq_db",
            3,
            1,
        ),
        (
            csr::CQ_DOORBELLS + 63 * csr::DOORBELL_PAGE + csr::DB_CQ_CONSUMER,
            "cq_db",
            63,
            0,
        ),
        (
            csr::CQ_DOORBELLS + 2 * csr::DOORBELL_PAGE + csr::DB_CQ_ARM,
            "cq_db",
            2,
            1,
        ),
        (csr::EQ_DOORBELLS, "eq_db", 0, 0),
    ] {
        axil_write(&mut card, addr, 0x1_2345);
        run(&mut card, 5);
        for other in ["sq_db", "rq_db", "cq_db", "eq_db"] {
            assert_eq!(
                card.outputs().bit(&format!("{other}_valid")),
                other == stream,
                "{addr:#x} {other}"
            );
        }
        let bell = card.outputs().get_bytes(stream).to_vec();
        assert_eq!(field(&bell, 0, 16), number);
        assert_eq!(field(&bell, 16, 16), 0x2345);
        assert_eq!(field(&bell, 32, 1), arm);
        card.inputs().set(&format!("{stream}_ready"), 1);
        run(&mut card, 1);
        card.inputs().set(&format!("{stream}_ready"), 0);
        run(&mut card, 1);
        assert!(!card.outputs().bit(&format!("{stream}_valid")));
    }
}

/// A full doorbell queue holds the bus back; it loses nothing.
#[test]
fn a_flood_of_doorbells_loses_none() {
    let mut card = start();
    let addr = csr::QP_DOORBELLS;
    for index in 0..15 {
        axil_write(&mut card, addr, index);
    }
    card.inputs().set("s_axil_awaddr", addr.into());
    card.inputs().set("s_axil_wdata", 15);
    card.inputs().set("s_axil_awvalid", 1);
    card.inputs().set("s_axil_wvalid", 1);
    run(&mut card, 2);
    card.inputs().set("s_axil_awvalid", 0);
    card.inputs().set("s_axil_wvalid", 0);
    run(&mut card, 100);
    assert!(!card.outputs().bit("s_axil_bvalid"), "the sixteenth waits");
    card.inputs().set("sq_db_ready", 1);
    let mut seen = vec![];
    for _ in 0..100 {
        card.cycle().expect("a cycle");
        if card.outputs().bit("sq_db_valid") {
            seen.push(field(card.outputs().get_bytes("sq_db"), 16, 16));
        }
    }
    assert_eq!(seen, (0..16).collect::<Vec<_>>());
}

#[test]
fn counters_count_and_latch() {
    let mut card = start();
    let counter = |c: Counter| csr::COUNTERS + 8 * c as u32;
    card.inputs().set(
        "events",
        1 << Counter::Prunes as u64 | 1 << Counter::MessagesCompleted as u64,
    );
    card.inputs().set("tx_bytes", 64);
    card.inputs().set("rx_bytes", 3);
    run(&mut card, 1000);
    card.inputs().set("events", 0);
    card.inputs().set("tx_bytes", 0);
    card.inputs().set("rx_bytes", 0);
    for (c, expected) in [
        (Counter::Prunes, 1000),
        (Counter::MessagesCompleted, 1000),
        (Counter::TxBytes, 64_000),
        (Counter::RxBytes, 3000),
        (Counter::TxFrames, 0),
    ] {
        assert_eq!(axil_read(&mut card, counter(c)), expected, "{c:?}");
        assert_eq!(axil_read(&mut card, counter(c) + 4), 0);
    }
}

#[test]
fn soft_reset_clears_objects_and_counters() {
    let mut card = start();
    assert_eq!(
        command(&mut card, Opcode::CreateCq as u32, &cq(3)),
        Status::Ok
    );
    axil_write(&mut card, csr::CONTROL, csr::CONTROL_ENABLE);
    assert!(card.outputs().bit("enable"));
    card.inputs().set("rx_bytes", 9);
    run(&mut card, 10);
    card.inputs().set("rx_bytes", 0);
    axil_write(&mut card, csr::CONTROL, csr::CONTROL_RESET);
    assert!(card.outputs().bit("soft_reset"));
    assert_eq!(axil_read(&mut card, csr::STATUS) & csr::STATUS_READY, 0);
    // The object table has an entry per queue pair, region and queue to clear.
    run(&mut card, (1 << 12) + 200);
    assert!(!card.outputs().bit("enable") && !card.outputs().bit("soft_reset"));
    assert_eq!(
        axil_read(&mut card, csr::STATUS) & csr::STATUS_READY,
        csr::STATUS_READY
    );
    assert_eq!(
        axil_read(&mut card, csr::COUNTERS + 8 * Counter::RxBytes as u32),
        0
    );
    assert_eq!(
        command(&mut card, Opcode::CreateCq as u32, &cq(3)),
        Status::Ok
    );
}

/// rust-hdl's simulator and the Verilog agree cycle by cycle on a random bus.
#[test]
fn simulator_and_verilog_agree() {
    with_big_stack(|| {
        let mut cosim = Cosim::new(
            Registers::<12>::default(),
            "registers",
            |b: &mut Registers<12>, level| {
                b.clock.next = Clock { clk: level };
            },
        )
        .expect("a design");
        let mut seed = 7_u64;
        for step in 0..150 {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let r = seed >> 20;
            cosim
                .cycle(|b| {
                    b.reset.next = step < 3;
                    b.ready.next = true;
                    b.s_axil_awaddr.next =
                        bits([0x18, 0x40, 0x100, 0x104, 0x200000, 0x100008][(r % 6) as usize]);
                    b.s_axil_wdata.next = bits(r >> 8 & 0x1f);
                    b.s_axil_awvalid.next = r & 1 == 1;
                    b.s_axil_wvalid.next = r & 2 == 2;
                    b.s_axil_bready.next = true;
                    b.s_axil_araddr.next = bits(4 * (r >> 4 & 0x3f));
                    b.s_axil_arvalid.next = true;
                    b.s_axil_rready.next = r & 4 == 4;
                    b.tx_bytes.next = bits(r >> 11 & 0x3f);
                    b.done.next = bits(r >> 9 & 0xfff);
                    b.sq_db_ready.next = r & 8 == 8;
                })
                .expect("a cycle");
        }
        cosim.verify().expect("equal traces");
    });
}
