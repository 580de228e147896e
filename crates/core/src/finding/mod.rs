//! What is wrong, and what to change: what runs, `watch`, `doctor` and `tune` conclude with.
//!
//! A finding without evidence is not made. What it says of figures stands beside its rule; the words of what to
//! change stand once, in `docs/causes.md` ([`Remedy::named`]).

pub mod queues;
mod remedies;

pub use remedies::CAUSES;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::record::{Advice, Cause};
use crate::sheet::Article;
use crate::units::plural;

/// Counter, setting or measurement to value.
pub type Evidence = BTreeMap<String, Value>;

/// One thing that is wrong, or is about to go wrong.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Diagnosis")]
pub struct Finding {
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
    pub evidence: Evidence,
    /// What fixes it; absent where no setting does.
    #[serde(
        default,
        rename = "fix",
        skip_serializing_if = "Vec::is_empty",
        serialize_with = "first",
        deserialize_with = "only"
    )]
    #[schemars(with = "Option<Remedy>")]
    pub remedies: Vec<Remedy>,
}

/// Of several the first is stored.
fn first<S: Serializer>(remedies: &[Remedy], out: S) -> Result<S::Ok, S::Error> {
    remedies.first().serialize(out)
}

fn only<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<Remedy>, D::Error> {
    Ok(Option::deserialize(input)?.into_iter().collect())
}

/// Whether a finding harms connections now.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// It harms connections now.
    #[default]
    Problem,
    /// Nothing is harmed yet: a limit is near, or a setting has no effect.
    Warning,
}

/// A change that fixes what was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Fix")]
pub struct Remedy {
    /// What to change, one sentence.
    pub change: String,
    /// What to type, one command or configuration line an element; nothing is ever run by us.
    pub commands: Vec<String>,
    /// What is expected of it.
    pub effect: String,
    /// What may go wrong, or what it costs.
    #[serde(rename = "risk")]
    pub cost: String,
    /// How to undo it.
    pub undo: String,
    /// Where it is no remedy; absent: nowhere.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub not_if: String,
    /// What was measured with the change in place, where it was.
    #[serde(skip)]
    pub proof: Option<String>,
}

impl Finding {
    /// What the evidence of an arm says; whoever finds it adds its name, its arm and what to change.
    pub fn new<N: Into<String>, V: Into<Value>>(
        text: impl Into<String>,
        evidence: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        let evidence = evidence.into_iter().map(|(name, value)| (name.into(), value.into()));
        Self { text: text.into(), evidence: evidence.collect(), ..Self::default() }
    }

    /// The remedy to try first.
    pub fn fix(&self) -> Option<&Remedy> {
        self.remedies.first()
    }
}

impl Severity {
    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Problem => "problem",
            Self::Warning => "warning",
        }
    }

    /// Whether something harms connections now.
    pub fn harming(harms: bool) -> Self {
        if harms { Self::Problem } else { Self::Warning }
    }
}

/// How many problems and warnings there are: `2 problems`, `1 warning`.
pub fn counted(severities: impl Iterator<Item = Severity>) -> Vec<String> {
    let (problems, warnings): (Vec<_>, Vec<_>) =
        severities.partition(|one| *one == Severity::Problem);
    let kinds = [(problems.len(), "problem"), (warnings.len(), "warning")].into_iter();
    kinds.filter(|(n, _)| *n > 0).map(|(n, noun)| plural(n as u64, noun)).collect()
}

/// A run's record keeps a finding as the cause of an arm.
impl From<Finding> for Cause {
    fn from(found: Finding) -> Self {
        let Finding { id, subject, text, evidence, .. } = found;
        Self { id, arm: subject, text, evidence }
    }
}

/// A finding as an article: what is said of it, and its remedy.
pub fn article(
    severity: Severity,
    [id, subject, text]: [&String; 3],
    fix: Option<&Remedy>,
) -> Article {
    let fix = fix.cloned().unwrap_or_default();
    let words =
        [("effect", fix.effect), ("not if", fix.not_if), ("risk", fix.cost), ("undo", fix.undo)];
    let words = words.into_iter().filter(|(_, text)| !text.is_empty());
    Article {
        severity: severity.word().to_owned(),
        problem: severity == Severity::Problem,
        id: id.clone(),
        subject: subject.clone(),
        text: text.clone(),
        change: fix.change,
        commands: fix.commands,
        words: words.map(|(name, text)| [name.to_owned(), text]).collect(),
        more: vec![["explain".to_owned(), format!("tcptoll explain {id}")]],
        ..Article::default()
    }
}

impl Remedy {
    /// With this added to what to change: what the run's own figures say of it.
    #[must_use]
    pub fn and(self, more: &str) -> Self {
        Self { change: format!("{} {more}", self.change), ..self }
    }

    /// With what was measured.
    #[must_use]
    pub fn proven(self, proof: Option<String>) -> Self {
        Self { proof, ..self }
    }

    /// As it is typed from outside of the network namespace that it is about: that of a process, or a file.
    pub fn enter(&mut self, netns: &str) {
        const IN_NAMESPACE: [&str; 6] =
            ["sysctl ", "ss ", "nstat ", "ip ", "conntrack ", "tcptoll "];
        let enter = match netns.parse::<u32>() {
            Ok(pid) => format!("nsenter -t {pid} -n"),
            Err(_) => format!("nsenter --net={netns}"),
        };
        for command in &mut self.commands {
            if IN_NAMESPACE.iter().any(|begin| command.starts_with(begin)) {
                *command = format!("{enter} {command}");
            }
        }
    }

    /// As a run's record keeps it, where it is no remedy included.
    pub fn advice(self, cause: &str) -> Advice {
        let Self { mut change, cost, undo, not_if, proof, .. } = self;
        let mut not_if = not_if.chars();
        if let Some(first) = not_if.next() {
            change += &format!(" Not if {}{}", first.to_lowercase(), not_if.as_str());
        }
        Advice { cause: cause.to_owned(), change, cost, undo, proof }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_about_another_network_namespace_enter_it() {
        let with = |netns| {
            let mut remedy = Remedy::named("accept-queue-full", "longer").with("BACKLOG", 64);
            remedy.enter(netns);
            remedy.commands
        };
        assert_eq!(
            with("4711"),
            ["nsenter -t 4711 -n sysctl -w net.core.somaxconn=64", "listen(fd, 64)"]
        );
        assert!(with("/run/netns/a")[0].starts_with("nsenter --net=/run/netns/a sysctl "));
    }
}
