//! The state budget: bits that the card keeps per queue pair, and what they are for.
//!
//! The figures come from the design itself: [`budget`] walks the core that would be printed, takes every RAM with at
//! least a word per queue pair, and gives each field of its record the class that [`classes`] states. A RAM, a field or a
//! class without its counterpart is an error, so the budget cannot lag behind the hardware.

mod classes;
mod memories;

use crate::registry::{self, RegistryError};
use crate::verilog::{fields, type_bits, PrintError};
use classes::{Role, Share, ROLES};
use memories::{memories, Memory};
use mprdma_spec::config::Config;
use serde::Serialize;
use thiserror::Error;

/// What a bit of state is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// A reliable connection with one path needs it.
    Rc,
    /// The published multi-path rules with a bitmap of 64 slots add it.
    Mp,
    /// `hole_repair`, `vp_recycle` and a bitmap of 128 slots add it.
    Extension,
    /// Counters for people; the transport works without.
    Telemetry,
    /// Work in flight that is kept on chip, so that neither retransmission nor completion reads host memory.
    Queue,
    /// What the multi-path rules add to [`Class::Queue`].
    MpQueue,
}

impl Class {
    /// All classes, in the order in which they are printed.
    pub const ALL: [Class; 6] = [
        Class::Rc,
        Class::Mp,
        Class::Extension,
        Class::Telemetry,
        Class::Queue,
        Class::MpQueue,
    ];

    /// What a reader sees.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Class::Rc => "what a reliable connection needs",
            Class::Mp => "what the multi-path rules add, 64 slots",
            Class::Extension => "what hole_repair, vp_recycle and 128 slots add",
            Class::Telemetry => "telemetry",
            Class::Queue => "work in flight, kept on chip",
            Class::MpQueue => "work in flight, for multi-path",
        }
    }
}

/// Bits of one field for one queue pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StateField {
    /// Instance path of the memory in the core.
    pub block: String,
    /// Field of its record; a field that serves two classes is listed for each.
    pub field: String,
    pub bits: usize,
    pub class: Class,
}

/// The state of one queue pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StateBudget {
    pub rc_bits: usize,
    pub mp_extra_bits: usize,
    pub extension_bits: usize,
    pub telemetry_bits: usize,
    pub queue_bits: usize,
    pub mp_queue_bits: usize,
    pub fields: Vec<StateField>,
}

/// Why there is no budget.
#[derive(Debug, Error)]
pub enum StateError {
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Print(#[from] PrintError),
    #[error("memory `{0}` has no ports `read_addr` and `read_data`")]
    UnknownMemory(String),
    #[error(
        "memory `{0}` has a word or more per queue pair, and no entry in hw/src/state/classes.rs"
    )]
    Unlisted(String),
    #[error("hw/src/state/classes.rs names a memory `{0}`, which the core does not have")]
    NoMemory(&'static str),
    #[error("field `{field}` of memory `{memory}` has no class in hw/src/state/classes.rs")]
    Unclassified { memory: String, field: String },
    #[error("hw/src/state/classes.rs gives a class to `{field}` of memory `{memory}`, which has no such field")]
    NoField { memory: String, field: &'static str },
}

/// The state that an image with `config` keeps per queue pair. Call it inside [`crate::with_big_stack`].
pub fn budget(config: &Config) -> Result<StateBudget, StateError> {
    let core = registry::find(registry::TOP)?.build(config)?;
    classified(&memories(core.as_ref())?, config.qp_log2, ROLES)
}

/// The memories of a core with 2^`qp_log2` queue pairs, measured with a table of classes.
fn classified(
    found: &[Memory],
    qp_log2: usize,
    roles: &'static [(&'static str, Role)],
) -> Result<StateBudget, StateError> {
    let mut all = vec![];
    for (path, role) in roles {
        let memory = found
            .iter()
            .find(|memory| memory.path == *path)
            .ok_or(StateError::NoMemory(path))?;
        match role {
            Role::PerQp(classes) => all.extend(split(memory, qp_log2, classes)?),
            Role::Object(classes) => all.extend(split(memory, memory.depth_log2, classes)?),
            Role::Record(class) => all.extend(whole(memory, qp_log2, *class)),
            Role::Shared => {}
        }
    }
    let unlisted = found.iter().find(|memory| {
        memory.depth_log2 >= qp_log2 && roles.iter().all(|(path, _)| memory.path != *path)
    });
    if let Some(memory) = unlisted {
        return Err(StateError::Unlisted(memory.path.clone()));
    }
    let sum = |class| {
        let of_class = all
            .iter()
            .filter(|field: &&StateField| field.class == class);
        of_class.map(|field| field.bits).sum()
    };
    Ok(StateBudget {
        rc_bits: sum(Class::Rc),
        mp_extra_bits: sum(Class::Mp),
        extension_bits: sum(Class::Extension),
        telemetry_bits: sum(Class::Telemetry),
        queue_bits: sum(Class::Queue),
        mp_queue_bits: sum(Class::MpQueue),
        fields: all,
    })
}

