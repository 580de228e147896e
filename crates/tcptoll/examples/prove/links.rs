//! Is the emulated link what was asked for?

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::{Context as _, bail};

use crate::table::{Folder, Proofs};
use tcptoll_core::link::{LinkSpec, line_bytes};
use tcptoll_core::record::Summary;
use tcptoll_core::stats::{exact_interval, nearest_rank};
use tcptoll_lab::lab::certification::{Tolerance, certify, echoes, train};
use tcptoll_lab::lab::{HostSource as _, Hosts, Interrupt, Machine, Plan};

/// Wide, because here the error itself is the figure.
const ANY: Tolerance = Tolerance { delay_us: Some(1e6), rate: 10.0 };

pub(crate) fn lab(link: &str, packet: bool) -> anyhow::Result<Hosts> {
    let spec = LinkSpec::parse(link)?;
    let cpus: Vec<Option<u32>> = tcptoll_kernel::cpu::allowed().into_iter().map(Some).collect();
    let (client, server) = if cpus.len() > 1 { (cpus[0], cpus[1]) } else { (None, None) };
    let plan = Plan {
        link: link.to_owned(),
        ipv6: false,
        seed: 7,
        force_packet: packet,
        client_cpu: client,
        server_cpu: server,
        client_addresses: Vec::new(),
        silent_addresses: false,
    };
    let mut hosts = Machine::default().lab(&plan, &spec)?;
    certify(&mut hosts, &spec, ANY, &Interrupt::new())?.accepted()?;
    Ok(hosts)
}

pub(crate) fn rtt(table: &mut Proofs) -> anyhow::Result<()> {
    for (link, asked_us) in [
        ("rtt=0.25ms", 250.0),
        ("rtt=1ms", 1_000.0),
        ("rtt=20ms", 20_000.0),
        ("rtt=37ms", 37_000.0),
        ("rtt=200ms", 200_000.0),
    ] {
        let (median, p99) = rtt_errors(link, asked_us, false)?;
        table.row(
            &format!("RTT, {link}, 2,000 echoes: median and p99 of the error"),
            "≤ 50 µs, ≤ 500 µs",
            &format!("{median:.1} µs, {p99:.1} µs"),
            median <= 50.0 && p99 <= 500.0,
        );
    }
    Ok(())
}

/// Median and 99th percentile of |round trip - setting|, µs.
pub(crate) fn rtt_errors(link: &str, asked_us: f64, packet: bool) -> anyhow::Result<(f64, f64)> {
    let mut hosts = lab(link, packet)?;
    // Every 2.3 ms, no multiple of a timer tick; at 200 ms 87 are on their way at once.
    let rtts = echoes(&mut hosts, 2_000, 2_300_000, &Interrupt::new())?;
    if rtts.len() != 2_000 {
        bail!("{link}: {} of 2,000 echoes came back", rtts.len());
    }
    let mut errors: Vec<f64> = rtts.iter().map(|&ns| (ns as f64 / 1e3 - asked_us).abs()).collect();
    errors.sort_by(f64::total_cmp);
    let at = |num| nearest_rank(&errors, num, 100).context("2,000 values");
    Ok((at(50)?, at(99)?))
}

/// UDP datagrams of one flow, stamped at both ends: what one of them sees of the link's jitter.
pub(crate) fn jitter(table: &mut Proofs) -> anyhow::Result<()> {
    const PEER: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lab/one_way.py"));
    let folder = Folder::new("jitter")?;
    let peer = folder.file("one_way.py", PEER)?;
    let mut worst = 0.0_f64;
    for jitter_ms in [0, 1, 5, 10, 20] {
        for every_ms in ["0.7", "10", "40"] {
            // A flow is as random as another after 2.25 times the jitter: more of it takes longer.
            let seconds = if jitter_ms > 10 { "120" } else { "60" };
            let link = format!("rtt=50ms,jitter={jitter_ms}ms");
            let server = format!("python3 {peer}");
            let line = ["lab", "--link", &link, "--server", &server, "--", "python3", &peer];
            let output = Command::new(tcptoll()?).args(line).args([every_ms, seconds]).output()?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let means: Vec<f64> =
                text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            let [there, back] = means[..] else { bail!("{link}: {text}") };
            for mean_ms in [there, back] {
                worst = worst.max((mean_ms / 25.0 - 1.0).abs());
            }
            Proofs::fact(
                &format!("{link}, every {every_ms} ms"),
                &format!("{there:.3}, {back:.3} ms"),
            );
        }
    }
    table.row(
        "mean delay one way, jitter 0 to 20 ms, a packet every 0.7, 10 and 40 ms",
        "within 2 % of 25 ms",
        &format!("{:.2} % off at worst", worst * 100.0),
        worst <= 0.02,
    );
    Ok(())
}

