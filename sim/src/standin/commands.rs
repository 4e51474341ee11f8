//! The command unit: checks a command, changes the tables, reports.

use super::events::Event;
use super::fetch::SendQueue;
use super::frames::Peer;
use super::queues::{CompletionQueue, EventQueue};
use super::reads::ReadBook;
use super::regions::Region;
use super::telemetry::{Tally, Trace};
use super::timing::COMMAND;
use super::StandIn;
use mprdma_model::receiver::{ReceiverContext, ReceiverEvent, ReceiverImage};
use mprdma_model::sender::{SenderEvent, SenderImage};
use mprdma_spec::command::{
    cq_image, eq_image, mr_image, qp_image, qp_status, trace_request, Opcode, QpState, Status,
    MASK_ADDRESS, MASK_MULTIPATH, MASK_RECEIVER, MASK_SENDER, MASK_STATE, TRACED_VPS, TRACE_GROUP,
};
use mprdma_spec::config::MSIX_VECTORS;
use mprdma_spec::layout::Field;

/// `qp_image::MODE` of the MP transport.
const MODE_MP: u64 = 1;
/// Largest IBA code of an MTU.
const MTU_MOST: u64 = 5;

/// A command under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Running {
    outcome: Status,
    /// The time that every command takes is over.
    settled: bool,
    /// DESTROY_QP: the marker of each pipeline has come out.
    transmitted: bool,
    received: bool,
}

type Image = [u8; qp_image::BYTES];

/// What a command code stands for.
fn decode(code: u8) -> Option<Opcode> {
    use Opcode::*;
    let all = [
        Nop,
        CreateQp,
        ModifyQp,
        QueryQp,
        DestroyQp,
        RegisterMr,
        DeregisterMr,
        CreateCq,
        DestroyCq,
        CreateEq,
        DestroyEq,
        QueryQpStats,
        TraceQp,
        ReadTrace,
    ];
    all.into_iter().find(|opcode| *opcode as u8 == code)
}

impl StandIn {
    /// A command code is written. While tables are cleared, or a command runs, it is ignored.
    pub(super) fn start_command(&mut self, code: u8) {
        if self.tables.running.is_some() || self.now < self.tables.ready_at {
            return;
        }
        let image: Image = self.registers.arguments;
        let checked = match decode(code) {
            None => Err(Status::BadOpcode),
            Some(opcode) => self.check(opcode, &image).map(|()| opcode),
        };
        let destroys = checked == Ok(Opcode::DestroyQp);
        self.tables.running = Some(Running {
            outcome: checked.err().unwrap_or(Status::Ok),
            settled: false,
            transmitted: !destroys,
            received: !destroys,
        });
        if let Ok(opcode) = checked {
            self.carry_out(opcode, &image);
        }
        self.schedule(self.now + self.cycles(COMMAND), Event::CommandDone);
    }

    pub(super) fn command_done(&mut self) {
        self.update_command(|running| running.settled = true);
    }

    /// The marker of a destroyed queue pair has come out of the transmit pipeline.
    pub(super) fn transmit_marker(&mut self) {
        self.update_command(|running| running.transmitted = true);
    }

    /// The same of the receive pipeline.
    pub(super) fn receive_marker(&mut self) {
        self.update_command(|running| running.received = true);
    }

    fn update_command(&mut self, change: impl FnOnce(&mut Running)) {
        let Some(running) = &mut self.tables.running else {
            return;
        };
        change(running);
        if running.settled && running.transmitted && running.received {
            self.registers.outcome = running.outcome as u8;
            self.tables.running = None;
        }
    }

