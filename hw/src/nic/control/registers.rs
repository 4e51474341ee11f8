//! BAR0: identification, control, the command window, counters, doorbells.

use super::axil::AxiLite;
use super::commands::Commands;
use super::counters::{Counters, Events, COUNTERS};
use super::window::Window;
use crate::leaf::SyncFifo;
use crate::nic::types::{CfgReq, Doorbell};
use crate::prelude::*;
use mprdma_spec::{config, csr};

block! {
    /// The register file behind BAR0, with the command unit in it.
    ///
    /// - In: AXI4-Lite; `events`, `tx_bytes`, `rx_bytes` to count; `done` (one bit per owner of tables, a pulse per
    ///   request), the two halves of a QP's state, what `telemetry` answers, the two markers of a destroyed QP; `ready` (every owner has cleared
    ///   its tables), `working` (anything is in a pipeline).
    /// - Out: doorbell streams, the configuration bus, `tick` (64 ns) with `tick_pulse`, `enable`, `mac`, the moderation
    ///   `interval` of each MSI-X vector, and `soft_reset`, which is high for 16 cycles and resets every other block.
    /// - Latency: 6 cycles for a register read, 3 from a doorbell write to its stream.
    ///
    /// `OBJW` is the address width of the object table: four kinds of objects, each with up to 2^(OBJW-2).
    pub struct Registers[const OBJW: usize][OBJW] {
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
            events: Events,
            tx_bytes: Bits<7>,
            rx_bytes: Bits<7>,
            done: Bits<12>,
            sender_status: Bits<512>,
            receiver_status: Bits<512>,
            telemetry: Bits<1024>,
            tx_marker: Bit,
            rx_marker: Bit,
            acks_busy: Bit,
            ready: Bit,
            working: Bit,
            sq_db_ready: Bit,
            rq_db_ready: Bit,
            cq_db_ready: Bit,
            eq_db_ready: Bit,
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
            sq_db: Doorbell,
            sq_db_valid: Bit,
            rq_db: Doorbell,
            rq_db_valid: Bit,
            cq_db: Doorbell,
            cq_db_valid: Bit,
            eq_db: Doorbell,
            eq_db_valid: Bit,
            cfg: CfgReq,
            cfg_valid: Bit,
            tick: Bits<32>,
            tick_pulse: Bit,
            enable: Bit,
            mac: Bits<48>,
            soft_reset: Bit,
            busy: Bit,
        }
        port {
            interval: [Signal<Out, Bits<16>>; 8],
        }
        local {
            addr: Bits<24>,
            from: Bits<24>,
            page: Bits<24>,
            bell: Doorbell,
            in_qps: Bit,
            in_cqs: Bit,
            in_eqs: Bit,
            in_args: Bit,
            to_sq: Bit,
            to_rq: Bit,
            to_cq: Bit,
            to_eq: Bit,
            in_intervals: Bit,
            interval_read: Bits<16>,
            accept: Bit,
            start_command: Bit,
            stop: Bit,
            offset: Bits<12>,
            value: Bits<32>,
            window_bit: Bits<10>,
            next_prescale: Bits<4>,
            all_ready: Bit,
        }
        reg {
            prescale: Bits<4>,
            ticks: Bits<32>,
            ticked: Bit,
            cycles: Bits<64>,
            enabled: Bit,
            mac_lo: Bits<32>,
            mac_hi: Bits<16>,
            reset_count: Bits<5>,
            read_1: Bit,
            read_2: Bit,
            read_3: Bit,
        }
        pipe {
            cycles_hi: Bits<32>,
            counter_hi: Bits<32>,
            answer: Bits<32>,
        }
        konst {
            at_magic: Bits<24> = bits(u64::from(csr::MAGIC)),
            at_version: Bits<24> = bits(u64::from(csr::VERSION)),
            at_build_lo: Bits<24> = bits(u64::from(csr::BUILD_ID_LO)),
            at_build_hi: Bits<24> = bits(u64::from(csr::BUILD_ID_HI)),
            at_config0: Bits<24> = bits(u64::from(csr::CONFIG0)),
            at_config1: Bits<24> = bits(u64::from(csr::CONFIG1)),
            at_control: Bits<24> = bits(u64::from(csr::CONTROL)),
            at_status: Bits<24> = bits(u64::from(csr::STATUS)),
            at_mac_lo: Bits<24> = bits(u64::from(csr::MAC_LO)),
            at_mac_hi: Bits<24> = bits(u64::from(csr::MAC_HI)),
            at_opcode: Bits<24> = bits(u64::from(csr::CMD_OPCODE)),
            at_cmd_status: Bits<24> = bits(u64::from(csr::CMD_STATUS)),
            at_tick: Bits<24> = bits(u64::from(csr::TICK)),
            at_cycles_lo: Bits<24> = bits(u64::from(csr::CYCLES_LO)),
            at_cycles_hi: Bits<24> = bits(u64::from(csr::CYCLES_HI)),
            intervals: Bits<24> = bits(u64::from(csr::IRQ_INTERVALS)),
            intervals_end: Bits<24> = bits(u64::from(csr::IRQ_INTERVALS + csr::IRQ_INTERVAL_BYTES)),
            args: Bits<24> = bits(u64::from(csr::CMD_ARGS)),
            result: Bits<24> = bits(u64::from(csr::CMD_RESULT)),
            result_end: Bits<24> = bits(u64::from(csr::CMD_RESULT + csr::CMD_WINDOW_BYTES)),
            counters: Bits<24> = bits(u64::from(csr::COUNTERS)),
            counters_end: Bits<24> = bits(u64::from(csr::COUNTERS) + 8 * COUNTERS as u64),
            eq_pages: Bits<24> = bits(u64::from(csr::EQ_DOORBELLS)),
            cq_pages: Bits<24> = bits(u64::from(csr::CQ_DOORBELLS)),
            qp_pages: Bits<24> = bits(u64::from(csr::QP_DOORBELLS)),
            db_second: Bits<12> = bits(u64::from(csr::DB_RQ)),
            db_first: Bits<12> = bits(u64::from(csr::DB_SQ)),
            magic: Bits<32> = bits(u64::from(csr::MAGIC_VALUE)),
            version: Bits<32> = bits(u64::from(csr::VERSION_VALUE)),
            build_lo: Bits<32> = bits(0),
            build_hi: Bits<32> = bits(0),
            config0: Bits<32> = bits(0),
            config1: Bits<32> = bits(0),
        }
        sub {
            bus: AxiLite = AxiLite::default(),
            window: Window = Window::default(),
            commands: Commands<OBJW> = Commands::new(&config::SIM),
            counts: Counters = Counters::default(),
            pause: [Reg<Bits<16>>; 8] = std::array::from_fn(|_| Reg::default()),
            sq_fifo: SyncFifo<Doorbell, 4> = SyncFifo::shallow(),
            rq_fifo: SyncFifo<Doorbell, 4> = SyncFifo::shallow(),
            cq_fifo: SyncFifo<Doorbell, 4> = SyncFifo::shallow(),
            eq_fifo: SyncFifo<Doorbell, 4> = SyncFifo::shallow(),
        }
    }
}

