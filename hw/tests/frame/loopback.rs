//! Frames of the builder through the parser, and both blocks in the simulator of rust-hdl.

use crate::rx::{self, Arrival, Fate};
use crate::support::{chance, noise, rng};
use crate::tx::{self, random_ack, random_length, random_packet, Peer, Wanted, OUR_MAC};
use mprdma_hw::cosim::Cosim;
use mprdma_hw::leaf::beat::{bits_of_bytes, bytes_of_bits};
use mprdma_hw::leaf::Beat;
use mprdma_hw::nic::rx_parse::RxParse;
use mprdma_hw::nic::tx_build::TxBuild;
use mprdma_hw::nic::types::CfgReq;
use mprdma_hw::prelude::*;
use mprdma_hw::with_big_stack;
use mprdma_spec::command::Opcode;
use mprdma_spec::wire::bth::opcode;
use rand_chacha::ChaCha8Rng;

/// A peer whose frames come back to us.
fn own_peer(rng: &mut ChaCha8Rng, kind: usize) -> Peer {
    let mut peer = Peer::random(rng, kind & 1 == 1, kind & 2 == 2);
    peer.dmac = OUR_MAC;
    peer
}

#[test]
fn what_is_commanded_arrives() {
    for slots in [64, 128] {
        let mut rng = rng(200 + slots as u64);
        let mut tx = tx::Bench::new(&format!("tx_build_{slots}"), slots);
        let mut rx = rx::Bench::new::<10>(slots);
        for qpn in 0..4 {
            let peer = own_peer(&mut rng, qpn);
            tx.configure(&mut rng, Opcode::CreateQp, qpn, &peer, 0);
            tx.peers.push(peer);
        }
        let (mut frames, mut lost) = (0, 0);
        // Requests, answers.
        let mut atomics = [0; 2];
        for _ in 0..60 {
            let mut commands = vec![];
            for _ in 0..8 {
                if chance(&mut rng, 60) {
                    let cmd = random_packet(&mut rng, 4);
                    let length = random_length(&mut rng, cmd.opcode.to_u8());
                    let payload = noise(&mut rng, length);
                    let error = length > 0 && chance(&mut rng, 10);
                    lost += u64::from(error);
                    if !error {
                        commands.push((cmd, payload.clone()));
                    }
                    tx.send(cmd, payload, error);
                } else {
                    let ack = random_ack(&mut rng, 4);
                    tx.answer(ack);
                }
            }
            for seen in tx.drain(&mut rng) {
                frames += 1;
                rx.push(&Arrival::good(seen.bytes));
            }
            rx.drain(&mut rng);
            let mut commands = commands.into_iter();
            for (_, meta) in rx
                .metas
                .drain(..)
                .filter(|(_, meta)| meta.opcode != opcode::MP_ACK)
            {
                let (cmd, payload) = commands.next().expect("a command");
                let peer = &tx.peers[cmd.qpn.index()];
                assert_eq!(
                    (meta.qpn, meta.pkey, meta.vp),
                    (peer.dqpn, peer.pkey, cmd.vp.to_u16())
                );
                assert_eq!(
                    (meta.opcode, meta.psn),
                    (cmd.opcode.to_u8(), cmd.psn.to_u32())
                );
                assert_eq!(
                    (meta.flags, meta.wsn),
                    (cmd.flags.to_u8(), cmd.wsn.to_u32())
                );
                assert_eq!(meta.offset, cmd.offset.to_u16());
                let shape = opcode::shape(meta.opcode).unwrap();
                if shape.reth {
                    let stated = match opcode::is_mp_write(meta.opcode) {
                        true => payload.len() as u32,
                        false => cmd.dma_length.to_u32(),
                    };
                    assert_eq!(
                        (meta.raddr, meta.rkey, meta.dma_length),
                        (cmd.raddr.to_u64(), cmd.rkey.to_u32(), stated)
                    );
                }
                assert_eq!(meta.length, payload.len());
                if shape.imm {
                    assert_eq!(meta.imm, cmd.imm.to_u32());
                }
                if shape.atomic {
                    assert_eq!(
                        (meta.raddr, meta.rkey, meta.dma_length, meta.compare),
                        (
                            cmd.raddr.to_u64(),
                            cmd.rkey.to_u32(),
                            8,
                            cmd.compare.to_u64()
                        )
                    );
                }
                if shape.atomic || shape.atomic_ack {
                    assert_eq!(meta.swap_add, cmd.swap_add.to_u64());
                    atomics[usize::from(shape.atomic_ack)] += 1;
                }
                assert!(!meta.ce);
                if meta.stored {
                    let frame = rx.frames.pop_front().expect("a stored frame").bytes;
                    assert_eq!(frame[meta.header..meta.header + meta.length], payload);
                }
            }
            assert!(commands.next().is_none() && rx.frames.is_empty());
        }
        assert_eq!(rx.counts, [frames, 0, 0, lost, 0]);
        println!(
            "{frames} frames, {lost} with a payload that could not be read, ATOMICs {atomics:?}"
        );
        assert!(atomics.iter().all(|&n| n > 10), "{atomics:?}");
    }
}

