//! The rules of protocol section 3 as conversations of packets.

use super::*;
use crate::psn;
use mprdma_spec::command::{
    self, QpState, RIGHT_REMOTE_ATOMIC, RIGHT_REMOTE_READ, RIGHT_REMOTE_WRITE,
};
use mprdma_spec::status::WcStatus;
use mprdma_spec::wire::bth::opcode;

const L: u32 = 128;
const ONLY: u8 = 0xc0 | 10;
const ONLY_IMM: u8 = 0xc0 | 11;

struct Qp(ReceiverContext);

impl Qp {
    fn new(rq_psn: u32) -> Self {
        let image = ReceiverImage {
            state: QpState::Rts as u8,
            mtu: 3,
            pd: 4,
            pkey: 0xffff,
            rights: (RIGHT_REMOTE_WRITE | RIGHT_REMOTE_READ | RIGHT_REMOTE_ATOMIC) as u8,
            rq_psn,
            ..ReceiverImage::default()
        };
        Self(
            step(
                &ReceiverContext::default(),
                &ReceiverEvent::Create(image),
                L,
            )
            .0,
        )
    }

    fn event(&mut self, event: ReceiverEvent) -> ReceiverOutputs {
        let (next, out) = step(&self.0, &event, L);
        self.0 = next;
        out
    }

    fn packet(&mut self, psn: u32, change: impl FnOnce(&mut Packet)) -> ReceiverOutputs {
        let mut packet = Packet {
            psn,
            opcode: ONLY,
            pkey: 0xffff,
            flags: FLAG_TAIL,
            vp: 50_000,
            stamp: 77,
            dma_length: 100,
            length: 100,
            stored: true,
            mr: MrAnswer {
                hit: true,
                rights: RIGHT_REMOTE_WRITE as u8,
                pd: 4,
                iova: 0x1000,
            },
            ..Packet::default()
        };
        change(&mut packet);
        self.event(ReceiverEvent::Packet(packet))
    }
}

fn with_imm(wsn: u32) -> impl Fn(&mut Packet) {
    move |p| {
        p.opcode = ONLY_IMM;
        p.flags = FLAG_TAIL | FLAG_COMPLETION;
        p.wsn = wsn;
    }
}

#[test]
fn section_3_rule_1_state_and_pkey_drop_silently() {
    let mut qp = Qp::new(5);
    let out = qp.packet(5, |p| p.pkey = 1);
    assert!(out.counts.no_qp && out.discard && out.ack.is_none());
    qp.0.state = QpState::Init as u8;
    let out = qp.packet(5, |_| ());
    assert!(out.counts.no_qp && out.discard && !out.place);
}

#[test]
fn section_3_rule_1_violations_are_answered_in_order() {
    for (change, syndrome, status) in [
        (
            (|p| p.mr.hit = false) as fn(&mut Packet),
            SYNDROME_REMOTE_ACCESS,
            WcStatus::RemoteAccessError,
        ),
        (
            |p| p.mr.pd = 5,
            SYNDROME_REMOTE_ACCESS,
            WcStatus::RemoteAccessError,
        ),
        (
            |p| p.mr.rights = 1,
            SYNDROME_REMOTE_ACCESS,
            WcStatus::RemoteAccessError,
        ),
        (
            |p| p.dma_length = 99,
            SYNDROME_INVALID_REQUEST,
            WcStatus::RemoteInvalidRequest,
        ),
        (
            |p| p.length = 1025,
            SYNDROME_INVALID_REQUEST,
            WcStatus::RemoteInvalidRequest,
        ),
        (
            |p| p.opcode = 0xc0 | 7,
            SYNDROME_INVALID_REQUEST,
            WcStatus::RemoteInvalidRequest,
        ),
        (
            |p| p.flags = 0,
            SYNDROME_INVALID_REQUEST,
            WcStatus::RemoteInvalidRequest,
        ),
    ] {
        let mut qp = Qp::new(9);
        let early = qp.packet(10, change);
        assert!(
            early.ack.is_none() && early.discard && early.access_error.is_none(),
            "too early to judge"
        );
        assert!(qp.packet(9, |_| ()).place);
        let out = qp.packet(10, change);
        let ack = out.ack.expect("a NAK");
        assert_eq!((ack.syndrome, ack.sack, ack.aack), (syndrome, 10, 10));
        assert_eq!(out.access_error, Some(status as u8));
        assert_eq!(qp.0.state, QpState::Error as u8);
        assert!(
            qp.packet(10, |_| ()).ack.is_none(),
            "in ERROR nothing is received"
        );
    }
}

