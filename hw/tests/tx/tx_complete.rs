//! TxComplete: random launches, progress, errors and commands against a list of messages.

use crate::support::*;
use mprdma_hw::nic::tx_complete::TxComplete;
use mprdma_hw::nic::types::*;
use mprdma_hw::prelude::*;
use mprdma_hw::with_big_stack;
use mprdma_spec::command::{qp_image, Opcode, QpState, MASK_SENDER, MASK_STATE};
use mprdma_spec::descriptor::{WcOpcode, WrOpcode, WQE_SIGNALED};
use mprdma_spec::status::WcStatus;
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::collections::VecDeque;

const QPW: usize = 2;
const QPS: u64 = 1 << QPW;
const FLUSHED: u64 = WcStatus::WorkRequestFlushed as u64;

crate::bench! {
    tx_complete, TxComplete<QPW, 8>,
    in {
        cfg: CfgReq, cfg_valid: bool, launch: Launch, launch_valid: bool, progress: Progress, progress_valid: bool,
        read_done: QpMark, read_done_valid: bool, completion_ready: bool, retired_ready: bool, qp_error_ready: bool,
    }
    out {
        launch_ready: bool, progress_ready: bool, read_done_ready: bool, completion: Completion, completion_valid: bool, retired: Retired,
        retired_valid: bool, qp_error: QpError, qp_error_valid: bool, cnt_completed: bool, cfg_done: bool,
        init_done: bool, busy: bool,
    }
}

/// The queue pair as software would describe it.
#[derive(Default)]
struct Queue {
    valid: bool,
    failed: bool,
    cqn: u64,
    una: u32,
    live: VecDeque<Launch>,
    /// Left the ring, not completed; READs launched, reported as done, and completed.
    held: VecDeque<Launch>,
    asked: u64,
    done: u64,
    told: u64,
    /// Next free slot, PSN and WQE index.
    slot: u64,
    psn: u32,
    index: u64,
    /// Completions, retirements and errors to come.
    completions: VecDeque<Completion>,
    retired: VecDeque<Retired>,
    errors: VecDeque<QpError>,
    completed: u64,
}

/// A READ or ATOMIC of this side.
fn is_answered(m: &Launch) -> bool {
    wc_opcode(m) != WcOpcode::RdmaWrite && !m.response
}

fn wc_opcode(m: &Launch) -> WcOpcode {
    [
        (WrOpcode::RdmaRead, WcOpcode::RdmaRead),
        (WrOpcode::AtomicCmpAndSwp, WcOpcode::CompSwap),
        (WrOpcode::AtomicFetchAndAdd, WcOpcode::FetchAdd),
    ]
    .into_iter()
    .find(|(asked, _)| m.opcode.to_u64() == *asked as u64)
    .map_or(WcOpcode::RdmaWrite, |(_, done)| done)
}

impl Queue {
    /// The oldest message of the ring leaves it; its work request, if it has one, completes or joins the line.
    fn leave(&mut self, qpn: u64, status: Option<u64>) {
        let m = self.live.pop_front().unwrap();
        let own = !m.response && status.is_some();
        self.retired.push_back(Retired {
            qpn: qpn.to_bits(),
            ring: true,
            packets: m.packets,
            own,
        });
        match status {
            Some(status) if own => self.complete(qpn, &m, status),
            None => self.held.push_back(m),
            _ => {}
        }
    }

    /// The oldest of the line completes.
    fn release(&mut self, qpn: u64, status: u64) {
        let m = self.held.pop_front().unwrap();
        self.retired.push_back(Retired {
            qpn: qpn.to_bits(),
            own: true,
            ..Retired::default()
        });
        self.complete(qpn, &m, status);
    }

