//! Meeting the peer: TCP, greeting, queue pairs on both sides, until both can send.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

use anyhow::Result;
use mprdma_host::exchange::{Channel, Endpoint, ExchangeError, Hello, Listener, Region};
use mprdma_host::verbs::{
    Access, AddressHandle, Cq, InitAttr, Mtu, Pd, Qp, QpInitAttr, RtrAttr, Wc,
};
use mprdma_host::Error;
use mprdma_spec::descriptor::WcOpcode;
use mprdma_spec::status::WcStatus;
use serde::{Deserialize, Serialize};

use crate::args::{Exchange, Path};
use crate::failure::{self, Failure};
use crate::open::{self, Opened};
use crate::report::Report;

/// How long the peer may take over one step of the set-up.
const STEP: Duration = Duration::from_secs(60);
/// Pause between two looks at the TCP connection while work is outstanding.
const GLANCE: Duration = Duration::from_millis(20);

/// Completions taken at a time.
const BATCH: usize = 256;

/// A message that either side may send at any time.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Say<T> {
    /// Part of the conversation.
    Word { word: T },
    /// Bytes completed so far; also sent now and then while nothing completes, to show life.
    Progress { bytes: u64 },
    /// The sender of this gives up.
    Failed { reason: String },
}

/// Waits for the peer to come, or goes to it, and makes sure that both want the same.
pub fn meet(
    exchange: &Exchange,
    host: Option<&str>,
    hello: &Hello,
    report: &Report,
) -> Result<Channel> {
    let mut channel = match host {
        Some(host) => Channel::connect(host, exchange.port, exchange.peer_timeout())?,
        None => {
            let listener = Listener::bind(exchange.bind, exchange.port)?;
            report.note(format!("waiting for the peer on {}", listener.address()));
            listener.accept(exchange.peer_timeout())?
        }
    };
    channel.greet(hello, STEP)?;
    Ok(channel)
}

/// What a session greets with.
pub fn hello(service: &str, path: &Path, qps: usize) -> Result<Hello> {
    Ok(Hello {
        service: service.to_owned(),
        mode: path.mode,
        path_mtu: Mtu::new(path.mtu)?,
        ipv6: path.ipv6,
        qps,
    })
}

/// A peer and the queue pairs towards it.
pub struct Session {
    pub qps: Vec<Qp>,
    pub cq: Cq,
    pub pd: Pd,
    pub opened: Opened,
    pub talk: Talk,
    /// Times that it looked for completions.
    pub looks: u64,
    /// Sleeps between them until the card interrupts.
    events: bool,
    path: Path,
    psns: Vec<u32>,
}

impl Session {
    /// Makes `qps` queue pairs of `depth` send and `receives` receive requests.
    pub fn new(
        opened: Opened,
        talk: Talk,
        path: &Path,
        qps: usize,
        depth: usize,
        receives: usize,
    ) -> Result<Self> {
        let pd = opened.context.alloc_pd()?;
        let cq = opened
            .context
            .create_cq(qps.saturating_mul(depth + receives).min(1 << 15))?;
        let attr = QpInitAttr {
            send_cq: &cq,
            recv_cq: &cq,
            max_send_wr: depth,
            max_recv_wr: receives,
            mode: path.mode,
            path_mtu: Mtu::new(path.mtu)?,
        };
        let qps = (0..qps)
            .map(|_| Ok(pd.create_qp(&attr)?))
            .collect::<Result<Vec<_>>>()?;
        let psns = qps.iter().map(|_| random() as u32 & 0xff_ffff).collect();
        Ok(Self {
            qps,
            cq,
            pd,
            opened,
            talk,
            looks: 0,
            events: false,
            path: path.clone(),
            psns,
        })
    }

    /// Waits for completions by interrupt, if so asked, instead of polling.
    pub const fn by_events(mut self, events: bool) -> Self {
        self.events = events;
        self
    }

