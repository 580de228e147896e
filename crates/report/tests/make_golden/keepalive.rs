//! A thousand idle connections beside one that writes, with four ways of checking them in fifteen
//! rounds; and a run in which peers were made to die.

use tcptoll_model::checking::{Checking, Evidence, Mechanism};
use tcptoll_model::{causes, experiments};

use super::*;

const ROUNDS: u32 = 15;
const SOCKETS: u64 = 1_000;
const WINDOW_S: f64 = 20.0;

/// The same where peers die: shorter than some of the times between two checks.
const DEATHS_WINDOW_S: f64 = 8.0;

/// Bytes of a probe, of its answer, and of what acknowledges a Null.
const BARE: u64 = 52;

/// Bytes of a Null.
const NULL: u32 = 4;

fn checking(mechanism: Mechanism) -> Checking {
    let bare = Checking { mechanism, ..Checking::default() };
    let judged = Checking {
        answer_within_s: Some(2.0),
        evidence: Some(Evidence::Acknowledged),
        null_bytes: Some(NULL),
        tick_s: Some(0.1),
        ..bare.clone()
    };
    match mechanism {
        Mechanism::None => bare,
        Mechanism::Tcp => {
            Checking { idle_s: Some(10.0), interval_s: Some(1.0), probes: Some(4), ..bare }
        }
        Mechanism::Heartbeat => Checking { idle_s: Some(10.0), ..judged },
        Mechanism::Lazy => Checking {
            most: Some(1_000),
            variant: Some("idle for 10 s, until below 1,000, least recently used first".into()),
            ..judged
        },
        Mechanism::Write => Checking {
            interval_s: Some(10.0),
            retransmission_s: Some(924.6),
            null_bytes: Some(NULL),
            ..bare
        },
    }
}

/// Packets and bytes of `n` packets of one length.
fn traffic(n: u64, length: u64) -> Traffic {
    Traffic { packets: n, bytes: n * length }
}

fn keepalive(mechanism: Mechanism, rounds: u32) -> Keepalive {
    let window_s = WINDOW_S * f64::from(rounds);
    let checks = (window_s / 10.0) as u64 * (SOCKETS - 1);
    let of = |which: Mechanism, length: u64| {
        Some(traffic(if mechanism == which { checks } else { 0 }, length))
    };
    let null = BARE + u64::from(NULL);
    Keepalive {
        checking: checking(mechanism),
        side: "server".into(),
        sockets: SOCKETS,
        idle_sockets: SOCKETS - 1,
        processes: [1, 1],
        window_s,
        probes: of(Mechanism::Tcp, BARE),
        probe_answers: of(Mechanism::Tcp, BARE),
        heartbeats: of(Mechanism::Heartbeat, null),
        heartbeat_acks: of(Mechanism::Heartbeat, BARE),
        nulls_sent: if mechanism == Mechanism::Heartbeat { checks } else { 0 },
        wakeups: if mechanism == Mechanism::Heartbeat { (window_s * 10.0) as u64 } else { 0 },
        link_share: Some(if matches!(mechanism, Mechanism::Tcp | Mechanism::Heartbeat) {
            52.0 * 8.0 * 99.9 / 1e8
        } else {
            0.0
        }),
        ..Keepalive::default()
    }
}

/// Name, messages/s, and CPU of the machine, the client's fleet and the server's, µs/s.
const WAYS: [(Mechanism, f64, [f64; 3]); 4] = [
    (Mechanism::None, 11_720.0, [0.0, 0.0, 0.0]),
    (Mechanism::Tcp, 11_690.0, [1_210.0, 0.0, 0.0]),
    (Mechanism::Heartbeat, 11_640.0, [1_873.0, 212.0, 604.0]),
    (Mechanism::Lazy, 11_730.0, [4.1, 0.0, 3.2]),
];

