//! `bench write-bw`, `bench read-bw` and `bench atomic-bw`: rates with perftest's flags and table, in the card's own time.

use std::collections::HashMap;

use anyhow::Result;
use mprdma_host::exchange::{Endpoint, Region};
use mprdma_host::verbs::{Access, Mr, SendFlags, SendWr};
use mprdma_spec::descriptor::WrOpcode;
use mprdma_spec::params::{max_read, mtu_code, ATOMIC_BYTES, MAX_MESSAGE};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::args::{AtomicBandwidth, AtomicType, Bandwidth, Load};
use crate::connection::{hello, meet, Patience, Session, Talk, Ticks};
use crate::failure::Failure;
use crate::open::Opened;
use crate::report::{out, Report};
use crate::usage;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Test {
    /// Name of the command.
    service: &'static str,
    /// Headline of the table.
    title: &'static str,
    /// Operation that the client posts.
    opcode: WrOpcode,
    /// What the peers' regions and queue pairs allow.
    access: fn() -> Access,
}

pub const WRITE: Test = Test {
    service: "write-bw",
    title: "RDMA_Write BW Test",
    opcode: WrOpcode::RdmaWrite,
    access: || Access::LOCAL_WRITE | Access::REMOTE_WRITE,
};

pub const READ: Test = Test {
    service: "read-bw",
    title: "RDMA_Read BW Test",
    opcode: WrOpcode::RdmaRead,
    access: || Access::LOCAL_WRITE | Access::REMOTE_READ,
};

const fn atomic(kind: AtomicType) -> Test {
    Test {
        service: "atomic-bw",
        title: match kind {
            AtomicType::FetchAndAdd => "Atomic FETCH_AND_ADD BW Test",
            AtomicType::CmpAndSwap => "Atomic CMP_AND_SWAP BW Test",
        },
        opcode: match kind {
            AtomicType::FetchAndAdd => WrOpcode::AtomicFetchAndAdd,
            AtomicType::CmpAndSwap => WrOpcode::AtomicCmpAndSwp,
        },
        access: || Access::LOCAL_WRITE | Access::REMOTE_ATOMIC,
    }
}

/// A test with everything that it needs.
struct Job<'a> {
    test: Test,
    load: &'a Load,
    sizes: Vec<u64>,
    /// Messages of a queue pair that are posted and not complete, at most.
    posted: u64,
}

/// Most bytes of one message in `--all`, as in perftest.
const ALL_MAX_LOG2: u32 = 23;
/// Distance of the queue pairs' buffers.
const PAGE: u64 = 4096;

/// What the client tells the server before they connect.
#[derive(Debug, Serialize, Deserialize)]
struct Plan {
    /// Bytes of each queue pair that the client works on.
    slot: u64,
}

/// One line of the table.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Line {
    bytes: u64,
    iterations: u64,
    /// Device time from the first post to the last completion.
    device_seconds: f64,
    /// Bits per second over the whole run, in 1e9.
    goodput_gbps: f64,
    /// The best tenth of the run. Completions wait for what was overtaken and then come together, so that this can pass
    /// the link's rate for a moment.
    peak_gbps: f64,
    /// Messages per second, in 1e6.
    msg_rate_mpps: f64,
}

/// The client's words while it measures.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    Result(Line),
    Done,
}

pub fn bandwidth(test: Test, args: &Bandwidth, report: &Report) -> Result<()> {
    check(test, args)?;
    let sizes = match args.all {
        true => (1..=ALL_MAX_LOG2).map(|log2| 1 << log2).collect(),
        false => vec![args.size],
    };
    let job = Job {
        test,
        load: &args.load,
        sizes,
        posted: args.load.tx_depth as u64,
    };
    job.run(report)
}

pub fn atomics(args: &AtomicBandwidth, report: &Report) -> Result<()> {
    let depth = args.load.tx_depth as u64;
    let job = Job {
        test: atomic(args.atomic_type),
        load: &args.load,
        sizes: vec![ATOMIC_BYTES as u64],
        posted: args.outs.map_or(depth, |outs| depth.min(outs.into())),
    };
    job.run(report)
}

