//! Two cards, and queue pairs between them.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{bail, ensure, Result};
use mprdma_host::backend::{self, ANSWER_TIMEOUT};
use mprdma_host::memory::{Memory, PageSize};
use mprdma_host::port::Port;
use mprdma_host::verbs::{
    Access, AddressHandle, Context, ContextAttr, Cq, InitAttr, Mode, Mr, Mtu, Pd, Qp, QpInitAttr,
    RtrAttr, RtsAttr, SendFlags, SendWr, Wc,
};
use mprdma_spec::descriptor::WrOpcode;
use mprdma_spec::status::WcStatus;

use crate::LIMIT;

/// An open card.
pub struct Side {
    pub context: Context,
    pub pd: Pd,
    pub cq: Cq,
    port: Port,
}

/// Two of them.
pub struct Bench {
    pub sides: Vec<Side>,
}

/// A queue pair that writes from card 0 to card 1.
pub struct Flow {
    pub tx: Qp,
    _rx: Qp,
    pub source: Mr,
    pub target: Mr,
    pub bytes: usize,
}

impl Bench {
    pub fn open(addresses: &[String]) -> Result<Self> {
        ensure!(addresses.len() == 2, "two cards are needed");
        let open = |(card, address): (usize, &String)| -> Result<Side> {
            let port = Port::numbered(card as u8);
            let device = backend::open(&address.parse()?, ANSWER_TIMEOUT)?;
            let attr = ContextAttr {
                mac: Some(port.mac),
                ..ContextAttr::default()
            };
            let context = Context::open(device, &attr)?;
            let (pd, cq) = (context.alloc_pd()?, context.create_cq(1024)?);
            Ok(Side {
                context,
                pd,
                cq,
                port,
            })
        };
        let sides = addresses.iter().enumerate().map(open);
        Ok(Self {
            sides: sides.collect::<Result<_>>()?,
        })
    }

    /// The next `count` completions of a card.
    pub fn completions(&self, side: usize, count: usize) -> Result<Vec<Wc>> {
        let (start, side) = (Instant::now(), &self.sides[side]);
        let mut found = side.cq.poll(count)?;
        while found.len() < count {
            if start.elapsed() > LIMIT {
                bail!("{} of {count} completions: {found:?}", found.len());
            }
            side.context.device().relax()?;
            found.extend(side.cq.poll(count - found.len())?);
        }
        Ok(found)
    }
}

impl Flow {
    /// With a buffer of `bytes` bytes, a multiple of a page, on each side.
    pub fn new(bench: &Bench, bytes: usize) -> Result<Self> {
        let qp = |side: &Side| {
            side.pd.create_qp(&QpInitAttr {
                send_cq: &side.cq,
                recv_cq: &side.cq,
                max_send_wr: 64,
                max_recv_wr: 64,
                mode: Mode::Mp,
                path_mtu: Mtu::new(4096)?,
            })
        };
        let region = |side: &Side| -> Result<Mr> {
            let memory = Arc::new(Memory::allocate(bytes, PageSize::Small)?);
            let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
            Ok(side.pd.register(&memory, 0, bytes, access)?)
        };
        let [from, to] = bench.sides.as_slice() else {
            bail!("two cards are needed");
        };
        let flow = Self {
            tx: qp(from)?,
            _rx: qp(to)?,
            source: region(from)?,
            target: region(to)?,
            bytes,
        };
        connect(&flow.tx, from, &flow._rx, to)?;
        connect(&flow._rx, to, &flow.tx, from)?;
        let data: Vec<u8> = (0..bytes).map(|i| (i * 7 + i / 251 + 1) as u8).collect();
        flow.source.write(0, &data)?;
        Ok(flow)
    }

    /// Posts `count` WRITEs of the whole buffer.
    pub fn post(&self, count: usize) -> Result<()> {
        let request = SendWr {
            wr_id: 1,
            opcode: WrOpcode::RdmaWrite,
            flags: SendFlags {
                signaled: true,
                ..SendFlags::default()
            },
            addr: self.source.addr(),
            length: self.bytes as u64,
            lkey: self.source.lkey(),
            remote_addr: self.target.addr(),
            rkey: self.target.rkey(),
            imm: 0,
            compare_add: 0,
            swap: 0,
        };
        Ok(self.tx.post_send(&vec![request; count])?)
    }

    /// Writes once and compares.
    pub fn write(&self, bench: &Bench) -> Result<()> {
        self.post(1)?;
        let status = bench.completions(0, 1)?[0].status;
        ensure!(status == WcStatus::Success, "a WRITE gave {status:?}");
        let (mut sent, mut got) = (vec![0; self.bytes], vec![0; self.bytes]);
        self.source.read(0, &mut sent)?;
        self.target.read(0, &mut got)?;
        ensure!(sent == got, "the data differ");
        Ok(())
    }
}

fn connect(qp: &Qp, ours: &Side, peer: &Qp, theirs: &Side) -> Result<()> {
    let gid = |side: &Side| side.port.gid(false).expect("it has an IPv4 address");
    qp.modify_to_init(&InitAttr::default())?;
    qp.modify_to_rtr(&RtrAttr {
        path_mtu: Mtu::new(4096)?,
        dest_qp_num: peer.qp_num(),
        rq_psn: 0,
        ah_attr: AddressHandle {
            dmac: theirs.port.mac,
            sgid: gid(ours),
            dgid: gid(theirs),
            vlan: None,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
        },
    })?;
    Ok(qp.modify_to_rts(&RtsAttr::new(0))?)
}
