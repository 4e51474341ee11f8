//! Records as bytes, and the bus functional model of AXI4-Lite.

pub use mprdma_hw::cosim::bytes_of;
use mprdma_hw::cosim::VerilatedBlock;
use mprdma_hw::prelude::*;
use mprdma_hw::with_big_stack;

/// Builds, prints, compiles and starts a block.
pub fn verilated<B: Block>(name: &str, make: impl FnOnce() -> B + Send) -> VerilatedBlock {
    with_big_stack(|| {
        let mut block = make();
        block.connect_all();
        VerilatedBlock::new(&block, name).unwrap_or_else(|e| panic!("{name}: {e}"))
    })
}

/// Holds reset for a few cycles.
pub fn reset(block: &mut VerilatedBlock) {
    block.inputs().set("reset", 1);
    run(block, 4);
    block.inputs().set("reset", 0);
}

/// Runs `cycles` clock cycles with the present inputs.
pub fn run(block: &mut VerilatedBlock, cycles: usize) {
    for _ in 0..cycles {
        block.cycle().expect("a cycle");
    }
}

/// Runs until `done`, at most `limit` cycles.
pub fn run_until(
    block: &mut VerilatedBlock,
    limit: usize,
    mut done: impl FnMut(&VerilatedBlock) -> bool,
) {
    for _ in 0..limit {
        block.cycle().expect("a cycle");
        if done(block) {
            return;
        }
    }
    panic!("nothing happened in {limit} cycles");
}

/// Field `lsb`..`lsb + bits` of a record's bytes.
pub fn field(bytes: &[u8], lsb: usize, bits: usize) -> u64 {
    (0..bits).fold(0, |value, i| {
        let bit = lsb + i;
        value | u64::from(bytes[bit / 8] >> (bit % 8) & 1) << i
    })
}

/// Writes one register.
pub fn axil_write(block: &mut VerilatedBlock, addr: u32, data: u32) {
    block.inputs().set("s_axil_awaddr", addr.into());
    block.inputs().set("s_axil_wdata", data.into());
    block.inputs().set("s_axil_awvalid", 1);
    block.inputs().set("s_axil_wvalid", 1);
    block.inputs().set("s_axil_bready", 1);
    let (mut address_taken, mut data_taken) = (false, false);
    for _ in 0..1000 {
        block.cycle().expect("a cycle");
        address_taken |= block.outputs().bit("s_axil_awready");
        data_taken |= block.outputs().bit("s_axil_wready");
        block
            .inputs()
            .set("s_axil_awvalid", u64::from(!address_taken));
        block.inputs().set("s_axil_wvalid", u64::from(!data_taken));
        if block.outputs().bit("s_axil_bvalid") {
            return;
        }
    }
    panic!("no write response for {addr:#x}");
}

/// Reads one register.
pub fn axil_read(block: &mut VerilatedBlock, addr: u32) -> u32 {
    block.inputs().set("s_axil_araddr", addr.into());
    block.inputs().set("s_axil_arvalid", 1);
    block.inputs().set("s_axil_rready", 1);
    for _ in 0..1000 {
        block.cycle().expect("a cycle");
        if block.outputs().bit("s_axil_arready") {
            block.inputs().set("s_axil_arvalid", 0);
        }
        if block.outputs().bit("s_axil_rvalid") {
            return block.outputs().get("s_axil_rdata") as u32;
        }
    }
    panic!("no read response for {addr:#x}");
}

/// A small generator of inputs that look random.
pub struct Noise(pub u64);

impl Noise {
    /// The next 44 bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 20
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.next() % n == 0
    }
}
