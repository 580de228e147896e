//! The options of `connect`, and from what was typed to a checked plan, without doing anything.

use std::net::IpAddr;
use std::time::Duration;

use serde_json::Value;
use tcptoll_core::experiment::figures::FIRST_BYTE_MEAN;
use tcptoll_core::experiment::option::{Only, Opt};
use tcptoll_core::experiment::options::{
    BIND, CLIENT_ADDRESS, CLIENT_HOST, CLIENT_SYSCTL_RETRIES, CONCURRENCY, CONGESTION,
    CONNECT_COUNT, CONNECT_RATE, CONNECT_TIMEOUT, DEAD_AFTER, IPV6, LINK, LOAD, PACKET_RELAY,
    PAUSE, PAUSE_EVERY, PLACE, REMOTE_BINARY, SERVE, SERVER_ADDRESS, SERVER_SYSCTL, SSH_COMMAND,
    TAP, an_arm_each,
};
use tcptoll_core::study::{RoundsAsked, Settings, Study};

use super::SPEC;
use crate::kit::TrialError;
use crate::kit::hosts::{OVERHEAD_S, PORT_S};
use crate::kit::settings::{LabSpec, SettingsReader, WarmUp, time_above_zero, unescape, wrong};
use crate::kit::target::{PUBLIC_RATE_PER_S, Target};

/// Heading of tcptoll's own server.
const SERVER: &str = "Server";

/// Every option, as the help shows them.
pub(super) const OPTIONS: &[&Opt] = &[
    &LINK,
    &Opt::each(
        PLACE,
        "to",
        "HOST:PORT",
        "Connect to a running server instead of using the lab, also as a URL. Several are compared",
    ),
    &Opt::one(
        PLACE,
        "server",
        "COMMAND|ssh://HOST",
        "Command that starts a server on the lab's server host, e.g. 'redis-server --port 6379'; or a host of \
         yours for the server, ssh://[USER@]HOST[:PORT]",
    )
    .only(&[Only::Lab]),
    &Opt::one(PLACE, "port", "PORT", "Port of the server of --server, if it listens on several")
        .only(&[Only::With("server", "'command'")]),
    &IPV6,
    &PACKET_RELAY,
    &CLIENT_SYSCTL_RETRIES,
    &SERVER_SYSCTL,
    &Opt::one(
        PLACE,
        "distance-km",
        "KM",
        "Distance between the hosts in km. The result then states the shortest round trip that is \
         physically possible",
    ),
    &CLIENT_HOST,
    &SERVE,
    &SERVER_ADDRESS,
    &CLIENT_ADDRESS,
    &SSH_COMMAND,
    &REMOTE_BINARY,
    &DEAD_AFTER,
    &CONNECT_COUNT.derived("1000, or 100 for a public address; with --to, none starts after 10s"),
    &Opt::each(
        LOAD,
        "duration",
        "TIME",
        "Time during which each trial starts connections, e.g. 10s, instead of --count",
    )
    .letters(&['d']),
    &Opt::each(
        LOAD,
        "warmup",
        "N|TIME",
        "Warm-up before the measurement, as a number of connections or a time. Its figures are \
         reported separately",
    )
    .number()
    .derived("20 in the lab, none with --to"),
    &CONCURRENCY.derived("one for each 2 ms of round trip, at least one"),
    &CONNECT_RATE,
    &PAUSE_EVERY,
    &PAUSE,
    &CONNECT_TIMEOUT,
    &BIND,
    &CONGESTION,
    &Opt::each(LOAD, "fast-open", "on,off", "Send the first bytes in the SYN (TCP Fast Open)")
        .alone("on")
        .by_default("off")
        // With data in the SYN there is no handshake to wait for.
        .asks(FIRST_BYTE_MEAN.name),
    &Opt::each(
        LOAD,
        "first-byte",
        "on,off",
        "Wait for the server's first byte before closing. If off, close as soon as the connection \
         is established",
    )
    .derived("on; off with --to or --server, unless --send is given"),
    &Opt::one(
        LOAD,
        "send",
        "TEXT",
        "Text to send after connecting, for a server that does not speak first. \\r, \\n and \\xHH \
         are escapes",
    ),
    &Opt::each(SERVER, "backlog", "N", "Backlog that tcptoll's own server passes to listen(2)")
        .number()
        .by_default("4096")
        .only(&[Only::Lab]),
    &Opt::each(
        SERVER,
        "accept-delay",
        "TIME",
        "Time that tcptoll's own server spends before each accept(2), e.g. 2ms",
    )
    .by_default("0")
    .only(&[Only::Lab]),
    &TAP.worded(
        "In the lab, on a direct link or loopback, capture packets in the measured trial (costs CPU). Without \
         it, a separate, shorter trial is captured",
    ),
    &Opt::setting(
        "max-time",
        "TIME",
        "With a running server (to): time after which an arm starts no more connections",
    ),
];

