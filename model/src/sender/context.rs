//! What the sender half of a queue pair remembers.

use mprdma_spec::command::{qp_image, qp_status, QpState};
use mprdma_spec::layout::Field;
use mprdma_spec::params;

/// Settings of a QP: what `qp_image` brings to the sender half. Widths in bits are those of the image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderConfig {
    /// First UDP source port of the virtual paths (16).
    pub vp_base: u16,
    /// Number of virtual paths (16).
    pub vp_count: u16,
    /// Probability of a random path per packet in 1/65536 (16).
    pub probe: u16,
    /// Pruning distance in packets (8).
    pub delta: u8,
    /// Window at start and after idling, in packets (8).
    pub initial_window: u8,
    /// Largest window in packets (12).
    pub cwnd_max: u16,
    /// Pause of the burst timer in ticks (8).
    pub burst_interval: u8,
    /// Shortest retransmission timeout in slow units (16).
    pub rto_floor: u16,
    /// Timeouts in a row that are answered by retransmission (4).
    pub retry_cnt: u8,
    /// RNR NAKs in a row that are waited for; 7 is without end (4).
    pub rnr_retry: u8,
    /// Delay of synchronised messages in sixteenths of delta x RTT / cwnd (8).
    pub alpha: u8,
    /// Extension `hole_repair` (1).
    pub hole_repair: bool,
    /// Extension `vp_recycle` (1).
    pub vp_recycle: bool,
}

impl SenderConfig {
    /// The defaults of `spec::params`.
    #[must_use]
    pub const fn from_params() -> Self {
        Self {
            vp_base: params::VP_BASE.default as u16,
            vp_count: params::VP_COUNT.default as u16,
            probe: params::PROBE.default as u16,
            delta: params::DELTA.default as u8,
            initial_window: params::INITIAL_WINDOW.default as u8,
            cwnd_max: params::CWND_MAX.default as u16,
            burst_interval: params::BURST_INTERVAL.default as u8,
            rto_floor: params::RTO_FLOOR.default as u16,
            retry_cnt: params::RETRY_CNT.default as u8,
            rnr_retry: params::RNR_RETRY.default as u8,
            alpha: params::ALPHA.default as u8,
            hole_repair: true,
            vp_recycle: true,
        }
    }

    /// The same without the extensions: the published rules.
    #[must_use]
    pub const fn as_published(self) -> Self {
        Self {
            hole_repair: false,
            vp_recycle: false,
            ..self
        }
    }
}

/// Paths that [`SenderContext::ring`] holds.
pub const RING: usize = params::RECYCLED_PATHS;

