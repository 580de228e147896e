//! Does bulk data arrive whole, is goodput what arithmetic allows, and does each option do what it says?
//!
//! The bytes have four witnesses: both programs, the sender's kernel, and the wire.

use std::fs;
use std::path::Path;

use tcptoll_core::record::{Arm, BufferLimit, Summary, Transfer, Way};

use crate::support::{Folder, TOLERANCE, checked_summary, last_line, no_lab, only, run, tcptoll};

/// A round trip and a rate that even a busy machine holds.
const LINK: &str = "rtt=2ms,rate=50mbit";

/// What came of a run: its summary, its exit status, what it wrote to stderr.
struct Streamed {
    summary: Summary,
    status: Option<i32>,
    stderr: String,
}

impl Streamed {
    /// The warnings of this name.
    fn warnings(&self, id: &str) -> Vec<&str> {
        let warnings = self.summary.warnings.iter().filter(|warning| warning.id == id);
        warnings.map(|warning| warning.text.as_str()).collect()
    }
}

/// Runs `stream` once, for a short time if nothing else is said.
fn streamed(args: &[&str]) -> Streamed {
    let folder = Folder::new();
    let record = folder.path("record.jsonl");
    let mut all = vec!["stream", "--quiet", "--format", "json", "--out", &record];
    all.extend(["--link-tolerance", TOLERANCE, "--rounds", "1", "--seed", "1"]);
    if !args.iter().any(|arg| ["--duration", "--bytes"].contains(arg)) {
        all.extend(["--duration", "300ms", "--warmup", "100ms"]);
    }
    all.extend(args);
    let ran = run(&mut tcptoll(&all));
    assert!(matches!(ran.status, Some(0..=2)), "{args:?}: {:?}: {}", ran.status, ran.stderr);
    let summary = checked_summary(&ran.stdout);
    assert_eq!(last_line(Path::new(&record)).as_ref(), Some(&summary), "the record's last line");
    Streamed { summary, status: ran.status, stderr: ran.stderr }
}

/// What a run is refused with.
fn refused(args: &[&str]) -> String {
    let ran = run(&mut tcptoll(&[&["stream", "--quiet", "--dry-run"], args].concat()));
    assert_eq!((ran.status, ran.stdout.as_str()), (Some(2), ""), "{args:?}: {}", ran.stderr);
    ran.stderr
}

fn transfer(arm: &Arm) -> &Transfer {
    arm.own.transfer.as_ref().expect("the arm has what its data showed")
}

fn up(arm: &Arm) -> &Way {
    transfer(arm).up.as_ref().expect("data went up")
}

fn value(arm: &Arm, metric: &str) -> f64 {
    arm.metrics.get(metric).unwrap_or_else(|| panic!("{metric}: {:?}", arm.errors)).value
}

/// Every byte that the program sent is on the wire once, was sent once by its kernel, and was
/// received; gives the retransmitted bytes.
#[track_caller]
fn exact(ran: &Streamed, way: &Way) -> u64 {
    let arm = only(&ran.summary);
    assert_eq!((arm.ok, arm.attempts), (transfer(arm).connections, arm.ok), "{:?}", arm.errors);
    assert!(way.sent_bytes > 100_000, "{way:?}");
    assert_eq!(way.received_bytes, way.sent_bytes);
    assert_eq!(way.wire_bytes, Some(way.sent_bytes), "{:?}", ran.summary.warnings);
    let again = way.kernel_retransmitted_bytes.unwrap();
    assert_eq!(way.kernel_sent_bytes.unwrap() - again, way.sent_bytes);
    assert_eq!(ran.warnings("witness-disagrees"), [""; 0]);
    let on_the_wire = way.wire_retransmitted_bytes.unwrap();
    assert_eq!(on_the_wire, again, "retransmitted, on the wire and by the kernel");
    again
}

#[test]
fn every_byte_sent_is_on_the_wire_once_and_received() {
    if no_lab() {
        return;
    }
    let ran = streamed(&["--link", LINK, "--streams", "3"]);
    let again = exact(&ran, up(only(&ran.summary)));
    // A link without loss and without a queue limit. A busy machine delays some ACKs for so long that the
    // kernel probes for a loss.
    let way = up(only(&ran.summary));
    assert!(again * 10 <= way.sent_bytes, "{way:?}");
    assert_eq!(only(&ran.summary).wire.as_ref().unwrap().lost_on_purpose, 0);
}

