//! Two or more cards in this process, a driver on each, and queue pairs between them.
//!
//! The cards are the RTL or the model that stands in for it: [`Rig::start`] takes what the test runs [`on`], else what
//! the environment variable `MPRDMA_ENGINE` names (`rtl` or `model`), else the RTL.

use anyhow::{bail, ensure, Context as _, Result};
use mprdma_host::device::Device;
use mprdma_host::memory::{Memory, PageSize};
use mprdma_host::port::{Gid, Mac};
use mprdma_host::verbs::{
    Access, AddressHandle, Context, ContextAttr, Cq, InitAttr, Mode, Mr, Mtu, Pd, Qp, QpInitAttr,
    RtrAttr, RtsAttr, SendFlags, SendWr, Vlan, Wc,
};
use mprdma_sim::engine::Engine;
use mprdma_sim::inproc::InProcess;
use mprdma_sim::scenario::Scenario;
use mprdma_sim::time::{Ps, NS};
use mprdma_sim::world::Options;
use mprdma_spec::counter::Counter;
use mprdma_spec::descriptor::WrOpcode;
use mprdma_spec::params::ATOMIC_BYTES;
use mprdma_spec::status::WcStatus;
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;

/// One microsecond of simulated time.
pub const US: Ps = 1000 * NS;

/// Four paths of different length that lose and overtake.
pub const ROUGH: &str = "name = \"rough\"\n[network]\nkind = \"leaf-spine\"\ncards = 2\nleaves = 2\nspines = 4\n\
     card_rate_gbps = 100.0\nspine_rate_gbps = 25.0\ndelay_ns = 500\nqueue_packets = 256\nqueue_bytes = 1_048_576\n\
     [[link]]\nfrom = \"leaf*\"\nto = \"spine*\"\nboth = true\nloss = 0.01\nreorder = 0.1\nreorder_ns = 5000\n";

thread_local! {
    static ENGINE: Cell<Option<Engine>> = const { Cell::new(None) };
}

/// Runs `test` with rigs of this engine, those that it starts on this thread.
pub fn on<R>(engine: Engine, test: impl FnOnce() -> R) -> R {
    /// Also when the test panics: the thread may go on with another one.
    struct Restore(Option<Engine>);
    impl Drop for Restore {
        fn drop(&mut self) {
            ENGINE.set(self.0);
        }
    }
    let _restore = Restore(ENGINE.replace(Some(engine)));
    test()
}

/// The engine of the rigs that are started now.
pub fn engine() -> Result<Engine> {
    if let Some(engine) = ENGINE.get() {
        return Ok(engine);
    }
    match std::env::var("MPRDMA_ENGINE").as_deref() {
        Err(std::env::VarError::NotPresent) | Ok("rtl") => Ok(Engine::Rtl),
        Ok("model") => Ok(Engine::Model),
        other => bail!("MPRDMA_ENGINE is {other:?}; write rtl or model"),
    }
}

/// Runs tests of the file once more, on the model: `on_model!(one_test, another_test);`.
#[macro_export]
macro_rules! on_model {
    ($($test:ident),+ $(,)?) => {
        mod on_model {
            $(
                #[test]
                fn $test() -> anyhow::Result<()> {
                    $crate::rig::on(mprdma_sim::engine::Engine::Model, super::$test)
                }
            )+
        }
    };
}

/// How a pair of queue pairs is set up.
#[derive(Clone, Copy, Debug)]
pub struct PairAttr {
    /// Path MTU, bytes.
    pub mtu: u32,
    /// Path MTU of the side that receives, where it is to be another.
    pub peer_mtu: Option<u32>,
    /// IPv6 instead of IPv4.
    pub ipv6: bool,
    /// 802.1Q tag.
    pub vlan: Option<Vlan>,
    /// First PSN of the side that sends.
    pub psn: u32,
    /// Attributes of the send half.
    pub rts: RtsAttr,
    /// Entries of the send and of the receive queue.
    pub depth: usize,
    /// What each side may ask the other for.
    pub access: Access,
}

impl Default for PairAttr {
    fn default() -> Self {
        Self {
            mtu: 4096,
            peer_mtu: None,
            ipv6: false,
            vlan: None,
            psn: 0x12_3456,
            rts: RtsAttr::new(0),
            depth: 64,
            access: everything(),
        }
    }
}

impl PairAttr {
    /// First PSN of `tx`, or in `reverse` of `rx`.
    #[must_use]
    pub const fn first_psn(&self, reverse: bool) -> u32 {
        match reverse {
            false => self.psn,
            true => self.psn ^ 0x55_5555,
        }
    }
}

/// One card with its driver open.
pub struct Side {
    /// The card.
    pub context: Context,
    /// Its only protection domain.
    pub pd: Pd,
    /// Its only completion queue.
    pub cq: Cq,
}

/// A simulation with a driver on every card.
pub struct Rig {
    /// The simulation.
    pub sim: InProcess,
    /// Cards 0, 1, …
    pub sides: Vec<Side>,
}

