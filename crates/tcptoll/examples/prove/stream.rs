//! Are `stream` and `messages` as cheap as their peers, and is what they say of bytes, windows, segments
//! and stalls true?

use anyhow::{Context as _, ensure};
use tcptoll_core::record::{Arm, Summary, Transfer, Way};
use tcptoll_core::study::stop::MIN_ROUNDS;

use crate::contest::Ratio;
use crate::contest::bulk::{self, Contestant, peer_skips_receive};
use crate::contest::exchange::{self, BARE, OURS, QPERF, SOCKPERF};
use crate::contest::peers::version_of;
use crate::http::{quantile_us, summary};
use crate::table::Proofs;

/// Length of a contestant's turn, s.
const SECONDS: u64 = 2;

fn needs(program: &str) -> anyhow::Result<()> {
    let present = version_of(program, program).is_some();
    ensure!(present, "{program} is missing: install the package {program}");
    Ok(())
}

fn shown(ratio: &Ratio, digits: usize, unit: &str) -> String {
    format!(
        "{:.3} {}, {:.digits$} {unit} against {:.digits$} {unit}, {} rounds",
        ratio.value,
        ratio.interval(),
        ratio.ours,
        ratio.theirs,
        ratio.rounds
    )
}

/// One stream beside iperf3's, on a direct link.
pub(crate) fn iperf3(table: &mut Proofs) -> anyhow::Result<()> {
    needs("iperf3")?;
    let skips = peer_skips_receive();
    let both = if skips { &Contestant::SKIPS_BOTH[..] } else { &Contestant::SKIPS_BOTH[..1] };
    let contestants = [&Contestant::COPIES[..], &Contestant::SKIPS_ONE[..], both].concat();
    let contest = bulk::run(&contestants, None, MIN_ROUNDS, SECONDS)?;
    let mut pairs = vec![
        (Contestant::COPIES, "both copy every byte"),
        (Contestant::SKIPS_ONE, "both senders skip their copy"),
    ];
    if skips {
        pairs.push((Contestant::SKIPS_BOTH, "both ends of both skip their copies"));
    }
    for ([ours, theirs], copies) in pairs {
        let what =
            format!("{} against {}, one stream, direct link, {copies}", ours.name(), theirs.name());
        let ratio = |figure| {
            let ratio = contest.ratio(ours.name(), theirs.name(), figure);
            ratio.with_context(|| format!("{what}: no figure"))
        };
        let goodput = ratio(|sample: &bulk::Sample| sample.goodput_gbit)?;
        let client = ratio(|sample: &bulk::Sample| sample.client_cpu)?;
        let server = ratio(|sample: &bulk::Sample| sample.server_cpu)?;
        let goodput_shown = shown(&goodput, 2, "Gbit/s");
        let client_shown = shown(&client, 3, "s");
        // What skips a copy has no goal: it is there to be seen apart.
        if copies == "both copy every byte" {
            let met = goodput.value >= 1.0;
            table.row(&format!("goodput: {what}"), "≥ 1.00", &goodput_shown, met);
            let met = client.value <= 0.8;
            table.row(&format!("client CPU per GB: {what}"), "≤ 0.80", &client_shown, met);
        } else {
            Proofs::fact(&format!("goodput: {what}"), &goodput_shown);
            Proofs::fact(&format!("client CPU per GB: {what}"), &client_shown);
        }
        Proofs::fact(&format!("server CPU per GB: {what}"), &shown(&server, 3, "s"));
    }
    if !skips {
        let name = Contestant::SKIPS_BOTH[0].name();
        let entry = contest.entries().iter().find(|(other, _)| *other == name);
        let (_, samples) = entry.context("no rounds")?;
        let mean = |figure: fn(&bulk::Sample) -> f64| {
            samples.iter().map(figure).sum::<f64>() / samples.len().max(1) as f64
        };
        Proofs::fact(
            &format!("{name}, one stream, direct link; this iperf3 has no --skip-rx-copy"),
            &format!(
                "{:.2} Gbit/s, {:.3} s of client CPU per GB",
                mean(|sample| sample.goodput_gbit),
                mean(|sample| sample.client_cpu)
            ),
        );
    }
    Ok(())
}

