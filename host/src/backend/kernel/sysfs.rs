//! What sysfs tells of a PCI function, and how a driver is bound to it.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::address::PciAddress;
use crate::numa::{self, Node};

/// Writes a text to a file.
type Write = Box<dyn Fn(&Path, &str) -> io::Result<()> + Send + Sync>;

/// Where the kernel shows itself. Tests put a tree of their own in its place.
pub struct System {
    /// `/sys`.
    pub sys: PathBuf,
    /// `/dev`.
    pub dev: PathBuf,
    /// Where notes of this program outlive it until the next boot.
    pub run: PathBuf,
    write: Write,
}

impl Default for System {
    fn default() -> Self {
        Self {
            sys: "/sys".into(),
            dev: "/dev".into(),
            run: "/run/mprdma".into(),
            write: Box::new(|path, text| fs::write(path, text)),
        }
    }
}

impl fmt::Debug for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sys.fmt(f)
    }
}

impl System {
    /// Directory of a function.
    pub fn function(&self, address: PciAddress) -> PathBuf {
        self.sys.join("bus/pci/devices").join(address.to_string())
    }

    /// The driver bound to a function, if there is one.
    pub fn driver(&self, address: PciAddress) -> Option<String> {
        link_name(&self.function(address).join("driver"))
    }

    /// The driver that somebody has chosen for a function, if anybody has.
    pub fn driver_override(&self, address: PciAddress) -> Option<String> {
        let text = fs::read_to_string(self.function(address).join("driver_override")).ok()?;
        match text.trim() {
            "" | "(null)" => None,
            chosen => Some(chosen.to_owned()),
        }
    }

    /// The IOMMU group of a function, if it has one.
    pub fn group(&self, address: PciAddress) -> Option<u32> {
        link_name(&self.function(address).join("iommu_group"))?
            .parse()
            .ok()
    }

    /// The NUMA node that a function is attached to, if the firmware says.
    pub fn numa_node(&self, address: PciAddress) -> Option<u32> {
        // -1 stands for unknown.
        let text = fs::read_to_string(self.function(address).join("numa_node")).ok()?;
        text.trim().parse().ok()
    }

    /// The same with the processors near it, if the machine has memory on other nodes too.
    pub fn near(&self, address: PciAddress) -> Option<Node> {
        let number = self.numa_node(address)?;
        let list = |path: PathBuf| numa::numbers(&fs::read_to_string(path).ok()?);
        let nodes = list(self.sys.join("devices/system/node/has_memory"))?;
        let cpus = list(self.function(address).join("local_cpulist"));
        (nodes.len() > 1).then(|| Node {
            number,
            cpus: cpus.unwrap_or_default(),
        })
    }

    /// The node through which a group is had.
    pub fn group_node(&self, group: u32) -> PathBuf {
        self.dev.join("vfio").join(group.to_string())
    }

    /// Directory of a driver; it exists when the driver is loaded.
    pub fn driver_directory(&self, driver: &str) -> PathBuf {
        self.sys.join("bus/pci/drivers").join(driver)
    }

    /// Functions of `address`'s group that keep it from being used, with their drivers.
    pub fn obstacles(&self, address: PciAddress) -> Vec<(String, String)> {
        let ours = address.to_string();
        let devices = self.function(address).join("iommu_group/devices");
        let mut others: Vec<_> = fs::read_dir(devices)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.file_name() != *ours)
            .filter_map(|entry| {
                let driver = link_name(&entry.path().join("driver"))?;
                Some((entry.file_name().to_string_lossy().into_owned(), driver))
            })
            .filter(|(_, driver)| !HARMLESS.contains(&driver.as_str()))
            .collect();
        others.sort();
        others
    }

    /// Tells the kernel something.
    pub fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        (self.write)(path, text)
    }
}

/// Drivers that do no DMA, which may have functions of a group in use (drivers/vfio/group.c).
const HARMLESS: [&str; 3] = ["vfio-pci", "pci-stub", "pcieport"];

/// The last part of where a symbolic link points.
fn link_name(link: &Path) -> Option<String> {
    let target = fs::read_link(link).ok()?;
    Some(target.file_name()?.to_string_lossy().into_owned())
}

#[cfg(test)]
pub(super) mod fake {
    //! A machine made of files: one card, `0000:17:00.0`, in group 7.

    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    use super::*;

    pub const CARD: PciAddress = PciAddress {
        domain: 0,
        bus: 0x17,
        device: 0,
        function: 0,
    };
    pub const NEIGHBOUR: &str = "0000:17:00.1";

    pub struct Machine {
        root: PathBuf,
        pub system: System,
        /// What was written, as `file name: text`.
        pub written: Arc<Mutex<Vec<String>>>,
    }

