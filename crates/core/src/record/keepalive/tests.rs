use std::collections::BTreeMap;

use super::*;

fn counted(name: &str, count: u64) -> BTreeMap<String, u64> {
    [(name.to_owned(), count)].into()
}

fn round(window_s: f64, probes: u64, known: u64, tests: Option<u64>) -> Keepalive {
    Keepalive {
        checking: Checking { mechanism: Mechanism::Tcp, ..Checking::default() },
        sockets: 51,
        idle_sockets: 50,
        processes: [1, 1],
        window_s,
        probes: Some(Traffic { packets: probes, bytes: 52 * probes }),
        nulls_sent: probes,
        link_share: Some(1.0 / window_s),
        deaths: Some(Deaths {
            stricken: 10,
            dead: 10,
            known,
            known_by: counted("ETIMEDOUT", known),
            watched_s: 30.0,
            bound_s: Some(13.0),
            tests,
            test_probability: tests.map(|_| 0.001),
            traffic: Some(Traffic { packets: 3, bytes: 156 }),
            ..Deaths::default()
        }),
        ..Keepalive::default()
    }
}

fn consolidated(rounds: &[Keepalive]) -> Keepalive {
    Keepalive::merge(&rounds.iter().collect::<Vec<_>>()).unwrap()
}

#[test]
fn counts_are_summed_and_settings_kept() {
    let all = consolidated(&[round(10.0, 100, 9, None), round(30.0, 300, 10, None)]);
    assert_eq!((all.sockets, all.idle_sockets, all.processes), (51, 50, [1, 1]));
    assert_eq!((all.probes.unwrap().packets, all.probes.unwrap().bytes), (400, 20_800));
    assert_eq!((all.nulls_sent, all.heartbeats), (400, None));
    assert!((all.window_s - 40.0).abs() < 1e-12);
    // 1 s of the link in each round: 2 of 40 s.
    assert!((all.link_share.unwrap() - 0.05).abs() < 1e-12);
    let deaths = all.deaths.unwrap();
    assert_eq!((deaths.stricken, deaths.known, deaths.known_by["ETIMEDOUT"]), (20, 19, 19));
    assert_eq!((deaths.watched_s, deaths.bound_s), (30.0, Some(13.0)));
    assert_eq!(deaths.traffic, Some(Traffic { packets: 6, bytes: 312 }));
    assert_eq!((deaths.tests, deaths.expected_wrongly), (None, None));
}

#[test]
fn expected_false_alarms_are_those_of_all_tests_together() {
    // 100,000 tests at 0.001: about 100, and not the sum of two ranges.
    let rounds = [round(1.0, 1, 1, Some(60_000)), round(1.0, 1, 1, Some(40_000))];
    let deaths = consolidated(&rounds).deaths.unwrap();
    assert_eq!(deaths.tests, Some(100_000));
    assert!((deaths.test_probability.unwrap() - 0.001).abs() < 1e-15);
    let expected = deaths.expected_wrongly.unwrap();
    assert_eq!([expected[0] as u64, expected[2] as u64], [75, 127]);
    assert!((expected[1] - 100.0).abs() < 1e-9);
}

#[test]
fn a_round_that_could_not_count_its_tests_leaves_no_expectation() {
    let rounds = [round(1.0, 1, 1, Some(60_000)), round(1.0, 1, 1, None)];
    let deaths = consolidated(&rounds).deaths.unwrap();
    assert_eq!(
        (deaths.tests, deaths.test_probability, deaths.expected_wrongly),
        (None, None, None)
    );
}

#[test]
fn without_a_round_there_is_none() {
    assert_eq!(Keepalive::merge(&[]), None);
}
