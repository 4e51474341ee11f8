//! Fetches send work: reads WQEs from host memory, checks them, gives them PSNs and launches them; launches the answers to
//! the peer too.

use super::dma::Dma;
use super::events::Event;
use super::reads::{Range, SLOTS};
use super::timing::{BATCH, FETCH, FLYING, READ, WQE};
use super::transmit::{Kind, Message};
use super::StandIn;
use crate::time::Ps;
use mprdma_model::psn;
use mprdma_spec::command::{qp_image, QpState, RIGHT_LOCAL_WRITE};
use mprdma_spec::config::{MESSAGE_RING_LOG2, RESPONSE_ENTRIES};
use mprdma_spec::descriptor::{sq_wqe, WrOpcode, WQE_FENCE, WQE_SIGNALED, WQE_SYNC};
use mprdma_spec::params::{max_read, mtu_bytes, ATOMIC_BYTES, MAX_MESSAGE};
use mprdma_spec::status::WcStatus;
use std::collections::VecDeque;

/// Messages that a queue pair may have in its ring, and work requests that it may have open.
const MOST_MESSAGES: u16 = 1 << MESSAGE_RING_LOG2;
/// Messages in the ring up to which work requests are launched: the rest is for answers to READs.
const MOST_OWN: u16 = MOST_MESSAGES - RESPONSE_ENTRIES as u16;
/// PSNs that they may take together, if there are several.
const MOST_PACKETS: u32 = 1 << 23;

const RTS: u8 = QpState::Rts as u8;
const ERROR: u8 = QpState::Error as u8;

/// State of one send queue. The three indices are free-running.
#[derive(Clone, Debug, Default)]
pub(super) struct SendQueue {
    /// `QpState`.
    pub state: u8,
    log2: u8,
    mtu: u8,
    pd: u16,
    base: u64,
    /// It is in the work list.
    listed: bool,
    /// The next WQE does not fit what may be outstanding, or waits for READs; until something retires or a READ is done.
    blocked: bool,
    /// A synchronised message is launched and its first packet has not left: the next such message has to wait.
    sync_open: bool,
    /// It is the next WQE, and does.
    sync_waits: bool,
    /// Counts the lives of the queue: what an older one asked for is thrown away.
    life: u32,
    /// Messages launched and not acknowledged, answers to the peer among them, and their PSNs.
    messages: u16,
    packets: u32,
    /// Work requests launched and not completed.
    own: u16,
    /// READs and ATOMICs launched and not done, and how many there were.
    reads: u16,
    next_read: u32,
    next_psn: u32,
    next_wsn: u32,
    posted: u16,
    asked: u16,
    launched: u16,
    /// It has turns, as there were open READs or ATOMICs in the last one; and had been waiting for nothing but them then.
    pub watched: bool,
    pub waited: bool,
}

impl SendQueue {
    /// That of a new queue pair in place of `old`.
    pub(super) fn read(image: &[u8], old: &SendQueue) -> SendQueue {
        SendQueue {
            state: qp_image::STATE.get(image) as u8,
            log2: qp_image::SQ_LOG2.get(image) as u8,
            mtu: qp_image::MTU.get(image) as u8,
            pd: qp_image::PD.get(image) as u16,
            base: qp_image::SQ_BASE.get(image),
            next_psn: qp_image::SQ_PSN.get(image) as u32,
            ..SendQueue::destroyed(old)
        }
    }

    /// What is left of `old` when its queue pair is gone.
    pub(super) fn destroyed(old: &SendQueue) -> SendQueue {
        SendQueue {
            listed: old.listed,
            watched: old.watched,
            life: old.life + 1,
            ..SendQueue::default()
        }
    }

    /// MODIFY_QP of the sender half: nothing is open any more.
    pub(super) fn restart(&mut self, image: &[u8]) {
        self.life += 1;
        (self.blocked, self.sync_open, self.sync_waits) = (false, false, false);
        (self.messages, self.packets, self.own) = (0, 0, 0);
        (self.reads, self.next_read, self.waited) = (0, 0, false);
        self.next_psn = qp_image::SQ_PSN.get(image) as u32;
        self.next_wsn = 0;
        self.asked = self.launched;
    }

