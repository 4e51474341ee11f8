//! PCI functions through the kernel's VFIO: not in this version.

use std::path::Path;
use std::sync::Arc;

use crate::address::PciAddress;
use crate::device::{Device, DeviceError};

/// Opens the PCI function at `address`.
///
/// # Errors
/// Always: [`DeviceError::NotFound`] when there is no such function, else [`DeviceError::Unsupported`].
pub fn open(address: PciAddress) -> Result<Arc<dyn Device>, DeviceError> {
    let address = address.to_string();
    if !Path::new("/sys/bus/pci/devices").join(&address).exists() {
        return Err(DeviceError::NotFound { address });
    }
    Err(DeviceError::Unsupported {
        address,
        what: "this version does not drive PCI functions; use a simulated card, vfio-user:/path/nic0.sock \
               (`mprdma-sim up SCENARIO` makes them)"
            .to_owned(),
    })
}
