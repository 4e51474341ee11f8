//! The networks that are measured, and the three ways to use them.

use super::run::{run, Engine, Request};
use anyhow::{ensure, Result};
use mprdma_sim::fabric::Fabric;
use mprdma_sim::golden::{Flow, Load, SenderConfig};
use mprdma_sim::scenario::Scenario;
use mprdma_sim::time::{Ps, NS, US};
use mprdma_spec::params;
use std::net::Ipv4Addr;

/// Round trip of one packet in an empty network that all settings have.
pub const RTT: Ps = 10 * US;
/// Links on the way there and back.
const LINKS: u32 = 8;
/// The spine whose path is lossy, or dies.
pub const BAD_SPINE: usize = 1;

/// Two leaves with a card on each, and equal paths between them.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Letter.
    pub name: &'static str,
    /// Rate of the cards' links, Gb/s.
    pub host_gbps: u32,
    /// Rate of each path, Gb/s.
    pub path_gbps: u32,
    /// Spines.
    pub paths: usize,
    /// Path MTU, bytes.
    pub mtu: u32,
    /// Propagation delay of each link, ns: eight of them, the frames' own time on four links in each direction, and the
    /// cards make [`RTT`].
    pub delay_ns: u32,
}

/// 40 Gb/s host and paths, as the paper's testbed.
pub const A: Setting = Setting {
    name: "A",
    host_gbps: 40,
    path_gbps: 40,
    paths: 4,
    mtu: 1024,
    delay_ns: 954,
};

/// 100 Gb/s host, four paths of a quarter.
pub const B: Setting = Setting {
    name: "B",
    host_gbps: 100,
    path_gbps: 25,
    paths: 4,
    mtu: 4096,
    delay_ns: 588,
};

/// 40 Gb/s host, four paths of a quarter.
pub const C: Setting = Setting {
    name: "C",
    host_gbps: 40,
    path_gbps: 10,
    paths: 4,
    mtu: 1024,
    delay_ns: 774,
};

/// A sender and the bitmap of its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// One virtual path, the published rules.
    SinglePath,
    /// The published rules: L = 64, no extension.
    Published,
    /// Both extensions, L = 128.
    Extended,
}

impl Rules {
    /// Slots of the bitmap.
    #[must_use]
    pub const fn slots(self) -> u32 {
        match self {
            Rules::Extended => 128,
            _ => 64,
        }
    }

    /// Attributes of the model's sender.
    #[must_use]
    pub const fn sender(self, vp_base: u16) -> SenderConfig {
        let mut sender = SenderConfig::from_params();
        sender.vp_base = vp_base;
        match self {
            Rules::Extended => sender,
            Rules::Published => sender.as_published(),
            Rules::SinglePath => {
                sender.vp_count = 1;
                sender.as_published()
            }
        }
    }
}

impl Setting {
    /// Its network, with marking above `ecn` packets and `extra` links in TOML.
    pub fn scenario(&self, ecn: usize, extra: &str) -> Result<Scenario> {
        self.scenario_with_cards(2, ecn, extra)
    }

    /// The same with more cards; card i hangs off leaf i modulo 2.
    pub fn scenario_with_cards(&self, cards: usize, ecn: usize, extra: &str) -> Result<Scenario> {
        let Setting {
            name,
            host_gbps,
            path_gbps,
            paths,
            delay_ns,
            ..
        } = self;
        crate::rig::scenario(&format!(
            "name = \"{name}\"\n[network]\nkind = \"leaf-spine\"\ncards = {cards}\nleaves = 2\nspines = {paths}\n\
             card_rate_gbps = {host_gbps}.0\nspine_rate_gbps = {path_gbps}.0\ndelay_ns = {delay_ns}\n\
             queue_packets = 256\nqueue_bytes = 2_097_152\necn_packets = {ecn}\n{extra}"
        ))
    }

    /// A `[[link]]` entry for the way up to the bad spine.
    #[must_use]
    pub fn bad_link(both: bool, what: &str) -> String {
        format!("[[link]]\nfrom = \"leaf0\"\nto = \"spine{BAD_SPINE}\"\nboth = {both}\n{what}\n")
    }

    /// Greatest ECN threshold that the rule K <= delta / n allows, in packets, but no more than 5.
    #[must_use]
    pub fn ecn(&self) -> usize {
        (params::DELTA.default as usize / self.paths).min(5)
    }
}

/// The first UDP source port from the default on that leads from card 0 to card 1 by the spine.
pub fn port_by(scenario: &Scenario, seed: u64, spine: usize) -> Result<u16> {
    let fabric = Fabric::new(scenario, seed);
    let address = |card: u8| Ipv4Addr::new(10, 0, 0, card + 1);
    let base = params::VP_BASE.default as u16;
    let port =
        (base..base + 1024).find(|&port| fabric.spine_of(0, address(0), address(1), port) == spine);
    ensure!(port.is_some(), "no port leads by spine {spine}");
    Ok(port.unwrap_or(base))
}

/// Round trip of one packet in an empty network, us, from its grant to the event of its ACK: the time per packet of a
/// window of one.
pub fn round_trip(engine: Engine, setting: &Setting) -> Result<f64> {
    let scenario = setting.scenario(0, "")?;
    let mut sender = Rules::SinglePath.sender(params::VP_BASE.default as u16);
    sender.initial_window = 1;
    sender.cwnd_max = 1;
    let flow = Flow {
        from: 0,
        to: 1,
        sender,
        mtu: setting.mtu,
        slots: Rules::Extended.slots(),
        load: Load::Packets(1 << 16),
    };
    let seen = run(
        engine,
        &Request {
            scenario: &scenario,
            flows: &[flow],
            changes: &[],
            end: 400 * US,
            every: 100 * US,
            seed: 1,
        },
    )?;
    let packets = seen.samples[4].delivered[0] - seen.samples[0].delivered[0];
    // Half a packet was under way at the end, on average.
    Ok((seen.samples[4].at as f64 / US as f64) / (packets as f64 + 0.5))
}

/// The setting with the link delay that makes the round trip [`RTT`] on this engine, and the round trip before.
pub fn tuned(engine: Engine, setting: &Setting) -> Result<(Setting, f64)> {
    let found = round_trip(engine, setting)?;
    let excess = found * 1000.0 - RTT as f64 / NS as f64;
    let delay = f64::from(setting.delay_ns) - excess / f64::from(LINKS);
    let delay_ns = delay.round() as u32;
    Ok((
        Setting {
            delay_ns,
            ..*setting
        },
        found,
    ))
}
