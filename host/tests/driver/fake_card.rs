//! A card as a register model: the interface of `mprdma_spec` from the outside, whole messages at a time inside. Two or
//! more of them on a lossless wire complete WRITEs, READs and ATOMICs between their host memories.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use mprdma_host::device::{Device, DeviceError, Identity};
use mprdma_host::memory::Memory;
use mprdma_spec::command::{
    cq_image, eq_image, mr_image, qp_image, qp_stats, qp_status, trace_records, trace_request,
    Opcode, QpState, Status, TRACED_VPS, TRACE_GROUP,
};
use mprdma_spec::command::{
    RIGHT_LOCAL_WRITE, RIGHT_REMOTE_ATOMIC, RIGHT_REMOTE_READ, RIGHT_REMOTE_WRITE,
};
use mprdma_spec::config::{self, Config};
use mprdma_spec::counter::Counter;
use mprdma_spec::csr;
use mprdma_spec::descriptor::{
    cqe, eqe, rq_wqe, sq_wqe, EventType, WcOpcode, WrOpcode, CQE_WITH_IMM, WQE_SIGNALED,
};
use mprdma_spec::params::ATOMIC_BYTES;
use mprdma_spec::status::WcStatus;

pub const BAR0_BYTES: u64 = csr::bar0_bytes(config::SIM.qp_log2);

/// What is special about a card, for tests of errors.
#[derive(Clone, Copy, Debug)]
pub struct Traits {
    pub magic: u32,
    pub version: u32,
    pub config: Config,
}

impl Default for Traits {
    fn default() -> Self {
        Self {
            magic: csr::MAGIC_VALUE,
            version: csr::VERSION_VALUE,
            config: config::SIM,
        }
    }
}

/// Cards on one wire.
#[derive(Default)]
pub struct Fabric {
    pub cards: Vec<Card>,
}

/// The fabric, shared by those who hold its cards.
pub type Shared = Arc<Mutex<Fabric>>;

#[derive(Default)]
pub struct Card {
    traits: Traits,
    registers: BTreeMap<u32, u32>,
    cycles: u64,
    counters: BTreeMap<u32, u64>,
    mappings: BTreeMap<u64, (u64, usize, Arc<Memory>)>,
    qps: BTreeMap<u32, Qp>,
    cqs: BTreeMap<u32, Cq>,
    eqs: BTreeMap<u32, Eq>,
    mrs: BTreeMap<u32, [u8; 128]>,
    trace: Option<Trace>,
    /// Vectors raised since they were last taken.
    pub raised: VecDeque<usize>,
    pub resets: usize,
    /// While set, no work request is begun.
    pub paused: bool,
}

struct Qp {
    image: [u8; 128],
    sq_producer: u16,
    sq_consumer: u16,
    rq_producer: u16,
    rq_consumer: u16,
    messages: u64,
    sent: u64,
    accepted: u64,
}

/// The queue pair that is traced, and the packets on its paths, the rest last.
struct Trace {
    qpn: u32,
    vp_base: u64,
    sent: [u64; TRACED_VPS + 1],
}

struct Cq {
    image: [u8; 128],
    producer: u16,
    consumer: u16,
    armed: bool,
    dead: bool,
}

struct Eq {
    image: [u8; 128],
    producer: u16,
}

impl Fabric {
    pub fn new(cards: usize, traits: Traits) -> Shared {
        let cards = (0..cards)
            .map(|_| Card {
                traits,
                ..Card::default()
            })
            .collect();
        Arc::new(Mutex::new(Self { cards }))
    }

    /// Carries out one work request of every queue pair that has one. Returns whether there was any.
    pub fn step(&mut self) -> bool {
        let mut worked = false;
        for i in 0..self.cards.len() {
            self.cards[i].cycles += 16;
            let ready: Vec<u32> = self.cards[i].ready();
            for qpn in ready {
                worked = true;
                self.work(i, qpn);
            }
        }
        worked
    }

