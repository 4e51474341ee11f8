//! Counters of the network, as the JSON result shows them.

use super::link::{Link, LinkCounters};
use super::topology::{Node, Topology};
use serde::Serialize;

/// One directed link.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkStats {
    /// Where it starts.
    pub from: String,
    /// Where it ends.
    pub to: String,
    /// Rate now, Gb/s.
    pub rate_gbps: f64,
    /// Counters.
    #[serde(flatten)]
    pub counters: LinkCounters,
    /// Packets that did not arrive.
    pub drops: u64,
}

/// What one leaf sent by one spine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PathStats {
    /// The leaf.
    pub from: String,
    /// The spine.
    pub spine: String,
    /// Frame bytes.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
    /// Packets dropped on the way up.
    pub drops: u64,
    /// Packets marked on the way up.
    pub marks: u64,
    /// Part of the leaf's bytes, 0 to 1.
    pub share: f64,
}

/// The whole network.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FabricStats {
    /// Every directed link.
    pub links: Vec<LinkStats>,
    /// Every leaf and spine.
    pub paths: Vec<PathStats>,
    /// Packets dropped anywhere.
    pub drops: u64,
    /// Packets marked anywhere.
    pub marks: u64,
    /// Frames to an address not heard yet, sent to every other card.
    pub flooded: u64,
    /// Frames that this made: one less than its receivers, for each of them.
    pub flood_copies: u64,
    /// Frames handed to cards. When nothing is on its way, what the cards sent and all copies made are these and all
    /// drops: `tx_frames + total.duplicated + flood_copies = delivered + drops`.
    pub delivered: u64,
    /// Sums over all links; of the queues the longest.
    pub total: LinkCounters,
}

impl FabricStats {
    pub(super) fn new(
        topology: &Topology,
        links: &[Link],
        (flooded, flood_copies): (u64, u64),
        delivered: u64,
    ) -> FabricStats {
        let all = topology.links().iter().zip(links);
        let mut total = LinkCounters::default();
        links.iter().for_each(|link| total.add(&link.counters));
        FabricStats {
            links: all.map(|(ends, link)| one(*ends, link)).collect(),
            paths: (0..topology.leaves)
                .flat_map(|leaf| paths(topology, links, leaf))
                .collect(),
            drops: total.drops(),
            marks: total.marks,
            flooded,
            flood_copies,
            delivered,
            total,
        }
    }
}

fn one((from, to): (Node, Node), link: &Link) -> LinkStats {
    LinkStats {
        from: from.to_string(),
        to: to.to_string(),
        rate_gbps: link.rate.gbps(),
        counters: link.counters,
        drops: link.counters.drops(),
    }
}

fn paths(topology: &Topology, links: &[Link], leaf: usize) -> Vec<PathStats> {
    let up: Vec<LinkCounters> = (0..topology.spines)
        .filter_map(|spine| topology.link(Node::Leaf(leaf), Node::Spine(spine)))
        .map(|i| links[i].counters)
        .collect();
    let total: u64 = up.iter().map(|c| c.bytes).sum();
    up.iter()
        .enumerate()
        .map(|(spine, c)| PathStats {
            from: Node::Leaf(leaf).to_string(),
            spine: Node::Spine(spine).to_string(),
            bytes: c.bytes,
            packets: c.packets,
            drops: c.drops(),
            marks: c.marks,
            share: if total == 0 {
                0.0
            } else {
                c.bytes as f64 / total as f64
            },
        })
        .collect()
}
