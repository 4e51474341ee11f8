//! The first steps of an arriving beat: count its bytes, find out what kind of frame it belongs to, mask it for the
//! ICRC, and give out the frame's first 128 bytes when the frame ends.

use crate::header_record;
use crate::leaf::expr::{assign_slice, binary, literal, signal};
use crate::leaf::slices::Unpack;
use crate::leaf::Beat;
use crate::nic::headers::{Behind, IcrcMask, LinkHeader, Spot, TAGGED_LEN};
use crate::prelude::*;
use mprdma_spec::wire::{ethernet, ipv4, ipv6};
use rust_hdl_core::ast::VerilogOp;

header_record! {
    /// Length field of an IPv4 header.
    struct Ip4Length {
        total_len: Bits<16> = Spot::number(0, ipv4::TOTAL_LEN),
    }
}

header_record! {
    /// Length field of an IPv6 header.
    struct Ip6Length {
        payload_len: Bits<16> = Spot::number(0, ipv6::PAYLOAD_LEN),
    }
}

/// One more than the index of the only bit that is set. Combinational.
#[derive(LogicBlock, Default)]
pub struct Encode {
    pub one_hot: Signal<In, Bits<64>>,
    pub o: Signal<Out, Bits<7>>,
    block_name: NameOf<Encode>,
}

/// The inputs whose index plus one has bit `bit` set.
fn encode_mask(bit: usize) -> u64 {
    (0..64)
        .filter(|i| (i + 1) >> bit & 1 == 1)
        .fold(0, |mask, i| mask | 1 << i)
}

impl Logic for Encode {
    fn update(&mut self) {
        let one_hot = self.one_hot.val().to_u64();
        self.o.next = bits((0..7).fold(0, |o, bit| {
            o | u64::from(one_hot & encode_mask(bit) != 0) << bit
        }));
    }

    fn connect(&mut self) {
        self.o.connect();
    }

    fn hdl(&self) -> Verilog {
        Verilog::Combinatorial(
            (0..7)
                .map(|bit| {
                    let hits = binary(
                        signal("one_hot"),
                        VerilogOp::BitAnd,
                        literal(Bits::<64>::from(encode_mask(bit))),
                    );
                    let any = binary(hits, VerilogOp::Ne, literal(Bits::<64>::default()));
                    assign_slice("o", bit, 1, any)
                })
                .collect(),
        )
    }
}

/// A beat as the port gives it.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct PortBeat {
    pub data: Bits<512>,
    pub keep: Bits<64>,
    pub last: bool,
    pub bad: bool,
}

/// A beat with its bytes counted.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
struct Counted {
    data: Bits<512>,
    nbytes: Bits<7>,
    last: bool,
    /// The port says that the frame is bad, or the beat is not filled from byte 0 as it should be.
    faulty: bool,
    first: bool,
    second: bool,
}

/// A frame that has ended: its first 128 bytes and what is known of the rest.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct Arrived {
    pub head: Bits<1024>,
    /// Bytes of the frame; 8192 and more are all the same.
    pub length: Bits<14>,
    /// Where the IP packet ends by its own length field, in bytes from the frame's start; 16383 is all above.
    pub end: Bits<14>,
    pub vlan: bool,
    pub ip4: bool,
    pub ip6: bool,
    pub faulty: bool,
}

