//! The program as a user sees it.

use mprdma_host::address::Address;
use mprdma_host::backend;
use mprdma_spec::csr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mprdma-sim"));
    command.env_remove("RUST_LOG");
    command
}

/// A directory of its own for each test.
fn directory(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("mprdma-sim-cli-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// Starts `mprdma-sim up` and waits until clients can connect.
fn up(dir: &Path, arguments: &[&str]) -> Child {
    let mut child = program()
        .args(["up", "small", "--dir"])
        .arg(dir)
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let lines: Vec<String> = out.lines().map_while(Result::ok).take(3).collect();
    let socket = dir.join("nic1.sock");
    assert_eq!(
        lines[1..],
        [
            format!("card 1: vfio-user:{}", socket.display()),
            "ready".into()
        ]
    );
    child
}

fn run(command: &mut Command) -> (bool, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.success(), text(stdout), text(stderr))
}

#[test]
#[cfg_attr(no_core, ignore = "this build has no core")]
fn up_stats_link_down() {
    let dir = directory("up");
    let (json, pcap) = (dir.join("result.json"), dir.join("pcap"));
    let mut child = up(
        &dir,
        &[
            "--json",
            json.to_str().unwrap(),
            "--pcap",
            pcap.to_str().unwrap(),
        ],
    );

    let (good, out, _) = run(program().arg("stats").arg(&dir));
    let stats: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert!(good);
    assert_eq!(
        (&stats["scenario"], stats["cards"].as_array().unwrap().len()),
        (&"small".into(), 2)
    );

    let (good, _, error) = run(program().args(["up", "small", "--dir"]).arg(&dir));
    assert!(
        !good && error.contains("already runs") && error.contains("mprdma-sim down"),
        "{error}"
    );

    let link = |to: &str, more: &[&str]| {
        run(program()
            .arg("link")
            .arg(&dir)
            .args(["leaf0", to])
            .args(more))
    };
    assert_eq!(
        link("spine1", &["--both", "--rate", "6.25", "--loss", "0.01"]).1,
        "2 link(s) changed\n"
    );
    let (good, _, error) = link("spine9", &["--down"]);
    assert!(
        !good && error.contains("no link leaf0 to spine9"),
        "{error}"
    );

    let (good, _, error) = run(program().arg("down").arg(&dir));
    assert!(good, "{error}");
    assert!(child.wait().unwrap().success());
    let result: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!(result["paths"].as_array().unwrap().len(), 4);
    assert!(result["cards"][1]["cycles"].as_u64() > Some(0));
    assert!(!dir.join("nic0.sock").exists() && !dir.join("control.sock").exists());
    assert!(pcap.join("card1.pcapng").exists());
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
#[cfg_attr(no_core, ignore = "this build has no core")]
fn a_signal_ends_it_in_order_and_leftovers_do_not_stop_the_next() {
    let dir = directory("signal");
    let mut first = up(&dir, &[]);
    first.kill().unwrap();
    first.wait().unwrap();
    assert!(dir.join("nic0.sock").exists(), "SIGKILL leaves the sockets");
    let mut second = up(&dir, &["--threads", "1"]);
    // SAFETY: the child is ours and has not been waited for.
    unsafe { libc::kill(second.id() as libc::pid_t, libc::SIGINT) };
    assert!(second.wait().unwrap().success());
    assert!(!dir.join("nic0.sock").exists());
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn errors_say_what_and_where_and_what_to_do() {
    let dir = directory("errors");
    let cut = dir.join("cut.toml");
    std::fs::write(
        &cut,
        "name = \"cut\"\n[network]\nkind = \"leaf-spine\"\ncar",
    )
    .unwrap();
    let text = |arguments: &[&str]| {
        let (good, _, error) = run(program().args(arguments));
        assert!(!good, "{arguments:?} is refused");
        error
    };
    let cut = cut.to_str().unwrap();
    let cases = [
        (text(&["check", cut]), vec![cut, ":4:"]),
        (
            text(&["up", "/nonexistent.toml"]),
            vec!["/nonexistent.toml", "No such file"],
        ),
        (
            text(&["stats", "/nonexistent"]),
            vec!["no simulator runs in /nonexistent", "mprdma-sim up"],
        ),
        (text(&["up", "small", "--wave", "9..3"]), vec!["START..END"]),
    ];
    for (error, parts) in cases {
        assert!(
            parts.iter().all(|part| error.contains(part)),
            "{parts:?} not in {error}"
        );
    }
    std::fs::remove_dir_all(dir).unwrap();
}

/// The model needs no core, so this runs in every build.
#[test]
fn the_model_runs_behind_the_same_sockets() {
    let dir = directory("model");
    let mut child = up(&dir, &["--engine", "model"]);
    let (good, out, _) = run(program().arg("stats").arg(&dir));
    let stats: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert!(good && stats["cards"].as_array().unwrap().len() == 2);
    let address = Address::VfioUser(dir.join("nic0.sock"));
    let device = backend::open(&address, backend::ANSWER_TIMEOUT).unwrap();
    assert_eq!(device.read32(csr::MAGIC).unwrap(), csr::MAGIC_VALUE);
    drop(device);
    let (good, _, error) = run(program().arg("down").arg(&dir));
    assert!(good && child.wait().unwrap().success(), "{error}");
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn the_model_has_no_waveforms() {
    let model = ["up", "small", "--engine", "model", "--wave", "3..9"];
    let (good, _, error) = run(program().args(model));
    assert!(!good && error.contains("--engine rtl"), "{error}");
}

#[test]
#[cfg(not(feature = "wave"))]
fn waveforms_name_the_build_that_can() {
    let (good, _, error) = run(program().args(["up", "small", "--wave", "3..9"]));
    assert!(!good && error.contains("--features wave"), "{error}");
}
