//! How is a connection used again, and who closes it?

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::{UnitError, parse_time};

/// A way of using connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reuse {
    /// HTTP/1.1 as it is: one request after another, for as long as the server lets it.
    KeepAlive,
    /// So many requests, then the client closes.
    Requests(u64),
    /// Requests for so long, ns, then the client closes after the response.
    Lifetime(u64),
    /// `Connection: close` is sent: the server closes.
    ServerClose,
    /// The client closes after the response, without having said so.
    ClientClose,
    /// HTTP/1.0: the server closes.
    Http10,
    /// HTTP/1.0 with `Connection: keep-alive`.
    Http10KeepAlive,
    /// As [`Reuse::KeepAlive`], with so long, ns, between a response and the next request.
    Idle(u64),
}

impl Reuse {
    /// Whether a new connection is opened for each request.
    pub fn is_short(self) -> bool {
        matches!(self, Self::ServerClose | Self::ClientClose | Self::Http10 | Self::Requests(1))
    }

    /// Whether the client closes first, if all goes as asked.
    pub fn client_closes(self) -> bool {
        matches!(self, Self::Requests(_) | Self::Lifetime(_) | Self::ClientClose)
    }

    /// Version and `Connection` field of the requests.
    pub fn request(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::ServerClose => ("HTTP/1.1", Some("close")),
            Self::Http10 => ("HTTP/1.0", None),
            Self::Http10KeepAlive => ("HTTP/1.0", Some("keep-alive")),
            _ => ("HTTP/1.1", None),
        }
    }
}

const REMEDY: &str = "write keep-alive, requests=N, lifetime=TIME, server-close, client-close, http1.0, http1.0-keep-alive or idle=TIME";

impl FromStr for Reuse {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let wrong = |problem: &'static str| UnitError::new(text, problem, REMEDY);
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name.trim(), Some(value.trim())),
            None => (text.trim(), None),
        };
        let time = |least: Duration| -> Result<u64, UnitError> {
            let long = parse_time(value.unwrap_or_default())
                .map_err(|_| wrong("has no time after its ="))?;
            if long < least || long > Duration::from_hours(1) {
                return Err(wrong("is not within 1 ms and 1 h"));
            }
            Ok(long.as_nanos() as u64)
        };
        match (name, value) {
            ("keep-alive", None) => Ok(Self::KeepAlive),
            ("server-close", None) => Ok(Self::ServerClose),
            ("client-close", None) => Ok(Self::ClientClose),
            ("http1.0", None) => Ok(Self::Http10),
            ("http1.0-keep-alive", None) => Ok(Self::Http10KeepAlive),
            ("requests", Some(count)) => match crate::units::parse_count(count) {
                Ok(count) if count > 0 => Ok(Self::Requests(count)),
                _ => Err(wrong("has no number of requests above 0")),
            },
            ("lifetime", Some(_)) => time(Duration::from_millis(1)).map(Self::Lifetime),
            ("idle", Some(_)) => time(Duration::from_millis(1)).map(Self::Idle),
            _ => Err(wrong("is not a way of using connections")),
        }
    }
}

impl fmt::Display for Reuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeepAlive => f.write_str("keep-alive"),
            Self::Requests(count) => write!(f, "requests={count}"),
            Self::Lifetime(ns) => write!(f, "lifetime={}ms", *ns as f64 / 1e6),
            Self::ServerClose => f.write_str("server-close"),
            Self::ClientClose => f.write_str("client-close"),
            Self::Http10 => f.write_str("http1.0"),
            Self::Http10KeepAlive => f.write_str("http1.0-keep-alive"),
            Self::Idle(ns) => write!(f, "idle={}ms", *ns as f64 / 1e6),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_is_read_back_as_it_is_written() {
        for text in [
            "keep-alive",
            "requests=100",
            "lifetime=1500ms",
            "server-close",
            "client-close",
            "http1.0",
            "http1.0-keep-alive",
            "idle=250ms",
        ] {
            assert_eq!(text.parse::<Reuse>().unwrap().to_string(), text);
        }
        assert_eq!("idle=2s".parse(), Ok(Reuse::Idle(2_000_000_000)));
        for text in ["", "close", "requests", "requests=0", "idle", "idle=2h", "lifetime=0s"] {
            let error = text.parse::<Reuse>().unwrap_err();
            assert!(error.to_string().contains("server-close"), "{error}");
        }
    }
}
