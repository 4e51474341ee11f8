//! Rules one by one, as conversations of packets.

use super::*;
use mprdma_spec::command::{QpState, MASK_MULTIPATH, MASK_SENDER, MASK_STATE};

pub(super) const HERE: u16 = 50_000;
pub(super) const US: u32 = 16; // ticks of 64 ns, about 1 us

/// The defaults with a first window of 8 packets, which keeps the conversations short.
pub(super) fn settings() -> SenderConfig {
    SenderConfig {
        initial_window: 8,
        ..SenderConfig::from_params().as_published()
    }
}

pub(super) fn work(packets: u32) -> SenderEvent {
    SenderEvent::Work {
        packets,
        sync: false,
    }
}

pub(super) struct Talk {
    pub(super) c: SenderContext,
    pub(super) env: Env,
}

impl Talk {
    /// A QP at `psn` that has work for `packets` packets and has sent its first window.
    pub(super) fn begun(psn: u32, packets: u32) -> Self {
        Self::with(settings(), psn, packets)
    }

    pub(super) fn with(config: SenderConfig, psn: u32, packets: u32) -> Self {
        let mut talk = Self {
            c: SenderContext::new(config, psn, 0),
            env: Env {
                rnd: 0x8000_ffff_4000_ffff,
                slots: 128,
                ..Env::default()
            },
        };
        talk.event(work(packets));
        while talk.c.burst_armed {
            talk.env.now += 1;
            talk.event(SenderEvent::Burst);
        }
        talk.env.now += 10 * US;
        talk
    }

    pub(super) fn event(&mut self, event: SenderEvent) -> SenderOutputs {
        let (c, out) = step(&self.c, &event, &self.env);
        self.c = c;
        out
    }

    pub(super) fn answer(
        &mut self,
        sack: u32,
        aack: u32,
        flags: u8,
        syndrome: u8,
    ) -> SenderOutputs {
        self.event(SenderEvent::Ack(Ack {
            sack: sack & psn_mask(),
            aack: aack & psn_mask(),
            flags,
            syndrome,
            vp: HERE,
            stamp: (self.env.now - 10 * US) as u16,
            map: 0,
        }))
    }

    pub(super) fn ack(&mut self, sack: u32, aack: u32) -> SenderOutputs {
        self.answer(sack, aack, 0, 0)
    }
}

fn psn_mask() -> u32 {
    crate::psn::MASK
}

pub(super) fn psns(out: &SenderOutputs) -> Vec<u32> {
    out.grants.iter().flatten().map(|g| g.psn).collect()
}

pub(super) fn paths(out: &SenderOutputs) -> Vec<u16> {
    out.grants.iter().flatten().map(|g| g.vp).collect()
}

#[test]
fn section_4_start_sends_the_first_window_on_random_paths_two_per_tick() {
    let mut talk = Talk {
        c: SenderContext::new(settings(), 0xff_fffe, 0),
        env: Env {
            rnd: 0x8000_0000_4000_0000,
            ..Env::default()
        },
    };
    let out = talk.event(work(100));
    assert_eq!(psns(&out), [0xff_fffe, 0xff_ffff]);
    // 64 paths from 49152: a quarter and a half of them.
    assert_eq!(paths(&out), [49_152 + 16, 49_152 + 32]);
    assert_eq!(out.arm_burst, Some(1));
    assert_eq!(out.arm_rto, Some(8));
    assert_eq!(psns(&talk.event(SenderEvent::Burst)), [0, 1]);
    assert_eq!(psns(&talk.event(SenderEvent::Burst)), [2, 3]);
    let out = talk.event(SenderEvent::Burst);
    assert_eq!(psns(&out), [4, 5]);
    // Eight are out; the window is full.
    assert_eq!(out.arm_burst, None);
    assert_eq!(talk.event(SenderEvent::Burst).grants, [None; 2]);
    assert_eq!(out.counts.probes, 0);
}

