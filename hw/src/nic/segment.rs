//! Turns grants into data packets: finds the message of a PSN, and the packet inside the message.

use super::types::{CfgReq, DmaReadReq, Grant, Launch, PacketCmd, Retired};
use crate::leaf::{Ram, RamStyle, SyncFifo, Unpack};
use crate::prelude::*;
use crate::record;
use mprdma_spec::command::{qp_image, Opcode, MASK_SENDER};
use mprdma_spec::descriptor::{WrOpcode, WQE_SYNC};
use mprdma_spec::wire::{bth, mpeth};

// `Message::kind`: what the packets of a message are.
const WRITE: u64 = 0;
const WRITE_IMM: u64 = 1;
const READ: u64 = 2;
const READ_RESPONSE: u64 = 3;
const COMPARE_SWAP: u64 = 4;
const FETCH_ADD: u64 = 5;
const ATOMIC_ACK: u64 = 6;

record! {
    /// The field of `qp_image` that says which groups a MODIFY_QP takes.
    pub struct MaskField {
        pub mask: Bits<8> = qp_image::MASK,
    }
}

/// The messages of one queue pair that the ring holds.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct RingState {
    /// Slot of the oldest message.
    pub tail: Bits<6>,
    /// Messages in the ring, 0 to 64.
    pub live: Bits<7>,
    /// Slot in which the last granted PSN was found.
    pub cursor: Bits<6>,
}

/// What is kept of a launched message. An ATOMIC or its answer reads no memory here, so its values lie where others have
/// theirs: the one to swap in or to add, or the answer's, in `length` (low half) and `imm`, the one to compare with in
/// `iova`.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct Message {
    pub first_psn: Bits<24>,
    pub packets: Bits<24>,
    pub iova: Bits<64>,
    pub raddr: Bits<64>,
    pub rkey: Bits<32>,
    pub length: Bits<32>,
    pub imm: Bits<32>,
    pub wsn: Bits<24>,
    pub mtu: Bits<3>,
    /// `WRITE` to `ATOMIC_ACK`.
    pub kind: Bits<3>,
    pub sync: bool,
}

#[derive(LogicState, Copy, Clone, Debug, PartialEq)]
enum Step {
    Clear,
    Pick,
    Load,
    Retire,
    Store,
    Command,
    Marker,
    Entry,
    Check,
    Seek,
    Probe,
    ProbeEntry,
    ProbeCheck,
    Size,
    Emit,
}

#[derive(LogicState, Copy, Clone, Debug, PartialEq)]
enum Job {
    Retire,
    Store,
    Send,
}

/// Where the slot at hand comes from.
#[derive(LogicState, Copy, Clone, Debug, PartialEq)]
enum Source {
    Cursor,
    Next,
    Search,
}

