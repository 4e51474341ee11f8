//! Serves one card's socket: one client at a time, and every next client finds the card reset.

use super::device::Device;
use super::doorman::Doorman;
use std::fs::File;
use std::io;
use std::os::unix::net::UnixListener;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::Path;
use std::thread::{Builder, JoinHandle};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, Server, ServerBackend};

/// Listens at `path` and serves clients on a thread of its own, for as long as the process lives.
pub fn serve(path: &Path, mut device: Device) -> io::Result<JoinHandle<()>> {
    let listener = UnixListener::bind(path)?;
    let served = listener.try_clone()?.into();
    let server = Server::from_owned_fd(served, true, Device::irqs(), device.regions());
    let name = path
        .file_name()
        .map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    Builder::new().name(name.clone()).spawn(move || loop {
        let mut session = Session {
            device: &mut device,
            listener: &listener,
            doorman: None,
        };
        // The protocol library may panic on a malformed message; that ends the client, not the card.
        match catch_unwind(AssertUnwindSafe(|| server.run(&mut session))) {
            Ok(Ok(())) => {}
            Ok(Err(vfio_user::Error::SocketAccept(error))) => {
                tracing::info!(socket = name, %error, "no more clients");
                return;
            }
            Ok(Err(error)) => tracing::warn!(socket = name, %error, "client lost"),
            Err(_) => tracing::warn!(socket = name, "client sent a malformed message"),
        }
        session.end();
    })
}

/// One client and the card.
struct Session<'a> {
    device: &'a mut Device,
    listener: &'a UnixListener,
    /// On duty from the client's first access on.
    doorman: Option<Doorman>,
}

impl Session<'_> {
    fn device(&mut self) -> &mut Device {
        if self.doorman.is_none() {
            match Doorman::start(self.listener) {
                Ok(doorman) => self.doorman = Some(doorman),
                Err(error) => tracing::warn!(%error, "further clients will have to wait"),
            }
        }
        self.device
    }

    /// The next client may come in; it waits until the card is as new.
    fn end(self) {
        drop(self.doorman);
        self.device.release();
    }
}

impl ServerBackend for Session<'_> {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        self.device().region_read(region, offset, data)
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        self.device().region_write(region, offset, data)
    }

    fn dma_map(
        &mut self,
        flags: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        file: Option<File>,
    ) -> io::Result<()> {
        self.device().dma_map(flags, offset, address, size, file)
    }

    fn dma_unmap(&mut self, flags: DmaUnmapFlags, address: u64, size: u64) -> io::Result<()> {
        self.device().dma_unmap(flags, address, size)
    }

    fn reset(&mut self) -> io::Result<()> {
        self.device().reset()
    }

    fn set_irqs(
        &mut self,
        index: u32,
        flags: u32,
        start: u32,
        count: u32,
        files: Vec<File>,
    ) -> io::Result<()> {
        self.device().set_irqs(index, flags, start, count, files)
    }
}
