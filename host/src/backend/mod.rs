//! Ways to reach a card.

pub mod kernel;
mod vectors;
pub mod vfio_user;

use std::sync::Arc;
use std::time::Duration;

use crate::address::Address;
use crate::device::{Device, DeviceError};

/// How long a backend waits for one answer unless told otherwise.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Opens the device at `address`. A device that does not answer a request within `answer_timeout` counts as gone.
///
/// # Errors
/// Any [`DeviceError`]; nothing waits longer than `answer_timeout` per request.
pub fn open(address: &Address, answer_timeout: Duration) -> Result<Arc<dyn Device>, DeviceError> {
    Ok(match address {
        Address::VfioUser(path) => Arc::new(vfio_user::VfioUser::open(path, answer_timeout)?),
        Address::Pci(address) => Arc::new(kernel::Kernel::open(*address)?),
    })
}
