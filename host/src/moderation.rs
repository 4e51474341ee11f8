//! Interrupt moderation: the least time between two interrupts of an MSI-X vector. It is the card's state, shared by all
//! queues of the vector, and gone with a reset.

use std::time::Duration;

use mprdma_spec::config::MSIX_VECTORS;
use mprdma_spec::csr;

use crate::control::Control;
use crate::error::Error;
use crate::verbs::Context;

/// Unit of the card's intervals.
const TICK: Duration = Duration::from_nanos(64);
/// The longest interval: 4.19424 ms.
pub const MAX_INTERVAL: Duration =
    Duration::from_nanos(TICK.as_nanos() as u64 * csr::IRQ_INTERVAL_MAX as u64);

/// Ticks that last at least as long as `interval`.
fn ticks(interval: Duration) -> Result<u32, Error> {
    let ticks = interval.as_nanos().div_ceil(TICK.as_nanos());
    match u32::try_from(ticks) {
        Ok(ticks) if ticks <= csr::IRQ_INTERVAL_MAX => Ok(ticks),
        _ => Err(Error::ModerationInterval {
            interval,
            max: MAX_INTERVAL,
        }),
    }
}

const fn register(vector: usize) -> u32 {
    csr::IRQ_INTERVALS + 4 * vector as u32
}

impl Control {
    /// Vectors whose interrupts the card can moderate: none before interface version 1.1.
    #[must_use]
    pub fn moderated_vectors(&self) -> usize {
        if self.capabilities().version < csr::VERSION_MODERATION {
            return 0;
        }
        self.device().identity().vectors.min(MSIX_VECTORS)
    }

    /// The least time between two interrupts of each vector; zero is no moderation. Empty for a card that cannot moderate.
    ///
    /// # Errors
    /// A device error.
    pub fn moderation(&self) -> Result<Vec<Duration>, Error> {
        (0..self.moderated_vectors())
            .map(|vector| {
                let ticks = self.device().read32(register(vector))? & csr::IRQ_INTERVAL_MAX;
                Ok(TICK * ticks)
            })
            .collect()
    }

    /// Sets it for `vector`, or for all: rounded up to 64 ns, up to [`MAX_INTERVAL`]. It counts from the next interrupt on,
    /// zero at once.
    ///
    /// # Errors
    /// [`Error::ModerationInterval`], [`Error::ModerationVector`], or a device error.
    pub fn set_moderation(&self, vector: Option<usize>, interval: Duration) -> Result<(), Error> {
        let vectors = self.moderated_vectors();
        let ticks = ticks(interval)?;
        let chosen = match vector {
            Some(vector) if vector < vectors => vector..vector + 1,
            None if vectors > 0 => 0..vectors,
            _ => return Err(Error::ModerationVector { vector, vectors }),
        };
        for vector in chosen {
            self.device().write32(register(vector), ticks)?;
        }
        Ok(())
    }
}

impl Context {
    /// As [`Control::moderation`].
    ///
    /// # Errors
    /// As there.
    pub fn moderation(&self) -> Result<Vec<Duration>, Error> {
        self.control().moderation()
    }

    /// As [`Control::set_moderation`].
    ///
    /// # Errors
    /// As there.
    pub fn set_moderation(&self, vector: Option<usize>, interval: Duration) -> Result<(), Error> {
        self.control().set_moderation(vector, interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_whole_ticks_and_never_shorter_than_asked_for() {
        for (nanoseconds, expected) in [(0, 0), (1, 1), (64, 1), (65, 2), (4_194_240, 65535)] {
            let interval = Duration::from_nanos(nanoseconds);
            assert_eq!(ticks(interval).unwrap(), expected, "{nanoseconds} ns");
        }
        for interval in [Duration::from_nanos(4_194_241), Duration::MAX] {
            let error = ticks(interval).unwrap_err().to_string();
            assert!(error.contains("between 0 and 4194.24 us"), "{error}");
        }
    }
}
