//! Lowers the statements of a kernel: names resolved, loops unrolled, every expression with its width.

use super::collect::{enum_values, type_bits, Module};
use super::error::{PrintError, Problem};
use super::names::{printed, Scope};
use super::value::Value;
use rust_hdl_core::ast::*;
use rust_hdl_core::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Index into [`Kernel::symbols`].
pub(crate) type SymbolId = usize;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SymbolKind {
    Input,
    Output,
    Local,
    Constant(Value),
    ChildInput,
    ChildOutput,
}

/// A name the kernel can use.
#[derive(Clone, Debug)]
pub(crate) struct Symbol {
    /// rust-hdl name, with `$`.
    pub(crate) key: String,
    /// Verilog name.
    pub(crate) text: String,
    pub(crate) kind: SymbolKind,
    pub(crate) bits: usize,
    pub(crate) ty: TypeDescriptor,
    /// Child index and port name for child ports.
    pub(crate) child: Option<(usize, String)>,
}

impl Symbol {
    pub(crate) fn is_clock(&self) -> bool {
        self.ty.name == "clock"
    }

    /// Assigned by the kernel.
    pub(crate) fn is_target(&self) -> bool {
        matches!(
            self.kind,
            SymbolKind::Output | SymbolKind::Local | SymbolKind::ChildInput
        )
    }

    /// Reads see the latest assignment in program order (the simulator reads `next`).
    pub(crate) fn is_immediate(&self) -> bool {
        matches!(self.kind, SymbolKind::Output | SymbolKind::Local)
    }
}

/// An expression of known width. Its value never depends on the context it is printed in.
#[derive(Clone, Debug)]
pub(crate) struct Expr {
    pub(crate) node: Node,
    pub(crate) bits: usize,
    pub(crate) signed: bool,
    /// Set for enum and struct values.
    ty: Option<Box<TypeDescriptor>>,
}

#[derive(Clone, Debug)]
pub(crate) enum Node {
    Value(Value),
    /// An enum value by its printed name.
    Enum(String, usize),
    Signal(SymbolId),
    /// Constant slice of a signal from this bit up.
    Part(SymbolId, usize),
    /// `bits` bits of the base from a position up, zeros past the top.
    Select(Box<Expr>, Amount),
    Not(Box<Expr>),
    Neg(Box<Expr>),
    Reduce(char, Box<Expr>),
    Binary(Op, Box<Expr>, Box<Expr>),
    Shift {
        left: bool,
        base: Box<Expr>,
        amount: Amount,
    },
    ZeroExtend(Box<Expr>),
    SignExtend(Box<Expr>),
    ReplaceBit {
        base: Box<Expr>,
        index: Amount,
        value: Box<Expr>,
    },
}

/// A bit position or shift distance.
#[derive(Clone, Debug)]
pub(crate) enum Amount {
    Fixed(usize),
    Variable(Box<Expr>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Add,
    Sub,
    Mul,
    And,
    Or,
    Xor,
    LogicalAnd,
    LogicalOr,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl Op {
    pub(crate) fn symbol(self) -> &'static str {
        match self {
            Op::Add => "+",
            Op::Sub => "-",
            Op::Mul => "*",
            Op::And => "&",
            Op::Or => "|",
            Op::Xor => "^",
            Op::LogicalAnd => "&&",
            Op::LogicalOr => "||",
            Op::Eq => "==",
            Op::Ne => "!=",
            Op::Lt => "<",
            Op::Le => "<=",
            Op::Gt => ">",
            Op::Ge => ">=",
        }
    }
}

impl Expr {
    pub(crate) fn new(node: Node, bits: usize) -> Self {
        Self {
            node,
            bits,
            signed: false,
            ty: None,
        }
    }

    fn with_sign(mut self, signed: bool) -> Self {
        self.signed = signed;
        self
    }

    fn with_type(mut self, ty: &TypeDescriptor) -> Self {
        self.signed = matches!(ty.kind, TypeKind::Signed(_));
        if matches!(ty.kind, TypeKind::Enum(_) | TypeKind::Composite(_)) {
            self.ty = Some(Box::new(ty.clone()));
        }
        self
    }

    fn constant(&self) -> Option<&Value> {
        match &self.node {
            Node::Value(value) => Some(value),
            _ => None,
        }
    }

    /// Replaces the signals read.
    pub(crate) fn rename(&mut self, rename: &mut dyn FnMut(SymbolId) -> SymbolId) {
        match &mut self.node {
            Node::Value(_) | Node::Enum(..) => {}
            Node::Signal(id) | Node::Part(id, _) => *id = rename(*id),
            Node::Not(base)
            | Node::Neg(base)
            | Node::Reduce(_, base)
            | Node::ZeroExtend(base)
            | Node::SignExtend(base) => base.rename(rename),
            Node::Select(base, amount) | Node::Shift { base, amount, .. } => {
                base.rename(rename);
                amount.rename(rename);
            }
            Node::Binary(_, left, right) => {
                left.rename(rename);
                right.rename(rename);
            }
            Node::ReplaceBit { base, index, value } => {
                base.rename(rename);
                index.rename(rename);
                value.rename(rename);
            }
        }
    }

