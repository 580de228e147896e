//! What does the page of an examination hold? Words and tables, put together from the object.

use serde::Serialize;
use tcptoll_model::diagnosis::{Diagnosis, Severity};
use tcptoll_model::doctor::{Buffers, Examination, Listen, ServerConfig, Sourced, Upstream};
use tcptoll_model::watch::ListenerState;

use super::words;
use crate::{findings, number};

/// Servers of a group that are named in a table.
const MEMBERS_MAX: usize = 8;

/// The page.
#[derive(Serialize)]
pub(super) struct View {
    title: String,
    kicker: String,
    answer: String,
    clean: bool,
    looked_at: String,
    place: Vec<String>,
    missing: Vec<Missing>,
    findings: Vec<Finding>,
    listeners: Vec<Listener>,
    listeners_left_out: u64,
    servers: Vec<Server>,
    programs: &'static str,
    by_design: Vec<Missing>,
    time: String,
    version: String,
    report_version: u32,
    file_name: String,
}

#[derive(Serialize)]
struct Missing {
    what: String,
    why: String,
    remedy: Option<String>,
}

#[derive(Serialize)]
struct Finding {
    id: String,
    severity: &'static str,
    problem: bool,
    subject: String,
    text: String,
    evidence: Vec<[String; 3]>,
    places: bool,
    fix: Option<Fix>,
    explain: String,
    prove: Option<String>,
    proof: Option<Proof>,
}

#[derive(Serialize)]
struct Fix {
    change: String,
    commands: String,
    words: Vec<[String; 2]>,
}

#[derive(Serialize)]
struct Proof {
    verdict: &'static str,
    shown: bool,
    text: String,
    command: String,
}

#[derive(Serialize)]
struct Cell {
    text: String,
    value: Option<f64>,
}

#[derive(Serialize)]
struct Listener {
    on: String,
    process: String,
    cells: Vec<Cell>,
    /// Peak by limit, percent, at most 100.
    filled: u32,
    level: &'static str,
}

#[derive(Serialize)]
struct Server {
    name: String,
    settings: Vec<[String; 3]>,
    listens: Vec<Vec<String>>,
    upstreams: Vec<Vec<String>>,
    files: Vec<String>,
    unread: Vec<String>,
}

/// Puts the page of a cleaned examination together.
pub(super) fn of(examination: &Examination, provable: &[&str]) -> View {
    let examined = &examination.examined;
    let missing = |by_design| {
        let parts = words::missing(examination, by_design).into_iter();
        parts.map(|one| Missing { what: one.what, why: one.why, remedy: one.remedy }).collect()
    };
    let listeners: Vec<Listener> = examined.queues.iter().map(listener).collect();
    View {
        title: format!("tcptoll doctor · {}", examination.host),
        kicker: format!("tcptoll doctor · {}", examination.host),
        answer: words::answer(examination),
        clean: examination.findings.is_empty(),
        looked_at: words::looked_at(examination).join(", "),
        place: words::place(examination).into_iter().skip(1).collect(),
        missing: missing(false),
        findings: examination
            .findings
            .iter()
            .map(|one| finding(examination, one, provable))
            .collect(),
        listeners_left_out: examined.listeners.saturating_sub(listeners.len() as u64),
        listeners,
        servers: examined.servers.iter().map(server).collect(),
        programs: words::PROGRAMS,
        by_design: missing(true),
        time: examination.time.clone(),
        version: examination.tcptoll_version.clone(),
        report_version: examination.report_version,
        file_name: "doctor.json".to_owned(),
    }
}

fn finding(examination: &Examination, one: &Diagnosis, provable: &[&str]) -> Finding {
    let evidence = words::evidence(one);
    let fix = one.fix.as_ref().map(|fix| Fix {
        change: fix.change.clone(),
        commands: fix.commands.join("\n"),
        words: [("expected", &fix.effect), ("risk", &fix.risk), ("undo", &fix.undo)]
            .into_iter()
            .filter(|(_, text)| !text.is_empty())
            .map(|(name, text)| [name.to_owned(), text.clone()])
            .collect(),
    });
    let mut proofs = examination.proofs.iter();
    let proof = proofs.find(|proof| proof.finding == one.id && proof.subject == one.subject);
    Finding {
        id: one.id.clone(),
        severity: words::severity(one.severity),
        problem: one.severity == Severity::Problem,
        subject: one.subject.clone(),
        text: one.text.clone(),
        places: evidence.iter().any(|row| row.at.is_some()),
        evidence: evidence
            .into_iter()
            .map(|row| [row.name, row.value, row.at.unwrap_or_default()])
            .collect(),
        fix,
        explain: format!("tcptoll explain {}", one.id),
        prove: (proof.is_none() && provable.contains(&one.id.as_str()))
            .then(|| format!("tcptoll doctor --prove {}", one.id)),
        proof: proof.map(|proof| Proof {
            verdict: words::verdict(proof.verdict),
            shown: proof.verdict == tcptoll_model::doctor::ProofVerdict::Shown,
            text: proof.text.clone(),
            command: findings::command(&proof.command),
        }),
    }
}

