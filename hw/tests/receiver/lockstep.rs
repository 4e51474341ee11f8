//! The receiver engine against `model::receiver`: every context bit of every write-back and every output.
//!
//! Packets of all kinds, doorbells, errors and commands meet on few QPs, so that they wait for each other in the
//! pipeline. The model sees the events in the order of the write-backs.

use crate::ports;
use crate::support::{chance, encode, rng, simulated, verilated, Dut};
use mprdma_hw::cosim::{BuildOptions, VerilatedBlock};
use mprdma_hw::leaf::beat::bits_of_bytes;
use mprdma_hw::nic::receiver::records::ReceiverState;
use mprdma_hw::nic::receiver::ReceiverEngine;
use mprdma_hw::nic::types::{AckCmd, CfgReq, MrAnswer, QpError, ReceiverNote, RxAction, RxEvent};
use mprdma_hw::verilog::{generate, ports};
use mprdma_hw::with_big_stack;
use mprdma_model::receiver::{
    self, step, ReceiverContext, ReceiverEvent, ReceiverImage, ReceiverOutputs,
};
use mprdma_spec::command::{
    qp_image, qp_status, Opcode, QpState, MASK_RECEIVER, RIGHT_REMOTE_ATOMIC, RIGHT_REMOTE_READ,
    RIGHT_REMOTE_WRITE,
};
use mprdma_spec::status::WcStatus;
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rust_hdl_core::prelude::*;
use std::collections::{HashMap, VecDeque};

const QPW: usize = 8;
type Engine64 = ReceiverEngine<QPW, 64>;
type Engine128 = ReceiverEngine<QPW, 128>;

ports!(Engine64, clock: reset rx rx_valid cfg cfg_valid action_ready error_ready access_ready
    => rx_ready action action_valid error error_valid access access_valid cfg_done cfg_result init_done busy cnt_no_qp
    cnt_out_of_order cnt_duplicate cnt_out_of_window cnt_sync_nak cnt_ce cnt_access cnt_rnr note note_valid wb_valid wb_qpn wb_state
    wb_hi wb_lo);
ports!(Engine128, clock: reset rx rx_valid cfg cfg_valid action_ready error_ready access_ready
    => rx_ready action action_valid error error_valid access access_valid cfg_done cfg_result init_done busy cnt_no_qp
    cnt_out_of_order cnt_duplicate cnt_out_of_window cnt_sync_nak cnt_ce cnt_access cnt_rnr note note_valid wb_valid wb_qpn wb_state
    wb_hi wb_lo);

/// What a run does.
#[derive(Clone, Copy)]
struct Plan {
    seed: u64,
    /// Slots of the window that the model has.
    slots: u32,
    /// Events and commands to run.
    events: usize,
    /// QPs in use, in four phases.
    qps: [u32; 4],
    /// The model sees every so many packets with another stamp: the comparison must notice.
    tamper: Option<usize>,
    /// WSN and MSN of a new QP. Real ones start at 0, and 2^24 messages to the wrap are too many to simulate.
    first: u32,
}

/// What a run found.
#[derive(Debug, Default)]
struct Report {
    events: usize,
    packets: usize,
    commands: usize,
    /// Per counter of the engine, and given per operation.
    counts: [usize; 8],
    operations: [usize; 15],
    /// READ REQUESTs and ATOMICs accepted, and last packets of READ RESPONSEs and ATOMIC ACKs.
    requests: usize,
    read_tails: usize,
    /// Of both those of ATOMICs; those that had to wait for RTS; those that were refused.
    atomics: [usize; 2],
    atomics_waiting: usize,
    atomics_refused: usize,
    placed: usize,
    due: usize,
    longest_run: u32,
    /// Slides of a window over WSN 0.
    wrapped: usize,
    mismatches: Vec<String>,
}

/// Mismatches after which a run gives up.
const MOST_MISMATCHES: usize = 10;

/// One write-back, of which some outputs come a cycle later.
struct WriteBack {
    qpn: u16,
    state: Vec<u8>,
    hi: Vec<u8>,
    lo: Vec<u8>,
}

struct Bench {
    plan: Plan,
    rng: ChaCha8Rng,
    contexts: HashMap<u16, ReceiverContext>,
    /// Given to the engine, not yet written back.
    given: VecDeque<RxEvent>,
    command: Option<CfgReq>,
    actions: VecDeque<(RxAction, RxAction)>,
    errors: VecDeque<QpError>,
    accesses: VecDeque<QpError>,
    report: Report,
}

impl Bench {
    fn new(plan: Plan) -> Self {
        Self {
            plan,
            rng: rng(plan.seed),
            contexts: HashMap::new(),
            given: VecDeque::new(),
            command: None,
            actions: VecDeque::new(),
            errors: VecDeque::new(),
            accesses: VecDeque::new(),
            report: Report::default(),
        }
    }

    fn random_qpn(&mut self) -> u16 {
        let phase = (self.report.events * 4 / self.plan.events).min(3);
        self.rng.random_range(0..self.plan.qps[phase]) as u16
    }

