//! Builds frames: headers from commands, payload, pad, ICRC.

mod header;
mod seal;

pub use header::{Address, FrameTag};

use super::types::{AckCmd, CfgReq, PacketCmd, QpError};
use crate::leaf::bytes::ByteSelect;
use crate::leaf::{Beat, Prepend, SyncFifo};
use crate::prelude::*;
use header::TxHeader;
use mprdma_spec::command::{qp_image, Opcode, MASK_ADDRESS};
use mprdma_spec::status::WcStatus;
use seal::Seal;

/// A payload beat with its error flag.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
struct PayloadBeat {
    beat: Beat,
    error: bool,
}

crate::record! {
    /// The field of `qp_image` that says what MODIFY_QP changes.
    struct CfgMask {
        mask: Bits<8> = qp_image::MASK,
    }
}

block! {
    /// Turns packet and ACK commands into Ethernet frames without FCS.
    ///
    /// - In: `packet` and, when its length is not 0, its `payload` (packed from byte 0, `payload_err` on the last beat);
    ///   `ack`, which goes first. Addresses come with CREATE_QP and MODIFY_QP on the `cfg` bus.
    /// - In: `tick`, whose low bits stamp data packets; `mac`, the source address, first byte in the lowest bits.
    /// - Out: `m_axis_tx_*`, no idle cycle inside a frame. A frame whose payload could not be read leaves with a wrong
    ///   ICRC, and `error` names its QP.
    /// - Out: `tx_marker` with `tx_marker_qpn`, for one cycle: every frame commanded before this marker has left.
    /// - Out: `held`: frames queue for the wire.
    /// - Out: `acks_busy`: ACKs wait that have not read their address yet.
    /// - Latency: 29 cycles from the command and the first payload beat to the frame's first beat, and one more for each
    ///   of its beats. Each frame takes its beats and at most two cycles more.
    pub struct TxBuild[const QPW: usize][QPW] {
        in {
            clock: Clock,
            reset: Bit,
            packet: PacketCmd,
            packet_valid: bool,
            payload: Beat,
            payload_err: bool,
            payload_valid: bool,
            ack: AckCmd,
            ack_valid: bool,
            cfg: CfgReq,
            cfg_valid: bool,
            tick: Bits<32>,
            mac: Bits<48>,
            error_ready: bool,
            m_axis_tx_tready: bool,
        }
        out {
            packet_ready: bool,
            payload_ready: bool,
            ack_ready: bool,
            cfg_done: bool,
            error: QpError,
            error_valid: bool,
            tx_marker: bool,
            tx_marker_qpn: Bits<16>,
            acks_busy: bool,
            held: bool,
            m_axis_tx_tdata: Bits<512>,
            m_axis_tx_tkeep: Bits<64>,
            m_axis_tx_tlast: bool,
            m_axis_tx_tvalid: bool,
            cnt_tx_frames: bool,
            cnt_tx_bytes: Bits<7>,
            cnt_tx_data_packets: bool,
            cnt_tx_acks: bool,
            cnt_tx_retransmissions: bool,
            cnt_dma_read_errors: bool,
            busy: bool,
        }
        local {
            mask: Bits<8>,
            set_address: bool,
            payload_in: bool,
            arrived_next: Bits<6>,
            needs_payload: bool,
            pass_payload: bool,
            rounded: Bits<7>,
            is_marker: bool,
            give_header: bool,
            drained: bool,
            in_flight_next: Bits<8>,
            frame_first: bool,
            payload_follows: bool,
            frame_qpn: Bits<16>,
            ends_payload: bool,
            frame_ready: bool,
            fault: bool,
        }
        reg {
            answered: bool,
            done: bool,
            payload_open: bool,
            // Payloads begun at the input whose packets have not been taken.
            arrived: Bits<6>,
            // Frames between the headers and the port.
            in_flight: Bits<8>,
            frame_open: bool,
            marker_out: bool,
            data_out: bool,
            ack_out: bool,
            retx_out: bool,
            fault_out: bool,
        }
        pipe {
            marker_qpn: Bits<16>,
            open_payload: bool,
            open_qpn: Bits<16>,
        }
        konst {
            op_create: Bits<4> = bits(Opcode::CreateQp as u64),
            op_modify: Bits<4> = bits(Opcode::ModifyQp as u64),
            mask_address: Bits<8> = bits(MASK_ADDRESS),
            round_up: Bits<7> = bits(3),
            fatal: Bits<8> = bits(WcStatus::FatalError as u64),
        }
        sub {
            cfg_mask: crate::leaf::slices::Unpack<CfgMask, 1024>,
            packets: SyncFifo<PacketCmd, 4>,
            acks: SyncFifo<AckCmd, 4>,
            payloads: SyncFifo<PayloadBeat, 4>,
            headers: TxHeader<QPW>,
            zero_pad: ByteSelect,
            prepend: Prepend,
            tags: SyncFifo<FrameTag, 4>,
            faults: SyncFifo<bool, 4>,
            seal: Seal,
            errors: SyncFifo<QpError, 4>,
        }
    }
}

