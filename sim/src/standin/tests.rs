//! What the system tests do not reach: frames that are not for us, resets under way, limits.

use super::events::{Event, Events};
use super::frames::{self, DataPacket, Peer};
use super::parse::{parse, Meta, Refusal};
use super::receive::ReceiveBuffer;
use super::*;
use crate::card::Card;
use crate::pcie::{MmioRequest, Wake};
use crate::time::{NS, US};
use mprdma_model::receiver::{Ack, ACK_MAP, SYNDROME_ACK};
use mprdma_spec::command::{cq_image, qp_image, qp_status, Opcode, QpState};
use mprdma_spec::csr;
use mprdma_spec::wire::bth::opcode;
use std::path::Path;
use std::sync::mpsc::sync_channel;

const OURS: [u8; 6] = [2, 0, 0, 0, 0, 1];
const THEIRS: [u8; 6] = [2, 0, 0, 0, 0, 2];
const SLOTS: usize = 128;

/// An address vector that leads to `OURS`; `flags` as in `qp_image::PORT_FLAGS`.
fn peer(flags: u64) -> Peer {
    let mut image = [0; qp_image::BYTES];
    qp_image::PORT_FLAGS.set(&mut image, flags);
    image[8..14].copy_from_slice(&OURS);
    qp_image::DEST_QPN.set(&mut image, 5);
    qp_image::HOP_LIMIT.set(&mut image, 64);
    qp_image::PKEY.set(&mut image, 0xffff);
    Peer::read(&image)
}

fn write(flags: u64, payload: &[u8], readable: bool) -> Vec<u8> {
    let packet = DataPacket {
        opcode: opcode::MP_WRITE_ONLY_IMM,
        psn: 77,
        vp: 49_200,
        flags: 12,
        wsn: 3,
        offset: 0,
        raddr: 0x1234_5678_9abc,
        rkey: 0x501,
        imm: Some(0xdead_beef),
        ..DataPacket::default()
    };
    frames::data(THEIRS, &peer(flags), &packet, 999, payload, readable)
}

#[test]
fn what_is_built_is_what_is_read() {
    let payload: Vec<u8> = (0..101).collect();
    for flags in 0..4 {
        let frame = write(flags, &payload, true);
        let meta = parse(&frame, OURS, SLOTS).unwrap();
        assert_eq!(frame[meta.payload.clone()], payload, "port flags {flags}");
        let expected = Meta {
            opcode: opcode::MP_WRITE_ONLY_IMM,
            qpn: 5,
            psn: 77,
            pkey: 0xffff,
            vp: 49_200,
            flags: 12,
            stamp: 999,
            wsn: 3,
            raddr: 0x1234_5678_9abc,
            rkey: 0x501,
            dma_length: 101,
            imm: 0xdead_beef,
            payload: meta.payload.clone(),
            ..Meta::default()
        };
        assert_eq!(meta, expected);
    }
    for (slots, map) in [(64, 1 << 63 | 1), (128, 1 << 127 | 0b110)] {
        let ack = Ack {
            sack: 9,
            aack: 4,
            msn: 2,
            syndrome: SYNDROME_ACK,
            flags: ACK_MAP,
            vp: 50_000,
            stamp: 7,
            map,
        };
        let frame = frames::ack(THEIRS, &peer(0), &ack, slots);
        let meta = parse(&frame, OURS, slots).unwrap();
        assert_eq!(
            (meta.psn, meta.aack, meta.flags, meta.vp_echo, meta.stamp),
            (9, 4, ACK_MAP, 50_000, 7)
        );
        assert_eq!((meta.map, meta.payload.len()), (map, 0), "{slots} slots");
    }
}

#[test]
fn packets_of_a_read_are_built_and_read() {
    let request = DataPacket {
        opcode: opcode::MP_READ_REQUEST,
        psn: 77,
        vp: 49_200,
        flags: 4,
        wsn: 3,
        raddr: 0x1234_5678_9abc,
        rkey: 0x501,
        read_length: 1 << 28,
        ..DataPacket::default()
    };
    let frame = frames::data(THEIRS, &peer(0), &request, 999, &[], true);
    let meta = parse(&frame, OURS, SLOTS).unwrap();
    let reth = (meta.raddr, meta.rkey, meta.dma_length);
    assert_eq!(reth, (0x1234_5678_9abc, 0x501, 1 << 28));
    assert_eq!((meta.wsn, meta.flags, meta.payload.len()), (3, 4, 0));
    for code in opcode::MP_READ_RESPONSE_FIRST..=opcode::MP_READ_RESPONSE_ONLY {
        let response = DataPacket {
            opcode: code,
            wsn: 15,
            offset: 9,
            read_length: 0,
            ..request
        };
        let payload = [7; 64];
        let frame = frames::data(THEIRS, &peer(1), &response, 999, &payload, true);
        let meta = parse(&frame, OURS, SLOTS).unwrap();
        assert_eq!(frame[meta.payload.clone()], payload);
        assert_eq!((meta.opcode, meta.wsn, meta.offset), (code, 15, 9));
        let reth = (meta.raddr, meta.rkey, meta.dma_length);
        assert_eq!(reth, (0, 0, 0), "it has none");
    }
}

