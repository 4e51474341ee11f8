//! SqFetch: rings in a model of host memory, a memory region table, random doorbells, retirements, errors, commands.

use crate::support::*;
use mprdma_hw::leaf::beat::bits_of_bytes;
use mprdma_hw::leaf::Beat;
use mprdma_hw::nic::sq_fetch::SqFetch;
use mprdma_hw::nic::types::*;
use mprdma_hw::prelude::*;
use mprdma_hw::with_big_stack;
use mprdma_spec::command::{qp_image, Opcode, QpState, MASK_SENDER, MASK_STATE, RIGHT_LOCAL_WRITE};
use mprdma_spec::config::KEEPALIVE_CYCLES_LOG2;
use mprdma_spec::descriptor::{sq_wqe, WrOpcode, WQE_FENCE, WQE_SYNC};
use mprdma_spec::status::WcStatus;
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::collections::VecDeque;

const QPW: usize = 2;
const QPS: u64 = 1 << QPW;
const WQE: usize = sq_wqe::BYTES;

crate::bench! {
    sq_fetch, SqFetch<QPW, 3>,
    in {
        cfg: CfgReq, cfg_valid: bool, sq_db: Doorbell, sq_db_valid: bool, retired: Retired, retired_valid: bool,
        qp_error: QpError, qp_error_valid: bool, sync_passed: QpMark, sync_passed_valid: bool, read_done: QpMark,
        read_done_valid: bool, respond: Respond, respond_valid: bool, responded_ready: bool, read: Beat, read_valid: bool, read_err: bool, answer: MrAnswer,
        answer_valid: bool, read_req_ready: bool, query_ready: bool, launch_ready: bool, work_ready: bool,
    }
    out {
        sq_db_ready: bool, retired_ready: bool, qp_error_ready: bool, sync_passed_ready: bool, read_done_ready: bool,
        respond_ready: bool, responded: Responded, responded_valid: bool, read_ready: bool, answer_ready: bool,
        read_req: DmaReadReq, read_req_valid: bool, query: MrQuery, query_valid: bool, launch: Launch,
        launch_valid: bool, work: Work, work_valid: bool, cfg_done: bool, init_done: bool, busy: bool,
    }
}

/// Bit of a key whose region lets nobody write here.
const NOT_WRITABLE: u64 = 4;
/// Messages in the ring when work requests wait, and when answers wait too.
const OWN_MOST: usize = 48;
const RING_MOST: usize = 64;

/// The memory region table of the test: the key says what it answers.
fn region(query: &MrQuery) -> MrAnswer {
    let key = query.key.to_u64();
    MrAnswer {
        hit: key & 3 != 3,
        rights: if key & NOT_WRITABLE == 0 {
            RIGHT_LOCAL_WRITE
        } else {
            !RIGHT_LOCAL_WRITE & 0xff
        }
        .to_bits(),
        pd: (key >> 8 & 0xffff).to_bits(),
        iova: (query.va.to_u64() ^ 0x5500_0000_0000).to_bits(),
    }
}

/// A send queue as its driver sees it.
#[derive(Default)]
struct Queue {
    /// State that the card was last told, by command or error.
    state: u64,
    base: u64,
    log2: u32,
    mtu: u64,
    pd: u64,
    ring: Vec<[u8; WQE]>,
    posted: u64,
    /// Launched, retired: counts since creation.
    launched: u64,
    retired: u64,
    next_psn: u32,
    next_wsn: u32,
    slot: u64,
    /// The ring: packets of each message, and whether it is a work request.
    open: VecDeque<(u32, bool)>,
    /// Work requests that left the ring and are not completed.
    late: usize,
    /// READs that are open, and the slot of the next; the queue pair's life.
    reads: usize,
    next_read: u64,
    life: u64,
    /// Answers to come, and whether they may be dropped; the one that is given and of which nothing is known yet.
    responds: VecDeque<(Respond, bool)>,
    given: Option<Respond>,
    /// A synchronised message is launched; its first packet has not left.
    sync_open: bool,
    /// A flushed launch has been seen: from here on all are.
    flushing: bool,
    /// Entries of the ring that a failed read, or a good one, has brought.
    bad: Vec<bool>,
    good: Vec<bool>,
}

impl Queue {
    fn size(&self) -> u64 {
        1 << self.log2
    }

    fn span(&self, length: u64) -> u32 {
        length.div_ceil(128 << self.mtu).max(1) as u32
    }

    fn packets(&self, wqe: &[u8; WQE]) -> u32 {
        if is_answered(wqe) {
            1
        } else {
            self.span(sq_wqe::LENGTH.get(wqe))
        }
    }

    /// Work requests launched and not completed.
    fn own(&self) -> usize {
        self.late + self.open.iter().filter(|m| m.1).count()
    }

    /// What is asked of it now may be asked in vain.
    fn stop(&mut self) {
        self.responds.iter_mut().for_each(|r| r.1 = true);
    }

    /// Status that the next launch should have if its read was good and the queue pair is in RTS.
    fn status(&self, wqe: &[u8; WQE]) -> u64 {
        let key = sq_wqe::LKEY.get(wqe);
        let length = sq_wqe::LENGTH.get(wqe);
        let (read, atomic) = (is_read(wqe), is_atomic(wqe));
        let written = read || atomic;
        if sq_wqe::OPCODE.get(wqe) > 4 {
            WcStatus::LocalQpOperationError as u64
        } else if length > 1 << 31 || read && self.span(length) > 1 << 16 || atomic && length != 8 {
            WcStatus::LocalLengthError as u64
        } else if length != 0
            && (key & 3 == 3 || key >> 8 & 0xffff != self.pd || written && key & NOT_WRITABLE != 0)
        {
            WcStatus::LocalProtectionError as u64
        } else {
            0
        }
    }
}

fn is_read(wqe: &[u8; WQE]) -> bool {
    sq_wqe::OPCODE.get(wqe) == WrOpcode::RdmaRead as u64
}

fn is_atomic(wqe: &[u8; WQE]) -> bool {
    let opcode = sq_wqe::OPCODE.get(wqe);
    opcode == WrOpcode::AtomicCmpAndSwp as u64 || opcode == WrOpcode::AtomicFetchAndAdd as u64
}

fn is_answered(wqe: &[u8; WQE]) -> bool {
    is_read(wqe) || is_atomic(wqe)
}

struct Read {
    qpn: usize,
    first: u64,
    beats: u64,
    next: u64,
    failed: bool,
    wait: u32,
}

#[derive(Clone, Copy)]
struct Mix {
    /// Percentage of WQEs that cannot be sent, and of reads that fail.
    faults: u32,
    /// Percentage of WQEs that are synchronised, and of steps with one of them passed.
    syncs: u32,
    passes: u32,
    /// Percentage of WQEs that are READs or ATOMICs, of those with a fence, and of steps in which one ends, or one of the
    /// peer is to be answered.
    reads: u32,
    fences: u32,
    ends: u32,
    responds: u32,
    /// Largest message in packets, as a power of two.
    longest: u32,
    /// Percentage of steps with a doorbell, and with a retirement.
    doorbells: u32,
    retirements: u32,
    /// One command, and one error, in so many steps.
    commands: u32,
    errors: u32,
    /// Ring sizes.
    log2: (u32, u32),
}

const CALM: Mix = Mix {
    faults: 0,
    syncs: 20,
    passes: 20,
    reads: 30,
    fences: 5,
    ends: 20,
    responds: 10,
    longest: 4,
    doorbells: 10,
    retirements: 30,
    commands: 2000,
    errors: 2000,
    log2: (1, 6),
};

