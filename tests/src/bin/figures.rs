//! `make figures`: measures the transport and prints the tables.

use anyhow::Result;
use mprdma_tests::figures::loss::{on_model, Case, LOSSES};
use mprdma_tests::figures::setting::{Rules, A, B, C};
use mprdma_sim::time::US;

fn main() -> Result<()> {
    let arg = |i: usize| std::env::args().nth(i);
    let seeds: u64 = arg(1).map_or(Ok(3), |s| s.parse())?;
    let only = arg(2).unwrap_or("SPE".into());
    for setting in [A, B, C] {
        let mut free = [0.0; 3];
        for loss in LOSSES {
            print!("{} {loss:<5}", setting.name);
            for (i, rules) in [Rules::SinglePath, Rules::Published, Rules::Extended].into_iter().enumerate() {
                if !only.contains(&"SPE"[i..=i]) { continue; }
                let mut v = vec![];
                let mut t = [0u64; 10];
                for seed in 1..=seeds {
                    let m = on_model(&Case { setting, rules, loss, both: false }, std::env::var("T").map_or(20_000, |t| t.parse().unwrap()) * US, seed)?;
                    v.push(m.gbps);
                    let f = &m.flow;
                    for (t, x) in t.iter_mut().zip([f.retransmissions[0], f.retransmissions[1], f.retransmissions[2], f.recoveries, f.timeouts.len() as u64, f.prunes, f.out_of_window, f.duplicates, f.ecn_echoes, f.cwnd as u64]) { *t += x; }
                }
                let mean = v.iter().sum::<f64>() / v.len() as f64;
                let min = v.iter().cloned().fold(1e9, f64::min);
                if loss == 0.0 { free[i] = mean; }
                let t: Vec<u64> = t.iter().map(|t| t / seeds).collect();
                print!(" | {mean:5.2} min {min:5.2} {:5.1}% retx {:?} rec {} rto {} prune {} oow {} dup {} ecn {} cw {}", 100.0 * mean / free[i], &t[..3], t[3], t[4], t[5], t[6], t[7], t[8], t[9]);
            }
            println!();
        }
    }
    Ok(())
}
