//! Takes an arrived frame apart and checks it, in the order of the RTL's parser: the first thing wrong is what counts.

use mprdma_spec::params::ATOMIC_BYTES;
use mprdma_spec::wire::bth::{self, opcode};
use mprdma_spec::wire::{
    aeth, atomicacketh, atomiceth, ethernet, icrc, immdt, ipv4, ipv6, mpaeth, mpeth, reth, udp,
    vlan, SackMap,
};
use std::ops::Range;

/// What the headers of a good frame say. Fields that the packet's kind does not have are zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Meta {
    pub opcode: u8,
    pub qpn: u32,
    pub psn: u32,
    pub pkey: u16,
    /// The IP header carried CE.
    pub ce: bool,
    /// UDP source port.
    pub vp: u16,
    /// Flags and stamp of MPETH or MPAETH.
    pub flags: u8,
    pub stamp: u16,
    pub wsn: u32,
    pub offset: u16,
    pub raddr: u64,
    pub rkey: u32,
    /// Of an ATOMIC 8.
    pub dma_length: u32,
    pub imm: u32,
    /// Operands of an ATOMIC; in the answer to one, what the memory held, in the first.
    pub swap_add: u64,
    pub compare: u64,
    pub syndrome: u8,
    pub aack: u32,
    pub vp_echo: u16,
    pub map: u128,
    /// Where the payload lies in the frame.
    pub payload: Range<usize>,
}

/// Why a frame is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Bad header or length.
    Malformed,
    /// For somebody else: another address, or not RoCEv2.
    NotOurs,
    /// Bad ICRC.
    Icrc,
}

use Refusal::{Malformed, NotOurs};

/// The UDP datagram in a frame.
struct Datagram {
    at: usize,
    end: usize,
    ce: bool,
}

/// Checks a frame for a card with the address `mac` whose SACK maps have `slots` bits.
pub(super) fn parse(frame: &[u8], mac: [u8; 6], slots: usize) -> Result<Meta, Refusal> {
    let link = ethernet::View::new(frame).map_err(|_| Malformed)?;
    if link.dst() != mac {
        return Err(NotOurs);
    }
    let (mut ethertype, mut ip) = (link.ethertype(), ethernet::LEN);
    if ethertype == ethernet::VLAN {
        let tag = vlan::View::new(&frame[ip..]).map_err(|_| Malformed)?;
        (ethertype, ip) = (tag.ethertype(), ip + vlan::LEN);
    }
    let datagram = match ethertype {
        ethernet::IPV4 => ip4(frame, ip)?,
        ethernet::IPV6 => ip6(frame, ip)?,
        _ => return Err(NotOurs),
    };
    let meta = transport(frame, &datagram, slots)?;
    icrc::check_icrc(frame).map_err(|_| Refusal::Icrc)?;
    Ok(meta)
}

fn ip4(frame: &[u8], at: usize) -> Result<Datagram, Refusal> {
    let header = ipv4::View::new(&frame[at..]).map_err(|_| Malformed)?;
    let whole = header.version() == 4
        && header.ihl() == 5
        && !header.more_fragments()
        && header.fragment() == 0;
    if !whole || ipv4::checksum(&frame[at..at + ipv4::LEN]) != 0 {
        return Err(Malformed);
    }
    let end = at + usize::from(header.total_len());
    let ce = header.ecn() == ipv4::CE;
    datagram(frame, at + ipv4::LEN, end, header.protocol(), ce)
}

fn ip6(frame: &[u8], at: usize) -> Result<Datagram, Refusal> {
    let header = ipv6::View::new(&frame[at..]).map_err(|_| Malformed)?;
    if header.version() != 6 {
        return Err(Malformed);
    }
    let end = at + ipv6::LEN + usize::from(header.payload_len());
    let ce = header.ecn() == ipv4::CE;
    datagram(frame, at + ipv6::LEN, end, header.next_header(), ce)
}

/// The IP packet ends at `end`; the MAC may have padded a short frame behind it.
fn datagram(
    frame: &[u8],
    at: usize,
    end: usize,
    protocol: u8,
    ce: bool,
) -> Result<Datagram, Refusal> {
    if protocol != ipv4::UDP {
        return Err(NotOurs);
    }
    let trailing = end < frame.len() && frame.len() > ethernet::MIN_FRAME + vlan::LEN;
    if end > frame.len() || trailing || end < at + udp::LEN {
        return Err(Malformed);
    }
    Ok(Datagram { at, end, ce })
}

