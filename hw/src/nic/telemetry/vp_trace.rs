//! Counts per virtual path of one queue pair.

use crate::leaf::{Pack, Ram, RamStyle, Unpack};
use crate::nic::types::SenderNote;
use crate::prelude::*;
use crate::record;
use mprdma_spec::command::{trace_records, trace_request};

/// What happened on one virtual path: one record of `trace_records`.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct VpTally {
    pub sent: Bits<32>,
    pub retransmitted: Bits<32>,
    pub acked: Bits<32>,
    pub ecn_marked: Bits<32>,
    pub pruned: Bits<32>,
}

record! {
    /// What TRACE_QP and READ_TRACE ask for, beside the QP.
    pub struct TraceFields {
        pub group: Bits<8> = trace_request::GROUP,
        pub vp_base: Bits<16> = trace_request::VP_BASE,
    }
}

record! {
    /// What is said beside the records.
    pub struct TraceHead {
        pub qpn: Bits<16> = trace_records::QPN,
        pub active: bool = trace_records::ACTIVE,
        pub vp_base: Bits<16> = trace_records::VP_BASE,
    }
}

#[derive(LogicState, Copy, Clone, Debug, PartialEq)]
enum Job {
    Idle,
    ReadAck,
    WriteAck,
    ReadFirst,
    WriteFirst,
    ReadSecond,
    WriteSecond,
}

block! {
    /// Counts on 64 virtual paths of one QP; the paths beyond are counted together in record 64.
    ///
    /// - In: `note`, two of one QP at least 8 cycles apart; `restart` with `qpn` and `image` (`trace_request`): clears all
    ///   records and traces that QP from then on; `fetch` with `image`: collects the four records of a group. Both are
    ///   held until `done`.
    /// - Out: `done`, a pulse; `result` (`trace_records`), valid from then until the next `fetch`; `busy`.
    /// - A note takes 6 cycles: read and write for its ACK's path, and for each of two packets. `restart` takes 130
    ///   cycles, `fetch` at most 16.
    pub struct VpTrace {
        in {
            clock: Clock,
            reset: Bit,
            note: SenderNote,
            note_valid: Bit,
            restart: Bit,
            fetch: Bit,
            qpn: Bits<16>,
            image: Bits<1024>,
        }
        out {
            done: Bit,
            result: Bits<1024>,
            busy: Bit,
        }
        local {
            path: Bits<16>,
            ahead: Bits<16>,
            place: Bits<7>,
            present: VpTally,
            changed: VpTally,
            word: Bits<160>,
            seen: Bit,
            collect: Bit,
            again: bool,
        }
        reg {
            job: Job = Job::Idle,
            active: Bit,
            served: Bit,
            clearing: Bit,
            at: Bits<7>,
            collecting: Bit,
            arrives: Bit,
            last: Bit,
            finished: Bit,
        }
        pipe {
            traced: Bits<16>,
            vp_base: Bits<16>,
            noted: SenderNote,
            records: Bits<640>,
        }
        konst {
            tracked: Bits<16> = bits(mprdma_spec::command::TRACED_VPS as u64),
            other: Bits<7> = bits(mprdma_spec::command::TRACED_VPS as u64),
            last_of_group: Bits<2> = bits(3),
            nothing: VpTally = VpTally::default(),
        }
        sub {
            fields: Unpack<TraceFields, 1024> = Unpack::default(),
            head: Pack<TraceHead, 1024> = Pack::default(),
            tallies: Ram<VpTally, 7> = Ram::new(RamStyle::Distributed, false),
        }
    }
}

impl Logic for VpTrace {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(
            self, clock, job, active, served, clearing, at, collecting, arrives, last, finished,
            traced, vp_base, noted, records
        );
        clock!(self, clock, tallies);
        self.fields.image.next = self.image.val();

        comment!("commands");
        self.finished.d.next = false;
        if !self.restart.val() & !self.fetch.val() {
            self.served.d.next = false;
        } else if !self.served.q.val() {
            self.served.d.next = true;
            if self.restart.val() {
                self.active.d.next = false;
                self.clearing.d.next = true;
                self.at.d.next = bits::<7>(0);
                self.traced.d.next = self.qpn.val();
                self.vp_base.d.next = self.fields.record.val().vp_base;
            } else {
                self.collecting.d.next = true;
                self.at.d.next =
                    bit_cast::<7, 5>(self.fields.record.val().group.get_bits::<5>(0)) << 2;
            }
        }

