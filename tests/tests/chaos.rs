//! Random fault scenarios, each made and played from its seed alone (see `mprdma_tests::chaos`).

use anyhow::{ensure, Context as _, Result};
use mprdma_sim::engine::Engine;
use mprdma_sim::scenario::Event;
use mprdma_sim::world::Options;
use mprdma_tests::chaos::{run, Outcome, Plan};
use mprdma_tests::rig::{engine, on, US};
use std::ops::Range;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Mutex;
use std::time::Instant;

/// Where the result of the long run goes.
const RESULT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/faults.json");

/// What came out so far.
#[derive(Default)]
struct Tally {
    next: u64,
    scenarios: u64,
    failed: Vec<u64>,
    longest: f64,
    packets: u64,
    again: u64,
    drops: u64,
}

/// One thread per world: there are as many worlds as processors.
fn options() -> Result<Options> {
    Ok(Options {
        threads: 1,
        engine: engine()?,
        ..Options::default()
    })
}

fn one(plan: &Plan, options: &Options) -> Result<Outcome> {
    let played = catch_unwind(AssertUnwindSafe(|| run(plan, options)));
    played.unwrap_or_else(|_| Err(anyhow::anyhow!("panicked; the message is above")))
}

/// Plays the plan of every seed of the range, on every processor; keeps the result file up to date if there is one.
fn play(plan: fn(u64) -> Plan, seeds: Range<u64>, result: Option<&str>) -> Result<()> {
    let tally = Mutex::new(Tally {
        next: seeds.start,
        ..Tally::default()
    });
    let options = options()?;
    let work = || -> Result<()> {
        loop {
            let seed = {
                let mut tally = tally.lock().expect("no panic");
                tally.next += 1;
                tally.next - 1
            };
            if seed >= seeds.end {
                return Ok(());
            }
            let started = Instant::now();
            let plan = plan(seed);
            let outcome = one(&plan, &options);
            let mut tally = tally.lock().expect("no panic");
            tally.scenarios += 1;
            match outcome {
                Ok(o) => {
                    tally.longest = tally.longest.max(o.time as f64 / o.bound as f64);
                    tally.packets += o.packets;
                    tally.again += o.again;
                    tally.drops += o.drops;
                    if std::env::var_os("MPRDMA_VERBOSE").is_some() {
                        println!(
                            "seed {seed} {}: {} pairs, {} packets, {} again, {} drops, {:.0} of {:.0} us, {:.1} s",
                            plan.kind, plan.pairs.len(), o.packets, o.again, o.drops,
                            o.time as f64 / 1e6, o.bound as f64 / 1e6, started.elapsed().as_secs_f64()
                        );
                    }
                }
                Err(error) => {
                    tally.failed.push(seed);
                    println!(
                        "seed {seed} failed: {error:#}\n  again: MPRDMA_SEEDS={seed}..{} cargo test -p mprdma-tests \
                         --test chaos -- --ignored --nocapture",
                        seed + 1
                    );
                }
            }
            if let Some(file) = result {
                write(file, &tally, &seeds, options.engine)?;
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .try_for_each(|w| w.join().expect("a worker ends"))
    })?;
    let tally = tally.into_inner().expect("no panic");
    println!(
        "{} scenarios, {} failures {:?}; {} packets, {} retransmissions, {} frames dropped; longest {:.0} % of its bound",
        tally.scenarios, tally.failed.len(), tally.failed, tally.packets, tally.again, tally.drops, 100.0 * tally.longest
    );
    ensure!(tally.failed.is_empty(), "failing seeds: {:?}", tally.failed);
    ensure!(tally.scenarios > 0, "no scenario was played");
    Ok(())
}

fn write(file: &str, tally: &Tally, seeds: &Range<u64>, engine: Engine) -> Result<()> {
    let value = serde_json::json!({
        "engine": engine.name(),
        "scenarios": tally.scenarios,
        "failures": tally.failed.len(),
        "seeds": tally.failed,
        "range": [seeds.start, seeds.end],
    });
    std::fs::write(file, format!("{value:#}\n")).with_context(|| file.to_string())
}

/// `START..END` in the environment.
fn wanted() -> Result<Option<Range<u64>>> {
    let Ok(text) = std::env::var("MPRDMA_SEEDS") else {
        return Ok(None);
    };
    let range = || {
        let (start, end) = text.split_once("..")?;
        Some(start.trim().parse().ok()?..end.trim().parse().ok()?)
    };
    Ok(Some(range().with_context(|| {
        format!("MPRDMA_SEEDS={text}: use START..END, e.g. 1..2001")
    })?))
}

#[test]
fn forty_random_fault_scenarios() -> Result<()> {
    let long = std::env::var_os("MPRDMA_LONG").is_some();
    play(Plan::new, 1..41, (!long).then_some(RESULT))
}

fn fails(plan: &Plan) -> String {
    let error = run(plan, &options().expect("an engine")).expect_err("must be seen");
    format!("{error:#}")
}

#[test]
fn forty_random_fault_scenarios_on_the_model() -> Result<()> {
    on(Engine::Model, || play(Plan::new, 1..41, None))
}

#[test]
fn the_player_sees_what_is_wrong() -> Result<()> {
    let plan = || Plan {
        events: vec![],
        ..Plan::new(1)
    };
    assert!(run(&plan(), &options()?).is_ok());

    // The player takes the first message for one whose place the second takes, so its bytes are bytes too many.
    let mut stray = plan();
    let messages = &mut stray.flows[0].messages;
    let first = messages.iter().position(|m| m.length > 1000).expect("one");
    messages[first].reused = false;
    messages[first + 1].overwrites = true;
    assert!(fails(&stray).contains("memory of card"));

    let mut refused = plan();
    let last = refused.flows[0].messages.last_mut().expect("one");
    (last.length, last.target) = (100, 1 << 30);
    assert!(fails(&refused).contains("failed"));

    let mut dead = plan();
    dead.events = vec![Event {
        from: "leaf*".into(),
        to: "spine*".into(),
        down: Some(true),
        ..Event::default()
    }];
    dead.bound = 300 * US;
    assert!(fails(&dead).contains("not complete after 300 us"));
    dead.bound = 60_000 * US;
    let pairs = dead.pairs.iter_mut();
    pairs.for_each(|pair| pair.rts.retry_cnt = 2);
    assert!(fails(&dead).contains("RetryExceeded"));
    Ok(())
}

/// About an hour. `MPRDMA_SEEDS=START..END` plays others.
#[test]
#[ignore]
fn two_thousand_random_fault_scenarios() -> Result<()> {
    play(Plan::new, wanted()?.unwrap_or(1..2001), Some(RESULT))
}

/// With READs in place of some WRITEs.
#[test]
fn twenty_random_fault_scenarios_with_reads() -> Result<()> {
    play(Plan::reading, 1..21, None)
}

#[test]
fn forty_random_fault_scenarios_with_reads_on_the_model() -> Result<()> {
    on(Engine::Model, || play(Plan::reading, 1..41, None))
}

/// With READs and ATOMICs in place of some WRITEs: every sum is exact.
#[test]
fn twenty_random_fault_scenarios_with_atomics() -> Result<()> {
    play(Plan::adding, 1..21, None)
}

#[test]
fn forty_random_fault_scenarios_with_atomics_on_the_model() -> Result<()> {
    on(Engine::Model, || play(Plan::adding, 1..41, None))
}

/// `MPRDMA_SEEDS=START..END` plays others.
#[test]
#[ignore]
fn two_thousand_random_fault_scenarios_with_atomics() -> Result<()> {
    play(Plan::adding, wanted()?.unwrap_or(1..2001), None)
}

/// `MPRDMA_SEEDS=START..END` plays others.
#[test]
#[ignore]
fn two_thousand_random_fault_scenarios_with_reads() -> Result<()> {
    play(Plan::reading, wanted()?.unwrap_or(1..2001), None)
}
