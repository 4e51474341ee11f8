//! The Ethernet MAC of a card: sends at the line rate and holds the core back, receives at the pace of the wire.

use crate::lanes::{self, BEAT};
use crate::ports::Wide;
use crate::time::{Ps, Rate, FCS, GAP, PREAMBLE};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};

/// Shortest frame without FCS (IEEE 802.3 clause 4A.4.2); shorter ones are padded.
pub(crate) const MIN_FRAME: usize = 60;

/// What passed the MAC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MacCounters {
    /// Frames sent.
    pub tx_frames: u64,
    /// Bytes sent, without FCS.
    pub tx_bytes: u64,
    /// Beats that came too late to keep a frame gapless; a real MAC would have cut the frame off.
    pub tx_underruns: u64,
    /// Beats with a hole in `tkeep`, or a partial one before the last.
    pub tx_violations: u64,
    /// Frames received.
    pub rx_frames: u64,
    /// Bytes received, without FCS.
    pub rx_bytes: u64,
}

/// One beat of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beat {
    /// Bytes; byte 0 is first on the wire.
    pub data: Wide,
    /// Which count.
    pub keep: u64,
    /// Last of the frame.
    pub last: bool,
}

/// A frame that has left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// First bit of the preamble.
    pub start: Ps,
    /// End of the FCS.
    pub end: Ps,
    /// The frame without FCS.
    pub frame: Vec<u8>,
}

/// The sending half.
pub struct Transmit {
    rate: Rate,
    fifo: usize,
    /// When each accepted beat has left.
    leaving: VecDeque<Ps>,
    frame: Vec<u8>,
    start: Ps,
    /// When the last accepted byte has left.
    sent_at: Ps,
    /// When the next frame may start.
    free_at: Ps,
}

impl Transmit {
    /// With the line rate and the depth of the FIFO in beats.
    pub fn new(rate: Rate, fifo: usize) -> Transmit {
        Transmit {
            rate,
            fifo,
            leaving: VecDeque::new(),
            frame: vec![],
            start: 0,
            sent_at: 0,
            free_at: 0,
        }
    }

    /// Whether the FIFO has room for another beat.
    pub fn ready(&mut self, now: Ps) -> bool {
        while self.leaving.front().is_some_and(|&at| at <= now) {
            self.leaving.pop_front();
        }
        self.leaving.len() < self.fifo
    }

    /// Whether no frame is half accepted.
    pub fn is_idle(&self) -> bool {
        self.frame.is_empty()
    }

    /// Drops a half accepted frame (reset).
    pub fn clear(&mut self) {
        self.frame.clear();
    }

    /// Takes a beat; with the last one the frame is complete.
    pub fn accept(&mut self, now: Ps, beat: &Beat, counters: &mut MacCounters) -> Option<Sent> {
        let count = beat.keep.trailing_ones() as usize;
        let whole = count == BEAT || (beat.last && count > 0);
        if beat.keep != lanes::keep(count) || !whole {
            counters.tx_violations += 1;
            tracing::error!(
                keep = format_args!("{:#x}", beat.keep),
                beat.last,
                "transmit beat breaks a rule"
            );
        }
        if self.frame.is_empty() {
            self.start = self.free_at.max(now);
            self.sent_at = self.start + self.rate.time(PREAMBLE);
        } else if now > self.sent_at {
            counters.tx_underruns += 1;
        }
        self.frame
            .extend_from_slice(&lanes::bytes(&beat.data)[..count]);
        let pad = if beat.last {
            MIN_FRAME.saturating_sub(self.frame.len())
        } else {
            0
        };
        self.sent_at = self.sent_at.max(now) + self.rate.time((count + pad) as u64);
        self.leaving.push_back(self.sent_at);
        if !beat.last {
            return None;
        }
        let mut frame = std::mem::take(&mut self.frame);
        frame.resize(frame.len() + pad, 0);
        let end = self.sent_at + self.rate.time(FCS);
        self.free_at = end + self.rate.time(GAP);
        counters.tx_frames += 1;
        counters.tx_bytes += frame.len() as u64;
        Some(Sent {
            start: self.start,
            end,
            frame,
        })
    }
}

