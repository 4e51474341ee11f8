//! A block compiled with Verilator and loaded into this process.

use super::frame::{Frame, Layout};
use super::library::Library;
use super::mutation::Mutation;
use super::tools::{cached, digest, write, CosimError, CLANG, VERILATOR};
use crate::verilog::{generate, ports, Dir, Port};
use rust_hdl_core::prelude::Block;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// How a model is compiled.
#[derive(Clone, Debug)]
pub struct BuildOptions {
    /// `-O` level for the logic; initialisation code is not optimised.
    pub optimise: u8,
    /// Use every instruction of this machine (`-march=native`); faster, and the build runs only here.
    pub native: bool,
}

impl Default for BuildOptions {
    fn default() -> Self {
        Self {
            optimise: 2,
            native: false,
        }
    }
}

/// The Verilog of a block, compiled and running.
///
/// A clock cycle applies the inputs while the clocks are low, samples the outputs, then raises the clocks. So outputs
/// are what a neighbour sees at the rising edge that ends the cycle.
pub struct VerilatedBlock {
    library: Library,
    inputs: Frame,
    outputs: Frame,
}

/// What one record does.
#[derive(Clone, Copy)]
pub(super) enum Mode {
    /// Clock inputs are levels; evaluate once.
    Levels = 0,
    /// A clock input of 1 gets a rising edge at the end of the cycle.
    Cycles = 1,
}

impl VerilatedBlock {
    /// Prints, compiles and starts `block`. A build with the same text is reused.
    pub fn new(block: &dyn Block, name: &str) -> Result<Self, CosimError> {
        Self::with_options(block, name, &BuildOptions::default())
    }

    /// As [`new`](Self::new), with options. A fault that [`super::mutation`] asks for is planted here.
    pub fn with_options(
        block: &dyn Block,
        name: &str,
        options: &BuildOptions,
    ) -> Result<Self, CosimError> {
        let verilog = generate(block, name)?;
        let Some(mutation) = Mutation::planted(name)? else {
            return Self::from_verilog(&verilog, name, &ports(block), options);
        };
        // Used once: compiling takes longer than running.
        let options = BuildOptions {
            optimise: 0,
            ..options.clone()
        };
        let verilog = mutation.apply(block, &verilog)?;
        let faulty = Self::from_verilog(&verilog, name, &ports(block), &options)?;
        mutation.report()?;
        Ok(faulty)
    }

    /// Compiles and starts Verilog text whose module `name` has these ports.
    pub fn from_verilog(
        verilog: &str,
        name: &str,
        ports: &[Port],
        options: &BuildOptions,
    ) -> Result<Self, CosimError> {
        let input_layout = Layout::new(ports, Dir::In);
        let output_layout = Layout::new(ports, Dir::Out);
        let file = build(verilog, name, &input_layout, &output_layout, options)?;
        let library = Library::load(&file)?;
        let mut inputs = Frame::new(&input_layout);
        for slot in input_layout.slots.iter().filter(|slot| slot.clock) {
            inputs.set(&slot.name, 1);
        }
        Ok(Self {
            library,
            inputs,
            outputs: Frame::new(&output_layout),
        })
    }

    /// The inputs of the next cycle, kept from cycle to cycle. Clocks are 1: each ticks every cycle.
    pub fn inputs(&mut self) -> &mut Frame {
        &mut self.inputs
    }

    /// The outputs of the last cycle.
    pub fn outputs(&self) -> &Frame {
        &self.outputs
    }

    /// Runs one clock cycle with the present inputs.
    pub fn cycle(&mut self) -> Result<&Frame, CosimError> {
        self.library
            .run(Mode::Cycles, &self.inputs, &mut self.outputs);
        Ok(&self.outputs)
    }

    /// Runs one clock cycle per frame and returns the outputs of each.
    pub fn cycles(&mut self, inputs: &[Frame]) -> Result<Vec<Frame>, CosimError> {
        Ok(self.run_all(Mode::Cycles, inputs))
    }

    /// Applies each frame as it is, clock levels included, and returns the outputs after each.
    pub fn levels(&mut self, inputs: &[Frame]) -> Result<Vec<Frame>, CosimError> {
        Ok(self.run_all(Mode::Levels, inputs))
    }

    fn run_all(&mut self, mode: Mode, inputs: &[Frame]) -> Vec<Frame> {
        inputs
            .iter()
            .map(|frame| {
                assert_eq!(
                    frame.bytes.len(),
                    self.inputs.bytes.len(),
                    "an input frame of this block"
                );
                self.library.run(mode, frame, &mut self.outputs);
                self.outputs.clone()
            })
            .collect()
    }
}

