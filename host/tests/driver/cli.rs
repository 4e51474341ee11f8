//! The `mprdma` command against fake cards behind sockets.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use mprdma_spec::counter::Counter;
use serde_json::Value;

use crate::fake_card::Traits;
use crate::huge::Reserved;
use crate::served::{Directory, Rack};
use crate::verbs::pattern;

fn mprdma(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mprdma"));
    command
        .args(args)
        .stdin(Stdio::null())
        .env_remove("RUST_LOG");
    command
}

fn run(args: &[&str]) -> Output {
    mprdma(args).output().unwrap()
}

fn code_and_text(output: &Output) -> (i32, String) {
    (
        output.status.code().unwrap_or(-1),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

fn json(output: &Output) -> Value {
    let (code, text) = code_and_text(output);
    assert_eq!(code, 0, "{text}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A command in the background; killed when dropped.
struct Background {
    child: Child,
    stderr: BufReader<std::process::ChildStderr>,
}

impl Background {
    fn start(args: &[&str]) -> Self {
        let mut child = mprdma(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Self { child, stderr }
    }

    /// Reads standard error up to a line that contains `text`; that line.
    fn line(&mut self, text: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(
                self.stderr.read_line(&mut line).unwrap() > 0,
                "the command ended without saying `{text}`"
            );
            if line.contains(text) {
                return line;
            }
        }
    }

    /// The port on which it waits for its peer.
    fn port(&mut self) -> String {
        self.line("waiting for the peer on")
            .trim()
            .rsplit_once(':')
            .unwrap()
            .1
            .to_owned()
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its end; exit code, standard output, rest of standard error.
    fn end(&mut self) -> (i32, String, String) {
        let (mut out, mut err) = (String::new(), String::new());
        self.child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut out)
            .unwrap();
        self.stderr.read_to_string(&mut err).unwrap();
        (self.child.wait().unwrap().code().unwrap_or(-1), out, err)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Transfer<'a> {
    rack: &'a Rack,
    sender: &'a [&'a str],
    receiver: &'a [&'a str],
}

impl Transfer<'_> {
    /// Sends `from` from card 0 to `to` at card 1: results of receiver and sender.
    fn run(&self, from: &Path, to: &Path) -> ((i32, String, String), Output) {
        let (a, b) = (self.rack.address(0), self.rack.address(1));
        let common = [
            "recv-file",
            "--json",
            "-d",
            &b,
            "-p",
            "0",
            "--bind",
            "127.0.0.1",
            to.to_str().unwrap(),
        ];
        let mut receiver = Background::start(&[&common, self.receiver].concat());
        let port = receiver.port();
        let common = [
            "send-file",
            "--json",
            "-d",
            &a,
            from.to_str().unwrap(),
            "127.0.0.1",
            "-p",
            &port,
        ];
        let sender = run(&[&common, self.sender].concat());
        (receiver.end(), sender)
    }
}

#[test]
fn files_of_every_size_arrive_whole() {
    let rack = Rack::new(2, Traits::default());
    let files = Directory::new();
    let (from, to) = (files.path("from"), files.path("to"));
    for (i, bytes) in [0, 1, 4095, 4096, 4097, (1 << 20) + 13, 4 << 20]
        .into_iter()
        .enumerate()
    {
        let data = pattern(bytes, i as u32);
        fs::write(&from, &data).unwrap();
        let transfer = Transfer {
            rack: &rack,
            sender: &["--buffer-offset", "3", "--mtu", "1024"],
            receiver: &["--buffer-offset", "13", "--force", "--mtu", "1024"],
        };
        let ((code, out, err), sent) = transfer.run(&from, &to);
        assert_eq!(code, 0, "{bytes}: {err}");
        assert!(fs::read(&to).unwrap() == data, "{bytes} bytes");
        let (sent, received) = (json(&sent), serde_json::from_str::<Value>(&out).unwrap());
        assert_eq!(sent["sha256"], received["sha256"]);
        assert_eq!(
            (&sent["bytes"], &received["bytes"]),
            (&bytes.into(), &bytes.into())
        );
        assert_eq!(
            (
                sent["ok"] == true,
                sent["sha256_equal"] == true,
                received["sha256_equal"] == true
            ),
            (true, true, true)
        );
        if bytes >= 1 << 20 {
            let gbps = sent["goodput_gbps"].as_f64().unwrap();
            assert!(
                gbps > 50.0 && gbps < 101.0,
                "{gbps} Gb/s of the card's time"
            );
        }
    }
    assert_eq!(
        fs::read_dir(files.path("")).unwrap().count(),
        2,
        "no .part file is left"
    );
}

#[test]
fn a_file_longer_than_the_buffer_goes_in_rounds_over_ipv6() {
    let rack = Rack::new(2, Traits::default());
    let files = Directory::new();
    let (from, to) = (files.path("from"), files.path("to"));
    let data = pattern(1_000_003, 5);
    fs::write(&from, &data).unwrap();
    let transfer = Transfer {
        rack: &rack,
        sender: &["--chunk", "1000", "--ipv6"],
        receiver: &["--buffer", "64K", "--ipv6"],
    };
    let ((code, _, err), sent) = transfer.run(&from, &to);
    assert_eq!(
        (code, json(&sent)["bytes"].as_u64()),
        (0, Some(1_000_003)),
        "{err}"
    );
    assert!(fs::read(&to).unwrap() == data);
    let again = transfer.run_receiver_alone(&to);
    assert!(again.contains("exists; --force writes over it"), "{again}");
}

impl Transfer<'_> {
    fn run_receiver_alone(&self, to: &Path) -> String {
        let (code, text) = code_and_text(&run(&[
            "recv-file",
            "-d",
            &self.rack.address(1),
            to.to_str().unwrap(),
        ]));
        assert_eq!(code, 1);
        text
    }
}

#[test]
fn sides_that_do_not_fit_both_say_so() {
    let rack = Rack::new(2, Traits::default());
    let files = Directory::new();
    fs::write(files.path("from"), "x").unwrap();
    let transfer = Transfer {
        rack: &rack,
        sender: &["--mtu", "1024"],
        receiver: &["--mtu", "4096"],
    };
    let ((code, out, err), sent) = transfer.run(&files.path("from"), &files.path("to"));
    assert_eq!(code, 4);
    assert!(
        err.contains("the path MTU is 4096 here and 1024 at the peer"),
        "{err}"
    );
    let failure: Value = serde_json::from_str(&out).unwrap();
    assert!(failure["ok"] == false && failure["exit_code"] == 4, "{out}");
    let (code, text) = code_and_text(&sent);
    assert!(
        code == 4 && text.contains("the path MTU is 1024 here and 4096 at the peer"),
        "{text}"
    );
    assert!(!files.path("to").exists());
}

#[test]
fn a_killed_receiver_is_noticed_and_both_cards_work_again() {
    let rack = Rack::new(2, Traits::default());
    let files = Directory::new();
    let (from, to) = (files.path("from"), files.path("to"));
    fs::write(&from, pattern(1 << 20, 1)).unwrap();
    rack.fabric.lock().unwrap().cards[0].paused = true;
    let (a, b) = (rack.address(0), rack.address(1));
    let args = [
        "recv-file",
        "-d",
        &b,
        "-p",
        "0",
        "--bind",
        "127.0.0.1",
        to.to_str().unwrap(),
        "--force",
    ];
    let mut receiver = Background::start(&args);
    let port = receiver.port();
    let mut sender = Background::start(&[
        "send-file",
        "-d",
        &a,
        from.to_str().unwrap(),
        "127.0.0.1",
        "-p",
        &port,
    ]);
    let start = Instant::now();
    let posted = |list: Value| {
        list.as_array()
            .is_some_and(|list| list.iter().any(|qp| qp["sq_outstanding"] != 0))
    };
    let list = ["qp", "list", "-d", &a, "--json", "--device-timeout", "1"];
    while !posted(json(&run(&list))) {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "nothing is posted"
        );
        thread::sleep(Duration::from_millis(10));
    }
    receiver.kill();
    let (code, _, err) = sender.end();
    assert_eq!(code, 4, "{err}");
    assert!(err.contains("closed the connection"), "{err}");
    rack.fabric.lock().unwrap().cards[0].paused = false;

    let transfer = Transfer {
        rack: &rack,
        sender: &[],
        receiver: &["--force"],
    };
    let ((code, _, err), sent) = transfer.run(&from, &to);
    assert_eq!((code, code_and_text(&sent).0), (0, 0), "{err}");
}

