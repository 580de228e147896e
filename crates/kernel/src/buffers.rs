//! How large are the buffers of a socket? `SO_SNDBUF` and `SO_RCVBUF`, asked for and got.
//!
//! The kernel doubles what is asked for, as it counts its own overhead in a buffer, and limits it to
//! `net.core.wmem_max` or `rmem_max`. Whoever asks turns off the kernel's own tuning of that buffer.

use std::io;
use std::os::fd::AsFd;

use socket2::SockRef;

/// Asks for a send buffer of this size, bytes. Connections of a listener inherit it.
pub fn ask_send(socket: &impl AsFd, bytes: u32) -> io::Result<()> {
    SockRef::from(socket).set_send_buffer_size(bytes as usize)
}

/// Asks for a receive buffer of this size, bytes. Connections of a listener inherit it.
pub fn ask_receive(socket: &impl AsFd, bytes: u32) -> io::Result<()> {
    SockRef::from(socket).set_recv_buffer_size(bytes as usize)
}

/// The send buffer in use, bytes: what its data and their overhead may grow to.
pub fn send(socket: &impl AsFd) -> io::Result<u64> {
    SockRef::from(socket).send_buffer_size().map(|bytes| bytes as u64)
}

/// The receive buffer in use, bytes: what its data and their overhead may grow to.
pub fn receive(socket: &impl AsFd) -> io::Result<u64> {
    SockRef::from(socket).recv_buffer_size().map(|bytes| bytes as u64)
}

/// Chooses the congestion control of a socket, by the kernel's name. Connections of a listener
/// inherit it.
pub fn choose_congestion(socket: &impl AsFd, name: &str) -> io::Result<()> {
    SockRef::from(socket).set_tcp_congestion(name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::Tcp;

    #[test]
    fn the_kernel_doubles_what_is_asked_for_and_connections_of_a_listener_have_it_too() {
        let listener = Tcp::listener("127.0.0.1:0".parse().unwrap(), 1, false).unwrap();
        ask_send(&listener, 20_000).unwrap();
        ask_receive(&listener, 30_000).unwrap();
        let client = std::net::TcpStream::connect(listener.local().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap().unwrap();
        assert_eq!((send(&accepted).unwrap(), receive(&accepted).unwrap()), (40_000, 60_000));
        assert!(choose_congestion(&client, "no-such-control").is_err());
    }
}
