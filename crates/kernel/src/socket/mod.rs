//! TCP and UDP sockets with the options the experiments need; nonblocking, closed on exec.
//!
//! Those of [`blocking`] block. `bulk` has the ways to write and read bulk data.
//!
//! Options decide how bulk data is carried (buffers, Nagle's algorithm, corks, acknowledgements, congestion
//! control), and what the kernel does by itself about a peer that may be gone: probes of an idle
//! connection ([`Probing`]), and the limit on unacknowledged data.

pub mod blocking;
mod bulk;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

pub use self::bulk::{MemoryFile, PARTS_MAX};
use crate::SysError;

/// An address in the kernel's form.
pub type Address = SockAddr;

/// The error numbers that tell classes of failure apart.
pub mod errno {
    pub use libc::{
        EADDRINUSE, EADDRNOTAVAIL, EAGAIN, ECONNREFUSED, ECONNRESET, EHOSTUNREACH, EINVAL, EMFILE,
        ENETUNREACH, ENFILE, ENOBUFS, ENOMEM, ENOPROTOOPT, EPIPE, EROFS, ETIMEDOUT,
    };
}

/// Settings of a client socket, made before `connect(2)`.
#[derive(Clone, Debug, Default)]
pub struct ClientOptions {
    /// Source address; its port is left to the kernel, and only taken at `connect(2)`.
    pub bind: Option<IpAddr>,
    /// Congestion control, by the kernel's name.
    pub congestion: Option<String>,
    /// Send the first bytes with the SYN (RFC 7413).
    pub fast_open: bool,
}

/// A TCP socket.
#[derive(Debug)]
pub struct Tcp(Socket);

/// What `connect(2)` said at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// The handshake is on its way.
    InProgress,
    /// Connected already (or, with fast open, put off until the first write).
    Done,
}