block! {
    /// Makes one packet command and one payload read of each grant.
    ///
    /// - In: `launch` (messages with their PSNs), `retired` (messages that leave the ring), `grant`, the configuration bus
    ///   (CREATE_QP, DESTROY_QP and a MODIFY_QP with `MASK_SENDER` empty the queue pair's ring).
    /// - Out: `packet`; `payload_req`, one for each packet whose length is not 0, in the same order; `cfg_done`,
    ///   `init_done`, `busy`.
    /// - Initiation interval: 6 cycles when the PSN is in the message of the queue pair's last grant, 9 when it is in the
    ///   next one, else up to 37 (binary search over the ring). A launch and a retirement take 3 cycles each.
    /// - A grant for a PSN that no message in the ring holds makes nothing. A marker passes in order.
    ///
    /// Launches go before retirements, so none is retired before it is stored; both go before grants, so a grant finds
    /// every message that was launched before it. Up to 2^23 PSNs may be in the ring of a queue pair. `RINGW` is `QPW` + 6: 64 messages per queue pair.
    pub struct Segment[const QPW: usize, const RINGW: usize][QPW, RINGW] {
        in {
            clock: Clock,
            reset: Bit,
            cfg: CfgReq,
            cfg_valid: Bit,
            launch: Launch,
            launch_valid: Bit,
            retired: Retired,
            retired_valid: Bit,
            grant: Grant,
            grant_valid: Bit,
            packet_ready: Bit,
            payload_req_ready: Bit,
        }
        out {
            launch_ready: Bit,
            retired_ready: Bit,
            grant_ready: Bit,
            packet: PacketCmd,
            packet_valid: Bit,
            payload_req: DmaReadReq,
            payload_req_valid: Bit,
            cfg_done: Bit,
            init_done: Bit,
            busy: Bit,
        }
        local {
            number: Bits<16>,
            loaded: RingState,
            next: RingState,
            read_slot: Bits<6>,
            read_place: Bits<22>,
            write_place: Bits<22>,
            stored: Message,
            kind: Bits<3>,
            asks_swap: Bit,
            asks_add: Bit,
            is_imm: Bit,
            is_read: Bit,
            is_response: Bit,
            is_atomic_request: Bit,
            is_atomic_ack: Bit,
            is_atomic: Bit,
            distance: Bits<24>,
            depth: Bits<6>,
            candidate: Bits<7>,
            alive: Bit,
            changes: Bit,
            quiet: Bit,
            mtu_bytes: Bits<32>,
            byte_offset: Bits<32>,
            rest: Bits<32>,
            ends: Bits<24>,
            command: PacketCmd,
            payload: DmaReadReq,
        }
        reg {
            step: Step = Step::Clear,
            job: Job = Job::Send,
            source: Source = Source::Cursor,
            clearing: Bits<QPW>,
            served: Bit,
            cfg_answered: Bit,
        }
        pipe {
            at: Bits<16>,
            item: Launch,
            wanted: Grant,
            state: RingState,
            probe: Bits<6>,
            found: Bits<6>,
            stride: Bits<6>,
            message: Message,
            offset: Bits<24>,
            at_byte: Bits<32>,
            first: Bit,
            last: Bit,
            length: Bits<13>,
        }
        konst {
            create_qp: Bits<4> = bits(Opcode::CreateQp as u64),
            modify_qp: Bits<4> = bits(Opcode::ModifyQp as u64),
            destroy_qp: Bits<4> = bits(Opcode::DestroyQp as u64),
            mask_sender: Bits<8> = bits(MASK_SENDER),
            op_imm: Bits<8> = bits(WrOpcode::RdmaWriteWithImm as u64),
            op_read: Bits<8> = bits(WrOpcode::RdmaRead as u64),
            op_swap: Bits<8> = bits(WrOpcode::AtomicCmpAndSwp as u64),
            op_add: Bits<8> = bits(WrOpcode::AtomicFetchAndAdd as u64),
            kind_write: Bits<3> = bits(WRITE),
            kind_imm: Bits<3> = bits(WRITE_IMM),
            kind_read: Bits<3> = bits(READ),
            kind_response: Bits<3> = bits(READ_RESPONSE),
            kind_swap: Bits<3> = bits(COMPARE_SWAP),
            kind_add: Bits<3> = bits(FETCH_ADD),
            kind_atomic_ack: Bits<3> = bits(ATOMIC_ACK),
            wqe_sync: Bits<8> = bits(WQE_SYNC),
            write_first: Bits<8> = bits(bth::opcode::MP_WRITE_FIRST as u64),
            write_middle: Bits<8> = bits(bth::opcode::MP_WRITE_MIDDLE as u64),
            write_last: Bits<8> = bits(bth::opcode::MP_WRITE_LAST as u64),
            write_last_imm: Bits<8> = bits(bth::opcode::MP_WRITE_LAST_IMM as u64),
            write_only: Bits<8> = bits(bth::opcode::MP_WRITE_ONLY as u64),
            write_only_imm: Bits<8> = bits(bth::opcode::MP_WRITE_ONLY_IMM as u64),
            read_request: Bits<8> = bits(bth::opcode::MP_READ_REQUEST as u64),
            response_first: Bits<8> = bits(bth::opcode::MP_READ_RESPONSE_FIRST as u64),
            response_middle: Bits<8> = bits(bth::opcode::MP_READ_RESPONSE_MIDDLE as u64),
            response_last: Bits<8> = bits(bth::opcode::MP_READ_RESPONSE_LAST as u64),
            response_only: Bits<8> = bits(bth::opcode::MP_READ_RESPONSE_ONLY as u64),
            compare_swap: Bits<8> = bits(bth::opcode::MP_COMPARE_SWAP as u64),
            fetch_add: Bits<8> = bits(bth::opcode::MP_FETCH_ADD as u64),
            atomic_ack: Bits<8> = bits(bth::opcode::MP_ATOMIC_ACK as u64),
            flag_retx: Bits<8> = bits(mpeth::FLAG_RETX as u64),
            flag_sync: Bits<8> = bits(mpeth::FLAG_SYNC as u64),
            flag_tail: Bits<8> = bits(mpeth::FLAG_TAIL as u64),
            flag_completion: Bits<8> = bits(mpeth::FLAG_COMPLETION as u64),
            half: Bits<24> = bits(1 << 23),
            one_24: Bits<24> = bits(1),
            one_6: Bits<6> = bits(1),
            one_7: Bits<7> = bits(1),
            widest: Bits<6> = bits(32),
            base_mtu: Bits<32> = bits(128),
            blank: PacketCmd = PacketCmd::default(),
            empty: RingState = RingState::default(),
        }
        sub {
            fields: Unpack<MaskField, 1024> = Unpack::default(),
            states: Ram<RingState, QPW> = Ram::new(RamStyle::Distributed, false),
            ring: Ram<Message, RINGW> = Ram::new(RamStyle::Ultra, false),
            launches: SyncFifo<Launch, 3> = SyncFifo::shallow(),
            retirements: SyncFifo<Retired, 3> = SyncFifo::shallow(),
            grants: SyncFifo<Grant, 4> = SyncFifo::shallow(),
            packets: SyncFifo<PacketCmd, 5> = SyncFifo::shallow(),
            payloads: SyncFifo<DmaReadReq, 3> = SyncFifo::shallow(),
        }
    }
}

