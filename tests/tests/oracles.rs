//! Tools that share no code with this project read what two cards put on the wire.
//!
//! A mixed run is captured at both ports. Then
//! - tshark dissects every frame; addresses, ports, BTH fields and the bytes behind BTH are compared with
//!   [`Frame::parse`], addresses and PSNs also with what the queue pairs were told to send. tshark 4.0 knows no names for manufacturer opcodes (0xC0 to 0xFF): it calls them
//!   `Unknown OpCode` and shows their extension headers, payload and ICRC in one piece, `infiniband.vendor`.
//!   It has one complaint, and only about IPv6: a UDP checksum of zero (`udp.checksum.zero`), which RoCEv2 allows
//!   (IBA A17.3.1), for the ICRC covers the datagram.
//! - scapy, and separately Python's zlib, compute the ICRC of every frame (`scripts/oracles/icrc.py`).
//!
//! The counts go to `target/oracles.json`.

use anyhow::{bail, ensure, Context, Result};
use mprdma_host::verbs::{Mr, RecvWr, RtsAttr, Vlan};
use mprdma_sim::world::Options;
use mprdma_spec::descriptor::WrOpcode;
use mprdma_spec::status::WcStatus;
use mprdma_spec::wire::aeth::{Nak, Syndrome};
use mprdma_spec::wire::frame::{locate, Address, Body, Frame};
use mprdma_spec::wire::{bth, icrc, ipv4, mpaeth, mpeth, udp, Psn};
use mprdma_tests::rig::{engine, pattern, scenario, write_request, Pair, PairAttr, Rig, US};
use pcap_file::pcapng::{Block, PcapNgReader};
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, ErrorKind};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Two paths. One loses and doubles packets in both directions, and short queues mark CE.
const LOSSY: &str = r#"
name = "oracles"

[network]
kind = "leaf-spine"
cards = 2
leaves = 2
spines = 2
spine_rate_gbps = 50.0
delay_ns = 200
ecn_packets = 4

[[link]]
from = "leaf*"
to = "spine0"
loss = 0.05
duplicate = 0.02
"#;

/// Runs a tool and gives its standard output; `package` is the Debian package that has it.
fn tool(command: &mut Command, package: &str) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = match command.output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!(
                "{name} is missing: install the Debian package '{package}' (scripts/setup.sh does)"
            )
        }
        other => other.with_context(|| format!("{name} does not start"))?,
    };
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{name} failed, {}: {said}",
        output.status
    );
    String::from_utf8(output.stdout).with_context(|| format!("{name} does not print UTF-8"))
}

/// A pair of queue pairs and how many PSNs its sender used.
struct Sent {
    pair: Pair,
    attr: PairAttr,
    packets: u32,
}

/// Traffic of every kind that the cards make, from card 0 to card 1.
fn traffic(rig: &Rig) -> Result<Vec<Sent>> {
    let mut sent = vec![];
    let tagged = Some(Vlan {
        id: 42,
        priority: 5,
    });
    for (mtu, ipv6, vlan, psn, length) in [
        (256, false, None, 0xff_ffc0, 60_001),
        (1024, false, tagged, 0x00_0000, 100_003),
        (4096, false, None, 0x12_3456, 300_002),
        (256, true, tagged, 0x7f_fff0, 60_002),
        (1024, true, None, 0xff_fffe, 100_001),
        (4096, true, tagged, 0xab_cdef, 300_003),
    ] {
        // A first window past the receiver's bitmap: a loss early in it makes window NAKs.
        let mut rts = RtsAttr::new(0);
        rts.multi_path.initial_window = 255;
        let attr = PairAttr {
            mtu,
            ipv6,
            vlan,
            psn,
            rts,
            ..PairAttr::default()
        };
        let pair = rig.pair(0, 1, &attr)?;
        let (source, target) = (rig.region(0, 3, length)?, rig.region(1, 5, length)?);
        source.write(0, &pattern(length as u64, length))?;
        for bytes in [length, 1, 0] {
            rig.write(&pair, &source, &target, bytes)
                .with_context(|| format!("{bytes} bytes at MTU {mtu}, IPv6 {ipv6}"))?;
        }
        with_immediate(rig, &pair, &source, &target, mtu as usize)?;
        let mut arrived = vec![0; length];
        target.read(0, &mut arrived)?;
        ensure!(
            arrived == pattern(length as u64, length),
            "{length} bytes at MTU {mtu} differ"
        );

        // A key that was never given out is refused, and the sender learns it.
        let mut refused = write_request(9, &source, &target, 100);
        refused.rkey ^= 0x5a5a;
        pair.tx.post_send(&[refused])?;
        let wc = rig.completions(0, 1, 20_000 * US)?.remove(0);
        ensure!(
            wc.status == WcStatus::RemoteAccessError,
            "a bad key completed with {:?}",
            wc.status
        );
        // The long WRITE, then one packet each of 1 and 0 bytes, of the first immediate and of the refused WRITE, and
        // four of the second immediate.
        let packets = length.div_ceil(mtu as usize) as u32 + 4 + 4;
        sent.push(Sent {
            pair,
            attr,
            packets,
        });
    }
    Ok(sent)
}

