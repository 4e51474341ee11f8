//! Turns further clients away while one has the card: they see the connection close at once instead of waiting.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread::{Builder, JoinHandle};

/// Stands at a socket until dropped.
pub struct Doorman {
    /// Closed to send the thread home.
    bell: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Doorman {
    /// Takes a place at the listener's door.
    pub fn start(listener: &UnixListener) -> io::Result<Doorman> {
        let (bell, home) = UnixStream::pair()?;
        let listener = listener.try_clone()?;
        let thread = Builder::new().name("doorman".into()).spawn(move || {
            while let Some(()) = someone_waits(&listener, &home) {
                if let Ok((client, _)) = listener.accept() {
                    drop(client);
                    tracing::warn!("another client was turned away: the card is in use");
                }
            }
        })?;
        Ok(Doorman {
            bell: Some(bell),
            thread: Some(thread),
        })
    }
}

/// Waits for a client; nothing once the bell is closed.
fn someone_waits(listener: &UnixListener, home: &UnixStream) -> Option<()> {
    let entry = |fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let mut fds = [entry(listener.as_raw_fd()), entry(home.as_raw_fd())];
    loop {
        // SAFETY: `fds` has two entries and outlives the call.
        let n = unsafe { libc::poll(fds.as_mut_ptr(), 2, -1) };
        if n < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {
            continue;
        }
        return (n > 0 && fds[1].revents == 0).then_some(());
    }
}

impl Drop for Doorman {
    fn drop(&mut self) {
        self.bell = None;
        if let Some(thread) = self.thread.take() {
            // The thread only accepts and closes; there is nothing to report of it.
            let _ = thread.join();
        }
    }
}
