//! The control socket: one JSON request and one JSON answer per line.

use crate::pcie::Wake;
use crate::scenario::LinkRule;
use crate::world::Command;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{sync_channel, Sender};
use std::sync::Arc;
use std::time::Duration;

/// Name of the socket in the simulator's directory.
const SOCKET: &str = "control.sock";
/// How long a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a client asks.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Report the counters.
    Stats,
    /// Change links.
    Link {
        /// Which, and what is new.
        rule: Box<LinkRule>,
        /// Cut or repair them.
        down: Option<bool>,
    },
    /// End the simulation.
    Stop,
}

/// What it is told.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct Answer {
    /// Why the request is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Links changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub links: Option<usize>,
    /// Counters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stats: Option<serde_json::Value>,
}

/// No answer from a simulator.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Nobody listens there.
    #[error("no simulator runs in {}; start one with `mprdma-sim up SCENARIO --dir {}`", dir.display(), dir.display())]
    Absent {
        /// The directory.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The connection broke, or no answer came in time.
    #[error("the simulator does not answer")]
    Lost(#[from] io::Error),
    /// The answer makes no sense.
    #[error("the simulator's answer cannot be read")]
    Answer(#[from] serde_json::Error),
    /// The simulator refuses.
    #[error("{0}")]
    Refused(String),
}

/// Path of the control socket of a simulator.
pub fn socket(dir: &Path) -> PathBuf {
    dir.join(SOCKET)
}

/// Asks the simulator that runs in `dir`.
pub fn ask(dir: &Path, request: &Request) -> Result<Answer, ControlError> {
    converse_once(dir, request).map(|(answer, _)| answer)
}

/// Stops the simulator that runs in `dir` and waits until it has written its result and is gone.
pub fn stop(dir: &Path) -> Result<(), ControlError> {
    let (_, mut stream) = converse_once(dir, &Request::Stop)?;
    // The connection closes with the program.
    stream.read_to_end(&mut vec![])?;
    Ok(())
}

fn converse_once(
    dir: &Path,
    request: &Request,
) -> Result<(Answer, BufReader<UnixStream>), ControlError> {
    let absent = |source| ControlError::Absent {
        dir: dir.to_path_buf(),
        source,
    };
    let mut stream = UnixStream::connect(socket(dir)).map_err(absent)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(format!("{}\n", serde_json::to_string(request)?).as_bytes())?;
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let answer: Answer = serde_json::from_str(&line)?;
    match answer.error {
        Some(error) => Err(ControlError::Refused(error)),
        None => Ok((answer, stream)),
    }
}

/// The way from the control socket to the running world.
pub struct Link {
    /// Its commands.
    pub commands: Sender<Command>,
    /// Its alarm clock.
    pub wake: Wake,
    /// Called when a client asks for the end.
    pub stop: Box<dyn Fn() + Send + Sync>,
}

/// Listens in `dir` and answers, each client on a thread of its own, for as long as the process lives.
pub fn serve(dir: &Path, link: Link) -> io::Result<()> {
    let listener = UnixListener::bind(socket(dir))?;
    let link = Arc::new(link);
    std::thread::Builder::new()
        .name("control".into())
        .spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let link = Arc::clone(&link);
                std::thread::spawn(move || {
                    if let Err(error) = converse(stream, &link) {
                        tracing::debug!(%error, "control client lost");
                    }
                });
            }
        })?;
    Ok(())
}

fn converse(stream: UnixStream, link: &Link) -> io::Result<()> {
    let mut out = stream.try_clone()?;
    for line in BufReader::new(stream).lines() {
        let request = serde_json::from_str(&line?);
        let stop = matches!(request, Ok(Request::Stop));
        let answer = match request {
            Ok(request) => link.answer(request).unwrap_or_else(refuse),
            Err(error) => refuse(format!("request cannot be read: {error}")),
        };
        writeln!(out, "{}", serde_json::to_string(&answer)?)?;
        // Only now: the end of the program may be quicker than the answer.
        if stop {
            (link.stop)();
        }
    }
    Ok(())
}

fn refuse(error: String) -> Answer {
    Answer {
        error: Some(error),
        ..Answer::default()
    }
}

impl Link {
    fn answer(&self, request: Request) -> Result<Answer, String> {
        match request {
            Request::Stop => Ok(Answer::default()),
            Request::Stats => {
                let stats = self.command(Command::Stats)?;
                let stats = serde_json::to_value(stats).map_err(|e| e.to_string())?;
                Ok(Answer {
                    stats: Some(stats),
                    ..Answer::default()
                })
            }
            Request::Link { rule, down } => {
                rule.check()
                    .map_err(|(key, value, fix)| format!("{key} = {value}: {fix}"))?;
                let ends = format!("{} to {}", rule.from, rule.to);
                match self.command(|reply| Command::Link { rule, down, reply })? {
                    0 => Err(format!(
                        "no link {ends}; `mprdma-sim stats` lists the links"
                    )),
                    links => Ok(Answer {
                        links: Some(links),
                        ..Answer::default()
                    }),
                }
            }
        }
    }

    fn command<T>(
        &self,
        make: impl FnOnce(std::sync::mpsc::SyncSender<T>) -> Command,
    ) -> Result<T, String> {
        let (reply, answer) = sync_channel(1);
        let ended = |_| "the simulation has ended".to_string();
        self.commands
            .send(make(reply))
            .map_err(|_| "the simulation has ended".to_string())?;
        self.wake.ring();
        answer.recv().map_err(ended)
    }
}