    /// A stretch in which the window fills up behind a missing front packet and then slides far.
    fn filling(&self) -> bool {
        self.report.events / 700 % 4 == 1
    }

    fn context(&self, qpn: u16) -> ReceiverContext {
        self.contexts.get(&qpn).copied().unwrap_or(ReceiverContext {
            msn: self.plan.first,
            due_wsn: self.plan.first,
            ..ReceiverContext::default()
        })
    }

    /// A command. Most put their QP to work, with PSNs and indices close to the wrap.
    fn random_command(&mut self, qpn: u16) -> CfgReq {
        let absent = self.context(qpn).state == QpState::Reset as u8;
        let rng = &mut self.rng;
        let mut image = [0; qp_image::BYTES];
        rng.fill(&mut image[..]);
        let state = match rng.random_range(0..20) {
            0 => QpState::Init,
            1 => QpState::Error,
            2..8 => QpState::Rtr,
            _ => QpState::Rts,
        };
        qp_image::STATE.set(&mut image, state as u64);
        qp_image::MTU.set(&mut image, rng.random_range(1..=5));
        qp_image::PKEY.set(&mut image, 0xffff - rng.random_range(0..3));
        qp_image::PD.set(&mut image, rng.random_range(0..3));
        let mut rights = rng.random::<u8>() | 14;
        for right in [RIGHT_REMOTE_WRITE, RIGHT_REMOTE_READ, RIGHT_REMOTE_ATOMIC] {
            if chance(rng, 7) {
                rights &= !(right as u8);
            }
        }
        qp_image::RIGHTS.set(&mut image, rights.into());
        if chance(rng, 70) {
            qp_image::RQ_PSN.set(
                &mut image,
                (0x0100_0000 - rng.random_range(0..300)) & 0xff_ffff,
            );
        }
        // The control block lets no other command at a QP that is not there.
        let op = match rng.random_range(0..20) {
            0..18 if absent => Opcode::CreateQp,
            0..8 => Opcode::CreateQp,
            8..13 => Opcode::ModifyQp,
            13..16 => Opcode::QueryQp,
            16..18 => Opcode::DestroyQp,
            18 => Opcode::RegisterMr,
            _ => Opcode::Nop,
        };
        CfgReq {
            op: bits(op as u64),
            index: bits(qpn.into()),
            image: bits_of_bytes(&image),
        }
    }

    fn random_event(&mut self) -> RxEvent {
        let qpn = self.random_qpn();
        let kind = match self.rng.random_range(0..100) {
            0..90 => 0,
            90..93 => 1,
            93..99 => 2,
            _ if self.filling() => 2,
            _ => u64::from(chance(&mut self.rng, 20)) * 3,
        };
        match kind {
            0 => self.random_packet(qpn),
            1 => RxEvent {
                kind: bits(1),
                // RxClassify passes on QPNs beyond the table.
                qpn: bits(u64::from(qpn) + 256 * self.rng.random_range(0..3)),
                stored: true,
                ..RxEvent::default()
            },
            2 => {
                let now = self.context(qpn).rq_producer;
                let index = match self.rng.random_range(0..10) {
                    0 => self.rng.random(),
                    1 => 0xfff0,
                    _ => now.wrapping_add(self.rng.random_range(1..40)),
                };
                RxEvent {
                    kind: bits(2),
                    qpn: bits(qpn.into()),
                    wsn: bits(index.into()),
                    ..RxEvent::default()
                }
            }
            _ => RxEvent {
                kind: bits(3),
                qpn: bits(qpn.into()),
                ..RxEvent::default()
            },
        }
    }

    /// How far ahead of the window's first slot a packet comes.
    fn random_ahead(&mut self, context: &ReceiverContext) -> u32 {
        let slots = self.plan.slots;
        let filling = self.filling();
        let rng = &mut self.rng;
        let (mix, nearest) = if filling { (35..75, 32) } else { (0..120, 8) };
        match rng.random_range(mix) {
            0..35 => rng.random_range(0..6),
            35..75 => {
                // An empty slot, nearest first.
                let map = context.window.map();
                let empty = (1..slots).filter(|i| map >> i & 1 == 0);
                let empty: Vec<u32> = empty.take(nearest).collect();
                match empty.len() {
                    0 => 0,
                    n => empty[rng.random_range(0..n)],
                }
            }
            75..85 => rng.random_range(0..slots),
            85..90 => rng.random_range(slots - 2..slots + 3),
            90..95 => 0x0100_0000 - rng.random_range(1..4),
            95..97 => rng.random_range(0x7f_fffe..0x80_0002),
            97..100 => rng.random_range(0..1 << 24),
            _ => 0,
        }
    }

    fn tally(&mut self, operation: u64) {
        self.report.operations[operation as usize - 6] += 1;
    }

