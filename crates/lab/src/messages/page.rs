//! The orders to load a page and to let visitors come to a site, and what comes of them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use tcptoll_core::page::resource::{Protocol, Resource};
use tcptoll_core::page::visits::Visitors;
use tcptoll_core::page::waterfall::{Connection, Request, Waterfall};

use super::{Rows, TlsLoad, order};

/// Load a page once, over connections of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LoadPage {
    /// What is loaded.
    pub start: PageStart,
    /// Addresses of host names; others are resolved.
    pub names: Vec<(String, IpAddr)>,
    /// How requests share a connection.
    pub protocol: Protocol,
    /// Connections to one origin, at most; HTTP/2 uses one.
    pub connections_per_origin: u32,
    /// Ask other origins than the document's too.
    pub other_origins: bool,
    /// Accept compressed content.
    pub compress: bool,
    /// How TLS is spoken with `https` origins; its name is that of each host.
    pub tls: TlsLoad,
    /// The page that the same visitor asks for next.
    pub next: Option<NextPage>,
    /// Of a page from its beginning, ns.
    pub timeout_ns: u64,
    /// Who loads it.
    pub user: PageUser,
}

/// What is loaded.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum PageStart {
    /// The document at this URL, and what it names.
    Url(String),
    /// The [`Graph`](tcptoll_core::page::resource::Graph) that was uploaded before, as JSON.
    Uploaded,
}

/// A second page of the same visitor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NextPage {
    /// After the first has ended, ns.
    pub after_ns: u64,
    /// Its URL. None: the graph again.
    pub url: Option<String>,
}

/// Who loads a page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PageUser {
    /// Our own client, by the rules of [`tcptoll_core::page::rules`].
    #[default]
    Tcptoll,
    /// Chromium, a fresh one.
    Chromium,
}

order!(LoadPage => PageReport, "load-page");

/// What came of a [`LoadPage`]; the waterfalls come before it, as rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PageReport {
    /// Requests that failed, by class, over all pages.
    pub errors: BTreeMap<String, u64>,
    /// The first error of each class, in words.
    pub first_errors: BTreeMap<String, String>,
    /// Requests that were sent again because the server had closed an idle connection.
    pub repeats: u32,
    /// Whether it was stopped before its end.
    pub partial: bool,
    /// Version of the browser, if one loaded it.
    pub browser: Option<String>,
    /// When the navigation began, on the monotonic clock, ns.
    pub begun_ns: u64,
    /// CPU time of our own client, µs.
    pub cpu_us: u64,
}

/// A part of what a visit was.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum PagePart {
    /// A page begins: all but its requests and connections, which follow.
    Page(Box<Waterfall>),
    /// Requests of the page before.
    Requests(Vec<Request>),
    /// Connections of the page before.
    Connections(Vec<Connection>),
    /// Resources of the first page as a graph.
    Graph(Vec<Resource>),
}

/// The pages that a visitor loaded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Visit {
    /// In order.
    pub pages: Vec<Waterfall>,
    /// What the first page consists of; the time of the server is not known here, and 0.
    pub resources: Vec<Resource>,
    /// What else is to be reported.
    pub report: PageReport,
}

impl Visit {
    /// As rows, each of which fits a message.
    pub fn rows(self) -> (Vec<Rows>, PageReport) {
        // A URL has at most 2 KiB, and JSON at most doubles it.
        const PIECE: usize = 12;
        let mut parts = Vec::new();
        for mut page in self.pages {
            let requests = std::mem::take(&mut page.requests);
            let connections = std::mem::take(&mut page.connections);
            parts.push(PagePart::Page(Box::new(page)));
            parts.extend(requests.chunks(PIECE).map(|part| PagePart::Requests(part.to_vec())));
            parts
                .extend(connections.chunks(PIECE).map(|part| PagePart::Connections(part.to_vec())));
        }
        parts.extend(self.resources.chunks(PIECE).map(|part| PagePart::Graph(part.to_vec())));
        (parts.into_iter().map(Rows::Page).collect(), self.report)
    }

    /// Puts rows and report together again; rows of other kinds are ignored.
    pub fn of_rows(rows: Vec<Rows>, report: PageReport) -> Self {
        let mut visit = Self { report, ..Self::default() };
        for row in rows {
            let Rows::Page(part) = row else { continue };
            match (part, visit.pages.last_mut()) {
                (PagePart::Page(page), _) => visit.pages.push(*page),
                (PagePart::Requests(more), Some(page)) => page.requests.extend(more),
                (PagePart::Connections(more), Some(page)) => page.connections.extend(more),
                (PagePart::Graph(more), _) => visit.resources.extend(more),
                (PagePart::Requests(_) | PagePart::Connections(_), None) => {}
            }
        }
        visit
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_visit_is_the_same_after_its_way_in_rows_and_each_row_fits_a_message() {
        let request = Request {
            url: format!("http://page.test/{}", "\"".repeat(2_000)),
            ..Request::default()
        };
        let page = Waterfall {
            requests: vec![request; 100],
            connections: vec![Connection::default(); 30],
            everything_us: Some(7),
            ..Waterfall::default()
        };
        let report = PageReport { repeats: 1, ..PageReport::default() };
        let resources = vec![Resource::default(); 25];
        let visit = Visit { pages: vec![page.clone(), page], resources, report };
        let (rows, report) = visit.clone().rows();
        for row in &rows {
            let bytes = serde_json::to_vec(&super::super::Reply::<()>::Rows(row.clone())).unwrap();
            assert!(bytes.len() < 64 << 10, "{}", bytes.len());
        }
        assert_eq!(Visit::of_rows(rows, report), visit);
    }
}
