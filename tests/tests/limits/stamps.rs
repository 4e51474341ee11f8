//! MPETH's stamp wraps every 65,536 ticks of 64 ns, 4.19 ms: round trips are measured right before and after, under
//! traffic and over an idle time of that very length.

use crate::both;
use anyhow::Result;
use mprdma_sim::time::{Ps, NS};
use mprdma_spec::counter::Counter;
use mprdma_tests::rig::{pattern, PairAttr, Rig, US};

/// Time after which the stamp is the same again.
const WRAP: Ps = 65_536 * 64 * NS;
/// Bytes of the burst that opens the window.
const BURST: usize = 256 * 1024;

#[test]
fn stamps_wrap_idle_and_under_traffic() -> Result<()> {
    let rig = Rig::start("direct", 1)?;
    let attr = PairAttr {
        mtu: 1024,
        ..PairAttr::default()
    };
    let (busy, idle) = (rig.pair(0, 1, &attr)?, rig.pair(0, 1, &attr)?);
    let (source, target) = (rig.region(0, 0, BURST)?, rig.region(1, 0, BURST)?);
    source.write(0, &pattern(1, BURST))?;
    rig.write(&busy, &source, &target, 100)?;
    rig.write(&idle, &source, &target, BURST)?;
    let opened = idle.tx.query()?;
    let initial = f64::from(attr.rts.multi_path.initial_window);
    println!("before: cwnd {}, RTT {:.2} us", opened.cwnd, opened.srtt_us);
    let last = rig.sim.now();

    // One side of the wrap and the other: the round trip of a lone packet stays what it is.
    let mut trips = vec![];
    while rig.sim.now() < last + WRAP - 40 * US {
        rig.write(&busy, &source, &target, 1000)?;
        trips.push(busy.tx.query()?.srtt_us);
        rig.sim.run(90 * US);
    }
    while rig.sim.now() < last + WRAP + 10 * US {
        rig.sim.run(US / 4);
    }
    // By its stamp this packet comes a moment after the burst.
    rig.write(&idle, &source, &target, 1000)?;
    let after = idle.tx.query()?;
    println!("after: cwnd {}, RTT {:.2} us", after.cwnd, after.srtt_us);
    for _ in 0..5 {
        rig.sim.run(90 * US);
        rig.write(&busy, &source, &target, 1000)?;
        trips.push(busy.tx.query()?.srtt_us);
    }
    let (least, most) = trips
        .iter()
        .fold((f64::MAX, 0.0_f64), |(a, b), &t| (a.min(t), b.max(t)));
    println!("{} round trips of {least:.2} to {most:.2} us", trips.len());
    assert!(trips.len() > 40 && least > 1.0 && most < 1.5 * least);
    assert!(after.srtt_us < opened.srtt_us + 1.0);
    // Rule 6 shrank the window when the burst was over; the restart opens it again.
    assert!(
        opened.cwnd < initial / 2.0,
        "the burst leaves a small window"
    );
    assert!(
        after.cwnd >= initial - 2.0 && after.cwnd <= initial,
        "an idle time of one wrap restarts the window"
    );
    assert_eq!(both(&rig, Counter::Timeouts)?, 0);
    assert_eq!(both(&rig, Counter::TxRetransmissions)?, 0);
    Ok(())
}

mprdma_tests::on_model!(stamps_wrap_idle_and_under_traffic);