fn wqe(rng: &mut ChaCha8Rng, queue: &Queue, mix: &Mix) -> [u8; WQE] {
    let mut wqe = [0; WQE];
    rng.fill(&mut wqe[..]);
    let mtu = 128u64 << queue.mtu;
    let most = (mtu << mix.longest).min(1 << 31);
    let length = match rng.random_range(0..10) {
        0 => 0,
        1 => 1,
        2 => mtu * rng.random_range(1..=1 << mix.longest.min(4)),
        3 => mtu + 1,
        4 => mtu - 1,
        5 => most,
        _ => rng.random_range(0..=most),
    };
    let mut flags = rng.random_range(0..256) & !(WQE_SYNC | WQE_FENCE);
    flags |= u64::from(chance(rng, mix.fences)) * WQE_FENCE;
    let answered = chance(rng, mix.reads);
    let atomic = answered && chance(rng, 40);
    let read = answered && !atomic;
    let sync = u64::from(chance(rng, mix.syncs)) * WQE_SYNC;
    sq_wqe::FLAGS.set(&mut wqe, flags | sync);
    let opcode = match (read, atomic) {
        (true, _) => 2,
        (_, true) => rng.random_range(3..5),
        _ => rng.random_range(0..2),
    };
    sq_wqe::OPCODE.set(&mut wqe, opcode);
    let most = if read { mtu << 16 } else { 1 << 31 };
    sq_wqe::LENGTH.set(&mut wqe, if atomic { 8 } else { length.min(most) });
    let rights = if answered {
        0
    } else {
        rng.random_range(0..2) * NOT_WRITABLE
    };
    sq_wqe::LKEY.set(&mut wqe, queue.pd << 8 | rights | rng.random_range(0..3));
    if chance(rng, mix.faults) {
        match rng.random_range(0..9) {
            0 => sq_wqe::OPCODE.set(&mut wqe, rng.random_range(5..256)),
            1 => sq_wqe::LENGTH.set(&mut wqe, (1 << 31) + rng.random_range(1..1 << 31)),
            2 => sq_wqe::LKEY.set(&mut wqe, queue.pd << 8 | 3),
            3 => sq_wqe::LKEY.set(&mut wqe, (queue.pd ^ 1) << 8),
            4 => {
                sq_wqe::OPCODE.set(&mut wqe, WrOpcode::RdmaRead as u64);
                sq_wqe::LENGTH.set(&mut wqe, ((mtu << 16) + 1).min(1 << 31));
            }
            5 => {
                sq_wqe::OPCODE.set(&mut wqe, WrOpcode::RdmaRead as u64);
                sq_wqe::LKEY.set(&mut wqe, queue.pd << 8 | NOT_WRITABLE);
            }
            6 => {
                sq_wqe::OPCODE.set(&mut wqe, WrOpcode::AtomicFetchAndAdd as u64);
                sq_wqe::LENGTH.set(&mut wqe, [0, 7, 9, 16][rng.random_range(0..4)]);
            }
            7 => {
                sq_wqe::OPCODE.set(&mut wqe, WrOpcode::AtomicCmpAndSwp as u64);
                sq_wqe::LENGTH.set(&mut wqe, 8);
                sq_wqe::LKEY.set(&mut wqe, queue.pd << 8 | NOT_WRITABLE);
            }
            _ => {
                sq_wqe::OPCODE.set(&mut wqe, rng.random_range(0..3));
                sq_wqe::LKEY.set(&mut wqe, 3);
                sq_wqe::LENGTH.set(&mut wqe, 0);
            }
        }
    }
    wqe
}

#[derive(Default, Debug)]
struct Seen {
    launches: u64,
    sent: u64,
    flushed: u64,
    failed: u64,
    again: u64,
    full: u64,
    /// READs, ATOMICs, as many as there may be, and WQEs behind a fence that waited for some.
    reads: u64,
    atomics: u64,
    all_reads: u64,
    fenced: u64,
    /// Answers, sent back, in a full ring, and dropped; questions whether the peer is there.
    responds: u64,
    sent_back: u64,
    keepalives: u64,
    ring_full: u64,
    dropped: u64,
    /// Synchronised messages, and messages launched while one of them waited.
    syncs: u64,
    behind: u64,
    flushed_behind: u64,
    commands: u64,
    destroyed_in_flight: u64,
    wraps: u64,
}

