//! Loads a page once, with the connections that a browser would open.
//!
//! [`tcptoll_core::page::loader`] decides what is asked for when; this carries it out with sockets, on one
//! thread, with tokio. A page load has some dozens of requests and waits for round trips, so it need
//! not be as fast as [`super::http`]. `http1` and `http2` speak on connections.

mod http1;
mod http2;
pub mod visits;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tcptoll_core::page::loader::{Action, Config, Head, Loader, Start};
use tcptoll_core::page::resource::{ConnectionId, Graph, Origin, Protocol, RequestId};
use tcptoll_core::page::waterfall::Waterfall;
use tcptoll_kernel::cpu;
use tcptoll_kernel::epoll::readable;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{AbortHandle, LocalSet};
use tokio_rustls::TlsConnector;
use url::Url;

use super::control::stop_requested;
use super::http::tls::client_config;
use super::{LoadError, class_of};
use crate::channel::Channel;
use crate::clock::monotonic_ns;
use crate::messages::{LoadPage, PageReport, PageStart, Visit};

/// Events that are handled one after the other before anything else is looked at.
const EVENTS: usize = 256;

/// How long the parent may wait at most until its stop is noticed.
const LOOK: Duration = Duration::from_millis(50);

/// Where a load looks for a stop.
enum Stop<'a> {
    /// It has the control channel to itself.
    Channel(&'a mut Channel),
    /// Something else looks there, and notes it here.
    Noted(&'a Cell<bool>),
}

impl Stop<'_> {
    /// Whether the parent wants an end.
    fn is_wanted(&mut self) -> Result<bool, LoadError> {
        match self {
            // Asked here and not by tokio, whose way to watch a descriptor is unsafe.
            Self::Channel(channel) if readable(&**channel, Duration::ZERO)? => {
                stop_requested(channel)?;
                Ok(true)
            }
            Self::Channel(_) => Ok(false),
            Self::Noted(noted) => Ok(noted.get()),
        }
    }
}

/// What a connection is told to do.
#[derive(Debug)]
struct Wanted {
    request: RequestId,
    path: String,
    host: String,
}

/// What has happened.
#[derive(Debug)]
enum Event {
    Resolved(ConnectionId),
    Connected(ConnectionId),
    Secured(ConnectionId, bool),
    /// It could not be opened: class, and words.
    Refused(ConnectionId, &'static str, String),
    /// The peer closed it.
    Closed(ConnectionId),
    Sent(RequestId),
    First(RequestId),
    Head(RequestId, Head),
    Body(RequestId, Vec<u8>, u64),
    Ended(RequestId),
    Failed(RequestId, &'static str, String),
}

/// An event and when it happened, ns on the monotonic clock.
type Stamped = (u64, Event);

/// What all connections share.
#[derive(Debug)]
struct Shared {
    order: LoadPage,
    tls: Arc<ClientConfig>,
    events: UnboundedSender<Stamped>,
}

impl Shared {
    fn happened(&self, event: Event) {
        // Without a receiver the load has ended.
        let _ = self.events.send((monotonic_ns(), event));
    }
}

/// Loads the page, and the next one if there is one.
///
/// Errors: what was asked for cannot be done; the parent is gone.
pub fn run(order: &LoadPage, uploaded: &str, channel: &mut Channel) -> Result<Visit, LoadError> {
    let (mut visit, cpu_us) = alone(visit(order, uploaded, channel))?;
    visit.report.cpu_us = cpu_us;
    Ok(visit)
}

/// Carries a load out on this thread alone; gives its CPU time too, µs.
fn alone<T>(load: impl Future<Output = Result<T, LoadError>>) -> Result<(T, u64), LoadError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| LoadError::Refused(format!("tokio: {error}")))?;
    let cpu_ns = cpu::thread_cpu_ns();
    let done = LocalSet::new().block_on(&runtime, load)?;
    let cpu_us = cpu::thread_cpu_ns().saturating_sub(cpu_ns) / 1_000;
    // A name that is still being resolved must not hold the host up.
    runtime.shutdown_background();
    Ok((done, cpu_us))
}

