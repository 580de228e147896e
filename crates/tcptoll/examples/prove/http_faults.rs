//! Is each request counted as what became of it, whatever a server does wrong?

use std::process::Command;

use anyhow::Context as _;
use tcptoll_core::record::Summary;

use crate::links::tcptoll;
use crate::table::Table;

/// The server of the lab tests, which does one thing wrong.
const FAULTY: &str = include_str!("../../tests/lab/faulty.py");

/// Time in which requests begin, and by how much a run may be longer, s.
const PLANNED_S: f64 = 0.4;
const OVER_S: f64 = 2.0;

/// Status of `timeout(1)` where the command did not end.
const HANGS: i32 = 124;

/// No request that meets one of these may be a success.
const WITHOUT_SUCCESS: &[&str] = &[
    "rst-mid-body",
    "rst-mid-head",
    "rst-before-head",
    "fin-mid-body",
    "fin-mid-head",
    "fin-before-head",
    "chunk-size-bad",
    "chunk-17-digits",
    "chunk-no-crlf",
    "chunk-no-name",
    "chunk-truncated",
    "chunk-without-last",
    "chunked-in-1.0",
    "silent",
    "drip",
    "slow-body",
    "body-short",
    "length-2^63-1",
    "length-2^64",
    "length-negative",
    "length-plus",
    "length-two-different",
    "length-and-chunked",
    "length-not-a-number",
    "too-many-fields",
    "header-2mb",
    "status-abc",
    "status-99",
    "status-500",
    "version-2.0",
    "binary-noise",
    "blank-before-colon",
    "nul-in-field",
    "bare-cr",
    "extra-bytes",
    "two-responses",
    "steering",
    "escape-in-reason",
    "infinite-body",
    "infinite-chunks",
    "infinite-extension",
    "infinite-trailers",
    "infinite-1xx",
    "infinite-fields",
    "infinite-line",
    "close-at-once",
    "not-accepting",
];

/// Some requests that meet one of these succeed.
const WITH_SUCCESS: &[&str] = &[
    "three-then-close",
    "lazy-close",
    "obs-fold",
    "lf-in-trailers",
    "chunked-not-last",
    "until-closed",
    "ignore-close",
    "early",
    "stopped",
    "killed",
];

/// What became of one run.
#[derive(Default)]
struct Counts {
    faults: u32,
    not_accounted: u32,
    false_successes: u32,
    hangs: u32,
    panics: u32,
    requests: u64,
}

pub(crate) fn faults(table: &mut Table) -> anyhow::Result<()> {
    let path = std::env::temp_dir().join(format!("tcptoll-faulty-{}.py", std::process::id()));
    std::fs::write(&path, FAULTY)?;
    let script = path.display().to_string();
    let mut counts = Counts::default();
    let runs = WITHOUT_SUCCESS
        .iter()
        .map(|fault| (*fault, false))
        .chain(WITH_SUCCESS.iter().map(|fault| (*fault, true)));
    let done = ["epoll", "io-uring"].iter().try_for_each(|io| {
        runs.clone().try_for_each(|(fault, succeeds)| counts.one(&script, fault, succeeds, io))
    });
    let _ = std::fs::remove_file(&path);
    done?;
    let Counts { faults, not_accounted, false_successes, hangs, panics, requests } = counts;
    table.row(
        "faults of a server, each over epoll and io_uring: runs whose attempts are not ok + errors, \
         runs with a success that is none, hangs, panics",
        "0, 0, 0, 0",
        &format!(
            "{not_accounted}, {false_successes}, {hangs}, {panics} ({} faults, {faults} runs, \
             {requests} requests)",
            faults / 2
        ),
        not_accounted + false_successes + hangs + panics == 0,
    );
    Ok(())
}

impl Counts {
    fn one(&mut self, script: &str, fault: &str, succeeds: bool, io: &str) -> anyhow::Result<()> {
        let output = Command::new("timeout")
            .arg("60")
            .arg(tcptoll()?)
            .args(["http", "--quiet", "--format", "json", "--out", "/dev/null", "--rounds", "1"])
            .args(["--server", &format!("python3 {script} {fault}"), "--io", io])
            .args(["--duration", "400ms", "--warmup", "0", "--timeout", "300ms"])
            .args(["--connections", "4", "--body-limit", "1MB"])
            .output()
            .context("timeout(1)")?;
        self.faults += 1;
        let stderr = String::from_utf8_lossy(&output.stderr);
        let panicked = stderr.contains("panicked") || output.status.code() == Some(101);
        if panicked {
            eprintln!("{fault} over {io}: {stderr}");
        }
        self.panics += u32::from(panicked);
        if output.status.code() == Some(HANGS) {
            eprintln!("{fault} over {io}: it did not end within a minute");
            self.hangs += 1;
            return Ok(());
        }
        let summary: Option<Summary> = serde_json::from_slice(&output.stdout).ok();
        let arm = summary.as_ref().and_then(|summary| summary.arms.first());
        let Some(arm) = arm else {
            eprintln!("{fault} over {io}: no summary: {stderr}");
            self.not_accounted += 1;
            return Ok(());
        };
        let errors: u64 = arm.errors.values().sum();
        self.requests += arm.attempts;
        let accounted = arm.attempts > 0 && arm.attempts == arm.ok + errors;
        let honest = succeeds || arm.ok == 0;
        let in_time = arm.elapsed_s <= PLANNED_S + OVER_S;
        if !accounted || !honest || !in_time {
            eprintln!(
                "{fault} over {io}: {} attempts, {} ok, errors {:?}, {} s",
                arm.attempts, arm.ok, arm.errors, arm.elapsed_s
            );
        }
        self.not_accounted += u32::from(!accounted);
        self.false_successes += u32::from(!honest);
        self.hangs += u32::from(!in_time);
        Ok(())
    }
}
