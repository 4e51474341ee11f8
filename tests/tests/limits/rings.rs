//! Send, receive and completion queues of every size, filled to the last entry again and again.

use crate::{long, with_imm};
use anyhow::Result;
use mprdma_host::verbs::{Cq, Mode, Mr, Mtu, QpInitAttr, RecvWr, SendWr};
use mprdma_spec::status::WcStatus;
use mprdma_tests::rig::{pattern, write_request, Pair, PairAttr, Rig, US};

/// Bytes of a message.
const BYTES: usize = 4;
/// Messages whose bytes are told apart; a stale entry of a ring would write to a wrong place.
const PLACES: usize = 1 << 15;

/// A queue pair that sends through rings of one size to a queue pair with rings of the same size.
struct Flow {
    log2: u32,
    pair: Pair,
    sends: Cq,
    receives: Cq,
    /// Messages to send in all.
    total: usize,
    posted: usize,
    sent: usize,
    received: usize,
    target: Mr,
}

impl Flow {
    fn new(rig: &Rig, log2: u32, total: usize) -> Result<Self> {
        let size = 1 << log2;
        let sends = rig.sides[0].context.create_cq(size)?;
        let receives = rig.sides[1].context.create_cq(size)?;
        assert_eq!((sends.capacity(), receives.capacity()), (size, size));
        let create = |card: usize, cq: &Cq, send: usize, receive: usize| {
            rig.sides[card].pd.create_qp(&QpInitAttr {
                send_cq: cq,
                recv_cq: cq,
                max_send_wr: send,
                max_recv_wr: receive,
                mode: Mode::Mp,
                path_mtu: Mtu::new(256)?,
            })
        };
        let pair = Pair {
            tx: create(0, &sends, size, 1)?,
            rx: create(1, &receives, 1, size)?,
            from: 0,
            to: 1,
        };
        assert_eq!(pair.tx.send_capacity(), size);
        Rig::connect(
            &pair,
            &PairAttr {
                mtu: 256,
                psn: 0x10_0000 * log2,
                ..PairAttr::default()
            },
        )?;
        let target = rig.region(1, 0, BYTES * PLACES)?;
        target.write(0, &vec![0xee; BYTES * PLACES])?;
        Ok(Self {
            log2,
            pair,
            sends,
            receives,
            total,
            posted: 0,
            sent: 0,
            received: 0,
            target,
        })
    }

    fn done(&self) -> bool {
        (self.sent, self.received) == (self.total, self.total)
    }

    /// Takes completions, and fills the rings again when all of them are empty.
    fn turn(&mut self, source: &Mr) -> Result<()> {
        let size = 1 << self.log2;
        for wc in self.sends.poll(size)? {
            let expected = (self.sent as u64, WcStatus::Success);
            assert_eq!((wc.wr_id, wc.status), expected, "send, 2^{}", self.log2);
            self.sent += 1;
        }
        for wc in self.receives.poll(size)? {
            let i = self.received as u64;
            assert_eq!(
                (wc.wr_id, wc.status, wc.imm),
                (i, WcStatus::Success, Some(i as u32)),
                "receive, 2^{}",
                self.log2
            );
            self.received += 1;
        }
        let left = self.total - self.posted;
        if left == 0 || (self.sent, self.received) != (self.posted, self.posted) {
            return Ok(());
        }
        // Tells the card how far the completion queues have been read: `poll` does so in quarters of the ring.
        self.sends.arm()?;
        self.receives.arm()?;
        // One first, so that each later round goes over the end of the ring.
        let round = left.min(if self.posted == 0 { 1 } else { size });
        let ids = self.posted as u64..(self.posted + round) as u64;
        let receives: Vec<_> = ids
            .clone()
            .map(|wr_id| RecvWr {
                wr_id,
                ..RecvWr::default()
            })
            .collect();
        self.pair.rx.post_recv(&receives)?;
        let sends: Vec<SendWr> = ids
            .map(|i| {
                let offset = (BYTES * (i as usize % PLACES)) as u64;
                let request = write_request(i, source, &self.target, BYTES);
                let request = SendWr {
                    addr: request.addr + offset,
                    remote_addr: request.remote_addr + offset,
                    ..request
                };
                with_imm(request, i as u32)
            })
            .collect();
        self.pair.tx.post_send(&sends)?;
        if round == size {
            let full = self.pair.tx.post_send(&sends[..1]);
            assert!(full.is_err(), "2^{}: an entry too many", self.log2);
        }
        self.posted += round;
        Ok(())
    }
}

/// Sends so many messages through rings of 2^log2 entries, all flows at once.
fn wrap(plan: &[(u32, usize)]) -> Result<()> {
    let rig = Rig::start("direct", 1)?;
    let source = rig.region(0, 0, BYTES * PLACES)?;
    let data = pattern(1, BYTES * PLACES);
    source.write(0, &data)?;
    let mut flows = plan
        .iter()
        .map(|&(log2, total)| Flow::new(&rig, log2, total))
        .collect::<Result<Vec<_>>>()?;
    let messages: usize = flows.iter().map(|flow| flow.total).sum();
    let start = rig.sim.now();
    let end = start + messages as u64 * US + 1000 * US;
    while flows.iter().any(|flow| !flow.done()) {
        assert!(rig.sim.now() < end, "not done after {messages} us");
        for flow in flows.iter_mut().filter(|flow| !flow.done()) {
            flow.turn(&source)?;
        }
        rig.sim.run(US);
    }
    let time = rig.sim.now() - start;
    println!("{messages} messages in {} us", time / US);
    for flow in &flows {
        let bytes = BYTES * flow.total.min(PLACES);
        let mut got = vec![0; BYTES * PLACES];
        flow.target.read(0, &mut got)?;
        assert!(got[..bytes] == data[..bytes], "2^{}: data", flow.log2);
        assert!(got[bytes..].iter().all(|&b| b == 0xee), "2^{}", flow.log2);
        assert!(flow.sends.poll(1)?.is_empty() && flow.receives.poll(1)?.is_empty());
    }
    for side in &rig.sides {
        assert!(side.context.poll_events()?.is_empty());
    }
    Ok(())
}

/// Small rings three times around, large ones at least once: every round but the first goes over the end of the ring.
#[test]
fn rings_of_every_size_wrap() -> Result<()> {
    let plan: Vec<_> = (1..=15)
        .map(|log2| (log2, 1 + (1 << log2) * if log2 < 10 { 3 } else { 1 }))
        .collect();
    wrap(&plan)
}

/// The 16-bit indices of all three queues wrap.
#[test]
fn ring_indices_wrap() -> Result<()> {
    let all: &[u32] = if long() { &[1, 4, 8, 12, 15] } else { &[12] };
    let plan: Vec<_> = all.iter().map(|&log2| (log2, 66_000)).collect();
    wrap(&plan)
}

mprdma_tests::on_model!(rings_of_every_size_wrap, ring_indices_wrap);
