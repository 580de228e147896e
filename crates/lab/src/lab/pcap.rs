//! Writes what both ends of the link saw as pcapng: nanoseconds, one interface an end.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::{DataLink, Endianness, PcapError};

use crate::clock::FromRealtime;
use crate::files::{MAKER, empty, open_own};

/// A capture file being written.
pub struct Pcap {
    path: String,
    writer: PcapNgWriter<BufWriter<File>>,
    clock: FromRealtime,
    failed: Option<String>,
    /// Behind an Ethernet header of zeros: libpcap 1.10 refuses two interfaces of raw IP.
    frame: Vec<u8>,
}

impl Pcap {
    /// Creates the file; an error is a sentence for the user.
    pub fn create(path: &str) -> Result<Self, String> {
        let say = |error: &dyn std::fmt::Display| format!("--pcap {path}: {error}");
        let file = open_own(Path::new(path)).map_err(|e| say(&e))?;
        empty(&file).map_err(|e| say(&e))?;
        let section = SectionHeaderBlock {
            options: vec![SectionHeaderOption::UserApplication(MAKER.into())],
            endianness: Endianness::native(),
            ..SectionHeaderBlock::default()
        };
        let mut writer = PcapNgWriter::with_section_header(BufWriter::new(file), section)
            .map_err(|e| say(&reason(&e)))?;
        for name in ["client", "server"] {
            let block = InterfaceDescriptionBlock {
                linktype: DataLink::ETHERNET,
                snaplen: 0,
                options: vec![
                    InterfaceDescriptionOption::IfName(Cow::Borrowed(name)),
                    // Stamps are in units of 10^-9 s.
                    InterfaceDescriptionOption::IfTsResol(9),
                ],
            };
            writer.write_pcapng_block(block).map_err(|e| say(&reason(&e)))?;
        }
        Ok(Self {
            path: path.to_owned(),
            writer,
            clock: FromRealtime::now(),
            failed: None,
            frame: Vec::new(),
        })
    }

    /// Writes one packet, from its IP header on, as seen at `end` (0 client, 1 server).
    pub fn write(&mut self, end: usize, at_ns: u64, ip: &[u8]) {
        self.write_cut(end, at_ns, ip, ip.len() as u32);
    }

    /// The same of a packet whose end was not captured.
    pub fn write_cut(&mut self, end: usize, at_ns: u64, ip: &[u8], whole_len: u32) {
        if self.failed.is_some() {
            return;
        }
        self.frame.clear();
        self.frame.extend_from_slice(&[0; 12]);
        let ether_type: [u8; 2] = match ip.first().map(|byte| byte >> 4) {
            Some(6) => [0x86, 0xdd],
            _ => [0x08, 0x00],
        };
        self.frame.extend_from_slice(&ether_type);
        self.frame.extend_from_slice(ip);
        let block = EnhancedPacketBlock {
            interface_id: end as u32,
            timestamp: Duration::from_nanos(self.clock.realtime_ns(at_ns)),
            original_len: whole_len + 14,
            data: Cow::Borrowed(&self.frame),
            options: Vec::new(),
        };
        if let Err(error) = self.writer.write_pcapng_block(block) {
            self.failed = Some(reason(&error));
        }
    }

    /// Flushes the file; says what went wrong meanwhile, if anything did.
    pub fn finish(&mut self) -> Result<(), String> {
        let flushed = self.writer.get_mut().flush().map_err(|error| error.to_string());
        match self.failed.take().map_or(flushed, Err) {
            Ok(()) => Ok(()),
            Err(error) => Err(format!("--pcap {}: {error}", self.path)),
        }
    }
}

/// The library calls every failed write a read; what the file system said is inside.
fn reason(error: &PcapError) -> String {
    match error {
        PcapError::IoError(error) => error.to_string(),
        other => other.to_string(),
    }
}
