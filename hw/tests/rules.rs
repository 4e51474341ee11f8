//! The table of docs/testing.md: for each rule of docs/protocol.md the tests named after it, and its mutants.
//!
//! `MPRDMA_BLESS=1 cargo test -p mprdma-hw --test rules` writes the table anew.

use serde::Deserialize;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const BEGIN: &str = "<!-- rules: begin -->\n";
const END: &str = "<!-- rules: end -->\n";
/// Mutants that there are at least.
const LEAST: usize = 40;

/// Prefix of the names, and what the rule says in short.
const RULES: &[(&str, &str)] = &[
    (
        "section_3_rule_1",
        "ICRC, state, P_Key, bounds, rights; error NAKs in order",
    ),
    (
        "section_3_rule_2",
        "before the window: acknowledged, not placed",
    ),
    ("section_3_rule_3", "beyond the window: window NAK"),
    (
        "section_3_rule_4",
        "synchronised data is not placed early: sync NAK",
    ),
    ("section_3_rule_5", "taken slot: acknowledged, not placed"),
    (
        "section_3_rule_6",
        "placing, sliding, completions in order behind their data",
    ),
    ("section_3_rule_7", "one ACK per packet and what it echoes"),
    ("section_3_receive_wqe", "receive WQEs and RNR"),
    (
        "section_4_rule_1",
        "inflate, snd_una, completion in posting order",
    ),
    ("section_4_rule_2", "snd_ooh; no hole, no inflate"),
    ("section_4_rule_3", "ECN and growth of the window"),
    ("section_4_rule_4", "out-of-order aware path selection"),
    (
        "section_4_rule_5",
        "two packets on the path of the ACK; probing",
    ),
    ("section_4_rule_6", "a window without work shrinks"),
    ("section_4_rule_7", "the burst timer"),
    ("section_4_start", "start, restart, ECT, virtual paths"),
    ("section_4_rtt", "RTT from stamp echoes"),
    (
        "section_5_recovery",
        "recovery: entry, one retransmission per ACK, exit",
    ),
    ("section_5_rto", "retransmission timeout and backoff"),
    ("section_5_retry", "retry_cnt timeouts: ERROR and flush"),
    ("section_5_hole_repair", "extension hole_repair"),
    ("section_5_vp_recycle", "extension vp_recycle"),
    ("section_6_sync", "the optimistic delay and the boundary"),
    ("section_6_fence", "FENCE: waits for earlier READs"),
    ("section_7", "READ in MP mode"),
    ("section_7_atomic", "ATOMIC in MP mode"),
];

#[derive(Deserialize)]
struct List {
    mutant: Vec<Mutant>,
}

