//! What can be wrong with a scenario.

use std::path::PathBuf;

/// A scenario that cannot be used. The message names the file, the line, the key and the fix.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error("{}: cannot read the scenario", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The text is not TOML, or a table has a missing, unknown or mistyped key.
    #[error("{}:{line}:{column}: {message}\n  | {text}", file.display())]
    Syntax {
        /// The file.
        file: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What is wrong and what would be right.
        message: String,
        /// The line itself.
        text: String,
    },
    /// A value is out of range.
    #[error("{}:{line}: `{key}` = {value}: {fix}", file.display())]
    Value {
        /// The file.
        file: PathBuf,
        /// Line, from 1.
        line: usize,
        /// The key, with its table.
        key: String,
        /// The value found.
        value: String,
        /// What would be right.
        fix: String,
    },
}
