//! How is one netlink request sent and its answer read to the end?
//!
//! Synchronous and bounded in time; knows acknowledgements, dumps and the kernel's error texts, and
//! nothing of what is asked. Used by [`netlink`](super) and [`sock_diag`](crate::sock_diag).

use std::io;
use std::time::{Duration, Instant};

use netlink_packet_core::{
    DecodeError, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NLMSG_NOOP,
    NLMSG_OVERRUN, NetlinkBuffer, NetlinkHeader, NetlinkMessage, NetlinkPayload,
    NetlinkSerializable, NlasIterator,
};
use netlink_sys::{Socket, SocketAddr};
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::TimeVal;

use crate::SysError;

/// How long one reply may take. The kernel answers in microseconds, except that it waits for the
/// global RTNL lock, which the tear-down of many namespaces can hold for a second.
const REPLY_TIMEOUT_S: i64 = 5;
/// How long a whole exchange may take; a dump of 100,000 sockets takes well under a second.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(15);
/// The kernel fills dump replies up to 32 KiB if the reader's buffer is that large.
const BUFFER_BYTES: usize = 64 * 1024;
/// `NLM_F_ACK_TLVS` of `linux/netlink.h`: the acknowledgement carries extra attributes.
const ACK_TLVS: u16 = 0x200;
/// `NLMSGERR_ATTR_MSG`: the kernel's own sentence about what was wrong.
const ATTR_MSG: u16 = 1;

/// A netlink socket with its sequence numbers: sends one request, reads until it is answered.
#[derive(Debug)]
pub(crate) struct Channel {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Channel {
    /// Opens a socket of `protocol` in the network namespace of the calling thread.
    pub(crate) fn open(protocol: isize, name: &'static str) -> Result<Self, SysError> {
        let failed = |op| move |source| SysError::new(op, name, source);
        let mut socket = Socket::new(protocol).map_err(failed("socket"))?;
        socket.bind_auto().map_err(failed("bind"))?;
        socket.connect(&SocketAddr::new(0, 0)).map_err(failed("connect"))?;
        setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(REPLY_TIMEOUT_S, 0))
            .map_err(|errno| SysError::new("SO_RCVTIMEO", name, errno))?;
        // Both only make error texts better; kernels before 4.12 lack them.
        let _ = socket.set_ext_ack(true);
        let _ = socket.set_cap_ack(true);
        Ok(Self { socket, sequence: 0, buffer: vec![0; BUFFER_BYTES] })
    }

    /// Sends `message` and hands the payload of each reply to `each`, until the kernel says done.
    ///
    /// A reply that `each` cannot decode does not end the reading (an abandoned dump would make
    /// the next request fail with EBUSY); the first such error is returned at the end.
    pub(crate) fn exchange<M: NetlinkSerializable>(
        &mut self,
        flags: u16,
        message: M,
        op: &'static str,
        on: &str,
        mut each: impl FnMut(&[u8]) -> Result<(), DecodeError>,
    ) -> Result<(), SysError> {
        let failed = |source| SysError::new(op, on, source);
        self.sequence = self.sequence.wrapping_add(1);
        let request = encode(flags, self.sequence, message);
        self.socket.send(&request, 0).map_err(failed)?;

        let deadline = Instant::now() + EXCHANGE_TIMEOUT;
        let mut undecodable = None;
        while Instant::now() < deadline {
            let mut space = &mut self.buffer[..];
            let received = match self.socket.recv(&mut space, libc::MSG_TRUNC) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(failed(io::ErrorKind::TimedOut.into()));
                }
                Err(error) => return Err(failed(error)),
            };
            let Some(mut rest) = self.buffer.get(..received) else {
                return Err(failed(invalid("a reply longer than the buffer")));
            };
            while !rest.is_empty() {
                let reply = NetlinkBuffer::new_checked(&rest).map_err(|e| failed(decoding(e)))?;
                let end = (reply.length() as usize).next_multiple_of(4).min(rest.len());
                let ours = reply.sequence_number() == self.sequence;
                match reply.message_type() {
                    _ if !ours => {} // left over from an exchange that timed out
                    NLMSG_NOOP => {}
                    NLMSG_OVERRUN => return Err(failed(invalid("replies were lost (overrun)"))),
                    kind @ (NLMSG_ERROR | NLMSG_DONE) => {
                        if let Err((source, text)) =
                            outcome(kind, reply.flags() & ACK_TLVS != 0, reply.payload())
                        {
                            let on = text.map_or_else(|| on.into(), |text| format!("{on}: {text}"));
                            return Err(SysError::new(op, on, source));
                        }
                        return undecodable.map_or(Ok(()), |e| Err(failed(decoding(e))));
                    }
                    _ => {
                        if let Err(error) = each(reply.payload()) {
                            undecodable.get_or_insert(error);
                        }
                    }
                }
                rest = &rest[end..];
            }
        }
        Err(failed(io::ErrorKind::TimedOut.into()))
    }
}

fn encode<M: NetlinkSerializable>(flags: u16, sequence: u32, message: M) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | flags;
    header.sequence_number = sequence;
    // A dump ends with NLMSG_DONE, everything else is asked to end with an acknowledgement.
    if flags & NLM_F_DUMP != NLM_F_DUMP {
        header.flags |= NLM_F_ACK;
    }
    let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

/// Reads the code of an `NLMSG_ERROR` (0 is the acknowledgement) or `NLMSG_DONE`, and the
/// kernel's sentence if it sent one.
fn outcome(kind: u16, tlvs: bool, payload: &[u8]) -> Result<(), (io::Error, Option<String>)> {
    let code =
        payload.first_chunk::<4>().map_or(0, |bytes| i32::from_ne_bytes(*bytes)).unsigned_abs();
    if code == 0 {
        return Ok(());
    }
    // The attributes stand behind the code and, in an error, behind the request's header.
    let skip = if kind == NLMSG_ERROR { 4 + 16 } else { 4 };
    let text = payload.get(skip..).filter(|_| tlvs).and_then(|rest| {
        let attribute = NlasIterator::new(rest).flatten().find(|nla| nla.kind() == ATTR_MSG)?;
        let text = String::from_utf8_lossy(attribute.value());
        Some(text.trim_end_matches('\0').to_owned())
    });
    Err((io::Error::from_raw_os_error(i32::try_from(code).unwrap_or(libc::EIO)), text))
}

/// A reply that does not make sense.
pub(super) fn invalid(text: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

fn decoding(error: DecodeError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_reply_gives_errno_and_the_kernels_sentence() {
        // -EPERM, a request header of 16 bytes, then NLMSGERR_ATTR_MSG "no\0".
        let mut payload = (-1_i32).to_ne_bytes().to_vec();
        payload.extend([0; 16]);
        payload.extend([7, 0, 1, 0, b'n', b'o', 0, 0]);
        let (error, text) = outcome(NLMSG_ERROR, true, &payload).unwrap_err();
        assert_eq!((error.raw_os_error(), text.as_deref()), (Some(libc::EPERM), Some("no")));
        assert!(outcome(NLMSG_ERROR, false, &0_i32.to_ne_bytes()).is_ok());
        assert!(outcome(NLMSG_DONE, false, &[]).is_ok());
    }
}
