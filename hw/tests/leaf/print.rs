use mprdma_hw::leaf::*;
use mprdma_hw::verilog::generate;
use rust_hdl_core::prelude::*;

fn print<B: Block>(mut block: B, name: &str) {
    block.connect_all();
    let text = generate(&block, name).unwrap_or_else(|e| panic!("{name}: {e}"));
    let dir = concat!(env!("CARGO_TARGET_TMPDIR"), "/leaf");
    std::fs::create_dir_all(dir).unwrap();
    std::fs::write(format!("{dir}/{name}.sv"), text).unwrap();
}

#[test]
fn every_leaf_prints() {
    mprdma_hw::with_big_stack(|| {
        print(Ram::<Beat, 6>::new(RamStyle::Block, true), "ram");
        print(Ram::<bool, 3>::new(RamStyle::Distributed, false), "ram_bit");
        print(Skid::<Beat>::default(), "skid");
        print(SyncFifo::<Beat, 4>::shallow(), "shallow_fifo");
        print(SyncFifo::<Beat, 9>::deep(), "deep_fifo");
        print(PacketFifo::<9>::default(), "packet_fifo");
        print(AsyncFifo::<Beat, 5>::default(), "async_fifo");
        print(Arbiter3::<Beat>::default(), "arbiter");
        print(Mul16::default(), "mul16");
        print(Lfsr::default(), "lfsr");
        print(Delay::<Bits<24>>::new(5), "delay");
        print(Crc32Stream::default(), "crc32");
        print(Realign::default(), "realign");
        print(Prepend::default(), "prepend");
        print(TimerWheel::<10, 8>::default(), "timer_wheel");
    });
}
