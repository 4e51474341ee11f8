//! Numbers that wrap, rings of every size, queue pairs that come and go, and as many of them as the card has.

mod crowd;
mod reconnect;
mod rings;
mod sequence;
mod stamps;

use anyhow::Result;
use mprdma_host::verbs::{Context, SendFlags, SendWr};
use mprdma_spec::counter::Counter;
use mprdma_spec::descriptor::WrOpcode;
use mprdma_tests::rig::Rig;

/// Whether the long versions of the tests run (`make test-long`).
fn long() -> bool {
    std::env::var_os("MPRDMA_LONG").is_some()
}

fn count(context: &Context, counter: Counter) -> Result<u64> {
    Ok(context.control().counter(counter)?)
}

/// The sum of a counter over both cards.
fn both(rig: &Rig, counter: Counter) -> Result<u64> {
    Ok(count(&rig.sides[0].context, counter)? + count(&rig.sides[1].context, counter)?)
}

/// `request` as a WRITE WITH IMM.
fn with_imm(request: SendWr, imm: u32) -> SendWr {
    SendWr {
        opcode: WrOpcode::RdmaWriteWithImm,
        flags: SendFlags {
            signaled: true,
            ..SendFlags::default()
        },
        imm,
        ..request
    }
}
