//! Connection data over TCP, as perftest does it: one JSON line per message, a greeting that refuses what does not fit.
//!
//! Every wait has a limit, and both sides learn why they do not fit.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tracing::{debug, trace};

use crate::port::{Gid, Mac};
use crate::verbs::{Mode, Mtu};

/// Port on which a server listens unless told otherwise; perftest's.
pub const DEFAULT_PORT: u16 = 18515;
/// First word of a greeting.
pub const MAGIC: &str = "mprdma";
/// Version of the messages.
pub const VERSION: u32 = 1;
/// Longest message in bytes.
const MAX_LINE: usize = 1 << 20;
/// Pause between two tries to connect, or two looks at a listener.
const RETRY: Duration = Duration::from_millis(20);

/// Why two sides did not come together, or were separated.
#[derive(Debug, Error)]
pub enum ExchangeError {
    /// The port cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Address asked for.
        address: SocketAddr,
        /// The system's answer.
        source: io::Error,
    },
    /// No peer came.
    #[error("no peer connected within {} s", .after.as_secs_f32())]
    NoPeer {
        /// How long was waited.
        after: Duration,
    },
    /// The peer's name does not resolve.
    #[error("cannot find host {host}: {source}")]
    Resolve {
        /// Name asked for.
        host: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The peer cannot be reached.
    #[error("cannot connect to {peer} within {} s: {source}; is the other side running?", .after.as_secs_f32())]
    Connect {
        /// Address asked for.
        peer: String,
        /// How long was tried.
        after: Duration,
        /// The last answer.
        source: io::Error,
    },
    /// The peer closed the connection.
    #[error("the peer {peer} closed the connection")]
    Closed {
        /// The peer.
        peer: SocketAddr,
    },
    /// The peer said nothing in time.
    #[error("the peer {peer} sent no {what} within {} s", .after.as_secs_f32())]
    Silent {
        /// The peer.
        peer: SocketAddr,
        /// What was expected.
        what: &'static str,
        /// How long was waited.
        after: Duration,
    },
    /// The connection failed.
    #[error("connection to {peer}: {source}")]
    Io {
        /// The peer.
        peer: SocketAddr,
        /// The system's answer.
        source: io::Error,
    },
    /// The peer sent something else than was expected.
    #[error("the peer {peer} sent no valid {what}: {reason}")]
    Garbage {
        /// The peer.
        peer: SocketAddr,
        /// What was expected.
        what: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// The other side is not this program.
    #[error("the peer {peer} does not speak this protocol")]
    NotOurs {
        /// The peer.
        peer: SocketAddr,
    },
    /// The two sides do not fit.
    #[error("the two sides do not fit: {what} is {ours} here and {theirs} at the peer {peer}")]
    Mismatch {
        /// The peer.
        peer: SocketAddr,
        /// Name of the setting.
        what: &'static str,
        /// Our value.
        ours: String,
        /// The peer's value.
        theirs: String,
    },
    /// The peer found that the two sides do not fit, or could not go on.
    #[error("the peer {peer} refused: {reason}")]
    Refused {
        /// The peer.
        peer: SocketAddr,
        /// The reason that it gave.
        reason: String,
    },
}

/// What both sides must agree on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// What the connection is for, e.g. `write-bw`.
    pub service: String,
    /// Transport.
    pub mode: Mode,
    /// Path MTU in bytes.
    pub path_mtu: Mtu,
    /// IPv6 addresses are used; IPv4 otherwise.
    pub ipv6: bool,
    /// Queue pairs.
    pub qps: usize,
}

/// A greeting on the wire. Only magic and version are read before they are known to fit.
#[derive(Serialize, Deserialize)]
struct Greeting {
    magic: String,
    version: u32,
    #[serde(flatten)]
    rest: serde_json::Value,
}

/// The answer to a greeting.
#[derive(Serialize, Deserialize)]
struct Verdict {
    refused: Option<String>,
}

/// A queue pair and the region behind it, as the peer needs them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Ethernet address.
    pub mac: Mac,
    /// IP address.
    pub gid: Gid,
    /// Each queue pair's number and the first PSN that it sends.
    pub qps: Vec<(u32, u32)>,
    /// Region that the peer may write to.
    pub region: Region,
}

/// A registered region, as the peer names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    /// Remote key.
    pub rkey: u32,
    /// Address of the first byte.
    pub addr: u64,
    /// Bytes.
    pub length: u64,
}

