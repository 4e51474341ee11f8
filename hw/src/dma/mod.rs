//! Access to host memory: the engines between the core's clients and the PCIe edge.

mod board;
mod lane_mask;
pub mod read;
pub mod write;

pub use read::DmaRead;
pub use write::DmaWrite;
