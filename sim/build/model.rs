//! Verilog to a static library.

use anyhow::{bail, ensure, Context, Result};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is compiled.
pub struct Model {
    /// Name of the library; the C++ classes are called V`name`, so that several cores link into one program.
    pub name: &'static str,
    /// Top module.
    pub top: &'static str,
    /// Its source.
    pub verilog: String,
    /// The C++ around it.
    pub shim: String,
    /// With waveform tracing.
    pub wave: bool,
    /// With Verilator's own library, which one core of a program brings along for all.
    pub runtime: bool,
}

/// Lint is the business of the hardware crate's own checks.
const VERILATOR: &[&str] = &[
    "--cc",
    "--no-timing",
    "-O3",
    "-Wno-lint",
    "-Wno-fatal",
    "--x-assign",
    "fast",
    "--x-initial",
    "fast",
    "--noassert",
    "--output-split",
    "6000",
    "--timescale",
    "1ps/1ps",
];
const CXX: &[&str] = &["-std=c++17", "-march=native", "-fno-exceptions", "-w"];

/// Code that runs every cycle.
const FAST: &str = "-O3";
/// Code that runs once: Verilator puts it into files of its own.
const ONCE: &str = "-O0";

impl Model {
    /// Directory with the library, built now or earlier.
    pub fn build(&self, cache: &Path) -> Result<PathBuf> {
        let verilator = Tool {
            program: "verilator",
            package: "verilator",
        };
        let clang = Tool {
            program: "clang++",
            package: "clang",
        };
        let versions = [verilator.version()?, clang.version()?];
        let done = cache.join(format!("{}-{}", self.name, self.hash(&versions)));
        if self.library(&done).is_file() {
            return Ok(done);
        }
        let work = cache.join(format!("building-{}-{}", self.name, std::process::id()));
        std::fs::create_dir_all(&work).with_context(|| format!("creating {}", work.display()))?;
        let built = self
            .verilate(&verilator, &work)
            .and_then(|()| self.compile(&work));
        if built.is_ok() && !self.library(&done).is_file() {
            let _ = std::fs::remove_dir_all(&done);
            std::fs::rename(&work, &done)
                .with_context(|| format!("renaming {}", work.display()))?;
        }
        let _ = std::fs::remove_dir_all(&work);
        built?;
        Ok(done)
    }

    /// The library in its directory.
    pub fn library(&self, dir: &Path) -> PathBuf {
        dir.join(format!("lib{}.a", self.name))
    }

