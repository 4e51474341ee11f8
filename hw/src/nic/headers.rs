//! Packet headers in the datapath: records over the field tables of `spec::wire`, and the generated leaves that move
//! headers of different lengths to and from their place in a frame.
//!
//! A part of a frame is a vector whose byte 0 is in bits 7:0, as in a beat.

use crate::leaf::expr::{assign, assign_slice, binary, literal, signal, slice};
use crate::prelude::*;
use mprdma_spec::wire::{
    aeth, atomicacketh, atomiceth, bth, ethernet, icrc, immdt, ipv4, ipv6, mpaeth, mpeth, reth,
    udp, vlan, Field,
};
use rust_hdl_core::ast::{
    VerilogBlockOrConditional, VerilogConditional, VerilogExpression, VerilogOp, VerilogStatement,
};

/// Where a field lies in a part of a frame.
#[derive(Clone, Copy, Debug)]
pub struct Spot {
    base: usize,
    field: Field,
    number: bool,
}

impl Spot {
    /// A number (big-endian on the wire) in the header that starts at byte `base`.
    pub const fn number(base: usize, field: Field) -> Self {
        Self {
            base,
            field,
            number: true,
        }
    }

    /// Bytes whose first one on the wire is in the lowest bits: addresses and immediate data.
    pub const fn bytes(base: usize, field: Field) -> Self {
        Self {
            base,
            field,
            number: false,
        }
    }

    /// Width in bits.
    pub const fn bits(&self) -> usize {
        self.field.bits
    }

    /// Where bit `i` of the value lies in the part.
    pub const fn bit(&self, i: usize) -> usize {
        8 * self.base
            + if self.number {
                self.field.beat_bit(i)
            } else {
                8 * self.field.byte + i
            }
    }
}

/// Declares a LogicStruct over header fields and implements [`Record`](crate::leaf::slices::Record) for it, so that
/// `Unpack` and `Pack` move it out of and into a part of a frame.
#[macro_export]
macro_rules! header_record {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $($field:ident : $ty:ty = $spot:expr),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
        $vis struct $name {
            $(pub $field: $ty),+
        }
        const _: () = {
            $(assert!(
                <$ty as Synth>::BITS == $spot.bits(),
                concat!("field ", stringify!($field), " has another width on the wire")
            );)+
        };
        impl $crate::leaf::slices::Record for $name {
            fn slices() -> Vec<$crate::leaf::slices::Slice> {
                use $crate::leaf::slices::Slice;
                let mut slices: Vec<Slice> = vec![];
                let mut record_lsb = 0;
                $({
                    for i in 0..<$ty as Synth>::BITS {
                        let image_lsb = $spot.bit(i);
                        match slices.last_mut() {
                            Some(run) if i > 0 && run.image_lsb + run.bits == image_lsb => run.bits += 1,
                            _ => slices.push(Slice { record_lsb: record_lsb + i, image_lsb, bits: 1 }),
                        }
                    }
                    record_lsb += <$ty as Synth>::BITS;
                })+
                assert_eq!(record_lsb, <$name as Synth>::BITS);
                slices
            }
            fn from_image(bit: &dyn Fn(usize) -> bool) -> Self {
                use $crate::leaf::slices::SliceField;
                Self { $($field: <$ty>::gather(&|i| bit($spot.bit(i)))),+ }
            }
            fn to_image(&self, set: &mut dyn FnMut(usize, bool)) {
                use $crate::leaf::slices::SliceField;
                $(for i in 0..<$ty as Synth>::BITS {
                    set($spot.bit(i), self.$field.pick(i));
                })+
            }
        }
    };
}

