//! Options of `visitors`, and from what was typed to what it means, without starting anything.
//!
//! The warm-up of a server with limits is at least 8 s. With 1.5 s, Apache's prefork had 19.7 workers that
//! held a connection where schedule and settings imply 33.8, and pages took 1.3 s.

use std::time::Duration;

use tcptoll_core::experiment::option::{Only, Opt};
use tcptoll_core::experiment::options::{
    CLIENT_SYSCTL, IPV6, LINK, LOAD, PACKET_RELAY, PLACE, SERVER_SYSCTL, an_arm_each, is_chosen,
    run_once,
};
use tcptoll_core::http::url::Url;
use tcptoll_core::page::visits::{Peaks, Visitors};
use tcptoll_core::study::{Settings, Study};
use tcptoll_core::units::{ns, parse_size};
use tcptoll_lab::files::Shared;
use tcptoll_lab::messages::{ServerKind, ServerLimits};

use super::SPEC;
use crate::kit::TrialError;
use crate::kit::settings::ReuseLimits;
use crate::kit::settings::{LabSpec, SettingsReader, number, time_above_zero, wrong};
use crate::kit::target::Target;
use crate::pages::Server;
use crate::pages::content::{
    COMPRESS, Content, HAR, Manner, PAGE_SIZE, PATH, RESOURCE_KIND, RESOURCE_SIZE, RESOURCES,
    SHARDS, SITE, WORK,
};

/// Visitors of one trial, about, at most: each has six connections, and they are all one client's.
const VISITORS_MAX: f64 = 20_000.0;

/// Workers, at most: what a server may be asked to start.
const WORKERS_MAX: u64 = 20_000;

/// Limits of the warm-up that is chosen by itself, and what is added to the timeout. Apache starts 1, 2, 4 … 32
/// processes a second while it has too few: 150 take 8 s.
const WARMUP_MIN: Duration = Duration::from_secs(8);
const WARMUP_MAX: Duration = Duration::from_secs(20);
const WARMUP_MORE: Duration = Duration::from_secs(2);

/// Time that hosts' start and the end of a trial take, s.
const TRIAL_S: f64 = 1.5;

/// The settings of one arm, checked.
#[derive(Clone, Debug)]
pub(super) struct VisitorSettings {
    pub(super) ends: Ends,
    pub(super) compress: bool,
    pub(super) rate_per_s: f64,
    pub(super) pages_mean: f64,
    pub(super) think: Duration,
    pub(super) peaks: Option<Peaks>,
    pub(super) leave: Option<Duration>,
    pub(super) warmup: Duration,
    pub(super) duration: Duration,
    pub(super) timeout: Duration,
    pub(super) connections_per_origin: u32,
}

/// Where the server is.
#[derive(Clone, Debug)]
pub(super) enum Ends {
    Lab(Box<Lab>),
    Target(Box<Theirs>),
}

/// The lab, its server, and what is served.
#[derive(Clone, Debug)]
pub(super) struct Lab {
    pub(super) spec: LabSpec,
    pub(super) kind: ServerKind,
    pub(super) kept: ReuseLimits,
    /// How long the server keeps an idle connection. None: it keeps none.
    pub(super) kept_for: Option<Duration>,
    pub(super) limits: ServerLimits,
    /// What the server's processes may have together.
    pub(super) memory_bytes: Option<u64>,
    pub(super) content: Content,
}

/// A server that already runs.
#[derive(Clone, Debug)]
pub(super) struct Theirs {
    pub(super) url: Url,
    pub(super) target: Target,
    /// A command that is run before each trial.
    pub(super) before: Option<String>,
    pub(super) ca: Option<String>,
    pub(super) insecure: bool,
}

