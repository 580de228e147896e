//! Listeners and destinations as tables: their columns, and what of a row each shows.

use std::cmp::Ordering;

pub(super) use tcptoll_core::sheet::Align;
use tcptoll_core::units::host_port;
use textwrap::core::display_width;

use super::figures::{ABSENT, bar, lasts, rate, short};
use crate::screen::cut;
use tcptoll_live::watch::{DestinationState, ListenerState, State};
use tcptoll_show::printable_line;

/// A figure that may not be known.
fn known<V>(value: Option<V>, text: impl Fn(V) -> String) -> String {
    value.map_or_else(|| ABSENT.to_owned(), text)
}

fn process(one: &ListenerState, width: usize) -> String {
    let Some(process) = &one.process else { return ABSENT.to_owned() };
    let name = printable_line(&process.name);
    let with_pid = format!("{name} {}", process.pid);
    if display_width(&with_pid) <= width && width >= 14 { with_pid } else { cut(&name, width) }
}

fn overflows(one: &ListenerState) -> String {
    let about = if one.overflows_estimated { "~" } else { "" };
    known(one.overflows_per_s, |per_s| format!("{about}{}", rate(per_s)))
}

/// Columns of listeners.
pub(super) const LISTENERS: &[Field<ListenerState>] = &[
    Field::left("LISTENER", (18, 47), 0, Some(Sort::Address), |one, _| {
        let times = if one.sockets > 1 { format!(" ×{}", one.sockets) } else { String::new() };
        format!("{}{times}", host_port(&printable_line(&one.address), one.port))
    }),
    Field::left("PROCESS", (9, 24), 4, Some(Sort::Process), process),
    Field::right("QUEUE", (5, 7), 1, Some(Sort::Queue), |one, _| {
        short(one.accept_queue_len.into())
    }),
    Field::left("", (4, 20), 8, None, |one, width| {
        bar(one.accept_queue_len.into(), one.accept_queue_limit.into(), width)
    }),
    Field::right("LIMIT", (5, 7), 2, None, |one, _| short(one.accept_queue_limit.into())),
    Field::right("PEAK", (5, 7), 5, Some(Sort::Peak), |one, _| short(one.accept_queue_peak.into())),
    Field::right("SYN-RECV", (8, 8), 7, Some(Sort::SynReceived), |one, _| {
        known(one.syn_queue_len, |n| short(n.into()))
    }),
    Field::right("OVERFL/s", (8, 9), 6, Some(Sort::Overflows), |one, _| overflows(one)),
    Field::right("DROP/s", (6, 8), 3, Some(Sort::Drops), |one, _| known(one.drops_per_s, rate)),
    Field::right("DROPPED", (8, 9), 9, None, |one, _| known(one.drops, short)),
    Field::right("PEAK 5 s", (8, 8), 10, None, |one, _| short(one.accept_queue_recent_peak.into())),
    Field::right("INODE", (10, 12), 11, None, |one, _| one.inode.to_string()),
];

/// Columns of destinations.
pub(super) const DESTINATIONS: &[Field<DestinationState>] = &[
    Field::left("DESTINATION", (19, 47), 0, None, |one, _| {
        host_port(&printable_line(&one.address), one.port)
    }),
    Field::right("PORTS", (6, 7), 1, None, |one, _| short(one.ports_in_use.into())),
    Field::left("", (5, 20), 6, None, |one, width| {
        let all = one.ports_left.map(|left| u64::from(left) + u64::from(one.ports_in_use));
        all.map_or_else(String::new, |all| bar(one.ports_in_use.into(), all, width))
    }),
    Field::right("LEFT", (6, 7), 2, None, |one, _| known(one.ports_left, |n| short(n.into()))),
    Field::right("TIME-WAIT", (9, 9), 4, None, |one, _| short(one.time_wait.into())),
    Field::right("CHANGE/s", (8, 8), 5, None, |one, _| known(one.ports_per_s, rate)),
    Field::right("LASTS", (7, 8), 3, None, |one, _| known(one.lasts_s, lasts)),
    Field::right("SYN-SENT", (8, 8), 7, None, |one, _| short(one.syn_sent.into())),
];

// Which listeners and destinations of a state are shown, in which order.

