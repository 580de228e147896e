//! What does the reader see first? One screen: the place, the answer, the figures that carry it, the cause with its most
//! useful fix, how many doubts there are, and what is next. [`crate::report`] has the rest.
//!
//! Lines are counted as they are laid out: rows of arms give way to what must be there, and the drawing of the experiment
//! stands where there is room for it.

use tcptoll_core::experiment::column::metric_of;
use tcptoll_core::experiment::columns::{FIGURES, OK};
use tcptoll_core::record::Cause;
use tcptoll_core::sheet::{Column, Forms, Part, Parts, Room, Row, Sheet, Table, Tone};
use tcptoll_core::units::first_sentence;

use crate::clean::{self, line};
use crate::run::Run;
use crate::sheet::{wrap, wrap_phrases};
use crate::{TextStyle, columns, comparisons, figures, findings, rounds, sheet};

/// Lines at most: a terminal of 24 also shows the command and the next prompt.
pub const SCREEN: usize = 22;

/// The first of these pages that fits a screen, from the fullest on; else the last.
pub fn first_that_fits(pages: impl IntoIterator<Item = String>) -> String {
    let mut last = String::new();
    for page in pages {
        if page.lines().count() <= SCREEN {
            return page;
        }
        last = page;
    }
    last
}
/// Arms in the table, at most and at least.
const ARMS: std::ops::RangeInclusive<usize> = 3..=8;
/// Columns of the table at most.
const COLUMNS: usize = 8;
/// Columns of a label.
const LABEL: usize = 9;
/// Parts from which on a drawing needs no empty line behind it, for which there may be no room.
const TALL: usize = 8;
/// Lines of a cause and of a fix, where there is room and where there is less.
const WORDS: usize = 4;
const SHORT: usize = 2;
const TEXT: Forms = Forms::TEXT;

/// The screen of a run; `head` has what every form begins with, `details` is the command that shows the rest.
pub(crate) fn text(run: &Run, head: Sheet, details: &str, style: TextStyle) -> String {
    let width = style.width.max(60);
    let whole = head.invalid.len();
    let mut head = Sheet {
        place: wrap_phrases(&head.place, width).into_iter().take(1).collect(),
        record: None,
        ..head
    };
    let addresses = figures::addresses(run).into_iter().take(1);
    head.about.extend(TEXT, addresses.map(|text| Part::prose(0, text, Tone::Dim)));
    head.invalid.truncate(1);
    // What the answer or the line above says is not said again.
    let said = head.invalid.iter().chain(&head.answer).any(|text| text.contains(" failed"));
    for doubt in head.doubts.iter_mut().filter(|_| said) {
        let first = first_sentence(&doubt.text);
        let rest = doubt.text[first.len()..].trim_start().to_owned();
        if first.ends_with(" failed.") && !rest.is_empty() {
            doubt.text = rest;
        }
    }
    if let Some(first) = head.invalid.first_mut() {
        let warning = run.warnings.iter().find(|warning| warning.id == "too-many-failures");
        if let (Some(before), Some(warning)) = (first.strip_suffix(findings::SEE_WARNINGS), warning)
        {
            *first = format!("{before}: {}", warning.text);
        }
        *first = cut(first, width.saturating_sub(LABEL), SHORT);
        if whole > 1 {
            *first += &format!(" ({} more)", whole - 1);
        }
    }
    let table = table(run);
    let of = |head: &Sheet, arms: usize, drawing: &[Part], words: usize| {
        let mut parts = Parts::default();
        parts.put(TEXT, Part::Blank);
        match &table {
            Some(table) => parts.put(TEXT, Part::Table(shorter(run, table, arms))),
            None if run.arms.is_empty() => {
                parts.put(TEXT, Part::line("  no arm was measured", Tone::Plain));
            }
            None => {}
        }
        parts.put(TEXT, Part::Blank);
        parts.extend(TEXT, drawing.iter().cloned());
        // A drawing of many lines stands apart by itself.
        if drawing.len() < TALL {
            parts.put(TEXT, Part::Blank);
        }
        parts.extend(TEXT, end(run, details, width, words));
        sheet::text(&Sheet { parts, ..head.clone() }, style)
    };
    let with = |arms, drawing: &[Part], words| of(&head, arms, drawing, words);
    let after = (run.own.text_after)(run, width);
    let most = *ARMS.end();
    let drawings = drawings(&after);
    let tries = |words| drawings.iter().map(move |drawing| (most, *drawing, words));
    let tries = tries(WORDS).chain(tries(SHORT)).chain([(most, &[][..], WORDS)]);
    let fewer = ARMS.rev().map(|arms| (arms, &[][..], SHORT));
    let tries = tries.chain(fewer).chain([(*ARMS.start(), &[][..], 1)]);
    let pages = tries.map(|(arms, drawing, words)| with(arms, drawing, words));
    let least = std::iter::once_with(|| {
        // The whole answer stands in the report.
        let answer = head.answer.clone().map(|text| first_sentence(&text).to_owned());
        of(&Sheet { answer, ..head.clone() }, *ARMS.start(), &[], 1)
    });
    first_that_fits(pages.chain(least))
}

