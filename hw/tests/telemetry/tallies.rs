//! Random notes of a few queue pairs, with CREATE_QP and QUERY_QP_STATS among them, against plain counting.

use super::support::{bytes_of, reset, verilated};
use mprdma_hw::cosim::VerilatedBlock;
use mprdma_hw::leaf::beat::bits_of_bytes;
use mprdma_hw::nic::telemetry::Telemetry;
use mprdma_hw::nic::types::{CfgReq, ReceiverNote, SenderNote};
use mprdma_hw::prelude::*;
use mprdma_spec::command::{qp_image, qp_stats, Opcode};
use mprdma_spec::layout::Field;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::HashMap;

const QPW: usize = 3;
const QPS: u64 = 1 << QPW;

/// The sender and receiver fields in the order in which [`Expected`] keeps them.
const FIELDS: [Field; 27] = [
    qp_stats::SENT,
    qp_stats::RETX_HOLE,
    qp_stats::RETX_RECOVERY,
    qp_stats::RETX_TIMEOUT,
    qp_stats::PATH_SWITCHES,
    qp_stats::PRUNES,
    qp_stats::PROBES,
    qp_stats::ECN_ECHOES,
    qp_stats::WINDOW_NAKS,
    qp_stats::SYNC_NAKS,
    qp_stats::GHOSTS,
    qp_stats::TIMEOUTS,
    qp_stats::RECOVERIES,
    qp_stats::ACCEPTED,
    qp_stats::DUPLICATES,
    qp_stats::OUT_OF_WINDOW,
    qp_stats::SYNC_NAKS_SENT,
    qp_stats::RNR_NAKS_SENT,
    qp_stats::CE_MARKS,
    qp_stats::DISTANCE_0,
    qp_stats::DISTANCE_1,
    qp_stats::DISTANCE_2,
    qp_stats::DISTANCE_4,
    qp_stats::DISTANCE_8,
    qp_stats::DISTANCE_16,
    qp_stats::DISTANCE_32,
    qp_stats::DISTANCE_64,
];

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Expected {
    counts: [u64; 27],
    last_vp: Option<u64>,
}

impl Expected {
    fn add(&mut self, field: Field, amount: u64) {
        let at = FIELDS.iter().position(|f| f.name == field.name);
        self.counts[at.expect("a counter")] += amount;
    }

    fn sender(&mut self, note: &SenderNote) {
        let paths = [
            (note.sent_0, note.vp_0, true),
            (note.sent_1, note.vp_1, !note.new_1),
        ];
        for (_, vp, again) in paths.iter().filter(|(sent, ..)| *sent) {
            let vp = vp.to_u64();
            self.add(qp_stats::SENT, 1);
            if self.last_vp.is_some_and(|last| last != vp) {
                self.add(qp_stats::PATH_SWITCHES, 1);
            }
            self.last_vp = Some(vp);
            match note.cause.to_u64() {
                _ if !again => {}
                1 => self.add(qp_stats::RETX_HOLE, 1),
                2 => self.add(qp_stats::RETX_RECOVERY, 1),
                3 => self.add(qp_stats::RETX_TIMEOUT, 1),
                _ => {}
            }
        }
        self.add(qp_stats::PROBES, note.probes.to_u64());
        for (flag, field) in [
            (note.prune, qp_stats::PRUNES),
            (note.ecn_echo, qp_stats::ECN_ECHOES),
            (note.window_nak, qp_stats::WINDOW_NAKS),
            (note.sync_nak, qp_stats::SYNC_NAKS),
            (note.ghost, qp_stats::GHOSTS),
            (note.timeout, qp_stats::TIMEOUTS),
            (note.recovery, qp_stats::RECOVERIES),
        ] {
            self.add(field, flag.into());
        }
    }

    fn receiver(&mut self, note: &ReceiverNote) {
        if note.accepted {
            let bucket = match note.distance.to_u64() {
                0 => qp_stats::DISTANCE_0,
                1 => qp_stats::DISTANCE_1,
                2..=3 => qp_stats::DISTANCE_2,
                4..=7 => qp_stats::DISTANCE_4,
                8..=15 => qp_stats::DISTANCE_8,
                16..=31 => qp_stats::DISTANCE_16,
                32..=63 => qp_stats::DISTANCE_32,
                _ => qp_stats::DISTANCE_64,
            };
            self.add(bucket, 1);
        }
        for (flag, field) in [
            (note.accepted, qp_stats::ACCEPTED),
            (note.duplicate, qp_stats::DUPLICATES),
            (note.out_of_window, qp_stats::OUT_OF_WINDOW),
            (note.sync_nak, qp_stats::SYNC_NAKS_SENT),
            (note.rnr_nak, qp_stats::RNR_NAKS_SENT),
            (note.marked, qp_stats::CE_MARKS),
        ] {
            self.add(field, flag.into());
        }
    }
}

