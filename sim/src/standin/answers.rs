//! Answers the peer's READs and ATOMICs (protocol section 7): executes ATOMICs one at a time, and launches the answers of a
//! queue pair in the order of its requests. One that finds its ring full waits for its own queue pair only.

use super::dma::Dma;
use super::events::Event;
use super::fetch::packets;
use super::reads::{Atomic, Range};
use super::timing::READ;
use super::transmit::{Kind, Message};
use super::StandIn;
use mprdma_model::sender::SenderEvent;
use mprdma_spec::counter::Counter;
use mprdma_spec::params::{mtu_bytes, ATOMIC_BYTES};
use mprdma_spec::status::WcStatus;
use std::collections::VecDeque;

/// How far an answer is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stage {
    /// The bytes of a READ are in memory.
    Read,
    /// An ATOMIC is to be executed.
    Atomic(Atomic),
    /// An ATOMIC has been executed: what the memory held before.
    Executed(u64),
}

/// An answer that the peer waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub slot: u32,
    pub range: Range,
    pub stage: Stage,
}

/// The answers of one queue pair, the oldest request's first.
#[derive(Clone, Debug, Default)]
pub(super) struct AnswerQueue {
    answers: VecDeque<Answer>,
    /// It is in the list of those to look at, or of ATOMICs to execute.
    listed: bool,
}

impl AnswerQueue {
    /// Nobody waits any more.
    pub(super) fn clear(&mut self) {
        self.answers.clear();
    }
}

/// What all queue pairs share.
#[derive(Default)]
pub(super) struct Answers {
    /// Queue pairs whose oldest answer may be due.
    list: VecDeque<u16>,
    /// Those whose oldest answer is an ATOMIC to execute, and whether one is being executed.
    atomics: VecDeque<u16>,
    executing: bool,
}

/// The 8 bytes of an ATOMIC are being read.
#[derive(Clone, Copy, Debug)]
pub(super) struct AtomicRead {
    qpn: u16,
    life: u32,
    atomic: Atomic,
    iova: u64,
    fails: bool,
}

impl StandIn {
    /// The peer waits for this answer, behind those before it.
    pub(super) fn answer(&mut self, qpn: u16, answer: Answer) {
        let queue = &mut self.tables.qps[usize::from(qpn)].answers;
        queue.answers.push_back(answer);
        self.look_at_answers(qpn);
    }

    /// The oldest answer of a queue pair may fit now, or be wanted no more.
    pub(super) fn look_at_answers(&mut self, qpn: u16) {
        let queue = &mut self.tables.qps[usize::from(qpn)].answers;
        if !queue.answers.is_empty() && !queue.listed {
            queue.listed = true;
            self.tables.answers.list.push_back(qpn);
            self.look_at_wqes();
        }
    }

    /// The next queue pair whose oldest answer can be launched. Those before it leave the list, until something changes.
    pub(super) fn next_answer(&mut self) -> Option<u16> {
        loop {
            let qpn = *self.tables.answers.list.front()?;
            let qp = &mut self.tables.qps[usize::from(qpn)];
            if !qp.send.answers() {
                qp.answers.clear();
            }
            let oldest = qp.answers.answers.front();
            let executes = oldest.is_some_and(|answer| matches!(answer.stage, Stage::Atomic(_)));
            let fits = oldest.is_some_and(|answer| qp.send.fits(answer.range.length));
            if fits && !executes {
                return Some(qpn);
            }
            qp.answers.listed = executes;
            self.tables.answers.list.pop_front();
            if executes {
                self.tables.answers.atomics.push_back(qpn);
                self.execute();
            }
        }
    }

    /// Launches the oldest answer of the queue pair that is next.
    pub(super) fn launch_answer(&mut self) {
        let Some(qpn) = self.tables.answers.list.pop_front() else {
            return;
        };
        let qp = &mut self.tables.qps[usize::from(qpn)];
        qp.answers.listed = false;
        let Some(answer) = qp.answers.answers.pop_front() else {
            return;
        };
        let (mtu, length) = (qp.send.mtu(), answer.range.length);
        let mut message = Message {
            kind: Kind::Response,
            packets: packets(mtu, length),
            iova: answer.range.iova,
            length,
            wsn: answer.slot,
            mtu: mtu_bytes(mtu).unwrap_or(256),
            ..Message::default()
        };
        if let Stage::Executed(held) = answer.stage {
            (message.kind, message.swap_add) = (Kind::AtomicAck, held);
        }
        self.launch(qpn, message);
        self.look_at_answers(qpn);
    }

    /// Executes the next ATOMIC, when none is under way: its read begins behind the writes before it.
    fn execute(&mut self) {
        while !self.tables.answers.executing {
            let Some(qpn) = self.tables.answers.atomics.pop_front() else {
                return;
            };
            let qp = &mut self.tables.qps[usize::from(qpn)];
            let oldest = qp.answers.answers.front();
            let Some((atomic, iova)) = oldest.and_then(|answer| match answer.stage {
                Stage::Atomic(atomic) if qp.send.answers() => Some((atomic, answer.range.iova)),
                _ => None,
            }) else {
                qp.answers.listed = false;
                self.look_at_answers(qpn);
                continue;
            };
            let life = qp.send.life();
            self.tables.answers.executing = true;
            let start = self.dma.on_bus(self.now);
            let bytes = ATOMIC_BYTES as u64;
            let (ready, fails) = self.dma.ask(start, iova, bytes, &mut self.stats.pcie);
            let read = AtomicRead {
                qpn,
                life,
                atomic,
                iova,
                fails,
            };
            self.schedule(ready + self.cycles(READ), Event::AtomicRead(read));
        }
    }

    /// What the memory holds is there: the new value goes to the bus, and the answer may be launched.
    pub(super) fn atomic_read(&mut self, read: &AtomicRead) {
        self.tables.answers.executing = false;
        let qp = &mut self.tables.qps[usize::from(read.qpn)];
        qp.answers.listed = false;
        if qp.send.life() == read.life && qp.send.answers() {
            self.finish_atomic(read);
        }
        self.look_at_answers(read.qpn);
        self.execute();
    }

    fn finish_atomic(&mut self, read: &AtomicRead) {
        let mut bytes = [0; ATOMIC_BYTES];
        let (host, counters) = (&self.host, &mut self.stats.pcie);
        if read.fails || !Dma::fetch(self.now, read.iova, &mut bytes, host, counters) {
            self.count(Counter::DmaReadErrors, 1);
            let event = SenderEvent::Error(WcStatus::FatalError as u8);
            return self.sender_event(read.qpn, &event);
        }
        self.count(Counter::AtomicsExecuted, 1);
        let held = u64::from_le_bytes(bytes);
        if let Some(new) = read.atomic.apply(held) {
            self.write(read.iova, new.to_le_bytes().to_vec());
        }
        let answers = &mut self.tables.qps[usize::from(read.qpn)].answers.answers;
        if let Some(answer) = answers.front_mut() {
            answer.stage = Stage::Executed(held);
        }
    }
}