/// Build id of a configuration and this crate's version: what BUILD_ID_LO and BUILD_ID_HI report.
#[must_use]
pub fn build_id(config: &config::Config) -> u64 {
    config::build_id(&format!("{config:?} {}", env!("CARGO_PKG_VERSION")))
}

impl<const OBJW: usize> Registers<OBJW> {
    /// The registers of an image with `config`.
    #[must_use]
    pub fn new(config: &config::Config) -> Self {
        let id = build_id(config);
        let config0 =
            config.qp_log2 | config.cq_log2 << 8 | config.eq_log2 << 16 | config.mr_log2 << 24;
        let config1 = config.bitmap_slots as u64 | u64::from(config::CLOCK_MHZ) << 16;
        Self {
            build_lo: Constant::new(bits(id & 0xffff_ffff)),
            build_hi: Constant::new(bits(id >> 32)),
            config0: Constant::new(bits(config0 as u64)),
            config1: Constant::new(bits(config1)),
            commands: Commands::new(config),
            ..Self::default()
        }
    }
}

impl<const OBJW: usize> Logic for Registers<OBJW> {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(
            self,
            clock,
            prescale,
            ticks,
            ticked,
            cycles,
            enabled,
            mac_lo,
            mac_hi,
            reset_count,
            read_1,
            read_2,
            read_3,
            cycles_hi,
            counter_hi,
            answer
        );
        clock!(self, clock, bus, window, commands, counts, sq_fifo, rq_fifo, cq_fifo, eq_fifo);
        self.stop.next = self.reset_count.q.val().any();
        self.bus.reset.next = self.reset.val();
        self.commands.reset.next = self.reset.val() | self.stop.val();
        self.counts.reset.next = self.reset.val() | self.stop.val();
        self.sq_fifo.reset.next = self.reset.val() | self.stop.val();
        self.rq_fifo.reset.next = self.reset.val() | self.stop.val();
        self.cq_fifo.reset.next = self.reset.val() | self.stop.val();
        self.eq_fifo.reset.next = self.reset.val() | self.stop.val();

