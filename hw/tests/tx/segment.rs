//! Segment: random launches, retirements, grants and commands against a list of messages.

use crate::support::*;
use mprdma_hw::nic::segment::Segment;
use mprdma_hw::nic::types::*;
use mprdma_hw::prelude::*;
use mprdma_hw::with_big_stack;
use mprdma_spec::command::{qp_image, Opcode, MASK_SENDER, MASK_STATE};
use mprdma_spec::descriptor::{WrOpcode, WQE_SYNC};
use mprdma_spec::wire::{bth, mpeth};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeSet, VecDeque};

const QPW: usize = 2;
const QPS: u64 = 1 << QPW;

crate::bench! {
    segment, Segment<QPW, 8>,
    in {
        cfg: CfgReq, cfg_valid: bool, launch: Launch, launch_valid: bool, retired: Retired, retired_valid: bool,
        grant: Grant, grant_valid: bool, packet_ready: bool, payload_req_ready: bool,
    }
    out {
        launch_ready: bool, retired_ready: bool, grant_ready: bool, packet: PacketCmd, packet_valid: bool,
        payload_req: DmaReadReq, payload_req_valid: bool, cfg_done: bool, init_done: bool, busy: bool,
    }
}

/// A message as the test makes it.
pub fn message(rng: &mut ChaCha8Rng, qpn: u64, slot: u64, first_psn: u32, room: u32) -> Launch {
    let mtu = rng.random_range(1..=5u64);
    let bytes = 128u64 << mtu;
    let length = loop {
        let length = match rng.random_range(0..13) {
            0 => 0,
            1 => rng.random_range(1..4),
            2 => bytes,
            3 => bytes + 1,
            4 => bytes - 1,
            5 => bytes * rng.random_range(2..9),
            6 => 1 << 31,
            7 => rng.random_range(0..=1 << 31),
            8 => bytes * rng.random_range(65_535..65_540) + rng.random_range(0..bytes),
            _ => rng.random_range(0..20_000),
        };
        if length.div_ceil(bytes).max(1) <= u64::from(room) {
            break length;
        }
    };
    // WRITE, WRITE with immediate, READ, ATOMICs, then answers to READs and to ATOMICs, and the WRITE of nobody.
    // Half of them are work requests to write.
    let (opcode, response) = [
        (WrOpcode::RdmaWrite, false),
        (WrOpcode::RdmaWriteWithImm, false),
        (WrOpcode::RdmaRead, false),
        (WrOpcode::AtomicCmpAndSwp, false),
        (WrOpcode::AtomicFetchAndAdd, false),
        (WrOpcode::RdmaRead, true),
        (WrOpcode::AtomicCmpAndSwp, true),
        (WrOpcode::AtomicFetchAndAdd, true),
        (WrOpcode::RdmaWrite, true),
    ][match rng.random_range(0..14) {
        n @ 0..9 => n,
        n => n % 2,
    }];
    let empty = response && opcode == WrOpcode::RdmaWrite;
    let length = if empty { 0 } else { length };
    let failed = !response && chance(rng, 5);
    let packets = if failed {
        0
    } else if opcode.is_atomic() || opcode == WrOpcode::RdmaRead && !response {
        1
    } else {
        length.div_ceil(bytes).max(1)
    };
    Launch {
        qpn: qpn.to_bits(),
        slot: slot.to_bits(),
        wqe_index: rng.random_range(0..1u64 << 16).to_bits(),
        opcode: (opcode as u64).to_bits(),
        flags: if response {
            0
        } else {
            rng.random_range(0..16u64)
        }
        .to_bits(),
        status: if failed { 4u64 } else { 0 }.to_bits(),
        first_psn: u64::from(first_psn).to_bits(),
        packets: packets.to_bits(),
        iova: rng.random_range(0..u64::MAX >> 1).to_bits(),
        raddr: if empty {
            0
        } else {
            rng.random_range(0..u64::MAX >> 1)
        }
        .to_bits(),
        rkey: if empty {
            0
        } else {
            rng.random_range(0..1u64 << 32)
        }
        .to_bits(),
        length: length.to_bits(),
        imm: rng.random_range(0..1u64 << 32).to_bits(),
        swap_add: rng.random::<u64>().to_bits(),
        compare: rng.random::<u64>().to_bits(),
        wsn: rng.random_range(0..1u64 << 24).to_bits(),
        mtu: mtu.to_bits(),
        response,
    }
}

