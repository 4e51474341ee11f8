//! Whole-system tests, benchmarks and generated documentation.

pub mod chaos;
pub mod dissector;
pub mod eye;
pub mod figures;
pub mod huge;
pub mod lose;
pub mod measure;
pub mod registers;
pub mod reorder;
pub mod rig;
pub mod served;
pub mod sync;
