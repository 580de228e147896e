//! The settings of `page`: from what was typed to what it means, without loading anything.

use std::net::IpAddr;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use tcptoll_model::experiments::page::SPEC;
use tcptoll_model::http::url::Url;
use tcptoll_model::page::graph::Graph;
use tcptoll_model::page::har;
use tcptoll_model::page::resource::{Kind, Protocol};
use tcptoll_model::page::site::{MadePage, Site};
use tcptoll_model::study::Settings;
use tcptoll_model::units::parse_size;

use crate::experiments::TrialError;
use crate::experiments::bench::settings::{LabSpec, Reader, time_above_zero, wrong};
use crate::experiments::bench::target::Target;
use crate::files::{Shared, is_too_large, read_at_most};
use crate::messages::{PageUser, ServerKind};

/// Longest HAR file, bytes: one of a large page with all its content has some tens of MiB.
const HAR_MAX: u64 = 256 << 20;

/// Resources of a made page, at most.
const RESOURCES_MAX: u64 = 1_000;

/// Loads of one trial, at most.
const LOADS_MAX: u64 = 1_000;

/// Processes of a server.
const WORKERS: u64 = 2;

/// Time that a hosts' start, the warm-up and the end of a trial take, s.
const TRIAL_S: f64 = 0.4;

/// Further time of a load in a fresh browser, s.
const BROWSER_S: f64 = 3.0;

/// The settings of one arm, checked.
#[derive(Clone, Debug)]
pub(super) struct PageSettings {
    pub(super) ends: Ends,
    pub(super) user: PageUser,
    pub(super) protocol: Protocol,
    pub(super) tls: bool,
    pub(super) connections_per_origin: u32,
    pub(super) other_origins: bool,
    pub(super) compress: bool,
    pub(super) next_after: Option<Duration>,
    pub(super) loads: u64,
    pub(super) timeout: Duration,
    pub(super) ca: Option<String>,
    pub(super) insecure: bool,
}

/// Where the two ends are.
#[derive(Clone, Debug)]
pub(super) enum Ends {
    Lab(Box<Lab>),
    Target(Url, Target),
}

/// The lab, its server, and what is served.
#[derive(Clone, Debug)]
pub(super) struct Lab {
    pub(super) spec: LabSpec,
    pub(super) kind: ServerKind,
    /// None: as many as the connections need.
    pub(super) workers: Option<u64>,
    pub(super) keepalive: bool,
    pub(super) keepalive_requests: Option<u64>,
    pub(super) keepalive_timeout: Option<Duration>,
    pub(super) content: Content,
}

/// What is served.
#[derive(Clone, Debug)]
pub(super) enum Content {
    Made {
        page: MadePage,
        shards: u64,
    },
    /// A folder, and the path of the page in it.
    Folder(String, String),
    /// A HAR file, and what is in it once it was read.
    Har(String, Option<Rc<Graph>>),
}

impl PageSettings {
    /// Checks the settings of one arm, without looking at files and names.
    pub(super) fn from(settings: &Settings) -> Result<Self, TrialError> {
        let reader = Reader::new(&SPEC, settings)?;
        let protocol = match reader.value("protocol")?.as_str() {
            "http/1.1" => Protocol::Http1,
            "http/1.1-pipelined" => Protocol::Pipelined,
            "h2" => Protocol::Http2,
            other => {
                return Err(wrong("protocol", other, "write http/1.1, http/1.1-pipelined or h2"));
            }
        };
        let browser = reader.flag("browser")?;
        if browser && protocol == Protocol::Pipelined {
            let why = "browsers have no pipelining: leave out --browser";
            return Err(wrong("protocol", "http/1.1-pipelined", why));
        }
        let (ends, tls) = ends(&reader, protocol)?;
        let connections_per_origin = reader.count("connections-per-origin", 1, 256)? as u32;
        if browser && connections_per_origin != 6 {
            let why = "Chromium opens 6, and has no setting for it: leave out --browser";
            return Err(wrong("connections-per-origin", &connections_per_origin.to_string(), why));
        }
        for key in ["ca", "insecure"] {
            if let (false, Some(typed)) = (tls, reader.typed(key)) {
                return Err(wrong(key, &typed, "no TLS is spoken: leave it out"));
            }
        }
        Ok(Self {
            ends,
            user: if browser { PageUser::Chromium } else { PageUser::Tcptoll },
            protocol,
            tls,
            connections_per_origin,
            other_origins: reader.flag("other-origins")?,
            compress: reader.flag("compress")?,
            next_after: reader.typed_time("next-page-after")?,
            loads: reader.count("loads", 1, LOADS_MAX)?,
            timeout: reader.read("timeout", time_above_zero)?,
            ca: reader.typed("ca"),
            insecure: reader.flag("insecure")?,
        })
    }

