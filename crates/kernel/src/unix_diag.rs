//! How many connections wait at the listening Unix sockets of this network namespace?
//!
//! The `sock_diag(7)` interface, as `ss -x` uses it. TCP has a module of its own,
//! [`sock_diag`](crate::sock_diag).

use std::path::{Path, PathBuf};

use netlink_packet_core::{NLM_F_DUMP, Parseable};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::unix::nlas::{Nla, UnixDiagName};
use netlink_packet_sock_diag::unix::{ShowFlags, StateFlags, UnixRequest, UnixResponse};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;

use crate::SysError;
use crate::netlink::Channel;

/// A listening Unix socket with a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixListenSocket {
    /// The path that it is bound to.
    pub path: PathBuf,
    /// Connections that wait for accept(2).
    pub waiting: u32,
    /// The argument of listen(2), clamped to `net.core.somaxconn`.
    pub limit: u32,
}

/// A `NETLINK_SOCK_DIAG` socket of the network namespace that the calling thread was in at
/// [`open`](Self::open).
///
/// Cost: of each question O(Unix sockets in the namespace).
#[derive(Debug)]
pub struct UnixDiag {
    channel: Channel,
}

impl UnixDiag {
    /// Opens the socket. No privilege is needed.
    pub fn open() -> Result<Self, SysError> {
        Ok(Self { channel: Channel::open(NETLINK_SOCK_DIAG, "NETLINK_SOCK_DIAG")? })
    }

    /// The listening socket that is bound to a path. None: there is none in this namespace.
    ///
    /// Errors: ENOENT if the kernel was built without `CONFIG_UNIX_DIAG`.
    /// Source: `sk_diag_show_rqlen()` in net/unix/diag.c, read with Linux 6.18.
    pub fn listener(&mut self, path: &Path) -> Result<Option<UnixListenSocket>, SysError> {
        let request = SockDiagMessage::UnixRequest(UnixRequest {
            state_flags: StateFlags::LISTEN,
            inode: 0,
            show_flags: ShowFlags::NAME | ShowFlags::RQLEN,
            cookie: [0xff; 8],
        });
        let mut found = None;
        self.channel.exchange(NLM_F_DUMP, request, "SOCK_DIAG_BY_FAMILY", "Unix", |payload| {
            let response = UnixResponse::parse(payload)?;
            let queue = response.nlas.iter().find_map(|nla| match nla {
                Nla::ReceiveQueueLength(waiting, limit) => Some((*waiting, *limit)),
                _ => None,
            });
            if let (Some(UnixDiagName::Pathname(name)), Some((waiting, limit))) =
                (response.name(), queue)
                && name.as_os_str() == path.as_os_str()
            {
                found = Some(UnixListenSocket { path: path.to_owned(), waiting, limit });
            }
            Ok(())
        })?;
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn connections_that_nobody_has_accepted_are_counted_at_their_path_alone() {
        let folder = std::env::temp_dir();
        let path = |name: &str| folder.join(format!("tcptoll-unix-{}-{name}", std::process::id()));
        let (one, other) = (path("one"), path("other"));
        let listeners = [&one, &other].map(|path| UnixListener::bind(path).unwrap());
        let waiting: Vec<_> = (0..3).map(|_| UnixStream::connect(&one).unwrap()).collect();
        let mut diag = UnixDiag::open().unwrap();
        let seen = [&one, &other].map(|path| diag.listener(path).unwrap().unwrap().waiting);
        assert_eq!(seen, [3, 0]);
        listeners[0].accept().unwrap();
        assert_eq!(diag.listener(&one).unwrap().unwrap().waiting, 2);
        drop((listeners, waiting));
        for path in [&one, &other] {
            std::fs::remove_file(path).unwrap();
        }
        assert_eq!(diag.listener(&one).unwrap(), None);
    }
}