    /// Calls `visit(symbol, low, bits)` for each signal read.
    pub(crate) fn reads(&self, visit: &mut dyn FnMut(SymbolId, usize, usize)) {
        match &self.node {
            Node::Value(_) | Node::Enum(..) => {}
            Node::Signal(id) => visit(*id, 0, self.bits),
            Node::Part(id, low) => visit(*id, *low, self.bits),
            Node::Select(base, position) => {
                base.reads(visit);
                position.reads(visit);
            }
            Node::Not(base)
            | Node::Neg(base)
            | Node::Reduce(_, base)
            | Node::ZeroExtend(base)
            | Node::SignExtend(base) => base.reads(visit),
            Node::Binary(_, left, right) => {
                left.reads(visit);
                right.reads(visit);
            }
            Node::Shift { base, amount, .. } => {
                base.reads(visit);
                amount.reads(visit);
            }
            Node::ReplaceBit { base, index, value } => {
                base.reads(visit);
                index.reads(visit);
                value.reads(visit);
            }
        }
    }
}

impl Amount {
    fn rename(&mut self, rename: &mut dyn FnMut(SymbolId) -> SymbolId) {
        if let Amount::Variable(expr) = self {
            expr.rename(rename);
        }
    }

    fn reads(&self, visit: &mut dyn FnMut(SymbolId, usize, usize)) {
        if let Amount::Variable(expr) = self {
            expr.reads(visit);
        }
    }
}

/// A lowered statement. `at` numbers statements in program order.
#[derive(Clone, Debug)]
pub(crate) struct Stmt {
    pub(crate) at: usize,
    /// Comment lines just before the statement.
    pub(crate) comments: Vec<String>,
    pub(crate) kind: StmtKind,
}

#[derive(Clone, Debug)]
pub(crate) enum StmtKind {
    Assign {
        target: SymbolId,
        low: usize,
        bits: usize,
        value: Expr,
    },
    If {
        test: Expr,
        then: Vec<Stmt>,
        otherwise: Vec<Stmt>,
    },
    Case {
        test: Expr,
        /// The label `None` is the default; there is always one.
        arms: Vec<(Option<Expr>, Vec<Stmt>)>,
    },
}

/// A kernel ready to be checked and printed.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) symbols: Vec<Symbol>,
    pub(crate) body: Vec<Stmt>,
    /// Enum values in use: printed name to (value, bits).
    pub(crate) enums: BTreeMap<String, (usize, usize)>,
    /// Symbols that `dff_setup!` covers: the reset of these registers is the block's `reset`.
    pub(crate) setup_registers: BTreeSet<usize>,
    /// Targets with at least one assignment.
    pub(crate) assigned: BTreeSet<SymbolId>,
}

/// Lowers the kernel of `module`. `scope` has the names of the module claimed so far.
pub(crate) fn lower(
    module: &Module,
    code: &VerilogBlock,
    scope: &mut Scope,
) -> Result<Kernel, PrintError> {
    let wrap = |problem| module.error(problem);
    let mut symbols = vec![];
    for signal in &module.signals {
        let kind = match signal.kind {
            AtomKind::InputParameter => SymbolKind::Input,
            AtomKind::OutputParameter | AtomKind::OutputPassthrough => SymbolKind::Output,
            AtomKind::LocalSignal => SymbolKind::Local,
            AtomKind::Constant => match &signal.value {
                Some(value) => SymbolKind::Constant(value.clone()),
                None => {
                    return Err(wrap(Problem::LiteralTooBig {
                        value: signal.name.clone(),
                        bits: signal.bits,
                    }))
                }
            },
            _ => {
                return Err(wrap(Problem::Unsupported(format!(
                    "signal kind of `{}`",
                    signal.name
                ))))
            }
        };
        symbols.push(Symbol {
            key: signal.name.clone(),
            text: scope.claim(&signal.name).map_err(wrap)?,
            kind,
            bits: signal.bits,
            ty: signal.ty.clone(),
            child: None,
        });
    }
    for (index, child) in module.children.iter().enumerate() {
        if child.register_init().is_none() {
            scope.claim(&child.instance).map_err(wrap)?;
        }
        for port in child.ports() {
            let key = format!("{}${}", child.instance, port.name);
            let kind = match port.kind {
                AtomKind::InputParameter => SymbolKind::ChildInput,
                _ => SymbolKind::ChildOutput,
            };
            // The clock and the reset of a register are no nets of their own.
            let internal = child.register_init().is_some() && port.name != "d" && port.name != "q";
            symbols.push(Symbol {
                text: if internal {
                    printed(&key)
                } else {
                    scope.claim(&key).map_err(wrap)?
                },
                key,
                kind,
                bits: port.bits,
                ty: port.ty.clone(),
                child: Some((index, port.name.clone())),
            });
        }
    }
    let mut enums = BTreeMap::new();
    for symbol in &symbols {
        enum_values(&symbol.ty, &mut enums).map_err(wrap)?;
    }
    let by_key = symbols
        .iter()
        .enumerate()
        .map(|(id, symbol)| (symbol.key.clone(), id))
        .collect();
    let mut lowering = Lowering {
        module,
        symbols,
        by_key,
        known_enums: enums,
        used_enums: BTreeMap::new(),
        loops: vec![],
        next_at: 0,
        comments: vec![],
        setup_registers: BTreeSet::new(),
        assigned: BTreeSet::new(),
    };
    let body = lowering.block(code).map_err(wrap)?;
    for name in lowering.used_enums.keys() {
        scope.claim(name).map_err(wrap)?;
    }
    let enums = lowering
        .used_enums
        .iter()
        .map(|(name, value)| (printed(name), *value))
        .collect();
    Ok(Kernel {
        symbols: lowering.symbols,
        body,
        enums,
        setup_registers: lowering.setup_registers,
        assigned: lowering.assigned,
    })
}

