//! A card serves one process. That process answers the questions of others on a socket of its own, `nic0.ctl` beside
//! `nic0.sock`: one JSON line asks, one answers.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use mprdma_host::address::Address;
use mprdma_host::verbs::{Context, Cq, Mtu, Pd, Qp, QpInitAttr};
use serde::{Deserialize, Serialize};
use serde_json::{json, Value};
use tracing::{debug, info, warn};

use crate::args::{Hold, Shape};
use crate::failure::{exit_code, text, Failure};
use crate::inspect;
use crate::moderation;
use crate::open;
use crate::queue_pair;
use crate::report::Report;
use crate::tuning::Change;

/// How long a question may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What another process may ask.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Who has the card.
    Who,
    /// What the card is.
    Info,
    /// Every counter.
    Stats,
    /// The moderation of every vector.
    Moderation,
    /// Moderate one vector, or all.
    SetModeration {
        vector: Option<usize>,
        interval: Duration,
    },
    /// The queue pairs of the process.
    QpList,
    /// Everything about one.
    QpShow(u32),
    /// Change parameters of one.
    QpModify(u32, Change),
    /// Trace one from now on.
    QpTrace(u32),
    /// The counts of the one that is traced.
    QpReadTrace(u32),
    /// Make one.
    QpCreate(Shape),
    /// Remove one that `QpCreate` made.
    QpDestroy(u32),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Ok(Value),
    /// Text and exit code.
    Error(String, u8),
}

/// Where the process that has `address` listens.
fn control_socket(address: &Address) -> PathBuf {
    match address {
        Address::VfioUser(path) => path.with_extension("ctl"),
        Address::Pci(pci) => Path::new("/run/mprdma").join(format!("{pci}.ctl")),
    }
}

/// Asks the process that has the card; nothing when nobody has it.
pub fn ask(address: &Address, request: &Request) -> Result<Option<Value>> {
    let Ok(mut stream) = UnixStream::connect(control_socket(address)) else {
        return Ok(None);
    };
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut asked = || -> io::Result<String> {
        stream.write_all(format!("{}\n", serde_json::to_string(request)?).as_bytes())?;
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line)?;
        Ok(line)
    };
    let line = match asked() {
        Ok(line) if line.is_empty() => return Ok(None),
        Ok(line) => line,
        // It ended while we asked.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
            ) =>
        {
            return Ok(None)
        }
        Err(error) => {
            return Err(Failure::Owner(format!(
                "the process that has {address} does not answer: {error}"
            ))
            .into())
        }
    };
    match serde_json::from_str(&line).context("the answer of the process that has the card")? {
        Answer::Ok(value) => Ok(Some(value)),
        Answer::Error(text, 2) => Err(Failure::Usage(text).into()),
        Answer::Error(text, _) => Err(Failure::Owner(text).into()),
    }
}

/// Who has the card, if anybody answers for it.
pub fn holder(address: &Address) -> Option<String> {
    let who = ask(address, &Request::Who).ok().flatten()?;
    Some(format!(
        "{} (process {})",
        who["role"].as_str().unwrap_or("mprdma"),
        who["pid"]
    ))
}

/// Answers questions until it is dropped.
pub struct Owner {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Owner {
    /// Starts to answer for the card, which this process has. Where no socket can be made, others only hear that the
    /// card is in use.
    pub fn announce(address: &Address, context: &Context, role: &str) -> Option<Self> {
        Self::start(address, context, role)
            .inspect_err(|error| warn!("others cannot ask this process about the card: {error:#}"))
            .ok()
    }

    /// A socket that a killed process left is replaced.
    fn start(address: &Address, context: &Context, role: &str) -> Result<Self> {
        let path = control_socket(address);
        if let Some(directory) = path.parent() {
            // If it fails, listening does too, and says why.
            let _ = std::fs::create_dir_all(directory);
        }
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot replace {}", path.display()))
            }
            _ => {}
        }
        let listener = UnixListener::bind(&path)
            .with_context(|| format!("cannot listen on {}", path.display()))?;
        let stop = Arc::new(AtomicBool::new(false));
        let mut desk = Desk {
            context: context.clone(),
            role: role.to_owned(),
            address: address.clone(),
            made: Vec::new(),
        };
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new()
            .name("owner".to_owned())
            .spawn(move || {
                for stream in listener.incoming() {
                    if stopped.load(Ordering::Relaxed) {
                        break;
                    }
                    if let Err(error) = stream.and_then(|stream| desk.serve(stream)) {
                        debug!(%error, "a question was not answered");
                    }
                }
            })?;
        Ok(Self {
            path,
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the thread.
        let woken = UnixStream::connect(&self.path).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            // It has no result.
            let _ = thread.join();
        }
        // Nothing is lost if it stays: the next owner replaces it.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The answering thread.
struct Desk {
    context: Context,
    role: String,
    address: Address,
    /// Queue pairs that others made.
    made: Vec<Made>,
}

/// A queue pair with what it needs.
pub struct Made {
    qp: Qp,
    _cq: Cq,
    _pd: Pd,
}

impl Desk {
    fn serve(&mut self, mut stream: UnixStream) -> io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line)?;
        let answer = match serde_json::from_str(&line) {
            Ok(request) => self.answer(&request),
            Err(error) => Err(Failure::Usage(format!("not a question: {error}")).into()),
        };
        let answer = answer.map_or_else(
            |error| Answer::Error(text(&error), exit_code(&error)),
            Answer::Ok,
        );
        stream.write_all(format!("{}\n", serde_json::to_string(&answer)?).as_bytes())
    }

