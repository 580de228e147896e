//! What died, when that was detected, and what that took.

use super::super::ARRIVAL;
use super::{AFTER, deaths, detection_s};
use tcptoll_core::experiment::column::{Column, Figure};

use Figure::{Count, Number, Own, Words};

const DUE: &str = "expected within, s";
const WRONG: &str = "wrongly closed";
const SPENT: &str = "traffic after fault";

/// The fault, and how many it hit.
pub(super) const FAULT: &[Column] = &[
    Column::new(
        ("", "fault"),
        "fault",
        ("fault", ""),
        Words(|arm| Some(deaths(arm)?.fault.clone())),
    ),
    Column::new(("", "dead"), "dead", ("dead", ""), Count(|arm| deaths(arm).map(|d| d.dead))),
    Column::new(
        ("", "detected"),
        "detected",
        ("dead_known", ""),
        Count(|arm| deaths(arm).map(|d| d.known)),
    ),
];

/// Median time until a death was detected.
pub(super) const MEDIAN: Column = Column::new(
    (AFTER, "median"),
    "detected after, s: median",
    ("known_after_s_median", "s"),
    Number(|arm| detection_s(arm)[1], 1.0),
);
/// Longest time until a death was detected.
pub(super) const LAST: Column = Column::new(
    (AFTER, "max"),
    "detected after, s: max",
    ("known_after_s_max", "s"),
    Number(|arm| detection_s(arm)[2], 1.0),
);

/// When deaths were detected.
pub(super) const KNOWN: &[Column] = &[
    Column::new(
        (AFTER, "min"),
        "detected after, s: min",
        ("known_after_s_min", "s"),
        Number(|arm| detection_s(arm)[0], 1.0),
    ),
    MEDIAN,
    LAST,
];

/// When they had to be.
pub(super) const DUE_AFTER: &[Column] = &[
    Column::new(
        (DUE, "bound"),
        "computed bound, s",
        ("bound_s", "s"),
        Number(|arm| deaths(arm)?.bound_s, 1.0),
    ),
    Column::new(
        (DUE, "+ timers"),
        "granularity of timers, s",
        ("granularity_s", "s"),
        Number(|arm| deaths(arm)?.granularity_s, 1.0),
    ),
    Column::new(
        ("", "late"),
        "late",
        ("known_late", ""),
        // Without a bound nothing can be late.
        Count(|arm| deaths(arm).filter(|d| d.bound_s.is_some()).map(|d| d.late)),
    ),
];

/// Connections that lived.
pub(super) const ALIVE: &[Column] = &[
    Column::new(("", "alive"), "alive", ("alive", ""), Count(|arm| deaths(arm).map(|d| d.alive))),
    Column::new(
        (WRONG, "number"),
        "wrongly closed",
        ("wrongly_closed", ""),
        Count(|arm| deaths(arm).map(|d| d.wrongly_closed)),
    ),
    Column::new(
        (WRONG, "expected"),
        "wrongly closed: expected [99 of 100 runs]",
        ("wrongly_closed_expected", ""),
        Own,
    ),
];

/// Packets of faulted connections, from the fault on.
pub(super) const SPENT_ON: &[Column] = &[
    Column::new(
        (SPENT, "packets"),
        "packets after the fault",
        ("stricken_packets", ""),
        Count(|arm| Some(deaths(arm)?.traffic?.packets)),
    ),
    Column::new(
        (SPENT, "/conn"),
        "packets per faulted connection",
        ("packets_per_stricken", ""),
        Number(
            |arm| {
                let deaths = deaths(arm)?;
                let spent = deaths.traffic?.packets as f64;
                (deaths.stricken > 0).then(|| spent / deaths.stricken as f64)
            },
            1.0,
        ),
    ),
    Column::new(
        (SPENT, "KiB"),
        "KiB after the fault",
        ("stricken_bytes", "bytes"),
        Number(|arm| Some(deaths(arm)?.traffic?.bytes as f64), 1.0 / 1_024.0),
    ),
];

/// New connections that found no place.
pub(super) const ARRIVALS: &[Column] = &[
    Column::new(
        ("new connections", "no place"),
        "new connections without a place",
        ("arrivals_without_room", ""),
        Count(|arm| deaths(arm).map(|d| d.arrivals).filter(|n| *n > 0)),
    ),
    Column::new(
        ("new connections", "waited, s"),
        "new connections: longest wait, s",
        ("arrival_s_max", "s"),
        Number(|arm| arm.histograms.get(ARRIVAL.name)?.max, 1e-6),
    ),
];

/// How deaths were detected; on a terminal, sentences state that.
pub(super) const MORE: &[Column] = &[
    Column::new(
        ("", "faulted"),
        "faulted",
        ("stricken", ""),
        Count(|arm| deaths(arm).map(|d| d.stricken)),
    ),
    Column::new(("", "detected by"), "detected by", ("known_by", ""), Own),
    Column::new(("", "read(2)"), "read(2) returned", ("read_said", ""), Own),
];
