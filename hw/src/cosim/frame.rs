//! The values of a set of ports as one record of bytes.

use crate::verilog::{Dir, Port};
use rust_hdl_core::prelude::Synth;
use std::collections::HashMap;
use std::sync::Arc;

/// Where each port of one direction lies in a [`Frame`]: whole bytes per port, little endian, in port order.
#[derive(Debug)]
pub struct Layout {
    pub(crate) slots: Vec<Slot>,
    by_name: HashMap<String, usize>,
    /// Bytes of a record.
    pub(crate) bytes: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct Slot {
    pub(crate) name: String,
    pub(crate) bits: usize,
    pub(crate) at: usize,
    pub(crate) clock: bool,
}

impl Slot {
    pub(crate) fn bytes(&self) -> usize {
        self.bits.div_ceil(8)
    }
}

impl Layout {
    pub(crate) fn new(ports: &[Port], dir: Dir) -> Arc<Self> {
        let mut slots = vec![];
        let mut by_name = HashMap::new();
        let mut bytes = 0;
        for port in ports.iter().filter(|port| port.dir == dir) {
            by_name.insert(port.name.clone(), slots.len());
            let slot = Slot {
                name: port.name.clone(),
                bits: port.bits,
                at: bytes,
                clock: port.clock,
            };
            bytes += slot.bytes();
            slots.push(slot);
        }
        Arc::new(Self {
            slots,
            by_name,
            bytes,
        })
    }

    fn slot(&self, name: &str) -> &Slot {
        match self.by_name.get(name) {
            Some(&index) => &self.slots[index],
            None => {
                let names: Vec<&str> = self.slots.iter().map(|slot| slot.name.as_str()).collect();
                panic!("no port `{name}`; there are {}", names.join(", "))
            }
        }
    }
}

/// One value for each input, or each output, of a block. Names are the Verilog port names.
///
/// The methods panic if a port does not exist or a value does not fit: that is a mistake in a test bench.
#[derive(Clone, Debug)]
pub struct Frame {
    pub(crate) layout: Arc<Layout>,
    pub(crate) bytes: Vec<u8>,
}

impl PartialEq for Frame {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Frame {
    pub(crate) fn new(layout: &Arc<Layout>) -> Self {
        Self {
            layout: layout.clone(),
            bytes: vec![0; layout.bytes],
        }
    }

    /// Sets a port; the upper bits of ports wider than 64 become zero.
    ///
    /// # Panics
    ///
    /// If the port does not exist or `value` has more bits than the port.
    pub fn set(&mut self, name: &str, value: u64) {
        let slot = self.layout.slot(name);
        assert!(
            slot.bits >= 64 || value >> slot.bits == 0,
            "{value:#x} does not fit the {} bits of `{name}`",
            slot.bits
        );
        let field = &mut self.bytes[slot.at..slot.at + slot.bytes()];
        field.fill(0);
        for (byte, value) in field.iter_mut().zip(value.to_le_bytes()) {
            *byte = value;
        }
    }

    /// Sets a port from bytes, least significant first; missing bytes are zero.
    ///
    /// # Panics
    ///
    /// If the port does not exist or the value has more bits than the port.
    pub fn set_bytes(&mut self, name: &str, value: &[u8]) {
        let slot = self.layout.slot(name);
        let bytes = slot.bytes();
        let used = value.len().min(bytes);
        let spare = bytes * 8 - slot.bits;
        let top_fits = used < bytes || value[bytes - 1].leading_zeros() as usize >= spare;
        assert!(
            value[used..].iter().all(|&byte| byte == 0) && top_fits,
            "value does not fit the {} bits of `{name}`",
            slot.bits
        );
        let field = &mut self.bytes[slot.at..slot.at + bytes];
        field.fill(0);
        field[..used].copy_from_slice(&value[..used]);
    }

    /// The lowest 64 bits of a port.
    ///
    /// # Panics
    ///
    /// If the port does not exist.
    pub fn get(&self, name: &str) -> u64 {
        let mut value = [0; 8];
        for (value, byte) in value.iter_mut().zip(self.get_bytes(name)) {
            *value = *byte;
        }
        u64::from_le_bytes(value)
    }

    /// A one-bit port as `bool`.
    ///
    /// # Panics
    ///
    /// If the port does not exist.
    pub fn bit(&self, name: &str) -> bool {
        self.get(name) & 1 == 1
    }

    /// All bytes of a port, least significant first.
    ///
    /// # Panics
    ///
    /// If the port does not exist.
    pub fn get_bytes(&self, name: &str) -> &[u8] {
        let slot = self.layout.slot(name);
        &self.bytes[slot.at..slot.at + slot.bytes()]
    }
}

/// Bytes, least significant first, as a hexadecimal number.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digits: String = bytes
        .iter()
        .rev()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    match digits.trim_start_matches('0') {
        "" => "0".to_string(),
        digits => digits.to_string(),
    }
}

/// The bits of a record, least significant first: what [`Frame::set_bytes`] takes.
#[must_use]
pub fn bytes_of<T: Synth>(record: T) -> Vec<u8> {
    let text = format!("{:x}", record.verilog());
    let digits = text.split_once("'h").map_or("0", |(_, digits)| digits);
    let nibbles: Vec<u8> = digits
        .chars()
        .rev()
        .map(|c| c.to_digit(16).unwrap_or(0) as u8)
        .collect();
    let mut bytes: Vec<u8> = nibbles
        .chunks(2)
        .map(|pair| pair[0] | pair.get(1).copied().unwrap_or(0) << 4)
        .collect();
    bytes.resize(T::BITS.div_ceil(8), 0);
    bytes
}