    /// A packet that the QP takes, often; else one with something odd about it.
    fn random_packet(&mut self, qpn: u16) -> RxEvent {
        let context = self.context(qpn);
        let ahead = self.random_ahead(&context);
        let filling = self.filling();
        let rng = &mut self.rng;
        let mtu = 128_u64 << context.mtu;
        // WRITEs, then READ REQUEST 12, READ RESPONSE FIRST 13, MIDDLE 14, LAST 15, ONLY 16; ATOMIC ACK 18, COMPARE SWAP 19,
        // FETCH ADD 20.
        let operation = match rng.random_range(0..9) {
            0 if !filling => 12,
            0..6 => rng.random_range(6..=11_u64),
            6 => rng.random_range(18..=20),
            _ => rng.random_range(12..=16),
        };
        let atomic = operation > 18;
        let (request, response) = (operation == 12 || atomic, matches!(operation, 13..=18));
        let right = match operation {
            12 => RIGHT_REMOTE_READ,
            _ if atomic => RIGHT_REMOTE_ATOMIC,
            _ => RIGHT_REMOTE_WRITE,
        };
        let length = match operation {
            6 | 7 | 13 | 14 => mtu,
            8 | 9 | 15 => rng.random_range(1..=mtu),
            12 | 18.. => 0,
            _ => [0, 1, mtu, rng.random_range(0..=mtu)][rng.random_range(0..4)],
        };
        let immediate = operation == 9 || operation == 11;
        let flags = rng.random_range(0..2_u64)
            | u64::from(!filling && chance(rng, 15)) << 1
            | u64::from(operation >= 8 && operation != 13 && operation != 14) << 2
            | u64::from(immediate) << 3;
        let wsn = match rng.random_range(0..10) {
            _ if request || response => rng.random_range(0..16),
            0..7 => context.due_wsn + rng.random_range(0..4),
            7 => context.due_wsn + rng.random_range(30..35),
            8 => context.due_wsn + rng.random_range(0..36),
            _ => u32::from(context.rq_producer.wrapping_add(rng.random_range(0..3))),
        };
        let mut event = RxEvent {
            kind: bits(0),
            qpn: bits(qpn.into()),
            psn: bits(u64::from(context.rcv_nxt.wrapping_add(ahead) & 0xff_ffff)),
            opcode: bits(0xc0 | operation),
            pkey: bits(context.pkey.into()),
            ce: chance(rng, 20),
            vp: bits(rng.random_range(0..1 << 16)),
            flags: bits(flags),
            wsn: bits(u64::from(wsn & 0xff_ffff)),
            offset: bits(match rng.random_range(0..4) {
                0 => u64::from(ahead & 0xffff),
                1 => rng.random_range(0..1 << 16),
                _ => rng.random_range(0..5),
            }),
            stamp: bits(rng.random_range(0..1 << 16)),
            imm: bits(rng.random_range(0..1 << 32)),
            dma_length: bits(match operation {
                12 => [0, 1, mtu << 16, rng.random_range(0..=mtu << 16)][rng.random_range(0..4)],
                _ if atomic => 8,
                // What stands where a WRITE has its RETH.
                13.. => rng.random_range(0..1 << 32),
                _ => length,
            }),
            length: bits(length),
            header: bits(rng.random_range(54..127)),
            stored: length != 0,
            mr: MrAnswer {
                hit: true,
                rights: match response {
                    // The READ book knows of no rights.
                    true => bits(0),
                    false => bits(rng.random_range(0..256) | right),
                },
                pd: bits(if response { 0 } else { context.pd.into() }),
                iova: bits(rng.random()),
            },
            swap_add: bits(rng.random()),
            compare: bits(rng.random()),
            // Of others it does not matter.
            misaligned: !atomic && chance(rng, 50),
        };
        if !filling && chance(rng, if operation >= 18 { 25 } else { 4 }) {
            match rng.random_range(0..22) {
                0 | 1 | 4 | 18 if request => event.mr.rights = bits(!right & 0xff),
                2 if request => event.mr.hit = false,
                5 | 6 if operation >= 18 => {
                    event.length = bits([8, 1, mtu][rng.random_range(0..3)])
                }
                14..=16 | 19 if atomic => event.misaligned = true,
                14..=16 | 19 if request => event.dma_length = bits((mtu << 16) + 1),
                20 if request => event.wsn = bits(16 << rng.random_range(0..20)),
                21 if response => event.mr.hit = false,
                18.. => {}
                0 => event.mr.hit = false,
                1 => event.mr.rights = bits(!RIGHT_REMOTE_WRITE & 0xff),
                2 => event.mr.pd = bits(rng.random_range(0..4)),
                3 => event.pkey = bits(rng.random_range(0xfff0..0x1_0000)),
                4 => event.dma_length = bits(rng.random_range(0..1 << 32)),
                5 => event.length = bits(mtu + 1),
                6 => event.length = bits(rng.random_range(0..1 << 13)),
                7 => event.flags = bits(rng.random_range(0..256)),
                8 => event.opcode = bits(rng.random_range(0..256)),
                9 => event.wsn = bits(rng.random_range(0..1 << 24)),
                10 => event.flags = bits(flags ^ 4),
                11 => event.flags = bits(flags ^ 8),
                // Shorter or longer than the operation allows, and the header agrees.
                odd => {
                    let length = if odd < 17 { mtu - 1 } else { mtu + 1 };
                    event.length = bits(length);
                    event.dma_length = bits(length);
                }
            }
            event.stored = event.length.any();
        }
        self.tally(operation);
        event
    }

