//! Gives a function to vfio-pci, and back.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::check;
use super::error::KernelError;
use super::sysfs::System;
use crate::address::PciAddress;
use crate::device::DeviceError;

/// The driver that lets user space have a function.
pub const VFIO_PCI: &str = "vfio-pci";

/// What [`bind`] or [`unbind`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebound {
    /// The driver before.
    pub before: Option<String>,
    /// The driver now.
    pub now: Option<String>,
}

/// Gives the function at `address` to vfio-pci, whatever driver has it. Nothing happens when vfio-pci has it already.
///
/// # Errors
/// [`DeviceError::NotFound`], or a [`KernelError`] that names the command to run.
pub fn bind(system: &System, address: PciAddress) -> Result<Rebound, DeviceError> {
    check::exists(system, address)?;
    let before = system.driver(address);
    if before.as_deref() == Some(VFIO_PCI) {
        let now = before.clone();
        return Ok(Rebound { before, now });
    }
    check::iommu(system, address)?;
    check::module(system, address)?;
    let writer = Writer::new(system, address, "bind");
    writer.choose(VFIO_PCI)?;
    if let Some(driver) = &before {
        remember(system, address, Some(driver));
        writer.release(driver)?;
    }
    writer.probe()?;
    let now = system.driver(address);
    if now.as_deref() != Some(VFIO_PCI) {
        return Err(KernelError::NotBound {
            address: address.to_string(),
            driver: now,
        }
        .into());
    }
    Ok(Rebound { before, now })
}

/// Takes the function at `address` from vfio-pci and gives it to the driver that had it before [`bind`], or to the one
/// that the kernel chooses. Nothing happens when vfio-pci does not have it.
///
/// # Errors
/// As [`bind`]; [`DeviceError::Busy`] while a process uses the card: the kernel would wait for that process.
pub fn unbind(system: &System, address: PciAddress) -> Result<Rebound, DeviceError> {
    check::exists(system, address)?;
    let before = system.driver(address);
    if before.as_deref() != Some(VFIO_PCI) {
        let now = before.clone();
        return Ok(Rebound { before, now });
    }
    match check::group_is_free(system, address) {
        Ok(()) | Err(DeviceError::Kernel(_)) => {}
        Err(busy) => return Err(busy),
    }
    let writer = Writer::new(system, address, "unbind");
    let previous = fs::read_to_string(note(system, address))
        .ok()
        .filter(|driver| system.driver_directory(driver).is_dir());
    // A line feed alone takes the choice back.
    writer.choose(previous.as_deref().unwrap_or("\n"))?;
    writer.release(VFIO_PCI)?;
    writer.probe()?;
    if previous.is_some() {
        writer.choose("\n")?;
    }
    remember(system, address, None);
    Ok(Rebound {
        before,
        now: system.driver(address),
    })
}

/// The file that says which driver had the function.
fn note(system: &System, address: PciAddress) -> PathBuf {
    system.run.join(format!("{address}.driver"))
}

/// Notes the driver to restore. Without the note the kernel chooses one, which is the same unless somebody had chosen
/// otherwise; so a failure is no reason to stop.
fn remember(system: &System, address: PciAddress, driver: Option<&str>) {
    let path = note(system, address);
    let done = match driver {
        Some(driver) => fs::create_dir_all(&system.run).and_then(|()| fs::write(&path, driver)),
        None => fs::remove_file(&path),
    };
    match done {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(%error, path = %path.display(), "the previous driver is not noted");
        }
        _ => {}
    }
}

/// Writes the files of sysfs that bind drivers to one function.
struct Writer<'a> {
    system: &'a System,
    address: PciAddress,
    command: &'static str,
}

impl<'a> Writer<'a> {
    const fn new(system: &'a System, address: PciAddress, command: &'static str) -> Self {
        Self {
            system,
            address,
            command,
        }
    }