/// Several servers are compared; and `--max-time` of one arm on a server that is not ours limits that arm and not a number of rounds,
/// unless other options ask for rounds or limit the arm.
pub(super) fn complete(study: &mut Study) {
    an_arm_each(study, "to");
    let has = |option: &str| study.settings.contains_key(option);
    let only_time = RoundsAsked { max_time: study.rounds.max_time.clone(), ..<_>::default() };
    if !has("to") || has("duration") || !study.factors.is_empty() || study.rounds != only_time {
        return;
    }
    if let Some(time) = study.rounds.max_time.take() {
        study.settings.insert("max-time".to_owned(), Value::from(time));
    }
}

/// The most connections one trial opens.
const COUNT_MAX: u64 = 10_000_000;

/// Connections that are opened before any is measured, unless `--warmup` says other.
const WARM_UP: u64 = 20;

/// A closed loop opens no more than this with one CPU (measured on Linux 6.18: 29,000 to 32,000
/// with 4 to 500 at once).
const CLOSED_LOOP_MAX_PER_S: f64 = 32_000.0;

/// No connection to a server that is not ours begins after this, unless `--count`, `--duration` or
/// `--max-time` says other: on a server that makes each wait for a second, 1,000 take minutes.
const WITHIN: Duration = Duration::from_secs(10);

/// In a closed loop, a server that is not ours has this time to close each connection. Most servers close
/// within a millisecond of accept(2); a server that keeps half-closed connections gets 10 a second.
const UNTIL_CLOSED: Duration = Duration::from_millis(100);

/// Against an address that is not of this machine or its own network, unless `--count` says other.
const PUBLIC_COUNT: u64 = 100;

/// The settings of one arm, checked.
#[derive(Clone, Debug)]
pub(super) struct ConnectSettings {
    pub lab: LabSpec,
    /// A server we do not control.
    pub to: Option<Target>,
    /// A real server to start on the server host.
    pub server: Option<String>,
    /// Its port, where it listens on several.
    pub port: Option<u16>,
    /// Connections in all, at most.
    pub count: u64,
    /// No connection begins after this long.
    pub duration: Option<Duration>,
    /// Whether that is only to keep the number of connections from taking too long: `--max-time`, or
    /// nothing was said.
    pub is_cut: bool,
    /// What comes before the measurement, if the user said.
    pub warmup: Option<WarmUp>,
    /// At once, at most; absent: chosen from the link.
    pub concurrency: Option<u64>,
    /// Begun per second; absent: closed loop.
    pub rate: Option<f64>,
    /// Pause after so many.
    pub pause_every: Option<u64>,
    /// Length of a pause.
    pub pause: Duration,
    /// Of `listen(2)`.
    pub backlog: i32,
    /// Work before each accept.
    pub accept_delay: Duration,
    pub fast_open: bool,
    /// Wait for the server's first byte before closing.
    pub first_byte: bool,
    pub bind: Vec<IpAddr>,
    /// From start to end of one operation.
    pub timeout: Duration,
    pub congestion: Option<String>,
    /// Bytes to send once connected, to a server that does not speak first.
    pub send: Vec<u8>,
    /// Distance for the physical floor.
    pub distance_km: Option<f64>,
    /// What the user said; the rest follows from the target.
    pub(super) asked: OpeningSettings,
}

/// What the user said of how many connections are opened, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpeningSettings {
    count: Option<u64>,
    duration: Option<Duration>,
    rate: Option<f64>,
}