async fn visit(
    order: &LoadPage,
    uploaded: &str,
    channel: &mut Channel,
) -> Result<Visit, LoadError> {
    let stop = &mut Stop::Channel(channel);
    let begin = start(order, &order.start, uploaded)?;
    let mut load = Load::new(order, &client_tls(order)?, begin)?;
    let mut pages = Vec::new();
    let mut why = load.until_done(stop).await?;
    let resources = load.loader.graph(|_| 0).resources;
    if let (None, Some(next)) = (why, &order.next) {
        why = load.wait(Duration::from_nanos(next.after_ns), stop).await?;
        if why.is_none() {
            let begin = match &next.url {
                Some(url) => start(order, &PageStart::Url(url.clone()), uploaded)?,
                None => start(order, &order.start, uploaded)?,
            };
            let now = load.now();
            pages.push(load.loader.next_page(begin, now).map_err(LoadError::Refused)?);
            why = load.until_done(stop).await?;
        }
    }
    let (waterfall, report) = load.finish(why);
    pages.push(waterfall);
    Ok(Visit { pages, resources, report })
}

/// How TLS is spoken, with the protocols that are offered.
fn client_tls(order: &LoadPage) -> Result<Arc<ClientConfig>, LoadError> {
    let mut tls = client_config(&order.tls).map_err(LoadError::Refused)?;
    tls.alpn_protocols = match order.protocol {
        Protocol::Http2 => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        Protocol::Http1 | Protocol::Pipelined => vec![b"http/1.1".to_vec()],
    };
    Ok(Arc::new(tls))
}

fn start(order: &LoadPage, from: &PageStart, uploaded: &str) -> Result<Start, LoadError> {
    match from {
        PageStart::Url(text) => {
            let url =
                Url::parse(text).map_err(|error| LoadError::Refused(format!("{text}: {error}")))?;
            Ok(Start::Url(url))
        }
        PageStart::Uploaded => {
            let graph: Graph = serde_json::from_str(uploaded)
                .map_err(|error| LoadError::Refused(format!("{:?}: {error}", order.start)))?;
            Ok(Start::Graph(graph))
        }
    }
}

/// Why a load ends before everything has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Early {
    Timeout,
    Stopped,
}

/// A connection's task: what it is told, and its end.
#[derive(Debug)]
struct Open {
    orders: UnboundedSender<Wanted>,
    task: AbortHandle,
}

struct Load {
    shared: Rc<Shared>,
    loader: Loader,
    events: UnboundedReceiver<Stamped>,
    connections: BTreeMap<ConnectionId, Open>,
    begun_ns: u64,
    report: PageReport,
}

impl Load {
    /// A load that is about to begin, now.
    fn new(order: &LoadPage, tls: &Arc<ClientConfig>, begin: Start) -> Result<Self, LoadError> {
        let (sender, events) = unbounded_channel();
        let shared = Shared { order: order.clone(), tls: Arc::clone(tls), events: sender };
        let config = Config {
            connections_per_origin: order.connections_per_origin,
            protocol: order.protocol,
            other_origins: order.other_origins,
        };
        let begun_ns = monotonic_ns();
        Ok(Self {
            shared: Rc::new(shared),
            loader: Loader::new(config, begin).map_err(LoadError::Refused)?,
            events,
            connections: BTreeMap::new(),
            begun_ns,
            report: PageReport { begun_ns, ..PageReport::default() },
        })
    }

    fn now(&self) -> u64 {
        self.since(monotonic_ns())
    }

    /// µs since the first navigation began.
    fn since(&self, at_ns: u64) -> u64 {
        at_ns.saturating_sub(self.begun_ns) / 1_000
    }