    /// One work request of one queue pair, from fetch to completion.
    fn work(&mut self, i: usize, qpn: u32) {
        let Some((index, wqe)) = self.cards[i].fetch(qpn) else {
            return;
        };
        let state = self.cards[i].qps[&qpn].state();
        let status = if state == QpState::Error as u64 {
            WcStatus::WorkRequestFlushed
        } else {
            self.transfer(i, qpn, &wqe)
        };
        let card = &mut self.cards[i];
        if status == WcStatus::Success {
            card.count(Counter::MessagesCompleted, 1);
        }
        if status != WcStatus::Success || sq_wqe::FLAGS.get(&wqe) & WQE_SIGNALED != 0 {
            let cqn = qp_image::SQ_CQN.get(&card.qps[&qpn].image) as u32;
            let length = sq_wqe::LENGTH.get(&wqe);
            let opcode = match operation(&wqe) {
                Some(WrOpcode::RdmaRead) => WcOpcode::RdmaRead,
                Some(WrOpcode::AtomicCmpAndSwp) => WcOpcode::CompSwap,
                Some(WrOpcode::AtomicFetchAndAdd) => WcOpcode::FetchAdd,
                _ => WcOpcode::RdmaWrite,
            };
            card.complete(cqn, qpn, index, status, opcode as u64, length, None);
        }
        if status != WcStatus::Success && status != WcStatus::WorkRequestFlushed {
            card.fail(qpn, EventType::QpFatal, status);
        }
    }

    fn transfer(&mut self, i: usize, qpn: u32, wqe: &[u8; 64]) -> WcStatus {
        let card = &mut self.cards[i];
        let image = card.qps[&qpn].image;
        let length = sq_wqe::LENGTH.get(wqe);
        let Some(opcode) = operation(wqe) else {
            return WcStatus::LocalQpOperationError;
        };
        if opcode.is_atomic() && length != ATOMIC_BYTES as u64 {
            return WcStatus::LocalLengthError;
        }
        let with_imm = opcode == WrOpcode::RdmaWriteWithImm;
        let answered = opcode.is_answered();
        let (mut data, mut local) = (vec![], 0);
        if length > 0 {
            let (key, addr) = (sq_wqe::LKEY.get(wqe) as u32, sq_wqe::LADDR.get(wqe));
            let rights = if answered { RIGHT_LOCAL_WRITE } else { 0 };
            let pd = qp_image::PD.get(&image);
            let Some(iova) = card.translate(key, pd, addr, length, rights) else {
                return WcStatus::LocalProtectionError;
            };
            local = iova;
        }
        if !answered {
            let Some(bytes) = card.dma_read(local, length as usize) else {
                return WcStatus::FatalError;
            };
            data = bytes;
        }
        let mtu = 128u64 << qp_image::MTU.get(&image);
        let packets = length.div_ceil(mtu).max(1);
        let cycles = length / 50 + 8 * packets + 500;
        self.cards.iter_mut().for_each(|card| card.cycles += cycles);
        let card = &mut self.cards[i];
        card.count(Counter::TxDataPackets, packets);
        card.count(Counter::TxBytes, length + packets * 90);
        card.send(qpn, packets);
        let dmac = qp_image::DMAC.get(&image);
        let dest = qp_image::DEST_QPN.get(&image) as u32;
        let Some(peer) = self
            .cards
            .iter_mut()
            .find(|card| card.mac() == dmac && card.receives(dest))
        else {
            return WcStatus::RetryExceeded;
        };
        peer.count(Counter::RxDataPackets, packets);
        peer.qps.get_mut(&dest).unwrap().accepted += packets;
        if !answered {
            return peer.place(dest, wqe, &data, with_imm);
        }
        let answer = match opcode.is_atomic() {
            true => peer.answer_atomic(dest, wqe, opcode),
            false => peer.answer_read(dest, wqe),
        };
        match answer {
            Ok(data) if self.cards[i].dma_write(local, &data) => WcStatus::Success,
            Ok(_) => WcStatus::FatalError,
            Err(status) => status,
        }
    }
}

fn operation(wqe: &[u8; 64]) -> Option<WrOpcode> {
    let code = sq_wqe::OPCODE.get(wqe);
    [
        WrOpcode::RdmaWrite,
        WrOpcode::RdmaWriteWithImm,
        WrOpcode::RdmaRead,
        WrOpcode::AtomicCmpAndSwp,
        WrOpcode::AtomicFetchAndAdd,
    ]
    .into_iter()
    .find(|opcode| *opcode as u64 == code)
}

impl Card {
    pub fn counter(&self, counter: Counter) -> u64 {
        self.counters.get(&(counter as u32)).copied().unwrap_or(0)
    }

