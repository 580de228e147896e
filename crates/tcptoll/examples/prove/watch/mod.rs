//! Is what `tcptoll watch` shows true, and what does it cost?
//!
//! Each group runs in a user and network namespace of its own: the example starts itself there with a hidden
//! word, and that process prints its rows as JSON lines.

mod cost;
mod day;
mod equal;
mod overflow;
mod prometheus;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};
use tcptoll_kernel::netlink::Netlink;
use tcptoll_live::watch::{Interval, WatchLine};

use crate::table::Table;

/// The hidden word; the name of a group follows.
const INSIDE: &str = "watch-inside";

/// What a group does in its namespace.
type Inside = fn() -> anyhow::Result<()>;

const INSIDES: &[(&str, Inside)] = &[
    ("watch-equal", equal::inside),
    ("watch-overflow", overflow::inside),
    ("watch-cost", cost::inside),
    ("watch-day", day::inside),
    ("watch-prometheus", prometheus::inside),
    (day::CLOCK, day::sped_up),
];

/// Every figure of ten busy listeners is that of `ss` and `nstat`: 90 s.
pub(crate) fn equal(table: &mut Table) -> anyhow::Result<()> {
    run(table, "watch-equal")
}

/// Overflows are named soon, at the right listener, with the right rate: 90 s.
pub(crate) fn overflow(table: &mut Table) -> anyhow::Result<()> {
    run(table, "watch-overflow")
}

/// What a watch of 1,000 listeners and 50,000 connections costs: 3 minutes.
pub(crate) fn cost(table: &mut Table) -> anyhow::Result<()> {
    run(table, "watch-cost")
}

/// A day, by a run of ten minutes and by a clock sped up: 13 minutes.
pub(crate) fn day(table: &mut Table) -> anyhow::Result<()> {
    run(table, "watch-day")?;
    run(table, day::CLOCK)
}

/// What the real Prometheus has of a watch: 80 s.
pub(crate) fn prometheus(table: &mut Table) -> anyhow::Result<()> {
    run(table, "watch-prometheus")
}

/// Is the part of a group in its namespace, if the arguments say so.
pub(crate) fn is_asked_for(words: &[String]) -> Option<anyhow::Result<()>> {
    let [word, group] = words else { return None };
    let (_, inside) = INSIDES.iter().find(|(name, _)| word == INSIDE && name == group)?;
    Some(lo_up().and_then(|()| inside()))
}

fn lo_up() -> anyhow::Result<()> {
    let mut netlink = Netlink::open()?;
    let lo = netlink.index("lo")?;
    Ok(netlink.set_up(lo)?)
}

/// Runs a group in its namespace, and puts its rows into the table.
fn run(table: &mut Table, group: &str) -> anyhow::Result<()> {
    let own = std::env::current_exe()?;
    let mut child = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "--"])
        .arg(own)
        .args([INSIDE, group])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("unshare")?;
    let stdout = child.stdout.take().context("stdout")?;
    for line in BufReader::new(stdout).lines() {
        let row: Value = serde_json::from_str(&line?).context("a row")?;
        let text = |name: &str| row[name].as_str().unwrap_or_default();
        match row["met"].as_bool() {
            Some(met) => table.row(text("what"), text("goal"), text("measured"), met),
            None => Table::fact(text("what"), text("measured")),
        }
    }
    ensure!(child.wait()?.success(), "it failed in its namespace");
    Ok(())
}

/// Hands a row to the table.
fn row(what: &str, goal: &str, measured: &str, met: bool) {
    println!("{}", json!({"what": what, "goal": goal, "measured": measured, "met": met}));
}

/// Hands a figure without a goal to the table.
fn fact(what: &str, measured: &str) {
    println!("{}", json!({"what": what, "measured": measured}));
}

/// A process that ends with its owner.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Asks a watch to end, as a terminal's Ctrl+C does.
fn interrupt(child: &mut Running) -> anyhow::Result<()> {
    let pid = child.0.id().to_string();
    ensure!(Command::new("kill").args(["-INT", &pid]).status()?.success(), "kill -INT {pid}");
    child.0.wait()?;
    Ok(())
}

/// Wall-clock time of a state, s since 1970.
fn wall_s(time: &str) -> anyhow::Result<f64> {
    let at: jiff::Timestamp = time.parse().with_context(|| time.to_owned())?;
    Ok(at.as_nanosecond() as f64 / 1e9)
}

/// Intervals of a record, complete or not.
fn intervals(record: &str) -> anyhow::Result<Vec<Interval>> {
    let text = std::fs::read_to_string(record).with_context(|| record.to_owned())?;
    let mut intervals = Vec::new();
    for line in text.lines() {
        if let WatchLine::State(interval) = serde_json::from_str(line)? {
            intervals.push(*interval);
        }
    }
    if intervals.is_empty() {
        bail!("{record} has no intervals");
    }
    Ok(intervals)
}
