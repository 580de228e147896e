//! `--listen`: the newest state for Prometheus, over HTTP.
//!
//! The socket is bound before the watch joins another network namespace, so `--netns` is watched and the
//! machine's own namespace is listened in. Clients are served by threads that never touch the reader: they
//! take the page of the newest state, which is made when it is first asked for.
//!
//! A page is served while it is new: no look for three intervals (5 s at least) is answered with 503, so
//! that a scrape fails (`up` is 0) and Prometheus marks the series as stale. Values of a look that is past
//! are not repeated as if they were measured now.

mod request;
mod server;

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tcptoll_live::metrics::{Metrics, MetricsFormat};
use tcptoll_live::watch::{State, WatchSummary};

use self::request::Hosts;
use self::server::{BOUNDS, Pages, serve};
use super::Sink;
use crate::exit::say;

/// A look may be missing for this many intervals.
const MISSED_INTERVALS: u32 = 3;
/// And for this time: a busy machine delays short intervals.
const MISSED_MIN: Duration = Duration::from_secs(5);

/// A socket that scrapers can connect to. Nobody is served yet.
pub(super) struct Bound {
    listener: TcpListener,
    at: SocketAddr,
    hosts: Hosts,
}

impl Bound {
    /// Binds in the namespace that the caller is in. No thread is started.
    pub(super) fn new(listen: &str, allow_hosts: &[String]) -> anyhow::Result<Self> {
        let Ok(wanted) = listen.parse::<SocketAddr>() else {
            bail!(
                "--listen {listen}: this is not a numeric address with a port. Write one like 127.0.0.1:9464 or \
                 [::1]:9464"
            )
        };
        let hosts = match Hosts::new(allow_hosts) {
            Ok(hosts) => hosts,
            Err(name) => {
                bail!(
                    "--allow-host {name}: write a host name or an address, without scheme and port"
                )
            }
        };
        let listener = TcpListener::bind(wanted).map_err(|error| not_bound(wanted, &error))?;
        let at = listener.local_addr().context("reading the address of the metrics")?;
        Ok(Self { listener, at, hosts })
    }

    /// Starts to serve, and says where.
    pub(super) fn serve(self, interval: Duration) -> anyhow::Result<Endpoint> {
        let at = self.at;
        if !at.ip().to_canonical().is_loopback() {
            say(&format!(
                "warning: --listen {at} is not a loopback address. Everyone who reaches it can read which \
                 listeners and destinations this machine has."
            ));
        }
        let endpoint = Endpoint { page: Arc::new(MetricsPage::new(interval)) };
        let page = Arc::clone(&endpoint.page);
        let pages: Arc<Pages> = Arc::new(move |format| page.get(format, Instant::now()));
        thread::Builder::new()
            .name("metrics".into())
            .spawn(move || serve(&self.listener, &self.hosts, BOUNDS, &pages))
            .context("starting the thread that serves the metrics")?;
        say(&format!("metrics http://{at}/metrics"));
        Ok(endpoint)
    }
}

/// Why an address cannot be listened on, and what to do.
fn not_bound(at: SocketAddr, error: &std::io::Error) -> anyhow::Error {
    let port = at.port();
    let why = match error.kind() {
        ErrorKind::AddrInUse => format!(
            "another program listens on this port. Choose another port, or end that program: \
             `ss -ltnp 'sport = :{port}'` names it"
        ),
        ErrorKind::AddrNotAvailable => {
            "this machine does not have this address. `ip address` lists those that it has; 127.0.0.1 is local"
                .to_owned()
        }
        ErrorKind::PermissionDenied if port < 1_024 => {
            "a port below 1024 needs CAP_NET_BIND_SERVICE. Choose a port from 1024 on".to_owned()
        }
        _ => format!("this address cannot be listened on: {error}"),
    };
    anyhow::anyhow!("--listen {at}: {why}")
}

/// Takes states, for the page.
pub(super) struct Endpoint {
    page: Arc<MetricsPage>,
}

impl Sink for Endpoint {
    fn state(&mut self, state: &State) -> anyhow::Result<()> {
        let time: jiff::Timestamp = state.time.parse().context("reading the time of a look")?;
        self.page.take(state, time.as_nanosecond() as f64 / 1e9, Instant::now());
        Ok(())
    }

    fn failed(&mut self) {
        let mut made = self.page.made();
        made.metrics.failed();
        made.texts = [None, None];
    }

    fn end(&mut self, _: &WatchSummary) -> anyhow::Result<()> {
        Ok(())
    }
}

/// The page of the newest state.
struct MetricsPage {
    stale_after: Duration,
    made: Mutex<Made>,
}

struct Made {
    metrics: Metrics,
    looked: Option<Instant>,
    /// As `OpenMetrics` and as text, once somebody asked for it.
    texts: [Option<Arc<str>>; 2],
}

impl MetricsPage {
    fn new(interval: Duration) -> Self {
        let metrics = Metrics::new(env!("CARGO_PKG_VERSION"), interval.as_secs_f64());
        let stale_after = interval.saturating_mul(MISSED_INTERVALS).max(MISSED_MIN);
        Self { stale_after, made: Mutex::new(Made { metrics, looked: None, texts: [None, None] }) }
    }

    fn made(&self) -> MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, state: &State, unix_s: f64, now: Instant) {
        let mut made = self.made();
        made.metrics.take(state, unix_s);
        made.looked = Some(now);
        made.texts = [None, None];
    }

    fn get(&self, format: MetricsFormat, now: Instant) -> Result<Arc<str>, String> {
        let mut made = self.made();
        let Some(age) = made.looked.map(|looked| now.saturating_duration_since(looked)) else {
            return Err("The first look has not been taken yet.".to_owned());
        };
        if age > self.stale_after {
            return Err(format!(
                "The last look was {:.1} s ago, and none succeeded since: see the messages of tcptoll watch.",
                age.as_secs_f64()
            ));
        }
        let number = usize::from(format == MetricsFormat::Classic);
        if made.texts[number].is_none() {
            made.texts[number] = made.metrics.page(format).map(Arc::from);
        }
        made.texts[number].clone().ok_or_else(|| "There is no state yet.".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_served_while_it_is_new_and_made_once() {
        let page = MetricsPage::new(Duration::from_secs(2));
        let now = Instant::now();
        for format in [MetricsFormat::OpenMetrics, MetricsFormat::Classic] {
            assert!(page.get(format, now).unwrap_err().contains("first look"));
        }
        page.take(&State::default(), 1.0, now);
        let first = page.get(MetricsFormat::Classic, now + Duration::from_secs(6)).unwrap();
        let second = page.get(MetricsFormat::Classic, now).unwrap();
        assert!(Arc::ptr_eq(&first, &second));
        assert!(page.get(MetricsFormat::OpenMetrics, now).unwrap().ends_with("# EOF\n"));
        let late = now + Duration::from_millis(6_001);
        let why = page.get(MetricsFormat::Classic, late).unwrap_err();
        assert!(why.starts_with("The last look was 6.0 s ago"), "{why}");
        page.take(&State::default(), 7.0, late);
        let third = page.get(MetricsFormat::Classic, late).unwrap();
        assert!(third.contains("\ntcptoll_watch_looks_total 2\n"), "{third}");
    }

    #[test]
    fn short_intervals_may_be_missed_for_five_seconds() {
        assert_eq!(
            MetricsPage::new(Duration::from_millis(100)).stale_after,
            Duration::from_secs(5)
        );
        assert_eq!(MetricsPage::new(Duration::from_mins(1)).stale_after, Duration::from_mins(3));
    }
}