    /// Packets leave on one path after the other.
    fn send(&mut self, qpn: u32, packets: u64) {
        let qp = self.qps.get_mut(&qpn).unwrap();
        let first = qp_image::VP_BASE.get(&qp.image);
        let count = qp_image::VP_COUNT.get(&qp.image);
        let begin = qp.sent;
        qp.sent += packets;
        if let Some(trace) = self.trace.as_mut().filter(|trace| trace.qpn == qpn) {
            for packet in begin..begin + packets {
                let ahead = (first + packet % count).wrapping_sub(trace.vp_base) as usize;
                trace.sent[ahead.min(TRACED_VPS)] += 1;
            }
        }
    }

    fn answer(&mut self, result: &[u8; 128]) -> Status {
        for (i, dword) in result.chunks_exact(4).enumerate() {
            let value = u32::from_le_bytes(dword.try_into().unwrap());
            self.registers.insert(csr::CMD_RESULT + 4 * i as u32, value);
        }
        Status::Ok
    }

    fn stats(&mut self, qpn: u32) -> Status {
        let Some(qp) = self.qps.get(&qpn) else {
            return Status::Missing;
        };
        let mut result = [0; 128];
        qp_stats::SENT.set(&mut result, qp.sent);
        qp_stats::PATH_SWITCHES.set(&mut result, qp.sent.saturating_sub(1));
        qp_stats::ACCEPTED.set(&mut result, qp.accepted);
        qp_stats::DISTANCE_0.set(&mut result, qp.accepted);
        self.answer(&result)
    }

    fn read_trace(&mut self, arguments: &[u8; 128]) -> Status {
        let group = trace_request::GROUP.get(arguments) as usize;
        if group > TRACED_VPS / TRACE_GROUP {
            return Status::BadArgument;
        }
        let mut result = [0; 128];
        if let Some(trace) = &self.trace {
            trace_records::ACTIVE.set(&mut result, 1);
            trace_records::QPN.set(&mut result, trace.qpn.into());
            trace_records::VP_BASE.set(&mut result, trace.vp_base);
            for (i, sent) in trace.sent[TRACE_GROUP * group..]
                .iter()
                .take(TRACE_GROUP)
                .enumerate()
            {
                let field = trace_records::LAYOUT.field(&format!("VP{i}_SENT")).unwrap();
                field.set(&mut result, *sent);
            }
        }
        self.answer(&result)
    }

    /// A completion of the next receive request of a queue pair, posted or not: what a peer can bring about that repeats
    /// message numbers.
    pub fn complete_receive(&mut self, qpn: u32) {
        let qp = self.qps.get_mut(&qpn).unwrap();
        let index = qp.rq_consumer;
        qp.rq_consumer = index.wrapping_add(1);
        let cqn = qp_image::RQ_CQN.get(&qp.image) as u32;
        let opcode = WcOpcode::RecvRdmaWithImm as u64;
        self.complete(cqn, qpn, index, WcStatus::Success, opcode, 0, Some(7));
    }

    pub fn objects(&self) -> usize {
        self.qps.len() + self.cqs.len() + self.eqs.len() + self.mrs.len()
    }

    pub fn mappings(&self) -> usize {
        self.mappings.len()
    }

    fn count(&mut self, counter: Counter, by: u64) {
        *self.counters.entry(counter as u32).or_default() += by;
    }

    fn mac(&self) -> u64 {
        let get = |offset| u64::from(self.registers.get(&offset).copied().unwrap_or(0));
        get(csr::MAC_LO) | get(csr::MAC_HI) << 32
    }

    fn receives(&self, qpn: u32) -> bool {
        let states = [QpState::Rtr as u64, QpState::Rts as u64];
        self.qps
            .get(&qpn)
            .is_some_and(|qp| states.contains(&qp.state()))
    }

    fn ready(&self) -> Vec<u32> {
        if self.paused {
            return Vec::new();
        }
        let sends = |qp: &Qp| [QpState::Rts as u64, QpState::Error as u64].contains(&qp.state());
        self.qps
            .iter()
            .filter(|(_, qp)| sends(qp) && qp.sq_producer != qp.sq_consumer)
            .map(|(qpn, _)| *qpn)
            .collect()
    }

    /// Removes everything but the mappings, as DEVICE_RESET does.
    pub fn reset(&mut self) {
        let mappings = std::mem::take(&mut self.mappings);
        *self = Self {
            traits: self.traits,
            mappings,
            resets: self.resets + 1,
            paused: self.paused,
            ..Self::default()
        };
    }

