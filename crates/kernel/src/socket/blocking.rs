//! TCP sockets that block: one system call for each send and receive, and no other.
//!
//! A thread that waits in `recv(2)` is woken faster, and with less CPU, than one that waits in
//! `epoll_wait(2)` and then receives. [`Blocking::interrupt`], from another thread, ends the wait.

use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use super::Tcp;
use crate::SysError;

/// Options of a socket, set before the handshake. Absent: the kernel's own.
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockingOptions<'a> {
    /// `SO_SNDBUF`, bytes as asked for.
    pub send_buffer: Option<u32>,
    /// `SO_RCVBUF`, bytes as asked for.
    pub receive_buffer: Option<u32>,
    /// Sets `TCP_NODELAY`.
    pub no_delay: bool,
    /// `TCP_CONGESTION`, by the kernel's name.
    pub congestion: Option<&'a str>,
}

/// A TCP socket that blocks.
#[derive(Debug)]
pub struct Blocking(Tcp);

impl Blocking {
    /// Makes a socket for `target`. `limit`: of the handshake, and of each send and receive, which fail
    /// with `WouldBlock` after it.
    pub fn client(
        target: SocketAddr,
        options: &BlockingOptions<'_>,
        limit: Duration,
    ) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(target), Type::STREAM, None)?;
        set(&socket, options)?;
        // 0 would be no limit.
        let limit = limit.max(Duration::from_micros(1));
        socket.set_read_timeout(Some(limit))?;
        socket.set_write_timeout(Some(limit))?;
        Ok(Self(Tcp(socket)))
    }

    /// Gives the socket a source address.
    ///
    /// `late_port`: the kernel chooses the port at `connect(2)` (`IP_BIND_ADDRESS_NO_PORT`), so that
    /// sockets with different destinations may share it. Otherwise `bind(2)` takes a port.
    ///
    /// Errors: `EADDRINUSE` if `bind(2)` finds no free port.
    pub fn bind(&self, address: IpAddr, late_port: bool) -> io::Result<()> {
        let value = i32::from(late_port);
        self.0.set_int(libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, value)?;
        self.0.0.bind(&SocketAddr::new(address, 0).into())
    }

    /// Gives the socket a source address and a port.
    pub fn bind_to(&self, source: SocketAddr) -> io::Result<()> {
        self.0.0.bind(&source.into())
    }

    /// Has `connect(2)` take this local port and no other.
    ///
    /// The kernel treats the port as one that it chose itself, unlike a port given to `bind(2)`.
    ///
    /// Range: a port outside of `net.ipv4.ip_local_port_range` has no effect.
    /// Errors: `ENOPROTOOPT` before Linux 6.3.
    pub fn allow_only_port(&self, port: u16) -> io::Result<()> {
        /// `IP_LOCAL_PORT_RANGE` of `linux/in.h`.
        const LOCAL_PORT_RANGE: i32 = 51;
        let both_ends = (u32::from(port) << 16) | u32::from(port);
        self.0.set_int(libc::IPPROTO_IP, LOCAL_PORT_RANGE, both_ends.cast_signed())
    }

    /// Connects.
    ///
    /// Errors: `ETIMEDOUT` if the handshake took longer than the limit.
    pub fn connect(&self, target: SocketAddr) -> io::Result<()> {
        match self.0.0.connect(&target.into()) {
            // What a blocking connect(2) says whose SO_SNDTIMEO is over (socket(7)).
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {
                Err(io::Error::from_raw_os_error(libc::ETIMEDOUT))
            }
            connected => connected,
        }
    }

    /// Listens; port 0 lets the kernel choose. Accepted sockets have its options.
    pub fn listen(at: SocketAddr, options: &BlockingOptions<'_>) -> Result<Self, SysError> {
        let name = |op| move |e| SysError::new(op, at.to_string(), e);
        let socket =
            Socket::new(Domain::for_address(at), Type::STREAM, None).map_err(name("socket"))?;
        socket.set_reuse_address(true).map_err(name("SO_REUSEADDR"))?;
        set(&socket, options).map_err(name("setsockopt"))?;
        socket.bind(&at.into()).map_err(name("bind"))?;
        socket.listen(16).map_err(name("listen"))?;
        Ok(Self(Tcp(socket)))
    }

    /// Waits for a connection.
    ///
    /// Errors: `EINVAL` after [`Blocking::interrupt`].
    pub fn accept(&self) -> io::Result<Self> {
        loop {
            match self.0.0.accept() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                accepted => return accepted.map(|(socket, _)| Self(Tcp(socket))),
            }
        }
    }

    /// Sends, and waits until all bytes are in the send buffer, or the time limit is over.
    pub fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.0.send_with_flags(bytes, libc::MSG_NOSIGNAL) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                sent => return sent,
            }
        }
    }

    /// Waits for bytes; 0 when the peer has closed.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match io::Read::read(&mut &self.0.0, buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                received => return received,
            }
        }
    }

    /// Has the kernel acknowledge immediately, until it decides otherwise (`TCP_QUICKACK`).
    pub fn acknowledge_quickly(&self) -> io::Result<()> {
        self.0.set_int(libc::IPPROTO_TCP, libc::TCP_QUICKACK, 1)
    }

    /// Ends both directions: whoever waits in a call of this socket returns.
    pub fn interrupt(&self) {
        // A socket that is not connected any more has nobody who waits in it.
        let _ = self.0.0.shutdown(Shutdown::Both);
    }

    /// The same socket, for another thread.
    pub fn again(&self) -> io::Result<Self> {
        self.0.0.try_clone().map(|socket| Self(Tcp(socket)))
    }

    /// `SO_SNDBUF` and `SO_RCVBUF` as the kernel reports them, bytes.
    pub fn buffers(&self) -> io::Result<(u64, u64)> {
        let socket = &self.0.0;
        Ok((socket.send_buffer_size()? as u64, socket.recv_buffer_size()? as u64))
    }

    /// What can be asked of every TCP socket.
    pub fn tcp(&self) -> &Tcp {
        &self.0
    }
}

fn set(socket: &Socket, options: &BlockingOptions<'_>) -> io::Result<()> {
    if let Some(bytes) = options.send_buffer {
        socket.set_send_buffer_size(bytes as usize)?;
    }
    if let Some(bytes) = options.receive_buffer {
        socket.set_recv_buffer_size(bytes as usize)?;
    }
    if options.no_delay {
        socket.set_tcp_nodelay(true)?;
    }
    if let Some(name) = options.congestion {
        socket.set_tcp_congestion(name.as_bytes())?;
    }
    Ok(())
}
