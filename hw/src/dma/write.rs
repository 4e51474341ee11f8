//! DMA writes: align to addresses, split, keep order with interrupts.

use super::lane_mask::LaneMask;
use crate::leaf::{Arbiter2, Arbiter4, Beat, Realign, Skid, SyncFifo};
use crate::nic::types::DmaWriteReq;
use crate::prelude::*;

/// A client's message on its way to the aligner.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
struct Message {
    iova: Bits<64>,
    skip: Bits<7>,
    /// Bytes of the stream up to the last one to write.
    upto: Bits<13>,
    client: Bits<2>,
}

/// Where an aligned message goes.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
struct Target {
    /// Address bits 63:6.
    chunk: Bits<58>,
    client: Bits<2>,
}

/// One 64-byte chunk on its way out.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
struct WriteChunk {
    data: Bits<512>,
    chunk: Bits<58>,
    enables: Bits<64>,
    sop: bool,
    eop: bool,
    last: bool,
    client: Bits<2>,
}

/// An interrupt that waits for the writes before it.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
struct Ticket {
    vector: Bits<8>,
    /// The client's messages accepted before the interrupt, modulo 256.
    after: Bits<8>,
}

mod gate {
    use super::*;

    block! {
        /// Holds interrupts until the client's earlier messages have left.
        ///
        /// `message` counts the client's messages accepted, `written` those that left. `irq` in, `out` out, a few
        /// cycles of latency.
        pub(super) struct IrqGate {
            in {
                clock: Clock,
                reset: Bit,
                message: bool,
                written: bool,
                irq: Bits<8>,
                irq_valid: bool,
                out_ready: bool,
            }
            out {
                irq_ready: bool,
                out: Bits<8>,
                out_valid: bool,
                busy: bool,
            }
            local {
                missing: Bits<8>,
                passes: bool,
            }
            reg {
                accepted: Bits<8>,
                left: Bits<8>,
            }
            sub {
                tickets: SyncFifo<Ticket, 4>,
            }
        }
    }

    impl Logic for IrqGate {
        #[hdl_gen]
        fn update(&mut self) {
            dff_setup!(self, clock, accepted, left);
            clock!(self, clock, tickets);
            self.tickets.reset.next = self.reset.val();
            if self.message.val() {
                self.accepted.d.next = self.accepted.q.val() + 1;
            }
            if self.written.val() {
                self.left.d.next = self.left.q.val() + 1;
            }
            // A message accepted in the same cycle counts as earlier.
            self.tickets.in_data.next.vector = self.irq.val();
            self.tickets.in_data.next.after = self.accepted.q.val();
            if self.message.val() {
                self.tickets.in_data.next.after = self.accepted.q.val() + 1;
            }
            self.tickets.in_valid.next = self.irq_valid.val();
            self.irq_ready.next = self.tickets.in_ready.val();
            // At most some tens of messages are inside, so the difference modulo 256 has a sign.
            self.missing.next = self.tickets.out_data.val().after - self.left.q.val();
            self.passes.next = !self.missing.val().any() | self.missing.val().get_bit(7);
            self.out.next = self.tickets.out_data.val().vector;
            self.out_valid.next = self.tickets.out_valid.val() & self.passes.val();
            self.tickets.out_ready.next = self.out_ready.val() & self.passes.val();
            self.busy.next = self.tickets.count.val().any();
        }
    }
}

use gate::IrqGate;