#[test]
fn every_byte_is_counted_once_however_often_a_lossy_link_had_it_retransmitted() {
    if no_lab() {
        return;
    }
    let lossy = format!("{LINK},loss=1%");
    let ran = streamed(&["--link", &lossy, "--duration", "500ms", "--warmup", "100ms"]);
    let arm = only(&ran.summary);
    let again = exact(&ran, up(arm));
    assert!(again > 0, "about one in a hundred segments is lost: {:?}", up(arm));
    let share = again as f64 / up(arm).kernel_sent_bytes.unwrap() as f64;
    assert!((value(arm, "retransmitted_share") - share).abs() < 1e-12);
}

#[test]
fn on_a_direct_link_the_tap_sees_every_byte_once_and_without_it_nothing_is_claimed() {
    if no_lab() {
        return;
    }
    let ran = streamed(&["--tap", "--rate", "20mbit", "--message", "16K"]);
    let way = up(only(&ran.summary));
    // A tap without a CPU misses packets, and says so.
    if ran.warnings("tap-drops").is_empty() {
        assert!(exact(&ran, way) * 10 <= way.sent_bytes, "{way:?}");
    } else {
        assert_eq!(way.received_bytes, way.sent_bytes);
        assert!(way.wire_bytes.is_none_or(|seen| seen <= way.sent_bytes), "{way:?}");
    }
    let ran = streamed(&["--bytes", "1M"]);
    let way = up(only(&ran.summary));
    assert_eq!((way.wire_bytes, way.wire_retransmitted_bytes), (None, None));
    assert_eq!((way.sent_bytes, way.received_bytes), (1 << 20, 1 << 20));
}

#[test]
fn data_flows_down_or_both_ways_and_each_way_has_its_goodput() {
    if no_lab() {
        return;
    }
    let ran = streamed(&["--link", LINK, "--direction", "down"]);
    let arm = only(&ran.summary);
    assert!(transfer(arm).up.is_none());
    let down = transfer(arm).down.as_ref().unwrap();
    exact(&ran, down);
    assert!(!arm.metrics.contains_key("goodput_down_bytes_per_s"), "there is one direction");
    assert!(arm.series.contains_key("goodput_bytes_per_s"), "{:?}", arm.series.keys());

    let ran = streamed(&["--link", LINK, "--direction", "both"]);
    let arm = only(&ran.summary);
    for way in [up(arm), transfer(arm).down.as_ref().unwrap()] {
        exact(&ran, way);
    }
    let each = [value(arm, "goodput_up_bytes_per_s"), value(arm, "goodput_down_bytes_per_s")];
    assert!((value(arm, "goodput_bytes_per_s") - each[0] - each[1]).abs() < 1.0);
    // What a busy machine delayed before the window arrives within it.
    assert!((0.0..=1.5).contains(&value(arm, "link_share")), "of both directions together");
    let expected = ["down_goodput_bytes_per_s", "up_goodput_bytes_per_s", "up_rtt_us"];
    assert!(expected.iter().all(|name| arm.series.contains_key(*name)), "{:?}", arm.series.keys());
}

#[test]
fn a_number_of_bytes_is_sent_over_each_connection_and_its_time_is_measured() {
    if no_lab() {
        return;
    }
    let ran =
        streamed(&["--link", LINK, "--bytes", "100000", "--streams", "4", "--message", "999"]);
    let arm = only(&ran.summary);
    exact(&ran, up(arm));
    assert_eq!(up(arm).sent_bytes, 400_000);
    // 400 kB at 47.1 Mbit/s of payload take 68 ms.
    let took_ms = value(arm, "transfer_us") / 1e3;
    assert!(took_ms >= 55.0, "{took_ms} ms");
    assert!(!arm.metrics.contains_key("startup_us"), "there is no steady state to reach");
}

