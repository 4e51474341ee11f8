use crate::support::{chance, rng, Dut};
use crate::{both, ports};
use mprdma_hw::leaf::{TimerArm, TimerWheel};
use rand::Rng;
use rust_hdl_core::prelude::*;

type Wheel = TimerWheel<5, 4>;

ports!(Wheel, clock: reset arm arm_valid tick fire_ready => arm_ready fire fire_valid init_done busy);

/// Arms 32 timers at random; every one fires once, and at its tick while the wheel keeps up.
fn timers(dut: &mut impl Dut, steps: usize) {
    let mut rng = rng(40);
    let longest = 15;
    // Tick at which each queue pair is due.
    let mut due: [Option<u64>; 32] = [None; 32];
    let mut short = [false; 32];
    let (mut ticks, mut fires, mut most) = (0u64, 0, 0);
    let mut ready = false;
    for step in 0..steps {
        // Regular ticks, then ticks in bursts of four, then a consumer that stalls until the wheel is far behind.
        let phase = step * 3 / steps;
        let patient = phase < 2;
        let tick = ready
            && match phase {
                0 => step % 64 == 0,
                1 => step % 256 < 4,
                _ => chance(&mut rng, 15),
            };
        let qpn = rng.random_range(0..32);
        let arm = due[qpn].is_none() && chance(&mut rng, 50);
        let delay: u64 = match rng.random_range(0..8) {
            0 => rng.random_range(0..1 << 32),
            1 => 0,
            _ => rng.random_range(1..18),
        };
        let fire_ready = patient || chance(&mut rng, 40);
        dut.set("tick", tick);
        dut.set("arm_valid", arm);
        dut.set(
            "arm",
            TimerArm {
                qpn: bits(qpn as u64),
                delay: bits(delay),
            },
        );
        dut.set("fire_ready", fire_ready);
        dut.low();
        ready = dut.bit("init_done");
        if dut.bit("fire_valid") && fire_ready {
            let qpn = dut.get("fire") as usize;
            let tick = due[qpn].take().expect("a timer that was not armed");
            // An arm waits in the queue for some cycles, in which ticks pass. Behind a burst, only a long delay is cut.
            if phase == 0 {
                assert!(
                    (tick..=tick + 2).contains(&ticks),
                    "timer {qpn} fired at tick {ticks}, due at {tick}"
                );
            } else if phase == 1 && short[qpn] {
                assert!(
                    (tick..=tick + 8).contains(&ticks),
                    "timer {qpn} fired at tick {ticks}, due at {tick}"
                );
            }
            fires += 1;
        } else {
            assert!(dut.bit("busy") || due.iter().all(Option::is_none));
        }
        if arm && dut.bit("arm_ready") {
            due[qpn] = Some(ticks + delay.clamp(1, longest));
            short[qpn] = delay < 10;
        }
        ticks += u64::from(tick);
        most = most.max(due.iter().flatten().count());
        dut.high();
    }
    // Nothing is lost.
    dut.set("arm_valid", false);
    dut.set("fire_ready", true);
    for step in 0..400 {
        dut.set("tick", step % 16 == 0);
        dut.low();
        if dut.bit("fire_valid") {
            due[dut.get("fire") as usize]
                .take()
                .expect("a timer that was not armed");
        }
        dut.high();
    }
    println!("{fires} timers, up to {most} at once");
    assert!(due.iter().all(Option::is_none), "lost: {due:?}");
    assert!(!dut.bit("busy"));
    assert!(fires > steps / 50 && most > 16);
}

both!(
    timers_fire_once_at_their_tick,
    timers,
    Wheel::default(),
    6000
);
