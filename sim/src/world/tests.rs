use super::*;
use crate::card::fake::{self, FakeNic};
use crate::pcie::{InterruptSink, Memory, MmioRequest};
use crate::time::NS;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::sync_channel;

const IOVA: u64 = 0x4000_0000;
const TARGET: u64 = IOVA + 0x8000;

fn scenario(name: &str) -> Scenario {
    Scenario::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("scenarios/{name}.toml")))
        .unwrap()
}

struct Count(Arc<AtomicU32>);

impl InterruptSink for Count {
    fn raise(&mut self, _: u8) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A world of fake cards, with memory and an interrupt counter each.
struct Lab {
    world: World,
    memory: Vec<&'static [AtomicU32]>,
    interrupts: Vec<Arc<AtomicU32>>,
}

impl Lab {
    fn new(scenario: &Scenario, options: &Options) -> Lab {
        let world = World::new(scenario, options, FakeNic::pair()).unwrap();
        let (mut memory, mut interrupts) = (vec![], vec![]);
        for card in 0..world.cards() {
            let words: &'static [AtomicU32] = Vec::leak((0..1 << 14).map(AtomicU32::new).collect());
            // SAFETY: leaked, so it stays for good; the words may change under anybody's eyes.
            let bytes = unsafe { Memory::from_raw(words.as_ptr() as *mut u8, words.len() * 4) };
            world
                .host(card)
                .iommu()
                .map(IOVA, 1 << 16, Some(bytes), true)
                .unwrap();
            let count = Arc::new(AtomicU32::new(0));
            world
                .host(card)
                .set_interrupts(Some(Box::new(Count(Arc::clone(&count)))));
            memory.push(words);
            interrupts.push(count);
        }
        Lab {
            world,
            memory,
            interrupts,
        }
    }

    fn write(&self, card: usize, offset: u32, value: u32) {
        self.world
            .host(card)
            .request(MmioRequest::Write { offset, value });
    }

    fn read(&mut self, card: usize, offset: u32) -> u32 {
        let (reply, answer) = sync_channel(1);
        self.world
            .host(card)
            .request(MmioRequest::Read { offset, reply });
        loop {
            if let Ok(value) = answer.try_recv() {
                return value;
            }
            self.world.step(64 * NS);
        }
    }

    /// Card 0 sends `count` frames of `length` bytes to card 1.
    fn send(&self, length: u32, count: u32) {
        for card in 0..2 {
            self.write(card, fake::TARGET, TARGET as u32);
        }
        for (offset, value) in [
            (fake::SOURCE, IOVA as u32 + 3),
            (fake::LENGTH, length),
            (fake::COUNT, count),
            (fake::GO, 2),
        ] {
            self.write(0, offset, value);
        }
    }

    fn run(&mut self, length: Ps) {
        let end = self.world.now() + length;
        while self.world.now() < end {
            self.world.step(Ps::MAX);
        }
    }

