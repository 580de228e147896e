//! What do the waiting connections of visitors hold on a server, and how long do pages take meanwhile?

mod findings;
mod observation;
mod settings;
pub(crate) mod sheet;
mod trial;

use std::net::Ipv4Addr;

use tcptoll_core::experiment::brief::{self, Brief, Group};
use tcptoll_core::experiment::figures::{ACCEPT_QUEUE_PEAK, RTT, SERVER_CPU, histogram, metric};
use tcptoll_core::experiment::spec::{Better, HistogramSpec, MetricSpec, Noun, Phrase, Spec};
use tcptoll_core::record::Resolved;
use tcptoll_core::study::{PlannedArm, Settings};
use tcptoll_lab::files::Shared;
use tcptoll_lab::servers;

use self::settings::{Ends, VisitorSettings};
use self::trial::{PORT, VisitorTrial};
use crate::kit::TrialError;
use crate::kit::plan::{Context, Experiment, Outcome, Plan, PublicLoad};
use crate::kit::target::Target;

/// Connections opened for a page, mean.
pub(crate) const CONNECTIONS: MetricSpec =
    metric("connections_per_page", "connections", "connections per page", Better::Lower);
/// Time of first pages, mean.
const FIRST_PAGE_MEAN: MetricSpec =
    metric("first_pages_us_mean", "us", "mean time of first pages", Better::Lower);
/// Time of later pages, mean.
const NEXT_PAGE_MEAN: MetricSpec =
    metric("later_pages_us_mean", "us", "mean time of later pages", Better::Lower);
/// Time of pages, mean.
const PAGE_MEAN: MetricSpec = metric("page_us_mean", "us", "mean page time", Better::Lower);
/// Time of pages that 95 % do not exceed.
const PAGE_P95: MetricSpec = metric("page_us_p95", "us", "page time p95", Better::Lower);
/// Pages that came whole, per second.
const PAGES_RATE: MetricSpec = metric("pages_per_s", "1/s", "pages per second", Better::Higher);
/// Pages that did not come whole, of all.
const PAGES_FAILED: MetricSpec =
    metric("pages_failed_share", "share", "share of pages that failed", Better::Lower);
/// Workers that hold a connection, mean.
const WORKERS_BUSY: MetricSpec =
    metric("workers_held_mean", "workers", "workers that hold a connection", Better::Lower);
/// The largest number of these.
pub(crate) const WORKERS_BUSY_PEAK: MetricSpec =
    metric("workers_held_peak", "workers", "workers that hold a connection, peak", Better::Lower);
/// Connections that wait for another request, mean.
const WORKERS_KEPT: MetricSpec =
    metric("connections_kept_mean", "connections", "open idle connections", Better::Lower);

/// Time of pages, from when each was asked for.
pub(crate) const PAGE: HistogramSpec = histogram("page_us", "page time", Better::Lower);

/// The group of first pages.
pub(crate) const FIRST: &str = "first";
/// The group of later pages.
pub(crate) const NEXT: &str = "next";

/// Examples and explanations in the help.
const EXAMPLES: &str = "\
Examples:
  tcptoll visitors
      Apache with prefork: KeepAliveTimeout 15 s, 5 s and 2 s, and KeepAlive off
  tcptoll visitors --server apache-prefork,apache-worker,apache,nginx
      what an idle connection occupies in each server
  tcptoll visitors --max-workers 20 --keepalive-timeout 15s,1s
      too few workers for the idle connections
  tcptoll visitors --memory 512M --worker-memory 20M --max-workers 150
      more workers than fit into memory, so that the kernel kills some
  tcptoll visitors --keepalive-requests 6,120,300
      compare limits of responses per connection
  tcptoll visitors --rate 2 --peak-factor 10 --peak-every 10s --peak-for 2s
      visitors that arrive in peaks
  tcptoll visitors --rate 5 https://staging.example/
      the same visitors on your own server, measured by page time only

An option with several values makes one arm (variant) per value. The other arms are compared with
the first. A visitor opens up to six connections for a page, waits, and loads the next page over
those that are still open. After the last page the connections stay open until the server closes
them.";

