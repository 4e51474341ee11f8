//! The event queue: what the card reports that belongs to no completion.

use std::collections::VecDeque;
use std::sync::Arc;

use mprdma_spec::command::eq_image;
use mprdma_spec::csr;
use mprdma_spec::descriptor::{eqe, EventType};
use mprdma_spec::status::WcStatus;

use super::image::Image;
use super::mr::Mapping;
use crate::device::Device;
use crate::error::Error;

/// An asynchronous event (IBA 11.6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncEvent {
    /// A queue pair moved to ERROR for a reason of its own.
    QpFatal {
        /// Queue pair number.
        qpn: u32,
        /// Why, if the card says.
        status: Option<WcStatus>,
    },
    /// The peer asked a queue pair for what it may not have; it moved to ERROR.
    QpAccess {
        /// Queue pair number.
        qpn: u32,
    },
    /// A completion found its queue full and was dropped; the queue is dead.
    CqError {
        /// Completion queue number.
        cqn: u32,
    },
}

/// log2 of the entries of the event queue: every queue pair of a full-sized card can fail once between two looks.
pub const LOG2: u32 = 11;
/// The event queue that gets the card's events, and the vector that it raises.
pub const EQN: u32 = 0;
pub const VECTOR: u32 = 0;
const SIZE: usize = eqe::BYTES << LOG2;

/// The ring and where the driver is in it.
#[derive(Debug)]
pub struct EventQueue {
    ring: Arc<Mapping>,
    consumer: u16,
    /// Events read but not yet taken by the application.
    pub pending: VecDeque<AsyncEvent>,
}

impl EventQueue {
    pub const BYTES: usize = SIZE;

    pub const fn new(ring: Arc<Mapping>) -> Self {
        Self {
            ring,
            consumer: 0,
            pending: VecDeque::new(),
        }
    }

    /// Arguments of CREATE_EQ and DESTROY_EQ.
    pub fn image(&self) -> Image {
        let mut image = Image::new();
        image
            .set(eq_image::EQN, EQN)
            .set(eq_image::LOG2, LOG2)
            .set(eq_image::VECTOR, VECTOR)
            .set(eq_image::BASE, self.ring.iova());
        image
    }

    /// The next event, if the card has written one.
    pub fn next(&mut self) -> Result<Option<AsyncEvent>, Error> {
        let slot = usize::from(self.consumer) & ((1 << LOG2) - 1);
        let phase = u32::from(self.consumer >> LOG2 & 1 == 0);
        let offset = slot * eqe::BYTES;
        let last = self.ring.memory().load_acquire(offset + eqe::BYTES - 4)?;
        if last >> 31 != phase {
            return Ok(None);
        }
        let mut entry = [0; eqe::BYTES];
        self.ring.memory().read(offset, &mut entry)?;
        self.consumer = self.consumer.wrapping_add(1);
        let number = eqe::NUMBER.get(&entry) as u32;
        let kind = eqe::TYPE.get(&entry);
        Ok(Some(if kind == EventType::QpFatal as u64 {
            AsyncEvent::QpFatal {
                qpn: number,
                status: WcStatus::from_code(eqe::CODE.get(&entry) as u8),
            }
        } else if kind == EventType::QpAccess as u64 {
            AsyncEvent::QpAccess { qpn: number }
        } else if kind == EventType::CqError as u64 {
            AsyncEvent::CqError { cqn: number }
        } else {
            return Err(Error::BadEntry {
                queue: "event",
                what: format!("unknown type {kind}"),
            });
        }))
    }

    /// Tells the card which events have been read.
    pub fn report(&self, device: &dyn Device) -> Result<(), Error> {
        Ok(device.write32(
            csr::EQ_DOORBELLS + csr::DB_EQ_CONSUMER,
            self.consumer.into(),
        )?)
    }
}
