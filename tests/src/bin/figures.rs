//! `make figures`: measures the transport and prints the tables. `make bench-loss` is the part that writes
//! `target/loss.json`.

use anyhow::Result;
use clap::{Parser, ValueEnum};
use mprdma_host::verbs::DISTANCES;
use mprdma_sim::time::{Ps, US};
use mprdma_tests::figures::run::{Engine, Tally};
use mprdma_tests::figures::setting::{tuned, Rules, Setting, A, B, C};
use mprdma_tests::figures::{death, ecn, loss, order};
use rayon::prelude::*;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The rules that are compared.
const BOTH: [Rules; 2] = [Rules::Published, Rules::Extended];

/// Measures the transport in simulated networks.
#[derive(Parser)]
struct Arguments {
    /// What to measure; everything without it.
    what: Vec<What>,
    /// What runs the flows. Only cards in RTL write results; the others take seconds instead of minutes.
    #[arg(long, value_enum, default_value = "rtl")]
    engine: Engine,
    /// Seeds per point. Without it 8 for loss, 4 for order and threshold on the model; 2, 10 and 1 on cards; 3 for death.
    /// For loss the published rules get a third of those, and what something is asked of gets more until its standard error
    /// is small.
    #[arg(long)]
    seeds: Option<u64>,
    /// Simulated time of each point of loss, order and threshold, us.
    #[arg(long)]
    us: Option<u64>,
    /// Losses of the loss table, beside 0; 0.001 to 0.1 without it.
    #[arg(long, value_delimiter = ',')]
    losses: Vec<f64>,
    /// Floor of the retransmission timeout in the loss table, in units of 4.096 us.
    #[arg(long, default_value_t = loss::RTO_FLOOR)]
    rto_floor: u16,
    /// Settings of the tables of loss and order.
    #[arg(long, default_value = "ABC")]
    settings: String,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// Goodput while a path loses packets.
    Loss,
    /// A path dies and returns.
    Death,
    /// How far out of order packets arrive.
    Order,
    /// Goodput against the ECN threshold.
    Ecn,
}

impl Arguments {
    /// The settings that are wanted.
    fn settings(&self) -> impl Iterator<Item = Setting> + '_ {
        [A, B, C]
            .into_iter()
            .filter(|setting| self.settings.contains(setting.name))
    }

    /// Simulated time and seeds of a point. Cards get less time, a millisecond of two takes seconds, and as many seeds as
    /// it takes for the point to say something.
    fn extent(&self, engine: Engine, model: u64, (us, seeds): (u64, u64)) -> (Ps, u64) {
        let (us, seeds) = match engine {
            Engine::Model => (20_000, model),
            Engine::StandIn | Engine::Rtl => (us, seeds),
        };
        (self.us.unwrap_or(us) * US, self.seeds.unwrap_or(seeds))
    }
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let engine = arguments.engine;
    let wanted = |what| arguments.what.is_empty() || arguments.what.contains(&what);
    println!("engine: {}", engine.name());
    if wanted(What::Loss) {
        losses(engine, &arguments)?;
    }
    if wanted(What::Death) {
        deaths(engine, arguments.seeds.unwrap_or(3))?;
    }
    if wanted(What::Order) {
        orders(engine, &arguments)?;
    }
    if wanted(What::Ecn) {
        thresholds(engine, &arguments)?;
    }
    Ok(())
}

fn losses(engine: Engine, arguments: &Arguments) -> Result<()> {
    let (time, seeds) = arguments.extent(engine, 8, (4_000, 2));
    let file = target().join("loss.json");
    let wanted = match arguments.losses.is_empty() {
        true => &loss::LOSSES[..],
        false => &arguments.losses,
    };
    // What is kept is a part of what goes through without loss, so that is always measured.
    let lossy = wanted.iter().copied().filter(|&loss| loss > 0.0);
    let losses: Vec<f64> = std::iter::once(0.0).chain(lossy).collect();
    println!(
        "\n## Loss on one of four paths: Gb/s, {} us, {seeds} seeds, timeouts of {:.1} us or more\n",
        time / US,
        f64::from(arguments.rto_floor) * 4.096
    );
    for setting in arguments.settings() {
        let (setting, before) = tuned(engine, &setting)?;
        println!(
            "setting {}: round trip {before:.2} us, link delay set to {} ns",
            setting.name, setting.delay_ns
        );
        println!("{}", loss::HEAD);
        let mut kept = Ok(());
        let network = (setting, arguments.rto_floor);
        loss::rows(engine, network, &losses, time, seeds, |row| {
            println!("{row}");
            if engine == Engine::Rtl && kept.is_ok() {
                kept = keep(&file, row.json(engine));
            }
        })?;
        kept?;
        let case = loss::Case {
            setting,
            rules: Rules::Extended,
            loss: 0.01,
            both: true,
            rto_floor: arguments.rto_floor,
        };
        let both = loss::mean(engine, &case, time, seeds, None)?;
        println!(
            "with 1 % of the ACKs on that path lost too: {:.1} Gb/s\n",
            both.gbps
        );
    }
    if engine == Engine::Rtl {
        println!("{}", file.display());
    }
    Ok(())
}

