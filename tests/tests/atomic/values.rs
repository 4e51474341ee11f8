//! What ATOMICs do to memory, and what they bring.

use super::{Bench, Words, UNTOUCHED};
use anyhow::{ensure, Result};
use mprdma_host::verbs::{Vlan, MAX_RD_ATOMIC};
use mprdma_spec::counter::Counter;
use mprdma_spec::descriptor::WcOpcode;
use mprdma_spec::status::WcStatus;
use mprdma_tests::open::Open;
use mprdma_tests::outcomes::{good, LIMIT};
use mprdma_tests::rig::{
    add_request, both, count, flagged, read_request, write_request, PairAttr, Rig, US,
};

const TOP: u64 = 1 << 63;

#[test]
fn section_7_atomic_adds_and_swaps_in_host_byte_order() -> Result<()> {
    let vlan = Some(Vlan {
        id: 42,
        priority: 3,
    });
    for (seed, ipv6, vlan, mtu) in [(90, false, None, 4096), (91, true, vlan, 256)] {
        let attr = PairAttr {
            ipv6,
            vlan,
            mtu,
            ..PairAttr::default()
        };
        let bench = Bench::new("demo", seed, &attr)?;
        let add = |value: u64| (WcOpcode::FetchAdd, bench.add(0, 7, value));
        let swap = |compare: u64, swap: u64| (WcOpcode::CompSwap, bench.swap(0, 7, compare, swap));
        for (held, (kind, request), expected) in [
            (0, add(1), 1),
            (0x0102_0304_0506_0708, add(0), 0x0102_0304_0506_0708),
            (0xff, add(1), 0x100),
            (u64::MAX, add(1), 0),
            (TOP, add(TOP | 5), 5),
            (41, add(u64::MAX), 40),
            (41, swap(41, 0x0102_0304_0506_0708), 0x0102_0304_0506_0708),
            (41, swap(42, 7), 41),
            // Equal in all but the first or the last bit.
            (TOP, swap(0, 7), TOP),
            (1, swap(0, 7), 1),
            (0, swap(0, u64::MAX), u64::MAX),
        ] {
            bench.there.set(7, held)?;
            bench.here.set(0, UNTOUCHED)?;
            bench.pair.tx.post_send(&[request])?;
            let wc = bench.rig.completions(0, 1, LIMIT)?.remove(0);
            assert_eq!(
                (wc.wr_id, wc.status, wc.opcode, wc.byte_len),
                (0, WcStatus::Success, Some(kind), 8)
            );
            assert_eq!(bench.here.get(0)?, held, "{request:x?}");
            assert_eq!(bench.there.get(7)?, expected, "{held:#x} {request:x?}");
        }
        bench.here.check_untouched(1)?;
        bench.there.check_untouched(8)?;
        assert_eq!(bench.there.first(7)?, [UNTOUCHED; 7]);
        assert_eq!(both(&bench.rig, Counter::RxAccessErrors)?, 0);
        // The answers are no work requests of the other side.
        let completed = count(&bench.rig.sides[1].context, Counter::MessagesCompleted)?;
        assert_eq!(completed, 0);
    }
    Ok(())
}

/// The answer goes to any address: here to each of the eight places in a word, and across a page's end.
#[test]
fn section_7_atomic_answers_go_to_any_address() -> Result<()> {
    let bench = Bench::new("direct", 92, &PairAttr::default())?;
    let target = bench.rig.region(0, 4096 - 20, 64)?;
    for place in 0..32 {
        bench.there.set(0, 0x1122_3344_5566_7788 + place)?;
        target.write(0, &[0xee; 64])?;
        let mut request = add_request(0, &target, &bench.there.0, 1);
        request.addr += place;
        assert_eq!(bench.done(&[request])?, good(1));
        let mut expected = [0xee; 64];
        let held = 0x1122_3344_5566_7788 + place;
        expected[place as usize..][..8].copy_from_slice(&held.to_ne_bytes());
        let mut got = [0; 64];
        target.read(0, &mut got)?;
        assert_eq!(got, expected, "at byte {place}");
    }
    Ok(())
}