        comment!("the bus");
        self.bus.s_axil_awaddr.next = self.s_axil_awaddr.val();
        self.bus.s_axil_awvalid.next = self.s_axil_awvalid.val();
        self.bus.s_axil_wdata.next = self.s_axil_wdata.val();
        self.bus.s_axil_wvalid.next = self.s_axil_wvalid.val();
        self.bus.s_axil_bready.next = self.s_axil_bready.val();
        self.bus.s_axil_araddr.next = self.s_axil_araddr.val();
        self.bus.s_axil_arvalid.next = self.s_axil_arvalid.val();
        self.bus.s_axil_rready.next = self.s_axil_rready.val();
        self.s_axil_awready.next = self.bus.s_axil_awready.val();
        self.s_axil_wready.next = self.bus.s_axil_wready.val();
        self.s_axil_bresp.next = self.bus.s_axil_bresp.val();
        self.s_axil_bvalid.next = self.bus.s_axil_bvalid.val();
        self.s_axil_arready.next = self.bus.s_axil_arready.val();
        self.s_axil_rdata.next = self.bus.s_axil_rdata.val();
        self.s_axil_rresp.next = self.bus.s_axil_rresp.val();
        self.s_axil_rvalid.next = self.bus.s_axil_rvalid.val();

        comment!("clocks of the protocol");
        self.next_prescale.next = self.prescale.q.val() + 1;
        self.prescale.d.next = self.next_prescale.val();
        self.ticked.d.next = self.prescale.q.val().all();
        if self.prescale.q.val().all() {
            self.ticks.d.next = self.ticks.q.val() + 1;
        }
        self.cycles.d.next = self.cycles.q.val() + 1;
        self.tick.next = self.ticks.q.val();
        self.tick_pulse.next = self.ticked.q.val();

        comment!("writes: doorbells, window, control");
        self.addr.next = self.bus.write_addr.val();
        self.in_qps.next = self.addr.val() >= self.qp_pages.val();
        self.in_cqs.next = (self.addr.val() >= self.cq_pages.val()) & !self.in_qps.val();
        self.in_eqs.next =
            (self.addr.val() >= self.eq_pages.val()) & (self.addr.val() < self.cq_pages.val());
        self.offset.next = self.addr.val().get_bits::<12>(0);
        self.to_sq.next = self.in_qps.val() & (self.offset.val() == self.db_first.val());
        self.to_rq.next = self.in_qps.val() & (self.offset.val() == self.db_second.val());
        self.to_cq.next = self.in_cqs.val()
            & ((self.offset.val() == self.db_first.val())
                | (self.offset.val() == self.db_second.val()));
        self.to_eq.next = self.in_eqs.val() & (self.offset.val() == self.db_first.val());
        self.page.next = self.addr.val();
        if self.in_qps.val() {
            self.page.next = self.addr.val() - self.qp_pages.val();
        } else if self.in_cqs.val() {
            self.page.next = self.addr.val() - self.cq_pages.val();
        } else if self.in_eqs.val() {
            self.page.next = self.addr.val() - self.eq_pages.val();
        }
        self.bell.next.number = bit_cast::<16, 12>(self.page.val().get_bits::<12>(12));
        self.bell.next.index = self.bus.write_data.val().get_bits::<16>(0);
        self.bell.next.arm = self.offset.val() == self.db_second.val();
        self.sq_fifo.in_data.next = self.bell.val();
        self.rq_fifo.in_data.next = self.bell.val();
        self.cq_fifo.in_data.next = self.bell.val();
        self.eq_fifo.in_data.next = self.bell.val();
        self.sq_fifo.in_valid.next = self.bus.write.val() & self.to_sq.val();
        self.rq_fifo.in_valid.next = self.bus.write.val() & self.to_rq.val();
        self.cq_fifo.in_valid.next = self.bus.write.val() & self.to_cq.val();
        self.eq_fifo.in_valid.next = self.bus.write.val() & self.to_eq.val();
        self.accept.next = true;
        if self.to_sq.val() {
            self.accept.next = self.sq_fifo.in_ready.val();
        } else if self.to_rq.val() {
            self.accept.next = self.rq_fifo.in_ready.val();
        } else if self.to_cq.val() {
            self.accept.next = self.cq_fifo.in_ready.val();
        } else if self.to_eq.val() {
            self.accept.next = self.eq_fifo.in_ready.val();
        }
        self.bus.write_ready.next = self.accept.val();
        self.sq_db.next = self.sq_fifo.out_data.val();
        self.sq_db_valid.next = self.sq_fifo.out_valid.val();
        self.sq_fifo.out_ready.next = self.sq_db_ready.val();
        self.rq_db.next = self.rq_fifo.out_data.val();
        self.rq_db_valid.next = self.rq_fifo.out_valid.val();
        self.rq_fifo.out_ready.next = self.rq_db_ready.val();
        self.cq_db.next = self.cq_fifo.out_data.val();
        self.cq_db_valid.next = self.cq_fifo.out_valid.val();
        self.cq_fifo.out_ready.next = self.cq_db_ready.val();
        self.eq_db.next = self.eq_fifo.out_data.val();
        self.eq_db_valid.next = self.eq_fifo.out_valid.val();
        self.eq_fifo.out_ready.next = self.eq_db_ready.val();