impl<const QPW: usize, const RINGW: usize> Segment<QPW, RINGW> {
    /// The block for 2^`QPW` queue pairs.
    ///
    /// # Panics
    /// When `RINGW` is not `QPW` + 6.
    #[must_use]
    pub fn new() -> Self {
        assert_eq!(RINGW, QPW + 6, "64 messages per queue pair");
        Self::default()
    }
}

impl<const QPW: usize, const RINGW: usize> Logic for Segment<QPW, RINGW> {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(
            self,
            clock,
            step,
            job,
            source,
            clearing,
            served,
            cfg_answered,
            at,
            item,
            wanted,
            state,
            probe,
            found,
            stride,
            message,
            offset,
            at_byte,
            first,
            last,
            length
        );
        clock!(
            self,
            clock,
            states,
            ring,
            launches,
            retirements,
            grants,
            packets,
            payloads
        );
        self.launches.reset.next = self.reset.val();
        self.retirements.reset.next = self.reset.val();
        self.grants.reset.next = self.reset.val();
        self.packets.reset.next = self.reset.val();
        self.payloads.reset.next = self.reset.val();
        self.launches.in_data.next = self.launch.val();
        self.launches.in_valid.next = self.launch_valid.val();
        self.launch_ready.next = self.launches.in_ready.val();
        self.retirements.in_data.next = self.retired.val();
        self.retirements.in_valid.next = self.retired_valid.val() & self.retired.val().ring;
        self.retired_ready.next = self.retirements.in_ready.val();
        self.grants.in_data.next = self.grant.val();
        self.grants.in_valid.next = self.grant_valid.val();
        self.grant_ready.next = self.grants.in_ready.val();
        self.packet.next = self.packets.out_data.val();
        self.packet_valid.next = self.packets.out_valid.val();
        self.packets.out_ready.next = self.packet_ready.val();
        self.payload_req.next = self.payloads.out_data.val();
        self.payload_req_valid.next = self.payloads.out_valid.val();
        self.payloads.out_ready.next = self.payload_req_ready.val();

