//! Figures of `time-wait`: CPU of connect(2) below and above the step, idle CPU, TIME-WAIT on both hosts, what
//! kept local ports available; and the curve on a terminal, with a mark where the cliff was expected.
//!
//! What kept ports available, or when they ran out, follows from what was counted.

use tcptoll_core::experiment::column::{Column, Figure, Quantile, Table, value};
use tcptoll_core::experiment::columns::{ERRORS, OK, any_has, figures, tidy};
use tcptoll_core::experiment::figures::{CLIENT_TIME_WAIT, SERVER_TIME_WAIT};
use tcptoll_core::experiment::spec::MetricSpec;
use tcptoll_core::number;
use tcptoll_core::record::{Arm, Cliff, PortUse, Summary};
use tcptoll_core::sheet::{Part, Room, Tone};
use tcptoll_show::clean;
use tcptoll_show::run::Section;
use tcptoll_show::run::{Failed, Picture};
use tcptoll_show::run::{NONE, Own, Run};

use super::pictures;
use super::pictures::port_use;
use super::{
    BUSY_WORKERS, CLIFF_FACTOR, CLIFF_PORTS, CONNECT_CPU_MEAN, CONNECT_CPU_PER_OP, IDLE_SHARE,
    IDLE_SHARE_FIRST, IDLE_SHARE_LAST, PORTS_PEAK, RATE,
};

use Figure::{Count, Estimate, Number, Share, Words};

/// What an arm recorded of its use of ports.
pub(super) fn recorded(arm: &Arm) -> Option<&PortUse> {
    arm.own.port_use.as_deref()
}

fn cliff(arm: &Arm) -> Option<Cliff> {
    recorded(arm)?.cliff
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
    "mean connect CPU, µs",
    tidy(&CONNECT_CPU_MEAN),
    Number(|arm| value(arm, CONNECT_CPU_MEAN.name), 1.0),
)
.shown(Room::Always);
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
    Count(|arm| recorded(arm)?.cliff_expected.map(|ports| ports.round() as u64)),
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
);
const IDLE_FIRST: Column = Column::new(
    ("CPU idle", "start"),
    "client CPU idle at the start",
    tidy(&IDLE_SHARE_FIRST),
    Share(|arm| value(arm, IDLE_SHARE_FIRST.name)),
)
.shown(Room::Wide);
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
.shown(Room::Always);

/// The tables, in the order of every report.
pub(super) const TABLES: &[Table] = &[figures(&[
    &[
        MEAN,
        Column::whole("connect CPU per operation", tidy(&CONNECT_CPU_PER_OP), Estimate("us")),
        BELOW,
        ABOVE,
        Column::whole(
            "factor",
            tidy(&CLIFF_FACTOR),
            Number(|arm| value(arm, CLIFF_FACTOR.name), 1.0),
        ),
        AT,
        EXPECTED,
    ],
    &[
        Column::answer(Quantile::P50).shown(Room::Page),
        Column::answer(Quantile::P99).shown(Room::Page),
    ],
    &[
        OPS,
        IDLE_FIRST,
        IDLE,
        IDLE_LAST,
        Column::whole(
            "busy workers",
            tidy(&BUSY_WORKERS),
            Number(|arm| value(arm, BUSY_WORKERS.name), 1.0),
        ),
        OK,
        ERRORS,
    ],
    &[
        CLIENT,
        SERVER,
        Column::whole(
            "peak of ports in use",
            tidy(&PORTS_PEAK),
            Count(|arm| count(arm, &PORTS_PEAK)),
        ),
        KEPT,
    ],
])];

/// With fewer connections than this share of the operations, connections are long-lived.
const LONG_LIVED: f64 = 0.1;

