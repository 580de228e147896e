//! How the messages of an arm were sent, where they are what is measured.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::record::merge::Merge;

/// How messages were sent and answered. Of several rounds, the first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MessageWay {
    /// `one-way`, `request-response` or `write-write-read`.
    pub pattern: String,
    /// Size of a message, bytes.
    pub bytes: u64,
    /// Size of the answer, bytes; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_bytes: Option<u64>,
    /// Sizes of the writes that make up a message, bytes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<u64>,
    /// How messages were put together: `none`, `cork`, `more`, `gather`, `buffer`.
    pub coalesce: String,
    /// Size of a block of messages that were put together, bytes; absent where each was sent alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coalesce_bytes: Option<u64>,
    /// Whether the receiver set `TCP_QUICKACK` before each read.
    pub quick_ack: bool,
    /// The program at both ends: `native`, `java`.
    pub program: String,
    /// Encoding of a message, where the program has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
    /// Bytes of an encoded message, the mean of all; absent: its size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoded_bytes: Option<f64>,
    /// Version of the program, if it is not tcptoll: `17.0.15+6`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program_version: Option<String>,
    /// CPU time that the sender worked on each message, µs.
    pub work_us: f64,
    /// CPU time that the receiver worked on each message, µs.
    pub receiver_work_us: f64,
    /// How the server's kernel acknowledged the client's segments; absent where nothing watched the
    /// link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acks: Option<Acks>,
}

/// Segments with data that reached the server, by how they were acknowledged on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Acks {
    /// By an ACK without data, within 1 ms.
    pub quick: u64,
    /// By an ACK without data, later than that: a delayed ACK.
    pub delayed: u64,
    /// By a segment with data: the answer.
    pub with_answer: u64,
}

impl Merge for MessageWay {
    fn merge(rounds: &[&Self]) -> Option<Self> {
        rounds.first().map(|first| (*first).clone())
    }
}
