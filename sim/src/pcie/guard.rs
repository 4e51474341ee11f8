//! Mappings of files that somebody else may shorten.
//!
//! Touching a page that the file no longer has raises SIGBUS, and a check of the size beforehand always comes too early.
//! So a handler puts an empty page in its place, marks the mapping as lost, and the access goes on; whoever made it then
//! sees that it was void.

use memmap2::{MmapOptions, MmapRaw};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::OnceLock;

/// Files that may be mapped at a time.
const SLOTS: usize = 1 << 16;

/// A guarded mapping, as the handler sees it.
struct Slot {
    taken: AtomicBool,
    /// First byte; 0 while there is no mapping.
    start: AtomicUsize,
    len: AtomicUsize,
    page: AtomicUsize,
    lost: AtomicBool,
}

static SLOT: [Slot; SLOTS] = [const {
    Slot {
        taken: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        page: AtomicUsize::new(0),
        lost: AtomicBool::new(false),
    }
}; SLOTS];

/// What handled SIGBUS before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// A mapping that outlives its file's pages.
pub(super) struct Guarded {
    map: MmapRaw,
    slot: &'static Slot,
}

impl Guarded {
    /// Maps the first `len` bytes of `file`.
    pub(super) fn map(file: &File, len: usize, writable: bool) -> io::Result<Guarded> {
        install()?;
        let free = |slot: &&Slot| !slot.taken.swap(true, Ordering::Acquire);
        let slot = SLOT
            .iter()
            .find(free)
            .ok_or_else(|| io::Error::other(format!("{SLOTS} files are mapped already")))?;
        let mut options = MmapOptions::new();
        options.len(len);
        let map = match writable {
            true => options.map_raw(file),
            false => options.map_raw_read_only(file),
        };
        let map = map.inspect_err(|_| slot.taken.store(false, Ordering::Release))?;
        // The block size of a file in huge pages is the page size.
        let block = file.metadata().map_or(0, |meta| meta.blksize() as usize);
        slot.lost.store(false, Ordering::Relaxed);
        slot.len.store(len, Ordering::Relaxed);
        slot.page.store(block.max(PAGE), Ordering::Relaxed);
        slot.start.store(map.as_ptr() as usize, Ordering::Release);
        Ok(Guarded { map, slot })
    }

    pub(super) fn as_mut_ptr(&self) -> *mut u8 {
        self.map.as_mut_ptr()
    }

    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    /// An access found the file shorter than it was.
    pub(super) fn is_lost(&self) -> bool {
        self.slot.lost.load(Ordering::Acquire)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // The memory itself is unmapped after this; nobody accesses it any more.
        self.slot.start.store(0, Ordering::Release);
        self.slot.taken.store(false, Ordering::Release);
    }
}

/// Smallest page, bytes.
const PAGE: usize = 4096;

/// Sets the handler, once.
fn install() -> io::Result<()> {
    if BEFORE.get().is_some() {
        return Ok(());
    }
    // SAFETY: `sigaction` is plain data, for which zeros are valid; the handler only does what a handler may. The handler
    // that was there is kept before ours can be called for anything that it should have.
    unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut before) != 0 {
            return Err(io::Error::last_os_error());
        }
        if BEFORE.set(before).is_err() {
            return Ok(());
        }
        let mut ours: libc::sigaction = std::mem::zeroed();
        ours.sa_sigaction = on_bus_error as *const () as usize;
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&mut ours.sa_mask);
        match libc::sigaction(libc::SIGBUS, &ours, std::ptr::null_mut()) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Puts an empty page where the fault was, if it was in a guarded mapping.
extern "C" fn on_bus_error(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes a valid `siginfo_t`; for SIGBUS it has an address.
    let address = unsafe { (*info).si_addr() } as usize;
    let hit = SLOT.iter().find(|slot| {
        let start = slot.start.load(Ordering::Acquire);
        start != 0 && (start..start + slot.len.load(Ordering::Relaxed)).contains(&address)
    });
    if hit.is_some_and(|slot| replace(slot, address)) {
        return;
    }
    pass_on(signal, info, context);
}

fn replace(slot: &Slot, address: usize) -> bool {
    let page = slot.page.load(Ordering::Relaxed);
    let start = address & !(page - 1);
    slot.lost.store(true, Ordering::Release);
    // SAFETY: the page belongs to a mapping of ours, which nobody holds a reference to; `errno` is put back.
    unsafe {
        let errno = *libc::__errno_location();
        let new = libc::mmap(
            start as *mut libc::c_void,
            page,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
            -1,
            0,
        );
        *libc::__errno_location() = errno;
        new != libc::MAP_FAILED
    }
}

/// A bus error of somebody else's.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
    match BEFORE.get() {
        Some(before)
            if before.sa_flags & libc::SA_SIGINFO != 0 && before.sa_sigaction != libc::SIG_DFL =>
        {
            // SAFETY: with SA_SIGINFO the field is the address of such a function.
            let handler: Handler = unsafe { std::mem::transmute(before.sa_sigaction) };
            handler(signal, info, context);
        }
        _ => {
            // SAFETY: the access is repeated when we return, and ends the program as it would have without us.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
}