    /// Reads the HAR file, and checks the folder.
    pub(super) fn read_files(&mut self, files: &mut Shared) -> Result<(), TrialError> {
        let Ends::Lab(lab) = &mut self.ends else { return Ok(()) };
        match &mut lab.content {
            Content::Made { .. } => Ok(()),
            Content::Folder(folder, _) => {
                let found = std::fs::metadata(&*folder).map_err(|e| wrong("site", folder, e))?;
                if found.is_dir() { Ok(()) } else { Err(wrong("site", folder, "it is no folder")) }
            }
            Content::Har(path, graph) => {
                let read = files.read(path, |path: &Path| read_har(path))?;
                *graph = Some(read);
                Ok(())
            }
        }
    }

    /// Expected time of a trial, s.
    pub(super) fn expected_s(&self) -> f64 {
        let rtt = match &self.ends {
            Ends::Lab(lab) => lab.spec.link.rtt.as_secs_f64(),
            Ends::Target(..) => 0.05,
        };
        let browser = if self.user == PageUser::Chromium { BROWSER_S } else { 0.0 };
        let page = 12.0 * rtt + self.next_after.unwrap_or_default().as_secs_f64();
        TRIAL_S + (self.loads + 1) as f64 * page + self.loads as f64 * browser
    }
}

fn read_har(file: &Path) -> Result<Graph, TrialError> {
    let path = &file.display().to_string();
    // A pipe or a device would be waited for.
    let found = std::fs::metadata(path).map_err(|error| wrong("har", path, error))?;
    if !found.is_file() {
        return Err(wrong("har", path, "it is no regular file"));
    }
    let text = read_at_most(file, HAR_MAX).map_err(|error| {
        if is_too_large(&error) {
            wrong("har", path, "it is longer than 256 MiB")
        } else {
            wrong("har", path, error)
        }
    })?;
    har::graph(&text).map_err(|error| wrong("har", path, error))
}

fn ends(reader: &Reader<'_>, protocol: Protocol) -> Result<(Ends, bool), TrialError> {
    if let Some(typed) = reader.typed("url") {
        let url: Url = typed.parse().map_err(|error| wrong("url", &typed, error))?;
        if protocol == Protocol::Http2 && !url.tls {
            return Err(wrong("protocol", "h2", "browsers speak it over TLS only: write https://"));
        }
        let (target, tls) = (Target::of_url(&url, &typed), url.tls);
        return Ok((Ends::Target(url, target), tls));
    }
    let tls = match reader.typed_flag("tls")? {
        Some(false) if protocol == Protocol::Http2 => {
            return Err(wrong("protocol", "h2", "browsers speak it over TLS only: --tls on"));
        }
        Some(tls) => tls,
        None => protocol == Protocol::Http2,
    };
    let server = reader.value("server")?;
    let kind = ServerKind::named(&server)
        .filter(|kind| !matches!(kind, ServerKind::Puma | ServerKind::Null))
        .ok_or_else(|| {
            wrong("server", &server, "write apache, apache-worker, apache-prefork or nginx")
        })?;
    let keepalive = reader.typed_flag("keepalive")?.unwrap_or(true);
    for key in ["keepalive-requests", "keepalive-timeout"] {
        if let (false, Some(typed)) = (keepalive, reader.typed(key)) {
            let why = "it has no effect with --keepalive off: leave one of them out";
            return Err(wrong(key, &typed, why));
        }
    }
    let lab = Lab {
        spec: LabSpec::from(reader)?,
        kind,
        workers: match reader.typed_count("workers", 1, 64)? {
            // A process of prefork serves one connection.
            None if kind == ServerKind::ApachePrefork => None,
            typed => Some(typed.unwrap_or(WORKERS)),
        },
        keepalive,
        keepalive_requests: reader.typed_count("keepalive-requests", 0, u64::from(u32::MAX))?,
        keepalive_timeout: reader.typed_read("keepalive-timeout", time_above_zero)?,
        content: content(reader)?,
    };
    Ok((Ends::Lab(Box::new(lab)), tls))
}

/// Options of a page that the lab makes.
const MADE: [&str; 6] =
    ["resources", "resource-kind", "resource-size", "page-size", "work", "shards"];