        comment!("defaults");
        self.launches.out_ready.next = false;
        self.retirements.out_ready.next = false;
        self.grants.out_ready.next = false;
        self.number.next = self.at.q.val();
        self.loaded.next = self.states.read_data.val();
        self.next.next = self.state.q.val();
        self.states.read.next = true;
        self.states.write.next = false;
        self.states.write_addr.next = self.at.q.val().get_bits::<QPW>(0);
        self.read_slot.next = self.probe.q.val();
        self.ring.read.next = true;
        self.ring.write.next = false;
        self.packets.in_valid.next = false;
        self.payloads.in_valid.next = false;
        self.cfg_answered.d.next = false;

        comment!("configuration: which commands empty a ring");
        self.fields.image.next = self.cfg.val().image;
        self.changes.next = (self.cfg.val().op == self.create_qp.val())
            | (self.cfg.val().op == self.destroy_qp.val())
            | ((self.cfg.val().op == self.modify_qp.val())
                & (self.fields.record.val().mask & self.mask_sender.val()).any());
        self.quiet.next = !self.launches.count.val().any() & !self.retirements.count.val().any();
        if !self.cfg_valid.val() {
            self.served.d.next = false;
        }

        comment!("the message that a launch stores");
        self.stored.next.first_psn = self.item.q.val().first_psn;
        self.stored.next.packets = self.item.q.val().packets;
        self.stored.next.iova = self.item.q.val().iova;
        self.stored.next.raddr = self.item.q.val().raddr;
        self.stored.next.rkey = self.item.q.val().rkey;
        self.stored.next.length = self.item.q.val().length;
        self.stored.next.imm = self.item.q.val().imm;
        self.stored.next.wsn = self.item.q.val().wsn;
        self.stored.next.mtu = self.item.q.val().mtu;
        self.stored.next.sync = (self.item.q.val().flags & self.wqe_sync.val()).any();
        self.stored.next.kind = self.kind_write.val();
        if self.item.q.val().opcode == self.op_imm.val() {
            self.stored.next.kind = self.kind_imm.val();
        }
        if self.item.q.val().opcode == self.op_read.val() {
            self.stored.next.kind = self.kind_read.val();
            if self.item.q.val().response {
                self.stored.next.kind = self.kind_response.val();
            }
        }
        self.asks_swap.next = self.item.q.val().opcode == self.op_swap.val();
        self.asks_add.next = self.item.q.val().opcode == self.op_add.val();
        if self.asks_swap.val() | self.asks_add.val() {
            self.stored.next.kind = self.kind_swap.val();
            if self.asks_add.val() {
                self.stored.next.kind = self.kind_add.val();
            }
            if self.item.q.val().response {
                self.stored.next.kind = self.kind_atomic_ack.val();
            }
            self.stored.next.length = self.item.q.val().swap_add.get_bits::<32>(0);
            self.stored.next.imm = self.item.q.val().swap_add.get_bits::<32>(32);
            self.stored.next.iova = self.item.q.val().compare;
        }

        comment!("the message at hand against the PSN");
        self.distance.next = self.wanted.q.val().psn - self.message.q.val().first_psn;
        self.depth.next = self.probe.q.val() - self.state.q.val().tail;
        self.alive.next = bit_cast::<7, 6>(self.depth.val()) < self.state.q.val().live;
        self.candidate.next =
            bit_cast::<7, 6>(self.found.q.val()) + bit_cast::<7, 6>(self.stride.q.val());

