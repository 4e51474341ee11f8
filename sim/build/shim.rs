//! The C++ between the Rust structs of the ports and the Verilated class.

use std::fmt::Write;

/// C++ with one step per clock cycle; the structs repeat `src/ports.rs`.
///
/// The only symbol is `NAME_api`, which returns the table of functions that `src/verilated/core.rs` calls: two cores in
/// one program share no name.
pub fn text(name: &str, inputs: &[(&str, u32)], outputs: &[(&str, u32)], wave: bool) -> String {
    let mut s = format!(
        "#include \"V{name}.h\"\n#include \"verilated.h\"\n#include <cstdint>\n#include <cstring>\n"
    );
    if wave {
        s += "#include \"verilated_fst_c.h\"\n";
    }
    s += "namespace {\n";
    structure(&mut s, "NicIn", inputs);
    structure(&mut s, "NicOut", outputs);
    let moves = |ports: &[(&str, u32)], to_core: bool| -> String {
        ports
            .iter()
            .map(|(name, bits)| transfer(name, *bits, to_core))
            .collect()
    };
    let (inward, outward) = (moves(inputs, true), moves(outputs, false));
    let (field, half, extra) = if wave {
        (WAVE_FIELD, WAVE_HALF, WAVE_API)
    } else {
        ("", "", NO_WAVE_API)
    };
    let _ = write!(
        s,
        "
struct Core {{
    VerilatedContext context;
    V{name} top;
{field}
    // No thread pool: cards run in parallel, not parts of one. The first evaluation must see the clock low.
    Core() : top((context.threads(1), &context), \"core\") {{ top.clock = 0; top.eval(); }}
    void half(int level, uint64_t time) {{
        top.clock = level;
        top.eval();
{half}
        (void)time;
    }}
}};

Core* create() {{ return new Core; }}
void destroy(Core* core) {{ core->top.final(); delete core; }}
// Inputs settle while the clock is low, then the clock rises at `time` (ps).
void step(Core* core, const NicIn* in, NicOut* out, uint64_t time, uint64_t period) {{
    auto& top = core->top;
{inward}    core->half(0, time - period / 2);
    core->half(1, time);
{outward}}}
{extra}
struct Api {{
    uint64_t input_bytes;
    uint64_t output_bytes;
    Core* (*create)();
    void (*destroy)(Core*);
    void (*step)(Core*, const NicIn*, NicOut*, uint64_t, uint64_t);
    int (*wave_open)(Core*, const char*);
    void (*wave_close)(Core*);
}};

const Api api = {{sizeof(NicIn), sizeof(NicOut), create, destroy, step, wave_open, wave_close}};
}}

extern \"C\" const void* {name}_api() {{ return &api; }}
"
    );
    s
}

const WAVE_FIELD: &str = "    VerilatedFstC* wave = nullptr;\n    ~Core() { close(); }\n    \
    void close() { if (wave) { wave->close(); delete wave; wave = nullptr; } }\n";
const WAVE_HALF: &str = "        if (wave) wave->dump(time);\n";
const WAVE_API: &str = "int wave_open(Core* core, const char* file) {
    core->close();
    core->context.traceEverOn(true);
    core->wave = new VerilatedFstC;
    core->top.trace(core->wave, 99);
    core->wave->open(file);
    return core->wave->isOpen();
}
void wave_close(Core* core) { core->close(); }
";
const NO_WAVE_API: &str = "int wave_open(Core*, const char*) { return 0; }
void wave_close(Core*) {}
";

fn structure(s: &mut String, name: &str, ports: &[(&str, u32)]) {
    let _ = writeln!(s, "struct {name} {{");
    for (port, bits) in ports {
        let _ = match bits {
            0..=8 => writeln!(s, "    uint8_t {port};"),
            9..=32 => writeln!(s, "    uint32_t {port};"),
            33..=64 => writeln!(s, "    uint64_t {port};"),
            _ => writeln!(s, "    uint64_t {port}[{}];", bits / 64),
        };
    }
    s.push_str("};\n");
}

fn transfer(port: &str, bits: u32, to_core: bool) -> String {
    match (bits > 64, to_core) {
        (false, true) => format!("    top.{port} = in->{port};\n"),
        (false, false) => format!("    out->{port} = top.{port};\n"),
        (true, true) => format!("    std::memcpy(&top.{port}, in->{port}, sizeof in->{port});\n"),
        (true, false) => {
            format!("    std::memcpy(out->{port}, &top.{port}, sizeof out->{port});\n")
        }
    }
}
