//! Which arms are compared?

use std::collections::BTreeSet;

use serde_json::Value;

use crate::study::{Compare, PlannedArm, Settings, Study, StudyError, level_text, suggestion};
use crate::units::echo;

/// The most comparisons one study may have: their common 5 % is divided among them, and with more
/// no verdict would be found.
pub const PAIRS_MAX: usize = 1_000;

/// Two arms to compare.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// Metric.
    pub metric: String,
    /// Index of the arm of the numerator.
    pub a: usize,
    /// Index of the arm of the denominator.
    pub b: usize,
    /// Levels both share, for a ratio per level; a named arm's name stands under `arm`.
    pub per: Settings,
}

/// The pairs a study asks for, each once, in the order written.
///
/// `arms` are those of [`Study::arms`], whole. Where arms stand on an equal footing (`all_pairs`)
/// the earlier one is the denominator.
pub fn pairs(
    study: &Study,
    arms: &[PlannedArm],
    primary_metric: &str,
) -> Result<Vec<Pair>, StudyError> {
    let mut all: Vec<Pair> = Vec::new();
    let mut seen = BTreeSet::new();
    for (compare, number) in study.compare.iter().zip(1..) {
        let asked = CompareEntry { study, arms, compare, key: format!("compare[{number}]") };
        let metric = compare.metric.as_deref().unwrap_or(primary_metric);
        for (a, b, per) in asked.indices()? {
            if !seen.insert((metric, a.min(b), a.max(b))) {
                let (a, b) = (echo(&arms[a].name), echo(&arms[b].name));
                return Err(StudyError::key(
                    &asked.key,
                    format!("{a} and {b} are compared in {metric} twice; remove one comparison"),
                ));
            }
            all.push(Pair { metric: metric.to_owned(), a, b, per });
        }
        if all.len() > PAIRS_MAX {
            return Err(StudyError::key(
                &asked.key,
                format!("more than {PAIRS_MAX} comparisons; compare against one arm instead"),
            ));
        }
    }
    Ok(all)
}

/// One `[[compare]]` of a study.
struct CompareEntry<'a> {
    study: &'a Study,
    arms: &'a [PlannedArm],
    compare: &'a Compare,
    key: String,
}

