//! Random packets, doorbells and errors: where each goes, in which order, with which answer of the region table.

use crate::support::{chance, encode, rng, Dut};
use crate::{both, ports};
use mprdma_hw::nic::rx_classify::RxClassify;
use mprdma_hw::nic::types::{
    AckEvent, Doorbell, MrAnswer, MrQuery, QpError, ReadQuery, RxEvent, RxMeta,
};
use mprdma_spec::wire::bth::opcode;
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rust_hdl_core::prelude::*;
use std::collections::VecDeque;

const QPW: usize = 6;
type Block = RxClassify<QPW>;

ports!(Block, clock: reset enable meta meta_valid rq_db rq_db_valid error error_valid answer answer_valid
    read_answer read_answer_valid ack_ready query_ready read_query_ready rx_ready => meta_ready rq_db_ready error_ready
    answer_ready read_answer_ready ack ack_valid query query_valid read_query read_query_valid rx rx_valid cnt_ack cnt_data cnt_no_qp busy);

/// Events of one source that must come out in order, with the number of events that were out when each came in.
type Queue = VecDeque<(RxEvent, usize)>;

#[derive(Default)]
struct Expected {
    packets: Queue,
    doorbells: Queue,
    errors: Queue,
    acks: VecDeque<AckEvent>,
    queries: VecDeque<MrQuery>,
    read_queries: VecDeque<ReadQuery>,
    /// ACKs, data packets, others.
    counts: [usize; 3],
    /// ATOMIC ACKs, ATOMICs, misaligned ones.
    atomics: [usize; 3],
}

const ATOMICS: [u8; 2] = [opcode::MP_COMPARE_SWAP, opcode::MP_FETCH_ADD];

/// What the region table of the test says.
fn answer(query: &MrQuery) -> MrAnswer {
    MrAnswer {
        hit: query.va.get_bit(3),
        rights: query.va.get_bits::<8>(8),
        pd: query.key.get_bits::<16>(7),
        iova: query.va + bit_cast::<64, 32>(query.length),
    }
}

/// What the READ book of the test says.
fn read_answer(query: &ReadQuery) -> MrAnswer {
    MrAnswer {
        hit: query.tail,
        pd: bits(query.atomic.into()),
        iova: bit_cast::<64, 24>(query.wsn)
            + (bit_cast::<64, 16>(query.offset) << 24)
            + (bit_cast::<64, 13>(query.length) << 40),
        ..MrAnswer::default()
    }
}

fn random_meta(rng: &mut ChaCha8Rng) -> RxMeta {
    let opcode = match rng.random_range(0..10) {
        0..3 => rng.random_range(opcode::MP_WRITE_FIRST..=opcode::MP_WRITE_ONLY_IMM),
        3 => rng.random_range(opcode::MP_READ_REQUEST..=opcode::MP_READ_RESPONSE_ONLY),
        4 => rng.random_range(opcode::MP_ATOMIC_ACK..=opcode::MP_FETCH_ADD),
        5..8 => opcode::MP_ACK,
        8 => [
            opcode::MP_WRITE_FIRST - 1,
            opcode::MP_FETCH_ADD + 1,
            opcode::RC_ACK,
            opcode::RC_WRITE_ONLY,
            opcode::CNP,
        ][rng.random_range(0..5)],
        _ => rng.random(),
    };
    let qpn = match rng.random_range(0..20) {
        0 => 1 << QPW,
        1 => rng.random_range(0..1 << 24),
        2 => (1 << QPW) - 1,
        // The low 16 bits name a QP, the QPN does not.
        3 => 0x1_0000 + rng.random_range(0..1 << QPW),
        _ => rng.random_range(0..1 << QPW),
    };
    RxMeta {
        opcode: bits(opcode.into()),
        qpn: bits(qpn),
        psn: bits(rng.random_range(0..1 << 24)),
        pkey: bits(rng.random_range(0..1 << 16)),
        ce: rng.random(),
        vp: bits(rng.random_range(0..1 << 16)),
        flags: bits(rng.random_range(0..1 << 8)),
        wsn: bits(rng.random_range(0..1 << 24)),
        offset: bits(rng.random_range(0..1 << 16)),
        stamp: bits(rng.random_range(0..1 << 16)),
        // Half of them multiples of 8.
        raddr: bits(rng.random::<u64>() & !(7 * rng.random_range(0..2))),
        rkey: bits(rng.random_range(0..1 << 32)),
        dma_length: bits(rng.random_range(0..1 << 32)),
        imm: bits(rng.random_range(0..1 << 32)),
        swap_add: bits(rng.random()),
        compare: bits(rng.random()),
        syndrome: bits(rng.random_range(0..1 << 8)),
        aack: bits(rng.random_range(0..1 << 24)),
        vp_echo: bits(rng.random_range(0..1 << 16)),
        map: mprdma_hw::leaf::beat::bits_of_bytes(&rng.random::<[u8; 16]>()),
        length: bits(rng.random_range(0..4097)),
        header: bits(rng.random_range(0..128)),
        stored: rng.random(),
    }
}

