//! The core of the card as compiled RTL.

#[cfg(not(no_core))]
mod core;

use crate::card::Nic;
use crate::scenario::Scenario;
use crate::time::{Ps, NS};
use std::path::{Path, PathBuf};
use std::str::FromStr;

#[cfg(not(no_core))]
pub use self::core::{api, Api, Core};

/// Waveforms to record: a window of simulated time, one FST file per card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wave {
    /// Directory of the files `cardN.fst`.
    pub dir: PathBuf,
    /// The window.
    pub window: Window,
}

/// A window of simulated time, ns: `1000..2500`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// From when, ps.
    pub start: Ps,
    /// Until when, ps.
    pub end: Ps,
}

impl FromStr for Window {
    type Err = String;

    fn from_str(text: &str) -> Result<Window, String> {
        let parts = text
            .split_once("..")
            .map(|(a, b)| (a.trim().parse::<u64>(), b.trim().parse::<u64>()));
        match parts {
            Some((Ok(start), Ok(end))) if start < end && end < u64::MAX / NS => Ok(Window {
                start: start * NS,
                end: end * NS,
            }),
            _ => Err("write START..END in ns of simulated time, such as 1000..2500".into()),
        }
    }
}

/// A core cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum CoreError {
    /// The build found no core to compile.
    #[error("this build has no core")]
    NoCore,
    /// The scenario asks for a core that was left out.
    #[error(
        "this build has no core with `card.bitmap_slots` = {slots}; build with `--features l64`"
    )]
    NoSlots {
        /// Slots asked for.
        slots: usize,
    },
    /// Waveforms need another build.
    #[error("this build records no waveforms; build with `--features wave`")]
    NoWave,
    /// The model has no signals.
    #[error("the model has no signals to record; waveforms need `--engine rtl`")]
    NoSignals,
    /// The waveform file cannot be written.
    #[error("cannot write the waveform {}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// The cores of all cards of a scenario, as after power-on.
pub fn cores(scenario: &Scenario, wave: Option<&Wave>) -> Result<Vec<Box<dyn Nic>>, CoreError> {
    if wave.is_some() && !cfg!(feature = "wave") {
        return Err(CoreError::NoWave);
    }
    (0..scenario.network.cards)
        .map(|card| one(scenario, card, wave))
        .collect()
}

#[cfg(no_core)]
fn one(_: &Scenario, _: usize, _: Option<&Wave>) -> Result<Box<dyn Nic>, CoreError> {
    Err(CoreError::NoCore)
}

#[cfg(not(no_core))]
fn one(scenario: &Scenario, card: usize, wave: Option<&Wave>) -> Result<Box<dyn Nic>, CoreError> {
    let wave = match wave {
        Some(wave) => Some((create(&wave.dir, card)?, wave.window)),
        None => None,
    };
    let slots = scenario.card.bitmap_slots;
    let api = api(slots).ok_or(CoreError::NoSlots { slots })?;
    Ok(Box::new(Core::new(api, scenario.card.period(), wave)))
}

/// Creates the waveform file, so that a bad path is known before the simulation runs.
#[cfg_attr(no_core, allow(dead_code))]
fn create(dir: &Path, card: usize) -> Result<PathBuf, CoreError> {
    let file = dir.join(format!("card{card}.fst"));
    let created = std::fs::create_dir_all(dir).and_then(|()| std::fs::File::create(&file));
    created
        .map(|_| file.clone())
        .map_err(|source| CoreError::File { file, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_two_numbers_in_order() {
        assert_eq!(
            "1000..2500".parse(),
            Ok(Window {
                start: 1_000_000,
                end: 2_500_000
            })
        );
        for bad in ["", "5", "9..3", "a..b", "1..18446744073709551615"] {
            assert!(
                bad.parse::<Window>().unwrap_err().contains("START..END"),
                "{bad}"
            );
        }
    }
}
