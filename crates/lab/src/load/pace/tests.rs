use super::*;

#[test]
fn a_share_of_a_number_adds_up_to_it() {
    assert_eq!([0, 1, 2].map(|part| share(8, part, 3)), [3, 3, 2]);
}

#[test]
fn a_closed_loop_measures_so_many_after_so_many_of_warm_up() {
    let plan = Plan { warmup_operations: 2, operations: Some(3), ..Plan::ENDLESS };
    let mut pace = Pace::new(&plan, 100, 0, 1);
    assert!(pace.may_begin(100) && pace.may_begin(101));
    assert!(!pace.advance(102));
    pace.warmed();
    pace.warmed();
    assert!(pace.advance(103) && !pace.advance(104));
    assert_eq!([105, 106, 107].map(|now| pace.may_begin(now)), [true; 3]);
    assert!(!pace.may_begin(108) && pace.is_over(108));
    // From the beginning of the measured part to that of its last operation.
    assert_eq!(pace.window_ns(153), Some((103, 107)));
    assert!(!pace.window_has(102) && pace.window_has(103) && pace.window_has(107));
    assert!(!pace.window_has(108));
}

#[test]
fn time_ends_the_measured_part_and_a_drain_follows() {
    let plan = Plan { warmup_ns: 10, duration_ns: Some(1_000), timeout_ns: 70, ..Plan::ENDLESS };
    let mut pace = Pace::new(&plan, 0, 0, 1);
    assert!(pace.may_begin(9) && !pace.advance(9) && pace.advance(12));
    assert!(pace.may_begin(1_011) && !pace.may_begin(1_012));
    assert_eq!((pace.ends_ns(), pace.gives_up_ns()), (1_012, 1_082));
    assert_eq!((pace.window_ns(500), pace.window_ns(5_000)), (Some((12, 500)), Some((12, 1_012))));
}

#[test]
fn in_a_closed_loop_an_operation_across_an_edge_counts_in_part() {
    let plan = Plan { warmup_ns: 10, duration_ns: Some(1_000), timeout_ns: 70, ..Plan::ENDLESS };
    let mut pace = Pace::new(&plan, 0, 0, 1);
    assert!(pace.share(2, 9).abs() < 1e-12, "there is no window yet");
    assert!(pace.may_begin(9) && pace.advance(12));
    for (from, to, share) in [
        (2, 10, 0.0),
        (2, 22, 0.5),
        (500, 600, 1.0),
        (1_002, 1_022, 0.5),
        (2, 2_002, 0.5),
        (1_012, 1_020, 0.0),
        (600, 600, 1.0),
    ] {
        assert!((pace.share(from, to) - share).abs() < 1e-12, "{from} to {to}");
    }
    // Four slots in phase whose operations take 235: the sum is the rate, not whole batches.
    let begins = |slot| (0_u64..6).map(move |n| (slot + n * 235, slot + (n + 1) * 235));
    let all: f64 = (0..4).flat_map(|_| begins(5)).map(|(from, to)| pace.share(from, to)).sum();
    assert!((all / 1_000.0 - 4.0 / 235.0).abs() < 1e-9, "{all}");
}

#[test]
fn an_open_loop_intends_what_is_due_within_the_measured_part() {
    // 1,000 per second: one each ms; the measured part is from 5 ms to 15 ms.
    let plan = Plan {
        rate_per_s: Some(1_000.0),
        warmup_ns: 5_000_000,
        duration_ns: Some(10_000_000),
        ..Plan::ENDLESS
    };
    let mut pace = Pace::new(&plan, 0, 0, 1);
    let mut all = 0;
    pace.advance(5_300_000);
    assert_eq!(pace.begun_ns(), Some(5_000_000));
    while pace.next_due().is_some() {
        pace.take_due(0);
        all += 1;
    }
    assert_eq!((all, pace.intended()), (15, Some(10)));
    assert!(pace.is_over(0));
    assert_eq!(pace.window_ns(u64::MAX), Some((5_000_000, 15_000_000)));
}