impl Expected {
    fn packet(&mut self, meta: &RxMeta, enable: bool, out: usize) {
        let known = enable && meta.qpn.index() < 1 << QPW;
        let code = meta.opcode.index() as u8;
        let mut event = RxEvent {
            kind: bits(0),
            qpn: meta.qpn.get_bits::<16>(0),
            psn: meta.psn,
            opcode: meta.opcode,
            pkey: meta.pkey,
            ce: meta.ce,
            vp: meta.vp,
            flags: meta.flags,
            wsn: meta.wsn,
            offset: meta.offset,
            stamp: meta.stamp,
            imm: meta.imm,
            dma_length: meta.dma_length,
            length: meta.length,
            header: meta.header,
            stored: meta.stored,
            mr: MrAnswer::default(),
            swap_add: meta.swap_add,
            compare: meta.compare,
            misaligned: ATOMICS.contains(&code) && meta.raddr.get_bits::<3>(0).any(),
        };
        let answers = (opcode::MP_READ_RESPONSE_FIRST..=opcode::MP_READ_RESPONSE_ONLY)
            .contains(&code)
            || code == opcode::MP_ATOMIC_ACK;
        if known && code == opcode::MP_ACK {
            self.counts[0] += 1;
            self.acks.push_back(AckEvent {
                qpn: event.qpn,
                sack: meta.psn,
                aack: meta.aack,
                flags: meta.flags,
                syndrome: meta.syndrome,
                vp: meta.vp_echo,
                stamp: meta.stamp,
                map: meta.map,
            });
        } else if known && answers {
            self.counts[1] += 1;
            let query = ReadQuery {
                qpn: event.qpn,
                wsn: meta.wsn,
                offset: meta.offset,
                length: if code == opcode::MP_ATOMIC_ACK {
                    bits(8)
                } else {
                    meta.length
                },
                tail: meta.flags.get_bit(2),
                atomic: code == opcode::MP_ATOMIC_ACK,
            };
            self.atomics[0] += usize::from(query.atomic);
            event.mr = read_answer(&query);
            self.read_queries.push_back(query);
            self.packets.push_back((event, out));
        } else if known
            && ((opcode::MP_WRITE_FIRST..=opcode::MP_READ_REQUEST).contains(&code)
                || ATOMICS.contains(&code))
        {
            self.counts[1] += 1;
            self.atomics[1] += usize::from(ATOMICS.contains(&code) && !event.misaligned);
            self.atomics[2] += usize::from(event.misaligned);
            let query = MrQuery {
                key: meta.rkey,
                va: meta.raddr,
                length: meta.dma_length,
            };
            event.mr = answer(&query);
            self.queries.push_back(query);
            self.packets.push_back((event, out));
        } else {
            self.counts[2] += 1;
            if meta.stored {
                event.kind = bits(1);
                self.packets.push_back((event, out));
            }
        }
    }
}

