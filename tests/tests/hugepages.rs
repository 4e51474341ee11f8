//! DMA memory in huge pages, mapped by the simulator through the socket as the IOMMU would map it.

use anyhow::Result;
use mprdma_host::hugepages::HugePages;
use mprdma_host::memory::{Memory, MemoryError, PageSize};
use mprdma_host::verbs::ContextAttr;
use mprdma_sim::engine::Engine;
use mprdma_sim::world::Options;
use mprdma_spec::status::WcStatus;
use mprdma_tests::huge::Reserved;
use mprdma_tests::rig::{pattern, scenario, write_request, Pair, PairAttr, Side};
use mprdma_tests::served::Served;
use std::sync::Arc;
use std::time::Duration;

const HUGE: usize = 2 << 20;

/// Size of the pages that the kernel has put at `address`, from its own account.
fn kernel_page(address: u64) -> Option<u64> {
    let maps = std::fs::read_to_string("/proc/self/smaps").ok()?;
    let start = format!("{address:x}-");
    let mut lines = maps.lines().skip_while(|line| !line.starts_with(&start));
    let line = lines.find(|line| line.starts_with("KernelPageSize:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes << 10)
}

#[test]
fn buffers_and_long_rings_lie_in_huge_pages() -> Result<()> {
    // Four for each card: a long CQ, the rings of a queue pair, a buffer, and one to spare.
    let Some(reserved) = Reserved::or_skip(8) else {
        return Ok(());
    };
    let before = reserved.free();
    let taken = || before - reserved.free();
    let options = Options {
        engine: Engine::Model,
        threads: 1,
        ..Options::default()
    };
    let served = Served::start(&scenario("direct")?, &options)?;
    let attr = ContextAttr {
        ring_pages: PageSize::Huge2M,
        ..ContextAttr::default()
    };
    let sides = (0..2)
        .map(|card| Side::open(card, Arc::new(served.open(card)?), &attr))
        .collect::<Result<Vec<_>>>()?;
    assert_eq!(taken(), 0, "short rings take none");
    let long = |side: &Side| side.context.create_cq(1 << 15);
    let cqs = [long(&sides[0])?, long(&sides[1])?];
    assert_eq!(taken(), 2, "a ring of half a page takes one");
    let depth = 1 << 14;
    let pair = Pair::between(
        &sides,
        0,
        1,
        &PairAttr {
            depth,
            ..PairAttr::default()
        },
    )?;
    assert_eq!(taken(), 4, "so do the rings of a queue pair together");
    let bytes = HUGE * 3 / 4;
    let mut regions = vec![];
    for side in &sides {
        // Something small in between, so that the next huge page is not aligned by chance.
        let small = Arc::new(Memory::allocate(4096, PageSize::Small)?);
        let small = side.register(&small, 0, 4096)?;
        let memory = Arc::new(Memory::allocate(bytes, PageSize::Huge2M)?);
        let region = side.register(&memory, 0, bytes)?;
        assert_eq!(
            region.iova() % HUGE as u64,
            0,
            "the IOMMU can use a page as large"
        );
        assert_eq!(region.addr() % HUGE as u64, 0);
        assert_eq!(memory.bytes(), HUGE);
        assert_eq!(kernel_page(memory.address()), Some(HUGE as u64));
        regions.push((region, small));
    }
    assert_eq!(taken(), 6);
    let (source, target) = (&regions[0].0, &regions[1].0);
    let data = pattern(7, bytes);
    source.write(0, &data)?;
    pair.tx
        .post_send(&[write_request(1, source, target, bytes)])?;
    let done = sides[0].cq.wait(1, Duration::from_secs(120))?;
    assert_eq!(done[0].status, WcStatus::Success);
    let mut got = vec![0; bytes];
    target.read(0, &mut got)?;
    assert!(got == data);
    // More than there are: what to do, with the numbers.
    let free = reserved.free() as usize;
    let refused = Memory::allocate((free + 1) * HUGE, PageSize::Huge2M).unwrap_err();
    assert!(matches!(refused, MemoryError::NoHugePages { .. }));
    let total = HugePages::of(PageSize::Huge2M, None).map_or(0, |pages| pages.total) + 1;
    let text = refused.to_string();
    let command =
        format!("`echo {total} | sudo tee /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages`");
    assert!(
        text.contains(&format!("{} needed, {free} of", free + 1)) && text.contains(&command),
        "{text}"
    );
    drop((regions, pair, cqs, sides));
    assert_eq!(taken(), 0, "all come back");
    Ok(())
}
