//! Brings the generated part of `scripts/wireshark/mprdma.lua` up to date.

use anyhow::{Context, Result};
use mprdma_tests::dissector::{current, path};

fn main() -> Result<()> {
    let path = path();
    let name = || path.display().to_string();
    let text = std::fs::read_to_string(&path).with_context(name)?;
    std::fs::write(&path, current(&text)?).with_context(name)
}