/// A byte there and a byte back, beside sockperf, qperf and the least that it takes.
pub(crate) fn exchanges(table: &mut Proofs) -> anyhow::Result<()> {
    needs(SOCKPERF)?;
    needs(QPERF)?;
    let names = [OURS, SOCKPERF, QPERF, BARE];
    let contest = exchange::run(&names, MIN_ROUNDS, SECONDS)?;
    for peer in [SOCKPERF, QPERF, BARE] {
        for (what, figure) in FIGURES {
            let ratio = contest.ratio(OURS, peer, *figure);
            let ratio = ratio.with_context(|| format!("{what} of {peer}: no figure"))?;
            // Both make the same system calls, so that half of all runs would find a ratio just above 1.
            let same = peer == BARE
                && ratio.value <= SAME
                && ratio.ci95.is_some_and(|[low, _]| low <= 1.0);
            table.row(
                &format!("{what}, an exchange of 1 byte, direct link, against {peer}"),
                if peer == BARE {
                    "≤ 1.00, or ≤ 1.02 with 1.00 in the interval"
                } else {
                    "≤ 1.00"
                },
                &shown(&ratio, 2, "µs"),
                ratio.value <= 1.0 || same,
            );
        }
    }
    Ok(())
}

/// A ratio that two programs with the same system calls may have by chance.
const SAME: f64 = 1.02;

/// A figure of an exchange: its name, and where it is found.
type Figure = (&'static str, fn(&exchange::Sample) -> f64);

const FIGURES: &[Figure] = &[
    ("latency", |sample| sample.round_trip_us),
    ("client CPU", |sample| sample.client_cpu_us),
    ("server CPU", |sample| sample.server_cpu_us),
];

/// The link of the window study.
const WINDOW_LINK: &str = "rtt=10ms,rate=1gbit";

/// Buffers of the window study.
const WINDOWS: &str = "16K,32K,64K,128K,256K,512K,1M";

/// Of the goodput from the arithmetic.
const OFF_MAX: f64 = 0.10;

/// Is the goodput that of the window, and the cause the one of the arithmetic?
pub(crate) fn windows(table: &mut Proofs) -> anyhow::Result<()> {
    for congestion in ["cubic", "bbr"] {
        let args = ["--link", WINDOW_LINK, "--congestion", congestion, "--receive-buffer", WINDOWS];
        receive_windows(table, congestion, &stream(&args)?)?;
        // A receiver that never limits: 4 MiB hold more than twice the bandwidth-delay product.
        let args = ["--link", WINDOW_LINK, "--congestion", congestion, "--send-buffer", WINDOWS];
        let args = [&args[..], &["--receive-buffer", "4M"]].concat();
        send_buffers(table, congestion, &stream(&args)?)?;
    }
    Ok(())
}

fn stream(args: &[&str]) -> anyhow::Result<Summary> {
    Ok(summary(&["stream"], args)?.0)
}

/// The recorded stream of an arm, from client to server.
fn up(arm: &Arm) -> anyhow::Result<(&Transfer, &Way)> {
    let transfer = arm.own.transfer.as_ref();
    let transfer = transfer.with_context(|| format!("{}: nothing recorded", arm.name))?;
    let way = transfer.up.as_ref();
    Ok((transfer, way.with_context(|| format!("{}: nothing was sent", arm.name))?))
}

/// Causes that the run names for an arm.
fn causes<'a>(summary: &'a Summary, arm: &Arm) -> Vec<&'a str> {
    let of_arm = summary.causes.iter().filter(|cause| cause.arm == arm.name);
    of_arm.map(|cause| cause.id.as_str()).collect()
}

fn receive_windows(table: &mut Proofs, congestion: &str, found: &Summary) -> anyhow::Result<()> {
    /// Where the two bounds are this near, either is right.
    const CROSSOVER: f64 = 0.10;
    let (mut worst, mut wrong) = (0.0_f64, Vec::new());
    for arm in &found.arms {
        let (transfer, way) = up(arm)?;
        let goodput = way.goodput_bytes_per_s().context("an empty window")?;
        let window = way.sender.peer_window_bytes.context("no tcpi_snd_wnd")?;
        let rtt_us = transfer.quiet_rtt_us.context("no echo")?;
        let link = transfer.link_bytes_per_s.context("a link without a rate")?;
        let by_window = window / (rtt_us / 1e6);
        let expected = by_window.min(link);
        let off = goodput / expected - 1.0;
        worst = if off.abs() > worst.abs() { off } else { worst };
        let right: &[&str] = match by_window / link {
            ratio if (ratio - 1.0).abs() <= CROSSOVER => &["receive-window", "link-rate"],
            ratio if ratio < 1.0 => &["receive-window"],
            _ => &["link-rate"],
        };
        let named = causes(found, arm);
        if named.is_empty() || !named.iter().all(|name| right.contains(name)) {
            wrong.push(format!("{}: {} instead of {}", arm.name, named.join("+"), right.join("/")));
        }
        Proofs::fact(
            &format!("{congestion}, {WINDOW_LINK}, {}", arm.name),
            &format!(
                "{:.1} Mbit/s, min(link, {window:.0} B / {:.2} ms) is {:.1}: {:+.1} %; {}",
                goodput * 8e-6,
                rtt_us / 1e3,
                expected * 8e-6,
                off * 1e2,
                named.join(", ")
            ),
        );
    }
    let arms = found.arms.len();
    table.row(
        &format!("{congestion}, {WINDOW_LINK}, receive windows {WINDOWS}: goodput against min(link, tcpi_snd_wnd / RTT)"),
        "within 10 % in every arm",
        &format!("largest difference {:+.1} %, {arms} arms", worst * 1e2),
        arms == WINDOWS.split(',').count() && worst.abs() <= OFF_MAX,
    );
    table.row(
        &format!("{congestion}, {WINDOW_LINK}, receive windows {WINDOWS}: cause"),
        "right in every arm, at the crossover either",
        &format!("{} of {arms} right{}", arms - wrong.len(), listed(&wrong)),
        wrong.is_empty(),
    );
    Ok(())
}