/// Bytes of Ethernet header and tag.
pub const TAGGED_LEN: usize = ethernet::LEN + vlan::LEN;
/// Bytes of an IPv4 and a UDP header.
pub const IP4_UDP_LEN: usize = ipv4::LEN + udp::LEN;
/// Bytes of an IPv6 and a UDP header.
pub const IP6_UDP_LEN: usize = ipv6::LEN + udp::LEN;
const RETH_AT: usize = bth::LEN + mpeth::LEN;
const IMM_AT: usize = RETH_AT + reth::LEN;
const MPAETH_AT: usize = bth::LEN + aeth::LEN;
/// Bytes of an ACK's headers from BTH to MPAETH.
pub const ACK_LEN: usize = MPAETH_AT + mpaeth::LEN;
/// Bytes of a WRITE's or a READ REQUEST's headers from BTH to RETH.
pub const DATA_LEN: usize = IMM_AT;
/// Bytes of the headers from BTH to immediate data.
pub const DATA_IMM_LEN: usize = IMM_AT + immdt::LEN;
/// Bytes of a READ RESPONSE's headers, BTH and MPETH.
pub const RESPONSE_LEN: usize = RETH_AT;
/// Bytes of an ATOMIC request's headers from BTH to AtomicETH.
pub const ATOMIC_LEN: usize = RETH_AT + atomiceth::LEN;
/// Bytes of an ATOMIC ACK's headers from BTH to AtomicAckETH.
pub const ATOMIC_ACK_LEN: usize = RETH_AT + atomicacketh::LEN;
/// Most bytes that BTH and what follows it take before the payload: those of an ATOMIC request.
pub const TRANSPORT_LEN: usize = ATOMIC_LEN;
const _: () = assert!(DATA_IMM_LEN <= TRANSPORT_LEN && ACK_LEN + MAP.bits / 8 <= TRANSPORT_LEN);

/// Bits of a frame's first 128 bytes, which hold every header.
pub const FRAME_BITS: usize = 1024;
/// Bits of the longest Ethernet header.
pub const LINK_BITS: usize = 8 * TAGGED_LEN;
/// Bits of the longest IP and UDP headers.
pub const NETWORK_BITS: usize = 8 * IP6_UDP_LEN;
/// Bits of the longest transport headers.
pub const TRANSPORT_BITS: usize = 8 * TRANSPORT_LEN;
/// Bits of the longest IP, UDP and transport headers.
pub const PACKET_BITS: usize = NETWORK_BITS + TRANSPORT_BITS;

/// A 16-bit word of a header that is summed up for a checksum.
const fn word(i: usize) -> Field {
    Field {
        name: "word",
        byte: 2 * i,
        shift: 0,
        bits: 16,
    }
}

/// The SACK map in its widest form; a narrower map is the upper part of it.
const MAP: Field = Field {
    name: "map",
    byte: 0,
    shift: 0,
    bits: 128,
};

header_record! {
    /// Ethernet header without and with a tag: the tag's own EtherType is where the untagged frame has its IP header.
    pub struct LinkHeader {
        dst: Bits<48> = Spot::bytes(0, ethernet::DST),
        src: Bits<48> = Spot::bytes(0, ethernet::SRC),
        ethertype: Bits<16> = Spot::number(0, ethernet::ETHERTYPE),
        pcp: Bits<3> = Spot::number(ethernet::LEN, vlan::PCP),
        dei: bool = Spot::number(ethernet::LEN, vlan::DEI),
        vid: Bits<12> = Spot::number(ethernet::LEN, vlan::VID),
        inner: Bits<16> = Spot::number(ethernet::LEN, vlan::ETHERTYPE),
    }
}

header_record! {
    /// IPv4 and UDP headers.
    pub struct Ip4Header {
        version: Bits<4> = Spot::number(0, ipv4::VERSION),
        ihl: Bits<4> = Spot::number(0, ipv4::IHL),
        dscp: Bits<6> = Spot::number(0, ipv4::DSCP),
        ecn: Bits<2> = Spot::number(0, ipv4::ECN),
        total_len: Bits<16> = Spot::number(0, ipv4::TOTAL_LEN),
        dont_fragment: bool = Spot::number(0, ipv4::DONT_FRAGMENT),
        more_fragments: bool = Spot::number(0, ipv4::MORE_FRAGMENTS),
        fragment: Bits<13> = Spot::number(0, ipv4::FRAGMENT),
        ttl: Bits<8> = Spot::number(0, ipv4::TTL),
        protocol: Bits<8> = Spot::number(0, ipv4::PROTOCOL),
        src: Bits<32> = Spot::bytes(0, ipv4::SRC),
        dst: Bits<32> = Spot::bytes(0, ipv4::DST),
        src_port: Bits<16> = Spot::number(ipv4::LEN, udp::SRC_PORT),
        dst_port: Bits<16> = Spot::number(ipv4::LEN, udp::DST_PORT),
        udp_len: Bits<16> = Spot::number(ipv4::LEN, udp::LENGTH),
    }
}

