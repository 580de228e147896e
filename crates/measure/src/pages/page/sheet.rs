//! Tables and pictures of `page`: times, connections, what was expected. Its pictures are the waterfall of each
//! arm's median load, with the forecast beside, and the document's rule beside what was saved.

use tcptoll_core::experiment::column::{Column, Figure, Quantile, Table, value};
use tcptoll_core::experiment::columns::{ECHO_P50, ERRORS, OK, figures, tidy};
use tcptoll_core::experiment::figures::FIRST_BYTE_MEAN;
use tcptoll_core::sheet::Room;
use tcptoll_show::run::{NONE, Own};

use super::{
    BLOCKING, CONNECTIONS, CRITICAL_HANDSHAKES, EVERYTHING, FORECAST, GAPS, HELD, LOAD_EVENT,
    NEXT_CONNECTIONS, NEXT_PAGE, REQUESTS, RETRANSMISSIONS, SPAN, SPAN_MEAN, pictures,
};

use Figure::{Estimate, Number};
use Quantile::{Max, P50};

const SPAN_GROUP: &str = "network span";
const MEDIAN: Column =
    Column::quantile((SPAN_GROUP, "p50"), "network span p50", SPAN.name, P50).shown(Room::Always);
const LONGEST: Column = Column::quantile((SPAN_GROUP, "max"), "network span max", SPAN.name, Max);
const MEAN: Column = Column::new(
    (SPAN_GROUP, "mean"),
    "network span mean",
    tidy(&SPAN_MEAN),
    Estimate(SPAN_MEAN.unit),
);
const EXPECTED: Column = Column::new(
    (SPAN_GROUP, "forecast"),
    "network span forecast",
    tidy(&FORECAST),
    Estimate(FORECAST.unit),
);
const TIME_TO: &str = "time to";
const FIRST: Column = Column::new(
    (TIME_TO, "first byte"),
    "time to first byte",
    tidy(&FIRST_BYTE_MEAN),
    Estimate(FIRST_BYTE_MEAN.unit),
);
const BLOCKED: Column = Column::new(
    (TIME_TO, "blocking"),
    "time to the last blocking resource",
    tidy(&BLOCKING),
    Estimate(BLOCKING.unit),
);
const ALL: Column = Column::new(
    (TIME_TO, "all"),
    "time to the last resource",
    tidy(&EVERYTHING),
    Estimate(EVERYTHING.unit),
);
const EVENT: Column = Column::new(
    (TIME_TO, "load event"),
    "time to the load event",
    tidy(&LOAD_EVENT),
    Estimate(LOAD_EVENT.unit),
);
const CONNECTIONS_GROUP: &str = "connections";
const OPENED: Column = Column::new(
    (CONNECTIONS_GROUP, "opened"),
    "connections opened",
    tidy(&CONNECTIONS),
    Number(|arm| value(arm, CONNECTIONS.name), 1.0),
);
const CRITICAL: Column = Column::new(
    (CONNECTIONS_GROUP, "critical"),
    "handshakes on the critical path",
    tidy(&CRITICAL_HANDSHAKES),
    Number(|arm| value(arm, CRITICAL_HANDSHAKES.name), 1.0),
);
const ASKED: Column = Column::new(
    ("", "requests"),
    "requests",
    tidy(&REQUESTS),
    Number(|arm| value(arm, REQUESTS.name), 1.0),
);
const NEXT: &str = "next page";
const NEXT_TIME: Column =
    Column::new((NEXT, "time"), "next page", tidy(&NEXT_PAGE), Estimate(NEXT_PAGE.unit));
const NEXT_OPENED: Column = Column::new(
    (NEXT, "connections"),
    "connections opened for the next page",
    tidy(&NEXT_CONNECTIONS),
    Number(|arm| value(arm, NEXT_CONNECTIONS.name), 1.0),
);
const LOSS: &str = "per load";
const AGAIN: Column = Column::new(
    (LOSS, "retransmitted"),
    "retransmissions",
    tidy(&RETRANSMISSIONS),
    Number(|arm| value(arm, RETRANSMISSIONS.name).filter(|count| *count > 0.0), 1.0),
);
const BEHIND: Column = Column::new(
    (LOSS, "gaps"),
    "gaps that blocked later data",
    tidy(&GAPS),
    Number(|arm| value(arm, GAPS.name).filter(|count| *count > 0.0), 1.0),
);
const WAITED: Column = Column::new(
    (LOSS, "waited for them"),
    "head-of-line blocking time",
    tidy(&HELD),
    Figure::Time(|arm| value(arm, HELD.name).filter(|time| *time > 0.0)),
);

/// The tables, in the order of every report.
pub(super) const TABLES: &[Table] = &[figures(&[
    &[MEDIAN, LONGEST, MEAN.shown(Room::Page), EXPECTED],
    &[OPENED, CRITICAL],
    &[FIRST, BLOCKED, ALL, EVENT],
    &[NEXT_TIME, NEXT_OPENED],
    &[AGAIN, BEHIND.shown(Room::Page), WAITED],
    &[ASKED, OK, ERRORS],
    &[ECHO_P50.shown(Room::Page)],
])];

pub(crate) const OWN: Own =
    Own { text_after: pictures::blocks, sections: pictures::sections, ..NONE };
