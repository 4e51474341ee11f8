//! Reads and checks a scenario.

use super::{Kind, LinkRule, Scenario, ScenarioError};
use crate::fabric::Topology;
use mprdma_spec::config::{SIM, SIM_L64};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

impl Scenario {
    /// Reads and checks the file.
    pub fn load(file: &Path) -> Result<Scenario, ScenarioError> {
        let text = std::fs::read_to_string(file).map_err(|source| ScenarioError::Read {
            file: file.to_path_buf(),
            source,
        })?;
        Scenario::parse(&text, file)
    }

    /// Checks `text`; `file` only names it in messages.
    pub fn parse(text: &str, file: &Path) -> Result<Scenario, ScenarioError> {
        let scenario: Scenario = toml::from_str(text).map_err(|e| syntax(text, file, &e))?;
        Checker { text, file }.check(&scenario)?;
        Ok(scenario)
    }
}

fn syntax(text: &str, file: &Path, error: &toml::de::Error) -> ScenarioError {
    let at = error.span().map_or(text.len(), |s| s.start).min(text.len());
    let before = &text[..at];
    let line = before.matches('\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |n| n + 1);
    let mut message = error.message().trim_end().to_string();
    if message.starts_with("missing field") {
        message += "; add it to this table (a file cut short looks like this, too)";
    }
    ScenarioError::Syntax {
        file: file.to_path_buf(),
        line,
        column: before[start..].chars().count() + 1,
        message,
        text: text[start..].lines().next().unwrap_or("").to_string(),
    }
}

struct Checker<'a> {
    text: &'a str,
    file: &'a Path,
}