    /// How it waits, for reports.
    pub const fn mode(&self) -> &'static str {
        if self.events {
            "events"
        } else {
            "polling"
        }
    }

    /// Exchanges addresses, offering `region` to the peer for `access`, and brings every queue pair to RTS. When it returns
    /// both sides are ready. Returns the peer's addresses.
    pub fn connect(&mut self, region: Region, access: Access) -> Result<Endpoint> {
        let numbers = self
            .qps
            .iter()
            .zip(&self.psns)
            .map(|(qp, psn)| (qp.qp_num(), *psn))
            .collect();
        let ours = Endpoint {
            mac: self.opened.mac,
            gid: self.opened.gid,
            qps: numbers,
            region,
        };
        self.talk.say(&ours)?;
        let theirs: Endpoint = self.talk.hear("addresses", STEP)?;
        if theirs.qps.len() != self.qps.len() {
            return Err(Failure::OutOfTurn(format!(
                "{} queue pairs for our {}",
                theirs.qps.len(),
                self.qps.len()
            ))
            .into());
        }
        for ((qp, psn), (their_qpn, their_psn)) in self.qps.iter().zip(&self.psns).zip(&theirs.qps)
        {
            qp.modify_to_init(&InitAttr {
                qp_access_flags: access,
                ..InitAttr::default()
            })?;
            qp.modify_to_rtr(&RtrAttr {
                path_mtu: Mtu::new(self.path.mtu)?,
                dest_qp_num: *their_qpn,
                rq_psn: *their_psn,
                ah_attr: AddressHandle {
                    dmac: self.path.dmac.unwrap_or(theirs.mac),
                    sgid: self.opened.gid,
                    dgid: theirs.gid,
                    vlan: self.path.vlan(),
                    hop_limit: self.path.hop_limit,
                    traffic_class: self.path.traffic_class,
                    flow_label: self.path.flow_label,
                },
            })?;
            qp.modify_to_rts(&self.path.rts(*psn)?)?;
        }
        Ok(theirs)
    }

    /// Tells the peer that we are ready and waits until it is.
    pub fn ready(&mut self) -> Result<()> {
        self.talk.say(&"ready")?;
        let word: String = self.talk.hear("sign of readiness", STEP)?;
        if word == "ready" {
            return Ok(());
        }
        Err(Failure::OutOfTurn(word).into())
    }

    /// Completions that are there, all good; looks at the peer now and then. By events it sleeps for a moment if there is
    /// none.
    pub fn poll(&mut self, patience: &mut Patience) -> Result<Vec<Wc>> {
        let completions = self.look()?;
        if let Some(bad) = completions.iter().find(|wc| wc.status != WcStatus::Success) {
            let what = match bad.opcode {
                Some(WcOpcode::RecvRdmaWithImm) => "a receive request",
                Some(WcOpcode::RdmaRead) => "an RDMA READ",
                Some(WcOpcode::CompSwap | WcOpcode::FetchAdd) => "an ATOMIC",
                _ => "an RDMA WRITE",
            };
            return Err(Failure::Completion {
                qpn: bad.qp_num,
                what,
                status: bad.status,
            }
            .into());
        }
        if completions.is_empty() {
            if !self.events {
                self.opened.context.device().relax()?;
            }
            self.talk.glance()?;
            let outstanding = self.qps.iter().map(Qp::send_outstanding).sum();
            patience.check(outstanding)?;
        } else {
            patience.renew();
        }
        Ok(completions)
    }

    fn look(&mut self) -> Result<Vec<Wc>> {
        self.looks += 1;
        if !self.events {
            return Ok(self.cq.poll(BATCH)?);
        }
        match self.cq.wait(BATCH, GLANCE) {
            Err(Error::Timeout { .. }) => Ok(vec![]),
            other => Ok(other?),
        }
    }

    /// The peer's name for messages.
    pub fn peer(&self, endpoint: &Endpoint) -> String {
        open::text(endpoint.gid)
    }
}

/// The TCP side of a session: words in order, progress and failures at any time.
pub struct Talk {
    channel: Channel,
    /// Bytes that the peer reports as completed.
    pub peer_bytes: u64,
    /// When the peer last said anything.
    pub heard: Instant,
    looked: Instant,
    told: Instant,
    waiting: Vec<serde_json::Value>,
}

