//! What does the page of an examination look like? One file, with its style, script and numbers in it.

use minijinja::Environment;
use minijinja::value::{Serde, Value};
use tcptoll_model::doctor::Examination;

use super::view;
use crate::html::{SCRIPT, STYLE, cannot_show, error_page, json_in_script};

const TEMPLATE: &str = include_str!("page.html");
const OWN_STYLE: &str = include_str!("page.css");
const OWN_SCRIPT: &str = include_str!("page.js");

/// The page of a cleaned examination; `original` is embedded as data.
pub(crate) fn render(
    examination: &Examination,
    original: &Examination,
    provable: &[&str],
) -> String {
    match serde_json::to_string(original) {
        Ok(json) => page(examination, &json, provable)
            .unwrap_or_else(|error| error_page(&error.to_string())),
        Err(error) => cannot_show(&error),
    }
}

fn page(
    examination: &Examination,
    json: &str,
    provable: &[&str],
) -> Result<String, minijinja::Error> {
    let mut environment = Environment::new();
    // The suffix .html turns on escaping of everything not marked safe.
    environment.add_template("page.html", TEMPLATE)?;
    environment.get_template("page.html")?.render(minijinja::context! {
        view => Value::from(Serde(view::of(examination, provable))),
        style => Value::from_safe_string(format!("{STYLE}{OWN_STYLE}")),
        script => Value::from_safe_string(format!("{SCRIPT}{OWN_SCRIPT}")),
        json => Value::from_safe_string(json_in_script(json)),
    })
}