/// The sender half of one QP. All zeros is a QP that does not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderContext {
    /// `QpState` code (3).
    pub state: u8,
    /// Loss recovery runs (protocol section 5).
    pub recovering: bool,
    /// An RNR NAK is being waited out: nothing leaves.
    pub rnr_wait: bool,
    /// The burst wheel holds this QP. Survives DESTROY_QP, as the wheel's entry does.
    pub burst_armed: bool,
    /// The retransmission wheel holds this QP. Survives DESTROY_QP.
    pub rto_armed: bool,
    /// Congestion window in half packets, at least 2 (13).
    pub cwnd: u16,
    /// Growth earned but not yet a half packet, in quarters of 1/cwnd (13).
    pub growth: u16,
    /// Packets SACKed but not covered by the cumulative ACK (12).
    pub inflate: u16,
    /// Oldest PSN not acknowledged (24).
    pub snd_una: u32,
    /// Next new PSN to send (24).
    pub snd_nxt: u32,
    /// PSN after the last packet of fetched work (24).
    pub snd_lim: u32,
    /// Highest PSN SACKed (24).
    pub snd_ooh: u32,
    /// PSN at which recovery ends (24).
    pub recovery: u32,
    /// Next PSN to retransmit (24).
    pub snd_retx: u32,
    /// Smoothed RTT in 1/8 ticks; 0 before the first sample (19).
    pub srtt: u32,
    /// RTT deviation in 1/4 ticks (18).
    pub rttvar: u32,
    /// Timeouts in a row without progress (4).
    pub retries: u8,
    /// log2 of the timeout's multiplier, at most 6 (3).
    pub backoff: u8,
    /// RNR NAKs in a row without progress (3).
    pub rnr_retries: u8,
    /// Timer code of the RNR NAK that is waited out (5).
    pub rnr_timer: u8,
    /// Virtual path of the last ACK (16).
    pub last_vp: u16,
    /// Packets of the first window still to come, each for a random path unless an ACK clocks it out (8).
    pub start: u8,
    /// Retransmissions that a timeout still allows without an ACK clock (12).
    pub rto_left: u16,
    /// Time in ticks of the last progress, or of the first packet in flight, or of the last timeout (32).
    pub progress_at: u32,
    /// `vp_recycle`: paths of the last good ACKs as distances from `vp_base`, the newest first (16 x 14).
    pub ring: [u16; RING],
    /// How many of them are there (5).
    pub ring_count: u8,
    /// `hole_repair`: low bits of the tick at which the pass over the holes began (16).
    pub pass_at: u16,
    /// A synchronised message waits (1).
    pub sync_wait: bool,
    /// Its first PSN (24).
    pub sync_psn: u32,
    /// Low bits of the tick at which the last new packet left (16).
    pub last_new_at: u16,
    /// Settings.
    pub config: SenderConfig,
}

impl SenderContext {
    /// A QP in state RTS whose first PSN is `psn`, created at time `now`.
    #[must_use]
    pub fn new(config: SenderConfig, psn: u32, now: u32) -> Self {
        let mut context = Self {
            state: QpState::Rts as u8,
            config,
            last_vp: config.vp_base,
            ..Self::default()
        };
        context.restart_at(psn, now);
        context
    }

    /// Empties the PSN space at `psn` and starts everything that was measured anew.
    pub(super) fn restart_at(&mut self, psn: u32, now: u32) {
        self.recovering = false;
        self.rnr_wait = false;
        self.snd_una = psn;
        self.snd_nxt = psn;
        self.snd_lim = psn;
        self.recovery = psn;
        self.snd_retx = psn;
        self.snd_ooh = crate::psn::add(psn, crate::psn::MASK);
        self.srtt = 0;
        self.rttvar = 0;
        self.retries = 0;
        self.backoff = 0;
        self.rnr_retries = 0;
        self.rnr_timer = 0;
        self.rto_left = 0;
        self.progress_at = now;
        self.pass_at = now as u16;
        self.sync_wait = false;
        self.last_new_at = now as u16;
        self.first_window();
    }

    /// The window of a start: `iw` packets on random paths (protocol section 4, Start).
    pub(super) fn first_window(&mut self) {
        let iw = u16::from(self.config.initial_window);
        self.cwnd = 2 * iw.min(self.config.cwnd_max);
        self.growth = 0;
        self.inflate = 0;
        self.start = self.config.initial_window;
        // The last ACKs before a pause came back on the slowest paths.
        self.ring_count = 0;
    }

    /// Packets in flight.
    #[must_use]
    pub const fn flight(&self) -> u32 {
        crate::psn::distance(self.snd_una, self.snd_nxt)
    }

    /// Fetched packets not sent yet.
    #[must_use]
    pub const fn unsent(&self) -> u32 {
        crate::psn::distance(self.snd_nxt, self.snd_lim)
    }