impl ConnectSettings {
    /// Checks the settings of one arm. A name is taken as public until its address is known.
    pub(super) fn from(settings: &Settings) -> Result<Self, TrialError> {
        let reader = SettingsReader::new(&SPEC, settings)?;
        let to = reader.typed("to").map(|to| Target::of_to(&to)).transpose()?;
        let lab = LabSpec::from(&reader)?;
        if settings.contains_key("rate") && settings.contains_key("concurrency") {
            return Err(TrialError::Setting(
                "--concurrency has no effect with --rate, because an open loop starts connections on schedule: leave one of them out".to_owned(),
            ));
        }
        let count = reader.typed_count("count", 1, COUNT_MAX)?;
        let pause_every = reader.typed_count("pause-every", 1, COUNT_MAX)?;
        for key in ["backlog", "accept-delay"] {
            if settings.contains_key(key) && reader.typed("server").is_some() {
                return Err(TrialError::Setting(format!(
                    "--{key} sets up tcptoll's own server: with --server, set it in that server's configuration"
                )));
            }
        }
        let rate = reader.rate("connections")?;
        let duration = reader.typed_time("duration")?;
        if duration.is_some_and(|long| long.is_zero()) {
            return Err(TrialError::Setting(
                "--duration 0: nothing would be opened; write a time above 0, like 10s".to_owned(),
            ));
        }
        let max_time = reader.typed_time("max-time")?;
        if max_time.is_some_and(|long| long.is_zero()) {
            return Err(TrialError::Setting(
                "--max-time 0: nothing would be opened; write a time above 0, like 10s".to_owned(),
            ));
        }
        if max_time.is_some() && (to.is_none() || duration.is_some()) {
            let why = match to {
                None => {
                    "it limits only runs in rounds and connections to a server of yours (--to): write --duration"
                }
                Some(_) => "it has no effect with --duration: leave one of them out",
            };
            let typed = reader.typed("max-time").unwrap_or_default();
            return Err(wrong("max-time", &typed, why));
        }
        let otherwise = (to.is_some() && count.is_none() && duration.is_none()).then_some(WITHIN);
        let limit = max_time.or(otherwise);
        let is_ours = to.is_none() && reader.typed("server").is_none();
        let send = unescape(&reader.typed("send").unwrap_or_default());
        let mut this = Self {
            asked: OpeningSettings { count, duration, rate },
            lab,
            to,
            server: reader.typed("server"),
            port: reader.typed_count("port", 1, 65_535)?.map(|port| port as u16),
            count: 0,
            duration: duration.or(limit),
            is_cut: limit.is_some(),
            warmup: reader.warm_up("connections", COUNT_MAX)?,
            concurrency: reader.typed_count("concurrency", 1, 100_000)?,
            rate,
            pause_every,
            pause: reader.time("pause")?,
            backlog: reader.count("backlog", 0, i32::MAX as u64)? as i32,
            accept_delay: reader.time("accept-delay")?,
            fast_open: reader.flag("fast-open")?,
            // A server that is not ours may wait for the client to speak.
            first_byte: reader.typed_flag("first-byte")?.unwrap_or(is_ours || !send.is_empty()),
            bind: reader.addresses("bind")?,
            timeout: reader.read("timeout", time_above_zero)?,
            congestion: reader.typed("congestion"),
            send,
            distance_km: reader.distance()?,
        };
        this.set_defaults();
        Ok(this)
    }

    /// How many are opened and how fast, where the user did not say: a server that may belong to
    /// somebody else gets little.
    pub(super) fn set_defaults(&mut self) {
        let public = self.to.as_ref().is_some_and(Target::seems_public);
        let OpeningSettings { count, duration, rate } = self.asked;
        self.rate = rate.or(public.then_some(PUBLIC_RATE_PER_S));
        self.count = count.unwrap_or(match (duration, self.rate) {
            // What is due at the very end does not begin any more.
            (Some(long), Some(rate)) => {
                ((long.as_secs_f64() * rate).ceil() as u64).clamp(1, COUNT_MAX)
            }
            (Some(_), None) => COUNT_MAX,
            (None, _) if public => PUBLIC_COUNT,
            (None, _) => 1_000,
        });
    }

    /// Connections of a trial that ends after a number of them, as far as it is known before names are resolved.
    pub(super) fn operations_asked(&self) -> Option<u64> {
        self.asked.count.or((self.to.is_none() && self.duration.is_none()).then_some(self.count))
    }

    /// Operations at once: as asked, or so many that about 500 begin per second.
    pub(super) fn at_once(&self) -> u64 {
        const PER_SECOND: f64 = 500.0;
        self.concurrency
            .unwrap_or_else(|| {
                (self.lab.link.rtt.as_secs_f64() * PER_SECOND).ceil().max(1.0) as u64
            })
            .min(self.count)
    }