    /// What is wrong with a command, in the order of the RTL's checks.
    fn check(&self, opcode: Opcode, image: &Image) -> Result<(), Status> {
        use Opcode::*;
        let number = |field: Field| field.get(image) as usize;
        let tables = &self.tables;
        let key = number(mr_image::KEY);
        let exists = match opcode {
            Nop => return Ok(()),
            CreateQp | ModifyQp | QueryQp | DestroyQp | QueryQpStats | TraceQp | ReadTrace => {
                tables.qps.get(number(qp_image::QPN)).map(|qp| qp.exists)
            }
            RegisterMr | DeregisterMr => tables.regions.get(key >> 8).map(|region| region.exists),
            CreateCq | DestroyCq => tables.cqs.get(number(cq_image::CQN)).map(|cq| cq.exists),
            CreateEq | DestroyEq => {
                (number(eq_image::EQN) < 1 << self.config.eq_log2).then_some(tables.eq.exists)
            }
        };
        let creates = matches!(opcode, CreateQp | RegisterMr | CreateCq | CreateEq);
        match (exists.ok_or(Status::BadIndex)?, creates) {
            (true, true) => return Err(Status::Exists),
            (false, false) => return Err(Status::Missing),
            _ => {}
        }
        let good = match opcode {
            DeregisterMr if tables.regions[key >> 8].generation != key as u8 => {
                return Err(Status::BadIndex)
            }
            CreateQp => groups_are_good(image, u64::MAX) && creation_is_good(image),
            ModifyQp => groups_are_good(image, qp_image::MASK.get(image)),
            ReadTrace => number(trace_request::GROUP) <= TRACED_VPS / TRACE_GROUP,
            RegisterMr => Region::read(image).is_whole(),
            CreateCq => ring_is_good(
                image,
                [cq_image::LOG2, cq_image::VECTOR, cq_image::BASE],
                32,
            ),
            CreateEq => ring_is_good(
                image,
                [eq_image::LOG2, eq_image::VECTOR, eq_image::BASE],
                16,
            ),
            _ => true,
        };
        if !good {
            return Err(Status::BadArgument);
        }
        let cq_exists = |field: Field| tables.cqs.get(number(field)).is_some_and(|cq| cq.exists);
        if opcode == CreateQp && !(cq_exists(qp_image::SQ_CQN) && cq_exists(qp_image::RQ_CQN)) {
            return Err(Status::Missing);
        }
        Ok(())
    }

    fn carry_out(&mut self, opcode: Opcode, image: &Image) {
        let qpn = qp_image::QPN.get(image) as u16;
        let cqn = cq_image::CQN.get(image) as usize;
        let region = (mr_image::KEY.get(image) >> 8) as usize;
        match opcode {
            Opcode::Nop => {}
            Opcode::CreateQp => self.create_qp(qpn, image),
            Opcode::ModifyQp => self.modify_qp(qpn, image),
            Opcode::QueryQp => self.query_qp(qpn),
            Opcode::DestroyQp => self.destroy_qp(qpn),
            Opcode::RegisterMr => self.tables.regions[region] = Region::read(image),
            Opcode::DeregisterMr => self.tables.regions[region] = Region::default(),
            Opcode::CreateCq => self.tables.cqs[cqn] = CompletionQueue::read(image),
            Opcode::DestroyCq => self.tables.cqs[cqn] = CompletionQueue::default(),
            Opcode::CreateEq => self.tables.eq = EventQueue::read(image),
            Opcode::DestroyEq => self.tables.eq = EventQueue::default(),
            Opcode::QueryQpStats => self.query_qp_stats(qpn),
            Opcode::TraceQp => self.tables.trace = Trace::start(image),
            Opcode::ReadTrace => self.read_trace(image),
        }
    }

    fn create_qp(&mut self, qpn: u16, image: &Image) {
        let qp = &mut self.tables.qps[usize::from(qpn)];
        qp.exists = true;
        qp.send = SendQueue::read(image, &qp.send);
        qp.peer = Peer::read(image);
        qp.open.clear();
        qp.reads = ReadBook::default();
        qp.completion.create(image);
        qp.tally = Tally::default();
        self.sender_event(qpn, &SenderEvent::Create(SenderImage::read(image)));
        let image = ReceiverImage::from_bytes(image);
        self.receiver_event(qpn, &ReceiverEvent::Create(image));
    }

