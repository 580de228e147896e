//! Options of `stream`, and from what was typed to what it means, without doing anything.

use std::time::Duration;

use tcptoll_core::experiment::option::{Only, Opt};
use tcptoll_core::experiment::options::{
    CLIENT_ADDRESS, CLIENT_HOST, CLIENT_SYSCTL, CONGESTION_OF_BOTH, DEAD_AFTER, IPV6, LINK, LOAD,
    PACKET_RELAY, REMOTE_BINARY, SERVER_ADDRESS, SERVER_HOST, SERVER_SYSCTL, SOCKETS, SSH_COMMAND,
    TAP, WINDOW,
};
use tcptoll_core::study::{Settings, Study};
use tcptoll_core::units::{parse_rate, parse_size, parse_time};
use tcptoll_lab::messages::{Coalesce, Receiving, Sending, SocketSettings};

use super::SPEC;
use crate::carry::transfer::{Bulk, OneWay, WINDOW_MIN, buffer, round_trip, size, warm_up};
use crate::kit::TrialError;
use crate::kit::hosts::OVERHEAD_S;
use crate::kit::settings::{LabSpec, SettingsReader, time_above_zero, wrong};

/// The most concurrent connections.
const STREAMS_MAX: u64 = 1_000;

/// The largest write, and how it is written.
const MESSAGE_MAX: (u64, &str) = (16 << 20, "16M");

/// Messages that a rate must allow within the window: one is sent whole.
const MESSAGES_MIN: f64 = 10.0;

/// The most bytes of one connection: 1 TiB.
const BYTES_MAX: u64 = 1 << 40;

/// The longest window and warm-up.
const TIME_MAX: Duration = Duration::from_hours(1);

/// Goodput without a limit by the link or a rate, to estimate how long a trial takes, bytes/s.
const FAST_BYTES_PER_S: f64 = 1e9;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
    Both,
}

/// The settings of one arm, checked.
#[derive(Clone, Debug)]
pub(super) struct StreamSettings {
    pub lab: LabSpec,
    pub(super) bulk: Bulk,
    /// Congestion control of both hosts.
    pub congestion: Option<String>,
}

impl StreamSettings {
    /// Checks the settings of one arm.
    pub(super) fn from(settings: &Settings) -> Result<Self, TrialError> {
        let reader = SettingsReader::new(&SPEC, settings)?;
        let lab = LabSpec::from(&reader)?;
        let congestion = reader.typed("congestion");
        let sockets = sockets(&reader, congestion.as_deref())?;
        let bulk = bulk(&reader, &lab, sockets)?;
        Ok(Self { lab, bulk, congestion })
    }

    /// Ports of the client host in use at a time.
    pub(super) fn ports(&self) -> u64 {
        u64::from(self.bulk.connections)
    }

    /// How long the arm will take, s, if all goes well.
    pub(super) fn expected_s(&self) -> f64 {
        let link = &self.lab.link;
        let rated = self.bulk.up.as_ref().or(self.bulk.down.as_ref());
        let limits = [
            link.payload_bytes_per_s(self.lab.ipv6, true),
            rated.and_then(|way| way.send.rate_bytes_per_s),
        ];
        let bytes_per_s = limits.into_iter().flatten().fold(FAST_BYTES_PER_S, f64::min);
        OVERHEAD_S + 3.0 * link.rtt.as_secs_f64() + self.bulk.expected_s(bytes_per_s)
    }
}

fn sockets(
    reader: &SettingsReader<'_>,
    congestion: Option<&str>,
) -> Result<SocketSettings, TrialError> {
    let window = buffer(reader, "window")?.flatten();
    Ok(SocketSettings {
        send_buffer: buffer(reader, "send-buffer")?.unwrap_or(window),
        receive_buffer: buffer(reader, "receive-buffer")?.unwrap_or(window),
        no_delay: !reader.flag("nagle")?,
        quick_ack: false,
        congestion: congestion.map(str::to_owned),
    })
}