/// WRITEs with immediate: one ONLY of no bytes, one of several packets. The receive request of the first comes late.
fn with_immediate(rig: &Rig, pair: &Pair, source: &Mr, target: &Mr, mtu: usize) -> Result<()> {
    for (bytes, late) in [(0, true), (3 * mtu + 2, false)] {
        let mut request = write_request(7, source, target, bytes);
        request.opcode = WrOpcode::RdmaWriteWithImm;
        request.imm = 0xc0ff_ee00 | bytes as u32 & 0xff;
        let receive = [RecvWr {
            wr_id: 8,
            ..RecvWr::default()
        }];
        if !late {
            pair.rx.post_recv(&receive)?;
        }
        pair.tx.post_send(&[request])?;
        if late {
            rig.sim.run(30 * US);
            pair.rx.post_recv(&receive)?;
        }
        for card in [1, 0] {
            let wc = rig
                .completions(card, 1, 50_000 * US)
                .with_context(|| format!("card {card}, {bytes} bytes with immediate at MTU {mtu}"))?
                .remove(0);
            ensure!(
                wc.status == WcStatus::Success,
                "immediate: completed with {:?}",
                wc.status
            );
            ensure!(
                card == 0 || wc.imm == Some(request.imm),
                "immediate data {:x?} arrived as {:x?}",
                request.imm,
                wc.imm
            );
        }
    }
    Ok(())
}

/// The frames of a capture.
fn frames(capture: &Path) -> Result<Vec<Vec<u8>>> {
    let file = File::open(capture).with_context(|| capture.display().to_string())?;
    let mut reader = PcapNgReader::new(BufReader::new(file))?;
    let mut found = vec![];
    while let Some(block) = reader.next_block() {
        if let Block::EnhancedPacket(packet) = block? {
            found.push(packet.data.into_owned());
        }
    }
    Ok(found)
}

/// What tshark is asked for.
const FIELDS: &[&str] = &[
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

/// One frame as tshark sees it.
type Row<'a> = BTreeMap<&'static str, &'a str>;

/// Dissects a capture.
fn dissect(capture: &Path, config: &Path) -> Result<String> {
    let mut command = Command::new("tshark");
    // No settings of the user, no names for numbers; the IPv4 checksum is verified.
    command
        .env("WIRESHARK_CONFIG_DIR", config)
        .arg("-n")
        .args(["-o", "ip.check_checksum:TRUE"])
        .arg("-r")
        .arg(capture)
        .args(["-T", "fields", "-E", "separator=/t", "-E", "aggregator=|"]);
    for field in FIELDS {
        command.args(["-e", field]);
    }
    tool(&mut command, "tshark")
}

fn rows(text: &str) -> Result<Vec<Row<'_>>> {
    text.lines()
        .map(|line| {
            let values: Vec<_> = line.split('\t').collect();
            ensure!(
                values.len() == FIELDS.len(),
                "tshark printed {} of {} fields: {line}",
                values.len(),
                FIELDS.len()
            );
            Ok(FIELDS.iter().copied().zip(values).collect())
        })
        .collect()
}

