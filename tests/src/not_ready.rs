//! A peer that receives but may not send yet, so that it cannot answer.

use crate::outcomes::good;
use crate::rig::{count, Pair, PairAttr, Rig, US};
use anyhow::Result;
use mprdma_host::verbs::SendWr;
use mprdma_spec::counter::Counter;

/// `request`, number 0, waits for such a peer, and is done when that may send. `meanwhile` looks while it waits.
///
/// # Panics
/// When it was otherwise.
pub fn waits_until_its_peer_may_send(
    rig: &Rig,
    pair: &Pair,
    attr: &PairAttr,
    request: SendWr,
    meanwhile: impl FnOnce() -> Result<()>,
) -> Result<()> {
    // The peer once more, up to RTR.
    pair.rx.modify_to_reset()?;
    Rig::receive(pair, attr, true)?;
    pair.tx.post_send(&[request])?;
    rig.sim.run(100 * US);
    assert!(rig.sides[pair.from].cq.poll(1)?.is_empty());
    meanwhile()?;
    assert!(count(&rig.sides[pair.to].context, Counter::RxRnrNaks)? > 0);
    Rig::send(pair, attr, true)?;
    assert_eq!(rig.outcomes(pair.from, 1)?, good(1));
    Ok(())
}