fn check(test: Test, args: &Bandwidth) -> Result<()> {
    let mtu = args.load.path.mtu;
    let (most, over) = match (test.opcode, mtu_code(mtu).and_then(max_read)) {
        (WrOpcode::RdmaRead, Some(most)) => (most, format!(" for READs at MTU {mtu}")),
        _ => (MAX_MESSAGE, String::new()),
    };
    if args.size == 0 || args.size > most {
        return Err(usage(format!(
            "--size must lie between 1 and {most} bytes{over}"
        )));
    }
    Ok(())
}

impl Job<'_> {
    fn run(&self, report: &Report) -> Result<()> {
        let (test, args) = (self.test, self.load);
        args.path.rts(0)?;
        if args.qp == 0 || args.tx_depth == 0 || args.qp.saturating_mul(args.tx_depth + 1) > 1 << 15
        {
            return Err(usage("--qp times (--tx-depth + 1) must lie between 1 and 32768, the largest completion queue"));
        }
        let side = if args.host.is_some() { "" } else { " (server)" };
        let role = format!("mprdma bench {}{side}", test.service);
        let hello = hello(test.service, &args.path, args.qp)?;
        let opened = Opened::new(&args.device, &args.path, &args.setup, &role)?;
        if test.opcode.is_atomic() {
            opened.context.capabilities().expect_atomics()?;
        }
        let talk = Talk::new(meet(&args.exchange, args.host.as_deref(), &hello, report)?);
        let mut session = Session::new(opened, talk, &args.path, args.qp, args.tx_depth, 1)?
            .by_events(args.events);
        let lines = if args.host.is_some() {
            self.client(&mut session, report)
        } else {
            self.server(&mut session, report)
        };
        if let Err(error) = &lines {
            session.talk.give_up(error);
        }
        let lines = lines?;
        if !report.is_json() {
            rule();
            return Ok(());
        }
        report.result(
            &json!({
                "ok": true,
                "mtu": args.path.mtu,
                "qps": args.qp,
                "completion_mode": session.mode(),
                "looks": session.looks,
                "buffer_page_bytes": args.setup.pages().bytes(),
                "results": lines,
            }),
            |_| (),
        )
    }

    fn client(&self, session: &mut Session, report: &Report) -> Result<Vec<Line>> {
        let slot = self
            .sizes
            .iter()
            .max()
            .map_or(PAGE, |bytes| bytes.next_multiple_of(PAGE));
        session.talk.say(&Plan { slot })?;
        let mr = self.region(session, slot)?;
        let peer = session.connect(offer(&mr), (self.test.access)())?;
        if peer.region.length < slot * self.load.qp as u64 {
            return Err(Failure::OutOfTurn(format!(
                "the peer offers a region of {} bytes only",
                peer.region.length
            ))
            .into());
        }
        session.ready()?;
        head(self.test, self.load, session, &peer, report);
        let mut lines = Vec::new();
        for bytes in self.sizes.iter().copied() {
            let line = self.measure(session, &mr, peer.region, slot, bytes)?;
            session.talk.say(&Word::Result(line))?;
            row(self.load, &line, report);
            lines.push(line);
        }
        session.talk.say(&Word::Done)?;
        Ok(lines)
    }

    fn server(&self, session: &mut Session, report: &Report) -> Result<Vec<Line>> {
        let plan: Plan = session.talk.hear("plan", self.load.exchange.timeout())?;
        if plan.slot == 0 || plan.slot > MAX_MESSAGE.next_multiple_of(PAGE) {
            return Err(Failure::OutOfTurn(format!(
                "the peer wants a buffer of {} bytes",
                plan.slot
            ))
            .into());
        }
        let mr = self.region(session, plan.slot)?;
        let peer = session.connect(offer(&mr), (self.test.access)())?;
        session.ready()?;
        head(self.test, self.load, session, &peer, report);
        let mut lines = Vec::new();
        loop {
            match session.talk.hear("result", self.load.exchange.timeout())? {
                Word::Result(line) => {
                    row(self.load, &line, report);
                    lines.push(line);
                }
                Word::Done => return Ok(lines),
            }
        }
    }

    /// One slot for each queue pair.
    fn region(&self, session: &Session, slot: u64) -> Result<Mr> {
        let bytes = usize::try_from(slot)
            .ok()
            .and_then(|slot| slot.checked_mul(self.load.qp));
        let bytes = bytes.ok_or_else(|| usage("--size times --qp does not fit into memory"))?;
        let memory = session
            .opened
            .context
            .allocate(bytes, self.load.setup.pages())?;
        Ok(session
            .pd
            .register(&memory, 0, bytes, (self.test.access)())?)
    }

    fn measure(
        &self,
        session: &mut Session,
        mr: &Mr,
        region: Region,
        slot: u64,
        bytes: u64,
    ) -> Result<Line> {
        let args = self.load;
        let limit = if args.duration.is_some() {
            u64::MAX
        } else {
            args.iters
        };
        let mut lanes = vec![Lane::default(); session.qps.len()];
        let index: HashMap<u32, usize> = session
            .qps
            .iter()
            .enumerate()
            .map(|(i, qp)| (qp.qp_num(), i))
            .collect();
        let mut patience = Patience::new(args.exchange.timeout());
        let mut ticks = Ticks::start(session.opened.context.control().tick()?);
        let mut times: Vec<u64> = Vec::new();
        let mut open = true;
        while open || lanes.iter().any(|lane| lane.completed < lane.posted) {
            for (i, lane) in lanes.iter_mut().enumerate().filter(|_| open) {
                let free = self.posted - (lane.posted - lane.completed);
                let count = free.min(limit - lane.posted);
                let offset = slot * i as u64;
                let request = SendWr {
                    wr_id: 0,
                    opcode: self.test.opcode,
                    flags: SendFlags {
                        signaled: true,
                        fence: args.fence,
                        sync: args.sync,
                        ..SendFlags::default()
                    },
                    addr: mr.addr() + offset,
                    length: bytes,
                    lkey: mr.lkey(),
                    remote_addr: region.addr + offset,
                    rkey: region.rkey,
                    imm: 0,
                    compare_add: u64::from(self.test.opcode == WrOpcode::AtomicFetchAndAdd),
                    swap: 0,
                };
                if count > 0 {
                    session.qps[i].post_send(&vec![request; count as usize])?;
                    lane.posted += count;
                }
            }
            for wc in session.poll(&mut patience)? {
                ticks.advance(wc.timestamp);
                times.push(ticks.passed);
                if let Some(i) = index.get(&wc.qp_num) {
                    lanes[*i].completed += 1;
                }
            }
            open = match args.duration {
                Some(duration) => ticks.seconds() < duration.as_secs_f64(),
                None => lanes.iter().any(|lane| lane.posted < limit),
            };
            session.talk.progress(bytes * times.len() as u64)?;
        }
        Ok(line(bytes, &times, ticks.seconds()))
    }
}

