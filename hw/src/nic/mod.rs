//! The blocks of the NIC core, one file or folder each.
pub mod types;
