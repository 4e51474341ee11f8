//! Which bus addresses a card may reach.

use super::memory::Memory;
use std::collections::BTreeMap;

/// Why an access is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// Nothing is mapped there.
    #[error("bus address {0:#x} is not mapped")]
    NotMapped(u64),
    /// It is mapped for reading only.
    #[error("bus address {0:#x} is not mapped for writing")]
    ReadOnly(u64),
    /// The client has shortened the file that it had mapped there.
    #[error("the file mapped at bus address {0:#x} has become shorter")]
    Lost(u64),
}

/// Why a range cannot be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// It has no bytes, or wraps around the end of the address space.
    #[error("range {iova:#x}+{len:#x} is empty or wraps")]
    Range {
        /// First bus address.
        iova: u64,
        /// Bytes.
        len: u64,
    },
    /// It overlaps a range already mapped.
    #[error("range {iova:#x}+{len:#x} overlaps one already mapped")]
    Overlap {
        /// First bus address.
        iova: u64,
        /// Bytes.
        len: u64,
    },
}

struct Range {
    len: u64,
    /// None: the client gave no memory, so that every access faults.
    memory: Option<Memory>,
    writable: bool,
}

/// The mapped ranges, by first bus address.
#[derive(Default)]
pub struct Iommu {
    ranges: BTreeMap<u64, Range>,
}

impl Iommu {
    /// Maps a range. `memory` has `len` bytes; without it the range is known, but every access faults.
    pub fn map(
        &mut self,
        iova: u64,
        len: u64,
        memory: Option<Memory>,
        writable: bool,
    ) -> Result<(), MapError> {
        let end = iova
            .checked_add(len)
            .filter(|_| len > 0)
            .ok_or(MapError::Range { iova, len })?;
        let before = self.ranges.range(..end).next_back();
        if before.is_some_and(|(start, range)| start + range.len > iova) {
            return Err(MapError::Overlap { iova, len });
        }
        self.ranges.insert(
            iova,
            Range {
                len,
                memory,
                writable,
            },
        );
        Ok(())
    }

    /// Removes every range that lies wholly inside the given one; says how many.
    pub fn unmap(&mut self, iova: u64, len: u64) -> usize {
        let end = u128::from(iova) + u128::from(len);
        let inside = self
            .ranges
            .range(iova..)
            .filter(|(s, r)| u128::from(**s) + u128::from(r.len) <= end);
        let starts: Vec<u64> = inside.map(|(start, _)| *start).collect();
        starts
            .iter()
            .for_each(|start| drop(self.ranges.remove(start)));
        starts.len()
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        self.ranges.clear();
    }

    /// Number of mapped ranges.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Reads bytes, over as many adjacent ranges as it takes.
    pub fn read(&self, iova: u64, to: &mut [u8]) -> Result<(), AccessError> {
        let mut done = 0;
        while done < to.len() {
            let (memory, offset, n) = self.part(iova + done as u64, to.len() - done, false)?;
            if !memory.read(offset, &mut to[done..done + n]) {
                return Err(AccessError::Lost(iova + done as u64));
            }
            done += n;
        }
        Ok(())
    }

    /// Writes bytes, ascending. Bytes before a fault may have been written, as with real DMA.
    pub fn write(&self, iova: u64, from: &[u8]) -> Result<(), AccessError> {
        let mut done = 0;
        while done < from.len() {
            let (memory, offset, n) = self.part(iova + done as u64, from.len() - done, true)?;
            if !memory.write(offset, &from[done..done + n]) {
                return Err(AccessError::Lost(iova + done as u64));
            }
            done += n;
        }
        Ok(())
    }

    /// The memory at an address, the offset in it, and how many of `want` bytes it holds from there.
    fn part(
        &self,
        iova: u64,
        want: usize,
        write: bool,
    ) -> Result<(&Memory, usize, usize), AccessError> {
        let found = self.ranges.range(..=iova).next_back();
        let (start, range) = found
            .filter(|(start, range)| iova - *start < range.len)
            .ok_or(AccessError::NotMapped(iova))?;
        let memory = range.memory.as_ref().ok_or(AccessError::NotMapped(iova))?;
        if write && !range.writable {
            return Err(AccessError::ReadOnly(iova));
        }
        let offset = (iova - start) as usize;
        Ok((memory, offset, want.min(range.len as usize - offset)))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Memory that lives as long as the test program.
    pub(crate) fn leaked(len: usize) -> Memory {
        let bytes: &'static mut [u8] = Vec::leak(vec![0; len]);
        // SAFETY: leaked, so it stays for good.
        unsafe { Memory::from_raw(bytes.as_mut_ptr(), len) }
    }

    #[test]
    fn an_access_may_span_adjacent_ranges_that_are_apart_in_memory() {
        let (mut iommu, one) = (Iommu::default(), leaked(8192));
        iommu
            .map(0x10000, 4096, one.slice(4096, 4096), true)
            .unwrap();
        iommu.map(0x11000, 4096, one.slice(0, 4096), true).unwrap();
        let data: Vec<u8> = (0..200).collect();
        iommu.write(0x10fc1, &data).unwrap();
        let mut back = vec![0; 200];
        iommu.read(0x10fc1, &mut back).unwrap();
        assert_eq!(back, data);
        let mut head = [0];
        assert!(one.read(0, &mut head));
        assert_eq!(head[0], 63);
    }

    #[test]
    fn what_is_not_mapped_faults() {
        let mut iommu = Iommu::default();
        iommu.map(0x1000, 4096, Some(leaked(4096)), false).unwrap();
        iommu.map(0x8000, 4096, None, true).unwrap();
        let mut byte = [0; 2];
        assert_eq!(
            iommu.read(0x1fff, &mut byte),
            Err(AccessError::NotMapped(0x2000))
        );
        assert_eq!(
            iommu.read(0xfff, &mut byte),
            Err(AccessError::NotMapped(0xfff))
        );
        assert_eq!(
            iommu.read(0x8000, &mut byte),
            Err(AccessError::NotMapped(0x8000))
        );
        assert_eq!(
            iommu.write(0x1000, &byte),
            Err(AccessError::ReadOnly(0x1000))
        );
        assert_eq!(
            iommu.read(u64::MAX, &mut byte),
            Err(AccessError::NotMapped(u64::MAX))
        );
    }

    #[test]
    fn ranges_may_not_overlap_and_one_unmap_removes_all_inside_it() {
        let mut iommu = Iommu::default();
        for iova in [0x1000, 0x2000, 0x9000] {
            iommu.map(iova, 4096, Some(leaked(4096)), true).unwrap();
        }
        assert_eq!(
            iommu.map(0x1800, 16, None, true),
            Err(MapError::Overlap {
                iova: 0x1800,
                len: 16
            })
        );
        assert_eq!(
            iommu.map(0, 0, None, true),
            Err(MapError::Range { iova: 0, len: 0 })
        );
        assert_eq!(
            iommu.map(u64::MAX, 2, None, true),
            Err(MapError::Range {
                iova: u64::MAX,
                len: 2
            })
        );
        assert_eq!(iommu.unmap(0, 0x8000_0000_0000), 3);
        assert!(iommu.is_empty());
    }
}
