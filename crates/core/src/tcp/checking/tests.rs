use proptest::prelude::*;

use super::*;

const PROBES: Checking = checking(Mechanism::Tcp);

const fn checking(mechanism: Mechanism) -> Checking {
    Checking {
        mechanism,
        idle_s: None,
        interval_s: None,
        probes: None,
        answer_within_s: None,
        evidence: None,
        null_bytes: None,
        user_timeout_s: None,
        retransmission_s: None,
        most: None,
        variant: None,
        tick_s: None,
    }
}

fn tcp(idle: f64, interval: f64, probes: u32) -> Checking {
    Checking { idle_s: Some(idle), interval_s: Some(interval), probes: Some(probes), ..PROBES }
}

fn heartbeat(idle: f64, answer_within: f64, evidence: Evidence) -> Checking {
    Checking {
        idle_s: Some(idle),
        answer_within_s: Some(answer_within),
        evidence: Some(evidence),
        null_bytes: Some(4),
        tick_s: Some(0.1),
        ..checking(Mechanism::Heartbeat)
    }
}

fn write(interval: f64) -> Checking {
    Checking { interval_s: Some(interval), null_bytes: Some(1), ..checking(Mechanism::Write) }
}

fn lazy(answer_within: f64) -> Checking {
    Checking { answer_within_s: Some(answer_within), ..checking(Mechanism::Lazy) }
}

#[track_caller]
fn near(ours: impl Into<Option<f64>>, expected: f64) {
    let ours = ours.into().expect("a figure");
    assert!((ours - expected).abs() <= 1e-9 * expected.abs().max(1.0), "{ours}, not {expected}");
}

#[test]
fn a_bound_is_the_idle_time_and_all_that_is_waited_after_it() {
    near(tcp(10.0, 1.0, 3).bound_s(), 13.0); // probes at 10, 11, 12 s, given up at 13 s
    near(tcp(7200.0, 75.0, 9).bound_s(), 7875.0); // Linux as it comes: 2 h 11 min 15 s
    near(heartbeat(10.0, 2.0, Evidence::Acknowledged).bound_s(), 12.0);
    near(Checking { retransmission_s: Some(925.0), ..write(10.0) }.bound_s(), 935.0);
    near(Checking { user_timeout_s: Some(5.0), ..write(10.0) }.bound_s(), 16.2);
    assert_eq!(lazy(2.0).bound_s(), None);
    assert_eq!(checking(Mechanism::None).bound_s(), None);
    assert_eq!(PROBES.bound_s(), None);
    assert_eq!(write(10.0).bound_s(), None);
}

#[test]
fn a_user_timeout_takes_the_place_of_the_count_of_probes() {
    let limited = |limit, idle, interval| {
        Checking { user_timeout_s: Some(limit), ..tcp(idle, interval, 9) }.bound_s()
    };
    near(limited(20.0, 10.0, 5.0), 20.0); // timers at 10, 15 and 20 s
    near(limited(20.1, 10.0, 5.0), 25.0);
    near(limited(3.0, 5.0, 2.0), 7.0); // one probe goes in any case; measured: 7.188 s
    near(limited(2.5, 1.0, 1.0), 3.0); // measured: 3.060 s
}

#[test]
fn an_interval_longer_than_the_idle_time_is_the_time_between_tests() {
    // Measured: 7.98 and 12.08 s after a death 0.3 s after a probe.
    near(tcp(1.0, 4.0, 1).bound_s(), 8.0);
    near(tcp(1.0, 4.0, 2).bound_s(), 12.0);
    near(tcp(1.0, 4.0, 1).packets_per_hour(), 1800.0);
}

#[test]
fn the_kernel_is_late_by_an_eighth_and_the_program_by_two_ticks() {
    near(tcp(10.0, 1.0, 3).granularity_s(), 1.635);
    near(heartbeat(10.0, 2.0, Evidence::Acknowledged).granularity_s(), 0.205);
    near(heartbeat(10.0, 2.0, Evidence::Acknowledged).known_within_s(), 12.205);
    near(lazy(2.0).granularity_s(), 0.005);
    assert_eq!(checking(Mechanism::None).granularity_s(), None);
}

