//! What the drivers and the cards say when a queue pair fails.

use crate::rig::{count, Pair, Rig, US};
use anyhow::Result;
use mprdma_host::verbs::AsyncEvent;
use mprdma_spec::counter::Counter;
use mprdma_spec::status::WcStatus;

/// The driver of `tx` has said once that it failed with `status`. The peer's has said that a request was refused, if it was
/// the peer who refused it, and nothing else.
///
/// # Panics
/// When it was otherwise.
pub fn check_events(rig: &Rig, pair: &Pair, status: WcStatus) -> Result<()> {
    let fatal = AsyncEvent::QpFatal {
        qpn: pair.tx.qp_num(),
        status: Some(status),
    };
    assert_eq!(rig.sides[pair.from].context.poll_events()?, [fatal]);
    let blamed = AsyncEvent::QpAccess {
        qpn: pair.rx.qp_num(),
    };
    let remote = [WcStatus::RemoteAccessError, WcStatus::RemoteInvalidRequest];
    let expected = if remote.contains(&status) {
        vec![blamed]
    } else {
        vec![]
    };
    assert_eq!(rig.sides[pair.to].context.poll_events()?, expected);
    Ok(())
}

/// Unmaps `memory` of the side of `rx` while that answers from it: the queue pair fails, and its driver says why.
///
/// # Panics
/// When it was otherwise.
pub fn unmap_under_load<M>(rig: &Rig, pair: &Pair, memory: M) -> Result<()> {
    drop(memory);
    rig.sim.run(50 * US);
    let owner = &rig.sides[pair.to].context;
    assert!(count(owner, Counter::DmaReadErrors)? > 0);
    let fatal = AsyncEvent::QpFatal {
        qpn: pair.rx.qp_num(),
        status: Some(WcStatus::FatalError),
    };
    assert_eq!(owner.poll_events()?, [fatal]);
    Ok(())
}
