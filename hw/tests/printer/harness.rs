//! The harness itself.

use crate::hierarchy::Delay;
use mprdma_hw::cosim::{Frame, VerilatedBlock};
use mprdma_hw::prelude::*;

block! {
    /// A counter and wide data, to see what a cycle is.
    struct Probe {
        in { clock: Clock, reset: Bit, step: Bits<8>, data: Bits<513> }
        out { count: Bits<8>, next_count: Bits<8>, echo: Bits<513>, late: Bits<513> }
        reg { total: Bits<8> = bits(3) }
        pipe { held: Bits<513> }
    }
}

impl Logic for Probe {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, total, held);
        self.total.d.next = self.total.q.val() + self.step.val();
        self.held.d.next = self.data.val();
        self.count.next = self.total.q.val();
        self.next_count.next = self.total.q.val() + self.step.val();
        self.echo.next = self.data.val();
        self.late.next = self.held.q.val();
    }
}

fn probe() -> VerilatedBlock {
    let mut block = Probe::default();
    block.connect_all();
    VerilatedBlock::new(&block, "probe").unwrap()
}

#[test]
fn a_cycle_samples_before_the_edge() {
    mprdma_hw::with_big_stack(|| {
        let mut probe = probe();
        probe.inputs().set("step", 5);
        let outputs = probe.cycle().unwrap();
        assert_eq!((outputs.get("count"), outputs.get("next_count")), (3, 8));
        let outputs = probe.cycle().unwrap();
        assert_eq!((outputs.get("count"), outputs.get("next_count")), (8, 13));
        probe.inputs().set("clock", 0);
        probe.cycle().unwrap();
        assert_eq!(probe.cycle().unwrap().get("count"), 13);
        probe.inputs().set("clock", 1);
        probe.inputs().set("reset", 1);
        probe.cycle().unwrap();
        assert_eq!(probe.cycle().unwrap().get("count"), 3);
    });
}

#[test]
fn wide_ports_and_batches() {
    mprdma_hw::with_big_stack(|| {
        let mut probe = probe();
        let mut frames: Vec<Frame> = vec![];
        for i in 0..10_000_u32 {
            let mut frame = probe.inputs().clone();
            let mut data = [0; 65];
            data[..4].copy_from_slice(&i.to_le_bytes());
            data[60] = 0xa5;
            data[64] = 1;
            frame.set_bytes("data", &data);
            frame.set("step", u64::from(i % 7));
            frames.push(frame);
        }
        let outputs = probe.cycles(&frames).unwrap();
        let mut count = 3_u64;
        for (i, output) in outputs.iter().enumerate() {
            assert_eq!(output.get("count"), count);
            assert_eq!(output.get_bytes("echo"), frames[i].get_bytes("data"));
            if i > 0 {
                assert_eq!(output.get_bytes("late"), frames[i - 1].get_bytes("data"));
            }
            count = (count + i as u64 % 7) % 256;
        }
    });
}

/// Two models of one library, used from two threads, do not disturb each other.
#[test]
fn models_are_independent() {
    mprdma_hw::with_big_stack(|| {
        let mut one = probe();
        let mut two = probe();
        one.inputs().set("step", 1);
        two.inputs().set("step", 2);
        std::thread::scope(|scope| {
            for (block, step) in [(&mut one, 1), (&mut two, 2)] {
                scope.spawn(move || {
                    for i in 0..5_000_u64 {
                        assert_eq!(block.cycle().unwrap().get("count"), (3 + i * step) % 256);
                    }
                });
            }
        });
    });
}

#[test]
#[should_panic(expected = "no port `nonsense`; there are clock, x")]
fn unknown_ports_are_named() {
    let mut block = Delay::default();
    block.connect_all();
    VerilatedBlock::new(&block, "delay_names")
        .unwrap()
        .inputs()
        .set("nonsense", 1);
}

#[test]
#[should_panic(expected = "0x100 does not fit the 8 bits of `x`")]
fn values_must_fit() {
    let mut block = Delay::default();
    block.connect_all();
    VerilatedBlock::new(&block, "delay_names")
        .unwrap()
        .inputs()
        .set("x", 0x100);
}

/// Speed of a small block, in cycles per second.
#[test]
#[ignore = "a measurement"]
fn speed() {
    mprdma_hw::with_big_stack(|| {
        let mut probe = probe();
        let start = std::time::Instant::now();
        for _ in 0..1_000_000 {
            probe.cycle().unwrap();
        }
        println!(
            "{:.0} cycles/s one by one",
            1e6 / start.elapsed().as_secs_f64()
        );
    });
}
