//! A run of `mprdma` that is watched while it goes, and killed.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{bail, ensure, Context as _, Result};

use crate::LIMIT;

/// Time between two looks at a process. A limit counts looks, because while the host has no time for the guest, the guest's
/// clock goes on.
const LOOK: Duration = Duration::from_millis(1);

/// How far a process has come with a card. In order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Opening it.
    Open,
    /// Making queues, queue pairs and regions.
    SetUp,
    /// Exchanging addresses with the peer, and connecting a queue pair.
    Connection,
    /// Moving data.
    Transfer,
    /// Taking everything down.
    TearDown,
}

impl Phase {
    pub const ALL: [Self; 5] = [
        Self::Open,
        Self::SetUp,
        Self::Connection,
        Self::Transfer,
        Self::TearDown,
    ];

    /// As the log of `mprdma -v` tells it: by the commands that the card has done.
    pub fn of(log: &[String]) -> Self {
        let count = |words: &[&str]| {
            let has = |line: &&String| words.iter().any(|word| line.contains(word));
            log.iter().filter(has).count()
        };
        if count(&["command=Destroy", "command=Deregister"]) > 0 {
            return Self::TearDown;
        }
        // One makes a queue pair receive, one makes it send.
        if count(&["command=ModifyQp"]) > 1 {
            return Self::Transfer;
        }
        // The region is the last that is made; its key goes to the peer.
        if count(&["command=RegisterMr", "command=ModifyQp"]) > 0 {
            return Self::Connection;
        }
        match count(&["command=CreateCq", "command=CreateQp"]) {
            0 => Self::Open,
            _ => Self::SetUp,
        }
    }

    /// How much later than its begin a kill may come, at the most.
    pub const fn spread(self) -> Duration {
        Duration::from_millis(match self {
            Self::Open | Self::Transfer => 200,
            Self::SetUp | Self::Connection | Self::TearDown => 5,
        })
    }
}

/// A running `mprdma`.
pub struct Job {
    name: String,
    child: Child,
    log: Arc<Log>,
}

/// What it has said on standard error.
#[derive(Default)]
struct Log {
    lines: Mutex<Vec<String>>,
    more: Condvar,
    /// It will say no more.
    ended: AtomicBool,
}

impl Log {
    fn lines(&self) -> MutexGuard<'_, Vec<String>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fill(&self, from: impl Read) {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            self.lines().push(line);
            self.more.notify_all();
        }
        self.ended.store(true, Ordering::Release);
    }
}

impl Job {
    /// Starts `mprdma` with these arguments.
    pub fn start(arguments: &[&str]) -> Result<Self> {
        let name = format!("mprdma {}", arguments.join(" "));
        let mut child = Command::new("mprdma")
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| name.clone())?;
        let from = child.stderr.take().context("its standard error is piped")?;
        let log = Arc::new(Log::default());
        let filled = Arc::clone(&log);
        thread::spawn(move || filled.fill(from));
        Ok(Self { name, child, log })
    }

    /// Runs `mprdma` to its end.
    pub fn run(arguments: &[&str]) -> Result<()> {
        let mut job = Self::start(arguments)?;
        let status = job.end()?;
        ensure!(
            status.success(),
            "{} ended with {status}; {}",
            job.name,
            job.said()
        );
        Ok(())
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How far it is.
    pub fn phase(&self) -> Phase {
        Phase::of(&self.log.lines())
    }

    /// Waits until it says `words`.
    pub fn until_it_says(&self, words: &str) -> Result<()> {
        self.until(words, |log| log.iter().any(|line| line.contains(words)))
    }

    /// Waits until it has come to `phase`. It opens the card as soon as it has a file of VFIO.
    pub fn until_phase(&self, phase: Phase) -> Result<()> {
        let pid = self.pid();
        self.until(&format!("phase {phase:?}"), |log| match phase {
            Phase::Open => !vfio_files(pid).is_empty(),
            _ => Phase::of(log) >= phase,
        })
    }

    fn until(&self, what: &str, there: impl Fn(&[String]) -> bool) -> Result<()> {
        let mut looks = 0;
        let mut lines = self.log.lines();
        while !there(&lines) {
            looks += 1;
            if looks > LIMIT.as_millis() {
                drop(lines);
                bail!(
                    "hung: {} without {what} after {LIMIT:?}; {}",
                    self.name,
                    self.said()
                );
            }
            let woken = self.log.more.wait_timeout(lines, LOOK);
            lines = woken.unwrap_or_else(PoisonError::into_inner).0;
            if self.log.ended.load(Ordering::Acquire) && !there(&lines) {
                drop(lines);
                bail!("{} ended without {what}; {}", self.name, self.said());
            }
        }
        Ok(())
    }

    /// Kills it and waits until it is gone. Says in which phase it was, if it was there at all.
    pub fn kill(&mut self) -> Result<Option<Phase>> {
        self.child.kill()?;
        let status = self.end()?;
        Ok((status.signal() == Some(libc::SIGKILL)).then(|| self.phase()))
    }

    /// Waits until it ends by itself; a panic is no end.
    pub fn end(&mut self) -> Result<ExitStatus> {
        let mut looks = 0;
        loop {
            looks += 1;
            if let Some(status) = self.child.try_wait()? {
                ensure!(
                    status.code() != Some(101),
                    "{} panicked; {}",
                    self.name,
                    self.said()
                );
                return Ok(status);
            }
            if looks > LIMIT.as_millis() {
                let file = |name: &str| {
                    let text = fs::read_to_string(format!("/proc/{}/{name}", self.pid()));
                    text.unwrap_or_else(|error| error.to_string())
                };
                bail!(
                    "hung: {} goes on after {LIMIT:?}, in {}, {}; {}",
                    self.name,
                    file("wchan"),
                    file("stack"),
                    self.said()
                );
            }
            thread::sleep(LOOK);
        }
    }

    /// The end of its log, for messages.
    fn said(&self) -> String {
        let lines = self.log.lines();
        let last = lines.len().saturating_sub(8);
        format!("it said: {}", lines[last..].join(" / "))
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // Whatever ended the round: nothing goes on. Both fail when it has ended.
        let _ = self.child.kill();
        let _ = self.child.try_wait();
    }
}

/// The files of VFIO that a process has open.
pub fn vfio_files(pid: u32) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten();
    entries
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .map(|target| target.display().to_string())
        .filter(|target| target.contains("vfio"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_tells_the_phase() {
        let commands = [
            ("card is ready", Phase::Open),
            ("command command=CreateEq status=0", Phase::Open),
            ("command command=CreateCq status=0", Phase::SetUp),
            ("command command=CreateQp status=0", Phase::SetUp),
            ("command command=RegisterMr status=0", Phase::Connection),
            ("command command=ModifyQp status=0", Phase::Connection),
            ("command command=ModifyQp status=0", Phase::Transfer),
            ("waiting", Phase::Transfer),
            ("command command=DeregisterMr status=0", Phase::TearDown),
        ];
        let mut log = vec![];
        assert_eq!(Phase::of(&log), Phase::Open);
        for (line, phase) in commands {
            log.push(line.to_owned());
            assert_eq!(Phase::of(&log), phase, "{line}");
        }
    }
}