#[test]
fn no_completion_ends_the_wait_at_the_stated_time() {
    let rack = Rack::new(2, Traits::default());
    let files = Directory::new();
    fs::write(files.path("from"), "x").unwrap();
    rack.fabric.lock().unwrap().cards[0].paused = true;
    let transfer = Transfer {
        rack: &rack,
        sender: &["--timeout", "1"],
        receiver: &[],
    };
    let ((code, _, err), sent) = transfer.run(&files.path("from"), &files.path("to"));
    let (sender, text) = code_and_text(&sent);
    assert!(
        sender == 5 && text.contains("no completion for 1 s; 1 requests are outstanding"),
        "{text}"
    );
    assert!(
        code == 4 && err.contains("the peer gave up: no completion for 1 s"),
        "{err}"
    );
}

#[test]
fn peers_that_do_not_come_are_not_waited_for_longer_than_stated() {
    let rack = Rack::new(1, Traits::default());
    let files = Directory::new();
    let to = files.path("to");
    let args = [
        "recv-file",
        "-d",
        &rack.address(0),
        to.to_str().unwrap(),
        "-p",
        "0",
        "--peer-timeout",
        "1",
    ];
    let (code, text) = code_and_text(&run(&args));
    assert!(
        code == 4 && text.contains("no peer connected within 1 s"),
        "{text}"
    );
    fs::write(&to, "x").unwrap();
    let args = [
        "send-file",
        "-d",
        &rack.address(0),
        to.to_str().unwrap(),
        "127.0.0.1",
        "-p",
        "1",
        "--peer-timeout",
        "1",
    ];
    let (code, text) = code_and_text(&run(&args));
    assert!(
        code == 4 && text.contains("cannot connect to 127.0.0.1:1 within 1 s"),
        "{text}"
    );
}

