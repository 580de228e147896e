//! Three ways of using connections in fifteen rounds: a header that asks the server to close, and a
//! client that closes, against keeping open; a few responses were cut off.

use tcptoll_model::ports::PortForecast;

use super::*;

const ROUNDS: u32 = 15;
const PER_ROUND: u64 = 4_000;

/// Name, requests/s, CPU of client and server per request, and who closes first.
const WAYS: [(&str, f64, f64, f64, &str); 3] = [
    ("keep-alive", 28_400.0, 7.2, 21.4, "nobody"),
    ("server-close", 12_150.0, 26.1, 47.9, "server"),
    ("client-close", 11_020.0, 27.8, 49.3, "client"),
];

fn forecast(client_closes: bool) -> PortForecast {
    let text = if client_closes {
        "28,232 usable × 1 source × 1 destination; a closed connection keeps its port for 60 s: \
         enough for 471 new connections/s for ever, or 28,232 at once"
    } else {
        "28,232 usable × 1 source × 1 destination; the server closes first and keeps TIME-WAIT: \
         ports do not limit the rate"
    };
    PortForecast {
        usable: 28_232,
        sources: 1,
        destinations: 1,
        held_s: if client_closes { 60.0 } else { 0.0 },
        at_once: 28_232,
        sustained_per_s: client_closes.then_some(470.533),
        text: text.into(),
    }
}

fn closing(closer: &str, connections: u64) -> Closing {
    let of = |who: &str| if closer == who { connections } else { 0 };
    Closing {
        by_client: of("client"),
        by_server: of("server"),
        open_at_end: if closer == "nobody" { connections } else { 0 },
        both: Some(0),
        ..Closing::default()
    }
}

fn way(dice: &mut Dice, at: usize) -> Arm {
    let (reuse, rate, client_us, server_us, closer) = WAYS[at];
    let tenth = |value: f64| (value * 10.0).round() / 10.0;
    let rounds: Vec<Round> = (0..ROUNDS)
        .map(|round| Round {
            round,
            began_s: tenth(f64::from(round) * 1.4 + at as f64 * 0.45),
            left_out: None,
            metrics: [(
                "requests_per_s".to_owned(),
                tenth(rate * (1.0 + 0.01 * (dice.unit() - 0.5))),
            )]
            .into(),
        })
        .collect();
    let values: Vec<f64> = rounds.iter().map(|round| round.metrics["requests_per_s"]).collect();
    let mean = tenth(values.iter().sum::<f64>() / values.len() as f64);
    let count = u64::from(ROUNDS) * PER_ROUND;
    let short = closer != "nobody";
    let connections = if short { count } else { 50 * u64::from(ROUNDS) };
    let truncated = if reuse == "server-close" { 9 } else { 0 };
    let latency = 50.0 / rate * 1e6;
    let mut histograms = BTreeMap::new();
    histograms.insert(
        "latency_us".to_owned(),
        histogram(dice, 20_000, (latency * 0.7, latency * 0.3, (0.001, latency * 4.0))),
    );
    let strip = |mut h: HistogramSummary| {
        h.hdr = None;
        h
    };
    if short {
        let connect = histogram(dice, 20_000, (latency * 0.2, latency * 0.1, (0.0, 0.0)));
        histograms.insert("connect_us".to_owned(), strip(connect));
    }
    let first = histogram(dice, 20_000, (latency * 0.5, latency * 0.2, (0.0, 0.0)));
    histograms.insert("first_byte_us".to_owned(), strip(first));
    let rate = Metric {
        value: mean,
        unit: "1/s".into(),
        ci95: Some([tenth(mean * 0.998), tenth(mean * 1.002)]),
        median: Some(mean),
        n: u64::from(ROUNDS),
    };
    let per_connection = if short { 1.0 } else { 80.0 };
    // What is open at the end the client closes.
    let waiting = |side: &str| match (closer, side) {
        ("nobody", "client") => 50.0,
        (closer, side) if closer == side => PER_ROUND as f64,
        _ => 0.0,
    };
    let one = |value: f64, unit: &str| metric(value, unit, u64::from(ROUNDS));
    let mut server = host(server_us * 0.3, server_us * 0.7, &[]);
    server.version = Some("nginx/1.22.1".into());
    server.processes = Some(2);
    server.memory_bytes = Some(7_340_032);
    let mut client = host(client_us * 0.2, client_us * 0.8, &[]);
    client.sockstat = counters(&[("TCP_tw", if closer == "client" { connections } else { 0 })]);
    Arm {
        name: format!("reuse {reuse}"),
        factors: [("reuse".to_owned(), json!(reuse))].into(),
        link: Some(link(dice, LinkKind::Direct, "direct", 0.0, 31.0)),
        metrics: [
            ("requests_per_s".to_owned(), rate),
            ("requests_per_connection".to_owned(), one(per_connection, "requests")),
            ("client_segments_per_op".to_owned(), one(if short { 6.0 } else { 1.02 }, "segments")),
            ("server_segments_per_op".to_owned(), one(if short { 5.0 } else { 1.01 }, "segments")),
            ("kernel_bytes_per_connection".to_owned(), one(2_304.0, "bytes")),
            ("client_bytes_per_connection".to_owned(), one(208.0, "bytes")),
            ("client_cpu_us_per_op".to_owned(), one(client_us, "us")),
            ("client_time_wait".to_owned(), one(waiting("client"), "sockets")),
            ("server_time_wait".to_owned(), one(waiting("server"), "sockets")),
            ("server_cpu_us_per_op".to_owned(), one(server_us, "us")),
        ]
        .into(),
        histograms,
        attempts: count,
        ok: count - truncated,
        errors: if truncated > 0 { counters(&[("truncated", truncated)]) } else { BTreeMap::new() },
        client,
        server: Some(server),
        rounds,
        warmup: Some(Warmup { attempts: 500, ok: 500, elapsed_s: 0.1, ..Warmup::default() }),
        series: [("latency_us".to_owned(), series(dice, 0.4, latency, latency * 0.2))].into(),
        connections_attempted: Some(connections),
        connections_ok: Some(connections),
        closing: Some(closing(closer, connections)),
        ports: Some(forecast(closer == "client")),
        io: Some("epoll".into()),
        elapsed_s: 0.4,
        ..Arm::default()
    }
}