block! {
    /// Writes host memory for four clients, and sends interrupts behind their writes.
    ///
    /// - Client i gives a message `req{i}` and, on `data{i}`, one packed packet: its bytes from `skip` on go to `iova`,
    ///   `length` of them (1 to 4096); the rest of the packet is thrown away. The packet has at least `skip + length`
    ///   bytes. The request may come before its data; nothing else is written while the engine waits for them.
    /// - `m_wr`: 64-byte chunks at 64-byte-aligned addresses, byte lane = address modulo 64, `be` the bytes to write.
    ///   `sop` to `eop` is one write, which does not cross a 256-byte boundary (the smallest maximum payload in use).
    /// - `irq1`, `irq2`: interrupt vectors of clients 1 and 2; one leaves on `m_irq` after the client's messages accepted
    ///   before it (or in the same cycle) have left on `m_wr`.
    /// - `written0`, `written3`: a message of client 0, of client 3, has left.
    /// - Messages leave in the order of arbitration (round robin), so a client's messages stay in order.
    /// - Latency: 10 cycles from `req` and `data` to `m_wr`. Initiation interval: one input beat per cycle; a message takes
    ///   at most one cycle more than its packet has beats.
    pub struct DmaWrite {
        in {
            clock: Clock,
            reset: Bit,
            req0: DmaWriteReq,
            req0_valid: bool,
            data0: Beat,
            data0_valid: bool,
            req1: DmaWriteReq,
            req1_valid: bool,
            data1: Beat,
            data1_valid: bool,
            req2: DmaWriteReq,
            req2_valid: bool,
            data2: Beat,
            data2_valid: bool,
            req3: DmaWriteReq,
            req3_valid: bool,
            data3: Beat,
            data3_valid: bool,
            irq1: Bits<8>,
            irq1_valid: bool,
            irq2: Bits<8>,
            irq2_valid: bool,
            m_wr_ready: bool,
            m_irq_ready: bool,
        }
        out {
            req0_ready: bool,
            data0_ready: bool,
            req1_ready: bool,
            data1_ready: bool,
            req2_ready: bool,
            data2_ready: bool,
            req3_ready: bool,
            data3_ready: bool,
            irq1_ready: bool,
            irq2_ready: bool,
            m_wr_addr: Bits<64>,
            m_wr_data: Bits<512>,
            m_wr_be: Bits<64>,
            m_wr_sop: bool,
            m_wr_eop: bool,
            m_wr_valid: bool,
            m_irq_vector: Bits<8>,
            m_irq_valid: bool,
            written0: bool,
            written3: bool,
            busy: bool,
        }
        local {
            message: Message,
            client: Bits<2>,
            beat: Beat,
            beat_valid: bool,
            left_now: Bits<13>,
            cut: bool,
            ends: bool,
            feed: bool,
            take: bool,
            opens: bool,
            chunk_now: Bits<58>,
            chunk_low: Bits<2>,
            chunk_taken: bool,
            written: bool,
            from: Bits<2>,
        }
        reg {
            // Inside the part of the packet that is written.
            begun: bool,
            // Behind it.
            draining: bool,
            // Inside an aligned message.
            going: bool,
            // Messages between the arbiter and `m_wr`.
            open: Bits<8>,
        }
        pipe {
            left: Bits<13>,
            next_chunk: Bits<58>,
        }
        sub {
            messages0: SyncFifo<Message, 4>,
            messages1: SyncFifo<Message, 4>,
            messages2: SyncFifo<Message, 4>,
            messages3: SyncFifo<Message, 2>,
            beats0: SyncFifo<Beat, 4>,
            beats1: SyncFifo<Beat, 4>,
            beats2: SyncFifo<Beat, 4>,
            beats3: SyncFifo<Beat, 2>,
            arbiter: Arbiter4<Message>,
            realign: Realign,
            targets: SyncFifo<Target, 5>,
            mask: LaneMask,
            chunks: Skid<WriteChunk>,
            gate1: IrqGate,
            gate2: IrqGate,
            irqs: Arbiter2<Bits<8>>,
        }
    }
}

