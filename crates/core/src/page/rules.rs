//! The rules of a browser in one place: numbers, orders, and where each comes from.

use super::resource::{Kind, Priority};

/// Connections to one origin over HTTP/1.1: Chromium, `net/socket/client_socket_pool_manager.cc`
/// (`g_max_sockets_per_group`); Firefox, `network.http.max-persistent-connections-per-server`.
pub const CONNECTIONS_PER_ORIGIN: u32 = 6;

/// Requests that wait for their responses on one pipelined connection. Firefox's
/// `network.http.pipelining.maxrequests` while it had pipelining (up to version 53), less its
/// aggressive upper end.
pub const PIPELINED: u32 = 6;

/// Concurrent streams of one HTTP/2 connection: what RFC 9113, section 6.5.2, recommends as the
/// least, and what nginx and Apache announce.
pub const STREAMS: u32 = 100;

/// Redirects one after the other: Fetch standard, section 4.4 (HTTP-redirect fetch).
pub const REDIRECTS: u32 = 20;

/// Requests of one page; links beyond are counted and not followed. HTTP Archive's 99th percentile
/// is about 400.
pub const REQUESTS: usize = 2_000;

/// Longest URL, bytes; the URL standard has no limit, servers refuse from 8 KiB on.
pub const URL_BYTES: usize = 2_048;

/// Content of a document that is looked at, bytes.
pub const DOCUMENT_BYTES: u64 = 32 << 20;

/// Content of a style sheet that is looked at, bytes.
pub const STYLESHEET_BYTES: u64 = 8 << 20;

/// Content of one page, decoded, bytes.
pub const PAGE_BYTES: u64 = 512 << 20;

/// Style sheets that import each other, one inside the other.
pub const IMPORT_DEPTH: u32 = 8;

/// URLs that are kept of each reason to leave some out.
pub const EXAMPLES: usize = 5;

/// How urgent a resource is by default: Chromium, `third_party/blink/renderer/platform/loader/fetch/`
/// `resource_fetcher.cc` (`TypeToPriority`), and <https://web.dev/articles/fetch-priority>.
pub fn priority(kind: Kind) -> Priority {
    match kind {
        Kind::Document | Kind::Stylesheet | Kind::Font => Priority::VeryHigh,
        Kind::Script => Priority::High,
        Kind::Image | Kind::Other => Priority::Low,
    }
}
