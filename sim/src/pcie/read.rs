//! Read requests: latency, completions in pieces and out of order over the tags, bandwidth, errors.

use super::host::{Access, HostSide};
use super::{PcieCounters, PACKET_OVERHEAD};
use crate::ports::Wide;
use crate::scenario::Pcie;
use crate::time::{Ps, Rate, NS};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

/// A request lies inside one aligned block of so many bytes.
const BLOCK: u64 = 512;
/// Bytes of one completion beat.
const CHUNK: u64 = 64;
/// How far completions may run ahead of the configured rate.
const BURST: Ps = 16 * NS;

/// A read request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// Bus address.
    pub addr: u64,
    /// Bytes.
    pub len: u32,
    /// Tag, not in use by another request.
    pub tag: u8,
}

/// One beat of a completion: one aligned chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// The request's tag.
    pub tag: u8,
    /// Address bits 8..6.
    pub chunk: u8,
    /// The bytes, each on the lane of its address modulo 64.
    pub data: Wide,
    /// The request failed; no more of it comes.
    pub error: bool,
}

struct Pending {
    request: ReadRequest,
    ready_at: Ps,
    /// Next chunk to complete, and the one after the last.
    next: u64,
    end: u64,
    error: bool,
}

/// The read side.
pub struct Reads {
    pending: Vec<Pending>,
    /// Place in `pending` of the completion packet being sent, and the chunk where it ends.
    sending: Option<(usize, u64)>,
    free_at: Ps,
    rate: Rate,
    config: Pcie,
    rng: ChaCha8Rng,
}

impl Reads {
    /// With the given latencies and a random number generator of its own.
    pub fn new(config: &Pcie, rng: ChaCha8Rng) -> Reads {
        let rate = Rate::from_gbps(config.rate_gbps);
        Reads {
            pending: vec![],
            sending: None,
            free_at: 0,
            rate,
            config: config.clone(),
            rng,
        }
    }

    /// Whether another request can be taken.
    pub fn ready(&self) -> bool {
        self.pending.len() < self.config.read_tags
    }

