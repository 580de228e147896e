//! Which figures stand in the tables of `visitors`: page times, workers, connections.

use super::{
    CONNECTIONS, FIRST_PAGE_MEAN, NEXT_PAGE_MEAN, PAGE, PAGE_MEAN, PAGE_P95, PAGES_RATE,
    WORKERS_BUSY, WORKERS_BUSY_PEAK, WORKERS_KEPT,
};
use tcptoll_core::experiment::column::{Column, Figure, Form, Quantile, Show, Table, value};
use tcptoll_core::experiment::columns::{ECHO_P50, ERRORS, OK, QUEUE_PEAK, every, tidy};
use tcptoll_core::record::{Arm, SiteVisits};

use Figure::{Count, Estimate, Number};
use Quantile::{Max, P50};

fn visits(arm: &Arm) -> Option<&SiteVisits> {
    arm.own.site_visits.as_deref()
}

/// Absent where an idle connection holds no worker.
fn workers_expected(visits: &SiteVisits) -> Option<f64> {
    visits.held_expected.filter(|_| !visits.idle_is_free)
}

const TIME: &str = "page time";
const MEAN: Column =
    Column::new((TIME, "mean"), "page time, mean", tidy(&PAGE_MEAN), Estimate(PAGE_MEAN.unit))
        .shown(Show::Always);
const MEDIAN: Column = Column::quantile((TIME, "p50"), "page time p50", PAGE.name, P50);
const P95: Column =
    Column::new((TIME, "p95"), "page time p95", tidy(&PAGE_P95), Estimate(PAGE_P95.unit));
const LONGEST: Column = Column::quantile((TIME, "max"), "page time max", PAGE.name, Max);
const FIRST: Column = Column::new(
    (TIME, "first"),
    "time of first pages",
    tidy(&FIRST_PAGE_MEAN),
    Estimate(FIRST_PAGE_MEAN.unit),
);
const NEXT: Column = Column::new(
    (TIME, "later"),
    "time of later pages",
    tidy(&NEXT_PAGE_MEAN),
    Estimate(NEXT_PAGE_MEAN.unit),
);
const WORKERS: &str = "workers";
const BUSY: Column = Column::new(
    (WORKERS, "held"),
    "workers that hold a connection",
    tidy(&WORKERS_BUSY),
    Number(|arm| value(arm, WORKERS_BUSY.name), 1.0),
);
const EXPECTED: Column = Column::new(
    (WORKERS, "expected"),
    "expected workers that hold a connection",
    ("held_expected", "workers"),
    Number(|arm| workers_expected(visits(arm)?), 1.0),
);
const PEAK: Column = Column::new(
    (WORKERS, "peak"),
    "peak of workers that hold a connection",
    tidy(&WORKERS_BUSY_PEAK),
    Number(|arm| value(arm, WORKERS_BUSY_PEAK.name), 1.0),
);
const LIMIT: Column = Column::new(
    (WORKERS, "limit"),
    "maximum number of workers",
    ("workers_limit", "workers"),
    // Of a server that is not ours it is not known.
    Count(|arm| Some(visits(arm)?.workers).filter(|workers| *workers > 0)),
);
const KEPT: Column = Column::new(
    (WORKERS, "idle"),
    "open idle connections",
    tidy(&WORKERS_KEPT),
    Number(|arm| value(arm, WORKERS_KEPT.name), 1.0),
);
const OPENED: Column = Column::new(
    ("", "connections per page"),
    "connections per page",
    tidy(&CONNECTIONS),
    Number(|arm| value(arm, CONNECTIONS.name), 1.0),
);
const MEMORY: Column = Column::new(
    ("memory MiB", "peak"),
    "peak memory of the server, MiB",
    ("server_memory_peak", "MiB"),
    Number(|arm| Some(arm.server.as_ref()?.memory_bytes? as f64), MIB),
);
const KILLED: Column = Column::new(
    ("memory MiB", "killed"),
    "processes killed for lack of memory",
    ("memory_kills", "processes"),
    Count(|arm| Some(visits(arm)?.memory_limit.as_ref()?.kills)),
);
const MIB: f64 = 1.0 / (1 << 20) as f64;
const RATE: Column =
    Column::new(("", "pages/s"), "pages per second", tidy(&PAGES_RATE), Estimate(""));

/// The tables, in the order of every report.
pub(super) const TABLES: &[Table] = &[
    Table {
        id: "figures",
        title: "",
        forms: &[Form::Text],
        has: every,
        parts: &[
            &[MEAN, P95, LONGEST, FIRST, NEXT],
            &[BUSY, EXPECTED, PEAK, LIMIT, KEPT],
            &[OPENED, RATE, QUEUE_PEAK],
            &[MEMORY, KILLED, OK],
        ],
    },
    Table {
        id: "figures",
        title: "",
        forms: &[Form::Page],
        has: every,
        parts: &[&[
            MEAN, MEDIAN, P95, LONGEST, FIRST, NEXT, BUSY, EXPECTED, PEAK, LIMIT, KEPT, MEMORY,
            KILLED, OPENED, RATE, QUEUE_PEAK, OK, ERRORS, ECHO_P50,
        ]],
    },
    Table {
        id: "figures",
        title: "",
        forms: &[Form::Markdown],
        has: every,
        parts: &[&[MEAN, P95, BUSY, EXPECTED, PEAK, LIMIT, MEMORY, OPENED, OK]],
    },
];
