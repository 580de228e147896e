//! Is `http` cheap, does it keep its schedule, and does it never count a failure as a success?

use std::fs;
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use tcptoll_core::record::{Arm, Summary};
use tcptoll_core::stats::Histogram;
use tcptoll_core::study::stop::MIN_ROUNDS;
use tcptoll_lab::messages::Io;

use crate::contest::Ratio;
use crate::contest::peers::{Peer, named};
use crate::contest::{
    BATCHED, Case, Contest, Contestant, PLAIN, POLLED, Sample, arena, ring_refused,
};
use crate::links::tcptoll;
use crate::table::Folder;
use crate::table::Proofs;

/// Runs `tcptoll http …` and reads its summary.
pub(crate) fn http(args: &[&str]) -> anyhow::Result<Summary> {
    summary(&["http"], args).map(|(summary, _)| summary)
}

/// Runs tcptoll and gives its summary and exit status.
pub(crate) fn summary(command: &[&str], args: &[&str]) -> anyhow::Result<(Summary, Option<i32>)> {
    let mut line = Command::new(tcptoll()?);
    line.args(command).args(["--quiet", "--format", "json"]).args(args);
    if !args.contains(&"--out") {
        line.args(["--out", "/dev/null"]);
    }
    let output = line.output()?;
    let summary = serde_json::from_slice(&output.stdout).with_context(|| {
        format!(
            "{} {}: {}",
            command.join(" "),
            args.join(" "),
            String::from_utf8_lossy(&output.stderr)
        )
    })?;
    Ok((summary, output.status.code()))
}

pub(crate) fn only(summary: &Summary) -> anyhow::Result<&Arm> {
    match summary.arms.as_slice() {
        [arm] => Ok(arm),
        arms => bail!("{} arms", arms.len()),
    }
}

/// A quantile of a distribution, µs.
pub(crate) fn quantile_us(arm: &Arm, name: &str, percent: u64) -> anyhow::Result<f64> {
    let stored = arm.histograms.get(name).with_context(|| format!("{name} of {}", arm.name))?;
    let histogram = Histogram::from_summary(stored)?.context("a histogram")?;
    let ns = histogram.quantile_ns(percent, 100).context("too few values")?;
    Ok(ns as f64 / 1e3)
}

/// Client CPU against wrk's, in the same rounds.
pub(crate) fn cpu(table: &mut Proofs) -> anyhow::Result<()> {
    cpu_in(table, MIN_ROUNDS, 2)
}

fn cpu_in(table: &mut Proofs, rounds: u32, seconds: u64) -> anyhow::Result<()> {
    let wrk = present("wrk")?;
    let ring = ring_refused()?;
    let contestants = [
        Contestant::Ours(PLAIN),
        Contestant::Ours(BATCHED),
        Contestant::Ours(POLLED),
        Contestant::Theirs(wrk),
    ];
    if let Some(why) = &ring {
        Proofs::fact("without io_uring", why);
    }
    let kept = Contest::run(Case::KeepAlive, &contestants, rounds, seconds)?;
    let closed = Contest::run(Case::ServerClose, &contestants, rounds, seconds)?;
    for (contest, ours, what, goal) in [
        (&kept, PLAIN, "request, keep-alive, plain loop", 0.80),
        (&kept, BATCHED, "request, keep-alive, --batch 100us", 0.70),
        (&closed, PLAIN, "connection, server-close, each connect timed", 0.85),
    ] {
        let ratio = contest.ratio(ours.name, wrk.program, |sample| sample.cpu_us);
        let ratio = ratio.context("no CPU time")?;
        table.row(
            &format!("client CPU per {what}: one thread, 50 connections, against wrk's"),
            &format!("≤ {goal:.2}"),
            &shown(&ratio),
            ratio.value <= goal,
        );
    }
    for (what, contest) in [("keep-alive", &kept), ("server-close", &closed)] {
        for (contestant, samples) in contest.entries() {
            let sum = |count: fn(&Sample) -> u64| samples.iter().map(count).sum::<u64>();
            let per_s = samples.iter().map(|sample| sample.per_s).sum::<f64>();
            let ratio = contest.ratio(contestant.name(), wrk.program, |sample| sample.cpu_us);
            Proofs::fact(
                &format!("{what}, {}, {}", contestant.name(), contest.server),
                &format!(
                    "{:.0} requests/s, {} ok, {} errors, CPU {}",
                    per_s / samples.len() as f64,
                    sum(|sample| sample.ok),
                    sum(|sample| sample.errors),
                    ratio.as_ref().map_or(String::new(), |ratio| match contestant {
                        Contestant::Ours(_) => shown(ratio),
                        Contestant::Theirs(_) => format!("{:.2} µs", ratio.theirs),
                    }),
                ),
            );
        }
    }
    Ok(())
}

