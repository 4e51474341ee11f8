//! Puts the ICRC behind a frame and buffers it until it is whole.

use super::header::FrameTag;
use crate::leaf::crc::icrc_seed;
use crate::leaf::{Beat, Crc32Stream, Delay, PacketFifo};
use crate::nic::headers::{IcrcMask, KeepMask, PutIcrc, TAGGED_LEN};
use crate::prelude::*;
use mprdma_spec::wire::ethernet;

/// Whole frames in the buffer from which on the wire holds packets back: the one that leaves and two more.
const HELD_FRAMES: u64 = 3;
/// Beats in the buffer above which it does too, after 64 cycles: a frame of 4 KiB and a part of the next, and more behind.
const HELD_BEATS: u64 = 80;

/// A beat beside the CRC pipeline.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
struct Waiting {
    beat: Beat,
    poison: bool,
}

block! {
    /// Appends the ICRC to each frame and sends it without a gap inside.
    ///
    /// - In: `beat` (packed), `valid`; with the first beat of a frame its `tag`; with its last `poison`, which makes
    ///   the ICRC wrong. Out: `take`, in the cycle in which a beat is taken.
    /// - Out: `tdata`, `tkeep`, `tlast`, `tvalid`; in: `tready`.
    /// - Out: `held`: frames queue for the wire, three whole ones, or more than 80 beats for 64 cycles,
    ///   as when a third frame of 4 KiB waits.
    /// - Out: `sent`, the bytes that leave in this cycle, and `sent_last`, when a frame ends.
    /// - Latency: 14 cycles from the last beat in to the first beat out. One beat per cycle, and one cycle more for a
    ///   frame whose ICRC does not fit into its last beat.
    pub struct Seal {
        in {
            clock: Clock,
            reset: Bit,
            beat: Beat,
            valid: bool,
            tag: FrameTag,
            poison: bool,
            tready: bool,
        }
        out {
            take: bool,
            tdata: Bits<512>,
            tkeep: Bits<64>,
            tlast: bool,
            tvalid: bool,
            sent: Bits<7>,
            sent_last: bool,
            held: bool,
        }
        local {
            comes: bool,
            goes: bool,
            whole_next: Bits<7>,
            straddles: bool,
            last_8: bool,
            straddles_8: bool,
            icrc: Bits<32>,
            sending: bool,
        }
        reg {
            second: bool,
            later: bool,
            gap: bool,
            crowded: bool,
            valid_0: bool,
            valids: Bits<8>,
            split: bool,
            valid_9: bool,
            sent_bytes: Bits<7>,
            frame_sent: bool,
            // Whole frames in the buffer.
            whole: Bits<7>,
            // For how many cycles more than a frame of 4 KiB has been there.
            high_for: Bits<7>,
            queued: bool,
        }
        pipe {
            vlan: bool,
            ip6: bool,
            raw_0: Waiting,
            masked_0: Beat,
            seed_0: Bits<32>,
            beat_9: Beat,
            rest_9: Bits<16>,
        }
        konst {
            seed_plain: Bits<32> = bits(u64::from(icrc_seed(ethernet::LEN))),
            seed_tagged: Bits<32> = bits(u64::from(icrc_seed(TAGGED_LEN))),
            // A frame that ends there leaves two bytes for the ICRC in its last beat.
            straddle_at: Bits<7> = bits(62),
            icrc_len: Bits<7> = bits(4),
            // The beats of the pipeline and an extra one for each other of them still fit.
            high_water: Bits<7> = bits(100),
            held_frames: Bits<7> = bits(HELD_FRAMES),
            held_beats: Bits<7> = bits(HELD_BEATS),
        }
        sub {
            mask: IcrcMask,
            crc: Crc32Stream,
            delay: Delay<Waiting> = Delay::new(8),
            put: PutIcrc,
            buffer: PacketFifo<7>,
            keep: KeepMask,
        }
    }
}

