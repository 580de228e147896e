//! From the text of a study file to its shape; what the words mean is checked afterwards.

use toml::de::{DeTable, DeValue};

use super::Study;
use super::error::{StudyError, key_at, line_at, suggestion};
use crate::units::echo;

/// Keys of a published figure. Its type is the record's, whose readers pass over what they do not
/// know; a study with such a key has a slip in it.
const PUBLISHED: &[&str] = &["arm", "metric", "value", "sd", "source", "note"];

/// Keys that every study has.
const REQUIRED: &[&str] = &["question", "experiment"];

/// Reads the shape of a study.
pub(crate) fn read(text: &str) -> Result<Study, StudyError> {
    let study = toml::from_str(text).map_err(|error| explain(text, &error))?;
    check_published(text)?;
    Ok(study)
}

fn check_published(text: &str) -> Result<(), StudyError> {
    let Ok(document) = DeTable::parse(text) else { return Ok(()) };
    let published = document.get_ref().get("published").and_then(|list| list.get_ref().as_array());
    for (item, number) in published.into_iter().flatten().zip(1..) {
        let DeValue::Table(table) = item.get_ref() else { continue };
        if let Some((key, _)) = table.iter().find(|(key, _)| !PUBLISHED.contains(&&**key.get_ref()))
        {
            return Err(unknown(
                &format!("published[{number}].{key}", key = key.get_ref()),
                PUBLISHED,
            )
            .on(text, key.span().start));
        }
    }
    Ok(())
}

/// What the parser found, with line, key and remedy.
fn explain(text: &str, error: &toml::de::Error) -> StudyError {
    let message = error.message();
    // Names and types stand between back quotes: the one found first, then those expected.
    let mut quoted = message.split('`').skip(1).step_by(2);
    let start = error.span().map_or(0, |span| span.start);
    if DeTable::parse(text).is_err() {
        return StudyError::Toml(message.trim_end().replace('\n', "; ")).on(text, start);
    }
    let key = key_at(text, start);
    let found = if message.starts_with("unknown field") {
        let name = quoted.next().unwrap_or_default();
        let names: Vec<&str> = quoted.collect();
        // The key at the byte is the whole path of this name where the parser points at the name.
        unknown(if key.is_empty() { name } else { &key }, &names)
    } else if message.starts_with("missing field") {
        let name = quoted.next().unwrap_or_default();
        // What is missing at the top is reported at the first byte, whatever stands there.
        let top = key.is_empty() || REQUIRED.contains(&name);
        let key = if top { name.to_owned() } else { format!("{key}.{name}") };
        StudyError::key(key, format!("missing; write {name} = …"))
    } else if let Some((_, expected)) = message.split_once(", expected ") {
        StudyError::key(key, remedy(expected))
    } else {
        StudyError::key(key, message.trim_end())
    };
    found.on(text, start)
}

fn unknown(path: &str, names: &[&str]) -> StudyError {
    let name = path.rsplit('.').next().unwrap_or(path);
    StudyError::key(echo(path), format!("there is no such key; {}", suggestion(name, names)))
}

/// What to write where the parser expected a type of ours.
fn remedy(expected: &str) -> String {
    match expected.trim() {
        "u32" => "write a whole number, like 30".to_owned(),
        "f64" => "write a number, like 37.0".to_owned(),
        "a string" => "write text in quotes".to_owned(),
        "a boolean" => "write true or false".to_owned(),
        "a sequence" => "write a list in brackets, or a table in double brackets: [[…]]".to_owned(),
        "a map" => "write a table: a header in brackets, then a line per key".to_owned(),
        "struct RoundsAsked" => "write fixed = 30 below a header [rounds]".to_owned(),
        other => format!("write {}", other.strip_prefix("struct ").unwrap_or(other)),
    }
}

impl StudyError {
    fn on(self, text: &str, byte: usize) -> Self {
        Self::Line { line: line_at(text, byte), error: Box::new(self) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "question = 'what?'\nexperiment = 'connect'\n";

    #[test]
    fn a_wrong_shape_names_line_key_and_remedy() {
        for (body, says) in [
            ("rouds = 3", "line 3: rouds: there is no such key; did you mean rounds?"),
            ("telepathy = 3", "line 3: telepathy: there is no such key; available: name, question"),
            (
                "\n[rounds]\nfixd = 3",
                "line 5: rounds.fixd: there is no such key; did you mean fixed?",
            ),
            (
                "[[compare]]\nall_pairs = true\n[[compare]]\nagianst = 'x'",
                "line 6: compare[2].agianst: there is no such key; did you mean against?",
            ),
            ("rounds = 3", "line 3: rounds: write fixed = 30 below a header [rounds]"),
            ("[rounds]\nfixed = '3'", "line 4: rounds.fixed: write a whole number"),
            ("[rounds]\nfixed = -3", "line 4: rounds.fixed: write a whole number"),
            ("margin = 1", "line 3: margin: write text in quotes"),
            ("[factors]\nbacklog = 3", "line 4: factors.backlog: write a list in brackets"),
            ("factors = 3", "line 3: factors: write a table"),
            ("[[arm]]\nlink = 'metro'", "line 3: arm[1].name: missing; write name = …"),
            ("[[compare]]\nall_pairs = 1", "line 4: compare[1].all_pairs: write true or false"),
            (
                "[[published]]\narm = 'connect'\nmetric = 'm'\nvalue = 'x'\nsource = 's'",
                "line 6: published[1].value: write a number",
            ),
            (
                "[[published]]\narm = 'connect'\nmetric = 'm'\nvalue = 1\nsource = 's'\nnoet = 'n'",
                "line 8: published[1].noet: there is no such key; did you mean note?",
            ),
            ("a = = 3", "line 3: invalid TOML"),
            ("experiment = 'x'", "line 3: invalid TOML: duplicate key"),
        ] {
            let error = read(&format!("{HEAD}{body}\n")).unwrap_err().to_string();
            assert!(error.starts_with(says), "{body}: {error}");
        }
        let missing = read("experiment = 'connect'\n").unwrap_err().to_string();
        assert_eq!(missing, "line 1: question: missing; write question = …");
    }

    #[test]
    fn no_text_at_all_breaks_the_reader() {
        for text in ["", "\u{0}", "[", "[[", "a.b.c", "[rounds]\n\u{1b}[31m = 1", "é = 'é"] {
            read(text).unwrap_err();
        }
    }
}
