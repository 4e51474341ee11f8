//! Frames that no card sends yet, or ever should, in `scripts/wireshark/mprdma.lua`.

use crate::capture;
use crate::lua::{dissect_with_script, same};
use crate::traffic::Carrier;
use crate::tshark::LEGAL;
use anyhow::{ensure, Context, Result};
use mprdma_spec::wire::aeth::{self, Nak, Syndrome};
use mprdma_spec::wire::bth::{self, opcode};
use mprdma_spec::wire::frame::{Address, Body, Extensions, Frame, Tag, Transport};
use mprdma_spec::wire::{
    atomicacketh, atomiceth, ethernet, icrc, ieth, immdt, ipv4, mpaeth, mpeth, reth, udp, Psn,
    SackMap,
};
use mprdma_tests::dissector::OPCODES;
use mprdma_tests::rig::pattern;
use std::path::{Path, PathBuf};

/// A frame with this body over one of the carriers.
fn emit(code: u8, body: Body<'_>, carrier: usize) -> Result<Vec<u8>> {
    let frame = Frame {
        dst_mac: [2, 0, 0, 0, 0, 2],
        src_mac: [2, 0, 0, 0, 0, 1],
        tag: (carrier % 2 == 1).then_some(Tag {
            pcp: 3,
            dei: true,
            vid: 0xabc,
        }),
        address: match carrier < 2 {
            true => Address::V4 {
                src: [10, 0, 0, 1],
                dst: [10, 0, 0, 2],
                id: 7,
                dont_fragment: true,
            },
            false => Address::V6 {
                src: [0xfd; 16],
                dst: [0xfe; 16],
                flow_label: 0xf_1234,
            },
        },
        dscp: 26,
        ecn: ipv4::CE,
        hop_limit: 9,
        src_port: 0xfedc,
        bth: Transport {
            opcode: code,
            solicited: true,
            migrated: false,
            pkey: 0x7fff,
            fecn: true,
            becn: false,
            dqpn: 0xfe_dcba,
            ack_req: true,
            psn: Psn::new(0xff_fffe),
        },
        body,
    };
    let mut bytes = vec![0; frame.wire_len()];
    frame.emit(&mut bytes)?;
    Ok(bytes)
}

/// The headers that an opcode wants, with bits that look random.
fn headers(code: u8, seed: u64, slots: Option<usize>) -> Result<Extensions> {
    let shape = opcode::shape(code).context("a known opcode")?;
    let bytes = pattern(seed, 32);
    let mut map = slots.map(SackMap::new).transpose()?;
    if let Some(map) = &mut map {
        for slot in 0..map.slots() {
            if bytes[slot / 8] >> (slot % 8) & 1 == 1 {
                map.insert(slot);
            }
        }
    }
    let mut acknowledgement = mpaeth::Repr::parse(&bytes)?;
    acknowledgement.flags &= !mpaeth::FLAG_SACK_MAP;
    acknowledgement.flags |= map.map_or(0, |_| mpaeth::FLAG_SACK_MAP);
    Ok(Extensions {
        mpeth: shape.mpeth.then_some(mpeth::Repr::parse(&bytes)?),
        reth: shape.reth.then_some(reth::Repr::parse(&bytes)?),
        atomic: shape.atomic.then_some(atomiceth::Repr::parse(&bytes)?),
        aeth: shape.aeth.then_some(aeth::Repr {
            syndrome: match seed % 4 {
                0 => Syndrome::Ack(bytes[0] & 31),
                1 => Syndrome::Rnr(bytes[0] & 31),
                2 => Syndrome::Nak(Nak::RemoteOperation),
                _ => Syndrome::ACK,
            },
            msn: aeth::View::new(&bytes)?.msn(),
        }),
        atomic_ack: shape
            .atomic_ack
            .then_some(atomicacketh::Repr::parse(&bytes)?),
        mpaeth: shape.mpaeth.then_some(acknowledgement),
        map,
        imm: shape.imm.then_some(immdt::Repr::parse(&bytes)?.data),
        invalidate: shape.ieth.then_some(ieth::Repr::parse(&bytes)?.rkey),
    })
}

