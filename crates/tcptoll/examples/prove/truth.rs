//! Are the rates those of the server, and is saturation named where it is, and nowhere else?
//!
//! A server whose capacity is arithmetic (`tests/lab/capacity.py`) writes down when it answered; an
//! nginx is measured in closed loop in the same run. Both are asked for a tenth to ten times what
//! they can do.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, ensure};
use tcptoll_core::record::Arm;

use crate::http::{only, summary};
use crate::table::Folder;
use crate::table::Proofs;

const SERVER: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lab/capacity.py"));

/// Workers of the server, and connections to it.
const WORKERS: usize = 2;

/// The rate may be off by this share of the server's own count.
const OFF: f64 = 0.02;

/// Above the capacity throughput may fall by this share, and not more.
const COLLAPSE: f64 = 0.05;

/// The highest rate of a schedule, per second.
const RATE_MAX: f64 = 1e6;

/// Completions from which on saturation is judged.
const JUDGED: u64 = 200;

/// A server that runs until it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    /// A server of this service time, on loopback, and its port.
    fn start(
        folder: &Folder,
        service_s: f64,
        log: &str,
        kind: &str,
    ) -> anyhow::Result<(Self, u16)> {
        Self::of_workers(WORKERS, folder, service_s, log, kind)
    }

    fn of_workers(
        workers: usize,
        folder: &Folder,
        service_s: f64,
        log: &str,
        kind: &str,
    ) -> anyhow::Result<(Self, u16)> {
        let program = folder.file("capacity.py", SERVER)?;
        let mut child = Command::new("python3")
            .args([&program, "127.0.0.1", "0", &workers.to_string()])
            .args([&service_s.to_string(), log, kind])
            .stdout(Stdio::piped())
            .spawn()
            .context("python3")?;
        let stdout = child.stdout.take().context("stdout")?;
        let running = Self(child);
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        Ok((running, line.trim().parse().context("the server's port")?))
    }
}

/// What was wrong, over many runs.
#[derive(Default)]
struct Judged {
    connections: usize,
    runs: u64,
    /// The largest deviation from the server's count, relative to what is allowed.
    worst: f64,
    wrong: Vec<String>,
    named: (u64, u64),
    quiet: (u64, u64),
    unaccounted: u64,
    least_share: f64,
}

impl Judged {
    fn of_connections(connections: usize) -> Self {
        Self { connections, least_share: f64::INFINITY, ..Self::default() }
    }

    fn judge(
        &mut self,
        what: &str,
        arm: &Arm,
        load: Option<f64>,
        capacity: f64,
        served: Option<f64>,
    ) {
        self.runs += 1;
        let value = |name: &str| arm.metrics.get(name).map_or(0.0, |metric| metric.value);
        let rate = value("requests_per_s");
        let completed = arm.metrics.get("requests_per_s").map_or(0, |metric| metric.n);
        // Connections ÷ window: what may be in progress at an edge of it.
        let edge =
            if completed > 0 { self.connections as f64 * rate / completed as f64 } else { 0.0 };
        let resolution = value("rate_resolution_per_s").max(edge);
        if let Some(served) = served {
            let allowed = (served * OFF).max(resolution);
            self.worst = self.worst.max((rate - served).abs() / allowed);
            if (rate - served).abs() > allowed {
                self.wrong.push(format!("{what}: {rate:.2}/s against {served:.2}/s"));
            }
        }
        if rate > capacity + (capacity * OFF).max(resolution) {
            self.wrong.push(format!("{what}: {rate:.2}/s of {capacity:.2}/s that are possible"));
        }
        let failed: u64 = arm.errors.values().sum();
        let due = arm.metrics.get("intended_per_s").map_or(arm.attempts, |metric| metric.n);
        if arm.ok + failed != arm.attempts || due != arm.attempts {
            self.unaccounted += 1;
            self.wrong.push(format!("{what}: {} ok + {failed} failed of {due}", arm.ok));
        }
        let Some(load) = load else { return };
        if load > 1.0 {
            self.least_share = self.least_share.min(rate.max(rate + resolution) / capacity);
        }
        if completed < JUDGED {
            return;
        }
        let named = arm.saturation.is_some();
        if load >= 1.05 {
            self.named.0 += u64::from(named);
            self.named.1 += 1;
            if !named {
                self.wrong.push(format!("{what}: not named saturated"));
            }
        } else if load <= 0.9 {
            self.quiet.0 += u64::from(!named);
            self.quiet.1 += 1;
            if named {
                self.wrong.push(format!("{what}: named saturated"));
            }
        }
    }