/// Builds the library, or finds it in the cache.
fn build(
    verilog: &str,
    name: &str,
    inputs: &Layout,
    outputs: &Layout,
    options: &BuildOptions,
) -> Result<PathBuf, CosimError> {
    let version = VERILATOR.run(VERILATOR.command()?.arg("--version"))?;
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let root = VERILATOR.run(VERILATOR.command()?.args(["--getenv", "VERILATOR_ROOT"]))?;
    let root = PathBuf::from(String::from_utf8_lossy(&root.stdout).trim());
    let main = main_program(inputs, outputs);
    let flags = flags(options, &root);
    let key = digest(&[verilog, name, &main, &flags.join(" "), &version]);
    let directory = cached(&key, |dir| {
        write(&dir.join("dut.sv"), verilog)?;
        write(&dir.join("main.cpp"), &main)?;
        VERILATOR.run(
            VERILATOR
                .command()?
                .current_dir(dir)
                .args(["--cc", "-O3", "--threads", "1", "--x-assign", "fast"])
                .args(["--x-initial", "fast", "--output-split", "20000"])
                .args(["-Wno-fatal", "-Wno-lint", "-Wno-style"])
                .args(["--prefix", "Vdut", "--Mdir", "model"])
                .args(["--top-module", name, "dut.sv"]),
        )?;
        let runtime = runtime(&root, &flags, &version)?;
        compile_model(dir, &flags, &runtime, options)
    })?;
    Ok(directory.join("model.so"))
}

fn flags(options: &BuildOptions, root: &Path) -> Vec<String> {
    let include = root.join("include");
    let mut flags: Vec<String> = [
        "-std=c++17",
        "-w",
        "-fPIC",
        "-fvisibility=hidden",
        "-DVM_TRACE=0",
        "-DVM_SC=0",
        "-DVM_COVERAGE=0",
        "-Imodel",
    ]
    .map(String::from)
    .to_vec();
    flags.push(format!("-I{}", include.display()));
    flags.push(format!("-I{}", include.join("vltstd").display()));
    if options.native {
        flags.push("-march=native".into());
    }
    flags
}

/// Verilator's own library, compiled once for all models.
fn runtime(root: &Path, flags: &[String], version: &str) -> Result<Vec<PathBuf>, CosimError> {
    const SOURCES: [&str; 2] = ["verilated", "verilated_threads"];
    let key = digest(&["runtime", &flags.join(" "), version]);
    let directory = cached(&format!("runtime-{key}"), |dir| {
        for source in SOURCES {
            let file = root.join("include").join(format!("{source}.cpp"));
            CLANG.run(
                CLANG
                    .command()?
                    .current_dir(dir)
                    .args(flags)
                    .args(["-O2", "-c", "-o", &format!("{source}.o")])
                    .arg(file),
            )?;
        }
        Ok(())
    })?;
    Ok(SOURCES
        .iter()
        .map(|source| directory.join(format!("{source}.o")))
        .collect())
}

/// Compiles the generated sources in two runs at a time and links them.
fn compile_model(
    dir: &Path,
    flags: &[String],
    runtime: &[PathBuf],
    options: &BuildOptions,
) -> Result<(), CosimError> {
    let model = dir.join("model");
    let entries = std::fs::read_dir(&model)
        .map_err(CosimError::io(format!("reading {}", model.display())))?;
    let mut sources: Vec<String> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.ends_with(".cpp"))
        .collect();
    sources.sort();
    let slow = |name: &String| name.contains("__Slow") || name.contains("__Syms");
    // Small models compile fastest as two files, large ones as they are split.
    let mut units: Vec<(String, String, u8)> = vec![];
    let include = |names: Vec<&String>| -> String {
        names
            .iter()
            .map(|name| format!("#include \"model/{name}\"\n"))
            .collect()
    };
    let size =
        |name: &&String| std::fs::metadata(model.join(name)).map_or(0, |metadata| metadata.len());
    let (slow_files, fast_files): (Vec<&String>, Vec<&String>) =
        sources.iter().partition(|name| slow(name));
    if options.optimise == 0 {
        // Reading Verilator's headers is most of the work.
        let text = include(sources.iter().collect()) + "#include \"main.cpp\"\n";
        units.push(("all".into(), text, 0));
    } else if fast_files.iter().map(size).sum::<u64>() < 200_000 {
        units.push(("fast".into(), include(fast_files), options.optimise));
    } else {
        for (index, file) in fast_files.into_iter().enumerate() {
            units.push((
                format!("fast{index}"),
                include(vec![file]),
                options.optimise,
            ));
        }
    }
    if options.optimise != 0 {
        units.push(("slow".into(), include(slow_files), 0));
        units.push(("main".into(), "#include \"main.cpp\"\n".into(), 2));
    }
    for (name, text, _) in &units {
        write(&dir.join(format!("unit_{name}.cpp")), text)?;
    }
    let compile = |name: &str, level: u8| -> Result<(), CosimError> {
        CLANG.run(
            CLANG
                .command()?
                .current_dir(dir)
                .args(flags)
                .arg(format!("-O{level}"))
                .args(["-I.", "-c", "-o", &format!("unit_{name}.o")])
                .arg(format!("unit_{name}.cpp")),
        )?;
        Ok(())
    };
    for pair in units.chunks(2) {
        std::thread::scope(|scope| {
            let runs: Vec<_> = pair
                .iter()
                .map(|(name, _, level)| scope.spawn(|| compile(name, *level)))
                .collect();
            runs.into_iter().try_for_each(|run| match run.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })?;
    }
    CLANG.run(
        CLANG
            .command()?
            .current_dir(dir)
            .args(["-shared", "-Wl,-Bsymbolic", "-o", "model.so", "-pthread"])
            .args(units.iter().map(|(name, _, _)| format!("unit_{name}.o")))
            .args(runtime)
            .arg("-latomic"),
    )?;
    for (name, _, _) in &units {
        let _ = std::fs::remove_file(dir.join(format!("unit_{name}.o")));
    }
    Ok(())
}