/// A value of an expression: a bare integer takes its width from the other side.
enum Operand {
    Int(i128),
    Sized(Expr),
}

struct Lowering<'a> {
    module: &'a Module,
    symbols: Vec<Symbol>,
    by_key: HashMap<String, SymbolId>,
    known_enums: BTreeMap<String, (usize, usize)>,
    used_enums: BTreeMap<String, (usize, usize)>,
    loops: Vec<(String, i128)>,
    next_at: usize,
    comments: Vec<String>,
    setup_registers: BTreeSet<usize>,
    assigned: BTreeSet<SymbolId>,
}

type Lowered<T> = Result<T, Problem>;

impl Lowering<'_> {
    fn block(&mut self, block: &VerilogBlock) -> Lowered<Vec<Stmt>> {
        let mut body = vec![];
        for statement in block {
            self.statement(statement, &mut body)?;
        }
        Ok(body)
    }

    fn push(&mut self, body: &mut Vec<Stmt>, at: usize, comments: Vec<String>, kind: StmtKind) {
        body.push(Stmt { at, comments, kind });
    }

    fn enter(&mut self) -> (usize, Vec<String>) {
        self.next_at += 1;
        (self.next_at, std::mem::take(&mut self.comments))
    }

    fn statement(&mut self, statement: &VerilogStatement, body: &mut Vec<Stmt>) -> Lowered<()> {
        match statement {
            VerilogStatement::Comment(text) => {
                // The kernel macro passes the invocation's source text.
                let text = text
                    .trim_start_matches("comment")
                    .trim_start_matches(|c: char| c.is_whitespace() || "!(\"".contains(c));
                self.comments
                    .extend(text.lines().map(|line| line.trim().to_string()));
            }
            VerilogStatement::Macro(block) => {
                self.note_setup(block)?;
                for statement in block {
                    self.statement(statement, body)?;
                }
            }
            VerilogStatement::Loop(l) => {
                for value in l.from.as_usize()..l.to.as_usize() {
                    self.loops.push((l.index.clone(), value as i128));
                    for statement in &l.block {
                        self.statement(statement, body)?;
                    }
                    self.loops.pop();
                }
            }
            VerilogStatement::Assignment(target, value) => {
                let (target, low, bits) = self.target(target)?;
                let (at, comments) = self.enter();
                let value = self.expr(value)?;
                let value = self.fit(value, bits, target, true)?;
                self.assign(body, at, comments, target, low, bits, value)?;
            }
            VerilogStatement::SliceAssignment {
                base,
                width,
                offset,
                replacement,
            } => {
                let (target, base_low, base_bits) = self.target(base)?;
                let offset = match self.expr(offset)? {
                    Operand::Int(offset) => offset as usize,
                    Operand::Sized(_) => {
                        return Err(Problem::Unsupported(format!(
                            "assignment to a variable slice of `{}`",
                            self.symbols[target].key
                        )))
                    }
                };
                if offset + width > base_bits {
                    return Err(Problem::SliceRange {
                        name: self.symbols[target].key.clone(),
                        low: offset,
                        high: offset + width,
                        bits: base_bits,
                    });
                }
                let (at, comments) = self.enter();
                let value = self.expr(replacement)?;
                let value = self.fit(value, *width, target, true)?;
                self.assign(body, at, comments, target, base_low + offset, *width, value)?;
            }
            VerilogStatement::If(conditional) => self.conditional(conditional, body)?,
            VerilogStatement::Match(m) => self.case(m, body)?,
            VerilogStatement::Link(links) => {
                for link in links {
                    let (details, forward) = match link {
                        VerilogLink::Forward(details) => (details, true),
                        VerilogLink::Backward(details) => (details, false),
                        VerilogLink::Bidirectional(details) => {
                            return Err(Problem::Unsupported(format!(
                                "InOut link of `{}`",
                                details.owner_name
                            )))
                        }
                    };
                    let name = |owner: &str| match details.my_name.trim_start_matches('.') {
                        "" => owner.to_string(),
                        port => format!("{owner}${port}"),
                    };
                    let (owner, other) = (name(&details.owner_name), name(&details.other_name));
                    let (target, source) = if forward {
                        (other, owner)
                    } else {
                        (owner, other)
                    };
                    let (target, low, bits) = self.target(&VerilogExpression::Signal(target))?;
                    let (at, comments) = self.enter();
                    let value = self.expr(&VerilogExpression::Signal(source))?;
                    let value = self.fit(value, bits, target, false)?;
                    self.assign(body, at, comments, target, low, bits, value)?;
                }
            }
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments)]
    fn assign(
        &mut self,
        body: &mut Vec<Stmt>,
        at: usize,
        comments: Vec<String>,
        target: SymbolId,
        low: usize,
        bits: usize,
        value: Expr,
    ) -> Lowered<()> {
        match self.clock_in(&value) {
            Some(id) if !self.symbols[target].is_clock() => {
                return Err(Problem::ClockAsData(self.symbols[id].key.clone()))
            }
            Some(_) if !matches!(value.node, Node::Signal(_)) => {
                return Err(Problem::Clock(self.symbols[target].key.clone()))
            }
            _ => {}
        }
        self.assigned.insert(target);
        self.push(
            body,
            at,
            comments,
            StmtKind::Assign {
                target,
                low,
                bits,
                value,
            },
        );
        Ok(())
    }

    fn clock_in(&self, expr: &Expr) -> Option<SymbolId> {
        let mut clock = None;
        expr.reads(&mut |id, _, _| {
            if self.symbols[id].is_clock() {
                clock = Some(id);
            }
        });
        clock
    }

    fn check_test(&self, test: &Expr) -> Lowered<()> {
        match self.clock_in(test) {
            Some(id) => Err(Problem::ClockAsData(self.symbols[id].key.clone())),
            None => Ok(()),
        }
    }

    /// `dff_setup!` arrives as a macro that assigns clocks and `d = q`; `clock!` assigns clocks only.
    fn note_setup(&mut self, block: &VerilogBlock) -> Lowered<()> {
        for statement in block {
            let VerilogStatement::Assignment(VerilogExpression::Signal(name), _) = statement else {
                continue;
            };
            let (symbol, _, _) = self.target(&VerilogExpression::Signal(name.clone()))?;
            if let Some((child, port)) = &self.symbols[symbol].child {
                if port == "d" && self.module.children[*child].register_init().is_some() {
                    self.setup_registers.insert(*child);
                }
            }
        }
        Ok(())
    }

    fn conditional(&mut self, c: &VerilogConditional, body: &mut Vec<Stmt>) -> Lowered<()> {
        let (at, comments) = self.enter();
        let test = self.expr(&c.test)?;
        let test = self.sized(test, 1)?;
        self.check_test(&test)?;
        let fold = test.constant().map(|value| value.0[0]);
        let then = if fold != Some(false) {
            self.block(&c.then)?
        } else {
            vec![]
        };
        let mut otherwise = vec![];
        if fold != Some(true) {
            match &c.otherwise {
                VerilogBlockOrConditional::None => {}
                VerilogBlockOrConditional::Block(block) => otherwise = self.block(block)?,
                VerilogBlockOrConditional::Conditional(statement) => {
                    self.statement(statement, &mut otherwise)?
                }
            }
        }
        match fold {
            Some(true) => body.extend(then),
            Some(false) => body.extend(otherwise),
            None => self.push(
                body,
                at,
                comments,
                StmtKind::If {
                    test,
                    then,
                    otherwise,
                },
            ),
        }
        Ok(())
    }

    fn case(&mut self, m: &VerilogMatch, body: &mut Vec<Stmt>) -> Lowered<()> {
        let (at, comments) = self.enter();
        let test = match self.expr(&m.test)? {
            Operand::Sized(test) => test,
            Operand::Int(value) => {
                // A match on a loop variable picks its arm here.
                for case in &m.cases {
                    let arm = &case.condition;
                    if arm == "default" || integer(arm) == Some(value) {
                        for statement in &case.block {
                            self.statement(statement, body)?;
                        }
                        return Ok(());
                    }
                }
                return Err(Problem::OpenMatch(value.to_string()));
            }
        };
        self.check_test(&test)?;
        let mut arms: Vec<(Option<Expr>, Vec<Stmt>)> = vec![];
        let mut seen = BTreeSet::new();
        let mut has_default = false;
        for case in &m.cases {
            let label = self.label(&case.condition, &test)?;
            if let Some(label) = &label {
                let value = match &label.node {
                    Node::Value(value) => value.to_u128(),
                    Node::Enum(_, value) => Some(*value as u128),
                    _ => None,
                };
                if let Some(value) = value {
                    if !seen.insert(value) {
                        return Err(Problem::DuplicateArm(case.condition.clone()));
                    }
                }
            }
            let block = self.block(&case.block)?;
            has_default = label.is_none();
            arms.push((label, block));
            if has_default {
                break; // later arms are unreachable in Rust too
            }
        }
        if !has_default {
            let values = match &test.ty {
                Some(ty) => match &ty.kind {
                    TypeKind::Enum(names) => Some(names.len()),
                    _ => None,
                },
                None if test.bits < 32 => Some(1 << test.bits),
                None => None,
            };
            if values != Some(seen.len()) {
                return Err(Problem::OpenMatch(format!("{} bits", test.bits)));
            }
            // All values are listed; the last arm also takes the encodings that mean nothing.
            if let Some(last) = arms.last_mut() {
                last.0 = None;
            }
        }
        self.push(body, at, comments, StmtKind::Case { test, arms });
        Ok(())
    }

    fn label(&mut self, arm: &str, test: &Expr) -> Lowered<Option<Expr>> {
        if arm == "default" {
            return Ok(None);
        }
        let value = match arm {
            "true" => Some(1),
            "false" => Some(0),
            _ => integer(arm),
        };
        if let Some(value) = value {
            return self.int(value, test.bits).map(Some);
        }
        match self.enum_value(arm) {
            Some(label) if label.bits == test.bits && test.ty.is_some() => Ok(Some(label)),
            _ => Err(Problem::MatchArm(arm.to_string())),
        }
    }

    fn enum_value(&mut self, name: &str) -> Option<Expr> {
        let name = name.replace("::", "$");
        let parts: Vec<&str> = name.split('$').collect();
        let name = parts[parts.len().saturating_sub(2)..].join("$");
        let (value, bits) = *self.known_enums.get(&name)?;
        self.used_enums.insert(name.clone(), (value, bits));
        Some(Expr::new(Node::Enum(printed(&name), value), bits))
    }

    /// Splits a name of the AST into its parts: `r[i+1]$q$next` to `r`, `1`, `q`, `next`.
    fn parts(&self, name: &str) -> Lowered<Vec<String>> {
        let name = name
            .trim_start_matches('.')
            .replace("::", "$")
            .replace('.', "$");
        let mut parts = vec![];
        let mut part = String::new();
        let mut rest = name.as_str();
        while let Some(c) = rest.chars().next() {
            match c {
                '$' => {
                    parts.push(std::mem::take(&mut part));
                    rest = &rest[1..];
                }
                '[' => {
                    parts.push(std::mem::take(&mut part));
                    let mut depth = 0;
                    let end = rest
                        .char_indices()
                        .find(|&(_, c)| {
                            depth += i32::from(c == '[') - i32::from(c == ']');
                            depth == 0
                        })
                        .map(|(i, _)| i)
                        .ok_or_else(|| Problem::UnknownName(name.clone()))?;
                    let index = &rest[1..end];
                    let value = IndexParser::evaluate(index, &self.loops)
                        .ok_or_else(|| Problem::BadIndex(index.to_string()))?;
                    part = value.to_string();
                    rest = &rest[end + 1..];
                }
                _ => {
                    part.push(c);
                    rest = &rest[c.len_utf8()..];
                }
            }
        }
        parts.push(part);
        parts.retain(|part| !part.is_empty());
        Ok(parts)
    }

    /// Finds the signal a name starts with; what is left over names struct fields.
    fn resolve(&self, name: &str) -> Lowered<Option<(SymbolId, usize, TypeDescriptor)>> {
        let parts = self.parts(name)?;
        for length in (1..=parts.len()).rev() {
            let Some(&id) = self.by_key.get(&parts[..length].join("$")) else {
                continue;
            };
            let mut ty = self.symbols[id].ty.clone();
            let mut low = 0;
            for part in &parts[length..] {
                if part == "val()" || (part == "next" && !has_field(&ty, "next")) {
                    continue;
                }
                let Some((offset, field)) = field_by_name(&ty, part) else {
                    return Err(Problem::UnknownName(name.to_string()));
                };
                low += offset;
                ty = field;
            }
            return Ok(Some((id, low, ty)));
        }
        Ok(None)
    }

    fn target(&self, target: &VerilogExpression) -> Lowered<(SymbolId, usize, usize)> {
        match target {
            VerilogExpression::Signal(name) => {
                let (id, low, ty) = self
                    .resolve(name)?
                    .ok_or_else(|| Problem::UnknownName(name.clone()))?;
                if !self.symbols[id].is_target() {
                    return Err(Problem::NotATarget(self.symbols[id].key.clone()));
                }
                Ok((id, low, type_bits(&ty)))
            }
            VerilogExpression::Paren(inner) => self.target(inner),
            other => Err(Problem::Unsupported(format!("assignment to {other:?}"))),
        }
    }

    fn int(&self, value: i128, bits: usize) -> Lowered<Expr> {
        let too_big = || Problem::LiteralTooBig {
            value: value.to_string(),
            bits,
        };
        let value = if value >= 0 {
            Value::from_u128(value as u128, bits).ok_or_else(too_big)?
        } else {
            if bits < 128 && value < -(1_i128 << (bits - 1)) {
                return Err(too_big());
            }
            let low = Value((0..bits).map(|i| value >> i.min(127) & 1 == 1).collect());
            return Ok(Expr::new(Node::Value(low), bits).with_sign(true));
        };
        Ok(Expr::new(Node::Value(value), bits))
    }

    fn sized(&self, operand: Operand, bits: usize) -> Lowered<Expr> {
        match operand {
            Operand::Int(value) => self.int(value, bits),
            Operand::Sized(expr) if expr.bits == bits => Ok(expr),
            Operand::Sized(expr) => Err(Problem::Width {
                operator: "condition".into(),
                left: bits,
                right: expr.bits,
            }),
        }
    }

    /// The value for an assignment to `bits` bits of `target`.
    fn fit(
        &self,
        operand: Operand,
        bits: usize,
        target: SymbolId,
        signed_cast: bool,
    ) -> Lowered<Expr> {
        match operand {
            Operand::Int(value) => self.int(value, bits),
            Operand::Sized(expr) if expr.bits == bits => Ok(expr),
            // `signed_bit_cast::<M, N>` leaves no width in the AST; only the target tells it.
            Operand::Sized(expr) if expr.signed && signed_cast => Ok(if bits > expr.bits {
                Expr::new(Node::SignExtend(Box::new(expr)), bits).with_sign(true)
            } else {
                self.select(expr, Amount::Fixed(0), bits)
            }),
            Operand::Sized(expr) => Err(Problem::AssignWidth {
                target: self.symbols[target].key.clone(),
                bits,
                value_bits: expr.bits,
            }),
        }
    }

    fn expr(&mut self, e: &VerilogExpression) -> Lowered<Operand> {
        use VerilogExpression as V;
        Ok(match e {
            V::Paren(inner) => self.expr(inner)?,
            V::Signal(name) => self.name(name)?,
            V::Literal(literal) => self.literal(literal)?,
            V::Cast(inner, bits) => match self.expr(inner)? {
                Operand::Int(value) => Operand::Sized(self.int(value, *bits)?),
                Operand::Sized(expr) if expr.bits >= *bits => {
                    let mut expr = self.select(expr, Amount::Fixed(0), *bits);
                    expr.signed = false;
                    Operand::Sized(expr)
                }
                Operand::Sized(expr) => {
                    Operand::Sized(Expr::new(Node::ZeroExtend(Box::new(expr)), *bits))
                }
            },
            V::Signed(inner) => match self.expr(inner)? {
                Operand::Sized(expr) => Operand::Sized(expr.with_sign(true)),
                int => int,
            },
            V::Unsigned(inner) => match self.expr(inner)? {
                Operand::Sized(expr) => Operand::Sized(expr.with_sign(false)),
                int => int,
            },
            V::Unary(op, inner) => self.unary(op, inner)?,
            V::Binary(left, op, right) => self.binary(left, op, right)?,
            V::Index(base, index) => {
                let base = self.need_sized(base)?;
                let index = self.amount(index)?;
                if let Amount::Fixed(index) = index {
                    if index >= base.bits {
                        return Err(Problem::SliceRange {
                            name: "get_bit".into(),
                            low: index,
                            high: index + 1,
                            bits: base.bits,
                        });
                    }
                }
                Operand::Sized(self.select(base, index, 1).with_sign(false))
            }
            V::Slice(base, bits, offset) => {
                let base = self.need_sized(base)?;
                let offset = self.amount(offset)?;
                // A slice of a struct that is no field comes from a generated leaf and is plain bits.
                let field = match (&base.ty, &offset) {
                    (Some(ty), Amount::Fixed(low)) => field_at(ty, *low, *bits),
                    _ => None,
                };
                if let Amount::Fixed(low) = offset {
                    if low > base.bits {
                        return Err(Problem::SliceRange {
                            name: "get_bits".into(),
                            low,
                            high: low + bits,
                            bits: base.bits,
                        });
                    }
                }
                if *bits == 0 {
                    return Err(Problem::NoBits("get_bits".into()));
                }
                let signed = base.signed;
                let part = self.select(base, offset, *bits);
                Operand::Sized(match field {
                    Some(ty) => part.with_type(&ty),
                    None => part.with_sign(signed),
                })
            }
            V::IndexReplace(base, index, value) => {
                let base = self.need_sized(base)?;
                let index = self.amount(index)?;
                let value = self.expr(value)?;
                let value = self.sized(value, 1)?;
                let bits = base.bits;
                if let Amount::Fixed(index) = index {
                    if index >= bits {
                        return Err(Problem::SliceRange {
                            name: "replace_bit".into(),
                            low: index,
                            high: index + 1,
                            bits,
                        });
                    }
                }
                Operand::Sized(Expr::new(
                    Node::ReplaceBit {
                        base: Box::new(base),
                        index,
                        value: Box::new(value),
                    },
                    bits,
                ))
            }
        })
    }

    fn name(&mut self, name: &str) -> Lowered<Operand> {
        if let Some((_, value)) = self.loops.iter().rev().find(|(index, _)| index == name) {
            return Ok(Operand::Int(*value));
        }
        if let Some((id, low, ty)) = self.resolve(name)? {
            let bits = type_bits(&ty);
            let symbol = &self.symbols[id];
            let node = if bits == symbol.bits {
                Node::Signal(id)
            } else {
                Node::Part(id, low)
            };
            return Ok(Operand::Sized(Expr::new(node, bits).with_type(&ty)));
        }
        match self.enum_value(name) {
            Some(value) => Ok(Operand::Sized(value)),
            None => Err(Problem::UnknownName(name.to_string())),
        }
    }

    fn literal(&self, literal: &VerilogLiteral) -> Lowered<Operand> {
        let text = format!("{literal:x}");
        let out_of_range = || Problem::IntegerRange(text.clone());
        let (bits, digits) = text.split_once("'h").ok_or_else(out_of_range)?;
        let bits: usize = bits.parse().map_err(|_| out_of_range())?;
        // Rust integers arrive with 8 to 128 bits and take the width of the other side; `bool` has 1, and
        // a hand-made AST may hold `Bits` of any other width.
        if matches!(bits, 8 | 16 | 32 | 64 | 128) {
            let value = i128::from_str_radix(digits, 16).map_err(|_| out_of_range())?;
            return Ok(Operand::Int(value));
        }
        let value = Value::from_literal(literal, bits).ok_or_else(out_of_range)?;
        Ok(Operand::Sized(Expr::new(Node::Value(value), bits)))
    }

    fn need_sized(&mut self, e: &VerilogExpression) -> Lowered<Expr> {
        match self.expr(e)? {
            Operand::Sized(expr) => Ok(expr),
            Operand::Int(value) => Err(Problem::UnsizedLiteral(value.to_string())),
        }
    }

    fn amount(&mut self, e: &VerilogExpression) -> Lowered<Amount> {
        Ok(match self.expr(e)? {
            Operand::Int(value) => Amount::Fixed(
                usize::try_from(value).map_err(|_| Problem::IntegerRange(value.to_string()))?,
            ),
            Operand::Sized(expr) => match self.value_of(&expr).and_then(|value| value.to_u128()) {
                Some(value) => Amount::Fixed(value.min(usize::MAX as u128) as usize),
                None => Amount::Variable(Box::new(expr)),
            },
        })
    }

    fn value_of(&self, expr: &Expr) -> Option<Value> {
        match &expr.node {
            Node::Value(value) => Some(value.clone()),
            Node::Signal(id) => match &self.symbols[*id].kind {
                SymbolKind::Constant(value) => Some(value.clone()),
                _ => None,
            },
            _ => None,
        }
    }

    /// `bits` bits of `base` from `position` up; keeps the sign of the base.
    fn select(&self, base: Expr, position: Amount, bits: usize) -> Expr {
        let signed = base.signed;
        let node = match (&base.node, &position) {
            (_, Amount::Fixed(0)) if bits == base.bits => return base,
            (Node::Value(value), Amount::Fixed(low)) => Node::Value(value.slice(*low, bits)),
            (Node::Signal(id), Amount::Fixed(low)) if low + bits <= base.bits => {
                match &self.symbols[*id].kind {
                    SymbolKind::Constant(value) => Node::Value(value.slice(*low, bits)),
                    _ => Node::Part(*id, *low),
                }
            }
            (Node::Part(id, outer), Amount::Fixed(low)) if low + bits <= base.bits => {
                Node::Part(*id, outer + low)
            }
            _ => Node::Select(Box::new(base), position),
        };
        Expr::new(node, bits).with_sign(signed)
    }

    fn unary(&mut self, op: &VerilogOpUnary, inner: &VerilogExpression) -> Lowered<Operand> {
        if let (VerilogOpUnary::Neg, Operand::Int(value)) = (op, self.expr(inner)?) {
            return Ok(Operand::Int(-value));
        }
        let base = self.need_sized(inner)?;
        let (bits, signed) = (base.bits, base.signed);
        let base = Box::new(base);
        Ok(Operand::Sized(match op {
            VerilogOpUnary::Not => Expr::new(Node::Not(base), bits).with_sign(signed),
            VerilogOpUnary::Neg => Expr::new(Node::Neg(base), bits).with_sign(signed),
            VerilogOpUnary::All => Expr::new(Node::Reduce('&', base), 1),
            VerilogOpUnary::Any => Expr::new(Node::Reduce('|', base), 1),
            VerilogOpUnary::Xor => Expr::new(Node::Reduce('^', base), 1),
        }))
    }

    fn binary(
        &mut self,
        left: &VerilogExpression,
        op: &VerilogOp,
        right: &VerilogExpression,
    ) -> Lowered<Operand> {
        let left = self.expr(left)?;
        if let VerilogOp::Shl | VerilogOp::Shr = op {
            let to_left = matches!(op, VerilogOp::Shl);
            let amount = self.amount(right)?;
            return match (left, amount) {
                (Operand::Sized(base), amount) => {
                    let (bits, signed) = (base.bits, base.signed);
                    if signed {
                        return Err(Problem::Unsupported("shift of a signed value".into()));
                    }
                    if matches!(amount, Amount::Fixed(0)) {
                        return Ok(Operand::Sized(base));
                    }
                    let node = Node::Shift {
                        left: to_left,
                        base: Box::new(base),
                        amount,
                    };
                    Ok(Operand::Sized(Expr::new(node, bits)))
                }
                (Operand::Int(value), Amount::Fixed(distance)) if distance < 64 => {
                    Ok(Operand::Int(if to_left {
                        value.checked_mul(1 << distance).ok_or_else(|| {
                            Problem::IntegerRange(format!("{value} << {distance}"))
                        })?
                    } else {
                        value >> distance
                    }))
                }
                (Operand::Int(value), _) => Err(Problem::UnsizedLiteral(format!(
                    "{value} shifted by a signal (use a `Constant` of full width)"
                ))),
            };
        }
        let op = match op {
            VerilogOp::Add => Op::Add,
            VerilogOp::Sub => Op::Sub,
            VerilogOp::Mul => Op::Mul,
            VerilogOp::LogicalAnd => Op::LogicalAnd,
            VerilogOp::LogicalOr => Op::LogicalOr,
            VerilogOp::BitXor => Op::Xor,
            VerilogOp::BitAnd => Op::And,
            VerilogOp::BitOr => Op::Or,
            VerilogOp::Eq => Op::Eq,
            VerilogOp::Lt => Op::Lt,
            VerilogOp::Le => Op::Le,
            VerilogOp::Ne => Op::Ne,
            VerilogOp::Ge => Op::Ge,
            VerilogOp::Gt => Op::Gt,
            VerilogOp::Shl | VerilogOp::Shr => {
                return Err(Problem::Unsupported("shift".into()));
            }
        };
        let right = self.expr(right)?;
        let (mut left, mut right) = match (left, right) {
            (Operand::Int(left), Operand::Int(right)) => return fold(op, left, right),
            (Operand::Int(left), Operand::Sized(right)) => (self.int(left, right.bits)?, right),
            (Operand::Sized(left), Operand::Int(right)) => {
                let right = self.int(right, left.bits)?;
                (left, right)
            }
            (Operand::Sized(left), Operand::Sized(right)) => (left, right),
        };
        if op == Op::Mul {
            let bits = left.bits + right.bits;
            let signed = left.signed && right.signed;
            let node = Node::Binary(op, Box::new(left), Box::new(right));
            return Ok(Operand::Sized(Expr::new(node, bits).with_sign(signed)));
        }
        // `Bits<N> + bool` adds 0 or 1.
        if op == Op::Add && right.bits == 1 && left.bits > 1 {
            right = Expr::new(Node::ZeroExtend(Box::new(right)), left.bits);
        }
        if left.bits != right.bits {
            return Err(Problem::Width {
                operator: op.symbol().into(),
                left: left.bits,
                right: right.bits,
            });
        }
        let signed = left.signed || right.signed;
        left.signed = signed;
        right.signed = signed;
        let (bits, signed) = match op {
            Op::Add | Op::Sub | Op::And | Op::Or | Op::Xor => (left.bits, signed),
            _ => (1, false),
        };
        let node = Node::Binary(op, Box::new(left), Box::new(right));
        Ok(Operand::Sized(Expr::new(node, bits).with_sign(signed)))
    }
}

