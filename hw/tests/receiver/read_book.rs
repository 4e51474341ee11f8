//! Random launches, arrivals, questions and commands against lists of what must follow.

use crate::support::{chance, encode, rng, Dut};
use crate::{both, ports};
use mprdma_hw::leaf::beat::bits_of_bytes;
use mprdma_hw::nic::read_book::ReadBook;
use mprdma_hw::nic::types::{
    AtomicOp, AtomicResult, CfgReq, Launch, MrAnswer, QpMark, ReadEvent, ReadQuery, Respond,
    Responded,
};
use mprdma_spec::command::{qp_image, Opcode, MASK_RECEIVER, MASK_SENDER, MASK_STATE};
use mprdma_spec::descriptor::WrOpcode;
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rust_hdl_core::prelude::*;
use std::collections::VecDeque;

const QPS: usize = 4;
type Block = ReadBook<2, 3, 6>;

ports!(Block, clock: reset cfg cfg_valid launch launch_valid arrival arrival_valid query query_valid answer_ready
    respond_ready responded responded_valid execute_ready result result_valid atomics_busy done_ready => launch_ready arrival_ready query_ready answer answer_valid respond respond_valid
    responded_ready execute execute_valid result_ready done done_valid rx_marker cfg_done init_done busy);

/// What a PSN of the peer carries.
#[derive(Clone, Copy)]
enum Kind {
    Plain,
    Request(Request),
    Tail { slot: u64 },
}

#[derive(Clone, Copy)]
struct Request {
    slot: u64,
    iova: u64,
    length: u64,
    /// An ATOMIC: compare and swap, and its values.
    atomic: Option<(bool, u64, u64)>,
}

/// What the peer asked for: how it is answered, and what an ATOMIC does before that.
#[derive(Clone, Copy)]
struct Answer {
    respond: Respond,
    op: Option<AtomicOp>,
}

impl Answer {
    fn is_executed_by(&self, got: &[u8]) -> bool {
        self.op.is_some_and(|op| encode(op) == got)
    }

    fn is_given_by(&self, got: &[u8]) -> bool {
        self.op.is_none() && encode(self.respond) == got
    }
}

/// Where the next answer of a queue pair is.
#[derive(Clone, Copy, PartialEq, Default)]
enum Out {
    /// Inside, or there is none.
    #[default]
    No,
    /// Given away; the block waits to hear of it.
    Yes,
    /// The same, and a command ended it.
    Old,
}

/// An own READ or ATOMIC.
#[derive(Clone, Copy)]
struct Own {
    iova: u64,
    length: u64,
    mtu: u64,
    atomic: bool,
    /// When the block took the launch, in cycles in which it did not stand still.
    since: usize,
}

/// One queue pair, both directions.
#[derive(Default)]
struct Qp {
    valid: bool,
    life: u64,
    /// Own READs by slot; what is known of a slot that has none.
    own: [Option<Own>; 16],
    /// The slot is about to open or to close: either answer is right.
    unsure: [bool; 16],
    launched: u64,
    finished: u64,
    /// Own READs whose last packet has a PSN.
    planned: u64,
    /// Requests of the peer that have a PSN, and those answered.
    asked: u64,
    answered: u64,
    /// PSNs from the cumulative point on, and which of them have arrived.
    aack: u32,
    ahead: VecDeque<(Kind, bool)>,
    /// What has arrived and waits for the cumulative point: PSN, and what the peer asks for or the slot of an own READ.
    asked_for: Vec<(u32, Answer)>,
    ended: Vec<(u32, usize)>,
    /// Answers to come; those that commands ended, one of which may have been on its way out; where the first is.
    responds: VecDeque<Answer>,
    old: Vec<Answer>,
    out: Out,
    /// An ATOMIC failed: the queue pair is on its way to ERROR, and is asked nothing more.
    dead: bool,
    /// Last step with something of this queue pair on its way.
    touched: usize,
}

