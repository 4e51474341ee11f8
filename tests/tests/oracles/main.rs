//! Tools that share no code with this project read what two cards put on the wire.
//!
//! Traffic that holds every kind of packet that the cards can send (`kinds.rs`), over IPv4 and IPv6, with a tag and
//! without, is captured at both ports, of cards with bitmaps of 128 and of 64 slots. Then
//! - tshark dissects every frame (`tshark.rs`): no frame is malformed, and what tshark shows equals [`Frame::parse`], addresses
//!   and PSNs also what the queue pairs were told to send. One complaint is legal, see [`tshark::LEGAL`];
//! - tshark with `scripts/wireshark/mprdma.lua` shows the rest, field by field as [`Frame::parse`] reads it (`lua.rs`);
//! - scapy, and separately Python's zlib, compute the ICRC of every frame (`scripts/oracles/icrc.py`).
//!
//! The counts go to `target/oracles.json`. A card also sends frames whose ICRC is wrong on purpose; they are captured
//! apart and counted as `poisoned`.

mod capture;
mod crafted;
mod kinds;
mod lua;
mod tool;
mod traffic;
mod tshark;

use anyhow::{ensure, Context, Result};
use kinds::Kinds;
use mprdma_sim::scenario::Scenario;
use mprdma_sim::world::Options;
use mprdma_spec::wire::frame::{locate, Frame};
use mprdma_spec::wire::{bth, icrc};
use mprdma_tests::lose::Lose;
use mprdma_tests::rig::{engine, scenario, Rig};
use serde_json::{json, Value};
use std::path::{Path, PathBuf};
use std::process::Command;
use tool::{root, tool};
use traffic::Sent;
use tshark::{hex, LEGAL};

/// What two cards did, captured at each.
struct Run {
    captures: [PathBuf; 2],
    sent: Vec<Sent>,
}

/// Cards of a scenario, captured into `dir`, do `traffic`.
fn run(
    dir: &Path,
    scenario: &Scenario,
    traffic: impl FnOnce(&Rig) -> Result<Vec<Sent>>,
) -> Result<Run> {
    let options = Options {
        engine: engine()?,
        seed: 8,
        threads: 1,
        pcap: Some(dir.to_path_buf()),
    };
    let rig = Rig::new(scenario, &options)?;
    let sent = traffic(&rig)?;
    Ok(Run {
        captures: [dir.join("card0.pcapng"), dir.join("card1.pcapng")],
        sent,
    })
}

/// Every kind of packet, between cards with bitmaps of both sizes.
fn runs(dir: &Path) -> Result<Vec<Run>> {
    let network = |slots: usize| {
        let text = format!("{}\n[card]\nbitmap_slots = {slots}\n", traffic::NETWORK);
        scenario(&text)
    };
    let tapped = |rig: &Rig| {
        let lose = Lose::default();
        rig.sim.set_tap(Box::new(lose.clone()));
        lose
    };
    Ok(vec![
        run(&dir.join("slots128"), &network(128)?, |rig| {
            traffic::all(rig, &tapped(rig), 128)
        })?,
        run(&dir.join("slots64"), &network(64)?, |rig| {
            traffic::holes(rig, &tapped(rig), 64)
        })?,
    ])
}

/// What the tools found.
#[derive(Default)]
struct Findings {
    malformed: u64,
    /// Complaints of tshark but for the legal one.
    experts: u64,
    /// IPv6 frames with the legal one.
    legal: u64,
    /// Frames that tools and `spec` read differently.
    differing: Vec<String>,
}