    impl Machine {
        /// With vfio-pci loaded, and `driver` bound to the card. The driver `native` would take it by its ids.
        pub fn new(driver: Option<&str>) -> Self {
            static NUMBER: AtomicU32 = AtomicU32::new(0);
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let root =
                std::env::temp_dir().join(format!("mprdma-sysfs-{}-{number}", std::process::id()));
            let written = Arc::new(Mutex::new(Vec::new()));
            let system = System {
                sys: root.join("sys"),
                dev: root.join("dev"),
                run: root.join("run"),
                write: kernel(root.join("sys"), Arc::clone(&written)),
            };
            let machine = Self {
                root,
                system,
                written,
            };
            for driver in ["vfio-pci", "native"] {
                fs::create_dir_all(machine.system.driver_directory(driver)).unwrap();
            }
            machine.add(&CARD.to_string(), driver);
            machine.put("dev/vfio/vfio");
            machine.put("dev/vfio/7");
            machine
        }

        /// Puts a function into group 7.
        pub fn add(&self, address: &str, driver: Option<&str>) {
            let function = self.system.sys.join("bus/pci/devices").join(address);
            let group = self.system.sys.join("kernel/iommu_groups/7");
            fs::create_dir_all(&function).unwrap();
            fs::create_dir_all(group.join("devices")).unwrap();
            symlink(&group, function.join("iommu_group")).unwrap();
            symlink(&function, group.join("devices").join(address)).unwrap();
            fs::write(function.join("driver_override"), "(null)\n").unwrap();
            if let Some(driver) = driver {
                let directory = self.system.driver_directory(driver);
                fs::create_dir_all(&directory).unwrap();
                symlink(directory, function.join("driver")).unwrap();
            }
        }

        pub fn remove(&self, path: &str) {
            let path = self.root.join(path);
            if path.is_dir() && !path.is_symlink() {
                fs::remove_dir_all(path).unwrap();
            } else {
                fs::remove_file(path).unwrap();
            }
        }

        pub fn put(&self, path: &str) {
            self.tell(path, "");
        }

        /// Gives a file a content.
        pub fn tell(&self, path: &str, text: &str) {
            let path = self.root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        /// The kernel refuses every write.
        pub fn refuse(&mut self, errno: i32) {
            self.system.write = Box::new(move |_, _| Err(io::Error::from_raw_os_error(errno)));
        }

        /// Every write but the first `count` fails: whoever stops at once then does no more than if it had been killed.
        pub fn stop_after(&mut self, count: usize) {
            let (kernel, left) = (self.kernel(), AtomicUsize::new(count));
            self.system.write = Box::new(move |path, text| {
                let more = |left: usize| left.checked_sub(1);
                match left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
                    Ok(_) => kernel(path, text),
                    Err(_) => Err(io::ErrorKind::Interrupted.into()),
                }
            });
        }

        /// Writes are obeyed again.
        pub fn obey(&mut self) {
            self.system.write = self.kernel();
        }

        fn kernel(&self) -> Write {
            kernel(self.root.join("sys"), Arc::clone(&self.written))
        }
    }

    impl Drop for Machine {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.root);
        }
    }

    /// Does what the kernel does when `unbind` and `drivers_probe` are written.
    fn kernel(sys: PathBuf, log: Arc<Mutex<Vec<String>>>) -> Write {
        Box::new(move |path, text| {
            let name = path.file_name().unwrap().to_string_lossy();
            log.lock().unwrap().push(format!("{name}: {}", text.trim()));
            let function = sys.join("bus/pci/devices").join(text);
            match &*name {
                "unbind" => fs::remove_file(function.join("driver")),
                "drivers_probe" => {
                    let chosen = fs::read_to_string(function.join("driver_override"))?;
                    let driver = match chosen.trim() {
                        "" | "(null)" => "native",
                        chosen => chosen,
                    };
                    let directory = sys.join("bus/pci/drivers").join(driver);
                    match directory.is_dir() && !function.join("driver").exists() {
                        true => symlink(directory, function.join("driver")),
                        false => Ok(()),
                    }
                }
                _ => fs::write(path, text),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::fake::{Machine, CARD};
    use super::*;

    /// What is known of the node: as (`numa_node`, nodes with memory, `local_cpulist`).
    fn near(node: &str, nodes: &str, cpus: &str) -> (Option<u32>, Option<Node>) {
        let machine = Machine::new(None);
        machine.tell("sys/bus/pci/devices/0000:17:00.0/numa_node", node);
        machine.tell("sys/bus/pci/devices/0000:17:00.0/local_cpulist", cpus);
        machine.tell("sys/devices/system/node/has_memory", nodes);
        (machine.system.numa_node(CARD), machine.system.near(CARD))
    }

    #[test]
    fn a_card_has_a_node_when_the_firmware_says_and_there_are_several() {
        let node = |number, cpus: &[usize]| {
            let cpus = cpus.to_vec();
            Some(Node { number, cpus })
        };
        assert_eq!(near("1\n", "0-1\n", "2-3\n"), (Some(1), node(1, &[2, 3])));
        assert_eq!(near("2\n", "0,2\n", "\n"), (Some(2), node(2, &[])));
        assert_eq!(
            near("0\n", "0\n", "0-3\n"),
            (Some(0), None),
            "the only node"
        );
        assert_eq!(near("-1\n", "0-1\n", "0-3\n"), (None, None), "unknown");
        let machine = Machine::new(None);
        assert_eq!(
            machine.system.numa_node(CARD),
            None,
            "a kernel without NUMA"
        );
        assert_eq!(machine.system.near(CARD), None);
    }
}
