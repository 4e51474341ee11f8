//! Numbers that wrap, rings of every size, queue pairs that come and go, and as many of them as the card has.

mod crowd;
mod reconnect;
mod rings;
mod sequence;
mod stamps;

use anyhow::Result;
use mprdma_host::verbs::{SendFlags, SendWr};
use mprdma_spec::descriptor::WrOpcode;
use mprdma_tests::rig::{both, pattern, PairAttr, Rig};

/// Whether the long versions of the tests run (`make test-long`).
fn long() -> bool {
    std::env::var_os("MPRDMA_LONG").is_some()
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

/// Both compiled cores are linked, and a scenario chooses between them: the cards say how many slots they have.
#[test]
fn a_scenario_chooses_the_bitmap() -> Result<()> {
    for (card, slots) in [
        ("", 128),
        ("bitmap_slots = 128\n", 128),
        ("bitmap_slots = 64\n", 64),
    ] {
        let text = format!("name = \"t\"\n[network]\nkind = \"direct\"\ncards = 2\n[card]\n{card}");
        let rig = Rig::start(&text, 1)?;
        for side in &rig.sides {
            assert_eq!(side.context.control().capabilities().bitmap_slots, slots);
        }
        let pair = rig.pair(0, 1, &PairAttr::default())?;
        let (source, target) = (rig.region(0, 0, 20_000)?, rig.region(1, 0, 20_000)?);
        let data = pattern(slots.into(), 20_000);
        source.write(0, &data)?;
        rig.write(&pair, &source, &target, 20_000)?;
        let mut got = vec![0; 20_000];
        target.read(0, &mut got)?;
        assert!(got == data);
    }
    Ok(())
}
