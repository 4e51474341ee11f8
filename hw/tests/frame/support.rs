//! Records as bytes, random frames, and the two ports of a MAC.

pub use mprdma_hw::cosim::bytes_of;
use mprdma_hw::cosim::{Frame as Ports, VerilatedBlock};
use mprdma_hw::prelude::*;
use mprdma_hw::with_big_stack;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A generator whose seed is printed, so that a failure can be repeated.
pub fn rng(seed: u64) -> ChaCha8Rng {
    println!("seed {seed}");
    ChaCha8Rng::seed_from_u64(seed)
}

/// True with the given percentage.
pub fn chance(rng: &mut ChaCha8Rng, percent: u32) -> bool {
    rng.random_range(0..100) < percent
}

/// Random bytes.
pub fn noise(rng: &mut ChaCha8Rng, length: usize) -> Vec<u8> {
    (0..length).map(|_| rng.random()).collect()
}

/// Builds, prints, compiles and starts a block, and holds its reset for a few cycles.
pub fn verilated<B: Block>(name: &str, make: impl FnOnce() -> B + Send) -> VerilatedBlock {
    let mut block = with_big_stack(|| {
        let mut block = make();
        block.connect_all();
        VerilatedBlock::new(&block, name).unwrap_or_else(|e| panic!("{name}: {e}"))
    });
    block.inputs().set("reset", 1);
    for _ in 0..4 {
        block.cycle().expect("a cycle");
    }
    block.inputs().set("reset", 0);
    block
}

/// Wide constants from numbers.
pub fn wide<const N: usize>(value: u128) -> Bits<N> {
    mprdma_hw::leaf::beat::bits_of_bytes(&value.to_le_bytes()[..N / 8])
}

/// A stream that drives the ports `name`, `name_valid` of a block and keeps an item until it is taken.
pub struct Source {
    name: &'static str,
    pub items: std::collections::VecDeque<Vec<(&'static str, Vec<u8>)>>,
    shown: bool,
}

impl Source {
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            items: Default::default(),
            shown: false,
        }
    }

    /// Shows the next item, if one is shown already or `offer` says so.
    pub fn drive(&mut self, inputs: &mut Ports, offer: bool) {
        self.shown = !self.items.is_empty() && (self.shown || offer);
        inputs.set(&format!("{}_valid", self.name), u64::from(self.shown));
        if self.shown {
            for (port, value) in &self.items[0] {
                inputs.set_bytes(port, value);
            }
        }
    }

    /// Looks whether the item was taken in this cycle.
    pub fn sample(&mut self, outputs: &Ports) -> bool {
        let taken = self.shown && outputs.bit(&format!("{}_ready", self.name));
        if taken {
            self.items.pop_front();
            self.shown = false;
        }
        taken
    }
}

/// A frame with the cycles of its first and last beat.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    pub bytes: Vec<u8>,
    pub first: u64,
    pub last: u64,
}

/// Collects frames from an AXI stream; checks that they are packed and have no idle cycle inside.
#[derive(Default)]
pub struct Mac {
    open: Option<Seen>,
    pub frames: std::collections::VecDeque<Seen>,
}

impl Mac {
    pub fn sample(&mut self, outputs: &Ports, ready: bool, cycle: u64) {
        if !outputs.bit("m_axis_tx_tvalid") {
            assert!(self.open.is_none(), "idle cycle {cycle} inside a frame");
            return;
        }
        if !ready {
            return;
        }
        let keep = outputs.get("m_axis_tx_tkeep");
        let nbytes = keep.count_ones() as usize;
        let last = outputs.bit("m_axis_tx_tlast");
        assert!(nbytes > 0 && (last || nbytes == 64), "keep {keep:x}");
        assert_eq!(
            keep,
            if nbytes == 64 {
                u64::MAX
            } else {
                (1 << nbytes) - 1
            }
        );
        let seen = self.open.get_or_insert(Seen {
            bytes: vec![],
            first: cycle,
            last: cycle,
        });
        seen.bytes
            .extend(&outputs.get_bytes("m_axis_tx_tdata")[..nbytes]);
        seen.last = cycle;
        if last {
            self.frames.extend(self.open.take());
        }
    }
}