#[test]
fn section_3_rule_1_a_write_of_no_bytes_needs_no_key() {
    let mut qp = Qp::new(1);
    let out = qp.packet(1, |p| {
        p.length = 0;
        p.dma_length = 0;
        p.stored = false;
        p.mr.hit = false;
    });
    assert!(!out.place && !out.discard);
    assert_eq!(out.ack.expect("an ACK").aack, 2);
}

#[test]
fn section_3_rule_2_a_late_packet_is_acknowledged_not_placed() {
    let mut qp = Qp::new(0xff_fffe);
    assert!(qp.packet(0xff_fffe, |_| ()).place);
    for psn in [0xff_fffe, 0xff_fff0] {
        let out = qp.packet(psn, |p| p.mr.hit = false);
        assert!(out.counts.duplicate && out.discard && !out.place, "{psn:x}");
        assert_eq!(out.ack.expect("an ACK").aack, 0xff_ffff);
    }
}

#[test]
fn section_3_rule_5_a_taken_slot_is_acknowledged_not_placed_again() {
    let mut qp = Qp::new(0xff_fffe);
    assert!(qp.packet(3, |_| ()).place);
    let out = qp.packet(3, |p| p.mr.hit = false);
    assert!(out.counts.duplicate && out.discard && !out.place);
    let ack = out.ack.expect("an ACK");
    assert_eq!(
        (ack.sack, ack.aack, ack.syndrome),
        (3, 0xff_fffe, SYNDROME_ACK)
    );
}

#[test]
fn section_3_rule_3_beyond_the_bitmap_is_a_window_nak() {
    let mut qp = Qp::new(0xff_fff0);
    assert!(qp.packet(0xff_fff0 + L - 1, |p| p.psn &= 0xff_ffff).place);
    let out = qp.packet((0xff_fff0 + L) & 0xff_ffff, |p| p.flags |= FLAG_RETX);
    let ack = out.ack.expect("a NAK");
    assert_eq!(ack.flags, ACK_WINDOW_NAK | ACK_RETX);
    assert_eq!(ack.aack, 0xff_fff0);
    assert!(out.counts.out_of_window && out.discard);
}

#[test]
fn section_3_rule_4_synchronised_data_is_never_early() {
    let mut qp = Qp::new(20);
    let sync = |offset| {
        move |p: &mut Packet| {
            p.flags |= FLAG_SYNC;
            p.offset = offset;
        }
    };
    let out = qp.packet(22, sync(1));
    assert_eq!(out.ack.expect("a NAK").flags, ACK_SYNC_NAK);
    assert!(out.counts.sync_nak && !out.place);
    assert!(qp.packet(20, |_| ()).place);
    assert!(
        qp.packet(22, sync(1)).place,
        "its first packet is next: own packets may reorder"
    );
    assert!(qp.packet(21, sync(0)).place);
}

