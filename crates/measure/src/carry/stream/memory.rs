//! `--memory`: the figures of an arm, next to the rule of thumb for socket buffers; the answer, in at most three
//! sentences; and the tables: one connection at each end, all connections, and the machine's own counters.

use tcptoll_core::experiment::column::{Column, Figure, Table};
use tcptoll_core::experiment::columns::{ERRORS, OK};
use tcptoll_core::experiment::spec::MetricSpec;
use tcptoll_core::number;
use tcptoll_core::record::{
    Arm, Buffer, BufferLimit, ConnectionMemory, MemorySockets, MemoryState, NextStep, Summary,
};
use tcptoll_core::sheet::Room;
use tcptoll_core::units::text_size;

use super::{CLIENT_FILLED_MEMORY, CLIENT_IDLE_MEMORY, SERVER_FILLED_MEMORY, SERVER_IDLE_MEMORY};
use crate::kit::conclusion::{Excerpt, stated, step};

use Figure::{Count, Number, Words};

/// The memory of an arm's connections.
pub(super) fn connection_memory(arm: &Arm) -> Option<&ConnectionMemory> {
    arm.own.connection_memory.as_ref()
}

/// The rule of thumb that is in use since at least 2008: a socket takes two buffers of the size that
/// the program asked for, one to send and one to receive. Of all sockets of one host, bytes.
///
/// None: the kernel chose a buffer.
fn rule_bytes(memory: &ConnectionMemory) -> Option<f64> {
    let sockets = &memory.server;
    let asked = sockets.send_buffer.asked_bytes? + sockets.receive_buffer.asked_bytes?;
    Some(asked as f64 * memory.connections as f64)
}

/// The window that an arm asked for, if it asked the same of both buffers.
fn window_bytes(memory: &ConnectionMemory) -> Option<u64> {
    let sockets = &memory.server;
    let (send, receive) = (sockets.send_buffer.asked_bytes?, sockets.receive_buffer.asked_bytes?);
    (send == receive).then_some(send)
}

/// An arm and its memory.
type MemoryArm<'a> = (&'a Arm, &'a ConnectionMemory);

/// Answers a run of `--memory`. Gives whether it is one: whether an arm has memory.
pub(crate) fn conclude(summary: &mut Summary) -> bool {
    let told: Vec<MemoryArm<'_>> = summary
        .arms
        .iter()
        .filter(|arm| arm.failure.is_none())
        .filter_map(|arm| Some((arm, connection_memory(arm)?)))
        .collect();
    if told.is_empty() {
        return false;
    }
    let sentences = [idle(&told), filled_words(&told), rule(&told)];
    let (answer, next) =
        (sentences.into_iter().flatten().collect::<Vec<_>>().join(" "), next(&told));
    summary.answer = answer;
    summary.next = next;
    true
}

/// One connection's share of a sum.
fn share(memory: &ConnectionMemory, bytes: f64) -> f64 {
    bytes / memory.connections.max(1) as f64
}

/// A range in words; one figure where both ends are written alike.
fn range(figures: &[f64]) -> Option<String> {
    let least = figures.iter().copied().reduce(f64::min)?;
    let most = figures.iter().copied().reduce(f64::max)?;
    Some(number::range(&number::bytes(least), &number::bytes(most)))
}