impl Checker<'_> {
    fn check(&self, s: &Scenario) -> Result<(), ScenarioError> {
        self.network(s)?;
        self.card(s)?;
        self.pcie(s)?;
        let topology = Topology::new(&s.network);
        for (i, rule) in s.links.iter().enumerate() {
            self.link("link", i, rule, &topology)?;
        }
        for (i, event) in s.events.iter().enumerate() {
            self.within("event", i, "at_us", event.at_us, 0.0..=1e9)?;
            let rule = event.rule();
            self.link("event", i, &rule, &topology)?;
            if event.down.is_none() && rule == LinkRule::named(&event.from, &event.to, event.both) {
                let fix = "changes nothing; say what is new, e.g. `loss = 0.01` or `down = true`";
                return Err(self.value("event", i, "at_us", event.at_us, fix));
            }
        }
        Ok(())
    }

    fn network(&self, s: &Scenario) -> Result<(), ScenarioError> {
        let n = &s.network;
        match n.kind {
            Kind::Direct => {
                self.within("network", 0, "cards", n.cards, 2..=2)?;
                self.within("network", 0, "leaves", n.leaves, 0..=0)?;
                self.within("network", 0, "spines", n.spines, 0..=0)?;
            }
            Kind::LeafSpine => {
                self.within("network", 0, "cards", n.cards, 1..=64)?;
                self.within("network", 0, "leaves", n.leaves, 1..=64)?;
                self.within("network", 0, "spines", n.spines, 1..=256)?;
            }
        }
        self.within(
            "network",
            0,
            "card_rate_gbps",
            n.card_rate_gbps,
            0.001..=128.0,
        )?;
        self.within(
            "network",
            0,
            "spine_rate_gbps",
            n.spine_rate_gbps,
            0.001..=1600.0,
        )?;
        self.within("network", 0, "delay_ns", n.delay_ns, 20..=1_000_000)?;
        self.within("network", 0, "queue_packets", n.queue_packets, 1..=1 << 20)?;
        self.within("network", 0, "queue_bytes", n.queue_bytes, 10_000..=1 << 32)
    }

    fn card(&self, s: &Scenario) -> Result<(), ScenarioError> {
        self.within("card", 0, "clock_mhz", s.card.clock_mhz, 1.0..=1000.0)?;
        self.within("card", 0, "tx_fifo_beats", s.card.tx_fifo_beats, 2..=4096)?;
        let built = [SIM.bitmap_slots, SIM_L64.bitmap_slots];
        if !built.contains(&s.card.bitmap_slots) {
            let fix = format!("use {} or {}", built[0], built[1]);
            return Err(self.value("card", 0, "bitmap_slots", s.card.bitmap_slots, fix));
        }
        Ok(())
    }

    fn pcie(&self, s: &Scenario) -> Result<(), ScenarioError> {
        let p = &s.pcie;
        self.within(
            "pcie",
            0,
            "read_latency_ns",
            p.read_latency_ns,
            1..=1_000_000,
        )?;
        // A read must not pass the writes before it (PCIe base specification 2.4.1).
        self.within(
            "pcie",
            0,
            "write_latency_ns",
            p.write_latency_ns,
            0..=p.read_latency_ns,
        )?;
        self.within("pcie", 0, "rate_gbps", p.rate_gbps, 0.1..=2000.0)?;
        self.power_of_two("max_read_request", p.max_read_request, 512, 4096)?;
        self.power_of_two("max_payload", p.max_payload, 256, 4096)?;
        self.power_of_two(
            "read_completion_boundary",
            p.read_completion_boundary,
            64,
            128,
        )?;
        self.within("pcie", 0, "read_tags", p.read_tags, 1..=1024)?;
        self.within("pcie", 0, "reorder", p.reorder, 0.0..=1.0)?;
        self.within("pcie", 0, "jitter_ns", p.jitter_ns, 0..=1_000_000)?;
        self.within("pcie", 0, "read_error", p.read_error, 0.0..=1.0)
    }

    fn power_of_two(
        &self,
        key: &str,
        value: u32,
        low: u32,
        high: u32,
    ) -> Result<(), ScenarioError> {
        if value.is_power_of_two() && (low..=high).contains(&value) {
            return Ok(());
        }
        Err(self.value(
            "pcie",
            0,
            key,
            value,
            format!("use a power of two from {low} to {high}"),
        ))
    }

    fn link(
        &self,
        table: &str,
        i: usize,
        rule: &LinkRule,
        topology: &Topology,
    ) -> Result<(), ScenarioError> {
        if let Err((key, value, fix)) = rule.check() {
            return Err(self.value(table, i, key, value, fix));
        }
        if topology
            .matching(&rule.from, &rule.to, rule.both)
            .is_empty()
        {
            let fix = format!("no such link; nodes are {}", topology.describe());
            return Err(self.value(
                table,
                i,
                "from",
                format!("\"{}\" to \"{}\"", rule.from, rule.to),
                fix,
            ));
        }
        Ok(())
    }

    fn within<T: PartialOrd + Display>(
        &self,
        table: &str,
        nth: usize,
        key: &'static str,
        value: T,
        range: RangeInclusive<T>,
    ) -> Result<(), ScenarioError> {
        check(key, value, range)
            .map_err(|(key, value, fix)| self.value(table, nth, key, value, fix))
    }

    fn value(
        &self,
        table: &str,
        nth: usize,
        key: &str,
        value: impl Display,
        fix: impl Into<String>,
    ) -> ScenarioError {
        ScenarioError::Value {
            file: PathBuf::from(self.file),
            line: self.line_of(table, nth, key),
            key: format!("{table}.{key}"),
            value: value.to_string(),
            fix: fix.into(),
        }
    }

    /// Line of `key` in the `nth` table of that name; the table's own line if the key is left out.
    fn line_of(&self, table: &str, nth: usize, key: &str) -> usize {
        let (mut seen, mut inside, mut found) = (0, false, 1);
        for (number, line) in self.text.lines().enumerate() {
            let line = line.trim();
            if line.starts_with('[') {
                inside = line.trim_matches(|c| c == '[' || c == ']').trim() == table && {
                    seen += 1;
                    seen == nth + 1
                };
                if inside {
                    found = number + 1;
                }
            } else if inside && line.split('=').next().is_some_and(|k| k.trim() == key) {
                return number + 1;
            }
        }
        found
    }
}