        comment!("the packet inside the message");
        self.kind.next = self.message.q.val().kind;
        self.is_imm.next = self.kind.val() == self.kind_imm.val();
        self.is_read.next = self.kind.val() == self.kind_read.val();
        self.is_response.next = self.kind.val() == self.kind_response.val();
        self.is_atomic_request.next =
            (self.kind.val() == self.kind_swap.val()) | (self.kind.val() == self.kind_add.val());
        self.is_atomic_ack.next = self.kind.val() == self.kind_atomic_ack.val();
        self.is_atomic.next = self.is_atomic_request.val() | self.is_atomic_ack.val();
        self.mtu_bytes.next = self.base_mtu.val() << self.message.q.val().mtu;
        self.byte_offset.next =
            (bit_cast::<32, 24>(self.offset.q.val()) << 7) << self.message.q.val().mtu;
        self.rest.next = self.message.q.val().length - self.byte_offset.val();
        self.ends.next = self.offset.q.val() + self.one_24.val();

        comment!("outputs");
        self.command.next = self.blank.val();
        self.command.next.qpn = self.wanted.q.val().qpn;
        if self.step.q.val() == Step::Marker {
            self.command.next.marker = true;
        } else {
            self.command.next.vp = self.wanted.q.val().vp;
            self.command.next.psn = self.wanted.q.val().psn;
            self.command.next.raddr =
                self.message.q.val().raddr + bit_cast::<64, 32>(self.at_byte.q.val());
            self.command.next.rkey = self.message.q.val().rkey;
            self.command.next.length = self.length.q.val();
            self.command.next.dma_length = bit_cast::<32, 13>(self.length.q.val());
            self.command.next.offset = self.offset.q.val().get_bits::<16>(0);
            if self.wanted.q.val().retx {
                self.command.next.flags = self.command.val().flags | self.flag_retx.val();
            }
            // `offset` wraps at 2^16 packets, where nothing can be early: no bitmap reaches back so far.
            if self.message.q.val().sync & !self.offset.q.val().get_bits::<8>(16).any() {
                self.command.next.flags = self.command.val().flags | self.flag_sync.val();
            }
            if self.is_imm.val() {
                self.command.next.imm = self.message.q.val().imm;
                self.command.next.wsn = self.message.q.val().wsn;
            }
            if self.is_read.val() | self.is_response.val() | self.is_atomic.val() {
                self.command.next.wsn = self.message.q.val().wsn;
            }
            if self.is_atomic.val() {
                self.command.next.swap_add = bit_cast::<64, 32>(self.message.q.val().length)
                    | (bit_cast::<64, 32>(self.message.q.val().imm) << 32);
            }
            if self.is_atomic_request.val() {
                self.command.next.compare = self.message.q.val().iova;
            }
            if self.last.q.val() {
                self.command.next.flags = self.command.val().flags | self.flag_tail.val();
                if self.is_imm.val() {
                    self.command.next.flags = self.command.val().flags | self.flag_completion.val();
                }
            }
            if self.is_read.val() {
                self.command.next.opcode = self.read_request.val();
                self.command.next.dma_length = self.message.q.val().length;
            } else if self.is_atomic_request.val() {
                self.command.next.opcode = self.fetch_add.val();
                if self.kind.val() == self.kind_swap.val() {
                    self.command.next.opcode = self.compare_swap.val();
                }
            } else if self.is_atomic_ack.val() {
                self.command.next.opcode = self.atomic_ack.val();
            } else if self.is_response.val() {
                self.command.next.opcode = self.response_middle.val();
                if self.first.q.val() & self.last.q.val() {
                    self.command.next.opcode = self.response_only.val();
                } else if self.first.q.val() {
                    self.command.next.opcode = self.response_first.val();
                } else if self.last.q.val() {
                    self.command.next.opcode = self.response_last.val();
                }
            } else if self.first.q.val() {
                self.command.next.opcode = self.write_first.val();
                if self.last.q.val() {
                    self.command.next.opcode = self.write_only.val();
                    if self.is_imm.val() {
                        self.command.next.opcode = self.write_only_imm.val();
                    }
                }
            } else {
                self.command.next.opcode = self.write_middle.val();
                if self.last.q.val() {
                    self.command.next.opcode = self.write_last.val();
                    if self.is_imm.val() {
                        self.command.next.opcode = self.write_last_imm.val();
                    }
                }
            }
        }
        self.packets.in_data.next = self.command.val();
        self.payload.next.iova =
            self.message.q.val().iova + bit_cast::<64, 32>(self.at_byte.q.val());
        self.payload.next.length = self.length.q.val();
        self.payloads.in_data.next = self.payload.val();