/// The packets of a synchronised message may reorder among each other, not with what comes before.
#[test]
fn section_3_rule_4_a_message_of_many_packets_across_the_psn_wrap() {
    let first = 0xff_fffe;
    let mut qp = Qp::new(first - 1);
    let part = |qp: &mut Qp, offset: u32, flags: u8| {
        qp.packet(psn::add(first, offset), |p| {
            p.opcode = 0xc0 | [6, 7, 7, 7, 8][offset as usize];
            p.flags = FLAG_SYNC | flags | if offset == 4 { FLAG_TAIL } else { 0 };
            p.offset = offset as u16;
            if offset < 4 {
                (p.dma_length, p.length) = (1024, 1024);
            }
        })
    };
    for offset in [0, 4, 2] {
        let out = part(&mut qp, offset, 0);
        assert!(out.counts.sync_nak && out.discard && !out.place);
        let ack = out.ack.expect("a NAK");
        assert_eq!((ack.flags, ack.aack), (ACK_SYNC_NAK, first - 1));
    }
    let again = part(&mut qp, 0, FLAG_RETX);
    assert_eq!(
        again.ack.expect("a NAK").flags,
        ACK_SYNC_NAK | ACK_RETX,
        "a retransmission is no exception"
    );
    assert!(qp.packet(first - 1, |_| ()).place);
    for offset in [4, 2, 1, 3] {
        let out = part(&mut qp, offset, FLAG_RETX);
        assert!(out.place && !out.counts.sync_nak, "offset {offset}");
        assert_eq!(out.ack.expect("an ACK").aack, first);
    }
    let ack = part(&mut qp, 0, 0).ack.expect("an ACK");
    assert_eq!((ack.aack, ack.msn), (3, 2));
    assert!(
        part(&mut qp, 3, FLAG_RETX).counts.duplicate,
        "once placed, a retransmission is a duplicate"
    );
}

/// Half of the message is placed when a packet of it comes again: its first PSN is behind the window.
#[test]
fn section_3_rule_4_a_message_that_has_begun() {
    let mut qp = Qp::new(10);
    let part = |qp: &mut Qp, offset: u32| {
        qp.packet(10 + offset, |p| {
            p.opcode = 0xc0 | if offset == 0 { 6 } else { 7 };
            p.flags = FLAG_SYNC;
            p.offset = offset as u16;
            (p.dma_length, p.length) = (1024, 1024);
        })
    };
    for offset in (0..60).chain([L + 59, 70]) {
        assert!(part(&mut qp, offset).place, "offset {offset}");
    }
    let out = part(&mut qp, L + 60);
    assert!(
        out.counts.out_of_window && !out.counts.sync_nak,
        "rule 3 first"
    );
}

/// Two synchronised messages in a row: the second waits for the whole first one.
#[test]
fn section_3_rule_4_synchronised_behind_synchronised() {
    let mut qp = Qp::new(0);
    let sync = |p: &mut Packet| p.flags |= FLAG_SYNC;
    assert!(qp.packet(1, sync).counts.sync_nak);
    assert!(qp.packet(2, |_| ()).place, "others do not wait");
    assert!(qp.packet(0, sync).place);
    assert!(qp.packet(1, sync).place);
    assert_eq!(qp.0.rcv_nxt, 3);
}

/// `offset` counts modulo 2^16; the sender leaves the flag off beyond, for 2^16 looks like 0.
#[test]
fn section_3_rule_4_beyond_offset_65535() {
    let mut qp = Qp::new(500);
    let middle = |offset: u32, flags: u8| {
        move |p: &mut Packet| {
            p.opcode = 0xc0 | 7;
            p.flags = flags;
            p.offset = offset as u16;
            (p.dma_length, p.length) = (1024, 1024);
        }
    };
    // PSN 500 has offset 65535: the first PSN of the message lies 65535 before it.
    assert!(qp.packet(501, middle(1 << 16, 0)).place);
    assert!(
        qp.packet(502, middle((1 << 16) + 1, FLAG_SYNC))
            .counts
            .sync_nak
    );
    assert!(qp.packet(500, middle(0xffff, FLAG_SYNC)).place);
}

#[test]
fn section_3_rule_6_the_window_slides_over_the_leading_run() {
    let mut qp = Qp::new(7);
    for (psn, aack) in [(9, 7), (7, 8), (8, 10), (12, 10), (10, 11), (11, 13)] {
        let out = qp.packet(psn, |_| ());
        assert!(out.place, "{psn}");
        assert_eq!(out.ack.expect("an ACK").aack, aack, "{psn}");
    }
}