/// Compares every frame of a capture with what tshark says of it, without our script and with it.
fn dissected(capture: &Path, frames: &[Vec<u8>], found: &mut Findings) -> Result<Vec<tshark::Row>> {
    let config = capture.parent().context("a directory")?;
    let rows = tshark::dissect(capture, config, None, tshark::FIELDS)?;
    let scripted = lua::dissect_with_script(capture, config)?;
    ensure!(
        rows.len() == frames.len() && scripted.len() == frames.len(),
        "tshark sees {} and {} of {} frames",
        rows.len(),
        scripted.len(),
        frames.len()
    );
    for (i, frame) in frames.iter().enumerate() {
        let (row, scripted) = (&rows[i], &scripted[i]);
        found.malformed += u64::from(!row["_ws.malformed"].is_empty());
        let expert = row["_ws.expert.message"].as_str();
        // Only IPv6 has it.
        let legal = match row["ipv6.src"].is_empty() {
            true => "",
            false => LEGAL,
        };
        found.legal += u64::from(!legal.is_empty() && expert == legal);
        found.experts += u64::from(expert != legal);
        for error in [tshark::same(frame, row), lua::same(frame, scripted, legal)]
            .into_iter()
            .filter_map(Result::err)
        {
            let place = format!("{} frame {}", capture.display(), i + 1);
            found.differing.push(format!("{place}: {error:#}"));
        }
        // The comparisons themselves would notice one wrong bit: the last of the PSN, and one behind BTH, in another byte
        // of the headers and the payload from frame to frame.
        let at = locate(frame)?;
        let behind = at.bth + bth::LEN;
        let mut wrong = frame.clone();
        wrong[behind - 1] ^= 1;
        ensure!(
            tshark::same(&wrong, row).is_err() && lua::same(&wrong, scripted, legal).is_err(),
            "frame {}: a wrong PSN goes unnoticed",
            i + 1
        );
        let mut wrong = frame.clone();
        let byte = behind + i % (at.icrc - behind).min(40);
        wrong[byte] ^= 1 << (i % 8);
        ensure!(
            tshark::same(&wrong, row).is_err() && lua::same(&wrong, scripted, legal).is_err(),
            "frame {}: a wrong bit in byte {byte} goes unnoticed",
            i + 1
        );
    }
    Ok(rows)
}

/// The ICRCs of every frame of the captures by two other implementations.
fn other_icrcs(captures: &[PathBuf]) -> Result<Value> {
    let text = tool(
        Command::new("python3")
            .arg(root().join("scripts/oracles/icrc.py"))
            .args(captures)
            .env("PYTHONPATH", root().join("target/python")),
        "python3",
    )?;
    Ok(serde_json::from_str(&text)?)
}

/// Compares the ICRC of a frame with what `spec` and the other implementations compute.
fn same_icrc(frame: &[u8], other: &Value) -> Result<()> {
    let wire = hex(&frame[locate(frame)?.icrc..], "");
    let ours = hex(&icrc::icrc(frame)?.to_le_bytes(), "");
    let (zlib, scapy) = (&other["zlib"], &other["scapy"]);
    ensure!(
        other["wire"] == *wire && other["flip_zlib"] != *wire && other["flip_scapy"] != *wire,
        "a flipped bit goes unnoticed"
    );
    ensure!(
        ours == wire && *zlib == *wire && *scapy == *wire,
        "ICRC {wire} on the wire, spec {ours}, zlib {zlib}, scapy {scapy}"
    );
    Ok(())
}

/// Frames whose payload could not be read carry the inverse of their ICRC and are otherwise as any other. Returns how
/// many there are.
fn poisoned(dir: &Path) -> Result<u64> {
    let run = run(dir, &scenario("direct")?, |rig| {
        traffic::unreadable(rig)?;
        Ok(vec![])
    })?;
    let capture = &run.captures[0];
    let frames = capture::read(capture)?;
    let mut found = Findings::default();
    dissected(capture, &frames, &mut found)?;
    ensure!(found.differing.is_empty(), "{}", found.differing[0]);
    let others = other_icrcs(&run.captures[..1])?;
    let others = others["frames"].as_array().context("no list of frames")?;
    ensure!(others.len() == frames.len(), "not every frame is there");
    let mut inverse = 0;
    for (frame, other) in frames.iter().zip(others) {
        if same_icrc(frame, other).is_ok() {
            continue;
        }
        let at = locate(frame)?.icrc;
        let inverted: Vec<_> = frame[at..at + icrc::LEN].iter().map(|byte| !byte).collect();
        let inverted = hex(&inverted, "");
        ensure!(
            other["scapy"] == *inverted && other["zlib"] == *inverted,
            "an ICRC that is neither right nor inverted: {other}"
        );
        inverse += 1;
    }
    Ok(inverse)
}

