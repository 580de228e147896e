//! Messages by size and by how they are sent: are bytes, segments and calls those of the arithmetic, and
//! is the stall of a request in two writes found?

use std::collections::BTreeMap;

use tcptoll_core::record::{Arm, Summary};

use crate::support::{
    Folder, TOLERANCE, causes, checked_summary, counter, no_lab, only, run, tcptoll,
};

/// Payload of a full segment on a direct link: 1,500 bytes less the headers of IP and TCP with time stamps.
const SEGMENT: u64 = 1_448;

/// An ACK that is delayed leaves at least this late, ms: `TCP_DELACK_MIN` of Linux is 40 ms, counted in
/// ticks of at most 4 ms (a kernel with 250 a second), the first of which may have begun.
const DELAYED_MS: f64 = 35.0;

/// Runs `messages` once and gives its summary, which must be right in all that every summary must be.
fn messages(args: &[&str]) -> Summary {
    let folder = Folder::new();
    let record = folder.path("record.jsonl");
    let mut all = vec!["messages", "--quiet", "--format", "json", "--out", &record];
    all.extend(["--rounds", "1", "--link-tolerance", TOLERANCE, "--seed", "1"]);
    all.extend(args);
    let ran = run(&mut tcptoll(&all));
    // An invalid run is measured too: 1.
    assert!(matches!(ran.status, Some(0 | 1)), "{args:?}: {:?}: {}", ran.status, ran.stderr);
    let summary = checked_summary(&ran.stdout);
    let length = summary.answer.chars().count();
    assert!((1..=400).contains(&length), "{length}: {}", summary.answer);
    summary
}

fn value(arm: &Arm, metric: &str) -> f64 {
    arm.metrics.get(metric).unwrap_or_else(|| panic!("{} has no {metric}", arm.name)).value
}

fn per_exchange_ms(arm: &Arm) -> f64 {
    arm.histograms["latency_us"].mean.unwrap() / 1e3
}

/// Bytes and messages that were written arrived, all of them and no others, and the kernel sent each once.
fn is_whole(arm: &Arm, bytes: u64) -> u64 {
    let up = arm.own.transfer.as_ref().and_then(|transfer| transfer.up.as_ref()).unwrap();
    assert!(arm.ok > 0 && arm.ok == arm.attempts, "{}: {:?}", arm.name, arm.errors);
    assert_eq!(up.sent_bytes, arm.ok * bytes, "{}", arm.name);
    assert_eq!(up.received_bytes, up.sent_bytes, "{}", arm.name);
    let once = up.kernel_sent_bytes.unwrap() - up.kernel_retransmitted_bytes.unwrap();
    assert_eq!(once, up.sent_bytes, "{}", arm.name);
    up.send_calls
}

/// The client's segments with messages, without retransmissions: those of opening and closing a
/// connection that only sends are 4, SYN, ACK, FIN, ACK, of which a FIN may go with data.
fn segments(arm: &Arm) -> std::ops::RangeInclusive<u64> {
    let sent = counter(&arm.client.counters, "TcpOutSegs");
    sent.saturating_sub(5)..=sent.saturating_sub(3)
}

#[test]
fn every_way_to_put_messages_together_delivers_its_bytes_in_the_segments_of_the_arithmetic() {
    if no_lab() {
        return;
    }
    // The sender works for 50 µs on each message, so that the path idles in between: nothing but the
    // program puts messages together. A block has 40 messages of 100 bytes, which are 3 segments.
    let summary = messages(&[
        "--message=100",
        "--nagle=off",
        "--coalesce=none,cork,more,gather,buffer",
        "--coalesce-bytes=4K",
        "--work=50us",
        "--warmup=20ms",
        "--duration=150ms",
    ]);
    assert_eq!(summary.arms.len(), 5);
    for arm in &summary.arms {
        let how = arm.factors["coalesce"].as_str().unwrap();
        let calls = is_whole(arm, 100);
        let (blocks, rest) = (arm.ok / 40, arm.ok % 40);
        let of_blocks = blocks * (40_u64 * 100).div_ceil(SEGMENT) + (rest * 100).div_ceil(SEGMENT);
        let acks = counter(&arm.client.counters, "TcpInSegs");
        let (segments_due, held, calls_due) = match how {
            "none" => (arm.ok, 0, arm.ok),
            // Clearing and setting TCP_CORK after each block; setting it at the beginning.
            "cork" => (of_blocks, 0, arm.ok + blocks * 2 + 1),
            // Without Nagle's algorithm each ACK that arrives sends what MSG_MORE holds back.
            "more" => (of_blocks, acks, arm.ok),
            _ => (of_blocks, 0, arm.ok.div_ceil(40)),
        };
        // Messages that wait share a segment where the machine takes the receiver's CPU: half of them may.
        let sent = segments(arm);
        let least = segments_due / 2;
        assert!(
            *sent.end() >= least && *sent.start() <= segments_due + held,
            "{how}: {sent:?} segments, {segments_due} due for {} messages",
            arm.ok
        );
        // A call that found no room is one more.
        let most = calls_due + calls_due / 5 + 2;
        assert!((calls_due..=most).contains(&calls), "{how}: {calls} calls, {calls_due} due");
        // 50 µs of work each are at most 20,000/s. A receiver that was held up before the window counts
        // some of before in it; one that had no CPU during all of it counts none, and there is no rate.
        let rate = arm.metrics.get("messages_per_s").map(|rate| rate.value);
        assert!(rate.is_none_or(|rate| rate <= 30_000.0), "{how}: {rate:?}");
    }
}