fn sender_note(rng: &mut ChaCha8Rng, qpn: u64) -> SenderNote {
    let mut flag = || rng.random_bool(0.3);
    let mut note = SenderNote {
        qpn: bits(qpn),
        sent_0: flag(),
        sent_1: flag(),
        ack: flag(),
        ecn_echo: flag(),
        prune: flag(),
        window_nak: flag(),
        sync_nak: flag(),
        ghost: flag(),
        timeout: flag(),
        recovery: flag(),
        ..SenderNote::default()
    };
    note.vp_0 = bits(rng.random_range(0..3));
    note.vp_1 = bits(rng.random_range(0..3));
    note.cause = bits(rng.random_range(0..4));
    note.new_1 = rng.random_bool(0.3);
    note.probes = bits(rng.random_range(0..3));
    note
}

fn receiver_note(rng: &mut ChaCha8Rng, qpn: u64) -> ReceiverNote {
    let mut flag = || rng.random_bool(0.4);
    ReceiverNote {
        qpn: bits(qpn),
        accepted: flag(),
        duplicate: flag(),
        out_of_window: flag(),
        sync_nak: flag(),
        rnr_nak: flag(),
        marked: flag(),
        distance: bits(rng.random_range(0..256) >> rng.random_range(0..8)),
    }
}

/// One half's notes: which QP may have one now, and what has been counted.
struct Half {
    /// Cycle of a QP's last note.
    last: HashMap<u64, u64>,
    /// Least cycles between two notes of one QP.
    gap: u64,
}

impl Half {
    fn pick(&mut self, rng: &mut ChaCha8Rng, cycle: u64) -> Option<u64> {
        // Often the same few, to find what is still in the pipe.
        let qpn = rng.random_range(0..QPS) & rng.random_range(0..QPS);
        let free = self
            .last
            .get(&qpn)
            .is_none_or(|last| cycle - last >= self.gap);
        free.then(|| {
            self.last.insert(qpn, cycle);
            qpn
        })
    }
}

fn request(op: Opcode, qpn: u64) -> CfgReq {
    let mut image = [0; qp_image::BYTES];
    qp_image::QPN.set(&mut image, qpn);
    CfgReq {
        op: bits(op as u64),
        index: bits(qpn),
        image: bits_of_bytes(&image),
    }
}

fn check(block: &VerilatedBlock, qpn: u64, expected: &Expected) {
    let result = block.outputs().get_bytes("cfg_result").to_vec();
    for (field, count) in FIELDS.iter().zip(expected.counts) {
        assert_eq!(field.get(&result), count, "QP {qpn}, {}", field.name);
    }
    let last = (qp_stats::STARTED.get(&result) == 1).then(|| qp_stats::LAST_VP.get(&result));
    assert_eq!(last, expected.last_vp, "QP {qpn}, last path");
}

