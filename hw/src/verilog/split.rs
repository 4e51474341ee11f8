//! Gives each target of a kernel, and each intermediate value of it, a block of its own.
//!
//! A kernel that reads child A's output and drives child B's input is no loop, but one `always` block that does both
//! looks like one to a simulator that orders whole blocks. So each target gets its own block, with the `if` and `case`
//! skeletons around its assignments. A local or output that is read between two assignments has several values: each
//! that others read becomes a net (`x_v1`, `x_v2`, ...), whose block starts from the value before and runs the
//! assignments up to the read. So every net has one value, and reads are edges of a graph without circles.

use super::check::assigns_all;
use super::error::Problem;
use super::kernel::{Expr, Kernel, Node, Stmt, StmtKind, Symbol, SymbolId, SymbolKind};
use super::names::Scope;
use super::value::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The logic of one net.
pub(crate) struct Block {
    pub(crate) target: SymbolId,
    pub(crate) body: Vec<Stmt>,
}

/// A read of `symbol` by the logic of `target`.
struct Read {
    target: SymbolId,
    symbol: SymbolId,
    at: usize,
}

/// A test that reads the symbol which the statements under it assign.
struct SelfTest {
    symbol: SymbolId,
    /// Assignments before the test.
    before: usize,
    /// Assignments up to the end of the statement.
    after: usize,
}

/// Who reads and who writes, in program order.
#[derive(Default)]
struct Survey {
    reads: Vec<Read>,
    /// Statements that assign a symbol, ascending.
    writes: BTreeMap<SymbolId, Vec<usize>>,
    self_tests: Vec<SelfTest>,
}

impl Survey {
    fn body(&mut self, body: &[Stmt], conditions: &mut Vec<(SymbolId, usize)>) {
        for stmt in body {
            match &stmt.kind {
                StmtKind::Assign { target, value, .. } => {
                    self.writes.entry(*target).or_default().push(stmt.at);
                    let own = symbols(value).into_iter().map(|symbol| (symbol, stmt.at));
                    self.reads
                        .extend(
                            conditions
                                .iter()
                                .copied()
                                .chain(own)
                                .map(|(symbol, at)| Read {
                                    target: *target,
                                    symbol,
                                    at,
                                }),
                        );
                }
                StmtKind::If {
                    test,
                    then,
                    otherwise,
                } => self.tested(test, stmt.at, &[then, otherwise], conditions),
                StmtKind::Case { test, arms } => {
                    let arms: Vec<&Vec<Stmt>> = arms.iter().map(|(_, arm)| arm).collect();
                    self.tested(test, stmt.at, &arms, conditions);
                }
            }
        }
    }

    fn tested(
        &mut self,
        test: &Expr,
        at: usize,
        branches: &[&Vec<Stmt>],
        conditions: &mut Vec<(SymbolId, usize)>,
    ) {
        let depth = conditions.len();
        let tested = symbols(test);
        let before: Vec<usize> = tested
            .iter()
            .map(|&symbol| self.count(symbol, at))
            .collect();
        conditions.extend(tested.iter().map(|&symbol| (symbol, at)));
        for branch in branches {
            self.body(branch, conditions);
        }
        conditions.truncate(depth);
        for (symbol, before) in tested.into_iter().zip(before) {
            let after = self.total(symbol);
            if after > before {
                self.self_tests.push(SelfTest {
                    symbol,
                    before,
                    after,
                });
            }
        }
    }

    /// Assignments to `symbol` before statement `at`.
    fn count(&self, symbol: SymbolId, at: usize) -> usize {
        self.writes
            .get(&symbol)
            .map_or(0, |writes| writes.partition_point(|&write| write < at))
    }

    fn total(&self, symbol: SymbolId) -> usize {
        self.writes.get(&symbol).map_or(0, Vec::len)
    }
}

fn symbols(expr: &Expr) -> BTreeSet<SymbolId> {
    let mut set = BTreeSet::new();
    expr.reads(&mut |id, _, _| {
        set.insert(id);
    });
    set
}