impl Qp {
    /// An ATOMIC failed: the peer is not answered any more.
    fn die(&mut self) {
        self.dead = true;
        self.responds.clear();
        self.asked_for.clear();
        for (kind, _) in &mut self.ahead {
            if matches!(kind, Kind::Request(_)) {
                *kind = Kind::Plain;
            }
        }
    }
}

struct Asked {
    qpn: usize,
    slot: Option<usize>,
    sure: bool,
    answer: MrAnswer,
}

fn kind(qp: &mut Qp, rng: &mut ChaCha8Rng) -> Kind {
    let slot = (qp.planned % 16) as usize;
    let has_tail = qp.planned < qp.launched && qp.own[slot].is_some();
    match rng.random_range(0..10) {
        0..3 if has_tail => {
            qp.planned += 1;
            Kind::Tail { slot: slot as u64 }
        }
        3..6 if qp.asked - qp.answered < 16 && !qp.dead => {
            qp.asked += 1;
            let atomic = chance(rng, 40).then(|| (rng.random(), rng.random(), rng.random()));
            Kind::Request(Request {
                slot: (qp.asked - 1) % 16,
                iova: rng.random(),
                length: if atomic.is_some() {
                    8
                } else {
                    rng.random_range(0..1 << 31)
                },
                atomic,
            })
        }
        _ => Kind::Plain,
    }
}

/// The next packet of the peer: an event, if the block has to know of it.
fn arrive(qp: &mut Qp, qpn: usize, rng: &mut ChaCha8Rng) -> Option<ReadEvent> {
    let far = rng.random_range(1..12);
    while qp.ahead.len() < far {
        let kind = kind(qp, rng);
        qp.ahead.push_back((kind, false));
    }
    let missing: Vec<usize> = (0..qp.ahead.len()).filter(|&i| !qp.ahead[i].1).collect();
    let at = missing[if chance(rng, 40) {
        0
    } else {
        rng.random_range(0..missing.len())
    }];
    qp.ahead[at].1 = true;
    let psn = (qp.aack + at as u32) & 0xff_ffff;
    let mut event = ReadEvent {
        qpn: bits(qpn as u64),
        psn: bits(psn.into()),
        ..ReadEvent::default()
    };
    match qp.ahead[at].0 {
        Kind::Plain => {
            event.slot = bits(rng.random_range(0..16));
            event.iova = bits(rng.random());
        }
        Kind::Request(request) => {
            event.request = true;
            event.slot = bits(request.slot);
            event.iova = bits(request.iova);
            event.length = bits(request.length);
            if let Some((swap, swap_add, compare)) = request.atomic {
                event.atomic = true;
                event.swap = swap;
                (event.swap_add, event.compare) = (bits(swap_add), bits(compare));
            }
        }
        Kind::Tail { slot } => {
            event.tail = true;
            event.slot = bits(slot);
        }
    }
    let mut slid = false;
    while qp.ahead.front().is_some_and(|(_, arrived)| *arrived) {
        qp.ahead.pop_front();
        qp.aack = (qp.aack + 1) & 0xff_ffff;
        slid = true;
    }
    event.aack = bits(qp.aack.into());
    (slid || event.request || event.tail).then_some(event)
}