/// What the peer hears of it.
fn offer(mr: &Mr) -> Region {
    Region {
        rkey: mr.rkey(),
        addr: mr.addr(),
        length: mr.length() as u64,
    }
}

/// Progress of one queue pair.
#[derive(Clone, Copy, Default)]
struct Lane {
    posted: u64,
    completed: u64,
}

/// Rates from the times, in ticks, at which messages of `bytes` bytes completed.
fn line(bytes: u64, times: &[u64], seconds: f64) -> Line {
    let gbps = |messages: usize, seconds: f64| messages as f64 * bytes as f64 * 8.0 / seconds / 1e9;
    let span = (times.len() / 10).max(1);
    let average = gbps(times.len(), seconds.max(64e-9));
    let best = times
        .iter()
        .zip(&times[span.min(times.len())..])
        .map(|(from, to)| to - from)
        .filter(|ticks| *ticks > 0)
        .min();
    Line {
        bytes,
        iterations: times.len() as u64,
        device_seconds: seconds,
        goodput_gbps: average,
        peak_gbps: best
            .map_or(average, |ticks| gbps(span, ticks as f64 * 64e-9))
            .max(average),
        msg_rate_mpps: times.len() as f64 / seconds.max(64e-9) / 1e6,
    }
}

fn rule() {
    out!("{}", "-".repeat(87));
}