/// A frame on its way in.
struct Incoming {
    last_bit: Ps,
    frame: Vec<u8>,
}

/// The receiving half.
#[derive(Default)]
pub struct Receive {
    /// By time of the first bit, then by age.
    queue: BTreeMap<(Ps, u64), Incoming>,
    age: u64,
    /// The frame being received and the bytes of it handed over.
    current: Option<((Ps, u64), Incoming, usize)>,
    /// The core does not see the current frame.
    hidden: bool,
    /// End of the frame before.
    free_at: Ps,
}

impl Receive {
    /// A frame will arrive between the two times.
    pub fn expect(&mut self, first_bit: Ps, last_bit: Ps, frame: Vec<u8>) {
        self.age += 1;
        self.queue
            .insert((first_bit, self.age), Incoming { last_bit, frame });
    }

    /// Whether no frame is known to come.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.current.is_none()
    }

    /// The core does not see the rest of the frame being received, because it is in reset.
    pub fn hide(&mut self) {
        self.hidden = self.current.is_some();
    }

    /// The beat whose last byte has arrived by `now`, at most one per call; with the last beat of a frame also the
    /// frame itself. There is no beat to see of a hidden frame.
    pub fn beat(
        &mut self,
        now: Ps,
        counters: &mut MacCounters,
    ) -> Option<(Option<Beat>, Option<Vec<u8>>)> {
        if self.current.is_none() {
            let (&(at, _), _) = self.queue.first_key_value()?;
            if at > now {
                return None;
            }
            let ((at, age), incoming) = self.queue.pop_first()?;
            // Two frames that faults put on top of each other come one after the other.
            let shift = self.free_at.saturating_sub(at);
            let incoming = Incoming {
                last_bit: incoming.last_bit + shift,
                ..incoming
            };
            self.current = Some(((at + shift, age), incoming, 0));
        }
        let ((first_bit, _), incoming, done) = self.current.as_mut()?;
        let len = incoming.frame.len();
        let count = (len - *done).min(BEAT);
        let on_wire = len as u64 + PREAMBLE + FCS;
        let upto = PREAMBLE + (*done + count) as u64;
        let due = *first_bit + (incoming.last_bit - *first_bit) * upto / on_wire;
        if due > now {
            return None;
        }
        let mut bytes = [0; BEAT];
        bytes[..count].copy_from_slice(&incoming.frame[*done..*done + count]);
        *done += count;
        let last = *done == len;
        let beat = Beat {
            data: lanes::words(&bytes),
            keep: lanes::keep(count),
            last,
        };
        let beat = (!self.hidden).then_some(beat);
        if !last {
            return Some((beat, None));
        }
        self.hidden = false;
        let (_, incoming, _) = self.current.take()?;
        self.free_at = incoming.last_bit;
        counters.rx_frames += 1;
        counters.rx_bytes += len as u64;
        Some((beat, Some(incoming.frame)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beats(frame: &[u8]) -> Vec<Beat> {
        let count = frame.len().div_ceil(BEAT);
        frame
            .chunks(BEAT)
            .enumerate()
            .map(|(i, chunk)| {
                let mut bytes = [0; BEAT];
                bytes[..chunk.len()].copy_from_slice(chunk);
                Beat {
                    data: lanes::words(&bytes),
                    keep: lanes::keep(chunk.len()),
                    last: i + 1 == count,
                }
            })
            .collect()
    }

    #[test]
    fn a_core_that_always_has_beats_sends_at_exactly_the_line_rate() {
        let (mut mac, mut counters) = (
            Transmit::new(Rate::from_gbps(100.0), 16),
            MacCounters::default(),
        );
        let frame: Vec<u8> = (0..1082).map(|i| i as u8).collect();
        let (mut sent, mut next, mut now) = (vec![], 0, 0);
        let all = beats(&frame);
        while sent.len() < 100 {
            if mac.ready(now) {
                sent.extend(mac.accept(now, &all[next], &mut counters));
                next = (next + 1) % all.len();
            }
            now += 4000;
        }
        assert!(sent
            .iter()
            .all(|s| s.frame == frame && s.end - s.start == (1082 + 12) * 80));
        assert_eq!(sent[99].start - sent[0].start, 99 * (1082 + 24) * 80);
        assert_eq!(
            (
                counters.tx_underruns,
                counters.tx_violations,
                counters.tx_frames
            ),
            (0, 0, 100)
        );
    }

    #[test]
    fn a_late_beat_is_an_underrun_and_a_hole_in_keep_a_violation() {
        let (mut mac, mut counters) = (
            Transmit::new(Rate::from_gbps(100.0), 16),
            MacCounters::default(),
        );
        let all = beats(&[1; 128]);
        assert_eq!(mac.accept(0, &all[0], &mut counters), None);
        let sent = mac.accept(100_000, &all[1], &mut counters).unwrap();
        assert_eq!((sent.end, counters.tx_underruns), (100_000 + 68 * 80, 1));
        mac.accept(
            200_000,
            &Beat {
                keep: 0b101,
                last: true,
                ..all[1]
            },
            &mut counters,
        );
        assert_eq!(counters.tx_violations, 1);
    }

    #[test]
    fn a_short_frame_is_padded() {
        let (mut mac, mut counters) = (
            Transmit::new(Rate::from_gbps(100.0), 16),
            MacCounters::default(),
        );
        let sent = mac.accept(0, &beats(&[7; 20])[0], &mut counters).unwrap();
        assert_eq!(
            (sent.frame.len(), sent.frame[19], sent.frame[20]),
            (60, 7, 0)
        );
    }

    #[test]
    fn a_frame_arrives_at_the_pace_of_the_wire() {
        let (mut mac, mut counters) = (Receive::default(), MacCounters::default());
        let frame: Vec<u8> = (0..200).map(|i| i as u8).collect();
        mac.expect(1_000_000, 1_000_000 + 212 * 320, frame.clone());
        let mut got = vec![];
        let mut done = None;
        for now in (0..2_000_000).step_by(4000) {
            if let Some((Some(beat), whole)) = mac.beat(now, &mut counters) {
                got.push((now, beat.keep.count_ones(), beat.last));
                done = done.or(whole);
            }
        }
        let due = |bytes: u64| (1_000_000 + (8 + bytes) * 320).div_ceil(4000) * 4000;
        assert_eq!(
            got,
            [
                (due(64), 64, false),
                (due(128), 64, false),
                (due(192), 64, false),
                (due(200), 8, true)
            ]
        );
        assert_eq!((done, mac.is_idle()), (Some(frame), true));
    }

    #[test]
    fn frames_that_overlap_are_received_one_after_the_other() {
        let (mut mac, mut counters) = (Receive::default(), MacCounters::default());
        mac.expect(2000, 2000 + 112 * 80, vec![2; 100]);
        mac.expect(1000, 1000 + 112 * 80, vec![1; 100]);
        let all: Vec<Vec<u8>> = (0..100_000)
            .step_by(4000)
            .filter_map(|t| mac.beat(t, &mut counters)?.1)
            .collect();
        assert_eq!(all, [vec![1; 100], vec![2; 100]]);
    }

    #[test]
    fn a_frame_that_begins_in_reset_stays_hidden_to_its_end() {
        let (mut mac, mut counters) = (Receive::default(), MacCounters::default());
        mac.expect(0, 212 * 80, vec![1; 200]);
        mac.expect(20_000, 20_000 + 112 * 80, vec![2; 100]);
        let mut shown = 0;
        for now in (0..100_000).step_by(4000) {
            if let Some((Some(beat), _)) = mac.beat(now, &mut counters) {
                shown += beat.keep.count_ones();
            }
            if now < 8000 {
                mac.hide();
            }
        }
        assert_eq!((shown, counters.rx_frames), (100, 2));
    }
}
