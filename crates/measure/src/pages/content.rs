//! What a web server of the lab serves: a page that is made, a folder, or the resources of a HAR file. And the
//! options that say so.

use std::net::IpAddr;
use std::path::Path;
use std::rc::Rc;

use tcptoll_core::experiment::option::{Only, Opt};
use tcptoll_core::http::url::Url;
use tcptoll_core::page::har;
use tcptoll_core::page::resource::{Graph, Kind};
use tcptoll_core::page::site::{MadePage, Site};
use tcptoll_core::units::parse_size;
use tcptoll_lab::files::{Shared, is_too_large, read_at_most};
use tcptoll_lab::lab::{Handle, Interrupt};
use tcptoll_lab::messages::{LoadPage, PageStart, ServerSpec, Serving, Upload, Visit};

use crate::kit::TrialError;
use crate::kit::settings::{SettingsReader, wrong};
use crate::kit::target::Target;

/// Longest HAR file, bytes: one of a large page with all its content has some tens of MiB.
const HAR_MAX: u64 = 256 << 20;

/// Resources of a made page, at most.
const RESOURCES_MAX: u64 = 1_000;

/// Longest site that fits into the order itself, bytes of JSON; a longer one is uploaded before.
const SITE_MAX: usize = 32 << 10;

/// The name that pages of the lab have.
const NAME: &str = "page.test";

/// Options of a page that the lab makes.
const MADE: [&str; 6] =
    ["resources", "resource-kind", "resource-size", "page-size", "work", "shards"];

#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// A page that is made, and the number of hosts of its resources.
    Made(MadePage, u64),
    /// A folder, and the path of the page in it.
    Folder(String, String),
    /// A HAR file, and what is in it once it was read.
    Har(String, Option<Rc<Graph>>),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    pub(crate) tls: bool,
    pub(crate) http2: bool,
    pub(crate) compress: bool,
}

/// A page on a server of the lab, ready to be served and asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Served {
    pub(crate) site: Site,
    /// The document. None: the graph is asked for.
    pub(crate) url: Option<String>,
    pub(crate) graph: Option<Graph>,
    /// Names of the server.
    pub(crate) names: Vec<(String, IpAddr)>,
}

impl Content {
    /// Whether it is a folder of the user's.
    pub(crate) fn is_folder(&self) -> bool {
        matches!(self, Self::Folder(..))
    }

    /// Checks the settings of a page, without looking at files.
    pub(crate) fn from(reader: &SettingsReader<'_>) -> Result<Self, TrialError> {
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
            return Ok(Self::Folder(folder, reader.read("path", path)?));
        }
        if let Some(har) = har {
            return Ok(Self::Har(har, None));
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
        Ok(Self::Made(page, reader.count("shards", 1, 50)?))
    }

    /// Reads the HAR file, and checks the folder.
    pub(crate) fn read_files(&mut self, files: &mut Shared) -> Result<(), TrialError> {
        match self {
            Self::Made(..) => Ok(()),
            Self::Folder(folder, path) => check_folder(folder, path),
            Self::Har(path, graph) => {
                let read = files.read(path, |path: &Path| read_har(path))?;
                *graph = Some(read);
                Ok(())
            }
        }
    }

