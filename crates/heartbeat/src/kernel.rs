//! What does the kernel know that the program does not? How much the peer has acknowledged.
//!
//! The only unsafe code of the crate.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::SockRef;

/// Bytes written to a socket that the peer's kernel has not acknowledged yet, sent or not
/// (`SIOCOUTQ`; a FIN that was sent counts as one).
///
/// Errors: what `ioctl(2)` says, `Unsupported` on systems other than Linux and Android: there only
/// [`Evidence::Answered`](crate::Evidence::Answered) can be had.
///
/// Source: tcp(7); `tcp_ioctl` in net/ipv4/tcp.c: `write_seq - snd_una`.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[allow(unsafe_code)]
pub fn unacknowledged(socket: &impl AsFd) -> io::Result<usize> {
    use std::os::fd::AsRawFd as _;

    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open while it is borrowed, and the kernel writes one int to a
    // place that outlives the call. TIOCOUTQ and SIOCOUTQ are the same number.
    let done = unsafe {
        libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, std::ptr::from_mut(&mut bytes))
    };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    // In SYN-SENT the kernel says 0, too; it is never negative.
    Ok(usize::try_from(bytes).unwrap_or(0))
}

/// Bytes written to a socket that the peer's kernel has not acknowledged yet.
///
/// Errors: `Unsupported`: this system does not say.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub fn unacknowledged(_socket: &impl AsFd) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Makes the kernel give up a connection whose data is not acknowledged for `time`
/// (`TCP_USER_TIMEOUT`, RFC 5482); nothing on systems that have no such option.
///
/// A closed window counts, too: a peer whose program does not read for that long is given up while
/// something waits to be sent.
///
/// Unit: whole milliseconds, at least one.
pub(crate) fn give_up_after(socket: &impl AsFd, time: Duration) -> io::Result<()> {
    let socket = SockRef::from(socket);
    #[cfg(any(target_os = "linux", target_os = "android"))]
    socket.set_tcp_user_timeout(Some(time.max(Duration::from_millis(1))))?;
    let _ = (socket, time);
    Ok(())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn what_the_peer_has_read_is_acknowledged_and_what_it_has_no_room_for_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut there, _) = listener.accept().unwrap();
        assert_eq!(unacknowledged(&here).unwrap(), 0);
        here.set_nonblocking(true).unwrap();
        while here.write(&[0; 4096]).is_ok() {}
        assert!(unacknowledged(&here).unwrap() > 0);
        here.shutdown(std::net::Shutdown::Write).unwrap();
        std::io::copy(&mut there, &mut std::io::sink()).unwrap();
        assert_eq!(there.read(&mut [0]).unwrap(), 0);
    }
}
