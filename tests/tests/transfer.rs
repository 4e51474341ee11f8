//! Files of every shape cross the network intact: real driver, real RTL.

use anyhow::Result;
use mprdma_host::memory::{Memory, PageSize};
use mprdma_host::verbs::Vlan;
use mprdma_tests::rig::{pattern, PairAttr, Rig};
use std::sync::Arc;

/// Writes `length` bytes from an odd to another odd address and looks at what arrived, and at its neighbours.
fn cross(rig: &Rig, attr: &PairAttr, length: usize, offsets: (usize, usize)) -> Result<()> {
    const MARGIN: usize = 64;
    let pair = rig.pair(0, 1, attr)?;
    let source = rig.region(0, offsets.0, length.max(1))?;
    let memory = Arc::new(Memory::allocate(
        offsets.1 + length + 2 * MARGIN,
        PageSize::Small,
    )?);
    memory.write(0, &vec![0xee; memory.bytes()])?;
    let target = rig.register(1, &memory, offsets.1 + MARGIN, length.max(1))?;
    let data = pattern(length as u64 ^ u64::from(attr.mtu), length);
    source.write(0, &data)?;
    rig.write(&pair, &source, &target, length)?;
    let mut all = vec![0; memory.bytes()];
    memory.read(0, &mut all)?;
    let all = &all[offsets.1..];
    assert!(
        all[MARGIN..MARGIN + length] == data[..],
        "{length} bytes at MTU {} differ",
        attr.mtu
    );
    assert!(
        all[..MARGIN]
            .iter()
            .chain(&all[MARGIN + length..])
            .all(|&b| b == 0xee),
        "neighbours were touched"
    );
    Ok(())
}

#[test]
fn sizes_mtus_and_odd_addresses() -> Result<()> {
    let rig = Rig::start("demo", 1)?;
    for mtu in [256, 1024, 4096] {
        let attr = PairAttr {
            mtu,
            ..PairAttr::default()
        };
        for (length, offsets) in [
            (0, (0, 0)),
            (1, (3, 5)),
            (63, (1, 64)),
            (4095, (7, 9)),
            (4096, (0, 4095)),
            (4097, (61, 33)),
        ] {
            cross(&rig, &attr, length, offsets)?;
        }
    }
    Ok(())
}

#[test]
fn large_messages_at_every_mtu() -> Result<()> {
    let rig = Rig::start("demo", 2)?;
    for mtu in [256, 1024, 4096] {
        let attr = PairAttr {
            mtu,
            ..PairAttr::default()
        };
        cross(&rig, &attr, (1 << 20) + 13, (1, 7))?;
        cross(&rig, &attr, 4 << 20, (5, 3))?;
    }
    Ok(())
}

#[test]
fn ipv6_and_vlan() -> Result<()> {
    let rig = Rig::start("demo", 3)?;
    for (ipv6, vlan) in [
        (true, None),
        (
            false,
            Some(Vlan {
                id: 42,
                priority: 3,
            }),
        ),
        (true, Some(Vlan { id: 7, priority: 0 })),
    ] {
        cross(
            &rig,
            &PairAttr {
                ipv6,
                vlan,
                ..PairAttr::default()
            },
            20_001,
            (11, 13),
        )?;
    }
    Ok(())
}

#[test]
fn psn_wrap() -> Result<()> {
    let rig = Rig::start("demo", 4)?;
    cross(
        &rig,
        &PairAttr {
            psn: 0xff_fffa,
            mtu: 256,
            ..PairAttr::default()
        },
        10_000,
        (2, 3),
    )
}

mprdma_tests::on_model!(
    sizes_mtus_and_odd_addresses,
    large_messages_at_every_mtu,
    ipv6_and_vlan,
    psn_wrap,
);
