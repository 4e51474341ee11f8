//! Arguments.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use mprdma_host::address::{Address, PciAddress};
use mprdma_host::exchange::DEFAULT_PORT;
use mprdma_host::memory::PageSize;
use mprdma_host::port::Mac;
use mprdma_host::verbs::RtsAttr;
use mprdma_host::verbs::{Mode, Vlan, MAX_RD_ATOMIC};
use mprdma_host::Error;

use crate::failure::EXIT_CODES;
use crate::tuning::{Change, Tuning};

/// Drives mprdma cards: multi-path RDMA over Ethernet.
#[derive(Debug, Parser)]
#[command(name = "mprdma", version, after_help = EXIT_CODES, propagate_version = true)]
pub struct Cli {
    /// Prints the result as one JSON document.
    #[arg(long, global = true)]
    pub json: bool,
    /// Says what it does (-vv: every register access). RUST_LOG overrides it.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Lists the cards that can be opened: sockets in directories, and PCI functions.
    Devices(Devices),
    /// Shows what a card is: image, sizes, addresses, who uses it.
    Info(OneDevice),
    /// Prints every counter of a card.
    Stats(Stats),
    /// Looks at, makes and removes queue pairs.
    Qp(Qp),
    /// Shows the least time between two interrupts of each MSI-X vector, or sets it.
    Moderation(Moderation),
    /// Gives a PCI function to vfio-pci, so that the other commands can open it. Needs root.
    Bind(Function),
    /// Takes a PCI function from vfio-pci and gives it back to the driver that had it. Needs root.
    Unbind(Function),
    /// Keeps a card open until it is interrupted, so that what `qp create` makes stays.
    Hold(Hold),
    /// Sends a file to a peer that runs `recv-file`.
    SendFile(SendFile),
    /// Receives a file from a peer that runs `send-file`.
    RecvFile(RecvFile),
    /// Measures.
    #[command(subcommand)]
    Bench(Bench),
}

#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Bandwidth of RDMA WRITE, with perftest's flags and table; times are the card's own, so that a simulated card
    /// shows what it would reach. Without HOST it is the server.
    #[command(name = "write-bw")]
    Write(Bandwidth),
    /// Bandwidth of RDMA READ: the client reads from the server; otherwise as write-bw. A queue pair has up to 16 READs
    /// open.
    #[command(name = "read-bw")]
    Read(Bandwidth),
    /// Rate of ATOMICs on 8 bytes of the server, each queue pair's its own; otherwise as read-bw.
    #[command(name = "atomic-bw")]
    Atomic(AtomicBandwidth),
}

#[derive(Debug, Args)]
pub struct Devices {
    /// Directories with the sockets of simulated cards; /tmp/mprdma-sim when none is given.
    pub directories: Vec<PathBuf>,
}

/// Which PCI function.
#[derive(Clone, Copy, Debug, Args)]
pub struct Function {
    /// PCI address: 0000:17:00.0.
    pub address: PciAddress,
}

/// Which card.
#[derive(Clone, Debug, Args)]
pub struct OneDevice {
    /// Device address: vfio-user:/path/nic0.sock or 0000:17:00.0.
    #[arg(short, long, value_name = "ADDRESS")]
    pub device: Address,
    /// Seconds after which a device that does not answer a request counts as gone.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub device_timeout: u64,
}

impl OneDevice {
    pub const fn timeout(&self) -> Duration {
        Duration::from_secs(self.device_timeout)
    }
}

#[derive(Debug, Args)]
pub struct Stats {
    #[command(flatten)]
    pub device: OneDevice,
    /// Leaves out counters that are zero.
    #[arg(long)]
    pub nonzero: bool,
}

#[derive(Debug, Args)]
pub struct Moderation {
    #[command(flatten)]
    pub device: OneDevice,
    /// One vector; without it all of them.
    #[arg(long, value_name = "N")]
    pub vector: Option<usize>,
    /// Sets the interval, in microseconds: 0 (off) to 4194.24. It holds until the process that has the card ends.
    #[arg(long, value_name = "US", value_parser = microseconds)]
    pub interval_us: Option<Duration>,
}

#[derive(Debug, Args)]
pub struct Qp {
    #[command(subcommand)]
    pub action: QpAction,
}

