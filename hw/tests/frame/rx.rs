//! The frame parser: good, bad and fuzzed frames in, compared with a plain reference.

use crate::support::{chance, noise, rng, verilated, Seen};
use crate::tx::{emit, is_data, random_ack, random_length, random_packet, Peer, Wanted, OUR_MAC};
use mprdma_hw::cosim::VerilatedBlock;
use mprdma_hw::nic::rx_parse::RxParse;
use mprdma_hw::prelude::*;
use mprdma_spec::wire::bth::opcode;
use mprdma_spec::wire::frame::{Body, Extensions, MAX_PAYLOAD};
use mprdma_spec::wire::{
    atomicacketh, atomiceth, bth, ethernet, icrc, ipv4, ipv6, mpaeth, mpeth, reth, udp, vlan,
};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::collections::VecDeque;

/// What the parser says of a good frame; fields that the packet does not have are zero.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Meta {
    pub opcode: u8,
    pub qpn: u32,
    pub psn: u32,
    pub pkey: u16,
    pub ce: bool,
    pub vp: u16,
    pub flags: u8,
    pub wsn: u32,
    pub offset: u16,
    pub stamp: u16,
    pub raddr: u64,
    pub rkey: u32,
    pub dma_length: u32,
    pub imm: u32,
    pub swap_add: u64,
    pub compare: u64,
    pub syndrome: u8,
    pub aack: u32,
    pub vp_echo: u16,
    pub map: u128,
    pub length: usize,
    pub header: usize,
    pub stored: bool,
}

impl Meta {
    /// From the bits of an `RxMeta`.
    fn of_bytes(bytes: &[u8]) -> Self {
        let mut at = 0;
        let mut take = |bits: usize| {
            let value = (0..bits).fold(0u128, |value, i| {
                value | u128::from(bytes[(at + i) / 8] >> ((at + i) % 8) & 1) << i
            });
            at += bits;
            value
        };
        let mut meta = Self {
            opcode: take(8) as u8,
            qpn: take(24) as u32,
            psn: take(24) as u32,
            pkey: take(16) as u16,
            ce: take(1) == 1,
            vp: take(16) as u16,
            flags: take(8) as u8,
            wsn: take(24) as u32,
            offset: take(16) as u16,
            stamp: take(16) as u16,
            raddr: take(64) as u64,
            rkey: take(32) as u32,
            dma_length: take(32) as u32,
            imm: take(32) as u32,
            swap_add: take(64) as u64,
            compare: take(64) as u64,
            syndrome: take(8) as u8,
            aack: take(24) as u32,
            vp_echo: take(16) as u16,
            map: take(128),
            length: take(13) as usize,
            header: take(7) as usize,
            stored: take(1) == 1,
        };
        let data = is_data(meta.opcode);
        let shape = opcode::shape(meta.opcode)
            .filter(|_| data)
            .unwrap_or_default();
        let target = shape.reth || shape.atomic;
        let ack = meta.opcode == opcode::MP_ACK;
        if !data {
            (meta.wsn, meta.offset) = (0, 0);
        }
        if !target {
            (meta.raddr, meta.rkey, meta.dma_length) = (0, 0, 0);
        }
        if !shape.imm {
            meta.imm = 0;
        }
        if !shape.atomic && !shape.atomic_ack {
            meta.swap_add = 0;
        }
        if !shape.atomic {
            meta.compare = 0;
        }
        if !ack {
            (meta.syndrome, meta.aack, meta.vp_echo) = (0, 0, 0);
        }
        if !ack && !data {
            (meta.flags, meta.stamp) = (0, 0);
        }
        meta
    }
}

/// What becomes of a frame.
#[derive(Clone, Debug, PartialEq)]
pub enum Fate {
    Malformed,
    NotOurs,
    Icrc,
    Good(Meta),
}

