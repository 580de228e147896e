//! What does the page of an examination hold? Words and tables, put together from the object.

use serde::Serialize;
use tcptoll_show::{findings, number};

use super::{Buffers, Examination, Listen, ServerConfig, Sourced, Upstream, sentences};
use crate::diagnosis::{Diagnosis, Severity};
use crate::watch::ListenerState;

/// Servers of a group that are named in a table.
const MEMBERS_MAX: usize = 8;

#[derive(Serialize)]
pub(super) struct DoctorPage {
    pub(super) title: String,
    kicker: String,
    answer: String,
    clean: bool,
    looked_at: String,
    place: Vec<String>,
    missing: Vec<Missing>,
    findings: Vec<Finding>,
    /// Findings that were to be proved, and are not there.
    unproved: Vec<String>,
    listeners: Vec<Listener>,
    listeners_left_out: u64,
    servers: Vec<Server>,
    programs: &'static str,
    by_design: Vec<Missing>,
    cost: Option<String>,
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
    evidence: Vec<(String, String)>,
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
    groups: Vec<Group>,
    files: Vec<String>,
    unread: Vec<String>,
}

/// Settings of one part of a server: name, value and where it stands.
#[derive(Serialize)]
struct Group {
    /// The part; empty: the server as a whole.
    part: String,
    rows: Vec<[String; 3]>,
}

/// Puts the page of a cleaned examination together.
pub(super) fn build(examination: &Examination, provable: &[&str]) -> DoctorPage {
    let examined = &examination.examined;
    let missing = |by_design| {
        let parts = sentences::missing(examination, by_design).into_iter();
        parts.map(|one| Missing { what: one.what, why: one.why, remedy: one.remedy }).collect()
    };
    let listeners: Vec<Listener> = examined.queues.iter().map(listener).collect();
    DoctorPage {
        title: format!("tcptoll doctor · {}", examination.host),
        kicker: format!("tcptoll doctor · {}", examination.host),
        answer: sentences::answer(examination),
        clean: examination.findings.is_empty(),
        looked_at: sentences::looked_at(examination).join(", "),
        place: sentences::place(examination).into_iter().skip(1).collect(),
        missing: missing(false),
        findings: examination
            .findings
            .iter()
            .map(|one| finding(examination, one, provable))
            .collect(),
        unproved: examination
            .proofs
            .iter()
            .filter(|proof| proof.subject.is_empty())
            .map(|proof| proof.text.clone())
            .collect(),
        listeners_left_out: examined.listeners.saturating_sub(listeners.len() as u64),
        listeners,
        servers: examined.servers.iter().map(server).collect(),
        programs: sentences::PROGRAMS,
        by_design: missing(true),
        cost: sentences::cost(examination),
        time: examination.time.clone(),
        version: examination.tcptoll_version.clone(),
        report_version: examination.report_version,
        file_name: "doctor.json".to_owned(),
    }
}