fn fold(op: Op, left: i128, right: i128) -> Lowered<Operand> {
    let overflow = || Problem::IntegerRange(format!("{left} {} {right}", op.symbol()));
    let bit = |value: bool| {
        Ok(Operand::Sized(Expr::new(
            Node::Value(Value(vec![value])),
            1,
        )))
    };
    let value = match op {
        Op::Add => left.checked_add(right),
        Op::Sub => left.checked_sub(right),
        Op::Mul => left.checked_mul(right),
        Op::And => Some(left & right),
        Op::Or => Some(left | right),
        Op::Xor => Some(left ^ right),
        Op::Eq => return bit(left == right),
        Op::Ne => return bit(left != right),
        Op::Lt => return bit(left < right),
        Op::Le => return bit(left <= right),
        Op::Gt => return bit(left > right),
        Op::Ge => return bit(left >= right),
        Op::LogicalAnd | Op::LogicalOr => None,
    };
    value.map(Operand::Int).ok_or_else(overflow)
}

fn has_field(ty: &TypeDescriptor, name: &str) -> bool {
    field_by_name(ty, name).is_some()
}

fn field_by_name(ty: &TypeDescriptor, name: &str) -> Option<(usize, TypeDescriptor)> {
    let TypeKind::Composite(fields) = &ty.kind else {
        return None;
    };
    let mut low = 0;
    for field in fields {
        if field.fieldname == name {
            return Some((low, field.kind.clone()));
        }
        low += type_bits(&field.kind);
    }
    None
}