impl Talk {
    pub fn new(channel: Channel) -> Self {
        let now = Instant::now();
        Self {
            channel,
            peer_bytes: 0,
            heard: now,
            looked: now,
            told: now,
            waiting: Vec::new(),
        }
    }

    /// Says a word.
    pub fn say<T: Serialize>(&mut self, word: &T) -> Result<()> {
        Ok(self.channel.send(&Say::Word { word })?)
    }

    /// Waits for the peer's next word. The limit is for its silence: progress prolongs it.
    pub fn hear<T: serde::de::DeserializeOwned>(
        &mut self,
        what: &'static str,
        limit: Duration,
    ) -> Result<T> {
        while self.waiting.is_empty() {
            let said = self.channel.recv(what, limit)?;
            self.take(said)?;
        }
        let word = self.waiting.remove(0);
        serde_json::from_value(word.clone())
            .map_err(|_| Failure::OutOfTurn(format!("{word} instead of {what}")).into())
    }

    /// Takes in what the peer has said, without waiting; notices when it is gone.
    pub fn glance(&mut self) -> Result<()> {
        if self.looked.elapsed() >= GLANCE {
            self.looked = Instant::now();
            while let Some(said) = self.channel.try_recv("message")? {
                self.take(said)?;
            }
        }
        Ok(())
    }

    /// Tells the peer of progress, often enough for a bar and as a sign of life.
    pub fn progress(&mut self, bytes: u64) -> Result<()> {
        if self.told.elapsed() >= Duration::from_millis(200) {
            self.told = Instant::now();
            self.channel.send(&Say::<()>::Progress { bytes })?;
        }
        Ok(())
    }

    /// Ends the conversation because of `error`, so that the peer can say why. The peer may be gone, or the reason.
    pub fn give_up(&mut self, error: &anyhow::Error) {
        let from_peer = error.chain().any(|cause| {
            cause.is::<ExchangeError>()
                || matches!(cause.downcast_ref(), Some(Failure::PeerFailed(_)))
        });
        if !from_peer {
            let _ = self.channel.send(&Say::<()>::Failed {
                reason: failure::text(error),
            });
        }
    }

    fn take(&mut self, said: Say<serde_json::Value>) -> Result<()> {
        self.heard = Instant::now();
        match said {
            Say::Word { word } => self.waiting.push(word),
            Say::Progress { bytes } => self.peer_bytes = bytes,
            Say::Failed { reason } => return Err(Failure::PeerFailed(reason).into()),
        }
        Ok(())
    }
}

/// The limit for waiting without progress.
pub struct Patience {
    limit: Duration,
    since: Instant,
}

impl Patience {
    pub fn new(limit: Duration) -> Self {
        Self {
            limit,
            since: Instant::now(),
        }
    }

    pub fn renew(&mut self) {
        self.since = Instant::now();
    }

    fn check(&self, outstanding: usize) -> Result<()> {
        if self.since.elapsed() < self.limit {
            return Ok(());
        }
        Err(Failure::NoProgress {
            seconds: self.limit.as_secs(),
            outstanding,
        }
        .into())
    }
}

/// A number that is hard to guess, from the seed that the standard library gets from the system.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Device time that passes, from the 64 ns ticks of completions, which wrap.
#[derive(Clone, Copy, Debug)]
pub struct Ticks {
    last: u32,
    /// Ticks since the start.
    pub passed: u64,
}

impl Ticks {
    pub const fn start(tick: u32) -> Self {
        Self {
            last: tick,
            passed: 0,
        }
    }

    /// Goes on to `tick`. Completions of several queues may be slightly out of order.
    pub fn advance(&mut self, tick: u32) {
        let step = tick.wrapping_sub(self.last);
        if step < 1 << 31 {
            self.passed += u64::from(step);
            self.last = tick;
        }
    }

    /// Seconds since the start.
    pub fn seconds(&self) -> f64 {
        self.passed as f64 * 64e-9
    }
}
