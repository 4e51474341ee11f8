//! `make bench`: goodput in simulated time, and the simulator's own speed. Writes `target/bench.json`.

use anyhow::Result;
use mprdma_host::verbs::{MultiPath, RtsAttr};
use mprdma_sim::engine::Engine;
use mprdma_sim::world::Options;
use mprdma_spec::config::CLOCK_MHZ;
use mprdma_tests::measure::{stream, Stream};
use mprdma_tests::rig::{scenario, PairAttr, Rig};
use mprdma_tests::sync::{self, Order};
use serde_json::json;

const LINK_GBPS: f64 = 100.0;

fn run(name: &str, attr: &PairAttr, messages: usize, size: usize) -> Result<Stream> {
    run_on(Engine::Rtl, name, attr, messages, size)
}

fn run_on(
    engine: Engine,
    name: &str,
    attr: &PairAttr,
    messages: usize,
    size: usize,
) -> Result<Stream> {
    let options = Options {
        engine,
        seed: 1,
        ..Options::default()
    };
    let rig = Rig::new(&scenario(name)?, &options)?;
    stream(&rig, attr, messages, size, 16)
}

fn main() -> Result<()> {
    let mut rows = Vec::new();
    let mut row = |name: &str, value: f64, unit: &str, bound: f64| {
        let ratio = value / bound;
        let verdict = if ratio >= 1.0 { "ok" } else { "BELOW" };
        println!(
            "{name:<58} {value:>12.2} {unit:<9} bound {bound:>9.2}  ratio {ratio:>6.2}  {verdict}"
        );
        rows.push(
            json!({ "name": name, "value": value, "unit": unit, "bound": bound, "ratio": ratio }),
        );
    };
    let mut speed = f64::INFINITY;
    for (mtu, share) in [(4096, 0.90), (1024, 0.85)] {
        let result = run(
            "direct",
            &PairAttr {
                mtu,
                ..PairAttr::default()
            },
            24,
            1 << 20,
        )?;
        row(
            &format!("one QP, 1 MiB WRITEs, MTU {mtu}, uncongested"),
            result.steady_gbps,
            "Gb/s",
            share * LINK_GBPS,
        );
        println!(
            "    {} cycles, {:.3} ms simulated",
            result.cycles,
            result.time as f64 / 1e9
        );
        speed = speed.min(result.cycles_per_second);
    }
    let four = run("demo", &PairAttr::default(), 64, 1 << 20)?;
    row(
        "four 25 Gb/s paths, one QP, 64 MiB, MTU 4096",
        four.steady_gbps,
        "Gb/s",
        90.0,
    );
    println!("    shares {:.3?}, {} cycles", four.shares, four.cycles);
    let single = PairAttr {
        rts: RtsAttr {
            multi_path: MultiPath {
                vp_count: 1,
                ..MultiPath::default()
            },
            ..RtsAttr::new(0)
        },
        ..PairAttr::default()
    };
    let one = run("demo", &single, 4, 1 << 20)?;
    row("the same with vp_count 1", one.steady_gbps, "Gb/s", 20.0);
    row(
        "four paths over one path",
        four.steady_gbps / one.steady_gbps,
        "times",
        3.0,
    );
    let pairs = |order| sync::run(61, 1000, order, &PairAttr::default());
    let (with, waiting) = (pairs(Order::Sync)?, pairs(Order::Wait)?);
    row(
        "data and flag pairs on four uneven lossy paths: SYNC over waiting",
        with.gbps / waiting.gbps,
        "times",
        1.0,
    );
    println!(
        "    SYNC {:.2} Gb/s, host waits for the data {:.2} Gb/s, no order {:.2} Gb/s",
        with.gbps,
        waiting.gbps,
        pairs(Order::Nothing)?.gbps
    );
    row(
        "simulator, two cards under full load, per card",
        speed.min(four.cycles_per_second),
        "cycles/s",
        20_000.0,
    );
    // The clock of both is 250 MHz: cycles are simulated time.
    let model = run_on(Engine::Model, "demo", &PairAttr::default(), 64, 1 << 20)?;
    for (engine, result) in [("RTL", &four), ("model", &model)] {
        println!(
            "    {engine}, four paths: {:.0} us simulated per second of wall time",
            result.cycles_per_second / f64::from(CLOCK_MHZ)
        );
    }
    row(
        "model in place of the RTL, four paths: speed over RTL",
        model.cycles_per_second / four.cycles_per_second,
        "times",
        10.0,
    );
    row(
        "the same: goodput over RTL's, one seed",
        model.steady_gbps / four.steady_gbps,
        "times",
        0.9,
    );
    std::fs::create_dir_all("target")?;
    std::fs::write(
        "target/bench.json",
        serde_json::to_string_pretty(&rows)? + "\n",
    )?;
    println!("target/bench.json");
    Ok(())
}
