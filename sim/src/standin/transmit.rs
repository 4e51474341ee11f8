//! Turns grants into frames: finds the message of a PSN, cuts the packet, reads its payload, builds and sends it.

use super::dma::{blocks, Dma};
use super::events::Event;
use super::frames::{self, DataPacket};
use super::timing::{
    beats, BLOCK, BUILD, BUILT, GRANT, GRANTS_AHEAD, PACKETS, READ, READS, SEGMENT, TAGS,
};
use super::StandIn;
use crate::lanes::BEAT;
use crate::time::Ps;
use mprdma_model::psn;
use mprdma_model::receiver::Ack;
use mprdma_model::sender::{Grant, SenderEvent};
use mprdma_spec::counter::Counter;
use mprdma_spec::status::WcStatus;
use mprdma_spec::wire::bth::opcode;
use mprdma_spec::wire::mpeth;
use std::collections::VecDeque;

/// What a message carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    #[default]
    Write,
    /// The request of a READ.
    Read,
    /// The request of an ATOMIC.
    CompareSwap,
    FetchAdd,
    /// The answer to a READ or ATOMIC of the peer: no work request of this side.
    Response,
    AtomicAck,
    /// An empty WRITE that asks whether the peer is still there, without a work request.
    Keepalive,
}

impl Kind {
    /// A work request of this side.
    pub(super) fn is_own(self) -> bool {
        !matches!(self, Kind::Response | Kind::AtomicAck | Kind::Keepalive)
    }

    /// The request of a READ or ATOMIC.
    pub(super) fn is_answered(self) -> bool {
        matches!(self, Kind::Read | Kind::CompareSwap | Kind::FetchAdd)
    }
}

/// A launched message.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Message {
    pub kind: Kind,
    pub first_psn: u32,
    /// PSNs; none when it cannot be sent.
    pub packets: u32,
    /// 0, or the `WcStatus` with which it completes unsent.
    pub status: u8,
    pub wqe_index: u16,
    pub iova: u64,
    pub raddr: u64,
    pub rkey: u32,
    /// Bytes; of a READ or ATOMIC those that it brings.
    pub length: u32,
    pub imm: Option<u32>,
    /// Operands of an ATOMIC; in the answer to one, what the memory held, in the first.
    pub swap_add: u64,
    pub compare: u64,
    /// Receive WQE that it takes at the peer, if it has an immediate; slot of a READ or ATOMIC.
    pub wsn: u32,
    /// Path MTU, bytes.
    pub mtu: u32,
    pub sync: bool,
    pub signaled: bool,
}

impl Message {
    /// The packet of a granted PSN, with the address and the length of its payload.
    fn packet(&self, grant: &Grant) -> (DataPacket, u64, u32) {
        let index = psn::distance(self.first_psn, grant.psn);
        let (first, last) = (index == 0, index + 1 == self.packets);
        let offset = index * self.mtu;
        let length = match (self.kind, last) {
            (Kind::AtomicAck, _) => 0,
            (kind, _) if kind.is_answered() => 0,
            (_, true) => self.length - offset,
            (_, false) => self.mtu,
        };
        let mut flags = 0;
        for (flag, set) in [
            (mpeth::FLAG_RETX, grant.retx),
            // The offset wraps at 2^16 packets, where nothing can be early: no bitmap reaches back so far.
            (mpeth::FLAG_SYNC, self.sync && index < 1 << 16),
            (mpeth::FLAG_TAIL, last),
            (mpeth::FLAG_COMPLETION, last && self.imm.is_some()),
        ] {
            flags |= if set { flag } else { 0 };
        }
        let packet = DataPacket {
            opcode: self.opcode(first, last),
            psn: grant.psn,
            vp: grant.vp,
            flags,
            wsn: self.wsn,
            offset: index as u16,
            raddr: self.raddr.wrapping_add(offset.into()),
            rkey: self.rkey,
            read_length: if self.kind == Kind::Read {
                self.length
            } else {
                0
            },
            imm: self.imm.filter(|_| last),
            swap_add: self.swap_add,
            compare: self.compare,
        };
        (packet, self.iova.wrapping_add(offset.into()), length)
    }

