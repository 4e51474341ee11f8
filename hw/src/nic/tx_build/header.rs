//! Makes the headers of data packets and ACKs.

use crate::leaf::slices::{Pack, Unpack};
use crate::leaf::{Header, Ram, RamStyle};
use crate::nic::headers::*;
use crate::nic::types::{AckCmd, PacketCmd};
use crate::prelude::*;
use crate::record;
use mprdma_spec::command::qp_image;
use mprdma_spec::wire::{bth, ethernet, icrc, ipv4, mpaeth, mpeth, udp};

record! {
    /// Whom a QP talks to: what `qp_image` calls the address vector.
    pub struct Address {
        pub dmac: Bits<48> = qp_image::DMAC,
        pub port_flags: Bits<8> = qp_image::PORT_FLAGS,
        pub traffic_class: Bits<8> = qp_image::TRAFFIC_CLASS,
        pub vlan_tci: Bits<16> = qp_image::VLAN_TCI,
        pub hop_limit: Bits<8> = qp_image::HOP_LIMIT,
        pub flow_label: Bits<20> = qp_image::FLOW_LABEL,
        pub sgid: Bits<128> = qp_image::SGID,
        pub dgid: Bits<128> = qp_image::DGID,
        pub dest_qpn: Bits<24> = qp_image::DEST_QPN,
        pub pkey: Bits<16> = qp_image::PKEY,
    }
}

/// What the end of the pipeline needs to know about a packet.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct FrameTag {
    pub qpn: Bits<16>,
    pub vlan: bool,
    pub ip6: bool,
    /// An ACK or NAK.
    pub ack: bool,
    pub retx: bool,
    /// A payload follows the headers.
    pub payload: bool,
    /// No packet, see [`PacketCmd::marker`].
    pub marker: bool,
}

/// A command on its way to its address.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
struct Chosen {
    is_ack: bool,
    packet: PacketCmd,
    ack: AckCmd,
}

/// A command with its address, its transport headers and its lengths.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
struct Measured {
    tag: FrameTag,
    vp: Bits<16>,
    address: Address,
    transport: Bits<384>,
    /// Bytes from BTH to the payload.
    transport_len: Bits<8>,
    udp_len: Bits<16>,
}

/// The three parts of a packet's front.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
struct Parts {
    tag: FrameTag,
    link: Bits<144>,
    network: Bits<384>,
    transport: Bits<384>,
    /// Bytes of all three.
    length: Bits<8>,
}

/// Sums of IPv4 header words.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
struct Sums {
    a: Bits<20>,
    b: Bits<20>,
    c: Bits<20>,
}