fn content(reader: &Reader<'_>) -> Result<Content, TrialError> {
    let (site, har) = (reader.typed("site"), reader.typed("har"));
    if let (Some(_), Some(har)) = (&site, &har) {
        return Err(wrong("har", har, "it has no effect with --site: leave one of them out"));
    }
    if let Some(name) = site.as_ref().map(|_| "site").or(har.as_ref().map(|_| "har"))
        && let Some((key, typed)) = MADE.iter().find_map(|key| Some((key, reader.typed(key)?)))
    {
        let why = format!("it has no effect with --{name}: leave one of them out");
        return Err(wrong(key, &typed, why));
    }
    if let Some(folder) = site {
        return Ok(Content::Folder(folder, reader.read("path", path)?));
    }
    if let Some(har) = har {
        return Ok(Content::Har(har, None));
    }
    let kind = match reader.value("resource-kind")?.as_str() {
        "css" => Kind::Stylesheet,
        "script" => Kind::Script,
        "image" => Kind::Image,
        other => return Err(wrong("resource-kind", other, "write css, script or image")),
    };
    let page = MadePage {
        resources: reader.count("resources", 0, RESOURCES_MAX)? as u32,
        kind,
        resource_bytes: reader.read("resource-size", parse_size)?,
        page_bytes: reader.read("page-size", parse_size)?,
        page_time_ns: reader.time("work")?.as_nanos() as u64,
        resource_time_ns: 0,
        shards: Vec::new(),
        tls: false,
        port: 0,
    };
    Ok(Content::Made { page, shards: reader.count("shards", 1, 50)? })
}

fn path(typed: &str) -> Result<String, &'static str> {
    let whole = typed.starts_with('/') && typed.bytes().all(|byte| byte.is_ascii_graphic());
    whole.then(|| typed.to_owned()).ok_or("write a path that begins with /")
}

/// A page on a server of the lab, ready to be served and asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Served {
    pub(super) site: Site,
    /// The document. None: the graph is asked for.
    pub(super) url: Option<String>,
    pub(super) graph: Option<Graph>,
    /// Names of the server.
    pub(super) names: Vec<(String, IpAddr)>,
}

/// The name that pages of the lab have.
const NAME: &str = "page.test";

impl PageSettings {
    /// What the lab serves at this address and port.
    ///
    /// Errors: such a page cannot be made; a sentence.
    pub(super) fn served(&self, lab: &Lab, at: IpAddr, port: u16) -> Result<Served, TrialError> {
        let scheme = if self.tls { "https" } else { "http" };
        let (mut site, path, graph, mut names) = match &lab.content {
            Content::Made { page, shards } => {
                let shards: Vec<String> = match shards {
                    1 => Vec::new(),
                    count => (1..=*count).map(|number| format!("s{number}.{NAME}")).collect(),
                };
                let page = MadePage { shards: shards.clone(), tls: self.tls, port, ..page.clone() };
                let site = Site::of_page(&page)
                    .map_err(|why| wrong("resources", &page.resources.to_string(), why))?;
                (site, "/".to_owned(), None, shards)
            }
            Content::Folder(folder, path) => {
                let site = Site { folder: Some(folder.clone()), ..Site::default() };
                (site, path.clone(), None, Vec::new())
            }
            Content::Har(file, graph) => {
                let graph = graph.as_deref().cloned().unwrap_or_default();
                let replayed = Site::of_graph(&graph, self.tls, port)
                    .map_err(|why| wrong("har", file, why))?;
                let names = replayed.origins.into_iter().map(|(name, _)| name).collect();
                (replayed.site, String::new(), Some(replayed.graph), names)
            }
        };
        names.push(NAME.to_owned());
        names.sort();
        names.dedup();
        site.names.clone_from(&names);
        site.http2 = self.protocol == Protocol::Http2;
        site.compress = self.compress;
        let url = graph.is_none().then(|| format!("{scheme}://{NAME}:{port}{path}"));
        let names = names.into_iter().map(|name| (name, at)).collect();
        Ok(Served { site, url, graph, names })
    }

    /// Whether resources are on several origins of our own.
    pub(super) fn spreads(&self) -> bool {
        match &self.ends {
            Ends::Lab(lab) => match &lab.content {
                Content::Made { shards, .. } => *shards > 1,
                Content::Har(..) => true,
                Content::Folder(..) => false,
            },
            Ends::Target(..) => false,
        }
    }
}