#[test]
fn a_capped_or_raised_buffer_is_reported_with_what_was_asked_and_what_was_granted() {
    if no_lab() {
        return;
    }
    let limit = |name: &str| -> u64 {
        let text = fs::read_to_string(format!("/proc/sys/net/core/{name}")).unwrap();
        text.trim().parse().unwrap()
    };
    let (send, receive) = (limit("wmem_max"), limit("rmem_max"));
    let most = send.max(receive);
    let levels = format!("{},{},1", most * 2, most * 4);
    let ran = streamed(&["--link", LINK, "--bytes", "20K", "--window", &levels]);
    let [twice, four, smallest] = &ran.summary.arms[..] else { panic!("three arms") };
    for (arm, asked) in [(twice, most * 2), (four, most * 4)] {
        for end in [&transfer(arm).client, &transfer(arm).server] {
            let got = [end.send_buffer, end.receive_buffer];
            assert!(got.iter().all(|buffer| buffer.changed_by == Some(BufferLimit::Maximum)));
            assert!(got.iter().all(|buffer| buffer.asked_bytes == Some(asked)), "{got:?}");
            assert_eq!(got.map(|buffer| buffer.effective_bytes), [send * 2, receive * 2]);
        }
    }
    let client = &transfer(smallest).client;
    assert_eq!(client.send_buffer.changed_by, Some(BufferLimit::Minimum));
    assert!(client.send_buffer.effective_bytes > 2, "{client:?}");
    let changed = ran.warnings("buffer-changed");
    assert_eq!(changed.len(), 3, "one for each arm: {changed:#?}");
    let expected = format!("SO_RCVBUF of both hosts: {receive} of {} bytes granted", most * 2);
    assert!(changed[0].contains(&expected), "{changed:#?}");
    let same = ran.warnings("same-effective-value");
    assert!(same.len() == 1 && same[0].contains("net.core.rmem_max"), "{same:?}");
}

#[test]
fn what_cannot_be_done_is_refused_with_the_option_and_the_remedy() {
    for (args, expected) in [
        (&["--window", "lots"][..], "--window lots: write auto, or a size from 1 to 1G"),
        (&["--streams", "1001"], "--streams 1001: write a number from 1 to 1000"),
        (&["--message", "0"], "--message 0: write a size from 1 to 16M"),
        (&["--bytes", "1M", "--duration", "1s"], "--duration 1s: it has no effect with --bytes"),
        (&["--direction", "north"], "--direction north: write up, down or both"),
        (&["--rate", "10"], "--rate 10: "),
        (&["--connections", "5"], "--connections has no effect without --memory"),
        (&["--congestion", "telepathy"], "--congestion telepathy: the kernel refuses it"),
    ] {
        let error = refused(args);
        assert!(error.contains(expected), "{args:?}: {error}");
    }
}

#[test]
fn a_connection_that_fails_is_an_error_and_no_goodput() {
    if no_lab() {
        return;
    }
    // No handshake ends within a third of the round trip.
    let slow = ["--link", "rtt=150ms", "--streams", "2", "--timeout", "50ms"];
    let ran = streamed(&[&slow[..], &["--duration", "100ms", "--warmup", "0"]].concat());
    let arm = only(&ran.summary);
    assert_eq!((arm.attempts, arm.ok, ran.status), (2, 0, Some(2)), "{}", ran.stderr);
    assert_eq!(arm.errors.get("connect-timeout"), Some(&2), "{:?}", arm.errors);
    assert!(!arm.metrics.contains_key("goodput_bytes_per_s"), "{:?}", arm.metrics);
}

mod alone {
    use super::*;

    #[test]
    fn goodput_is_what_the_receivers_window_and_the_round_trip_allow_or_the_link() {
        if no_lab() {
            return;
        }
        // The emulator of a debug build may not hold 1 Gbit/s.
        let (link, buffers) = if cfg!(debug_assertions) {
            ("rtt=10ms,rate=200mbit", "16K,64K,1M")
        } else {
            ("rtt=10ms,rate=1gbit", "16K,256K,1M")
        };
        let ran = streamed(&[
            "--link",
            link,
            "--receive-buffer",
            buffers,
            "--duration",
            "400ms",
            "--warmup",
            "300ms",
        ]);
        for arm in &ran.summary.arms {
            let (data, way) = (transfer(arm), up(arm));
            let window = way.sender.peer_window_bytes.unwrap();
            let link = data.link_bytes_per_s.unwrap();
            // The round trip may be longer than on the quiet link, as the sender's kernel measured it.
            let [least, most] = [way.sender.rtt_us, data.quiet_rtt_us]
                .map(|rtt_us| (window / (rtt_us.unwrap() / 1e6)).min(link));
            let goodput = value(arm, "goodput_bytes_per_s");
            // A busy machine is late to read, and delays what arrives to within the window.
            let expected = 0.4 * least.min(most)..1.3 * most;
            assert!(expected.contains(&goodput), "{}: {goodput}, {expected:?}: {way:?}", arm.name);
        }
        let windows: Vec<f64> =
            ran.summary.arms.iter().filter_map(|arm| up(arm).sender.peer_window_bytes).collect();
        // Asked for 16 KiB gives 18.8 kB, 1 MiB 1.38 MB (Linux 6.18); a receiver that is kept from
        // reading announces less.
        assert!(windows[0] < 32_768.0 && windows.is_sorted(), "{windows:?}");
        assert!((131_072.0..2_097_152.0).contains(&windows[2]), "{windows:?}");
    }
}
