//! Goodput of one queue pair while one of its paths loses packets.

use super::run::{run, Engine, Observed, Request, Tally};
use super::setting::{port_by, Rules, Setting, BAD_SPINE};
use anyhow::Result;
use mprdma_sim::golden::{Flow, Load};
use mprdma_sim::time::Ps;
use rayon::prelude::*;
use serde_json::{json, Value};

/// Losses that are measured.
pub const LOSSES: [f64; 7] = [0.0, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1];

/// Floor of the retransmission timeout, in units of 4.096 us: as near as they come to the 30 us of the simulation that the
/// wanted figures are from. It matters to the single path, whose recoveries take about as long.
pub const RTO_FLOOR: u16 = 7;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The network.
    pub setting: Setting,
    /// How it is used.
    pub rules: Rules,
    /// Probability that a packet is lost on its way up to the bad spine.
    pub loss: f64,
    /// Packets on the way back, ACKs that is, are lost too.
    pub both: bool,
    /// Floor of the retransmission timeout in units of 4.096 us.
    pub rto_floor: u16,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Payload rate, Gb/s, of all but the first quarter of the time.
    pub gbps: f64,
    /// Counts over the whole time.
    pub tally: Tally,
    /// Part of the packets that took the bad spine.
    pub share: f64,
    /// Seeds that it is a mean of.
    pub seeds: u64,
}