    pub fn map(&mut self, iova: u64, bytes: u64, offset: usize, memory: Arc<Memory>) {
        let before = self.mappings.range(..iova + bytes).next_back();
        assert!(
            before.is_none_or(|(start, (bytes, ..))| start + bytes <= iova),
            "mappings overlap"
        );
        self.mappings.insert(iova, (bytes, offset, memory));
    }

    /// Removes every mapping inside the range; the number of them.
    pub fn unmap(&mut self, iova: u64, bytes: u64) -> usize {
        let inside: Vec<u64> = self
            .mappings
            .range(iova..iova.saturating_add(bytes))
            .map(|(start, _)| *start)
            .collect();
        inside
            .iter()
            .for_each(|start| drop(self.mappings.remove(start)));
        inside.len()
    }

    pub fn unmap_all(&mut self) {
        self.mappings.clear();
    }

    /// Calls `access` with memory, offset in it, bytes done and bytes to do for each mapping that the range touches.
    fn dma(
        &self,
        iova: u64,
        bytes: usize,
        mut access: impl FnMut(&Memory, usize, usize, usize),
    ) -> bool {
        let mut done = 0;
        while done < bytes {
            let at = iova + done as u64;
            let Some((start, (size, offset, memory))) = self.mappings.range(..=at).next_back()
            else {
                return false;
            };
            let inside = at - start;
            if inside >= *size {
                return false;
            }
            let now = (bytes - done).min((size - inside) as usize);
            access(memory, offset + inside as usize, done, now);
            done += now;
        }
        true
    }

    fn dma_read(&self, iova: u64, length: usize) -> Option<Vec<u8>> {
        let mut data = vec![0; length];
        self.dma(iova, length, |memory, at, done, bytes| {
            memory.read(at, &mut data[done..done + bytes]).unwrap()
        })
        .then_some(data)
    }

    fn dma_write(&self, iova: u64, bytes: &[u8]) -> bool {
        self.dma(iova, bytes.len(), |memory, at, done, now| {
            memory.write(at, &bytes[done..done + now]).unwrap()
        })
    }

    fn fetch(&mut self, qpn: u32) -> Option<(u16, [u8; 64])> {
        let qp = self.qps.get_mut(&qpn)?;
        let index = qp.sq_consumer;
        qp.sq_consumer = index.wrapping_add(1);
        let mask = (1 << qp_image::SQ_LOG2.get(&qp.image)) - 1;
        let iova = qp_image::SQ_BASE.get(&qp.image) + u64::from(index & mask) * 64;
        let mut wqe = [0; 64];
        let read = self.dma(iova, 64, |memory, at, done, now| {
            memory.read(at, &mut wqe[done..done + now]).unwrap()
        });
        assert!(read, "the send ring is not mapped");
        Some((index, wqe))
    }

    /// Where `length` bytes at `addr` of region `key` lie, if the domain and all of `rights` allow it.
    fn translate(&self, key: u32, pd: u64, addr: u64, length: u64, rights: u64) -> Option<u64> {
        let mr = self
            .mrs
            .get(&(key >> 8))
            .filter(|mr| mr_image::KEY.get(&mr[..]) == u64::from(key))?;
        let offset = addr.checked_sub(mr_image::VA.get(mr))?;
        let inside = offset.checked_add(length)? <= mr_image::LENGTH.get(mr);
        let allowed = mr_image::PD.get(mr) == pd && mr_image::RIGHTS.get(mr) & rights == rights;
        (inside && allowed).then(|| mr_image::IOVA.get(mr) + offset)
    }

    /// What the peer of `qpn` asks for in its work request, wants `right` for, and has to be told otherwise.
    fn remote_range(&mut self, qpn: u32, wqe: &[u8; 64], right: u64) -> Result<u64, WcStatus> {
        let image = self.qps[&qpn].image;
        let (key, addr) = (sq_wqe::RKEY.get(wqe) as u32, sq_wqe::RADDR.get(wqe));
        let length = sq_wqe::LENGTH.get(wqe);
        let iova = self.translate(key, qp_image::PD.get(&image), addr, length, right);
        let allowed = qp_image::RIGHTS.get(&image) & right != 0;
        iova.filter(|_| allowed).ok_or_else(|| {
            self.count(Counter::RxAccessErrors, 1);
            self.fail(qpn, EventType::QpAccess, WcStatus::RemoteAccessError);
            WcStatus::RemoteAccessError
        })
    }