impl Logic for Seal {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(
            self, clock, second, later, gap, crowded, valid_0, valids, split, valid_9, sent_bytes,
            frame_sent, whole, high_for, queued, vlan, ip6, raw_0, masked_0, seed_0, beat_9,
            rest_9
        );
        clock!(self, clock, crc, delay, buffer);
        self.crc.reset.next = self.reset.val();
        self.buffer.reset.next = self.reset.val();
        comment!("0: take a beat, mask it for the CRC; a straddling ICRC needs a cycle of its own");
        self.take.next = self.valid.val() & !self.crowded.q.val() & !self.gap.q.val();
        self.straddles.next =
            self.beat.val().last & (self.beat.val().nbytes == self.straddle_at.val());
        self.mask.i.next = self.beat.val().data;
        self.mask.first.next = !self.second.q.val() & !self.later.q.val();
        self.mask.second.next = self.second.q.val();
        self.mask.vlan.next = self.vlan.q.val();
        self.mask.ip6.next = self.ip6.q.val();
        if !self.second.q.val() & !self.later.q.val() {
            self.mask.vlan.next = self.tag.val().vlan;
            self.mask.ip6.next = self.tag.val().ip6;
        }
        self.valid_0.d.next = false;
        self.gap.d.next = false;
        self.raw_0.d.next.beat = self.beat.val();
        self.raw_0.d.next.poison = self.poison.val();
        self.masked_0.d.next = self.beat.val();
        self.masked_0.d.next.data = self.mask.o.val();
        self.seed_0.d.next = self.seed_plain.val();
        if self.tag.val().vlan {
            self.seed_0.d.next = self.seed_tagged.val();
        }
        if self.valid.val() & !self.crowded.q.val() & !self.gap.q.val() {
            self.valid_0.d.next = true;
            self.gap.d.next = self.straddles.val();
            self.second.d.next = !self.second.q.val() & !self.later.q.val() & !self.beat.val().last;
            self.later.d.next = (self.second.q.val() | self.later.q.val()) & !self.beat.val().last;
            if !self.second.q.val() & !self.later.q.val() {
                self.vlan.d.next = self.tag.val().vlan;
                self.ip6.d.next = self.tag.val().ip6;
            }
        }
        comment!("1 to 8: CRC");
        self.crc.beat.next = self.masked_0.q.val();
        self.crc.valid.next = self.valid_0.q.val();
        self.crc.seed.next = self.seed_0.q.val();
        self.delay.d.next = self.raw_0.q.val();
        self.valids.d.next =
            (self.valids.q.val() << 1) | bit_cast::<8, 1>(self.valid_0.q.val().into());
        comment!("9: append");
        self.last_8.next = self.crc.crc_valid.val();
        self.straddles_8.next =
            self.last_8.val() & (self.delay.q.val().beat.nbytes == self.straddle_at.val());
        self.icrc.next = self.crc.crc.val();
        if self.delay.q.val().poison {
            self.icrc.next = !self.crc.crc.val();
        }
        self.put.i.next = self.delay.q.val().beat.data;
        self.put.nbytes.next = self.delay.q.val().beat.nbytes;
        self.put.icrc.next = self.icrc.val();
        self.valid_9.d.next = self.valids.q.val().get_bit(7);
        self.beat_9.d.next = self.delay.q.val().beat;
        self.split.d.next = false;
        if self.last_8.val() {
            self.beat_9.d.next.data = self.put.o.val();
            self.beat_9.d.next.nbytes = self.delay.q.val().beat.nbytes + self.icrc_len.val();
            if self.straddles_8.val() {
                self.beat_9.d.next.nbytes = 64.into();
                self.beat_9.d.next.last = false;
                self.split.d.next = true;
            }
        }
        self.rest_9.d.next = self.icrc.val().get_bits::<16>(16);
        if self.split.q.val() {
            self.valid_9.d.next = true;
            self.beat_9.d.next.data = bit_cast::<512, 16>(self.rest_9.q.val());
            self.beat_9.d.next.nbytes = 2.into();
            self.beat_9.d.next.last = true;
        }
        comment!("10: the buffer; it never overflows, since beats stop early");
        self.buffer.in_beat.next = self.beat_9.q.val();
        self.buffer.in_valid.next = self.valid_9.q.val();
        self.buffer.in_drop.next = false;
        self.buffer.discard.next = false;
        self.crowded.d.next = self.buffer.in_use.val() > self.high_water.val();
        comment!("output");
        self.keep.nbytes.next = self.buffer.out_beat.val().nbytes;
        self.tdata.next = self.buffer.out_beat.val().data;
        self.tkeep.next = self.keep.keep.val();
        self.tlast.next = self.buffer.out_beat.val().last;
        self.tvalid.next = self.buffer.out_valid.val();
        self.buffer.out_ready.next = self.tready.val();
        self.sending.next = self.buffer.out_valid.val() & self.tready.val();
        self.sent_bytes.d.next = 0.into();
        if self.sending.val() {
            self.sent_bytes.d.next = self.buffer.out_beat.val().nbytes;
        }
        self.frame_sent.d.next = self.sending.val() & self.buffer.out_beat.val().last;
        comment!("what waits for the wire");
        self.comes.next = self.valid_9.q.val() & self.beat_9.q.val().last;
        self.goes.next = self.sending.val() & self.buffer.out_beat.val().last;
        self.whole_next.next = self.whole.q.val();
        if self.comes.val() {
            self.whole_next.next = self.whole.q.val() + 1;
        }
        self.whole.d.next = self.whole_next.val();
        if self.goes.val() {
            self.whole.d.next = self.whole_next.val() - 1;
        }
        self.high_for.d.next = 0.into();
        if self.buffer.in_use.val() > self.held_beats.val() {
            self.high_for.d.next = self.high_for.q.val();
            if !self.high_for.q.val().get_bit(6) {
                self.high_for.d.next = self.high_for.q.val() + 1;
            }
        }
        self.queued.d.next =
            (self.whole.q.val() >= self.held_frames.val()) | self.high_for.q.val().get_bit(6);
        self.held.next = self.queued.q.val();
        self.sent.next = self.sent_bytes.q.val();
        self.sent_last.next = self.frame_sent.q.val();
    }
}
