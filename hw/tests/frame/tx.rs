//! The frame builder: commands in, frames compared with those of `spec::wire`.

use crate::support::{bytes_of, chance, noise, rng, verilated, wide, Mac, Seen, Source};
use mprdma_hw::cosim::VerilatedBlock;
use mprdma_hw::leaf::Beat;
use mprdma_hw::nic::tx_build::TxBuild;
use mprdma_hw::nic::types::{AckCmd, CfgReq, PacketCmd};
use mprdma_hw::prelude::*;
use mprdma_spec::command::{qp_image, Opcode, MASK_ADDRESS, MASK_STATE};
use mprdma_spec::wire::bth::opcode::{self, shape};
use mprdma_spec::wire::frame::{Address, Body, Extensions, Tag, Transport};
use mprdma_spec::wire::{
    aeth, atomicacketh, atomiceth, icrc, ipv4, mpaeth, mpeth, reth, Frame, Psn, SackMap,
};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::collections::VecDeque;

pub const OUR_MAC: [u8; 6] = [0x02, 0x11, 0x22, 0x33, 0x44, 0x55];

/// Whom a QP talks to.
#[derive(Clone, Debug)]
pub struct Peer {
    pub dmac: [u8; 6],
    pub ip6: bool,
    pub tag: Option<u16>,
    pub traffic_class: u8,
    pub hop_limit: u8,
    pub flow_label: u32,
    pub sgid: [u8; 16],
    pub dgid: [u8; 16],
    pub dqpn: u32,
    pub pkey: u16,
}

impl Peer {
    pub fn random(rng: &mut ChaCha8Rng, ip6: bool, tagged: bool) -> Self {
        Self {
            dmac: rng.random(),
            ip6,
            tag: tagged.then(|| rng.random()),
            traffic_class: rng.random(),
            hop_limit: rng.random(),
            flow_label: rng.random_range(0..1 << 20),
            sgid: rng.random(),
            dgid: rng.random(),
            dqpn: rng.random_range(0..1 << 24),
            pkey: rng.random(),
        }
    }

    pub fn image(&self, mask: u64) -> [u8; qp_image::BYTES] {
        let mut image = [0; qp_image::BYTES];
        let mut mac = [0; 8];
        mac[..6].copy_from_slice(&self.dmac);
        qp_image::MASK.set(&mut image, mask);
        qp_image::DMAC.set(&mut image, u64::from_le_bytes(mac));
        qp_image::PORT_FLAGS.set(
            &mut image,
            u64::from(self.ip6) | u64::from(self.tag.is_some()) << 1,
        );
        qp_image::TRAFFIC_CLASS.set(&mut image, self.traffic_class.into());
        qp_image::VLAN_TCI.set(&mut image, self.tag.unwrap_or(0xdead).into());
        qp_image::HOP_LIMIT.set(&mut image, self.hop_limit.into());
        qp_image::FLOW_LABEL.set(&mut image, self.flow_label.into());
        image[qp_image::SGID.lsb / 8..][..16].copy_from_slice(&self.sgid);
        image[qp_image::DGID.lsb / 8..][..16].copy_from_slice(&self.dgid);
        qp_image::DEST_QPN.set(&mut image, self.dqpn.into());
        qp_image::PKEY.set(&mut image, self.pkey.into());
        image
    }

    pub fn frame<'a>(
        &self,
        ecn: u8,
        src_port: u16,
        code: u8,
        psn: u32,
        ack_req: bool,
        body: Body<'a>,
    ) -> Frame<'a> {
        let half = |gid: &[u8; 16]| [gid[12], gid[13], gid[14], gid[15]];
        Frame {
            dst_mac: self.dmac,
            src_mac: OUR_MAC,
            tag: self.tag.map(|tci| Tag {
                pcp: (tci >> 13) as u8,
                dei: tci >> 12 & 1 == 1,
                vid: tci & 0xfff,
            }),
            address: if self.ip6 {
                Address::V6 {
                    src: self.sgid,
                    dst: self.dgid,
                    flow_label: self.flow_label,
                }
            } else {
                Address::V4 {
                    src: half(&self.sgid),
                    dst: half(&self.dgid),
                    id: 0,
                    dont_fragment: true,
                }
            },
            dscp: self.traffic_class >> 2,
            ecn,
            hop_limit: self.hop_limit,
            src_port,
            bth: Transport {
                opcode: code,
                solicited: false,
                migrated: false,
                pkey: self.pkey,
                fecn: false,
                becn: false,
                dqpn: self.dqpn,
                ack_req,
                psn: Psn::new(psn),
            },
            body,
        }
    }
}