    /// Everything the result depends on: sources, flags, tools, and the processor, for which it is compiled.
    fn hash(&self, versions: &[String; 2]) -> String {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let processor = info.lines().find(|l| l.starts_with("flags")).unwrap_or("");
        let mut hash = Sha256::new();
        let fixed = [
            self.verilog.as_str(),
            &self.shim,
            processor,
            if self.wave { "wave" } else { "" },
            if self.runtime { "runtime" } else { "" },
        ];
        for part in fixed
            .into_iter()
            .chain(versions.iter().map(String::as_str))
            .chain(VERILATOR.iter().copied())
            .chain(CXX.iter().copied())
            .chain([FAST, ONCE])
        {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.finalize()
            .iter()
            .take(12)
            .map(|b| format!("{b:02x}"))
            .collect()
    }

    fn verilate(&self, verilator: &Tool, work: &Path) -> Result<()> {
        let source = work.join(format!("{}.v", self.top));
        std::fs::write(&source, &self.verilog)
            .with_context(|| format!("writing {}", source.display()))?;
        std::fs::write(work.join("shim.cpp"), &self.shim).context("writing the shim")?;
        let mut command = Command::new(verilator.program);
        command
            .args(VERILATOR)
            .args(["--top-module", self.top, "--prefix"])
            .arg(format!("V{}", self.name))
            .arg("-Mdir")
            .arg(work.join("cpp"));
        if self.wave {
            command.args(["--trace-fst", "--trace-structs"]);
        }
        verilator.run(command.arg("-sv").arg(&source)).map(drop)
    }

    fn compile(&self, work: &Path) -> Result<()> {
        let root = verilator_root()?;
        let mut sources = vec![work.join("shim.cpp")];
        if self.runtime {
            sources.push(root.join("include/verilated.cpp"));
            sources.push(root.join("include/verilated_threads.cpp"));
        }
        if self.runtime && self.wave {
            sources.push(root.join("include/verilated_fst_c.cpp"));
        }
        let generated =
            std::fs::read_dir(work.join("cpp")).context("listing Verilator's output")?;
        let mut files: Vec<PathBuf> = generated.filter_map(|e| Some(e.ok()?.path())).collect();
        files.retain(|f| f.extension().is_some_and(|e| e == "cpp"));
        // The largest first, so that the threads end together.
        files.sort_by_key(|f| std::cmp::Reverse(std::fs::metadata(f).map_or(0, |m| m.len())));
        sources.extend(files);
        let objects = self.objects(work, &root, &sources)?;
        self.compiler(work, &root)
            .objects(objects)
            .try_compile(self.name)
            .context("archiving the core")
    }

    /// Compiles the sources on as many threads as cargo grants.
    fn objects(&self, work: &Path, root: &Path, sources: &[PathBuf]) -> Result<Vec<PathBuf>> {
        let jobs = std::env::var("NUM_JOBS")
            .ok()
            .and_then(|n| n.parse().ok())
            .unwrap_or(1usize);
        let next = std::sync::atomic::AtomicUsize::new(0);
        let take = || sources.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        let worker = || -> Result<Vec<PathBuf>> {
            let mut objects = vec![];
            while let Some(source) = take() {
                let once = source.to_string_lossy().ends_with("__Slow.cpp");
                let compiled = self
                    .compiler(work, root)
                    .flag(if once { ONCE } else { FAST })
                    .file(source)
                    .try_compile_intermediates();
                objects
                    .extend(compiled.with_context(|| format!("compiling {}", source.display()))?);
            }
            Ok(objects)
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(worker)).collect();
            let mut all = vec![];
            for thread in threads {
                all.extend(thread.join().expect("a compiling thread does not panic")?);
            }
            Ok(all)
        })
    }

    fn compiler(&self, work: &Path, root: &Path) -> cc::Build {
        let mut build = cc::Build::new();
        build
            .cpp(true)
            .compiler("clang++")
            .no_default_flags(true)
            .warnings(false)
            .cargo_metadata(false)
            .cargo_warnings(false);
        build
            .out_dir(work)
            .include(work.join("cpp"))
            .include(root.join("include"))
            .include(root.join("include/vltstd"));
        build
            .define("VM_COVERAGE", "0")
            .define("VM_SC", "0")
            .define("VM_TRACE", if self.wave { "1" } else { "0" });
        build
            .define("VM_TRACE_FST", if self.wave { "1" } else { "0" })
            .flag("-fPIC");
        build.flags(CXX);
        build
    }
}

fn verilator_root() -> Result<PathBuf> {
    let tool = Tool {
        program: "verilator",
        package: "verilator",
    };
    let text = tool.run(Command::new("verilator").args(["--getenv", "VERILATOR_ROOT"]))?;
    let root = PathBuf::from(text.trim());
    ensure!(
        root.join("include/verilated.h").is_file(),
        "no verilated.h below {}; is the package `verilator` whole?",
        root.display()
    );
    Ok(root)
}

/// A program and the Debian package that has it.
struct Tool {
    program: &'static str,
    package: &'static str,
}

impl Tool {
    fn version(&self) -> Result<String> {
        self.run(Command::new(self.program).arg("--version"))
    }

    fn run(&self, command: &mut Command) -> Result<String> {
        let output = command.output().with_context(|| {
            format!(
                "`{}` cannot be started; install the Debian package `{}`",
                self.program, self.package
            )
        })?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            let lines: Vec<&str> = text.lines().collect();
            bail!(
                "{} failed:\n{}",
                self.program,
                lines[lines.len().saturating_sub(40)..].join("\n")
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}