impl CompareEntry<'_> {
    /// Numerator, denominator, shared levels.
    fn indices(&self) -> Result<Vec<(usize, usize, Settings)>, StudyError> {
        if self.arms.len() < 2 {
            return Err(StudyError::key(
                &self.key,
                "there is only one arm; give a factor two levels, or name two arms",
            ));
        }
        match (self.compare.all_pairs, &self.compare.factor, &self.compare.against) {
            (true, None, None) => Ok((0..self.arms.len())
                .flat_map(|b| (b + 1..self.arms.len()).map(move |a| (a, b, Settings::new())))
                .collect()),
            (false, None, Some(name)) => self.against_arm(name),
            (false, Some(factor), Some(level)) => self.against_level(factor, level),
            _ => Err(StudyError::key(
                &self.key,
                "write all_pairs = true, or against = \"ARM\", or factor = \"NAME\" with against = LEVEL",
            )),
        }
    }

    fn against_arm(&self, name: &Value) -> Result<Vec<(usize, usize, Settings)>, StudyError> {
        let name = level_text(name);
        if let Some(pairs) = self.against_named(&name) {
            return Ok(pairs);
        }
        let Some(b) = self.arms.iter().position(|arm| arm.name == name) else {
            let names: Vec<&str> = self.arms.iter().map(|arm| arm.name.as_str()).collect();
            let problem = format!("no such arm; {}", suggestion(&name, &names));
            return Err(StudyError::text(format!("{}.against", self.key), &name, problem));
        };
        let others = (0..self.arms.len()).filter(|a| *a != b);
        Ok(others.map(|a| (a, b, Settings::new())).collect())
    }

    /// Against a named arm of a study with factors: once per combination of their levels. `None`:
    /// there are no factors, or no such arm.
    fn against_named(&self, name: &str) -> Option<Vec<(usize, usize, Settings)>> {
        let named = &self.study.named_arms;
        let baseline = named.iter().position(|arm| arm.name == name)?;
        // Named arms turn slowest.
        let combinations = self.arms.len() / named.len();
        if self.study.factors.is_empty() {
            return None;
        }
        let pair = |combination: usize, arm: usize| {
            let at = |arm: usize| arm * combinations + combination;
            let levels = &self.arms[at(arm)].factors;
            let level = |name: &String| Some((name.clone(), levels.get(name)?.clone()));
            let per = self.study.factors.keys().filter_map(level).collect();
            (at(arm), at(baseline), per)
        };
        let others = |combination| {
            let others = (0..named.len()).filter(|arm| *arm != baseline);
            others.map(move |arm| pair(combination, arm))
        };
        Some((0..combinations).flat_map(others).collect())
    }

    fn against_level(
        &self,
        factor: &str,
        level: &Value,
    ) -> Result<Vec<(usize, usize, Settings)>, StudyError> {
        let Some(levels) = self.study.factors.get(factor) else {
            let names: Vec<&str> = self.study.factors.keys().map(String::as_str).collect();
            let problem = if names.is_empty() {
                "the study has no factors: write against = \"ARM\" alone, or all_pairs = true"
                    .into()
            } else {
                format!("no such factor; {}", suggestion(factor, &names))
            };
            return Err(StudyError::text(format!("{}.factor", self.key), factor, problem));
        };
        // As text: the command line has 128 as text where a file has a number.
        let texts: Vec<String> = levels.iter().map(level_text).collect();
        let Some(baseline) = texts.iter().position(|text| *text == level_text(level)) else {
            return Err(StudyError::text(
                format!("{}.against", self.key),
                &level_text(level),
                format!("no such level of {factor}; available: {}", texts.join(", ")),
            ));
        };
        if levels.len() < 2 {
            let problem = "the factor has only one level; add another";
            return Err(StudyError::text(format!("{}.factor", self.key), factor, problem));
        }
        // The last factor turns fastest: this far lie two of its levels apart, others alike.
        let stride: usize = self
            .study
            .factors
            .iter()
            .filter(|(name, _)| name.as_str() > factor)
            .map(|(_, levels)| levels.len())
            .product();
        let per_name = self.arms.len() / self.study.named_arms.len().max(1);
        let mut pairs = Vec::new();
        for first in (0..self.arms.len()).filter(|arm| (arm / stride).is_multiple_of(levels.len()))
        {
            let mut per: Settings = self
                .study
                .factors
                .keys()
                .filter(|name| *name != factor)
                .filter_map(|name| {
                    Some((name.clone(), self.arms[first].factors.get(name)?.clone()))
                })
                .collect();
            if let Some(named) = self.study.named_arms.get(first / per_name) {
                per.insert("arm".to_owned(), Value::from(named.name.clone()));
            }
            pairs.extend(
                (0..levels.len())
                    .filter(|level| *level != baseline)
                    .map(|level| (first + level * stride, first + baseline * stride, per.clone())),
            );
        }
        Ok(pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "question = 'what?'\nexperiment = 'connect'\n";
    const FACTORS: &str = "[factors]\nbacklog = [16, 4096]\nlink = ['direct', 'metro', 'wan']\n";

    fn study(body: &str) -> Study {
        Study::from_toml(&format!("{HEAD}{body}")).unwrap()
    }

    /// `a / b` of each pair, with what they share.
    fn asked(body: &str) -> Vec<String> {
        let study = study(body);
        let arms = study.arms().unwrap();
        let shown = |pair: &Pair| {
            let per: Vec<String> = pair.per.values().map(level_text).collect();
            format!("{} / {} [{}]", arms[pair.a].name, arms[pair.b].name, per.join(" "))
        };
        pairs(&study, &arms, "m").unwrap().iter().map(shown).collect()
    }

    fn refused(body: &str) -> String {
        Study::from_toml(&format!("{HEAD}{body}")).unwrap_err().to_string()
    }

    #[test]
    fn all_pairs_are_each_there_once_with_the_earlier_arm_below() {
        assert_eq!(
            asked("[factors]\nbacklog = [1, 2, 3]\n[[compare]]\nall_pairs = true"),
            ["backlog 2 / backlog 1 []", "backlog 3 / backlog 1 []", "backlog 3 / backlog 2 []"]
        );
    }

    #[test]
    fn named_arms_with_factors_are_compared_once_per_combination() {
        let arms = "[[arm]]\nname = 'a'\n[[arm]]\nname = 'b'\n[[arm]]\nname = 'c'\n";
        let body = format!("{arms}[factors]\nlink = ['x', 'y']\n[[compare]]\nagainst = 'a'");
        assert_eq!(
            asked(&body),
            [
                "b, link x / a, link x [x]",
                "c, link x / a, link x [x]",
                "b, link y / a, link y [y]",
                "c, link y / a, link y [y]"
            ]
        );
        let whole = body.replace("against = 'a'", "against = 'a, link x'");
        assert_eq!(asked(&whole).len(), 5);
    }

    #[test]
    fn every_arm_is_compared_against_the_one_that_is_named() {
        let arms = "[[arm]]\nname = 'a, old'\n[[arm]]\nname = 'b'\n[[arm]]\nname = 'c'\n";
        assert_eq!(
            asked(&format!("[[compare]]\nagainst = 'b'\n{arms}")),
            ["a, old / b []", "c / b []"]
        );
    }

    #[test]
    fn a_factor_is_compared_once_per_level_of_the_others() {
        assert_eq!(
            asked(&format!("{FACTORS}[[compare]]\nfactor = 'backlog'\nagainst = 4096")),
            [
                "backlog 16, link direct / backlog 4096, link direct [direct]",
                "backlog 16, link metro / backlog 4096, link metro [metro]",
                "backlog 16, link wan / backlog 4096, link wan [wan]"
            ]
        );
        assert_eq!(
            asked(&format!("{FACTORS}[[compare]]\nfactor = 'link'\nagainst = 'metro'")),
            [
                "backlog 16, link direct / backlog 16, link metro [16]",
                "backlog 16, link wan / backlog 16, link metro [16]",
                "backlog 4096, link direct / backlog 4096, link metro [4096]",
                "backlog 4096, link wan / backlog 4096, link metro [4096]"
            ]
        );
    }

    #[test]
    fn a_factor_is_compared_once_per_named_arm() {
        let arms = "[[arm]]\nname = 'a'\n[[arm]]\nname = 'b'\ncount = 3\n";
        assert_eq!(
            asked(&format!(
                "[factors]\nbacklog = [16, 4096]\n[[compare]]\nfactor = 'backlog'\nagainst = '16'\n{arms}"
            )),
            ["a, backlog 4096 / a, backlog 16 [a]", "b, backlog 4096 / b, backlog 16 [b]"]
        );
    }

    #[test]
    fn the_metric_is_the_primary_one_unless_another_is_named() {
        let study = study(
            "[factors]\nbacklog = [1, 2]\n[[compare]]\nall_pairs = true\n\
             [[compare]]\nall_pairs = true\nmetric = 'other'",
        );
        let pairs = pairs(&study, &study.arms().unwrap(), "m").unwrap();
        let metrics: Vec<&str> = pairs.iter().map(|pair| pair.metric.as_str()).collect();
        assert_eq!(metrics, ["m", "other"]);
    }

    #[test]
    fn what_cannot_be_compared_names_line_key_and_remedy() {
        let named = "[[arm]]\nname = 'old'\n[[arm]]\nname = 'new'\n";
        for (body, says) in [
            ("[[compare]]\nall_pairs = true", "line 3: compare[1]: there is only one arm"),
            (&format!("{FACTORS}[[compare]]\nmetric = 'm'"), "line 6: compare[1]: write all_pairs"),
            (
                &format!("{FACTORS}[[compare]]\nfactor = 'backlg'\nagainst = 16"),
                "line 7: compare[1].factor \"backlg\": no such factor; did you mean backlog?",
            ),
            (
                &format!("{FACTORS}[[compare]]\nfactor = 'backlog'\nagainst = 128"),
                "line 8: compare[1].against \"128\": no such level of backlog; available: 16, 4096",
            ),
            (
                &format!("[[compare]]\nagainst = 'odl'\n{named}"),
                "line 4: compare[1].against \"odl\": no such arm; did you mean old?",
            ),
            (
                &format!("{named}[[compare]]\nall_pairs = true\n[[compare]]\nagainst = 'old'"),
                "line 9: compare[2]: new and old are compared",
            ),
        ] {
            let error = refused(body);
            assert!(error.starts_with(says), "{error}");
        }
        let levels = (0..60).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
        let many = refused(&format!("[factors]\na = [{levels}]\n[[compare]]\nall_pairs = true"));
        assert!(many.contains("more than 1000 comparisons"), "{many}");
    }
}