pub(crate) fn rate(table: &mut Proofs) -> anyhow::Result<()> {
    for (kind, extra) in [("direct", ""), ("emulated", ",rtt=1ms")] {
        for (text, asked) in [("10mbit", 10e6), ("100mbit", 100e6), ("1gbit", 1e9)] {
            let link = format!("rate={text}{extra}");
            let got = steady_rate(&link, asked)?;
            let off = (got / asked - 1.0) * 100.0;
            table.row(
                &format!("line rate, {kind} link, {text}"),
                "≤ 1 % off",
                &format!("{:.2} Mbit/s, {off:+.2} %", got / 1e6),
                off.abs() <= 1.0,
            );
        }
    }
    let goodput = iperf3("lan-1g", 6)?;
    let off = (goodput / 941e6 - 1.0) * 100.0;
    table.row(
        "goodput of one TCP stream on lan-1g (iperf3, 6 s)",
        "941 Mbit/s ± 1 %",
        &format!("{:.1} Mbit/s, {off:+.2} %", goodput / 1e6),
        off.abs() <= 1.0,
    );
    Ok(())
}

fn steady_rate(link: &str, asked: f64) -> anyhow::Result<f64> {
    let mut hosts = lab(link, false)?;
    let line = line_bytes(1_428) as f64 * 8.0;
    // One second of steady state.
    let packets = (asked / line) as u64;
    let (_, arrivals) = train(&mut hosts, 0, packets, 1_400, 0, 1_200_000_000, &Interrupt::new())?;
    Ok(arrivals.steady_span as f64 * line / (arrivals.steady_ns as f64 / 1e9))
}

pub(crate) fn loss(table: &mut Proofs) -> anyhow::Result<()> {
    for (text, asked) in [("0.1%", 0.001), ("1%", 0.01), ("10%", 0.1)] {
        let mut hosts = lab(&format!("rtt=1ms,loss={text}"), false)?;
        let (sent, arrivals) =
            train(&mut hosts, 0, 50_000, 64, 30_000, 50_000_000, &Interrupt::new())?;
        let lost = sent - arrivals.packets;
        let [low, high] = exact_interval(lost, sent, 0.95).context("sent is above 0")?;
        table.row(
            &format!("loss, {text} asked, {sent} packets"),
            "inside the exact binomial 95 % interval",
            &format!("{lost} lost; interval {:.3} % to {:.3} %", low * 100.0, high * 100.0),
            (low..=high).contains(&asked),
        );
    }
    Ok(())
}

pub(crate) fn throughput(table: &mut Proofs) -> anyhow::Result<()> {
    // A link without any delay is a direct one; a microsecond makes it an emulated one.
    for (link, goal) in [("rtt=1us", 4e9), ("rtt=10ms", 2e9)] {
        let got = iperf3(link, 5)?;
        table.row(
            &format!("throughput of the emulated link, {link}, one TCP stream (iperf3, 5 s)"),
            &format!("≥ {:.0} Gbit/s", goal / 1e9),
            &format!("{:.2} Gbit/s", got / 1e9),
            got >= goal,
        );
    }
    Ok(())
}

