use crate::cycle;
use crate::support::{chance, rng, settle};
use mprdma_hw::leaf::{xorshift64, Arbiter3, Lfsr, Mul16};
use rand::Rng;
use rust_hdl_core::prelude::*;
use std::collections::VecDeque;

#[test]
fn multiplier_takes_one_pair_per_cycle() {
    let mut rng = rng(10);
    let mut u = Box::new(Mul16::default());
    u.connect_all();
    settle(u.as_mut());
    let mut expected = VecDeque::from([0u32]);
    for step in 0..300 {
        let (a, b): (u16, u16) = if step == 7 {
            (u16::MAX, u16::MAX)
        } else {
            (rng.random(), rng.random())
        };
        u.a.next = a.to_bits();
        u.b.next = b.to_bits();
        expected.push_back(u32::from(a) * u32::from(b));
        settle(u.as_mut());
        cycle!(u);
        assert_eq!(u.product.val().to_u32(), expected.pop_front().unwrap());
    }
}

#[test]
fn lfsr_follows_xorshift() {
    let mut rng = rng(11);
    let mut u = Box::new(Lfsr::new(0x1234_5678_9abc_def0));
    u.connect_all();
    check_all(u.as_ref()).unwrap();
    settle(u.as_mut());
    let mut state = 0x1234_5678_9abc_def0u64;
    for step in 0..300 {
        u.advance.next = chance(&mut rng, 70);
        u.load.next = chance(&mut rng, 3);
        u.seed.next = if step < 150 {
            rng.random::<u64>().to_bits()
        } else {
            bits(0)
        };
        settle(u.as_mut());
        assert_eq!(u.value.val().to_u64(), state);
        if u.load.next {
            state = u.seed.next.to_u64().max(1);
        } else if u.advance.next {
            state = xorshift64(state);
        }
        cycle!(u);
    }
}

#[test]
fn arbiter_is_fair_and_loses_nothing() {
    let mut rng = rng(12);
    let mut u = Box::new(Arbiter3::<Bits<16>>::default());
    u.connect_all();
    check_all(u.as_ref()).unwrap();
    settle(u.as_mut());
    let mut sent: [VecDeque<u64>; 3] = Default::default();
    let mut served = [0usize; 3];
    let mut next = [0u64; 3];
    for step in 0..900 {
        // First all three ask all the time, then at random.
        let ask = if step < 300 { 100 } else { 40 };
        for (i, next) in next.iter().enumerate() {
            if !u.in_valid[i].next {
                u.in_valid[i].next = chance(&mut rng, ask);
            }
            u.in_data[i].next = bits((i as u64) << 14 | next & 0x3fff);
        }
        u.out_ready.next = step < 300 || chance(&mut rng, 60);
        settle(u.as_mut());
        if u.out_valid.val() & u.out_ready.next {
            let word = u.out_data.val().to_u64();
            let from = (word >> 14) as usize;
            assert_eq!(Some(word), sent[from].pop_front());
            served[from] += 1;
        }
        let moved: Vec<bool> = (0..3)
            .map(|i| u.in_valid[i].next & u.in_ready[i].val())
            .collect();
        assert!(moved.iter().filter(|&&m| m).count() <= 1);
        for i in 0..3 {
            if moved[i] {
                sent[i].push_back(u.in_data[i].next.to_u64());
                next[i] += 1;
            }
        }
        cycle!(u);
        for i in 0..3 {
            if moved[i] {
                u.in_valid[i].next = false;
            }
        }
        if step == 299 {
            assert_eq!(served.iter().sum::<usize>(), 299);
            assert!(served.iter().all(|&n| n >= 99), "{served:?}");
        }
    }
}