/// What `-h` shows.
const BRIEF: Brief = Brief {
    group: Group::Load,
    line: "visitors with think time, and the workers that they hold",
    options: &[
        ("url", "a server of yours; without it, one in the lab"),
        ("server", "apache-prefork, apache-worker, apache, nginx"),
        ("keepalive-timeout", "idle time until the server closes; 15s,2s"),
        ("max-workers", "MaxRequestWorkers of the server"),
        ("memory", "memory of the server"),
        ("rate", "new visitors per second"),
        ("pages", "pages of a visitor, mean"),
        ("think", "time between two pages, mean"),
        brief::HTML,
        brief::FAIL_IF,
    ],
    examples: &[
        ("visitors", "workers held"),
        ("visitors --max-workers 20 --keepalive-timeout 15s,1s", "too few?"),
        ("visitors --rate 5 https://staging.example/", "your server"),
    ],
};

pub(crate) const SPEC: Spec = Spec {
    name: "visitors",
    question: "What do idle connections of visitors occupy on a server, and how long do pages take \
               meanwhile?",
    about: "Simulate visitors of a web server, and count the workers that they occupy",
    examples: EXAMPLES,
    brief: BRIEF,
    options: settings::OPTIONS,
    target: Some("url"),
    complete: settings::complete,
    compares: tcptoll_core::experiment::options::unless_each_runs_once,
    metrics: &[
        &ACCEPT_QUEUE_PEAK,
        &WORKERS_KEPT,
        &CONNECTIONS,
        &FIRST_PAGE_MEAN,
        &NEXT_PAGE_MEAN,
        &PAGE_MEAN,
        &PAGE_P95,
        &PAGES_FAILED,
        &PAGES_RATE,
        &SERVER_CPU,
        &WORKERS_BUSY,
        &WORKERS_BUSY_PEAK,
    ],
    histograms: &[&PAGE, &RTT],
    primary: PAGE_MEAN.name,
    phrases: &[Phrase::figures(PAGE_MEAN.name, "A page takes {} on average")],
    answers: &[PAGE.name],
    // Nobody sees a page that is 2 % faster.
    margin: 0.02,
    operation: Noun { one: "page", many: "pages", short: "page" },
    tables: sheet::TABLES,
    causes: findings::ALL,
    conclude: findings::conclude,
};

pub(crate) struct VisitorsOfASite;

impl Experiment for VisitorsOfASite {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn plan(&self, settings: &Settings) -> Result<Box<dyn Plan>, TrialError> {
        Ok(Box::new(VisitorSettings::from(settings)?))
    }
}

impl Plan for VisitorSettings {
    fn target(&self) -> Option<&Target> {
        match &self.ends {
            Ends::Lab(_) => None,
            Ends::Target(theirs) => Some(&theirs.target),
        }
    }

    fn resolved(&mut self, resolved: &[Resolved]) {
        if let Ends::Target(theirs) = &mut self.ends {
            theirs.target.take(resolved);
        }
    }

    fn prepare(&mut self, files: &mut Shared) -> Result<(), TrialError> {
        self.read_files(files)
    }

    fn installed(&self) -> Result<(), TrialError> {
        let Ends::Lab(lab) = &self.ends else { return Ok(()) };
        if lab.spec.remote.is_some() {
            return Ok(());
        }
        let served = lab.content.served(self.manner(), Ipv4Addr::LOCALHOST.into(), PORT)?;
        servers::site_installed(lab.kind, served.site.is_dynamic(), lab.limits.php_in_worker)
            .map_err(TrialError::Setting)
    }

    fn public_load(&self) -> Option<PublicLoad> {
        let target = Plan::target(self).filter(|target| target.is_public())?;
        let pages = (self.visitors_about() * self.pages_mean).ceil();
        Some(PublicLoad {
            target: target.typed.clone(),
            size: pages,
            load: format!("about {pages:.0} pages will be loaded from it in each trial"),
            options: "--rate, --pages and --duration set other figures",
        })
    }

    fn expected_s(&self) -> f64 {
        Self::expected_s(self)
    }

    fn trial(&self, arm: &PlannedArm, context: &mut Context<'_>) -> Result<Outcome, TrialError> {
        VisitorTrial::outcome(arm, self, context)
    }
}
