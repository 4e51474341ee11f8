use crate::cycle;
use crate::support::{chance, rng, settle};
use mprdma_hw::leaf::{TimerArm, TimerWheel};
use rand::Rng;
use rust_hdl_core::prelude::*;

#[test]
fn timers_fire_once_at_their_tick() {
    let mut rng = rng(40);
    let mut u = Box::new(TimerWheel::<5, 4>::default());
    u.connect_all();
    check_all(u.as_ref()).unwrap();
    settle(u.as_mut());
    let longest = 15;
    // Tick at which each queue pair is due.
    let mut due: [Option<u64>; 32] = [None; 32];
    let (mut ticks, mut fires, mut waiting) = (0u64, 0, 0);
    for step in 0..12_000u64 {
        // In the last phase the consumer stalls long enough for the wheel to fall behind.
        let patient = step < 9000;
        u.tick.next = u.init_done.val()
            & if patient {
                step % 64 == 0
            } else {
                chance(&mut rng, 15)
            };
        let qpn: usize = rng.random_range(0..32);
        u.arm_valid.next = due[qpn].is_none() && chance(&mut rng, 50);
        let delay: u64 = match rng.random_range(0..8) {
            0 => rng.random_range(0..1 << 32),
            1 => 0,
            _ => rng.random_range(1..18),
        };
        u.arm.next = TimerArm {
            qpn: bits(qpn as u64),
            delay: bits(delay),
        };
        u.fire_ready.next = if patient { true } else { chance(&mut rng, 40) };
        settle(u.as_mut());
        if u.fire_valid.val() & u.fire_ready.next {
            let qpn = u.fire.val().index();
            let tick = due[qpn].take().expect("a timer that was not armed");
            // An arm waits in the queue for some cycles, at most across one tick. A wheel that is behind may fire early.
            if patient {
                assert!(
                    (tick..=tick + 2).contains(&ticks),
                    "timer {qpn} fired at tick {ticks}, due at {tick}"
                );
            }
            fires += 1;
        }
        if u.arm_valid.next & u.arm_ready.val() {
            due[qpn] = Some(ticks + delay.clamp(1, longest));
        }
        ticks += u64::from(u.tick.next);
        let open = due.iter().flatten().count();
        assert!(!u.init_done.val() || u.busy.val() == (open > 0) || open > 0);
        waiting = waiting.max(open);
        cycle!(u);
    }
    // Nothing is lost.
    u.arm_valid.next = false;
    u.fire_ready.next = true;
    for _ in 0..100 * 16 {
        u.tick.next = !u.tick.next;
        settle(u.as_mut());
        if u.fire_valid.val() {
            due[u.fire.val().index()]
                .take()
                .expect("a timer that was not armed");
        }
        cycle!(u);
    }
    println!("{fires} timers, up to {waiting} at once");
    assert!(due.iter().all(Option::is_none), "lost: {due:?}");
    assert!(!u.busy.val());
    assert!(fires > 200 && waiting > 16);
}
