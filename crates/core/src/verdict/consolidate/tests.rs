use proptest::prelude::*;

use super::*;
use crate::record::{Closing, HostSummary, LinkKind, LinkMeasured, Listener, Series, Softirq};
use crate::record::{LinkAsked, Timeline, Wire, WireCounts};
use crate::stats::Histogram;

fn planned(names: &[&str]) -> Vec<PlannedArm> {
    let arm = |name: &&str| PlannedArm {
        name: (*name).to_owned(),
        factors: BTreeMap::new(),
        settings: BTreeMap::new(),
        failures_allowed: 0.01,
    };
    names.iter().map(arm).collect()
}

fn metric(value: f64) -> Metric {
    Metric { value, unit: "us".to_owned(), ci95: None, median: None, n: 100 }
}

fn times(us: impl IntoIterator<Item = u64>) -> HistogramSummary {
    let mut histogram = Histogram::new();
    us.into_iter().for_each(|us| histogram.record_ns(us * 1000));
    histogram.summary_us()
}

/// Arm `a` in a round, with a metric `m`: 10 attempts, 9 ok, one reset.
fn trial(round: u32, m: f64) -> Trial {
    let arm = Arm {
        name: "a".to_owned(),
        metrics: BTreeMap::from([("m".to_owned(), metric(m))]),
        attempts: 10,
        ok: 9,
        errors: BTreeMap::from([("reset".to_owned(), 1)]),
        elapsed_s: 0.5,
        ..Arm::default()
    };
    Trial { round, began_s: f64::from(round), arm, ..Trial::default() }
}

fn excluded(round: u32, m: f64) -> Trial {
    Trial { invalid: Some("stolen from".to_owned()), ..trial(round, m) }
}

fn stopped(round: u32, m: f64) -> Trial {
    let mut trial = trial(round, m);
    trial.arm.partial = true;
    trial
}

fn failed(round: u32) -> Trial {
    let failure = Some("no address".to_owned());
    Trial {
        round,
        arm: Arm { name: "a".to_owned(), failure, ..Arm::default() },
        ..Trial::default()
    }
}

fn with(mut trial: Trial, change: impl FnOnce(&mut Arm)) -> Trial {
    change(&mut trial.arm);
    trial
}

fn only(trials: &[Trial]) -> Arm {
    let [arm] = <[Arm; 1]>::try_from(arms(&planned(&["a"]), trials)).unwrap();
    arm
}

#[test]
fn an_arm_that_ran_once_is_its_trial() {
    let trials: [fn() -> Trial; 4] =
        [|| trial(0, 1.0), || excluded(0, 1.0), || stopped(0, 1.0), || failed(0)];
    for trial in trials {
        let once = trial();
        assert_eq!(only(std::slice::from_ref(&once)), once.arm);
    }
}

#[test]
fn arms_come_in_the_order_of_the_plan_and_only_if_they_ran() {
    let named = |name: &str| with(trial(0, 1.0), |arm| arm.name = name.to_owned());
    let arms = arms(&planned(&["c", "x", "a"]), &[named("a"), named("b"), named("c")]);
    assert_eq!(arms.iter().map(|arm| arm.name.as_str()).collect::<Vec<_>>(), ["c", "a"]);
}

#[test]
fn counts_are_sums_and_metrics_are_means_over_rounds() {
    let other = with(trial(1, 20.0), |arm| {
        arm.errors = BTreeMap::from([("timeout".to_owned(), 1)]);
        arm.rungs = vec![1, 2];
    });
    let arm = only(&[with(trial(0, 10.0), |arm| arm.rungs = vec![5]), other, trial(2, 60.0)]);
    assert_eq!((arm.attempts, arm.ok, arm.elapsed_s), (30, 27, 1.5));
    assert_eq!(arm.errors, BTreeMap::from([("reset".to_owned(), 2), ("timeout".to_owned(), 1)]));
    assert_eq!(arm.rungs, [6, 2]);
    let m = &arm.metrics["m"];
    assert_eq!((m.value, m.median, m.n, m.unit.as_str()), (30.0, Some(20.0), 3, "us"));
    assert_eq!(m.ci95, sequence::interval(&[10.0, 20.0, 60.0], 0.05));
}

