//! The sender engine: protocol sections 4 and 5 in RTL, equal to `model::sender` bit for bit.

pub mod engine;
pub mod pipeline;
pub mod records;

pub use engine::Sender;
pub use pipeline::SenderPipeline;