#[test]
fn packets_of_an_atomic_are_built_and_read() {
    let (swap_add, compare) = (0x0102_0304_0506_0708, 0x1112_1314_1516_1718);
    for code in [opcode::MP_COMPARE_SWAP, opcode::MP_FETCH_ADD] {
        let request = DataPacket {
            opcode: code,
            wsn: 15,
            flags: 4,
            raddr: 0x1234_5678_9ab8,
            rkey: 0x501,
            swap_add,
            compare,
            ..DataPacket::default()
        };
        let frame = frames::data(THEIRS, &peer(0), &request, 999, &[], true);
        let meta = parse(&frame, OURS, SLOTS).unwrap();
        assert_eq!((meta.opcode, meta.wsn, meta.flags), (code, 15, 4));
        assert_eq!(
            (meta.raddr, meta.rkey, meta.dma_length),
            (0x1234_5678_9ab8, 0x501, 8)
        );
        assert_eq!((meta.swap_add, meta.compare), (swap_add, compare));
        assert!(meta.payload.is_empty());
    }
    let answer = DataPacket {
        opcode: opcode::MP_ATOMIC_ACK,
        wsn: 3,
        flags: 4,
        swap_add,
        ..DataPacket::default()
    };
    let frame = frames::data(THEIRS, &peer(1), &answer, 999, &[], true);
    let meta = parse(&frame, OURS, SLOTS).unwrap();
    assert_eq!((meta.opcode, meta.wsn), (opcode::MP_ATOMIC_ACK, 3));
    let rest = (meta.raddr, meta.rkey, meta.dma_length, meta.compare);
    assert_eq!((meta.swap_add, rest), (swap_add, (0, 0, 0, 0)));
    // Its header is 8 bytes at the end.
    let cut = [&frame[..frame.len() - 12], &frame[frame.len() - 4..]].concat();
    assert!(parse(&cut, OURS, SLOTS).is_err());
}

#[test]
fn a_frame_is_refused_for_the_first_thing_wrong() {
    let good = write(0, &[7; 64], true);
    let end = good.len();
    assert!(parse(&good, OURS, SLOTS).is_ok());
    let changed = |at: usize, value: u8| {
        let mut frame = good.clone();
        frame[at] = value;
        frame
    };
    let resum = |mut frame: Vec<u8>| {
        let sum = mprdma_spec::wire::ipv4::checksum(&{
            let mut header = frame[14..34].to_vec();
            header[10..12].fill(0);
            header
        });
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame
    };
    let cases = [
        ("cut in Ethernet", good[..13].to_vec(), Refusal::Malformed),
        ("for another", changed(5, 9), Refusal::NotOurs),
        ("ARP", changed(13, 6), Refusal::NotOurs),
        ("cut in IPv4", good[..33].to_vec(), Refusal::Malformed),
        ("IPv4 checksum", changed(24, !good[24]), Refusal::Malformed),
        ("options", resum(changed(14, 0x46)), Refusal::Malformed),
        ("TCP", resum(changed(23, 6)), Refusal::NotOurs),
        (
            "IP longer than the frame",
            good[..end - 1].to_vec(),
            Refusal::Malformed,
        ),
        ("another UDP port", changed(37, 0), Refusal::NotOurs),
        ("UDP length", changed(39, !good[39]), Refusal::Malformed),
        ("BTH version", changed(43, 1), Refusal::Malformed),
        ("a bit of the payload", changed(end - 9, 6), Refusal::Icrc),
        (
            "unreadable payload",
            write(0, &[7; 64], false),
            Refusal::Icrc,
        ),
    ];
    for (name, frame, refusal) in cases {
        assert_eq!(parse(&frame, OURS, SLOTS), Err(refusal), "{name}");
    }
    // What switches change on the way is not in the ICRC.
    let marked = resum(changed(15, 3));
    assert!(parse(&marked, OURS, SLOTS).unwrap().ce);
}

