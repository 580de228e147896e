use super::*;

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn steps(reaper: &mut Reaper<u32>, now: u64) -> Vec<ReaperStep<u32>> {
    std::iter::from_fn(|| reaper.next(s(now))).collect()
}

fn tested(reaper: &mut Reaper<u32>, now: u64) -> Vec<u32> {
    let tests = steps(reaper, now).into_iter().filter_map(|step| match step {
        ReaperStep::Test(_, key) => Some(key),
        _ => None,
    });
    tests.collect()
}

/// Connections 0, 1, 2 …, opened a second apart.
fn full(reaping: Reaping) -> (Reaper<u32>, Vec<Member>) {
    let most = reaping.limit;
    let mut reaper = Reaper::new(reaping);
    let members = (0..most).map(|key| reaper.insert(key as u32, s(key as u64))).collect();
    (reaper, members)
}

#[test]
fn looks_come_at_parts_of_the_time_for_an_answer_and_free_the_place_under_test() {
    let reaping = Reaping { answer_within: s(16), at_once: 1, tick: s(1), ..Reaping::new(2) };
    let (mut reaper, members) = full(reaping);
    reaper.room_wanted(s(100));
    assert_eq!(steps(&mut reaper, 100), [ReaperStep::Test(members[0], 0)]);
    for at in [101, 102, 104, 108] {
        assert_eq!(reaper.next_due(), Some(s(at)));
        assert_eq!(steps(&mut reaper, at), [ReaperStep::Look(members[0], 0)]);
    }
    reaper.acknowledged(members[0]);
    assert_eq!(steps(&mut reaper, 108), [ReaperStep::Test(members[1], 1)]);
    assert_eq!(steps(&mut reaper, 130), [ReaperStep::Judge(members[1], 1)]);
}

#[test]
fn the_least_recently_used_are_tested_first_or_the_oldest() {
    for (order, expected) in [(Order::LastUse, [1, 2, 0]), (Order::Age, [0, 1, 2])] {
        let (mut reaper, members) = full(Reaping { order, ..Reaping::new(3) });
        reaper.used(members[0], s(50));
        reaper.room_wanted(s(100));
        assert_eq!(tested(&mut reaper, 100), expected);
    }
}

#[test]
fn with_a_clock_that_stands_still_all_that_were_there_are_tested_and_none_twice() {
    for order in [Order::LastUse, Order::Age] {
        let mut reaper = Reaper::new(Reaping { order, ..Reaping::new(2) });
        let members = [0, 1].map(|key| reaper.insert(key, s(5)));
        reaper.room_wanted(s(5));
        assert_eq!(reaper.next(s(5)), Some(ReaperStep::Test(members[0], 0)));
        reaper.used(members[0], s(5));
        assert_eq!(reaper.next(s(5)), Some(ReaperStep::Test(members[1], 1)));
        reaper.acknowledged(members[1]);
        assert_eq!((reaper.next(s(5)), reaper.is_reaping()), (None, false));
    }
}

#[test]
fn who_came_after_the_reap_had_begun_is_not_tested_though_the_clock_stood_still() {
    let (mut reaper, members) = full(Reaping { stop: Stop::WholeSet, ..Reaping::new(1) });
    reaper.room_wanted(s(5));
    reaper.remove(members[0]);
    reaper.insert(1, s(5));
    assert_eq!((reaper.next(s(5)), reaper.is_reaping()), (None, false));
}

#[test]
fn those_used_lately_are_left_alone() {
    for (order, expected) in [(Order::LastUse, [1, 2]), (Order::Age, [1, 2])] {
        let unused_for = Some(s(60));
        let (mut reaper, members) = full(Reaping { unused_for, order, ..Reaping::new(3) });
        reaper.used(members[0], s(50));
        reaper.room_wanted(s(100));
        assert_eq!(tested(&mut reaper, 100), expected);
    }
}

#[test]
fn a_reap_ends_with_room_or_with_the_whole_set() {
    for (stop, expected) in [(Stop::BelowMost, vec![]), (Stop::WholeSet, vec![1, 2])] {
        let (mut reaper, members) = full(Reaping { stop, at_once: 1, ..Reaping::new(3) });
        reaper.room_wanted(s(100));
        assert_eq!(tested(&mut reaper, 100), [0]);
        reaper.remove(members[0]);
        let mut rest = Vec::new();
        for _ in 0..3 {
            for key in tested(&mut reaper, 101) {
                rest.push(key);
                reaper.used(members[key as usize], s(101));
            }
        }
        assert_eq!(rest, expected);
        assert!(!reaper.is_reaping());
    }
}

#[test]
fn any_number_of_arrivals_cause_one_reap_in_min_interval() {
    let reaping = Reaping { answer_within: s(2), min_interval: s(30), ..Reaping::new(1) };
    let (mut reaper, members) = full(reaping);
    let mut tests = 0;
    for now in 100..190 {
        reaper.room_wanted(s(now));
        for key in tested(&mut reaper, now) {
            tests += 1;
            reaper.used(members[key as usize], s(now));
        }
    }
    assert_eq!(tests, 3);
}

#[test]
fn room_asked_for_too_early_is_remembered_until_there_is_some() {
    let reaping = Reaping { answer_within: s(2), min_interval: s(30), ..Reaping::new(1) };
    let (mut reaper, members) = full(reaping);
    reaper.room_wanted(s(100));
    assert_eq!(tested(&mut reaper, 100), [0]);
    reaper.used(members[0], s(101));
    assert_eq!((steps(&mut reaper, 101), reaper.next_due()), (vec![], None));
    reaper.room_wanted(s(102));
    assert_eq!(reaper.next_due(), Some(s(130)));
    reaper.remove(members[0]);
    assert_eq!(reaper.next_due(), None);
    reaper.insert(7, s(110));
    assert_eq!(tested(&mut reaper, 130), [7]);
}

#[test]
fn an_entry_takes_the_memory_that_the_documentation_says() {
    assert_eq!(Queues::<Subject<u32>, QUEUES>::ENTRY_BYTES, 64);
}
