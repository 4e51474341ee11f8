//! Compiles the cores: Verilog from the hardware crate, C++ by Verilator, a static library by clang.
//!
//! Finished libraries are kept in `target/verilated`, by hash of everything that goes in, so that a change elsewhere
//! costs nothing. `MPRDMA_CORE_VERILOG=FILE` takes the core with the default bitmap from a file instead.

#[path = "build/model.rs"]
mod model;
#[allow(dead_code)]
#[path = "src/ports.rs"]
mod ports;
#[path = "build/shim.rs"]
mod shim;

use anyhow::{Context, Result};
use model::Model;
use mprdma_hw::registry::{self, TOP};
use mprdma_hw::with_big_stack;
use mprdma_spec::config::{Config, SIM, SIM_L64};
use std::path::{Path, PathBuf};

fn main() -> Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-changed=src/ports.rs");
    println!("cargo::rerun-if-env-changed=MPRDMA_CORE_VERILOG");
    println!("cargo::rustc-check-cfg=cfg(no_core)");
    let Some(verilog) = default_core()? else {
        println!("cargo::rustc-cfg=no_core");
        return Ok(());
    };
    let cache = cache()?;
    link(TOP, verilog, true, &cache)?;
    if feature("L64") {
        if let Some(verilog) = print(&SIM_L64)? {
            link("mprdma_core_l64", verilog, false, &cache)?;
        }
    }
    println!("cargo::rustc-link-lib=stdc++");
    println!("cargo::rustc-link-lib=atomic");
    if feature("WAVE") {
        println!("cargo::rustc-link-lib=z");
    }
    Ok(())
}

fn feature(name: &str) -> bool {
    std::env::var_os(format!("CARGO_FEATURE_{name}")).is_some()
}

/// Builds and links one core, whose C symbols and C++ classes carry `name`.
fn link(name: &'static str, verilog: String, runtime: bool, cache: &Path) -> Result<()> {
    let wave = feature("WAVE");
    let model = Model {
        name,
        top: TOP,
        verilog,
        shim: shim::text(name, ports::INPUTS, ports::OUTPUTS, wave),
        wave,
        runtime,
    };
    let dir = model.build(cache)?;
    // Somebody may clean the cache.
    println!("cargo::rerun-if-changed={}", model.library(&dir).display());
    println!("cargo::rustc-link-search=native={}", dir.display());
    println!("cargo::rustc-link-lib=static={name}");
    Ok(())
}

/// The default core's Verilog: from the file that the environment names, else from the hardware crate.
fn default_core() -> Result<Option<String>> {
    if let Some(file) = std::env::var_os("MPRDMA_CORE_VERILOG").map(PathBuf::from) {
        println!("cargo::rerun-if-changed={}", file.display());
        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("MPRDMA_CORE_VERILOG={} cannot be read", file.display()))?;
        return Ok(Some(text));
    }
    print(&SIM)
}

/// The Verilog of the core with this configuration, if the hardware crate has a core.
fn print(config: &Config) -> Result<Option<String>> {
    let Some(block) = registry::blocks()
        .into_iter()
        .find(|block| block.name == TOP)
    else {
        return Ok(None);
    };
    let text = with_big_stack(|| block.verilog(config))
        .with_context(|| format!("printing the core of configuration `{}`", config.name))?;
    Ok(Some(text))
}

/// `target/verilated`, found from OUT_DIR = target/PROFILE/build/PACKAGE/out.
fn cache() -> Result<PathBuf> {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").context("cargo sets OUT_DIR")?);
    let target = out
        .ancestors()
        .nth(4)
        .context("OUT_DIR lies in the target directory")?;
    Ok(target.join("verilated"))
}
