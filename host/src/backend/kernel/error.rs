//! Why the kernel does not let us have a card, and the command that mends it.

use std::io;

use thiserror::Error;

/// Any refusal of the kernel's VFIO.
#[derive(Debug, Error)]
pub enum KernelError {
    /// No IOMMU stands between the function and memory.
    #[error(
        "{address}: the function has no IOMMU group: the IOMMU is off; switch on VT-d or AMD-Vi in the firmware, boot Linux \
         with `intel_iommu=on` (Intel), and look for `ls /sys/kernel/iommu_groups`"
    )]
    NoIommu {
        /// PCI address.
        address: String,
    },
    /// The kernel has no vfio-pci.
    #[error("{address}: the kernel module vfio-pci is not loaded; run `sudo modprobe vfio-pci`")]
    NoModule {
        /// PCI address.
        address: String,
    },
    /// Another driver has the function, or none.
    #[error(
        "{address}: {}, not vfio-pci; run `sudo mprdma bind {address}`",
        .driver.as_ref().map_or_else(|| "no driver is bound to it".to_owned(), |driver| format!("the driver {driver} is bound to it"))
    )]
    OtherDriver {
        /// PCI address.
        address: String,
        /// The driver's name.
        driver: Option<String>,
    },
    /// Functions of the same group have drivers that do DMA themselves.
    #[error(
        "{address}: IOMMU group {group} cannot be used while other drivers have functions of it: {}; run `sudo mprdma bind \
         ADDRESS` for each",
        list(.others)
    )]
    NotViable {
        /// PCI address.
        address: String,
        /// Group number.
        group: u32,
        /// The others' addresses and drivers.
        others: Vec<(String, String)>,
    },
    /// The user may not open the group.
    #[error(
        "{address}: no permission to open {node}; run `sudo chown $USER {node}`, or install the udev rule of \
         docs/user-guide.md"
    )]
    NoPermission {
        /// PCI address.
        address: String,
        /// The file.
        node: String,
    },
    /// A file of VFIO cannot be opened for another reason.
    #[error("{address}: cannot open {node}: {source}; `dmesg | grep -i vfio` may tell why")]
    Node {
        /// PCI address.
        address: String,
        /// The file.
        node: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The function's configuration is not a card's.
    #[error("{address}: the function has no BAR 0 that can be mapped; is it an mprdma card, and are its BARs assigned (`lspci -vs {address}`)?")]
    NoBar {
        /// PCI address.
        address: String,
    },
    /// The user may not lock as much memory as DMA needs.
    #[error(
        "{address}: DMA needs {bytes} bytes locked, this user may lock {limit}; run `ulimit -l unlimited` as root before it, \
         or set LimitMEMLOCK=infinity in its systemd unit"
    )]
    LockedMemory {
        /// PCI address.
        address: String,
        /// Bytes needed, what is mapped already included.
        bytes: u64,
        /// RLIMIT_MEMLOCK.
        limit: u64,
    },
    /// Only root can bind drivers.
    #[error("{address}: only root may {what}; run `sudo mprdma {command} {address}`")]
    NotRoot {
        /// PCI address.
        address: String,
        /// What was tried.
        what: &'static str,
        /// Subcommand.
        command: &'static str,
    },
    /// The kernel did not do what a file of sysfs was told.
    #[error("{address}: cannot write {path}: {source}; `dmesg | tail` may tell why")]
    Sysfs {
        /// PCI address.
        address: String,
        /// The file.
        path: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The write to sysfs went well, and yet the driver is another.
    #[error(
        "{address}: the kernel did not bind vfio-pci: {} now; `dmesg | tail` may tell why",
        .driver.as_ref().map_or_else(|| "it has no driver".to_owned(), |driver| format!("its driver is {driver}"))
    )]
    NotBound {
        /// PCI address.
        address: String,
        /// The driver after the attempt.
        driver: Option<String>,
    },
}

/// `0000:00:1f.0 (ehci-pci), 0000:00:1f.1 (ahci)`.
fn list(others: &[(String, String)]) -> String {
    let each: Vec<_> = others
        .iter()
        .map(|(address, driver)| format!("{address} ({driver})"))
        .collect();
    each.join(", ")
}
