//! Frames of the model's cards: real headers for the network, and the model's own words behind them.

use mprdma_model::receiver;
use mprdma_model::sender::{self, ACK_MAP};
use mprdma_spec::wire::udp::ROCE_PORT;

/// Bytes of a data frame besides its payload: Ethernet 14, IPv4 20, UDP 8, BTH 12, MPETH 8, RETH 16, ICRC 4.
pub const DATA_HEADERS: usize = 82;
/// Bytes of an ACK frame: Ethernet 14, IPv4 20, UDP 8, BTH 12, AETH 4, MPAETH 8, ICRC 4.
const ACK_FRAME: usize = 70;
/// Bytes that a SACK map adds to it.
const MAP_BYTES: usize = 16;
/// Where the model's own words lie: after Ethernet, IPv4 and UDP.
const WORDS: usize = 42;

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A data packet.
    Data { psn: u32, stamp: u16, retx: bool },
    /// An answer.
    Ack(sender::Ack),
}

/// The headers that the network looks at, from a card to another, ECT(0). Card i has the address 10.0.0.(i + 1).
pub fn header(from: usize, to: usize, vp: u16, len: usize) -> Vec<u8> {
    let (from, to) = (from as u8 + 1, to as u8 + 1);
    let mut frame = vec![
        2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 8, 0, 0x45, 2, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0,
    ];
    frame.extend([10, 0, 0, from, 10, 0, 0, to]);
    frame.extend(vp.to_be_bytes());
    frame.extend(ROCE_PORT.to_be_bytes());
    frame.resize(len, 0);
    frame
}

/// A data frame of flow number `flow`.
pub fn data(
    (from, to): (usize, usize),
    flow: usize,
    mtu: u32,
    grant: &sender::Grant,
    stamp: u16,
) -> Vec<u8> {
    let mut frame = header(from, to, grant.vp, mtu as usize + DATA_HEADERS);
    let words = [grant.psn, stamp.into(), grant.retx.into()];
    put(&mut frame, flow, 0, words);
    frame
}

/// The answer to a packet of flow number `flow`. It is as long as on a real wire, and not ECN-capable.
pub fn ack((from, to): (usize, usize), flow: usize, ack: &receiver::Ack) -> Vec<u8> {
    let with_map = ack.flags & ACK_MAP != 0;
    let length = ACK_FRAME + if with_map { MAP_BYTES } else { 0 };
    let mut frame = header(from, to, ack.vp, length);
    frame[15] = 0;
    let codes = u32::from(ack.stamp) << 16 | u32::from(ack.flags) << 8 | u32::from(ack.syndrome);
    put(&mut frame, flow, 1, [ack.sack, ack.aack, codes]);
    if with_map {
        frame[WORDS + 16..WORDS + 16 + MAP_BYTES].copy_from_slice(&ack.map.to_be_bytes());
    }
    frame
}

/// The path of a frame, its CE mark, its flow and what it carries.
pub fn read(frame: &[u8]) -> (u16, bool, usize, Content) {
    let word = |i: usize| u32::from_be_bytes(std::array::from_fn(|j| frame[WORDS + i * 4 + j]));
    let vp = u16::from_be_bytes([frame[34], frame[35]]);
    let (kind, flow) = (word(3) >> 31, (word(3) & 0x7fff_ffff) as usize);
    let content = match kind {
        0 => Content::Data {
            psn: word(0),
            stamp: word(1) as u16,
            retx: word(2) != 0,
        },
        _ => {
            let flags = (word(2) >> 8) as u8;
            let map = match flags & ACK_MAP {
                0 => 0,
                _ => u128::from_be_bytes(std::array::from_fn(|j| frame[WORDS + 16 + j])),
            };
            Content::Ack(sender::Ack {
                sack: word(0),
                aack: word(1),
                flags,
                syndrome: word(2) as u8,
                vp,
                stamp: (word(2) >> 16) as u16,
                map,
            })
        }
    };
    (vp, frame[15] & 3 == 3, flow, content)
}

fn put(frame: &mut [u8], flow: usize, kind: u32, words: [u32; 3]) {
    let [a, b, c] = words;
    for (i, word) in [a, b, c, kind << 31 | flow as u32].iter().enumerate() {
        frame[WORDS + i * 4..WORDS + i * 4 + 4].copy_from_slice(&word.to_be_bytes());
    }
}
