use std::collections::BTreeMap;

use serde_json::Value;
use tcptoll_core::record::{
    Acks, Arm, HostSummary, MessageWay, Metric, Round, SocketEnd, Summary, Transfer, Warmup, Way,
};
use tcptoll_core::stats::HistogramSummary;

use super::findings::*;

/// The table of 2008: size of a message, Mbit/s with Nagle's algorithm and without, on 1 Gbit/s.
const TABLE: [(u64, f64, f64); 17] = [
    (4_194_304, 933.0, 939.0),
    (1_048_576, 917.0, 939.0),
    (262_144, 941.0, 941.0),
    (65_536, 942.0, 941.0),
    (32_768, 942.0, 941.0),
    (16_384, 942.0, 941.0),
    (8_192, 942.0, 941.0),
    (4_096, 942.0, 941.0),
    (2_048, 941.0, 857.0),
    (1_024, 941.0, 907.0),
    (512, 816.0, 462.0),
    (256, 530.0, 256.0),
    (128, 349.0, 124.0),
    (64, 209.0, 62.0),
    (16, 71.0, 25.0),
    (4, 17.5, 6.5),
    (1, 4.0, 1.0),
];

/// Payload of a link of 1 Gbit/s with timestamps and Ethernet's overhead, bytes/s.
const LINK: f64 = 1e9 / 8.0 * 1_448.0 / 1_538.0;

fn metric(value: f64) -> Metric {
    Metric { value, unit: String::new(), ci95: None, median: None, n: 100 }
}

fn arm(bytes: u64, nagle: bool, mbit: f64, (client, server): (f64, f64)) -> Arm {
    let word = if nagle { "on" } else { "off" };
    let goodput = mbit * 1e6 / 8.0;
    let end = |cpu_share| SocketEnd { cpu_share, ..SocketEnd::default() };
    let mut arm = Arm {
        name: format!("message {bytes}, nagle {word}"),
        factors: BTreeMap::from([("nagle".to_owned(), Value::from(word))]),
        attempts: 100,
        ok: 100,
        ..Arm::default()
    };
    for (name, value) in [
        ("goodput_bytes_per_s", goodput),
        ("messages_per_s", goodput / bytes as f64),
        ("client_cpu_us_per_op", client / (goodput / bytes as f64) * 1e6),
        ("client_segments_per_op", bytes as f64 / 1_448.0),
        ("client_calls_per_op", 1.0),
        ("server_cpu_share", server),
    ] {
        arm.metrics.insert(name.to_owned(), metric(value));
    }
    arm.own.message = Some(MessageWay {
        pattern: "one-way".to_owned(),
        bytes,
        coalesce: "none".to_owned(),
        program: "native".to_owned(),
        ..MessageWay::default()
    });
    arm.own.transfer = Some(Transfer {
        connections: 1,
        message_bytes: bytes,
        nagle,
        link_bytes_per_s: Some(LINK),
        client: end(client),
        server: end(server),
        up: Some(Way {
            window_s: 1.0,
            window_bytes: goodput as u64,
            sent_bytes: goodput as u64,
            received_bytes: goodput as u64,
            send_calls: (goodput / bytes as f64) as u64,
            ..Way::default()
        }),
        ..Transfer::default()
    });
    arm
}

/// 23 exchanges of a message in two writes.
fn exchange(nagle: bool, p50_us: f64, ack_us: f64, first_us: f64) -> Arm {
    let mut arm = arm(1_024, nagle, 1.0, (0.01, 0.01));
    arm.name = format!("nagle {}", if nagle { "on" } else { "off" });
    arm.metrics.clear();
    let histogram = |us| HistogramSummary {
        count: 23,
        min: Some(us),
        p50: Some(us),
        max: Some(us),
        ..HistogramSummary::default()
    };
    arm.histograms.insert("latency_us".to_owned(), histogram(p50_us));
    arm.histograms.insert("ack_delay_us".to_owned(), histogram(ack_us));
    arm.warmup = Some(Warmup {
        histograms: BTreeMap::from([("latency_us".to_owned(), histogram(first_us))]),
        ..Warmup::default()
    });
    arm.server = Some(HostSummary::default());
    arm.own.message = Some(MessageWay {
        pattern: "write-write-read".to_owned(),
        bytes: 1_024,
        response_bytes: Some(1_024),
        writes: vec![512, 512],
        acks: Some(Acks { quick: 23, delayed: 23, with_answer: 0 }),
        ..MessageWay::default()
    });
    if let Some(transfer) = &mut arm.own.transfer {
        transfer.up = None;
        transfer.quiet_rtt_us = Some(50.0);
    }
    arm
}

