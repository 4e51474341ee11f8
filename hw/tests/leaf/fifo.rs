use crate::support::{chance, rng, Dut};
use crate::{both, ports};
use mprdma_hw::leaf::{AsyncFifo, Beat, PacketFifo, Skid, SyncFifo};
use rand::Rng;
use rust_hdl_core::prelude::*;
use std::collections::VecDeque;

type Word = Bits<24>;

ports!(Skid<Word>, clock: reset in_data in_valid out_ready => in_ready out_data out_valid);
ports!(SyncFifo<Word, 3>, clock: reset in_data in_valid out_ready => in_ready out_data out_valid count);
ports!(SyncFifo<Word, 4>, clock: reset in_data in_valid out_ready => in_ready out_data out_valid count);
ports!(PacketFifo<4>, clock: reset in_beat in_valid in_drop out_ready discard
    => overflow in_use out_beat out_valid busy);

/// Random words through a block with stream ports; checks order, stability under stall, rate, the number inside and reset.
fn stream(dut: &mut impl Dut, steps: usize, latency: usize, capacity: usize, counts: bool) {
    let mut rng = rng(1);
    let mut inside: VecDeque<u64> = VecDeque::new();
    let (mut most, mut delivered) = (0, 0);
    let mut held = None;
    for step in 0..steps {
        // Phases: both sides free, slow consumer, slow producer, then again.
        let phase = step * 6 / steps;
        let (give, take) = [(100, 100), (90, 30), (30, 90)][phase % 3];
        let word: u64 = rng.random_range(0..1 << 24);
        let reset = step == steps / 2;
        let (valid, ready) = (chance(&mut rng, give), chance(&mut rng, take));
        dut.set("reset", reset);
        dut.set("in_valid", valid);
        dut.set::<Word>("in_data", bits(word));
        dut.set("out_ready", ready);
        dut.low();
        if counts {
            assert_eq!(dut.get("count"), inside.len() as u64);
        }
        if let Some(held) = held {
            assert!(dut.bit("out_valid"), "valid fell without a transfer");
            assert_eq!(dut.get("out_data"), held, "data changed while stalled");
        }
        held = (dut.bit("out_valid") && !ready && !reset).then(|| dut.get("out_data"));
        if dut.bit("out_valid") && ready {
            assert_eq!(Some(dut.get("out_data")), inside.pop_front());
            delivered += 1;
        }
        if dut.bit("in_ready") && valid {
            inside.push_back(word);
        }
        most = most.max(inside.len());
        if reset {
            inside.clear();
        }
        dut.high();
        if step + 1 == steps / 6 {
            assert!(
                delivered >= step + 1 - latency,
                "only {delivered} items in {} free cycles",
                step + 1
            );
        }
    }
    assert_eq!(most, capacity);
}

both!(
    skid,
    |dut, steps| stream(dut, steps, 1, 2, false),
    Skid::<Word>::default(),
    1200
);
both!(
    shallow_fifo,
    |dut, steps| stream(dut, steps, 2, 7, true),
    SyncFifo::<Word, 3>::shallow(),
    1200
);
both!(
    deep_fifo,
    |dut, steps| stream(dut, steps, 3, 15, true),
    SyncFifo::<Word, 4>::deep(),
    1200
);

/// Packets of 1 to 12 beats, written faster than they are read.
fn packets(dut: &mut impl Dut, steps: usize) {
    let mut rng = rng(4);
    let mut kept: VecDeque<Vec<u64>> = VecDeque::new();
    let mut writing: Vec<u64> = vec![];
    let mut left = 0;
    let (mut overflows, mut drops, mut discards, mut delivered) = (0, 0, 0, 0);
    let mut position = 0;
    // Beats in the buffer when the packet being written began.
    let mut before = 0;
    let mut last_discard = 0;
    // The fate of a packet is known one cycle after its last beat.
    let mut judged: Option<(Vec<u64>, bool)> = None;
    for step in 0..steps {
        let take = if step % 1000 < 500 { 95 } else { 40 };
        if left == 0 {
            left = rng.random_range(1..12);
        }
        let valid = chance(&mut rng, 80);
        let word: u64 = rng.random();
        let drop = chance(&mut rng, 30);
        let ready = chance(&mut rng, take);
        let discard = chance(&mut rng, 5);
        dut.set("in_valid", valid);
        dut.set(
            "in_beat",
            Beat {
                data: bits(word),
                nbytes: bits(64),
                last: left == 1,
            },
        );
        dut.set("in_drop", drop);
        dut.set("out_ready", ready);
        dut.set("discard", discard);
        dut.low();
        if let Some((packet, dropped)) = judged.take() {
            if dut.bit("overflow") {
                overflows += 1;
                // A discarded packet takes a cycle per beat to go.
                let going = if step < last_discard + 30 { 11 } else { 0 };
                assert!(packet.len() + before + going + 2 > 15, "there was room");
            } else if dropped {
                drops += 1;
            } else {
                kept.push_back(packet);
            }
        } else {
            assert!(!dut.bit("overflow"));
        }
        assert!(dut.bit("busy") || (kept.is_empty() && writing.is_empty()));
        if dut.bit("out_valid") {
            let beat = dut.beat("out_beat");
            let packet = kept.front().expect("a packet nobody kept");
            assert_eq!(beat.data, bits(packet[position]));
            assert_eq!(beat.last, position + 1 == packet.len());
            if ready {
                position += 1;
            }
            if discard || (ready && beat.last) {
                if ready && beat.last {
                    delivered += 1;
                } else {
                    discards += 1;
                    last_discard = step;
                }
                position = 0;
                kept.pop_front();
            }
        }
        if valid {
            if writing.is_empty() {
                before = kept.iter().map(Vec::len).sum::<usize>();
            }
            writing.push(word);
            left -= 1;
            if left == 0 {
                judged = Some((std::mem::take(&mut writing), drop));
            }
        }
        dut.high();
    }
    println!("delivered {delivered} overflows {overflows} drops {drops} discards {discards}");
    assert!(
        delivered > steps / 50
            && overflows > steps / 200
            && drops > steps / 50
            && discards > steps / 200
    );
}

