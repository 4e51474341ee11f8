//! How far out of order packets arrive in a fabric of equal paths with other traffic in it.

use super::run::{run, Engine, Request, Tally};
use super::setting::{Rules, Setting};
use anyhow::Result;
use mprdma_sim::golden::{Flow, Load};
use mprdma_sim::time::{Ps, US};

/// Mean message of the cross traffic, packets, and mean pause.
const MESSAGE: u32 = 64;
const PAUSE: Ps = 20 * US;

/// Goodput and counts of the measured flow, from card 0 to card 1, while cards 2 and 3 on the same leaves send each other
/// messages of random length at random times.
pub fn measure(
    engine: Engine,
    setting: &Setting,
    rules: Rules,
    time: Ps,
    seed: u64,
) -> Result<(f64, Tally)> {
    let scenario = setting.scenario_with_cards(4, setting.ecn(), "")?;
    let base = rules.sender(mprdma_spec::params::VP_BASE.default as u16);
    let flow = |from, to, load| Flow {
        from,
        to,
        sender: base,
        mtu: setting.mtu,
        slots: rules.slots(),
        load,
    };
    let cross = Load::OnOff {
        packets: MESSAGE,
        pause: PAUSE,
    };
    let flows = [
        flow(0, 1, Load::Endless),
        flow(2, 3, cross),
        flow(2, 3, cross),
        flow(3, 2, cross),
    ];
    let seen = run(
        engine,
        &Request {
            scenario: &scenario,
            flows: &flows,
            changes: &[],
            end: time,
            every: time / 4,
            seed,
        },
    )?;
    Ok((seen.gbps(0, setting.mtu, 1, 4), seen.tallies[0]))
}

/// Part of the accepted packets less than delta = 32 ahead of the next in order.
#[must_use]
pub fn near(tally: &Tally) -> f64 {
    let all: u64 = tally.distance.iter().sum();
    let near: u64 = tally.distance[..6].iter().sum();
    near as f64 / all.max(1) as f64
}
