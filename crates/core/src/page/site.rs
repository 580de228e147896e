//! A site that a real server serves: a page that the lab makes, a page whose dependency graph is
//! replayed, or a folder of the user's.
//!
//! [`Site::of_page`] and [`Site::of_graph`] say what the files are, the lab writes them for
//! the server. Paths are made here and never taken from a peer or a HAR file. What the files of a made page
//! hold is valid for a browser, of exactly the bytes asked for, and compressible about as far as such
//! files are.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::resource::{Graph, Kind, Resource};

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
            content: Content::Text(document(page, extension)),
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

/// What a file holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Content {
    /// This text.
    Text(String),
    /// So many bytes without a meaning.
    Bytes(u64),
    /// A file of this kind that a browser accepts, so many bytes long, or as few as it needs.
    Made {
        /// What it is.
        kind: Kind,
        /// Its length, bytes.
        bytes: u64,
    },
}

impl Content {
    /// Its length, bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::Bytes(bytes) => *bytes,
            Self::Made { kind, bytes } => {
                let (head, tail, _) = frame(*kind);
                (*bytes).max((head.len() + tail.len()) as u64)
            }
        }
    }

    /// The bytes themselves.
    ///
    /// Cost: allocates all of them; [`Site::check`] bounds their number.
    pub fn made(&self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.clone().into_bytes(),
            Self::Bytes(bytes) => vec![b'x'; *bytes as usize],
            Self::Made { kind, .. } => {
                let (head, tail, line) = frame(*kind);
                filled(head, tail, line, self.bytes())
            }
        }
    }
}

/// A kind's beginning and end, and what fills it between them; a line is written with its number.
fn frame(kind: Kind) -> (&'static str, &'static str, fn(u64) -> String) {
    match kind {
        // Rules that no element of the page matches: they are parsed and change nothing.
        Kind::Stylesheet => ("", "", |n| format!(".r{n}{{margin:{}px;color:#{n:06x}}}\n", n % 97)),
        Kind::Script => ("", "", |n| format!("var r{n}={};\n", n * 31 % 9973)),
        Kind::Image => {
            ("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1\" height=\"1\">", "</svg>", |n| {
                format!("<g id=\"r{n}\"/>\n")
            })
        }
        Kind::Document => ("<!doctype html>\n<title>made</title>\n", "", |n| {
            format!("<p>Paragraph {n} of {}.\n", n * 31 % 9973)
        }),
        Kind::Font | Kind::Other => ("", "", |n| format!("{n:08x}")),
    }
}

/// Whole lines while they fit, and then spaces, which mean nothing in each of these kinds.
fn filled(head: &str, tail: &str, line: fn(u64) -> String, bytes: u64) -> Vec<u8> {
    let bytes = bytes as usize;
    let mut text = Vec::with_capacity(bytes);
    text.extend(head.bytes());
    for number in 0.. {
        let line = line(number);
        if text.len() + line.len() + tail.len() > bytes {
            break;
        }
        text.extend(line.bytes());
    }
    text.resize(bytes.saturating_sub(tail.len()), b' ');
    text.extend(tail.bytes());
    text
}

/// The document of a made page: names all resources, asks for no icon, and fills its size with paragraphs.
fn document(page: &MadePage, extension: &str) -> String {
    let mut head = "<!doctype html>\n<html><head><meta charset=utf-8><title>made page</title>\n\
                    <link rel=icon href=data:,>\n"
        .to_owned();
    let mut body = "</head><body>\n".to_owned();
    let shards = page.shards.len();
    for number in 1..=page.resources {
        let path = resource_path(number, extension);
        let url = match (number as usize - 1).checked_rem(shards) {
            Some(shard) => url(page.tls, &page.shards[shard], page.port, &path),
            None => path,
        };
        // Writing to a string cannot fail.
        let _ = match page.kind {
            Kind::Script => writeln!(head, "<script src=\"{url}\"></script>"),
            Kind::Image => writeln!(body, "<img src=\"{url}\" alt=\"\">"),
            Kind::Font => {
                let _ = writeln!(body, "<p style=\"font-family:f{number}\">x");
                writeln!(head, "<style>@font-face{{font-family:f{number};src:url({url})}}</style>")
            }
            Kind::Stylesheet | Kind::Document | Kind::Other => {
                writeln!(head, "<link rel=stylesheet href=\"{url}\">")
            }
        };
    }
    let text = head + &body;
    let (_, _, line) = frame(Kind::Document);
    let bytes = page.page_bytes.min(BYTES_MAX).max((text.len() + END.len()) as u64);
    String::from_utf8(filled(&text, END, line, bytes)).expect("made of ASCII alone")
}

