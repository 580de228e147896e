//! One byte there and one back: tcptoll, sockperf, qperf, and the least that it takes.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

use super::Rounds;
use tcptoll_core::link::LinkSpec;
use tcptoll_kernel::cpu;
use tcptoll_kernel::cpu::thread_time;
use tcptoll_lab::lab::{Handle, HostSource as _, Hosts, Interrupt, Machine, Plan};
use tcptoll_lab::messages::{Answers, Exchange, Launch, Observe, Run, SocketSettings};

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
            BARE => pair.serve(&answering(bare_at)?, bare_port)?,
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
            let ran = pair.shell(&asking(bare_at, seconds)?)?;
            let read = read(&ran.output).with_context(|| ran.output.clone())?;
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

// Two hosts of a direct link, each on a CPU of its own, and programs that run on them.

/// A lab of two hosts.
pub(crate) struct Pair {
    pub(crate) hosts: Hosts,
    /// What a command prints.
    output: Output,
}

/// What came of a command.
pub(crate) struct Ran {
    /// What it printed on both streams.
    pub(crate) output: String,
    /// CPU time of it and of its children, µs, from its first instruction on.
    pub(crate) cpu_us: u64,
    /// CPU time of all that the server host has started, during the command, µs.
    pub(crate) server_cpu_us: u64,
}

impl Pair {
    /// Makes the lab. `addresses`: further ones of the client host.
    pub(crate) fn open(addresses: &[IpAddr]) -> anyhow::Result<Self> {
        let cpus = cpu::allowed();
        let [client, server, ..] = cpus.as_slice() else {
            bail!("two CPUs are needed, one for each host; there is {}", cpus.len());
        };
        let plan = Plan {
            link: "direct".to_owned(),
            ipv6: false,
            seed: 7,
            force_packet: false,
            client_cpu: Some(*client),
            server_cpu: Some(*server),
            client_addresses: addresses.to_vec(),
            silent_addresses: false,
        };
        let hosts = Machine::default().lab(&plan, &LinkSpec::parse("direct")?)?;
        Ok(Self { hosts, output: Output::new()? })
    }

    /// The server host's address.
    pub(crate) fn server_address(&self) -> IpAddr {
        self.hosts.addresses.server
    }

    /// Runs a line of shell on the client host, for as long as it takes.
    ///
    /// Errors: it ended with another status than 0.
    pub(crate) fn shell(&mut self, line: &str) -> anyhow::Result<Ran> {
        let path = self.output.0.display();
        let words = format!("{{ {line}; }} > {path} 2>&1 < /dev/null");
        let before = self.children_cpu_us()?;
        let status = run_line(&mut self.hosts.client, words)?;
        let after = self.children_cpu_us()?;
        let output = fs::read(&self.output.0)
            .with_context(|| format!("reading {}", self.output.0.display()))?;
        let output = String::from_utf8_lossy(&output).into_owned();
        if status != 0 {
            bail!("{line} ended with status {status}: {output}");
        }
        let [cpu_us, server_cpu_us] = [0, 1].map(|host| after[host] - before[host]);
        Ok(Ran { output, cpu_us, server_cpu_us })
    }

    /// Starts a server on the server host, which runs until the lab ends; waits until it listens on
    /// this port.
    ///
    /// Errors: it does not within 10 s.
    pub(crate) fn serve(&mut self, line: &str, port: u16) -> anyhow::Result<()> {
        let words = format!(
            "{line} > /dev/null 2>&1 < /dev/null & \
             for look in $(seq 500); do \
             ss -Hltn 'sport = :{port}' | grep -q . && exit 0; sleep 0.02; \
             done; exit 1"
        );
        let status = run_line(self.hosts.server()?, words)?;
        if status != 0 {
            bail!("{line}: it does not listen on port {port}");
        }
        Ok(())
    }

    /// CPU time of all that each host has started, µs: client, server.
    fn children_cpu_us(&mut self) -> anyhow::Result<[u64; 2]> {
        let (user, system) = self.hosts.client.ask(&Observe)?.children_cpu_us;
        let (server_user, server_system) = self.hosts.server()?.ask(&Observe)?.children_cpu_us;
        Ok([user + system, server_user + server_system])
    }
}

/// Runs a line of shell on a host and gives its exit status.
fn run_line(host: &mut Handle, line: String) -> anyhow::Result<i32> {
    let launch =
        Launch { words: vec![line], shell: true, environment: Vec::new(), ordinary_user: false };
    let begun = host.begin(&Run(launch))?;
    Ok(host.wait(begun, &Interrupt::new(), &mut |_| {})?.answer)
}