    pub(super) fn life(&self) -> u32 {
        self.life
    }

    pub(super) fn mtu(&self) -> u8 {
        self.mtu
    }

    /// Whether it answers its peer.
    pub(super) fn answers(&self) -> bool {
        self.state == RTS
    }

    /// Whether an answer of so many bytes finds room.
    pub(super) fn fits(&self, length: u32) -> bool {
        self.messages < MOST_MESSAGES && !self.too_many(packets(self.mtu, length))
    }

    pub(super) fn has_open_reads(&self) -> bool {
        self.state == RTS && self.reads != 0
    }

    /// Whether everything sent is acknowledged.
    pub(super) fn has_nothing_under_way(&self) -> bool {
        self.messages == 0
    }

    /// Work requests that may still be launched, if so many of those that may be are on their way already.
    fn room(&self, on_way: u16) -> u16 {
        let ring = MOST_OWN.saturating_sub(self.messages + on_way);
        ring.min(MOST_MESSAGES.saturating_sub(self.own + on_way))
    }

    /// Whether `packets` more PSNs may not be outstanding beside those that are.
    fn too_many(&self, packets: u32) -> bool {
        self.messages != 0 && self.packets + packets > MOST_PACKETS
    }

    fn entries(&self) -> u16 {
        1 << self.log2
    }

    fn has_work(&self) -> bool {
        match self.state {
            RTS => !self.blocked && !self.sync_waits && self.posted != self.asked,
            ERROR => self.posted != self.launched,
            _ => false,
        }
    }

    /// The next WQE becomes `message`.
    fn take_wqe(&mut self, message: &mut Message) {
        message.wqe_index = self.launched;
        if message.imm.is_some() && message.packets > 0 {
            message.wsn = self.next_wsn;
            self.next_wsn = psn::add(self.next_wsn, 1);
        }
        if message.kind.is_answered() && message.packets > 0 {
            message.wsn = self.next_read % SLOTS as u32;
            self.next_read = self.next_read.wrapping_add(1);
            self.reads += 1;
        }
        self.own += 1;
        self.launched = self.launched.wrapping_add(1);
        if self.asked.wrapping_add(1) == self.launched {
            self.asked = self.launched;
        }
    }

    /// WQEs that the next read may bring: not past the end of the ring, what is posted, or the open messages.
    fn next_batch(&self) -> u16 {
        let on_way = self.asked.wrapping_sub(self.launched);
        let offset = self.asked & (self.entries() - 1);
        BATCH
            .min(self.posted.wrapping_sub(self.asked))
            .min(self.entries() - offset)
            .min(self.room(on_way))
    }
}

/// A read of WQEs on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct WqeRead {
    qpn: u16,
    life: u32,
    /// Index of the first.
    index: u16,
    count: u16,
    iova: u64,
    fails: bool,
}

/// A WQE that has been read.
struct Wqe {
    qpn: u16,
    life: u32,
    index: u16,
    bytes: [u8; sq_wqe::BYTES],
    readable: bool,
}

/// What a WQE with this opcode becomes, if there is such a thing.
fn kind_of(opcode: u64) -> Option<Kind> {
    Some(match opcode {
        code if code == WrOpcode::RdmaWrite as u64 => Kind::Write,
        code if code == WrOpcode::RdmaWriteWithImm as u64 => Kind::Write,
        code if code == WrOpcode::RdmaRead as u64 => Kind::Read,
        code if code == WrOpcode::AtomicCmpAndSwp as u64 => Kind::CompareSwap,
        code if code == WrOpcode::AtomicFetchAndAdd as u64 => Kind::FetchAdd,
        _ => return None,
    })
}

