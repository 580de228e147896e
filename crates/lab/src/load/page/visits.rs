//! Visitors of a site: each comes when it is due, loads its pages over connections of its own, thinks in
//! between, and keeps its connections afterwards, as a browser does.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use tcptoll_core::page::loader::Start;
use tcptoll_core::page::visits::Visit;
use tcptoll_core::page::waterfall::{Request, Waterfall};
use tokio::task::JoinSet;

use super::{LOOK, Load, LoadError, Stop, alone, client_tls, start};
use crate::channel::Channel;
use crate::clock::monotonic_ns;
use crate::load::control::Progress;
use crate::messages::{ConnectionSeen, LoadVisits, PageReport, PageSeen, VisitsReport};

/// What visitors did.
#[derive(Debug, Default)]
pub struct VisitCounts {
    /// Pages that began after the warm-up.
    pub pages: Vec<PageSeen>,
    /// Connections.
    pub connections: Vec<ConnectionSeen>,
    /// The rest.
    pub report: VisitsReport,
}

/// What all visitors share.
struct Site {
    order: LoadVisits,
    tls: Arc<ClientConfig>,
    /// Where every page begins: read once, it may be long.
    begin: Start,
    begun_ns: u64,
    stopped: Cell<bool>,
    seen: RefCell<VisitCounts>,
}

/// Lets the visitors come; ends when all of them have left, or their time is over and no page is under
/// way.
///
/// Errors: what was asked for cannot be done; the parent is gone.
pub fn run(
    order: &LoadVisits,
    uploaded: &str,
    channel: &mut Channel,
) -> Result<VisitCounts, LoadError> {
    let (mut seen, cpu_us) = alone(visitors(order, uploaded, channel))?;
    seen.report.cpu_us = cpu_us;
    Ok(seen)
}

async fn visitors(
    order: &LoadVisits,
    uploaded: &str,
    channel: &mut Channel,
) -> Result<VisitCounts, LoadError> {
    let site = Rc::new(Site {
        order: order.clone(),
        tls: client_tls(&order.page)?,
        // What cannot be loaded at all is refused before anybody comes.
        begin: start(&order.page, &order.page.start, uploaded)?,
        begun_ns: monotonic_ns(),
        stopped: Cell::new(false),
        seen: RefCell::default(),
    });
    let mut there = JoinSet::new();
    let mut progress = Progress::default();
    let mut come = order.visitors.visits().into_iter().peekable();
    let mut late_ns: Vec<u64> = Vec::new();
    while !(come.peek().is_none() && there.is_empty()) {
        let now_ns = site.now_ns();
        while let Some(visit) = come.next_if(|visit| visit.at_ns <= now_ns) {
            late_ns.push(now_ns - visit.at_ns);
            there.spawn_local(visitor(visit, Rc::clone(&site)));
        }
        progress.report(channel, monotonic_ns(), site.seen.borrow().pages.len() as u64)?;
        let next =
            come.peek().map(|visit| Duration::from_nanos(visit.at_ns.saturating_sub(now_ns)));
        tokio::select! {
            biased;
            Some(ended) = there.join_next() => ended.map_err(|error| {
                LoadError::Refused(format!("a visitor: {error}"))
            })??,
            () = tokio::time::sleep(next.unwrap_or(LOOK).min(LOOK)) => {}
        }
        if Stop::Channel(channel).is_wanted()? {
            site.stopped.set(true);
            while come.next().is_some() {}
        }
    }
    let mut seen = site.seen.take();
    late_ns.sort_unstable();
    let late = |percent: usize| {
        let last = late_ns.len().saturating_sub(1);
        late_ns.get(last * percent / 100).copied().unwrap_or_default()
    };
    seen.report.visitors = late_ns.len() as u64;
    seen.report.begun_ns = site.begun_ns;
    seen.report.late_p50_ns = late(50);
    seen.report.late_p99_ns = late(99);
    seen.report.partial = site.stopped.get();
    Ok(seen)
}

impl Site {
    /// Since the first visitor may have come.
    fn now_ns(&self) -> u64 {
        monotonic_ns().saturating_sub(self.begun_ns)
    }