impl VisitorSettings {
    /// Checks the settings of one arm, without looking at files.
    pub(super) fn from(settings: &Settings) -> Result<Self, TrialError> {
        let reader = SettingsReader::new(&SPEC, settings)?;
        let keepalive_timeout = reader.typed_read("keepalive-timeout", time_above_zero)?;
        let ends = match reader.typed("url") {
            Some(typed) => Ends::Target(Box::new(Theirs::from(&reader, &typed)?)),
            None => Ends::Lab(Box::new(Lab::from(&reader)?)),
        };
        let held = keepalive_timeout.unwrap_or_default() + WARMUP_MORE;
        let settings = Self {
            ends,
            compress: reader.flag("compress")?,
            rate_per_s: reader.read("rate", at_least(1e-3))?,
            pages_mean: reader.read("pages", at_least(1.0))?,
            think: reader.time("think")?,
            peaks: peaks(&reader)?,
            leave: reader.typed_time("leave-after")?,
            warmup: reader.typed_time("warmup")?.unwrap_or(held.clamp(WARMUP_MIN, WARMUP_MAX)),
            duration: reader.read("duration", time_above_zero)?,
            timeout: reader.read("timeout", time_above_zero)?,
            connections_per_origin: reader.count("connections-per-origin", 1, 256)? as u32,
        };
        let visitors = settings.visitors_about();
        if visitors > VISITORS_MAX {
            let why = format!(
                "about {visitors:.0} visitors would come in a trial, more than the limit of \
                 {VISITORS_MAX:.0}: lower --rate or --duration"
            );
            return Err(wrong("rate", &reader.value("rate")?, why));
        }
        Ok(settings)
    }

    /// Who comes, for a seed.
    pub(super) fn visitors(&self, seed: u64) -> Visitors {
        Visitors {
            rate_per_s: self.rate_per_s,
            pages_mean: self.pages_mean,
            think_mean_ns: ns(self.think),
            peaks: self.peaks,
            duration_ns: ns(self.warmup + self.duration),
            seed,
        }
    }

    pub(super) fn visitors_about(&self) -> f64 {
        let share = self.peaks.map_or(0.0, |peaks| {
            peaks.for_ns as f64 / peaks.every_ns as f64 * (peaks.factor - 1.0)
        });
        self.rate_per_s * (1.0 + share) * (self.warmup + self.duration).as_secs_f64()
    }

    pub(super) fn manner(&self) -> Manner {
        Manner { tls: false, http2: false, compress: self.compress }
    }

    /// The lab, if the server is in it.
    pub(super) fn lab(&self) -> Option<&Lab> {
        match &self.ends {
            Ends::Lab(lab) => Some(lab),
            Ends::Target(_) => None,
        }
    }

    /// Reads the HAR file, and checks the folder.
    pub(super) fn read_files(&mut self, files: &mut Shared) -> Result<(), TrialError> {
        let Ends::Lab(lab) = &mut self.ends else { return Ok(()) };
        lab.content.read_files(files)
    }

    /// Expected time of a trial, s.
    pub(super) fn expected_s(&self) -> f64 {
        TRIAL_S + (self.warmup + self.duration).as_secs_f64()
    }
}

impl Lab {
    fn from(reader: &SettingsReader<'_>) -> Result<Self, TrialError> {
        let server = reader.value("server")?;
        let kind = ServerKind::named(&server)
            .filter(|kind| !matches!(kind, ServerKind::Puma | ServerKind::Null))
            .ok_or_else(|| {
                wrong("server", &server, "write apache, apache-worker, apache-prefork or nginx")
            })?;
        let kept = ReuseLimits::from(reader)?;
        // All of Apache's modules have the same timeout.
        let own =
            Duration::from_millis(Server::named(&server).unwrap_or_default().own_timeout_ms());
        let prefork = kind == ServerKind::ApachePrefork;
        let php_in_worker = match reader.typed("php").as_deref() {
            None => prefork,
            Some("fpm") => false,
            Some("worker") if prefork => true,
            Some("worker") => {
                let why = "PHP in the web server's workers needs --server apache-prefork";
                return Err(wrong("php", "worker", why));
            }
            Some(other) => return Err(wrong("php", other, "write worker or fpm")),
        };
        let worker_bytes = reader.read("worker-memory", parse_size)?;
        if worker_bytes > 0 && !php_in_worker {
            let typed = reader.value("worker-memory")?;
            let why = "only --php worker runs PHP in a worker: leave it out";
            return Err(wrong("worker-memory", &typed, why));
        }
        Ok(Self {
            spec: LabSpec::from(reader)?,
            kind,
            kept_for: kept.keeps().then(|| kept.timeout.unwrap_or(own)),
            kept,
            limits: ServerLimits {
                workers: reader.count("max-workers", 1, WORKERS_MAX)?,
                php_in_worker,
                worker_bytes,
                memory: None,
            },
            memory_bytes: reader.typed_read("memory", memory)?,
            content: Content::from(reader)?,
        })
    }
}

