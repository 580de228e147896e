//! Every figure of a watch next to those of `ss` and `nstat`, before and after it.
//!
//! A queue's length goes up and down, so two readings around a third bound nothing while the load runs. The load
//! is frozen at each moment (SIGSTOP): only the kernel's timers go on, and they change each figure one way.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::watch::{Running, interrupt, row, wall_s};
use crate::links::tcptoll;
use crate::watch_witness::{
    Figures, Load, by_others, by_the_watch, is_untold, of_listener, ten_busy_listeners,
};
use tcptoll_kernel::process::{freeze, resume};
use tcptoll_live::watch::reader::Options;
use tcptoll_live::watch::reader::Watch;
use tcptoll_live::watch::{ListenerState, Rates, State};

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
    super::watch::fact(
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

// Overflows of one listener of three, and of two while the third is scanned, next to the load's own counts.
//
// Each attempt of the load sends one SYN: it gives up before the first retransmission. An attempt that did not
// connect met a full queue, so the load knows each overflow and its time without any counter of the kernel.

/// How long the load runs.
const LASTS_S: usize = 30;
/// Rates are compared over this many intervals of 1 s.
const WINDOW: usize = 5;
/// An overflow is named after this time, at most.
const NAMED_S: f64 = 2.0;
/// A rate may differ from the load's count by this share.
const OFF: f64 = 0.05;

const FULL: &str = "accept-queue-full";

struct Scenario {
    what: &'static str,
    /// Of the three listeners.
    overflow: [bool; 3],
    listeners: Value,
}

fn scenarios() -> [Scenario; 2] {
    [
        Scenario {
            what: "one of three listeners overflows",
            overflow: [false, true, false],
            listeners: json!([
                {"at": "127.0.0.1", "backlog": 128, "attempts_per_s": 200},
                {"at": "127.0.0.1", "backlog": 8, "accept_per_s": 50, "attempts_per_s": 200},
                {"at": "127.0.0.1", "backlog": 128, "attempts_per_s": 200, "talk": true, "hold_s": 0.05},
            ]),
        },
        Scenario {
            what: "two of three overflow, the third is scanned (SYN and RST)",
            overflow: [true, true, false],
            listeners: json!([
                {"at": "127.0.0.1", "backlog": 16, "accept_per_s": 100, "attempts_per_s": 200},
                {"at": "127.0.0.1", "backlog": 4, "accept_per_s": 20, "attempts_per_s": 100},
                {"at": "127.0.0.1", "backlog": 128, "attempts_per_s": 100, "scan_per_s": 60},
            ]),
        },
    ]
}

/// Lines of a running `tcptoll watch`, each with the time at which it was there.
struct Program {
    running: Running,
    lines: mpsc::Receiver<(f64, String)>,
}

fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

impl Program {
    fn start() -> anyhow::Result<Self> {
        let mut child = Command::new(tcptoll()?)
            .args(["watch", "--no-screen"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let stderr = BufReader::new(child.stderr.take().context("stderr")?);
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                if sender.send((now_s(), line)).is_err() {
                    break;
                }
            }
        });
        Ok(Self { running: Running(child), lines })
    }

    /// Ends it; gives when each subject was first named as overflowing.
    fn finish(mut self) -> anyhow::Result<Vec<(f64, String)>> {
        interrupt(&mut self.running)?;
        let mark = format!(" {FULL}: ");
        let begun = |(at, line): (f64, String)| {
            let (_, text) = line.split_once(&mark)?;
            (!text.contains(": ended after ")).then(|| (at, text.to_owned()))
        };
        Ok(self.lines.into_iter().filter_map(begun).collect())
    }
}

/// A listener of the load, in a state.
fn listener(state: &State, at: SocketAddr) -> Option<&ListenerState> {
    state.listeners.iter().find(|one| one.port == at.port())
}

pub(super) fn inside_overflow() -> anyhow::Result<()> {
    scenarios().iter().try_for_each(scenario)
}

