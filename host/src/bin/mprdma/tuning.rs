//! Parameters of the transport as arguments.

use clap::{ArgAction, Args};
use mprdma_host::verbs::{MultiPath, Parameters, RtsAttr, Timers};
use mprdma_host::Error;
use mprdma_spec::params;
use serde::{Deserialize, Serialize};

/// All parameters of a queue pair that is made.
#[derive(Clone, Copy, Debug, Args, Serialize, Deserialize)]
#[command(next_help_heading = "Transport parameters")]
pub struct Tuning {
    /// First UDP source port of the virtual paths.
    #[arg(long, default_value_t = params::VP_BASE.default as u32)]
    pub vp_base: u32,
    /// Virtual paths; 1 is single-path.
    #[arg(long, default_value_t = params::VP_COUNT.default as u32)]
    pub vp_count: u32,
    /// Pruning distance in packets.
    #[arg(long, default_value_t = params::DELTA.default as u32)]
    pub delta: u32,
    /// Probability of a random path per packet, in 1/65536.
    #[arg(long, default_value_t = params::PROBE.default as u32)]
    pub probe: u32,
    /// Window at start and after idling, in packets.
    #[arg(long, default_value_t = params::INITIAL_WINDOW.default as u32)]
    pub initial_window: u32,
    /// Largest window in packets.
    #[arg(long, default_value_t = params::CWND_MAX.default as u32)]
    pub cwnd_max: u32,
    /// Pause between two bursts in 64 ns ticks.
    #[arg(long, default_value_t = params::BURST_INTERVAL.default as u32)]
    pub burst_interval: u32,
    /// Synchronise delay in sixteenths of delta * RTT / cwnd.
    #[arg(long, default_value_t = params::ALPHA.default as u32)]
    pub alpha: u32,
    /// Shortest retransmission timeout in 4.096 us units.
    #[arg(long, default_value_t = params::RTO_FLOOR.default as u32)]
    pub rto_floor: u32,
    /// Timeouts in a row without progress before a queue pair goes to ERROR.
    #[arg(long, default_value_t = params::RETRY_CNT.default as u8)]
    pub retry_cnt: u8,
    /// RNR NAKs in a row before a queue pair goes to ERROR; 7 is without end.
    #[arg(long, default_value_t = params::RNR_RETRY.default as u8)]
    pub rnr_retry: u8,
    /// Extension: repairs holes that a SACK map shows, without recovery. Set it on both sides: on or off.
    #[arg(long, value_name = "on|off", default_value = "on", action = ArgAction::Set, value_parser = switch)]
    pub hole_repair: bool,
    /// Extension: packets without an ACK's clock take paths that have just worked: on or off.
    #[arg(long, value_name = "on|off", default_value = "on", action = ArgAction::Set, value_parser = switch)]
    pub vp_recycle: bool,
}

impl Tuning {
    /// Attributes of a change to RTS, checked.
    pub fn rts(&self, sq_psn: u32) -> Result<RtsAttr, Error> {
        let attr = RtsAttr {
            sq_psn,
            timeout: self.rto_floor,
            retry_cnt: self.retry_cnt,
            rnr_retry: self.rnr_retry,
            multi_path: MultiPath {
                vp_base: self.vp_base,
                vp_count: self.vp_count,
                delta: self.delta,
                probe: self.probe,
                initial_window: self.initial_window,
                cwnd_max: self.cwnd_max,
                burst_interval: self.burst_interval,
                alpha: self.alpha,
                hole_repair: self.hole_repair,
                vp_recycle: self.vp_recycle,
            },
        };
        attr.check()?;
        Ok(attr)
    }
}

/// Parameters to change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Args, Serialize, Deserialize)]
#[command(next_help_heading = "Transport parameters")]
pub struct Change {
    /// First UDP source port of the virtual paths.
    #[arg(long)]
    pub vp_base: Option<u32>,
    /// Virtual paths; 1 is single-path.
    #[arg(long)]
    pub vp_count: Option<u32>,
    /// Pruning distance in packets.
    #[arg(long)]
    pub delta: Option<u32>,
    /// Probability of a random path per packet, in 1/65536.
    #[arg(long)]
    pub probe: Option<u32>,
    /// Window at start and after idling, in packets.
    #[arg(long)]
    pub initial_window: Option<u32>,
    /// Largest window in packets.
    #[arg(long)]
    pub cwnd_max: Option<u32>,
    /// Pause between two bursts in 64 ns ticks.
    #[arg(long)]
    pub burst_interval: Option<u32>,
    /// Synchronise delay in sixteenths of delta * RTT / cwnd.
    #[arg(long)]
    pub alpha: Option<u32>,
    /// Shortest retransmission timeout in 4.096 us units.
    #[arg(long)]
    pub rto_floor: Option<u32>,
    /// Timeouts in a row without progress before a queue pair goes to ERROR.
    #[arg(long)]
    pub retry_cnt: Option<u8>,
    /// RNR NAKs in a row before a queue pair goes to ERROR; 7 is without end.
    #[arg(long)]
    pub rnr_retry: Option<u8>,
    /// Extension: repairs holes that a SACK map shows, without recovery. Set it on both sides: on or off.
    #[arg(long, value_name = "on|off", action = ArgAction::Set, value_parser = switch)]
    pub hole_repair: Option<bool>,
    /// Extension: packets without an ACK's clock take paths that have just worked: on or off.
    #[arg(long, value_name = "on|off", action = ArgAction::Set, value_parser = switch)]
    pub vp_recycle: Option<bool>,
}

impl Change {
    /// The parameters with the changes.
    pub fn apply(&self, old: &Parameters) -> Parameters {
        let (timers, paths) = (&old.timers, &old.multi_path);
        Parameters {
            path_mtu: old.path_mtu,
            timers: Timers {
                rto_floor: self.rto_floor.unwrap_or(timers.rto_floor),
                retry_cnt: self.retry_cnt.unwrap_or(timers.retry_cnt),
                rnr_retry: self.rnr_retry.unwrap_or(timers.rnr_retry),
            },
            multi_path: MultiPath {
                vp_base: self.vp_base.unwrap_or(paths.vp_base),
                vp_count: self.vp_count.unwrap_or(paths.vp_count),
                delta: self.delta.unwrap_or(paths.delta),
                probe: self.probe.unwrap_or(paths.probe),
                initial_window: self.initial_window.unwrap_or(paths.initial_window),
                cwnd_max: self.cwnd_max.unwrap_or(paths.cwnd_max),
                burst_interval: self.burst_interval.unwrap_or(paths.burst_interval),
                alpha: self.alpha.unwrap_or(paths.alpha),
                hole_repair: self.hole_repair.unwrap_or(paths.hole_repair),
                vp_recycle: self.vp_recycle.unwrap_or(paths.vp_recycle),
            },
        }
    }
}

/// `on` or `off`.
fn switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("write on or off".to_owned()),
    }
}