#[derive(Deserialize)]
struct Mutant {
    name: String,
    tests: Vec<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Every Rust file below a directory of the workspace.
fn sources(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a directory").flatten() {
        let path = entry.path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            sources(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

/// Names of the tests of a file: functions right behind `#[test]` and its other attributes.
fn tests(text: &str) -> Vec<String> {
    let mut found = vec![];
    let mut lines = text.lines().map(str::trim);
    while let Some(line) = lines.next() {
        if line != "#[test]" {
            continue;
        }
        let function = lines.find(|line| !line.starts_with("#["));
        let name = function
            .and_then(|line| line.strip_prefix("fn "))
            .and_then(|rest| rest.split_once('('));
        found.extend(name.map(|(name, _)| name.to_string()));
    }
    found
}

/// `section_…` tests of the workspace, with their files.
fn named_tests() -> BTreeSet<(String, String)> {
    let mut files = vec![];
    for member in ["model", "hw", "sim", "host", "tests", "spec"] {
        sources(&root().join(member), &mut files);
    }
    let mut found = BTreeSet::new();
    for file in files {
        let path = file
            .strip_prefix(root())
            .expect("below the root")
            .display()
            .to_string();
        let names = tests(&read(&file))
            .into_iter()
            .filter(|name| name.starts_with("section_"));
        found.extend(names.map(|name| (name, path.clone())));
    }
    found
}

/// The mutants of all lists, with the test binary of the list.
fn mutants() -> Vec<(String, Mutant)> {
    let binaries = ["sender", "receiver", "tx", "frame"];
    let list = |binary: &str| {
        let file = root().join(format!("hw/tests/mutants/{binary}.toml"));
        let list: List =
            toml::from_str(&read(&file)).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        list.mutant
            .into_iter()
            .map(move |mutant| (binary.to_string(), mutant))
            .collect::<Vec<_>>()
    };
    binaries.iter().flat_map(|binary| list(binary)).collect()
}

/// A name belongs to the rule whose prefix and an underscore it begins with.
fn belongs(name: &str, rule: &str) -> bool {
    name.strip_prefix(rule)
        .is_some_and(|rest| rest.starts_with('_'))
}

fn words(name: &str, rule: &str) -> String {
    name[rule.len() + 1..].replace('_', " ")
}

fn table() -> String {
    let (tests, mutants) = (named_tests(), mutants());
    let mut text =
        String::from("| rule | tests named after it | mutants of the RTL |\n| --- | --- | --- |\n");
    for (rule, says) in RULES {
        let mut row = format!("| `{rule}`: {says} | ");
        let own: Vec<_> = tests
            .iter()
            .filter(|(name, _)| belongs(name, rule))
            .collect();
        let shown: Vec<String> = own
            .iter()
            .map(|(name, file)| format!("{} (`{file}`)", words(name, rule)))
            .collect();
        row += &shown.join("; ");
        let own: Vec<_> = mutants
            .iter()
            .filter(|(_, mutant)| belongs(&mutant.name, rule))
            .collect();
        let shown: Vec<String> = own
            .iter()
            .map(|(_, mutant)| words(&mutant.name, rule))
            .collect();
        let _ = writeln!(text, "{row} | {}: {} |", own.len(), shown.join("; "));
    }
    text
}

#[test]
fn every_rule_has_a_test_and_a_mutant() {
    let (tests, mutants) = (named_tests(), mutants());
    for (rule, _) in RULES {
        let tested = tests.iter().any(|(name, _)| belongs(name, rule));
        let mutated = mutants
            .iter()
            .any(|(_, mutant)| belongs(&mutant.name, rule));
        assert!(tested, "no test of {rule}");
        assert!(mutated, "no mutant of {rule}");
    }
    let known = |name: &str| RULES.iter().any(|(rule, ..)| belongs(name, rule));
    for (name, file) in &tests {
        assert!(known(name), "{file}: {name} belongs to no rule");
    }
    let mut names = BTreeSet::new();
    for (_, mutant) in &mutants {
        assert!(known(&mutant.name), "{} belongs to no rule", mutant.name);
        assert!(names.insert(&mutant.name), "{} twice", mutant.name);
    }
    assert!(mutants.len() >= LEAST, "{} mutants", mutants.len());
    println!(
        "{} tests named after rules, {} mutants",
        tests.len(),
        mutants.len()
    );
}

/// The tests that kill mutants exist in the binary of their list.
#[test]
fn every_killer_exists() {
    for (binary, mutant) in mutants() {
        for test in &mutant.tests {
            let mut path: Vec<&str> = test.split("::").collect();
            let name = path.pop().expect("a name");
            let file = root().join(format!("hw/tests/{binary}/{}.rs", path[0]));
            // `both!` makes the tests of the last module.
            let made = name == "in_verilator"
                && read(&file).contains(&format!("both!({},", path[path.len() - 1]));
            assert!(
                made || tests(&read(&file)).iter().any(|found| found == name),
                "{}: no test {test}",
                mutant.name
            );
        }
    }
}

#[test]
fn testing_md_is_current() {
    let file = root().join("docs/testing.md");
    let text = read(&file);
    let (head, rest) = text.split_once(BEGIN).expect("the table's beginning");
    let (old, tail) = rest.split_once(END).expect("the table's end");
    let table = table();
    if std::env::var_os("MPRDMA_BLESS").is_some() {
        std::fs::write(&file, format!("{head}{BEGIN}{table}{END}{tail}")).expect("docs/testing.md");
        return;
    }
    assert_eq!(
        old, table,
        "MPRDMA_BLESS=1 cargo test -p mprdma-hw --test rules writes it"
    );
}
