//! The part of `scripts/wireshark/mprdma.lua` that is written from the tables of `spec`.

use anyhow::{Context, Result};
use mprdma_spec::wire::aeth::{Nak, Syndrome, CREDIT_INVALID};
use mprdma_spec::wire::bth::opcode::{self, Shape};
use mprdma_spec::wire::sack_map::{self, SackMap};
use mprdma_spec::wire::{
    aeth, atomicacketh, atomiceth, bth, icrc, ieth, immdt, mpaeth, mpeth, reth, udp, Field, Header,
    Psn,
};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Lines between which the generated part stands.
const BEGIN: &str =
    "-- spec: begin (`make docs` writes this part from the crate `spec`; a test keeps it equal)\n";
const END: &str = "-- spec: end\n";

/// The opcodes of the MP transport.
pub const OPCODES: std::ops::RangeInclusive<u8> = opcode::MP << 5..=opcode::MP << 5 | 0x1f;

/// A header with its name in the dissector's fields and, of the headers with flags, the flags.
pub struct Part {
    /// Name in the dissector's fields.
    pub key: &'static str,
    /// The header.
    pub header: Header,
    /// Bit, name, meaning.
    pub flags: &'static [(u8, &'static str, &'static str)],
    /// Whether a packet has the header.
    wanted: fn(&Shape) -> bool,
}

impl Part {
    const fn plain(key: &'static str, header: Header, wanted: fn(&Shape) -> bool) -> Self {
        Self {
            key,
            header,
            flags: &[],
            wanted,
        }
    }
}

/// The headers that may follow BTH, in the order in which they do.
pub const PARTS: &[Part] = &[
    Part {
        key: "mpeth",
        header: mpeth::HEADER,
        flags: &[
            (mpeth::FLAG_RETX, "retx", "Retransmission"),
            (mpeth::FLAG_SYNC, "sync", "Synchronised message"),
            (mpeth::FLAG_TAIL, "tail", "Last packet of its message"),
            (
                mpeth::FLAG_COMPLETION,
                "completion",
                "Completion owed by the receiver",
            ),
        ],
        wanted: |shape| shape.mpeth,
    },
    Part::plain("reth", reth::HEADER, |shape| shape.reth),
    Part::plain("atomiceth", atomiceth::HEADER, |shape| shape.atomic),
    Part::plain("aeth", aeth::HEADER, |shape| shape.aeth),
    Part::plain("atomicacketh", atomicacketh::HEADER, |shape| {
        shape.atomic_ack
    }),
    Part {
        key: "mpaeth",
        header: mpaeth::HEADER,
        flags: &[
            (
                mpaeth::FLAG_RETX_ECHO,
                "retx_echo",
                "Answer to a retransmission",
            ),
            (
                mpaeth::FLAG_ECN_ECHO,
                "ecn_echo",
                "Answer to a packet marked CE",
            ),
            (
                mpaeth::FLAG_WINDOW_NAK,
                "window_nak",
                "Dropped: beyond the receiver's bitmap",
            ),
            (
                mpaeth::FLAG_SYNC_NAK,
                "sync_nak",
                "Dropped: synchronised message too early",
            ),
            (mpaeth::FLAG_SACK_MAP, "sack_map", "A SACK map follows"),
        ],
        wanted: |shape| shape.mpaeth,
    },
    Part::plain("immdt", immdt::HEADER, |shape| shape.imm),
    Part::plain("ieth", ieth::HEADER, |shape| shape.ieth),
];

/// The dissector's file.
#[must_use]
pub fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/wireshark/mprdma.lua")
}

/// The file `text` with its generated part as it must be.
///
/// # Errors
/// When `text` has no place for it.
pub fn current(text: &str) -> Result<String> {
    let missing = "the lines that enclose the generated part are missing";
    let (before, rest) = text.split_once(BEGIN).context(missing)?;
    let (_, after) = rest.split_once(END).context(missing)?;
    let mut out = format!("{before}{BEGIN}");
    generate(&mut out).context("a string takes everything")?;
    Ok(out + END + after)
}

