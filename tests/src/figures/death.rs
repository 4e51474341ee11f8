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
/// Windows over which rates and shares are taken: 20 RTTs.
const LONG: usize = 10;
/// Slow unit of the protocol clock, in which the floor of the retransmission timeout counts.
const SLOW: Ps = 4096 * 1000;

/// What was seen.
#[derive(Clone, Debug)]
pub struct Death {
    /// Payload rate before, Gb/s.
    pub before: f64,
    /// Rate of payload into the peer's memory over the 20 RTTs from the [`deadline`], Gb/s: what is judged.
    pub sustained: f64,
    /// Payload rate of completions in those 20 RTTs, Gb/s: they are in order, so a hole that is open at the end takes what
    /// is placed behind it out of them.
    pub completed: f64,
    /// Payload rate from the [`deadline`] to the return, Gb/s.
    pub from_deadline: f64,
    /// Time from the death until 20 RTTs begin that place 90 % of three paths' rate.
    pub recovered_after: Option<Ps>,
    /// Least payload rate of a window of 2 RTTs while the path is dead.
    pub least: f64,
    /// Share of the least used path that lives, from the [`deadline`] to the return; a third is fair.
    pub least_live_share: f64,
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
    /// Whether goodput is at 90 % of what three paths allow when it has to be.
    #[must_use]
    pub fn recovered(&self, setting: &Setting) -> bool {
        self.sustained >= 0.9 * three_paths(setting)
    }
}

/// Head of the table.
pub const HEAD: &str = "\
| seed | before | least window | 20 RTTs at 90 % begin after | 20 RTTs from the time allowed: placed | completed | to the return | least share of a live path | timeouts | used again after | its share at the end |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |";

/// The row of a seed.
#[must_use]
pub fn row(seed: u64, setting: &Setting, d: &Death) -> String {
    let time = |time: Option<Ps>| time.map_or("never".into(), |t| format!("{} us", t / US));
    format!(
        "| {seed} | {:.1} | {:.1} | {} | {:.1}{} | {:.1} | {:.1} | {:.3} | {} | {} | {:.3} |",
        d.before,
        d.least,
        time(d.recovered_after),
        d.sustained,
        if d.recovered(setting) { "" } else { " BELOW" },
        d.completed,
        d.from_deadline,
        d.least_live_share,
        d.timeouts,
        time(d.used_after),
        d.share_at_end,
    )
}

/// Mean, worst case and misses of some seeds.
#[must_use]
pub fn summary(setting: &Setting, deaths: &[Death]) -> String {
    let of = |rate: fn(&Death) -> f64| {
        let rates = deaths.iter().map(rate);
        let mean = rates.clone().sum::<f64>() / deaths.len() as f64;
        let least = rates.fold(f64::INFINITY, f64::min);
        format!("mean {mean:.1}, worst {least:.1}")
    };
    let recovered = deaths.iter().filter(|d| d.recovered(setting)).count();
    let back = deaths.iter().map(|d| d.recovered_after.unwrap_or(Ps::MAX));
    let used = deaths.iter().map(|d| d.used_after.unwrap_or(Ps::MAX));
    format!(
        "20 RTTs from the time allowed: placed {}; completed {}; to the return: {}; of {} seeds {} are back at 90 % in time, {recovered} at \
         90 % from then on; {} used again in time",
        of(|d| d.sustained),
        of(|d| d.completed),
        of(|d| d.from_deadline),
        deaths.len(),
        back.filter(|&time| time <= deadline()).count(),
        used.filter(|&time| time <= 200 * RTT).count(),
    )
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
    let placed = |first, last| seen.placed_gbps(0, setting.mtu, first, last);
    let wanted = 0.9 * three_paths(setting);
    let recovered = (dies..=back - LONG)
        .find(|&first| placed(first, first + LONG) >= wanted)
        .map(|first| (first - dies) as Ps * WINDOW);
    let due = dies + window(deadline()) + 1;
    let last = seen.samples.len() - 1;
    let used = (back + LONG..=last)
        .find(|&at| seen.share(BAD_SPINE, at - LONG, at) >= 0.15)
        .map(|at| (at - back) as Ps * WINDOW);
    let windows: Vec<f64> = (1..=last).map(|at| rate(at - 1, at)).collect();
    Ok(Death {
        before: rate(dies / 2, dies),
        sustained: placed(due, due + LONG),
        completed: rate(due, due + LONG),
        from_deadline: rate(due, back),
        recovered_after: recovered,
        least: windows[dies..back]
            .iter()
            .copied()
            .fold(f64::INFINITY, f64::min),
        least_live_share: (0..setting.paths)
            .filter(|&spine| spine != BAD_SPINE)
            .map(|spine| seen.share(spine, due, back))
            .fold(1.0, f64::min),
        used_after: used,
        share_at_end: seen.share(BAD_SPINE, last - 2 * LONG, last),
        timeouts: seen.tallies[0].timeouts,
        windows,
    })
}