#[test]
fn section_3_rule_6_completions_come_in_psn_order() {
    let mut qp = Qp::new(100);
    qp.event(ReceiverEvent::Doorbell(3));
    assert_eq!(qp.packet(102, with_imm(1)).due, 0);
    assert_eq!(qp.packet(101, |_| ()).due, 0);
    let out = qp.packet(100, with_imm(0));
    assert_eq!((out.due, out.due_wsn, out.store), (2, 0, Some(100)));
    let ack = out.ack.expect("an ACK");
    assert_eq!((ack.aack, ack.msn), (103, 3));
    let out = qp.packet(103, with_imm(2));
    assert_eq!((out.due, out.due_wsn), (1, 2));
}

#[test]
fn section_3_receive_wqe_must_be_there_for_a_completion() {
    let mut qp = Qp::new(0);
    let out = qp.packet(0, with_imm(0));
    assert_eq!(out.ack.expect("a NAK").syndrome, SYNDROME_RNR);
    assert!(out.counts.rnr && !out.place);
    qp.event(ReceiverEvent::Doorbell(40));
    assert_eq!(
        qp.packet(32, with_imm(32)).ack.expect("a NAK").syndrome,
        SYNDROME_RNR,
        "too far ahead to keep"
    );
    assert!(qp.packet(31, with_imm(31)).place);
}

#[test]
fn wsns_and_msns_wrap() {
    let mut qp = Qp::new(0xff_fffe);
    qp.event(ReceiverEvent::Doorbell(3));
    (qp.0.due_wsn, qp.0.msn) = (0xff_fffe, 0xff_ffff);
    assert_eq!(qp.packet(0, with_imm(0)).due, 0);
    assert_eq!(qp.packet(0xff_ffff, with_imm(0xff_ffff)).due, 0);
    let out = qp.packet(0xff_fffe, with_imm(0xff_fffe));
    assert_eq!((out.due, out.due_wsn), (3, 0xff_fffe));
    let ack = out.ack.expect("an ACK");
    assert_eq!((ack.aack, ack.msn), (1, 2));
    let out = qp.packet(2, with_imm(2));
    assert!(out.place, "the receive WQE after the next one");
    let out = qp.packet(1, with_imm(1));
    assert_eq!((out.due, out.due_wsn), (2, 1));
    let out = qp.packet(3, with_imm(3));
    assert!(out.counts.rnr, "three were posted");
}

#[test]
fn section_3_rule_6_byte_len_counts_the_packets_before_the_last() {
    let mut qp = Qp::new(0);
    qp.event(ReceiverEvent::Doorbell(1));
    let out = qp.packet(0, |p| {
        p.opcode = 0xc0 | 9;
        p.flags = FLAG_TAIL | FLAG_COMPLETION;
        p.offset = 3;
    });
    assert_eq!(out.store, Some(3 * 1024 + 100));
}

#[test]
fn section_3_rule_7_acks_echo() {
    let mut qp = Qp::new(0);
    qp.0.hole_repair = true;
    let ack = qp.packet(2, |p| p.ce = true).ack.expect("an ACK");
    assert_eq!((ack.sack, ack.aack, ack.vp, ack.stamp), (2, 0, 50_000, 77));
    assert_eq!(ack.flags, ACK_ECN | ACK_MAP);
    assert_eq!(ack.map, 0b100);
    qp.packet(0, |_| ());
    let ack = qp.packet(1, |_| ()).ack.expect("an ACK");
    assert_eq!((ack.aack, ack.flags), (3, 0), "no hole, no map");
}