/// Puts a row into the file, in place of an older one of the same setting and loss.
fn keep(file: &Path, row: Value) -> Result<()> {
    let mut rows: Vec<Value> = match std::fs::read(file) {
        Ok(text) => serde_json::from_slice(&text)?,
        Err(_) => vec![],
    };
    let key = |row: &Value| (row["setting"].to_string(), row["loss"].to_string());
    rows.retain(|old| key(old) != key(&row));
    rows.push(row);
    rows.sort_by_key(key);
    std::fs::write(file, serde_json::to_string_pretty(&rows)? + "\n")?;
    Ok(())
}

fn target() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target")
}

fn deaths(engine: Engine, seeds: u64) -> Result<()> {
    println!(
        "\n## A path dies and returns: setting B, three paths allow {:.1} Gb/s, time allowed {} us",
        death::three_paths(&B),
        death::deadline() / US
    );
    for (both, what) in [(false, "Data alone die"), (true, "ACKs die too")] {
        println!("\n{what}:\n\n{}", death::HEAD);
        let deaths = (1..=seeds)
            .into_par_iter()
            .map(|seed| death::measure(engine, &B, both, seed))
            .collect::<Result<Vec<_>>>()?;
        for (seed, death) in (1..).zip(&deaths) {
            println!("{}", death::row(seed, &B, death));
        }
        println!("\n{}", death::summary(&B, &deaths));
    }
    Ok(())
}

fn orders(engine: Engine, arguments: &Arguments) -> Result<()> {
    let (time, seeds) = arguments.extent(engine, 4, (2_000, 10));
    println!(
        "\n## Distance of accepted packets from the next in order, with cross traffic, {} us\n",
        time / US
    );
    let heads: Vec<String> = DISTANCES.iter().map(|d| format!("{d}+")).collect();
    println!(
        "| setting | rules | Gb/s | {} | below 32 | beyond the bitmap | prunes |",
        heads.join(" | ")
    );
    println!(
        "| --- | --- | --- |{} --- | --- | --- |",
        " --- |".repeat(heads.len())
    );
    let cases: Vec<(Setting, Rules)> = arguments
        .settings()
        .flat_map(|setting| BOTH.map(|rules| (setting, rules)))
        .collect();
    let measured = cases
        .par_iter()
        .map(|(setting, rules)| {
            over_seeds(seeds, |seed| {
                order::measure(engine, setting, *rules, time, seed)
            })
        })
        .collect::<Result<Vec<_>>>()?;
    for ((setting, rules), (gbps, tally)) in cases.iter().zip(&measured) {
        let counts: Vec<String> = tally.distance.iter().map(u64::to_string).collect();
        println!(
            "| {} | {rules:?} | {gbps:.1} | {} | {:.4} % | {} | {} |",
            setting.name,
            counts.join(" | "),
            100.0 * order::near(tally),
            tally.out_of_window,
            tally.prunes
        );
    }
    Ok(())
}

/// Mean rate and the counts of all seeds, which run in parallel.
fn over_seeds(
    seeds: u64,
    measure: impl Fn(u64) -> Result<(f64, Tally)> + Sync,
) -> Result<(f64, Tally)> {
    let runs = (1..=seeds)
        .into_par_iter()
        .map(&measure)
        .collect::<Result<Vec<_>>>()?;
    let mut tally = Tally::default();
    runs.iter().for_each(|(_, one)| tally.add(one));
    let gbps = runs.iter().map(|(rate, _)| rate).sum::<f64>() / seeds as f64;
    Ok((gbps, tally))
}

fn thresholds(engine: Engine, arguments: &Arguments) -> Result<()> {
    let (time, seeds) = arguments.extent(engine, 4, (2_000, 1));
    println!(
        "\n## Goodput against the ECN threshold K: 40 Gb/s host, n equal paths, 1 KiB, delta 32\n"
    );
    println!(
        "| n | delta / n | K | published rules | prunes | beyond the bitmap | extended | prunes |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for paths in [4, 8] {
        let setting = ecn::setting(paths);
        for threshold in ecn::THRESHOLDS {
            let cells = BOTH
                .into_par_iter()
                .map(|rules| {
                    over_seeds(seeds, |seed| {
                        ecn::measure(engine, &setting, rules, threshold, time, seed)
                    })
                })
                .collect::<Result<Vec<_>>>()?;
            println!(
                "| {paths} | {} | {threshold} | {:.1} | {} | {} | {:.1} | {} |",
                32 / paths,
                cells[0].0,
                cells[0].1.prunes,
                cells[0].1.out_of_window,
                cells[1].0,
                cells[1].1.prunes,
            );
        }
    }
    Ok(())
}
