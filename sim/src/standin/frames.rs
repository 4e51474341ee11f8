//! Builds frames: data packets and ACKs, with the headers that a QP's address vector gives them.

use mprdma_model::receiver;
use mprdma_spec::command::qp_image;
use mprdma_spec::wire::bth::opcode;
use mprdma_spec::wire::frame::{Address, Body, Extensions, Tag, Transport};
use mprdma_spec::wire::{
    aeth, atomicacketh, atomiceth, icrc, ipv4, mpaeth, mpeth, reth, Frame, Psn, SackMap,
};

/// Bit of `qp_image::PORT_FLAGS`: IPv6.
const IPV6: u64 = 1;
/// Bit of `qp_image::PORT_FLAGS`: send an 802.1Q tag.
const TAGGED: u64 = 2;

/// Whom a QP talks to: what `qp_image` calls the address vector.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Peer {
    dmac: [u8; 6],
    ipv6: bool,
    tagged: bool,
    traffic_class: u8,
    vlan_tci: u16,
    hop_limit: u8,
    flow_label: u32,
    sgid: [u8; 16],
    dgid: [u8; 16],
    qpn: u32,
    pkey: u16,
}

impl Peer {
    pub(super) fn read(image: &[u8]) -> Peer {
        let flags = qp_image::PORT_FLAGS.get(image);
        Peer {
            dmac: bytes(image, qp_image::DMAC.lsb),
            ipv6: flags & IPV6 != 0,
            tagged: flags & TAGGED != 0,
            traffic_class: qp_image::TRAFFIC_CLASS.get(image) as u8,
            vlan_tci: qp_image::VLAN_TCI.get(image) as u16,
            hop_limit: qp_image::HOP_LIMIT.get(image) as u8,
            flow_label: qp_image::FLOW_LABEL.get(image) as u32,
            sgid: bytes(image, qp_image::SGID.lsb),
            dgid: bytes(image, qp_image::DGID.lsb),
            qpn: qp_image::DEST_QPN.get(image) as u32,
            pkey: qp_image::PKEY.get(image) as u16,
        }
    }

    fn address(&self) -> Address {
        let v4 = |gid: &[u8; 16]| std::array::from_fn(|i| gid[12 + i]);
        match self.ipv6 {
            false => Address::V4 {
                src: v4(&self.sgid),
                dst: v4(&self.dgid),
                id: 0,
                dont_fragment: true,
            },
            true => Address::V6 {
                src: self.sgid,
                dst: self.dgid,
                flow_label: self.flow_label,
            },
        }
    }

    fn frame<'a>(&self, source: [u8; 6], head: &Head, body: Body<'a>) -> Frame<'a> {
        let tci = self.vlan_tci;
        Frame {
            dst_mac: self.dmac,
            src_mac: source,
            tag: self.tagged.then_some(Tag {
                pcp: (tci >> 13) as u8,
                dei: tci >> 12 & 1 != 0,
                vid: tci & 0xfff,
            }),
            address: self.address(),
            dscp: self.traffic_class >> 2,
            ecn: head.ecn,
            hop_limit: self.hop_limit,
            src_port: head.vp,
            bth: Transport {
                opcode: head.opcode,
                solicited: false,
                migrated: false,
                pkey: self.pkey,
                fecn: false,
                becn: false,
                dqpn: self.qpn,
                ack_req: head.ack_req,
                psn: Psn::new(head.psn),
            },
            body,
        }
    }
}

/// `N` bytes of a record whose field begins at bit `lsb`: for fields that are wider than 64 bits, or byte strings.
fn bytes<const N: usize>(image: &[u8], lsb: usize) -> [u8; N] {
    std::array::from_fn(|i| image[lsb / 8 + i])
}

/// What the headers of data packets and ACKs have in common.
struct Head {
    opcode: u8,
    psn: u32,
    vp: u16,
    ecn: u8,
    ack_req: bool,
}

/// A packet of a message.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DataPacket {
    pub opcode: u8,
    pub psn: u32,
    pub vp: u16,
    /// MPETH flags.
    pub flags: u8,
    pub wsn: u32,
    pub offset: u16,
    pub raddr: u64,
    pub rkey: u32,
    /// READ REQUEST: bytes of the message. RETH's length is the payload's otherwise.
    pub read_length: u32,
    pub imm: Option<u32>,
    /// Operands of an ATOMIC; in the answer to one, what the memory held, in the first.
    pub swap_add: u64,
    pub compare: u64,
}

/// The frame of a data packet; `readable` is false when the payload could not be read: then the ICRC is wrong, so that
/// the peer drops it.
pub(super) fn data(
    source: [u8; 6],
    peer: &Peer,
    packet: &DataPacket,
    stamp: u16,
    payload: &[u8],
    readable: bool,
) -> Vec<u8> {
    let head = Head {
        opcode: packet.opcode,
        psn: packet.psn,
        vp: packet.vp,
        ecn: ipv4::ECT0,
        ack_req: true,
    };
    let mpeth = mpeth::Repr {
        flags: packet.flags,
        wsn: packet.wsn,
        offset: packet.offset,
        stamp,
    };
    let reth = reth::Repr {
        va: packet.raddr,
        rkey: packet.rkey,
        length: payload.len() as u32 + packet.read_length,
    };
    let body = match opcode::is_mp_write(packet.opcode) {
        true => Body::MpWrite {
            mpeth,
            reth,
            imm: packet.imm,
            payload,
        },
        false => Body::Other {
            extensions: Extensions {
                mpeth: Some(mpeth),
                reth: (packet.opcode == opcode::MP_READ_REQUEST).then_some(reth),
                atomic: opcode::is_mp_atomic_request(packet.opcode).then_some(atomiceth::Repr {
                    va: packet.raddr,
                    rkey: packet.rkey,
                    swap_add: packet.swap_add,
                    compare: packet.compare,
                }),
                atomic_ack: (packet.opcode == opcode::MP_ATOMIC_ACK).then_some(
                    atomicacketh::Repr {
                        original: packet.swap_add,
                    },
                ),
                ..Extensions::default()
            },
            payload,
        },
    };
    let mut frame = emit(&peer.frame(source, &head, body));
    if !readable {
        let icrc = frame.len() - icrc::LEN;
        frame[icrc..].iter_mut().for_each(|byte| *byte = !*byte);
    }
    frame
}

/// The frame of an ACK or NAK of a card whose SACK maps have `slots` bits.
pub(super) fn ack(source: [u8; 6], peer: &Peer, ack: &receiver::Ack, slots: usize) -> Vec<u8> {
    let head = Head {
        opcode: opcode::MP_ACK,
        psn: ack.sack,
        vp: ack.vp,
        ecn: ipv4::NOT_ECT,
        ack_req: false,
    };
    let map = (ack.flags & mpaeth::FLAG_SACK_MAP != 0)
        .then(|| SackMap::from_bits(ack.map, slots).expect("maps of images have 64 or 128 bits"));
    let body = Body::MpAck {
        aeth: aeth::Repr {
            syndrome: aeth::Syndrome::from_byte(ack.syndrome).expect("the engine's own syndromes"),
            msn: Psn::new(ack.msn),
        },
        mpaeth: mpaeth::Repr {
            flags: ack.flags,
            aack: Psn::new(ack.aack),
            vp_echo: ack.vp,
            stamp_echo: ack.stamp,
        },
        map,
    };
    emit(&peer.frame(source, &head, body))
}

fn emit(frame: &Frame) -> Vec<u8> {
    let mut bytes = vec![0; frame.wire_len()];
    let done = frame.emit(&mut bytes);
    done.expect("headers and payload fit the opcode");
    bytes
}
