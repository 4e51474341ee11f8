//! Receives frames: parses and checks headers, lengths and ICRC, buffers payloads until they are known to be good.

mod headers;
mod intake;

use super::types::RxMeta;
use crate::leaf::crc::{icrc_seed, CRC32_RESIDUE};
use crate::leaf::{Beat, Crc32Stream, Delay, PacketFifo, SyncFifo};
use crate::nic::headers::TAGGED_LEN;
use crate::prelude::*;
use headers::{ParseHeaders, Parsed};
use intake::Intake;
use mprdma_spec::wire::ethernet;

block! {
    /// Takes Ethernet frames without FCS and gives out what good RoCEv2 frames say.
    ///
    /// - In: `s_axis_rx_*`, which cannot be stalled; `tuser` marks a bad frame. `mac`, our address.
    /// - Out: `meta`, one per frame with good headers and ICRC, in order of arrival; and, for data packets with payload
    ///   (`stored`), the whole frame on `frame`, in the same order. All of a frame is in the buffer when its `meta`
    ///   comes out or a few cycles later.
    /// - Every frame makes one `meta` or one of the pulses `cnt_rx_drop_*`. If several apply, the first counts:
    ///   header and length checks in wire order (malformed, not ours), ICRC, full. Full means that the 2^`BUFW` - 1
    ///   beats of the buffer, or the queue of `meta`, have no room.
    /// - Frames of one beat may come every cycle. Latency: 17 cycles from the last beat to `meta`.
    pub struct RxParse[const BUFW: usize][BUFW] {
        in {
            clock: Clock,
            reset: Bit,
            s_axis_rx_tdata: Bits<512>,
            s_axis_rx_tkeep: Bits<64>,
            s_axis_rx_tlast: bool,
            s_axis_rx_tvalid: bool,
            s_axis_rx_tuser: bool,
            mac: Bits<48>,
            meta_ready: bool,
            frame_ready: bool,
        }
        out {
            meta: RxMeta,
            meta_valid: bool,
            frame: Beat,
            frame_valid: bool,
            cnt_rx_frames: bool,
            cnt_rx_bytes: Bits<7>,
            cnt_rx_drop_icrc: bool,
            cnt_rx_drop_malformed: bool,
            cnt_rx_drop_not_ours: bool,
            cnt_rx_drop_full: bool,
            busy: bool,
        }
        local {
            header_drop: bool,
            good: bool,
            room: bool,
            store: bool,
            lost: bool,
            frame_done: bool,
            held_next: Bits<BUFW>,
        }
        reg {
            valids: Bits<10>,
            last_12: bool,
            crowded: bool,
            drop_icrc: bool,
            drop_malformed: bool,
            drop_not_ours: bool,
            drop_full: bool,
            drop_full_14: bool,
            drop_full_15: bool,
            give_13: bool,
            give_14: bool,
            store_13: bool,
            store_14: bool,
            // Stored frames that have not left.
            held: Bits<BUFW>,
        }
        pipe {
            icrc_good_12: bool,
            meta_13: RxMeta,
            meta_14: RxMeta,
        }
        konst {
            seed_plain: Bits<32> = bits(u64::from(icrc_seed(ethernet::LEN))),
            seed_tagged: Bits<32> = bits(u64::from(icrc_seed(TAGGED_LEN))),
            residue: Bits<32> = bits(u64::from(CRC32_RESIDUE)),
            high_water: Bits<4> = bits(11),
        }
        sub {
            intake: Intake,
            headers: ParseHeaders,
            crc: Crc32Stream,
            // From stage 3 to 13 and from stage 8 to 12.
            beats: Delay<Beat> = Delay::new(10),
            verdicts: Delay<Parsed> = Delay::new(4),
            buffer: PacketFifo<BUFW>,
            metas: SyncFifo<RxMeta, 4>,
        }
    }
}

impl<const BUFW: usize> RxParse<BUFW> {
    /// For a bitmap of `slots` slots, 64 or 128: the size of the SACK maps that it takes.
    ///
    /// # Panics
    /// When `slots` is another number, or the buffer holds no frame of the largest MTU.
    pub fn new(slots: usize) -> Self {
        assert!(
            slots == 64 || slots == 128,
            "a bitmap has 64 or 128 slots, not {slots}"
        );
        assert!(BUFW >= 7, "the buffer must hold a frame of 66 beats");
        Self {
            headers: ParseHeaders::new(slots),
            ..Self::default()
        }
    }
}

