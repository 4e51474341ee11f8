//! Every block of the registry under lint, and the generator program.

use mprdma_hw::lint::{lint, lint_sources};
use mprdma_hw::{registry, with_big_stack};
use mprdma_spec::config::SIM;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

#[test]
fn every_block_is_clean() {
    with_big_stack(|| {
        let mut dirty = vec![];
        for info in registry::blocks() {
            let block = info.build(&SIM).unwrap();
            let report = lint(block.as_ref(), info.name).unwrap();
            if !report.is_clean() {
                dirty.push(report.to_string());
            }
        }
        assert!(dirty.is_empty(), "{}", dirty.join("\n"));
    });
}

#[test]
fn no_kernel_has_a_match_guard() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let findings = lint_sources(&sources).unwrap();
    assert!(findings.is_empty(), "{findings:?}");
}

fn generator(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mprdma-gen"))
        .args(arguments)
        .output()
        .unwrap()
}

fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&dir);
    dir
}

#[test]
fn the_generator_writes_verilog_and_manifest() {
    let dir = scratch("generator");
    let out = dir.to_str().unwrap();
    let output = generator(&["--block", "registers", "--out", out]);
    assert!(output.status.success(), "{output:?}");
    let verilog = std::fs::read_to_string(dir.join("registers.sv")).unwrap();
    let manifest = std::fs::read_to_string(dir.join("registers.json")).unwrap();
    assert!(verilog.contains("\nmodule registers ("));

    let json: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    assert_eq!(json["top"], "registers");
    assert_eq!(json["config"]["qp_log2"], 10);
    let id = mprdma_hw::nic::control::registers::build_id(&mprdma_spec::config::SIM);
    assert_eq!(json["csr_build_id"], format!("{id:016x}"));
    for half in [id & 0xffff_ffff, id >> 32] {
        // The constants that the block's registers answer with.
        assert!(verilog.contains(&format!("32'h{half:x}")), "{half:x}");
    }
    let ports = json["ports"].as_array().unwrap();
    let clock = ports.iter().find(|port| port["name"] == "clock").unwrap();
    assert_eq!(clock["clock"], true);
    // Each field follows the one before it.
    for record in json["records"].as_array().unwrap() {
        let mut low = 0;
        for field in record["fields"].as_array().unwrap() {
            assert_eq!(field["low"], low, "{record}");
            low += field["bits"].as_u64().unwrap();
        }
        assert_eq!(record["bits"], low);
    }

    // The same configuration gives the same bytes, on standard output too.
    let again = generator(&["--block", "registers"]);
    assert_eq!(String::from_utf8(again.stdout).unwrap(), verilog);
}

#[test]
fn the_generator_reads_configuration_files() {
    let dir = scratch("configurations");
    std::fs::create_dir_all(&dir).unwrap();
    let config = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        generator(&["--block", "mr_table", "--config", path.to_str().unwrap()])
    };
    let sizes = "cq_log2 = 6\neq_log2 = 0\nmr_log2 = 8\nbitmap_slots = 128\n";
    let good = config(
        "good.toml",
        &format!("name = \"mine\"\nqp_log2 = 8\n{sizes}"),
    );
    assert!(good.status.success(), "{good:?}");
    for (file, text, message) in [
        ("unknown.toml", format!("name = \"x\"\nqp_log2 = 8\nspeed = 9\n{sizes}"), "unknown field `speed`"),
        ("missing.toml", sizes.to_string(), "missing field `name`"),
        ("name.toml", format!("name = \"a b\"\nqp_log2 = 8\n{sizes}"), "`name` must be letters"),
        (
            "size.toml",
            "name = \"x\"\nqp_log2 = 8\ncq_log2 = 6\neq_log2 = 0\nmr_log2 = 3\nbitmap_slots = 128\n".into(),
            "`mr_log2` = 3 is not built into this generator",
        ),
    ] {
        let output = config(file, &text);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.contains(message), "{file}: {error}");
    }
}

#[test]
fn the_generator_names_what_is_missing() {
    for (arguments, message) in [
        (
            &["--block", "nonsense"][..],
            "no block `nonsense`; `--list` shows them",
        ),
        (
            &["--block", "registers", "--config", "big"][..],
            "no configuration `big`",
        ),
        (
            &["--block", "registers", "--config", "absent.toml"][..],
            "reading absent.toml",
        ),
        (&[][..], "--out"),
    ] {
        let output = generator(arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && error.contains(message),
            "{arguments:?}: {error}"
        );
    }
}

#[test]
fn the_generator_lists_blocks() {
    let output = generator(&["--list"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for info in registry::blocks() {
        assert!(text.contains(info.name));
    }
    assert!(text.contains("1024 queue pairs"));
}