/// What the frame of a command must be.
#[derive(Clone, Debug)]
pub enum Wanted {
    Data {
        peer: Peer,
        cmd: PacketCmd,
        payload: Vec<u8>,
        poisoned: bool,
    },
    Ack {
        peer: Peer,
        cmd: AckCmd,
        slots: usize,
    },
}

pub fn emit(frame: &Frame) -> Vec<u8> {
    let mut bytes = vec![0; frame.wire_len()];
    assert_eq!(frame.emit(&mut bytes), Ok(bytes.len()), "{frame:?}");
    bytes
}

impl Wanted {
    /// The frame, with the time stamp that the builder gave to a data packet.
    pub fn bytes(&self, stamp: u16) -> Vec<u8> {
        match self {
            Self::Data {
                peer,
                cmd,
                payload,
                poisoned,
            } => {
                let code = cmd.opcode.to_u8();
                let shape = shape(code).unwrap();
                let mpeth = mpeth::Repr {
                    flags: cmd.flags.to_u8(),
                    wsn: cmd.wsn.to_u32(),
                    offset: cmd.offset.to_u16(),
                    stamp,
                };
                let reth = reth::Repr {
                    va: cmd.raddr.to_u64(),
                    rkey: cmd.rkey.to_u32(),
                    length: cmd.dma_length.to_u32(),
                };
                let body = if opcode::is_mp_write(code) {
                    Body::MpWrite {
                        mpeth,
                        reth,
                        imm: shape.imm.then(|| cmd.imm.to_u32().swap_bytes()),
                        payload,
                    }
                } else {
                    Body::Other {
                        extensions: Extensions {
                            mpeth: Some(mpeth),
                            reth: shape.reth.then_some(reth),
                            atomic: shape.atomic.then(|| atomiceth::Repr {
                                va: cmd.raddr.to_u64(),
                                rkey: cmd.rkey.to_u32(),
                                swap_add: cmd.swap_add.to_u64(),
                                compare: cmd.compare.to_u64(),
                            }),
                            atomic_ack: shape.atomic_ack.then(|| atomicacketh::Repr {
                                original: cmd.swap_add.to_u64(),
                            }),
                            ..Extensions::default()
                        },
                        payload,
                    }
                };
                let mut bytes = emit(&peer.frame(
                    ipv4::ECT0,
                    cmd.vp.to_u16(),
                    code,
                    cmd.psn.to_u32(),
                    true,
                    body,
                ));
                if *poisoned {
                    let at = bytes.len() - icrc::LEN;
                    bytes[at..].iter_mut().for_each(|byte| *byte = !*byte);
                }
                bytes
            }
            Self::Ack { peer, cmd, slots } => {
                let flags = cmd.flags.to_u8();
                let map = (flags & mpaeth::FLAG_SACK_MAP != 0).then(|| {
                    let mut map = SackMap::new(*slots).unwrap();
                    (0..*slots)
                        .filter(|&i| cmd.map.get_bit(i))
                        .for_each(|i| map.insert(i));
                    map
                });
                let body = Body::MpAck {
                    aeth: aeth::Repr {
                        syndrome: aeth::Syndrome::from_byte(cmd.syndrome.to_u8()).unwrap(),
                        msn: Psn::new(cmd.msn.to_u32()),
                    },
                    mpaeth: mpaeth::Repr {
                        flags,
                        aack: Psn::new(cmd.aack.to_u32()),
                        vp_echo: cmd.vp.to_u16(),
                        stamp_echo: cmd.stamp.to_u16(),
                    },
                    map,
                };
                emit(&peer.frame(
                    ipv4::NOT_ECT,
                    cmd.vp.to_u16(),
                    opcode::MP_ACK,
                    cmd.sack.to_u32(),
                    false,
                    body,
                ))
            }
        }
    }
}