block! {
    /// - In: `beat`, `valid`.
    /// - Out, 4 cycles later: the beat as it came (`raw`) and as the ICRC sees it (`masked`, cut at the end of the IP
    ///   packet if the frame is one beat long; `vlan`: its frame has a tag), `out_valid`; and with the last beat of a
    ///   frame `arrived`, `arrived_valid`.
    /// - Out: `frames` and `bytes`, what came in, for counters.
    /// - Initiation interval: 1, also for frames of one beat.
    pub struct Intake {
        in {
            clock: Clock,
            reset: Bit,
            beat: PortBeat,
            valid: bool,
        }
        out {
            raw: Beat,
            masked: Beat,
            vlan: bool,
            out_valid: bool,
            arrived: Arrived,
            arrived_valid: bool,
            frames: bool,
            bytes: Bits<7>,
            busy: bool,
        }
        local {
            keep: Bits<64>,
            nbytes: Bits<7>,
            gapless: bool,
            tag_now: bool,
            ip6_now: bool,
            ip4_now: bool,
            link_now: Bits<17>,
            end_now: Bits<17>,
            faulty_now: bool,
            length: Bits<14>,
            cut: bool,
        }
        reg {
            valid_0: bool,
            valid_1: bool,
            valid_2: bool,
            valid_3: bool,
            ended_3: bool,
            // Beats of this frame before the next one: none, one, or more.
            second: bool,
            later: bool,
            frame_in: bool,
            bytes_in: Bits<7>,
            // Bytes of this frame before the beat in stage 2.
            before: Bits<14>,
            fault: bool,
        }
        pipe {
            beat_0: PortBeat,
            beat_1: Counted,
            beat_2: Counted,
            vlan_2: bool,
            ip4_2: bool,
            ip6_2: bool,
            end_2: Bits<17>,
            raw_3: Beat,
            masked_3: Beat,
            vlan_3: bool,
            beat_a: Bits<512>,
            beat_b: Bits<512>,
            arrived_3: Arrived,
        }
        konst {
            full: Bits<7> = bits(64),
            beat_len: Bits<14> = bits(64),
            ethertype_tag: Bits<16> = bits(u64::from(ethernet::VLAN)),
            ethertype_4: Bits<16> = bits(u64::from(ethernet::IPV4)),
            ethertype_6: Bits<16> = bits(u64::from(ethernet::IPV6)),
            link_short: Bits<17> = bits(ethernet::LEN as u64),
            link_tagged: Bits<17> = bits(TAGGED_LEN as u64),
            ip6_len: Bits<17> = bits(ipv6::LEN as u64),
            most: Bits<17> = bits(16383),
        }
        sub {
            count: Encode,
            link: Unpack<LinkHeader, 512>,
            ip_front: Behind<512, 64> = Behind::new(ethernet::LEN, TAGGED_LEN),
            ip4_length: Unpack<Ip4Length, 64>,
            ip6_length: Unpack<Ip6Length, 64>,
            mask: IcrcMask,
        }
    }
}