/// The packet of `grant` inside `message`, and where its payload lies.
fn expect(message: &Launch, grant: &Grant) -> (PacketCmd, u64) {
    let bytes = 128u64 << message.mtu.to_u64();
    let index = u64::from(psn_distance(grant.psn.to_u32(), message.first_psn.to_u32()));
    let packets = message.packets.to_u64();
    let first = index == 0;
    let last = index + 1 == packets;
    let asked = |opcode: WrOpcode| message.opcode.to_u64() == opcode as u64;
    let imm = asked(WrOpcode::RdmaWriteWithImm);
    let read = asked(WrOpcode::RdmaRead) && !message.response;
    let data = asked(WrOpcode::RdmaRead) && message.response;
    let (swap, add) = (
        asked(WrOpcode::AtomicCmpAndSwp),
        asked(WrOpcode::AtomicFetchAndAdd),
    );
    let atomic = swap || add;
    let opcode = match (first, last, imm) {
        _ if read => bth::opcode::MP_READ_REQUEST,
        _ if atomic && message.response => bth::opcode::MP_ATOMIC_ACK,
        _ if swap => bth::opcode::MP_COMPARE_SWAP,
        _ if add => bth::opcode::MP_FETCH_ADD,
        (true, true, _) if data => bth::opcode::MP_READ_RESPONSE_ONLY,
        (true, false, _) if data => bth::opcode::MP_READ_RESPONSE_FIRST,
        (false, true, _) if data => bth::opcode::MP_READ_RESPONSE_LAST,
        (false, false, _) if data => bth::opcode::MP_READ_RESPONSE_MIDDLE,
        (true, true, false) => bth::opcode::MP_WRITE_ONLY,
        (true, true, true) => bth::opcode::MP_WRITE_ONLY_IMM,
        (false, true, false) => bth::opcode::MP_WRITE_LAST,
        (false, true, true) => bth::opcode::MP_WRITE_LAST_IMM,
        (true, false, _) => bth::opcode::MP_WRITE_FIRST,
        (false, false, _) => bth::opcode::MP_WRITE_MIDDLE,
    };
    let mut flags = 0;
    for (set, flag) in [
        (grant.retx, mpeth::FLAG_RETX),
        (
            message.flags.to_u64() & WQE_SYNC != 0 && index < 1 << 16,
            mpeth::FLAG_SYNC,
        ),
        (last, mpeth::FLAG_TAIL),
        (last && imm, mpeth::FLAG_COMPLETION),
    ] {
        flags |= if set { flag } else { 0 };
    }
    let length = if read || atomic {
        0
    } else if last {
        message.length.to_u64() - index * bytes
    } else {
        bytes
    };
    let packet = PacketCmd {
        qpn: grant.qpn,
        vp: grant.vp,
        psn: grant.psn,
        opcode: u64::from(opcode).to_bits(),
        flags: u64::from(flags).to_bits(),
        wsn: if imm || read || data || atomic {
            message.wsn
        } else {
            Bits::default()
        },
        offset: (index & 0xffff).to_bits(),
        raddr: (message.raddr.to_u64() + index * bytes).to_bits(),
        rkey: message.rkey,
        length: length.to_bits(),
        dma_length: if read {
            message.length
        } else {
            length.to_bits()
        },
        imm: if imm { message.imm } else { Bits::default() },
        swap_add: if atomic {
            message.swap_add
        } else {
            Bits::default()
        },
        compare: if atomic && !message.response {
            message.compare
        } else {
            Bits::default()
        },
        marker: false,
    };
    (packet, message.iova.to_u64() + index * bytes)
}

fn brief(p: &PacketCmd) -> String {
    let (qpn, psn, opcode, offset) = (
        p.qpn.to_u64(),
        p.psn.to_u64(),
        p.opcode.to_u64(),
        p.offset.to_u64(),
    );
    format!(
        "QP {qpn} PSN {psn:#x} opcode {opcode:#x} offset {offset} marker {}",
        p.marker
    )
}

#[derive(Default)]
struct Queue {
    live: VecDeque<Launch>,
    next_slot: u64,
    next_psn: u32,
    /// PSN after the last grant.
    cursor: u32,
}

impl Queue {
    fn holds(&self, psn: u32) -> bool {
        self.live
            .iter()
            .any(|m| psn_distance(psn, m.first_psn.to_u32()) < m.packets.to_u32())
    }
}

