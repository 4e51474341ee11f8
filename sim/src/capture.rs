//! pcapng captures, one file per card port.

use crate::card::Seen;
use crate::time::Ps;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::{DataLink, PcapError};
use std::borrow::Cow;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A capture cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the capture {}", file.display())]
pub struct CaptureError {
    file: PathBuf,
    source: PcapError,
}

/// The capture of one port.
pub struct Capture {
    path: PathBuf,
    file: File,
    /// Collects blocks, which reach the file whole.
    writer: PcapNgWriter<Vec<u8>>,
}

impl Capture {
    /// Creates `DIR/NAME.pcapng`, and the directory if it is missing.
    pub fn create(dir: &Path, name: &str) -> Result<Capture, CaptureError> {
        let path = dir.join(name).with_extension("pcapng");
        let error = |source| CaptureError {
            file: path.clone(),
            source,
        };
        let file = std::fs::create_dir_all(dir)
            .and_then(|()| File::create(&path))
            .map_err(|e| error(PcapError::IoError(e)))?;
        let mut writer = PcapNgWriter::new(vec![]).map_err(error)?;
        let interface = InterfaceDescriptionBlock {
            linktype: DataLink::ETHERNET,
            snaplen: 0,
            options: vec![
                InterfaceDescriptionOption::IfName(Cow::Borrowed(name)),
                // Timestamps count 10^-9 s of simulated time.
                InterfaceDescriptionOption::IfTsResol(9),
            ],
        };
        writer.write_pcapng_block(interface).map_err(error)?;
        let mut capture = Capture { path, file, writer };
        capture.flush()?;
        Ok(capture)
    }

    /// The file.
    pub fn file(&self) -> &Path {
        &self.path
    }

    /// Appends frames at once, so that a reader of the file sees whole packets.
    pub fn write(&mut self, frames: &[Seen]) -> Result<(), CaptureError> {
        for seen in frames {
            self.packet(seen).map_err(|source| self.error(source))?;
        }
        match frames.is_empty() {
            true => Ok(()),
            false => self.flush(),
        }
    }

    fn error(&self, source: PcapError) -> CaptureError {
        let file = self.path.clone();
        CaptureError { file, source }
    }

    fn packet(&mut self, seen: &Seen) -> pcap_file::PcapResult<usize> {
        /// Direction in the flags word: 1 inbound, 2 outbound (pcapng section 4.3.1).
        const INBOUND: u32 = 1;
        const OUTBOUND: u32 = 2;
        self.writer.write_pcapng_block(EnhancedPacketBlock {
            interface_id: 0,
            timestamp: Duration::from_nanos(nanoseconds(seen.at)),
            original_len: seen.frame.len() as u32,
            data: Cow::Borrowed(&seen.frame),
            options: vec![EnhancedPacketOption::Flags(if seen.sent {
                OUTBOUND
            } else {
                INBOUND
            })],
        })
    }

    fn flush(&mut self) -> Result<(), CaptureError> {
        let written = self.file.write_all(self.writer.get_ref());
        self.writer.get_mut().clear();
        written.map_err(|e| self.error(PcapError::IoError(e)))
    }
}

fn nanoseconds(at: Ps) -> u64 {
    at / crate::time::NS
}