/// A port that waits for one peer.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Listens on `port` of `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// [`ExchangeError::Listen`].
    pub fn bind(address: IpAddr, port: u16) -> Result<Self, ExchangeError> {
        let address = SocketAddr::new(address, port);
        let failed = |source| ExchangeError::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }

    /// Address and port that peers connect to.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for a peer, no longer than `timeout`.
    ///
    /// # Errors
    /// [`ExchangeError::NoPeer`] or [`ExchangeError::Listen`].
    pub fn accept(&self, timeout: Duration) -> Result<Channel, ExchangeError> {
        let start = Instant::now();
        loop {
            match self.listener.accept() {
                Ok((stream, peer)) => return Channel::new(stream, peer),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(source) => {
                    return Err(ExchangeError::Listen {
                        address: self.address,
                        source,
                    })
                }
            }
            if start.elapsed() >= timeout {
                return Err(ExchangeError::NoPeer { after: timeout });
            }
            thread::sleep(RETRY);
        }
    }
}

/// A connection to the peer.
#[derive(Debug)]
pub struct Channel {
    stream: TcpStream,
    peer: SocketAddr,
    unread: Vec<u8>,
}

impl Channel {
    /// Connects to `port` of `host`, trying again while nobody listens there, no longer than `timeout`.
    ///
    /// # Errors
    /// [`ExchangeError::Resolve`] or [`ExchangeError::Connect`].
    pub fn connect(host: &str, port: u16, timeout: Duration) -> Result<Self, ExchangeError> {
        let resolve = |source| ExchangeError::Resolve {
            host: host.to_owned(),
            source,
        };
        let peers: Vec<SocketAddr> = (host, port).to_socket_addrs().map_err(resolve)?.collect();
        let start = Instant::now();
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        loop {
            for peer in &peers {
                let left = timeout
                    .saturating_sub(start.elapsed())
                    .max(Duration::from_millis(1));
                match TcpStream::connect_timeout(peer, left) {
                    Ok(stream) => return Self::new(stream, *peer),
                    Err(error) => last = error,
                }
            }
            if start.elapsed() >= timeout {
                let peer = format!("{host}:{port}");
                return Err(ExchangeError::Connect {
                    peer,
                    after: timeout,
                    source: last,
                });
            }
            thread::sleep(RETRY);
        }
    }

    fn new(stream: TcpStream, peer: SocketAddr) -> Result<Self, ExchangeError> {
        stream
            .set_nonblocking(false)
            .and_then(|()| stream.set_nodelay(true))
            .and_then(|()| stream.set_write_timeout(Some(Duration::from_secs(10))))
            .map_err(|source| ExchangeError::Io { peer, source })?;
        debug!(%peer, "connected");
        Ok(Self {
            stream,
            peer,
            unread: Vec::new(),
        })
    }

    /// Address of the peer.
    #[must_use]
    pub const fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Greets the peer and makes sure that both sides want the same. Each side learns what does not fit.
    ///
    /// # Errors
    /// [`ExchangeError::NotOurs`], [`ExchangeError::Mismatch`], [`ExchangeError::Refused`], or the connection fails.
    pub fn greet(&mut self, ours: &Hello, timeout: Duration) -> Result<(), ExchangeError> {
        let rest = serde_json::to_value(ours).map_err(|error| self.garbage("greeting", &error))?;
        self.send(&Greeting {
            magic: MAGIC.to_owned(),
            version: VERSION,
            rest,
        })?;
        let theirs = match self.recv::<Greeting>("greeting", timeout) {
            Ok(theirs) if theirs.magic == MAGIC => theirs,
            Ok(_) | Err(ExchangeError::Garbage { .. }) => {
                return Err(ExchangeError::NotOurs { peer: self.peer })
            }
            Err(error) => return Err(error),
        };
        let fits = self.compare(ours, theirs);
        let refused = fits.as_ref().err().map(ToString::to_string);
        self.send(&Verdict { refused })?;
        // Read even when we refuse: closing with unread data would take our own answer back.
        let verdict = self.recv::<Verdict>("answer to the greeting", timeout);
        fits?;
        match verdict?.refused {
            None => Ok(()),
            Some(reason) => Err(ExchangeError::Refused {
                peer: self.peer,
                reason,
            }),
        }
    }