impl Theirs {
    fn from(reader: &SettingsReader<'_>, typed: &str) -> Result<Self, TrialError> {
        let url = Url::typed(typed).map_err(|error| wrong("url", typed, error))?;
        for key in ["ca", "insecure"] {
            if let (false, Some(typed)) = (url.tls, reader.typed(key)) {
                return Err(wrong(key, &typed, "it has no effect without TLS: leave it out"));
            }
        }
        Ok(Self {
            target: Target::of_url(&url, typed),
            url,
            before: reader.typed("before"),
            ca: reader.typed("ca"),
            insecure: reader.flag("insecure")?,
        })
    }
}

/// Apache alone with its modules takes some 10 MB.
fn memory(typed: &str) -> Result<u64, String> {
    const MIN: u64 = 32 << 20;
    let bytes = parse_size(typed).map_err(|error| error.to_string())?;
    let plain = typed.bytes().all(|byte| byte.is_ascii_digit());
    let unit = if plain { format!("; {typed} is in bytes: write {typed}M") } else { String::new() };
    let refusal = || format!("no server starts with less than 32M{unit}");
    (bytes >= MIN).then_some(bytes).ok_or_else(refusal)
}

fn at_least(least: f64) -> impl Fn(&str) -> Result<f64, String> {
    move |typed| {
        let number = number(typed).filter(|number| *number >= least);
        number.ok_or_else(|| format!("write a number from {least}"))
    }
}

fn peaks(reader: &SettingsReader<'_>) -> Result<Option<Peaks>, TrialError> {
    let factor = reader.read("peak-factor", at_least(1.0))?;
    if factor <= 1.0 {
        return Ok(None);
    }
    let [every, long] = [reader.time("peak-every")?, reader.time("peak-for")?];
    if long.is_zero() || long >= every {
        let typed = reader.value("peak-for")?;
        return Err(wrong("peak-for", &typed, "it must be above 0 and shorter than --peak-every"));
    }
    Ok(Some(Peaks { factor, every_ns: ns(every), for_ns: ns(long) }))
}

/// Heading of the server's settings.
const SERVER: &str = "Server";
/// Heading of who comes.
const VISITORS: &str = "Visitors";

/// Every option, as the help shows them.
pub(super) const OPTIONS: &[&Opt] = &[
    &Opt::arguments(
        "url",
        "URL",
        "Page of a running server to load instead of the lab's. Load only your own servers",
    ),
    &Opt::setting(
        "before",
        "COMMAND",
        "Shell command to run on this machine before each trial, e.g. to switch the configuration \
         of the server at the URL",
    )
    .only(&[Only::Target]),
    &LINK.by_default("rtt=15ms"),
    &Opt::each(
        PLACE,
        "server",
        "NAME",
        "Server to start in the lab: apache (apache-event, apache-worker, apache-prefork) or nginx",
    )
    .by_default("apache-prefork")
    .only(&[Only::Lab]),
    &IPV6,
    &PACKET_RELAY,
    &CLIENT_SYSCTL,
    &SERVER_SYSCTL,
    &RESOURCES,
    &RESOURCE_KIND,
    &RESOURCE_SIZE,
    &PAGE_SIZE,
    &WORK.by_default("20ms"),
    &SHARDS,
    &SITE,
    &PATH,
    &HAR,
    &COMPRESS,
    &Opt::each(SERVER, "keepalive", "on,off", "HTTP keep-alive: several requests per connection")
        .by_default("on")
        .only(&[Only::Lab]),
    &Opt::each(
        SERVER,
        "keepalive-timeout",
        "TIME",
        "Idle time after which the server closes a connection, e.g. 5s",
    )
    .derived(
        "15s, 5s, 2s and off, one arm each; server default with --rate, --server or another option \
         of the server",
    )
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
        "max-workers",
        "N",
        "Maximum number of workers (MaxRequestWorkers of Apache). For nginx, of connections of all \
         its processes",
    )
    .number()
    .by_default("150")
    .only(&[Only::Lab]),
    &Opt::each(
        SERVER,
        "php",
        "worker,fpm",
        "Where PHP runs: in the workers of apache-prefork (worker, mod_php) or in PHP-FPM (fpm)",
    )
    .derived("worker with apache-prefork, otherwise fpm")
    .only(&[Only::Lab]),
    &Opt::each(
        SERVER,
        "worker-memory",
        "SIZE",
        "Additional memory that each worker uses after it has run PHP, e.g. 20M",
    )
    .by_default("0")
    .only(&[Only::Lab]),
    &Opt::each(
        SERVER,
        "memory",
        "SIZE",
        "Memory limit for all processes of the server together, e.g. 512M. Beyond it the kernel \
         kills one of them",
    )
    .derived("memory of the machine")
    .only(&[Only::Lab]),
    &Opt::each(
        VISITORS,
        "rate",
        "PER_SECOND",
        "New visitors per second, at random times (Poisson)",
    )
    .number()
    .by_default("2"),
    &Opt::each(VISITORS, "pages", "N", "Mean number of pages per visitor").number().by_default("3"),
    &Opt::each(VISITORS, "think", "TIME", "Mean think time between two pages").by_default("5s"),
    &Opt::each(
        VISITORS,
        "leave-after",
        "TIME",
        "Close a visitor's connections TIME after the last page, as closing the tab does",
    )
    .derived("never: the server closes them"),
    &Opt::each(VISITORS, "peak-factor", "N", "Factor by which --rate is higher during peaks")
        .number()
        .by_default("1"),
    &Opt::one(VISITORS, "peak-every", "TIME", "Time from the end of one peak to that of the next")
        .by_default("10s"),
    &Opt::one(VISITORS, "peak-for", "TIME", "Length of each peak").by_default("2s"),
    &Opt::one(LOAD, "duration", "TIME", "Length of the measured window, after the warm-up")
        .by_default("15s"),
    &Opt::one(
        LOAD,
        "warmup",
        "TIME",
        "Time during which visitors arrive before the measured window. Make it longer than \
         --keepalive-timeout and than the server needs to start its workers",
    )
    .derived("--keepalive-timeout plus 2s, at least 8s and at most 20s"),
    &Opt::each(LOAD, "connections-per-origin", "N", "Maximum number of connections per visitor")
        .number()
        .by_default("6"),
    &Opt::one(LOAD, "timeout", "TIME", "Timeout of one page").by_default("30s"),
    &Opt::one(LOAD, "ca", "FILE", "File of additional root certificates (PEM)")
        .only(&[Only::Target]),
    &Opt::flag(LOAD, "insecure", "Do not verify the server's certificate").only(&[Only::Target]),
];