#[test]
fn section_4_rule_1_counts_sacks_until_aack_covers_them() {
    let mut talk = Talk::begun(0xff_fffc, 100);
    assert_eq!(talk.c.flight(), 8);
    talk.ack(0xff_fffe, 0xff_fffc);
    talk.ack(0xff_ffff, 0xff_fffc);
    assert_eq!((talk.c.inflate, talk.c.snd_una), (2, 0xff_fffc));
    let out = talk.ack(0xff_fffc, 0xff_fffd);
    assert_eq!(
        out.progress,
        Some(Progress {
            una: 0xff_fffd,
            status: 0
        })
    );
    assert_eq!((talk.c.inflate, talk.c.snd_una), (2, 0xff_fffd));
    // Ghosts add nothing.
    let out = talk.ack(0xff_fffc, 0xff_fffd);
    assert!(out.counts.ghost && out.progress.is_none());
    assert_eq!(talk.c.inflate, 2);
    // An AACK from the past does not move back.
    talk.ack(0, 0xff_fffc);
    assert_eq!((talk.c.inflate, talk.c.snd_una), (3, 0xff_fffd));
}

#[test]
fn section_4_rule_1_acks_for_what_was_never_sent_change_nothing() {
    let mut talk = Talk::begun(7, 100);
    let before = talk.c;
    for (sack, aack, syndrome) in [
        (15, 7, 0),
        (7, 16, 0),
        (7, 7, 0x64),
        (7, 7, 0x40),
        (7, 7, 0x80),
    ] {
        let out = talk.answer(sack, aack, 0, syndrome);
        assert!(out.counts.bad_ack);
        assert_eq!(
            SenderOutputs {
                counts: Counts::default(),
                ..out
            },
            SenderOutputs::default()
        );
        assert_eq!(talk.c, before);
    }
    assert!(!talk.ack(14, 15).counts.bad_ack);
}

#[test]
fn section_4_rule_2_forgets_inflate_when_no_hole_is_left() {
    let mut talk = Talk::begun(0, 100);
    for psn in [1, 2, 3] {
        talk.ack(psn, 0);
    }
    assert_eq!((talk.c.snd_ooh, talk.c.inflate), (3, 3));
    talk.ack(1, 0); // doubled
    assert_eq!((talk.c.snd_ooh, talk.c.inflate), (3, 4));
    talk.ack(0, 4);
    assert_eq!((talk.c.snd_una, talk.c.inflate), (4, 0));
}

#[test]
fn section_4_rule_3_adds_a_packet_per_window_and_takes_half_a_packet_per_mark() {
    let mut talk = Talk::begun(0, 10_000);
    assert_eq!(talk.c.cwnd, 16);
    for psn in 0..8 {
        talk.ack(psn, psn + 1);
    }
    assert_eq!(talk.c.cwnd, 17, "8 ACKs are worth 15/16 of a packet");
    talk.ack(8, 9);
    assert_eq!(talk.c.cwnd, 18);
    let out = talk.answer(9, 10, ACK_ECN, 0);
    assert!(out.counts.ecn_echo);
    assert_eq!(talk.c.cwnd, 17);
    // No growth while the card itself holds the QP back.
    talk.env.backlog = true;
    let before = (talk.c.cwnd, talk.c.growth);
    for psn in 10..30 {
        talk.ack(psn, psn + 1);
    }
    assert_eq!((talk.c.cwnd, talk.c.growth), before);
    // Never under one packet.
    for psn in 30..60 {
        talk.answer(psn, psn + 1, ACK_ECN, 0);
    }
    assert_eq!(talk.c.cwnd, 2);
}

#[test]
fn section_4_rule_3_stops_at_cwnd_max() {
    let config = SenderConfig {
        cwnd_max: 9,
        ..settings()
    };
    let mut talk = Talk::with(config, 0, 100_000);
    for psn in 0..1000 {
        talk.ack(psn, psn + 1);
        assert!(talk.c.cwnd <= 18 && talk.c.growth < 18);
    }
    assert_eq!(talk.c.cwnd, 18);
}