fn drive<B: Bench<In = sq_fetch::In, Out = sq_fetch::Out>>(
    bench: &mut B,
    rng: &mut ChaCha8Rng,
    steps: u64,
    mix: Mix,
) -> Seen {
    bench.reset(|i| i.reset = true);
    let mut queues: Vec<Queue> = (0..QPS).map(|_| Queue::default()).collect();
    let mut doorbells = Source::<Doorbell>::new(80);
    let mut retirements = Source::<Retired>::new(80);
    let mut errors = Source::<QpError>::new(80);
    let mut passes = Source::<QpMark>::new(80);
    let mut ends = Source::<QpMark>::new(80);
    let mut responds = Source::<Respond>::new(80);
    let mut reads: VecDeque<Read> = VecDeque::new();
    let mut answers: VecDeque<MrAnswer> = VecDeque::new();
    let mut works: VecDeque<Work> = VecDeque::new();
    let mut command: Option<(usize, u64, u64, Vec<u8>, bool)> = None;
    let mut pause = 0;
    let mut seen = Seen::default();
    let mut stall = 0;
    let mut step = 0u64;
    let mut shown: Option<(Beat, bool)> = None;
    let mut asked = false;
    let mut idle = 0;
    loop {
        let ending = step >= steps;
        step += 1;
        if step % 600 == 0 {
            stall = [0, 30, 85][rng.random_range(0..3)];
            doorbells.pace = rng.random_range(20..=100);
            retirements.pace = rng.random_range(20..=100);
        }
        let qpn = rng.random_range(0..QPS as usize);
        let frozen = command.as_ref().is_some_and(|c| c.0 == qpn);
        let queue = &mut queues[qpn];
        let id: Bits<16> = (qpn as u64).to_bits();
        if queue.state != 0 && !frozen {
            let bells = doorbells.items.iter().any(|d| d.number == id);
            if !ending && !bells && chance(rng, mix.doorbells) {
                let room = queue.size() - (queue.posted - queue.retired);
                let count = if chance(rng, 50) {
                    room
                } else {
                    rng.random_range(0..=room.min(12))
                };
                for _ in 0..count {
                    let entry = wqe(rng, queue, &mix);
                    let at = (queue.posted % queue.size()) as usize;
                    queue.ring[at] = entry;
                    queue.bad[at] = false;
                    queue.good[at] = false;
                    queue.posted += 1;
                }
                let mut index = queue.posted;
                if count == 0 && chance(rng, 20) {
                    // More than the ring holds: must be ignored.
                    index = queue.launched + queue.size() + 100;
                }
                doorbells.items.push_back(Doorbell {
                    number: id,
                    index: (index & 0xffff).to_bits(),
                    arm: false,
                });
            }
            let leaving = retirements.items.iter().any(|r| r.qpn == id);
            if !leaving && (ending || chance(rng, mix.retirements)) {
                if queue.late > 0 && chance(rng, 40) || queue.open.is_empty() {
                    if queue.late > 0 {
                        retirements.items.push_back(Retired {
                            qpn: id,
                            own: true,
                            ..Retired::default()
                        });
                    }
                } else {
                    let (packets, own) = queue.open[0];
                    retirements.items.push_back(Retired {
                        qpn: id,
                        ring: true,
                        packets: u64::from(packets).to_bits(),
                        own: own && chance(rng, 60),
                    });
                }
            }
            let ended = ends.items.iter().any(|e| e.qpn == id);
            if queue.reads > 0 && !ended && (ending || chance(rng, mix.ends)) {
                ends.items.push_back(QpMark { qpn: id });
            }
            if !ending && queue.given.is_none() && chance(rng, mix.responds) {
                let stale = chance(rng, 5);
                let mtu = 128u64 << queue.mtu;
                let respond = Respond {
                    qpn: id,
                    life: ((queue.life + u64::from(stale)) % 16).to_bits(),
                    slot: rng.random_range(0..16u64).to_bits(),
                    iova: rng.random_range(0..u64::MAX >> 1).to_bits(),
                    length: match rng.random_range(0..6) {
                        0 => 0,
                        1 => mtu,
                        2 => mtu + 1,
                        3 => (mtu << mix.longest.min(16)).min(1 << 31),
                        _ => rng.random_range(0..20 * mtu),
                    }
                    .to_bits(),
                    atomic: false,
                };
                let respond = if chance(rng, 40) {
                    Respond {
                        length: 8u64.to_bits(),
                        atomic: true,
                        ..respond
                    }
                } else {
                    respond
                };
                let vain = stale || queue.state != QpState::Rts as u64;
                queue.responds.push_back((respond, vain));
                queue.given = Some(respond);
                responds.items.push_back(respond);
            }
            // A queue pair in ERROR passes nothing more.
            let passing = passes.items.iter().any(|p| p.qpn == id)
                || works.iter().any(|w| w.qpn == id && w.sync)
                || queue.state != QpState::Rts as u64;
            if queue.sync_open && !passing && (ending || chance(rng, mix.passes)) {
                passes.items.push_back(QpMark { qpn: id });
            }
            let told = errors.items.iter().any(|e| e.qpn == id);
            if !ending && !told && rng.random_range(0..mix.errors) == 0 {
                errors.items.push_back(QpError {
                    qpn: id,
                    status: 4u64.to_bits(),
                });
            }
        }
        let queue = &mut queues[qpn];
        let on_way = doorbells.items.iter().any(|d| d.number == id)
            || retirements.items.iter().any(|r| r.qpn == id)
            || errors.items.iter().any(|e| e.qpn == id)
            || passes.items.iter().any(|p| p.qpn == id)
            || ends.items.iter().any(|e| e.qpn == id);
        let rts = QpState::Rts as u64;
        let broken = queue.state == QpState::Error as u64;
        let due = queue.state == 0
            || queue.state == QpState::Init as u64
            || broken && chance(rng, 1)
            || rng.random_range(0..mix.commands) == 0;
        if !ending && command.is_none() && pause == 0 && !on_way && due {
            let mut image = vec![0; qp_image::BYTES];
            qp_image::MTU.set(&mut image, rng.random_range(1..=5));
            qp_image::PD.set(&mut image, rng.random_range(0..1 << 16));
            qp_image::SQ_BASE.set(
                &mut image,
                (qpn as u64 + 1) << 40 | rng.random_range(0..1u64 << 20) << 6,
            );
            qp_image::SQ_LOG2.set(
                &mut image,
                u64::from(rng.random_range(mix.log2.0..=mix.log2.1)),
            );
            qp_image::SQ_PSN.set(
                &mut image,
                [rng.random_range(0..1 << 24), 0xff_fff0][rng.random_range(0..2)],
            );
            let (op, state, mask) = if queue.state == 0 {
                (
                    Opcode::CreateQp,
                    [rts, QpState::Init as u64][rng.random_range(0..2)],
                    0,
                )
            } else if queue.state == QpState::Init as u64 {
                (Opcode::ModifyQp, rts, MASK_STATE | MASK_SENDER)
            } else {
                [
                    (Opcode::DestroyQp, 0, 0),
                    (Opcode::ModifyQp, QpState::Error as u64, MASK_STATE),
                    (Opcode::QueryQp, 0, 0xff),
                    (Opcode::ModifyQp, rts, 0),
                ][if broken { 0 } else { rng.random_range(0..4) }]
            };
            qp_image::STATE.set(&mut image, state);
            qp_image::MASK.set(&mut image, mask);
            let flying = reads.iter().any(|r| r.qpn == qpn);
            seen.destroyed_in_flight += u64::from(op == Opcode::DestroyQp && flying);
            // An error may take effect at once, a new life when the command is done.
            if op == Opcode::CreateQp {
                *queue = Queue {
                    state,
                    base: qp_image::SQ_BASE.get(&image),
                    log2: qp_image::SQ_LOG2.get(&image) as u32,
                    mtu: qp_image::MTU.get(&image),
                    pd: qp_image::PD.get(&image),
                    next_psn: qp_image::SQ_PSN.get(&image) as u32,
                    life: (queue.life + 1) % 16,
                    responds: std::mem::take(&mut queue.responds),
                    given: queue.given,
                    ..Queue::default()
                };
                queue.ring = vec![[0; WQE]; queue.size() as usize];
                queue.bad = vec![false; queue.size() as usize];
                queue.good = vec![false; queue.size() as usize];
            } else if mask & MASK_SENDER != 0 && op == Opcode::ModifyQp {
                queue.state = state;
                queue.next_psn = qp_image::SQ_PSN.get(&image) as u32;
                queue.next_wsn = 0;
                (queue.late, queue.reads, queue.next_read) = (0, 0, 0);
                queue.sync_open = false;
                queue.stop();
            } else if mask & MASK_STATE != 0 && op == Opcode::ModifyQp {
                queue.state = state;
                queue.stop();
            } else if op == Opcode::DestroyQp {
                queue.stop();
            }
            command = Some((qpn, op as u64, mask, image, true));
        }

        let mut inputs = sq_fetch::In::default();
        (inputs.sq_db, inputs.sq_db_valid) = doorbells.show(rng);
        (inputs.retired, inputs.retired_valid) = retirements.show(rng);
        (inputs.qp_error, inputs.qp_error_valid) = errors.show(rng);
        (inputs.sync_passed, inputs.sync_passed_valid) = passes.show(rng);
        (inputs.read_done, inputs.read_done_valid) = ends.show(rng);
        (inputs.respond, inputs.respond_valid) = responds.show(rng);
        if let Some((qpn, op, _, image, true)) = &command {
            inputs.cfg.op = op.to_bits();
            inputs.cfg.index = (*qpn as u64).to_bits();
            inputs.cfg.image = bits_of_bytes(image);
            inputs.cfg_valid = true;
        }
        if shown.is_none() {
            if let Some(read) = reads.front_mut() {
                read.wait = read.wait.saturating_sub(1);
                if read.wait == 0 && !chance(rng, stall / 2) {
                    let queue = &mut queues[read.qpn];
                    let at = ((read.first + read.next) % queue.size().max(1)) as usize;
                    let mut bytes = [0; WQE];
                    if read.failed {
                        rng.fill(&mut bytes[..]);
                    } else if at < queue.ring.len() {
                        bytes = queue.ring[at];
                    }
                    let last = read.next + 1 == read.beats;
                    shown = Some((Beat::new(&bytes, last), last && read.failed));
                }
            }
        }
        if let Some((beat, failed)) = &shown {
            inputs.read = *beat;
            inputs.read_err = *failed;
            inputs.read_valid = true;
        }
        asked |= !answers.is_empty() && !chance(rng, stall / 2);
        if asked {
            inputs.answer = answers[0];
            inputs.answer_valid = true;
        }
        inputs.read_req_ready = !chance(rng, stall);
        inputs.query_ready = !chance(rng, stall / 2) && answers.len() < 8;
        inputs.launch_ready = !chance(rng, stall);
        inputs.work_ready = !chance(rng, stall);
        inputs.responded_ready = !chance(rng, stall);
        let out = bench.cycle(&inputs);

        if inputs.read_valid && out.read_ready {
            let read = &mut reads[0];
            read.next += 1;
            if read.next == read.beats {
                reads.pop_front();
            }
            shown = None;
        }
        if inputs.answer_valid && out.answer_ready {
            answers.pop_front();
            asked = false;
        }
        if out.query_valid && inputs.query_ready {
            answers.push_back(region(&out.query));
        }
        if out.read_req_valid && inputs.read_req_ready {
            let (iova, length) = (out.read_req.iova.to_u64(), out.read_req.length.to_u64());
            let qpn = (iova >> 40) as usize - 1;
            let queue = &mut queues[qpn];
            let first = (iova - queue.base) / WQE as u64;
            let beats = length / WQE as u64;
            assert!(
                length % WQE as u64 == 0 && (1..=8).contains(&beats),
                "step {step}: {length} bytes"
            );
            assert!(
                first + beats <= queue.size(),
                "step {step}: entries {first}+{beats} pass the end of the ring"
            );
            let failed = chance(rng, mix.faults / 2);
            for at in first..first + beats {
                let ahead = at.wrapping_sub(queue.launched) & (queue.size() - 1);
                // Flushed launches do not wait for reads that were asked for before.
                let posted =
                    queue.launched + ahead < queue.posted || queue.state == QpState::Error as u64;
                assert!(
                    posted,
                    "step {step}: QP {qpn} in state {} reads {first}+{beats} of {}, launched {}, posted {}",
                    queue.state,
                    queue.size(),
                    queue.launched,
                    queue.posted
                );
                seen.again += u64::from(queue.good[at as usize]);
                queue.bad[at as usize] |= failed;
                queue.good[at as usize] |= !failed;
            }
            let wait = if chance(rng, 10) {
                rng.random_range(50..300)
            } else {
                rng.random_range(3..40)
            };
            reads.push_back(Read {
                qpn,
                first,
                beats,
                next: 0,
                failed,
                wait,
            });
            assert!(reads.iter().map(|r| r.beats).sum::<u64>() <= 56);
        }
        if let Some(p) = retirements.taken(out.retired_ready) {
            let queue = &mut queues[p.qpn.index()];
            if p.ring {
                let (_, own) = queue.open.pop_front().unwrap();
                queue.late += usize::from(own);
            }
            queue.late -= usize::from(p.own);
            queue.retired += u64::from(p.own);
        }
        if let Some(e) = ends.taken(out.read_done_ready) {
            queues[e.qpn.index()].reads -= 1;
        }
        responds.taken(out.respond_ready);
        if out.responded_valid && inputs.responded_ready {
            let queue = &mut queues[out.responded.qpn.index()];
            let respond = queue.given.expect("an answer was given");
            if out.responded.taken {
                queue.given = None;
            } else {
                responds.items.push_back(respond);
                seen.sent_back += 1;
            }
        }
        if let Some(e) = errors.taken(out.qp_error_ready) {
            let queue = &mut queues[e.qpn.index()];
            queue.state = QpState::Error as u64;
            queue.stop();
        }
        doorbells.taken(out.sq_db_ready);
        if let Some(p) = passes.taken(out.sync_passed_ready) {
            let queue = &mut queues[p.qpn.index()];
            assert!(queue.sync_open);
            queue.sync_open = false;
        }
        let keepalive = out.launch.opcode.to_u64() == WrOpcode::RdmaWrite as u64;
        if out.launch_valid && inputs.launch_ready && out.launch.response && keepalive {
            let l = out.launch;
            let queue = &mut queues[l.qpn.index()];
            let expected = Launch {
                qpn: l.qpn,
                slot: queue.slot.to_bits(),
                first_psn: u64::from(queue.next_psn).to_bits(),
                packets: 1u64.to_bits(),
                mtu: queue.mtu.to_bits(),
                response: true,
                ..Launch::default()
            };
            assert_eq!(l, expected, "step {step}: keepalive");
            works.push_back(Work {
                qpn: l.qpn,
                packets: 1u64.to_bits(),
                sync: false,
            });
            queue.next_psn = queue.next_psn.wrapping_add(1) & 0xff_ffff;
            queue.slot = (queue.slot + 1) % 64;
            assert!(queue.open.is_empty(), "step {step}: the timer runs already");
            assert!(queue.reads > 0, "step {step}: nothing to ask for");
            queue.open.push_back((1, false));
            seen.keepalives += 1;
        } else if out.launch_valid && inputs.launch_ready && out.launch.response {
            let l = out.launch;
            let queue = &mut queues[l.qpn.index()];
            let text = format!("step {step}: QP {} answer", l.qpn.to_u64());
            let packets = queue.span(l.length.to_u64());
            let expected = Launch {
                qpn: l.qpn,
                slot: queue.slot.to_bits(),
                first_psn: u64::from(queue.next_psn).to_bits(),
                packets: u64::from(packets).to_bits(),
                mtu: queue.mtu.to_bits(),
                iova: l.iova,
                length: l.length,
                swap_add: l.swap_add,
                wsn: l.wsn,
                opcode: l.opcode,
                response: true,
                ..Launch::default()
            };
            assert_eq!(l, expected, "{text}");
            loop {
                let (r, vain) = queue.responds.pop_front().expect("a READ to answer");
                let (opcode, value) = if r.atomic {
                    (WrOpcode::AtomicFetchAndAdd, r.iova)
                } else {
                    (WrOpcode::RdmaRead, Bits::default())
                };
                let same = (r.iova, r.length, r.slot.to_u64(), opcode as u64, value);
                let found = (
                    l.iova,
                    l.length,
                    l.wsn.to_u64(),
                    l.opcode.to_u64(),
                    l.swap_add,
                );
                if same == found {
                    break;
                }
                assert!(vain, "{text}: one is left out");
                seen.dropped += 1;
            }
            let before: u32 = queue.open.iter().map(|m| m.0).sum();
            assert!(queue.open.len() < RING_MOST, "{text}: ring of messages");
            assert!(
                queue.open.is_empty() || before + packets <= 1 << 23,
                "{text}"
            );
            works.push_back(Work {
                qpn: l.qpn,
                packets: u64::from(packets).to_bits(),
                sync: false,
            });
            queue.next_psn = queue.next_psn.wrapping_add(packets) & 0xff_ffff;
            queue.slot = (queue.slot + 1) % 64;
            queue.open.push_back((packets, false));
            seen.responds += 1;
            seen.ring_full += u64::from(queue.open.len() == RING_MOST);
        } else if out.launch_valid && inputs.launch_ready {
            let l = out.launch;
            let queue = &mut queues[l.qpn.index()];
            let at = (queue.launched % queue.size()) as usize;
            let entry = queue.ring[at];
            let text = format!(
                "step {step}: QP {} index {}",
                l.qpn.to_u64(),
                queue.launched
            );
            assert!(
                queue.state == rts || queue.state == QpState::Error as u64,
                "{text}: state {}",
                queue.state
            );
            assert!(queue.launched < queue.posted, "{text}: nothing is posted");
            assert_eq!(l.wqe_index.to_u64(), queue.launched & 0xffff, "{text}");
            assert_eq!(l.slot.to_u64(), queue.slot, "{text}");
            assert_eq!(l.first_psn.to_u64(), u64::from(queue.next_psn), "{text}");
            assert!(queue.open.len() < OWN_MOST, "{text}: ring of messages");
            assert!(queue.own() < 64, "{text}: open work requests");
            let status = l.status.to_u64();
            seen.launches += 1;
            let mut packets = 0;
            if status == WcStatus::WorkRequestFlushed as u64 {
                assert_eq!(queue.state, QpState::Error as u64, "{text}");
                queue.flushing = true;
                seen.flushed += 1;
                seen.flushed_behind += u64::from(queue.sync_open);
            } else {
                assert!(!queue.flushing, "{text}: sent after a flush");
                assert_eq!(
                    l.flags.to_u64(),
                    if status == 19 {
                        l.flags.to_u64()
                    } else {
                        sq_wqe::FLAGS.get(&entry)
                    }
                );
                if status == WcStatus::FatalError as u64 {
                    assert!(queue.bad[at], "{text}: a good read failed");
                    seen.failed += 1;
                    queue.state = QpState::Error as u64;
                    queue.stop();
                } else {
                    assert!(queue.good[at], "{text}: launched from a failed read");
                    assert_eq!(status, queue.status(&entry), "{text}");
                    seen.failed += u64::from(status != 0);
                    if status != 0 {
                        queue.state = QpState::Error as u64;
                        queue.stop();
                    }
                    assert_eq!(l.opcode.to_u64(), sq_wqe::OPCODE.get(&entry));
                    assert_eq!(l.length.to_u64(), sq_wqe::LENGTH.get(&entry));
                    assert_eq!(l.imm.to_u64(), sq_wqe::IMM.get(&entry));
                    assert_eq!(l.raddr.to_u64(), sq_wqe::RADDR.get(&entry));
                    assert_eq!(l.rkey.to_u64(), sq_wqe::RKEY.get(&entry));
                    assert_eq!(
                        l.iova.to_u64(),
                        sq_wqe::LADDR.get(&entry) ^ 0x5500_0000_0000
                    );
                    assert_eq!(l.mtu.to_u64(), queue.mtu);
                    assert_eq!(l.swap_add.to_u64(), sq_wqe::SWAP_ADD.get(&entry));
                    assert_eq!(l.compare.to_u64(), sq_wqe::COMPARE.get(&entry));
                }
                if status == 0 {
                    packets = queue.packets(&entry);
                    let before: u32 = queue.open.iter().map(|m| m.0).sum();
                    assert!(
                        queue.open.is_empty() || before + packets <= 1 << 23,
                        "{text}: {before} + {packets}"
                    );
                    let imm = sq_wqe::OPCODE.get(&entry) == WrOpcode::RdmaWriteWithImm as u64;
                    let (read, atomic) = (is_answered(&entry), is_atomic(&entry));
                    let wsn = if imm {
                        u64::from(queue.next_wsn)
                    } else if read {
                        queue.next_read
                    } else {
                        0
                    };
                    assert_eq!(l.wsn.to_u64(), wsn, "{text}");
                    if sq_wqe::FLAGS.get(&entry) & WQE_FENCE != 0 {
                        assert_eq!(queue.reads, 0, "{text}: passes a fence");
                        seen.fenced += u64::from(queue.next_read > 0);
                    }
                    if read {
                        assert!(queue.reads < 16, "{text}: too many READs");
                        queue.reads += 1;
                        queue.next_read = (queue.next_read + 1) % 16;
                        seen.reads += 1;
                        seen.atomics += u64::from(atomic);
                        seen.all_reads += u64::from(queue.reads == 16);
                    }
                    queue.next_wsn = (queue.next_wsn + u32::from(imm)) & 0xff_ffff;
                    let sync = sq_wqe::FLAGS.get(&entry) & WQE_SYNC != 0;
                    assert!(
                        !(sync && queue.sync_open),
                        "{text}: two synchronised messages"
                    );
                    works.push_back(Work {
                        qpn: l.qpn,
                        packets: u64::from(packets).to_bits(),
                        sync,
                    });
                    seen.sent += 1;
                    seen.syncs += u64::from(sync);
                    seen.behind += u64::from(queue.sync_open);
                    queue.sync_open |= sync;
                }
            }
            assert_eq!(l.packets.to_u64(), u64::from(packets), "{text}");
            queue.next_psn = queue.next_psn.wrapping_add(packets) & 0xff_ffff;
            queue.slot = (queue.slot + 1) % 64;
            queue.open.push_back((packets, true));
            queue.launched += 1;
            seen.full += u64::from(queue.open.len() == OWN_MOST || queue.own() == 64);
            seen.wraps += u64::from(queue.launched % queue.size() == 0);
        }
        if out.work_valid && inputs.work_ready {
            assert_eq!(Some(out.work), works.pop_front(), "step {step}");
        }
        pause -= i32::from(pause > 0);
        if out.cfg_done {
            let (qpn, op, _, _, _) = command.take().expect("an answer without a command");
            seen.commands += 1;
            pause = rng.random_range(2..30);
            if op == Opcode::DestroyQp as u64 {
                assert!(
                    reads.is_empty() && works.is_empty(),
                    "step {step}: destroyed with work under way"
                );
                queues[qpn] = Queue {
                    life: queues[qpn].life,
                    responds: std::mem::take(&mut queues[qpn].responds),
                    given: queues[qpn].given,
                    ..Queue::default()
                };
            }
        }
        let open = |q: &Queue| {
            q.launched != q.posted && (q.state == rts || q.state == QpState::Error as u64)
        };
        let finished = queues.iter().all(|q| {
            q.open.is_empty()
                && q.late == 0
                && q.reads == 0
                && !open(q)
                && q.given.is_none()
                && q.responds.iter().all(|r| r.1)
        });
        let given = doorbells.items.is_empty() && responds.items.is_empty();
        idle = if ending && finished && command.is_none() && given {
            idle + 1
        } else {
            0
        };
        if idle > 100 {
            break;
        }
        assert!(step < steps + 200_000, "not everything was launched");
    }
    assert!(reads.is_empty() && works.is_empty() && answers.is_empty());
    assert!(!bench.cycle(&sq_fetch::In::default()).busy);
    println!("{seen:?}");
    seen
}

