//! Splits a kernel into groups of targets that print as separate blocks.
//!
//! A kernel that reads child A's output and drives child B's input is no loop, but one `always` block that does both
//! looks like one to a simulator that orders whole blocks. So each target gets its own block, with the `if` and `case`
//! skeletons around its assignments. Targets stay together when one is read between two assignments to another.

use super::error::Problem;
use super::kernel::{Expr, Kernel, Stmt, StmtKind, SymbolId, SymbolKind};
use std::collections::{BTreeMap, BTreeSet};

/// A read of `symbol` by the logic of `target`.
struct Read {
    target: SymbolId,
    symbol: SymbolId,
    at: usize,
}

#[derive(Default)]
struct Survey {
    reads: Vec<Read>,
    last_write: BTreeMap<SymbolId, usize>,
    first_write: BTreeMap<SymbolId, usize>,
}

impl Survey {
    fn body(&mut self, body: &[Stmt], conditions: &mut Vec<(SymbolId, usize)>) {
        for stmt in body {
            match &stmt.kind {
                StmtKind::Assign { target, value, .. } => {
                    self.first_write.entry(*target).or_insert(stmt.at);
                    self.last_write.insert(*target, stmt.at);
                    for &(symbol, at) in conditions.iter() {
                        self.reads.push(Read {
                            target: *target,
                            symbol,
                            at,
                        });
                    }
                    for symbol in symbols(value) {
                        self.reads.push(Read {
                            target: *target,
                            symbol,
                            at: stmt.at,
                        });
                    }
                }
                StmtKind::If {
                    test,
                    then,
                    otherwise,
                } => {
                    let depth = conditions.len();
                    conditions.extend(symbols(test).into_iter().map(|symbol| (symbol, stmt.at)));
                    self.body(then, conditions);
                    self.body(otherwise, conditions);
                    conditions.truncate(depth);
                }
                StmtKind::Case { test, arms } => {
                    let depth = conditions.len();
                    conditions.extend(symbols(test).into_iter().map(|symbol| (symbol, stmt.at)));
                    for (_, arm) in arms {
                        self.body(arm, conditions);
                    }
                    conditions.truncate(depth);
                }
            }
        }
    }
}

fn symbols(expr: &Expr) -> BTreeSet<SymbolId> {
    let mut set = BTreeSet::new();
    expr.reads(&mut |id, _, _| {
        set.insert(id);
    });
    set
}

/// The groups in program order of their first assignment.
pub(crate) fn groups(kernel: &Kernel) -> Result<Vec<BTreeSet<SymbolId>>, Problem> {
    let mut survey = Survey::default();
    survey.body(&kernel.body, &mut vec![]);
    let count = kernel.symbols.len();
    let mut leader: Vec<SymbolId> = (0..count).collect();
    let last_write = |id: SymbolId| survey.last_write.get(&id).copied().unwrap_or(0);

    for read in &survey.reads {
        let symbol = &kernel.symbols[read.symbol];
        if symbol.is_immediate() && read.symbol != read.target && last_write(read.symbol) > read.at
        {
            union(&mut leader, read.symbol, read.target);
        }
    }
    // Groups that read each other in a circle are one group: program order inside it is an order that works.
    let mut edges: BTreeMap<SymbolId, BTreeSet<SymbolId>> = BTreeMap::new();
    for read in &survey.reads {
        if survey.last_write.contains_key(&read.symbol) {
            let (from, to) = (find(&leader, read.symbol), find(&leader, read.target));
            if from != to {
                edges.entry(from).or_default().insert(to);
            }
        }
    }
    for circle in circles(&edges, count) {
        for pair in circle.windows(2) {
            union(&mut leader, pair[0], pair[1]);
        }
    }
    // An input of a child reads as its final value in the simulator, whatever the order in the kernel.
    for read in &survey.reads {
        let symbol = &kernel.symbols[read.symbol];
        if symbol.kind == SymbolKind::ChildInput
            && survey.last_write.contains_key(&read.symbol)
            && find(&leader, read.symbol) == find(&leader, read.target)
            && (read.symbol == read.target || last_write(read.symbol) >= read.at)
        {
            return Err(Problem::ReadsOwnInput(symbol.key.replace('$', ".")));
        }
    }
    let mut by_leader: BTreeMap<SymbolId, BTreeSet<SymbolId>> = BTreeMap::new();
    for &target in survey.first_write.keys() {
        by_leader
            .entry(find(&leader, target))
            .or_default()
            .insert(target);
    }
    let mut groups: Vec<_> = by_leader.into_values().collect();
    groups.sort_by_key(|group| {
        group
            .iter()
            .map(|target| survey.first_write[target])
            .min()
            .unwrap_or(0)
    });
    Ok(groups)
}

fn find(leader: &[SymbolId], mut id: SymbolId) -> SymbolId {
    while leader[id] != id {
        id = leader[id];
    }
    id
}

fn union(leader: &mut [SymbolId], a: SymbolId, b: SymbolId) {
    let (a, b) = (find(leader, a), find(leader, b));
    leader[a.max(b)] = a.min(b);
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

/// The part of `body` that assigns members of `group`.
pub(crate) fn project(kernel: &Kernel, body: &[Stmt], group: &BTreeSet<SymbolId>) -> Vec<Stmt> {
    let mut kept: Vec<Stmt> = vec![];
    for stmt in body {
        let kind = match &stmt.kind {
            StmtKind::Assign { target, .. } => {
                if !group.contains(target) {
                    continue;
                }
                stmt.kind.clone()
            }
            StmtKind::If {
                test,
                then,
                otherwise,
            } => {
                let then = project(kernel, then, group);
                let otherwise = project(kernel, otherwise, group);
                if then.is_empty() && otherwise.is_empty() {
                    continue;
                }
                StmtKind::If {
                    test: test.clone(),
                    then,
                    otherwise,
                }
            }
            StmtKind::Case { test, arms } => {
                let arms: Vec<_> = arms
                    .iter()
                    .map(|(label, arm)| (label.clone(), project(kernel, arm, group)))
                    .collect();
                if arms.iter().all(|(_, arm)| arm.is_empty()) {
                    continue;
                }
                StmtKind::Case {
                    test: test.clone(),
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
    if group.len() == 1 {
        drop_dead_defaults(kernel, &mut kept);
    }
    kept
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
