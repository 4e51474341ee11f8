//! A tap that shows a test every good frame, and loses what it chooses.

use crate::rig::Rig;
use mprdma_sim::fabric::{Crossing, Node, Tap};
use mprdma_spec::wire::frame::Frame;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Calls a closure for every good frame that a card sends, and loses those that it says; clones are the same.
pub struct Eye<S> {
    state: Arc<Mutex<S>>,
    sent: fn(&mut S, usize, &Frame<'_>) -> bool,
    delivered: fn(&mut S, usize, &Frame<'_>),
}

impl<S> Clone for Eye<S> {
    fn clone(&self) -> Self {
        Eye {
            state: Arc::clone(&self.state),
            ..*self
        }
    }
}

impl<S: Default + Send + 'static> Eye<S> {
    /// Begins to look at what the cards of `rig` send.
    pub fn open(rig: &Rig, sent: fn(&mut S, usize, &Frame<'_>) -> bool) -> Eye<S> {
        Eye::open_both(rig, sent, |_, _, _| ())
    }

    /// And at what reaches them.
    pub fn open_both(
        rig: &Rig,
        sent: fn(&mut S, usize, &Frame<'_>) -> bool,
        delivered: fn(&mut S, usize, &Frame<'_>),
    ) -> Eye<S> {
        let eye = Eye {
            state: Arc::default(),
            sent,
            delivered,
        };
        rig.sim.set_tap(Box::new(eye.clone()));
        eye
    }

    /// What it has seen.
    pub fn state(&self) -> MutexGuard<'_, S> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Send> Tap for Eye<S> {
    fn crossing(&mut self, crossing: &Crossing<'_>) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match (crossing.from, Frame::parse(crossing.frame)) {
            (Node::Card(card), Ok(frame)) => (self.sent)(&mut state, card, &frame),
            _ => false,
        }
    }

    fn delivered(&mut self, card: usize, frame: &[u8]) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(frame) = Frame::parse(frame) {
            (self.delivered)(&mut state, card, &frame);
        }
    }
}
