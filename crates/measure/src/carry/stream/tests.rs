use serde_json::json;
use tcptoll_core::record::{Arm, Buffer, Sender, SocketEnd, Summary, Transfer, Way};
use tcptoll_core::units::parse_size;

use super::findings::*;
use crate::kit::conclusion::ANSWER_MAX;

/// Payload of 1 Gbit/s, bytes/s.
const LINK: f64 = 117.7e6;

/// An arm at 10 ms: a level, its goodput, the receive window, the round trip under load in µs.
fn arm(option: &str, level: &str, goodput: f64, window: f64, rtt_us: f64) -> Arm {
    let sender = Sender {
        samples: 100,
        receive_window_share: Some(0.9),
        peer_window_bytes: Some(window),
        congestion_window_bytes: Some(5e6),
        in_flight_bytes: Some(window.min(goodput * rtt_us / 1e6)),
        in_flight_max_bytes: Some(window),
        segment_bytes: Some(1_448.0),
        min_rtt_us: Some(10_000.0),
        rtt_us: Some(rtt_us),
        ..Sender::default()
    };
    let way = Way {
        sent_bytes: 2 * goodput as u64,
        received_bytes: 2 * goodput as u64,
        send_calls: (goodput / 65_536.0) as u64,
        window_s: 2.0,
        window_bytes: 2 * goodput as u64,
        sender,
        ..Way::default()
    };
    let asked = parse_size(level).ok().filter(|_| option == "window");
    let buffer = Buffer::new(asked, asked.map_or(131_072, |asked| 2 * asked));
    let end = SocketEnd { send_buffer: buffer, receive_buffer: buffer, ..SocketEnd::default() };
    let transfer = Transfer {
        connections: 1,
        message_bytes: 131_072,
        nagle: true,
        client: end.clone(),
        server: end,
        link_bytes_per_s: Some(LINK),
        quiet_rtt_us: Some(10_000.0),
        up: Some(way),
        ..Transfer::default()
    };
    Arm {
        name: level.to_owned(),
        factors: [(option.to_owned(), json!(level))].into(),
        attempts: 1,
        ok: 1,
        own: transfer.into(),
        ..Arm::default()
    }
}

fn concluded(arms: Vec<Arm>) -> Summary {
    let mut summary = Summary { arms, ..Summary::default() };
    conclude(&mut summary);
    assert!(summary.answer.chars().count() <= ANSWER_MAX, "{}", summary.answer);
    summary
}

/// Windows from 16 KiB on, and one that the kernel tunes.
fn windows() -> Vec<Arm> {
    vec![
        arm("window", "auto", 116.9e6, 6e6, 12_000.0),
        arm("window", "16K", 1.87e6, 18_800.0, 10_100.0),
        arm("window", "32K", 3.74e6, 37_600.0, 10_100.0),
        arm("window", "256K", 32.5e6, 327_000.0, 10_100.0),
        arm("window", "1M", 116.8e6, 1.38e6, 11_700.0),
        arm("window", "4M", 116.9e6, 5e6, 42_000.0),
    ]
}

#[test]
fn of_one_arm_the_answer_is_its_goodput_and_what_limits_it() {
    let summary = concluded(vec![arm("window", "16K", 1.87e6, 18_800.0, 10_100.0)]);
    assert_eq!(
        summary.answer,
        "One connection carries 15.0 Mbit/s of the link's 942 Mbit/s: the receive window allows 18.8 kB per round trip of 10.0 ms."
    );
    assert_eq!(summary.causes[0].id, "receive-window");
    assert_eq!(summary.causes[0].evidence["peer_window_bytes"], 18_800);
    // 1.18 MB at 1.147 bytes of window for each one asked for.
    assert!(summary.advice[0].change.contains("at least 1M:"), "{}", summary.advice[0].change);
    assert_eq!(summary.advice[0].proof, None);
}

#[test]
fn a_full_link_says_what_its_queue_costs() {
    let summary = concluded(vec![arm("congestion", "cubic", 116.9e6, 5e6, 42_000.0)]);
    assert_eq!(
        summary.answer,
        "The link is full: one connection carries 935 Mbit/s of the link's 942 Mbit/s. The queue lengthens the round trip from 10.0 ms to 42.0 ms."
    );
    assert!(
        summary.advice[0].change.contains("product is 1.18 MB at"),
        "{}",
        summary.advice[0].change
    );
    let short = concluded(vec![arm("congestion", "bbr", 116.9e6, 5e6, 11_000.0)]);
    assert!(short.advice.is_empty(), "a short queue asks for nothing");
}

#[test]
fn more_than_the_link_carries_in_the_window_is_told_with_its_reason() {
    let full = |rate| concluded(vec![arm("window", "1M", rate, 5e6, 11_000.0)]).answer;
    let waited = "(above the link's 942 Mbit/s: bytes that waited before the window arrived in it)";
    assert!(full(LINK * 1.03).contains(waited), "{}", full(LINK * 1.03));
    assert!(!full(LINK * 1.005).contains("waited"));
}