    /// Carries out what the loader wants until the page is there.
    async fn until_done(&mut self, stop: &mut Stop<'_>) -> Result<Option<Early>, LoadError> {
        let limit = self.now() + self.shared.order.timeout_ns / 1_000;
        loop {
            self.act();
            if self.loader.is_done() {
                return Ok(None);
            }
            let now = self.now();
            if now >= limit {
                return Ok(Some(Early::Timeout));
            }
            let wake = self.loader.wake_at().unwrap_or(limit).min(limit);
            let time = Duration::from_micros(wake.saturating_sub(now).max(1));
            if self.step(time, stop).await? {
                return Ok(Some(Early::Stopped));
            }
        }
    }

    /// Waits, and takes notice of what servers do to idle connections meanwhile.
    async fn wait(
        &mut self,
        time: Duration,
        stop: &mut Stop<'_>,
    ) -> Result<Option<Early>, LoadError> {
        let until = self.now() + time.as_micros() as u64;
        while self.now() < until {
            let left = Duration::from_micros(until.saturating_sub(self.now()).max(1));
            if self.step(left, stop).await? {
                return Ok(Some(Early::Stopped));
            }
        }
        Ok(None)
    }

    /// Waits until no connection is open any more, or the time is over.
    async fn until_closed(&mut self, time: Duration, stop: &mut Stop<'_>) -> Result<(), LoadError> {
        let until = self.now().saturating_add(time.as_micros().min(u64::MAX.into()) as u64);
        while !self.connections.is_empty() && self.now() < until {
            let left = Duration::from_micros(until.saturating_sub(self.now()).max(1));
            if self.step(left, stop).await? {
                break;
            }
        }
        Ok(())
    }

    /// Handles what happens within a time. True: the parent wants an end.
    async fn step(&mut self, time: Duration, stop: &mut Stop<'_>) -> Result<bool, LoadError> {
        tokio::select! {
            biased;
            event = self.events.recv() => {
                if let Some((at_ns, event)) = event {
                    self.take(at_ns, event);
                }
                for _ in 0..EVENTS {
                    let Ok((at_ns, event)) = self.events.try_recv() else { break };
                    self.take(at_ns, event);
                }
                Ok(false)
            }
            () = tokio::time::sleep(time.min(LOOK)) => stop.is_wanted(),
        }
    }

    fn take(&mut self, at_ns: u64, event: Event) {
        let now = self.since(at_ns);
        let loader = &mut self.loader;
        match event {
            Event::Resolved(connection) => loader.resolved(connection, now),
            Event::Connected(connection) => loader.connected(connection, now),
            Event::Secured(connection, http2) => loader.secured(connection, now, http2),
            Event::Refused(connection, class, words) => {
                self.note(class, words);
                self.connections.remove(&connection);
                self.loader.refused(connection, class, now);
            }
            Event::Closed(connection) => {
                self.connections.remove(&connection);
                loader.closed(connection, now);
            }
            Event::Sent(request) => loader.sent(request, now),
            Event::First(request) => loader.first_byte(request, now),
            Event::Head(request, head) => loader.head(request, &head, now),
            Event::Body(request, content, encoded) => {
                loader.body(request, &content, encoded, now);
            }
            Event::Ended(request) => loader.ended(request, now),
            Event::Failed(request, class, words) => {
                self.note(class, words);
                self.loader.failed(request, class, now);
            }
        }
    }

    fn note(&mut self, class: &'static str, words: String) {
        self.report.first_errors.entry(class.to_owned()).or_insert(words);
    }

