//! Attributes of queue pairs and work requests, named as in verbs, with the ranges of `mprdma_spec::params`.

use mprdma_spec::command::QpState;
use mprdma_spec::config::READ_SLOTS_LOG2;
use mprdma_spec::descriptor::{WcOpcode, WrOpcode};
use mprdma_spec::params::{self, Param};
use mprdma_spec::status::WcStatus;
use serde::{Deserialize, Serialize};

use super::cq::Cq;
use super::mr::Access;
use super::parameters::{MultiPath, Timers};
use crate::error::Error;
use crate::port::{Gid, Mac};

/// READs and ATOMICs together that a queue pair may have open, in each direction (verbs' `max_rd_atomic` and
/// `max_dest_rd_atomic`). The card is built for so many and takes no other number: it keeps further ones back until earlier
/// ones are done.
pub const MAX_RD_ATOMIC: usize = 1 << READ_SLOTS_LOG2;

/// Transport of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// Multi-path RDMA between cards of ours.
    #[default]
    #[serde(rename = "MP")]
    Mp,
    /// Plain RoCEv2 reliable connection. A card whose image lacks it refuses the queue pair.
    #[serde(rename = "RC")]
    Rc,
}

impl Mode {
    /// Code in `qp_image::MODE`.
    #[must_use]
    pub const fn code(self) -> u64 {
        match self {
            Self::Rc => 0,
            Self::Mp => 1,
        }
    }
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Mp => "MP",
            Self::Rc => "RC",
        })
    }
}

/// A path MTU of IBA: 256, 512, 1024, 2048 or 4096 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Mtu(u32);

impl Mtu {
    /// The MTU of `bytes` bytes.
    ///
    /// # Errors
    /// [`Error::Mtu`].
    pub const fn new(bytes: u32) -> Result<Self, Error> {
        match params::mtu_code(bytes) {
            Some(_) => Ok(Self(bytes)),
            None => Err(Error::Mtu { bytes }),
        }
    }

    /// Payload bytes of a full packet.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        self.0
    }

    /// IBA's code, 1 to 5.
    #[must_use]
    pub fn code(self) -> u64 {
        params::mtu_code(self.0).map_or(0, u64::from)
    }
}

impl TryFrom<u32> for Mtu {
    type Error = Error;

    fn try_from(bytes: u32) -> Result<Self, Error> {
        Self::new(bytes)
    }
}

impl From<Mtu> for u32 {
    fn from(mtu: Mtu) -> Self {
        mtu.bytes()
    }
}

/// What a queue pair is made of (`ibv_qp_init_attr`).
#[derive(Clone, Copy, Debug)]
pub struct QpInitAttr<'a> {
    /// Where send requests complete.
    pub send_cq: &'a Cq,
    /// Where receive requests complete.
    pub recv_cq: &'a Cq,
    /// Least entries of the send queue, 1 to 32768; rounded up to a power of two.
    pub max_send_wr: usize,
    /// Least entries of the receive queue, 1 to 32768; rounded up to a power of two.
    pub max_recv_wr: usize,
    /// Transport.
    pub mode: Mode,
    /// The path MTU that [`RtrAttr::path_mtu`] is going to set. Another value then works too, but the card must build
    /// the queue pair again.
    pub path_mtu: Mtu,
}

/// RESET to INIT.
#[derive(Clone, Copy, Debug)]
pub struct InitAttr {
    /// What the peer may ask for (`qp_access_flags`).
    pub qp_access_flags: Access,
    /// Partition key.
    pub pkey: u16,
}

impl Default for InitAttr {
    fn default() -> Self {
        Self {
            qp_access_flags: Access::LOCAL_WRITE | Access::REMOTE_WRITE,
            pkey: 0xffff,
        }
    }
}

/// An 802.1Q tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vlan {
    /// VLAN id, 0 to 4094.
    pub id: u16,
    /// Priority code point, 0 to 7.
    pub priority: u8,
}

/// Where packets go and how they are marked (`ibv_ah_attr`).
#[derive(Clone, Copy, Debug)]
pub struct AddressHandle {
    /// Ethernet address of the peer or of the router towards it.
    pub dmac: Mac,
    /// Our address.
    pub sgid: Gid,
    /// The peer's address, of the same family.
    pub dgid: Gid,
    /// Tag, if any.
    pub vlan: Option<Vlan>,
    /// IPv4 TTL or IPv6 hop limit.
    pub hop_limit: u8,
    /// DSCP in bits 7..2; the card sets ECN itself.
    pub traffic_class: u8,
    /// IPv6 flow label, 20 bits.
    pub flow_label: u32,
}

