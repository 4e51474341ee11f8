use crate::support::{chance, rng, Dut};
use crate::{both, ports};
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

ports!(Realign, clock: reset in_beat in_valid in_skip in_lane out_ready => in_ready out_beat out_valid busy);
ports!(Prepend, clock: reset header header_valid payload payload_valid out_ready
    => header_ready payload_ready out_beat out_valid busy);

/// Random packets, skips and lanes; the first third runs without stalls and is timed.
fn realign(dut: &mut impl Dut, steps: usize) {
    let mut rng = rng(30);
    let mut job = Move::random(&mut rng);
    let mut beats: VecDeque<Beat> = Beat::of_packet(&job.bytes).into();
    let mut expected: VecDeque<VecDeque<(usize, Vec<u8>)>> = VecDeque::new();
    let (mut packets, mut budget) = (0, 12);
    for step in 0..steps {
        let free = step < steps / 3;
        let valid = free || chance(&mut rng, 70);
        let ready = free || chance(&mut rng, if step < steps / 3 * 2 { 40 } else { 90 });
        let first = beats.len() == job.bytes.len().div_ceil(64);
        let (skip, lane) = if first {
            (job.skip as u64, job.lane as u64)
        } else {
            (rng.random_range(0..128), rng.random_range(0..64))
        };
        dut.set("in_valid", valid);
        dut.set("in_beat", beats[0]);
        dut.set::<Bits<7>>("in_skip", bits(skip));
        dut.set::<Bits<6>>("in_lane", bits(lane));
        dut.set("out_ready", ready);
        dut.low();
        if dut.bit("out_valid") && ready {
            let packet = expected.front_mut().expect("a packet nobody sent");
            let beat = packet.pop_front().expect("a beat too many");
            check_lane_beat(dut.lane_beat("out_beat"), &beat, packet.is_empty());
            if packet.is_empty() {
                expected.pop_front();
                packets += 1;
            }
        }
        if dut.bit("in_ready") && valid {
            if first {
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
        assert!(dut.bit("busy") || expected.len() <= 1);
        if free {
            assert!(
                step <= budget + job.cycles(),
                "slower than one cycle more per packet"
            );
        }
        dut.high();
    }
    println!("{packets} packets");
    assert!(packets > steps / 8 && expected.len() < 15);
}

both!(realign_moves_packets, realign, Realign::default(), 1500);

/// 4 KiB packets on any two lanes pass in 64 or 65 cycles each.
#[test]
fn realign_sustains_its_rate() {
    mprdma_hw::with_big_stack(|| {
        let mut dut = crate::support::verilated(Realign::default(), "realign_moves_packets");
        for (skip, lane, cycles) in [
            (0, 0, 64),
            (64, 0, 64),
            (17, 0, 65),
            (0, 17, 65),
            (40, 20, 65),
            (20, 40, 65),
        ] {
            let beats = Beat::of_packet(&vec![0x5a; 4096]);
            let (mut at, mut done, mut first) = (0, 0, 0);
            dut.set("out_ready", true);
            for step in 0..4000 {
                dut.set("in_valid", true);
                dut.set("in_beat", beats[at % 64]);
                dut.set::<Bits<7>>("in_skip", bits(skip));
                dut.set::<Bits<6>>("in_lane", bits(lane));
                dut.low();
                at += usize::from(dut.bit("in_ready"));
                if dut.bit("out_valid") && dut.lane_beat("out_beat").last {
                    done += 1;
                    if done == 1 {
                        first = step;
                    } else if done == 21 {
                        assert_eq!(step - first, 20 * cycles, "skip {skip}, lane {lane}");
                    }
                }
                // Ends on a packet boundary with an empty pipeline.
                if done >= 21 && at % 64 == 0 {
                    break;
                }
            }
            assert!(done >= 21);
            dut.set("in_valid", false);
            for _ in 0..20 {
                dut.low();
            }
        }
    });
}

/// Random headers and payloads; checks the bytes and, without stalls, the cycles.
fn prepend(dut: &mut impl Dut, steps: usize) {
    let mut rng = rng(31);
    let mut headers: VecDeque<Header> = VecDeque::new();
    let mut payloads: VecDeque<Beat> = VecDeque::new();
    let mut expected: VecDeque<VecDeque<Beat>> = VecDeque::new();
    let (mut packets, mut budget) = (0, 12);
    for step in 0..steps {
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
        let free = step < steps / 3;
        let header_valid = free || chance(&mut rng, 50);
        let payload_valid = !payloads.is_empty() && (free || chance(&mut rng, 70));
        let ready = free || chance(&mut rng, 50);
        dut.set("header", headers[0]);
        dut.set("header_valid", header_valid);
        dut.set("payload", payloads.front().copied().unwrap_or_default());
        dut.set("payload_valid", payload_valid);
        dut.set("out_ready", ready);
        dut.low();
        if dut.bit("out_valid") && ready {
            let packet = expected.front_mut().expect("a packet nobody sent");
            let (got, beat) = (dut.beat("out_beat"), packet.pop_front().unwrap());
            assert_eq!((got.bytes(), got.last), (beat.bytes(), beat.last));
            budget += 1;
            if beat.last {
                expected.pop_front();
                packets += 1;
                // The documented overhead.
                budget += 1;
            }
            if free {
                assert!(step <= budget, "more than one cycle lost per packet");
            }
        }
        if dut.bit("header_ready") && header_valid {
            headers.pop_front();
        }
        if dut.bit("payload_ready") && payload_valid {
            payloads.pop_front();
        }
        dut.high();
    }
    println!("{packets} packets");
    assert!(packets > steps / 8);
}

both!(
    prepend_joins_header_and_payload,
    prepend,
    Prepend::default(),
    1500
);