    fn complete(&mut self, qpn: u64, m: &Launch, status: u64) {
        if status != 0 || m.flags.to_u64() & WQE_SIGNALED != 0 {
            self.completions.push_back(Completion {
                cqn: self.cqn.to_bits(),
                qpn: qpn.to_bits(),
                wqe_index: m.wqe_index,
                byte_len: m.length,
                status: status.to_bits(),
                opcode: (wc_opcode(m) as u64).to_bits(),
                ..Completion::default()
            });
        }
        self.completed += u64::from(status == 0);
    }

    fn fail(&mut self, qpn: u64, status: u64) {
        self.failed = true;
        self.errors.push_back(QpError {
            qpn: qpn.to_bits(),
            status: status.to_bits(),
        });
    }

    /// Completes what it can. `cause` says why the queue pair fails, if it does.
    fn advance(&mut self, qpn: u64, cause: u64) {
        loop {
            // The ring first, then the line, until neither moves.
            while let Some(m) = self.live.front().copied() {
                let reached = psn_distance(self.una, m.first_psn.to_u32()) >= m.packets.to_u32();
                if self.failed || m.status.any() || !reached {
                    break;
                }
                let waits = !m.response && (is_answered(&m) || !self.held.is_empty());
                self.leave(qpn, (!waits).then_some(0));
            }
            if self.failed {
                break;
            }
            while self
                .held
                .front()
                .is_some_and(|m| !is_answered(m) || self.done > self.told)
            {
                self.told += u64::from(is_answered(&self.held[0]));
                self.release(qpn, 0);
            }
            match self.live.front() {
                Some(m) if m.status.any() && self.held.is_empty() => {
                    let own = m.status.to_u64();
                    self.leave(qpn, Some(own));
                    self.fail(qpn, own);
                }
                _ => break,
            }
        }
        let mut status = cause;
        if cause != 0 && !self.failed {
            self.fail(qpn, cause);
        } else {
            status = FLUSHED;
        }
        if self.failed {
            while !self.held.is_empty() {
                self.release(qpn, status);
                status = FLUSHED;
            }
            while let Some(m) = self.live.front() {
                let answer = m.response;
                self.leave(qpn, Some(status));
                if !answer {
                    status = FLUSHED;
                }
            }
        }
    }

    fn forget(&mut self) {
        self.live.clear();
        self.held.clear();
        (self.asked, self.done, self.told) = (0, 0, 0);
    }

    fn quiet(&self) -> bool {
        self.completions.is_empty() && self.retired.is_empty() && self.errors.is_empty()
    }
}

