//! Is the latency that `http` reports that of the wire?

use std::collections::HashMap;
use std::fs;
use std::fs::File;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail};
use pcap_file::pcapng::PcapNgReader;
use pcap_file::pcapng::blocks::Block;

use crate::http::http;
use crate::links::tcptoll;
use crate::table::Proofs;
use tcptoll_core::record::Summary;
use tcptoll_core::stats::Histogram;

/// The farthest a quantile may be off, µs.
const OFF_US: f64 = 20.0;

const REQUESTS: u64 = 20_000;

/// The loop at full speed, and with what has happened handled together.
pub(crate) fn exact(table: &mut Proofs) -> anyhow::Result<()> {
    for (name, io, batch) in [
        ("plain", "auto", "0"),
        ("batched, --batch 100us", "auto", "100us"),
        ("plain, --io epoll", "epoll", "0"),
        ("batched, --io epoll", "epoll", "100us"),
    ] {
        row(table, name, io, batch)?;
    }
    Ok(())
}

fn row(table: &mut Proofs, name: &str, io: &str, batch: &str) -> anyhow::Result<()> {
    let path = std::env::temp_dir().join(format!("tcptoll-exact-{}.pcapng", std::process::id()));
    let requests = REQUESTS.to_string();
    let capture = path.display().to_string();
    let measured = http(&[
        "--rounds",
        "1",
        "--io",
        io,
        "--batch",
        batch,
        "--connections",
        "50",
        "--requests",
        &requests,
        "--warmup",
        "0",
        "--keepalive-requests",
        "0",
        "--tap",
        "--pcap",
        &capture,
    ])
    .and_then(|summary| Ok((summary, exchanges(&path)?)));
    let _ = fs::remove_file(&path);
    let (summary, wire) = measured?;
    let arm = summary.arms.first().context("arm")?;
    let reported = arm.histograms.get("latency_us").context("latency_us")?;
    let reported = Histogram::from_summary(reported)?.context("latency_us has no histogram")?;
    let drops = arm.wire.as_ref().context("wire")?.tap_drops;
    let mut worst: f64 = 0.0;
    let mut told = Vec::new();
    for percent in [50, 90, 99] {
        let us = |histogram: &Histogram| -> anyhow::Result<f64> {
            Ok(histogram.quantile_ns(percent, 100).context("too few values")? as f64 / 1e3)
        };
        let (ours, seen) = (us(&reported)?, us(&wire)?);
        worst = worst.max((ours - seen).abs());
        told.push(format!("p{percent} {ours:.1} against {seen:.1}"));
    }
    table.row(
        &format!(
            "latency of {REQUESTS} requests over 50 connections, {name}: what http reports, \
             against the time from a request's packet to the last one of its response, as a tap on \
             the client's device stamped them in the same run"
        ),
        "p50, p90 and p99 within 20 µs; the same number of exchanges; no tap drops",
        &format!(
            "{} µs; {} against {} exchanges; tap drops {drops}",
            told.join(", "),
            reported.count(),
            wire.count()
        ),
        worst <= OFF_US
            && reported.count() == wire.count()
            && reported.count() == REQUESTS
            && drops == 0,
    );
    Ok(())
}

/// Requests of the row that looks for latencies that cannot be.
const MANY: u64 = 1_000_000;

