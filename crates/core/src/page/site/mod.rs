//! A site that a real server serves: a page that the lab makes, a page whose dependency graph is
//! replayed, or a folder of the user's.
//!
//! Pure: [`Site::of_page`] and [`Site::of_graph`] say what the files are, the engine writes them for
//! the server. Paths are made here and never taken from a peer or a HAR file.

use serde::{Deserialize, Serialize};

use super::graph::{Graph, Resource};
use super::resource::Kind;

mod content;

pub use content::Content;

/// Files of a site, at most.
pub const FILES_MAX: usize = 3_000;

/// Content of all files of a site together, bytes, at most: they are written into memory.
pub const BYTES_MAX: u64 = 256 << 20;

/// Virtual hosts of a site, at most: each is a name in the certificate.
pub const NAMES_MAX: usize = 100;

/// Longest time that a server may take for one file, ns. Recorded pages have such responses; the longer
/// ones are of streams.
pub const SERVER_TIME_MAX_NS: u64 = 60_000_000_000;

/// What a server serves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Site {
    /// Its files; empty if `folder` is set.
    pub files: Vec<File>,
    /// A folder of the server's machine that is served read-only instead.
    pub folder: Option<String>,
    /// Virtual hosts. Each serves all files. Empty: the server answers to every name.
    pub names: Vec<String>,
    /// Whether the server offers HTTP/2; needs TLS.
    pub http2: bool,
    /// Whether the server compresses text with gzip.
    pub compress: bool,
}

/// One file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct File {
    /// Where it is: `/index.html`, `/r/1.css`. The document is served for `/` too.
    pub path: String,
    /// What it holds.
    pub content: Content,
    /// Its `Content-Type`.
    pub content_type: String,
    /// Time that the server takes before it answers, ns.
    pub server_time_ns: u64,
}

/// A page that the lab makes: a document and resources of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct MadePage {
    /// Resources besides the document.
    pub resources: u32,
    /// What they are: style sheets, scripts, images or fonts.
    pub kind: Kind,
    /// Content of each resource, bytes; raised to the least that such a file needs.
    pub resource_bytes: u64,
    /// Content of the document, bytes; raised to what naming all resources needs.
    pub page_bytes: u64,
    /// Time that the server takes for the document, ns.
    pub page_time_ns: u64,
    /// Time that the server takes for each resource, ns.
    pub resource_time_ns: u64,
    /// Names over which the resources are spread in turn. Empty: the resources are on the document's own
    /// host.
    pub shards: Vec<String>,
    /// Whether TLS is spoken: scheme of the shards' URLs.
    pub tls: bool,
    /// Port of the shards' URLs.
    pub port: u16,
}

/// A dependency graph that is replayed.
#[derive(Clone, Debug, PartialEq)]
pub struct Replayed {
    /// What the server serves.
    pub site: Site,
    /// The graph with the URLs of the site.
    pub graph: Graph,
    /// Name of each host of the site, and the origin that it stands for, as the graph had it.
    pub origins: Vec<(String, String)>,
}

impl Site {
    /// The site of a made page.
    ///
    /// Errors: a sentence for the user where such a page cannot be made.
    pub fn of_page(page: &MadePage) -> Result<Self, String> {
        let (extension, content_type) = type_of(page.kind);
        if matches!(page.kind, Kind::Document | Kind::Other) {
            return Err(
                "a made page has resources of kind stylesheet, script, image or font".to_owned()
            );
        }
        if page.resources as usize >= FILES_MAX {
            return Err(format!(
                "{} resources are too many: a made page has at most {}",
                page.resources,
                FILES_MAX - 1
            ));
        }
        let mut files = vec![File {
            path: "/index.html".to_owned(),
            content: Content::Text(content::document(page, extension)),
            content_type: type_of(Kind::Document).1.to_owned(),
            server_time_ns: page.page_time_ns,
        }];
        files.extend((1..=page.resources).map(|number| File {
            path: resource_path(number, extension),
            content: Content::Made { kind: page.kind, bytes: page.resource_bytes },
            content_type: content_type.to_owned(),
            server_time_ns: page.resource_time_ns,
        }));
        let site = Self { files, names: page.shards.clone(), ..Self::default() };
        site.check()?;
        Ok(site)
    }