fn way(dice: &mut Dice, at: usize) -> Arm {
    let (mechanism, rate, cpu) = WAYS[at];
    let tenth = |value: f64| (value * 10.0).round() / 10.0;
    let rounds: Vec<Round> = (0..ROUNDS)
        .map(|round| Round {
            round,
            began_s: tenth(f64::from(round) * 88.0 + at as f64 * 22.0),
            left_out: None,
            metrics: [(
                "messages_per_s".to_owned(),
                tenth(rate * (1.0 + 0.008 * (dice.unit() - 0.5))),
            )]
            .into(),
        })
        .collect();
    let values: Vec<f64> = rounds.iter().map(|round| round.metrics["messages_per_s"]).collect();
    let mean = tenth(values.iter().sum::<f64>() / values.len() as f64);
    let n = u64::from(ROUNDS);
    let keepalive = keepalive(mechanism, ROUNDS);
    let spent = keepalive.probes.unwrap().packets + keepalive.heartbeats.unwrap().packets;
    let messages = (mean * keepalive.window_s) as u64;
    let rate = Metric {
        value: mean,
        unit: "1/s".into(),
        ci95: Some([tenth(mean * 0.998), tenth(mean * 1.002)]),
        median: Some(mean),
        n,
    };
    let [machine, client, server] = cpu.map(|value| metric(value, "us/s", n));
    let hourly = |each: f64| each * if spent > 0 { 360.0 } else { 0.0 };
    Arm {
        name: format!("mechanism {mechanism}"),
        factors: [("mechanism".to_owned(), json!(mechanism.name()))].into(),
        link: Some(link(dice, LinkKind::EmulatedTun, "lan", 250.0, 251.0)),
        metrics: [
            ("messages_per_s".to_owned(), rate),
            ("goodput_bytes_per_s".to_owned(), metric(mean * 1_000.0, "bytes/s", n)),
            ("checking_packets_per_hour_per_socket".to_owned(), metric(hourly(2.0), "1/h", n)),
            (
                "checking_bytes_per_hour_per_socket".to_owned(),
                metric(hourly(if at == 2 { 108.0 } else { 104.0 }), "bytes/h", n),
            ),
            ("machine_cpu_us_per_s_per_1000_sockets".to_owned(), machine),
            ("client_fleet_cpu_us_per_s_per_1000_sockets".to_owned(), client),
            ("server_fleet_cpu_us_per_s_per_1000_sockets".to_owned(), server),
            ("client_cpu_us_per_op".to_owned(), metric(20.4, "us", n)),
            ("server_cpu_us_per_op".to_owned(), metric(31.2, "us", n)),
            ("client_bytes_per_socket".to_owned(), metric(312.0, "bytes", n)),
            ("client_kernel_bytes_per_socket".to_owned(), metric(3_328.0, "bytes", n)),
            ("server_kernel_bytes_per_socket".to_owned(), metric(3_456.0, "bytes", n)),
        ]
        .into(),
        attempts: messages,
        ok: messages,
        client: host(4.0, 16.4, &[]),
        server: Some(host(6.0, 25.2, &[("TcpExtTCPKeepAlive", 0)])),
        rounds,
        own: keepalive.into(),
        elapsed_s: 22.0,
        ..Arm::default()
    }
}

/// What checking costs a connection that writes.
pub(super) fn keepalive_costs(dice: &mut Dice) -> Summary {
    let mut s = summary(
        "What does checking idle connections cost?",
        "Checking 999 idle connections every 10 s costs the one that writes nothing that 15 rounds \
         could find; probes take 1.21 ms of CPU a second per 1,000 connections, heartbeats 1.87 ms.",
        "tcptoll keepalive --sockets 1000 --mechanism none,tcp,heartbeat,lazy --idle 10s",
    );
    s.experiment = "keepalive".into();
    s.primary_metric = Some("messages_per_s".into());
    s.place.link = Some(asked("lan", 250.0));
    s.arms = (0..WAYS.len()).map(|at| way(dice, at)).collect();
    let compare = |at: usize| {
        let of = |arm: &Arm| arm.metrics["messages_per_s"].value;
        let ratio = (of(&s.arms[at]) / of(&s.arms[0]) * 1e4).round() / 1e4;
        Comparison {
            metric: "messages_per_s".into(),
            a: s.arms[at].name.clone(),
            b: s.arms[0].name.clone(),
            ratio: Some(ratio),
            ci95: Some([ratio * 0.996, ratio * 1.004]),
            margin: 0.02,
            rounds: ROUNDS,
            alpha: 0.017,
            verdict: Verdict::NoDifference,
            ..Comparison::default()
        }
    };
    s.comparisons = (1..WAYS.len()).map(compare).collect();
    s.rounds = Some(Rounds {
        done: ROUNDS,
        most: 30,
        rule: "until every verdict is found".into(),
        stopped: "every comparison has its verdict after 15 rounds".into(),
        elapsed_s: 1_320.0,
        excluded: 0,
        failed: 0,
    });
    s
}

