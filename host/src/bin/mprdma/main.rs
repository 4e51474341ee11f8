//! `mprdma`: the command line of mprdma cards.

mod args;
mod bench;
mod bind;
mod connection;
mod failure;
mod file;
mod inspect;
mod moderation;
mod open;
mod owner;
mod queue_pair;
mod report;
mod tuning;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use args::{Bench, Cli, Command};
use failure::Failure;
use report::Report;

fn main() -> ExitCode {
    let cli = Cli::parse();
    log_to_stderr(cli.verbose);
    let report = Report::new(cli.json);
    match run(cli.command, &report) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let code = failure::exit_code(&error);
            report.failure(&error, code);
            ExitCode::from(code)
        }
    }
}

fn run(command: Command, report: &Report) -> anyhow::Result<()> {
    match command {
        Command::Devices(args) => inspect::devices(&args, report),
        Command::Info(args) => inspect::info(&args, report),
        Command::Stats(args) => inspect::stats(&args, report),
        Command::Qp(args) => queue_pair::qp(&args, report),
        Command::Moderation(args) => moderation::moderation(&args, report),
        Command::Bind(args) => bind::bind(args.address, report),
        Command::Unbind(args) => bind::unbind(args.address, report),
        Command::Hold(args) => owner::hold(&args, report),
        Command::SendFile(args) => file::send(&args, report),
        Command::RecvFile(args) => file::receive(&args, report),
        Command::Bench(Bench::Write(args)) => bench::bandwidth(bench::WRITE, &args, report),
        Command::Bench(Bench::Read(args)) => bench::bandwidth(bench::READ, &args, report),
        Command::Bench(Bench::Atomic(args)) => bench::atomics(&args, report),
    }
}

fn log_to_stderr(verbose: u8) {
    let level = ["warn", "mprdma=info,mprdma_host=debug", "trace"][usize::from(verbose.min(2))];
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
}

/// A failure of the command line itself: its text and its exit code.
fn usage(text: impl Into<String>) -> anyhow::Error {
    Failure::Usage(text.into()).into()
}