#[test]
fn builder_in_both_simulators() {
    with_big_stack(|| {
        let mut rng = rng(300);
        let peers: Vec<_> = (0..4).map(|kind| own_peer(&mut rng, kind)).collect();
        let mut sim = Cosim::new(TxBuild::<3>::new(128), "tx_build_small", |b, level| {
            b.clock.next = level.into();
        })
        .expect("a block");
        let start = |b: &mut TxBuild<3>| {
            b.reset.next = true;
            b.mac.next = bits_of_bytes(&OUR_MAC);
            b.tick.next = bits(0x1234);
            b.error_ready.next = true;
            b.m_axis_tx_tready.next = true;
        };
        for _ in 0..2 {
            sim.cycle(start).unwrap();
        }
        sim.cycle(|b| b.reset.next = false).unwrap();
        for (qpn, peer) in peers.iter().enumerate() {
            let request = CfgReq {
                op: bits(Opcode::CreateQp as u64),
                index: bits(qpn as u64),
                image: bits_of_bytes(&peer.image(0)),
            };
            sim.cycle(|b| {
                b.cfg.next = request;
                b.cfg_valid.next = true;
            })
            .unwrap();
            sim.cycle(|b| b.cfg_valid.next = false).unwrap();
        }
        let (mut packets, mut beats, mut acks, mut wanted) = (vec![], vec![], vec![], vec![]);
        for (i, code) in [
            opcode::MP_COMPARE_SWAP,
            opcode::MP_READ_RESPONSE_ONLY,
            opcode::MP_WRITE_ONLY_IMM,
            opcode::MP_ATOMIC_ACK,
            opcode::MP_WRITE_FIRST,
        ]
        .into_iter()
        .enumerate()
        {
            let mut cmd = random_packet(&mut rng, 1);
            cmd.opcode = bits(code.into());
            let qpn = i % 4;
            cmd.qpn = bits(qpn as u64);
            let length = [0, 61, 130, 0, 200][i]
                & if opcode::shape(cmd.opcode.to_u8()).unwrap().more {
                    !3
                } else {
                    !0
                };
            let payload = noise(&mut rng, length);
            cmd.length = bits(payload.len() as u64);
            cmd.dma_length = bits(payload.len() as u64);
            beats.extend(Beat::of_packet(&payload));
            packets.push(cmd);
            wanted.push(
                Wanted::Data {
                    peer: peers[qpn].clone(),
                    cmd,
                    payload,
                    poisoned: i == 4,
                }
                .bytes(0x1234),
            );
            let mut ack = random_ack(&mut rng, 1);
            ack.qpn = bits(qpn as u64);
            acks.push(ack);
            wanted.push(
                Wanted::Ack {
                    peer: peers[qpn].clone(),
                    cmd: ack,
                    slots: 128,
                }
                .bytes(0),
            );
        }
        let (mut seen, mut open) = (vec![], vec![]);
        for _ in 0..125 {
            let (packet, ack, beat) = (
                packets.first().copied(),
                acks.first().copied(),
                beats.first().copied(),
            );
            let ends_all = beats.len() == 1;
            let port = chance(&mut rng, 80);
            let b = sim
                .low(|b| {
                    b.packet_valid.next = packet.is_some();
                    b.packet.next = packet.unwrap_or_default();
                    b.ack_valid.next = ack.is_some();
                    b.ack.next = ack.unwrap_or_default();
                    b.payload_valid.next = beat.is_some();
                    b.payload.next = beat.unwrap_or_default();
                    b.payload_err.next = ends_all;
                    b.m_axis_tx_tready.next = port;
                })
                .unwrap();
            for (taken, list) in [
                (b.packet_ready.val(), 0),
                (b.ack_ready.val(), 1),
                (b.payload_ready.val(), 2),
            ] {
                match list {
                    0 if taken && packet.is_some() => drop(packets.remove(0)),
                    1 if taken && ack.is_some() => drop(acks.remove(0)),
                    2 if taken && beat.is_some() => drop(beats.remove(0)),
                    _ => {}
                }
            }
            if port && b.m_axis_tx_tvalid.val() {
                let nbytes = b.m_axis_tx_tkeep.val().to_u64().count_ones() as usize;
                open.extend(&bytes_of_bits(&b.m_axis_tx_tdata.val())[..nbytes]);
                if b.m_axis_tx_tlast.val() {
                    seen.push(std::mem::take(&mut open));
                }
            }
            sim.high().unwrap();
        }
        assert_eq!(seen.len(), wanted.len());
        for frame in &seen {
            assert!(wanted.contains(frame), "{frame:02x?}");
        }
        sim.verify().unwrap();
    });
}

