//! What was said between the parent and the hosts of one trial: recorded once in the lab, and
//! replayed as often as wanted without lab, namespaces or sockets.
//!
//! A [`Script`] is a text with one JSON object a line: which hosts were made, each order to a host,
//! each reply, in the order in which the parent sent and read them. [`Recording`] writes one,
//! [`Replay`] answers from one. Each line has the parent's time, and a trial's time stands still
//! between two lines but for its pauses, in both: so a replayed trial decides everything as the
//! recorded one did, and orders that contain a time are the same.

mod recording;
mod replay;

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use recording::Recording;
pub use replay::Replay;

/// One end of the conversation that is not the parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Host {
    Client,
    Server,
    Link,
}

impl Host {
    /// In the order of a lab's channels.
    const ALL: [Self; 3] = [Self::Client, Self::Server, Self::Link];
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Client => "client",
            Self::Server => "server",
            Self::Link => "link",
        })
    }
}

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Line {
    /// The parent's time on the monotonic clock, ns.
    at_ns: u64,
    #[serde(flatten)]
    event: Event,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Event {
    /// A lab was made from this [`Plan`](super::Plan).
    Lab(Value),
    /// One host was made on the machine's own network.
    Target {},
    /// The parent sent a [`Request`](crate::messages::Request).
    To(Host, Value),
    /// The parent read a [`Reply`](crate::messages::Reply).
    From(Host, Value),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lab(_) => f.write_str("make a lab"),
            Self::Target {} => f.write_str("make a host of this machine"),
            Self::To(host, request) => write!(f, "{} to the {host}", name_of(request)),
            Self::From(host, reply) => write!(f, "{} from the {host}", name_of(reply)),
        }
    }
}

/// What a message is called: an order by its name.
fn name_of(message: &Value) -> &str {
    let order = message.pointer("/order/name").and_then(Value::as_str);
    let kind = message.as_object().and_then(|fields| fields.keys().next().map(String::as_str));
    order.or(kind).or(message.as_str()).unwrap_or("a message")
}

/// The lines of a conversation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Script(Vec<Line>);

impl Script {
    pub fn parse(text: &str) -> serde_json::Result<Self> {
        text.lines().map(serde_json::from_str).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.0 {
            writeln!(f, "{}", serde_json::to_string(line).map_err(|_| fmt::Error)?)?;
        }
        Ok(())
    }
}

/// The message of a frame of the channel, if the frame is whole.
fn unframed(frame: &[u8]) -> Option<serde_json::Result<Value>> {
    let (length, message) = frame.split_first_chunk::<4>()?;
    let length = u32::from_be_bytes(*length) as usize;
    (message.len() >= length).then(|| serde_json::from_slice(&message[..length]))
}

/// The frame of a message.
fn framed(message: &Value) -> Vec<u8> {
    let text = message.to_string().into_bytes();
    let length = u32::try_from(text.len()).expect("a channel's messages are below 64 KiB");
    [length.to_be_bytes().to_vec(), text].concat()
}