/// The reference. `faulty`: the MAC says so.
pub fn fate(frame: &[u8], faulty: bool, slots: usize) -> Fate {
    use Fate::{Good, Icrc, Malformed, NotOurs};
    let Ok(eth) = ethernet::View::new(frame) else {
        return Malformed;
    };
    if faulty {
        return Malformed;
    }
    if eth.dst() != OUR_MAC {
        return NotOurs;
    }
    let (mut kind, mut ip) = (eth.ethertype(), ethernet::LEN);
    if kind == ethernet::VLAN {
        let Ok(tag) = vlan::View::new(&frame[ip..]) else {
            return Malformed;
        };
        (kind, ip) = (tag.ethertype(), ip + vlan::LEN);
    }
    let (ip_len, stated, protocol, ecn) = match kind {
        ethernet::IPV4 => {
            let Ok(h) = ipv4::Repr::parse(&frame[ip..]) else {
                return Malformed;
            };
            (ipv4::LEN, usize::from(h.total_len), h.protocol, h.ecn)
        }
        ethernet::IPV6 => {
            let Ok(h) = ipv6::View::new(&frame[ip..]) else {
                return Malformed;
            };
            if h.version() != 6 {
                return Malformed;
            }
            (
                ipv6::LEN,
                ipv6::LEN + usize::from(h.payload_len()),
                h.next_header(),
                h.ecn(),
            )
        }
        _ => return NotOurs,
    };
    if protocol != ipv4::UDP {
        return NotOurs;
    }
    let end = ip + stated;
    if end > frame.len() || end < frame.len() && frame.len() > 64 || stated < ip_len + udp::LEN {
        return Malformed;
    }
    let datagram = &frame[ip + ip_len..end];
    let header = udp::View::new(datagram).unwrap();
    if header.dst_port() != udp::ROCE_PORT {
        return NotOurs;
    }
    if usize::from(header.length()) != datagram.len()
        || datagram.len() < udp::LEN + bth::LEN + icrc::LEN
    {
        return Malformed;
    }
    let packet = &datagram[udp::LEN..datagram.len() - icrc::LEN];
    let base = bth::View::new(packet).unwrap();
    let code = base.opcode();
    let mut meta = Meta {
        opcode: code,
        qpn: base.dqpn(),
        psn: base.psn().value(),
        pkey: base.pkey(),
        ce: ecn == ipv4::CE,
        vp: header.src_port(),
        ..Meta::default()
    };
    let mut at = bth::LEN;
    if is_data(code) {
        let Ok(mp) = mpeth::View::new(&packet[at..]) else {
            return Malformed;
        };
        at += mpeth::LEN;
        (meta.flags, meta.wsn, meta.offset, meta.stamp) =
            (mp.flags(), mp.wsn(), mp.offset(), mp.stamp());
        if opcode::shape(code).unwrap().reth {
            let Ok(reth) = reth::View::new(&packet[at..]) else {
                return Malformed;
            };
            at += reth::LEN;
            (meta.raddr, meta.rkey, meta.dma_length) = (reth.va(), reth.rkey(), reth.length());
        }
        if opcode::shape(code).unwrap().atomic {
            let Ok(eth) = atomiceth::View::new(&packet[at..]) else {
                return Malformed;
            };
            at += atomiceth::LEN;
            (meta.raddr, meta.rkey, meta.dma_length) = (eth.va(), eth.rkey(), 8);
            (meta.swap_add, meta.compare) = (eth.swap_add(), eth.compare());
        }
        if opcode::shape(code).unwrap().atomic_ack {
            let Ok(eth) = atomicacketh::View::new(&packet[at..]) else {
                return Malformed;
            };
            at += atomicacketh::LEN;
            meta.swap_add = eth.original();
        }
        if opcode::shape(code).unwrap().imm {
            let Some(imm) = packet.get(at..at + 4) else {
                return Malformed;
            };
            meta.imm = u32::from_le_bytes(imm.try_into().unwrap());
            at += 4;
        }
    }
    if code == opcode::MP_ACK {
        let Some(aeth) = packet.get(at..at + 4) else {
            return Malformed;
        };
        meta.syndrome = aeth[0];
        at += 4;
        let Ok(mp) = mpaeth::View::new(&packet[at..]) else {
            return Malformed;
        };
        at += mpaeth::LEN;
        (meta.flags, meta.aack, meta.vp_echo, meta.stamp) =
            (mp.flags(), mp.aack().value(), mp.vp_echo(), mp.stamp_echo());
        if mp.flags() & mpaeth::FLAG_SACK_MAP != 0 {
            let Some(map) = packet.get(at..at + slots / 8) else {
                return Malformed;
            };
            meta.map = map.iter().fold(0, |map, &byte| map << 8 | u128::from(byte));
            at += slots / 8;
        }
    }
    let rest = packet.len() - at;
    let pad = usize::from(base.pad());
    if base.version() != 0
        || rest % 4 != 0
        || pad > rest
        || rest > MAX_PAYLOAD
        || code == opcode::MP_ACK && (rest != 0 || pad != 0)
    {
        return Malformed;
    }
    meta.length = rest - pad;
    meta.header = ip + ip_len + udp::LEN + at;
    meta.stored = is_data(code) && meta.length > 0;
    if icrc::check_icrc(frame).is_err() {
        return Icrc;
    }
    Good(meta)
}

