//! Does `connect` measure what it says?

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::links::{rtt_errors, tcptoll};
use crate::table::Proofs;
use tcptoll_core::record::Summary;
use tcptoll_kernel::cpu::children_of;

/// Runs `tcptoll connect …` and reads its summary.
pub(crate) fn connect(args: &[&str]) -> anyhow::Result<Summary> {
    connect_as(args, None)
}

fn connect_as(args: &[&str], uid: Option<u32>) -> anyhow::Result<Summary> {
    let mut command = Command::new(tcptoll()?);
    command.args(["connect", "--quiet", "--format", "json", "--out", "/dev/null"]).args(args);
    if let Some(uid) = uid {
        command.uid(uid).gid(uid).env("HOME", "/tmp").current_dir("/tmp");
    }
    let output = command.output()?;
    serde_json::from_slice(&output.stdout).with_context(|| {
        format!("connect {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr))
    })
}

fn metric(summary: &Summary, arm: usize, name: &str) -> anyhow::Result<f64> {
    let arm = summary.arms.get(arm).context("arm")?;
    Ok(arm.metrics.get(name).with_context(|| format!("{name} in {}", arm.name))?.value)
}

fn view(summary: &Summary, arm: usize, name: &str) -> anyhow::Result<f64> {
    let timeline = summary.arms[arm].timeline.as_ref().context("timeline")?;
    Ok(timeline.views.iter().find(|v| v.name == name).context("view")?.p50_us)
}

/// The median of connects over long links against the round trip and the CPU of the steps.
pub(crate) fn long_links(table: &mut Proofs) -> anyhow::Result<()> {
    for rtt_ms in [1, 20, 37, 100, 200, 300] {
        let mut off_us = Vec::new();
        for _ in 0..10 {
            let link = format!("rtt={rtt_ms}ms");
            let summary = connect(&["--link", &link, "--count", "1000"])?;
            let arm = &summary.arms[0];
            let p50 = arm.histograms.get("connect_us").and_then(|h| h.p50).context("p50")?;
            let expected = arm.expectation.as_ref().context("expectation")?;
            off_us.push(p50 - expected.rtt_us - expected.cpu_us.context("CPU of the steps")?);
        }
        let within = off_us.iter().filter(|us| us.abs() <= 100.0).count();
        let worst = off_us.iter().fold(0.0, |worst: f64, us| worst.max(us.abs()));
        table.row(
            &format!("connect over {rtt_ms} ms: median less round trip and CPU of the steps"),
            "within 100 µs in 10 of 10",
            &format!("{within} of 10, at worst {worst:.0} µs"),
            within == 10,
        );
    }
    Ok(())
}

pub(crate) fn latency(table: &mut Proofs) -> anyhow::Result<()> {
    let summary = connect(&["--link", "cross-region", "--count", "10000", "--rate", "400"])?;
    let mean_ms = metric(&summary, 0, "connect_us_mean")? / 1e3;
    table.row(
        "connect latency at 37 ms, mean of 10,000 at 400 per second",
        "37.0 to 37.6 ms",
        &format!("{mean_ms:.3} ms"),
        (37.0..=37.6).contains(&mean_ms),
    );
    let (client, wire) = (view(&summary, 0, "client")?, view(&summary, 0, "wire")?);
    table.row(
        "client's view against the wire's, medians",
        "within 100 µs",
        &format!("{client:.1} µs against {wire:.1} µs: {:.1} µs", client - wire),
        (client - wire).abs() <= 100.0,
    );
    Proofs::fact(
        "server: kernel SYN to ACK, process from connect() to accept()",
        &format!(
            "{:.3} ms, {:.3} ms (1 and 1.5 round trips)",
            view(&summary, 0, "server kernel")? / 1e3,
            view(&summary, 0, "server process")? / 1e3
        ),
    );
    Ok(())
}

pub(crate) fn fifty_thousand(table: &mut Proofs) -> anyhow::Result<()> {
    let summary = connect(&["--count", "50000", "--tap"])?;
    let arm = &summary.arms[0];
    let wire = arm.wire.as_ref().context("wire")?;
    let errors: u64 = arm.errors.values().sum();
    table.row(
        "50,000 connects, direct link: attempts, ok, errors",
        "50,000, 50,000, 0",
        &format!("{}, {}, {errors}", arm.attempts, arm.ok),
        arm.attempts == 50_000 && arm.ok == 50_000 && errors == 0,
    );
    let again = arm.client.counters.get("TcpExtTCPSynRetrans").copied().unwrap_or(0);
    table.row(
        "SYN on the wire against attempts + SYN retransmissions",
        "equal, no tap drops",
        &format!(
            "{} against {} + {again}, tap drops {}",
            wire.client_to_server.syn, arm.attempts, wire.tap_drops
        ),
        wire.client_to_server.syn as i64 == arm.attempts as i64 + again && wire.tap_drops == 0,
    );
    Ok(())
}

/// The published table beside ours.
pub(crate) fn study(table: &mut Proofs) -> anyhow::Result<()> {
    let output = Command::new(tcptoll()?)
        .args(["study", "connect-2021", "--quiet", "--format", "json", "--out", "/dev/null"])
        .output()?;
    let summary: Summary = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    for arm in &summary.arms {
        let mean = arm.metrics.get("connect_us_mean").context("connect_us_mean")?.value;
        let published = summary.published.iter().find(|p| p.arm == arm.name);
        let late: u64 = arm.rungs.iter().sum();
        table.row(
            &format!("connect-2021, {}: 50,000 connects", arm.name),
            &published.map_or("errors 0".to_owned(), |p| {
                format!("errors 0; published mean {} ms", p.value / 1e3)
            }),
            &format!(
                "ok {}, errors {:?}, mean {:.3} ms, {late} on the ladder, {:.0} s",
                arm.ok,
                arm.errors,
                mean / 1e3,
                arm.elapsed_s
            ),
            arm.ok == 50_000 && arm.errors.is_empty(),
        );
    }
    Ok(())
}

pub(crate) fn queue(table: &mut Proofs) -> anyhow::Result<()> {
    let burst = [
        "--rounds",
        "1",
        "--count",
        "500",
        "--concurrency",
        "500",
        "--accept-delay",
        "5ms",
        "--timeout",
        "6s",
        "--backlog",
        "16,4096",
    ];
    let named = |summary: &Summary, arm: &str| -> Vec<String> {
        summary.causes.iter().filter(|c| c.arm == arm).map(|c| c.id.clone()).collect()
    };
    for (what, link, sysctl) in [
        ("direct link", "direct", None),
        ("10 ms RTT, cookies on", "rtt=10ms", None),
        ("10 ms RTT, cookies off", "rtt=10ms", Some("net.ipv4.tcp_syncookies=0")),
    ] {
        let mut args = burst.to_vec();
        args.extend(["--link", link]);
        if let Some(sysctl) = sysctl {
            args.extend(["--server-sysctl", sysctl]);
        }
        let summary = connect(&args)?;
        let ill = &summary.arms[0];
        let causes = named(&summary, &ill.name);
        let counters = ill.server.as_ref().context("server")?;
        let count = |name: &str| counters.counters.get(name).copied().unwrap_or(0);
        let rungs: Vec<String> = ill
            .rungs
            .iter()
            .zip(&ill.syn_retry_ladder_s)
            .filter(|(n, _)| **n > 0)
            .map(|(n, at)| format!("{n} at {at} s"))
            .collect();
        table.row(
            &format!("backlog 16, 500 at once, slow accept, {what}"),
            "cause named; first byte decides",
            &format!(
                "connected {}, first byte {}, errors {:?}; ladder {rungs:?}; ListenOverflows {}, TCPReqQFullDrop {}, SyncookiesSent {}; causes {causes:?}",
                ill.histograms.get("connect_us").map_or(0, |h| h.count),
                ill.histograms.get("first_byte_us").map_or(0, |h| h.count),
                ill.errors,
                count("TcpExtListenOverflows"),
                count("TcpExtTCPReqQFullDrop"),
                count("TcpExtSyncookiesSent"),
            ),
            !causes.is_empty(),
        );
        let well = &summary.arms[1];
        table.row(
            &format!("the same with a backlog of 4096, {what}"),
            "500 ok, no cause",
            &format!("{} ok, causes {:?}", well.ok, named(&summary, &well.name)),
            well.ok == 500 && named(&summary, &well.name).is_empty(),
        );
    }
    Ok(())
}

pub(crate) fn nobody(table: &mut Proofs) -> anyhow::Result<()> {
    if tcptoll_kernel::process::uid() != 0 {
        bail!("only root can become uid 65534");
    }
    let summary = connect_as(&["--link", "rtt=10ms", "--count", "1000"], Some(65_534))?;
    let arm = &summary.arms[0];
    let link = arm.link.as_ref().context("link")?;
    table.row(
        "as uid 65534: connect at 10 ms RTT",
        "works",
        &format!(
            "{} of {} ok over {}, mean {:.3} ms",
            arm.ok,
            arm.attempts,
            serde_json::to_value(link.kind)?.as_str().unwrap_or_default(),
            metric(&summary, 0, "connect_us_mean")? / 1e3
        ),
        arm.ok == 1_000,
    );
    for (link, asked) in [("rtt=0.25ms", 250.0), ("rtt=10ms", 10_000.0), ("rtt=37ms", 37_000.0)] {
        let (median, p99) = rtt_errors(link, asked, true)?;
        Proofs::fact(
            &format!("the AF_PACKET relay's own accuracy, {link}: median and p99 of the error"),
            &format!("{median:.1} µs, {p99:.1} µs"),
        );
    }
    Ok(())
}

pub(crate) fn servers(table: &mut Proofs) -> anyhow::Result<()> {
    let folder = std::env::temp_dir().join(format!("tcptoll-prove-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let nginx = nginx_command(&folder)?;
    let redis = "redis-server --port 6379 --save '' --protected-mode no --daemonize no".to_owned();
    for (name, server, port, send) in [
        ("nginx", &nginx, 8080, "GET / HTTP/1.0\\r\\n\\r\\n"),
        ("Redis", &redis, 6379, "PING\\r\\n"),
    ] {
        let summary = connect(&["--link", "same-room", "--server", server, "--send", send])?;
        let arm = &summary.arms[0];
        table.row(
            &format!("{name} as --server in the lab, 1,000 connections with a first byte"),
            "all ok",
            &format!("{} of {} ok", arm.ok, arm.attempts),
            arm.ok == 1_000,
        );
        // As a target: inside a lab, so that no port of this machine is taken.
        let inner = format!(
            "{} connect --quiet --format json --out /dev/null --send '{send}' --to $TCPTOLL_SERVER:{port}",
            tcptoll()?.display()
        );
        let output = Command::new(tcptoll()?)
            .args(["lab", "--quiet", "--link", "same-room", "--server", server, "--", "sh", "-c"])
            .arg(&inner)
            .output()?;
        let summary: Value = serde_json::from_slice(&output.stdout)
            .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
        let (attempts, ok) = (&summary["arms"][0]["attempts"], &summary["arms"][0]["ok"]);
        table.row(
            &format!("{name} as --to target"),
            "all ok",
            &format!("{ok} of {attempts} ok"),
            ok.as_u64() == Some(1_000),
        );
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

fn nginx_command(folder: &std::path::Path) -> anyhow::Result<String> {
    let path = folder.join("nginx.conf");
    let root = folder.display();
    std::fs::write(
        &path,
        format!(
            "daemon off; pid {root}/pid; error_log stderr; events {{ worker_connections 4096; }}\n\
             http {{ access_log off; client_body_temp_path {root}/b; proxy_temp_path {root}/p;\n\
             fastcgi_temp_path {root}/f; uwsgi_temp_path {root}/u; scgi_temp_path {root}/s;\n\
             server {{ listen 8080; location / {{ return 200 hello; }} }} }}\n"
        ),
    )?;
    Ok(format!("nginx -c {}", path.display()))
}

// Is a client that stood still named, in every experiment, and one that ran in none?

/// Each load lasts six seconds; its lab takes two at most before.
const LOADS: [&[&str]; 6] = [
    &["http", "--server", "null", "--duration", "6s", "--io", "io-uring"],
    &["http", "--server", "null", "--duration", "6s", "--io", "epoll"],
    &["stream", "--duration", "6s"],
    &["messages", "--duration", "6s", "--message", "64", "--nagle", "off"],
    &["page", "--server", "nginx", "--link", "rtt=5ms", "--keepalive", "on", "--loads", "200"],
    &["keepalive", "--duration", "6s", "--connections", "50", "--idle", "1s", "--mechanism", "tcp"],
];

/// When it is stopped, after it was started.
const AFTER: Duration = Duration::from_secs(4);

/// Runs without a stop, each of which must say nothing.
const CONTROLS: usize = 20;

/// A process and all that it started.
fn tree(pid: u32) -> Vec<u32> {
    std::iter::once(pid).chain(children_of(pid).into_iter().flat_map(tree)).collect()
}

fn signal(name: &str, pids: &[u32]) -> anyhow::Result<()> {
    let pids = pids.iter().map(u32::to_string);
    // Some may have ended.
    Command::new("kill").arg(name).args(pids).stderr(Stdio::null()).status()?;
    Ok(())
}

fn ran(args: &[&str], stop: Option<Duration>) -> anyhow::Result<bool> {
    let mut command = Command::new(tcptoll()?);
    command.args(args).args(["--quiet", "--format", "json", "--out", "/dev/null"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    if let Some(stop) = stop {
        thread::sleep(AFTER);
        let pids = tree(child.id());
        signal("-STOP", &pids)?;
        thread::sleep(stop);
        signal("-CONT", &pids)?;
    }
    let output = child.wait_with_output()?;
    let summary: Summary =
        serde_json::from_slice(&output.stdout).with_context(|| args.join(" "))?;
    Ok(summary.warnings.iter().any(|warning| warning.id == "stood-still"))
}

pub(crate) fn stalls(table: &mut Proofs) -> anyhow::Result<()> {
    for args in LOADS {
        let mut missed = Vec::new();
        for ms in [500, 1_000, 2_000] {
            if !ran(args, Some(Duration::from_millis(ms)))? {
                missed.push(format!("{ms} ms"));
            }
        }
        table.row(
            &format!("{}: all of it stopped for 0.5, 1 and 2 s", args.join(" ")),
            "named in 3 of 3",
            &format!("missed: {missed:?}"),
            missed.is_empty(),
        );
        let paused = ran(args, Some(Duration::from_millis(40)))?;
        table.row(
            &format!("{}: all of it stopped for 40 ms", args.join(" ")),
            "not named",
            if paused { "named" } else { "not named" },
            !paused,
        );
        let mut alarms = 0;
        for _ in 0..CONTROLS {
            alarms += usize::from(ran(args, None)?);
        }
        table.row(
            &format!("{}: not stopped", args.join(" ")),
            &format!("named in 0 of {CONTROLS}"),
            &format!("named in {alarms}"),
            alarms == 0,
        );
    }
    Ok(())
}
