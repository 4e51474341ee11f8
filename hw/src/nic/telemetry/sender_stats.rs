//! Counts of the sender half of every queue pair.

use crate::leaf::{Ram, RamStyle};
use crate::nic::types::SenderNote;
use crate::prelude::*;
use crate::record;
use mprdma_spec::command::qp_stats;
use mprdma_spec::status::SendCause;

record! {
    /// What the sender half of one QP has done since CREATE_QP.
    pub struct SenderTally {
        pub sent: Bits<32> = qp_stats::SENT,
        pub retx_hole: Bits<32> = qp_stats::RETX_HOLE,
        pub retx_recovery: Bits<32> = qp_stats::RETX_RECOVERY,
        pub retx_timeout: Bits<32> = qp_stats::RETX_TIMEOUT,
        pub path_switches: Bits<32> = qp_stats::PATH_SWITCHES,
        pub prunes: Bits<32> = qp_stats::PRUNES,
        pub probes: Bits<32> = qp_stats::PROBES,
        pub ecn_echoes: Bits<32> = qp_stats::ECN_ECHOES,
        pub window_naks: Bits<32> = qp_stats::WINDOW_NAKS,
        pub sync_naks: Bits<32> = qp_stats::SYNC_NAKS,
        pub ghosts: Bits<32> = qp_stats::GHOSTS,
        pub timeouts: Bits<32> = qp_stats::TIMEOUTS,
        pub recoveries: Bits<32> = qp_stats::RECOVERIES,
        pub last_vp: Bits<16> = qp_stats::LAST_VP,
        pub started: bool = qp_stats::STARTED,
    }
}

block! {
    /// A record per QP in a RAM, changed by read-modify-write.
    ///
    /// - In: `note`, any two at least 2 cycles apart, two of one QP at least 4 cycles apart; `ask` with `clear` and
    ///   `entry`, held until `done`: makes the record zero, or reads it.
    /// - Out: `done`, a pulse; `tally`, valid from then until the next `ask`; `busy`.
    /// - Pipeline: S0 a note, or the question in a cycle without one; S1 read; S2 add; S3 write. A note in the pipe
    ///   behind a clear of its QP starts from zero. A question waits at most until a cycle without a note.
    pub struct SenderStats[const QPW: usize][QPW] {
        in {
            clock: Clock,
            reset: Bit,
            note: SenderNote,
            note_valid: Bit,
            ask: Bit,
            clear: Bit,
            entry: Bits<16>,
        }
        out {
            done: Bit,
            tally: SenderTally,
            busy: Bit,
        }
        local {
            take: Bit,
            wiped: Bit,
            present: SenderTally,
            changed: SenderTally,
            sent: Bits<32>,
            again: Bits<32>,
            second_again: bool,
            switch_0: Bit,
            switch_1: Bit,
        }
        reg {
            served: Bit,
            valid_1: Bit,
            valid_2: Bit,
            valid_3: Bit,
            answered: Bit,
            wiped_3: Bit,
            wiped_4: Bit,
        }
        pipe {
            asked_1: Bit,
            asked_2: Bit,
            writes_3: Bit,
            note_1: SenderNote,
            note_2: SenderNote,
            entry_3: Bits<QPW>,
            entry_4: Bits<QPW>,
            changed_3: SenderTally,
            shown: SenderTally,
        }
        konst {
            hole: Bits<2> = bits(SendCause::Hole as u64),
            recovery: Bits<2> = bits(SendCause::Recovery as u64),
            timeout: Bits<2> = bits(SendCause::Timeout as u64),
            nothing: SenderTally = SenderTally::default(),
        }
        sub {
            tallies: Ram<SenderTally, QPW> = Ram::new(RamStyle::Block, false),
        }
    }
}

impl<const QPW: usize> Logic for SenderStats<QPW> {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(
            self, clock, served, valid_1, valid_2, valid_3, answered, wiped_3, wiped_4, asked_1,
            asked_2, writes_3, note_1, note_2, entry_3, entry_4, changed_3, shown
        );
        clock!(self, clock, tallies);

        comment!("S0: a note, or the question");
        self.take.next = self.ask.val() & !self.served.q.val() & !self.note_valid.val();
        if !self.ask.val() {
            self.served.d.next = false;
        } else if self.take.val() {
            self.served.d.next = true;
        }
        self.valid_1.d.next = self.note_valid.val() | self.take.val();
        self.asked_1.d.next = self.take.val();
        self.note_1.d.next = self.note.val();
        if self.take.val() {
            self.note_1.d.next.qpn = self.entry.val();
        }

        comment!("S1: read");
        self.tallies.read.next = true;
        self.tallies.read_addr.next = self.note_1.q.val().qpn.get_bits::<QPW>(0);
        self.valid_2.d.next = self.valid_1.q.val();
        self.asked_2.d.next = self.asked_1.q.val();
        self.note_2.d.next = self.note_1.q.val();

