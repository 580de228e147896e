//! The JSON Schemas of what tcptoll prints and reads, as they are published.
//!
//! The types are the source of each; `cargo xtask docs` writes it to `docs/reference/*.schema.json` by an
//! example of this crate, and a test compares. The program has the written text: the code that makes it was
//! 0.15 MB of the wheel.

use crate::tune::found::Found;
use tcptoll_core::record::Summary;
use tcptoll_core::study::{Study, file};
use tcptoll_live::doctor::Examination;
use tcptoll_live::watch::{Review, State};

/// What a published schema describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schema {
    /// The examination that `doctor` prints.
    Doctor,
    /// A study file, with its TOML read as JSON.
    Study,
    /// The summary that closes a record.
    Summary,
    /// What `tune` found.
    Tune,
    /// The state of a machine that `watch` prints.
    Watch,
    /// The report of a record of `watch`.
    WatchReport,
}

impl Schema {
    /// All, in the order of their names.
    pub const ALL: [Self; 6] =
        [Self::Doctor, Self::Study, Self::Summary, Self::Tune, Self::Watch, Self::WatchReport];

    /// Its file in `docs/reference/` is `NAME.schema.json`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Doctor => "doctor",
            Self::Study => "study",
            Self::Summary => "summary",
            Self::Tune => "tune",
            Self::Watch => "watch",
            Self::WatchReport => "watch-report",
        }
    }

    /// Its published text: JSON that ends with a line feed.
    pub fn published(self) -> &'static str {
        match self {
            Self::Doctor => include_str!("schemas/doctor.schema.json"),
            Self::Study => file::SCHEMA,
            Self::Summary => include_str!("schemas/summary.schema.json"),
            Self::Tune => include_str!("schemas/tune.schema.json"),
            Self::Watch => include_str!("schemas/watch.schema.json"),
            Self::WatchReport => include_str!("schemas/watch-report.schema.json"),
        }
    }

    /// What its types say, as its text should be published.
    ///
    /// Errors: what keeps a schema from being written as JSON.
    pub fn of_types(self) -> serde_json::Result<String> {
        let schema = match self {
            Self::Doctor => schemars::schema_for!(Examination),
            Self::Study => schemars::schema_for!(Study),
            Self::Summary => schemars::schema_for!(Summary),
            Self::Tune => schemars::schema_for!(Found),
            Self::Watch => schemars::schema_for!(State),
            Self::WatchReport => schemars::schema_for!(Review),
        };
        Ok(serde_json::to_string_pretty(&schema)? + "\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_schema_is_what_its_types_say() {
        for schema in Schema::ALL {
            let (published, of_types) = (schema.published(), schema.of_types().unwrap());
            let differs = published.lines().zip(of_types.lines()).find(|(one, other)| one != other);
            assert!(
                published == of_types,
                "{} is not current: run `cargo xtask docs`. First difference: {differs:?}",
                schema.name()
            );
        }
    }
}
