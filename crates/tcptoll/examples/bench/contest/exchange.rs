//! One byte there and one back: tcptoll, sockperf, qperf, and the least that it takes.

use std::net::SocketAddr;

use anyhow::{Context as _, ensure};
use tcptoll_lab::lab::Interrupt;
use tcptoll_lab::messages::{Answers, Exchange, SocketSettings};

use super::bare;
use super::pair::Pair;
use super::rounds::Rounds;

/// tcptoll's `messages --pattern request-response`.
pub(crate) const OURS: &str = "tcptoll";
/// The bare sockets of this program.
pub(crate) const BARE: &str = "bare sockets";
/// Its smallest message has 14 bytes.
pub(crate) const SOCKPERF: &str = "sockperf";
/// Its test `tcp_lat`.
pub(crate) const QPERF: &str = "qperf";

/// Ports of the peers' servers, of sockperf, of qperf and of the bare sockets.
const PORTS: [u16; 3] = [11_111, 19_765, 7_777];

/// What one contestant did in one round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sample {
    /// Exchanges.
    pub(crate) exchanges: u64,
    /// Mean of their round trips, µs.
    pub(crate) round_trip_us: f64,
    /// CPU time for each, µs.
    pub(crate) client_cpu_us: f64,
    pub(crate) server_cpu_us: f64,
}

/// Runs each contestant once a round in one lab. `seconds`: of one turn.
pub(crate) fn run(
    names: &[&'static str],
    rounds: u32,
    seconds: u64,
) -> anyhow::Result<Rounds<Sample>> {
    let mut pair = Pair::open(&[])?;
    let server = pair.server_address();
    let [sockperf, qperf, bare_port] = PORTS;
    let bare_at = SocketAddr::new(server, bare_port);
    for &name in names {
        match name {
            SOCKPERF => {
                pair.serve(&format!("sockperf server --tcp -i {server} -p {sockperf}"), sockperf)?;
            }
            QPERF => pair.serve(&format!("qperf -lp {qperf}"), qperf)?,
            BARE => pair.serve(&bare::answering(bare_at)?, bare_port)?,
            _ => {}
        }
    }
    Rounds::run(names, rounds, |place| match names[place] {
        SOCKPERF => theirs(
            &mut pair,
            &format!(
                "sockperf ping-pong --tcp -i {server} -p {sockperf} -m 14 -t {seconds} --full-rtt"
            ),
            read_sockperf,
        ),
        QPERF => theirs(
            &mut pair,
            &format!("qperf -lp {qperf} -t {seconds} -m 1 -vv -uu {server} tcp_lat"),
            read_qperf,
        ),
        BARE => {
            let ran = pair.shell(&bare::asking(bare_at, seconds)?)?;
            let read = bare::read(&ran.output).with_context(|| ran.output.clone())?;
            let (exchanges, round_trip_us, cpu_us) = read;
            Ok(sample(exchanges, round_trip_us, cpu_us, ran.server_cpu_us))
        }
        _ => ours(&mut pair, seconds),
    })
}

fn ours(pair: &mut Pair, seconds: u64) -> anyhow::Result<Sample> {
    let sockets = SocketSettings { no_delay: true, ..SocketSettings::default() };
    let answers = Answers {
        at: SocketAddr::new(pair.server_address(), 0),
        sockets: sockets.clone(),
        request_bytes: 1,
        response_bytes: 1,
        work_ns: 0,
    };
    let (at, begun) = pair.hosts.server()?.start(&answers)?;
    let exchange = Exchange {
        target: at,
        sockets,
        writes: vec![1],
        response_bytes: 1,
        work_ns: 0,
        warmup_ns: 0,
        warmup_exchanges: 1_000,
        duration_ns: seconds * 1_000_000_000,
        timeout_ns: 10_000_000_000,
    };
    let client = &mut pair.hosts.client;
    let asking = client.begin(&exchange)?;
    let report = client.wait(asking, &Interrupt::new(), &mut |_| {})?.answer;
    let answered = pair.hosts.server()?.stop(begun)?.answer;
    ensure!(report.errors.is_empty() && report.ok == report.attempts, "{report:?}");
    let mean_us = report.latency.mean_ns().context("no exchange")? / 1e3;
    let (cpu, server_cpu) = (report.cpu_us, answered.cpu_us);
    // The server's is of the warm-up, too.
    let per_answer = (server_cpu.0 + server_cpu.1) as f64 / answered.answered as f64;
    Ok(Sample { server_cpu_us: per_answer, ..sample(report.ok, mean_us, cpu.0 + cpu.1, 0) })
}

/// Reads exchanges and the mean round trip, µs.
type Read = fn(&str) -> Option<(u64, f64)>;

fn theirs(pair: &mut Pair, line: &str, read: Read) -> anyhow::Result<Sample> {
    let ran = pair.shell(&format!("exec {line}"))?;
    let (exchanges, round_trip_us) =
        read(&ran.output).with_context(|| format!("it cannot be read: {}", ran.output))?;
    Ok(sample(exchanges, round_trip_us, ran.cpu_us, ran.server_cpu_us))
}

fn sample(exchanges: u64, round_trip_us: f64, cpu_us: u64, server_cpu_us: u64) -> Sample {
    let each = |us: u64| us as f64 / exchanges as f64;
    Sample {
        exchanges,
        round_trip_us,
        client_cpu_us: each(cpu_us),
        server_cpu_us: each(server_cpu_us),
    }
}

/// All messages of the run, warm-up included, whose CPU time is measured; the mean is without it.
fn read_sockperf(text: &str) -> Option<(u64, f64)> {
    let total = text.lines().find_map(|line| line.split_once("[Total Run]"))?.1;
    let received = total.split_once("ReceivedMessages=")?.1.trim().parse().ok()?;
    let summary = text.lines().find_map(|line| line.split_once("Summary: "))?.1;
    // `Summary: Round trip is 21.5 usec`; without --full-rtt `Latency is`, half of it.
    let mean = summary.strip_prefix("Round trip is ")?.strip_suffix(" usec")?.parse().ok()?;
    (received > 0).then_some((received, mean))
}

/// `latency = 10500 ns`, one way, and `loc_recv_msgs = 1794`.
fn read_qperf(text: &str) -> Option<(u64, f64)> {
    let field = |name: &str| -> Option<&str> {
        let line = text.lines().map(str::trim).find(|line| line.starts_with(name))?;
        Some(line.split_once('=')?.1.trim())
    };
    let received = field("loc_recv_msgs")?.replace(',', "").parse().ok()?;
    let one_way_ns: f64 = field("latency")?.strip_suffix(" ns")?.replace(',', "").parse().ok()?;
    (received > 0).then_some((received, 2.0 * one_way_ns / 1e3))
}
