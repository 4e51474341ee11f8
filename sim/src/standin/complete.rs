//! Completes send work in order: follows the cumulative acknowledgement through the launched messages.

use super::queues::Completion;
use super::transmit::Message;
use super::StandIn;
use mprdma_model::psn;
use mprdma_model::receiver::ReceiverEvent;
use mprdma_model::sender::{Progress, SenderEvent};
use mprdma_spec::command::{qp_image, QpState};
use mprdma_spec::counter::Counter;
use mprdma_spec::descriptor::WcOpcode;
use mprdma_spec::status::WcStatus;

/// State of one queue pair.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SendCompletion {
    valid: bool,
    /// The queue pair is in ERROR: whatever is open, and whatever comes, is flushed.
    failed: bool,
    /// Every PSN before it is acknowledged.
    una: u32,
    /// PSN after the last message launched.
    limit: u32,
    cqn: u16,
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

    /// Completes what is due. With a `status` the queue pair fails, and with it the oldest message not acknowledged.
    fn complete(&mut self, qpn: u16, status: u8) {
        loop {
            let qp = &mut self.tables.qps[usize::from(qpn)];
            let state = qp.completion;
            let Some(message) = qp.open.front() else {
                break;
            };
            let acknowledged = psn::distance(message.first_psn, state.una) >= message.packets;
            let (outcome, fails) = if state.failed {
                (WcStatus::WorkRequestFlushed as u8, false)
            } else if message.status != 0 {
                (message.status, true)
            } else if acknowledged {
                (WcStatus::Success as u8, false)
            } else if status != 0 {
                (status, true)
            } else {
                return;
            };
            let Some(message) = qp.open.pop_front() else {
                break;
            };
            qp.completion.failed |= fails;
            if message.signaled || outcome != WcStatus::Success as u8 {
                self.complete_on(
                    state.cqn,
                    &Completion {
                        qpn,
                        wqe_index: message.wqe_index,
                        byte_len: message.length,
                        imm: None,
                        status: outcome,
                        opcode: WcOpcode::RdmaWrite as u8,
                    },
                );
            }
            self.count_if(
                Counter::MessagesCompleted,
                outcome == WcStatus::Success as u8,
            );
            self.retire(qpn, message.packets);
            if fails {
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