fn bulk(
    reader: &SettingsReader<'_>,
    lab: &LabSpec,
    sockets: SocketSettings,
) -> Result<Bulk, TrialError> {
    let bytes = reader.typed_read("bytes", |typed| match parse_size(typed) {
        Ok(bytes) if (1..=BYTES_MAX).contains(&bytes) => Ok(bytes),
        Ok(_) => Err("write a size from 1 to 1024G, like 100M".to_owned()),
        Err(error) => Err(error.to_string()),
    })?;
    for other in ["duration", "warmup"] {
        if bytes.is_some()
            && let Some(typed) = reader.typed(other)
        {
            let why = "it has no effect with --bytes, which ends the run: leave one of them out";
            return Err(wrong(other, &typed, why));
        }
    }
    let (warmup, duration) = if bytes.is_some() {
        // The whole transfer is measured.
        (Duration::ZERO, None)
    } else {
        let warmup = reader.typed_read("warmup", |typed| limited(parse_time(typed)))?;
        let duration = reader.read("duration", window)?;
        (warmup.unwrap_or_else(|| warm_up(&lab.link)), Some(duration))
    };
    let (from_file, discard) = reader.read("zerocopy", zerocopy)?;
    let message_bytes = size(reader, "message", MESSAGE_MAX)? as u32;
    let direction = reader.read("direction", direction)?;
    let rate = reader.typed_read("rate", parse_rate)?;
    if let Some((typed, bit_per_s)) = reader.typed("rate").zip(rate) {
        check_rate(&typed, bit_per_s, message_bytes, (bytes, duration))?;
    }
    let one_way = || OneWay {
        send: Sending {
            message_bytes,
            coalesce: Coalesce::None,
            coalesce_bytes: 0,
            from_file,
            rate_bytes_per_s: rate.map(|bit_per_s| bit_per_s / 8.0),
            bytes,
            work_ns: 0,
        },
        receive: Receiving { discard, message_bytes, work_ns: 0 },
    };
    Ok(Bulk {
        connections: reader.count("streams", 1, STREAMS_MAX)? as u32,
        client: sockets.clone(),
        server: sockets,
        up: (direction != Direction::Down).then(one_way),
        down: (direction != Direction::Up).then(one_way),
        warmup,
        duration,
        timeout: reader.read("timeout", time_above_zero)?,
        round_trip: round_trip(&lab.link),
    })
}

/// Refuses a rate at which a few messages fill the window: a message is sent whole.
fn check_rate(
    typed: &str,
    bit_per_s: f64,
    message_bytes: u32,
    (bytes, duration): (Option<u64>, Option<Duration>),
) -> Result<(), TrialError> {
    let in_window = duration.map(|long| long.as_secs_f64() * bit_per_s / 8.0);
    let carried = bytes.map(|bytes| bytes as f64).or(in_window).unwrap_or(f64::INFINITY);
    if carried >= MESSAGES_MIN * f64::from(message_bytes) {
        return Ok(());
    }
    let why = format!(
        "fewer than {MESSAGES_MIN} messages of {message_bytes} bytes would be sent: write a smaller --message"
    );
    Err(wrong("rate", typed, why))
}

/// A window long enough to measure, of at most an hour.
fn window(typed: &str) -> Result<Duration, String> {
    match limited(time_above_zero(typed))? {
        long if long < WINDOW_MIN => Err("write a time from 10ms to 1h".to_owned()),
        long => Ok(long),
    }
}

/// A time of at most an hour.
fn limited<E: std::fmt::Display>(time: Result<Duration, E>) -> Result<Duration, String> {
    match time {
        Ok(time) if time > TIME_MAX => Err("write a time of at most 1h".to_owned()),
        time => time.map_err(|error| error.to_string()),
    }
}

fn direction(typed: &str) -> Result<Direction, &'static str> {
    match typed {
        "up" => Ok(Direction::Up),
        "down" => Ok(Direction::Down),
        "both" => Ok(Direction::Both),
        _ => Err("write up, down or both"),
    }
}