/// The values of a symbol that get nets.
struct Values {
    /// Value `i` is the one after `cuts[i]` assignments; the last is the final one.
    cuts: Vec<usize>,
    /// The nets; the last is the symbol itself.
    nets: Vec<SymbolId>,
}

/// The blocks in program order of their first assignment. Intermediate values become symbols of the kernel.
pub(crate) fn split(kernel: &mut Kernel, scope: &mut Scope) -> Result<Vec<Block>, Problem> {
    let mut survey = Survey::default();
    survey.body(&kernel.body, &mut vec![]);
    let mut values = BTreeMap::new();
    for (symbol, mut cuts) in cuts(kernel, &survey) {
        let mut nets = vec![];
        for number in 1..=cuts.len() {
            nets.push(kernel.symbols.len());
            kernel
                .symbols
                .push(value_net(&kernel.symbols[symbol], number, scope));
        }
        nets.push(symbol);
        cuts.insert(survey.total(symbol));
        let cuts = cuts.into_iter().collect();
        values.insert(symbol, Values { cuts, nets });
    }
    let plan = Plan {
        kernel,
        survey: &survey,
        values: &values,
    };
    let mut blocks = vec![];
    for (&symbol, writes) in &survey.writes {
        let count = values.get(&symbol).map_or(1, |values| values.nets.len());
        for number in 0..count {
            blocks.push(plan.block(symbol, writes, number));
        }
    }
    blocks.sort_by_key(|&(at, _)| at);
    let mut blocks: Vec<Block> = blocks.into_iter().map(|(_, block)| block).collect();
    drop_unread(kernel, &values, &mut blocks);
    refuse_circles(kernel, &blocks)?;
    Ok(blocks)
}

/// Where a value that is not the final one is read by the logic of another target.
fn cuts(kernel: &Kernel, survey: &Survey) -> BTreeMap<SymbolId, BTreeSet<usize>> {
    let mut cuts: BTreeMap<SymbolId, BTreeSet<usize>> = BTreeMap::new();
    for read in &survey.reads {
        let count = survey.count(read.symbol, read.at);
        if kernel.symbols[read.symbol].is_immediate()
            && read.symbol != read.target
            && count < survey.total(read.symbol)
        {
            cuts.entry(read.symbol).or_default().insert(count);
        }
    }
    // A statement that tests what it assigns, and is cut inside, is in two blocks: both need the value at the test.
    // From the inside out, so that a new cut is seen by the statements around.
    for test in &survey.self_tests {
        if let Some(cuts) = cuts.get_mut(&test.symbol) {
            if cuts.range(test.before + 1..test.after).next().is_some() {
                cuts.insert(test.before);
            }
        }
    }
    cuts
}

fn value_net(symbol: &Symbol, number: usize, scope: &mut Scope) -> Symbol {
    let mut key = format!("{}_v{number}", symbol.key);
    let text = loop {
        match scope.claim(&key) {
            Ok(text) => break text,
            Err(_) => key.push('_'),
        }
    };
    Symbol {
        key,
        text,
        kind: SymbolKind::Local,
        child: None,
        ..symbol.clone()
    }
}

/// The final value of a local that only its intermediate values are read of needs no net.
fn drop_unread(kernel: &Kernel, values: &BTreeMap<SymbolId, Values>, blocks: &mut Vec<Block>) {
    let mut read = BTreeSet::new();
    for block in blocks.iter() {
        let mut symbols = BTreeSet::new();
        collect_reads(&block.body, &mut symbols);
        symbols.remove(&block.target);
        read.extend(symbols);
    }
    blocks.retain(|block| {
        kernel.symbols[block.target].kind != SymbolKind::Local
            || !values.contains_key(&block.target)
            || read.contains(&block.target)
    });
}

