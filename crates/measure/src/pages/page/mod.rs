//! How long does a page take to load, and how much of it are connections?

mod findings;
mod pictures;
mod settings;
pub(crate) mod sheet;
mod trial;
mod waterfall;

use tcptoll_core::experiment::brief::{self, Brief, Group};
use tcptoll_core::experiment::figures::{
    CLIENT_CPU, FIRST_BYTE_MEAN, RTT, SERVER_CPU, histogram, metric,
};
use tcptoll_core::experiment::spec::{Better, HistogramSpec, MetricSpec, Noun, Phrase, Spec};
use tcptoll_core::record::Resolved;
use tcptoll_core::study::{PlannedArm, Settings};
use tcptoll_lab::files::Shared;

use self::settings::{Ends, PageSettings};
use self::trial::PageTrial;
use crate::kit::TrialError;
use crate::kit::plan::{Context, Experiment, Outcome, Plan, PublicLoad};
use crate::kit::target::Target;

/// From the navigation to the end of the last response that blocks rendering, mean of the loads.
const BLOCKING: MetricSpec =
    metric("blocking_us_mean", "us", "time to the last blocking resource", Better::Lower);
/// Connections opened for one load, mean.
pub(crate) const CONNECTIONS: MetricSpec =
    metric("connections_opened", "connections", "connections opened", Better::Lower);
/// Time of TCP handshakes on the critical path of the median load.
const CRITICAL_HANDSHAKE: MetricSpec =
    metric("critical_handshake_us", "us", "TCP handshakes on the critical path", Better::Lower);
/// TCP handshakes on the critical path of the median load.
const CRITICAL_HANDSHAKES: MetricSpec =
    metric("critical_handshakes", "handshakes", "handshakes on the critical path", Better::Lower);
/// From the navigation to the end of the last response, mean of the loads.
const EVERYTHING: MetricSpec =
    metric("everything_us_mean", "us", "time to the last resource", Better::Lower);
/// Measured span over the forecast's.
const FORECAST_RATIO: MetricSpec =
    metric("forecast_ratio", "", "measured over forecast", Better::Neither);
/// The span that the model of rounds, slow start and server time expects.
const FORECAST: MetricSpec = metric("forecast_us", "us", "forecast span", Better::Neither);
/// Time during which data that had arrived waited for an earlier segment, per load.
const HELD: MetricSpec =
    metric("head_of_line_us", "us", "head-of-line blocking time", Better::Lower);
/// Gaps behind which data waited, per load.
const GAPS: MetricSpec =
    metric("head_of_line_gaps", "gaps", "gaps that blocked later data", Better::Lower);
/// A browser's load event, mean of the loads.
const LOAD_EVENT: MetricSpec =
    metric("load_event_us_mean", "us", "time to the load event", Better::Lower);
/// Connections opened for the second page, mean.
const NEXT_CONNECTIONS: MetricSpec = metric(
    "next_page_connections",
    "connections",
    "connections opened for the next page",
    Better::Lower,
);
/// From the second navigation to the end of its last response, mean.
const NEXT_PAGE: MetricSpec =
    metric("next_page_us_mean", "us", "time of the next page", Better::Lower);
/// Requests of one load, mean.
pub(crate) const REQUESTS: MetricSpec = metric("requests", "requests", "requests", Better::Neither);
/// Segments that either end retransmitted, per load.
const RETRANSMISSIONS: MetricSpec =
    metric("retransmissions", "segments", "retransmissions", Better::Lower);
/// The span, mean of the loads.
const SPAN_MEAN: MetricSpec = metric("span_us_mean", "us", "mean network span", Better::Lower);
/// From the first SYN to the last byte of the page.
const SPAN: HistogramSpec = histogram("span_us", "network span", Better::Lower);

