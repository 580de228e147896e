//! What passes an interface, as a relay or as a witness?
//!
//! [`PacketSocket`] moves whole Ethernet frames for an emulated link where TUN is not to be had.
//! [`Tap`] only looks: the first bytes of every IP packet with the kernel's time stamp, from a
//! ring shared with the kernel. What the headers mean is decoded in the core crate; `pcapng` is
//! written in the engine.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, recv, send, setsockopt, sockopt};

use crate::SysError;

/// What a relay's socket may hold of unread frames: 50 ms at 5 Gbit/s.
const RELAY_BUFFER_BYTES: usize = 32 << 20;

/// An `AF_PACKET` socket that reads what an interface receives and writes what it shall send.
///
/// Frames are whole Ethernet frames behind a virtio header of [`VNET_HEADER`](Self::VNET_HEADER)
/// bytes, read by [`VnetHeader::parse`](crate::tun::VnetHeader::parse); what is written by this
/// program itself is not read back. A frame read here is written unchanged to another one.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    on: String,
    drops: AtomicU64,
}

impl PacketSocket {
    /// Bytes of the virtio header in front of each frame (`struct virtio_net_hdr`).
    pub const VNET_HEADER: usize = 10;

    /// Opens the socket on the interface with this index, in the calling thread's namespace.
    ///
    /// Its buffer is 32 MiB where `CAP_NET_ADMIN` of the machine allows that, otherwise what
    /// `net.core.rmem_max` allows; watch [`drops`](Self::drops).
    pub fn open(index: u32) -> Result<Self, SysError> {
        let on = format!("packet socket of interface {index}");
        let fd = raw_socket(&on)?;
        set(&fd, libc::PACKET_VNET_HDR, &1_i32)
            .map_err(|e| SysError::new("PACKET_VNET_HDR", &on, e))?;
        set(&fd, libc::PACKET_IGNORE_OUTGOING, &1_i32)
            .map_err(|e| SysError::new("PACKET_IGNORE_OUTGOING", &on, e))?;
        if setsockopt(&fd, sockopt::RcvBufForce, &RELAY_BUFFER_BYTES).is_err() {
            setsockopt(&fd, sockopt::RcvBuf, &RELAY_BUFFER_BYTES)
                .map_err(|errno| SysError::new("SO_RCVBUF", &on, errno))?;
        }
        bind(&fd, index).map_err(|e| SysError::new("bind", &on, e))?;
        Ok(Self { fd, on, drops: AtomicU64::new(0) })
    }

    /// Reads one frame with its virtio header; `WouldBlock` if there is none.
    ///
    /// `buffer` should hold [`VNET_HEADER`](Self::VNET_HEADER) + 14 + 65536 bytes; what does not
    /// fit is lost.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(recv(self.fd.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT)?)
    }

    /// Sends one frame, behind its virtio header, out of the interface.
    ///
    /// `WouldBlock` or ENOBUFS if the device's queue is full, EMSGSIZE for a plain frame longer
    /// than the MTU.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(self.fd.as_raw_fd(), bytes, MsgFlags::MSG_DONTWAIT)?)
    }

    /// Frames lost since [`open`](Self::open) because the socket's buffer was full.
    pub fn drops(&self) -> Result<u64, SysError> {
        let (_, drops) =
            statistics(&self.fd).map_err(|e| SysError::new("PACKET_STATISTICS", &self.on, e))?;
        Ok(self.drops.fetch_add(drops, Ordering::Relaxed) + drops)
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A packet that a [`Tap`] saw.
#[derive(Clone, Copy, Debug)]
pub struct TappedPacket<'a> {
    /// Nanoseconds since 1970 on `CLOCK_REALTIME`, as the kernel stamped it: in reception by the
    /// device or, of an outgoing packet, when it was handed to the device (behind its qdisc).
    pub at_realtime_ns: u64,
    /// The interface sent it.
    pub outgoing: bool,
    /// From the IP header on, cut at the tap's `snaplen`.
    pub bytes: &'a [u8],
    /// Bytes of the whole packet, from the IP header on.
    pub ip_len: u32,
    /// Bytes of payload in each segment of a super-packet; 0 for a plain packet.
    pub gso_size: u32,
}

