//! `scripts/wireshark/mprdma.lua`: what it shows of a frame is what [`Frame::parse`] reads.

use crate::tool::root;
use crate::tshark::{dissect, hex, number, Row};
use anyhow::{ensure, Context, Result};
use mprdma_spec::wire::aeth::{Nak, Syndrome};
use mprdma_spec::wire::bth::{self, opcode};
use mprdma_spec::wire::frame::{locate, Body, Extensions, Frame};
use mprdma_spec::wire::{icrc, SackMap};
use mprdma_tests::dissector::{OPCODES, PARTS};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

/// Fields of the built-in dissector, which goes on as without the script.
const BUILT_IN: &[&str] = &[
    "_ws.col.Protocol",
    "_ws.col.Info",
    "_ws.malformed",
    "_ws.expert.message",
    "infiniband.bth.opcode",
    "infiniband.bth.destqp",
    "infiniband.bth.psn",
];

/// Fields of the script besides headers and flags.
const OWN: &[&str] = &[
    "mprdma",
    "mprdma.opcode",
    "mprdma.vp",
    "mprdma.sack_map",
    "mprdma.sack_map.psn",
    "mprdma.payload",
    "mprdma.pad",
    "mprdma.icrc",
    "mprdma.malformed",
];

/// Every field of the script, without what is not its own.
static OWN_FIELDS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let mut names: Vec<String> = OWN.iter().map(|name| (*name).to_string()).collect();
    for part in PARTS {
        let prefix = format!("mprdma.{}", part.key);
        names.push(prefix.clone());
        names.extend(
            part.header
                .fields
                .iter()
                .map(|f| format!("{prefix}.{}", f.name)),
        );
        let flags = part.flags.iter().map(|(_, name, _)| *name);
        let reserved = (!part.flags.is_empty()).then_some("reserved");
        names.extend(
            flags
                .chain(reserved)
                .map(|name| format!("{prefix}.flags.{name}")),
        );
    }
    names
});

/// What tshark says of a capture with the script.
pub fn dissect_with_script(capture: &Path, config: &Path) -> Result<Vec<Row>> {
    let script = root().join("scripts/wireshark/mprdma.lua");
    let built_in = BUILT_IN.iter().map(|name| (*name).to_string());
    let fields: Vec<_> = built_in.chain(OWN_FIELDS.iter().cloned()).collect();
    dissect(capture, config, Some(&script), &fields)
}

/// What a field should hold.
#[derive(Clone, Debug, PartialEq)]
enum Expected {
    Number(u64),
    Text(String),
    /// There, whatever it says.
    Present,
}

/// Collects what the fields of the script should hold.
#[derive(Default)]
struct Fields(BTreeMap<String, Expected>);

impl Fields {
    fn put(&mut self, name: &str, value: Expected) {
        self.0.insert(name.to_string(), value);
    }

    fn numbers<const N: usize>(&mut self, header: &str, fields: [(&str, u64); N]) {
        self.put(&format!("mprdma.{header}"), Expected::Present);
        for (name, value) in fields {
            self.put(&format!("mprdma.{header}.{name}"), Expected::Number(value));
        }
    }

    /// The flags of a header, one by one.
    fn flags(&mut self, header: &str, flags: u8) {
        for part in PARTS.iter().filter(|part| part.key == header) {
            let mut reserved = flags;
            for (mask, name, _) in part.flags {
                self.put(
                    &format!("mprdma.{header}.flags.{name}"),
                    Expected::Number((flags & mask != 0).into()),
                );
                reserved &= !mask;
            }
            let shift = part.flags.len();
            self.put(
                &format!("mprdma.{header}.flags.reserved"),
                Expected::Number((reserved >> shift).into()),
            );
        }
    }

    fn extensions(&mut self, headers: &Extensions) {
        if let Some(h) = headers.mpeth {
            self.numbers(
                "mpeth",
                [
                    ("flags", h.flags.into()),
                    ("wsn", h.wsn.into()),
                    ("offset", h.offset.into()),
                    ("stamp", h.stamp.into()),
                ],
            );
            self.flags("mpeth", h.flags);
        }
        if let Some(h) = headers.reth {
            self.numbers(
                "reth",
                [
                    ("va", h.va),
                    ("rkey", h.rkey.into()),
                    ("length", h.length.into()),
                ],
            );
        }
        if let Some(h) = headers.atomic {
            self.numbers(
                "atomiceth",
                [
                    ("va", h.va),
                    ("rkey", h.rkey.into()),
                    ("swap_add", h.swap_add),
                    ("compare", h.compare),
                ],
            );
        }
        if let Some(h) = headers.aeth {
            let fields = [
                ("syndrome", h.syndrome.byte().into()),
                ("msn", h.msn.value().into()),
            ];
            self.numbers("aeth", fields);
        }
        if let Some(h) = headers.atomic_ack {
            self.numbers("atomicacketh", [("original", h.original)]);
        }
        if let Some(h) = headers.mpaeth {
            self.numbers(
                "mpaeth",
                [
                    ("flags", h.flags.into()),
                    ("aack", h.aack.value().into()),
                    ("vp_echo", h.vp_echo.into()),
                    ("stamp_echo", h.stamp_echo.into()),
                ],
            );
            self.flags("mpaeth", h.flags);
            if let Some(map) = headers.map {
                self.map(&map, |i| h.aack.add(i as u32).value());
            }
        }
        if let Some(data) = headers.imm {
            self.numbers("immdt", [("data", data.into())]);
        }
        if let Some(rkey) = headers.invalidate {
            self.numbers("ieth", [("rkey", rkey.into())]);
        }
    }