#[test]
fn section_4_rule_4_prunes_slow_paths() {
    let config = SenderConfig {
        delta: 4,
        ..settings()
    };
    let mut talk = Talk::with(config, 0, 100);
    talk.ack(5, 0);
    let cwnd = talk.c.cwnd;
    // Exactly delta behind is not slow.
    assert!(!talk.ack(1, 0).counts.prune);
    let cwnd_now = talk.c.cwnd;
    assert!(cwnd_now >= cwnd);
    // A retransmission is never slow.
    assert!(!talk.answer(0, 2, ACK_RETX, 0).counts.prune);
    let mut talk = Talk::with(config, 0, 100);
    talk.ack(5, 0);
    let (cwnd, nxt) = (talk.c.cwnd, talk.c.snd_nxt);
    let out = talk.ack(0, 1);
    assert!(out.counts.prune);
    assert_eq!((talk.c.cwnd, talk.c.snd_nxt), (cwnd - 2, nxt));
    assert_eq!(out.grants, [None; 2]);
}

#[test]
fn section_4_rule_4_a_pruned_last_ack_leaves_the_burst_timer_running() {
    let config = SenderConfig {
        delta: 4,
        ..settings()
    };
    let mut talk = Talk::with(config, 0, 100);
    for psn in 1..8 {
        talk.answer(psn, 0, ACK_ECN, 0);
    }
    let nxt = talk.c.snd_nxt;
    for psn in 8..nxt {
        talk.answer(psn, 0, ACK_ECN, 0);
    }
    let out = talk.ack(0, talk.c.snd_nxt);
    assert!(out.counts.prune);
    assert_eq!(talk.c.flight(), 0);
    assert_eq!(out.arm_burst, Some(16));
    assert!(!psns(&talk.event(SenderEvent::Burst)).is_empty());
}

#[test]
fn section_4_rule_5_sends_two_on_the_path_of_the_ack() {
    let mut talk = Talk::begun(0, 100);
    let out = talk.ack(0, 1);
    assert_eq!(psns(&out), [8]);
    assert_eq!(paths(&out), [HERE]);
    let out = talk.ack(4, 5);
    assert_eq!(psns(&out), [9, 10]);
    // Window 8 (and a bit), 6 in flight after the send: the rest is paced.
    assert_eq!(out.arm_burst, Some(16));
    let out = talk.event(SenderEvent::Burst);
    assert_eq!(psns(&out), [11, 12]);
    assert_eq!(paths(&out), [HERE, HERE]);
}

#[test]
fn section_4_rule_5_probes_with_its_probability() {
    let mut talk = Talk::begun(0, 100);
    // Packet 0 of the event: chance 654 of 655, path 3/4 of 64; packet 1: chance 655, no probe.
    talk.env.rnd = 0x1234_028f_c000_028e;
    let out = talk.ack(1, 2);
    assert_eq!(paths(&out), [49_152 + 48, HERE]);
    assert_eq!(out.counts.probes, 1);
    // A single-path QP has nowhere to probe.
    let config = SenderConfig {
        vp_count: 1,
        ..settings()
    };
    let mut talk = Talk::with(config, 0, 100);
    talk.env.rnd = 0;
    let out = talk.ack(1, 2);
    assert_eq!((paths(&out), out.counts.probes), (vec![HERE, HERE], 0));
}

#[test]
fn section_4_rule_6_shrinks_a_window_without_work() {
    let mut talk = Talk::begun(0, 3);
    talk.env.backlog = true; // no growth beside it
    assert_eq!(talk.c.flight(), 3);
    talk.ack(0, 1);
    assert_eq!(talk.c.cwnd, 14);
    talk.ack(1, 2);
    talk.ack(2, 3);
    assert_eq!(talk.c.cwnd, 10);
}

#[test]
fn section_4_start_again_after_three_rtts_idle() {
    let mut talk = Talk::begun(0, 8);
    for psn in 0..8 {
        talk.ack(psn, psn + 1);
    }
    let cwnd = talk.c.cwnd;
    assert!(cwnd < 16 && talk.c.start == 0);
    talk.env.now += 30 * US;
    let out = talk.event(work(1));
    assert_eq!(
        (talk.c.cwnd, paths(&out)),
        (cwnd, vec![HERE]),
        "exactly three RTTs"
    );
    talk.env.now += 10 * US;
    talk.ack(8, 9);
    talk.env.now += 31 * US;
    let out = talk.event(work(1));
    assert_eq!(talk.c.cwnd, 16);
    assert_eq!(paths(&out), [49_152 + 16]);
}

