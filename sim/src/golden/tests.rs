//! The model over the demo's network.

use super::*;
use std::path::Path;

fn demo(extra: &str) -> Scenario {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/demo.toml");
    let text = std::fs::read_to_string(&file).unwrap() + extra;
    Scenario::parse(&text, &file).unwrap()
}

/// Packets of 64 MiB.
const STREAM: u32 = 16_384;

#[test]
fn four_paths_carry_all_of_it_in_even_shares() {
    for seed in 1..4 {
        let out = stream(&demo(""), &Setting::new(4096, STREAM), seed);
        let good = out.flow.delivered == u64::from(STREAM)
            && out.steady_gbps > 90.0
            && out.flow.resent() == 0;
        let even = out.shares.len() == 4 && out.shares.iter().all(|s| (0.2..0.3).contains(s));
        assert!(
            good && even && out.flow.max_distance() > 0,
            "seed {seed}: {out:?}"
        );
    }
}

#[test]
fn one_path_carries_a_quarter() {
    let mut setting = Setting::new(4096, STREAM / 4);
    setting.sender.vp_count = 1;
    let out = stream(&demo(""), &setting, 1);
    assert!(
        (20.0..25.0).contains(&out.steady_gbps) && out.flow.reordered() == 0,
        "{out:?}"
    );
}

#[test]
fn a_slow_spine_gets_little_and_nothing_is_lost() {
    let slow = "\n[[link]]\nfrom = \"leaf*\"\nto = \"spine2\"\nboth = true\nrate_gbps = 6.25\n";
    let out = stream(&demo(slow), &Setting::new(4096, STREAM), 1);
    let good = out.flow.delivered == u64::from(STREAM) && out.fabric.drops == 0;
    assert!(
        good && out.shares[2] < 0.12 && out.steady_gbps > 65.0,
        "{out:?}"
    );
}

#[test]
fn a_lossy_spine_is_survived() {
    let lossy = "\n[[link]]\nfrom = \"leaf0\"\nto = \"spine1\"\nloss = 0.01\n";
    let out = stream(&demo(lossy), &Setting::new(4096, STREAM), 1);
    assert!(
        out.flow.delivered == u64::from(STREAM) && out.flow.resent() > 0,
        "{out:?}"
    );
    println!("{} Gb/s with 1 % loss on one path", out.steady_gbps);
}