impl<const BUFW: usize> Logic for RxParse<BUFW> {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(
            self,
            clock,
            valids,
            last_12,
            crowded,
            drop_icrc,
            drop_malformed,
            drop_not_ours,
            drop_full,
            drop_full_14,
            drop_full_15,
            give_13,
            give_14,
            store_13,
            store_14,
            held,
            icrc_good_12,
            meta_13,
            meta_14
        );
        clock!(self, clock, intake, headers, crc, beats, verdicts, buffer, metas);
        self.intake.reset.next = self.reset.val();
        self.headers.reset.next = self.reset.val();
        self.crc.reset.next = self.reset.val();
        self.buffer.reset.next = self.reset.val();
        self.metas.reset.next = self.reset.val();
        comment!("0 to 3: intake");
        self.intake.beat.next.data = self.s_axis_rx_tdata.val();
        self.intake.beat.next.keep = self.s_axis_rx_tkeep.val();
        self.intake.beat.next.last = self.s_axis_rx_tlast.val();
        self.intake.beat.next.bad = self.s_axis_rx_tuser.val();
        self.intake.valid.next = self.s_axis_rx_tvalid.val();
        comment!("4 to 12: CRC beside the headers and the frame itself");
        self.crc.beat.next = self.intake.masked.val();
        self.crc.valid.next = self.intake.out_valid.val();
        self.crc.seed.next = self.seed_plain.val();
        if self.intake.vlan.val() {
            self.crc.seed.next = self.seed_tagged.val();
        }
        self.headers.arrived.next = self.intake.arrived.val();
        self.headers.mac.next = self.mac.val();
        self.verdicts.d.next = self.headers.parsed.val();
        self.beats.d.next = self.intake.raw.val();
        self.valids.d.next =
            (self.valids.q.val() << 1) | bit_cast::<10, 1>(self.intake.out_valid.val().into());
        self.icrc_good_12.d.next = self.crc.crc.val() == self.residue.val();
        self.last_12.d.next = self.crc.crc_valid.val();
        comment!("12: verdict at the frame's last beat");
        self.header_drop.next = self.verdicts.q.val().malformed | self.verdicts.q.val().not_ours;
        self.good.next = self.last_12.q.val() & !self.header_drop.val() & self.icrc_good_12.q.val();
        self.room.next = !self.crowded.q.val();
        self.store.next = self.good.val() & self.room.val() & self.verdicts.q.val().meta.stored;
        self.drop_malformed.d.next = self.last_12.q.val() & self.verdicts.q.val().malformed;
        self.drop_not_ours.d.next = self.last_12.q.val() & self.verdicts.q.val().not_ours;
        self.drop_icrc.d.next =
            self.last_12.q.val() & !self.header_drop.val() & !self.icrc_good_12.q.val();
        self.drop_full.d.next = self.good.val() & !self.room.val();
        self.give_13.d.next = self.good.val() & self.room.val();
        self.store_13.d.next = self.store.val();
        self.meta_13.d.next = self.verdicts.q.val().meta;
        comment!("13: the buffer takes the frame's last beat, or takes the frame back");
        self.buffer.in_beat.next = self.beats.q.val();
        self.buffer.in_valid.next = self.valids.q.val().get_bit(9);
        self.buffer.in_drop.next = !self.store_13.q.val();
        self.buffer.discard.next = false;
        self.give_14.d.next = self.give_13.q.val();
        self.store_14.d.next = self.store_13.q.val();
        self.meta_14.d.next = self.meta_13.q.val();
        comment!("14: a frame that did not fit into the buffer is no frame");
        self.lost.next = self.store_14.q.val() & self.buffer.overflow.val();
        self.drop_full_14.d.next = self.drop_full.q.val();
        self.drop_full_15.d.next = self.drop_full_14.q.val() | self.lost.val();
        self.metas.in_data.next = self.meta_14.q.val();
        self.metas.in_valid.next = self.give_14.q.val() & !self.lost.val();
        self.crowded.d.next = self.metas.count.val() >= self.high_water.val();
        comment!("output");
        self.meta.next = self.metas.out_data.val();
        self.meta_valid.next = self.metas.out_valid.val();
        self.metas.out_ready.next = self.meta_ready.val();
        self.frame.next = self.buffer.out_beat.val();
        self.frame_valid.next = self.buffer.out_valid.val();
        self.buffer.out_ready.next = self.frame_ready.val();
        self.frame_done.next =
            self.buffer.out_valid.val() & self.frame_ready.val() & self.buffer.out_beat.val().last;
        self.held_next.next = self.held.q.val();
        if self.store_14.q.val() & !self.lost.val() {
            self.held_next.next = self.held.q.val() + 1;
        }
        self.held.d.next = self.held_next.val();
        if self.frame_done.val() {
            self.held.d.next = self.held_next.val() - 1;
        }
        comment!("counters");
        self.cnt_rx_frames.next = self.intake.frames.val();
        self.cnt_rx_bytes.next = self.intake.bytes.val();
        self.cnt_rx_drop_icrc.next = self.drop_icrc.q.val();
        self.cnt_rx_drop_malformed.next = self.drop_malformed.q.val();
        self.cnt_rx_drop_not_ours.next = self.drop_not_ours.q.val();
        self.cnt_rx_drop_full.next = self.drop_full_15.q.val();
        self.busy.next = self.intake.busy.val()
            | self.valids.q.val().any()
            | self.give_13.q.val()
            | self.give_14.q.val()
            | self.metas.count.val().any()
            | self.held.q.val().any();
    }
}