/// Examples and explanations in the help.
const EXAMPLES: &str = "\
Examples:
  tcptoll page
      a page of 21 files from Apache in the lab, with KeepAlive on and off
  tcptoll page --link rtt=100ms --connections-per-origin 6,8
      the same over a longer path, with two limits of connections per origin
  tcptoll page --browser off,on
      the same page, loaded by tcptoll and by headless Chromium
  tcptoll page --tls on --protocol http/1.1,h2
      six connections with HTTP/1.1, or one with HTTP/2
  tcptoll page --keepalive on --next-page-after 1s,6s --keepalive-timeout 5s
      the second page of a visitor, before and after the server's keep-alive timeout
  tcptoll page --site /usr/share/doc/mkdocs/html
      your own files, served by Apache in the lab
  tcptoll page --har page.har
      the resources of a page that a browser recorded
  tcptoll page http://127.0.0.1:8080/
      a page of a running server

An option with several values makes one arm (variant) per value. The other arms are compared with
the first. tcptoll runs no scripts, so resources that scripts request are not loaded.";

/// What `-h` shows.
const BRIEF: Brief = Brief {
    group: Group::Load,
    line: "a page as a browser loads it; HTTP/1.1 or HTTP/2",
    options: &[
        ("url", "a page of yours; several are compared; none: the lab"),
        ("site", "serve your own files in the lab"),
        ("har", "load what a browser recorded, from the lab"),
        brief::LINK,
        ("protocol", "http/1.1, http/1.1-pipelined or h2"),
        ("tls", "TLS to the server of the lab"),
        ("keepalive", "HTTP keep-alive of the server of the lab"),
        ("browser", "on: load it in headless Chromium"),
        brief::HTML,
        brief::FAIL_IF,
    ],
    examples: &[
        ("page http://127.0.0.1:8080/", "a page of a running server"),
        ("page --site FOLDER --link rtt=100ms", "your files over a long path"),
        ("page --tls on --protocol http/1.1,h2", "is HTTP/2 worth it?"),
    ],
};

pub(crate) const SPEC: Spec = Spec {
    name: "page",
    question: "How long does a page take to load, and how much of that is due to connections?",
    about: "Load a page as a browser does, and show where each millisecond goes",
    examples: EXAMPLES,
    brief: BRIEF,
    options: settings::OPTIONS,
    target: Some("url"),
    complete: settings::complete,
    compares: |_| true,
    metrics: &[
        &BLOCKING,
        &CLIENT_CPU,
        &CONNECTIONS,
        &CRITICAL_HANDSHAKE,
        &CRITICAL_HANDSHAKES,
        &EVERYTHING,
        &FIRST_BYTE_MEAN,
        &FORECAST_RATIO,
        &FORECAST,
        &GAPS,
        &HELD,
        &LOAD_EVENT,
        &NEXT_CONNECTIONS,
        &NEXT_PAGE,
        &REQUESTS,
        &RETRANSMISSIONS,
        &SERVER_CPU,
        &SPAN_MEAN,
    ],
    histograms: &[&RTT, &SPAN],
    primary: SPAN_MEAN.name,
    phrases: &[
        Phrase::figures(SPAN_MEAN.name, "The page loads in {} on average"),
        Phrase::figures(NEXT_PAGE.name, "The next page loads in {} on average"),
    ],
    answers: &[SPAN.name],
    // Nobody sees a page that is 2 % faster.
    margin: 0.02,
    operation: Noun { one: "load", many: "loads", short: "load" },
    tables: sheet::TABLES,
    causes: findings::ALL,
    conclude: findings::conclude,
};

pub(crate) struct Page;

impl Experiment for Page {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn plan(&self, settings: &Settings) -> Result<Box<dyn Plan>, TrialError> {
        Ok(Box::new(PageSettings::from(settings)?))
    }
}

impl Plan for PageSettings {
    fn target(&self) -> Option<&Target> {
        match &self.ends {
            Ends::Lab(_) => None,
            Ends::Target(_, target) => Some(target),
        }
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

    fn public_load(&self) -> Option<PublicLoad> {
        let target = Plan::target(self).filter(|target| target.is_public())?;
        let loads = self.loads + 1;
        Some(PublicLoad {
            target: target.typed.clone(),
            size: loads as f64,
            load: format!("its page will be loaded {loads} times in each trial"),
            options: "--loads and --rounds set other figures",
        })
    }

    fn trial(&self, arm: &PlannedArm, context: &mut Context<'_>) -> Result<Outcome, TrialError> {
        PageTrial::outcome(arm, self, context)
    }
}
