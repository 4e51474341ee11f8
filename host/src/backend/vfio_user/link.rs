//! The vfio-user connection: framing, message numbers, time limits. All integers are in host byte order.

use std::io::{self, Read, Write};
use std::os::fd::RawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde::Deserialize;
use tracing::{debug, trace};
use vmm_sys_util::sock_ctrl_msg::ScmSocket;

use crate::device::DeviceError;

/// Requests of the protocol that the driver makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Command {
    Version = 1,
    DmaMap = 2,
    DmaUnmap = 3,
    GetInfo = 4,
    GetRegionInfo = 5,
    GetIrqInfo = 7,
    SetIrqs = 8,
    RegionRead = 9,
    RegionWrite = 10,
    Reset = 13,
}

impl Command {
    const fn name(self) -> &'static str {
        match self {
            Self::Version => "version negotiation",
            Self::DmaMap => "mapping of DMA memory",
            Self::DmaUnmap => "unmapping of DMA memory",
            Self::GetInfo => "device information",
            Self::GetRegionInfo => "region information",
            Self::GetIrqInfo => "interrupt information",
            Self::SetIrqs => "interrupt set-up",
            Self::RegionRead => "register read",
            Self::RegionWrite => "register write",
            Self::Reset => "reset",
        }
    }
}

const HEADER_BYTES: usize = 16;
/// Longest body that any answer to us has.
const MAX_BODY_BYTES: usize = 64 << 10;
const FLAG_REPLY: u32 = 1;
const FLAG_NO_REPLY: u32 = 1 << 4;
const FLAG_ERROR: u32 = 1 << 5;

/// The body of a message being built.
#[derive(Debug, Default)]
pub struct Message(Vec<u8>);

impl Message {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn u16(mut self, value: u16) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    pub fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    pub fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }
}

/// The body of an answer.
#[derive(Debug)]
pub struct Answer {
    address: String,
    body: Vec<u8>,
}

impl Answer {
    fn array<const N: usize>(&self, at: usize) -> Result<[u8; N], DeviceError> {
        self.body
            .get(at..at + N)
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or_else(|| DeviceError::Protocol {
                address: self.address.clone(),
                what: format!("an answer of {} bytes is too short", self.body.len()),
            })
    }

    pub fn u16(&self, at: usize) -> Result<u16, DeviceError> {
        self.array(at).map(u16::from_ne_bytes)
    }

    pub fn u32(&self, at: usize) -> Result<u32, DeviceError> {
        self.array(at).map(u32::from_ne_bytes)
    }

    pub fn u64(&self, at: usize) -> Result<u64, DeviceError> {
        self.array(at).map(u64::from_ne_bytes)
    }
}

/// One message from the server.
#[derive(Debug)]
struct Reply {
    id: u16,
    refused: bool,
    errno: u32,
    body: Answer,
}

/// What a server says of itself; absent values have the protocol's defaults.
#[derive(Debug, Default, Deserialize)]
struct VersionData {
    #[serde(default)]
    capabilities: Capabilities,
}

#[derive(Debug, Deserialize)]
#[serde(default)]
struct Capabilities {
    max_msg_fds: u32,
    max_data_xfer_size: u64,
}

impl Default for Capabilities {
    fn default() -> Self {
        Self {
            max_msg_fds: 1,
            max_data_xfer_size: 1 << 20,
        }
    }
}

/// One connection. After a timeout or a broken answer it is dead: the streams are out of step.
#[derive(Debug)]
pub struct Link {
    stream: UnixStream,
    address: String,
    timeout: Duration,
    next_id: u16,
    dead: bool,
}

impl Link {
    pub fn new(
        stream: UnixStream,
        address: String,
        timeout: Duration,
    ) -> Result<Self, DeviceError> {
        let limit = Some(timeout.max(Duration::from_millis(1)));
        stream
            .set_read_timeout(limit)
            .and_then(|()| stream.set_write_timeout(limit))
            .map_err(|source| DeviceError::Io {
                what: format!("cannot set time limits on {address}"),
                source,
            })?;
        Ok(Self {
            stream,
            address,
            timeout,
            next_id: 0,
            dead: false,
        })
    }