/// The opcodes of packets that the card sends as data.
pub const DATA: [u8; 14] = [
    opcode::MP_WRITE_FIRST,
    opcode::MP_WRITE_MIDDLE,
    opcode::MP_WRITE_LAST,
    opcode::MP_WRITE_LAST_IMM,
    opcode::MP_WRITE_ONLY,
    opcode::MP_WRITE_ONLY_IMM,
    opcode::MP_READ_REQUEST,
    opcode::MP_READ_RESPONSE_FIRST,
    opcode::MP_READ_RESPONSE_MIDDLE,
    opcode::MP_READ_RESPONSE_LAST,
    opcode::MP_READ_RESPONSE_ONLY,
    opcode::MP_ATOMIC_ACK,
    opcode::MP_COMPARE_SWAP,
    opcode::MP_FETCH_ADD,
];

/// Whether the opcode is of a packet that the card sends as data.
pub fn is_data(code: u8) -> bool {
    DATA.contains(&code)
}

/// A random data packet, without length and marker.
pub fn random_packet(rng: &mut ChaCha8Rng, qps: u64) -> PacketCmd {
    PacketCmd {
        qpn: bits(rng.random_range(0..qps)),
        vp: bits(rng.random::<u16>().into()),
        psn: bits(rng.random_range(0..1 << 24)),
        opcode: bits(DATA[rng.random_range(0..DATA.len())].into()),
        flags: bits(rng.random_range(0..16)),
        wsn: bits(rng.random_range(0..1 << 24)),
        offset: bits(rng.random::<u16>().into()),
        raddr: bits(rng.random()),
        rkey: bits(rng.random::<u32>().into()),
        length: bits(0),
        dma_length: bits(rng.random::<u32>().into()),
        imm: bits(rng.random::<u32>().into()),
        swap_add: bits(rng.random()),
        compare: bits(rng.random()),
        marker: false,
    }
}

/// A payload length that the opcode may have; short ones and those around beat boundaries are frequent.
pub fn random_length(rng: &mut ChaCha8Rng, code: u8) -> usize {
    let length = match rng.random_range(0..10) {
        0 => 0,
        1..6 => rng.random_range(0..200),
        6..9 => 64 * rng.random_range(1..9) + rng.random_range(0..8) - 4,
        _ => *[256, 1024, 4096, 4095, 4093]
            .get(rng.random_range(0..5usize))
            .unwrap(),
    };
    if !shape(code).unwrap().payload {
        0
    } else if shape(code).unwrap().more {
        length & !3
    } else {
        length
    }
}

/// A random ACK or NAK.
pub fn random_ack(rng: &mut ChaCha8Rng, qps: u64) -> AckCmd {
    AckCmd {
        qpn: bits(rng.random_range(0..qps)),
        sack: bits(rng.random_range(0..1 << 24)),
        aack: bits(rng.random_range(0..1 << 24)),
        msn: bits(rng.random_range(0..1 << 24)),
        syndrome: bits([0x1f, 0x25, 0x60, 0x61, 0x62, 0x63][rng.random_range(0..6)]),
        flags: bits(rng.random_range(0..32)),
        vp: bits(rng.random::<u16>().into()),
        stamp: bits(rng.random::<u16>().into()),
        map: wide(rng.random()),
    }
}

/// The builder with everything around it.
pub struct Bench {
    pub dut: VerilatedBlock,
    pub slots: usize,
    pub cycle: u64,
    packets: Source,
    payloads: Source,
    acks: Source,
    pub mac: Mac,
    pub wanted_packets: VecDeque<Wanted>,
    pub wanted_acks: VecDeque<Wanted>,
    pub errors: Vec<u16>,
    pub markers: Vec<(u16, usize)>,
    pub frames: usize,
    counts: [u64; 6],
    pub peers: Vec<Peer>,
    /// Percentages with which each input offers and the port accepts.
    pub rates: [u32; 4],
}

