//! How far out of order data packets arrive, read off a capture of the receiving port.

use anyhow::{Context, Result};
use mprdma_spec::wire::frame::{Body, Frame};
use pcap_file::pcapng::{Block, PcapNgReader};
use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

/// What a capture says about the order of arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reorder {
    /// Data packets, retransmissions included.
    pub packets: u64,
    /// Those that came behind a packet with a later PSN.
    pub late: u64,
    /// How many PSNs the latest of them was behind.
    pub distance: u32,
}

/// Reads the capture of a port into which data packets come.
pub fn of_capture(path: &Path) -> Result<Reorder> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    let mut reader = PcapNgReader::new(BufReader::new(file))?;
    let mut found = Reorder::default();
    let mut highest: HashMap<u32, u32> = HashMap::new();
    while let Some(block) = reader.next_block() {
        let Block::EnhancedPacket(packet) = block? else {
            continue;
        };
        let Ok(frame) = Frame::parse(&packet.data) else {
            continue;
        };
        if !matches!(frame.body, Body::MpWrite { .. }) {
            continue;
        }
        found.packets += 1;
        let (qpn, psn) = (frame.bth.dqpn, frame.bth.psn.value());
        let top = highest.entry(qpn).or_insert(psn);
        let behind = top.wrapping_sub(psn) & 0xff_ffff;
        if behind == 0 || behind >= 0x80_0000 {
            *top = psn;
        } else {
            found.late += 1;
            found.distance = found.distance.max(behind);
        }
    }
    Ok(found)
}
