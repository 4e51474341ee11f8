//! Virtual paths of the traced queue pair against plain counting, with other queue pairs' notes between.

use super::support::{bytes_of, reset, verilated};
use mprdma_hw::cosim::VerilatedBlock;
use mprdma_hw::leaf::beat::bits_of_bytes;
use mprdma_hw::nic::telemetry::Telemetry;
use mprdma_hw::nic::types::{CfgReq, SenderNote};
use mprdma_hw::prelude::*;
use mprdma_spec::command::{trace_records, trace_request, Opcode, TRACED_VPS, TRACE_GROUP};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Paths that are counted one by one, and the rest.
const PLACES: usize = TRACED_VPS + 1;
const NAMES: [&str; 5] = ["SENT", "RETRANSMITTED", "ACKED", "ECN_MARKED", "PRUNED"];

fn request(op: Opcode, qpn: u64, vp_base: u64, group: usize) -> CfgReq {
    let mut image = [0; trace_request::BYTES];
    trace_request::QPN.set(&mut image, qpn);
    trace_request::VP_BASE.set(&mut image, vp_base);
    trace_request::GROUP.set(&mut image, group as u64);
    CfgReq {
        op: bits(op as u64),
        index: bits(qpn),
        image: bits_of_bytes(&image),
    }
}

struct Bench {
    block: VerilatedBlock,
    rng: ChaCha8Rng,
    cycle: u64,
    traced: Option<(u64, u64)>,
    counts: Vec<[u64; 5]>,
}

impl Bench {
    fn new(seed: u64) -> Self {
        println!("seed {seed}");
        let mut block = verilated("telemetry_test", Telemetry::<3>::default);
        reset(&mut block);
        Self {
            block,
            rng: ChaCha8Rng::seed_from_u64(seed),
            cycle: 0,
            traced: None,
            counts: vec![[0; 5]; PLACES],
        }
    }

    /// A note every 2 cycles, of the same QP every 8; `counted` says whether the traced one's count.
    fn cycle(&mut self, notes: bool) {
        let valid = notes && self.cycle % 2 == 0 && self.rng.random_bool(0.9);
        if valid {
            let note = self.note(self.cycle / 2 % 4);
            self.count(&note);
            self.block.inputs().set_bytes("sender", &bytes_of(note));
        }
        self.block.inputs().set("sender_valid", valid.into());
        self.block.cycle().expect("a cycle");
        self.cycle += 1;
    }

    fn note(&mut self, qpn: u64) -> SenderNote {
        let base = self.traced.map_or(0, |(_, base)| base);
        let mut vp = || {
            let near = self.rng.random_bool(0.5);
            let ahead = self.rng.random_range(0..if near { 5 } else { 90 });
            // Sometimes below the base.
            bits((base + ahead).wrapping_sub(u64::from(self.rng.random_bool(0.1)) * 3) & 0xffff)
        };
        let (vp_0, vp_1, ack_vp) = (vp(), vp(), vp());
        let ack = self.rng.random_bool(0.7);
        SenderNote {
            qpn: bits(qpn),
            sent_0: self.rng.random_bool(0.7),
            sent_1: self.rng.random_bool(0.5),
            vp_0,
            vp_1,
            cause: bits(self.rng.random_range(0..4)),
            new_1: self.rng.random_bool(0.3),
            ack,
            ack_vp,
            ecn_echo: ack && self.rng.random_bool(0.4),
            prune: ack && self.rng.random_bool(0.3),
            ..SenderNote::default()
        }
    }

    fn count(&mut self, note: &SenderNote) {
        let Some((qpn, base)) = self.traced else {
            return;
        };
        if note.qpn.to_u64() != qpn {
            return;
        }
        let place = |vp: Bits<16>| {
            let ahead = vp.to_u64().wrapping_sub(base) as u16;
            usize::from(ahead).min(TRACED_VPS)
        };
        if note.ack {
            let counts = &mut self.counts[place(note.ack_vp)];
            counts[2] += 1;
            counts[3] += u64::from(note.ecn_echo);
            counts[4] += u64::from(note.prune);
        }
        for (sent, vp, new) in [
            (note.sent_0, note.vp_0, false),
            (note.sent_1, note.vp_1, note.new_1),
        ] {
            if sent {
                let counts = &mut self.counts[place(vp)];
                counts[0] += 1;
                counts[1] += u64::from(note.cause.to_u64() != 0 && !new);
            }
        }
    }

