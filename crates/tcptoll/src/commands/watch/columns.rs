//! The columns of listeners and destinations: titles, widths, and what of a row each shows.

use tcptoll_model::watch::{DestinationState, ListenerState};
use tcptoll_report::printable_line;
use textwrap::core::display_width;

use super::figures::{ABSENT, bar, cut, lasts, rate, short};
use super::table::{Align, Column, Sort, place};

fn count(value: u32, _: usize) -> String {
    short(value.into())
}

fn process(one: &ListenerState, width: usize) -> String {
    let Some(process) = &one.process else { return ABSENT.to_owned() };
    let name = printable_line(&process.name);
    let with_pid = format!("{name} {}", process.pid);
    if display_width(&with_pid) <= width && width >= 14 { with_pid } else { cut(&name, width) }
}

fn overflows(one: &ListenerState) -> String {
    let about = if one.overflows_estimated { "~" } else { "" };
    one.overflows_per_s.map_or_else(|| ABSENT.to_owned(), |per_s| format!("{about}{}", rate(per_s)))
}

/// Columns of listeners.
pub(super) const LISTENERS: &[Column<ListenerState>] = &[
    Column {
        title: "LISTENER",
        align: Align::Left,
        width: (18, 47),
        rank: 0,
        cell: |one, _| {
            let of = if one.sockets > 1 { format!(" ×{}", one.sockets) } else { String::new() };
            format!("{}{of}", place(&printable_line(&one.address), one.port))
        },
        sort: Some(Sort::Address),
    },
    Column {
        title: "PROCESS",
        align: Align::Left,
        width: (9, 24),
        rank: 4,
        cell: process,
        sort: Some(Sort::Process),
    },
    Column {
        title: "QUEUE",
        align: Align::Right,
        width: (5, 7),
        rank: 1,
        cell: |one, width| count(one.accept_queue_len, width),
        sort: Some(Sort::Queue),
    },
    Column {
        title: "",
        align: Align::Left,
        width: (4, 20),
        rank: 8,
        cell: |one, width| bar(one.accept_queue_len.into(), one.accept_queue_limit.into(), width),
        sort: None,
    },
    Column {
        title: "LIMIT",
        align: Align::Right,
        width: (5, 7),
        rank: 2,
        cell: |one, width| count(one.accept_queue_limit, width),
        sort: None,
    },
    Column {
        title: "PEAK",
        align: Align::Right,
        width: (5, 7),
        rank: 5,
        cell: |one, width| count(one.accept_queue_peak, width),
        sort: Some(Sort::Peak),
    },
    Column {
        title: "SYN-RECV",
        align: Align::Right,
        width: (8, 8),
        rank: 7,
        cell: |one, _| one.syn_queue_len.map_or_else(|| ABSENT.to_owned(), |len| short(len.into())),
        sort: Some(Sort::SynReceived),
    },
    Column {
        title: "OVERFL/s",
        align: Align::Right,
        width: (8, 9),
        rank: 6,
        cell: |one, _| overflows(one),
        sort: Some(Sort::Overflows),
    },
    Column {
        title: "DROP/s",
        align: Align::Right,
        width: (6, 8),
        rank: 3,
        cell: |one, _| one.drops_per_s.map_or_else(|| ABSENT.to_owned(), rate),
        sort: Some(Sort::Drops),
    },
    Column {
        title: "DROPPED",
        align: Align::Right,
        width: (8, 9),
        rank: 9,
        cell: |one, _| one.drops.map_or_else(|| ABSENT.to_owned(), short),
        sort: None,
    },
    Column {
        title: "PEAK 5 s",
        align: Align::Right,
        width: (8, 8),
        rank: 10,
        cell: |one, width| count(one.accept_queue_recent_peak, width),
        sort: None,
    },
    Column {
        title: "INODE",
        align: Align::Right,
        width: (10, 12),
        rank: 11,
        cell: |one, _| one.inode.to_string(),
        sort: None,
    },
];

/// Columns of destinations.
pub(super) const DESTINATIONS: &[Column<DestinationState>] = &[
    Column {
        title: "DESTINATION",
        align: Align::Left,
        width: (19, 47),
        rank: 0,
        cell: |one, _| place(&printable_line(&one.address), one.port),
        sort: None,
    },
    Column {
        title: "PORTS",
        align: Align::Right,
        width: (6, 7),
        rank: 1,
        cell: |one, width| count(one.ports_in_use, width),
        sort: None,
    },
    Column {
        title: "",
        align: Align::Left,
        width: (5, 20),
        rank: 6,
        cell: |one, width| {
            let all = one.ports_left.map(|left| u64::from(left) + u64::from(one.ports_in_use));
            all.map_or_else(String::new, |all| bar(one.ports_in_use.into(), all, width))
        },
        sort: None,
    },
    Column {
        title: "LEFT",
        align: Align::Right,
        width: (6, 7),
        rank: 2,
        cell: |one, width| one.ports_left.map_or_else(|| ABSENT.to_owned(), |n| count(n, width)),
        sort: None,
    },
    Column {
        title: "TIME-WAIT",
        align: Align::Right,
        width: (9, 9),
        rank: 4,
        cell: |one, width| count(one.time_wait, width),
        sort: None,
    },
    Column {
        title: "CHANGE/s",
        align: Align::Right,
        width: (8, 8),
        rank: 5,
        cell: |one, _| one.ports_per_s.map_or_else(|| ABSENT.to_owned(), rate),
        sort: None,
    },
    Column {
        title: "LASTS",
        align: Align::Right,
        width: (7, 8),
        rank: 3,
        cell: |one, _| one.lasts_s.map_or_else(|| ABSENT.to_owned(), lasts),
        sort: None,
    },
    Column {
        title: "SYN-SENT",
        align: Align::Right,
        width: (8, 8),
        rank: 7,
        cell: |one, width| count(one.syn_sent, width),
        sort: None,
    },
];