    fn compare(&self, ours: &Hello, theirs: Greeting) -> Result<(), ExchangeError> {
        let compare = |what, ours: &dyn ToString, theirs: &dyn ToString| {
            let (ours, theirs) = (ours.to_string(), theirs.to_string());
            if ours == theirs {
                return Ok(());
            }
            Err(ExchangeError::Mismatch {
                peer: self.peer,
                what,
                ours,
                theirs,
            })
        };
        compare("the exchange version", &VERSION, &theirs.version)?;
        let theirs: Hello = serde_json::from_value(theirs.rest)
            .map_err(|error| self.garbage("greeting", &error))?;
        let family = |ipv6: bool| if ipv6 { "IPv6" } else { "IPv4" };
        compare("the command", &ours.service, &theirs.service)?;
        compare("the transport", &ours.mode, &theirs.mode)?;
        compare(
            "the path MTU",
            &ours.path_mtu.bytes(),
            &theirs.path_mtu.bytes(),
        )?;
        compare(
            "the address family",
            &family(ours.ipv6),
            &family(theirs.ipv6),
        )?;
        compare("the number of queue pairs", &ours.qps, &theirs.qps)
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The connection failed.
    pub fn send<T: Serialize>(&mut self, message: &T) -> Result<(), ExchangeError> {
        let mut line =
            serde_json::to_vec(message).map_err(|error| self.garbage("message", &error))?;
        line.push(b'\n');
        trace!(peer = %self.peer, line = %String::from_utf8_lossy(&line), "send");
        self.stream
            .write_all(&line)
            .map_err(|source| self.failed(source))
    }

    /// Waits for a message, no longer than `timeout`. `what` names it in errors.
    ///
    /// # Errors
    /// [`ExchangeError::Silent`], [`ExchangeError::Closed`], [`ExchangeError::Garbage`], or the connection failed.
    pub fn recv<T: DeserializeOwned>(
        &mut self,
        what: &'static str,
        timeout: Duration,
    ) -> Result<T, ExchangeError> {
        let start = Instant::now();
        loop {
            if let Some(line) = self.line(what)? {
                return self.parse(what, &line);
            }
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(ExchangeError::Silent {
                    peer: self.peer,
                    what,
                    after: timeout,
                });
            }
            self.stream
                .set_read_timeout(Some(left))
                .map_err(|source| self.failed(source))?;
            self.fill()?;
        }
    }

    /// The next message if it has arrived; does not wait.
    ///
    /// # Errors
    /// As [`recv`](Self::recv), except `Silent`.
    pub fn try_recv<T: DeserializeOwned>(
        &mut self,
        what: &'static str,
    ) -> Result<Option<T>, ExchangeError> {
        if !self.unread.contains(&b'\n') {
            self.stream
                .set_nonblocking(true)
                .map_err(|source| self.failed(source))?;
            let filled = self.fill();
            self.stream
                .set_nonblocking(false)
                .map_err(|source| self.failed(source))?;
            filled?;
        }
        self.line(what)?
            .map(|line| self.parse(what, &line))
            .transpose()
    }

    /// Takes one whole line out of what was read.
    fn line(&mut self, what: &'static str) -> Result<Option<Vec<u8>>, ExchangeError> {
        if let Some(end) = self.unread.iter().position(|b| *b == b'\n') {
            return Ok(Some(self.unread.drain(..=end).collect()));
        }
        if self.unread.len() > MAX_LINE {
            return Err(self.garbage(what, &"it is too long"));
        }
        Ok(None)
    }

    fn parse<T: DeserializeOwned>(
        &self,
        what: &'static str,
        line: &[u8],
    ) -> Result<T, ExchangeError> {
        trace!(peer = %self.peer, line = %String::from_utf8_lossy(line), "receive");
        serde_json::from_slice(line).map_err(|error| self.garbage(what, &error))
    }

    /// Reads what there is, waiting for the first byte if the stream blocks. No data is no error.
    fn fill(&mut self) -> Result<(), ExchangeError> {
        let mut bytes = [0; 4096];
        match self.stream.read(&mut bytes) {
            Ok(0) => Err(ExchangeError::Closed { peer: self.peer }),
            Ok(count) => {
                self.unread.extend(&bytes[..count]);
                Ok(())
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock
                | io::ErrorKind::TimedOut
                | io::ErrorKind::Interrupted => Ok(()),
                _ => Err(self.failed(error)),
            },
        }
    }

    fn failed(&self, source: io::Error) -> ExchangeError {
        let peer = self.peer;
        match source.kind() {
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionAborted => ExchangeError::Closed { peer },
            _ => ExchangeError::Io { peer, source },
        }
    }

