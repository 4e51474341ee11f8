//! `send-file` and `recv-file`: a file as RDMA WRITEs into the receiver's registered buffer, in rounds when it is longer
//! than the buffer. The last WRITE of a round carries an immediate, whose completion tells the receiver that all of the
//! round has been placed. Both sides compute the SHA-256 of what they hold and compare.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{bail, Context as _, Result};
use mprdma_host::exchange::Region;
use mprdma_host::memory::{Memory, PageSize};
use mprdma_host::verbs::{Access, Mr, RecvWr, SendFlags, SendWr};
use mprdma_spec::descriptor::WrOpcode;
use mprdma_spec::params::MAX_MESSAGE;
use serde::{Deserialize, Serialize};
use serde_json::{json, Value};
use sha2::{Digest, Sha256};

use crate::args::{RecvFile, SendFile};
use crate::connection::{hello, meet, Patience, Session, Talk, Ticks};
use crate::failure::Failure;
use crate::inspect;
use crate::open::Opened;
use crate::report::{out, Report};
use crate::usage;

const SERVICE: &str = "file";
/// Send requests that may be outstanding.
const DEPTH: usize = 128;
/// How long the peer may take to store a round or to compare digests.
const STORE: Duration = Duration::from_secs(300);
/// Bytes copied and hashed at a time.
const PIECE: usize = 1 << 16;

/// The sender's first word.
#[derive(Debug, Serialize, Deserialize)]
struct Offer {
    name: String,
    bytes: u64,
}

/// The receiver's answer: bytes of a round.
#[derive(Debug, Serialize, Deserialize)]
struct Accept {
    buffer: u64,
}

/// The sender's last word.
#[derive(Debug, Serialize, Deserialize)]
struct Sum {
    sha256: String,
    device_seconds: f64,
}

/// The receiver's last word.
#[derive(Debug, Serialize, Deserialize)]
struct Received {
    sha256: String,
}

/// Gb/s, if any time passed.
fn gbps(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        bytes as f64 * 8.0 / seconds / 1e9
    } else {
        0.0
    }
}

