//! Runs fleets and reapers through random schedules, and counts what went wrong.
//!
//! `cargo run --release --example simulate -- 1000000`; the status is 1 if a live connection was
//! closed, a dead one found late, or a rule broken.

mod world;

use std::process::ExitCode;
use std::thread;

use world::Outcome;

fn main() -> ExitCode {
    let schedules = match std::env::args().nth(1).map(|count| count.parse::<u64>()) {
        None => 100_000,
        Some(Ok(schedules)) => schedules,
        Some(Err(_)) => {
            eprintln!("simulate [SCHEDULES]: how many random schedules to run (100000)");
            return ExitCode::from(2);
        }
    };
    let threads = thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get) as u64;
    let mut all = Outcome::default();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|first| {
                scope.spawn(move || {
                    let mut sum = Outcome::default();
                    for seed in (first..schedules).step_by(threads as usize) {
                        let outcome = world::run(seed);
                        if !outcome.is_clean() {
                            eprintln!("seed {seed}: {outcome:?}");
                        }
                        sum.add(outcome);
                    }
                    sum
                })
            })
            .collect();
        for worker in workers {
            all.add(worker.join().expect("a worker only panics on a broken contract"));
        }
    });
    let Outcome { schedules, tests, found, live_closed, late, faults } = all;
    println!("schedules {schedules}, tests {tests}, dead found {found}");
    println!("live closed {live_closed}, late {late}, rules broken {faults}");
    if all.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
