//! Temporary.

use minijinja::value::{Serde, Value};
use minijinja::{Environment, context};
use serde::Serialize;

use super::{SCRIPT, STYLE};
use crate::clean;
use crate::svg::escape;

// What is the same in all pages: the head, the style and script of all, and the figures as data at the end.

const BASE: &str = include_str!("base.html");
const MACROS: &str = "";

/// A kind of page.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// Template of what stands in the page's `main`.
    pub content: &'static str,
    /// Style and script after those of every page.
    pub style: &'static str,
    pub script: &'static str,
}

impl Frame {
    /// The page of a view; the originals of what it shows are embedded as data.
    ///
    /// If it cannot be made, it is a page that says why.
    pub fn page<T: Serialize>(self, title: &str, view: impl Serialize, originals: &[T]) -> String {
        let jsons: Result<Vec<String>, _> = originals.iter().map(serde_json::to_string).collect();
        match jsons {
            Ok(jsons) => self
                .render(title, Value::from(Serde(view)), &jsons)
                .unwrap_or_else(|error| error_page(&error.to_string())),
            Err(error) => cannot_show(&error),
        }
    }

    fn render(
        self,
        title: &str,
        view: Value,
        jsons: &[String],
    ) -> Result<String, minijinja::Error> {
        let jsons = jsons.iter().map(|json| Value::from_safe_string(json_in_script(json)));
        let mut environment = Environment::new();
        // The suffix .html turns on escaping of everything not marked safe.
        environment.add_template("base.html", BASE)?;
        environment.add_template("macros.html", MACROS)?;
        environment.add_template("content.html", self.content)?;
        environment.get_template("base.html")?.render(context! {
            title,
            view,
            style => Value::from_safe_string(STYLE.to_owned() + self.style),
            script => Value::from_safe_string(SCRIPT.to_owned() + self.script),
            jsons => jsons.collect::<Vec<_>>(),
        })
    }
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
pub fn cannot_show(error: &serde_json::Error) -> String {
    error_page(&clean::cannot_show(error))
}

/// A page of one sentence.
pub(crate) fn error_page(text: &str) -> String {
    let text = escape(&clean::line(text));
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>tcptoll</title><p>{text}</p></html>\n"
    )
}