    /// Agrees on the protocol version.
    pub fn negotiate(&mut self) -> Result<(), DeviceError> {
        let data = br#"{"capabilities":{"max_msg_fds":1,"max_data_xfer_size":1048576}}"#;
        let body = Message::new().u16(0).u16(1).bytes(data).bytes(&[0]);
        let answer = self
            .call(Command::Version, body)
            .map_err(|error| match error {
                // A server that has a client lets the next wait, or hangs up on it.
                DeviceError::Timeout { address, .. } | DeviceError::Gone { address } => {
                    DeviceError::Busy {
                        address,
                        holder: "another client (a server serves one at a time)".to_owned(),
                    }
                }
                other => other,
            })?;
        let (major, minor) = (answer.u16(0)?, answer.u16(2)?);
        if major != 0 {
            return Err(self.protocol_error(&format!(
                "the server speaks vfio-user {major}.{minor}, the driver 0.1"
            )));
        }
        let text: Vec<u8> = answer.body[4..]
            .iter()
            .copied()
            .take_while(|b| *b != 0)
            .collect();
        let data: VersionData = if text.is_empty() {
            VersionData::default()
        } else {
            serde_json::from_slice(&text)
                .map_err(|error| self.protocol_error(&format!("bad version data: {error}")))?
        };
        debug!(address = %self.address, major, minor, capabilities = ?data.capabilities, "vfio-user server");
        if data.capabilities.max_msg_fds == 0 || data.capabilities.max_data_xfer_size < 4 {
            return Err(
                self.protocol_error("the server takes no file descriptors or no register accesses")
            );
        }
        Ok(())
    }

    /// Size of a region in bytes.
    pub fn region_bytes(&mut self, region: u32) -> Result<u64, DeviceError> {
        let body = Message::new()
            .u32(32)
            .u32(0)
            .u32(region)
            .u32(0)
            .u64(0)
            .u64(0);
        self.call(Command::GetRegionInfo, body)?.u64(16)
    }

    pub fn region_read32(&mut self, region: u32, offset: u64) -> Result<u32, DeviceError> {
        let answer = self.call(
            Command::RegionRead,
            Message::new().u64(offset).u32(region).u32(4),
        )?;
        let value = answer.u32(16)?;
        trace!(region, offset, value, "read");
        Ok(value)
    }

    /// A posted write: it asks for no answer, as on PCIe. A later read sees its effect.
    pub fn region_write32(
        &mut self,
        region: u32,
        offset: u64,
        value: u32,
    ) -> Result<(), DeviceError> {
        trace!(region, offset, value, "write");
        let body = Message::new().u64(offset).u32(region).u32(4).u32(value);
        self.send(Command::RegionWrite, FLAG_NO_REPLY, body, None)?;
        Ok(())
    }

    pub fn call(&mut self, command: Command, body: Message) -> Result<Answer, DeviceError> {
        self.call_with_fd(command, body, None)
    }

    /// Sends a request, with a file descriptor if one is given, and waits for its answer.
    pub fn call_with_fd(
        &mut self,
        command: Command,
        body: Message,
        fd: Option<RawFd>,
    ) -> Result<Answer, DeviceError> {
        let id = self.send(command, 0, body, fd)?;
        let answer = self.answer(command, id);
        if !matches!(answer, Ok(_) | Err(DeviceError::Refused { .. })) {
            self.dead = true;
        }
        answer
    }

