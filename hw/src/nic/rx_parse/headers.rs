//! Takes the headers of an arrived frame apart and checks them.

use super::intake::Arrived;
use crate::leaf::slices::Unpack;
use crate::nic::headers::*;
use crate::nic::types::RxMeta;
use crate::prelude::*;
use mprdma_spec::params::ATOMIC_BYTES;
use mprdma_spec::wire::frame::MAX_PAYLOAD;
use mprdma_spec::wire::{bth, ethernet, icrc, ipv4, ipv6, mpaeth, udp, vlan};

/// What the headers of a frame say.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct Parsed {
    pub meta: RxMeta,
    /// Bad header or length.
    pub malformed: bool,
    /// For somebody else: another MAC address or not RoCEv2.
    pub not_ours: bool,
}

/// The checks of a frame in the order in which they count: `bad_` and `short_` make it malformed, `other_` not ours.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
struct Checks {
    bad_input: bool,
    other_mac: bool,
    short_tag: bool,
    other_type: bool,
    short_ip: bool,
    bad_ip: bool,
    other_protocol: bool,
    bad_end: bool,
    other_port: bool,
    bad_udp: bool,
    bad_bth: bool,
    bad_body: bool,
}

/// The IP packet without what is before it.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
struct Packet {
    bytes: Bits<768>,
    ip6: bool,
    /// Bytes of the frame before BTH.
    base: Bits<7>,
    /// UDP header and what follows it, by the IP length.
    datagram: Bits<14>,
    checks: Checks,
}

/// BTH and what follows it, and the values that come from outside of it.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
struct Datagram {
    transport: Bits<384>,
    ip6: bool,
    base: Bits<7>,
    /// Bytes between UDP header and ICRC, two's complement.
    inside: Bits<15>,
    ecn: Bits<2>,
    vp: Bits<16>,
    sum_a: Bits<20>,
    sum_b: Bits<20>,
    sum_c: Bits<20>,
    checks: Checks,
}

/// Decoded transport headers, and what remains behind them.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
struct Decoded {
    data: DataHeader,
    ack: AckHeader,
    /// As in `RxMeta`.
    swap_add: Bits<64>,
    compare: Bits<64>,
    is_data: bool,
    /// An ATOMIC request.
    is_atomic: bool,
    is_ack: bool,
    with_map: bool,
    /// Bytes of the frame before the payload.
    header: Bits<7>,
    /// Bytes that payload and pad have, two's complement.
    rest: Bits<15>,
    sum: Bits<20>,
    ip6: bool,
    ce: bool,
    vp: Bits<16>,
    checks: Checks,
}