        self.in_args.next =
            (self.addr.val() >= self.args.val()) & (self.addr.val() < self.result.val());
        self.window.write.next = self.bus.write.val() & self.in_args.val();
        self.window.index.next = self.addr.val().get_bits::<5>(2);
        self.window.data.next = self.bus.write_data.val();
        self.start_command.next = false;
        if self.reset_count.q.val().any() {
            self.reset_count.d.next = self.reset_count.q.val() - 1;
            self.enabled.d.next = false;
        }
        if self.bus.write.val() {
            if self.addr.val() == self.at_control.val() {
                self.enabled.d.next = self.bus.write_data.val().get_bit(0);
                if self.bus.write_data.val().get_bit(1) {
                    self.reset_count.d.next = bits::<5>(16);
                }
            } else if self.addr.val() == self.at_mac_lo.val() {
                self.mac_lo.d.next = self.bus.write_data.val();
            } else if self.addr.val() == self.at_mac_hi.val() {
                self.mac_hi.d.next = self.bus.write_data.val().get_bits::<16>(0);
            } else if self.addr.val() == self.at_opcode.val() {
                self.start_command.next = true;
            }
        }
        self.in_intervals.next = (self.addr.val() >= self.intervals.val())
            & (self.addr.val() < self.intervals_end.val());
        for i in 0..8 {
            self.pause[i].clock.next = self.clock.val();
            self.pause[i].reset.next = self.reset.val() | self.stop.val();
            self.pause[i].d.next = self.pause[i].q.val();
            if self.bus.write.val()
                & self.in_intervals.val()
                & (self.addr.val().get_bits::<3>(2) == i.to_bits::<3>())
            {
                self.pause[i].d.next = self.bus.write_data.val().get_bits::<16>(0);
            }
            self.interval[i].next = self.pause[i].q.val();
        }
        self.enable.next = self.enabled.q.val();
        self.mac.next = bit_cast::<48, 32>(self.mac_lo.q.val())
            | (bit_cast::<48, 16>(self.mac_hi.q.val()) << 32);
        self.soft_reset.next = self.stop.val();

        comment!("commands");
        self.commands.start.next = self.start_command.val();
        self.commands.opcode.next = self.bus.write_data.val().get_bits::<8>(0);
        self.commands.image.next = self.window.image.val();
        self.commands.done.next = self.done.val();
        self.commands.sender_status.next = self.sender_status.val();
        self.commands.receiver_status.next = self.receiver_status.val();
        self.commands.telemetry.next = self.telemetry.val();
        self.commands.tx_marker.next = self.tx_marker.val();
        self.commands.rx_marker.next = self.rx_marker.val();
        self.commands.acks_busy.next = self.acks_busy.val();
        self.cfg.next = self.commands.cfg.val();
        self.cfg_valid.next = self.commands.cfg_valid.val();
        self.all_ready.next = self.ready.val() & self.commands.init_done.val() & !self.stop.val();

        comment!("counters");
        self.counts.events.next = self.events.val();
        self.counts.tx_bytes.next = self.tx_bytes.val();
        self.counts.rx_bytes.next = self.rx_bytes.val();