/// What a connection without data holds.
fn idle(told: &[MemoryArm<'_>]) -> Option<String> {
    let buffers: Vec<f64> =
        told.iter().map(|(_, memory)| share(memory, memory.idle.buffers_bytes())).collect();
    let none = buffers.iter().all(|bytes| *bytes < 1.0);
    let of_end = |end: fn(&ConnectionMemory) -> Option<f64>| -> Option<String> {
        range(&told.iter().filter_map(|(_, memory)| end(memory)).collect::<Vec<f64>>())
    };
    let at_client = of_end(|memory| memory.at_client(Some(&memory.idle)));
    let at_server = of_end(|memory| memory.at_server(Some(&memory.idle)));
    let Some((client, server)) = at_client.zip(at_server) else {
        return Some(if none {
            "An idle connection holds no buffer memory (sizes are limits, not reservations); only \
             root can read the size of its structures."
                .to_owned()
        } else {
            let buffers = range(&buffers)?;
            format!("An idle connection holds {buffers} of buffer memory, both ends together.")
        });
    };
    let held =
        format!("An idle connection holds {client} at the client and {server} at the server");
    Some(if none {
        format!("{held}, but no buffer memory: buffer sizes are limits, not reservations.")
    } else {
        format!("{held}, including {} of buffers.", range(&buffers)?)
    })
}

/// Both ends of one filled connection.
fn both_ends(memory: &ConnectionMemory) -> Option<f64> {
    memory.filled.as_ref().map(|filled| share(memory, memory.in_total(filled)))
}

/// What connections with full buffers hold, in the arms that have most connections.
fn filled_words(told: &[MemoryArm<'_>]) -> Option<String> {
    let most = told.iter().map(|(_, memory)| memory.connections).max()?;
    let of_most = told.iter().filter(|(_, memory)| memory.connections == most);
    let of_arms: Vec<(&MemoryArm<'_>, f64)> =
        of_most.filter_map(|told| Some((told, both_ends(told.1)?))).collect();
    let phrase = |&((arm, memory), bytes): &(&MemoryArm<'_>, f64)| {
        let each = number::bytes(bytes);
        if told.len() > 1 {
            return format!("{each} ({})", arm.name);
        }
        let all = memory.filled.as_ref().map_or(0.0, |filled| memory.in_total(filled));
        match memory.connections {
            0 | 1 => each,
            n => format!("{each} ({} for {} connections)", number::bytes(all), number::count(n)),
        }
    };
    let phrases = match stated(of_arms, |(_, bytes)| *bytes) {
        Excerpt::Each(all) if all.is_empty() => return None,
        Excerpt::Each(all) if all.len() <= 2 => all.iter().map(phrase).collect(),
        Excerpt::Each(all) => {
            let by = |pick: fn(f64, f64) -> bool| {
                all.iter().reduce(|a, b| if pick(b.1, a.1) { b } else { a })
            };
            let ends = [by(|new, old| new < old), by(|new, old| new >= old)];
            ends.into_iter().flatten().map(phrase).collect::<Vec<String>>()
        }
        Excerpt::Ends(least, most, _) => vec![phrase(&least), phrase(&most)],
    };
    Some(format!(
        "With full buffers, both ends of a connection together hold {}.",
        phrases.join(" and ")
    ))
}

/// Whether a full buffer holds more than twice the size asked for.
fn rule(told: &[MemoryArm<'_>]) -> Option<String> {
    let of_arm = |&(_, memory): &MemoryArm<'_>| {
        let window = window_bytes(memory).filter(|_| !memory.pressure)?;
        let filled = memory.filled.as_ref()?;
        let times = |bytes: f64| share(memory, bytes) / window.max(1) as f64;
        let ends = [times(filled.client.buffers_bytes()), times(filled.server.buffers_bytes())];
        Some((window, ends))
    };
    let (window, [client, server]) =
        told.iter().filter_map(of_arm).max_by_key(|(window, _)| *window)?;
    let window = text_size(window);
    let [of_client, of_server] = [client, server].map(number::three);
    let figures = format!("{of_client} × {window} (client), {of_server} × {window} (server)");
    Some(if client.max(server) > 2.0 {
        format!("A full buffer can hold more than twice the window: {figures}.")
    } else {
        format!("Even a full buffer holds no more than twice the window: {figures}.")
    })
}

fn next(told: &[MemoryArm<'_>]) -> Vec<NextStep> {
    let mut steps = Vec::new();
    if told.iter().any(|(_, memory)| memory.pressure) {
        steps.push(step(
            "tcptoll explain memory-pressure",
            "what the kernel does when TCP uses too much memory, and how to see it",
        ));
    }
    if told.len() == 1 {
        steps.push(step(
            "tcptoll stream --memory --window auto,32K,256K,512K --connections 1000",
            "the same for several buffer sizes",
        ));
    }
    steps
}

const CLIENT: &str = "at the client, each";
const SERVER: &str = "at the server, each";
const ALL: &str = "all, both ends";

fn measured(arm: &Arm) -> bool {
    connection_memory(arm).is_some()
}

fn filled(memory: &ConnectionMemory) -> Option<&MemoryState> {
    memory.filled.as_ref()
}

/// Which state a column is of.
#[derive(Clone, Copy)]
enum In {
    Idle,
    Filled,
}

impl In {
    fn state(self, memory: &ConnectionMemory) -> Option<&MemoryState> {
        match self {
            Self::Idle => Some(&memory.idle),
            Self::Filled => filled(memory),
        }
    }
}

/// Bytes of one connection at one end: with its structures, or without and saying so.
fn each(
    arm: &Arm,
    state: In,
    with: fn(&ConnectionMemory, Option<&MemoryState>) -> Option<f64>,
    buffers: fn(&MemoryState) -> f64,
) -> Option<String> {
    let memory = connection_memory(arm)?;
    let of_state = state.state(memory)?;
    if let Some(bytes) = with(memory, Some(of_state)) {
        return Some(number::bytes(bytes));
    }
    let bytes = buffers(of_state) / memory.connections.max(1) as f64;
    Some(format!("{} + structures", number::bytes(bytes)))
}

/// What buffers were asked for and got: `256K → 512K`, with the limit that changed it.
fn buffer(buffer: Buffer) -> String {
    let got = number::bytes(buffer.effective_bytes as f64);
    let Some(asked) = buffer.asked_bytes else { return format!("auto, initially {got}") };
    let why = match buffer.changed_by {
        None => "",
        Some(BufferLimit::Maximum) => " (maximum)",
        Some(BufferLimit::Minimum) => " (minimum)",
    };
    format!("{} → {got}{why}", number::bytes(asked as f64))
}

fn total(arm: &Arm, state: In) -> Option<f64> {
    let memory = connection_memory(arm)?;
    state.state(memory).map(|state| memory.in_total(state))
}

const fn words(
    heads: (&'static str, &'static str),
    whole: &'static str,
    text: fn(&Arm) -> Option<String>,
    sort: fn(&Arm) -> Option<f64>,
) -> Column {
    Column::new(heads, whole, ("", ""), Words(text)).flush_right().sorted_by(sort)
}

const fn tidy(metric: &'static MetricSpec) -> Column {
    Column::whole(metric.words, (metric.name, metric.unit), Figure::Metric)
}

const fn bytes(name: &'static str, value: fn(&Arm) -> Option<f64>) -> Column {
    Column::whole(name, (name, "bytes"), Number(value, 1.0))
}

fn metric(arm: &Arm, metric: &MetricSpec) -> Option<f64> {
    tcptoll_core::experiment::column::value(arm, metric.name)
}

const EACH: &[Column] = &[
    words(
        (CLIENT, "idle"),
        "client, each, idle",
        |arm| {
            each(arm, In::Idle, ConnectionMemory::at_client, |state| state.client.buffers_bytes())
        },
        |arm| metric(arm, &CLIENT_IDLE_MEMORY),
    ),
    words(
        (CLIENT, "filled"),
        "client, each, filled",
        |arm| {
            each(arm, In::Filled, ConnectionMemory::at_client, |state| state.client.buffers_bytes())
        },
        |arm| metric(arm, &CLIENT_FILLED_MEMORY),
    ),
    words(
        (SERVER, "idle"),
        "server, each, idle",
        |arm| {
            each(arm, In::Idle, ConnectionMemory::at_server, |state| state.server.buffers_bytes())
        },
        |arm| metric(arm, &SERVER_IDLE_MEMORY),
    ),
    words(
        (SERVER, "filled"),
        "server, each, filled",
        |arm| {
            each(arm, In::Filled, ConnectionMemory::at_server, |state| state.server.buffers_bytes())
        },
        |arm| metric(arm, &SERVER_FILLED_MEMORY),
    ),
];

const TOTAL: &[Column] = &[
    words(
        (ALL, "idle"),
        "all, both ends, idle",
        |arm| total(arm, In::Idle).map(number::bytes),
        |arm| total(arm, In::Idle),
    ),
    words(
        (ALL, "filled"),
        "all, both ends, filled",
        |arm| total(arm, In::Filled).map(number::bytes),
        |arm| total(arm, In::Filled),
    ),
    words(
        (ALL, "payload"),
        "payload in filled buffers",
        |arm| filled(connection_memory(arm)?).map(|state| number::bytes(state.payload_bytes)),
        |arm| filled(connection_memory(arm)?).map(|state| state.payload_bytes),
    ),
];

/// The rule of thumb for the same connections.
const RULE: &[Column] = &[words(
    ("rule, one end", "2 × window"),
    "rule of thumb: 2 × window, one end",
    |arm| connection_memory(arm).and_then(rule_bytes).map(number::bytes),
    |arm| connection_memory(arm).and_then(rule_bytes),
)];

fn end_words(
    arm: &Arm,
    end: fn(&ConnectionMemory) -> &MemorySockets,
    send: bool,
) -> Option<String> {
    let sockets = end(connection_memory(arm)?);
    Some(buffer(if send { sockets.send_buffer } else { sockets.receive_buffer }))
}

/// The buffers that fill, and what the machine's counters say of it.
const WITNESS: &[Column] = &[
    Column::whole(
        "send buffer of the client",
        ("", ""),
        Words(|arm| end_words(arm, |memory| &memory.client, true)),
    ),
    Column::whole(
        "receive buffer of the server",
        ("", ""),
        Words(|arm| end_words(arm, |memory| &memory.server, false)),
    ),
    words(
        ("", "machine's TCP memory"),
        "growth of the machine's TCP memory, filled",
        |arm| filled(connection_memory(arm)?).map(|state| number::bytes(state.machine_tcp_bytes)),
        |arm| filled(connection_memory(arm)?).map(|state| state.machine_tcp_bytes),
    ),
    words(
        ("", "machine's slabs"),
        "growth of the machine's slabs, idle",
        |arm| connection_memory(arm).map(|memory| number::bytes(memory.idle.machine_slab_bytes)),
        |arm| connection_memory(arm).map(|memory| memory.idle.machine_slab_bytes),
    ),
];

/// Every figure, for other programs.
const TIDY: &[Column] = &[
    tidy(&CLIENT_IDLE_MEMORY),
    tidy(&CLIENT_FILLED_MEMORY),
    tidy(&SERVER_IDLE_MEMORY),
    tidy(&SERVER_FILLED_MEMORY),
    Column::whole(
        "open_connections",
        ("open_connections", ""),
        Count(|arm| connection_memory(arm).map(|memory| memory.connections)),
    ),
    bytes("idle_bytes", |arm| total(arm, In::Idle)),
    bytes("filled_bytes", |arm| total(arm, In::Filled)),
    bytes("filled_payload_bytes", |arm| {
        filled(connection_memory(arm)?).map(|state| state.payload_bytes)
    }),
    bytes("filled_machine_tcp_bytes", |arm| {
        filled(connection_memory(arm)?).map(|state| state.machine_tcp_bytes)
    }),
    bytes("idle_machine_slab_bytes", |arm| {
        connection_memory(arm).map(|memory| memory.idle.machine_slab_bytes)
    }),
    bytes("rule_bytes", |arm| connection_memory(arm).and_then(rule_bytes)),
];

/// Memory by connection and in total.
pub(crate) const FIGURES: Table = Table {
    id: "memory",
    title: "Kernel memory of open connections",
    has: measured,
    room: Room::Always,
    parts: &[EACH, TOTAL, RULE, &[OK, ERRORS]],
};

/// The same as plain numbers.
pub(crate) const PLAIN: Table =
    Table { id: "memory-plain", title: "", has: measured, room: Room::File, parts: &[TIDY] };

/// The buffers behind it and the machine's counters.
pub(crate) const COUNTERS: Table = Table {
    id: "memory-counters",
    title: "Requested and effective buffers, and the machine's own counters",
    has: measured,
    room: Room::Page,
    parts: &[WITNESS],
};

#[cfg(test)]
mod tests {
    use tcptoll_core::record::MemoryHeld;

    use super::*;

    /// An arm of connections of which a filled one queues, and keeps unread, this much of each byte
    /// asked for; `None` asked: tuned, and 700 kB and 130 kB.
    pub(crate) fn arm(name: &str, connections: u64, asked: Option<u64>, filled: f64) -> Arm {
        let sockets = |structures| MemorySockets {
            send_buffer: Buffer::new(asked, asked.map_or(87_040, |bytes| bytes * 2)),
            receive_buffer: Buffer::new(asked, asked.map_or(131_072, |bytes| bytes * 2)),
            congestion: "cubic".to_owned(),
            structures_bytes: Some(structures),
        };
        let n = connections as f64;
        let each = asked.map_or([700e3, 130e3], |bytes| [bytes as f64 * filled; 2]);
        let memory = ConnectionMemory {
            connections,
            client: sockets(4_085.0),
            server: sockets(3_829.0),
            filled: Some(MemoryState {
                client: MemoryHeld { queued_bytes: each[0] * n, ..MemoryHeld::default() },
                server: MemoryHeld { received_bytes: each[1] * n, ..MemoryHeld::default() },
                payload_bytes: each[0] * n,
                ..MemoryState::default()
            }),
            ..ConnectionMemory::default()
        };
        Arm {
            name: name.to_owned(),
            attempts: connections,
            ok: connections,
            own: memory.into(),
            ..Arm::default()
        }
    }

    #[test]
    fn the_rule_of_thumb_is_two_buffers_for_each_connection() {
        let rule = |arm: &Arm| connection_memory(arm).and_then(rule_bytes);
        // The sums of the article of 2008: 100 MB and 1 GB, counted in 1024.
        assert_eq!(rule(&arm("a", 100, Some(512 << 10), 2.1)), Some(100.0 * 1_048_576.0));
        assert_eq!(rule(&arm("a", 1_000, Some(512 << 10), 2.1)), Some(1_000.0 * 1_048_576.0));
        assert_eq!(rule(&arm("a", 100, None, 2.1)), None);
    }

    fn answer(arms: Vec<Arm>) -> (String, Summary) {
        let mut summary = Summary { arms, ..Summary::default() };
        assert!(conclude(&mut summary));
        assert!(summary.answer.chars().count() <= 400, "{}", summary.answer.chars().count());
        (summary.answer.clone(), summary)
    }

    #[test]
    fn a_full_buffer_holds_more_than_twice_the_window_and_an_idle_one_nothing() {
        let (answer, summary) = answer(vec![arm("stream", 1_000, Some(512 << 10), 2.1)]);
        assert_eq!(
            answer,
            "An idle connection holds 4.08 kB at the client and 3.83 kB at the server, but no \
             buffer memory: buffer sizes are limits, not reservations. With full buffers, both \
             ends of a connection together hold 2.21 MB (2.21 GB for 1,000 connections). A full \
             buffer can hold more than twice the window: 2.10 × 512K (client), 2.10 × 512K \
             (server)."
        );
        assert_eq!(summary.next.len(), 1);
    }

    #[test]
    fn of_several_arms_the_least_and_the_most_are_stated() {
        let arms = ["auto", "32K", "256K"].into_iter().zip([None, Some(32), Some(256)]);
        let arms = arms.map(|(name, asked)| arm(name, 10, asked.map(|k: u64| k << 10), 2.0));
        let (answer, _) = answer(arms.collect());
        assert!(answer.contains("together hold 139 kB (32K) and 1.06 MB (256K)."), "{answer}");
        assert!(answer.contains("holds no more than twice the window: 2.00 × 256K"), "{answer}");
    }

    #[test]
    fn without_structures_only_buffers_are_stated() {
        let mut one = arm("stream", 4, None, 2.0);
        let memory = one.own.connection_memory.as_mut().unwrap();
        memory.client.structures_bytes = None;
        memory.filled = None;
        let (answer, _) = answer(vec![one]);
        assert_eq!(
            answer,
            "An idle connection holds no buffer memory (sizes are limits, not reservations); only \
             root can read the size of its structures."
        );
    }

    #[test]
    fn a_run_without_memory_is_not_answered_here() {
        let mut summary = Summary { arms: vec![Arm::default()], ..Summary::default() };
        assert!(!conclude(&mut summary));
    }
}