/// C++ words that are legal names in SystemVerilog; Verilator renames such ports.
const CPP_KEYWORDS: &[&str] = &[
    "alignas",
    "alignof",
    "and_eq",
    "asm",
    "auto",
    "bitand",
    "bitor",
    "bool",
    "catch",
    "char",
    "compl",
    "constexpr",
    "decltype",
    "delete",
    "double",
    "explicit",
    "false",
    "float",
    "friend",
    "goto",
    "inline",
    "long",
    "mutable",
    "namespace",
    "noexcept",
    "not_eq",
    "nullptr",
    "operator",
    "or_eq",
    "private",
    "public",
    "register",
    "short",
    "sizeof",
    "switch",
    "template",
    "throw",
    "true",
    "try",
    "typename",
    "using",
    "volatile",
    "wchar_t",
    "xor_eq",
];

/// The C++ side of the pipe.
fn main_program(inputs: &Layout, outputs: &Layout) -> String {
    // Verilator's C++ name for a port.
    let member = |name: &str| {
        let prefix = if CPP_KEYWORDS.contains(&name) {
            "__SYM__"
        } else {
            ""
        };
        format!("dut->{prefix}{}", name.replace("__", "___05F"))
    };
    let mut apply = String::new();
    let mut clocks_low = String::new();
    let mut clocks_high = String::new();
    let mut has_clock = false;
    for slot in &inputs.slots {
        let (name, at) = (member(&slot.name), slot.at);
        if slot.clock {
            has_clock = true;
            let _ = writeln!(clocks_low, "        {name} = 0;");
            let _ = writeln!(clocks_high, "        {name} = in[{at}] & 1;");
        } else {
            let _ = writeln!(apply, "    load({name}, in + {at}, {});", slot.bytes());
        }
    }
    let mut sample = String::new();
    for slot in &outputs.slots {
        let _ = writeln!(
            sample,
            "    save(out + {}, {}, {});",
            slot.at,
            member(&slot.name),
            slot.bytes()
        );
    }
    let edge = if has_clock {
        format!("{clocks_high}        dut->eval();\n")
    } else {
        String::new()
    };
    format!(
        r#"#include "Vdut.h"
#include <cstdint>
#include <cstring>

template <class T> static void load(T& port, const uint8_t* bytes, size_t count) {{
    T value = 0;
    memcpy(&value, bytes, count);
    port = value;
}}
template <std::size_t N> static void load(VlWide<N>& port, const uint8_t* bytes, size_t count) {{
    uint32_t words[N] = {{}};
    memcpy(words, bytes, count);
    for (std::size_t i = 0; i < N; i++) port[i] = words[i];
}}
template <class T> static void save(uint8_t* bytes, const T& port, size_t count) {{
    memcpy(bytes, &port, count);
}}
template <std::size_t N> static void save(uint8_t* bytes, const VlWide<N>& port, size_t count) {{
    uint32_t words[N];
    for (std::size_t i = 0; i < N; i++) words[i] = port[i];
    memcpy(bytes, words, count);
}}

struct Model {{
    VerilatedContext context;
    Vdut dut{{&context}};
}};

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT Model* model_new() {{
    Model* model = new Model;
    model->dut.eval();  // all clocks low
    return model;
}}

EXPORT void model_delete(Model* model) {{
    model->dut.final();
    delete model;
}}

// Mode 0: clock inputs are levels. Mode 1: one cycle, clocks whose input is 1 rise at its end.
EXPORT void model_run(Model* model, uint32_t mode, const uint8_t* in, uint8_t* out) {{
    Vdut* dut = &model->dut;
    (void)in;
    (void)out;
    if (mode == 1) {{
{clocks_low}    }} else {{
{clocks_high}    }}
{apply}    dut->eval();
{sample}    if (mode == 1) {{
{edge}    }}
}}
"#
    )
}
