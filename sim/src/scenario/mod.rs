//! What to simulate, read from a TOML file.
//!
//! Every table refuses unknown keys, every value has a range, and an error names the file, the line, the key and
//! what would be right.

mod error;
mod event;
mod load;

pub use error::ScenarioError;
pub use event::Event;

use crate::time::Ps;
use mprdma_spec::config::{Config, SIM, SIM_L64};
use serde::{Deserialize, Serialize};

/// A whole scenario.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Name, for messages and results.
    pub name: String,
    /// The network between the cards.
    pub network: Network,
    /// What is common to all cards.
    #[serde(default)]
    pub card: Card,
    /// The PCIe side of every card.
    #[serde(default)]
    pub pcie: Pcie,
    /// Exceptions for single links, applied in order.
    #[serde(default, rename = "link")]
    pub links: Vec<LinkRule>,
    /// Changes of links at given times.
    #[serde(default, rename = "event")]
    pub events: Vec<Event>,
}

/// The network.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Shape.
    pub kind: Kind,
    /// Number of cards; card `i` hangs off leaf `i % leaves`.
    pub cards: usize,
    /// Number of leaf switches (leaf-spine only).
    #[serde(default)]
    pub leaves: usize,
    /// Number of spine switches (leaf-spine only).
    #[serde(default)]
    pub spines: usize,
    /// Rate of a card's link, Gb/s.
    #[serde(default = "default_card_rate")]
    pub card_rate_gbps: f64,
    /// Rate of a link between leaf and spine, Gb/s.
    #[serde(default = "default_spine_rate")]
    pub spine_rate_gbps: f64,
    /// Propagation delay of every link, ns. The shortest link bounds how far the cards may run apart.
    #[serde(default = "default_delay")]
    pub delay_ns: u64,
    /// Capacity of an egress queue, packets.
    #[serde(default = "default_queue_packets")]
    pub queue_packets: usize,
    /// Capacity of an egress queue, bytes.
    #[serde(default = "default_queue_bytes")]
    pub queue_bytes: u64,
    /// A packet that joins a queue holding more than this many packets is marked CE, if it is ECT. 0 marks nothing.
    #[serde(default)]
    pub ecn_packets: usize,
    /// What the leaf hashes to choose a spine.
    #[serde(default)]
    pub ecmp: Ecmp,
}

/// Shape of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Two cards on one wire.
    Direct,
    /// Every leaf has one link to every spine.
    LeafSpine,
}

/// Fields that equal-cost multi-path routing hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ecmp {
    /// Addresses, protocol and ports.
    #[default]
    FiveTuple,
    /// Addresses only: a known mistake that puts all virtual paths on one spine.
    Addresses,
}

/// What is common to all cards.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Card {
    /// Core clock, MHz.
    #[serde(default = "default_clock")]
    pub clock_mhz: f64,
    /// Transmit FIFO between core and MAC, in 64-byte beats.
    #[serde(default = "default_tx_fifo")]
    pub tx_fifo_beats: usize,
    /// Slots of the receiver's reorder bitmap (protocol section 3): 128, or the 64 of the published design.
    #[serde(default = "default_bitmap_slots")]
    pub bitmap_slots: usize,
}

/// The PCIe side of a card.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Pcie {
    /// From a read request at the card's edge to its first completion, ns.
    #[serde(default = "default_read_latency")]
    pub read_latency_ns: u64,
    /// From a posted write at the card's edge to its bytes being visible in host memory, ns.
    #[serde(default = "default_write_latency")]
    pub write_latency_ns: u64,
    /// Payload and header bandwidth in each direction, Gb/s.
    #[serde(default = "default_pcie_rate")]
    pub rate_gbps: f64,
    /// Largest read request, bytes.
    #[serde(default = "default_mrrs")]
    pub max_read_request: u32,
    /// Largest payload of one packet, bytes.
    #[serde(default = "default_mps")]
    pub max_payload: u32,
    /// Read completion boundary, bytes: where a completion may be cut.
    #[serde(default = "default_rcb")]
    pub read_completion_boundary: u32,
    /// Most read requests in flight; a further request waits.
    #[serde(default = "default_tags")]
    pub read_tags: usize,
    /// Probability that the next completion comes from another request than the oldest.
    #[serde(default = "default_reorder")]
    pub reorder: f64,
    /// Random extra latency of a read request, at most this many ns.
    #[serde(default = "default_jitter")]
    pub jitter_ns: u64,
    /// Probability that a read request is answered with an error.
    #[serde(default)]
    pub read_error: f64,
}