both!(packet_fifo, packets, PacketFifo::<4>::default(), 2000);

/// Words between clocks whose half periods are `half_in` and `half_out`, in steps of one evaluation.
fn cross(half_in: usize, half_out: usize, give: u32, take: u32) {
    use mprdma_hw::cosim::Frame;
    let mut rng = rng((half_in * 100 + half_out) as u64);
    let mut dut = crate::support::verilated(AsyncFifo::<Word, 4>::default(), "async_fifo");
    let mut frame: Frame = dut.inputs().clone();
    let mut inside: VecDeque<u64> = VecDeque::new();
    let (mut in_level, mut out_level) = (false, false);
    let (mut delivered, mut most) = (0, 0);
    let mut outputs = {
        frame.set("in_clock", 0);
        frame.set("out_clock", 0);
        dut.levels(&[frame.clone()]).unwrap().remove(0)
    };
    for time in 1..60_000 {
        let in_edge = time % half_in == 0;
        let out_edge = time % half_out == 0;
        if in_edge {
            in_level = !in_level;
        }
        if out_edge {
            out_level = !out_level;
        }
        // What each side does at its rising edge follows from the levels before it.
        if in_edge && in_level && frame.bit("in_valid") && outputs.bit("in_ready") {
            inside.push_back(frame.get("in_data"));
        }
        if out_edge && out_level && frame.bit("out_ready") && outputs.bit("out_valid") {
            assert_eq!(Some(outputs.get("out_data")), inside.pop_front());
            delivered += 1;
        }
        most = most.max(inside.len());
        frame.set("in_clock", u64::from(in_level));
        frame.set("out_clock", u64::from(out_level));
        if in_edge && !in_level {
            frame.set("in_valid", u64::from(chance(&mut rng, give)));
            frame.set("in_data", rng.random_range(0..1 << 24));
        }
        if out_edge && !out_level {
            frame.set("out_ready", u64::from(chance(&mut rng, take)));
        }
        outputs = dut.levels(&[frame.clone()]).unwrap().remove(0);
    }
    println!("half periods {half_in} and {half_out}: {delivered} words, up to {most} inside");
    let slow = 2 * half_in.max(half_out);
    if give == 100 && take == 100 {
        assert!(
            delivered > 59_000 / slow - 20,
            "below the rate of the slower clock"
        );
    }
    assert!(delivered > 59_000 / slow / 4 && most <= 16);
}

#[test]
fn async_fifo_at_many_clock_ratios() {
    for (half_in, half_out) in [
        (5, 5),
        (5, 6),
        (7, 5),
        (2, 13),
        (13, 2),
        (1, 30),
        (30, 1),
        (10, 31),
    ] {
        cross(half_in, half_out, 100, 100);
        cross(half_in, half_out, 70, 50);
    }
}

#[test]
fn async_fifo_simulates_as_printed() {
    let mut rng = rng(6);
    let mut step = 0u64;
    let mut dut = mprdma_hw::cosim::Cosim::new(
        AsyncFifo::<Word, 3>::default(),
        "async_fifo_small",
        move |u, _| {
            u.in_clock.next = (step % 6 >= 3).into();
            u.out_clock.next = (step % 10 >= 5).into();
            step += 1;
        },
    )
    .unwrap();
    let mut words = VecDeque::new();
    for step in 1..3000u64 {
        let sent = (step % 6 == 3 && dut.block.in_valid.next & dut.block.in_ready.val())
            .then_some(dut.block.in_data.next);
        words.extend(sent);
        if step % 10 == 5 && dut.block.out_valid.val() & dut.block.out_ready.next {
            let word = words.pop_front().expect("a word nobody sent");
            assert_eq!(dut.block.out_data.val(), word);
        }
        dut.low(|u| {
            if step % 6 == 0 {
                u.in_valid.next = chance(&mut rng, 60);
                u.in_data.next = bits(rng.random_range(0..1 << 24));
            }
            if step % 10 == 0 {
                u.out_ready.next = chance(&mut rng, 60);
            }
        })
        .unwrap();
    }
    dut.verify().unwrap();
}
