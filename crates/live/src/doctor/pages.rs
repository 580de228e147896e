//! An examination as text, clear without colour and at 80 columns, and as a page.

use tcptoll_show::html::{COPY, Frame, cannot_show};
use tcptoll_show::own::Tone;
use tcptoll_show::text::{TextPage, wrap_phrases};
use tcptoll_show::{TextStyle, clean, findings};

use super::{Examination, Proof, ProofVerdict, sentences, view};
use crate::diagnosis::{Diagnosis, Severity};

/// Where words begin beside a label.
const INDENT: usize = 14;
/// Columns of the names of evidence, at most.
const NAMES_MAX: usize = 28;
/// Servers that are named.
const SERVERS_MAX: usize = 8;

/// The whole text of a cleaned examination.
pub(crate) fn text(examination: &Examination, provable: &[&str], style: TextStyle) -> String {
    let mut page = TextPage::new(style);
    for line in wrap_phrases(&sentences::place(examination), page.width()) {
        page.line(&page.paint(Tone::Dim, &line));
    }
    servers(&mut page, examination);
    if let Some(cost) = sentences::cost(examination) {
        page.labelled("  cost", INDENT, &cost, Tone::Dim);
    }
    missing(&mut page, examination, false);
    page.blank();
    let found = examination.problems() > 0;
    page.prose(0, &sentences::answer(examination), if found { Tone::Bad } else { Tone::Strong });
    if examination.findings.is_empty() {
        page.labelled(
            "  examined",
            INDENT,
            &sentences::looked_at(examination).join(", "),
            Tone::Plain,
        );
        missing(&mut page, examination, true);
    }
    for one in &examination.findings {
        page.blank();
        let provable = provable.contains(&one.id.as_str());
        finding(&mut page, one, provable.then(|| examination.prove_command(&one.id)));
    }
    page.into_text()
}

fn servers(page: &mut TextPage, examination: &Examination) {
    let servers = &examination.examined.servers;
    if servers.is_empty() {
        let text = format!("no {} runs here", sentences::PROGRAMS.replace(" and ", " or "));
        page.labelled("  servers", INDENT, &text, Tone::Dim);
    }
    for (at, server) in servers.iter().take(SERVERS_MAX).enumerate() {
        let label = if at == 0 { "  servers" } else { "" };
        page.labelled(label, INDENT, &sentences::server(server), Tone::Dim);
    }
    if servers.len() > SERVERS_MAX {
        let text = format!("and {} more", servers.len() - SERVERS_MAX);
        page.labelled("", INDENT, &text, Tone::Dim);
    }
}

/// What was not looked at, and what to type to have it examined.
fn missing(page: &mut TextPage, examination: &Examination, by_design: bool) {
    let parts = sentences::missing(examination, by_design);
    let label = |at: usize| if at == 0 { "  unexamined" } else { "" };
    let tone = if by_design { Tone::Plain } else { Tone::Doubt };
    for (at, part) in parts.iter().enumerate() {
        let text = format!("{}: {}", part.what, part.why);
        page.labelled(label(at), INDENT, &text, tone);
        // One remedy for several parts stands after the last of them.
        let next = parts.get(at + 1).and_then(|next| next.remedy.as_ref());
        if let Some(remedy) = part.remedy.as_ref().filter(|remedy| Some(*remedy) != next) {
            page.line(&format!("{}to examine: {remedy}", " ".repeat(INDENT)));
        }
    }
}

