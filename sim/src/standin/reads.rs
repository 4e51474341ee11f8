//! The book of READs and ATOMICs: those that this side has open, and those that the peer asked for and that wait for what is
//! before them (protocol section 7).

use super::answers::{Answer, Stage};
use super::StandIn;
use mprdma_model::psn;
use mprdma_model::receiver::MrAnswer;
use mprdma_spec::config::READ_SLOTS_LOG2;
use std::mem::take;

/// READs and ATOMICs of a queue pair that may be open, in each direction.
pub(super) const SLOTS: usize = 1 << READ_SLOTS_LOG2;

/// Bytes that a READ or ATOMIC brings or asks for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Range {
    pub iova: u64,
    pub length: u32,
}

/// What an ATOMIC does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Atomic {
    /// Compare and swap; if not, fetch and add.
    pub swap: bool,
    pub swap_add: u64,
    pub compare: u64,
}

impl Atomic {
    /// What it writes over `held`, if it writes.
    pub(super) fn apply(&self, held: u64) -> Option<u64> {
        match self.swap {
            true => (held == self.compare).then_some(self.swap_add),
            false => Some(held.wrapping_add(self.swap_add)),
        }
    }
}

/// What the peer asks for: an ATOMIC, or a READ.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub range: Range,
    pub atomic: Option<Atomic>,
}

/// A packet of an answer, by its headers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub slot: u32,
    /// Bytes of the answer before it, and its own.
    pub offset: u64,
    pub length: u64,
    /// It says that it is the last.
    pub last: bool,
    /// It answers an ATOMIC.
    pub atomic: bool,
}

/// READs and ATOMICs of one queue pair, each in the slot that its request names. Slots are used in turn.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadBook {
    /// There has been one, so the receiver half has to tell how far it is.
    used: bool,
    /// Those of this side: where the answer goes, and whether it is an ATOMIC's.
    open: [Option<(Range, bool)>; SLOTS],
    /// PSNs of answers' last packets that have arrived.
    ends: [Option<u32>; SLOTS],
    /// Slot of the oldest open one.
    oldest: usize,
    /// Those of the peer: the PSN of the request, and what it asks for.
    requests: [Option<(u32, Request)>; SLOTS],
    /// Slot of the next to be answered.
    next: usize,
}

impl ReadBook {
    /// A READ or ATOMIC of this side is launched.
    pub(super) fn open(&mut self, slot: u32, range: Range, atomic: bool) {
        self.used = true;
        self.open[slot as usize % SLOTS] = Some((range, atomic));
    }

    /// Nothing of this side is open any more.
    pub(super) fn restart_requester(&mut self) {
        (self.open, self.ends, self.oldest) = Default::default();
    }

    /// Nothing of the peer waits any more.
    pub(super) fn restart_responder(&mut self) {
        (self.requests, self.next) = Default::default();
    }

    /// Where a packet of an answer goes.
    pub(super) fn find(&self, part: &Part) -> MrAnswer {
        let Some((range, atomic)) = self.open.get(part.slot as usize).copied().flatten() else {
            return MrAnswer::default();
        };
        let (end, whole) = (part.offset + part.length, u64::from(range.length));
        MrAnswer {
            hit: part.atomic == atomic && if part.last { end == whole } else { end < whole },
            iova: range.iova.wrapping_add(part.offset),
            ..MrAnswer::default()
        }
    }
}

/// A packet of the receiver half whose payload, and what was before it, is on the bus.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadNews {
    pub qpn: u16,
    /// Of its send queue: what comes from an earlier queue pair of that number is nothing.
    pub life: u32,
    pub slot: u32,
    pub psn: u32,
    /// Every PSN before it has arrived.
    pub aack: u32,
    /// It asks for this.
    pub request: Option<Request>,
    /// It ends an answer.
    pub ends: bool,
}