/// Is any latency below the least that the wire saw?
pub(crate) fn least(table: &mut Proofs) -> anyhow::Result<()> {
    for io in ["io-uring", "epoll"] {
        let path =
            std::env::temp_dir().join(format!("tcptoll-least-{}.pcapng", std::process::id()));
        let (requests, capture) = (MANY.to_string(), path.display().to_string());
        let measured = http(&[
            "--io",
            io,
            "--connections",
            "50",
            "--requests",
            &requests,
            "--warmup",
            "0",
            "--keepalive-requests",
            "0",
            "--tap",
            "--pcap",
            &capture,
        ])
        .and_then(|summary| Ok((summary, exchanges(&path)?)));
        let _ = fs::remove_file(&path);
        let (summary, wire) = measured?;
        let arm = summary.arms.first().context("arm")?;
        let reported = arm.histograms.get("latency_us").context("latency_us")?;
        let seen = wire.summary_us();
        let drops = arm.wire.as_ref().context("wire")?.tap_drops;
        let impossible = summary.warnings.iter().any(|warning| warning.id == "impossible-times");
        let (ours, theirs) = (reported.min.context("min")?, seen.min.context("min")?);
        table.row(
            &format!("least latency of {MANY} requests over 50 connections, {io}, against the wire in the same run"),
            "not below that of the wire; no time below 0",
            &format!(
                "{ours:.1} µs against {theirs:.1} µs; {} against {} exchanges, tap drops {drops}; times below 0: {}",
                reported.count,
                wire.count(),
                if impossible { "some" } else { "none" }
            ),
            // Histograms have three digits.
            ours >= theirs * 0.999 && !impossible && reported.count == MANY,
        );
    }
    Ok(())
}

/// A request that was seen, and the last packet of its response so far.
#[derive(Clone, Copy)]
struct Exchange {
    begun: Duration,
    answered: Option<Duration>,
}

/// How long each exchange took at the client's device, by its local port.
///
/// A response has ended when the connection's next request begins, or with the capture: there is
/// one request on a connection at a time.
fn exchanges(path: &std::path::Path) -> anyhow::Result<Histogram> {
    let mut reader = PcapNgReader::new(File::open(path)?).map_err(|e| anyhow::anyhow!("{e}"))?;
    let mut under_way: HashMap<u16, Exchange> = HashMap::new();
    let mut took = Histogram::new();
    let mut record = |exchange: Exchange| -> anyhow::Result<()> {
        let Some(answered) = exchange.answered else { bail!("a request without a response") };
        let time = answered.checked_sub(exchange.begun).context("answered before it was asked")?;
        took.record_ns(time.as_nanos() as u64);
        Ok(())
    };
    while let Some(block) = reader.next_block() {
        let Block::EnhancedPacket(packet) = block.map_err(|e| anyhow::anyhow!("{e}"))? else {
            continue;
        };
        // Interface 0 is the client's end.
        let Some(segment) = Segment::parse(&packet.data).filter(|_| packet.interface_id == 0)
        else {
            continue;
        };
        if segment.to_port == SERVER_PORT {
            let begun = Exchange { begun: packet.timestamp, answered: None };
            if let Some(before) = under_way.insert(segment.from_port, begun) {
                record(before)?;
            }
        } else if let Some(exchange) = under_way.get_mut(&segment.to_port) {
            exchange.answered = Some(packet.timestamp);
        }
    }
    under_way.into_values().try_for_each(record)?;
    Ok(took)
}

/// Where the lab's server listens.
const SERVER_PORT: u16 = 8080;

/// A TCP segment with data in it.
struct Segment {
    from_port: u16,
    to_port: u16,
}

impl Segment {
    /// Of an Ethernet frame, by the offsets of RFC 791 and RFC 9293. None: it has no data, or is
    /// something else than TCP over IPv4.
    fn parse(frame: &[u8]) -> Option<Self> {
        const ETHERNET: usize = 14;
        const TCP: u8 = 6;
        let ip = frame.get(ETHERNET..)?;
        let word = |bytes: &[u8], at: usize| -> Option<u16> {
            Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
        };
        let ip_header = usize::from(ip.first()? & 15) * 4;
        if ip.first()? >> 4 != 4 || *ip.get(9)? != TCP {
            return None;
        }
        let tcp = ip.get(ip_header..)?;
        let tcp_header = usize::from(tcp.get(12)? >> 4) * 4;
        let data = usize::from(word(ip, 2)?).checked_sub(ip_header + tcp_header)?;
        (data > 0).then_some(Self { from_port: word(tcp, 0)?, to_port: word(tcp, 2)? })
    }
}

// Is each request counted as what became of it, whatever a server does wrong?

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

pub(crate) fn faults(table: &mut Proofs) -> anyhow::Result<()> {
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