block! {
    /// - In: `arrived`; `mac`, our address.
    /// - Out: `parsed`, 5 cycles later. Initiation interval: 1.
    pub struct ParseHeaders {
        in {
            clock: Clock,
            reset: Bit,
            arrived: Arrived,
            mac: Bits<48>,
        }
        out {
            parsed: Parsed,
        }
        local {
            link_len: Bits<14>,
            min_len: Bits<14>,
            opcode: Bits<8>,
            is_data: bool,
            is_response: bool,
            is_atomic: bool,
            is_atomic_ack: bool,
            is_ack: bool,
            with_imm: bool,
            with_map: bool,
            transport_len: Bits<7>,
            sum: Bits<20>,
            folded: Bits<17>,
            pad: Bits<2>,
            payload: Bits<15>,
            negative: bool,
            map: Bits<128>,
            checks: Checks,
            trailing: bool,
        }
        pipe {
            packet_4: Packet,
            datagram_5: Datagram,
            decoded_6: Decoded,
            decoded_7: Decoded,
            good_sum_7: bool,
            parsed_8: Parsed,
        }
        konst {
            link_short: Bits<14> = bits(ethernet::LEN as u64),
            link_tagged: Bits<14> = bits(TAGGED_LEN as u64),
            ip4_len: Bits<14> = bits(ipv4::LEN as u64),
            ip6_len: Bits<14> = bits(ipv6::LEN as u64),
            udp_len: Bits<14> = bits(udp::LEN as u64),
            // A frame as short as this may have bytes behind its packet, which the MAC put there.
            most_padded: Bits<14> = bits((ethernet::MIN_FRAME + vlan::LEN) as u64),
            version_4: Bits<4> = bits(4),
            version_6: Bits<4> = bits(6),
            ihl: Bits<4> = bits(ipv4::LEN as u64 / 4),
            protocol: Bits<8> = bits(u64::from(ipv4::UDP)),
            roce_port: Bits<16> = bits(u64::from(udp::ROCE_PORT)),
            least_datagram: Bits<14> = bits((udp::LEN + bth::LEN + icrc::LEN) as u64),
            op_first: Bits<8> = bits(u64::from(bth::opcode::MP_WRITE_FIRST)),
            op_request: Bits<8> = bits(u64::from(bth::opcode::MP_READ_REQUEST)),
            op_atomic_ack: Bits<8> = bits(u64::from(bth::opcode::MP_ATOMIC_ACK)),
            op_swap: Bits<8> = bits(u64::from(bth::opcode::MP_COMPARE_SWAP)),
            op_last: Bits<8> = bits(u64::from(bth::opcode::MP_FETCH_ADD)),
            op_last_imm: Bits<8> = bits(u64::from(bth::opcode::MP_WRITE_LAST_IMM)),
            op_only_imm: Bits<8> = bits(u64::from(bth::opcode::MP_WRITE_ONLY_IMM)),
            op_ack: Bits<8> = bits(u64::from(bth::opcode::MP_ACK)),
            flag_map: Bits<8> = bits(u64::from(mpaeth::FLAG_SACK_MAP)),
            bth_len: Bits<7> = bits(bth::LEN as u64),
            response_len: Bits<7> = bits(RESPONSE_LEN as u64),
            data_len: Bits<7> = bits(DATA_LEN as u64),
            data_imm_len: Bits<7> = bits(DATA_IMM_LEN as u64),
            atomic_len: Bits<7> = bits(ATOMIC_LEN as u64),
            atomic_ack_len: Bits<7> = bits(ATOMIC_ACK_LEN as u64),
            ack_len: Bits<7> = bits(ACK_LEN as u64),
            ack_map_len: Bits<7> = bits((ACK_LEN + 16) as u64),
            narrow_map: bool = false,
            // UDP header and ICRC.
            around: Bits<15> = bits((udp::LEN + icrc::LEN) as u64),
            most_payload: Bits<15> = bits(MAX_PAYLOAD as u64),
            ce: Bits<2> = bits(u64::from(ipv4::CE)),
            atomic_bytes: Bits<32> = bits(ATOMIC_BYTES as u64),
        }
        sub {
            link: Unpack<LinkHeader, 1024>,
            behind_link: Behind<1024, 768> = Behind::new(ethernet::LEN, TAGGED_LEN),
            ip4: Unpack<Ip4Header, 768>,
            ip6: Unpack<Ip6Header, 768>,
            words: Unpack<Ip4Words, 768>,
            behind_network: Behind<768, 384> = Behind::new(IP4_UDP_LEN, IP6_UDP_LEN),
            data: Unpack<DataHeader, 384>,
            atomic: Unpack<AtomicHeader, 384>,
            atomic_ack: Unpack<AtomicAckHeader, 384>,
            ack: Unpack<AckHeader, 384>,
        }
    }
}

impl ParseHeaders {
    /// For a bitmap of `slots` slots, 64 or 128.
    pub fn new(slots: usize) -> Self {
        Self {
            ack_map_len: Constant::new(bits((ACK_LEN + slots / 8) as u64)),
            narrow_map: Constant::new(slots == 64),
            ..Self::default()
        }
    }
}

