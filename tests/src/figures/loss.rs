//! Goodput of one queue pair while one of its paths loses packets.

use super::setting::{port_by, Rules, Setting, BAD_SPINE};
use anyhow::Result;
use mprdma_sim::golden::{self, Flow, FlowOutcome, Latency, Load};
use mprdma_sim::time::{Ps, US};

/// Losses that are measured.
pub const LOSSES: [f64; 7] = [0.0, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1];
/// Start of a run that is not measured, in hundredths.
const LEFT_OUT: u64 = 25;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The network.
    pub setting: Setting,
    /// How it is used.
    pub rules: Rules,
    /// Probability that a packet is lost on its way up to the bad spine.
    pub loss: f64,
    /// ACKs on the same path are lost too.
    pub both: bool,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Payload rate, Gb/s.
    pub gbps: f64,
    /// The model's counters.
    pub flow: FlowOutcome,
    /// Part of the packets by each spine.
    pub shares: Vec<f64>,
}

/// Runs the golden model for `time`.
pub fn on_model(case: &Case, time: Ps, seed: u64) -> Result<Measured> {
    let Setting { mtu, .. } = case.setting;
    let link = Setting::bad_link(case.both, &format!("loss = {:?}", case.loss));
    let scenario = case.setting.scenario(case.setting.ecn(), &link)?;
    let flow = Flow {
        from: 0,
        to: 1,
        sender: case.rules.sender(port_by(&scenario, seed, BAD_SPINE)?),
        mtu,
        slots: case.rules.slots(),
        load: Load::Endless,
    };
    let every = time * LEFT_OUT / 100;
    let mut out = golden::run(&scenario, &[flow], Latency::default(), time, every, seed);
    let total: u64 = out
        .fabric
        .paths
        .iter()
        .filter(|p| p.from == "leaf0")
        .map(|p| p.packets)
        .sum();
    let paths = out.fabric.paths.iter().filter(|p| p.from == "leaf0");
    Ok(Measured {
        gbps: out.gbps(0, mtu, 1, out.samples.len() - 1),
        shares: paths.map(|p| p.packets as f64 / total as f64).collect(),
        flow: out.flows.remove(0),
    })
}

/// Mean of several seeds.
pub fn mean_on_model(case: &Case, seeds: u64) -> Result<(f64, Measured)> {
    let mut sum = 0.0;
    let mut last = None;
    for seed in 1..=seeds {
        let measured = on_model(case, 20_000 * US, seed)?;
        sum += measured.gbps;
        last = Some(measured);
    }
    Ok((sum / seeds as f64, last.expect("at least one seed")))
}
