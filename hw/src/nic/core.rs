//! The core: every block, wired.

use super::atomic_unit::AtomicUnit;
use super::control::counters::Events;
use super::control::Registers;
use super::cq_writer::CqWriter;
use super::eq_writer::EqWriter;
use super::moderator::Moderator;
use super::mr_table::MrTable;
use super::place::Place;
use super::read_book::ReadBook;
use super::receiver::ReceiverEngine;
use super::rx_classify::RxClassify;
use super::rx_parse::RxParse;
use super::segment::Segment;
use super::sender::Sender;
use super::sq_fetch::SqFetch;
use super::telemetry::Telemetry;
use super::tx_build::TxBuild;
use super::tx_complete::TxComplete;
use super::types::QpError;
use crate::dma::{DmaRead, DmaWrite};
use crate::leaf::Arbiter4;
use crate::prelude::*;
use mprdma_spec::config::{self, Config};

block! {
    /// The NIC between AXI4-Lite, PCIe and the MAC. `docs/architecture.md` follows a WRITE through it.
    ///
    /// - `s_axil_*`: BAR0. `m_rd_req_*`, `s_rd_cpl_*`, `m_wr_*`, `m_irq_*`: host memory, as [`DmaRead`] and [`DmaWrite`]
    ///   say. `m_axis_tx_*`, `s_axis_rx_*`: frames without FCS; `tuser` with `tlast` says that the MAC found one bad.
    /// - `busy`: something inside is not finished, or a timer runs.
    ///
    /// Generics: log2 of QPs, the same plus 1, the same plus 6, log2 of CQs, log2 of MRs, address width of the object
    /// table (the largest of them plus 2), log2 of QPs plus 5, the same plus 4, slots of the reorder bitmap.
    pub struct Core[const QPW: usize, const LISTW: usize, const RINGW: usize, const CQW: usize, const MRW: usize, const OBJW: usize, const TW: usize, const SLOTW: usize, const L: usize]
        [QPW, LISTW, RINGW, CQW, MRW, OBJW, TW, SLOTW, L] {
        in {
            clock: Clock,
            reset: Bit,
            s_axil_awaddr: Bits<24>,
            s_axil_awvalid: Bit,
            s_axil_wdata: Bits<32>,
            s_axil_wvalid: Bit,
            s_axil_bready: Bit,
            s_axil_araddr: Bits<24>,
            s_axil_arvalid: Bit,
            s_axil_rready: Bit,
            m_rd_req_ready: Bit,
            s_rd_cpl_valid: Bit,
            s_rd_cpl_tag: Bits<8>,
            s_rd_cpl_chunk: Bits<3>,
            s_rd_cpl_data: Bits<512>,
            s_rd_cpl_err: Bit,
            m_wr_ready: Bit,
            m_irq_ready: Bit,
            m_axis_tx_tready: Bit,
            s_axis_rx_tdata: Bits<512>,
            s_axis_rx_tkeep: Bits<64>,
            s_axis_rx_tlast: Bit,
            s_axis_rx_tvalid: Bit,
            s_axis_rx_tuser: Bit,
        }
        out {
            s_axil_awready: Bit,
            s_axil_wready: Bit,
            s_axil_bresp: Bits<2>,
            s_axil_bvalid: Bit,
            s_axil_arready: Bit,
            s_axil_rdata: Bits<32>,
            s_axil_rresp: Bits<2>,
            s_axil_rvalid: Bit,
            m_rd_req_addr: Bits<64>,
            m_rd_req_length: Bits<13>,
            m_rd_req_tag: Bits<8>,
            m_rd_req_valid: Bit,
            m_wr_addr: Bits<64>,
            m_wr_data: Bits<512>,
            m_wr_be: Bits<64>,
            m_wr_sop: Bit,
            m_wr_eop: Bit,
            m_wr_valid: Bit,
            m_irq_vector: Bits<8>,
            m_irq_valid: Bit,
            m_axis_tx_tdata: Bits<512>,
            m_axis_tx_tkeep: Bits<64>,
            m_axis_tx_tlast: Bit,
            m_axis_tx_tvalid: Bit,
            busy: Bit,
        }
        local {
            events: Events,
        }
        reg {
            hold: Bit = true,
            // An ATOMIC's failed read that came together with another one.
            failed_too: Bit,
            is_ready: Bit,
            is_busy: Bit,
        }
        sub {
            registers: Registers<OBJW> = Registers::new(&config::SIM),
            sq_fetch: SqFetch<QPW, LISTW> = SqFetch::default(),
            send_regions: MrTable<MRW> = MrTable::default(),
            sender: Sender<QPW, L> = Sender::default(),
            segment: Segment<QPW, RINGW> = Segment::default(),
            dma_read: DmaRead = DmaRead::default(),
            tx_build: TxBuild<QPW> = TxBuild::new(L),
            tx_complete: TxComplete<QPW, RINGW> = TxComplete::default(),
            rx_parse: RxParse<10> = RxParse::new(L),
            classify: RxClassify<QPW> = RxClassify::default(),
            receive_regions: MrTable<MRW> = MrTable::default(),
            receiver: ReceiverEngine<QPW, L> = ReceiverEngine::default(),
            place: Place<QPW, TW> = Place::default(),
            read_book: ReadBook<QPW, LISTW, SLOTW> = ReadBook::default(),
            atomic_unit: AtomicUnit = AtomicUnit::default(),
            cq_writer: CqWriter<CQW> = CqWriter::default(),
            eq_writer: EqWriter = EqWriter::default(),
            dma_write: DmaWrite = DmaWrite::default(),
            moderator: Moderator = Moderator::default(),
            errors: Arbiter4<QpError> = Arbiter4::default(),
            telemetry: Telemetry<QPW> = Telemetry::default(),
        }
    }
}