#[test]
fn section_5_recovery_begins_with_a_nak_and_each_ack_clocks_one_retransmission() {
    for flag in [ACK_WINDOW_NAK, ACK_SYNC_NAK] {
        let mut talk = Talk::begun(0xff_fffe, 100);
        let out = talk.answer(4, 0xff_ffff, flag, 0);
        assert!(out.counts.recovery);
        assert_eq!(
            (out.counts.window_nak, out.counts.sync_nak),
            (flag == ACK_WINDOW_NAK, flag == ACK_SYNC_NAK)
        );
        let g = out.grants[0].unwrap();
        assert_eq!((g.psn, g.vp, g.retx), (0xff_ffff, HERE, true));
        assert_eq!(talk.c.recovery, 6);
        // A NAK in recovery changes nothing but clocks the next one.
        let out = talk.answer(5, 0xff_ffff, flag, 0);
        assert!(!out.counts.recovery);
        assert_eq!(psns(&out), [0]);
        // Retransmission goes on from snd_una when that overtakes it.
        let out = talk.ack(0, 3);
        assert_eq!((psns(&out), out.grants[0].unwrap().retx), (vec![3], true));
        assert_eq!(psns(&talk.ack(1, 3)), [4]);
        assert_eq!(psns(&talk.ack(2, 3)), [5]);
        assert_eq!(psns(&talk.ack(3, 4)), [], "all resent");
        // Done when snd_una reaches recovery: new packets again.
        let out = talk.ack(4, 6);
        assert!(!talk.c.recovering);
        assert_eq!(
            (psns(&out), out.grants[0].unwrap().retx),
            (vec![6, 7], false)
        );
    }
}

#[test]
fn section_5_rto_halves_the_window_and_resends_on_random_paths() {
    let mut talk = Talk::begun(0, 100);
    let sent = talk.c.progress_at;
    talk.env.now = sent + 8 * 64 - 1;
    let out = talk.event(SenderEvent::Timeout);
    assert_eq!((out.arm_rto, out.counts.timeout), (Some(1), false));
    talk.env.now += 1;
    let out = talk.event(SenderEvent::Timeout);
    assert!(out.counts.timeout && out.counts.recovery);
    assert_eq!(psns(&out), [0, 1]);
    assert_eq!(paths(&out), [49_152 + 16, 49_152 + 32]);
    assert_eq!((talk.c.cwnd, talk.c.retries, talk.c.backoff), (8, 1, 1));
    let out = talk.event(SenderEvent::Burst);
    assert_eq!(psns(&out), [2, 3]);
    // A window of four: no more without ACKs.
    assert_eq!(out.arm_burst, None);
    // Backoff: the next one after twice the time.
    talk.env.now += 16 * 64 - 1;
    assert!(!talk.event(SenderEvent::Timeout).counts.timeout);
    talk.env.now += 1;
    assert!(talk.event(SenderEvent::Timeout).counts.timeout);
    // Progress ends the row.
    talk.ack(0, 1);
    assert_eq!((talk.c.retries, talk.c.backoff), (0, 0));
}

#[test]
fn section_5_rto_allows_for_what_waits_on_the_card() {
    let mut talk = Talk::begun(0, 100);
    talk.env.now = talk.c.progress_at + 8 * 64;
    talk.env.waiting_slow = 5;
    let out = talk.event(SenderEvent::Timeout);
    assert_eq!((out.arm_rto, out.counts.timeout), (Some(5), false));
    talk.env.now += 5 * 64 - 1;
    assert!(!talk.event(SenderEvent::Timeout).counts.timeout);
    talk.env.now += 1;
    assert!(talk.event(SenderEvent::Timeout).counts.timeout);
}

#[test]
fn section_5_rto_follows_the_measured_rtt() {
    let mut talk = Talk::begun(0, 1000);
    for psn in 0..200 {
        talk.env.now += US;
        // A steady 100 us.
        let stamp = talk.env.now.wrapping_sub(100 * US) as u16;
        talk.event(SenderEvent::Ack(Ack {
            sack: psn,
            aack: psn + 1,
            vp: HERE,
            stamp,
            ..Ack::default()
        }));
    }
    assert_eq!(talk.c.srtt >> 3, 100 * US);
    assert!(talk.c.rttvar <= 3);
    talk.env.now = talk.c.progress_at;
    // 1600 ticks and a small deviation are 25 slow units, rounded up.
    talk.event(SenderEvent::Timeout);
    assert!(talk.c.rto_armed);
    talk.env.now += 25 * 64 - 1;
    assert!(!talk.event(SenderEvent::Timeout).counts.timeout);
    talk.env.now += 65;
    assert!(talk.event(SenderEvent::Timeout).counts.timeout);
}