/// A question that is right, often; else one with something odd about it.
fn ask(qp: &Qp, qpn: usize, rng: &mut ChaCha8Rng, now: usize) -> (ReadQuery, Asked) {
    let slot = rng.random_range(0..16_usize);
    let own = qp.own[slot];
    let known = own.unwrap_or(Own {
        iova: 0,
        length: rng.random_range(0..100_000),
        mtu: 1,
        atomic: rng.random(),
        since: 0,
    });
    let mtu = 128 << known.mtu;
    let packets = known.length.div_ceil(mtu).clamp(1, 1 << 16);
    let mut offset = rng.random_range(0..packets);
    if chance(rng, 40) {
        offset = packets - 1;
    }
    let mut length = (known.length.saturating_sub(offset * mtu)).min(mtu);
    let mut tail = offset + 1 == packets;
    let mut wsn = slot as u64;
    let mut atomic = known.atomic;
    match rng.random_range(0..20) {
        6 => atomic = !atomic,
        0 => length = rng.random_range(0..=mtu),
        1 => length += 1,
        2 => tail = !tail,
        3 => offset = rng.random_range(0..1 << 16),
        4 => wsn += 16 << rng.random_range(0..20),
        5 => length = length.saturating_sub(1),
        _ => {}
    }
    let end = offset * mtu + length;
    let fits = if tail {
        end == known.length
    } else {
        end < known.length
    };
    let sure = !qp.unsure[slot] && own.is_none_or(|own| own.since + 60 < now);
    let query = ReadQuery {
        qpn: bits(qpn as u64),
        wsn: bits(wsn),
        offset: bits(offset),
        length: bits(length),
        tail,
        atomic,
    };
    let fits = fits && atomic == known.atomic;
    let answer = MrAnswer {
        hit: qp.valid && own.is_some() && wsn < 16 && fits,
        iova: bits(known.iova.wrapping_add(offset * mtu)),
        ..MrAnswer::default()
    };
    let asked = Asked {
        qpn,
        slot: Some(slot),
        sure: sure || wsn >= 16 || (own.is_some() && !fits),
        answer,
    };
    (query, asked)
}

fn launch(qp: &Qp, qpn: usize, rng: &mut ChaCha8Rng) -> Launch {
    let length = match rng.random_range(0..4) {
        0 => 0,
        1 => rng.random_range(0..5000),
        _ => rng.random_range(0..1 << 22),
    };
    let opcode = [
        WrOpcode::RdmaRead,
        WrOpcode::RdmaRead,
        WrOpcode::AtomicCmpAndSwp,
        WrOpcode::AtomicFetchAndAdd,
    ][rng.random_range(0..4)];
    Launch {
        qpn: bits(qpn as u64),
        opcode: bits(opcode as u64),
        packets: bits(1),
        iova: bits(rng.random()),
        length: bits(if opcode.is_atomic() { 8 } else { length }),
        wsn: bits(qp.launched % 16),
        mtu: bits(rng.random_range(1..=5)),
        ..Launch::default()
    }
}

