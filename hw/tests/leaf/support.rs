//! One testbench, two devices: the rust-hdl simulator and the Verilated block, both driven by port name.

use mprdma_hw::cosim::{Cosim, VerilatedBlock};
use mprdma_hw::leaf::beat::bytes_of_bits;
use mprdma_hw::leaf::{Beat, LaneBeat};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rust_hdl_core::prelude::*;
use std::any::Any;

/// A generator whose seed is printed, so that a failure can be repeated.
pub fn rng(seed: u64) -> ChaCha8Rng {
    println!("seed {seed}");
    ChaCha8Rng::seed_from_u64(seed)
}

/// True with the given percentage.
pub fn chance(rng: &mut ChaCha8Rng, percent: u32) -> bool {
    rng.random_range(0..100) < percent
}

/// A value as the bytes of its bit vector.
pub fn encode<T: Synth>(value: T) -> Vec<u8> {
    let text = format!("{:x}", value.verilog());
    let digits = text
        .split_once("'h")
        .expect("a hexadecimal literal")
        .1
        .as_bytes();
    let mut bytes: Vec<u8> = digits
        .rchunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect();
    bytes.resize(T::BITS.div_ceil(8), 0);
    bytes
}

/// Something with ports and a clock.
pub trait Dut {
    /// Sets an input.
    fn set<T: Synth + 'static>(&mut self, port: &'static str, value: T);
    /// Falling edge: the inputs take effect and the outputs can be read.
    fn low(&mut self);
    /// Rising edge.
    fn high(&mut self);
    /// An output as bytes, least significant first.
    fn bytes(&self, port: &'static str) -> Vec<u8>;

    /// The low 64 bits of an output.
    fn get(&self, port: &'static str) -> u64 {
        self.bytes(port)
            .iter()
            .take(8)
            .rev()
            .fold(0, |a, &byte| a << 8 | u64::from(byte))
    }

    /// A one-bit output.
    fn bit(&self, port: &'static str) -> bool {
        self.get(port) & 1 == 1
    }

    fn beat(&self, port: &'static str) -> Beat {
        let mut bytes = self.bytes(port);
        bytes.resize(65, 0);
        let mut beat = Beat::new(&bytes[..64], bytes[64] >> 7 == 1);
        beat.nbytes = bits(u64::from(bytes[64] & 0x7f));
        beat
    }

    fn lane_beat(&self, port: &'static str) -> LaneBeat {
        let mut bytes = self.bytes(port);
        bytes.resize(66, 0);
        let Beat { data, nbytes, last } = self.beat(port);
        LaneBeat {
            data,
            nbytes,
            last,
            from: bits(u64::from(bytes[65])),
        }
    }
}

/// Access to the ports of a block by name; made by `ports!`.
pub trait Ports: Block {
    fn put(&mut self, port: &str, value: &dyn Any);
    fn take(&self, port: &str) -> Vec<u8>;
    fn level(&mut self, level: bool);
}

/// Implements [`Ports`].
#[macro_export]
macro_rules! ports {
    ($block:ty, $clock:ident: $($input:ident)* => $($output:ident)*) => {
        impl $crate::support::Ports for $block {
            fn put(&mut self, port: &str, value: &dyn std::any::Any) {
                match port {
                    $(stringify!($input) => {
                        self.$input.next = *value.downcast_ref().expect(concat!("the type of ", stringify!($input)))
                    })*
                    _ => panic!("no input {port}"),
                }
            }

            fn take(&self, port: &str) -> Vec<u8> {
                match port {
                    $(stringify!($output) => $crate::support::encode(self.$output.val()),)*
                    _ => panic!("no output {port}"),
                }
            }

            fn level(&mut self, level: bool) {
                self.$clock.next = level.into();
            }
        }
    };
}

impl<B: Ports> Dut for Cosim<B> {
    fn set<T: Synth + 'static>(&mut self, port: &'static str, value: T) {
        self.block.put(port, &value);
    }

    fn low(&mut self) {
        Cosim::low(self, |_| {}).unwrap();
    }

    fn high(&mut self) {
        Cosim::high(self).unwrap();
    }

    fn bytes(&self, port: &'static str) -> Vec<u8> {
        self.block.take(port)
    }
}

impl Dut for VerilatedBlock {
    fn set<T: Synth + 'static>(&mut self, port: &'static str, value: T) {
        let value = match (&value as &dyn Any).downcast_ref::<Beat>() {
            // The common case, without a big integer.
            Some(beat) => {
                let mut bytes = bytes_of_bits(&beat.data);
                bytes.push(beat.nbytes.index() as u8 | u8::from(beat.last) << 7);
                bytes
            }
            None => encode(value),
        };
        self.inputs().set_bytes(port, &value);
    }

    fn low(&mut self) {
        self.cycle().unwrap();
    }

    fn high(&mut self) {}

    fn bytes(&self, port: &'static str) -> Vec<u8> {
        self.outputs().get_bytes(port).to_vec()
    }
}

/// The rust-hdl simulator of a block, recorded.
pub fn simulated<B: Ports + 'static>(block: B, name: &str) -> Cosim<B> {
    Cosim::new(block, name, |block, level| block.level(level))
        .unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// The compiled Verilog of a block.
pub fn verilated<B: Block>(mut block: B, name: &str) -> VerilatedBlock {
    block.connect_all();
    VerilatedBlock::new(&block, name).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Runs a testbench on both devices: `$steps` in the rust-hdl simulator, whose record is then replayed in Verilator, and
/// twenty times as many in Verilator.
#[macro_export]
macro_rules! both {
    ($name:ident, $bench:expr, $block:expr, $steps:expr) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            #[test]
            fn in_rust_hdl() {
                mprdma_hw::with_big_stack(|| {
                    let mut dut = $crate::support::simulated($block, stringify!($name));
                    $bench(&mut dut, $steps);
                    dut.verify().unwrap();
                });
            }

            #[test]
            fn in_verilator() {
                mprdma_hw::with_big_stack(|| {
                    let mut dut = $crate::support::verilated($block, stringify!($name));
                    $bench(&mut dut, 20 * $steps);
                });
            }
        }
    };
}
