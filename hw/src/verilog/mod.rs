//! Prints a block as flat SystemVerilog that Verilator, Yosys and Icarus Verilog read alike.
//!
//! rust-hdl hands out a kernel's statements as an AST. This printer tracks the width of every expression, so the Verilog
//! wraps and compares as the Rust does; what it cannot translate is a [`PrintError`], never a guess. Registers become
//! one clocked block per clock, each target gets its own combinational block, and identical modules are printed once.

mod check;
pub(crate) mod collect;
mod emit;
mod error;
mod kernel;
mod names;
mod split;
mod value;

pub use error::{PrintError, Problem};

pub(crate) use collect::type_bits;
use collect::{collect, Module};
use emit::{kernel_module, port_list, ChildNames};
pub(crate) use names::printed;
use names::{module_name, Scope, KEYWORDS};
use rust_hdl_core::prelude::*;
use serde::Serialize;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Direction of a port, seen from the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Dir {
    In,
    Out,
}

/// A field of a struct port, at `low..low + bits` of its vector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Field {
    /// Field name; nested fields are joined by dots.
    pub name: String,
    pub low: usize,
    pub bits: usize,
}

/// A port of the printed module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Port {
    /// Verilog name.
    pub name: String,
    pub dir: Dir,
    pub bits: usize,
    /// Carries a clock.
    pub clock: bool,
    /// Fields of a `LogicStruct` port, empty for others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<Field>,
}

/// The fields of a struct type with their positions, lowest first; empty for plain types.
pub fn fields(ty: &TypeDescriptor) -> Vec<Field> {
    fn walk(ty: &TypeDescriptor, name: &str, low: usize, out: &mut Vec<Field>) {
        match &ty.kind {
            TypeKind::Composite(members) => {
                let mut low = low;
                for member in members {
                    let name = if name.is_empty() {
                        member.fieldname.clone()
                    } else {
                        format!("{name}.{}", member.fieldname)
                    };
                    walk(&member.kind, &name, low, out);
                    low += type_bits(&member.kind);
                }
            }
            _ if name.is_empty() => {}
            _ => out.push(Field {
                name: name.to_string(),
                low,
                bits: type_bits(ty),
            }),
        }
    }
    let mut out = vec![];
    walk(ty, "", 0, &mut out);
    out
}

/// The ports of `block` as the printed module has them.
pub fn ports(block: &dyn Block) -> Vec<Port> {
    struct Ports {
        depth: usize,
        namespace: Vec<String>,
        ports: Vec<Port>,
    }
    impl Probe for Ports {
        fn visit_start_scope(&mut self, _name: &str, _node: &dyn Block) {
            self.depth += 1;
        }
        fn visit_end_scope(&mut self, _name: &str, _node: &dyn Block) {
            self.depth -= 1;
        }
        fn visit_start_namespace(&mut self, name: &str, _node: &dyn Block) {
            self.namespace.push(name.to_string());
        }
        fn visit_end_namespace(&mut self, _name: &str, _node: &dyn Block) {
            self.namespace.pop();
        }
        fn visit_atom(&mut self, name: &str, atom: &dyn Atom) {
            if self.depth != 1 || !atom.kind().is_parameter() {
                return;
            }
            let mut parts = self.namespace.clone();
            parts.push(name.to_string());
            let ty = atom.descriptor();
            self.ports.push(Port {
                name: printed(&parts.join("$")),
                dir: match atom.kind() {
                    AtomKind::InputParameter => Dir::In,
                    _ => Dir::Out,
                },
                bits: atom.bits(),
                clock: ty.name == "clock",
                fields: fields(&ty),
            });
        }
    }
    let mut probe = Ports {
        depth: 0,
        namespace: vec![],
        ports: vec![],
    };
    block.accept("top", &mut probe);
    probe.ports
}

