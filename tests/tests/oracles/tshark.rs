//! Runs tshark, and compares what it knows by itself of our frames: addresses, ports, BTH. tshark 4.0 knows no names for
//! manufacturer opcodes (0xC0 to 0xFF): it calls them `Unknown OpCode` and shows their extension headers, payload and
//! ICRC in one piece, `infiniband.vendor`.

use crate::tool::tool;
use crate::traffic::{Sent, TAG};
use anyhow::{ensure, Context, Result};
use mprdma_spec::wire::bth::opcode;
use mprdma_spec::wire::frame::{locate, Address, Frame};
use mprdma_spec::wire::{bth, icrc, udp, Psn};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

/// The one complaint that is legal: RoCEv2 sends a UDP checksum of zero over IPv6 too (IBA A17.3.1), for the ICRC covers
/// the datagram. tshark ranks it as an error.
pub const LEGAL: &str = "Illegal checksum value (0)";

/// One frame as tshark sees it, by field.
pub type Row = BTreeMap<String, String>;

/// What tshark says of every frame of a capture in `fields`, with a Lua script or without.
pub fn dissect(
    capture: &Path,
    config: &Path,
    script: Option<&Path>,
    fields: &[impl AsRef<str>],
) -> Result<Vec<Row>> {
    let mut command = Command::new("tshark");
    // No settings of the user, no names for numbers; the IPv4 checksum is verified.
    command
        .env("WIRESHARK_CONFIG_DIR", config)
        .arg("-n")
        .args(["-o", "ip.check_checksum:TRUE"])
        .arg("-r")
        .arg(capture)
        .args(["-T", "fields", "-E", "separator=/t", "-E", "aggregator=|"]);
    if let Some(script) = script {
        command
            .arg("-X")
            .arg(format!("lua_script:{}", script.display()));
    }
    for field in fields {
        command.args(["-e", field.as_ref()]);
    }
    tool(&mut command, "tshark")?
        .lines()
        .map(|line| {
            let values: Vec<_> = line.split('\t').map(String::from).collect();
            ensure!(
                values.len() == fields.len(),
                "tshark printed {} of {} fields: {line}",
                values.len(),
                fields.len()
            );
            let names = fields.iter().map(|field| field.as_ref().to_string());
            Ok(names.zip(values).collect())
        })
        .collect()
}

/// A number as tshark writes it.
pub fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

pub fn hex(bytes: &[u8], between: &str) -> String {
    let digits: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.join(between)
}

/// What tshark is asked for.
pub const FIELDS: &[&str] = &[
    "_ws.col.Protocol",
    "_ws.col.Info",
    "frame.protocols",
    "_ws.malformed",
    "_ws.expert.message",
    "udp.checksum.zero",
    "eth.src",
    "eth.dst",
    "vlan.id",
    "vlan.priority",
    "ip.src",
    "ip.dst",
    "ip.dsfield.dscp",
    "ip.dsfield.ecn",
    "ip.ttl",
    "ip.checksum.status",
    "ipv6.src",
    "ipv6.dst",
    "ipv6.tclass.dscp",
    "ipv6.tclass.ecn",
    "ipv6.hlim",
    "ipv6.flow",
    "udp.srcport",
    "udp.dstport",
    "udp.checksum",
    "infiniband.bth.opcode",
    "infiniband.bth.se",
    "infiniband.bth.m",
    "infiniband.bth.padcnt",
    "infiniband.bth.tver",
    "infiniband.bth.p_key",
    "infiniband.bth.destqp",
    "infiniband.bth.a",
    "infiniband.bth.psn",
    "infiniband.vendor",
];