/// The PSNs of the requests wrap, and those of the answers; slots are used again and again.
#[test]
fn section_7_atomic_psns_wrap() -> Result<()> {
    for psn in [0xff_ffe0, 0x55_5555 ^ 0xff_ffe0] {
        let attr = PairAttr {
            psn,
            ..PairAttr::default()
        };
        let bench = Bench::new("demo", 93, &attr)?;
        bench.there.set(0, 0)?;
        let adds: Vec<_> = (0..60).map(|i| bench.add(i, 0, 1)).collect();
        assert_eq!(bench.done(&adds)?, good(60));
        assert_eq!(bench.here.first(60)?, (0..60).collect::<Vec<_>>());
        assert_eq!(bench.there.get(0)?, 60);
    }
    Ok(())
}

/// Each side has 64 ATOMICs on the other's memory posted.
#[test]
fn section_7_atomic_from_both_sides() -> Result<()> {
    println!("seed 94");
    let rig = Rig::start("demo", 94)?;
    let pair = rig.pair(0, 1, &PairAttr::default())?;
    let words = [Words::new(&rig, 0, 0)?, Words::new(&rig, 1, 0)?];
    for (card, qp) in [&pair.tx, &pair.rx].into_iter().enumerate() {
        words[card].set(100, 0)?;
        let adds: Vec<_> = (0..64)
            .map(|i| {
                let add = add_request(i, &words[card].0, &words[1 - card].0, 1 + card as u64);
                super::at(add, i as usize, 100)
            })
            .collect();
        qp.post_send(&adds)?;
    }
    for card in 0..2 {
        assert_eq!(rig.outcomes(card, 64)?, good(64));
    }
    rig.sim.run(50 * US);
    for card in 0..2 {
        let step = 1 + card as u64;
        let expected: Vec<_> = (0..64).map(|i| i * step).collect();
        assert_eq!(words[card].first(64)?, expected);
        assert_eq!(words[1 - card].get(100)?, 64 * step);
        assert!(rig.sides[card].cq.poll(1)?.is_empty(), "one too many");
        assert!(rig.sides[card].context.poll_events()?.is_empty());
    }
    Ok(())
}

/// READs and ATOMICs share the slots: the 17th request waits.
#[test]
fn section_7_atomic_and_read_have_sixteen_open_together() -> Result<()> {
    let bench = Bench::new("direct", 95, &PairAttr::default())?;
    let eye = Open::watch(&bench.rig);
    bench.there.set(0, 0)?;
    let requests: Vec<_> = (0..60)
        .map(|i| match i % 3 {
            0 => bench.add(i, 0, 1),
            1 => bench.swap(i, 0, i / 3 + 1, i / 3 + 1),
            _ => {
                let read = read_request(i, &bench.here.0, &bench.there.0, 8);
                super::at(read, i as usize, 0)
            }
        })
        .collect();
    assert_eq!(bench.done(&requests)?, good(60));
    // Without FENCE a READ may see an ADD that is behind it, but none before it is missing.
    for (i, found) in (0..).zip(bench.here.first(60)?.chunks(3)) {
        assert_eq!(found[..2], [i, i + 1]);
        assert!((i + 1..=20).contains(&found[2]), "{found:?}");
    }
    let open = eye.state();
    assert_eq!(open.total(), (60, 60));
    assert_eq!(open.most, MAX_RD_ATOMIC, "open at a time");
    Ok(())
}

#[test]
fn section_7_atomic_unsignaled() -> Result<()> {
    let bench = Bench::new("demo", 96, &PairAttr::default())?;
    bench.there.set(0, 0)?;
    let requests: Vec<_> = (0..40)
        .map(|i| {
            let request = match i % 2 {
                0 => bench.add(i, 0, 1),
                _ => write_request(i, &bench.here.0, &bench.there.0, 0),
            };
            flagged(request, |flags| flags.signaled = i == 39)
        })
        .collect();
    bench.pair.tx.post_send(&requests)?;
    assert_eq!(bench.outcomes(1)?, [(39, WcStatus::Success)]);
    assert_eq!(bench.there.get(0)?, 20);
    bench.rig.sim.run(50 * US);
    ensure!(bench.rig.sides[0].cq.poll(1)?.is_empty(), "one too many");
    assert_eq!(bench.pair.tx.send_outstanding(), 0);
    Ok(())
}

mprdma_tests::on_model!(
    section_7_atomic_adds_and_swaps_in_host_byte_order,
    section_7_atomic_answers_go_to_any_address,
    section_7_atomic_psns_wrap,
    section_7_atomic_from_both_sides,
    section_7_atomic_and_read_have_sixteen_open_together,
    section_7_atomic_unsignaled,
);