fn scenario(scenario: &Scenario) -> anyhow::Result<()> {
    let program = Program::start()?;
    let mut watch = Watch::open(&Options::default())?;
    watch.look()?;
    sleep(Duration::from_secs(2));
    let load = Load::start(&[], &json!({"listeners": scenario.listeners}))?;
    let at = load.addresses()?;
    let mut states = Vec::new();
    let began = Instant::now();
    for second in 0..=LASTS_S as u64 {
        sleep(Duration::from_secs(second).saturating_sub(began.elapsed()));
        states.push(watch.look()?.clone());
    }
    // The last attempts are given up by then.
    sleep(Duration::from_millis(500));
    let named = program.finish()?;
    let counts = load.finish()?;
    let late: u64 =
        counts.as_array().context("counts")?.iter().filter_map(|one| one["late"].as_u64()).sum();
    ensure!(late == 0, "this machine is too busy: {late} attempts sent a second SYN");
    for (number, at) in at.iter().enumerate() {
        let refused = serde_json::from_value::<Vec<f64>>(counts[number]["refused"].clone())?;
        if scenario.overflow[number] {
            overflowed(scenario, *at, &refused, &named, &states)?;
        } else {
            ensure!(refused.is_empty(), "{at}: {} attempts were refused", refused.len());
            spared(scenario, *at, &named, &states, counts[number]["scans"].as_u64())?;
        }
    }
    let subjects = scenario.overflow.iter().zip(&at).filter(|(overflow, _)| **overflow);
    let expected: Vec<String> = subjects.map(|(_, at)| format!(" at {at}: ")).collect();
    let strange: Vec<&str> = named
        .iter()
        .filter(|(_, text)| expected.iter().all(|at| !text.contains(at)))
        .map(|(_, text)| text.as_str())
        .collect();
    row(
        &format!("{}: what tcptoll watch names", scenario.what),
        "these listeners and no other",
        &if strange.is_empty() {
            format!("{} listeners, in {} lines", expected.len(), named.len())
        } else {
            format!("also {strange:?}")
        },
        strange.is_empty(),
    );
    Ok(())
}

fn overflowed(
    scenario: &Scenario,
    at: SocketAddr,
    refused: &[f64],
    named: &[(f64, String)],
    states: &[State],
) -> anyhow::Result<()> {
    let first = refused.first().context("nothing overflowed")?;
    let mark = format!(" at {at}: ");
    let after = named.iter().find(|(_, text)| text.contains(&mark)).map(|(when, _)| when - first);
    row(
        &format!("{}: named after the first overflow", scenario.what),
        "within 2 s",
        &after.map_or("never".to_owned(), |after| format!("{after:.2} s")),
        after.is_some_and(|after| (0.0..=NAMED_S).contains(&after)),
    );
    let mut windows = Vec::new();
    let (mut sum, mut estimated) = (0.0, 0);
    let mut counted = 0;
    // The first states have the listener's first interval, the rest a steady load.
    for window in states[1..].chunks_exact(WINDOW) {
        let last = window.last().context("a state")?;
        let until = wall_s(&last.time)?;
        let from = wall_s(&window[0].time)? - window[0].interval_s;
        let truth = refused.iter().filter(|when| (from..until).contains(when)).count();
        let mut ours = 0.0;
        for state in window {
            let one = listener(state, at).context("the listener")?;
            let rate = one.overflows_per_s.context("no rate of a listener that overflows")?;
            ours += rate * state.interval_s;
            estimated += usize::from(one.overflows_estimated);
        }
        sum += ours;
        counted += truth;
        windows.push(ours / truth.max(1) as f64 - 1.0);
    }
    let worst = windows
        .iter()
        .fold(0.0_f64, |worst, one| if one.abs() > worst.abs() { *one } else { worst });
    row(
        &format!("{}: its rate, against the load's own count", scenario.what),
        &format!("within 5 % in each window of {WINDOW} s"),
        &format!(
            "{sum:.1} of {counted} overflows in {} s ({:.1}/s); worst window {:+.2} %; estimated in {estimated} of {} states",
            windows.len() * WINDOW,
            counted as f64 / (windows.len() * WINDOW) as f64,
            100.0 * worst,
            windows.len() * WINDOW,
        ),
        worst.abs() <= OFF && !windows.is_empty(),
    );
    Ok(())
}

fn spared(
    scenario: &Scenario,
    at: SocketAddr,
    named: &[(f64, String)],
    states: &[State],
    scans: Option<u64>,
) -> anyhow::Result<()> {
    let mark = format!(" at {at}: ");
    let accused = named.iter().filter(|(_, text)| text.contains(&mark)).count();
    let scanned = scans.is_some_and(|scans| scans > 0);
    let (mut zero, mut untold, mut wrong) = (0, 0, 0);
    for state in &states[1..] {
        let one = listener(state, at).context("the listener")?;
        match one.overflows_per_s {
            Some(0.0) => zero += 1,
            None if scanned => untold += 1,
            _ => wrong += 1,
        }
    }
    row(
        &format!(
            "{}: a listener that does not{}",
            scenario.what,
            if scanned { ", scanned" } else { "" }
        ),
        if scanned { "0, or not told; never named" } else { "0 in each state; never named" },
        &format!(
            "0 in {zero} states, not told in {untold}, wrong in {wrong}; named {accused} times"
        ),
        wrong == 0 && accused == 0 && zero + untold == states.len() - 1,
    );
    Ok(())
}
