//! Memory regions: which addresses a key opens.

use super::layouts::MrFields;
use super::types::{CfgReq, MrAnswer, MrQuery};
use crate::leaf::{Ram, RamStyle, SyncFifo, Unpack};
use crate::prelude::*;
use mprdma_spec::command::Opcode;

/// One memory region.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct Region {
    pub valid: bool,
    pub generation: Bits<8>,
    pub rights: Bits<8>,
    pub pd: Bits<16>,
    pub va: Bits<64>,
    pub iova: Bits<64>,
    pub length: Bits<48>,
}

block! {
    /// Answers questions about memory regions, in order.
    ///
    /// - In: `query`; the configuration bus (REGISTER_MR, DEREGISTER_MR). Out: `answer`; `cfg_done`, `init_done`,
    ///   `busy`.
    /// - A hit needs an entry with the key's index and generation byte, and a range inside it; a length of 0 needs its
    ///   address inside or right after the region.
    /// - Latency: 7 cycles. Initiation interval: 1. Up to 8 questions are inside at a time.
    ///
    /// The table has 2^`MRW` entries and is cleared after reset; until `init_done` nothing is answered.
    pub struct MrTable[const MRW: usize][MRW] {
        in {
            clock: Clock,
            reset: Bit,
            cfg: CfgReq,
            cfg_valid: Bit,
            query: MrQuery,
            query_valid: Bit,
            answer_ready: Bit,
        }
        out {
            query_ready: Bit,
            answer: MrAnswer,
            answer_valid: Bit,
            cfg_done: Bit,
            init_done: Bit,
            busy: Bit,
        }
        local {
            take: Bit,
            now_inside: Bits<5>,
            slot: Bits<24>,
            entry: Region,
            fresh: Region,
            reach: Bits<49>,
            found: MrAnswer,
            registers: Bit,
            deregisters: Bit,
        }
        reg {
            clearing: Bits<MRW>,
            ready: Bit,
            served: Bit,
            cfg_answered: Bit,
            inside: Bits<5>,
            valid_1: Bit,
            valid_2: Bit,
            valid_3: Bit,
        }
        pipe {
            query_1: MrQuery,
            query_2: MrQuery,
            region_2: Region,
            in_table_1: Bit,
            in_table_2: Bit,
            offset_3: Bits<64>,
            length_3: Bits<32>,
            below_3: Bit,
            key_good_3: Bit,
            region_3: Region,
        }
        konst {
            register_mr: Bits<4> = bits(Opcode::RegisterMr as u64),
            deregister_mr: Bits<4> = bits(Opcode::DeregisterMr as u64),
            entries: Bits<24> = bits(1 << MRW),
            most: Bits<5> = bits(8),
            empty: Region = Region::default(),
        }
        sub {
            fields: Unpack<MrFields, 1024> = Unpack::default(),
            regions: Ram<Region, MRW> = Ram::new(RamStyle::Block, false),
            questions: SyncFifo<MrQuery, 3> = SyncFifo::shallow(),
            answers: SyncFifo<MrAnswer, 4> = SyncFifo::shallow(),
        }
    }
}

impl<const MRW: usize> Logic for MrTable<MRW> {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(
            self,
            clock,
            clearing,
            ready,
            served,
            cfg_answered,
            inside,
            valid_1,
            valid_2,
            valid_3,
            query_1,
            query_2,
            region_2,
            in_table_1,
            in_table_2,
            offset_3,
            length_3,
            below_3,
            key_good_3,
            region_3
        );
        clock!(self, clock, regions, questions, answers);
        self.questions.reset.next = self.reset.val();
        self.answers.reset.next = self.reset.val();

