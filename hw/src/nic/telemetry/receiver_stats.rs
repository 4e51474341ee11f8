//! Counts of the receiver half of every queue pair.

use crate::leaf::{Ram, RamStyle};
use crate::nic::types::ReceiverNote;
use crate::prelude::*;
use crate::record;
use mprdma_spec::command::qp_stats;

record! {
    /// What the receiver half of one QP has done since CREATE_QP.
    pub struct ReceiverTally {
        pub accepted: Bits<32> = qp_stats::ACCEPTED,
        pub duplicates: Bits<32> = qp_stats::DUPLICATES,
        pub out_of_window: Bits<32> = qp_stats::OUT_OF_WINDOW,
        pub sync_naks: Bits<32> = qp_stats::SYNC_NAKS_SENT,
        pub rnr_naks: Bits<32> = qp_stats::RNR_NAKS_SENT,
        pub ce_marks: Bits<32> = qp_stats::CE_MARKS,
        pub distance_0: Bits<32> = qp_stats::DISTANCE_0,
        pub distance_1: Bits<32> = qp_stats::DISTANCE_1,
        pub distance_2: Bits<32> = qp_stats::DISTANCE_2,
        pub distance_4: Bits<32> = qp_stats::DISTANCE_4,
        pub distance_8: Bits<32> = qp_stats::DISTANCE_8,
        pub distance_16: Bits<32> = qp_stats::DISTANCE_16,
        pub distance_32: Bits<32> = qp_stats::DISTANCE_32,
        pub distance_64: Bits<32> = qp_stats::DISTANCE_64,
    }
}

block! {
    /// A record per QP in a RAM, changed by read-modify-write.
    ///
    /// - In: `note`, one per cycle, two of one QP at least 4 cycles apart; `ask` with `clear` and `entry`, held until
    ///   `done`: makes the record zero, or reads it.
    /// - Out: `done`, a pulse; `tally`, valid from then until the next `ask`; `busy`.
    /// - Pipeline: S0 a note, or the question in a cycle without one; S1 read, choose the bucket; S2 add; S3 write. A
    ///   note in the pipe behind a clear of its QP starts from zero. Frames of two beats or more leave the question a
    ///   cycle.
    pub struct ReceiverStats[const QPW: usize][QPW] {
        in {
            clock: Clock,
            reset: Bit,
            note: ReceiverNote,
            note_valid: Bit,
            ask: Bit,
            clear: Bit,
            entry: Bits<16>,
        }
        out {
            done: Bit,
            tally: ReceiverTally,
            busy: Bit,
        }
        local {
            take: Bit,
            wiped: Bit,
            bucket: Bits<8>,
            present: ReceiverTally,
            changed: ReceiverTally,
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
            note_1: ReceiverNote,
            note_2: ReceiverNote,
            bucket_2: Bits<8>,
            entry_3: Bits<QPW>,
            entry_4: Bits<QPW>,
            changed_3: ReceiverTally,
            shown: ReceiverTally,
        }
        konst {
            nothing: ReceiverTally = ReceiverTally::default(),
        }
        sub {
            tallies: Ram<ReceiverTally, QPW> = Ram::new(RamStyle::Block, false),
        }
    }
}

impl<const QPW: usize> Logic for ReceiverStats<QPW> {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(
            self, clock, served, valid_1, valid_2, valid_3, answered, wiped_3, wiped_4, asked_1,
            asked_2, writes_3, note_1, note_2, bucket_2, entry_3, entry_4, changed_3, shown
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

        comment!("S1: read; the bucket is the highest bit of the distance");
        self.tallies.read.next = true;
        self.tallies.read_addr.next = self.note_1.q.val().qpn.get_bits::<QPW>(0);
        self.bucket.next = bits::<8>(0);
        if self.note_1.q.val().accepted {
            self.bucket.next = bits::<8>(1);
            if self.note_1.q.val().distance.any() {
                self.bucket.next = bits::<8>(2);
            }
            if self.note_1.q.val().distance.get_bits::<7>(1).any() {
                self.bucket.next = bits::<8>(4);
            }
            if self.note_1.q.val().distance.get_bits::<6>(2).any() {
                self.bucket.next = bits::<8>(8);
            }
            if self.note_1.q.val().distance.get_bits::<5>(3).any() {
                self.bucket.next = bits::<8>(16);
            }
            if self.note_1.q.val().distance.get_bits::<4>(4).any() {
                self.bucket.next = bits::<8>(32);
            }
            if self.note_1.q.val().distance.get_bits::<3>(5).any() {
                self.bucket.next = bits::<8>(64);
            }
            if self.note_1.q.val().distance.get_bits::<2>(6).any() {
                self.bucket.next = bits::<8>(128);
            }
        }
        self.bucket_2.d.next = self.bucket.val();
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
        self.changed.next.accepted =
            self.present.val().accepted + bit_cast::<32, 1>(self.note_2.q.val().accepted.into());
        self.changed.next.duplicates =
            self.present.val().duplicates + bit_cast::<32, 1>(self.note_2.q.val().duplicate.into());
        self.changed.next.out_of_window = self.present.val().out_of_window
            + bit_cast::<32, 1>(self.note_2.q.val().out_of_window.into());
        self.changed.next.sync_naks =
            self.present.val().sync_naks + bit_cast::<32, 1>(self.note_2.q.val().sync_nak.into());
        self.changed.next.rnr_naks =
            self.present.val().rnr_naks + bit_cast::<32, 1>(self.note_2.q.val().rnr_nak.into());
        self.changed.next.ce_marks =
            self.present.val().ce_marks + bit_cast::<32, 1>(self.note_2.q.val().marked.into());
        self.changed.next.distance_0 = self.present.val().distance_0
            + bit_cast::<32, 1>(self.bucket_2.q.val().get_bits::<1>(0));
        self.changed.next.distance_1 = self.present.val().distance_1
            + bit_cast::<32, 1>(self.bucket_2.q.val().get_bits::<1>(1));
        self.changed.next.distance_2 = self.present.val().distance_2
            + bit_cast::<32, 1>(self.bucket_2.q.val().get_bits::<1>(2));
        self.changed.next.distance_4 = self.present.val().distance_4
            + bit_cast::<32, 1>(self.bucket_2.q.val().get_bits::<1>(3));
        self.changed.next.distance_8 = self.present.val().distance_8
            + bit_cast::<32, 1>(self.bucket_2.q.val().get_bits::<1>(4));
        self.changed.next.distance_16 = self.present.val().distance_16
            + bit_cast::<32, 1>(self.bucket_2.q.val().get_bits::<1>(5));
        self.changed.next.distance_32 = self.present.val().distance_32
            + bit_cast::<32, 1>(self.bucket_2.q.val().get_bits::<1>(6));
        self.changed.next.distance_64 = self.present.val().distance_64
            + bit_cast::<32, 1>(self.bucket_2.q.val().get_bits::<1>(7));
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