/// `prove`: the command that re-creates it, where the lab can.
fn finding(page: &mut TextPage, one: &Diagnosis, prove: Option<Vec<String>>) {
    let tone = if one.severity == Severity::Problem { Tone::Bad } else { Tone::Doubt };
    let word = format!("{:<INDENT$}", one.severity.word());
    let rest = clean::shorten(&format!("{} · {}", one.id, one.subject), page.width() - INDENT);
    page.line(&format!("{}{}", page.paint(tone, &word), page.paint(Tone::Strong, &rest)));
    page.prose(2, &one.text, Tone::Strong);
    evidence(page, one);
    if let Some(fix) = &one.fix {
        page.labelled("  change", INDENT, &fix.change, Tone::Plain);
        for (at, command) in fix.commands.iter().enumerate() {
            // In one piece, so that it can be copied.
            let label = if at == 0 { "  how" } else { "" };
            page.line(&format!("{label:INDENT$}{command}"));
        }
        for (label, text) in
            [("  effect", &fix.effect), ("  risk", &fix.risk), ("  undo", &fix.undo)]
        {
            if !text.is_empty() {
                page.labelled(label, INDENT, text, Tone::Plain);
            }
        }
    }
    page.labelled("  explain", INDENT, &format!("tcptoll explain {}", one.id), Tone::Dim);
    if let Some(command) = prove {
        page.labelled("  prove", INDENT, &findings::command(&command), Tone::Dim);
    }
}

fn evidence(page: &mut TextPage, one: &Diagnosis) {
    let rows = sentences::evidence(one);
    let widest = rows.iter().map(|(name, _)| clean::columns(name)).max().unwrap_or(0);
    let column = widest.min(NAMES_MAX);
    for (at, (name, value)) in rows.iter().enumerate() {
        let label = if at == 0 { "  evidence" } else { "" };
        let name = clean::shorten(name, column);
        let blanks = " ".repeat(column + 2 - clean::columns(&name));
        let label = format!("{label:INDENT$}{name}{blanks}");
        page.labelled(&label, INDENT + column + 2, value, Tone::Plain);
    }
}

/// What the lab showed of a finding.
pub(crate) fn proof_page(proof: &Proof, style: TextStyle) -> String {
    let mut page = TextPage::new(style);
    let tone = match proof.verdict {
        ProofVerdict::Shown => Tone::Strong,
        ProofVerdict::NotShown | ProofVerdict::NotRun => Tone::Doubt,
    };
    let word = format!("{:<INDENT$}", "proof");
    let about = [proof.finding.as_str(), &proof.subject].into_iter().filter(|one| !one.is_empty());
    let about = about.collect::<Vec<_>>().join(" · ");
    let rest = format!("{about}: {}", sentences::verdict(proof.verdict));
    let rest = clean::shorten(&rest, page.width() - INDENT);
    page.line(&format!("{word}{}", page.paint(tone, &rest)));
    page.prose(2, &proof.text, Tone::Plain);
    if !proof.command.is_empty() {
        page.line(&format!("{:INDENT$}{}", "  repeat", findings::command(&proof.command)));
    }
    if let Some(record) = &proof.record {
        page.line(&format!("{:INDENT$}{record}", "  record"));
    }
    page.into_text()
}

/// An examination for a terminal: what was looked at, what is wrong, what to type.
///
/// `provable` names the findings that `--prove` can re-create. As the text of a run, it ends with a line feed
/// and holds no control character of the machine's own.
#[must_use]
pub fn examination_text(examination: &Examination, provable: &[&str], style: TextStyle) -> String {
    match clean::copy(examination) {
        Ok(clean) => text(&clean, provable, style),
        Err(error) => format!("{}\n", clean::cannot_show(&error)),
    }
}

/// What the lab showed of a finding, for a terminal, as [`examination_text`].
#[must_use]
pub fn proof_text(proof: &Proof, style: TextStyle) -> String {
    match clean::copy(proof) {
        Ok(clean) => proof_page(&clean, style),
        Err(error) => format!("{}\n", clean::cannot_show(&error)),
    }
}

/// An examination as one self-contained HTML file, as the page of a run.
#[must_use]
pub fn examination_html(examination: &Examination, provable: &[&str]) -> String {
    match clean::copy(examination) {
        Ok(clean) => html(&clean, examination, provable),
        Err(error) => cannot_show(&error),
    }
}

const FRAME: Frame =
    Frame { content: include_str!("page.html"), style: include_str!("page.css"), script: COPY };

/// The page of a cleaned examination; `original` is embedded as data.
pub(crate) fn html(examination: &Examination, original: &Examination, provable: &[&str]) -> String {
    let view = view::build(examination, provable);
    FRAME.page(&view.title, &view, &[original])
}