impl Bench {
    pub fn new(name: &str, slots: usize) -> Self {
        let mut dut = verilated(name, move || TxBuild::<8>::new(slots));
        let mut mac = [0; 8];
        mac[..6].copy_from_slice(&OUR_MAC);
        dut.inputs().set("mac", u64::from_le_bytes(mac));
        dut.inputs().set("error_ready", 1);
        Self {
            dut,
            slots,
            cycle: 0,
            packets: Source::new("packet"),
            payloads: Source::new("payload"),
            acks: Source::new("ack"),
            mac: Mac::default(),
            wanted_packets: VecDeque::new(),
            wanted_acks: VecDeque::new(),
            errors: vec![],
            markers: vec![],
            frames: 0,
            counts: [0; 6],
            peers: vec![],
            rates: [100; 4],
        }
    }

    fn tick(&self) -> u32 {
        (self.cycle / 16) as u32 + 0xfff0
    }

    /// One cycle. Random numbers say who offers and accepts.
    pub fn step(&mut self, rng: &mut ChaCha8Rng) {
        let tick = self.tick();
        let [packets, payloads, acks, port] = self.rates.map(|rate| chance(rng, rate));
        let inputs = self.dut.inputs();
        inputs.set("tick", tick.into());
        self.packets.drive(inputs, packets);
        self.payloads.drive(inputs, payloads);
        self.acks.drive(inputs, acks);
        inputs.set("m_axis_tx_tready", port.into());
        let outputs = self.dut.cycle().expect("a cycle");
        self.packets.sample(outputs);
        self.payloads.sample(outputs);
        self.acks.sample(outputs);
        self.mac.sample(outputs, port, self.cycle);
        if outputs.bit("error_valid") {
            self.errors.push(outputs.get("error") as u16);
        }
        if outputs.bit("tx_marker") {
            self.markers.push((
                outputs.get("tx_marker_qpn") as u16,
                self.frames + self.mac.frames.len(),
            ));
        }
        let names = [
            "cnt_tx_frames",
            "cnt_tx_bytes",
            "cnt_tx_data_packets",
            "cnt_tx_acks",
            "cnt_tx_retransmissions",
            "cnt_dma_read_errors",
        ];
        for (count, name) in self.counts.iter_mut().zip(names) {
            *count += outputs.get(name);
        }
        self.cycle += 1;
    }

    /// Gives a QP its peer through the configuration bus.
    pub fn configure(
        &mut self,
        rng: &mut ChaCha8Rng,
        op: Opcode,
        qpn: usize,
        peer: &Peer,
        mask: u64,
    ) {
        let request = CfgReq {
            op: bits(op as u64),
            index: bits(qpn as u64),
            image: mprdma_hw::leaf::beat::bits_of_bytes(&peer.image(mask)),
        };
        self.dut.inputs().set_bytes("cfg", &bytes_of(request));
        self.dut.inputs().set("cfg_valid", 1);
        let mut done = 0;
        for _ in 0..8 {
            self.step(rng);
            done += u32::from(self.dut.outputs().bit("cfg_done"));
        }
        assert_eq!(done, 1, "answers");
        self.dut.inputs().set("cfg_valid", 0);
        self.step(rng);
    }

    /// One peer of every kind.
    pub fn make_peers(&mut self, rng: &mut ChaCha8Rng) {
        for qpn in 0..4 {
            let peer = Peer::random(rng, qpn & 1 == 1, qpn & 2 == 2);
            self.configure(rng, Opcode::CreateQp, qpn, &peer, 0);
            self.peers.push(peer);
        }
    }

