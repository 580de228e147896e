//! An examination as a sheet: what was looked at, what is wrong, what to type; then every listener and setting.

use tcptoll_core::sheet::{
    Align, Article, Cell, Column, Forms, Note, Part, Parts, Row, Sheet, Table, Tone,
};
use tcptoll_core::units::{host_port, text_size};
use tcptoll_show::{findings, number};

use super::{
    Buffers, Examination, Listen, Proof, ProofVerdict, ServerConfig, Sourced, Upstream, sentences,
};
use crate::watch::ListenerState;
use tcptoll_core::finding::{self, Finding};

/// Where words begin beside a label.
const INDENT: usize = 14;
/// Servers that a terminal names.
const SERVERS_MAX: usize = 8;
/// Servers of a group that are named in a table.
const MEMBERS_MAX: usize = 8;

/// What there is to see of an examination. `provable` names the findings that `--prove` can re-create.
#[must_use]
pub fn examination_sheet(examination: &Examination, provable: &[&str]) -> Sheet {
    let Examination { time, host, tcptoll_version, report_version, .. } = examination;
    let cost = sentences::cost(examination);
    let took = cost.as_ref().map(|cost| format!("The examination took {cost} · "));
    let took = took.unwrap_or_default();
    let asked_in_vain = examination.proofs.iter().filter(|proof| proof.subject.is_empty());
    let unproved =
        |proof: &Proof| Note { about: "Not proved".to_owned(), ..proof.text.as_str().into() };
    let mut sheet = Sheet {
        title: format!("tcptoll doctor · {host}"),
        kicker: "tcptoll doctor".to_owned(),
        question: "What is wrong with the connections and servers of this machine?".to_owned(),
        answer: [sentences::answer(examination), String::new()],
        tone: if examination.problems() > 0 { Tone::Bad } else { Tone::Strong },
        doubts: asked_in_vain.map(unproved).collect(),
        place: sentences::place(examination),
        time: time.clone(),
        file_name: "doctor.json".to_owned(),
        footer: format!("{took}tcptoll {tcptoll_version} · report version {report_version}"),
        ..Sheet::default()
    };
    sheet.about.put(Forms::TEXT, Part::list("servers", names(examination), Tone::Dim));
    let cost = cost.map(|cost| Part::labelled("  cost", INDENT, cost, Tone::Dim));
    sheet.about.0.extend(cost.map(|cost| (Forms::TEXT, cost)));
    let missing = sentences::missing(examination, false);
    sheet.about.put(Forms::ALL, Part::list("unexamined", missing, Tone::Doubt));
    let parts = &mut sheet.parts;
    let is_clean = examination.findings.is_empty();
    if is_clean {
        let text = sentences::looked_at(examination).join(", ");
        parts.put(Forms::ALL, Part::labelled("  examined", INDENT, text, Tone::Plain));
    }
    for (at, one) in examination.findings.iter().enumerate() {
        let provable = provable.contains(&one.id.as_str());
        let finding = finding(examination, one, at + 1, provable);
        parts.put(Forms::TEXT, Part::Blank);
        parts.put(Forms::ALL, Part::Finding(Box::new(finding)));
    }
    parts.put(Forms::PAGE, Part::heading("Listeners"));
    parts.put(Forms::PAGE, listeners(examination));
    parts.put(Forms::PAGE, Part::heading("Servers and their settings"));
    put_servers(parts, &examination.examined.servers);
    parts.put(Forms::PAGE, Part::heading("What this examination does not see"));
    // Whoever has findings to read is not told on a terminal what no examination looks at.
    let forms = if is_clean { Forms::ALL } else { Forms::PAGE };
    let missing = sentences::missing(examination, true);
    parts.put(forms, Part::list("unexamined", missing, Tone::Plain));
    sheet
}

/// What the lab showed of a finding, for a terminal.
#[must_use]
pub fn proof_parts(proof: &Proof) -> Parts {
    let tone = match proof.verdict {
        ProofVerdict::Shown => Tone::Strong,
        ProofVerdict::NotShown | ProofVerdict::NotRun => Tone::Doubt,
    };
    let about = [proof.finding.as_str(), &proof.subject].into_iter().filter(|one| !one.is_empty());
    let about = about.collect::<Vec<_>>().join(" · ");
    let text = format!("{about}: {}", sentences::verdict(proof.verdict));
    let mut parts = Parts::default();
    parts.put(Forms::TEXT, Part::labelled("proof", INDENT, text, tone));
    parts.put(Forms::TEXT, Part::prose(2, &proof.text, Tone::Plain));
    // In one piece, so that they can be copied.
    let command = (!proof.command.is_empty()).then(|| findings::command(&proof.command));
    for (label, text) in [("  repeat", command), ("  record", proof.record.clone())] {
        if let Some(text) = text {
            parts.put(Forms::TEXT, Part::line(format!("{label:INDENT$}{text}"), Tone::Plain));
        }
    }
    parts
}

