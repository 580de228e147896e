//! The tables of `--memory`: one connection at each end, all connections, and the machine's own
//! counters.

use super::super::{
    CLIENT_FILLED_MEMORY, CLIENT_IDLE_MEMORY, SERVER_FILLED_MEMORY, SERVER_IDLE_MEMORY,
};
use super::{connection_memory, rule_bytes};
use tcptoll_core::experiment::column::{Column, Figure, Form, Table};
use tcptoll_core::experiment::columns::{ERRORS, OK};
use tcptoll_core::experiment::spec::MetricSpec;
use tcptoll_core::record::{
    Arm, Buffer, BufferLimit, ConnectionMemory, MemorySockets, MemoryState,
};
use tcptoll_core::units::human_bytes;

use Figure::{Count, Number, Words};

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
        return Some(human_bytes(bytes));
    }
    let bytes = buffers(of_state) / memory.connections.max(1) as f64;
    Some(format!("{} + structures", human_bytes(bytes)))
}

/// What buffers were asked for and got: `256K → 512K`, with the limit that changed it.
fn buffer(buffer: Buffer) -> String {
    let got = human_bytes(buffer.effective_bytes as f64);
    let Some(asked) = buffer.asked_bytes else { return format!("auto, initially {got}") };
    let why = match buffer.changed_by {
        None => "",
        Some(BufferLimit::Maximum) => " (maximum)",
        Some(BufferLimit::Minimum) => " (minimum)",
    };
    format!("{} → {got}{why}", human_bytes(asked as f64))
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

/// One connection.
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

/// All connections together.
const TOTAL: &[Column] = &[
    words(
        (ALL, "idle"),
        "all, both ends, idle",
        |arm| total(arm, In::Idle).map(human_bytes),
        |arm| total(arm, In::Idle),
    ),
    words(
        (ALL, "filled"),
        "all, both ends, filled",
        |arm| total(arm, In::Filled).map(human_bytes),
        |arm| total(arm, In::Filled),
    ),
    words(
        (ALL, "payload"),
        "payload in filled buffers",
        |arm| filled(connection_memory(arm)?).map(|state| human_bytes(state.payload_bytes)),
        |arm| filled(connection_memory(arm)?).map(|state| state.payload_bytes),
    ),
];

/// The rule of thumb for the same connections.
const RULE: &[Column] = &[words(
    ("rule, one end", "2 × window"),
    "rule of thumb: 2 × window, one end",
    |arm| connection_memory(arm).and_then(rule_bytes).map(human_bytes),
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
        |arm| filled(connection_memory(arm)?).map(|state| human_bytes(state.machine_tcp_bytes)),
        |arm| filled(connection_memory(arm)?).map(|state| state.machine_tcp_bytes),
    ),
    words(
        ("", "machine's slabs"),
        "growth of the machine's slabs, idle",
        |arm| connection_memory(arm).map(|memory| human_bytes(memory.idle.machine_slab_bytes)),
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

const fn figures(forms: &'static [Form], parts: &'static [&'static [Column]]) -> Table {
    Table { id: "memory", title: "Kernel memory of open connections", forms, has: measured, parts }
}

/// Memory by connection and in total.
pub(crate) const FIGURES: Table = figures(&[Form::Text], &[EACH, TOTAL, RULE, &[OK]]);

/// The same on a page, with the errors.
pub(crate) const PAGE: Table = figures(&[Form::Page], &[EACH, TOTAL, RULE, &[OK, ERRORS]]);

/// The same in Markdown, which says elsewhere what succeeded.
pub(crate) const MARKDOWN: Table = figures(&[Form::Markdown], &[EACH, TOTAL, RULE]);

/// The same as plain numbers.
pub(crate) const PLAIN: Table =
    Table { id: "memory", title: "", forms: &[Form::Csv], has: measured, parts: &[TIDY] };

/// The buffers behind it and the machine's counters.
pub(crate) const COUNTERS: Table = Table {
    id: "memory-counters",
    title: "Requested and effective buffers, and the machine's own counters",
    forms: &[Form::Page, Form::Markdown],
    has: measured,
    parts: &[WITNESS],
};
