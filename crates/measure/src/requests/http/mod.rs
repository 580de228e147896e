//! What does it cost to reuse a connection, or not, and who pays?
//!
//! A study with a URL in each arm could already measure several servers, so a command line with several becomes
//! that study, here and not where trials are run. URLs of one server stay one arm and are requested in turn.

mod closing;
mod findings;
mod forecast;
mod observation;
mod requests;
mod settings;
pub(crate) mod sheet;
mod trial;

use crate::kit::TrialError;
use crate::kit::plan::{Context, Experiment, Outcome, Plan, PublicLoad, SplitPlan};
use crate::kit::target::{PUBLIC_RATE_PER_S, Target};
use requests::Ends;
use serde_json::Value;
use settings::HttpSettings;
use tcptoll_core::experiment::brief::{self, Brief, Group};
use tcptoll_core::experiment::figures::{
    ACCEPT_QUEUE_PEAK, CLIENT_CPU, CLIENT_FIN_WAIT_2, CLIENT_SEGMENTS, CLIENT_TIME_WAIT, CONNECT,
    CONNECT_MEAN, CONNECTIONS_RATE, FIRST_BYTE, FIRST_BYTE_MEAN, GOODPUT, LATENCY, LATENCY_MEAN,
    LATENESS, RATE_RESOLUTION, RTT, SERVER_CPU, SERVER_FIN_WAIT_2, SERVER_SEGMENTS,
    SERVER_TIME_WAIT, histogram, metric,
};
use tcptoll_core::experiment::spec::{Better, HistogramSpec, MetricSpec, Noun, Phrase, Spec};
use tcptoll_core::http::url::Url;
use tcptoll_core::record::Resolved;
use tcptoll_core::study::{Compare, NamedArm, PlannedArm, Settings, Study, level_text};
use tcptoll_lab::files::Shared;
use trial::HttpTrial;

/// Open loop: requests that completed, per second.
const ACHIEVED: MetricSpec =
    metric("achieved_per_s", "1/s", "achieved requests per second", Better::Higher);
/// Memory of the client's program for each open connection.
const CLIENT_MEMORY: MetricSpec =
    metric("client_bytes_per_connection", "bytes", "client bytes per connection", Better::Lower);
/// Mean number of concurrent requests.
const IN_FLIGHT: MetricSpec =
    metric("in_flight_mean", "requests", "mean number in flight", Better::Neither);
/// Open loop: requests that were due, per second.
const INTENDED: MetricSpec =
    metric("intended_per_s", "1/s", "intended requests per second", Better::Neither);
/// Kernel memory of the sockets of an open connection.
const KERNEL_MEMORY: MetricSpec =
    metric("kernel_bytes_per_connection", "bytes", "kernel bytes per connection", Better::Lower);
/// Requests that a connection carried, as counted.
const PER_CONNECTION: MetricSpec =
    metric("requests_per_connection", "requests", "requests per connection", Better::Neither);
/// Requests that succeeded per second within the window.
const RATE: MetricSpec = metric("requests_per_s", "1/s", "requests per second", Better::Higher);
/// Share of the TLS handshakes that resumed a session.
const TLS_RESUMED: MetricSpec =
    metric("tls_resumed_share", "share", "share of resumed TLS handshakes", Better::Neither);
/// Open loop: requests due and unanswered when the window ended.
const UNSERVED: MetricSpec =
    metric("unserved_at_end", "requests", "requests unanswered at the end", Better::Lower);
/// From a response to the server's close of the idle connection.
const IDLE_CLOSE: HistogramSpec =
    histogram("idle_close_us", "idle time until the server closed", Better::Neither);
const TLS: HistogramSpec = histogram("tls_us", "TLS handshake", Better::Lower);

/// Examples and explanations in the help.
const EXAMPLES: &str = "\
Examples:
  tcptoll http
      nginx in the lab, with two concurrent keep-alive connections
  tcptoll http --reuse keep-alive,server-close,client-close http://127.0.0.1:8080/
      compare three ways of using connections with your own server
  tcptoll http --server nginx,puma --reuse keep-alive,server-close --link direct,same-room
      two servers, two ways and two links: all eight combinations are compared
  tcptoll http --rate 2000 --spread poisson --duration 10s
      open loop: 2,000 requests per second at random times
  tcptoll http --server puma --reuse requests=1,requests=10,lifetime=1s --work 5ms
      how many requests per connection are enough if an answer takes 5 ms?
  tcptoll http --tls full,resumed --reuse server-close
      the cost of a full and of a resumed TLS handshake per connection
  tcptoll http --access-log access.log --connections 10 https://staging.example/
      replay the requests of an access log
  tcptoll http --server 'python3 -m http.server 8000' --path /LICENSE
      measure any server that a command starts

