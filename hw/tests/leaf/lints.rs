use mprdma_hw::dma::{DmaRead, DmaWrite};
use mprdma_hw::leaf::*;
use mprdma_hw::lint::{lint, lint_source};
use rust_hdl_core::prelude::*;

fn clean<B: Block>(mut block: B, name: &str) {
    block.connect_all();
    let report = lint(&block, name).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert!(report.is_clean(), "{report}");
}

#[test]
fn leaves_are_clean() {
    mprdma_hw::with_big_stack(|| {
        clean(Ram::<Beat, 6>::new(RamStyle::Block, true), "ram");
        clean(Ram::<bool, 3>::new(RamStyle::Distributed, false), "ram_bit");
        clean(Skid::<Beat>::default(), "skid");
        clean(SyncFifo::<Beat, 4>::shallow(), "shallow_fifo");
        clean(SyncFifo::<Beat, 9>::deep(), "deep_fifo");
        clean(PacketFifo::<9>::default(), "packet_fifo");
        clean(AsyncFifo::<Beat, 5>::default(), "async_fifo");
        clean(Arbiter2::<Beat>::default(), "arbiter2");
        clean(Arbiter4::<Beat>::default(), "arbiter4");
        clean(Mul16::default(), "mul16");
        clean(Lfsr::default(), "lfsr");
        clean(Delay::<Bits<24>>::new(5), "delay");
        clean(Crc32Stream::default(), "crc32");
        clean(Realign::default(), "realign");
        clean(Prepend::default(), "prepend");
        clean(TimerWheel::<10, 8>::default(), "timer_wheel");
    });
}

#[test]
fn dma_engines_are_clean() {
    mprdma_hw::with_big_stack(|| {
        clean(DmaRead::default(), "dma_read");
        clean(DmaWrite::default(), "dma_write");
    });
}

#[test]
fn kernel_sources_are_clean() {
    for dir in ["leaf", "dma"] {
        let dir = format!("{}/src/{dir}", env!("CARGO_MANIFEST_DIR"));
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let findings = lint_source(&path.display().to_string(), &text);
            assert!(findings.is_empty(), "{findings:?}");
        }
    }
}
