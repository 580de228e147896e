//! A real browser as a load: headless Chromium loads a page, driven over its DevTools pipe.
//!
//! It is the witness of our own load: the same page on the same link, in the same host. `program`
//! says how it is started and which of its switches are set for which reason, `pipe` speaks with it,
//! `warm` has the pages that it loads before, and says which certificates it accepts. Its events
//! become a [`Waterfall`] in [`tcptoll_core::page::devtools`].
//!
//! A visit: a fresh profile, four pages of the warm-up, wait until nothing works any more, navigate,
//! collect, end. A second page is another navigation of the same browser, with its cache switched
//! off, as our own load has none; its connections are those that are still open.
//!
//! What it is not: a load as a user sees it on a machine of its own. Between two network events the
//! browser computes, and its load event comes later than the last byte. Requests of workers are on the
//! wire and not in the waterfall: to the browser a worker is a page of its own.
//!
//! What was measured (Chromium 156, RTT 15 ms, a document and 20 style sheets of 2 kB, 2 CPUs with
//! other work): first SYN to last byte 114 ms to 126 ms with KeepAlive on and 160 ms to 167 ms off, next to
//! 102 ms and 149 ms of a client that only asks. At 100 ms it is 7 % and 2 %. Not started warm, 135 ms and
//! 189 ms. 8 ms to 12 ms of the rest are between the document and the first request that it names, 2 ms to 3 ms
//! in each round of six responses, most of it in the thread of the network service.
//!
//! The Network domain of DevTools is off: it cost 17 ms of 85 ms of CPU, and 3 to 8 ms of the span at RTT
//! 15 ms. Rows are read from Resource Timing after the load. Warm-up pages come from a loopback server
//! before, or start-up work would be in the span.

mod pipe;
mod program;
mod warm;

use std::net::IpAddr;
use std::time::{Duration, Instant};

use serde_json::json;
use tcptoll_core::page::devtools::load::Load;
use tcptoll_core::page::devtools::{Event, timing};
use tcptoll_core::page::resource::Protocol;
use tcptoll_core::page::waterfall::Waterfall;
use tcptoll_kernel::cpu;

use self::pipe::Heard;
use self::program::{Browser, START_LIMIT, Settings};
use self::warm::Warm;
use super::LoadError;
use crate::channel::Channel;
use crate::messages::{LoadPage, PageReport, PageStart, Visit};

/// An answer must come within this; answers take milliseconds.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// A page of the warm-up must be loaded within this.
const WARM_LIMIT: Duration = Duration::from_secs(30);

/// Pages that are loaded before. Between the document and the first request that it names passed 9 ms
/// after 3 of them, 8 ms after 8.
const WARM_PAGES: usize = 4;

/// It is idle when its processes used less than this in each of four looks in a row …
const IDLE_CPU: Duration = Duration::from_millis(1);

/// … of this distance.
const IDLE_LOOK: Duration = Duration::from_millis(50);

/// Longest wait for that; a browser that is never idle is measured as it is.
const IDLE_LIMIT: Duration = Duration::from_secs(5);

/// While the page is loaded, events are taken this often: not each by itself, which would take CPU time
/// from the browser.
const COLLECT: Duration = Duration::from_millis(20);

/// A page is loaded when its load event has come, nothing is outstanding, and nothing new became known for
/// this long.
const QUIET: Duration = Duration::from_millis(200);

/// What is to be loaded.
#[derive(Clone, Debug, Default)]
struct Wanted {
    /// The page: `http://host:port/path` or `https://…`.
    url: String,
    /// A second page of the same visitor, and the time between, from the end of the first one, ns.
    second: Option<(String, u64)>,
    /// Names that are resolved without DNS.
    names: Vec<(String, IpAddr)>,
    /// Ask other origins too. Otherwise their names are not resolved.
    other_origins: bool,
    /// Offer HTTP/2 (in TLS).
    http2: bool,
    /// Ask for compressed content.
    compress: bool,
    insecure: bool,
    /// PEM file of certificates that are accepted: those of the servers themselves, not of an authority.
    certificates: Option<String>,
    /// Collect every event of the network, instead of asking the page after the load: exact connections,
    /// priorities, redirects and failures, at 4 % of the span at RTT 15 ms.
    events: bool,
    /// A page that is not loaded by then is given up, ns.
    timeout_ns: u64,
}