    fn wrong(&mut self, what: &str, got: &[u8], expected: &[u8]) {
        let index = self.report.events;
        self.report.mismatches.push(format!(
            "event {index}: {what}: RTL {got:02x?}, model {expected:02x?}"
        ));
    }

    fn check(&mut self, what: &str, got: &[u8], expected: &[u8]) {
        if got != expected {
            self.wrong(what, got, expected);
        }
    }

    /// A write-back with what belongs to it a cycle later.
    fn written_back(&mut self, dut: &impl Dut, back: &WriteBack, is_command: bool) {
        let qpn = back.qpn & ((1 << QPW) - 1);
        let mut context = self.context(qpn);
        let (event, record) = if is_command {
            let Some(command) = self.command.take() else {
                return self.wrong("an answer without a command", &[], &[]);
            };
            self.report.commands += 1;
            self.check(
                "QPN of a command",
                &back.qpn.to_le_bytes(),
                &encode(command.index)[..2],
            );
            (command_event(&command), None)
        } else {
            let Some(record) = self.given.pop_front() else {
                return self.wrong("a write-back without an event", &[], &[]);
            };
            self.check("QPN", &back.qpn.to_le_bytes(), &encode(record.qpn));
            let mut event = rx_event(&record);
            if let ReceiverEvent::Packet(packet) = &mut event {
                self.report.packets += 1;
                if self
                    .plan
                    .tamper
                    .is_some_and(|n| self.report.packets % n == 0)
                {
                    packet.stamp ^= 0x10;
                }
            }
            (event, Some(record))
        };
        self.report.events += 1;
        let before = context;
        let out;
        (context, out) = step(&context, &event, self.plan.slots);
        let restarts = match event {
            ReceiverEvent::Create(_) | ReceiverEvent::Destroy => true,
            ReceiverEvent::Modify(image) => u64::from(image.mask) & MASK_RECEIVER != 0,
            _ => false,
        };
        if restarts {
            (context.msn, context.due_wsn) = (self.plan.first, self.plan.first);
        }
        self.report.wrapped += usize::from(context.due_wsn < before.due_wsn && !restarts);
        self.contexts.insert(qpn, context);
        let (hi, lo) = context.window.planes();
        self.check("state", &back.state, &encode(state_record(&context)));
        self.check("hi plane", &back.hi, &hi.to_le_bytes());
        self.check("lo plane", &back.lo, &lo.to_le_bytes());
        if event == ReceiverEvent::Query {
            let mut status = [0; qp_status::BYTES];
            qp_status::RX_STATE.set(&mut status, before.state.into());
            qp_status::RCV_NXT.set(&mut status, before.rcv_nxt.into());
            qp_status::MSN.set(&mut status, before.msn.into());
            qp_status::RECEIVED.set(&mut status, before.received.into());
            qp_status::RCV_WSN.set(&mut status, before.due_wsn.into());
            qp_status::RQ_PRODUCER.set(&mut status, before.rq_producer.into());
            self.check("cfg_result", &dut.bytes("cfg_result"), &status[64..]);
        }
        let counts = out.counts;
        for (i, (port, expected)) in [
            ("cnt_no_qp", counts.no_qp),
            ("cnt_out_of_order", counts.out_of_order),
            ("cnt_duplicate", counts.duplicate),
            ("cnt_out_of_window", counts.out_of_window),
            ("cnt_sync_nak", counts.sync_nak),
            ("cnt_ce", counts.ce),
            ("cnt_access", counts.access),
            ("cnt_rnr", counts.rnr),
        ]
        .into_iter()
        .enumerate()
        {
            self.check(port, &dut.bytes(port), &[expected.into()]);
            self.report.counts[i] += usize::from(expected);
        }
        let packet = match event {
            ReceiverEvent::Packet(packet) => Some(packet),
            _ => None,
        };
        self.check(
            "note_valid",
            &dut.bytes("note_valid"),
            &[packet.is_some().into()],
        );
        if let Some(packet) = packet {
            let distance = packet.psn.wrapping_sub(before.rcv_nxt) & 0xff;
            // Whatever else is answered is refused.
            let refused = counts.duplicate
                || counts.out_of_window
                || counts.sync_nak
                || counts.rnr
                || counts.access;
            let note = ReceiverNote {
                qpn: bits(back.qpn.into()),
                accepted: out.ack.is_some() && !refused,
                distance: bits(distance.into()),
                duplicate: counts.duplicate,
                out_of_window: counts.out_of_window,
                sync_nak: counts.sync_nak,
                rnr_nak: counts.rnr,
                marked: counts.ce,
            };
            self.check("note", &dut.bytes("note"), &encode(note));
        }
        let acts = matches!(
            event,
            ReceiverEvent::Packet(_) | ReceiverEvent::Discard | ReceiverEvent::Destroy
        );
        if acts {
            let record = record.unwrap_or(RxEvent {
                qpn: bits(back.qpn.into()),
                ..RxEvent::default()
            });
            self.actions
                .push_back(action(&before, &record, &event, &out));
        }
        if let Some(status) = out.access_error {
            self.accesses.push_back(QpError {
                qpn: bits(back.qpn.into()),
                status: bits(status.into()),
            });
            self.errors.push_back(QpError {
                qpn: bits(back.qpn.into()),
                status: bits(WcStatus::WorkRequestFlushed as u64),
            });
        }
        self.report.requests += usize::from(out.request);
        self.report.read_tails += usize::from(out.response_ends);
        self.report.atomics[0] += usize::from(out.request && out.atomic);
        self.report.atomics[1] += usize::from(out.response_ends && out.atomic);
        if packet.is_some_and(|packet| matches!(packet.opcode & 0x1f, 18..=20)) {
            self.report.atomics_waiting += usize::from(counts.rnr);
            self.report.atomics_refused += usize::from(counts.access);
        }
        self.report.placed += usize::from(out.place);
        self.report.due += out.due as usize;
        let slid = context.rcv_nxt.wrapping_sub(before.rcv_nxt) & 0xff_ffff;
        if matches!(event, ReceiverEvent::Packet(_)) {
            self.report.longest_run = self.report.longest_run.max(slid);
        }
    }