/// An order of listeners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    /// What is wrong first, then what is busy, then by address.
    #[default]
    Pressing,
    Address,
    Process,
    Queue,
    Peak,
    SynReceived,
    Overflows,
    Drops,
}

impl Sort {
    pub(super) const ALL: [(Self, &'static str); 8] = [
        (Self::Pressing, "severity"),
        (Self::Address, "address"),
        (Self::Process, "process"),
        (Self::Queue, "queue"),
        (Self::Peak, "peak"),
        (Self::SynReceived, "SYN-RECEIVED"),
        (Self::Overflows, "overflows"),
        (Self::Drops, "drops"),
    ];

    /// The order after this one; the first after the last.
    pub(super) fn next(self) -> Self {
        let at = Self::ALL.iter().position(|(one, _)| *one == self).unwrap_or(0);
        Self::ALL[(at + 1) % Self::ALL.len()].0
    }

    pub(super) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(one, _)| *one == self).map_or("", |(_, name)| name)
    }

    /// Figures fall, names rise; equal ones keep the order they have.
    fn compare(self, a: &ListenerState, b: &ListenerState) -> Ordering {
        let known = |rate: Option<f64>| rate.unwrap_or(-1.0);
        let process =
            |one: &ListenerState| one.process.as_ref().map(|process| process.name.clone());
        match self {
            Self::Pressing => Ordering::Equal,
            Self::Address => address(a).cmp(&address(b)),
            // A process that may not be read comes last.
            Self::Process => {
                (process(a).is_none(), process(a)).cmp(&(process(b).is_none(), process(b)))
            }
            Self::Queue => b.accept_queue_len.cmp(&a.accept_queue_len),
            Self::Peak => b.accept_queue_peak.cmp(&a.accept_queue_peak),
            Self::SynReceived => b.syn_queue_len.cmp(&a.syn_queue_len),
            Self::Overflows => known(b.overflows_per_s).total_cmp(&known(a.overflows_per_s)),
            Self::Drops => known(b.drops_per_s).total_cmp(&known(a.drops_per_s)),
        }
    }
}

/// IPv4 before IPv6, by number; then by port.
fn address(one: &ListenerState) -> (Option<std::net::IpAddr>, u16, u64) {
    (one.address.parse().ok(), one.port, one.inode)
}

/// Listeners of a state that match, in this order.
pub(super) fn listeners<'a>(
    state: &'a State,
    filter: &str,
    sort: Sort,
    reversed: bool,
) -> Vec<&'a ListenerState> {
    let mut rows: Vec<_> = state.listeners.iter().filter(|one| matches(one, filter)).collect();
    rows.sort_by(|a, b| sort.compare(a, b));
    if reversed {
        rows.reverse();
    }
    rows
}

/// Destinations of a state that match.
pub(super) fn destinations<'a>(state: &'a State, filter: &str) -> Vec<&'a DestinationState> {
    let matches = |one: &&DestinationState| {
        filter.is_empty() || contains(&host_port(&one.address, one.port), filter)
    };
    state.destinations.iter().filter(matches).collect()
}

fn matches(one: &ListenerState, filter: &str) -> bool {
    filter.is_empty()
        || contains(&host_port(&one.address, one.port), filter)
        || one.process.as_ref().is_some_and(|process| {
            contains(&process.name, filter) || process.pid.to_string() == filter
        })
}

fn contains(text: &str, part: &str) -> bool {
    text.to_lowercase().contains(&part.to_lowercase())
}

// A table in the columns of a terminal: which columns fit, how wide each is, how a cell is cut.

/// A column of a table of `T`.
pub(super) struct Field<T> {
    pub title: &'static str,
    pub align: Align,
    /// Columns of the terminal that it takes, at least and at most.
    pub width: (usize, usize),
    /// The lower, the sooner it is shown where room is scarce.
    pub rank: u8,
    /// What of a row it shows, in a column of this width.
    pub cell: fn(&T, usize) -> String,
    /// The order that goes by it.
    pub sort: Option<Sort>,
}

impl<T> Field<T> {
    /// One of words.
    const fn left(
        title: &'static str,
        width: (usize, usize),
        rank: u8,
        sort: Option<Sort>,
        cell: fn(&T, usize) -> String,
    ) -> Self {
        Self { title, align: Align::Left, width, rank, cell, sort }
    }