    /// The responder's half of a READ.
    fn answer_read(&mut self, qpn: u32, wqe: &[u8; 64]) -> Result<Vec<u8>, WcStatus> {
        let length = sq_wqe::LENGTH.get(wqe) as usize;
        if length == 0 {
            return Ok(vec![]);
        }
        let iova = self.remote_range(qpn, wqe, RIGHT_REMOTE_READ)?;
        self.dma_read(iova, length)
            .ok_or(WcStatus::RemoteOperationError)
    }

    /// The responder's half of an ATOMIC: what the memory held.
    fn answer_atomic(
        &mut self,
        qpn: u32,
        wqe: &[u8; 64],
        opcode: WrOpcode,
    ) -> Result<Vec<u8>, WcStatus> {
        let iova = self.remote_range(qpn, wqe, RIGHT_REMOTE_ATOMIC)?;
        let bytes = self
            .dma_read(iova, ATOMIC_BYTES)
            .ok_or(WcStatus::RemoteOperationError)?;
        let held = u64::from_le_bytes(bytes[..].try_into().unwrap());
        let (swap_add, compare) = (sq_wqe::SWAP_ADD.get(wqe), sq_wqe::COMPARE.get(wqe));
        let new = match opcode {
            WrOpcode::AtomicFetchAndAdd => held.wrapping_add(swap_add),
            _ if held == compare => swap_add,
            _ => held,
        };
        assert!(self.dma_write(iova, &new.to_le_bytes()), "it was read");
        Ok(bytes)
    }

    /// The receiver's half of a WRITE.
    fn place(&mut self, qpn: u32, wqe: &[u8; 64], data: &[u8], with_imm: bool) -> WcStatus {
        let image = self.qps[&qpn].image;
        if !data.is_empty() {
            let iova = match self.remote_range(qpn, wqe, RIGHT_REMOTE_WRITE) {
                Ok(iova) => iova,
                Err(status) => return status,
            };
            if !self.dma_write(iova, data) {
                return WcStatus::RemoteOperationError;
            }
        }
        let qp = self.qps.get_mut(&qpn).unwrap();
        qp.messages += 1;
        if with_imm {
            if qp.rq_consumer == qp.rq_producer {
                return WcStatus::RnrRetryExceeded;
            }
            let index = qp.rq_consumer;
            qp.rq_consumer = index.wrapping_add(1);
            let mask = (1 << qp_image::RQ_LOG2.get(&image)) - 1;
            let mut entry = [0; rq_wqe::BYTES];
            let iova = qp_image::RQ_BASE.get(&image) + u64::from(index & mask) * 16;
            assert!(self.dma(iova, 16, |memory, at, done, now| memory
                .read(at, &mut entry[done..done + now])
                .unwrap()));
            let cqn = qp_image::RQ_CQN.get(&image) as u32;
            let imm = sq_wqe::IMM.get(wqe);
            let code = WcOpcode::RecvRdmaWithImm as u64;
            self.complete(
                cqn,
                qpn,
                index,
                WcStatus::Success,
                code,
                data.len() as u64,
                Some(imm),
            );
        }
        WcStatus::Success
    }

    #[allow(clippy::too_many_arguments)]
    fn complete(
        &mut self,
        cqn: u32,
        qpn: u32,
        index: u16,
        status: WcStatus,
        opcode: u64,
        length: u64,
        imm: Option<u64>,
    ) {
        let tick = self.cycles / u64::from(config::CYCLES_PER_TICK);
        let Some(cq) = self.cqs.get_mut(&cqn) else {
            panic!("CQ {cqn} does not exist")
        };
        let log2 = cq_image::LOG2.get(&cq.image);
        if cq.dead || u64::from(cq.producer.wrapping_sub(cq.consumer)) >= 1 << log2 {
            let first = !cq.dead;
            cq.dead = true;
            self.count(Counter::CqOverflows, 1);
            if first {
                self.event(EventType::CqError, cqn, 0);
            }
            return;
        }
        let mut entry = [0; cqe::BYTES];
        cqe::QPN.set(&mut entry, qpn.into());
        cqe::WQE_INDEX.set(&mut entry, index.into());
        cqe::BYTE_LEN.set(&mut entry, length);
        cqe::IMM.set(&mut entry, imm.unwrap_or(0));
        cqe::TIMESTAMP.set(&mut entry, tick);
        cqe::STATUS.set(&mut entry, status as u64);
        cqe::OPCODE.set(&mut entry, opcode);
        cqe::FLAGS.set(&mut entry, if imm.is_some() { CQE_WITH_IMM } else { 0 });
        cqe::PHASE.set(&mut entry, u64::from(cq.producer >> log2 & 1 == 0));
        let slot = u64::from(cq.producer) & ((1 << log2) - 1);
        let iova = cq_image::BASE.get(&cq.image) + slot * cqe::BYTES as u64;
        cq.producer = cq.producer.wrapping_add(1);
        let vector =
            std::mem::take(&mut cq.armed).then(|| cq_image::VECTOR.get(&cq.image) as usize);
        self.count(Counter::CqesWritten, 1);
        self.write_entry(iova, &entry);
        self.raised.extend(vector);
    }

