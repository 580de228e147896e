//! Who writes, and who waits for whom.

use std::str::FromStr;

/// The pattern of messages over a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// The client sends message after message; the server only reads.
    OneWay,
    /// A message in one write, then its answer.
    RequestResponse,
    /// A message in two writes, then its answer.
    WriteWriteRead,
}

impl Pattern {
    /// Every pattern.
    pub const ALL: [Self; 3] = [Self::OneWay, Self::RequestResponse, Self::WriteWriteRead];

    /// As it is typed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OneWay => "one-way",
            Self::RequestResponse => "request-response",
            Self::WriteWriteRead => "write-write-read",
        }
    }
}

impl FromStr for Pattern {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = |pattern: &Self| pattern.name() == text;
        let known = Self::ALL.into_iter().find(named);
        known.ok_or("write one-way, request-response or write-write-read")
    }
}
