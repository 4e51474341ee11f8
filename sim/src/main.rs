//! `mprdma-sim`: runs simulated cards and talks to those that run.

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use mprdma_sim::engine::Engine;
use mprdma_sim::scenario::{LinkRule, Scenario};
use mprdma_sim::server::control::{ask, stop, Request};
use mprdma_sim::server::Server;
use mprdma_sim::verilated::{Wave, Window};
use mprdma_sim::world::Options;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Where the cards' sockets are when nothing else is said.
const DIRECTORY: &str = "/tmp/mprdma-sim";

/// Simulated mprdma cards joined by a simulated network.
#[derive(Parser)]
#[command(name = "mprdma-sim", version)]
struct Cli {
    /// More messages; twice for debugging.
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the cards of a scenario until it is stopped.
    Up(Up),
    /// Prints the counters of a running simulator as JSON.
    Stats {
        /// Its directory.
        #[arg(default_value = DIRECTORY)]
        dir: PathBuf,
    },
    /// Changes a link of a running simulator.
    Link(Link),
    /// Stops a running simulator.
    Down {
        /// Its directory.
        #[arg(default_value = DIRECTORY)]
        dir: PathBuf,
    },
    /// Checks a scenario without running it.
    Check {
        /// File, or the name of a built-in scenario.
        scenario: String,
    },
}

#[derive(Args)]
struct Up {
    /// File, or the name of a built-in scenario: demo, direct, small.
    scenario: String,
    /// What the cards are: the Verilated RTL, or the golden model in its place, some fifty times faster and without
    /// waveforms. Driver, network and captures are the same.
    #[arg(long, value_enum, default_value_t = Engine::Rtl)]
    engine: Engine,
    /// Directory of the cards' sockets nic0.sock, nic1.sock, …
    #[arg(long, default_value = DIRECTORY)]
    dir: PathBuf,
    /// Captures every port into DIR/cardN.pcapng.
    #[arg(long, value_name = "DIR")]
    pcap: Option<PathBuf>,
    /// Writes the result to this file at the end.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Seed of faults, paths and latencies.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads that step cards; 0 for one per card, as far as there are processors, and for one if they are the model.
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Records the waveforms of a window of simulated time, in ns, into DIR/cardN.fst (needs a build with the feature
    /// `wave`).
    #[arg(long, value_name = "START..END")]
    wave: Option<Window>,
}

#[derive(Args)]
struct Link {
    /// Directory of the simulator.
    dir: PathBuf,
    /// Where the link starts: card0, leaf1, spine2, or a pattern such as leaf*.
    from: String,
    /// Where it ends.
    to: String,
    /// The opposite direction too.
    #[arg(long)]
    both: bool,
    /// Rate, Gb/s.
    #[arg(long)]
    rate: Option<f64>,
    /// Propagation delay, ns.
    #[arg(long)]
    delay: Option<u64>,
    /// ECN threshold, packets; 0 marks nothing.
    #[arg(long)]
    ecn_packets: Option<usize>,
    /// Probability that a packet is lost.
    #[arg(long)]
    loss: Option<f64>,
    /// Probability that one bit of a packet is flipped.
    #[arg(long)]
    corrupt: Option<f64>,
    /// Probability that a packet arrives twice.
    #[arg(long)]
    duplicate: Option<f64>,
    /// Probability that a packet is held back.
    #[arg(long)]
    reorder: Option<f64>,
    /// How long it is held back at most, ns.
    #[arg(long)]
    reorder_ns: Option<u64>,
    /// Cuts the link.
    #[arg(long)]
    down: bool,
    /// Repairs it.
    #[arg(long, conflicts_with = "down")]
    up: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let level = ["warn,mprdma_sim=info", "info", "debug"][usize::from(cli.verbose.min(2))];
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .init();
    match run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mprdma-sim: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Up(up) => run_up(up),
        Command::Stats { dir } => {
            let stats = ask(&dir, &Request::Stats)?
                .stats
                .context("the simulator sent no counters")?;
            println!("{}", serde_json::to_string_pretty(&stats)?);
            Ok(())
        }
        Command::Link(link) => run_link(link),
        Command::Down { dir } => Ok(stop(&dir)?),
        Command::Check { scenario } => {
            let scenario = load(&scenario)?;
            println!("{}: {} cards, good", scenario.name, scenario.network.cards);
            Ok(())
        }
    }
}

/// A file, or one of the scenarios that the program brings along.
fn load(name: &str) -> Result<Scenario> {
    let built_in = match name {
        "demo" => include_str!("../scenarios/demo.toml"),
        "direct" => include_str!("../scenarios/direct.toml"),
        "small" => include_str!("../scenarios/small.toml"),
        _ => return Ok(Scenario::load(Path::new(name))?),
    };
    Ok(Scenario::parse(built_in, Path::new(name))?)
}

fn run_up(up: Up) -> Result<()> {
    let scenario = load(&up.scenario)?;
    let wave = up.wave.map(|window| Wave {
        dir: up.dir.clone(),
        window,
    });
    let cores = up.engine.cores(&scenario, wave.as_ref())?;
    let options = Options {
        engine: up.engine,
        seed: up.seed,
        threads: up.threads,
        pcap: up.pcap,
    };
    let server = Server {
        dir: up.dir,
        options,
        json: up.json,
    };
    let stats = server.run(&scenario, cores, |sockets| {
        for (card, socket) in sockets.iter().enumerate() {
            println!("card {card}: vfio-user:{}", socket.display());
        }
        println!("ready");
    })?;
    tracing::info!(
        simulated_ns = stats.simulated_ns,
        cycles_per_second = stats.cycles_per_second.round(),
        "stopped"
    );
    Ok(())
}

fn run_link(link: Link) -> Result<()> {
    let rule = LinkRule {
        from: link.from,
        to: link.to,
        both: link.both,
        rate_gbps: link.rate,
        delay_ns: link.delay,
        ecn_packets: link.ecn_packets,
        loss: link.loss,
        corrupt: link.corrupt,
        duplicate: link.duplicate,
        reorder: link.reorder,
        reorder_ns: link.reorder_ns,
        ..LinkRule::default()
    };
    let down = (link.down || link.up).then_some(link.down);
    let answer = ask(
        &link.dir,
        &Request::Link {
            rule: Box::new(rule),
            down,
        },
    )?;
    println!("{} link(s) changed", answer.links.unwrap_or(0));
    Ok(())
}