    fn opcode(&self, first: bool, last: bool) -> u8 {
        match (self.kind, first, last, self.imm.is_some()) {
            (Kind::Keepalive, ..) | (Kind::Write, true, true, false) => opcode::MP_WRITE_ONLY,
            (Kind::Write, true, true, true) => opcode::MP_WRITE_ONLY_IMM,
            (Kind::Write, true, false, _) => opcode::MP_WRITE_FIRST,
            (Kind::Write, false, false, _) => opcode::MP_WRITE_MIDDLE,
            (Kind::Write, false, true, false) => opcode::MP_WRITE_LAST,
            (Kind::Write, false, true, true) => opcode::MP_WRITE_LAST_IMM,
            (Kind::Read, ..) => opcode::MP_READ_REQUEST,
            (Kind::CompareSwap, ..) => opcode::MP_COMPARE_SWAP,
            (Kind::FetchAdd, ..) => opcode::MP_FETCH_ADD,
            (Kind::AtomicAck, ..) => opcode::MP_ATOMIC_ACK,
            (Kind::Response, true, true, _) => opcode::MP_READ_RESPONSE_ONLY,
            (Kind::Response, true, false, _) => opcode::MP_READ_RESPONSE_FIRST,
            (Kind::Response, false, false, _) => opcode::MP_READ_RESPONSE_MIDDLE,
            (Kind::Response, false, true, _) => opcode::MP_READ_RESPONSE_LAST,
        }
    }
}

/// How far the payload of a packet is.
enum Payload {
    /// Its read waits for tags.
    Waiting,
    /// It is being read.
    Asked,
    /// It is there; `false` if it could not be read.
    There(Vec<u8>, bool),
}

/// A packet on its way to the wire.
struct Packet {
    number: u64,
    qpn: u16,
    /// The end of a destroyed queue pair, instead of a packet.
    marker: bool,
    header: DataPacket,
    iova: u64,
    length: u32,
    payload: Payload,
}

impl Packet {
    /// Tags that its read takes, and gives back when its payload is on the way out.
    fn tags(&self) -> u64 {
        blocks(self.iova, self.length.into(), BLOCK)
    }
}

/// The transmit side.
#[derive(Default)]
pub(super) struct Transmit {
    grants: VecDeque<(u16, Grant)>,
    /// When the next grant may become a packet, and whether an event is under way for that.
    segment_free: Ps,
    segment_waits: bool,
    /// In the order in which they leave.
    packets: VecDeque<Packet>,
    next_number: u64,
    /// Packets whose read waits for tags, and tags in use.
    unread: usize,
    tags: u64,
    /// When the last payload asked for is there: payloads come in order.
    read_at: Ps,
    /// ACKs go before packets.
    acks: VecDeque<(u16, Ack)>,
    /// When the frame builder is free, and whether an event is under way for that.
    build_free: Ps,
    build_waits: bool,
}

impl StandIn {
    /// Grants that wait in the engine's queue.
    pub(super) fn waiting_grants(&self) -> usize {
        self.tables
            .transmit
            .grants
            .len()
            .saturating_sub(GRANTS_AHEAD)
    }

    pub(super) fn grant(&mut self, qpn: u16, grant: Grant) {
        self.tables.transmit.grants.push_back((qpn, grant));
        self.segment();
    }

    pub(super) fn segment_is_free(&mut self) {
        self.tables.transmit.segment_waits = false;
        self.segment();
    }

    /// Cuts packets as long as there is room for them.
    fn segment(&mut self) {
        loop {
            let transmit = &mut self.tables.transmit;
            let room = transmit.packets.len() < PACKETS && transmit.unread < READS;
            if transmit.segment_waits || !room || transmit.grants.is_empty() {
                return;
            }
            if transmit.segment_free > self.now {
                transmit.segment_waits = true;
                let at = transmit.segment_free;
                return self.schedule(at, Event::Segment);
            }
            transmit.segment_free = self.now + self.clock.cycles(SEGMENT);
            if let Some((qpn, grant)) = transmit.grants.pop_front() {
                self.cut(qpn, &grant);
                self.serve_bursts();
            }
        }
    }

    /// A PSN that no open message holds makes nothing.
    fn cut(&mut self, qpn: u16, grant: &Grant) {
        let cut = match grant.marker {
            true => Some(Default::default()),
            false => self
                .find(qpn, grant.psn)
                .map(|message| message.packet(grant)),
        };
        let Some((header, iova, length)) = cut else {
            return;
        };
        let transmit = &mut self.tables.transmit;
        transmit.next_number += 1;
        let reads = length > 0;
        transmit.unread += usize::from(reads);
        transmit.packets.push_back(Packet {
            number: transmit.next_number,
            qpn,
            marker: grant.marker,
            header,
            iova,
            length,
            payload: match reads {
                true => Payload::Waiting,
                false => Payload::There(vec![], true),
            },
        });
        self.read_payloads();
        self.build();
    }

    fn find(&self, qpn: u16, psn: u32) -> Option<&Message> {
        let open = &self.tables.qps[usize::from(qpn)].open;
        let start = open.front()?.first_psn;
        let wanted = psn::distance(start, psn);
        let after = open.partition_point(|m| psn::distance(start, m.first_psn) <= wanted);
        let message = open.get(after.checked_sub(1)?)?;
        (psn::distance(message.first_psn, psn) < message.packets).then_some(message)
    }