fn concluded(arms: Vec<Arm>) -> Summary {
    let mut summary =
        Summary { experiment: "messages".to_owned(), arms, valid: true, ..Summary::default() };
    conclude(&mut summary);
    assert!(summary.answer.chars().count() <= 400, "{}", summary.answer);
    summary
}

fn changes(summary: &Summary) -> Vec<&str> {
    summary.advice.iter().map(|advice| advice.change.as_str()).collect()
}

#[test]
fn the_table_of_2008_gives_the_advice_of_2008() {
    let both = |&(bytes, on, off): &(u64, f64, f64)| {
        [arm(bytes, true, on, (0.5, 0.3)), arm(bytes, false, off, (0.5, 0.3))]
    };
    let summary = concluded(TABLE.iter().flat_map(both).collect());
    // 512 bytes with Nagle's algorithm: 816 of 941 Mbit/s are 87 %.
    assert!(
        summary.answer.starts_with(
            "Goodput reaches 90 % of the link's rate (941 Mbit/s) with messages of at least 1 KiB (Nagle on) and 1 KiB (Nagle off). A message of 1 byte costs "
        ),
        "{}",
        summary.answer
    );
    let said = changes(&summary);
    assert!(
        said.contains(
            &"With Nagle's algorithm on, write blocks of 1 KiB or more; buffer smaller messages."
        ),
        "{said:?}"
    );
    assert!(
        said.contains(&"For messages of 4 KiB or more, set TCP_NODELAY: it costs no bandwidth."),
        "{said:?}"
    );
    let of_blocks = summary.advice.iter().find(|advice| advice.cause == "message-overhead");
    let proof = of_blocks.and_then(|advice| advice.proof.as_deref());
    assert_eq!(proof, Some("share of the link's rate (941 Mbit/s): 1 byte 0.425 %, 1 KiB 99.9 %"));
}

#[test]
fn advice_that_the_arms_do_not_support_is_corrected() {
    let slow =
        |bytes, on, off| [arm(bytes, true, on, (0.5, 0.3)), arm(bytes, false, off, (0.5, 0.3))];
    let sizes = [(1_024, 300.0, 200.0), (4_096, 700.0, 500.0), (65_536, 930.0, 930.0)];
    let arms = sizes.into_iter().flat_map(|(bytes, on, off)| slow(bytes, on, off));
    let summary = concluded(arms.collect());
    let said = changes(&summary);
    assert!(
        said.contains(
            &"With Nagle's algorithm on, write blocks of 64 KiB or more; 1 KiB is too small here."
        ),
        "{said:?}"
    );
    assert!(
        said.contains(
            &"For messages of 4 KiB, leave Nagle's algorithm on: TCP_NODELAY costs bandwidth here."
        ),
        "{said:?}"
    );
}

#[test]
fn batching_is_advised_where_it_gains_and_not_where_it_does_not() {
    let batch = |mbit| {
        let mut together = arm(64, false, mbit, (0.99, 0.3));
        if let Some(message) = &mut together.own.message {
            (message.coalesce, message.coalesce_bytes) = ("buffer".to_owned(), Some(4_096));
        }
        together.name = "buffer".to_owned();
        concluded(vec![arm(64, false, 62.0, (0.99, 0.5)), together])
    };
    let gains = batch(620.0);
    assert!(
        gains.answer.starts_with(
            "The connection carries 121,094 messages/s in 0.0442 segments each (message 64, nagle off) and 1,210,938 messages/s in 0.0442 segments each (buffer)."
        ),
        "{}",
        gains.answer
    );
    assert_eq!(
        changes(&gains)[0],
        "With TCP_NODELAY, collect small messages in the program and write blocks of 4 KiB."
    );
    let proof = gains.advice[0].proof.as_deref().unwrap();
    assert!(proof.contains(": 10.0× the messages/s"), "{proof}");
    let no_gain = batch(62.0);
    assert!(changes(&no_gain)[0].contains("it gains nothing here"), "{:?}", no_gain.advice);
}