/// Key, value and fix.
type Wrong = (&'static str, String, String);

fn check<T: PartialOrd + Display>(
    key: &'static str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<(), Wrong> {
    if range.contains(&value) {
        return Ok(());
    }
    let fix = match range.start() == range.end() {
        true => format!("must be {} here", range.start()),
        false => format!("use a value from {} to {}", range.start(), range.end()),
    };
    Err((key, value.to_string(), fix))
}

impl LinkRule {
    /// A rule for these links that changes nothing yet.
    pub fn named(from: &str, to: &str, both: bool) -> LinkRule {
        LinkRule {
            from: from.into(),
            to: to.into(),
            both,
            ..LinkRule::default()
        }
    }

    /// Checks every value against its range; otherwise says which key has which value and what would be right.
    pub fn check(&self) -> Result<(), (&'static str, String, String)> {
        let probabilities = [
            ("loss", self.loss),
            ("corrupt", self.corrupt),
            ("duplicate", self.duplicate),
            ("reorder", self.reorder),
        ];
        for (key, probability) in probabilities {
            probability.map_or(Ok(()), |p| check(key, p, 0.0..=1.0))?;
        }
        if let Some(rate) = self.rate_gbps {
            check("rate_gbps", rate, 0.001..=1600.0)?;
        }
        if let Some(delay) = self.delay_ns {
            check("delay_ns", delay, 20..=1_000_000)?;
        }
        if let Some(packets) = self.queue_packets {
            check("queue_packets", packets, 1..=1 << 20)?;
        }
        if let Some(ns) = self.reorder_ns {
            check("reorder_ns", ns, 0..=1_000_000_000)?;
        }
        for &number in self.drop_nth.iter().flatten() {
            check("drop_nth", number, 1..=u64::MAX)?;
        }
        let mut intervals = self.down_us.iter().flatten();
        match intervals.find(|[from, to]| from >= to) {
            None => Ok(()),
            Some([from, to]) => {
                let fix = "each interval is [start, end] in µs, start first";
                Err(("down_us", format!("[{from}, {to}]"), fix.into()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str =
        "name = \"t\"\n[network]\nkind = \"leaf-spine\"\ncards = 2\nleaves = 2\nspines = 4\n";

    fn error(text: &str) -> String {
        Scenario::parse(text, Path::new("x.toml"))
            .expect_err("must be refused")
            .to_string()
    }

    #[test]
    fn a_minimal_scenario_is_enough() {
        let s = Scenario::parse(GOOD, Path::new("x.toml")).unwrap();
        assert_eq!((s.network.spines, s.card.clock_mhz), (4, 250.0));
    }

    #[test]
    fn the_shipped_scenarios_load() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
        let mut names = vec![];
        for entry in std::fs::read_dir(dir).unwrap() {
            names.push(Scenario::load(&entry.unwrap().path()).unwrap().name);
        }
        names.sort();
        assert_eq!(names, ["demo", "direct", "small"]);
    }

    #[test]
    fn every_error_names_file_line_key_and_fix() {
        let cases = [
            ("name = \"t\"\n[network]\nkind = \"leaf-spine\"\n", &["x.toml:2", "missing field `cards`", "cut short"][..]),
            ("name = \"t\"\n[network", &["x.toml:2", "[network"]),
            (&format!("{GOOD}spinez = 1\n"), &["x.toml:7:1", "unknown field `spinez`", "expected one of"]),
            (&format!("{GOOD}delay_ns = \"x\"\n"), &["x.toml:7", "invalid type"]),
            (&format!("{GOOD}delay_ns = 1\n"), &["x.toml:7", "`network.delay_ns` = 1", "from 20"]),
            (&format!("{GOOD}[[link]]\nfrom = \"leaf0\"\nto = \"spine9\"\n"), &["x.toml:8", "no such link", "spine0..spine3"]),
            (&format!("{GOOD}[[link]]\nfrom = \"leaf0\"\nto = \"spine1\"\n[[link]]\nfrom = \"leaf0\"\nto = \"spine1\"\nloss = 2.0\n"), &["x.toml:13", "`link.loss` = 2", "from 0 to 1"]),
            (&format!("{GOOD}[card]\n\nbitmap_slots = 96\n"), &["x.toml:9", "`card.bitmap_slots` = 96", "use 128 or 64"]),
            (&format!("{GOOD}[[link]]\nfrom = \"leaf0\"\nto = \"spine1\"\ndrop_nth = [0]\n"), &["x.toml:10", "`link.drop_nth` = 0", "from 1"]),
            (&format!("{GOOD}[[event]]\nfrom = \"leaf0\"\nto = \"spine1\"\nloss = 0.5\n"), &["x.toml:7", "missing field `at_us`"]),
            (&format!("{GOOD}[[event]]\nat_us = -1\nfrom = \"leaf0\"\nto = \"spine1\"\nloss = 0.5\n"), &["x.toml:8", "`event.at_us` = -1", "from 0"]),
            (&format!("{GOOD}[[event]]\nat_us = 5\nfrom = \"leaf0\"\nto = \"spine1\"\n"), &["x.toml:8", "changes nothing"]),
            (&format!("{GOOD}[[event]]\nat_us = 5\nfrom = \"leaf0\"\nto = \"spine7\"\ndown = true\n"), &["x.toml:9", "`event.from`", "no such link"]),
            (&format!("{GOOD}[[event]]\nat_us = 5\nfrom = \"leaf0\"\nto = \"spine1\"\nqueue_packets = 3\n"), &["x.toml:11:1", "unknown field `queue_packets`"]),
            (&format!("{GOOD}[[event]]\nat_us = 5\nfrom = \"card0\"\nto = \"leaf0\"\ndelay_ns = 10\n"), &["x.toml:11", "`event.delay_ns` = 10", "from 20"]),
            (&format!("{GOOD}[pcie]\nmax_payload = 300\n"), &["x.toml:8", "`pcie.max_payload` = 300", "power of two"]),
        ];
        for (text, wanted) in cases {
            let message = error(text);
            for part in wanted {
                assert!(message.contains(part), "{part:?} is not in {message:?}");
            }
        }
    }
}