fn drive<B: Bench<In = tx_complete::In, Out = tx_complete::Out>>(
    bench: &mut B,
    rng: &mut ChaCha8Rng,
    steps: u64,
) {
    bench.reset(|i| i.reset = true);
    let mut queues: Vec<Queue> = (0..QPS).map(|_| Queue::default()).collect();
    let mut launches = Source::<Launch>::new(80);
    let mut news = Source::<Progress>::new(80);
    let mut ends = Source::<QpMark>::new(80);
    let mut command: Option<(u64, CfgReq, Vec<u8>)> = None;
    let mut pause = 0;
    let (mut cqes, mut messages, mut failures, mut full, mut commands, mut pulses) =
        (0, 0, 0, 0, 0, 0);
    // READs reported as done, most completions in a line, failures while there was one.
    let (mut read_ends, mut longest, mut broken) = (0, 0, 0);
    let mut stall = 0;
    for step in 0..steps + 4000 {
        let ending = step >= steps;
        if step % 500 == 0 {
            stall = [0, 30, 90][rng.random_range(0..3)];
            launches.pace = rng.random_range(20..=100);
            ends.pace = rng.random_range(20..=100);
            news.pace = rng.random_range(20..=100);
        }
        let qpn = rng.random_range(0..QPS);
        // One item of a queue pair on its way at a time, so that their order is known.
        let on_way = launches.items.iter().any(|l| l.qpn.to_u64() == qpn)
            || news.items.iter().any(|p| p.qpn.to_u64() == qpn)
            || ends.items.iter().any(|p| p.qpn.to_u64() == qpn)
            || command.as_ref().is_some_and(|c| c.0 == qpn);
        let settled = queues[qpn as usize].quiet();
        let queue = &mut queues[qpn as usize];
        if !ending && !on_way {
            let held = queue
                .retired
                .iter()
                .map(|r| r.packets.to_u32())
                .sum::<u32>();
            let span = held
                + queue
                    .live
                    .front()
                    .map_or(0, |m| psn_distance(queue.psn, m.first_psn.to_u32()));
            let most = if step / 3000 % 2 == 0 { 64 } else { 4 };
            // As many work requests as the send queue lets out, held ones included.
            let own = queue.held.len() + queue.live.len();
            // READs end in their order, and none before it is launched. One may end before its request is acknowledged.
            let open = queue.asked - queue.done;
            let ends_now = open > 0 && chance(rng, if step / 3000 % 3 == 2 { 1 } else { 10 });
            if ends_now && queue.valid && settled {
                queue.done += 1;
                ends.items.push_back(QpMark { qpn: qpn.to_bits() });
            // A launch may pass progress that waits; where that matters, it waits too.
            } else if own < 64
                && queue.live.len() + queue.retired.len() < most
                && span < 1 << 23
                && queue.errors.is_empty()
                && chance(rng, 40)
            {
                let mut m =
                    crate::segment::message(rng, qpn, queue.slot, queue.psn, (1 << 23) - span);
                m.wqe_index = queue.index.to_bits();
                if m.status.any() && chance(rng, 80) {
                    // Seldom enough that rings fill.
                    m.status = Bits::default();
                    m.packets = 1u64.to_bits();
                }
                let reads = is_answered(&m) && !m.status.any();
                if psn_distance(queue.psn, queue.una) + m.packets.to_u32() <= 1 << 23
                    && !(reads && open == 16)
                {
                    queue.asked += u64::from(reads && !queue.failed);
                    queue.slot = (queue.slot + 1) % 64;
                    queue.index = (queue.index + 1) & 0xffff;
                    queue.psn = queue.psn.wrapping_add(m.packets.to_u32()) & 0xff_ffff;
                    launches.items.push_back(m);
                }
            } else if settled && chance(rng, 20) {
                let span = psn_distance(queue.psn, queue.una);
                let una = match rng.random_range(0..20) {
                    // Far ahead or behind: must move nothing.
                    0 => queue
                        .psn
                        .wrapping_add((1 << 23) + rng.random_range(1..1000)),
                    1 => queue.una.wrapping_sub(rng.random_range(1..1000)),
                    2 => queue.psn,
                    3 => queue.una.wrapping_add(rng.random_range(0..=span)),
                    _ => {
                        // To just before, at, or just after the end of an open message.
                        let n = queue.live.len();
                        match n {
                            0 => queue.una,
                            _ => {
                                let m = &queue.live[rng.random_range(0..n.min(8))];
                                let end = m.first_psn.to_u32().wrapping_add(m.packets.to_u32());
                                let una = end.wrapping_add(rng.random_range(0..3)).wrapping_sub(1);
                                // What is not launched yet when this arrives may be when it is served.
                                if psn_distance(una, queue.una) == span + 1 {
                                    queue.psn
                                } else {
                                    una
                                }
                            }
                        }
                    }
                };
                let status = if chance(rng, 2) {
                    [5, 12, 13, 10, 19][rng.random_range(0..5)]
                } else {
                    0u64
                };
                news.items.push_back(Progress {
                    qpn: qpn.to_bits(),
                    una: u64::from(una & 0xff_ffff).to_bits(),
                    status: status.to_bits(),
                });
            } else if command.is_none()
                && pause == 0
                && settled
                && (!queue.valid || queue.failed || chance(rng, 2))
            {
                let (op, mask) = if queue.valid {
                    [
                        (Opcode::DestroyQp, 0),
                        (Opcode::ModifyQp, MASK_SENDER | MASK_STATE),
                        (Opcode::ModifyQp, MASK_STATE),
                        (Opcode::QueryQp, 0xff),
                        (Opcode::RegisterMr, 0xff),
                    ][rng.random_range(0..5)]
                } else {
                    (Opcode::CreateQp, 0)
                };
                let mut image = vec![0; qp_image::BYTES];
                qp_image::MASK.set(&mut image, mask);
                qp_image::SQ_CQN.set(&mut image, rng.random_range(0..1 << 16));
                qp_image::SQ_PSN.set(
                    &mut image,
                    [rng.random_range(0..1 << 24), 0xff_fffe][rng.random_range(0..2)],
                );
                let state = if chance(rng, 10) {
                    QpState::Error
                } else {
                    QpState::Rts
                };
                qp_image::STATE.set(&mut image, state as u64);
                let cfg = CfgReq {
                    op: (op as u64).to_bits(),
                    index: qpn.to_bits(),
                    image: mprdma_hw::leaf::beat::bits_of_bytes(&image),
                };
                command = Some((qpn, cfg, image));
            }
        }
        let mut inputs = tx_complete::In::default();
        (inputs.launch, inputs.launch_valid) = launches.show(rng);
        (inputs.progress, inputs.progress_valid) = news.show(rng);
        (inputs.read_done, inputs.read_done_valid) = ends.show(rng);
        inputs.completion_ready = ending || !chance(rng, stall);
        inputs.retired_ready = ending || !chance(rng, stall);
        inputs.qp_error_ready = ending || !chance(rng, stall);
        if let Some((_, cfg, _)) = &command {
            inputs.cfg = *cfg;
            inputs.cfg_valid = true;
        }
        let out = bench.cycle(&inputs);
        pulses += u64::from(out.cnt_completed);
        if let Some(m) = launches.taken(out.launch_ready) {
            let queue = &mut queues[m.qpn.index()];
            messages += 1;
            if queue.valid {
                queue.live.push_back(m);
                full += u64::from(queue.live.len() == 64);
                if queue.failed || (queue.live.len() == 1 && m.status.any()) {
                    queue.advance(m.qpn.to_u64(), 0);
                }
            }
        }
        if let Some(p) = ends.taken(out.read_done_ready) {
            let queue = &mut queues[p.qpn.index()];
            read_ends += 1;
            if queue.valid && !queue.failed {
                queue.advance(p.qpn.to_u64(), 0);
            }
        }
        if let Some(p) = news.taken(out.progress_ready) {
            let queue = &mut queues[p.qpn.index()];
            if queue.valid && !queue.failed {
                let limit = queue.live.back().map_or(queue.una, |m| {
                    m.first_psn.to_u32().wrapping_add(m.packets.to_u32())
                });
                if psn_distance(p.una.to_u32(), queue.una) <= psn_distance(limit, queue.una) {
                    queue.una = p.una.to_u32();
                }
                broken += u64::from(p.status.any() && !queue.held.is_empty());
                queue.advance(p.qpn.to_u64(), p.status.to_u64());
                longest = longest.max(queue.held.len());
            }
        }
        if out.completion_valid && inputs.completion_ready {
            let queue = &mut queues[out.completion.qpn.index()];
            let expected = queue.completions.pop_front();
            assert_eq!(Some(out.completion), expected, "step {step}");
            cqes += 1;
        }
        if out.retired_valid && inputs.retired_ready {
            let queue = &mut queues[out.retired.qpn.index()];
            assert_eq!(Some(out.retired), queue.retired.pop_front(), "step {step}");
        }
        if out.qp_error_valid && inputs.qp_error_ready {
            let queue = &mut queues[out.qp_error.qpn.index()];
            assert_eq!(Some(out.qp_error), queue.errors.pop_front(), "step {step}");
            failures += 1;
        }
        pause -= i32::from(pause > 0);
        if out.cfg_done {
            let (qpn, cfg, image) = command.take().expect("an answer without a command");
            commands += 1;
            pause = rng.random_range(2..30);
            let queue = &mut queues[qpn as usize];
            let op = cfg.op.to_u64();
            let restart =
                op == Opcode::ModifyQp as u64 && qp_image::MASK.get(&image) & MASK_SENDER != 0;
            if op == Opcode::CreateQp as u64 || restart {
                queue.valid = true;
                queue.failed = !restart && qp_image::STATE.get(&image) == QpState::Error as u64;
                if !restart {
                    queue.cqn = qp_image::SQ_CQN.get(&image);
                }
                queue.una = qp_image::SQ_PSN.get(&image) as u32;
                queue.psn = queue.una;
                queue.slot = rng.random_range(0..64);
                queue.forget();
            }
            if op == Opcode::DestroyQp as u64 {
                queue.valid = false;
                queue.forget();
                queue.una = queue.psn;
            }
        }
    }
    for queue in &queues {
        assert!(queue.quiet(), "{:?} {:?}", queue.completions, queue.retired);
    }
    assert_eq!(pulses, queues.iter().map(|q| q.completed).sum::<u64>());
    assert!(!bench.cycle(&tx_complete::In::default()).busy);
    println!("{messages} messages, {cqes} CQEs, {failures} errors, {full} times full, {commands} commands");
    println!("{read_ends} READs done, up to {longest} completions held, {broken} times lost");
    assert!(messages > steps / 40 && cqes > steps / 100);
    assert!(steps < 10_000 || (failures > 10 && full > 0 && commands > 30));
    assert!(steps < 10_000 || (read_ends > 200 && longest > 30 && broken > 0));
}

