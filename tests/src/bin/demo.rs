//! `make demo`: two `mprdma` processes move a file between two simulated cards over four paths, then over one.
//!
//! Everything printed is measured: by the driver, the cards' counters, the network's counters and the captures. Writes
//! `target/demo.json`.

use anyhow::{bail, ensure, Context, Result};
use clap::Parser;
use mprdma_tests::reorder::{self, Reorder};
use mprdma_tests::rig::pattern;
use serde_json::{json, Value};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

const DEFAULT_BYTES: usize = 4 << 20;
const LINK_GBPS: f64 = 100.0;

/// Moves a file from one simulated card to another over several network paths.
#[derive(Parser)]
struct Arguments {
    /// File to send; 4 MiB of random bytes without it.
    file: Option<PathBuf>,
    /// Scenario of the simulator.
    #[arg(long, default_value = "demo")]
    scenario: String,
}

/// A child that is killed when the demo ends early.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One transfer.
struct Run {
    sent: Value,
    network: Value,
    reorder: Reorder,
    capture: PathBuf,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let start = Instant::now();
    let work = std::env::current_dir()?.join("target/demo");
    std::fs::create_dir_all(&work)?;
    let file = match arguments.file {
        Some(file) => file
            .canonicalize()
            .with_context(|| file.display().to_string())?,
        None => {
            let file = work.join("input.bin");
            std::fs::write(&file, pattern(1, DEFAULT_BYTES))?;
            file
        }
    };
    let bytes = std::fs::metadata(&file)?.len();
    println!(
        "{} ({bytes} bytes) from card 0 to card 1, scenario `{}`",
        file.display(),
        arguments.scenario
    );
    println!("  two Verilated cards at {LINK_GBPS} Gb/s, driven over vfio-user by two `mprdma` processes\n");
    let multi = run(&work.join("four-paths"), &arguments.scenario, &file, None)?;
    let single = run(&work.join("one-path"), &arguments.scenario, &file, Some(1))?;
    report(&multi, &single);
    let result = summary(bytes, &multi, &single);
    std::fs::write(
        "target/demo.json",
        serde_json::to_string_pretty(&result)? + "\n",
    )?;
    println!("\ntarget/demo.json; {:.1} s", start.elapsed().as_secs_f64());
    ensure!(result["ok"] == true, "the file did not arrive intact");
    Ok(())
}

/// The directory of our own executable holds the others.
fn program(name: &str) -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(name);
    ensure!(
        path.exists(),
        "{} is not built; run `make demo`",
        path.display()
    );
    Ok(path)
}

fn run(dir: &Path, scenario: &str, file: &Path, vp_count: Option<u32>) -> Result<Run> {
    let _ = std::fs::remove_dir_all(dir);
    std::fs::create_dir_all(dir)?;
    let captures = dir.join("pcap");
    // Socket paths are short; the directory of a checkout may not be.
    let sockets = std::env::temp_dir().join(format!("mprdma-demo-{}", std::process::id()));
    let mut simulator = Process(
        Command::new(program("mprdma-sim")?)
            .args(["up", scenario, "--dir"])
            .arg(&sockets)
            .arg("--pcap")
            .arg(&captures)
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(dir.join("simulator.log"))?)
            .spawn()?,
    );
    let said = BufReader::new(simulator.0.stdout.take().context("a pipe")?);
    if !said
        .lines()
        .map_while(Result::ok)
        .any(|line| line == "ready")
    {
        bail!(
            "the simulator did not start:\n{}",
            std::fs::read_to_string(dir.join("simulator.log"))?
        );
    }
    let card = |n: u32| format!("vfio-user:{}/nic{n}.sock", sockets.display());
    let output = dir.join("received");
    let mut receiver = Process(
        Command::new(program("mprdma")?)
            .args([
                "--json",
                "recv-file",
                "-d",
                &card(1),
                "--bind",
                "127.0.0.1",
                "-p",
                "0",
            ])
            .arg(&output)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?,
    );
    let port = port_of(&mut receiver.0)?;
    let mut send = Command::new(program("mprdma")?);
    send.args(["--json", "send-file", "-d", &card(0), "-p", &port]);
    if let Some(count) = vp_count {
        send.args(["--vp-count", &count.to_string()]);
    }
    let sent = send.arg(file).arg("127.0.0.1").output()?;
    ensure!(
        sent.status.success(),
        "send-file: {}",
        String::from_utf8_lossy(&sent.stderr).trim()
    );
    let status = receiver.0.wait()?;
    ensure!(status.success(), "recv-file ended with {status}");
    ensure!(
        std::fs::read(file)? == std::fs::read(&output)?,
        "{} differs",
        output.display()
    );
    let control = program("mprdma-sim")?;
    let network = Command::new(&control).arg("stats").arg(&sockets).output()?;
    let network = serde_json::from_slice(&network.stdout).context("the simulator's statistics")?;
    ensure!(
        Command::new(&control)
            .arg("down")
            .arg(&sockets)
            .status()?
            .success(),
        "the simulator does not stop"
    );
    simulator.0.wait()?;
    let _ = std::fs::remove_dir_all(&sockets);
    let capture = captures.join("card1.pcapng");
    Ok(Run {
        sent: serde_json::from_slice(&sent.stdout)?,
        network,
        reorder: reorder::of_capture(&capture)?,
        capture,
    })
}