block! {
    /// Takes the command of a packet or an ACK (which goes first), finds the peer's address by QP and builds all headers.
    ///
    /// - In: `packet`, `packet_valid`, `ack`, `ack_valid`; out: `packet_take`, `ack_take` in the cycle in which the
    ///   command is taken. `hold_packet` keeps packets, not ACKs, waiting.
    /// - In: `write`, `write_qpn`, `write_image` (a `qp_image`) set the address of a QP.
    /// - In: `mac`, the source address; `stamp`, the time that a data packet carries.
    /// - Out: `header`, `tag`, `valid`; in: `advance`, which takes them.
    /// - Latency: 7 cycles. Initiation interval: 1.
    pub struct TxHeader[const QPW: usize][QPW] {
        in {
            clock: Clock,
            reset: Bit,
            packet: PacketCmd,
            packet_valid: bool,
            hold_packet: bool,
            ack: AckCmd,
            ack_valid: bool,
            write: bool,
            write_qpn: Bits<QPW>,
            write_image: Bits<1024>,
            mac: Bits<48>,
            stamp: Bits<16>,
            advance: bool,
        }
        out {
            packet_take: bool,
            ack_take: bool,
            header: Header,
            tag: FrameTag,
            valid: bool,
            busy: bool,
        }
        local {
            go: bool,
            qpn: Bits<16>,
            data: PacketCmd,
            answer: AckCmd,
            answers: bool,
            peer: Address,
            opcode: Bits<8>,
            with_imm: bool,
            is_atomic: bool,
            is_atomic_ack: bool,
            pad: Bits<2>,
            padded: Bits<16>,
            transport_len: Bits<8>,
            map: Bits<128>,
            to: Address,
            traffic_class: Bits<8>,
            tci: Bits<16>,
            sgid: Bits<128>,
            dgid: Bits<128>,
            ecn: Bits<2>,
            ethertype: Bits<16>,
            link_len: Bits<8>,
            network_len: Bits<8>,
            sum: Bits<20>,
            folded: Bits<17>,
            checksum: Bits<16>,
        }
        reg {
            valid_0: bool,
            valid_1: bool,
            valid_2: bool,
            valid_3: bool,
            valid_4: bool,
            valid_5: bool,
            valid_6: bool,
        }
        pipe {
            chosen_0: Chosen,
            chosen_1: Chosen,
            measured_2: Measured,
            parts_3: Parts,
            parts_4: Parts,
            parts_5: Parts,
            sums_4: Sums,
            sum_5: Bits<20>,
            header_6: Header,
            tag_6: FrameTag,
        }
        konst {
            flag_ip6: Bits<8> = bits(1),
            flag_tag: Bits<8> = bits(2),
            last_imm: Bits<8> = bits(u64::from(bth::opcode::MP_WRITE_LAST_IMM)),
            only_imm: Bits<8> = bits(u64::from(bth::opcode::MP_WRITE_ONLY_IMM)),
            op_request: Bits<8> = bits(u64::from(bth::opcode::MP_READ_REQUEST)),
            op_ack: Bits<8> = bits(u64::from(bth::opcode::MP_ACK)),
            op_atomic_ack: Bits<8> = bits(u64::from(bth::opcode::MP_ATOMIC_ACK)),
            op_swap: Bits<8> = bits(u64::from(bth::opcode::MP_COMPARE_SWAP)),
            op_add: Bits<8> = bits(u64::from(bth::opcode::MP_FETCH_ADD)),
            flag_retx: Bits<8> = bits(u64::from(mpeth::FLAG_RETX)),
            flag_map: Bits<8> = bits(u64::from(mpaeth::FLAG_SACK_MAP)),
            response_len: Bits<8> = bits(RESPONSE_LEN as u64),
            data_len: Bits<8> = bits(DATA_LEN as u64),
            data_imm_len: Bits<8> = bits(DATA_IMM_LEN as u64),
            atomic_len: Bits<8> = bits(ATOMIC_LEN as u64),
            atomic_ack_len: Bits<8> = bits(ATOMIC_ACK_LEN as u64),
            ack_len: Bits<8> = bits(ACK_LEN as u64),
            ack_map_len: Bits<8> = bits((ACK_LEN + 16) as u64),
            // A map of 64 slots is the upper half of the widest one.
            narrow_map: bool = false,
            udp_extra: Bits<16> = bits((udp::LEN + icrc::LEN) as u64),
            ip4_len: Bits<16> = bits(ipv4::LEN as u64),
            link_short: Bits<8> = bits(ethernet::LEN as u64),
            link_tagged: Bits<8> = bits(TAGGED_LEN as u64),
            network_4: Bits<8> = bits(IP4_UDP_LEN as u64),
            network_6: Bits<8> = bits(IP6_UDP_LEN as u64),
            ethertype_4: Bits<16> = bits(u64::from(ethernet::IPV4)),
            ethertype_6: Bits<16> = bits(u64::from(ethernet::IPV6)),
            ethertype_tag: Bits<16> = bits(u64::from(ethernet::VLAN)),
            ect_data: Bits<2> = bits(u64::from(ipv4::ECT0)),
            ect_ack: Bits<2> = bits(u64::from(ipv4::NOT_ECT)),
            version_4: Bits<4> = bits(4),
            version_6: Bits<4> = bits(6),
            ihl: Bits<4> = bits(ipv4::LEN as u64 / 4),
            protocol: Bits<8> = bits(u64::from(ipv4::UDP)),
            roce_port: Bits<16> = bits(u64::from(udp::ROCE_PORT)),
            no_data: DataHeader = DataHeader::default(),
            no_atomic: AtomicHeader = AtomicHeader::default(),
            no_ip4: Ip4Header = Ip4Header::default(),
        }
        sub {
            addresses: Ram<Address, QPW> = Ram::new(RamStyle::Block, true),
            image: Unpack<Address, 1024>,
            data_header: Pack<DataHeader, 384>,
            atomic_header: Pack<AtomicHeader, 384>,
            atomic_ack_header: Pack<AtomicAckHeader, 384>,
            ack_header: Pack<AckHeader, 384>,
            link_header: Pack<LinkHeader, 144>,
            ip4_header: Pack<Ip4Header, 224>,
            ip6_header: Pack<Ip6Header, 384>,
            words: Unpack<Ip4Words, 384>,
            checksum_field: Pack<Ip4Checksum, 384>,
            join_packet: Join<384, 384, 768> = Join::new(IP4_UDP_LEN, IP6_UDP_LEN),
            join_frame: Join<144, 768, 1024> = Join::new(ethernet::LEN, TAGGED_LEN),
        }
    }
}

