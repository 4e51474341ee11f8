//! Finds the memories of a design: every RAM that the generator prints, with the record it holds.

use super::StateError;
use crate::verilog::collect::{collect, Module};
use rust_hdl_core::prelude::*;

/// A RAM of the design.
pub(super) struct Memory {
    /// Instance path below the top, e.g. `sender.pipeline.contexts`.
    pub(super) path: String,
    /// log2 of the words.
    pub(super) depth_log2: usize,
    /// What a word holds.
    pub(super) word: TypeDescriptor,
}

/// All memories below `block`, in the order of the hierarchy.
pub(super) fn memories(block: &dyn Block) -> Result<Vec<Memory>, StateError> {
    let root = collect(block, "top")?;
    let mut found = vec![];
    walk(&root, &mut found)?;
    Ok(found)
}

fn walk(module: &Module, found: &mut Vec<Memory>) -> Result<(), StateError> {
    for child in &module.children {
        walk(child, found)?;
    }
    let Verilog::Custom(text) = &module.code else {
        return Ok(());
    };
    // Whatever keeps words says which primitive it wants.
    if !text.contains("ram_style") {
        return Ok(());
    }
    let path = module.path.trim_start_matches("top.").to_string();
    match (module.port("read_addr"), module.port("read_data")) {
        (Some(address), Some(data)) => {
            found.push(Memory {
                path,
                depth_log2: address.bits,
                word: data.ty.clone(),
            });
            Ok(())
        }
        _ => Err(StateError::UnknownMemory(path)),
    }
}
