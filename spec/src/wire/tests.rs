//! Round trips, truncation and layouts of all headers and frames.

use super::frame::{Address, Body, Extensions, Tag, Transport};
use super::*;
use std::vec::Vec;

const HEADERS: &[Header] = &[
    ethernet::HEADER,
    vlan::HEADER,
    ipv4::HEADER,
    ipv6::HEADER,
    udp::HEADER,
    bth::HEADER,
    reth::HEADER,
    aeth::HEADER,
    immdt::HEADER,
    ieth::HEADER,
    atomiceth::HEADER,
    atomicacketh::HEADER,
    mpeth::HEADER,
    mpaeth::HEADER,
];

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
    fn below(&mut self, n: u64) -> u64 {
        self.word() % n
    }
    fn flag(&mut self) -> bool {
        self.word() & 1 == 1
    }
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        core::array::from_fn(|_| self.word() as u8)
    }
}

#[test]
fn fields_lie_inside_their_header_and_hold_their_bits() {
    for header in HEADERS {
        for field in header.fields {
            assert!(
                field.byte + field.span() <= header.len,
                "{} {}",
                header.name,
                field.name
            );
            let mut bytes = std::vec![0xa5; header.len];
            let before = bytes.clone();
            field.set(&mut bytes, 0x1234_5678_9abc_def1);
            assert_eq!(field.get(&bytes), 0x1234_5678_9abc_def1 & field.max());
            for i in 0..field.bits {
                let at = field.beat_bit(i);
                assert_eq!(
                    u64::from(bytes[at / 8] >> (at % 8) & 1),
                    field.get(&bytes) >> i & 1,
                    "{} {} bit {i}",
                    header.name,
                    field.name
                );
            }
            field.set(&mut bytes, field.get(&before));
            assert_eq!(
                bytes, before,
                "{} {} touched its neighbours",
                header.name, field.name
            );
        }
    }
}