fn finding(examination: &Examination, one: &Diagnosis, provable: &[&str]) -> Finding {
    let fix = one.fix.as_ref().map(|fix| Fix {
        change: fix.change.clone(),
        commands: fix.commands.join("\n"),
        words: [("effect", &fix.effect), ("risk", &fix.risk), ("undo", &fix.undo)]
            .into_iter()
            .filter(|(_, text)| !text.is_empty())
            .map(|(name, text)| [name.to_owned(), text.clone()])
            .collect(),
    });
    let mut proofs = examination.proofs.iter();
    let proof = proofs.find(|proof| proof.finding == one.id && proof.subject == one.subject);
    Finding {
        id: one.id.clone(),
        severity: one.severity.word(),
        problem: one.severity == Severity::Problem,
        subject: one.subject.clone(),
        text: one.text.clone(),
        evidence: sentences::evidence(one),
        fix,
        explain: format!("tcptoll explain {}", one.id),
        prove: (proof.is_none() && provable.contains(&one.id.as_str()))
            .then(|| findings::command(&examination.prove_command(&one.id))),
        proof: proof.map(|proof| Proof {
            verdict: sentences::verdict(proof.verdict),
            shown: proof.verdict == crate::doctor::ProofVerdict::Shown,
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
    let mut groups = vec![whole(one)];
    groups.extend(one.listens.iter().map(|listen| listening(listen, one)));
    groups.extend(one.upstreams.iter().map(upstream));
    groups.retain(|group| !group.part.is_empty() || !group.rows.is_empty());
    Server {
        name: format!("{}{version} · PID {}", one.program.name(), one.pid),
        groups,
        files: one.files_read.clone(),
        unread: one.unread.clone(),
    }
}

fn whole(one: &ServerConfig) -> Group {
    let mut rows = vec![
        time("idle timeout of client connections", one.keepalive_timeout_s.as_ref(), "0 s"),
        count("requests per connection", one.keepalive_requests.as_ref(), "no limit"),
        time("TCP keep-alive probes after", one.tcp_keepalive_s.as_ref(), "never"),
        count("concurrent requests or connections", one.workers.as_ref(), "0"),
    ];
    rows.extend(buffers(one.buffers.as_ref()));
    Group { part: String::new(), rows: rows.into_iter().flatten().collect() }
}

/// An address that a server listens on, with what differs there from the server as a whole.
fn listening(one: &Listen, server: &ServerConfig) -> Group {
    let own = |listen: &Option<Sourced<f64>>, whole: &Option<Sourced<f64>>| {
        listen.clone().filter(|_| listen != whole)
    };
    let keepalive = own(&one.keepalive_timeout_s, &server.keepalive_timeout_s);
    let probes = own(&one.tcp_keepalive_s, &server.tcp_keepalive_s);
    let workers = one.workers.clone().filter(|_| one.workers != server.workers);
    let mut rows = vec![
        count("requested backlog", one.backlog.as_ref(), "0"),
        time("idle timeout of client connections", keepalive.as_ref(), "0 s"),
        time("TCP keep-alive probes after", probes.as_ref(), "never"),
        count("concurrent requests or connections", workers.as_ref(), "0"),
        time("request timeout", one.request_timeout_s.as_ref(), "no limit"),
    ];
    rows.extend(buffers(one.buffers.as_ref()));
    let section = one.section.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
    Group {
        part: format!("listens on {}{section}", one.on),
        rows: rows.into_iter().flatten().collect(),
    }
}

fn upstream(one: &Upstream) -> Group {
    let mut members = one.servers[..one.servers.len().min(MEMBERS_MAX)].join(", ");
    if one.servers.len() > MEMBERS_MAX {
        members += &format!(" and {} more", one.servers.len() - MEMBERS_MAX);
    }
    let yes = |name: &str, value: Option<&Sourced<bool>>| {
        let word = |yes: bool| if yes { "yes" } else { "no" };
        value.map(|one| [name.to_owned(), word(one.value).to_owned(), one.at.to_string()])
    };
    let rows = [
        count("idle connections kept", one.idle_connections.as_ref(), "none"),
        time("idle timeout", one.idle_timeout_s.as_ref(), "0 s"),
        yes("requests allow connection reuse", one.reuses.as_ref()),
        count("requests per connection", one.requests_per_connection.as_ref(), "no limit"),
        time("connect timeout", one.connect_timeout_s.as_ref(), "none"),
        time("queue timeout", one.queue_timeout_s.as_ref(), "0 s"),
        time("response timeout", one.response_timeout_s.as_ref(), "none"),
        yes("TCP keep-alive probes", one.probes.as_ref()),
    ];
    Group {
        part: format!("upstream {}: {members}", one.name),
        rows: rows.into_iter().flatten().collect(),
    }
}

fn buffers(buffers: Option<&Buffers>) -> [Option<[String; 3]>; 2] {
    let row = |name: &str, value: Option<&Sourced<u64>>| {
        value.map(|size| [name.to_owned(), number::bytes(size.value), size.at.to_string()])
    };
    [
        row("requested receive buffer", buffers.and_then(|sizes| sizes.receive.as_ref())),
        row("requested send buffer", buffers.and_then(|sizes| sizes.send.as_ref())),
    ]
}

/// The row of a time, with words for zero.
fn time(name: &str, sourced: Option<&Sourced<f64>>, zero: &str) -> Option<[String; 3]> {
    let sourced = sourced?;
    let value = if sourced.value == 0.0 {
        zero.to_owned()
    } else {
        format!("{} s", sentences::three(sourced.value))
    };
    Some([name.to_owned(), value, sourced.at.to_string()])
}

/// The row of a count, with words for zero.
fn count(name: &str, sourced: Option<&Sourced<u64>>, zero: &str) -> Option<[String; 3]> {
    let sourced = sourced?;
    let value = if sourced.value == 0 { zero.to_owned() } else { number::count(sourced.value) };
    Some([name.to_owned(), value, sourced.at.to_string()])
}
