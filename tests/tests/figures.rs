//! The measurements of `make figures`, short and on few seeds: the golden model for each, cards for what is quick there.

use anyhow::Result;
use mprdma_sim::time::US;
use mprdma_tests::figures::loss::Case;
use mprdma_tests::figures::run::{Engine, Tally};
use mprdma_tests::figures::setting::{round_trip, tuned, Rules, A, B, C, RTT};
use mprdma_tests::figures::{death, ecn, loss, order};

const SEEDS: u64 = 3;

#[test]
fn a_round_trip_takes_ten_microseconds() -> Result<()> {
    for setting in [A, B, C] {
        let found = round_trip(Engine::Model, &tuned(Engine::Model, &setting)?.0)?;
        println!("{}: {found:.2} us", setting.name);
        assert!((9.8..10.2).contains(&found), "{found} us");
    }
    Ok(())
}

#[test]
fn the_extensions_keep_the_goodput_when_a_path_loses_packets() -> Result<()> {
    for (setting, losses) in [
        (A, &[0.0, 0.01, 0.1][..]),
        (B, &[0.0, 0.005, 0.1]),
        (C, &[0.0, 0.01, 0.1]),
    ] {
        let rows = loss::rows(
            Engine::Model,
            (setting, loss::RTO_FLOOR),
            losses,
            10_000 * US,
            SEEDS,
            |row| {
                println!("{row}");
            },
        )?;
        for row in &rows[1..] {
            // Two hundredths under what is asked for: the runs are short.
            assert!(row.kept() >= row.wanted().0 - 0.02, "{row}");
            // The published rules have one seed only, and in A the window moves away from the loss.
            assert!(row.extended.gbps > 1.03 * row.published.gbps, "{row}");
            assert!(row.gain() > 1.8 && row.extended.share < 0.26, "{row}");
        }
        assert!(
            rows[2].single.gbps < 0.5 * rows[0].single.gbps,
            "{}",
            rows[2]
        );
    }
    Ok(())
}

/// Cards in RTL do what the model does, as far as one short run can show it.
#[test]
fn cards_repair_what_a_lossy_path_loses() -> Result<()> {
    let case = |rules| Case {
        setting: C,
        rules,
        loss: 0.01,
        both: false,
        rto_floor: loss::RTO_FLOOR,
    };
    let time = 800 * US;
    let extended = loss::measure(Engine::Rtl, &case(Rules::Extended), time, 1)?;
    let published = loss::measure(Engine::Rtl, &case(Rules::Published), time, 1)?;
    println!("extended {extended:?}\npublished {published:?}");
    assert!(extended.gbps > 28.0 && extended.gbps > 1.2 * published.gbps);
    assert!(extended.tally.resent[0] > 0 && extended.tally.out_of_window == 0);
    assert!(published.tally.resent[0] == 0 && published.tally.resent[1] > 0);
    Ok(())
}

/// Seeds 20 and 22 lost a second, living path when half packets were rounded down: 50 Gb/s.
#[test]
fn a_dead_path_is_left_and_taken_up_again() -> Result<()> {
    let wanted = 0.9 * death::three_paths(&B);
    for (both, seeds) in [(false, [1, 2, 3, 20, 22]), (true, [1, 2, 3, 7, 22])] {
        let mut deaths = Vec::new();
        for seed in seeds {
            let found = death::measure(Engine::Model, &B, both, seed)?;
            println!("{}", death::row(seed, &B, &found));
            assert!(
                found.least_live_share > 0.25,
                "a path that lives is left too"
            );
            assert!(found.from_deadline >= wanted);
            assert!(found.used_after.is_some_and(|t| t <= 200 * RTT));
            assert!(found.before > death::three_paths(&B));
            deaths.push(found);
        }
        println!("{}", death::summary(&B, &deaths));
        assert!(deaths.iter().all(|d| d.recovered(&B)));
        // Of the completions one seed alone is at the mercy of the hole that is open at the end.
        let completed: f64 = deaths.iter().map(|d| d.completed).sum();
        assert!(completed >= wanted * seeds.len() as f64);
    }
    Ok(())
}

#[test]
fn packets_arrive_less_than_delta_out_of_order_beside_other_traffic() -> Result<()> {
    for setting in [A, B, C] {
        for rules in [Rules::Published, Rules::Extended] {
            let mut all = Tally::default();
            for seed in 1..=SEEDS {
                let (gbps, tally) =
                    order::measure(Engine::Model, &setting, rules, 5_000 * US, seed)?;
                assert!(gbps > 0.3 * f64::from(setting.host_gbps), "{gbps}");
                all.add(&tally);
            }
            println!("{} {rules:?}: {:?}", setting.name, all.distance);
            assert!(order::near(&all) >= 0.999, "{:?}", all.distance);
            assert!(all.distance[1..].iter().sum::<u64>() > 500 && all.out_of_window == 0);
        }
    }
    Ok(())
}

/// K <= delta / n: above, pruning takes queues for slow paths. Goodput bears it (docs/measurements.md).
#[test]
fn a_high_ecn_threshold_makes_pruning_fight_the_queues() -> Result<()> {
    for paths in [4, 8] {
        let setting = ecn::setting(paths);
        for rules in [Rules::Published, Rules::Extended] {
            let at =
                |threshold| ecn::measure(Engine::Model, &setting, rules, threshold, 10_000 * US, 1);
            let (within, calm) = at(32 / paths)?;
            let (above, pruned) = at(32)?;
            println!(
                "{paths} paths, {rules:?}: {within:.1} Gb/s with {} prunes, {above:.1} Gb/s with {}",
                calm.prunes, pruned.prunes
            );
            assert!(pruned.prunes > 2 * calm.prunes);
            assert!(above > 0.9 * within, "{above} of {within}");
        }
    }
    Ok(())
}