    pub fn send(&mut self, mut cmd: PacketCmd, payload: Vec<u8>, error: bool) {
        cmd.length = bits(payload.len() as u64);
        if opcode::is_mp_write(cmd.opcode.to_u8()) {
            cmd.dma_length = bits(payload.len() as u64);
        }
        self.packets
            .items
            .push_back(vec![("packet", bytes_of(cmd))]);
        for beat in Beat::of_packet(&payload) {
            let mut beat = beat;
            // Bytes behind the end are noise.
            if beat.nbytes.index() < 64 {
                beat.data = beat.data | Bits::<512>::mask() << (8 * beat.nbytes.index()) as u64;
            }
            let error = vec![u8::from(error && beat.last)];
            self.payloads
                .items
                .push_back(vec![("payload", bytes_of(beat)), ("payload_err", error)]);
        }
        let peer = self.peers[cmd.qpn.index()].clone();
        self.wanted_packets.push_back(Wanted::Data {
            peer,
            cmd,
            payload,
            poisoned: error,
        });
    }

    pub fn mark(&mut self, qpn: u16) {
        let cmd = PacketCmd {
            qpn: bits(qpn.into()),
            marker: true,
            ..PacketCmd::default()
        };
        self.packets
            .items
            .push_back(vec![("packet", bytes_of(cmd))]);
    }

    pub fn answer(&mut self, cmd: AckCmd) {
        self.acks.items.push_back(vec![("ack", bytes_of(cmd))]);
        let peer = self.peers[cmd.qpn.index()].clone();
        self.wanted_acks.push_back(Wanted::Ack {
            peer,
            cmd,
            slots: self.slots,
        });
    }

    /// Takes the frames that have left and compares them.
    pub fn check(&mut self) -> Vec<Seen> {
        let mut seen = vec![];
        while let Some(frame) = self.mac.frames.pop_front() {
            let parsed =
                Frame::parse(&frame.bytes).unwrap_or_else(|e| panic!("{e}: {:02x?}", frame.bytes));
            let mpeth = match parsed.body {
                Body::MpWrite { mpeth, .. } => Some(mpeth),
                Body::Other { extensions, .. } => extensions.mpeth,
                _ => None,
            };
            let wanted = if let Some(mpeth) = mpeth {
                let age = (self.tick() as u16).wrapping_sub(mpeth.stamp);
                assert!(age < 1000, "stamped {age} ticks ago");
                self.wanted_packets
                    .pop_front()
                    .expect("no more data")
                    .bytes(mpeth.stamp)
            } else {
                self.wanted_acks.pop_front().expect("no more ACKs").bytes(0)
            };
            assert_eq!(frame.bytes, wanted, "frame {}", self.frames);
            self.frames += 1;
            seen.push(frame);
        }
        seen
    }

    /// Runs until all that was commanded has left.
    pub fn drain(&mut self, rng: &mut ChaCha8Rng) -> Vec<Seen> {
        let mut seen = vec![];
        for _ in 0..200_000 {
            if self.wanted_packets.is_empty()
                && self.wanted_acks.is_empty()
                && self.packets.items.is_empty()
            {
                break;
            }
            self.step(rng);
            seen.extend(self.check());
        }
        assert!(
            self.wanted_packets.is_empty() && self.wanted_acks.is_empty(),
            "stuck"
        );
        for _ in 0..60 {
            self.step(rng);
        }
        assert!(!self.dut.outputs().bit("busy"), "busy with nothing to do");
        seen
    }
}

