//! Runs the tools of others.

use anyhow::{bail, ensure, Context, Result};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The project's directory.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Runs a tool and gives its standard output; `package` is the Debian package that has it.
pub fn tool(command: &mut Command, package: &str) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = match command.output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!(
                "{name} is missing: install the Debian package '{package}' (scripts/setup.sh does)"
            )
        }
        other => other.with_context(|| format!("{name} does not start"))?,
    };
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{name} failed, {}: {said}",
        output.status
    );
    String::from_utf8(output.stdout).with_context(|| format!("{name} does not print UTF-8"))
}

#[test]
fn a_missing_tool_is_named_with_its_package() {
    let error = tool(&mut Command::new("tshark-that-is-not-there"), "tshark").unwrap_err();
    assert_eq!(
        error.to_string(),
        "tshark-that-is-not-there is missing: install the Debian package 'tshark' (scripts/setup.sh does)"
    );
}
