//! Which figures stand in the tables of `connect`.
//!
//! All figures of a row are of one population. In an arm of the tour with a queue of 16 the median connect
//! was 1,023 ms and the median first byte 39 ms, of different operations; of the same 59 operations they are
//! 1,004 and 1,015 ms.

use tcptoll_core::experiment::column::{Column, Figure, Form, Quantile, Show, Table};
use tcptoll_core::experiment::columns::{
    CONN_RATE, CONNECT_MEAN_COLUMN, CONNECT_OF_FAILED_P50, ECHO_P50, ERRORS, FIRST_BYTE_P50, OK,
    QUEUE_PEAK, WAITED_SHARE, any_waited, client_cpu, every, waited,
};
use tcptoll_core::experiment::figures::{CONNECT, FIRST_BYTE};
use tcptoll_core::record::{Arm, Summary};

use Figure::{Number, Time};
use Quantile::{Max, P50, P90, P99, P999};

/// Where handshakes waited, p99 is the length of a wait and p90 says whether most did.
fn none_waited(summary: &Summary) -> bool {
    !any_waited(summary)
}

fn answer_is_another(summary: &Summary) -> bool {
    summary.arms.iter().any(|arm| arm.histograms.contains_key(CONNECT.name))
}

fn p90_of_waits(arm: &Arm) -> Option<f64> {
    waited(arm)?;
    let answers = [CONNECT.name, FIRST_BYTE.name];
    answers.iter().find_map(|name| arm.histograms.get(*name))?.p90
}

const fn answer(quantile: Quantile) -> Column {
    Column::answer(quantile).shown(Show::Always)
}

const CPU: &str = "CPU µs/conn";
const CPU_TOTAL: Column =
    Column::new((CPU, "total"), "CPU total µs", ("", "us"), Number(client_cpu, 1.0))
        .or_alone("CPU µs");
const CPU_KERNEL: Column = Column::new(
    (CPU, "kernel"),
    "CPU kernel µs",
    ("", "us"),
    Number(|arm| arm.client.cpu_system_us_per_op, 1.0),
)
.shown(Show::Room);

/// The tables, in the order of every report.
pub(super) const TABLES: &[Table] = &[
    Table {
        id: "figures",
        title: "",
        forms: &[Form::Text],
        has: every,
        parts: &[
            &[
                answer(P50),
                answer(P90).when(any_waited),
                answer(P99),
                answer(P999).when(none_waited),
                answer(Max),
                WAITED_SHARE.shown(Show::Always).when(any_waited),
                FIRST_BYTE_P50.when(answer_is_another),
            ],
            &[CPU_TOTAL, CPU_KERNEL, CONN_RATE, OK],
        ],
    },
    Table {
        id: "figures",
        title: "",
        forms: &[Form::Page],
        has: every,
        parts: &[&[
            answer(P50),
            Column::whole("p90", ("", "us"), Time(p90_of_waits)),
            answer(P99),
            answer(P999),
            answer(Max),
            CONNECT_MEAN_COLUMN.called("mean"),
            FIRST_BYTE_P50,
            ECHO_P50,
            WAITED_SHARE,
            CONNECT_OF_FAILED_P50,
            CONN_RATE,
            CPU_TOTAL,
            CPU_KERNEL,
            QUEUE_PEAK,
            OK,
            ERRORS,
        ]],
    },
];
