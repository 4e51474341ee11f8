use crate::support::{chance, rng, Dut};
use crate::{both, ports};
use mprdma_hw::leaf::crc::{crc32, crc32_update, icrc_seed, Crc32Stream, CRC32_RESIDUE};
use mprdma_hw::leaf::Beat;
use rand::Rng;
use rust_hdl_core::prelude::*;
use std::collections::VecDeque;

#[test]
fn reference_matches_published_values() {
    // The check value of CRC-32/ISO-HDLC in the Rocksoft catalogue.
    assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
    let mut message = b"any message".to_vec();
    message.extend(crc32(&message).to_le_bytes());
    assert_eq!(crc32(&message), CRC32_RESIDUE);
}

#[test]
fn seed_replaces_the_eight_ones() {
    for skipped in [14, 18] {
        let mut frame = vec![0; skipped];
        let mut with_ones = vec![0xff; 8];
        for byte in 1..77 {
            frame.push(byte);
            with_ones.push(byte);
        }
        let state = crc32_update(icrc_seed(skipped), &frame);
        assert_eq!(!state, crc32(&with_ones));
    }
}

ports!(Crc32Stream, clock: reset beat valid seed => crc crc_valid);

/// Packets of all short lengths, then of random ones; first back to back, then with gaps.
fn packets(dut: &mut impl Dut, steps: usize) {
    let mut rng = rng(20);
    let mut expected: VecDeque<(usize, u32)> = VecDeque::new();
    let mut beats: VecDeque<Beat> = VecDeque::new();
    let mut packet: Vec<u8> = vec![];
    let mut seed = 0;
    let (mut begun, mut results) = (0, 0);
    for step in 0..steps {
        let first = beats.is_empty();
        if first {
            let length = if begun < 200 {
                1 + begun % 131
            } else {
                rng.random_range(1..400)
            };
            begun += 1;
            packet = (0..length).map(|_| rng.random()).collect();
            beats = Beat::of_packet(&packet).into();
            seed = if chance(&mut rng, 50) {
                !0
            } else {
                icrc_seed(14)
            };
        }
        let valid = step < steps / 2 || chance(&mut rng, 70);
        let mut beat = beats[0];
        // Bytes behind the end are noise.
        if beat.nbytes.index() < 64 {
            beat.data = beat.data | (Bits::<512>::mask() << (8 * beat.nbytes.index()) as u64);
        }
        dut.set("valid", valid);
        dut.set("beat", beat);
        dut.set::<Bits<32>>(
            "seed",
            bits(if first { seed } else { rng.random::<u32>() }.into()),
        );
        dut.low();
        assert_eq!(
            dut.bit("crc_valid"),
            expected.front().is_some_and(|e| e.0 == step),
            "step {step}"
        );
        if dut.bit("crc_valid") {
            assert_eq!(
                Some(dut.get("crc") as u32),
                expected.pop_front().map(|e| e.1)
            );
            results += 1;
        }
        if valid {
            beats.pop_front();
            if beat.last {
                expected.push_back((step + 8, !crc32_update(seed, &packet)));
            }
        } else if first {
            beats.clear();
        }
        dut.high();
    }
    assert!(results > steps / 5, "{results} packets");
}

both!(
    stream_gives_every_packet_its_crc,
    packets,
    Crc32Stream::default(),
    700
);