/// Options of which several values ask another question than the default arms.
const CHOSEN: [&str; 9] = [
    "keepalive",
    "keepalive-requests",
    "keepalive-timeout",
    "max-workers",
    "memory",
    "php",
    "rate",
    "server",
    "url",
];

/// The arms of a run without a choice, each with what it changes. 15 s was the default of Apache up to 2.2.
const SWEEP: [(&str, &[(&str, &str)]); 4] = [
    ("timeout of 15 s", &[("keepalive-timeout", "15s")]),
    ("timeout of 5 s", &[("keepalive-timeout", "5s")]),
    ("timeout of 2 s", &[("keepalive-timeout", "2s")]),
    ("KeepAlive off", &[("keepalive", "off")]),
];

/// Several servers are compared. Without a choice, one round over what the timeout holds.
pub(super) fn complete(study: &mut Study) {
    an_arm_each(study, "url");
    // Visitors whom the server turns away are part of the question.
    study.failures.get_or_insert_with(|| "expected".to_owned());
    if !is_chosen(study, &CHOSEN) && study.factors.is_empty() {
        run_once(study, &SWEEP);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn completed(settings: &[(&str, &str)]) -> Study {
        let mut study = Study {
            question: "What?".to_owned(),
            experiment: crate::pages::visitors::SPEC.name.to_owned(),
            ..Study::default()
        };
        for (name, value) in settings {
            study.settings.insert((*name).to_owned(), Value::from(*value));
        }
        complete(&mut study);
        study
    }

    #[test]
    fn without_a_choice_four_timeouts_run_once_each() {
        let study = completed(&[("pages", "2")]);
        assert_eq!(study.named_arms.len(), SWEEP.len());
        assert_eq!(study.rounds.fixed, Some(1));
        assert_eq!(study.failures.as_deref(), Some("expected"));
    }

    #[test]
    fn arms_of_a_study_are_not_replaced() {
        let mut study = Study::default();
        run_once(&mut study, &[("mine", &[("keepalive-timeout", "3s")])]);
        complete(&mut study);
        assert_eq!(study.named_arms.len(), 1);
    }

    #[test]
    fn a_choice_is_the_only_arm() {
        assert!(completed(&[("keepalive-timeout", "3s")]).named_arms.is_empty());
        assert!(completed(&[("server", "nginx")]).named_arms.is_empty());
    }
}