/// A tap on one interface: sees every IP packet in both directions, and changes nothing.
///
/// On a link with offloads a packet here may be a super-packet (`gso_size` above 0), which is
/// several on the wire. On `lo` every packet is seen twice, outgoing and incoming.
///
/// Cost: one copy of `snaplen` bytes per packet in the context of whoever sent it.
#[derive(Debug)]
pub struct Tap {
    fd: OwnedFd,
    on: String,
    ring: Ring,
    snaplen: u32,
    vnet: bool,
    current: usize,
    delivered: u64,
    packets: u64,
    drops: u64,
}

/// How long the kernel keeps a block that is not full; what the tail of a capture waits for.
const RETIRE_MS: u32 = 10;
/// One block of the ring; 1500 headers of 128 bytes with their overhead. A block is handed over
/// every 10 ms if not full, so a 32 MiB ring outlasts a reader that stalls for a second.
const BLOCK_BYTES: usize = 256 << 10;
/// Formal only in `TPACKET_V3`, where frames have the length they have.
const FRAME_BYTES: usize = 2048;
/// `struct tpacket3_hdr`, after which `struct sockaddr_ll` follows.
const FRAME_HEADER: usize = size_of::<libc::tpacket3_hdr>();
/// Offset of `sll_pkttype` in `struct sockaddr_ll`.
const PACKET_TYPE: usize = FRAME_HEADER + 10;

impl Tap {
    /// Opens the tap on the interface with this index, in the calling thread's namespace.
    ///
    /// `snaplen` bytes of each packet are kept, from the IP header on. `ring_bytes` is rounded up
    /// to blocks of 256 KiB, two at least; 32 MiB holds about 200,000 packets at `snaplen` 128.
    ///
    /// Errors: EPERM without `CAP_NET_RAW` over the namespace, ENOMEM.
    pub fn open(index: u32, snaplen: u32, ring_bytes: usize) -> Result<Self, SysError> {
        let on = format!("tap of interface {index}");
        let failed = |op| {
            let on = on.clone();
            move |source: io::Error| SysError::new(op, on, source)
        };
        // Nothing arrives before the bind at the end: the socket has no protocol until then.
        let fd = raw_socket(&on)?;
        set(&fd, libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V3 as libc::c_int))
            .map_err(failed("PACKET_VERSION"))?;
        let vnet = set(&fd, libc::PACKET_VNET_HDR, &1_i32).is_ok();
        only_ip(&fd, snaplen).map_err(failed("SO_ATTACH_FILTER"))?;
        let blocks = ring_bytes.div_ceil(BLOCK_BYTES).max(2);
        let request = libc::tpacket_req3 {
            tp_block_size: BLOCK_BYTES as u32,
            tp_block_nr: blocks as u32,
            tp_frame_size: FRAME_BYTES as u32,
            tp_frame_nr: (BLOCK_BYTES / FRAME_BYTES * blocks) as u32,
            tp_retire_blk_tov: RETIRE_MS,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        set(&fd, libc::PACKET_RX_RING, &request).map_err(failed("PACKET_RX_RING"))?;
        let ring = Ring::map(&fd, blocks).map_err(failed("mmap"))?;
        bind(&fd, index).map_err(failed("bind"))?;
        let (current, delivered, packets, drops) = (0, 0, 0, 0);
        Ok(Self { fd, on, ring, snaplen, vnet, current, delivered, packets, drops })
    }