/// Packets of a message of so many bytes over the MTU with that IBA code.
pub(super) fn packets(mtu: u8, length: u32) -> u32 {
    length.div_ceil(mtu_bytes(mtu).unwrap_or(256)).max(1)
}

/// What all send queues share.
#[derive(Default)]
pub(super) struct Fetch {
    /// Queue pairs with something to do, each once.
    list: VecDeque<u16>,
    /// The list is being served: what that brings about is not served inside it.
    serving: bool,
    /// WQEs asked for and not looked at.
    flying: u16,
    wqes: VecDeque<Wqe>,
    /// When the next WQE or answer may be looked at, and whether an event is under way for that.
    free_at: Ps,
    waits: bool,
    /// When the last read asked for is complete: reads are answered in order.
    read_at: Ps,
}

impl StandIn {
    pub(super) fn send_doorbell(&mut self, qpn: u16, index: u16) {
        let Some(qp) = self.tables.qps.get_mut(usize::from(qpn)) else {
            return;
        };
        let queue = &mut qp.send;
        if queue.state == QpState::Reset as u8
            || index.wrapping_sub(queue.launched) > queue.entries()
        {
            return;
        }
        queue.posted = index;
        self.work_arrived(qpn);
    }

    /// Something about a queue changed: into the work list if there is something to do.
    pub(super) fn work_arrived(&mut self, qpn: u16) {
        let queue = &mut self.tables.qps[usize::from(qpn)].send;
        if queue.has_work() && !queue.listed {
            queue.listed = true;
            self.tables.fetch.list.push_back(qpn);
        }
        self.fetch();
    }

    /// The queue pair went to ERROR.
    pub(super) fn stop_send_queue(&mut self, qpn: u16) {
        let queue = &mut self.tables.qps[usize::from(qpn)].send;
        if queue.state != QpState::Reset as u8 {
            queue.state = ERROR;
        }
        self.work_arrived(qpn);
        self.look_at_answers(qpn);
    }

    /// A message of so many packets has left the ring, or a work request is completed, or both.
    pub(super) fn retire(&mut self, qpn: u16, packets: Option<u32>, own: bool) {
        let queue = &mut self.tables.qps[usize::from(qpn)].send;
        if let Some(packets) = packets.filter(|_| queue.messages > 0) {
            queue.messages -= 1;
            queue.packets -= packets;
        }
        queue.own = queue.own.saturating_sub(own.into());
        queue.blocked = false;
        self.work_arrived(qpn);
        self.look_at_answers(qpn);
    }

    /// A READ or ATOMIC is done: its bytes are on the bus.
    pub(super) fn read_done(&mut self, qpn: u16) {
        let queue = &mut self.tables.qps[usize::from(qpn)].send;
        queue.reads = queue.reads.saturating_sub(1);
        (queue.blocked, queue.waited) = (false, false);
        self.read_finished(qpn);
        self.work_arrived(qpn);
    }

    /// The first packet of a synchronised message has left.
    pub(super) fn sync_passed(&mut self, qpn: u16) {
        let queue = &mut self.tables.qps[usize::from(qpn)].send;
        (queue.sync_open, queue.sync_waits) = (false, false);
        self.work_arrived(qpn);
    }

    /// Serves the work list as far as reads may be on their way.
    fn fetch(&mut self) {
        if std::mem::replace(&mut self.tables.fetch.serving, true) {
            return;
        }
        while self.tables.fetch.flying < FLYING {
            let Some(qpn) = self.tables.fetch.list.pop_front() else {
                break;
            };
            let queue = &mut self.tables.qps[usize::from(qpn)].send;
            queue.listed = false;
            match queue.state {
                RTS if queue.has_work() && queue.next_batch() > 0 => self.read_wqes(qpn),
                ERROR if queue.has_work() && queue.room(0) > 0 => {
                    self.launch_flushed(qpn);
                }
                _ => continue,
            }
            let queue = &mut self.tables.qps[usize::from(qpn)].send;
            if queue.has_work() && !queue.listed {
                queue.listed = true;
                self.tables.fetch.list.push_back(qpn);
            }
        }
        self.tables.fetch.serving = false;
    }

