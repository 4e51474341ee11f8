use crate::cycle;
use crate::support::{chance, rng, settle};
use mprdma_hw::leaf::beat::{bits_of_bytes, bytes_of_bits};
use mprdma_hw::leaf::{Beat, Header, LaneBeat, Prepend, Realign};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rust_hdl_core::prelude::*;
use std::collections::VecDeque;

/// A packet for [`Realign`].
#[derive(Clone, Debug)]
struct Move {
    bytes: Vec<u8>,
    skip: usize,
    lane: usize,
}

impl Move {
    fn random(rng: &mut ChaCha8Rng) -> Self {
        let length = match rng.random_range(0..4) {
            0 => rng.random_range(1..5),
            1 => rng.random_range(60..70),
            2 => rng.random_range(120..200),
            _ => rng.random_range(1..400),
        };
        let pick = |rng: &mut ChaCha8Rng, top: usize| match rng.random_range(0..4) {
            0 => 0,
            1 => top - 1,
            _ => rng.random_range(0..top),
        };
        let skip = if chance(rng, 10) {
            length.min(127)
        } else {
            pick(rng, 128)
        };
        Self {
            bytes: (0..length).map(|_| rng.random()).collect(),
            skip,
            lane: pick(rng, 64),
        }
    }

    /// Bytes by lane: the packet's bytes per output beat with the first lane.
    fn output(&self) -> VecDeque<(usize, Vec<u8>)> {
        let kept = &self.bytes[self.skip.min(self.bytes.len())..];
        let mut beats = VecDeque::new();
        let (first, others) = kept.split_at(kept.len().min(64 - self.lane));
        if !first.is_empty() {
            beats.push_back((self.lane, first.to_vec()));
        }
        beats.extend(others.chunks(64).map(|chunk| (0, chunk.to_vec())));
        beats
    }

    /// Cycles that the documentation allows.
    fn cycles(&self) -> usize {
        self.bytes.len().div_ceil(64) + 1
    }
}

fn check_lane_beat(beat: LaneBeat, expected: &(usize, Vec<u8>), last: bool) {
    let (from, bytes) = expected;
    assert_eq!(beat.from.index(), *from);
    assert_eq!(beat.nbytes.index(), from + bytes.len());
    assert_eq!(beat.last, last);
    assert_eq!(
        &bytes_of_bits(&beat.data)[*from..from + bytes.len()],
        &bytes[..]
    );
}

#[test]
fn realign_moves_packets() {
    let mut rng = rng(30);
    let mut u = Box::new(Realign::default());
    u.connect_all();
    check_all(u.as_ref()).unwrap();
    settle(u.as_mut());
    let mut job = Move::random(&mut rng);
    let mut beats: VecDeque<Beat> = Beat::of_packet(&job.bytes).into();
    let mut expected: VecDeque<VecDeque<(usize, Vec<u8>)>> = VecDeque::new();
    let (mut packets, mut budget) = (0, 12);
    for step in 0..2000 {
        let free = step < 800;
        u.in_valid.next = free || chance(&mut rng, 70);
        u.in_beat.next = beats[0];
        if beats.len() == job.bytes.len().div_ceil(64) {
            u.in_skip.next = bits(job.skip as u64);
            u.in_lane.next = bits(job.lane as u64);
        } else {
            u.in_skip.next = bits(rng.random_range(0..128));
            u.in_lane.next = bits(rng.random_range(0..64));
        }
        u.out_ready.next = free || chance(&mut rng, if step < 1500 { 40 } else { 90 });
        settle(u.as_mut());
        if u.out_valid.val() & u.out_ready.next {
            let packet = expected.front_mut().expect("a packet nobody sent");
            let beat = packet.pop_front().expect("a beat too many");
            check_lane_beat(u.out_beat.val(), &beat, packet.is_empty());
            if packet.is_empty() {
                expected.pop_front();
                packets += 1;
            }
        }
        if u.in_valid.next & u.in_ready.val() {
            if beats.len() == job.bytes.len().div_ceil(64) {
                let output = job.output();
                if !output.is_empty() {
                    expected.push_back(output);
                }
            }
            beats.pop_front();
            if beats.is_empty() {
                budget += job.cycles();
                job = Move::random(&mut rng);
                beats = Beat::of_packet(&job.bytes).into();
            }
        }
        if free {
            assert!(
                step <= budget + job.cycles(),
                "slower than one cycle more per packet"
            );
        }
        cycle!(u);
    }
    println!("{packets} packets");
    assert!(packets > 300 && expected.len() < 10);
}

#[test]
fn prepend_joins_header_and_payload() {
    let mut rng = rng(31);
    let mut u = Box::new(Prepend::default());
    u.connect_all();
    check_all(u.as_ref()).unwrap();
    settle(u.as_mut());
    let mut headers: VecDeque<Header> = VecDeque::new();
    let mut payloads: VecDeque<Beat> = VecDeque::new();
    let mut expected: VecDeque<VecDeque<Beat>> = VecDeque::new();
    let mut packets = 0;
    for step in 0..2000 {
        if headers.len() < 3 {
            let length = match rng.random_range(0..4) {
                0 => [1, 63, 64, 65, 127, 128][rng.random_range(0..6)],
                _ => rng.random_range(1..=128),
            };
            let front: Vec<u8> = (0..length).map(|_| rng.random()).collect();
            let mut payload: Vec<u8> = vec![];
            if chance(&mut rng, 75) {
                let length = if chance(&mut rng, 30) {
                    64 * rng.random_range(1..4)
                } else {
                    rng.random_range(1..300)
                };
                payload = (0..length).map(|_| rng.random()).collect();
            }
            headers.push_back(Header {
                bytes: bits_of_bytes(&front),
                length: bits(length as u64),
                payload: !payload.is_empty(),
            });
            payloads.extend(Beat::of_packet(&payload));
            expected.push_back(Beat::of_packet(&[front, payload].concat()).into());
        }
        let free = step < 600;
        u.header.next = headers[0];
        u.header_valid.next = free || chance(&mut rng, 50);
        if let Some(&beat) = payloads.front() {
            u.payload.next = beat;
        }
        u.payload_valid.next = !payloads.is_empty() && (free || chance(&mut rng, 70));
        u.out_ready.next = free || chance(&mut rng, 50);
        settle(u.as_mut());
        if u.out_valid.val() & u.out_ready.next {
            let packet = expected.front_mut().expect("a packet nobody sent");
            let (got, beat) = (u.out_beat.val(), packet.pop_front().unwrap());
            assert_eq!((got.bytes(), got.last), (beat.bytes(), beat.last));
            if beat.last {
                expected.pop_front();
                packets += 1;
            }
        }
        if u.header_valid.next & u.header_ready.val() {
            headers.pop_front();
        }
        if u.payload_valid.next & u.payload_ready.val() {
            payloads.pop_front();
        }
        cycle!(u);
    }
    println!("{packets} packets");
    assert!(packets > 250);
}