/// A frame on its way to the parser.
#[derive(Clone, Debug)]
pub struct Arrival {
    pub bytes: Vec<u8>,
    /// `tuser` with the last beat.
    pub bad: bool,
    /// A byte that `tkeep` leaves out, as beat and lane.
    pub hole: Option<(usize, usize)>,
}

impl Arrival {
    pub fn good(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            bad: false,
            hole: None,
        }
    }

    fn fate(&self, slots: usize) -> Fate {
        fate(&self.bytes, self.bad || self.hole.is_some(), slots)
    }
}

/// Computes the IPv4 checksum anew, if there is one.
fn fix_checksum(frame: &mut [u8]) {
    let at = match frame.get(12..14) {
        Some([0x08, 0x00]) => 14,
        Some([0x81, 0x00]) if frame.get(16..18) == Some(&[0x08, 0x00]) => 18,
        _ => return,
    };
    if let Some(header) = frame.get_mut(at..at + ipv4::LEN) {
        ipv4::CHECKSUM.set(header, 0);
        let sum = ipv4::checksum(header);
        ipv4::CHECKSUM.set(header, sum.into());
    }
}

/// Computes the ICRC anew, if the frame is one that has it.
fn fix_icrc(frame: &mut [u8]) {
    if let (Ok(crc), Ok(at)) = (icrc::icrc(frame), mprdma_spec::wire::frame::locate(frame)) {
        frame[at.icrc..at.icrc + 4].copy_from_slice(&crc.to_le_bytes());
    }
}

/// A good frame for us: data, ACK, or a packet of another transport.
pub fn good_frame(rng: &mut ChaCha8Rng, slots: usize) -> Vec<u8> {
    let (ip6, tagged) = (rng.random(), rng.random());
    let mut peer = Peer::random(rng, ip6, tagged);
    peer.dmac = OUR_MAC;
    let mut bytes = match rng.random_range(0..10) {
        0..6 => {
            let mut cmd = random_packet(rng, 4);
            let length = random_length(rng, cmd.opcode.to_u8());
            let payload = noise(rng, length);
            if opcode::is_mp_write(cmd.opcode.to_u8()) {
                cmd.dma_length = bits(length as u64);
            }
            Wanted::Data {
                peer,
                cmd,
                payload,
                poisoned: false,
            }
            .bytes(rng.random())
        }
        6..9 => Wanted::Ack {
            peer,
            cmd: random_ack(rng, 4),
            slots,
        }
        .bytes(0),
        _ => {
            let body = match rng.random_range(0..2) {
                0 => (opcode::CNP, Body::Cnp),
                _ => (
                    opcode::RC_SEND_ONLY,
                    Body::Other {
                        extensions: Extensions::default(),
                        payload: &[1, 2, 3],
                    },
                ),
            };
            let mut bytes = emit(&peer.frame(2, rng.random(), body.0, 77, false, body.1));
            if bytes.len() < 60 {
                bytes.resize(60, 0);
            }
            bytes
        }
    };
    // Switches change the ECN bits, and count hops.
    if chance(rng, 40) {
        let ip = if tagged { 18 } else { 14 };
        if ip6 {
            bytes[ip + 1] |= 0x30;
            bytes[ip + 7] = rng.random();
        } else {
            bytes[ip + 1] |= 3;
            bytes[ip + 8] = rng.random();
            fix_checksum(&mut bytes);
        }
    }
    bytes
}