impl Logic for ParseHeaders {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, packet_4, datagram_5, decoded_6, decoded_7, good_sum_7, parsed_8);
        comment!("4: Ethernet, lengths");
        self.link.image.next = self.arrived.val().head;
        self.behind_link.i.next = self.arrived.val().head;
        self.behind_link.far.next = self.arrived.val().vlan;
        self.link_len.next = self.link_short.val();
        if self.arrived.val().vlan {
            self.link_len.next = self.link_tagged.val();
        }
        self.min_len.next = self.link_len.val() + self.ip4_len.val();
        if self.arrived.val().ip6 {
            self.min_len.next = self.link_len.val() + self.ip6_len.val();
        }
        self.trailing.next = (self.arrived.val().end < self.arrived.val().length)
            & (self.arrived.val().length > self.most_padded.val());
        self.packet_4.d.next.bytes = self.behind_link.o.val();
        self.packet_4.d.next.ip6 = self.arrived.val().ip6;
        self.packet_4.d.next.base = bit_cast::<7, 14>(self.min_len.val() + self.udp_len.val());
        self.packet_4.d.next.datagram = self.arrived.val().end - self.min_len.val();
        self.packet_4.d.next.checks.bad_input =
            self.arrived.val().faulty | (self.arrived.val().length < self.link_short.val());
        self.packet_4.d.next.checks.other_mac = self.link.record.val().dst != self.mac.val();
        self.packet_4.d.next.checks.short_tag = self.arrived.val().length < self.link_len.val();
        self.packet_4.d.next.checks.other_type = !self.arrived.val().ip4 & !self.arrived.val().ip6;
        self.packet_4.d.next.checks.short_ip = self.arrived.val().length < self.min_len.val();
        self.packet_4.d.next.checks.bad_ip = false;
        self.packet_4.d.next.checks.other_protocol = false;
        self.packet_4.d.next.checks.bad_end = (self.arrived.val().end > self.arrived.val().length)
            | self.trailing.val()
            | (self.arrived.val().end < (self.min_len.val() + self.udp_len.val()));
        self.packet_4.d.next.checks.other_port = false;
        self.packet_4.d.next.checks.bad_udp = false;
        self.packet_4.d.next.checks.bad_bth = false;
        self.packet_4.d.next.checks.bad_body = false;
        comment!("5: IP and UDP");
        self.ip4.image.next = self.packet_4.q.val().bytes;
        self.ip6.image.next = self.packet_4.q.val().bytes;
        self.words.image.next = self.packet_4.q.val().bytes;
        self.behind_network.i.next = self.packet_4.q.val().bytes;
        self.behind_network.far.next = self.packet_4.q.val().ip6;
        self.datagram_5.d.next.transport = self.behind_network.o.val();
        self.datagram_5.d.next.ip6 = self.packet_4.q.val().ip6;
        self.datagram_5.d.next.base = self.packet_4.q.val().base;
        self.datagram_5.d.next.inside =
            bit_cast::<15, 14>(self.packet_4.q.val().datagram) - self.around.val();
        self.datagram_5.d.next.checks = self.packet_4.q.val().checks;
        if self.packet_4.q.val().ip6 {
            self.datagram_5.d.next.ecn = self.ip6.record.val().ecn;
            self.datagram_5.d.next.vp = self.ip6.record.val().src_port;
            self.datagram_5.d.next.checks.bad_ip =
                self.ip6.record.val().version != self.version_6.val();
            self.datagram_5.d.next.checks.other_protocol =
                self.ip6.record.val().next_header != self.protocol.val();
            self.datagram_5.d.next.checks.other_port =
                self.ip6.record.val().dst_port != self.roce_port.val();
            self.datagram_5.d.next.checks.bad_udp =
                self.ip6.record.val().udp_len != bit_cast::<16, 14>(self.packet_4.q.val().datagram);
        } else {
            self.datagram_5.d.next.ecn = self.ip4.record.val().ecn;
            self.datagram_5.d.next.vp = self.ip4.record.val().src_port;
            self.datagram_5.d.next.checks.bad_ip = (self.ip4.record.val().version
                != self.version_4.val())
                | (self.ip4.record.val().ihl != self.ihl.val())
                | self.ip4.record.val().more_fragments
                | self.ip4.record.val().fragment.any();
            self.datagram_5.d.next.checks.other_protocol =
                self.ip4.record.val().protocol != self.protocol.val();
            self.datagram_5.d.next.checks.other_port =
                self.ip4.record.val().dst_port != self.roce_port.val();
            self.datagram_5.d.next.checks.bad_udp =
                self.ip4.record.val().udp_len != bit_cast::<16, 14>(self.packet_4.q.val().datagram);
        }
        self.datagram_5.d.next.checks.bad_body =
            self.packet_4.q.val().datagram < self.least_datagram.val();
        self.datagram_5.d.next.sum_a = bit_cast::<20, 16>(self.words.record.val().w0)
            + bit_cast::<20, 16>(self.words.record.val().w1)
            + bit_cast::<20, 16>(self.words.record.val().w2);
        self.datagram_5.d.next.sum_b = bit_cast::<20, 16>(self.words.record.val().w3)
            + bit_cast::<20, 16>(self.words.record.val().w4)
            + bit_cast::<20, 16>(self.words.record.val().w5);
        self.datagram_5.d.next.sum_c = bit_cast::<20, 16>(self.words.record.val().w6)
            + bit_cast::<20, 16>(self.words.record.val().w7)
            + bit_cast::<20, 16>(self.words.record.val().w8)
            + bit_cast::<20, 16>(self.words.record.val().w9);
        comment!("6: opcode, header length");
        self.data.image.next = self.datagram_5.q.val().transport;
        self.atomic.image.next = self.datagram_5.q.val().transport;
        self.atomic_ack.image.next = self.datagram_5.q.val().transport;
        self.ack.image.next = self.datagram_5.q.val().transport;
        self.opcode.next = self.data.record.val().opcode;
        self.is_ack.next = self.opcode.val() == self.op_ack.val();
        self.is_data.next = (self.opcode.val() >= self.op_first.val())
            & (self.opcode.val() <= self.op_last.val())
            & !self.is_ack.val();
        self.is_response.next = self.is_data.val() & (self.opcode.val() > self.op_request.val());
        self.is_atomic_ack.next = self.opcode.val() == self.op_atomic_ack.val();
        self.is_atomic.next =
            (self.opcode.val() == self.op_swap.val()) | (self.opcode.val() == self.op_last.val());
        self.with_imm.next = (self.opcode.val() == self.op_last_imm.val())
            | (self.opcode.val() == self.op_only_imm.val());
        self.with_map.next = (self.ack.record.val().flags & self.flag_map.val()).any();
        self.transport_len.next = self.bth_len.val();
        if self.is_data.val() {
            self.transport_len.next = self.data_len.val();
            if self.with_imm.val() {
                self.transport_len.next = self.data_imm_len.val();
            }
            if self.is_response.val() {
                self.transport_len.next = self.response_len.val();
            }
            if self.is_atomic.val() {
                self.transport_len.next = self.atomic_len.val();
            }
            if self.is_atomic_ack.val() {
                self.transport_len.next = self.atomic_ack_len.val();
            }
        }
        if self.is_ack.val() {
            self.transport_len.next = self.ack_len.val();
            if self.with_map.val() {
                self.transport_len.next = self.ack_map_len.val();
            }
        }
        self.decoded_6.d.next.data = self.data.record.val();
        self.decoded_6.d.next.ack = self.ack.record.val();
        self.decoded_6.d.next.swap_add = self.atomic.record.val().swap_add;
        if self.is_atomic_ack.val() {
            self.decoded_6.d.next.swap_add = self.atomic_ack.record.val().original;
        }
        self.decoded_6.d.next.compare = self.atomic.record.val().compare;
        self.decoded_6.d.next.is_data = self.is_data.val();
        self.decoded_6.d.next.is_atomic = self.is_atomic.val();
        self.decoded_6.d.next.is_ack = self.is_ack.val();
        self.decoded_6.d.next.with_map = self.with_map.val();
        self.decoded_6.d.next.header = self.datagram_5.q.val().base + self.transport_len.val();
        self.decoded_6.d.next.rest =
            self.datagram_5.q.val().inside - bit_cast::<15, 7>(self.transport_len.val());
        self.decoded_6.d.next.sum = self.datagram_5.q.val().sum_a
            + self.datagram_5.q.val().sum_b
            + self.datagram_5.q.val().sum_c;
        self.decoded_6.d.next.ip6 = self.datagram_5.q.val().ip6;
        self.decoded_6.d.next.ce = self.datagram_5.q.val().ecn == self.ce.val();
        self.decoded_6.d.next.vp = self.datagram_5.q.val().vp;
        self.decoded_6.d.next.checks = self.datagram_5.q.val().checks;
        self.decoded_6.d.next.checks.bad_bth = self.data.record.val().version.any();
        comment!("7: IPv4 checksum, payload length");
        self.sum.next = self.decoded_6.q.val().sum;
        self.folded.next = bit_cast::<17, 16>(self.sum.val().get_bits::<16>(0))
            + bit_cast::<17, 4>(self.sum.val().get_bits::<4>(16));
        // The sum is 65535 once the last carry is added.
        self.good_sum_7.d.next = self.decoded_6.q.val().ip6
            | (self.folded.val().get_bits::<16>(0)
                + bit_cast::<16, 1>(self.folded.val().get_bits::<1>(16)))
            .all();
        self.pad.next = self.decoded_6.q.val().data.pad;
        self.negative.next = self.decoded_6.q.val().rest.get_bit(14);
        self.payload.next = self.decoded_6.q.val().rest - bit_cast::<15, 2>(self.pad.val());
        self.decoded_7.d.next = self.decoded_6.q.val();
        self.decoded_7.d.next.rest = self.payload.val();
        self.decoded_7.d.next.checks.bad_body = self.decoded_6.q.val().checks.bad_body
            | self.negative.val()
            | self.payload.val().get_bit(14)
            | self.decoded_6.q.val().rest.get_bits::<2>(0).any()
            | (self.decoded_6.q.val().rest > self.most_payload.val())
            | (self.decoded_6.q.val().is_ack
                & (self.decoded_6.q.val().rest.any() | self.pad.val().any()));
        comment!("8: verdict");
        self.checks.next = self.decoded_7.q.val().checks;
        self.parsed_8.d.next.malformed = false;
        self.parsed_8.d.next.not_ours = false;
        if self.checks.val().bad_input {
            self.parsed_8.d.next.malformed = true;
        } else if self.checks.val().other_mac {
            self.parsed_8.d.next.not_ours = true;
        } else if self.checks.val().short_tag {
            self.parsed_8.d.next.malformed = true;
        } else if self.checks.val().other_type {
            self.parsed_8.d.next.not_ours = true;
        } else if self.checks.val().short_ip | self.checks.val().bad_ip | !self.good_sum_7.q.val() {
            self.parsed_8.d.next.malformed = true;
        } else if self.checks.val().other_protocol {
            self.parsed_8.d.next.not_ours = true;
        } else if self.checks.val().bad_end {
            self.parsed_8.d.next.malformed = true;
        } else if self.checks.val().other_port {
            self.parsed_8.d.next.not_ours = true;
        } else {
            self.parsed_8.d.next.malformed =
                self.checks.val().bad_udp | self.checks.val().bad_bth | self.checks.val().bad_body;
        }
        self.map.next = self.decoded_7.q.val().ack.map;
        if self.narrow_map.val() {
            self.map.next = self.decoded_7.q.val().ack.map >> 64;
        }
        if !self.decoded_7.q.val().with_map | !self.decoded_7.q.val().is_ack {
            self.map.next = 0.into();
        }
        self.parsed_8.d.next.meta.opcode = self.decoded_7.q.val().data.opcode;
        self.parsed_8.d.next.meta.qpn = self.decoded_7.q.val().data.dqpn;
        self.parsed_8.d.next.meta.psn = self.decoded_7.q.val().data.psn;
        self.parsed_8.d.next.meta.pkey = self.decoded_7.q.val().data.pkey;
        self.parsed_8.d.next.meta.ce = self.decoded_7.q.val().ce;
        self.parsed_8.d.next.meta.vp = self.decoded_7.q.val().vp;
        self.parsed_8.d.next.meta.flags = self.decoded_7.q.val().data.flags;
        self.parsed_8.d.next.meta.stamp = self.decoded_7.q.val().data.stamp;
        if self.decoded_7.q.val().is_ack {
            self.parsed_8.d.next.meta.flags = self.decoded_7.q.val().ack.flags;
            self.parsed_8.d.next.meta.stamp = self.decoded_7.q.val().ack.stamp_echo;
        }
        self.parsed_8.d.next.meta.wsn = self.decoded_7.q.val().data.wsn;
        self.parsed_8.d.next.meta.offset = self.decoded_7.q.val().data.offset;
        self.parsed_8.d.next.meta.raddr = self.decoded_7.q.val().data.va;
        self.parsed_8.d.next.meta.rkey = self.decoded_7.q.val().data.rkey;
        self.parsed_8.d.next.meta.dma_length = self.decoded_7.q.val().data.length;
        if self.decoded_7.q.val().is_atomic {
            self.parsed_8.d.next.meta.dma_length = self.atomic_bytes.val();
        }
        self.parsed_8.d.next.meta.imm = self.decoded_7.q.val().data.imm;
        self.parsed_8.d.next.meta.swap_add = self.decoded_7.q.val().swap_add;
        self.parsed_8.d.next.meta.compare = self.decoded_7.q.val().compare;
        self.parsed_8.d.next.meta.syndrome = self.decoded_7.q.val().ack.syndrome;
        self.parsed_8.d.next.meta.aack = self.decoded_7.q.val().ack.aack;
        self.parsed_8.d.next.meta.vp_echo = self.decoded_7.q.val().ack.vp_echo;
        self.parsed_8.d.next.meta.map = self.map.val();
        self.parsed_8.d.next.meta.length = bit_cast::<13, 15>(self.decoded_7.q.val().rest);
        self.parsed_8.d.next.meta.header = self.decoded_7.q.val().header;
        self.parsed_8.d.next.meta.stored =
            self.decoded_7.q.val().is_data & self.decoded_7.q.val().rest.any();
        comment!("output");
        self.parsed.next = self.parsed_8.q.val();
    }
}