impl StandIn {
    /// Whether the book has to hear of a packet. What it hears of one it hears of all later ones.
    pub(super) fn concerns_reads(&mut self, news: &ReadNews) -> bool {
        let book = &mut self.tables.qps[usize::from(news.qpn)].reads;
        book.used |= news.request.is_some() || news.ends;
        book.used
    }

    /// Writes a packet down, and goes on with what has nothing missing before it any more.
    pub(super) fn read_news(&mut self, news: &ReadNews) {
        let qp = &mut self.tables.qps[usize::from(news.qpn)];
        let book = &mut qp.reads;
        if news.life != qp.send.life() {
            return;
        }
        let slot = news.slot as usize % SLOTS;
        if let Some(request) = news.request {
            book.requests[slot] = Some((news.psn, request));
        }
        if news.ends {
            book.ends[slot] = Some(news.psn);
        }
        let passed = |at: u32| at != news.aack && psn::distance(at, news.aack) < psn::HALF;
        let mut answers = vec![];
        while book.requests[book.next].is_some_and(|(at, _)| passed(at)) {
            let Some((_, request)) = take(&mut book.requests[book.next]) else {
                break;
            };
            answers.push(Answer {
                slot: book.next as u32,
                range: request.range,
                stage: request.atomic.map_or(Stage::Read, Stage::Atomic),
            });
            book.next = (book.next + 1) % SLOTS;
        }
        let mut done = 0;
        while book.ends[book.oldest].is_some_and(passed) {
            (book.ends[book.oldest], book.open[book.oldest]) = (None, None);
            book.oldest = (book.oldest + 1) % SLOTS;
            done += 1;
        }
        for answer in answers {
            self.answer(news.qpn, answer);
        }
        for _ in 0..done {
            self.read_done(news.qpn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_stays_inside_its_read_and_ends_with_it() {
        let mut book = ReadBook::default();
        let (iova, length) = (0x1000, 5000);
        book.open(3, Range { iova, length }, false);
        book.open(4, Range { iova, length: 0 }, false);
        book.open(6, Range { iova, length: 8 }, false);
        book.open(7, Range { iova, length: 8 }, true);
        for (what, slot, offset, bytes, last, hit) in [
            ("the first packet", 3, 0, 1024, false, true),
            ("the last packet", 3, 4096, 904, true, true),
            ("a byte too many", 3, 4096, 905, true, false),
            ("behind the end", 3, 5000, 1, false, false),
            ("the last packet too early", 3, 3072, 1024, true, false),
            ("nothing, of no bytes", 4, 0, 0, true, true),
            ("something, of no bytes", 4, 0, 1, true, false),
            ("a slot that is not open", 5, 0, 1, true, false),
            ("a slot that there is not", 16 + 3, 0, 1024, false, false),
        ] {
            let part = Part {
                slot,
                offset,
                length: bytes,
                last,
                atomic: false,
            };
            let answer = book.find(&part);
            assert_eq!(answer.hit, hit, "{what}");
            assert!(!hit || answer.iova == iova + offset, "{what}");
        }
        let whole = |slot: u32, atomic: bool| Part {
            slot,
            offset: 0,
            length: 8,
            last: true,
            atomic,
        };
        for (slot, atomic) in [(6, false), (7, true)] {
            assert!(book.find(&whole(slot, atomic)).hit);
            assert!(!book.find(&whole(slot, !atomic)).hit, "the other's answer");
        }
        book.restart_requester();
        assert!(!book.find(&whole(7, true)).hit);
    }

    #[test]
    fn an_atomic_adds_without_carry_and_swaps_what_is_equal() {
        let add = Atomic {
            swap_add: 3,
            ..Atomic::default()
        };
        assert_eq!(add.apply(u64::MAX), Some(2));
        let swap = Atomic {
            swap: true,
            swap_add: 9,
            compare: 1 << 63,
        };
        assert_eq!((swap.apply(1 << 63), swap.apply(0)), (Some(9), None));
    }
}