/// Two connected queue pairs: `tx` on the card that writes, `rx` on the other.
pub struct Pair {
    /// Sends.
    pub tx: Qp,
    /// Receives.
    pub rx: Qp,
    /// Card of `tx`.
    pub from: usize,
    /// Card of `rx`.
    pub to: usize,
}

/// A scenario that the simulator brings along, or other TOML text.
pub fn scenario(text: &str) -> Result<Scenario> {
    let text = match text {
        "demo" | "direct" | "small" => {
            let file =
                Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../sim/scenarios/{text}.toml"));
            std::fs::read_to_string(&file).with_context(|| file.display().to_string())?
        }
        _ => text.to_string(),
    };
    Ok(Scenario::parse(&text, Path::new("scenario"))?)
}

fn mac(card: usize) -> Mac {
    Mac([2, 0, 0, 0, 0, card as u8 + 1])
}

fn gid(card: usize, ipv6: bool) -> Gid {
    let last = card as u8 + 1;
    Gid::from(match ipv6 {
        false => IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)),
        true => IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last.into())),
    })
}

impl Side {
    /// Opens a card with these attributes and a MAC address of its own.
    pub fn open(card: usize, device: Arc<dyn Device>, attr: &ContextAttr) -> Result<Self> {
        let attr = ContextAttr {
            mac: Some(mac(card)),
            ..*attr
        };
        let context = Context::open(device, &attr)?;
        let (pd, cq) = (context.alloc_pd()?, context.create_cq(4096)?);
        Ok(Self { context, pd, cq })
    }

    /// Registers part of `memory`.
    pub fn register(&self, memory: &Arc<Memory>, offset: usize, bytes: usize) -> Result<Mr> {
        Ok(self.pd.register(memory, offset, bytes, everything())?)
    }
}

impl Pair {
    /// Connects a queue pair of side `from` with one of side `to`.
    pub fn between(sides: &[Side], from: usize, to: usize, attr: &PairAttr) -> Result<Self> {
        let create = |side: &Side| {
            side.pd.create_qp(&QpInitAttr {
                send_cq: &side.cq,
                recv_cq: &side.cq,
                max_send_wr: attr.depth,
                max_recv_wr: attr.depth,
                mode: Mode::Mp,
                path_mtu: Mtu::new(attr.mtu)?,
            })
        };
        let (tx, rx) = (create(&sides[from])?, create(&sides[to])?);
        let pair = Self { tx, rx, from, to };
        Rig::connect(&pair, attr)?;
        Ok(pair)
    }
}

impl Rig {
    /// Builds the world and opens every card.
    pub fn new(scenario: &Scenario, options: &Options) -> Result<Self> {
        Self::open(scenario, options, &ContextAttr::default())
    }

    /// Builds the world and opens every card with these attributes and a MAC address of its own.
    pub fn open(scenario: &Scenario, options: &Options, attr: &ContextAttr) -> Result<Self> {
        let sim = InProcess::new(scenario, options)?;
        let cards = sim.stats().cards.len();
        let sides = (0..cards)
            .map(|card| Side::open(card, Arc::new(sim.device(card)), attr))
            .collect::<Result<_>>()?;
        Ok(Self { sim, sides })
    }

    /// A scenario by name or text, with a seed, on the engine of [`engine`].
    pub fn start(text: &str, seed: u64) -> Result<Self> {
        Self::with_engine(text, seed, engine()?)
    }

    /// A scenario by name or text, with a seed, on this engine.
    pub fn with_engine(text: &str, seed: u64, engine: Engine) -> Result<Self> {
        Self::new(
            &scenario(text)?,
            &Options {
                engine,
                seed,
                threads: 1,
                pcap: None,
            },
        )
    }

    /// Connects a queue pair of card `from` with one of card `to`.
    pub fn pair(&self, from: usize, to: usize, attr: &PairAttr) -> Result<Pair> {
        Pair::between(&self.sides, from, to, attr)
    }

    /// Takes both queue pairs from RESET to RTS.
    pub fn connect(pair: &Pair, attr: &PairAttr) -> Result<()> {
        for reverse in [false, true] {
            Self::receive(pair, attr, reverse)?;
            Self::send(pair, attr, reverse)?;
        }
        Ok(())
    }

    /// Takes `tx`, or in `reverse` `rx`, from RESET to RTR.
    pub fn receive(pair: &Pair, attr: &PairAttr, reverse: bool) -> Result<()> {
        let Pair { tx, rx, from, to } = pair;
        let (qp, peer, ours, theirs, mtu) = match reverse {
            false => (tx, rx, *from, *to, attr.mtu),
            true => (rx, tx, *to, *from, attr.peer_mtu.unwrap_or(attr.mtu)),
        };
        qp.modify_to_init(&InitAttr {
            qp_access_flags: attr.access,
            ..InitAttr::default()
        })?;
        qp.modify_to_rtr(&RtrAttr {
            path_mtu: Mtu::new(mtu)?,
            dest_qp_num: peer.qp_num(),
            rq_psn: attr.first_psn(!reverse),
            ah_attr: AddressHandle {
                dmac: mac(theirs),
                sgid: gid(ours, attr.ipv6),
                dgid: gid(theirs, attr.ipv6),
                vlan: attr.vlan,
                hop_limit: 64,
                traffic_class: 0,
                flow_label: 0x1_2345,
            },
        })?;
        Ok(())
    }