#[test]
fn the_end_that_used_up_its_cpu_is_named_the_receiver_too() {
    let all = concluded(vec![
        arm(64, true, 200.0, (0.99, 0.4)),
        arm(64, false, 62.0, (0.98, 0.4)),
        arm(1_024, true, 300.0, (0.6, 0.99)),
    ]);
    assert_eq!(
        limits(&all.arms.iter().collect::<Vec<_>>()).as_deref(),
        Some(
            "The sender's CPU is the limit in 2 of 3 arms, and the receiver's CPU is the limit (99 %) in message 1024, nagle on."
        )
    );
    let causes: Vec<(&str, &str)> =
        all.causes.iter().map(|cause| (cause.arm.as_str(), cause.id.as_str())).collect();
    assert!(causes.contains(&("message 1024, nagle on", "server-cpu")), "{causes:?}");
    assert!(causes.contains(&("message 64, nagle off", "message-overhead")), "{causes:?}");
}

#[test]
fn the_stall_is_named_with_its_cause_and_what_hid_it() {
    let summary =
        concluded(vec![exchange(true, 44_000.0, 40_100.0, 70.0), exchange(false, 40.0, 9.0, 30.0)]);
    assert_eq!(
        summary.answer,
        "An exchange takes 44.0 ms (nagle on) and 40.0 µs (nagle off) at the median. With nagle on, Nagle's algorithm holds back the last write until the previous one is acknowledged, and the server delays that ACK by up to 40.1 ms on the wire."
    );
    assert_eq!(
        changes(&summary),
        [
            "Set TCP_NODELAY on the sender, or write each message with one call: gather header and body."
        ]
    );
    let even = concluded(vec![exchange(true, 40.0, 9.0, 30.0), exchange(false, 40.0, 9.0, 30.0)]);
    assert!(even.causes.is_empty(), "{:?}", even.causes);
    assert!(changes(&even)[0].starts_with("Leave Nagle's algorithm on: "), "{:?}", even.advice);
}

#[test]
fn one_arm_states_its_rate_and_what_a_message_costs() {
    let summary = concluded(vec![arm(1_448, true, 100.0, (0.5, 0.3))]);
    assert!(
        summary.answer.starts_with(
            "The connection carries 8,633 messages/s of 1,448 bytes (100 Mbit/s). Each message takes 1.00 system calls, 57.9 µs of client CPU and 1.00 segments."
        ),
        "{}",
        summary.answer
    );
    assert!(summary.advice.is_empty(), "one size supports no advice: {:?}", summary.advice);
}

#[test]
fn messages_that_all_failed_are_no_result() {
    let failed = Arm {
        attempts: 1,
        errors: BTreeMap::from([("connect-refused".to_owned(), 1)]),
        ..Arm::default()
    };
    assert_eq!(
        concluded(vec![failed]).answer,
        "No message arrived. The most frequent error was connect-refused."
    );
}

#[test]
fn nothing_is_claimed_of_a_way_whose_sizes_were_not_all_measured() {
    let mut left_out = arm(64, false, 100.0, (0.5, 0.3));
    left_out.rounds = vec![Round { left_out: Some("steal".to_owned()), ..Round::default() }];
    let arms = vec![
        arm(64, true, 100.0, (0.5, 0.3)),
        arm(16_384, true, 940.0, (0.5, 0.3)),
        left_out,
        arm(16_384, false, 100.0, (0.5, 0.3)),
    ];
    let answer = concluded(arms).answer;
    assert!(answer.contains("of at least 16 KiB (Nagle on)."), "{answer}");
    assert!(answer.contains("Some sizes have no valid trial with Nagle off."), "{answer}");
    assert!(!answer.contains("at no size"), "{answer}");
}

#[test]
fn each_encoding_and_the_native_program_is_stated_by_name() {
    let program = |encoding: Option<&str>, bytes, mbit| {
        let mut one = arm(bytes, true, mbit, (0.5, 0.3));
        one.name = format!("{}, message {bytes}", encoding.unwrap_or("native"));
        if let (Some(message), Some(name)) = (&mut one.own.message, encoding) {
            message.program = "java".to_owned();
            message.encoding = Some(name.to_owned());
        }
        one
    };
    let encodings = [None, Some("raw"), Some("fields"), Some("serialization"), Some("xml")];
    let arms = encodings.into_iter().enumerate().flat_map(|(at, encoding)| {
        let filled = |bytes: u64| if bytes >= 256 << (2 * at) { 940.0 } else { 100.0 };
        [64, 256, 1_024, 4_096, 16_384].map(|bytes| program(encoding, bytes, filled(bytes)))
    });
    let summary = concluded(arms.collect());
    assert!(
        summary.answer.starts_with(
            "Goodput reaches 90 % of the link's rate (941 Mbit/s) with messages of at least 256 bytes (native), 1 KiB (java raw), 4 KiB (java fields) and 16 KiB (java serialization), but at no size with java xml."
        ),
        "{}",
        summary.answer
    );
}