#[test]
fn mp_headers_byte_for_byte() {
    let mut bytes = [0xff; 8];
    let mpeth = mpeth::Repr {
        flags: mpeth::FLAG_RETX | mpeth::FLAG_COMPLETION,
        wsn: 0x01_0203,
        offset: 0x0405,
        stamp: 0x0607,
    };
    assert_eq!(mpeth.emit(&mut bytes), Ok(()));
    assert_eq!(bytes, [0x09, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(mpeth::Repr::parse(&bytes), Ok(mpeth));

    let mpaeth = mpaeth::Repr {
        flags: mpaeth::FLAG_ECN_ECHO | mpaeth::FLAG_SACK_MAP,
        aack: Psn::new(0x0a_0b0c),
        vp_echo: 0xc0de,
        stamp_echo: 0xbeef,
    };
    assert_eq!(mpaeth.emit(&mut bytes), Ok(()));
    assert_eq!(bytes, [0x12, 0x0a, 0x0b, 0x0c, 0xc0, 0xde, 0xbe, 0xef]);
    assert_eq!(mpaeth::Repr::parse(&bytes), Ok(mpaeth));
    assert_eq!(
        [
            mpeth::FLAG_RETX,
            mpeth::FLAG_SYNC,
            mpeth::FLAG_TAIL,
            mpeth::FLAG_COMPLETION
        ],
        [1, 2, 4, 8]
    );
    assert_eq!(
        [
            mpaeth::FLAG_RETX_ECHO,
            mpaeth::FLAG_ECN_ECHO,
            mpaeth::FLAG_WINDOW_NAK,
            mpaeth::FLAG_SYNC_NAK,
            mpaeth::FLAG_SACK_MAP
        ],
        [1, 2, 4, 8, 16]
    );
}

#[test]
fn sack_map_of_bits_and_back() {
    for (slots, bits) in [(64, 1 << 63 | 0b110), (128, 1 << 127 | 1 << 64 | 2)] {
        let map = SackMap::from_bits(bits, slots).unwrap();
        assert_eq!((map.slots(), map.bits()), (slots, bits));
        assert!((0..slots).all(|i| map.get(i) == (bits >> i & 1 == 1)));
    }
    assert!(SackMap::from_bits(0, 0).is_err() && SackMap::from_bits(0, 96).is_err());
}

#[test]
fn sack_map_is_a_big_endian_integer() {
    for slots in [64, 128, 256] {
        let mut map = SackMap::new(slots).unwrap();
        map.insert(0);
        map.insert(9);
        map.insert(slots - 1);
        let mut bytes = [0; 32];
        map.emit(&mut bytes).unwrap();
        let len = slots / 8;
        assert_eq!(map.len(), len);
        assert_eq!(
            (bytes[0], bytes[len - 2], bytes[len - 1]),
            (0x80, 0x02, 0x01)
        );
        assert_eq!(SackMap::parse(&bytes[..len]), Ok(map));
        let set: Vec<_> = (0..300).filter(|i| map.get(*i)).collect();
        assert_eq!(set, [0, 9, slots - 1]);
    }
    for bad in [0, 8, 63, 65, 96, 512] {
        assert!(SackMap::new(bad).is_err(), "{bad}");
    }
}

#[test]
fn opcodes_and_syndromes_have_their_standard_codes() {
    use bth::opcode::*;
    assert_eq!([MP_WRITE_ONLY, MP_ACK, CNP], [0xca, 0xd1, 0x81]);
    assert_eq!(
        [
            MP_WRITE_FIRST,
            MP_WRITE_MIDDLE,
            MP_WRITE_LAST,
            MP_WRITE_LAST_IMM,
            MP_WRITE_ONLY_IMM
        ],
        [0xc6, 0xc7, 0xc8, 0xc9, 0xcb]
    );
    for (byte, syndrome) in [
        (0x1f, aeth::Syndrome::ACK),
        (0x2c, aeth::Syndrome::Rnr(12)),
        (0x60, aeth::Syndrome::Nak(aeth::Nak::PsnSequence)),
        (0x61, aeth::Syndrome::Nak(aeth::Nak::InvalidRequest)),
        (0x62, aeth::Syndrome::Nak(aeth::Nak::RemoteAccess)),
        (0x63, aeth::Syndrome::Nak(aeth::Nak::RemoteOperation)),
    ] {
        assert_eq!(aeth::Syndrome::from_byte(byte), Ok(syndrome));
    }
    for byte in 0..=255 {
        if let Ok(syndrome) = aeth::Syndrome::from_byte(byte) {
            assert_eq!(syndrome.byte(), byte);
        }
    }
}

const OPCODES: core::ops::RangeInclusive<u8> = 0..=255;

fn random_body<'a>(rng: &mut Rng, code: u8, buffer: &'a [u8]) -> Option<Body<'a>> {
    if code == bth::opcode::CNP {
        return Some(Body::Cnp);
    }
    let shape = bth::opcode::shape(code)?;
    let mut size = rng.below(buffer.len() as u64 + 1) as usize;
    if shape.more {
        size &= !3;
    }
    let payload = if shape.payload { &buffer[..size] } else { &[] };
    let mpeth = mpeth::Repr {
        flags: rng.word() as u8,
        wsn: rng.word() as u32 & 0xff_ffff,
        offset: rng.word() as u16,
        stamp: rng.word() as u16,
    };
    let mut reth = reth::Repr {
        va: rng.word(),
        rkey: rng.word() as u32,
        length: rng.word() as u32,
    };
    let imm = shape.imm.then(|| rng.word() as u32);
    let aeth = aeth::Repr {
        syndrome: aeth::Syndrome::Rnr(rng.word() as u8 & 31),
        msn: Psn::new(rng.word() as u32),
    };
    if bth::opcode::is_mp_write(code) {
        reth.length = size as u32;
        return Some(Body::MpWrite {
            mpeth,
            reth,
            imm,
            payload,
        });
    }
    if code == bth::opcode::MP_ACK {
        let map = rng.flag().then(|| {
            let mut map = SackMap::new(64 << rng.below(3)).unwrap();
            map.insert(rng.below(64) as usize);
            map
        });
        let flags = rng.word() as u8 & !mpaeth::FLAG_SACK_MAP;
        let mpaeth = mpaeth::Repr {
            flags: flags | map.map_or(0, |_| mpaeth::FLAG_SACK_MAP),
            aack: Psn::new(rng.word() as u32),
            vp_echo: rng.word() as u16,
            stamp_echo: rng.word() as u16,
        };
        return Some(Body::MpAck { aeth, mpaeth, map });
    }
    let extensions = Extensions {
        mpeth: shape.mpeth.then_some(mpeth),
        reth: shape.reth.then_some(reth),
        atomic: shape.atomic.then(|| atomiceth::Repr {
            va: rng.word(),
            rkey: rng.word() as u32,
            swap_add: rng.word(),
            compare: rng.word(),
        }),
        aeth: shape.aeth.then_some(aeth),
        atomic_ack: shape.atomic_ack.then(|| atomicacketh::Repr {
            original: rng.word(),
        }),
        imm,
        invalidate: shape.ieth.then(|| rng.word() as u32),
        ..Extensions::default()
    };
    Some(Body::Other {
        extensions,
        payload,
    })
}