/// The first block of what the experiment shows after its figures, and the same without its tables.
fn drawings(after: &[Part]) -> [&[Part]; 2] {
    let begins = after.iter().position(|part| !matches!(part, Part::Blank));
    let block = &after[begins.unwrap_or(after.len())..];
    let until =
        |ends: fn(&Part) -> bool| &block[..block.iter().position(ends).unwrap_or(block.len())];
    [
        until(|part| matches!(part, Part::Blank)),
        until(|part| matches!(part, Part::Blank | Part::Table(_))),
    ]
}

/// The arms' rows: how each compares, and the figures of the experiment's table as far as there is room.
fn table(run: &Run) -> Option<Table> {
    let mut all = columns::tables(run);
    all.sort_by_key(|table| table.id != FIGURES);
    let filled = |table: columns::RunTable| table.without(columns::in_rounds(run)).filled(run);
    let shown = |table: &Table| one_piece(table.clone()).columns.len() > 1;
    let own = all.into_iter().filter_map(filled).find(shown);
    let own = own.map(|own| failures_first(run, own));
    let Some((mut heads, mut rows)) = comparisons::at_a_glance(run) else {
        return own.map(one_piece);
    };
    // Rows of the same arms; a table without some of them cannot be joined.
    if let Some(own) = own.filter(|own| own.rows.len() == rows.len()) {
        // How many succeeded belongs to the names, the rest behind what compares.
        let early = usize::from(own.columns.get(1).is_some_and(|column| column.head == OK.head));
        let mut columns = own.columns.into_iter().skip(1);
        heads.splice(1..1, columns.by_ref().take(early));
        heads.extend(columns);
        for (row, of_own) in rows.iter_mut().zip(own.rows) {
            if let Row::Cells { cells, .. } = of_own {
                let mut cells = cells.into_iter().skip(1);
                row.splice(1..1, cells.by_ref().take(early));
                row.extend(cells);
            }
        }
    }
    Some(one_piece(Table::new(heads, rows)))
}

/// Where any failed, how many succeeded stands before all other figures.
fn failures_first(run: &Run, mut table: Table) -> Table {
    let failed = run.arms.iter().any(|arm| arm.ok < arm.attempts);
    let at = table.columns.iter().position(|column| column.head == OK.head).filter(|_| failed);
    if let Some(at) = at {
        table.columns[1..=at].rotate_right(1);
        for row in &mut table.rows {
            if let Row::Cells { cells, .. } = row {
                cells[1..=at].rotate_right(1);
            }
        }
    }
    table
}

/// As one table however narrow the terminal is: columns go from the right.
fn one_piece(mut table: Table) -> Table {
    let shown = |column: &Column| column.room < Room::Page && !column.letters;
    let kept: Vec<usize> =
        (0..table.columns.len()).filter(|at| shown(&table.columns[*at])).take(COLUMNS).collect();
    for row in &mut table.rows {
        if let Row::Cells { cells, .. } = row {
            *cells = kept.iter().map(|at| cells[*at].clone()).collect();
        }
    }
    let column = |(place, at): (usize, &usize)| {
        let column = table.columns[*at].clone();
        Column { part: 0, room: if place < 2 { column.room } else { Room::Wide }, ..column }
    };
    table.columns = kept.iter().enumerate().map(column).collect();
    table
}

