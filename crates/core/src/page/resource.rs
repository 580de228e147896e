//! Kinds of resources, and how urgent each is.

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
