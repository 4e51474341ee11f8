//! Checks a block with rust-hdl, the printer, Verilator and Yosys, and kernel sources for what no tool can see.

use crate::cosim::tools::{build_root, write, VERILATOR, YOSYS};
use crate::cosim::CosimError;
use crate::verilog::generate;
use rust_hdl_core::check_error::CheckError;
use rust_hdl_core::prelude::*;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Verilator warnings that are not errors here, each with its reason. Everything else of `-Wall` is one.
pub const WAIVERS: &[(&str, &str)] = &[
    ("DECLFILENAME", "one file holds all modules of a design"),
    (
        "PINCONNECTEMPTY",
        "an output of a child that the parent does not use stays open",
    ),
    (
        "UNUSEDSIGNAL",
        "a struct travels whole, and a block need not use every field",
    ),
    (
        "VARHIDDEN",
        "a net may have the name of a module elsewhere in the hierarchy",
    ),
];

/// Which check found something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    RustHdl,
    Printer,
    Verilator,
    Yosys,
    /// The Rust text of a kernel.
    Kernel,
}

/// One complaint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub source: Source,
    /// Class of the complaint: a Verilator warning such as `UNOPTFLAT`, or a word such as `latch`.
    pub class: String,
    pub text: String,
}

impl Finding {
    fn new(source: Source, class: &str, text: impl Into<String>) -> Self {
        Self {
            source,
            class: class.to_string(),
            text: text.into(),
        }
    }
}

/// What the checks say about a block.
#[derive(Clone, Debug)]
pub struct Report {
    pub name: String,
    pub findings: Vec<Finding>,
}

impl Report {
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_clean() {
            return write!(f, "{}: clean", self.name);
        }
        write!(f, "{}:", self.name)?;
        for finding in &self.findings {
            write!(
                f,
                "\n  {:?} {}: {}",
                finding.source, finding.class, finding.text
            )?;
        }
        Ok(())
    }
}

/// Runs every check on a connected block (`connect_all`). The error is for tools that cannot run.
pub fn lint(block: &dyn Block, name: &str) -> Result<Report, CosimError> {
    let mut report = Report {
        name: name.to_string(),
        findings: vec![],
    };
    if let Err(error) = check_all(block) {
        let (class, places) = match error {
            CheckError::OpenSignal(open) => ("open signal", open.into_values().collect()),
            CheckError::LogicLoops(list) => ("logic loop", list),
            CheckError::WritesToInputs(list) => ("write to input", list),
        };
        let mut places: Vec<String> = places
            .iter()
            .map(|place| format!("{}.{}", place.path, place.name).replace('$', "."))
            .collect();
        places.sort();
        report
            .findings
            .push(Finding::new(Source::RustHdl, class, places.join(", ")));
    }
    match generate(block, name) {
        Ok(verilog) => report.findings.extend(lint_verilog(&verilog, name)?),
        Err(error) => {
            report
                .findings
                .push(Finding::new(Source::Printer, "refused", error.to_string()))
        }
    }
    Ok(report)
}

