//! The kernel's pools of huge pages.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::memory::PageSize;

/// Where the kernel keeps its files.
const SYSFS: &str = "/sys";

/// Pages of one size, in the whole system or on one NUMA node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct HugePages {
    /// Bytes of one page.
    pub page_bytes: usize,
    /// Pages that are reserved.
    pub total: u64,
    /// Those among them that can be had: nobody uses them or has been promised them.
    pub free: u64,
}

impl HugePages {
    /// The pool of this size; none when the kernel has no pages of it.
    #[must_use]
    pub fn of(page: PageSize, node: Option<u32>) -> Option<Self> {
        Self::read(Path::new(SYSFS), page, node)
    }

    fn read(sysfs: &Path, page: PageSize, node: Option<u32>) -> Option<Self> {
        let pool = pool(sysfs, page, node);
        let number = |name: &str| {
            fs::read_to_string(pool.join(name))
                .ok()?
                .trim()
                .parse()
                .ok()
        };
        Some(Self {
            page_bytes: page.bytes(),
            total: number("nr_hugepages")?,
            // Mapped memory that nobody has touched yet has its pages promised; nodes do not tell.
            free: number("free_hugepages")?.saturating_sub(number("resv_hugepages").unwrap_or(0)),
        })
    }
}

/// The directory of a pool.
fn pool(sysfs: &Path, page: PageSize, node: Option<u32>) -> PathBuf {
    let memory = match node {
        Some(node) => sysfs.join(format!("devices/system/node/node{node}")),
        None => sysfs.join("kernel/mm"),
    };
    let kilobytes = page.bytes() >> 10;
    memory.join(format!("hugepages/hugepages-{kilobytes}kB"))
}

/// What to do when `bytes` bytes in pages of this size, preferably on `node`, are not there.
pub(crate) fn advice(page: PageSize, bytes: usize, node: Option<u32>) -> String {
    advice_in(Path::new(SYSFS), page, bytes, node)
}

fn advice_in(sysfs: &Path, page: PageSize, bytes: usize, node: Option<u32>) -> String {
    // A node of which the kernel shows nothing is as none.
    let node = node.filter(|node| HugePages::read(sysfs, page, Some(*node)).is_some());
    let Some(now) = HugePages::read(sysfs, page, node) else {
        return format!("this system has no pages of {page}; take another size");
    };
    let needed = bytes.div_ceil(page.bytes()) as u64;
    let total = now.total - now.free.min(now.total) + needed;
    let file = pool(sysfs, page, node).join("nr_hugepages");
    let boot = if page == PageSize::Huge1G {
        " (at boot, hugepagesz=1G hugepages=N on the kernel's command line, if memory is in pieces by now)"
    } else {
        ""
    };
    format!(
        "{needed} needed, {} of {} free; reserve them with `echo {total} | sudo tee {}`{boot}, or do without --hugepages",
        now.free,
        now.total,
        file.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that looks as sysfs does.
    struct Sysfs(PathBuf);

    impl Sysfs {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("mprdma-{name}-{}", std::process::id()));
            Self(path)
        }

        fn pool(&self, page: PageSize, node: Option<u32>, total: u64, free: u64) {
            let pool = pool(&self.0, page, node);
            fs::create_dir_all(&pool).unwrap();
            fs::write(pool.join("nr_hugepages"), format!("{total}\n")).unwrap();
            fs::write(pool.join("free_hugepages"), format!("{}\n", free + 2)).unwrap();
            fs::write(pool.join("resv_hugepages"), "2\n").unwrap();
        }
    }

    impl Drop for Sysfs {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_advice_names_how_many_and_where() {
        let sysfs = Sysfs::new("advice");
        sysfs.pool(PageSize::Huge2M, None, 8, 1);
        sysfs.pool(PageSize::Huge2M, Some(1), 3, 1);
        let advice = |page, node| advice_in(&sysfs.0, page, (4 << 20) + 1, node);
        let text = advice(PageSize::Huge2M, None);
        assert!(text.starts_with("3 needed, 1 of 8 free"), "{text}");
        let command = "/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages`";
        assert!(
            text.contains("`echo 10 | sudo tee") && text.contains(command),
            "{text}"
        );
        let text = advice(PageSize::Huge2M, Some(1));
        let command = "/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages`";
        assert!(
            text.contains("`echo 5 | sudo tee") && text.contains(command),
            "{text}"
        );
        assert!(advice(PageSize::Huge2M, Some(7)).contains("/kernel/mm/"));
        let text = advice(PageSize::Huge1G, None);
        assert!(text.contains("this system has no pages of 1 GiB"), "{text}");
        sysfs.pool(PageSize::Huge1G, None, 0, 0);
        let text = advice(PageSize::Huge1G, None);
        assert!(
            text.contains("1 needed, 0 of 0 free") && text.contains("hugepagesz=1G"),
            "{text}"
        );
    }
}
