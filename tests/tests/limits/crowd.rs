//! Every queue pair that the card has, all sending at once.

use crate::both;
use anyhow::{Context as _, Result};
use mprdma_host::verbs::{ContextAttr, MultiPath, RtsAttr};
use mprdma_sim::time::Ps;
use mprdma_sim::world::Options;
use mprdma_spec::config::SIM;
use mprdma_spec::counter::Counter;
use mprdma_spec::status::WcStatus;
use mprdma_spec::wire::frame::{Body, Frame};
use mprdma_tests::rig::{engine, pattern, scenario, write_request, PairAttr, Rig, US};
use pcap_file::pcapng::{Block, PcapNgReader};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

/// The smallest, so that there are enough packets in a millisecond to tell shares apart.
const MTU: usize = 256;
/// Four paths that can carry twice what a card sends.
const NETWORK: &str = "name = \"crowd\"\n[network]\nkind = \"leaf-spine\"\ncards = 2\nleaves = 2\nspines = 4\n\
                       card_rate_gbps = 100.0\nspine_rate_gbps = 50.0\ndelay_ns = 500\necn_packets = 20\n";

/// Data packets that came in by queue pair, from `start` to `end`.
fn arrivals(capture: &Path, start: Ps, end: Ps) -> Result<HashMap<u32, u64>> {
    let file = File::open(capture).with_context(|| capture.display().to_string())?;
    let mut reader = PcapNgReader::new(BufReader::new(file))?;
    let mut found = HashMap::new();
    while let Some(block) = reader.next_block() {
        let Block::EnhancedPacket(packet) = block? else {
            continue;
        };
        let at = packet.timestamp.as_nanos() as Ps * 1000;
        if at < start || at >= end {
            continue;
        }
        let frame = Frame::parse(&packet.data)?;
        if matches!(frame.body, Body::MpWrite { .. }) {
            *found.entry(frame.bth.dqpn).or_default() += 1;
        }
    }
    Ok(found)
}

/// Least, most and mean share in a millisecond in packets.
#[derive(Debug)]
struct Shares {
    least: u64,
    most: u64,
    /// Queue pairs that had nothing left to send at the end.
    finished: usize,
    mean: f64,
}

/// Every queue pair sends `packets` packets, more than its share of the millisecond that is measured.
fn crowd(name: &str, initial_window: u32, timeout: u32, packets: usize) -> Result<Shares> {
    let bytes = packets * MTU;
    let engine = engine()?;
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{engine:?}"));
    let options = Options {
        engine,
        seed: 31,
        threads: 2,
        pcap: Some(dir.clone()),
    };
    let all = ContextAttr {
        reserved_qpns: true,
        ..ContextAttr::default()
    };
    let rig = Rig::open(&scenario(NETWORK)?, &options, &all)?;
    let mut rng = ChaCha8Rng::seed_from_u64(31);
    let qps = 1 << SIM.qp_log2;
    let source = rig.region(0, 0, bytes)?;
    let data = pattern(31, bytes);
    source.write(0, &data)?;
    let target = rig.region(1, 0, bytes * qps)?;
    let mut pairs = vec![];
    for _ in 0..qps {
        let psn = rng.random_range(0..1 << 24);
        let multi_path = MultiPath {
            vp_base: rng.random_range(0x8000..0xf000),
            initial_window,
            ..MultiPath::default()
        };
        let attr = PairAttr {
            mtu: MTU as u32,
            psn,
            rts: RtsAttr {
                multi_path,
                timeout,
                ..RtsAttr::new(psn)
            },
            depth: 2,
            ..PairAttr::default()
        };
        pairs.push(rig.pair(0, 1, &attr)?);
    }
    println!("{qps} queue pairs after {} us", rig.sim.now() / US);
    for (i, pair) in pairs.iter().enumerate() {
        let mut request = write_request(i as u64, &source, &target, bytes);
        request.remote_addr += (i * bytes) as u64;
        pair.tx.post_send(&[request])?;
    }
    rig.sim.run(200 * US);
    let start = rig.sim.now();
    rig.sim.run(1000 * US);
    let end = rig.sim.now();
    let arrived = arrivals(&dir.join("card1.pcapng"), start, end)?;
    let mut shares: Vec<u64> = pairs
        .iter()
        .map(|pair| arrived.get(&pair.rx.qp_num()).copied().unwrap_or(0))
        .collect();
    let total: u64 = shares.iter().sum();
    shares.sort_unstable();
    println!(
        "{name}: {total} packets in 1 ms, {:.1} Gb/s of payload; packets by queue pair: mean {:.2}, least {}, 1 % {}, \
         median {}, 99 % {}, most {}",
        (total * MTU as u64 * 8) as f64 / 1e6,
        total as f64 / qps as f64,
        shares[0],
        shares[qps / 100],
        shares[qps / 2],
        shares[qps - 1 - qps / 100],
        shares[qps - 1]
    );
    println!(
        "{} probes, {} ECN echoes, {} prunes, {} timeouts, {} retransmissions",
        both(&rig, Counter::TxProbes)?,
        both(&rig, Counter::EcnEchoes)?,
        both(&rig, Counter::Prunes)?,
        both(&rig, Counter::Timeouts)?,
        both(&rig, Counter::TxRetransmissions)?
    );
    let early = rig.sides[0].cq.poll(qps)?;
    let shares = Shares {
        least: shares[0],
        most: shares[qps - 1],
        finished: early.len(),
        mean: total as f64 / qps as f64,
    };
    let late = rig.completions(0, qps - early.len(), 20_000 * US)?;
    for wc in early.into_iter().chain(late) {
        assert_eq!(wc.status, WcStatus::Success);
    }
    let mut got = vec![0; bytes];
    for i in 0..qps {
        target.read(i * bytes, &mut got)?;
        assert!(got == data, "queue pair {i}: data");
    }
    // Taking them down one by one would be most of the test; the card is reset with its device.
    std::mem::forget(pairs);
    Ok(shares)
}

/// Each within 10 % of its share, with the defaults of a queue pair: the card has far more to send than it can.
#[test]
fn a_thousand_queue_pairs_share_fairly() -> Result<()> {
    let rts = RtsAttr::new(0);
    let window = rts.multi_path.initial_window;
    let shares = crowd("crowd", window, rts.timeout, 96)?;
    assert_eq!(shares.finished, 0, "all are active to the end");
    assert!(shares.least as f64 >= 0.9 * shares.mean, "{shares:?}");
    assert!(shares.most as f64 <= 1.1 * shares.mean, "{shares:?}");
    Ok(())
}

mprdma_tests::on_model!(a_thousand_queue_pairs_share_fairly);
