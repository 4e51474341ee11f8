//! Checks every block of the registry and the kernel sources; ends with 1 if anything is found.

use anyhow::{Context, Result};
use clap::Parser;
use mprdma_hw::lint::{lint, lint_sources};
use mprdma_hw::{registry, with_big_stack};
use std::path::PathBuf;
use std::process::ExitCode;

/// Checks blocks with rust-hdl, Verilator and Yosys, and kernel sources for match guards.
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    /// Blocks to check; all if none is named.
    blocks: Vec<String>,
    /// Name of the configuration.
    #[arg(long, default_value = "sim")]
    config: String,
    /// Directory with the kernel sources.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/src"))]
    sources: PathBuf,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let config = registry::config(&arguments.config)?;
    let blocks = if arguments.blocks.is_empty() {
        registry::blocks()
    } else {
        let find = |name: &String| registry::find(name);
        arguments
            .blocks
            .iter()
            .map(find)
            .collect::<Result<_, _>>()?
    };
    let mut found = 0;
    for finding in lint_sources(&arguments.sources)? {
        println!("{}: {}", finding.class, finding.text);
        found += 1;
    }
    for block in blocks {
        let report = with_big_stack(|| -> Result<_> {
            let built = block.build(&config)?;
            Ok(lint(built.as_ref(), block.name)?)
        })
        .with_context(|| block.name)?;
        println!("{report}");
        found += report.findings.len();
    }
    println!("{found} findings");
    Ok(ExitCode::from(u8::from(found != 0)))
}
