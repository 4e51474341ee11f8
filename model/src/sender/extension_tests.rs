//! Rule 7, the two extensions and synchronised messages, as conversations.

use super::tests::{paths, psns, settings, work, Talk, HERE, US};
use super::*;

/// Everything on, and a first window of 60 packets.
fn extended() -> SenderConfig {
    SenderConfig {
        initial_window: 60,
        hole_repair: true,
        vp_recycle: true,
        ..settings()
    }
}

fn mapped(talk: &mut Talk, sack: u32, aack: u32, map: u128) -> SenderOutputs {
    on_path(talk, sack, aack, map, ACK_MAP, HERE)
}

fn on_path(talk: &mut Talk, sack: u32, aack: u32, map: u128, flags: u8, vp: u16) -> SenderOutputs {
    let stamp = (talk.env.now - 10 * US) as u16;
    talk.event(SenderEvent::Ack(Ack {
        sack,
        aack,
        flags,
        syndrome: 0,
        vp,
        stamp,
        map,
    }))
}

/// SACKs `psns` without a map.
fn sacked(talk: &mut Talk, psns: impl Iterator<Item = u32>, aack: u32) {
    for psn in psns {
        on_path(talk, psn, aack, 0, 0, HERE);
    }
}

fn retransmissions(out: &SenderOutputs) -> Vec<u32> {
    let resent = out.grants.iter().flatten().filter(|grant| grant.retx);
    resent.map(|grant| grant.psn).collect()
}

#[test]
fn section_4_rule_7_the_rest_is_paced_two_at_a_time() {
    let mut talk = Talk::begun(0, 1000);
    // An ACK of all eight opens the window for eight and more.
    let out = talk.ack(7, 8);
    assert_eq!(psns(&out), [8, 9]);
    assert_eq!(out.arm_burst, Some(settings().burst_interval));
    let mut sent = 2;
    while talk.c.burst_armed {
        let out = talk.event(SenderEvent::Burst);
        assert!(psns(&out).len() <= 2);
        sent += psns(&out).len();
    }
    assert_eq!(sent, 8, "what the window allows and no more");
}

#[test]
fn section_4_rtt_is_a_moving_average_of_the_echoes() {
    let mut talk = Talk::begun(0, 1000);
    talk.ack(0, 1);
    assert_eq!(talk.c.srtt, (10 * US) << 3, "the first sample as it is");
    assert_eq!(talk.c.rttvar, (10 * US) << 1, "half of it as deviation");
    talk.env.now += 8 * US;
    let stamp = (talk.env.now - 18 * US) as u16;
    talk.event(SenderEvent::Ack(Ack {
        sack: 1,
        aack: 2,
        stamp,
        vp: HERE,
        ..Ack::default()
    }));
    assert_eq!(talk.c.srtt, (11 * US) << 3, "an eighth of the difference");
    assert_eq!(talk.c.rttvar, 20 * US - 5 * US + 8 * US);
}

#[test]
fn section_5_hole_repair_begins_more_than_delta_behind() {
    let delta = u32::from(extended().delta);
    let mut talk = Talk::with(extended(), 0, 1000);
    // PSNs 0 and 2 are lost. The map tells, but nothing is delta behind yet.
    sacked(&mut talk, (1..=delta).filter(|&n| n != 2), 0);
    let map = |top: u32| ((1 << (top + 1)) - 1) & !0b101_u128;
    let out = mapped(&mut talk, delta, 0, map(delta));
    assert_eq!(retransmissions(&out), []);
    // One more: PSN 0 is lost, PSN 2 is not yet.
    let out = mapped(&mut talk, delta + 1, 0, map(delta + 1));
    assert_eq!(retransmissions(&out), [0]);
    assert_eq!(out.cause, Cause::Hole);
    assert!(!talk.c.recovering, "the window goes on");
    // Once per pass.
    let out = mapped(&mut talk, delta + 2, 0, map(delta + 2));
    assert_eq!(retransmissions(&out), []);
    let out = mapped(&mut talk, delta + 3, 0, map(delta + 3));
    assert_eq!(retransmissions(&out), [2]);
}

