//! Completion status codes, with the names of verbs.

/// Status of a CQE (the standard verbs set; IBA 11.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum WcStatus {
    /// Done.
    Success = 0,
    /// The local buffer is longer or shorter than the operation allows.
    LocalLengthError = 1,
    /// The work request makes no sense to this QP.
    LocalQpOperationError = 2,
    /// The local key, bounds or rights are wrong.
    LocalProtectionError = 4,
    /// Outstanding when the QP went to ERROR.
    WorkRequestFlushed = 5,
    /// The peer found the request malformed.
    RemoteInvalidRequest = 9,
    /// The peer refused the key, bounds or rights.
    RemoteAccessError = 10,
    /// The peer failed while serving the request.
    RemoteOperationError = 11,
    /// `retry_cnt` timeouts without progress.
    RetryExceeded = 12,
    /// `rnr_retry` RNR NAKs without progress.
    RnrRetryExceeded = 13,
    /// The card could not read the payload (DMA fault).
    FatalError = 19,
}

impl WcStatus {
    /// Every status.
    pub const ALL: &'static [Self] = &[
        Self::Success,
        Self::LocalLengthError,
        Self::LocalQpOperationError,
        Self::LocalProtectionError,
        Self::WorkRequestFlushed,
        Self::RemoteInvalidRequest,
        Self::RemoteAccessError,
        Self::RemoteOperationError,
        Self::RetryExceeded,
        Self::RnrRetryExceeded,
        Self::FatalError,
    ];

    /// The status that `code` stands for, if any.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.iter().copied().find(|s| *s as u8 == code)
    }
}

/// Why the packets of an event are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum SendCause {
    /// For the first time.
    #[default]
    New = 0,
    /// `hole_repair`: a SACK map shows them lost.
    Hole = 1,
    /// Recovery, on an ACK's clock.
    Recovery = 2,
    /// After a timeout, without a clock.
    Timeout = 3,
}