#[test]
fn packets_and_bytes_of_an_hour_by_hand() {
    let cost = |checking: Checking| {
        (checking.packets_per_hour().unwrap(), checking.bytes_per_hour().unwrap())
    };
    let acknowledged = heartbeat(10.0, 2.0, Evidence::Acknowledged);
    assert_eq!(cost(tcp(10.0, 1.0, 3)), (720.0, 720.0 * 52.0));
    assert_eq!(cost(acknowledged.clone()), (720.0, 360.0 * (56.0 + 52.0)));
    let answered = heartbeat(10.0, 2.0, Evidence::Answered);
    assert_eq!(cost(answered), (1080.0, 360.0 * (56.0 + 56.0 + 52.0)));
    assert_eq!(cost(write(60.0)), (120.0, 60.0 * (53.0 + 52.0)));
    assert_eq!(cost(lazy(2.0)), (0.0, 0.0));
    assert_eq!(cost(checking(Mechanism::None)), (0.0, 0.0));
    assert_eq!(Checking { null_bytes: None, ..acknowledged }.bytes_per_hour(), None);
    assert_eq!(PROBES.packets_per_hour(), None);
}

#[test]
fn a_segment_goes_again_after_one_two_four_and_eight_timeouts() {
    let at: Vec<f64> = sends(0.25).take(7).collect();
    assert_eq!(at, [0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0]);
    let late: Vec<f64> = sends(100.0).take(6).collect();
    assert_eq!(late, [0.0, 100.0, 200.0, 320.0, 440.0, 560.0]); // no wait above 120 s
}

#[test]
fn retransmission_gives_up_when_the_kernel_says() {
    near(give_up_s(15, 0.2), 924.6); // the manual's figure for tcp_retries2
    near(give_up_s(8, 0.2), 102.2);
    near(give_up_s(3, 0.2), 3.0);
    near(give_up_s(0, 0.2), 0.2);
    near(give_up_s(6, 1.0), 127.0); // as of a SYN
    near(give_up_s(u32::MAX, 1.0), 127.0 + 249.0 * 120.0);
}

#[test]
fn the_program_hears_of_it_at_the_next_repeat_that_would_go() {
    // First repeat at 0.416 s; looked at 0.416, 1.248, 2.912 and 6.24 s later, past 6.2 s.
    near(given_up_by_s(4, 0.208), 6.656);
    // Looked at 1022 × 0.201 s after the first repeat, and each 120 s later: 925.422 s.
    near(given_up_by_s(15, 0.2), 0.402 + 925.422);
    // Waits of 2, 4, 8 … 64 times 1.5 s, then of 120 s.
    near(given_up_by_s(15, 1.5), 3.0 + 126.0 * 1.5 + 7.0 * 120.0);
}

#[test]
fn tries_are_those_whose_answer_can_be_in_time() {
    // At a round trip of 0.1 s a message goes at 0, 0.3, 0.6, 1.2, 2.4 s.
    let tries = |within| heartbeat(10.0, within, Evidence::Acknowledged).tries(0.1).unwrap();
    assert_eq!([0.05, 0.1, 0.69, 0.7, 1.29, 1.3, 2.0].map(tries), [0, 1, 2, 3, 3, 4, 4]);
    assert_eq!(lazy(2.0).tries(0.1), Some(4));
    assert_eq!(Checking { user_timeout_s: Some(1.0), ..write(9.0) }.tries(0.1), Some(4));
    assert_eq!(tcp(10.0, 1.0, 3).tries(0.1), Some(3));
    assert_eq!(tcp(10.0, 1.0, 3).tries(1.5), Some(2)); // the last probe's answer comes too late
    assert_eq!(checking(Mechanism::None).tries(0.1), None);
}

#[test]
fn false_alarms_at_five_per_cent_by_hand() {
    let q: f64 = 1.0 - 0.95 * 0.95; // 0.0975
    near(tcp(10.0, 1.0, 3).false_alarm(0.05, 0.1), q * q * q);
    near(heartbeat(10.0, 2.0, Evidence::Acknowledged).false_alarm(0.05, 0.1), q.powi(4));
    near(lazy(0.2).false_alarm(0.05, 0.1), q);
    assert_eq!(tcp(10.0, 1.0, 3).false_alarm(0.0, 0.1), Some(0.0));
    assert_eq!(tcp(10.0, 1.0, 3).false_alarm(1.0, 0.1), Some(1.0));
}

#[test]
fn an_answer_of_the_program_is_sent_again_by_itself() {
    let answered = |within| heartbeat(10.0, within, Evidence::Answered).false_alarm(0.05, 0.1);
    near(answered(0.1), 0.0975); // one question, one answer
    // Asked at 0 and 0.3 s. The first question arrives and both its answers are lost; or only the
    // second arrives and its only answer is lost; or none arrives.
    near(answered(0.4), 0.95 * 0.0025 + 0.05 * 0.95 * 0.05 + 0.0025);
}

