//! Random actions and frames against a plain list of what must come out, in which order.

use crate::support::{chance, encode, rng, Dut};
use crate::{both, ports};
use mprdma_hw::leaf::Beat;
use mprdma_hw::nic::place::Place;
use mprdma_hw::nic::types::{AckCmd, Completion, DmaWriteReq, ReadEvent, RxAction};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rust_hdl_core::prelude::*;
use std::collections::{HashMap, VecDeque};

type Block = Place<3, 8>;

ports!(Block, clock: reset action action_valid frame frame_valid written request_ready data_ready ack_ready
    completion_ready arrival_ready => action_ready frame_ready request request_valid data data_valid ack ack_valid completion
    completion_valid arrival arrival_valid busy);

/// What an action must bring about, with its place in the order of things.
#[derive(Default)]
struct Expected {
    requests: VecDeque<DmaWriteReq>,
    data: VecDeque<Beat>,
    /// With the beats that must have gone before.
    acks: VecDeque<(AckCmd, usize)>,
    /// With the writes that must be on the bus before.
    completions: VecDeque<(Completion, usize)>,
    /// With the writes and completions that must be done before.
    events: VecDeque<(ReadEvent, usize, usize)>,
}

/// The receiver engine's side: which receive WQEs are stored and due, per QP.
#[derive(Default)]
struct Qp {
    due: u32,
    stored: HashMap<u32, (u64, u64)>,
}

struct Source {
    qps: Vec<Qp>,
    actions: VecDeque<RxAction>,
    frames: VecDeque<Beat>,
    expected: Expected,
    beats: usize,
    writes: usize,
    completions: usize,
    /// Values without a frame.
    values: usize,
}

impl Source {
    fn new() -> Self {
        let mut qps: Vec<Qp> = (0..8).map(|_| Qp::default()).collect();
        // Two QPs are about to wrap.
        qps[1].due = 0xff_fff0;
        qps[2].due = 0xfff8;
        Self {
            qps,
            actions: VecDeque::new(),
            frames: VecDeque::new(),
            expected: Expected::default(),
            beats: 0,
            writes: 0,
            completions: 0,
            values: 0,
        }
    }