#[test]
fn events_come_in_order_and_a_reset_spares_what_is_on_the_wire() {
    let mut events = Events::default();
    for (at, qpn) in [(5, 1), (3, 2), (5, 3)] {
        events.push(at, Event::Burst(qpn));
    }
    events.push(4, Event::Posted);
    assert!(matches!(events.pop_before(10), Some((3, Event::Burst(2)))));
    assert!(events.pop_before(4).is_none());
    assert!(matches!(events.pop_before(10), Some((4, Event::Posted))));
    assert!(matches!(events.pop_before(10), Some((5, Event::Burst(1)))));
    let (last_bit, frame) = (9, vec![]);
    events.push(8, Event::FrameBegins { last_bit, frame });
    events.reset();
    assert!(matches!(
        events.pop_before(10),
        Some((8, Event::FrameBegins { .. }))
    ));
    assert!(events.is_empty());
}

#[test]
fn the_receive_buffer_is_full_until_frames_have_left() {
    let mut buffer = ReceiveBuffer::default();
    let mut held = 0;
    while buffer.has_room(0, 66) {
        buffer.hold(100, 66);
        held += 1;
    }
    assert_eq!(held, 1023 / 66);
    assert!(!buffer.has_room(99, 66) && buffer.has_room(100, 66));
}

/// A card with a host that has no memory.
struct Lab {
    card: StandIn,
    host: Arc<HostSide>,
    now: Ps,
}

impl Lab {
    fn new() -> Lab {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/direct.toml");
        let scenario = Scenario::load(&file).unwrap();
        let host = Arc::new(HostSide::new(Wake::default()));
        let rate = Rate::from_gbps(100.0);
        let card = StandIn::new(&scenario, 0, rate, 1, Arc::clone(&host));
        let mut lab = Lab { card, host, now: 0 };
        lab.run(30 * US);
        lab
    }

    fn run(&mut self, length: Ps) {
        self.now += length;
        self.card.run_until(self.now);
    }

    fn write(&mut self, offset: u32, value: u32) {
        self.host.request(MmioRequest::Write { offset, value });
        self.run(100 * NS);
    }

    fn read(&mut self, offset: u32) -> u32 {
        let (reply, answer) = sync_channel(1);
        self.host.request(MmioRequest::Read { offset, reply });
        self.run(100 * NS);
        answer.try_recv().unwrap()
    }

    fn counter(&mut self, counter: Counter) -> u32 {
        self.read(csr::COUNTERS + 8 * counter as u32)
    }

    fn command(&mut self, opcode: Opcode, image: &[u8]) -> u32 {
        for (i, word) in image.chunks_exact(4).enumerate() {
            let value = u32::from_le_bytes(word.try_into().unwrap());
            self.write(csr::CMD_ARGS + 4 * i as u32, value);
        }
        self.write(csr::CMD_OPCODE, opcode as u32);
        self.run(US);
        self.read(csr::CMD_STATUS)
    }

    fn frame(&mut self, frame: Vec<u8>) {
        let (start, end) = (self.now, self.now + 100 * NS);
        self.card.expect(start, end, frame);
        self.run(US);
    }

    /// A queue pair whose ring nobody can read.
    fn qp(&mut self, sq_log2: u64) {
        let mut cq = [0; cq_image::BYTES];
        cq_image::LOG2.set(&mut cq, 15);
        assert_eq!(self.command(Opcode::CreateCq, &cq), 0);
        let mut image = [0; qp_image::BYTES];
        for (field, value) in [
            (qp_image::STATE, QpState::Rts as u64),
            (qp_image::MODE, 1),
            (qp_image::MTU, 5),
            (qp_image::SQ_LOG2, sq_log2),
            (qp_image::RQ_LOG2, 1),
            (qp_image::RTO_FLOOR, 8),
            (qp_image::BURST_INTERVAL, 16),
            (qp_image::DELTA, 32),
            (qp_image::VP_COUNT, 1),
            (qp_image::INITIAL_WINDOW, 32),
            (qp_image::CWND_MAX, 512),
        ] {
            field.set(&mut image, value);
        }
        assert_eq!(self.command(Opcode::CreateQp, &image), 0);
    }
}

#[test]
fn drops_are_counted_by_their_cause() {
    let mut lab = Lab::new();
    lab.write(csr::MAC_LO, u32::from_le_bytes([2, 0, 0, 0]));
    lab.write(csr::MAC_HI, 0x0100);
    let frame = write(0, &[1; 64], true);
    lab.frame(frame.clone());
    assert_eq!(lab.counter(Counter::RxDropNoQp), 1, "not enabled");
    lab.write(csr::CONTROL, csr::CONTROL_ENABLE);
    lab.frame(frame.clone());
    assert_eq!(lab.counter(Counter::RxDataPackets), 1);
    assert_eq!(lab.counter(Counter::RxDropNoQp), 2, "no such QP");
    let mut bad = frame.clone();
    bad[60] ^= 1;
    lab.frame(bad);
    assert_eq!(lab.counter(Counter::RxDropIcrc), 1);
    lab.frame(frame[..40].to_vec());
    assert_eq!(lab.counter(Counter::RxDropMalformed), 1);
    assert_eq!(lab.counter(Counter::RxFrames), 4);
    // A soft reset clears the counters and disables; the address stays.
    lab.write(csr::CONTROL, csr::CONTROL_ENABLE | csr::CONTROL_RESET);
    assert_eq!(lab.read(csr::STATUS) & csr::STATUS_READY, 0);
    lab.run(30 * US);
    assert_eq!(lab.read(csr::STATUS) & csr::STATUS_READY, 1);
    assert_eq!(lab.counter(Counter::RxFrames), 0);
    assert_eq!((lab.read(csr::CONTROL), lab.read(csr::MAC_HI)), (0, 0x0100));
}

