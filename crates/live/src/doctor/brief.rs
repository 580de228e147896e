//! An examination on one screen: the first finding in full, each other in a line, then what was not seen.

use tcptoll_core::sheet::{Forms, Note, Part, Parts, Tone};
use tcptoll_show::figures::plural;
use tcptoll_show::{TextStyle, findings, first_that_fits, number, sheet};

use super::{Examination, sentences};
use tcptoll_core::finding::Finding;

/// Where words begin beside a label.
const INDENT: usize = 12;
/// Columns of a line.
const WIDTH: usize = 80;
/// Columns of words that may take two lines.
const TWO_LINES: usize = 2 * (WIDTH - INDENT) - 12;

/// What goes first where there is no room: the last of these.
const SPARE: usize = 7;

/// The examination in at most 22 lines of 80 columns. `check` is how to see the first finding for oneself; `provable`
/// names the findings that `--prove` can re-create.
#[must_use]
pub fn brief(
    examination: &Examination,
    provable: &[&str],
    check: Option<&str>,
    style: TextStyle,
) -> String {
    let page = |spared| sheet::parts(&parts(examination, provable, check, spared), style);
    first_that_fits((0..=SPARE).map(page))
}

/// `spared`: how much is left out, from nothing on.
fn parts(
    examination: &Examination,
    provable: &[&str],
    check: Option<&str>,
    spared: usize,
) -> Parts {
    let mut parts = Parts::default();
    let mut put = |part| parts.put(Forms::TEXT, part);
    let tone = if examination.problems() > 0 { Tone::Bad } else { Tone::Strong };
    let answer = sentences::answer(examination);
    let answer = match answer.strip_suffix('.') {
        // The other sentence has the time.
        Some(found) if !examination.findings.is_empty() => {
            format!("{found} in {}.", number::duration(examination.lasted_s))
        }
        _ => answer,
    };
    put(Part::prose(0, answer, tone));
    put(Part::Blank);
    if let [first, others @ ..] = examination.findings.as_slice() {
        for part in article(examination, first, provable, check, spared) {
            put(part);
        }
        if !others.is_empty() {
            put(Part::Blank);
        }
        let listed = match spared {
            0 => 6,
            1..SPARE => 3,
            _ => 1,
        };
        for one in others.iter().take(listed) {
            put(in_a_line(one));
        }
        if others.len() > listed {
            let more = plural((others.len() - listed) as u64, "more finding");
            put(Part::line(format!("{:INDENT$}{more}", ""), Tone::Dim));
        }
        put(Part::Blank);
    }
    let examined = sentences::looked_at(examination).join(", ");
    let beside = |label: &str, text: String| Part::labelled(label, INDENT, text, Tone::Plain);
    let has_room = examination.findings.is_empty() && spared == 0;
    let cut = |text: String| if has_room { text } else { cut(&text, TWO_LINES) };
    if examination.findings.is_empty() {
        let servers = examination.examined.servers.iter().map(sentences::server);
        let servers: Vec<String> = servers.take(3).collect();
        if !servers.is_empty() {
            put(beside("servers", cut(servers.join(", "))));
        }
        put(beside("examined", cut(examined)));
    }
    let missing = [false, true].map(|by_design| sentences::missing(examination, by_design));
    // A note about the whole has no other subject.
    let subject = |note: &'_ Note| {
        if note.about.starts_with("this ") { note.text.clone() } else { note.about.clone() }
    };
    let missing: Vec<String> = missing.iter().flatten().map(subject).collect();
    if !missing.is_empty() {
        let missing = missing.join("; ");
        put(beside("not seen", if spared < 2 { cut(missing) } else { one_line(&missing) }));
    }
    if let Some(cost) = sentences::cost(examination).filter(|_| spared < 2) {
        put(Part::labelled("cost", INDENT, cost, Tone::Dim));
    }
    let mut all = examination.prove_command("");
    // Looks where this examination looked.
    all.truncate(all.len() - 2);
    all.push("--details".to_owned());
    put(Part::line(format!("{:INDENT$}{}", "all", findings::command(&all)), Tone::Plain));
    parts
}

