//! Huge pages for a test: reserved, and given back.

use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One at a time: what one test reserves the other would take for free.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Pages of 2 MiB beyond those that the system had.
pub struct Reserved {
    count: u64,
    _turn: MutexGuard<'static, ()>,
}

fn pool() -> PathBuf {
    PathBuf::from("/sys/kernel/mm/hugepages/hugepages-2048kB")
}

/// A number that the kernel shows.
fn number(name: &str) -> Result<u64, String> {
    let path = pool().join(name);
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    text.trim()
        .parse()
        .map_err(|_| format!("{}: {text:?}", path.display()))
}

fn resize(change: impl Fn(u64) -> u64) -> Result<(), String> {
    let (total, path) = (number("nr_hugepages")?, pool().join("nr_hugepages"));
    fs::write(&path, change(total).to_string())
        .map_err(|error| format!("{}: {error}", path.display()))
}

impl Reserved {
    /// Reserves `count` pages, or says why the kernel does not give them.
    pub fn new(count: u64) -> Result<Self, String> {
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        resize(|total| total + count)?;
        let reserved = Self { count, _turn: turn };
        // The kernel takes what it can get and reports no error.
        match reserved.free() {
            free if free >= count => Ok(reserved),
            free => Err(format!(
                "the kernel has found only {free} of {count} pages of 2 MiB"
            )),
        }
    }

    /// Pages that nobody uses or has been promised.
    #[must_use]
    pub fn free(&self) -> u64 {
        let (free, promised) = (number("free_hugepages"), number("resv_hugepages"));
        free.unwrap_or(0) - promised.unwrap_or(0)
    }

    /// Reserves, or prints why the test cannot run here.
    #[must_use]
    pub fn or_skip(count: u64) -> Option<Self> {
        Self::new(count)
            .inspect_err(|why| println!("SKIPPED: no huge pages for this test: {why}"))
            .ok()
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if let Err(why) = resize(|total| total.saturating_sub(self.count)) {
            println!("{} pages of 2 MiB stay reserved: {why}", self.count);
        }
    }
}