struct Expected {
    qpn: u64,
    /// Slot of the message, if there is one.
    slot: Option<u64>,
    packet: PacketCmd,
    iova: u64,
    /// A WRITE that no work request asked for.
    empty: bool,
    /// The message may have gone before the grant was served.
    optional: bool,
}

fn drive<B: Bench<In = segment::In, Out = segment::Out>>(
    bench: &mut B,
    rng: &mut ChaCha8Rng,
    steps: u64,
) {
    bench.reset(|i| i.reset = true);
    let mut queues: Vec<Queue> = (0..QPS).map(|_| Queue::default()).collect();
    for queue in &mut queues {
        queue.next_psn = (0xff_ff00 + rng.random_range(0..0x200)) & 0xff_ffff;
    }
    let mut launches = Source::<Launch>::new(80);
    let mut retirements = Source::<Retired>::new(80);
    let mut grants = Source::<Grant>::new(80);
    // QPN of the command on the bus, and whether it empties the ring.
    let mut command: Option<(u64, bool, CfgReq)> = None;
    let mut pause = 0;
    let mut expected: VecDeque<Expected> = VecDeque::new();
    let mut payloads: VecDeque<(u64, u64)> = VecDeque::new();
    let mut asked: VecDeque<(u64, u64)> = VecDeque::new();
    let (mut packets, mut dropped, mut markers, mut full, mut commands) = (0, 0, 0, 0, 0);
    let (mut opcodes, mut empty) = (BTreeSet::new(), 0);
    // Grants of synchronised messages beyond offset 2^16.
    let mut beyond = 0;
    let mut stall = 30;
    for step in 0..steps + 3000 {
        let ending = step >= steps;
        if step % 500 == 0 {
            stall = [0, 30, 80][rng.random_range(0..3)];
            launches.pace = rng.random_range(20..100);
            grants.pace = rng.random_range(20..100);
        }
        let qpn = rng.random_range(0..QPS);
        let frozen = command.as_ref().is_some_and(|c| c.0 == qpn);
        let queue = &mut queues[qpn as usize];
        if !ending && !frozen {
            let span = queue
                .live
                .front()
                .map_or(0, |m| psn_distance(queue.next_psn, m.first_psn.to_u32()));
            let queued = launches
                .items
                .iter()
                .filter(|l| l.qpn.to_u64() == qpn)
                .count();
            // Phases with a full ring, phases with a short one.
            let most = if step / 6000 % 2 == 0 { 64 } else { 3 };
            if queued == 0 && queue.live.len() < most && chance(rng, 5) && span < 1 << 23 {
                // Small against the PSN space, so that a grant never waits while the PSNs come round.
                let m = message(
                    rng,
                    qpn,
                    queue.next_slot,
                    queue.next_psn,
                    ((1 << 23) - span).min(1 << 18),
                );
                queue.next_slot = (queue.next_slot + 1) % 64;
                queue.next_psn = queue.next_psn.wrapping_add(m.packets.to_u32()) & 0xff_ffff;
                launches.items.push_back(m);
            }
            let leaving = retirements
                .items
                .iter()
                .filter(|r| r.qpn.to_u64() == qpn)
                .count();
            if leaving == 0 && !queue.live.is_empty() && chance(rng, if most == 64 { 1 } else { 3 })
            {
                let m = &queue.live[0];
                retirements.items.push_back(Retired {
                    qpn: m.qpn,
                    ring: true,
                    packets: m.packets,
                    own: chance(rng, 70),
                });
            }
            // A work request whose message left the ring before is none of this block's.
            if leaving == 0 && chance(rng, 2) {
                retirements.items.push_back(Retired {
                    qpn: qpn.to_bits(),
                    own: true,
                    ..Retired::default()
                });
            }
            if grants.items.len() < 3 {
                let grant = |psn: u32, rng: &mut ChaCha8Rng| Grant {
                    qpn: qpn.to_bits(),
                    psn: u64::from(psn & 0xff_ffff).to_bits(),
                    vp: rng.random_range(0..1u64 << 16).to_bits(),
                    retx: chance(rng, 30),
                    marker: false,
                };
                if chance(rng, 2) {
                    grants.items.push_back(Grant {
                        qpn: qpn.to_bits(),
                        marker: true,
                        ..Grant::default()
                    });
                } else if !queue.live.is_empty() {
                    let m = &queue.live[rng.random_range(0..queue.live.len())];
                    let (first, count) = (m.first_psn.to_u32(), m.packets.to_u32());
                    let psn = match rng.random_range(0..20) {
                        0 => queue.live[0]
                            .first_psn
                            .to_u32()
                            .wrapping_sub(rng.random_range(1..1000)),
                        1 => first,
                        2 => first.wrapping_add(count).wrapping_sub(1),
                        3 if count > 0 => first.wrapping_add(rng.random_range(0..count)),
                        4 => queue.live[0].first_psn.to_u32(),
                        _ if queue.holds(queue.cursor) => queue.cursor,
                        _ => queue.live[0].first_psn.to_u32(),
                    };
                    let psn = psn & 0xff_ffff;
                    // Never a PSN of the future.
                    let newest = queue.live.back().unwrap();
                    let limit = newest
                        .first_psn
                        .to_u32()
                        .wrapping_add(newest.packets.to_u32());
                    if psn_distance(limit, psn).wrapping_sub(1) < 1 << 23 {
                        queue.cursor = psn.wrapping_add(1) & 0xff_ffff;
                        grants.items.push_back(grant(psn, rng));
                    }
                }
            }
            // A command, when nothing of this queue pair is on its way.
            let quiet = launches.items.iter().all(|l| l.qpn.to_u64() != qpn)
                && retirements.items.iter().all(|r| r.qpn.to_u64() != qpn);
            if command.is_none() && pause == 0 && quiet && rng.random_range(0..800) == 0 {
                let (op, mask) = [
                    (Opcode::CreateQp, 0),
                    (Opcode::DestroyQp, 0),
                    (Opcode::ModifyQp, MASK_SENDER | MASK_STATE),
                    (Opcode::ModifyQp, MASK_STATE),
                    (Opcode::QueryQp, 0xff),
                    (Opcode::RegisterMr, 0xff),
                ][rng.random_range(0..6)];
                let mut image = [0; qp_image::BYTES];
                qp_image::MASK.set(&mut image, mask);
                let empties = op == Opcode::CreateQp
                    || op == Opcode::DestroyQp
                    || mask & MASK_SENDER != 0 && op == Opcode::ModifyQp;
                let cfg = CfgReq {
                    op: (op as u64).to_bits(),
                    index: qpn.to_bits(),
                    image: mprdma_hw::leaf::beat::bits_of_bytes(&image),
                };
                command = Some((qpn, empties, cfg));
                for e in expected.iter_mut().filter(|e| e.qpn == qpn && empties) {
                    e.optional |= !e.packet.marker;
                }
            }
        }
        let mut inputs = segment::In::default();
        (inputs.launch, inputs.launch_valid) = launches.show(rng);
        (inputs.retired, inputs.retired_valid) = retirements.show(rng);
        (inputs.grant, inputs.grant_valid) = grants.show(rng);
        inputs.packet_ready = ending || !chance(rng, stall);
        inputs.payload_req_ready = ending || !chance(rng, stall);
        if let Some((_, _, cfg)) = &command {
            inputs.cfg = *cfg;
            inputs.cfg_valid = true;
        }
        let out = bench.cycle(&inputs);
        // Outputs first: what leaves now was accepted earlier.
        if out.packet_valid && inputs.packet_ready {
            loop {
                let e = expected
                    .pop_front()
                    .unwrap_or_else(|| panic!("step {step}: {} for nothing", brief(&out.packet)));
                if e.packet == out.packet {
                    if e.packet.marker {
                        markers += 1;
                    } else {
                        opcodes.insert(e.packet.opcode.to_u64());
                        empty += u64::from(e.empty);
                        if e.packet.length.any() {
                            payloads.push_back((e.iova, e.packet.length.to_u64()));
                        }
                    }
                    packets += 1;
                    break;
                }
                assert!(
                    e.optional,
                    "step {step}: {} instead of {}",
                    brief(&out.packet),
                    brief(&e.packet)
                );
                dropped += 1;
            }
        }
        if out.payload_req_valid && inputs.payload_req_ready {
            asked.push_back((
                out.payload_req.iova.to_u64(),
                out.payload_req.length.to_u64(),
            ));
        }
        while !asked.is_empty() && !payloads.is_empty() {
            assert_eq!(asked.pop_front(), payloads.pop_front(), "step {step}");
        }
        assert!(asked.len() < 10);
        if let Some(m) = retirements.taken(out.retired_ready).filter(|m| m.ring) {
            let queue = &mut queues[m.qpn.index()];
            let gone = queue.live.pop_front().unwrap();
            for e in expected.iter_mut() {
                e.optional |= e.qpn == m.qpn.to_u64() && e.slot == Some(gone.slot.to_u64());
            }
        }
        if let Some(grant) = grants.taken(out.grant_ready) {
            let qpn = grant.qpn.to_u64();
            let queue = &queues[qpn as usize];
            let emptied = command.as_ref().is_some_and(|c| c.0 == qpn && c.1);
            if grant.marker {
                let packet = PacketCmd {
                    qpn: grant.qpn,
                    marker: true,
                    ..PacketCmd::default()
                };
                expected.push_back(Expected {
                    qpn,
                    slot: None,
                    packet,
                    iova: 0,
                    empty: false,
                    optional: false,
                });
            } else if let Some(m) = queue.live.iter().find(|m| {
                psn_distance(grant.psn.to_u32(), m.first_psn.to_u32()) < m.packets.to_u32()
            }) {
                let (packet, iova) = expect(m, &grant);
                let index = psn_distance(grant.psn.to_u32(), m.first_psn.to_u32());
                beyond += u64::from(m.flags.to_u64() & WQE_SYNC != 0 && index >= 1 << 16);
                let slot = Some(m.slot.to_u64());
                expected.push_back(Expected {
                    qpn,
                    slot,
                    packet,
                    iova,
                    empty: m.response && m.opcode.to_u64() == WrOpcode::RdmaWrite as u64,
                    optional: emptied,
                });
            }
        }
        if let Some(m) = launches.taken(out.launch_ready) {
            let queue = &mut queues[m.qpn.index()];
            queue.live.push_back(m);
            full += u64::from(queue.live.len() == 64);
        }
        pause -= i32::from(pause > 0);
        if out.cfg_done {
            let (qpn, empties, _) = command.take().expect("an answer without a command");
            commands += 1;
            pause = rng.random_range(2..30);
            let queue = &mut queues[qpn as usize];
            if empties {
                queue.live.clear();
                queue.next_slot = rng.random_range(0..64);
                // The PSNs go on, so that a grant of the past never meets a message of the future.
            }
        }
    }
    assert!(
        expected.iter().all(|e| e.optional),
        "{} grants made no packet",
        expected.len()
    );
    assert!(asked.is_empty() && payloads.is_empty());
    assert!(!bench.cycle(&segment::In::default()).busy);
    println!("{packets} packets ({markers} markers), {dropped} stale, {full} times full, {commands} commands, {beyond} long, {} opcodes, {empty} empty WRITEs", opcodes.len());
    assert!(packets > steps / 200 && dropped > 0);
    assert!(steps < 10_000 || (full > 0 && commands > 20 && markers > 0 && beyond > 0));
    // WRITEs 6, READ REQUEST, READ RESPONSEs 4, ATOMICs 2 and their ACK.
    assert!(steps < 10_000 || (opcodes.len() == 14 && empty > 0));
}