    /// The site that replays a dependency graph: for each resource a file of its size, its type and its
    /// server time; for each origin a virtual host `h0.test`, `h1.test`. The first is the document's.
    ///
    /// Every response has the status 200 and is not compressed: sizes of the graph are those on the wire.
    ///
    /// Errors: a sentence for the user: no resource, too many, too large.
    pub fn of_graph(graph: &Graph, tls: bool, port: u16) -> Result<Replayed, String> {
        if graph.resources.is_empty() {
            return Err("the page to replay has no document".to_owned());
        }
        let mut origins: Vec<(String, String)> = Vec::new();
        let mut files = Vec::new();
        let mut resources = Vec::new();
        for (number, resource) in graph.resources.iter().take(FILES_MAX + 1).enumerate() {
            let origin = origin_of(&resource.url);
            let known = origins.iter().find(|(_, known)| known == origin);
            let name = if let Some((name, _)) = known {
                name.clone()
            } else {
                let name = format!("h{}.test", origins.len());
                origins.push((name.clone(), origin.to_owned()));
                name
            };
            let (extension, content_type) = type_of(resource.kind);
            let path = match number {
                0 => "/index.html".to_owned(),
                _ => resource_path(number as u32, extension),
            };
            resources.push(Resource {
                url: url(tls, &name, port, &path),
                status: 200,
                ..resource.clone()
            });
            files.push(File {
                path,
                content: Content::Bytes(resource.body_bytes),
                content_type: content_type.to_owned(),
                server_time_ns: resource.server_us.saturating_mul(1_000),
            });
        }
        let names = origins.iter().map(|(name, _)| name.clone()).collect();
        let site = Self { files, names, ..Self::default() };
        site.check()?;
        Ok(Replayed { site, graph: Graph { resources }, origins })
    }

    /// Content of all files, bytes.
    pub fn bytes(&self) -> u64 {
        self.files.iter().fold(0, |sum, file| sum.saturating_add(file.content.bytes()))
    }

    /// Checks what came over a channel or from options: bounds, paths, names.
    ///
    /// Errors: a sentence for the user.
    pub fn check(&self) -> Result<(), String> {
        let Self { files, folder, names, .. } = self;
        if files.is_empty() == folder.is_none() {
            return Err("a site has either files or a folder".to_owned());
        }
        if files.len() > FILES_MAX {
            return Err(format!("a site of {} files: at most {FILES_MAX} are served", files.len()));
        }
        if self.bytes() > BYTES_MAX {
            return Err(format!(
                "a site of {} MiB: at most {} MiB are served, because all files are in memory",
                self.bytes() >> 20,
                BYTES_MAX >> 20
            ));
        }
        if names.len() > NAMES_MAX {
            return Err(format!("{} host names: at most {NAMES_MAX} are served", names.len()));
        }
        if let Some(name) = names.iter().find(|name| !is_host_name(name)) {
            return Err(format!("{name:?} is no host name"));
        }
        if let Some(file) = files.iter().find(|file| !is_plain_path(&file.path)) {
            return Err(format!("{:?} is no path of a made site", file.path));
        }
        if let Some(file) = files.iter().find(|file| !is_media_type(&file.content_type)) {
            return Err(format!("{:?} is no content type", file.content_type));
        }
        if let Some(file) = files.iter().find(|file| file.server_time_ns > SERVER_TIME_MAX_NS) {
            return Err(format!(
                "a server time of {} s for {}: at most {} s",
                file.server_time_ns / 1_000_000_000,
                file.path,
                SERVER_TIME_MAX_NS / 1_000_000_000
            ));
        }
        let mut paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
        paths.sort_unstable();
        match paths.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(format!("two files are called {}", pair[0])),
            None => Ok(()),
        }
    }

    /// Whether a file needs a program that waits before it answers.
    pub fn is_dynamic(&self) -> bool {
        self.files.iter().any(|file| file.server_time_ns > 0)
    }
}

fn resource_path(number: u32, extension: &str) -> String {
    format!("/r/{number}.{extension}")
}

fn url(tls: bool, name: &str, port: u16, path: &str) -> String {
    let secure = if tls { "s" } else { "" };
    let port = match (tls, port) {
        (true, 443) | (false, 80) => String::new(),
        (_, port) => format!(":{port}"),
    };
    format!("http{secure}://{name}{port}{path}")
}

/// Scheme, host and port of a URL, as written.
fn origin_of(url: &str) -> &str {
    let host_at = url.find("://").map_or(0, |at| at + 3);
    let end = url[host_at..].find(['/', '?', '#']).map_or(url.len(), |at| host_at + at);
    &url[..end]
}

/// Extension and content type of a made file.
fn type_of(kind: Kind) -> (&'static str, &'static str) {
    match kind {
        Kind::Document => ("html", "text/html"),
        Kind::Stylesheet => ("css", "text/css"),
        Kind::Script => ("js", "text/javascript"),
        Kind::Font => ("woff2", "font/woff2"),
        Kind::Image => ("svg", "image/svg+xml"),
        Kind::Other => ("bin", "application/octet-stream"),
    }
}

/// Letters, digits, hyphens and dots, as in DNS and in every server's configuration.
fn is_host_name(name: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

/// Absolute, of at most two folders, and of nothing that a file system, a shell or a server's configuration
/// takes for something else.
fn is_plain_path(path: &str) -> bool {
    let Some(rest) = path.strip_prefix('/') else { return false };
    let is_part = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    path.len() <= 200 && rest.split('/').count() <= 3 && rest.split('/').all(is_part)
}

/// Of characters that stand in a configuration between quotation marks without a meaning of their own.
fn is_media_type(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/+.-=; ".contains(&byte);
    text.len() <= 100 && text.contains('/') && text.bytes().all(is_plain)
}

#[cfg(test)]
mod tests;