/// Spoils a frame in one of many ways.
fn spoil(rng: &mut ChaCha8Rng, frame: Vec<u8>) -> Arrival {
    let mut arrival = Arrival::good(frame);
    let at = mprdma_spec::wire::frame::locate(&arrival.bytes).unwrap();
    let bytes = &mut arrival.bytes;
    let ip6 = at.udp - at.ip == ipv6::LEN;
    let mut fix = true;
    match rng.random_range(0..22) {
        0 => bytes[rng.random_range(0..6)] ^= 1 << rng.random_range(0..8),
        1 => bytes[12 + rng.random_range(0..2)] ^= 1 << rng.random_range(0..8),
        2 => bytes[at.ip - 1] ^= 1 << rng.random_range(0..8),
        3 => bytes[at.ip] ^= 1 << rng.random_range(0..8),
        // Lengths, flags, fragment offset, protocol, addresses.
        4 | 5 => bytes[at.ip + rng.random_range(1..20)] ^= 1 << rng.random_range(0..8),
        6 | 7 => bytes[at.udp + rng.random_range(2..6)] ^= 1 << rng.random_range(0..8),
        // Opcode, pad, version.
        8 | 9 => bytes[at.bth + rng.random_range(0..2)] ^= 1 << rng.random_range(0..8),
        10 => bytes[at.bth] = rng.random(),
        11 => bytes[at.bth + 1] ^= 0x10 << rng.random_range(0..2),
        12 => {
            let len = rng.random_range(1..bytes.len());
            bytes.truncate(len);
        }
        13 => {
            let more = rng.random_range(1..80);
            bytes.extend(noise(rng, more));
        }
        // A runt.
        14 => {
            let len = rng.random_range(1..70);
            bytes.resize(len, 0x55);
        }
        // A giant, with lengths to match.
        15 => {
            let more = 4 * rng.random_range(1000..2500);
            bytes.extend(noise(rng, more));
            let grown = bytes.len() - at.udp;
            if ip6 {
                ipv6::PAYLOAD_LEN.set(&mut bytes[at.ip..], grown as u64);
            } else {
                ipv4::TOTAL_LEN.set(&mut bytes[at.ip..], (grown + ipv4::LEN) as u64);
            }
            udp::LENGTH.set(&mut bytes[at.udp..], grown as u64);
        }
        // Shorter packet, all lengths right.
        16 | 17 => {
            let len = at.udp + 8 + rng.random_range(0..bytes.len() - at.udp - 8);
            bytes.truncate(len);
            let left = len - at.udp;
            if ip6 {
                ipv6::PAYLOAD_LEN.set(&mut bytes[at.ip..], left as u64);
            } else {
                ipv4::TOTAL_LEN.set(&mut bytes[at.ip..], (left + ipv4::LEN) as u64);
            }
            udp::LENGTH.set(&mut bytes[at.udp..], left as u64);
        }
        18 => arrival.bad = true,
        19 => {
            let beats = bytes.len().div_ceil(64);
            let beat = rng.random_range(0..beats);
            let lanes = if beat + 1 == beats {
                bytes.len() - 64 * beat
            } else {
                64
            };
            arrival.hole = Some((beat, rng.random_range(0..lanes)));
            // A hole at the end of the last beat is only a shorter frame.
            if beat + 1 == beats && arrival.hole == Some((beat, lanes - 1)) {
                arrival.hole = None;
            }
        }
        20 => {
            *bytes = noise(rng, bytes.len());
            if rng.random() {
                bytes[..6].copy_from_slice(&OUR_MAC);
            }
        }
        _ => {
            let i = rng.random_range(0..bytes.len());
            bytes[i] ^= 1 << rng.random_range(0..8);
            fix = false;
        }
    }
    if fix && chance(rng, 70) {
        fix_checksum(bytes);
        if chance(rng, 80) {
            fix_icrc(bytes);
        }
    }
    arrival
}

/// The parser with everything around it.
pub struct Bench {
    pub dut: VerilatedBlock,
    beats: VecDeque<(Vec<u8>, u64, bool, bool)>,
    pub metas: VecDeque<(u64, Meta)>,
    pub frames: VecDeque<Seen>,
    open: Vec<u8>,
    /// Frames in, malformed, not ours, ICRC, full.
    pub counts: [u64; 5],
    pub bytes: u64,
    pub cycle: u64,
    /// Percentages with which beats come, and `meta` and `frame` are taken.
    pub rates: [u32; 3],
}

