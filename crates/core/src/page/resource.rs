//! Resources of a page: kinds and how urgent each is, names of what a loader deals with, and a page
//! whose resources are known before it is loaded: of a HAR file, of a load that was measured, or of a
//! page that the lab makes.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a resource is to a page.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The page itself.
    Document,
    /// CSS.
    Stylesheet,
    /// JavaScript.
    Script,
    /// A font that CSS names.
    Font,
    /// An image.
    Image,
    /// Anything else: a manifest, a document in a frame.
    #[default]
    Other,
}

/// How urgent a request is, as Chromium's DevTools name it; the highest goes first.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Priority {
    /// Prefetched.
    VeryLow,
    /// Images; scripts that are asynchronous or deferred.
    #[default]
    Low,
    /// Scripts at the end of the body.
    Medium,
    /// Scripts before the body's content, fonts that are preloaded.
    High,
    /// The document, style sheets that apply, fonts.
    VeryHigh,
}

/// The version of HTTP on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Protocol {
    /// HTTP/1.1 (or 1.0), one request at a time.
    #[default]
    #[serde(rename = "http/1.1")]
    Http1,
    /// HTTP/1.1 with requests sent before the responses of those before them.
    #[serde(rename = "http/1.1-pipelined")]
    Pipelined,
    /// HTTP/2: all requests of an origin on one connection.
    #[serde(rename = "h2")]
    Http2,
}

/// A page's resources and what each waits for. The first one is the document.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Graph {
    /// In an order in which each comes after its initiator.
    pub resources: Vec<Resource>,
}

/// One resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Resource {
    /// Its URL.
    pub url: String,
    /// What it is to the page.
    pub kind: Kind,
    /// How urgent.
    pub priority: Priority,
    /// Whether rendering waits for it.
    pub blocking: bool,
    /// What makes it known. None: it is the document.
    pub initiator: Option<Initiator>,
    /// Status of its response.
    pub status: u16,
    /// Content on the wire, bytes.
    pub body_bytes: u64,
    /// Time that the server takes before the first byte, µs.
    pub server_us: u64,
}

/// When a resource becomes known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Initiator {
    /// The resource that names it, by number; smaller than its own.
    pub resource: u32,
    /// Bytes of that one's content that must have arrived. None: all of it.
    pub at_byte: Option<u64>,
    /// Time after that, µs: a script's, as a HAR file shows it.
    pub delay_us: u64,
}

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
