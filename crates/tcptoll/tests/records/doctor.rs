//! Examinations of machines that were made up: their text, their JSON and their page.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tcptoll_core::finding::{Finding, Remedy, Severity};
use tcptoll_live::doctor::{
    ConfigPosition, Examination, Listen, Machine, Program, Proof, ProofVerdict, ServerConfig,
    Sourced, Upstream, brief, examination_sheet, proof_parts,
};
use tcptoll_live::watch::{ListenerState, Process, Rates};
use tcptoll_show::{TextStyle, sheet};

use super::html::{is_closed_in_order, tags};
use super::{is_snapshot, page};

const PROVABLE: &[&str] = &["accept-queue-full", "close-race"];

fn sourced<T>(value: T, file: &str, line: impl Into<Option<u32>>) -> Sourced<T> {
    Sourced { value, at: ConfigPosition { file: file.to_owned(), line: line.into() } }
}

fn listener(port: u16, peak: u32, limit: u32, process: Option<(u32, &str)>) -> ListenerState {
    ListenerState {
        address: "0.0.0.0".to_owned(),
        port,
        inode: u64::from(port),
        sockets: 1,
        process: process.map(|(pid, name)| Process { pid, name: name.to_owned() }),
        accept_queue_peak: peak,
        accept_queue_recent_peak: peak,
        accept_queue_limit: limit,
        overflows_per_s: Some(0.0),
        drops_per_s: Some(0.0),
        drops: Some(0),
        ..ListenerState::default()
    }
}

fn nginx() -> ServerConfig {
    let file = "/etc/nginx/nginx.conf";
    ServerConfig {
        version: Some("1.22.1".to_owned()),
        listens: vec![Listen {
            on: "0.0.0.0:80".to_owned(),
            backlog: Some(sourced(511, "the default of nginx 1.22.1", None)),
            ..Listen::default()
        }],
        keepalive_timeout_s: Some(sourced(75.0, file, 9)),
        upstreams: vec![Upstream {
            name: "app".to_owned(),
            servers: vec!["127.0.0.1:8081".to_owned()],
            idle_connections: Some(sourced(32, file, 10)),
            idle_timeout_s: Some(sourced(60.0, file, 10)),
            reuses: Some(sourced(true, file, 13)),
            ..Upstream::default()
        }],
        files_read: vec![file.to_owned()],
        ..ServerConfig::new(Program::Nginx, 712)
    }
}

fn machine() -> Machine {
    let mut machine = Machine { servers: vec![nginx()], ..Machine::default() };
    let state = &mut machine.state;
    "2026-11-23T08:00:00.000Z".clone_into(&mut state.time);
    "web-1".clone_into(&mut state.host);
    state.interval_s = 5.0;
    state.cost.cpu_s = 0.0491;
    state.cost.cpu_share = 0.009_82;
    state.cost.resident_bytes = 9 << 20;
    state.table_age_s = Some(0.0);
    state.rates = Some(Rates::default());
    state.states =
        BTreeMap::from([("ESTABLISHED".to_owned(), 1_280), ("TIME-WAIT".to_owned(), 91)]);
    state.listeners = vec![listener(80, 3, 511, Some((712, "nginx")))];
    machine.sysctls.insert("net.core.somaxconn".to_owned(), "4096".to_owned());
    machine
}

fn finding(id: &str, severity: Severity, subject: &str, text: &str, evidence: &Value) -> Finding {
    Finding {
        id: id.to_owned(),
        severity,
        subject: subject.to_owned(),
        text: text.to_owned(),
        evidence: serde_json::from_value(evidence.clone()).unwrap(),
        remedies: Vec::new(),
    }
}

