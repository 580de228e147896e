//! Writes what both ends of the link saw as pcapng: nanoseconds, one interface an end.
//!
//! The format is draft-ietf-opsawg-pcapng; three kinds of its blocks are enough.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::clock::FromRealtime;
use crate::files::{MAKER, empty, open_own};

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;

/// What names the order of the bytes: this machine's.
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const VERSION: [u16; 2] = [1, 0];
const LEN_NOT_STATED: [u8; 8] = [0xff; 8];
const USER_APPLICATION: u16 = 4;
const INTERFACE_NAME: u16 = 2;
const INTERFACE_RESOLUTION: u16 = 9;

/// libpcap 1.10 refuses two interfaces of raw IP: packets stand behind an Ethernet header of zeros.
const ETHERNET: u16 = 1;
const ETHERNET_LEN: u32 = 14;

/// A capture file being written.
pub struct Pcap {
    path: String,
    file: BufWriter<File>,
    clock: FromRealtime,
    failed: Option<io::Error>,
}

impl Pcap {
    /// Creates the file; an error is a sentence for the user.
    pub fn create(path: &str) -> Result<Self, String> {
        let say = |error: io::Error| format!("--pcap {path}: {error}");
        let file = open_own(Path::new(path)).map_err(say)?;
        empty(&file).map_err(say)?;
        let mut file = BufWriter::new(file);
        let version = VERSION.map(u16::to_ne_bytes);
        let mut section =
            [&BYTE_ORDER.to_ne_bytes(), version.as_flattened(), &LEN_NOT_STATED].concat();
        option(&mut section, USER_APPLICATION, MAKER.as_bytes());
        block(&mut file, SECTION_HEADER, &[&section, &[0; 4]]).map_err(say)?;
        for name in ["client", "server"] {
            // All of each packet is kept. Stamps are in units of 10^-9 s.
            let mut interface = [&ETHERNET.to_ne_bytes()[..], &[0; 6]].concat();
            option(&mut interface, INTERFACE_NAME, name.as_bytes());
            option(&mut interface, INTERFACE_RESOLUTION, &[9]);
            block(&mut file, INTERFACE_DESCRIPTION, &[&interface, &[0; 4]]).map_err(say)?;
        }
        Ok(Self { path: path.to_owned(), file, clock: FromRealtime::now(), failed: None })
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
        let at_ns = self.clock.realtime_ns(at_ns);
        let [len, whole_len] = [ip.len() as u32, whole_len].map(|len| len + ETHERNET_LEN);
        let packet = [end as u32, (at_ns >> 32) as u32, at_ns as u32, len, whole_len];
        let ether_type: [u8; 2] = match ip.first().map(|byte| byte >> 4) {
            Some(6) => [0x86, 0xdd],
            _ => [0x08, 0x00],
        };
        let packet = packet.map(u32::to_ne_bytes);
        let parts = [packet.as_flattened(), &[0; 12], &ether_type, ip];
        self.failed = block(&mut self.file, ENHANCED_PACKET, &parts).err();
    }

    /// Flushes the file; says what went wrong meanwhile, if anything did.
    pub fn finish(&mut self) -> Result<(), String> {
        let failed = self.failed.take();
        let written = failed.map_or_else(|| self.file.flush(), Err);
        written.map_err(|error| format!("--pcap {}: {error}", self.path))
    }
}

/// A block: its kind and length, these parts as one, padded, and its length again.
fn block(file: &mut impl Write, kind: u32, parts: &[&[u8]]) -> io::Result<()> {
    let body: usize = parts.iter().map(|part| part.len()).sum();
    let len = (body.next_multiple_of(4) as u32 + 12).to_ne_bytes();
    file.write_all(&kind.to_ne_bytes())?;
    file.write_all(&len)?;
    for part in parts {
        file.write_all(part)?;
    }
    file.write_all(&[0; 3][..body.next_multiple_of(4) - body])?;
    file.write_all(&len)
}

/// Appends an option; four zeros end the list of them.
fn option(to: &mut Vec<u8>, code: u16, value: &[u8]) {
    to.extend(code.to_ne_bytes());
    to.extend((value.len() as u16).to_ne_bytes());
    to.extend(value);
    to.resize(to.len().next_multiple_of(4), 0);
}
