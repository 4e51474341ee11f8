//! What READs bring, of every size, to any address, in both directions at once.

use super::{is_read, Area, Bench};
use anyhow::{ensure, Result};
use mprdma_host::verbs::{Vlan, MAX_RD_ATOMIC};
use mprdma_spec::counter::Counter;
use mprdma_spec::status::WcStatus;
use mprdma_tests::open::Open;
use mprdma_tests::outcomes::{good, LIMIT};
use mprdma_tests::rig::{both, count, flagged, further, read_request, PairAttr, Rig, US};

const MTUS: [u32; 3] = [256, 1024, 4096];

#[test]
fn sizes_mtus_and_odd_addresses() -> Result<()> {
    for (i, mtu) in MTUS.into_iter().enumerate() {
        let attr = PairAttr {
            mtu,
            ..PairAttr::default()
        };
        let mut bench = Bench::new("demo", 1 + i as u64, &attr, (1 << 20) + 200)?;
        for (i, (length, to, from)) in [
            (0, 7, 9),
            (1, 64, 65),
            (63, 1, 64),
            (255, 3, 0),
            (4095, 7, 9),
            (4096, 0, 61),
            (4097, 61, 33),
            ((1 << 20) + 13, 100, 101),
        ]
        .into_iter()
        .enumerate()
        {
            bench
                .pair
                .tx
                .post_send(&[bench.read(i as u64, to, from, length)])?;
            let wc = bench.rig.completions(0, 1, LIMIT)?.remove(0);
            assert_eq!(
                (wc.wr_id, wc.status, wc.byte_len as usize),
                (i as u64, WcStatus::Success, length)
            );
            assert!(is_read(&wc));
            let data = bench.there.expected[from..from + length].to_vec();
            bench.here.takes(to, &data);
            bench.here.check()?;
        }
        bench.there.check()?;
        assert_eq!(both(&bench.rig, Counter::RxAccessErrors)?, 0);
        // The answers are no work requests of the other side.
        assert_eq!(
            count(&bench.rig.sides[1].context, Counter::MessagesCompleted)?,
            0
        );
    }
    Ok(())
}

#[test]
fn ipv6_and_vlan() -> Result<()> {
    let attr = PairAttr {
        ipv6: true,
        vlan: Some(Vlan {
            id: 42,
            priority: 3,
        }),
        ..PairAttr::default()
    };
    let bench = Bench::new("demo", 4, &attr, 20_001)?;
    assert_eq!(bench.done(&[bench.read(0, 0, 0, 20_001)])?, good(1));
    assert_eq!(bench.here.bytes(0, 20_001)?, bench.there.expected);
    Ok(())
}

/// The PSNs of the requests wrap, and those of the answers.
#[test]
fn psn_wrap() -> Result<()> {
    for psn in [0xff_fffa, 0x55_5555 ^ 0xff_fffa] {
        let attr = PairAttr {
            psn,
            mtu: 256,
            ..PairAttr::default()
        };
        let bench = Bench::new("demo", 5, &attr, 10_000)?;
        let reads: Vec<_> = (0..10)
            .map(|i| bench.read(i, 1000 * i as usize, 1000 * i as usize, 1000))
            .collect();
        assert_eq!(bench.done(&reads)?, good(10));
        assert_eq!(bench.here.bytes(0, 10_000)?, bench.there.expected);
    }
    Ok(())
}

