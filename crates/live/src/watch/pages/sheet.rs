//! The record of a watch as a sheet: what was wrong when, then where and how much.

use std::path::Path;

use tcptoll_core::number;
use tcptoll_core::number::count;
use tcptoll_core::printable::shell_argument;
use tcptoll_core::sheet::{Forms, Note, Part, Parts, Picture, Sheet, Table, Tone};

use super::pictures::{anchor, timeline};
use super::{Dated, pictures, tables};
use crate::watch::{Episode, Review, Series};
use tcptoll_core::finding::{Severity, article};

/// Subjects of a cause on the page, at most.
const SUBJECTS_MAX: usize = 20;

/// `series`: what the page draws; none: no page is to be made.
pub(super) fn build(view: &Dated<'_>, record: Option<&Path>, series: Option<&Series>) -> Sheet {
    let review = view.review;
    let answer = tables::answer(view);
    let mut sheet = Sheet {
        title: format!("tcptoll watch: {}", answer[0]),
        kicker: "tcptoll watch".to_owned(),
        question: "What was wrong with the connections of this machine, and when?".to_owned(),
        answer,
        tone: Tone::Strong,
        doubts: tables::doubts(view).into_iter().map(Note::from).collect(),
        place: tables::place(view),
        record: record.map(|record| record.display().to_string()),
        file_name: "tcptoll-watch.json".to_owned(),
        footer: format!(
            "tcptoll {} · version {} of a watch's record",
            review.tcptoll_version, review.record_version
        ),
        ..Sheet::default()
    };
    sheet.about.put(Forms::MARKDOWN, Part::prose(0, sheet.place.join(" · "), Tone::Plain));
    if let Some(series) = series {
        sheet.lead.0.extend(timeline(view).map(|picture| (Forms::PAGE, Part::Picture(picture))));
        over_time(&mut sheet.parts, view, series);
    }
    causes(&mut sheet.parts, review);
    let parts = &mut sheet.parts;
    episodes(parts, view);
    table(parts, Forms::ALL, "Listeners", tables::listeners(view));
    table(parts, Forms::ALL, "Local ports by destination", tables::destinations(view));
    table(parts, Forms::ALL, "Counts", tables::counts(view));
    gaps(parts, view);
    fixes(parts, review);
    parts.put(Forms::PAGE, Part::heading("Machine and limits"));
    parts.put(Forms::PAGE, Part::Pairs { pairs: machine(review) });
    let command: Vec<String> = review.command.iter().map(|word| shell_argument(word)).collect();
    parts.put(Forms::WRITTEN, Part::heading("How it was recorded"));
    parts.put(Forms::WRITTEN, Part::Code { text: command.join(" ") });
    sheet
}

fn table(parts: &mut Parts, forms: Forms, title: &str, table: Table) {
    if !table.rows.is_empty() {
        parts.put(forms, Part::heading(title));
        parts.put(forms, Part::Table(table));
    }
}

fn over_time(parts: &mut Parts, view: &Dated<'_>, series: &Series) {
    parts.put(Forms::PAGE, Part::heading("Over time"));
    for (picture, folded) in pictures::all(view, series) {
        let part = if folded {
            let title = picture.title.clone();
            let untitled = Picture { title: String::new(), ..picture };
            Part::folded(title, "", vec![Part::Picture(untitled)])
        } else {
            Part::Picture(picture)
        };
        parts.put(Forms::PAGE, part);
    }
    let text = "A point shows the highest value of its interval. Red behind a curve: connections were harmed. \
                Yellow: a warning. Grey: no look was taken.";
    parts.put(Forms::PAGE, Part::prose(0, text, Tone::Dim));
}