#[test]
fn of_sizes_the_answer_has_the_least_the_first_that_is_enough_and_the_kernels_own() {
    let summary = concluded(windows());
    assert_eq!(
        summary.answer,
        "The connection carries 935 Mbit/s (4M) at best and 15.0 Mbit/s (16K) at worst. From 1M on, the link is full, and auto (tuned by the kernel) carries about as much, 935 Mbit/s."
    );
    let advice = |text: &str| summary.advice.iter().find(|one| one.change.contains(text));
    let window = advice("Leave SO_RCVBUF to the kernel").unwrap();
    assert_eq!(window.proof.as_deref(), Some("arm auto: 935 Mbit/s"));
    // The rules of 2008: neither holds on this link.
    let enough = advice("Do not set buffers of 32 KiB").unwrap();
    assert!(enough.proof.as_deref().unwrap().contains("arm 32K: 29.9 Mbit/s"), "{enough:?}");
    let safety = advice("Do not ask for more than 1M").unwrap();
    assert!(safety.change.contains("4M carries no more and makes each round trip 30.3 ms longer"));
}

#[test]
fn rules_that_the_run_supports_are_advised() {
    let arms = vec![
        arm("window", "8K", 60e6, 9_400.0, 150.0),
        arm("window", "32K", 117e6, 37_600.0, 320.0),
        arm("window", "64K", 117e6, 75_000.0, 400.0),
    ];
    let near = |mut arm: Arm| {
        arm.own.transfer.as_mut().unwrap().quiet_rtt_us = Some(150.0);
        arm
    };
    let summary = concluded(arms.into_iter().map(near).collect());
    let changes: Vec<&str> = summary.advice.iter().map(|one| one.change.as_str()).collect();
    assert!(
        changes.iter().any(|one| one.contains("32 KiB are enough on this link")),
        "{changes:?}"
    );
    assert!(
        changes
            .iter()
            .any(|one| one.contains("two to four times the measured optimum of 32K are safe"))
    );
}

#[test]
fn other_arms_are_named_with_the_least_and_the_best() {
    let mut lossy = arm("congestion", "cubic", 5.6e6, 6e6, 10_500.0);
    let way = lossy.own.transfer.as_mut().unwrap().up.as_mut().unwrap();
    way.sender.congestion_window_bytes = Some(58_000.0);
    way.sender.in_flight_max_bytes = Some(90_000.0);
    way.sender.retransmitted_segments = 321;
    let mut other = arm("congestion", "bbr", 112e6, 6e6, 12_000.0);
    other.own.transfer.as_mut().unwrap().client.congestion = "bbr".to_owned();
    let summary = concluded(vec![lossy, other]);
    assert_eq!(
        summary.answer,
        "The connection carries 44.8 Mbit/s (cubic) and 896 Mbit/s (bbr). In arm cubic, the congestion window allows 58.0 kB per round trip of 10.0 ms."
    );
    let advice = &summary.advice[0];
    assert!(advice.change.contains("321 segments") && advice.change.contains("TCP_CONGESTION=bbr"));
    assert_eq!(advice.proof.as_deref(), Some("arm bbr: 896 Mbit/s"));
}

#[test]
fn two_directions_have_their_own_limits() {
    let mut both = arm("direction", "both", 116.9e6, 5e6, 12_000.0);
    let transfer = both.own.transfer.as_mut().unwrap();
    transfer.down.clone_from(&transfer.up);
    let down = transfer.down.as_mut().unwrap();
    down.window_bytes = 2 * 1_870_000;
    down.sender.peer_window_bytes = Some(18_800.0);
    down.sender.in_flight_max_bytes = Some(18_800.0);
    let summary = concluded(vec![both.clone()]);
    assert!(
        summary.answer.contains("935 Mbit/s to the server and 15.0 Mbit/s to the client"),
        "{}",
        summary.answer
    );
    assert_eq!(
        super::sheet::limited_by_words(&both).as_deref(),
        Some("up: link-rate, down: receive-window")
    );
}

#[test]
fn arms_whose_buffers_the_kernel_made_the_same_are_said_to_be_the_same() {
    let mut arms = vec![
        arm("window", "1K", 26e3, 576.0, 22_000.0),
        arm("window", "2K", 26.2e3, 576.0, 22_000.0),
        arm("window", "64K", 8e6, 80_500.0, 10_100.0),
    ];
    for arm in &mut arms[..2] {
        let transfer = arm.own.transfer.as_mut().unwrap();
        for end in [&mut transfer.client, &mut transfer.server] {
            end.send_buffer = Buffer::new(end.send_buffer.asked_bytes, 4_608);
            end.receive_buffer = Buffer::new(end.receive_buffer.asked_bytes, 2_304);
        }
    }
    let summary = concluded(arms);
    assert!(
        summary
            .answer
            .contains("1K and 2K are identical: the kernel sets their buffers to 4.61 kB"),
        "{}",
        summary.answer
    );
}

#[test]
fn sixty_four_arms_have_an_answer_of_two_sentences() {
    let arms = (0..64_u32).map(|at| {
        let size = 1_u64 << (10 + at % 16);
        let window = size as f64 * 1.15;
        let goodput = (window / 0.01).min(LINK * 0.99);
        let mut arm =
            arm("window", &tcptoll_core::units::text_size(size), goodput, window, 10_100.0);
        arm.factors.insert("nagle".to_owned(), json!(at / 16));
        arm.name = format!("window {}, nagle {}", tcptoll_core::units::text_size(size), at / 16);
        arm
    });
    let summary = concluded(arms.collect());
    assert_eq!(summary.answer.matches(". ").count() + 1, 2, "{}", summary.answer);
}

#[test]
fn where_nothing_was_carried_the_answer_says_why() {
    assert_eq!(concluded(Vec::new()).answer, "Nothing was measured.");
    let failed =
        Arm { attempts: 3, errors: [("connect-timeout".to_owned(), 3)].into(), ..Arm::default() };
    assert_eq!(
        concluded(vec![failed]).answer,
        "No connection carried data. The most frequent error was connect-timeout."
    );
}
