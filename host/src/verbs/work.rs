//! Host-side bookkeeping of a send or receive queue: which entries are in use, and for whom.

/// A ring of work requests with free-running 16-bit indices.
#[derive(Debug)]
pub struct WorkQueue {
    wr_ids: Vec<u64>,
    producer: u16,
    retired: u16,
}

impl WorkQueue {
    /// A queue of `1 << log2` entries, `log2` 1 to 15.
    pub fn new(log2: u32) -> Self {
        Self {
            wr_ids: vec![0; 1 << log2],
            producer: 0,
            retired: 0,
        }
    }

    pub fn capacity(&self) -> usize {
        self.wr_ids.len()
    }

    pub const fn outstanding(&self) -> usize {
        self.producer.wrapping_sub(self.retired) as usize
    }

    pub const fn producer(&self) -> u16 {
        self.producer
    }

    /// Takes the next entry for `wr_id` and returns its position in the ring, or nothing when the ring is full.
    pub fn push(&mut self, wr_id: u64) -> Option<usize> {
        if self.outstanding() == self.capacity() {
            return None;
        }
        let slot = usize::from(self.producer) & (self.capacity() - 1);
        self.wr_ids[slot] = wr_id;
        self.producer = self.producer.wrapping_add(1);
        Some(slot)
    }

    /// Frees the entries up to and including `index`, and returns the request of that entry; nothing when `index` is not
    /// outstanding.
    pub fn retire(&mut self, index: u16) -> Option<u64> {
        if usize::from(index.wrapping_sub(self.retired)) >= self.outstanding() {
            return None;
        }
        self.retired = index.wrapping_add(1);
        Some(self.wr_ids[usize::from(index) & (self.capacity() - 1)])
    }

    /// Index of the oldest request outstanding.
    pub const fn retired(&self) -> u16 {
        self.retired
    }

    /// Frees up to `limit` of the oldest entries, and returns their requests.
    pub fn flush(&mut self, limit: usize) -> Vec<u64> {
        (0..limit)
            .map_while(|_| self.retire(self.retired))
            .collect()
    }

    /// Empties the queue and starts at index 0 again.
    pub fn clear(&mut self) {
        (self.producer, self.retired) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_wraps_and_frees_what_an_unsignaled_request_held() {
        let mut queue = WorkQueue::new(2);
        let mut next = 0u64;
        for round in 0..40_000u64 {
            let free = queue.capacity() - queue.outstanding();
            for _ in 0..free {
                assert_eq!(queue.push(next), Some(next as usize % 4));
                next += 1;
            }
            assert_eq!(queue.push(0), None);
            let last = next - 1 - round % 4;
            assert_eq!(queue.retire(last as u16), Some(last));
            assert_eq!(
                queue.retire(last as u16),
                None,
                "a second completion of the same request"
            );
        }
        assert!(next > 65_536, "the index wrapped");
    }

    #[test]
    fn a_flush_takes_the_oldest_first_and_what_is_there() {
        let mut queue = WorkQueue::new(2);
        for wr_id in 10..14 {
            queue.push(wr_id);
        }
        assert_eq!(queue.retire(0), Some(10));
        assert_eq!(queue.flush(2), [11, 12]);
        queue.push(14);
        assert_eq!(queue.flush(9), [13, 14]);
        assert!(queue.flush(9).is_empty());
        assert_eq!((queue.outstanding(), queue.retired()), (0, 5));
    }

    #[test]
    fn the_largest_ring_uses_every_entry() {
        let mut queue = WorkQueue::new(15);
        assert_eq!(
            (0..40_000).filter(|i| queue.push(*i).is_some()).count(),
            32_768
        );
        assert_eq!(queue.retire(32_767), Some(32_767));
        assert_eq!(queue.outstanding(), 0);
    }
}
