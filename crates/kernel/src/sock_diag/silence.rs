//! For how long were established connections silent?

use std::time::Duration;

use netlink_packet_sock_diag::inet::{ExtensionFlags, StateFlags};

use super::connections::{Connection, HEADER_BYTES};
use super::{Ports, SockDiag};
use crate::error::SysError;

/// Time since the last packets of a connection, to a tick of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    /// Since data was last sent, or the connection was opened (`tcpi_last_data_sent`).
    pub data_sent: Duration,
    /// Since data was last received (`tcpi_last_data_recv`). Very long where none ever was.
    pub data_received: Duration,
    /// Since an acknowledgment was last received (`tcpi_last_ack_recv`).
    pub ack_received: Duration,
}

impl Silence {
    /// Since data last came or went.
    pub fn of_data(self) -> Duration {
        self.data_sent.min(self.data_received)
    }

    /// Since the last packet came; from it on the kernel counts the time to its next keep-alive probe
    /// (`keepalive_time_elapsed()` of include/net/tcp.h).
    pub fn of_peer(self) -> Duration {
        self.data_received.min(self.ack_received)
    }

    /// From the attributes behind the header of a socket. None: the kernel sent no `tcp_info`.
    fn read(mut attributes: &[u8]) -> Option<Self> {
        /// `INET_DIAG_INFO` of `<linux/inet_diag.h>`.
        const INFO: u16 = 2;
        loop {
            let head = attributes.get(..4)?;
            let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
            let kind = u16::from_ne_bytes([head[2], head[3]]);
            let value = attributes.get(4..length)?;
            if kind == INFO {
                return Self::of_info(value);
            }
            attributes = attributes.get(length.next_multiple_of(4)..)?;
        }
    }

    /// From `struct tcp_info`, Linux `include/uapi/linux/tcp.h`: words 11, 13 and 14, in ms.
    fn of_info(info: &[u8]) -> Option<Self> {
        let ms = |at: usize| {
            let word: [u8; 4] = info.get(at..at + 4)?.try_into().ok()?;
            Some(Duration::from_millis(u32::from_ne_bytes(word).into()))
        };
        Some(Self { data_sent: ms(44)?, data_received: ms(52)?, ack_received: ms(56)? })
    }
}

impl SockDiag {
    /// Hands each established connection to `each` with its silence, IPv4 sockets first.
    ///
    /// None is kept. `tcp_info` makes each reply 280 bytes longer than those of
    /// [`connections`](Self::connections).
    pub fn silences(
        &mut self,
        mut each: impl FnMut(&Connection, Option<Silence>),
    ) -> Result<(), SysError> {
        let wanted = ExtensionFlags::INFO;
        self.dump(&StateFlags::ESTABLISHED, &wanted, Ports::default(), |payload| {
            let connection = Connection::read(payload)?;
            each(&connection, Silence::read(payload.get(HEADER_BYTES..).unwrap_or_default()));
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = 4 + value.len();
        let mut bytes = u16::try_from(length).unwrap().to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(length.next_multiple_of(4), 0);
        bytes
    }

    fn info() -> Vec<u8> {
        let mut info = vec![0; 280];
        for (at, ms) in [(44, 1_000_u32), (52, 2_000), (56, 500)] {
            info[at..at + 4].copy_from_slice(&ms.to_ne_bytes());
        }
        info
    }

    #[test]
    fn the_times_stand_behind_other_attributes() {
        let all = [attribute(8, &[0]), attribute(2, &info())].concat();
        let silence = Silence::read(&all).unwrap();
        assert_eq!(silence.of_data(), Duration::from_secs(1));
        assert_eq!(silence.of_peer(), Duration::from_millis(500));
    }

    #[test]
    fn attributes_that_are_cut_off_or_have_no_length_end_the_search() {
        let whole = [attribute(8, &[0]), attribute(2, &info())].concat();
        for length in 0..whole.len() - 222 {
            assert_eq!(Silence::read(&whole[..length]), None, "{length}");
        }
        assert_eq!(Silence::read(&[0; 64]), None);
        assert_eq!(Silence::read(&attribute(2, &[0; 40])), None);
    }
}
