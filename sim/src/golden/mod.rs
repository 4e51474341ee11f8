//! The golden model over the simulated network: what the cards should do, without the cards.
//!
//! The two engines are those of the model crate, event for event; the rest of a card is a fixed latency and a transmit
//! queue at the line rate. It runs thousands of times faster than RTL, so it finds settings and states expectations.
//! [`stream`] sends one stream to its end; [`run`] runs any number of flows for a time and takes samples.

mod frame;
mod run;
#[cfg(test)]
mod tests;

pub use run::run;

use crate::fabric::FabricStats;
use crate::scenario::{LinkRule, Scenario};
use crate::time::{Ps, NS};
pub use mprdma_model::sender::SenderConfig;

/// What a card adds to the way of a packet, ps.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    /// From a grant to the first bit on the wire: payload DMA and pipelines.
    pub send: Ps,
    /// From the last bit of a packet to the event in the engine.
    pub receive: Ps,
}

impl Default for Latency {
    /// Of our card, with the simulator's default PCIe.
    fn default() -> Latency {
        Latency {
            send: 800 * NS,
            receive: 150 * NS,
        }
    }
}

/// How much a flow sends.
#[derive(Clone, Copy, Debug)]
pub enum Load {
    /// So many packets, at once.
    Packets(u32),
    /// Always more than the window allows.
    Endless,
    /// Messages of random length with random pauses between them, both exponentially distributed.
    OnOff {
        /// Mean length, packets.
        packets: u32,
        /// Mean pause from the last ACK to the next message.
        pause: Ps,
    },
}

/// One queue pair that sends from a card to another.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// The card that sends.
    pub from: usize,
    /// The card that receives.
    pub to: usize,
    /// Attributes of the sender.
    pub sender: SenderConfig,
    /// Path MTU, bytes; every packet is full.
    pub mtu: u32,
    /// Slots of the receiver's bitmap.
    pub slots: u32,
    /// What it sends.
    pub load: Load,
}

/// What a flow did.
#[derive(Clone, Debug)]
pub struct FlowOutcome {
    /// Packets acknowledged in order.
    pub delivered: u64,
    /// Packets sent, retransmissions included.
    pub sent: u64,
    /// Packets accepted by their distance from the PSN that the receiver waited for.
    pub ahead: Vec<u64>,
    /// Packets that the receiver had already.
    pub duplicates: u64,
    /// Packets beyond the bitmap.
    pub out_of_window: u64,
    /// Retransmissions by cause: of holes, in recovery, after timeouts.
    pub retransmissions: [u64; 3],
    /// ACKs that echoed a mark.
    pub ecn_echoes: u64,
    /// ACKs of slow paths.
    pub prunes: u64,
    /// Packets sent to a random path for probing.
    pub probes: u64,
    /// Times that recovery was entered.
    pub recoveries: u64,
    /// When retransmission timeouts struck.
    pub timeouts: Vec<Ps>,
    /// Window at the end, packets.
    pub cwnd: f64,
    /// Smoothed RTT at the end.
    pub srtt: Ps,
}

impl FlowOutcome {
    /// Packets accepted ahead of an earlier one.
    pub fn reordered(&self) -> u64 {
        self.ahead[1..].iter().sum()
    }

    /// Greatest distance of an accepted packet.
    pub fn max_distance(&self) -> usize {
        self.ahead.iter().rposition(|&count| count > 0).unwrap_or(0)
    }

    /// All retransmissions.
    pub fn resent(&self) -> u64 {
        self.retransmissions.iter().sum()
    }
}

/// A look at a run.
#[derive(Clone, Debug)]
pub struct Sample {
    /// When.
    pub at: Ps,
    /// Packets acknowledged in order, by flow.
    pub delivered: Vec<u64>,
    /// Packets placed, each once, in whatever order, by flow.
    pub placed: Vec<u64>,
    /// Packets that leaf 0 has sent by each spine.
    pub by_spine: Vec<u64>,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Each flow.
    pub flows: Vec<FlowOutcome>,
    /// Looks at regular intervals, from the start to the end.
    pub samples: Vec<Sample>,
    /// Simulated time.
    pub time: Ps,
    /// The network's own counters.
    pub fabric: FabricStats,
}