/// Compares a frame with what tshark says of it.
pub fn same(frame: &[u8], row: &Row) -> Result<()> {
    let ours = Frame::parse(frame)?;
    let at = locate(frame)?;
    let text = |field: &str, expected: &str| {
        ensure!(
            row[field] == expected,
            "{field}: tshark '{}', spec '{expected}'",
            row[field]
        );
        Ok(())
    };
    let value = |field: &str, expected: u64| {
        ensure!(
            number(&row[field]) == Some(expected),
            "{field}: tshark '{}', spec {expected:#x}",
            row[field]
        );
        Ok(())
    };
    let address = |field: &str, expected: IpAddr| {
        ensure!(
            row[field].parse::<IpAddr>().ok() == Some(expected),
            "{field}: tshark '{}', spec {expected}",
            row[field]
        );
        Ok(())
    };

    text("_ws.col.Protocol", "RRoCE")?;
    ensure!(
        row["frame.protocols"].ends_with(":udp:infiniband"),
        "protocols {}",
        row["frame.protocols"]
    );
    text("_ws.malformed", "")?;
    text("eth.src", &hex(&ours.src_mac, ":"))?;
    text("eth.dst", &hex(&ours.dst_mac, ":"))?;
    match ours.tag {
        Some(tag) => {
            value("vlan.id", tag.vid.into())?;
            value("vlan.priority", tag.pcp.into())?;
        }
        None => text("vlan.id", "")?,
    }
    match ours.address {
        Address::V4 { src, dst, .. } => {
            address("ip.src", src.into())?;
            address("ip.dst", dst.into())?;
            value("ip.dsfield.dscp", ours.dscp.into())?;
            value("ip.dsfield.ecn", ours.ecn.into())?;
            value("ip.ttl", ours.hop_limit.into())?;
            // 1 is "good".
            value("ip.checksum.status", 1)?;
            text("ipv6.src", "")?;
            text("_ws.expert.message", "")?;
        }
        Address::V6 {
            src,
            dst,
            flow_label,
        } => {
            address("ipv6.src", src.into())?;
            address("ipv6.dst", dst.into())?;
            value("ipv6.tclass.dscp", ours.dscp.into())?;
            value("ipv6.tclass.ecn", ours.ecn.into())?;
            value("ipv6.hlim", ours.hop_limit.into())?;
            value("ipv6.flow", flow_label.into())?;
            text("ip.src", "")?;
            ensure!(
                !row["udp.checksum.zero"].is_empty(),
                "no complaint about the UDP checksum"
            );
            text("_ws.expert.message", LEGAL)?;
        }
    }
    value("udp.srcport", ours.src_port.into())?;
    value("udp.dstport", udp::ROCE_PORT.into())?;
    value("udp.checksum", 0)?;
    let header = bth::Repr::parse(&frame[at.bth..])?;
    value("infiniband.bth.opcode", ours.bth.opcode.into())?;
    value("infiniband.bth.se", ours.bth.solicited.into())?;
    value("infiniband.bth.m", ours.bth.migrated.into())?;
    value("infiniband.bth.padcnt", header.pad.into())?;
    value("infiniband.bth.tver", 0)?;
    value("infiniband.bth.p_key", ours.bth.pkey.into())?;
    value("infiniband.bth.destqp", ours.bth.dqpn.into())?;
    value("infiniband.bth.a", ours.bth.ack_req.into())?;
    value("infiniband.bth.psn", ours.bth.psn.value().into())?;
    ensure!(
        ours.bth.opcode >= 0xc0 && row["_ws.col.Info"].contains("Unknown OpCode"),
        "opcode {:#x} is shown as '{}'",
        ours.bth.opcode,
        row["_ws.col.Info"]
    );
    // A heading that covers four bytes, then the whole.
    let behind = hex(&frame[at.bth + bth::LEN..at.icrc + icrc::LEN], "");
    text("infiniband.vendor", &format!("{}|{behind}", &behind[..8]))
}

/// Checks what the queue pairs sent, as tshark shows it in the capture of card 0.
pub fn as_sent(sent: &[Sent], rows: &[Row]) -> Result<()> {
    for Sent { qpn, attr, packets } in sent {
        let (version, source, target) = match attr.ipv6 {
            false => ("ip", "10.0.0.1", "10.0.0.2"),
            true => ("ipv6", "fd00::1", "fd00::2"),
        };
        let vlan = attr.vlan.map(|_| u64::from(TAG.id));
        let mut next = attr.psn;
        for row in rows.iter().filter(|row| {
            number(&row["infiniband.bth.destqp"]) == Some(u64::from(*qpn))
                && row["eth.src"] == "02:00:00:00:00:01"
                // ACKs of what READs bring have PSNs of the other side.
                && number(&row["infiniband.bth.opcode"]) != Some(opcode::MP_ACK.into())
        }) {
            let got = (
                row["eth.dst"].as_str(),
                row[&format!("{version}.src")].as_str(),
                row[&format!("{version}.dst")].as_str(),
                number(&row["vlan.id"]),
            );
            let want = ("02:00:00:00:00:02", source, target, vlan);
            ensure!(got == want, "QP {qpn}: tshark {got:?}, told {want:?}");
            // Packets leave in order the first time; what comes later is a retransmission.
            let psn = number(&row["infiniband.bth.psn"]).context("no PSN")? as u32;
            if psn == next {
                next = (next + 1) % Psn::MODULUS;
            } else {
                ensure!(
                    Psn::new(psn).before(Psn::new(next))
                        && !Psn::new(psn).before(Psn::new(attr.psn)),
                    "QP {qpn}: PSN {psn:#x} where {next:#x} or an earlier one was due"
                );
            }
        }
        let seen = Psn::new(next).since(Psn::new(attr.psn));
        ensure!(
            seen == *packets,
            "QP {qpn}: {seen} PSNs sent, {packets} due"
        );
    }
    Ok(())
}
