//! The core of a card, as the simulator sees it.

use crate::ports::{NicIn, NicOut};

/// A core that advances by one clock cycle per call.
pub trait Nic: Send {
    /// One rising edge: the core samples `input` and then presents `output`. What both sides agreed on before the
    /// edge (valid of one, ready of the other) is transferred by it.
    fn step(&mut self, input: &NicIn, output: &mut NicOut);
}