fn random_frame<'a>(rng: &mut Rng, code: u8, payload: &'a [u8]) -> Option<Frame<'a>> {
    let body = random_body(rng, code, payload)?;
    let address = if rng.flag() {
        Address::V4 {
            src: rng.bytes(),
            dst: rng.bytes(),
            id: rng.word() as u16,
            dont_fragment: rng.flag(),
        }
    } else {
        Address::V6 {
            src: rng.bytes(),
            dst: rng.bytes(),
            flow_label: rng.word() as u32 & 0xf_ffff,
        }
    };
    Some(Frame {
        dst_mac: rng.bytes(),
        src_mac: rng.bytes(),
        tag: rng.flag().then(|| Tag {
            pcp: rng.below(8) as u8,
            dei: rng.flag(),
            vid: rng.below(4096) as u16,
        }),
        address,
        dscp: rng.below(64) as u8,
        ecn: rng.below(4) as u8,
        hop_limit: rng.word() as u8,
        src_port: rng.word() as u16,
        bth: Transport {
            opcode: code,
            solicited: rng.flag(),
            migrated: rng.flag(),
            pkey: rng.word() as u16,
            fecn: rng.flag(),
            becn: rng.flag(),
            dqpn: rng.word() as u32 & 0xff_ffff,
            ack_req: rng.flag(),
            psn: Psn::new(rng.word() as u32),
        },
        body,
    })
}

const SEED: u64 = 0x6d70_7264_6d61;

#[test]
fn every_packet_kind_survives_a_round_trip() {
    std::println!("seed {SEED:#x}");
    let mut rng = Rng(SEED);
    let payload: Vec<u8> = (0..4096).map(|i| (i * 7) as u8).collect();
    let mut bytes = [0xee; 4300];
    let mut kinds = 0;
    for code in OPCODES {
        for round in 0..40 {
            // Mostly short payloads, and sometimes up to the largest MTU.
            let most = if round % 8 == 0 { 4096 } else { 70 };
            let Some(frame) = random_frame(&mut rng, code, &payload[..most]) else {
                break;
            };
            kinds += usize::from(round == 0);
            let len = frame.emit(&mut bytes).unwrap();
            assert_eq!(len, frame.wire_len());
            assert_eq!(Frame::parse(&bytes[..len]), Ok(frame), "opcode {code:#x}");
            assert_eq!(icrc::check_icrc(&bytes[..len]), Ok(()));
            assert!(matches!(
                frame.emit(&mut bytes[..len - 1]),
                Err(WireError::Truncated { .. })
            ));
        }
    }
    assert_eq!(kinds, 47, "23 RC, 23 MP, CNP");
}

#[test]
fn a_cut_frame_is_an_error() {
    std::println!("seed {SEED:#x}");
    let mut rng = Rng(SEED);
    let payload = [0x5a; 70];
    let mut bytes = [0; 300];
    for code in OPCODES {
        for _ in 0..4 {
            let Some(frame) = random_frame(&mut rng, code, &payload) else {
                break;
            };
            let len = frame.emit(&mut bytes).unwrap();
            for cut in 0..len {
                assert!(
                    Frame::parse(&bytes[..cut]).is_err(),
                    "{code:#x} cut at {cut}"
                );
                assert!(icrc::icrc(&bytes[..cut]).is_err(), "{code:#x} cut at {cut}");
            }
        }
    }
}