header_record! {
    /// IPv6 and UDP headers.
    pub struct Ip6Header {
        version: Bits<4> = Spot::number(0, ipv6::VERSION),
        dscp: Bits<6> = Spot::number(0, ipv6::DSCP),
        ecn: Bits<2> = Spot::number(0, ipv6::ECN),
        flow_label: Bits<20> = Spot::number(0, ipv6::FLOW_LABEL),
        payload_len: Bits<16> = Spot::number(0, ipv6::PAYLOAD_LEN),
        next_header: Bits<8> = Spot::number(0, ipv6::NEXT_HEADER),
        hop_limit: Bits<8> = Spot::number(0, ipv6::HOP_LIMIT),
        src_hi: Bits<64> = Spot::bytes(0, ipv6::SRC_HI),
        src_lo: Bits<64> = Spot::bytes(0, ipv6::SRC_LO),
        dst_hi: Bits<64> = Spot::bytes(0, ipv6::DST_HI),
        dst_lo: Bits<64> = Spot::bytes(0, ipv6::DST_LO),
        src_port: Bits<16> = Spot::number(ipv6::LEN, udp::SRC_PORT),
        dst_port: Bits<16> = Spot::number(ipv6::LEN, udp::DST_PORT),
        udp_len: Bits<16> = Spot::number(ipv6::LEN, udp::LENGTH),
    }
}

header_record! {
    /// The words of an IPv4 header.
    pub struct Ip4Words {
        w0: Bits<16> = Spot::number(0, word(0)),
        w1: Bits<16> = Spot::number(0, word(1)),
        w2: Bits<16> = Spot::number(0, word(2)),
        w3: Bits<16> = Spot::number(0, word(3)),
        w4: Bits<16> = Spot::number(0, word(4)),
        w5: Bits<16> = Spot::number(0, word(5)),
        w6: Bits<16> = Spot::number(0, word(6)),
        w7: Bits<16> = Spot::number(0, word(7)),
        w8: Bits<16> = Spot::number(0, word(8)),
        w9: Bits<16> = Spot::number(0, word(9)),
    }
}

header_record! {
    /// The checksum of an IPv4 header.
    pub struct Ip4Checksum {
        checksum: Bits<16> = Spot::number(0, ipv4::CHECKSUM),
    }
}

header_record! {
    /// BTH, MPETH, RETH and immediate data of a data packet.
    pub struct DataHeader {
        opcode: Bits<8> = Spot::number(0, bth::OPCODE),
        pad: Bits<2> = Spot::number(0, bth::PAD),
        version: Bits<4> = Spot::number(0, bth::VERSION),
        pkey: Bits<16> = Spot::number(0, bth::PKEY),
        dqpn: Bits<24> = Spot::number(0, bth::DQPN),
        ack_req: bool = Spot::number(0, bth::ACK_REQ),
        psn: Bits<24> = Spot::number(0, bth::PSN),
        flags: Bits<8> = Spot::number(bth::LEN, mpeth::FLAGS),
        wsn: Bits<24> = Spot::number(bth::LEN, mpeth::WSN),
        offset: Bits<16> = Spot::number(bth::LEN, mpeth::OFFSET),
        stamp: Bits<16> = Spot::number(bth::LEN, mpeth::STAMP),
        va: Bits<64> = Spot::number(RETH_AT, reth::VA),
        rkey: Bits<32> = Spot::number(RETH_AT, reth::RKEY),
        length: Bits<32> = Spot::number(RETH_AT, reth::LENGTH),
        imm: Bits<32> = Spot::bytes(IMM_AT, immdt::DATA),
    }
}

header_record! {
    /// AtomicETH of an ATOMIC request. Address and key are where RETH has them.
    pub struct AtomicHeader {
        va: Bits<64> = Spot::number(RETH_AT, atomiceth::VA),
        rkey: Bits<32> = Spot::number(RETH_AT, atomiceth::RKEY),
        swap_add: Bits<64> = Spot::number(RETH_AT, atomiceth::SWAP_ADD),
        compare: Bits<64> = Spot::number(RETH_AT, atomiceth::COMPARE),
    }
}
const _: () = {
    assert!(atomiceth::VA.byte == reth::VA.byte && atomiceth::VA.bits == reth::VA.bits);
    assert!(atomiceth::RKEY.byte == reth::RKEY.byte && atomiceth::RKEY.bits == reth::RKEY.bits);
};

