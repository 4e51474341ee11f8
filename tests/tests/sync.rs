//! A flag that is written behind its data is never visible before them (protocol section 6).

use anyhow::Result;
use mprdma_tests::rig::PairAttr;
use mprdma_tests::sync::{run, Order, Outcome};
use serde_json::{json, Value};
use std::path::Path;

const SEED: u64 = 61;

fn show(name: &str, outcome: &Outcome) {
    println!("{name:<28} {outcome:.2?}");
}

/// The counts go to `target/sync.json`, unless a longer run has left its own there.
fn report(with: &Outcome, without: &Outcome) -> Result<()> {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("sync.json");
    let earlier: Option<Value> = std::fs::read_to_string(&file)
        .ok()
        .and_then(|text| serde_json::from_str(&text).ok());
    let longer = |value: Value| value["pairs"].as_u64() > Some(with.pairs as u64);
    if earlier.is_some_and(longer) {
        return Ok(());
    }
    let result = json!({
        "pairs": with.pairs,
        "violations_with_sync": with.violations,
        "violations_without": without.violations,
        "overtakings_with_sync": with.overtakings,
        "seed": SEED,
    });
    Ok(std::fs::write(
        file,
        serde_json::to_string_pretty(&result)? + "\n",
    )?)
}

fn pairs(count: usize) -> Result<(Outcome, Outcome)> {
    println!("seed {SEED}");
    let with = run(SEED, count, Order::Sync, &PairAttr::default())?;
    show("SYNC", &with);
    let without = run(SEED, count, Order::Nothing, &PairAttr::default())?;
    show("no order", &without);
    report(&with, &without)?;
    assert_eq!((with.violations, with.overtakings), (0, 0));
    assert!(without.violations > 0, "the test cannot see an early flag");
    Ok((with, without))
}

#[test]
fn a_flag_is_never_visible_before_its_data() -> Result<()> {
    pairs(200).map(drop)
}

/// What SYNC costs against a host that waits for the data itself.
#[test]
#[ignore = "takes minutes"]
fn ten_thousand_pairs_and_the_cost_of_sync() -> Result<()> {
    let (with, without) = pairs(10_000)?;
    let waiting = run(SEED, 1_000, Order::Wait, &PairAttr::default())?;
    show("host waits", &waiting);
    assert_eq!((waiting.violations, waiting.overtakings), (0, 0));
    println!(
        "goodput: SYNC {:.2} Gb/s, waiting {:.2} Gb/s, no order {:.2} Gb/s",
        with.gbps, waiting.gbps, without.gbps
    );
    assert!(with.gbps > waiting.gbps, "waiting is cheaper than SYNC");
    Ok(())
}