#[test]
fn a_metric_that_a_round_lacks_is_the_mean_of_the_others() {
    let arm = only(&[trial(0, 10.0), with(trial(1, 0.0), |arm| arm.metrics.clear())]);
    assert_eq!((arm.metrics["m"].value, arm.metrics["m"].n), (10.0, 1));
}

#[test]
fn distributions_are_merged_with_exact_count_least_mean_and_greatest() {
    let timed = |round, us: std::ops::RangeInclusive<u64>| {
        with(trial(round, 1.0), |arm| {
            arm.histograms.insert("connect_us".to_owned(), times(us));
        })
    };
    let arm = only(&[timed(0, 1..=1000), timed(1, 2001..=3000)]);
    let all = &arm.histograms["connect_us"];
    // (500.5 + 2500.5) / 2 = 1500.5; rank 1000 of 2000 is 1000 µs, in a bucket of 0.512 µs.
    assert_eq!((all.count, all.min, all.max), (2000, Some(1.0), Some(3000.0)));
    assert!((all.mean.unwrap() - 1500.5).abs() < 1e-9, "{all:?}");
    assert!((all.p50.unwrap() - 1000.0).abs() < 0.5, "{all:?}");
    // p50 is a metric of rounds too, (500 + 2500) / 2; p99 likewise, (990 + 2990) / 2.
    let p50 = &arm.metrics["connect_us_p50"];
    assert!((p50.value - 1500.0).abs() < 1.0, "{p50:?}");
    assert_eq!((p50.unit.as_str(), p50.n), ("us", 2));
    assert!((arm.metrics["connect_us_p99"].value - 1990.0).abs() < 2.0);
    assert!((arm.rounds[1].metrics["connect_us_p50"] - 2500.0).abs() < 1.5);
}

#[test]
fn a_quantile_that_one_round_cannot_say_is_no_metric_of_rounds() {
    let timed = |round, count| {
        with(trial(round, 1.0), |arm| {
            arm.histograms.insert("connect_us".to_owned(), times(1..=count));
        })
    };
    let arm = only(&[timed(0, 1000), timed(1, 999)]);
    assert!(arm.metrics.contains_key("connect_us_p50"));
    assert!(!arm.metrics.contains_key("connect_us_p99"));
    assert!(arm.histograms["connect_us"].p99.is_some());
}

#[test]
fn a_distribution_that_cannot_be_read_is_left_out() {
    for damage in [
        |summary: &mut HistogramSummary| summary.hdr = Some("damage".to_owned()),
        |summary: &mut HistogramSummary| summary.hdr = None,
        |summary: &mut HistogramSummary| summary.count += 1,
    ] {
        let timed = |round| {
            with(trial(round, 1.0), |arm| {
                arm.histograms.insert("connect_us".to_owned(), times(1..=50));
                arm.histograms.insert("first_byte_us".to_owned(), times(1..=50));
            })
        };
        let mut second = timed(1);
        damage(second.arm.histograms.get_mut("connect_us").unwrap());
        let arm = only(&[timed(0), second]);
        assert_eq!(arm.histograms.keys().collect::<Vec<_>>(), ["first_byte_us"]);
    }
}

#[test]
fn excluded_stopped_and_failed_trials_are_listed_and_in_no_figure() {
    let trials = vec![trial(0, 10.0), excluded(1, 1e9), failed(2), trial(3, 20.0), stopped(4, 1e9)];
    let arm = only(&trials);
    assert_eq!((arm.attempts, arm.metrics["m"].value, arm.metrics["m"].n), (20, 15.0, 2));
    assert_eq!(arm.failure, None);
    assert!(arm.partial);
    let left_out: Vec<_> = arm.rounds.iter().map(|round| round.left_out.as_deref()).collect();
    let stopped = Some("stopped before it was complete");
    assert_eq!(left_out, [None, Some("stolen from"), Some("no address"), None, stopped]);
    assert_eq!((arm.rounds[1].metrics["m"], arm.rounds[3].began_s), (1e9, 3.0));
}