    /// Whether the other end still holds the connection. It never speaks first, so that what can be read is its end, or
    /// the refusal of a posted write.
    pub fn check_alive(&mut self) -> Result<(), DeviceError> {
        if self.dead {
            return Err(self.gone());
        }
        let mut first = [0];
        let look = |stream: &mut UnixStream, first: &mut [u8]| -> io::Result<usize> {
            stream.set_nonblocking(true)?;
            let result = stream.read(first);
            stream.set_nonblocking(false)?;
            result
        };
        let alive = match look(&mut self.stream, &mut first) {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                Ok(())
            }
            Ok(0) | Err(_) => Err(self.gone()),
            Ok(_) => match self.reply(Command::RegionWrite, &first) {
                Ok(reply) if reply.refused => Ok(()),
                Ok(_) => Err(self.protocol_error("the server spoke without being asked")),
                Err(error) => Err(error),
            },
        };
        self.dead = alive.is_err();
        alive
    }

    pub fn protocol_error(&self, what: &str) -> DeviceError {
        DeviceError::Protocol {
            address: self.address.clone(),
            what: what.to_owned(),
        }
    }

    fn gone(&self) -> DeviceError {
        DeviceError::Gone {
            address: self.address.clone(),
        }
    }

    fn send(
        &mut self,
        command: Command,
        flags: u32,
        body: Message,
        fd: Option<RawFd>,
    ) -> Result<u16, DeviceError> {
        if self.dead {
            return Err(self.gone());
        }
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        let size = (HEADER_BYTES + body.0.len()) as u32;
        let packet = Message::new()
            .u16(id)
            .u16(command as u16)
            .u32(size)
            .u32(flags)
            .u32(0)
            .bytes(&body.0)
            .0;
        let sent = match fd {
            None => self.stream.write_all(&packet),
            Some(fd) => match self.stream.send_with_fd(&packet[..], fd) {
                Ok(count) => self.stream.write_all(&packet[count..]),
                Err(error) => Err(io::Error::from_raw_os_error(error.errno())),
            },
        };
        sent.map_err(|source| {
            self.dead = true;
            self.failed(command, source)
        })?;
        Ok(id)
    }

    /// Reads until the answer to message `id` is there. Posted writes get no answer but may get a refusal.
    fn answer(&mut self, command: Command, id: u16) -> Result<Answer, DeviceError> {
        loop {
            let reply = self.reply(command, &[])?;
            if reply.id != id && reply.refused {
                continue;
            }
            if reply.id != id {
                return Err(self.protocol_error("an answer to a question that was not asked"));
            }
            if reply.refused {
                let errno = if reply.errno == 0 {
                    libc::EIO
                } else {
                    reply.errno as i32
                };
                return Err(DeviceError::Refused {
                    address: self.address.clone(),
                    what: command.name(),
                    source: io::Error::from_raw_os_error(errno),
                });
            }
            return Ok(reply.body);
        }
    }

    /// Reads one message, whose first bytes are `begin`.
    fn reply(&mut self, command: Command, begin: &[u8]) -> Result<Reply, DeviceError> {
        let mut header = self.read(command, HEADER_BYTES - begin.len())?;
        header.body.splice(0..0, begin.iter().copied());
        let (id, size, flags, errno) = (
            header.u16(0)?,
            header.u32(4)?,
            header.u32(8)?,
            header.u32(12)?,
        );
        let body = (size as usize)
            .checked_sub(HEADER_BYTES)
            .filter(|body| *body <= MAX_BODY_BYTES && flags & 0xf == FLAG_REPLY)
            .ok_or_else(|| self.protocol_error("an answer with a bad header"))?;
        let refused = flags & FLAG_ERROR != 0;
        if refused {
            debug!(address = %self.address, id, errno, "the server refused a request");
        }
        Ok(Reply {
            id,
            refused,
            errno,
            body: self.read(command, body)?,
        })
    }

    fn read(&mut self, command: Command, bytes: usize) -> Result<Answer, DeviceError> {
        let mut body = vec![0; bytes];
        self.stream
            .read_exact(&mut body)
            .map_err(|source| self.failed(command, source))?;
        Ok(Answer {
            address: self.address.clone(),
            body,
        })
    }

    fn failed(&self, command: Command, source: io::Error) -> DeviceError {
        match source.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => DeviceError::Timeout {
                address: self.address.clone(),
                what: command.name(),
                after: self.timeout,
            },
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset => self.gone(),
            _ => DeviceError::Io {
                what: format!("{} with {}", command.name(), self.address),
                source,
            },
        }
    }
}
