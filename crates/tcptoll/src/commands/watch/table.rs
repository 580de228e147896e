//! Listeners and destinations as tables: their columns, and what of a row each shows.

use tcptoll_live::watch::{DestinationState, ListenerState};
use tcptoll_show::printable_line;
use textwrap::core::display_width;

use super::figures::{ABSENT, bar, cut, lasts, rate, short};
pub(super) use super::layout::{Align, Column, aligned, content, fit, shortened};
pub(super) use super::order::{Sort, destinations, listeners, place};

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
            let times = if one.sockets > 1 { format!(" ×{}", one.sockets) } else { String::new() };
            format!("{}{times}", place(&printable_line(&one.address), one.port))
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

#[cfg(test)]
mod tests {
    use tcptoll_live::watch::{Process, State};

    use super::*;

    fn titles(width: usize) -> Vec<&'static str> {
        let places = fit(LISTENERS, &[], width);
        let last = places.last().unwrap();
        assert!(last.at + last.width <= width, "{width}: {places:?}");
        places.iter().map(|place| LISTENERS[place.column].title).collect()
    }

    #[test]
    fn at_77_columns_all_that_is_asked_for_at_3_a_m_is_there_and_at_38_what_matters_most() {
        assert_eq!(
            titles(77),
            ["LISTENER", "PROCESS", "QUEUE", "", "LIMIT", "PEAK", "SYN-RECV", "OVERFL/s", "DROP/s"]
        );
        assert_eq!(titles(37), ["LISTENER", "QUEUE", "LIMIT", "DROP/s"]);
        assert_eq!(titles(198).len(), LISTENERS.len());
        assert_eq!(titles(5), ["LISTENER"]);
        for width in 19..300 {
            titles(width);
        }
        let places = fit(LISTENERS, &["255.255.255.255:65535".len()], 77);
        assert_eq!((places[0].width, places.len()), (21, 8), "the bar makes room");
    }

    fn listener(address: &str, port: u16, name: Option<&str>, queue: u32) -> ListenerState {
        ListenerState {
            address: address.into(),
            port,
            process: name.map(|name| Process { pid: 7, name: name.into() }),
            accept_queue_len: queue,
            ..ListenerState::default()
        }
    }

    #[test]
    fn rows_are_sorted_by_what_was_chosen_and_filtered_by_address_port_and_process() {
        let state = State {
            listeners: vec![
                listener("10.0.0.9", 80, Some("nginx"), 3),
                listener("::", 443, None, 9),
                listener("9.0.0.9", 6379, Some("Redis"), 1),
            ],
            ..State::default()
        };
        let ports = |filter: &str, sort, reversed| {
            let rows = listeners(&state, filter, sort, reversed);
            rows.iter().map(|one| one.port).collect::<Vec<_>>()
        };
        assert_eq!(ports("", Sort::Pressing, false), [80, 443, 6379]);
        assert_eq!(ports("", Sort::Address, false), [6379, 80, 443]);
        assert_eq!(ports("", Sort::Queue, false), [443, 80, 6379]);
        assert_eq!(ports("", Sort::Queue, true), [6379, 80, 443]);
        assert_eq!(ports("", Sort::Process, false), [6379, 80, 443]);
        assert_eq!(ports("redis", Sort::Pressing, false), [6379]);
        assert_eq!(ports(":443", Sort::Pressing, false), [443]);
        assert_eq!(ports("nobody", Sort::Pressing, false), [0_u16; 0]);
        let mut sort = Sort::default();
        for (expected, name) in Sort::ALL {
            assert_eq!((sort, sort.name()), (expected, name));
            sort = sort.next();
        }
        assert_eq!(sort, Sort::default());
    }

    #[test]
    fn what_is_too_long_loses_its_middle_and_keeps_its_port() {
        assert_eq!(shortened("[2001:db8:0:1:2:3:4:5]:65535", 19), "[2001:db8…:5]:65535");
        assert_eq!(shortened("日本語日本語", 7), "日…語");
        assert_eq!(aligned("12", Align::Right, 4), "  12");
    }
}
