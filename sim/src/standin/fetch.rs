//! Fetches send work: reads WQEs from host memory, checks them, gives them PSNs and launches them.

use super::dma::Dma;
use super::events::Event;
use super::timing::{BATCH, FETCH, FLYING, READ, WQE};
use super::transmit::Message;
use super::StandIn;
use crate::time::Ps;
use mprdma_model::psn;
use mprdma_spec::command::{qp_image, QpState};
use mprdma_spec::config::MESSAGE_RING_LOG2;
use mprdma_spec::descriptor::{sq_wqe, WrOpcode, WQE_SIGNALED, WQE_SYNC};
use mprdma_spec::params::{mtu_bytes, MAX_MESSAGE};
use mprdma_spec::status::WcStatus;
use std::collections::VecDeque;

/// Messages that a queue pair may have open.
const MOST_MESSAGES: u16 = 1 << MESSAGE_RING_LOG2;
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
    /// The next WQE does not fit the PSNs that may be outstanding; waits for a retirement.
    blocked: bool,
    /// A synchronised message is launched and its first packet has not left: the next such message has to wait.
    sync_open: bool,
    /// It is the next WQE, and does.
    sync_waits: bool,
    /// Counts the lives of the queue: what an older one asked for is thrown away.
    life: u32,
    /// Messages launched and not retired, and their PSNs.
    messages: u16,
    packets: u32,
    next_psn: u32,
    next_wsn: u32,
    posted: u16,
    asked: u16,
    launched: u16,
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
            life: old.life + 1,
            ..SendQueue::default()
        }
    }

    /// MODIFY_QP of the sender half: nothing is open any more.
    pub(super) fn restart(&mut self, image: &[u8]) {
        self.life += 1;
        (self.blocked, self.sync_open, self.sync_waits) = (false, false, false);
        (self.messages, self.packets) = (0, 0);
        self.next_psn = qp_image::SQ_PSN.get(image) as u32;
        self.next_wsn = 0;
        self.asked = self.launched;
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

    /// WQEs that the next read may bring: not past the end of the ring, what is posted, or the open messages.
    fn next_batch(&self) -> u16 {
        let on_way = self.asked.wrapping_sub(self.launched);
        let offset = self.asked & (self.entries() - 1);
        BATCH
            .min(self.posted.wrapping_sub(self.asked))
            .min(self.entries() - offset)
            .min(MOST_MESSAGES.saturating_sub(self.messages + on_way))
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
    /// When the next WQE may be looked at, and whether an event is under way for that.
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
    }

    /// A message is done.
    pub(super) fn retire(&mut self, qpn: u16, packets: u32) {
        let queue = &mut self.tables.qps[usize::from(qpn)].send;
        if queue.messages > 0 {
            queue.messages -= 1;
            queue.packets -= packets;
        }
        queue.blocked = false;
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
                ERROR if queue.has_work() && queue.messages < MOST_MESSAGES => {
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

    fn look_at_wqes(&mut self) {
        while !self.tables.fetch.waits && !self.tables.fetch.wqes.is_empty() {
            let fetch = &mut self.tables.fetch;
            if fetch.free_at > self.now {
                fetch.waits = true;
                let at = fetch.free_at;
                return self.schedule(at, Event::Wqe);
            }
            let Some(wqe) = fetch.wqes.pop_front() else {
                return;
            };
            fetch.flying -= 1;
            fetch.free_at = self.now + self.clock.cycles(WQE);
            self.look_at(&wqe);
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
        let status = if queue.state == ERROR {
            Some(WcStatus::WorkRequestFlushed)
        } else if !wqe.readable {
            Some(WcStatus::FatalError)
        } else if opcode > WrOpcode::RdmaWriteWithImm as u64 {
            Some(WcStatus::LocalQpOperationError)
        } else if u64::from(length) > MAX_MESSAGE {
            Some(WcStatus::LocalLengthError)
        } else if length != 0 && (!answer.hit || answer.pd != queue.pd) {
            Some(WcStatus::LocalProtectionError)
        } else {
            None
        };
        let mtu = mtu_bytes(queue.mtu).unwrap_or(256);
        let packets = length.div_ceil(mtu).max(1);
        let too_many = queue.messages != 0 && queue.packets + packets > MOST_PACKETS;
        let flags = get(sq_wqe::FLAGS);
        let full = queue.messages == MOST_MESSAGES || (status.is_none() && too_many);
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
            packets: if status.is_none() { packets } else { 0 },
            status: status.map_or(0, |status| status as u8),
            iova: answer.iova,
            raddr: get(sq_wqe::RADDR),
            rkey: get(sq_wqe::RKEY) as u32,
            length,
            imm: with_imm.then(|| get(sq_wqe::IMM) as u32),
            mtu,
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
    fn launch(&mut self, qpn: u16, mut message: Message) {
        let queue = &mut self.tables.qps[usize::from(qpn)].send;
        message.first_psn = queue.next_psn;
        message.wqe_index = queue.launched;
        if message.imm.is_some() && message.packets > 0 {
            message.wsn = queue.next_wsn;
            queue.next_wsn = psn::add(queue.next_wsn, 1);
        }
        queue.messages += 1;
        queue.packets += message.packets;
        queue.next_psn = psn::add(queue.next_psn, message.packets);
        queue.launched = queue.launched.wrapping_add(1);
        if queue.asked.wrapping_add(1) == queue.launched {
            queue.asked = queue.launched;
        }
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