fn hex(hash: Sha256) -> String {
    hash.finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Runs `body`, and tells the peer when it fails.
fn talking<T>(session: &mut Session, body: impl FnOnce(&mut Session) -> Result<T>) -> Result<T> {
    let result = body(session);
    if let Err(error) = &result {
        session.talk.give_up(error);
    }
    result
}

pub fn send(args: &SendFile, report: &Report) -> Result<()> {
    if args.chunk == 0 || args.chunk > MAX_MESSAGE {
        return Err(usage(format!(
            "--chunk must lie between 1 and {MAX_MESSAGE} bytes"
        )));
    }
    args.path.rts(0)?;
    let hello = hello(SERVICE, &args.path, 1)?;
    let shown = args.file.display();
    let mut file = File::open(&args.file).with_context(|| format!("cannot read {shown}"))?;
    let metadata = file
        .metadata()
        .with_context(|| format!("cannot read {shown}"))?;
    if !metadata.is_file() {
        bail!("{shown} is not a regular file");
    }
    let bytes = metadata.len();
    let opened = Opened::new(&args.device, &args.path, &args.setup, "mprdma send-file")?;
    let mut talk = Talk::new(meet(&args.exchange, Some(&args.host), &hello, report)?);
    let name = args
        .file
        .file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    talk.say(&Offer { name, bytes })?;
    let accept: Accept = talk.hear("answer to the offer", STORE)?;
    if accept.buffer == 0 {
        return Err(Failure::OutOfTurn("the peer offers no buffer".to_owned()).into());
    }
    let mut session = Session::new(opened, talk, &args.path, 1, DEPTH, 1)?.by_events(args.events);
    let value = talking(&mut session, |session| {
        let round = accept.buffer.min(bytes).max(1);
        let buffer = allocate(session, round, args.buffer_offset, args.setup.pages())?;
        let mr = session.pd.register(
            &buffer,
            args.buffer_offset,
            round as usize,
            Access::LOCAL_WRITE,
        )?;
        let nothing = Region {
            rkey: 0,
            addr: 0,
            length: 0,
        };
        let peer = session.connect(nothing, Access::NONE)?;
        session.ready()?;
        send_rounds(
            args,
            session,
            &mut file,
            bytes,
            round,
            &mr,
            peer.region,
            report,
        )
    })?;
    report.result(&value, |value| {
        let number = |name: &str| value[name].as_f64().unwrap_or(0.0);
        out!("{} bytes sent, SHA-256 equal: {}", value["bytes"], value["sha256"].as_str().unwrap_or(""));
        out!(
            "{:.3} Gb/s over {:.3} us of the card's time; {} retransmissions, cwnd {:.1} packets, RTT {:.1} us",
            number("goodput_gbps"),
            number("device_seconds") * 1e6,
            value["retransmissions"],
            number("cwnd_packets"),
            number("srtt_us"),
        );
    })
}

/// Memory for `bytes` bytes that start `offset` bytes behind a page boundary.
fn allocate(session: &Session, bytes: u64, offset: usize, page: PageSize) -> Result<Arc<Memory>> {
    let size = usize::try_from(bytes)
        .ok()
        .and_then(|bytes| bytes.checked_add(offset));
    let size = size.ok_or_else(|| usage("the buffer does not fit into memory"))?;
    Ok(session.opened.context.allocate(size, page)?)
}

#[allow(clippy::too_many_arguments)]
fn send_rounds(
    args: &SendFile,
    session: &mut Session,
    file: &mut File,
    bytes: u64,
    round: u64,
    mr: &Mr,
    region: Region,
    report: &Report,
) -> Result<Value> {
    let started = Instant::now();
    let bar = report.progress(bytes, "sending");
    let (mut hash, mut done, mut seconds, mut number) = (Sha256::new(), 0, 0.0, 0);
    loop {
        let now = round.min(bytes - done);
        fill(file, mr, now, &mut hash)
            .with_context(|| format!("cannot read {}", args.file.display()))?;
        let (from, to) = ((mr.addr(), mr.lkey()), (region.addr, region.rkey));
        let requests = requests(from, to, now, args.chunk, number);
        seconds += send_round(
            session,
            &requests,
            args.exchange.timeout(),
            |sent| bar.set_position(done + sent),
            done,
        )?;
        done += now;
        number += 1;
        let stored: u64 = session.talk.hear("sign that the round is stored", STORE)?;
        if stored != done {
            return Err(Failure::OutOfTurn(format!("{stored} bytes stored of {done}")).into());
        }
        if done == bytes {
            break;
        }
    }
    bar.finish_and_clear();
    let sha256 = hex(hash);
    session.talk.say(&Sum {
        sha256: sha256.clone(),
        device_seconds: seconds,
    })?;
    let received: Received = session.talk.hear("digest", STORE)?;
    if received.sha256 != sha256 {
        return Err(Failure::DataDiffer {
            sent: sha256,
            received: received.sha256,
        }
        .into());
    }
    let state = session.qps[0].query()?;
    let control = session.opened.context.control();
    let counters = inspect::counters(control)?;
    Ok(json!({
        "ok": true,
        "file": args.file,
        "bytes": bytes,
        "sha256": sha256,
        "sha256_equal": true,
        "chunk_bytes": args.chunk,
        "completion_mode": session.mode(),
        "looks": session.looks,
        "buffer_page_bytes": args.setup.pages().bytes(),
        "mtu": args.path.mtu,
        "vp_count": args.path.tuning.vp_count,
        "device_seconds": seconds,
        "device_cycles": (seconds * f64::from(control.capabilities().clock_mhz) * 1e6).round() as u64,
        "goodput_gbps": gbps(bytes, seconds),
        "wall_seconds": started.elapsed().as_secs_f64(),
        "cwnd_packets": state.cwnd,
        "srtt_us": state.srtt_us,
        "retransmissions": counters["tx_retransmissions"],
        "timeouts": counters["timeouts"],
        "ecn_echoes": counters["ecn_echoes"],
        "qp": state,
        "counters": counters,
    }))
}

/// Reads the next `bytes` bytes of the file into the region.
fn fill(file: &mut File, mr: &Mr, bytes: u64, hash: &mut Sha256) -> Result<()> {
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    while at < bytes as usize {
        let length = PIECE.min(bytes as usize - at);
        file.read_exact(&mut piece[..length])
            .context("the file has become shorter")?;
        hash.update(&piece[..length]);
        mr.write(at, &piece[..length])?;
        at += length;
    }
    Ok(())
}

/// The WRITEs of a round; there is at least one, and the last carries the round's number.
fn requests(from: (u64, u32), to: (u64, u32), bytes: u64, chunk: u64, round: u32) -> Vec<SendWr> {
    let count = bytes.div_ceil(chunk).max(1);
    (0..count)
        .map(|i| {
            let offset = i * chunk;
            let last = i + 1 == count;
            SendWr {
                wr_id: offset + chunk.min(bytes - offset),
                opcode: if last {
                    WrOpcode::RdmaWriteWithImm
                } else {
                    WrOpcode::RdmaWrite
                },
                flags: SendFlags {
                    signaled: true,
                    ..SendFlags::default()
                },
                addr: from.0 + offset,
                length: chunk.min(bytes - offset),
                lkey: from.1,
                remote_addr: to.0 + offset,
                rkey: to.1,
                imm: round,
                compare_add: 0,
                swap: 0,
            }
        })
        .collect()
}

/// Posts the requests as the ring takes them and waits for all; seconds of the card's time.
fn send_round(
    session: &mut Session,
    requests: &[SendWr],
    limit: Duration,
    show: impl Fn(u64),
    before: u64,
) -> Result<f64> {
    let mut patience = Patience::new(limit);
    let mut ticks = Ticks::start(session.opened.context.control().tick()?);
    let (mut posted, mut completed) = (0, 0);
    while completed < requests.len() {
        let qp = &session.qps[0];
        let free = (qp.send_capacity() - qp.send_outstanding()).min(requests.len() - posted);
        if free > 0 {
            qp.post_send(&requests[posted..posted + free])?;
            posted += free;
        }
        let completions = session.poll(&mut patience)?;
        for wc in &completions {
            ticks.advance(wc.timestamp);
            show(wc.wr_id);
        }
        completed += completions.len();
        let bytes = completed
            .checked_sub(1)
            .map_or(0, |last| requests[last].wr_id);
        session.talk.progress(before + bytes)?;
    }
    Ok(ticks.seconds())
}

pub fn receive(args: &RecvFile, report: &Report) -> Result<()> {
    if args.buffer == 0 {
        return Err(usage("--buffer must be at least 1 byte"));
    }
    args.path.rts(0)?;
    let hello = hello(SERVICE, &args.path, 1)?;
    let output = Output::create(&args.file, args.force)?;
    let opened = Opened::new(&args.device, &args.path, &args.setup, "mprdma recv-file")?;
    let mut talk = Talk::new(meet(&args.exchange, None, &hello, report)?);
    let offer: Offer = talk.hear("offer", STORE)?;
    let round = args.buffer.min(offer.bytes).max(1);
    talk.say(&Accept { buffer: round })?;
    let mut session = Session::new(opened, talk, &args.path, 1, 1, 2)?.by_events(args.events);
    let value = talking(&mut session, |session| {
        receive_all(args, session, output, &offer, round, report)
    })?;
    report.result(&value, |value| {
        out!(
            "{} bytes received into {}, SHA-256 equal: {}",
            value["bytes"],
            args.file.display(),
            value["sha256"].as_str().unwrap_or("")
        );
        out!(
            "{} packets arrived ahead of a hole, {} were marked CE",
            value["out_of_order"],
            value["ce_marks"]
        );
    })
}

fn receive_all(
    args: &RecvFile,
    session: &mut Session,
    mut output: Output,
    offer: &Offer,
    round: u64,
    report: &Report,
) -> Result<Value> {
    let buffer = allocate(session, round, args.buffer_offset, args.setup.pages())?;
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let mr = session
        .pd
        .register(&buffer, args.buffer_offset, round as usize, rights)?;
    let region = Region {
        rkey: mr.rkey(),
        addr: mr.addr(),
        length: round,
    };
    session.connect(region, rights)?;
    expect_round(session)?;
    session.ready()?;
    let bar = report.progress(offer.bytes, "receiving");
    let (mut hash, mut done, mut number) = (Sha256::new(), 0, 0);
    loop {
        let imm = receive_round(session, args.exchange.timeout(), |bytes| {
            bar.set_position(bytes)
        })?;
        if imm != Some(number) {
            return Err(Failure::OutOfTurn(format!("round {imm:?} instead of {number}")).into());
        }
        let now = round.min(offer.bytes - done);
        store(&mut output, &mr, now, &mut hash)
            .with_context(|| format!("cannot write {}", args.file.display()))?;
        done += now;
        number += 1;
        if done < offer.bytes {
            expect_round(session)?;
        }
        session.talk.say(&done)?;
        if done == offer.bytes {
            break;
        }
    }
    bar.finish_and_clear();
    let sha256 = hex(hash);
    let sum: Sum = session.talk.hear("digest", STORE)?;
    session.talk.say(&Received {
        sha256: sha256.clone(),
    })?;
    if sum.sha256 != sha256 {
        return Err(Failure::DataDiffer {
            sent: sum.sha256,
            received: sha256,
        }
        .into());
    }
    output.finish()?;
    let counters = inspect::counters(session.opened.context.control())?;
    Ok(json!({
        "ok": true,
        "file": args.file,
        "name": offer.name,
        "bytes": offer.bytes,
        "sha256": sha256,
        "sha256_equal": true,
        "completion_mode": session.mode(),
        "looks": session.looks,
        "buffer_page_bytes": args.setup.pages().bytes(),
        "device_seconds": sum.device_seconds,
        "goodput_gbps": gbps(offer.bytes, sum.device_seconds),
        "out_of_order": counters["rx_out_of_order"],
        "ce_marks": counters["rx_ce_marks"],
        "counters": counters,
    }))
}

/// Makes the card ready for the end of a round, before the peer may hear of it.
fn expect_round(session: &Session) -> Result<()> {
    session.qps[0].post_recv(&[RecvWr::default()])?;
    Ok(session.opened.context.control().flush()?)
}

/// Waits for the completion that ends a round; its immediate.
fn receive_round(
    session: &mut Session,
    limit: Duration,
    show: impl Fn(u64),
) -> Result<Option<u32>> {
    let mut patience = Patience::new(limit);
    let mut heard = session.talk.heard;
    loop {
        if let Some(wc) = session.poll(&mut patience)?.first() {
            return Ok(wc.imm);
        }
        // The sender's reports of progress are ours too.
        if session.talk.heard != heard {
            heard = session.talk.heard;
            patience.renew();
            show(session.talk.peer_bytes);
        }
    }
}

/// Writes `bytes` bytes of the region to the file.
fn store(output: &mut Output, mr: &Mr, bytes: u64, hash: &mut Sha256) -> Result<()> {
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    while at < bytes as usize {
        let length = PIECE.min(bytes as usize - at);
        mr.read(at, &mut piece[..length])?;
        hash.update(&piece[..length]);
        output.file.write_all(&piece[..length])?;
        at += length;
    }
    Ok(())
}

/// The file being received: beside its place until it is whole.
struct Output {
    file: File,
    /// Where it is and where it goes; nothing when it is written in place, as /dev/null is.
    part: Option<(PathBuf, PathBuf)>,
}

impl Output {
    fn create(path: &Path, force: bool) -> Result<Self> {
        let cannot = || format!("cannot write {}", path.display());
        match fs::metadata(path) {
            Ok(there) if there.is_dir() => bail!("{} is a directory", path.display()),
            Ok(there) if !there.is_file() => {
                let file = File::options()
                    .write(true)
                    .open(path)
                    .with_context(cannot)?;
                return Ok(Self { file, part: None });
            }
            Ok(_) if !force => bail!("{} exists; --force writes over it", path.display()),
            _ => {}
        }
        let mut name = path.file_name().with_context(cannot)?.to_owned();
        name.push(format!(".{}.part", std::process::id()));
        let part = path.with_file_name(name);
        let file = File::create(&part).with_context(cannot)?;
        Ok(Self {
            file,
            part: Some((part, path.to_owned())),
        })
    }

    /// The file is whole: puts it in its place.
    fn finish(mut self) -> Result<()> {
        if let Some((part, path)) = self.part.take() {
            fs::rename(&part, &path).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some((part, _)) = &self.part {
            // Best effort: the transfer has failed already.
            let _ = fs::remove_file(part);
        }
    }
}