#[test]
fn of_a_round_that_was_run_again_the_last_trial_that_counts_goes_in() {
    let again = |attempt, m| Trial { attempt, ..trial(0, m) };
    let arm = only(&[again(2, 30.0), Trial { attempt: 3, ..excluded(0, 40.0) }, again(1, 20.0)]);
    assert_eq!((arm.metrics["m"].value, arm.metrics["m"].n, arm.attempts), (30.0, 1, 10));
    let left_out: Vec<_> = arm.rounds.iter().map(|round| round.left_out.is_some()).collect();
    assert_eq!(left_out, [true, false, true]);
}

#[test]
fn a_stopped_trial_that_ran_again_after_a_resume_leaves_the_arm_whole() {
    let resumed = Trial { began_s: 9.0, ..trial(0, 10.0) };
    let arm = only(&[resumed.clone(), stopped(0, 1.0)]);
    assert!(!arm.partial);
    assert_eq!((arm.metrics["m"].value, arm.rounds[1].began_s), (10.0, 9.0));
}

#[test]
fn if_nothing_counts_the_figures_are_of_what_was_left_out_without_an_interval() {
    let trials: Vec<Trial> = (0..30).map(|round| excluded(round, f64::from(round))).collect();
    let arm = only(&[trials, vec![failed(30)]].concat());
    assert_eq!((arm.attempts, arm.metrics["m"].value, arm.metrics["m"].ci95), (300, 14.5, None));
    assert_eq!((arm.failure, arm.rounds.len()), (None, 31));
}

#[test]
fn an_arm_that_only_failed_keeps_its_last_failure() {
    let last = with(failed(1), |arm| arm.failure = Some("no server".to_owned()));
    let arm = only(&[failed(0), last]);
    assert_eq!((arm.failure.as_deref(), arm.attempts), (Some("no server"), 0));
    assert_eq!(arm.rounds.len(), 2);
}

#[test]
fn closers_add_up_and_what_is_not_known_of_every_round_is_known_of_none() {
    let closed = |round, both| {
        with(trial(round, 1.0), |arm| {
            let closing = Closing { by_client: 5, by_server: 3, both, ..Closing::default() };
            arm.closing = Some(closing);
        })
    };
    let closing = |trials: &[Trial]| only(trials).closing.unwrap();
    let known = closing(&[closed(0, Some(2)), closed(1, Some(0))]);
    assert_eq!((known.by_client, known.by_server, known.both), (10, 6, Some(2)));
    // Those of the first round are again among those of the client.
    let unknown = closing(&[closed(0, Some(2)), closed(1, None)]);
    assert_eq!((unknown.by_client, unknown.by_server, unknown.both), (12, 6, None));
    assert_eq!((known.closed(), unknown.closed()), (18, 18));
}

