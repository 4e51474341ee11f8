use super::packet::tests::{udp, udp6};
use super::*;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

fn scenario(extra: &str) -> Scenario {
    let text = format!(
        "name = \"t\"\n[network]\nkind = \"leaf-spine\"\ncards = 4\nleaves = 2\nspines = 4\n\
         spine_rate_gbps = 25.0\ndelay_ns = 750\necn_packets = 5\n{extra}"
    );
    Scenario::parse(&text, Path::new("t.toml")).unwrap()
}

/// A network in which all four cards have been heard.
fn network(extra: &str) -> Fabric {
    let mut fabric = Fabric::new(&scenario(extra), 1);
    for card in 0..4 {
        fabric.learn(card, &udp(card as u8 + 1, 9, 1, 60));
    }
    fabric
}

#[test]
fn a_frame_takes_one_transmission_time_and_one_delay_per_hop() {
    let mut fabric = network("");
    fabric.send(0, 0, 1000, udp(1, 2, 5, 1000));
    let all = fabric.run_until(Ps::MAX);
    let (up, down) = (1012 * 320, 1012 * 320);
    assert_eq!(all.len(), 1);
    assert_eq!(
        (all[0].card, all[0].arrival.first_bit),
        (1, 1000 + up + down + 4 * 750_000)
    );
}

#[test]
fn cards_of_one_leaf_do_not_use_a_spine() {
    let mut fabric = network("");
    fabric.send(0, 0, 1000, udp(1, 3, 5, 1000));
    assert_eq!(fabric.run_until(Ps::MAX)[0].card, 2);
    assert!(fabric.stats().paths.iter().all(|p| p.packets == 0));
}

#[test]
fn one_flow_is_held_to_one_path_and_many_share_all() {
    for build in [udp, udp6] {
        let mut fabric = network("");
        (0..100u64).for_each(|n| fabric.send(0, n * 400_000, n * 400_000, build(1, 2, 5, 1000)));
        fabric.run_until(Ps::MAX);
        let used: Vec<u64> = fabric
            .stats()
            .paths
            .iter()
            .map(|p| p.packets)
            .filter(|&n| n > 0)
            .collect();
        assert_eq!(used, [100]);
        let mut fabric = network("");
        (0..4000u64)
            .for_each(|n| fabric.send(0, n * 400_000, n * 400_000, build(1, 2, n as u16, 1000)));
        fabric.run_until(Ps::MAX);
        assert!(fabric.stats().paths[..4]
            .iter()
            .all(|p| (0.22..0.28).contains(&p.share)));
    }
}

#[test]
fn an_overloaded_path_marks_and_a_slow_one_carries_less() {
    let mut fabric = network("[[link]]\nfrom = \"leaf*\"\nto = \"spine*\"\nrate_gbps = 6.25\n");
    (0..20u64).for_each(|n| fabric.send(0, n * 330_000, n * 330_000, udp(1, 2, 5, 1000)));
    let all = fabric.run_until(Ps::MAX);
    let marked = all.iter().filter(|d| d.arrival.frame[15] & 3 == 3).count() as u64;
    assert!(
        marked > 5 && marked == fabric.stats().marks,
        "{marked} marks"
    );
    assert_eq!(
        all[1].arrival.first_bit - all[0].arrival.first_bit,
        1024 * 1280
    );
}

#[test]
fn a_link_can_be_cut_and_repaired_while_running() {
    let mut fabric = network("");
    let rule = LinkRule {
        from: "leaf0".into(),
        to: "spine*".into(),
        ..LinkRule::default()
    };
    assert_eq!(fabric.change(&rule, Some(true)), 4);
    fabric.send(0, 0, 1000, udp(1, 2, 5, 1000));
    assert!(fabric.run_until(Ps::MAX).is_empty());
    fabric.change(&rule, Some(false));
    fabric.send(0, 10_000_000, 10_001_000, udp(1, 2, 5, 1000));
    assert_eq!(
        (fabric.run_until(Ps::MAX).len(), fabric.stats().drops),
        (1, 1)
    );
}

