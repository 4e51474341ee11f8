//! What can go wrong between an application and its card.

use std::time::Duration;

use mprdma_spec::command::{Opcode, QpState, Status};
use mprdma_spec::csr::VERSION_ATOMIC;
use thiserror::Error;

use crate::address::AddressError;
use crate::device::DeviceError;
use crate::exchange::ExchangeError;
use crate::memory::MemoryError;

/// Any error of the library.
#[derive(Debug, Error)]
pub enum Error {
    /// The text is no device address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The device cannot be reached or did not answer.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Memory cannot be had or is accessed outside its bounds.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The peer cannot be reached or does not fit.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// The device is none of ours.
    #[error("{address}: not an mprdma card: the identification register reads {magic:#010x}, not {expected:#010x}")]
    NotOurs {
        /// Device address.
        address: String,
        /// What MAGIC reads.
        magic: u32,
        /// What it should read.
        expected: u32,
    },
    /// The card speaks another major version of the register interface.
    #[error(
        "{address}: the card speaks version {}.{}, the driver {}.{}: {}",
        .card >> 16, .card & 0xffff, .driver >> 16, .driver & 0xffff,
        if .card > .driver { "update the driver" } else { "load a newer image into the card" }
    )]
    WrongVersion {
        /// Device address.
        address: String,
        /// VERSION register.
        card: u32,
        /// The driver's version, coded the same way.
        driver: u32,
    },
    /// STATUS.ready did not come.
    #[error("{address}: the card did not become ready within {} s", .after.as_secs_f32())]
    NotReady {
        /// Device address.
        address: String,
        /// How long was waited.
        after: Duration,
    },
    /// A command did not finish.
    #[error("the card did not finish {command:?} within {} s", .after.as_secs_f32())]
    CommandTimeout {
        /// The command.
        command: Opcode,
        /// How long was waited.
        after: Duration,
    },
    /// The card refused a command.
    #[error("the card refused {command:?}: {}", describe(*.status))]
    Command {
        /// The command.
        command: Opcode,
        /// Its answer.
        status: Status,
    },
    /// The card answered a command with a code that the driver does not know.
    #[error("the card answered {command:?} with the unknown code {code}")]
    UnknownStatus {
        /// The command.
        command: Opcode,
        /// The code.
        code: u8,
    },
    /// A parameter is outside its range.
    #[error("{name} is {value}; it must lie between {min} and {max}: {doc}")]
    Parameter {
        /// Name, as on the command line.
        name: &'static str,
        /// The value given.
        value: u64,
        /// Least value.
        min: u64,
        /// Greatest value.
        max: u64,
        /// Meaning and unit.
        doc: &'static str,
    },
    /// A moderation interval is too long.
    #[error(
        "a moderation interval of {} us: it must lie between 0 and {} us",
        micros(*.interval), micros(*.max)
    )]
    ModerationInterval {
        /// The value given.
        interval: Duration,
        /// The longest.
        max: Duration,
    },
    /// There is no such vector to moderate.
    #[error("{}", no_vector(*.vector, *.vectors))]
    ModerationVector {
        /// The vector given; none for all.
        vector: Option<usize>,
        /// Vectors that can be moderated.
        vectors: usize,
    },
    /// The path MTU is none of IBA's.
    #[error("path MTU {bytes} is none of 256, 512, 1024, 2048, 4096 bytes")]
    Mtu {
        /// The value given.
        bytes: u32,
    },
    /// The card has no room for another object.
    #[error("the card has no free {what}: all {limit} are in use")]
    Exhausted {
        /// Kind of object.
        what: &'static str,
        /// How many exist.
        limit: usize,
    },
    /// A completion for a receive request that was never posted.
    #[error(
        "QP {qpn}: a message completed receive request {index}, which is not posted: its peer numbers messages wrongly; \
         the queue pair is in ERROR now"
    )]
    UnpostedReceive {
        /// Queue pair number.
        qpn: u32,
        /// Free-running index of the request.
        index: u16,
    },
    /// The operation is not allowed in the queue pair's state.
    #[error("QP {qpn}: {what} is not possible in state {state:?}")]
    WrongState {
        /// Queue pair number.
        qpn: u32,
        /// What was tried.
        what: &'static str,
        /// The state it is in.
        state: QpState,
    },
    /// This process has no such queue pair.
    #[error("there is no QP {qpn}")]
    NoQueuePair {
        /// Queue pair number.
        qpn: u32,
    },
    /// The card traces another queue pair, or none.
    #[error("QP {qpn} is not traced{}", .traced.map_or_else(String::new, |other| format!(": QP {other} is")))]
    NotTraced {
        /// The one that was asked for.
        qpn: u32,
        /// The one that is traced.
        traced: Option<u32>,
    },
    /// A ring has no room for a work request.
    #[error("QP {qpn}: the {queue} queue of {capacity} entries is full; {posted} requests of the list were posted")]
    QueueFull {
        /// Queue pair number.
        qpn: u32,
        /// `send` or `receive`.
        queue: &'static str,
        /// Entries of the ring.
        capacity: usize,
        /// Requests that went in before it was full.
        posted: usize,
    },
    /// A message is longer than the transport allows.
    #[error("a message of {bytes} bytes is longer than the {max} that one request may carry")]
    MessageTooLong {
        /// Bytes asked for.
        bytes: u64,
        /// Most that is allowed.
        max: u64,
    },
    /// An ATOMIC of another length than 8 bytes.
    #[error("an ATOMIC of {bytes} bytes: set length to 8, the only length that there is")]
    AtomicLength {
        /// Bytes asked for.
        bytes: u64,
    },
    /// An ATOMIC of 8 bytes that do not lie in one word.
    #[error("an ATOMIC at remote address {addr:#x}: use an address that is a multiple of 8")]
    AtomicAddress {
        /// The remote address.
        addr: u64,
    },
    /// An ATOMIC on a card whose image does not know it.
    #[error(
        "the card speaks version {}.{} and ATOMICs need {}.{}: load a newer image into the card",
        .card >> 16, .card & 0xffff, VERSION_ATOMIC >> 16, VERSION_ATOMIC & 0xffff
    )]
    NoAtomics {
        /// VERSION register.
        card: u32,
    },
    /// A region reaches beyond its memory.
    #[error("a region of {bytes} bytes at offset {offset} is not inside a memory of {size} bytes")]
    RegionBounds {
        /// Offset of the region.
        offset: usize,
        /// Bytes of the region.
        bytes: usize,
        /// Size of the memory.
        size: usize,
    },
    /// The object is still used by another.
    #[error("{what} is of another device than the object it is used with")]
    OtherDevice {
        /// Kind of object.
        what: &'static str,
    },
    /// The card dropped a completion because the ring was full.
    #[error("CQ {cqn} overflowed: a completion was dropped and the queue is dead; make it larger or poll it more often")]
    CqOverflow {
        /// Completion queue number.
        cqn: u32,
    },
    /// The card wrote an entry that cannot be.
    #[error("the card wrote a bad {queue} queue entry: {what}")]
    BadEntry {
        /// Kind of queue.
        queue: &'static str,
        /// What is wrong with it.
        what: String,
    },
    /// No completion, interrupt or event came in time.
    #[error("no {what} within {} s", .after.as_secs_f32())]
    Timeout {
        /// What was waited for.
        what: &'static str,
        /// How long was waited.
        after: Duration,
    },
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

fn no_vector(vector: Option<usize>, vectors: usize) -> String {
    match vector {
        Some(vector) if vectors > 0 => {
            format!(
                "no interrupt vector {vector}: it must lie between 0 and {}",
                vectors - 1
            )
        }
        _ => "this card cannot moderate interrupts: load a newer image into it".to_owned(),
    }
}

/// What a command's result code means to a user.
const fn describe(status: Status) -> &'static str {
    match status {
        Status::Ok => "no error",
        Status::BadOpcode => "this image does not know the command",
        Status::BadIndex => "an index is beyond the table, or the key is stale",
        Status::Exists => "the object exists already",
        Status::Missing => "there is no such object",
        Status::BadArgument => {
            "an argument is outside its range, or this image lacks the mode asked for"
        }
        Status::BadState => "the object is in the wrong state",
    }
}