/// The Verilog of `block` and everything below it; the top module is called `top`.
///
/// The block must be fresh and connected (`connect_all`). The text depends on nothing but the block.
pub fn generate(block: &dyn Block, top: &str) -> Result<String, PrintError> {
    let root = collect(block, top)?;
    let mut printer = Printer::default();
    printer.names.insert(top.to_string());
    printer.module(&root, Some(top))?;
    let mut text = String::from(
        "// Generated from the Rust sources of mprdma. Do not edit.\n`default_nettype none\n\n",
    );
    text.push_str(&printer.modules.join("\n"));
    text.push_str("\n`default_nettype wire\n");
    for stub in &printer.stubs {
        text.push('\n');
        text.push_str(stub.trim_end());
        text.push('\n');
    }
    Ok(text)
}

#[derive(Default)]
struct Printer {
    modules: Vec<String>,
    /// Module text to the name it was printed under.
    printed: HashMap<String, String>,
    names: HashSet<String>,
    /// Declarations of vendor cells.
    stubs: BTreeSet<String>,
}

impl Printer {
    /// Prints the module unless an identical one exists, and returns its name.
    fn module(&mut self, module: &Module, top: Option<&str>) -> Result<String, PrintError> {
        let text = match &module.code {
            Verilog::Combinatorial(code) => {
                let mut names = ChildNames::new();
                for (index, child) in module.children.iter().enumerate() {
                    if child.register_init().is_none() {
                        names.insert(index, self.module(child, None)?);
                    }
                }
                kernel_module(module, code, &names)?
            }
            Verilog::Custom(code) => {
                Self::check_leaf(module)?;
                format!("{}\n{}\n", port_list(module), code.trim_end())
            }
            Verilog::Wrapper(wrapper) => {
                Self::check_leaf(module)?;
                self.stubs.insert(wrapper.cores.clone());
                format!("{}\n{}\n", port_list(module), wrapper.code.trim_end())
            }
            Verilog::Blackbox(blackbox) => {
                Self::check_leaf(module)?;
                self.stubs.insert(blackbox.code.clone());
                return Ok(blackbox.name.clone());
            }
            Verilog::Empty => {
                return Err(module.error(Problem::Unsupported(
                    "a block without Verilog (`#[hdl_gen]` is missing, or `hdl()`)".into(),
                )))
            }
        };
        if let (Some(name), None) = (self.printed.get(&text), top) {
            return Ok(name.clone());
        }
        let name = match top {
            Some(top) => top.to_string(),
            None => self.fresh_name(module),
        };
        let origin = match &module.type_name {
            Some(type_name) => format!("// {}\n", short_type(type_name)),
            None => String::new(),
        };
        self.modules
            .push(format!("{origin}module {name} {text}endmodule\n"));
        self.printed.insert(text, name.clone());
        Ok(name)
    }

    /// A block with its own Verilog text: names checked, nothing below it.
    fn check_leaf(module: &Module) -> Result<(), PrintError> {
        let mut scope = Scope::default();
        for signal in &module.signals {
            scope
                .claim(&signal.name)
                .map_err(|problem| module.error(problem))?;
        }
        match module.children.first() {
            None => Ok(()),
            Some(child) => Err(module.error(Problem::Unsupported(format!(
                "child `{}` in a block with Verilog text of its own",
                child.instance
            )))),
        }
    }

    fn fresh_name(&mut self, module: &Module) -> String {
        let base = match &module.type_name {
            Some(type_name) => module_name(type_name),
            None => {
                let name = printed(&module.instance);
                let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '_');
                if KEYWORDS.contains(&name) {
                    format!("m_{name}")
                } else {
                    name.to_string()
                }
            }
        };
        let mut name = base.clone();
        let mut number = 1;
        while !self.names.insert(name.clone()) {
            number += 1;
            name = format!("{base}_{number}");
        }
        name
    }
}

/// A Rust type name without module paths.
fn short_type(name: &str) -> String {
    let mut out = String::new();
    let mut word = String::new();
    let mut rest = name.chars().peekable();
    while let Some(c) = rest.next() {
        if c == ':' && rest.peek() == Some(&':') {
            rest.next();
            word.clear();
        } else if c.is_alphanumeric() || c == '_' {
            word.push(c);
        } else {
            out.push_str(&std::mem::take(&mut word));
            out.push(c);
        }
    }
    out + &word
}
