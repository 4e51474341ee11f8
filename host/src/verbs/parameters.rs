//! Parameters of a queue pair's transport, with the ranges of `mprdma_spec::params`.

use mprdma_spec::params;
use serde::{Deserialize, Serialize};

use super::attr::{check, range};
use crate::error::Error;

/// Multi-path parameters of a queue pair (paper section 3) and the extensions of protocol section 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MultiPath {
    /// First UDP source port.
    pub vp_base: u32,
    /// Virtual paths; 1 is single-path.
    pub vp_count: u32,
    /// Pruning distance in packets.
    pub delta: u32,
    /// Probability of a random path per packet, in 1/65536.
    pub probe: u32,
    /// Window at start and after idling, in packets.
    pub initial_window: u32,
    /// Largest window in packets.
    pub cwnd_max: u32,
    /// Pause between two bursts in 64 ns ticks.
    pub burst_interval: u32,
    /// Synchronise delay in sixteenths of delta * RTT / cwnd.
    pub alpha: u32,
    /// Extension: ACKs carry a SACK map, and what it shows as lost is sent again without recovery.
    pub hole_repair: bool,
    /// Extension: packets without an ACK's clock take paths that have just worked.
    pub vp_recycle: bool,
}

impl Default for MultiPath {
    fn default() -> Self {
        Self {
            vp_base: params::VP_BASE.default as u32,
            vp_count: params::VP_COUNT.default as u32,
            delta: params::DELTA.default as u32,
            probe: params::PROBE.default as u32,
            initial_window: params::INITIAL_WINDOW.default as u32,
            cwnd_max: params::CWND_MAX.default as u32,
            burst_interval: params::BURST_INTERVAL.default as u32,
            alpha: params::ALPHA.default as u32,
            hole_repair: true,
            vp_recycle: true,
        }
    }
}

impl MultiPath {
    /// The same without the extensions: the published rules.
    #[must_use]
    pub const fn as_published(self) -> Self {
        Self {
            hole_repair: false,
            vp_recycle: false,
            ..self
        }
    }

    /// Checks every parameter against its range.
    ///
    /// # Errors
    /// [`Error::Parameter`] names the first that is outside.
    pub fn check(&self) -> Result<(), Error> {
        check(&params::VP_BASE, self.vp_base)?;
        check(&params::VP_COUNT, self.vp_count)?;
        check(&params::DELTA, self.delta)?;
        check(&params::PROBE, self.probe)?;
        check(&params::INITIAL_WINDOW, self.initial_window)?;
        check(&params::CWND_MAX, self.cwnd_max)?;
        check(&params::BURST_INTERVAL, self.burst_interval)?;
        check(&params::ALPHA, self.alpha)?;
        range(
            "vp_count",
            self.vp_count.into(),
            1,
            65536 - u64::from(self.vp_base),
            "vp_base + vp_count must not pass 65536",
        )
    }
}

/// Timers and retry counts of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timers {
    /// Shortest retransmission timeout in units of 4.096 us.
    pub rto_floor: u32,
    /// Timeouts in a row without progress before ERROR.
    pub retry_cnt: u8,
    /// RNR NAKs in a row before ERROR; 7 is without end.
    pub rnr_retry: u8,
}

impl Default for Timers {
    fn default() -> Self {
        Self {
            rto_floor: params::RTO_FLOOR.default as u32,
            retry_cnt: params::RETRY_CNT.default as u8,
            rnr_retry: params::RNR_RETRY.default as u8,
        }
    }
}

impl Timers {
    /// Checks every parameter against its range.
    ///
    /// # Errors
    /// [`Error::Parameter`] names the first that is outside.
    pub fn check(&self) -> Result<(), Error> {
        check(&params::RTO_FLOOR, self.rto_floor)?;
        check(&params::RETRY_CNT, self.retry_cnt)?;
        check(&params::RNR_RETRY, self.rnr_retry)
    }
}

/// What a queue pair is set to: the values that the card accepted last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameters {
    /// Path MTU in bytes.
    pub path_mtu: u32,
    /// Timers and retry counts.
    #[serde(flatten)]
    pub timers: Timers,
    /// Paths, window, extensions.
    #[serde(flatten)]
    pub multi_path: MultiPath,
}
