//! The blocks of the NIC core, one file or folder each.
pub mod control;
pub mod cq_writer;
pub mod eq_writer;
pub mod layouts;
pub mod mr_table;
pub mod segment;

pub mod sq_fetch;
pub mod tx_complete;
pub mod types;
