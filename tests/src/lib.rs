//! Whole-system tests, benchmarks and generated documentation.

pub mod registers;
