use crate::cycle;
use crate::support::{chance, rng, settle};
use mprdma_hw::leaf::crc::{crc32, icrc_seed, Crc32Stream, CRC32_RESIDUE};
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
        let state = mprdma_hw::leaf::crc::crc32_update(icrc_seed(skipped), &frame);
        assert_eq!(!state, crc32(&with_ones));
    }
}

#[test]
fn stream_gives_every_packet_its_crc() {
    let mut rng = rng(20);
    let mut u = Box::new(Crc32Stream::default());
    u.connect_all();
    check_all(u.as_ref()).unwrap();
    settle(u.as_mut());
    let mut expected: VecDeque<(usize, u32)> = VecDeque::new();
    let mut beats: VecDeque<Beat> = VecDeque::new();
    let mut packet: Vec<u8> = vec![];
    let mut seed = 0;
    let mut results = 0;
    for step in 0..700 {
        let first = beats.is_empty();
        if first {
            // All lengths around the beat boundaries, then random ones.
            let length = if step < 200 {
                1 + step % 131
            } else {
                rng.random_range(1..400)
            };
            packet = (0..length).map(|_| rng.random()).collect();
            beats = Beat::of_packet(&packet).into();
            seed = if chance(&mut rng, 50) {
                !0
            } else {
                icrc_seed(14)
            };
        }
        u.valid.next = step < 300 || chance(&mut rng, 70);
        let mut beat = beats[0];
        // Bytes behind the end are noise.
        if beat.nbytes.index() < 64 {
            beat.data = beat.data | Bits::<512>::mask() << (8 * beat.nbytes.index()) as u64;
        }
        u.beat.next = beat;
        u.seed.next = if first {
            bits(seed as u64)
        } else {
            bits(rng.random::<u32>() as u64)
        };
        settle(u.as_mut());
        assert_eq!(
            u.crc_valid.val(),
            expected.front().is_some_and(|e| e.0 == step),
            "step {step}"
        );
        if u.crc_valid.val() {
            let (_, crc) = expected.pop_front().unwrap();
            assert_eq!(u.crc.val().to_u32(), crc);
            results += 1;
        }
        if u.valid.next {
            beats.pop_front();
            if beat.last {
                expected.push_back((step + 8, !mprdma_hw::leaf::crc::crc32_update(seed, &packet)));
            }
        } else if first {
            beats.clear();
        }
        cycle!(u);
    }
    assert!(results > 150, "{results} packets");
}