    /// The load before the measurement; `None`: there is none.
    ///
    /// What was asked for is the same load, shorter. What nobody asked for is a few connections to
    /// a server of their own that no setting can make slow; a server that is not ours gets none.
    pub(super) fn warm_up(&self) -> Option<Self> {
        let untapped = LabSpec { tap: false, ..self.lab.clone() };
        let (count, duration) = match self.warmup {
            None if self.to.is_some() => return None,
            None => {
                return Some(Self {
                    count: WARM_UP,
                    duration: None,
                    concurrency: Some(WARM_UP),
                    rate: None,
                    pause_every: None,
                    backlog: 4096,
                    accept_delay: Duration::ZERO,
                    fast_open: false,
                    first_byte: true,
                    send: Vec::new(),
                    server: None,
                    port: None,
                    timeout: Duration::from_secs(2),
                    lab: untapped,
                    ..self.clone()
                });
            }
            Some(WarmUp::Operations(0)) => return None,
            Some(WarmUp::Operations(count)) => (count, None),
            Some(WarmUp::Time(long)) if long.is_zero() => return None,
            Some(WarmUp::Time(long)) => (COUNT_MAX, Some(long)),
        };
        Some(Self { count, duration, lab: untapped, ..self.clone() })
    }

    /// How long each connection waits for the server to close it too. In the lab the load is what was
    /// asked for, and an open loop has its schedule.
    pub(super) fn until_closed(&self) -> Duration {
        if self.to.is_some() && self.rate.is_none() { UNTIL_CLOSED } else { Duration::ZERO }
    }

    /// Time of one connection if all goes well, s: a round trip to connect, another to the first
    /// byte, and the CPU of both ends (measured without distance on Linux 6.18: 80 µs).
    fn one_s(&self) -> f64 {
        let trips = if self.first_byte { 2.0 } else { 1.0 };
        self.lab.link.rtt.as_secs_f64() * trips + 80e-6
    }

    /// Connections begun per second while there is no pause, if all goes well.
    fn per_s(&self) -> f64 {
        let delay = self.accept_delay.as_secs_f64();
        let begun = self.rate.unwrap_or_else(|| {
            (self.at_once() as f64 / self.one_s().max(delay)).min(CLOSED_LOOP_MAX_PER_S)
        });
        if delay > 0.0 { begun.min(1.0 / delay) } else { begun }
    }

    /// Connections that will be opened, if all goes well.
    pub(super) fn expected_count(&self) -> u64 {
        let Some(long) = self.duration else { return self.count };
        let (long, per_s) = (long.as_secs_f64(), self.per_s());
        let in_time = match self.pause_every {
            Some(every) => {
                let every = every as f64;
                long / (every / per_s + self.pause.as_secs_f64()) * every
            }
            None => long * per_s,
        };
        self.count.min(in_time.ceil().max(1.0) as u64)
    }

    /// Local ports in use at once, warm-up included: those of the last minute.
    pub(super) fn ports(&self) -> u64 {
        let held = |load: &Self| load.expected_count().min((load.per_s() * PORT_S).ceil() as u64);
        held(self) + self.warm_up().map_or(0, |warm| held(&warm))
    }

    /// How long the load takes, if all goes well, s.
    fn load_s(&self) -> f64 {
        let pauses = self
            .pause_every
            .map_or(0.0, |every| ((self.count - 1) / every) as f64 * self.pause.as_secs_f64());
        let counted = self.count as f64 / self.per_s() + pauses;
        self.duration.map_or(counted, |long| counted.min(long.as_secs_f64())) + self.one_s()
    }

    /// How long the arm will take, seconds, if all goes well; the certification of its link, once
    /// in a run, comes on top.
    pub(super) fn expected_s(&self) -> f64 {
        let place = OVERHEAD_S + 3.0 * self.lab.link.rtt.as_secs_f64();
        self.load_s() + self.warm_up().map_or(0.0, |warm| warm.load_s()) + place
    }
}

impl SettingsReader<'_> {
    pub(super) fn distance(&self) -> Result<Option<f64>, TrialError> {
        let Some(typed) = self.typed("distance-km") else { return Ok(None) };
        let why = "write kilometres, above 0 and at most 40000";
        let km = typed.parse::<f64>().ok().filter(|km| *km > 0.0 && *km <= 40_000.0);
        km.map(Some).ok_or_else(|| wrong("distance-km", &typed, why))
    }
}

