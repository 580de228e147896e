//! A study: one experiment, fixed settings, factors with levels or named arms, published figures.
//!
//! What the command line can do with lists (`--backlog 128,4096`) and what a study file can do are
//! one mechanism: both become a [`Study`], whose [`Study::arms`] are run one after the other.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::record::Published;

/// Option name (as on the command line, without dashes) to value.
pub type Settings = BTreeMap<String, Value>;

/// The most arms one study may have; a product of factors explodes quietly otherwise.
pub const ARMS_MAX: usize = 256;

/// A study as written in TOML, or as made from a command line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Study {
    /// Kebab case; empty for a command line.
    #[serde(default)]
    pub name: String,
    /// The question, ending in a question mark.
    pub question: String,
    /// The experiment's name.
    pub experiment: String,
    /// Where the idea or the published figures are from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Settings of every arm.
    #[serde(default)]
    pub settings: Settings,
    /// Option to its levels; arms are the product of all factors.
    #[serde(default)]
    pub factors: BTreeMap<String, Vec<Value>>,
    /// Named arms, each with settings of its own; multiplied by the factors, if any.
    #[serde(default, rename = "arm", skip_serializing_if = "Vec::is_empty")]
    pub named_arms: Vec<NamedArm>,
    /// Published figures to stand beside ours.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<Published>,
}

/// An arm with a name of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NamedArm {
    /// Unique within the study.
    pub name: String,
    /// Settings that differ from the study's.
    #[serde(flatten)]
    pub settings: Settings,
}

/// An arm ready to run.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedArm {
    /// Unique within the run.
    pub name: String,
    /// Option to level, of what differs between arms.
    pub factors: Settings,
    /// Every setting of the arm.
    pub settings: Settings,
}

/// Why a study cannot be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StudyError {
    /// Not TOML, or not of this shape; the text names line and key.
    #[error("the study is not readable: {0}")]
    Toml(String),
    /// A factor without levels.
    #[error("factor {0}: no levels; give at least one")]
    NoLevels(String),
    /// Too many arms.
    #[error("{arms} arms, at most {ARMS_MAX} are run: give fewer levels ({product})")]
    TooManyArms {
        /// How many the product makes.
        arms: usize,
        /// The product, as text.
        product: String,
    },
    /// Two arms of one name, or of the same settings.
    #[error("arm {0} is there twice: give each arm a level or name of its own")]
    Twice(String),
    /// A published figure of an arm that does not exist.
    #[error("published: no arm is called {0}")]
    NoSuchArm(String),
    /// The question is no question.
    #[error("question: it must end in a question mark")]
    NoQuestion,
}

impl Study {
    /// Reads a study file.
    pub fn from_toml(text: &str) -> Result<Self, StudyError> {
        let study: Self = toml::from_str(text)
            .map_err(|error| StudyError::Toml(error.to_string().trim_end().to_owned()))?;
        let arms = study.arms()?;
        let names: BTreeSet<&str> = arms.iter().map(|arm| arm.name.as_str()).collect();
        if let Some(published) = study.published.iter().find(|p| !names.contains(p.arm.as_str())) {
            return Err(StudyError::NoSuchArm(published.arm.clone()));
        }
        Ok(study)
    }

    /// The arms: named arms times the product of the factors, in the order written.
    pub fn arms(&self) -> Result<Vec<PlannedArm>, StudyError> {
        if !self.question.ends_with('?') {
            return Err(StudyError::NoQuestion);
        }
        if let Some((factor, _)) = self.factors.iter().find(|(_, levels)| levels.is_empty()) {
            return Err(StudyError::NoLevels(factor.clone()));
        }
        let count = self
            .factors
            .values()
            .map(Vec::len)
            .fold(self.named_arms.len().max(1), usize::saturating_mul);
        if count > ARMS_MAX {
            let product: Vec<String> =
                self.factors.iter().map(|(name, l)| format!("{name}: {}", l.len())).collect();
            return Err(StudyError::TooManyArms { arms: count, product: product.join(" × ") });
        }
        let mut arms: Vec<PlannedArm> = if self.named_arms.is_empty() {
            vec![PlannedArm {
                name: String::new(),
                factors: Settings::new(),
                settings: self.settings.clone(),
            }]
        } else {
            self.named_arms.iter().map(|arm| self.named(arm)).collect()
        };
        for (factor, levels) in &self.factors {
            arms = arms
                .iter()
                .flat_map(|arm| levels.iter().map(|level| arm.with_level(factor, level)))
                .collect();
        }
        if let [only] = arms.as_mut_slice()
            && only.name.is_empty()
        {
            only.name.clone_from(&self.experiment);
        }
        let mut seen = BTreeSet::new();
        match arms.iter().find(|arm| !seen.insert(arm.name.as_str())) {
            Some(twin) => Err(StudyError::Twice(twin.name.clone())),
            None => Ok(arms),
        }
    }

    fn named(&self, arm: &NamedArm) -> PlannedArm {
        let mut settings = self.settings.clone();
        settings.extend(arm.settings.clone());
        PlannedArm { name: arm.name.clone(), factors: arm.settings.clone(), settings }
    }
}

impl PlannedArm {
    fn with_level(&self, factor: &str, level: &Value) -> Self {
        let mut next = self.clone();
        next.factors.insert(factor.to_owned(), level.clone());
        next.settings.insert(factor.to_owned(), level.clone());
        if !next.name.is_empty() {
            next.name.push_str(", ");
        }
        let text = level.as_str().map_or_else(|| level.to_string(), str::to_owned);
        next.name.push_str(&format!("{factor} {text}"));
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn study(body: &str) -> Result<Study, StudyError> {
        Study::from_toml(&format!("question = 'what?'\nexperiment = 'connect'\n{body}"))
    }

    #[test]
    fn factors_multiply_and_name_the_arms() {
        let study = study("[factors]\nbacklog = [4, 128]\nlink = ['direct', 'metro']").unwrap();
        let names: Vec<_> = study.arms().unwrap().into_iter().map(|arm| arm.name).collect();
        assert_eq!(
            names,
            [
                "backlog 4, link direct",
                "backlog 4, link metro",
                "backlog 128, link direct",
                "backlog 128, link metro"
            ]
        );
    }

    #[test]
    fn a_named_arm_overrides_the_settings_of_the_study() {
        let study =
            study("[settings]\ncount = 10\n[[arm]]\nname = 'a'\ncount = 20\n[[arm]]\nname = 'b'")
                .unwrap();
        let arms = study.arms().unwrap();
        assert_eq!(arms[0].settings["count"], 20);
        assert_eq!(arms[1].settings["count"], 10);
        assert_eq!(arms[0].factors["count"], 20);
    }

    #[test]
    fn a_product_that_explodes_is_refused_with_its_count() {
        let levels = (0..20).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
        let error = study(&format!("[factors]\na = [{levels}]\nb = [{levels}]")).unwrap_err();
        assert!(error.to_string().starts_with("400 arms"), "{error}");
    }

    #[test]
    fn the_same_level_twice_is_refused() {
        assert!(matches!(study("[factors]\na = [1, 1]"), Err(StudyError::Twice(_))));
    }

    #[test]
    fn a_published_figure_needs_its_arm() {
        let body = "[[published]]\narm = 'x'\nmetric = 'm'\nvalue = 1.0\nsource = 's'";
        assert!(matches!(study(body), Err(StudyError::NoSuchArm(arm)) if arm == "x"));
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line() {
        let text = study("rouds = 3").unwrap_err().to_string();
        assert!(text.contains("rouds") && text.contains("line 3"), "{text}");
    }
}