    /// Whether nothing is outstanding.
    pub fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }

    /// Forgets everything (reset).
    pub fn clear(&mut self) {
        self.pending.clear();
        self.sending = None;
    }

    /// Takes a request.
    pub fn request(&mut self, now: Ps, request: ReadRequest, counters: &mut PcieCounters) {
        counters.reads += 1;
        counters.read_bytes += u64::from(request.len);
        let last = request
            .addr
            .saturating_add(u64::from(request.len).saturating_sub(1));
        let legal = request.len > 0
            && request.len <= self.config.max_read_request
            && request.addr / BLOCK == last / BLOCK
            && self.pending.iter().all(|p| p.request.tag != request.tag);
        if !legal {
            counters.violations += 1;
            tracing::error!(
                ?request,
                "read request breaks a rule: length, block or tag in use"
            );
        }
        let jitter = self.rng.random_range(0..=self.config.jitter_ns) * NS;
        let error = !legal
            || (self.config.read_error > 0.0 && self.rng.random::<f64>() < self.config.read_error);
        self.pending.push(Pending {
            request,
            ready_at: now + self.config.read_latency_ns * NS + jitter,
            next: request.addr / CHUNK,
            end: last / CHUNK + 1,
            error,
        });
    }

    /// The completion beat of this cycle, if one is due.
    pub fn completion(
        &mut self,
        now: Ps,
        host: &HostSide,
        counters: &mut PcieCounters,
    ) -> Option<Completion> {
        if self.sending.is_none() {
            if self.pending.is_empty() || self.free_at > now + BURST {
                return None;
            }
            let which = self.choose(now)?;
            counters.completions += 1;
            let end = self.cut(which);
            let bytes = (end - self.pending[which].next) * CHUNK + PACKET_OVERHEAD;
            self.free_at = self.free_at.max(now) + self.rate.time(bytes);
            self.sending = Some((which, end));
        }
        let (which, end) = self.sending?;
        let beat = self.beat(which, now, host, counters);
        let pending = &mut self.pending[which];
        pending.next += 1;
        let done = beat.error || pending.next == pending.end;
        if done {
            self.pending.remove(which);
        }
        if done || self.pending[which].next == end {
            self.sending = None;
        }
        Some(beat)
    }

    /// A request whose data are there: the oldest, or any with the configured probability.
    fn choose(&mut self, now: Ps) -> Option<usize> {
        let there: Vec<usize> = (0..self.pending.len())
            .filter(|&i| self.pending[i].ready_at <= now)
            .collect();
        let oldest = *there.first()?;
        if there.len() > 1
            && self.config.reorder > 0.0
            && self.rng.random::<f64>() < self.config.reorder
        {
            return Some(there[self.rng.random_range(0..there.len())]);
        }
        Some(oldest)
    }

    /// Chunk after the last of the next completion packet: a random cut at the read completion boundary.
    fn cut(&mut self, which: usize) -> u64 {
        let Pending { next, end, .. } = self.pending[which];
        let boundary = u64::from(self.config.read_completion_boundary) / CHUNK;
        let most = (next + u64::from(self.config.max_payload) / CHUNK).min(end);
        let cuts: Vec<u64> = (next + 1..=most)
            .filter(|c| c % boundary == 0 || *c == end)
            .collect();
        cuts[self.rng.random_range(0..cuts.len())]
    }

    fn beat(
        &self,
        which: usize,
        now: Ps,
        host: &HostSide,
        counters: &mut PcieCounters,
    ) -> Completion {
        let Pending {
            request,
            next,
            error,
            ..
        } = self.pending[which];
        let mut beat = Completion {
            tag: request.tag,
            chunk: (next % (BLOCK / CHUNK)) as u8,
            error,
            ..Completion::default()
        };
        if error {
            return beat;
        }
        let from = request.addr.max(next * CHUNK);
        let to = (request.addr + u64::from(request.len)).min((next + 1) * CHUNK);
        let mut bytes = [0; CHUNK as usize];
        let lanes = (from % CHUNK) as usize..(from % CHUNK + to - from) as usize;
        match host.iommu().read(from, &mut bytes[lanes]) {
            Ok(()) => beat.data = crate::lanes::words(&bytes),
            Err(error) => {
                counters.faults += 1;
                beat.error = true;
                host.fault(now, error, Access::Read);
            }
        }
        beat
    }
}

#[cfg(test)]
mod tests {
    use super::super::iommu::tests::leaked;
    use super::*;
    use rand_chacha::rand_core::SeedableRng;

    fn host() -> HostSide {
        let (host, memory) = (HostSide::default(), leaked(1 << 16));
        let bytes: Vec<u8> = (0..1 << 16).map(|i: u32| ((i * 7) >> 3) as u8).collect();
        assert!(memory.write(0, &bytes));
        host.iommu()
            .map(0x10000, 1 << 16, Some(memory), true)
            .unwrap();
        host
    }

    fn run(
        reads: &mut Reads,
        host: &HostSide,
        counters: &mut PcieCounters,
    ) -> Vec<(Ps, Completion)> {
        let beat = |t: Ps| {
            reads
                .completion(t * 4000, host, counters)
                .map(|c| (t * 4000, c))
        };
        (0..5000).filter_map(beat).collect()
    }

