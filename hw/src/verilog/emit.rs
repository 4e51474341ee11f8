//! Writes the text of one module.

use super::check::check;
use super::collect::{Module, SignalInfo};
use super::error::{PrintError, Problem};
use super::kernel::{lower, Amount, Expr, Kernel, Node, Op, Stmt, StmtKind, SymbolId, SymbolKind};
use super::names::{printed, Scope};
use super::split::{collect_reads, split, Block};
use rust_hdl_core::ast::VerilogBlock;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write;

const INDENT: &str = "    ";

/// `[7:0] ` or nothing for one bit.
pub(crate) fn range(bits: usize) -> String {
    if bits == 1 {
        String::new()
    } else {
        format!("[{}:0] ", bits - 1)
    }
}

/// The port list of a module. Names are checked by the caller.
pub(crate) fn port_list(module: &Module) -> String {
    let ports: Vec<String> = module
        .ports()
        .map(|port| {
            let direction = match port.kind {
                rust_hdl_core::prelude::AtomKind::InputParameter => "input  wire ",
                _ => "output logic ",
            };
            format!(
                "{INDENT}{direction}{}{}",
                range(port.bits),
                printed(&port.name)
            )
        })
        .collect();
    format!("(\n{}\n);\n", ports.join(",\n"))
}

/// How the logic of one target prints.
enum Drive {
    /// One unconditional assignment.
    Simple(Expr),
    /// An `always` block.
    Block,
}

/// The instances a kernel module contains: child index to module name, filled in by the caller.
pub(crate) type ChildNames = BTreeMap<usize, String>;

/// The text of a kernel module from its port list on.
pub(crate) fn kernel_module(
    module: &Module,
    code: &VerilogBlock,
    child_names: &ChildNames,
) -> Result<String, PrintError> {
    let mut scope = Scope::default();
    let mut kernel = lower(module, code, &mut scope)?;
    let mut text = || {
        check_resets(module, &kernel)?;
        check(&kernel, &|id| is_setup_reset(&kernel, id))?;
        let blocks = split(&mut kernel, &mut scope)?;
        Emitter::new(module, &kernel, &blocks)?.module(child_names)
    };
    text().map_err(|problem| module.error(problem))
}

/// The reset of a register that `dff_setup!` connects, unless the kernel assigns it itself.
fn is_setup_reset(kernel: &Kernel, id: SymbolId) -> bool {
    match &kernel.symbols[id].child {
        Some((child, port)) => {
            port == "reset"
                && kernel.setup_registers.contains(child)
                && !kernel.assigned.contains(&id)
        }
        None => false,
    }
}

fn check_resets(module: &Module, kernel: &Kernel) -> Result<(), Problem> {
    for (index, child) in module.children.iter().enumerate() {
        if child.register_init().is_none() {
            continue;
        }
        if let Some(reset) = symbol_of(kernel, index, "reset") {
            if !kernel.assigned.contains(&reset) && !is_setup_reset(kernel, reset) {
                return Err(Problem::Reset(child.instance.replace('$', ".")));
            }
        }
    }
    Ok(())
}

fn symbol_of(kernel: &Kernel, child: usize, port: &str) -> Option<SymbolId> {
    kernel
        .symbols
        .iter()
        .position(|symbol| matches!(&symbol.child, Some((c, p)) if *c == child && p == port))
}

struct Emitter<'a> {
    module: &'a Module,
    kernel: &'a Kernel,
    /// Signals some expression of the kernel reads.
    read: BTreeSet<SymbolId>,
    drives: BTreeMap<SymbolId, Drive>,
    /// In program order.
    blocks: &'a [Block],
    /// Constants and enum values that the text mentions.
    used_constants: RefCell<BTreeSet<SymbolId>>,
    used_enums: RefCell<BTreeSet<String>>,
    printed_comments: RefCell<HashSet<usize>>,
}

/// A piece of expression text.
struct Text {
    text: String,
    /// Needs parentheses as an operand.
    compound: bool,
}

impl Text {
    fn atom(text: String) -> Self {
        Self {
            text,
            compound: false,
        }
    }

    fn compound(text: String) -> Self {
        Self {
            text,
            compound: true,
        }
    }

    /// As the operand of a unary operator; Yosys reads `~8'(x)` as `(~8)'(x)`.
    fn unary_operand(self) -> String {
        if self.compound || self.text.contains("'(") {
            format!("({})", self.text)
        } else {
            self.text
        }
    }

    fn operand(self) -> String {
        if self.compound {
            format!("({})", self.text)
        } else {
            self.text
        }
    }
}