/// Runs a case for `time`.
pub fn measure(engine: Engine, case: &Case, time: Ps, seed: u64) -> Result<Measured> {
    let link = Setting::bad_link(case.both, &format!("loss = {:?}", case.loss));
    let scenario = case.setting.scenario(case.setting.ecn(), &link)?;
    let mut sender = case.rules.sender(port_by(&scenario, seed, BAD_SPINE)?);
    sender.rto_floor = case.rto_floor;
    let flow = Flow {
        from: 0,
        to: 1,
        sender,
        mtu: case.setting.mtu,
        slots: case.rules.slots(),
        load: Load::Endless,
    };
    let seen: Observed = run(
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
    Ok(Measured {
        gbps: seen.gbps(0, case.setting.mtu, 1, 4),
        tally: seen.tallies[0],
        share: seen.share(BAD_SPINE, 0, 4),
        seeds: 1,
    })
}

/// How sure a [`mean`] has to be.
#[derive(Clone, Copy, Debug)]
pub struct Precision {
    /// Its standard error is at most this part of it,
    pub error: f64,
    /// or it is four standard errors away from this rate, Gb/s.
    pub limit: Option<f64>,
}

impl Precision {
    fn reached(&self, runs: &[Measured]) -> bool {
        let mean = average(runs, |m| m.gbps);
        let squares = average(runs, |m| (m.gbps - mean).powi(2));
        let error = (squares / (runs.len() as f64 - 1.0)).sqrt();
        let decided = |limit: f64| (mean - limit).abs() >= 4.0 * error;
        error <= self.error * mean || self.limit.is_some_and(decided)
    }
}

fn average(runs: &[Measured], value: impl Fn(&Measured) -> f64) -> f64 {
    runs.iter().map(value).sum::<f64>() / runs.len() as f64
}

/// Goodput of a case as the mean of `seeds`, which run in parallel, and the counts of all of them. For a precision it takes
/// twice as many at least, and goes on up to [`MOST`] times as many.
pub fn mean(
    engine: Engine,
    case: &Case,
    time: Ps,
    seeds: u64,
    precision: Option<Precision>,
) -> Result<Measured> {
    let mut all: Vec<Measured> = Vec::new();
    for batch in 0..MOST {
        let more = (batch * seeds + 1..=(batch + 1) * seeds)
            .into_par_iter()
            .map(|seed| measure(engine, case, time, seed))
            .collect::<Result<Vec<_>>>()?;
        all.extend(more);
        if precision.is_none_or(|precision| batch > 0 && precision.reached(&all)) {
            break;
        }
    }
    let mut tally = Tally::default();
    for one in &all {
        tally.add(&one.tally);
    }
    Ok(Measured {
        gbps: average(&all, |m| m.gbps),
        share: average(&all, |m| m.share),
        tally,
        seeds: all.len() as u64,
    })
}

/// Most batches of seeds of a [`mean`].
const MOST: u64 = 12;

/// Goodput of the three ways to use a network with one loss.
#[derive(Clone, Debug)]
pub struct Row {
    /// The network.
    pub setting: Setting,
    /// Probability that a packet is lost.
    pub loss: f64,
    /// Floor of the retransmission timeout in units of 4.096 us.
    pub rto_floor: u16,
    /// One path, the lossy one.
    pub single: Measured,
    /// The published rules.
    pub published: Measured,
    /// With the extensions.
    pub extended: Measured,
    /// With the extensions and without loss, Gb/s.
    pub loss_free: f64,
}

impl Row {
    /// Extended, as part of the loss-free goodput.
    #[must_use]
    pub fn kept(&self) -> f64 {
        self.extended.gbps / self.loss_free
    }

    /// Extended, in multiples of the single path.
    #[must_use]
    pub fn gain(&self) -> f64 {
        self.extended.gbps / self.single.gbps
    }

    /// The least of `kept` and of `gain` that are asked for.
    #[must_use]
    pub fn wanted(&self) -> (f64, f64) {
        wanted(&self.setting, self.loss)
    }

    /// Whether what is asked for is reached.
    #[must_use]
    pub fn reached(&self) -> bool {
        let (kept, gain) = self.wanted();
        self.kept() >= kept && self.gain() >= gain
    }

    /// For `target/loss.json`.
    #[must_use]
    pub fn json(&self, engine: Engine) -> Value {
        let round = |gbps: f64| (gbps * 100.0).round() / 100.0;
        json!({
            "setting": self.setting.name,
            "loss": self.loss,
            "single_path_gbps": round(self.single.gbps),
            "mp_paper_gbps": round(self.published.gbps),
            "mp_gbps": round(self.extended.gbps),
            "loss_free_gbps": round(self.loss_free),
            "seeds": [self.single.seeds, self.published.seeds, self.extended.seeds],
            "rto_floor_us": f64::from(self.rto_floor) * 4.096,
            "engine": engine.name(),
        })
    }
}

/// The least of `kept` and of `gain` that are asked for at a loss.
fn wanted(setting: &Setting, loss: f64) -> (f64, f64) {
    let kept = match (setting.name, loss) {
        (_, 0.005 | 0.01) | ("A", 0.1) => 0.97,
        ("B", 0.1) => 0.7,
        _ => 0.0,
    };
    let gain = match (setting.name, loss) {
        (_, 0.005) => 2.0,
        ("A", 0.1) => 8.0,
        _ => 0.0,
    };
    (kept, gain)
}

/// Standard error that is aimed at where a multiple of the single path is asked for. Each loss costs it a recovery, so its
/// seeds differ by some per cent.
const SINGLE_ERROR: f64 = 0.01;

/// The same of the extended rules, where a part of their loss-free goodput is asked for.
const EXTENDED_ERROR: f64 = 0.007;

/// All losses of a setting, each a mean of `seeds`, of a third of them for the published rules, of which nothing is asked,
/// and of as many as it takes to be sure where something is asked. The first loss is 0: the others are measured by it. `each`
/// sees every row as soon as it is there.
pub fn rows(
    engine: Engine,
    (setting, rto_floor): (Setting, u16),
    losses: &[f64],
    time: Ps,
    seeds: u64,
    mut each: impl FnMut(&Row),
) -> Result<Vec<Row>> {
    let mut rows: Vec<Row> = Vec::new();
    for &loss in losses {
        let one = |rules, seeds, precision| {
            let case = Case {
                setting,
                rules,
                loss,
                both: false,
                rto_floor,
            };
            mean(engine, &case, time, seeds, precision)
        };
        let (kept, gain) = wanted(&setting, loss);
        let precise = (kept > 0.0 || rows.is_empty()).then_some(Precision {
            error: EXTENDED_ERROR,
            limit: None,
        });
        let (published, extended) = rayon::join(
            || one(Rules::Published, seeds.div_ceil(3), None),
            || one(Rules::Extended, seeds, precise),
        );
        let (published, extended) = (published?, extended?);
        let precise = (gain > 0.0).then(|| Precision {
            error: SINGLE_ERROR,
            limit: Some(extended.gbps / gain),
        });
        let single = one(Rules::SinglePath, seeds, precise)?;
        let row = Row {
            setting,
            loss,
            rto_floor,
            single,
            published,
            loss_free: rows.first().map_or(extended.gbps, |row| row.loss_free),
            extended,
        };
        each(&row);
        rows.push(row);
    }
    Ok(rows)
}

/// Head of the table.
pub const HEAD: &str = "\
| setting | loss | single path | published rules | extended | loss-free | kept | over single | share of the lossy path | resent: holes, recovery, timeout | seeds |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |";

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [holes, recovery, timeout] = self.extended.tally.resent;
        write!(
            f,
            "| {} | {} % | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} %{} | {:.2}{} | {:.3} | {holes}, {recovery}, {timeout} | {}, {}, {} |",
            self.setting.name,
            self.loss * 100.0,
            self.single.gbps,
            self.published.gbps,
            self.extended.gbps,
            self.loss_free,
            self.kept() * 100.0,
            if self.kept() < self.wanted().0 { " BELOW" } else { "" },
            self.gain(),
            if self.gain() < self.wanted().1 { " BELOW" } else { "" },
            self.extended.share,
            self.single.seeds,
            self.published.seeds,
            self.extended.seeds,
        )
    }
}
