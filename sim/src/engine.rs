//! What carries the protocol in the cards of a world.

use crate::card::Nic;
use crate::scenario::Scenario;
use crate::verilated::{self, CoreError, Wave};

/// The engine of all cards of a world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Engine {
    /// The Verilated RTL, clock cycle by clock cycle.
    #[default]
    Rtl,
    /// The golden model, event by event: some fifty times faster, see [`crate::standin`].
    Model,
}

/// The cores of a world's cards.
pub enum Cores {
    /// One for each card, stepped cycle by cycle.
    Clocked(Vec<Box<dyn Nic>>),
    /// Every card is a stand-in and needs none.
    Model,
}

impl From<Vec<Box<dyn Nic>>> for Cores {
    fn from(cores: Vec<Box<dyn Nic>>) -> Cores {
        Cores::Clocked(cores)
    }
}

impl Engine {
    /// As on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Engine::Rtl => "rtl",
            Engine::Model => "model",
        }
    }

    /// The cores of a scenario, as after power-on; waveforms are recorded if the engine and the build can.
    pub fn cores(self, scenario: &Scenario, wave: Option<&Wave>) -> Result<Cores, CoreError> {
        match (self, wave) {
            (Engine::Rtl, wave) => Ok(verilated::cores(scenario, wave)?.into()),
            (Engine::Model, Some(_)) => Err(CoreError::NoSignals),
            (Engine::Model, None) => Ok(Cores::Model),
        }
    }
}