#[test]
fn tests_follow_from_the_probes_seen() {
    // Each test takes 1 + 0.0975 + 0.0975² = 1.10700625 probes.
    assert_eq!(tcp(10.0, 1.0, 3).tests_of(110_701, 0.05), Some(100_000));
    assert_eq!(tcp(10.0, 1.0, 3).tests_of(42, 0.0), Some(42));
    assert_eq!(heartbeat(10.0, 2.0, Evidence::Acknowledged).tests_of(42, 0.05), Some(42));
    assert_eq!(checking(Mechanism::None).tests_of(42, 0.05), None);
}

#[test]
fn expected_false_alarms_have_a_range() {
    let [least, mean, most] = expected_false_alarms(100_000, 0.000_926_859_375);
    assert_eq!([least as u64, most as u64], [69, 118]);
    near(mean, 92.685_937_5);
    for (tests, probability, sure) in [(1000, 0.0, 0.0), (1000, 1.0, 1000.0), (0, 0.5, 0.0)] {
        for figure in expected_false_alarms(tests, probability) {
            near(figure, sure);
        }
    }
}

#[test]
fn the_cheapest_settings_for_half_a_minute_by_hand() {
    // q = 0.0199: four tries fail together 1.6e-7 of the time, three 7.9e-6.
    let cheapest_in_30_s = |mechanism| cheapest(mechanism, 30.0, Path::ASSUMED);
    // (22 + 4) × 1.125 + 0.01 = 29.26 s; with 23 s it is 30.385 s.
    assert_eq!(cheapest_in_30_s(Mechanism::Tcp), Some(tcp(22.0, 1.0, 4)));
    // Four tries at 0, 0.6, 1.2, 2.4 s, an eighth late; the round trip of 0.2 s and an
    // acknowledgment delayed by 0.2 s; two ticks and 5 ms.
    let expected = heartbeat(26.6, 3.1, Evidence::Acknowledged);
    assert_eq!(cheapest_in_30_s(Mechanism::Heartbeat), Some(expected));
    // The limit counts from the first repeat at 1.2 s: (23.3 + 1.2 + 1.9) × 1.125 + 0.21 = 29.91 s.
    let written = cheapest_in_30_s(Mechanism::Write).unwrap();
    assert_eq!((written.interval_s, written.user_timeout_s), (Some(23.3), Some(1.9)));
    assert_eq!(
        (cheapest_in_30_s(Mechanism::Lazy), cheapest_in_30_s(Mechanism::None)),
        (None, None)
    );
    // Two of six probes are answered too late where the answer takes 2 s.
    let far = Path { rtt_s: 2.0, ..Path::ASSUMED };
    assert_eq!(cheapest(Mechanism::Tcp, 30.0, far), Some(tcp(20.0, 1.0, 6)));
    // RTO 6 s: at 0, 6, 12, 24 s, an eighth late, and 2.2 s: no room is left.
    assert_eq!(cheapest(Mechanism::Heartbeat, 30.0, far), None);
}

#[test]
fn the_soonest_time_is_the_least_that_has_a_setting() {
    let soonest = |mechanism| soonest_s(mechanism, Path::ASSUMED);
    assert_eq!(soonest(Mechanism::Tcp), Some(5.7)); // (1 + 4) × 1.125 + 0.01 = 5.635
    // A tenth idle, 3.1 s for the answer, two ticks and 5 ms. The period is the longer of both.
    assert_eq!(soonest(Mechanism::Heartbeat), Some(6.5));
    assert_eq!(soonest(Mechanism::Lazy), None);
    assert_eq!(soonest_s(Mechanism::Tcp, Path { loss: 1.0, ..Path::ASSUMED }), None);
}

#[test]
fn too_short_a_time_or_too_great_a_loss_has_no_setting() {
    assert_eq!(cheapest(Mechanism::Tcp, 5.6, Path::ASSUMED), None); // (1 + 4) × 1.125 + 0.01 = 5.635
    assert_eq!(cheapest(Mechanism::Tcp, 5.7, Path::ASSUMED), Some(tcp(1.0, 1.0, 4)));
    assert_eq!(cheapest(Mechanism::Heartbeat, 2.0, Path::ASSUMED), None);
    assert_eq!(cheapest(Mechanism::Heartbeat, 7200.0, Path { loss: 1.0, ..Path::ASSUMED }), None);
    assert_eq!(cheapest(Mechanism::Tcp, f64::NAN, Path::ASSUMED), None);
    assert_eq!(
        cheapest(Mechanism::Tcp, f64::INFINITY, Path { loss: 0.0, ..Path::ASSUMED }),
        Some(tcp(32_767.0, 1.0, 1))
    );
}