impl Bench {
    pub fn new<const BUFW: usize>(slots: usize) -> Self {
        let mut dut = verilated(&format!("rx_parse_{slots}_{BUFW}"), move || {
            RxParse::<BUFW>::new(slots)
        });
        let mut mac = [0; 8];
        mac[..6].copy_from_slice(&OUR_MAC);
        dut.inputs().set("mac", u64::from_le_bytes(mac));
        Self {
            dut,
            beats: VecDeque::new(),
            metas: VecDeque::new(),
            frames: VecDeque::new(),
            open: vec![],
            counts: [0; 5],
            bytes: 0,
            cycle: 0,
            rates: [100; 3],
        }
    }

    pub fn push(&mut self, arrival: &Arrival) {
        let count = arrival.bytes.len().div_ceil(64);
        for (i, chunk) in arrival.bytes.chunks(64).enumerate() {
            let mut keep = u64::MAX >> (64 - chunk.len());
            if let Some((beat, lane)) = arrival.hole {
                if beat == i {
                    keep &= !(1 << lane);
                }
            }
            let last = i + 1 == count;
            self.beats
                .push_back((chunk.to_vec(), keep, last, arrival.bad && last));
        }
    }

    pub fn step(&mut self, rng: &mut ChaCha8Rng) {
        let [beat, meta, frame] = self.rates.map(|rate| chance(rng, rate));
        let inputs = self.dut.inputs();
        inputs.set("s_axis_rx_tvalid", 0);
        if beat {
            if let Some((mut data, keep, last, bad)) = self.beats.pop_front() {
                // Lanes behind the end are noise.
                while data.len() < 64 {
                    data.push(rng.random());
                }
                inputs.set("s_axis_rx_tvalid", 1);
                inputs.set_bytes("s_axis_rx_tdata", &data);
                inputs.set("s_axis_rx_tkeep", keep);
                inputs.set("s_axis_rx_tlast", last.into());
                inputs.set("s_axis_rx_tuser", bad.into());
            }
        }
        inputs.set("meta_ready", meta.into());
        inputs.set("frame_ready", frame.into());
        let out = self.dut.cycle().expect("a cycle");
        if meta && out.bit("meta_valid") {
            self.metas
                .push_back((self.cycle, Meta::of_bytes(out.get_bytes("meta"))));
        }
        if frame && out.bit("frame_valid") {
            let beat = out.get_bytes("frame");
            let nbytes = usize::from(beat[64] & 0x7f);
            let last = beat[64] >> 7 == 1;
            assert!(nbytes > 0 && (last || nbytes == 64));
            self.open.extend(&beat[..nbytes]);
            if last {
                let bytes = std::mem::take(&mut self.open);
                self.frames.push_back(Seen {
                    bytes,
                    first: self.cycle,
                    last: self.cycle,
                });
            }
        }
        let names = [
            "cnt_rx_frames",
            "cnt_rx_drop_malformed",
            "cnt_rx_drop_not_ours",
            "cnt_rx_drop_icrc",
            "cnt_rx_drop_full",
        ];
        for (count, name) in self.counts.iter_mut().zip(names) {
            *count += out.get(name);
        }
        self.bytes += out.get("cnt_rx_bytes");
        self.cycle += 1;
    }

    pub fn drain(&mut self, rng: &mut ChaCha8Rng) {
        for _ in 0..1_000_000 {
            if self.beats.is_empty() {
                break;
            }
            self.step(rng);
        }
        self.rates = [100; 3];
        for _ in 0..30 {
            self.step(rng);
        }
        for _ in 0..5000 {
            self.step(rng);
            if !self.dut.outputs().bit("busy") {
                return;
            }
        }
        panic!("busy with nothing to do");
    }
}