/// What was loaded.
#[derive(Clone, Debug, Default)]
struct Loaded {
    /// Name and version: `Chrome/156.0.8078.79`.
    version: String,
    /// The page, and the second one.
    pages: Vec<Waterfall>,
    /// Class of the failure of the last page: it was given up.
    gave_up: Option<&'static str>,
    /// The parent said stop.
    stopped: bool,
}

/// Loads the page as ordered; only its resources are not given as a graph.
///
/// Errors: as of a load; Chromium asks for what a document names, so a graph cannot be loaded.
pub fn run(order: &LoadPage, channel: &mut Channel) -> Result<Visit, LoadError> {
    let PageStart::Url(url) = &order.start else {
        return Err(LoadError::Refused(
            "a browser cannot load a recorded graph: leave out --browser or --har".to_owned(),
        ));
    };
    let next = order.next.as_ref();
    let wanted = Wanted {
        url: url.clone(),
        second: next.map(|next| (next.url.clone().unwrap_or_else(|| url.clone()), next.after_ns)),
        names: order.names.clone(),
        other_origins: order.other_origins,
        http2: order.protocol == Protocol::Http2,
        compress: order.compress,
        insecure: order.tls.insecure,
        certificates: order.tls.ca.clone(),
        // What it costs would be in the span.
        events: false,
        timeout_ns: order.timeout_ns,
    };
    let Loaded { version, pages, gave_up, stopped } = loaded(&wanted, channel)?;
    let mut report =
        PageReport { partial: stopped, browser: Some(version), ..PageReport::default() };
    for request in pages.iter().flat_map(|page| &page.requests) {
        if let Some(class) = &request.error {
            *report.errors.entry(class.clone()).or_default() += 1;
        }
    }
    if let Some(class) = gave_up {
        let why = "the page was not complete in time";
        report.first_errors.insert(class.to_owned(), why.to_owned());
    }
    Ok(Visit { pages, resources: Vec::new(), report })
}

/// Loads the page, with a browser of its own.
///
/// Errors: a sentence for the user. A missing program is named with its Debian package, one that fails
/// is quoted. A page that cannot be loaded is no error: its requests have failed.
fn loaded(wanted: &Wanted, channel: &mut Channel) -> Result<Loaded, LoadError> {
    let page = Address::parse(&wanted.url)?;
    if let Some((url, _)) = &wanted.second {
        Address::parse(url)?;
    }
    let mut trusted = match &wanted.certificates {
        Some(file) => warm::of_file(file).map_err(LoadError::Refused)?,
        None => Vec::new(),
    };
    let warm = Warm::start(page.tls)?;
    trusted.extend(warm.key().map(str::to_owned));
    let settings = Settings {
        host: &page.host,
        names: &wanted.names,
        other_origins: wanted.other_origins,
        http2: wanted.http2,
        trusted: &trusted,
        insecure: wanted.insecure,
    };
    let mut browser = Browser::start(&settings, &warm, channel)?;
    let mut loaded = Loaded::default();
    match visit(wanted, &page, &mut browser, warm, channel, &mut loaded) {
        Err(_) if browser.pipe.is_stopped() => {
            loaded.stopped = true;
            Ok(loaded)
        }
        Err(error) => Err(error),
        Ok(()) => Ok(loaded),
    }
}