#[test]
fn simulated() {
    with_big_stack(|| {
        let mix = Mix {
            faults: 5,
            commands: 300,
            errors: 300,
            ..CALM
        };
        let seen = drive(
            &mut sq_fetch::Simulated::new(SqFetch::default()),
            &mut rng(1),
            1500,
            mix,
        );
        assert!(seen.launches > 50);
    });
}

#[test]
fn verilated() {
    with_big_stack(|| {
        let mixes = [
            CALM,
            Mix {
                log2: (1, 2),
                ..CALM
            },
            Mix {
                faults: 6,
                commands: 500,
                errors: 500,
                ..CALM
            },
            Mix {
                faults: 2,
                commands: 400,
                errors: 400,
                doorbells: 40,
                ..CALM
            },
            // The ring of 64 messages fills, from both sides.
            Mix {
                retirements: 1,
                reads: 5,
                fences: 0,
                responds: 3,
                log2: (6, 9),
                ..CALM
            },
            // The PSNs that may be outstanding run out.
            Mix {
                longest: 23,
                syncs: 5,
                retirements: 2,
                log2: (3, 8),
                ..CALM
            },
            // Synchronised messages that wait long, and die waiting.
            Mix {
                syncs: 60,
                passes: 1,
                log2: (3, 6),
                ..CALM
            },
            Mix {
                syncs: 40,
                passes: 2,
                faults: 2,
                commands: 1000,
                errors: 1000,
                ..CALM
            },
            // Many READs that end seldom; then fences.
            Mix {
                syncs: 0,
                reads: 80,
                fences: 0,
                ends: 2,
                log2: (5, 6),
                ..CALM
            },
            Mix {
                syncs: 5,
                reads: 60,
                fences: 20,
                ends: 5,
                log2: (4, 6),
                ..CALM
            },
            // Answers while queue pairs come and go.
            Mix {
                responds: 40,
                faults: 3,
                commands: 300,
                errors: 300,
                ..CALM
            },
            // Reads under way when they go.
            Mix {
                reads: 0,
                responds: 0,
                doorbells: 40,
                commands: 60,
                errors: 10_000,
                ..CALM
            },
        ];
        let mut seen = vec![];
        for (seed, mix) in (2..).zip(mixes) {
            seen.push(drive(
                &mut sq_fetch::Verilated::new(SqFetch::default()),
                &mut rng(seed),
                40_000,
                mix,
            ));
        }
        assert!(
            seen.iter().all(|s| s.sent > 200 && s.commands > 10),
            "{seen:?}"
        );
        assert!(seen.iter().map(|s| s.wraps).sum::<u64>() > 500 && seen[5].again > 100);
        assert!(seen.iter().map(|s| s.destroyed_in_flight).sum::<u64>() > 3);
        assert!(seen[2].failed > 20 && seen[2].flushed > 20 && seen[4].full > 20);
        assert!(seen[6].syncs > 100 && seen[6].behind > 50 && seen[6].again > 200);
        assert!(seen[7].flushed_behind > 10);
        assert!(
            seen[4].ring_full > 10 && seen[4].sent_back > 10,
            "{:?}",
            seen[4]
        );
        assert!(seen[9].atomics > 50);
        assert!(
            seen[8].all_reads > 50 && seen[8].again > 50,
            "{:?}",
            seen[8]
        );
        assert!(seen[9].fenced > 50 && seen[9].again > 100, "{:?}", seen[9]);
        assert!(
            seen[10].responds > 300 && seen[10].dropped > 20,
            "{:?}",
            seen[10]
        );
    });
}

