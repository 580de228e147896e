//! The order to load a page, and what comes of it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use tcptoll_core::page::resource::{Protocol, Resource};
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
