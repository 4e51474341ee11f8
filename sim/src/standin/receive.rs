//! Takes what arrives: ACKs to the sender engine, requests past the region table and answers past their book to
//! the receiver engine, payloads to host memory, completions of receive WQEs.

use super::events::Event;
use super::parse::{parse, Meta, Refusal};
use super::queues::Completion;
use super::reads::{Atomic, Part, Range, ReadNews, Request};
use super::timing::{beats, ACT, BUFFER, ENGINE, PARSE};
use super::StandIn;
use crate::time::Ps;
use mprdma_model::psn;
use mprdma_model::receiver::{self, Ack, MrAnswer, Packet, ReceiverEvent, ReceiverOutputs};
use mprdma_model::sender::{self, SenderEvent};
use mprdma_spec::counter::Counter;
use mprdma_spec::descriptor::{EventType, WcOpcode};
use mprdma_spec::params::{mtu_bytes, ATOMIC_BYTES};
use mprdma_spec::status::WcStatus;
use mprdma_spec::wire::bth::opcode;
use mprdma_spec::wire::mpeth;
use std::collections::VecDeque;

/// What a receive WQE's completion says about its message.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Kept {
    imm: u32,
    byte_len: u32,
}

/// The frames that wait for their payload to be placed.
#[derive(Default)]
pub(super) struct ReceiveBuffer {
    /// When the placing of each ends, and its beats.
    frames: VecDeque<(Ps, u64)>,
    beats: u64,
    /// When the last action is done.
    placed_at: Ps,
}

impl ReceiveBuffer {
    pub(super) fn has_room(&mut self, now: Ps, beats: u64) -> bool {
        while let Some((at, size)) = self.frames.front().copied() {
            if at > now {
                break;
            }
            self.beats -= size;
            self.frames.pop_front();
        }
        self.beats + beats <= BUFFER
    }

    pub(super) fn hold(&mut self, until: Ps, beats: u64) {
        self.frames.push_back((until, beats));
        self.beats += beats;
    }
}

/// What the receiver engine decided, carried out when the payload has been handed to the bus.
pub(super) struct Action {
    qpn: u16,
    /// Where the payload goes, if it goes anywhere.
    target: Option<(u64, Vec<u8>)>,
    ack: Option<Ack>,
    /// Immediate and length to keep for this WSN.
    keep: Option<(u32, Kept)>,
    /// Completions due, the first of them, and their CQ.
    due: u32,
    due_wsn: u32,
    cqn: u16,
    /// For the book of READs and ATOMICs.
    reads: Option<ReadNews>,
    marker: bool,
}

impl StandIn {
    /// A frame has arrived whole.
    pub(super) fn arrive(&mut self, frame: Vec<u8>) {
        self.count(Counter::RxFrames, 1);
        self.count(Counter::RxBytes, frame.len() as u64);
        let meta = match parse(&frame, self.registers.mac, self.config.bitmap_slots) {
            Ok(meta) => meta,
            Err(Refusal::Malformed) => return self.count(Counter::RxDropMalformed, 1),
            Err(Refusal::NotOurs) => return self.count(Counter::RxDropNotOurs, 1),
            Err(Refusal::Icrc) => return self.count(Counter::RxDropIcrc, 1),
        };
        if !self.tables.buffer.has_room(self.now, beats(frame.len())) {
            return self.count(Counter::RxDropFull, 1);
        }
        let mut at = self.now + self.cycles(PARSE);
        let pause = self.cycles(ENGINE);
        if let Some(qp) = self.tables.qps.get_mut(meta.qpn as usize) {
            let free = match meta.opcode == opcode::MP_ACK {
                true => &mut qp.sender_free,
                false => &mut qp.receiver_free,
            };
            at = at.max(*free);
            *free = at + pause;
        }
        self.schedule(at, Event::Received { meta, frame });
    }

