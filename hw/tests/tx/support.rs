//! One test bench for the rust-hdl simulator and for the Verilated form of a block: typed inputs in, typed outputs out.

use mprdma_hw::nic::types::*;
use mprdma_hw::prelude::*;
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

/// `a - b` of two PSNs.
pub fn psn_distance(a: u32, b: u32) -> u32 {
    a.wrapping_sub(b) & 0xff_ffff
}

/// The bits of a port value, least significant first.
#[derive(Default)]
pub struct Wires {
    bits: Vec<bool>,
    at: usize,
}

impl Wires {
    pub fn of<T: Wire>(value: &T) -> Vec<u8> {
        let mut wires = Self::default();
        value.put(&mut wires);
        let mut bytes = vec![0; wires.bits.len().div_ceil(8)];
        for (i, bit) in wires.bits.iter().enumerate() {
            bytes[i / 8] |= u8::from(*bit) << (i % 8);
        }
        bytes
    }

    pub fn to<T: Wire>(bytes: &[u8]) -> T {
        let bits = (0..bytes.len() * 8)
            .map(|i| bytes[i / 8] >> (i % 8) & 1 == 1)
            .collect();
        T::take(&mut Self { bits, at: 0 })
    }
}

/// A value that a port carries.
pub trait Wire: Copy {
    fn put(&self, wires: &mut Wires);
    fn take(wires: &mut Wires) -> Self;
}

impl Wire for bool {
    fn put(&self, wires: &mut Wires) {
        wires.bits.push(*self);
    }
    fn take(wires: &mut Wires) -> Self {
        wires.at += 1;
        wires.bits[wires.at - 1]
    }
}

impl<const N: usize> Wire for Bits<N> {
    fn put(&self, wires: &mut Wires) {
        wires.bits.extend((0..N).map(|i| self.get_bit(i)));
    }
    fn take(wires: &mut Wires) -> Self {
        let at = wires.at;
        wires.at += N;
        if N <= 64 {
            let value = (0..N).fold(0, |a, i| a | u64::from(wires.bits[at + i]) << i);
            value.to_bits()
        } else {
            Bits::Long(std::array::from_fn::<bool, N, _>(|i| wires.bits[at + i]).into())
        }
    }
}

macro_rules! wire {
    ($($record:ident { $($field:ident),+ })+) => {$(
        impl Wire for $record {
            fn put(&self, wires: &mut Wires) {
                $(self.$field.put(wires);)+
            }
            fn take(wires: &mut Wires) -> Self {
                Self { $($field: Wire::take(wires)),+ }
            }
        }
    )+};
}

wire! {
    CfgReq { op, index, image }
    Doorbell { number, index, arm }
    Launch {
        qpn, slot, wqe_index, opcode, flags, status, first_psn, packets, iova, raddr, rkey, length, imm, swap_add, compare,
        wsn, mtu, response
    }
    Work { qpn, packets, sync }
    Retired { qpn, ring, packets, own }
    Respond { qpn, life, slot, iova, length, atomic }
    QpMark { qpn }
    QpError { qpn, status }
    Grant { qpn, psn, vp, retx, marker }
    Progress { qpn, una, status }
    PacketCmd { qpn, vp, psn, opcode, flags, wsn, offset, raddr, rkey, length, dma_length, imm, swap_add, compare, marker }
    MrQuery { key, va, length }
    MrAnswer { hit, rights, pd, iova }
    Completion { cqn, qpn, wqe_index, byte_len, imm, with_imm, status, opcode }
    DmaReadReq { iova, length }
}

impl Wire for mprdma_hw::leaf::Beat {
    fn put(&self, wires: &mut Wires) {
        self.data.put(wires);
        self.nbytes.put(wires);
        self.last.put(wires);
    }
    fn take(wires: &mut Wires) -> Self {
        Self {
            data: Wire::take(wires),
            nbytes: Wire::take(wires),
            last: Wire::take(wires),
        }
    }
}

/// Runs a block one cycle at a time: inputs before the rising edge, outputs as a neighbour sees them at that edge.
pub trait Bench {
    type In: Clone + Default;
    type Out;
    fn cycle(&mut self, inputs: &Self::In) -> Self::Out;

    /// Four cycles of reset.
    fn reset(&mut self, reset: impl Fn(&mut Self::In)) {
        let mut inputs = Self::In::default();
        reset(&mut inputs);
        for _ in 0..4 {
            self.cycle(&inputs);
        }
    }
}

