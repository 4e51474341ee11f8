//! Telemetry: what each queue pair does, counted beside the engines. Nothing here is transport state: no rule of the
//! protocol reads it, and an image without it behaves the same on the wire.

pub mod owner;
pub mod receiver_stats;
pub mod sender_stats;
pub mod vp_trace;

pub use owner::Telemetry;
pub use receiver_stats::{ReceiverStats, ReceiverTally};
pub use sender_stats::{SenderStats, SenderTally};
pub use vp_trace::{VpTally, VpTrace};
