//! Options of `page`, and from what was typed to what it means, without loading anything.

use std::time::Duration;

use serde_json::Value;
use tcptoll_core::experiment::option::{Only, Opt};
use tcptoll_core::experiment::options::{
    CLIENT_SYSCTL, IPV6, LINK, LOAD, PACKET_RELAY, PLACE, SERVER_SYSCTL, TAP, an_arm_each,
};
use tcptoll_core::http::url::Url;
use tcptoll_core::page::resource::Protocol;
use tcptoll_core::study::{Settings, Study};
use tcptoll_core::verdict::warning::Warning;
use tcptoll_lab::files::Shared;
use tcptoll_lab::messages::{PageUser, ServerKind};

use super::SPEC;
use crate::kit::TrialError;
use crate::kit::settings::ReuseLimits;
use crate::kit::settings::{LabSpec, SettingsReader, time_above_zero, wrong};
use crate::kit::target::Target;
use crate::pages::content::{
    COMPRESS, Content, HAR, Manner, PAGE, PAGE_SIZE, PATH, RESOURCE_KIND, RESOURCE_SIZE, RESOURCES,
    SHARDS, SITE, WORK,
};

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
    /// Whether it is the default, which nobody chose.
    is_default: bool,
    /// Why it is not the one that is the default.
    pub(super) instead: Option<Warning>,
    /// None: as many as the connections need.
    pub(super) workers: Option<u64>,
    pub(super) kept: ReuseLimits,
    pub(super) content: Content,
}