/// Declares a module with the inputs `In` and outputs `Out` of a block, and its benches `Simulated` and `Verilated`.
#[macro_export]
macro_rules! bench {
    ($module:ident, $block:ty, in { $($in:ident: $in_ty:ty),+ $(,)? } out { $($out:ident: $out_ty:ty),+ $(,)? }) => {
        mod $module {
            use super::*;
            use mprdma_hw::cosim::VerilatedBlock;
            use $crate::support::{Bench, Wires};

            #[derive(Clone, Default)]
            pub struct In {
                pub reset: bool,
                $(pub $in: $in_ty),+
            }

            #[derive(Clone, Debug)]
            pub struct Out {
                $(pub $out: $out_ty),+
            }

            pub struct Simulated(Box<$block>);

            impl Simulated {
                pub fn new(block: $block) -> Self {
                    let mut block = Box::new(block);
                    block.connect_all();
                    check_all(block.as_ref()).unwrap();
                    Self(block)
                }

                fn settle(&mut self) {
                    assert!(simulate(self.0.as_mut(), 300), "the block does not settle");
                }
            }

            impl Bench for Simulated {
                type In = In;
                type Out = Out;
                fn cycle(&mut self, inputs: &In) -> Out {
                    self.0.clock.next = Clock { clk: false };
                    self.0.reset.next = inputs.reset;
                    $(self.0.$in.next = inputs.$in;)+
                    self.settle();
                    let out = Out { $($out: self.0.$out.val()),+ };
                    self.0.clock.next = Clock { clk: true };
                    self.settle();
                    out
                }
            }

            /// The block with the ports of the last cycle: only what changes is converted.
            pub struct Verilated {
                block: VerilatedBlock,
                inputs: In,
                outputs: Option<Out>,
                bytes: Vec<Vec<u8>>,
            }

            impl Verilated {
                pub fn new(block: $block) -> Self {
                    let mut block = Box::new(block);
                    block.connect_all();
                    let name = concat!(stringify!($module), "_dut");
                    let block = VerilatedBlock::new(block.as_ref(), name).unwrap_or_else(|e| panic!("{name}: {e}"));
                    Self { block, inputs: In::default(), outputs: None, bytes: vec![] }
                }
            }

            impl Bench for Verilated {
                type In = In;
                type Out = Out;
                fn cycle(&mut self, inputs: &In) -> Out {
                    let frame = self.block.inputs();
                    frame.set("reset", inputs.reset.into());
                    $(if inputs.$in != self.inputs.$in {
                        frame.set_bytes(stringify!($in), &Wires::of(&inputs.$in));
                        self.inputs.$in = inputs.$in;
                    })+
                    let frame = self.block.cycle().expect("a cycle");
                    let names = [$(stringify!($out)),+];
                    let now: Vec<&[u8]> = names.iter().map(|name| frame.get_bytes(name)).collect();
                    let mut out = match self.outputs.take() {
                        Some(out) => out,
                        None => Out { $($out: Wires::to(frame.get_bytes(stringify!($out)))),+ },
                    };
                    if self.bytes.is_empty() {
                        self.bytes = now.iter().map(|bytes| bytes.to_vec()).collect();
                    }
                    let mut port = 0;
                    $(
                        if self.bytes[port] != now[port] {
                            self.bytes[port] = now[port].to_vec();
                            out.$out = Wires::to(now[port]);
                        }
                        port += 1;
                    )+
                    assert_eq!(port, names.len());
                    self.outputs = Some(out.clone());
                    out
                }
            }
        }
    };
}

/// A random stream source: holds an item until it is taken, then pauses at random.
pub struct Source<T> {
    pub items: std::collections::VecDeque<T>,
    shown: bool,
    /// Percentage of cycles in which a waiting item may appear.
    pub pace: u32,
}

impl<T: Copy + Default> Source<T> {
    pub fn new(pace: u32) -> Self {
        Self {
            items: Default::default(),
            shown: false,
            pace,
        }
    }

    /// What the port shows this cycle.
    pub fn show(&mut self, rng: &mut ChaCha8Rng) -> (T, bool) {
        if !self.shown {
            self.shown = !self.items.is_empty() && chance(rng, self.pace);
        }
        if self.shown {
            (self.items[0], true)
        } else {
            (T::default(), false)
        }
    }

    /// What left, given the `ready` of the same cycle.
    pub fn taken(&mut self, ready: bool) -> Option<T> {
        if self.shown && ready {
            self.shown = false;
            self.items.pop_front()
        } else {
            None
        }
    }
}

/// Every check of a block, and of the source of its kernel.
pub fn lint<B: Block>(name: &str, make: impl FnOnce() -> B + Send, source: &str) {
    mprdma_hw::with_big_stack(|| {
        let mut block = make();
        block.connect_all();
        let report = mprdma_hw::lint::lint(&block, name).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(report.is_clean(), "{report}");
    });
    let findings = mprdma_hw::lint::lint_source(name, source);
    assert!(findings.is_empty(), "{findings:?}");
}
