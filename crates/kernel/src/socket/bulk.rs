//! Ways to write and read bulk data: gathered, held back, from a file, without copying.

use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

use super::{Tcp, would_block};
use crate::SysError;

/// The greatest number of parts of one [`Tcp::write_parts`] (`UIO_MAXIOV`).
pub const PARTS_MAX: usize = 1_024;

impl Tcp {
    /// Writes what fits; `None` when nothing does. With `more` the kernel holds back a partial
    /// segment because more follows (`MSG_MORE`).
    pub fn write_flagged(&self, bytes: &[u8], more: bool) -> io::Result<Option<usize>> {
        would_block(self.0.send_with_flags(bytes, flags(more)))
    }

    /// Writes these parts with one `sendmsg(2)`, as many bytes as fit; `None` when none does.
    ///
    /// Range: at most [`PARTS_MAX`] parts.
    pub fn write_parts(&self, parts: &[IoSlice<'_>], more: bool) -> io::Result<Option<usize>> {
        would_block(self.0.send_vectored_with_flags(parts, flags(more)))
    }

    /// Writes a part of a file with `sendfile(2)`: the kernel refers to the file's pages and copies
    /// nothing. `None` when nothing fits.
    pub fn write_file(
        &self,
        file: &MemoryFile,
        offset: u64,
        count: usize,
    ) -> io::Result<Option<usize>> {
        let mut offset = offset as libc::off_t;
        // SAFETY: both descriptors are open, and the offset lives across the call.
        let sent = unsafe {
            libc::sendfile(self.0.as_raw_fd(), file.0.as_raw_fd(), &raw mut offset, count)
        };
        would_block(usize::try_from(sent).map_err(|_| io::Error::last_os_error()))
    }

    /// Discards at most this many bytes that have arrived, without copying them (`MSG_TRUNC`).
    /// `None` when nothing has arrived, `Some(0)` when the peer closed.
    pub fn discard(&self, bytes: usize) -> io::Result<Option<usize>> {
        // SAFETY: with MSG_TRUNC a TCP socket writes to no buffer (tcp(7)), so none is needed.
        let read =
            unsafe { libc::recv(self.0.as_raw_fd(), std::ptr::null_mut(), bytes, libc::MSG_TRUNC) };
        would_block(usize::try_from(read).map_err(|_| io::Error::last_os_error()))
    }
}

fn flags(more: bool) -> libc::c_int {
    if more { libc::MSG_NOSIGNAL | libc::MSG_MORE } else { libc::MSG_NOSIGNAL }
}

/// A file that is in memory only.
#[derive(Debug)]
pub struct MemoryFile(File);

impl MemoryFile {
    /// Makes a file of these bytes.
    pub fn new(bytes: &[u8]) -> Result<Self, SysError> {
        // SAFETY: the name is a C string; the descriptor, if there is one, is nobody else's.
        let mut file = unsafe {
            // By its number: glibc has a wrapper since 2.27 only.
            let descriptor =
                libc::syscall(libc::SYS_memfd_create, c"bulk".as_ptr(), libc::MFD_CLOEXEC);
            if descriptor == -1 {
                return Err(SysError::last("memfd_create", "a file to send from"));
            }
            File::from_raw_fd(descriptor as RawFd)
        };
        file.write_all(bytes).map_err(|e| SysError::new("write", "a file to send from", e))?;
        Ok(Self(file))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    use super::super::{Begun, ClientOptions};
    use super::*;

    fn pair() -> (Tcp, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let tcp = Tcp::client(at, &ClientOptions::default()).unwrap();
        assert!(matches!(tcp.connect(&at.into()), Ok(Begun::InProgress | Begun::Done)));
        (tcp, listener.accept().unwrap().0)
    }

    #[test]
    fn parts_a_held_back_write_and_a_file_arrive_as_one_stream() {
        let (tcp, mut peer) = pair();
        let parts = [IoSlice::new(b"ab"), IoSlice::new(b"cd")];
        assert_eq!(tcp.write_parts(&parts, false).unwrap(), Some(4));
        assert_eq!(tcp.write_flagged(b"e", true).unwrap(), Some(1));
        let file = MemoryFile::new(b"-fgh-").unwrap();
        assert_eq!(tcp.write_file(&file, 1, 3).unwrap(), Some(3));
        tcp.shutdown_write().unwrap();
        let mut all = String::new();
        peer.read_to_string(&mut all).unwrap();
        assert_eq!(all, "abcdefgh");
    }

    #[test]
    fn bytes_are_discarded_in_order_and_then_the_end_is_seen() {
        let (tcp, mut peer) = pair();
        assert_eq!(tcp.discard(10).unwrap(), None);
        peer.write_all(b"0123456789").unwrap();
        drop(peer);
        let mut rest = [0; 16];
        crate::epoll::readable(&tcp, std::time::Duration::from_secs(5)).unwrap();
        assert_eq!(tcp.discard(4).unwrap(), Some(4));
        assert_eq!(tcp.read(&mut rest).unwrap(), Some(6));
        assert_eq!(&rest[..6], b"456789");
        crate::epoll::readable(&tcp, std::time::Duration::from_secs(5)).unwrap();
        assert_eq!(tcp.discard(4).unwrap(), Some(0));
    }
}
