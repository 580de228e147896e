//! What does `keepalive` count, and is it so? Probes on the wire, large fleets, deaths.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use tcptoll_core::record::{Arm, Deaths, Summary};

use crate::http::{only, summary};
use crate::table::Proofs;

/// Idle connections of the large fleet.
const MANY: &str = "50000";

/// Client memory that a connection of the idle fleet may take, KiB.
const MEMORY_KIB: f64 = 0.5;

/// Each mechanism, with what its arms are asked for.
const MECHANISMS: [(&str, &[&str]); 5] = [
    ("tcp", &["--mechanism", "tcp", "--idle", "10s", "--interval", "10s"]),
    ("heartbeat", &HEARTBEAT),
    ("heartbeat, answered", &with(["--evidence", "answered"])),
    ("heartbeat, each as it comes", &with(["--tick", "10us"])),
    ("lazy", &["--mechanism", "lazy", "--answer-within", "5s"]),
];

/// A Null every 10 s.
const HEARTBEAT: [&str; 6] = ["--mechanism", "heartbeat", "--idle", "10s", "--answer-within", "5s"];

const fn with(more: [&'static str; 2]) -> [&'static str; 8] {
    let [mechanism, name, idle, every, within, answer] = HEARTBEAT;
    let [option, value] = more;
    [mechanism, name, idle, every, within, answer, option, value]
}

fn keepalive(args: &[&str]) -> anyhow::Result<Summary> {
    summary(&["keepalive"], args).map(|(summary, _)| summary)
}

fn counter(arm: &Arm, name: &str) -> i64 {
    let count = |counters: &std::collections::BTreeMap<String, i64>| {
        counters.get(name).copied().unwrap_or(0)
    };
    count(&arm.client.counters) + arm.server.as_ref().map_or(0, |server| count(&server.counters))
}

fn metric(arm: &Arm, name: &str) -> Option<f64> {
    arm.metrics.get(name).map(|metric| metric.value)
}

/// The kernel's count of probes, and the wire's.
pub(crate) fn probes(table: &mut Proofs) -> anyhow::Result<()> {
    for (what, args) in [
        ("1,000 sockets", &["--sockets", "1000", "--idle", "1s", "--duration", "10s"] as &[&str]),
        (
            "1,000 sockets, both sides",
            &["--sockets", "1000", "--idle", "1s", "--duration", "10s", "--side", "both"],
        ),
        (
            "50,000 sockets",
            &["--sockets", MANY, "--idle", "5s", "--duration", "10s", "--link", "rtt=1ms"],
        ),
        (
            "20,000 sockets that probe at once",
            &[
                "--sockets",
                "20000",
                "--idle",
                "2s",
                "--duration",
                "6s",
                "--warmup",
                "0s",
                "--link",
                "rtt=1ms",
            ],
        ),
    ] {
        let mut all = vec!["--mechanism", "tcp", "--writer", "off"];
        all.extend(args);
        let summary = keepalive(&all)?;
        let arm = only(&summary)?;
        let wire = arm.wire.as_ref().context("wire")?;
        let seen = wire.client_to_server.keepalive_probe + wire.server_to_client.keepalive_probe;
        let answers = wire.client_to_server.keepalive_ack + wire.server_to_client.keepalive_ack;
        let sent = counter(arm, "TcpExtTCPKeepAlive");
        let drops = arm.link.as_ref().context("link")?.unwanted_drops;
        let closed: u64 = arm.errors.values().sum();
        table.row(
            &format!("keep-alive probes, {what}: TcpExtTCPKeepAlive of both hosts, and the wire"),
            "equal; local drops 0; every probe answered, no connection lost",
            &format!("{sent} and {seen}, answers {answers}, drops {drops}, errors {closed}"),
            sent > 0 && sent as u64 == seen && answers == seen && drops == 0 && closed == 0,
        );
    }
    Ok(())
}

/// 50,000 idle connections with each mechanism.
pub(crate) fn many(table: &mut Proofs) -> anyhow::Result<()> {
    let mut idle_us = None;
    let none: (&str, &[&str]) = ("none", &["--mechanism", "none"]);
    for (name, mechanism) in [none].into_iter().chain(MECHANISMS) {
        let mut args = vec![
            "--sockets",
            MANY,
            "--writer",
            "off",
            "--warmup",
            "10s",
            "--duration",
            "10s",
            "--link",
            "rtt=1ms",
        ];
        args.extend(mechanism);
        let summary = keepalive(&args)?;
        let arm = only(&summary)?;
        let checked = arm.own.keepalive.as_ref().context("keepalive")?;
        let machine = metric(arm, "machine_cpu_us_per_s_per_1000_sockets").context("CPU")?;
        let link = metric(arm, "link_cpu_us_per_s_per_1000_sockets").context("link's CPU")?;
        let fleet = |end: &str| {
            metric(arm, &format!("{end}_fleet_cpu_us_per_s_per_1000_sockets")).unwrap_or(0.0)
        };
        let kib = metric(arm, "client_bytes_per_socket").context("memory")? / 1024.0;
        let kernel = metric(arm, "client_kernel_bytes_per_socket").map(|bytes| bytes / 1024.0);
        let errors: u64 = arm.errors.values().sum();
        let more = idle_us
            .map_or(String::new(), |idle: f64| format!(" ({:+.0} against none)", machine - idle));
        if name == "none" {
            idle_us = Some(machine);
        }
        table.row(
            &format!("{MANY} idle connections, {name}, every 10 s, both hosts on 2 CPUs"),
            &format!("all of them live; client memory of one at most {MEMORY_KIB} KiB"),
            &format!(
                "{} of {} live, {} + {} processes; CPU per second and 1,000 connections: machine \
                 {machine:.0} µs{more}, link with what receiving costs {link:.0} µs, fleets {:.0} + {:.0} µs, {} wake-ups/s; {:.0} packets/s; \
                 client memory of one {kib:.3} KiB, kernel {}",
                arm.ok,
                arm.attempts,
                checked.processes[0],
                checked.processes[1],
                fleet("client"),
                fleet("server"),
                (checked.wakeups as f64 / checked.window_s).round(),
                metric(arm, "checking_packets_per_hour_per_socket").unwrap_or(0.0) / 3600.0
                    * checked.idle_sockets as f64,
                kernel.map_or("unknown".to_owned(), |kib| format!("{kib:.2} KiB")),
            ),
            arm.ok == arm.attempts && arm.ok == 50_000 && errors == 0 && kib <= MEMORY_KIB,
        );
    }
    Ok(())
}

/// When each mechanism knows of 1,000 deaths, and false alarms of a lossy link.
pub(crate) fn deaths(table: &mut Proofs) -> anyhow::Result<()> {
    let common = ["--sockets", "2000", "--writer", "off", "--duration", "1s", "--fault", "cut"];
    let cut: [(&str, &[&str]); 6] = [
        ("tcp", &["--mechanism", "tcp"]),
        (
            "tcp, idle 5 s, 4 probes every 2 s",
            &["--mechanism", "tcp", "--idle", "5s", "--interval", "2s", "--probes", "4"],
        ),
        ("heartbeat", &["--mechanism", "heartbeat"]),
        ("heartbeat, answered", &["--mechanism", "heartbeat", "--evidence", "answered"]),
        ("write, TCP_USER_TIMEOUT 3 s", &["--mechanism", "write", "--user-timeout", "3s"]),
        (
            "lazy",
            &["--mechanism", "lazy", "--at-once", "1000", "--arrivals", "500", "--watch", "15s"],
        ),
    ];
    for (name, mechanism) in cut {
        let mut args = common.to_vec();
        args.extend(["--fault-share", "50%"]);
        args.extend(mechanism);
        let summary = keepalive(&args)?;
        let arm = only(&summary)?;
        let deaths = deaths_of(arm)?;
        let range = arm.histograms.get("detection_us").context("detection_us")?;
        let s = |us: Option<f64>| us.map_or("—".to_owned(), |us| format!("{:.2}", us / 1e6));
        let limit = deaths.due_s();
        table.row(
            &format!("1,000 of 2,000 connections cut off, {name}"),
            "every dead one known, none later than the computed bound and the timers' granularity; live ones closed 0",
            &format!(
                "{} of {} known by {:?}, after {} / {} / {} s (least, median, most), bound {}; \
                 late {}; live ones closed {} of {}",
                deaths.known, deaths.dead, deaths.known_by, s(range.min), s(range.p50), s(range.max),
                limit.map_or("none: when room is needed".to_owned(), |limit| format!(
                    "{:.2} + {:.2} s (run up to {:.3} s late)",
                    deaths.bound_s.unwrap_or(0.0),
                    limit - deaths.bound_s.unwrap_or(0.0),
                    deaths.behind_s.unwrap_or(0.0)
                )),
                deaths.late, deaths.wrongly_closed, deaths.alive
            ),
            deaths.dead == 1_000
                && deaths.known == deaths.dead
                && deaths.late == 0
                && deaths.wrongly_closed == 0,
        );
    }
    let lossy: [(&str, &[&str]); 4] = [
        ("tcp, 1 probe", &["--mechanism", "tcp", "--probes", "1"]),
        ("tcp, 2 probes", &["--mechanism", "tcp", "--probes", "2"]),
        (
            "heartbeat, evidence within 0.3 s",
            &["--mechanism", "heartbeat", "--answer-within", "300ms"],
        ),
        (
            "heartbeat, evidence within 0.7 s",
            &["--mechanism", "heartbeat", "--answer-within", "700ms"],
        ),
    ];
    for (name, mechanism) in lossy {
        let mut args = vec![
            "--sockets",
            "1000",
            "--writer",
            "off",
            "--duration",
            "1s",
            "--fault",
            "loss=5%",
            "--watch",
            "20s",
        ];
        args.extend(mechanism);
        let summary = keepalive(&args)?;
        let deaths = deaths_of(only(&summary)?)?;
        let [least, mean, most] = deaths.expected_wrongly.context("an expectation")?;
        let wrongly = deaths.wrongly_closed as f64;
        table.row(
            &format!("1,000 live connections under a loss of 5 % each way for 20 s, {name}"),
            "false alarms inside the binomial interval (99 %) of the computed rate",
            &format!(
                "{wrongly} of {} tests, computed {:.4} each: {least:.0} to {most:.0}, mean {mean:.1}",
                deaths.tests.unwrap_or(0),
                deaths.test_probability.unwrap_or(0.0),
            ),
            (least..=most).contains(&wrongly),
        );
    }
    Ok(())
}

fn deaths_of(arm: &Arm) -> anyhow::Result<&Deaths> {
    arm.own.keepalive.as_ref().and_then(|checked| checked.deaths.as_ref()).context("deaths")
}

/// The published table beside ours, and how long it took.
pub(crate) fn study(table: &mut Proofs) -> anyhow::Result<()> {
    let begun = Instant::now();
    let (summary, _) = summary(&["study", "keepalive-2003"], &[])?;
    let took_s = begun.elapsed().as_secs_f64();
    for arm in &summary.arms {
        let rate = arm.metrics.get("messages_per_s").context("messages_per_s")?;
        let published: Vec<String> = summary
            .published
            .iter()
            .filter(|p| p.arm == arm.name && p.metric == "messages_per_s")
            .map(|p| format!(", published {} ({})", p.value, p.source))
            .collect();
        Proofs::fact(
            &format!("keepalive-2003, {}", arm.name),
            &format!(
                "{:.0} messages/s {}; probes {:.0}; {} rounds{}",
                rate.value,
                rate.ci95.map_or(String::new(), |[low, high]| format!("[{low:.0}, {high:.0}]")),
                metric(arm, "keepalive_probes").unwrap_or(0.0),
                arm.rounds.len(),
                published.concat()
            ),
        );
    }
    for comparison in &summary.comparisons {
        Proofs::fact(
            &format!("{} against {}", comparison.a, comparison.b),
            &format!(
                "{}, ratio {}{}",
                comparison.verdict,
                comparison.ratio.map_or("—".to_owned(), |ratio| format!("{ratio:.4}")),
                comparison
                    .ci95
                    .map_or(String::new(), |[low, high]| format!(" [{low:.4}, {high:.4}]")),
            ),
        );
    }
    Proofs::fact("its answer", &summary.answer);
    let found =
        summary.comparisons.iter().filter(|c| c.verdict.to_string() != "not enough evidence");
    let (found, all) = (found.count(), summary.comparisons.len());
    table.row(
        "keepalive-2003: a verdict for each row, the A/A beside it",
        "all rows within 180 s",
        &format!("{found} of {all} rows with a verdict, {took_s:.0} s"),
        found == all && all > 0 && took_s <= 180.0,
    );
    Ok(())
}

/// Does anything happen in a trial as long as the published ones that does not in a short one?
///
/// The two trials run side by side: what is looked at is not a rate.
pub(crate) fn as_long_as_published(table: &mut Proofs) -> anyhow::Result<()> {
    let common = [
        "--sockets",
        "51",
        "--message",
        "977",
        "--rate",
        "1000",
        "--link",
        "rtt=0.25ms,rate=100mbit",
        "--duration",
        "670s",
    ];
    let on = [
        "--mechanism",
        "tcp",
        "--side",
        "both",
        "--idle",
        "kernel",
        "--interval",
        "kernel",
        "--probes",
        "kernel",
    ];
    let trial = |arm: &[&str]| summary(&["keepalive"], &[arm, &common].concat());
    let (with, without) = std::thread::scope(|scope| {
        let other = scope.spawn(|| trial(&["--mechanism", "none"]));
        let with = trial(&on);
        (with, other.join())
    });
    let without = without.map_err(|_| anyhow::anyhow!("a thread of the trial without"))?;
    for (option, ran) in [("on", with), ("off", without)] {
        let (summary, status) = ran?;
        let arm = only(&summary)?;
        let counted = metric(arm, "keepalive_probes").unwrap_or(0.0);
        let wire = arm.wire.as_ref().context("wire")?;
        let seen = wire.client_to_server.keepalive_probe + wire.server_to_client.keepalive_probe;
        table.row(
            &format!("one trial of 670 s, 51 sockets, SO_KEEPALIVE {option}: probes on the wire, probes the kernels counted"),
            "0 and 0; all connections live",
            &format!(
                "{seen} and {counted:.0}; {} of {} connections live, {:.0} s, exit {status:?}",
                arm.ok, arm.attempts, arm.elapsed_s
            ),
            seen == 0 && counted == 0.0 && arm.ok == arm.attempts && arm.elapsed_s >= 670.0,
        );
    }
    Ok(())
}

/// The library's own simulation and fuzzing, a million runs each.
pub(crate) fn library(table: &mut Proofs) -> anyhow::Result<()> {
    for (example, what, goal) in [
        (
            "simulate",
            "tcp-heartbeat: 10^6 random schedules of reaper and fleet",
            "0 live connections closed; dead ones closed within deadline + one tick",
        ),
        (
            "fuzz",
            "tcp-heartbeat: 10^6 hostile inputs to the framing",
            "no corruption, no reordering, memory within its bound",
        ),
    ] {
        let output = Command::new("cargo")
            .args(["run", "--release", "--locked", "--quiet", "--package", "tcp-heartbeat"])
            .args(["--example", example, "--", "1000000"])
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(!text.trim().is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        let told: Vec<&str> = text.lines().map(str::trim).collect();
        table.row(what, goal, &told.join("; "), output.status.success());
    }
    Ok(())
}
