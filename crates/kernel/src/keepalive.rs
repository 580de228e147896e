//! What the kernel does by itself about a peer that may be gone: probes of an idle connection, and
//! the limit on unacknowledged data.

use std::io;
use std::time::Duration;

use socket2::SockRef;

use crate::socket::Tcp;

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
    use super::*;

    #[test]
    fn an_error_has_the_name_the_manual_pages_use() {
        assert_eq!(error_name(&io::Error::from_raw_os_error(libc::ETIMEDOUT)), "ETIMEDOUT");
        assert_eq!(error_name(&io::ErrorKind::UnexpectedEof.into()), "unexpected end of file");
    }
}