/// What is made to die, and how it comes to be known.
struct Death {
    name: &'static str,
    checking: Checking,
    fault: &'static str,
    /// Least and greatest time until it is known, s; absent where it never is.
    known_s: Option<(f64, f64)>,
    by: &'static str,
    bound_s: Option<f64>,
    granularity_s: Option<f64>,
    spent: u64,
}

fn deadly() -> Vec<Death> {
    let tcp = checking(Mechanism::Tcp);
    let heartbeat = checking(Mechanism::Heartbeat);
    let quick = Checking { idle_s: Some(1.0), probes: Some(3), ..tcp.clone() };
    let write = Checking {
        user_timeout_s: Some(20.0),
        interval_s: Some(5.0),
        ..checking(Mechanism::Write)
    };
    let death = |name, checking, fault, known_s, by, bound: Option<(f64, f64)>, spent| Death {
        name,
        checking,
        fault,
        known_s,
        by,
        bound_s: bound.map(|(bound, _)| bound),
        granularity_s: bound.map(|(_, granularity)| granularity),
        spent,
    };
    let timed_out = "ETIMEDOUT";
    vec![
        death("none", checking(Mechanism::None), "cut", None, "", None, 0),
        death("tcp 10 s", tcp.clone(), "cut", Some((10.4, 14.8)), timed_out, Some((14.0, 1.76)), 4),
        death("tcp 1 s", quick, "cut", Some((3.1, 4.3)), timed_out, Some((4.0, 0.51)), 3),
        death("tcp 10 s", tcp, "freeze", None, "", Some((14.0, 1.76)), 24),
        death(
            "heartbeat 10 s",
            heartbeat.clone(),
            "cut",
            Some((2.3, 12.1)),
            "no acknowledgment",
            Some((12.0, 0.205)),
            5,
        ),
        death(
            "heartbeat 10 s",
            heartbeat,
            "reset",
            Some((0.000_21, 0.004_1)),
            "ECONNRESET",
            Some((12.0, 0.205)),
            0,
        ),
        death(
            "lazy",
            checking(Mechanism::Lazy),
            "cut",
            Some((30.1, 32.2)),
            "no acknowledgment",
            None,
            5,
        ),
        death(
            "write 5 s, user timeout",
            write,
            "cut",
            Some((20.3, 25.9)),
            timed_out,
            Some((25.0, 3.135)),
            9,
        ),
    ]
}