fn three() -> Vec<Finding> {
    let mut full = finding(
        "accept-queue-full",
        Severity::Problem,
        "0.0.0.0:6379",
        "214 overflows/s at 0.0.0.0:6379: accept queue full, 129 of 128",
        &json!({"overflows_per_s": 214.0, "accept_queue_limit": 128, "pid": 4711}),
    );
    full.remedies = vec![Remedy {
        change: "Raise the application's backlog, which limits the queue to 128.".to_owned(),
        commands: vec!["tcp-backlog 4096".to_owned(), "systemctl restart redis-server".to_owned()],
        effect: "The queue holds 4,097 connections.".to_owned(),
        cost: "A server that accepts too slowly fills any queue, and clients wait longer."
            .to_owned(),
        undo: "Set the former backlog (the limit was 128).".to_owned(),
        ..Remedy::default()
    }];
    let mut race = finding(
        "close-race",
        Severity::Warning,
        "nginx → 127.0.0.1:8081",
        "Apache closes idle connections after 5 s; nginx reuses them for 60 s (app)",
        &json!({"proxy_configured_at": "/etc/nginx/nginx.conf:10", "proxy_idle_timeout_s": 60.0}),
    );
    race.remedies = vec![Remedy {
        change: "Let Apache keep idle connections for longer than nginx.".to_owned(),
        commands: vec!["KeepAliveTimeout 70".to_owned()],
        ..Remedy::default()
    }];
    let lost = finding(
        "retransmissions",
        Severity::Warning,
        "segments of this host",
        "2.1 % of segments retransmitted (210 of 10,000 in 5 s)",
        &json!({"TcpRetransSegs": 210, "TcpOutSegs": 10_000}),
    );
    vec![full, race, lost]
}

/// Every string of it holds what steers a terminal, ends an element or opens a template.
fn hostile() -> Examination {
    const EVIL: &str =
        "\u{1b}]0;x\u{7}\u{1b}[2J<script>alert(1)</script>{{ view }}\u{202e}\r\n';\"&";
    fn walk(value: &mut Value) {
        match value {
            Value::String(text) => text.push_str(EVIL),
            Value::Array(items) => items.iter_mut().for_each(walk),
            Value::Object(map) => map.values_mut().for_each(walk),
            _ => {}
        }
    }
    let mut machine = machine();
    machine.servers[0].unread = vec!["/etc/nginx/a.conf: permission denied".to_owned()];
    machine.notes = vec!["a note".to_owned()];
    let mut findings = three();
    findings[0].evidence.insert("process".to_owned(), "x".into());
    findings[0].evidence.insert(EVIL.to_owned(), EVIL.into());
    let mut examination = Examination::new(&machine, Some("42"), findings);
    examination.proofs = vec![proof()];
    // Names of programs, severities and verdicts are words of ours.
    let mut value = serde_json::to_value(&examination).unwrap();
    let keep: Vec<(String, Value)> = ["/examined/servers/0/program", "/proofs/0/verdict"]
        .into_iter()
        .chain(["/findings/0/severity", "/findings/1/severity", "/findings/2/severity"])
        .map(|at| (at.to_owned(), value.pointer(at).unwrap().clone()))
        .collect();
    walk(&mut value);
    for (at, word) in keep {
        *value.pointer_mut(&at).unwrap() = word;
    }
    serde_json::from_value(value).unwrap()
}

fn proof() -> Proof {
    Proof {
        finding: "accept-queue-full".to_owned(),
        subject: "0.0.0.0:6379".to_owned(),
        verdict: ProofVerdict::Shown,
        text: "As it is, 9 of 100 connections waited 1 s; with the fix none did.".to_owned(),
        command: ["tcptoll", "doctor", "--prove", "accept-queue-full"].map(str::to_owned).into(),
        took_s: 12.0,
        ..Proof::default()
    }
}

fn nothing() -> Examination {
    Examination::new(&machine(), None, Vec::new())
}

fn unread() -> Examination {
    let mut machine = machine();
    let mut apache = ServerConfig::new(Program::Apache, 801);
    apache.unread = (1..=5)
        .map(|at| format!("/etc/apache2/{at}.conf: permission denied: run with sudo"))
        .collect();
    machine.servers.push(apache);
    machine.state.listeners.push(listener(8081, 0, 511, None));
    machine.notes = vec!["net.core.somaxconn changed from 128 to 4096 meanwhile".to_owned()];
    Examination::new(&machine, Some("4711"), Vec::new())
}