fn bench(dut: &mut impl Dut, steps: usize) {
    let mut rng = rng(61);
    let mut qps: Vec<Qp> = (0..QPS).map(|_| Qp::default()).collect();
    let mut launches: VecDeque<Launch> = VecDeque::new();
    let mut events: VecDeque<ReadEvent> = VecDeque::new();
    let mut queries: VecDeque<(ReadQuery, Asked)> = VecDeque::new();
    let mut asked: VecDeque<Asked> = VecDeque::new();
    // Own READs that must be reported, and markers with how many of them must be out before.
    let mut dones: VecDeque<usize> = VecDeque::new();
    // What the block has to hear: of ATOMICs, and of answers.
    let mut results: VecDeque<AtomicResult> = VecDeque::new();
    let mut fates: VecDeque<Responded> = VecDeque::new();
    let mut markers: VecDeque<usize> = VecDeque::new();
    let mut command: Option<(usize, Opcode, u64)> = None;
    let mut rest: Option<usize> = None;
    let mut hold = false;
    let mut result_due = 0;
    let mut now = 0;
    let (mut cfg_low, mut done_given, mut done_seen) = (true, 0, 0);
    let (mut responded, mut hits, mut misses, mut marked, mut commands, mut dropped) =
        (0, 0, 0, 0, 0, 0);
    let (mut full, mut most_due) = (0, 0);
    let (mut executed, mut sent_back, mut failed) = (0, 0, 0);
    dut.set("reset", true);
    dut.low();
    dut.high();
    dut.set("reset", false);
    let mut step = 0;
    let mut idle = 0;
    loop {
        let draining = step >= steps;
        let stretch = step * 16 / steps;
        let give = [100, 60, 90, 30][stretch % 4];
        let take = if draining {
            100
        } else {
            [100, 60, 30, 8][stretch / 2 % 4]
        };
        let take_responds = if draining {
            100
        } else {
            [100, 50, 1, 20][stretch % 4]
        };
        let n = rng.random_range(0..QPS);
        let frozen = rest == Some(n);
        let qp = &mut qps[n];
        if !draining && !frozen && qp.valid {
            if launches.len() < 3 && qp.launched - qp.finished < 16 && chance(&mut rng, 30) {
                let item = launch(qp, n, &mut rng);
                let slot = (qp.launched % 16) as usize;
                qp.launched += 1;
                qp.unsure[slot] = true;
                for a in asked.iter_mut().chain(queries.iter_mut().map(|q| &mut q.1)) {
                    a.sure &= a.qpn != n || a.slot != Some(slot);
                }
                full += usize::from(qp.launched - qp.finished == 16);
                launches.push_back(item);
                qp.touched = step;
            }
            // What the block must not look at: a WRITE, a READ that cannot be sent, and an answer to the peer.
            if launches.len() < 3 && chance(&mut rng, 5) {
                let mut item = launch(qp, n, &mut rng);
                match rng.random_range(0..3) {
                    0 => item.opcode = bits(rng.random_range(0..2)),
                    1 => item.packets = bits(0),
                    _ => item.response = true,
                }
                item.wsn = bits(rng.random_range(0..16));
                launches.push_back(item);
                qp.touched = step;
            }
            if events.len() < 3 && chance(&mut rng, 60) {
                if let Some(event) = arrive(qp, n, &mut rng) {
                    events.push_back(event);
                }
                qp.touched = step;
            }
        }
        if !draining && !frozen && queries.len() < 3 && chance(&mut rng, 60) {
            queries.push_back(ask(qp, n, &mut rng, now));
            qp.touched = step;
        }
        if !draining && events.len() < 3 && rng.random_range(0..200) == 0 {
            events.push_back(ReadEvent {
                marker: true,
                ..ReadEvent::default()
            });
        }
        // A queue pair comes to rest before its command. None is given while the block may stand still.
        if rest.is_none() && !draining {
            let absent = (0..QPS).find(|&n| !qps[n].valid);
            if let Some(n) = absent.or_else(|| chance(&mut rng, 1).then_some(n)) {
                rest = Some(n);
                hold = chance(&mut rng, 50);
            }
        }
        if let (Some(n), None) = (rest, &command) {
            let on_way = launches.iter().any(|l| l.qpn.index() == n)
                || events.iter().any(|e| e.qpn.index() == n)
                || queries.iter().any(|q| q.1.qpn == n)
                || asked.iter().any(|a| a.qpn == n)
                || !dones.is_empty()
                || !markers.is_empty();
            if cfg_low && !on_way && step > qps[n].touched + 150 {
                let (op, mask) = if !qps[n].valid {
                    (Opcode::CreateQp, 0)
                } else {
                    [
                        (Opcode::DestroyQp, 0),
                        (Opcode::ModifyQp, MASK_SENDER),
                        (Opcode::ModifyQp, MASK_RECEIVER),
                        (Opcode::ModifyQp, MASK_SENDER | MASK_RECEIVER),
                        (Opcode::ModifyQp, MASK_STATE),
                        (Opcode::QueryQp, 0xff),
                    ][rng.random_range(0..6)]
                };
                let mut image = [0; qp_image::BYTES];
                qp_image::MASK.set(&mut image, mask);
                dut.set(
                    "cfg",
                    CfgReq {
                        op: bits(op as u64),
                        index: bits(n as u64),
                        image: bits_of_bytes(&image),
                    },
                );
                command = Some((n, op, mask));
            }
        }
        dut.set("cfg_valid", command.is_some());
        let launch_valid = !launches.is_empty() && chance(&mut rng, give);
        let event_valid = !events.is_empty() && chance(&mut rng, give);
        let query_valid = !queries.is_empty() && chance(&mut rng, give);
        if launch_valid {
            dut.set("launch", launches[0]);
        }
        if event_valid {
            dut.set("arrival", events[0]);
        }
        if query_valid {
            dut.set("query", queries[0].0);
        }
        // An ATOMIC fails when its queue pair is at rest, so that nothing is on its way that would have to be forgotten.
        if let (Some(n), Some(first)) = (rest, results.front_mut()) {
            let quiet = command.is_none() && step > qps[n].touched + 140;
            let its = first.qpn.index() == n && qps[n].out == Out::Yes;
            first.failed |= quiet && its && chance(&mut rng, 30);
        }
        // A result that says so is given before a command comes.
        let fails = results.front().is_some_and(|first| first.failed);
        let result_valid =
            !results.is_empty() && step > result_due && (fails || chance(&mut rng, give));
        // Now and then a command overtakes what becomes of an answer.
        let held = hold && rest.is_some() && fates.front().map(|f| f.qpn.index()) == rest;
        let fate_valid = !fates.is_empty() && !held && chance(&mut rng, give);
        if result_valid {
            dut.set("result", results[0]);
        }
        if fate_valid {
            dut.set("responded", fates[0]);
        }
        dut.set("result_valid", result_valid);
        dut.set("responded_valid", fate_valid);
        dut.set("atomics_busy", !results.is_empty());
        dut.set("launch_valid", launch_valid);
        dut.set("arrival_valid", event_valid);
        dut.set("query_valid", query_valid);
        let ready = [
            chance(&mut rng, take),
            chance(&mut rng, take_responds),
            chance(&mut rng, take),
        ];
        dut.set("answer_ready", ready[0]);
        dut.set("respond_ready", ready[1]);
        dut.set("execute_ready", ready[1] && results.len() < 3);
        dut.set("done_ready", ready[2]);
        dut.low();

        if ready[0] && dut.bit("answer_valid") {
            let Asked { answer, sure, .. } = asked.pop_front().expect("a question");
            let got = dut.bytes("answer");
            let hit = got[0] & 1 == 1;
            assert!(!sure || hit == answer.hit, "step {step}: hit {hit}");
            if hit && sure {
                assert_eq!(got, encode(answer), "step {step}");
            }
            *(if hit { &mut hits } else { &mut misses }) += 1;
        }
        if ready[1] && results.len() < 3 && dut.bit("execute_valid") {
            let got = dut.bytes("execute");
            let qp = &mut qps[usize::from(got[0])];
            assert!(
                qp.out == Out::No,
                "step {step}: the last answer is still out"
            );
            let original = rng.random();
            let old = qp.old.drain(..).any(|old| old.is_executed_by(&got));
            let next = qp
                .responds
                .front_mut()
                .filter(|next| next.is_executed_by(&got));
            if let Some(next) = next {
                next.op = None;
                next.respond.iova = bits(original);
                qp.out = Out::Yes;
            } else {
                assert!(old, "step {step}: executes {got:02x?}");
                qp.out = Out::Old;
            }
            results.push_back(AtomicResult {
                qpn: bits(u64::from(got[0])),
                original: bits(original),
                failed: false,
            });
            executed += 1;
            // As long as a read over PCIe may take.
            result_due = step + rng.random_range(0..60);
        }
        if ready[1] && dut.bit("respond_valid") {
            let got = dut.bytes("respond");
            let n = usize::from(got[0]);
            let qp = &mut qps[n];
            assert!(
                qp.out == Out::No,
                "step {step}: the last answer is still out"
            );
            let old = qp.old.drain(..).any(|old| old.is_given_by(&got));
            if qp
                .responds
                .front()
                .is_some_and(|next| next.is_given_by(&got))
            {
                qp.out = Out::Yes;
                responded += 1;
            } else {
                assert!(old, "step {step}: answers {got:02x?}");
                qp.out = Out::Old;
                dropped += 1;
            }
            fates.push_back(Responded {
                qpn: bits(n as u64),
                taken: chance(&mut rng, 70),
            });
        }
        if result_valid && dut.bit("result_ready") {
            let result = results.pop_front().expect("was given");
            let qp = &mut qps[result.qpn.index()];
            qp.out = Out::No;
            if result.failed {
                qp.die();
                failed += 1;
            }
        }
        if fate_valid && dut.bit("responded_ready") {
            let fate = fates.pop_front().expect("was given");
            let qp = &mut qps[fate.qpn.index()];
            if qp.out == Out::Yes && fate.taken {
                qp.responds.pop_front();
                qp.answered += 1;
            }
            sent_back += usize::from(!fate.taken);
            qp.out = Out::No;
        }
        if ready[2] && dut.bit("done_valid") {
            let n = dones.pop_front().expect("a READ that ended");
            let expected = QpMark {
                qpn: bits(n as u64),
            };
            assert_eq!(dut.bytes("done"), encode(expected), "step {step}");
            let qp = &mut qps[n];
            let slot = (qp.finished % 16) as usize;
            qp.finished += 1;
            qp.own[slot] = None;
            qp.unsure[slot] = false;
            qp.touched = step;
            done_seen += 1;
        }
        if dut.bit("rx_marker") {
            let before = markers.pop_front().expect("a marker");
            assert!(before <= done_seen, "step {step}: a marker overtakes");
            assert!(results.is_empty(), "step {step}: an ATOMIC goes on");
            marked += 1;
        }
        let answered = dut.bit("cfg_done");
        if launch_valid && dut.bit("launch_ready") {
            let item = launches.pop_front().expect("was given");
            let qp = &mut qps[item.qpn.index()];
            let opens = item.opcode.index() >= WrOpcode::RdmaRead as usize;
            if opens && item.packets.any() && !item.response {
                let slot = item.wsn.index();
                qp.own[slot] = Some(Own {
                    iova: encode(item.iova)
                        .iter()
                        .rev()
                        .fold(0, |a, &b| a << 8 | u64::from(b)),
                    length: item.length.index() as u64,
                    mtu: item.mtu.index() as u64,
                    atomic: item.opcode.index() != WrOpcode::RdmaRead as usize,
                    since: now,
                });
                qp.unsure[slot] = false;
            }
            qp.touched = step;
        }
        if event_valid && dut.bit("arrival_ready") {
            let event = events.pop_front().expect("was given");
            let n = event.qpn.index();
            if event.marker {
                markers.push_back(done_given);
            } else {
                qps[n].touched = step;
                done_given += finish(&mut qps[n], n, &event, &mut dones);
                for a in asked.iter_mut().chain(queries.iter_mut().map(|q| &mut q.1)) {
                    a.sure &= a.qpn != n || !a.slot.is_some_and(|slot| qps[n].unsure[slot]);
                }
            }
            most_due = most_due.max(qps[n].responds.len());
        }
        if query_valid && dut.bit("query_ready") {
            asked.push_back(queries.pop_front().expect("was given").1);
        }
        cfg_low = command.is_none();
        if answered {
            let (n, op, mask) = command.take().expect("a command");
            rest = None;
            restart(&mut qps[n], op, mask, &mut rng);
            commands += 1;
        }
        let busy = dut.bit("busy");
        dut.high();
        step += 1;
        // Reports of own READs may stop it when they fill their queue; markers wait for them.
        now += usize::from(dones.len() < 12 && markers.is_empty());
        let given = launches.is_empty()
            && events.is_empty()
            && queries.is_empty()
            && results.is_empty()
            && fates.is_empty();
        idle = if draining && given && command.is_none() && !busy {
            idle + 1
        } else {
            0
        };
        if idle > 10 {
            break;
        }
        assert!(step < 2 * steps + 5000, "does not drain");
    }
    assert!(dones.is_empty() && markers.is_empty() && asked.is_empty());
    assert!(qps.iter().all(|qp| qp.responds.is_empty()));
    println!("{responded} answers (up to {most_due} waited, {dropped} dropped, {sent_back} sent back), {executed} ATOMICs ({failed} failed)");
    println!("{done_seen} own READs, {full} times all slots");
    println!("{hits} hits, {misses} misses, {marked} markers, {commands} commands");
    assert!(responded > steps / 40 && done_seen > steps / 60 && marked > 0 && commands >= 3);
    assert!(hits > steps / 60 && misses > steps / 60);
    assert!(executed > steps / 200 && sent_back > steps / 200);
    assert!(steps < 10_000 || (most_due == 16 && full > 0 && commands > 30 && failed > 0));
}

