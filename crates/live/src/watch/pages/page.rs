//! The record of a watch as a page.

use crate::watch::{Review, Series};
use serde::Serialize;

use super::chart::{Picture, anchor, timeline};
use super::tables::{self, Table};
use super::{CleanReview, pictures};
use tcptoll_show::html::Frame;
use tcptoll_show::number::whole;
use tcptoll_show::{clean, number};

const FRAME: Frame =
    Frame { content: include_str!("page.html"), style: include_str!("page.css"), script: "" };

#[derive(Serialize)]
struct WatchPage {
    title: String,
    answer: [String; 2],
    doubts: Vec<String>,
    place: Vec<String>,
    timeline: Option<Picture>,
    pictures: Vec<Picture>,
    tables: Vec<PageTable>,
    causes: Vec<Cause>,
    machine: Vec<[String; 2]>,
    command: String,
    file_name: String,
    version: String,
    record_version: u32,
}

#[derive(Serialize)]
struct PageTable {
    title: &'static str,
    heads: Vec<&'static str>,
    words: Vec<usize>,
    rows: Vec<Vec<String>>,
    note: Option<String>,
}

/// What fixes a cause, of each subject that had it.
#[derive(Serialize)]
struct Cause {
    anchor: String,
    id: String,
    explain: String,
    /// Whether a subject of it was harmed.
    problem: bool,
    subjects: Vec<OfSubject>,
}

#[derive(Serialize)]
struct OfSubject {
    subject: String,
    problem: bool,
    text: String,
    change: String,
    commands: Vec<String>,
    effect: String,
    risk: String,
    undo: String,
}

/// `original` is embedded as data.
pub(super) fn render(view: &CleanReview<'_>, original: &Review, series: &Series) -> String {
    let page = build(view, original, series);
    FRAME.page(&page.title, &page, &[original])
}

fn build(view: &CleanReview<'_>, original: &Review, series: &Series) -> WatchPage {
    let review = &view.review;
    let raw: Vec<String> = original.destinations.iter().map(|one| one.to.clone()).collect();
    let all = [
        tables::episodes(view),
        tables::listeners(view),
        tables::destinations(view),
        tables::counts(view),
        tables::gaps(view),
    ];
    let command: Vec<String> =
        review.command.iter().map(|word| tcptoll_core::printable::shell_argument(word)).collect();
    WatchPage {
        title: format!("tcptoll watch: {}", tables::answer(view)[0]),
        answer: tables::answer(view),
        doubts: tables::doubts(view),
        place: tables::place(view),
        timeline: timeline(view),
        pictures: pictures::all(view, series, &raw),
        tables: all.into_iter().filter(|table| !table.rows.is_empty()).map(table).collect(),
        causes: causes(review),
        machine: machine(review),
        command: command.join(" "),
        file_name: "tcptoll-watch.json".to_owned(),
        version: review.tcptoll_version.clone(),
        record_version: review.record_version,
    }
}

fn table(table: Table) -> PageTable {
    let Table { title, heads, words, rows, note } = table;
    PageTable { title, heads, words, rows, note }
}

/// Each cause once, with the episodes of each subject at its worst.
fn causes(review: &Review) -> Vec<Cause> {
    let mut causes: Vec<Cause> = Vec::new();
    for one in &review.episodes {
        let fix = one.fix.clone().unwrap_or_default();
        let subject = OfSubject {
            subject: one.subject.clone(),
            problem: one.severity == crate::diagnosis::Severity::Problem,
            text: one.text.clone(),
            change: fix.change,
            commands: fix.commands,
            effect: fix.effect,
            risk: fix.risk,
            undo: fix.undo,
        };
        match causes.iter_mut().find(|cause| cause.id == one.id) {
            Some(cause) => {
                cause.problem |= subject.problem;
                if cause.subjects.len() < 20
                    && !cause.subjects.iter().any(|known| known.subject == subject.subject)
                {
                    cause.subjects.push(subject);
                }
            }
            None => causes.push(Cause {
                anchor: anchor(one),
                id: one.id.clone(),
                explain: format!("tcptoll explain {}", clean::line(&one.id)),
                problem: subject.problem,
                subjects: vec![subject],
            }),
        }
    }
    causes
}

fn machine(review: &Review) -> Vec<[String; 2]> {
    let passport = &review.passport;
    let mut pairs = vec![
        ["kernel".to_owned(), passport.kernel.clone()],
        ["CPU".to_owned(), format!("{} × {}", passport.cpus, passport.cpu)],
        ["memory".to_owned(), number::bytes(passport.memory_bytes)],
    ];
    let limits = &review.limits;
    let known = [
        ("net.core.somaxconn", limits.somaxconn.map(u64::from)),
        ("net.ipv4.tcp_max_syn_backlog", limits.max_syn_backlog.map(u64::from)),
        ("net.ipv4.tcp_syncookies", limits.syncookies.map(u64::from)),
        ("local ports", limits.local_ports.map(u64::from)),
        ("net.ipv4.tcp_tw_reuse", limits.tw_reuse.map(u64::from)),
        ("net.ipv4.tcp_max_tw_buckets", limits.max_tw_buckets),
        ("net.netfilter.nf_conntrack_max", limits.tracked_max),
    ];
    for (name, value) in known {
        pairs.extend(value.map(|value| [name.to_owned(), whole(value as i64)]));
    }
    pairs
}
