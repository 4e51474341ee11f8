//! The kinds of packets that the cards can send, and how many of each a run has over each carrier.

use crate::traffic::{Carrier, MTUS};
use anyhow::{ensure, Result};
use mprdma_spec::wire::aeth::{Nak, Syndrome};
use mprdma_spec::wire::bth::opcode;
use mprdma_spec::wire::frame::{Address, Body, Frame};
use mprdma_spec::wire::{mpaeth, mpeth, SackMap};
use serde_json::{json, Value};
use std::collections::BTreeMap;

type Test = fn(&Frame<'_>) -> bool;

/// Every packet that a card sends is one of these.
const PACKETS: &[(&str, Test)] = &[
    ("write_first", |f| f.bth.opcode == opcode::MP_WRITE_FIRST),
    ("write_middle", |f| f.bth.opcode == opcode::MP_WRITE_MIDDLE),
    ("write_last", |f| f.bth.opcode == opcode::MP_WRITE_LAST),
    ("write_last_with_immediate", |f| {
        f.bth.opcode == opcode::MP_WRITE_LAST_IMM
    }),
    ("write_only", |f| f.bth.opcode == opcode::MP_WRITE_ONLY),
    ("write_only_with_immediate", |f| {
        f.bth.opcode == opcode::MP_WRITE_ONLY_IMM
    }),
    ("read_request", |f| f.bth.opcode == opcode::MP_READ_REQUEST),
    ("read_response_first", |f| {
        f.bth.opcode == opcode::MP_READ_RESPONSE_FIRST
    }),
    ("read_response_middle", |f| {
        f.bth.opcode == opcode::MP_READ_RESPONSE_MIDDLE
    }),
    ("read_response_last", |f| {
        f.bth.opcode == opcode::MP_READ_RESPONSE_LAST
    }),
    ("read_response_only", |f| {
        f.bth.opcode == opcode::MP_READ_RESPONSE_ONLY
    }),
    ("compare_swap", |f| f.bth.opcode == opcode::MP_COMPARE_SWAP),
    ("fetch_add", |f| f.bth.opcode == opcode::MP_FETCH_ADD),
    ("atomic_ack", |f| f.bth.opcode == opcode::MP_ATOMIC_ACK),
    ("ack", |f| answers(f, Syndrome::ACK, 0) && map(f).is_none()),
    ("ack_with_sack_map", |f| {
        answers(f, Syndrome::ACK, 0) && map(f).is_some()
    }),
    ("window_nak", |f| {
        answers(f, Syndrome::ACK, mpaeth::FLAG_WINDOW_NAK)
    }),
    ("sync_nak", |f| {
        answers(f, Syndrome::ACK, mpaeth::FLAG_SYNC_NAK)
    }),
    (
        "rnr_nak",
        |f| matches!(f.body, Body::MpAck { aeth, .. } if matches!(aeth.syndrome, Syndrome::Rnr(_))),
    ),
    ("remote_access_nak", |f| {
        answers(f, Syndrome::Nak(Nak::RemoteAccess), 0)
    }),
    ("invalid_request_nak", |f| {
        answers(f, Syndrome::Nak(Nak::InvalidRequest), 0)
    }),
];

/// What packets may be besides.
const PROPERTIES: &[(&str, Test)] = &[
    ("retransmission", |f| flagged(f, mpeth::FLAG_RETX)),
    ("sync", |f| flagged(f, mpeth::FLAG_SYNC)),
    ("sync_retransmission", |f| {
        flagged(f, mpeth::FLAG_SYNC | mpeth::FLAG_RETX)
    }),
    ("zero_length", |f| {
        f.bth.opcode == opcode::MP_WRITE_ONLY && payload(f) == Some(0)
    }),
    ("zero_length_read", |f| {
        f.bth.opcode == opcode::MP_READ_RESPONSE_ONLY && f.body.split().1.is_empty()
    }),
    ("zero_length_with_immediate", |f| {
        f.bth.opcode == opcode::MP_WRITE_ONLY_IMM && payload(f) == Some(0)
    }),
    ("padded", |f| payload(f).is_some_and(|bytes| bytes % 4 != 0)),
    ("retransmission_echo", |f| echoes(f, mpaeth::FLAG_RETX_ECHO)),
    ("ecn_echo", |f| echoes(f, mpaeth::FLAG_ECN_ECHO)),
    ("nak_with_sack_map", |f| {
        map(f).is_some() && echoes_any(f, mpaeth::FLAG_WINDOW_NAK | mpaeth::FLAG_SYNC_NAK)
    }),
    ("sack_map_of_8_bytes", |f| {
        map(f).is_some_and(|map| map.len() == 8)
    }),
    ("sack_map_of_16_bytes", |f| {
        map(f).is_some_and(|map| map.len() == 16)
    }),
];

fn payload(frame: &Frame<'_>) -> Option<usize> {
    match frame.body {
        Body::MpWrite { payload, .. } => Some(payload.len()),
        _ => None,
    }
}

fn flagged(frame: &Frame<'_>, flags: u8) -> bool {
    matches!(frame.body, Body::MpWrite { mpeth, .. } if mpeth.flags & flags == flags)
}

fn map(frame: &Frame<'_>) -> Option<SackMap> {
    match frame.body {
        Body::MpAck { map, .. } => map,
        _ => None,
    }
}

fn echoes(frame: &Frame<'_>, flag: u8) -> bool {
    echoes_any(frame, flag)
}

fn echoes_any(frame: &Frame<'_>, flags: u8) -> bool {
    matches!(frame.body, Body::MpAck { mpaeth, .. } if mpaeth.flags & flags != 0)
}

/// An ACK with this syndrome and this one of the flags that say NAK, or none.
fn answers(frame: &Frame<'_>, syndrome: Syndrome, nak: u8) -> bool {
    let naks = mpaeth::FLAG_WINDOW_NAK | mpaeth::FLAG_SYNC_NAK;
    matches!(frame.body, Body::MpAck { aeth, mpaeth, .. }
        if aeth.syndrome == syndrome && mpaeth.flags & naks == nak)
}

/// Frames of each kind over each carrier.
pub struct Kinds(BTreeMap<String, [u64; Carrier::ALL.len()]>);

impl Kinds {
    pub fn new() -> Self {
        let named = PACKETS.iter().chain(PROPERTIES);
        let names = named.map(|(name, _)| (*name).to_string());
        let full = MTUS.iter().map(|mtu| full(*mtu));
        Self(
            names
                .chain(full)
                .map(|name| (name, Default::default()))
                .collect(),
        )
    }

    /// Counts a frame that a card has sent.
    pub fn add(&mut self, frame: &Frame<'_>) -> Result<()> {
        let ipv6 = matches!(frame.address, Address::V6 { .. });
        let tagged = frame.tag.is_some();
        let carrier = usize::from(ipv6) * 2 + usize::from(tagged);
        let mut count = |name: &str| {
            if let Some(counts) = self.0.get_mut(name) {
                counts[carrier] += 1;
            }
        };
        let is = |(name, test): &(&'static str, Test)| test(frame).then_some(*name);
        let packets: Vec<_> = PACKETS.iter().filter_map(is).collect();
        ensure!(
            packets.len() == 1,
            "a card sent a packet of kinds {packets:?}: {frame:?}"
        );
        packets.into_iter().for_each(&mut count);
        PROPERTIES.iter().filter_map(is).for_each(&mut count);
        if let Some(mtu) = MTUS
            .iter()
            .find(|mtu| payload(frame) == Some(**mtu as usize))
        {
            count(&full(*mtu));
        }
        Ok(())
    }

    /// Every kind has been seen over every carrier.
    pub fn complete(&self) -> Result<()> {
        for (kind, counts) in &self.0 {
            for (carrier, count) in Carrier::ALL.iter().zip(counts) {
                ensure!(*count > 0, "no {kind} over {}", carrier.name());
            }
        }
        Ok(())
    }

    pub fn json(&self) -> Value {
        let kinds = self.0.iter().map(|(kind, counts)| {
            let carriers = Carrier::ALL.iter().zip(counts);
            let counts = carriers.map(|(carrier, count)| (carrier.name().into(), json!(count)));
            (kind.clone(), Value::Object(counts.collect()))
        });
        Value::Object(kinds.collect())
    }
}

/// The kind of packets with a payload as long as the MTU.
fn full(mtu: u32) -> String {
    format!("payload_of_{mtu:04}_bytes")
}

#[test]
fn a_missing_kind_is_named() {
    let mut kinds = Kinds::new();
    for counts in kinds.0.values_mut() {
        *counts = [1; Carrier::ALL.len()];
    }
    assert!(kinds.complete().is_ok());
    kinds.0.entry("sync_nak".into()).or_default()[2] = 0;
    let error = kinds.complete().unwrap_err();
    assert_eq!(error.to_string(), "no sync_nak over ipv6");
}