#[test]
fn simulated() {
    with_big_stack(|| {
        drive(
            &mut tx_complete::Simulated::new(TxComplete::new()),
            &mut rng(1),
            2500,
        )
    });
}

#[test]
fn verilated() {
    with_big_stack(|| {
        for seed in 1..5 {
            drive(
                &mut tx_complete::Verilated::new(TxComplete::new()),
                &mut rng(seed),
                60_000,
            );
        }
    });
}

/// A message costs at most 6 cycles, launch and acknowledgement together at most 9.
#[test]
fn pace() {
    with_big_stack(|| {
        let mut bench = tx_complete::Verilated::new(TxComplete::new());
        bench.reset(|i| i.reset = true);
        let mut inputs = tx_complete::In {
            completion_ready: true,
            retired_ready: true,
            qp_error_ready: true,
            ..tx_complete::In::default()
        };
        inputs.cfg.op = (Opcode::CreateQp as u64).to_bits();
        inputs.cfg_valid = true;
        while !bench.cycle(&inputs).cfg_done {}
        inputs.cfg_valid = false;
        let mut rng = rng(3);
        let mut launches = Source::<Launch>::new(100);
        let mut news = Source::<Progress>::new(100);
        for i in 0..64u64 {
            launches.items.push_back(Launch {
                slot: i.to_bits(),
                first_psn: i.to_bits(),
                packets: 1u64.to_bits(),
                flags: WQE_SIGNALED.to_bits(),
                ..Launch::default()
            });
            news.items.push_back(Progress {
                una: (i + 1).to_bits(),
                ..Progress::default()
            });
        }
        let mut at = vec![];
        for cycle in 0..2000 {
            (inputs.launch, inputs.launch_valid) = launches.show(&mut rng);
            if launches.items.is_empty() {
                (inputs.progress, inputs.progress_valid) = news.show(&mut rng);
            }
            let out = bench.cycle(&inputs);
            launches.taken(out.launch_ready);
            news.taken(out.progress_ready);
            if out.completion_valid {
                at.push(cycle);
            }
        }
        assert_eq!(at.len(), 64);
        assert!(at.windows(2).all(|w| w[1] - w[0] <= 6), "{at:?}");
    });
}

#[test]
fn lint() {
    crate::support::lint(
        "tx_complete",
        TxComplete::<QPW, 8>::new,
        include_str!("../../src/nic/tx_complete.rs"),
    );
}
