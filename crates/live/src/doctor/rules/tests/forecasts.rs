//! Ports and tracked connections that will run out.

use super::*;

/// A machine that opens connections to `10.0.0.9:80`, or another address.
fn opening(address: &str, time_wait_per_s: f64) -> Machine {
    let mut all = machine(vec![], vec![]);
    all.state.destinations = vec![DestinationState {
        address: address.into(),
        port: 80,
        ports_in_use: 2_500,
        time_wait: 2_400,
        ..DestinationState::default()
    }];
    let to = live::place(address, 80);
    all.openings = vec![Opening { to, ports_per_s: time_wait_per_s, time_wait_per_s }];
    all
}

#[test]
fn ports_are_forecast_to_end_where_sixty_seconds_of_them_are_more_than_the_range() {
    let found = |address, per_s| names(&opening(address, per_s));
    let none: [&str; 0] = [];
    // 28,232 / 60 = 470.5
    assert_eq!(found("10.0.0.9", 471.0), [PORT_RANGE_TOO_SMALL, TW_REUSE_LOOPBACK_ONLY]);
    assert_eq!(found("10.0.0.9", 470.0), none);
    assert_eq!(found("127.0.0.1", 9_000.0), none, "loopback reuses them");
    assert_eq!(found("::1", 9_000.0), none);
    assert_eq!(found("fd00::9", 9_000.0), [PORT_RANGE_TOO_SMALL, TW_REUSE_LOOPBACK_ONLY]);
    let with = |reuse| {
        let mut all = opening("10.0.0.9", 500.0);
        all.state.limits.tw_reuse = reuse;
        names(&all)
    };
    assert_eq!(with(Some(1)), none);
    assert_eq!(with(Some(0)), [PORT_RANGE_TOO_SMALL]);
    let mut gone = opening("10.0.0.9", 500.0);
    gone.state.destinations.clear();
    assert_eq!(names(&gone), none);
}

#[test]
fn reuse_on_loopback_is_named_only_where_ports_run_short_elsewhere() {
    let with = |address: &str, in_use, time_wait| {
        let mut all = opening(address, 1.0);
        all.openings.clear();
        all.state.destinations[0].ports_in_use = in_use;
        all.state.destinations[0].time_wait = time_wait;
        all.state.diagnoses = live::find(&all.state);
        names(&all)
    };
    let slow = "ports-search-slow".to_owned();
    assert_eq!(with("10.0.0.9", 15_000, 14_900), [slow.clone(), TW_REUSE_LOOPBACK_ONLY.to_owned()]);
    assert_eq!(with("10.0.0.9", 15_000, 7_000), [slow], "most of them are open");
    assert!(with("10.0.0.9", 14_000, 14_000).is_empty(), "the default is no fault");
    assert!(with("127.0.0.1", 15_000, 15_000).is_empty());
}

#[test]
fn a_table_of_tracked_connections_is_forecast_to_fill_by_rate_and_time_out() {
    let with = |per_s, tracked| {
        let mut all = machine(vec![], vec![]);
        (all.tracked_per_s, all.state.counted.tracked) = (per_s, tracked);
        all.state.diagnoses = live::find(&all.state);
        names(&all)
    };
    // 65,536 / 120 = 546.1
    assert_eq!(with(Some(547.0), Some(9_000)), [CONNTRACK_FILLS]);
    assert!(with(Some(546.0), Some(9_000)).is_empty());
    assert!(with(None, Some(9_000)).is_empty());
    assert!(with(Some(547.0), None).is_empty());
    assert_eq!(with(Some(547.0), Some(60_000)), ["conntrack-near-full"]);
}
