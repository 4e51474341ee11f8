use crate::cycle;
use crate::support::{chance, rng, settle};
use mprdma_hw::leaf::{Beat, PacketFifo, Skid, SyncFifo};
use rand::Rng;
use rust_hdl_core::prelude::*;
use std::collections::VecDeque;

/// Random words through a block with stream ports; checks order, stability under stall and the number inside.
macro_rules! stream_test {
    ($name:ident, $block:expr, $seed:expr, $latency:expr, $capacity:expr $(, $count:ident)?) => {
        #[test]
        fn $name() {
            let mut rng = rng($seed);
            let mut u = Box::new($block);
            u.connect_all();
            check_all(u.as_ref()).unwrap();
            settle(u.as_mut());
            let mut inside: VecDeque<u64> = VecDeque::new();
            let (mut most, mut delivered) = (0, 0);
            let mut held = None;
            for step in 0..1200 {
                // Phases: both sides free, slow consumer, slow producer.
                let (give, take) = [(100, 100), (90, 30), (30, 90)][step / 400];
                let word: u64 = rng.random_range(0..1 << 24);
                u.in_valid.next = chance(&mut rng, give);
                u.in_data.next = bits(word);
                u.out_ready.next = chance(&mut rng, take);
                settle(u.as_mut());
                let pushed = u.in_valid.next & u.in_ready.val();
                let popped = u.out_valid.val() & u.out_ready.next;
                $(assert_eq!(u.$count.val().index(), inside.len());)?
                if let Some(held) = held {
                    assert!(u.out_valid.val(), "valid fell without a transfer");
                    assert_eq!(u.out_data.val(), held, "data changed while stalled");
                }
                held = (u.out_valid.val() & !u.out_ready.next).then(|| u.out_data.val());
                if popped {
                    assert_eq!(u.out_data.val(), bits(inside.pop_front().expect("an item nobody sent")));
                    delivered += 1;
                }
                if pushed {
                    inside.push_back(word);
                }
                most = most.max(inside.len());
                cycle!(u);
                if step == 399 {
                    assert!(delivered >= 399 - $latency, "only {delivered} items in 400 free cycles");
                }
            }
            assert_eq!(most, $capacity);
        }
    };
}

stream_test!(
    skid_keeps_order_and_rate,
    Skid::<Bits<24>>::default(),
    1,
    1,
    2
);
stream_test!(
    shallow_fifo_keeps_order_and_rate,
    SyncFifo::<Bits<24>, 3>::shallow(),
    2,
    2,
    7,
    count
);
stream_test!(
    deep_fifo_keeps_order_and_rate,
    SyncFifo::<Bits<24>, 4>::deep(),
    3,
    3,
    15,
    count
);

#[test]
fn packet_fifo_keeps_whole_packets() {
    let mut rng = rng(4);
    let mut u = Box::new(PacketFifo::<4>::default());
    u.connect_all();
    check_all(u.as_ref()).unwrap();
    settle(u.as_mut());
    let mut kept: VecDeque<Vec<u64>> = VecDeque::new();
    let mut writing: Vec<u64> = vec![];
    let mut left = 0;
    let (mut overflows, mut drops, mut discards, mut delivered) = (0, 0, 0, 0);
    let mut reading: Vec<u64> = vec![];
    // The fate of a packet is known one cycle after its last beat.
    let mut judged: Option<(Vec<u64>, bool)> = None;
    for step in 0..2500 {
        let take = if step % 1000 < 500 { 95 } else { 40 };
        if left == 0 {
            left = rng.random_range(1..12);
        }
        u.in_valid.next = chance(&mut rng, 80);
        let word: u64 = rng.random_range(0..1 << 32);
        u.in_beat.next = Beat {
            data: bits(word),
            nbytes: bits(64),
            last: left == 1,
        };
        u.in_drop.next = chance(&mut rng, 30);
        u.out_ready.next = chance(&mut rng, take);
        u.discard.next = false;
        settle(u.as_mut());
        u.discard.next = u.out_valid.val() & chance(&mut rng, 5);
        settle(u.as_mut());
        if let Some((packet, dropped)) = judged.take() {
            if u.overflow.val() {
                overflows += 1;
                assert!(
                    packet.len() > 1 || kept.len() > 1,
                    "a packet was lost in an empty buffer"
                );
            } else if dropped {
                drops += 1;
            } else {
                kept.push_back(packet);
            }
        } else {
            assert!(!u.overflow.val());
        }
        if u.out_valid.val() {
            let beat = u.out_beat.val();
            let packet = kept.front().expect("a packet nobody kept");
            assert_eq!(beat.data, bits(packet[reading.len()]));
            if u.discard.next {
                discards += 1;
                reading.clear();
                kept.pop_front();
            } else if u.out_ready.next {
                reading.push(packet[reading.len()]);
                assert_eq!(beat.last, reading.len() == packet.len());
                if beat.last {
                    delivered += 1;
                    reading.clear();
                    kept.pop_front();
                }
            }
        }
        if u.in_valid.next {
            writing.push(word);
            left -= 1;
            if left == 0 {
                judged = Some((std::mem::take(&mut writing), u.in_drop.next));
            }
        }
        cycle!(u);
    }
    println!("delivered {delivered} overflows {overflows} drops {drops} discards {discards}");
    assert!(delivered > 50 && overflows > 20 && drops > 50 && discards > 10);
}