/// Notes at the engines' full rate. CREATE_QP comes while notes of its QP are under way; then notes pause, so that it is
/// known which of them are counted.
fn run(seed: u64, cycles: u64) {
    println!("seed {seed}");
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut block = verilated("telemetry_test", Telemetry::<QPW>::default);
    reset(&mut block);
    let mut expected = [Expected::default(); QPS as usize];
    let mut halves = [8, 4].map(|gap| Half {
        last: HashMap::new(),
        gap,
    });
    // Nothing is in the records before CREATE_QP.
    let mut created = 0;
    let (mut command, mut quiet, mut queries, mut notes) = (None, 0_u64, 0, 0_u64);
    for cycle in 0..cycles {
        if command.is_none() && (created < QPS || rng.random_bool(0.02)) {
            let create = created < QPS || rng.random_bool(0.3);
            let qpn = if created < QPS {
                created
            } else {
                rng.random_range(0..QPS)
            };
            created += u64::from(created < QPS);
            let op = if create {
                Opcode::CreateQp
            } else {
                Opcode::QueryQpStats
            };
            command = Some((op, qpn));
            quiet = 12;
            block.inputs().set_bytes("cfg", &bytes_of(request(op, qpn)));
        }
        // A command starts when the notes under way are counted, and other QPs' notes go on meanwhile.
        let starts = command.is_some() && quiet <= 6;
        block.inputs().set("cfg_valid", starts.into());
        let silent = command.map(|(_, qpn)| qpn);
        let sender = (cycle % 2 == 0)
            .then(|| halves[0].pick(&mut rng, cycle))
            .flatten()
            .filter(|qpn| Some(*qpn) != silent);
        if let Some(qpn) = sender {
            let note = sender_note(&mut rng, qpn);
            expected[qpn as usize].sender(&note);
            block.inputs().set_bytes("sender", &bytes_of(note));
            notes += 1;
        }
        block.inputs().set("sender_valid", sender.is_some().into());
        let receiver = rng
            .random_bool(0.8)
            .then(|| halves[1].pick(&mut rng, cycle))
            .flatten()
            .filter(|qpn| Some(*qpn) != silent);
        if let Some(qpn) = receiver {
            let note = receiver_note(&mut rng, qpn);
            expected[qpn as usize].receiver(&note);
            block.inputs().set_bytes("receiver", &bytes_of(note));
            notes += 1;
        }
        block
            .inputs()
            .set("receiver_valid", receiver.is_some().into());
        block.cycle().expect("a cycle");
        quiet = quiet.saturating_sub(1);
        if starts && block.outputs().bit("cfg_done") {
            let (op, qpn) = command.take().expect("a command");
            if op == Opcode::CreateQp {
                expected[qpn as usize] = Expected::default();
            } else {
                check(&block, qpn, &expected[qpn as usize]);
                queries += 1;
            }
        }
    }
    println!("{notes} notes, {queries} queries");
    assert!(queries > cycles / 200, "{queries} queries");
    assert!(notes > cycles / 2, "{notes} notes");
}

#[test]
fn every_note_is_counted_once() {
    run(1, 20_000);
}

#[test]
#[ignore = "long: a million cycles"]
fn every_note_is_counted_once_long() {
    for seed in 2..6 {
        run(seed, 1_000_000);
    }
}

/// A note that enters behind the clear of its own QP, at every distance, starts from zero.
#[test]
fn a_note_right_behind_a_clear_is_not_lost() {
    let mut block = verilated("telemetry_test", Telemetry::<QPW>::default);
    reset(&mut block);
    let note = SenderNote {
        qpn: bits(5),
        sent_0: true,
        prune: true,
        ..SenderNote::default()
    };
    let arrival = ReceiverNote {
        qpn: bits(5),
        accepted: true,
        marked: true,
        ..ReceiverNote::default()
    };
    block.inputs().set_bytes("sender", &bytes_of(note));
    block.inputs().set_bytes("receiver", &bytes_of(arrival));
    let mut counted = Vec::new();
    for delay in 0..14 {
        // Something to clear.
        note_once(&mut block);
        ask(&mut block, Opcode::CreateQp, Some(delay));
        ask(&mut block, Opcode::QueryQpStats, None);
        let result = block.outputs().get_bytes("cfg_result").to_vec();
        let counts = [
            qp_stats::SENT,
            qp_stats::PRUNES,
            qp_stats::ACCEPTED,
            qp_stats::CE_MARKS,
        ]
        .map(|field| field.get(&result));
        assert!(
            counts == [0; 4] || counts == [1; 4],
            "{delay}: {counts:?} is neither before nor behind the clear"
        );
        counted.push(counts[0]);
    }
    let clear = counted.iter().position(|count| *count == 1);
    let clear = clear.expect("some notes came behind the clear");
    assert!(clear > 0, "some notes came before the clear");
    assert!(
        counted[clear..].iter().all(|count| *count == 1),
        "{counted:?}"
    );
}

fn note_once(block: &mut VerilatedBlock) {
    for valid in [1, 0, 0, 0, 0, 0, 0, 0, 0] {
        block.inputs().set("sender_valid", valid);
        block.inputs().set("receiver_valid", valid);
        block.cycle().expect("a cycle");
    }
}

/// Runs a command on QP 5, with one note of it `delay` cycles after the command.
fn ask(block: &mut VerilatedBlock, op: Opcode, delay: Option<u64>) {
    block.inputs().set_bytes("cfg", &bytes_of(request(op, 5)));
    block.inputs().set("cfg_valid", 1);
    let mut done = false;
    for cycle in 0..30 {
        let valid = u64::from(delay == Some(cycle));
        block.inputs().set("sender_valid", valid);
        block.inputs().set("receiver_valid", valid);
        block.cycle().expect("a cycle");
        if block.outputs().bit("cfg_done") {
            assert!(!done, "answered twice");
            done = true;
            block.inputs().set("cfg_valid", 0);
        }
    }
    assert!(done, "{op:?} is not answered");
}