    fn read_wqes(&mut self, qpn: u16) {
        let queue = &mut self.tables.qps[usize::from(qpn)].send;
        let (index, count) = (queue.asked, queue.next_batch());
        let slot = index & (queue.entries() - 1);
        let iova = queue
            .base
            .wrapping_add(u64::from(slot) * sq_wqe::BYTES as u64);
        let life = queue.life;
        queue.asked = index.wrapping_add(count);
        self.tables.fetch.flying += count;
        let (start, bytes) = (self.now + self.cycles(FETCH), u64::from(count) * 64);
        let (ready, fails) = self.dma.ask(start, iova, bytes, &mut self.stats.pcie);
        let at = (ready + self.cycles(READ)).max(self.tables.fetch.read_at);
        self.tables.fetch.read_at = at;
        let read = WqeRead {
            qpn,
            life,
            index,
            count,
            iova,
            fails,
        };
        self.schedule(at, Event::WqesRead { read });
    }

    pub(super) fn wqes_read(&mut self, read: WqeRead) {
        let mut bytes = vec![0; usize::from(read.count) * sq_wqe::BYTES];
        let (host, counters) = (&self.host, &mut self.stats.pcie);
        let readable = !read.fails && Dma::fetch(self.now, read.iova, &mut bytes, host, counters);
        for (i, chunk) in bytes.chunks_exact(sq_wqe::BYTES).enumerate() {
            self.tables.fetch.wqes.push_back(Wqe {
                qpn: read.qpn,
                life: read.life,
                index: read.index.wrapping_add(i as u16),
                bytes: chunk.try_into().expect("chunks of that size"),
                readable,
            });
        }
        self.look_at_wqes();
    }

    pub(super) fn next_wqe(&mut self) {
        self.tables.fetch.waits = false;
        self.look_at_wqes();
    }

    /// Looks at answers and WQEs, answers first, as far as there are any.
    pub(super) fn look_at_wqes(&mut self) {
        loop {
            let answers = self.next_answer().is_some();
            let idle = !answers && self.tables.fetch.wqes.is_empty();
            if idle || self.tables.fetch.waits {
                return;
            }
            let fetch = &mut self.tables.fetch;
            if fetch.free_at > self.now {
                fetch.waits = true;
                let at = fetch.free_at;
                return self.schedule(at, Event::Wqe);
            }
            fetch.free_at = self.now + self.clock.cycles(WQE);
            if answers {
                self.launch_answer();
            } else if let Some(wqe) = fetch.wqes.pop_front() {
                fetch.flying -= 1;
                self.look_at(&wqe);
            }
            self.fetch();
        }
    }