#[derive(Debug, Subcommand)]
pub enum QpAction {
    /// Lists the queue pairs of the process that has the card.
    List(OneDevice),
    /// Shows a queue pair: its parameters, the card's own state, what the card has counted.
    Show {
        #[command(flatten)]
        device: OneDevice,
        /// Queue pair number.
        #[arg(value_parser = clap::value_parser!(u32).range(0..=0xff_ffff))]
        qpn: u32,
    },
    /// Makes a queue pair. It lives in the process that has the card (see `hold`); when nobody has it, only while this
    /// command runs.
    Create {
        #[command(flatten)]
        device: OneDevice,
        #[command(flatten)]
        shape: Shape,
    },
    /// Changes parameters of a queue pair; what is not named stays. Timers and retry counts can only be changed before
    /// it sends.
    Modify {
        #[command(flatten)]
        device: OneDevice,
        /// Queue pair number.
        #[arg(value_parser = clap::value_parser!(u32).range(0..=0xff_ffff))]
        qpn: u32,
        #[command(flatten)]
        change: Change,
    },
    /// Counts per virtual path. A card traces one queue pair at a time, and its first 64 paths one by one.
    Trace {
        #[command(flatten)]
        device: OneDevice,
        /// Queue pair number.
        #[arg(value_parser = clap::value_parser!(u32).range(0..=0xff_ffff))]
        qpn: u32,
        /// Begins: from now on this queue pair's paths are counted, from zero. Without it the counts are printed.
        #[arg(long)]
        start: bool,
        /// Leaves out paths on which nothing happened.
        #[arg(long)]
        nonzero: bool,
    },
    /// Removes a queue pair that `qp create` made.
    Destroy {
        #[command(flatten)]
        device: OneDevice,
        /// Queue pair number.
        #[arg(value_parser = clap::value_parser!(u32).range(0..=0xff_ffff))]
        qpn: u32,
    },
}

/// What a queue pair is made of.
#[derive(Clone, Copy, Debug, Args, serde::Serialize, serde::Deserialize)]
pub struct Shape {
    /// Entries of the send queue.
    #[arg(short = 't', long, default_value_t = 128)]
    pub tx_depth: usize,
    /// Entries of the receive queue.
    #[arg(short = 'r', long, default_value_t = 128)]
    pub rx_depth: usize,
    /// Path MTU in bytes: 256, 512, 1024, 2048 or 4096.
    #[arg(short, long, default_value_t = 4096)]
    pub mtu: u32,
    /// Transport: MP or RC.
    #[arg(long, default_value = "MP", value_parser = mode)]
    pub mode: Mode,
    #[command(flatten)]
    pub tuning: Tuning,
}

/// Sizes of huge pages.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum HugePages {
    #[value(name = "2M")]
    Huge2M,
    #[value(name = "1G")]
    Huge1G,
}

impl HugePages {
    pub const fn page(self) -> PageSize {
        match self {
            Self::Huge2M => PageSize::Huge2M,
            Self::Huge1G => PageSize::Huge1G,
        }
    }
}

/// How this process uses the card.
#[derive(Clone, Copy, Debug, Args)]
pub struct Host {
    /// Uses huge pages for buffers, and for rings that fill at least half of one.
    #[arg(long, value_name = "SIZE", value_enum)]
    pub hugepages: Option<HugePages>,
    /// Least time between two interrupts of a vector, in microseconds: 0 (off) to 4194.24.
    #[arg(long, value_name = "US", value_parser = microseconds)]
    pub moderation_us: Option<Duration>,
}

impl Host {
    pub const fn pages(&self) -> PageSize {
        match self.hugepages {
            None => PageSize::Small,
            Some(size) => size.page(),
        }
    }
}

#[derive(Debug, Args)]
pub struct Hold {
    #[command(flatten)]
    pub device: OneDevice,
    #[command(flatten)]
    pub setup: Host,
    /// Gives the card up after so many seconds; without it, at SIGINT or SIGTERM.
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<u64>,
}

/// How the two sides find each other.
#[derive(Clone, Debug, Args)]
pub struct Exchange {
    /// TCP port on which the server side listens; 0 takes a free one and prints it.
    #[arg(short, long, default_value_t = DEFAULT_PORT)]
    pub port: u16,
    /// Address on which the server side listens.
    #[arg(long, default_value = "0.0.0.0")]
    pub bind: IpAddr,
    /// Seconds to wait for the peer to come.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub peer_timeout: u64,
    /// Seconds without progress (no completion, no word from the peer) after which a transfer is given up.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
}

impl Exchange {
    pub const fn peer_timeout(&self) -> Duration {
        Duration::from_secs(self.peer_timeout)
    }

    pub const fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}

