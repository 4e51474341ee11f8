//! DMA reads: split, tag, put back in order, align.

use super::board::TagBoard;
use crate::leaf::{Arbiter3, Beat, Ram, RamStyle, Realign, Skid, SyncFifo};
use crate::nic::types::DmaReadReq;
use crate::prelude::*;

/// A client's request on its way to the splitter.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
struct Ask {
    iova: Bits<64>,
    length: Bits<13>,
    client: Bits<2>,
}

/// A read on the PCIe side.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
struct SubRequest {
    addr: Bits<64>,
    length: Bits<13>,
    tag: Bits<8>,
}

/// What the reader knows about the tag at hand.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
struct TagInfo {
    client: Bits<2>,
    /// This is the first tag of a request.
    first: bool,
    /// This is the last tag of a request.
    last: bool,
    first_chunk: Bits<3>,
    last_chunk: Bits<3>,
    /// First lane in use in the first chunk.
    skip: Bits<6>,
    /// One past the last lane in use in the last chunk.
    nbytes: Bits<7>,
}

/// What travels beside a chunk through the read stages of the reorder buffer.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
struct Chunk {
    nbytes: Bits<7>,
    last: bool,
    first: bool,
    skip: Bits<6>,
    client: Bits<2>,
    err: bool,
}

block! {
    /// Reads host memory for three clients.
    ///
    /// - Client i asks with `req{i}` (`length` 1 to 4096 bytes, any address) and gets `data{i}`: the bytes packed from
    ///   byte 0, in the order of its requests. `data{i}_err`, valid with the last beat, says that some byte could not be
    ///   read; the number of beats is right even then.
    /// - `m_rd_req`: reads that do not cross a 512-byte boundary (so neither 4 KiB nor a maximum read request size of 512),
    ///   with tags 0 to 63.
    /// - `s_rd_cpl`: one 64-byte-aligned chunk of a tag per cycle, byte lane = address modulo 64, `chunk` = address bits
    ///   8:6, in any order; it cannot be stalled. `err` closes its tag, with whatever chunks came before.
    /// - After a reset, completions of reads made before it must not arrive any more.
    /// - Requests are served in the order of arbitration, round robin: a client that does not take its data in the end
    ///   holds up the others.
    /// - Latency without the memory: 5 cycles from `req` to `m_rd_req`, 11 cycles from the last completion awaited to
    ///   `data`. Initiation interval: one chunk per cycle; a request that does not begin at a 64-byte boundary takes at
    ///   most one cycle more than it touches chunks. A request takes at least 2 cycles.
    pub struct DmaRead {
        in {
            clock: Clock,
            reset: Bit,
            req0: DmaReadReq,
            req0_valid: bool,
            req1: DmaReadReq,
            req1_valid: bool,
            req2: DmaReadReq,
            req2_valid: bool,
            data0_ready: bool,
            data1_ready: bool,
            data2_ready: bool,
            m_rd_req_ready: bool,
            s_rd_cpl_valid: bool,
            s_rd_cpl_tag: Bits<8>,
            s_rd_cpl_chunk: Bits<3>,
            s_rd_cpl_data: Bits<512>,
            s_rd_cpl_err: bool,
        }
        out {
            req0_ready: bool,
            req1_ready: bool,
            req2_ready: bool,
            data0: Beat,
            data0_valid: bool,
            data0_err: bool,
            data1: Beat,
            data1_valid: bool,
            data1_err: bool,
            data2: Beat,
            data2_valid: bool,
            data2_err: bool,
            m_rd_req_addr: Bits<64>,
            m_rd_req_length: Bits<13>,
            m_rd_req_tag: Bits<8>,
            m_rd_req_valid: bool,
            busy: bool,
        }
        local {
            // Splitter.
            offset: Bits<9>,
            room: Bits<13>,
            part: Bits<13>,
            final_part: bool,
            stop: Bits<9>,
            issue: bool,
            // Reader.
            chunk_now: Bits<3>,
            ends_tag: bool,
            err_now: bool,
            move_on: bool,
            go: bool,
            free: bool,
            head_next: Bits<6>,
            in_flight_next: Bits<7>,
            deliver: bool,
            wanted: bool,
            handed: bool,
        }
        reg {
            split: bool,
            begun: bool,
            next_tag: Bits<6>,
            head: Bits<6>,
            // Tags given out and not read back.
            in_flight: Bits<7>,
            arrived: Bits<9>,
            inside_tag: bool,
            valid_1: bool,
            valid_2: bool,
            cpl_valid: bool,
            cpl_flags: Bits<9>,
        }
        pipe {
            addr: Bits<64>,
            left: Bits<13>,
            client: Bits<2>,
            chunk: Bits<3>,
            failed: bool,
            chunk_1: Chunk,
            chunk_2: Chunk,
            cpl_tag: Bits<6>,
            cpl_chunk: Bits<3>,
            cpl_data: Bits<512>,
        }
        konst {
            block_bytes: Bits<13> = bits(512),
            block_mask: Bits<64> = bits(!511),
            block_step: Bits<64> = bits(512),
            all_flags: Bits<9> = bits(0x1ff),
            one_flag: Bits<9> = bits(1),
        }
        sub {
            asks0: SyncFifo<DmaReadReq, 4>,
            asks1: SyncFifo<DmaReadReq, 4>,
            asks2: SyncFifo<DmaReadReq, 2>,
            arbiter: Arbiter3<Ask>,
            requests: Skid<SubRequest>,
            infos: SyncFifo<TagInfo, 7>,
            board: TagBoard,
            buffer: Ram<Bits<512>, 9> = Ram::new(RamStyle::Block, true),
            realign: Realign,
            // The client of each request in the aligner, and whether it failed.
            clients: SyncFifo<Bits<2>, 5>,
            errors: SyncFifo<bool, 5>,
        }
    }
}