/// Compares every frame of the runs with what tshark says of it, and counts those that the cards sent.
fn read_all(runs: &[Run], found: &mut Findings, kinds: &mut Kinds) -> Result<Vec<Vec<u8>>> {
    let mut all = vec![];
    for Run { captures, sent } in runs {
        for (card, capture) in captures.iter().enumerate() {
            let frames = capture::read(capture)?;
            let rows = dissected(capture, &frames, found)?;
            if card == 0 {
                tshark::as_sent(sent, &rows)?;
            }
            for frame in &frames {
                let frame = Frame::parse(frame)?;
                // As the rig numbers them.
                if usize::from(frame.src_mac[5]) == card + 1 {
                    kinds.add(&frame)?;
                }
            }
            all.extend(frames);
        }
    }
    Ok(all)
}

#[test]
fn independent_tools_agree() -> Result<()> {
    // The directory for what tests write is `tmp` in the target directory.
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (dir, file) = (tmp.join("oracles"), tmp.with_file_name("oracles.json"));
    // A run that fails leaves no result of an earlier one.
    if dir.exists() {
        std::fs::remove_dir_all(&dir)?;
    }
    if file.exists() {
        std::fs::remove_file(&file)?;
    }

    let runs = runs(&dir)?;

    let captures: Vec<PathBuf> = runs.iter().flat_map(|run| run.captures.clone()).collect();
    let (mut found, mut kinds) = (Findings::default(), Kinds::new());
    let (frames, others) = std::thread::scope(|scope| {
        // Most of the time is scapy's.
        let others = scope.spawn(|| other_icrcs(&captures));
        let frames = read_all(&runs, &mut found, &mut kinds)?;
        let others = others.join().expect("no panic")?;
        anyhow::Ok((frames, others))
    })?;
    let checked = others["frames"].as_array().context("no list of frames")?;
    ensure!(
        checked.iter().any(|other| other["flip_scapy"].is_string()),
        "no bit was flipped"
    );
    let mut equal = 0;
    for (i, (frame, other)) in frames.iter().zip(checked).enumerate() {
        match same_icrc(frame, other) {
            Ok(()) => equal += 1,
            Err(error) => found.differing.push(format!("frame {i}: {error:#}")),
        }
    }
    let poisoned = poisoned(&dir.join("poisoned"))?;

    let result = json!({
        "frames": frames.len(),
        "malformed": found.malformed,
        "expert_errors": found.experts,
        "legal_udp_checksum_zero_ipv6": found.legal,
        "icrc_checked": checked.len(),
        "icrc_equal": equal,
        "differing": found.differing.len(),
        "poisoned": poisoned,
        "kinds": kinds.json(),
        "scapy": others["scapy"],
    });
    println!("{result:#}");
    std::fs::write(&file, format!("{result:#}\n")).with_context(|| file.display().to_string())?;

    ensure!(
        checked.len() == frames.len(),
        "ICRC checked in {} of {} frames",
        checked.len(),
        frames.len()
    );
    ensure!(
        found.differing.is_empty() && found.malformed == 0 && found.experts == 0,
        "{} differences, the first:\n{}",
        found.differing.len(),
        found.differing[..found.differing.len().min(10)].join("\n")
    );
    ensure!(poisoned > 0, "no frame with an inverted ICRC");
    kinds.complete()
}