    /// What the lab serves at this address and port.
    ///
    /// Errors: such a page cannot be made; a sentence.
    pub(crate) fn served(
        &self,
        manner: Manner,
        at: IpAddr,
        port: u16,
    ) -> Result<Served, TrialError> {
        let scheme = if manner.tls { "https" } else { "http" };
        let (mut site, path, graph, mut names) = match self {
            Self::Made(page, shards) => {
                let shards: Vec<String> = match shards {
                    1 => Vec::new(),
                    count => (1..=*count).map(|number| format!("s{number}.{NAME}")).collect(),
                };
                let page =
                    MadePage { shards: shards.clone(), tls: manner.tls, port, ..page.clone() };
                let site = Site::of_page(&page)
                    .map_err(|why| wrong("resources", &page.resources.to_string(), why))?;
                (site, "/".to_owned(), None, shards)
            }
            Self::Folder(folder, path) => {
                let site = Site { folder: Some(folder.clone()), ..Site::default() };
                (site, path.clone(), None, Vec::new())
            }
            Self::Har(file, graph) => {
                let graph = graph.as_deref().cloned().unwrap_or_default();
                let replayed = Site::of_graph(&graph, manner.tls, port)
                    .map_err(|why| wrong("har", file, why))?;
                let names = replayed.origins.into_iter().map(|(name, _)| name).collect();
                (replayed.site, String::new(), Some(replayed.graph), names)
            }
        };
        names.push(NAME.to_owned());
        names.sort();
        names.dedup();
        site.names.clone_from(&names);
        site.http2 = manner.http2;
        site.compress = manner.compress;
        let url = graph.is_none().then(|| format!("{scheme}://{NAME}:{port}{path}"));
        let names = names.into_iter().map(|name| (name, at)).collect();
        Ok(Served { site, url, graph, names })
    }

    /// Whether resources are on several origins of our own.
    pub(crate) fn spreads(&self) -> bool {
        match self {
            Self::Made(_, shards) => *shards > 1,
            Self::Har(..) => true,
            Self::Folder(..) => false,
        }
    }
}

impl Served {
    /// A page of a server that already runs.
    ///
    /// Errors: its name was not resolved before.
    pub(crate) fn by(url: &Url, target: &Target) -> Result<Self, TrialError> {
        let scheme = if url.tls { "https" } else { "http" };
        Ok(Self {
            url: Some(format!("{scheme}://{}{}", url.authority(), url.path)),
            names: vec![(url.host.clone(), target.address()?.ip())],
            ..Self::default()
        })
    }

    /// Starts a server of the site; one that is too long for the order is uploaded before.
    pub(crate) fn start(
        &self,
        server: &mut Handle,
        spec: ServerSpec,
    ) -> Result<Serving, TrialError> {
        let text = to_json(&self.site)?;
        let site_uploaded = text.len() > SITE_MAX;
        if site_uploaded {
            upload(server, &text)?;
        }
        let site = (!site_uploaded).then(|| self.site.clone());
        Ok(server.ask(&ServerSpec { site, site_uploaded, ..spec })?)
    }

    /// Where a load begins, and the graph that is uploaded before each if there is no document.
    pub(crate) fn begin(&self) -> Result<(PageStart, Option<String>), TrialError> {
        Ok(match &self.url {
            Some(url) => (PageStart::Url(url.clone()), None),
            None => (PageStart::Uploaded, self.graph.as_ref().map(to_json).transpose()?),
        })
    }
}

/// Uploads a text that the next order refers to.
pub(crate) fn upload(host: &mut Handle, text: &str) -> Result<(), TrialError> {
    for piece in Upload::pieces(text) {
        host.ask(&piece)?;
    }
    Ok(())
}

/// Loads a page once.
pub(crate) fn load_once(
    client: &mut Handle,
    order: &LoadPage,
    graph: Option<&str>,
    interrupt: &Interrupt,
) -> Result<Visit, TrialError> {
    if let Some(graph) = graph {
        upload(client, graph)?;
    }
    let begun = client.begin(order)?;
    let answered = client.wait(begun, interrupt, &mut |_| {})?;
    Ok(Visit::of_rows(answered.rows, answered.answer))
}

fn to_json(value: &impl serde::Serialize) -> Result<String, TrialError> {
    serde_json::to_string(value).map_err(|error| TrialError::Setting(format!("page: {error}")))
}

