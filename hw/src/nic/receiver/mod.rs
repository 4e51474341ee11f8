//! The receiver engine: owns the receiver half of every QP.

pub mod engine;
pub mod records;

pub use engine::ReceiverEngine;