fn head(test: Test, args: &Load, session: &Session, peer: &Endpoint, report: &Report) {
    if report.is_json() {
        return;
    }
    let setting = |left: &str, value: &str| out!(" {left:<16}: {value}");
    rule();
    out!("                    {}", test.title);
    setting("Device", &args.device.device.to_string());
    setting("Number of qps", &args.qp.to_string());
    setting("Transport type", "IB");
    setting("Connection type", &args.path.mode.to_string());
    setting("TX depth", &args.tx_depth.to_string());
    setting("Mtu", &format!("{}[B]", args.path.mtu));
    setting("Link type", "Ethernet");
    setting("Virtual paths", &args.path.tuning.vp_count.to_string());
    setting("Completions", session.mode());
    setting("Data ex. method", "Ethernet");
    rule();
    for (qp, (number, psn)) in session.qps.iter().zip(&peer.qps) {
        out!(
            " local address: QPN {:#06x} GID {}",
            qp.qp_num(),
            session.opened.gid
        );
        out!(
            " remote address: QPN {number:#06x} PSN {psn:#08x} GID {}",
            session.peer(peer)
        );
    }
    rule();
    let unit = if args.report_gbits {
        "Gb/sec"
    } else {
        "MB/sec"
    };
    out!(
        " {:<10} {:<14} {:<18} {:<21} MsgRate[Mpps]",
        "#bytes",
        "#iterations",
        format!("BW peak[{unit}]"),
        format!("BW average[{unit}]"),
    );
}

fn row(args: &Load, line: &Line, report: &Report) {
    if report.is_json() {
        return;
    }
    let rate = |gbps: f64| {
        if args.report_gbits {
            gbps
        } else {
            gbps * 1e9 / 8.0 / f64::from(1 << 20)
        }
    };
    out!(
        " {:<10} {:<14} {:<18.2} {:<21.2} {:.6}",
        line.bytes,
        line.iterations,
        rate(line.peak_gbps),
        rate(line.goodput_gbps),
        line.msg_rate_mpps,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_come_from_the_cards_time() {
        // 100 messages of 8000 bytes, one each 10 ticks; the last ten twice as fast.
        let mut times: Vec<u64> = (1..=90).map(|i| 10 * i).collect();
        times.extend((1..=10).map(|i| 900 + 5 * i));
        let line = line(8000, &times, 950.0 * 64e-9);
        assert_eq!(line.iterations, 100);
        assert!(
            (line.goodput_gbps - 6.4e6 / (950.0 * 64.0)).abs() < 1e-6,
            "{}",
            line.goodput_gbps
        );
        assert!(
            (line.peak_gbps - 640_000.0 / (50.0 * 64.0)).abs() < 1e-6,
            "{}",
            line.peak_gbps
        );
        assert!((line.msg_rate_mpps - 100.0 / (950.0 * 0.064)).abs() < 1e-6);
    }

    #[test]
    fn few_and_simultaneous_completions_have_rates_too() {
        assert!(line(1, &[7], 7.0 * 64e-9).peak_gbps > 0.0);
        assert!(line(1, &[7, 7, 7], 7.0 * 64e-9).peak_gbps.is_finite());
        assert!(line(1, &[], 0.0).goodput_gbps.abs() < f64::EPSILON);
    }
}