    fn check_action(&mut self, got: &[u8]) {
        let Some((expected, care)) = self.actions.pop_front() else {
            return self.wrong("an action too many", got, &[]);
        };
        let masked: Vec<u8> = got.iter().zip(encode(care)).map(|(a, b)| a & b).collect();
        self.check("action", &masked, &encode(expected));
    }

    fn check_error(&mut self, what: &str, got: &[u8], expected: Option<QpError>) {
        match expected {
            Some(expected) => self.check(what, got, &encode(expected)),
            None => self.wrong(what, got, &[]),
        }
    }

    fn run(mut self, dut: &mut impl Dut) -> Report {
        dut.set("reset", true);
        dut.low();
        dut.high();
        dut.set("reset", false);
        while !dut.bit("init_done") {
            dut.low();
            dut.high();
        }
        let mut back: Option<WriteBack> = None;
        let mut event = None;
        let (mut cfg_valid, mut cfg_low, mut cfg_hold, mut quiet) = (false, true, 0, false);
        let mut cycle = 0_usize;
        loop {
            let over = self.report.events >= self.plan.events;
            // Events come in a flood, a trickle, or against slow outputs.
            let (give, take) = [(100, 100), (100, 30), (20, 90), (80, 80)][cycle / 1000 % 4];
            let rx_valid = (event.is_some() || !over) && chance(&mut self.rng, give);
            if rx_valid {
                // An event stays the same until it is taken.
                if event.is_none() {
                    dut.set("rx", *event.insert(self.random_event()));
                }
            }
            dut.set("rx_valid", rx_valid);
            let qpn = self.random_qpn();
            let state = self.context(qpn).state;
            let receives = state == QpState::Rtr as u8 || state == QpState::Rts as u8;
            let often = match receives {
                true => u32::from(!self.filling()),
                false => 100,
            };
            if cfg_low && !cfg_valid && !over && self.rng.random_range(0..1000) < often {
                let command = self.random_command(qpn);
                quiet = !matches!(command.op.index(), 1..=4);
                self.command = Some(command);
                dut.set("cfg", command);
                (cfg_valid, cfg_hold) = (true, self.rng.random_range(0..6));
            }
            dut.set("cfg_valid", cfg_valid);
            let ready: Vec<bool> = (0..3).map(|_| chance(&mut self.rng, take)).collect();
            dut.set("action_ready", ready[0]);
            dut.set("error_ready", ready[1]);
            dut.set("access_ready", ready[2]);
            dut.low();

            let answered = dut.bit("cfg_done");
            // A command for others is answered without a look at any QP.
            if answered && (quiet || back.is_none()) && !(quiet && self.command.take().is_some()) {
                self.wrong("an answer without a write-back", &[], &[]);
            }
            if let Some(back) = back.take() {
                self.written_back(dut, &back, answered && !quiet);
            }
            back = dut.bit("wb_valid").then(|| WriteBack {
                qpn: dut.get("wb_qpn") as u16,
                state: dut.bytes("wb_state"),
                hi: dut.bytes("wb_hi"),
                lo: dut.bytes("wb_lo"),
            });
            if ready[0] && dut.bit("action_valid") {
                self.check_action(&dut.bytes("action"));
            }
            if ready[1] && dut.bit("error_valid") {
                let expected = self.errors.pop_front();
                self.check_error("error", &dut.bytes("error"), expected);
            }
            if ready[2] && dut.bit("access_valid") {
                let expected = self.accesses.pop_front();
                self.check_error("access", &dut.bytes("access"), expected);
            }
            if rx_valid && dut.bit("rx_ready") {
                self.given.extend(event.take());
            }
            // The request stays a while, as for slower owners of tables, then falls for at least one cycle.
            cfg_low = !cfg_valid;
            if cfg_valid && self.command.is_none() {
                cfg_valid = cfg_hold != 0;
                cfg_hold -= i32::from(cfg_valid);
            }
            let idle = !dut.bit("busy") && back.is_none();
            dut.high();
            cycle += 1;
            let done = over && event.is_none() && !cfg_valid && self.given.is_empty() && idle;
            if done || self.report.mismatches.len() >= MOST_MISMATCHES {
                break;
            }
            if cycle > 1000 + 100 * self.plan.events {
                self.wrong("stuck", &[], &[]);
                break;
            }
        }
        if self.report.mismatches.is_empty()
            && !(self.actions.is_empty() && self.errors.is_empty() && self.accesses.is_empty())
        {
            self.wrong("outputs are missing", &[], &[]);
        }
        self.report
    }
}