    /// Until no page may begin any more.
    fn left(&self) -> Duration {
        Duration::from_nanos(self.order.visitors.duration_ns.saturating_sub(self.now_ns()))
    }
}

/// One visitor, from its coming to its leaving.
async fn visitor(visit: Visit, site: Rc<Site>) -> Result<(), LoadError> {
    let page = &site.order.page;
    let stop = &mut Stop::Noted(&site.stopped);
    let mut load = Load::new(page, &site.tls, site.begin.clone())?;
    let mut notes = Notes::new(&site, load.begun_ns);
    let mut thinks = visit.thinks_ns.into_iter().map(Duration::from_nanos);
    let (why, stays) = loop {
        let why = load.until_done(stop).await?;
        if why.is_some() || load.loader.has_failed() {
            break (why, Duration::ZERO);
        }
        match thinks.next() {
            None => break (None, site.order.leave_ns.map_or(Duration::MAX, Duration::from_nanos)),
            // The next page would begin too late: it thinks to the end.
            Some(think) if think >= site.left() => break (None, Duration::MAX),
            Some(think) => {
                if let Some(why) = load.wait(think, stop).await? {
                    break (Some(why), Duration::ZERO);
                }
            }
        }
        let (at_ns, now) = (site.now_ns(), load.now());
        let waterfall =
            load.loader.next_page(site.begin.clone(), now).map_err(LoadError::Refused)?;
        notes.take(&waterfall);
        notes.begin_page(at_ns);
    };
    load.until_closed(stays.min(site.left()), stop).await?;
    let left_ns = Some(site.now_ns()).filter(|_| site.left() > Duration::ZERO);
    let (waterfall, report) = load.finish(why);
    notes.take(&waterfall);
    notes.end(left_ns, report);
    Ok(())
}

/// What is noted of one visitor.
struct Notes<'a> {
    site: &'a Site,
    /// When the page under way was asked for.
    page_ns: u64,
    pages: u64,
    connections: BTreeMap<usize, ConnectionSeen>,
}

impl<'a> Notes<'a> {
    fn new(site: &'a Site, begun_ns: u64) -> Self {
        let page_ns = begun_ns.saturating_sub(site.begun_ns);
        Self { site, page_ns, pages: 0, connections: BTreeMap::new() }
    }

    fn begin_page(&mut self, at_ns: u64) {
        self.page_ns = at_ns;
    }

    /// A page, with what became of its connections until the next one.
    fn take(&mut self, page: &Waterfall) {
        let at = |us: u64| self.page_ns + us * 1_000;
        let mut opened = 0;
        for (number, connection) in page.connections.iter().enumerate() {
            let Some(connected_us) = connection.connected_us else { continue };
            let seen = self.connections.entry(number).or_insert_with(|| {
                opened += 1;
                let opened_ns = at(connected_us);
                ConnectionSeen { opened_ns, last_ns: opened_ns, closed_ns: None }
            });
            if seen.closed_ns.is_none() {
                seen.closed_ns = connection.closed_us.map(at);
            }
        }
        for request in &page.requests {
            let seen = request.connection.and_then(|one| self.connections.get_mut(&(one as usize)));
            if let Some(seen) = seen {
                seen.last_ns = seen.last_ns.max(at(request.ended_us()));
            }
        }
        if self.page_ns >= self.site.order.warmup_ns {
            let ended_us = page.requests.iter().map(Request::ended_us).max();
            self.site.seen.borrow_mut().pages.push(PageSeen {
                at_ns: self.page_ns,
                us: ended_us.unwrap_or_default(),
                first: self.pages == 0,
                connections: opened,
                error: page.failure().map(str::to_owned),
            });
        }
        self.pages += 1;
    }

    /// The visitor has left, if it has before the end.
    fn end(self, left_ns: Option<u64>, report: PageReport) {
        let mut seen = self.site.seen.borrow_mut();
        seen.connections.extend(
            self.connections
                .into_values()
                .map(|one| ConnectionSeen { closed_ns: one.closed_ns.or(left_ns), ..one }),
        );
        seen.report.repeats += u64::from(report.repeats);
        for (class, words) in report.first_errors {
            seen.report.first_errors.entry(class).or_insert(words);
        }
    }
}
