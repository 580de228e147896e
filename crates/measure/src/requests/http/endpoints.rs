//! Where the two ends of `http` stand: a server we do not control, or one of the lab.

use std::time::Duration;

use crate::requests::http::SPEC;
use tcptoll_core::http::url::Url;
use tcptoll_core::units::parse_size;
use tcptoll_core::verdict::warning::Warning;
use tcptoll_lab::messages::ServerKind;

use crate::kit::plan::TrialError;
use crate::kit::settings::ReuseLimits;
use crate::kit::settings::{LabSpec, SettingsReader, wrong};
use crate::kit::target::Target;

/// Where the two ends stand.
#[derive(Clone, Debug)]
pub(super) enum Ends {
    /// A server we do not control, and what to ask it for: at least one URL, all of one origin.
    Target(Vec<Url>, Target),
    /// The lab.
    Lab(Box<LabSettings>),
}

/// The lab and its server.
#[derive(Clone, Debug)]
pub(super) struct LabSettings {
    /// The lab.
    pub spec: LabSpec,
    /// What answers.
    pub server: LabServer,
    /// What to ask it for; empty: what it says itself.
    pub paths: Vec<String>,
}

/// What answers in the lab.
#[derive(Clone, Debug)]
pub(super) enum LabServer {
    /// A server known by its name.
    Known(KnownServer),
    /// A line for the shell, and its port where it listens on several.
    Command(String, Option<u16>),
}

/// A server known by its name; see [`tcptoll_lab::messages::ServerSpec`].
#[derive(Clone, Debug)]
pub(super) struct KnownServer {
    /// Which.
    pub kind: ServerKind,
    /// Whether it is the default, which nobody chose.
    is_default: bool,
    /// Why it is not the one that is the default.
    pub(crate) instead: Option<Warning>,
    /// Processes, or threads. None: as many as the connections need.
    pub workers: Option<u64>,
    /// What becomes of idle connections.
    pub(crate) kept: ReuseLimits,
    /// Bytes of content of a response.
    pub response_bytes: u64,
    /// Time the route works for.
    pub work: Duration,
    /// Of `listen(2)`.
    pub backlog: Option<u64>,
}

impl LabSettings {
    /// Looks for the server's program on this machine.
    pub(super) fn find_server(&mut self, tls: bool) -> Result<(), TrialError> {
        let LabServer::Known(server) = &mut self.server else { return Ok(()) };
        let may_be_ours = server.is_default && !tls;
        server.instead = self.spec.installed(&mut server.kind, may_be_ours)?;
        Ok(())
    }
}

/// How a study measures several servers.
const SEVERAL_SERVERS: &str =
    "Write an arm for each server:\n  [[arm]]\n  name = \"a\"\n  url = \"http://a.example/\"";

/// One URL. A comma is a byte of its path, so a list of URLs would be one odd path.
fn one_url(text: &str) -> Result<Url, TrialError> {
    let url = Url::typed(text).map_err(|error| wrong("url", text, error))?;
    let path = url.path.to_ascii_lowercase();
    if path.contains(",http://") || path.contains(",https://") {
        let why = format!(
            "in a study a comma does not separate URLs. Separate URLs of one server with blanks. {SEVERAL_SERVERS}"
        );
        return Err(wrong("url", text, why));
    }
    Ok(url)
}

pub(super) fn ends(reader: &SettingsReader<'_>) -> Result<Ends, TrialError> {
    let Some(typed) = reader.typed("url") else { return lab(reader) };
    let urls = typed.split_whitespace().map(one_url).collect::<Result<Vec<_>, _>>()?;
    let Some(first) = urls.first() else {
        return Err(wrong("url", &typed, "write http://HOST:PORT/PATH"));
    };
    let origin = |url: &Url| (url.tls, url.host.clone(), url.port);
    if urls.iter().any(|url| origin(url) != origin(first)) {
        let why =
            format!("the URLs of one arm need the same scheme, host and port. {SEVERAL_SERVERS}");
        return Err(wrong("url", &typed, why));
    }
    let target = Target::of_url(first, &typed);
    Ok(Ends::Target(urls, target))
}

fn lab(reader: &SettingsReader<'_>) -> Result<Ends, TrialError> {
    let spec = LabSpec::from(reader)?;
    let server = server(reader)?;
    let paths = reader.typed("path").unwrap_or_default();
    let paths: Vec<String> = paths.split_whitespace().map(str::to_owned).collect();
    if let Some(wrong_one) = paths.iter().find(|path| !is_path(path)) {
        return Err(wrong("path", wrong_one, "write a path that begins with /"));
    }
    Ok(Ends::Lab(Box::new(LabSettings { spec, server, paths })))
}

/// Whether it may stand in a request line: what a URI is made of (RFC 3986) and no blank.
fn is_path(path: &str) -> bool {
    path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#')
}

fn server(reader: &SettingsReader<'_>) -> Result<LabServer, TrialError> {
    let typed = reader.value("server")?;
    let Some(kind) = ServerKind::named(&typed) else {
        if typed.is_empty() {
            return Err(wrong("server", "''", "write a server's name or a command"));
        }
        for option in SPEC.options.iter().filter(|option| option.depends_on("server")) {
            if let Some(value) = reader.typed(option.name) {
                let why = "it works with servers known by name: with a command, set it in that server's own configuration";
                return Err(wrong(option.name, &value, why));
            }
        }
        let port = reader.typed_count("port", 1, 65_535)?.map(|port| port as u16);
        return Ok(LabServer::Command(typed, port));
    };
    if let Some(port) = reader.typed("port") {
        let why = "it has no effect without --server 'command': leave it out";
        return Err(wrong("port", &port, why));
    }
    let works = SPEC.option("work").is_none_or(|work| work.applies_where("server", &typed));
    if let (false, Some(work)) = (works, reader.typed("work")) {
        let why =
            format!("{typed} answers immediately: leave it out, or write --server puma or null");
        return Err(wrong("work", &work, why));
    }
    Ok(LabServer::Known(KnownServer {
        kind,
        is_default: reader.typed("server").is_none(),
        instead: None,
        workers: match reader.typed_count("workers", 1, 1024)? {
            // A process of prefork serves one connection.
            None if kind == ServerKind::ApachePrefork => None,
            typed => Some(typed.unwrap_or(1)),
        },
        kept: ReuseLimits::from(reader)?,
        response_bytes: reader.read("response", parse_size)?,
        work: reader.time("work")?,
        backlog: reader.typed_count("backlog", 1, i32::MAX as u64)?,
    }))
}