/// Fields that mean something: of a discard only that it is one, of a doorbell the index.
fn shown(event: &RxEvent) -> Vec<u8> {
    let kept = match event.kind.index() {
        0 => *event,
        1 => RxEvent {
            kind: event.kind,
            qpn: event.qpn,
            stored: event.stored,
            ..RxEvent::default()
        },
        2 => RxEvent {
            kind: event.kind,
            qpn: event.qpn,
            wsn: event.wsn,
            ..RxEvent::default()
        },
        _ => RxEvent {
            kind: event.kind,
            qpn: event.qpn,
            ..RxEvent::default()
        },
    };
    encode(kept)
}

/// Bits of the record that `shown` keeps.
fn mask(kind: u64) -> Vec<u8> {
    fn all<const N: usize>() -> Bits<N> {
        !Bits::<N>::default()
    }
    let mut mask = RxEvent {
        kind: all(),
        qpn: all(),
        ..RxEvent::default()
    };
    match kind {
        0 => return vec![0xff; RxEvent::BITS.div_ceil(8)],
        1 => mask.stored = true,
        2 => mask.wsn = all(),
        _ => mask.stored = true,
    }
    encode(mask)
}

fn bench(dut: &mut impl Dut, steps: usize) {
    let mut rng = rng(41);
    let mut expected = Expected::default();
    let (mut meta, mut doorbell, mut error) = (None, None, None);
    let mut answers: VecDeque<(MrAnswer, usize)> = VecDeque::new();
    let mut read_answers: VecDeque<(MrAnswer, usize)> = VecDeque::new();
    let mut counted = [0; 3];
    let (mut out, mut longest_wait) = (0_usize, 0);
    let mut kinds = [0; 4];
    dut.set("reset", true);
    dut.low();
    dut.high();
    dut.set("reset", false);
    let mut step = 0;
    while step < steps {
        // Each stretch ends with the block empty; one of four is disabled.
        let stretch = step * 8 / steps;
        let enable = stretch % 4 != 2;
        let give = [100, 50, 60, 95][stretch % 4];
        let take = [100, 90, 50, 12][stretch % 4];
        dut.set("enable", enable);
        let end = (stretch + 1) * steps / 8;
        loop {
            let feeding = step + 40 < end;
            let meta_valid = (feeding || meta.is_some()) && chance(&mut rng, give);
            let rq_db_valid = (feeding || doorbell.is_some()) && chance(&mut rng, 12);
            let error_valid = (feeding || error.is_some()) && chance(&mut rng, 1);
            if meta_valid {
                dut.set("meta", *meta.get_or_insert_with(|| random_meta(&mut rng)));
            }
            if rq_db_valid {
                let item = *doorbell.get_or_insert_with(|| Doorbell {
                    number: bits(rng.random_range(0..1 << QPW)),
                    index: bits(rng.random_range(0..1 << 16)),
                    arm: false,
                });
                dut.set("rq_db", item);
            }
            if error_valid {
                let item = *error.get_or_insert_with(|| QpError {
                    qpn: bits(rng.random_range(0..1 << QPW)),
                    status: bits(rng.random_range(1..20)),
                });
                dut.set("error", item);
            }
            dut.set("meta_valid", meta_valid);
            dut.set("rq_db_valid", rq_db_valid);
            dut.set("error_valid", error_valid);
            let ready: Vec<bool> = (0..4).map(|_| chance(&mut rng, take)).collect();
            dut.set("ack_ready", ready[0]);
            dut.set("query_ready", ready[1]);
            dut.set("rx_ready", ready[2]);
            dut.set("read_query_ready", ready[3]);
            let answers_now = answers.front().filter(|(_, at)| *at <= step).copied();
            if let Some((answer, _)) = answers_now {
                dut.set("answer", answer);
            }
            dut.set("answer_valid", answers_now.is_some());
            let read_now = read_answers.front().filter(|(_, at)| *at <= step).copied();
            if let Some((answer, _)) = read_now {
                dut.set("read_answer", answer);
            }
            dut.set("read_answer_valid", read_now.is_some());
            dut.low();

            if answers_now.is_some() && dut.bit("answer_ready") {
                answers.pop_front();
            }
            if read_now.is_some() && dut.bit("read_answer_ready") {
                read_answers.pop_front();
            }
            if ready[3] && dut.bit("read_query_valid") {
                let query = expected.read_queries.pop_front().expect("a query");
                assert_eq!(dut.bytes("read_query"), encode(query));
                read_answers.push_back((read_answer(&query), step + rng.random_range(1..12)));
            }
            if ready[0] && dut.bit("ack_valid") {
                let ack = expected.acks.pop_front().expect("an ACK");
                assert_eq!(dut.bytes("ack"), encode(ack));
            }
            if ready[1] && dut.bit("query_valid") {
                let query = expected.queries.pop_front().expect("a query");
                assert_eq!(dut.bytes("query"), encode(query));
                answers.push_back((answer(&query), step + rng.random_range(1..8)));
            }
            if ready[2] && dut.bit("rx_valid") {
                let kind = dut.get("rx") & 3;
                kinds[kind as usize] += 1;
                let queue = match kind {
                    2 => &mut expected.doorbells,
                    3 => &mut expected.errors,
                    _ => &mut expected.packets,
                };
                let (event, came) = queue.pop_front().expect("an event");
                let got: Vec<u8> = dut
                    .bytes("rx")
                    .iter()
                    .zip(mask(kind))
                    .map(|(a, b)| a & b)
                    .collect();
                assert_eq!(got, shown(&event));
                if kind >= 2 {
                    longest_wait = longest_wait.max(out - came);
                }
                out += 1;
            }
            for (count, port) in counted.iter_mut().zip(["cnt_ack", "cnt_data", "cnt_no_qp"]) {
                *count += usize::from(dut.bit(port));
            }
            if meta_valid && dut.bit("meta_ready") {
                expected.packet(&meta.take().expect("was given"), enable, out);
            }
            if rq_db_valid && dut.bit("rq_db_ready") {
                let item = doorbell.take().expect("was given");
                let event = RxEvent {
                    kind: bits(2),
                    qpn: item.number,
                    wsn: bit_cast::<24, 16>(item.index),
                    ..RxEvent::default()
                };
                expected.doorbells.push_back((event, out));
            }
            if error_valid && dut.bit("error_ready") {
                let item = error.take().expect("was given");
                let event = RxEvent {
                    kind: bits(3),
                    qpn: item.qpn,
                    ..RxEvent::default()
                };
                expected.errors.push_back((event, out));
            }
            let busy = dut.bit("busy");
            dut.high();
            step += 1;
            let given = meta.is_none() && doorbell.is_none() && error.is_none();
            if !feeding && given && !busy && step >= end {
                break;
            }
            assert!(step < end + 3000, "does not drain");
        }
        assert_eq!(counted, expected.counts);
    }
    assert!(expected.packets.is_empty() && expected.doorbells.is_empty());
    assert!(expected.errors.is_empty() && expected.acks.is_empty());
    println!("events by kind {kinds:?}, counts {counted:?}, an error or doorbell waited for at most {longest_wait} events");
    assert!(kinds[..3].iter().all(|&n| n > 0));
    assert!(expected.atomics.iter().all(|&n| n > 0));
    // Those already sorted (27), and one packet before each of the doorbells and errors that wait.
    assert!(longest_wait <= 90, "{longest_wait}");
}

both!(rx_classify, bench, Block::default(), 800);

/// A flood of data packets flows one per cycle.
#[test]
fn one_packet_per_cycle() {
    mprdma_hw::with_big_stack(|| {
        let mut dut = crate::support::verilated(Block::default(), "rx_classify");
        for port in [
            "enable",
            "meta_valid",
            "ack_ready",
            "query_ready",
            "read_query_ready",
            "rx_ready",
        ] {
            dut.set(port, true);
        }
        dut.set("reset", true);
        dut.low();
        dut.set("reset", false);
        dut.set(
            "meta",
            RxMeta {
                opcode: bits(opcode::MP_WRITE_ONLY.into()),
                ..RxMeta::default()
            },
        );
        let mut delivered = 0;
        for _ in 0..1000 {
            let asked = dut.bit("query_valid");
            dut.set("answer_valid", asked);
            dut.low();
            delivered += usize::from(dut.bit("rx_valid"));
        }
        println!("{delivered} packets in 1000 cycles");
        assert!(delivered >= 980);
    });
}