/// A finding with its evidence, its fix and how to undo it.
fn article(
    examination: &Examination,
    one: &Finding,
    provable: &[&str],
    check: Option<&str>,
    spared: usize,
) -> Vec<Part> {
    let word = one.severity.word();
    let head = cut(&format!("{word:<INDENT$}{} · {}", one.id, one.subject), WIDTH);
    let beside =
        |label: &str, text: &str| Part::labelled(format!("  {label}"), INDENT, text, Tone::Plain);
    let evidence = sentences::evidence(one);
    let evidence: Vec<String> =
        evidence.iter().map(|[name, value]| format!("{name} {value}")).collect();
    let mut parts = vec![
        Part::line(head, Tone::Strong),
        Part::prose(2, &one.text, Tone::Strong),
        beside("evidence", &cut(&evidence.join(" · "), TWO_LINES)),
    ];
    if let Some(fix) = one.fix() {
        parts.push(beside("fix", &fix.change));
        let commands = if spared < 5 { fix.commands.len() } else { 1 };
        // In one piece, so that they can be copied.
        let commands = fix.commands.iter().take(commands);
        parts.extend(commands.map(|text| Part::line(format!("{:INDENT$}{text}", ""), Tone::Plain)));
    }
    parts.extend(check.filter(|_| spared < 6).map(|check| beside("check", &cut(check, TWO_LINES))));
    if let Some(fix) = one.fix() {
        let words = [("risk", &fix.cost), ("undo", &fix.undo)];
        let words = words
            .into_iter()
            .filter(|(name, text)| !text.is_empty() && (*name == "undo" || spared < 4));
        parts.extend(words.map(|(name, text)| beside(name, text)));
    }
    parts.push(beside("more", &format!("tcptoll explain {}", one.id)));
    if provable.contains(&one.id.as_str()) && spared < 3 {
        let command = findings::command(&examination.prove_command(&one.id));
        parts.push(Part::line(format!("{:INDENT$}{command}", ""), Tone::Plain));
    }
    parts
}

/// Another finding.
fn in_a_line(one: &Finding) -> Part {
    let text = format!("{:<INDENT$}{} · {}", one.severity.word(), one.id, one.subject);
    Part::line(cut(&text, WIDTH), Tone::Plain)
}

/// Text next to a label in one line.
fn one_line(text: &str) -> String {
    cut(text, WIDTH - INDENT)
}

/// At most this number of characters; the blanks of a head are kept.
fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let begin: String = text.chars().take(most - 2).collect();
    // Not within a word.
    let whole = begin.rsplit_once(' ').map_or(begin.as_str(), |(whole, _)| whole);
    format!("{} …", whole.trim_end_matches([' ', '·', ',', ';']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Machine;
    use tcptoll_core::finding::{Remedy, Severity};
    use tcptoll_show::SCREEN;

    fn finding(number: usize) -> Finding {
        let long =
            "A sentence of some length that says what is to be done about it and why it helps.";
        let evidence = (0..12).map(|n| (format!("evidence_of_kind_{n}"), n.into()));
        Finding {
            id: "accept-queue-full".to_owned(),
            severity: if number < 2 { Severity::Problem } else { Severity::Warning },
            subject: format!("127.0.0.1:{}", 1900 + number),
            text: format!("{long} {long}")[..119].to_owned(),
            evidence: evidence.collect(),
            remedies: vec![Remedy {
                change: format!("{long} {long} {long}"),
                commands: vec!["sysctl -w net.core.somaxconn=4096".to_owned(); 4],
                effect: long.to_owned(),
                cost: format!("{long} {long}"),
                undo: format!("{long} {long}"),
                ..Remedy::default()
            }],
        }
    }

    fn page(findings: Vec<Finding>) -> String {
        let examination = Examination::new(&Machine::default(), None, findings);
        let check = "On the server, `ss -lnt` shows a Recv-Q above the Send-Q.";
        let style = TextStyle { colour: false, width: 80 };
        brief(&examination, &["accept-queue-full"], Some(check), style)
    }

    #[test]
    fn a_screen_holds_any_number_of_findings_and_what_to_do_about_the_first() {
        for count in [0, 1, 2, 3, 10, 40] {
            let page = page((0..count).map(finding).collect());
            assert!(page.lines().count() <= SCREEN, "{} lines\n{page}", page.lines().count());
            assert!(page.lines().all(|line| line.chars().count() <= 80), "{page}");
            assert!(page.contains("tcptoll doctor --details"), "{page}");
            if count > 0 {
                for part in ["127.0.0.1:1900", "  evidence", "  fix", "  undo", "  more"] {
                    assert!(page.contains(part), "{part}: {page}");
                }
            }
        }
    }

    #[test]
    fn each_other_finding_has_its_line() {
        let page = page((0..3).map(finding).collect());
        assert!(page.starts_with("2 problems, 1 warning in "), "{page}");
        assert!(page.contains("\nproblem     accept-queue-full · 127.0.0.1:1901\n"), "{page}");
        assert!(page.contains("\nwarning     accept-queue-full · 127.0.0.1:1902\n"), "{page}");
    }
}
