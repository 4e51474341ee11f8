//! Gives a function to vfio-pci, and back.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

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

/// Gives the function at `address` to vfio-pci, whatever driver has it. Nothing happens when vfio-pci has it already. What
/// [`unbind`] must restore is noted before anything changes, so that either may be killed anywhere and done again.
///
/// # Errors
/// [`DeviceError::NotFound`], or a [`KernelError`] that names the command to run.
pub fn bind(system: &System, address: PciAddress) -> Result<Rebound, DeviceError> {
    check::exists(system, address)?;
    let before = system.driver(address);
    let noted = Before::noted(system, address);
    if before.as_deref() == Some(VFIO_PCI) && noted.is_none() {
        let now = before.clone();
        return Ok(Rebound { before, now });
    }
    check::iommu(system, address)?;
    check::module(system, address)?;
    // What was noted holds if a bind or an unbind has not come to its end: the driver is gone, or not yet gone.
    let stands = noted.is_some_and(|noted| {
        [None, Some(VFIO_PCI), noted.driver.as_deref()].contains(&before.as_deref())
    });
    if !stands {
        let choice = system.driver_override(address);
        let driver = before.clone();
        Before { driver, choice }.note(system, address);
    }
    let writer = Writer::new(system, address, "bind");
    if system.driver_override(address).as_deref() != Some(VFIO_PCI) {
        writer.choose(VFIO_PCI)?;
    }
    match before.as_deref() {
        Some(VFIO_PCI) => {}
        Some(driver) => {
            writer.release(driver)?;
            writer.probe()?;
        }
        None => writer.probe()?,
    }
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
/// that the kernel chooses; puts `driver_override` back. Nothing happens when vfio-pci does not have it, but for the rest
/// of a bind or unbind that was killed.
///
/// # Errors
/// As [`bind`]; [`DeviceError::Busy`] while a process uses the card: the kernel would wait for that process.
pub fn unbind(system: &System, address: PciAddress) -> Result<Rebound, DeviceError> {
    check::exists(system, address)?;
    let before = system.driver(address);
    let noted = Before::noted(system, address);
    let bound = before.as_deref() == Some(VFIO_PCI);
    if !bound && noted.is_none() {
        let now = before.clone();
        return Ok(Rebound { before, now });
    }
    if bound {
        match check::group_is_free(system, address) {
            Ok(()) | Err(DeviceError::Kernel(_)) => {}
            Err(busy) => return Err(busy),
        }
    }
    let writer = Writer::new(system, address, "unbind");
    // Without a note somebody else bound it: whatever was chosen was chosen for that.
    let Before { driver, choice } = noted.unwrap_or_default();
    let driver = driver.filter(|driver| system.driver_directory(driver).is_dir());
    let chosen = driver.as_ref().or(choice.as_ref());
    if bound || before.is_none() {
        writer.choose(chosen.map_or(NO_CHOICE, String::as_str))?;
        if bound {
            writer.release(VFIO_PCI)?;
        }
        // A function that had no driver in spite of a choice shall have none.
        if driver.is_some() || choice.is_none() {
            writer.probe()?;
        }
    }
    if system.driver_override(address) != choice {
        writer.choose(choice.as_deref().unwrap_or(NO_CHOICE))?;
    }
    Before::forget(system, address);
    Ok(Rebound {
        before,
        now: system.driver(address),
    })
}

/// A line feed alone takes a choice back.
const NO_CHOICE: &str = "\n";

/// What a function was before [`bind`].
#[derive(Debug, Default, Serialize, Deserialize)]
struct Before {
    /// Its driver.
    driver: Option<String>,
    /// Its `driver_override`.
    choice: Option<String>,
}

impl Before {
    /// Where it is noted until [`unbind`].
    fn path(system: &System, address: PciAddress) -> PathBuf {
        system.run.join(format!("{address}.driver"))
    }

    fn noted(system: &System, address: PciAddress) -> Option<Self> {
        let text = fs::read_to_string(Self::path(system, address)).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Without the note the kernel chooses a driver, which is the same unless somebody had chosen otherwise; so a failure
    /// is no reason to stop.
    fn note(&self, system: &System, address: PciAddress) {
        let (path, new) = (
            Self::path(system, address),
            system.run.join(format!("{address}.driver.new")),
        );
        let text = serde_json::to_string(self).expect("two texts are plain data");
        // Whole or not at all.
        let done = fs::create_dir_all(&system.run)
            .and_then(|()| fs::write(&new, text))
            .and_then(|()| fs::rename(&new, &path));
        match done {
            // Nor will the kernel obey, and the user is told.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "the previous driver is not noted");
            }
            Ok(()) => {}
        }
    }

    fn forget(system: &System, address: PciAddress) {
        let path = Self::path(system, address);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, path = %path.display(), "the note of the previous driver stays");
            }
            _ => {}
        }
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
            assert_eq!(machine.system.driver_override(CARD), None);
            assert!(!Before::path(&machine.system, CARD).exists());
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

    /// Functions as an operator may have them: driver, `driver_override`.
    const FOUND: [(Option<&str>, Option<&str>); 6] = [
        (None, None),
        (None, Some("spare")),
        (Some("native"), None),
        (Some("native"), Some("native")),
        (Some("native"), Some(VFIO_PCI)),
        (Some("special"), Some("special")),
    ];

    fn found(driver: Option<&str>, choice: Option<&str>) -> Machine {
        let machine = Machine::new(driver);
        if let Some(choice) = choice {
            machine.tell("sys/bus/pci/devices/0000:17:00.0/driver_override", choice);
        }
        machine
    }

    /// A function is as it was before [`bind`]. One without driver or choice goes to the driver that the kernel chooses.
    fn assert_restored(machine: &Machine, driver: Option<&str>, choice: Option<&str>, when: &str) {
        let native = driver.is_none() && choice.is_none();
        let driver = if native { Some("native") } else { driver };
        assert_eq!(machine.system.driver(CARD).as_deref(), driver, "{when}");
        let now = machine.system.driver_override(CARD);
        assert_eq!(now.as_deref(), choice, "{when}");
        assert!(!Before::path(&machine.system, CARD).exists(), "{when}");
    }

    #[test]
    fn the_choice_of_the_operator_comes_back() {
        for (driver, choice) in FOUND {
            let machine = found(driver, choice);
            bind(&machine.system, CARD).unwrap();
            unbind(&machine.system, CARD).unwrap();
            assert_restored(&machine, driver, choice, &format!("{driver:?} {choice:?}"));
        }
    }

    /// Writes of a bind or unbind: none needs more.
    const WRITES: usize = 4;

    fn assert_binds(machine: &Machine, when: &str) {
        bind(&machine.system, CARD).expect(when);
        let now = machine.system.driver(CARD);
        assert_eq!(now.as_deref(), Some(VFIO_PCI), "{when}");
    }

    #[test]
    fn a_bind_that_is_killed_anywhere_can_be_done_again_and_undone() {
        for (driver, choice) in FOUND {
            for (count, again) in (0..=WRITES).flat_map(|count| [(count, true), (count, false)]) {
                let when = format!("{driver:?} {choice:?}, killed after {count}, {again}");
                let mut machine = found(driver, choice);
                machine.stop_after(count);
                let _ = bind(&machine.system, CARD);
                machine.obey();
                if again {
                    assert_binds(&machine, &when);
                }
                unbind(&machine.system, CARD).expect(&when);
                assert_restored(&machine, driver, choice, &when);
            }
        }
    }

    #[test]
    fn an_unbind_that_is_killed_anywhere_can_be_done_again_and_undone() {
        for (driver, choice) in FOUND {
            for (count, again) in (0..=WRITES).flat_map(|count| [(count, true), (count, false)]) {
                let when = format!("{driver:?} {choice:?}, killed after {count}, {again}");
                let mut machine = found(driver, choice);
                bind(&machine.system, CARD).expect(&when);
                let note = fs::read_to_string(Before::path(&machine.system, CARD)).unwrap();
                machine.stop_after(count);
                if unbind(&machine.system, CARD).is_ok() {
                    // Killed at the very end.
                    fs::write(Before::path(&machine.system, CARD), note).unwrap();
                }
                machine.obey();
                if again {
                    assert_binds(&machine, &when);
                }
                unbind(&machine.system, CARD).expect(&when);
                assert_restored(&machine, driver, choice, &when);
            }
        }
    }

    #[test]
    fn a_note_that_is_out_of_date_is_written_anew() {
        let mut machine = found(Some("native"), None);
        machine.stop_after(1);
        let _ = bind(&machine.system, CARD);
        machine.obey();
        // Somebody else goes on from there.
        fs::remove_file(machine.system.function(CARD).join("driver")).unwrap();
        fs::create_dir_all(machine.system.driver_directory("special")).unwrap();
        machine.tell(
            "sys/bus/pci/devices/0000:17:00.0/driver_override",
            "special",
        );
        machine
            .system
            .write(
                &machine.system.sys.join("bus/pci/drivers_probe"),
                &CARD.to_string(),
            )
            .unwrap();
        assert_eq!(machine.system.driver(CARD).as_deref(), Some("special"));
        bind(&machine.system, CARD).unwrap();
        unbind(&machine.system, CARD).unwrap();
        assert_restored(&machine, Some("special"), Some("special"), "");
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
