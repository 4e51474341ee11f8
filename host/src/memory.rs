//! Memory that a card can reach: anonymous shared files, mapped here and handed to the device by descriptor.

use std::ffi::CStr;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr;
use std::sync::atomic::{fence, AtomicU32, Ordering};

use memmap2::MmapRaw;
use thiserror::Error;

use crate::hugepages;
use crate::numa::Node;

/// Size of the pages behind a [`Memory`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageSize {
    /// Ordinary 4 KiB pages.
    #[default]
    Small,
    /// 2 MiB huge pages.
    Huge2M,
    /// 1 GiB huge pages.
    Huge1G,
}

impl PageSize {
    /// Bytes of one page.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Small => 4 << 10,
            Self::Huge2M => 2 << 20,
            Self::Huge1G => 1 << 30,
        }
    }

    const fn memfd_flags(self) -> libc::c_uint {
        let always = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        match self {
            Self::Small => always,
            Self::Huge2M => always | libc::MFD_HUGETLB | libc::MFD_HUGE_2MB,
            Self::Huge1G => always | libc::MFD_HUGETLB | libc::MFD_HUGE_1GB,
        }
    }
}

impl fmt::Display for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Small => "4 KiB",
            Self::Huge2M => "2 MiB",
            Self::Huge1G => "1 GiB",
        })
    }
}

/// Why memory could not be had, or an access to it was refused.
#[derive(Debug, Error)]
pub enum MemoryError {
    /// Nothing asked for.
    #[error("a memory area needs at least one byte")]
    Empty,
    /// More than the address space holds.
    #[error("{bytes} bytes are more than can be mapped")]
    TooLarge {
        /// Bytes asked for.
        bytes: u64,
    },
    /// The system has no huge pages to give.
    #[error(
        "no huge pages of {page} for {bytes} bytes: {source}: {}",
        hugepages::advice(*.page, *.bytes, *.node)
    )]
    NoHugePages {
        /// Page size asked for.
        page: PageSize,
        /// Bytes asked for.
        bytes: usize,
        /// NUMA node on which they were wanted.
        node: Option<u32>,
        /// The system's answer.
        source: io::Error,
    },
    /// The system refused the allocation.
    #[error("cannot get {bytes} bytes of shared memory: {source}")]
    Allocate {
        /// Bytes asked for.
        bytes: usize,
        /// The system's answer.
        source: io::Error,
    },
    /// The file cannot be mapped shared and writable.
    #[error("cannot map the file for the device: {source} (it must be a regular file opened for reading and writing)")]
    MapFile {
        /// The system's answer.
        source: io::Error,
    },
    /// An access outside the memory.
    #[error("{bytes} bytes at offset {offset} are not inside a memory of {size} bytes")]
    OutOfBounds {
        /// Offset asked for.
        offset: usize,
        /// Bytes asked for.
        bytes: usize,
        /// Size of the memory.
        size: usize,
    },
}

/// A shared mapping of a file that a device can map too.
///
/// The device may change it at any time, so it is read and written by copying, never lent out as a slice.
#[derive(Debug)]
pub struct Memory {
    map: MmapRaw,
    file: File,
    bytes: usize,
    page: PageSize,
}

impl Memory {
    /// `bytes` bytes of zeroed anonymous memory, rounded up to whole pages.
    ///
    /// # Errors
    /// [`MemoryError::Empty`], [`MemoryError::NoHugePages`] or [`MemoryError::Allocate`].
    pub fn allocate(bytes: usize, page: PageSize) -> Result<Self, MemoryError> {
        Self::allocate_near(bytes, page, None)
    }

