//! What the cards are made to send: every kind of packet that they know, over IPv4 and IPv6, with a tag and without.

use anyhow::{ensure, Context, Result};
use mprdma_host::verbs::{Mr, RecvWr, RtsAttr, SendFlags, SendWr, Vlan};
use mprdma_spec::descriptor::WrOpcode;
use mprdma_spec::params::ATOMIC_BYTES;
use mprdma_spec::status::WcStatus;
use mprdma_spec::wire::Psn;
use mprdma_tests::lose::{Lose, Loss};
use mprdma_tests::rig::{
    add_request, pattern, read_request, swap_request, write_request, Pair, PairAttr, Rig, US,
};

/// Two paths. One doubles packets in both directions, and short queues mark CE. Nothing is lost by chance: an error NAK
/// is sent only once, and without it the sender would run into timeouts.
pub const NETWORK: &str = r#"
name = "oracles"

[network]
kind = "leaf-spine"
cards = 2
leaves = 2
spines = 2
spine_rate_gbps = 50.0
delay_ns = 200
ecn_packets = 4

[[link]]
from = "leaf*"
to = "spine0"
duplicate = 0.05
"#;

/// The tag of packets that have one.
pub const TAG: Vlan = Vlan {
    id: 42,
    priority: 5,
};

pub use mprdma_spec::params::MTUS;

/// Longest wait for a completion.
const SOON: u64 = 20_000 * US;

/// What carries the packets.
#[derive(Clone, Copy, Debug)]
pub struct Carrier {
    pub ipv6: bool,
    pub tagged: bool,
}

impl Carrier {
    pub const ALL: [Self; 4] = [
        Self::new(false, false),
        Self::new(false, true),
        Self::new(true, false),
        Self::new(true, true),
    ];

    const fn new(ipv6: bool, tagged: bool) -> Self {
        Self { ipv6, tagged }
    }

    pub fn name(self) -> &'static str {
        match (self.ipv6, self.tagged) {
            (false, false) => "ipv4",
            (false, true) => "ipv4_vlan",
            (true, false) => "ipv6",
            (true, true) => "ipv6_vlan",
        }
    }
}

/// What a queue pair of card 0 was told to send to card 1.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Number of the queue pair of card 1.
    pub qpn: u32,
    pub attr: PairAttr,
    /// PSNs that it uses.
    pub packets: u32,
}

/// A queue pair of card 0 that sends to card 1.
struct Flow<'a> {
    rig: &'a Rig,
    lose: &'a Lose,
    pair: Pair,
    sent: Sent,
    source: Mr,
    target: Mr,
    data: Vec<u8>,
}

impl<'a> Flow<'a> {
    fn new(rig: &'a Rig, lose: &'a Lose, attr: PairAttr, longest: usize) -> Result<Self> {
        let pair = rig.pair(0, 1, &attr)?;
        let (source, target) = (rig.region(0, 3, longest)?, rig.region(1, 5, longest)?);
        let data = pattern(longest as u64, longest);
        source.write(0, &data)?;
        let sent = Sent {
            qpn: pair.rx.qp_num(),
            attr,
            packets: 0,
        };
        Ok(Self {
            rig,
            lose,
            pair,
            sent,
            source,
            target,
            data,
        })
    }

    /// Loses the first transmission of the packet that is to be sent next.
    fn lose_next(&self) {
        self.lose.set(Loss {
            psn: Psn::new(self.sent.attr.psn).add(self.sent.packets).value(),
            data: vec![1],
            ..Loss::default()
        });
    }

    fn request(&self, bytes: usize) -> SendWr {
        write_request(1, &self.source, &self.target, bytes)
    }

    fn post(&mut self, requests: &[SendWr]) -> Result<()> {
        for request in requests {
            let packets = request.length.div_ceil(self.sent.attr.mtu.into());
            self.sent.packets += match request.opcode {
                opcode if opcode.is_answered() => 1,
                _ => packets.max(1) as u32,
            };
        }
        Ok(self.pair.tx.post_send(requests)?)
    }

    /// Waits until that many requests have completed, all with this status.
    fn done(&self, count: usize, status: WcStatus) -> Result<()> {
        for wc in self.rig.completions(0, count, SOON)? {
            ensure!(wc.status == status, "completed with {wc:?}, not {status:?}");
        }
        Ok(())
    }