fn found() -> Examination {
    let mut machine = machine();
    machine.state.listeners.insert(0, listener(6379, 129, 128, Some((4711, "redis-server"))));
    machine.state.listeners[0].overflows_per_s = Some(214.0);
    let mut found = Examination::new(&machine, None, three());
    found.proofs = vec![proof()];
    found
}

fn text_of(examination: &Examination, width: usize) -> String {
    sheet::text(&examination_sheet(examination, PROVABLE), TextStyle { colour: false, width })
}

fn page_of(examination: &Examination) -> String {
    let page = examination_sheet(examination, PROVABLE);
    sheet::html(page, examination)
}

#[test]
fn examinations_are_rendered_as_reviewed() {
    let all =
        [("nothing", nothing()), ("unread", unread()), ("found", found()), ("hostile", hostile())];
    for (name, examination) in all {
        let style = TextStyle { colour: true, width: 80 };
        let coloured = sheet::text(&examination_sheet(&examination, PROVABLE), style);
        let outputs = [
            ("80 columns", text_of(&examination, 80)),
            ("150 columns", text_of(&examination, 150)),
            ("colour", coloured),
            ("page", page::body(&page_of(&examination))),
            ("JSON", serde_json::to_string(&examination).unwrap()),
        ];
        is_snapshot(&format!("doctor_{name}"), outputs);
        let check = Some("`ss -lnt` shows a Recv-Q above the Send-Q.");
        let style = TextStyle { colour: false, width: 80 };
        let brief = brief(&examination, PROVABLE, check, style);
        is_snapshot(&format!("doctor_{name}_brief"), [("brief", brief)]);
    }
    let style = TextStyle { colour: false, width: 80 };
    let proof = sheet::parts(&proof_parts(&proof()), style);
    is_snapshot("doctor_proof", [("80 columns", proof)]);
}

#[test]
fn no_line_but_a_command_is_wider_than_the_terminal() {
    for examination in [nothing(), unread(), found()] {
        for width in [60, 80, 120] {
            let text = text_of(&examination, width);
            for line in text.lines().filter(|line| !line.contains("to examine: ")) {
                assert!(console::measure_text_width(line) <= width, "{width}: {line}");
            }
        }
    }
}

#[test]
fn a_hostile_machine_steers_neither_the_terminal_nor_the_page() {
    let examination = hostile();
    let text = text_of(&examination, 80);
    let odd = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    assert_eq!(text.chars().find(|&c| odd(c)), None, "{text}");
    assert!(text.contains("{{ view }}"), "what is harmless is shown as it is");
    let page = page_of(&examination);
    // The data are as they were read.
    assert_eq!(page::body(&page).chars().find(|&c| odd(c)), None);
    let scripts = tags(&page).into_iter().filter(|tag| tag.starts_with("script")).count();
    assert_eq!(scripts, 2, "the data and our own script");
    assert!(!page.contains("<script>alert"), "a name ran as a script");
}

#[test]
fn every_element_of_the_page_is_closed_in_order() {
    for examination in [nothing(), unread(), found(), hostile()] {
        is_closed_in_order("an examination", &page_of(&examination));
    }
}

#[test]
fn the_page_has_the_examination_as_data() {
    let examination = hostile();
    let page = page_of(&examination);
    let data = page.split_once("id=\"summary\">").unwrap().1.split_once("</script>").unwrap().0;
    let read: Examination = serde_json::from_str(data).unwrap();
    assert_eq!(read, examination);
}

#[test]
fn a_finding_that_was_proven_shows_its_verdict_and_how_to_repeat_it() {
    let page = page_of(&found());
    assert!(page.contains("Proof: shown."));
    for finding in ["accept-queue-full", "close-race"] {
        assert!(page.contains(&format!("prove: <code>tcptoll doctor --prove {finding}")));
    }
    assert!(!page.contains("--prove retransmissions"), "the lab cannot hold it");
}