        comment!(
            "reads: the address holds still for three cycles while counters and windows are picked"
        );
        self.from.next = self.bus.read_addr.val();
        self.counts.index.next = self.from.val().get_bits::<6>(3);
        self.read_1.d.next = self.bus.read.val();
        self.read_2.d.next = self.read_1.q.val();
        self.read_3.d.next = self.read_2.q.val();
        self.window_bit.next = bit_cast::<10, 5>(self.from.val().get_bits::<5>(2)) << 5;
        self.interval_read.next = bits::<16>(0);
        for i in 0..8 {
            if self.from.val().get_bits::<3>(2) == i.to_bits::<3>() {
                self.interval_read.next = self.pause[i].q.val();
            }
        }
        self.value.next = bits::<32>(0);
        if self.from.val() == self.at_magic.val() {
            self.value.next = self.magic.val();
        } else if self.from.val() == self.at_version.val() {
            self.value.next = self.version.val();
        } else if self.from.val() == self.at_build_lo.val() {
            self.value.next = self.build_lo.val();
        } else if self.from.val() == self.at_build_hi.val() {
            self.value.next = self.build_hi.val();
        } else if self.from.val() == self.at_config0.val() {
            self.value.next = self.config0.val();
        } else if self.from.val() == self.at_config1.val() {
            self.value.next = self.config1.val();
        } else if self.from.val() == self.at_control.val() {
            self.value.next = bit_cast::<32, 1>(self.enabled.q.val().into());
        } else if self.from.val() == self.at_status.val() {
            self.value.next = bit_cast::<32, 1>(self.all_ready.val().into())
                | (bit_cast::<32, 1>(self.working.val().into()) << 1);
        } else if self.from.val() == self.at_mac_lo.val() {
            self.value.next = self.mac_lo.q.val();
        } else if self.from.val() == self.at_mac_hi.val() {
            self.value.next = bit_cast::<32, 16>(self.mac_hi.q.val());
        } else if self.from.val() == self.at_cmd_status.val() {
            self.value.next = bit_cast::<32, 8>(self.commands.status.val())
                | (bit_cast::<32, 1>(self.commands.running.val().into()) << 31);
        } else if self.from.val() == self.at_tick.val() {
            self.value.next = self.ticks.q.val();
        } else if self.from.val() == self.at_cycles_lo.val() {
            self.value.next = self.cycles.q.val().get_bits::<32>(0);
            if self.read_2.q.val() {
                self.cycles_hi.d.next = self.cycles.q.val().get_bits::<32>(32);
            }
        } else if self.from.val() == self.at_cycles_hi.val() {
            self.value.next = self.cycles_hi.q.val();
        } else if (self.from.val() >= self.intervals.val())
            & (self.from.val() < self.intervals_end.val())
        {
            self.value.next = bit_cast::<32, 16>(self.interval_read.val());
        } else if (self.from.val() >= self.args.val()) & (self.from.val() < self.result.val()) {
            self.value.next = self
                .window
                .image
                .val()
                .get_bits::<32>(self.window_bit.val().index());
        } else if (self.from.val() >= self.result.val()) & (self.from.val() < self.result_end.val())
        {
            self.value.next = self
                .commands
                .result
                .val()
                .get_bits::<32>(self.window_bit.val().index());
        } else if (self.from.val() >= self.counters.val())
            & (self.from.val() < self.counters_end.val())
        {
            self.value.next = self.counts.value.val().get_bits::<32>(0);
            if self.from.val().get_bit(2) {
                self.value.next = self.counter_hi.q.val();
            } else if self.read_2.q.val() {
                self.counter_hi.d.next = self.counts.value.val().get_bits::<32>(32);
            }
        }
        self.answer.d.next = self.value.val();
        self.bus.read_data.next = self.answer.q.val();
        self.bus.read_done.next = self.read_3.q.val();
        self.busy.next = self.commands.running.val()
            | self.sq_fifo.out_valid.val()
            | self.rq_fifo.out_valid.val()
            | self.cq_fifo.out_valid.val()
            | self.eq_fifo.out_valid.val()
            | self.bus.write.val()
            | self.bus.read.val()
            | self.read_1.q.val()
            | self.read_2.q.val()
            | self.read_3.q.val()
            | self.stop.val();
    }
}

const _: () = assert!(
    config::MSIX_VECTORS == 8 && csr::IRQ_INTERVALS % 32 == 0,
    "three address bits pick a vector's interval"
);
