//! The book of READs: those that this side has open, and those that the peer asked for and that wait for what is before
//! them (protocol section 7).

use super::fetch::Answer;
use super::StandIn;
use mprdma_model::psn;
use mprdma_model::receiver::MrAnswer;
use mprdma_spec::config::READ_SLOTS_LOG2;
use std::mem::take;

/// READs of a queue pair that may be open, in each direction.
pub(super) const SLOTS: usize = 1 << READ_SLOTS_LOG2;

/// Bytes that a READ brings or asks for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Range {
    pub iova: u64,
    pub length: u32,
}

/// READs of one queue pair, each in the slot that its request names. Slots are used in turn.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadBook {
    /// There has been a READ, so the receiver half has to tell how far it is.
    used: bool,
    /// READs of this side: where the answer goes.
    open: [Option<Range>; SLOTS],
    /// PSNs of answers' last packets that have arrived.
    ends: [Option<u32>; SLOTS],
    /// Slot of the oldest open one.
    oldest: usize,
    /// READs of the peer: what it asks for, and the PSN of the request.
    requests: [Option<(u32, Range)>; SLOTS],
    /// Slot of the next to be answered.
    next: usize,
}

impl ReadBook {
    /// A READ of this side is launched.
    pub(super) fn open(&mut self, slot: u32, range: Range) {
        self.used = true;
        self.open[slot as usize % SLOTS] = Some(range);
    }

    /// No READ of this side is open any more.
    pub(super) fn restart_requester(&mut self) {
        (self.open, self.ends, self.oldest) = Default::default();
    }

    /// No READ of the peer waits any more.
    pub(super) fn restart_responder(&mut self) {
        (self.requests, self.next) = Default::default();
    }

    /// Where a packet of an answer goes: packet `offset` of the READ in `slot`, with so many bytes, `last` if it says so.
    pub(super) fn find(&self, slot: u32, offset: u64, length: u64, last: bool) -> MrAnswer {
        let Some(range) = self.open.get(slot as usize).copied().flatten() else {
            return MrAnswer::default();
        };
        let (end, whole) = (offset + length, u64::from(range.length));
        MrAnswer {
            hit: end <= whole && (end == whole || !last),
            iova: range.iova.wrapping_add(offset),
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
    pub request: Option<Range>,
    /// It ends the answer to a READ.
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
        if let Some(range) = news.request {
            book.requests[slot] = Some((news.psn, range));
        }
        if news.ends {
            book.ends[slot] = Some(news.psn);
        }
        let passed = |at: u32| at != news.aack && psn::distance(at, news.aack) < psn::HALF;
        let mut answers = vec![];
        while book.requests[book.next].is_some_and(|(at, _)| passed(at)) {
            let Some((_, range)) = take(&mut book.requests[book.next]) else {
                break;
            };
            answers.push(Answer {
                qpn: news.qpn,
                life: news.life,
                slot: book.next as u32,
                range,
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
            self.answer_read(answer);
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
        book.open(3, Range { iova, length });
        book.open(4, Range { iova, length: 0 });
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
            let answer = book.find(slot, offset, bytes, last);
            assert_eq!(answer.hit, hit, "{what}");
            assert!(!hit || answer.iova == iova + offset, "{what}");
        }
        book.restart_requester();
        assert!(!book.find(3, 0, 1024, false).hit);
    }
}
