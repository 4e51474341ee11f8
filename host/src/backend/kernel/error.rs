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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_names_its_cause_and_the_command_that_helps() {
        let address = || "0000:17:00.0".to_owned();
        let node = || "/dev/vfio/7".to_owned();
        let source = |errno| io::Error::from_raw_os_error(errno);
        let cases = [
            (
                KernelError::NoIommu { address: address() },
                "0000:17:00.0: the function has no IOMMU group: the IOMMU is off; switch on VT-d or AMD-Vi in the firmware, \
                 boot Linux with `intel_iommu=on` (Intel), and look for `ls /sys/kernel/iommu_groups`",
            ),
            (
                KernelError::NoModule { address: address() },
                "0000:17:00.0: the kernel module vfio-pci is not loaded; run `sudo modprobe vfio-pci`",
            ),
            (
                KernelError::OtherDriver {
                    address: address(),
                    driver: Some("mlx5_core".to_owned()),
                },
                "0000:17:00.0: the driver mlx5_core is bound to it, not vfio-pci; run `sudo mprdma bind 0000:17:00.0`",
            ),
            (
                KernelError::OtherDriver {
                    address: address(),
                    driver: None,
                },
                "0000:17:00.0: no driver is bound to it, not vfio-pci; run `sudo mprdma bind 0000:17:00.0`",
            ),
            (
                KernelError::NotViable {
                    address: address(),
                    group: 7,
                    others: vec![
                        ("0000:17:00.1".to_owned(), "ahci".to_owned()),
                        ("0000:17:00.2".to_owned(), "ehci-pci".to_owned()),
                    ],
                },
                "0000:17:00.0: IOMMU group 7 cannot be used while other drivers have functions of it: 0000:17:00.1 (ahci), \
                 0000:17:00.2 (ehci-pci); run `sudo mprdma bind ADDRESS` for each",
            ),
            (
                KernelError::NoPermission {
                    address: address(),
                    node: node(),
                },
                "0000:17:00.0: no permission to open /dev/vfio/7; run `sudo chown $USER /dev/vfio/7`, or install the udev \
                 rule of docs/user-guide.md",
            ),
            (
                KernelError::Node {
                    address: address(),
                    node: node(),
                    source: source(libc::ENOENT),
                },
                "0000:17:00.0: cannot open /dev/vfio/7: No such file or directory (os error 2); `dmesg | grep -i vfio` may \
                 tell why",
            ),
            (
                KernelError::NoBar { address: address() },
                "0000:17:00.0: the function has no BAR 0 that can be mapped; is it an mprdma card, and are its BARs \
                 assigned (`lspci -vs 0000:17:00.0`)?",
            ),
            (
                KernelError::LockedMemory {
                    address: address(),
                    bytes: 1 << 20,
                    limit: 65536,
                },
                "0000:17:00.0: DMA needs 1048576 bytes locked, this user may lock 65536; run `ulimit -l unlimited` as root \
                 before it, or set LimitMEMLOCK=infinity in its systemd unit",
            ),
            (
                KernelError::NotRoot {
                    address: address(),
                    what: "change a function's driver",
                    command: "bind",
                },
                "0000:17:00.0: only root may change a function's driver; run `sudo mprdma bind 0000:17:00.0`",
            ),
            (
                KernelError::Sysfs {
                    address: address(),
                    path: "/sys/bus/pci/drivers_probe".to_owned(),
                    source: source(libc::ENODEV),
                },
                "0000:17:00.0: cannot write /sys/bus/pci/drivers_probe: No such device (os error 19); `dmesg | tail` may \
                 tell why",
            ),
            (
                KernelError::NotBound {
                    address: address(),
                    driver: None,
                },
                "0000:17:00.0: the kernel did not bind vfio-pci: it has no driver now; `dmesg | tail` may tell why",
            ),
        ];
        for (error, text) in cases {
            assert_eq!(error.to_string(), text);
        }
    }
}