/// Feeds `arrivals` and compares with the reference. With `may_be_full` some good frames may be missing.
fn compare(
    bench: &mut Bench,
    rng: &mut ChaCha8Rng,
    slots: usize,
    arrivals: &[Arrival],
    may_be_full: bool,
) {
    bench.counts = [0; 5];
    bench.bytes = 0;
    for arrival in arrivals {
        bench.push(arrival);
    }
    bench.drain(rng);
    let mut wanted = [arrivals.len() as u64, 0, 0, 0, 0];
    for (i, arrival) in arrivals.iter().enumerate() {
        match arrival.fate(slots) {
            Fate::Malformed => wanted[1] += 1,
            Fate::NotOurs => wanted[2] += 1,
            Fate::Icrc => wanted[3] += 1,
            Fate::Good(meta) => {
                if may_be_full && bench.metas.front().is_none_or(|(_, got)| *got != meta) {
                    wanted[4] += 1;
                    continue;
                }
                let (_, got) = bench.metas.pop_front().expect("a meta");
                assert_eq!(got, meta, "frame {i}: {:02x?}", arrival.bytes);
                if meta.stored {
                    let frame = bench.frames.pop_front().expect("a stored frame");
                    assert_eq!(frame.bytes, arrival.bytes, "frame {i}");
                }
            }
        }
    }
    println!("frames, malformed, not ours, ICRC, full: {wanted:?}");
    assert!(
        bench.metas.is_empty() && bench.frames.is_empty(),
        "something left over"
    );
    assert_eq!(bench.counts, wanted);
    if arrivals.iter().all(|arrival| arrival.hole.is_none()) {
        assert_eq!(
            bench.bytes,
            arrivals.iter().map(|a| a.bytes.len() as u64).sum::<u64>()
        );
    }
}

#[test]
fn good_frames_pass_back_to_back() {
    for slots in [64, 128] {
        let mut rng = rng(100 + slots as u64);
        let mut bench = Bench::new::<10>(slots);
        let arrivals: Vec<_> = (0..1500)
            .map(|_| Arrival::good(good_frame(&mut rng, slots)))
            .collect();
        compare(&mut bench, &mut rng, slots, &arrivals, false);
    }
}

#[test]
fn bad_frames_are_counted_and_touch_no_neighbour() {
    let mut rng = rng(7);
    let mut bench = Bench::new::<10>(128);
    for round in 0..6 {
        bench.rates = if round % 2 == 0 {
            [100, 100, 100]
        } else {
            [60, 100, 100]
        };
        let arrivals: Vec<_> = (0..1500)
            .map(|_| {
                let frame = good_frame(&mut rng, 128);
                if chance(&mut rng, 60) {
                    spoil(&mut rng, frame)
                } else {
                    Arrival::good(frame)
                }
            })
            .collect();
        compare(&mut bench, &mut rng, 128, &arrivals, false);
    }
}

/// A frame of each kind of ATOMIC, cut or grown to every length from BTH to a payload behind the headers.
#[test]
fn section_7_atomic_headers_of_every_length() {
    let mut rng = rng(12);
    let mut bench = Bench::new::<10>(128);
    let mut arrivals = vec![];
    let mut stored = 0;
    for code in [
        opcode::MP_COMPARE_SWAP,
        opcode::MP_FETCH_ADD,
        opcode::MP_ATOMIC_ACK,
    ] {
        for kind in 0..4 {
            for length in (0..80).step_by(2) {
                let (ip6, tagged) = (kind & 1 == 1, kind & 2 == 2);
                let mut peer = Peer::random(&mut rng, ip6, tagged);
                peer.dmac = OUR_MAC;
                let mut cmd = random_packet(&mut rng, 4);
                cmd.opcode = bits(code.into());
                let mut bytes = Wanted::Data {
                    peer,
                    cmd,
                    payload: vec![],
                    poisoned: false,
                }
                .bytes(rng.random());
                let at = mprdma_spec::wire::frame::locate(&bytes).unwrap();
                bytes.truncate(at.icrc);
                bytes.resize(at.bth + bth::LEN + length, rng.random());
                bytes.extend([0; icrc::LEN]);
                let datagram = bytes.len() - at.udp;
                if ip6 {
                    ipv6::PAYLOAD_LEN.set(&mut bytes[at.ip..], datagram as u64);
                } else {
                    ipv4::TOTAL_LEN.set(&mut bytes[at.ip..], (datagram + ipv4::LEN) as u64);
                }
                udp::LENGTH.set(&mut bytes[at.udp..], datagram as u64);
                fix_checksum(&mut bytes);
                fix_icrc(&mut bytes);
                let arrival = Arrival::good(bytes);
                let headers = mpeth::LEN
                    + match code {
                        opcode::MP_ATOMIC_ACK => atomicacketh::LEN,
                        _ => atomiceth::LEN,
                    };
                match arrival.fate(128) {
                    Fate::Good(meta) => {
                        assert!(length >= headers && length % 4 == 0);
                        assert_eq!(meta.length, length - headers);
                        stored += usize::from(meta.stored);
                    }
                    fate => {
                        assert_eq!(fate, Fate::Malformed);
                        assert!(length < headers || length % 4 != 0);
                    }
                }
                arrivals.push(arrival);
            }
        }
    }
    assert!(stored > 50, "only {stored} with a payload");
    compare(&mut bench, &mut rng, 128, &arrivals, false);
}