#[test]
fn hosts_are_weighted_by_attempts_and_peaks_are_the_greatest() {
    let host = |cpu, peak, sockets: u64| HostSummary {
        cpu_us_per_op: Some(cpu),
        cpu_user_us_per_op: Some(cpu / 2.0),
        rss_peak_bytes: Some(1000 - sockets),
        counters: BTreeMap::from([("TcpActiveOpens".to_owned(), 10)]),
        sockstat: BTreeMap::from([("TCP_tw".to_owned(), sockets)]),
        sysctls: BTreeMap::from([("net.x".to_owned(), sockets.to_string())]),
        listeners: vec![Listener {
            address: "10.0.0.1".to_owned(),
            port: 80,
            accept_queue_peak: peak,
            accept_queue_limit: 128,
            syn_queue_peak: Some(peak + 1),
            samples: Some(100),
            full_samples: Some(u64::from(peak)),
        }],
        pinned_cpu: Some(1),
        ..HostSummary::default()
    };
    let softirq = |us| Softirq {
        per_cpu_us_per_op: vec![us, 2.0 * us],
        us_per_op: 3.0 * us,
        resolution_us: 20_000.0,
    };
    let first = with(trial(0, 1.0), |arm| {
        (arm.attempts, arm.client, arm.softirq) = (10, host(4.0, 7, 1), Some(softirq(1.0)));
    });
    let second = with(trial(1, 1.0), |arm| {
        (arm.attempts, arm.client, arm.softirq) = (30, host(8.0, 5, 2), Some(softirq(5.0)));
        arm.server = Some(host(6.0, 5, 2));
    });
    let arm = only(&[first, second]);
    let client = &arm.client;
    // (10 · 4 + 30 · 8) / 40 = 7, and (10 · 1 + 30 · 5) / 40 = 4.
    assert_eq!((client.cpu_us_per_op, client.cpu_user_us_per_op), (Some(7.0), None));
    assert_eq!((client.rss_peak_bytes, client.counters["TcpActiveOpens"]), (Some(999), 20));
    assert_eq!((client.sockstat["TCP_tw"], client.sysctls["net.x"].as_str()), (2, "1"));
    assert_eq!(client.listeners.len(), 1);
    assert_eq!(client.listeners[0].accept_queue_peak, 7);
    assert_eq!((client.listeners[0].syn_queue_peak, client.pinned_cpu), (Some(8), Some(1)));
    let softirq = arm.softirq.unwrap();
    assert_eq!((softirq.us_per_op, softirq.resolution_us), (12.0, 40_000.0));
    assert_eq!(softirq.per_cpu_us_per_op, [4.0, 8.0]);
    assert_eq!(arm.server.unwrap().cpu_us_per_op, Some(6.0));
}

#[test]
fn user_and_system_time_are_given_where_every_round_has_them() {
    let host = |user| HostSummary {
        cpu_us_per_op: Some(10.0),
        cpu_user_us_per_op: user,
        cpu_system_us_per_op: user.map(|user: f64| 10.0 - user),
        ..HostSummary::default()
    };
    let with_user = |round, user| with(trial(round, 1.0), |arm| arm.client = host(user));
    let both = only(&[with_user(0, Some(2.0)), with_user(1, Some(4.0))]).client;
    assert_eq!((both.cpu_user_us_per_op, both.cpu_system_us_per_op), (Some(3.0), Some(7.0)));
    let one = only(&[with_user(0, Some(2.0)), with_user(1, None)]).client;
    assert_eq!((one.cpu_us_per_op, one.cpu_user_us_per_op), (Some(10.0), None));
}

#[test]
fn wire_and_warmup_add_up_and_what_cannot_be_added_is_the_first() {
    let measured = |round: u32| {
        with(trial(round, 1.0), |arm| {
            let syn = WireCounts { syn: 10, bytes: 600, ..WireCounts::default() };
            arm.wire = Some(Wire { client_to_server: syn, tap_drops: 1, ..Wire::default() });
            let histograms = BTreeMap::from([("connect_us".to_owned(), times(1..=20))]);
            arm.warmup = Some(Warmup {
                attempts: 5,
                ok: 5,
                elapsed_s: 0.1,
                histograms,
                ..Warmup::default()
            });
            arm.series
                .insert("connect_us".to_owned(), Series { points: vec![[f64::from(round); 4]] });
            arm.timeline =
                (round > 0).then(|| Timeline { matched: u64::from(round), ..Timeline::default() });
            arm.link = Some(LinkMeasured {
                kind: LinkKind::EmulatedTun,
                asked: LinkAsked::default(),
                rtt_us: None,
                rate_client_to_server_bit_per_s: Some(f64::from(round)),
                rate_server_to_client_bit_per_s: None,
                loss: None,
                lateness_us: Some(times(1..=10)),
                unwanted_drops: 2,
            });
        })
    };
    let arm = only(&[measured(0), measured(1), measured(2)]);
    let wire = arm.wire.unwrap();
    assert_eq!((wire.client_to_server.syn, wire.client_to_server.bytes), (30, 1800));
    assert_eq!((wire.tap_drops, wire.server_to_client.syn), (3, 0));
    let warmup = arm.warmup.unwrap();
    assert_eq!((warmup.attempts, warmup.ok, warmup.histograms["connect_us"].count), (15, 15, 60));
    assert_eq!(arm.series["connect_us"].points, [[0.0; 4]]);
    assert_eq!(arm.timeline.unwrap().matched, 1);
    let link = arm.link.unwrap();
    assert_eq!((link.unwanted_drops, link.lateness_us.unwrap().count), (6, 30));
    assert_eq!(link.rate_client_to_server_bit_per_s, Some(0.0));
}

