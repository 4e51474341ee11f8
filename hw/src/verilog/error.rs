//! Why a block cannot be printed.

use thiserror::Error;

/// A construct the printer refuses, with the instance that holds it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{path}: {problem}")]
pub struct PrintError {
    /// Instance path from the top, joined by dots.
    pub path: String,
    pub problem: Problem,
}

/// What is wrong with the construct.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Problem {
    #[error("`{0}` is no signal, constant field, enum value or loop variable of this block (Rust consts, imported enum values and variable array indices do not translate)")]
    UnknownName(String),
    #[error("array index `{0}` is not made of integers and loop variables")]
    BadIndex(String),
    #[error("`{0}` has no bits")]
    NoBits(String),
    #[error("`{0}` is a SystemVerilog keyword, rename the field")]
    Keyword(String),
    #[error("`{first}` and `{second}` both become `{printed}` in Verilog")]
    NameCollision {
        first: String,
        second: String,
        printed: String,
    },
    #[error("two enums give `{0}` different values")]
    EnumCollision(String),
    #[error("operands of `{operator}` have {left} and {right} bits")]
    Width {
        operator: String,
        left: usize,
        right: usize,
    },
    #[error("`{target}` has {bits} bits and gets a value of {value_bits}")]
    AssignWidth {
        target: String,
        bits: usize,
        value_bits: usize,
    },
    #[error("literal {value} does not fit {bits} bits")]
    LiteralTooBig { value: String, bits: usize },
    #[error("a bare literal has no width here: {0}")]
    UnsizedLiteral(String),
    #[error("integer arithmetic out of range in {0}")]
    IntegerRange(String),
    #[error("bits {low}..{high} of `{name}` do not exist, it has {bits}")]
    SliceRange {
        name: String,
        low: usize,
        high: usize,
        bits: usize,
    },
    #[error("match arm `{0}` does not translate (write literals, `Type::Value`, `true`, `false` or `_`)")]
    MatchArm(String),
    #[error("match on `{0}` neither lists all values nor ends in `_`")]
    OpenMatch(String),
    #[error("two match arms have the value {0}")]
    DuplicateArm(String),
    #[error("`{0}` cannot be assigned in a kernel")]
    NotATarget(String),
    #[error("some path leaves `{0}` unassigned (latch)")]
    Latch(String),
    #[error("`{0}` is never assigned")]
    NeverAssigned(String),
    #[error("`{0}` is read before it is assigned on some path")]
    ReadBeforeWrite(String),
    #[error("input `{0}` of a child is read in the logic that drives it (combinational loop)")]
    ReadsOwnInput(String),
    #[error("clock input `{0}` needs one unconditional assignment from a clock")]
    Clock(String),
    #[error("clock `{0}` is used as data")]
    ClockAsData(String),
    #[error(
        "reset of register `{0}` is not connected: list it in `dff_setup!` or assign its `reset`"
    )]
    Reset(String),
    #[error("`dff_setup!` lists `{0}`, and the block has no one-bit input `reset`")]
    NoResetPort(String),
    #[error("unsupported: {0}")]
    Unsupported(String),
}