/// INIT to RTR.
#[derive(Clone, Copy, Debug)]
pub struct RtrAttr {
    /// Path MTU.
    pub path_mtu: Mtu,
    /// Queue pair number of the peer.
    pub dest_qp_num: u32,
    /// First PSN to expect.
    pub rq_psn: u32,
    /// The peer's address.
    pub ah_attr: AddressHandle,
}

/// RTR to RTS.
#[derive(Clone, Copy, Debug)]
pub struct RtsAttr {
    /// First PSN to send.
    pub sq_psn: u32,
    /// Shortest retransmission timeout in units of 4.096 us (verbs' `timeout` is the logarithm of this).
    pub timeout: u32,
    /// Timeouts in a row without progress before ERROR.
    pub retry_cnt: u8,
    /// RNR NAKs in a row before ERROR; 7 is without end.
    pub rnr_retry: u8,
    /// Multi-path parameters.
    pub multi_path: MultiPath,
}

impl RtsAttr {
    /// Defaults, with the first PSN to send.
    #[must_use]
    pub fn new(sq_psn: u32) -> Self {
        Self {
            sq_psn,
            timeout: params::RTO_FLOOR.default as u32,
            retry_cnt: params::RETRY_CNT.default as u8,
            rnr_retry: params::RNR_RETRY.default as u8,
            multi_path: MultiPath::default(),
        }
    }

    /// Its timers and retry counts.
    #[must_use]
    pub const fn timers(&self) -> Timers {
        Timers {
            rto_floor: self.timeout,
            retry_cnt: self.retry_cnt,
            rnr_retry: self.rnr_retry,
        }
    }
}

impl RtsAttr {
    /// Checks every parameter against its range.
    ///
    /// # Errors
    /// [`Error::Parameter`] names the first that is outside.
    pub fn check(&self) -> Result<(), Error> {
        range(
            "sq_psn",
            self.sq_psn.into(),
            0,
            PSN_MAX,
            "first PSN to send, 24 bits",
        )?;
        self.timers().check()?;
        self.multi_path.check()
    }
}

impl RtrAttr {
    /// Checks every parameter against its range.
    ///
    /// # Errors
    /// [`Error::Parameter`] names the first that is outside.
    pub fn check(&self) -> Result<(), Error> {
        range(
            "rq_psn",
            self.rq_psn.into(),
            0,
            PSN_MAX,
            "first PSN to expect, 24 bits",
        )?;
        range(
            "dest_qp_num",
            self.dest_qp_num.into(),
            0,
            0xff_ffff,
            "queue pair number of the peer, 24 bits",
        )?;
        range(
            "flow_label",
            self.ah_attr.flow_label.into(),
            0,
            0xf_ffff,
            "IPv6 flow label, 20 bits",
        )?;
        range(
            "hop_limit",
            self.ah_attr.hop_limit.into(),
            1,
            255,
            "IPv4 TTL or IPv6 hop limit",
        )?;
        if let Some(vlan) = self.ah_attr.vlan {
            range("vlan", vlan.id.into(), 0, 4094, "VLAN id")?;
            range(
                "vlan priority",
                vlan.priority.into(),
                0,
                7,
                "802.1Q priority code point",
            )?;
        }
        let families = u64::from(self.ah_attr.sgid.is_ipv6() != self.ah_attr.dgid.is_ipv6());
        range(
            "address families differing",
            families,
            0,
            0,
            "sgid and dgid must both be IPv4 or both IPv6",
        )?;
        range(
            "dmac group bit",
            u64::from(!self.ah_attr.dmac.is_station()),
            0,
            0,
            "dmac must name one station",
        )
    }
}

const PSN_MAX: u64 = 0xff_ffff;

/// Checks `value` against the range of `param`.
pub(crate) fn check(param: &Param, value: impl Into<u64>) -> Result<(), Error> {
    range(param.name, value.into(), param.min, param.max, param.doc)
}

/// Checks `value` against `min..=max`.
pub(crate) fn range(
    name: &'static str,
    value: u64,
    min: u64,
    max: u64,
    doc: &'static str,
) -> Result<(), Error> {
    if value < min || value > max {
        return Err(Error::Parameter {
            name,
            value,
            min,
            max,
            doc,
        });
    }
    Ok(())
}

