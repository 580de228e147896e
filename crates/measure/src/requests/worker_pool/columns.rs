//! Which figures stand in the tables of `worker-pool`: both kinds of requests apart, workers, recovery.

use super::effects::PoolArm;
use super::{
    BACKEND_FAILED, BACKEND_LATENCY, BACKEND_LATENCY_MEAN, BACKEND_RATE, LOCAL_FAILED,
    LOCAL_LATENCY, LOCAL_LATENCY_MEAN, LOCAL_RATE, RECOVERY, WORKERS_BUSY_PEAK, WORKERS_STUCK,
};
use tcptoll_core::experiment::column::{Column, Figure, Form, Quantile, Show, Table, value};
use tcptoll_core::experiment::columns::{ECHO_P50, ERRORS, OK, every, tidy};
use tcptoll_core::record::{Arm, WorkerPool};

use Figure::{Count, Estimate, Number, Share, Words};
use Quantile::{Max, P50, P99};

/// Headings of the two kinds of requests.
const WITHOUT: &str = "without backend";
const WITH: &str = "with backend";
const BUSY: &str = "workers busy";

fn pool(arm: &Arm) -> Option<&WorkerPool> {
    arm.own.worker_pool.as_deref()
}

const LOCAL_MEAN: Column = Column::new(
    (WITHOUT, "mean"),
    "latency without backend, mean",
    tidy(&LOCAL_LATENCY_MEAN),
    Estimate(LOCAL_LATENCY_MEAN.unit),
)
.shown(Show::Always);
const LOCAL_P50: Column =
    Column::quantile((WITHOUT, "p50"), "latency without backend, p50", LOCAL_LATENCY.name, P50);
const LOCAL_P99: Column =
    Column::quantile((WITHOUT, "p99"), "latency without backend, p99", LOCAL_LATENCY.name, P99);
const LOCAL_MAX: Column =
    Column::quantile((WITHOUT, "max"), "latency without backend, max", LOCAL_LATENCY.name, Max);
const LOCAL_PER_S: Column =
    Column::new((WITHOUT, "per s"), "requests/s without backend", tidy(&LOCAL_RATE), Estimate(""));
const LOCAL_FAILS: Column = Column::new(
    (WITHOUT, "failed"),
    "failed without backend",
    tidy(&LOCAL_FAILED),
    Share(|arm| value(arm, LOCAL_FAILED.name)),
);
const BACKEND_MEAN: Column = Column::new(
    (WITH, "mean"),
    "latency with backend, mean",
    tidy(&BACKEND_LATENCY_MEAN),
    Estimate(BACKEND_LATENCY_MEAN.unit),
);
const BACKEND_P99: Column =
    Column::quantile((WITH, "p99"), "latency with backend, p99", BACKEND_LATENCY.name, P99);
const BACKEND_PER_S: Column =
    Column::new((WITH, "per s"), "requests/s with backend", tidy(&BACKEND_RATE), Estimate(""));
const BACKEND_FAILS: Column = Column::new(
    (WITH, "failed"),
    "failed with backend",
    tidy(&BACKEND_FAILED),
    Share(|arm| value(arm, BACKEND_FAILED.name)),
);
const BUSY_MEAN: Column = Column::new(
    (BUSY, "stall"),
    "workers busy during the stall",
    tidy(&WORKERS_STUCK),
    Number(|arm| PoolArm::from_arm(arm)?.busy(), 1.0),
);
const BUSY_EXPECTED: Column = Column::new(
    (BUSY, "expected"),
    "workers busy, expected",
    ("workers_stuck_expected", "workers"),
    Number(|arm| pool(arm)?.stuck_expected, 1.0),
);
const BUSY_EXPECTED_MAX: Column = Column::new(
    (BUSY, "at most"),
    "workers busy, expected at most",
    ("workers_stuck_expected_max", "workers"),
    Number(|arm| pool(arm)?.stuck_expected_max, 1.0),
)
.when(|summary| summary.arms.iter().filter_map(PoolArm::from_arm).any(PoolArm::expects_a_range));
const BUSY_PEAK: Column = Column::new(
    (BUSY, "peak"),
    "workers busy, peak",
    tidy(&WORKERS_BUSY_PEAK),
    Number(|arm| value(arm, WORKERS_BUSY_PEAK.name), 1.0),
);
const WORKERS: Column =
    Column::new((BUSY, "of"), "workers", ("workers", ""), Count(|arm| Some(pool(arm)?.workers)));
const QUEUE: Column = Column::new(
    ("backend queue", "peak of"),
    "backend queue, peak of what it holds",
    ("backend_queue", ""),
    Words(|arm| {
        let limit = u64::from(pool(arm)?.backend_limit?) + 1;
        Some(format!("{} of {limit}", PoolArm::from_arm(arm)?.queue_peak()?))
    }),
);
const DROPS: Column = Column::new(
    ("backend queue", "drops"),
    "drops at the backend",
    ("backend_drops", ""),
    Count(|arm| pool(arm)?.backend_drops),
);
const RECOVERED: Column = Column::new(
    ("", "recovery"),
    "recovery after the stall",
    tidy(&RECOVERY),
    Figure::Time(|arm| Some(value(arm, RECOVERY.name)? * 1e6)),
);

/// The tables, in the order of every report.
pub(super) const TABLES: &[Table] = &[
    Table {
        id: "figures",
        title: "",
        forms: &[Form::Text],
        has: every,
        parts: &[
            &[LOCAL_MEAN, LOCAL_P99, LOCAL_FAILS],
            &[BACKEND_MEAN, BACKEND_FAILS],
            &[BUSY_MEAN, BUSY_EXPECTED, BUSY_EXPECTED_MAX, WORKERS],
            &[RECOVERED],
            &[QUEUE, DROPS],
            &[OK],
        ],
    },
    Table {
        id: "figures",
        title: "",
        forms: &[Form::Page],
        has: every,
        parts: &[&[
            LOCAL_MEAN,
            LOCAL_P50,
            LOCAL_P99,
            LOCAL_MAX,
            LOCAL_PER_S,
            LOCAL_FAILS,
            BACKEND_MEAN,
            BACKEND_P99,
            BACKEND_PER_S,
            BACKEND_FAILS,
            OK,
            ERRORS,
        ]],
    },
    Table {
        id: "workers",
        title: "Workers and the backend's queue",
        forms: &[Form::Page],
        has: |arm| pool(arm).is_some(),
        parts: &[&[
            BUSY_MEAN,
            BUSY_EXPECTED,
            BUSY_EXPECTED_MAX,
            BUSY_PEAK,
            WORKERS,
            QUEUE,
            DROPS,
            RECOVERED,
            ECHO_P50,
        ]],
    },
    Table {
        id: "figures",
        title: "",
        forms: &[Form::Markdown],
        has: every,
        parts: &[&[
            LOCAL_MEAN,
            LOCAL_P99,
            LOCAL_FAILS,
            BACKEND_MEAN,
            BACKEND_FAILS,
            BUSY_MEAN,
            BUSY_EXPECTED,
            BUSY_EXPECTED_MAX,
            WORKERS,
            RECOVERED,
        ]],
    },
];