/// With so many rows: the base of the comparisons, the best and the worst, then the others in their order.
fn shorter(run: &Run, table: &Table, most: usize) -> Table {
    let all = table.rows.len();
    if all <= most || all != run.arms.len() {
        return Table { rows: table.rows.iter().take(most).cloned().collect(), ..table.clone() };
    }
    let value = |at: usize| {
        let metric = metric_of(run)?;
        rounds::measured(&run.arms[at], metric).map(|measured| measured.value)
    };
    let known: Vec<usize> = (0..all).filter(|at| value(*at).is_some()).collect();
    let by_value = |a: &&usize, b: &&usize| {
        value(**a).partial_cmp(&value(**b)).unwrap_or(std::cmp::Ordering::Equal)
    };
    let base = run
        .comparisons
        .first()
        .map_or(0, |c| run.arms.iter().position(|arm| arm.name == c.b).unwrap_or(0));
    let ends = [known.iter().min_by(by_value), known.iter().max_by(by_value)];
    let mut kept = vec![base];
    for at in ends.into_iter().flatten().copied().chain(0..all) {
        if !kept.contains(&at) && kept.len() < most {
            kept.push(at);
        }
    }
    kept.sort_unstable();
    let note = Some(format!("and {}", figures::plural((all - kept.len()) as u64, "more arm")));
    let rows = kept.iter().map(|at| table.rows[*at].clone()).collect();
    Table { rows, note, ..table.clone() }
}

/// Cause and fix in so many lines each, doubts, what is next.
fn end(run: &Run, details: &str, width: usize, words: usize) -> Vec<Part> {
    let mut parts = Vec::new();
    let room = width.saturating_sub(LABEL);
    let mut put = |label: &str, lines: usize, text: &str, tone| {
        parts.push(Part::labelled(label, LABEL, cut(&line(text), room, lines), tone));
    };
    let causes = findings::causes(run);
    if let Some((cause, _)) = causes.first() {
        put("cause", words, &said(run, cause), Tone::Bad);
    }
    if let Some(advice) = findings::fix(run) {
        put("fix", words, first_sentence(&advice.change), Tone::Strong);
    }
    let doubts = doubts(run, causes.len());
    if !doubts.is_empty() {
        put("doubts", 1, &doubts, Tone::Doubt);
    }
    put("details", 1, &format!("{details}    (--html FILE: a page with pictures)"), Tone::Dim);
    // A command in one piece, so that it can be copied.
    let with_why = run.next.iter().map(|step| format!("{}    {}", step.command, step.why));
    let alone = run.next.iter().map(|step| step.command.clone());
    let next = with_why.chain(alone).find(|text| clean::columns(text) <= room);
    parts.extend(next.map(|text| Part::line(format!("{:LABEL$}{text}", "next"), Tone::Plain)));
    parts
}

/// The cause in a sentence, with its arm where there are several.
fn said(run: &Run, cause: &Cause) -> String {
    let arm = if run.arms.len() > 1 { format!(" ({})", cause.arm) } else { String::new() };
    format!("{}{arm}: {}", cause.id, first_sentence(&cause.text))
}

/// How many doubts there are, each kind once.
fn doubts(run: &Run, causes: usize) -> String {
    let mut kinds: Vec<(&str, u64)> = Vec::new();
    for warning in &run.warnings {
        match kinds.iter_mut().find(|(id, _)| *id == warning.id) {
            Some((_, count)) => *count += 1,
            None => kinds.push((&warning.id, 1)),
        }
    }
    let words: Vec<String> = kinds
        .iter()
        .map(|(id, count)| {
            let times = if *count > 1 { format!(" ×{count}") } else { String::new() };
            format!("{}{times}", id.replace('-', " "))
        })
        .collect();
    let more = causes.saturating_sub(1) as u64;
    let more = (more > 0).then(|| format!("{} not shown", figures::plural(more, "more cause")));
    let warnings = (!words.is_empty()).then(|| {
        format!("{}: {}", figures::plural(run.warnings.len() as u64, "warning"), words.join(", "))
    });
    more.into_iter().chain(warnings).collect::<Vec<_>>().join("; ")
}

/// The beginning of a text that takes more than so many lines.
fn cut(text: &str, room: usize, lines: usize) -> String {
    let all = wrap(text, room);
    if all.len() <= lines {
        return text.to_owned();
    }
    let begin = all[..lines].join(" ");
    let end = begin.trim_end_matches([' ', ',', ':', ';', '.']);
    match (clean::columns(&all[lines - 1]) < room, end.rsplit_once(' ')) {
        (false, Some((shorter, _))) => format!("{shorter} …"),
        _ => format!("{end}…"),
    }
}