/// The field of a struct that lies exactly at these bits.
fn field_at(ty: &TypeDescriptor, low: usize, bits: usize) -> Option<TypeDescriptor> {
    let TypeKind::Composite(fields) = &ty.kind else {
        return None;
    };
    let mut at = 0;
    for field in fields {
        let field_bits = type_bits(&field.kind);
        if at == low && field_bits == bits {
            return Some(field.kind.clone());
        }
        at += field_bits;
    }
    None
}

/// A Rust integer literal: underscores, `0x`, `0b`, `0o` and a type suffix allowed.
fn integer(text: &str) -> Option<i128> {
    let text = text.replace(['_', ' '], "");
    let (digits, radix) = match text.get(..2) {
        Some("0x") => (&text[2..], 16),
        Some("0b") => (&text[2..], 2),
        Some("0o") => (&text[2..], 8),
        _ => (text.as_str(), 10),
    };
    const SUFFIXES: [&str; 12] = [
        "usize", "isize", "u128", "i128", "u64", "i64", "u32", "i32", "u16", "i16", "u8", "i8",
    ];
    let digits = SUFFIXES
        .iter()
        .find_map(|suffix| digits.strip_suffix(suffix))
        .unwrap_or(digits);
    i128::from_str_radix(digits, radix).ok()
}