    fn rows(&self, table: &mut Proofs, server: &str, of_what: &str) {
        table.row(
            &format!("{server}: {} runs, the rate against {of_what}", self.runs),
            "within 2 %, or within the printed resolution where that is more; never above capacity by more",
            &format!("at worst {:.2} of what is allowed; wrong: {:?}", self.worst, self.wrong),
            self.wrong.is_empty() && self.worst <= 1.0,
        );
        table.row(
            &format!("{server}: saturation, of runs with {JUDGED} completions or more"),
            "named in all from 1.05 times the capacity on, in none up to 0.9 times",
            &format!(
                "named {} of {}, not named {} of {}",
                self.named.0, self.named.1, self.quiet.0, self.quiet.1
            ),
            self.named.0 == self.named.1 && self.quiet.0 == self.quiet.1,
        );
        table.row(
            &format!("{server}: throughput above the capacity; what was due"),
            "≥ 0.95 of the capacity (or within the resolution); unsent + ok + errors = due",
            &format!("at least {:.3}; {} runs do not add up", self.least_share, self.unaccounted),
            self.least_share >= 1.0 - COLLAPSE && self.unaccounted == 0,
        );
    }
}

/// Per second, from when the workers were first all at work to the last response.
fn served_per_s(log: &str) -> Option<f64> {
    let sent: Vec<u64> = log.lines().filter_map(|line| line.parse().ok()).collect();
    let (first, last) = (*sent.get(WORKERS - 1)?, *sent.last()?);
    let count = sent.len() - WORKERS;
    (count > 0 && last > first).then(|| count as f64 * 1e9 / (last - first) as f64)
}

/// A run, and what the server counted meanwhile.
fn run(port: u16, log: &str, args: &[&str]) -> anyhow::Result<(Arm, Option<f64>)> {
    fs::write(log, "")?;
    let url = format!("http://127.0.0.1:{port}/");
    let connections = WORKERS.to_string();
    let common = ["--connections", &connections, "--allow-errors", "100%", &url];
    let (summary, _) = summary(&["http"], &[args, &common].concat())?;
    Ok((only(&summary)?.clone(), served_per_s(&fs::read_to_string(log)?)))
}

/// Capacity by arithmetic.
fn arithmetic(
    table: &mut Proofs,
    service_s: f64,
    durations: &[(&str, &[f64])],
) -> anyhow::Result<()> {
    let folder = Folder::new("truth")?;
    let log = folder.path("log");
    let capacity = WORKERS as f64 / service_s;
    let mut judged = Judged::of_connections(WORKERS);
    for (number, (duration, loads)) in durations.iter().enumerate() {
        for warmup in ["0", "200ms"] {
            let io = ["io-uring", "epoll"][(number + usize::from(warmup == "0")) % 2];
            let (_server, port) = Running::start(&folder, service_s, &log, "plain")?;
            let base = ["--duration", duration, "--warmup", warmup, "--io", io];
            let what = format!("{service_s} s, closed, {duration}, warm-up {warmup}, {io}");
            let (arm, served) = run(port, &log, &base)?;
            judged.judge(&what, &arm, None, capacity, served);
            for load in *loads {
                let (_server, port) = Running::start(&folder, service_s, &log, "plain")?;
                let rate = format!("{:.4}", capacity * load);
                let args = [&base[..], &["--rate", &rate, "--timeout", "3s"]].concat();
                let what = format!("{service_s} s, ×{load}, {duration}, warm-up {warmup}, {io}");
                let (arm, served) = run(port, &log, &args)?;
                judged.judge(&what, &arm, Some(*load), capacity, served);
            }
        }
    }
    let server = format!("{WORKERS} connections to {WORKERS} workers of {service_s} s, loopback");
    judged.rows(table, &server, "the server's own count per second");
    Ok(())
}