    /// Which driver may have the function from the next probe on.
    fn choose(&self, driver: &str) -> Result<(), KernelError> {
        let path = self.system.function(self.address).join("driver_override");
        self.write(&path, driver)
    }

    /// Takes it from `driver`.
    fn release(&self, driver: &str) -> Result<(), KernelError> {
        let path = self.system.driver_directory(driver).join("unbind");
        self.write(&path, &self.address.to_string())
    }

    /// Has the kernel look for a driver.
    fn probe(&self) -> Result<(), KernelError> {
        let path = self.system.sys.join("bus/pci/drivers_probe");
        self.write(&path, &self.address.to_string())
    }

    fn write(&self, path: &Path, text: &str) -> Result<(), KernelError> {
        let address = self.address.to_string();
        self.system
            .write(path, text)
            .map_err(|source| match source.kind() {
                io::ErrorKind::PermissionDenied => KernelError::NotRoot {
                    address,
                    what: "change a function's driver",
                    command: self.command,
                },
                _ => KernelError::Sysfs {
                    address,
                    path: path.display().to_string(),
                    source,
                },
            })
    }
}

#[cfg(test)]
mod tests {
    use super::super::sysfs::fake::{Machine, CARD};
    use super::*;

    fn rebound(before: Option<&str>, now: Option<&str>) -> Rebound {
        Rebound {
            before: before.map(str::to_owned),
            now: now.map(str::to_owned),
        }
    }

    #[test]
    fn a_function_goes_to_vfio_pci_and_back_to_the_driver_that_had_it() {
        for driver in ["native", "special"] {
            let machine = Machine::new(Some(driver));
            let there = rebound(Some(driver), Some(VFIO_PCI));
            assert_eq!(bind(&machine.system, CARD).unwrap(), there);
            let back = rebound(Some(VFIO_PCI), Some(driver));
            assert_eq!(unbind(&machine.system, CARD).unwrap(), back);
            let chosen =
                fs::read_to_string(machine.system.function(CARD).join("driver_override")).unwrap();
            assert_eq!(chosen, "\n", "the choice is taken back");
            assert!(!note(&machine.system, CARD).exists());
        }
    }

    #[test]
    fn a_function_without_driver_is_not_unbound_first() {
        let machine = Machine::new(None);
        bind(&machine.system, CARD).unwrap();
        assert_eq!(
            *machine.written.lock().unwrap(),
            ["driver_override: vfio-pci", "drivers_probe: 0000:17:00.0"]
        );
        assert_eq!(
            unbind(&machine.system, CARD).unwrap().now.as_deref(),
            Some("native")
        );
    }

    #[test]
    fn doing_it_again_does_nothing() {
        let machine = Machine::new(Some(VFIO_PCI));
        let bound = bind(&machine.system, CARD).unwrap();
        assert_eq!(bound, rebound(Some(VFIO_PCI), Some(VFIO_PCI)));
        let machine = Machine::new(Some("native"));
        let unbound = unbind(&machine.system, CARD).unwrap();
        assert_eq!(unbound, rebound(Some("native"), Some("native")));
        assert!(machine.written.lock().unwrap().is_empty());
    }

    #[test]
    fn refusals_name_the_cause_and_the_command() {
        let text = |machine: &Machine| bind(&machine.system, CARD).unwrap_err().to_string();
        let mut machine = Machine::new(Some("native"));
        machine.refuse(libc::EACCES);
        assert!(text(&machine).contains("run `sudo mprdma bind 0000:17:00.0`"));
        machine.refuse(libc::ENODEV);
        assert!(text(&machine).contains("driver_override: No such device"));
        let machine = Machine::new(Some("native"));
        machine.remove("sys/bus/pci/devices/0000:17:00.0/iommu_group");
        assert!(text(&machine).contains("intel_iommu=on"));
        let machine = Machine::new(Some("native"));
        machine.remove("sys/bus/pci/drivers/vfio-pci");
        assert!(text(&machine).contains("sudo modprobe vfio-pci"));
    }
}