impl Logic for DmaRead {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(
            self, clock, split, begun, next_tag, head, in_flight, arrived, inside_tag, valid_1,
            valid_2, cpl_valid, cpl_flags, addr, left, client, chunk, failed, chunk_1, chunk_2,
            cpl_tag, cpl_chunk, cpl_data
        );
        clock!(
            self, clock, asks0, asks1, asks2, arbiter, requests, infos, board, buffer, realign,
            clients, errors
        );
        self.asks0.reset.next = self.reset.val();
        self.asks1.reset.next = self.reset.val();
        self.asks2.reset.next = self.reset.val();
        self.arbiter.reset.next = self.reset.val();
        self.requests.reset.next = self.reset.val();
        self.infos.reset.next = self.reset.val();
        self.board.reset.next = self.reset.val();
        self.realign.reset.next = self.reset.val();
        self.clients.reset.next = self.reset.val();
        self.errors.reset.next = self.reset.val();

        comment!("clients to arbiter");
        self.asks0.in_data.next = self.req0.val();
        self.asks0.in_valid.next = self.req0_valid.val();
        self.req0_ready.next = self.asks0.in_ready.val();
        self.asks1.in_data.next = self.req1.val();
        self.asks1.in_valid.next = self.req1_valid.val();
        self.req1_ready.next = self.asks1.in_ready.val();
        self.asks2.in_data.next = self.req2.val();
        self.asks2.in_valid.next = self.req2_valid.val();
        self.req2_ready.next = self.asks2.in_ready.val();
        self.arbiter.in_data[0].next.iova = self.asks0.out_data.val().iova;
        self.arbiter.in_data[0].next.length = self.asks0.out_data.val().length;
        self.arbiter.in_data[0].next.client = 0.into();
        self.arbiter.in_valid[0].next = self.asks0.out_valid.val();
        self.asks0.out_ready.next = self.arbiter.in_ready[0].val();
        self.arbiter.in_data[1].next.iova = self.asks1.out_data.val().iova;
        self.arbiter.in_data[1].next.length = self.asks1.out_data.val().length;
        self.arbiter.in_data[1].next.client = 1.into();
        self.arbiter.in_valid[1].next = self.asks1.out_valid.val();
        self.asks1.out_ready.next = self.arbiter.in_ready[1].val();
        self.arbiter.in_data[2].next.iova = self.asks2.out_data.val().iova;
        self.arbiter.in_data[2].next.length = self.asks2.out_data.val().length;
        self.arbiter.in_data[2].next.client = 2.into();
        self.arbiter.in_valid[2].next = self.asks2.out_valid.val();
        self.asks2.out_ready.next = self.arbiter.in_ready[2].val();