/// More connections than workers, more requests than both can serve, and a time limit that is near.
pub(crate) fn overload(table: &mut Proofs) -> anyhow::Result<()> {
    let folder = Folder::new("overload")?;
    let log = folder.path("log");
    let (mut within, mut late, mut runs) = (0, 0, Vec::new());
    for (workers, service_s) in [(4, 0.021), (16, 0.084)] {
        for load in [2.0, 10.0] {
            for io in ["io-uring", "epoll", "io-uring"] {
                let server = Running::of_workers(workers, &folder, service_s, &log, "plain")?;
                let rate = format!("{:.2}", workers as f64 / service_s * load);
                let args = ["--rate", &rate, "--timeout", "2s", "--duration", "8s", "--io", io];
                let url = format!("http://127.0.0.1:{}/", server.1);
                let more = ["--connections", "64", "--allow-errors", "100%", &url];
                fs::write(&log, "")?;
                let (summary, _) = summary(&["http"], &[&args[..], &more[..]].concat())?;
                let achieved = only(&summary)?.metrics.get("achieved_per_s").map(|m| m.value);
                let served = served_per_s(&fs::read_to_string(&log)?);
                let (achieved, served) = achieved.zip(served).context("rates")?;
                within += usize::from((achieved / served - 1.0).abs() <= 0.05);
                late += summary.warnings.iter().filter(|w| w.id == "generator-late").count();
                runs.push(format!("{workers} workers ×{load}: {achieved:.0} of {served:.0}/s"));
            }
        }
    }
    table.row(
        "64 connections, a limit of 2 s, 2 and 10 times the capacity of 4 and 16 workers",
        "within 5 % of the server's own rate in 12 of 12; generator-late in none",
        &format!("{within} of 12; {late}; {}", runs.join(", ")),
        within == 12 && late == 0,
    );
    Ok(())
}

/// Capacity by the round trip of an emulated link.
fn distant(table: &mut Proofs) -> anyhow::Result<()> {
    let capacity = WORKERS as f64 / 0.02;
    let mut judged = Judged::of_connections(WORKERS);
    let connections = WORKERS.to_string();
    for load in [0.1, 0.9, 1.05, 3.0, 10.0] {
        for io in ["io-uring", "epoll"] {
            let rate = format!("{:.4}", capacity * load);
            let args = [
                "--link",
                "rtt=20ms",
                "--server",
                "null",
                "--duration",
                "2500ms",
                "--io",
                io,
                "--rate",
                &rate,
                "--connections",
                &connections,
                "--allow-errors",
                "100%",
                "--timeout",
                "1s",
            ];
            let (summary, _) = summary(&["http"], &args)?;
            judged.judge(
                &format!("20 ms link, ×{load}, {io}"),
                only(&summary)?,
                Some(load),
                capacity,
                None,
            );
        }
    }
    judged.rows(table, "2 connections over an emulated link of 20 ms", "the round trip");
    Ok(())
}