#[test]
fn section_5_hole_repair_resends_two_per_ack_and_again_after_a_pass() {
    let delta = u32::from(extended().delta);
    let mut talk = Talk::with(extended(), 0, 1000);
    sacked(&mut talk, 3..delta + 8, 0);
    let map = ((1_u128 << (delta + 8)) - 1) & !0b111;
    assert_eq!(
        retransmissions(&mapped(&mut talk, delta + 7, 0, map)),
        [0, 1]
    );
    assert_eq!(retransmissions(&mapped(&mut talk, delta + 7, 0, map)), [2]);
    assert_eq!(retransmissions(&mapped(&mut talk, delta + 7, 0, map)), []);
    // 1.5 RTTs later they are lost again.
    talk.env.now += talk.c.srtt * 3 / 16;
    assert_eq!(
        retransmissions(&mapped(&mut talk, delta + 7, 0, map)),
        [0, 1]
    );
}

#[test]
fn section_5_hole_repair_takes_no_old_map() {
    let delta = u32::from(extended().delta);
    let mut talk = Talk::with(extended(), 0, 1000);
    sacked(&mut talk, 0..5, 5);
    sacked(&mut talk, 6..delta + 8, 5);
    let map = ((1_u128 << (delta + 8)) - 1) & !1;
    // An ACK from before snd_una moved: its map begins elsewhere.
    assert_eq!(retransmissions(&mapped(&mut talk, delta + 7, 4, map)), []);
    assert_eq!(retransmissions(&mapped(&mut talk, delta + 7, 5, map)), [5]);
}

#[test]
fn section_5_hole_repair_keeps_new_packets_inside_the_bitmap() {
    let mut config = extended();
    config.initial_window = 200;
    let talk = Talk::with(config, 0, 1000);
    assert_eq!(
        talk.c.flight(),
        200,
        "without a hole the window alone counts"
    );
    let mut config = extended();
    config.initial_window = 80;
    let mut talk = Talk::with(config, 0, 1000);
    sacked(&mut talk, 1..80, 0);
    while talk.c.burst_armed {
        talk.event(SenderEvent::Burst);
    }
    assert_eq!(talk.c.flight(), talk.env.slots - 1);
}

#[test]
fn section_5_hole_repair_in_recovery_skips_what_arrived() {
    let mut talk = Talk::with(extended(), 0, 1000);
    let window_nak = ACK_MAP | ACK_WINDOW_NAK;
    let out = on_path(&mut talk, 50, 0, 0b0110, window_nak, HERE);
    assert!(talk.c.recovering);
    assert_eq!(retransmissions(&out), [0, 3]);
    let out = mapped(&mut talk, 3, 0, 0b1110);
    assert_eq!(retransmissions(&out), [4, 5]);
}

/// Fills the ring with the paths `HERE` to `HERE + 15`.
fn ringed() -> Talk {
    let config = SenderConfig {
        initial_window: 40,
        cwnd_max: 40,
        vp_base: HERE,
        probe: 0,
        ..extended()
    };
    let mut talk = Talk::with(config, 0, 40);
    for psn in 0..16 {
        on_path(&mut talk, psn, psn + 1, 0, 0, HERE + psn as u16);
    }
    // Rule 6 took what there was no work for.
    talk.c.cwnd = 2 * config.cwnd_max;
    talk
}

#[test]
fn section_5_vp_recycle_takes_the_oldest_good_path() {
    let mut talk = ringed();
    assert_eq!(paths(&talk.event(work(2))), [HERE, HERE + 1]);
    assert_eq!(paths(&talk.event(work(2))), [HERE + 2, HERE + 3]);
    // An ACK clocks its packets out on its own path.
    talk.event(SenderEvent::Work {
        packets: 100,
        sync: false,
    });
    let out = on_path(&mut talk, 16, 17, 0, 0, HERE + 30);
    assert!(paths(&out).iter().all(|&path| path == HERE + 30));
}