impl PageSettings {
    /// Checks the settings of one arm, without looking at files and names.
    pub(super) fn from(settings: &Settings) -> Result<Self, TrialError> {
        let reader = SettingsReader::new(&SPEC, settings)?;
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
            let why = "browsers do not support pipelining: leave out --browser";
            return Err(wrong("protocol", "http/1.1-pipelined", why));
        }
        let (ends, tls) = ends(&reader, protocol)?;
        let connections_per_origin = reader.count("connections-per-origin", 1, 256)? as u32;
        if browser && connections_per_origin != 6 {
            let why = "Chromium opens at most 6 and has no setting for it: leave out --browser";
            return Err(wrong("connections-per-origin", &connections_per_origin.to_string(), why));
        }
        for key in ["ca", "insecure"] {
            if let (false, Some(typed)) = (tls, reader.typed(key)) {
                return Err(wrong(key, &typed, "it has no effect without TLS: leave it out"));
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

    /// Reads the HAR file, checks the folder, and looks for the server's program.
    pub(super) fn read_files(&mut self, files: &mut Shared) -> Result<(), TrialError> {
        let Ends::Lab(lab) = &mut self.ends else { return Ok(()) };
        lab.content.read_files(files)?;
        let may_be_ours = lab.is_default && !self.tls && !self.compress && !lab.content.is_folder();
        lab.instead = lab.spec.installed(&mut lab.kind, may_be_ours)?;
        Ok(())
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

fn ends(reader: &SettingsReader<'_>, protocol: Protocol) -> Result<(Ends, bool), TrialError> {
    if let Some(typed) = reader.typed("url") {
        let url = Url::typed(&typed).map_err(|error| wrong("url", &typed, error))?;
        if protocol == Protocol::Http2 && !url.tls {
            let why = "browsers use HTTP/2 over TLS only: write https://";
            return Err(wrong("protocol", "h2", why));
        }
        let (target, tls) = (Target::of_url(&url, &typed), url.tls);
        return Ok((Ends::Target(url, target), tls));
    }
    let tls = match reader.typed_flag("tls")? {
        Some(false) if protocol == Protocol::Http2 => {
            let why = "browsers use HTTP/2 over TLS only: write --tls on";
            return Err(wrong("protocol", "h2", why));
        }
        Some(tls) => tls,
        None => protocol == Protocol::Http2,
    };
    let server = reader.value("server")?;
    let kind =
        ServerKind::named(&server).filter(|kind| *kind != ServerKind::Puma).ok_or_else(|| {
            wrong("server", &server, "write apache, apache-worker, apache-prefork, nginx or null")
        })?;
    let lab = Lab {
        spec: LabSpec::from(reader)?,
        kind,
        is_default: reader.typed("server").is_none(),
        instead: None,
        workers: match reader.typed_count("workers", 1, 64)? {
            // A process of prefork serves one connection.
            None if kind == ServerKind::ApachePrefork => None,
            typed => Some(typed.unwrap_or(WORKERS)),
        },
        kept: ReuseLimits::from(reader)?,
        content: Content::from(reader)?,
    };
    Ok((Ends::Lab(Box::new(lab)), tls))
}

impl PageSettings {
    /// How the lab serves the page.
    pub(super) fn manner(&self) -> Manner {
        let http2 = self.protocol == Protocol::Http2;
        Manner { tls: self.tls, http2, compress: self.compress }
    }

    /// Whether resources are on several origins of our own.
    pub(super) fn spreads(&self) -> bool {
        matches!(&self.ends, Ends::Lab(lab) if lab.content.spreads())
    }
}

/// Heading of the server's settings.
const SERVER: &str = "Server";

/// Every option, as the help shows them.
pub(super) const OPTIONS: &[&Opt] = &[
    &Opt::arguments(
        "url",
        "URL",
        "Page of a running server to load instead of the lab's; several are compared",
    ),
    &LINK.by_default("rtt=15ms"),
    &Opt::each(
        PLACE,
        "server",
        "NAME",
        "Server to start in the lab: apache (apache-event, apache-worker, apache-prefork), nginx or \
         null (tcptoll's own)",
    )
    .by_default("apache")
    .only(&[Only::Lab]),
    &IPV6,
    &PACKET_RELAY,
    &CLIENT_SYSCTL,
    &SERVER_SYSCTL,
    &RESOURCES,
    &RESOURCE_KIND,
    &RESOURCE_SIZE,
    &PAGE_SIZE,
    &WORK,
    &SHARDS,
    &SITE,
    &PATH,
    &HAR,
    &COMPRESS,
    &Opt::flag(PAGE, "other-origins", "Also load resources from other hosts"),
    &Opt::each(
        PAGE,
        "next-page-after",
        "TIME",
        "Load the page a second time, TIME after the first load, over the connections that are \
         still open",
    ),
    &Opt::each(SERVER, "keepalive", "on,off", "HTTP keep-alive: several requests per connection")
        .derived("on and off, one arm each; on if --site, --har, --browser, --protocol or --tls is given")
        .only(&[Only::Lab]),
    &Opt::each(
        SERVER,
        "keepalive-requests",
        "N",
        "Maximum number of responses per connection. 0 means no limit",
    )
    .number()
    .derived("server default")
    .only(&[Only::Lab]),
    &Opt::each(
        SERVER,
        "keepalive-timeout",
        "TIME",
        "Idle time after which the server closes a connection, e.g. 5s",
    )
    .derived("server default")
    .only(&[Only::Lab]),
    &Opt::each(SERVER, "workers", "N", "Worker processes of the server")
        .number()
        .derived("2; with apache-prefork one per connection")
        .only(&[Only::Lab]),
    &Opt::each(LOAD, "browser", "off,on", "Load the page in headless Chromium").by_default("off"),
    &Opt::each(LOAD, "connections-per-origin", "N", "Maximum number of connections per origin")
        .number()
        .by_default("6"),
    &Opt::each(
        LOAD,
        "protocol",
        "NAME",
        "Protocol: http/1.1, http/1.1-pipelined, or h2 (HTTP/2 over TLS, all requests on one \
         connection)",
    )
    .by_default("http/1.1"),
    &Opt::each(LOAD, "tls", "on,off", "Use TLS to the lab's server")
        .derived("off; on in the arms with --protocol h2")
        .only(&[Only::Lab]),
    &Opt::one(LOAD, "ca", "FILE", "File of additional root certificates (PEM)"),
    &Opt::flag(LOAD, "insecure", "Do not verify the server's certificate"),
    &Opt::one(
        LOAD,
        "loads",
        "N",
        "Page loads per trial, one after the other, each with new connections",
    )
    .number()
    .by_default("2"),
    &Opt::one(LOAD, "timeout", "TIME", "Timeout of one page load").by_default("30s"),
    &TAP,
];

/// Options that let a page keep its connections.
pub(super) const KEPT: [&str; 3] = ["keepalive", "keepalive-timeout", "keepalive-requests"];

/// Options that ask a question of their own: a page of the user's, or levels that are compared with each other.
const CHOSEN: [&str; 6] = ["keepalive", "browser", "protocol", "tls", "site", "har"];

/// Several pages are compared. Without another question, the one that the experiment is for: KeepAlive on and off.
pub(super) fn complete(study: &mut Study) {
    an_arm_each(study, "url");
    let typed = |option: &&str| !study.values(option).is_empty();
    if typed(&"url") || CHOSEN.iter().any(typed) || !study.named_arms.is_empty() {
        return;
    }
    let levels = ["on", "off"].map(Value::from).to_vec();
    study.factors.insert("keepalive".to_owned(), levels);
}
