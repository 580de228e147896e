//! What does the HTML report look like? One file with its style, script, pictures and numbers in it.
//!
//! The template decides the order, `view` prepares words and tables, the other files draw.

mod arm;
mod chart;
mod counted;
mod distribution;
mod forest;
mod levels;
mod picture;
pub(crate) mod plot;
mod range;
mod rounds;
mod section;
mod series;
pub(crate) mod svg;
mod table;
mod view;

use minijinja::Environment;
use minijinja::value::{Serde, Value};
use tcptoll_model::record::Summary;

use crate::clean;
use crate::own::Own;

const TEMPLATE: &str = include_str!("report.html");
/// The style of every page.
pub(crate) const STYLE: &str = include_str!("style.css");
/// The script of every page.
pub(crate) const SCRIPT: &str = include_str!("script.js");

/// A run as the page shows it.
pub(crate) struct Run<'a> {
    /// Its cleaned summary.
    pub(crate) summary: Summary,
    pub(crate) own: &'static Own,
    /// Embedded as data.
    pub(crate) original: &'a Summary,
}

/// The page of one run, or of several with a table of contents.
pub(crate) fn render(runs: &[Run<'_>]) -> String {
    let jsons: Result<Vec<String>, _> =
        runs.iter().map(|run| serde_json::to_string(run.original)).collect();
    match jsons {
        Ok(jsons) => page(runs, &jsons).unwrap_or_else(|error| error_page(&error.to_string())),
        Err(error) => cannot_show(&error),
    }
}

fn page(runs: &[Run<'_>], jsons: &[String]) -> Result<String, minijinja::Error> {
    let views: Vec<view::View> = runs.iter().map(|run| view::of(&run.summary, run.own)).collect();
    let title = match runs {
        [run] => format!("{} · tcptoll", run.summary.question),
        runs => format!("{} answers · tcptoll", runs.len()),
    };
    let jsons: Vec<Value> =
        jsons.iter().map(|json| Value::from_safe_string(json_in_script(json))).collect();
    let mut environment = Environment::new();
    // The suffix .html turns on escaping of everything not marked safe.
    environment.add_template("report.html", TEMPLATE)?;
    environment.get_template("report.html")?.render(minijinja::context! {
        title,
        views => Value::from(Serde(views)),
        style => Value::from_safe_string(STYLE.to_owned()),
        script => Value::from_safe_string(SCRIPT.to_owned()),
        jsons,
    })
}

/// JSON that cannot end its script element, and that JavaScript of any age reads the same.
pub(crate) fn json_in_script(json: &str) -> String {
    json.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

/// A page that says why there is no report.
pub(crate) fn cannot_show(error: &serde_json::Error) -> String {
    error_page(&clean::cannot_show(error))
}

/// A page of one sentence.
pub(crate) fn error_page(text: &str) -> String {
    let text = svg::escape(&clean::line(text));
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>tcptoll</title><p>{text}</p></html>\n"
    )
}