fn command_event(command: &CfgReq) -> ReceiverEvent {
    let image = ReceiverImage::from_bytes(&encode(command.image));
    match command.op.index() {
        1 => ReceiverEvent::Create(image),
        2 => ReceiverEvent::Modify(image),
        3 => ReceiverEvent::Query,
        _ => ReceiverEvent::Destroy,
    }
}

fn number<const N: usize>(value: Bits<N>) -> u64 {
    encode(value)
        .iter()
        .rev()
        .fold(0, |a, &byte| a << 8 | u64::from(byte))
}

fn rx_event(record: &RxEvent) -> ReceiverEvent {
    match record.kind.index() {
        0 => ReceiverEvent::Packet(receiver::Packet {
            psn: number(record.psn) as u32,
            opcode: number(record.opcode) as u8,
            pkey: number(record.pkey) as u16,
            ce: record.ce,
            vp: number(record.vp) as u16,
            flags: number(record.flags) as u8,
            wsn: number(record.wsn) as u32,
            offset: number(record.offset) as u16,
            stamp: number(record.stamp) as u16,
            imm: number(record.imm) as u32,
            dma_length: number(record.dma_length) as u32,
            misaligned: record.misaligned,
            length: number(record.length) as u16,
            stored: record.stored,
            mr: receiver::MrAnswer {
                hit: record.mr.hit,
                rights: number(record.mr.rights) as u8,
                pd: number(record.mr.pd) as u16,
                iova: number(record.mr.iova),
            },
        }),
        1 => ReceiverEvent::Discard,
        2 => ReceiverEvent::Doorbell(number(record.wsn) as u16),
        _ => ReceiverEvent::Error,
    }
}

fn state_record(context: &ReceiverContext) -> ReceiverState {
    ReceiverState {
        state: bits(context.state.into()),
        mtu: bits(context.mtu.into()),
        hole_repair: context.hole_repair,
        pd: bits(context.pd.into()),
        pkey: bits(context.pkey.into()),
        rq_cqn: bits(context.rq_cqn.into()),
        rights: bits(context.rights.into()),
        rcv_nxt: bits(context.rcv_nxt.into()),
        msn: bits(context.msn.into()),
        rq_producer: bits(context.rq_producer.into()),
        due_wsn: bits(context.due_wsn.into()),
        received: bits(context.received.into()),
    }
}

