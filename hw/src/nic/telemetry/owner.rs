//! The owner of all telemetry on the configuration bus.

use super::{ReceiverStats, ReceiverTally, SenderStats, SenderTally, VpTrace};
use crate::leaf::Pack;
use crate::nic::types::{CfgReq, ReceiverNote, SenderNote};
use crate::prelude::*;
use mprdma_spec::command::Opcode;

block! {
    /// Telemetry of 2^`QPW` QPs.
    ///
    /// - In: the engines' notes, spaced as [`SenderStats`], [`ReceiverStats`] and [`VpTrace`] say; the configuration bus.
    /// - Out: `cfg_done`; `cfg_result`, the result of QUERY_QP_STATS or READ_TRACE from then until the next of them;
    ///   `busy`.
    /// - CREATE_QP clears a QP's records. A note is in its record 4 cycles later.
    pub struct Telemetry[const QPW: usize][QPW] {
        in {
            clock: Clock,
            reset: Bit,
            sender: SenderNote,
            sender_valid: Bit,
            receiver: ReceiverNote,
            receiver_valid: Bit,
            cfg: CfgReq,
            cfg_valid: Bit,
        }
        out {
            cfg_done: Bit,
            cfg_result: Bits<1024>,
            busy: Bit,
        }
        local {
            creates: Bit,
            queries: Bit,
            traces: Bit,
            reads: Bit,
            both: Bit,
        }
        reg {
            asked: Bit,
            on_stats: Bit,
            on_restart: Bit,
            on_fetch: Bit,
            clear: Bit,
            sender_done: Bit,
            receiver_done: Bit,
            finished: Bit,
            shows_trace: Bit,
        }
        konst {
            op_create: Bits<4> = bits(Opcode::CreateQp as u64),
            op_query: Bits<4> = bits(Opcode::QueryQpStats as u64),
            op_trace: Bits<4> = bits(Opcode::TraceQp as u64),
            op_read: Bits<4> = bits(Opcode::ReadTrace as u64),
        }
        sub {
            sender_stats: SenderStats<QPW> = SenderStats::default(),
            receiver_stats: ReceiverStats<QPW> = ReceiverStats::default(),
            trace: VpTrace = VpTrace::default(),
            sender_half: Pack<SenderTally, 1024> = Pack::default(),
            receiver_half: Pack<ReceiverTally, 1024> = Pack::default(),
        }
    }
}

impl<const QPW: usize> Logic for Telemetry<QPW> {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(
            self,
            clock,
            asked,
            on_stats,
            on_restart,
            on_fetch,
            clear,
            sender_done,
            receiver_done,
            finished,
            shows_trace
        );
        clock!(self, clock, sender_stats, receiver_stats, trace);
        self.sender_stats.reset.next = self.reset.val();
        self.receiver_stats.reset.next = self.reset.val();
        self.trace.reset.next = self.reset.val();
        self.sender_stats.note.next = self.sender.val();
        self.sender_stats.note_valid.next = self.sender_valid.val();
        self.receiver_stats.note.next = self.receiver.val();
        self.receiver_stats.note_valid.next = self.receiver_valid.val();
        self.trace.note.next = self.sender.val();
        self.trace.note_valid.next = self.sender_valid.val();

        comment!("whose command");
        self.creates.next = self.cfg.val().op == self.op_create.val();
        self.queries.next = self.cfg.val().op == self.op_query.val();
        self.traces.next = self.cfg.val().op == self.op_trace.val();
        self.reads.next = self.cfg.val().op == self.op_read.val();
        self.finished.d.next = false;
        if !self.cfg_valid.val() {
            self.asked.d.next = false;
        } else if !self.asked.q.val() {
            self.asked.d.next = true;
            self.on_stats.d.next = self.creates.val() | self.queries.val();
            self.on_restart.d.next = self.traces.val();
            self.on_fetch.d.next = self.reads.val();
            self.clear.d.next = self.creates.val();
            self.sender_done.d.next = false;
            self.receiver_done.d.next = false;
            if self.queries.val() {
                self.shows_trace.d.next = false;
            }
            if self.reads.val() {
                self.shows_trace.d.next = true;
            }
            self.finished.d.next =
                !self.creates.val() & !self.queries.val() & !self.traces.val() & !self.reads.val();
        }

        comment!("the records of a QP");
        self.sender_stats.ask.next = self.on_stats.q.val();
        self.sender_stats.clear.next = self.clear.q.val();
        self.sender_stats.entry.next = self.cfg.val().index.get_bits::<16>(0);
        self.receiver_stats.ask.next = self.on_stats.q.val();
        self.receiver_stats.clear.next = self.clear.q.val();
        self.receiver_stats.entry.next = self.cfg.val().index.get_bits::<16>(0);
        if self.sender_stats.done.val() {
            self.sender_done.d.next = true;
        }
        if self.receiver_stats.done.val() {
            self.receiver_done.d.next = true;
        }
        self.both.next =
            self.on_stats.q.val() & self.sender_done.q.val() & self.receiver_done.q.val();

        comment!("the trace");
        self.trace.restart.next = self.on_restart.q.val();
        self.trace.fetch.next = self.on_fetch.q.val();
        self.trace.qpn.next = self.cfg.val().index.get_bits::<16>(0);
        self.trace.image.next = self.cfg.val().image;

        if self.both.val() | self.trace.done.val() {
            self.on_stats.d.next = false;
            self.on_restart.d.next = false;
            self.on_fetch.d.next = false;
            self.finished.d.next = true;
        }
        self.cfg_done.next = self.finished.q.val();
        self.sender_half.record.next = self.sender_stats.tally.val();
        self.receiver_half.record.next = self.receiver_stats.tally.val();
        self.cfg_result.next = self.sender_half.image.val() | self.receiver_half.image.val();
        if self.shows_trace.q.val() {
            self.cfg_result.next = self.trace.result.val();
        }
        self.busy.next =
            self.sender_stats.busy.val() | self.receiver_stats.busy.val() | self.trace.busy.val();
    }
}