#[cfg(test)]
mod tests {
    use tcptoll_core::record::Resolved;

    use super::*;
    use crate::kit::plan::Plan as _;

    fn read(pairs: &[(&str, &str)]) -> Result<ConnectSettings, String> {
        let settings =
            pairs.iter().map(|(k, v)| ((*k).to_owned(), Value::from(*v))).collect::<Settings>();
        ConnectSettings::from(&settings).map_err(|error| error.to_string())
    }

    #[test]
    fn a_setting_without_effect_is_an_error() {
        assert!(read(&[("pause", "1s")]).unwrap_err().contains("--pause-every"));
        assert!(read(&[("port", "80")]).unwrap_err().contains("--server"));
        assert!(read(&[("to", "127.0.0.1:9"), ("backlog", "4")]).unwrap_err().contains("lab"));
    }

    #[test]
    fn an_impossible_rate_names_what_is_possible() {
        for rate in ["0", "-1", "fast", "NaN", "1e9"] {
            let error = read(&[("rate", rate)]).unwrap_err();
            assert!(error.starts_with(&format!("--rate {rate}: ")), "{error}");
        }
    }

    #[test]
    fn a_server_of_yours_gets_its_connections_within_a_time_unless_one_is_stated() {
        let within = |more: &[(&str, &str)]| {
            let settings = read(&[&[("to", "127.0.0.1:80")], more].concat()).unwrap();
            (settings.count, settings.duration.map(|long| long.as_secs()), settings.is_cut)
        };
        assert_eq!(within(&[]), (1_000, Some(10), true));
        assert_eq!(within(&[("max-time", "30s")]), (1_000, Some(30), true));
        assert_eq!(within(&[("max-time", "30s"), ("count", "7")]), (7, Some(30), true));
        assert_eq!(within(&[("count", "5000")]), (5_000, None, false));
        assert_eq!(within(&[("duration", "2s")]), (COUNT_MAX, Some(2), false));
        assert_eq!(read(&[]).unwrap().duration, None, "in the lab the number is kept");
        let lab = read(&[("max-time", "30s")]).unwrap_err();
        assert!(lab.starts_with("--max-time 30s: ") && lab.contains("--duration"), "{lab}");
        let both = [("to", "127.0.0.1:80"), ("max-time", "30s"), ("duration", "2s")];
        assert!(read(&both).unwrap_err().contains("leave one of them out"));
    }

    #[test]
    fn the_first_byte_of_a_server_that_may_not_speak_is_waited_for_if_that_is_asked() {
        let waits = |pairs: &[(&str, &str)]| read(pairs).unwrap().first_byte;
        let to = ("to", "127.0.0.1:80");
        assert!(waits(&[]) && !waits(&[to]) && !waits(&[("server", "redis-server")]));
        assert!(waits(&[to, ("first-byte", "on")]) && waits(&[to, ("send", "PING")]));
        assert!(!waits(&[("first-byte", "off")]));
    }

    #[test]
    fn a_target_needs_host_and_port() {
        for to in ["localhost", "localhost:", "localhost:0", "localhost:99999", ":", ":80"] {
            assert!(read(&[("to", to)]).is_err(), "{to}");
        }
        assert_eq!(read(&[("to", "127.0.0.1:80")]).unwrap().count, 1_000);
    }

    #[test]
    fn a_public_target_gets_a_modest_rate_unless_told_otherwise() {
        let modest = read(&[("to", "192.0.2.1:80")]).unwrap();
        assert_eq!((modest.rate, modest.count), (Some(PUBLIC_RATE_PER_S), PUBLIC_COUNT));
        let told = read(&[("to", "192.0.2.1:80"), ("rate", "500"), ("count", "9")]).unwrap();
        assert_eq!((told.rate, told.count), (Some(500.0), 9));
    }

    #[test]
    fn a_name_gets_a_modest_rate_until_its_address_is_known_to_be_private() {
        let settings: Settings = [("to".to_owned(), Value::from("db.example:80"))].into();
        let limits = |used: &[&str]| {
            let entry = |used: &&str| Resolved {
                name: "db.example:80".to_owned(),
                addresses: vec![(*used).to_owned()],
                used: (*used).to_owned(),
            };
            let resolved: Vec<Resolved> = used.iter().map(entry).collect();
            let mut settings = ConnectSettings::from(&settings).unwrap();
            settings.resolved(&resolved);
            (settings.rate, settings.count)
        };
        assert_eq!(limits(&[]), (Some(PUBLIC_RATE_PER_S), PUBLIC_COUNT));
        assert_eq!(limits(&["192.0.2.1"]), (Some(PUBLIC_RATE_PER_S), PUBLIC_COUNT));
        assert_eq!(limits(&["10.0.0.1"]), (None, 1_000));
    }

