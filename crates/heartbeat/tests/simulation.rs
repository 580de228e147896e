//! Fleets and reapers in random worlds: no live connection is closed, every dead one in time.

#[path = "../examples/simulate/world.rs"]
mod world;

/// Schedules to run: `TCP_HEARTBEAT_SCHEDULES`, or 20,000.
fn schedules() -> u64 {
    let asked = std::env::var("TCP_HEARTBEAT_SCHEDULES").ok();
    asked.map_or(20_000, |count| count.parse().expect("TCP_HEARTBEAT_SCHEDULES is a number"))
}

#[test]
fn no_live_connection_is_closed_and_every_dead_one_within_its_deadline_and_a_tick() {
    let mut all = world::Outcome::default();
    for seed in 0..schedules() {
        let outcome = world::run(seed);
        assert!(outcome.is_clean(), "seed {seed}: {outcome:?}");
        all.add(outcome);
    }
    assert!(all.found > all.schedules, "the worlds have deaths to find: {all:?}");
    println!("{all:?}");
}