/// Flags of a send request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendFlags {
    /// A completion is wanted on success; a failure always makes one.
    pub signaled: bool,
    /// Wait for earlier READs and ATOMICs (IBA 10.8.3.3). WRITEs are not waited for: `sync` orders those.
    pub fence: bool,
    /// Solicited event at the peer.
    pub solicited: bool,
    /// Take effect after all earlier work (protocol section 6).
    pub sync: bool,
}

/// A send request (`ibv_send_wr`).
#[derive(Clone, Copy, Debug)]
pub struct SendWr {
    /// Returned in the completion.
    pub wr_id: u64,
    /// Operation.
    pub opcode: WrOpcode,
    /// Flags.
    pub flags: SendFlags,
    /// Local address, inside the region of `lkey`; a READ and an ATOMIC need [`Access::LOCAL_WRITE`] there. To it goes what
    /// an ATOMIC found, 8 bytes in the order of this host.
    pub addr: u64,
    /// Bytes, 0 to 2^31; of a READ at most 2^16 times the path MTU, of an ATOMIC 8 (IBA 9.4.5).
    pub length: u64,
    /// Local key.
    pub lkey: u32,
    /// Remote address; of an ATOMIC a multiple of 8 (IBA 9.4.5).
    pub remote_addr: u64,
    /// Remote key.
    pub rkey: u32,
    /// Immediate data, sent big-endian; used by operations with immediate.
    pub imm: u32,
    /// [`WrOpcode::AtomicFetchAndAdd`]: what is added, without a carry out of 64 bits. [`WrOpcode::AtomicCmpAndSwp`]: what the
    /// memory must hold for the swap (`wr.atomic.compare_add`; IBA 9.4.5).
    pub compare_add: u64,
    /// [`WrOpcode::AtomicCmpAndSwp`]: what is swapped in (`wr.atomic.swap`).
    pub swap: u64,
}

/// A receive request (`ibv_recv_wr`).
#[derive(Clone, Copy, Debug, Default)]
pub struct RecvWr {
    /// Returned in the completion.
    pub wr_id: u64,
    /// Local address.
    pub addr: u64,
    /// Bytes.
    pub length: u32,
    /// Local key.
    pub lkey: u32,
}

/// A completion (`ibv_wc`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wc {
    /// From the work request.
    pub wr_id: u64,
    /// Outcome.
    pub status: WcStatus,
    /// What completed; nothing when the card cannot tell, as for a request with an unknown operation.
    pub opcode: Option<WcOpcode>,
    /// Bytes of the message.
    pub byte_len: u32,
    /// Immediate data, if there was some.
    pub imm: Option<u32>,
    /// Queue pair.
    pub qp_num: u32,
    /// Protocol clock when the entry was made, in 64 ns ticks; wraps. 0 for receive requests flushed by the driver.
    pub timestamp: u32,
}

/// What the card knows of a queue pair (QUERY_QP).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct QpStatus {
    /// State of the sender half.
    pub state: &'static str,
    /// State of the receiver half.
    pub rx_state: &'static str,
    /// Loss recovery is running.
    pub recovering: bool,
    /// Congestion window in packets.
    pub cwnd: f64,
    /// Packets SACKed but not yet covered by the cumulative ACK.
    pub inflate: u64,
    /// Oldest PSN not acknowledged.
    pub snd_una: u64,
    /// Next new PSN to send.
    pub snd_nxt: u64,
    /// PSN after the last packet of fetched work.
    pub snd_lim: u64,
    /// Highest PSN SACKed.
    pub snd_ooh: u64,
    /// Smoothed round-trip time in microseconds.
    pub srtt_us: f64,
    /// Deviation of the round-trip time in microseconds.
    pub rttvar_us: f64,
    /// PSN at which the recovery that runs, or the last one, ends.
    pub recovery: u64,
    /// Next PSN to retransmit.
    pub snd_retx: u64,
    /// Timeouts in a row without progress.
    pub retries: u64,
    /// log2 of the timeout's multiplier.
    pub backoff: u64,
    /// Virtual path of the last ACK.
    pub last_vp: u64,
    /// Next PSN that the receiver waits for.
    pub rcv_nxt: u64,
    /// Messages completed by the receiver.
    pub msn: u64,
    /// Packets held beyond `rcv_nxt`.
    pub received: u64,
    /// Next receive WQE to complete.
    pub rcv_wsn: u64,
}

/// Name of a state, as verbs prints it.
#[must_use]
pub const fn state_name(state: QpState) -> &'static str {
    match state {
        QpState::Reset => "RESET",
        QpState::Init => "INIT",
        QpState::Rtr => "RTR",
        QpState::Rts => "RTS",
        QpState::Error => "ERROR",
    }
}
