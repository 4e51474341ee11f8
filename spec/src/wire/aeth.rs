//! ACK extended transport header (IBA 9.3.5).

use super::{header, Psn, WireError};

header! { "AETH", 4 bytes {
    SYNDROME syndrome set_syndrome: u8 = 0, 0, 8, "ACK or NAK, and why.";
    MSN msn set_msn: Psn = 1, 0, 24, "Messages completed by the responder.";
} }

/// Credit count that says that credits are not in use (IBA 9.7.7.2).
pub const CREDIT_INVALID: u8 = 31;

/// Why a request was refused (IBA 9.7.5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nak {
    /// A PSN is missing.
    PsnSequence = 0,
    /// The request breaks a rule.
    InvalidRequest = 1,
    /// Key, bounds or rights do not allow it.
    RemoteAccess = 2,
    /// The responder failed.
    RemoteOperation = 3,
    /// Reliable datagram only.
    InvalidRdRequest = 4,
}

/// The syndrome byte, decoded (IBA 9.3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syndrome {
    /// Done; 5-bit credit code.
    Ack(u8),
    /// Receiver not ready; 5-bit timer code (IBA 9.7.5.2.8).
    Rnr(u8),
    /// Refused.
    Nak(Nak),
}

impl Syndrome {
    /// An ACK without credits.
    pub const ACK: Self = Self::Ack(CREDIT_INVALID);

    /// Decodes the byte.
    ///
    /// # Errors
    /// [`WireError::Value`] for reserved codes.
    pub const fn from_byte(byte: u8) -> Result<Self, WireError> {
        let low = byte & 0x1f;
        Ok(match byte >> 5 {
            0 => Self::Ack(low),
            1 => Self::Rnr(low),
            3 if low == 0 => Self::Nak(Nak::PsnSequence),
            3 if low == 1 => Self::Nak(Nak::InvalidRequest),
            3 if low == 2 => Self::Nak(Nak::RemoteAccess),
            3 if low == 3 => Self::Nak(Nak::RemoteOperation),
            3 if low == 4 => Self::Nak(Nak::InvalidRdRequest),
            _ => {
                return Err(WireError::Value {
                    header: "AETH",
                    field: "syndrome",
                    value: byte as u64,
                })
            }
        })
    }

    /// The byte on the wire.
    #[must_use]
    pub const fn byte(self) -> u8 {
        match self {
            Self::Ack(credit) => credit & 0x1f,
            Self::Rnr(timer) => 1 << 5 | timer & 0x1f,
            Self::Nak(code) => 3 << 5 | code as u8,
        }
    }
}

/// The header's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// ACK or NAK, and why.
    pub syndrome: Syndrome,
    /// Messages completed by the responder.
    pub msn: Psn,
}

impl Repr {
    /// Reads the header at the start of `bytes`.
    ///
    /// # Errors
    /// When it is too short or its syndrome reserved.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let view = View::new(bytes)?;
        Ok(Self {
            syndrome: Syndrome::from_byte(view.syndrome())?,
            msn: view.msn(),
        })
    }

    /// Writes the header at the start of `bytes`.
    ///
    /// # Errors
    /// When `bytes` is shorter than the header.
    pub fn emit(&self, bytes: &mut [u8]) -> Result<(), WireError> {
        let mut view = View::new(bytes)?;
        view.set_syndrome(self.syndrome.byte());
        view.set_msn(self.msn);
        Ok(())
    }
}