fn visit(
    wanted: &Wanted,
    page: &Address,
    browser: &mut Browser,
    warm: Warm,
    channel: &mut Channel,
    loaded: &mut Loaded,
) -> Result<(), LoadError> {
    let pipe = &mut browser.pipe;
    let lacks = |what: &str| LoadError::Refused(format!("chromium's answer lacks {what}"));
    loaded.version = pipe
        .ask("Browser.getVersion", &json!({}), START_LIMIT, channel, |_| {})?
        .product
        .map(|product| tcptoll_core::printable::line(&product))
        .ok_or_else(|| lacks("its version"))?;
    let mut ask = |pipe: &mut pipe::Pipe, method: &str, params: serde_json::Value| {
        pipe.ask(method, &params, ANSWER_LIMIT, channel, |_| {})
    };
    // A private window: cache and cookies in memory. On disk the span at RTT 15 ms with KeepAlive on was
    // 120 ms instead of 116 ms (5 loads each in turn).
    let context = ask(pipe, "Target.createBrowserContext", json!({}))?
        .browser_context_id
        .ok_or_else(|| lacks("a context"))?;
    // Without a tab: nothing of the browser's own interface is drawn.
    let target = json!({ "url": "about:blank", "hidden": true, "browserContextId": context });
    let target =
        ask(pipe, "Target.createTarget", target)?.target_id.ok_or_else(|| lacks("a page"))?;
    let session =
        ask(pipe, "Target.attachToTarget", json!({ "targetId": target, "flatten": true }))?
            .session_id
            .ok_or_else(|| lacks("a session"))?;
    pipe.attach(session);
    ask(pipe, "Page.enable", json!({}))?;
    // Before the warm-up, so that this code is warm too.
    if wanted.events || !wanted.compress {
        let nothing_kept = json!({ "maxTotalBufferSize": 0, "maxResourceBufferSize": 0 });
        ask(pipe, "Network.enable", nothing_kept)?;
    }
    if !wanted.events {
        ask(pipe, "Page.setLifecycleEventsEnabled", json!({ "enabled": true }))?;
        let before = json!({ "source": timing::BEFORE });
        ask(pipe, "Page.addScriptToEvaluateOnNewDocument", before)?;
    }
    if !wanted.compress {
        let fields = json!({ "headers": { "Accept-Encoding": "identity" } });
        ask(pipe, "Network.setExtraHTTPHeaders", fields)?;
    }
    for _ in 0..WARM_PAGES {
        warm_up(&page.warm_url(warm.port()), browser, channel)?;
    }
    // Its connections are closed now.
    drop(warm);
    wait_until_idle(browser, channel)?;
    let limit = Duration::from_nanos(wanted.timeout_ns);
    let pages = &mut loaded.pages;
    loaded.gave_up = load(&wanted.url, wanted.events, limit, browser, channel, pages)?;
    if let (Some((url, after_ns)), None) = (&wanted.second, loaded.gave_up) {
        let pipe = &mut browser.pipe;
        // Only with this domain the cache can be switched off.
        pipe.ask("Network.enable", &json!({}), ANSWER_LIMIT, channel, |_| {})?;
        let no_cache = json!({ "cacheDisabled": true });
        pipe.ask("Network.setCacheDisabled", &no_cache, ANSWER_LIMIT, channel, |_| {})?;
        pause(Duration::from_nanos(*after_ns), browser, channel)?;
        // It costs what it costs now, so its events are read.
        loaded.gave_up = load(url, true, limit, browser, channel, &mut loaded.pages)?;
    }
    Ok(())
}