    fn act(&mut self) {
        let now = self.now();
        for action in self.loader.actions(now) {
            match action {
                Action::Connect { connection, origin } => {
                    let (orders, receiver) = unbounded_channel();
                    let shared = Rc::clone(&self.shared);
                    let work = run_connection(connection, origin, shared, receiver);
                    let task = tokio::task::spawn_local(work).abort_handle();
                    self.connections.insert(connection, Open { orders, task });
                }
                Action::Send { connection, request, path, host, .. } => {
                    if let Some(open) = self.connections.get(&connection) {
                        // Its end is reported by the task itself.
                        let _ = open.orders.send(Wanted { request, path, host });
                    }
                }
                // The task ends, and with it the socket is closed.
                Action::Close { connection } => {
                    if let Some(open) = self.connections.remove(&connection) {
                        open.task.abort();
                    }
                }
                Action::Cancel { request } => {
                    let words = "its content is longer than the limit of a page".to_owned();
                    self.note("body-limit", words);
                    self.loader.failed(request, "body-limit", now);
                }
            }
        }
    }

    fn finish(mut self, why: Option<Early>) -> (Waterfall, PageReport) {
        for open in self.connections.values() {
            open.task.abort();
        }
        let gave_up = match why {
            None => None,
            Some(Early::Timeout) => {
                let limit = Duration::from_nanos(self.shared.order.timeout_ns);
                self.note("timeout", format!("the page was not complete after {limit:?}"));
                Some("timeout")
            }
            Some(Early::Stopped) => {
                self.report.partial = true;
                Some("unsent")
            }
        };
        self.report.repeats = self.loader.repeats();
        let now = self.now();
        let waterfall = self.loader.into_waterfall(gave_up, now);
        for request in &waterfall.requests {
            if let Some(class) = &request.error {
                *self.report.errors.entry(class.clone()).or_default() += 1;
            }
        }
        (waterfall, self.report)
    }
}

/// Opens a connection and speaks on it until it ends.
async fn run_connection(
    connection: ConnectionId,
    origin: Origin,
    shared: Rc<Shared>,
    orders: UnboundedReceiver<Wanted>,
) {
    match open(connection, &origin, &shared).await {
        Ok((stream, true)) => http2::run(connection, stream, &origin, &shared, orders).await,
        Ok((stream, false)) => http1::run(connection, stream, &shared, orders).await,
        Err((class, words)) => shared.happened(Event::Refused(connection, class, words)),
    }
}

/// Gives the connection, and whether HTTP/2 is spoken on it.
async fn open(
    connection: ConnectionId,
    origin: &Origin,
    shared: &Shared,
) -> Result<(Box<dyn Stream>, bool), (&'static str, String)> {
    let at = address(origin, shared).await?;
    shared.happened(Event::Resolved(connection));
    let stream = TcpStream::connect(at)
        .await
        .map_err(|error| (class_of(&error), format!("{origin}: {error}")))?;
    shared.happened(Event::Connected(connection));
    // A request of two segments would wait for the first one's acknowledgment.
    let _ = stream.set_nodelay(true);
    if !origin.tls {
        return Ok((Box::new(stream), false));
    }
    let name = ServerName::try_from(origin.host.clone())
        .map_err(|_| ("tls", format!("{origin}: its host is not valid as a TLS server name")))?;
    let stream = TlsConnector::from(Arc::clone(&shared.tls))
        .connect(name, stream)
        .await
        .map_err(|error| ("tls", format!("{origin}: {error}")))?;
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    shared.happened(Event::Secured(connection, http2));
    Ok((Box::new(stream), http2))
}

async fn address(origin: &Origin, shared: &Shared) -> Result<SocketAddr, (&'static str, String)> {
    if let Ok(address) = origin.host.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, origin.port));
    }
    let known = shared.order.names.iter().find(|(name, _)| *name == origin.host);
    if let Some((_, address)) = known {
        return Ok(SocketAddr::new(*address, origin.port));
    }
    let failed = |why: String| ("dns", format!("{}: {why}", origin.host));
    let mut found = lookup_host((origin.host.as_str(), origin.port))
        .await
        .map_err(|error| failed(error.to_string()))?;
    found.next().ok_or_else(|| failed("it has no address".to_owned()))
}

/// Bytes to the server and back.
trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Stream for S {}

#[cfg(test)]
mod tests;