/// What kept ports available.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Supply {
    /// Nothing: calls failed for want of a port, the first one after this time, s.
    RanOut(Option<f64>),
    /// Connections were kept open: this number of them.
    LongLived(u64),
    /// `net.ipv4.tcp_tw_reuse`: this number of ports was taken over from TIME-WAIT.
    Reused(u64),
    /// `net.ipv4.tcp_max_tw_buckets`: this number of connections ended without TIME-WAIT.
    Ended(u64),
    /// The server closes first: this number of sockets is in TIME-WAIT there.
    ServerKeeps(u64),
    /// The run ended before: ports that were left.
    Left(u64),
}

impl Supply {
    /// Of an arm; `None` if it did not record its use of ports, or if nothing is known.
    pub(super) fn from_arm(arm: &Arm) -> Option<Self> {
        let used = arm.own.port_use.as_deref().filter(|_| arm.failure.is_none())?;
        if arm.errors.get("local-ports").is_some_and(|count| *count > 0) {
            return Some(Self::RanOut(first_failure_s(used)));
        }
        let connections = arm.connections_ok?;
        if (connections as f64) < arm.ok as f64 * LONG_LIVED {
            return Some(Self::LongLived(connections));
        }
        if used.time_wait_reused > 0 {
            return Some(Self::Reused(used.time_wait_reused));
        }
        if used.time_wait_overflows > 0 {
            return Some(Self::Ended(used.time_wait_overflows));
        }
        if used.server_time_wait > used.client_time_wait {
            return Some(Self::ServerKeeps(used.server_time_wait));
        }
        let all = arm.ports.as_ref()?.at_once;
        all.checked_sub(used.client_time_wait).map(Self::Left)
    }

    /// A clause: `server closes first: 2,000 in TIME-WAIT there`.
    pub(super) fn words(self, arm: &Arm) -> String {
        let expected = arm.own.port_use.as_ref().and_then(|used| used.lasts_expected_s);
        match self {
            Self::RanOut(after) => {
                let after = after.map_or_else(String::new, |s| format!(" after {s:.1} s"));
                let expected =
                    expected.map_or_else(String::new, |s| format!(" (expected {s:.1} s)"));
                format!("nothing: used up{after}{expected}")
            }
            Self::LongLived(connections) => format!(
                "long-lived: {} connections for {} operations",
                number::count(connections),
                number::count(arm.ok)
            ),
            Self::Reused(ports) => {
                format!("tcp_tw_reuse: {} ports reused", number::count(ports))
            }
            Self::Ended(sockets) => {
                format!("tcp_max_tw_buckets: {} without TIME-WAIT", number::count(sockets))
            }
            Self::ServerKeeps(sockets) => {
                format!("server closes first: {} in TIME-WAIT there", number::count(sockets))
            }
            Self::Left(ports) => {
                let expected =
                    expected.map_or_else(String::new, |s| format!(", expected to last {s:.1} s"));
                format!("not used up: {} left{expected}", number::count(ports))
            }
        }
    }
}

/// When the first call found no port, s.
fn first_failure_s(used: &PortUse) -> Option<f64> {
    let failed = used.failed_per_s.points.iter().find(|[_, _, mean, _]| *mean > 0.0);
    failed.map(|[at, ..]| *at)
}

pub(crate) const OWN: Own =
    Own { forecasts, failed: Some(failed), counted, text_after: blocks, picture, sections, ..NONE };

/// Forecasts that are told apart; more would push the answer off the screen.
const FORECASTS: usize = 3;

fn failed(Failed { failed, tried }: Failed) -> String {
    let [bad, all, good] = [failed, tried, tried - failed].map(number::count);
    format!(
        "{bad} of {all} operations failed. CPU of connect(2) covers all calls, latencies only the {good} that succeeded."
    )
}