        comment!("a note of the traced QP: three paths, each read and written in turn");
        self.seen.next = self.note_valid.val()
            & self.active.q.val()
            & (self.note.val().qpn == self.traced.q.val());
        self.path.next = self.noted.q.val().ack_vp;
        match self.job.q.val() {
            Job::Idle => {
                if self.seen.val() {
                    self.noted.d.next = self.note.val();
                    self.job.d.next = Job::ReadAck;
                }
            }
            Job::ReadAck => {
                self.job.d.next = Job::WriteAck;
            }
            Job::WriteAck => {
                self.job.d.next = Job::ReadFirst;
            }
            Job::ReadFirst => {
                self.path.next = self.noted.q.val().vp_0;
                self.job.d.next = Job::WriteFirst;
            }
            Job::WriteFirst => {
                self.path.next = self.noted.q.val().vp_0;
                self.job.d.next = Job::ReadSecond;
            }
            Job::ReadSecond => {
                self.path.next = self.noted.q.val().vp_1;
                self.job.d.next = Job::WriteSecond;
            }
            Job::WriteSecond => {
                self.path.next = self.noted.q.val().vp_1;
                self.job.d.next = Job::Idle;
            }
            _ => {}
        }
        self.ahead.next = self.path.val() - self.vp_base.q.val();
        self.place.next = self.other.val();
        if self.ahead.val() < self.tracked.val() {
            self.place.next = bit_cast::<7, 6>(self.ahead.val().get_bits::<6>(0));
        }
        self.present.next = self.tallies.read_data.val();
        self.changed.next = self.present.val();
        self.tallies.write.next = false;
        self.tallies.write_addr.next = self.place.val();
        self.again.next = self.noted.q.val().cause.any();
        if self.job.q.val() == Job::WriteAck {
            self.tallies.write.next = self.noted.q.val().ack;
            self.changed.next.acked = self.present.val().acked + 1;
            self.changed.next.ecn_marked = self.present.val().ecn_marked
                + bit_cast::<32, 1>(self.noted.q.val().ecn_echo.into());
            self.changed.next.pruned =
                self.present.val().pruned + bit_cast::<32, 1>(self.noted.q.val().prune.into());
        } else {
            self.changed.next.sent = self.present.val().sent + 1;
            if self.job.q.val() == Job::WriteSecond {
                self.again.next = self.noted.q.val().cause.any() & !self.noted.q.val().new_1;
            }
            self.changed.next.retransmitted =
                self.present.val().retransmitted + bit_cast::<32, 1>(self.again.val().into());
            if self.job.q.val() == Job::WriteFirst {
                self.tallies.write.next = self.noted.q.val().sent_0;
            }
            if self.job.q.val() == Job::WriteSecond {
                self.tallies.write.next = self.noted.q.val().sent_1;
            }
        }
        self.tallies.write_data.next = self.changed.val();

        comment!("the read port is a question's while no job reads");
        self.tallies.read.next = true;
        self.tallies.read_addr.next = self.place.val();
        self.collect.next = self.collecting.q.val()
            & (self.job.q.val() != Job::ReadAck)
            & (self.job.q.val() != Job::ReadFirst)
            & (self.job.q.val() != Job::ReadSecond);
        self.arrives.d.next = self.collect.val();
        self.last.d.next = false;
        if self.collect.val() {
            self.tallies.read_addr.next = self.at.q.val();
            self.at.d.next = self.at.q.val() + 1;
            self.last.d.next = self.at.q.val().get_bits::<2>(0) == self.last_of_group.val();
            if self.at.q.val().get_bits::<2>(0) == self.last_of_group.val() {
                self.collecting.d.next = false;
            }
        }
        self.word.next = self.tallies.read_data.val().into();
        if self.arrives.q.val() {
            self.records.d.next =
                (self.records.q.val() >> 160) | (bit_cast::<640, 160>(self.word.val()) << 480);
            self.finished.d.next = self.last.q.val();
        }

        comment!("clear");
        if self.clearing.q.val() & (self.job.q.val() == Job::Idle) {
            self.tallies.write.next = true;
            self.tallies.write_addr.next = self.at.q.val();
            self.tallies.write_data.next = self.nothing.val();
            self.at.d.next = self.at.q.val() + 1;
            if self.at.q.val().all() {
                self.clearing.d.next = false;
                self.active.d.next = true;
                self.finished.d.next = true;
            }
        }

        self.head.record.next.qpn = self.traced.q.val();
        self.head.record.next.active = self.active.q.val();
        self.head.record.next.vp_base = self.vp_base.q.val();
        self.result.next = self.head.image.val() | bit_cast::<1024, 640>(self.records.q.val());
        self.done.next = self.finished.q.val();
        self.busy.next = (self.job.q.val() != Job::Idle)
            | self.clearing.q.val()
            | self.collecting.q.val()
            | self.arrives.q.val();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The records leave as they lie in the RAM: their fields must be where the layout has them.
    #[test]
    fn records_follow_the_specification() {
        let TypeKind::Composite(fields) = VpTally::descriptor().kind else {
            panic!("VpTally is a struct");
        };
        let mut lsb = 0;
        for vp in 0..mprdma_spec::command::TRACE_GROUP {
            for field in &fields {
                let name = format!("VP{vp}_{}", field.fieldname.to_uppercase());
                let layout = trace_records::LAYOUT.field(&name).expect("a field");
                assert_eq!((layout.lsb, layout.bits), (lsb, 32), "{name}");
                lsb += 32;
            }
        }
        assert_eq!(lsb, 640);
    }
}