An option with several values (--connections 10,100) makes one arm (variant) per value. The other
arms are compared with the first.

Ways of using connections (--reuse):
  keep-alive          reuse the connection until the server closes it
  requests=N          the client closes after N requests
  lifetime=TIME       the client closes after the first response past TIME
  server-close        send `Connection: close`; the server closes after the response
  client-close        the client closes after the response, without announcing it
  http1.0             HTTP/1.0; the server closes after the response
  http1.0-keep-alive  HTTP/1.0 with `Connection: keep-alive`
  idle=TIME           like keep-alive, with a pause of TIME before the next request";

/// What `-h` shows.
const BRIEF: Brief = Brief {
    group: Group::Load,
    line: "requests per second, latency, reuse of connections",
    options: &[
        ("url", "a server of yours; two are compared; none: the lab"),
        ("connections", "connections at a time"),
        ("duration", "start requests for this time, e.g. 10s"),
        ("requests", "send N requests, instead of -d"),
        ("rate", "requests per second (open loop)"),
        ("reuse", "keep-alive, server-close, client-close, idle=3s"),
        ("header", "e.g. 'Accept: text/html'"),
        ("insecure", "do not verify the certificate of https://"),
        brief::HTML,
        brief::FAIL_IF,
    ],
    examples: &[
        ("http -c 50 -d 10s http://127.0.0.1:8080/", "requests/s, latency"),
        ("http --rate 2000 -d 10s URL", "latency at 2,000/s"),
        ("http --reuse keep-alive,client-close URL", "keep, or close?"),
    ],
};

pub(crate) const SPEC: Spec = Spec {
    name: "http",
    question: "What does it cost to reuse a connection, or not, and which side pays?",
    about: "Measure what HTTP requests cost, with and without connection reuse",
    examples: EXAMPLES,
    brief: BRIEF,
    options: settings::OPTIONS,
    target: Some("url"),
    complete,
    compares: |_| true,
    metrics: &[
        &ACCEPT_QUEUE_PEAK,
        &ACHIEVED,
        &CLIENT_MEMORY,
        &CLIENT_CPU,
        &CLIENT_FIN_WAIT_2,
        &CLIENT_SEGMENTS,
        &CLIENT_TIME_WAIT,
        &CONNECT_MEAN,
        &CONNECTIONS_RATE,
        &FIRST_BYTE_MEAN,
        &GOODPUT,
        &IN_FLIGHT,
        &INTENDED,
        &KERNEL_MEMORY,
        &LATENCY_MEAN,
        &RATE_RESOLUTION,
        &PER_CONNECTION,
        &RATE,
        &SERVER_CPU,
        &SERVER_FIN_WAIT_2,
        &SERVER_SEGMENTS,
        &SERVER_TIME_WAIT,
        &TLS_RESUMED,
        &UNSERVED,
    ],
    histograms: &[&CONNECT, &FIRST_BYTE, &IDLE_CLOSE, &LATENCY, &LATENESS, &RTT, &TLS],
    primary: RATE.name,
    phrases: &[
        Phrase::rate(RATE.name, "The rate is {}", "answers {} as many requests/s as", "requests/s"),
        Phrase::figures(LATENCY_MEAN.name, "A request takes {} on average"),
        Phrase::figures("tls_us_mean", "A TLS handshake takes {} on average"),
    ],
    answers: &[LATENCY.name, CONNECT.name, FIRST_BYTE.name],
    margin: 0.02,
    operation: Noun::REQUEST,
    tables: sheet::TABLES,
    causes: findings::ALL,
    conclude: findings::conclude,
};

pub(crate) struct Http;

impl Experiment for Http {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn plan(&self, settings: &Settings) -> Result<Box<dyn Plan>, TrialError> {
        Ok(Box::new(HttpSettings::from(settings)?))
    }
}

impl Plan for HttpSettings {
    fn target(&self) -> Option<&Target> {
        Self::target(self)
    }