impl<const QPW: usize> TxHeader<QPW> {
    /// For receivers with `slots` bitmap slots, 64 or 128.
    pub fn new(slots: usize) -> Self {
        Self {
            ack_map_len: Constant::new(bits((ACK_LEN + slots / 8) as u64)),
            narrow_map: Constant::new(slots == 64),
            ..Self::default()
        }
    }
}

impl<const QPW: usize> Logic for TxHeader<QPW> {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(
            self, clock, valid_0, valid_1, valid_2, valid_3, valid_4, valid_5, valid_6, chosen_0,
            chosen_1, measured_2, parts_3, parts_4, parts_5, sums_4, sum_5, header_6, tag_6
        );
        clock!(self, clock, addresses);
        comment!("the pipeline moves as a whole");
        self.go.next = !self.valid_6.q.val() | self.advance.val();
        comment!("0: choose, ask for the address");
        self.answers.next = self.ack_valid.val();
        self.ack_take.next = self.go.val() & self.ack_valid.val();
        self.packet_take.next = self.go.val()
            & !self.ack_valid.val()
            & self.packet_valid.val()
            & !self.hold_packet.val();
        self.qpn.next = self.packet.val().qpn;
        if self.answers.val() {
            self.qpn.next = self.ack.val().qpn;
        }
        self.image.image.next = self.write_image.val();
        self.addresses.write.next = self.write.val();
        self.addresses.write_addr.next = self.write_qpn.val();
        self.addresses.write_data.next = self.image.record.val();
        self.addresses.read.next = self.go.val();
        self.addresses.read_addr.next = bit_cast::<QPW, 16>(self.qpn.val());
        if self.go.val() {
            self.valid_0.d.next =
                self.ack_valid.val() | (self.packet_valid.val() & !self.hold_packet.val());
            self.chosen_0.d.next.is_ack = self.answers.val();
            self.chosen_0.d.next.packet = self.packet.val();
            self.chosen_0.d.next.ack = self.ack.val();
        }
        comment!("1: the memory's output register");
        if self.go.val() {
            self.valid_1.d.next = self.valid_0.q.val();
            self.chosen_1.d.next = self.chosen_0.q.val();
        }
        comment!("2: transport headers, lengths");
        self.data.next = self.chosen_1.q.val().packet;
        self.answer.next = self.chosen_1.q.val().ack;
        self.peer.next = self.addresses.read_data.val();
        self.opcode.next = self.data.val().opcode;
        self.with_imm.next =
            (self.opcode.val() == self.last_imm.val()) | (self.opcode.val() == self.only_imm.val());
        self.is_atomic.next =
            (self.opcode.val() == self.op_swap.val()) | (self.opcode.val() == self.op_add.val());
        self.is_atomic_ack.next = self.opcode.val() == self.op_atomic_ack.val();
        self.pad.next = bits::<2>(0) - bit_cast::<2, 13>(self.data.val().length);
        self.padded.next =
            bit_cast::<16, 13>(self.data.val().length) + bit_cast::<16, 2>(self.pad.val());
        self.data_header.record.next = self.no_data.val();
        self.data_header.record.next.opcode = self.opcode.val();
        self.data_header.record.next.pad = self.pad.val();
        self.data_header.record.next.pkey = self.peer.val().pkey;
        self.data_header.record.next.dqpn = self.peer.val().dest_qpn;
        self.data_header.record.next.ack_req = true;
        self.data_header.record.next.psn = self.data.val().psn;
        self.data_header.record.next.flags = self.data.val().flags;
        self.data_header.record.next.wsn = self.data.val().wsn;
        self.data_header.record.next.offset = self.data.val().offset;
        self.data_header.record.next.stamp = self.stamp.val();
        // Each of the records that may follow MPETH is zero unless it does.
        self.atomic_header.record.next = self.no_atomic.val();
        self.atomic_ack_header.record.next.original = 0.into();
        if self.is_atomic.val() {
            self.atomic_header.record.next.va = self.data.val().raddr;
            self.atomic_header.record.next.rkey = self.data.val().rkey;
            self.atomic_header.record.next.swap_add = self.data.val().swap_add;
            self.atomic_header.record.next.compare = self.data.val().compare;
        } else if self.is_atomic_ack.val() {
            self.atomic_ack_header.record.next.original = self.data.val().swap_add;
        } else {
            self.data_header.record.next.va = self.data.val().raddr;
            self.data_header.record.next.rkey = self.data.val().rkey;
            self.data_header.record.next.length = self.data.val().dma_length;
            self.data_header.record.next.imm = self.data.val().imm;
        }
        self.map.next = self.answer.val().map;
        if self.narrow_map.val() {
            self.map.next = self.answer.val().map << 64;
        }
        self.ack_header.record.next.opcode = self.op_ack.val();
        self.ack_header.record.next.pkey = self.peer.val().pkey;
        self.ack_header.record.next.dqpn = self.peer.val().dest_qpn;
        self.ack_header.record.next.psn = self.answer.val().sack;
        self.ack_header.record.next.syndrome = self.answer.val().syndrome;
        self.ack_header.record.next.msn = self.answer.val().msn;
        self.ack_header.record.next.flags = self.answer.val().flags;
        self.ack_header.record.next.aack = self.answer.val().aack;
        self.ack_header.record.next.vp_echo = self.answer.val().vp;
        self.ack_header.record.next.stamp_echo = self.answer.val().stamp;
        self.ack_header.record.next.map = self.map.val();
        self.transport_len.next = self.data_len.val();
        if self.with_imm.val() {
            self.transport_len.next = self.data_imm_len.val();
        }
        // READ RESPONSEs have the codes above the request's, and no RETH.
        if self.opcode.val() > self.op_request.val() {
            self.transport_len.next = self.response_len.val();
        }
        if self.is_atomic.val() {
            self.transport_len.next = self.atomic_len.val();
        }
        if self.is_atomic_ack.val() {
            self.transport_len.next = self.atomic_ack_len.val();
        }
        if self.chosen_1.q.val().is_ack {
            self.transport_len.next = self.ack_len.val();
            if (self.answer.val().flags & self.flag_map.val()).any() {
                self.transport_len.next = self.ack_map_len.val();
            }
        }
        if self.go.val() {
            self.valid_2.d.next = self.valid_1.q.val();
            self.measured_2.d.next.tag.vlan =
                (self.peer.val().port_flags & self.flag_tag.val()).any();
            self.measured_2.d.next.tag.ip6 =
                (self.peer.val().port_flags & self.flag_ip6.val()).any();
            self.measured_2.d.next.tag.ack = self.chosen_1.q.val().is_ack;
            self.measured_2.d.next.address = self.peer.val();
            self.measured_2.d.next.transport_len = self.transport_len.val();
            if self.chosen_1.q.val().is_ack {
                self.measured_2.d.next.tag.qpn = self.answer.val().qpn;
                self.measured_2.d.next.tag.retx = false;
                self.measured_2.d.next.tag.payload = false;
                self.measured_2.d.next.tag.marker = false;
                self.measured_2.d.next.vp = self.answer.val().vp;
                self.measured_2.d.next.transport = self.ack_header.image.val();
                self.measured_2.d.next.udp_len =
                    bit_cast::<16, 8>(self.transport_len.val()) + self.udp_extra.val();
            } else {
                self.measured_2.d.next.tag.qpn = self.data.val().qpn;
                self.measured_2.d.next.tag.retx =
                    (self.data.val().flags & self.flag_retx.val()).any();
                self.measured_2.d.next.tag.payload = self.data.val().length.any();
                self.measured_2.d.next.tag.marker = self.data.val().marker;
                self.measured_2.d.next.vp = self.data.val().vp;
                self.measured_2.d.next.transport = self.data_header.image.val()
                    | self.atomic_header.image.val()
                    | self.atomic_ack_header.image.val();
                self.measured_2.d.next.udp_len = bit_cast::<16, 8>(self.transport_len.val())
                    + self.udp_extra.val()
                    + self.padded.val();
            }
        }
        comment!("3: Ethernet, IP and UDP headers, without IPv4's checksum");
        self.to.next = self.measured_2.q.val().address;
        self.traffic_class.next = self.to.val().traffic_class;
        self.tci.next = self.to.val().vlan_tci;
        self.sgid.next = self.to.val().sgid;
        self.dgid.next = self.to.val().dgid;
        self.ecn.next = self.ect_data.val();
        if self.measured_2.q.val().tag.ack {
            self.ecn.next = self.ect_ack.val();
        }
        self.ethertype.next = self.ethertype_4.val();
        self.network_len.next = self.network_4.val();
        if self.measured_2.q.val().tag.ip6 {
            self.ethertype.next = self.ethertype_6.val();
            self.network_len.next = self.network_6.val();
        }
        self.link_header.record.next.dst = self.to.val().dmac;
        self.link_header.record.next.src = self.mac.val();
        self.link_header.record.next.ethertype = self.ethertype.val();
        self.link_header.record.next.pcp = self.tci.val().get_bits::<3>(13);
        self.link_header.record.next.dei = self.tci.val().get_bit(12);
        self.link_header.record.next.vid = self.tci.val().get_bits::<12>(0);
        self.link_header.record.next.inner = self.ethertype.val();
        self.link_len.next = self.link_short.val();
        if self.measured_2.q.val().tag.vlan {
            self.link_header.record.next.ethertype = self.ethertype_tag.val();
            self.link_len.next = self.link_tagged.val();
        }
        self.ip4_header.record.next = self.no_ip4.val();
        self.ip4_header.record.next.version = self.version_4.val();
        self.ip4_header.record.next.ihl = self.ihl.val();
        self.ip4_header.record.next.dscp = self.traffic_class.val().get_bits::<6>(2);
        self.ip4_header.record.next.ecn = self.ecn.val();
        self.ip4_header.record.next.total_len =
            self.measured_2.q.val().udp_len + self.ip4_len.val();
        self.ip4_header.record.next.dont_fragment = true;
        self.ip4_header.record.next.ttl = self.to.val().hop_limit;
        self.ip4_header.record.next.protocol = self.protocol.val();
        self.ip4_header.record.next.src = self.sgid.val().get_bits::<32>(96);
        self.ip4_header.record.next.dst = self.dgid.val().get_bits::<32>(96);
        self.ip4_header.record.next.src_port = self.measured_2.q.val().vp;
        self.ip4_header.record.next.dst_port = self.roce_port.val();
        self.ip4_header.record.next.udp_len = self.measured_2.q.val().udp_len;
        self.ip6_header.record.next.version = self.version_6.val();
        self.ip6_header.record.next.dscp = self.traffic_class.val().get_bits::<6>(2);
        self.ip6_header.record.next.ecn = self.ecn.val();
        self.ip6_header.record.next.flow_label = self.to.val().flow_label;
        self.ip6_header.record.next.payload_len = self.measured_2.q.val().udp_len;
        self.ip6_header.record.next.next_header = self.protocol.val();
        self.ip6_header.record.next.hop_limit = self.to.val().hop_limit;
        self.ip6_header.record.next.src_hi = self.sgid.val().get_bits::<64>(0);
        self.ip6_header.record.next.src_lo = self.sgid.val().get_bits::<64>(64);
        self.ip6_header.record.next.dst_hi = self.dgid.val().get_bits::<64>(0);
        self.ip6_header.record.next.dst_lo = self.dgid.val().get_bits::<64>(64);
        self.ip6_header.record.next.src_port = self.measured_2.q.val().vp;
        self.ip6_header.record.next.dst_port = self.roce_port.val();
        self.ip6_header.record.next.udp_len = self.measured_2.q.val().udp_len;
        if self.go.val() {
            self.valid_3.d.next = self.valid_2.q.val();
            self.parts_3.d.next.tag = self.measured_2.q.val().tag;
            self.parts_3.d.next.link = self.link_header.image.val();
            self.parts_3.d.next.network = bit_cast::<384, 224>(self.ip4_header.image.val());
            if self.measured_2.q.val().tag.ip6 {
                self.parts_3.d.next.network = self.ip6_header.image.val();
            }
            self.parts_3.d.next.transport = self.measured_2.q.val().transport;
            self.parts_3.d.next.length = self.link_len.val()
                + self.network_len.val()
                + self.measured_2.q.val().transport_len;
        }
        comment!("4 and 5: sum of the IPv4 header's words");
        self.words.image.next = self.parts_3.q.val().network;
        if self.go.val() {
            self.valid_4.d.next = self.valid_3.q.val();
            self.parts_4.d.next = self.parts_3.q.val();
            self.sums_4.d.next.a = bit_cast::<20, 16>(self.words.record.val().w0)
                + bit_cast::<20, 16>(self.words.record.val().w1)
                + bit_cast::<20, 16>(self.words.record.val().w2);
            self.sums_4.d.next.b = bit_cast::<20, 16>(self.words.record.val().w3)
                + bit_cast::<20, 16>(self.words.record.val().w4)
                + bit_cast::<20, 16>(self.words.record.val().w6);
            self.sums_4.d.next.c = bit_cast::<20, 16>(self.words.record.val().w7)
                + bit_cast::<20, 16>(self.words.record.val().w8)
                + bit_cast::<20, 16>(self.words.record.val().w9);
            self.valid_5.d.next = self.valid_4.q.val();
            self.parts_5.d.next = self.parts_4.q.val();
            self.sum_5.d.next =
                self.sums_4.q.val().a + self.sums_4.q.val().b + self.sums_4.q.val().c;
        }
        comment!("6: fold the sum, join the parts");
        self.sum.next = self.sum_5.q.val();
        self.folded.next = bit_cast::<17, 16>(self.sum.val().get_bits::<16>(0))
            + bit_cast::<17, 4>(self.sum.val().get_bits::<4>(16));
        self.checksum.next = !(self.folded.val().get_bits::<16>(0)
            + bit_cast::<16, 1>(self.folded.val().get_bits::<1>(16)));
        self.checksum_field.record.next.checksum = self.checksum.val();
        self.join_packet.front.next = self.parts_5.q.val().network;
        if !self.parts_5.q.val().tag.ip6 {
            self.join_packet.front.next =
                self.parts_5.q.val().network | self.checksum_field.image.val();
        }
        self.join_packet.back.next = self.parts_5.q.val().transport;
        self.join_packet.far.next = self.parts_5.q.val().tag.ip6;
        self.join_frame.front.next = self.parts_5.q.val().link;
        self.join_frame.back.next = self.join_packet.o.val();
        self.join_frame.far.next = self.parts_5.q.val().tag.vlan;
        if self.go.val() {
            self.valid_6.d.next = self.valid_5.q.val();
            self.tag_6.d.next = self.parts_5.q.val().tag;
            self.header_6.d.next.bytes = self.join_frame.o.val();
            self.header_6.d.next.length = self.parts_5.q.val().length;
            self.header_6.d.next.payload = self.parts_5.q.val().tag.payload;
        }
        comment!("output");
        self.header.next = self.header_6.q.val();
        self.tag.next = self.tag_6.q.val();
        self.valid.next = self.valid_6.q.val();
        self.busy.next = self.valid_0.q.val()
            | self.valid_1.q.val()
            | self.valid_2.q.val()
            | self.valid_3.q.val()
            | self.valid_4.q.val()
            | self.valid_5.q.val()
            | self.valid_6.q.val();
    }
}
