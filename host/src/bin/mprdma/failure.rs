//! Exit codes, and the failures that the library has no words for.

use mprdma_host::address::AddressError;
use mprdma_host::device::DeviceError;
use mprdma_host::exchange::ExchangeError;
use mprdma_host::port::PortError;
use mprdma_host::Error;
use mprdma_spec::status::WcStatus;
use thiserror::Error as ThisError;

/// What `--help` says of exit codes.
pub const EXIT_CODES: &str = "Exit codes: 0 done; 1 a file or the system failed; 2 wrong usage or a parameter out of range; \
3 the device cannot be reached, is in use, or refused a command; 4 the peer cannot be reached, does not fit, or went away; \
5 a transfer failed: a completion in error, none in time, or data that differ.";

/// Failures of the command line.
#[derive(Debug, ThisError)]
pub enum Failure {
    /// Arguments that make no sense together.
    #[error("{0}")]
    Usage(String),
    /// The device is held by a process that does not do what is asked.
    #[error("{0}")]
    Owner(String),
    /// A work request failed.
    #[error("QP {qpn}: {what} failed: {} (status {})", describe(*.status), *.status as u8)]
    Completion {
        /// Queue pair.
        qpn: u32,
        /// What was done.
        what: &'static str,
        /// Its status.
        status: WcStatus,
    },
    /// No completion came.
    #[error("no completion for {seconds} s; {outstanding} requests are outstanding (--timeout sets the limit)")]
    NoProgress {
        /// Limit in seconds.
        seconds: u64,
        /// Requests posted and not completed.
        outstanding: usize,
    },
    /// What arrived is not what was sent.
    #[error("the data differ: sent SHA-256 {sent}, received {received}")]
    DataDiffer {
        /// Digest at the sender.
        sent: String,
        /// Digest at the receiver.
        received: String,
    },
    /// The peer's messages make no sense.
    #[error("the peer answered out of turn: {0}")]
    OutOfTurn(String),
    /// The peer gave up.
    #[error("the peer gave up: {0}")]
    PeerFailed(String),
}

/// The error with its causes, each said once: many messages quote their cause themselves.
pub fn text(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |mut text, cause| {
        let cause = cause.to_string();
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        text
    })
}

/// The exit code for `error`.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    for cause in error.chain() {
        if let Some(failure) = cause.downcast_ref::<Failure>() {
            return match failure {
                Failure::Usage(_) => 2,
                Failure::Owner(_) => 3,
                Failure::OutOfTurn(_) | Failure::PeerFailed(_) => 4,
                Failure::Completion { .. }
                | Failure::NoProgress { .. }
                | Failure::DataDiffer { .. } => 5,
            };
        }
        if let Some(error) = cause.downcast_ref::<Error>() {
            return library_code(error);
        }
        if cause.is::<AddressError>() {
            return 2;
        }
        if cause.is::<DeviceError>() || cause.is::<PortError>() {
            return 3;
        }
        if cause.is::<ExchangeError>() {
            return 4;
        }
    }
    1
}

const fn library_code(error: &Error) -> u8 {
    match error {
        Error::Address(_)
        | Error::Parameter { .. }
        | Error::ModerationInterval { .. }
        | Error::Mtu { .. }
        | Error::MessageTooLong { .. }
        | Error::AtomicLength { .. }
        | Error::AtomicAddress { .. } => 2,
        Error::ModerationVector { vectors, .. } if *vectors > 0 => 2,
        Error::Memory(_) => 1,
        Error::Exchange(_) => 4,
        Error::Timeout { .. } | Error::CqOverflow { .. } | Error::BadEntry { .. } => 5,
        _ => 3,
    }
}

/// What a completion status means to a user.
const fn describe(status: WcStatus) -> &'static str {
    match status {
        WcStatus::Success => "success",
        WcStatus::LocalLengthError => "the local buffer has the wrong length",
        WcStatus::LocalQpOperationError => "the request makes no sense to this queue pair",
        WcStatus::LocalProtectionError => "the local key, bounds or rights are wrong",
        WcStatus::WorkRequestFlushed => "the queue pair went to ERROR before it was done",
        WcStatus::RemoteInvalidRequest => "the peer found the request malformed",
        WcStatus::RemoteAccessError => "the peer refused the key, bounds or rights",
        WcStatus::RemoteOperationError => "the peer failed while serving it",
        WcStatus::RetryExceeded => {
            "the peer's card does not answer (retry_cnt timeouts without progress)"
        }
        WcStatus::RnrRetryExceeded => "the peer has no receive request ready",
        WcStatus::FatalError => "the card could not read the data (DMA fault)",
    }
}
