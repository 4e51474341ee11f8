//! Completion queues and the event queue: entries go to host memory, and behind them interrupts.

use super::StandIn;
use mprdma_spec::command::{cq_image, eq_image};
use mprdma_spec::counter::Counter;
use mprdma_spec::descriptor::{cqe, eqe, EventType, CQE_WITH_IMM};
use mprdma_spec::status::WcStatus;

/// A ring of 2^`log2` entries in host memory. Indices are free-running.
#[derive(Clone, Copy, Debug, Default)]
struct Ring {
    log2: u8,
    base: u64,
    producer: u16,
    consumer: u16,
}

impl Ring {
    fn is_full(&self) -> bool {
        self.producer.wrapping_sub(self.consumer) >= 1 << self.log2
    }

    /// Takes the next entry: its address and its phase.
    fn produce(&mut self, entry_bytes: usize) -> (u64, bool) {
        let slot = self.producer & ((1 << self.log2) - 1);
        let phase = self.producer >> self.log2 & 1 == 0;
        self.producer = self.producer.wrapping_add(1);
        let at = u64::from(slot) * entry_bytes as u64;
        (self.base.wrapping_add(at), phase)
    }
}

/// A completion queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CompletionQueue {
    pub exists: bool,
    /// A CQE found the ring full; nothing is written any more.
    dead: bool,
    armed: bool,
    vector: u8,
    ring: Ring,
}

impl CompletionQueue {
    pub(super) fn read(image: &[u8]) -> CompletionQueue {
        CompletionQueue {
            exists: true,
            vector: cq_image::VECTOR.get(image) as u8,
            ring: Ring {
                log2: cq_image::LOG2.get(image) as u8,
                base: cq_image::BASE.get(image),
                ..Ring::default()
            },
            ..CompletionQueue::default()
        }
    }
}

/// The event queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EventQueue {
    pub exists: bool,
    vector: u8,
    ring: Ring,
}

impl EventQueue {
    pub(super) fn read(image: &[u8]) -> EventQueue {
        EventQueue {
            exists: true,
            vector: eq_image::VECTOR.get(image) as u8,
            ring: Ring {
                log2: eq_image::LOG2.get(image) as u8,
                base: eq_image::BASE.get(image),
                ..Ring::default()
            },
        }
    }

    /// Doorbell: the new consumer index.
    pub(super) fn consumed(&mut self, index: u16) {
        self.ring.consumer = index;
    }
}

/// What a CQE says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    pub qpn: u16,
    pub wqe_index: u16,
    pub byte_len: u32,
    pub imm: Option<u32>,
    pub status: u8,
    pub opcode: u8,
}

impl StandIn {
    /// Doorbell of a CQ: the new consumer index, and perhaps arms it. A CQ that holds unseen CQEs fires at once.
    pub(super) fn cq_doorbell(&mut self, cqn: u16, index: u16, arms: bool) {
        let Some(cq) = self.tables.cqs.get_mut(usize::from(cqn)) else {
            return;
        };
        if !cq.exists {
            return;
        }
        cq.ring.consumer = index;
        if !arms {
            return;
        }
        cq.armed = cq.ring.producer == index;
        if !cq.armed {
            let vector = cq.vector;
            self.interrupt(vector);
        }
    }

    /// Writes a CQE. A CQ whose ring is full loses it, dies, and says so once.
    pub(super) fn complete_on(&mut self, cqn: u16, completion: &Completion) {
        let Some(cq) = self.tables.cqs.get_mut(usize::from(cqn)) else {
            return;
        };
        if !cq.exists {
            return;
        }
        if cq.dead || cq.ring.is_full() {
            let news = !std::mem::replace(&mut cq.dead, true);
            self.count(Counter::CqOverflows, 1);
            if news {
                self.raise_event(EventType::CqError, 0, cqn);
            }
            return;
        }
        let (at, phase) = cq.ring.produce(cqe::BYTES);
        let fires = std::mem::take(&mut cq.armed).then_some(cq.vector);
        let mut entry = vec![0; cqe::BYTES];
        let flags = completion.imm.map_or(0, |_| CQE_WITH_IMM);
        for (field, value) in [
            (cqe::QPN, u64::from(completion.qpn)),
            (cqe::WQE_INDEX, completion.wqe_index.into()),
            (cqe::BYTE_LEN, completion.byte_len.into()),
            (cqe::IMM, completion.imm.unwrap_or(0).into()),
            (cqe::TIMESTAMP, self.tick().into()),
            (cqe::STATUS, completion.status.into()),
            (cqe::OPCODE, completion.opcode.into()),
            (cqe::FLAGS, flags),
            (cqe::PHASE, phase.into()),
        ] {
            field.set(&mut entry, value);
        }
        self.write(at, entry);
        self.count(Counter::CqesWritten, 1);
        if let Some(vector) = fires {
            self.interrupt(vector);
        }
    }

    /// A queue pair went to ERROR. A flush makes no event: software asked for ERROR, or another event tells the cause.
    pub(super) fn qp_fatal(&mut self, qpn: u16, status: u8) {
        if status != WcStatus::WorkRequestFlushed as u8 {
            self.raise_event(EventType::QpFatal, status, qpn);
        }
    }

    /// Writes an EQE and raises the interrupt. Without an EQ, or with a full one, the event is lost.
    pub(super) fn raise_event(&mut self, kind: EventType, code: u8, number: u16) {
        let eq = &mut self.tables.eq;
        if !eq.exists || eq.ring.is_full() {
            return;
        }
        let ((at, phase), vector) = (eq.ring.produce(eqe::BYTES), eq.vector);
        let mut entry = vec![0; eqe::BYTES];
        eqe::TYPE.set(&mut entry, kind as u64);
        eqe::CODE.set(&mut entry, code.into());
        eqe::NUMBER.set(&mut entry, number.into());
        eqe::PHASE.set(&mut entry, phase.into());
        self.write(at, entry);
        self.interrupt(vector);
    }
}
