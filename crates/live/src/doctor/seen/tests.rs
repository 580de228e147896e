use super::*;
use crate::diagnosis::Severity;
use crate::watch::{DestinationState, ListenerState, Rates};

fn diagnosis(id: &str, subject: &str, severity: Severity, figure: u32) -> Diagnosis {
    Diagnosis {
        id: id.into(),
        severity,
        subject: subject.into(),
        text: figure.to_string(),
        evidence: [("figure".to_owned(), figure.into())].into(),
        fix: None,
    }
}

fn state(at_s: f64, diagnoses: Vec<Diagnosis>) -> State {
    State { at_s, diagnoses, ..State::default() }
}

fn texts(summary: &Summary) -> Vec<(&str, &str)> {
    let pairs = summary.state.diagnoses.iter().map(|one| (one.subject.as_str(), one.text.as_str()));
    pairs.collect()
}

#[test]
fn of_what_was_seen_the_strongest_stays_and_of_equals_the_latest() {
    let id = "memory-pressure";
    let mut seen = StateSums::new();
    seen.see(&state(1.0, vec![diagnosis(id, "a", Severity::Warning, 1)]));
    let problem = diagnosis(id, "a", Severity::Problem, 2);
    let other = diagnosis(id, "b", Severity::Warning, 3);
    seen.see(&state(2.0, vec![problem, other]));
    let mut ended = diagnosis(id, "c", Severity::Problem, 4);
    ended.evidence.insert("ended_s_ago".into(), 1.into());
    let later = diagnosis(id, "b", Severity::Warning, 6);
    seen.see(&state(3.0, vec![diagnosis(id, "a", Severity::Warning, 5), later, ended]));
    assert_eq!((seen.looks(), seen.diagnoses()), (3, 2));
    let summary = seen.finish(State::default());
    assert_eq!(texts(&summary), [("a", "2"), ("b", "6")]);
}

#[test]
fn a_listener_that_one_look_named_is_not_named_as_unknown_too() {
    let mut seen = StateSums::new();
    let unknown = diagnosis(FULL, UNKNOWN, Severity::Problem, 1);
    seen.see(&state(1.0, vec![unknown.clone()]));
    assert_eq!(texts(&seen.finish(State::default())), [(UNKNOWN, "1")]);
    let mut seen = StateSums::new();
    seen.see(&state(1.0, vec![unknown]));
    seen.see(&state(2.0, vec![diagnosis(FULL, "10.0.0.1:80", Severity::Problem, 2)]));
    let near = diagnosis("accept-queue-near", "10.0.0.1:80", Severity::Warning, 3);
    seen.see(&state(3.0, vec![near]));
    assert_eq!(texts(&seen.finish(State::default())), [("10.0.0.1:80", "2")], "full says near too");
}

fn queue(inode: u64, length: u32) -> ListenerState {
    ListenerState {
        address: "10.0.0.1".into(),
        port: 80,
        inode,
        accept_queue_len: length,
        accept_queue_peak: length,
        accept_queue_limit: 100,
        ..ListenerState::default()
    }
}

#[test]
fn a_queue_stands_only_if_it_was_empty_at_no_look() {
    let mut seen = StateSums::new();
    for (at_s, lengths) in [(1.0, [3, 2, 5]), (2.0, [9, 0, 5]), (3.0, [4, 7, 5])] {
        let mut one = state(at_s, vec![]);
        one.listeners = (1..).zip(lengths).map(|(inode, length)| queue(inode, length)).collect();
        // A socket that came later.
        if at_s < 2.0 {
            one.listeners.pop();
        }
        seen.see(&one);
    }
    let mut whole = State { listeners: vec![queue(1, 4), queue(2, 7)], ..State::default() };
    whole.listeners[0].accept_queue_limit = 10;
    let summary = seen.finish(whole);
    let [one] = &summary.standing[..] else { panic!("{:?}", summary.standing) };
    assert_eq!((one.shortest, one.longest, one.looks, one.on.as_str()), (3, 9, 3, "10.0.0.1:80"));
    // The peak between the first look and the last is in the state, and in what is said of it.
    assert_eq!(summary.state.listeners[0].accept_queue_peak, 9);
    let [near] = &summary.state.diagnoses[..] else { panic!("{:?}", summary.state.diagnoses) };
    assert_eq!(
        (near.id.as_str(), &near.evidence["accept_queue_recent_peak"]),
        ("accept-queue-near", &9.into())
    );
}

#[test]
fn ports_and_tracked_connections_rise_at_the_lesser_rate_of_both_halves() {
    let rates = |marks: &[(f64, u32, u64)]| {
        let mut seen = StateSums::new();
        for &(at_s, ports_in_use, tracked) in marks {
            let mut one = state(at_s, vec![]);
            one.counted.tracked = Some(tracked);
            one.destinations = vec![DestinationState {
                address: "10.0.0.9".into(),
                port: 80,
                ports_in_use,
                time_wait: ports_in_use / 2,
                ..DestinationState::default()
            }];
            seen.dump(&one);
        }
        let summary = seen.finish(State { rates: Some(Rates::default()), ..State::default() });
        let opening = summary.openings.first().map(|one| (one.ports_per_s, one.time_wait_per_s));
        (opening, summary.tracked_per_s)
    };
    assert_eq!(
        rates(&[(0.0, 0, 10), (2.0, 400, 30), (4.0, 600, 130)]),
        (Some((100.0, 50.0)), Some(10.0))
    );
    assert_eq!(rates(&[(0.0, 0, 10), (2.0, 400, 10), (4.0, 400, 30)]), (None, None), "a burst");
    assert_eq!(rates(&[(0.0, 0, 10), (2.0, 400, 30)]), (None, None), "two dumps");
    assert_eq!(rates(&[(0.0, 0, 1), (0.0, 400, 2), (4.0, 600, 3)]), (None, None), "no time passed");
}