/// READs whose data do not come, and fences behind them: nothing else is to do than to ask for the peer.
#[test]
fn reads_without_end() {
    with_big_stack(|| {
        let mix = Mix {
            reads: 90,
            fences: 50,
            ends: 0,
            responds: 0,
            commands: 4000,
            errors: 20_000,
            ..CALM
        };
        let seen = drive(
            &mut sq_fetch::Verilated::new(SqFetch::default()),
            &mut rng(15),
            40_000,
            mix,
        );
        assert!(seen.keepalives > 20 && seen.reads > 20, "{seen:?}");
    });
}

/// A queue of every size, past the end of the 16-bit index: in ERROR, where a launch takes the fewest cycles.
#[test]
fn index_wraps() {
    with_big_stack(|| {
        let mut rng = rng(20);
        let mut bench = sq_fetch::Verilated::new(SqFetch::default());
        bench.reset(|i| i.reset = true);
        for (log2, count) in [(1, 100), (2, 200), (5, 500), (10, 3000), (15, 70_000u64)] {
            let mut image = vec![0; qp_image::BYTES];
            qp_image::MTU.set(&mut image, 1);
            qp_image::SQ_LOG2.set(&mut image, log2);
            qp_image::STATE.set(&mut image, QpState::Error as u64);
            let mut inputs = sq_fetch::In {
                launch_ready: true,
                work_ready: true,
                ..sq_fetch::In::default()
            };
            inputs.cfg.op = (Opcode::CreateQp as u64).to_bits();
            inputs.cfg.image = bits_of_bytes(&image);
            inputs.cfg_valid = true;
            while !bench.cycle(&inputs).cfg_done {}
            inputs.cfg_valid = false;
            let (mut posted, mut launched, mut retired) = (0u64, 0u64, 0u64);
            let mut doorbells = Source::<Doorbell>::new(100);
            let mut retirements = Source::<Retired>::new(100);
            for cycle in 0.. {
                assert!(cycle < 100 * count, "{launched} of {count}");
                if retired + (1 << log2) > posted + 8 && doorbells.items.is_empty()
                    || retired == posted
                {
                    posted = (retired + (1 << log2)).min(posted + 100);
                    doorbells.items.push_back(Doorbell {
                        index: (posted & 0xffff).to_bits(),
                        ..Doorbell::default()
                    });
                }
                (inputs.sq_db, inputs.sq_db_valid) = doorbells.show(&mut rng);
                (inputs.retired, inputs.retired_valid) = retirements.show(&mut rng);
                let out = bench.cycle(&inputs);
                assert!(!out.read_req_valid && !out.work_valid);
                doorbells.taken(out.sq_db_ready);
                retired += u64::from(retirements.taken(out.retired_ready).is_some());
                if out.launch_valid {
                    assert_eq!(out.launch.wqe_index.to_u64(), launched & 0xffff);
                    assert_eq!(out.launch.slot.to_u64(), launched % 64);
                    assert_eq!(
                        out.launch.status.to_u64(),
                        WcStatus::WorkRequestFlushed as u64
                    );
                    launched += 1;
                    assert!(launched <= posted);
                    retirements.items.push_back(Retired {
                        ring: true,
                        own: true,
                        ..Retired::default()
                    });
                }
                if launched >= count {
                    break;
                }
            }
            inputs = sq_fetch::In {
                launch_ready: true,
                work_ready: true,
                ..sq_fetch::In::default()
            };
            inputs.cfg.op = (Opcode::DestroyQp as u64).to_bits();
            inputs.cfg_valid = true;
            while !bench.cycle(&inputs).cfg_done {}
            inputs.cfg_valid = false;
            bench.cycle(&inputs);
        }
    });
}

