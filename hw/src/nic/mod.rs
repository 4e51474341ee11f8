//! The blocks of the NIC core, one file or folder each.
pub mod control;
pub mod core;
pub mod cq_writer;
pub mod eq_writer;
pub mod headers;
pub mod layouts;
pub mod mr_table;
pub mod place;
pub mod receiver;
pub mod rx_classify;
pub mod rx_parse;
pub mod segment;
pub mod sender;
pub mod sq_fetch;
pub mod tx_build;
pub mod tx_complete;
pub mod types;
