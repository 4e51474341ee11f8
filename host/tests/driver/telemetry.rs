//! Parameters and telemetry of queue pairs.

use mprdma_host::verbs::{InitAttr, MultiPath, RtsAttr, Timers};
use mprdma_host::Error;
use mprdma_spec::command::QpState;

use crate::fake_card::{Fabric, Traits};
use crate::verbs::{mtu, rtr, End, REGION};

fn paths() -> MultiPath {
    MultiPath {
        vp_base: 2000,
        vp_count: 70,
        delta: 64,
        probe: 0,
        initial_window: 8,
        cwnd_max: 99,
        burst_interval: 3,
        alpha: 0,
        hole_repair: false,
        vp_recycle: false,
    }
}

#[test]
fn both_extensions_are_on_unless_switched_off() {
    let fabric = Fabric::new(2, Traits::default());
    let a = End::new(&fabric, 0, 4, 16);
    let paths = a.qp.parameters().multi_path;
    assert!(paths.hole_repair && paths.vp_recycle);
    assert!(!paths.as_published().hole_repair && !paths.as_published().vp_recycle);
    assert_eq!(paths, MultiPath::default());
}

#[test]
fn parameters_change_as_far_as_the_state_allows() {
    let fabric = Fabric::new(2, Traits::default());
    let a = End::new(&fabric, 0, 4, 16);
    let timers = Timers {
        rto_floor: 20,
        retry_cnt: 2,
        rnr_retry: 1,
    };
    a.qp.modify_timers(&timers).unwrap();
    a.qp.modify_to_init(&InitAttr::default()).unwrap();
    a.qp.modify_to_rtr(&rtr(1, 2)).unwrap();
    a.qp.modify_paths(&paths()).unwrap();
    assert_eq!(
        (a.qp.parameters().timers, a.qp.parameters().multi_path),
        (timers, paths())
    );

    a.qp.modify_to_rts(&RtsAttr::new(7)).unwrap();
    assert_eq!(
        a.qp.parameters().timers,
        Timers::default(),
        "RTS sets them anew"
    );
    a.qp.modify_paths(&paths()).unwrap();
    assert!(matches!(
        a.qp.modify_timers(&timers),
        Err(Error::WrongState {
            state: QpState::Rts,
            ..
        })
    ));
    assert_eq!(
        (a.qp.parameters().timers, a.qp.parameters().multi_path),
        (Timers::default(), paths())
    );
    let wrong = MultiPath {
        delta: 128,
        ..paths()
    };
    let error = a.qp.modify_paths(&wrong).unwrap_err().to_string();
    assert!(
        error.contains("delta is 128; it must lie between 1 and 127"),
        "{error}"
    );
    a.qp.modify_to_error().unwrap();
    assert!(a.qp.modify_paths(&paths()).is_err());
}

#[test]
fn counts_and_traces_are_read_from_the_card() {
    let (a, b, _) = End::pair(16, 64);
    a.qp.modify_paths(&paths()).unwrap();
    let qpn = a.qp.qp_num();
    let context = &a.context;
    assert!(matches!(
        context.read_trace(qpn),
        Err(Error::NotTraced { traced: None, .. })
    ));
    context.trace_qp(qpn).unwrap();
    // Twice as many packets as fit into one region: the paths come round.
    let packets = 2 * (REGION / mtu().bytes() as usize) as u32;
    assert!(packets > 140, "{packets} packets on 70 paths");
    let half = (packets / 2 * mtu().bytes()) as usize;
    for _ in 0..2 {
        a.qp.post_send(&[a.write_wr(1, 0, &b, 0, half)]).unwrap();
    }
    a.completions(2);

    let (sent, received) = (a.qp.query_stats().unwrap(), b.qp.query_stats().unwrap());
    assert_eq!((sent.sent, sent.path_switches), (packets, packets - 1));
    assert_eq!((sent.accepted, sent.retransmissions()), (0, 0));
    assert_eq!((received.accepted, received.sent), (packets, 0));
    assert_eq!(received.distance, [packets, 0, 0, 0, 0, 0, 0, 0]);

    let trace = context.read_trace(qpn).unwrap();
    assert_eq!((trace.qpn, trace.paths.len()), (qpn, 64));
    for (i, path) in trace.paths.iter().enumerate() {
        assert_eq!(path.vp, 2000 + i as u16);
        let expected = (0..packets)
            .filter(|packet| *packet % 70 == i as u32)
            .count();
        assert_eq!(path.counts.sent, expected as u32, "path {i}");
    }
    let expected = (0..packets).filter(|packet| packet % 70 >= 64).count();
    assert_eq!(trace.other.sent, expected as u32);
    assert!(trace.paths[0].counts.sent > 0);

    let error = context.read_trace(qpn + 1).unwrap_err().to_string();
    assert_eq!(error, format!("there is no QP {}", qpn + 1));
    assert!(context.trace_qp(qpn + 1).is_err());
}