/// A packet of an opcode with `bytes` bytes of payload, if it has any.
fn packet(
    code: u8,
    seed: u64,
    bytes: usize,
    slots: Option<usize>,
    carrier: usize,
) -> Result<Vec<u8>> {
    let shape = opcode::shape(code).context("a known opcode")?;
    let mut headers = headers(code, seed, slots)?;
    let bytes = match (shape.payload, shape.more) {
        (false, _) => 0,
        (true, true) => bytes.next_multiple_of(4),
        (true, false) => bytes,
    };
    let payload = pattern(seed, bytes);
    let payload = payload.as_slice();
    let body = if opcode::is_mp_write(code) {
        let reth = headers.reth.as_mut().context("RETH")?;
        reth.length = bytes as u32;
        Body::MpWrite {
            mpeth: headers.mpeth.context("MPETH")?,
            reth: *reth,
            imm: headers.imm,
            payload,
        }
    } else if code == opcode::MP_ACK {
        Body::MpAck {
            aeth: headers.aeth.context("AETH")?,
            mpaeth: headers.mpaeth.context("MPAETH")?,
            map: headers.map,
        }
    } else {
        Body::Other {
            extensions: headers,
            payload,
        }
    };
    emit(code, body, carrier)
}

/// Writes frames into a capture of this test's own directory; returns both.
fn written(name: &str, frames: &[Vec<u8>], snap: Option<usize>) -> Result<(PathBuf, PathBuf)> {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("oracles-{name}"));
    std::fs::create_dir_all(&dir)?;
    let file = dir.join("crafted.pcapng");
    capture::write(&file, frames, snap)?;
    Ok((file, dir))
}

#[test]
fn every_mp_opcode_in_wireshark() -> Result<()> {
    let mut frames = vec![];
    let known: Vec<u8> = OPCODES
        .filter(|code| opcode::name(*code).is_some())
        .collect();
    ensure!(known.len() == 23, "{} opcodes", known.len());
    let mut seed = 0;
    let mut craft = |code, bytes, slots, carrier| {
        seed += 1;
        frames.push(packet(code, seed, bytes, slots, carrier)?);
        anyhow::Ok(())
    };
    for carrier in 0..Carrier::ALL.len() {
        for code in &known {
            for bytes in [0, 1, 2, 3, 260] {
                craft(*code, bytes, None, carrier)?;
            }
        }
        for slots in [64, 128, 256] {
            craft(opcode::MP_ACK, 0, Some(slots), carrier)?;
        }
    }
    // Not ours to show.
    frames.push(packet(opcode::RC_ACK, 3, 0, None, 0)?);

    let (file, dir) = written("opcodes", &frames, None)?;
    let rows = dissect_with_script(&file, &dir)?;
    ensure!(rows.len() == frames.len(), "{} rows", rows.len());
    for (i, (frame, row)) in frames.iter().zip(&rows).enumerate() {
        let ipv6 = matches!(Frame::parse(frame)?.address, Address::V6 { .. });
        let legal = if ipv6 { LEGAL } else { "" };
        same(frame, row, legal).with_context(|| format!("frame {}", i + 1))?;
    }
    println!("{} crafted frames", frames.len());
    Ok(())
}

/// An IPv4 frame to a UDP port with anything behind BTH.
fn raw(port: u16, code: u8, pad: u8, behind: &[u8]) -> Result<Vec<u8>> {
    let at = ethernet::LEN + ipv4::LEN + udp::LEN;
    let mut frame = vec![0; at + bth::LEN + behind.len() + icrc::LEN];
    let valid = emit(opcode::CNP, Body::Cnp, 0)?;
    frame[..ethernet::LEN + ipv4::LEN].copy_from_slice(&valid[..ethernet::LEN + ipv4::LEN]);
    let total = frame.len() - ethernet::LEN;
    let ip = ipv4::Repr {
        total_len: total as u16,
        ..ipv4::Repr::parse(&frame[ethernet::LEN..])?
    };
    ip.emit(&mut frame[ethernet::LEN..])?;
    let header = udp::Repr {
        src_port: 0xc000,
        dst_port: port,
        length: (total - ipv4::LEN) as u16,
        checksum: 0,
    };
    header.emit(&mut frame[ethernet::LEN + ipv4::LEN..])?;
    let mut transport = bth::Repr::parse(&[0; bth::LEN])?;
    (transport.opcode, transport.pad) = (code, pad);
    transport.emit(&mut frame[at..])?;
    frame[at + bth::LEN..][..behind.len()].copy_from_slice(behind);
    Ok(frame)
}

