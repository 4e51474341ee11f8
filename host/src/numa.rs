//! Memory and threads near a card, on machines with several NUMA nodes. None of it is needed to work: what the kernel
//! refuses is logged and left.

use std::io;
use std::mem::size_of;

use tracing::debug;

/// The NUMA node that a card is attached to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its number.
    pub number: u32,
    /// The processors near the card; none when the node is memory only.
    pub cpus: Vec<usize>,
}

impl Node {
    /// Has the pages of `bytes` bytes from `start` on that nobody has touched yet come from this node, as long as it has
    /// free ones. Not more strictly: a process without the last page near is better than one that is killed for it.
    pub(crate) fn prefer(&self, start: *mut u8, bytes: usize) {
        const BITS: usize = libc::c_ulong::BITS as usize;
        let number = self.number as usize;
        let mut mask: Vec<libc::c_ulong> = vec![0; number / BITS + 1];
        mask[number / BITS] |= 1 << (number % BITS);
        // SAFETY: the call reads `mask`, whose length it is told (the kernel leaves the last bit out), and changes where
        // pages come from, not what is in them.
        let done = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                start,
                bytes,
                libc::MPOL_PREFERRED,
                mask.as_ptr(),
                mask.len() * BITS + 1,
                0,
            )
        };
        if done != 0 {
            let error = io::Error::last_os_error();
            debug!(%error, node = self.number, bytes, "memory may be far from the card");
        }
    }

    /// Keeps the calling thread on the processors of this node, as far as it may run there: a `taskset` or a cgroup that
    /// excludes them has the last word. Threads that it starts afterwards inherit that. Says whether it is on the node.
    pub fn keep_thread(&self) -> bool {
        let near = allowed().and_then(|allowed| {
            let near: Vec<usize> = self
                .cpus
                .iter()
                .copied()
                .filter(|cpu| allowed.contains(cpu))
                .collect();
            match near.is_empty() {
                true => Err(io::Error::other("it may run on none of the node's")),
                false => allow(&near),
            }
        });
        if let Err(error) = &near {
            debug!(%error, node = self.number, cpus = ?self.cpus, "the thread may be far from the card");
        }
        near.is_ok()
    }
}

/// The processors that this thread may run on.
fn allowed() -> io::Result<Vec<usize>> {
    let mut set = no_cpus();
    // SAFETY: the call fills `set`, which is as long as it is told.
    match unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) } {
        // SAFETY: `cpu` is below the size of the set.
        0 => Ok((0..libc::CPU_SETSIZE as usize)
            .filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) })
            .collect()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lets this thread run on these processors only.
fn allow(cpus: &[usize]) -> io::Result<()> {
    let mut set = no_cpus();
    for cpu in cpus {
        // SAFETY: `CPU_SET` does nothing beyond the set's size.
        unsafe { libc::CPU_SET(*cpu, &mut set) };
    }
    // SAFETY: the call reads `set`, which is as long as it is told.
    match unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

const fn no_cpus() -> libc::cpu_set_t {
    // SAFETY: a set of bits, for which zeros are valid.
    unsafe { std::mem::zeroed() }
}

/// The numbers of one of the kernel's lists, as `0-3,8`; nothing when it is none.
pub(crate) fn numbers(list: &str) -> Option<Vec<usize>> {
    let list = list.trim();
    let mut all = Vec::new();
    for part in list.split(',').filter(|_| !list.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        all.extend(first.parse().ok()?..=last.parse::<usize>().ok()?);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_the_kernel_are_read() {
        let cases: [(&str, Option<&[usize]>); 6] = [
            ("0-3,8\n", Some(&[0, 1, 2, 3, 8])),
            ("5", Some(&[5])),
            ("\n", Some(&[])),
            ("0-", None),
            ("0,,1", None),
            ("all", None),
        ];
        for (text, expected) in cases {
            assert_eq!(numbers(text).as_deref(), expected, "{text:?}");
        }
    }

    #[test]
    fn a_thread_stays_where_it_may_run() {
        // A thread of its own, so that the others of the test stay as they are.
        std::thread::spawn(|| {
            let before = allowed().unwrap();
            let last = *before.last().unwrap();
            let node = |cpus: Vec<usize>| Node { number: 0, cpus };
            assert!(!node(vec![]).keep_thread());
            assert!(!node(vec![libc::CPU_SETSIZE as usize + 7]).keep_thread());
            assert_eq!(allowed().unwrap(), before);
            assert!(node(vec![last, 1 << 20]).keep_thread());
            assert_eq!(allowed().unwrap(), [last]);
            if before.len() > 1 {
                assert!(
                    !node(vec![before[0]]).keep_thread(),
                    "a taskset was widened"
                );
                assert_eq!(allowed().unwrap(), [last]);
            }
        })
        .join()
        .unwrap();
    }
}