    #[test]
    fn a_duration_alone_leaves_the_count_open() {
        assert_eq!(read(&[("duration", "2s")]).unwrap().count, COUNT_MAX);
        let both = read(&[("duration", "2s"), ("count", "50")]).unwrap();
        assert_eq!((both.count, both.duration), (50, Some(Duration::from_secs(2))));
        // 300 per second for half a second; at 0.5 s the next one would be due.
        let paced = read(&[("duration", "0.5s"), ("rate", "300")]).unwrap();
        assert_eq!((paced.count, paced.expected_count()), (150, 150));
        assert!(read(&[("duration", "0")]).unwrap_err().contains("above 0"));
    }

    #[test]
    fn a_duration_bounds_the_expected_time_and_count() {
        let settings = read(&[("duration", "10s"), ("concurrency", "5"), ("link", "rtt=50ms")]);
        let settings = settings.unwrap();
        // 5 at once, 0.1 s each: 50 per second.
        assert!((490..=500).contains(&settings.expected_count()));
        assert!((10.0..11.0).contains(&settings.expected_s()));
        let short = read(&[("duration", "10s"), ("count", "5"), ("link", "rtt=50ms")]).unwrap();
        assert!((0.1..1.5).contains(&short.expected_s()), "{}", short.expected_s());
        // 500 at 500 per second, then 4 s of nothing: 1,000 in 10 s.
        let paced = [("duration", "10s"), ("rate", "500"), ("pause-every", "500"), ("pause", "4s")];
        assert_eq!(read(&paced).unwrap().expected_count(), 1_000);
    }

    #[test]
    fn a_port_is_held_for_a_minute_so_a_slow_load_needs_few() {
        assert_eq!(read(&[("count", "50000")]).unwrap().ports(), 50_020);
        let slow = read(&[("count", "50000"), ("rate", "10"), ("warmup", "0")]).unwrap();
        assert_eq!(slow.ports(), 600);
        let timed = read(&[("duration", "5s"), ("warmup", "0")]).unwrap();
        assert!((60_000..65_000).contains(&timed.ports()), "{}", timed.ports());
    }

    #[test]
    fn a_warm_up_without_a_unit_is_a_number_of_connections() {
        let warm = |pairs: &[(&str, &str)]| {
            read(pairs).unwrap().warm_up().map(|warm| (warm.count, warm.duration, warm.backlog))
        };
        assert_eq!(warm(&[]), Some((WARM_UP, None, 4096)));
        assert_eq!(warm(&[("warmup", "0")]), None);
        assert_eq!(warm(&[("warmup", "0s")]), None);
        assert_eq!(warm(&[("warmup", "1k"), ("backlog", "4")]), Some((1_000, None, 4)));
        let long = Some(Duration::from_secs(2));
        assert_eq!(warm(&[("warmup", "2s")]), Some((COUNT_MAX, long, 4096)));
        assert_eq!(warm(&[("backlog", "4"), ("accept-delay", "9s")]), Some((WARM_UP, None, 4096)));
        for typed in ["-1", "2 parsecs", "", "11M"] {
            assert!(read(&[("warmup", typed)]).unwrap_err().starts_with("--warmup "), "{typed}");
        }
    }

    #[test]
    fn a_server_that_is_not_ours_is_warmed_up_only_if_told_to() {
        assert!(read(&[("to", "127.0.0.1:80")]).unwrap().warm_up().is_none());
        let told = read(&[("to", "127.0.0.1:80"), ("warmup", "5")]).unwrap();
        assert_eq!(told.warm_up().unwrap().count, 5);
    }

    #[test]
    fn concurrency_follows_the_round_trip() {
        assert_eq!(read(&[("link", "cross-region")]).unwrap().at_once(), 19);
        assert_eq!(read(&[]).unwrap().at_once(), 1);
        assert_eq!(read(&[("concurrency", "7"), ("count", "3")]).unwrap().at_once(), 3);
    }
}