    fn map(&mut self, map: &SackMap, psn: impl Fn(usize) -> u32) {
        let mut bytes = vec![0; map.len()];
        map.emit(&mut bytes).expect("as many bytes as the map has");
        self.put("mprdma.sack_map", Expected::Text(hex(&bytes, "")));
        let arrived: Vec<_> = (0..map.slots())
            .filter(|i| map.get(*i))
            .map(|i| psn(i).to_string())
            .collect();
        self.put("mprdma.sack_map.psn", Expected::Text(arrived.join("|")));
    }

    fn payload(&mut self, payload: &[u8], pad: &[u8]) {
        if !payload.is_empty() {
            self.put("mprdma.payload", Expected::Text(hex(payload, "")));
        }
        if !pad.is_empty() {
            self.put("mprdma.pad", Expected::Text(hex(pad, "")));
        }
    }
}

/// What the script should show of a frame.
fn expected(frame: &[u8], parsed: &Frame<'_>) -> Result<Fields> {
    let at = locate(frame)?;
    let mut fields = Fields::default();
    if !OPCODES.contains(&parsed.bth.opcode) {
        return Ok(fields);
    }
    fields.put("mprdma", Expected::Present);
    fields.put("mprdma.opcode", Expected::Number(parsed.bth.opcode.into()));
    fields.put("mprdma.vp", Expected::Number(parsed.src_port.into()));
    // As the built-in dissector shows that of other packets: as a number whose digits are in wire order.
    let wire = icrc::LEN;
    let crc = frame[at.icrc..at.icrc + wire]
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte));
    fields.put("mprdma.icrc", Expected::Number(crc));
    if matches!(parsed.body, Body::Cnp) {
        return Ok(fields);
    }
    let (extensions, payload) = parsed.body.split();
    fields.extensions(&extensions);
    let pad = bth::Repr::parse(&frame[at.bth..])?.pad;
    fields.payload(payload, &frame[at.icrc - usize::from(pad)..at.icrc]);
    Ok(fields)
}

/// Compares a frame with what the script shows of it, field by field. `experts` is what tshark may complain about.
pub fn same(frame: &[u8], row: &Row, experts: &str) -> Result<()> {
    let parsed = Frame::parse(frame)?;
    let fields = expected(frame, &parsed)?.0;
    for name in OWN_FIELDS.iter() {
        let shown = row[name].as_str();
        let good = match fields.get(name) {
            None => shown.is_empty(),
            Some(Expected::Present) => !shown.is_empty(),
            Some(Expected::Text(text)) => shown == text,
            // tshark 4.0 writes truth as 1, later ones as True.
            Some(Expected::Number(value)) => {
                let shown = match shown {
                    "True" => "1",
                    "False" => "0",
                    other => other,
                };
                number(shown) == Some(*value)
            }
        };
        ensure!(
            good,
            "{name}: the script shows '{shown}', spec {:?}",
            fields.get(name)
        );
    }
    let unknown = fields.keys().find(|name| !row.contains_key(*name));
    ensure!(unknown.is_none(), "{unknown:?} is not asked for");

    let expert = &row["_ws.expert.message"];
    ensure!(expert == experts, "tshark complains: {expert}");
    ensure!(row["_ws.malformed"].is_empty(), "tshark: malformed");
    for (name, value) in [
        ("infiniband.bth.opcode", parsed.bth.opcode.into()),
        ("infiniband.bth.destqp", parsed.bth.dqpn),
        ("infiniband.bth.psn", parsed.bth.psn.value()),
    ] {
        let shown = &row[name];
        ensure!(
            number(shown) == Some(value.into()),
            "{name}: tshark '{shown}', spec {value:#x}"
        );
    }
    if OPCODES.contains(&parsed.bth.opcode) {
        let name = opcode::name(parsed.bth.opcode).context("a name")?;
        let (dqpn, psn) = (parsed.bth.dqpn, parsed.bth.psn.value());
        let begin = format!("MP {name} QP={dqpn:#08x} PSN={psn}");
        let (protocol, info) = (&row["_ws.col.Protocol"], &row["_ws.col.Info"]);
        ensure!(
            protocol == "MP-RDMA" && info.starts_with(&begin),
            "the packet list shows '{protocol}' '{info}', not '{begin}'"
        );
        let refusal = match parsed.body {
            Body::MpAck { aeth, .. } => match aeth.syndrome {
                Syndrome::Ack(_) => String::new(),
                Syndrome::Rnr(code) => format!("RNR NAK, timer code {code}"),
                Syndrome::Nak(Nak::InvalidRequest) => "NAK: invalid request".into(),
                Syndrome::Nak(Nak::RemoteAccess) => "NAK: remote access error".into(),
                Syndrome::Nak(_) => "NAK: ".into(),
            },
            _ => String::new(),
        };
        ensure!(
            info.contains(&refusal),
            "the packet list shows '{info}' without '{refusal}'"
        );
    }
    Ok(())
}
