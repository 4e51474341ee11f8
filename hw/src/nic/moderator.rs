//! Interrupt moderation: keeps the interrupts of a vector apart.

use crate::prelude::*;
use mprdma_spec::config::{CYCLES_PER_TICK, MSIX_VECTORS};

block! {
    /// Lets an interrupt of a vector out no sooner than `interval` after the one before.
    ///
    /// - In: `irq`, vectors whose writes are on the bus already ([`DmaWrite`](crate::dma::DmaWrite) sees to it, so an
    ///   interrupt that waits here cannot overtake them); `interval` of each vector in ticks of 64 ns.
    /// - Out: `m_irq`; pulses `cnt_raised` (one left) and `cnt_held` (one came that had to wait for the interval's end);
    ///   `busy` while one waits.
    /// - The interval begins when an interrupt is taken on `m_irq`. Those that come inside it make one together, at its
    ///   end. With an interval of 0 every interrupt that comes leaves. An interval set to 0 ends at once; another value
    ///   counts from the vector's next interrupt on.
    /// - Latency: 3 to 10 cycles, as the vectors are looked at in turn, one per cycle. An interrupt is taken every second
    ///   cycle; one that may not be merged with the one before waits for it to leave, with all behind it.
    pub struct Moderator {
        in {
            clock: Clock,
            reset: Bit,
            irq: Bits<8>,
            irq_valid: Bit,
            m_irq_ready: Bit,
        }
        port {
            interval: [Signal<In, Bits<16>>; 8],
        }
        out {
            irq_ready: Bit,
            m_irq_vector: Bits<8>,
            m_irq_valid: Bit,
            cnt_raised: Bit,
            cnt_held: Bit,
            busy: Bit,
        }
        local {
            // Of the vector of the interrupt that came.
            waits: Bit,
            early: Bit,
            moderated: Bit,
            comes: Bit,
            // Of the vector that is looked at.
            due: Bit,
            picks: Bit,
            leaves: Bit,
            gap: Bits<16>,
            any: Bit,
        }
        reg {
            came: Bit,
            turn: Bits<3>,
            leaving: Bit,
            raised: Bit,
            held: Bit,
        }
        pipe {
            vector: Bits<3>,
            chosen: Bits<3>,
        }
        sub {
            pending: [Reg<Bit>; 8] = std::array::from_fn(|_| Reg::default()),
            // Cycles until the vector may interrupt again.
            left: [Reg<Bits<20>>; 8] = std::array::from_fn(|_| Reg::default()),
        }
    }
}

impl Logic for Moderator {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, came, turn, leaving, raised, held, vector, chosen);
        comment!("one interrupt comes in; it becomes a mark of its vector");
        self.irq_ready.next = !self.came.q.val();
        if self.irq_valid.val() & !self.came.q.val() {
            self.came.d.next = true;
            self.vector.d.next = self.irq.val().get_bits::<3>(0);
        }
        self.waits.next = false;
        self.early.next = false;
        self.moderated.next = false;
        for i in 0..8 {
            if self.vector.q.val() == i.to_bits::<3>() {
                self.waits.next = self.pending[i].q.val();
                self.early.next = self.left[i].q.val().any();
                self.moderated.next = self.interval[i].val().any();
            }
        }
        self.comes.next = self.came.q.val() & (!self.waits.val() | self.moderated.val());
        if self.comes.val() {
            self.came.d.next = false;
        }
        self.held.d.next = self.comes.val() & (self.waits.val() | self.early.val());

        comment!("the vectors in turn: one that is marked and may interrupt goes out");
        self.turn.d.next = self.turn.q.val() + 1;
        self.due.next = false;
        for i in 0..8 {
            if self.turn.q.val() == i.to_bits::<3>() {
                self.due.next = self.pending[i].q.val() & !self.left[i].q.val().any();
            }
        }
        self.picks.next = self.due.val() & !self.leaving.q.val();
        if self.picks.val() {
            self.leaving.d.next = true;
            self.chosen.d.next = self.turn.q.val();
        }
        self.leaves.next = self.leaving.q.val() & self.m_irq_ready.val();
        if self.leaves.val() {
            self.leaving.d.next = false;
        }
        self.raised.d.next = self.leaves.val();
        self.gap.next = bits::<16>(0);
        for i in 0..8 {
            if self.chosen.q.val() == i.to_bits::<3>() {
                self.gap.next = self.interval[i].val();
            }
        }
        self.m_irq_vector.next = bit_cast::<8, 3>(self.chosen.q.val());
        self.m_irq_valid.next = self.leaving.q.val();

        comment!("marks and timers; a mark that is set while another goes out stays");
        self.any.next = false;
        for i in 0..8 {
            self.pending[i].clock.next = self.clock.val();
            self.pending[i].reset.next = self.reset.val();
            self.pending[i].d.next = self.pending[i].q.val();
            if self.picks.val() & (self.turn.q.val() == i.to_bits::<3>()) {
                self.pending[i].d.next = false;
            }
            if self.comes.val() & (self.vector.q.val() == i.to_bits::<3>()) {
                self.pending[i].d.next = true;
            }
            self.left[i].clock.next = self.clock.val();
            self.left[i].reset.next = self.reset.val();
            self.left[i].d.next = self.left[i].q.val();
            if self.left[i].q.val().any() {
                self.left[i].d.next = self.left[i].q.val() - 1;
            }
            if self.leaves.val() & (self.chosen.q.val() == i.to_bits::<3>()) {
                self.left[i].d.next = bit_cast::<20, 16>(self.gap.val()) << 4;
            }
            if !self.interval[i].val().any() {
                self.left[i].d.next = bits::<20>(0);
            }
            self.any.next = self.any.val() | self.pending[i].q.val();
        }
        self.cnt_raised.next = self.raised.q.val();
        self.cnt_held.next = self.held.q.val();
        self.busy.next = self.any.val() | self.came.q.val() | self.leaving.q.val();
    }
}

const _: () = assert!(
    MSIX_VECTORS == 8 && CYCLES_PER_TICK == 16,
    "three bits name a vector, four turn ticks into cycles"
);
