//! Are rates those of the server, and is saturation named? What holds on a busy machine too: no rate
//! above what is possible, everything that was due accounted for.

use tcptoll_core::record::{Arm, Summary};

use super::http::{RunOutcome, load};
use super::support::{Folder, TOLERANCE, lacks, no_lab, only};

/// Connections, and workers of the server.
const CONNECTIONS: f64 = 2.0;

/// What each experiment adds: nothing fails by itself, so what fails is expected.
const COMMON: [&str; 4] = ["--connections", "2", "--allow-errors", "100%"];

fn value(arm: &Arm, metric: &str) -> f64 {
    arm.metrics[metric].value
}

/// Requests per second of two connections over 20 ms: 100, and a few more where a link that was
/// calibrated on a busy machine is up to a millisecond early.
const OVER_20_MS_PER_S: f64 = CONNECTIONS / 0.019;

/// Over a link of 20 ms no more than 100 a second are possible.
fn over_20_ms(args: &[&str]) -> Summary {
    let common = ["--link", "rtt=20ms", "--server", "null", "--link-tolerance", TOLERANCE];
    load(&[&common[..], &COMMON, args].concat()).summary
}

/// No rate above what is possible, but for what may be in progress at the edges of the window.
fn is_possible(arm: &Arm, capacity_per_s: f64, window_s: f64) {
    let rate = value(arm, "requests_per_s");
    let resolution = CONNECTIONS / window_s;
    assert!(rate <= capacity_per_s + resolution, "{rate}/s of {capacity_per_s}/s: {}", arm.name);
    assert!(value(arm, "rate_resolution_per_s") <= resolution * 1.001);
}

#[test]
fn a_closed_loop_is_never_faster_than_its_connections_allow() {
    if no_lab() {
        return;
    }
    for (duration, window_s) in [("350ms", 0.35), ("1s", 1.0)] {
        for warmup in ["0", "100ms"] {
            for io in ["epoll", "io-uring"] {
                let args = ["--duration", duration, "--warmup", warmup, "--io", io];
                let summary = over_20_ms(&args);
                let arm = only(&summary);
                is_possible(arm, OVER_20_MS_PER_S, window_s);
                assert!(arm.ok > 0 && arm.saturation.is_none());
            }
        }
    }
}

#[test]
fn connections_in_phase_do_not_count_whole_batches() {
    if no_lab() {
        return;
    }
    // A window of one and a half round trips has one batch or two, of two requests each.
    let common = ["--link", "rtt=200ms", "--server", "null", "--link-tolerance", TOLERANCE];
    let window = ["--duration", "300ms", "--warmup", "1s"];
    let summary = load(&[&common[..], &COMMON, &window].concat()).summary;
    let arm = only(&summary);
    // Little's law: a connection that always waits makes one request per latency.
    let busy = value(arm, "requests_per_s") * value(arm, "latency_us_mean") / 1e6;
    assert!((CONNECTIONS * 0.85..=CONNECTIONS * 1.1).contains(&busy), "{busy} of {CONNECTIONS}");
}

#[test]
fn a_schedule_beyond_the_capacity_is_named_saturated_with_what_was_sustained() {
    if no_lab() {
        return;
    }
    for (timeout, warmup) in [("10s", "0"), ("1s", "0"), ("1s", "200ms")] {
        let args = ["--rate", "1000", "--duration", "2s", "--timeout", timeout, "--warmup", warmup];
        let summary = over_20_ms(&args);
        let arm = only(&summary);
        is_possible(arm, OVER_20_MS_PER_S, 2.0);
        let found = arm.saturation.as_ref().expect("ten times the capacity");
        assert!((found.due_per_s - 1_000.0).abs() < 1e-6);
        assert!((found.sustained_per_s - value(arm, "requests_per_s")).abs() < 1e-6);
        // A server that is only asked what can still be answered in time goes on answering.
        assert!(arm.ok > 20, "{timeout}: {} ok, {:?}", arm.ok, arm.errors);
        assert_eq!(arm.errors.get("connect-timeout"), None, "every SYN was answered");
        // Of a trial that was repeated, as the machine was busy, the figure is one of rounds.
        let behind = if arm.rounds.is_empty() { arm.attempts } else { 1 };
        assert_eq!(arm.metrics["intended_per_s"].n, behind, "all that was due");
        assert!(summary.warnings.iter().any(|warning| warning.id == "saturated"));
        // What was not sent has failed, and comes first.
        let (_, sustained) = summary.answer.split_once("Saturated: ").expect(&summary.answer);
        let rate = sustained.split(" of ").next().unwrap();
        let rate: f64 = rate.parse().expect("the sentence begins with the rate");
        assert!((rate - found.sustained_per_s).abs() <= 0.05 * found.sustained_per_s.max(1.0));
    }
}

#[test]
fn a_schedule_below_the_capacity_is_kept_and_not_named_saturated() {
    if no_lab() {
        return;
    }
    let summary = over_20_ms(&["--rate", "25", "--duration", "2s"]);
    let arm = only(&summary);
    assert_eq!(arm.saturation, None);
    assert_eq!((arm.ok, arm.attempts), (50, 50), "{:?}", arm.errors);
}

#[test]
fn a_server_of_known_capacity_answers_what_its_log_says() {
    if lacks(&["python3"]) {
        return;
    }
    let folder = Folder::new();
    std::fs::write(folder.file("capacity.py"), include_str!("capacity.py")).unwrap();
    // The server runs as another user.
    let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(folder.0.path(), everyone).unwrap();
    for rate in [None, Some("20"), Some("400")] {
        let log = folder.path(&format!("log-{}", rate.unwrap_or("closed")));
        let program = folder.path("capacity.py");
        let server = format!("python3 {program} 0.0.0.0 7777 2 0.02 {log}");
        let mut args = vec!["--server", &server, "--duration", "1s", "--timeout", "1s"];
        args.extend(COMMON);
        args.extend(rate.into_iter().flat_map(|rate| ["--rate", rate]));
        let RunOutcome { summary, .. } = load(&args);
        let arm = only(&summary);
        is_possible(arm, 100.0, 1.0);
        let answered = std::fs::read_to_string(&log).unwrap().lines().count() as u64;
        let warm = arm.warmup.as_ref().map_or(0, |warmup| warmup.ok);
        assert!(arm.ok + warm <= answered, "{} + {warm} of {answered}", arm.ok);
        // What was answered too late for its time limit is no success.
        let late = arm.errors.get("timeout").copied().unwrap_or(0);
        let late_before = arm.warmup.as_ref().map_or(0, |warmup| warmup.attempts - warmup.ok);
        // The log has every trial, and a busy machine repeats one.
        let most = arm.ok + warm + late + late_before;
        assert!(answered <= most || !arm.rounds.is_empty(), "{answered}: {:?}", arm.errors);
        assert_eq!(arm.saturation.is_some(), rate == Some("400"), "{rate:?}");
    }
}
