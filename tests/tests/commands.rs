//! Commands with random arguments, good and bad: RTL and model answer each with the same status, and say the same of a
//! queue pair.

use anyhow::{ensure, Result};
use mprdma_host::device::Device;
use mprdma_sim::engine::Engine;
use mprdma_sim::inproc::InProcess;
use mprdma_sim::world::Options;
use mprdma_spec::command::{cq_image, eq_image, mr_image, qp_image, trace_request, Opcode};
use mprdma_spec::csr;
use mprdma_spec::layout::Field;
use mprdma_tests::rig::scenario;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;

const WORDS: u32 = csr::CMD_WINDOW_BYTES / 4;

type Window = [u8; csr::CMD_WINDOW_BYTES as usize];

/// Values that a field is given: mostly good ones.
type Choice = (Field, &'static [u64]);

const QP: &[Choice] = &[
    (qp_image::QPN, &[3, 3, 3, 3, 4, 4, 0x3ff, 0x400, 0xff_ffff]),
    (qp_image::MASK, &[0, 1, 2, 4, 8, 16, 31, 5, 24]),
    (qp_image::STATE, &[1, 2, 3, 3, 4, 0, 5]),
    (qp_image::MODE, &[1, 1, 1, 1, 1, 1, 1, 0]),
    (qp_image::MTU, &[1, 2, 3, 4, 5, 5, 5, 5, 0, 6]),
    (qp_image::HOLE_REPAIR, &[1, 0]),
    (qp_image::VP_RECYCLE, &[1, 0]),
    (qp_image::PD, &[7]),
    (qp_image::DEST_QPN, &[9]),
    (qp_image::PKEY, &[0xffff]),
    (
        qp_image::SQ_BASE,
        &[0x1000, 0x1000, 0x1000, 0x1000, 0x1000, 0x1020],
    ),
    (qp_image::SQ_LOG2, &[1, 6, 15, 6, 6, 6, 0]),
    (qp_image::SQ_CQN, &[2, 2, 2, 2, 2, 2, 2, 5, 64]),
    (qp_image::RQ_LOG2, &[1, 6, 15, 6, 6, 6, 0]),
    (
        qp_image::RQ_BASE,
        &[0x2000, 0x2000, 0x2000, 0x2000, 0x2000, 0x2008],
    ),
    (qp_image::RQ_CQN, &[2, 2, 2, 2, 2, 2, 2, 5, 0xffff]),
    (qp_image::RIGHTS, &[2, 15]),
    (qp_image::SQ_PSN, &[0, 0xff_ffff, 0x12_3456]),
    (qp_image::RQ_PSN, &[0, 0xff_ffff, 0x65_4321]),
    (qp_image::RETRY_CNT, &[7]),
    (qp_image::RNR_RETRY, &[7]),
    (qp_image::RTO_FLOOR, &[8, 8, 8, 8, 8, 8, 8, 0x7fff, 0]),
    (qp_image::BURST_INTERVAL, &[16, 16, 16, 16, 16, 16, 255, 0]),
    (qp_image::DELTA, &[32, 32, 32, 32, 32, 1, 127, 128, 0]),
    (qp_image::VP_BASE, &[49152, 49152, 49152, 65535]),
    (qp_image::VP_COUNT, &[64, 64, 64, 1, 1, 16384, 16385, 0]),
    (qp_image::PROBE, &[655]),
    (qp_image::INITIAL_WINDOW, &[32, 32, 32, 32, 32, 32, 255, 0]),
    (
        qp_image::CWND_MAX,
        &[512, 512, 512, 512, 512, 2047, 2048, 0],
    ),
];

const MR: &[Choice] = &[
    (mr_image::KEY, &[0x0501, 0x0501, 0x0502, 0xff07, 0x1_0000]),
    (mr_image::PD, &[7]),
    (mr_image::RIGHTS, &[3]),
    (mr_image::VA, &[0, 0x1000, u64::MAX - 0xfff]),
    (mr_image::IOVA, &[0, 0x1000, u64::MAX - 0xfff]),
    (mr_image::LENGTH, &[0, 1, 0xfff, 0x1000, 0xffff_ffff_ffff]),
];

const CQ: &[Choice] = &[
    (cq_image::CQN, &[2, 2, 2, 3, 63, 64]),
    (cq_image::LOG2, &[4, 4, 4, 15, 0]),
    (cq_image::VECTOR, &[0, 7, 7, 8]),
    (cq_image::BASE, &[0x4000, 0x4020, 0x4040, 0x4010]),
];

const EQ: &[Choice] = &[
    (eq_image::EQN, &[0, 0, 0, 1]),
    (eq_image::LOG2, &[4, 4, 15, 0]),
    (eq_image::VECTOR, &[0, 7, 8]),
    (eq_image::BASE, &[0x4000, 0x4010, 0x4008]),
];

const TRACE: &[Choice] = &[
    (trace_request::QPN, &[3, 3, 3, 4, 0x400]),
    (trace_request::GROUP, &[0, 15, 16, 17, 255]),
    (trace_request::VP_BASE, &[49152, 0, 65535]),
];

/// Commands that answer with more than a status.
const REPORTS: [Opcode; 3] = [Opcode::QueryQp, Opcode::QueryQpStats, Opcode::ReadTrace];
/// Codes of no command.
const UNKNOWN: [u8; 2] = [Opcode::ReadTrace as u8 + 1, 200];

/// A command code and arguments.
fn plan(rng: &mut ChaCha8Rng) -> (u8, Window) {
    use Opcode::*;
    let (code, choices) = match rng.random_range(0..24) {
        0 => (Nop as u8, QP),
        1 => (UNKNOWN[rng.random_range(0..2)], QP),
        2..=5 => (CreateQp as u8, QP),
        6..=8 => (ModifyQp as u8, QP),
        9 | 10 => (QueryQp as u8, QP),
        11 => (DestroyQp as u8, QP),
        12 | 13 => (RegisterMr as u8, MR),
        14 => (DeregisterMr as u8, MR),
        15 | 16 => (CreateCq as u8, CQ),
        17 => (DestroyCq as u8, CQ),
        18 => (CreateEq as u8, EQ),
        20 => (QueryQpStats as u8, QP),
        21 => (TraceQp as u8, TRACE),
        22 | 23 => (ReadTrace as u8, TRACE),
        _ => (DestroyEq as u8, EQ),
    };
    let mut window = [0; csr::CMD_WINDOW_BYTES as usize];
    // Half of the commands have at most one field that is not the first choice, so that enough of them succeed.
    let odd = rng
        .random_bool(0.5)
        .then(|| rng.random_range(0..choices.len()));
    for (i, (field, values)) in choices.iter().enumerate() {
        let random = odd.is_none_or(|odd| odd == i);
        let value = if random {
            *values.choose(rng).expect("values")
        } else {
            values[0]
        };
        field.set(&mut window, value);
    }
    (code, window)
}

/// Status and result of each command of the plan of `seed`.
fn answers(engine: Engine, seed: u64, count: usize) -> Result<Vec<(u8, u32, Vec<u32>)>> {
    let options = Options {
        engine,
        threads: 1,
        ..Options::default()
    };
    let sim = InProcess::new(&scenario("direct")?, &options)?;
    let device = sim.device(0);
    while device.read32(csr::STATUS)? & csr::STATUS_READY == 0 {}
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut answers = vec![];
    for _ in 0..count {
        let (code, window) = plan(&mut rng);
        for i in 0..WORDS {
            let at = 4 * i as usize;
            let word = u32::from_le_bytes(window[at..at + 4].try_into()?);
            device.write32(csr::CMD_ARGS + 4 * i, word)?;
        }
        device.write32(csr::CMD_OPCODE, code.into())?;
        let status = loop {
            match device.read32(csr::CMD_STATUS)? {
                status if status & csr::CMD_BUSY == 0 => break status,
                _ => {}
            }
        };
        let reads = status == 0 && REPORTS.iter().any(|report| *report as u8 == code);
        let words = (0..if reads { WORDS } else { 0 }).map(|i| {
            let word = device.read32(csr::CMD_RESULT + 4 * i)?;
            Ok(word)
        });
        answers.push((code, status, words.collect::<Result<_>>()?));
    }
    Ok(answers)
}

#[test]
fn rtl_and_model_answer_alike() -> Result<()> {
    let seed = 5;
    println!("seed {seed}");
    let count = 400;
    let (rtl, model) = (
        answers(Engine::Rtl, seed, count)?,
        answers(Engine::Model, seed, count)?,
    );
    let mut seen = BTreeMap::new();
    for (i, (a, b)) in rtl.iter().zip(&model).enumerate() {
        assert_eq!(a, b, "command {i}: code, status, result on RTL and model");
        *seen.entry((a.0, a.1)).or_insert(0) += 1;
    }
    println!("times by (code, status): {seen:?}");
    // Every command succeeds at least once, and each kind of refusal is there.
    for code in Opcode::Nop as u8..=Opcode::ReadTrace as u8 {
        ensure!(
            seen.contains_key(&(code, 0)),
            "command {code} never succeeds"
        );
    }
    for status in 1..=5 {
        ensure!(
            seen.keys().any(|key| key.1 == status),
            "status {status} never comes"
        );
    }
    Ok(())
}
