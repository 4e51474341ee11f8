//! Definite assignment: no latches, no reads of values that are not there yet.

use super::error::Problem;
use super::kernel::{Expr, Kernel, Stmt, StmtKind, SymbolId};
use std::collections::BTreeMap;

/// The bits of each target that every path so far assigns, as sorted disjoint ranges.
type Assigned = BTreeMap<SymbolId, Vec<(usize, usize)>>;

/// Refuses kernels with a latch or a read before a write. `skip` names targets that are wired elsewhere.
pub(crate) fn check(kernel: &Kernel, skip: &dyn Fn(SymbolId) -> bool) -> Result<(), Problem> {
    let mut assigned = Assigned::new();
    walk(Some(kernel), &kernel.body, &mut assigned)?;
    let mut touched = vec![false; kernel.symbols.len()];
    mark(&kernel.body, &mut touched);
    for (id, symbol) in kernel.symbols.iter().enumerate() {
        if !symbol.is_target() || skip(id) || covers(assigned.get(&id), 0, symbol.bits) {
            continue;
        }
        let name = symbol.key.replace('$', ".");
        return Err(if touched[id] {
            Problem::Latch(name)
        } else {
            Problem::NeverAssigned(name)
        });
    }
    Ok(())
}

/// Whether every path through `body` assigns all `bits` of `target`.
pub(crate) fn assigns_all(body: &[Stmt], target: SymbolId, bits: usize) -> bool {
    let mut assigned = Assigned::new();
    let walked = walk(None, body, &mut assigned);
    walked.is_ok() && covers(assigned.get(&target), 0, bits)
}

fn mark(body: &[Stmt], touched: &mut [bool]) {
    for stmt in body {
        match &stmt.kind {
            StmtKind::Assign { target, .. } => touched[*target] = true,
            StmtKind::If {
                then, otherwise, ..
            } => {
                mark(then, touched);
                mark(otherwise, touched);
            }
            StmtKind::Case { arms, .. } => arms.iter().for_each(|(_, arm)| mark(arm, touched)),
        }
    }
}

/// Adds what `body` assigns; refuses reads before writes if there is a kernel to name them.
fn walk(kernel: Option<&Kernel>, body: &[Stmt], assigned: &mut Assigned) -> Result<(), Problem> {
    for stmt in body {
        match &stmt.kind {
            StmtKind::Assign {
                target,
                low,
                bits,
                value,
            } => {
                reads(kernel, value, assigned)?;
                add(assigned.entry(*target).or_default(), *low, low + bits);
            }
            StmtKind::If {
                test,
                then,
                otherwise,
            } => {
                reads(kernel, test, assigned)?;
                let mut other = assigned.clone();
                walk(kernel, then, assigned)?;
                walk(kernel, otherwise, &mut other)?;
                intersect(assigned, &other);
            }
            StmtKind::Case { test, arms } => {
                reads(kernel, test, assigned)?;
                let mut after: Option<Assigned> = None;
                for (_, arm) in arms {
                    let mut branch = assigned.clone();
                    walk(kernel, arm, &mut branch)?;
                    match &mut after {
                        Some(after) => intersect(after, &branch),
                        None => after = Some(branch),
                    }
                }
                if let Some(after) = after {
                    *assigned = after;
                }
            }
        }
    }
    Ok(())
}

fn reads(kernel: Option<&Kernel>, expr: &Expr, assigned: &Assigned) -> Result<(), Problem> {
    let Some(kernel) = kernel else {
        return Ok(());
    };
    let mut result = Ok(());
    expr.reads(&mut |id, low, bits| {
        let symbol = &kernel.symbols[id];
        if symbol.is_immediate() && !covers(assigned.get(&id), low, low + bits) {
            result = Err(Problem::ReadBeforeWrite(symbol.key.replace('$', ".")));
        }
    });
    result
}

fn covers(ranges: Option<&Vec<(usize, usize)>>, low: usize, high: usize) -> bool {
    ranges.is_some_and(|ranges| ranges.iter().any(|&(l, h)| l <= low && high <= h))
}

fn add(ranges: &mut Vec<(usize, usize)>, low: usize, high: usize) {
    let (mut low, mut high) = (low, high);
    ranges.retain(|&(l, h)| {
        let apart = h < low || high < l;
        if !apart {
            low = low.min(l);
            high = high.max(h);
        }
        apart
    });
    ranges.push((low, high));
    ranges.sort_unstable();
}

fn intersect(assigned: &mut Assigned, other: &Assigned) {
    assigned.retain(|id, ranges| {
        let Some(theirs) = other.get(id) else {
            return false;
        };
        if ranges != theirs {
            let mut both = vec![];
            for &(l, h) in ranges.iter() {
                for &(tl, th) in theirs {
                    if l.max(tl) < h.min(th) {
                        both.push((l.max(tl), h.min(th)));
                    }
                }
            }
            *ranges = both;
        }
        !ranges.is_empty()
    });
}