#[test]
fn a_curve_falls_from_left_to_right() {
    for mechanism in [Mechanism::Tcp, Mechanism::Heartbeat, Mechanism::Write] {
        let points = curve(mechanism, Path::ASSUMED);
        assert!((20..=30).contains(&points.len()), "{mechanism}: {}", points.len());
        let falls = |pair: &[Point]| {
            pair[0].detect_s < pair[1].detect_s
                && pair[0].packets_per_hour > pair[1].packets_per_hour
        };
        assert!(points.windows(2).all(falls), "{mechanism}");
        assert!(points.last().is_some_and(|last| last.detect_s <= 7200.0));
    }
    assert_eq!(curve(Mechanism::Lazy, Path::ASSUMED), []);
}

#[test]
fn settings_stand_as_they_are_written() {
    let written = |checking: Checking| -> Vec<String> {
        let line = |one: Setting| format!("{:?} {}={}", one.place, one.name, one.value);
        checking.settings().into_iter().map(line).collect()
    };
    assert_eq!(
        written(Checking { user_timeout_s: Some(12.5), ..tcp(9.5, 1.0, 3) }),
        [
            "Socket SO_KEEPALIVE=1",
            "Socket TCP_KEEPIDLE=10",
            "Socket TCP_KEEPINTVL=1",
            "Socket TCP_KEEPCNT=3",
            "Socket TCP_USER_TIMEOUT=12500",
            "Sysctl net.ipv4.tcp_keepalive_time=10",
            "Sysctl net.ipv4.tcp_keepalive_intvl=1",
            "Sysctl net.ipv4.tcp_keepalive_probes=3",
        ]
    );
    assert_eq!(
        written(heartbeat(27.9, 1.8, Evidence::Acknowledged)),
        [
            "Library timing=Timing::new(Duration::from_millis(27900), Duration::from_millis(1800))",
            "Library tick=Duration::from_millis(100)",
        ]
    );
    assert_eq!(
        written(Checking { most: Some(50), ..lazy(2.0) }),
        [
            "Library reaping=Reaping::new(50)",
            "Library reaping.answer_within=Duration::from_millis(2000)",
        ]
    );
    assert_eq!(
        written(Checking { user_timeout_s: Some(1.0), ..write(24.6) }),
        ["Socket TCP_USER_TIMEOUT=1000", "Program write a message every=24.6 s"]
    );
    assert_eq!(written(checking(Mechanism::None)), [""; 0]);
}

proptest! {
    #[test]
    fn no_setting_that_is_good_enough_is_cheaper(
        within in 1.0_f64..8000.0,
        loss in 0.0_f64..0.2,
        rtt_s in 0.0_f64..3.0,
        idle in 1_u32..8000,
        interval in 1_u32..100,
        probes in 1_u32..20,
    ) {
        for mechanism in [Mechanism::Tcp, Mechanism::Heartbeat, Mechanism::Write] {
            let Some(chosen) = cheapest(mechanism, within, Path { loss, rtt_s }) else { continue };
            prop_assert!(chosen.known_within_s().unwrap() <= within);
            if mechanism == Mechanism::Write && rtt_s > ASSUMED_RTT_S {
                // Its limit counts from a first repeat that is later there than its bound has it.
                continue;
            }
            prop_assert!(chosen.false_alarm(loss, rtt_s).unwrap() <= 1e-6);
        }
        let other = tcp(f64::from(idle), f64::from(interval), probes);
        let good = other.known_within_s().unwrap() <= within
            && other.false_alarm(loss, rtt_s).unwrap() <= 1e-6;
        if good && rtt_s < 1.0 {
            let chosen = cheapest(Mechanism::Tcp, within, Path { loss, rtt_s }).unwrap();
            prop_assert!(chosen.packets_per_hour() <= other.packets_per_hour(), "{:?}", chosen);
        }
    }

    #[test]
    fn more_loss_or_less_time_never_means_fewer_false_alarms(
        loss in 0.0_f64..1.0, more in 0.0_f64..1.0, rtt in 0.0_f64..1.0, within in 0.0_f64..20.0,
        answered in any::<bool>(),
    ) {
        let evidence = if answered { Evidence::Answered } else { Evidence::Acknowledged };
        let alarm = |loss, within| heartbeat(1.0, within, evidence).false_alarm(loss, rtt).unwrap();
        let one = alarm(loss, within);
        prop_assert!((0.0..=1.0 + 1e-12).contains(&one));
        prop_assert!(alarm((loss + more).min(1.0), within) >= one - 1e-12);
        prop_assert!(alarm(loss, within + 1.0) <= one + 1e-12);
    }
}
