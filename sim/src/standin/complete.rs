//! Completes send work in order: follows the cumulative acknowledgement through the launched messages, and holds back what
//! is behind a READ or ATOMIC whose bytes are not all there.

use super::queues::Completion;
use super::transmit::{Kind, Message};
use super::StandIn;
use mprdma_model::psn;
use mprdma_model::receiver::ReceiverEvent;
use mprdma_model::sender::{Progress, SenderEvent};
use mprdma_spec::command::{qp_image, QpState};
use mprdma_spec::counter::Counter;
use mprdma_spec::descriptor::WcOpcode;
use mprdma_spec::status::WcStatus;
use std::collections::VecDeque;

/// State of one queue pair.
#[derive(Clone, Debug, Default)]
pub(super) struct SendCompletion {
    valid: bool,
    /// The queue pair is in ERROR: whatever is open, and whatever comes, is flushed.
    failed: bool,
    /// Every PSN before it is acknowledged.
    una: u32,
    /// PSN after the last message launched.
    limit: u32,
    cqn: u16,
    /// Acknowledged work requests, the oldest a READ or ATOMIC that is not finished.
    held: VecDeque<Work>,
    /// READs and ATOMICs finished and not completed.
    finished: u8,
}

/// What completes: the part of a message that its completion needs.
#[derive(Clone, Copy, Debug)]
struct Work {
    wqe_index: u16,
    byte_len: u32,
    opcode: WcOpcode,
    signaled: bool,
}

impl Work {
    fn of(message: &Message) -> Work {
        Work {
            wqe_index: message.wqe_index,
            byte_len: message.length,
            opcode: match message.kind {
                Kind::Read => WcOpcode::RdmaRead,
                Kind::CompareSwap => WcOpcode::CompSwap,
                Kind::FetchAdd => WcOpcode::FetchAdd,
                _ => WcOpcode::RdmaWrite,
            },
            signaled: message.signaled,
        }
    }

    fn is_answered(&self) -> bool {
        self.opcode != WcOpcode::RdmaWrite
    }
}

impl SendCompletion {
    pub(super) fn create(&mut self, image: &[u8]) {
        self.restart(image);
        self.valid = true;
        self.failed = qp_image::STATE.get(image) == QpState::Error as u64;
        self.cqn = qp_image::SQ_CQN.get(image) as u16;
    }

    /// Nothing is open any more.
    pub(super) fn restart(&mut self, image: &[u8]) {
        self.failed = false;
        self.una = qp_image::SQ_PSN.get(image) as u32;
        self.limit = self.una;
        self.held.clear();
        self.finished = 0;
    }
}

impl StandIn {
    /// Takes a launched message.
    pub(super) fn store(&mut self, qpn: u16, message: Message) {
        let qp = &mut self.tables.qps[usize::from(qpn)];
        if !qp.completion.valid {
            return;
        }
        qp.completion.limit = psn::add(message.first_psn, message.packets);
        // Nothing but an acknowledgement completes a message that can be sent.
        let due = qp.open.is_empty() && (qp.completion.failed || message.status != 0);
        qp.open.push_back(message);
        if due {
            self.complete(qpn, 0);
        }
    }

    /// News from the sender engine.
    pub(super) fn progress(&mut self, qpn: u16, news: Progress) {
        let qp = &mut self.tables.qps[usize::from(qpn)];
        let state = &mut qp.completion;
        if !state.valid || state.failed {
            return;
        }
        if psn::distance(state.una, news.una) <= psn::distance(state.una, state.limit) {
            state.una = news.una;
        }
        self.complete(qpn, news.status);
    }

    /// The bytes of a READ or ATOMIC are on the bus.
    pub(super) fn read_finished(&mut self, qpn: u16) {
        let state = &mut self.tables.qps[usize::from(qpn)].completion;
        if state.valid && !state.failed {
            state.finished += 1;
            self.complete(qpn, 0);
        }
    }

