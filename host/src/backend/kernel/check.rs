//! What must be true before a function can be opened, each with the command that makes it so.

use std::fs::{File, OpenOptions};
use std::io;
use std::mem::size_of;
use std::os::fd::AsRawFd;
use std::path::Path;

use vfio_bindings::bindings::vfio::{
    vfio_group_status, VFIO_BASE, VFIO_GROUP_FLAGS_VIABLE, VFIO_TYPE,
};

use super::bind::VFIO_PCI;
use super::error::KernelError;
use super::sysfs::System;
use crate::address::PciAddress;
use crate::device::DeviceError;

/// `VFIO_GROUP_GET_STATUS`, `_IO(VFIO_TYPE, VFIO_BASE + 3)` of linux/vfio.h.
const GROUP_GET_STATUS: libc::c_ulong =
    (VFIO_TYPE as libc::c_ulong) << 8 | (VFIO_BASE as libc::c_ulong + 3);

/// Whether the function can be opened, as far as can be seen from outside.
pub fn can_be_opened(system: &System, address: PciAddress) -> Result<(), DeviceError> {
    exists(system, address)?;
    let group = iommu(system, address)?;
    module(system, address)?;
    let driver = system.driver(address);
    if driver.as_deref() != Some(VFIO_PCI) {
        return Err(KernelError::OtherDriver {
            address: address.to_string(),
            driver,
        }
        .into());
    }
    let others = system.obstacles(address);
    if !others.is_empty() {
        return Err(KernelError::NotViable {
            address: address.to_string(),
            group,
            others,
        }
        .into());
    }
    open(address, &system.dev.join("vfio/vfio"))?;
    group_is_free(system, address)
}

/// There is such a function.
pub fn exists(system: &System, address: PciAddress) -> Result<(), DeviceError> {
    if system.function(address).exists() {
        return Ok(());
    }
    let address = address.to_string();
    Err(DeviceError::NotFound { address })
}

/// It is behind an IOMMU: in which group.
pub fn iommu(system: &System, address: PciAddress) -> Result<u32, KernelError> {
    system.group(address).ok_or_else(|| KernelError::NoIommu {
        address: address.to_string(),
    })
}

/// The kernel has vfio-pci.
pub fn module(system: &System, address: PciAddress) -> Result<(), KernelError> {
    if system.driver_directory(VFIO_PCI).is_dir() {
        return Ok(());
    }
    Err(KernelError::NoModule {
        address: address.to_string(),
    })
}

/// We may have the group and nobody else has it: one process can hold its node.
pub fn group_is_free(system: &System, address: PciAddress) -> Result<(), DeviceError> {
    let group = iommu(system, address)?;
    let node = open(address, &system.group_node(group))?;
    // The kernel's word on it; sysfs has named those that we know of already.
    if status(&node).is_ok_and(|flags| flags & VFIO_GROUP_FLAGS_VIABLE == 0) {
        return Err(KernelError::NotViable {
            address: address.to_string(),
            group,
            others: system.obstacles(address),
        }
        .into());
    }
    Ok(())
}

fn open(address: PciAddress, node: &Path) -> Result<File, DeviceError> {
    let open = OpenOptions::new().read(true).write(true).open(node);
    open.map_err(|source| not_opened(address, node, source))
}

/// Why a node could not be opened.
fn not_opened(address: PciAddress, node: &Path, source: io::Error) -> DeviceError {
    let (address, node) = (address.to_string(), node.display().to_string());
    match source.raw_os_error() {
        Some(libc::EBUSY) => DeviceError::Busy {
            holder: format!("another process (`sudo fuser -v {node}` names it)"),
            address,
        },
        Some(libc::EACCES) => KernelError::NoPermission { address, node }.into(),
        _ => KernelError::Node {
            address,
            node,
            source,
        }
        .into(),
    }
}

/// Flags of a group.
fn status(group: &File) -> io::Result<u32> {
    let mut status = vfio_group_status {
        argsz: size_of::<vfio_group_status>() as u32,
        flags: 0,
    };
    // SAFETY: the call fills `status`, which is as long as it says, and has no other memory effect.
    match unsafe { libc::ioctl(group.as_raw_fd(), GROUP_GET_STATUS, &raw mut status) } {
        0 => Ok(status.flags),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::sysfs::fake::{Machine, CARD, NEIGHBOUR};
    use super::*;

    #[test]
    fn a_bound_function_that_is_alone_in_its_group_can_be_opened() {
        let machine = Machine::new(Some(VFIO_PCI));
        can_be_opened(&machine.system, CARD).unwrap();
        for driver in [None, Some("pcieport"), Some("pci-stub"), Some(VFIO_PCI)] {
            let machine = Machine::new(Some(VFIO_PCI));
            machine.add(NEIGHBOUR, driver);
            can_be_opened(&machine.system, CARD).unwrap();
        }
    }

    #[test]
    fn every_obstacle_is_named_with_the_command_that_clears_it() {
        type Spoil = fn(&Machine);
        let function = "sys/bus/pci/devices/0000:17:00.0";
        assert_eq!(function, format!("sys/bus/pci/devices/{CARD}"));
        let cases: [(Option<&str>, Spoil, &[&str]); 7] = [
            (
                Some(VFIO_PCI),
                |m| m.remove("sys/bus/pci/devices/0000:17:00.0"),
                &["no such device", "mprdma devices"],
            ),
            (
                Some(VFIO_PCI),
                |m| m.remove("sys/bus/pci/devices/0000:17:00.0/iommu_group"),
                &["no IOMMU group", "intel_iommu=on"],
            ),
            (
                None,
                |m| m.remove("sys/bus/pci/drivers/vfio-pci"),
                &["not loaded", "modprobe vfio-pci"],
            ),
            (
                Some("mlx5_core"),
                |_| (),
                &["mlx5_core", "mprdma bind 0000:17:00.0"],
            ),
            (None, |_| (), &["no driver", "mprdma bind 0000:17:00.0"]),
            (
                Some(VFIO_PCI),
                |m| m.add(NEIGHBOUR, Some("ahci")),
                &["group 7", "0000:17:00.1 (ahci)", "mprdma bind"],
            ),
            (
                Some(VFIO_PCI),
                |m| m.remove("dev/vfio/7"),
                &["dev/vfio/7", "No such file"],
            ),
        ];
        for (driver, spoil, words) in cases {
            let machine = Machine::new(driver);
            spoil(&machine);
            let error = can_be_opened(&machine.system, CARD)
                .unwrap_err()
                .to_string();
            for word in words {
                assert!(error.contains(word), "{error} lacks {word}");
            }
        }
    }

    #[test]
    fn a_node_that_may_not_be_opened_is_named() {
        let cases: [(i32, &[&str]); 3] = [
            (libc::EACCES, &["sudo chown $USER /dev/vfio/7", "udev"]),
            (libc::EBUSY, &["in use by", "fuser -v /dev/vfio/7"]),
            (libc::ENOENT, &["cannot open /dev/vfio/7", "dmesg"]),
        ];
        for (errno, words) in cases {
            let source = io::Error::from_raw_os_error(errno);
            let error = not_opened(CARD, Path::new("/dev/vfio/7"), source).to_string();
            for word in words {
                assert!(error.contains(word), "{error} lacks {word}");
            }
        }
    }
}