#[test]
fn simulated() {
    with_big_stack(|| {
        drive(
            &mut segment::Simulated::new(Segment::new()),
            &mut rng(1),
            2500,
        )
    });
}

#[test]
fn verilated() {
    with_big_stack(|| {
        for seed in 1..5 {
            drive(
                &mut segment::Verilated::new(Segment::new()),
                &mut rng(seed),
                60_000,
            );
        }
    });
}

/// Whatever comes out is taken.
fn all_taken() -> segment::In {
    segment::In {
        packet_ready: true,
        payload_req_ready: true,
        ..segment::In::default()
    }
}

/// A cycle in which whatever comes out is taken; the grants are shown once all launches are in.
fn step(
    bench: &mut segment::Verilated,
    rng: &mut ChaCha8Rng,
    launches: &mut Source<Launch>,
    grants: &mut Source<Grant>,
) -> segment::Out {
    let mut inputs = all_taken();
    (inputs.launch, inputs.launch_valid) = launches.show(rng);
    if launches.items.is_empty() {
        (inputs.grant, inputs.grant_valid) = grants.show(rng);
    }
    let out = bench.cycle(&inputs);
    launches.taken(out.launch_ready);
    grants.taken(out.grant_ready);
    out
}

/// Each is one packet without payload, also when it is sent again; the operands are whole.
#[test]
fn section_7_atomic_and_the_empty_write_are_one_packet_each() {
    with_big_stack(|| {
        let mut bench = segment::Verilated::new(Segment::new());
        bench.reset(|i| i.reset = true);
        let mut rng = rng(11);
        let (swap_add, compare) = (0x8123_4567_89ab_cdef_u64, 0xfedc_ba98_7654_3210_u64);
        let cases = [
            (
                WrOpcode::AtomicCmpAndSwp,
                false,
                bth::opcode::MP_COMPARE_SWAP,
            ),
            (
                WrOpcode::AtomicFetchAndAdd,
                false,
                bth::opcode::MP_FETCH_ADD,
            ),
            (WrOpcode::AtomicCmpAndSwp, true, bth::opcode::MP_ATOMIC_ACK),
            (
                WrOpcode::AtomicFetchAndAdd,
                true,
                bth::opcode::MP_ATOMIC_ACK,
            ),
            (WrOpcode::RdmaWrite, true, bth::opcode::MP_WRITE_ONLY),
        ];
        let mut launches = Source::<Launch>::new(100);
        let mut grants = Source::<Grant>::new(100);
        let mut expected = VecDeque::new();
        for (i, (opcode, response, code)) in cases.into_iter().enumerate() {
            let atomic = opcode.is_atomic();
            launches.items.push_back(Launch {
                slot: (i as u64).to_bits(),
                opcode: (opcode as u64).to_bits(),
                flags: if response { 0 } else { WQE_SYNC }.to_bits(),
                first_psn: (i as u64).to_bits(),
                packets: 1u64.to_bits(),
                raddr: if atomic { 0x1000u64 } else { 0 }.to_bits(),
                rkey: if atomic { 7u64 } else { 0 }.to_bits(),
                length: if atomic { 8u64 } else { 0 }.to_bits(),
                swap_add: swap_add.to_bits(),
                compare: compare.to_bits(),
                wsn: (i as u64 + 3).to_bits(),
                mtu: 3u64.to_bits(),
                response,
                ..Launch::default()
            });
            for retx in [false, true] {
                grants.items.push_back(Grant {
                    psn: (i as u64).to_bits(),
                    retx,
                    ..Grant::default()
                });
                let flags = mpeth::FLAG_TAIL
                    | if retx { mpeth::FLAG_RETX } else { 0 }
                    | if response { 0 } else { mpeth::FLAG_SYNC };
                expected.push_back(PacketCmd {
                    psn: (i as u64).to_bits(),
                    opcode: u64::from(code).to_bits(),
                    flags: u64::from(flags).to_bits(),
                    wsn: if atomic { i as u64 + 3 } else { 0 }.to_bits(),
                    raddr: if atomic { 0x1000u64 } else { 0 }.to_bits(),
                    rkey: if atomic { 7u64 } else { 0 }.to_bits(),
                    swap_add: if atomic { swap_add } else { 0 }.to_bits(),
                    compare: if atomic && !response { compare } else { 0 }.to_bits(),
                    ..PacketCmd::default()
                });
            }
        }
        for _ in 0..200 {
            let out = step(&mut bench, &mut rng, &mut launches, &mut grants);
            assert!(!out.payload_req_valid, "there is nothing to read");
            if out.packet_valid {
                assert_eq!(Some(out.packet), expected.pop_front());
            }
        }
        assert!(expected.is_empty());
    });
}