header_record! {
    /// AtomicAckETH of an ATOMIC ACK.
    pub struct AtomicAckHeader {
        original: Bits<64> = Spot::number(RETH_AT, atomicacketh::ORIGINAL),
    }
}

header_record! {
    /// BTH, AETH, MPAETH and SACK map of an ACK.
    pub struct AckHeader {
        opcode: Bits<8> = Spot::number(0, bth::OPCODE),
        pkey: Bits<16> = Spot::number(0, bth::PKEY),
        dqpn: Bits<24> = Spot::number(0, bth::DQPN),
        psn: Bits<24> = Spot::number(0, bth::PSN),
        syndrome: Bits<8> = Spot::number(bth::LEN, aeth::SYNDROME),
        msn: Bits<24> = Spot::number(bth::LEN, aeth::MSN),
        flags: Bits<8> = Spot::number(MPAETH_AT, mpaeth::FLAGS),
        aack: Bits<24> = Spot::number(MPAETH_AT, mpaeth::AACK),
        vp_echo: Bits<16> = Spot::number(MPAETH_AT, mpaeth::VP_ECHO),
        stamp_echo: Bits<16> = Spot::number(MPAETH_AT, mpaeth::STAMP_ECHO),
        map: Bits<128> = Spot::number(ACK_LEN, MAP),
    }
}

/// Puts `back` behind the first bytes of `front`: behind `near` of them, or, with `far`, behind more. Bytes behind
/// `back` are zero. Combinational, one 2:1 multiplexer.
#[derive(LogicBlock)]
pub struct Join<const F: usize, const B: usize, const O: usize> {
    pub front: Signal<In, Bits<F>>,
    pub back: Signal<In, Bits<B>>,
    pub far: Signal<In, bool>,
    pub o: Signal<Out, Bits<O>>,
    _near_at: usize,
    _far_at: usize,
    block_name: NameOf<Join<F, B, O>>,
}

impl<const F: usize, const B: usize, const O: usize> Join<F, B, O> {
    /// `near` and `far` are in bytes.
    pub fn new(near: usize, far: usize) -> Self {
        assert!(
            near <= far && 8 * far <= F && 8 * far + B <= O,
            "parts do not fit"
        );
        Self {
            front: Signal::default(),
            back: Signal::default(),
            far: Signal::default(),
            o: Signal::default(),
            _near_at: 8 * near,
            _far_at: 8 * far,
            block_name: NameOf::default(),
        }
    }

    fn joined(at: usize) -> Vec<VerilogStatement> {
        let mut statements = vec![
            assign_slice("o", 0, at, slice("front", 0, at)),
            assign_slice("o", at, B, signal("back")),
        ];
        if at + B < O {
            statements.push(assign_slice("o", at + B, O - at - B, zeros(O - at - B)));
        }
        statements
    }
}

impl<const F: usize, const B: usize, const O: usize> Logic for Join<F, B, O> {
    fn update(&mut self) {
        let at = if self.far.val() {
            self._far_at
        } else {
            self._near_at
        };
        let (front, back) = (self.front.val(), self.back.val());
        self.o.next = crate::leaf::beat::from_bools(std::array::from_fn(|i| {
            if i < at {
                front.get_bit(i)
            } else {
                i - at < B && back.get_bit(i - at)
            }
        }));
    }

    fn connect(&mut self) {
        self.o.connect();
    }

    fn hdl(&self) -> Verilog {
        Verilog::Combinatorial(vec![VerilogStatement::If(VerilogConditional {
            test: signal("far"),
            then: Self::joined(self._far_at),
            otherwise: VerilogBlockOrConditional::Block(Self::joined(self._near_at)),
        })])
    }
}

/// Takes what lies behind the first bytes of a part: behind `near` of them, or, with `far`, behind more. Combinational,
/// one 2:1 multiplexer.
#[derive(LogicBlock)]
pub struct Behind<const I: usize, const O: usize> {
    pub i: Signal<In, Bits<I>>,
    pub far: Signal<In, bool>,
    pub o: Signal<Out, Bits<O>>,
    _near_at: usize,
    _far_at: usize,
    block_name: NameOf<Behind<I, O>>,
}

