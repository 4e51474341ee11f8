//! What `make vm-test` proves inside its guest with the library, because the command line cannot: `vm_guest STEP CARD CARD`,
//! and `vm_guest cycles CARD CARD COUNT`.

mod bench;
mod cycles;
mod job;
mod leaks;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context as _, Result};
use mprdma_host::memory::PageSize;
use mprdma_host::verbs::{Access, AsyncEvent};
use mprdma_spec::counter::Counter;
use mprdma_spec::status::WcStatus;

use bench::{Bench, Flow};

/// How long anything may take. The card is simulated, and so is the processor.
const LIMIT: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [step, cards @ ..] = arguments.as_slice() else {
        eprintln!("usage: vm_guest STEP CARD CARD [COUNT]");
        return ExitCode::from(2);
    };
    let done = match step.as_str() {
        "cycles" => cycles(cards),
        "hugepages" => hugepages(cards),
        "interrupt" => interrupt(cards),
        "unmapped" => unmapped(cards),
        "wild" => wild(cards),
        "reset" => reset(cards),
        _ => Err(anyhow::anyhow!("there is no step {step}")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vm_guest {step}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn cycles(arguments: &[String]) -> Result<()> {
    let [cards @ .., count] = arguments else {
        bail!("how many?");
    };
    cycles::run(cards, count.parse().context(count.clone())?)
}

/// Huge pages come from the node of the card that they are for. The first card is on node 0, the second on node 1.
fn hugepages(cards: &[String]) -> Result<()> {
    const BYTES: usize = 4 << 20;
    let bench = Bench::open(cards)?;
    for (number, side) in bench.sides.iter().enumerate() {
        let memory = side.context.allocate(BYTES, PageSize::Huge2M)?;
        // Mapping it for the card is the first touch.
        let _region = side.pd.register(&memory, 0, BYTES, Access::LOCAL_WRITE)?;
        let maps = fs::read_to_string("/proc/self/numa_maps")?;
        let begin = format!("{:x} ", memory.address());
        let line = maps.lines().find(|line| line.starts_with(&begin));
        let line = line.context("numa_maps lacks the memory")?;
        println!("{line}");
        for part in [
            format!(" N{number}=2"),
            " kernelpagesize_kB=2048".to_owned(),
        ] {
            ensure!(line.contains(&part), "{line} lacks{part}");
        }
    }
    Ok(())
}

/// MSI-X wakes a thread that sleeps, and only when the queue is armed.
fn interrupt(cards: &[String]) -> Result<()> {
    let bench = Bench::open(cards)?;
    let flow = Flow::new(&bench, 65536)?;
    let device = bench.sides[0].context.device();
    let vector = 1 + bench.sides[0].cq.number() as usize % (device.identity().vectors - 1);
    for _ in 0..4 {
        bench.sides[0].cq.arm()?;
        let slept = Instant::now();
        let woken = std::thread::scope(|scope| -> Result<bool> {
            let sleeper = scope.spawn(|| device.wait_interrupt(vector, LIMIT));
            std::thread::sleep(Duration::from_millis(200));
            ensure!(!sleeper.is_finished(), "it did not sleep");
            flow.post(1)?;
            Ok(sleeper.join().expect("the sleeper does not panic")?)
        })?;
        ensure!(woken && slept.elapsed() < LIMIT, "no interrupt came");
        let completions = bench.sides[0].cq.poll(16)?;
        ensure!(completions.len() == 1, "awake without a completion");
        ensure!(completions[0].status == WcStatus::Success);
    }
    flow.post(1)?;
    ensure!(
        !device.wait_interrupt(vector, Duration::from_secs(1))?,
        "an interrupt that nobody asked for"
    );
    bench.completions(0, 1)?;
    Ok(())
}

/// Memory that is taken from the card under load fails the queue pair that reads it, and no other.
fn unmapped(cards: &[String]) -> Result<()> {
    let bench = Bench::open(cards)?;
    let (victim, bystander) = (Flow::new(&bench, 65536)?, Flow::new(&bench, 65536)?);
    let (card, sender) = (&cards[0], &bench.sides[0].context);
    ensure!(pci_status(card)? & MASTER_ABORT == 0, "a fault before");
    let errors = read_errors(&bench)?;
    for _ in 0..2 {
        victim.post(8)?;
        bystander.post(8)?;
        for wc in bench.completions(0, 16)? {
            ensure!(wc.status == WcStatus::Success, "{wc:?} before");
        }
    }
    victim.post(32)?;
    bystander.post(32)?;
    bench.sides[0]
        .context
        .device()
        .unmap_dma(victim.source.iova(), victim.bytes as u64)?;
    let (mut failed, mut good) = (0, 0);
    for wc in bench.completions(0, 64)? {
        let of_victim = wc.qp_num == victim.tx.qp_num();
        match wc.status {
            WcStatus::Success if !of_victim => good += 1,
            WcStatus::FatalError | WcStatus::WorkRequestFlushed if of_victim => failed += 1,
            WcStatus::Success => {}
            status => bail!(
                "{status:?} of {}",
                if of_victim { "the victim" } else { "the other" }
            ),
        }
    }
    ensure!(failed > 0, "the removed mapping was not missed");
    ensure!(good == 32, "{good} of 32 requests of the other queue pair");
    told(&bench, victim.tx.qp_num())?;
    // What an operator sees: `mprdma stats`, `mprdma qp show`, `lspci -vv`.
    ensure!(read_errors(&bench)? > errors, "no counter tells");
    let states = [&victim, &bystander].map(|flow| sender.query_qp(flow.tx.qp_num()));
    let [failed, works] = states;
    let (failed, works) = (failed?.state, works?.state);
    ensure!((failed, works) == ("ERROR", "RTS"), "{failed} and {works}");
    let status = pci_status(card)?;
    ensure!(status & MASTER_ABORT != 0, "PCI status {status:#06x}");
    bystander.write(&bench)
}

/// A card that reads or writes where it may not is stopped.
fn wild(cards: &[String]) -> Result<()> {
    let bench = Bench::open(cards)?;
    let (reads, writes) = (Flow::new(&bench, 8192)?, Flow::new(&bench, 8192)?);
    let unmap = |side: usize, iova, bytes: usize| {
        let device = bench.sides[side].context.device();
        device.unmap_dma(iova, bytes as u64)
    };
    unmap(0, reads.source.iova(), reads.bytes)?;
    reads.post(1)?;
    let status = bench.completions(0, 1)?[0].status;
    ensure!(
        status == WcStatus::FatalError,
        "a wild read gave {status:?}"
    );
    told(&bench, reads.tx.qp_num())?;
    // A write is posted: nobody tells the card, but memory must be as it was.
    unmap(1, writes.target.iova(), writes.bytes)?;
    writes.post(1)?;
    bench.completions(0, 1)?;
    let mut bytes = vec![1; writes.bytes];
    writes.target.read(0, &mut bytes)?;
    ensure!(
        bytes.iter().all(|byte| *byte == 0),
        "a wild write went through"
    );
    Flow::new(&bench, 8192)?.write(&bench)
}

/// A function level reset under traffic leaves nothing behind, and a card that works.
fn reset(cards: &[String]) -> Result<()> {
    for side in [0, 1] {
        let bench = Bench::open(cards)?;
        let flow = Flow::new(&bench, 65536)?;
        flow.post(32)?;
        bench.completions(0, 2)?;
        bench.sides[side].context.device().reset()?;
        // The queue pairs are gone: to take them off the card may fail, and must not hang.
        drop(flow);
        drop(bench);
        let bench = Bench::open(cards)?;
        Flow::new(&bench, 65536)?.write(&bench)?;
    }
    Ok(())
}

/// Received master abort, in the status register of PCI configuration space.
const MASTER_ABORT: u16 = 1 << 13;

fn pci_status(card: &str) -> Result<u16> {
    let mut bytes = [0; 2];
    let path = format!("/sys/bus/pci/devices/{card}/config");
    File::open(&path)
        .and_then(|config| config.read_exact_at(&mut bytes, 6))
        .context(path)?;
    Ok(u16::from_le_bytes(bytes))
}

/// How many reads of the sender's card have failed, by its own count.
fn read_errors(bench: &Bench) -> Result<u64> {
    let counters = bench.sides[0].context.counters()?;
    let found = counters
        .iter()
        .find(|(of, _)| *of == Counter::DmaReadErrors);
    Ok(found.context("the card has no such counter")?.1)
}

/// The card has reported that the queue pair failed.
fn told(bench: &Bench, qpn: u32) -> Result<()> {
    let events = bench.sides[0]
        .context
        .wait_event(LIMIT)
        .context("the card reports the fault")?;
    let named = events
        .iter()
        .any(|event| matches!(event, AsyncEvent::QpFatal { qpn: of, .. } if *of == qpn));
    ensure!(named, "{events:?} does not name QP {qpn}");
    ensure!(events.len() == 1, "{events:?} names others too");
    Ok(())
}