/// A file for what a command prints; it goes with the lab.
struct Output(PathBuf);

impl Output {
    fn new() -> anyhow::Result<Self> {
        let name = format!("tcptoll-contest-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, "").with_context(|| format!("writing {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

// The least that a request of one byte and its answer take: two programs of a dozen lines over
// sockets that block.
//
// They time each exchange and do nothing else. The example runs itself with a hidden word to be one
// of them.

/// The hidden words.
const ASK: &str = "bare-ask";
const ANSWER: &str = "bare-answer";

/// Exchanges before those that are timed: of the connection's first, ACKs are not delayed.
const WARM_UP: u32 = 1_000;

/// The command that answers on this address.
pub(crate) fn answering(at: SocketAddr) -> anyhow::Result<String> {
    Ok(format!("{} {ANSWER} {at}", itself()?))
}

/// The command that asks for so many seconds.
pub(crate) fn asking(at: SocketAddr, seconds: u64) -> anyhow::Result<String> {
    Ok(format!("{} {ASK} {at} {seconds}", itself()?))
}

fn itself() -> anyhow::Result<String> {
    let path = std::env::current_exe().context("the path of this program")?;
    Ok(format!("'{}'", path.display()))
}

/// Is one of the two programs, if the arguments say so.
pub(crate) fn is_asked_for(words: &[String]) -> Option<anyhow::Result<()>> {
    match words {
        [word, at] if word == ANSWER => Some(answer(at)),
        [word, at, seconds] if word == ASK => Some(ask(at, seconds)),
        _ => None,
    }
}

/// Answers one connection after another, until it is killed.
fn answer(at: &str) -> anyhow::Result<()> {
    let listener = TcpListener::bind(at).with_context(|| at.to_owned())?;
    loop {
        let (mut connection, _) = listener.accept()?;
        connection.set_nodelay(true)?;
        let mut byte = [0];
        while connection.read(&mut byte).is_ok_and(|length| length == 1) {
            if connection.write(&byte).is_err() {
                break;
            }
        }
    }
}

fn ask(at: &str, seconds: &str) -> anyhow::Result<()> {
    let long = Duration::from_secs(seconds.parse().context("seconds")?);
    let mut connection = TcpStream::connect(at).with_context(|| at.to_owned())?;
    connection.set_nodelay(true)?;
    for _ in 0..WARM_UP {
        exchange(&mut connection)?;
    }
    let cpu = thread_time();
    let (begun, mut exchanges, mut sum) = (Instant::now(), 0_u64, Duration::ZERO);
    while begun.elapsed() < long {
        sum += exchange(&mut connection)?;
        exchanges += 1;
    }
    let used = thread_time().since(cpu);
    println!("{exchanges} {} {}", sum.as_nanos(), used.user_us + used.system_us);
    Ok(())
}

/// One byte there and one back.
fn exchange(connection: &mut TcpStream) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    if connection.write(b"r")? != 1 || connection.read(&mut [0])? != 1 {
        bail!("the other end closed");
    }
    Ok(begun.elapsed())
}

/// What the asking program printed: exchanges, mean round trip in µs, its CPU time in µs.
pub(crate) fn read(output: &str) -> Option<(u64, f64, u64)> {
    let mut words = output.split_whitespace().map(str::parse::<u64>);
    let mut next = || words.next()?.ok();
    let (exchanges, sum_ns, cpu_us) = (next()?, next()?, next()?);
    (exchanges > 0).then(|| (exchanges, sum_ns as f64 / 1e3 / exchanges as f64, cpu_us))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_programs_exchange_bytes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap().to_string();
        drop(listener);
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let answering = words(&format!("bare-answer {at}"));
        std::thread::spawn(move || is_asked_for(&answering).unwrap());
        let mut asked = Err(anyhow::anyhow!("never"));
        // Until the other one listens.
        for _ in 0..10_000 {
            asked = is_asked_for(&words(&format!("bare-ask {at} 0"))).unwrap();
            if asked.is_ok() {
                break;
            }
            std::thread::yield_now();
        }
        asked.unwrap();
        assert!(is_asked_for(&words("stream")).is_none());
        assert_eq!(read("2 9000 7\n"), Some((2, 4.5, 7)));
        assert_eq!(read("0 0 0"), None);
        assert_eq!(read("error"), None);
    }
}