impl Tcp {
    /// Makes a client socket for `target`.
    pub fn client(target: SocketAddr, options: &ClientOptions) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(target), Type::STREAM.nonblocking(), None)?;
        if let Some(name) = &options.congestion {
            socket.set_tcp_congestion(name.as_bytes())?;
        }
        if options.fast_open {
            set_int(&socket, libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, 1)?;
        }
        if let Some(address) = options.bind {
            // Without this the kernel takes a port at bind(2) that no other destination may share.
            set_int(&socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)?;
            socket.bind(&SocketAddr::new(address, 0).into())?;
        }
        Ok(Self(socket))
    }

    /// Makes a listening socket; port 0 lets the kernel choose.
    pub fn listener(at: SocketAddr, backlog: i32, fast_open: bool) -> Result<Self, SysError> {
        Self::listen(at, backlog, fast_open, false, |_| Ok(()))
    }

    /// Makes a listening socket on a port that other sockets of the same user may listen on too:
    /// the kernel spreads connections over them (`SO_REUSEPORT`).
    pub fn shared_listener(at: SocketAddr, backlog: i32) -> Result<Self, SysError> {
        Self::listen(at, backlog, false, true, |_| Ok(()))
    }

    /// Makes a listening socket with options that accepted sockets inherit; `prepare` sets them before
    /// `listen(2)`.
    pub fn prepared_listener(
        at: SocketAddr,
        backlog: i32,
        prepare: impl FnOnce(&Self) -> io::Result<()>,
    ) -> Result<Self, SysError> {
        Self::listen(at, backlog, false, false, prepare)
    }

    fn listen(
        at: SocketAddr,
        backlog: i32,
        fast_open: bool,
        shared: bool,
        prepare: impl FnOnce(&Self) -> io::Result<()>,
    ) -> Result<Self, SysError> {
        let name = |op| move |e| SysError::new(op, at.to_string(), e);
        let socket = Socket::new(Domain::for_address(at), Type::STREAM.nonblocking(), None)
            .map_err(name("socket"))?;
        socket.set_reuse_address(true).map_err(name("SO_REUSEADDR"))?;
        if shared {
            socket.set_reuse_port(true).map_err(name("SO_REUSEPORT"))?;
        }
        if fast_open {
            set_int(&socket, libc::IPPROTO_TCP, libc::TCP_FASTOPEN, backlog.max(1))
                .map_err(name("TCP_FASTOPEN"))?;
        }
        socket.bind(&at.into()).map_err(name("bind"))?;
        let prepared = Self(socket);
        prepare(&prepared).map_err(name("setsockopt"))?;
        prepared.0.listen(backlog).map_err(name("listen"))?;
        Ok(prepared)
    }

    /// Makes a listening socket whose accept(2) blocks, for threads that share it.
    pub fn blocking_listener(
        at: SocketAddr,
        backlog: i32,
    ) -> Result<std::net::TcpListener, SysError> {
        let listener = Self::listener(at, backlog, false)?;
        let blocking = listener.0.set_nonblocking(false);
        blocking.map_err(|e| SysError::new("O_NONBLOCK", at.to_string(), e))?;
        Ok(listener.0.into())
    }

    /// Begins the handshake.
    pub fn connect(&self, target: &SockAddr) -> io::Result<Begun> {
        match self.0.connect(target) {
            Ok(()) => Ok(Begun::Done),
            Err(e) if e.raw_os_error() == Some(libc::EINPROGRESS) => Ok(Begun::InProgress),
            Err(e) => Err(e),
        }
    }

    /// The error that ended a handshake, if one did.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.0.take_error()
    }

    /// Takes one connection from the accept queue; `None` when it is empty.
    pub fn accept(&self) -> io::Result<Option<(Self, SocketAddr)>> {
        match self.0.accept() {
            Ok((socket, peer)) => {
                socket.set_nonblocking(true)?;
                let peer = peer.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
                Ok(Some((Self(socket), peer)))
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Reads what has arrived; `None` when nothing has, `Some(0)` when the peer closed.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        would_block(io::Read::read(&mut &self.0, buffer))
    }

    /// Whether the peer's FIN, or its RST, has arrived and all bytes before it have been read.
    pub fn peer_has_closed(&self) -> bool {
        let mut byte = [std::mem::MaybeUninit::uninit()];
        match self.0.recv_with_flags(&mut byte, libc::MSG_PEEK | libc::MSG_DONTWAIT) {
            Ok(length) => length == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }

    /// Writes what fits; `None` when nothing does.
    pub fn write(&self, bytes: &[u8]) -> io::Result<Option<usize>> {
        would_block(self.0.send_with_flags(bytes, libc::MSG_NOSIGNAL))
    }

    /// Asks for the time at which what is read arrived, for [`Tcp::read_stamped`].
    pub fn stamp_arrivals(&self) -> io::Result<()> {
        set_int(&self.0, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
    }

    /// Reads what has arrived, with the time at which the last of it did, ns on `CLOCK_REALTIME`;
    /// 0: the kernel did not say.
    ///
    /// `None` when nothing has arrived, length 0 when the peer closed. The stamp is taken where the
    /// device hands the packet to the stack, before TCP sees it. Source: `tcp_recv_timestamp()` in
    /// net/ipv4/tcp.c of Linux 6.18.
    pub fn read_stamped(&self, buffer: &mut [u8]) -> io::Result<Option<(usize, u64)>> {
        /// Room for one control message with a time.
        #[repr(C, align(8))]
        struct Control([u8; 64]);
        let mut control = Control([0; 64]);
        let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        // SAFETY: all zeroes is a valid msghdr: null pointers with lengths of 0.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = control.0.len() as _;
        // SAFETY: the message points at one buffer and one control area, both as long as said and
        // alive across the call.
        let length = unsafe { libc::recvmsg(self.0.as_raw_fd(), &raw mut message, 0) };
        if length < 0 {
            return would_block(Err(io::Error::last_os_error()))
                .map(|read| read.map(|n: usize| (n, 0)));
        }
        // SAFETY: CMSG_FIRSTHDR gives null or a header inside the control area, which the kernel
        // filled up to `msg_controllen`; a message of this type holds a timespec.
        let stamp_ns = unsafe {
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            if !header.is_null()
                && (*header).cmsg_level == libc::SOL_SOCKET
                && (*header).cmsg_type == libc::SCM_TIMESTAMPNS
            {
                let time: libc::timespec = std::ptr::read_unaligned(libc::CMSG_DATA(header).cast());
                time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
            } else {
                0
            }
        };
        Ok(Some((length as usize, stamp_ns)))
    }

    /// The address of this end.
    pub fn local(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()?.as_socket().ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
    }

    /// Congestion control in use.
    pub fn congestion(&self) -> io::Result<String> {
        let name = self.0.tcp_congestion()?;
        let end = name.iter().position(|&b| b == 0).unwrap_or(name.len());
        Ok(String::from_utf8_lossy(&name[..end]).into_owned())
    }

    pub(crate) fn set_int(&self, level: i32, option: i32, value: i32) -> io::Result<()> {
        set_int(&self.0, level, option, value)
    }

    /// The bytes of `TCP_INFO`, as many as this kernel has.
    pub fn tcp_info(&self) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0_u8; 512];
        let mut length = buffer.len() as libc::socklen_t;
        // SAFETY: the buffer is `length` bytes long and outlives the call.
        let returned = unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                buffer.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        if returned == -1 {
            return Err(io::Error::last_os_error());
        }
        buffer.truncate(length as usize);
        Ok(buffer)
    }
}

impl AsFd for Tcp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Makes closing send a RST, so that neither end is left in TIME-WAIT.
pub fn reset_when_closed(socket: &impl AsFd) -> io::Result<()> {
    socket2::SockRef::from(socket).set_linger(Some(std::time::Duration::ZERO))
}

/// Has the kernel stamp what arrives, for as long as it lives.
///
/// A socket that asks for stamps gets none for the first milliseconds: the kernel begins to stamp
/// from a work queue, unless another socket has asked before (`net_enable_timestamp()` of
/// net/core/dev.c, Linux 6.18).
#[derive(Debug)]
pub struct Stamping(Socket);

impl Stamping {
    /// Begins.
    pub fn begin() -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        set_int(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
        Ok(Self(socket))
    }
}

impl AsFd for Stamping {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A UDP socket, for certifying a link.
#[derive(Debug)]
pub struct Udp(Socket);

impl Udp {
    /// Binds to `at`; port 0 lets the kernel choose.
    pub fn bind(at: SocketAddr) -> Result<Self, SysError> {
        let name = |op| move |e| SysError::new(op, at.to_string(), e);
        let socket =
            Socket::new(Domain::for_address(at), Type::DGRAM.nonblocking(), Some(Protocol::UDP))
                .map_err(name("socket"))?;
        socket.bind(&at.into()).map_err(name("bind"))?;
        // Beyond net.core.rmem_max only the root of the machine may go; what is got must do.
        let _ = set_int(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 16 << 20);
        let _ = socket.set_send_buffer_size(256 << 10);
        Ok(Self(socket))
    }

    /// The port bound.
    pub fn port(&self) -> io::Result<u16> {
        self.0
            .local_addr()?
            .as_socket()
            .map(|a| a.port())
            .ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
    }

    /// Lets the kernel cut what is sent at once into datagrams of this size (since Linux 4.18).
    pub fn set_segment(&self, bytes: u16) -> io::Result<()> {
        set_int(&self.0, libc::SOL_UDP, libc::UDP_SEGMENT, i32::from(bytes))
    }

    /// Sends one datagram; `None` when the send buffer is full.
    pub fn send_to(&self, bytes: &[u8], target: &SockAddr) -> io::Result<Option<usize>> {
        would_block(self.0.send_to(bytes, target))
    }

    /// Receives the beginning of one datagram; `None` when none has arrived.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        would_block(io::Read::read(&mut &self.0, buffer))
    }
}

impl AsFd for Udp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn would_block(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(length) => Ok(Some(length)),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(e) => Err(e),
    }
}