/// The end of a made document.
const END: &str = "</body></html>\n";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::resource::Priority;

    fn page() -> MadePage {
        MadePage {
            resources: 20,
            kind: Kind::Stylesheet,
            resource_bytes: 1_000,
            page_bytes: 5_000,
            page_time_ns: 0,
            resource_time_ns: 0,
            shards: Vec::new(),
            tls: false,
            port: 80,
        }
    }

    fn text(file: &File) -> String {
        String::from_utf8(file.content.made()).unwrap()
    }

    #[test]
    fn a_made_page_has_a_document_that_names_each_resource_once_and_files_of_the_sizes_asked_for() {
        for kind in [Kind::Stylesheet, Kind::Script, Kind::Image, Kind::Font] {
            let site = Site::of_page(&MadePage { kind, ..page() }).unwrap();
            assert_eq!(site.files.len(), 21);
            let document = text(&site.files[0]);
            assert_eq!(document.len(), 5_000, "{kind:?}");
            assert!(document.contains("<link rel=icon href=data:,>"));
            for file in &site.files[1..] {
                assert_eq!(document.matches(&file.path).count(), 1, "{}", file.path);
                assert_eq!(text(file).len(), 1_000);
                assert_eq!(file.content.bytes(), 1_000);
            }
            assert!(!site.is_dynamic());
        }
    }

    #[test]
    fn a_page_smaller_than_its_own_markup_is_as_small_as_it_can_be() {
        let small = MadePage { kind: Kind::Image, page_bytes: 0, resource_bytes: 0, ..page() };
        let site = Site::of_page(&small).unwrap();
        assert!(text(&site.files[0]).ends_with("</body></html>\n"));
        let image = text(&site.files[1]);
        assert!(image.starts_with("<svg ") && image.ends_with("></svg>"), "{image}");
        assert_eq!(site.files[1].content.bytes(), image.len() as u64);
    }

    #[test]
    fn made_css_is_whole_rules_and_space() {
        let css = Content::Made { kind: Kind::Stylesheet, bytes: 777 };
        let css = String::from_utf8(css.made()).unwrap();
        assert_eq!(css.len(), 777);
        assert!(css.trim_end().ends_with('}'));
        assert_eq!(css.matches('{').count(), css.matches('}').count());
    }

    #[test]
    fn resources_are_spread_over_the_shards_in_turn() {
        let shards = ["a.test", "b.test"].map(str::to_owned).to_vec();
        let site = Site::of_page(&MadePage { shards, port: 8080, ..page() }).unwrap();
        let document = text(&site.files[0]);
        assert!(document.contains("\"http://a.test:8080/r/1.css\""), "{document}");
        assert_eq!(document.matches("http://b.test:8080/r/").count(), 10);
        assert_eq!(site.names.len(), 2);
    }

    #[test]
    fn a_graph_is_replayed_with_a_host_per_origin_and_names_that_are_made() {
        let resource = |url: &str, kind, body_bytes| Resource {
            url: url.to_owned(),
            kind,
            body_bytes,
            server_us: 1_500,
            status: 304,
            priority: Priority::High,
            ..Resource::default()
        };
        let graph = Graph {
            resources: vec![
                resource("https://example.org/../../etc?x\r\n", Kind::Document, 10),
                resource("https://cdn.example.org:444/a.css", Kind::Stylesheet, 20),
                resource("https://example.org#b", Kind::Image, 30),
            ],
        };
        let Replayed { site, graph, origins } = Site::of_graph(&graph, true, 443).unwrap();
        assert_eq!(site.names, ["h0.test", "h1.test"]);
        assert_eq!(origins[1], ("h1.test".to_owned(), "https://cdn.example.org:444".to_owned()));
        let urls: Vec<&str> = graph.resources.iter().map(|one| one.url.as_str()).collect();
        let expected =
            ["https://h0.test/index.html", "https://h1.test/r/1.css", "https://h0.test/r/2.svg"];
        assert_eq!(urls, expected);
        assert_eq!(site.bytes(), 60);
        assert_eq!(site.files[0].server_time_ns, 1_500_000);
        assert!(graph.resources.iter().all(|one| one.status == 200));
        assert!(Site::of_graph(&Graph::default(), true, 443).is_err());
    }

    #[test]
    fn bounds_and_hostile_names_are_refused_with_a_sentence() {
        let site = Site::of_page(&page()).unwrap();
        let refused = |site: &Site| site.check().unwrap_err();
        let with = |path: &str| {
            let mut site = site.clone();
            path.clone_into(&mut site.files[1].path);
            site
        };
        for path in ["r/1", "/../x", "/r//x", "/r/.htaccess", "/a b", "/a\"", "/a\n", "/a/b/c/d"] {
            assert!(refused(&with(path)).contains("is no path"), "{path}");
        }
        assert!(refused(&with("/index.html")).contains("two files"));
        let names = |name: &str| Site { names: vec![name.to_owned()], ..site.clone() };
        for name in ["", "a b", "-a", "a..b", "a;b", "a\"", &"a".repeat(64)] {
            assert!(refused(&names(name)).contains("is no host name"), "{name}");
        }
        let mut large = site.clone();
        large.files[3].content = Content::Bytes(u64::MAX);
        assert!(refused(&large).contains("at most 256 MiB"));
        let mut slow = site.clone();
        slow.files[3].server_time_ns = 61_000_000_000;
        assert!(refused(&slow).contains("at most 60 s"));
        let mut odd = site;
        odd.files[2].content_type = "text/css\"\nX".to_owned();
        assert!(refused(&odd).contains("is no content type"));
        assert!(Site::default().check().is_err());
        assert!(Site::of_page(&MadePage { resources: 3_000, ..page() }).is_err());
        assert!(Site::of_page(&MadePage { kind: Kind::Other, ..page() }).is_err());
    }
}
