//! The order to let visitors come to a site, and what comes of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tcptoll_core::page::visits::Visitors;

use super::{LoadPage, order};

/// Let visitors come and load pages, each over connections of its own.
///
/// A visitor whose page fails leaves. One that has seen its last page keeps its connections until the server
/// closes them or it leaves.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LoadVisits {
    /// The page that all of them load, by our own client; `next` is not followed.
    pub page: LoadPage,
    /// Who comes, and when.
    pub visitors: Visitors,
    /// Pages that begin earlier are not reported, ns since the first visitor may come.
    pub warmup_ns: u64,
    /// After its last page a visitor leaves so much later, ns. None: it stays to the end.
    pub leave_ns: Option<u64>,
}

order!(LoadVisits => VisitsReport, "load-visits");

/// What came of [`LoadVisits`]; pages and connections come before it, as rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VisitsReport {
    /// Visitors that came, those of the warm-up too.
    pub visitors: u64,
    /// When the first visitor may have come, on the monotonic clock, ns.
    pub begun_ns: u64,
    /// How late visitors came after they were due, ns: half of them at most so much.
    pub late_p50_ns: u64,
    /// And 99 % of them.
    pub late_p99_ns: u64,
    /// The first error of each class, in words.
    pub first_errors: BTreeMap<String, String>,
    /// Requests that were sent again because the server had closed an idle connection.
    pub repeats: u64,
    /// Whether it was stopped before its end.
    pub partial: bool,
    /// CPU time of the client, µs.
    pub cpu_us: u64,
}

/// What visitors did, in the order in which it ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum VisitPart {
    /// Pages that began after the warm-up.
    Pages(Vec<PageSeen>),
    /// Connections, those of the warm-up too.
    Connections(Vec<ConnectionSeen>),
}

/// One page of a visitor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageSeen {
    /// When it was asked for, ns since the first visitor may have come.
    #[serde(rename = "t")]
    pub at_ns: u64,
    /// From there to the end of its last response, or until it failed, µs.
    #[serde(rename = "d")]
    pub us: u64,
    /// Whether it is the visitor's first.
    #[serde(rename = "f")]
    pub first: bool,
    /// Connections that were opened for it.
    #[serde(rename = "c")]
    pub connections: u32,
    /// Class of its failure. Absent: it is whole.
    #[serde(rename = "e", default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// One connection of a visitor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionSeen {
    /// When the TCP handshake had ended, ns since the first visitor may have come.
    #[serde(rename = "o")]
    pub opened_ns: u64,
    /// When its last response had ended, ns.
    #[serde(rename = "l")]
    pub last_ns: u64,
    /// When either end closed it, ns. Absent: open at the end of the load.
    #[serde(rename = "c", default, skip_serializing_if = "Option::is_none")]
    pub closed_ns: Option<u64>,
}

impl VisitPart {
    /// Rows of pages or connections in parts, each of which fits a message.
    pub fn parts(pages: &[PageSeen], connections: &[ConnectionSeen]) -> Vec<Self> {
        // The longest page has less than 100 bytes as JSON, a connection less than 80.
        const PIECE: usize = 400;
        let pages = pages.chunks(PIECE).map(|part| Self::Pages(part.to_vec()));
        let connections = connections.chunks(PIECE).map(|part| Self::Connections(part.to_vec()));
        pages.chain(connections).collect()
    }
}