/// What was computed before the run, one line for all arms that share one.
fn forecasts(arms: &[Arm]) -> Vec<String> {
    let mut lines: Vec<(String, Vec<&str>)> = Vec::new();
    for arm in arms {
        let Some(text) = forecast(arm) else { continue };
        match lines.iter_mut().find(|(known, _)| *known == text) {
            Some((_, names)) => names.push(&arm.name),
            None => lines.push((text, vec![&arm.name])),
        }
    }
    let alone = lines.len() == 1;
    let line = |(text, names): &(String, Vec<&str>)| {
        let more =
            if names.len() > 1 { format!(" and {} more", names.len() - 1) } else { String::new() };
        if alone {
            format!("expected: {text}")
        } else {
            format!("expected, {}{more}: {text}", names[0])
        }
    };
    lines.iter().take(FORECASTS).map(line).collect()
}

/// Where connect(2) is to become slow, and how long the ports are to last.
fn forecast(arm: &Arm) -> Option<String> {
    let used = port_use(arm)?;
    let free = arm.ports.as_ref()?.at_once.saturating_sub(used.held_ports);
    let which = if used.held_ports > 0 { "free ports" } else { "ports" };
    let slow = |at| format!("connect(2) slows down beyond {} ports in use", number::fixed(at, 0));
    let cliff = used.cliff_expected.map(slow);
    let lasts = used
        .lasts_expected_s
        .map(|s| format!("{} {which} last {s:.1} s at this rate", number::count(free)));
    let parts: Vec<String> = cliff.into_iter().chain(lasts).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// What an arm counted, for the page.
fn counted(arm: &Arm) -> Vec<[String; 2]> {
    let Some(used) = port_use(arm) else { return Vec::new() };
    let mut rows = vec![
        ["local ports held before the measurement".to_owned(), number::count(used.held_ports)],
        [
            "ports reused from TIME-WAIT (TcpExtTWRecycled)".to_owned(),
            number::count(used.time_wait_reused),
        ],
        [
            "connections ended without TIME-WAIT (TcpExtTCPTimeWaitOverflow)".to_owned(),
            number::count(used.time_wait_overflows),
        ],
    ];
    if let Some(ports) = &arm.ports {
        rows.push(["port forecast".to_owned(), ports.text.clone()]);
    }
    rows.extend(
        Supply::from_arm(arm)
            .map(|supply| ["why ports stay available".to_owned(), supply.words(arm)]),
    );
    rows
}

fn picture(summary: &Run) -> Option<Picture> {
    pictures::curve(summary).or_else(|| pictures::over_time(summary))
}

fn sections(summary: &Run) -> Vec<Section> {
    let over_time = pictures::over_time(summary).filter(|_| pictures::curve(summary).is_some());
    let parts = |one: Option<Picture>| one.map(|one| one.part(summary)).into_iter().collect();
    vec![
        Section::led("Cost by ports in use", Vec::new()),
        Section::new("Idle CPU by rate", parts(pictures::idle(summary))),
        Section::new("Over time", parts(over_time)),
    ]
}

/// Most arms that have a line.
const ARMS: usize = 6;

/// Most columns of a line of bars; room for a name and for the figures is kept beside it.
const BARS: usize = 36;

/// Most columns of a name.
const NAME: usize = 20;

/// Columns of the figures behind the bars: ` 7.10 µs to 1.24 ms`.
const FIGURES: usize = 22;

const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// An arm that has a curve.
struct Bars<'a> {
    name: String,
    used: &'a PortUse,
}