fn dying(dice: &mut Dice, death: &Death) -> Arm {
    let (dead, alive) = (500_u64, 500_u64);
    let mut known = Histogram::new();
    if let Some((least, most)) = death.known_s {
        for _ in 0..dead {
            known.record_ns(((least + (most - least) * dice.unit()) * 1e9) as u64);
        }
    }
    let mut keepalive = keepalive(death.checking.mechanism, 1);
    keepalive.checking = death.checking.clone();
    let period_s = death.checking.period_s();
    let checks = period_s.map_or(0.0, |s| DEATHS_WINDOW_S / s * (SOCKETS - 1) as f64) as u64;
    let of = |sent: bool, length: u64| Some(traffic(if sent { checks } else { 0 }, length));
    let probes = death.checking.mechanism == Mechanism::Tcp;
    let nulls = matches!(death.checking.mechanism, Mechanism::Heartbeat | Mechanism::Write);
    keepalive.window_s = DEATHS_WINDOW_S;
    keepalive.probes = of(probes, BARE);
    keepalive.probe_answers = of(probes, BARE);
    keepalive.heartbeats = of(nulls, BARE + u64::from(NULL));
    keepalive.heartbeat_acks = of(nulls, BARE);
    let counts = |what: &str, n: u64| {
        if what.is_empty() { BTreeMap::new() } else { counters(&[(what, n)]) }
    };
    let lazy = death.checking.mechanism == Mechanism::Lazy;
    let read = match death.by {
        "ETIMEDOUT" => "ETIMEDOUT, then 0",
        "ECONNRESET" => "ECONNRESET, then 0",
        "no acknowledgment" => "EAGAIN",
        _ => "",
    };
    keepalive.deaths = Some(Deaths {
        fault: death.fault.into(),
        stricken: dead,
        dead,
        known: if death.known_s.is_some() { dead } else { 0 },
        known_by: counts(death.by, dead),
        read_said: counts(read, dead),
        watched_s: 60.0,
        bound_s: death.bound_s,
        granularity_s: death.granularity_s,
        alive,
        traffic: Some(traffic(death.spent * dead, BARE)),
        arrivals: if lazy { 500 } else { 0 },
        ..Deaths::default()
    });
    // Of a window shorter than that there is no figure of an hour.
    let hour = period_s.is_none_or(|s| s <= DEATHS_WINDOW_S).then(|| {
        let packets = death.checking.packets_per_hour().unwrap() * 1.01;
        let each = (BARE + if nulls { u64::from(NULL) / 2 } else { 0 }) as f64;
        [
            ("checking_packets_per_hour_per_socket".to_owned(), metric(packets, "1/h", 1)),
            ("checking_bytes_per_hour_per_socket".to_owned(), metric(packets * each, "bytes/h", 1)),
        ]
    });
    let mut histograms = BTreeMap::new();
    if death.known_s.is_some() {
        histograms.insert("detection_us".to_owned(), known.summary_us());
    }
    if lazy {
        let wait = histogram(dice, 500, (2_000_000.0, 40_000.0, (0.0, 0.0)));
        histograms.insert("arrival_us".to_owned(), wait);
    }
    Arm {
        name: format!("{}, {}", death.name, death.fault),
        factors: [
            ("mechanism".to_owned(), json!(death.checking.mechanism.name())),
            ("fault".to_owned(), json!(death.fault)),
        ]
        .into(),
        link: Some(link(dice, LinkKind::EmulatedTun, "lan", 250.0, 251.0)),
        metrics: hour.into_iter().flatten().collect(),
        histograms,
        client: HostSummary::default(),
        own: keepalive.into(),
        elapsed_s: 90.0,
        ..Arm::default()
    }
}

/// Peers that die in three ways, and who learns of it.
pub(super) fn keepalive_faults(dice: &mut Dice) -> Summary {
    let mut s = summary(
        "When is a dead peer known to be dead?",
        "A cut link is known after 14.8 s at most with probes every 10 s, after 12.1 s with \
         heartbeats; a frozen peer is never known by probes, because its kernel answers them.",
        "tcptoll keepalive --sockets 1001 --mechanism none,tcp,heartbeat,lazy,write --fault cut \
         --stricken 500",
    );
    s.experiment = "keepalive".into();
    s.place.link = Some(asked("lan", 250.0));
    s.arms = deadly().iter().map(|death| dying(dice, death)).collect();
    // Loss kills nobody; some are taken for dead all the same.
    let mut lossy = s.arms[2].clone();
    lossy.name = "tcp 1 s, loss=5%".into();
    lossy.factors.insert("fault".into(), json!("loss=5%"));
    lossy.histograms.clear();
    if let Some(deaths) = lossy.own.keepalive.as_mut().and_then(|k| k.deaths.as_mut()) {
        *deaths = Deaths {
            fault: "loss=5%".into(),
            stricken: 500,
            alive: 1_000,
            wrongly_closed: 24,
            expected_wrongly: Some([14.0, 27.8, 43.0]),
            watched_s: 60.0,
            bound_s: deaths.bound_s,
            granularity_s: deaths.granularity_s,
            traffic: Some(traffic(65_934, BARE)),
            ..Deaths::default()
        };
    }
    s.arms.push(lossy);
    let all = experiments::keepalive::SPEC.causes;
    s.causes = s.arms.iter().flat_map(|arm| causes::of(arm, all)).collect();
    s.next = vec![next(
        "tcptoll keepalive --detect-within 30s",
        "the cheapest setting of each mechanism",
    )];
    s
}
