//! Writes `tests/golden/*.json`: `cargo test -p tcptoll-report --test make_golden -- --ignored`.
//!
//! The figures are invented, with the shapes of real runs; a fixed generator makes them the same
//! every time.

#![expect(clippy::unwrap_used, reason = "a generator of files: it may stop at any surprise")]

#[path = "make_golden/hostile.rs"]
mod hostile;
#[path = "make_golden/http.rs"]
mod http;
#[path = "make_golden/keepalive.rs"]
mod keepalive;
#[path = "make_golden/study.rs"]
mod study;

use std::collections::BTreeMap;

use serde_json::json;
use tcptoll_model::record::*;
use tcptoll_model::stats::histogram::Histogram;

/// A small generator with a fixed stream: xorshift.
struct Dice(u64);

impl Dice {
    fn unit(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A latency: a floor, an exponential body, and a share of `slow` by `times`.
    fn latency(&mut self, floor: f64, body: f64, slow: (f64, f64)) -> f64 {
        let us = floor - body * (1.0 - self.unit()).ln();
        if self.unit() < slow.0 { us + slow.1 * (0.5 + self.unit()) } else { us }
    }
}

fn histogram(dice: &mut Dice, n: u32, shape: (f64, f64, (f64, f64))) -> HistogramSummary {
    let mut h = Histogram::new();
    for _ in 0..n {
        h.record_ns((dice.latency(shape.0, shape.1, shape.2) * 1e3) as u64);
    }
    h.summary_us()
}

fn series(dice: &mut Dice, seconds: f64, mean: f64, spread: f64) -> Series {
    let points = (0..60).map(|i| {
        let m = mean + spread * 0.2 * dice.unit();
        let round = |x: f64| (x * 10.0).round() / 10.0;
        let at = round(f64::from(i) * seconds / 60.0 * 10.0) / 10.0;
        [at, round(mean - spread * 0.3), round(m), round(m + spread * (1.0 + 3.0 * dice.unit()))]
    });
    Series { points: points.collect() }
}

fn counters<T: Copy>(entries: &[(&str, T)]) -> BTreeMap<String, T> {
    entries.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect()
}

fn metric(value: f64, unit: &str, n: u64) -> Metric {
    Metric { value, unit: unit.into(), ci95: None, median: None, n }
}

fn passport() -> Passport {
    Passport {
        kernel: "Linux 6.18.5".into(),
        cpu: "Intel(R) Xeon(R) Processor @ 2.60GHz".into(),
        cpus: 2,
        memory_bytes: 8_201_310_208,
        clock_source: "tsc".into(),
        governor: None,
        steal: Some(0.001),
        congestion_control: Some("cubic".into()),
        load_1min: Some(0.42),
        uid: 1000,
    }
}

fn asked(spec: &str, rtt_us: f64) -> LinkAsked {
    LinkAsked { spec: spec.into(), rtt_us, ..LinkAsked::default() }
}

fn link(dice: &mut Dice, kind: LinkKind, spec: &str, rtt_us: f64, real: f64) -> LinkMeasured {
    let emulated = kind == LinkKind::EmulatedTun;
    let strip = |mut h: HistogramSummary| {
        h.hdr = None;
        h
    };
    LinkMeasured {
        kind,
        asked: asked(spec, rtt_us),
        rtt_us: Some(strip(histogram(dice, 100, (real, real * 0.002 + 1.0, (0.0, 0.0))))),
        rate_client_to_server_bit_per_s: emulated.then_some(2.51e9),
        rate_server_to_client_bit_per_s: emulated.then_some(2.49e9),
        loss: emulated.then_some(LossMeasured { sent: 2_000, lost: 0, ci95: [0.0, 0.0018] }),
        lateness_us: emulated.then(|| strip(histogram(dice, 60_000, (2.0, 8.0, (0.001, 60.0))))),
        unwanted_drops: 0,
    }
}

/// The eight steps of a handshake and its first byte on a link of `rtt` µs.
fn timeline(rtt: f64, cpu: f64, matched: u64) -> Timeline {
    let half = rtt / 2.0;
    let steps = [
        ("connect() → SYN out", "client", 9.0 * cpu),
        ("SYN on its way", "wire", half),
        ("SYN in → SYN-ACK out", "server", 14.0 * cpu),
        ("SYN-ACK on its way", "wire", half),
        ("SYN-ACK in → connect() back", "client", 12.0 * cpu),
        ("ACK on its way", "wire", half),
        ("ACK in → queued", "server", 6.0 * cpu),
        ("queued → accept() back", "server", 17.0 * cpu),
    ];
    let mut begins = 0.0;
    let steps = steps.map(|(name, at, p50)| {
        let step = Step {
            name: name.into(),
            at: at.into(),
            begins_us: begins,
            p50_us: p50,
            p99_us: Some(p50 * 1.2 + 8.0),
        };
        begins += p50;
        step
    });
    let view = |name: &str, span: &str, p50_us, expected_rtts| View {
        name: name.into(),
        span: span.into(),
        p50_us,
        expected_rtts,
    };
    Timeline {
        steps: steps.to_vec(),
        views: vec![
            view("client", "connect() → back", rtt + 35.0 * cpu, 1.0),
            view("server kernel", "SYN in → ACK in", rtt + 26.0 * cpu, 1.0),
            view("server process", "connect() → accept()", 1.5 * rtt + 58.0 * cpu, 1.5),
        ],
        matched,
        unmatched: 0,
        source: "measured".into(),
    }
}

fn host(user: f64, system: f64, counts: &[(&str, i64)]) -> HostSummary {
    HostSummary {
        cpu_us_per_op: Some(user + system),
        cpu_user_us_per_op: Some(user),
        cpu_system_us_per_op: Some(system),
        rss_peak_bytes: Some(14_680_064),
        counters: counters(counts),
        pinned_cpu: Some(0),
        ..HostSummary::default()
    }
}

fn wire(n: u64, again: u64) -> Wire {
    let one = WireCounts {
        syn: n + again,
        retransmission: again,
        pure_ack: n * 2,
        data: n,
        fin: n,
        packets: n * 5 + again,
        bytes: n * 290 + again * 60,
        ..WireCounts::default()
    };
    let other = WireCounts { syn: 0, syn_ack: n, retransmission: 0, ..one };
    Wire { client_to_server: one, server_to_client: other, ..Wire::default() }
}

fn summary(question: &str, answer: &str, command: &str) -> Summary {
    Summary {
        record_version: RECORD_VERSION,
        tcptoll_version: "0.1.0".into(),
        experiment: "connect".into(),
        study: None,
        question: question.into(),
        answer: answer.into(),
        command: command.split(' ').map(str::to_owned).collect(),
        started_at: "2026-11-21T21:04:09Z".into(),
        place: Place { kind: PlaceKind::Lab, link: None, target: None },
        resolved: Vec::new(),
        passport: passport(),
        primary_metric: None,
        rounds: None,
        arms: Vec::new(),
        comparisons: Vec::new(),
        published: Vec::new(),
        causes: Vec::new(),
        advice: Vec::new(),
        warnings: Vec::new(),
        next: Vec::new(),
        excluded: Vec::new(),
        partial: false,
        valid: true,
    }
}

/// An arm on a link of `rtt` µs, without faults.
fn arm(dice: &mut Dice, name: &str, n: u32, rtt: f64, slow: (f64, f64)) -> Arm {
    let count = u64::from(n);
    let connect = histogram(dice, n, (rtt + 25.0, 10.0 + rtt * 0.001, slow));
    let first = histogram(dice, n, (2.0 * rtt + 60.0, 20.0 + rtt * 0.002, slow));
    let mean = connect.mean.unwrap();
    let mut histograms = BTreeMap::new();
    histograms.insert("rtt_us".into(), histogram(dice, 200, (rtt, 5.0 + rtt * 0.0005, (0.0, 0.0))));
    histograms.insert("lateness_us".into(), histogram(dice, n, (1.0, 3.0, (0.0, 0.0))));
    let seconds = 30.0;
    let series = [("connect_us".to_owned(), series(dice, seconds, mean, 12.0 + rtt * 0.01))];
    let metrics = [
        ("connect_us_mean", metric((mean * 100.0).round() / 100.0, "us", count)),
        ("first_byte_us_mean", metric(first.mean.unwrap().round(), "us", count)),
        ("connections_per_s", metric(f64::from(n) / seconds, "1/s", count)),
        ("client_cpu_us_per_op", metric(31.0, "us", count)),
        ("rtt_us", metric(rtt, "us", 200)),
    ];
    histograms.insert("connect_us".into(), connect);
    histograms.insert("first_byte_us".into(), first);
    Arm {
        name: name.into(),
        metrics: metrics.map(|(name, m)| (name.to_owned(), m)).into(),
        histograms,
        attempts: count,
        ok: count,
        client: host(
            8.1,
            22.9,
            &[("TcpActiveOpens", i64::from(n)), ("TcpOutSegs", 5 * i64::from(n))],
        ),
        server: Some(host(5.2, 11.4, &[("TcpPassiveOpens", i64::from(n))])),
        softirq: Some(Softirq {
            per_cpu_us_per_op: vec![3.1, 9.4],
            us_per_op: 12.5,
            resolution_us: 4_000.0,
        }),
        wire: Some(wire(count, 0)),
        timeline: Some(timeline(rtt, 1.0, count)),
        expectation: Some(Expectation {
            client_us: rtt + 31.0,
            server_process_us: 1.5 * rtt + 48.0,
            rtt_us: rtt,
            rtt_from: "ICMP echo".into(),
            cpu_us: Some(31.0),
            ..Expectation::default()
        }),
        syn_retry_ladder_s: vec![1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 11.0],
        series: series.into(),
        elapsed_s: seconds,
        ..Arm::default()
    }
}

fn cross_region(dice: &mut Dice) -> Summary {
    let mut s = summary(
        "What does a new connection cost?",
        "Opening a connection costs one round trip (37.1 ms) and 31.0 µs of client CPU.",
        "tcptoll connect --link cross-region --count 30000",
    );
    s.place.link = Some(asked("cross-region", 37_000.0));
    let mut only = arm(dice, "connect", 30_000, 37_010.0, (0.002, 900.0));
    only.link = Some(link(dice, LinkKind::EmulatedTun, "cross-region", 37_000.0, 37_008.0));
    s.arms.push(only);
    s.next = vec![
        next("tcptoll accept-queue --backlog 16,128,4096", "what a full queue costs"),
        next(
            "tcptoll report connect-20261121-2104.jsonl --html report.html",
            "this, with pictures",
        ),
    ];
    s
}

fn next(command: &str, why: &str) -> NextStep {
    NextStep { command: command.into(), why: why.into() }
}

fn nine_arms(dice: &mut Dice) -> Summary {
    let mut s = summary(
        "What does opening a connection cost near and far, paced and not?",
        "",
        "tcptoll study run connect-2021",
    );
    s.study = Some("connect-2021".into());
    let far = [
        ("cross-region", 37_000.0, 0.001),
        ("nearby-city", 1_650.0, 0.001),
        ("same-room", 250.0, 0.001),
        ("loopback paced", 20.0, 0.0005),
        ("loopback unpaced", 20.0, 0.02),
        ("intercontinental link with a long name, congestion control bbr", 100_000.0, 0.004),
        ("intercontinental link with a long name, congestion control cubic", 100_000.0, 0.004),
        ("metro", 800.0, 0.001),
        ("backlog 16, unpaced", 250.0, 0.9),
    ];
    for (at, (name, rtt, slow)) in far.into_iter().enumerate() {
        let shape = if at == 8 || at == 4 { 1_000_000.0 } else { rtt * 0.5 + 200.0 };
        let mut one = arm(dice, name, if at == 7 { 600 } else { 5_000 }, rtt, (slow, shape));
        let kind = if at == 3 || at == 4 { LinkKind::Loopback } else { LinkKind::EmulatedTun };
        one.link = Some(link(dice, kind, name, if at == 3 { 0.0 } else { rtt }, rtt));
        one.factors =
            [("link".to_owned(), json!(name)), ("pause-every".to_owned(), json!(500))].into();
        if at == 4 || at == 8 {
            let full = i64::from(if at == 4 { 104 } else { 4_500 });
            one.client.counters.insert("TcpExtTCPSynRetrans".into(), full);
            let server = one.server.as_mut().unwrap();
            server
                .counters
                .extend(counters(&[("TcpExtListenOverflows", full), ("TcpExtListenDrops", full)]));
            one.wire = Some(wire(5_000, full as u64));
        }
        if at == 7 {
            one.client.cpu_user_us_per_op = None;
            one.client.cpu_system_us_per_op = None;
            one.timeline = None;
        }
        for h in one.histograms.iter_mut().filter(|(key, _)| *key != "connect_us") {
            h.1.hdr = None;
        }
        s.arms.push(one);
    }
    let slow = s.arms[8].histograms["connect_us"].p50.unwrap() / 1e6;
    s.answer = format!(
        "A connection costs one round trip and about 31 µs of CPU from 20 µs to 100 ms away; without \
         pauses and with a backlog of 16, the queue makes it {slow:.2} s at the median."
    );
    let mean = |at: usize| s.arms[at].metrics["connect_us_mean"].value;
    let ratio = mean(8) / mean(2);
    let compare = |a: usize, b: usize, ratio: f64, verdict: Verdict| Comparison {
        metric: "connect_us_mean".into(),
        a: s.arms[a].name.clone(),
        b: s.arms[b].name.clone(),
        ratio: Some(ratio),
        ci95: Some([ratio * 0.98, ratio * 1.03]),
        margin: 0.01,
        rounds: 30,
        alpha: 0.025,
        verdict,
        ..Comparison::default()
    };
    s.comparisons =
        vec![compare(8, 2, ratio, Verdict::Higher), compare(6, 5, 1.000_4, Verdict::NoDifference)];
    let publish = |arm: &str, value: f64, note: Option<&str>| Published {
        arm: arm.into(),
        metric: "connect_us_mean".into(),
        value,
        sd: None,
        source: "connect-2021, table 1".into(),
        note: note.map(str::to_owned),
    };
    s.published = vec![
        publish("cross-region", 37_000.0, None),
        publish("nearby-city", 1_640.0, Some("ping 1.6 to 1.7 ms")),
        publish("same-room", 230.0, Some("ping 0.2 to 0.3 ms; 11605 ms in total")),
        publish(
            "loopback unpaced",
            540.0,
            Some("queue overflow; some handshakes took 3 s or more"),
        ),
    ];
    s.warnings = vec![WarningEntry {
        id: "too-few-samples".into(),
        arm: Some("metro".into()),
        text: "p99.9 is not shown: 600 values, 10000 needed (raise --count)".into(),
    }];
    s.next = vec![next("tcptoll accept-queue --backlog 16,128,4096", "what a full queue costs")];
    s
}

fn failure(dice: &mut Dice) -> Summary {
    let mut s = summary(
        "What does a full accept queue cost a client?",
        "With a backlog of 16, 18 of 500 connections opened at once were answered within 0.9 s; 482 \
         never saw a first byte, because the accept queue was full.",
        "tcptoll accept-queue --backlog 16 --connections 500 --timeout 900ms",
    );
    s.experiment = "accept-queue".into();
    s.place.link = Some(asked("direct", 0.0));
    let mut one = arm(dice, "backlog 16", 18, 50.0, (0.0, 0.0));
    one.attempts = 500;
    one.errors = counters(&[("timeout", 482)]);
    one.link = Some(link(dice, LinkKind::Direct, "direct", 0.0, 50.0));
    one.factors = [("backlog".to_owned(), json!(16))].into();
    one.partial = true;
    one.series.clear();
    one.timeline = None;
    one.expectation = None;
    one.client.counters.insert("TcpExtTCPSynRetrans".into(), 964);
    let server = one.server.as_mut().unwrap();
    server
        .counters
        .extend(counters(&[("TcpExtListenOverflows", 1_446), ("TcpExtListenDrops", 1_446)]));
    server.sysctls.insert("net.core.somaxconn".into(), "4096".into());
    server.listeners.push(Listener {
        address: "10.77.0.2".into(),
        port: 80,
        accept_queue_peak: 17,
        accept_queue_limit: 16,
        syn_queue_peak: Some(1),
    });
    one.wire = Some(wire(500, 964));
    s.arms.push(one);
    s.causes = vec![Cause {
        id: "accept-queue-full".into(),
        arm: "backlog 16".into(),
        text: "the listener's accept queue held 17 of 17 and the kernel dropped 1,446 SYNs".into(),
        evidence: [
            ("TcpExtListenOverflows".to_owned(), json!(1_446)),
            ("accept_queue_peak".to_owned(), json!(17)),
            ("accept_queue_limit".to_owned(), json!(16)),
        ]
        .into(),
    }];
    s.advice = vec![Advice {
        cause: "accept-queue-full".into(),
        change: "listen with a backlog of 512 or more; net.core.somaxconn is 4096 and allows it"
            .into(),
        cost: "about 0.3 KB of kernel memory for each connection that waits".into(),
        undo: "listen with 16 again".into(),
        proof: Some("0 of 500 failed with --backlog 512 in the same lab".into()),
    }];
    s.warnings = vec![
        WarningEntry {
            id: "too-few-samples".into(),
            arm: Some("backlog 16".into()),
            text: "p99 is not shown: 18 values, 1000 needed (raise --count)".into(),
        },
        WarningEntry {
            id: "interrupted".into(),
            arm: None,
            text: "stopped by SIGINT after 0.9 s of 10 s: start it again with --resume".into(),
        },
    ];
    s.partial = true;
    s.valid = false;
    s
}

#[test]
#[ignore = "writes files of the source tree"]
fn write_goldens() {
    let mut dice = Dice(0x5eed_2026);
    let all = [
        ("one-arm", cross_region(&mut dice)),
        ("nine-arms", nine_arms(&mut dice)),
        ("failure", failure(&mut dice)),
        ("hostile", hostile::hostile(&mut dice)),
        ("study", study::study(&mut dice)),
        ("http", http::http(&mut dice)),
        ("http-open-loop", http::open_loop(&mut dice)),
        ("keepalive", keepalive::keepalive_costs(&mut dice)),
        ("keepalive-faults", keepalive::keepalive_faults(&mut dice)),
    ];
    for (name, summary) in all {
        let path = format!("{}/tests/golden/{name}.json", env!("CARGO_MANIFEST_DIR"));
        let text = serde_json::to_string(&summary).unwrap();
        std::fs::write(path, text + "\n").unwrap();
    }
}
