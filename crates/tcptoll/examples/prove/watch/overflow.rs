//! Overflows of one listener of three, and of two while the third is scanned, next to the load's own counts.
//!
//! Each attempt of the load sends one SYN: it gives up before the first retransmission. An attempt that did not
//! connect met a full queue, so the load knows each overflow and its time without any counter of the kernel.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread::{self, sleep};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use tcptoll_live::watch::reader::{Options, Watch};
use tcptoll_live::watch::{ListenerState, State};

use super::{Running, interrupt, row, wall_s};
use crate::links::tcptoll;
use crate::watch_witness::Load;

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

pub(super) fn inside() -> anyhow::Result<()> {
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