/// The servers that run here, in short.
fn names(examination: &Examination) -> Vec<String> {
    let servers = &examination.examined.servers;
    if servers.is_empty() {
        return vec![format!("no {} runs here", sentences::PROGRAMS.replace(" and ", " or "))];
    }
    let mut names: Vec<String> = servers.iter().take(SERVERS_MAX).map(sentences::server).collect();
    if servers.len() > SERVERS_MAX {
        names.push(format!("and {} more", servers.len() - SERVERS_MAX));
    }
    names
}

/// `at`: the how many-th it is; `provable`: whether the lab can re-create it.
fn finding(examination: &Examination, one: &Finding, at: usize, provable: bool) -> Article {
    let mut proofs = examination.proofs.iter();
    let proof = proofs.find(|proof| proof.finding == one.id && proof.subject == one.subject);
    let proof =
        proof.map(|proof| [sentences::verdict(proof.verdict).to_owned(), proof.text.clone()]);
    let about = [&one.id, &one.subject, &one.text];
    let mut finding = finding::article(one.severity, about, one.fix());
    finding.anchor = format!("finding-{at}");
    finding.evidence = sentences::evidence(one);
    finding.proof = proof;
    if provable {
        let command = findings::command(&examination.prove_command(&one.id));
        finding.more.push(["prove".to_owned(), command]);
    }
    finding
}

/// Every listener with its queue.
fn listeners(examination: &Examination) -> Part {
    let examined = &examination.examined;
    if examined.queues.is_empty() {
        return Part::prose(0, "No TCP socket listens here.", Tone::Plain);
    }
    let heads = [
        "listener",
        "queue now",
        "peak",
        "limit",
        "SYN-RECEIVED",
        "overflows/s",
        "drops/s",
        "peak of limit",
    ];
    let columns = heads.map(|head| Column::new(head, Align::Right)).into();
    let left_out = match examined.listeners.saturating_sub(examined.queues.len() as u64) {
        0 => String::new(),
        count => format!(" {count} more listeners are not listed."),
    };
    let note = format!(
        "Queue: connections that wait for accept(2). Peak: the longest queue of all looks (one look per second). \
         A queue holds one connection more than its limit. — : not known.{left_out}"
    );
    let table = Table::new(columns, examined.queues.iter().map(listener));
    Part::Table(Table { sortable: true, note: Some(note), ..table })
}

fn listener(one: &ListenerState) -> [Cell; 8] {
    let process = one.process.as_ref();
    let process = process.map(|process| format!("{} ({})", process.name, process.pid));
    let whole = |n: u32| Cell { value: Some(n.into()), ..number::count(n).into() };
    let absent = || Cell::from(number::ABSENT);
    let rate = |rate: Option<f64>, about: &str| {
        let cell =
            |rate| Cell { value: Some(rate), ..format!("{about}{}", number::three(rate)).into() };
        rate.map_or_else(absent, cell)
    };
    // The queue holds one more than its limit.
    let share = f64::from(one.accept_queue_peak) / (f64::from(one.accept_queue_limit) + 1.0);
    let filled = (share.clamp(0.0, 1.0) * 100.0).round();
    [
        Cell {
            small: process.unwrap_or_else(|| number::ABSENT.to_owned()),
            ..host_port(&one.address, one.port).into()
        },
        whole(one.accept_queue_len),
        whole(one.accept_queue_peak),
        whole(one.accept_queue_limit),
        one.syn_queue_len.map_or_else(absent, whole),
        rate(one.overflows_per_s, if one.overflows_estimated { "~" } else { "" }),
        rate(one.drops_per_s, ""),
        Cell { value: Some(filled), bar: true, ..format!("{filled} %").into() },
    ]
}

/// Each server with its settings, and where they are from.
fn put_servers(parts: &mut Parts, servers: &[ServerConfig]) {
    if servers.is_empty() {
        let text = format!("None of {} runs here.", sentences::PROGRAMS);
        parts.put(Forms::PAGE, Part::prose(0, text, Tone::Plain));
    }
    for one in servers {
        let version = one.version.as_ref().map(|version| format!(" {version}")).unwrap_or_default();
        let name = format!("{}{version} · PID {}", one.program.name(), one.pid);
        parts.put(Forms::PAGE, Part::title(name));
        let columns = ["setting", "value", "from"].map(|head| Column::new(head, Align::Left));
        let rows = settings(one);
        if !rows.is_empty() {
            let table = Table { columns: columns.into(), rows, ..Table::default() };
            parts.put(Forms::PAGE, Part::Table(table));
        }
        if !one.unread.is_empty() {
            let unread = one.unread.iter().map(|why| format!("not read: {why}"));
            parts.put(Forms::PAGE, Part::notes(unread));
        }
        if !one.files_read.is_empty() {
            let files = vec![Part::notes(one.files_read.iter().cloned())];
            let count = one.files_read.len().to_string();
            parts.put(Forms::PAGE, Part::folded("Files read", count, files));
        }
    }
}