    fn garbage(&self, what: &'static str, reason: &dyn ToString) -> ExchangeError {
        ExchangeError::Garbage {
            peer: self.peer,
            what,
            reason: reason.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    fn pair() -> (Channel, Channel) {
        let listener = Listener::bind(Ipv4Addr::LOCALHOST.into(), 0).unwrap();
        let client = Channel::connect("127.0.0.1", listener.address().port(), LIMIT).unwrap();
        (client, listener.accept(LIMIT).unwrap())
    }

    fn hello() -> Hello {
        Hello {
            service: "write-bw".into(),
            mode: Mode::Mp,
            path_mtu: Mtu::new(4096).unwrap(),
            ipv6: false,
            qps: 1,
        }
    }

    fn greet_both(
        client: Hello,
        server: Hello,
    ) -> (Result<(), ExchangeError>, Result<(), ExchangeError>) {
        let (mut a, mut b) = pair();
        let other = thread::spawn(move || b.greet(&server, LIMIT));
        (a.greet(&client, LIMIT), other.join().unwrap())
    }

    #[test]
    fn equals_fit() {
        let (a, b) = greet_both(hello(), hello());
        a.unwrap();
        b.unwrap();
    }

    #[test]
    fn both_sides_hear_what_does_not_fit() {
        let cases: [(&str, Hello); 5] = [
            (
                "the path MTU is 4096 here and 1024",
                Hello {
                    path_mtu: Mtu::new(1024).unwrap(),
                    ..hello()
                },
            ),
            (
                "the transport is MP here and RC",
                Hello {
                    mode: Mode::Rc,
                    ..hello()
                },
            ),
            (
                "the command is write-bw here and file",
                Hello {
                    service: "file".into(),
                    ..hello()
                },
            ),
            (
                "the address family is IPv4 here and IPv6",
                Hello {
                    ipv6: true,
                    ..hello()
                },
            ),
            (
                "the number of queue pairs is 1 here and 2",
                Hello { qps: 2, ..hello() },
            ),
        ];
        for (text, theirs) in cases {
            let (a, b) = greet_both(hello(), theirs);
            let (a, b) = (a.unwrap_err(), b.unwrap_err());
            assert!(
                matches!(a, ExchangeError::Mismatch { .. }) && a.to_string().contains(text),
                "{a}"
            );
            assert!(matches!(b, ExchangeError::Mismatch { .. }), "{b}");
        }
    }

    #[test]
    fn another_version_is_named_whatever_its_greeting_holds() {
        let (mut a, mut b) = pair();
        b.send(&serde_json::json!({"magic": "mprdma", "version": 2, "new": true}))
            .unwrap();
        b.send(&Verdict { refused: None }).unwrap();
        let error = a.greet(&hello(), LIMIT).unwrap_err().to_string();
        assert!(
            error.contains("the exchange version is 1 here and 2 at the peer"),
            "{error}"
        );
        let _ours: serde_json::Value = b.recv("greeting", LIMIT).unwrap();
        let verdict: Verdict = b.recv("verdict", LIMIT).unwrap();
        assert!(verdict.refused.unwrap().contains("version"));
    }

    #[test]
    fn strangers_silence_and_goodbyes() {
        let (mut a, mut b) = pair();
        b.stream.write_all(b"GET / HTTP/1.1\r\n").unwrap();
        assert!(matches!(
            a.greet(&hello(), LIMIT),
            Err(ExchangeError::NotOurs { .. })
        ));

        let (mut a, b) = pair();
        let silent = a.recv::<Verdict>("answer", Duration::from_millis(10));
        assert!(matches!(
            silent,
            Err(ExchangeError::Silent { what: "answer", .. })
        ));
        assert!(a.try_recv::<Verdict>("answer").unwrap().is_none());
        drop(b);
        assert!(matches!(
            a.recv::<Verdict>("answer", LIMIT),
            Err(ExchangeError::Closed { .. })
        ));

        let listener = Listener::bind(Ipv4Addr::LOCALHOST.into(), 0).unwrap();
        assert!(matches!(
            listener.accept(Duration::ZERO),
            Err(ExchangeError::NoPeer { .. })
        ));
        let port = listener.address().port();
        drop(listener);
        let refused = Channel::connect("127.0.0.1", port, Duration::from_millis(30)).unwrap_err();
        assert!(
            matches!(refused, ExchangeError::Connect { .. }),
            "{refused}"
        );
    }

    #[test]
    fn two_messages_in_one_packet() {
        let (mut a, mut b) = pair();
        b.stream
            .write_all(b"{\"refused\":null}\n{\"refused\":\"x\"}\n")
            .unwrap();
        assert!(a.recv::<Verdict>("first", LIMIT).unwrap().refused.is_none());
        assert_eq!(
            a.try_recv::<Verdict>("second")
                .unwrap()
                .unwrap()
                .refused
                .as_deref(),
            Some("x")
        );
    }
}