    fn resolved(&mut self, resolved: &[Resolved]) {
        if let Ends::Target(_, target) = &mut self.ends {
            target.take(resolved);
        }
    }

    fn prepare(&mut self, files: &mut Shared) -> Result<(), TrialError> {
        self.read_files(files)
    }

    fn expected_s(&self) -> f64 {
        Self::expected_s(self)
    }

    fn load(&self) -> Option<String> {
        Some(self.load_in_words())
    }

    fn operations(&self) -> Option<(u64, &'static str)> {
        Some((self.load.requests?, "requests"))
    }

    fn split(&self) -> Option<SplitPlan> {
        Self::split(self)
    }

    fn public_load(&self) -> Option<PublicLoad> {
        let target = Self::target(self).filter(|target| target.is_public())?;
        let rate = self.load.rate.unwrap_or(PUBLIC_RATE_PER_S);
        Some(PublicLoad {
            target: target.typed.clone(),
            size: rate,
            load: format!("up to {rate} requests per second will be sent to it"),
            options: "--rate and --requests set other figures",
        })
    }

    fn trial(&self, arm: &PlannedArm, context: &mut Context<'_>) -> Result<Outcome, TrialError> {
        HttpTrial::outcome(arm, self, context)
    }
}

/// URLs of several servers become an arm of each, named after its server; several of one server stay
/// together and are asked for in turn.
pub(super) fn complete(study: &mut Study) {
    if study.metric.is_none() {
        study.metric = asked(study).map(str::to_owned);
    }
    let Some(typed) = study.settings.get("url").map(level_text) else { return };
    let texts: Vec<String> = typed.split_whitespace().flat_map(separated).collect();
    study.settings.insert("url".to_owned(), Value::from(texts.join(" ")));
    let mut servers: Vec<(Url, Vec<String>)> = Vec::new();
    for text in texts {
        // What is no URL is refused where settings are checked.
        let Ok(url) = Url::typed(&text) else { return };
        let same = |known: &&mut (Url, Vec<String>)| {
            (known.0.tls, &known.0.host, known.0.port) == (url.tls, &url.host, url.port)
        };
        match servers.iter_mut().find(same) {
            Some((_, texts)) => texts.push(text),
            None => servers.push((url, vec![text])),
        }
    }
    if servers.len() < 2 {
        return;
    }
    study.settings.remove("url");
    let one_scheme = servers.iter().all(|(url, _)| url.tls == servers[0].0.tls);
    let name = |url: &Url| match (one_scheme, url.tls) {
        (true, _) => url.authority(),
        (false, true) => format!("https://{}", url.authority()),
        (false, false) => format!("http://{}", url.authority()),
    };
    study.named_arms = servers
        .iter()
        .map(|(url, texts)| NamedArm {
            name: name(url),
            settings: [("url".to_owned(), Value::from(texts.join(" ")))].into(),
            ..NamedArm::default()
        })
        .collect();
    let first = Value::from(study.named_arms[0].name.as_str());
    study.compare = vec![Compare { against: Some(first), ..Compare::default() }];
}

/// The metric that the choice of options asks for, if it is not the rate.
fn asked(study: &Study) -> Option<&'static str> {
    // A rate that was set is no result.
    if !study.values("rate").is_empty() {
        return Some(LATENCY_MEAN.name);
    }
    let tls = study.factors.get("tls").filter(|_| study.factors.len() == 1)?;
    tls.iter().all(|level| level_text(level) != "off").then_some("tls_us_mean")
}

/// `http://a/,http://b/` are two URLs; a comma after the path of a URL belongs to it, unless a scheme
/// follows.
fn separated(word: &str) -> Vec<String> {
    let begins = |text: &str| {
        let lower = text.to_ascii_lowercase();
        lower.starts_with("http://") || lower.starts_with("https://")
    };
    let has_path =
        |url: &str| url.split_once("://").map_or(url, |(_, rest)| rest).contains(['/', '?']);
    let mut urls: Vec<String> = Vec::new();
    for piece in word.split(',') {
        match urls.last_mut() {
            Some(url) if has_path(url) && !begins(piece) => {
                url.push(',');
                url.push_str(piece);
            }
            _ => urls.push(piece.to_owned()),
        }
    }
    urls
}

#[cfg(test)]
mod tests;