    fn write(&mut self, bytes: usize) -> Result<()> {
        self.post(&[self.request(bytes)])?;
        self.done(1, WcStatus::Success)
            .with_context(|| format!("{bytes} bytes"))
    }

    /// Reads the start of the target back.
    fn read(&mut self, bytes: usize) -> Result<()> {
        self.source.write(0, &vec![0; bytes])?;
        let request = read_request(1, &self.source, &self.target, bytes);
        self.post(&[request])?;
        self.done(1, WcStatus::Success)?;
        let mut found = vec![0; bytes];
        self.source.read(0, &mut found)?;
        ensure!(found == self.data[..bytes], "{bytes} bytes read differ");
        Ok(())
    }

    /// Adds to the first word of the target, then swaps it.
    fn atomics(&mut self) -> Result<()> {
        let addr = self.target.addr().next_multiple_of(ATOMIC_BYTES as u64);
        let at = (addr - self.target.addr()) as usize;
        let (held, added) = (0xffee_ddcc_bbaa_9988_u64, 0x0102_0304_0506_0708);
        self.target.write(at, &held.to_le_bytes())?;
        let sum = held.wrapping_add(added);
        let add = add_request(1, &self.source, &self.target, added);
        let swap = swap_request(1, &self.source, &self.target, sum, !sum);
        for (request, found) in [(add, held), (swap, sum), (swap, !sum)] {
            self.post(&[SendWr {
                remote_addr: addr,
                ..request
            }])?;
            self.done(1, WcStatus::Success)?;
            let mut bytes = [0; ATOMIC_BYTES];
            self.source.read(0, &mut bytes)?;
            ensure!(bytes == found.to_le_bytes(), "found {bytes:x?}");
        }
        Ok(())
    }

    /// The start of the target is as the source.
    fn arrived(&self, bytes: usize) -> Result<()> {
        let mut found = vec![0; bytes];
        self.target.read(0, &mut found)?;
        ensure!(found == self.data[..bytes], "{bytes} bytes differ");
        Ok(())
    }

    /// A WRITE with immediate. If the receive request comes late, the receiver is not ready at first.
    fn with_immediate(&mut self, bytes: usize, late: bool) -> Result<()> {
        let request = SendWr {
            opcode: WrOpcode::RdmaWriteWithImm,
            imm: 0xc0ff_ee00 | bytes as u32 & 0xff,
            ..self.request(bytes)
        };
        let receive = [RecvWr::default()];
        if !late {
            self.pair.rx.post_recv(&receive)?;
        }
        self.post(&[request])?;
        if late {
            self.rig.sim.run(30 * US);
            self.pair.rx.post_recv(&receive)?;
        }
        let wc = self.rig.completions(1, 1, SOON)?.remove(0);
        ensure!(
            wc.status == WcStatus::Success && wc.imm == Some(request.imm),
            "immediate data {:#x} arrived as {wc:?}",
            request.imm
        );
        self.done(1, WcStatus::Success)
    }

    /// A lost packet, WRITEs of every length and with immediate, READs, ATOMICs, then a key that was never given out.
    fn ordinary(&mut self) -> Result<()> {
        let mtu = self.sent.attr.mtu as usize;
        self.lose_next();
        self.write(self.data.len())?;
        self.arrived(self.data.len())?;
        for bytes in [1, 0] {
            self.write(bytes)?;
        }
        for bytes in [self.data.len(), 1, 0] {
            self.read(bytes)?;
        }
        self.atomics()?;
        for (bytes, late) in [(0, true), (3 * mtu + 2, false), (mtu, false)] {
            self.with_immediate(bytes, late)
                .with_context(|| format!("{bytes} bytes with immediate"))?;
        }
        let mut refused = self.request(100);
        refused.rkey ^= 0x5a5a;
        self.post(&[refused])?;
        self.done(1, WcStatus::RemoteAccessError)
    }