        comment!("splitter: one part per cycle, up to the end of its 512-byte block");
        self.offset.next = self.addr.q.val().get_bits::<9>(0);
        self.room.next = self.block_bytes.val() - bit_cast::<13, 9>(self.offset.val());
        self.final_part.next = self.left.q.val() <= self.room.val();
        self.part.next = self.room.val();
        if self.final_part.val() {
            self.part.next = self.left.q.val();
        }
        // The last byte's place in the block.
        self.stop.next = self.offset.val() + bit_cast::<9, 13>(self.part.val()) - 1;
        self.issue.next =
            self.split.q.val() & self.requests.in_ready.val() & !self.in_flight.q.val().get_bit(6);
        self.requests.in_data.next.addr = self.addr.q.val();
        self.requests.in_data.next.length = self.part.val();
        self.requests.in_data.next.tag = bit_cast::<8, 6>(self.next_tag.q.val());
        self.requests.in_valid.next = self.issue.val();
        self.infos.in_data.next.client = self.client.q.val();
        self.infos.in_data.next.first = !self.begun.q.val();
        self.infos.in_data.next.last = self.final_part.val();
        self.infos.in_data.next.first_chunk = self.offset.val().get_bits::<3>(6);
        self.infos.in_data.next.last_chunk = self.stop.val().get_bits::<3>(6);
        self.infos.in_data.next.skip = self.offset.val().get_bits::<6>(0);
        self.infos.in_data.next.nbytes = bit_cast::<7, 6>(self.stop.val().get_bits::<6>(0)) + 1;
        self.infos.in_valid.next = self.issue.val();
        self.arbiter.out_ready.next = !self.split.q.val();
        self.in_flight_next.next = self.in_flight.q.val();
        if self.issue.val() {
            self.next_tag.d.next = self.next_tag.q.val() + 1;
            self.in_flight_next.next = self.in_flight.q.val() + 1;
            self.addr.d.next = (self.addr.q.val() & self.block_mask.val()) + self.block_step.val();
            self.left.d.next = self.left.q.val() - self.part.val();
            self.begun.d.next = true;
            self.split.d.next = !self.final_part.val();
        }
        if !self.split.q.val() {
            self.addr.d.next = self.arbiter.out_data.val().iova;
            self.left.d.next = self.arbiter.out_data.val().length;
            self.client.d.next = self.arbiter.out_data.val().client;
            self.begun.d.next = false;
            self.split.d.next = self.arbiter.out_valid.val();
        }
        self.m_rd_req_addr.next = self.requests.out_data.val().addr;
        self.m_rd_req_length.next = self.requests.out_data.val().length;
        self.m_rd_req_tag.next = self.requests.out_data.val().tag;
        self.m_rd_req_valid.next = self.requests.out_valid.val();
        self.requests.out_ready.next = self.m_rd_req_ready.val();

        comment!("completions, registered: data to the buffer, flags to the board");
        self.cpl_valid.d.next = self.s_rd_cpl_valid.val();
        self.cpl_tag.d.next = self.s_rd_cpl_tag.val().get_bits::<6>(0);
        self.cpl_chunk.d.next = self.s_rd_cpl_chunk.val();
        self.cpl_data.d.next = self.s_rd_cpl_data.val();
        self.cpl_flags.d.next = self.one_flag.val() << self.s_rd_cpl_chunk.val();
        if self.s_rd_cpl_err.val() {
            self.cpl_flags.d.next = self.all_flags.val();
        }
        self.buffer.write.next = self.cpl_valid.q.val();
        self.buffer.write_addr.next = (bit_cast::<9, 6>(self.cpl_tag.q.val()) << 3)
            | bit_cast::<9, 3>(self.cpl_chunk.q.val());
        self.buffer.write_data.next = self.cpl_data.q.val();
        self.board.set.next = self.cpl_valid.q.val();
        self.board.set_tag.next = self.cpl_tag.q.val();
        self.board.set_flags.next = self.cpl_flags.q.val();

