//! What each queue pair counts agrees with what is known of it and, summed over all, with the card's counters.

use anyhow::Result;
use mprdma_host::verbs::{MultiPath, Qp, QpStats, RtsAttr, Trace};
use mprdma_spec::counter::Counter;
use mprdma_spec::status::WcStatus;
use mprdma_tests::rig::{count, write_request, Pair, PairAttr, Rig, US};

/// Up-links that lose, double and overtake, and mark early.
const FAULTS: &str = "\n[[link]]\nfrom = \"leaf*\"\nto = \"spine*\"\n\
                      loss = 0.01\nduplicate = 0.01\nreorder = 0.02\necn_packets = 3\n";
const MESSAGES: usize = 12;
const LENGTH: usize = 40_000;

fn rig(faults: &str, seed: u64) -> Result<Rig> {
    println!("seed {seed}");
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/../sim/scenarios/demo.toml");
    Rig::start(&(std::fs::read_to_string(demo)? + faults), seed)
}

fn attr(mtu: u32, multi_path: MultiPath) -> PairAttr {
    PairAttr {
        mtu,
        rts: RtsAttr {
            multi_path,
            ..RtsAttr::new(0)
        },
        ..PairAttr::default()
    }
}

/// Posts all messages of all pairs and waits for them, and for the ACKs that are still on their way.
fn run(rig: &Rig, pairs: &[Pair]) -> Result<()> {
    let mut regions = Vec::new();
    for pair in pairs {
        let source = rig.region(pair.from, 5, LENGTH)?;
        let target = rig.region(pair.to, 9, LENGTH)?;
        let requests: Vec<_> = (0..MESSAGES as u64)
            .map(|i| write_request(i, &source, &target, LENGTH))
            .collect();
        pair.tx.post_send(&requests)?;
        regions.push((source, target));
    }
    for card in 0..rig.sides.len() {
        let own = pairs.iter().filter(|pair| pair.from == card).count();
        for wc in rig.completions(card, own * MESSAGES, 40_000 * US)? {
            assert_eq!(wc.status, WcStatus::Success);
        }
    }
    // The late ones and the doubles.
    rig.sim.run(200 * US);
    Ok(())
}

/// Packets of one pair's messages, each counted once.
fn packets(mtu: usize) -> u32 {
    (MESSAGES * LENGTH.div_ceil(mtu)) as u32
}

fn sum(stats: &[QpStats], of: impl Fn(&QpStats) -> u32) -> u64 {
    stats.iter().map(|stats| u64::from(of(stats))).sum()
}

/// The queue pairs of one card, whichever side of a pair they are.
fn of_card(pairs: &[Pair], card: usize) -> impl Iterator<Item = &Qp> {
    pairs
        .iter()
        .flat_map(|pair| [(pair.from, &pair.tx), (pair.to, &pair.rx)])
        .filter(move |(on, _)| *on == card)
        .map(|(_, qp)| qp)
}

fn check_against_the_cards(rig: &Rig, pairs: &[Pair]) -> Result<()> {
    for card in 0..rig.sides.len() {
        let stats = of_card(pairs, card)
            .map(Qp::query_stats)
            .collect::<Result<Vec<_>, _>>()?;
        for (name, of_qps, of_card) in [
            ("sent", sum(&stats, |s| s.sent), Counter::TxDataPackets),
            (
                "retransmissions",
                sum(&stats, QpStats::retransmissions),
                Counter::TxRetransmissions,
            ),
            ("probes", sum(&stats, |s| s.probes), Counter::TxProbes),
            ("prunes", sum(&stats, |s| s.prunes), Counter::Prunes),
            ("ECN", sum(&stats, |s| s.ecn_echoes), Counter::EcnEchoes),
            (
                "window NAKs",
                sum(&stats, |s| s.window_naks),
                Counter::WindowNaks,
            ),
            ("sync NAKs", sum(&stats, |s| s.sync_naks), Counter::SyncNaks),
            ("ghosts", sum(&stats, |s| s.ghosts), Counter::GhostAcks),
            ("timeouts", sum(&stats, |s| s.timeouts), Counter::Timeouts),
            (
                "recoveries",
                sum(&stats, |s| s.recoveries),
                Counter::Recoveries,
            ),
            (
                "duplicates",
                sum(&stats, |s| s.duplicates),
                Counter::RxDuplicates,
            ),
            (
                "out of window",
                sum(&stats, |s| s.out_of_window),
                Counter::RxOutOfWindow,
            ),
            (
                "sync NAKs sent",
                sum(&stats, |s| s.sync_naks_sent),
                Counter::RxSyncNaks,
            ),
            (
                "RNR NAKs sent",
                sum(&stats, |s| s.rnr_naks_sent),
                Counter::RxRnrNaks,
            ),
            ("CE", sum(&stats, |s| s.ce_marks), Counter::RxCeMarks),
            (
                "out of order",
                sum(&stats, |s| s.accepted - s.distance[0]),
                Counter::RxOutOfOrder,
            ),
        ] {
            let on_card = count(&rig.sides[card].context, of_card)?;
            println!("card {card}: {name} {of_qps}");
            assert_eq!(of_qps, on_card, "card {card}: {name}");
        }
    }
    Ok(())
}

