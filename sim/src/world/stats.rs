//! What a world reports, as JSON.

use crate::card::CardStats;
use crate::fabric::FabricStats;
use crate::pcie::{Fault, HostSide};
use crate::time::{Ps, NS};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// One card.
#[derive(Clone, Debug, Serialize)]
pub struct CardReport {
    /// Number.
    pub card: usize,
    /// Clock cycles simulated per second of wall time, while the world ran.
    pub cycles_per_second: f64,
    /// Counters.
    #[serde(flatten)]
    pub stats: CardStats,
    /// DMA faults seen lately.
    pub last_faults: Vec<Fault>,
    /// Mapped DMA ranges.
    pub dma_ranges: usize,
    /// Capture of the port.
    pub pcap: Option<PathBuf>,
}

impl CardReport {
    pub(super) fn new(
        card: usize,
        stats: CardStats,
        seconds: f64,
        host: &HostSide,
        pcap: Option<&Path>,
    ) -> CardReport {
        let cycles_per_second = if seconds > 0.0 {
            stats.cycles as f64 / seconds
        } else {
            0.0
        };
        CardReport {
            card,
            cycles_per_second,
            stats,
            last_faults: host.faults(),
            dma_ranges: host.iommu().len(),
            pcap: pcap.map(Path::to_path_buf),
        }
    }
}

/// The whole world.
#[derive(Clone, Debug, Serialize)]
pub struct WorldStats {
    /// Name of the scenario.
    pub scenario: String,
    /// Seed.
    pub seed: u64,
    /// Simulated time, ns.
    pub simulated_ns: u64,
    /// Wall time spent simulating, s; sleep is not counted.
    pub running_seconds: f64,
    /// Clock cycles simulated per second, mean of the cards.
    pub cycles_per_second: f64,
    /// Every card.
    pub cards: Vec<CardReport>,
    /// The network.
    #[serde(flatten)]
    pub fabric: FabricStats,
}

impl WorldStats {
    pub(super) fn new(
        scenario: &str,
        seed: u64,
        now: Ps,
        running_seconds: f64,
        cards: Vec<CardReport>,
        fabric: FabricStats,
    ) -> WorldStats {
        let sum: f64 = cards.iter().map(|c| c.cycles_per_second).sum();
        WorldStats {
            scenario: scenario.to_string(),
            seed,
            simulated_ns: now / NS,
            running_seconds,
            cycles_per_second: sum / cards.len() as f64,
            cards,
            fabric,
        }
    }
}