/// What the terminal shows after the figures.
pub(super) fn blocks(summary: &Run, width: usize) -> Vec<Part> {
    let drawn = |arm: &Arm| port_use(arm).is_some_and(|used| costs(used).count() > 1);
    let arms: Vec<&Arm> = summary.arms.iter().filter(|arm| drawn(arm)).take(ARMS).collect();
    let names: Vec<&str> = arms.iter().map(|arm| arm.name.as_str()).collect();
    let names = clean::shorten_all(&names, NAME);
    let lines: Vec<Bars<'_>> = arms
        .iter()
        .zip(names)
        .filter_map(|(arm, name)| Some(Bars { name, used: port_use(arm)? }))
        .collect();
    let room = lines.iter().map(|line| clean::columns(&line.name)).max().unwrap_or(0);
    let bars = width.saturating_sub(room + FIGURES + 4).min(BARS);
    let all = || lines.iter().flat_map(|line| costs(line.used));
    let most_ports = all().map(|(ports, _)| ports).fold(0.0, f64::max);
    let least = all().map(|(_, cost)| cost).fold(f64::INFINITY, f64::min);
    let most = all().map(|(_, cost)| cost).fold(0.0, f64::max);
    if lines.is_empty() || bars < 12 || most_ports <= 0.0 || least <= 0.0 {
        return Vec::new();
    }
    let heading = format!(
        "CPU of connect(2), from 0 to {} ports in use (log scale{})",
        number::fixed(most_ports, 0),
        if lines.iter().any(|line| line.used.cliff_expected.is_some()) {
            "; ^ expected cliff"
        } else {
            ""
        }
    );
    let mut blocks = vec![Part::Blank, Part::pieces(vec![(Tone::Dim, heading)])];
    for Bars { name, used } in &lines {
        let cells = cells(used, bars, most_ports, [least, most]);
        let range = costs(used).map(|(_, cost)| cost);
        let (low, high) = range
            .fold((f64::INFINITY, 0.0_f64), |(low, high), cost| (low.min(cost), high.max(cost)));
        let pad = " ".repeat(room.saturating_sub(clean::columns(name)));
        blocks.push(Part::pieces(vec![
            (Tone::Plain, format!("  {name}{pad}  ")),
            (Tone::Strong, cells),
            (Tone::Plain, format!(" {} to {}", number::time(low), number::time(high))),
        ]));
        let column = used
            .cliff_expected
            .filter(|at| *at <= most_ports)
            .map(|at| column(at, bars, most_ports));
        if let Some(column) = column {
            let blanks = " ".repeat(room + 4 + column);
            blocks.push(Part::pieces(vec![(Tone::Dim, format!("{blanks}^"))]));
        }
    }
    blocks
}

/// Ports in use and cost of each point that has a connection.
fn costs(used: &PortUse) -> impl Iterator<Item = (f64, f64)> {
    let points =
        used.curve.iter().filter(|point| point.connections > 0 && point.connect_cpu_us > 0.0);
    points.map(|point| (point.ports, point.connect_cpu_us))
}

/// The column of a number of ports.
fn column(at: f64, bars: usize, most: f64) -> usize {
    ((at / most * bars as f64) as usize).min(bars - 1)
}

/// A bar per column: the mean of the logarithms of its points; a blank without any.
fn cells(used: &PortUse, bars: usize, most_ports: f64, [least, most]: [f64; 2]) -> String {
    let mut sums = vec![(0.0, 0_u32); bars];
    for (ports, cost) in costs(used) {
        let (sum, count) = &mut sums[column(ports, bars, most_ports)];
        (*sum, *count) = (*sum + cost.ln(), *count + 1);
    }
    let span = (most / least).ln();
    let cell = |(sum, count): (f64, u32)| {
        if count == 0 {
            return ' ';
        }
        let share = if span > 0.0 { (sum / f64::from(count) - least.ln()) / span } else { 0.0 };
        LEVELS[(share.clamp(0.0, 1.0) * 7.0).round() as usize]
    };
    sums.into_iter().map(cell).collect()
}

#[cfg(test)]
mod tests {
    use tcptoll_core::record::{Metric, PortPoint};
    use tcptoll_core::stats::Series;
    use tcptoll_core::tcp::ports::PortForecast;

    use super::*;
    use crate::experiments::REPORTS;

    fn supplied(used: PortUse) -> Arm {
        let ports = PortForecast { at_once: 28_232, ..PortForecast::default() };
        let own = Box::new(used).into();
        Arm { ok: 1_000, connections_ok: Some(1_000), ports: Some(ports), own, ..Arm::default() }
    }