#[test]
fn queue_pairs_add_up_to_the_card_under_faults() -> Result<()> {
    let rig = rig(FAULTS, 12)?;
    let plain = MultiPath::default();
    let settings = [
        ((0, 1), 1024, plain),
        ((0, 1), 4096, plain.as_published()),
        ((1, 0), 512, plain),
    ];
    let pairs = settings
        .iter()
        .map(|((from, to), mtu, paths)| rig.pair(*from, *to, &attr(*mtu, *paths)))
        .collect::<Result<Vec<_>>>()?;
    run(&rig, &pairs)?;
    check_against_the_cards(&rig, &pairs)?;
    let mut seen = QpStats::default();
    for (pair, (_, mtu, paths)) in pairs.iter().zip(&settings) {
        let (tx, rx) = (pair.tx.query_stats()?, pair.rx.query_stats()?);
        println!("{tx:?}\n{rx:?}");
        // Every packet was sent once for the first time, and accepted once.
        assert_eq!(tx.sent - tx.retransmissions(), packets(*mtu as usize));
        assert_eq!(rx.accepted, packets(*mtu as usize));
        assert_eq!(rx.distance.iter().sum::<u32>(), rx.accepted);
        assert_eq!((tx.accepted, rx.sent), (0, 0), "one direction only");
        assert!(tx.path_switches < tx.sent && tx.path_switches > tx.sent / 4);
        let last = u32::from(tx.last_sent_vp.expect("it has sent"));
        assert!((paths.vp_base..paths.vp_base + paths.vp_count).contains(&last));
        if !paths.hole_repair {
            assert_eq!(tx.retx_hole, 0, "the published rules repair in recovery");
        }
        seen.retx_hole += tx.retx_hole;
        seen.retx_recovery += tx.retx_recovery;
        seen.ecn_echoes += tx.ecn_echoes;
        seen.duplicates += rx.duplicates;
        seen.probes += tx.probes;
        seen.distance[7] += rx.distance[2..].iter().sum::<u32>();
    }
    // The comparison has seen something.
    assert!(seen.retx_hole > 0 && seen.retx_recovery > 0, "{seen:?}");
    assert!(seen.duplicates > 0 && seen.ecn_echoes > 0 && seen.probes > 0);
    assert!(seen.distance[7] > 0, "{seen:?}");
    Ok(())
}

/// The sum of all rows of a trace is what the queue pair counts.
fn check_trace(trace: &Trace, stats: &QpStats) {
    let rows = || trace.paths.iter().map(|path| path.counts);
    let all = |of: fn(&mprdma_host::verbs::VpStats) -> u32| {
        rows().map(|row| of(&row)).sum::<u32>() + of(&trace.other)
    };
    assert_eq!(all(|row| row.sent), stats.sent);
    assert_eq!(all(|row| row.retransmitted), stats.retransmissions());
    assert_eq!(all(|row| row.ecn_marked), stats.ecn_echoes);
    assert_eq!(all(|row| row.pruned), stats.prunes);
}

#[test]
fn a_trace_shows_every_path_of_one_queue_pair() -> Result<()> {
    let rig = rig(FAULTS, 12)?;
    let paths = MultiPath {
        vp_count: 70,
        ..MultiPath::default()
    };
    let pairs = [
        rig.pair(0, 1, &attr(512, paths))?,
        rig.pair(0, 1, &attr(512, paths))?,
    ];
    let (context, qpn) = (&rig.sides[0].context, pairs[1].tx.qp_num());
    context.trace_qp(qpn)?;
    run(&rig, &pairs)?;
    let (trace, stats) = (context.read_trace(qpn)?, pairs[1].tx.query_stats()?);
    println!("{trace:?}");
    check_trace(&trace, &stats);
    assert_eq!(trace.paths.len(), 64);
    let used = trace.paths.iter().filter(|path| path.counts.sent > 0);
    assert!(used.count() > 8, "packets are spread over paths");
    let acked: u32 = trace.paths.iter().map(|path| path.counts.acked).sum();
    assert!(
        acked + trace.other.acked >= packets(512) / 2,
        "{acked} ACKs"
    );
    // It begins anew, for another queue pair.
    let other = pairs[0].tx.qp_num();
    context.trace_qp(other)?;
    assert!(context.read_trace(qpn).is_err());
    let trace = context.read_trace(other)?;
    check_trace(&trace, &QpStats::default());
    Ok(())
}

#[test]
fn one_path_never_switches_and_a_new_queue_pair_begins_at_zero() -> Result<()> {
    let rig = rig("", 13)?;
    let single = MultiPath {
        vp_count: 1,
        ..MultiPath::default()
    };
    let pair = rig.pair(0, 1, &attr(4096, single))?;
    let pairs = [pair];
    run(&rig, &pairs)?;
    let (tx, rx) = (pairs[0].tx.query_stats()?, pairs[0].rx.query_stats()?);
    assert_eq!((tx.sent, tx.path_switches), (packets(4096), 0));
    assert_eq!(tx.last_sent_vp, Some(single.vp_base as u16));
    assert_eq!(rx.distance, [packets(4096), 0, 0, 0, 0, 0, 0, 0]);
    pairs[0].tx.modify_to_reset()?;
    pairs[0].rx.modify_to_reset()?;
    assert_eq!(pairs[0].tx.query_stats()?, QpStats::default());
    assert_eq!(pairs[0].rx.query_stats()?, QpStats::default());
    Ok(())
}

mprdma_tests::on_model!(
    queue_pairs_add_up_to_the_card_under_faults,
    a_trace_shows_every_path_of_one_queue_pair,
    one_path_never_switches_and_a_new_queue_pair_begins_at_zero,
);