#[test]
fn modify_restarts_the_window_and_keeps_posted_wqes() {
    let mut qp = Qp::new(0);
    qp.event(ReceiverEvent::Doorbell(5));
    qp.packet(2, |_| ());
    let image = ReceiverImage {
        mask: (command::MASK_STATE | command::MASK_RECEIVER) as u8,
        state: QpState::Rtr as u8,
        rq_psn: 1000,
        ..ReceiverImage::default()
    };
    qp.event(ReceiverEvent::Modify(image));
    assert_eq!(
        (qp.0.rcv_nxt, qp.0.received, qp.0.rq_producer),
        (1000, 0, 5)
    );
    assert_eq!(qp.0.window, window::Window::default());
    assert!(qp.event(ReceiverEvent::Destroy).marker);
    assert_eq!(qp.0, ReceiverContext::default());
}

/// A READ REQUEST of 5,000 bytes.
fn read(slot: u32) -> impl Fn(&mut Packet) {
    move |p| {
        p.opcode = opcode::MP_READ_REQUEST;
        (p.wsn, p.dma_length, p.length, p.stored) = (slot, 5000, 0, false);
        p.mr.rights = RIGHT_REMOTE_READ as u8;
    }
}

/// Packet `offset` of the three of a READ RESPONSE.
fn response(slot: u32, offset: u16) -> impl Fn(&mut Packet) {
    move |p| {
        p.opcode = opcode::MP_READ_RESPONSE_FIRST + offset as u8;
        p.flags = if offset == 2 { FLAG_TAIL } else { 0 };
        (p.wsn, p.offset, p.dma_length) = (slot, offset, 0);
        p.length = if offset == 2 { 100 } else { 1024 };
        (p.mr.rights, p.mr.pd) = (0, 0);
    }
}

#[test]
fn section_7_a_request_takes_its_slot_and_is_told_once() {
    let mut qp = Qp::new(0xff_ffff);
    for slot in [15, 0] {
        let psn = if slot == 0 { 0 } else { 0xff_ffff };
        let out = qp.packet(psn, read(slot));
        assert!(out.request && !out.response_ends && !out.place && !out.discard);
        assert_eq!(out.due, 0, "no receive request is taken");
        let ack = out.ack.expect("an ACK");
        assert_eq!((ack.syndrome, ack.sack), (SYNDROME_ACK, psn));
        assert!(!qp.packet(psn, read(slot)).request, "a duplicate");
    }
    assert_eq!((qp.0.rcv_nxt, qp.0.msn), (1, 2));
    // Ahead of a hole it waits, whoever answers it: the ACK says up to where everything is there.
    let out = qp.packet(3, read(1));
    assert!(out.request);
    assert_eq!(out.ack.expect("an ACK").aack, 1);
}

#[test]
fn section_7_a_request_of_no_bytes_needs_no_key() {
    let mut qp = Qp::new(1);
    let out = qp.packet(1, |p| {
        read(3)(p);
        (p.dma_length, p.mr.hit) = (0, false);
    });
    assert!(out.request && out.access_error.is_none());
}

#[test]
fn section_7_a_request_waits_for_rts() {
    let mut qp = Qp::new(1);
    qp.0.state = QpState::Rtr as u8;
    let out = qp.packet(1, read(0));
    assert_eq!(out.ack.expect("a NAK").syndrome, SYNDROME_RNR);
    assert!(out.counts.rnr && !out.request);
    qp.0.state = QpState::Rts as u8;
    assert!(qp.packet(1, read(0)).request);
}

#[test]
fn section_7_a_response_is_placed_and_its_last_packet_told() {
    let mut qp = Qp::new(7);
    for (psn, offset) in [(9, 2), (7, 0), (8, 1)] {
        let out = qp.packet(psn, response(4, offset));
        assert!(out.place && !out.request);
        assert_eq!(out.response_ends, offset == 2);
    }
    assert_eq!((qp.0.rcv_nxt, qp.0.msn), (10, 1));
    let only = |p: &mut Packet| {
        response(4, 2)(p);
        p.opcode = opcode::MP_READ_RESPONSE_ONLY;
        (p.length, p.stored, p.offset) = (0, false, 0);
    };
    let out = qp.packet(10, only);
    assert!(out.response_ends && !out.place, "of no bytes");
    assert!(!qp.packet(10, only).response_ends, "a duplicate");
}

