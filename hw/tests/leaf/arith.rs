use crate::support::{chance, rng, Dut};
use crate::{both, ports};
use mprdma_hw::leaf::{xorshift64, Arbiter3, Delay, Lfsr, Mul16, Ram, RamStyle};
use rand::Rng;
use rust_hdl_core::prelude::*;
use std::collections::VecDeque;

type Word = Bits<24>;

ports!(Mul16, clock: a b => product);
ports!(Lfsr, clock: reset advance load seed => value);
ports!(Delay<Word>, clock: d => q);
ports!(Ram<Word, 4>, clock: write write_addr write_data read read_addr => read_data);

/// One pair per cycle; the extremes come first.
fn multiply(dut: &mut impl Dut, steps: usize) {
    let mut rng = rng(10);
    let mut expected = VecDeque::from([0, 0]);
    for step in 0..steps {
        let (a, b): (u16, u16) = if step == 0 {
            (u16::MAX, u16::MAX)
        } else {
            (rng.random(), rng.random())
        };
        dut.set::<Bits<16>>("a", a.to_bits());
        dut.set::<Bits<16>>("b", b.to_bits());
        dut.low();
        assert_eq!(Some(dut.get("product")), expected.pop_front());
        expected.push_back(u64::from(a) * u64::from(b));
        dut.high();
    }
}

both!(multiplier, multiply, Mul16::default(), 300);

fn random(dut: &mut impl Dut, steps: usize) {
    let mut rng = rng(11);
    let mut state = 0x1234_5678_9abc_def0;
    for step in 0..steps {
        let (advance, load) = (chance(&mut rng, 70), chance(&mut rng, 3));
        let seed = if step % 2 == 0 { rng.random() } else { 0 };
        dut.set("advance", advance);
        dut.set("load", load);
        dut.set::<Bits<64>>("seed", bits(seed));
        dut.low();
        assert_eq!(dut.get("value"), state);
        if load {
            state = seed.max(1);
        } else if advance {
            state = xorshift64(state);
        }
        dut.high();
    }
}

both!(
    random_numbers,
    random,
    Lfsr::new(0x1234_5678_9abc_def0),
    300
);

fn delay(dut: &mut impl Dut, steps: usize) {
    let mut rng = rng(13);
    let mut inside = VecDeque::from([0; 5]);
    for _ in 0..steps {
        let word = rng.random_range(0..1 << 24);
        dut.set::<Word>("d", bits(word));
        dut.low();
        assert_eq!(Some(dut.get("q")), inside.pop_front());
        inside.push_back(word);
        dut.high();
    }
}

both!(delay_line, delay, Delay::<Word>::new(5), 100);

/// Reads and writes at random, often at the same address; the read pipeline stands still while `read` is low.
fn memory(dut: &mut impl Dut, steps: usize, latency: usize) {
    let mut rng = rng(14);
    let mut words = [0u64; 16];
    let mut stages = VecDeque::from(vec![0; latency]);
    for _ in 0..steps {
        let (write, read) = (chance(&mut rng, 50), chance(&mut rng, 70));
        let write_addr: usize = rng.random_range(0..16);
        let read_addr: usize = if chance(&mut rng, 50) {
            write_addr
        } else {
            rng.random_range(0..16)
        };
        let word = rng.random_range(0..1 << 24);
        dut.set("write", write);
        dut.set::<Bits<4>>("write_addr", bits(write_addr as u64));
        dut.set::<Word>("write_data", bits(word));
        dut.set("read", read);
        dut.set::<Bits<4>>("read_addr", bits(read_addr as u64));
        dut.low();
        assert_eq!(dut.get("read_data"), stages[0]);
        dut.high();
        if read {
            stages.pop_front();
            stages.push_back(words[read_addr]);
        }
        if write {
            words[write_addr] = word;
        }
    }
}

both!(
    ram,
    |dut, steps| memory(dut, steps, 1),
    Ram::<Word, 4>::default(),
    300
);
both!(
    ram_with_output_register,
    |dut, steps| memory(dut, steps, 2),
    Ram::<Word, 4>::new(RamStyle::Ultra, true),
    300
);

#[test]
fn arbiter_is_fair_and_loses_nothing() {
    let mut rng = rng(12);
    let mut dut =
        mprdma_hw::cosim::Cosim::new(Arbiter3::<Bits<16>>::default(), "arbiter", |u, level| {
            u.clock.next = level.into();
        })
        .unwrap();
    let mut sent: [VecDeque<u64>; 3] = Default::default();
    let mut served = [0usize; 3];
    let mut next = [0u64; 3];
    let mut asking = [false; 3];
    for step in 0..900 {
        // First all three ask all the time, then at random.
        let ask = if step < 300 { 100 } else { 40 };
        dut.low(|u| {
            for i in 0..3 {
                asking[i] = asking[i] || chance(&mut rng, ask);
                u.in_valid[i].next = asking[i];
                u.in_data[i].next = bits((i as u64) << 14 | next[i] & 0x3fff);
            }
            u.out_ready.next = step < 300 || chance(&mut rng, 60);
        })
        .unwrap();
        let u = &dut.block;
        if u.out_valid.val() & u.out_ready.next {
            let word = u.out_data.val().to_u64();
            let from = (word >> 14) as usize;
            assert_eq!(Some(word), sent[from].pop_front());
            served[from] += 1;
        }
        let moved: Vec<usize> = (0..3)
            .filter(|&i| asking[i] & u.in_ready[i].val())
            .collect();
        assert!(moved.len() <= 1);
        for i in moved {
            sent[i].push_back(u.in_data[i].next.to_u64());
            next[i] += 1;
            asking[i] = false;
        }
        dut.high().unwrap();
        if step == 299 {
            assert_eq!(served.iter().sum::<usize>(), 299);
            assert!(served.iter().all(|&n| n >= 99), "{served:?}");
        }
    }
    dut.verify().unwrap();
}