/// A listener's queue: its row, and how far it was filled.
fn listener(one: &ListenerState) -> Listener {
    let host =
        if one.address.contains(':') { format!("[{}]", one.address) } else { one.address.clone() };
    let process = one.process.as_ref();
    let whole = |n: u32| Cell { text: number::count(n.into()), value: Some(n.into()) };
    let absent = || Cell { text: number::ABSENT.to_owned(), value: None };
    let rate = |rate: Option<f64>, about: bool| {
        let about = if about { "~" } else { "" };
        rate.map_or_else(absent, |rate| Cell {
            text: format!("{about}{}", number::three(rate)),
            value: Some(rate),
        })
    };
    // The queue holds one more than its limit.
    let room = f64::from(one.accept_queue_limit) + 1.0;
    let share = f64::from(one.accept_queue_peak) / room;
    let level = match share {
        share if share >= 1.0 => "full",
        share if share >= 0.8 => "near",
        _ => "low",
    };
    Listener {
        on: format!("{host}:{}", one.port),
        process: process.map_or_else(
            || number::ABSENT.to_owned(),
            |process| format!("{} ({})", process.name, process.pid),
        ),
        cells: vec![
            whole(one.accept_queue_len),
            whole(one.accept_queue_peak),
            whole(one.accept_queue_limit),
            one.syn_queue_len.map_or_else(absent, whole),
            rate(one.overflows_per_s, one.overflows_estimated),
            rate(one.drops_per_s, false),
        ],
        filled: (share.clamp(0.0, 1.0) * 100.0).round() as u32,
        level,
    }
}

fn server(one: &ServerConfig) -> Server {
    let version = one.version.as_ref().map(|version| format!(" {version}")).unwrap_or_default();
    let mut settings = Vec::new();
    let mut add = |name: &str, value: Option<(String, String)>| {
        settings.extend(value.map(|(value, at)| [name.to_owned(), value, at]));
    };
    add("keep-alive of clients' idle connections", time(one.keepalive_timeout_s.as_ref()));
    add("requests per connection", count(one.keepalive_requests.as_ref(), "no limit"));
    add("TCP keep-alive probes after", time_or(one.tcp_keepalive_s.as_ref(), "none are sent"));
    add("workers", count(one.workers.as_ref(), "0"));
    for (name, size) in buffers(one.buffers.as_ref()) {
        add(name, size);
    }
    Server {
        name: format!("{}{version} · PID {}", one.program.name(), one.pid),
        settings,
        listens: one.listens.iter().map(listen).collect(),
        upstreams: one.upstreams.iter().map(upstream).collect(),
        files: one.files_read.clone(),
        unread: one.unread.clone(),
    }
}

fn listen(one: &Listen) -> Vec<String> {
    let absent = || number::ABSENT.to_owned();
    let placed = |value: Option<(String, String)>| {
        value.map_or_else(absent, |(value, at)| format!("{value} ({at})"))
    };
    vec![
        one.section.as_ref().map_or_else(|| one.on.clone(), |name| format!("{} ({name})", one.on)),
        placed(count(one.backlog.as_ref(), "0")),
        placed(time(one.keepalive_timeout_s.as_ref())),
        placed(count(one.workers.as_ref(), "0")),
    ]
}

fn upstream(one: &Upstream) -> Vec<String> {
    let absent = || number::ABSENT.to_owned();
    let placed = |value: Option<(String, String)>| {
        value.map_or_else(absent, |(value, at)| format!("{value} ({at})"))
    };
    let mut members = one.servers[..one.servers.len().min(MEMBERS_MAX)].join(", ");
    if one.servers.len() > MEMBERS_MAX {
        members += &format!(" and {} more", one.servers.len() - MEMBERS_MAX);
    }
    let reuses = one.reuses.as_ref().map(|reuses| {
        let word = if reuses.value { "yes" } else { "no" };
        (word.to_owned(), reuses.at.to_string())
    });
    vec![
        one.name.clone(),
        members,
        placed(count(one.idle_connections.as_ref(), "0")),
        placed(time(one.idle_timeout_s.as_ref())),
        placed(reuses),
        placed(time(one.connect_timeout_s.as_ref())),
        placed(time(one.response_timeout_s.as_ref())),
    ]
}

fn buffers(buffers: Option<&Buffers>) -> [(&'static str, Option<(String, String)>); 2] {
    let size =
        |of: Option<&Sourced<u64>>| of.map(|size| (number::bytes(size.value), size.at.to_string()));
    [
        ("receive buffer", size(buffers.and_then(|of| of.receive.as_ref()))),
        ("send buffer", size(buffers.and_then(|of| of.send.as_ref()))),
    ]
}

/// A time and its place.
fn time(of: Option<&Sourced<f64>>) -> Option<(String, String)> {
    time_or(of, "0 s")
}

/// As [`time`], with words for zero.
fn time_or(of: Option<&Sourced<f64>>, zero: &str) -> Option<(String, String)> {
    let value = |value: f64| {
        if value == 0.0 { zero.to_owned() } else { number::metric(value, "s") }
    };
    of.map(|one| (value(one.value), one.at.to_string()))
}

/// A count and its place, with words for zero.
fn count(of: Option<&Sourced<u64>>, zero: &str) -> Option<(String, String)> {
    let value = |n: u64| if n == 0 { zero.to_owned() } else { number::count(n) };
    of.map(|one| (value(one.value), one.at.to_string()))
}