    /// One of figures.
    const fn right(
        title: &'static str,
        width: (usize, usize),
        rank: u8,
        sort: Option<Sort>,
        cell: fn(&T, usize) -> String,
    ) -> Self {
        Self { align: Align::Right, ..Self::left(title, width, rank, sort, cell) }
    }
}

/// Between two columns.
const GAP: usize = 1;

/// From this width on the first column is as wide as its content, up to an IPv4 address with a port.
const ROOMY: usize = 70;
const ADDRESS: usize = 21;

/// A column that is shown: its place in the list, where it begins, its width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShownColumn {
    pub column: usize,
    pub at: usize,
    pub width: usize,
}

/// The columns that fit in this width, by their ranks. The first is always there.
///
/// `content`: the longest text of each column. Room that is left goes to columns whose content needs
/// it, then to bars.
pub(super) fn fit<T>(columns: &[Field<T>], content: &[usize], width: usize) -> Vec<ShownColumn> {
    let mut ranked: Vec<usize> = (0..columns.len()).collect();
    ranked.sort_by_key(|column| columns[*column].rank);
    let mut shown = Vec::new();
    let mut used = 0;
    let least = |column: usize| {
        if column == 0 && columns[0].width.0 > width {
            return width;
        }
        let (least, most) = columns[column].width;
        // What a row is about matters more than its last figure, where there is room for some figures.
        let whole = if column == 0 && width >= ROOMY { content.first().copied() } else { None };
        whole.map_or(least, |whole| whole.min(ADDRESS).clamp(least, most))
    };
    for column in ranked {
        let least = least(column);
        let gap = if shown.is_empty() { 0 } else { GAP };
        if used + gap + least > width && !shown.is_empty() {
            // A later column that is narrower would change its place with the width: none is shown.
            break;
        }
        used += gap + least;
        shown.push(column);
    }
    shown.sort_unstable();
    let mut spare = width.saturating_sub(used);
    let mut widths: Vec<usize> = shown.iter().map(|column| least(*column)).collect();
    let mut widen = |wanted: &dyn Fn(usize) -> usize| {
        for (column, now) in shown.iter().zip(&mut widths) {
            let (_, most) = columns[*column].width;
            let more = wanted(*column).min(most).saturating_sub(*now).min(spare);
            *now += more;
            spare -= more;
        }
    };
    widen(&|column| content.get(column).copied().unwrap_or(0));
    widen(&|column| if columns[column].title.is_empty() { columns[column].width.1 } else { 0 });
    let mut at = 0;
    let places = shown.iter().zip(widths).map(|(column, width)| {
        let place = ShownColumn { column: *column, at, width };
        at += width + GAP;
        place
    });
    places.collect()
}

/// `text` in at most `width` columns; what is left out of the middle becomes `…`.
pub(super) fn shortened(text: &str, width: usize) -> String {
    if display_width(text) <= width {
        return text.to_owned();
    }
    let room = width.saturating_sub(1);
    let take = |chars: &mut dyn Iterator<Item = char>, room: usize| -> Vec<char> {
        let mut used = 0;
        let fits = |c: &char| {
            used += display_width(c.encode_utf8(&mut [0; 4]));
            used <= room
        };
        chars.take_while(fits).collect()
    };
    let tail = take(&mut text.chars().rev(), room / 2);
    let head = take(&mut text.chars(), room - room / 2);
    head.into_iter().chain(['…']).chain(tail.into_iter().rev()).collect()
}

/// A text in a column of this width.
pub(super) fn aligned(text: &str, align: Align, width: usize) -> String {
    let text = shortened(text, width);
    let blanks = " ".repeat(width.saturating_sub(display_width(&text)));
    if align == Align::Left { text + &blanks } else { blanks + &text }
}

/// The longest text of each column among these rows.
pub(super) fn content<T>(columns: &[Field<T>], rows: &[&T]) -> Vec<usize> {
    let longest = |column: &Field<T>| {
        // A bar has no length of its own.
        let wide = if column.title.is_empty() { 0 } else { column.width.1 };
        let cells = rows.iter().map(|row| display_width(&(column.cell)(row, wide)));
        cells.max().unwrap_or(0)
    };
    columns.iter().map(longest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tcptoll_live::watch::Process;

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