/// The action that must come, and a mask of the fields that mean something in it.
fn action(
    before: &ReceiverContext,
    record: &RxEvent,
    event: &ReceiverEvent,
    out: &ReceiverOutputs,
) -> (RxAction, RxAction) {
    fn all<const N: usize>() -> Bits<N> {
        !Bits::<N>::default()
    }
    let mut expected = RxAction {
        qpn: record.qpn,
        place: out.place,
        discard: out.discard,
        ack_valid: out.ack.is_some(),
        store: out.store.is_some(),
        due: bits(out.due.into()),
        request: out.request,
        read_tail: out.response_ends,
        atomic: out.atomic,
        swap: out.request && record.opcode.index() & 0x1f == 19,
        advances: out.ack.is_some_and(|ack| ack.aack != before.rcv_nxt),
        marker: out.marker,
        ..RxAction::default()
    };
    let mut care = RxAction {
        qpn: all(),
        place: true,
        discard: true,
        ack_valid: true,
        store: true,
        due: all(),
        request: true,
        read_tail: true,
        atomic: true,
        swap: true,
        advances: true,
        marker: true,
        ..RxAction::default()
    };
    if out.request {
        (expected.iova, care.iova) = (record.mr.iova, all());
        (expected.byte_len, care.byte_len) = (record.dma_length, all());
    }
    if out.request || out.response_ends {
        (expected.wsn, care.wsn) = (record.wsn, all());
    }
    if out.atomic {
        (expected.swap_add, care.swap_add) = (record.swap_add, all());
    }
    if out.atomic && out.request {
        (expected.compare, care.compare) = (record.compare, all());
    }
    if out.place {
        (expected.iova, care.iova) = (record.mr.iova, all());
        (expected.length, care.length) = (record.length, all());
    }
    if out.place && out.atomic {
        expected.length = bits(8);
    } else if out.place {
        (expected.header, care.header) = (record.header, all());
    }
    if let Some(ack) = out.ack {
        expected.ack = AckCmd {
            qpn: record.qpn,
            sack: bits(ack.sack.into()),
            aack: bits(ack.aack.into()),
            msn: bits(ack.msn.into()),
            syndrome: bits(ack.syndrome.into()),
            flags: bits(ack.flags.into()),
            vp: bits(ack.vp.into()),
            stamp: bits(ack.stamp.into()),
            map: bits_of_bytes(&ack.map.to_le_bytes()),
        };
        care.ack = AckCmd {
            qpn: all(),
            sack: all(),
            aack: all(),
            msn: all(),
            syndrome: all(),
            flags: all(),
            vp: all(),
            stamp: all(),
            map: all(),
        };
    }
    if let (Some(byte_len), ReceiverEvent::Packet(packet)) = (out.store, event) {
        (expected.wsn, care.wsn) = (bits(packet.wsn.into()), all());
        (expected.imm, care.imm) = (bits(packet.imm.into()), all());
        (expected.byte_len, care.byte_len) = (bits(byte_len.into()), all());
    }
    if out.due != 0 {
        (expected.due_wsn, care.due_wsn) = (bits(out.due_wsn.into()), all());
        (expected.cqn, care.cqn) = (bits(before.rq_cqn.into()), all());
    }
    (expected, care)
}

/// Runs a plan on the compiled Verilog of the engine with `L` slots.
fn run_verilated<const L: usize>(plan: Plan) -> Report {
    with_big_stack(|| {
        let mut dut = verilated(ReceiverEngine::<QPW, L>::default(), "receiver_engine");
        Bench::new(plan).run(&mut dut)
    })
}

fn plan(slots: u32, events: usize) -> Plan {
    Plan {
        seed: 31 + u64::from(slots),
        slots,
        events,
        qps: [1, 3, 8, 200],
        tamper: None,
        first: 0,
    }
}

fn print(report: &Report) {
    println!("{report:#?}");
}

#[test]
fn equals_the_model_64() {
    let report = run_verilated::<64>(plan(64, 8000));
    print(&report);
    assert!(report.mismatches.is_empty());
    assert!(report.longest_run >= 60);
}

#[test]
fn equals_the_model_128() {
    let report = run_verilated::<128>(plan(128, 8000));
    print(&report);
    assert!(report.mismatches.is_empty());
    assert!(report.longest_run >= 120);
    assert!(report.counts.iter().all(|&n| n > 5), "every rule is met");
    assert!(report.requests > 100 && report.read_tails > 100);
    assert!(report.atomics.iter().all(|&n| n > 50));
    assert!(report.atomics_waiting > 20 && report.atomics_refused > 10);
}

/// Enough to notice most faults, for the mutation check.
#[test]
#[ignore = "the beginning of equals_the_model_128"]
fn equals_the_model_in_short() {
    let report = run_verilated::<128>(plan(128, 2500));
    assert!(report.mismatches.is_empty(), "{}", report.mismatches[0]);
    assert!(report.counts.iter().all(|&n| n > 0), "every rule is met");
}

/// Bit positions of a field of the context, from a record that has ones there and zeros elsewhere.
fn field(record: ReceiverState) -> String {
    let bytes = encode(record);
    let ones: Vec<usize> = (0..8 * bytes.len())
        .filter(|&i| bytes[i / 8] >> (i % 8) & 1 == 1)
        .collect();
    format!("{}:{}", ones[ones.len() - 1], ones[0])
}

/// The engine with `first` in place of the zeros with which the WSN and the MSN of a QP start.
fn from_first(first: u32) -> VerilatedBlock {
    let mut block = Engine128::default();
    block.connect_all();
    let text = generate(&block, "receiver_engine").expect("Verilog");
    let record = |msn: u64, due_wsn: u64| ReceiverState {
        msn: bits(msn),
        due_wsn: bits(due_wsn),
        ..ReceiverState::default()
    };
    let width = ReceiverState::BITS;
    let value: String = encode(record(first.into(), first.into()))
        .iter()
        .rev()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let mut changes = vec![(
        format!("blank = {width}'h0;"),
        format!("blank = {width}'h{value};"),
    )];
    for at in [field(record(0xff_ffff, 0)), field(record(0, 0xff_ffff))] {
        changes.push((
            format!("stored[{at}] = 24'h0;"),
            format!("stored[{at}] = 24'h{first:x};"),
        ));
    }
    let text = changes.iter().fold(text, |text, (from, to)| {
        assert_eq!(text.matches(from.as_str()).count(), 1, "{from}");
        text.replace(from.as_str(), to)
    });
    let options = BuildOptions::default();
    VerilatedBlock::from_verilog(&text, "receiver_engine", &ports(&block), &options)
        .expect("an engine")
}