impl<const QPW: usize> TxBuild<QPW> {
    /// For a bitmap of `slots` slots, 64 or 128: the size of the SACK maps that it sends.
    ///
    /// # Panics
    /// When `slots` is another number.
    pub fn new(slots: usize) -> Self {
        assert!(
            slots == 64 || slots == 128,
            "a bitmap has 64 or 128 slots, not {slots}"
        );
        Self {
            headers: TxHeader::new(slots),
            ..Self::default()
        }
    }
}

impl<const QPW: usize> Logic for TxBuild<QPW> {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(
            self,
            clock,
            answered,
            done,
            payload_open,
            arrived,
            in_flight,
            frame_open,
            marker_out,
            data_out,
            ack_out,
            retx_out,
            fault_out,
            marker_qpn,
            open_payload,
            open_qpn
        );
        clock!(self, clock, packets, acks, payloads, headers, prepend, tags, faults, seal, errors);
        self.packets.reset.next = self.reset.val();
        self.acks.reset.next = self.reset.val();
        self.payloads.reset.next = self.reset.val();
        self.headers.reset.next = self.reset.val();
        self.prepend.reset.next = self.reset.val();
        self.tags.reset.next = self.reset.val();
        self.faults.reset.next = self.reset.val();
        self.seal.reset.next = self.reset.val();
        self.errors.reset.next = self.reset.val();
        comment!("configuration: addresses");
        self.cfg_mask.image.next = self.cfg.val().image;
        self.mask.next = self.cfg_mask.record.val().mask;
        self.set_address.next = (self.cfg.val().op == self.op_create.val())
            | ((self.cfg.val().op == self.op_modify.val())
                & (self.mask.val() & self.mask_address.val()).any());
        self.answered.d.next = self.cfg_valid.val();
        self.done.d.next = self.cfg_valid.val() & !self.answered.q.val();
        self.cfg_done.next = self.done.q.val();
        self.headers.write.next =
            self.cfg_valid.val() & !self.answered.q.val() & self.set_address.val();
        self.headers.write_qpn.next = bit_cast::<QPW, 24>(self.cfg.val().index);
        self.headers.write_image.next = self.cfg.val().image;
        comment!("inputs");
        self.packets.in_data.next = self.packet.val();
        self.packets.in_valid.next = self.packet_valid.val();
        self.packet_ready.next = self.packets.in_ready.val();
        self.acks.in_data.next = self.ack.val();
        self.acks.in_valid.next = self.ack_valid.val();
        self.ack_ready.next = self.acks.in_ready.val();
        self.payloads.in_data.next.beat = self.payload.val();
        self.payloads.in_data.next.error = self.payload_err.val();
        self.payloads.in_valid.next = self.payload_valid.val();
        self.payload_ready.next = self.payloads.in_ready.val();
        comment!("headers; a packet waits for its first payload beat, so that it holds up no ACK");
        self.payload_in.next = self.payload_valid.val() & self.payloads.in_ready.val();
        if self.payload_in.val() {
            self.payload_open.d.next = !self.payload.val().last;
        }
        self.needs_payload.next =
            self.packets.out_data.val().length.any() & !self.packets.out_data.val().marker;
        self.headers.packet.next = self.packets.out_data.val();
        self.headers.packet_valid.next = self.packets.out_valid.val();
        self.headers.hold_packet.next = self.needs_payload.val() & !self.arrived.q.val().any();
        self.packets.out_ready.next = self.headers.packet_take.val();
        self.headers.ack.next = self.acks.out_data.val();
        self.headers.ack_valid.next = self.acks.out_valid.val();
        self.acks_busy.next = self.acks.out_valid.val();
        self.acks.out_ready.next = self.headers.ack_take.val();
        self.headers.mac.next = self.mac.val();
        self.headers.stamp.next = bit_cast::<16, 32>(self.tick.val());
        self.arrived_next.next = self.arrived.q.val();
        if self.payload_in.val() & !self.payload_open.q.val() {
            self.arrived_next.next = self.arrived.q.val() + 1;
        }
        self.arrived.d.next = self.arrived_next.val();
        if self.headers.packet_take.val() & self.needs_payload.val() {
            self.arrived.d.next = self.arrived_next.val() - 1;
        }
        comment!("a marker waits until nothing is before it");
        self.is_marker.next = self.headers.tag.val().marker;
        self.drained.next = !self.in_flight.q.val().any();
        self.give_header.next = self.headers.valid.val()
            & !self.is_marker.val()
            & self.prepend.header_ready.val()
            & self.tags.in_ready.val();
        self.headers.advance.next = (self.is_marker.val() & self.drained.val())
            | (!self.is_marker.val() & self.prepend.header_ready.val() & self.tags.in_ready.val());
        self.marker_out.d.next =
            self.headers.valid.val() & self.is_marker.val() & self.drained.val();
        self.marker_qpn.d.next = self.headers.tag.val().qpn;
        self.tx_marker.next = self.marker_out.q.val();
        self.tx_marker_qpn.next = self.marker_qpn.q.val();
        self.prepend.header.next = self.headers.header.val();
        self.prepend.header_valid.next = self.give_header.val();
        self.tags.in_data.next = self.headers.tag.val();
        self.tags.in_valid.next = self.give_header.val();
        self.data_out.d.next = self.give_header.val() & !self.headers.tag.val().ack;
        self.ack_out.d.next = self.give_header.val() & self.headers.tag.val().ack;
        self.retx_out.d.next = self.give_header.val() & self.headers.tag.val().retx;
        comment!("payload, filled up with zeros to a multiple of 4");
        self.pass_payload.next = self.payloads.out_valid.val()
            & self.prepend.payload_ready.val()
            & self.faults.in_ready.val();
        self.payloads.out_ready.next =
            self.prepend.payload_ready.val() & self.faults.in_ready.val();
        self.zero_pad.n.next = self.payloads.out_data.val().beat.nbytes;
        self.zero_pad.low.next = self.payloads.out_data.val().beat.data;
        self.zero_pad.high.next = 0.into();
        self.rounded.next =
            (self.payloads.out_data.val().beat.nbytes + self.round_up.val()) & !self.round_up.val();
        self.prepend.payload.next.data = self.zero_pad.o.val();
        self.prepend.payload.next.nbytes = self.rounded.val();
        self.prepend.payload.next.last = self.payloads.out_data.val().beat.last;
        self.prepend.payload_valid.next = self.pass_payload.val();
        self.faults.in_data.next = self.payloads.out_data.val().error;
        self.faults.in_valid.next =
            self.pass_payload.val() & self.payloads.out_data.val().beat.last;
        comment!("frames; a tag goes with the first beat, a fault with the last");
        self.frame_first.next = !self.frame_open.q.val();
        self.payload_follows.next = self.open_payload.q.val();
        self.frame_qpn.next = self.open_qpn.q.val();
        if self.frame_first.val() {
            self.payload_follows.next = self.tags.out_data.val().payload;
            self.frame_qpn.next = self.tags.out_data.val().qpn;
        }
        self.ends_payload.next = self.prepend.out_beat.val().last & self.payload_follows.val();
        self.frame_ready.next = self.prepend.out_valid.val()
            & (self.tags.out_valid.val() | !self.frame_first.val())
            & ((self.faults.out_valid.val() & self.errors.in_ready.val())
                | !self.ends_payload.val());
        self.fault.next = self.ends_payload.val() & self.faults.out_data.val();
        self.seal.beat.next = self.prepend.out_beat.val();
        self.seal.valid.next = self.frame_ready.val();
        self.seal.tag.next = self.tags.out_data.val();
        self.seal.poison.next = self.fault.val();
        self.prepend.out_ready.next = self.seal.take.val();
        self.tags.out_ready.next = self.seal.take.val() & self.frame_first.val();
        self.faults.out_ready.next = self.seal.take.val() & self.ends_payload.val();
        if self.seal.take.val() {
            self.frame_open.d.next = !self.prepend.out_beat.val().last;
            self.open_payload.d.next = self.payload_follows.val();
            self.open_qpn.d.next = self.frame_qpn.val();
        }
        self.errors.in_data.next.qpn = self.frame_qpn.val();
        self.errors.in_data.next.status = self.fatal.val();
        self.errors.in_valid.next = self.seal.take.val() & self.fault.val();
        self.fault_out.d.next = self.seal.take.val() & self.fault.val();
        self.error.next = self.errors.out_data.val();
        self.error_valid.next = self.errors.out_valid.val();
        self.errors.out_ready.next = self.error_ready.val();
        comment!("port");
        self.m_axis_tx_tdata.next = self.seal.tdata.val();
        self.m_axis_tx_tkeep.next = self.seal.tkeep.val();
        self.m_axis_tx_tlast.next = self.seal.tlast.val();
        self.m_axis_tx_tvalid.next = self.seal.tvalid.val();
        self.seal.tready.next = self.m_axis_tx_tready.val();
        self.held.next = self.seal.held.val();
        comment!("frames between header and port");
        self.in_flight_next.next = self.in_flight.q.val();
        if self.give_header.val() {
            self.in_flight_next.next = self.in_flight.q.val() + 1;
        }
        self.in_flight.d.next = self.in_flight_next.val();
        if self.seal.sent_last.val() {
            self.in_flight.d.next = self.in_flight_next.val() - 1;
        }
        comment!("counters");
        self.cnt_tx_frames.next = self.seal.sent_last.val();
        self.cnt_tx_bytes.next = self.seal.sent.val();
        self.cnt_tx_data_packets.next = self.data_out.q.val();
        self.cnt_tx_acks.next = self.ack_out.q.val();
        self.cnt_tx_retransmissions.next = self.retx_out.q.val();
        self.cnt_dma_read_errors.next = self.fault_out.q.val();
        self.busy.next = self.packets.count.val().any()
            | self.acks.count.val().any()
            | self.payloads.count.val().any()
            | self.errors.count.val().any()
            | self.headers.busy.val()
            | self.in_flight.q.val().any();
    }
}