/// The card that the simulator runs: `spec::config::SIM`.
pub type SimCore = Core<10, 11, 16, 6, 8, 12, 15, 14, 128>;

/// The same with 64 slots: `spec::config::SIM_L64`.
pub type SimL64Core = Core<10, 11, 16, 6, 8, 12, 15, 14, 64>;

impl<
        const QPW: usize,
        const LISTW: usize,
        const RINGW: usize,
        const CQW: usize,
        const MRW: usize,
        const OBJW: usize,
        const TW: usize,
        const SLOTW: usize,
        const L: usize,
    > Core<QPW, LISTW, RINGW, CQW, MRW, OBJW, TW, SLOTW, L>
{
    /// The core of an image with `config`.
    ///
    /// # Panics
    /// When the generics are not those of `config`.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        assert_eq!(
            (QPW, CQW, MRW, L),
            (
                config.qp_log2,
                config.cq_log2,
                config.mr_log2,
                config.bitmap_slots
            )
        );
        assert_eq!((LISTW, RINGW), (QPW + 1, QPW + config::MESSAGE_RING_LOG2));
        assert_eq!(TW, QPW + config::RECEIVE_WINDOW_LOG2);
        assert_eq!(SLOTW, QPW + config::READ_SLOTS_LOG2);
        Self {
            registers: Registers::new(config),
            ..Self::default()
        }
    }
}