    fn modify_qp(&mut self, qpn: u16, image: &Image) {
        let mask = qp_image::MASK.get(image);
        let takes = |group: u64| mask & group != 0;
        let qp = &mut self.tables.qps[usize::from(qpn)];
        if takes(MASK_ADDRESS) {
            qp.peer = Peer::read(image);
        }
        if takes(MASK_SENDER) {
            qp.open.clear();
            qp.reads.restart_requester();
            qp.answers.clear();
            qp.completion.restart(image);
            qp.send.restart(image);
        }
        if takes(MASK_RECEIVER) {
            qp.reads.restart_responder();
        }
        if takes(MASK_STATE) {
            qp.send.state = qp_image::STATE.get(image) as u8;
        }
        self.sender_event(qpn, &SenderEvent::Modify(SenderImage::read(image)));
        let image = ReceiverImage::from_bytes(image);
        self.receiver_event(qpn, &ReceiverEvent::Modify(image));
        self.work_arrived(qpn);
    }

    fn query_qp(&mut self, qpn: u16) {
        let qp = &self.tables.qps[usize::from(qpn)];
        let mut result = [0; qp_status::BYTES];
        result[..64].copy_from_slice(&qp.sender.status());
        report_receiver(&qp.receiver, &mut result);
        self.registers.result = result;
    }

    fn destroy_qp(&mut self, qpn: u16) {
        let qp = &mut self.tables.qps[usize::from(qpn)];
        qp.exists = false;
        qp.send = SendQueue::destroyed(&qp.send);
        qp.open.clear();
        qp.reads = ReadBook::default();
        qp.answers.clear();
        qp.completion = Default::default();
        self.sender_event(qpn, &SenderEvent::Destroy);
        self.receiver_event(qpn, &ReceiverEvent::Destroy);
    }
}

/// The second half of QUERY_QP's result.
fn report_receiver(receiver: &ReceiverContext, result: &mut [u8]) {
    for (field, value) in [
        (qp_status::RX_STATE, u64::from(receiver.state)),
        (qp_status::RCV_NXT, receiver.rcv_nxt.into()),
        (qp_status::MSN, receiver.msn.into()),
        (qp_status::RECEIVED, receiver.received.into()),
        (qp_status::RCV_WSN, receiver.due_wsn.into()),
        (qp_status::RQ_PRODUCER, receiver.rq_producer.into()),
    ] {
        field.set(result, value);
    }
}

/// Whether the groups of a QP image that `mask` names hold what they may.
fn groups_are_good(image: &Image, mask: u64) -> bool {
    let get = |field: Field| field.get(image);
    let state = get(qp_image::STATE);
    let state_good = state != 0 && state <= QpState::Error as u64;
    let paths = get(qp_image::VP_COUNT);
    let multipath_good = paths != 0
        && get(qp_image::VP_BASE) + paths <= 1 << 16
        && (1..1 << 7).contains(&get(qp_image::DELTA))
        && get(qp_image::INITIAL_WINDOW) != 0
        && (1..1 << 11).contains(&get(qp_image::CWND_MAX))
        && get(qp_image::BURST_INTERVAL) != 0;
    (mask & MASK_STATE == 0 || state_good)
        && (mask & MASK_MULTIPATH == 0 || multipath_good)
        && (mask & MASK_SENDER == 0 || get(qp_image::RTO_FLOOR) != 0)
}

/// What only CREATE_QP checks.
fn creation_is_good(image: &Image) -> bool {
    let get = |field: Field| field.get(image);
    get(qp_image::MODE) == MODE_MP
        && (1..=MTU_MOST).contains(&get(qp_image::MTU))
        && get(qp_image::SQ_LOG2) != 0
        && get(qp_image::RQ_LOG2) != 0
        && get(qp_image::SQ_BASE) % 64 == 0
        && get(qp_image::RQ_BASE) % 16 == 0
}

fn ring_is_good(image: &Image, [log2, vector, base]: [Field; 3], entry_bytes: u64) -> bool {
    log2.get(image) != 0
        && base.get(image) % entry_bytes == 0
        && vector.get(image) < MSIX_VECTORS as u64
}
