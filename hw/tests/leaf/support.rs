//! Random traffic for the leaf tests.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rust_hdl_core::prelude::*;

/// A generator whose seed is printed, so that a failure can be repeated.
pub fn rng(seed: u64) -> ChaCha8Rng {
    println!("seed {seed}");
    ChaCha8Rng::seed_from_u64(seed)
}

/// True with the given percentage.
pub fn chance(rng: &mut ChaCha8Rng, percent: u32) -> bool {
    rng.random_range(0..100) < percent
}

/// Lets the combinational logic settle.
pub fn settle<B: Block>(block: &mut B) {
    assert!(simulate(block, 300), "the block does not settle");
}

/// One rising and one falling edge of `clock`, after the inputs have settled.
#[macro_export]
macro_rules! cycle {
    ($block:expr) => {
        $block.clock.next = Clock { clk: true };
        $crate::support::settle(&mut *$block);
        $block.clock.next = Clock { clk: false };
        $crate::support::settle(&mut *$block);
    };
}
