//! Which listeners and destinations of a state are shown, in which order.

use std::cmp::Ordering;

use tcptoll_live::watch::{DestinationState, ListenerState, State};

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
        filter.is_empty() || contains(&place(&one.address, one.port), filter)
    };
    state.destinations.iter().filter(matches).collect()
}

fn matches(one: &ListenerState, filter: &str) -> bool {
    filter.is_empty()
        || contains(&place(&one.address, one.port), filter)
        || one.process.as_ref().is_some_and(|process| {
            contains(&process.name, filter) || process.pid.to_string() == filter
        })
}

fn contains(text: &str, part: &str) -> bool {
    text.to_lowercase().contains(&part.to_lowercase())
}

/// `10.0.0.7:80`, `[fd00::7]:80`: what a diagnosis of it is about.
pub(super) fn place(address: &str, port: u16) -> String {
    if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
}
