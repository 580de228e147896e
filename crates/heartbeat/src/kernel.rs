//! What does the kernel know that the program does not? How much the peer has acknowledged.
//!
//! The only unsafe code of the crate.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::SockRef;

/// What the kernel takes: it reads a signed number of milliseconds, and EINVAL are those below 0.
#[cfg(any(target_os = "linux", target_os = "android"))]
const USER_TIMEOUT_MAX: Duration = Duration::from_millis(i32::MAX as u64);

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
/// something waits to be sent. The connections of this crate set it themselves; who has a
/// [`Fleet`](crate::Fleet) of sockets of their own sets it to [`Timing::bound`](crate::Timing::bound):
/// else only retransmission runs while data is unacknowledged, and gives up after a quarter of an
/// hour.
///
/// Unit: whole milliseconds. Range: from one to 2³¹ - 1 (24.8 days); what is outside is taken as the
/// nearest that is not.
///
/// Errors: what `setsockopt(2)` says.
pub fn give_up_after(socket: &impl AsFd, time: Duration) -> io::Result<()> {
    let socket = SockRef::from(socket);
    #[cfg(any(target_os = "linux", target_os = "android"))]
    socket.set_tcp_user_timeout(Some(time.clamp(Duration::from_millis(1), USER_TIMEOUT_MAX)))?;
    let _ = (socket, time);
    Ok(())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_time_longer_than_the_kernel_knows_is_taken_as_the_longest_it_knows() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        for days in [24, 25, 30, u64::MAX / 86_400] {
            give_up_after(&socket, Duration::from_secs(days * 86_400)).unwrap();
            let taken = SockRef::from(&socket).tcp_user_timeout().unwrap();
            assert_eq!(taken, Some(Duration::from_secs(days * 86_400).min(USER_TIMEOUT_MAX)));
        }
    }

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