/// At most 10 cycles per WQE, doorbells, reads and retirements included, when nothing stalls.
#[test]
fn pace() {
    with_big_stack(|| {
        let mut bench = sq_fetch::Verilated::new(SqFetch::default());
        bench.reset(|i| i.reset = true);
        let mut image = vec![0; qp_image::BYTES];
        qp_image::MTU.set(&mut image, 3);
        qp_image::SQ_LOG2.set(&mut image, 6);
        qp_image::STATE.set(&mut image, QpState::Rts as u64);
        let mut inputs = sq_fetch::In {
            launch_ready: true,
            responded_ready: true,
            work_ready: true,
            read_req_ready: true,
            query_ready: true,
            ..sq_fetch::In::default()
        };
        inputs.cfg.op = (Opcode::CreateQp as u64).to_bits();
        inputs.cfg.image = bits_of_bytes(&image);
        inputs.cfg_valid = true;
        while !bench.cycle(&inputs).cfg_done {}
        inputs.cfg_valid = false;
        let mut rng = rng(21);
        let (mut beats, mut answers) = (VecDeque::new(), 0);
        let mut doorbells = Source::<Doorbell>::new(100);
        let mut retirements = Source::<Retired>::new(100);
        let mut at: Vec<u64> = vec![];
        doorbells.items.push_back(Doorbell {
            index: 64u64.to_bits(),
            ..Doorbell::default()
        });
        for cycle in 0..10_000 {
            (inputs.sq_db, inputs.sq_db_valid) = doorbells.show(&mut rng);
            (inputs.retired, inputs.retired_valid) = retirements.show(&mut rng);
            inputs.read_valid = !beats.is_empty();
            if let Some(last) = beats.front() {
                inputs.read = Beat::new(&[0; WQE], *last);
            }
            inputs.answer_valid = answers > 0;
            let out = bench.cycle(&inputs);
            doorbells.taken(out.sq_db_ready);
            retirements.taken(out.retired_ready);
            if inputs.read_valid && out.read_ready {
                beats.pop_front();
            }
            answers -= u32::from(inputs.answer_valid && out.answer_ready);
            answers += u32::from(out.query_valid);
            if out.read_req_valid {
                let count = out.read_req.length.to_u64() / WQE as u64;
                beats.extend((1..=count).map(|i| i == count));
            }
            if out.launch_valid {
                at.push(cycle);
                let packets = out.launch.packets;
                retirements.items.push_back(Retired {
                    ring: true,
                    packets,
                    own: true,
                    ..Retired::default()
                });
                if at.len() % 16 == 0 {
                    doorbells.items.push_back(Doorbell {
                        index: (48 + at.len() as u64).to_bits(),
                        ..Doorbell::default()
                    });
                }
            }
        }
        let cycles = at[at.len() - 1] - at[0];
        println!("{} WQEs in {cycles} cycles", at.len());
        assert!(at.len() as u64 * 10 > cycles && at.len() > 900);
    });
}

/// A card with one queue pair and one ring, whose reads and questions are answered at once.
struct OneQueue<B> {
    bench: B,
    ring: [[u8; WQE]; 16],
    posted: u64,
    inputs: sq_fetch::In,
    reads: VecDeque<(usize, bool)>,
    answers: VecDeque<MrAnswer>,
    /// Index, status and packets of each launch.
    launches: Vec<(u64, u64, u64)>,
    /// WSN and packets of each answer.
    answered: Vec<(u64, u64)>,
    /// What became of each answer: it was taken, or is to be given again.
    fates: Vec<bool>,
    /// Questions whether the peer is there; READs that are open.
    keepalives: usize,
    open_reads: usize,
    works: Vec<bool>,
}

impl<B: Bench<In = sq_fetch::In, Out = sq_fetch::Out>> OneQueue<B> {
    fn new(mut bench: B) -> Self {
        bench.reset(|i| i.reset = true);
        let inputs = sq_fetch::In {
            launch_ready: true,
            responded_ready: true,
            work_ready: true,
            read_req_ready: true,
            query_ready: true,
            ..sq_fetch::In::default()
        };
        let mut one = Self {
            bench,
            ring: [[0; WQE]; 16],
            posted: 0,
            inputs,
            reads: VecDeque::new(),
            answers: VecDeque::new(),
            launches: vec![],
            answered: vec![],
            fates: vec![],
            keepalives: 0,
            open_reads: 0,
            works: vec![],
        };
        one.command(Opcode::CreateQp, QpState::Rts, 0);
        one
    }

    fn command(&mut self, op: Opcode, state: QpState, mask: u64) {
        let mut image = vec![0; qp_image::BYTES];
        qp_image::MTU.set(&mut image, 3);
        qp_image::SQ_LOG2.set(&mut image, 4);
        qp_image::STATE.set(&mut image, state as u64);
        qp_image::MASK.set(&mut image, mask);
        self.inputs.cfg.op = (op as u64).to_bits();
        self.inputs.cfg.image = bits_of_bytes(&image);
        self.inputs.cfg_valid = true;
        while !self.cycle().cfg_done {}
        self.inputs.cfg_valid = false;
        self.cycle();
    }

    /// Two queue pairs beside it that have nothing to ask: one is idle, one in ERROR with a READ open.
    fn neighbours(&mut self) {
        self.inputs.cfg.index = 2u64.to_bits();
        self.command(Opcode::CreateQp, QpState::Rts, 0);
        self.inputs.cfg.index = 1u64.to_bits();
        self.command(Opcode::CreateQp, QpState::Rts, 0);
        self.inputs.sq_db.number = 1u64.to_bits();
        self.inputs.retired.qpn = 1u64.to_bits();
        self.inputs.qp_error.qpn = 1u64.to_bits();
        self.post_any(&[(WrOpcode::RdmaRead, 0, 1)]);
        self.retire(1);
        self.fail();
        assert_eq!(self.launches, [(0, 0, 1)]);
        self.launches.clear();
        self.posted = 0;
        self.inputs.cfg.index = Bits::default();
        self.inputs.sq_db.number = Bits::default();
        self.inputs.retired.qpn = Bits::default();
        self.inputs.qp_error.qpn = Bits::default();
    }

