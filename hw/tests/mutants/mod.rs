//! Mutation check of the protocol's rules: each fault of `<test binary>.toml`, planted alone in the printed Verilog,
//! must make a test of this binary fail.
//!
//! A mutant is killed if the faulty block compiles, loads and runs, and a test then fails. A mutation that cannot be
//! planted, does not compile, or makes a test hang or crash is an error of the list, never a kill. Every test runs in a
//! process of its own, with the fault named in its environment.

use mprdma_hw::cosim::mutation::{Mutation, VARIABLE};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

/// The name of this test binary.
const BINARY: &str = env!("CARGO_CRATE_NAME");
/// Seconds that a test may take.
const LIMIT: &str = "900";
/// Exit code of a failed test binary, and of `timeout` when the time is over.
const FAILED: i32 = 101;
const LATE: i32 = 124;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    /// Mutants of the short run.
    quick: Vec<String>,
    mutant: Vec<Mutant>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mutant {
    /// Names the rule that it breaks.
    name: String,
    block: String,
    /// Tests of this binary, in the order in which they are tried.
    tests: Vec<String>,
    find: String,
    replace: String,
}

/// What became of a mutant.
enum Fate {
    /// By this test, with this message.
    Killed(String, String),
    Survived,
    /// The list is wrong.
    Invalid(String),
}

fn list() -> List {
    let file = format!("{}/tests/mutants/{BINARY}.toml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{file}: {e}"));
    toml::from_str(&text).unwrap_or_else(|e| panic!("{file}: {e}"))
}

/// A directory of this run.
fn directory(run: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("mutants-{BINARY}-{run}"));
    std::fs::create_dir_all(&dir).expect("a directory");
    dir
}

/// Runs one test on one mutant.
fn trial(mutant: &Mutant, test: &str, run: &str) -> Fate {
    let file = |suffix: &str| directory(run).join(format!("{}{suffix}", mutant.name));
    let started = file(".started");
    let _ = std::fs::remove_file(&started);
    let mutation = Mutation {
        block: mutant.block.clone(),
        find: mutant.find.clone(),
        replace: mutant.replace.clone(),
        started: started.clone(),
    };
    let json = serde_json::to_string(&mutation).expect("JSON");
    std::fs::write(file(".json"), json).expect("a mutation");
    let output = Command::new("timeout")
        .arg(LIMIT)
        .arg(std::env::current_exe().expect("this binary"))
        .args(["--exact", test, "--include-ignored"])
        .env(VARIABLE, file(".json"))
        .env("MPRDMA_BUILD_DIR", build_root())
        .output()
        .expect("timeout of coreutils");
    let log = String::from_utf8_lossy(&output.stdout).into_owned();
    std::fs::write(file(".log"), &log).expect("a log");
    let invalid = |what: &str| Fate::Invalid(format!("{what}; {}", file(".log").display()));
    match output.status.code() {
        _ if !log.contains("running 1 test\n") => invalid(&format!("no test {test}")),
        _ if !started.is_file() => invalid(&format!("{test} did not run it: {}", message(&log))),
        Some(0) => Fate::Survived,
        Some(FAILED) => Fate::Killed(test.to_string(), message(&log)),
        Some(LATE) => invalid(&format!("{test} does not end")),
        _ => invalid(&format!("{test} crashed")),
    }
}

/// Builds of mutants are kept apart from those of real blocks.
fn build_root() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("mutants-verilated")
}

/// The first lines of what the test said when it failed.
fn message(log: &str) -> String {
    let lines: Vec<&str> = log
        .lines()
        .skip_while(|line| !line.contains("panicked at"))
        .take(3)
        .collect();
    lines.join(" ").chars().take(300).collect()
}

fn fate(mutant: &Mutant, run: &str) -> Fate {
    for test in &mutant.tests {
        match trial(mutant, test, run) {
            Fate::Survived => {}
            other => return other,
        }
    }
    Fate::Survived
}

/// A change that changes nothing: the test must pass.
fn identity(block: &str, test: &str) -> Mutant {
    Mutant {
        name: format!("identity {block} {}", test.replace("::", " ")),
        block: block.to_string(),
        tests: vec![test.to_string()],
        find: format!("module {block} ("),
        replace: format!("module {block}  ("),
    }
}

/// The fates in the order of the mutants, found by `MPRDMA_JOBS` threads, else 2.
fn run_all(mutants: &[Mutant], run: &str) -> Vec<Fate> {
    let jobs = std::env::var("MPRDMA_JOBS")
        .ok()
        .and_then(|jobs| jobs.parse().ok())
        .unwrap_or(2_usize);
    let next = AtomicUsize::new(0);
    let fates: Mutex<Vec<Option<Fate>>> = Mutex::new(mutants.iter().map(|_| None).collect());
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(mutant) = mutants.get(index) else {
                    break;
                };
                let fate = fate(mutant, run);
                println!("{}: {}", mutant.name, text(&fate));
                fates.lock().expect("fates")[index] = Some(fate);
            });
        }
    });
    let fates = fates.into_inner().expect("fates");
    fates
        .into_iter()
        .map(|fate| fate.expect("a fate"))
        .collect()
}