    /// A good frame reaches its engine.
    pub(super) fn received(&mut self, meta: Meta, frame: Vec<u8>) {
        let known = (meta.qpn as usize) < self.tables.qps.len() && self.registers.enabled();
        let qpn = meta.qpn as u16;
        if known && meta.opcode == opcode::MP_ACK {
            self.count(Counter::RxAcks, 1);
            self.sender_event(qpn, &SenderEvent::Ack(ack_of(&meta)));
        } else if known && opcode::is_mp_data(meta.opcode) {
            self.count(Counter::RxDataPackets, 1);
            self.data(qpn, &meta, &frame);
        } else {
            self.count(Counter::RxDropNoQp, 1);
        }
    }

    /// Where the bytes of a packet are.
    fn place_of(&self, qpn: u16, meta: &Meta) -> MrAnswer {
        let atomic = meta.opcode == opcode::MP_ATOMIC_ACK;
        if !atomic && !opcode::is_mp_read_response(meta.opcode) {
            return self.look_up(meta.rkey, meta.raddr, meta.dma_length);
        }
        let qp = &self.tables.qps[usize::from(qpn)];
        let mtu = mtu_bytes(qp.receiver.mtu).unwrap_or(0);
        qp.reads.find(&Part {
            slot: meta.wsn,
            offset: u64::from(meta.offset) * u64::from(mtu),
            length: match atomic {
                true => ATOMIC_BYTES as u64,
                false => meta.payload.len() as u64,
            },
            last: meta.flags & mpeth::FLAG_TAIL != 0,
            atomic,
        })
    }

    fn data(&mut self, qpn: u16, meta: &Meta, frame: &[u8]) {
        let payload = &frame[meta.payload.clone()];
        let packet = Packet {
            psn: meta.psn,
            opcode: meta.opcode,
            pkey: meta.pkey,
            ce: meta.ce,
            vp: meta.vp,
            flags: meta.flags,
            wsn: meta.wsn,
            offset: meta.offset,
            stamp: meta.stamp,
            imm: meta.imm,
            dma_length: meta.dma_length,
            misaligned: meta.raddr % ATOMIC_BYTES as u64 != 0,
            length: payload.len() as u16,
            stored: !payload.is_empty(),
            mr: self.place_of(qpn, meta),
        };
        let out = self.receiver_step(qpn, &ReceiverEvent::Packet(packet));
        let keep = out.store.map(|byte_len| {
            let imm = meta.imm;
            (meta.wsn, Kept { imm, byte_len })
        });
        let place = out.place.then(|| {
            let bytes = match out.atomic {
                true => meta.swap_add.to_le_bytes().to_vec(),
                false => payload.to_vec(),
            };
            (packet.mr.iova, bytes)
        });
        let life = self.tables.qps[usize::from(qpn)].send.life();
        let reads = out.ack.map(|ack| ReadNews {
            qpn,
            life,
            slot: meta.wsn,
            psn: meta.psn,
            aack: ack.aack,
            request: out.request.then_some(Request {
                range: Range {
                    iova: packet.mr.iova,
                    length: meta.dma_length,
                },
                atomic: out.atomic.then_some(Atomic {
                    swap: meta.opcode == opcode::MP_COMPARE_SWAP,
                    swap_add: meta.swap_add,
                    compare: meta.compare,
                }),
            }),
            ends: out.response_ends,
        });
        let reads = reads.filter(|news| self.concerns_reads(news));
        self.act(qpn, &out, place, keep, reads, beats(frame.len()));
    }

    /// Lets `event` happen to the receiver half of a queue pair; no packet.
    pub(super) fn receiver_event(&mut self, qpn: u16, event: &ReceiverEvent) {
        let out = self.receiver_step(qpn, event);
        if out.marker {
            self.act(qpn, &out, None, None, None, 0);
        }
    }

    pub(super) fn receive_doorbell(&mut self, qpn: u16, index: u16) {
        if usize::from(qpn) < self.tables.qps.len() {
            self.receiver_event(qpn, &ReceiverEvent::Doorbell(index));
        }
    }

