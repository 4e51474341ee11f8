//! Captures as lists of frames.

use anyhow::{Context, Result};
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionBlock;
use pcap_file::pcapng::{Block, PcapNgReader, PcapNgWriter};
use pcap_file::DataLink;
use std::borrow::Cow;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::time::Duration;

/// The frames of a capture.
pub fn read(capture: &Path) -> Result<Vec<Vec<u8>>> {
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

/// Writes a capture, of the first `snap` bytes of each frame if so wished.
pub fn write(capture: &Path, frames: &[Vec<u8>], snap: Option<usize>) -> Result<()> {
    let file = File::create(capture).with_context(|| capture.display().to_string())?;
    let mut writer = PcapNgWriter::new(file)?;
    writer.write_pcapng_block(InterfaceDescriptionBlock {
        linktype: DataLink::ETHERNET,
        snaplen: 0,
        options: vec![],
    })?;
    for frame in frames {
        let kept = snap.unwrap_or(frame.len()).min(frame.len());
        writer.write_pcapng_block(EnhancedPacketBlock {
            interface_id: 0,
            timestamp: Duration::ZERO,
            original_len: frame.len() as u32,
            data: Cow::Borrowed(&frame[..kept]),
            options: vec![],
        })?;
    }
    Ok(())
}