/// WSN and MSN go over 2^24.
#[test]
fn wsns_wrap() {
    let plan = Plan {
        first: 0xff_fff0,
        ..plan(128, 14_000)
    };
    let report = with_big_stack(|| Bench::new(plan).run(&mut from_first(plan.first)));
    print(&report);
    assert!(report.mismatches.is_empty());
    assert!(report.wrapped > 5);
    // An engine that does not start there differs.
    let report = run_verilated::<128>(plan);
    assert!(!report.mismatches.is_empty());
}

/// The comparison notices one wrong bit in an ACK, and a window of the wrong size.
#[test]
fn a_difference_is_found() {
    let report = run_verilated::<128>(Plan {
        tamper: Some(500),
        ..plan(128, 8000)
    });
    assert!(!report.mismatches.is_empty());
    let report = run_verilated::<128>(Plan {
        slots: 127,
        ..plan(128, 8000)
    });
    assert!(!report.mismatches.is_empty());
}

/// Faults planted in the Verilog are noticed: an event that meets its predecessor in the last stage, a limit off by one.
#[test]
fn faults_are_found() {
    for (good, bad) in [
        ("(valid_7_q & (event_7_q[9:2] == entry))", "1'b0"),
        ("receive_window = 24'h20;", "receive_window = 24'h21;"),
    ] {
        let report = with_big_stack(|| {
            let mut block = Engine128::default();
            block.connect_all();
            let text = generate(&block, "receiver_engine").expect("Verilog");
            assert!(text.contains(good), "the place of the fault: {good}");
            let text = text.replace(good, bad);
            let options = BuildOptions::default();
            let mut dut =
                VerilatedBlock::from_verilog(&text, "receiver_engine", &ports(&block), &options)
                    .expect("a faulty engine");
            Bench::new(plan(128, 8000)).run(&mut dut)
        });
        assert!(!report.mismatches.is_empty(), "{good} -> {bad}");
        println!("{}", report.mismatches[0]);
    }
}

/// The rust-hdl simulator of the engine equals the model too, and the Verilog equals the simulator cycle by cycle.
#[test]
fn the_simulator_equals_the_model() {
    with_big_stack(|| {
        let mut dut = simulated(ReceiverEngine::<QPW, 128>::default(), "receiver_engine");
        let report = Bench::new(Plan {
            qps: [2, 2, 2, 2],
            ..plan(128, 300)
        })
        .run(&mut dut);
        print(&report);
        assert!(report.mismatches.is_empty());
        dut.verify().unwrap();
    });
}

/// The long run: writes `target/lockstep-receiver.json`.
///
/// `cargo test -p mprdma-hw --test receiver -- --ignored lockstep_long`
#[test]
#[ignore = "long; make lockstep runs it"]
fn lockstep_long() {
    let (mut events, mut mismatches) = (0, vec![]);
    for seed in 0..2 {
        for report in [
            run_verilated::<64>(Plan {
                seed: 1000 + seed,
                ..plan(64, 60_000)
            }),
            run_verilated::<128>(Plan {
                seed: 2000 + seed,
                ..plan(128, 60_000)
            }),
        ] {
            print(&report);
            events += report.events;
            mismatches.extend(report.mismatches);
        }
    }
    let result = serde_json::json!({
        "engine": "receiver",
        "events": events,
        "mismatches": mismatches.len(),
    });
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../target/lockstep-receiver.json"
    );
    std::fs::write(file, format!("{result}\n")).expect("a result file");
    assert!(mismatches.is_empty(), "{mismatches:#?}");
}

/// Cycles between the write-backs of `count` doorbells over `qps` QPs.
fn cycles_per_event(qps: u64, count: usize) -> f64 {
    with_big_stack(|| {
        let mut dut = verilated(ReceiverEngine::<QPW, 128>::default(), "receiver_engine");
        dut.set("action_ready", true);
        dut.set("reset", true);
        dut.low();
        dut.set("reset", false);
        while !dut.bit("init_done") {
            dut.low();
        }
        let mut qpn = 0;
        let mut at = vec![];
        dut.set("rx_valid", true);
        for cycle in 0.. {
            let packet = RxEvent {
                qpn: bits(qpn),
                ..RxEvent::default()
            };
            dut.set("rx", packet);
            dut.low();
            if dut.bit("rx_ready") {
                qpn = (qpn + 1) % qps;
            }
            if dut.bit("wb_valid") {
                at.push(cycle);
            }
            if at.len() == count {
                break;
            }
        }
        f64::from(at[count - 1] - at[0]) / (count - 1) as f64
    })
}

#[test]
fn throughput() {
    let (one, many) = (cycles_per_event(1, 500), cycles_per_event(16, 500));
    println!("cycles per packet: {one} for one QP, {many} over 16 QPs");
    assert!(one <= 8.0 && many <= 1.0);
}