#[test]
fn section_5_retry_cnt_timeouts_then_error() {
    let config = SenderConfig {
        retry_cnt: 2,
        ..settings()
    };
    let mut talk = Talk::with(config, 5, 100);
    for _ in 0..2 {
        talk.env.now += 100_000;
        assert!(talk.event(SenderEvent::Timeout).counts.timeout);
    }
    talk.env.now += 100_000;
    let out = talk.event(SenderEvent::Timeout);
    assert_eq!(
        out.progress,
        Some(Progress {
            una: 5,
            status: WcStatus::RetryExceeded as u8
        })
    );
    assert_eq!((out.grants, out.arm_rto), ([None; 2], None));
    assert_eq!(talk.c.state, QpState::Error as u8);
    // Nothing moves it any more.
    let before = talk.c;
    assert_eq!(talk.ack(5, 6), SenderOutputs::default());
    assert_eq!(talk.event(work(5)), SenderOutputs::default());
    assert_eq!(talk.event(SenderEvent::Error(19)), SenderOutputs::default());
    assert_eq!(talk.c, before);
}

#[test]
fn section_3_rule_1_error_naks_end_the_qp_with_their_status() {
    for (syndrome, status) in [
        (0x61, WcStatus::RemoteInvalidRequest),
        (0x62, WcStatus::RemoteAccessError),
        (0x63, WcStatus::RemoteOperationError),
    ] {
        let mut talk = Talk::begun(0, 100);
        let out = talk.answer(5, 2, 0, syndrome);
        assert_eq!(
            out.progress,
            Some(Progress {
                una: 2,
                status: status as u8
            })
        );
        assert_eq!(talk.c.state, QpState::Error as u8);
        // For a packet that has arrived it is stale.
        let mut talk = Talk::begun(0, 100);
        talk.ack(0, 2);
        assert_eq!(talk.answer(1, 2, 0, syndrome).progress, None);
        assert_eq!(talk.c.state, QpState::Rts as u8);
    }
}

#[test]
fn section_3_receive_wqe_rnr_naks_are_waited_out_and_counted_apart() {
    let config = SenderConfig {
        rnr_retry: 1,
        ..settings()
    };
    let mut talk = Talk::with(config, 0, 100);
    // Code 12 is 0.64 ms: 160 slow units.
    let out = talk.answer(3, 1, 0, 0x20 | 12);
    assert_eq!(out.grants, [None; 2]);
    assert!(talk.c.rnr_wait);
    // More of the same round do not count; ACKs clock nothing out.
    talk.answer(4, 1, 0, 0x20 | 12);
    assert_eq!(talk.c.rnr_retries, 1);
    assert_eq!(talk.ack(1, 2).grants, [None; 2]);
    let from = talk.c.progress_at;
    talk.env.now = from + 160 * 64 - 1;
    assert_eq!(talk.event(SenderEvent::Timeout).grants, [None; 2]);
    talk.env.now = from + 160 * 64;
    let cwnd = talk.c.cwnd;
    let out = talk.event(SenderEvent::Timeout);
    assert_eq!(psns(&out), [2, 3]);
    assert!(out.grants[0].unwrap().retx && !out.counts.timeout);
    assert_eq!((talk.c.cwnd, talk.c.retries), (cwnd, 0));
    // The progress in between started a new row; this row's second NAK is one too many.
    talk.answer(3, 2, 0, 0x20 | 1);
    assert!(talk.c.rnr_wait);
    talk.env.now += 3 * 64;
    talk.event(SenderEvent::Timeout);
    let out = talk.answer(3, 2, 0, 0x20 | 1);
    assert_eq!(
        out.progress.unwrap().status,
        WcStatus::RnrRetryExceeded as u8
    );
}

