//! Options of TCP sockets that decide how bulk data is carried: buffers, Nagle's algorithm, corks,
//! acknowledgements, congestion control.

use std::io;

use super::Tcp;

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

#[cfg(test)]
mod tests {
    use super::super::ClientOptions;
    use super::*;

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
}