impl<const I: usize, const O: usize> Behind<I, O> {
    /// `near` and `far` are in bytes.
    pub fn new(near: usize, far: usize) -> Self {
        assert!(near <= far && 8 * far + O <= I, "the part is too short");
        Self {
            i: Signal::default(),
            far: Signal::default(),
            o: Signal::default(),
            _near_at: 8 * near,
            _far_at: 8 * far,
            block_name: NameOf::default(),
        }
    }
}

impl<const I: usize, const O: usize> Logic for Behind<I, O> {
    fn update(&mut self) {
        let at = if self.far.val() {
            self._far_at
        } else {
            self._near_at
        };
        let i = self.i.val();
        self.o.next = crate::leaf::beat::from_bools(std::array::from_fn(|bit| i.get_bit(at + bit)));
    }

    fn connect(&mut self) {
        self.o.connect();
    }

    fn hdl(&self) -> Verilog {
        let taken = |at: usize| vec![assign("o", slice("i", at, O))];
        Verilog::Combinatorial(vec![VerilogStatement::If(VerilogConditional {
            test: signal("far"),
            then: taken(self._far_at),
            otherwise: VerilogBlockOrConditional::Block(taken(self._near_at)),
        })])
    }
}

/// Makes the first two beats of a frame into what the ICRC is computed over: Ethernet bytes become zeros (the start
/// state makes up for them), fields that may change on the way become ones. Combinational, one LUT level.
#[derive(LogicBlock, Default)]
pub struct IcrcMask {
    pub i: Signal<In, Bits<512>>,
    /// Beat 0 of the frame.
    pub first: Signal<In, bool>,
    /// Beat 1 of the frame.
    pub second: Signal<In, bool>,
    pub vlan: Signal<In, bool>,
    pub ip6: Signal<In, bool>,
    pub o: Signal<Out, Bits<512>>,
    block_name: NameOf<IcrcMask>,
}

/// What becomes of a byte in the ICRC's view of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IcrcByte {
    /// Taken as zero.
    Zero,
    /// Taken with these bits as ones.
    Ones(u8),
}

/// The changed bytes of a frame, as (byte of the frame, change).
fn icrc_changes(tagged: bool, ip6: bool) -> Vec<(usize, IcrcByte)> {
    let ip = if tagged { TAGGED_LEN } else { ethernet::LEN };
    let (udp_at, ip_mask) = if ip6 {
        (ip + ipv6::LEN, icrc::MASK_IPV6)
    } else {
        (ip + ipv4::LEN, icrc::MASK_IPV4)
    };
    let ones = |base: usize, mask: &'static [(usize, u8)]| {
        mask.iter()
            .map(move |&(at, bits)| (base + at, IcrcByte::Ones(bits)))
    };
    (0..ip)
        .map(|at| (at, IcrcByte::Zero))
        .chain(ones(ip, ip_mask))
        .chain(ones(udp_at, icrc::MASK_UDP))
        .chain(ones(udp_at + udp::LEN, icrc::MASK_BTH))
        .collect()
}

const KINDS: [(bool, bool); 4] = [(false, false), (false, true), (true, false), (true, true)];

impl Logic for IcrcMask {
    fn update(&mut self) {
        let mut bytes = crate::leaf::beat::bytes_of_bits(&self.i.val());
        let beat = usize::from(self.second.val());
        if self.first.val() || self.second.val() {
            for (at, change) in icrc_changes(self.vlan.val(), self.ip6.val()) {
                if at / 64 == beat {
                    match change {
                        IcrcByte::Zero => bytes[at % 64] = 0,
                        IcrcByte::Ones(ones) => bytes[at % 64] |= ones,
                    }
                }
            }
        }
        self.o.next = crate::leaf::beat::bits_of_bytes(&bytes);
    }

    fn connect(&mut self) {
        self.o.connect();
    }

