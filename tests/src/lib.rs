//! Whole-system tests, benchmarks and generated documentation.

pub mod chaos;
pub mod dissector;
pub mod eye;
pub mod failure;
pub mod figures;
pub mod huge;
pub mod in_turn;
pub mod lose;
pub mod measure;
pub mod not_ready;
pub mod open;
pub mod outcomes;
pub mod registers;
pub mod reorder;
pub mod rig;
pub mod served;
pub mod sync;
pub mod wrong_keys;