    #[test]
    fn what_was_counted_says_what_kept_ports_available() {
        let words = |used: PortUse| {
            let arm = supplied(used);
            Supply::from_arm(&arm).unwrap().words(&arm)
        };
        let reused =
            PortUse { time_wait_reused: 7_000, client_time_wait: 2_000, ..PortUse::default() };
        assert_eq!(words(reused), "tcp_tw_reuse: 7,000 ports reused");
        let server = PortUse { server_time_wait: 1_000, ..PortUse::default() };
        assert_eq!(words(server), "server closes first: 1,000 in TIME-WAIT there");
        let ended =
            PortUse { time_wait_overflows: 900, client_time_wait: 100, ..PortUse::default() };
        assert_eq!(words(ended), "tcp_max_tw_buckets: 900 without TIME-WAIT");
        let left = PortUse {
            client_time_wait: 28_000,
            lasts_expected_s: Some(14.116),
            ..PortUse::default()
        };
        assert_eq!(words(left), "not used up: 232 left, expected to last 14.1 s");
    }

    #[test]
    fn ports_that_ran_out_did_so_when_the_first_call_failed() {
        let failed_per_s = Series {
            points: vec![[0.0, 0.0, 0.0, 0.0], [14.2, 0.0, 3.0, 9.0], [14.4, 9.0, 9.0, 9.0]],
        };
        let lasts_expected_s = Some(14.116);
        let mut arm = supplied(PortUse { lasts_expected_s, failed_per_s, ..PortUse::default() });
        arm.errors.insert("local-ports".into(), 12);
        let supply = Supply::from_arm(&arm).unwrap();
        assert_eq!(supply, Supply::RanOut(Some(14.2)));
        assert_eq!(supply.words(&arm), "nothing: used up after 14.2 s (expected 14.1 s)");
    }

    #[test]
    fn few_connections_for_many_operations_are_long_lived() {
        let mut arm = supplied(PortUse::default());
        arm.connections_ok = Some(4);
        assert_eq!(Supply::from_arm(&arm), Some(Supply::LongLived(4)));
        assert_eq!(Supply::from_arm(&Arm::default()), None);
    }

    fn point(ports: f64, connect_cpu_us: f64) -> PortPoint {
        PortPoint { ports, connections: 100, connect_cpu_us, connect_us: 90.0, failed: 0 }
    }

    fn arm(name: &str, step: bool) -> Arm {
        let cost = |at: u32| if step && at > 50 { 840.0 } else { 7.0 };
        let series = |from: f64, to: f64| Series {
            points: vec![[0.0, from, from, from], [7.0, to, to, to], [15.0, to, to, to]],
        };
        let used = PortUse {
            curve: (0..=100).map(|at| point(f64::from(at) * 282.0, cost(at))).collect(),
            cliff_expected: Some(if step { 14_116.0 } else { 28_232.0 }),
            lasts_expected_s: step.then_some(14.116),
            cliff: step.then_some(Cliff { at_ports: 14_241.0, below_us: 7.0, above_us: 840.0 }),
            idle_share: Some(series(0.7, if step { 0.0 } else { 0.7 })),
            busy_workers: Some(series(0.6, if step { 4.0 } else { 0.6 })),
            rate_per_s: series(2_000.0, 1_000.0),
            failed_per_s: series(0.0, 0.0),
            ports_in_use: series(0.0, 28_000.0),
            ..PortUse::default()
        };
        let metric = |value| Metric { value, unit: String::new(), ci95: None, median: None, n: 1 };
        Arm {
            name: name.into(),
            ok: 100,
            attempts: 100,
            connections_ok: Some(100),
            ports: Some(PortForecast { at_once: 28_232, sources: 1, ..PortForecast::default() }),
            metrics: [
                (IDLE_SHARE.name.to_owned(), metric(if step { 0.3 } else { 0.7 })),
                ("operations_per_s".to_owned(), metric(if step { 1_000.0 } else { 2_000.0 })),
            ]
            .into(),
            own: Box::new(used).into(),
            ..Arm::default()
        }
    }