    /// Launches a WQE, or lets it be read again. One that is not the next in turn comes from a read made before something
    /// went wrong; it is dropped.
    fn look_at(&mut self, wqe: &Wqe) {
        let queue = &self.tables.qps[usize::from(wqe.qpn)].send;
        let runs = queue.state == RTS || queue.state == ERROR;
        if wqe.life != queue.life || wqe.index != queue.launched || !runs {
            return;
        }
        let get = |field: mprdma_spec::layout::Field| field.get(&wqe.bytes);
        let length = get(sq_wqe::LENGTH) as u32;
        let answer = self.look_up(get(sq_wqe::LKEY) as u32, get(sq_wqe::LADDR), length);
        let opcode = get(sq_wqe::OPCODE);
        let kind = kind_of(opcode);
        let answered = kind.is_some_and(Kind::is_answered);
        let rights = if answered { RIGHT_LOCAL_WRITE } else { 0 };
        let lengths = match (kind, max_read(queue.mtu)) {
            (Some(Kind::CompareSwap | Kind::FetchAdd), _) => {
                ATOMIC_BYTES as u64..=ATOMIC_BYTES as u64
            }
            (Some(Kind::Read), Some(most)) => 0..=most,
            _ => 0..=MAX_MESSAGE,
        };
        let opens = answer.hit && answer.pd == queue.pd && rights & !u64::from(answer.rights) == 0;
        let status = if queue.state == ERROR {
            Some(WcStatus::WorkRequestFlushed)
        } else if !wqe.readable {
            Some(WcStatus::FatalError)
        } else if kind.is_none() {
            Some(WcStatus::LocalQpOperationError)
        } else if !lengths.contains(&u64::from(length)) {
            Some(WcStatus::LocalLengthError)
        } else if length != 0 && !opens {
            Some(WcStatus::LocalProtectionError)
        } else {
            None
        };
        let packets = if answered {
            1
        } else {
            packets(queue.mtu, length)
        };
        let flags = get(sq_wqe::FLAGS);
        let waits_for_reads = (flags & WQE_FENCE != 0 && queue.reads != 0)
            || (answered && usize::from(queue.reads) == SLOTS);
        let full = queue.room(0) == 0
            || (status.is_none() && (queue.too_many(packets) || waits_for_reads));
        let sync_waits = status.is_none() && queue.sync_open && flags & WQE_SYNC != 0;
        if full || sync_waits {
            let queue = &mut self.tables.qps[usize::from(wqe.qpn)].send;
            queue.asked = queue.launched;
            // Only one of them: what ends the one wait may not be what the other waits for.
            (queue.blocked, queue.sync_waits) = (full, !full);
            return;
        }
        let with_imm = opcode == WrOpcode::RdmaWriteWithImm as u64;
        let message = Message {
            kind: kind.unwrap_or_default(),
            packets: if status.is_none() { packets } else { 0 },
            status: status.map_or(0, |status| status as u8),
            iova: answer.iova,
            raddr: get(sq_wqe::RADDR),
            rkey: get(sq_wqe::RKEY) as u32,
            length,
            imm: with_imm.then(|| get(sq_wqe::IMM) as u32),
            swap_add: get(sq_wqe::SWAP_ADD),
            compare: get(sq_wqe::COMPARE),
            mtu: mtu_bytes(queue.mtu).unwrap_or(256),
            sync: flags & WQE_SYNC != 0,
            signaled: flags & WQE_SIGNALED != 0,
            ..Message::default()
        };
        if status.is_some() {
            self.tables.qps[usize::from(wqe.qpn)].send.state = ERROR;
        }
        self.launch(wqe.qpn, message);
    }

    fn launch_flushed(&mut self, qpn: u16) {
        let message = Message {
            status: WcStatus::WorkRequestFlushed as u8,
            ..Message::default()
        };
        self.launch(qpn, message);
    }

    /// Gives a message its PSNs, and hands it to those who send and complete it.
    pub(super) fn launch(&mut self, qpn: u16, mut message: Message) {
        let queue = &mut self.tables.qps[usize::from(qpn)].send;
        message.first_psn = queue.next_psn;
        queue.messages += 1;
        queue.packets += message.packets;
        queue.next_psn = psn::add(queue.next_psn, message.packets);
        queue.waited = false;
        if message.kind.is_own() {
            queue.take_wqe(&mut message);
        }
        if message.kind.is_answered() && message.packets > 0 {
            let range = Range {
                iova: message.iova,
                length: message.length,
            };
            let book = &mut self.tables.qps[usize::from(qpn)].reads;
            book.open(message.wsn, range, message.kind != Kind::Read);
            self.watch(qpn);
        }
        let queue = &mut self.tables.qps[usize::from(qpn)].send;
        let (packets, sync) = (message.packets, message.sync);
        queue.sync_open |= sync && packets > 0;
        self.store(qpn, message);
        if packets > 0 {
            self.grant_work(qpn, packets, sync);
        }
        // In ERROR the queue goes on with the WQEs that were not read.
        self.work_arrived(qpn);
    }
}
