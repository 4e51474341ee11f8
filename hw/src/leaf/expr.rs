//! Short names for the syntax tree of generated leaves.

use rust_hdl_core::ast::{
    VerilogExpression, VerilogLiteral, VerilogOp, VerilogOpUnary, VerilogStatement,
};

pub fn signal(name: &str) -> VerilogExpression {
    VerilogExpression::Signal(name.into())
}

pub fn literal(value: impl Into<VerilogLiteral>) -> VerilogExpression {
    VerilogExpression::Literal(value.into())
}

pub fn binary(a: VerilogExpression, op: VerilogOp, b: VerilogExpression) -> VerilogExpression {
    VerilogExpression::Paren(Box::new(VerilogExpression::Binary(
        Box::new(a),
        op,
        Box::new(b),
    )))
}

/// XOR of all bits.
pub fn parity(a: VerilogExpression) -> VerilogExpression {
    VerilogExpression::Unary(VerilogOpUnary::Xor, Box::new(a))
}

pub fn slice(name: &str, offset: usize, width: usize) -> VerilogExpression {
    VerilogExpression::Slice(
        Box::new(signal(name)),
        width,
        Box::new(literal(offset as u32)),
    )
}

pub fn assign(name: &str, value: VerilogExpression) -> VerilogStatement {
    VerilogStatement::Assignment(signal(name), value)
}

pub fn assign_slice(
    name: &str,
    offset: usize,
    width: usize,
    value: VerilogExpression,
) -> VerilogStatement {
    VerilogStatement::SliceAssignment {
        base: signal(name),
        width,
        offset: literal(offset as u32),
        replacement: value,
    }
}
