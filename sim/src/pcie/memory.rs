//! Host memory that a card may reach: a mapped file, or memory of this process.
//!
//! The host writes to it while the card reads, as with real DMA; nothing here makes a Rust reference to it.

use super::guard::Guarded;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{fence, AtomicU32, Ordering};
use std::sync::{Arc, Weak};

/// A range of host memory.
#[derive(Clone)]
pub struct Memory {
    start: *mut u8,
    len: usize,
    /// Keeps the mapping alive; nothing for memory that its owner keeps alive.
    file: Option<Arc<Guarded>>,
}

// SAFETY: `start` points to memory that any thread may access; all access is by copies through raw pointers.
unsafe impl Send for Memory {}
// SAFETY: as above; the bytes themselves are shared with the host by design.
unsafe impl Sync for Memory {}

impl Memory {
    /// Memory of this process.
    ///
    /// # Safety
    /// `start..start + len` must stay readable and writable until every clone of the result is dropped.
    pub unsafe fn from_raw(start: *mut u8, len: usize) -> Memory {
        Memory {
            start,
            len,
            file: None,
        }
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Part of it, or nothing if that reaches past the end.
    pub fn slice(&self, offset: usize, len: usize) -> Option<Memory> {
        let end = offset.checked_add(len)?;
        // SAFETY: offset is inside the range, as `end` is.
        (end <= self.len).then(|| Memory {
            start: unsafe { self.start.add(offset) },
            len,
            file: self.file.clone(),
        })
    }

    /// Copies bytes out. The caller checks the range. Says whether they are the memory's: they are not when the file
    /// behind it has become shorter.
    #[must_use]
    pub(super) fn read(&self, offset: usize, to: &mut [u8]) -> bool {
        assert!(
            offset + to.len() <= self.len,
            "DMA read outside its mapping"
        );
        // SAFETY: the range is inside the mapping; `to` is ours and cannot overlap host memory seen as such.
        unsafe { std::ptr::copy_nonoverlapping(self.start.add(offset), to.as_mut_ptr(), to.len()) }
        self.is_whole()
    }

    fn is_whole(&self) -> bool {
        self.file.as_ref().is_none_or(|file| !file.is_lost())
    }

    /// Copies bytes in, ascending. If they end on an aligned 32-bit word, that word is stored last and whole, with
    /// release order: whoever sees it (a phase bit) sees all before it. Says whether the memory has them, as for `read`.
    #[must_use]
    pub(super) fn write(&self, offset: usize, from: &[u8]) -> bool {
        assert!(
            offset + from.len() <= self.len,
            "DMA write outside its mapping"
        );
        // SAFETY: the range is inside the mapping.
        let to = unsafe { self.start.add(offset) };
        let aligned = (to as usize + from.len()) % 4 == 0 && from.len() >= 4;
        let first = from.len() - if aligned { 4 } else { 0 };
        // SAFETY: `first` bytes are inside both ranges, which do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, first) };
        fence(Ordering::Release);
        if let Some(word) = from.get(first..).and_then(|w| w.try_into().ok()) {
            // SAFETY: four bytes inside the mapping, aligned as checked; the host reads the word atomically.
            unsafe { AtomicU32::from_ptr(to.add(first).cast()) }
                .store(u32::from_ne_bytes(word), Ordering::Release);
        }
        self.is_whole()
    }
}

/// One mapping per file, however often the client sends its descriptor: a guest with an IOMMU maps page by page.
#[derive(Default)]
pub struct FileCache {
    files: HashMap<Key, (Weak<Guarded>, u64)>,
}

/// Device, inode and whether the mapping is writable.
type Key = (u64, u64, bool);

impl FileCache {
    /// The bytes `offset..offset + len` of a file, whose last page counts whole.
    pub fn map(
        &mut self,
        file: &File,
        offset: u64,
        len: u64,
        writable: bool,
    ) -> io::Result<Memory> {
        let meta = file.metadata()?;
        let size = meta.len().next_multiple_of(PAGE);
        if offset.checked_add(len).is_none_or(|end| end > size) {
            let what = format!(
                "range {offset:#x}+{len:#x} reaches past the end of a file of {} bytes",
                meta.len()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let key = (meta.dev(), meta.ino(), writable);
        let known = self.files.get(&key).filter(|&&(_, known)| size <= known);
        let known = known.and_then(|(map, _)| map.upgrade());
        let map = match known.filter(|map| !map.is_lost()) {
            Some(map) => map,
            None => {
                let map = Guarded::map(file, size as usize, writable)?;
                self.files.retain(|_, (map, _)| map.strong_count() > 0);
                let map = Arc::new(map);
                self.files.insert(key, (Arc::downgrade(&map), size));
                map
            }
        };
        let whole = Memory {
            start: map.as_mut_ptr(),
            len: map.len(),
            file: Some(map),
        };
        Ok(whole
            .slice(offset as usize, len as usize)
            .expect("range was checked against the file"))
    }
}

/// Page size of the machines that the simulator runs on, bytes.
const PAGE: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek, SeekFrom, Write};

    fn file(len: u64) -> File {
        let path =
            std::env::temp_dir().join(format!("mprdma-sim-memory-{}-{len}", std::process::id()));
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .unwrap();
        std::fs::remove_file(path).unwrap();
        file.set_len(len).unwrap();
        file
    }

    #[test]
    fn a_file_is_mapped_once_and_what_is_written_is_in_it() {
        let (mut file, mut cache) = (file(10_000), FileCache::default());
        file.write_all(b"hello").unwrap();
        let one = cache.map(&file, 0, 4096, true).unwrap();
        let two = cache
            .map(&file.try_clone().unwrap(), 4096, 8192, true)
            .unwrap();
        assert_eq!(one.start as usize + 4096, two.start as usize);
        let mut seen = [0; 5];
        assert!(one.read(0, &mut seen));
        assert_eq!(&seen, b"hello");
        assert!(two.write(3, b"twelve bytes"));
        let mut back = [0; 12];
        file.seek(SeekFrom::Start(4099)).unwrap();
        file.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"twelve bytes");
    }

    #[test]
    fn a_range_past_the_end_is_refused_and_a_file_that_grew_is_mapped_again() {
        let (file, mut cache) = (file(4096), FileCache::default());
        assert!(cache.map(&file, 0, 8192, true).is_err());
        assert!(cache.map(&file, u64::MAX, 2, true).is_err());
        let _held = cache.map(&file, 0, 4096, true).unwrap();
        file.set_len(8192).unwrap();
        let grown = cache.map(&file, 4096, 4096, true).unwrap();
        assert!(grown.write(4092, &[1, 2, 3, 4]));
    }

    #[test]
    fn a_file_that_shrinks_is_lost_until_it_is_mapped_again() {
        let (file, mut cache) = (file(3 * 4096), FileCache::default());
        for writable in [true, false] {
            file.set_len(3 * 4096).unwrap();
            let memory = cache.map(&file, 0, 3 * 4096, writable).unwrap();
            let mut bytes = [1; 8192];
            assert!(memory.read(0, &mut bytes));
            file.set_len(4096).unwrap();
            assert!(!memory.read(100, &mut bytes));
            assert_eq!(bytes[4096..], [0; 4096]);
            assert!(
                !memory.read(0, &mut bytes[..4]),
                "nothing of it counts any more"
            );
            if writable {
                assert!(!memory.write(8000, &[7; 600]));
            }
            let again = cache.map(&file, 0, 4096, writable).unwrap();
            assert!(again.read(0, &mut bytes[..4096]));
        }
    }
}
