//! What a driver that is killed could leave behind in the guest.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{ensure, Context as _, Result};

use crate::job::vfio_files;

/// What there is at one time, with no card in use.
#[derive(Debug)]
pub struct Snapshot {
    /// KiB, as /proc/meminfo names them.
    memory: Vec<(&'static str, i64)>,
    /// Pages that devices have pinned.
    pinned: i64,
    iommu_groups: usize,
    group_nodes: BTreeSet<String>,
}

/// What memory nobody uses is called.
const FREE: &str = "MemFree";

/// What is watched of /proc/meminfo, and by how many KiB it may change: caches of the kernel fill and are emptied as it
/// likes. Of memory that is the driver's nothing may stay.
const MEMORY: [(&str, i64); 6] = [
    (FREE, 4096),
    ("Shmem", 64),
    ("Mlocked", 0),
    ("SUnreclaim", 2048),
    ("PageTables", 256),
    ("KernelStack", 256),
];

impl Snapshot {
    /// Fails at once if a process or a file of VFIO is left.
    pub fn take() -> Result<Self> {
        nobody_is_left()?;
        // Free memory is what is left when caches are empty.
        fs::write("/proc/sys/vm/drop_caches", "3")?;
        let meminfo = fs::read_to_string("/proc/meminfo")?;
        let vmstat = fs::read_to_string("/proc/vmstat")?;
        let mut memory = MEMORY
            .iter()
            .map(|(name, _)| Ok((*name, field(&meminfo, &format!("{name}:"))?)))
            .collect::<Result<Vec<_>>>()?;
        // Free pages that a processor keeps at hand are not in MemFree.
        let at_hand = kept_at_hand(&fs::read_to_string("/proc/zoneinfo")?);
        for (_, kib) in memory.iter_mut().filter(|(name, _)| *name == FREE) {
            *kib += at_hand;
        }
        let names = |folder: &str| -> Result<BTreeSet<String>> {
            let entries = fs::read_dir(folder).with_context(|| folder.to_owned())?;
            Ok(entries
                .flatten()
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect())
        };
        Ok(Self {
            memory,
            pinned: field(&vmstat, "nr_foll_pin_acquired")?
                - field(&vmstat, "nr_foll_pin_released")?,
            iommu_groups: names("/sys/kernel/iommu_groups")?.len(),
            group_nodes: names("/dev/vfio")?,
        })
    }

    /// Compares with `before`; what is more is an error. Gives the differences.
    pub fn compare(&self, before: &Self) -> Result<String> {
        let mut told = vec![format!("pinned pages {:+}", self.pinned - before.pinned)];
        let mut lost = vec![];
        if self.pinned != before.pinned {
            lost.push(format!(
                "{} pages are still pinned",
                self.pinned - before.pinned
            ));
        }
        for (((name, now), (_, then)), (_, slack)) in
            self.memory.iter().zip(&before.memory).zip(&MEMORY)
        {
            let more = now - then;
            told.push(format!("{name} {more:+} KiB"));
            let worse = if *name == FREE { -more } else { more };
            if worse > *slack {
                lost.push(format!("{name} changed by {more} KiB, from {then}"));
            }
        }
        if self.iommu_groups != before.iommu_groups || self.group_nodes != before.group_nodes {
            lost.push(format!("IOMMU groups: {before:?}, now {self:?}"));
        }
        ensure!(lost.is_empty(), "leaked: {}", lost.join("; "));
        Ok(told.join(", "))
    }
}

/// No `mprdma` runs, and no process but that has a file of VFIO.
pub fn nobody_is_left() -> Result<()> {
    let entries = fs::read_dir("/proc").context("/proc")?;
    let pids = entries.flatten().filter_map(|entry| {
        let name = entry.file_name();
        name.to_str()?.parse::<u32>().ok()
    });
    for pid in pids {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        ensure!(name.trim() != "mprdma", "mprdma goes on as process {pid}");
        let files = vfio_files(pid);
        ensure!(
            files.is_empty(),
            "process {pid} ({}) has {files:?}",
            name.trim()
        );
    }
    Ok(())
}

/// KiB in the lists of free pages of each processor, of /proc/zoneinfo.
fn kept_at_hand(zoneinfo: &str) -> i64 {
    const PAGE_KIB: i64 = 4;
    let counts = zoneinfo.lines().filter_map(|line| {
        let count = line.trim().strip_prefix("count:")?;
        count.trim().parse::<i64>().ok()
    });
    counts.sum::<i64>() * PAGE_KIB
}

/// The number behind a name in one of the kernel's tables.
fn field(table: &str, name: &str) -> Result<i64> {
    let mut lines = table.lines().map(str::split_whitespace);
    let found = lines.find_map(|mut words| (words.next()? == name).then(|| words.next())?);
    let number = found.with_context(|| format!("the kernel does not tell {name}"))?;
    Ok(number.parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(pinned: i64, free: i64, shared: i64) -> Snapshot {
        let memory = MEMORY.map(|(name, _)| match name {
            FREE => (name, free),
            "Shmem" => (name, shared),
            _ => (name, 100),
        });
        Snapshot {
            memory: memory.to_vec(),
            pinned,
            iommu_groups: 8,
            group_nodes: BTreeSet::from(["7".to_owned(), "vfio".to_owned()]),
        }
    }

    #[test]
    fn what_stays_is_named() {
        let before = snapshot(3, 100_000, 10);
        let told = snapshot(3, 99_000, 10).compare(&before).unwrap();
        assert!(
            told.contains("pinned pages +0, MemFree -1000 KiB"),
            "{told}"
        );
        snapshot(3, 200_000, 0).compare(&before).unwrap();
        for (after, word) in [
            (snapshot(4, 100_000, 10), "1 pages are still pinned"),
            (snapshot(3, 90_000, 10), "MemFree changed by -10000 KiB"),
            (snapshot(3, 100_000, 100), "Shmem changed by 90 KiB"),
        ] {
            let error = after.compare(&before).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        let mut after = snapshot(3, 100_000, 10);
        after.group_nodes.remove("7");
        assert!(after
            .compare(&before)
            .unwrap_err()
            .to_string()
            .contains("IOMMU groups"));
    }

    #[test]
    fn fields_of_the_kernels_tables_are_found() {
        let table = "MemTotal:  12 kB\nMemFree:   345 kB\n\nnr_x -7\n";
        assert_eq!(field(table, "MemFree:").unwrap(), 345);
        assert_eq!(field(table, "nr_x").unwrap(), -7);
        assert!(field(table, "MemFre").is_err());
        let zones = "  pagesets\n    cpu: 0\n              count:    63\n              high:     378\n    cpu: 1\n              count: 2\n";
        assert_eq!(kept_at_hand(zones), 260);
    }
}