    /// Another queue pair in place of this one.
    fn begin_again(&mut self) {
        self.command(Opcode::DestroyQp, QpState::Reset, 0);
        self.command(Opcode::CreateQp, QpState::Rts, 0);
        (self.posted, self.open_reads) = (0, 0);
        self.launches.clear();
    }

    fn cycle(&mut self) -> sq_fetch::Out {
        self.inputs.read_valid = !self.reads.is_empty();
        if let Some((at, last)) = self.reads.front() {
            self.inputs.read = Beat::new(&self.ring[*at], *last);
        }
        self.inputs.answer_valid = !self.answers.is_empty();
        self.inputs.answer = self.answers.front().copied().unwrap_or_default();
        let out = self.bench.cycle(&self.inputs);
        if self.inputs.read_valid && out.read_ready {
            self.reads.pop_front();
        }
        if self.inputs.answer_valid && out.answer_ready {
            self.answers.pop_front();
        }
        if out.query_valid {
            self.answers.push_back(region(&out.query));
        }
        if out.read_req_valid {
            let first = out.read_req.iova.to_u64() as usize / WQE;
            let count = out.read_req.length.to_u64() as usize / WQE;
            self.reads
                .extend((0..count).map(|i| (first + i, i + 1 == count)));
        }
        if out.responded_valid {
            self.fates.push(out.responded.taken);
        }
        let keepalive = out.launch.opcode.to_u64() == WrOpcode::RdmaWrite as u64;
        if out.launch_valid && out.launch.response && keepalive {
            self.keepalives += 1;
        } else if out.launch_valid && out.launch.response {
            let l = &out.launch;
            self.answered.push((l.wsn.to_u64(), l.packets.to_u64()));
        } else if out.launch_valid {
            let l = &out.launch;
            let reads = l.opcode.to_u64() >= WrOpcode::RdmaRead as u64;
            self.open_reads += usize::from(reads && l.packets.any());
            self.launches
                .push((l.wqe_index.to_u64(), l.status.to_u64(), l.packets.to_u64()));
        }
        if out.work_valid {
            self.works.push(out.work.sync);
        }
        out
    }

    /// Posts WRITEs of `(flags, length)`.
    fn post(&mut self, wqes: &[(u64, u64)]) {
        let writes: Vec<_> = wqes
            .iter()
            .map(|&(flags, length)| (WrOpcode::RdmaWrite, flags, length))
            .collect();
        self.post_any(&writes);
    }

    fn post_any(&mut self, wqes: &[(WrOpcode, u64, u64)]) {
        for (opcode, flags, length) in wqes {
            let mut wqe = [0; WQE];
            sq_wqe::OPCODE.set(&mut wqe, *opcode as u64);
            sq_wqe::FLAGS.set(&mut wqe, *flags);
            sq_wqe::LENGTH.set(&mut wqe, *length);
            self.ring[self.posted as usize % 16] = wqe;
            self.posted += 1;
        }
        self.inputs.sq_db.index = self.posted.to_bits();
        self.inputs.sq_db_valid = true;
        while !self.cycle().sq_db_ready {}
        self.inputs.sq_db_valid = false;
        self.settle();
    }

    fn settle(&mut self) {
        for _ in 0..400 {
            self.cycle();
        }
        let busy = self.cycle().busy;
        assert_eq!(
            busy,
            self.open_reads > 0,
            "waiting is not work, watching is"
        );
    }

    fn pass(&mut self) {
        self.inputs.sync_passed_valid = true;
        while !self.cycle().sync_passed_ready {}
        self.inputs.sync_passed_valid = false;
        self.settle();
    }

    fn retire(&mut self, packets: u64) {
        self.retire_as(packets, true, true);
        self.settle();
    }

    fn retire_as(&mut self, packets: u64, ring: bool, own: bool) {
        self.inputs.retired.packets = packets.to_bits();
        self.inputs.retired.ring = ring;
        self.inputs.retired.own = own;
        self.inputs.retired_valid = true;
        while !self.cycle().retired_ready {}
        self.inputs.retired_valid = false;
        for _ in 0..400 {
            self.cycle();
        }
    }

    fn read_done(&mut self) {
        self.inputs.read_done_valid = true;
        while !self.cycle().read_done_ready {}
        self.inputs.read_done_valid = false;
        self.open_reads -= 1;
        self.settle();
    }

    /// The peer's READ of slot `slot`, asked in life `life`.
    fn respond(&mut self, slot: u64, life: u64, length: u64) {
        self.inputs.respond.slot = slot.to_bits();
        self.inputs.respond.life = life.to_bits();
        self.inputs.respond.length = length.to_bits();
        self.inputs.respond_valid = true;
        while !self.cycle().respond_ready {}
        self.inputs.respond_valid = false;
        for _ in 0..400 {
            self.cycle();
        }
    }

    fn fail(&mut self) {
        self.inputs.qp_error.status = 4u64.to_bits();
        self.inputs.qp_error_valid = true;
        while !self.cycle().qp_error_ready {}
        self.inputs.qp_error_valid = false;
        self.open_reads = 0;
        self.settle();
    }

    fn launched(&self) -> u64 {
        self.launches.len() as u64
    }
}

fn one_queue() -> OneQueue<sq_fetch::Verilated> {
    OneQueue::new(sq_fetch::Verilated::new(SqFetch::default()))
}

#[test]
fn one_synchronised_message_waits_at_a_time() {
    with_big_stack(|| {
        let mut one = one_queue();
        // Zero bytes are one packet, and wait like any other.
        one.post(&[
            (WQE_SYNC, 0),
            (0, 5000),
            (WQE_FENCE, 0),
            (WQE_SYNC, 8),
            (0, 1),
            (WQE_SYNC, 0),
        ]);
        assert_eq!(one.launches, [(0, 0, 1), (1, 0, 5), (2, 0, 1)]);
        one.retire(1);
        one.retire(5);
        assert_eq!(one.launched(), 3, "a retirement does not tell");
        one.pass();
        assert_eq!(one.launches[3..], [(3, 0, 1), (4, 0, 1)]);
        // New work behind the one that waits.
        one.post(&[(0, 1), (WQE_SYNC, 1)]);
        assert_eq!(one.launched(), 5);
        one.pass();
        assert_eq!(one.launched(), 7);
        one.pass();
        assert_eq!(one.launched(), 8);
        one.pass();
        one.post(&[(WQE_SYNC, 1)]);
        assert_eq!(one.launched(), 9);
        assert_eq!(
            one.works,
            [true, false, false, true, false, true, false, true, true]
        );
    });
}

#[test]
fn the_seventeenth_read_waits() {
    with_big_stack(|| {
        let read = (WrOpcode::RdmaRead, 0, 5000);
        let write = (WrOpcode::RdmaWrite, 0, 5000);
        let mut one = one_queue();
        one.post_any(&[read; 14]);
        one.post_any(&[read, read, read, write]);
        // One packet each, however long; what is behind the one that waits waits too.
        assert_eq!(one.launches.last(), Some(&(15, 0, 1)));
        one.retire(1);
        assert_eq!(one.launched(), 16, "a READ is open until its data are here");
        one.read_done();
        assert_eq!(one.launches[16..], [(16, 0, 1), (17, 0, 5)]);
        one.post_any(&[read]);
        assert_eq!(one.launched(), 18);
        one.read_done();
        assert_eq!(one.launched(), 19);
    });
}

#[test]
fn a_fence_waits_for_every_read() {
    with_big_stack(|| {
        let mut one = one_queue();
        one.post_any(&[
            (WrOpcode::RdmaRead, WQE_FENCE, 1),
            (WrOpcode::RdmaRead, 0, 1),
            (WrOpcode::RdmaWrite, WQE_FENCE, 1),
            (WrOpcode::RdmaRead, 0, 1),
        ]);
        assert_eq!(one.launched(), 2, "nothing was open before the first");
        one.retire(1);
        one.read_done();
        assert_eq!(one.launched(), 2);
        one.read_done();
        assert_eq!(one.launched(), 4);
        // Behind WRITEs there is nothing to wait for.
        one.read_done();
        one.post_any(&[
            (WrOpcode::RdmaWrite, 0, 1),
            (WrOpcode::RdmaWrite, WQE_FENCE, 1),
        ]);
        assert_eq!(one.launched(), 6);
    });
}