/// A peer that is on the path.
fn present(program: &str) -> anyhow::Result<&'static Peer> {
    let peer = named(program).with_context(|| format!("{program} is unknown"))?;
    ensure!(peer.version().is_some(), "{program} is missing: install the package {}", peer.package);
    Ok(peer)
}

fn shown(ratio: &Ratio) -> String {
    format!(
        "{:.3} {}, {:.2} µs against {:.2} µs, {} rounds",
        ratio.value,
        ratio.interval(),
        ratio.ours,
        ratio.theirs,
        ratio.rounds
    )
}

/// What an idle connection holds of the client's memory.
pub(crate) fn idle_memory(table: &mut Proofs) -> anyhow::Result<()> {
    for (connections, io, name) in
        [(10_000, Io::Auto, "auto"), (10_000, Io::Epoll, "epoll"), (50_000, Io::Auto, "auto")]
    {
        let kib = arena::ours(connections, io)? / 1024.0;
        // What is there however few connections there are; of peers it is taken off, too.
        let fixed_kib = arena::ours(1, io)? / 1024.0;
        let alone = (kib * connections as f64 - fixed_kib) / (connections - 1) as f64;
        table.row(
            &format!(
                "client memory per idle connection, {connections} open, --io {name}, above a load \
                 of one connection, as peers'"
            ),
            "≤ 0.5 KiB",
            &format!("{alone:.3} KiB; with what one connection needs, {kib:.3} KiB"),
            alone <= 0.5,
        );
    }
    for name in ["wrk", "h2load"] {
        let peer = present(name)?;
        let kib = arena::theirs(peer, 10_000)? / 1024.0;
        Proofs::fact(
            &format!("{name}'s, 10000 open and in use, above a load of one"),
            &format!("{kib:.3} KiB"),
        );
    }
    Ok(())
}

/// More connections than one process may have files.
pub(crate) fn hundred_thousand(table: &mut Proofs) -> anyhow::Result<()> {
    held(table, 100_000)
}

fn held(table: &mut Proofs, connections: u64) -> anyhow::Result<()> {
    let files = tcptoll_kernel::cpu::file_limit()?;
    let report = arena::hold(connections, Io::IoUring, true)?;
    let errors: u64 = report.errors.values().chain(report.warmup.1.values()).sum();
    table.row(
        &format!(
            "{connections} connections open and served by one client process, limit of {files} files"
        ),
        "all open at once, each answered twice, errors 0",
        &format!(
            "{} open at the end; {} requests answered while they were opened, then {} of {}; errors \
             {errors} {:?}; {:.1} s of rest and of these; {:.1} MiB of memory added; {}",
            report.open,
            report.warmup.0,
            report.ok,
            report.attempts,
            report.first_errors,
            report.elapsed_ns as f64 / 1e9,
            report.resident_bytes as f64 / f64::from(1 << 20),
            report.io,
        ),
        report.open == connections
            && report.ok == report.attempts
            && report.warmup.0 >= connections
            && report.ok == connections
            && errors == 0
            && files < connections,
    );
    Ok(())
}

/// Is the schedule kept?
pub(crate) fn open_loop(table: &mut Proofs) -> anyhow::Result<()> {
    open_loop_of(table, 10)
}

