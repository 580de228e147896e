//! Memory that a ring shares with the kernel: buffers to receive into, bytes to send, addresses.
//!
//! All of it stays where it is until the kernel is done with it: mapped pages and boxes, never the
//! inside of a vector that grows.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;
use socket2::SockAddr;

use crate::SysError;

/// Zeroed pages of our own, which cost nothing until they are touched.
struct Pages {
    start: NonNull<u8>,
    bytes: usize,
}

impl Pages {
    fn new(bytes: usize) -> Result<Self, SysError> {
        // SAFETY: a new private mapping overlaps nothing.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(SysError::last("mmap", format!("{bytes} bytes for a ring")));
        }
        let start = NonNull::new(start.cast())
            .ok_or_else(|| SysError::new("mmap", "page zero", io::ErrorKind::Other))?;
        Ok(Self { start, bytes })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length, and unmapped only here.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Buffers from which the kernel takes one for each receive.
pub(super) struct Buffers {
    /// `count` entries: which buffers the kernel may take.
    entries: Pages,
    bytes: Pages,
    pub(super) count: u16,
    pub(super) length: u32,
    tail: u16,
}

impl Buffers {
    /// Makes `count` buffers, a power of two, of `length` bytes; none is the kernel's yet.
    pub(super) fn new(count: u16, length: u32) -> Result<Self, SysError> {
        Ok(Self {
            entries: Pages::new(usize::from(count) * size_of::<BufRingEntry>())?,
            bytes: Pages::new(usize::from(count) * length as usize)?,
            count,
            length,
            tail: 0,
        })
    }

    /// Where the entries begin, for registering them.
    pub(super) fn entries(&self) -> u64 {
        self.entries.start.as_ptr() as u64
    }

    /// What the kernel has put into a buffer that it took.
    pub(super) fn filled(&self, buffer: u16, length: usize) -> &[u8] {
        let length = length.min(self.length as usize);
        let offset = usize::from(buffer % self.count) * self.length as usize;
        // SAFETY: inside the pages, which are initialised; the kernel does not write to a buffer
        // between taking it and getting it back.
        unsafe { std::slice::from_raw_parts(self.bytes.start.as_ptr().add(offset), length) }
    }

    /// Gives a buffer to the kernel.
    #[expect(clippy::cast_ptr_alignment, reason = "pages are aligned for anything")]
    pub(super) fn give(&mut self, buffer: u16) {
        let at = usize::from(self.tail & (self.count - 1));
        let offset = usize::from(buffer) * self.length as usize;
        let first = self.entries.start.as_ptr().cast::<BufRingEntry>();
        // SAFETY: entry and buffer lie inside their pages. The kernel reads the entry after it has
        // seen the tail move, and the tail is an aligned u16 of the first entry that only we write.
        unsafe {
            let entry = &mut *first.add(at);
            entry.set_addr(self.bytes.start.as_ptr().add(offset) as u64);
            entry.set_len(self.length);
            entry.set_bid(buffer);
            self.tail = self.tail.wrapping_add(1);
            let tail = BufRingEntry::tail(first).cast::<AtomicU16>();
            (*tail).store(self.tail, Ordering::Release);
        }
    }
}

/// Bytes that are to be sent.
///
/// Short ones go into one area that is used anew each turn: their send is decided when it is
/// submitted. Others get a block each until their completion.
pub(super) struct Texts {
    area: Box<[u8]>,
    used: usize,
    /// Begin and end of each short text of this turn.
    parts: Vec<(u32, u32)>,
    blocks: Vec<Vec<u8>>,
    free: Vec<u32>,
}

/// A block larger than this is not kept for the next.
const KEPT: usize = 16 << 10;

impl Texts {
    pub(super) fn new(area: usize) -> Self {
        Self {
            area: vec![0; area].into(),
            used: 0,
            parts: Vec::new(),
            blocks: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Copies a short text; `None`: the area is full.
    pub(super) fn short(&mut self, bytes: &[u8]) -> Option<(u32, *const u8)> {
        let end = self.used + bytes.len();
        let place = self.area.get_mut(self.used..end)?;
        place.copy_from_slice(bytes);
        let start = place.as_ptr();
        self.parts.push((self.used as u32, end as u32));
        self.used = end;
        Some((self.parts.len() as u32 - 1, start))
    }

    /// What is left of a short text.
    pub(super) fn rest(&self, part: u32, sent: usize) -> Vec<u8> {
        let (begin, end) = self.parts.get(part as usize).copied().unwrap_or_default();
        self.area[begin as usize..end as usize].get(sent..).unwrap_or_default().to_vec()
    }

    /// Forgets the short texts; all their sends have been decided.
    pub(super) fn forget(&mut self) {
        self.used = 0;
        self.parts.clear();
    }

    /// Copies a text into a block of its own.
    pub(super) fn block(&mut self, bytes: &[u8]) -> (u32, *const u8) {
        let number = self.free.pop().unwrap_or_else(|| {
            self.blocks.push(Vec::new());
            self.blocks.len() as u32 - 1
        });
        let block = &mut self.blocks[number as usize];
        block.clear();
        block.extend_from_slice(bytes);
        (number, block.as_ptr())
    }

    /// Takes a block back.
    pub(super) fn release(&mut self, number: u32) {
        if let Some(block) = self.blocks.get_mut(number as usize) {
            if block.capacity() > KEPT {
                *block = Vec::new();
            }
            self.free.push(number);
        }
    }
}

/// Where connections go, and from where.
#[derive(Clone, Debug)]
pub struct Route {
    /// The other end.
    pub target: SocketAddr,
    /// Source address; its port is left to the kernel, and only taken at the connect.
    pub source: Option<IpAddr>,
    /// Congestion control, by the kernel's name.
    pub congestion: Option<String>,
}

/// A socket option in the kernel's form.
pub(super) struct SocketOption {
    pub(super) name: &'static str,
    pub(super) level: u32,
    pub(super) option: u32,
    pub(super) value: Box<[u8]>,
}

/// A route in the kernel's form.
pub(super) struct Addresses {
    pub(super) domain: i32,
    pub(super) target: Box<SockAddr>,
    pub(super) source: Option<Box<SockAddr>>,
    pub(super) options: Vec<SocketOption>,
}

impl Addresses {
    pub(super) fn new(route: &Route, stamps: bool) -> Self {
        let one = || Box::<[u8]>::from(1_i32.to_ne_bytes());
        let mut options = Vec::new();
        let mut option = |name, level: i32, option: i32, value| {
            options.push(SocketOption { name, level: level as u32, option: option as u32, value });
        };
        if let Some(name) = &route.congestion {
            let name = name.as_bytes().into();
            option("TCP_CONGESTION", libc::IPPROTO_TCP, libc::TCP_CONGESTION, name);
        }
        if stamps {
            option("SO_TIMESTAMPNS", libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, one());
        }
        if route.source.is_some() {
            // Without this the kernel takes a port at bind(2) that no other destination may share.
            let number = libc::IP_BIND_ADDRESS_NO_PORT;
            option("IP_BIND_ADDRESS_NO_PORT", libc::IPPROTO_IP, number, one());
        }
        let target = SockAddr::from(route.target);
        Self {
            domain: i32::from(target.family()),
            target: Box::new(target),
            source: route.source.map(|source| Box::new(SocketAddr::new(source, 0).into())),
            options,
        }
    }
}