/// What an event lets go on: the peer's READs that may be answered, the own READs that are done; in the order of PSNs.
fn finish(qp: &mut Qp, n: usize, event: &ReadEvent, dones: &mut VecDeque<usize>) -> usize {
    let psn = event.psn.index() as u32;
    if event.request {
        let respond = Respond {
            qpn: event.qpn,
            life: bits(qp.life),
            slot: event.slot,
            iova: event.iova,
            length: event.length,
            atomic: event.atomic,
        };
        let op = event.atomic.then_some(AtomicOp {
            qpn: event.qpn,
            iova: event.iova,
            swap: event.swap,
            swap_add: event.swap_add,
            compare: event.compare,
        });
        qp.asked_for.push((psn, Answer { respond, op }));
    }
    if event.tail {
        qp.ended.push((psn, event.slot.index()));
    }
    let aack = event.aack.index() as u32;
    qp.responds.extend(passed(&mut qp.asked_for, aack));
    let ended = passed(&mut qp.ended, aack);
    for slot in &ended {
        qp.unsure[*slot] = true;
        dones.push_back(n);
    }
    ended.len()
}

/// Takes out what is before `aack`, in the order of PSNs.
fn passed<T: Copy>(arrived: &mut Vec<(u32, T)>, aack: u32) -> Vec<T> {
    let before = |psn: u32| aack.wrapping_sub(psn).wrapping_sub(1) & 0xff_ffff;
    let mut passed = arrived.clone();
    passed.retain(|(psn, _)| before(*psn) < 1 << 23);
    arrived.retain(|(psn, _)| before(*psn) >= 1 << 23);
    passed.sort_by_key(|(psn, _)| std::cmp::Reverse(before(*psn)));
    passed.into_iter().map(|(_, what)| what).collect()
}