impl<'a> Emitter<'a> {
    fn new(module: &'a Module, kernel: &'a Kernel, blocks: &'a [Block]) -> Result<Self, Problem> {
        let mut read = BTreeSet::new();
        let mut drives = BTreeMap::new();
        for Block { target, body } in blocks {
            collect_reads(body, &mut read);
            let drive = match &body[..] {
                [Stmt {
                    kind: StmtKind::Assign { bits, value, .. },
                    ..
                }] if *bits == kernel.symbols[*target].bits => Drive::Simple(value.clone()),
                _ => Drive::Block,
            };
            drives.insert(*target, drive);
        }
        let emitter = Self {
            module,
            kernel,
            read,
            drives,
            blocks,
            used_constants: RefCell::default(),
            used_enums: RefCell::default(),
            printed_comments: RefCell::default(),
        };
        emitter.check_clocks()?;
        Ok(emitter)
    }

    fn check_clocks(&self) -> Result<(), Problem> {
        for (id, symbol) in self.kernel.symbols.iter().enumerate() {
            if !symbol.is_clock() || !symbol.is_target() {
                continue;
            }
            let plain = matches!(
                self.drives.get(&id),
                Some(Drive::Simple(Expr { node: Node::Signal(source), .. }))
                    if self.kernel.symbols[*source].is_clock()
            );
            if !plain {
                return Err(Problem::Clock(symbol.key.replace('$', ".")));
            }
        }
        Ok(())
    }

    fn is_register(&self, id: SymbolId) -> bool {
        match &self.kernel.symbols[id].child {
            Some((child, _)) => self.module.children[*child].register_init().is_some(),
            None => false,
        }
    }

    /// The expression wired straight to where the target is used, so that the target needs no net.
    fn inlined(&self, id: SymbolId) -> Option<&Expr> {
        let symbol = &self.kernel.symbols[id];
        if symbol.kind != SymbolKind::ChildInput || self.read.contains(&id) {
            return None;
        }
        let Some(Drive::Simple(value)) = self.drives.get(&id) else {
            return None;
        };
        let is_d = matches!(&symbol.child, Some((_, port)) if port == "d");
        let plain = matches!(
            value.node,
            Node::Signal(_) | Node::Value(_) | Node::Enum(..) | Node::Part(..)
        );
        (plain || self.is_register(id) && is_d).then_some(value)
    }

    fn module(&self, child_names: &ChildNames) -> Result<String, Problem> {
        let mut logic = String::new();
        for block in self.blocks {
            self.block(block, &mut logic);
        }
        let clocked = self.clocked()?;
        let instances = self.instances(child_names);

        let mut text = port_list(self.module);
        let mut parameters = String::new();
        for &id in self.used_constants.borrow().iter() {
            let symbol = &self.kernel.symbols[id];
            if let SymbolKind::Constant(value) = &symbol.kind {
                let _ = writeln!(
                    parameters,
                    "{INDENT}localparam {}{} = {};",
                    range(symbol.bits),
                    symbol.text,
                    value.verilog()
                );
            }
        }
        for name in self.used_enums.borrow().iter() {
            if let Some((value, bits)) = self.kernel.enums.get(name) {
                let _ = writeln!(
                    parameters,
                    "{INDENT}localparam {}{name} = {bits}'d{value};",
                    range(*bits)
                );
            }
        }
        let mut nets = String::new();
        let mut initials = String::new();
        for (id, symbol) in self.kernel.symbols.iter().enumerate() {
            let declared = match symbol.kind {
                SymbolKind::Input | SymbolKind::Output | SymbolKind::Constant(_) => false,
                SymbolKind::Local => self.drives.contains_key(&id),
                SymbolKind::ChildInput => {
                    self.kernel.assigned.contains(&id) && self.inlined(id).is_none()
                }
                SymbolKind::ChildOutput => self.is_register(id) || self.read.contains(&id),
            };
            if declared {
                let _ = writeln!(nets, "{INDENT}logic {}{};", range(symbol.bits), symbol.text);
            }
            if let (SymbolKind::ChildOutput, Some((child, _))) = (&symbol.kind, &symbol.child) {
                if let Some(init) = self.module.children[*child].register_init() {
                    let _ = writeln!(initials, "{INDENT}initial {} = {init};", symbol.text);
                }
            }
        }
        for section in [parameters, nets, initials, instances, logic, clocked] {
            if !section.is_empty() {
                text.push('\n');
                text.push_str(&section);
            }
        }
        Ok(text)
    }

