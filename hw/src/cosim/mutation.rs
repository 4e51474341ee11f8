//! One planted fault in the printed Verilog, to find out whether a test notices it.
//!
//! [`VARIABLE`] names a file with a [`Mutation`]. A build of its block then carries the fault. The fault is planted in the
//! text of the printer, so it can be anything that the generator could print by mistake, and the test under trial is
//! run as it is.

use super::tools::CosimError;
use crate::verilog::{fields, printed, Field};
use rust_hdl_core::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::PathBuf;

/// Environment variable with the path of a [`Mutation`] in JSON.
pub const VARIABLE: &str = "MPRDMA_MUTATION";

/// A change of one place in the Verilog of a block.
///
/// In both texts `signal.field` stands for the bits of a field of a register (`name_q.field`), local signal or port of
/// the block, and `signal.field[3]` for one bit of it, so that a mutation stays valid when records grow. Indentation
/// does not count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mutation {
    /// Name of the top module that carries the fault.
    pub block: String,
    /// Text that must be there exactly once.
    pub find: String,
    /// Text that takes its place.
    pub replace: String,
    /// A file that is made when the faulty block is compiled and loaded.
    pub started: PathBuf,
}

impl Mutation {
    /// The mutation that [`VARIABLE`] asks for, if it is one of the block `name`.
    pub(super) fn planted(name: &str) -> Result<Option<Self>, CosimError> {
        let Some(file) = std::env::var_os(VARIABLE) else {
            return Ok(None);
        };
        let file = PathBuf::from(file);
        let text = std::fs::read_to_string(&file)
            .map_err(CosimError::io(format!("reading {}", file.display())))?;
        let mutation: Self = serde_json::from_str(&text).map_err(|error| CosimError::Mutation {
            name: name.to_string(),
            reason: error.to_string(),
        })?;
        Ok((mutation.block == name).then_some(mutation))
    }

    /// The text of `block` with the fault.
    ///
    /// # Errors
    /// [`CosimError::Mutation`] if the place is not there exactly once, or a field is unknown.
    pub fn apply(&self, block: &dyn Block, verilog: &str) -> Result<String, CosimError> {
        let error = |reason: String| CosimError::Mutation {
            name: self.block.clone(),
            reason,
        };
        let places = field_bits(block);
        let find = flat(&resolve(&self.find, &places).map_err(error)?);
        let replace = flat(&resolve(&self.replace, &places).map_err(error)?);
        let verilog = flat(verilog);
        match verilog.matches(&find).count() {
            1 => Ok(verilog.replacen(&find, &replace, 1)),
            count => Err(error(format!("{count} places with this text:\n{find}"))),
        }
    }

    /// Says that the faulty block runs.
    pub(super) fn report(&self) -> Result<(), CosimError> {
        std::fs::write(&self.started, "").map_err(CosimError::io(format!(
            "writing {}",
            self.started.display()
        )))
    }
}

/// The lines without indentation.
fn flat(text: &str) -> String {
    let lines: Vec<&str> = text.trim().lines().map(str::trim).collect();
    lines.join("\n")
}

/// Where a field lies.
#[derive(Clone, Copy, PartialEq)]
struct Place {
    low: usize,
    bits: usize,
}

/// Replaces each `signal.field` and `signal.field[bit]` by the bits it stands for.
fn resolve(text: &str, fields: &HashMap<String, Place>) -> Result<String, String> {
    let in_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
    let mut out = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if !in_word(first) {
            out.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let end = rest.find(|c| !in_word(c)).unwrap_or(rest.len());
        let (word, mut after) = rest.split_at(end);
        match fields
            .get(word)
            .or_else(|| fields.get(&without_version(word)))
        {
            Some(Place { low, bits }) => {
                let signal = word.split('.').next().unwrap_or(word);
                let index = after
                    .strip_prefix('[')
                    .and_then(|rest| rest.split_once(']'));
                let index = index.and_then(|(n, rest)| Some((n.parse::<usize>().ok()?, rest)));
                let _ = match (index, bits) {
                    (Some((n, _)), _) if n >= *bits => {
                        return Err(format!("`{word}` has {bits} bits"))
                    }
                    (Some((n, behind)), _) => {
                        after = behind;
                        write!(out, "{signal}[{}]", low + n)
                    }
                    (None, 1) => write!(out, "{signal}[{low}]"),
                    (None, _) => write!(out, "{signal}[{}:{low}]", low + bits - 1),
                };
            }
            None if word.contains('.') && !word.starts_with('.') => {
                return Err(format!("no signal with a field `{word}`"))
            }
            None => out.push_str(word),
        }
        rest = after;
    }
    Ok(out)
}

/// `next.tail` for `next_v3.tail`: the printer's net for an intermediate value has the fields of its signal.
fn without_version(word: &str) -> String {
    let is_version = |v: &str| !v.is_empty() && v.bytes().all(|c| c.is_ascii_digit());
    word.split_once('.')
        .and_then(|(signal, field)| Some((signal.rsplit_once("_v")?, field)))
        .filter(|((_, version), _)| is_version(version))
        .map_or_else(String::new, |((signal, _), field)| {
            format!("{signal}.{field}")
        })
}

/// Every `signal.field` of the block and of the blocks below it. The block's own signals come first; a name that stands
/// for different bits in two blocks below is left out.
fn field_bits(block: &dyn Block) -> HashMap<String, Place> {
    #[derive(Default)]
    struct Fields {
        scopes: Vec<String>,
        namespaces: Vec<String>,
        own: HashMap<String, Place>,
        below: HashMap<String, Option<Place>>,
    }
    impl Fields {
        /// `depth` 1 is the block itself.
        fn add(&mut self, depth: usize, parts: &[&str], atom: &dyn Atom) {
            let signal = printed(&parts.join("$"));
            for Field { name, low, bits } in fields(&atom.descriptor()) {
                let (name, place) = (format!("{signal}.{name}"), Place { low, bits });
                if depth == 1 {
                    self.own.insert(name, place);
                } else {
                    let known = self.below.entry(name).or_insert(Some(place));
                    *known = known.filter(|known| *known == place);
                }
            }
        }
    }
    impl Probe for Fields {
        fn visit_start_scope(&mut self, name: &str, _node: &dyn Block) {
            self.scopes.push(name.to_string());
        }
        fn visit_end_scope(&mut self, _name: &str, _node: &dyn Block) {
            self.scopes.pop();
        }
        fn visit_start_namespace(&mut self, name: &str, _node: &dyn Block) {
            self.namespaces.push(name.to_string());
        }
        fn visit_end_namespace(&mut self, _name: &str, _node: &dyn Block) {
            self.namespaces.pop();
        }
        fn visit_atom(&mut self, name: &str, atom: &dyn Atom) {
            let depth = self.scopes.len();
            let namespaces = self.namespaces.clone();
            let mut parts: Vec<&str> = namespaces.iter().map(String::as_str).collect();
            parts.push(name);
            self.add(depth, &parts, atom);
            // A port is a signal of the block around it, too.
            if let Some(instance) = self.scopes.last().cloned().filter(|_| depth > 1) {
                parts.insert(0, &instance);
                self.add(depth - 1, &parts, atom);
            }
        }
    }
    let mut probe = Fields::default();
    block.accept("top", &mut probe);
    let below = probe.below.into_iter();
    let mut places: HashMap<String, Place> = below
        .filter_map(|(name, place)| Some((name, place?)))
        .collect();
    places.extend(probe.own);
    places
}
