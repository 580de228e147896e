//! Every figure of a watch next to those of `ss` and `nstat`, before and after it.
//!
//! A queue's length goes up and down, so two readings around a third bound nothing while the load runs. The load
//! is frozen at each moment (SIGSTOP): only the kernel's timers go on, and they change each figure one way.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tcptoll_kernel::process::{freeze, resume};
use tcptoll_live::watch::reader::{Options, Watch};
use tcptoll_live::watch::{Rates, State};

use super::row;
use crate::links::tcptoll;
use crate::watch_witness::{
    Figures, Load, by_others, by_the_watch, is_untold, of_listener, ten_busy_listeners,
};

/// Moments at which the library looks.
const MOMENTS: usize = 50;
/// Moments at which the program looks.
const PROGRAM_MOMENTS: usize = 10;
/// Time between two moments.
const BETWEEN: Duration = Duration::from_millis(700);

const GOAL: &str = "equal to ss and nstat, or between their two readings";

/// How many figures of a kind were right.
#[derive(Default)]
struct Kinds(BTreeMap<String, Kind>);

#[derive(Default)]
struct Kind {
    equal: usize,
    between: usize,
    /// How far apart the two readings around a figure were, at most.
    apart: i64,
    wrong: Vec<String>,
}

impl Kinds {
    /// A figure and those around it.
    fn add(&mut self, kind: &str, name: &str, figure: i64, ends: (i64, i64)) {
        let kind = self.0.entry(kind.to_owned()).or_default();
        let (low, high) = (ends.0.min(ends.1), ends.0.max(ends.1));
        kind.apart = kind.apart.max(high - low);
        if low == high && figure == low {
            kind.equal += 1;
        } else if (low..=high).contains(&figure) {
            kind.between += 1;
        } else {
            kind.wrong.push(format!("{name}: {figure}, not {low} to {high}"));
        }
    }

    /// All levels of one moment.
    fn add_all(&mut self, moment: &Moment) -> anyhow::Result<()> {
        let Moment { state, before, after } = moment;
        let ours = &by_the_watch(state)?;
        let figures = |all: &Figures, name: &str| all.get(name).copied().unwrap_or(0);
        // What only others see is a figure of the watch too: 0.
        let known = |name: &&String| {
            !name.starts_with("nstat") && !name.starts_with("drops of") && !is_untold(name, state)
        };
        let names: std::collections::BTreeSet<&String> =
            ours.keys().chain(before.keys()).chain(after.keys()).filter(known).collect();
        for name in names {
            self.add(
                kind_of(name),
                name,
                figures(ours, name),
                (figures(before, name), figures(after, name)),
            );
        }
        Ok(())
    }

    /// A row a kind.
    fn rows(&self, what: &str) {
        for (name, kind) in &self.0 {
            row(&format!("{what}: {name}"), GOAL, &kind.text(), kind.wrong.is_empty());
        }
    }

    /// One row for all.
    fn row(&self, what: &str) {
        let each: Vec<String> =
            self.0.iter().map(|(name, kind)| format!("{name} {}", kind.text())).collect();
        row(what, GOAL, &each.join("; "), self.0.values().all(|kind| kind.wrong.is_empty()));
    }
}

impl Kind {
    fn text(&self) -> String {
        let right = self.equal + self.between;
        let all = right + self.wrong.len();
        let mut text = format!("{right} of {all}");
        if self.between > 0 {
            text +=
                &format!(", {} of them between readings up to {} apart", self.between, self.apart);
        }
        for wrong in self.wrong.iter().take(3) {
            text += &format!(", WRONG {wrong}");
        }
        text
    }
}

fn kind_of(name: &str) -> &str {
    match name {
        "sockstat tw" => "TIME-WAIT (sockstat)",
        "sockstat inuse" => "sockets (sockstat)",
        "state TIME-WAIT" => "TIME-WAIT (dump)",
        "state SYN-RECEIVED" => "SYN-RECEIVED",
        "state ESTABLISHED" => "ESTABLISHED",
        _ if name.starts_with("queue of") => "accept queue",
        _ if name.starts_with("limit of") => "limit of the accept queue",
        _ if name.starts_with("half-open") => "half-open requests of a listener",
        _ if name.starts_with("ports to") => "local ports in use per destination",
        _ if name.starts_with("TIME-WAIT to") => "TIME-WAIT per destination",
        _ => "other states",
    }
}

