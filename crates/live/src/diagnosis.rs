//! What is wrong with the connections of a live machine: evidence, the change that fixes it, its risk.
//!
//! `watch` names what happens now; `doctor` adds what the configuration will cause. Both state it with
//! one type. A diagnosis without evidence is not made.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tcptoll_core::sheet::Finding;
use tcptoll_core::units::plural;

/// One thing that is wrong, or is about to go wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Diagnosis {
    /// The cause's name, kebab case: a section of `docs/causes.md`.
    pub id: String,
    /// Whether it harms connections now.
    pub severity: Severity,
    /// What it is about: a listener (`10.0.0.7:6379`), a destination, a sysctl or a configuration file with
    /// its line. Stable: the same fault of the same thing has the same subject at each look.
    pub subject: String,
    /// Verdict and figures, one sentence of at most 120 characters.
    pub text: String,
    /// Counter, setting or measurement to value. Never empty.
    pub evidence: BTreeMap<String, serde_json::Value>,
    /// What fixes it; absent where no setting does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<Fix>,
}

/// Whether a diagnosis harms connections now.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// It harms connections now.
    Problem,
    /// Nothing is harmed yet: a limit is near, or a setting has no effect.
    Warning,
}

impl Severity {
    /// In a word.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Problem => "problem",
            Self::Warning => "warning",
        }
    }
}

/// A change that fixes a diagnosis.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Fix {
    /// What to change, one sentence.
    pub change: String,
    /// What to type, one command or configuration line an element; nothing is ever run by us.
    pub commands: Vec<String>,
    /// What is expected of it.
    pub effect: String,
    /// What may go wrong, or what it costs.
    pub risk: String,
    /// How to undo it.
    pub undo: String,
}

/// How many problems and warnings there are: `2 problems`, `1 warning`.
pub fn counted(severities: impl Iterator<Item = Severity>) -> Vec<String> {
    let (problems, warnings): (Vec<_>, Vec<_>) =
        severities.partition(|one| *one == Severity::Problem);
    let kinds = [(problems.len(), "problem"), (warnings.len(), "warning")].into_iter();
    kinds.filter(|(n, _)| *n > 0).map(|(n, noun)| plural(n as u64, noun)).collect()
}

/// A cause of a subject as an article: what is said of it, and its fix.
pub(crate) fn article(
    severity: Severity,
    [id, subject, text]: [&String; 3],
    fix: Option<&Fix>,
) -> Finding {
    let fix = fix.cloned().unwrap_or_default();
    let words = [("effect", fix.effect), ("risk", fix.risk), ("undo", fix.undo)];
    let words = words.into_iter().filter(|(_, text)| !text.is_empty());
    Finding {
        severity: severity.word().to_owned(),
        problem: severity == Severity::Problem,
        id: id.clone(),
        subject: subject.clone(),
        text: text.clone(),
        change: fix.change,
        commands: fix.commands,
        words: words.map(|(name, text)| [name.to_owned(), text]).collect(),
        more: vec![["explain".to_owned(), format!("tcptoll explain {id}")]],
        ..Finding::default()
    }
}