/// Arms that the kernel limited by their send buffer must say so, and no other.
fn send_buffers(table: &mut Proofs, congestion: &str, found: &Summary) -> anyhow::Result<()> {
    let mut wrong = Vec::new();
    for arm in &found.arms {
        let (transfer, way) = up(arm)?;
        let goodput = way.goodput_bytes_per_s().context("an empty window")?;
        let link = transfer.link_bytes_per_s.context("a link without a rate")?;
        let in_flight = way.sender.in_flight_max_bytes.context("no bytes in flight")?;
        let rtt_us = transfer.quiet_rtt_us.context("no echo")?;
        let by_buffer = in_flight / (rtt_us / 1e6);
        let named = causes(found, arm);
        // Below nine tenths of the link only the buffer is left.
        let is_right = match goodput / link {
            share if share < 0.90 => named == ["send-buffer"],
            share if share < 0.97 => matches!(named[..], ["send-buffer" | "link-rate"] | []),
            _ => named == ["link-rate"],
        };
        if !is_right {
            wrong.push(format!("{}: {}", arm.name, named.join("+")));
        }
        Proofs::fact(
            &format!("{congestion}, {WINDOW_LINK}, {}", arm.name),
            &format!(
                "{:.1} Mbit/s, {in_flight:.0} B in flight at the most, by which {:.1}; send buffer {} B; {}",
                goodput * 8e-6,
                by_buffer.min(link) * 8e-6,
                transfer.client.send_buffer.effective_bytes,
                named.join(", ")
            ),
        );
    }
    let arms = found.arms.len();
    table.row(
        &format!("{congestion}, {WINDOW_LINK}, send buffers {WINDOWS}, receive buffer 4M: cause"),
        "send-buffer below the link's rate, link-rate at it",
        &format!("{} of {arms} right{}", arms - wrong.len(), listed(&wrong)),
        wrong.is_empty() && arms == WINDOWS.split(',').count(),
    );
    Ok(())
}

fn listed(wrong: &[String]) -> String {
    if wrong.is_empty() { String::new() } else { format!("; {}", wrong.join("; ")) }
}

/// Bytes sent, received and on the wire.
pub(crate) fn bytes(table: &mut Proofs) -> anyhow::Result<()> {
    let runs: &[(&str, &[&str])] = &[
        ("direct link, tapped, limited to 2 Gbit/s", &["--tap", "--rate", "2gbit"]),
        ("10 ms, 200 Mbit/s", &["--link", "rtt=10ms,rate=200mbit"]),
        ("10 ms, 0.5 % loss", &["--link", "rtt=10ms,rate=200mbit,loss=0.5%"]),
        (
            "10 ms, 0.5 % loss, both directions, 4 connections",
            &["--link", "rtt=10ms,rate=200mbit,loss=0.5%", "--direction", "both", "--streams", "4"],
        ),
        (
            "10 ms, 0.5 % loss, 20 MB, sendfile and MSG_TRUNC",
            &["--link", "rtt=10ms,loss=0.5%", "--bytes", "20M", "--zerocopy", "both"],
        ),
        (
            "5 ms, messages of 100 B, Nagle off",
            &["--link", "rtt=5ms", "--message", "100", "--nagle", "off"],
        ),
    ];
    for (what, args) in runs {
        let found = stream(args)?;
        let arm = crate::http::only(&found)?;
        let transfer = arm.own.transfer.as_ref().context("nothing recorded")?;
        let lost = found.arms.iter().filter_map(|arm| arm.wire.as_ref());
        let drops: u64 = lost.map(|wire| wire.tap_drops).sum();
        for (direction, way) in transfer.ways() {
            let wire = way.wire_bytes.context("nobody watched the link")?;
            let again = way.wire_retransmitted_bytes.context("nobody watched the link")?;
            let kernel = way.kernel_sent_bytes.zip(way.kernel_retransmitted_bytes);
            let first = kernel.map(|(sent, again)| sent - again);
            let equal = [way.received_bytes, wire].iter().all(|bytes| *bytes == way.sent_bytes)
                && first.is_none_or(|first| first == way.sent_bytes);
            let has_loss = args.iter().any(|arg| arg.contains("loss"));
            table.row(
                &format!("bytes {direction}: {what}"),
                "sent = received = on the wire without headers and retransmissions",
                &format!(
                    "{} sent, {} received, {wire} on the wire and {again} of it again; kernel: {} first; \
                     {drops} packets not seen",
                    way.sent_bytes,
                    way.received_bytes,
                    first.map_or("unknown".to_owned(), |first| first.to_string()),
                ),
                equal && way.sent_bytes > 0 && (!has_loss || again > 0),
            );
        }
    }
    Ok(())
}

