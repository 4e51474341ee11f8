//! PSNs wrap, and queue pairs with the same peer keep apart.

use crate::{both, with_imm};
use anyhow::Result;
use mprdma_host::memory::{Memory, PageSize};
use mprdma_host::verbs::{RecvWr, SendWr};
use mprdma_spec::counter::Counter;
use mprdma_spec::status::WcStatus;
use mprdma_tests::rig::{pattern, write_request, PairAttr, Rig, US};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

const MTU: u32 = 256;

/// The demo network with losses, duplicates and reordering.
fn faulty() -> Result<String> {
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/../sim/scenarios/demo.toml");
    Ok(format!(
        "{}\n[[link]]\nfrom = \"leaf*\"\nto = \"spine*\"\nboth = true\nloss = 0.02\nduplicate = 0.02\n\
         reorder = 0.1\nreorder_ns = 5000\n",
        std::fs::read_to_string(demo)?
    ))
}

/// Sends messages with immediate data over one queue pair for each first PSN, all between the same two cards, through a
/// network that loses, doubles and overtakes; everything must arrive once, in order and where it belongs.
fn converse(first_psns: &[u32], seed: u64, messages: usize) -> Result<Rig> {
    println!("seed {seed}");
    let rig = Rig::start(&faulty()?, seed)?;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut flows = vec![];
    for &psn in first_psns {
        let pair = rig.pair(
            0,
            1,
            &PairAttr {
                mtu: MTU,
                psn,
                ..PairAttr::default()
            },
        )?;
        let lengths: Vec<usize> = (0..messages).map(|_| rng.random_range(0..3000)).collect();
        let bytes = lengths.iter().sum::<usize>().max(1);
        let data = pattern(rng.random(), bytes);
        let source = rig.region(0, 0, bytes)?;
        source.write(0, &data)?;
        let memory = Arc::new(Memory::allocate(bytes, PageSize::Small)?);
        let target = rig.register(1, &memory, 0, bytes)?;
        let mut place = 0;
        let mut requests = vec![];
        for (i, &length) in lengths.iter().enumerate() {
            let request = write_request(i as u64, &source, &target, length);
            requests.push(with_imm(
                SendWr {
                    addr: request.addr + place,
                    remote_addr: request.remote_addr + place,
                    ..request
                },
                psn ^ i as u32,
            ));
            place += length as u64;
        }
        let receives: Vec<_> = (0..messages as u64)
            .map(|wr_id| RecvWr {
                wr_id,
                ..RecvWr::default()
            })
            .collect();
        pair.rx.post_recv(&receives)?;
        pair.tx.post_send(&requests)?;
        flows.push((psn, pair, data, memory, [source, target]));
    }
    let mut sent = vec![0; flows.len()];
    let mut received = vec![0; flows.len()];
    let end = rig.sim.now() + 50_000 * US;
    while [&sent, &received]
        .iter()
        .any(|n| n.iter().any(|&n| n < messages))
    {
        assert!(rig.sim.now() < end, "seed {seed}: not done after 50 ms");
        for (card, done) in [&mut sent, &mut received].into_iter().enumerate() {
            for wc in rig.sides[card].cq.poll(64)? {
                let (at, flow) = flows
                    .iter()
                    .enumerate()
                    .find(|(_, flow)| [&flow.1.tx, &flow.1.rx][card].qp_num() == wc.qp_num)
                    .expect("a completion of a queue pair in use");
                let imm = (card == 1).then_some(flow.0 ^ done[at] as u32);
                assert_eq!(
                    (wc.wr_id, wc.status, wc.imm),
                    (done[at] as u64, WcStatus::Success, imm),
                    "seed {seed}, first PSN {:06x}",
                    flow.0
                );
                done[at] += 1;
            }
        }
        rig.sim.run(US);
    }
    rig.sim.run(100 * US);
    for (psn, pair, data, memory, _) in &flows {
        let mut got = vec![0; data.len()];
        memory.read(0, &mut got)?;
        assert!(got == *data, "seed {seed}, first PSN {psn:06x}: data");
        let packets = pair.tx.query()?.snd_una.wrapping_sub(u64::from(*psn)) & 0xff_ffff;
        assert!(packets as usize >= messages, "PSNs were used");
    }
    for side in &rig.sides {
        assert!(side.cq.poll(1)?.is_empty(), "seed {seed}: one too many");
        assert!(side.context.poll_events()?.is_empty());
    }
    Ok(rig)
}

/// The window, recovery and the SACK map reach over PSN 0, and over the middle, where differences change sign.
#[test]
fn psns_wrap_under_faults() -> Result<()> {
    let first = [0xff_ffff, 0xff_fff0, 0xff_ffc0, 0xff_ff80, 0x7f_ffc0];
    let rig = converse(&first, 11, 60)?;
    assert!(both(&rig, Counter::TxRetransmissions)? > 0);
    assert!(both(&rig, Counter::RxOutOfOrder)? > 0);
    assert!(both(&rig, Counter::RxDuplicates)? > 0);
    Ok(())
}

/// Same peer, same path ports, same first PSN: only the queue pair number tells the packets apart.
#[test]
fn two_queue_pairs_with_the_same_peer() -> Result<()> {
    converse(&[0x55_5555, 0x55_5555], 12, 60).map(drop)
}

mprdma_tests::on_model!(psns_wrap_under_faults, two_queue_pairs_with_the_same_peer);