    /// Asks for payloads as long as there are tags.
    fn read_payloads(&mut self) {
        let lead = self.cycles(GRANT);
        let after = self.cycles(READ);
        let transmit = &mut self.tables.transmit;
        let mut asked = vec![];
        for packet in transmit.packets.iter_mut() {
            if !matches!(packet.payload, Payload::Waiting) {
                continue;
            }
            let tags = packet.tags();
            if transmit.tags + tags > TAGS {
                break;
            }
            transmit.tags += tags;
            transmit.unread -= 1;
            packet.payload = Payload::Asked;
            let (ready, fails) = self.dma.ask(
                self.now + lead,
                packet.iova,
                packet.length.into(),
                &mut self.stats.pcie,
            );
            transmit.read_at = transmit.read_at.max(ready + after);
            asked.push((transmit.read_at, packet.number, fails));
        }
        for (at, packet, fails) in asked {
            self.schedule(at, Event::Payload { packet, fails });
        }
    }

    /// A payload is there: now host memory is read.
    pub(super) fn payload(&mut self, number: u64, fails: bool) {
        let packets = &mut self.tables.transmit.packets;
        let Some(packet) = packets.iter_mut().find(|p| p.number == number) else {
            return;
        };
        let mut bytes = vec![0; packet.length as usize];
        let (host, counters) = (&self.host, &mut self.stats.pcie);
        let readable = !fails && Dma::fetch(self.now, packet.iova, &mut bytes, host, counters);
        packet.payload = Payload::There(bytes, readable);
        self.build();
    }

    /// An ACK may leave.
    pub(super) fn send_ack(&mut self, qpn: u16, ack: Ack) {
        self.tables.transmit.acks.push_back((qpn, ack));
        self.build();
    }

    pub(super) fn builder_is_free(&mut self) {
        self.tables.transmit.build_waits = false;
        self.build();
    }

    /// Builds frames as long as the wire takes them.
    fn build(&mut self) {
        loop {
            let transmit = &mut self.tables.transmit;
            let first = transmit.packets.front();
            let ready = first.is_some_and(|p| matches!(p.payload, Payload::There(..)));
            if transmit.build_waits || (transmit.acks.is_empty() && !ready) {
                return;
            }
            let free_at = transmit
                .build_free
                .max(self.port.time_for(BUILT * BEAT as u64));
            if free_at > self.now {
                transmit.build_waits = true;
                return self.schedule(free_at, Event::Build);
            }
            if let Some((qpn, ack)) = transmit.acks.pop_front() {
                self.build_ack(qpn, &ack);
            } else if let Some(packet) = transmit.packets.pop_front() {
                transmit.tags -= packet.tags();
                self.build_packet(packet);
                self.read_payloads();
                self.segment();
            }
        }
    }

    fn build_ack(&mut self, qpn: u16, ack: &Ack) {
        let peer = &self.tables.qps[usize::from(qpn)].peer;
        let frame = frames::ack(self.registers.mac, peer, ack, self.config.bitmap_slots);
        self.count(Counter::TxAcks, 1);
        self.send_frame(frame);
    }

    fn build_packet(&mut self, packet: Packet) {
        if packet.marker {
            // It comes out when every frame before it has left.
            let at = self.port.free_at();
            return self.schedule(at, Event::TransmitMarker);
        }
        let Payload::There(payload, readable) = packet.payload else {
            return;
        };
        let peer = &self.tables.qps[usize::from(packet.qpn)].peer;
        let (source, stamp) = (self.registers.mac, self.tick() as u16);
        let frame = frames::data(source, peer, &packet.header, stamp, &payload, readable);
        self.count(Counter::TxDataPackets, 1);
        let again = packet.header.flags & mpeth::FLAG_RETX != 0;
        self.count_if(Counter::TxRetransmissions, again);
        self.send_frame(frame);
        if !readable {
            self.count(Counter::DmaReadErrors, 1);
            let event = SenderEvent::Error(WcStatus::FatalError as u8);
            self.sender_event(packet.qpn, &event);
        }
    }

    fn send_frame(&mut self, frame: Vec<u8>) {
        let beats = beats(frame.len());
        self.count(Counter::TxFrames, 1);
        self.count(Counter::TxBytes, frame.len() as u64);
        // A frame waits until it is whole.
        self.transmit(self.now + self.cycles(BUILD + beats), frame);
        let transmit = &mut self.tables.transmit;
        transmit.build_free = self.now + self.clock.cycles(beats + 1);
    }
}
