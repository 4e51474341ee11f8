//! One event.

use super::window::Slot;
use super::*;
use crate::psn;
use mprdma_spec::command::{QpState, RIGHT_REMOTE_ATOMIC, RIGHT_REMOTE_READ, RIGHT_REMOTE_WRITE};
use mprdma_spec::params::{max_read, mtu_bytes};
use mprdma_spec::status::WcStatus;
use mprdma_spec::wire::bth::opcode;

/// Lets `event` happen to a QP whose bitmap has `slots` slots.
#[must_use]
pub fn step(
    context: &ReceiverContext,
    event: &ReceiverEvent,
    slots: u32,
) -> (ReceiverContext, ReceiverOutputs) {
    let mut next = *context;
    let mut out = ReceiverOutputs {
        due_wsn: context.due_wsn,
        ..ReceiverOutputs::default()
    };
    match event {
        ReceiverEvent::Packet(packet) => receive(&mut next, packet, slots, &mut out),
        ReceiverEvent::Discard => out.discard = true,
        ReceiverEvent::Doorbell(index) => next.rq_producer = *index,
        ReceiverEvent::Error if next.state != QpState::Reset as u8 => {
            next.state = QpState::Error as u8
        }
        ReceiverEvent::Error | ReceiverEvent::Query => {}
        ReceiverEvent::Create(image) => next = ReceiverContext::create(image),
        ReceiverEvent::Modify(image) => next.modify(image),
        ReceiverEvent::Destroy => {
            next = ReceiverContext::default();
            out.marker = true;
        }
    }
    (next, out)
}

fn receive(context: &mut ReceiverContext, packet: &Packet, slots: u32, out: &mut ReceiverOutputs) {
    out.discard = packet.stored;
    // Rule 1: state and P_Key. What the QP cannot receive is dropped unanswered.
    let receives = context.state == QpState::Rtr as u8 || context.state == QpState::Rts as u8;
    if !receives || packet.pkey != context.pkey {
        out.counts.no_qp = true;
        return;
    }
    out.counts.ce = packet.ce;
    let ahead = psn::distance(context.rcv_nxt, packet.psn);
    // Rules 2 and 5: arrived before, acknowledged again.
    let before = ahead >= psn::HALF;
    if before || (ahead < slots && context.window.filled(ahead as usize)) {
        out.counts.duplicate = true;
        out.ack = Some(answer(context, packet, SYNDROME_ACK, 0));
        return;
    }
    // Rule 3: beyond the bitmap.
    if ahead >= slots {
        out.counts.out_of_window = true;
        out.ack = Some(answer(context, packet, SYNDROME_ACK, ACK_WINDOW_NAK));
        return;
    }
    // Rule 1: form, key, bounds, rights; judged in order.
    if let Some((syndrome, status)) = violation(context, packet) {
        if ahead == 0 {
            context.state = QpState::Error as u8;
            out.counts.access = true;
            out.access_error = Some(status as u8);
            out.ack = Some(answer(context, packet, syndrome, 0));
        }
        return;
    }
    // Rule 4: nothing of a synchronised message before all that precedes it.
    let first = psn::distance(u32::from(packet.offset), packet.psn);
    let first_ahead = psn::distance(context.rcv_nxt, first);
    if packet.flags & FLAG_SYNC != 0 && first_ahead != 0 && first_ahead < psn::HALF {
        out.counts.sync_nak = true;
        out.ack = Some(answer(context, packet, SYNDROME_ACK, ACK_SYNC_NAK));
        return;
    }
    // A receive WQE must be there for a completion that is owed.
    let completion = packet.flags & FLAG_COMPLETION != 0;
    let posted = context.rq_producer.wrapping_sub(packet.wsn as u16);
    let wsn_ahead = psn::distance(context.due_wsn, packet.wsn);
    let unposted = completion && (posted == 0 || posted > 1 << 15 || wsn_ahead >= RECEIVE_WINDOW);
    // And a sender half that may send for a READ or ATOMIC to be answered: in RTR it waits (section 7).
    let operation = operation(packet);
    let mute = is_request(operation) && context.state != QpState::Rts as u8;
    if unposted || mute {
        out.counts.rnr = true;
        out.ack = Some(answer(context, packet, SYNDROME_RNR, 0));
        return;
    }
    // Rule 6: placed, written down, and the window slides.
    let slot = match (packet.flags & FLAG_TAIL != 0, completion) {
        (false, _) => Slot::Received,
        (true, false) => Slot::Tail,
        (true, true) => Slot::Completion,
    };
    context.window.fill(ahead as usize, slot);
    let slide = context.window.slide();
    context.rcv_nxt = psn::add(context.rcv_nxt, slide.slots);
    context.msn = psn::add(context.msn, slide.tails);
    context.due_wsn = psn::add(context.due_wsn, slide.completions);
    context.received = (u32::from(context.received) + 1 - slide.slots) as u8;
    // An ATOMIC ACK brings its value in its headers.
    out.place = packet.length != 0 || operation == opcode::MP_ATOMIC_ACK;
    out.discard = packet.stored && !out.place;
    out.store = completion.then(|| byte_len(context.mtu, packet));
    // Section 7: it is executed, or done, once the window has passed this packet and what is before it is placed.
    out.request = is_request(operation);
    out.response_ends = is_response(operation) && slot == Slot::Tail;
    out.atomic = is_atomic(operation) || operation == opcode::MP_ATOMIC_ACK;
    out.due = slide.completions;
    out.counts.out_of_order = ahead != 0;
    // Rule 7.
    out.ack = Some(answer(context, packet, SYNDROME_ACK, 0));
}

