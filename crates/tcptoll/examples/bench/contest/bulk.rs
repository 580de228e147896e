//! One stream from the client host to the server host: tcptoll and iperf3.

use std::net::SocketAddr;
use std::process::Command;

use anyhow::{Context as _, ensure};
use tcptoll_lab::lab::Interrupt;
use tcptoll_lab::messages::{
    Flow, Receiving, Sending, SocketSettings, Transfer, TransferReport, TransferServer,
};

use super::Rounds;
use super::exchange::Pair;

/// Size of a message of both, bytes: iperf3's own for TCP.
const MESSAGE_BYTES: u32 = 128 << 10;

/// Congestion control of both. BBR paces, and so would not be limited by the CPU.
pub(crate) const CONGESTION: &str = "cubic";

const PORT: u16 = 5_201;

/// Who takes part, and which copies it skips.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contestant {
    /// `stream`; `from_file`: the sender skips its copy, `discard`: the receiver its own.
    Ours { from_file: bool, discard: bool },
    /// iperf3 with these options.
    Theirs(&'static str),
}

/// The option of iperf3 that skips the receiver's copy; 3.12 of Debian 12 does not have it.
const SKIP_RECEIVE: &str = "--skip-rx-copy";

impl Contestant {
    /// Both copy every byte at both ends.
    pub(crate) const COPIES: [Self; 2] =
        [Self::Ours { from_file: false, discard: false }, Self::Theirs("")];
    /// The sender skips its copy.
    pub(crate) const SKIPS_ONE: [Self; 2] =
        [Self::Ours { from_file: true, discard: false }, Self::Theirs("-Z")];
    /// Both ends skip theirs.
    pub(crate) const SKIPS_BOTH: [Self; 2] =
        [Self::Ours { from_file: true, discard: true }, Self::Theirs("-Z --skip-rx-copy")];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ours { from_file: false, discard: false } => "tcptoll",
            Self::Ours { from_file: true, discard: false } => "tcptoll --zerocopy send",
            Self::Ours { from_file: false, discard: true } => "tcptoll --zerocopy receive",
            Self::Ours { from_file: true, discard: true } => "tcptoll --zerocopy both",
            Self::Theirs("") => "iperf3",
            Self::Theirs("-Z") => "iperf3 -Z",
            Self::Theirs(_) => "iperf3 -Z --skip-rx-copy",
        }
    }
}

/// Whether this machine's iperf3 has an option that skips the receiver's copy.
pub(crate) fn peer_skips_receive() -> bool {
    let help = Command::new("iperf3").arg("--help").output();
    help.is_ok_and(|help| String::from_utf8_lossy(&help.stdout).contains(SKIP_RECEIVE))
}

/// What one contestant did in one round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sample {
    /// As the receiver counted it.
    pub(crate) goodput_gbit: f64,
    /// CPU time for each 10^9 bytes, s.
    pub(crate) client_cpu: f64,
    pub(crate) server_cpu: f64,
}

/// Runs each contestant once a round in one lab. `window`: both socket buffers of both hosts, bytes;
/// `seconds`: of one turn.
pub(crate) fn run(
    contestants: &[Contestant],
    window: Option<u32>,
    rounds: u32,
    seconds: u64,
) -> anyhow::Result<Rounds<Sample>> {
    let mut pair = Pair::open(&[])?;
    if contestants.iter().any(|one| matches!(one, Contestant::Theirs(_))) {
        pair.serve(&format!("iperf3 -s -p {PORT}"), PORT)?;
    }
    let names: Vec<&'static str> = contestants.iter().map(|one| one.name()).collect();
    Rounds::run(&names, rounds, |place| match contestants[place] {
        Contestant::Ours { from_file, discard } => {
            ours(&mut pair, from_file, discard, window, seconds)
        }
        Contestant::Theirs(options) => theirs(&mut pair, options, window, seconds),
    })
}