/// Loads a page of the warm-up.
fn warm_up(url: &str, browser: &mut Browser, channel: &mut Channel) -> Result<(), LoadError> {
    let pipe = &mut browser.pipe;
    pipe.send("Page.navigate", &json!({ "url": url }))?;
    let begun = Instant::now();
    loop {
        match pipe.event(WARM_LIMIT.saturating_sub(begun.elapsed()), channel)? {
            Heard::Event(Event::Loaded(_)) => return Ok(()),
            Heard::Event(Event::Crashed) | Heard::End => return Err(pipe.ended()),
            Heard::Event(_) => {}
            Heard::Failed(why) => {
                let why = tcptoll_core::printable::line(&why);
                return Err(pipe.refused(&format!("cannot load the warm-up page ({why})")));
            }
            Heard::Stop => return Err(stopped()),
            Heard::Silence => {
                let seconds = WARM_LIMIT.as_secs();
                let what = format!("does not load the warm-up page within {seconds} s");
                return Err(pipe.refused(&what));
            }
        }
    }
}

/// Waits until the browser's processes use no CPU time any more, at most so long.
fn wait_until_idle(browser: &mut Browser, channel: &mut Channel) -> Result<(), LoadError> {
    let begun = Instant::now();
    let mut before = cpu::children_time();
    let mut quiet = 0;
    while quiet < 4 && begun.elapsed() < IDLE_LIMIT {
        pause(IDLE_LOOK, browser, channel)?;
        let now = cpu::children_time();
        let used = now.since(before);
        let used = Duration::from_micros(used.user_us + used.system_us);
        quiet = if used < IDLE_CPU { quiet + 1 } else { 0 };
        before = now;
    }
    Ok(())
}

/// Waits for so long; what happens meanwhile belongs to no load.
fn pause(time: Duration, browser: &mut Browser, channel: &mut Channel) -> Result<(), LoadError> {
    let begun = Instant::now();
    loop {
        match browser.pipe.event(time.saturating_sub(begun.elapsed()), channel)? {
            Heard::Silence => return Ok(()),
            Heard::Stop => return Err(stopped()),
            Heard::End | Heard::Event(Event::Crashed) => return Err(browser.pipe.ended()),
            Heard::Event(_) | Heard::Failed(_) => {}
        }
    }
}

/// Navigates and collects until the page is loaded; gives the class of the failure if it was given up.
fn load(
    url: &str,
    by_events: bool,
    limit: Duration,
    browser: &mut Browser,
    channel: &mut Channel,
    pages: &mut Vec<Waterfall>,
) -> Result<Option<&'static str>, LoadError> {
    let pipe = &mut browser.pipe;
    pipe.send("Page.navigate", &json!({ "url": url }))?;
    let begun = Instant::now();
    let mut seen = PageObservation::default();
    let gave_up = loop {
        // Not for luck: what comes meanwhile is read together.
        std::thread::sleep(COLLECT);
        let before = seen.state();
        let is_stopped = loop {
            match pipe.event(Duration::ZERO, channel)? {
                Heard::Event(Event::Crashed) | Heard::End => return Err(pipe.ended()),
                Heard::Event(event) => seen.take(&event),
                Heard::Failed(why) => seen.failure = Some(why),
                Heard::Stop => break true,
                Heard::Silence => break false,
            }
        };
        if is_stopped {
            pages.push(seen.load.into_waterfall(Some("truncated")));
            return Err(stopped());
        }
        if seen.state() != before {
            seen.changed = Instant::now();
        }
        if seen.is_complete(by_events) {
            break None;
        }
        if begun.elapsed() >= limit {
            break Some("timeout");
        }
    };
    if !by_events {
        let events = match &seen.failure {
            Some(why) => timing::failed(url, why, begun.elapsed().as_secs_f64()),
            None => remembered(pipe, channel)?,
        };
        seen.load = Load::default();
        for event in &events {
            seen.load.take(event);
        }
    }
    pages.push(seen.load.into_waterfall(gave_up));
    Ok(gave_up)
}

/// What was seen of a load.
struct PageObservation {
    load: Load,
    /// The `load` event of the page itself.
    is_loaded: bool,
    /// Nothing was outstanding for half a second.
    is_idle: bool,
    /// The document could not be loaded, for this reason.
    failure: Option<String>,
    changed: Instant,
}