    fn block(&self, block: &Block, out: &mut String) {
        if self.inlined(block.target).is_some() {
            return;
        }
        if let ([stmt], Some(Drive::Simple(value))) =
            (&block.body[..], self.drives.get(&block.target))
        {
            self.comments(stmt, 1, out);
            let name = &self.kernel.symbols[block.target].text;
            let _ = writeln!(out, "{INDENT}assign {name} = {};", self.exact(value));
            return;
        }
        // Icarus Verilog never runs an `always @(*)` that waits for nothing.
        let always = if self.is_constant(block) {
            "always_comb"
        } else {
            "always @(*)"
        };
        let _ = writeln!(out, "{INDENT}{always} begin");
        self.body(&block.body, 2, out);
        out.push_str(INDENT);
        out.push_str("end\n");
    }

    /// The block reads nothing but constants and what it has assigned itself.
    fn is_constant(&self, block: &Block) -> bool {
        let mut read = BTreeSet::new();
        collect_reads(&block.body, &mut read);
        read.iter().all(|&id| {
            id == block.target || matches!(self.kernel.symbols[id].kind, SymbolKind::Constant(_))
        })
    }

    fn comments(&self, stmt: &Stmt, depth: usize, out: &mut String) {
        if !stmt.comments.is_empty() && self.printed_comments.borrow_mut().insert(stmt.at) {
            for line in &stmt.comments {
                let _ = writeln!(out, "{}// {line}", INDENT.repeat(depth));
            }
        }
    }

    fn body(&self, body: &[Stmt], depth: usize, out: &mut String) {
        let pad = INDENT.repeat(depth);
        for stmt in body {
            self.comments(stmt, depth, out);
            match &stmt.kind {
                StmtKind::Assign {
                    target,
                    low,
                    bits,
                    value,
                } => {
                    let symbol = &self.kernel.symbols[*target];
                    let part = part(&symbol.text, symbol.bits, *low, *bits);
                    let _ = writeln!(out, "{pad}{part} = {};", self.exact(value));
                }
                StmtKind::If {
                    test,
                    then,
                    otherwise,
                } => {
                    out.push_str(&pad);
                    self.conditional(test, then, otherwise, depth, out);
                }
                StmtKind::Case { test, arms } => {
                    let _ = writeln!(out, "{pad}case ({})", self.text(test).text);
                    for (label, arm) in arms {
                        let label = match label {
                            Some(label) => self.text(label).text,
                            None => "default".to_string(),
                        };
                        if arm.is_empty() {
                            let _ = writeln!(out, "{pad}{INDENT}{label}: ;");
                            continue;
                        }
                        let _ = writeln!(out, "{pad}{INDENT}{label}: begin");
                        self.body(arm, depth + 2, out);
                        let _ = writeln!(out, "{pad}{INDENT}end");
                    }
                    let _ = writeln!(out, "{pad}endcase");
                }
            }
        }
    }

    fn conditional(
        &self,
        test: &Expr,
        then: &[Stmt],
        otherwise: &[Stmt],
        depth: usize,
        out: &mut String,
    ) {
        let pad = INDENT.repeat(depth);
        // Projection can leave the first branch empty.
        let (test, then, otherwise) = if then.is_empty() {
            (
                format!("!{}", self.text(test).unary_operand()),
                otherwise,
                then,
            )
        } else {
            (self.text(test).text, then, otherwise)
        };
        let _ = writeln!(out, "if ({test}) begin");
        self.body(then, depth + 1, out);
        match otherwise {
            [] => {
                let _ = writeln!(out, "{pad}end");
            }
            [Stmt {
                comments,
                kind:
                    StmtKind::If {
                        test,
                        then,
                        otherwise,
                    },
                ..
            }] if comments.is_empty() => {
                let _ = write!(out, "{pad}end else ");
                self.conditional(test, then, otherwise, depth, out);
            }
            _ => {
                let _ = writeln!(out, "{pad}end else begin");
                self.body(otherwise, depth + 1, out);
                let _ = writeln!(out, "{pad}end");
            }
        }
    }

