//! A sheet as a page: one file with its style, script, pictures and figures in it.

use minijinja::value::{Serde, Value};
use minijinja::{Environment, Output, State, context};
use serde::Serialize;
use tcptoll_core::printable;
use tcptoll_core::sheet::{Part, Room, Row, Sheet};

use crate::clean;
use crate::clean::line;
use crate::html::keep_units;
use crate::html::{COPY, SCRIPT, STYLE};
use crate::svg::escape;

const BASE: &str = include_str!("../html/base.html");
const PAGE: &str = include_str!("page.html");
/// Of kinds of parts.
const PARTS: &str = include_str!("page.css");

/// A sheet as one self-contained HTML file, with what it shows embedded as JSON, as it was read.
#[must_use]
pub fn html<T: Serialize>(sheet: Sheet, data: &T) -> String {
    html_of(&sheet.title.clone(), vec![(sheet, data)])
}

/// Several sheets as one such file, with a table of contents.
///
/// If the page cannot be made, it is one that says why.
#[must_use]
pub fn html_of<T: Serialize>(title: &str, sheets: Vec<(Sheet, &T)>) -> String {
    let jsons: Result<Vec<String>, _> =
        sheets.iter().map(|(_, data)| serde_json::to_string(data)).collect();
    match jsons {
        Ok(jsons) => {
            render(title, sheets.into_iter().map(|(sheet, _)| shown(sheet)).collect(), &jsons)
                .unwrap_or_else(|error| error_page(&error.to_string()))
        }
        Err(error) => error_page(&error.to_string()),
    }
}

/// With its answer in two parts, the first sentence and the rest, whose numbers stay on a line with their units.
fn shown(mut sheet: Sheet) -> Sheet {
    for (_, part) in &mut sheet.parts.0 {
        prepare(part);
    }
    let [answer, more] = sheet.answer;
    let (first, rest) = if more.is_empty() { lead(&answer) } else { (&*answer, &*more) };
    Sheet { answer: [keep_units(first), keep_units(rest)], ..sheet }
}

/// Gives columns their whole headings, and leaves out those that are not for a page.
fn prepare(part: &mut Part) {
    match part {
        Part::Table(table) => {
            let keep: Vec<bool> = table
                .columns
                .iter()
                .map(|column| column.room != Room::File && !column.letters)
                .collect();
            table.columns.iter_mut().for_each(|column| column.whole = column.heading());
            retain(&mut table.columns, &keep);
            for row in &mut table.rows {
                if let Row::Cells { cells, .. } = row {
                    retain(cells, &keep);
                }
            }
        }
        Part::Folded { parts, .. } => parts.iter_mut().for_each(prepare),
        _ => {}
    }
}

fn retain<T>(list: &mut Vec<T>, keep: &[bool]) {
    let mut keep = keep.iter();
    list.retain(|_| keep.next().copied().unwrap_or(true));
}

/// What an answer begins with, and the rest: its first sentence, whole.
fn lead(answer: &str) -> (&str, &str) {
    let sentence = answer
        .match_indices(". ")
        .find(|(at, _)| answer[at + 2..].starts_with(char::is_uppercase))
        .map_or(answer.len(), |(at, _)| at + 1);
    (&answer[..sentence], answer[sentence..].trim_start())
}

fn render(title: &str, sheets: Vec<Sheet>, jsons: &[String]) -> Result<String, minijinja::Error> {
    let jsons = jsons.iter().map(|json| Value::from_safe_string(json_in_script(json)));
    let mut environment = Environment::new();
    environment.set_formatter(put);
    // Nothing that a peer said makes two commands of one.
    environment.add_filter("line", |text: String| line(&text));
    environment.add_template("base.html", BASE)?;
    environment.add_template("content.html", PAGE)?;
    environment.get_template("base.html")?.render(context! {
        title,
        sheets => Value::from(Serde(sheets)),
        style => Value::from_safe_string(STYLE.to_owned() + PARTS),
        script => Value::from_safe_string(SCRIPT.to_owned() + COPY),
        jsons => jsons.collect::<Vec<_>>(),
    })
}

/// Every text that is not markup of our own is cleaned and escaped.
fn put(
    out: &mut Output<'_>,
    state: &mut State<'_, '_>,
    value: &Value,
) -> Result<(), minijinja::Error> {
    match value.as_str().filter(|_| !value.is_safe()) {
        Some(text) => Ok(out.write_str(&escape(text))?),
        None => minijinja::escape_formatter(out, state, value),
    }
}

/// JSON that cannot end its script element, and that JavaScript of any age reads the same.
fn json_in_script(json: &str) -> String {
    printable::json(json)
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

/// A page of one sentence.
fn error_page(text: &str) -> String {
    let text = escape(&clean::line(text));
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>tcptoll</title><p>{text}</p></html>\n"
    )
}