/// Payload rate of what is delivered of a flow between two samples, Gb/s.
#[must_use]
pub fn gbps(first: &Sample, last: &Sample, flow: usize, mtu: u32) -> f64 {
    rate(
        first,
        last,
        last.delivered[flow] - first.delivered[flow],
        mtu,
    )
}

/// Payload rate of what is placed of a flow between two samples, Gb/s.
#[must_use]
pub fn placed_gbps(first: &Sample, last: &Sample, flow: usize, mtu: u32) -> f64 {
    rate(first, last, last.placed[flow] - first.placed[flow], mtu)
}

fn rate(first: &Sample, last: &Sample, packets: u64, mtu: u32) -> f64 {
    let bits = packets as f64 * f64::from(mtu) * 8.0;
    bits * 1000.0 / (last.at - first.at).max(1) as f64
}

/// What happens to links during a run.
#[derive(Clone, Debug)]
pub struct Change {
    /// When. A run handles it at the next sample.
    pub at: Ps,
    /// Which links, and what changes.
    pub rule: LinkRule,
    /// Cuts or repairs them.
    pub down: Option<bool>,
}

/// What is sent, and by what kind of card.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Attributes of the sender.
    pub sender: SenderConfig,
    /// Path MTU, bytes.
    pub mtu: u32,
    /// Packets of the stream, each a full MTU.
    pub packets: u32,
    /// Slots of the receiver's bitmap.
    pub slots: u32,
    /// Of both cards.
    pub latency: Latency,
    /// Give up after so much simulated time.
    pub limit: Ps,
}

impl Setting {
    /// A stream with default parameters on a card like ours.
    pub fn new(mtu: u32, packets: u32) -> Setting {
        Setting {
            sender: SenderConfig::from_params(),
            mtu,
            packets,
            slots: 128,
            latency: Latency::default(),
            limit: Ps::MAX,
        }
    }
}

/// What came of a stream.
#[derive(Clone, Debug)]
pub struct StreamOutcome {
    /// The flow.
    pub flow: FlowOutcome,
    /// Simulated time from the first packet to the last ACK.
    pub time: Ps,
    /// Payload rate over the last three quarters of the packets, Gb/s: the start is left out.
    pub steady_gbps: f64,
    /// Part of the sender's bytes by each spine.
    pub shares: Vec<f64>,
    /// The network's own counters.
    pub fabric: FabricStats,
}

/// Sends a stream from card 0 to card 1, to its end.
pub fn stream(scenario: &Scenario, setting: &Setting, seed: u64) -> StreamOutcome {
    let flow = Flow {
        from: 0,
        to: 1,
        sender: setting.sender,
        mtu: setting.mtu,
        slots: setting.slots,
        load: Load::Packets(setting.packets),
    };
    let mut run = run::Run::new(scenario, &[flow], setting.latency, seed);
    let quarter = u64::from(setting.packets / 4);
    run.until(setting.limit, |flows| flows[0].outcome.delivered >= quarter);
    let quarter_at = run.now();
    run.until(setting.limit, |flows| {
        flows[0].outcome.delivered >= u64::from(setting.packets)
    });
    let time = run.now();
    let mut outcome = run.finish(vec![]);
    let flow = outcome.flows.remove(0);
    let bits = flow.delivered.saturating_sub(quarter) as f64 * f64::from(setting.mtu) * 8.0;
    let paths = outcome.fabric.paths.iter().filter(|p| p.from == "leaf0");
    StreamOutcome {
        time,
        steady_gbps: bits * 1000.0 / (time - quarter_at).max(1) as f64,
        shares: paths.map(|p| p.share).collect(),
        flow,
        fabric: outcome.fabric,
    }
}
