//! Changes of links while the scenario runs.

use super::LinkRule;
use crate::time::{Ps, US};
use serde::{Deserialize, Serialize};

/// A change of one link or, with `*`, of many, at a time of the scenario. It holds for every packet that joins the
/// link's queue, or that a card begins to send, at that time or later; `down` holds for what is on the wire.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// When, µs of simulated time.
    pub at_us: f64,
    /// Where the link starts, as in [`LinkRule`].
    pub from: String,
    /// Where it ends.
    pub to: String,
    /// Change the opposite direction too.
    #[serde(default)]
    pub both: bool,
    /// Rate, Gb/s. A card keeps sending at the rate that its link had at the start.
    pub rate_gbps: Option<f64>,
    /// Propagation delay, ns. The shortest that a card's link ever has bounds how far the cards run apart.
    pub delay_ns: Option<u64>,
    /// ECN threshold, packets.
    pub ecn_packets: Option<usize>,
    /// Probability that a packet is lost.
    pub loss: Option<f64>,
    /// Probability that one bit of a packet is flipped.
    pub corrupt: Option<f64>,
    /// Probability that a packet arrives twice.
    pub duplicate: Option<f64>,
    /// Probability that a packet is held back.
    pub reorder: Option<f64>,
    /// How long a packet is held back at most, ns.
    pub reorder_ns: Option<u64>,
    /// `true` cuts the link, `false` repairs it. Independent of the link's `down_us`.
    pub down: Option<bool>,
}

impl Event {
    /// Its time.
    pub fn at(&self) -> Ps {
        (self.at_us * US as f64).round() as Ps
    }

    /// What is new, but for `down`.
    pub fn rule(&self) -> LinkRule {
        LinkRule {
            from: self.from.clone(),
            to: self.to.clone(),
            both: self.both,
            rate_gbps: self.rate_gbps,
            delay_ns: self.delay_ns,
            ecn_packets: self.ecn_packets,
            loss: self.loss,
            corrupt: self.corrupt,
            duplicate: self.duplicate,
            reorder: self.reorder,
            reorder_ns: self.reorder_ns,
            ..LinkRule::default()
        }
    }
}
