//! Equal-cost multi-path: which spine a leaf sends a packet to.

use super::packet::Flow;
use crate::scenario::Ecmp;

/// The spine, 0 to `spines` - 1, that a leaf with hash seed `seed` chooses for this flow.
pub fn spine(flow: &Flow, seed: u64, kind: Ecmp, spines: usize) -> usize {
    let word = |b: &[u8]| u64::from_le_bytes(b.try_into().expect("eight bytes"));
    let mut h = seed;
    for half in [
        &flow.source[..8],
        &flow.source[8..],
        &flow.destination[..8],
        &flow.destination[8..],
    ] {
        h = mix(h ^ word(half));
    }
    if kind == Ecmp::FiveTuple {
        let ports = u64::from(flow.ports.0) << 16 | u64::from(flow.ports.1);
        h = mix(h ^ ports << 8 ^ u64::from(flow.protocol));
    }
    ((u128::from(h) * spines as u128) >> 64) as usize
}

/// Seed of a leaf, so that no two leaves of a network hash alike.
pub fn leaf_seed(seed: u64, leaf: usize) -> u64 {
    mix(seed ^ mix(leaf as u64 + 1))
}

/// Finaliser of the SplitMix64 generator: every input bit reaches every output bit.
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

#[cfg(test)]
mod tests {
    use super::super::packet::{flow, tests::udp, tests::udp6};
    use super::*;

    #[test]
    fn source_ports_spread_evenly_over_the_spines() {
        for build in [udp, udp6] {
            let mut count = [0; 4];
            for port in 49_152..49_152 + 4096 {
                count[spine(
                    &flow(&build(1, 2, port, 100)).unwrap(),
                    7,
                    Ecmp::FiveTuple,
                    4,
                )] += 1;
            }
            assert!(count.iter().all(|c| (924..1124).contains(c)), "{count:?}");
        }
    }

    #[test]
    fn a_flow_keeps_its_path_and_addresses_alone_give_one_path() {
        let path = |port, kind| spine(&flow(&udp(1, 2, port, 100)).unwrap(), 7, kind, 4);
        assert_eq!(path(50_000, Ecmp::FiveTuple), path(50_000, Ecmp::FiveTuple));
        assert!((0..64).all(|p| path(p, Ecmp::Addresses) == path(0, Ecmp::Addresses)));
    }

    #[test]
    fn leaves_hash_differently() {
        let differs = (0..256).filter(|&port| {
            let f = flow(&udp(1, 2, port, 100)).unwrap();
            spine(&f, leaf_seed(1, 0), Ecmp::FiveTuple, 4)
                != spine(&f, leaf_seed(1, 1), Ecmp::FiveTuple, 4)
        });
        assert!(differs.count() > 150);
    }
}
