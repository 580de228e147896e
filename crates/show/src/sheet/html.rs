//! A sheet as a page: one file with its style, script, pictures and figures in it.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use minijinja::value::{Serde, Value};
use minijinja::{Environment, Output, State, context};
use serde::Serialize;
use tcptoll_core::printable;
use tcptoll_core::sheet::{Arm, Article, Forms, Part, Parts, Picture, Sheet, Table};

use crate::clean;
use crate::clean::keep_units;
use crate::clean::line;
use crate::html::{COPY, SCRIPT, STYLE};
use crate::svg::escape;

use super::table::{self, swatch, table};

const BASE: &str = include_str!("../html/base.html");
const PAGE: &str = include_str!("page.html");
/// Of kinds of parts.
const PARTS: &str = include_str!("page.css");

/// A sheet as one self-contained HTML file, with what it shows embedded as JSON, as it was read.
#[must_use]
pub fn html<T: Serialize>(sheet: Sheet, data: &T) -> String {
    html_of(&sheet.title.clone(), vec![(sheet, data)])
}

/// Several sheets as one such file, with a table of contents; what they show is gzipped and in base64.
///
/// If the page cannot be made, it is one that says why.
#[must_use]
pub fn html_of<T: Serialize>(title: &str, sheets: Vec<(Sheet, &T)>) -> String {
    let jsons: Result<Vec<String>, _> =
        sheets.iter().map(|(_, data)| serde_json::to_string(data)).collect();
    match jsons {
        Ok(jsons) => {
            let sheets: Vec<Sheet> = sheets.into_iter().map(|(sheet, _)| shown(sheet)).collect();
            let page = render(title, &sheets, &jsons);
            page.unwrap_or_else(|error| error_page(&error.to_string()))
        }
        Err(error) => error_page(&error.to_string()),
    }
}

/// With its answer in two parts, the first sentence and the rest, whose numbers stay on a line with their units.
fn shown(sheet: Sheet) -> Sheet {
    let [answer, more] = sheet.answer;
    let (first, rest) = if more.is_empty() { lead(&answer) } else { (&*answer, &*more) };
    Sheet { answer: [keep_units(first), keep_units(rest)], ..sheet }
}

/// What an answer begins with, and the rest: its first sentence, whole.
fn lead(answer: &str) -> (&str, &str) {
    let sentence = answer
        .match_indices(". ")
        .find(|(at, _)| answer[at + 2..].starts_with(char::is_uppercase))
        .map_or(answer.len(), |(at, _)| at + 1);
    (&answer[..sentence], answer[sentence..].trim_start())
}

fn render(title: &str, sheets: &[Sheet], jsons: &[String]) -> Result<String, minijinja::Error> {
    let held = jsons.iter().map(|json| match jsons.len() {
        1 => json_in_script(json),
        _ => packed(&printable::json(json)),
    });
    let sheets: Vec<Value> = sheets.iter().map(sheet).collect();
    let mut environment = Environment::new();
    environment.set_formatter(put);
    // Nothing that a peer said makes two commands of one.
    environment.add_filter("line", |text: String| line(&text));
    environment.add_template("base.html", BASE)?;
    environment.add_template("content.html", PAGE)?;
    let content = environment.get_template("content.html")?.render(context! { title, sheets })?;
    let style = STYLE.to_owned() + PARTS + &table::style(&content);
    environment.get_template("base.html")?.render(context! {
        title,
        style => Value::from_safe_string(style),
        content => Value::from_safe_string(content),
        held => held.map(Value::from_safe_string).collect::<Vec<_>>(),
        script => Value::from_safe_string(SCRIPT.to_owned() + COPY),
    })
}

/// Gzipped, in base64: of several runs the figures would be the greater part of the page.
fn packed(json: &str) -> String {
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    let packed = packed.write_all(json.as_bytes()).and_then(|()| packed.finish());
    STANDARD.encode(packed.expect("memory takes all that is written"))
}

/// What the template sees of a sheet. Marks of which a page has many are written here, where that is quick.
fn sheet(sheet: &Sheet) -> Value {
    let parts = |parts: &Parts| parts.shown_in(Forms::PAGE).map(part).collect::<Vec<_>>();
    let (about, lead, shown) = (parts(&sheet.about), parts(&sheet.lead), parts(&sheet.parts));
    let Sheet { kicker, question, answer, failed, invalid, doubts, place, time, command, .. } =
        sheet;
    let Sheet { file_name, footer, .. } = sheet;
    let doubts = Value::from(Serde(doubts.clone()));
    context! {
        kicker, question, answer, failed, invalid, doubts, place, time, command, about, lead,
        parts => shown, file_name, footer,
    }
}

/// What the template sees of a part.
fn part(one: &Part) -> Value {
    let kind = "markup";
    let markup = match one {
        Part::Table(one) => table(one),
        Part::Pairs { pairs } => self::pairs(pairs),
        Part::Picture(one) => picture(one),
        Part::Finding(one) => return finding(one),
        Part::Folded { title, small, class, parts } => {
            let parts: Vec<Value> = parts.iter().map(part).collect();
            return context! { kind => "folded", title, small, class, parts };
        }
        other => return Value::from(Serde(other.clone())),
    };
    context! { kind, markup => Value::from_safe_string(markup) }
}

fn finding(one: &Article) -> Value {
    let safe = |some: bool, markup: fn(&Article) -> String| {
        some.then(|| Value::from_safe_string(markup(one)))
    };
    let evidence = safe(!one.evidence.is_empty(), |one| {
        table(&Table::texts(&["evidence", "value"], &[1], one.evidence.iter().cloned()))
    });
    let words = safe(!one.words.is_empty(), |one| pairs(&one.words));
    context! { kind => "finding", evidence, words, ..Value::from(Serde(one.clone())) }
}

fn pairs(list: &[[String; 2]]) -> String {
    let pair = |[name, value]: &[String; 2]| {
        format!("<div><dt>{}<dd>{}</div>", escape(name), escape(value))
    };
    format!("<dl>{}</dl>\n", list.iter().map(pair).collect::<String>())
}

fn picture(one: &Picture) -> String {
    let Picture { title, svg, caption, drawn } = one;
    let title =
        if title.is_empty() { String::new() } else { format!("<h3>{}</h3>\n", escape(title)) };
    let arm = |arm: &Arm| format!("<li>{}{}</li>", swatch(&arm.class), escape(&arm.name));
    let legend: String = drawn.iter().map(arm).collect();
    let legend =
        if drawn.is_empty() { legend } else { format!("<ul class=\"legend\">{legend}</ul>") };
    let (svg, caption) = (&svg.0, escape(caption));
    format!("{title}{legend}<figure>{svg}<figcaption>{caption}</figcaption></figure>\n")
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