/// A READ asks for the right to write here, and for no more packets than an offset can count.
#[test]
fn a_read_is_checked() {
    with_big_stack(|| {
        let mtu = 1024u64;
        for (length, status) in [
            (0, 0),
            (mtu << 16, 0),
            ((mtu << 16) + 1, WcStatus::LocalLengthError as u64),
        ] {
            let mut one = one_queue();
            one.post_any(&[(WrOpcode::RdmaRead, 0, length)]);
            assert_eq!(one.launches[0].1, status, "{length} bytes");
        }
    });
}

/// Answers have a part of the ring for themselves; one that finds no room goes back until there may be some.
#[test]
fn answers_have_room_when_work_requests_have_none() {
    with_big_stack(|| {
        let mut one = one_queue();
        let life = 1;
        for _ in 0..4 {
            one.post(&[(0, 1); 15]);
        }
        assert_eq!(one.launched(), 48);
        for slot in 0..16 {
            one.respond(slot, life, 1024 * slot);
        }
        let all: Vec<_> = (0..16).map(|slot| (slot, slot.max(1))).collect();
        assert_eq!(one.answered, all);
        assert_eq!(one.fates, [true; 16]);
        one.respond(0, life, 3000);
        assert_eq!(
            (one.answered.len(), one.fates.len()),
            (16, 16),
            "the ring is full"
        );
        one.retire_as(1, true, false);
        assert_eq!(one.fates[16..], [false], "now it may be given again");
        one.respond(0, life, 3000);
        assert_eq!(one.answered[16..], [(0, 3)]);
        // An answer of another life is dropped, ring full or not.
        one.respond(1, life + 1, 1);
        assert_eq!(
            (one.answered.len(), &one.fates[17..]),
            (17, &[true, true][..])
        );
        assert_eq!(one.launched(), 48);
        // Nobody answers in ERROR, and what waited is told.
        one.respond(2, life, 1);
        assert_eq!(one.fates.len(), 19);
        one.fail();
        assert_eq!(one.fates[19..], [false]);
        one.respond(2, life, 1);
        assert_eq!((one.answered.len(), one.fates.len()), (17, 21));
    });
}

/// An answer that waits for room holds up none of another queue pair.
#[test]
fn an_answer_waits_for_its_own_queue_pair_only() {
    with_big_stack(|| {
        let mut one = one_queue();
        one.inputs.cfg.index = 1u64.to_bits();
        one.command(Opcode::CreateQp, QpState::Rts, 0);
        for slot in 0..65 {
            one.respond(slot % 16, 1, 1);
        }
        assert_eq!((one.answered.len(), one.fates.len()), (64, 64));
        one.inputs.respond.qpn = 1u64.to_bits();
        one.respond(7, 1, 2000);
        assert_eq!(one.answered[64..], [(7, 2)]);
        assert_eq!(one.fates.len(), 65);
        // Whoever takes the queue pair away says what became of its answer.
        one.inputs.cfg.index = 0u64.to_bits();
        one.command(Opcode::DestroyQp, QpState::Reset, 0);
        assert_eq!(one.fates[65..], [false]);
    });
}

/// Cycles in which every queue pair is looked at once.
const WATCH: usize = (QPS as usize) << KEEPALIVE_CYCLES_LOG2;

/// Open READs ask whether the peer is there: when nothing else would find out, and not sooner than after a whole round.
#[test]
fn open_reads_keep_the_peer_in_sight() {
    with_big_stack(|| {
        let mut one = one_queue();
        one.neighbours();
        let idle = |one: &mut OneQueue<_>, rounds: usize| {
            let before = one.keepalives;
            for _ in 0..rounds * WATCH {
                one.cycle();
            }
            one.keepalives - before
        };
        for _ in 0..4 * WATCH {
            assert!(!one.cycle().busy, "nothing is open");
        }
        assert_eq!(one.keepalives, 0);
        one.post_any(&[
            (WrOpcode::RdmaRead, 0, 5000),
            (WrOpcode::AtomicFetchAndAdd, 0, 8),
        ]);
        assert_eq!(
            idle(&mut one, 4),
            0,
            "the requests have a timer of their own"
        );
        one.retire(1);
        one.retire(1);
        assert_eq!(idle(&mut one, 3), 1, "until that is acknowledged");
        assert_eq!(idle(&mut one, 4), 0);
        one.retire_as(1, true, false);
        let mut waited = 0;
        while one.keepalives == 1 {
            one.cycle();
            waited += 1;
        }
        assert!(
            (WATCH - 800..2 * WATCH + 8).contains(&waited),
            "{waited} cycles"
        );
        one.retire_as(1, true, false);
        // What happens meanwhile puts it off.
        let before = one.keepalives;
        for _ in 0..8 {
            one.post(&[(0, 1)]);
            one.retire(1);
        }
        assert_eq!(one.keepalives, before);
        one.read_done();
        assert_eq!(idle(&mut one, 3), 1, "an ATOMIC is still open");
        one.retire_as(1, true, false);
        one.read_done();
        assert_eq!(idle(&mut one, 4), 0);
        // In ERROR there is nothing to find out.
        one.post_any(&[(WrOpcode::RdmaRead, 0, 1)]);
        one.retire(1);
        one.fail();
        assert_eq!(idle(&mut one, 4), 0);
    });
}

/// An ATOMIC is one packet of 8 bytes, of READs' slots.
#[test]
fn an_atomic_is_checked() {
    with_big_stack(|| {
        let mut one = one_queue();
        for (length, status) in [
            (8, 0),
            (0, WcStatus::LocalLengthError as u64),
            (7, WcStatus::LocalLengthError as u64),
            (16, WcStatus::LocalLengthError as u64),
        ] {
            for opcode in [WrOpcode::AtomicCmpAndSwp, WrOpcode::AtomicFetchAndAdd] {
                one.post_any(&[(opcode, 0, length)]);
                let packets = u64::from(status == 0);
                assert_eq!(one.launches, [(0, status, packets)], "{length} bytes");
                one.begin_again();
            }
        }
    });
}

#[test]
fn nothing_waits_in_error() {
    with_big_stack(|| {
        let flushed = WcStatus::WorkRequestFlushed as u64;
        let mut one = one_queue();
        one.post(&[(WQE_SYNC, 0), (WQE_SYNC, 0), (0, 0)]);
        assert_eq!(one.launched(), 1);
        one.fail();
        assert_eq!(one.launches[1..], [(1, flushed, 0), (2, flushed, 0)]);
        one.post(&[(WQE_SYNC, 0)]);
        assert_eq!(one.launched(), 4);
        assert_eq!(one.works, [true]);
    });
}

/// A synchronised message that fails its checks is no work, and does not wait for the one before it.
#[test]
fn a_message_that_fails_opens_nothing() {
    with_big_stack(|| {
        let too_long = WcStatus::LocalLengthError as u64;
        for first in [0, WQE_SYNC] {
            let mut one = one_queue();
            one.post(&[(first, 0), (WQE_SYNC, (1 << 31) + 1), (0, 0)]);
            assert_eq!(one.launches[1], (1, too_long, 0));
            assert_eq!(one.launches.len(), 3, "the rest is flushed");
            assert_eq!(one.works, [first != 0]);
        }
    });
}

/// A new life of the queue pair waits for nothing of the old one.
#[test]
fn commands_forget_the_open_message() {
    with_big_stack(|| {
        for waits in [false, true] {
            for (op, mask) in [
                (Opcode::CreateQp, 0),
                (Opcode::ModifyQp, MASK_STATE | MASK_SENDER),
                (Opcode::DestroyQp, 0),
            ] {
                let mut one = one_queue();
                one.post(&[(WQE_SYNC, 0), (WQE_SYNC, 0)][..1 + usize::from(waits)]);
                assert_eq!(one.launched(), 1);
                one.command(op, QpState::Rts, mask);
                if op == Opcode::DestroyQp {
                    one.command(Opcode::CreateQp, QpState::Rts, 0);
                }
                if op != Opcode::ModifyQp {
                    one.posted = 0;
                }
                one.launches.clear();
                one.post(&[(WQE_SYNC, 0)]);
                assert_eq!(one.launched(), 1, "{op:?}");
            }
        }
    });
}

#[test]
fn lint() {
    crate::support::lint(
        "sq_fetch",
        SqFetch::<QPW, 3>::default,
        include_str!("../../src/nic/sq_fetch.rs"),
    );
}