    fn receiver_step(&mut self, qpn: u16, event: &ReceiverEvent) -> ReceiverOutputs {
        let slots = self.config.bitmap_slots as u32;
        let context = &mut self.tables.qps[usize::from(qpn)].receiver;
        let (next, out) = receiver::step(context, event, slots);
        let expected = std::mem::replace(context, next).rcv_nxt;
        if let ReceiverEvent::Packet(packet) = event {
            self.note_receiver(qpn, packet, expected, &out);
        }
        for (counter, happened) in [
            (Counter::RxDropNoQp, out.counts.no_qp),
            (Counter::RxOutOfOrder, out.counts.out_of_order),
            (Counter::RxDuplicates, out.counts.duplicate),
            (Counter::RxOutOfWindow, out.counts.out_of_window),
            (Counter::RxSyncNaks, out.counts.sync_nak),
            (Counter::RxCeMarks, out.counts.ce),
            (Counter::RxAccessErrors, out.counts.access),
            (Counter::RxRnrNaks, out.counts.rnr),
        ] {
            self.count_if(counter, happened);
        }
        if let Some(status) = out.access_error {
            // Flush the send side, tell software why.
            self.raise_event(EventType::QpAccess, status, qpn);
            let flush = SenderEvent::Error(WcStatus::WorkRequestFlushed as u8);
            self.sender_event(qpn, &flush);
        }
        out
    }

    /// Actions are carried out in order: each when its frame, of so many beats, has gone through to the bus.
    fn act(
        &mut self,
        qpn: u16,
        out: &ReceiverOutputs,
        target: Option<(u64, Vec<u8>)>,
        keep: Option<(u32, Kept)>,
        reads: Option<ReadNews>,
        frame_beats: u64,
    ) {
        let time = match &target {
            Some((iova, bytes)) => self
                .cycles(frame_beats)
                .max(self.dma.bus_time(*iova, bytes.len() as u64)),
            None => 0,
        };
        let start = self.now + self.cycles(ACT);
        let buffer = &mut self.tables.buffer;
        let done = buffer.placed_at.max(start) + time;
        buffer.placed_at = done;
        if target.is_some() {
            buffer.hold(done, frame_beats);
        }
        let action = Action {
            qpn,
            target,
            ack: out.ack,
            keep,
            due: out.due,
            due_wsn: out.due_wsn,
            cqn: self.tables.qps[usize::from(qpn)].receiver.rq_cqn,
            reads,
            marker: out.marker,
        };
        self.schedule(done, Event::Placed(Box::new(action)));
    }

    /// The payload is handed over: the ACK may go, and behind the payload the completions.
    pub(super) fn placed(&mut self, action: Action) {
        if let Some((iova, bytes)) = action.target {
            self.write(iova, bytes);
        }
        if let Some(ack) = action.ack {
            self.send_ack(action.qpn, ack);
        }
        let slots = &mut self.tables.qps[usize::from(action.qpn)].kept;
        if let Some((wsn, kept)) = action.keep {
            slots[wsn as usize % slots.len()] = kept;
        }
        for i in 0..action.due {
            let wsn = psn::add(action.due_wsn, i);
            let slots = &self.tables.qps[usize::from(action.qpn)].kept;
            let kept = slots[wsn as usize % slots.len()];
            let completion = Completion {
                qpn: action.qpn,
                wqe_index: wsn as u16,
                byte_len: kept.byte_len,
                imm: Some(kept.imm),
                status: WcStatus::Success as u8,
                opcode: WcOpcode::RecvRdmaWithImm as u8,
            };
            self.complete_on(action.cqn, &completion);
        }
        if let Some(news) = action.reads {
            self.schedule(self.dma.on_bus(self.now), Event::ReadNews(news));
        }
        if action.marker {
            self.receive_marker();
        }
    }
}

/// What an ACK says to the sender engine.
fn ack_of(meta: &Meta) -> sender::Ack {
    sender::Ack {
        sack: meta.psn,
        aack: meta.aack,
        flags: meta.flags,
        syndrome: meta.syndrome,
        vp: meta.vp_echo,
        stamp: meta.stamp,
        map: meta.map,
    }
}