    /// One `always @(posedge ..)` block per clock.
    fn clocked(&self) -> Result<String, Problem> {
        #[derive(Default)]
        struct Domain {
            /// Reset net to the two branches.
            with_reset: BTreeMap<String, (String, String)>,
            without: String,
        }
        let mut domains: BTreeMap<String, Domain> = BTreeMap::new();
        for (index, child) in self.module.children.iter().enumerate() {
            let Some(init) = child.register_init() else {
                continue;
            };
            let id = |port: &str| {
                symbol_of(self.kernel, index, port)
                    .ok_or_else(|| Problem::UnknownName(format!("{}${port}", child.instance)))
            };
            let (clock, d, q) = (id("clock")?, id("d")?, id("q")?);
            let clock = match self.inlined(clock) {
                Some(source) => self.text(source).text,
                None => self.kernel.symbols[clock].text.clone(),
            };
            let q = &self.kernel.symbols[q].text;
            let load = match self.inlined(d) {
                Some(value) => self.exact(value),
                None => self.kernel.symbols[d].text.clone(),
            };
            let domain = domains.entry(clock).or_default();
            if child.port("reset").is_none() {
                let _ = writeln!(domain.without, "{INDENT}{INDENT}{q} <= {load};");
                continue;
            }
            let reset_id = id("reset")?;
            let reset = if is_setup_reset(self.kernel, reset_id) {
                let port = self.module.port("reset").filter(|port| {
                    port.bits == 1 && port.kind == rust_hdl_core::prelude::AtomKind::InputParameter
                });
                match port {
                    Some(port) => printed(&port.name),
                    None => return Err(Problem::NoResetPort(child.instance.replace('$', "."))),
                }
            } else {
                match self.inlined(reset_id) {
                    Some(value) => self.text(value).text,
                    None => self.kernel.symbols[reset_id].text.clone(),
                }
            };
            let branches = domain.with_reset.entry(reset).or_default();
            let pad = INDENT.repeat(3);
            let _ = writeln!(branches.0, "{pad}{q} <= {init};");
            let _ = writeln!(branches.1, "{pad}{q} <= {load};");
        }
        let mut out = String::new();
        for (clock, domain) in domains {
            let _ = writeln!(out, "{INDENT}always @(posedge {clock}) begin");
            for (reset, (initial, load)) in domain.with_reset {
                let pad = INDENT.repeat(2);
                let _ = write!(
                    out,
                    "{pad}if ({reset}) begin\n{initial}{pad}end else begin\n{load}{pad}end\n"
                );
            }
            let _ = writeln!(out, "{}{INDENT}end", domain.without);
        }
        Ok(out)
    }

    fn instances(&self, child_names: &ChildNames) -> String {
        let mut out = String::new();
        for (index, child) in self.module.children.iter().enumerate() {
            let Some(name) = child_names.get(&index) else {
                continue;
            };
            let pins: Vec<String> = child
                .ports()
                .map(|port| {
                    format!(
                        "{INDENT}{INDENT}.{}({})",
                        printed(&port.name),
                        self.pin(index, port)
                    )
                })
                .collect();
            let _ = writeln!(
                out,
                "{INDENT}{name} {} (\n{}\n{INDENT});",
                printed(&child.instance),
                pins.join(",\n")
            );
        }
        out
    }

    fn pin(&self, child: usize, port: &SignalInfo) -> String {
        let Some(id) = symbol_of(self.kernel, child, &port.name) else {
            return String::new();
        };
        let symbol = &self.kernel.symbols[id];
        match symbol.kind {
            SymbolKind::ChildInput => match self.inlined(id) {
                Some(value) => self.text(value).text,
                None => symbol.text.clone(),
            },
            // An output nobody reads stays open.
            _ if self.read.contains(&id) => symbol.text.clone(),
            _ => String::new(),
        }
    }

    /// Text for an assignment to exactly `expr.bits` bits, where the assignment itself wraps.
    fn exact(&self, expr: &Expr) -> String {
        match &expr.node {
            Node::Binary(op @ (Op::Add | Op::Sub), left, right) => format!(
                "{} {} {}",
                self.text(left).operand(),
                op.symbol(),
                self.text(right).operand()
            ),
            Node::Not(base) if expr.bits > 1 => format!("~{}", self.text(base).unary_operand()),
            Node::Neg(base) => format!("-{}", self.text(base).unary_operand()),
            Node::Shift {
                left: true,
                base,
                amount,
            } => format!("{} << {}", self.text(base).operand(), self.amount(amount)),
            _ => self.text(expr).text,
        }
    }

    fn amount(&self, amount: &Amount) -> String {
        match amount {
            Amount::Fixed(value) => value.to_string(),
            Amount::Variable(expr) => self.text(expr).operand(),
        }
    }