        match self.step.q.val() {
            Step::Clear => {
                self.states.write.next = true;
                self.states.write_addr.next = self.clearing.q.val();
                self.next.next = self.empty.val();
                self.clearing.d.next = self.clearing.q.val() + 1;
                if self.clearing.q.val().all() {
                    self.step.d.next = Step::Pick;
                }
            }
            Step::Pick => {
                self.item.d.next = self.launches.out_data.val();
                self.wanted.d.next = self.grants.out_data.val();
                self.source.d.next = Source::Cursor;
                if self.launches.out_valid.val() {
                    self.launches.out_ready.next = true;
                    self.number.next = self.launches.out_data.val().qpn;
                    self.job.d.next = Job::Store;
                    self.step.d.next = Step::Load;
                } else if self.retirements.out_valid.val() {
                    self.retirements.out_ready.next = true;
                    self.number.next = self.retirements.out_data.val().qpn;
                    self.job.d.next = Job::Retire;
                    self.step.d.next = Step::Load;
                } else if self.cfg_valid.val() & !self.served.q.val() & self.quiet.val() {
                    self.number.next = self.cfg.val().index.get_bits::<16>(0);
                    self.step.d.next = Step::Command;
                } else if self.grants.out_valid.val()
                    & self.packets.in_ready.val()
                    & self.payloads.in_ready.val()
                {
                    self.grants.out_ready.next = true;
                    self.number.next = self.grants.out_data.val().qpn;
                    self.job.d.next = Job::Send;
                    self.step.d.next = Step::Load;
                    if self.grants.out_data.val().marker {
                        self.step.d.next = Step::Marker;
                    }
                }
                self.at.d.next = self.number.val();
            }
            Step::Load => {
                self.state.d.next = self.loaded.val();
                self.probe.d.next = self.loaded.val().cursor;
                self.read_slot.next = self.loaded.val().cursor;
                match self.job.q.val() {
                    Job::Retire => {
                        self.step.d.next = Step::Retire;
                    }
                    Job::Store => {
                        self.step.d.next = Step::Store;
                    }
                    _ => {
                        self.step.d.next = Step::Entry;
                    }
                }
            }
            Step::Retire => {
                if self.state.q.val().live.any() {
                    self.next.next.tail = self.state.q.val().tail + self.one_6.val();
                    self.next.next.live = self.state.q.val().live - self.one_7.val();
                    self.states.write.next = true;
                }
                self.step.d.next = Step::Pick;
            }
            Step::Store => {
                self.ring.write.next = true;
                self.next.next.live = self.state.q.val().live + self.one_7.val();
                if !self.state.q.val().live.any() {
                    self.next.next.tail = self.item.q.val().slot;
                }
                self.states.write.next = true;
                self.step.d.next = Step::Pick;
            }
            Step::Command => {
                self.next.next = self.empty.val();
                self.states.write.next = self.changes.val();
                self.served.d.next = true;
                self.cfg_answered.d.next = true;
                self.step.d.next = Step::Pick;
            }
            Step::Marker => {
                self.packets.in_valid.next = true;
                self.step.d.next = Step::Pick;
            }
            Step::Entry => {
                self.message.d.next = self.ring.read_data.val();
                self.step.d.next = Step::Check;
            }
            Step::Check => {
                self.offset.d.next = self.distance.val();
                self.found.d.next = bits::<6>(0);
                self.stride.d.next = self.widest.val();
                if self.alive.val() & (self.distance.val() < self.message.q.val().packets) {
                    self.step.d.next = Step::Size;
                } else if !self.state.q.val().live.any() {
                    self.step.d.next = Step::Pick;
                } else {
                    match self.source.q.val() {
                        Source::Cursor => {
                            self.probe.d.next = self.probe.q.val() + self.one_6.val();
                            self.source.d.next = Source::Next;
                            self.step.d.next = Step::Seek;
                        }
                        Source::Next => {
                            self.source.d.next = Source::Search;
                            self.step.d.next = Step::Probe;
                        }
                        _ => {
                            self.step.d.next = Step::Pick;
                        }
                    }
                }
            }
            Step::Seek => {
                self.step.d.next = Step::Entry;
            }
            Step::Probe => {
                // The newest message whose first PSN is not after the one wanted is `found` slots from the tail.
                self.read_slot.next =
                    self.state.q.val().tail + self.candidate.val().get_bits::<6>(0);
                if !self.stride.q.val().any() {
                    self.probe.d.next = self.state.q.val().tail + self.found.q.val();
                    self.step.d.next = Step::Seek;
                } else if self.candidate.val() < self.state.q.val().live {
                    self.step.d.next = Step::ProbeEntry;
                } else {
                    self.stride.d.next = self.stride.q.val() >> 1;
                }
            }
            Step::ProbeEntry => {
                self.message.d.next = self.ring.read_data.val();
                self.step.d.next = Step::ProbeCheck;
            }
            Step::ProbeCheck => {
                if self.distance.val() < self.half.val() {
                    self.found.d.next = self.candidate.val().get_bits::<6>(0);
                }
                self.stride.d.next = self.stride.q.val() >> 1;
                self.step.d.next = Step::Probe;
            }
            Step::Size => {
                self.at_byte.d.next = self.byte_offset.val();
                self.first.d.next = !self.offset.q.val().any();
                self.last.d.next = self.ends.val() == self.message.q.val().packets;
                self.length.d.next = self.mtu_bytes.val().get_bits::<13>(0);
                if self.ends.val() == self.message.q.val().packets {
                    self.length.d.next = self.rest.val().get_bits::<13>(0);
                }
                // A READ's length is that of the answer; an ATOMIC has a value in its place.
                if self.is_read.val() | self.is_atomic.val() {
                    self.length.d.next = bits::<13>(0);
                }
                self.next.next.cursor = self.probe.q.val();
                self.states.write.next = self.state.q.val().cursor != self.probe.q.val();
                self.step.d.next = Step::Emit;
            }
            Step::Emit => {
                self.packets.in_valid.next = true;
                self.payloads.in_valid.next = self.length.q.val().any();
                self.step.d.next = Step::Pick;
            }
            _ => {}
        }
        self.states.read_addr.next = self.number.val().get_bits::<QPW>(0);
        self.states.write_data.next = self.next.val();
        self.read_place.next =
            (bit_cast::<22, 16>(self.at.q.val()) << 6) | bit_cast::<22, 6>(self.read_slot.val());
        self.ring.read_addr.next = self.read_place.val().get_bits::<RINGW>(0);
        self.write_place.next =
            (bit_cast::<22, 16>(self.at.q.val()) << 6) | bit_cast::<22, 6>(self.item.q.val().slot);
        self.ring.write_addr.next = self.write_place.val().get_bits::<RINGW>(0);
        self.ring.write_data.next = self.stored.val();

        self.cfg_done.next = self.cfg_answered.q.val();
        self.init_done.next = self.step.q.val() != Step::Clear;
        self.busy.next = (self.step.q.val() != Step::Pick)
            | self.launches.count.val().any()
            | self.retirements.count.val().any()
            | self.grants.count.val().any()
            | self.packets.count.val().any()
            | self.payloads.count.val().any();
    }
}