    fn summary(arms: Vec<Arm>) -> Run {
        let experiment = "time-wait".to_owned();
        REPORTS.run(Summary { arms, experiment, ..Summary::default() })
    }

    #[test]
    fn the_curve_has_a_line_per_arm_and_marks_the_expected_cliff() {
        let shown = pictures::curve(&summary(vec![arm("one", true), arm("two", false)])).unwrap();
        assert_eq!(shown.drawn, [0, 1]);
        assert!(
            shown.svg.to_string().contains("expected: 14,116")
                && shown.svg.to_string().contains("expected: 28,232")
        );
        assert!(shown.svg.to_string().contains("cliff found at 14,241 ports in use"));
        assert_eq!(
            shown.caption,
            "one: connect(2) rises from 7.00 µs to 840 µs of CPU (120 times) at 14,241 ports in use \
             (circle), 0.9 % from the expected number. Without a step: two."
        );
    }

    #[test]
    fn over_time_failures_are_drawn_only_where_there_are_any() {
        let quiet = summary(vec![arm("one", true)]);
        let shown = pictures::over_time(&quiet).unwrap();
        assert!(!shown.svg.to_string().contains("found no port"));
        assert!(shown.svg.to_string().contains("ports expected to last 14.1 s at this rate"));
        assert_eq!(
            shown.caption,
            "one: idle CPU falls from 70 % to 0 %. Dashed: the ports of one are expected to run out after \
             14.1 s."
        );
        let mut short = arm("one", true);
        let used = short.own.port_use.as_mut().unwrap();
        used.failed_per_s.points[2] = [15.0, 900.0, 950.0, 1_000.0];
        assert!(
            pictures::over_time(&summary(vec![short]))
                .unwrap()
                .svg
                .to_string()
                .contains("found no port")
        );
    }

    #[test]
    fn idle_cpu_by_rate_needs_two_arms() {
        assert!(pictures::idle(&summary(vec![arm("one", true)])).is_none());
        let shown = pictures::idle(&summary(vec![arm("one", true), arm("two", false)])).unwrap();
        let says = "Idle CPU ranges from 30 % at 1,000/s (one) to 70 % at 2,000/s (two).";
        assert_eq!(shown.caption, says);
    }

    #[test]
    fn the_terminal_has_a_line_of_bars_within_its_width() {
        let told = summary(vec![arm("one", true), arm("two", false)]);
        for width in [60, 80, 120] {
            let blocks = blocks(&told, width);
            let lines: Vec<String> = blocks
                .iter()
                .filter_map(|block| match block {
                    Part::Line { pieces } => {
                        Some(pieces.iter().map(|(_, text)| text.as_str()).collect())
                    }
                    _ => None,
                })
                .collect();
            assert!(
                lines
                    .iter()
                    .any(|line| line.contains("▁▁") && line.contains("██ 7.00 µs to 840 µs"))
            );
            assert!(lines.iter().any(|line| line.trim() == "^"), "{lines:?}");
            let widest = lines.iter().skip(1).map(|line| line.chars().count()).max();
            assert!(widest <= Some(width), "{lines:?}");
        }
        assert!(blocks(&summary(Vec::new()), 80).is_empty());
    }

    #[test]
    fn forecasts_are_told_before_the_run_each_once() {
        let told = forecasts(&[arm("one", true), arm("again", true), arm("two", false)]);
        assert_eq!(
            told,
            [
                "expected, one and 1 more: connect(2) slows down beyond 14,116 ports in use; 28,232 \
                 ports last 14.1 s at this rate",
                "expected, two: connect(2) slows down beyond 28,232 ports in use"
            ]
        );
    }

    #[test]
    fn an_arm_without_a_record_of_ports_shows_nothing() {
        let told = summary(vec![Arm { name: "a".into(), ..Arm::default() }]);
        assert!(picture(&told).is_none() && counted(&told.arms[0]).is_empty());
        assert!(forecasts(&told.arms).is_empty());
    }
}