fn transport(frame: &[u8], datagram: &Datagram, slots: usize) -> Result<Meta, Refusal> {
    let header = udp::View::new(&frame[datagram.at..]).map_err(|_| Malformed)?;
    if header.dst_port() != udp::ROCE_PORT {
        return Err(NotOurs);
    }
    let at = datagram.at + udp::LEN;
    let length = datagram.end - datagram.at;
    if usize::from(header.length()) != length || length < udp::LEN + bth::LEN + icrc::LEN {
        return Err(Malformed);
    }
    let inside = &frame[at..datagram.end - icrc::LEN];
    let base = bth::View::new(inside).map_err(|_| Malformed)?;
    if base.version() != 0 {
        return Err(Malformed);
    }
    let mut meta = Meta {
        opcode: base.opcode(),
        qpn: base.dqpn(),
        psn: base.psn().value(),
        pkey: base.pkey(),
        ce: datagram.ce,
        vp: header.src_port(),
        ..Meta::default()
    };
    let headers = extensions(&mut meta, inside, slots)?;
    let (rest, pad) = (inside.len() - headers, usize::from(base.pad()));
    let is_ack = meta.opcode == opcode::MP_ACK;
    if pad > rest || rest % 4 != 0 || rest > mprdma_spec::wire::frame::MAX_PAYLOAD {
        return Err(Malformed);
    }
    if is_ack && (rest != 0 || pad != 0) {
        return Err(Malformed);
    }
    meta.payload = at + headers..at + headers + rest - pad;
    Ok(meta)
}

/// Reads what follows BTH; says how many bytes that and BTH are.
fn extensions(meta: &mut Meta, inside: &[u8], slots: usize) -> Result<usize, Refusal> {
    let mut at = bth::LEN;
    let part = |at: usize| inside.get(at..).unwrap_or(&[]);
    let shape = opcode::shape(meta.opcode).unwrap_or_default();
    if opcode::is_mp_data(meta.opcode) {
        let mp = mpeth::View::new(part(at)).map_err(|_| Malformed)?;
        (meta.flags, meta.stamp) = (mp.flags(), mp.stamp());
        (meta.wsn, meta.offset) = (mp.wsn(), mp.offset());
        at += mpeth::LEN;
        if shape.reth {
            let target = reth::View::new(part(at)).map_err(|_| Malformed)?;
            (meta.raddr, meta.rkey) = (target.va(), target.rkey());
            meta.dma_length = target.length();
            at += reth::LEN;
        }
        if shape.atomic {
            let target = atomiceth::View::new(part(at)).map_err(|_| Malformed)?;
            (meta.raddr, meta.rkey) = (target.va(), target.rkey());
            (meta.swap_add, meta.compare) = (target.swap_add(), target.compare());
            meta.dma_length = ATOMIC_BYTES as u32;
            at += atomiceth::LEN;
        }
        if shape.atomic_ack {
            let answer = atomicacketh::View::new(part(at)).map_err(|_| Malformed)?;
            meta.swap_add = answer.original();
            at += atomicacketh::LEN;
        }
        if shape.imm {
            let immediate = immdt::View::new(part(at)).map_err(|_| Malformed)?;
            meta.imm = immediate.data();
            at += immdt::LEN;
        }
    } else if meta.opcode == opcode::MP_ACK {
        let ack = aeth::View::new(part(at)).map_err(|_| Malformed)?;
        meta.syndrome = ack.syndrome();
        at += aeth::LEN;
        let mp = mpaeth::View::new(part(at)).map_err(|_| Malformed)?;
        (meta.flags, meta.stamp) = (mp.flags(), mp.stamp_echo());
        (meta.aack, meta.vp_echo) = (mp.aack().value(), mp.vp_echo());
        at += mpaeth::LEN;
        if meta.flags & mpaeth::FLAG_SACK_MAP != 0 {
            let bytes = part(at).get(..slots / 8).ok_or(Malformed)?;
            meta.map = SackMap::parse(bytes).map_err(|_| Malformed)?.bits();
            at += slots / 8;
        }
    }
    Ok(at)
}
