//! Measurements of the transport in simulated networks: what `make figures` prints and `docs/measurements.md` keeps.
//!
//! Each runs on the golden model, which is fast, and on the RTL, which counts.

pub mod death;
pub mod ecn;
pub mod loss;
pub mod order;
pub mod run;
pub mod setting;