    /// As [`allocate`](Self::allocate), on the NUMA node `node` if one is given and has free pages.
    ///
    /// # Errors
    /// As there.
    pub fn allocate_near(
        bytes: usize,
        page: PageSize,
        node: Option<&Node>,
    ) -> Result<Self, MemoryError> {
        if bytes == 0 {
            return Err(MemoryError::Empty);
        }
        let size = bytes
            .checked_next_multiple_of(page.bytes())
            .filter(|size| isize::try_from(*size).is_ok())
            .ok_or(MemoryError::TooLarge {
                bytes: bytes as u64,
            })?;
        let failed = |source: io::Error| {
            if page == PageSize::Small {
                MemoryError::Allocate {
                    bytes: size,
                    source,
                }
            } else {
                MemoryError::NoHugePages {
                    page,
                    bytes: size,
                    node: node.map(|node| node.number),
                    source,
                }
            }
        };
        let file = memfd(c"mprdma", page.memfd_flags()).map_err(failed)?;
        file.set_len(size as u64).map_err(failed)?;
        seal(&file).map_err(failed)?;
        let map = MmapRaw::map_raw(&file).map_err(failed)?;
        // Before anybody touches a page: none moves afterwards.
        if let Some(node) = node {
            node.prefer(map.as_mut_ptr(), size);
        }
        Ok(Self {
            map,
            file,
            bytes: size,
            page,
        })
    }

    /// The content of `file`, which must be open for reading and writing. What the device writes lands in the file.
    /// The last page is mapped whole; bytes written past the end of the file are lost.
    ///
    /// # Errors
    /// [`MemoryError::Empty`] for an empty file, [`MemoryError::MapFile`] when it cannot be mapped.
    pub fn from_file(file: File) -> Result<Self, MemoryError> {
        let length = file
            .metadata()
            .map_err(|source| MemoryError::MapFile { source })?
            .len();
        if length == 0 {
            return Err(MemoryError::Empty);
        }
        let bytes = usize::try_from(length)
            .ok()
            .and_then(|length| length.checked_next_multiple_of(PageSize::Small.bytes()))
            .ok_or(MemoryError::TooLarge { bytes: length })?;
        let map = MmapRaw::map_raw(&file).map_err(|source| MemoryError::MapFile { source })?;
        Ok(Self {
            map,
            file,
            bytes,
            page: PageSize::Small,
        })
    }

    /// Size in bytes, a multiple of [`page_bytes`](Self::page_bytes): what a device maps.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Size of its pages in bytes.
    #[must_use]
    pub const fn page_bytes(&self) -> usize {
        self.page.bytes()
    }

    /// The file behind it; the memory starts at offset 0 of the file.
    #[must_use]
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// Address of the first byte in this process.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.map.as_ptr() as u64
    }

    /// Copies `into.len()` bytes from `offset` on.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`].
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), MemoryError> {
        self.check(offset, into.len())?;
        // SAFETY: the range is inside the mapping, which lives as long as `self`; `into` is another allocation.
        unsafe {
            ptr::copy_nonoverlapping(self.map.as_ptr().add(offset), into.as_mut_ptr(), into.len())
        };
        Ok(())
    }

    /// Copies `from` to `offset`.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`].
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), MemoryError> {
        self.check(offset, from.len())?;
        // SAFETY: as in `read`; `MmapRaw` is mapped writable and never lent out as a reference.
        unsafe {
            ptr::copy_nonoverlapping(from.as_ptr(), self.map.as_mut_ptr().add(offset), from.len())
        };
        Ok(())
    }

    /// Reads the little-endian dword at `offset`, a multiple of 4; loads that follow see what the device wrote before it.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`], also when `offset` is not aligned.
    pub fn load_acquire(&self, offset: usize) -> Result<u32, MemoryError> {
        Ok(u32::from_le(self.dword(offset)?.load(Ordering::Acquire)))
    }

    /// Writes the little-endian dword at `offset`, a multiple of 4, after all earlier stores of this thread.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`], also when `offset` is not aligned.
    pub fn store_release(&self, offset: usize, value: u32) -> Result<(), MemoryError> {
        self.dword(offset)?.store(value.to_le(), Ordering::Release);
        Ok(())
    }

    fn dword(&self, offset: usize) -> Result<&AtomicU32, MemoryError> {
        self.check(offset, 4)?;
        if offset % 4 != 0 {
            return Err(MemoryError::OutOfBounds {
                offset,
                bytes: 4,
                size: self.bytes,
            });
        }
        // SAFETY: in bounds, aligned (the mapping is page aligned), and every access to the memory goes through atomics
        // or raw copies.
        Ok(unsafe { AtomicU32::from_ptr(self.map.as_mut_ptr().add(offset).cast()) })
    }

    const fn check(&self, offset: usize, bytes: usize) -> Result<(), MemoryError> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes => Ok(()),
            _ => Err(MemoryError::OutOfBounds {
                offset,
                bytes,
                size: self.bytes,
            }),
        }
    }
}