/// The same, but with IP and UDP lengths that agree with the cut: the extension headers must be missed.
#[test]
fn a_cut_packet_with_honest_lengths_never_panics() {
    std::println!("seed {SEED:#x}");
    let mut rng = Rng(SEED);
    let payload = [0x5a; 70];
    let mut bytes = [0; 300];
    for code in OPCODES {
        for _ in 0..4 {
            let Some(frame) = random_frame(&mut rng, code, &payload) else {
                break;
            };
            let len = frame.emit(&mut bytes).unwrap();
            let at = frame::locate(&bytes[..len]).unwrap();
            for cut in at.udp + udp::LEN..len {
                let mut cut_frame = bytes[..cut].to_vec();
                shorten(&mut cut_frame, &at);
                if let Ok(parsed) = Frame::parse(&cut_frame) {
                    assert_eq!(parsed.wire_len(), cut, "{code:#x} cut at {cut}");
                }
            }
        }
    }
}

fn shorten(frame: &mut [u8], at: &frame::Envelope) {
    let ip_len = (frame.len() - at.ip) as u64;
    let udp_len = (frame.len() - at.udp) as u64;
    udp::LENGTH.set(&mut frame[at.udp..], udp_len);
    let ip = &mut frame[at.ip..at.udp];
    if ip.len() == ipv4::LEN {
        ipv4::TOTAL_LEN.set(ip, ip_len);
        ipv4::CHECKSUM.set(ip, 0);
        let sum = ipv4::checksum(ip);
        ipv4::CHECKSUM.set(ip, sum.into());
    } else {
        ipv6::PAYLOAD_LEN.set(ip, ip_len - ipv6::LEN as u64);
    }
}

#[test]
fn random_damage_never_panics() {
    std::println!("seed {SEED:#x}");
    let mut rng = Rng(SEED);
    let payload = [0x5a; 70];
    let mut bytes = [0; 300];
    for round in 0..20_000u64 {
        let Some(frame) = random_frame(&mut rng, (round % 256) as u8, &payload) else {
            continue;
        };
        let len = frame.emit(&mut bytes).unwrap();
        for _ in 0..=rng.below(3) {
            bytes[12 + rng.below(len as u64 - 12) as usize] = rng.word() as u8;
        }
        let _ = Frame::parse(&bytes[..len]);
        let _ = icrc::check_icrc(&bytes[..len]);
    }
}

/// An MP WRITE ONLY of 5 bytes, every byte written out.
fn small_write(payload: &[u8]) -> Frame<'_> {
    Frame {
        dst_mac: [2, 0, 0, 0, 0, 2],
        src_mac: [2, 0, 0, 0, 0, 1],
        tag: None,
        address: Address::V4 {
            src: [10, 0, 0, 1],
            dst: [10, 0, 0, 2],
            id: 0,
            dont_fragment: true,
        },
        dscp: 0,
        ecn: ipv4::ECT0,
        hop_limit: 64,
        src_port: 0xc001,
        bth: Transport {
            opcode: bth::opcode::MP_WRITE_ONLY,
            solicited: false,
            migrated: false,
            pkey: 0xffff,
            fecn: false,
            becn: false,
            dqpn: 0x12_3456,
            ack_req: true,
            psn: Psn::new(0xab_cdef),
        },
        body: Body::MpWrite {
            mpeth: mpeth::Repr {
                flags: mpeth::FLAG_TAIL,
                wsn: 0,
                offset: 0,
                stamp: 0x1122,
            },
            reth: reth::Repr {
                va: 0x1000,
                rkey: 0xdead_beef,
                length: payload.len() as u32,
            },
            imm: None,
            payload,
        },
    }
}

#[test]
fn an_mp_write_byte_for_byte() {
    let mut bytes = [0; 128];
    let len = small_write(b"hello").emit(&mut bytes).unwrap();
    #[rustfmt::skip]
    let expected = [
        2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00,
        0x45, 0x02, 0, 76, 0, 0, 0x40, 0, 64, 17, 0x26, 0x9d, 10, 0, 0, 1, 10, 0, 0, 2,
        0xc0, 0x01, 0x12, 0xb7, 0, 56, 0, 0,
        0xca, 0x30, 0xff, 0xff, 0, 0x12, 0x34, 0x56, 0x80, 0xab, 0xcd, 0xef,
        0x04, 0, 0, 0, 0, 0, 0x11, 0x22,
        0, 0, 0, 0, 0, 0, 0x10, 0, 0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 5,
        b'h', b'e', b'l', b'l', b'o', 0, 0, 0,
    ];
    assert_eq!(&bytes[..len - 4], &expected[..]);
}