    #[test]
    fn every_chunk_comes_once_with_its_bytes_on_their_lanes() {
        let (host, mut counters) = (host(), PcieCounters::default());
        for seed in 0..50 {
            let mut reads = Reads::new(
                &Pcie {
                    reorder: 0.8,
                    ..Pcie::default()
                },
                ChaCha8Rng::seed_from_u64(seed),
            );
            let requests = [
                (0x10000, 512),
                (0x10233, 100),
                (0x1043f, 1),
                (0x107c0, 64),
                (0x10801, 511),
            ];
            for (tag, (addr, len)) in requests.into_iter().enumerate() {
                reads.request(
                    0,
                    ReadRequest {
                        addr,
                        len,
                        tag: tag as u8,
                    },
                    &mut counters,
                );
            }
            let beats = run(&mut reads, &host, &mut counters);
            for (tag, (addr, len)) in requests.into_iter().enumerate() {
                let own: Vec<&Completion> = beats
                    .iter()
                    .map(|(_, c)| c)
                    .filter(|c| c.tag == tag as u8)
                    .collect();
                let chunks: Vec<u64> = own.iter().map(|c| u64::from(c.chunk)).collect();
                let expected: Vec<u64> = (addr / 64..=(addr + u64::from(len) - 1) / 64)
                    .map(|c| c % 8)
                    .collect();
                assert_eq!(chunks, expected, "seed {seed}, tag {tag}");
                for a in addr..addr + u64::from(len) {
                    let lane = crate::lanes::bytes(&own[(a / 64 - addr / 64) as usize].data)
                        [(a % 64) as usize];
                    assert_eq!(lane, (((a as u32 - 0x10000) * 7) >> 3) as u8);
                }
            }
            assert!(reads.is_idle());
        }
        assert_eq!((counters.faults, counters.violations), (0, 0));
    }

    #[test]
    fn completions_are_split_and_tags_overtake_each_other() {
        let (host, mut counters) = (host(), PcieCounters::default());
        let mut reads = Reads::new(
            &Pcie {
                reorder: 0.5,
                ..Pcie::default()
            },
            ChaCha8Rng::seed_from_u64(3),
        );
        (0..16).for_each(|tag| {
            reads.request(
                0,
                ReadRequest {
                    addr: 0x10000 + u64::from(tag) * 512,
                    len: 512,
                    tag,
                },
                &mut counters,
            )
        });
        let beats = run(&mut reads, &host, &mut counters);
        assert!(beats[0].0 >= 500_000 && beats.len() == 128);
        assert!(counters.completions > 32, "{}", counters.completions);
        let changes = beats.windows(2).filter(|w| w[1].1.tag < w[0].1.tag).count();
        assert!(changes > 5, "{changes} backward steps");
    }

    #[test]
    fn bandwidth_bounds_the_beats() {
        let (host, mut counters) = (host(), PcieCounters::default());
        let config = Pcie {
            rate_gbps: 32.0,
            ..Pcie::default()
        };
        let mut reads = Reads::new(&config, ChaCha8Rng::seed_from_u64(3));
        (0..32).for_each(|tag| {
            reads.request(
                0,
                ReadRequest {
                    addr: 0x10000 + u64::from(tag) * 512,
                    len: 512,
                    tag,
                },
                &mut counters,
            )
        });
        let beats = run(&mut reads, &host, &mut counters);
        let time = beats.last().unwrap().0 - beats[0].0;
        let gbps = 32.0 * 512.0 * 8000.0 / time as f64;
        assert!((20.0..32.0).contains(&gbps), "{gbps}");
    }

    #[test]
    fn an_unmapped_address_and_a_broken_rule_end_in_an_error_beat() {
        let (host, mut counters) = (host(), PcieCounters::default());
        let mut reads = Reads::new(&Pcie::default(), ChaCha8Rng::seed_from_u64(3));
        for (tag, addr, len) in [
            (1, 0x9000, 64),
            (2, 0x101f0, 32),
            (3, 0x10000, 0),
            (4, 0x1ff00, 512),
        ] {
            reads.request(0, ReadRequest { addr, len, tag }, &mut counters);
        }
        let beats = run(&mut reads, &host, &mut counters);
        let failed: Vec<u8> = beats
            .iter()
            .filter(|(_, c)| c.error)
            .map(|(_, c)| c.tag)
            .collect();
        assert_eq!(
            (failed.len(), counters.faults, counters.violations),
            (4, 1, 3)
        );
        assert!(reads.is_idle() && host.faults()[0].message.contains("0x9000"));
    }
}