/// Verilator and Yosys on printed Verilog with this top module.
pub fn lint_verilog(verilog: &str, top: &str) -> Result<Vec<Finding>, CosimError> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let dir = build_root().join(format!("lint-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&dir).map_err(CosimError::io(format!("creating {}", dir.display())))?;
    let result = write(&dir.join("dut.sv"), verilog).and_then(|()| {
        let mut findings = verilator(&dir, top)?;
        findings.extend(yosys(&dir, top)?);
        Ok(findings)
    });
    let _ = std::fs::remove_dir_all(&dir);
    result
}

fn verilator(dir: &Path, top: &str) -> Result<Vec<Finding>, CosimError> {
    let mut command = VERILATOR.command()?;
    command
        .current_dir(dir)
        .args(["--lint-only", "-Wall", "-Wno-fatal", "--top-module", top])
        .args(WAIVERS.iter().map(|(class, _)| format!("-Wno-{class}")))
        .arg("dut.sv");
    let output = command
        .output()
        .map_err(CosimError::io("starting verilator"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let mut findings: Vec<Finding> = text
        .lines()
        .filter_map(|line| {
            let (class, message) = line.strip_prefix('%')?.split_once(": ")?;
            let class = class.strip_prefix("Warning-").unwrap_or(class);
            // The closing count is no finding of its own.
            (!message.starts_with("Exiting due to"))
                .then(|| Finding::new(Source::Verilator, class, message))
        })
        .collect();
    if findings.is_empty() && !output.status.success() {
        findings.push(Finding::new(Source::Verilator, "Error", text.trim()));
    }
    Ok(findings)
}

fn yosys(dir: &Path, top: &str) -> Result<Vec<Finding>, CosimError> {
    let script = format!(
        "read_verilog -sv dut.sv; hierarchy -check -top {top}; proc; opt_clean; check; \
         select -list t:$dlatch t:$adlatch t:$dlatchsr"
    );
    let mut command = YOSYS.command()?;
    command.current_dir(dir).args(["-p", &script]);
    let output = command.output().map_err(CosimError::io("starting yosys"))?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    let mut findings = vec![];
    for line in text.lines() {
        if line.starts_with("Latch inferred") {
            findings.push(Finding::new(Source::Yosys, "latch", line));
        } else if let Some(message) = line.strip_prefix("Warning: ") {
            // Small memories with several readers become registers; that is the intent.
            if !message.starts_with("Replacing memory") {
                findings.push(Finding::new(Source::Yosys, "warning", message));
            }
        } else if line.contains("ERROR: ") {
            findings.push(Finding::new(Source::Yosys, "error", line));
        }
    }
    if findings.is_empty() && !output.status.success() {
        findings.push(Finding::new(Source::Yosys, "error", text.trim()));
    }
    findings.dedup();
    Ok(findings)
}

/// [`lint_source`] on every `.rs` file below a directory, in order of their paths.
pub fn lint_sources(dir: &Path) -> Result<Vec<Finding>, CosimError> {
    let reading = || CosimError::io(format!("reading {}", dir.display()));
    let mut paths = vec![];
    for entry in std::fs::read_dir(dir).map_err(reading())? {
        paths.push(entry.map_err(reading())?.path());
    }
    paths.sort();
    let mut findings = vec![];
    for path in paths {
        if path.is_dir() {
            findings.extend(lint_sources(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path)
                .map_err(CosimError::io(format!("reading {}", path.display())))?;
            findings.extend(lint_source(&path.display().to_string(), &text));
        }
    }
    Ok(findings)
}

/// Constructs in the text of kernels that leave no trace in the AST: match guards.
///
/// `text` is a Rust source file; only functions under `#[hdl_gen]` are looked at. The text of each finding starts with
/// `file` and the line.
pub fn lint_source(file: &str, text: &str) -> Vec<Finding> {
    let mut findings = vec![];
    let code = without_comments_and_strings(text);
    let mut rest = 0;
    while let Some(found) = code[rest..].find("#[hdl_gen]") {
        let start = rest + found;
        let Some(open) = code[start..].find('{') else {
            break;
        };
        let body = start + open;
        let mut depth = 0;
        let end = code[body..]
            .char_indices()
            .find(|&(_, c)| {
                depth += i32::from(c == '{') - i32::from(c == '}');
                depth == 0
            })
            .map_or(code.len(), |(i, _)| body + i);
        // A pattern runs from the last `{`, `}`, `,` or `;` to its `=>`.
        let kernel = &code[body..end];
        for (arrow, _) in kernel.match_indices("=>") {
            let pattern = kernel[..arrow]
                .rfind(['{', '}', ',', ';'])
                .map_or(0, |i| i + 1);
            let pattern = &kernel[pattern..arrow];
            if pattern.split_whitespace().any(|word| word == "if") {
                let line = code[..body + arrow].matches('\n').count() + 1;
                findings.push(Finding::new(
                    Source::Kernel,
                    "match guard",
                    format!(
                        "{file}:{line}: the guard of `{}` would be dropped",
                        pattern.trim()
                    ),
                ));
            }
        }
        rest = end;
    }
    findings
}

/// The text with comments and string contents blanked; lines keep their numbers.
fn without_comments_and_strings(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '/' if chars.peek() == Some(&'/') => {
                while chars.peek().is_some_and(|&c| c != '\n') {
                    chars.next();
                }
            }
            '/' if chars.peek() == Some(&'*') => {
                let mut last = ' ';
                for c in chars.by_ref() {
                    if c == '\n' {
                        out.push('\n');
                    }
                    if last == '*' && c == '/' {
                        break;
                    }
                    last = c;
                }
            }
            '"' => {
                out.push('"');
                while let Some(c) = chars.next() {
                    match c {
                        '\\' => out.extend(chars.next().filter(|&c| c == '\n')),
                        '"' => break,
                        '\n' => out.push('\n'),
                        _ => {}
                    }
                }
                out.push('"');
            }
            _ => out.push(c),
        }
    }
    out
}