/// A line for each time span, then what was wrong in it; a table where there is room.
fn episodes(parts: &mut Parts, view: &Dated<'_>) {
    let table = tables::episodes(view);
    if table.rows.is_empty() {
        return;
    }
    parts.put(Forms::ALL, Part::heading("What was wrong"));
    for one in view.review.episodes.iter().take(table.rows.len()) {
        let from = view.at(one.from_s);
        let when = if tables::at_one_look(one) {
            format!("{from}, at one look")
        } else {
            let (until, end) = if one.ongoing {
                ("until the ", tables::RECORD_END.to_owned())
            } else {
                ("to ", view.at(one.to_s))
            };
            let span = number::duration(one.to_s - one.from_s);
            let lasted = number::duration(one.active_s);
            let active =
                if lasted == span { String::new() } else { format!(", active for {lasted}") };
            format!("{from} {until}{end} ({span}{active})")
        };
        parts.put(Forms::TEXT, Part::prose(2, format!("{when}  {}", one.id), tone(one)));
        let worst = format!("{}, at {}", one.text, view.at(one.worst_at_s));
        parts.put(Forms::TEXT, Part::prose(6, worst, Tone::Plain));
    }
    if let Some(note) = &table.note {
        parts.put(Forms::TEXT, Part::prose(2, note, Tone::Dim));
    }
    parts.put(Forms::WRITTEN, Part::Table(table));
}

fn gaps(parts: &mut Parts, view: &Dated<'_>) {
    let table = tables::gaps(view);
    if table.rows.is_empty() {
        return;
    }
    parts.put(Forms::ALL, Part::heading("Gaps"));
    for gap in tables::gap_rows(view) {
        let [until, lasted, why] = gap;
        let text = format!("until {until}: {lasted} without a look; {why}");
        parts.put(Forms::TEXT, Part::prose(2, text, Tone::Plain));
    }
    if let Some(note) = &table.note {
        parts.put(Forms::TEXT, Part::prose(2, note, Tone::Dim));
    }
    parts.put(Forms::WRITTEN, Part::Table(table));
}

fn tone(one: &Episode) -> Tone {
    if one.severity == Severity::Problem { Tone::Bad } else { Tone::Doubt }
}

fn fixes(parts: &mut Parts, review: &Review) {
    let fixes = tables::fixes(review);
    if fixes.is_empty() {
        return;
    }
    let forms = Forms::TEXT_AND_MARKDOWN;
    parts.put(forms, Part::heading("Fixes"));
    let mut ids: Vec<&str> = Vec::new();
    for one in fixes {
        let Some(fix) = &one.fix else { continue };
        let about = format!("{} of {}: {}", one.id, one.subject, fix.change);
        parts.put(forms, Part::prose(2, about, tone(one)));
        for command in &fix.commands {
            parts.put(Forms::TEXT, Part::prose(6, command, Tone::Plain));
        }
        if !fix.commands.is_empty() {
            parts.put(Forms::MARKDOWN, Part::Code { text: fix.commands.join("\n") });
        }
        if !ids.contains(&one.id.as_str()) {
            ids.push(&one.id);
        }
    }
    parts.put(Forms::TEXT, Part::Blank);
    for id in ids {
        parts.put(Forms::TEXT, Part::prose(2, format!("tcptoll explain {id}"), Tone::Dim));
    }
}

/// Each cause with each subject that had it, at its worst.
fn causes(parts: &mut Parts, review: &Review) {
    let mut shown: Vec<&Episode> = Vec::new();
    for one in &review.episodes {
        let of_cause = shown.iter().filter(|known| known.id == one.id).count();
        let is_known = shown.iter().any(|known| known.id == one.id && known.subject == one.subject);
        if of_cause < SUBJECTS_MAX && !is_known {
            shown.push(one);
        }
    }
    let order: Vec<&str> = shown.iter().map(|one| one.id.as_str()).collect();
    shown.sort_by_key(|one| order.iter().position(|id| *id == one.id));
    if !shown.is_empty() {
        parts.put(Forms::PAGE, Part::heading("Causes and fixes"));
    }
    for (at, one) in shown.iter().enumerate() {
        let is_first = !shown[..at].iter().any(|before| before.id == one.id);
        let about = [&one.id, &one.subject, &one.text];
        let mut finding = article(one.severity, about, one.fix.as_ref());
        if is_first {
            finding.anchor = anchor(one);
        }
        parts.put(Forms::PAGE, Part::Finding(Box::new(finding)));
    }
}

fn machine(review: &Review) -> Vec<[String; 2]> {
    let passport = &review.passport;
    let mut pairs = vec![
        ["kernel".to_owned(), passport.kernel.clone()],
        ["CPU".to_owned(), format!("{} × {}", passport.cpus, passport.cpu)],
        ["memory".to_owned(), number::bytes(passport.memory_bytes as f64)],
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
        pairs.extend(value.map(|value| [name.to_owned(), count(value as i64)]));
    }
    pairs
}