#[test]
fn the_result_does_not_depend_on_the_windows() {
    let faults = "[[link]]\nfrom = \"*\"\nto = \"*\"\nloss = 0.05\nduplicate = 0.05\nreorder = 0.2\nreorder_ns = 3000\n\
        [[event]]\nat_us = 7.123\nfrom = \"leaf*\"\nto = \"spine0\"\nboth = true\ndown = true\n\
        [[event]]\nat_us = 21.5\nfrom = \"leaf*\"\nto = \"spine0\"\nboth = true\ndown = false\n\
        [[event]]\nat_us = 12.00001\nfrom = \"card*\"\nto = \"leaf*\"\ndelay_ns = 700\nloss = 0.2\ncorrupt = 0.1\n\
        [[event]]\nat_us = 5\nfrom = \"spine*\"\nto = \"leaf1\"\nrate_gbps = 3.0\necn_packets = 2\n";
    let run = |window: Ps| {
        let mut fabric = network(faults);
        let (mut all, mut at) = (vec![], 0);
        for n in 0..400u64 {
            let start = n * 100_000;
            while at + window <= start {
                at += window;
                all.extend(fabric.run_until(at));
            }
            fabric.send(
                (n % 4) as usize,
                start,
                start + 80_000,
                udp((n % 4) as u8 + 1, ((n + 1) % 4) as u8 + 1, n as u16, 500),
            );
        }
        all.extend(fabric.run_until(Ps::MAX));
        all.sort_by_key(|d| (d.arrival.first_bit, d.card, d.arrival.frame.clone()));
        (all, fabric.stats())
    };
    let (one, two) = (run(100_000), run(700_000));
    assert!(one.0.len() > 200);
    assert!(one == two);
    let total = one.1.total;
    assert!([
        total.losses,
        total.down_drops,
        total.duplicated,
        total.corrupted,
        total.marks
    ]
    .iter()
    .all(|&n| n > 0));
}

#[test]
fn a_frame_to_an_unknown_address_reaches_every_other_card() {
    let mut fabric = network("");
    fabric.send(0, 0, 1000, udp(1, 77, 5, 100));
    let mut cards: Vec<usize> = fabric.run_until(Ps::MAX).iter().map(|d| d.card).collect();
    cards.sort_unstable();
    assert_eq!((cards, fabric.stats().flooded), (vec![1, 2, 3], 1));
}

#[test]
fn two_cards_on_one_wire_reach_each_other_at_once() {
    let text = "name = \"t\"\n[network]\nkind = \"direct\"\ncards = 2\ndelay_ns = 500\n";
    let mut fabric = Fabric::new(&Scenario::parse(text, Path::new("t.toml")).unwrap(), 1);
    fabric.send(1, 0, 80_000, udp(2, 1, 5, 988));
    let all = fabric.run_until(Ps::MAX);
    assert_eq!((all[0].card, all[0].arrival.first_bit), (0, 580_000));
}

#[test]
fn an_event_takes_effect_at_its_time() {
    let mut fabric = network(
        "[[event]]\nat_us = 30\nfrom = \"leaf0\"\nto = \"spine*\"\ndown = false\n\
         [[event]]\nat_us = 20\nfrom = \"leaf0\"\nto = \"spine*\"\ndown = true\n\
         [[event]]\nat_us = 40\nfrom = \"card0\"\nto = \"leaf0\"\nloss = 1.0\n\
         [[event]]\nat_us = 50\nfrom = \"card0\"\nto = \"leaf0\"\nloss = 0.0\ndelay_ns = 100\n",
    );
    assert_eq!(fabric.lookahead(), 100_000);
    // A frame is at the leaf 830 ns after its start, and on the wire to the spine for 324 ns more.
    let starts = [
        1_000, 18_800, 18_900, 29_100, 29_200, 39_999, 40_000, 49_999, 50_000,
    ];
    let arrived = starts.map(|ns| {
        let start = ns * 1000;
        fabric.send(0, start, start + 80_000, udp(1, 2, 5, 1000));
        fabric.run_until(Ps::MAX).len()
    });
    assert_eq!(arrived, [1, 1, 0, 0, 1, 1, 0, 0, 1]);
    let total = fabric.stats().total;
    assert_eq!((total.down_drops, total.losses), (2, 2));
}