#[test]
fn bandwidth_table_and_json() {
    let rack = Rack::new(2, Traits::default());
    let (a, b) = (rack.address(0), rack.address(1));
    let mut server = Background::start(&[
        "bench",
        "write-bw",
        "-d",
        &b,
        "-p",
        "0",
        "--bind",
        "127.0.0.1",
        "-q",
        "2",
    ]);
    let port = server.port();
    let args = [
        "bench",
        "write-bw",
        "-d",
        &a,
        "-p",
        &port,
        "-q",
        "2",
        "-s",
        "64K",
        "-n",
        "50",
        "--report_gbits",
    ];
    let client = run(&[&args[..], &["127.0.0.1"]].concat());
    let (code, text) = code_and_text(&client);
    assert_eq!(code, 0, "{text}");
    let table = String::from_utf8(client.stdout).unwrap();
    assert!(
        table.contains("#bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]"),
        "{table}"
    );
    let row: Vec<f64> = table
        .lines()
        .find(|line| line.trim_start().starts_with("65536"))
        .unwrap()
        .split_whitespace()
        .map(|number| number.parse().unwrap())
        .collect();
    assert!(
        row[1] == 100.0 && row[2] >= row[3] && row[3] > 30.0,
        "{table}"
    );
    let (code, out, err) = server.end();
    assert!(
        code == 0 && out.contains("65536") && out.contains("MB/sec"),
        "{out}{err}"
    );

    let mut server = Background::start(&[
        "bench",
        "write-bw",
        "-d",
        &b,
        "-p",
        "0",
        "--bind",
        "127.0.0.1",
        "--json",
    ]);
    let port = server.port();
    let args = [
        "bench",
        "write-bw",
        "-d",
        &a,
        "-p",
        &port,
        "-a",
        "-n",
        "5",
        "--json",
        "127.0.0.1",
    ];
    let results = json(&run(&args));
    let sizes: Vec<u64> = results["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line["bytes"].as_u64().unwrap())
        .collect();
    assert_eq!((sizes.len(), sizes[0], sizes[22]), (23, 2, 8 << 20));
    let (_, out, _) = server.end();
    assert_eq!(
        serde_json::from_str::<Value>(&out).unwrap()["results"],
        results["results"]
    );

    let mut server = Background::start(&[
        "bench",
        "write-bw",
        "-d",
        &b,
        "-p",
        "0",
        "--bind",
        "127.0.0.1",
    ]);
    let port = server.port();
    let args = [
        "bench",
        "write-bw",
        "-d",
        &a,
        "-p",
        &port,
        "-D",
        "200us",
        "--json",
        "127.0.0.1",
    ];
    let results = json(&run(&args));
    assert!(results["results"][0]["device_seconds"].as_f64().unwrap() >= 200e-6);
    assert_eq!(server.end().0, 0);
}

#[test]
fn read_bandwidth() {
    let rack = Rack::new(2, Traits::default());
    let (a, b) = (rack.address(0), rack.address(1));
    let test = ["bench", "read-bw", "-p"];
    let server = [&test[..], &["0", "-d", &b, "--bind", "127.0.0.1"]].concat();
    let mut server = Background::start(&server);
    let port = server.port();
    let client = [
        &test[..],
        &[&port, "-d", &a, "-s", "64K", "-n", "50", "127.0.0.1"],
    ]
    .concat();
    let done = run(&client);
    let (code, text) = code_and_text(&done);
    assert_eq!(code, 0, "{text}");
    let table = String::from_utf8(done.stdout).unwrap();
    assert!(table.contains("RDMA_Read BW Test"), "{table}");
    let row: Vec<&str> = table
        .lines()
        .find(|line| line.trim_start().starts_with("65536"))
        .unwrap()
        .split_whitespace()
        .collect();
    assert_eq!(row[1], "50");
    let (code, out, err) = server.end();
    assert!(code == 0 && out.contains("RDMA_Read BW Test"), "{out}{err}");
}

#[test]
fn atomic_rate() {
    let rack = Rack::new(2, Traits::default());
    let (a, b) = (rack.address(0), rack.address(1));
    let test = ["bench", "atomic-bw", "-p"];
    for (kind, title) in [
        ("FETCH_AND_ADD", "Atomic FETCH_AND_ADD BW Test"),
        ("CMP_AND_SWAP", "Atomic CMP_AND_SWAP BW Test"),
    ] {
        let server = ["0", "-d", &b, "-q", "2", "-A", kind, "--bind", "127.0.0.1"];
        let mut server = Background::start(&[&test[..], &server].concat());
        let port = server.port();
        let client = ["-d", &a, "-q", "2", "-n", "50", "-o", "3", "-A", kind];
        let done = run(&[&test[..], &[&port], &client, &["127.0.0.1"]].concat());
        let (code, text) = code_and_text(&done);
        assert_eq!(code, 0, "{text}");
        let table = String::from_utf8(done.stdout).unwrap();
        let lines: Vec<Vec<&str>> = table
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        let row = lines.iter().find(|row| row.first() == Some(&"8")).unwrap();
        assert_eq!((row[1], row.len()), ("100", 5), "{table}");
        assert!(row[4].parse::<f64>().unwrap() > 0.0, "{table}");
        let (code, out, err) = server.end();
        assert!(
            code == 0 && table.contains(title) && out.contains(title),
            "{out}{err}"
        );
    }
    let server = ["0", "-d", &b, "--bind", "127.0.0.1"];
    let mut server = Background::start(&[&test[..], &server].concat());
    let port = server.port();
    let client = ["-d", &a, "-n", "50", "--json", "127.0.0.1"];
    let results = json(&run(&[&test[..], &[&port], &client].concat()));
    let line = &results["results"][0];
    assert_eq!(
        (line["bytes"].as_u64(), line["iterations"].as_u64()),
        (Some(8), Some(50))
    );
    let rates = ["msg_rate_mpps", "goodput_gbps"].map(|rate| line[rate].as_f64().unwrap());
    assert!(rates[0] > 0.0 && (rates[1] - rates[0] * 0.064).abs() < 1e-9);
    assert_eq!(server.end().0, 0);
}

#[test]
fn an_atomic_rate_that_cannot_be_measured_is_explained() {
    let rack = Rack::new(1, Traits::default());
    let old = Rack::new(
        1,
        Traits {
            version: mprdma_spec::csr::VERSION_ATOMIC - 1,
            ..Traits::default()
        },
    );
    let (good, old) = (rack.address(0), old.address(0));
    for (device, args, code, part) in [
        (&good, &["-o", "17"][..], 2, "17 is not in 1..=16"),
        (&good, &["-o", "0"], 2, "0 is not in 1..=16"),
        (&good, &["-A", "ADD"], 2, "FETCH_AND_ADD"),
        (&good, &["-s", "16"], 2, "unexpected argument '-s'"),
        (&old, &[], 3, "ATOMICs need 1.2: load a newer image"),
    ] {
        let test = ["bench", "atomic-bw", "-d", device];
        let output = run(&[&test[..], args].concat());
        let (exit, text) = code_and_text(&output);
        assert!(exit == code && text.contains(part), "{exit} {text}");
    }
}

/// What `qp show`, `qp modify` and `qp trace` say of QP 2, which `qp create` made.
fn parameters_and_telemetry(address: &str) {
    let command = |args: &[&str]| json(&run(&[args, &["-d", address, "--json"]].concat()));
    let shown = command(&["qp", "show", "2"]);
    let parameters = &shown["parameters"];
    assert_eq!(
        (
            parameters["delta"].as_u64(),
            parameters["hole_repair"].as_bool()
        ),
        (Some(32), Some(true)),
        "{parameters}"
    );
    assert_eq!(parameters["rto_floor"].as_u64(), Some(8));
    assert_eq!(shown["telemetry"]["sent"].as_u64(), Some(0));
    assert_eq!(
        shown["telemetry"]["distance"].as_array().map(Vec::len),
        Some(8)
    );

    let changed = command(&[
        "qp",
        "modify",
        "2",
        "--delta",
        "40",
        "--alpha",
        "5",
        "--hole-repair",
        "off",
        "--rto-floor",
        "77",
    ]);
    assert_eq!(
        (
            changed["delta"].as_u64(),
            changed["alpha"].as_u64(),
            changed["rto_floor"].as_u64()
        ),
        (Some(40), Some(5), Some(77))
    );
    assert_eq!(
        (
            changed["hole_repair"].as_bool(),
            changed["vp_recycle"].as_bool(),
            changed["vp_count"].as_u64()
        ),
        (Some(false), Some(true), Some(64)),
        "what is not named stays"
    );
    assert_eq!(command(&["qp", "show", "2"])["parameters"], changed);
    let text = run(&["qp", "show", "2", "-d", address]);
    let text = String::from_utf8_lossy(&text.stdout);
    for part in [
        "delta           40",
        "hole_repair     off",
        "path_switches   0",
        "cwnd            16.5",
        "   2-3 ",
        "   64+ ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    for (args, code, part) in [
        (&["--delta", "128"][..], 2, "delta is 128"),
        (&["--vp-recycle", "maybe"], 2, "write on or off"),
        (&[], 2, "name a parameter to change"),
    ] {
        let output = run(&[&["qp", "modify", "2", "-d", address], args].concat());
        let (exit, text) = code_and_text(&output);
        assert!(exit == code && text.contains(part), "{text}");
    }
    let (code, text) = code_and_text(&run(&["qp", "modify", "9", "-d", address, "--delta", "3"]));
    assert!(code == 3 && text.contains("there is no QP 9"), "{text}");

    let (code, text) = code_and_text(&run(&["qp", "trace", "2", "-d", address]));
    assert!(code == 3 && text.contains("QP 2 is not traced"), "{text}");
    assert_eq!(command(&["qp", "trace", "2", "--start"])["ok"], true);
    let trace = command(&["qp", "trace", "2"]);
    let paths = trace["paths"].as_array().unwrap();
    assert_eq!((paths.len(), paths[63]["vp"].as_u64()), (64, Some(49215)));
    assert_eq!(trace["other"]["sent"].as_u64(), Some(0));
    let trace = command(&["qp", "trace", "2", "--nonzero"]);
    assert_eq!(trace["paths"].as_array().map(Vec::len), Some(0));
}

fn moderation_of_another_process(address: &str) {
    let moderation = |args: &[&str]| {
        let common = ["moderation", "-d", address, "--json"];
        json(&run(&[&common, args].concat()))["interval_us"].to_string()
    };
    let off = "[0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0]";
    assert_eq!(moderation(&[]), off);
    let one = moderation(&["--vector", "2", "--interval-us", "50"]);
    assert_eq!(
        one, "[0.0,0.0,50.048,0.0,0.0,0.0,0.0,0.0]",
        "whole ticks of 64 ns"
    );
    let info = run(&["info", "-d", address]);
    let text = String::from_utf8_lossy(&info.stdout).into_owned();
    for line in [
        "completion_modes   polling, events",
        "vectors            8",
        "moderation_us      0.0, 0.0, 50.048, 0.0",
        "hugepages          ",
    ] {
        assert!(
            text.lines().any(|shown| shown.starts_with(line)),
            "{line}: {text}"
        );
    }
    let shown = run(&["moderation", "-d", address, "--vector", "2"]);
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert_eq!(
        text,
        "vector 2        50.048 us\ninterrupts raised 0, held 0\n"
    );
    assert_eq!(moderation(&["--interval-us", "0"]), off);
    for (text, args) in [
        ("between 0 and 4194.24 us", &["--interval-us", "4195"][..]),
        (
            "it must lie between 0 and 7",
            &["--interval-us", "1", "--vector", "8"],
        ),
        ("write microseconds", &["--interval-us", "fast"]),
    ] {
        let refused = run(&[&["moderation", "-d", address], args].concat());
        let (code, error) = code_and_text(&refused);
        assert!(
            code == 2 && error.contains(text),
            "{args:?}: {code}, {error}"
        );
    }
}

#[test]
fn moderation_needs_somebody_who_has_the_card() {
    let rack = Rack::new(1, Traits::default());
    let address = rack.address(0);
    let args = ["moderation", "-d", &address, "--interval-us", "5"];
    let (code, text) = code_and_text(&run(&args));
    assert!(
        code == 3 && text.contains("give --moderation-us to that process"),
        "{text}"
    );
    let mut holder = Background::start(&["hold", "-d", &address, "--moderation-us", "6.4"]);
    holder.line("is held");
    let shown = json(&run(&["moderation", "-d", &address, "--json"]));
    assert_eq!(shown["interval_us"][7], 6.4);
    holder.kill();
    let shown = json(&run(&["info", "-d", &address, "--json"]));
    assert_eq!(shown["moderation_us"][7], 0.0, "its end resets the card");
}

#[test]
fn a_card_of_version_1_0_works_without_moderation() {
    let rack = Rack::new(
        1,
        Traits {
            version: 0x0001_0000,
            ..Traits::default()
        },
    );
    let address = rack.address(0);
    let info = json(&run(&["info", "-d", &address, "--json"]));
    assert_eq!(
        (info["version"].as_str(), info["moderation_us"].to_string()),
        (Some("1.0"), "[]".to_owned())
    );
    let args = ["hold", "-d", &address, "--seconds", "0"];
    assert_eq!(code_and_text(&run(&args)).0, 0);
    let (code, text) = code_and_text(&run(&[&args[..], &["--moderation-us", "5"]].concat()));
    assert!(
        code == 3 && text.contains("this card cannot moderate interrupts"),
        "{text}"
    );
}

#[test]
fn transfers_by_events_arrive_whole() {
    let rack = Rack::new(2, Traits::default());
    let files = Directory::new();
    let (from, to) = (files.path("from"), files.path("to"));
    fs::write(&from, pattern(8, 3_000_001)).unwrap();
    let both = ["-e", "--moderation-us", "20"];
    let transfer = Transfer {
        rack: &rack,
        sender: &both,
        receiver: &both,
    };
    let started = Instant::now();
    let (received, sent) = transfer.run(&from, &to);
    let wall = started.elapsed();
    assert_eq!(received.0, 0, "{}", received.2);
    let received: Value = serde_json::from_str(&received.1).unwrap();
    assert_eq!(fs::read(&to).unwrap(), fs::read(&from).unwrap());
    for result in [&received, &json(&sent)] {
        assert_eq!(result["completion_mode"], "events");
        // Completions of 12 chunks, and one look each 20 ms.
        let limit = 12 + wall.as_millis() as u64 / 20 + 2;
        let looks = result["looks"].as_u64().unwrap();
        assert!(
            looks > 0 && looks <= limit,
            "{looks} looks, at most {limit}"
        );
    }
}

#[test]
fn bandwidth_by_events() {
    let rack = Rack::new(2, Traits::default());
    let (a, b) = (rack.address(0), rack.address(1));
    let server = [
        "bench",
        "write-bw",
        "-d",
        &b,
        "-p",
        "0",
        "--bind",
        "127.0.0.1",
    ];
    let mut server = Background::start(&server);
    let port = server.port();
    let args = [
        "bench",
        "write-bw",
        "-d",
        &a,
        "-p",
        &port,
        "-n",
        "200",
        "-t",
        "16",
        "--events",
        "--json",
        "127.0.0.1",
    ];
    let started = Instant::now();
    let result = json(&run(&args));
    assert_eq!(server.end().0, 0);
    assert_eq!(
        (
            result["completion_mode"].as_str(),
            result["results"][0]["iterations"].as_u64()
        ),
        (Some("events"), Some(200))
    );
    let limit = 200 + started.elapsed().as_millis() as u64 / 20 + 2;
    assert!(result["looks"].as_u64().unwrap() <= limit, "{result}");
}

#[test]
fn transfers_through_huge_pages() {
    let rack = Rack::new(2, Traits::default());
    let files = Directory::new();
    let (from, to) = (files.path("from"), files.path("to"));
    fs::write(&from, pattern(9, 3_000_001)).unwrap();
    let both = ["--hugepages", "2M"];
    let transfer = Transfer {
        rack: &rack,
        sender: &both,
        receiver: &both,
    };
    // Two for each side.
    let Some(reserved) = Reserved::or_skip(4) else {
        return;
    };
    let (received, sent) = transfer.run(&from, &to);
    assert_eq!(received.0, 0, "{}", received.2);
    let received: Value = serde_json::from_str(&received.1).unwrap();
    assert_eq!(fs::read(&to).unwrap(), fs::read(&from).unwrap());
    for result in [&received, &json(&sent)] {
        assert_eq!(result["buffer_page_bytes"], 2 << 20);
    }
    let info = json(&run(&["info", "-d", &rack.address(0), "--json"]));
    assert_eq!(info["hugepages"]["2M"]["free"], reserved.free());
    // As many pages as there are, and one more.
    let bench = |pages: u64| {
        let (a, b) = (rack.address(0), rack.address(1));
        let server = [
            "bench",
            "write-bw",
            "-d",
            &b,
            "-p",
            "0",
            "--bind",
            "127.0.0.1",
        ];
        let mut server = Background::start(&server);
        let (port, size) = (server.port(), format!("{}M", 2 * pages));
        let client = [
            "bench",
            "write-bw",
            "-d",
            &a,
            "-p",
            &port,
            "-n",
            "3",
            "-s",
            &size,
            "--json",
            "127.0.0.1",
        ];
        (run(&[&client[..], &both].concat()), server.end())
    };
    let free = reserved.free();
    let (client, _) = bench(free);
    assert_eq!(json(&client)["buffer_page_bytes"], 2 << 20);
    let (client, (code, _, error)) = bench(free + 1);
    let text = String::from_utf8_lossy(&client.stdout);
    let wanted = format!("{} needed, {free} of", free + 1);
    assert_eq!(client.status.code(), Some(1), "{text}");
    assert!(
        text.contains(&wanted) && text.contains("nr_hugepages"),
        "{text}"
    );
    assert!(
        code == 4 && error.contains(&wanted),
        "the peer hears why: {code} {error}"
    );
}

#[test]
fn operators_see_and_change_what_another_process_has() {
    let rack = Rack::new(1, Traits::default());
    let address = rack.address(0);
    let mut holder = Background::start(&["hold", "-d", &address]);
    holder.line("is held");

    let info = json(&run(&["info", "-d", &address, "--json"]));
    assert!(
        info["holder"]
            .as_str()
            .unwrap()
            .starts_with("mprdma hold (process"),
        "{info}"
    );
    assert_eq!(
        (info["qps"].as_u64(), info["version"].as_str()),
        (Some(1024), Some("1.2"))
    );
    assert_eq!(
        (info["mac"].as_str(), info["ipv4"].as_str()),
        (Some("02:00:00:00:00:01"), Some("10.0.0.1"))
    );

    let made = json(&run(&[
        "qp", "create", "-d", &address, "--json", "--mtu", "1024",
    ]));
    assert_eq!(
        (made["qpn"].as_u64(), made["temporary"].as_bool()),
        (Some(2), Some(false))
    );
    let list = json(&run(&["qp", "list", "-d", &address, "--json"]));
    assert_eq!(
        (list.as_array().unwrap().len(), list[0]["path_mtu"].as_u64()),
        (1, Some(1024))
    );
    let shown = json(&run(&["qp", "show", "2", "-d", &address, "--json"]));
    assert_eq!(
        (shown["state"].as_str(), shown["cwnd"].as_f64()),
        (Some("INIT"), Some(16.5))
    );
    parameters_and_telemetry(&address);
    moderation_of_another_process(&address);
    let (code, text) = code_and_text(&run(&["qp", "show", "9", "-d", &address]));
    assert!(
        code == 3 && text.contains("there is no such object"),
        "{text}"
    );
    let (code, text) = code_and_text(&run(&["qp", "create", "-d", &address, "--mtu", "1500"]));
    assert!(code == 2 && text.contains("path MTU 1500"), "{text}");
    let stats = json(&run(&["stats", "-d", &address, "--json"]));
    assert_eq!(
        (
            stats["tx_frames"].as_u64(),
            stats.as_object().unwrap().len()
        ),
        (Some(0), Counter::ALL.len())
    );
    let made = json(&run(&[
        "qp",
        "create",
        "-d",
        &address,
        "--json",
        "--vp-recycle",
        "off",
        "--retry-cnt",
        "3",
    ]));
    let qpn = made["qpn"].to_string();
    let shown = json(&run(&["qp", "show", &qpn, "-d", &address, "--json"]));
    assert_eq!(
        (
            shown["parameters"]["vp_recycle"].as_bool(),
            shown["parameters"]["retry_cnt"].as_u64()
        ),
        (Some(false), Some(3))
    );
    json(&run(&["qp", "destroy", "2", "-d", &address, "--json"]));
    let (code, text) = code_and_text(&run(&["qp", "destroy", "2", "-d", &address]));
    assert!(code == 3 && text.contains("there is no QP 2"), "{text}");

    let files = Directory::new();
    let file = files.path("file");
    let (code, text) = code_and_text(&run(&["recv-file", "-d", &address, file.to_str().unwrap()]));
    assert!(
        code == 3 && text.contains("in use by mprdma hold (process"),
        "{text}"
    );
    let directory = rack.directory.path("");
    let list = json(&run(&["devices", "--json", directory.to_str().unwrap()]));
    assert_eq!(list[0]["address"].as_str(), Some(address.as_str()));
    assert!(
        list[0]["holder"].is_string() && list[0]["link_gbps"] == 100.0,
        "{list}"
    );

    // A killed holder leaves its socket behind; that does not stop the next one.
    holder.kill();
    let info = json(&run(&["info", "-d", &address, "--json"]));
    assert!(info["holder"].is_null());
    let made = json(&run(&["qp", "create", "-d", &address, "--json"]));
    assert_eq!(made["temporary"].as_bool(), Some(true));
    assert_eq!(
        json(&run(&["qp", "list", "-d", &address, "--json"]))
            .as_array()
            .unwrap()
            .len(),
        0
    );
    assert_eq!(
        json(&run(&["hold", "-d", &address, "--seconds", "0", "--json"]))["ok"],
        true
    );
}

#[test]
fn wrong_arguments_and_devices_have_their_exit_codes() {
    let rack = Rack::new(1, Traits::default());
    let good = rack.address(0);
    let none = format!("{good}.not");
    let file = "/nonexistent/file";
    let cases: [(i32, &str, &[&str]); 19] = [
        (2, "Usage", &[]),
        (2, "unrecognized subcommand", &["fly"]),
        (2, "is no device address", &["info", "-d", "nic0"]),
        (
            2,
            "invalid value 'x'",
            &["bench", "write-bw", "-d", &good, "-s", "x"],
        ),
        (
            2,
            "--size must lie between",
            &["bench", "write-bw", "-d", &good, "-s", "4G"],
        ),
        (
            2,
            "--size must lie between 1 and 16777216 bytes for READs at MTU 256",
            &["bench", "read-bw", "-d", &good, "-m", "256", "-s", "17M"],
        ),
        (
            2,
            "the largest completion queue",
            &["bench", "write-bw", "-d", &good, "-q", "300"],
        ),
        (
            2,
            "cannot be used with",
            &["bench", "write-bw", "-d", &good, "-a", "-s", "1"],
        ),
        (
            2,
            "write a time",
            &["bench", "write-bw", "-d", &good, "-D", "soon"],
        ),
        (
            2,
            "path MTU 1500 is none of",
            &["bench", "write-bw", "-d", &good, "-m", "1500"],
        ),
        (
            2,
            "vp_count is 0; it must lie between 1 and 16384",
            &["bench", "write-bw", "-d", &good, "--vp-count", "0"],
        ),
        (
            2,
            "does not go with",
            &["bench", "write-bw", "-d", &good, "--ip", "fd00::1"],
        ),
        (
            2,
            "possible values: 2M, 1G",
            &["bench", "write-bw", "-d", &good, "--hugepages", "4M"],
        ),
        (
            2,
            "no MAC address",
            &[
                "bench",
                "write-bw",
                "-d",
                "vfio-user:/nonexistent/card.sock",
            ],
        ),
        (
            1,
            "cannot read /nonexistent/file",
            &["send-file", "-d", &good, file, "localhost"],
        ),
        (
            1,
            "cannot write /nonexistent/file",
            &["recv-file", "-d", &good, file],
        ),
        (1, "cannot look into", &["devices", "/nonexistent"]),
        (3, "no such device", &["info", "-d", &none]),
        (3, "no such device", &["stats", "-d", "ffff:ff:1f.7"]),
    ];
    for (code, text, args) in cases {
        let (got, error) = code_and_text(&run(args));
        assert!(
            got == code && error.contains(text),
            "{args:?}: {got}, {error}"
        );
    }
    let help = run(&["--help"]);
    assert!(String::from_utf8_lossy(&help.stdout).contains("Exit codes: 0 done"));
    let failure = run(&["info", "--json", "-d", &none]);
    let value: Value = serde_json::from_slice(&failure.stdout).unwrap();
    assert!(
        value["ok"] == false
            && value["exit_code"] == 3
            && value["error"].as_str().unwrap().contains("no such device")
    );
}

#[test]
fn a_card_of_another_version_is_refused() {
    let rack = Rack::new(
        1,
        Traits {
            version: 0x0007_0000,
            ..Traits::default()
        },
    );
    let (code, text) = code_and_text(&run(&["info", "-d", &rack.address(0)]));
    assert!(
        code == 3 && text.contains("the card speaks version 7.0, the driver 1.2"),
        "{text}"
    );
}