/// The study that `--reuse keep-alive,server-close,client-close` is.
pub(super) fn http(dice: &mut Dice) -> Summary {
    let mut s = summary(
        "What does it cost to reuse a connection, or not, and who pays?",
        "Asking the server to close serves 0.43 of the requests of keep-alive, a client that closes \
         0.39. The header is not the same as closing: whoever closes first keeps TIME-WAIT.",
        "tcptoll http --reuse keep-alive,server-close,client-close --requests 4000",
    );
    s.experiment = "http".into();
    s.primary_metric = Some("requests_per_s".into());
    s.place.link = Some(asked("direct", 0.0));
    s.arms = (0..WAYS.len()).map(|at| way(dice, at)).collect();
    let compare = |at: usize| {
        let of = |arm: &Arm| arm.metrics["requests_per_s"].value;
        let ratio = (of(&s.arms[at]) / of(&s.arms[0]) * 1e4).round() / 1e4;
        let difference = (of(&s.arms[at]) - of(&s.arms[0])).round();
        Comparison {
            metric: "requests_per_s".into(),
            a: s.arms[at].name.clone(),
            b: s.arms[0].name.clone(),
            ratio: Some(ratio),
            ci95: Some([ratio * 0.995, ratio * 1.005]),
            difference: Some(Metric {
                value: difference,
                unit: "1/s".into(),
                ci95: Some([difference - 60.0, difference + 60.0]),
                median: None,
                n: u64::from(ROUNDS),
            }),
            margin: 0.01,
            rounds: ROUNDS,
            alpha: 0.025,
            verdict: Verdict::Lower,
            ..Comparison::default()
        }
    };
    s.comparisons = vec![compare(1), compare(2)];
    s.rounds = Some(Rounds {
        done: ROUNDS,
        most: 30,
        rule: "until every verdict is found, at most 60 s".into(),
        stopped: "every comparison has its verdict after 15 rounds".into(),
        elapsed_s: 21.4,
        excluded: 0,
        failed: 0,
    });
    s.next = vec![next("tcptoll http --work 5ms", "where does reuse stop mattering?")];
    s
}

/// One arm of an open loop against a server that ignores what it is asked, run once.
pub(super) fn open_loop(dice: &mut Dice) -> Summary {
    let mut s = http(dice);
    s.command = "tcptoll http --rate 2000 --reuse server-close --duration 2s"
        .split(' ')
        .map(str::to_owned)
        .collect();
    s.answer = "1,998 of 2,000 requests per second were answered.".into();
    s.primary_metric = None;
    s.rounds = None;
    s.comparisons.clear();
    let mut one = s.arms.swap_remove(1);
    one.rounds.clear();
    one.name = "http".into();
    one.factors.clear();
    one.metrics.insert("intended_per_s".into(), metric(2_000.0, "1/s", 1));
    one.metrics.insert("achieved_per_s".into(), metric(1_998.0, "1/s", 1));
    one.metrics.insert("requests_per_s".into(), metric(1_998.0, "1/s", 1));
    let closing = one.closing.as_mut().unwrap();
    (closing.by_client, closing.by_server, closing.ignored) = (1_200, 58_800, 1_200);
    s.arms = vec![one];
    s
}