    /// Writes an entry, its last dword after the rest.
    fn write_entry(&self, iova: u64, entry: &[u8]) {
        let (rest, last) = entry.split_at(entry.len() - 4);
        assert!(
            self.dma_write(iova, rest) && self.dma_write(iova + rest.len() as u64, last),
            "the ring is not mapped"
        );
    }

    fn event(&mut self, kind: EventType, number: u32, code: u8) {
        let Some(eq) = self.eqs.get_mut(&0) else {
            return;
        };
        let log2 = eq_image::LOG2.get(&eq.image);
        let mut entry = [0; eqe::BYTES];
        eqe::TYPE.set(&mut entry, kind as u64);
        eqe::CODE.set(&mut entry, code.into());
        eqe::NUMBER.set(&mut entry, number.into());
        eqe::PHASE.set(&mut entry, u64::from(eq.producer >> log2 & 1 == 0));
        let slot = u64::from(eq.producer) & ((1 << log2) - 1);
        let iova = eq_image::BASE.get(&eq.image) + slot * eqe::BYTES as u64;
        eq.producer = eq.producer.wrapping_add(1);
        let vector = eq_image::VECTOR.get(&eq.image) as usize;
        self.write_entry(iova, &entry);
        self.raised.push_back(vector);
    }

    fn fail(&mut self, qpn: u32, kind: EventType, status: WcStatus) {
        qp_image::STATE.set(
            &mut self.qps.get_mut(&qpn).unwrap().image,
            QpState::Error as u64,
        );
        self.event(kind, qpn, status as u8);
    }

    pub fn read(&mut self, offset: u32) -> u32 {
        let config = self.traits.config;
        match offset {
            csr::MAGIC => self.traits.magic,
            csr::VERSION => self.traits.version,
            csr::BUILD_ID_LO => 0x89ab_cdef,
            csr::BUILD_ID_HI => 0x0123_4567,
            csr::CONFIG0 => {
                (config.qp_log2 | config.cq_log2 << 8 | config.eq_log2 << 16 | config.mr_log2 << 24)
                    as u32
            }
            csr::CONFIG1 => config.bitmap_slots as u32 | config::CLOCK_MHZ << 16,
            csr::STATUS => csr::STATUS_READY,
            csr::TICK => (self.cycles / u64::from(config::CYCLES_PER_TICK)) as u32,
            csr::CYCLES_LO => self.cycles as u32,
            csr::CYCLES_HI => (self.cycles >> 32) as u32,
            offset
                if offset >= csr::COUNTERS
                    && offset < csr::COUNTERS + 8 * Counter::ALL.len() as u32 =>
            {
                let counter = self
                    .counters
                    .get(&((offset - csr::COUNTERS) / 8))
                    .copied()
                    .unwrap_or(0);
                (counter >> (offset % 8 * 8)) as u32
            }
            _ => self.registers.get(&offset).copied().unwrap_or(0),
        }
    }

