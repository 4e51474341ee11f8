//! One queue pair over four 25 Gb/s paths of a 100 Gb/s card.

use anyhow::Result;
use mprdma_host::verbs::{MultiPath, RtsAttr};
use mprdma_spec::counter::Counter;
use mprdma_tests::measure::stream;
use mprdma_tests::rig::{PairAttr, Rig};

const MIB: usize = 1 << 20;

/// Messages of the normal run and of the long one (64 MiB).
fn messages(short: usize) -> usize {
    match std::env::var_os("MPRDMA_LONG") {
        Some(_) => 64,
        None => short,
    }
}

#[test]
fn four_paths_share_the_load_and_fill_the_link() -> Result<()> {
    let rig = Rig::start("demo", 1)?;
    let result = stream(&rig, &PairAttr::default(), messages(24), MIB, 16)?;
    println!(
        "{:.1} Gb/s, shares {:.3?}",
        result.steady_gbps, result.shares
    );
    assert!(result.steady_gbps >= 88.0, "{:.1} Gb/s", result.steady_gbps);
    assert!(
        result
            .shares
            .iter()
            .all(|share| (0.18..=0.32).contains(share)),
        "{:.3?}",
        result.shares
    );
    // Nothing is lost, but hole_repair takes a packet that is more than delta late for lost.
    let resent = result.sent(Counter::TxRetransmissions);
    assert!(resent * 500 <= result.sent(Counter::TxFrames), "{resent}");
    if messages(0) == 64 {
        assert!(result.steady_gbps >= 90.0, "{:.1} Gb/s", result.steady_gbps);
        assert!(
            result
                .shares
                .iter()
                .all(|share| (0.20..=0.30).contains(share)),
            "{:.3?}",
            result.shares
        );
    }
    Ok(())
}

#[test]
fn one_path_carries_a_quarter() -> Result<()> {
    let rig = Rig::start("demo", 1)?;
    let multi_path = MultiPath {
        vp_count: 1,
        ..MultiPath::default()
    };
    let attr = PairAttr {
        rts: RtsAttr {
            multi_path,
            ..RtsAttr::new(0)
        },
        ..PairAttr::default()
    };
    let result = stream(&rig, &attr, messages(4), MIB, 16)?;
    println!(
        "{:.1} Gb/s, shares {:.3?}",
        result.steady_gbps, result.shares
    );
    assert!(
        (20.0..=25.0).contains(&result.steady_gbps),
        "{:.1} Gb/s",
        result.steady_gbps
    );
    assert_eq!(
        result.shares.iter().filter(|share| **share > 0.0).count(),
        1
    );
    Ok(())
}

/// A spine at a quarter of its rate carries less than half of its share, and nothing is lost. With the extensions more is
/// lost of the other paths in single seeds (docs/measurements.md): what is late by more than delta is resent, and the
/// packets that it displaced follow the recycled paths.
#[test]
fn a_slow_spine_is_spared() -> Result<()> {
    let published = PairAttr {
        rts: RtsAttr {
            multi_path: MultiPath::default().as_published(),
            ..RtsAttr::new(0)
        },
        ..PairAttr::default()
    };
    slow_spine(&published, 60.0)?;
    slow_spine(&PairAttr::default(), 50.0)
}

fn slow_spine(attr: &PairAttr, least_gbps: f64) -> Result<()> {
    let slow = "\n[[link]]\nfrom = \"leaf*\"\nto = \"spine2\"\nboth = true\nrate_gbps = 6.25\n";
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../sim/scenarios/demo.toml");
    let rig = Rig::start(&(std::fs::read_to_string(file)? + slow), 0)?;
    let result = stream(&rig, attr, messages(16), MIB, 16)?;
    println!(
        "{:.1} Gb/s, shares {:.3?}, {} retransmissions, {} drops",
        result.steady_gbps,
        result.shares,
        result.sent(Counter::TxRetransmissions),
        rig.sim.stats().fabric.drops,
    );
    assert!(result.shares[2] < 0.12, "{:.3?}", result.shares);
    assert!(
        result.steady_gbps > least_gbps,
        "{:.1} Gb/s",
        result.steady_gbps
    );
    assert_eq!(rig.sim.stats().fabric.drops, 0);
    Ok(())
}

mprdma_tests::on_model!(
    four_paths_share_the_load_and_fill_the_link,
    one_path_carries_a_quarter,
    a_slow_spine_is_spared,
);