impl Logic for Intake {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(
            self, clock, valid_0, valid_1, valid_2, valid_3, ended_3, second, later, frame_in,
            bytes_in, before, fault, beat_0, beat_1, beat_2, vlan_2, ip4_2, ip6_2, end_2, raw_3,
            masked_3, vlan_3, beat_a, beat_b, arrived_3
        );
        comment!("0: register the port");
        self.beat_0.d.next = self.beat.val();
        self.valid_0.d.next = self.valid.val();
        comment!("1: count bytes, find the first and the second beat");
        self.keep.next = self.beat_0.q.val().keep;
        self.count.one_hot.next = self.keep.val() & !(self.keep.val() >> 1);
        self.nbytes.next = self.count.o.val();
        self.gapless.next = self.keep.val().get_bit(0)
            & !(self.keep.val() & (self.keep.val() + 1)).any()
            & (self.keep.val().all() | self.beat_0.q.val().last);
        self.beat_1.d.next.data = self.beat_0.q.val().data;
        self.beat_1.d.next.nbytes = self.nbytes.val();
        self.beat_1.d.next.last = self.beat_0.q.val().last;
        self.beat_1.d.next.faulty = self.beat_0.q.val().bad | !self.gapless.val();
        self.beat_1.d.next.first = !self.second.q.val() & !self.later.q.val();
        self.beat_1.d.next.second = self.second.q.val();
        self.valid_1.d.next = self.valid_0.q.val();
        self.frame_in.d.next = self.valid_0.q.val() & self.beat_0.q.val().last;
        self.bytes_in.d.next = 0.into();
        if self.valid_0.q.val() {
            self.bytes_in.d.next = self.nbytes.val();
            self.second.d.next =
                !self.second.q.val() & !self.later.q.val() & !self.beat_0.q.val().last;
            self.later.d.next =
                (self.second.q.val() | self.later.q.val()) & !self.beat_0.q.val().last;
        }
        self.frames.next = self.frame_in.q.val();
        self.bytes.next = self.bytes_in.q.val();
        comment!("2: kind and stated length, from the first beat and kept for the others");
        self.link.image.next = self.beat_1.q.val().data;
        self.tag_now.next = self.link.record.val().ethertype == self.ethertype_tag.val();
        self.link_now.next = self.link_short.val();
        self.ip4_now.next = self.link.record.val().ethertype == self.ethertype_4.val();
        self.ip6_now.next = self.link.record.val().ethertype == self.ethertype_6.val();
        if self.tag_now.val() {
            self.link_now.next = self.link_tagged.val();
            self.ip4_now.next = self.link.record.val().inner == self.ethertype_4.val();
            self.ip6_now.next = self.link.record.val().inner == self.ethertype_6.val();
        }
        self.ip_front.i.next = self.beat_1.q.val().data;
        self.ip_front.far.next = self.tag_now.val();
        self.ip4_length.image.next = self.ip_front.o.val();
        self.ip6_length.image.next = self.ip_front.o.val();
        self.end_now.next =
            self.link_now.val() + bit_cast::<17, 16>(self.ip4_length.record.val().total_len);
        if self.ip6_now.val() {
            self.end_now.next = self.link_now.val()
                + self.ip6_len.val()
                + bit_cast::<17, 16>(self.ip6_length.record.val().payload_len);
        }
        self.beat_2.d.next = self.beat_1.q.val();
        self.valid_2.d.next = self.valid_1.q.val();
        if self.valid_1.q.val() & self.beat_1.q.val().first {
            self.vlan_2.d.next = self.tag_now.val();
            self.ip4_2.d.next = self.ip4_now.val();
            self.ip6_2.d.next = self.ip6_now.val();
            self.end_2.d.next = self.end_now.val();
        }
        comment!("3: mask, and the frame as a whole at its end");
        self.raw_3.d.next.data = self.beat_2.q.val().data;
        self.raw_3.d.next.nbytes = self.beat_2.q.val().nbytes;
        self.raw_3.d.next.last = self.beat_2.q.val().last;
        self.mask.i.next = self.beat_2.q.val().data;
        self.mask.first.next = self.beat_2.q.val().first;
        self.mask.second.next = self.beat_2.q.val().second;
        self.mask.vlan.next = self.vlan_2.q.val();
        self.mask.ip6.next = self.ip6_2.q.val();
        self.masked_3.d.next.data = self.mask.o.val();
        self.masked_3.d.next.last = self.beat_2.q.val().last;
        self.masked_3.d.next.nbytes = self.beat_2.q.val().nbytes;
        self.cut.next = self.beat_2.q.val().first
            & self.beat_2.q.val().last
            & (self.end_2.q.val() < bit_cast::<17, 7>(self.beat_2.q.val().nbytes));
        if self.cut.val() {
            self.masked_3.d.next.nbytes = bit_cast::<7, 17>(self.end_2.q.val());
        }
        self.vlan_3.d.next = self.vlan_2.q.val();
        self.valid_3.d.next = self.valid_2.q.val();
        self.ended_3.d.next = self.valid_2.q.val() & self.beat_2.q.val().last;
        self.faulty_now.next = self.fault.q.val() | self.beat_2.q.val().faulty;
        self.length.next = self.before.q.val() + bit_cast::<14, 7>(self.beat_2.q.val().nbytes);
        if self.valid_2.q.val() {
            self.fault.d.next = self.faulty_now.val() & !self.beat_2.q.val().last;
            if self.beat_2.q.val().last {
                self.before.d.next = 0.into();
            } else {
                if !self.before.q.val().get_bit(13) {
                    self.before.d.next = self.before.q.val() + self.beat_len.val();
                }
            }
            if self.beat_2.q.val().first {
                self.beat_a.d.next = self.beat_2.q.val().data;
            }
            if self.beat_2.q.val().second {
                self.beat_b.d.next = self.beat_2.q.val().data;
            }
        }
        self.arrived_3.d.next.head = bit_cast::<1024, 512>(self.beat_a.q.val())
            | (bit_cast::<1024, 512>(self.beat_b.q.val()) << 512);
        if self.beat_2.q.val().first {
            self.arrived_3.d.next.head = bit_cast::<1024, 512>(self.beat_2.q.val().data);
        }
        if self.beat_2.q.val().second {
            self.arrived_3.d.next.head = bit_cast::<1024, 512>(self.beat_a.q.val())
                | (bit_cast::<1024, 512>(self.beat_2.q.val().data) << 512);
        }
        self.arrived_3.d.next.length = self.length.val();
        self.arrived_3.d.next.end = bit_cast::<14, 17>(self.end_2.q.val());
        if self.end_2.q.val() > self.most.val() {
            self.arrived_3.d.next.end = bit_cast::<14, 17>(self.most.val());
        }
        self.arrived_3.d.next.vlan = self.vlan_2.q.val();
        self.arrived_3.d.next.ip4 = self.ip4_2.q.val();
        self.arrived_3.d.next.ip6 = self.ip6_2.q.val();
        self.arrived_3.d.next.faulty = self.faulty_now.val();
        comment!("output");
        self.raw.next = self.raw_3.q.val();
        self.masked.next = self.masked_3.q.val();
        self.vlan.next = self.vlan_3.q.val();
        self.out_valid.next = self.valid_3.q.val();
        self.arrived.next = self.arrived_3.q.val();
        self.arrived_valid.next = self.ended_3.q.val();
        self.busy.next = self.valid_0.q.val()
            | self.valid_1.q.val()
            | self.valid_2.q.val()
            | self.valid_3.q.val()
            | self.second.q.val()
            | self.later.q.val();
    }
}