/// Messages of 1 to 64 bytes: segments for each, and who was the limit.
pub(crate) fn small_messages(table: &mut Proofs) -> anyhow::Result<()> {
    /// From this share of a CPU on an end did not wait.
    const BUSY: f64 = 0.9;
    let args = ["--message", "1,4,16,64", "--nagle", "on,off", "--duration", "2s"];
    let found = summary(&["messages"], &args)?.0;
    for arm in &found.arms {
        let metric = |name: &str| arm.metrics.get(name).map(|metric| metric.value);
        let segments = metric("client_segments_per_op");
        let share = |name| metric(name).with_context(|| format!("{}: no {name}", arm.name));
        let (client, server) = (share("client_cpu_share")?, share("server_cpu_share")?);
        let named = causes(&found, arm);
        let of_sender = named.iter().any(|name| matches!(*name, "message-overhead" | "client-cpu"));
        let of_other = !named.is_empty() && !of_sender;
        table.row(
            &format!("messages, direct link, {}", arm.name),
            "segments per message stated; the sender is the limit, or a cause says otherwise",
            &format!(
                "{} segments per message, {:.0}/s; CPU share of the sender {client:.2}, of the receiver \
                 {server:.2}; {}",
                segments.map_or("no".to_owned(), |segments| format!("{segments:.4}")),
                metric("messages_per_s").unwrap_or(0.0),
                if named.is_empty() { "no cause".to_owned() } else { named.join(", ") },
            ),
            segments.is_some_and(|segments| segments > 0.0)
                && ((client >= BUSY && of_sender) || (client < BUSY && of_other)),
        );
    }
    let arms = found.arms.len();
    ensure!(arms == 8, "{arms} arms instead of 8");
    Ok(())
}

/// A request in two writes: the stall, its cause, and the ACK's delay off the wire.
pub(crate) fn write_write_read(table: &mut Proofs) -> anyhow::Result<()> {
    const STALL: &str = "nagle-delayed-ack";
    for link in ["direct", "rtt=10ms"] {
        let args = ["--pattern", "write-write-read", "--message", "100", "--nagle", "on,off"];
        let args = [&args[..], &["--link", link]].concat();
        let found = summary(&["messages"], &args)?.0;
        let [on, off] = found.arms.as_slice() else {
            anyhow::bail!("{} arms instead of 2", found.arms.len());
        };
        let median =
            |arm: &Arm, name: &str| arm.histograms.get(name).and_then(|histogram| histogram.p50);
        let typical = |arm: &Arm| median(arm, "latency_us").context("no latency");
        let (slow, fast) = (typical(on)?, typical(off)?);
        table.row(
            &format!("write-write-read, {link}, Nagle on against off: median exchange"),
            "≥ 35 ms longer",
            &format!("{:.2} ms against {:.3} ms", slow / 1e3, fast / 1e3),
            slow - fast >= 35e3,
        );
        let named = [causes(&found, on), causes(&found, off)];
        table.row(
            &format!("write-write-read, {link}: cause"),
            "nagle-delayed-ack where Nagle is on, and only there",
            &format!("on: {}; off: {}", named[0].join(", "), named[1].join(", ")),
            named[0].contains(&STALL) && !named[1].contains(&STALL),
        );
        // Of the two segments of an exchange, the kernel delays the ACK of the first; that of the second
        // goes with the read or with the answer. So the delayed ones are the upper half.
        let acks = on.own.message.as_ref().and_then(|message| message.acks);
        let delayed_us = quantile_us(on, "ack_delay_us", 75).ok();
        table.row(
            &format!(
                "write-write-read, {link}, Nagle on: delay of the server's pure ACKs on the wire"
            ),
            "35 to 60 ms in the upper quartile",
            &delayed_us.zip(acks).map_or("not seen".to_owned(), |(us, acks)| {
                format!("{:.2} ms; {} delayed, {} quick", us / 1e3, acks.delayed, acks.quick)
            }),
            delayed_us.is_some_and(|us| (35e3..=60e3).contains(&us)),
        );
    }
    Ok(())
}
