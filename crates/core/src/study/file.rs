//! From the text of a study file to a study, checked as a whole: its arms, what it compares, how long
//! it runs; and from a record, where what a later version added is passed over.
//!
//! In a study file an unknown key is a slip, and is refused. In a record it is the word of a newer
//! program, whose rounds can still be read and compared.

use serde::{Deserialize, Deserializer, de};
use serde_json::Value;
use toml::de::{DeTable, DeValue};

use super::Study;
use super::error::{StudyError, key_at, line_at, suggestion};
use super::pairs::pairs;
use super::stop::StopRule;
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

impl Study {
    /// Reads a study file.
    ///
    /// Errors: with line, key and remedy. What only the experiment knows (its options, its
    /// metrics) is not looked at.
    pub fn from_toml(text: &str) -> Result<Self, StudyError> {
        let study = read(text)?;
        study.check().map_err(|error| error.in_text(text))?;
        Ok(study)
    }

    /// Checks all that can be told without the experiment.
    pub fn check(&self) -> Result<(), StudyError> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if !self.name.chars().all(plain) || self.name.starts_with('-') {
            let problem = "write lower-case letters, digits and hyphens";
            return Err(StudyError::text("name", &self.name, problem));
        }
        let arms = self.arms()?;
        self.check_lost()?;
        for (published, number) in self.published.iter().zip(1..) {
            if !arms.iter().any(|arm| arm.name == published.arm) {
                let names: Vec<&str> = arms.iter().map(|arm| arm.name.as_str()).collect();
                return Err(StudyError::text(
                    format!("published[{number}].arm"),
                    &published.arm,
                    format!("no such arm; {}", suggestion(&published.arm, &names)),
                ));
            }
        }
        self.margin()?;
        StopRule::from_study(self)?;
        let metric = self.metric.as_deref().unwrap_or("the primary metric");
        pairs(self, &arms, metric).map(drop)
    }

    /// Refuses a setting that is given in two places of which one has no say. That a named arm has
    /// its own instead of the study's is no loss.
    fn check_lost(&self) -> Result<(), StudyError> {
        let lost = |key: String, by: String| {
            Err(StudyError::key(key, format!("overridden in every arm by {by}; remove it here")))
        };
        for factor in self.factors.keys() {
            let by = format!("the factor {}", echo(factor));
            if factor == "warmup" && self.warmup.is_some() {
                return lost("warmup".to_owned(), by);
            }
            if self.settings.contains_key(factor) {
                return lost(format!("settings.{factor}"), by);
            }
            let arm = self.named_arms.iter().position(|arm| arm.settings.contains_key(factor));
            if let Some(arm) = arm {
                return lost(format!("arm[{}].{factor}", arm + 1), by);
            }
        }
        if self.warmup.is_some() && self.settings.contains_key("warmup") {
            return lost("warmup".to_owned(), "settings.warmup".to_owned());
        }
        Ok(())
    }
}

/// The published JSON Schema of a study file.
pub const SCHEMA: &str = include_str!("study.schema.json");

/// Reads a study without the keys that its types do not know, at any depth.
///
/// Errors: what is known holds what it cannot, or is missing.
pub(crate) fn stored<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Study, D::Error> {
    let mut value = Value::deserialize(deserializer)?;
    // Its published schema says which keys there are.
    let schema: Value = serde_json::from_str(SCHEMA).map_err(de::Error::custom)?;
    keep_known(&mut value, &schema, &schema);
    serde_json::from_value(value).map_err(de::Error::custom)
}

/// Removes, wherever `schema` allows no other keys, all that it does not name.
///
/// `root` is what its references, `#/$defs/NAME`, are looked up in.
fn keep_known(value: &mut Value, schema: &Value, root: &Value) {
    let named = schema["$ref"].as_str().and_then(|path| root.pointer(path.strip_prefix('#')?));
    let schema = named.unwrap_or(schema);
    match value {
        Value::Object(table) => {
            if schema["additionalProperties"] == Value::Bool(false) {
                table.retain(|key, _| schema["properties"].get(key).is_some());
            }
            for (key, inner) in table {
                keep_known(inner, &schema["properties"][key.as_str()], root);
            }
        }
        Value::Array(items) => {
            for item in items {
                keep_known(item, &schema["items"], root);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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

    const FILE: &str = "question = 'what?'\nexperiment = 'connect'\nwarmup = 3\n\
                        [rounds]\ntarget = 'ci 1%'\nmin = 6\n[settings]\ncount = 1\n\
                        [factors]\nbacklog = [1, 2]\n[[arm]]\nname = 'a'\nrate = 1.5\n\
                        [[compare]]\nfactor = 'backlog'\nagainst = 1\n[[published]]\n\
                        arm = 'a, backlog 1'\nmetric = 'm'\nvalue = 1\nsource = 's'\n";

    #[test]
    fn a_record_s_study_is_read_without_what_a_later_version_added() {
        let study = Study::from_toml(FILE).unwrap();
        let written = serde_json::to_value(&study).unwrap();
        let mut later = written.clone();
        later["telepathy"] = json!({ "at": [1, 2] });
        later["rounds"]["until"] = json!("noon");
        later["compare"][0]["how"] = json!("by eye");
        later["published"][0]["page"] = json!(3);
        assert!(serde_json::from_value::<Study>(later.clone()).is_err());
        assert_eq!(stored(later).unwrap(), study);
        assert_eq!(stored(written).unwrap(), study, "settings, factors and arms are whole");
    }

    #[test]
    fn what_is_known_is_still_checked() {
        for broken in [
            json!({ "question": "what?" }),
            json!({ "question": "what?", "experiment": "connect", "rounds": { "min": "six" } }),
            json!(["what?"]),
        ] {
            assert!(stored(broken.clone()).is_err(), "{broken}");
        }
    }
}