#[test]
fn section_5_vp_recycle_keeps_neither_marked_nor_slow_paths() {
    let mut talk = ringed();
    let before = talk.c.ring;
    on_path(&mut talk, 16, 17, 0, ACK_ECN, HERE + 30);
    assert_eq!(talk.c.ring, before, "marked");
    talk.c.config.delta = 3;
    on_path(&mut talk, 30, 17, 0, 0, HERE + 31);
    assert_eq!(talk.c.ring[0], 31, "good");
    let before = talk.c.ring;
    let out = on_path(&mut talk, 20, 17, 0, 0, HERE + 32);
    assert!(out.counts.prune);
    assert_eq!(talk.c.ring, before, "slow");
}

#[test]
fn section_5_vp_recycle_is_random_until_the_ring_is_full() {
    let config = SenderConfig {
        vp_base: HERE,
        ..extended()
    };
    let mut talk = Talk::with(config, 0, 15);
    for psn in 0..15 {
        on_path(&mut talk, psn, psn + 1, 0, 0, HERE + 63);
    }
    talk.env.rnd = 0x8000_ffff_4000_ffff;
    assert_eq!(paths(&talk.event(work(2))), [HERE + 16, HERE + 32]);
}

/// Packets that two paths still send when each brings 20 marked ACKs, in turn, to a window of 40.
fn left_to_two_marked_paths(vp_recycle: bool) -> [usize; 2] {
    let config = SenderConfig {
        initial_window: 40,
        probe: 0,
        vp_recycle,
        ..extended()
    };
    let mut talk = Talk::with(config, 0, 1000);
    let mut sent = [0; 2];
    for psn in 0..40 {
        let path = psn & 1;
        let vp = HERE + path as u16;
        let out = on_path(&mut talk, psn, psn + 1, 0, ACK_ECN, vp);
        assert!(paths(&out).iter().all(|&sent_by| sent_by == vp));
        sent[path as usize] += psns(&out).len();
    }
    assert_eq!(talk.c.cwnd, 40, "half a packet per mark");
    sent
}

#[test]
fn section_5_vp_recycle_rounds_the_window_to_even() {
    assert_eq!(left_to_two_marked_paths(true), [10, 10]);
    // As published, one path pays for both and has no clock left.
    assert_eq!(left_to_two_marked_paths(false), [0, 20]);
}

fn synchronised(packets: u32) -> SenderEvent {
    SenderEvent::Work {
        packets,
        sync: true,
    }
}

#[test]
fn section_6_sync_waits_alpha_delta_rtt_over_cwnd() {
    let mut talk = Talk::with(extended(), 0, 20);
    on_path(&mut talk, 0, 1, 0, 0, HERE);
    let config = talk.c.config;
    // alpha in sixteenths, srtt in eighths, cwnd in half packets.
    let need = u32::from(config.alpha) * u32::from(config.delta) * (talk.c.srtt >> 3);
    let delay = need.div_ceil(u32::from(talk.c.cwnd) * 8);
    let sent_at = u32::from(talk.c.last_new_at);
    talk.env.now = sent_at + delay - 1;
    let out = talk.event(synchronised(1));
    assert_eq!(psns(&out), [], "too early");
    assert!(out.arm_burst.is_some() && !out.sync_passed);
    talk.env.now = sent_at + delay;
    let out = talk.event(SenderEvent::Burst);
    assert_eq!(psns(&out), [20]);
    assert!(out.sync_passed);
}

#[test]
fn section_6_sync_leaves_at_once_when_nothing_is_in_flight() {
    let mut talk = Talk::with(extended(), 0, 8);
    talk.ack(7, 8);
    let out = talk.event(synchronised(1));
    assert_eq!(psns(&out), [8]);
    assert!(out.sync_passed);
}

#[test]
fn section_6_sync_no_event_crosses_the_boundary() {
    let mut talk = Talk::with(extended(), 0, 8);
    talk.event(SenderEvent::Work {
        packets: 0,
        sync: false,
    });
    talk.c.burst_armed = true; // keeps what follows waiting
    talk.event(work(1));
    talk.event(synchronised(5));
    let out = talk.event(SenderEvent::Burst);
    assert_eq!(psns(&out), [8], "the packet before the boundary, alone");
    assert!(out.arm_burst.is_some() && !out.sync_passed);
}