#[test]
fn every_kind_of_frame_is_what_the_codec_emits() {
    for slots in [64, 128] {
        let mut rng = rng(slots as u64);
        let mut bench = Bench::new(&format!("tx_build_{slots}"), slots);
        bench.make_peers(&mut rng);
        let (mut poisoned, mut data, mut acks, mut retx) = (vec![], 0, 0, 0);
        let mut bytes = 0;
        for round in 0..300 {
            if round % 20 == 0 {
                bench.rates = match round / 20 % 4 {
                    0 => [100; 4],
                    1 => [50, 100, 30, 100],
                    2 => [100, 40, 100, 100],
                    _ => [100, 100, 20, 30],
                };
            }
            for _ in 0..4 {
                if chance(&mut rng, 60) {
                    let cmd = random_packet(&mut rng, 4);
                    let length = random_length(&mut rng, cmd.opcode.to_u8());
                    let payload = noise(&mut rng, length);
                    let error = length > 0 && chance(&mut rng, 5);
                    if error {
                        poisoned.push(cmd.qpn.to_u16());
                    }
                    data += 1;
                    retx += u64::from(cmd.flags.get_bit(0));
                    bench.send(cmd, payload, error);
                } else {
                    acks += 1;
                    bench.answer(random_ack(&mut rng, 4));
                }
            }
            for _ in 0..40 {
                bench.step(&mut rng);
                bytes += bench
                    .check()
                    .iter()
                    .map(|f| f.bytes.len() as u64)
                    .sum::<u64>();
            }
            if bench.wanted_packets.len() > 40 {
                bytes += bench
                    .drain(&mut rng)
                    .iter()
                    .map(|f| f.bytes.len() as u64)
                    .sum::<u64>();
            }
        }
        bytes += bench
            .drain(&mut rng)
            .iter()
            .map(|f| f.bytes.len() as u64)
            .sum::<u64>();
        assert_eq!(bench.errors, poisoned);
        assert_eq!(
            bench.counts,
            [data + acks, bytes, data, acks, retx, poisoned.len() as u64]
        );
        println!(
            "{} frames, {} cycles, {} poisoned",
            bench.frames,
            bench.cycle,
            poisoned.len()
        );
    }
}

/// The three packets of ATOMIC over each kind of network, every byte between BTH and ICRC where the wire format has it.
#[test]
fn section_7_atomic_headers_are_what_the_wire_format_says() {
    let mut rng = rng(8);
    let mut bench = Bench::new("tx_build_128", 128);
    bench.make_peers(&mut rng);
    for qpn in 0..4 {
        for (code, behind_mpeth) in [
            (
                opcode::MP_COMPARE_SWAP,
                "0123456789abcdeffeedf00d1122334455667788a1a2a3a4a5a6a7a8",
            ),
            (
                opcode::MP_FETCH_ADD,
                "0123456789abcdeffeedf00d1122334455667788a1a2a3a4a5a6a7a8",
            ),
            (opcode::MP_ATOMIC_ACK, "1122334455667788"),
        ] {
            let mut cmd = random_packet(&mut rng, 1);
            cmd.qpn = bits(qpn);
            cmd.opcode = bits(code.into());
            cmd.raddr = bits(0x0123_4567_89ab_cdef);
            cmd.rkey = bits(0xfeed_f00d);
            cmd.swap_add = bits(0x1122_3344_5566_7788);
            cmd.compare = bits(0xa1a2_a3a4_a5a6_a7a8);
            bench.send(cmd, vec![], false);
            let seen = &bench.drain(&mut rng)[0].bytes;
            let network = if qpn & 1 == 1 { 48 } else { 28 };
            let bth = 14 + if qpn & 2 == 2 { 4 } else { 0 } + network;
            assert_eq!(seen[bth], code);
            let hex: String = seen[bth + 20..seen.len() - icrc::LEN]
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            assert_eq!(hex, behind_mpeth, "opcode {code:#x} to QP {qpn}");
        }
    }
}

#[test]
fn modify_changes_the_address_only_when_asked() {
    let mut rng = rng(3);
    let mut bench = Bench::new("tx_build_128", 128);
    bench.make_peers(&mut rng);
    let other = Peer::random(&mut rng, true, false);
    bench.configure(&mut rng, Opcode::ModifyQp, 2, &other, MASK_STATE);
    bench.configure(&mut rng, Opcode::DestroyQp, 2, &other, MASK_ADDRESS);
    bench.configure(&mut rng, Opcode::QueryQp, 2, &other, MASK_ADDRESS);
    let mut ack = random_ack(&mut rng, 4);
    ack.qpn = bits(2);
    bench.answer(ack);
    bench.drain(&mut rng);
    bench.configure(&mut rng, Opcode::ModifyQp, 2, &other, MASK_ADDRESS);
    bench.peers[2] = other;
    bench.answer(ack);
    bench.drain(&mut rng);
    assert_eq!(bench.frames, 2);
}