    /// Everything a user could see: counters, times and memory.
    fn state(&self) -> (String, Vec<Vec<u32>>) {
        let mut stats = self.world.stats();
        stats.running_seconds = 0.0;
        stats.cycles_per_second = 0.0;
        stats
            .cards
            .iter_mut()
            .for_each(|c| c.cycles_per_second = 0.0);
        let words = |m: &&[AtomicU32]| m.iter().map(|w| w.load(Ordering::SeqCst)).collect();
        (
            serde_json::to_string(&stats).unwrap(),
            self.memory.iter().map(words).collect(),
        )
    }
}

#[test]
fn a_frame_goes_from_the_memory_of_one_card_to_that_of_the_other() {
    for name in ["demo", "direct", "small"] {
        let mut lab = Lab::new(&scenario(name), &Options::default());
        lab.send(1500, 1);
        lab.run(20 * US);
        let bytes = |card: usize, from: usize, len: usize| -> Vec<u8> {
            let all = lab.memory[card]
                .iter()
                .flat_map(|w| w.load(Ordering::SeqCst).to_le_bytes());
            all.skip(from).take(len).collect()
        };
        assert_eq!(bytes(1, 0x8000, 1500), bytes(0, 3, 1500), "{name}");
        assert_eq!(bytes(1, 0x7ffc, 4), 1500u32.to_le_bytes(), "{name}");
        assert_eq!(lab.interrupts[1].load(Ordering::SeqCst), 1, "{name}");
        let stats = lab.world.stats();
        assert!(stats
            .cards
            .iter()
            .all(|c| c.stats.pcie.violations + c.stats.mac.tx_violations == 0));
    }
}

#[test]
fn the_same_seed_gives_the_same_trace_for_one_thread_and_two() {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/demo.toml")).unwrap()
        + "\n[[link]]\nfrom = \"*\"\nto = \"*\"\nloss = 0.02\ncorrupt = 0.05\nduplicate = 0.05\nreorder = 0.2\nreorder_ns = 3000\n\
        [[event]]\nat_us = 10\nfrom = \"card*\"\nto = \"leaf*\"\nboth = true\ndelay_ns = 300\n\
        [[event]]\nat_us = 25.3\nfrom = \"leaf*\"\nto = \"spine0\"\nboth = true\ndown = true\n\
        [[event]]\nat_us = 60\nfrom = \"*\"\nto = \"*\"\nloss = 0.1\ndelay_ns = 1500\nrate_gbps = 10.0\n";
    let scenario = Scenario::parse(&text, Path::new("x.toml")).unwrap();
    let run = |threads: usize, seed: u64| {
        let dir = std::env::temp_dir().join(format!(
            "mprdma-sim-test-{}-{threads}-{seed}",
            std::process::id()
        ));
        let mut lab = Lab::new(
            &scenario,
            &Options {
                seed,
                threads,
                pcap: Some(dir.clone()),
                ..Options::default()
            },
        );
        lab.send(1500, 50);
        lab.run(150 * US);
        let (mut stats, memory) = lab.state();
        stats = stats.replace(dir.to_str().unwrap(), "");
        let captures: Vec<Vec<u8>> = (0..2)
            .map(|c| std::fs::read(dir.join(format!("card{c}.pcapng"))).unwrap())
            .collect();
        std::fs::remove_dir_all(dir).unwrap();
        (stats, memory, captures)
    };
    let (one, two, other) = (run(1, 7), run(2, 7), run(1, 8));
    assert!(one.2[1].len() > 50_000);
    assert!(one == two, "threads change the result");
    assert!(one.2 != other.2, "the seed changes nothing");
}

#[test]
fn a_register_reads_back_and_an_access_without_answer_ends() {
    let mut lab = Lab::new(&scenario("small"), &Options::default());
    assert_eq!(lab.read(1, fake::MAGIC), fake::MAGIC_VALUE);
    lab.write(1, fake::LENGTH, 77);
    assert_eq!(lab.read(1, fake::LENGTH), 77);
    assert_eq!(lab.read(1, fake::DEAF), u32::MAX);
    assert_eq!(lab.world.stats().cards[1].stats.mmio_timeouts, 1);
    assert_eq!(lab.read(1, fake::LENGTH), 77);
}

#[test]
fn a_dma_fault_is_reported_and_the_card_goes_on() {
    let mut lab = Lab::new(&scenario("small"), &Options::default());
    lab.send(100, 1);
    lab.run(5 * US);
    lab.write(0, fake::SOURCE, 0x1000);
    lab.write(0, fake::GO, 1);
    lab.run(20 * US);
    assert_eq!(lab.read(0, fake::READ_ERRORS), 1);
    let report = &lab.world.stats().cards[0];
    assert_eq!((report.stats.pcie.faults, report.last_faults.len()), (1, 1));
}

#[test]
fn reset_clears_the_card_and_answers() {
    let mut lab = Lab::new(&scenario("small"), &Options::default());
    lab.write(0, fake::LENGTH, 5);
    let (reply, answer) = sync_channel(1);
    lab.world.host(0).request(MmioRequest::Reset { reply });
    lab.run(US);
    assert_eq!(answer.try_recv(), Ok(0));
    assert_eq!(lab.read(0, fake::LENGTH), 0);
}

#[test]
fn a_world_with_nothing_to_do_sleeps_until_a_request_comes() {
    let mut lab = Lab::new(&scenario("demo"), &Options::default());
    assert!(!lab.world.is_idle(), "cards come up in reset");
    lab.run(12 * US);
    assert!(lab.world.is_idle());
    lab.send(1000, 1);
    assert!(!lab.world.is_idle());
    lab.run(US);
    assert!(!lab.world.is_idle(), "a frame is on its way");
    lab.run(40 * US);
    assert!(lab.world.is_idle());

    let host = Arc::clone(lab.world.host(0));
    let wake = lab.world.wake.clone();
    let (commands, inbox) = std::sync::mpsc::channel();
    let Lab { mut world, .. } = lab;
    let runner = std::thread::spawn(move || free_run(&mut world, &inbox));
    let (reply, answer) = sync_channel(1);
    host.request(MmioRequest::Read {
        offset: fake::MAGIC,
        reply,
    });
    assert_eq!(answer.recv(), Ok(fake::MAGIC_VALUE));
    let (reply, answer) = sync_channel(1);
    commands.send(Command::Stats(reply)).unwrap();
    wake.ring();
    assert_eq!(answer.recv().unwrap().cards.len(), 2);
    commands.send(Command::Stop).unwrap();
    wake.ring();
    runner.join().unwrap();
}