        comment!("the table: cleared after reset, then written by commands");
        self.fields.image.next = self.cfg.val().image;
        self.fresh.next.valid = true;
        self.fresh.next.generation = self.fields.record.val().key.get_bits::<8>(0);
        self.fresh.next.rights = self.fields.record.val().rights;
        self.fresh.next.pd = self.fields.record.val().pd;
        self.fresh.next.va = self.fields.record.val().va;
        self.fresh.next.iova = self.fields.record.val().iova;
        self.fresh.next.length = self.fields.record.val().length;
        self.registers.next = self.cfg.val().op == self.register_mr.val();
        self.deregisters.next = self.cfg.val().op == self.deregister_mr.val();
        self.regions.write.next = false;
        self.regions.write_addr.next = self.cfg.val().index.get_bits::<MRW>(0);
        self.regions.write_data.next = self.empty.val();
        self.cfg_answered.d.next = false;
        if !self.ready.q.val() {
            self.regions.write.next = true;
            self.regions.write_addr.next = self.clearing.q.val();
            self.clearing.d.next = self.clearing.q.val() + 1;
            self.ready.d.next = self.clearing.q.val().all();
        } else if !self.cfg_valid.val() {
            self.served.d.next = false;
        } else if !self.served.q.val() {
            self.served.d.next = true;
            self.cfg_answered.d.next = true;
            self.regions.write.next = self.registers.val() | self.deregisters.val();
            if self.registers.val() {
                self.regions.write_data.next = self.fresh.val();
            }
        }
        self.cfg_done.next = self.cfg_answered.q.val();
        self.init_done.next = self.ready.q.val();

        comment!("T0: address");
        self.questions.in_data.next = self.query.val();
        self.questions.in_valid.next = self.query_valid.val();
        self.query_ready.next = self.questions.in_ready.val();
        self.take.next = self.questions.out_valid.val()
            & self.ready.q.val()
            & (self.inside.q.val() < self.most.val());
        self.questions.out_ready.next = self.take.val();
        self.slot.next = self.questions.out_data.val().key.get_bits::<24>(8);
        self.regions.read.next = true;
        self.regions.read_addr.next = self.slot.val().get_bits::<MRW>(0);
        self.query_1.d.next = self.questions.out_data.val();
        self.in_table_1.d.next = self.slot.val() < self.entries.val();
        self.valid_1.d.next = self.take.val();
        comment!("T1: the entry arrives");
        self.entry.next = self.regions.read_data.val();
        self.query_2.d.next = self.query_1.q.val();
        self.region_2.d.next = self.entry.val();
        self.in_table_2.d.next = self.in_table_1.q.val();
        self.valid_2.d.next = self.valid_1.q.val();
        comment!("T2: key and offset");
        self.offset_3.d.next = self.query_2.q.val().va - self.region_2.q.val().va;
        self.below_3.d.next = self.query_2.q.val().va < self.region_2.q.val().va;
        self.key_good_3.d.next = self.in_table_2.q.val()
            & self.region_2.q.val().valid
            & (self.query_2.q.val().key.get_bits::<8>(0) == self.region_2.q.val().generation);
        self.length_3.d.next = self.query_2.q.val().length;
        self.region_3.d.next = self.region_2.q.val();
        self.valid_3.d.next = self.valid_2.q.val();
        comment!("T3: bounds and translation");
        self.reach.next = bit_cast::<49, 48>(self.offset_3.q.val().get_bits::<48>(0))
            + bit_cast::<49, 32>(self.length_3.q.val());
        self.found.next.hit = self.key_good_3.q.val()
            & !self.below_3.q.val()
            & !self.offset_3.q.val().get_bits::<16>(48).any()
            & (self.reach.val() <= bit_cast::<49, 48>(self.region_3.q.val().length));
        self.found.next.rights = self.region_3.q.val().rights;
        self.found.next.pd = self.region_3.q.val().pd;
        self.found.next.iova = self.region_3.q.val().iova + self.offset_3.q.val();
        self.answers.in_data.next = self.found.val();
        self.answers.in_valid.next = self.valid_3.q.val();
        self.answer.next = self.answers.out_data.val();
        self.answer_valid.next = self.answers.out_valid.val();
        self.answers.out_ready.next = self.answer_ready.val();
        comment!("questions whose answer has not been taken");
        self.now_inside.next = self.inside.q.val();
        if self.take.val() {
            self.now_inside.next = self.inside.q.val() + 1;
        }
        self.inside.d.next = self.now_inside.val();
        if self.answers.out_valid.val() & self.answer_ready.val() {
            self.inside.d.next = self.now_inside.val() - 1;
        }
        self.busy.next = self.questions.out_valid.val() | self.inside.q.val().any();
    }
}