/// Whether the sender sends from a file, and whether the receiver discards.
fn zerocopy(typed: &str) -> Result<(bool, bool), &'static str> {
    match typed {
        "off" => Ok((false, false)),
        "send" => Ok((true, false)),
        "receive" => Ok((false, true)),
        "both" => Ok((true, true)),
        _ => Err("write off, send, receive or both"),
    }
}

/// Every option, as the help shows them.
pub(super) const OPTIONS: &[&Opt] = &[
    &LINK,
    &IPV6,
    &PACKET_RELAY,
    &CLIENT_SYSCTL,
    &SERVER_SYSCTL,
    &SERVER_HOST,
    &CLIENT_HOST,
    &SERVER_ADDRESS,
    &CLIENT_ADDRESS,
    &SSH_COMMAND,
    &REMOTE_BINARY,
    &DEAD_AFTER,
    &Opt::each(LOAD, "direction", "up,down,both", "Direction of the data. up: client to server")
        .by_default("up"),
    &Opt::each(LOAD, "streams", "N", "Number of concurrent connections")
        .letters(&['P'])
        .number()
        .by_default("1"),
    &Opt::each(LOAD, "message", "SIZE", "Size of each write, e.g. 128K").by_default("128K"),
    &Opt::each(LOAD, "duration", "TIME", "Length of the measured window, after the warm-up")
        .letters(&['d'])
        .by_default("2s"),
    &Opt::each(
        LOAD,
        "warmup",
        "TIME",
        "Time after the first byte that is not part of the measured window, because of slow start",
    )
    .derived("20 round trips, at least 300ms"),
    &Opt::each(
        LOAD,
        "bytes",
        "SIZE",
        "Bytes to send over each connection, e.g. 100M. Measures the whole transfer instead of a \
         window",
    ),
    &Opt::each(
        LOAD,
        "rate",
        "RATE",
        "Limit of the sending rate of all connections together, e.g. 500mbit",
    ),
    &Opt::each(
        LOAD,
        "zerocopy",
        "off,send,receive,both",
        "Copies to avoid: send (sendfile(2) from the page cache), receive (discard with MSG_TRUNC) \
         or both",
    )
    .alone("send")
    .by_default("off"),
    &Opt::one(
        LOAD,
        "timeout",
        "TIME",
        "Timeout of connecting, and of data that is still in flight",
    )
    .by_default("10s"),
    &WINDOW,
    &Opt::each(SOCKETS, "send-buffer", "auto|SIZE", "SO_SNDBUF on both hosts, e.g. 256K")
        .derived("same as --window"),
    &Opt::each(SOCKETS, "receive-buffer", "auto|SIZE", "SO_RCVBUF on both hosts, e.g. 256K")
        .derived("same as --window"),
    &Opt::each(SOCKETS, "nagle", "on,off", "Nagle's algorithm. off sets TCP_NODELAY")
        .by_default("on"),
    &CONGESTION_OF_BOTH,
    &Opt::flag("Memory", "memory", "Measure kernel memory of open connections, not throughput"),
    &Opt::each("Memory", "connections", "N", "Number of open connections")
        .number()
        .by_default("100")
        .only(&[Only::With("memory", "")]),
    &TAP,
];

