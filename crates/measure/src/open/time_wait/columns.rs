//! Which figures stand in the tables of `time-wait`: CPU of connect(2) below and above the step, idle
//! CPU, TIME-WAIT on both hosts, what kept ports available.

use super::supply::Supply;
use super::{
    BUSY_WORKERS, CLIFF_FACTOR, CLIFF_PORTS, CONNECT_CPU_MEAN, CONNECT_CPU_PER_OP, IDLE_SHARE,
    IDLE_SHARE_FIRST, IDLE_SHARE_LAST, PORTS_PEAK, RATE,
};
use tcptoll_core::experiment::column::{Column, Figure, Form, Quantile, Show, Table, value};
use tcptoll_core::experiment::columns::{ERRORS, OK, any_has, every, tidy};
use tcptoll_core::experiment::figures::{CLIENT_TIME_WAIT, SERVER_TIME_WAIT};
use tcptoll_core::experiment::spec::MetricSpec;
use tcptoll_core::record::{Arm, Cliff, PortUse, Summary};

use Figure::{Count, Estimate, Number, Share, Words};

/// What an arm recorded of its use of ports.
pub(super) fn port_use(arm: &Arm) -> Option<&PortUse> {
    arm.own.port_use.as_deref()
}

fn cliff(arm: &Arm) -> Option<Cliff> {
    port_use(arm)?.cliff
}

fn count(arm: &Arm, metric: &MetricSpec) -> Option<u64> {
    value(arm, metric.name).map(|count| count.round() as u64)
}

fn any_cliff(summary: &Summary) -> bool {
    any_has(summary, CLIFF_PORTS.name)
}

const CPU: &str = "connect CPU µs";
const MEAN: Column = Column::new(
    (CPU, "mean"),
    "mean connect CPU",
    tidy(&CONNECT_CPU_MEAN),
    Number(|arm| value(arm, CONNECT_CPU_MEAN.name), 1.0),
)
.or_alone(CPU)
.shown(Show::Always);
const BELOW: Column = Column::new(
    (CPU, "below"),
    "below the cliff, µs",
    ("connect_cpu_us_below", "us"),
    Number(|arm| cliff(arm).map(|cliff| cliff.below_us), 1.0),
);
const ABOVE: Column = Column::new(
    (CPU, "above"),
    "above the cliff, µs",
    ("connect_cpu_us_above", "us"),
    Number(|arm| cliff(arm).map(|cliff| cliff.above_us), 1.0),
);
const AT: Column = Column::new(
    ("cliff at", "ports"),
    "cliff at ports in use",
    tidy(&CLIFF_PORTS),
    Count(|arm| count(arm, &CLIFF_PORTS)),
)
.when(any_cliff);
const EXPECTED: Column = Column::new(
    ("cliff at", "expected"),
    "cliff expected at",
    ("cliff_expected_ports", "ports"),
    Count(|arm| port_use(arm)?.cliff_expected.map(|ports| ports.round() as u64)),
);
const OPS: Column = Column::new(
    ("", "op/s"),
    "operations per second",
    tidy(&RATE),
    Number(|arm| value(arm, RATE.name), 1.0),
)
.flush_right();
const IDLE: Column = Column::new(
    ("CPU idle", "mean"),
    "client CPU idle",
    tidy(&IDLE_SHARE),
    Share(|arm| value(arm, IDLE_SHARE.name)),
)
.or_alone("CPU idle");
const IDLE_FIRST: Column = Column::new(
    ("CPU idle", "start"),
    "client CPU idle at the start",
    tidy(&IDLE_SHARE_FIRST),
    Share(|arm| value(arm, IDLE_SHARE_FIRST.name)),
)
.shown(Show::Room);
const IDLE_LAST: Column = Column::new(
    ("CPU idle", "end"),
    "client CPU idle at the end",
    tidy(&IDLE_SHARE_LAST),
    Share(|arm| value(arm, IDLE_SHARE_LAST.name)),
);
const CLIENT: Column = Column::new(
    ("TIME-WAIT", "client"),
    "TIME-WAIT on the client",
    tidy(&CLIENT_TIME_WAIT),
    Count(|arm| count(arm, &CLIENT_TIME_WAIT)),
);
const SERVER: Column = Column::new(
    ("TIME-WAIT", "server"),
    "TIME-WAIT on the server",
    tidy(&SERVER_TIME_WAIT),
    Count(|arm| count(arm, &SERVER_TIME_WAIT)),
);
const KEPT: Column = Column::new(
    ("", "what keeps ports available"),
    "what keeps ports available",
    ("ports_kept_by", ""),
    Words(|arm| Supply::from_arm(arm).map(|supply| supply.words(arm))),
)
.shown(Show::Always);

/// The tables, in the order of every report.
pub(super) const TABLES: &[Table] = &[
    Table {
        id: "figures",
        title: "",
        forms: &[Form::Text],
        has: every,
        parts: &[
            &[MEAN, BELOW, ABOVE, AT, EXPECTED],
            &[OPS, IDLE_FIRST, IDLE, IDLE_LAST, OK],
            &[CLIENT, SERVER, KEPT],
        ],
    },
    Table {
        id: "figures",
        title: "",
        forms: &[Form::Page, Form::Markdown],
        has: every,
        parts: &[&[
            Column::whole("connect CPU per operation", tidy(&CONNECT_CPU_PER_OP), Estimate("us")),
            Column::answer(Quantile::P50),
            Column::answer(Quantile::P99),
            BELOW,
            ABOVE,
            Column::whole(
                "factor",
                tidy(&CLIFF_FACTOR),
                Number(|arm| value(arm, CLIFF_FACTOR.name), 1.0),
            ),
            AT,
            EXPECTED,
            OPS,
            IDLE_FIRST,
            IDLE,
            IDLE_LAST,
            Column::whole(
                "busy workers",
                tidy(&BUSY_WORKERS),
                Number(|arm| value(arm, BUSY_WORKERS.name), 1.0),
            ),
            CLIENT,
            SERVER,
            Column::whole(
                "peak of ports in use",
                tidy(&PORTS_PEAK),
                Count(|arm| count(arm, &PORTS_PEAK)),
            ),
            KEPT,
            OK,
            ERRORS,
        ]],
    },
];