/// A packet that is changed.
type Change = fn(&mut Packet);

const INVALID: (u8, WcStatus) = (SYNDROME_INVALID_REQUEST, WcStatus::RemoteInvalidRequest);
const ACCESS: (u8, WcStatus) = (SYNDROME_REMOTE_ACCESS, WcStatus::RemoteAccessError);

/// A packet that breaks a rule is refused in its turn, and nothing comes of it.
fn is_refused(good: &dyn Fn(&mut Packet), change: Change, (syndrome, status): (u8, WcStatus)) {
    let mut qp = Qp::new(9);
    let bad = |p: &mut Packet| {
        good(p);
        change(p);
    };
    assert!(qp.packet(10, bad).ack.is_none(), "too early to judge");
    let out = qp.packet(9, bad);
    assert_eq!(out.ack.expect("a NAK").syndrome, syndrome);
    assert_eq!(out.access_error, Some(status as u8));
    assert!(!out.request && !out.response_ends && !out.place && !out.atomic);
}

#[test]
fn section_7_what_breaks_form_or_access_is_refused() {
    let requests: &[(Change, _)] = &[
        (|p| p.wsn = READ_SLOTS, INVALID),
        (|p| p.length = 4, INVALID),
        (|p| p.flags = 0, INVALID),
        (|p| p.flags |= FLAG_COMPLETION, INVALID),
        // At MTU 1024 the offsets of the answer reach so far.
        (|p| p.dma_length = (1 << 26) + 1, INVALID),
        (|p| p.mr.hit = false, ACCESS),
        (|p| p.mr.pd = 5, ACCESS),
        (|p| p.mr.rights = !(RIGHT_REMOTE_READ as u8), ACCESS),
    ];
    let responses: &[(Change, _)] = &[
        (|p| p.opcode -= 1, INVALID),
        (|p| p.flags = 0, INVALID),
        (|p| p.flags |= FLAG_COMPLETION, INVALID),
        (|p| p.length = 0, INVALID),
        (|p| p.length = 1025, INVALID),
        (|p| p.mr.hit = false, ACCESS),
        // Of no bytes, to a READ that is not open.
        (
            |p| {
                p.opcode = opcode::MP_READ_RESPONSE_ONLY;
                (p.length, p.mr.hit) = (0, false);
            },
            ACCESS,
        ),
    ];
    for &(change, outcome) in requests {
        is_refused(&read(2), change, outcome);
    }
    for &(change, outcome) in responses {
        is_refused(&response(2, 2), change, outcome);
    }
    let mut qp = Qp::new(9);
    qp.0.rights = RIGHT_REMOTE_WRITE as u8;
    let out = qp.packet(9, read(2));
    assert_eq!(out.access_error, Some(WcStatus::RemoteAccessError as u8));
    assert!(qp_takes_longest(1024), "the longest that is allowed");
}

/// Whether a READ of 2^16 packets is taken.
fn qp_takes_longest(mtu: u32) -> bool {
    let out = Qp::new(9).packet(9, |p| {
        read(2)(p);
        p.dma_length = mtu << 16;
    });
    out.request
}

/// An ATOMIC.
fn atomic(code: u8, slot: u32) -> impl Fn(&mut Packet) {
    move |p| {
        p.opcode = code;
        (p.wsn, p.dma_length, p.length, p.stored) = (slot, 8, 0, false);
        p.mr.rights = RIGHT_REMOTE_ATOMIC as u8;
    }
}

/// The answer to one.
fn atomic_ack(slot: u32) -> impl Fn(&mut Packet) {
    move |p| {
        p.opcode = opcode::MP_ATOMIC_ACK;
        // What stands where others have a length means nothing.
        (p.wsn, p.dma_length, p.length, p.stored) = (slot, 77, 0, false);
        (p.mr.rights, p.mr.pd) = (0, 0);
    }
}

const ATOMICS: [u8; 2] = [opcode::MP_COMPARE_SWAP, opcode::MP_FETCH_ADD];

