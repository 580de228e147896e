//! One connection of a span, short enough that 300 of them fit a message.

use serde::{Deserialize, Serialize};

use super::{Activity, HeadOfLine};

/// One connection. Times count from `begun_ns` of the span, µs.
///
/// Shape: serialized as an array in the order of the fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Row", into = "Row")]
pub struct SpanRow {
    /// The client's port.
    pub client_port: u16,
    /// Its first SYN. None: the connection was open before.
    pub syn_us: Option<u64>,
    /// First payload byte from the client. None: there was none.
    pub request_us: Option<u64>,
    /// First new payload byte from the server. None: there was none.
    pub first_byte_us: Option<u64>,
    /// Last new payload byte from the server. None: there was none.
    pub last_byte_us: Option<u64>,
    /// First transmissions of payload from the client, bytes.
    pub client_bytes: u64,
    /// New payload that reached the client, bytes.
    pub server_bytes: u64,
    /// Segments that the server retransmitted.
    pub server_retransmissions: u64,
    /// Head-of-line blocking on this connection.
    pub head_of_line: HeadOfLine,
}

type Times = (Option<u64>, Option<u64>, Option<u64>, Option<u64>);
type Row = (u16, Times, (u64, u64, u64), (u64, u64, u64));

impl From<Row> for SpanRow {
    fn from((client_port, times, bytes, held): Row) -> Self {
        let (syn_us, request_us, first_byte_us, last_byte_us) = times;
        let (client_bytes, server_bytes, server_retransmissions) = bytes;
        let (gaps, held_bytes, held_ns) = held;
        let head_of_line = HeadOfLine { gaps, held_bytes, held_ns };
        Self {
            client_port,
            syn_us,
            request_us,
            first_byte_us,
            last_byte_us,
            client_bytes,
            server_bytes,
            server_retransmissions,
            head_of_line,
        }
    }
}

impl From<SpanRow> for Row {
    fn from(row: SpanRow) -> Self {
        let held = row.head_of_line;
        (
            row.client_port,
            (row.syn_us, row.request_us, row.first_byte_us, row.last_byte_us),
            (row.client_bytes, row.server_bytes, row.server_retransmissions),
            (held.gaps, held.held_bytes, held.held_ns),
        )
    }
}

impl SpanRow {
    pub(super) fn new(client_port: u16, seen: &Activity, begun_ns: u64) -> Self {
        let us = |at: Option<u64>| at.map(|at| at.saturating_sub(begun_ns) / 1_000);
        Self {
            client_port,
            syn_us: us(seen.syn_ns),
            request_us: us(seen.request_ns),
            first_byte_us: us(seen.first_byte_ns),
            last_byte_us: us(seen.last_byte_ns),
            client_bytes: seen.client_bytes,
            server_bytes: seen.server_bytes,
            server_retransmissions: seen.server_retransmissions,
            head_of_line: seen.head_of_line,
        }
    }
}