/// A setting, its value, and where it stands; absent where it is not known.
type Setting = Option<[String; 3]>;

/// Settings of the server as a whole, then those of its parts.
fn settings(server: &ServerConfig) -> Vec<Row> {
    let mut settings = vec![
        time("idle timeout of client connections", server.keepalive_timeout_s.as_ref(), "0 s"),
        count("requests per connection", server.keepalive_requests.as_ref(), "no limit"),
        time("TCP keep-alive probes after", server.tcp_keepalive_s.as_ref(), "never"),
        count("concurrent requests or connections", server.workers.as_ref(), "0"),
    ];
    settings.extend(buffers(server.buffers.as_ref()));
    let mut rows: Vec<Row> = cells(settings).collect();
    let listens = server.listens.iter().map(|listen| listening(listen, server));
    for (text, settings) in listens.chain(server.upstreams.iter().map(upstream)) {
        rows.push(Row::Group { text });
        rows.extend(cells(settings));
    }
    rows
}

fn cells(settings: Vec<Setting>) -> impl Iterator<Item = Row> {
    let row =
        |texts: [String; 3]| Row::Cells { cells: texts.map(Cell::from).into(), marked: false };
    settings.into_iter().flatten().map(row)
}

/// An address that a server listens on, with what differs there from the server as a whole.
fn listening(one: &Listen, server: &ServerConfig) -> (String, Vec<Setting>) {
    let own = |listen: &Option<Sourced<f64>>, whole: &Option<Sourced<f64>>| {
        listen.clone().filter(|_| listen != whole)
    };
    let keepalive = own(&one.keepalive_timeout_s, &server.keepalive_timeout_s);
    let probes = own(&one.tcp_keepalive_s, &server.tcp_keepalive_s);
    let workers = one.workers.clone().filter(|_| one.workers != server.workers);
    let mut settings = vec![
        count("requested backlog", one.backlog.as_ref(), "0"),
        time("idle timeout of client connections", keepalive.as_ref(), "0 s"),
        time("TCP keep-alive probes after", probes.as_ref(), "never"),
        count("concurrent requests or connections", workers.as_ref(), "0"),
        time("request timeout", one.request_timeout_s.as_ref(), "no limit"),
    ];
    settings.extend(buffers(one.buffers.as_ref()));
    let section = one.section.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
    (format!("listens on {}{section}", one.on), settings)
}

fn upstream(one: &Upstream) -> (String, Vec<Setting>) {
    let mut members = one.servers[..one.servers.len().min(MEMBERS_MAX)].join(", ");
    if one.servers.len() > MEMBERS_MAX {
        members += &format!(" and {} more", one.servers.len() - MEMBERS_MAX);
    }
    let yes = |name: &str, value: Option<&Sourced<bool>>| {
        let word = |yes: bool| if yes { "yes" } else { "no" };
        value.map(|one| [name.to_owned(), word(one.value).to_owned(), one.at.to_string()])
    };
    let settings = vec![
        count("idle connections kept", one.idle_connections.as_ref(), "none"),
        time("idle timeout", one.idle_timeout_s.as_ref(), "0 s"),
        yes("requests allow connection reuse", one.reuses.as_ref()),
        count("requests per connection", one.requests_per_connection.as_ref(), "no limit"),
        time("connect timeout", one.connect_timeout_s.as_ref(), "none"),
        time("queue timeout", one.queue_timeout_s.as_ref(), "0 s"),
        time("response timeout", one.response_timeout_s.as_ref(), "none"),
        yes("TCP keep-alive probes", one.probes.as_ref()),
    ];
    (format!("upstream {}: {members}", one.name), settings)
}

fn buffers(buffers: Option<&Buffers>) -> [Setting; 2] {
    let row = |name: &str, value: Option<&Sourced<u64>>| {
        value.map(|size| [name.to_owned(), text_size(size.value), size.at.to_string()])
    };
    [
        row("requested receive buffer", buffers.and_then(|sizes| sizes.receive.as_ref())),
        row("requested send buffer", buffers.and_then(|sizes| sizes.send.as_ref())),
    ]
}

/// A time, with words for zero.
fn time(name: &str, sourced: Option<&Sourced<f64>>, zero: &str) -> Setting {
    let Sourced { value, at } = sourced?;
    let value =
        if *value == 0.0 { zero.to_owned() } else { format!("{} s", number::plain(*value)) };
    Some([name.to_owned(), value, at.to_string()])
}

/// A count, with words for zero.
fn count(name: &str, sourced: Option<&Sourced<u64>>, zero: &str) -> Setting {
    let Sourced { value, at } = sourced?;
    let value = if *value == 0 { zero.to_owned() } else { number::count(*value) };
    Some([name.to_owned(), value, at.to_string()])
}