/// Addresses and parameters of the connection. The addresses of a simulated card come from the file beside its socket.
#[derive(Clone, Debug, Args)]
pub struct Path {
    /// Path MTU in bytes, the same on both sides: 256, 512, 1024, 2048 or 4096.
    #[arg(short, long, default_value_t = 4096)]
    pub mtu: u32,
    /// Transport, the same on both sides: MP or RC.
    #[arg(long, default_value = "MP", value_parser = mode)]
    pub mode: Mode,
    /// Uses IPv6.
    #[arg(short = '6', long)]
    pub ipv6: bool,
    /// Our MAC address.
    #[arg(long)]
    pub mac: Option<Mac>,
    /// Our IP address.
    #[arg(long)]
    pub ip: Option<IpAddr>,
    /// MAC address to send to, when the peer is behind a router.
    #[arg(long)]
    pub dmac: Option<Mac>,
    /// VLAN id, 0 to 4094.
    #[arg(long)]
    pub vlan: Option<u16>,
    /// 802.1Q priority code point, 0 to 7.
    #[arg(long, requires = "vlan", default_value_t = 0)]
    pub vlan_priority: u8,
    /// IPv4 TTL or IPv6 hop limit.
    #[arg(long, default_value_t = 64)]
    pub hop_limit: u8,
    /// Traffic class: DSCP in bits 7..2.
    #[arg(long, default_value_t = 0)]
    pub traffic_class: u8,
    /// IPv6 flow label.
    #[arg(long, default_value_t = 0)]
    pub flow_label: u32,
    #[command(flatten)]
    pub tuning: Tuning,
}

impl Path {
    /// Attributes of a change to RTS, checked.
    pub fn rts(&self, sq_psn: u32) -> Result<RtsAttr, Error> {
        self.tuning.rts(sq_psn)
    }

    pub fn vlan(&self) -> Option<Vlan> {
        self.vlan.map(|id| Vlan {
            id,
            priority: self.vlan_priority,
        })
    }
}

#[derive(Debug, Args)]
pub struct SendFile {
    #[command(flatten)]
    pub device: OneDevice,
    /// File to send.
    pub file: PathBuf,
    /// Host on which `recv-file` runs.
    pub host: String,
    #[command(flatten)]
    pub exchange: Exchange,
    #[command(flatten)]
    pub path: Path,
    #[command(flatten)]
    pub setup: Host,
    /// Sleeps until the card interrupts instead of polling for completions.
    #[arg(short, long)]
    pub events: bool,
    /// Bytes of one WRITE, with an optional suffix K, M or G.
    #[arg(long, default_value = "256K", value_parser = bytes)]
    pub chunk: u64,
    /// Puts the data this many bytes behind the start of a page, to try alignments.
    #[arg(long, default_value_t = 0)]
    pub buffer_offset: usize,
}

#[derive(Debug, Args)]
pub struct RecvFile {
    #[command(flatten)]
    pub device: OneDevice,
    /// File to write; nothing is written over without --force.
    pub file: PathBuf,
    #[command(flatten)]
    pub exchange: Exchange,
    #[command(flatten)]
    pub path: Path,
    #[command(flatten)]
    pub setup: Host,
    /// Sleeps until the card interrupts instead of polling for completions.
    #[arg(short, long)]
    pub events: bool,
    /// Writes over an existing file.
    #[arg(short, long)]
    pub force: bool,
    /// Bytes of the registered buffer, with an optional suffix K, M or G. Longer files go through it in rounds.
    #[arg(long, default_value = "256M", value_parser = bytes)]
    pub buffer: u64,
    /// Puts the data this many bytes behind the start of a page, to try alignments.
    #[arg(long, default_value_t = 0)]
    pub buffer_offset: usize,
}

#[derive(Debug, Args)]
pub struct Bandwidth {
    #[command(flatten)]
    pub load: Load,
    /// Bytes of one message, with an optional suffix K, M or G.
    #[arg(short, long, default_value = "65536", value_parser = bytes)]
    pub size: u64,
    /// Runs every size from 2 bytes to 8 MiB.
    #[arg(short, long, conflicts_with_all = ["size", "duration"])]
    pub all: bool,
}

#[derive(Debug, Args)]
pub struct AtomicBandwidth {
    #[command(flatten)]
    pub load: Load,
    /// Operation.
    #[arg(
        short = 'A',
        long = "atomic_type",
        alias = "atomic-type",
        value_enum,
        default_value_t,
        ignore_case = true
    )]
    pub atomic_type: AtomicType,
    /// Posts no more than so many at a time per queue pair. The card has 16 open and keeps the others back. [default: the
    /// TX depth]
    #[arg(short, long, value_parser = clap::value_parser!(u16).range(1..=MAX_RD_ATOMIC as i64))]
    pub outs: Option<u16>,
}

