//! MSI-X vectors, each an eventfd of the client.

use crate::pcie::InterruptSink;
use std::fs::File;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

/// The eventfds of one card, by vector.
#[derive(Clone)]
pub struct EventFds(Arc<Mutex<Vec<Option<File>>>>);

impl EventFds {
    /// `vectors` vectors, none connected.
    pub fn new(vectors: usize) -> EventFds {
        EventFds(Arc::new(Mutex::new((0..vectors).map(|_| None).collect())))
    }

    /// Connects or disconnects a vector, if it exists. The file connected before is closed.
    pub fn set(&self, vector: usize, file: Option<File>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = all.get_mut(vector) {
            *slot = file;
        }
    }

    /// Disconnects every vector.
    pub fn clear(&self) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter_mut().for_each(|slot| *slot = None);
    }

    /// Signals a vector. One that is not connected is lost, as a masked one without pending bit would be.
    pub fn signal(&self, vector: usize) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Some(file)) = all.get(vector) else {
            tracing::debug!(vector, "interrupt to a vector that is not connected");
            return;
        };
        // An eventfd refuses only when its count is full; then the client is awake anyway.
        if let Err(error) = (&*file).write(&1u64.to_ne_bytes()) {
            tracing::debug!(vector, %error, "interrupt not delivered");
        }
    }
}

impl InterruptSink for EventFds {
    fn raise(&mut self, vector: u8) {
        self.signal(usize::from(vector));
    }
}