fn set_int(socket: &Socket, level: libc::c_int, option: libc::c_int, value: i32) -> io::Result<()> {
    // SAFETY: the pointer is to an i32 that lives across the call, and its length is said.
    let returned = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    if returned == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl Tcp {
    /// Asks for a send buffer (`SO_SNDBUF`).
    ///
    /// The kernel doubles the value, within `net.core.wmem_max` and a smallest buffer of its own;
    /// [`Tcp::send_buffer`] gives the result.
    pub fn set_send_buffer(&self, bytes: u32) -> io::Result<()> {
        self.set_int(libc::SOL_SOCKET, libc::SO_SNDBUF, signed(bytes))
    }

    /// Asks for a receive buffer (`SO_RCVBUF`). Set it before the handshake: the window scale is
    /// decided there.
    ///
    /// The kernel doubles the value, within `net.core.rmem_max` and a smallest buffer of its own;
    /// [`Tcp::receive_buffer`] gives the result.
    pub fn set_receive_buffer(&self, bytes: u32) -> io::Result<()> {
        self.set_int(libc::SOL_SOCKET, libc::SO_RCVBUF, signed(bytes))
    }

    /// The send buffer, bytes, as `getsockopt` reports it: the kernel's overhead is counted in it.
    pub fn send_buffer(&self) -> io::Result<u64> {
        self.0.send_buffer_size().map(|bytes| bytes as u64)
    }

    /// The receive buffer, bytes, as `getsockopt` reports it: the kernel's overhead is counted in it.
    pub fn receive_buffer(&self) -> io::Result<u64> {
        self.0.recv_buffer_size().map(|bytes| bytes as u64)
    }

    /// Turns Nagle's algorithm off (`true`) or on (`TCP_NODELAY`).
    pub fn set_no_delay(&self, off: bool) -> io::Result<()> {
        self.set_int(libc::IPPROTO_TCP, libc::TCP_NODELAY, i32::from(off))
    }

    /// Holds back partial segments, or lets them go (`TCP_CORK`).
    pub fn set_cork(&self, corked: bool) -> io::Result<()> {
        self.set_int(libc::IPPROTO_TCP, libc::TCP_CORK, i32::from(corked))
    }

    /// Acknowledges without delay for now (`TCP_QUICKACK`). The kernel goes back to delayed
    /// acknowledgements by itself.
    pub fn set_quick_ack(&self) -> io::Result<()> {
        self.set_int(libc::IPPROTO_TCP, libc::TCP_QUICKACK, 1)
    }

    /// Chooses the congestion control by the kernel's name. Accepted sockets inherit it.
    pub fn set_congestion(&self, name: &str) -> io::Result<()> {
        self.0.set_tcp_congestion(name.as_bytes())
    }

    /// Sends a FIN after all data; reading goes on.
    pub fn shutdown_write(&self) -> io::Result<()> {
        self.0.shutdown(std::net::Shutdown::Write)
    }
}

/// The kernel's interface is signed; a greater value is above every limit of buffers anyway.
fn signed(bytes: u32) -> i32 {
    i32::try_from(bytes).unwrap_or(i32::MAX)
}

/// Settings of the kernel's probes; what is absent is as the host's `tcp_keepalive_*` sysctls say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probing {
    /// `TCP_KEEPIDLE`: whole seconds from 1 to 32,767.
    pub idle: Option<Duration>,
    /// `TCP_KEEPINTVL`: whole seconds from 1 to 32,767.
    pub interval: Option<Duration>,
    /// `TCP_KEEPCNT`: 1 to 127.
    pub probes: Option<u32>,
}