/// Checks that a folder is there and has the page that is to be loaded.
fn check_folder(folder: &str, path: &str) -> Result<(), TrialError> {
    let found = std::fs::metadata(folder).map_err(|error| wrong("site", folder, error))?;
    if !found.is_dir() {
        return Err(wrong("site", folder, "it is not a folder"));
    }
    let page =
        Path::new(folder).join(path.split('?').next().unwrap_or(path).trim_start_matches('/'));
    // An encoded name is the server's to read.
    if path.contains('%') || page.is_file() || page.join("index.html").is_file() {
        return Ok(());
    }
    if path == "/" {
        let why = "there is no index.html in it; name the page with --path /PAGE.html";
        return Err(wrong("site", folder, why));
    }
    Err(wrong("path", path, format!("there is no such file in {folder}")))
}

fn read_har(file: &Path) -> Result<Graph, TrialError> {
    let path = &file.display().to_string();
    // A pipe or a device would be waited for.
    let found = std::fs::metadata(path).map_err(|error| wrong("har", path, error))?;
    if !found.is_file() {
        return Err(wrong("har", path, "it is not a regular file"));
    }
    let text = read_at_most(file, HAR_MAX).map_err(|error| {
        if is_too_large(&error) {
            wrong("har", path, "it is larger than 256 MiB")
        } else {
            wrong("har", path, error)
        }
    })?;
    har::graph(&text).map_err(|error| wrong("har", path, error))
}

fn path(typed: &str) -> Result<String, &'static str> {
    let whole = typed.starts_with('/') && typed.bytes().all(|byte| byte.is_ascii_graphic());
    whole.then(|| typed.to_owned()).ok_or("write a path that begins with /")
}

/// Heading of what is loaded.
pub(super) const PAGE: &str = "Page";

/// Resources of a page that the lab makes.
pub(super) const RESOURCES: Opt =
    Opt::each(PAGE, "resources", "N", "Number of resources of the generated page")
        .number()
        .by_default("20")
        .only(&[Only::Lab]);
/// What they are.
pub(super) const RESOURCE_KIND: Opt =
    Opt::each(PAGE, "resource-kind", "KIND", "Type of the resources: css, script or image")
        .by_default("css")
        .only(&[Only::Lab]);
/// Their size.
pub(super) const RESOURCE_SIZE: Opt =
    Opt::each(PAGE, "resource-size", "SIZE", "Size of each resource")
        .by_default("2K")
        .only(&[Only::Lab]);
/// The document's.
pub(super) const PAGE_SIZE: Opt = Opt::each(PAGE, "page-size", "SIZE", "Size of the HTML document")
    .by_default("4K")
    .only(&[Only::Lab]);
/// How long the document takes.
pub(super) const WORK: Opt =
    Opt::each(PAGE, "work", "TIME", "Time that PHP takes for the document. 0 serves a static file")
        .by_default("0")
        .only(&[Only::Lab]);
/// Hosts of the resources.
pub(super) const SHARDS: Opt = Opt::each(
    PAGE,
    "shards",
    "N",
    "Number of host names over which the resources are spread (domain sharding). 1 serves them \
     from the host of the page",
)
.number()
.by_default("1")
.only(&[Only::Lab]);
/// A folder instead.
pub(super) const SITE: Opt =
    Opt::one(PAGE, "site", "FOLDER", "Serve this folder instead of a generated page")
        .only(&[Only::Lab]);
/// The page in it.
pub(super) const PATH: Opt =
    Opt::one(PAGE, "path", "PATH", "Path of the page within the folder of --site")
        .by_default("/")
        .only(&[Only::With("site", "")]);
/// A recorded page instead.
pub(super) const HAR: Opt = Opt::one(
    PAGE,
    "har",
    "FILE",
    "Load the resources that a HAR file lists, with their sizes, order and server times. The lab's \
     server serves them",
)
.only(&[Only::Lab]);
/// Compression.
pub(super) const COMPRESS: Opt =
    Opt::each(PAGE, "compress", "on,off", "Request compressed content (Accept-Encoding)")
        .by_default("off");
