//! Random regions and questions against a plain map.

use super::support::{bytes_of, field, reset, run_until, verilated};
use mprdma_hw::nic::mr_table::MrTable;
use mprdma_hw::nic::types::{CfgReq, MrQuery};
use mprdma_hw::prelude::*;
use mprdma_spec::command::{mr_image, Opcode};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::VecDeque;

#[derive(Clone, Copy, Default)]
struct Region {
    key: u64,
    va: u64,
    iova: u64,
    length: u64,
    pd: u64,
    rights: u64,
}

#[test]
fn answers_like_a_map() {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let mut table = verilated("mr_table", MrTable::<4>::default);
    reset(&mut table);
    run_until(&mut table, 40, |t| t.outputs().bit("init_done"));
    let mut regions: Vec<Option<Region>> = vec![None; 16];
    for round in 0..60 {
        let slot = rng.random_range(0..16);
        let region = Region {
            key: slot << 8 | rng.random_range(0..4),
            va: rng.random_range(0..1 << 20),
            iova: rng.random::<u64>() >> 8,
            length: rng.random_range(0..1 << 16),
            pd: rng.random_range(0..1 << 16),
            rights: rng.random_range(0..16),
        };
        let registers = round % 4 != 3;
        let mut image = [0; mr_image::BYTES];
        for (f, value) in [
            (mr_image::KEY, region.key),
            (mr_image::PD, region.pd),
            (mr_image::RIGHTS, region.rights),
            (mr_image::VA, region.va),
            (mr_image::IOVA, region.iova),
            (mr_image::LENGTH, region.length),
        ] {
            f.set(&mut image, value);
        }
        let request = CfgReq {
            op: bits(if registers {
                Opcode::RegisterMr
            } else {
                Opcode::DeregisterMr
            } as u64),
            index: bits(slot),
            image: mprdma_hw::leaf::beat::bits_of_bytes(&image),
        };
        table.inputs().set_bytes("cfg", &bytes_of(request));
        table.inputs().set("cfg_valid", 1);
        run_until(&mut table, 10, |t| t.outputs().bit("cfg_done"));
        table.inputs().set("cfg_valid", 0);
        regions[slot as usize] = registers.then_some(region);

        let mut expected = VecDeque::new();
        let mut asked = 0;
        let mut question = None;
        for _ in 0..400 {
            if question.is_none() && asked < 60 {
                asked += 1;
                let near = regions[rng.random_range(0..16)].unwrap_or_default();
                let query = MrQuery {
                    key: bits(if rng.random_bool(0.9) {
                        near.key
                    } else {
                        rng.random_range(0..1 << 16)
                    }),
                    va: bits((near.va + rng.random_range(0..near.length + 2)).wrapping_sub(1)),
                    length: bits(rng.random_range(0..near.length.max(2))),
                };
                question = Some(query);
            }
            if let Some(query) = question {
                table.inputs().set_bytes("query", &bytes_of(query));
            }
            table
                .inputs()
                .set("query_valid", u64::from(question.is_some()));
            let ready = rng.random_bool(0.7);
            table.inputs().set("answer_ready", ready.into());
            table.cycle().expect("a cycle");
            if table.outputs().bit("query_ready") {
                if let Some(query) = question.take() {
                    expected.push_back(query);
                }
            }
            if ready && table.outputs().bit("answer_valid") {
                let query = expected.pop_front().expect("a question for each answer");
                let answer = table.outputs().get_bytes("answer").to_vec();
                check(&regions, query, &answer);
            }
        }
        assert!(
            expected.is_empty() && question.is_none(),
            "{} questions open",
            expected.len()
        );
    }
}

fn check(regions: &[Option<Region>], query: MrQuery, answer: &[u8]) {
    let (key, va, length) = (query.key.to_u64(), query.va.to_u64(), query.length.to_u64());
    let region = regions
        .get((key >> 8) as usize)
        .copied()
        .flatten()
        .filter(|r| r.key == key);
    let inside = region.filter(|r| va >= r.va && va - r.va + length <= r.length);
    assert_eq!(field(answer, 0, 1) == 1, inside.is_some(), "{query:?}");
    if let Some(r) = inside {
        assert_eq!(field(answer, 1, 8), r.rights);
        assert_eq!(field(answer, 9, 16), r.pd);
        assert_eq!(field(answer, 25, 64), r.iova + va - r.va);
    }
}