#[test]
fn the_window_of_an_even_schedule_ends_when_the_next_operation_would_be_due() {
    let plan = Plan { rate_per_s: Some(5.0), duration_ns: Some(300_000_000), ..Plan::ENDLESS };
    let planned = |plan: &Plan| Pace::new(plan, 0, 0, 1).planned_ns();
    assert_eq!(planned(&plan), Some(400_000_000));
    let poisson = Plan { spread: Spread::Poisson, ..plan };
    assert_eq!(planned(&poisson), Some(300_000_000));
}

#[test]
fn the_window_of_a_number_of_operations_lasts_as_long_as_their_schedule() {
    // Three a second apart, on one of two threads: the next would be due after three seconds.
    let plan = Plan { rate_per_s: Some(2.0), operations: Some(6), ..Plan::ENDLESS };
    let mut pace = Pace::new(&plan, 0, 0, 2);
    pace.advance(0);
    assert_eq!((pace.planned_ns(), pace.begun_ns()), (Some(3_000_000_000), Some(0)));
}
#[test]
fn how_many_are_due_in_a_time_is_not_rounded_up() {
    let planned = |rate: f64, duration_ns| {
        let (rate_per_s, duration_ns) = (Some(rate), Some(duration_ns));
        Pace::new(&Plan { rate_per_s, duration_ns, ..Plan::ENDLESS }, 0, 0, 1).planned_ns()
    };
    // 55 and 29, though 1.1 × 50 and 1 ÷ (1 ÷ 29) are a little more in floating point.
    assert_eq!(planned(50.0, 1_100_000_000), Some(1_100_000_000));
    assert_eq!(planned(29.0, 1_000_000_000), Some(1_000_000_000));
    // At 0, 1/7 and 2/7 s; the next would be due at 3/7 s.
    assert_eq!(planned(7.0, 300_000_000), Some(428_571_428));
}

#[test]
fn the_slots_of_a_closed_loop_are_filled_over_its_ramp_and_then_kept_full() {
    let plan = Plan { slots: 4, ramp_ns: 400, operations: Some(6), ..Plan::ENDLESS };
    let mut pace = Pace::from_start(&plan, 1_000);
    let mut due = Vec::new();
    for under_way in 0..4 {
        due.push(pace.next(under_way).unwrap());
        pace.begin(due[under_way as usize]);
    }
    assert_eq!(due, [1_000, 1_100, 1_200, 1_300]);
    assert_eq!((pace.next(4), pace.next(3)), (None, Some(0)));
    pace.begin(1_310);
    assert_eq!(pace.next(3), Some(0));
    pace.begin(1_320);
    assert_eq!((pace.next(0), pace.begun()), (None, 6));
}

#[test]
fn a_pause_holds_a_closed_loop_and_does_not_follow_the_last_operation() {
    let pause = Some(Pause { every: 2, long_ns: 100 });
    let plan = Plan { operations: Some(4), pause, ..Plan::ENDLESS };
    let mut pace = Pace::from_start(&plan, 0);
    pace.begin(10);
    pace.begin(20);
    assert_eq!((pace.next(0), pace.is_paused(119), pace.is_paused(120)), (Some(120), true, false));
    assert!(!pace.may_begin(119));
    // Of a pause that was cut short only a part was spent.
    assert_eq!((pace.paused_by(50), pace.paused_by(500)), (30, 100));
    pace.begin(120);
    pace.begin(130);
    assert_eq!((pace.next(0), pace.paused_by(500)), (None, 100));
}

#[test]
fn the_schedule_and_the_window_of_an_open_loop_wait_for_its_pauses() {
    let pause = Some(Pause { every: 2, long_ns: 100 });
    let plan = Plan { rate_per_s: Some(1e8), operations: Some(4), pause, ..Plan::ENDLESS };
    let mut pace = Pace::from_start(&plan, 1_000);
    let mut due = Vec::new();
    while let Some(at) = pace.next(0) {
        due.push(at);
        pace.begin(at);
    }
    assert_eq!(due, [1_000, 1_010, 1_120, 1_130]);
    // What completes after that is in progress at the end of the planned time.
    assert_eq!((pace.planned_ns(), pace.window_ends_ns()), (Some(40), 1_140));
}
