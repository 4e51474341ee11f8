//! RDMA READ, as an application sees it (protocol section 7).

mod order;
mod patience;
mod refusal;
mod repair;
mod transfer;

use anyhow::{ensure, Result};
use mprdma_host::memory::{Memory, PageSize};
use mprdma_host::verbs::{Mr, SendWr, Wc};
use mprdma_spec::descriptor::WcOpcode;
use mprdma_tests::outcomes::Outcome;
use mprdma_tests::rig::{further, pattern, read_request, write_request, Pair, PairAttr, Rig};
use std::sync::Arc;

/// What memory holds that nobody has written to.
const UNTOUCHED: u8 = 0xee;

/// Memory of a card, registered whole, with what it must hold.
struct Area {
    mr: Mr,
    expected: Vec<u8>,
}

impl Area {
    /// `bytes` bytes, `offset` bytes into a page, that look random; all the same without a seed.
    fn new(rig: &Rig, card: usize, offset: usize, bytes: usize, seed: Option<u64>) -> Result<Area> {
        let memory = Arc::new(Memory::allocate(offset + bytes, PageSize::Small)?);
        let mr = rig.register(card, &memory, offset, bytes)?;
        let expected = match seed {
            Some(seed) => pattern(seed, bytes),
            None => vec![UNTOUCHED; bytes],
        };
        mr.write(0, &expected)?;
        Ok(Area { mr, expected })
    }

    fn bytes(&self, at: usize, length: usize) -> Result<Vec<u8>> {
        let mut got = vec![0; length];
        self.mr.read(at, &mut got)?;
        Ok(got)
    }

    /// A READ of this side has brought `data`.
    fn takes(&mut self, at: usize, data: &[u8]) {
        self.expected[at..at + data.len()].copy_from_slice(data);
    }

    fn check(&self) -> Result<()> {
        let got = self.bytes(0, self.expected.len())?;
        let wrong = got.iter().zip(&self.expected).position(|(a, b)| a != b);
        ensure!(wrong.is_none(), "memory differs from byte {wrong:?} on");
        Ok(())
    }
}

/// One queue pair on each of two cards, an area to read from on card 1 and one to read into on card 0.
struct Bench {
    rig: Rig,
    pair: Pair,
    here: Area,
    there: Area,
}

impl Bench {
    fn new(scenario: &str, seed: u64, attr: &PairAttr, bytes: usize) -> Result<Bench> {
        println!("seed {seed}");
        let rig = Rig::start(scenario, seed)?;
        let pair = rig.pair(0, 1, attr)?;
        let (here, there) = (
            Area::new(&rig, 0, 3, bytes, None)?,
            Area::new(&rig, 1, 5, bytes, Some(seed))?,
        );
        Ok(Bench {
            rig,
            pair,
            here,
            there,
        })
    }

    /// A READ of `length` bytes at `from` of the area there to `to` of the area here.
    fn read(&self, wr_id: u64, to: usize, from: usize, length: usize) -> SendWr {
        let read = read_request(wr_id, &self.here.mr, &self.there.mr, length);
        further(read, to, from)
    }

    /// A WRITE of `length` bytes at `from` of the area here to `to` of the area there.
    fn write(&self, wr_id: u64, from: usize, to: usize, length: usize) -> SendWr {
        let write = write_request(wr_id, &self.here.mr, &self.there.mr, length);
        further(write, from, to)
    }

    /// Posts on card 0, and waits for as many completions.
    fn done(&self, requests: &[SendWr]) -> Result<Vec<Outcome>> {
        self.rig.done(&self.pair, requests)
    }

    fn outcomes(&self, count: usize) -> Result<Vec<Outcome>> {
        self.rig.outcomes(0, count)
    }
}

fn is_read(wc: &Wc) -> bool {
    wc.opcode == Some(WcOpcode::RdmaRead)
}
