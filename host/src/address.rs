//! Device addresses: `vfio-user:PATH` for a socket, `DOMAIN:BUS:DEVICE.FUNCTION` for a PCI function.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use thiserror::Error;

/// Where a device is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A UNIX socket on which a vfio-user server listens.
    VfioUser(PathBuf),
    /// A PCI function, bound to the kernel's vfio-pci driver.
    Pci(PciAddress),
}

/// Domain, bus, device and function of a PCI function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PciAddress {
    /// Domain (segment).
    pub domain: u16,
    /// Bus.
    pub bus: u8,
    /// Device, below 32.
    pub device: u8,
    /// Function, below 8.
    pub function: u8,
}

/// Text that is no device address.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{text}` is no device address: {reason}; write vfio-user:/path/nic0.sock or 0000:17:00.0")]
pub struct AddressError {
    text: String,
    reason: &'static str,
}

impl Address {
    /// The socket's path, if it is a socket.
    #[must_use]
    pub fn socket(&self) -> Option<&Path> {
        match self {
            Self::VfioUser(path) => Some(path),
            Self::Pci(_) => None,
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let error = |reason| AddressError {
            text: text.to_owned(),
            reason,
        };
        if let Some(path) = text.strip_prefix("vfio-user:") {
            if path.is_empty() {
                return Err(error("the path is missing"));
            }
            return Ok(Self::VfioUser(PathBuf::from(path)));
        }
        if text.contains('/') || text.ends_with(".sock") {
            return Err(error("a socket needs the prefix `vfio-user:`"));
        }
        pci(text)
            .map(Self::Pci)
            .ok_or_else(|| error("neither a socket nor a PCI function"))
    }
}

impl FromStr for PciAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        pci(text).ok_or_else(|| AddressError {
            text: text.to_owned(),
            reason: "not a PCI function",
        })
    }
}

/// `DDDD:BB:DD.F` in hexadecimal; the domain may be left out.
fn pci(text: &str) -> Option<PciAddress> {
    let hex = |part: &str, digits: usize| {
        let good = part.len() == digits && part.bytes().all(|b| b.is_ascii_hexdigit());
        good.then(|| u16::from_str_radix(part, 16).ok()).flatten()
    };
    let (rest, function) = text.rsplit_once('.')?;
    let (rest, device) = rest.rsplit_once(':')?;
    let (domain, bus) = rest.rsplit_once(':').unwrap_or(("0000", rest));
    let address = PciAddress {
        domain: hex(domain, 4)?,
        bus: hex(bus, 2)? as u8,
        device: hex(device, 2)? as u8,
        function: hex(function, 1)? as u8,
    };
    (address.device < 32 && address.function < 8).then_some(address)
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::VfioUser(path) => write!(f, "vfio-user:{}", path.display()),
            Self::Pci(address) => address.fmt(f),
        }
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:04x}:{:02x}:{:02x}.{:x}",
            self.domain, self.bus, self.device, self.function
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_addresses_print_as_they_were_written() {
        for text in [
            "vfio-user:/run/nic0.sock",
            "vfio-user:nic 0.sock",
            "0000:17:00.0",
            "abcd:ff:1f.7",
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        assert_eq!(
            "17:00.0".parse::<Address>().unwrap().to_string(),
            "0000:17:00.0"
        );
    }

    #[test]
    fn a_pci_function_is_no_socket() {
        let address: PciAddress = "17:00.1".parse().unwrap();
        assert_eq!((address.bus, address.function), (0x17, 1));
        let error = "vfio-user:nic0.sock".parse::<PciAddress>().unwrap_err();
        assert!(error.to_string().contains("not a PCI function"));
    }

    #[test]
    fn bad_addresses_are_refused_with_the_reason() {
        for (text, reason) in [
            ("", "neither"),
            ("vfio-user:", "path is missing"),
            ("/run/nic0.sock", "needs the prefix"),
            ("nic0.sock", "needs the prefix"),
            ("0000:17:00", "neither"),
            ("0000:17:20.0", "neither"),
            ("0000:17:00.8", "neither"),
            ("0000:17:00.+", "neither"),
            ("00:17:00.0", "neither"),
            ("eth0", "neither"),
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