/// Cycles per packet: same message, next message, any message.
#[test]
fn pace() {
    with_big_stack(|| {
        let mut bench = segment::Verilated::new(Segment::new());
        bench.reset(|i| i.reset = true);
        let launch = |slot: u64, first: u64, packets: u64| Launch {
            slot: slot.to_bits(),
            first_psn: first.to_bits(),
            packets: packets.to_bits(),
            length: (packets * 1024).to_bits(),
            mtu: 3u64.to_bits(),
            ..Launch::default()
        };
        let mut run = |launches: Vec<Launch>, psns: Vec<u64>| -> Vec<u64> {
            let mut rng = rng(9);
            let mut launches_in = Source::<Launch>::new(100);
            launches_in.items = launches.into();
            let mut grants = Source::<Grant>::new(100);
            grants.items = psns
                .into_iter()
                .map(|psn| Grant {
                    psn: psn.to_bits(),
                    ..Grant::default()
                })
                .collect();
            let mut at = vec![];
            for cycle in 0..6000 {
                let out = step(&mut bench, &mut rng, &mut launches_in, &mut grants);
                if out.packet_valid {
                    at.push(cycle);
                }
            }
            at.windows(2).map(|w| w[1] - w[0]).collect()
        };
        // One message of 40 packets in slot 0.
        let gaps = run(vec![launch(0, 0, 40)], (0..40).collect());
        assert_eq!(gaps.len(), 39);
        assert!(gaps.iter().all(|&gap| gap <= 8), "{gaps:?}");
        // 63 messages of one packet, in order.
        let gaps = run(
            (1..64).map(|i| launch(i, 39 + i, 1)).collect(),
            (40..103).collect(),
        );
        assert_eq!(gaps.len(), 62);
        assert!(gaps.iter().all(|&gap| gap <= 9), "{gaps:?}");
        // All over the full ring.
        let gaps = run(vec![], (0..200).map(|i| i * 37 % 103).collect());
        assert_eq!(gaps.len(), 199);
        assert!(gaps.iter().all(|&gap| gap <= 37), "{gaps:?}");
    });
}