/// Bytes of the message that `packet` ends.
fn byte_len(mtu: u8, packet: &Packet) -> u32 {
    (u32::from(packet.offset) << (u32::from(mtu) + 7)) + u32::from(packet.length)
}

/// The packet's opcode by its operation alone: only MP packets come here.
fn operation(packet: &Packet) -> u8 {
    opcode::MP << 5 | packet.opcode & 0x1f
}

/// An ATOMIC of the peer.
fn is_atomic(operation: u8) -> bool {
    matches!(operation, opcode::MP_COMPARE_SWAP | opcode::MP_FETCH_ADD)
}

/// The peer wants an answer with data.
fn is_request(operation: u8) -> bool {
    operation == opcode::MP_READ_REQUEST || is_atomic(operation)
}

/// Data that this side has asked for.
fn is_response(operation: u8) -> bool {
    opcode::is_mp_read_response(operation) || operation == opcode::MP_ATOMIC_ACK
}

/// What is wrong with a packet (IBA 9.7.4.1).
fn violation(context: &ReceiverContext, packet: &Packet) -> Option<(u8, WcStatus)> {
    if !form_is_good(context, packet) {
        return Some((SYNDROME_INVALID_REQUEST, WcStatus::RemoteInvalidRequest));
    }
    if !access_is_good(context, packet) {
        return Some((SYNDROME_REMOTE_ACCESS, WcStatus::RemoteAccessError));
    }
    None
}

fn form_is_good(context: &ReceiverContext, packet: &Packet) -> bool {
    use opcode::*;
    let operation = operation(packet);
    let mtu = mtu_bytes(context.mtu).unwrap_or(0);
    let length = u32::from(packet.length);
    let length_good = match operation {
        MP_READ_REQUEST | MP_COMPARE_SWAP | MP_FETCH_ADD | MP_ATOMIC_ACK => length == 0,
        MP_WRITE_FIRST | MP_WRITE_MIDDLE | MP_READ_RESPONSE_FIRST | MP_READ_RESPONSE_MIDDLE => {
            length == mtu
        }
        MP_WRITE_LAST | MP_WRITE_LAST_IMM | MP_READ_RESPONSE_LAST => length != 0 && length <= mtu,
        _ => length <= mtu,
    };
    let reth_good = match operation {
        code if is_request(code) => {
            let most = max_read(context.mtu).unwrap_or(0);
            u64::from(packet.dma_length) <= most
                && packet.wsn < READ_SLOTS
                && !(is_atomic(code) && packet.misaligned)
        }
        code if is_response(code) => true,
        _ => packet.dma_length == length,
    };
    let tail = operation >= MP_WRITE_LAST
        && !matches!(operation, MP_READ_RESPONSE_FIRST | MP_READ_RESPONSE_MIDDLE);
    let immediate = matches!(operation, MP_WRITE_LAST_IMM | MP_WRITE_ONLY_IMM);
    length_good
        && reth_good
        && (packet.flags & FLAG_TAIL != 0) == tail
        && (packet.flags & FLAG_COMPLETION != 0) == immediate
}

fn access_is_good(context: &ReceiverContext, packet: &Packet) -> bool {
    let operation = operation(packet);
    if is_response(operation) {
        return packet.mr.hit;
    }
    let wanted = match operation {
        opcode::MP_READ_REQUEST => RIGHT_REMOTE_READ,
        opcode::MP_COMPARE_SWAP | opcode::MP_FETCH_ADD => RIGHT_REMOTE_ATOMIC,
        _ => RIGHT_REMOTE_WRITE,
    };
    let granted = u64::from(context.rights & packet.mr.rights) & wanted != 0
        && packet.mr.hit
        && packet.mr.pd == context.pd;
    // The key of a message of no bytes is not looked at (IBA 9.7.4.1.2).
    packet.dma_length == 0 || granted
}

/// The answer to `packet`, with the state after it.
fn answer(context: &ReceiverContext, packet: &Packet, syndrome: u8, nak: u8) -> Ack {
    let map = context.window.map();
    let mut flags = nak;
    if packet.flags & FLAG_RETX != 0 {
        flags |= ACK_RETX;
    }
    if packet.ce {
        flags |= ACK_ECN;
    }
    if context.hole_repair && map != 0 {
        flags |= ACK_MAP;
    }
    Ack {
        sack: packet.psn,
        aack: context.rcv_nxt,
        msn: context.msn,
        syndrome,
        flags,
        vp: packet.vp,
        stamp: packet.stamp,
        map,
    }
}
