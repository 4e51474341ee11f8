//! Goodput against the ECN threshold K: the rule K <= delta / n.

use super::run::{run, Engine, Request, Tally};
use super::setting::{Rules, Setting};
use anyhow::Result;
use mprdma_sim::golden::{Flow, Load};
use mprdma_sim::time::Ps;

/// Thresholds that are measured, packets.
pub const THRESHOLDS: [usize; 9] = [1, 2, 3, 4, 5, 8, 12, 20, 32];

/// Setting C with four paths, and the same host with eight paths of half the rate.
#[must_use]
pub fn setting(paths: usize) -> Setting {
    Setting {
        paths,
        path_gbps: super::setting::C.host_gbps / paths as u32,
        ..super::setting::C
    }
}

/// Goodput and counts of one queue pair with the published rules.
pub fn measure(
    engine: Engine,
    setting: &Setting,
    rules: Rules,
    threshold: usize,
    time: Ps,
    seed: u64,
) -> Result<(f64, Tally)> {
    let scenario = setting.scenario(threshold, "")?;
    let flow = Flow {
        from: 0,
        to: 1,
        sender: rules.sender(mprdma_spec::params::VP_BASE.default as u16),
        mtu: setting.mtu,
        slots: rules.slots(),
        load: Load::Endless,
    };
    let seen = run(
        engine,
        &Request {
            scenario: &scenario,
            flows: &[flow],
            changes: &[],
            end: time,
            every: time / 4,
            seed,
        },
    )?;
    Ok((seen.gbps(0, setting.mtu, 1, 4), seen.tallies[0]))
}