fn open_loop_of(table: &mut Proofs, seconds: u64) -> anyhow::Result<()> {
    const RATE: u64 = 20_000;
    let (rate, duration) = (RATE.to_string(), format!("{seconds}s"));
    let summary = http(&[
        "--rounds",
        "1",
        "--rate",
        &rate,
        "--duration",
        &duration,
        "--keepalive-requests",
        "0",
    ])?;
    let arm = only(&summary)?;
    let late_us = quantile_us(arm, "lateness_us", 99)?;
    let lateness = arm.histograms.get("lateness_us").context("lateness_us")?;
    let intended = arm.metrics.get("intended_per_s").context("intended_per_s")?.n;
    let unsent = arm.errors.get("unsent").copied().unwrap_or(0);
    table.row(
        &format!("open loop at {RATE}/s for {seconds} s on nginx: release lateness, p99"),
        "≤ 100 µs; attempts are what was intended, unsent 0",
        &format!(
            "{late_us:.1} µs (of {} that had a connection at once); {} attempted, {intended} intended, \
             unsent {unsent}, errors {:?}, valid: {}",
            lateness.count, arm.attempts, arm.errors, summary.valid
        ),
        late_us <= 100.0
            && arm.attempts == intended
            && intended == RATE * seconds
            && unsent == 0,
    );
    Ok(())
}

/// Does latency count from when a request was due, also while the server stands still?
pub(crate) fn stall(table: &mut Proofs) -> anyhow::Result<()> {
    stall_of(table, 10.0)
}

fn stall_of(table: &mut Proofs, seconds: f64) -> anyhow::Result<()> {
    const RATE: f64 = 2_000.0;
    const STALL_S: f64 = 1.4;
    let folder = Folder::new("stall")?;
    let line = stopping_nginx(&folder, seconds / 2.0, STALL_S)?;
    let duration = format!("{}ms", seconds * 1e3);
    let common = [
        "--rounds",
        "1",
        "--server",
        &line,
        "--warmup",
        "0",
        "--timeout",
        "5s",
        "--duration",
        &duration,
    ];
    let rate = RATE.to_string();
    let open = http(&[&common[..], &["--rate", &rate]].concat())?;
    let arm = only(&open)?;
    let p99_s = quantile_us(arm, "latency_us", 99)? / 1e6;
    // Of the rate × time requests, those due during the stall wait for its rest, evenly from all
    // of it down to nothing: the wait that one request in a hundred exceeds.
    let scheduled_s = STALL_S - 0.01 * seconds;
    table.row(
        &format!("server stopped for {STALL_S} s at {RATE}/s for {seconds} s: p99 of latency"),
        &format!("within 5 % of {scheduled_s:.2} s, which follows from the schedule"),
        &format!(
            "{p99_s:.3} s, {:+.1} %; {} requests, errors {:?}",
            (p99_s / scheduled_s - 1.0) * 100.0,
            arm.attempts,
            arm.errors
        ),
        (p99_s / scheduled_s - 1.0).abs() <= 0.05 && arm.ok == arm.attempts,
    );
    let closed = http(&common)?;
    let arm = only(&closed)?;
    Proofs::fact(
        "the same stall in a closed loop of 50 connections: p99, longest",
        &format!(
            "{:.3} ms, {:.3} s: 50 of {} requests met it",
            quantile_us(arm, "latency_us", 99)? / 1e3,
            arm.histograms["latency_us"].max.unwrap_or_default() / 1e6,
            arm.attempts
        ),
    );
    Ok(())
}

/// A command that runs nginx as one process, and stops it for a while.
fn stopping_nginx(folder: &Folder, after_s: f64, for_s: f64) -> anyhow::Result<String> {
    let root = folder.0.display();
    let file = folder.path("nginx.conf");
    fs::write(
        &file,
        format!(
            "daemon off; master_process off; pid {root}/pid; error_log stderr;\n\
             events {{ worker_connections 4096; }}\n\
             http {{ access_log off; keepalive_requests 4294967295;\n\
             client_body_temp_path {root}/b; proxy_temp_path {root}/p;\n\
             fastcgi_temp_path {root}/f; uwsgi_temp_path {root}/u; scgi_temp_path {root}/s;\n\
             server {{ listen 8080; location / {{ return 200 \"Hello, world\"; }} }} }}\n"
        ),
    )?;
    let script = folder.path("stop.sh");
    fs::write(
        &script,
        format!(
            "nginx -c {file} & p=$!\n\
             sleep {after_s}; kill -STOP $p; sleep {for_s}; kill -CONT $p\n\
             wait $p\n"
        ),
    )?;
    // It runs as another user, in the lab.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(&folder.0, open)?;
    Ok(format!("sh {script}"))
}

