//! Rings at their edges: wrapping, full, overflowing.

use mprdma_host::verbs::{AsyncEvent, RecvWr, SendFlags, SendWr};
use mprdma_host::Error;
use mprdma_spec::params::MAX_MESSAGE;
use mprdma_spec::status::WcStatus;

use crate::verbs::{pattern, End};

#[test]
fn indices_and_phases_wrap_many_times() {
    // A send ring of 4 and a completion ring of 8 entries, long past the 16-bit indices.
    let (a, b, _) = End::pair(4, 8);
    let data = pattern(64, 1);
    a.mr.write(0, &data).unwrap();
    let mut next = 0;
    while next < 70_000 {
        let list: Vec<SendWr> = (0..4)
            .map(|i| a.write_wr(next + i, 0, &b, (next % 1000) as usize, 64))
            .collect();
        a.qp.post_send(&list).unwrap();
        for wc in a.completions(4) {
            assert_eq!((wc.wr_id, wc.status), (next, WcStatus::Success));
            next += 1;
        }
    }
    let mut got = [0; 64];
    b.mr.read(996, &mut got).unwrap();
    assert_eq!(got[..], data[..]);
}

#[test]
fn a_full_send_queue_says_how_much_it_took() {
    let (a, b, fabric) = End::pair(4, 16);
    fabric.lock().unwrap().cards[0].paused = true;
    let list: Vec<SendWr> = (0..6).map(|i| a.write_wr(i, 0, &b, 0, 8)).collect();
    let error = a.qp.post_send(&list).unwrap_err();
    assert!(
        matches!(
            error,
            Error::QueueFull {
                queue: "send",
                capacity: 4,
                posted: 4,
                ..
            }
        ),
        "{error}"
    );
    assert!(matches!(
        a.qp.post_send(&list[4..]),
        Err(Error::QueueFull { posted: 0, .. })
    ));
    fabric.lock().unwrap().cards[0].paused = false;
    let done: Vec<u64> = a.completions(4).iter().map(|wc| wc.wr_id).collect();
    assert_eq!(done, [0, 1, 2, 3]);
    a.qp.post_send(&list[4..]).unwrap();
    assert_eq!(a.completions(2).len(), 2);

    let receives = [RecvWr::default(); 5];
    assert!(matches!(
        b.qp.post_recv(&receives),
        Err(Error::QueueFull {
            queue: "receive",
            posted: 4,
            ..
        })
    ));
}

#[test]
fn one_completion_frees_the_unsignaled_requests_before_it() {
    let (a, b, _) = End::pair(4, 16);
    for round in 0..10 {
        let quiet = SendWr {
            flags: SendFlags::default(),
            ..a.write_wr(0, 0, &b, 0, 8)
        };
        a.qp.post_send(&[quiet, quiet, quiet, a.write_wr(round, 0, &b, 0, 8)])
            .unwrap();
        assert_eq!(a.completions(1)[0].wr_id, round);
        assert_eq!(a.qp.send_outstanding(), 0);
    }
}

#[test]
fn messages_beyond_the_limit_are_not_posted() {
    let (a, b, _) = End::pair(4, 16);
    let long = SendWr {
        length: MAX_MESSAGE + 1,
        ..a.write_wr(2, 0, &b, 0, 8)
    };
    let error =
        a.qp.post_send(&[a.write_wr(1, 0, &b, 0, 8), long])
            .unwrap_err();
    assert!(
        matches!(error, Error::MessageTooLong { bytes, max: MAX_MESSAGE } if bytes == MAX_MESSAGE + 1)
    );
    assert_eq!(a.qp.send_outstanding(), 0, "nothing of the list was posted");
}

#[test]
fn an_overflowing_completion_queue_is_reported_after_what_it_holds() {
    let (a, b, _) = End::pair(16, 4);
    let list: Vec<SendWr> = (0..8).map(|i| a.write_wr(i, 0, &b, 0, 8)).collect();
    a.qp.post_send(&list).unwrap();
    for _ in 0..20 {
        a.context.device().relax().unwrap();
    }
    let done: Vec<u64> = a.cq.poll(16).unwrap().iter().map(|wc| wc.wr_id).collect();
    assert_eq!(done, [0, 1, 2, 3]);
    assert!(matches!(a.cq.poll(16), Err(Error::CqOverflow { .. })));
    assert_eq!(
        a.context.poll_events().unwrap(),
        [AsyncEvent::CqError { cqn: a.cq.number() }]
    );
}
