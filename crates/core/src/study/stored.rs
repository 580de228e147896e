//! A study as a record has it: what a later version added to it is passed over.
//!
//! In a study file an unknown key is a slip, and is refused. In a record it is the word of a newer
//! program, whose rounds can still be read and compared.

use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

use super::Study;

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