#[test]
fn a_request_in_two_writes_stalls_for_the_delayed_ack_with_nagle_and_not_without() {
    if no_lab() {
        return;
    }
    let summary = messages(&[
        "--pattern=write-write-read",
        "--nagle=on,off",
        "--warmup=100ms",
        "--duration=400ms",
    ]);
    let [on, off] = summary.arms.as_slice() else { panic!("two arms") };
    assert_eq!(causes(&summary, on), ["nagle-delayed-ack"], "{:?}", summary.causes);
    assert!(!causes(&summary, off).contains(&"nagle-delayed-ack"), "{:?}", summary.causes);
    // After 0.2 s in which the machine stood still, the kernel does not delay the next ACK: the mean.
    assert!(per_exchange_ms(on) >= DELAYED_MS, "exchanges wait: {} ms", per_exchange_ms(on));
    assert!(per_exchange_ms(off) < DELAYED_MS / 2.0, "{} ms", per_exchange_ms(off));
    // The delay of the ACK itself, as the wire shows it.
    let ack_ms = |arm: &Arm| arm.histograms["ack_delay_us"].max.unwrap() / 1e3;
    assert!(ack_ms(on) >= DELAYED_MS, "{} ms", ack_ms(on));
    let mean_ack_ms = |arm: &Arm| arm.histograms["ack_delay_us"].mean.unwrap() / 1e3;
    assert!(on.own.message.as_ref().unwrap().acks.unwrap().delayed > 0);
    assert!(mean_ack_ms(off) < DELAYED_MS / 2.0, "{} ms", mean_ack_ms(off));
    // The first exchange is acknowledged without delay, and stands apart.
    let warmup = &on.warmup.as_ref().unwrap().histograms["latency_us"];
    assert!(warmup.min.unwrap() < on.histograms["latency_us"].max.unwrap(), "{warmup:?}");
    // Two writes are two segments. The server sends the delayed ACK, the one of the second write, and the
    // answer; those of the connection's beginning and end come on top.
    let client = value(on, "client_segments_per_op");
    let server = value(on, "server_segments_per_op");
    // A busy machine causes retransmissions, half a segment for each exchange at most.
    let of_connection = 8.0 / on.ok as f64 + 0.5;
    assert!((2.0..=2.0 + of_connection).contains(&client), "{client} of {}", on.ok);
    assert!((2.0..=3.0 + of_connection).contains(&server), "{server} of {}", on.ok);
    assert!(value(off, "messages_per_s") > value(on, "messages_per_s") * 3.0);
}

#[test]
fn quick_acks_end_the_stall() {
    if no_lab() {
        return;
    }
    let summary = messages(&[
        "--pattern=write-write-read",
        "--quick-ack=on",
        "--warmup=100ms",
        "--duration=200ms",
    ]);
    let arm = only(&summary);
    assert!(!causes(&summary, arm).contains(&"nagle-delayed-ack"), "{:?}", summary.causes);
    assert!(per_exchange_ms(arm) < DELAYED_MS / 2.0, "{} ms", per_exchange_ms(arm));
    let acks = arm.own.message.as_ref().unwrap().acks.unwrap();
    assert!(acks.quick > acks.delayed, "{acks:?}");
}