#[test]
fn a_frame_whose_reception_overlaps_a_reset_is_not_seen() {
    let mut lab = Lab::new();
    let (reply, done) = sync_channel(1);
    let (start, end) = (lab.now, lab.now + US);
    lab.card.expect(start, end, write(0, &[1; 64], true));
    lab.run(10 * NS);
    lab.host.request(MmioRequest::Reset { reply });
    lab.run(10 * US);
    assert_eq!(done.try_recv(), Ok(0));
    assert_eq!(lab.counter(Counter::RxFrames), 0);
    assert_eq!(
        (lab.card.stats().mac.rx_frames, lab.card.stats().resets),
        (1, 1)
    );
    lab.frame(write(0, &[1; 64], true));
    assert_eq!(lab.counter(Counter::RxFrames), 1);
}

/// The ring cannot be read: the first request fails, and 2^15 - 1 behind it are flushed one by one, not one in another.
#[test]
fn a_send_queue_of_the_largest_size_is_flushed() {
    let mut lab = Lab::new();
    lab.qp(15);
    lab.write(csr::QP_DOORBELLS + csr::DB_SQ, 1 << 15);
    lab.run(20_000 * US);
    assert_eq!(lab.counter(Counter::CqesWritten), 1 << 15);
    assert_eq!(lab.counter(Counter::MessagesCompleted), 0);
    let mut image = [0; qp_image::BYTES];
    qp_image::QPN.set(&mut image, 0);
    assert_eq!(lab.command(Opcode::QueryQp, &image), 0);
    let state = lab.read(csr::CMD_RESULT) as u64 & qp_status::STATE.max();
    assert_eq!(state, QpState::Error as u64);
}

#[test]
fn an_idle_card_says_so() {
    let mut lab = Lab::new();
    let before = lab.card.active_at();
    lab.run(100 * US);
    assert_eq!(lab.card.active_at(), before);
    lab.frame(write(0, &[1; 64], true));
    assert!(lab.card.active_at() > before);
}

/// An arm behind the card's index interrupts at once.
#[test]
fn interrupts_keep_their_distance() {
    let mut lab = Lab::new();
    let mut cq = [0; cq_image::BYTES];
    cq_image::LOG2.set(&mut cq, 4);
    cq_image::VECTOR.set(&mut cq, 5);
    assert_eq!(lab.command(Opcode::CreateCq, &cq), 0);
    let arm = csr::CQ_DOORBELLS + csr::DB_CQ_ARM;
    let interval = csr::IRQ_INTERVALS + 4 * 5;
    lab.write(arm, 1);
    lab.write(arm, 1);
    assert_eq!(lab.counter(Counter::InterruptsRaised), 2, "not moderated");
    lab.write(interval, 0xa_0000 + 1000);
    assert_eq!(lab.read(interval), 1000);
    assert_eq!(lab.read(interval + 4), 0);
    for _ in 0..3 {
        lab.write(arm, 1);
    }
    assert_eq!(lab.counter(Counter::InterruptsRaised), 3);
    lab.run(60 * US);
    assert_eq!(lab.counter(Counter::InterruptsRaised), 3);
    lab.run(4 * US);
    assert_eq!(
        lab.counter(Counter::InterruptsRaised),
        4,
        "after 64 us, once"
    );
    assert_eq!(lab.counter(Counter::InterruptsHeld), 2);
    assert_eq!(lab.card.stats().pcie.interrupts, 4);
    // None ends it at once.
    lab.write(arm, 1);
    assert_eq!(lab.counter(Counter::InterruptsRaised), 4);
    lab.write(interval, 0);
    assert_eq!(lab.counter(Counter::InterruptsRaised), 5);
    lab.run(200 * US);
    assert_eq!(lab.counter(Counter::InterruptsRaised), 5);
    // A reset forgets what waits.
    lab.write(interval, 1000);
    lab.write(arm, 1);
    lab.write(arm, 1);
    lab.write(csr::CONTROL, csr::CONTROL_RESET);
    lab.run(200 * US);
    assert_eq!(lab.read(interval), 0);
    assert_eq!(lab.card.stats().pcie.interrupts, 6);
}