/// A value that both sides write alike.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn hex(bytes: &[u8], between: &str) -> String {
    let digits: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.join(between)
}

/// Compares a frame with what tshark says of it.
fn same(frame: &[u8], row: &Row<'_>) -> Result<()> {
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
            number(row[field]) == Some(expected),
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
            // The one complaint, see the top of this file; tshark ranks it as an error.
            ensure!(
                !row["udp.checksum.zero"].is_empty(),
                "no complaint about the UDP checksum"
            );
            text("_ws.expert.message", "Illegal checksum value (0)")?;
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
fn as_sent(sent: &[Sent], rows: &[Row<'_>]) -> Result<()> {
    for Sent {
        pair,
        attr,
        packets,
    } in sent
    {
        let (version, source, target) = match attr.ipv6 {
            false => ("ip", "10.0.0.1", "10.0.0.2"),
            true => ("ipv6", "fd00::1", "fd00::2"),
        };
        let vlan = attr.vlan.map(|vlan| u64::from(vlan.id));
        let qpn = u64::from(pair.rx.qp_num());
        let mut next = attr.psn;
        for row in rows.iter().filter(|row| {
            number(row["infiniband.bth.destqp"]) == Some(qpn)
                && row["eth.src"] == "02:00:00:00:00:01"
        }) {
            let got = (
                row["eth.dst"],
                row[format!("{version}.src").as_str()],
                row[format!("{version}.dst").as_str()],
                number(row["vlan.id"]),
            );
            let want = ("02:00:00:00:00:02", source, target, vlan);
            ensure!(got == want, "QP {qpn}: tshark {got:?}, told {want:?}");
            // Packets leave in order the first time; what comes later is a retransmission.
            let psn = number(row["infiniband.bth.psn"]).context("no PSN")? as u32;
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

/// Counts what kinds of frames there are.
fn tally(frame: &Frame<'_>, kinds: &mut BTreeMap<&'static str, u64>) {
    let mut add = |kind, is: bool| *kinds.entry(kind).or_default() += u64::from(is);
    let ipv6 = matches!(frame.address, Address::V6 { .. });
    add("ipv4", !ipv6);
    add("ipv6", ipv6);
    add("vlan", frame.tag.is_some());
    add("ce_marked", frame.ecn == ipv4::CE);
    match &frame.body {
        Body::MpWrite {
            mpeth,
            imm,
            payload,
            ..
        } => {
            add("writes", true);
            add("retransmissions", mpeth.flags & mpeth::FLAG_RETX != 0);
            add("with_immediate", imm.is_some());
            add("without_payload", payload.is_empty());
            add("padded", payload.len() % 4 != 0);
            for (kind, mtu) in [
                ("payload_256", 256),
                ("payload_1024", 1024),
                ("payload_4096", 4096),
            ] {
                add(kind, payload.len() == mtu);
            }
        }
        Body::MpAck { aeth, mpaeth, map } => {
            add("acks", matches!(aeth.syndrome, Syndrome::Ack(_)));
            add("rnr_naks", matches!(aeth.syndrome, Syndrome::Rnr(_)));
            add(
                "access_naks",
                aeth.syndrome == Syndrome::Nak(Nak::RemoteAccess),
            );
            add("ecn_echoes", mpaeth.flags & mpaeth::FLAG_ECN_ECHO != 0);
            add("window_naks", mpaeth.flags & mpaeth::FLAG_WINDOW_NAK != 0);
            add("sack_maps", map.is_some());
        }
        Body::Cnp | Body::Other { .. } => add("other_operations", true),
    }
}

/// The ICRC of every frame of the captures by two other implementations.
fn other_icrcs(captures: &[PathBuf]) -> Result<Value> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = tool(
        Command::new("python3")
            .arg(root.join("scripts/oracles/icrc.py"))
            .args(captures)
            .env("PYTHONPATH", root.join("target/python")),
        "python3",
    )?;
    Ok(serde_json::from_str(&text)?)
}

#[test]
fn independent_tools_agree() -> Result<()> {
    // The directory for what tests write is `tmp` in the target directory.
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (dir, file) = (tmp.join("oracles"), tmp.with_file_name("oracles.json"));
    // A run that fails leaves no result of an earlier one.
    if dir.exists() {
        std::fs::remove_dir_all(&dir)?;
    }
    if file.exists() {
        std::fs::remove_file(&file)?;
    }
    let rig = Rig::new(
        &scenario(LOSSY)?,
        &Options {
            engine: engine()?,
            seed: 8,
            threads: 1,
            pcap: Some(dir.clone()),
        },
    )?;
    let sent = traffic(&rig)?;
    let captures = [dir.join("card0.pcapng"), dir.join("card1.pcapng")];

    let mut all = vec![];
    let mut malformed = 0;
    let mut differing = vec![];
    let mut kinds = BTreeMap::new();
    for (card, capture) in captures.iter().enumerate() {
        let frames = frames(capture)?;
        let text = dissect(capture, &dir)?;
        let rows = rows(&text)?;
        ensure!(
            rows.len() == frames.len(),
            "tshark sees {} of {} frames",
            rows.len(),
            frames.len()
        );
        for (i, (frame, row)) in frames.iter().zip(&rows).enumerate() {
            malformed += u64::from(!row["_ws.malformed"].is_empty());
            if let Err(error) = same(frame, row) {
                differing.push(format!("{} frame {}: {error:#}", capture.display(), i + 1));
            }
            // The comparison itself would notice one wrong bit, here the last of the PSN.
            let mut wrong = frame.clone();
            wrong[locate(frame)?.bth + bth::LEN - 1] ^= 1;
            ensure!(
                same(&wrong, row).is_err(),
                "frame {}: a wrong PSN goes unnoticed",
                i + 1
            );
            tally(&Frame::parse(frame)?, &mut kinds);
        }
        if card == 0 {
            as_sent(&sent, &rows)?;
        }
        all.extend(frames);
    }

    let others = other_icrcs(&captures)?;
    let checked = others["frames"].as_array().context("no list of frames")?;
    ensure!(
        checked.len() == all.len(),
        "ICRC checked in {} of {} frames",
        checked.len(),
        all.len()
    );
    let mut equal = 0;
    for (i, (frame, other)) in all.iter().zip(checked).enumerate() {
        let wire = hex(&frame[locate(frame)?.icrc..], "");
        let ours = hex(&icrc::icrc(frame)?.to_le_bytes(), "");
        let (zlib, scapy) = (&other["zlib"], &other["scapy"]);
        if ours == wire && other["wire"] == *wire && *zlib == *wire && *scapy == *wire {
            equal += 1;
        } else {
            differing.push(format!(
                "frame {i}: ICRC {wire} on the wire, spec {ours}, zlib {zlib}, scapy {scapy}"
            ));
        }
        ensure!(
            other["flip_zlib"] != *wire && other["flip_scapy"] != *wire,
            "frame {i}: a flipped bit goes unnoticed"
        );
    }

    let result = json!({
        "frames": all.len(),
        "malformed": malformed,
        "icrc_checked": checked.len(),
        "icrc_equal": equal,
        "differing": differing.len(),
        "kinds": kinds,
        "scapy": others["scapy"],
    });
    println!("{result:#}");
    std::fs::write(&file, format!("{result:#}\n")).with_context(|| file.display().to_string())?;

    ensure!(
        differing.is_empty(),
        "{} differences, the first:\n{}",
        differing.len(),
        differing[..differing.len().min(10)].join("\n")
    );
    // Every kind of frame that the run is meant to make is there. SACK maps are an extension of the protocol.
    for (kind, count) in &kinds {
        ensure!(
            *count > 0 || *kind == "sack_maps",
            "no frame of kind '{kind}' in the run"
        );
    }
    Ok(())
}

#[test]
fn a_missing_tool_is_named_with_its_package() {
    let error = tool(&mut Command::new("tshark-that-is-not-there"), "tshark").unwrap_err();
    assert_eq!(
        error.to_string(),
        "tshark-that-is-not-there is missing: install the Debian package 'tshark' (scripts/setup.sh does)"
    );
}