impl Tcp {
    /// Has the kernel probe the peer while the connection is idle.
    ///
    /// The first probe comes the idle time after this call, or after what arrives last if that is
    /// later. That is because the times are set before the option is: `TCP_KEEPIDLE` of a
    /// connection that has the option counts from what arrived last, and one that has been idle for
    /// longer is probed at once. Source: `tcp_set_keepalive()` and `tcp_sock_set_keepidle_locked()`
    /// of Linux 6.18.
    pub fn probe(&self, probing: &Probing) -> io::Result<()> {
        let seconds = |time: Duration| time.as_secs().clamp(1, 32_767) as i32;
        let options = [
            (libc::TCP_KEEPIDLE, probing.idle.map(seconds)),
            (libc::TCP_KEEPINTVL, probing.interval.map(seconds)),
            (libc::TCP_KEEPCNT, probing.probes.map(|count| count.clamp(1, 127) as i32)),
        ];
        for (option, value) in options {
            if let Some(value) = value {
                self.set_int(libc::IPPROTO_TCP, option, value)?;
            }
        }
        SockRef::from(self).set_keepalive(true)
    }

    /// Has the kernel probe no more.
    pub fn probe_no_more(&self) -> io::Result<()> {
        SockRef::from(self).set_keepalive(false)
    }

    /// Has the kernel give the connection up once sent data is unacknowledged for so long
    /// (`TCP_USER_TIMEOUT`, ms).
    pub fn set_user_timeout(&self, limit: Duration) -> io::Result<()> {
        SockRef::from(self).set_tcp_user_timeout(Some(limit))
    }
}

/// The kernel's name of an error: `ETIMEDOUT`.
pub fn error_name(error: &io::Error) -> String {
    error.raw_os_error().map_or_else(
        || error.kind().to_string(),
        |number| format!("{:?}", nix::errno::Errno::from_raw(number)),
    )
}

#[cfg(test)]
mod tests {
    use super::{ClientOptions, *};

    #[test]
    fn a_buffer_asked_for_is_doubled_and_a_tiny_one_raised_to_the_least() {
        let tcp = Tcp::client("127.0.0.1:1".parse().unwrap(), &ClientOptions::default()).unwrap();
        tcp.set_send_buffer(16_384).unwrap();
        tcp.set_receive_buffer(16_384).unwrap();
        assert_eq!((tcp.send_buffer().unwrap(), tcp.receive_buffer().unwrap()), (32_768, 32_768));
        tcp.set_send_buffer(1).unwrap();
        tcp.set_receive_buffer(1).unwrap();
        assert!(tcp.send_buffer().unwrap() > 2_000, "SOCK_MIN_SNDBUF is above 2 KiB");
        assert!(tcp.receive_buffer().unwrap() > 2_000, "SOCK_MIN_RCVBUF is above 2 KiB");
    }

    #[test]
    fn an_error_has_the_name_the_manual_pages_use() {
        assert_eq!(error_name(&io::Error::from_raw_os_error(libc::ETIMEDOUT)), "ETIMEDOUT");
        assert_eq!(error_name(&io::ErrorKind::UnexpectedEof.into()), "unexpected end of file");
    }
}