    /// Appends an action, its frame and what must follow.
    fn add(&mut self, rng: &mut ChaCha8Rng) {
        let number = rng.random_range(0..8_usize);
        let mut action = RxAction {
            qpn: bits(number as u64),
            iova: bits(rng.random()),
            cqn: bits(rng.random_range(0..64)),
            ..RxAction::default()
        };
        let mut value = false;
        match rng.random_range(0..100) {
            0..50 => action.place = true,
            50..60 => value = true,
            60..75 => action.discard = true,
            75..78 => {
                action.marker = true;
                let event = ReadEvent {
                    qpn: action.qpn,
                    marker: true,
                    ..ReadEvent::default()
                };
                let done = (event, self.writes, self.completions);
                self.expected.events.push_back(done);
            }
            _ => {}
        }
        if action.place || action.discard {
            let header = rng.random_range(54..=110);
            let length = match rng.random_range(0..4) {
                0 => rng.random_range(1..20),
                1 => 256,
                _ => rng.random_range(1..600),
            };
            action.header = bits(header);
            action.length = bits(length);
            // Pad, ICRC and Ethernet padding follow the payload.
            let total = header + length.next_multiple_of(4) + 4 + rng.random_range(0..4);
            let bytes: Vec<u8> = (0..total).map(|_| rng.random()).collect();
            let beats = Beat::of_packet(&bytes);
            if action.place {
                self.writes += 1;
                self.beats += beats.len();
                self.expected.data.extend(beats.iter().copied());
                self.expected.requests.push_back(DmaWriteReq {
                    iova: action.iova,
                    length: action.length,
                    skip: action.header,
                });
            }
            self.frames.extend(beats);
        }
        action.swap_add = bits(rng.random());
        action.compare = bits(rng.random());
        // An ATOMIC ACK: its value is one beat, and there is no frame.
        if value {
            (action.place, action.atomic) = (true, true);
            action.length = bits(8);
            action.header = bits(rng.random_range(54..=110));
            self.writes += 1;
            self.beats += 1;
            self.values += 1;
            self.expected
                .data
                .push_back(Beat::new(&action.swap_add.to_u64().to_le_bytes(), true));
            self.expected.requests.push_back(DmaWriteReq {
                iova: action.iova,
                length: bits(8),
                skip: bits(0),
            });
        }
        if !action.marker {
            action.ack = AckCmd {
                qpn: action.qpn,
                sack: bits(rng.random_range(0..1 << 24)),
                aack: bits(rng.random_range(0..1 << 24)),
                flags: bits(rng.random_range(0..256)),
                map: encode_map(rng),
                ..AckCmd::default()
            };
        }
        if !action.marker && chance(rng, 80) {
            action.ack_valid = true;
            self.expected.acks.push_back((action.ack, self.beats));
        }
        let qp = &mut self.qps[number];
        let wsn = (qp.due + rng.random_range(0..32)) & 0xff_ffff;
        if !action.marker && chance(rng, 60) && !qp.stored.contains_key(&wsn) {
            let (imm, byte_len) = (rng.random_range(0..1 << 32), rng.random_range(0..1 << 31));
            action.store = true;
            action.wsn = bits(wsn.into());
            action.imm = bits(imm);
            action.byte_len = bits(byte_len);
            qp.stored.insert(wsn, (imm, byte_len));
        }
        if !action.marker {
            action.request = !action.store && !action.place && chance(rng, 30);
            action.read_tail = !action.store && !action.request && chance(rng, 20);
            action.advances = chance(rng, 40);
        }
        if action.request {
            (action.atomic, action.swap) = (rng.random(), rng.random());
        }
        if action.request || action.read_tail {
            action.wsn = bits(rng.random_range(0..16));
            action.byte_len = bits(rng.random_range(0..1 << 31));
        }
        if action.request || action.read_tail || action.advances {
            let event = ReadEvent {
                qpn: action.qpn,
                aack: action.ack.aack,
                request: action.request,
                tail: action.read_tail,
                psn: action.ack.sack,
                slot: action.wsn.get_bits::<4>(0),
                iova: action.iova,
                length: action.byte_len,
                atomic: action.request && action.atomic,
                swap: action.swap,
                swap_add: action.swap_add,
                compare: action.compare,
                marker: false,
            };
            self.expected.events.push_back((event, self.writes, 0));
        }
        action.due_wsn = bits(qp.due.into());
        // Usually as many as there are; sometimes none, so that a batch grows to 32.
        if !action.marker && chance(rng, 30) {
            let mut due = 0;
            while let Some((imm, byte_len)) = qp.stored.remove(&qp.due) {
                self.completions += 1;
                self.expected.completions.push_back((
                    Completion {
                        cqn: action.cqn,
                        qpn: action.qpn,
                        wqe_index: bits(u64::from(qp.due & 0xffff)),
                        byte_len: bits(byte_len),
                        imm: bits(imm),
                        with_imm: true,
                        status: bits(0),
                        opcode: bits(0x81),
                    },
                    self.writes,
                ));
                qp.due = (qp.due + 1) & 0xff_ffff;
                due += 1;
            }
            action.due = bits(due);
        }
        self.actions.push_back(action);
    }
}

fn encode_map(rng: &mut ChaCha8Rng) -> Bits<128> {
    mprdma_hw::leaf::beat::bits_of_bytes(&rng.random::<[u8; 16]>())
}