    /// The first half of QUERY_QP's result.
    #[must_use]
    pub fn status(&self) -> [u8; 64] {
        let mut image = [0; 64];
        for (field, value) in [
            (qp_status::STATE, u64::from(self.state)),
            (qp_status::RECOVERING, u64::from(self.recovering)),
            (qp_status::CWND, u64::from(self.cwnd)),
            (qp_status::INFLATE, u64::from(self.inflate)),
            (qp_status::SND_UNA, u64::from(self.snd_una)),
            (qp_status::SND_NXT, u64::from(self.snd_nxt)),
            (qp_status::SND_LIM, u64::from(self.snd_lim)),
            (qp_status::SND_OOH, u64::from(self.snd_ooh)),
            (qp_status::RECOVERY, u64::from(self.recovery)),
            (qp_status::SND_RETX, u64::from(self.snd_retx)),
            (qp_status::SRTT, u64::from(self.srtt)),
            (qp_status::RTTVAR, u64::from(self.rttvar)),
            (qp_status::RETRIES, u64::from(self.retries)),
            (qp_status::BACKOFF, u64::from(self.backoff)),
            (qp_status::LAST_VP, u64::from(self.last_vp)),
        ] {
            field.set(&mut image, value);
        }
        image
    }
}

/// What a CREATE_QP or MODIFY_QP image says about the sender half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderImage {
    /// Groups to take, `MASK_` bits; CREATE_QP takes all.
    pub mask: u8,
    /// `QpState` code.
    pub state: u8,
    /// First PSN.
    pub sq_psn: u32,
    /// Settings.
    pub config: SenderConfig,
}

impl SenderImage {
    /// Reads the fields out of a [`qp_image`].
    #[must_use]
    pub fn read(image: &[u8; qp_image::BYTES]) -> Self {
        let get = |field: Field| field.get(image);
        Self {
            mask: get(qp_image::MASK) as u8,
            state: get(qp_image::STATE) as u8 & 7,
            sq_psn: get(qp_image::SQ_PSN) as u32,
            config: SenderConfig {
                vp_base: get(qp_image::VP_BASE) as u16,
                vp_count: get(qp_image::VP_COUNT) as u16,
                probe: get(qp_image::PROBE) as u16,
                delta: get(qp_image::DELTA) as u8,
                initial_window: get(qp_image::INITIAL_WINDOW) as u8,
                cwnd_max: get(qp_image::CWND_MAX) as u16,
                burst_interval: get(qp_image::BURST_INTERVAL) as u8,
                rto_floor: get(qp_image::RTO_FLOOR) as u16,
                retry_cnt: get(qp_image::RETRY_CNT) as u8,
                rnr_retry: get(qp_image::RNR_RETRY) as u8,
                alpha: get(qp_image::ALPHA) as u8,
                hole_repair: get(qp_image::HOLE_REPAIR) != 0,
                vp_recycle: get(qp_image::VP_RECYCLE) != 0,
            },
        }
    }

    /// Writes the fields into a [`qp_image`].
    pub fn write(&self, image: &mut [u8; qp_image::BYTES]) {
        let c = &self.config;
        for (field, value) in [
            (qp_image::MASK, u64::from(self.mask)),
            (qp_image::STATE, u64::from(self.state)),
            (qp_image::SQ_PSN, u64::from(self.sq_psn)),
            (qp_image::VP_BASE, u64::from(c.vp_base)),
            (qp_image::VP_COUNT, u64::from(c.vp_count)),
            (qp_image::PROBE, u64::from(c.probe)),
            (qp_image::DELTA, u64::from(c.delta)),
            (qp_image::INITIAL_WINDOW, u64::from(c.initial_window)),
            (qp_image::CWND_MAX, u64::from(c.cwnd_max)),
            (qp_image::BURST_INTERVAL, u64::from(c.burst_interval)),
            (qp_image::RTO_FLOOR, u64::from(c.rto_floor)),
            (qp_image::RETRY_CNT, u64::from(c.retry_cnt)),
            (qp_image::RNR_RETRY, u64::from(c.rnr_retry)),
            (qp_image::ALPHA, u64::from(c.alpha)),
            (qp_image::HOLE_REPAIR, u64::from(c.hole_repair)),
            (qp_image::VP_RECYCLE, u64::from(c.vp_recycle)),
        ] {
            field.set(image, value);
        }
    }
}