#[test]
fn wrong_packets_in_wireshark() -> Result<()> {
    let map = |bytes: usize| {
        let mut behind = vec![0; aeth::LEN + mpaeth::LEN + bytes];
        behind[aeth::LEN] = mpaeth::FLAG_SACK_MAP;
        behind
    };
    let write = mpeth::LEN + reth::LEN;
    let cases = [
        (0xd5, 0, vec![0; 8], "unknown opcode"),
        (
            opcode::MP_WRITE_ONLY,
            0,
            vec![],
            "MPETH needs 8 bytes, there are 0",
        ),
        (
            opcode::MP_WRITE_ONLY,
            0,
            vec![0; write - 4],
            "RETH needs 16 bytes, there are 12",
        ),
        (
            opcode::MP_WRITE_LAST_IMM,
            0,
            vec![0; write],
            "ImmDt needs 4 bytes, there are 0",
        ),
        (
            opcode::MP_ACK,
            0,
            vec![0; aeth::LEN + mpaeth::LEN - 4],
            "MPAETH needs 8 bytes, there are 4",
        ),
        (opcode::MP_ACK, 0, map(12), "a SACK map of 12 bytes"),
        (
            opcode::MP_ACK,
            0,
            vec![0; aeth::LEN + mpaeth::LEN + 4],
            "4 bytes of payload in a packet without payload",
        ),
        (
            opcode::MP_WRITE_ONLY,
            0,
            vec![0; write + 4],
            "RETH states 0 bytes, the payload has 4",
        ),
        (
            opcode::MP_SEND_MIDDLE,
            1,
            vec![0; mpeth::LEN + 4],
            "pad count 1 does not fit 4 bytes of payload",
        ),
        (
            opcode::MP_SEND_ONLY,
            1,
            vec![0; mpeth::LEN],
            "pad count 1 does not fit 0 bytes of payload",
        ),
        (
            opcode::MP_SEND_ONLY,
            0,
            vec![0; mpeth::LEN + 3],
            "pad count 0 does not fit 3 bytes of payload",
        ),
    ];
    let mut frames = cases
        .iter()
        .map(|(code, pad, behind, _)| raw(udp::ROCE_PORT, *code, *pad, behind))
        .collect::<Result<Vec<_>>>()?;
    for frame in &frames {
        ensure!(Frame::parse(frame).is_err(), "spec takes {frame:02x?}");
    }
    // Another port.
    frames.push(raw(4790, opcode::MP_SEND_ONLY, 0, &[0; 12])?);
    let (file, dir) = written("wrong", &frames, None)?;
    let rows = dissect_with_script(&file, &dir)?;
    for (row, (code, _, _, problem)) in rows.iter().zip(&cases) {
        let said = format!("Malformed MP-RDMA packet: {problem}");
        let expert = &row["_ws.expert.message"];
        ensure!(*expert == said, "opcode {code:#x}: '{expert}'");
        ensure!(!row["mprdma.malformed"].is_empty(), "no field says so");
    }
    ensure!(
        rows.last().is_some_and(|row| row["mprdma"].is_empty()),
        "a packet to another port is taken"
    );

    // A capture that holds the first bytes of packets only: what is there is shown.
    let frame = packet(opcode::MP_WRITE_ONLY, 5, 200, None, 0)?;
    let snap = ethernet::LEN + ipv4::LEN + udp::LEN + bth::LEN + write + 8;
    let (file, dir) = written("cut", &[frame], Some(snap))?;
    let row = &dissect_with_script(&file, &dir)?[0];
    ensure!(
        row["_ws.expert.message"]
            .contains("Malformed MP-RDMA packet: the capture holds the packet in part only"),
        "'{}'",
        row["_ws.expert.message"]
    );
    ensure!(
        row["mprdma.reth.length"] == "200" && row["mprdma.icrc"].is_empty(),
        "{row:?}"
    );
    Ok(())
}