    pub fn write(&mut self, offset: u32, value: u32) {
        let page = |base: u32| {
            (
                (offset - base) / csr::DOORBELL_PAGE,
                offset % csr::DOORBELL_PAGE,
            )
        };
        if offset == csr::CMD_OPCODE {
            let status = self.command(value as u8);
            self.registers.insert(csr::CMD_STATUS, status as u32);
        } else if offset >= csr::QP_DOORBELLS {
            let (qpn, register) = page(csr::QP_DOORBELLS);
            let Some(qp) = self.qps.get_mut(&qpn) else {
                return;
            };
            match register {
                csr::DB_SQ => qp.sq_producer = value as u16,
                csr::DB_RQ => qp.rq_producer = value as u16,
                _ => {}
            }
        } else if offset >= csr::CQ_DOORBELLS {
            let (cqn, register) = page(csr::CQ_DOORBELLS);
            let Some(cq) = self.cqs.get_mut(&cqn) else {
                return;
            };
            cq.consumer = value as u16;
            if register == csr::DB_CQ_ARM {
                cq.armed = cq.producer == cq.consumer;
                if !cq.armed {
                    let vector = cq_image::VECTOR.get(&cq.image) as usize;
                    self.raised.push_back(vector);
                }
            }
        } else if offset < csr::EQ_DOORBELLS {
            self.registers.insert(offset, value);
        }
    }

    fn command(&mut self, code: u8) -> Status {
        let mut arguments = [0; 128];
        for (i, dword) in arguments.chunks_exact_mut(4).enumerate() {
            let value = self
                .registers
                .get(&(csr::CMD_ARGS + 4 * i as u32))
                .copied()
                .unwrap_or(0);
            dword.copy_from_slice(&value.to_le_bytes());
        }
        let config = self.traits.config;
        let qpn = qp_image::QPN.get(&arguments) as u32;
        let inside = |number: u32, log2: usize| number < 1 << log2;
        match code {
            c if c == Opcode::Nop as u8 => Status::Ok,
            c if c == Opcode::CreateQp as u8 => {
                if !inside(qpn, config.qp_log2) {
                    return Status::BadIndex;
                }
                if qp_image::MODE.get(&arguments) != 1 {
                    return Status::BadArgument;
                }
                if self.qps.contains_key(&qpn) {
                    return Status::Exists;
                }
                let qp = Qp {
                    image: arguments,
                    sq_producer: 0,
                    sq_consumer: 0,
                    rq_producer: 0,
                    rq_consumer: 0,
                    messages: 0,
                    sent: 0,
                    accepted: 0,
                };
                self.qps.insert(qpn, qp);
                Status::Ok
            }
            c if c == Opcode::ModifyQp as u8 => match self.qps.get_mut(&qpn) {
                None => Status::Missing,
                Some(qp) => {
                    // The driver keeps the whole image; taking all of it is the same as taking the groups of the mask.
                    qp.image = arguments;
                    Status::Ok
                }
            },
            c if c == Opcode::QueryQpStats as u8 => self.stats(qpn),
            c if c == Opcode::TraceQp as u8 => {
                self.trace = Some(Trace {
                    qpn,
                    vp_base: trace_request::VP_BASE.get(&arguments),
                    sent: [0; TRACED_VPS + 1],
                });
                present(self.qps.contains_key(&qpn))
            }
            c if c == Opcode::ReadTrace as u8 => self.read_trace(&arguments),
            c if c == Opcode::QueryQp as u8 => match self.qps.get(&qpn) {
                None => Status::Missing,
                Some(qp) => {
                    let mut result = [0; 128];
                    qp_status::STATE.set(&mut result, qp.state());
                    qp_status::RX_STATE.set(&mut result, qp.state());
                    qp_status::CWND.set(&mut result, 33);
                    qp_status::MSN.set(&mut result, qp.messages);
                    qp_status::RCV_WSN.set(&mut result, qp.rq_consumer.into());
                    self.answer(&result)
                }
            },
            c if c == Opcode::DestroyQp as u8 => present(self.qps.remove(&qpn).is_some()),
            c if c == Opcode::RegisterMr as u8 => {
                let index = mr_image::KEY.get(&arguments) as u32 >> 8;
                if !inside(index, config.mr_log2) {
                    return Status::BadIndex;
                }
                self.mrs.insert(index, arguments);
                Status::Ok
            }
            c if c == Opcode::DeregisterMr as u8 => {
                let index = mr_image::KEY.get(&arguments) as u32 >> 8;
                present(self.mrs.remove(&index).is_some())
            }
            c if c == Opcode::CreateCq as u8 => {
                let cqn = cq_image::CQN.get(&arguments) as u32;
                if !inside(cqn, config.cq_log2) {
                    return Status::BadIndex;
                }
                self.cqs.insert(
                    cqn,
                    Cq {
                        image: arguments,
                        producer: 0,
                        consumer: 0,
                        armed: false,
                        dead: false,
                    },
                );
                Status::Ok
            }
            c if c == Opcode::DestroyCq as u8 => {
                let cqn = cq_image::CQN.get(&arguments);
                let used = |qp: &Qp| {
                    qp_image::SQ_CQN.get(&qp.image) == cqn || qp_image::RQ_CQN.get(&qp.image) == cqn
                };
                assert!(
                    !self.qps.values().any(used),
                    "CQ {cqn} is destroyed while a QP uses it"
                );
                present(self.cqs.remove(&(cqn as u32)).is_some())
            }
            c if c == Opcode::CreateEq as u8 => {
                self.eqs.insert(
                    eq_image::EQN.get(&arguments) as u32,
                    Eq {
                        image: arguments,
                        producer: 0,
                    },
                );
                Status::Ok
            }
            c if c == Opcode::DestroyEq as u8 => present(
                self.eqs
                    .remove(&(eq_image::EQN.get(&arguments) as u32))
                    .is_some(),
            ),
            _ => Status::BadOpcode,
        }
    }
}

