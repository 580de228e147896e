//! What does the terminal show of checking idle connections? What it cost, what was known of the
//! dead, and what a shorter time until that is known costs in packets.

use tcptoll_model::record::{Arm, Summary};

use super::arms::{in_parts, names};
use super::table::{Align, Column, lay_out};
use super::{Page, Tone, scatter};
use crate::number::ABSENT;
use crate::{clean, figures, keepalive, rounds};

/// Ways of checking that are told apart in words; more would push the answer off the screen.
const SETTINGS: usize = 6;

/// Columns of a name beside the trade.
const NAME: usize = 22;

/// Arms where something died and the trade between that and packets, then what every arm took.
pub(super) fn write(page: &mut Page, summary: &Summary) {
    how(page, summary);
    // Where peers died, when that was known is the answer; what it took comes after it.
    deaths(page, summary);
    trade(page, summary);
    page.blank();
    let all: Vec<&Arm> = summary.arms.iter().collect();
    // What stands in the table of rounds, with its interval, is not said again.
    let in_rounds = summary.rounds.is_some() && rounds::metric(summary) == Some(keepalive::RATE);
    let mut parts: Vec<Vec<keepalive::Column>> = keepalive::traffic_columns();
    parts.extend(keepalive::cost_columns());
    let mut parts: Vec<Vec<Column>> = parts
        .into_iter()
        .map(|part| part.into_iter().filter(|c| !(in_rounds && c.key == keepalive::RATE)))
        .map(|part| part.map(|column| laid_in(&column, &all)).collect())
        .collect();
    parts.push(vec![ok(&all)]);
    in_parts(page, &names(summary), parts);
}

fn laid_in(column: &keepalive::Column, arms: &[&Arm]) -> Column {
    let cells = arms.iter().map(|arm| column.text(arm)).collect();
    let align = match (column.is_words(), column.is_number()) {
        (true, _) => Align::Left,
        (_, true) => Align::Point,
        _ => Align::Right,
    };
    Column::new(column.head, align, cells).under(column.group)
}

/// Operations that succeeded, where an arm has any: an arm that only waits for deaths has none.
fn ok(arms: &[&Arm]) -> Column {
    let cell = |arm: &&Arm| match arm.attempts {
        0 => ABSENT.to_owned(),
        _ => figures::ok_of_attempts(arm),
    };
    Column::new("ok", Align::Right, arms.iter().map(cell).collect())
}

/// Each way of checking once, with its settings.
fn how(page: &mut Page, summary: &Summary) {
    let mut ways: Vec<(&str, String)> = Vec::new();
    for arm in &summary.arms {
        let Some(checked) = &arm.own.keepalive else { continue };
        let way = keepalive::settings(checked);
        if !way.is_empty() && !ways.iter().any(|(_, known)| *known == way) {
            ways.push((checked.checking.mechanism.name(), way));
        }
    }
    let more = ways.len().saturating_sub(SETTINGS);
    for (mechanism, way) in ways.iter().take(SETTINGS) {
        page.labelled(&format!("  {mechanism}"), 14, way, Tone::Dim);
    }
    if more > 0 {
        page.labelled("", 14, &format!("{more} more ways in the record"), Tone::Dim);
    }
    page.blank();
}

/// Faults, and when they were known.
fn deaths(page: &mut Page, summary: &Summary) {
    let arms: Vec<&Arm> =
        summary.arms.iter().filter(|arm| keepalive::deaths(arm).is_some()).collect();
    if arms.is_empty() {
        return;
    }
    page.blank();
    let names: Vec<&str> = arms.iter().map(|arm| arm.name.as_str()).collect();
    let columns = |part: Vec<keepalive::Column>| {
        part.iter().map(|column| laid_in(column, &arms)).collect::<Vec<_>>()
    };
    in_parts(page, &names, keepalive::death_columns().into_iter().map(columns).collect());
    page.blank();
    for note in keepalive::notes(&summary.arms) {
        page.prose(2, &note.text, if note.bad { Tone::Doubt } else { Tone::Dim });
    }
}

/// The trade as a table and, where it has room, as a picture.
fn trade(page: &mut Page, summary: &Summary) {
    let Some(trade) = keepalive::trade(summary) else { return };
    page.blank();
    let arms: Vec<&Arm> =
        summary.arms.iter().enumerate().filter(keepalive::traded).map(|(_, arm)| arm).collect();
    let names: Vec<&str> = arms.iter().map(|arm| arm.name.as_str()).collect();
    let mut columns: Vec<Column> =
        keepalive::trade_columns().iter().map(|column| laid_in(column, &arms)).collect();
    let names = clean::shorten_all(&names, NAME);
    columns.insert(0, Column::new("time against packets", Align::Left, names));
    page.table(&lay_out(columns), Tone::Strong);
    page.blank();
    let picture = scatter::of(&trade, page.width());
    for line in &picture {
        page.line(line);
    }
    for remark in &trade.remarks {
        page.prose(2, remark, Tone::Dim);
    }
    if let Some(basis) = trade.basis().filter(|_| !picture.is_empty()) {
        page.prose(2, &format!("Small letters: {basis}."), Tone::Dim);
    }
}
