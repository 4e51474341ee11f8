//! Finding and running the tools, and the directory where builds are kept.

use crate::verilog::PrintError;
use rust_hdl_core::check_error::CheckError;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use thiserror::Error;

/// Why a block could not be built, run or compared.
#[derive(Debug, Error)]
pub enum CosimError {
    #[error("`{tool}` is not in PATH; it is in the Debian package `{package}`")]
    ToolMissing {
        tool: &'static str,
        package: &'static str,
    },
    #[error("{tool} failed:\n{log}")]
    ToolFailed { tool: String, log: String },
    #[error("{what}: {source}")]
    Io {
        what: String,
        source: std::io::Error,
    },
    #[error(transparent)]
    Print(#[from] PrintError),
    #[error("rust-hdl refuses the block: {0:?}")]
    Check(CheckError),
    #[error("the rust-hdl simulator does not settle at step {step} of `{name}`")]
    Unsettled { name: String, step: usize },
    #[error("loading the model {file}: {reason}")]
    Load { file: String, reason: String },
    #[error("the mutation of `{name}` cannot be planted: {reason}")]
    Mutation { name: String, reason: String },
    #[error("`{name}` differs: {text}")]
    Differs { name: String, text: String },
}

impl CosimError {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}

/// A program of the tool chain.
#[derive(Clone, Copy)]
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    package: &'static str,
}

pub(crate) const VERILATOR: Tool = Tool {
    name: "verilator",
    package: "verilator",
};
pub(crate) const CLANG: Tool = Tool {
    name: "clang++",
    package: "clang",
};
pub(crate) const YOSYS: Tool = Tool {
    name: "yosys",
    package: "yosys",
};
pub(crate) const IVERILOG: Tool = Tool {
    name: "iverilog",
    package: "iverilog",
};
pub(crate) const TIMEOUT: Tool = Tool {
    name: "timeout",
    package: "coreutils",
};
pub(crate) const VVP: Tool = Tool {
    name: "vvp",
    package: "iverilog",
};

impl Tool {
    /// A command for the tool, if it is in `PATH`.
    pub(crate) fn command(self) -> Result<Command, CosimError> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path).any(|dir| dir.join(self.name).is_file());
        if found {
            Ok(Command::new(self.name))
        } else {
            Err(CosimError::ToolMissing {
                tool: self.name,
                package: self.package,
            })
        }
    }

    /// Runs the command and returns its output if it succeeds.
    pub(crate) fn run(self, command: &mut Command) -> Result<Output, CosimError> {
        let output = command
            .output()
            .map_err(CosimError::io(format!("starting {}", self.name)))?;
        if output.status.success() {
            return Ok(output);
        }
        let mut log = String::from_utf8_lossy(&output.stderr).into_owned();
        log.push_str(&String::from_utf8_lossy(&output.stdout));
        let lines: Vec<&str> = log.lines().collect();
        let tail = &lines[lines.len().saturating_sub(60)..];
        Err(CosimError::ToolFailed {
            tool: self.name.to_string(),
            log: tail.join("\n"),
        })
    }
}

/// Hexadecimal digest of the parts, enough of it for a directory name.
pub(crate) fn digest(parts: &[&str]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher
        .finalize()
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Where builds are kept: `MPRDMA_BUILD_DIR`, else `verilated` in the cargo target directory of this program, else in
/// the system's temporary directory.
pub(crate) fn build_root() -> PathBuf {
    if let Some(dir) = std::env::var_os("MPRDMA_BUILD_DIR") {
        return PathBuf::from(dir);
    }
    let target = std::env::current_exe().ok().and_then(|exe| {
        exe.ancestors()
            .find(|dir| dir.join("CACHEDIR.TAG").is_file())
            .map(Path::to_path_buf)
    });
    match target {
        Some(target) => target.join("verilated"),
        None => std::env::temp_dir().join("mprdma-verilated"),
    }
}

/// Returns the directory `name` below the build root, filled by `build` if it is not there yet.
///
/// `build` works in a private directory that is renamed at the end, so parallel tests see all or nothing.
pub(crate) fn cached(
    name: &str,
    build: impl FnOnce(&Path) -> Result<(), CosimError>,
) -> Result<PathBuf, CosimError> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let root = build_root();
    let done = root.join(name);
    if done.is_dir() {
        return Ok(done);
    }
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let work = root.join(format!("work-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&work)
        .map_err(CosimError::io(format!("creating {}", work.display())))?;
    let result = build(&work);
    if result.is_ok() && std::fs::rename(&work, &done).is_ok() {
        return Ok(done);
    }
    let _ = std::fs::remove_dir_all(&work);
    result?;
    if done.is_dir() {
        return Ok(done); // another test was faster
    }
    Err(CosimError::Io {
        what: format!("renaming a build to {}", done.display()),
        source: std::io::Error::other("rename failed"),
    })
}

pub(crate) fn write(path: &Path, text: &str) -> Result<(), CosimError> {
    std::fs::write(path, text).map_err(CosimError::io(format!("writing {}", path.display())))
}