    /// The first packet of a message longer than the receiver's bitmap is lost, so that the bitmap's end is passed; then
    /// one right ahead of synchronised messages, which come too early.
    fn out_of_order(&mut self) -> Result<()> {
        self.lose_next();
        self.write(self.data.len())?;
        self.arrived(self.data.len())?;
        let mtu = self.sent.attr.mtu as usize;
        self.lose_next();
        let synchronised = |bytes| SendWr {
            flags: SendFlags {
                signaled: true,
                sync: true,
                ..SendFlags::default()
            },
            ..self.request(bytes)
        };
        let requests = [
            self.request(4 * mtu),
            synchronised(2 * mtu + 1),
            synchronised(8),
        ];
        self.post(&requests)?;
        self.done(requests.len(), WcStatus::Success)
            .context("synchronised")
    }
}

/// A first window past the receiver's bitmap; synchronised messages do not wait.
fn attr(mtu: u32, psn: u32, carrier: Carrier) -> PairAttr {
    let mut rts = RtsAttr::new(0);
    rts.multi_path.initial_window = 255;
    rts.multi_path.alpha = 0;
    PairAttr {
        mtu,
        ipv6: carrier.ipv6,
        vlan: carrier.tagged.then_some(TAG),
        psn,
        rts,
        ..PairAttr::default()
    }
}

/// Traffic of every kind between cards whose bitmaps have `slots` slots, from card 0 to card 1. `lose` taps the network.
pub fn all(rig: &Rig, lose: &Lose, slots: usize) -> Result<Vec<Sent>> {
    // All stay until the end, so that each has a number of its own.
    let mut flows = vec![];
    for (i, carrier) in Carrier::ALL.into_iter().enumerate() {
        // Some numbers wrap on the way.
        let psn = [0xff_fff0, 0x00_0000, 0x7f_fff0, 0xab_cdef][i];
        for mtu in MTUS {
            let bytes = 24 * mtu as usize + 1 + i % 3;
            let mut flow = Flow::new(rig, lose, attr(mtu, psn, carrier), bytes)?;
            flow.ordinary()
                .with_context(|| format!("MTU {mtu} over {}", carrier.name()))?;
            flows.push(flow);
        }
        flows.push(out_of_order(rig, lose, slots, psn, carrier)?);

        // A full packet of one side is short to the other.
        let misfit = PairAttr {
            peer_mtu: Some(1024),
            ..attr(512, psn, carrier)
        };
        let mut flow = Flow::new(rig, lose, misfit, 3 * 512)?;
        flow.post(&[flow.request(3 * 512)])?;
        flow.done(1, WcStatus::RemoteInvalidRequest)?;
        flows.push(flow);
    }
    Ok(flows.iter().map(|flow| flow.sent).collect())
}

/// Two WRITEs whose payload goes away while the first is under way: its next packet leaves with an ICRC that is wrong on
/// purpose, so that the peer drops it.
pub fn unreadable(rig: &Rig) -> Result<()> {
    let bytes = 1 << 20;
    let pair = rig.pair(0, 1, &PairAttr::default())?;
    let (doomed, target) = (rig.region(0, 0, bytes)?, rig.region(1, 0, bytes)?);
    let request = write_request(1, &doomed, &target, bytes);
    pair.tx.post_send(&[request, request])?;
    rig.sim.run(20 * US);
    drop(doomed);
    let completions = rig.completions(0, 2, SOON)?;
    let statuses: Vec<_> = completions.iter().map(|wc| wc.status).collect();
    ensure!(
        statuses == [WcStatus::FatalError, WcStatus::WorkRequestFlushed],
        "{statuses:?}"
    );
    Ok(())
}

/// The traffic of [`all`] that makes SACK maps and NAKs, over every carrier.
pub fn holes(rig: &Rig, lose: &Lose, slots: usize) -> Result<Vec<Sent>> {
    let flows = Carrier::ALL
        .into_iter()
        .map(|carrier| out_of_order(rig, lose, slots, 0xff_ffc0, carrier))
        .collect::<Result<Vec<_>>>()?;
    Ok(flows.iter().map(|flow| flow.sent).collect())
}

fn out_of_order<'a>(
    rig: &'a Rig,
    lose: &'a Lose,
    slots: usize,
    psn: u32,
    carrier: Carrier,
) -> Result<Flow<'a>> {
    let bytes = (slots + 32) * 256;
    let mut flow = Flow::new(rig, lose, attr(256, psn, carrier), bytes)?;
    flow.out_of_order()
        .with_context(|| format!("out of order over {}", carrier.name()))?;
    Ok(flow)
}