    /// Runs a command; the cycles until its answer.
    fn command(&mut self, request: CfgReq, notes: bool) -> u64 {
        self.block.inputs().set_bytes("cfg", &bytes_of(request));
        self.block.inputs().set("cfg_valid", 1);
        for waited in 0..200 {
            // TRACE_QP begins to count a few cycles before its answer: no notes then.
            self.cycle(notes && waited < 100);
            if self.block.outputs().bit("cfg_done") {
                self.block.inputs().set("cfg_valid", 0);
                self.cycle(false);
                return waited;
            }
        }
        panic!("no answer");
    }

    /// Traces another QP; notes go on, and count only when it is done.
    fn trace(&mut self, qpn: u64, base: u64) {
        self.traced = None;
        self.command(request(Opcode::TraceQp, qpn, base, 0), true);
        (0..8).for_each(|_| self.cycle(false));
        self.traced = Some((qpn, base));
        self.counts = vec![[0; 5]; PLACES];
    }

    /// All records, read while other QPs' notes come.
    fn check(&mut self) {
        let (qpn, base) = self.traced.expect("a traced QP");
        (0..8).for_each(|_| self.cycle(false));
        for group in 0..=TRACED_VPS / TRACE_GROUP {
            self.command(request(Opcode::ReadTrace, 1, 0, group), false);
            let result = self.block.outputs().get_bytes("cfg_result").to_vec();
            assert_eq!(trace_records::ACTIVE.get(&result), 1);
            assert_eq!(trace_records::QPN.get(&result), qpn);
            assert_eq!(trace_records::VP_BASE.get(&result), base);
            for (i, name) in (0..TRACE_GROUP).flat_map(|i| NAMES.map(|name| (i, name))) {
                let field = format!("VP{i}_{name}");
                let field = trace_records::LAYOUT.field(&field).expect("a field");
                let at = NAMES.iter().position(|other| *other == name);
                let place = TRACE_GROUP * group + i;
                let expected = self
                    .counts
                    .get(place)
                    .map_or(0, |counts| counts[at.expect("a name")]);
                assert_eq!(field.get(&result), expected, "path {place}, {name}");
            }
        }
    }
}

#[test]
fn every_path_of_the_traced_queue_pair_is_counted() {
    let mut bench = Bench::new(3);
    for (qpn, base) in [(2, 49152), (0, 1), (3, 65_500), (3, 65_500)] {
        bench.trace(qpn, base);
        bench.check();
        for _ in 0..6 {
            (0..2000).for_each(|_| bench.cycle(true));
            bench.check();
        }
        let seen = bench.counts.iter().filter(|counts| counts[0] > 0).count();
        assert_eq!(seen, PLACES, "every path and the rest had packets");
    }
}

/// A question does not disturb the counts while notes come at the full rate.
#[test]
fn reading_does_not_disturb_counting() {
    let mut bench = Bench::new(4);
    bench.trace(1, 100);
    for group in (0..17).cycle().take(200) {
        bench.command(request(Opcode::ReadTrace, 1, 0, group), true);
        (0..8).for_each(|_| bench.cycle(true));
    }
    bench.check();
}

#[test]
fn nothing_is_traced_after_reset() {
    let mut bench = Bench::new(5);
    (0..200).for_each(|_| bench.cycle(true));
    bench.command(request(Opcode::ReadTrace, 1, 0, 0), true);
    let result = bench.block.outputs().get_bytes("cfg_result").to_vec();
    assert_eq!(trace_records::ACTIVE.get(&result), 0);
}

/// The cycles that `docs/architecture.md` states.
#[test]
fn answers_come_in_time() {
    let mut bench = Bench::new(6);
    assert_eq!(
        bench.command(request(Opcode::QueryQpStats, 0, 0, 0), false),
        6
    );
    assert_eq!(bench.command(request(Opcode::TraceQp, 0, 0, 0), false), 131);
    bench.traced = Some((0, 0));
    let read = || request(Opcode::ReadTrace, 0, 0, 3);
    assert_eq!(bench.command(read(), false), 8);
    let slowest = (0..50).map(|_| bench.command(read(), true)).max();
    assert!(slowest <= Some(16), "{slowest:?}");
    bench.check();
}
