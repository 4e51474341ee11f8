//! The Verilog printer, construct by construct: the rust-hdl simulator against Verilator, Icarus Verilog and
//! Yosys.

// The constructs under test are written as they are on purpose.
#![allow(
    clippy::bool_comparison,
    clippy::match_overlapping_arm,
    clippy::collapsible_match
)]

#[path = "printer/authoring.rs"]
mod authoring;
#[path = "printer/expressions.rs"]
mod expressions;
#[path = "printer/harness.rs"]
mod harness;
#[path = "printer/hierarchy.rs"]
mod hierarchy;
#[path = "printer/random_kernels.rs"]
mod random_kernels;
#[path = "printer/refused.rs"]
mod refused;
#[path = "printer/registry.rs"]
mod registry;
#[path = "printer/statements.rs"]
mod statements;
#[path = "printer/values.rs"]
mod values;

use mprdma_hw::cosim::Cosim;
use mprdma_hw::prelude::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Drives `block` with `steps` random inputs and replays the record in all engines.
///
/// Each output of these blocks is one construct, so a mismatch names the construct. Returns the Verilog.
fn compare<B: Block>(
    block: B,
    name: &str,
    steps: usize,
    set_clock: impl FnMut(&mut B, bool) + Send + 'static,
    drive: impl FnMut(&mut B, &mut ChaCha8Rng),
) -> String {
    let cosim = record(block, name, steps, set_clock, drive);
    let replays = [
        ("Verilator", cosim.replay().expect("Verilator runs")),
        ("Yosys", cosim.replay_yosys().expect("Yosys runs")),
        (
            "Icarus Verilog",
            cosim.replay_icarus().expect("Icarus Verilog runs"),
        ),
    ];
    for (engine, replay) in &replays {
        if let Err(error) = replay.check(name) {
            panic!("{engine}: {error}\n{}", cosim.verilog());
        }
    }
    cosim.verilog().to_string()
}

/// Drives `block` with `steps` random inputs.
fn record<B: Block>(
    block: B,
    name: &str,
    steps: usize,
    set_clock: impl FnMut(&mut B, bool) + Send + 'static,
    mut drive: impl FnMut(&mut B, &mut ChaCha8Rng),
) -> Cosim<B> {
    const SEED: u64 = 0x5eed_0001;
    println!("{name}: seed {SEED:#x}");
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let mut cosim = Cosim::new(block, name, set_clock).expect("printable");
    for _ in 0..steps {
        cosim
            .cycle(|block| drive(block, &mut random))
            .expect("settles");
    }
    cosim
}

/// A random vector, with the corner values more often than chance gives them.
fn bits_of<const N: usize>(random: &mut ChaCha8Rng) -> Bits<N> {
    let corner = random.random_range(0..8);
    let mut value = Bits::<N>::default();
    for i in 0..N {
        let bit = match corner {
            0 => false,
            1 => true,
            2 => i == 0,
            3 => i == N - 1,
            4 => i < 4 && random.random(),
            _ => random.random(),
        };
        value = value.replace_bit(i, bit);
    }
    value
}