/// Arms are compared by goodput. Memory is the same in every round, and no single figure compares it.
pub(super) fn compares(study: &Study) -> bool {
    study.values("memory").is_empty()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use tcptoll_lab::messages::Flow;

    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<StreamSettings, String> {
        let settings =
            pairs.iter().map(|(k, v)| ((*k).to_owned(), Value::from(*v))).collect::<Settings>();
        StreamSettings::from(&settings).map_err(|error| error.to_string())
    }

    /// What the client does, and what the server does.
    fn flows(pairs: &[(&str, &str)]) -> (Flow, Flow) {
        let bulk = read(pairs).unwrap().bulk;
        let address = "10.77.0.2".parse().unwrap();
        let server = bulk.server(address);
        (bulk.client(server.at, &[]).flow, server.flow)
    }

    #[test]
    fn each_direction_has_a_sender_and_a_receiver() {
        let has = |direction| {
            let (client, server) = flows(&[("direction", direction)]);
            [
                client.send.is_some(),
                client.receive.is_some(),
                server.send.is_some(),
                server.receive.is_some(),
            ]
        };
        assert_eq!(has("up"), [true, false, false, true]);
        assert_eq!(has("down"), [false, true, true, false]);
        assert_eq!(has("both"), [true; 4]);
        assert!(read(&[("direction", "left")]).unwrap_err().starts_with("--direction left: write"));
    }

    #[test]
    fn a_window_sets_both_buffers_of_both_hosts_and_each_can_be_set_alone() {
        let (client, server) = flows(&[("window", "256K"), ("send-buffer", "auto")]);
        assert_eq!(client.sockets, server.sockets);
        assert_eq!(
            (client.sockets.send_buffer, client.sockets.receive_buffer),
            (None, Some(262_144))
        );
        let (client, _) = flows(&[("receive-buffer", "16K")]);
        assert_eq!(
            (client.sockets.send_buffer, client.sockets.receive_buffer),
            (None, Some(16_384))
        );
        for wrong in ["0", "2G", "big", "1.5", "-1"] {
            let error = read(&[("window", wrong)]).unwrap_err();
            assert_eq!(
                error,
                format!("--window {wrong}: write auto, or a size from 1 to 1G, like 256K")
            );
        }
    }

    #[test]
    fn the_warm_up_is_twenty_round_trips_and_at_least_300_ms() {
        let warmup = |pairs: &[(&str, &str)]| read(pairs).unwrap().bulk.warmup.as_millis();
        assert_eq!(warmup(&[]), 300);
        assert_eq!(warmup(&[("link", "rtt=37ms")]), 740);
        assert_eq!(warmup(&[("link", "rtt=37ms"), ("warmup", "0")]), 0);
        assert!(read(&[("warmup", "2h")]).unwrap_err().starts_with("--warmup 2h: "));
    }

    #[test]
    fn a_number_of_bytes_has_no_window() {
        let (client, server) = flows(&[("bytes", "10M")]);
        assert_eq!((client.duration_ns, client.warmup_ns, server.duration_ns), (None, 0, None));
        assert_eq!(client.send.unwrap().bytes, Some(10 << 20));
        for (other, value) in [("duration", "1s"), ("warmup", "0")] {
            let error = read(&[("bytes", "1M"), (other, value)]).unwrap_err();
            assert!(
                error.starts_with(&format!("--{other} {value}: it has no effect with --bytes"))
            );
        }
        assert!(read(&[("bytes", "0")]).unwrap_err().starts_with("--bytes 0: write a size"));
    }

    #[test]
    fn a_rate_is_of_payload_in_bits() {
        let (client, _) = flows(&[("rate", "80mbit")]);
        assert_eq!(client.send.unwrap().rate_bytes_per_s, Some(1e7));
        assert!(read(&[("rate", "80")]).unwrap_err().starts_with("--rate 80: "));
    }

    #[test]
    fn a_number_out_of_range_is_refused_with_the_range() {
        for (key, value) in [
            ("streams", "0"),
            ("streams", "1001"),
            ("message", "0"),
            ("message", "17M"),
            ("duration", "0"),
            ("duration", "2h"),
            ("timeout", "0"),
            ("zerocopy", "maybe"),
            ("nagle", "sometimes"),
        ] {
            let error = read(&[(key, value)]).unwrap_err();
            assert!(error.starts_with(&format!("--{key} {value}: ")), "{error}");
        }
    }

    #[test]
    fn an_arm_takes_its_warm_up_and_its_window_or_its_bytes_at_the_rate_of_the_link() {
        let expected = |pairs: &[(&str, &str)]| read(pairs).unwrap().expected_s();
        assert!((2.4..2.5).contains(&expected(&[])), "{}", expected(&[]));
        // 1 MiB at 1 Mbit/s of line rate takes 8.9 s.
        let bytes = expected(&[("link", "rate=1mbit"), ("bytes", "1M")]);
        assert!((8.9..9.2).contains(&bytes), "{bytes}");
    }
}