/// Capacity as measured in closed loop just before.
pub(crate) fn nginx(table: &mut Proofs) -> anyhow::Result<()> {
    let mut judged = Judged::of_connections(50);
    let base = ["--server", "nginx", "--connections", "50", "--keepalive-requests", "0"];
    for duration in ["1s", "2s"] {
        for warmup in ["0", "200ms"] {
            for load in [0.1, 0.5, 0.9, 1.05, 1.5, 3.0, 10.0] {
                let more = ["--duration", duration, "--warmup", warmup, "--allow-errors", "100%"];
                let args = [&base[..], &more[..]].concat();
                let mut rates = Vec::new();
                for _ in 0..2 {
                    let (closed, _) = summary(&["http"], &args)?;
                    let arm = only(&closed)?;
                    rates.push(arm.metrics.get("requests_per_s").context("requests_per_s")?.value);
                }
                let capacity = rates.iter().sum::<f64>() / 2.0;
                // More than that no schedule is accepted.
                let load = f64::min(load, RATE_MAX / capacity);
                let rate = format!("{:.0}", capacity * load);
                let (open, _) = summary(&["http"], &[&args[..], &["--rate", &rate]].concat())?;
                let what =
                    format!("nginx, ×{load} of {capacity:.0}/s, {duration}, warm-up {warmup}");
                let served = (load < 0.95).then_some(capacity * load);
                // Two runs of a server on a virtual machine differ by more than the rate is off.
                judged.judge(&what, only(&open)?, Some(load), capacity * 1.1, served);
            }
        }
    }
    judged.least_share *= 1.1;
    judged.rows(
        table,
        "nginx in the lab, 50 connections (capacity: closed loop, mean of two runs just before)",
        "what was due",
    );
    Ok(())
}

/// What a server does that no other does.
fn behaviours(table: &mut Proofs) -> anyhow::Result<()> {
    let folder = Folder::new("behaviours")?;
    let log = folder.path("log");
    let mut told = Vec::new();
    let mut right = true;
    for (kind, expected) in [("late", 0), ("early", 0), ("reset", 2), ("silent", 2), ("closes", 1)]
    {
        for io in ["io-uring", "epoll"] {
            for rate in [None, Some("50")] {
                fs::write(&log, "")?;
                let (_server, port) = Running::start(&folder, 0.001, &log, kind)?;
                let url = format!("http://127.0.0.1:{port}/");
                let mut args = vec![
                    "--duration",
                    "2s",
                    "--timeout",
                    "1s",
                    "--connections",
                    "2",
                    "--io",
                    io,
                    &url,
                ];
                args.extend(rate.into_iter().flat_map(|rate| ["--rate", rate]));
                let (summary, status) = summary(&["http"], &args)?;
                let arm = only(&summary)?;
                let answered = fs::read_to_string(&log)?.lines().count() as u64;
                let failed: u64 = arm.errors.values().sum();
                let before = arm.warmup.as_ref().map_or(0, |warmup| warmup.ok);
                // A response before its request is one more for each connection.
                let spare = if kind == "early" { arm.connections_ok.unwrap_or(0) } else { 0 };
                // A close that is seen before the next request is due is no failure.
                let any = matches!(kind, "late" | "early") || (kind == "closes" && rate.is_some());
                let fits = arm.attempts == arm.ok + failed
                    && arm.ok + before <= answered + spare
                    && (any || status == Some(expected));
                right &= fits;
                told.push(format!(
                    "{kind} {io} {}: {} ok, {:?}, {answered} answered, exit {status:?}{}",
                    rate.unwrap_or("closed"),
                    arm.ok,
                    arm.errors,
                    if fits { "" } else { " WRONG" }
                ));
            }
        }
    }
    table.row(
        "servers that accept late, answer before they are asked, reset, stay silent, close: closed and open loop, io_uring and epoll",
        "attempts = ok + errors; no more successes than the server's own log; exit 2 where nothing succeeds",
        &told.join("; "),
        right,
    );
    Ok(())
}

/// All of the above.
pub(crate) fn truth(table: &mut Proofs) -> anyhow::Result<()> {
    const ALL: &[f64] = &[0.1, 0.5, 0.9, 1.05, 1.5, 3.0, 10.0];
    const EDGES: &[f64] = &[0.1, 0.9, 1.05, 10.0];
    let python = Command::new("python3").arg("--version").output();
    ensure!(python.is_ok_and(|output| output.status.success()), "python3 is missing");
    behaviours(table)?;
    arithmetic(
        table,
        0.02,
        &[("350ms", EDGES), ("1s", EDGES), ("3s", ALL), ("10s", &[0.9, 1.05])],
    )?;
    arithmetic(
        table,
        0.3,
        &[("350ms", EDGES), ("3s", EDGES), ("10s", EDGES), ("35s", &[0.9, 1.05])],
    )?;
    distant(table)
}
