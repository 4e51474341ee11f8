//! Every packet of a message is lost in turn, and every ACK, and the retransmissions of both: it is repaired, and once
//! the completion is seen nothing is placed any more.

use anyhow::{ensure, Context as _, Result};
use mprdma_host::memory::{Memory, PageSize};
use mprdma_host::verbs::{Mr, MultiPath, RtsAttr, SendWr};
use mprdma_spec::counter::Counter;
use mprdma_spec::status::WcStatus;
use mprdma_spec::wire::Psn;
use mprdma_tests::lose::{Case, Lose, Loss, CASES};
use mprdma_tests::rig::{pattern, write_request, Pair, PairAttr, Rig, US};
use std::sync::Arc;

const MTU: usize = 256;
/// Messages whose target memory is watched at a time.
const PLACES: usize = 8;
/// Bytes between two targets that must never change.
const GAP: usize = 64;
const UNTOUCHED: u8 = 0xee;
/// What the application writes over data that it has seen.
const REUSED: u8 = 0x77;

/// Sends message after message on one queue pair.
struct Bench {
    rig: Rig,
    lose: Lose,
    pair: Pair,
    source: Mr,
    data: Vec<u8>,
    target: Mr,
    memory: Arc<Memory>,
    expected: Vec<u8>,
    psn: u32,
    count: usize,
    longest: usize,
}

impl Bench {
    fn new(longest: usize, psn: u32) -> Result<Bench> {
        let rig = Rig::start("small", 1)?;
        let lose = Lose::default();
        rig.sim.set_tap(Box::new(lose.clone()));
        let attr = PairAttr {
            mtu: MTU as u32,
            psn,
            rts: RtsAttr {
                timeout: 1,
                multi_path: MultiPath {
                    initial_window: 16,
                    ..MultiPath::default()
                },
                ..RtsAttr::new(psn)
            },
            ..PairAttr::default()
        };
        let pair = rig.pair(0, 1, &attr)?;
        let bytes = longest * MTU;
        let source = rig.region(0, 5, bytes)?;
        let data = pattern(9, bytes);
        source.write(0, &data)?;
        let memory = Arc::new(Memory::allocate(
            PLACES * (bytes + GAP) + GAP,
            PageSize::Small,
        )?);
        let expected = vec![UNTOUCHED; memory.bytes()];
        memory.write(0, &expected)?;
        let target = rig.register(1, &memory, 0, memory.bytes())?;
        Ok(Bench {
            rig,
            lose,
            pair,
            source,
            data,
            target,
            memory,
            expected,
            psn,
            count: 0,
            longest,
        })
    }

    /// Sends a message of `packets` packets and loses what the case says of packet `position`.
    fn send(&mut self, packets: usize, position: usize, case: &Case) -> Result<()> {
        let psn = Psn::new(self.psn).add(position as u32);
        self.lose.set(Loss {
            psn: psn.value(),
            data: case.data.to_vec(),
            acks: case.acks.to_vec(),
            ..Loss::default()
        });
        let length = packets * MTU - self.count % 5;
        let place = GAP + self.count % PLACES * (self.longest * MTU + GAP);
        // What an earlier message might still do to its place would show by now.
        self.check()?;
        self.pair.tx.post_send(&[SendWr {
            remote_addr: self.target.addr() + place as u64,
            ..write_request(self.count as u64, &self.source, &self.target, length)
        }])?;
        let wc = self.rig.completions(0, 1, 2000 * US)?.remove(0);
        ensure!(
            (wc.wr_id, wc.status) == (self.count as u64, WcStatus::Success),
            "{wc:?}"
        );
        let mut got = vec![0; length];
        self.memory.read(place, &mut got)?;
        ensure!(
            got == self.data[..length],
            "complete, but the data are not there"
        );
        let marker = vec![REUSED; length];
        self.memory.write(place, &marker)?;
        self.expected[place..place + length].copy_from_slice(&marker);
        let (data, acks) = self.lose.lost();
        ensure!(
            data == case.lost.0 && acks >= case.lost.1,
            "lost {data} packets and {acks} ACKs instead of {:?}",
            case.lost
        );
        self.psn = Psn::new(self.psn).add(packets as u32).value();
        self.count += 1;
        Ok(())
    }

    fn check(&self) -> Result<()> {
        let mut all = vec![0; self.memory.bytes()];
        self.memory.read(0, &mut all)?;
        let wrong = all.iter().zip(&self.expected).position(|(a, b)| a != b);
        ensure!(
            wrong.is_none(),
            "memory changed after completion, byte {wrong:?}"
        );
        Ok(())
    }

    /// Nothing comes late either, and every packet was accepted once.
    fn end(&self, packets: u64) -> Result<()> {
        self.rig.sim.run(50 * US);
        self.check()?;
        let receiver = self.rig.sides[1].context.control();
        let count = |counter| Ok::<_, anyhow::Error>(receiver.counter(counter)?);
        let turned_away = count(Counter::RxDuplicates)? + count(Counter::RxOutOfWindow)?;
        ensure!(
            count(Counter::RxDataPackets)? == packets + turned_away,
            "a packet was accepted twice"
        );
        ensure!(
            self.rig.sides[0].cq.poll(1)?.is_empty(),
            "a completion too many"
        );
        Ok(())
    }
}

/// Plays every case for the given messages and positions.
fn play(lengths: &[usize], positions: impl Fn(usize) -> Vec<usize>, psn: u32) -> Result<usize> {
    let longest = lengths.iter().copied().max().context("no message")?;
    let mut bench = Bench::new(longest, psn)?;
    let mut packets = 0;
    for &length in lengths {
        for position in positions(length) {
            for case in &CASES {
                bench.send(length, position, case).with_context(|| {
                    format!(
                        "{length} packets, {} of packet {position} lost, message {}",
                        case.name, bench.count
                    )
                })?;
                packets += length as u64;
            }
        }
    }
    bench.end(packets)?;
    println!("{} messages, {packets} packets", bench.count);
    Ok(bench.count)
}

fn ends_and_middle(packets: usize) -> Vec<usize> {
    let mut all = vec![0, packets / 2, packets - 1];
    all.dedup();
    all
}

#[test]
fn first_middle_and_last_packet_lost_in_turn() -> Result<()> {
    // The last PSNs before the wrap are among them.
    play(&[1, 2, 3, 17, 70], ends_and_middle, (1 << 24) - 100)?;
    Ok(())
}

mprdma_tests::on_model!(first_middle_and_last_packet_lost_in_turn);

/// Minutes: every position of 1 to 70 packets.
#[test]
#[ignore]
fn every_packet_lost_in_turn() -> Result<()> {
    let odd = std::thread::spawn(|| {
        play(
            &(1..=70).step_by(2).collect::<Vec<_>>(),
            |n| (0..n).collect(),
            77,
        )
    });
    let even = play(
        &(2..=70).step_by(2).collect::<Vec<_>>(),
        |n| (0..n).collect(),
        0xff_f000,
    )?;
    let odd = odd.join().expect("no panic")?;
    assert_eq!(odd + even, 5 * (1..=70).sum::<usize>());
    Ok(())
}
