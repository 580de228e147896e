//! Names of what a loader deals with.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A request: its number in the waterfall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u32);

/// A connection: its number in the waterfall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u32);

/// Where connections go to: they are shared by the requests of one origin.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Origin {
    /// `https`.
    pub tls: bool,
    /// Host name in lower case, or an address without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
}

impl Origin {
    /// Of a URL. None: it is neither `http` nor `https`, or has no host.
    pub fn from_url(url: &url::Url) -> Option<Self> {
        let tls = match url.scheme() {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let host = url.host_str()?.trim_matches(['[', ']']).to_owned();
        Some(Self { tls, host, port: url.port_or_known_default()? })
    }

    /// What stands in the `Host` field: the port only where it is not the scheme's own.
    pub fn authority(&self) -> String {
        let host =
            if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let own = if self.tls { 443 } else { 80 };
        if self.port == own { host } else { format!("{host}:{}", self.port) }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}://{}", if self.tls { "https" } else { "http" }, self.authority())
    }
}
