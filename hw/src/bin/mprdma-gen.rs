//! Writes the Verilog of the core, with a manifest that describes it.

use anyhow::{bail, Context, Result};
use clap::Parser;
use mprdma_hw::nic::control::registers::build_id;
use mprdma_hw::registry::{self, BlockInfo};
use mprdma_hw::state::{budget, Class};
use mprdma_hw::verilog::{fields, ports, Field, Port};
use mprdma_hw::with_big_stack;
use mprdma_spec::config::{Config, CLOCK_MHZ};
use mprdma_spec::params;
use rust_hdl_core::prelude::Block;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// Prints the hardware of mprdma as SystemVerilog.
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    /// Configuration: a name (`--list` shows them) or a TOML file.
    #[arg(long, default_value = "sim")]
    config: String,
    /// Directory for `<block>.sv` and `<block>.json`; it is made if needed.
    #[arg(long, required_unless_present_any = ["block", "list", "state"])]
    out: Option<PathBuf>,
    /// The block to print instead of the whole core; without --out it goes to standard output.
    #[arg(long)]
    block: Option<String>,
    /// Lists blocks and configurations.
    #[arg(long)]
    list: bool,
    /// Prints the state kept per queue pair, field by field; `state.json` goes to --out, or to `target`.
    #[arg(long, conflicts_with = "block")]
    state: bool,
}

/// A configuration file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigFile {
    name: String,
    qp_log2: usize,
    cq_log2: usize,
    eq_log2: usize,
    mr_log2: usize,
    bitmap_slots: usize,
}

#[derive(Serialize)]
struct Manifest {
    top: &'static str,
    version: &'static str,
    /// SHA-256 over the configuration and the Verilog.
    build_id: String,
    /// What the card's BUILD_ID registers report: a hash of the configuration and the generator version.
    csr_build_id: String,
    config: ConfigSummary,
    clock_mhz: u32,
    parameters: Vec<Parameter>,
    ports: Vec<Port>,
    records: Vec<Record>,
}

#[derive(Serialize)]
struct ConfigSummary {
    name: &'static str,
    qp_log2: usize,
    cq_log2: usize,
    eq_log2: usize,
    mr_log2: usize,
    bitmap_slots: usize,
}

/// A protocol parameter of a queue pair.
#[derive(Serialize)]
struct Parameter {
    name: &'static str,
    default: u64,
    min: u64,
    max: u64,
    doc: &'static str,
}

/// A record or context: its bits, field by field.
#[derive(Serialize)]
struct Record {
    name: String,
    bits: usize,
    fields: Vec<Field>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if arguments.list {
        return list();
    }
    let config = load_config(&arguments.config)?;
    if arguments.state {
        let out = arguments.out.unwrap_or_else(|| PathBuf::from("target"));
        return state(&config, &out);
    }
    let name = arguments.block.as_deref().unwrap_or(registry::TOP);
    let block = registry::find(name)?;
    let (verilog, manifest) = with_big_stack(|| print(&block, &config))?;
    match arguments.out {
        None => print!("{verilog}"),
        Some(out) => {
            std::fs::create_dir_all(&out).with_context(|| format!("creating {}", out.display()))?;
            write(&out.join(format!("{name}.sv")), &verilog)?;
            let json = serde_json::to_string_pretty(&manifest)?;
            write(&out.join(format!("{name}.json")), &format!("{json}\n"))?;
        }
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
    println!("{}", path.display());
    Ok(())
}

fn list() -> Result<()> {
    println!("blocks:");
    for block in registry::blocks() {
        println!("  {:<20} {}", block.name, block.about);
    }
    println!("configurations:");
    for config in registry::CONFIGS {
        println!(
            "  {:<20} {} queue pairs, {} bitmap slots",
            config.name,
            1_u64 << config.qp_log2,
            config.bitmap_slots
        );
    }
    Ok(())
}

fn state(config: &Config, out: &Path) -> Result<()> {
    let budget = with_big_stack(|| budget(config))?;
    for class in Class::ALL {
        println!("{}:", class.title());
        let mut bits = 0;
        for field in budget.fields.iter().filter(|field| field.class == class) {
            println!(
                "  {:<34} {:<16} {:>6}",
                field.block, field.field, field.bits
            );
            bits += field.bits;
        }
        println!(
            "  {:<51} {bits:>6} bits, {} bytes\n",
            "sum",
            bits.div_ceil(8)
        );
    }
    std::fs::create_dir_all(out).with_context(|| format!("creating {}", out.display()))?;
    let json = serde_json::to_string_pretty(&budget)?;
    write(&out.join("state.json"), &format!("{json}\n"))
}

fn load_config(argument: &str) -> Result<Config> {
    if !argument.ends_with(".toml") {
        return Ok(registry::config(argument)?);
    }
    let text = std::fs::read_to_string(argument).with_context(|| format!("reading {argument}"))?;
    let file: ConfigFile = toml::from_str(&text).with_context(|| format!("in {argument}"))?;
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if file.name.is_empty() || !file.name.chars().all(plain) {
        bail!("in {argument}: `name` must be letters, digits, `-` and `_`");
    }
    Ok(Config {
        // The program runs once; the name lives as long as it.
        name: String::leak(file.name),
        qp_log2: file.qp_log2,
        cq_log2: file.cq_log2,
        eq_log2: file.eq_log2,
        mr_log2: file.mr_log2,
        bitmap_slots: file.bitmap_slots,
    })
}

fn print(block: &BlockInfo, config: &Config) -> Result<(String, Manifest)> {
    let built = block.build(config)?;
    let built: &dyn Block = built.as_ref();
    let verilog = mprdma_hw::verilog::generate(built, block.name)?;
    let csr_build_id = format!("{:016x}", build_id(config));
    let config = ConfigSummary {
        name: config.name,
        qp_log2: config.qp_log2,
        cq_log2: config.cq_log2,
        eq_log2: config.eq_log2,
        mr_log2: config.mr_log2,
        bitmap_slots: config.bitmap_slots,
    };
    let mut hash = Sha256::new();
    hash.update(serde_json::to_string(&config)?);
    hash.update(&verilog);
    let build_id = hash
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let manifest = Manifest {
        top: block.name,
        version: env!("CARGO_PKG_VERSION"),
        build_id,
        csr_build_id,
        config,
        clock_mhz: CLOCK_MHZ,
        parameters: params::ALL
            .iter()
            .map(|parameter| Parameter {
                name: parameter.name,
                default: parameter.default,
                min: parameter.min,
                max: parameter.max,
                doc: parameter.doc,
            })
            .collect(),
        ports: ports(built),
        records: registry::records()
            .iter()
            .map(|ty| {
                let fields = fields(ty);
                Record {
                    name: ty.name.clone(),
                    bits: fields.iter().map(|field| field.bits).sum(),
                    fields,
                }
            })
            .collect(),
    };
    Ok((verilog, manifest))
}