impl<
        const QPW: usize,
        const LISTW: usize,
        const RINGW: usize,
        const CQW: usize,
        const MRW: usize,
        const OBJW: usize,
        const TW: usize,
        const SLOTW: usize,
        const L: usize,
    > Logic for Core<QPW, LISTW, RINGW, CQW, MRW, OBJW, TW, SLOTW, L>
{
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, hold, failed_too, is_ready, is_busy);
        clock!(self, clock, registers, errors);
        clock!(
            self,
            clock,
            sq_fetch,
            send_regions,
            sender,
            segment,
            dma_read,
            tx_build,
            tx_complete,
            rx_parse,
            classify,
            receive_regions,
            receiver,
            place,
            read_book,
            atomic_unit,
            cq_writer,
            eq_writer,
            dma_write,
            moderator,
            telemetry
        );
        comment!("a soft reset holds everything but the registers");
        self.hold.d.next = self.registers.soft_reset.val();
        self.registers.reset.next = self.reset.val();
        self.sq_fetch.reset.next = self.hold.q.val();
        self.send_regions.reset.next = self.hold.q.val();
        self.sender.reset.next = self.hold.q.val();
        self.segment.reset.next = self.hold.q.val();
        self.dma_read.reset.next = self.hold.q.val();
        self.tx_build.reset.next = self.hold.q.val();
        self.tx_complete.reset.next = self.hold.q.val();
        self.rx_parse.reset.next = self.hold.q.val();
        self.classify.reset.next = self.hold.q.val();
        self.receive_regions.reset.next = self.hold.q.val();
        self.receiver.reset.next = self.hold.q.val();
        self.place.reset.next = self.hold.q.val();
        self.read_book.reset.next = self.hold.q.val();
        self.atomic_unit.reset.next = self.hold.q.val();
        self.cq_writer.reset.next = self.hold.q.val();
        self.eq_writer.reset.next = self.hold.q.val();
        self.dma_write.reset.next = self.hold.q.val();
        self.moderator.reset.next = self.hold.q.val();
        self.errors.reset.next = self.hold.q.val();
        self.telemetry.reset.next = self.hold.q.val();

        comment!("BAR0");
        self.registers.s_axil_awaddr.next = self.s_axil_awaddr.val();
        self.registers.s_axil_awvalid.next = self.s_axil_awvalid.val();
        self.registers.s_axil_wdata.next = self.s_axil_wdata.val();
        self.registers.s_axil_wvalid.next = self.s_axil_wvalid.val();
        self.registers.s_axil_bready.next = self.s_axil_bready.val();
        self.registers.s_axil_araddr.next = self.s_axil_araddr.val();
        self.registers.s_axil_arvalid.next = self.s_axil_arvalid.val();
        self.registers.s_axil_rready.next = self.s_axil_rready.val();
        self.s_axil_awready.next = self.registers.s_axil_awready.val();
        self.s_axil_wready.next = self.registers.s_axil_wready.val();
        self.s_axil_bresp.next = self.registers.s_axil_bresp.val();
        self.s_axil_bvalid.next = self.registers.s_axil_bvalid.val();
        self.s_axil_arready.next = self.registers.s_axil_arready.val();
        self.s_axil_rdata.next = self.registers.s_axil_rdata.val();
        self.s_axil_rresp.next = self.registers.s_axil_rresp.val();
        self.s_axil_rvalid.next = self.registers.s_axil_rvalid.val();
        self.sq_fetch.cfg.next = self.registers.cfg.val();
        self.sq_fetch.cfg_valid.next = self.registers.cfg_valid.val();
        self.sender.cfg.next = self.registers.cfg.val();
        self.sender.cfg_valid.next = self.registers.cfg_valid.val();
        self.segment.cfg.next = self.registers.cfg.val();
        self.segment.cfg_valid.next = self.registers.cfg_valid.val();
        self.tx_build.cfg.next = self.registers.cfg.val();
        self.tx_build.cfg_valid.next = self.registers.cfg_valid.val();
        self.tx_complete.cfg.next = self.registers.cfg.val();
        self.tx_complete.cfg_valid.next = self.registers.cfg_valid.val();
        self.receiver.cfg.next = self.registers.cfg.val();
        self.receiver.cfg_valid.next = self.registers.cfg_valid.val();
        self.send_regions.cfg.next = self.registers.cfg.val();
        self.send_regions.cfg_valid.next = self.registers.cfg_valid.val();
        self.receive_regions.cfg.next = self.registers.cfg.val();
        self.receive_regions.cfg_valid.next = self.registers.cfg_valid.val();
        self.read_book.cfg.next = self.registers.cfg.val();
        self.read_book.cfg_valid.next = self.registers.cfg_valid.val();
        self.cq_writer.cfg.next = self.registers.cfg.val();
        self.cq_writer.cfg_valid.next = self.registers.cfg_valid.val();
        self.eq_writer.cfg.next = self.registers.cfg.val();
        self.eq_writer.cfg_valid.next = self.registers.cfg_valid.val();
        self.telemetry.cfg.next = self.registers.cfg.val();
        self.telemetry.cfg_valid.next = self.registers.cfg_valid.val();
        self.registers.done.next = bit_cast::<12, 1>(self.sq_fetch.cfg_done.val().into())
            | (bit_cast::<12, 1>(self.sender.cfg_done.val().into()) << 1)
            | (bit_cast::<12, 1>(self.segment.cfg_done.val().into()) << 2)
            | (bit_cast::<12, 1>(self.tx_build.cfg_done.val().into()) << 3)
            | (bit_cast::<12, 1>(self.tx_complete.cfg_done.val().into()) << 4)
            | (bit_cast::<12, 1>(self.receiver.cfg_done.val().into()) << 5)
            | (bit_cast::<12, 1>(self.send_regions.cfg_done.val().into()) << 6)
            | (bit_cast::<12, 1>(self.receive_regions.cfg_done.val().into()) << 7)
            | (bit_cast::<12, 1>(self.cq_writer.cfg_done.val().into()) << 8)
            | (bit_cast::<12, 1>(self.eq_writer.cfg_done.val().into()) << 9)
            | (bit_cast::<12, 1>(self.telemetry.cfg_done.val().into()) << 10)
            | (bit_cast::<12, 1>(self.read_book.cfg_done.val().into()) << 11);
        self.registers.sender_status.next = self.sender.cfg_result.val();
        self.registers.receiver_status.next = self.receiver.cfg_result.val();
        self.registers.telemetry.next = self.telemetry.cfg_result.val();
        self.registers.tx_marker.next = self.tx_build.tx_marker.val();
        self.registers.rx_marker.next = self.read_book.rx_marker.val();
        self.registers.acks_busy.next = self.place.ack_valid.val() | self.tx_build.acks_busy.val();
        self.is_ready.d.next = self.sq_fetch.init_done.val()
            & self.sender.init_done.val()
            & self.segment.init_done.val()
            & self.tx_complete.init_done.val()
            & self.receiver.init_done.val()
            & self.send_regions.init_done.val()
            & self.receive_regions.init_done.val()
            & self.read_book.init_done.val()
            & self.cq_writer.init_done.val();
        self.registers.ready.next = self.is_ready.q.val();
        self.is_busy.d.next = self.sq_fetch.busy.val()
            | self.send_regions.busy.val()
            | self.sender.busy.val()
            | self.segment.busy.val()
            | self.dma_read.busy.val()
            | self.tx_build.busy.val()
            | self.tx_complete.busy.val()
            | self.rx_parse.busy.val()
            | self.classify.busy.val()
            | self.receive_regions.busy.val()
            | self.receiver.busy.val()
            | self.place.busy.val()
            | self.read_book.busy.val()
            | self.atomic_unit.busy.val()
            | self.cq_writer.busy.val()
            | self.eq_writer.busy.val()
            | self.dma_write.busy.val()
            | self.moderator.busy.val()
            | self.telemetry.busy.val();
        self.registers.working.next = self.is_busy.q.val();
        self.busy.next = self.is_busy.q.val() | self.registers.busy.val();
        self.sender.tick.next = self.registers.tick.val();
        self.sender.tick_pulse.next = self.registers.tick_pulse.val();
        self.place.written.next = self.dma_write.written0.val();
        self.tx_build.tick.next = self.registers.tick.val();
        self.cq_writer.tick.next = self.registers.tick.val();
        self.tx_build.mac.next = self.registers.mac.val();
        self.rx_parse.mac.next = self.registers.mac.val();
        self.classify.enable.next = self.registers.enable.val();

        comment!("doorbells");
        self.sq_fetch.sq_db.next = self.registers.sq_db.val();
        self.sq_fetch.sq_db_valid.next = self.registers.sq_db_valid.val();
        self.registers.sq_db_ready.next = self.sq_fetch.sq_db_ready.val();
        self.classify.rq_db.next = self.registers.rq_db.val();
        self.classify.rq_db_valid.next = self.registers.rq_db_valid.val();
        self.registers.rq_db_ready.next = self.classify.rq_db_ready.val();
        self.cq_writer.cq_db.next = self.registers.cq_db.val();
        self.cq_writer.cq_db_valid.next = self.registers.cq_db_valid.val();
        self.registers.cq_db_ready.next = self.cq_writer.cq_db_ready.val();
        self.eq_writer.eq_db.next = self.registers.eq_db.val();
        self.eq_writer.eq_db_valid.next = self.registers.eq_db_valid.val();
        self.registers.eq_db_ready.next = self.eq_writer.eq_db_ready.val();

        comment!("send side");
        self.dma_read.req0.next = self.sq_fetch.read_req.val();
        self.dma_read.req0_valid.next = self.sq_fetch.read_req_valid.val();
        self.sq_fetch.read_req_ready.next = self.dma_read.req0_ready.val();
        self.send_regions.query.next = self.sq_fetch.query.val();
        self.send_regions.query_valid.next = self.sq_fetch.query_valid.val();
        self.sq_fetch.query_ready.next = self.send_regions.query_ready.val();
        self.sq_fetch.answer.next = self.send_regions.answer.val();
        self.sq_fetch.answer_valid.next = self.send_regions.answer_valid.val();
        self.send_regions.answer_ready.next = self.sq_fetch.answer_ready.val();
        self.segment.launch.next = self.sq_fetch.launch.val();
        self.segment.launch_valid.next = self.sq_fetch.launch_valid.val()
            & self.tx_complete.launch_ready.val()
            & self.read_book.launch_ready.val();
        self.tx_complete.launch.next = self.sq_fetch.launch.val();
        self.tx_complete.launch_valid.next = self.sq_fetch.launch_valid.val()
            & self.segment.launch_ready.val()
            & self.read_book.launch_ready.val();
        self.read_book.launch.next = self.sq_fetch.launch.val();
        self.read_book.launch_valid.next = self.sq_fetch.launch_valid.val()
            & self.segment.launch_ready.val()
            & self.tx_complete.launch_ready.val();
        self.sq_fetch.launch_ready.next = self.segment.launch_ready.val()
            & self.tx_complete.launch_ready.val()
            & self.read_book.launch_ready.val();
        self.sq_fetch.respond.next = self.read_book.respond.val();
        self.sq_fetch.respond_valid.next = self.read_book.respond_valid.val();
        self.read_book.respond_ready.next = self.sq_fetch.respond_ready.val();
        self.read_book.responded.next = self.sq_fetch.responded.val();
        self.read_book.responded_valid.next = self.sq_fetch.responded_valid.val();
        self.sq_fetch.responded_ready.next = self.read_book.responded_ready.val();
        self.sq_fetch.read_done.next = self.read_book.done.val();
        self.sq_fetch.read_done_valid.next =
            self.read_book.done_valid.val() & self.tx_complete.read_done_ready.val();
        self.tx_complete.read_done.next = self.read_book.done.val();
        self.tx_complete.read_done_valid.next =
            self.read_book.done_valid.val() & self.sq_fetch.read_done_ready.val();
        self.read_book.done_ready.next =
            self.sq_fetch.read_done_ready.val() & self.tx_complete.read_done_ready.val();
        self.sender.tx_held.next = self.tx_build.held.val();
        self.sender.work.next = self.sq_fetch.work.val();
        self.sender.work_valid.next = self.sq_fetch.work_valid.val();
        self.sq_fetch.work_ready.next = self.sender.work_ready.val();
        self.sq_fetch.sync_passed.next = self.sender.sync_passed.val();
        self.sq_fetch.sync_passed_valid.next = self.sender.sync_passed_valid.val();
        self.sender.sync_passed_ready.next = self.sq_fetch.sync_passed_ready.val();
        self.segment.grant.next = self.sender.grant.val();
        self.segment.grant_valid.next = self.sender.grant_valid.val();
        self.sender.grant_ready.next = self.segment.grant_ready.val();
        self.tx_complete.progress.next = self.sender.progress.val();
        self.tx_complete.progress_valid.next = self.sender.progress_valid.val();
        self.sender.progress_ready.next = self.tx_complete.progress_ready.val();
        self.tx_build.packet.next = self.segment.packet.val();
        self.tx_build.packet_valid.next = self.segment.packet_valid.val();
        self.segment.packet_ready.next = self.tx_build.packet_ready.val();
        self.dma_read.req1.next = self.segment.payload_req.val();
        self.dma_read.req1_valid.next = self.segment.payload_req_valid.val();
        self.segment.payload_req_ready.next = self.dma_read.req1_ready.val();
        self.sq_fetch.retired.next = self.tx_complete.retired.val();
        self.sq_fetch.retired_valid.next =
            self.tx_complete.retired_valid.val() & self.segment.retired_ready.val();
        self.segment.retired.next = self.tx_complete.retired.val();
        self.segment.retired_valid.next =
            self.tx_complete.retired_valid.val() & self.sq_fetch.retired_ready.val();
        self.tx_complete.retired_ready.next =
            self.sq_fetch.retired_ready.val() & self.segment.retired_ready.val();
        self.cq_writer.send.next = self.tx_complete.completion.val();
        self.cq_writer.send_valid.next = self.tx_complete.completion_valid.val();
        self.tx_complete.completion_ready.next = self.cq_writer.send_ready.val();

        comment!("receive side");
        self.classify.meta.next = self.rx_parse.meta.val();
        self.classify.meta_valid.next = self.rx_parse.meta_valid.val();
        self.rx_parse.meta_ready.next = self.classify.meta_ready.val();
        self.place.frame.next = self.rx_parse.frame.val();
        self.place.frame_valid.next = self.rx_parse.frame_valid.val();
        self.rx_parse.frame_ready.next = self.place.frame_ready.val();
        self.sender.ack.next = self.classify.ack.val();
        self.sender.ack_valid.next = self.classify.ack_valid.val();
        self.classify.ack_ready.next = self.sender.ack_ready.val();
        self.receive_regions.query.next = self.classify.query.val();
        self.receive_regions.query_valid.next = self.classify.query_valid.val();
        self.classify.query_ready.next = self.receive_regions.query_ready.val();
        self.classify.answer.next = self.receive_regions.answer.val();
        self.classify.answer_valid.next = self.receive_regions.answer_valid.val();
        self.receive_regions.answer_ready.next = self.classify.answer_ready.val();
        self.read_book.query.next = self.classify.read_query.val();
        self.read_book.query_valid.next = self.classify.read_query_valid.val();
        self.classify.read_query_ready.next = self.read_book.query_ready.val();
        self.classify.read_answer.next = self.read_book.answer.val();
        self.classify.read_answer_valid.next = self.read_book.answer_valid.val();
        self.read_book.answer_ready.next = self.classify.read_answer_ready.val();
        self.read_book.arrival.next = self.place.arrival.val();
        self.read_book.arrival_valid.next = self.place.arrival_valid.val();
        self.place.arrival_ready.next = self.read_book.arrival_ready.val();
        self.receiver.rx.next = self.classify.rx.val();
        self.receiver.rx_valid.next = self.classify.rx_valid.val();
        self.classify.rx_ready.next = self.receiver.rx_ready.val();
        self.place.action.next = self.receiver.action.val();
        self.place.action_valid.next = self.receiver.action_valid.val();
        self.receiver.action_ready.next = self.place.action_ready.val();
        self.tx_build.ack.next = self.place.ack.val();
        self.tx_build.ack_valid.next = self.place.ack_valid.val();
        self.place.ack_ready.next = self.tx_build.ack_ready.val();
        self.cq_writer.receive.next = self.place.completion.val();
        self.cq_writer.receive_valid.next = self.place.completion_valid.val();
        self.place.completion_ready.next = self.cq_writer.receive_ready.val();

        comment!("ATOMICs");
        self.atomic_unit.op.next = self.read_book.execute.val();
        self.atomic_unit.op_valid.next = self.read_book.execute_valid.val();
        self.read_book.execute_ready.next = self.atomic_unit.op_ready.val();
        self.read_book.result.next = self.atomic_unit.result.val();
        self.read_book.result_valid.next = self.atomic_unit.result_valid.val();
        self.atomic_unit.result_ready.next = self.read_book.result_ready.val();
        self.read_book.atomics_busy.next = self.atomic_unit.busy.val();
        self.dma_read.req2.next = self.atomic_unit.read_req.val();
        self.dma_read.req2_valid.next = self.atomic_unit.read_req_valid.val();
        self.atomic_unit.read_req_ready.next = self.dma_read.req2_ready.val();
        self.atomic_unit.read.next = self.dma_read.data2.val();
        self.atomic_unit.read_valid.next = self.dma_read.data2_valid.val();
        self.atomic_unit.read_err.next = self.dma_read.data2_err.val();
        self.dma_read.data2_ready.next = self.atomic_unit.read_ready.val();
        self.dma_write.req3.next = self.atomic_unit.request.val();
        self.dma_write.req3_valid.next = self.atomic_unit.request_valid.val();
        self.atomic_unit.request_ready.next = self.dma_write.req3_ready.val();
        self.dma_write.data3.next = self.atomic_unit.data.val();
        self.dma_write.data3_valid.next = self.atomic_unit.data_valid.val();
        self.atomic_unit.data_ready.next = self.dma_write.data3_ready.val();
        self.atomic_unit.written.next = self.dma_write.written3.val();

        comment!("to host memory");
        self.dma_write.req0.next = self.place.request.val();
        self.dma_write.req0_valid.next = self.place.request_valid.val();
        self.place.request_ready.next = self.dma_write.req0_ready.val();
        self.dma_write.data0.next = self.place.data.val();
        self.dma_write.data0_valid.next = self.place.data_valid.val();
        self.place.data_ready.next = self.dma_write.data0_ready.val();
        self.dma_write.req1.next = self.cq_writer.request.val();
        self.dma_write.req1_valid.next = self.cq_writer.request_valid.val();
        self.cq_writer.request_ready.next = self.dma_write.req1_ready.val();
        self.dma_write.data1.next = self.cq_writer.data.val();
        self.dma_write.data1_valid.next = self.cq_writer.data_valid.val();
        self.cq_writer.data_ready.next = self.dma_write.data1_ready.val();
        self.dma_write.irq1.next = self.cq_writer.irq.val();
        self.dma_write.irq1_valid.next = self.cq_writer.irq_valid.val();
        self.cq_writer.irq_ready.next = self.dma_write.irq1_ready.val();
        self.dma_write.req2.next = self.eq_writer.request.val();
        self.dma_write.req2_valid.next = self.eq_writer.request_valid.val();
        self.eq_writer.request_ready.next = self.dma_write.req2_ready.val();
        self.dma_write.data2.next = self.eq_writer.data.val();
        self.dma_write.data2_valid.next = self.eq_writer.data_valid.val();
        self.eq_writer.data_ready.next = self.dma_write.data2_ready.val();
        self.dma_write.irq2.next = self.eq_writer.irq.val();
        self.dma_write.irq2_valid.next = self.eq_writer.irq_valid.val();
        self.eq_writer.irq_ready.next = self.dma_write.irq2_ready.val();

        comment!("errors");
        self.sq_fetch.qp_error.next = self.tx_complete.qp_error.val();
        self.sq_fetch.qp_error_valid.next = self.tx_complete.qp_error_valid.val()
            & self.classify.error_ready.val()
            & self.eq_writer.fatal_ready.val()
            & self.errors.in_ready[0].val();
        self.classify.error.next = self.tx_complete.qp_error.val();
        self.classify.error_valid.next = self.tx_complete.qp_error_valid.val()
            & self.sq_fetch.qp_error_ready.val()
            & self.eq_writer.fatal_ready.val()
            & self.errors.in_ready[0].val();
        self.eq_writer.fatal.next = self.tx_complete.qp_error.val();
        self.eq_writer.fatal_valid.next = self.tx_complete.qp_error_valid.val()
            & self.sq_fetch.qp_error_ready.val()
            & self.classify.error_ready.val()
            & self.errors.in_ready[0].val();
        self.errors.in_data[0].next = self.tx_complete.qp_error.val();
        self.errors.in_valid[0].next = self.tx_complete.qp_error_valid.val()
            & self.sq_fetch.qp_error_ready.val()
            & self.classify.error_ready.val()
            & self.eq_writer.fatal_ready.val();
        self.tx_complete.qp_error_ready.next = self.sq_fetch.qp_error_ready.val()
            & self.classify.error_ready.val()
            & self.eq_writer.fatal_ready.val()
            & self.errors.in_ready[0].val();
        self.errors.in_data[1].next = self.receiver.error.val();
        self.errors.in_valid[1].next = self.receiver.error_valid.val();
        self.receiver.error_ready.next = self.errors.in_ready[1].val();
        self.errors.in_data[2].next = self.tx_build.error.val();
        self.errors.in_valid[2].next = self.tx_build.error_valid.val();
        self.tx_build.error_ready.next = self.errors.in_ready[2].val();
        self.errors.in_data[3].next = self.atomic_unit.error.val();
        self.errors.in_valid[3].next = self.atomic_unit.error_valid.val();
        self.atomic_unit.error_ready.next = self.errors.in_ready[3].val();
        self.sender.error.next = self.errors.out_data.val();
        self.sender.error_valid.next = self.errors.out_valid.val();
        self.errors.out_ready.next = self.sender.error_ready.val();
        self.eq_writer.access.next = self.receiver.access.val();
        self.eq_writer.access_valid.next = self.receiver.access_valid.val();
        self.receiver.access_ready.next = self.eq_writer.access_ready.val();
        self.eq_writer.cq_event.next = self.cq_writer.notice.val();
        self.eq_writer.cq_event_valid.next = self.cq_writer.notice_valid.val();
        self.cq_writer.notice_ready.next = self.eq_writer.cq_event_ready.val();

        comment!("PCIe");
        self.m_rd_req_addr.next = self.dma_read.m_rd_req_addr.val();
        self.m_rd_req_length.next = self.dma_read.m_rd_req_length.val();
        self.m_rd_req_tag.next = self.dma_read.m_rd_req_tag.val();
        self.m_rd_req_valid.next = self.dma_read.m_rd_req_valid.val();
        self.dma_read.m_rd_req_ready.next = self.m_rd_req_ready.val();
        self.dma_read.s_rd_cpl_valid.next = self.s_rd_cpl_valid.val();
        self.dma_read.s_rd_cpl_tag.next = self.s_rd_cpl_tag.val();
        self.dma_read.s_rd_cpl_chunk.next = self.s_rd_cpl_chunk.val();
        self.dma_read.s_rd_cpl_data.next = self.s_rd_cpl_data.val();
        self.dma_read.s_rd_cpl_err.next = self.s_rd_cpl_err.val();
        self.sq_fetch.read.next = self.dma_read.data0.val();
        self.sq_fetch.read_valid.next = self.dma_read.data0_valid.val();
        self.sq_fetch.read_err.next = self.dma_read.data0_err.val();
        self.dma_read.data0_ready.next = self.sq_fetch.read_ready.val();
        self.tx_build.payload.next = self.dma_read.data1.val();
        self.tx_build.payload_valid.next = self.dma_read.data1_valid.val();
        self.tx_build.payload_err.next = self.dma_read.data1_err.val();
        self.dma_read.data1_ready.next = self.tx_build.payload_ready.val();
        self.m_wr_addr.next = self.dma_write.m_wr_addr.val();
        self.m_wr_data.next = self.dma_write.m_wr_data.val();
        self.m_wr_be.next = self.dma_write.m_wr_be.val();
        self.m_wr_sop.next = self.dma_write.m_wr_sop.val();
        self.m_wr_eop.next = self.dma_write.m_wr_eop.val();
        self.m_wr_valid.next = self.dma_write.m_wr_valid.val();
        self.dma_write.m_wr_ready.next = self.m_wr_ready.val();
        for i in 0..8 {
            self.moderator.interval[i].next = self.registers.interval[i].val();
        }
        self.moderator.irq.next = self.dma_write.m_irq_vector.val();
        self.moderator.irq_valid.next = self.dma_write.m_irq_valid.val();
        self.dma_write.m_irq_ready.next = self.moderator.irq_ready.val();
        self.m_irq_vector.next = self.moderator.m_irq_vector.val();
        self.m_irq_valid.next = self.moderator.m_irq_valid.val();
        self.moderator.m_irq_ready.next = self.m_irq_ready.val();

        comment!("the port");
        self.m_axis_tx_tdata.next = self.tx_build.m_axis_tx_tdata.val();
        self.m_axis_tx_tkeep.next = self.tx_build.m_axis_tx_tkeep.val();
        self.m_axis_tx_tlast.next = self.tx_build.m_axis_tx_tlast.val();
        self.m_axis_tx_tvalid.next = self.tx_build.m_axis_tx_tvalid.val();
        self.tx_build.m_axis_tx_tready.next = self.m_axis_tx_tready.val();
        self.rx_parse.s_axis_rx_tdata.next = self.s_axis_rx_tdata.val();
        self.rx_parse.s_axis_rx_tkeep.next = self.s_axis_rx_tkeep.val();
        self.rx_parse.s_axis_rx_tlast.next = self.s_axis_rx_tlast.val();
        self.rx_parse.s_axis_rx_tvalid.next = self.s_axis_rx_tvalid.val();
        self.rx_parse.s_axis_rx_tuser.next = self.s_axis_rx_tuser.val();

        comment!("telemetry");
        self.telemetry.sender.next = self.sender.note.val();
        self.telemetry.sender_valid.next = self.sender.note_valid.val();
        self.telemetry.receiver.next = self.receiver.note.val();
        self.telemetry.receiver_valid.next = self.receiver.note_valid.val();

        comment!("counters");
        self.registers.tx_bytes.next = self.tx_build.cnt_tx_bytes.val();
        self.registers.rx_bytes.next = self.rx_parse.cnt_rx_bytes.val();
        self.events.next.tx_frames = self.tx_build.cnt_tx_frames.val();
        self.events.next.tx_bytes = false;
        self.events.next.tx_data_packets = self.tx_build.cnt_tx_data_packets.val();
        self.events.next.tx_acks = self.tx_build.cnt_tx_acks.val();
        self.events.next.tx_retransmissions = self.tx_build.cnt_tx_retransmissions.val();
        self.events.next.tx_probes = self.sender.cnt_probes.val();
        self.events.next.rx_frames = self.rx_parse.cnt_rx_frames.val();
        self.events.next.rx_bytes = false;
        self.events.next.rx_data_packets = self.classify.cnt_data.val();
        self.events.next.rx_acks = self.classify.cnt_ack.val();
        self.events.next.rx_out_of_order = self.receiver.cnt_out_of_order.val();
        self.events.next.rx_duplicates = self.receiver.cnt_duplicate.val();
        self.events.next.rx_out_of_window = self.receiver.cnt_out_of_window.val();
        self.events.next.rx_sync_naks = self.receiver.cnt_sync_nak.val();
        self.events.next.rx_ce_marks = self.receiver.cnt_ce.val();
        self.events.next.rx_drop_icrc = self.rx_parse.cnt_rx_drop_icrc.val();
        self.events.next.rx_drop_malformed = self.rx_parse.cnt_rx_drop_malformed.val();
        self.events.next.rx_drop_not_ours = self.rx_parse.cnt_rx_drop_not_ours.val();
        self.events.next.rx_drop_no_qp =
            self.classify.cnt_no_qp.val() | self.receiver.cnt_no_qp.val();
        self.events.next.rx_drop_full = self.rx_parse.cnt_rx_drop_full.val();
        self.events.next.rx_access_errors = self.receiver.cnt_access.val();
        self.events.next.rx_rnr_naks = self.receiver.cnt_rnr.val();
        self.events.next.ecn_echoes = self.sender.cnt_ecn_echoes.val();
        self.events.next.prunes = self.sender.cnt_prunes.val();
        self.events.next.window_naks = self.sender.cnt_window_naks.val();
        self.events.next.sync_naks = self.sender.cnt_sync_naks.val();
        self.events.next.ghost_acks = self.sender.cnt_ghost_acks.val();
        self.events.next.bad_acks = self.sender.cnt_bad_acks.val();
        self.events.next.timeouts = self.sender.cnt_timeouts.val();
        self.events.next.recoveries = self.sender.cnt_recoveries.val();
        self.events.next.cqes_written = self.cq_writer.cnt_written.val();
        self.events.next.cq_overflows = self.cq_writer.cnt_overflow.val();
        // ATOMICs fail one at a time, cycles apart, so one that waits is enough.
        self.failed_too.d.next = self.tx_build.cnt_dma_read_errors.val()
            & (self.atomic_unit.cnt_failed.val() | self.failed_too.q.val());
        self.events.next.dma_read_errors = self.tx_build.cnt_dma_read_errors.val()
            | self.atomic_unit.cnt_failed.val()
            | self.failed_too.q.val();
        self.events.next.messages_completed = self.tx_complete.cnt_completed.val();
        self.events.next.interrupts_raised = self.moderator.cnt_raised.val();
        self.events.next.interrupts_held = self.moderator.cnt_held.val();
        self.events.next.atomics_executed = self.atomic_unit.cnt_executed.val();
        self.registers.events.next = self.events.val();
    }
}