/// The names and bits of a memory's fields.
fn record(memory: &Memory) -> Vec<(String, usize)> {
    let record: Vec<_> = fields(&memory.word)
        .into_iter()
        .map(|field| (field.name, field.bits))
        .collect();
    if record.is_empty() {
        // Plain bits, not a record.
        return vec![("bits".into(), type_bits(&memory.word))];
    }
    record
}

/// The fields of a memory that is of one class.
fn whole(memory: &Memory, qp_log2: usize, class: Class) -> Vec<StateField> {
    let words = 1 << memory.depth_log2.saturating_sub(qp_log2);
    let all = record(memory).into_iter();
    all.map(|(field, bits)| StateField {
        block: memory.path.clone(),
        field,
        bits: bits * words,
        class,
    })
    .collect()
}

/// The fields of one memory that has 2^(depth - `qp_log2`) words per queue pair.
fn split(
    memory: &Memory,
    qp_log2: usize,
    classes: &'static [(&'static str, Share)],
) -> Result<Vec<StateField>, StateError> {
    let words = 1 << memory.depth_log2.saturating_sub(qp_log2);
    let record = record(memory);
    let missing = classes
        .iter()
        .find(|(name, _)| record.iter().all(|(field, _)| field != name));
    if let Some((field, _)) = missing {
        return Err(StateError::NoField {
            memory: memory.path.clone(),
            field,
        });
    }
    let mut split = vec![];
    for (field, bits) in record {
        let Some((_, share)) = classes.iter().find(|(name, _)| field == *name) else {
            return Err(StateError::Unclassified {
                memory: memory.path.clone(),
                field,
            });
        };
        let parts = match *share {
            Share::All(class) => [(bits, class), (0, class)],
            Share::First(first, class, rest) => {
                let first = bits.min(first);
                [(first, class), (bits - first, rest)]
            }
        };
        for (bits, class) in parts.into_iter().filter(|&(bits, _)| bits > 0) {
            split.push(StateField {
                block: memory.path.clone(),
                field: field.clone(),
                bits: bits * words,
                class,
            });
        }
    }
    Ok(split)
}

#[cfg(test)]
mod tests {
    use super::classes::Share::{All, First};
    use super::*;
    use mprdma_spec::config::SIM;

    /// Protocol section 9: bytes that multi-path adds, with the paper's rules and with both extensions.
    #[test]
    fn budget_of_section_9() {
        let budget = crate::with_big_stack(|| budget(&SIM)).unwrap();
        println!(
            "multi-path {} bits, extensions {} bits",
            budget.mp_extra_bits, budget.extension_bits
        );
        assert!(budget.mp_extra_bits <= 66 * 8);
        assert!(budget.mp_extra_bits + budget.extension_bits <= 100 * 8);
        // The window alone is two bits per slot.
        assert!(budget.mp_extra_bits > 2 * 64 && budget.extension_bits >= 2 * 64);
    }

    /// Two memories of 2^4 and 2^5 words.
    fn found() -> Vec<Memory> {
        let memory = |path: &str, depth_log2, word| Memory {
            path: path.into(),
            depth_log2,
            word,
        };
        use crate::nic::types::QpError;
        use rust_hdl_core::prelude::*;
        vec![
            memory("a.context", 4, QpError::descriptor()),
            memory("b.plane", 5, Bits::<10>::descriptor()),
            memory("c.queue", 3, Bits::<10>::descriptor()),
        ]
    }

    const CONTEXT: (&str, Role) = (
        "a.context",
        Role::PerQp(&[("qpn", All(Class::Rc)), ("status", All(Class::Mp))]),
    );

    #[test]
    fn shares() {
        const TABLE: &[(&str, Role)] = &[
            CONTEXT,
            (
                "b.plane",
                Role::PerQp(&[("bits", First(4, Class::Mp, Class::Extension))]),
            ),
        ];
        let budget = classified(&found(), 4, TABLE).unwrap();
        let sums = (budget.rc_bits, budget.mp_extra_bits, budget.extension_bits);
        assert_eq!(sums, (16, 8 + 2 * 4, 2 * 6));
    }

    #[test]
    fn a_table_that_does_not_fit_is_refused() {
        const NOTHING: &[(&str, Share)] = &[];
        const CASES: &[(&[(&str, Role)], &str)] = &[
            (&[CONTEXT], "`b.plane` has a word or more per queue pair"),
            (
                &[CONTEXT, ("b.planes", Role::Shared)],
                "names a memory `b.planes`",
            ),
            (
                &[CONTEXT, ("b.plane", Role::PerQp(NOTHING))],
                "field `bits` of memory `b.plane` has no class",
            ),
            (
                &[
                    CONTEXT,
                    (
                        "b.plane",
                        Role::PerQp(&[("bits", All(Class::Rc)), ("sync", All(Class::Mp))]),
                    ),
                ],
                "class to `sync` of memory `b.plane`",
            ),
        ];
        for (table, expected) in CASES {
            let error = classified(&found(), 4, table).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
