//! The card's counters.

use crate::prelude::*;

/// Number of counters; `Events` names each.
pub const COUNTERS: usize = 37;

/// One bit per counter of `spec::counter::Counter`, in its order: what happened in this cycle. The bits of the two byte
/// counters are unused; those count by value.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct Events {
    pub tx_frames: bool,
    pub tx_bytes: bool,
    pub tx_data_packets: bool,
    pub tx_acks: bool,
    pub tx_retransmissions: bool,
    pub tx_probes: bool,
    pub rx_frames: bool,
    pub rx_bytes: bool,
    pub rx_data_packets: bool,
    pub rx_acks: bool,
    pub rx_out_of_order: bool,
    pub rx_duplicates: bool,
    pub rx_out_of_window: bool,
    pub rx_sync_naks: bool,
    pub rx_ce_marks: bool,
    pub rx_drop_icrc: bool,
    pub rx_drop_malformed: bool,
    pub rx_drop_not_ours: bool,
    pub rx_drop_no_qp: bool,
    pub rx_drop_full: bool,
    pub rx_access_errors: bool,
    pub rx_rnr_naks: bool,
    pub ecn_echoes: bool,
    pub prunes: bool,
    pub window_naks: bool,
    pub sync_naks: bool,
    pub ghost_acks: bool,
    pub bad_acks: bool,
    pub timeouts: bool,
    pub recoveries: bool,
    pub cqes_written: bool,
    pub cq_overflows: bool,
    pub dma_read_errors: bool,
    pub messages_completed: bool,
    pub interrupts_raised: bool,
    pub interrupts_held: bool,
    pub atomics_executed: bool,
}

block! {
    /// 64-bit counters: each counts the cycles in which its bit of `events` is high; the byte counters add
    /// `tx_bytes` and `rx_bytes` (0 to 64 bytes) every cycle.
    ///
    /// `value` shows counter `index` one cycle later. Counts are one cycle behind their events.
    pub struct Counters {
        in {
            clock: Clock,
            reset: Bit,
            events: Events,
            tx_bytes: Bits<7>,
            rx_bytes: Bits<7>,
            index: Bits<6>,
        }
        out {
            value: Bits<64>,
        }
        local {
            add: Bits<37>,
            picked: Bits<64>,
        }
        pipe {
            happened: Bits<37>,
            tx_add: Bits<7>,
            rx_add: Bits<7>,
            shown: Bits<64>,
        }
        sub {
            count: [Reg<Bits<64>>; 37] = std::array::from_fn(|_| Reg::default()),
        }
    }
}

impl Logic for Counters {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, happened, tx_add, rx_add, shown);
        self.add.next = self.events.val().into();
        self.happened.d.next = self.add.val();
        self.tx_add.d.next = self.tx_bytes.val();
        self.rx_add.d.next = self.rx_bytes.val();
        for i in 0..37 {
            self.count[i].clock.next = self.clock.val();
            self.count[i].reset.next = self.reset.val();
            self.count[i].d.next = self.count[i].q.val();
            if self.happened.q.val().get_bit(i) {
                self.count[i].d.next = self.count[i].q.val() + 1;
            }
        }
        comment!("TxBytes and RxBytes");
        self.count[1].d.next = self.count[1].q.val() + bit_cast::<64, 7>(self.tx_add.q.val());
        self.count[7].d.next = self.count[7].q.val() + bit_cast::<64, 7>(self.rx_add.q.val());
        self.picked.next = bits::<64>(0);
        for i in 0..37 {
            if self.index.val() == i.to_bits::<6>() {
                self.picked.next = self.count[i].q.val();
            }
        }
        self.shown.d.next = self.picked.val();
        self.value.next = self.shown.q.val();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mprdma_spec::counter::Counter;

    /// `TxDropIcrc` becomes `tx_drop_icrc`.
    fn snake(name: &str) -> String {
        let mut text = String::new();
        for (i, c) in name.chars().enumerate() {
            if c.is_uppercase() && i > 0 {
                text.push('_');
            }
            text.push(c.to_ascii_lowercase());
        }
        text
    }

    #[test]
    fn events_follow_the_specification() {
        let TypeKind::Composite(fields) = Events::descriptor().kind else {
            panic!("Events is a struct");
        };
        let names: Vec<_> = fields.iter().map(|f| f.fieldname.clone()).collect();
        let expected: Vec<_> = Counter::ALL
            .iter()
            .map(|c| snake(&format!("{c:?}")))
            .collect();
        assert_eq!(names, expected);
        assert_eq!(names.len(), COUNTERS);
        assert_eq!(Counter::TxBytes as usize, 1);
        assert_eq!(Counter::RxBytes as usize, 7);
    }
}