fn ours(
    pair: &mut Pair,
    from_file: bool,
    discard: bool,
    window: Option<u32>,
    seconds: u64,
) -> anyhow::Result<Sample> {
    let flow = Flow {
        sockets: SocketSettings {
            send_buffer: window,
            receive_buffer: window,
            congestion: Some(CONGESTION.to_owned()),
            ..SocketSettings::default()
        },
        warmup_ns: 300_000_000,
        duration_ns: Some(seconds * 1_000_000_000),
        tail_ns: 20_000_000,
        drain_ns: 10_000_000_000,
        ..Flow::default()
    };
    let send = Sending { message_bytes: MESSAGE_BYTES, from_file, ..Sending::default() };
    let receive = Receiving { discard, message_bytes: MESSAGE_BYTES, work_ns: 0 };
    let listens = TransferServer {
        at: SocketAddr::new(pair.server_address(), 0),
        flow: Flow { receive: Some(receive), ..flow.clone() },
    };
    let (target, begun) = pair.hosts.server()?.start(&listens)?;
    let transfer = Transfer {
        target,
        connections: 1,
        bind: Vec::new(),
        connect_timeout_ns: 10_000_000_000,
        flow: Flow { send: Some(send), ..flow },
    };
    let client = &mut pair.hosts.client;
    let sending = client.begin(&transfer)?;
    let sent = client.wait(sending, &Interrupt::new(), &mut |_| {})?.answer;
    let received = pair.hosts.server()?.stop(begun)?.answer;
    for report in [&sent, &received] {
        ensure!((report.attempts, report.ok) == (1, 1), "the connection failed: {report:?}");
    }
    ensure!(sent.sockets.congestion == CONGESTION, "{} was used", sent.sockets.congestion);
    let all = (sent.sent.bytes, received.received.bytes);
    ensure!(all.0 == all.1, "{} bytes were sent, {} received", all.0, all.1);
    let counted = received.received;
    ensure!(counted.window_bytes > 0 && counted.window_ns > 0, "an empty window");
    Ok(Sample {
        goodput_gbit: counted.window_bytes as f64 * 8.0 / counted.window_ns as f64,
        client_cpu: cpu_per_gb(&sent, sent.sent.window_bytes)?,
        server_cpu: cpu_per_gb(&received, counted.window_bytes)?,
    })
}

/// CPU time in the window for each 10^9 bytes, s.
fn cpu_per_gb(report: &TransferReport, bytes: u64) -> anyhow::Result<f64> {
    ensure!(bytes > 0, "nothing was carried in the window");
    let (user, system) = report.window_cpu_us;
    Ok((user + system) as f64 * 1e3 / bytes as f64)
}

fn theirs(
    pair: &mut Pair,
    options: &str,
    window: Option<u32>,
    seconds: u64,
) -> anyhow::Result<Sample> {
    let window = window.map_or(String::new(), |bytes| format!("-w {bytes}"));
    let server = pair.server_address();
    let line = format!(
        "exec iperf3 -c {server} -p {PORT} -t {seconds} -l {MESSAGE_BYTES} -C {CONGESTION} -J \
         {window} {options}"
    );
    let ran = pair.shell(&line)?;
    let counted = read_iperf3(&ran.output)
        .with_context(|| format!("what iperf3 printed cannot be read: {}", ran.output))?;
    let used = &counted.congestion;
    ensure!(used == CONGESTION, "iperf3 used {used}");
    Ok(Sample {
        goodput_gbit: counted.bits_per_s / 1e9,
        client_cpu: ran.cpu_us as f64 * 1e3 / counted.sent_bytes,
        server_cpu: ran.server_cpu_us as f64 * 1e3 / counted.received_bytes,
    })
}

/// What iperf3 says of a stream.
#[derive(Debug, PartialEq)]
struct Counted {
    sent_bytes: f64,
    received_bytes: f64,
    bits_per_s: f64,
    congestion: String,
}

fn read_iperf3(text: &str) -> Option<Counted> {
    let end = &serde_json::from_str::<serde_json::Value>(text).ok()?["end"];
    let number = |part: &str, name: &str| end[part][name].as_f64().filter(|value| *value > 0.0);
    Some(Counted {
        sent_bytes: number("sum_sent", "bytes")?,
        received_bytes: number("sum_received", "bytes")?,
        bits_per_s: number("sum_received", "bits_per_second")?,
        congestion: end["sender_tcp_congestion"].as_str()?.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iperf3_is_read_at_the_receiver() {
        let text = r#"{"end": {
            "sum_sent": {"bytes": 2000, "bits_per_second": 16000.0},
            "sum_received": {"bytes": 1900, "bits_per_second": 15200.0},
            "sender_tcp_congestion": "cubic", "receiver_tcp_congestion": "cubic"}}"#;
        let expected = Counted {
            sent_bytes: 2000.0,
            received_bytes: 1900.0,
            bits_per_s: 15_200.0,
            congestion: "cubic".to_owned(),
        };
        assert_eq!(read_iperf3(text), Some(expected));
        assert_eq!(read_iperf3(r#"{"start": {}, "error": "unable to connect"}"#), None);
        assert_eq!(read_iperf3("iperf3: error"), None);
    }

    #[test]
    fn each_contestant_has_a_name_of_its_own() {
        let all = [Contestant::COPIES, Contestant::SKIPS_ONE, Contestant::SKIPS_BOTH].concat();
        let mut names: Vec<&str> = all.iter().map(|one| one.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all.len());
    }
}
