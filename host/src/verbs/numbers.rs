//! Numbers and addresses that the driver hands out: queue pair numbers, keys, IOVAs. Each goes back when it is dropped.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::Error;

/// Numbers `first..limit` of one kind of object. Handed out in turn, so that a number rests as long as possible before
/// it names another object.
#[derive(Debug)]
pub struct Numbers {
    what: &'static str,
    first: usize,
    used: Vec<bool>,
    next: usize,
}

/// A number in use.
#[derive(Debug)]
pub struct Number {
    pool: Arc<Mutex<Numbers>>,
    value: usize,
}

impl Numbers {
    pub fn new(what: &'static str, first: usize, limit: usize) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self {
            what,
            first,
            used: vec![false; limit.max(first)],
            next: first,
        }))
    }

    pub fn take(pool: &Arc<Mutex<Self>>) -> Result<Number, Error> {
        let mut numbers = pool.lock().unwrap_or_else(PoisonError::into_inner);
        let (first, limit) = (numbers.first, numbers.used.len());
        let value = (numbers.next..limit)
            .chain(first..numbers.next)
            .find(|number| !numbers.used[*number]);
        let value = value.ok_or(Error::Exhausted {
            what: numbers.what,
            limit: limit - first,
        })?;
        numbers.used[value] = true;
        numbers.next = if value + 1 == limit { first } else { value + 1 };
        Ok(Number {
            pool: Arc::clone(pool),
            value,
        })
    }
}

impl Number {
    pub const fn get(&self) -> u32 {
        self.value as u32
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        self.pool
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .used[self.value] = false;
    }
}

/// Device addresses that no mapping uses.
#[derive(Debug)]
pub struct IovaSpace {
    /// Free ranges: start to end.
    free: BTreeMap<u64, u64>,
}

impl IovaSpace {
    /// The lowest address handed out: away from 0 and from the MSI window below 4 GiB.
    const FIRST: u64 = 1 << 32;
    /// The lowest one on a bus of 32 bits: a null pointer gone astray still faults.
    const FIRST_OF_32_BITS: u64 = 1 << 20;
    /// 47 bits; what lies above is of no use to us.
    const END: u64 = 1 << 47;

    /// What `ranges`, first to last, allow.
    pub fn new(ranges: &[RangeInclusive<u64>]) -> Self {
        let from = |first: u64| -> BTreeMap<u64, u64> {
            ranges
                .iter()
                .map(|range| {
                    let end = range.end().saturating_add(1).min(Self::END);
                    (first.max(*range.start()), end)
                })
                .filter(|(start, end)| start < end)
                .collect()
        };
        let mut free = from(Self::FIRST);
        if free.is_empty() {
            free = from(Self::FIRST_OF_32_BITS);
        }
        Self { free }
    }

    /// A free range of `bytes` bytes at a multiple of `align`.
    pub fn take(&mut self, bytes: u64, align: u64) -> Option<u64> {
        let (start, end, at) = self.free.iter().find_map(|(start, end)| {
            let at = start.checked_next_multiple_of(align)?;
            (at.checked_add(bytes)? <= *end).then_some((*start, *end, at))
        })?;
        self.free.remove(&start);
        if start < at {
            self.free.insert(start, at);
        }
        if at + bytes < end {
            self.free.insert(at + bytes, end);
        }
        Some(at)
    }

    /// Takes back a range that [`take`](Self::take) handed out.
    pub fn give(&mut self, start: u64, bytes: u64) {
        let (mut start, mut end) = (start, start + bytes);
        if let Some((before, before_end)) =
            self.free.range(..start).next_back().map(|(a, b)| (*a, *b))
        {
            if before_end == start {
                self.free.remove(&before);
                start = before;
            }
        }
        if let Some(after_end) = self.free.remove(&end) {
            end = after_end;
        }
        self.free.insert(start, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_rest_before_they_return() {
        let pool = Numbers::new("queue pair", 2, 5);
        let first = Numbers::take(&pool).unwrap();
        assert_eq!(first.get(), 2);
        drop(first);
        let held: Vec<_> = (0..3).map(|_| Numbers::take(&pool).unwrap()).collect();
        assert_eq!(held.iter().map(Number::get).collect::<Vec<_>>(), [3, 4, 2]);
        let error = Numbers::take(&pool).unwrap_err().to_string();
        assert_eq!(error, "the card has no free queue pair: all 3 are in use");
    }

    #[test]
    fn iovas_are_aligned_disjoint_and_returned() {
        let everything = [0..=u64::MAX];
        let mut space = IovaSpace::new(&everything);
        let small = space.take(4096, 4096).unwrap();
        let large = space.take(2 << 20, 2 << 20).unwrap();
        let between = space.take(8192, 4096).unwrap();
        assert!(large % (2 << 20) == 0 && between >= small + 4096 && between + 8192 <= large);
        assert!(space.take(1 << 47, 4096).is_none());
        for (start, bytes) in [(between, 8192), (small, 4096), (large, 2 << 20)] {
            space.give(start, bytes);
        }
        assert_eq!(space.free, IovaSpace::new(&everything).free);
    }

    #[test]
    fn iovas_keep_to_the_ranges_of_the_iommu() {
        // Intel with 39 bits and a hole for MSI.
        let mut space = IovaSpace::new(&[0..=0xfedf_ffff, 0xfef0_0000..=(1 << 39) - 1]);
        assert_eq!(space.take(4096, 4096), Some(1 << 32));
        assert_eq!(space.take(1 << 39, 4096), None);
        assert_eq!(space.take(1 << 38, 1 << 30), Some(5 << 30));
        // Two ranges that touch no mapping may span.
        let mut space = IovaSpace::new(&[0..=0x1_0000_1fff, 0x1_0000_8000..=0x1_0000_bfff]);
        assert_eq!(space.take(0x4000, 4096), Some(0x1_0000_8000));
        assert_eq!(space.take(0x4000, 4096), None);
        // 32 bits only.
        let mut space = IovaSpace::new(&[0..=0xfedf_ffff]);
        assert_eq!(space.take(4096, 4096), Some(1 << 20));
        assert_eq!(IovaSpace::new(&[]).take(4096, 4096), None);
    }
}