/// What a command makes of a queue pair.
fn restart(qp: &mut Qp, op: Opcode, mask: u64, rng: &mut ChaCha8Rng) {
    let whole = op == Opcode::CreateQp || op == Opcode::DestroyQp;
    let modifies = op == Opcode::ModifyQp;
    let sender = whole || modifies && mask & MASK_SENDER != 0;
    let receiver = whole || modifies && mask & MASK_RECEIVER != 0;
    if op == Opcode::CreateQp {
        qp.life = (qp.life + 1) % 16;
    }
    if whole {
        qp.valid = op == Opcode::CreateQp;
    }
    if sender || receiver {
        // What has arrived is counted in the PSNs before the command.
        qp.ended.clear();
        qp.planned = qp.finished;
        for (kind, _) in &mut qp.ahead {
            if matches!(kind, Kind::Tail { .. }) {
                *kind = Kind::Plain;
            }
        }
    }
    if sender {
        qp.own = [None; 16];
        qp.unsure = [false; 16];
        (qp.launched, qp.finished, qp.planned) = (0, 0, 0);
    }
    if receiver {
        qp.old.extend(qp.responds.front());
        if qp.out != Out::No {
            qp.out = Out::Old;
            qp.old.clear();
        }
        qp.responds.clear();
        qp.dead = false;
        (qp.asked, qp.answered) = (0, 0);
        qp.aack = [rng.random_range(0..1 << 24), 0xff_fff0][rng.random_range(0..2)];
        qp.ahead.clear();
        qp.asked_for.clear();
        qp.ended.clear();
    }
}

both!(read_book, bench, Block::new(), 1000);