    fn text(&self, expr: &Expr) -> Text {
        let bits = expr.bits;
        match &expr.node {
            Node::Value(value) => Text::atom(value.verilog()),
            Node::Enum(name, _) => {
                self.used_enums.borrow_mut().insert(name.clone());
                Text::atom(name.clone())
            }
            Node::Signal(id) => {
                let symbol = &self.kernel.symbols[*id];
                if let SymbolKind::Constant(_) = symbol.kind {
                    self.used_constants.borrow_mut().insert(*id);
                }
                Text::atom(symbol.text.clone())
            }
            Node::Part(id, low) => {
                let symbol = &self.kernel.symbols[*id];
                if let SymbolKind::Constant(value) = &symbol.kind {
                    return Text::atom(value.slice(*low, bits).verilog());
                }
                Text::atom(part(&symbol.text, symbol.bits, *low, bits))
            }
            Node::Select(base, Amount::Fixed(0)) => {
                Text::atom(format!("{bits}'({})", self.text(base).text))
            }
            Node::Select(base, position) => {
                if let (Node::Signal(id), Amount::Variable(index)) = (&base.node, position) {
                    // Every value of the index hits a bit.
                    if bits == 1 && index.bits < 32 && 1 << index.bits == base.bits {
                        let name = &self.kernel.symbols[*id].text;
                        return Text::atom(format!("{name}[{}]", self.text(index).text));
                    }
                }
                Text::atom(format!(
                    "{bits}'({} >> {})",
                    self.text(base).operand(),
                    self.amount(position)
                ))
            }
            Node::Not(base) if bits == 1 => {
                Text::compound(format!("!{}", self.text(base).unary_operand()))
            }
            Node::Not(base) => Text::atom(format!("{bits}'(~{})", self.text(base).unary_operand())),
            Node::Neg(base) => Text::atom(format!("{bits}'(-{})", self.text(base).unary_operand())),
            Node::Reduce(op, base) => {
                Text::compound(format!("{op}{}", self.text(base).unary_operand()))
            }
            Node::Binary(op, left, right) => {
                let compare = matches!(op, Op::Lt | Op::Le | Op::Gt | Op::Ge);
                let operand = |side: &Expr| {
                    if side.signed && (compare || *op == Op::Mul) {
                        format!("$signed({})", self.text(side).text)
                    } else {
                        self.text(side).operand()
                    }
                };
                let text = format!("{} {} {}", operand(left), op.symbol(), operand(right));
                match op {
                    Op::Add | Op::Sub => Text::atom(format!("{bits}'({text})")),
                    // The zero gives the product its full width.
                    Op::Mul if expr.signed => Text::atom(format!("{bits}'({text} + {bits}'sd0)")),
                    Op::Mul => Text::atom(format!("{bits}'({text} + {bits}'d0)")),
                    _ => Text::compound(text),
                }
            }
            Node::Shift { left, base, amount } => {
                let (base, amount) = (self.text(base).operand(), self.amount(amount));
                if *left {
                    Text::atom(format!("{bits}'({base} << {amount})"))
                } else {
                    Text::compound(format!("{base} >> {amount}"))
                }
            }
            Node::ZeroExtend(base) => Text::atom(format!(
                "{{{}'h0, {}}}",
                bits - base.bits,
                self.text(base).text
            )),
            Node::SignExtend(base) => Text::atom(match base.node {
                Node::Signal(_) | Node::Part(..) => {
                    let text = self.text(base).text;
                    let sign = match &base.node {
                        Node::Part(id, low) => part(
                            &self.kernel.symbols[*id].text,
                            self.kernel.symbols[*id].bits,
                            low + base.bits - 1,
                            1,
                        ),
                        _ => part(&text, base.bits, base.bits - 1, 1),
                    };
                    format!("{{{{{}{{{sign}}}}}, {text}}}", bits - base.bits)
                }
                _ => format!("{bits}'($signed({}))", self.text(base).text),
            }),
            Node::ReplaceBit { base, index, value } => {
                let (base, index) = (self.text(base).operand(), self.amount(index));
                let value = self.text(value).text;
                if bits == 1 {
                    return Text::atom(value);
                }
                let one = format!("{bits}'h1");
                Text::compound(format!(
                    "({base} & {bits}'(~({one} << {index}))) | {bits}'({{{}'h0, {value}}} << {index})",
                    bits - 1
                ))
            }
        }
    }
}

/// `name`, `name[3]` or `name[7:4]`.
fn part(name: &str, of: usize, low: usize, bits: usize) -> String {
    if low == 0 && bits == of {
        name.to_string()
    } else if bits == 1 {
        format!("{name}[{low}]")
    } else {
        format!("{name}[{}:{low}]", low + bits - 1)
    }
}