/// Evaluates array indices: integers, loop variables, `+ - * / %` and parentheses.
struct IndexParser<'a> {
    tokens: Vec<String>,
    at: usize,
    loops: &'a [(String, i128)],
}

impl<'a> IndexParser<'a> {
    fn evaluate(text: &str, loops: &'a [(String, i128)]) -> Option<usize> {
        let mut tokens = vec![];
        let mut word = String::new();
        for c in text.chars() {
            if c.is_alphanumeric() || c == '_' {
                word.push(c);
                continue;
            }
            if !word.is_empty() {
                tokens.push(std::mem::take(&mut word));
            }
            if !c.is_whitespace() {
                tokens.push(c.to_string());
            }
        }
        if !word.is_empty() {
            tokens.push(word);
        }
        let mut parser = Self {
            tokens,
            at: 0,
            loops,
        };
        let value = parser.sum()?;
        (parser.at == parser.tokens.len())
            .then(|| usize::try_from(value).ok())
            .flatten()
    }

    fn peek(&self) -> &str {
        self.tokens.get(self.at).map_or("", String::as_str)
    }

    fn sum(&mut self) -> Option<i128> {
        let mut value = self.product()?;
        loop {
            match self.peek() {
                "+" => {
                    self.at += 1;
                    value = value.checked_add(self.product()?)?;
                }
                "-" => {
                    self.at += 1;
                    value = value.checked_sub(self.product()?)?;
                }
                _ => return Some(value),
            }
        }
    }

    fn product(&mut self) -> Option<i128> {
        let mut value = self.atom()?;
        loop {
            match self.peek() {
                "*" => {
                    self.at += 1;
                    value = value.checked_mul(self.atom()?)?;
                }
                "/" => {
                    self.at += 1;
                    value = value.checked_div(self.atom()?)?;
                }
                "%" => {
                    self.at += 1;
                    value = value.checked_rem(self.atom()?)?;
                }
                _ => return Some(value),
            }
        }
    }

    fn atom(&mut self) -> Option<i128> {
        let token = self.peek().to_string();
        self.at += 1;
        if token == "(" {
            let value = self.sum()?;
            let closed = self.peek() == ")";
            self.at += 1;
            return closed.then_some(value);
        }
        match self.loops.iter().rev().find(|(index, _)| *index == token) {
            Some((_, value)) => Some(*value),
            None => integer(&token),
        }
    }
}
