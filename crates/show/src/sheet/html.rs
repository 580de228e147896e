//! A sheet as a page: one file with its style, script, pictures and figures in it.

use minijinja::value::{Serde, Value};
use minijinja::{Environment, Output, State, context};
use serde::Serialize;
use tcptoll_core::sheet::Sheet;

use crate::clean::line;
use crate::html::{COPY, SCRIPT, cannot_show, error_page, json_in_script};
use crate::svg::escape;

const BASE: &str = include_str!("../html/base.html");
const PAGE: &str = include_str!("page.html");
const STYLE: &str = concat!(include_str!("../html/style.css"), include_str!("page.css"));

/// Sheets as one self-contained HTML file, several with a table of contents.
///
/// With each what it shows, as it was read, which is embedded as JSON. If the page cannot be made, it is one that
/// says why.
#[must_use]
pub fn html<T: Serialize>(title: &str, sheets: &[(Sheet, &T)]) -> String {
    let jsons: Result<Vec<String>, _> =
        sheets.iter().map(|(_, data)| serde_json::to_string(data)).collect();
    match jsons {
        Ok(jsons) => render(title, sheets.iter().map(|(sheet, _)| sheet).collect(), &jsons)
            .unwrap_or_else(|error| error_page(&error.to_string())),
        Err(error) => cannot_show(&error),
    }
}

fn render(title: &str, sheets: Vec<&Sheet>, jsons: &[String]) -> Result<String, minijinja::Error> {
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
        style => Value::from_safe_string(STYLE.to_owned()),
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