/// An ATOMIC, as perftest writes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum AtomicType {
    /// Adds 1.
    #[default]
    #[value(name = "FETCH_AND_ADD")]
    FetchAndAdd,
    /// Swaps 0 for 0.
    #[value(name = "CMP_AND_SWAP")]
    CmpAndSwap,
}

/// What every bandwidth test takes.
#[derive(Debug, Args)]
pub struct Load {
    #[command(flatten)]
    pub device: OneDevice,
    /// Host on which the server runs; without it this is the server.
    pub host: Option<String>,
    #[command(flatten)]
    pub exchange: Exchange,
    #[command(flatten)]
    pub path: Path,
    #[command(flatten)]
    pub setup: Host,
    /// Sleeps until the card interrupts instead of polling for completions.
    #[arg(short, long)]
    pub events: bool,
    /// Messages of each queue pair.
    #[arg(short = 'n', long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub iters: u64,
    /// Runs for this long instead of --iters: seconds of the card's time, or with a suffix s, ms or us. A simulated card
    /// takes much longer than that.
    #[arg(short = 'D', long, value_parser = duration, conflicts_with = "iters")]
    pub duration: Option<Duration>,
    /// Queue pairs.
    #[arg(short, long, default_value_t = 1)]
    pub qp: usize,
    /// Messages that may be outstanding per queue pair.
    #[arg(short, long, default_value_t = 128)]
    pub tx_depth: usize,
    /// Flags every message FENCE: it waits for earlier READs and ATOMICs, of which write-bw has none.
    #[arg(long)]
    pub fence: bool,
    /// Flags every message SYNC: it takes effect after all before it.
    #[arg(long)]
    pub sync: bool,
    /// Reports Gb/s instead of MB/s.
    #[arg(long = "report_gbits", alias = "report-gbits")]
    pub report_gbits: bool,
}

fn mode(text: &str) -> Result<Mode, String> {
    match text.to_ascii_uppercase().as_str() {
        "MP" => Ok(Mode::Mp),
        "RC" => Ok(Mode::Rc),
        _ => Err("the transport is MP or RC".to_owned()),
    }
}

/// A number of bytes with an optional binary suffix.
fn bytes(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.to_ascii_uppercase().as_bytes() {
        [.., b'K'] => (&text[..text.len() - 1], 10),
        [.., b'M'] => (&text[..text.len() - 1], 20),
        [.., b'G'] => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number = digits
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(1 << shift));
    number.ok_or_else(|| "write a number of bytes, as 65536, 64K, 1M".to_owned())
}

/// A time with an optional suffix; seconds without.
fn duration(text: &str) -> Result<Duration, String> {
    let (digits, unit) = match text {
        _ if text.ends_with("us") => (&text[..text.len() - 2], 1e-6),
        _ if text.ends_with("ms") => (&text[..text.len() - 2], 1e-3),
        _ if text.ends_with('s') => (&text[..text.len() - 1], 1.0),
        _ => (text, 1.0),
    };
    let seconds = digits.parse::<f64>().ok().map(|number| number * unit);
    seconds
        .filter(|seconds| *seconds > 0.0 && *seconds <= 86_400.0)
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "write a time, as 10, 5ms, 500us".to_owned())
}

/// Microseconds, perhaps with a fraction.
fn microseconds(text: &str) -> Result<Duration, String> {
    let number = text.parse::<f64>().ok();
    number
        .filter(|number| (0.0..=1e9).contains(number))
        .map(|number| Duration::from_nanos((number * 1e3).ceil() as u64))
        .ok_or_else(|| "write microseconds, as 50 or 12.5; 0 is off".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn sizes_and_times() {
        assert_eq!(
            (bytes("1"), bytes("64K"), bytes("2m")),
            (Ok(1), Ok(65536), Ok(2 << 20))
        );
        for bad in ["", "K", "-1", "1.5", "99999999999999999999G", "é"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
        assert_eq!(microseconds("12.5"), Ok(Duration::from_nanos(12_500)));
        assert_eq!(microseconds("0"), Ok(Duration::ZERO));
        for bad in ["", "-1", "nan", "inf", "50us"] {
            assert!(microseconds(bad).is_err(), "{bad}");
        }
        assert_eq!(duration("500us"), Ok(Duration::from_micros(500)));
        assert_eq!(duration("10"), Ok(Duration::from_secs(10)));
        for bad in ["", "s", "0", "-1", "nan", "1e9"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
