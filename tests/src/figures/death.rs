//! A path dies while a queue pair uses it, and comes back.

use super::run::{run, Engine, Request};
use super::setting::{port_by, Rules, Setting, BAD_SPINE, RTT};
use anyhow::Result;
use mprdma_sim::golden::{Change, Flow, Load};
use mprdma_sim::scenario::LinkRule;
use mprdma_sim::time::{Ps, US};
use mprdma_spec::params;

/// Time between two looks: 2 RTTs.
const WINDOW: Ps = 2 * RTT;
/// When the path dies: the window has settled.
const DIES: Ps = 400 * US;
/// How long it stays dead.
const DEAD: Ps = 600 * US;
/// What is looked at after its return.
const AFTER: Ps = 300 * RTT;
/// Windows over which a payload rate is taken: 10 RTTs, since completions in order come in leaps while a hole is open.
const RATE_WINDOWS: usize = 5;
/// Windows over which the share of a path is taken: 20 RTTs.
const SHARE_WINDOWS: usize = 10;
/// Slow unit of the protocol clock, in which the floor of the retransmission timeout counts.
const SLOW: Ps = 4096 * 1000;

/// What was seen.
#[derive(Clone, Debug)]
pub struct Death {
    /// Payload rate before, Gb/s.
    pub before: f64,
    /// Payload rate over the second half of the dead time.
    pub dead: f64,
    /// Payload rate from the [`deadline`] to the return, Gb/s.
    pub from_deadline: f64,
    /// Time from the death until 10 RTTs begin that carry 90 % of three paths' rate.
    pub recovered_after: Option<Ps>,
    /// Least payload rate of a window of 2 RTTs.
    pub least: f64,
    /// Time from the return until the path carries 15 % of the packets of 20 RTTs.
    pub used_after: Option<Ps>,
    /// Share of the path at the end.
    pub share_at_end: f64,
    /// Timeouts of the whole run.
    pub timeouts: u64,
    /// Payload rate of each window.
    pub windows: Vec<f64>,
}

impl Death {
    /// Whether goodput is back at 90 % of what three paths allow when it has to be.
    #[must_use]
    pub fn recovered(&self, setting: &Setting) -> bool {
        self.from_deadline >= 0.9 * three_paths(setting)
            && self.recovered_after.is_some_and(|time| time <= deadline())
    }
}

/// What three of four paths allow: three quarters of the payload rate of the paths.
#[must_use]
pub fn three_paths(setting: &Setting) -> f64 {
    let wire = f64::from(setting.mtu) / f64::from(setting.mtu + 82 + 24);
    f64::from(setting.path_gbps) * (setting.paths - 1) as f64 * wire
}

/// Latest time after the death at which goodput must be back: the shortest timeout and 10 RTTs.
#[must_use]
pub const fn deadline() -> Ps {
    params::RTO_FLOOR.default * SLOW + 10 * RTT
}

/// Kills the way from leaf 0 to the bad spine, with `both` also the way back, which ACKs of packets on other paths use.
pub fn measure(engine: Engine, setting: &Setting, both: bool, seed: u64) -> Result<Death> {
    let scenario = setting.scenario(setting.ecn(), "")?;
    let flow = Flow {
        from: 0,
        to: 1,
        sender: Rules::Extended.sender(port_by(&scenario, seed, BAD_SPINE)?),
        mtu: setting.mtu,
        slots: Rules::Extended.slots(),
        load: Load::Endless,
    };
    let change = |at: Ps, down: bool| Change {
        at,
        rule: LinkRule {
            from: "leaf0".into(),
            to: format!("spine{BAD_SPINE}"),
            both,
            ..LinkRule::default()
        },
        down: Some(down),
    };
    let seen = run(
        engine,
        &Request {
            scenario: &scenario,
            flows: &[flow],
            changes: &[change(DIES, true), change(DIES + DEAD, false)],
            end: DIES + DEAD + AFTER,
            every: WINDOW,
            seed,
        },
    )?;
    let window = |time: Ps| (time / WINDOW) as usize;
    let (dies, back) = (window(DIES), window(DIES + DEAD));
    let rate = |first, last| seen.gbps(0, setting.mtu, first, last);
    let wanted = 0.9 * three_paths(setting);
    let recovered = (dies..back - RATE_WINDOWS)
        .find(|&first| rate(first, first + RATE_WINDOWS) >= wanted)
        .map(|first| (first - dies) as Ps * WINDOW);
    let due = dies + window(deadline()) + 1;
    let last = seen.samples.len() - 1;
    let used = (back + SHARE_WINDOWS..=last)
        .find(|&at| seen.share(BAD_SPINE, at - SHARE_WINDOWS, at) >= 0.15)
        .map(|at| (at - back) as Ps * WINDOW);
    let windows: Vec<f64> = (1..=last).map(|at| rate(at - 1, at)).collect();
    Ok(Death {
        before: rate(dies / 2, dies),
        dead: rate((dies + back) / 2, back),
        from_deadline: rate(due, back),
        recovered_after: recovered,
        least: windows[dies..back]
            .iter()
            .copied()
            .fold(f64::INFINITY, f64::min),
        used_after: used,
        share_at_end: seen.share(BAD_SPINE, last - 2 * SHARE_WINDOWS, last),
        timeouts: seen.tallies[0].timeouts,
        windows,
    })
}