#[test]
fn what_the_cards_sent_is_delivered_or_counted_as_dropped() {
    let mut fabric = network(
        "queue_packets = 4\n[[link]]\nfrom = \"*\"\nto = \"*\"\nloss = 0.05\nduplicate = 0.1\ncorrupt = 0.1\n\
         [[link]]\nfrom = \"leaf*\"\nto = \"spine*\"\nrate_gbps = 5.0\ndown_us = [[10, 30]]\ndrop_nth = [3]\n",
    );
    (0..3000u64).for_each(|n| {
        let to = if n % 50 == 0 { 77 } else { 2 };
        fabric.send(0, n * 80_000, (n + 1) * 80_000, udp(1, to, n as u16, 1000));
    });
    let delivered = fabric.run_until(Ps::MAX).len() as u64;
    let stats = fabric.stats();
    let kinds = [
        stats.total.tail_drops,
        stats.total.losses,
        stats.total.down_drops,
        stats.total.chosen_drops,
        stats.total.duplicated,
        stats.flood_copies,
    ];
    assert!(kinds.iter().all(|&n| n > 0), "{kinds:?}");
    assert_eq!(stats.delivered, delivered);
    assert_eq!(
        3000 + stats.total.duplicated + stats.flood_copies,
        delivered + stats.drops
    );
}

#[test]
fn events_can_be_added_while_the_network_runs() {
    let mut fabric = network("");
    let event = |at_us: f64, down: bool| Event {
        at_us,
        from: "leaf0".into(),
        to: "spine*".into(),
        down: Some(down),
        ..Event::default()
    };
    let events = [event(9.0, false), event(4.0, true)];
    assert_eq!(fabric.schedule(&events, 10_000_000), 8);
    let arrived = [10, 12, 14, 18, 19].map(|us| {
        fabric.send(
            0,
            us * 1_000_000,
            us * 1_000_000 + 80_000,
            udp(1, 2, 5, 1000),
        );
        fabric.run_until(Ps::MAX).len()
    });
    assert_eq!(arrived, [1, 1, 0, 0, 1]);
}

/// Loses the second frame on the way to a spine, and counts what is delivered.
struct Second {
    seen: u64,
    delivered: Arc<AtomicU64>,
}

impl Tap for Second {
    fn crossing(&mut self, crossing: &Crossing<'_>) -> bool {
        let up = matches!(
            (crossing.from, crossing.to),
            (Node::Leaf(0), Node::Spine(_))
        );
        self.seen += u64::from(up);
        up && self.seen == 2
    }

    fn delivered(&mut self, card: usize, frame: &[u8]) {
        assert_eq!((card, frame.len()), (1, 1000));
        self.delivered.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_tap_sees_and_drops() {
    let mut fabric = network("");
    let delivered = Arc::new(AtomicU64::new(0));
    fabric.set_tap(Box::new(Second {
        seen: 0,
        delivered: Arc::clone(&delivered),
    }));
    for n in 0..5 {
        fabric.send(0, n * 100_000, (n + 1) * 100_000, udp(1, 2, 5, 1000));
    }
    assert_eq!(fabric.run_until(Ps::MAX).len(), 4);
    assert_eq!(delivered.load(Ordering::Relaxed), 4);
    assert_eq!(
        (fabric.stats().total.chosen_drops, fabric.stats().drops),
        (1, 1)
    );
}
