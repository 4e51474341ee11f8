//! Queue pairs, completion queues and memory regions, with the names and rules of verbs.
//!
//! A [`Context`] is an opened card. From it come protection domains ([`Pd`]), regions ([`Mr`]), completion queues ([`Cq`])
//! and queue pairs ([`Qp`]). Each object keeps what it depends on alive and takes itself off the card when it is
//! dropped, so that any drop order is safe. A process that is killed leaves nothing behind: the card is reset when its
//! device is closed.

mod attr;
mod context;
mod cq;
mod event;
mod image;
mod mr;
mod numbers;
mod parameters;
mod qp;
mod qp_shared;
mod telemetry;
mod work;

pub use attr::{
    AddressHandle, InitAttr, Mode, Mtu, QpInitAttr, QpStatus, RecvWr, RtrAttr, RtsAttr, SendFlags,
    SendWr, Vlan, Wc, MAX_RD_ATOMIC,
};
pub use context::{Context, ContextAttr};
pub use cq::Cq;
pub use event::AsyncEvent;
pub use mr::{Access, Mr, Pd};
pub use parameters::{MultiPath, Parameters, Timers};
pub use qp::Qp;
pub use qp_shared::QpSummary;
pub use telemetry::{QpStats, Trace, VpRow, VpStats, DISTANCES};