#[test]
fn broken_rules_have_their_own_error() {
    let mut bytes = [0; 128];
    let len = small_write(b"hello").emit(&mut bytes).unwrap();
    let refit = |edit: fn(&mut Vec<u8>)| {
        let mut frame = bytes[..len].to_vec();
        edit(&mut frame);
        ipv4::CHECKSUM.set(&mut frame[14..], 0);
        let sum = ipv4::checksum(&frame[14..34]);
        ipv4::CHECKSUM.set(&mut frame[14..], sum.into());
        Frame::parse(&frame).map(|_| ()).unwrap_err()
    };
    let value = |header, field, value| WireError::Value {
        header,
        field,
        value,
    };
    assert_eq!(refit(|f| f[13] = 6), value("Ethernet", "ethertype", 0x806));
    assert_eq!(refit(|f| f[14] = 0x46), value("IPv4", "ihl", 6));
    assert_eq!(refit(|f| f[20] = 0x20), value("IPv4", "more_fragments", 1));
    assert_eq!(refit(|f| f[21] = 1), value("IPv4", "fragment", 1));
    assert_eq!(refit(|f| f[23] = 6), value("IPv4", "protocol", 6));
    assert_eq!(refit(|f| f[37] = 0), value("UDP", "dst_port", 0x1200));
    assert_eq!(
        refit(|f| f[39] = 55),
        WireError::Length {
            header: "UDP",
            stated: 55,
            actual: 56
        }
    );
    assert_eq!(
        refit(|f| f.push(0)),
        WireError::Length {
            header: "IPv4",
            stated: 76,
            actual: 77
        }
    );
    assert_eq!(refit(|f| f[43] = 0x31), value("BTH", "version", 1));
    assert_eq!(
        refit(|f| f[43] = 0x20),
        WireError::Length {
            header: "RETH",
            stated: 5,
            actual: 6
        }
    );
    assert_eq!(
        refit(|f| f[42] = 0xc7),
        WireError::Pad { pad: 3, payload: 8 }
    );
    assert_eq!(refit(|f| f[42] = 0xd5), WireError::Opcode(0xd5));

    let mut frame = small_write(b"hello");
    frame.bth.opcode = bth::opcode::MP_WRITE_ONLY_IMM;
    assert_eq!(frame.emit(&mut bytes), Err(WireError::Extensions(0xcb)));
    frame.bth.opcode = bth::opcode::MP_WRITE_FIRST;
    assert_eq!(
        frame.emit(&mut bytes),
        Err(WireError::Pad { pad: 0, payload: 5 })
    );
    assert_eq!(
        small_write(&[0; 4097]).emit(&mut [0; 5000]),
        Err(WireError::PayloadTooLong(4097))
    );
}

/// The shortest packet, an empty RC SEND, gets Ethernet padding on the way.
#[test]
fn ethernet_padding_is_let_pass() {
    let mut frame = small_write(&[]);
    frame.bth.opcode = bth::opcode::RC_SEND_ONLY;
    frame.body = Body::Other {
        extensions: Extensions::default(),
        payload: &[],
    };
    let mut bytes = [0; 60];
    assert_eq!(frame.emit(&mut bytes), Ok(58));
    assert_eq!(Frame::parse(&bytes), Ok(frame));
    assert_eq!(icrc::check_icrc(&bytes), Ok(()));
}

#[test]
fn a_crc_of_many_bytes_is_that_of_each_in_turn() {
    let mut rng = Rng(9);
    let bytes: [u8; 100] = rng.bytes();
    for start in 0..20 {
        for end in start..=bytes.len() {
            let part = &bytes[start..end];
            let one_by_one = part.iter().fold(icrc::seed(), |crc, byte| crc.byte(*byte));
            assert_eq!(icrc::seed().bytes(part), one_by_one, "{start}..{end}");
        }
    }
    // The check value of CRC-32 (ISO-HDLC).
    let check = icrc::Crc::START.bytes(b"123456789").finish();
    assert_eq!(check, 0xcbf4_3926);
}