/// An exception for one link or, with `*`, for many.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LinkRule {
    /// Where the link starts: `card0`, `leaf1`, `spine3`, or a pattern such as `leaf*`.
    pub from: String,
    /// Where it ends.
    pub to: String,
    /// Apply to the opposite direction too.
    #[serde(default)]
    pub both: bool,
    /// Rate, Gb/s.
    pub rate_gbps: Option<f64>,
    /// Propagation delay, ns.
    pub delay_ns: Option<u64>,
    /// Capacity of the egress queue, packets.
    pub queue_packets: Option<usize>,
    /// Capacity of the egress queue, bytes.
    pub queue_bytes: Option<u64>,
    /// ECN threshold, packets.
    pub ecn_packets: Option<usize>,
    /// Probability that a packet is lost.
    pub loss: Option<f64>,
    /// Probability that one bit of a packet is flipped.
    pub corrupt: Option<f64>,
    /// Probability that a packet arrives twice.
    pub duplicate: Option<f64>,
    /// Probability that a packet is held back, so that later ones overtake it.
    pub reorder: Option<f64>,
    /// How long a packet is held back at most, ns.
    pub reorder_ns: Option<u64>,
    /// Intervals of simulated time, in µs, during which the link is down: `[[100, 250]]`.
    pub down_us: Option<Vec<[u64; 2]>>,
    /// Packets to lose, by number: `[1]` loses the first that the wire takes. Each direction counts for itself.
    pub drop_nth: Option<Vec<u64>>,
}

fn default_card_rate() -> f64 {
    100.0
}
fn default_spine_rate() -> f64 {
    100.0
}
fn default_delay() -> u64 {
    750
}
fn default_queue_packets() -> usize {
    256
}
fn default_queue_bytes() -> u64 {
    2 << 20
}
fn default_clock() -> f64 {
    250.0
}
fn default_tx_fifo() -> usize {
    16
}
fn default_bitmap_slots() -> usize {
    SIM.bitmap_slots
}
fn default_read_latency() -> u64 {
    500
}
fn default_write_latency() -> u64 {
    250
}
fn default_pcie_rate() -> f64 {
    220.0
}
fn default_mrrs() -> u32 {
    512
}
fn default_mps() -> u32 {
    256
}
fn default_rcb() -> u32 {
    64
}
fn default_tags() -> usize {
    256
}
fn default_reorder() -> f64 {
    0.1
}
fn default_jitter() -> u64 {
    50
}

impl Card {
    /// Configuration of the cards: the one with [`bitmap_slots`](Self::bitmap_slots).
    pub fn config(&self) -> Config {
        if self.bitmap_slots == SIM_L64.bitmap_slots {
            SIM_L64
        } else {
            SIM
        }
    }

    /// Clock period.
    pub fn period(&self) -> Ps {
        (1e6 / self.clock_mhz).round() as Ps
    }
}

impl Default for Card {
    fn default() -> Card {
        Card {
            clock_mhz: default_clock(),
            tx_fifo_beats: default_tx_fifo(),
            bitmap_slots: default_bitmap_slots(),
        }
    }
}

impl Default for Pcie {
    fn default() -> Pcie {
        Pcie {
            read_latency_ns: default_read_latency(),
            write_latency_ns: default_write_latency(),
            rate_gbps: default_pcie_rate(),
            max_read_request: default_mrrs(),
            max_payload: default_mps(),
            read_completion_boundary: default_rcb(),
            read_tags: default_tags(),
            reorder: default_reorder(),
            jitter_ns: default_jitter(),
            read_error: 0.0,
        }
    }
}