/// Orders all earlier stores to device-visible memory before a following doorbell.
pub(crate) fn before_doorbell() {
    fence(Ordering::SeqCst);
}

/// An anonymous shared file.
fn memfd(name: &CStr, flags: libc::c_uint) -> io::Result<File> {
    // SAFETY: `name` is a NUL-terminated string; the call has no other memory effect.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and owned by nobody else.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Fixes the size for good: nobody who has the file can take pages away from under the device.
fn seal(file: &File) -> io::Result<()> {
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: the call changes the file only, which is ours.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_size_is_fixed() {
        let memory = Memory::allocate(8192, PageSize::Small).unwrap();
        assert!(memory.file().set_len(4096).is_err());
        assert!(memory.file().set_len(16384).is_err());
        memory.write(4096, &[1]).unwrap();
    }

    #[test]
    fn is_zeroed_rounded_up_and_bounded() {
        let memory = Memory::allocate(5000, PageSize::Small).unwrap();
        assert_eq!(memory.bytes(), 8192);
        let mut bytes = [1; 8192];
        memory.read(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|b| *b == 0));
        memory.write(8189, &[1, 2, 3]).unwrap();
        assert!(matches!(
            memory.write(8190, &[1, 2, 3]),
            Err(MemoryError::OutOfBounds {
                offset: 8190,
                bytes: 3,
                ..
            })
        ));
        assert!(memory.read(usize::MAX, &mut bytes[..2]).is_err());
        assert!(memory.load_acquire(2).is_err() && memory.load_acquire(8192).is_err());
        memory.store_release(8, 0x0403_0201).unwrap();
        memory.read(8, &mut bytes[..4]).unwrap();
        assert_eq!(
            (&bytes[..4], memory.load_acquire(8).unwrap()),
            (&[1, 2, 3, 4][..], 0x0403_0201)
        );
    }

    #[test]
    fn a_node_that_the_machine_lacks_does_not_matter() {
        let far = Node {
            number: 1000,
            cpus: vec![],
        };
        let memory = Memory::allocate_near(8192, PageSize::Small, Some(&far)).unwrap();
        memory.write(4096, &[1]).unwrap();
    }

    /// Where the kernel says that memory at `address` belongs; nothing if it has no NUMA or does not tell.
    fn policy(address: u64) -> Option<String> {
        let maps = std::fs::read_to_string("/proc/self/numa_maps").ok()?;
        let line = maps
            .lines()
            .find(|line| line.starts_with(&format!("{address:x} ")))?;
        Some(line.split(' ').nth(1)?.to_owned())
    }

    #[test]
    fn memory_prefers_the_node_that_it_is_given() {
        let near = Node {
            number: 0,
            cpus: vec![0],
        };
        let memory = Memory::allocate_near(8192, PageSize::Small, Some(&near)).unwrap();
        if let Some(known) = policy(memory.address()) {
            assert!(
                known.starts_with("prefer") && known.ends_with(":0"),
                "{known}"
            );
        } else {
            eprintln!("this system does not show NUMA policies");
        }
    }

    #[test]
    fn its_file_can_be_mapped_again() {
        let memory = Memory::allocate(1, PageSize::Small).unwrap();
        memory.write(10, b"seen").unwrap();
        let again = Memory::from_file(memory.file().try_clone().unwrap()).unwrap();
        let mut seen = [0; 4];
        again.read(10, &mut seen).unwrap();
        assert_eq!(&seen, b"seen");
    }

    #[test]
    fn nothing_and_too_much_are_refused() {
        assert!(matches!(
            Memory::allocate(0, PageSize::Small),
            Err(MemoryError::Empty)
        ));
        assert!(matches!(
            Memory::allocate(usize::MAX, PageSize::Small),
            Err(MemoryError::TooLarge { .. })
        ));
    }
}
