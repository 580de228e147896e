//! Are the workers that wait for a stopped backend as many as arithmetic says, by how much do other
//! requests slow down, and what does each fix change?

use anyhow::{Context as _, ensure};
use tcptoll_core::record::{Arm, Comparison, Summary, WorkerPool};

use crate::http::summary;
use crate::table::Table;

/// Workers may be off by this share of what arithmetic says.
const OFF_MAX: f64 = 0.10;

/// The pool of the document, on both front services: a queue of 5, a stall of 2 s.
const POOL: &[&str] = &["--workers", "100", "--rate", "400", "--stall", "2s"];

/// A setting with what it changes, in words.
type Setting = (&'static str, &'static [&'static str]);

/// Settings whose waiting is known, on 100 workers.
const WAITS: &[Setting] = &[
    ("100 ms", &["--connect-timeout", "100ms"]),
    ("225 ms", &["--connect-timeout", "225ms"]),
    ("100 ms, 2 retries", &["--connect-timeout", "100ms", "--retries", "2"]),
    (
        "100 ms, 1 retry after 100 ms",
        &["--connect-timeout", "100ms", "--retries", "1", "--backoff", "100ms", "--jitter", "off"],
    ),
    ("none", &[]),
];

fn pool(arm: &Arm) -> anyhow::Result<&WorkerPool> {
    let pool = arm.own.worker_pool.as_deref();
    pool.with_context(|| format!("{}: nothing recorded", arm.name))
}

fn run(args: &[&str]) -> anyhow::Result<Summary> {
    Ok(summary(&["worker-pool"], args)?.0)
}

/// Workers stuck, by the front services' own status pages.
pub(crate) fn stuck(table: &mut Table) -> anyhow::Result<()> {
    for front in ["workers", "php-fpm"] {
        for (what, limits) in WAITS {
            let args = [POOL, &["--front", front, "--rounds", "1"], limits].concat();
            let found = run(&args)?;
            let pool = pool(crate::http::only(&found)?)?;
            let expected = pool.stuck_expected.context("nothing is expected")?;
            let measured = pool.stuck_measured.context("the status page was not read")?;
            let off = measured / expected - 1.0;
            table.row(
                &format!("{front}: stuck of 100 workers, 200 calls/s, connect time-out {what}"),
                "within 10 % of arrivals × waiting, at most 100",
                &format!("{measured:.1}, {expected:.1} from arithmetic: {:+.1} %", off * 100.0),
                off.abs() <= OFF_MAX,
            );
        }
    }
    Ok(())
}

/// The study of the document: how much slower requests are that never call the backend, and each
/// fix's factor.
pub(crate) fn avalanche(table: &mut Table) -> anyhow::Result<()> {
    const STUDY: &str = "avalanche-2021";
    let found = summary(&["study", "run", STUDY], &[])?.0;
    ensure!(found.valid, "{STUDY}: the run is invalid: {:?}", found.warnings);
    ensure!(!found.comparisons.is_empty(), "{STUDY}: nothing was compared");
    for compared in &found.comparisons {
        table.row(
            &format!("{STUDY}: {} of {} against {}", compared.metric, compared.a, compared.b),
            "a factor with its interval",
            &factor(compared),
            compared.ratio.is_some() && compared.ci95.is_some(),
        );
    }
    for arm in &found.arms {
        let pool = pool(arm)?;
        let groups: Vec<String> = pool
            .groups
            .iter()
            .map(|(name, group)| format!("{name}: {} of {} ok", group.ok, group.attempts))
            .collect();
        let stuck = pool.stuck_measured.zip(pool.stuck_expected);
        let stuck = stuck.map_or("not steady".to_owned(), |(measured, expected)| {
            let most = pool.stuck_expected_max.unwrap_or(expected);
            format!("{measured:.1} workers busy, {expected:.1} to {most:.1} from arithmetic")
        });
        Table::fact(&format!("{STUDY}: {}", arm.name), &format!("{stuck}; {}", groups.join("; ")));
    }
    Ok(())
}

fn factor(compared: &Comparison) -> String {
    let interval = compared
        .ci95
        .map_or("no interval".to_owned(), |[low, high]| format!("95 % CI {low:.3} to {high:.3}"));
    let ratio = compared.ratio.map_or("no ratio".to_owned(), |ratio| format!("{ratio:.3}"));
    format!("× {ratio} ({interval}), {}", compared.verdict)
}
