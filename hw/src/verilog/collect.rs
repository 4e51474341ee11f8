//! Walks a block with a [`Probe`] and keeps what the printer needs.

use super::error::{PrintError, Problem};
use super::value::Value;
use crate::register::{NAME_MARK, REGISTER_MARK};
use rust_hdl_core::prelude::*;
use std::collections::BTreeMap;

/// One instance in the hierarchy.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) instance: String,
    /// Rust type, if the block carries a `NameOf`.
    pub(crate) type_name: Option<String>,
    pub(crate) path: String,
    pub(crate) signals: Vec<SignalInfo>,
    pub(crate) code: Verilog,
    pub(crate) children: Vec<Module>,
}

/// A signal or constant of an instance.
#[derive(Clone, Debug)]
pub(crate) struct SignalInfo {
    /// Name with `$` between interface fields and before array indices.
    pub(crate) name: String,
    pub(crate) kind: AtomKind,
    pub(crate) bits: usize,
    pub(crate) ty: TypeDescriptor,
    /// The value of a `Constant`.
    pub(crate) value: Option<Value>,
}

impl SignalInfo {
    pub(crate) fn is_port(&self) -> bool {
        self.kind.is_parameter()
    }
}

impl Module {
    pub(crate) fn error(&self, problem: Problem) -> PrintError {
        PrintError {
            path: self.path.clone(),
            problem,
        }
    }

    pub(crate) fn ports(&self) -> impl Iterator<Item = &SignalInfo> {
        self.signals.iter().filter(|signal| signal.is_port())
    }

    pub(crate) fn port(&self, name: &str) -> Option<&SignalInfo> {
        self.ports().find(|signal| signal.name == name)
    }

    /// The initial value if this is a `Reg` or a `Pipe`.
    pub(crate) fn register_init(&self) -> Option<&str> {
        match &self.code {
            Verilog::Custom(text) => text
                .strip_prefix(REGISTER_MARK)
                .and_then(|rest| rest.lines().next()),
            _ => None,
        }
    }
}

/// Bits a type takes in a packed vector.
pub(crate) fn type_bits(ty: &TypeDescriptor) -> usize {
    match &ty.kind {
        TypeKind::Bits(bits) | TypeKind::Signed(bits) => *bits,
        TypeKind::Enum(values) => clog2(values.len()),
        TypeKind::Composite(fields) => fields.iter().map(|field| type_bits(&field.kind)).sum(),
    }
}

/// Adds the enum values of a type: `Type$Value` to (value, bits).
pub(crate) fn enum_values(
    ty: &TypeDescriptor,
    values: &mut BTreeMap<String, (usize, usize)>,
) -> Result<(), Problem> {
    match &ty.kind {
        TypeKind::Enum(names) => {
            let bits = clog2(names.len());
            for (value, name) in names.iter().enumerate() {
                let name = name.replace("::", "$");
                let entry = (value, bits);
                if *values.entry(name.clone()).or_insert(entry) != entry {
                    return Err(Problem::EnumCollision(name));
                }
            }
        }
        TypeKind::Composite(fields) => {
            for field in fields {
                enum_values(&field.kind, values)?;
            }
        }
        TypeKind::Bits(_) | TypeKind::Signed(_) => {}
    }
    Ok(())
}

#[derive(Default)]
struct Collector {
    open: Vec<(Module, Vec<String>)>,
    done: Option<Module>,
    error: Option<PrintError>,
}

impl Probe for Collector {
    fn visit_start_scope(&mut self, name: &str, node: &dyn Block) {
        let path = match self.open.last() {
            Some((parent, _)) => format!("{}.{}", parent.path, name.replace('$', "_")),
            None => name.to_string(),
        };
        let module = Module {
            instance: name.to_string(),
            type_name: None,
            path,
            signals: vec![],
            code: node.hdl(),
            children: vec![],
        };
        self.open.push((module, vec![]));
    }

    fn visit_end_scope(&mut self, _name: &str, _node: &dyn Block) {
        if let Some((module, _)) = self.open.pop() {
            match self.open.last_mut() {
                Some((parent, _)) => parent.children.push(module),
                None => self.done = Some(module),
            }
        }
    }

    fn visit_start_namespace(&mut self, name: &str, _node: &dyn Block) {
        if let Some((module, namespace)) = self.open.last_mut() {
            if let Some(type_name) = name.strip_prefix(NAME_MARK) {
                module.type_name = Some(type_name.to_string());
            }
            namespace.push(name.to_string());
        }
    }

    fn visit_end_namespace(&mut self, _name: &str, _node: &dyn Block) {
        if let Some((_, namespace)) = self.open.last_mut() {
            namespace.pop();
        }
    }

    fn visit_atom(&mut self, name: &str, atom: &dyn Atom) {
        let Some((module, namespace)) = self.open.last_mut() else {
            return;
        };
        let mut parts = namespace.clone();
        parts.push(name.to_string());
        let name = parts.join("$");
        let bits = atom.bits();
        let mut problem = None;
        if bits == 0 {
            problem = Some(Problem::NoBits(name.clone()));
        }
        if atom.kind() == AtomKind::InOutParameter {
            problem = Some(Problem::Unsupported(format!("InOut signal `{name}`")));
        }
        let value = match atom.kind() {
            AtomKind::Constant => Value::from_literal(&atom.verilog(), bits),
            _ => None,
        };
        if let (Some(problem), None) = (problem, &self.error) {
            self.error = Some(module.error(problem));
        }
        module.signals.push(SignalInfo {
            name,
            kind: atom.kind(),
            bits,
            ty: atom.descriptor(),
            value,
        });
    }
}

/// The hierarchy below `block`.
pub(crate) fn collect(block: &dyn Block, top: &str) -> Result<Module, PrintError> {
    let mut collector = Collector::default();
    block.accept(top, &mut collector);
    if let Some(error) = collector.error {
        return Err(error);
    }
    collector.done.ok_or_else(|| PrintError {
        path: top.to_string(),
        problem: Problem::Unsupported("a signal or an interface as the top".into()),
    })
}