#[test]
fn a_marker_comes_after_every_frame_before_it() {
    let mut rng = rng(4);
    let mut bench = Bench::new("tx_build_128", 128);
    bench.make_peers(&mut rng);
    bench.rates = [100, 30, 100, 40];
    for qpn in 0..20 {
        for _ in 0..3 {
            let cmd = random_packet(&mut rng, 4);
            let length = random_length(&mut rng, cmd.opcode.to_u8());
            let payload = noise(&mut rng, length);
            bench.send(cmd, payload, false);
        }
        bench.mark(qpn);
    }
    bench.drain(&mut rng);
    let wanted: Vec<_> = (0..20).map(|qpn| (qpn, 3 * (qpn as usize + 1))).collect();
    assert_eq!(bench.markers, wanted);
}

/// `held` rises with the third whole frame that waits, or with the second of 4 KiB.
#[test]
fn frames_that_queue_for_the_wire_hold_windows_back() {
    let mut rng = rng(6);
    let mut bench = Bench::new("tx_build_128", 128);
    bench.make_peers(&mut rng);
    for (length, frames, held) in [
        (1024, 2, false),
        (1024, 3, true),
        (64, 2, false),
        (64, 3, true),
        (4096, 1, false),
        (4096, 2, true),
    ] {
        bench.rates[3] = 0;
        for _ in 0..frames {
            let mut cmd = random_packet(&mut rng, 1);
            cmd.opcode = bits(opcode::MP_WRITE_MIDDLE.into());
            bench.send(cmd, noise(&mut rng, length), false);
        }
        for _ in 0..300 {
            bench.step(&mut rng);
        }
        assert_eq!(
            bench.dut.outputs().bit("held"),
            held,
            "{frames} frames with {length} bytes"
        );
        bench.rates[3] = 100;
        bench.drain(&mut rng);
        assert!(!bench.dut.outputs().bit("held"));
    }
}

/// Idle cycles per frame at full load, and cycles from the command to the first beat.
#[test]
fn full_rate() {
    let mut rng = rng(5);
    let mut bench = Bench::new("tx_build_128", 128);
    bench.make_peers(&mut rng);
    for (length, with_acks) in [
        (64, false),
        (256, false),
        (1024, false),
        (1024, true),
        (4096, false),
        (4096, true),
    ] {
        let mut cmd = random_packet(&mut rng, 1);
        cmd.opcode = bits(opcode::MP_WRITE_MIDDLE.into());
        let begin = bench.cycle;
        bench.send(cmd, noise(&mut rng, length), false);
        let latency = bench.drain(&mut rng)[0].first - begin;
        for _ in 0..50 {
            bench.send(cmd, noise(&mut rng, length), false);
            if with_acks {
                let ack = random_ack(&mut rng, 1);
                bench.answer(ack);
            }
        }
        let seen = bench.drain(&mut rng);
        // All ACKs overtake the data at once, so the whole run is counted.
        let beats: u64 = seen.iter().map(|f| f.bytes.len().div_ceil(64) as u64).sum();
        let cycles = seen.last().unwrap().last - seen[0].first + 1;
        let frames = seen.len() as u64;
        let idle = (cycles - beats) as f64 / frames as f64;
        let wire: u64 = seen.iter().map(|f| f.bytes.len() as u64 + 24).sum();
        println!(
            "payload {length}, ACKs {with_acks}: {beats} beats in {cycles} cycles, {idle:.2} idle cycles per frame, \
             {:.1} Gb/s of line at 250 MHz, first beat after {latency} cycles",
            wire as f64 * 8.0 / (cycles as f64 * 4.0)
        );
        assert!(idle <= 4.0, "{idle} idle cycles per frame");
    }
}

#[test]
fn lint_is_clean() {
    mprdma_hw::with_big_stack(|| {
        let mut block = TxBuild::<8>::new(128);
        block.connect_all();
        let report = mprdma_hw::lint::lint(&block, "tx_build").expect("the tools run");
        assert!(report.is_clean(), "{report}");
    });
}
