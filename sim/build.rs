//! Compiles the core: Verilog from the hardware crate, C++ by Verilator, a static library by clang.
//!
//! Finished libraries are kept in `target/verilated`, by hash of everything that goes in, so that a change elsewhere
//! costs nothing. `MPRDMA_CORE_VERILOG=FILE` takes the core from a file instead.

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
use mprdma_spec::config::SIM;
use std::path::PathBuf;

fn main() -> Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-changed=src/ports.rs");
    println!("cargo::rerun-if-env-changed=MPRDMA_CORE_VERILOG");
    println!("cargo::rustc-check-cfg=cfg(no_core)");
    let Some(verilog) = core()? else {
        println!("cargo::rustc-cfg=no_core");
        return Ok(());
    };
    let wave = std::env::var_os("CARGO_FEATURE_WAVE").is_some();
    let model = Model {
        top: TOP,
        verilog,
        shim: shim::text(TOP, ports::INPUTS, ports::OUTPUTS, wave),
        wave,
    };
    let dir = model.build(&cache()?)?;
    // Somebody may clean the cache.
    println!("cargo::rerun-if-changed={}", model.library(&dir).display());
    println!("cargo::rustc-link-search=native={}", dir.display());
    println!("cargo::rustc-link-lib=static={TOP}");
    println!("cargo::rustc-link-lib=stdc++");
    println!("cargo::rustc-link-lib=atomic");
    if wave {
        println!("cargo::rustc-link-lib=z");
    }
    Ok(())
}

/// The core's Verilog: from the file that the environment names, else from the hardware crate.
fn core() -> Result<Option<String>> {
    if let Some(file) = std::env::var_os("MPRDMA_CORE_VERILOG").map(PathBuf::from) {
        println!("cargo::rerun-if-changed={}", file.display());
        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("MPRDMA_CORE_VERILOG={} cannot be read", file.display()))?;
        return Ok(Some(text));
    }
    let Some(block) = registry::blocks()
        .into_iter()
        .find(|block| block.name == TOP)
    else {
        return Ok(None);
    };
    let text = with_big_stack(|| block.verilog(&SIM)).context("printing the core")?;
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