    /// Hands every packet of the blocks that are ready to `f`, in the order they were seen.
    /// Returns how many; never waits, and stops after one turn of the ring.
    ///
    /// The kernel hands over a block when it is full or 10 ms old, so the youngest packets may
    /// be missing: see [`flush_wait`](Self::flush_wait).
    ///
    /// Errors: `InvalidData` if a block is not as `TPACKET_V3` has it.
    pub fn for_each(&mut self, mut f: impl FnMut(TappedPacket<'_>)) -> Result<u64, SysError> {
        let mut count = 0;
        for _ in 0..self.ring.blocks {
            let Some(block) = self.ring.ready(self.current) else { break };
            let walked = walk(block, self.snaplen, self.vnet, &mut f);
            self.ring.give_back(self.current);
            self.current = (self.current + 1) % self.ring.blocks;
            count += walked.ok_or_else(|| {
                let source = io::Error::new(io::ErrorKind::InvalidData, "malformed block");
                SysError::new("TPACKET_V3", &self.on, source)
            })?;
        }
        self.delivered += count;
        Ok(count)
    }

    /// As [`for_each`](Self::for_each), but waits until every packet seen before the call has been
    /// handed over, which takes 10 to 20 ms.
    ///
    /// Errors: `TimedOut` if that takes longer than `timeout`; what was ready has been handed over.
    pub fn flush_wait(
        &mut self,
        timeout: Duration,
        mut f: impl FnMut(TappedPacket<'_>),
    ) -> Result<u64, SysError> {
        self.take_statistics()?;
        let goal = self.packets - self.drops;
        let deadline = Instant::now() + timeout;
        let mut count = 0;
        loop {
            count += self.for_each(&mut f)?;
            if self.delivered >= goal {
                return Ok(count);
            }
            if Instant::now() >= deadline {
                return Err(SysError::new("TPACKET_V3", &self.on, io::ErrorKind::TimedOut));
            }
            let mut wanted = [PollFd::new(self.fd.as_fd(), PollFlags::POLLIN)];
            // A signal ends the wait early, which only makes this loop turn once more.
            let _ = poll(&mut wanted, PollTimeout::from(RETIRE_MS as u8));
        }
    }

    /// Packets that passed the interface unseen since [`open`](Self::open), because the ring was
    /// full.
    pub fn drops(&mut self) -> Result<u64, SysError> {
        self.take_statistics()?;
        Ok(self.drops)
    }

    fn take_statistics(&mut self) -> Result<(), SysError> {
        let (packets, drops) =
            statistics(&self.fd).map_err(|e| SysError::new("PACKET_STATISTICS", &self.on, e))?;
        self.packets += packets;
        self.drops += drops;
        Ok(())
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Walks one block; `None` if an offset points out of it.
fn walk(
    block: &[u8],
    snaplen: u32,
    vnet: bool,
    f: &mut impl FnMut(TappedPacket<'_>),
) -> Option<u64> {
    // struct tpacket_block_desc: version, offset_to_priv, block_status, num_pkts, first offset.
    let count = u32_at(block, 12)?;
    let mut at = u32_at(block, 16)? as usize;
    for _ in 0..count {
        let frame = block.get(at..)?;
        let mac = usize::from(u16_at(frame, 24)?);
        let net = usize::from(u16_at(frame, 26)?);
        let link_header = net.checked_sub(mac)?;
        let kept = (u32_at(frame, 12)? as usize).saturating_sub(link_header);
        let whole = u32_at(frame, 16)?;
        let gso_at = mac.checked_sub(PacketSocket::VNET_HEADER)? + 4;
        f(TappedPacket {
            at_realtime_ns: u64::from(u32_at(frame, 4)?) * 1_000_000_000
                + u64::from(u32_at(frame, 8)?),
            outgoing: *frame.get(PACKET_TYPE)? == libc::PACKET_OUTGOING,
            bytes: frame.get(net..net + kept.min(snaplen as usize))?,
            ip_len: whole.saturating_sub(link_header as u32),
            gso_size: if vnet { u16_at(frame, gso_at)?.into() } else { 0 },
        });
        at += u32_at(frame, 0)? as usize;
    }
    Some(count.into())
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The memory shared with the kernel: `blocks` blocks, each owned by one side at a time.
#[derive(Debug)]
struct Ring {
    start: NonNull<u8>,
    blocks: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and nothing else points to it.
unsafe impl Send for Ring {}

impl Ring {
    fn map(fd: &OwnedFd, blocks: usize) -> io::Result<Self> {
        let (len, access) = (blocks * BLOCK_BYTES, libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: a fresh mapping, at an address the kernel chooses, of the ring just set up on
        // this socket, which has exactly this length.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), len, access, libc::MAP_SHARED, fd.as_raw_fd(), 0)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, blocks })
    }

    /// The status word of a block: bit 0 is set while it is ours.
    fn status(&self, block: usize) -> &AtomicU32 {
        assert!(block < self.blocks, "block {block} of {}", self.blocks);
        // SAFETY: within the mapping by the assertion, aligned because blocks start on pages and
        // block_status stands at byte 8; kernel and we access it only as a whole word.
        unsafe { AtomicU32::from_ptr(self.start.add(block * BLOCK_BYTES + 8).cast().as_ptr()) }
    }

    /// The block's bytes if the kernel has handed it over.
    fn ready(&self, block: usize) -> Option<&[u8]> {
        if self.status(block).load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: within the mapping (status has asserted it), and ours until give_back, which
        // needs the ring mutably and so ends this borrow: the kernel does not write to it meanwhile.
        Some(unsafe {
            std::slice::from_raw_parts(self.start.add(block * BLOCK_BYTES).as_ptr(), BLOCK_BYTES)
        })
    }

    fn give_back(&mut self, block: usize) {
        self.status(block).store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `map`, whole, and no slice of it outlives `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.blocks * BLOCK_BYTES) };
    }
}

/// A packet socket that receives nothing until it is bound.
fn raw_socket(on: &str) -> Result<OwnedFd, SysError> {
    use std::os::fd::FromRawFd;
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: socket(2) takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if fd < 0 {
        return Err(SysError::last("socket", on));
    }
    // SAFETY: a descriptor just made, which nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets an option of level `SOL_PACKET` to the bytes of `value`.
fn set<T: Copy>(fd: &OwnedFd, option: libc::c_int, value: &T) -> io::Result<()> {
    setsockopt_raw(fd, libc::SOL_PACKET, option, value)
}

fn setsockopt_raw<T: Copy>(
    fd: &OwnedFd,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes of `value`, which is a whole, initialised C struct.
    let code = unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), len)
    };
    if code < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn bind(fd: &OwnedFd, index: u32) -> io::Result<()> {
    // SAFETY: struct sockaddr_ll is plain C data, for which all zeros is a value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as libc::sa_family_t;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index.try_into().map_err(|_| io::ErrorKind::InvalidInput)?;
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes of the address, which lives until the call returns.
    let code = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) };
    if code < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Packets (those dropped included) and drops since the last call; reading sets both back to 0.
fn statistics(fd: &OwnedFd) -> io::Result<(u64, u64)> {
    // The first two words are the same in every version of the struct; V3 has a third.
    let mut words = [0_u32; 3];
    let mut len = size_of_val(&words) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `words`, and the length into `len`.
    let code = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            words.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if code < 0 { Err(io::Error::last_os_error()) } else { Ok((words[0].into(), words[1].into())) }
}

/// Lets only IPv4 and IPv6 pass, cut to `snaplen` bytes behind an Ethernet header.
///
/// Asks for the packet's protocol, not for bytes of it, so that it serves devices with and without
/// an Ethernet header.
fn only_ip(fd: &OwnedFd, snaplen: u32) -> io::Result<()> {
    const LOAD_HALF: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
    const JUMP_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    const ETHERNET_HEADER: u32 = 14;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut program = [
        step(LOAD_HALF, 0, 0, (libc::SKF_AD_OFF + libc::SKF_AD_PROTOCOL).cast_unsigned()),
        step(JUMP_EQUAL, 1, 0, 0x0800),
        step(JUMP_EQUAL, 0, 1, 0x86dd),
        step(RETURN, 0, 0, snaplen.saturating_add(ETHERNET_HEADER)),
        step(RETURN, 0, 0, 0),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    setsockopt_raw(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)
}