fn generate(out: &mut String) -> std::fmt::Result {
    writeln!(out, "local UDP_PORT = {}", udp::ROCE_PORT)?;
    writeln!(out, "local ICRC_LEN = {}", icrc::LEN)?;
    writeln!(out, "local PSN_MODULUS = {}", Psn::MODULUS)?;
    let (first, last) = (OPCODES.start(), OPCODES.end());
    writeln!(
        out,
        "local FIRST_OPCODE, LAST_OPCODE = {first:#04x}, {last:#04x}"
    )?;
    outer(
        out,
        "UDP",
        &udp::HEADER,
        &[udp::SRC_PORT, udp::DST_PORT, udp::LENGTH],
    )?;
    outer(
        out,
        "BTH",
        &bth::HEADER,
        &[bth::OPCODE, bth::PAD, bth::DQPN, bth::PSN],
    )?;
    out.push_str("local HEADERS = {\n");
    for part in PARTS {
        extension(out, part)?;
    }
    out.push_str("}\n");
    let sizes: Vec<_> = (1..=sack_map::MAX_LEN)
        .filter(|len| SackMap::parse(&[0; sack_map::MAX_LEN][..*len]).is_ok())
        .map(|len| format!("[{len}] = true"))
        .collect();
    writeln!(out, "local SACK_MAP_BYTES = {{ {} }}", sizes.join(", "))?;
    syndromes(out)?;
    opcodes(out)
}

/// A header of which the dissector reads some fields: the bytes from `byte` on, `span` of them, hold the field `shift`
/// bits from their end.
fn outer(out: &mut String, name: &str, header: &Header, fields: &[Field]) -> std::fmt::Result {
    writeln!(out, "local {name} = {{\n    len = {},", header.len)?;
    for f in fields {
        writeln!(
            out,
            "    {} = {{ byte = {}, span = {}, shift = {}, bits = {} }},",
            f.name,
            f.byte,
            f.span(),
            f.shift,
            f.bits
        )?;
    }
    writeln!(out, "}}")
}

/// An extension header, all of it. Its fields are whole bytes.
fn extension(out: &mut String, part: &Part) -> std::fmt::Result {
    let Part {
        key, header, flags, ..
    } = part;
    writeln!(out, "    {key} = {{")?;
    writeln!(
        out,
        "        title = \"{}\", len = {},",
        header.name, header.len
    )?;
    writeln!(out, "        fields = {{")?;
    for f in header.fields {
        assert!(
            f.shift == 0 && f.bits % 8 == 0,
            "{key} {} is not of whole bytes",
            f.name
        );
        writeln!(
            out,
            "            {{ name = \"{}\", byte = {}, bytes = {} }},",
            f.name,
            f.byte,
            f.span()
        )?;
    }
    writeln!(out, "        }},")?;
    if !flags.is_empty() {
        writeln!(out, "        flags = {{")?;
        for (mask, name, meaning) in *flags {
            writeln!(
                out,
                "            {{ name = \"{name}\", mask = {mask:#04x}, meaning = \"{meaning}\" }},"
            )?;
        }
        writeln!(out, "        }},")?;
        let reserved = flags.iter().fold(0xff, |left, (mask, ..)| left & !mask);
        writeln!(out, "        reserved_flags = {reserved:#04x},")?;
    }
    writeln!(out, "    }},")
}

fn syndromes(out: &mut String) -> std::fmt::Result {
    let ack = Syndrome::Ack(0).byte();
    let rnr = Syndrome::Rnr(0).byte();
    let codes = (0..=u8::MAX)
        .filter(|byte| matches!(Syndrome::from_byte(*byte), Ok(Syndrome::Rnr(_))))
        .count();
    writeln!(out, "local SYNDROMES = {{")?;
    writeln!(
        out,
        "    ack = {ack:#04x}, rnr = {rnr:#04x}, codes = {codes}, no_credits = {CREDIT_INVALID},"
    )?;
    writeln!(out, "    naks = {{")?;
    for byte in 0..=u8::MAX {
        let Ok(Syndrome::Nak(nak)) = Syndrome::from_byte(byte) else {
            continue;
        };
        let name = match nak {
            Nak::PsnSequence => "PSN sequence error",
            Nak::InvalidRequest => "invalid request",
            Nak::RemoteAccess => "remote access error",
            Nak::RemoteOperation => "remote operation error",
            Nak::InvalidRdRequest => "invalid RD request",
        };
        writeln!(out, "        [{byte:#04x}] = \"{name}\",")?;
    }
    writeln!(out, "    }},\n}}")
}

fn opcodes(out: &mut String) -> std::fmt::Result {
    writeln!(out, "local OPCODES = {{")?;
    for code in OPCODES {
        let (Some(name), Some(shape)) = (opcode::name(code), opcode::shape(code)) else {
            continue;
        };
        let headers: Vec<_> = PARTS
            .iter()
            .filter(|part| (part.wanted)(&shape))
            .map(|part| format!("\"{}\"", part.key))
            .collect();
        let payload = if shape.payload {
            ", payload = true"
        } else {
            ""
        };
        let more = if shape.more { ", more = true" } else { "" };
        writeln!(
            out,
            "    [{code:#04x}] = {{ name = \"{name}\", headers = {{ {} }}{payload}{more} }},",
            headers.join(", ")
        )?;
    }
    writeln!(out, "}}")
}