#[test]
fn over_an_emulated_link_the_trial_itself_shows_the_acks_and_the_round_trip_is_on_top() {
    if no_lab() {
        return;
    }
    let summary = messages(&[
        "--pattern=write-write-read",
        "--nagle=on",
        "--link=rtt=10ms",
        "--warmup=0s",
        "--duration=300ms",
    ]);
    let arm = only(&summary);
    assert_eq!(causes(&summary, arm), ["nagle-delayed-ack"], "{:?}", summary.causes);
    assert!(per_exchange_ms(arm) >= DELAYED_MS + 10.0, "{} ms", per_exchange_ms(arm));
    assert!(arm.histograms["ack_delay_us"].max.unwrap() / 1e3 >= DELAYED_MS);
    assert!(arm.wire.is_some(), "the emulated link counts every packet");
}

#[test]
fn a_receiver_that_works_on_each_message_bounds_the_rate() {
    if no_lab() {
        return;
    }
    let summary =
        messages(&["--message=1K", "--receiver-work=50us", "--warmup=50ms", "--duration=200ms"]);
    let arm = only(&summary);
    is_whole(arm, 1_024);
    // 50 µs each are at most 20,000/s; messages of one read are counted together at its end, and a busy
    // machine may put the end of a read into the window that began before it.
    let rate = value(arm, "messages_per_s");
    assert!(rate <= 30_000.0, "{rate}");
}

#[test]
fn a_message_is_refused_with_the_option_and_the_reason() {
    let cases: BTreeMap<&[&str], &str> = [
        (["--message=0"].as_slice(), "--message 0: write a size from 1 to 64M"),
        (&["--message=65M"], "--message 65M: write a size from 1 to 64M"),
        (&["--pattern=ping"], "--pattern ping: write one-way, request-response or"),
        (&["--pattern=write-write-read", "--message=1"], "--message 1: --pattern write-write-read"),
        (
            &["--pattern=request-response", "--coalesce=buffer"],
            "--coalesce buffer: with --pattern request-response each message waits for an answer",
        ),
        (&["--response=1K"], "--response has no effect without --pattern request-response or"),
        (&["--coalesce-bytes=1K"], "--coalesce-bytes has no effect without --coalesce cork or"),
        (&["--coalesce=pack"], "--coalesce pack: write none, cork, more, gather or buffer"),
        (&["--encoding=xml"], "--encoding has no effect without --program java"),
        (&["--program=c"], "--program c: write native or java"),
        (&["--nagle=maybe"], "--nagle maybe: write on or off"),
        (&["--window=wide"], "--window wide: write auto, or a size"),
        (&["--work=2s"], "--work 2s: write a time of at most 10ms"),
        (&["--duration=0s"], "--duration 0s: write a time above 0"),
        (&["--congestion=none-such"], "--congestion none-such: the kernel refuses it"),
    ]
    .into();
    for (args, expected) in cases {
        let folder = Folder::new();
        let record = folder.file("record.jsonl");
        let name = record.display().to_string();
        let mut all = vec!["messages", "--quiet", "--format", "json", "--out", &name];
        all.extend(args);
        let ran = run(&mut tcptoll(&all));
        assert_eq!((ran.status, ran.stdout.as_str()), (Some(2), ""), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(expected), "{args:?}: {}", ran.stderr);
        assert!(!record.exists(), "a record of nothing was left");
    }
}

mod alone {
    use super::*;

    #[test]
    fn the_sender_of_small_messages_is_the_limit_and_a_slow_receiver_is_named() {
        if no_lab() {
            return;
        }
        let summary = messages(&[
            "--message=64",
            "--nagle=off",
            "--receiver-work=0,20us",
            "--warmup=100ms",
            "--duration=300ms",
        ]);
        let [fast, slow] = summary.arms.as_slice() else { panic!("two arms") };
        // The cause is named if that end took its CPU, which a busy machine may not give it; no other
        // cause is named instead.
        for (arm, share, cause) in [
            (fast, "client_cpu_share", "message-overhead"),
            (slow, "server_cpu_share", "server-cpu"),
        ] {
            let named = causes(&summary, arm);
            if value(arm, share) >= 0.9 {
                assert_eq!(named, [cause], "{:?}", summary.causes);
            } else {
                assert!(named.iter().all(|id| *id == cause), "{:?}", summary.causes);
            }
        }
        // Without Nagle's algorithm a message is a segment, but for those that waited for room.
        assert!(value(fast, "client_segments_per_op") > 0.5);
    }
}
