//! ATOMIC, as an application sees it (protocol section 7).

mod forge;
mod once;
mod order;
mod refusal;
mod values;

use anyhow::Result;
use mprdma_host::verbs::{Mr, SendWr};
use mprdma_spec::params::ATOMIC_BYTES;
use mprdma_tests::outcomes::Outcome;
use mprdma_tests::rig::{add_request, further, swap_request, Pair, PairAttr, Rig};

/// What memory holds that nobody has written to.
const UNTOUCHED: u64 = 0xeeee_eeee_eeee_eeee;
/// Words that a side works on, and places for answers.
const WORDS: usize = 256;

/// 8-byte words in a card's memory, the first so many bytes into a page.
struct Words(Mr);

impl Words {
    fn new(rig: &Rig, card: usize, offset: usize) -> Result<Words> {
        let mr = rig.region(card, offset, WORDS * ATOMIC_BYTES)?;
        mr.write(0, &[0xee; WORDS * ATOMIC_BYTES])?;
        Ok(Words(mr))
    }

    /// In the order of the host that runs the test, as an application reads it.
    fn get(&self, i: usize) -> Result<u64> {
        let mut bytes = [0; ATOMIC_BYTES];
        self.0.read(i * ATOMIC_BYTES, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    fn first(&self, count: usize) -> Result<Vec<u64>> {
        (0..count).map(|i| self.get(i)).collect()
    }

    fn set(&self, i: usize, value: u64) -> Result<()> {
        Ok(self.0.write(i * ATOMIC_BYTES, &value.to_ne_bytes())?)
    }

    /// Nobody has written to words from `from` on.
    fn check_untouched(&self, from: usize) -> Result<()> {
        for i in from..WORDS {
            assert_eq!(self.get(i)?, UNTOUCHED, "word {i}");
        }
        Ok(())
    }
}

/// One queue pair on each of two cards, words to work on on card 1 and places for answers, not aligned, on card 0.
struct Bench {
    rig: Rig,
    pair: Pair,
    here: Words,
    there: Words,
}

impl Bench {
    fn new(scenario: &str, seed: u64, attr: &PairAttr) -> Result<Bench> {
        println!("seed {seed}");
        Bench::on(Rig::start(scenario, seed)?, attr)
    }

    fn on(rig: Rig, attr: &PairAttr) -> Result<Bench> {
        let pair = rig.pair(0, 1, attr)?;
        let (here, there) = (Words::new(&rig, 0, 3)?, Words::new(&rig, 1, 0)?);
        Ok(Bench {
            rig,
            pair,
            here,
            there,
        })
    }

    /// Adds to word `word` of the peer; what it held goes to place `wr_id`.
    fn add(&self, wr_id: u64, word: usize, value: u64) -> SendWr {
        let request = add_request(wr_id, &self.here.0, &self.there.0, value);
        at(request, wr_id as usize, word)
    }

    /// Likewise swaps it.
    fn swap(&self, wr_id: u64, word: usize, compare: u64, swap: u64) -> SendWr {
        let request = swap_request(wr_id, &self.here.0, &self.there.0, compare, swap);
        at(request, wr_id as usize, word)
    }

    /// Posts on card 0, and waits for as many completions.
    fn done(&self, requests: &[SendWr]) -> Result<Vec<Outcome>> {
        self.rig.done(&self.pair, requests)
    }

    fn outcomes(&self, count: usize) -> Result<Vec<Outcome>> {
        self.rig.outcomes(0, count)
    }
}

/// `request` with its local and its remote address so many words further.
fn at(request: SendWr, local: usize, remote: usize) -> SendWr {
    further(request, local * ATOMIC_BYTES, remote * ATOMIC_BYTES)
}