#[test]
fn section_4_rule_7_a_full_grant_queue_postpones_to_the_burst_timer() {
    let mut talk = Talk::begun(0, 100);
    talk.env.full = true;
    let out = talk.ack(0, 1);
    assert_eq!((out.grants, out.arm_burst), ([None; 2], Some(16)));
    talk.env.full = false;
    assert_eq!(psns(&talk.event(SenderEvent::Burst)), [8]);
    // In recovery too.
    talk.env.full = true;
    let out = talk.answer(5, 1, ACK_WINDOW_NAK, 0);
    assert_eq!((out.grants, out.arm_burst), ([None; 2], Some(16)));
    talk.env.full = false;
    let out = talk.event(SenderEvent::Burst);
    assert_eq!((psns(&out), out.grants[0].unwrap().retx), (vec![1], true));
}

#[test]
fn section_4_rule_7_in_a_crowd_new_packets_wait_for_their_turn() {
    let mut talk = Talk::begun(0, 100);
    talk.env.crowded = true;
    let out = talk.ack(0, 1);
    assert_eq!((out.grants, out.arm_burst), ([None; 2], Some(16)));
    // Retransmissions do not wait.
    let out = talk.answer(5, 1, ACK_WINDOW_NAK, 0);
    assert_eq!((psns(&out), out.grants[0].unwrap().retx), (vec![1], true));
    let mut talk = Talk {
        c: SenderContext::new(settings(), 0, 0),
        env: talk.env,
    };
    let out = talk.event(work(100));
    assert_eq!((out.grants, out.arm_burst), ([None; 2], Some(16)));
    talk.env.crowded = false;
    assert_eq!(psns(&talk.event(SenderEvent::Burst)), [0, 1]);
}

#[test]
fn commands_create_modify_and_destroy() {
    let image = SenderImage {
        mask: 0,
        state: QpState::Init as u8,
        sq_psn: 42,
        config: settings(),
    };
    let mut talk = Talk {
        c: SenderContext::default(),
        env: Env::default(),
    };
    assert_eq!(
        talk.event(SenderEvent::Create(image)),
        SenderOutputs::default()
    );
    assert_eq!(talk.c.status()[0], QpState::Init as u8);
    assert_eq!(talk.event(work(1)), SenderOutputs::default());
    let rts = SenderImage {
        mask: (MASK_STATE | MASK_SENDER) as u8,
        state: QpState::Rts as u8,
        sq_psn: 0xff_ffff,
        config: SenderConfig {
            rto_floor: 77,
            delta: 1,
            ..image.config
        },
    };
    talk.event(SenderEvent::Modify(rts));
    assert_eq!(
        (talk.c.snd_nxt, talk.c.config.rto_floor, talk.c.config.delta),
        (0xff_ffff, 77, 32)
    );
    let out = talk.event(work(1));
    assert_eq!((psns(&out), out.arm_rto), (vec![0xff_ffff], Some(77)));
    let out = talk.event(SenderEvent::Modify(SenderImage {
        mask: MASK_MULTIPATH as u8,
        ..rts
    }));
    assert_eq!((out, talk.c.config.delta), (SenderOutputs::default(), 1));
    let error = SenderImage {
        mask: MASK_STATE as u8,
        state: QpState::Error as u8,
        ..rts
    };
    let out = talk.event(SenderEvent::Modify(error));
    assert_eq!(
        out.progress.unwrap().status,
        WcStatus::WorkRequestFlushed as u8
    );
    let out = talk.event(SenderEvent::Destroy);
    assert!(out.grants[0].unwrap().marker);
    // The wheel still holds the QP: its flag stays until it fires.
    assert_eq!(
        talk.c,
        SenderContext {
            rto_armed: true,
            ..SenderContext::default()
        }
    );
    talk.event(SenderEvent::Timeout);
    assert_eq!(talk.c, SenderContext::default());
}

#[test]
fn image_and_status_round_trip() {
    let image = SenderImage {
        mask: 0x1f,
        state: 3,
        sq_psn: 0xab_cdef,
        config: settings(),
    };
    let mut bytes = [0; 128];
    image.write(&mut bytes);
    assert_eq!(SenderImage::read(&bytes), image);
}