/// What the statements read.
pub(crate) fn collect_reads(body: &[Stmt], read: &mut BTreeSet<SymbolId>) {
    for stmt in body {
        let expr = match &stmt.kind {
            StmtKind::Assign { value, .. } => value,
            StmtKind::If {
                test,
                then,
                otherwise,
            } => {
                collect_reads(then, read);
                collect_reads(otherwise, read);
                test
            }
            StmtKind::Case { test, arms } => {
                arms.iter().for_each(|(_, arm)| collect_reads(arm, read));
                test
            }
        };
        read.extend(symbols(expr));
    }
}

struct Plan<'a> {
    kernel: &'a Kernel,
    survey: &'a Survey,
    values: &'a BTreeMap<SymbolId, Values>,
}

/// The part of a symbol's logic that makes one of its values.
struct Segment {
    symbol: SymbolId,
    net: SymbolId,
    /// Assignments before the first and before the end.
    from: usize,
    to: usize,
}

impl Plan<'_> {
    /// The block of value `number` of `symbol`, and its first statement.
    fn block(&self, symbol: SymbolId, writes: &[usize], number: usize) -> (usize, Block) {
        let mut segment = Segment {
            symbol,
            net: symbol,
            from: 0,
            to: writes.len(),
        };
        let mut start = None;
        if let Some(values) = self.values.get(&symbol) {
            segment.net = values.nets[number];
            segment.to = values.cuts[number];
            if number > 0 {
                segment.from = values.cuts[number - 1];
                start = Some(Node::Signal(values.nets[number - 1]));
            }
        }
        let at = writes[segment.from];
        let bits = self.kernel.symbols[symbol].bits;
        let mut body = self.project(&self.kernel.body, &segment);
        if start.is_none() && !assigns_all(&body, segment.net, bits) {
            // Some bits come after the read.
            start = Some(Node::Value(Value(vec![false; bits])));
        }
        if let Some(node) = start {
            let kind = StmtKind::Assign {
                target: segment.net,
                low: 0,
                bits,
                value: Expr::new(node, bits),
            };
            let start = Stmt {
                at: 0,
                comments: vec![],
                kind,
            };
            body.insert(0, start);
        }
        drop_dead_defaults(self.kernel, &mut body);
        let target = segment.net;
        (at, Block { target, body })
    }

    /// The part of `body` that makes the value, with the names of the nets.
    fn project(&self, body: &[Stmt], segment: &Segment) -> Vec<Stmt> {
        let mut kept = vec![];
        for stmt in body {
            let kind = match &stmt.kind {
                StmtKind::Assign {
                    target,
                    low,
                    bits,
                    value,
                } => {
                    let index = self.survey.count(*target, stmt.at);
                    if *target != segment.symbol || !(segment.from..segment.to).contains(&index) {
                        continue;
                    }
                    StmtKind::Assign {
                        target: segment.net,
                        low: *low,
                        bits: *bits,
                        value: self.renamed(value, stmt.at, segment),
                    }
                }
                StmtKind::If {
                    test,
                    then,
                    otherwise,
                } => {
                    let then = self.project(then, segment);
                    let otherwise = self.project(otherwise, segment);
                    if then.is_empty() && otherwise.is_empty() {
                        continue;
                    }
                    StmtKind::If {
                        test: self.renamed(test, stmt.at, segment),
                        then,
                        otherwise,
                    }
                }
                StmtKind::Case { test, arms } => {
                    let arms: Vec<_> = arms
                        .iter()
                        .map(|(label, arm)| (label.clone(), self.project(arm, segment)))
                        .collect();
                    if arms.iter().all(|(_, arm)| arm.is_empty()) {
                        continue;
                    }
                    StmtKind::Case {
                        test: self.renamed(test, stmt.at, segment),
                        arms,
                    }
                }
            };
            kept.push(Stmt {
                at: stmt.at,
                comments: stmt.comments.clone(),
                kind,
            });
        }
        kept
    }

    /// `expr` of statement `at` with each symbol replaced by the net that has its value there.
    fn renamed(&self, expr: &Expr, at: usize, segment: &Segment) -> Expr {
        let mut expr = expr.clone();
        expr.rename(&mut |symbol| {
            let Some(values) = self.values.get(&symbol) else {
                return symbol;
            };
            let count = self.survey.count(symbol, at);
            match values.cuts.binary_search(&count) {
                Ok(value) => values.nets[value],
                // Between two values only the block itself reads: what it has assigned so far.
                Err(_) => segment.net,
            }
        });
        expr
    }
}
/// An input of a child reads as its final value in the simulator, whatever the order in the kernel. So it may depend on
/// itself; every circle goes through one.
fn refuse_circles(kernel: &Kernel, blocks: &[Block]) -> Result<(), Problem> {
    let is_input = |&id: &SymbolId| kernel.symbols[id].kind == SymbolKind::ChildInput;
    let refuse = |id: SymbolId| {
        let name = kernel.symbols[id].key.replace('$', ".");
        Err(Problem::ReadsOwnInput(name))
    };
    let mut edges: BTreeMap<SymbolId, BTreeSet<SymbolId>> = BTreeMap::new();
    for block in blocks {
        let mut read = BTreeSet::new();
        collect_reads(&block.body, &mut read);
        if read.remove(&block.target) && is_input(&block.target) {
            return refuse(block.target);
        }
        for symbol in read {
            edges.entry(symbol).or_default().insert(block.target);
        }
    }
    let circles = circles(&edges, kernel.symbols.len());
    match circles.iter().flatten().copied().find(is_input) {
        Some(input) => refuse(input),
        None => Ok(()),
    }
}