/// Counters of `nstat` that a state shows as rates.
fn rates(rates: &Rates) -> [(&'static str, f64); 13] {
    [
        ("TcpActiveOpens", rates.active_opens_per_s),
        ("TcpPassiveOpens", rates.passive_opens_per_s),
        ("TcpOutSegs", rates.segments_out_per_s),
        ("TcpRetransSegs", rates.retransmitted_per_s),
        ("TcpExtTCPSynRetrans", rates.syns_retransmitted_per_s),
        ("TcpExtListenOverflows", rates.overflows_per_s),
        ("TcpExtListenDrops", rates.drops_per_s),
        ("TcpExtSyncookiesSent", rates.cookies_sent_per_s),
        ("TcpExtTCPReqQFullDrop", rates.syns_dropped_per_s),
        ("TcpEstabResets", rates.resets_per_s),
        ("TcpExtTCPAbortOnMemory", rates.aborted_for_memory_per_s),
        ("TcpExtTCPTimeWaitOverflow", rates.time_wait_overflows_per_s),
        ("TcpExtTCPDeferAcceptDrop", rates.deferred_per_s),
    ]
}

/// A look between two readings of the others.
struct Moment {
    state: State,
    before: Figures,
    after: Figures,
}

fn moment(watch: &mut Watch, pid: u32, frozen: bool) -> anyhow::Result<Moment> {
    if frozen {
        freeze(pid)?;
    }
    let before = by_others(&[])?;
    let state = watch.look_at_all()?.clone();
    let after = by_others(&[])?;
    if frozen {
        resume(pid)?;
    }
    Ok(Moment { state, before, after })
}

/// Changes of counters and drops between two moments. They only rise, so this holds while the load runs too.
fn changes(kinds: &mut Kinds, first: &Moment, last: &Moment) -> anyhow::Result<()> {
    let bounds = |name: &str| {
        let figure = |all: &Figures| all.get(name).copied();
        let (b0, a0, b1, a1) = (
            figure(&first.before)?,
            figure(&first.after)?,
            figure(&last.before)?,
            figure(&last.after)?,
        );
        Some((b1 - a0, a1 - b0))
    };
    let last_rates = last.state.rates.as_ref().context("rates")?;
    for (name, rate) in rates(last_rates) {
        let change = (rate * last.state.interval_s).round() as i64;
        kinds.add(name, name, change, bounds(&format!("nstat {name}")).context(name)?);
    }
    for one in &last.state.listeners {
        let at = std::net::SocketAddr::new(one.address.parse()?, one.port);
        let name = of_listener(at, one.inode, "drops");
        let change = one.drops_per_s.context("drops/s")? * last.state.interval_s;
        let bounds = bounds(&name).with_context(|| name.clone())?;
        kinds.add("drops of a listener (d of ss)", &name, change.round() as i64, bounds);
    }
    Ok(())
}

pub(super) fn inside() -> anyhow::Result<()> {
    let load = Load::start(&[], &ten_busy_listeners())?;
    sleep(Duration::from_secs(3));
    let mut watch = Watch::open(&Options::default())?;
    for (what, frozen) in [("load frozen at the look", true), ("load runs on", false)] {
        let mut kinds = Kinds::default();
        let mut last: Option<Moment> = None;
        for _ in 0..MOMENTS {
            sleep(BETWEEN);
            let moment = moment(&mut watch, load.pid(), frozen)?;
            ensure!(
                moment.state.listeners.len() == 10,
                "{} listeners",
                moment.state.listeners.len()
            );
            if frozen {
                kinds.add_all(&moment)?;
            }
            if let Some(last) = &last {
                changes(&mut kinds, last, &moment)?;
            }
            last = Some(moment);
        }
        let load = format!("ten busy listeners, {MOMENTS} looks, {what}");
        if frozen { kinds.rows(&load) } else { kinds.row(&load) }
    }
    let mut kinds = Kinds::default();
    for _ in 0..PROGRAM_MOMENTS {
        sleep(BETWEEN);
        freeze(load.pid())?;
        let before = by_others(&[])?;
        let tcptoll = tcptoll()?.display().to_string();
        let text = crate::watch_witness::output_of(&[
            &tcptoll,
            "watch",
            "--once",
            "--format",
            "json",
            "--interval",
            "100ms",
        ])?;
        let after = by_others(&[])?;
        resume(load.pid())?;
        kinds.add_all(&Moment { state: serde_json::from_str(&text)?, before, after })?;
    }
    kinds.row(&format!("tcptoll watch --once, {PROGRAM_MOMENTS} runs, load frozen"));
    let counts = load.finish()?;
    let sum = |name: &str| {
        let count = |one: &serde_json::Value| one[name].as_u64().unwrap_or(0);
        counts.as_array().map_or(0, |all| all.iter().map(count).sum::<u64>())
    };
    super::fact(
        "the load of the ten listeners, by its own count",
        &format!(
            "{} attempts, {} connected, {} accepted",
            sum("attempts"),
            sum("connected"),
            sum("accepted")
        ),
    );
    Ok(())
}