impl Qp {
    fn state(&self) -> u64 {
        qp_image::STATE.get(&self.image)
    }
}

fn present(was: bool) -> Status {
    if was {
        Status::Ok
    } else {
        Status::Missing
    }
}

/// A card of a fabric as the driver sees it, in this process. Time passes while the driver polls.
pub struct FakeDevice {
    fabric: Shared,
    card: usize,
    identity: Identity,
}

impl FakeDevice {
    pub fn new(fabric: &Shared, card: usize) -> Arc<Self> {
        let identity = Identity {
            address: format!("fake:{card}"),
            backend: "in-process",
            vendor: config::PCI_VENDOR,
            device: config::PCI_DEVICE,
            bar0_bytes: BAR0_BYTES,
            vectors: config::MSIX_VECTORS,
            numa_node: None,
        };
        Arc::new(Self {
            fabric: Arc::clone(fabric),
            card,
            identity,
        })
    }

    fn fabric(&self) -> MutexGuard<'_, Fabric> {
        self.fabric.lock().unwrap()
    }
}

impl Device for FakeDevice {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn read32(&self, offset: u32) -> Result<u32, DeviceError> {
        if offset % 4 != 0 || u64::from(offset) >= BAR0_BYTES {
            return Err(DeviceError::OutOfBar {
                offset,
                bar0_bytes: BAR0_BYTES,
            });
        }
        Ok(self.fabric().cards[self.card].read(offset))
    }

    fn write32(&self, offset: u32, value: u32) -> Result<(), DeviceError> {
        if offset % 4 != 0 || u64::from(offset) >= BAR0_BYTES {
            return Err(DeviceError::OutOfBar {
                offset,
                bar0_bytes: BAR0_BYTES,
            });
        }
        self.fabric().cards[self.card].write(offset, value);
        Ok(())
    }

    fn map_dma(&self, memory: &Arc<Memory>, iova: u64) -> Result<(), DeviceError> {
        self.fabric().cards[self.card].map(iova, memory.bytes() as u64, 0, Arc::clone(memory));
        Ok(())
    }

    fn unmap_dma(&self, iova: u64, bytes: u64) -> Result<(), DeviceError> {
        assert_eq!(
            self.fabric().cards[self.card].unmap(iova, bytes),
            1,
            "one mapping at {iova:#x}"
        );
        Ok(())
    }

    fn wait_interrupt(&self, vector: usize, timeout: Duration) -> Result<bool, DeviceError> {
        if vector >= self.identity.vectors {
            return Err(DeviceError::NoVector {
                vector,
                vectors: self.identity.vectors,
            });
        }
        // Simulated time: a microsecond is a step.
        for _ in 0..=timeout.as_micros() {
            let mut fabric = self.fabric();
            let raised = &mut fabric.cards[self.card].raised;
            if raised.contains(&vector) {
                raised.retain(|other| *other != vector);
                return Ok(true);
            }
            fabric.step();
        }
        Ok(false)
    }

    fn reset(&self) -> Result<(), DeviceError> {
        self.fabric().cards[self.card].reset();
        Ok(())
    }

    fn relax(&self) -> Result<(), DeviceError> {
        self.fabric().step();
        Ok(())
    }
}
