//! How is a connection used again, and who closed it first, by the sockets that the kernels kept?
//!
//! A socket whose FIN did not answer another one ends in TIME-WAIT (RFC 9293, section 3.6). So of
//! connections that both ends closed by FIN, with `C` closed by the client first, `S` by the server
//! first and `B` by both (their FINs crossed), the client had `C + B` sockets in TIME-WAIT, the
//! server `S + B`, and `C + S + B` connections were made ([`closed_first`]). Whether a load's
//! connections are such is decided where they are counted.

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

/// What was counted of one load, whose connections have all been closed by FINs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Connections that the client closed while the load ran, before it had seen the server's FIN.
    pub by_client: u64,
    /// Connections that the client closed after the server's FIN had arrived.
    pub by_server: u64,
    /// Connections still open when the load ended, which the client then closed.
    pub open_at_end: u64,
    /// Of these, connections on which the server's FIN had arrived before.
    pub ended_at_end: u64,
    /// Sockets that went into TIME-WAIT on the client, of all connections.
    pub client_time_wait: u64,
    /// Connections that left a socket in TIME-WAIT on both ends; absent if not known.
    pub both: Option<u64>,
}

impl Counted {
    /// Connections, each of which has been closed.
    pub fn made(&self) -> u64 {
        self.by_client + self.by_server + self.open_at_end
    }
}

/// Who closed first, of the connections that were closed while the load ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct First {
    /// The client; also both, where that is not known.
    pub by_client: u64,
    /// The server.
    pub by_server: u64,
    /// Both: their FINs crossed.
    pub both: Option<u64>,
}

/// The sockets in TIME-WAIT cannot be those of these connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disagreement {
    /// Sockets in TIME-WAIT on the client that its own count of FINs allows at most.
    pub at_most: u64,
    /// Sockets in TIME-WAIT on the client.
    pub found: u64,
}

/// Connections that left a socket in TIME-WAIT on both ends, from how many each end had.
///
/// None: these are not all sockets of so many connections, which leave one at least.
pub fn crossed(made: u64, client_time_wait: u64, server_time_wait: u64) -> Option<u64> {
    client_time_wait.checked_add(server_time_wait)?.checked_sub(made)
}

/// Solves the equations of this module.
///
/// Connections that were open at the end are taken to have been closed first by the client, but for
/// those whose server's FIN had arrived.
///
/// Errors: the client has more sockets in TIME-WAIT than connections on which it saw no FIN of the
/// server, or fewer than the connections that both closed.
pub fn closed_first(counted: &Counted) -> Result<First, Disagreement> {
    let Counted { by_client, by_server, client_time_wait: found, both, .. } = *counted;
    // A FIN that had arrived before the client closed came first; some it did not see.
    let at_most = by_client + counted.open_at_end.saturating_sub(counted.ended_at_end);
    let solved = || {
        let unseen = at_most.checked_sub(found)?;
        let by_client = by_client.checked_sub(unseen)?.checked_sub(both.unwrap_or(0))?;
        Some(First { by_client, by_server: by_server + unseen, both })
    };
    solved().ok_or(Disagreement { at_most, found })
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

    #[test]
    fn three_counts_give_three_classes() {
        // 100 closed and 4 open: 60 by the client first, 30 by the server, 10 by both; of the 30
        // FINs of the server the client saw 28.
        let counted = Counted {
            by_client: 72,
            by_server: 28,
            open_at_end: 4,
            ended_at_end: 0,
            client_time_wait: 60 + 10 + 4,
            both: crossed(104, 60 + 10 + 4, 30 + 10),
        };
        let wanted = Ok(First { by_client: 60, by_server: 30, both: Some(10) });
        assert_eq!((counted.both, closed_first(&counted)), (Some(10), wanted));
        // On one of the four the server's FIN had come.
        let counted = Counted { ended_at_end: 1, client_time_wait: 60 + 10 + 3, ..counted };
        assert_eq!(closed_first(&counted), wanted);
    }

    #[test]
    fn the_client_s_end_alone_tells_the_server_from_the_rest() {
        let counted =
            Counted { by_client: 72, by_server: 28, client_time_wait: 70, ..Counted::default() };
        assert_eq!(closed_first(&counted), Ok(First { by_client: 70, by_server: 30, both: None }));
    }

    #[test]
    fn one_end_alone_may_close_all_of_them() {
        let closed_first = |by_client, by_server, client_time_wait, server_time_wait| {
            let both = crossed(by_client + by_server, client_time_wait, server_time_wait);
            closed_first(&Counted {
                by_client,
                by_server,
                client_time_wait,
                both,
                ..Counted::default()
            })
        };
        let wanted =
            |by_client, by_server, both| Ok(First { by_client, by_server, both: Some(both) });
        assert_eq!(closed_first(0, 9, 0, 9), wanted(0, 9, 0));
        assert_eq!(closed_first(9, 0, 9, 0), wanted(9, 0, 0));
        assert_eq!(closed_first(9, 0, 9, 9), wanted(0, 0, 9));
        assert_eq!(closed_first(9, 0, 0, 9), wanted(0, 9, 0));
        assert_eq!(closed_first(0, 0, 0, 0), wanted(0, 0, 0));
    }

    #[test]
    fn sockets_that_cannot_be_of_these_connections_are_a_disagreement() {
        let counted = Counted { by_client: 5, by_server: 5, ..Counted::default() };
        let many = Counted { client_time_wait: 6, ..counted };
        assert_eq!(closed_first(&many), Err(Disagreement { at_most: 5, found: 6 }));
        let crossed_more = Counted { client_time_wait: 3, both: Some(4), ..counted };
        assert_eq!(closed_first(&crossed_more), Err(Disagreement { at_most: 5, found: 3 }));
        // Fewer than the connections that were open: more than the closed ones lack.
        let few = Counted { open_at_end: 4, client_time_wait: 3, ..counted };
        assert_eq!(closed_first(&few), Err(Disagreement { at_most: 9, found: 3 }));
        assert_eq!(crossed(10, 4, 5), None);
    }
}
