//! Queue pairs that are taken down with packets in flight and set up again with other PSNs.

use crate::{both, with_imm};
use anyhow::Result;
use mprdma_host::verbs::{Mr, MultiPath, RecvWr, RtsAttr, Wc};
use mprdma_spec::counter::Counter;
use mprdma_spec::status::WcStatus;
use mprdma_tests::rig::{pattern, write_request, Pair, PairAttr, Rig, US};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Bytes of the message that arrives, and of the one that is cut short: a whole first window.
const BYTES: usize = 6000;
const LOST: usize = 255 * 256;
/// Two paths with so much delay that packets of one life of a queue pair come in the next.
const SLOW: &str =
    "name = \"slow\"\n[network]\nkind = \"leaf-spine\"\ncards = 2\nleaves = 2\nspines = 2\n\
                    card_rate_gbps = 100.0\nspine_rate_gbps = 50.0\ndelay_ns = 4000\n";

fn post(pair: &Pair, id: u64, source: &Mr, target: &Mr, bytes: usize) -> Result<()> {
    pair.rx.post_recv(&[RecvWr {
        wr_id: id,
        ..RecvWr::default()
    }])?;
    let request = write_request(id, source, target, bytes);
    Ok(pair.tx.post_send(&[with_imm(request, id as u32)])?)
}

fn expect(wc: &Wc, id: u64, imm: Option<u32>, qp: u32) {
    assert_eq!(
        (wc.wr_id, wc.status, wc.imm, wc.qp_num),
        (id, WcStatus::Success, imm, qp)
    );
}

/// Each round brings a message across, posts another one and takes the queue pair down while that one is in flight. From
/// then on its memory must not change: what still comes meets no queue pair, or one with other PSNs. Odd rounds keep the
/// numbers (RESET), even ones take new ones.
fn reconnect(rounds: usize, seed: u64) -> Result<()> {
    println!("seed {seed}");
    let rig = Rig::start(SLOW, seed)?;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let source = rig.region(0, 0, LOST)?;
    let (good, lost) = (rig.region(1, 0, BYTES)?, rig.region(1, 0, LOST)?);
    let read = |mr: &Mr| -> Result<Vec<u8>> {
        let mut bytes = vec![0; mr.length()];
        mr.read(0, &mut bytes)?;
        Ok(bytes)
    };
    let mut attr = || PairAttr {
        mtu: 256,
        psn: rng.random_range(0..1 << 24),
        depth: 4,
        rts: RtsAttr {
            multi_path: MultiPath {
                initial_window: 255,
                ..MultiPath::default()
            },
            ..RtsAttr::new(0)
        },
        ..PairAttr::default()
    };
    let mut pair = rig.pair(0, 1, &attr())?;
    let mut cut = 0;
    for round in 0..rounds {
        let id = 2 * round as u64;
        let data = pattern(seed << 32 | round as u64, LOST);
        source.write(0, &data)?;
        lost.write(0, &[0xee; LOST])?;
        post(&pair, id, &source, &good, BYTES)?;
        expect(
            &rig.completions(1, 1, 2000 * US)?[0],
            id,
            Some(id as u32),
            pair.rx.qp_num(),
        );
        expect(
            &rig.completions(0, 1, 2000 * US)?[0],
            id,
            None,
            pair.tx.qp_num(),
        );
        assert!(
            read(&good)? == data[..BYTES],
            "seed {seed}, round {round}: data"
        );
        // The target is told apart from what the next round writes.
        good.write(0, &[0xdd; BYTES])?;
        post(&pair, id + 1, &source, &lost, LOST)?;
        rig.sim.run(life(round));
        let kept = match round % 2 {
            1 => {
                pair.rx.modify_to_reset()?;
                Some(pair)
            }
            _ => {
                drop(pair);
                None
            }
        };
        let left = read(&lost)?;
        // Completions from before the end may be there, none from after it may come.
        for side in &rig.sides {
            side.cq.poll(8)?;
        }
        pair = match kept {
            Some(pair) => {
                pair.tx.modify_to_reset()?;
                Rig::connect(&pair, &attr())?;
                pair
            }
            None => rig.pair(0, 1, &attr())?,
        };
        cut += usize::from(left != data);
        rig.sim.run(30 * US);
        assert!(
            read(&lost)? == left,
            "seed {seed}, round {round}: stale packets were placed"
        );
        assert!(
            read(&good)?.iter().all(|&b| b == 0xdd),
            "seed {seed}, round {round}"
        );
        for side in &rig.sides {
            assert!(
                side.cq.poll(8)?.is_empty(),
                "seed {seed}, round {round}: stale completion"
            );
            assert!(side.context.poll_events()?.is_empty());
        }
    }
    let dropped = both(&rig, Counter::RxDropNoQp)?;
    let beyond = both(&rig, Counter::RxOutOfWindow)? + both(&rig, Counter::RxDuplicates)?;
    let acks = both(&rig, Counter::BadAcks)? + both(&rig, Counter::GhostAcks)?;
    println!(
        "{rounds} rounds, {cut} cut short; stale packets: {dropped} met no queue pair, {beyond} another life of theirs, \
         {acks} stale ACKs; {} us",
        rig.sim.now() / US
    );
    assert!(cut > rounds / 4 && dropped > 0 && beyond > 0 && acks > 0);
    Ok(())
}

/// How long the second message of a round may run: from not at all to whole.
fn life(round: usize) -> u64 {
    (round as u64 * 7 % 30) * US
}

#[test]
fn reconnect_40_times_with_random_psns() -> Result<()> {
    reconnect(40, 21)
}

/// Minutes.
#[test]
#[ignore]
fn reconnect_1000_times_with_random_psns() -> Result<()> {
    reconnect(1000, 22)
}

mprdma_tests::on_model!(reconnect_40_times_with_random_psns);