/// What happens when there are 64 local ports?
pub(crate) fn ports(table: &mut Proofs) -> anyhow::Result<()> {
    let folder = Folder::new("ports")?;
    let record = folder.path("record.jsonl");
    let (summary, status) = summary(
        &["http"],
        &[
            "--rounds",
            "1",
            "--reuse",
            "client-close",
            "--warmup",
            "0",
            "--duration",
            "1s",
            "--client-sysctl",
            "net.ipv4.ip_local_port_range=40000 40063",
            "--out",
            &record,
        ],
    )?;
    let arm = only(&summary)?;
    let failed: u64 = arm.errors.values().sum();
    let refused = arm.errors.get("local-ports").copied().unwrap_or(0);
    let rate = arm.metrics.get("requests_per_s").context("requests_per_s")?;
    // It lasts a second.
    let of_successes = (rate.value - arm.ok as f64).abs() <= 0.5;
    let page = Command::new(tcptoll()?).args(["report", &record]).output()?;
    let page = String::from_utf8_lossy(&page.stdout);
    let printed =
        ["local-ports-scarce", "ip_local_port_range"].iter().all(|word| page.contains(word));
    let caused = summary.causes.iter().any(|cause| cause.id == "local-ports-scarce");
    let advised = summary.advice.iter().any(|advice| advice.cause == "local-ports-scarce");
    table.row(
        "64 local ports, --reuse client-close",
        "every failure local-ports, rate of successes only, invalid, cause and advice printed",
        &format!(
            "{} attempts = {} ok + {failed}, of which local-ports {refused}; {:.0} requests/s of successes; \
             valid: {}, exit status {status:?}; cause: {caused}, advice: {advised}, printed: \
             {printed}",
            arm.attempts, arm.ok, rate.value, summary.valid
        ),
        refused > 0
            && refused == failed
            && arm.attempts == arm.ok + failed
            && of_successes
            && !summary.valid
            && status == Some(1)
            && caused
            && advised
            && printed,
    );
    Ok(())
}

/// The published table beside ours.
pub(crate) fn study(table: &mut Proofs) -> anyhow::Result<()> {
    let (summary, _) = summary(&["study", "http-keepalive-2019"], &[])?;
    for arm in &summary.arms {
        let rate = arm.metrics.get("requests_per_s").context("requests_per_s")?;
        let published: Vec<String> = summary
            .published
            .iter()
            .filter(|p| p.arm == arm.name && p.metric == "requests_per_s")
            .map(|p| format!("; published {} requests/s ({})", p.value, p.source))
            .collect();
        let failed: u64 = arm.errors.values().sum();
        table.row(
            &format!("http-keepalive-2019, {}", arm.name),
            &format!("attempts = ok + errors{}", published.concat()),
            &format!(
                "{:.0} requests/s {}; ok {}, errors {:?}, {} rounds",
                rate.value,
                rate.ci95.map_or(String::new(), |[low, high]| format!("[{low:.0}, {high:.0}]")),
                arm.ok,
                arm.errors,
                arm.rounds.len()
            ),
            arm.attempts == arm.ok + failed && arm.ok > 0,
        );
    }
    for comparison in &summary.comparisons {
        ensure!(comparison.rounds > 0, "{} was not compared", comparison.a);
        Proofs::fact(
            &format!("{} against {}: {}", comparison.a, comparison.b, comparison.metric),
            &format!(
                "{}, ratio {}{}",
                comparison.verdict,
                comparison.ratio.map_or("—".to_owned(), |ratio| format!("{ratio:.3}")),
                comparison
                    .ci95
                    .map_or(String::new(), |[low, high]| format!(" [{low:.3}, {high:.3}]")),
            ),
        );
    }
    Proofs::fact("its answer", &summary.answer);
    Ok(())
}