/// The longest messages: 2^23 packets in the ring, across the end of the PSN space, first and last of each message.
#[test]
fn longest_messages() {
    with_big_stack(|| {
        let mut rng = rng(10);
        let mut bench = segment::Verilated::new(Segment::new());
        bench.reset(|i| i.reset = true);
        let base = 0xc0_0001u32;
        for counts in [
            vec![1 << 23],
            vec![1, (1 << 23) - 1],
            vec![(1 << 23) - 1, 1],
            vec![1 << 22, 0, 1 << 22, 0],
        ] {
            let mut messages = vec![];
            let mut psn = base;
            for (slot, &packets) in counts.iter().enumerate() {
                messages.push(Launch {
                    slot: (slot as u64).to_bits(),
                    first_psn: u64::from(psn).to_bits(),
                    packets: u64::from(packets as u32).to_bits(),
                    length: (packets as u64 * 256).to_bits(),
                    iova: (0x1234_0000u64 + slot as u64).to_bits(),
                    raddr: 0x8765_0000u64.to_bits(),
                    mtu: 1u64.to_bits(),
                    ..Launch::default()
                });
                psn = psn.wrapping_add(packets as u32) & 0xff_ffff;
            }
            let mut launches = Source::<Launch>::new(100);
            launches.items = messages.clone().into();
            let mut grants = Source::<Grant>::new(100);
            let mut expected = VecDeque::new();
            let edges: Vec<u32> = messages
                .iter()
                .flat_map(|m| {
                    [
                        m.first_psn.to_u32(),
                        m.first_psn.to_u32().wrapping_add(m.packets.to_u32()),
                    ]
                })
                .chain([base, 0, 0x40_0000, 0xff_ffff])
                .flat_map(|psn| [psn.wrapping_sub(1), psn, psn.wrapping_add(1)])
                .collect();
            for _ in 0..300 {
                let psn = edges[rng.random_range(0..edges.len())] & 0xff_ffff;
                let grant = Grant {
                    psn: u64::from(psn).to_bits(),
                    ..Grant::default()
                };
                grants.items.push_back(grant);
                let inside =
                    |m: &&Launch| psn_distance(psn, m.first_psn.to_u32()) < m.packets.to_u32();
                expected.extend(messages.iter().find(inside).map(|m| expect(m, &grant)));
            }
            let mut payloads: VecDeque<u64> = expected.iter().map(|e| e.1).collect();
            let mut idle = 0;
            while idle < 50 {
                let out = step(&mut bench, &mut rng, &mut launches, &mut grants);
                if out.packet_valid {
                    assert_eq!(out.packet, expected.pop_front().unwrap().0);
                }
                if out.payload_req_valid {
                    assert_eq!(out.payload_req.iova.to_u64(), payloads.pop_front().unwrap());
                }
                idle = if out.busy || !grants.items.is_empty() {
                    0
                } else {
                    idle + 1
                };
            }
            assert!(expected.is_empty() && payloads.is_empty());
            // Empty the ring.
            let mut inputs = all_taken();
            inputs.cfg.op = (Opcode::CreateQp as u64).to_bits();
            inputs.cfg_valid = true;
            while !bench.cycle(&inputs).cfg_done {}
            inputs.cfg_valid = false;
            bench.cycle(&inputs);
        }
    });
}

#[test]
fn lint() {
    crate::support::lint(
        "segment",
        Segment::<QPW, 8>::new,
        include_str!("../../src/nic/segment.rs"),
    );
}