#[test]
fn parser_in_both_simulators() {
    with_big_stack(|| {
        let mut rng = rng(301);
        let mut sim = Cosim::new(RxParse::<7>::new(128), "rx_parse_small", |b, level| {
            b.clock.next = level.into();
        })
        .expect("a block");
        for _ in 0..2 {
            sim.cycle(|b| {
                b.reset.next = true;
                b.mac.next = bits_of_bytes(&OUR_MAC);
                b.meta_ready.next = true;
                b.frame_ready.next = true;
            })
            .unwrap();
        }
        sim.cycle(|b| b.reset.next = false).unwrap();
        let mut wanted = [0; 4];
        let mut beats = vec![];
        for i in 0..24 {
            let mut frame = rx::good_frame(&mut rng, 128);
            while frame.len() > 400 {
                frame = rx::good_frame(&mut rng, 128);
            }
            match i % 6 {
                1 => frame[0] ^= 4,
                2 => *frame.last_mut().unwrap() ^= 1,
                3 => frame.truncate(50),
                _ => {}
            }
            match rx::fate(&frame, false, 128) {
                Fate::Good(_) => wanted[0] += 1,
                Fate::Malformed => wanted[1] += 1,
                Fate::NotOurs => wanted[2] += 1,
                Fate::Icrc => wanted[3] += 1,
            }
            beats.extend(Beat::of_packet(&frame));
        }
        let mut got = [0; 4];
        let mut beats = beats.into_iter();
        for _ in 0..180 {
            let beat = if chance(&mut rng, 85) {
                beats.next()
            } else {
                None
            };
            let b = sim
                .low(|b| {
                    b.s_axis_rx_tvalid.next = beat.is_some();
                    if let Some(beat) = beat {
                        b.s_axis_rx_tdata.next = beat.data;
                        b.s_axis_rx_tkeep.next = bits(u64::MAX >> (64 - beat.nbytes.index()));
                        b.s_axis_rx_tlast.next = beat.last;
                    }
                })
                .unwrap();
            got[0] += u32::from(b.meta_valid.val());
            got[1] += u32::from(b.cnt_rx_drop_malformed.val());
            got[2] += u32::from(b.cnt_rx_drop_not_ours.val());
            got[3] += u32::from(b.cnt_rx_drop_icrc.val());
            sim.high().unwrap();
        }
        assert!(beats.next().is_none());
        assert_eq!(got, wanted);
        sim.verify().unwrap();
    });
}