        comment!("reader: the chunks of the oldest tag, each as soon as it is there");
        self.chunk_now.next = self.infos.out_data.val().first_chunk;
        if self.inside_tag.q.val() {
            self.chunk_now.next = self.chunk.q.val();
        }
        self.ends_tag.next = self.chunk_now.val() == self.infos.out_data.val().last_chunk;
        self.move_on.next = !self.valid_2.q.val() | self.realign.in_ready.val();
        self.go.next = self.infos.out_valid.val()
            & self.arrived.q.val().get_bit(self.chunk_now.val().index())
            & self.move_on.val();
        self.free.next = self.go.val() & self.ends_tag.val();
        self.infos.out_ready.next = self.free.val();
        self.board.clear.next = self.free.val();
        self.board.clear_tag.next = self.head.q.val();
        self.head_next.next = self.head.q.val() + 1;
        // `arrived` is the board's word of the oldest tag; the word of the next tag is at hand when this one is done.
        self.board.first_tag.next = self.head.q.val();
        self.board.second_tag.next = self.head_next.val();
        self.arrived.d.next = self.board.first.val();
        self.err_now.next = self.arrived.q.val().get_bit(8)
            | (self.failed.q.val() & !(self.infos.out_data.val().first & !self.inside_tag.q.val()));
        self.in_flight.d.next = self.in_flight_next.val();
        if self.free.val() {
            self.head.d.next = self.head_next.val();
            self.arrived.d.next = self.board.second.val();
            self.in_flight.d.next = self.in_flight_next.val() - 1;
        }
        if self.go.val() {
            self.failed.d.next = self.err_now.val();
            self.inside_tag.d.next = !self.ends_tag.val();
            self.chunk.d.next = self.chunk_now.val() + 1;
        }
        self.buffer.read.next = self.move_on.val();
        self.buffer.read_addr.next =
            (bit_cast::<9, 6>(self.head.q.val()) << 3) | bit_cast::<9, 3>(self.chunk_now.val());
        if self.move_on.val() {
            self.valid_1.d.next = self.go.val();
            self.chunk_1.d.next.nbytes = 64.into();
            if self.ends_tag.val() {
                self.chunk_1.d.next.nbytes = self.infos.out_data.val().nbytes;
            }
            self.chunk_1.d.next.last = self.infos.out_data.val().last & self.ends_tag.val();
            self.chunk_1.d.next.first = self.infos.out_data.val().first & !self.inside_tag.q.val();
            self.chunk_1.d.next.skip = self.infos.out_data.val().skip;
            self.chunk_1.d.next.client = self.infos.out_data.val().client;
            self.chunk_1.d.next.err = self.err_now.val();
            self.valid_2.d.next = self.valid_1.q.val();
            self.chunk_2.d.next = self.chunk_1.q.val();
        }

        comment!("aligner");
        self.realign.in_beat.next.data = self.buffer.read_data.val();
        self.realign.in_beat.next.nbytes = self.chunk_2.q.val().nbytes;
        self.realign.in_beat.next.last = self.chunk_2.q.val().last;
        self.realign.in_skip.next = bit_cast::<7, 6>(self.chunk_2.q.val().skip);
        self.realign.in_lane.next = 0.into();
        self.realign.in_valid.next = self.valid_2.q.val();
        self.clients.in_data.next = self.chunk_2.q.val().client;
        self.clients.in_valid.next =
            self.valid_2.q.val() & self.realign.in_ready.val() & self.chunk_2.q.val().first;
        self.errors.in_data.next = self.chunk_2.q.val().err;
        self.errors.in_valid.next =
            self.valid_2.q.val() & self.realign.in_ready.val() & self.chunk_2.q.val().last;

        comment!("to the client");
        self.deliver.next = self.realign.out_valid.val() & self.clients.out_valid.val();
        self.data0.next.data = self.realign.out_beat.val().data;
        self.data0.next.nbytes = self.realign.out_beat.val().nbytes;
        self.data0.next.last = self.realign.out_beat.val().last;
        self.data0_valid.next = self.deliver.val() & !self.clients.out_data.val().any();
        self.data0_err.next = self.errors.out_valid.val() & self.errors.out_data.val();
        self.data1.next.data = self.realign.out_beat.val().data;
        self.data1.next.nbytes = self.realign.out_beat.val().nbytes;
        self.data1.next.last = self.realign.out_beat.val().last;
        self.data1_valid.next = self.deliver.val() & self.clients.out_data.val().get_bit(0);
        self.data1_err.next = self.errors.out_valid.val() & self.errors.out_data.val();
        self.data2.next.data = self.realign.out_beat.val().data;
        self.data2.next.nbytes = self.realign.out_beat.val().nbytes;
        self.data2.next.last = self.realign.out_beat.val().last;
        self.data2_valid.next = self.deliver.val() & self.clients.out_data.val().get_bit(1);
        self.data2_err.next = self.errors.out_valid.val() & self.errors.out_data.val();
        self.wanted.next = self.data0_ready.val();
        if self.clients.out_data.val().get_bit(0) {
            self.wanted.next = self.data1_ready.val();
        }
        if self.clients.out_data.val().get_bit(1) {
            self.wanted.next = self.data2_ready.val();
        }
        self.realign.out_ready.next = self.wanted.val() & self.clients.out_valid.val();
        self.handed.next =
            self.deliver.val() & self.wanted.val() & self.realign.out_beat.val().last;
        self.clients.out_ready.next = self.handed.val();
        self.errors.out_ready.next = self.handed.val();
        self.busy.next = self.asks0.count.val().any()
            | self.asks1.count.val().any()
            | self.asks2.count.val().any()
            | self.arbiter.out_valid.val()
            | self.split.q.val()
            | self.in_flight.q.val().any()
            | self.valid_1.q.val()
            | self.valid_2.q.val()
            | self.realign.busy.val();
    }
}
