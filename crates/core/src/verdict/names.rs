//! What is an arm called in a sentence? By its levels: `metro`, not `link metro`; `backlog 128`, because
//! 128 alone says nothing.
//!
//! Names in records stay as they are. Read [`crate::study::Study::arms`] for how those are made.

use std::collections::BTreeSet;

use crate::record::Arm;
use crate::study::level_text;

/// Levels that say nothing without their option.
const BARE: [&str; 12] =
    ["all", "auto", "default", "false", "full", "no", "none", "off", "on", "own", "true", "yes"];

/// The names of a run's arms for sentences.
#[derive(Clone, Debug)]
pub struct Names<'a> {
    arms: Vec<&'a Arm>,
    /// Options of which a level says nothing alone; all their levels keep its word.
    bare: BTreeSet<&'a str>,
}

impl<'a> Names<'a> {
    /// Of these arms.
    #[must_use]
    pub fn new(arms: impl IntoIterator<Item = &'a Arm>) -> Self {
        let arms: Vec<&Arm> = arms.into_iter().collect();
        let levels = arms.iter().flat_map(|arm| &arm.factors);
        let bare = levels.filter(|(_, level)| is_bare(&level_text(level)));
        let bare = bare.map(|(option, _)| option.as_str()).collect();
        Self { arms, bare }
    }

    /// An arm by its levels: `metro`, `backlog 128`, `rtt 20 ms`.
    #[must_use]
    pub fn arm(&self, arm: &Arm) -> String {
        let mut name = arm.name.clone();
        for (option, level) in &arm.factors {
            let level = level_text(level);
            let written = format!("{option} {level}");
            let Some(at) = part(&name, &written) else { continue };
            let word = if self.bare.contains(option.as_str()) {
                format!("{option} {}", words(&level))
            } else {
                words(&level)
            };
            name.replace_range(at..at + written.len(), &word);
        }
        name
    }

    /// The arm of this name in records; a name that no arm has stays.
    #[must_use]
    pub fn named(&self, name: &str) -> String {
        let arm = self.arms.iter().find(|arm| arm.name == name);
        arm.map_or_else(|| name.to_owned(), |arm| self.arm(arm))
    }

    /// The same as the subject of a sentence: in quotes, where it could be read as part of it.
    #[must_use]
    pub fn subject(&self, name: &str) -> String {
        let words = self.named(name);
        let is_prose = words.contains(' ') && !self.has_levels(name);
        if is_prose { format!("\"{words}\"") } else { words }
    }

    /// The condition that an arm stands for, before a sentence: `With backlog 16, `; of a name of its own `In arm
    /// NAME, `. Empty: there is no other arm.
    #[must_use]
    pub fn with(&self, arm: &Arm) -> String {
        match self.arms.len() {
            0 | 1 => String::new(),
            _ if self.has_levels(&arm.name) => format!("With {}, ", self.arm(arm)),
            _ => format!("In arm {}, ", self.subject(&arm.name)),
        }
    }

    /// Behind a figure of an arm: `(backlog 16)`; a name of its own could be read as a word about the figure: `in arm
    /// NAME`.
    #[must_use]
    pub fn beside(&self, arm: &Arm) -> String {
        if self.arms.len() <= 1 || self.has_levels(&arm.name) {
            format!("({})", self.arm(arm))
        } else {
            format!("in arm {}", self.subject(&arm.name))
        }
    }

    fn has_levels(&self, name: &str) -> bool {
        let arm = self.arms.iter().find(|arm| arm.name == name);
        arm.is_some_and(|arm| {
            let written = |(option, level): (&String, _)| format!("{option} {}", level_text(level));
            arm.factors.iter().any(|one| part(name, &written(one)).is_some())
        })
    }
}

/// Whether a level is a number, a size or a time, or one of the words that say nothing alone.
fn is_bare(level: &str) -> bool {
    BARE.contains(&level) || level.starts_with(|c: char| c.is_ascii_digit() || c == '-')
}

/// Where a part of a name begins; parts stand between commas.
fn part(name: &str, part: &str) -> Option<usize> {
    name.match_indices(part).map(|(at, _)| at).find(|&at| {
        let (before, after) = (&name[..at], &name[at + part.len()..]);
        (before.is_empty() || before.ends_with(", "))
            && (after.is_empty() || after.starts_with(", "))
    })
}

/// A level in words: `rtt=20ms,loss=1%` is `rtt 20 ms, loss 1 %`.
fn words(level: &str) -> String {
    if !level.contains('=') || level.contains([' ', '/']) {
        return level.to_owned();
    }
    let each = level.split(',').map(|part| match part.split_once('=') {
        Some((key, value)) => format!("{key} {}", apart(value)),
        None => part.to_owned(),
    });
    each.collect::<Vec<_>>().join(", ")
}

/// `20ms` is `20 ms`.
fn apart(value: &str) -> String {
    let end = value.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(value.len());
    match value.split_at(end) {
        ("", _) | (_, "") => value.to_owned(),
        (number, unit) => format!("{number} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arms(named: &[(&str, &[(&str, &str)])]) -> Vec<Arm> {
        let arm = |(name, levels): &(&str, &[(&str, &str)])| Arm {
            name: (*name).to_owned(),
            factors: levels.iter().map(|(key, level)| ((*key).into(), (*level).into())).collect(),
            ..Arm::default()
        };
        named.iter().map(arm).collect()
    }

    fn called(named: &[(&str, &[(&str, &str)])]) -> Vec<String> {
        let arms = arms(named);
        let names = Names::new(&arms);
        arms.iter().map(|arm| names.arm(arm)).collect()
    }

    #[test]
    fn an_arm_is_called_by_its_level_and_a_number_keeps_its_option() {
        assert_eq!(
            called(&[
                ("link metro", &[("link", "metro")]),
                ("link rtt=20ms,loss=1%", &[("link", "rtt=20ms,loss=1%")]),
            ]),
            ["metro", "rtt 20 ms, loss 1 %"]
        );
        assert_eq!(called(&[("backlog 128", &[("backlog", "128")])]), ["backlog 128"]);
        // One level that says nothing alone keeps the option's word for all.
        assert_eq!(
            called(&[("tls off", &[("tls", "off")]), ("tls resumed", &[("tls", "resumed")])]),
            ["tls off", "tls resumed"]
        );
        assert_eq!(called(&[("reuse keep-alive", &[("reuse", "keep-alive")])]), ["keep-alive"]);
    }

    #[test]
    fn a_name_of_several_levels_keeps_their_order_and_a_name_of_its_own_stays() {
        assert_eq!(
            called(&[("link metro, backlog 16", &[("backlog", "16"), ("link", "metro")])]),
            ["metro, backlog 16"]
        );
        assert_eq!(called(&[("on, sockets 7", &[("sockets", "7")])]), ["on, sockets 7"]);
        assert_eq!(called(&[("10 ms again", &[])]), ["10 ms again"]);
    }

    #[test]
    fn as_a_subject_a_name_of_several_words_is_in_quotes() {
        let all = arms(&[("10 ms again", &[]), ("backlog 16", &[("backlog", "16")])]);
        let names = Names::new(&all);
        assert_eq!(names.subject("10 ms again"), "\"10 ms again\"");
        assert_eq!(names.subject("backlog 16"), "backlog 16");
        assert_eq!(names.subject("B"), "B");
    }
}