#[test]
fn runts_every_cycle() {
    let mut rng = rng(8);
    let mut bench = Bench::new::<10>(128);
    let mut arrivals = vec![];
    for length in 1..=64 {
        for _ in 0..4 {
            let mut frame = noise(&mut rng, length);
            if rng.random() {
                let n = length.min(6);
                frame[..n].copy_from_slice(&OUR_MAC[..n]);
            }
            arrivals.push(Arrival::good(frame));
        }
        arrivals.push(Arrival::good(good_frame(&mut rng, 128)));
    }
    compare(&mut bench, &mut rng, 128, &arrivals, false);
}

/// The MAC of another implementation sends an endless frame.
#[test]
fn a_frame_without_end_passes_by() {
    let mut rng = rng(9);
    let mut bench = Bench::new::<7>(128);
    let mut arrivals = vec![];
    for length in [9000, 65_535, 65_536, 200_000] {
        let mut frame = good_frame(&mut rng, 128);
        frame.resize(length, 0xaa);
        arrivals.push(Arrival::good(frame));
        arrivals.push(Arrival::good(good_frame(&mut rng, 128)));
    }
    compare(&mut bench, &mut rng, 128, &arrivals, false);
}

#[test]
fn a_full_buffer_drops_whole_frames() {
    let mut rng = rng(10);
    let mut bench = Bench::new::<7>(128);
    let mut dropped = 0;
    for round in 0..6 {
        bench.rates = match round % 3 {
            0 => [100, 100, 30],
            1 => [100, 3, 100],
            _ => [100, 20, 20],
        };
        let arrivals: Vec<_> = (0..400)
            .map(|_| {
                let frame = good_frame(&mut rng, 128);
                if chance(&mut rng, 20) {
                    spoil(&mut rng, frame)
                } else {
                    Arrival::good(frame)
                }
            })
            .collect();
        compare(&mut bench, &mut rng, 128, &arrivals, true);
        dropped += bench.counts[4];
    }
    assert!(dropped > 100, "only {dropped} frames met a full buffer");
}

#[test]
fn latency() {
    let mut rng = rng(11);
    let mut bench = Bench::new::<10>(128);
    for length in [0, 1024, 4096] {
        let mut peer = Peer::random(&mut rng, false, false);
        peer.dmac = OUR_MAC;
        let mut cmd = random_packet(&mut rng, 4);
        cmd.opcode = bits(opcode::MP_WRITE_ONLY.into());
        cmd.dma_length = bits(length as u64);
        let frame = Wanted::Data {
            peer,
            cmd,
            payload: noise(&mut rng, length),
            poisoned: false,
        }
        .bytes(5);
        let beats = frame.len().div_ceil(64) as u64;
        bench.push(&Arrival::good(frame));
        let begin = bench.cycle;
        bench.drain(&mut rng);
        let (at, _) = bench.metas.pop_front().unwrap();
        println!(
            "payload {length}: meta {} cycles after the last of {beats} beats",
            at - (begin + beats - 1)
        );
    }
}

#[test]
fn lint_is_clean() {
    mprdma_hw::with_big_stack(|| {
        let mut block = RxParse::<10>::new(128);
        block.connect_all();
        let report = mprdma_hw::lint::lint(&block, "rx_parse").expect("the tools run");
        assert!(report.is_clean(), "{report}");
    });
}