/// Each side has 64 READs of the other's memory posted, and WRITEs beside them.
#[test]
fn section_7_both_sides_read_from_each_other() -> Result<()> {
    const READS: usize = 64;
    const MOST: usize = 30_000;
    println!("seed 6");
    let rig = Rig::start("demo", 6)?;
    let attr = PairAttr {
        mtu: 1024,
        ..PairAttr::default()
    };
    let pair = rig.pair(0, 1, &attr)?;
    let sources = [
        Area::new(&rig, 0, 1, MOST, Some(60))?,
        Area::new(&rig, 1, 2, MOST, Some(61))?,
    ];
    let mut targets = [
        Area::new(&rig, 0, 3, READS * MOST, None)?,
        Area::new(&rig, 1, 4, READS * MOST, None)?,
    ];
    let length = |card: usize, i: usize| (7919 * (i + 3 * card)) % MOST;
    for (card, qp) in [&pair.tx, &pair.rx].into_iter().enumerate() {
        let (from, to) = (&sources[1 - card], &targets[card]);
        let reads: Vec<_> = (0..READS)
            .map(|i| {
                let read = read_request(i as u64, &to.mr, &from.mr, length(card, i));
                further(read, i * MOST, 0)
            })
            .collect();
        qp.post_send(&reads)?;
    }
    for card in 0..2 {
        assert_eq!(rig.outcomes(card, READS)?, good(READS as u64));
    }
    rig.sim.run(50 * US);
    for card in 0..2 {
        for i in 0..READS {
            let data = sources[1 - card].expected[..length(card, i)].to_vec();
            targets[card].takes(i * MOST, &data);
        }
        targets[card].check()?;
        assert!(rig.sides[card].cq.poll(1)?.is_empty(), "one too many");
        assert!(rig.sides[card].context.poll_events()?.is_empty());
    }
    Ok(())
}

#[test]
fn section_7_no_more_than_sixteen_are_open() -> Result<()> {
    let attr = PairAttr {
        mtu: 1024,
        ..PairAttr::default()
    };
    let bench = Bench::new("direct", 7, &attr, 64 * 3000)?;
    let eye = Open::watch(&bench.rig);
    let reads: Vec<_> = (0..64)
        .map(|i| bench.read(i, 3000 * i as usize, 3000 * i as usize, 3000))
        .collect();
    assert_eq!(bench.done(&reads)?, good(64));
    assert_eq!(bench.here.bytes(0, 64 * 3000)?, bench.there.expected);
    let open = eye.state();
    assert_eq!(open.total(), (64, 64));
    assert_eq!(open.most, MAX_RD_ATOMIC, "READs open at a time");
    Ok(())
}

#[test]
fn unsignaled() -> Result<()> {
    let bench = Bench::new("demo", 8, &PairAttr::default(), 40_000)?;
    let reads: Vec<_> = (0..8)
        .map(|i| {
            let read = bench.read(i, 5000 * i as usize, 5000 * i as usize, 5000);
            flagged(read, |flags| flags.signaled = i == 7)
        })
        .collect();
    bench.pair.tx.post_send(&reads)?;
    assert_eq!(bench.outcomes(1)?, [(7, WcStatus::Success)]);
    assert_eq!(bench.here.bytes(0, 40_000)?, bench.there.expected);
    bench.rig.sim.run(50 * US);
    ensure!(bench.rig.sides[0].cq.poll(1)?.is_empty(), "one too many");
    assert_eq!(bench.pair.tx.send_outstanding(), 0);
    Ok(())
}

/// One queue pair keeps the link as full with READs as with WRITEs.
#[test]
fn large_reads_fill_the_link() -> Result<()> {
    const EACH: usize = 1 << 20;
    let bench = Bench::new("demo", 9, &PairAttr::default(), 16 * EACH)?;
    let reads: Vec<_> = (0..16)
        .map(|i| bench.read(i, EACH * i as usize, EACH * i as usize, EACH))
        .collect();
    let start = bench.rig.sim.now();
    assert_eq!(bench.done(&reads)?, good(16));
    let time = bench.rig.sim.now() - start;
    let gbps = (16 * EACH * 8) as f64 * 1000.0 / time as f64;
    println!("{gbps:.1} Gb/s");
    assert!(gbps > 80.0, "{gbps:.1} Gb/s only");
    assert_eq!(bench.here.bytes(0, 16 * EACH)?, bench.there.expected);
    Ok(())
}

mprdma_tests::on_model!(
    sizes_mtus_and_odd_addresses,
    ipv6_and_vlan,
    psn_wrap,
    section_7_both_sides_read_from_each_other,
    section_7_no_more_than_sixteen_are_open,
    unsignaled,
    large_reads_fill_the_link,
);