    /// And on to RTS.
    pub fn send(pair: &Pair, attr: &PairAttr, reverse: bool) -> Result<()> {
        let sq_psn = attr.first_psn(reverse);
        let qp = if reverse { &pair.rx } else { &pair.tx };
        Ok(qp.modify_to_rts(&RtsAttr { sq_psn, ..attr.rts })?)
    }

    /// Registers `bytes` of memory on a card, `offset` bytes into a page.
    pub fn region(&self, card: usize, offset: usize, bytes: usize) -> Result<Mr> {
        let memory = Arc::new(Memory::allocate(offset + bytes, PageSize::Small)?);
        self.register(card, &memory, offset, bytes)
    }

    /// Registers part of `memory` on a card.
    pub fn register(
        &self,
        card: usize,
        memory: &Arc<Memory>,
        offset: usize,
        bytes: usize,
    ) -> Result<Mr> {
        self.sides[card].register(memory, offset, bytes)
    }

    /// Waits until `count` completions are there, no longer than `limit` of simulated time.
    pub fn completions(&self, card: usize, count: usize, limit: Ps) -> Result<Vec<Wc>> {
        let end = self.sim.now() + limit;
        let mut found = Vec::new();
        loop {
            found.extend(self.sides[card].cq.poll(count - found.len())?);
            if found.len() == count {
                return Ok(found);
            }
            if self.sim.now() >= end {
                bail!(
                    "{} of {count} completions after {} us of simulated time",
                    found.len(),
                    limit / US
                );
            }
            self.sim.run(US);
        }
    }

    /// Writes `length` bytes and waits for the completion.
    pub fn write(&self, pair: &Pair, source: &Mr, target: &Mr, length: usize) -> Result<()> {
        pair.tx
            .post_send(&[write_request(1, source, target, length)])?;
        let wc = self.completions(pair.from, 1, 20_000 * US)?.remove(0);
        ensure!(
            wc.status == WcStatus::Success,
            "completed with {:?}",
            wc.status
        );
        Ok(())
    }
}

/// Every access that there is an operation for.
fn everything() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC
}

/// A signalled WRITE of the first `length` bytes of `source` to the start of `target`.
#[must_use]
pub fn write_request(wr_id: u64, source: &Mr, target: &Mr, length: usize) -> SendWr {
    SendWr {
        wr_id,
        opcode: WrOpcode::RdmaWrite,
        flags: SendFlags {
            signaled: true,
            ..SendFlags::default()
        },
        addr: source.addr(),
        length: length as u64,
        lkey: source.lkey(),
        remote_addr: target.addr(),
        rkey: target.rkey(),
        imm: 0,
        compare_add: 0,
        swap: 0,
    }
}

/// A signalled READ of the first `length` bytes of `source`, of the peer, to the start of `target`.
#[must_use]
pub fn read_request(wr_id: u64, target: &Mr, source: &Mr, length: usize) -> SendWr {
    SendWr {
        opcode: WrOpcode::RdmaRead,
        ..write_request(wr_id, target, source, length)
    }
}

/// A signalled fetch and add of `add` to the first 8 bytes of `counter`, of the peer; what they held goes to the start of
/// `target`.
#[must_use]
pub fn add_request(wr_id: u64, target: &Mr, counter: &Mr, add: u64) -> SendWr {
    SendWr {
        opcode: WrOpcode::AtomicFetchAndAdd,
        compare_add: add,
        ..write_request(wr_id, target, counter, ATOMIC_BYTES)
    }
}

/// A signalled compare and swap of them: `swap` in place of `compare`.
#[must_use]
pub fn swap_request(wr_id: u64, target: &Mr, word: &Mr, compare: u64, swap: u64) -> SendWr {
    SendWr {
        opcode: WrOpcode::AtomicCmpAndSwp,
        compare_add: compare,
        swap,
        ..write_request(wr_id, target, word, ATOMIC_BYTES)
    }
}

/// `request` with its local and its remote address so many bytes further.
#[must_use]
pub fn further(request: SendWr, local: usize, remote: usize) -> SendWr {
    SendWr {
        addr: request.addr + local as u64,
        remote_addr: request.remote_addr + remote as u64,
        ..request
    }
}

/// `request` with its flags changed.
#[must_use]
pub fn flagged(request: SendWr, change: impl FnOnce(&mut SendFlags)) -> SendWr {
    let mut request = request;
    change(&mut request.flags);
    request
}

/// `length` bytes that look random and are the same for the same seed.
#[must_use]
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    ChaCha8Rng::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

/// A counter of a card.
pub fn count(context: &Context, counter: Counter) -> Result<u64> {
    Ok(context.control().counter(counter)?)
}

/// The sum of a counter over both cards.
pub fn both(rig: &Rig, counter: Counter) -> Result<u64> {
    Ok(count(&rig.sides[0].context, counter)? + count(&rig.sides[1].context, counter)?)
}
