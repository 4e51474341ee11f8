//! Serves one card's socket: one client at a time, and every next client finds the card reset.

use super::device::Device;
use std::io;
use std::os::unix::net::UnixListener;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::Path;
use std::thread::{Builder, JoinHandle};
use vfio_user::Server;

/// Listens at `path` and serves clients on a thread of its own, for as long as the process lives.
pub fn serve(path: &Path, mut device: Device) -> io::Result<JoinHandle<()>> {
    let listener = UnixListener::bind(path)?;
    let server = Server::from_owned_fd(listener.into(), true, Device::irqs(), device.regions());
    let name = path
        .file_name()
        .map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    Builder::new().name(name.clone()).spawn(move || loop {
        // The protocol library may panic on a malformed message; that ends the client, not the card.
        match catch_unwind(AssertUnwindSafe(|| server.run(&mut device))) {
            Ok(Ok(())) => {}
            Ok(Err(vfio_user::Error::SocketAccept(error))) => {
                tracing::info!(socket = name, %error, "no more clients");
                return;
            }
            Ok(Err(error)) => tracing::warn!(socket = name, %error, "client lost"),
            Err(_) => tracing::warn!(socket = name, "client sent a malformed message"),
        }
        device.release();
    })
}
