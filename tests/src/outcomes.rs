//! How work requests ended, as a test compares it.

use crate::rig::{Pair, Rig, US};
use anyhow::Result;
use mprdma_host::verbs::{SendWr, Wc};
use mprdma_sim::time::Ps;
use mprdma_spec::status::WcStatus;

/// Longest wait for completions.
pub const LIMIT: Ps = 20_000 * US;

/// A work request, and how it ended.
pub type Outcome = (u64, WcStatus);

/// So many completions, of 0, 1, … in posting order, all good.
#[must_use]
pub fn good(count: u64) -> Vec<Outcome> {
    (0..count).map(|i| (i, WcStatus::Success)).collect()
}

impl Rig {
    /// Waits for so many completions on a card.
    pub fn outcomes(&self, card: usize, count: usize) -> Result<Vec<Outcome>> {
        let found = self.completions(card, count, LIMIT)?;
        Ok(found.iter().map(|wc| (wc.wr_id, wc.status)).collect())
    }

    /// Posts on the sending side of `pair`, and waits for as many completions.
    pub fn done(&self, pair: &Pair, requests: &[SendWr]) -> Result<Vec<Outcome>> {
        pair.tx.post_send(requests)?;
        self.outcomes(pair.from, requests.len())
    }
}

/// How many of the work requests 0, 1, … are done when a failure ends their queue: those before it succeeded in order, the
/// first that did not has `cause`, all behind it are flushed.
///
/// # Panics
/// When it was otherwise.
#[must_use]
pub fn cut_short_by(cause: WcStatus, found: &[Wc]) -> usize {
    let succeeded = |wc: &&Wc| wc.status == WcStatus::Success;
    let done = found.iter().take_while(succeeded).count();
    for (i, wc) in found.iter().enumerate() {
        let expected = match i.cmp(&done) {
            std::cmp::Ordering::Less => WcStatus::Success,
            std::cmp::Ordering::Equal => cause,
            std::cmp::Ordering::Greater => WcStatus::WorkRequestFlushed,
        };
        assert_eq!((wc.wr_id, wc.status), (i as u64, expected));
    }
    done
}