#[test]
fn section_7_atomic_is_taken_once_and_told() {
    let mut qp = Qp::new(0xff_ffff);
    for (psn, slot, code) in [(0xff_ffff, 15, ATOMICS[0]), (0, 0, ATOMICS[1])] {
        let out = qp.packet(psn, atomic(code, slot));
        assert!(out.request && out.atomic && !out.response_ends && !out.place && !out.discard);
        assert_eq!(out.due, 0, "no receive request is taken");
        let ack = out.ack.expect("an ACK");
        assert_eq!((ack.syndrome, ack.sack), (SYNDROME_ACK, psn));
        let again = qp.packet(psn, atomic(code, slot));
        assert!(again.counts.duplicate && !again.request && !again.atomic);
        assert!(again.ack.is_some(), "a duplicate is acknowledged");
    }
    assert_eq!((qp.0.rcv_nxt, qp.0.msn), (1, 2));
}

#[test]
fn section_7_atomic_waits_for_rts() {
    for code in ATOMICS {
        let mut qp = Qp::new(1);
        qp.0.state = QpState::Rtr as u8;
        let out = qp.packet(1, atomic(code, 0));
        assert_eq!(out.ack.expect("a NAK").syndrome, SYNDROME_RNR);
        assert!(out.counts.rnr && !out.request && !out.atomic);
        assert!(qp.packet(1, atomic_ack(0)).place, "an answer does not wait");
    }
}

#[test]
fn section_7_atomic_ack_is_placed_and_ends_its_atomic() {
    let mut qp = Qp::new(7);
    for psn in [8, 7] {
        let out = qp.packet(psn, atomic_ack(4));
        assert!(out.place && out.atomic && out.response_ends && !out.request && !out.discard);
    }
    assert_eq!((qp.0.rcv_nxt, qp.0.msn), (9, 2));
    let again = qp.packet(8, atomic_ack(4));
    assert!(again.counts.duplicate && !again.place && !again.response_ends);
}

#[test]
fn section_7_atomic_that_breaks_form_or_access_is_refused() {
    let requests: &[(Change, _)] = &[
        (|p| p.wsn = READ_SLOTS, INVALID),
        (|p| (p.length, p.stored) = (4, true), INVALID),
        (|p| p.misaligned = true, INVALID),
        (|p| p.flags = 0, INVALID),
        (|p| p.flags |= FLAG_COMPLETION, INVALID),
        (|p| p.mr.hit = false, ACCESS),
        (|p| p.mr.pd = 5, ACCESS),
        (|p| p.mr.rights = !(RIGHT_REMOTE_ATOMIC as u8), ACCESS),
    ];
    let answers: &[(Change, _)] = &[
        (|p| (p.length, p.stored) = (8, true), INVALID),
        (|p| p.flags = 0, INVALID),
        (|p| p.flags |= FLAG_COMPLETION, INVALID),
        (|p| p.mr.hit = false, ACCESS),
    ];
    for &(change, outcome) in requests {
        for code in ATOMICS {
            is_refused(&atomic(code, 2), change, outcome);
        }
    }
    for &(change, outcome) in answers {
        is_refused(&atomic_ack(2), change, outcome);
    }
    for code in ATOMICS {
        let mut qp = Qp::new(9);
        qp.0.rights = (RIGHT_REMOTE_WRITE | RIGHT_REMOTE_READ) as u8;
        let out = qp.packet(9, atomic(code, 2));
        assert_eq!(out.access_error, Some(WcStatus::RemoteAccessError as u8));
    }
    // A payload that must not be there is thrown away; only ATOMICs care for the multiple of 8.
    let out = Qp::new(9).packet(9, |p| {
        atomic_ack(2)(p);
        (p.length, p.stored) = (8, true);
    });
    assert!(out.discard && !out.place);
    let out = Qp::new(9).packet(9, |p| {
        read(2)(p);
        p.misaligned = true;
    });
    assert!(out.request && !out.atomic);
}