fn bench(dut: &mut impl Dut, steps: usize) {
    let mut rng = rng(21);
    let mut source = Source::new();
    let (mut beats_done, mut completions_done, mut markers_done, mut events_done) = (0, 0, 0, 0);
    let (mut asked, mut written) = (0, 0);
    let mut most_due = 0;
    let mut ends = 0;
    dut.set("reset", true);
    dut.low();
    dut.high();
    dut.set("reset", false);
    let mut step = 0;
    loop {
        // Free flow, then a slow side after the other, then drain.
        let phase = step * 8 / steps;
        let (give, take, write) = match phase % 4 {
            0 => (100, 100, 100),
            1 => (90, 50, 60),
            2 => (40, 95, 90),
            _ => (100, 80, 10),
        };
        let draining = step >= steps;
        if !draining && source.actions.len() < 4 {
            source.add(&mut rng);
            let last = source.actions.back().expect("just added");
            most_due = most_due.max(last.due.index());
        }
        let action = source.actions.front().copied();
        let action_valid = action.is_some() && chance(&mut rng, give);
        let frame = source.frames.front().copied();
        let frame_valid = frame.is_some() && chance(&mut rng, give);
        if let Some(action) = action {
            dut.set("action", action);
        }
        if let Some(frame) = frame {
            dut.set("frame", frame);
        }
        dut.set("action_valid", action_valid);
        dut.set("frame_valid", frame_valid);
        let ready: Vec<bool> = (0..5).map(|_| chance(&mut rng, take)).collect();
        dut.set("request_ready", ready[0]);
        dut.set("data_ready", ready[1]);
        dut.set("ack_ready", ready[2]);
        dut.set("completion_ready", ready[3]);
        dut.set("arrival_ready", ready[4]);
        // A write reaches the bus some time after its last beat was handed over.
        let writes = written < ends.min(asked) && chance(&mut rng, write);
        dut.set("written", writes);
        dut.low();
        if dut.bit("request_valid") && ready[0] {
            let request = source.expected.requests.pop_front().expect("a request");
            assert_eq!(dut.bytes("request"), encode(request));
            asked += 1;
        }
        if dut.bit("ack_valid") && ready[2] {
            let (ack, beats) = source.expected.acks.pop_front().expect("an ACK");
            assert_eq!(dut.bytes("ack"), encode(ack));
            assert!(beats <= beats_done, "ACK before its payload");
        }
        if dut.bit("data_valid") && ready[1] {
            let beat = source.expected.data.pop_front().expect("a beat");
            assert_eq!(dut.beat("data"), beat);
            beats_done += 1;
            ends += usize::from(beat.last);
        }
        if dut.bit("completion_valid") && ready[3] {
            let (completion, writes) = source.expected.completions.pop_front().expect("one");
            assert_eq!(dut.bytes("completion"), encode(completion));
            assert!(writes <= written, "completion before its data");
            completions_done += 1;
        }
        if dut.bit("arrival_valid") && ready[4] {
            let (event, writes, completions) = source.expected.events.pop_front().expect("one");
            let got = dut.bytes("arrival");
            if event.marker {
                // The last bit says that it is one; the QPN is all else that means something.
                let all = encode(event);
                assert!(got[..2] == all[..2] && got.last() >= all.last());
            } else {
                assert_eq!(got, encode(event));
            }
            assert!(writes <= written, "an event before its data");
            assert!(
                completions <= completions_done,
                "a marker before a completion"
            );
            markers_done += usize::from(event.marker);
            events_done += 1;
        }
        if action_valid && dut.bit("action_ready") {
            source.actions.pop_front();
        }
        if frame_valid && dut.bit("frame_ready") {
            source.frames.pop_front();
        }
        written += usize::from(writes);
        dut.high();
        step += 1;
        if draining && source.actions.is_empty() && !dut.bit("busy") {
            break;
        }
        assert!(step < 3 * steps + 3000, "does not drain");
    }
    let left = &source.expected;
    assert!(left.requests.is_empty() && left.data.is_empty() && left.acks.is_empty());
    assert!(left.completions.is_empty() && left.events.is_empty());
    println!("{beats_done} beats, {completions_done} completions, up to {most_due} at once, {events_done} events, {markers_done} markers");
    assert!(
        beats_done > steps / 4 && completions_done > 0 && markers_done > 0 && source.values > 0
    );
}

both!(place, bench, Block::default(), 900);

/// Frames of 5 beats, each placed, acknowledged and completed: no idle cycle in the stream of beats.
#[test]
fn keeps_the_rate() {
    mprdma_hw::with_big_stack(|| {
        let mut dut = crate::support::verilated(Block::default(), "place");
        let frame = Beat::of_packet(&[7; 300]);
        let (mut given, mut beat) = (0_u64, 0);
        let mut moved = vec![];
        let mut delay = VecDeque::from(vec![false; 15]);
        for ready in [
            "request_ready",
            "data_ready",
            "ack_ready",
            "completion_ready",
            "arrival_ready",
        ] {
            dut.set(ready, true);
        }
        dut.set("reset", true);
        dut.low();
        dut.set("reset", false);
        let mut completions = 0;
        for cycle in 0..2000 {
            dut.set(
                "action",
                RxAction {
                    place: true,
                    length: bits(200),
                    header: bits(70),
                    ack_valid: true,
                    store: true,
                    wsn: bits(given),
                    due: bits(1),
                    due_wsn: bits(given),
                    advances: true,
                    ..RxAction::default()
                },
            );
            dut.set("action_valid", true);
            dut.set("frame", frame[beat]);
            dut.set("frame_valid", true);
            dut.set("written", delay.pop_front().expect("a delay line"));
            dut.low();
            given += u64::from(dut.bit("action_ready"));
            if dut.bit("frame_ready") {
                beat = (beat + 1) % frame.len();
            }
            completions += u64::from(dut.bit("completion_valid"));
            let goes = dut.bit("data_valid");
            delay.push_back(goes && dut.beat("data").last);
            if goes {
                moved.push(cycle);
            }
        }
        assert_eq!(moved.len(), 2000 - moved[0], "a beat in every cycle");
        assert!(completions >= 2000 / 5 - 10, "{completions} completions");
    });
}