/// Strongly connected components with more than one node (Tarjan).
fn circles(edges: &BTreeMap<SymbolId, BTreeSet<SymbolId>>, count: usize) -> Vec<Vec<SymbolId>> {
    struct State<'a> {
        edges: &'a BTreeMap<SymbolId, BTreeSet<SymbolId>>,
        index: Vec<Option<usize>>,
        low: Vec<usize>,
        on_stack: Vec<bool>,
        stack: Vec<SymbolId>,
        next: usize,
        found: Vec<Vec<SymbolId>>,
    }
    fn visit(state: &mut State, node: SymbolId) {
        state.index[node] = Some(state.next);
        state.low[node] = state.next;
        state.next += 1;
        state.stack.push(node);
        state.on_stack[node] = true;
        let edges = state.edges;
        for &to in edges.get(&node).into_iter().flatten() {
            match state.index[to] {
                None => {
                    visit(state, to);
                    state.low[node] = state.low[node].min(state.low[to]);
                }
                Some(index) if state.on_stack[to] => {
                    state.low[node] = state.low[node].min(index);
                }
                Some(_) => {}
            }
        }
        if Some(state.low[node]) == state.index[node] {
            let mut circle = vec![];
            while let Some(member) = state.stack.pop() {
                state.on_stack[member] = false;
                circle.push(member);
                if member == node {
                    break;
                }
            }
            if circle.len() > 1 {
                state.found.push(circle);
            }
        }
    }
    let mut state = State {
        edges,
        index: vec![None; count],
        low: vec![0; count],
        on_stack: vec![false; count],
        stack: vec![],
        next: 0,
        found: vec![],
    };
    for &node in edges.keys() {
        if state.index[node].is_none() {
            visit(&mut state, node);
        }
    }
    state.found
}

/// In the logic of a single target: statements before the last assignment of all bits have no effect.
fn drop_dead_defaults(kernel: &Kernel, body: &mut Vec<Stmt>) {
    let last = body.iter().rposition(|stmt| match &stmt.kind {
        StmtKind::Assign {
            target,
            bits,
            value,
            ..
        } => *bits == kernel.symbols[*target].bits && !symbols(value).contains(target),
        _ => false,
    });
    if let Some(last) = last {
        let comments: Vec<String> = body.drain(..last).flat_map(|stmt| stmt.comments).collect();
        body[0].comments.splice(0..0, comments);
    }
}
