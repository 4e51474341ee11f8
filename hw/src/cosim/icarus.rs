//! Replays a record in Icarus Verilog.

use super::frame::{hex, Frame};
use super::record::{Mismatch, Replay};
use super::tools::{build_root, write, CosimError, IVERILOG, TIMEOUT, VVP};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Longest run of a replay.
const LIMIT_SECONDS: &str = "120";

/// Runs a test bench that applies `inputs` one after the other and prints ports that differ from `outputs`.
pub(crate) fn replay(
    verilog: &str,
    name: &str,
    inputs: &[Frame],
    outputs: &[Frame],
) -> Result<Replay, CosimError> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let dir = build_root().join(format!("icarus-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&dir).map_err(CosimError::io(format!("creating {}", dir.display())))?;
    let result = run(&dir, verilog, name, inputs, outputs);
    let _ = std::fs::remove_dir_all(&dir);
    result
}

fn run(
    dir: &std::path::Path,
    verilog: &str,
    name: &str,
    inputs: &[Frame],
    outputs: &[Frame],
) -> Result<Replay, CosimError> {
    let mut replay = Replay {
        steps: inputs.len(),
        bad_steps: 0,
        mismatches: vec![],
    };
    let (Some(input), Some(output)) = (inputs.first(), outputs.first()) else {
        return Ok(replay);
    };
    let mut trace = String::new();
    for (input, output) in inputs.iter().zip(outputs) {
        for frame in [input, output] {
            for slot in &frame.layout.slots {
                let _ = write!(trace, "{} ", hex(frame.get_bytes(&slot.name)));
            }
        }
        trace.push('\n');
    }
    let mut declare = String::new();
    let mut pins = vec![];
    let mut scan = String::new();
    let mut compare = String::new();
    for slot in &input.layout.slots {
        let top = slot.bits - 1;
        let _ = writeln!(declare, "reg [{top}:0] i_{n};", n = slot.name);
        let _ = writeln!(scan, "code = $fscanf(file, \"%h\", i_{});", slot.name);
        pins.push(format!(".{n}(i_{n})", n = slot.name));
    }
    for slot in &output.layout.slots {
        let top = slot.bits - 1;
        let n = &slot.name;
        let _ = writeln!(declare, "wire [{top}:0] o_{n}; reg [{top}:0] e_{n};");
        let _ = writeln!(scan, "code = $fscanf(file, \"%h\", e_{n});");
        let _ = writeln!(
            compare,
            "if (o_{n} !== e_{n}) $display(\"BAD %0d {n} %h %h\", step, e_{n}, o_{n});"
        );
        pins.push(format!(".{n}(o_{n})"));
    }
    let bench = format!(
        "module bench;\n{declare}integer file, code, step;\n{name} dut ({});\ninitial begin\n\
         file = $fopen(\"trace.txt\", \"r\");\nfor (step = 0; step < {}; step = step + 1) begin\n{scan}#1;\n{compare}end\n\
         $display(\"DONE\");\n$finish;\nend\nendmodule\n",
        pins.join(", "),
        inputs.len()
    );
    write(&dir.join("trace.txt"), &trace)?;
    write(&dir.join("dut.sv"), verilog)?;
    write(&dir.join("bench.sv"), &bench)?;
    IVERILOG.run(
        IVERILOG
            .command()?
            .current_dir(dir)
            .args(["-g2012", "-o", "bench", "-s", "bench", "bench.sv", "dut.sv"]),
    )?;
    // An event-driven simulator never ends on logic that triggers itself without delay.
    let vvp = VVP.command()?;
    let output = TIMEOUT.run(
        TIMEOUT
            .command()?
            .current_dir(dir)
            .arg(LIMIT_SECONDS)
            .arg(vvp.get_program())
            .args(["-n", "bench"]),
    )?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !text.lines().any(|line| line == "DONE") {
        return Err(CosimError::ToolFailed {
            tool: "vvp".into(),
            log: text.into_owned(),
        });
    }
    let mut last_bad = None;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["BAD", step, port, expected, got] = words[..] else {
            continue;
        };
        let step = step.parse().unwrap_or(0);
        if last_bad != Some(step) {
            last_bad = Some(step);
            replay.bad_steps += 1;
        }
        if replay.mismatches.len() < 10 {
            replay.mismatches.push(Mismatch {
                step,
                port: port.to_string(),
                expected: expected.to_string(),
                got: got.to_string(),
            });
        }
    }
    Ok(replay)
}