impl Default for PageObservation {
    fn default() -> Self {
        Self {
            load: Load::default(),
            is_loaded: false,
            is_idle: false,
            failure: None,
            changed: Instant::now(),
        }
    }
}

impl PageObservation {
    fn take(&mut self, event: &Event) {
        match event {
            // What was said before belongs to a page of the warm-up.
            Event::Begun => (self.is_loaded, self.is_idle) = (false, false),
            Event::Idle => self.is_idle = true,
            Event::Loaded(_) => self.is_loaded = true,
            _ => {}
        }
        self.load.take(event);
    }

    fn state(&self) -> (usize, usize, bool) {
        (self.load.requests(), self.load.outstanding(), self.load.is_loaded())
    }

    fn is_complete(&self, by_events: bool) -> bool {
        if !by_events {
            return self.failure.is_some() || self.is_loaded && self.is_idle;
        }
        let ended = self.load.is_loaded() || self.load.has_no_document();
        ended && self.load.outstanding() == 0 && self.changed.elapsed() >= QUIET
    }
}

/// What the page remembers of its load.
fn remembered(pipe: &mut pipe::Pipe, channel: &mut Channel) -> Result<Vec<Event>, LoadError> {
    let expression = json!({ "expression": timing::EXPRESSION, "returnByValue": true });
    let answer = pipe.ask("Runtime.evaluate", &expression, ANSWER_LIMIT, channel, |_| {})?;
    let text = answer.result.and_then(|result| result.value).unwrap_or_default();
    timing::events(&text).map_err(|error| pipe.refused(&format!("reports a load that is {error}")))
}

fn stopped() -> LoadError {
    LoadError::Refused("the load was stopped".to_owned())
}

/// Where a page is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Address {
    tls: bool,
    /// Without brackets.
    host: String,
}

impl Address {
    /// Errors: not a URL of a page, in a sentence.
    fn parse(url: &str) -> Result<Self, LoadError> {
        let refused = |why: &str| {
            let url = tcptoll_core::printable::line(url);
            LoadError::Refused(format!("{url}: {why}; use http://host/path or https://host/path"))
        };
        let plain = url.strip_prefix("http://").map(|rest| (false, rest));
        let secure = || url.strip_prefix("https://").map(|rest| (true, rest));
        let (tls, rest) = plain.or_else(secure).ok_or_else(|| refused("it is not a page's URL"))?;
        if !url.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(refused("it has blanks or characters that must be percent-encoded"));
        }
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let host = match authority.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => authority.split(':').next().unwrap_or_default(),
        };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
        // A comma or a blank would be another rule for names.
        if host.is_empty() || !host.bytes().all(plain) {
            return Err(refused("it has no host"));
        }
        Ok(Self { tls, host: host.to_ascii_lowercase() })
    }

    /// A page of the warm-up on the same host name.
    fn warm_url(&self, port: u16) -> String {
        let scheme = if self.tls { "https://" } else { "http://" };
        let bracketed = self.host.contains(':');
        let host = if bracketed { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{scheme}{host}:{port}/")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_gives_host_and_scheme_and_the_page_of_the_warm_up_has_the_same() {
        let page = Address::parse("https://Page.test:8443/a?b=//c").unwrap();
        assert_eq!(page, Address { tls: true, host: "page.test".to_owned() });
        assert_eq!(page.warm_url(9), "https://page.test:9/");
        assert_eq!(
            Address::parse("http://[fd00::1]:80/").unwrap().warm_url(9),
            "http://[fd00::1]:9/"
        );
    }

    #[test]
    fn a_url_that_would_change_the_rules_for_names_is_refused() {
        for url in ["page", "file:///etc/passwd", "http://a,MAP * b/", "http:///x", "http://a/\n"] {
            let error = Address::parse(url).unwrap_err().to_string();
            assert!(error.contains("use http://host/path"), "{error}");
        }
    }
}