fn text(fate: &Fate) -> String {
    match fate {
        Fate::Killed(test, why) => format!("killed by {test}: {why}"),
        Fate::Survived => "SURVIVED".into(),
        Fate::Invalid(why) => format!("INVALID: {why}"),
    }
}

/// Runs mutants, and then the unchanged block with each test that killed one: it must pass. Returns the fates and the
/// names of the survivors.
fn check(mutants: &[Mutant], run: &str) -> (Vec<Fate>, Vec<String>) {
    let fates = run_all(mutants, run);
    let mut killers = BTreeSet::new();
    let mut survivors = vec![];
    let mut invalid = vec![];
    for (mutant, fate) in mutants.iter().zip(&fates) {
        match fate {
            Fate::Killed(test, _) => {
                killers.insert((mutant.block.as_str(), test.as_str()));
            }
            Fate::Survived => survivors.push(mutant.name.clone()),
            Fate::Invalid(why) => invalid.push(format!("{}: {why}", mutant.name)),
        }
    }
    let killers = killers.into_iter();
    let identities: Vec<Mutant> = killers.map(|(block, test)| identity(block, test)).collect();
    for (identity, fate) in identities.iter().zip(run_all(&identities, run)) {
        if !matches!(fate, Fate::Survived) {
            invalid.push(format!("{}: {}", identity.name, text(&fate)));
        }
    }
    assert!(invalid.is_empty(), "errors:\n{}", invalid.join("\n"));
    (fates, survivors)
}

/// A few mutants die, and the unchanged block passes the tests that kill them.
#[test]
fn a_few_mutants_die() {
    let List { quick, mutant } = list();
    let chosen: Vec<Mutant> = quick
        .iter()
        .map(|name| {
            let found = mutant.iter().find(|mutant| mutant.name == *name);
            found.unwrap_or_else(|| panic!("no mutant {name}")).clone()
        })
        .collect();
    assert!(!chosen.is_empty());
    let (_, survivors) = check(&chosen, "quick");
    assert!(survivors.is_empty(), "survivors: {survivors:?}");
}

/// A mutation that is not in the Verilog, or does not compile, is an error and no kill.
#[test]
fn a_stale_mutation_is_an_error() {
    let good = list().mutant.swap_remove(0);
    let gone = Mutant {
        name: "stale".into(),
        find: "text that no printer prints".into(),
        ..good.clone()
    };
    assert!(matches!(fate(&gone, "stale"), Fate::Invalid(why) if why.contains("0 places")));
    let broken = Mutant {
        name: "broken".into(),
        find: format!("module {} (", good.block),
        replace: format!("module {} ((", good.block),
        ..good
    };
    assert!(matches!(fate(&broken, "stale"), Fate::Invalid(why) if why.contains("did not run")));
}

/// The whole list: writes `target/mutants-<binary>.json`. `MPRDMA_MUTANTS` selects those whose name contains it, and then
/// nothing is written.
#[test]
#[ignore = "minutes; make mutants runs it"]
fn every_mutant_dies() {
    let mut mutants = list().mutant;
    let filter = std::env::var("MPRDMA_MUTANTS").ok();
    if let Some(filter) = &filter {
        mutants.retain(|mutant| mutant.name.contains(filter));
    }
    let start = std::time::Instant::now();
    let (fates, survivors) = check(&mutants, "all");
    let rows: Vec<_> = mutants
        .iter()
        .zip(&fates)
        .map(|(mutant, fate)| match fate {
            Fate::Killed(test, why) => {
                serde_json::json!({"name": mutant.name, "killed_by": format!("{BINARY} {test}"), "message": why})
            }
            _ => serde_json::json!({"name": mutant.name, "killed_by": null}),
        })
        .collect();
    let result = serde_json::json!({
        "total": mutants.len(),
        "killed": mutants.len() - survivors.len(),
        "survivors": survivors,
        "mutants": rows,
    });
    println!(
        "{BINARY}: {} of {} killed in {:.0?}",
        mutants.len() - survivors.len(),
        mutants.len(),
        start.elapsed()
    );
    if filter.is_none() {
        let file = format!(
            "{}/../target/mutants-{BINARY}.json",
            env!("CARGO_MANIFEST_DIR")
        );
        std::fs::write(file, format!("{result:#}\n")).expect("a result file");
    }
    assert!(survivors.is_empty(), "survivors: {survivors:#?}");
}
