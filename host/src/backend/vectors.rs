//! MSI-X vectors as eventfds, for backends whose provider raises them.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use vmm_sys_util::eventfd::EventFd;

use crate::device::DeviceError;

/// The eventfds of a device, by vector.
#[derive(Debug)]
pub struct Vectors(Vec<EventFd>);

impl Vectors {
    /// `count` vectors that nobody has raised.
    pub fn new(count: usize) -> Result<Self, DeviceError> {
        let events: io::Result<Vec<_>> = (0..count)
            .map(|_| EventFd::new(libc::EFD_NONBLOCK | libc::EFD_CLOEXEC))
            .collect();
        events.map(Self).map_err(|source| DeviceError::Io {
            what: "cannot make an eventfd".to_owned(),
            source,
        })
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Their descriptors, for whoever raises them.
    pub fn descriptors(&self) -> Vec<RawFd> {
        self.0.iter().map(AsRawFd::as_raw_fd).collect()
    }

    /// Whether `vector` was raised since this was last true.
    pub fn take(&self, vector: usize) -> Result<bool, DeviceError> {
        Ok(self.event(vector)?.read().is_ok())
    }

    /// As [`take`](Self::take), waiting for it no longer than `timeout`.
    pub fn wait(&self, vector: usize, timeout: Duration) -> Result<bool, DeviceError> {
        let event = self.event(vector)?;
        let mut poll = libc::pollfd {
            fd: event.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let milliseconds = i32::try_from(timeout.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
        // SAFETY: one valid pollfd, whose descriptor `self` keeps open.
        unsafe { libc::poll(&raw mut poll, 1, milliseconds) };
        Ok(event.read().is_ok())
    }

    fn event(&self, vector: usize) -> Result<&EventFd, DeviceError> {
        self.0.get(vector).ok_or(DeviceError::NoVector {
            vector,
            vectors: self.0.len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raises_count_once_and_by_vector() {
        let vectors = Vectors::new(2).unwrap();
        let raise = |vector: usize| vectors.0[vector].write(1).unwrap();
        assert!(!vectors.take(1).unwrap());
        raise(1);
        raise(1);
        assert!(!vectors.wait(0, Duration::ZERO).unwrap());
        assert!(vectors.wait(1, Duration::from_secs(5)).unwrap());
        assert!(!vectors.take(1).unwrap());
        assert!(matches!(
            vectors.wait(2, Duration::ZERO),
            Err(DeviceError::NoVector {
                vector: 2,
                vectors: 2
            })
        ));
    }
}