impl Logic for DmaWrite {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, begun, draining, going, open, left, next_chunk);
        clock!(
            self, clock, messages0, messages1, messages2, messages3, beats0, beats1, beats2,
            beats3, arbiter, realign, targets, chunks, gate1, gate2, irqs
        );
        self.messages0.reset.next = self.reset.val();
        self.messages1.reset.next = self.reset.val();
        self.messages2.reset.next = self.reset.val();
        self.messages3.reset.next = self.reset.val();
        self.beats0.reset.next = self.reset.val();
        self.beats1.reset.next = self.reset.val();
        self.beats2.reset.next = self.reset.val();
        self.beats3.reset.next = self.reset.val();
        self.arbiter.reset.next = self.reset.val();
        self.realign.reset.next = self.reset.val();
        self.targets.reset.next = self.reset.val();
        self.chunks.reset.next = self.reset.val();
        self.gate1.reset.next = self.reset.val();
        self.gate2.reset.next = self.reset.val();
        self.irqs.reset.next = self.reset.val();

        comment!("clients");
        self.messages0.in_data.next.iova = self.req0.val().iova;
        self.messages0.in_data.next.skip = self.req0.val().skip;
        self.messages0.in_data.next.upto =
            self.req0.val().length + bit_cast::<13, 7>(self.req0.val().skip);
        self.messages0.in_data.next.client = 0.into();
        self.messages0.in_valid.next = self.req0_valid.val();
        self.req0_ready.next = self.messages0.in_ready.val();
        self.beats0.in_data.next = self.data0.val();
        self.beats0.in_valid.next = self.data0_valid.val();
        self.data0_ready.next = self.beats0.in_ready.val();
        self.messages1.in_data.next.iova = self.req1.val().iova;
        self.messages1.in_data.next.skip = self.req1.val().skip;
        self.messages1.in_data.next.upto =
            self.req1.val().length + bit_cast::<13, 7>(self.req1.val().skip);
        self.messages1.in_data.next.client = 1.into();
        self.messages1.in_valid.next = self.req1_valid.val();
        self.req1_ready.next = self.messages1.in_ready.val();
        self.beats1.in_data.next = self.data1.val();
        self.beats1.in_valid.next = self.data1_valid.val();
        self.data1_ready.next = self.beats1.in_ready.val();
        self.messages2.in_data.next.iova = self.req2.val().iova;
        self.messages2.in_data.next.skip = self.req2.val().skip;
        self.messages2.in_data.next.upto =
            self.req2.val().length + bit_cast::<13, 7>(self.req2.val().skip);
        self.messages2.in_data.next.client = 2.into();
        self.messages2.in_valid.next = self.req2_valid.val();
        self.req2_ready.next = self.messages2.in_ready.val();
        self.beats2.in_data.next = self.data2.val();
        self.beats2.in_valid.next = self.data2_valid.val();
        self.data2_ready.next = self.beats2.in_ready.val();
        self.messages3.in_data.next.iova = self.req3.val().iova;
        self.messages3.in_data.next.skip = self.req3.val().skip;
        self.messages3.in_data.next.upto =
            self.req3.val().length + bit_cast::<13, 7>(self.req3.val().skip);
        self.messages3.in_data.next.client = 3.into();
        self.messages3.in_valid.next = self.req3_valid.val();
        self.req3_ready.next = self.messages3.in_ready.val();
        self.beats3.in_data.next = self.data3.val();
        self.beats3.in_valid.next = self.data3_valid.val();
        self.data3_ready.next = self.beats3.in_ready.val();
        self.arbiter.in_data[0].next = self.messages0.out_data.val();
        self.arbiter.in_valid[0].next = self.messages0.out_valid.val();
        self.messages0.out_ready.next = self.arbiter.in_ready[0].val();
        self.arbiter.in_data[1].next = self.messages1.out_data.val();
        self.arbiter.in_valid[1].next = self.messages1.out_valid.val();
        self.messages1.out_ready.next = self.arbiter.in_ready[1].val();
        self.arbiter.in_data[2].next = self.messages2.out_data.val();
        self.arbiter.in_valid[2].next = self.messages2.out_valid.val();
        self.messages2.out_ready.next = self.arbiter.in_ready[2].val();
        self.arbiter.in_data[3].next = self.messages3.out_data.val();
        self.arbiter.in_valid[3].next = self.messages3.out_valid.val();
        self.messages3.out_ready.next = self.arbiter.in_ready[3].val();

        comment!(
            "the message at hand: its bytes go to the aligner, cut after the last one to write"
        );
        self.message.next = self.arbiter.out_data.val();
        self.client.next = self.message.val().client;
        self.beats0.out_ready.next = false;
        self.beats1.out_ready.next = false;
        self.beats2.out_ready.next = false;
        self.beats3.out_ready.next = false;
        self.beat.next = self.beats0.out_data.val();
        self.beat_valid.next = self.beats0.out_valid.val();
        if self.client.val().get_bit(0) {
            self.beat.next = self.beats1.out_data.val();
            self.beat_valid.next = self.beats1.out_valid.val();
        }
        if self.client.val().get_bit(1) {
            self.beat.next = self.beats2.out_data.val();
            self.beat_valid.next = self.beats2.out_valid.val();
            if self.client.val().get_bit(0) {
                self.beat.next = self.beats3.out_data.val();
                self.beat_valid.next = self.beats3.out_valid.val();
            }
        }
        self.left_now.next = self.message.val().upto;
        if self.begun.q.val() {
            self.left_now.next = self.left.q.val();
        }
        self.cut.next = self.left_now.val() <= bit_cast::<13, 7>(self.beat.val().nbytes);
        self.ends.next = self.cut.val() | self.beat.val().last;
        self.realign.in_beat.next.data = self.beat.val().data;
        self.realign.in_beat.next.last = self.ends.val();
        self.realign.in_beat.next.nbytes = self.beat.val().nbytes;
        if self.cut.val() {
            self.realign.in_beat.next.nbytes = bit_cast::<7, 13>(self.left_now.val());
        }
        self.realign.in_skip.next = self.message.val().skip;
        self.realign.in_lane.next = self.message.val().iova.get_bits::<6>(0);
        self.feed.next =
            self.arbiter.out_valid.val() & self.beat_valid.val() & !self.draining.q.val();
        self.realign.in_valid.next = self.feed.val();
        self.take.next = self.arbiter.out_valid.val()
            & self.beat_valid.val()
            & (self.draining.q.val() | self.realign.in_ready.val());
        if self.take.val() {
            self.begun.d.next = true;
            self.left.d.next = self.left_now.val() - bit_cast::<13, 7>(self.beat.val().nbytes);
            self.draining.d.next = self.draining.q.val() | self.ends.val();
            if self.beat.val().last {
                self.begun.d.next = false;
                self.draining.d.next = false;
            }
        }
        self.arbiter.out_ready.next = self.take.val() & self.beat.val().last;
        if self.client.val().get_bit(1) {
            if self.client.val().get_bit(0) {
                self.beats3.out_ready.next = self.take.val();
            } else {
                self.beats2.out_ready.next = self.take.val();
            }
        } else {
            if self.client.val().get_bit(0) {
                self.beats1.out_ready.next = self.take.val();
            } else {
                self.beats0.out_ready.next = self.take.val();
            }
        }
        self.targets.in_data.next.chunk = self.message.val().iova.get_bits::<58>(6);
        self.targets.in_data.next.client = self.client.val();
        self.opens.next = self.feed.val() & self.realign.in_ready.val() & !self.begun.q.val();
        self.targets.in_valid.next = self.opens.val();

        comment!("aligned chunks");
        self.chunk_now.next = self.targets.out_data.val().chunk;
        if self.going.q.val() {
            self.chunk_now.next = self.next_chunk.q.val();
        }
        self.chunk_low.next = self.chunk_now.val().get_bits::<2>(0);
        self.mask.from.next = self.realign.out_beat.val().from;
        self.mask.nbytes.next = self.realign.out_beat.val().nbytes;
        self.chunks.in_data.next.data = self.realign.out_beat.val().data;
        self.chunks.in_data.next.chunk = self.chunk_now.val();
        self.chunks.in_data.next.enables = self.mask.mask.val();
        self.chunks.in_data.next.sop = !self.going.q.val() | !self.chunk_low.val().any();
        self.chunks.in_data.next.eop =
            self.realign.out_beat.val().last | self.chunk_low.val().all();
        self.chunks.in_data.next.last = self.realign.out_beat.val().last;
        self.chunks.in_data.next.client = self.targets.out_data.val().client;
        self.chunks.in_valid.next = self.realign.out_valid.val() & self.targets.out_valid.val();
        self.realign.out_ready.next = self.chunks.in_ready.val() & self.targets.out_valid.val();
        self.chunk_taken.next = self.realign.out_valid.val()
            & self.targets.out_valid.val()
            & self.chunks.in_ready.val();
        self.targets.out_ready.next = self.chunk_taken.val() & self.realign.out_beat.val().last;
        if self.chunk_taken.val() {
            self.next_chunk.d.next = self.chunk_now.val() + 1;
            self.going.d.next = !self.realign.out_beat.val().last;
        }
        self.m_wr_addr.next = bit_cast::<64, 58>(self.chunks.out_data.val().chunk) << 6;
        self.m_wr_data.next = self.chunks.out_data.val().data;
        self.m_wr_be.next = self.chunks.out_data.val().enables;
        self.m_wr_sop.next = self.chunks.out_data.val().sop;
        self.m_wr_eop.next = self.chunks.out_data.val().eop;
        self.m_wr_valid.next = self.chunks.out_valid.val();
        self.chunks.out_ready.next = self.m_wr_ready.val();

        comment!("interrupts");
        self.from.next = self.chunks.out_data.val().client;
        self.written.next =
            self.chunks.out_valid.val() & self.m_wr_ready.val() & self.chunks.out_data.val().last;
        self.gate1.message.next = self.req1_valid.val() & self.messages1.in_ready.val();
        self.written0.next = self.written.val() & !self.from.val().any();
        self.written3.next = self.written.val() & self.from.val().all();
        self.gate1.written.next =
            self.written.val() & self.from.val().get_bit(0) & !self.from.val().get_bit(1);
        self.gate1.irq.next = self.irq1.val();
        self.gate1.irq_valid.next = self.irq1_valid.val();
        self.irq1_ready.next = self.gate1.irq_ready.val();
        self.gate2.message.next = self.req2_valid.val() & self.messages2.in_ready.val();
        self.gate2.written.next =
            self.written.val() & self.from.val().get_bit(1) & !self.from.val().get_bit(0);
        self.gate2.irq.next = self.irq2.val();
        self.gate2.irq_valid.next = self.irq2_valid.val();
        self.irq2_ready.next = self.gate2.irq_ready.val();
        self.irqs.in_data[0].next = self.gate1.out.val();
        self.irqs.in_valid[0].next = self.gate1.out_valid.val();
        self.gate1.out_ready.next = self.irqs.in_ready[0].val();
        self.irqs.in_data[1].next = self.gate2.out.val();
        self.irqs.in_valid[1].next = self.gate2.out_valid.val();
        self.gate2.out_ready.next = self.irqs.in_ready[1].val();
        self.m_irq_vector.next = self.irqs.out_data.val();
        self.m_irq_valid.next = self.irqs.out_valid.val();
        self.irqs.out_ready.next = self.m_irq_ready.val();

        comment!("work inside");
        if self.opens.val() & !self.written.val() {
            self.open.d.next = self.open.q.val() + 1;
        }
        if self.written.val() & !self.opens.val() {
            self.open.d.next = self.open.q.val() - 1;
        }
        self.busy.next = self.messages0.count.val().any()
            | self.messages1.count.val().any()
            | self.messages2.count.val().any()
            | self.messages3.count.val().any()
            | self.arbiter.out_valid.val()
            | self.open.q.val().any()
            | self.gate1.busy.val()
            | self.gate2.busy.val()
            | self.irqs.out_valid.val();
    }
}