    fn hdl(&self) -> Verilog {
        let is = |name: &str, value: bool| {
            binary(
                signal(name),
                VerilogOp::Eq,
                literal(Bits::<1>::from(u64::from(value))),
            )
        };
        let both = |a, b| binary(a, VerilogOp::BitAnd, b);
        let mut statements = vec![assign("o", signal("i"))];
        for (beat, flag) in ["first", "second"].into_iter().enumerate() {
            for (tagged, ip6) in KINDS {
                let then: Vec<_> = icrc_changes(tagged, ip6)
                    .into_iter()
                    .filter(|(at, _)| at / 64 == beat)
                    .map(|(at, change)| {
                        let lsb = 8 * (at % 64);
                        let value = match change {
                            IcrcByte::Zero => zeros(8),
                            IcrcByte::Ones(ones) => binary(
                                slice("i", lsb, 8),
                                VerilogOp::BitOr,
                                literal(Bits::<8>::from(u64::from(ones))),
                            ),
                        };
                        assign_slice("o", lsb, 8, value)
                    })
                    .collect();
                if !then.is_empty() {
                    statements.push(VerilogStatement::If(VerilogConditional {
                        test: both(is(flag, true), both(is("vlan", tagged), is("ip6", ip6))),
                        then,
                        otherwise: VerilogBlockOrConditional::None,
                    }));
                }
            }
        }
        Verilog::Combinatorial(statements)
    }
}

/// Puts the ICRC behind the last byte of a frame. The lengths of all headers make that byte 2, 6, 10 .. or 62 of its
/// beat; behind byte 62 only the first half fits. Combinational.
#[derive(LogicBlock, Default)]
pub struct PutIcrc {
    pub i: Signal<In, Bits<512>>,
    pub nbytes: Signal<In, Bits<7>>,
    pub icrc: Signal<In, Bits<32>>,
    pub o: Signal<Out, Bits<512>>,
    block_name: NameOf<PutIcrc>,
}

/// Where an ICRC may begin in its beat, in bytes.
fn icrc_places() -> impl Iterator<Item = usize> {
    (ethernet::LEN % 4..64).step_by(4)
}

impl Logic for PutIcrc {
    fn update(&mut self) {
        let mut bytes = crate::leaf::beat::bytes_of_bits(&self.i.val());
        let at = self.nbytes.val().index();
        if icrc_places().any(|place| place == at) {
            for (i, byte) in crate::leaf::beat::bytes_of_bits(&self.icrc.val())
                .into_iter()
                .enumerate()
            {
                if at + i < 64 {
                    bytes[at + i] = byte;
                }
            }
        }
        self.o.next = crate::leaf::beat::bits_of_bytes(&bytes);
    }

    fn connect(&mut self) {
        self.o.connect();
    }

    fn hdl(&self) -> Verilog {
        let mut statements = vec![assign("o", signal("i"))];
        for at in icrc_places() {
            let bits = 8 * icrc::LEN.min(64 - at);
            statements.push(VerilogStatement::If(VerilogConditional {
                test: binary(
                    signal("nbytes"),
                    VerilogOp::Eq,
                    literal(Bits::<7>::from(at as u64)),
                ),
                then: vec![assign_slice("o", 8 * at, bits, slice("icrc", 0, bits))],
                otherwise: VerilogBlockOrConditional::None,
            }));
        }
        Verilog::Combinatorial(statements)
    }
}

/// One bit per byte of a beat: set for the first `nbytes`. Combinational.
#[derive(LogicBlock, Default)]
pub struct KeepMask {
    pub nbytes: Signal<In, Bits<7>>,
    pub keep: Signal<Out, Bits<64>>,
    block_name: NameOf<KeepMask>,
}

impl Logic for KeepMask {
    fn update(&mut self) {
        let nbytes = self.nbytes.val().index();
        self.keep.next = bits(if nbytes >= 64 {
            u64::MAX
        } else {
            (1 << nbytes) - 1
        });
    }

    fn connect(&mut self) {
        self.keep.connect();
    }

    fn hdl(&self) -> Verilog {
        Verilog::Combinatorial(
            (0..64)
                .map(|lane| {
                    let set = binary(
                        signal("nbytes"),
                        VerilogOp::Gt,
                        literal(Bits::<7>::from(lane)),
                    );
                    assign_slice("keep", lane as usize, 1, set)
                })
                .collect(),
        )
    }
}

fn zeros(bits: usize) -> VerilogExpression {
    match bits {
        8 => literal(Bits::<8>::default()),
        _ => VerilogExpression::Cast(Box::new(literal(Bits::<1>::default())), bits),
    }
}