#[test]
fn a_value_is_a_metric_or_a_figure_of_a_histogram() {
    let arm = with(trial(0, 7.0), |arm| {
        arm.histograms.insert("connect_us".to_owned(), times(1..=10_000));
        arm.metrics.insert("connect_us_max".to_owned(), metric(1.0));
        arm.metrics.insert("nan".to_owned(), metric(f64::NAN));
    });
    let close = |name, expected: f64| {
        let found = value(&arm.arm, name).unwrap();
        assert!((found / expected - 1.0).abs() < 0.001, "{name}: {found}");
    };
    for (name, expected) in [
        ("m", 7.0),
        ("connect_us_p50", 5_000.0),
        ("connect_us_p90", 9_000.0),
        ("connect_us_p99", 9_900.0),
        ("connect_us_p99_9", 9_990.0),
        ("connect_us_mean", 5_000.5),
        ("connect_us_max", 1.0),
        ("connect_us_min", 1.0),
    ] {
        close(name, expected);
    }
    for name in ["nan", "x", "x_p50", "connect_us", "connect_us_p", "_p50", ""] {
        assert_eq!(value(&arm.arm, name), None, "{name}");
    }
}

prop_compose! {
    fn any_trial()(
        round in 0_u32..4,
        order in 0_u32..3,
        attempt in 0_u32..3,
        kind in 0_u8..6,
        m in 1.0_f64..1e6,
        ok in 0_u64..1000,
        refused in 0_u64..1000,
        us in prop::collection::vec(1_u64..1_000_000, 0..40),
    ) -> Trial {
        let mut trial = match kind {
            0 => excluded(round, m),
            1 => stopped(round, m),
            2 => failed(round),
            _ => trial(round, m),
        };
        (trial.order, trial.attempt) = (order, attempt);
        // Places are unique in a record.
        trial.began_s = m;
        if trial.arm.failure.is_none() {
            trial.arm.attempts = ok + refused;
            trial.arm.ok = ok;
            trial.arm.errors = BTreeMap::from([("connect-refused".to_owned(), refused)]);
            trial.arm.histograms.insert("connect_us".to_owned(), times(us));
        }
        trial
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn the_order_of_trials_does_not_matter(
        (trials, shuffled) in prop::collection::vec(any_trial(), 1..10)
            .prop_flat_map(|trials| (Just(trials.clone()), Just(trials).prop_shuffle())),
    ) {
        prop_assert_eq!(only(&trials), only(&shuffled));
    }

    #[test]
    fn attempts_are_ok_and_errors_and_histograms_hold_every_value_of_what_counts(
        trials in prop::collection::vec(any_trial(), 2..10),
    ) {
        let arm = only(&trials);
        prop_assert_eq!(arm.attempts, arm.ok + arm.errors.values().sum::<u64>());
        prop_assert_eq!(arm.rounds.len(), trials.len());
        let rounds = counting(&by_arm(&trials)["a"]);
        if !rounds.is_empty() {
            let count: u64 = rounds.values().map(|t| t.arm.histograms["connect_us"].count).sum();
            prop_assert_eq!(arm.histograms["connect_us"].count, count);
            prop_assert_eq!(arm.attempts, rounds.values().map(|t| t.arm.attempts).sum::<u64>());
            let kept = arm.rounds.iter().filter(|round| round.left_out.is_none()).count();
            prop_assert_eq!(kept, rounds.len());
        }
    }
}