    /// Completes what is due. With a `status` the queue pair fails, and with it the oldest work request not done.
    fn complete(&mut self, qpn: u16, status: u8) {
        loop {
            let qp = &mut self.tables.qps[usize::from(qpn)];
            let Some(step) = next_step(&mut qp.completion, &mut qp.open, status) else {
                break;
            };
            let cqn = qp.completion.cqn;
            let Some((work, outcome)) = step.completes else {
                self.retire(qpn, step.packets, false);
                continue;
            };
            let success = outcome == WcStatus::Success as u8;
            qp.completion.failed |= step.fails;
            if work.signaled || !success {
                self.complete_on(
                    cqn,
                    &Completion {
                        qpn,
                        wqe_index: work.wqe_index,
                        byte_len: work.byte_len,
                        imm: None,
                        status: outcome,
                        opcode: work.opcode as u8,
                    },
                );
            }
            self.count_if(Counter::MessagesCompleted, success);
            self.retire(qpn, step.packets, true);
            if step.fails {
                self.fail(qpn, outcome);
            }
        }
        let failed = &mut self.tables.qps[usize::from(qpn)].completion.failed;
        if status != 0 && !std::mem::replace(failed, true) {
            self.fail(qpn, status);
        }
    }

    /// The queue pair goes to ERROR: everybody is told.
    fn fail(&mut self, qpn: u16, status: u8) {
        self.stop_send_queue(qpn);
        self.receiver_event(qpn, &ReceiverEvent::Error);
        self.qp_fatal(qpn, status);
        self.sender_event(qpn, &SenderEvent::Error(status));
    }
}

/// One message that leaves the ring, or one work request that completes, or both.
#[derive(Default)]
struct Step {
    /// Packets of the message.
    packets: Option<u32>,
    /// The work request and its status.
    completes: Option<(Work, u8)>,
    /// With it the queue pair fails.
    fails: bool,
}

/// Takes the next step that is due, if there is one. What is acknowledged behind one that is not finished leaves the
/// ring and is held. With a `status` the oldest work request left is due with it.
fn next_step(state: &mut SendCompletion, open: &mut VecDeque<Message>, status: u8) -> Option<Step> {
    const FLUSHED: u8 = WcStatus::WorkRequestFlushed as u8;
    const SUCCESS: u8 = WcStatus::Success as u8;
    if let Some(work) = state.held.front().copied() {
        let answered = work.is_answered();
        if state.failed || !answered || state.finished > 0 {
            state.held.pop_front();
            state.finished -= u8::from(answered && !state.failed);
            return Some(Step {
                completes: Some((work, if state.failed { FLUSHED } else { SUCCESS })),
                ..Step::default()
            });
        }
    }
    if let Some(message) = open.front().copied() {
        let acknowledged = psn::distance(message.first_psn, state.una) >= message.packets;
        let (work, left) = (Work::of(&message), Some(message.packets));
        let completes = |outcome: u8, fails: bool| {
            Some(Step {
                packets: left,
                completes: Some((work, outcome)),
                fails,
            })
        };
        let step = if !message.kind.is_own() && (state.failed || acknowledged) {
            Some(Step {
                packets: left,
                ..Step::default()
            })
        } else if state.failed {
            completes(FLUSHED, false)
        } else if message.status != 0 {
            // It is the end of the queue: what is before it completes first.
            let due = state.held.is_empty();
            due.then(|| completes(message.status, true)).flatten()
        } else if acknowledged && state.held.is_empty() && message.kind == Kind::Write {
            completes(SUCCESS, false)
        } else if acknowledged {
            state.held.push_back(work);
            Some(Step {
                packets: left,
                ..Step::default()
            })
        } else {
            None
        };
        if step.is_some() {
            open.pop_front();
            return step;
        }
    }
    if status == 0 || state.failed {
        return None;
    }
    let fails = |work: Work, packets: Option<u32>| Step {
        packets,
        completes: Some((work, status)),
        fails: true,
    };
    if let Some(work) = state.held.pop_front() {
        return Some(fails(work, None));
    }
    // Answers to the peer that are not acknowledged go with the rest.
    let message = open.pop_front()?;
    let left = Some(message.packets);
    Some(match message.kind.is_own() {
        false => Step {
            packets: left,
            ..Step::default()
        },
        true => fails(Work::of(&message), left),
    })
}