        comment!("S2: add; a clear that is not yet in the RAM counts");
        self.wiped.next = (self.wiped_3.q.val()
            & (self.entry_3.q.val() == self.note_2.q.val().qpn.get_bits::<QPW>(0)))
            | (self.wiped_4.q.val()
                & (self.entry_4.q.val() == self.note_2.q.val().qpn.get_bits::<QPW>(0)));
        self.present.next = self.tallies.read_data.val();
        if self.wiped.val() {
            self.present.next = self.nothing.val();
        }
        self.sent.next = bit_cast::<32, 1>(self.note_2.q.val().sent_0.into())
            + bit_cast::<32, 1>(self.note_2.q.val().sent_1.into());
        self.second_again.next = self.note_2.q.val().sent_1 & !self.note_2.q.val().new_1;
        self.again.next = bit_cast::<32, 1>(self.note_2.q.val().sent_0.into())
            + bit_cast::<32, 1>(self.second_again.val().into());
        self.switch_0.next = self.note_2.q.val().sent_0
            & self.present.val().started
            & (self.note_2.q.val().vp_0 != self.present.val().last_vp);
        self.switch_1.next = self.note_2.q.val().sent_1
            & ((self.note_2.q.val().sent_0
                & (self.note_2.q.val().vp_1 != self.note_2.q.val().vp_0))
                | (!self.note_2.q.val().sent_0
                    & self.present.val().started
                    & (self.note_2.q.val().vp_1 != self.present.val().last_vp)));
        self.changed.next = self.present.val();
        self.changed.next.sent = self.present.val().sent + self.sent.val();
        if self.note_2.q.val().cause == self.hole.val() {
            self.changed.next.retx_hole = self.present.val().retx_hole + self.again.val();
        }
        if self.note_2.q.val().cause == self.recovery.val() {
            self.changed.next.retx_recovery = self.present.val().retx_recovery + self.again.val();
        }
        if self.note_2.q.val().cause == self.timeout.val() {
            self.changed.next.retx_timeout = self.present.val().retx_timeout + self.again.val();
        }
        self.changed.next.path_switches = self.present.val().path_switches
            + bit_cast::<32, 1>(self.switch_0.val().into())
            + bit_cast::<32, 1>(self.switch_1.val().into());
        self.changed.next.prunes =
            self.present.val().prunes + bit_cast::<32, 1>(self.note_2.q.val().prune.into());
        self.changed.next.probes =
            self.present.val().probes + bit_cast::<32, 2>(self.note_2.q.val().probes);
        self.changed.next.ecn_echoes =
            self.present.val().ecn_echoes + bit_cast::<32, 1>(self.note_2.q.val().ecn_echo.into());
        self.changed.next.window_naks = self.present.val().window_naks
            + bit_cast::<32, 1>(self.note_2.q.val().window_nak.into());
        self.changed.next.sync_naks =
            self.present.val().sync_naks + bit_cast::<32, 1>(self.note_2.q.val().sync_nak.into());
        self.changed.next.ghosts =
            self.present.val().ghosts + bit_cast::<32, 1>(self.note_2.q.val().ghost.into());
        self.changed.next.timeouts =
            self.present.val().timeouts + bit_cast::<32, 1>(self.note_2.q.val().timeout.into());
        self.changed.next.recoveries =
            self.present.val().recoveries + bit_cast::<32, 1>(self.note_2.q.val().recovery.into());
        if self.note_2.q.val().sent_0 {
            self.changed.next.last_vp = self.note_2.q.val().vp_0;
            self.changed.next.started = true;
        }
        if self.note_2.q.val().sent_1 {
            self.changed.next.last_vp = self.note_2.q.val().vp_1;
            self.changed.next.started = true;
        }
        if self.asked_2.q.val() {
            self.changed.next = self.nothing.val();
        }
        self.changed_3.d.next = self.changed.val();
        self.entry_3.d.next = self.note_2.q.val().qpn.get_bits::<QPW>(0);
        self.valid_3.d.next = self.valid_2.q.val();
        self.writes_3.d.next = !self.asked_2.q.val() | self.clear.val();
        self.wiped_3.d.next = self.valid_2.q.val() & self.asked_2.q.val() & self.clear.val();
        self.answered.d.next = self.valid_2.q.val() & self.asked_2.q.val();
        if self.valid_2.q.val() & self.asked_2.q.val() {
            self.shown.d.next = self.present.val();
        }

        comment!("S3: write");
        self.tallies.write.next = self.valid_3.q.val() & self.writes_3.q.val();
        self.tallies.write_addr.next = self.entry_3.q.val();
        self.tallies.write_data.next = self.changed_3.q.val();
        self.wiped_4.d.next = self.wiped_3.q.val();
        self.entry_4.d.next = self.entry_3.q.val();

        self.done.next = self.answered.q.val();
        self.tally.next = self.shown.q.val();
        self.busy.next = self.valid_1.q.val() | self.valid_2.q.val() | self.valid_3.q.val();
    }
}
