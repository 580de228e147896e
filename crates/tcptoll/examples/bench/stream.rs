//! `bench stream`: what a stream and an exchange of one byte cost each program.

use crate::contest::Ratio;
use crate::contest::Rounds;
use crate::contest::bulk::{self, CONGESTION, Contestant, peer_skips_receive};
use crate::contest::exchange::{self, BARE, OURS, QPERF, SOCKPERF};
use crate::contest::peers::version_of;
use crate::page::{HEAD, Markdown, environment, row};

/// Length of one contestant's turn.
const SECONDS: u64 = 2;

/// A fixed socket buffer, bytes.
const WINDOW: u32 = 256 << 10;

/// Program and Debian package of each peer.
const PEERS: [(&str, &str); 3] = [("iperf3", "iperf3"), (SOCKPERF, SOCKPERF), (QPERF, QPERF)];

/// Runs every case and puts it on the page.
pub(crate) fn run(page: &mut Markdown, rounds: u32) -> anyhow::Result<()> {
    page.say("<!-- Written by `cargo xtask bench stream`. -->");
    page.say("# tcptoll beside its peers: streams and exchanges");
    environment(page, &PEERS);
    let is_here = |program: &str| {
        PEERS.iter().any(|(name, package)| *name == program && version_of(name, package).is_some())
    };
    if is_here("iperf3") {
        streams(page, rounds)?;
    }
    let present = [SOCKPERF, QPERF].into_iter().filter(|program| is_here(program));
    exchanges(page, &present.collect::<Vec<_>>(), rounds)
}

fn streams(page: &mut Markdown, rounds: u32) -> anyhow::Result<()> {
    let pairs = if peer_skips_receive() {
        vec![Contestant::COPIES, Contestant::SKIPS_ONE, Contestant::SKIPS_BOTH]
    } else {
        vec![Contestant::COPIES, Contestant::SKIPS_ONE]
    };
    let alone = (!peer_skips_receive()).then_some(Contestant::SKIPS_BOTH[0]);
    for (window, buffers) in
        [(None, "buffers tuned by the kernel"), (Some(WINDOW), "buffers of 256 KiB (`-w`)")]
    {
        page.say(&format!(
            "## One stream, {buffers}\n\nFrom the client host to the server host, messages of 128 KiB, \
             {CONGESTION}, {SECONDS} s each, {rounds} rounds, in an order of its own each round. The \
             first two copy every byte at both ends."
        ));
        let contestants: Vec<Contestant> = pairs.iter().flatten().copied().chain(alone).collect();
        let contest = bulk::run(&contestants, window, rounds, SECONDS)?;
        let means: Vec<Vec<String>> = contest
            .entries()
            .iter()
            .map(|(name, samples)| {
                let mean = |figure: fn(&bulk::Sample) -> f64| mean(samples, figure);
                vec![
                    (*name).to_owned(),
                    gbit(mean(|sample| sample.goodput_gbit)),
                    seconds(mean(|sample| sample.client_cpu)),
                    seconds(mean(|sample| sample.server_cpu)),
                ]
            })
            .collect();
        page.say("Means of the rounds:");
        page.table(&["program", "goodput", "client CPU per GB", "server CPU per GB"], &means);
        let mut rows = Vec::new();
        for [ours, theirs] in &pairs {
            rows.extend(compared(
                &contest,
                (ours.name(), theirs.name()),
                &[
                    ("goodput", |sample| sample.goodput_gbit, gbit),
                    ("client CPU per GB", |sample| sample.client_cpu, seconds),
                    ("server CPU per GB", |sample| sample.server_cpu, seconds),
                ],
            ));
        }
        page.table(HEAD, &rows);
    }
    if alone.is_some() {
        page.say("This iperf3 has no `--skip-rx-copy`: `--zerocopy both` has no counterpart.");
    }
    Ok(())
}

fn exchanges(page: &mut Markdown, peers: &[&'static str], rounds: u32) -> anyhow::Result<()> {
    page.say(&format!(
        "## One byte there, one byte back\n\nOne connection, TCP_NODELAY, {SECONDS} s each, {rounds} \
         rounds, in an order of its own each round. sockperf's smallest message has 14 bytes. *Bare \
         sockets* are two programs of a dozen lines that time each exchange. Latency is the mean \
         round trip; that of sockperf and qperf, which print half of it, is doubled."
    ));
    let names: Vec<&'static str> = [OURS, BARE].into_iter().chain(peers.iter().copied()).collect();
    let contest = exchange::run(&names, rounds, SECONDS)?;
    let means: Vec<Vec<String>> = contest
        .entries()
        .iter()
        .map(|(name, samples)| {
            let mean = |figure: fn(&exchange::Sample) -> f64| mean(samples, figure);
            vec![
                (*name).to_owned(),
                us(mean(|sample| sample.round_trip_us)),
                us(mean(|sample| sample.client_cpu_us)),
                us(mean(|sample| sample.server_cpu_us)),
                samples.iter().map(|sample| sample.exchanges).sum::<u64>().to_string(),
            ]
        })
        .collect();
    page.say("Means of the rounds:");
    page.table(
        &["program", "latency", "client CPU per exchange", "server CPU per exchange", "exchanges"],
        &means,
    );
    let mut rows = Vec::new();
    for &peer in names.iter().filter(|name| **name != OURS) {
        rows.extend(compared(
            &contest,
            (OURS, peer),
            &[
                ("latency", |sample| sample.round_trip_us, us),
                ("client CPU per exchange", |sample| sample.client_cpu_us, us),
                ("server CPU per exchange", |sample| sample.server_cpu_us, us),
            ],
        ));
    }
    page.table(HEAD, &rows);
    Ok(())
}

/// A figure: its name, where it is found, how it is written.
type Figure<S> = (&'static str, fn(&S) -> f64, fn(f64) -> String);

fn compared<S>(
    contest: &Rounds<S>,
    (ours, theirs): (&str, &str),
    figures: &[Figure<S>],
) -> Vec<Vec<String>> {
    let row = |(what, figure, shown): &Figure<S>| -> Option<Vec<String>> {
        let ratio: Ratio = contest.ratio(ours, theirs, *figure)?;
        Some(row(what, ours, theirs, &ratio, *shown))
    };
    figures.iter().filter_map(row).collect()
}

fn mean<S>(samples: &[S], figure: fn(&S) -> f64) -> f64 {
    samples.iter().map(figure).sum::<f64>() / samples.len().max(1) as f64
}

fn gbit(value: f64) -> String {
    format!("{value:.2} Gbit/s")
}

fn seconds(value: f64) -> String {
    format!("{value:.3} s")
}

fn us(value: f64) -> String {
    format!("{value:.2} µs")
}