    fn answer(&mut self, request: &Request) -> Result<Value> {
        debug!(?request, "asked");
        match request {
            Request::Who => Ok(json!({ "pid": std::process::id(), "role": self.role })),
            Request::Info => inspect::describe(&self.address, self.context.control()),
            Request::Stats => inspect::counters(self.context.control()),
            Request::Moderation => moderation::describe(self.context.control()),
            Request::SetModeration { vector, interval } => {
                self.context.set_moderation(*vector, *interval)?;
                moderation::describe(self.context.control())
            }
            Request::QpList => Ok(serde_json::to_value(self.context.queue_pairs())?),
            Request::QpShow(qpn) => queue_pair::show(&self.context, *qpn),
            Request::QpModify(qpn, change) => queue_pair::modify(&self.context, *qpn, change),
            Request::QpTrace(qpn) => {
                self.context.trace_qp(*qpn)?;
                Ok(json!({ "ok": true, "qpn": qpn }))
            }
            Request::QpReadTrace(qpn) => Ok(serde_json::to_value(self.context.read_trace(*qpn)?)?),
            Request::QpCreate(shape) => {
                let made = make(&self.context, shape)?;
                let summary = serde_json::to_value(made.qp.summary())?;
                self.made.push(made);
                Ok(summary)
            }
            Request::QpDestroy(qpn) => {
                let Some(at) = self.made.iter().position(|made| made.qp.qp_num() == *qpn) else {
                    let text = if self.context.queue_pairs().iter().any(|qp| qp.qpn == *qpn) {
                        format!(
                            "QP {qpn} belongs to {}; only what `qp create` made can be removed",
                            self.role
                        )
                    } else {
                        format!("there is no QP {qpn}")
                    };
                    return Err(Failure::Owner(text).into());
                };
                let made = self.made.swap_remove(at);
                Ok(serde_json::to_value(made.qp.summary())?)
            }
        }
    }
}

/// Makes a queue pair that nobody uses yet.
pub fn make(context: &Context, shape: &Shape) -> Result<Made> {
    let pd = context.alloc_pd()?;
    let cq = context.create_cq((shape.tx_depth.saturating_add(shape.rx_depth)).min(1 << 15))?;
    let attr = QpInitAttr {
        send_cq: &cq,
        recv_cq: &cq,
        max_send_wr: shape.tx_depth,
        max_recv_wr: shape.rx_depth,
        mode: shape.mode,
        path_mtu: Mtu::new(shape.mtu)?,
    };
    // Checked before the card hears of anything.
    let tuning = shape.tuning.rts(0)?;
    let qp = pd.create_qp(&attr)?;
    qp.modify_timers(&tuning.timers())?;
    qp.modify_paths(&tuning.multi_path)?;
    Ok(Made {
        qp,
        _cq: cq,
        _pd: pd,
    })
}

impl Made {
    pub fn summary(&self) -> mprdma_host::verbs::QpSummary {
        self.qp.summary()
    }
}

/// Keeps the card open.
pub fn hold(args: &Hold, report: &Report) -> Result<()> {
    let context = Context::open(
        open::device(&args.device)?,
        &mprdma_host::verbs::ContextAttr {
            mac: open::port(&args.device.device)?.map(|port| port.mac),
            ring_pages: args.setup.pages(),
            ..mprdma_host::verbs::ContextAttr::default()
        },
    )?;
    if let Some(interval) = args.setup.moderation_us {
        context.set_moderation(None, interval)?;
    }
    context.keep_thread_near();
    let owner = Owner::announce(&args.device.device, &context, "mprdma hold");
    info!(address = %args.device.device, "held");
    report.note(format!(
        "{} is held; other commands can use it now",
        args.device.device
    ));
    let start = Instant::now();
    let limit = args.seconds.map(Duration::from_secs);
    while limit.is_none_or(|limit| start.elapsed() < limit) {
        thread::sleep(Duration::from_millis(100));
        // Notices when the device goes away.
        context
            .control()
            .device()
            .wait_interrupt(0, Duration::ZERO)?;
        for event in context.poll_events()? {
            report.note(format!("event: {event:?}"));
        }
    }
    drop(owner);
    report.result(&json!({ "ok": true }), |_| ())
}