/// The binary beside this example.
pub(crate) fn tcptoll() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let path = own.parent().and_then(|p| p.parent()).context("target folder")?.join("tcptoll");
    if !path.exists() {
        bail!("{} is not there: cargo build --release first", path.display());
    }
    Ok(path)
}

/// Received bit/s of one stream, by iperf3 in the lab.
fn iperf3(link: &str, seconds: u32) -> anyhow::Result<f64> {
    let output = Command::new(tcptoll()?)
        .args(["lab", "--quiet", "--link", link, "--link-tolerance", "delay=1ms,rate=5%"])
        .args(["--server", "iperf3 -s -1", "--"])
        .args(["sh", "-c", &format!("iperf3 -J -O 1 -t {seconds} -c $TCPTOLL_SERVER")])
        .output()?;
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    report["end"]["sum_received"]["bits_per_second"]
        .as_f64()
        .with_context(|| format!("iperf3 reports no rate: {}", report["error"]))
}

// Is a run over an emulated link valid, and is a connect as long as the link and its CPU stages?

const LINKS: [&str; 6] = ["0.25ms", "1ms", "10ms", "37ms", "100ms", "200ms"];

/// Runs of each link.
const RUNS: usize = 10;

/// Of the median connect from the round trip plus CPU, µs, on a quiet machine.
const OFF_MAX_US: f64 = 100.0;

pub(crate) fn links(table: &mut Proofs) -> anyhow::Result<()> {
    for busy in [false, true] {
        let _busy = busy.then(BusyLoop::begin);
        for rtt in LINKS {
            one(table, rtt, busy)?;
        }
    }
    Ok(())
}

fn one(table: &mut Proofs, rtt: &str, busy: bool) -> anyhow::Result<()> {
    let folder = Folder::new("links")?;
    let (mut valid, mut offs) = (0, Vec::new());
    for _ in 0..RUNS {
        // A refused link is a run that is not valid.
        let Some(summary) = connect(rtt, &folder.path("record.jsonl"))? else { continue };
        valid += usize::from(summary.valid);
        offs.extend(off_us(&summary));
    }
    offs.sort_by(f64::total_cmp);
    let median = nearest_rank(&offs, 1, 2);
    let off = median.map_or("no figure".to_owned(), |us| format!("{us:+.0} µs"));
    let (beside, least, goal) = if busy {
        ("beside one busy loop", RUNS * 9 / 10, "≥ 90 % valid".to_owned())
    } else {
        let goal = format!("all valid, median within {OFF_MAX_US:.0} µs of round trip and CPU");
        ("quiet", RUNS, goal)
    };
    let close = busy || median.is_some_and(|us| us.abs() <= OFF_MAX_US);
    table.row(
        &format!("connect --link rtt={rtt}, {beside}, {RUNS} runs"),
        &goal,
        &format!("{valid} of {RUNS} valid, median {off}"),
        valid >= least && close,
    );
    Ok(())
}

/// `None`: the link was refused.
fn connect(rtt: &str, record: &str) -> anyhow::Result<Option<Summary>> {
    let output = Command::new(tcptoll()?)
        .args(["connect", "--quiet", "--format", "json", "--out", record])
        .args(["--count", "100", "--link", &format!("rtt={rtt}")])
        .output()?;
    if output.stdout.is_empty() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return if said.contains("round trip") { Ok(None) } else { Err(anyhow::Error::msg(said)) };
    }
    Ok(Some(serde_json::from_slice(&output.stdout).context("the summary")?))
}

/// The median connect above the round trip and the CPU of its stages, µs. Both are the timeline's:
/// the histogram's three digits are 131 µs at 200 ms.
fn off_us(summary: &Summary) -> Option<f64> {
    let arm = summary.arms.first()?;
    let views = &arm.timeline.as_ref()?.views;
    let client = views.iter().find(|view| view.name == "client")?;
    Some(client.p50_us - arm.expectation.as_ref()?.client_us)
}

/// A thread that never sleeps.
struct BusyLoop {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl BusyLoop {
    fn begin() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for BusyLoop {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