/// `recv-file -p 0` says on which port it waits.
fn port_of(receiver: &mut Child) -> Result<String> {
    let said = BufReader::new(receiver.stderr.take().context("a pipe")?);
    let mut told = String::new();
    for line in said.lines().map_while(Result::ok) {
        if let Some((_, port)) = line
            .split_once("waiting for the peer on ")
            .and_then(|(_, at)| at.rsplit_once(':'))
        {
            return Ok(port.trim().to_string());
        }
        told += &line;
    }
    bail!("recv-file: {told}")
}

fn paths(run: &Run) -> Vec<Value> {
    let from_sender = |p: &&Value| p["from"] == "leaf0";
    run.network["paths"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(from_sender)
        .map(|p| json!({ "vp_path": p["spine"], "bytes": p["bytes"], "share": p["share"] }))
        .collect()
}

fn report(multi: &Run, single: &Run) {
    let row = |name: &str, show: &dyn Fn(&Run) -> String| {
        println!("  {name:<34} {:>16} {:>16}", show(multi), show(single));
    };
    println!("  {:<34} {:>16} {:>16}", "", "multi-path", "vp_count 1");
    let number = |value: &Value, digits: usize| {
        value
            .as_f64()
            .map_or("-".into(), |v| format!("{v:.digits$}"))
    };
    row("SHA-256 equal", &|r| r.sent["sha256_equal"].to_string());
    row("simulated goodput, Gb/s", &|r| {
        number(&r.sent["goodput_gbps"], 1)
    });
    for (i, path) in paths(multi).iter().enumerate() {
        let name = path["vp_path"].as_str().unwrap_or("path").to_string();
        row(&format!("share of bytes by {name}"), &|r| {
            paths(r).get(i).map_or("-".into(), |p| {
                format!("{:.1} %", 100.0 * p["share"].as_f64().unwrap_or(0.0))
            })
        });
    }
    row("data packets", &|r| r.reorder.packets.to_string());
    row("packets out of order", &|r| r.reorder.late.to_string());
    row("largest distance, packets", &|r| {
        r.reorder.distance.to_string()
    });
    row("ECN marks", &|r| r.network["marks"].to_string());
    row("retransmissions", &|r| {
        r.sent["retransmissions"].to_string()
    });
    row("smoothed RTT, us", &|r| number(&r.sent["srtt_us"], 1));
    row("window at the end, packets", &|r| {
        number(&r.sent["cwnd_packets"], 1)
    });
    row("simulator, cycles/s per card", &|r| {
        number(&r.network["cycles_per_second"], 0)
    });
    println!(
        "\n  captures (Wireshark opens them): {}",
        multi.capture.display()
    );
}

fn summary(bytes: u64, multi: &Run, single: &Run) -> Value {
    let equal = multi.sent["sha256_equal"] == true && single.sent["sha256_equal"] == true;
    json!({
        "ok": equal,
        "bytes": bytes,
        "sha256_equal": equal,
        "sha256": multi.sent["sha256"],
        "goodput_gbps": multi.sent["goodput_gbps"],
        "link_gbps": LINK_GBPS,
        "paths": paths(multi),
        "reordered_packets": multi.reorder.late,
        "max_reorder_distance": multi.reorder.distance,
        "ecn_marks": multi.network["marks"],
        "retransmissions": multi.sent["retransmissions"],
        "cwnd_packets": multi.sent["cwnd_packets"],
        "sim_cycles_per_second": multi.network["cycles_per_second"],
        "pcapng": multi.capture,
        "single_path": {
            "goodput_gbps": single.sent["goodput_gbps"],
            "paths": paths(single),
            "retransmissions": single.sent["retransmissions"],
        },
    })
}
